//! Scopes: the ways in which one call stands for others, each with a key that a grant can name; and
//! the terms of such a grant.

use crate::blob::Commitment;
use crate::digest::Digest;
use crate::id::{ApprovalId, CallId, GrantId, SessionId};
use crate::principal::{AgentName, UserName};
use crate::time::Timestamp;
use crate::tool::ToolName;

/// In which way one call stands for others. From the narrowest to the widest.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ScopeKind {
    /// Only this call, word for word.
    Exact,
    /// The same program with the same options; operands inside the workspace may differ.
    Shape,
    /// The same hosts, by the same program.
    Host,
    /// The same program or tool, in the same folder.
    Directory,
    /// The same program, anywhere in the workspace.
    Program,
    /// The same tool.
    Tool,
}

impl ScopeKind {
    /// The word in flags and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Shape => "shape",
            Self::Host => "host",
            Self::Directory => "directory",
            Self::Program => "program",
            Self::Tool => "tool",
        }
    }

    /// The word that a person chooses it by.
    #[must_use]
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Shape => "args",
            Self::Host => "host",
            Self::Directory => "dir",
            Self::Program => "program",
            Self::Tool => "tool",
        }
    }
}

/// A keyed digest of the typed facts of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ScopeKey(pub(crate) Digest);

impl ScopeKey {
    /// The key as text, for policy contexts.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.0.to_string()
    }
}

/// One scope of one call.
///
/// Both keys are of the same facts (agent, user, workspace, tier, and what the kind names); the
/// session's has the session among them, so a grant for a session serves no other one.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Scope {
    /// In which way.
    pub kind: ScopeKind,
    /// What a grant for this session names.
    pub session: ScopeKey,
    /// What a grant for a window of time names.
    pub window: ScopeKey,
    /// What a yes would cover, for a person.
    pub sentence: String,
}

/// How far a yes reaches in time.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// One execution of the call that was shown.
    #[default]
    Once,
    /// Until the session that asked ends.
    Session,
    /// Until an hour on the clock.
    Window,
}

impl Reach {
    /// The word in flags and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Window => "window",
        }
    }
}

/// What a grant that serves more than one call says. It holds no words of the call: those are in the
/// facts that it names, which can be erased.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GrantTerms {
    /// The grant.
    pub id: GrantId,
    /// The approval it came from.
    pub approval: ApprovalId,
    /// The call that was shown.
    pub call: CallId,
    /// The one agent it serves.
    pub agent: AgentName,
    /// The person that agent acts for.
    pub user: UserName,
    /// The tool.
    pub tool: ToolName,
    /// How far it reaches in time: never [`Reach::Once`].
    pub reach: Reach,
    /// In which way other calls are like the one that was shown.
    pub cover: ScopeKind,
    /// What a covered call has among its own keys.
    pub key: ScopeKey,
    /// The one session it serves, when it is for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The first instant at which it is over.
    pub not_after: Timestamp,
    /// Who gave it.
    pub made_by: UserName,
    /// Commitment to what policy saw of the call that was shown.
    pub facts: Commitment,
}

/// Why a grant is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyEnded {
    /// Its time was over.
    TimeOver,
    /// The session it was for ended.
    SessionEnded,
    /// The daemon was restarted, which ends every session.
    Restarted,
    /// The agent was paused.
    AgentPaused,
    /// The agent is no longer registered.
    AgentRemoved,
    /// A person took it back.
    Revoked,
}

impl WhyEnded {
    /// The word in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TimeOver => "time_over",
            Self::SessionEnded => "session_ended",
            Self::Restarted => "restarted",
            Self::AgentPaused => "agent_paused",
            Self::AgentRemoved => "agent_removed",
            Self::Revoked => "revoked",
        }
    }
}
