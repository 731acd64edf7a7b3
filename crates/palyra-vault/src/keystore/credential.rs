//! The key as a systemd credential (`LoadCredentialEncrypted=palyra-vault-key:…`), which may be
//! sealed to the machine's TPM. It is given, never taken: a new key is a second credential.

use std::path::PathBuf;

use super::{KeyStore, KeyStoreKind, away, damaged};
use crate::KeyStoreError;
use crate::files::Folder;
use crate::key::{Key, KeyId};

const KIND: KeyStoreKind = KeyStoreKind::SystemdCredential;
const NAMES: [&str; 2] = ["palyra-vault-key", "palyra-vault-key-next"];

/// The key in `$CREDENTIALS_DIRECTORY`.
#[derive(Debug)]
pub struct SystemdCredential {
    folder: Option<PathBuf>,
}

impl SystemdCredential {
    /// The credentials of this folder, as `CREDENTIALS_DIRECTORY` names it; `None` when it names
    /// none.
    #[must_use]
    pub const fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    fn key(&self, name: &str) -> Result<Option<Key>, KeyStoreError> {
        let path = self.folder.as_ref().ok_or_else(|| {
            away(
                KIND,
                &"`CREDENTIALS_DIRECTORY` is not set: this is not a systemd service",
            )
        })?;
        let folder = Folder::open(path).map_err(|error| away(KIND, &error))?;
        let Some(bytes) = folder.read(name).map_err(|error| away(KIND, &error))? else {
            return Ok(None);
        };
        let trimmed = bytes.trim_ascii_end();
        let key = Key::from_slice(&bytes).or_else(|| Key::from_hex(trimmed));
        match key {
            Some(key) => key.map(Some).map_err(|error| away(KIND, &error)),
            None => Err(damaged(
                KIND,
                "a credential is neither 32 bytes nor 64 hexadecimal digits",
            )),
        }
    }
}

impl KeyStore for SystemdCredential {
    fn kind(&self) -> KeyStoreKind {
        KIND
    }

    fn load(&self, id: &KeyId) -> Result<Key, KeyStoreError> {
        for name in NAMES {
            if let Some(key) = self.key(name)?
                && key.id() == *id
            {
                return Ok(key);
            }
        }
        Err(KeyStoreError::NoSuchKey {
            kind: KIND,
            id: *id,
        })
    }

    /// The newest credential that was given.
    fn make(&self) -> Result<Key, KeyStoreError> {
        let [first, next] = NAMES.map(|name| self.key(name));
        match (first?, next?) {
            (_, Some(next)) => Ok(next),
            (Some(first), None) => Ok(first),
            (None, None) => Err(away(KIND, &"there is no credential `palyra-vault-key`")),
        }
    }

    /// Nothing is ours to forget.
    fn retain(&self, _: &[KeyId]) -> Result<(), KeyStoreError> {
        Ok(())
    }
}
