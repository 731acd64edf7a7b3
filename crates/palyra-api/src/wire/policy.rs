//! Policies on the wire: which version decides, and how that is changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::Problem;

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

/// Policies that are not in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyDraft {
    /// What stands under them; what the daemon is configured with when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// The files.
    pub files: Vec<PolicySource>,
}

/// What comes of a call or a request: `allow`, `ask` or `deny`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may be done.
    Allow,
    /// A person may be asked.
    Ask,
    /// Neither.
    Deny,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        })
    }
}

/// A wish to know why a call was answered as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainCall {
    /// The call.
    pub call_id: String,
}

/// Why a call was answered as it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallExplained {
    /// The call.
    pub call_id: String,
    /// What came of it then.
    pub recorded: Verdict,
    /// The policies behind that.
    pub matched: Vec<String>,
    /// What the record names the policies by that said so.
    pub policy_version: String,
    /// The version that this was, when it is known.
    pub number: Option<u64>,
    /// The version that is explained here: that one, or the one in force when it is not known.
    pub explained_with: u64,
    /// What would come of it now.
    pub now: Verdict,
    /// The explanation.
    #[serde(flatten)]
    pub explanation: PolicyExplanation,
}

/// Why policies answer as they do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyExplanation {
    /// What comes of it.
    pub outcome: Verdict,
    /// What was asked, in order; the strictest answer counted.
    pub questions: Vec<PolicyQuestion>,
    /// What would have to change for all of it to be allowed, the nearest first: in each, all
    /// sentences together.
    pub remedies: Vec<Vec<String>>,
    /// Policies that are only watched and would have made it another answer.
    pub log_only: Vec<String>,
}

/// One question and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyQuestion {
    /// About whom.
    pub principal: String,
    /// What they want to do.
    pub action: String,
    /// To what.
    pub resource: String,
    /// Whether they may.
    pub allowed: bool,
    /// Why. A no without any means that nothing permits it.
    pub because: Vec<PolicyBecause>,
    /// The facts that these policies looked at, each with its value.
    pub facts: BTreeMap<String, String>,
    /// Why facts and remedies are missing, when they could not be found out.
    pub unexplained: Option<String>,
}

/// A policy that made an answer what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyBecause {
    /// Its id.
    pub policy: String,
    /// Whether it permits; otherwise it forbids.
    pub permits: bool,
    /// Its sentence for people.
    pub reason: Option<String>,
    /// What it says can be done.
    pub hint: Option<String>,
}

/// A wish to know what a draft would say; to a call, or to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SimulatePolicies {
    /// The draft.
    pub draft: PolicyDraft,
    /// A call of the past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// A request: `principal`, `action`, `resource`, `context`, `entity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub request: Option<Value>,
}

/// What a draft would say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicySimulation {
    /// What comes of it under the policies in force.
    pub before: Verdict,
    /// Whether the draft answers otherwise.
    pub flips: bool,
    /// What the draft says, and why.
    pub draft: PolicyExplanation,
}

/// A wish to try a draft on the past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayPolicies {
    /// The draft.
    pub draft: PolicyDraft,
    /// How far back, in milliseconds.
    pub since_ms: u64,
}

/// What is heard of a replay: one JSON object a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ReplayEvent {
    /// How far it came.
    Progress {
        /// Entries that were read.
        read: u64,
        /// Of these.
        of: u64,
    },
    /// A decision that the draft makes otherwise.
    Flip(ReplayFlip),
    /// What policy saw is no longer kept, so nothing is said about it.
    Erased(ReplayGap),
    /// What policy saw cannot be read, so nothing is said about it.
    Unreadable(ReplayGap),
    /// It ended; nothing follows.
    Finished(ReplaySummary),
    /// It broke off; nothing follows.
    Failed {
        /// Why.
        error: Problem,
    },
}

/// A decision that a draft makes otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplayFlip {
    /// The call.
    pub call_id: String,
    /// When it was decided.
    pub at: String,
    /// Who asked.
    pub principal: String,
    /// The tool.
    pub tool: String,
    /// What came of it then.
    pub before: Verdict,
    /// What would come of it.
    pub after: Verdict,
    /// Whether more would happen.
    pub widens: bool,
    /// The policies behind that; none when nothing permits it.
    pub policies: Vec<String>,
    /// Why policy could not tell, which denies.
    pub could_not_tell: Option<String>,
}

/// A decision about which nothing can be said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplayGap {
    /// The call.
    pub call_id: String,
    /// When it was decided.
    pub at: String,
}

/// What a replay found. The first 10,000 of each kind are told one by one; all are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplaySummary {
    /// Decisions of that time.
    pub decisions: u64,
    /// Those that the draft makes otherwise.
    pub flips: u64,
    /// Those of them that let more happen.
    pub widening: u64,
    /// Those whose facts are no longer kept.
    pub erased: u64,
    /// Those whose facts cannot be read.
    pub unreadable: u64,
}
