//! Policies on the wire: which version decides, and how that is changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What `GET /api/v1/policy` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyOverview {
    /// The folder of the operator's policies.
    pub folder: String,
    /// Whether a change waits for a person.
    pub staging: bool,
    /// The version in force.
    pub active: PolicyVersion,
    /// What waits for a person to activate it.
    pub staged: Option<PolicyStaged>,
    /// Why what the folder holds is not used.
    pub refused: Option<PolicyRefused>,
    /// Whether what the folder holds was set aside by a rollback until it changes.
    pub set_aside: bool,
}

/// A policy set that is or was in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyVersion {
    /// Counted from 1.
    pub number: u64,
    /// `active` or `kept`.
    pub state: String,
    /// Of the schema, the baseline and every file with its name.
    pub digest: String,
    /// What `decided` entries name it by.
    pub policy_version: String,
    /// The baseline's name.
    pub baseline: String,
    /// The operator's files, each with the digest of its text.
    pub files: BTreeMap<String, String>,
    /// `started`, `changed`, `reloaded`, `activated` or `rolled_back`.
    pub why: String,
    /// The version that a rollback went back to.
    pub rolled_back_to: Option<u64>,
    /// The person who wanted it, when one did.
    pub by: Option<String>,
    /// When it came into force.
    pub activated_at: String,
}

/// A version with its texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyVersionDetail {
    /// As listed.
    #[serde(flatten)]
    pub version: PolicyVersion,
    /// The baseline's text, then every file's.
    pub sources: Vec<PolicySource>,
}

/// A policy text and its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicySource {
    /// The file's name.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// Policies that wait for a person to activate them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyStaged {
    /// What to activate.
    pub digest: String,
    /// The baseline's name.
    pub baseline: String,
    /// The operator's files, each with the digest of its text.
    pub files: BTreeMap<String, String>,
    /// Since when.
    pub staged_at: String,
}

/// Policies that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyRefused {
    /// What is wrong, each with file, line and column.
    pub problems: Vec<String>,
    /// How many more there are.
    pub more: u64,
}

/// What came of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyOutcome {
    /// The folder holds what is in force.
    Unchanged,
    /// Another version is in force.
    Activated,
    /// It waits for a person.
    Staged,
}

/// What `reload`, `activate` and `rollback` answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyChanged {
    /// What came of it.
    pub outcome: PolicyOutcome,
    /// How things stand now.
    #[serde(flatten)]
    pub now: PolicyOverview,
}

/// Nothing to say: `{}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReloadPolicies {}

/// A wish to activate what is staged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActivatePolicies {
    /// Its digest: what was looked at is what is activated.
    pub digest: String,
}

/// A wish to go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollBackPolicies {
    /// To which version; the one before when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}
