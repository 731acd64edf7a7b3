//! How bad a call can be, and why: facts for policy and words for a person.

use std::path::PathBuf;

/// A kind of program that policy treats alike.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ProgramGroup {
    /// Runs code that it is given: shells, languages, editors.
    Interpreters,
    /// Runs another program that it is given.
    Wrappers,
    /// Version control.
    Vcs,
    /// Builds, tests and package managers: they run what the workspace says.
    Build,
    /// Connects to hosts.
    Network,
    /// Removes, overwrites or changes what cannot be had back.
    Destructive,
    /// Changes the machine or who it acts as.
    System,
    /// Lies in the workspace itself, where an agent can write it.
    Local,
}

impl ProgramGroup {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Interpreters,
        Self::Wrappers,
        Self::Vcs,
        Self::Build,
        Self::Network,
        Self::Destructive,
        Self::System,
        Self::Local,
    ];

    /// The group's name in policies and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Interpreters => "interpreters",
            Self::Wrappers => "wrappers",
            Self::Vcs => "vcs",
            Self::Build => "build",
            Self::Network => "network",
            Self::Destructive => "destructive",
            Self::System => "system",
            Self::Local => "local",
        }
    }
}

/// A program that a call runs, with its groups.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProgramFacts {
    /// Its absolute path, as it was found.
    pub program: PathBuf,
    /// Where the file really is, when that is a link: a rule about either place holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<PathBuf>,
    /// The groups it is in, in the order of [`ProgramGroup::ALL`].
    pub groups: Vec<ProgramGroup>,
}

/// How bad a call can be. The number is what policy compares: more is worse.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum RiskLevel {
    /// Looks at the workspace.
    Low,
    /// Changes the workspace or runs a plain program.
    Medium,
    /// Can reach beyond the workspace.
    High,
    /// Cannot be told, or cannot be undone. What nobody looked at is this.
    #[default]
    Critical,
}

impl RiskLevel {
    /// The number that policy compares.
    #[must_use]
    pub const fn rank(self) -> i64 {
        match self {
            Self::Low => 0,
            Self::Medium => 1,
            Self::High => 2,
            Self::Critical => 3,
        }
    }

    /// The word in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// A level with its reasons, each a sentence part for a person.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Risk {
    /// The worst of the reasons' levels.
    pub level: RiskLevel,
    /// Why, the worst first.
    pub reasons: Vec<String>,
}
