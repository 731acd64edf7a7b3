//! Hosts, in one spelling.

/// A host that a call connects to, in its one normal form: an ASCII lower-case name without a
/// trailing dot, or an address. Holding one means it was checked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct EgressHost(String);

impl EgressHost {
    /// The normal form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is an address and not a name.
    #[must_use]
    pub fn is_address(&self) -> bool {
        self.0.parse::<std::net::IpAddr>().is_ok()
    }

    /// The name and its parents by label, the narrowest first; an address has no parents.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        let first = (!self.is_address()).then_some(self.0.as_str());
        std::iter::successors(first, |name| Some(name.split_once('.')?.1))
    }
}

impl std::fmt::Display for EgressHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not the name or address of a host", .0.escape_debug())]
pub struct NotAHost(String);

impl NotAHost {
    pub(crate) fn of(text: &str) -> Self {
        Self(text.chars().take(80).collect())
    }
}

impl std::str::FromStr for EgressHost {
    type Err = NotAHost;

    /// Reads every spelling that clients take: other scripts (IDNA), capitals, a trailing dot,
    /// decimal, octal, hexadecimal and short IPv4, IPv6 with brackets and a zone. Addresses of
    /// IPv4 inside IPv6 become IPv4.
    fn from_str(text: &str) -> Result<Self, NotAHost> {
        let wrong = || NotAHost::of(text);
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let inner = bare.unwrap_or(text);
        if inner.contains(':') {
            let address = inner.split_once('%').map_or(inner, |(address, _)| address);
            let address: std::net::Ipv6Addr = address.parse().map_err(|_| wrong())?;
            return Ok(Self(address.to_canonical().to_string()));
        }
        if bare.is_some() || text.len() > 1_024 {
            return Err(wrong());
        }
        match url::Host::parse(text.strip_suffix('.').unwrap_or(text)) {
            Ok(url::Host::Ipv4(address)) => Ok(Self(address.to_string())),
            Ok(url::Host::Ipv6(address)) => Ok(Self(address.to_canonical().to_string())),
            Ok(url::Host::Domain(name)) if is_name(&name) => Ok(Self(name)),
            Ok(url::Host::Domain(_)) | Err(_) => Err(wrong()),
        }
    }
}

/// Stricter than the URL standard: no empty labels, only what resolvers ask for.
fn is_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(legal);
    name.len() <= 253 && name.split('.').all(label)
}

impl<'de> serde::Deserialize<'de> for EgressHost {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_host_is_one_host() {
        for (spelled, normal) in [
            ("Example.COM.", "example.com"),
            ("BÜCHER.example", "xn--bcher-kva.example"),
            ("ｅxample。com", "example.com"),
            ("ex%61mple.com", "example.com"),
            ("2130706433", "127.0.0.1"),
            ("0x7f.1", "127.0.0.1"),
            ("0177.0.0.01", "127.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("[::1]", "::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[::ffff:127.0.0.1]", "127.0.0.1"),
            ("localhost", "localhost"),
        ] {
            let host: EgressHost = spelled.parse().unwrap();
            assert_eq!(host.as_str(), normal, "{spelled}");
            assert_eq!(normal.parse::<EgressHost>().unwrap(), host);
        }
        for hostile in [
            "",
            ".",
            "..",
            "a..b",
            "a b",
            "a/b",
            "a@b",
            "[::1",
            "1.2.3.4.5",
            "[a]",
            "a\0b",
            "999.1.1.1",
            "-o\tx",
        ] {
            assert!(hostile.parse::<EgressHost>().is_err(), "{hostile}");
        }
    }

    #[test]
    fn a_name_has_its_parents() {
        let host: EgressHost = "a.b.example.com".parse().unwrap();
        let domains: Vec<&str> = host.domains().collect();
        assert_eq!(
            domains,
            ["a.b.example.com", "b.example.com", "example.com", "com"]
        );
        let address: EgressHost = "10.0.0.1".parse().unwrap();
        assert_eq!(address.domains().count(), 0);
    }
}
