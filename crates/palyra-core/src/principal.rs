//! Who acts: a person, or an agent that acts for one.

/// A text that is not a legal name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a name: use 1 to 64 of a-z, 0-9, `-`, `_` and `.`, starting with a letter or digit"
)]
pub struct NotAName(String);

fn check(given: &str) -> Result<(), NotAName> {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = given.as_bytes();
    let starts = bytes.first().is_some_and(|byte| legal(*byte));
    let rest = bytes
        .iter()
        .all(|byte| legal(*byte) || matches!(byte, b'-' | b'_' | b'.'));
    (starts && rest && bytes.len() <= 64)
        .then_some(())
        .ok_or_else(|| NotAName(given.escape_debug().take(80).collect()))
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = NotAName;
            fn from_str(given: &str) -> Result<Self, NotAName> {
                check(given)?;
                Ok(Self(given.into()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = NotAName;
            fn try_from(given: String) -> Result<Self, NotAName> {
                given.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.to_string()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// A person known to this daemon. The one whose uid the daemon has is `owner`.
    UserName
);
name_type!(
    /// A registered agent.
    AgentName
);

impl UserName {
    /// The person whose uid the daemon runs under.
    #[must_use]
    pub fn owner() -> Self {
        Self("owner".into())
    }
}

/// The one who asks. It is made from the credential that was authenticated, never from a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Principal {
    /// A person.
    User {
        /// Who.
        name: UserName,
    },
    /// An agent, always of some person: both must be allowed.
    Agent {
        /// Which.
        name: AgentName,
        /// For whom it acts.
        user: UserName,
    },
}

impl Principal {
    /// The person behind: themself, or the agent's user.
    #[must_use]
    pub const fn user(&self) -> &UserName {
        match self {
            Self::User { name } | Self::Agent { user: name, .. } => name,
        }
    }

    /// The agent, if it is one.
    #[must_use]
    pub const fn agent(&self) -> Option<&AgentName> {
        match self {
            Self::User { .. } => None,
            Self::Agent { name, .. } => Some(name),
        }
    }
}

impl std::fmt::Display for Principal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::User { name } => write!(f, "user:{name}"),
            Self::Agent { name, .. } => write!(f, "agent:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        assert!("claude-code.2".parse::<AgentName>().is_ok());
        for hostile in [
            "",
            "-a",
            "A",
            "a b",
            "a/b",
            "а",
            "a\0",
            &"a".repeat(65),
            "..",
            "a\u{202e}",
        ] {
            assert!(hostile.parse::<AgentName>().is_err(), "{hostile:?}");
        }
    }
}
