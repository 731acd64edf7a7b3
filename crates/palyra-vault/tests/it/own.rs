//! The daemon's own keys: sealed with the rest, and secrets to nobody.

use palyra_core::SecretValue;
use palyra_vault::keystore::Passphrase;
use palyra_vault::{Opener, Vault, Wrapping};
use rusqlite::Connection;

use crate::support::{NOW, folder, locked, named, open, put, refused};

fn keys(byte: u8) -> [(&'static str, SecretValue); 2] {
    let key = |byte| SecretValue::new(vec![byte; 32]);
    [
        ("journal.signing", key(byte)),
        ("journal.blobs", key(byte + 1)),
    ]
}

fn own(vault: &Vault, name: &str) -> Option<Vec<u8>> {
    vault.own(name).unwrap().map(|key| key.expose().to_vec())
}

#[test]
fn a_key_of_the_daemon_is_kept_replaced_and_listed_nowhere() {
    let folder = folder();
    let vault = open(folder.path()).unwrap();
    assert_eq!(own(&vault, "journal.signing"), None);
    let before = vault.status().unwrap().unwrap().head.generation;
    vault.keep_own(&keys(1)).unwrap();
    vault.keep_own(&keys(5)).unwrap();
    drop(vault);
    let vault = open(folder.path()).unwrap();
    assert_eq!(own(&vault, "journal.signing"), Some(vec![5; 32]));
    assert_eq!(own(&vault, "journal.blobs"), Some(vec![6; 32]));
    let status = vault.status().unwrap().unwrap();
    assert_eq!(status.own, ["journal.blobs", "journal.signing"]);
    assert_eq!(status.head.generation, before + 2, "each change is counted");
    assert!(vault.list(None, 10).unwrap().is_empty());
    let error = refused(vault.get(&named("journal.signing"), None, NOW));
    assert_eq!(error.code(), "no_such_secret");
    // A secret of that name is another thing.
    put(&vault, "journal.signing", "mine");
    assert_eq!(own(&vault, "journal.signing"), Some(vec![5; 32]));
    let bytes = std::fs::read(folder.path().join("vault.db")).unwrap();
    assert!(
        !bytes.windows(32).any(|seen| seen == [5; 32]),
        "it is sealed"
    );
    vault.lock();
    assert_eq!(refused(vault.own("journal.signing")).code(), "vault_locked");
}

#[test]
fn a_backup_brings_them_to_another_vault_only_when_they_are_asked_for() {
    let (here, there) = (folder(), folder());
    let vault = open(here.path()).unwrap();
    vault.keep_own(&keys(1)).unwrap();
    put(&vault, "a", "value of a");
    let passphrase = || Passphrase::new("correct horse".to_owned());
    let file = vault
        .export(&Wrapping::Passphrase(passphrase()), NOW)
        .unwrap();
    let opener = Opener::Passphrase(passphrase());
    let other = open(there.path()).unwrap();
    assert_eq!(other.import(&file, &opener, NOW).unwrap().secrets, 1);
    assert_eq!(own(&other, "journal.signing"), None, "not by themselves");
    let contents = Vault::read_backup(&file, &opener).unwrap();
    assert!(contents.own("journal.blobs").is_some() && contents.own("x").is_none());
    other.restore(&contents, &["journal.signing"], NOW).unwrap();
    assert_eq!(own(&other, "journal.signing"), Some(vec![1; 32]));
    assert_eq!(own(&other, "journal.blobs"), None);
}

/// A file of the format before: it opens, and takes them.
#[test]
fn a_vault_of_an_earlier_version_gets_a_place_for_them() {
    let folder = folder();
    let vault = open(folder.path()).unwrap();
    put(&vault, "a", "value of a");
    drop(vault);
    let database = Connection::open(folder.path().join("vault.db")).unwrap();
    database
        .execute_batch("DROP TABLE own; PRAGMA user_version = 1;")
        .unwrap();
    drop(database);
    drop(locked(folder.path()).unwrap());
    let vault = open(folder.path()).unwrap();
    assert_eq!(crate::support::get(&vault, "a").unwrap(), "value of a");
    vault.keep_own(&keys(1)).unwrap();
    drop(vault);
    let vault = open(folder.path()).unwrap();
    assert_eq!(own(&vault, "journal.blobs"), Some(vec![2; 32]));
}
