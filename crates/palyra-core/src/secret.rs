//! Secrets by name: whose they are and what they are called. Never what they hold, but for
//! [`SecretValue`], which cannot be printed, copied or serialised. Where they may go:
//! [`injection`](crate::injection).

use std::str::FromStr;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::principal::{AgentName, UserName};
use crate::tool::ToolName;

/// The most bytes that one secret holds.
pub const MOST_SECRET_BYTES: usize = 64 * 1024;

/// A value that nobody may see by accident: no `Debug`, no `Clone`, no `Serialize`; its bytes are
/// overwritten when it goes.
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    /// Takes the bytes over.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for the one who was allowed to have them.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

/// A text that names no secret, or no scope of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotASecret {
    /// Not a name.
    #[error(
        "`{0}` is not a secret's name: use 1 to 128 of A-Z, a-z, 0-9, `-`, `_` and `.`, starting with a letter or digit"
    )]
    Name(String),
    /// Not a scope.
    #[error(
        "`{0}` is not a scope: use `global`, or `principal:`, `agent:`, `session:`, `channel:`, `skill:` or `tool:` and a name"
    )]
    Scope(String),
}

pub(crate) fn shown(given: &str) -> String {
    given.escape_debug().take(80).collect()
}

/// What a secret is called within its scope. ASCII only, so that no two names look alike in
/// another script; never a file's name, so that none of them leads anywhere.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(Arc<str>);

impl SecretName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = NotASecret;

    fn from_str(given: &str) -> Result<Self, NotASecret> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let starts = given
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        let right = starts && given.len() <= 128 && given.bytes().all(legal);
        match right && !is_device_name(given) {
            true => Ok(Self(given.into())),
            false => Err(NotASecret::Name(shown(given))),
        }
    }
}

/// Names that are a device on Windows whatever folder they are in: who exports secrets to files
/// there would write to a printer.
fn is_device_name(given: &str) -> bool {
    let stem = given.split('.').next().unwrap_or_default();
    let stem = stem.to_ascii_lowercase();
    let numbered = ["com", "lpt"].iter().any(|device| {
        stem.strip_prefix(device)
            .is_some_and(|rest| rest.len() == 1 && rest.bytes().all(|byte| byte.is_ascii_digit()))
    });
    numbered || ["con", "prn", "aux", "nul"].contains(&stem.as_str())
}

/// For whom a secret is.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub enum VaultScope {
    /// Everybody whom policy allows.
    Global,
    /// One person.
    Principal(UserName),
    /// One agent.
    Agent(AgentName),
    /// One session.
    Session(ScopeName),
    /// One way in.
    Channel(ScopeName),
    /// One skill.
    Skill(ScopeName),
    /// One tool.
    Tool(ToolName),
}

/// The name of a session, a channel or a skill.
pub type ScopeName = AgentName;

impl VaultScope {
    /// Which kind of scope, as it is written.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Principal(_) => "principal",
            Self::Agent(_) => "agent",
            Self::Session(_) => "session",
            Self::Channel(_) => "channel",
            Self::Skill(_) => "skill",
            Self::Tool(_) => "tool",
        }
    }

    fn of(&self) -> Option<&str> {
        match self {
            Self::Global => None,
            Self::Principal(name) => Some(name.as_str()),
            Self::Agent(name) | Self::Session(name) | Self::Channel(name) | Self::Skill(name) => {
                Some(name.as_str())
            }
            Self::Tool(name) => Some(name.as_str()),
        }
    }
}

impl std::fmt::Display for VaultScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.of() {
            None => f.write_str(self.kind()),
            Some(name) => write!(f, "{}:{name}", self.kind()),
        }
    }
}

impl FromStr for VaultScope {
    type Err = NotASecret;

    fn from_str(given: &str) -> Result<Self, NotASecret> {
        let wrong = || NotASecret::Scope(shown(given));
        if given == "global" {
            return Ok(Self::Global);
        }
        let (kind, name) = given.split_once(':').ok_or_else(wrong)?;
        let plain = || name.parse::<ScopeName>().map_err(|_| wrong());
        match kind {
            "principal" => name.parse().map(Self::Principal).map_err(|_| wrong()),
            "agent" => plain().map(Self::Agent),
            "session" => plain().map(Self::Session),
            "channel" => plain().map(Self::Channel),
            "skill" => plain().map(Self::Skill),
            "tool" => name.parse().map(Self::Tool).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

/// A secret by reference: what travels in place of its value. As text `NAME` for a global one,
/// else `SCOPE/NAME`.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct SecretRef {
    /// For whom.
    pub scope: VaultScope,
    /// What it is called there.
    pub name: SecretName,
}

impl std::fmt::Display for SecretRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.scope {
            VaultScope::Global => write!(f, "{}", self.name.as_str()),
            VaultScope::Principal(_)
            | VaultScope::Agent(_)
            | VaultScope::Session(_)
            | VaultScope::Channel(_)
            | VaultScope::Skill(_)
            | VaultScope::Tool(_) => write!(f, "{}/{}", self.scope, self.name.as_str()),
        }
    }
}

impl FromStr for SecretRef {
    type Err = NotASecret;

    fn from_str(given: &str) -> Result<Self, NotASecret> {
        let (scope, name) = match given.split_once('/') {
            Some((scope, name)) => (scope.parse()?, name),
            None => (VaultScope::Global, given),
        };
        let name = name.parse()?;
        Ok(Self { scope, name })
    }
}

macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl TryFrom<String> for $name {
            type Error = NotASecret;
            fn try_from(given: String) -> Result<Self, NotASecret> {
                given.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    )*};
}

as_text!(SecretName, VaultScope, SecretRef);

impl std::fmt::Display for SecretName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the last change of the vault was, as the journal is told.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum VaultChange {
    /// It was made.
    Created,
    /// A version was stored.
    Put {
        /// Of which secret.
        secret: SecretRef,
        /// Its number.
        version: u64,
    },
    /// A secret and all its versions were deleted.
    Deleted {
        /// Which.
        secret: SecretRef,
    },
    /// Versions that had ended were removed.
    Swept {
        /// How many.
        versions: u64,
    },
    /// A change of the key began.
    RotationBegun {
        /// The new key.
        key: String,
    },
    /// The new key is the key.
    RotationDone {
        /// The new key.
        key: String,
    },
    /// The old key was forgotten.
    OldKeyForgotten {
        /// Which.
        key: String,
    },
    /// The daemon's own keys were sealed in it.
    KeysKept {
        /// Which.
        names: Vec<String>,
    },
    /// A person took an older file as it is; the generation went on from where the journal was.
    RollbackAccepted,
    /// Secrets came from a backup.
    Imported {
        /// How many.
        secrets: u64,
    },
}

/// How a value was given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretAccess {
    /// Shown to the one who asked.
    Revealed,
    /// Put into the table of a call.
    Used,
    /// Written into a backup.
    Exported,
    /// Its placeholder was sent where the secret may not go. That was blocked; somebody or something
    /// in the call tried.
    Misdirected,
}

impl SecretAccess {
    /// The word in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Revealed => "revealed",
            Self::Used => "used",
            Self::Exported => "exported",
            Self::Misdirected => "misdirected",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for fine in ["a", "GITHUB_TOKEN", "db.password-2", &"a".repeat(128)] {
            assert!(fine.parse::<SecretName>().is_ok(), "{fine}");
        }
        let long = "a".repeat(64 * 1024);
        for hostile in [
            "",
            "../x",
            "a/b",
            "a\0",
            "a b",
            ".a",
            "-a",
            "tоken",
            "ａ",
            "a\u{202e}",
            "con",
            "NUL.txt",
            "com1",
            &long,
        ] {
            let error = hostile.parse::<SecretName>().unwrap_err().to_string();
            assert!(error.len() < 400, "{}", error.len());
        }
    }

    #[test]
    fn a_reference_is_text_and_back() {
        for text in [
            "token",
            "agent:claude/token",
            "tool:palyra.process.run/x",
            "principal:owner/y",
        ] {
            let parsed: SecretRef = text.parse().unwrap();
            assert_eq!(parsed.to_string(), text);
        }
        for wrong in [
            "agent:/x",
            "agents:a/x",
            "agent:A/x",
            "x/y",
            "agent:a/../x",
            "/x",
            "agent:a",
        ] {
            assert!(wrong.parse::<SecretRef>().is_err(), "{wrong}");
        }
    }
}
