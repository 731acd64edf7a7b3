//! Whoever can write the file: what they move, swap, put back, cut or flip is noticed.

use std::path::Path;

use palyra_core::Audience;
use rusqlite::Connection;

use crate::support::{NOW, folder, get, new, open, put, refused};

fn edit(folder: &Path, sql: &str) {
    let database = Connection::open(folder.join("vault.db")).unwrap();
    database.execute_batch(sql).unwrap();
}

/// A vault with three versions of two secrets, closed.
fn sample() -> tempfile::TempDir {
    let folder = folder();
    let vault = open(folder.path()).unwrap();
    put(&vault, "a", "first of a");
    put(&vault, "a", "second of a");
    let mut b = new("agent:x/b", b"only one of b");
    b.audience = vec![Audience::at("api.example.com").unwrap()];
    b.expires_at = Some(NOW.plus(std::time::Duration::from_secs(3_600)));
    vault.put(&b, NOW).unwrap();
    folder
}

#[test]
fn nothing_that_was_moved_or_edited_opens() {
    let swapped = |columns: &str| {
        let set = columns.split(',').map(|column| {
            format!(
                "UPDATE blob SET {column} = (SELECT {column} FROM old o WHERE o.name <> blob.name
                    AND o.version = 1) WHERE version = 1;"
            )
        });
        format!(
            "CREATE TEMP TABLE old AS SELECT * FROM blob; {}",
            set.collect::<String>()
        )
    };
    let attacks = [
        ("blobs swapped", swapped("key,wrapped,value")),
        ("wrapped keys swapped", swapped("wrapped")),
        ("values swapped", swapped("value")),
        ("moved to another name", "UPDATE blob SET name = 'c' WHERE name = 'b'; UPDATE latest SET name = 'c' WHERE name = 'b'".into()),
        ("moved to another scope", "UPDATE blob SET scope = 'global' WHERE name = 'b'; UPDATE latest SET scope = 'global' WHERE name = 'b'".into()),
        ("an older version in place of the newer", "DELETE FROM blob WHERE name = 'a' AND version = 2; UPDATE blob SET version = 2 WHERE name = 'a'".into()),
        ("the newest version taken away", "DELETE FROM blob WHERE name = 'a' AND version = 2; UPDATE latest SET version = 1 WHERE name = 'a'".into()),
        ("a secret taken away", "DELETE FROM blob WHERE name = 'b'; DELETE FROM latest WHERE name = 'b'".into()),
        ("a secret hidden", "UPDATE latest SET live = 0 WHERE name = 'b'".into()),
        ("another audience", r#"UPDATE blob SET audience = replace(audience, 'api.example', 'evil.example') WHERE name = 'b'"#.into()),
        ("a longer life", "UPDATE blob SET expires_at = expires_at + 1 WHERE name = 'b'".into()),
        ("a later generation", "UPDATE vault SET generation = generation + 5".into()),
        ("another key store", "UPDATE vault SET keystore = 'passphrase'".into()),
        ("a key that is awaited", "UPDATE vault SET pending = x'0102030405060708'".into()),
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
    edit(folder.path(), "UPDATE blob SET version = version");
    let vault = open(folder.path()).unwrap();
    assert_eq!(get(&vault, "a").unwrap(), "second of a");
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

/// Either refused, or every secret is what it was.
fn whole_or_refused(folder: &Path, what: &str) -> bool {
    match open(folder) {
        Err(error) => {
            assert!(
                !error.to_string().is_empty() && !error.remedy().is_empty(),
                "{what}"
            );
            false
        }
        Ok(vault) => {
            let found = (get(&vault, "a"), get(&vault, "agent:x/b"));
            let (Ok(a), Ok(b)) = found else {
                return false;
            };
            assert_eq!(
                (a.as_str(), b.as_str()),
                ("second of a", "only one of b"),
                "{what}"
            );
            true
        }
    }
}

#[test]
fn a_file_cut_anywhere_is_refused_or_whole() {
    let sample = sample();
    let bytes = std::fs::read(sample.path().join("vault.db")).unwrap();
    let key = std::fs::read(sample.path().join("vault.key")).unwrap();
    let (mut whole, mut cuts) = (0, 0);
    // Every byte of the first and the last page, and every 61st between.
    let near =
        |place: &usize| *place < 600 || bytes.len() - place < 600 || place.is_multiple_of(61);
    for length in (1..=bytes.len()).filter(near) {
        let cut = folder();
        write(cut.path(), "vault.key", &key);
        write(cut.path(), "vault.db", &bytes[..length]);
        whole += usize::from(whole_or_refused(cut.path(), &format!("{length} bytes")));
        cuts += 1;
        let keys = std::fs::read(cut.path().join("vault.key")).unwrap();
        assert_eq!(keys, key, "no new vault took the place of the cut one");
    }
    assert!(whole >= 1, "the uncut file is whole");
    assert!(cuts - whole > 800, "{whole} of {cuts} cuts left it whole");
}

#[test]
fn a_bit_flipped_anywhere_is_refused_or_means_nothing() {
    let sample = sample();
    let bytes = std::fs::read(sample.path().join("vault.db")).unwrap();
    let key = std::fs::read(sample.path().join("vault.key")).unwrap();
    let used = |place: &usize| bytes[*place] != 0 || place.is_multiple_of(97);
    let mut refused = 0;
    for place in (0..bytes.len()).filter(used) {
        let flipped = folder();
        let mut wrong = bytes.clone();
        wrong[place] ^= 1 << (place % 8);
        write(flipped.path(), "vault.key", &key);
        write(flipped.path(), "vault.db", &wrong);
        let what = format!("bit {} of byte {place}", place % 8);
        refused += usize::from(!whole_or_refused(flipped.path(), &what));
    }
    assert!(refused > 1_000, "{refused}");
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(folder.join(name))
        .unwrap();
    file.write_all(bytes).unwrap();
}
