//! What is put is given back; what is listed holds no value.

use palyra_core::Audience;
use palyra_vault::VaultError;

use crate::support::{NOW, folder, get, locked, named, new, open, put, refused};

#[test]
fn a_secret_is_there_after_a_restart_and_its_versions_with_it() {
    let folder = folder();
    let vault = open(folder.path()).unwrap();
    assert_eq!(put(&vault, "token", "one"), 1);
    assert_eq!(put(&vault, "token", "two"), 2);
    assert_eq!(put(&vault, "agent:claude/token", "other"), 1);
    drop(vault);
    let vault = open(folder.path()).unwrap();
    assert_eq!(get(&vault, "token").unwrap(), "two");
    assert_eq!(get(&vault, "agent:claude/token").unwrap(), "other");
    let (old, info) = vault.get(&named("token"), Some(1), NOW).unwrap();
    assert_eq!((old.expose(), info.version), (b"one".as_slice(), 1));
    let versions = vault.versions(&named("token")).unwrap();
    assert_eq!(
        versions.iter().map(|v| v.version).collect::<Vec<_>>(),
        [2, 1]
    );
}

#[test]
fn a_locked_vault_lists_and_gives_nothing() {
    let folder = folder();
    put(&open(folder.path()).unwrap(), "token", "hunter2-hunter2");
    let vault = locked(folder.path()).unwrap();
    assert_eq!(vault.list(None, 10).unwrap()[0].secret, named("token"));
    assert!(!vault.status().unwrap().unwrap().open);
    assert!(vault.recognises(b"hunter2-hunter2").is_none());
    for error in [
        refused(vault.get(&named("token"), None, NOW)),
        refused(vault.put(&new("x", b"y"), NOW)),
        refused(vault.delete(&named("token"))),
    ] {
        assert_eq!(error.code(), "vault_locked");
    }
    let vault = {
        drop(vault);
        open(folder.path()).unwrap()
    };
    assert_eq!(vault.recognises(b"hunter2-hunter2"), Some(true));
    vault.lock();
    assert_eq!(refused(get(&vault, "token")).code(), "vault_locked");
    assert!(vault.recognises(b"hunter2-hunter2").is_none());
}

#[test]
fn what_is_deleted_is_gone_and_its_numbers_never_come_back() {
    let folder = folder();
    let vault = open(folder.path()).unwrap();
    put(&vault, "token", "one-one-one");
    vault.delete(&named("token")).unwrap();
    assert_eq!(vault.recognises(b"one-one-one"), Some(false));
    assert_eq!(refused(get(&vault, "token")).code(), "no_such_secret");
    assert_eq!(
        refused(vault.delete(&named("token"))).code(),
        "no_such_secret"
    );
    assert!(vault.list(None, 10).unwrap().is_empty());
    assert_eq!(put(&vault, "token", "two"), 2);
    let gone = refused(vault.get(&named("token"), Some(1), NOW));
    assert_eq!(gone.code(), "no_such_version");
}

#[test]
fn a_secret_ends_when_it_was_said_to_and_is_swept() {
    let folder = folder();
    let vault = open(folder.path()).unwrap();
    let later = NOW.plus(std::time::Duration::from_secs(60));
    let mut short = new("token", b"value-value");
    short.expires_at = Some(later);
    vault.put(&short, NOW).unwrap();
    assert!(get(&vault, "token").is_ok());
    assert!(vault.sweep(NOW).unwrap().is_none());
    let ended = refused(vault.get(&named("token"), None, later));
    assert!(matches!(ended, VaultError::Expired { .. }), "{ended}");
    let before = vault.status().unwrap().unwrap().head.generation;
    assert_eq!(vault.sweep(later).unwrap().unwrap().generation, before + 1);
    assert_eq!(refused(get(&vault, "token")).code(), "no_such_secret");
    assert_eq!(vault.recognises(b"value-value"), Some(false));
    drop(vault);
    assert_eq!(put(&open(folder.path()).unwrap(), "token", "x"), 2);
}

#[test]
fn only_so_many_versions_are_kept() {
    let folder = folder();
    let vault = open(folder.path()).unwrap();
    for number in 1..=20 {
        put(&vault, "token", &format!("value number {number:04}"));
    }
    let versions = vault.versions(&named("token")).unwrap();
    assert_eq!((versions.len(), versions[15].version), (16, 5));
    assert_eq!(vault.recognises(b"value number 0004"), Some(false));
    assert_eq!(vault.recognises(b"value number 0005"), Some(true));
    drop(vault);
    assert!(open(folder.path()).is_ok(), "the head fits");
}

#[test]
fn values_have_a_size() {
    let folder = folder();
    let vault = open(folder.path()).unwrap();
    let code = |value: &[u8]| refused(vault.put(&new("x", value), NOW)).code();
    assert_eq!(code(b""), "secret_empty");
    assert_eq!(code(&vec![1; 1 << 20]), "secret_too_large");
    assert_eq!(code(&vec![1; (64 << 10) + 1]), "secret_too_large");
    assert!(vault.put(&new("x", &vec![1; 64 << 10]), NOW).is_ok());
    let mut odd = new("y", b"value");
    odd.audience = vec![Audience::at("api.example.com").unwrap()];
    odd.audience[0].methods = vec!["get".to_owned()];
    assert_eq!(refused(vault.put(&odd, NOW)).code(), "bad_audience");
    assert_eq!(refused(get(&vault, "y")).code(), "no_such_secret");
}

#[test]
fn the_file_and_every_message_are_without_the_value() {
    let folder = folder();
    let vault = open(folder.path()).unwrap();
    put(&vault, "token", "canary-Zx81-canary");
    vault.status().unwrap();
    let said = format!("{:?} {:?}", vault.list(None, 9), vault.status());
    assert!(!said.contains("Zx81"));
    drop(vault);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(4).any(|window| window == b"Zx81"));
    }
}

#[test]
fn two_daemons_do_not_share_a_vault() {
    let folder = folder();
    let vault = open(folder.path()).unwrap();
    assert_eq!(refused(open(folder.path())).code(), "vault_in_use");
    drop(vault);
    assert!(open(folder.path()).is_ok());
}
