//! Postures: how a person wants a tool to be treated, more strictly than policy alone would.
//!
//! They only narrow. [`Posture::AlwaysAllow`] leaves everything to policy and never turns a question
//! into a run.

use std::path::PathBuf;

use crate::id::SessionId;
use crate::principal::AgentName;

/// How a tool is treated, from the mildest to the strictest.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Posture {
    /// As policy says, nothing more.
    AlwaysAllow,
    /// A person is asked about each of an agent's calls; no grant for more than one counts.
    AskEachTime,
    /// Not at all, whoever calls.
    Disabled,
}

impl Posture {
    /// The word in flags, records and policy.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AlwaysAllow => "always_allow",
            Self::AskEachTime => "ask_each_time",
            Self::Disabled => "disabled",
        }
    }
}

/// For which calls a posture is meant.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(tag = "level", rename_all = "snake_case")]
pub enum PostureLevel {
    /// All of them.
    Global,
    /// Those that work on this folder.
    Workspace {
        /// Which, real.
        folder: PathBuf,
    },
    /// Those of this agent.
    Agent {
        /// Which.
        name: AgentName,
    },
    /// Those of this session.
    Session {
        /// Which.
        id: SessionId,
    },
}

impl std::fmt::Display for PostureLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Global => f.write_str("global"),
            Self::Workspace { folder } => write!(f, "workspace:{}", folder.display()),
            Self::Agent { name } => write!(f, "agent:{name}"),
            Self::Session { id } => write!(f, "session:{id}"),
        }
    }
}
