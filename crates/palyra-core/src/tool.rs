//! Tools as they describe themselves, and a proposal to call one.

use std::collections::BTreeSet;

use crate::json::CanonicalJson;
use crate::plan::Limits;

/// The name of a tool, such as `palyra.process.run`.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct ToolName(std::sync::Arc<str>);

/// A text that is not a tool's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a tool name: use 1 to 128 of a-z, 0-9, `.`, `_` and `-`")]
pub struct NotAToolName(String);

impl ToolName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for ToolName {
    type Err = NotAToolName;
    fn from_str(given: &str) -> Result<Self, NotAToolName> {
        let legal = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-')
        };
        if given.is_empty() || given.len() > 128 || !given.bytes().all(legal) {
            return Err(NotAToolName(given.escape_debug().take(140).collect()));
        }
        Ok(Self(given.into()))
    }
}

impl TryFrom<String> for ToolName {
    type Error = NotAToolName;
    fn try_from(given: String) -> Result<Self, NotAToolName> {
        given.parse()
    }
}

impl From<ToolName> for String {
    fn from(name: ToolName) -> String {
        name.0.to_string()
    }
}

impl std::fmt::Display for ToolName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a tool needs from the machine.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ToolCapability {
    /// Runs programs of the host.
    ProcessExec,
    /// Reaches out over the network.
    Network,
    /// Reads secrets from the vault.
    SecretsRead,
    /// Changes files of the host.
    FilesystemWrite,
    /// Reads files of the host.
    FilesystemRead,
}

impl ToolCapability {
    /// The specification's word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ProcessExec => "process_exec",
            Self::Network => "network",
            Self::SecretsRead => "secrets_read",
            Self::FilesystemWrite => "filesystem_write",
            Self::FilesystemRead => "filesystem_read",
        }
    }

    /// Whether a tool that needs it is sensitive for that reason alone.
    #[must_use]
    pub const fn is_sensitive(self) -> bool {
        match self {
            Self::ProcessExec | Self::Network | Self::SecretsRead | Self::FilesystemWrite => true,
            Self::FilesystemRead => false,
        }
    }
}

/// A tool, described once: what the model sees, what policy sees, what the executor starts from.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ToolMetadata {
    /// Its name.
    pub name: ToolName,
    /// What it does, for a model and a person alike.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: serde_json::Value,
    /// What it needs.
    pub capabilities: BTreeSet<ToolCapability>,
    /// Sensitive even without a sensitive capability.
    pub default_sensitive: bool,
    /// How many bytes of arguments it takes.
    pub max_input_bytes: u64,
    /// The limits of a call that asks for none.
    pub default_limits: Limits,
}

impl ToolMetadata {
    /// Sensitive by declaration or by what it needs.
    #[must_use]
    pub fn is_sensitive(&self) -> bool {
        self.default_sensitive || self.capabilities.iter().any(|need| need.is_sensitive())
    }
}

/// A call as it was proposed: which tool, with which arguments. Nothing is decided yet.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProposal {
    /// The tool.
    pub tool: ToolName,
    /// Its arguments, through the strict door.
    pub arguments: CanonicalJson,
}
