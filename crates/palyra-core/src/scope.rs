//! Scopes: the ways in which one call stands for others, each with a key that a grant can name.

use crate::digest::Digest;

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
