//! The baselines: what is decided where an operator says nothing else.

use std::str::FromStr;

use crate::policies::DEFAULT_POLICY_SRC;

/// A complete policy set that comes with the daemon, chosen by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Baseline {
    /// An agent uses plain tools freely and asks before sensitive ones.
    #[default]
    Standard,
    /// What stays inside a strong sandbox runs unasked; what crosses its boundary asks.
    Sandboxed,
    /// Nothing of an agent runs without a person's yes to exactly that call.
    Locked,
}

/// A name that no baseline has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no baseline `{}`; choose `standard`, `sandboxed` or `locked`", .0.escape_debug())]
pub struct UnknownBaseline(String);

impl Baseline {
    /// All of them, the most ordinary first.
    pub const ALL: [Self; 3] = [Self::Standard, Self::Sandboxed, Self::Locked];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Sandboxed => "sandboxed",
            Self::Locked => "locked",
        }
    }

    /// Its policies.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::Standard => DEFAULT_POLICY_SRC,
            Self::Sandboxed => include_str!("../policies/sandboxed.cedar"),
            Self::Locked => include_str!("../policies/locked.cedar"),
        }
    }
}

impl std::fmt::Display for Baseline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Baseline {
    type Err = UnknownBaseline;

    fn from_str(name: &str) -> Result<Self, UnknownBaseline> {
        let named = Self::ALL
            .into_iter()
            .find(|baseline| baseline.as_str() == name);
        named.ok_or_else(|| UnknownBaseline(name.chars().take(64).collect()))
    }
}
