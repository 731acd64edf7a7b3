//! Which hosts a call may reach, and what is recorded of each connection.

use std::net::SocketAddr;

use crate::host::{EgressHost, NotAHost};
use crate::secret::{SecretRef, shown};
use crate::time::Timestamp;

/// One host, or every name below one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// This one.
    Exact(EgressHost),
    /// Names below this one, and not itself: `*.example.com`.
    Below(EgressHost),
}

impl HostPattern {
    /// Whether it covers a host.
    #[must_use]
    pub fn covers(&self, host: &EgressHost) -> bool {
        match self {
            Self::Exact(this) => this == host,
            Self::Below(parent) => host.domains().skip(1).any(|name| name == parent.as_str()),
        }
    }

    /// The host, when it is one.
    #[must_use]
    pub const fn exact(&self) -> Option<&EgressHost> {
        match self {
            Self::Exact(host) => Some(host),
            Self::Below(_) => None,
        }
    }
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(host) => host.fmt(f),
            Self::Below(parent) => write!(f, "*.{parent}"),
        }
    }
}

impl std::str::FromStr for HostPattern {
    type Err = NotAHost;

    fn from_str(text: &str) -> Result<Self, NotAHost> {
        let Some(parent) = text.strip_prefix("*.") else {
            return text.parse().map(Self::Exact);
        };
        let parent: EgressHost = parent.parse()?;
        match parent.is_address() {
            true => Err(NotAHost::of(text)),
            false => Ok(Self::Below(parent)),
        }
    }
}

impl serde::Serialize for HostPattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for HostPattern {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What is spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressScheme {
    /// HTTP, which can be read.
    Http,
    /// TLS, whatever is inside.
    Tls,
}

/// One destination that a call may reach.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressRule {
    /// Which host.
    pub host: HostPattern,
    /// Which port.
    pub port: u16,
    /// What must be spoken; anything when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<EgressScheme>,
    /// The methods, in capitals, where HTTP is visible; empty means every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// What paths begin with, by whole segments, where HTTP is visible; empty means every path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Whether it may lie inside: at a private, loopback or other address that is not of the
    /// internet. Only a host that was named with its port is trusted so far.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inward: bool,
}

/// Why a text names no destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotARule {
    /// No host.
    #[error(transparent)]
    Host(#[from] NotAHost),
    /// No port.
    #[error("`{0}` is not a port: use 1 to 65535")]
    Port(String),
}

impl EgressRule {
    /// Whether it lets this host and port be reached at all.
    #[must_use]
    pub fn covers(&self, host: &EgressHost, port: u16) -> bool {
        self.port == port && self.host.covers(host)
    }

    /// The rules that `HOST[:PORT]` means: without a port, 80 and 443. Inward only with one.
    ///
    /// # Errors
    /// It names no host, or no port.
    pub fn named(text: &str) -> Result<Vec<Self>, NotARule> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
            Some(_) | None => (text, None),
        };
        let host: HostPattern = host.parse()?;
        let rule = |port, inward| Self {
            host: host.clone(),
            port,
            scheme: None,
            methods: Vec::new(),
            paths: Vec::new(),
            inward,
        };
        let Some(port) = port else {
            return Ok(vec![rule(80, false), rule(443, false)]);
        };
        let number = port.parse().ok().filter(|port: &u16| *port != 0);
        let number = number.ok_or_else(|| NotARule::Port(shown(port)))?;
        Ok(vec![rule(number, true)])
    }
}

impl std::fmt::Display for EgressRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.exact() {
            Some(host) if host.as_str().contains(':') => write!(f, "[{host}]:{}", self.port),
            Some(_) | None => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// The way a client asked for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressVia {
    /// `CONNECT host:port`.
    Connect,
    /// A whole URL in the request line.
    Absolute,
    /// SOCKS 5.
    Socks,
    /// It dialled the address that our resolver gave for the name.
    Direct,
    /// It only asked for a name.
    Lookup,
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum EgressEnd {
    /// Both sides were done with it, or one went away.
    Closed,
    /// It was refused; nothing was sent.
    Refused {
        /// What is the matter, in one word.
        code: String,
        /// The sentence that the client got.
        why: String,
    },
    /// It broke: the host was not there, or a budget was used up.
    Broken {
        /// What is the matter, in one word.
        code: String,
        /// The sentence.
        why: String,
    },
}

/// One connection of a call, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ConnectionRecord {
    /// When it was asked for.
    pub at: Timestamp,
    /// How.
    pub via: EgressVia,
    /// The name as the client gave it, cleaned of what cannot be shown, when there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The port.
    pub port: u16,
    /// The address that was dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Which rule let it, as it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Bytes from the call to the host.
    pub sent: u64,
    /// Bytes from the host to the call.
    pub received: u64,
    /// How long it was open, in milliseconds.
    pub millis: u64,
    /// The secrets that went along, by reference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<SecretRef>,
    /// How it ended.
    #[serde(flatten)]
    pub end: EgressEnd,
}

/// What a call may use of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EgressBudget {
    /// Connections in all.
    pub connections: u64,
    /// Connections at once.
    pub at_once: u32,
    /// Bytes, both ways together.
    pub bytes: u64,
}

impl Default for EgressBudget {
    fn default() -> Self {
        Self {
            connections: 20_000,
            at_once: 1_024,
            bytes: 16 << 30,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> EgressHost {
        text.parse().unwrap()
    }

    #[test]
    fn a_pattern_covers_what_is_below_and_nothing_that_only_ends_alike() {
        let below: HostPattern = "*.Example.com.".parse().unwrap();
        assert_eq!(below.to_string(), "*.example.com");
        assert!(below.covers(&host("a.example.com")));
        assert!(below.covers(&host("b.a.example.com")));
        for other in [
            "example.com",
            "evilexample.com",
            "example.com.evil",
            "10.0.0.1",
        ] {
            assert!(!below.covers(&host(other)), "{other}");
        }
        for wrong in ["*", "*.", "*.*.com", "*.10.0.0.1", "a.*.com", "**.com"] {
            assert!(wrong.parse::<HostPattern>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_destination_is_read_with_and_without_its_port() {
        let named = |text: &str| -> Vec<(String, bool)> {
            let rules = EgressRule::named(text).unwrap();
            let shown = rules.iter().map(|rule| (rule.to_string(), rule.inward));
            shown.collect()
        };
        let outward = |text: &str| (text.to_owned(), false);
        assert_eq!(
            named("Example.com"),
            [outward("example.com:80"), outward("example.com:443")]
        );
        assert_eq!(
            named("localhost:8080"),
            [("localhost:8080".to_owned(), true)]
        );
        assert_eq!(named("[::1]:22"), [("[::1]:22".to_owned(), true)]);
        assert_eq!(named("::1").len(), 2);
        for wrong in [
            "", "a b", "a:0", "a:65536", "a:x", "a:", "http://a", "a/b", ":80",
        ] {
            assert!(EgressRule::named(wrong).is_err(), "{wrong}");
        }
    }
}
