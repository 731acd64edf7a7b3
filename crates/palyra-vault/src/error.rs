//! What can go wrong, for the one who has to do something about it. No error holds a value or a
//! key.

use std::path::PathBuf;
use std::sync::Arc;

use palyra_core::SecretRef;

use crate::key::KeyId;
use crate::keystore::KeyStoreKind;

/// Why the vault could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The key is not here: names can be read, values cannot.
    #[error("the vault is locked")]
    Locked,
    /// There is no such secret.
    #[error("there is no secret `{0}`")]
    NoSuchSecret(SecretRef),
    /// There is no such version of it.
    #[error("`{secret}` has no version {version}")]
    NoSuchVersion {
        /// Which.
        secret: SecretRef,
        /// The version asked for.
        version: u64,
    },
    /// It was to be used until then.
    #[error("`{secret}` ended at {at}")]
    Expired {
        /// Which.
        secret: SecretRef,
        /// When.
        at: palyra_core::Timestamp,
    },
    /// No bytes.
    #[error("a secret of 0 bytes is none")]
    EmptyValue,
    /// Too many bytes.
    #[error("a secret of {bytes} bytes is more than the {limit} that the vault takes")]
    TooLarge {
        /// How many.
        bytes: usize,
        /// The most there may be.
        limit: usize,
    },
    /// An audience that is none.
    #[error(transparent)]
    Audience(#[from] palyra_core::injection::NotAnAudience),
    /// What is stored is not what was sealed, or was sealed for another place.
    #[error("the vault is damaged: {what}")]
    Damaged {
        /// Where.
        what: String,
    },
    /// Another process has it open.
    #[error("another process has the vault open")]
    InUse,
    /// There is no space.
    #[error("there is no space left on the vault's disk")]
    Full,
    /// Its folder or file is not what it must be.
    #[error("`{}` cannot hold a vault: {why}", .path.display())]
    Place {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The file was written by a later version; it was left as it is.
    #[error("the vault was written by a newer palyra (format {found}, this one knows {known})")]
    Newer {
        /// Its format.
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// The key store cannot give or take the key.
    #[error(transparent)]
    KeyStore(#[from] KeyStoreError),
    /// The vault was made with another key store.
    #[error("the vault was made with the key store `{recorded}`, and `{asked}` is asked for")]
    OtherKeyStore {
        /// What is recorded.
        recorded: KeyStoreKind,
        /// What was asked for.
        asked: KeyStoreKind,
    },
    /// The key is being changed already.
    #[error("a change of the key is under way")]
    Rotating,
    /// The database or the operating system refused.
    #[error("the vault's storage failed: {0}")]
    Storage(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl VaultError {
    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }

    pub(crate) fn storage(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Storage(Arc::new(error))
    }

    /// The stable text for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Locked => "vault_locked",
            Self::NoSuchSecret(_) => "no_such_secret",
            Self::NoSuchVersion { .. } => "no_such_version",
            Self::Expired { .. } => "secret_expired",
            Self::EmptyValue => "secret_empty",
            Self::TooLarge { .. } => "secret_too_large",
            Self::Audience(_) => "bad_audience",
            Self::Damaged { .. } => "vault_damaged",
            Self::InUse => "vault_in_use",
            Self::Full => "vault_full",
            Self::Place { .. } => "vault_place",
            Self::Newer { .. } => "vault_newer",
            Self::KeyStore(error) => error.code(),
            Self::OtherKeyStore { .. } => "vault_other_keystore",
            Self::Rotating => "vault_rotating",
            Self::Storage(_) => "vault_storage",
        }
    }

    /// What a person can do about it, as one line.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Locked => "open it with `palyra vault unlock`",
            Self::NoSuchSecret(_) => "see what there is with `palyra vault list`",
            Self::NoSuchVersion { .. } => "see its versions with `palyra vault versions NAME`",
            Self::Expired { .. } => "store a new value with `palyra vault put NAME`",
            Self::EmptyValue => "give the value on standard input or at the prompt",
            Self::TooLarge { .. } => "keep large files elsewhere, and the key to them here",
            Self::Audience(_) => "write HOST, HOST:PORT or HOST/PATH",
            Self::Damaged { .. } => {
                "restore the vault's file from a backup, or start a new one and `palyra vault import`"
            }
            Self::InUse => "stop the other process, then run it again",
            Self::Full => "free disk space, then run it again",
            Self::Place { .. } => "make it a folder of your own with mode 0700, then start again",
            Self::Newer { .. } => "upgrade palyra, then start again",
            Self::KeyStore(error) => error.remedy(),
            Self::OtherKeyStore { .. } => {
                "`[vault] keystore` in palyra.toml must say what `palyra vault status` shows"
            }
            Self::Rotating => "wait for it to end: `palyra vault status`",
            Self::Storage(_) => "check the disk and `palyra vault status`, then run it again",
        }
    }
}

/// Why a key store does not give or take a key.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KeyStoreError {
    /// It is there and closed.
    #[error("the key store `{0}` is locked")]
    Locked(KeyStoreKind),
    /// It is not there.
    #[error("the key store `{kind}` is not available: {why}")]
    Away {
        /// Which.
        kind: KeyStoreKind,
        /// Why.
        why: String,
    },
    /// It does not answer.
    #[error("the key store `{0}` did not answer in time")]
    Slow(KeyStoreKind),
    /// It does not hold this key.
    #[error("the key store `{kind}` does not hold the key {id}")]
    NoSuchKey {
        /// Which.
        kind: KeyStoreKind,
        /// The key.
        id: KeyId,
    },
    /// What it holds is no key.
    #[error("the key store `{kind}` is damaged: {why}")]
    Damaged {
        /// Which.
        kind: KeyStoreKind,
        /// How.
        why: String,
    },
    /// The passphrase does not fit.
    #[error("the passphrase is wrong")]
    WrongPassphrase,
    /// A passphrase is needed and none was given.
    #[error("the key store `passphrase` needs the passphrase")]
    NoPassphrase,
    /// It is too short to be one.
    #[error("a passphrase has at least {0} characters")]
    ShortPassphrase(usize),
    /// It holds what it was given and takes nothing.
    #[error("the key store `{0}` cannot keep a new key by itself")]
    ReadOnly(KeyStoreKind),
}

impl KeyStoreError {
    /// The stable text for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Locked(_) => "keystore_locked",
            Self::Away { .. } => "keystore_away",
            Self::Slow(_) => "keystore_slow",
            Self::NoSuchKey { .. } => "keystore_no_such_key",
            Self::Damaged { .. } => "keystore_damaged",
            Self::WrongPassphrase => "wrong_passphrase",
            Self::NoPassphrase => "passphrase_needed",
            Self::ShortPassphrase(_) => "passphrase_too_short",
            Self::ReadOnly(_) => "keystore_read_only",
        }
    }

    /// What a person can do about it, as one line.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Locked(_) => "unlock it (log in to your desktop), then `palyra vault unlock`",
            Self::Away { .. } | Self::Slow(_) => {
                "start it, then `palyra vault unlock`; `palyra vault status` names it"
            }
            Self::NoSuchKey { .. } | Self::Damaged { .. } => {
                "restore the key store from a backup, then `palyra vault unlock`"
            }
            Self::WrongPassphrase | Self::NoPassphrase => {
                "give the passphrase to `palyra vault unlock`"
            }
            Self::ShortPassphrase(_) => "choose a longer one",
            Self::ReadOnly(_) => {
                "give the service a second credential `palyra-vault-key-next`, restart it, then run it again"
            }
        }
    }
}
