//! The values that arguments take, parsed once at the door.

use std::path::PathBuf;
use std::str::FromStr;

use palyra_core::{AgentName, Span, Timestamp};

/// What `--as` takes: `agent:NAME`. There is nothing else to be lowered to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsAgent(pub AgentName);

impl FromStr for AsAgent {
    type Err = String;
    fn from_str(given: &str) -> Result<Self, String> {
        let name = given
            .strip_prefix("agent:")
            .ok_or("write `agent:NAME`; `palyra agents list` names them")?;
        name.parse()
            .map(Self)
            .map_err(|error: <AgentName as FromStr>::Err| error.to_string())
    }
}

impl std::fmt::Display for AsAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "agent:{}", self.0)
    }
}

/// What `--env` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvArg {
    /// `NAME`: the caller's own value.
    Copy(String),
    /// `NAME=VALUE`.
    Set(String, String),
}

impl FromStr for EnvArg {
    type Err = String;
    fn from_str(given: &str) -> Result<Self, String> {
        let (name, value) = match given.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (given, None),
        };
        let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let starts = name.bytes().next().is_some_and(letter);
        if !starts
            || !name
                .bytes()
                .all(|byte| letter(byte) || byte.is_ascii_digit())
        {
            return Err(
                "write `NAME` or `NAME=VALUE`; a name is letters, digits and `_`".to_owned(),
            );
        }
        let name = name.to_owned();
        Ok(match value {
            Some(value) => Self::Set(name, value.to_owned()),
            None => Self::Copy(name),
        })
    }
}

/// What `--secret` takes: `ENV=NAME`, or `@FILE=NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretArg {
    file: bool,
    at: String,
    secret: palyra_core::SecretRef,
}

impl SecretArg {
    /// As it is in a call's arguments.
    #[must_use]
    pub fn as_json(&self) -> serde_json::Value {
        let kind = if self.file { "file" } else { "env" };
        serde_json::json!({ "secret": self.secret.to_string(), kind: self.at })
    }
}

impl FromStr for SecretArg {
    type Err = String;
    fn from_str(given: &str) -> Result<Self, String> {
        let usage =
            "write `ENV=NAME`, or `@FILE=NAME`: where it is found, and its name in the vault";
        let (at, secret) = given.split_once('=').ok_or(usage)?;
        let (file, at) = at
            .strip_prefix('@')
            .map_or((false, at), |file| (true, file));
        if at.is_empty() {
            return Err(usage.to_owned());
        }
        let secret = secret.parse().map_err(|error| format!("{error}"))?;
        let at = at.to_owned();
        Ok(Self { file, at, secret })
    }
}

/// What `--args` takes: JSON text, `-` for standard input, `@FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonArg {
    /// The text itself.
    Text(String),
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

impl FromStr for JsonArg {
    type Err = String;
    fn from_str(given: &str) -> Result<Self, String> {
        Ok(match (given, given.strip_prefix('@')) {
            ("-", _) => Self::Stdin,
            (_, Some("")) => return Err("write the file's name after `@`".to_owned()),
            (_, Some(file)) => Self::File(file.into()),
            (text, None) => Self::Text(text.to_owned()),
        })
    }
}

/// A moment: a time, or how long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenArg {
    /// Then.
    At(Timestamp),
    /// So long before now.
    Ago(Span),
}

impl WhenArg {
    /// The moment, seen from now.
    #[must_use]
    pub fn seen_from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(Span(ago)) => {
                let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
                Timestamp::from_millis(now.as_millis().saturating_sub(ago))
            }
        }
    }
}

impl FromStr for WhenArg {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(at) = text.parse() {
            return Ok(Self::At(at));
        }
        let span = text.parse().map(Self::Ago);
        span.map_err(|_| "a time such as 2026-11-15T09:00:00Z, or a span such as 2h".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_takes_agents_only() {
        assert_eq!(
            "agent:claude".parse::<AsAgent>().unwrap().to_string(),
            "agent:claude"
        );
        for wrong in ["claude", "user:owner", "agent:", "agent:A", "agent:a/b", ""] {
            assert!(wrong.parse::<AsAgent>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn env() {
        assert_eq!("A".parse(), Ok(EnvArg::Copy("A".to_owned())));
        assert_eq!("A=".parse(), Ok(EnvArg::Set("A".to_owned(), String::new())));
        assert_eq!(
            "A=b=c".parse(),
            Ok(EnvArg::Set("A".to_owned(), "b=c".to_owned()))
        );
        for wrong in ["", "=b", "1A=b", "A-B", "A B=c", "\u{e9}"] {
            assert!(wrong.parse::<EnvArg>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn arguments_come_three_ways() {
        assert_eq!("-".parse(), Ok(JsonArg::Stdin));
        assert_eq!("@a.json".parse(), Ok(JsonArg::File("a.json".into())));
        assert_eq!("{}".parse(), Ok(JsonArg::Text("{}".to_owned())));
        assert!("@".parse::<JsonArg>().is_err());
    }
}
