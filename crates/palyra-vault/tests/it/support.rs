//! A vault in a folder of its own.

use std::path::Path;
use std::sync::Arc;

use palyra_core::{SecretRef, SecretValue, Timestamp};
use palyra_vault::keystore::KeyFile;
use palyra_vault::{NewSecret, SqliteBlobs, Vault, VaultError};

/// Some instant.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// A folder as a vault needs it.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    close(folder.path());
    folder
}

/// 0700.
pub(crate) fn close(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
}

/// The vault of this folder, locked.
pub(crate) fn locked(folder: &Path) -> Result<Vault, VaultError> {
    Vault::open(Box::new(SqliteBlobs::open(folder)?))
}

/// The vault of this folder, open; made when there is none.
pub(crate) fn open(folder: &Path) -> Result<Vault, VaultError> {
    let vault = locked(folder)?;
    let store = Arc::new(KeyFile::new(folder));
    match vault.exists() {
        true => vault.unlock(store)?,
        false => {
            vault.create(Vault::new_id()?, store)?;
        }
    }
    Ok(vault)
}

pub(crate) fn named(text: &str) -> SecretRef {
    text.parse().unwrap()
}

pub(crate) fn new(name: &str, value: &[u8]) -> NewSecret {
    NewSecret {
        secret: named(name),
        value: SecretValue::new(value.to_vec()),
        audience: Vec::new(),
        expires_at: None,
    }
}

pub(crate) fn put(vault: &Vault, name: &str, value: &str) -> u64 {
    vault.put(&new(name, value.as_bytes()), NOW).unwrap().0
}

/// The newest value, as text.
pub(crate) fn get(vault: &Vault, name: &str) -> Result<String, VaultError> {
    let (value, _) = vault.get(&named(name), None, NOW)?;
    Ok(String::from_utf8(value.expose().to_vec()).unwrap())
}

/// Says that a test could not run here; in CI that is a failure.
pub(crate) fn not_run(test: &str, why: &str) {
    use std::io::Write as _;
    assert!(
        std::env::var_os("CI").is_none(),
        "{test} could not run: {why}"
    );
    if let Some(list) = std::env::var_os("PALYRA_NOT_RUN") {
        let list = std::fs::OpenOptions::new().append(true).open(list);
        writeln!(list.unwrap(), "{test}: {why}").unwrap();
    }
}

/// The error of a result whose value cannot be printed.
pub(crate) fn refused<T>(result: Result<T, VaultError>) -> VaultError {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error,
    }
}
