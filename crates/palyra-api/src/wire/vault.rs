//! The vault on the wire. A value travels in base 64, in the body only, and in types that cannot be
//! printed.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// What `GET /api/v1/vault` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VaultStatus {
    /// `open` or `locked`.
    pub state: String,
    /// Why it is locked: a stable code, a sentence, the next step.
    pub locked: Option<super::Problem>,
    /// Where its key is.
    pub keystore: String,
    /// What that is worth.
    pub keystore_worth: String,
    /// Which vault; absent while there is none.
    pub vault: Option<String>,
    /// Which key wraps.
    pub key: Option<String>,
    /// The key that takes over, while it is being changed.
    pub pending_key: Option<String>,
    /// The key before, which is kept until the next clean start.
    pub previous_key: Option<String>,
    /// Counts every change; the journal knows it too.
    pub generation: Option<u64>,
    /// How many versions of secrets there are.
    pub versions: Option<u64>,
    /// Whether the key is kept out of the swap; absent while locked.
    pub memory_locked: Option<bool>,
    /// Where the journal's keys are, in words.
    #[serde(default)]
    pub journal_keys: String,
}

/// One version of a secret, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    /// `NAME`, or `SCOPE/NAME`.
    pub secret: String,
    /// Counted from 1, never twice.
    pub version: u64,
    /// When it was stored.
    pub created_at: String,
    /// When it ends.
    pub expires_at: Option<String>,
    /// Where it may be sent: `host`, `port`, `methods`, `path`, `place`.
    pub audience: Vec<Value>,
}

/// A wish to store a secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutSecret {
    /// `NAME`, or `SCOPE/NAME`.
    pub secret: String,
    /// The value, in base 64.
    pub value: String,
    /// Where it may be sent; nowhere when empty.
    #[serde(default)]
    pub audience: Vec<Value>,
    /// How long it is to be used, in milliseconds.
    #[serde(default)]
    pub ttl_ms: Option<u64>,
}

/// A secret by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretNamed {
    /// `NAME`, or `SCOPE/NAME`.
    pub secret: String,
}

/// A wish to see a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevealSecret {
    /// `NAME`, or `SCOPE/NAME`.
    pub secret: String,
    /// Which version; the newest when absent.
    #[serde(default)]
    pub version: Option<u64>,
    /// That a person said yes to seeing it.
    #[serde(default)]
    pub confirmed: bool,
}

/// A value.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevealedSecret {
    /// `NAME`, or `SCOPE/NAME`.
    pub secret: String,
    /// Which version.
    pub version: u64,
    /// The value, in base 64.
    pub value: String,
}

/// A wish to open the vault.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnlockVault {
    /// For the key store `passphrase`.
    #[serde(default)]
    pub passphrase: Option<String>,
    /// Take the file as it is, although the journal knows a later one.
    #[serde(default)]
    pub accept_rollback: bool,
    /// Give up keys of the journal that are lost, or go on with one that nobody vouches for.
    #[serde(default)]
    pub new_journal_keys: bool,
}

/// What came of a change of the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VaultKeyRotated {
    /// The key so far, which is kept until the next clean start.
    pub previous_key: String,
    /// The key from here on.
    pub key: String,
    /// The vault's generation.
    pub generation: u64,
}

/// A wish for a backup.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportVault {
    /// age keys (`age1…`) that will open it.
    #[serde(default)]
    pub recipients: Vec<String>,
    /// Or a passphrase.
    #[serde(default)]
    pub passphrase: Option<String>,
    /// That a person said yes to it.
    #[serde(default)]
    pub confirmed: bool,
}

/// A backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VaultExported {
    /// An age file, in base 64.
    pub file: String,
}

/// Secrets to be stored, all of them or none: from a backup, or as they are.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportSecrets {
    /// An age file, in base 64.
    #[serde(default)]
    pub file: Option<String>,
    /// The age secret key that opens it.
    #[serde(default)]
    pub identity: Option<String>,
    /// Or its passphrase.
    #[serde(default)]
    pub passphrase: Option<String>,
    /// Secrets as they are, when there is no file.
    #[serde(default)]
    pub secrets: Vec<PutSecret>,
}

/// How many were stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretsImported {
    /// How many.
    pub secrets: u64,
}

/// One line of the vault's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VaultEvent {
    /// Its place in the journal.
    pub seq: u64,
    /// When.
    pub at: String,
    /// Who; absent for the daemon itself.
    pub by: Option<String>,
    /// What: `put`, `deleted`, `revealed`, `used`, `exported`, `rotation_done` …
    pub what: String,
    /// Which secret.
    pub secret: Option<String>,
    /// Which version.
    pub version: Option<u64>,
    /// For which call.
    pub call_id: Option<String>,
    /// The vault's generation after it.
    pub generation: Option<u64>,
}
