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

/// The two tables that the formats before had in place of one.
const BEFORE: &str = "
    CREATE TABLE latest (
        scope TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, live INTEGER NOT NULL,
        PRIMARY KEY (scope, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE blob (
        scope TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
        created_at INTEGER NOT NULL, expires_at INTEGER, audience TEXT NOT NULL,
        key BLOB NOT NULL, wrapped BLOB NOT NULL, value BLOB NOT NULL,
        PRIMARY KEY (scope, name, version)
    ) STRICT;
    CREATE INDEX blob_ends ON blob (expires_at) WHERE expires_at IS NOT NULL;
    INSERT INTO latest SELECT scope, name, max(version), value IS NOT NULL
        FROM version GROUP BY scope, name;
    INSERT INTO blob SELECT * FROM version WHERE value IS NOT NULL;
    DROP TABLE version;
";

/// Files of the formats before open with all that is in them, and take the daemon's keys.
#[test]
fn vaults_of_earlier_versions_open_whole() {
    for (format, without) in [(1, "DROP TABLE own;"), (2, "")] {
        let folder = folder();
        let vault = open(folder.path()).unwrap();
        put(&vault, "a", "first of a");
        put(&vault, "a", "value of a");
        put(&vault, "gone", "value of gone");
        vault.delete(&"gone".parse().unwrap()).unwrap();
        drop(vault);
        let database = Connection::open(folder.path().join("vault.db")).unwrap();
        let earlier = format!("{BEFORE} {without} PRAGMA user_version = {format};");
        database.execute_batch(&earlier).unwrap();
        drop(database);
        drop(locked(folder.path()).unwrap());

        let vault = open(folder.path()).unwrap();
        assert_eq!(crate::support::get(&vault, "a").unwrap(), "value of a");
        assert_eq!(vault.versions(&"a".parse().unwrap()).unwrap().len(), 2);
        assert!(crate::support::get(&vault, "gone").is_err());
        let (version, _) = vault
            .put(&crate::support::new("gone", b"again"), NOW)
            .unwrap();
        assert_eq!(version, 2, "numbers never repeat");
        vault.keep_own(&keys(1)).unwrap();
        drop(vault);
        let vault = open(folder.path()).unwrap();
        assert_eq!(own(&vault, "journal.blobs"), Some(vec![2; 32]));
        assert_eq!(crate::support::get(&vault, "gone").unwrap(), "again");
        assert_eq!(vault.list(None, 9).unwrap().len(), 2);
    }
}
