//! Where blobs are stored: [`BlobBackend`]. It sees names and sealed bytes, never a key or a value.

use palyra_core::{Audience, SecretRef, Timestamp};

use crate::VaultError;
use crate::head::Head;
use crate::key::KeyId;
use crate::keystore::KeyStoreKind;
use crate::record::VersionInfo;
use crate::seal::Bound;

/// One sealed version of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Which secret.
    pub secret: SecretRef,
    /// Which version.
    pub version: u64,
    /// When it was stored.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// Where it may be sent, as JSON: bound to the blob byte by byte.
    pub audience: String,
    /// Its sealed parts.
    pub sealed: Sealed,
}

/// The sealed parts of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Which key wraps the data key.
    pub key: KeyId,
    /// The data key.
    pub wrapped: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

impl Stored {
    pub(crate) fn info(&self) -> Result<VersionInfo, VaultError> {
        let audience: Vec<Audience> = serde_json::from_str(&self.audience)
            .map_err(|_| VaultError::damaged(format!("the audience of `{}`", self.secret)))?;
        Ok(VersionInfo {
            version: self.version,
            created_at: self.created_at,
            expires_at: self.expires_at,
            audience,
        })
    }

    /// What both its parts are bound to. When it ends and where it may go are part of it: a secret
    /// whose audience was edited does not open.
    pub(crate) fn bound(&self, vault: &[u8; 16]) -> Bound {
        let expires = self.expires_at.map_or(i64::MAX, Timestamp::as_millis);
        Bound::to(&[
            vault,
            b"secret",
            self.secret.scope.to_string().as_bytes(),
            self.secret.name.as_str().as_bytes(),
            &self.version.to_be_bytes(),
            &self.created_at.as_millis().to_be_bytes(),
            &expires.to_be_bytes(),
            self.audience.as_bytes(),
        ])
    }
}

/// One of the daemon's own keys, sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// Which.
    pub name: String,
    /// Its sealed parts.
    pub sealed: Sealed,
}

/// The newest version number that a secret ever had, kept when it is deleted: numbers never repeat,
/// so no old blob fits a new secret of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latest {
    /// The number.
    pub version: u64,
    /// Whether the secret is there.
    pub live: bool,
}

/// What is known of the whole vault; one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Which vault, at random.
    pub vault: [u8; 16],
    /// Where its key is.
    pub keystore: KeyStoreKind,
    /// The key that wraps.
    pub active: KeyId,
    /// The key that is to wrap, while it is being changed.
    pub pending: Option<KeyId>,
    /// The key before, until a clean start.
    pub previous: Option<KeyId>,
    /// The key of the head and of the fingerprints, sealed by the active key.
    pub integrity: Vec<u8>,
    /// Over everything.
    pub head: Head,
    /// What the last change was, as JSON.
    pub change: String,
}

/// One step of a commit.
#[derive(Debug)]
pub enum Write<'a> {
    /// A new version.
    Put(&'a Stored),
    /// A version is gone.
    Remove(&'a SecretRef, u64),
    /// The newest number of a secret.
    Latest(&'a SecretRef, Latest),
    /// The data key of a version, wrapped by another key.
    Rewrap(&'a Stored),
    /// One of the daemon's own keys, in place of the one of its name.
    Own(&'a Own),
}

/// Stores blobs. What is committed is durable when the call comes back, all of it or nothing.
pub trait BlobBackend: Send {
    /// The one row; `None` when there is no vault yet.
    ///
    /// # Errors
    /// It cannot be read.
    fn meta(&self) -> Result<Option<Meta>, VaultError>;

    /// Writes all of it, and the one row with it.
    ///
    /// # Errors
    /// Nothing was written.
    fn commit(&mut self, meta: &Meta, writes: &[Write<'_>]) -> Result<(), VaultError>;

    /// The newest number of a secret.
    ///
    /// # Errors
    /// It cannot be read.
    fn latest(&self, secret: &SecretRef) -> Result<Option<Latest>, VaultError>;

    /// One version.
    ///
    /// # Errors
    /// It cannot be read.
    fn get(&self, secret: &SecretRef, version: u64) -> Result<Option<Stored>, VaultError>;

    /// Every version of one secret, the newest first.
    ///
    /// # Errors
    /// It cannot be read.
    fn versions(&self, secret: &SecretRef) -> Result<Vec<Stored>, VaultError>;

    /// The newest version of each secret after `after`, in order of scope and name.
    ///
    /// # Errors
    /// It cannot be read.
    fn list(&self, after: Option<&SecretRef>, most: usize) -> Result<Vec<Stored>, VaultError>;

    /// Shows every version once.
    ///
    /// # Errors
    /// It cannot be read, or `see` said so.
    fn each(&self, see: &mut dyn FnMut(Stored) -> Result<(), VaultError>)
    -> Result<(), VaultError>;

    /// Shows the newest number of every secret that ever was.
    ///
    /// # Errors
    /// It cannot be read, or `see` said so.
    fn each_latest(
        &self,
        see: &mut dyn FnMut(&SecretRef, Latest) -> Result<(), VaultError>,
    ) -> Result<(), VaultError>;

    /// The daemon's own keys; they are few.
    ///
    /// # Errors
    /// They cannot be read.
    fn owned(&self) -> Result<Vec<Own>, VaultError>;

    /// Some versions after this one, in order of scope, name and version.
    ///
    /// # Errors
    /// They cannot be read.
    fn page(&self, after: Option<&Stored>, most: usize) -> Result<Vec<Stored>, VaultError>;

    /// Versions that ended at or before this time.
    ///
    /// # Errors
    /// It cannot be read.
    fn ended(&self, now: Timestamp, most: usize) -> Result<Vec<Stored>, VaultError>;
}
