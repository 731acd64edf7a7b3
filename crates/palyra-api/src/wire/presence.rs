//! Presence: whether persons prove that they are there.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The header with a person's passphrase, in base 64. It is never logged or recorded.
pub const PRESENCE_HEADER: &str = "palyra-presence";

/// The code of a refusal that a passphrase in [`PRESENCE_HEADER`] lifts.
pub const PRESENCE_REQUIRED: &str = "presence_required";

/// How presence stands for the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Presence {
    /// What person actions demand: `off`, `passphrase` or `device`.
    pub mode: String,
    /// The key that signs decisions, in hexadecimal, when a passphrase is set.
    pub key: Option<String>,
    /// Whether the caller's session has proved it a short while ago.
    pub held: bool,
    /// Whether it never counts for longer than one action here, because an agent was seen.
    pub with_agents: bool,
}

/// A passphrase to set.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPresence {
    /// The new one.
    pub passphrase: String,
}
