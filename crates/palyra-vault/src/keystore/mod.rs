//! Where the key-encryption key is: chosen once, recorded in the vault, never another one silently.
//!
//! A key store holds 32 bytes and nothing larger. Two of them while the key is being changed.

mod credential;
mod file;
#[cfg(any(target_os = "macos", windows, test))]
mod native;
pub(crate) mod passphrase;
#[cfg(target_os = "linux")]
mod secret_service;

pub use credential::SystemdCredential;
pub use file::KeyFile;
pub use passphrase::{Passphrase, PassphraseStore};
#[cfg(target_os = "linux")]
pub use secret_service::SecretServiceStore;

use crate::KeyStoreError;
use crate::key::{Key, KeyId};

/// Holds the key-encryption key.
pub trait KeyStore: Send + Sync {
    /// Which kind.
    fn kind(&self) -> KeyStoreKind;

    /// The key with this id.
    ///
    /// # Errors
    /// The store is locked, away or slow, or does not hold it.
    fn load(&self, id: &KeyId) -> Result<Key, KeyStoreError>;

    /// A new key, which the store holds for certain when this comes back.
    ///
    /// # Errors
    /// The store is locked, away or slow, or cannot keep it.
    fn make(&self) -> Result<Key, KeyStoreError>;

    /// Forgets every key of this vault but these.
    ///
    /// # Errors
    /// The store is locked, away or slow.
    fn retain(&self, keep: &[KeyId]) -> Result<(), KeyStoreError>;
}

/// Which kind of key store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyStoreKind {
    /// A file that only the daemon may read: the weakest, for machines that have nothing else.
    File,
    /// A file sealed by a passphrase.
    Passphrase,
    /// The desktop's Secret Service.
    SecretService,
    /// A credential that systemd hands to the service.
    SystemdCredential,
    /// The Keychain of macOS, the credentials of Windows.
    Native,
}

impl KeyStoreKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::File,
        Self::Passphrase,
        Self::SecretService,
        Self::SystemdCredential,
        Self::Native,
    ];

    /// The word in settings and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Passphrase => "passphrase",
            Self::SecretService => "secret-service",
            Self::SystemdCredential => "systemd-credential",
            Self::Native => "native",
        }
    }

    /// What it is worth, in a sentence.
    #[must_use]
    pub const fn worth(self) -> &'static str {
        match self {
            Self::File => {
                "the weakest: whoever can read the daemon's folder, or a backup of it, has every secret"
            }
            Self::Passphrase => {
                "as strong as the passphrase; locked until it is given after a start"
            }
            Self::SecretService => "as strong as the desktop's login; locked until it is unlocked",
            Self::SystemdCredential => "as strong as the credential that systemd was given",
            Self::Native => "as strong as the login to this account",
        }
    }
}

impl std::fmt::Display for KeyStoreKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that no key store has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no key store `{}`; choose `file`, `passphrase`, `secret-service`, `systemd-credential` or `native`",
    .0.escape_debug()
)]
pub struct UnknownKeyStore(String);

impl std::str::FromStr for KeyStoreKind {
    type Err = UnknownKeyStore;

    fn from_str(name: &str) -> Result<Self, UnknownKeyStore> {
        let named = Self::ALL.into_iter().find(|kind| kind.as_str() == name);
        named.ok_or_else(|| UnknownKeyStore(name.chars().take(64).collect()))
    }
}

/// The system's own store for this vault.
///
/// # Errors
/// The system has none that is known here, or it is not there.
pub fn native(vault: &str) -> Result<std::sync::Arc<dyn KeyStore>, KeyStoreError> {
    #[cfg(any(target_os = "macos", windows))]
    return Ok(std::sync::Arc::new(native::NativeStore::new(vault)?));
    #[cfg(not(any(target_os = "macos", windows)))]
    Err(KeyStoreError::Away {
        kind: KeyStoreKind::Native,
        why: format!(
            "for the vault {vault} it is the Keychain of macOS or the credentials of Windows, and \
             this is neither; use `secret-service`"
        ),
    })
}

/// A failure of the operating system, as one of the store.
pub(crate) fn away(kind: KeyStoreKind, error: &impl std::fmt::Display) -> KeyStoreError {
    KeyStoreError::Away {
        kind,
        why: error.to_string(),
    }
}

pub(crate) fn damaged(kind: KeyStoreKind, why: &str) -> KeyStoreError {
    KeyStoreError::Damaged {
        kind,
        why: why.to_owned(),
    }
}
