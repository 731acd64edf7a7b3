//! Backups in the age format: any tool that reads age can read one, and what is in it is plain
//! JSON. Values are in the clear nowhere but inside of it.

use std::io::{Read, Write as _};

use age::secrecy::SecretString;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palyra_core::{Audience, SecretRef, SecretValue, Timestamp, VaultChange};
use zeroize::{Zeroize, Zeroizing};

use crate::edit::Edit;
use crate::error::VaultError;
use crate::head::Head;
use crate::keystore::Passphrase;
use crate::record::NewSecret;
use crate::vault::Vault;

/// What a backup may unpack to.
const MOST_BYTES: u64 = 1 << 30;
const FORMAT: &str = "palyra vault backup v1";

/// How a backup is sealed.
pub enum Wrapping {
    /// For the holders of these age keys (`age1…`).
    Recipients(Vec<String>),
    /// By a passphrase.
    Passphrase(Passphrase),
}

/// What opens a backup.
pub enum Opener {
    /// An age key (`AGE-SECRET-KEY-1…`).
    Identity(SecretValue),
    /// A passphrase.
    Passphrase(Passphrase),
}

/// What a backup holds.
pub struct Contents {
    secrets: Vec<NewSecret>,
    keys: Vec<(String, SecretValue)>,
}

impl Contents {
    /// One of the daemon's own keys.
    #[must_use]
    pub fn own(&self, name: &str) -> Option<&SecretValue> {
        let found = self.keys.iter().find(|(own, _)| own == name);
        found.map(|(_, key)| key)
    }
}

/// What came out of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// How many secrets got a new version.
    pub secrets: u64,
    /// Where the vault stands.
    pub head: Head,
}

/// Why a backup cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BadBackup {
    /// Not an age key.
    #[error("`{0}` is not an age recipient such as age1…")]
    Recipient(String),
    /// Nobody could read it.
    #[error("a backup needs a recipient or a passphrase")]
    Nobody,
    /// The key is none.
    #[error("the identity is not an age secret key")]
    Identity,
    /// It does not open.
    #[error("the backup does not open: another key or passphrase, or it is damaged")]
    NotOpened,
    /// It opens, and is something else.
    #[error("the file opens, but is not a backup of a vault: {0}")]
    Content(String),
    /// The vault refused.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl BadBackup {
    /// The stable text for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Recipient(_) | Self::Nobody => "bad_recipient",
            Self::Identity => "bad_identity",
            Self::NotOpened => "backup_not_opened",
            Self::Content(_) => "bad_backup",
            Self::Vault(error) => error.code(),
        }
    }

    /// What a person can do about it, as one line.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Recipient(_) | Self::Nobody => "name one with `--recipient age1…`",
            Self::Identity => "give a file that `age-keygen` wrote with `--identity`",
            Self::NotOpened => "give the key or passphrase that it was made with",
            Self::Content(_) => "give a file that `palyra vault export` wrote",
            Self::Vault(error) => error.remedy(),
        }
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Backup {
    format: String,
    secrets: Vec<Entry>,
    /// The daemon's own keys. Without them what the journal sealed does not open elsewhere.
    #[serde(default)]
    keys: Vec<OwnEntry>,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnEntry {
    name: String,
    /// In base 64.
    value: String,
}

impl Drop for OwnEntry {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    secret: SecretRef,
    version: u64,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    audience: Vec<Audience>,
    /// In base 64.
    value: String,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

impl Vault {
    /// Every newest version, sealed as an age file.
    ///
    /// # Errors
    /// The vault is locked or damaged, or nobody could read the backup.
    pub fn export(&self, wrapping: &Wrapping, now: Timestamp) -> Result<Vec<u8>, BadBackup> {
        let mut entries = Vec::new();
        let mut after: Option<SecretRef> = None;
        loop {
            let page = self.list(after.as_ref(), 256)?;
            let Some(last) = page.last() else { break };
            after = Some(last.secret.clone());
            for summary in page {
                if summary.latest.expires_at.is_some_and(|at| at <= now) {
                    continue;
                }
                let (value, info) = self.get(&summary.secret, None, now)?;
                entries.push(Entry {
                    secret: summary.secret,
                    version: info.version,
                    created_at: info.created_at,
                    expires_at: info.expires_at,
                    audience: info.audience,
                    value: STANDARD.encode(value.expose()),
                });
            }
        }
        let backup = Backup {
            format: FORMAT.to_owned(),
            secrets: entries,
            keys: self.own_entries()?,
        };
        let plain = serde_json::to_vec_pretty(&backup).map(Zeroizing::new);
        let plain = plain.map_err(VaultError::storage)?;
        sealed(wrapping, &plain)
    }

    /// Stores what a backup holds, each as a new version, all of it or nothing.
    ///
    /// # Errors
    /// The backup does not open or is none, the vault is locked, or the storage refuses.
    pub fn import(
        &self,
        file: &[u8],
        opener: &Opener,
        now: Timestamp,
    ) -> Result<Restored, BadBackup> {
        let contents = Self::read_backup(file, opener)?;
        Ok(self.restore(&contents, &[], now)?)
    }

    fn own_entries(&self) -> Result<Vec<OwnEntry>, VaultError> {
        let names = self.status()?.map(|status| status.own).unwrap_or_default();
        let mut entries = Vec::new();
        for name in names {
            if let Some(key) = self.own(&name)? {
                let value = STANDARD.encode(key.expose());
                entries.push(OwnEntry { name, value });
            }
        }
        Ok(entries)
    }

    /// What a backup holds.
    ///
    /// # Errors
    /// It does not open, or is none.
    pub fn read_backup(file: &[u8], opener: &Opener) -> Result<Contents, BadBackup> {
        let plain = opened(file, opener)?;
        let odd = |error: serde_json::Error| {
            // The message of a parser may quote what it read.
            BadBackup::Content(format!("line {}, column {}", error.line(), error.column()))
        };
        let backup: Backup = serde_json::from_slice(&plain).map_err(odd)?;
        if backup.format != FORMAT {
            return Err(BadBackup::Content("another format".to_owned()));
        }
        let mut keys = Vec::new();
        for own in &backup.keys {
            let value = STANDARD.decode(&own.value);
            let value = value.map_err(|_| BadBackup::Content("a key".to_owned()))?;
            keys.push((own.name.clone(), SecretValue::new(value)));
        }
        let mut new = Vec::new();
        for entry in &backup.secrets {
            let value = STANDARD.decode(&entry.value);
            let value = value.map_err(|_| BadBackup::Content("a value".to_owned()))?;
            new.push(NewSecret {
                secret: entry.secret.clone(),
                value: SecretValue::new(value),
                audience: entry.audience.clone(),
                expires_at: entry.expires_at,
            });
        }
        Ok(Contents { secrets: new, keys })
    }

    /// Stores the secrets of a backup, each as a new version, and those of the daemon's own keys
    /// that are named here: all of it or nothing.
    ///
    /// # Errors
    /// As [`put`](Self::put); one name twice.
    pub fn restore(
        &self,
        contents: &Contents,
        keys: &[&str],
        now: Timestamp,
    ) -> Result<Restored, VaultError> {
        let keys = contents
            .keys
            .iter()
            .filter(|(own, _)| keys.contains(&own.as_str()));
        self.store_all(&contents.secrets, keys, now)
    }

    /// Stores all of these, or nothing.
    ///
    /// # Errors
    /// As [`put`](Self::put); one name twice.
    pub fn put_all(&self, new: &[NewSecret], now: Timestamp) -> Result<Restored, VaultError> {
        self.store_all(new, std::iter::empty(), now)
    }

    fn store_all<'a>(
        &self,
        new: &[NewSecret],
        keys: impl Iterator<Item = &'a (String, SecretValue)>,
        now: Timestamp,
    ) -> Result<Restored, VaultError> {
        let mut inner = self.lock_inner();
        let secrets = new.len() as u64;
        let mut edit = Edit::begin(&inner, VaultChange::Imported { secrets })?;
        let mut seen = std::collections::HashSet::new();
        for secret in new {
            if !seen.insert(&secret.secret) {
                return Err(VaultError::damaged(format!(
                    "`{}` is there twice",
                    secret.secret
                )));
            }
            edit.put(&inner, secret, now)?;
        }
        for (name, key) in keys {
            edit.own(&inner, name, key)?;
        }
        let head = edit.commit(&mut inner, self.fingerprints())?;
        Ok(Restored { secrets, head })
    }
}

fn sealed(wrapping: &Wrapping, plain: &[u8]) -> Result<Vec<u8>, BadBackup> {
    let encryptor = match wrapping {
        Wrapping::Passphrase(passphrase) => {
            age::Encryptor::with_user_passphrase(SecretString::from(passphrase.text().to_owned()))
        }
        Wrapping::Recipients(names) => {
            let parse = |name: &String| {
                name.parse::<age::x25519::Recipient>()
                    .map_err(|_| BadBackup::Recipient(name.escape_debug().take(80).collect()))
            };
            let keys = names.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
            let keys = keys.iter().map(|key| key as &dyn age::Recipient);
            age::Encryptor::with_recipients(keys).map_err(|_| BadBackup::Nobody)?
        }
    };
    let write = || -> std::io::Result<Vec<u8>> {
        let mut file = Vec::new();
        let mut writer = encryptor.wrap_output(&mut file)?;
        writer.write_all(plain)?;
        writer.finish()?;
        Ok(file)
    };
    Ok(write().map_err(VaultError::storage)?)
}

fn opened(file: &[u8], opener: &Opener) -> Result<Zeroizing<Vec<u8>>, BadBackup> {
    let identity: Box<dyn age::Identity> = match opener {
        Opener::Passphrase(passphrase) => {
            let text = SecretString::from(passphrase.text().to_owned());
            Box::new(age::scrypt::Identity::new(text))
        }
        Opener::Identity(text) => {
            let text = std::str::from_utf8(text.expose()).map_err(|_| BadBackup::Identity)?;
            // As `age-keygen` writes it: comments, then the key.
            let mut lines = text.lines().map(str::trim);
            let line = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
            let identity = line.and_then(|line| line.parse::<age::x25519::Identity>().ok());
            Box::new(identity.ok_or(BadBackup::Identity)?)
        }
    };
    let decryptor = age::Decryptor::new_buffered(file).map_err(|_| BadBackup::NotOpened)?;
    let reader = decryptor
        .decrypt(std::iter::once(identity.as_ref()))
        .map_err(|_| BadBackup::NotOpened)?;
    // Sized beforehand, so that no copy is left behind where it grew.
    let mut plain = Zeroizing::new(Vec::with_capacity(file.len()));
    reader
        .take(MOST_BYTES)
        .read_to_end(&mut plain)
        .map_err(|_| BadBackup::NotOpened)?;
    Ok(plain)
}
