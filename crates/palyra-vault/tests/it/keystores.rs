//! Key stores that are locked, away, wrong or damaged: one clear error, nothing lost, no other
//! store in their place.

use std::path::Path;
use std::sync::Arc;

use palyra_core::{InjectionTable, SecretValue};
use palyra_vault::keystore::{KeyFile, Passphrase, PassphraseStore, SystemdCredential};
use palyra_vault::{Key, KeyStore, NewSecret, Vault, VaultError};

use crate::support::{close, folder, get, locked, put, refused};

fn with(folder: &Path, store: Arc<dyn KeyStore>) -> Result<Vault, VaultError> {
    let vault = locked(folder)?;
    match vault.exists() {
        true => vault.unlock(store)?,
        false => {
            vault.create(Vault::new_id()?, store)?;
        }
    }
    Ok(vault)
}

fn passphrase(folder: &Path, text: &str) -> Arc<dyn KeyStore> {
    let text = Passphrase::new(text.to_owned());
    Arc::new(PassphraseStore::new(folder, text))
}

#[test]
fn a_passphrase_opens_and_another_does_not() {
    let folder = folder();
    let short = refused(with(folder.path(), passphrase(folder.path(), "short")));
    assert_eq!(short.code(), "passphrase_too_short");
    let right = || passphrase(folder.path(), "correct horse");
    let vault = with(folder.path(), right()).unwrap();
    put(&vault, "x", "value");
    drop(vault);
    for wrong in ["", "correct horsf", "Correct horse"] {
        let error = refused(with(folder.path(), passphrase(folder.path(), wrong)));
        assert_eq!(error.code(), "wrong_passphrase");
    }
    let vault = with(folder.path(), right()).unwrap();
    assert_eq!(get(&vault, "x").unwrap(), "value");
    let go = &mut |_| std::ops::ControlFlow::Continue(());
    vault.rotate(go).unwrap().unwrap();
    drop(vault);
    let vault = with(folder.path(), right()).unwrap();
    vault.settle(go).unwrap();
    assert_eq!(get(&vault, "x").unwrap(), "value");
    drop(vault);
    let path = folder.path().join("vault.passphrase");
    let text = std::fs::read_to_string(&path).unwrap();
    for hostile in [
        text.replace("65536", "4194304"),
        text.replace("argon2id", "none"),
        text.replace("\"keys\"", "\"kyes\""),
        String::new(),
    ] {
        std::fs::write(&path, hostile).unwrap();
        let error = refused(with(folder.path(), right()));
        assert_eq!(error.code(), "keystore_damaged", "{error}");
    }
    std::fs::write(&path, text).unwrap();
    assert!(with(folder.path(), right()).is_ok());
}

#[test]
fn no_other_store_opens_a_vault() {
    let folder = folder();
    drop(with(folder.path(), Arc::new(KeyFile::new(folder.path()))).unwrap());
    let error = refused(with(
        folder.path(),
        passphrase(folder.path(), "correct horse"),
    ));
    assert!(matches!(error, VaultError::OtherKeyStore { .. }), "{error}");
    std::fs::remove_file(folder.path().join("vault.key")).unwrap();
    let error = refused(with(folder.path(), Arc::new(KeyFile::new(folder.path()))));
    assert_eq!(error.code(), "keystore_no_such_key");
    assert!(
        !folder.path().join("vault.key").exists(),
        "none is made in its place"
    );
}

#[test]
fn a_damaged_key_file_is_no_key() {
    let folder = folder();
    drop(with(folder.path(), Arc::new(KeyFile::new(folder.path()))).unwrap());
    let path = folder.path().join("vault.key");
    let key = std::fs::read_to_string(&path).unwrap();
    for (wrong, code) in [
        (key[..40].to_owned(), "keystore_damaged"),
        (key.replace('\n', "x"), "keystore_damaged"),
        ("0".repeat(64), "keystore_no_such_key"),
        (String::new(), "keystore_no_such_key"),
    ] {
        std::fs::write(&path, wrong).unwrap();
        let error = refused(with(folder.path(), Arc::new(KeyFile::new(folder.path()))));
        assert_eq!(error.code(), code);
    }
}

#[test]
fn a_credential_is_given_and_a_second_one_takes_over() {
    let (folder, given) = (folder(), tempfile::tempdir().unwrap());
    close(given.path());
    let store =
        || -> Arc<dyn KeyStore> { Arc::new(SystemdCredential::new(Some(given.path().to_owned()))) };
    let give = |name: &str, byte: u8| {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(given.path().join(name)).unwrap();
        file.write_all(&[byte; 32]).unwrap();
    };
    let away = refused(with(folder.path(), Arc::new(SystemdCredential::new(None))));
    assert_eq!(away.code(), "keystore_away");
    assert_eq!(
        refused(with(folder.path(), store())).code(),
        "keystore_away"
    );
    give("palyra-vault-key", 1);
    let vault = with(folder.path(), store()).unwrap();
    put(&vault, "x", "value");
    let go = &mut |_| std::ops::ControlFlow::Continue(());
    let error = refused(vault.rotate(go));
    assert_eq!(error.code(), "keystore_read_only", "{error}");
    give("palyra-vault-key-next", 2);
    vault.rotate(go).unwrap().unwrap();
    drop(vault);
    give("palyra-vault-key", 2);
    std::fs::remove_file(given.path().join("palyra-vault-key-next")).unwrap();
    let vault = with(folder.path(), store()).unwrap();
    vault.settle(go).unwrap();
    assert_eq!(get(&vault, "x").unwrap(), "value");
    drop(vault);
    give("palyra-vault-key", 9);
    let error = refused(with(folder.path(), store()));
    assert_eq!(
        error.code(),
        "keystore_no_such_key",
        "another install's key"
    );
}

/// Whether a type can be printed, copied or serialised: the inherent constant wins where it applies.
macro_rules! can {
    ($kind:ident, $($bound:tt)+) => {{
        struct Probe<T>(std::marker::PhantomData<T>);
        impl<T: $($bound)+> Probe<T> {
            const YES: bool = true;
        }
        trait Otherwise {
            const YES: bool = false;
        }
        impl<T> Otherwise for Probe<T> {}
        // A text can all of it, so both constants are there to be chosen from.
        let _ = (Probe::<String>::YES, <Probe<String> as Otherwise>::YES);
        Probe::<$kind>::YES
    }};
}

#[test]
fn secrets_cannot_be_printed_copied_or_serialised() {
    type Control = String;
    macro_rules! cannot {
        ($($kind:ident),*) => {$(
            assert!(!can!($kind, std::fmt::Debug), stringify!($kind));
            assert!(!can!($kind, std::fmt::Display), stringify!($kind));
            assert!(!can!($kind, Clone), stringify!($kind));
            assert!(!can!($kind, serde::Serialize), stringify!($kind));
        )*};
    }
    cannot!(Key, Passphrase, SecretValue, InjectionTable, NewSecret);
    assert!(can!(Control, std::fmt::Debug) && can!(Control, std::fmt::Display));
    assert!(can!(Control, Clone) && can!(Control, serde::Serialize));
}
