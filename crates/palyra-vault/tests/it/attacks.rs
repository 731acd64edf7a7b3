//! Whoever can write the file: what they move, swap or put back is noticed.

use std::path::Path;

use palyra_core::{Audience, SecretValue};
use rusqlite::Connection;

use crate::support::{NOW, folder, get, new, open, put, refused};

fn edit(folder: &Path, sql: &str) {
    let database = Connection::open(folder.join("vault.db")).unwrap();
    database.execute_batch(sql).unwrap();
}

/// A vault with three versions of two secrets and a key of the daemon, closed.
pub(crate) fn sample() -> tempfile::TempDir {
    let folder = folder();
    let vault = open(folder.path()).unwrap();
    put(&vault, "a", "first of a");
    put(&vault, "a", "second of a");
    let mut b = new("agent:x/b", b"only one of b");
    b.audience = vec![Audience::at("api.example.com").unwrap()];
    b.expires_at = Some(NOW.plus(std::time::Duration::from_secs(3_600)));
    vault.put(&b, NOW).unwrap();
    let own = [
        ("own.a", SecretValue::new(vec![7; 32])),
        ("own.b", SecretValue::new(vec![8; 32])),
    ];
    vault.keep_own(&own).unwrap();
    folder
}

#[test]
fn nothing_that_was_moved_or_edited_opens() {
    let swapped = |columns: &str| {
        let set = columns.split(',').map(|column| {
            format!(
                "UPDATE version SET {column} = (SELECT {column} FROM old o WHERE o.name <> version.name
                    AND o.version = 1) WHERE version = 1;"
            )
        });
        format!(
            "CREATE TEMP TABLE old AS SELECT * FROM version; {}",
            set.collect::<String>()
        )
    };
    let attacks = [
        ("blobs swapped", swapped("key,wrapped,value")),
        ("wrapped keys swapped", swapped("wrapped")),
        ("values swapped", swapped("value")),
        ("moved to another name", "UPDATE version SET name = 'c' WHERE name = 'b'".into()),
        ("moved to another scope", "UPDATE version SET scope = 'global' WHERE name = 'b'".into()),
        ("an older version in place of the newer", "DELETE FROM version WHERE name = 'a' AND version = 2; UPDATE version SET version = 2 WHERE name = 'a'".into()),
        ("the newest version taken away", "DELETE FROM version WHERE name = 'a' AND version = 2".into()),
        ("a secret taken away", "DELETE FROM version WHERE name = 'b'".into()),
        ("a secret hidden", "UPDATE version SET value = NULL WHERE name = 'b'".into()),
        ("another audience", r#"UPDATE version SET audience = replace(audience, 'api.example', 'evil.example') WHERE name = 'b'"#.into()),
        ("a longer life", "UPDATE version SET expires_at = expires_at + 1 WHERE name = 'b'".into()),
        ("a later generation", "UPDATE vault SET generation = generation + 5".into()),
        ("another key store", "UPDATE vault SET keystore = 'passphrase'".into()),
        ("a key that is awaited", "UPDATE vault SET pending = x'0102030405060708'".into()),
        ("a key of the daemon taken away", "DELETE FROM own WHERE name = 'own.a'".into()),
        ("keys of the daemon swapped", "UPDATE own SET name = 'x' WHERE name = 'own.a'; UPDATE own SET name = 'own.a' WHERE name = 'own.b'; UPDATE own SET name = 'own.b' WHERE name = 'x'".into()),
        ("a key of the daemon edited", "UPDATE own SET value = zeroblob(length(value)) WHERE name = 'own.a'".into()),
        ("a secret as a key of the daemon", "UPDATE own SET (key, wrapped, value) = (SELECT key, wrapped, value FROM version WHERE name = 'b') WHERE name = 'own.a'".into()),
        ("another last change", "UPDATE vault SET change = '{\"change\":\"created\"}'".into()),
    ];
    for (what, sql) in attacks {
        let folder = sample();
        edit(folder.path(), &sql);
        let error = refused(open(folder.path()));
        let named = ["vault_damaged", "vault_other_keystore"].contains(&error.code());
        assert!(named, "{what}: {error}");
    }
    // The control: the same way in, and nothing changed.
    let folder = sample();
    edit(folder.path(), "UPDATE version SET version = version");
    let vault = open(folder.path()).unwrap();
    assert_eq!(get(&vault, "a").unwrap(), "second of a");
    assert_eq!(vault.own("own.a").unwrap().unwrap().expose(), [7; 32]);
}

#[test]
fn a_blob_of_another_vault_does_not_open() {
    let (one, other) = (sample(), sample());
    std::fs::copy(one.path().join("vault.db"), other.path().join("vault.db")).unwrap();
    let error = refused(open(other.path()));
    assert_eq!(error.code(), "keystore_no_such_key", "{error}");
    std::fs::copy(one.path().join("vault.key"), other.path().join("vault.key")).unwrap();
    assert!(open(other.path()).is_ok(), "with its key it does");
}
