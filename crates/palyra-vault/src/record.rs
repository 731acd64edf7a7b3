//! What is known of a secret besides its value.

use palyra_core::{Audience, SecretRef, SecretValue, Timestamp};

use crate::VaultError;

/// How many versions of one secret are kept; the oldest go first.
pub(crate) const MOST_VERSIONS: u64 = 16;
/// How many audiences one secret has at most.
const MOST_AUDIENCES: usize = 32;

/// A secret to be stored.
pub struct NewSecret {
    /// Under which name.
    pub secret: SecretRef,
    /// What.
    pub value: SecretValue,
    /// Where it may be sent; empty means nowhere.
    pub audience: Vec<Audience>,
    /// The first instant at which it is not to be used any more.
    pub expires_at: Option<Timestamp>,
}

impl NewSecret {
    pub(crate) fn check(&self) -> Result<(), VaultError> {
        let (bytes, limit) = (
            self.value.expose().len(),
            palyra_core::secret::MOST_SECRET_BYTES,
        );
        if bytes == 0 {
            return Err(VaultError::EmptyValue);
        }
        if bytes > limit {
            return Err(VaultError::TooLarge { bytes, limit });
        }
        if self.audience.len() > MOST_AUDIENCES {
            return Err(VaultError::TooLarge {
                bytes: self.audience.len(),
                limit: MOST_AUDIENCES,
            });
        }
        for audience in &self.audience {
            audience.clone().checked()?;
        }
        Ok(())
    }
}

/// What everybody who may list sees of a version: never the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionInfo {
    /// Counted from 1, never twice, not even after the secret was deleted.
    pub version: u64,
    /// When it was stored.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// Where it may be sent.
    pub audience: Vec<Audience>,
}

/// A secret in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Which.
    pub secret: SecretRef,
    /// Its newest version.
    pub latest: VersionInfo,
}
