//! The values that arguments take, parsed once at the door.

use std::path::PathBuf;
use std::str::FromStr;

use palyra_core::AgentName;

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
