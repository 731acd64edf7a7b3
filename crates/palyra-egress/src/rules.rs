//! The rules of a call: what they let be reached, and what has to be spoken there.

use std::sync::Arc;

use palyra_core::{EgressHost, EgressRule, EgressScheme, HostPattern};

use crate::refusal::{EgressCode, Refusal};

/// The rules of one call.
#[derive(Debug)]
pub(crate) struct Rules(Vec<Arc<EgressRule>>);

/// A host and port that some rules let be reached: made by [`Rules::decide`] alone, and needed to
/// look anything up or to dial.
#[derive(Debug, Clone)]
pub(crate) struct Allowed {
    host: EgressHost,
    port: u16,
    rules: Vec<Arc<EgressRule>>,
}

/// What has to be spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    /// TLS.
    Tls,
    /// HTTP that can be read.
    Http,
    /// Anything; TLS and HTTP have to be for the name all the same.
    Any,
}

impl Rules {
    pub(crate) fn new(rules: Vec<EgressRule>) -> Self {
        Self(rules.into_iter().map(Arc::new).collect())
    }

    /// Whether any port of a host may be reached.
    pub(crate) fn know(&self, host: &EgressHost) -> bool {
        self.0.iter().any(|rule| rule.host.covers(host))
    }

    /// By name, before anything is looked up.
    pub(crate) fn decide(&self, host: EgressHost, port: u16) -> Result<Allowed, Refusal> {
        let covering = self.0.iter().filter(|rule| rule.covers(&host, port));
        let rules: Vec<_> = covering.cloned().collect();
        match rules.is_empty() {
            true => Err(not_allowed(&at(&host, port))),
            false => Ok(Allowed { host, port, rules }),
        }
    }
}

/// `host:port`, with brackets where they belong.
pub(crate) fn at(host: &EgressHost, port: u16) -> String {
    match host.as_str().contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

pub(crate) fn not_allowed(what: &str) -> Refusal {
    let why = format!(
        "`{what}` is not among the hosts of this call; ask for it with --allow-host {what}"
    );
    Refusal::new(EgressCode::HostNotAllowed, why)
}

impl Allowed {
    pub(crate) const fn host(&self) -> &EgressHost {
        &self.host
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`.
    pub(crate) fn at(&self) -> String {
        at(&self.host, self.port)
    }

    /// The rule that is named in the record: one that spells the host out rather than a wildcard.
    pub(crate) fn rule(&self) -> Option<String> {
        let exact = |rule: &&Arc<EgressRule>| matches!(rule.host, HostPattern::Exact(_));
        let rule = self.rules.iter().find(exact).or(self.rules.first());
        rule.map(|rule| rule.to_string())
    }

    /// Whether it may lie inside.
    pub(crate) fn inward(&self) -> bool {
        self.rules.iter().any(|rule| rule.inward)
    }

    /// What has to be spoken. Port 443 is TLS unless a rule for it says HTTP.
    pub(crate) fn speech(&self) -> Speech {
        let all = |test: fn(&EgressRule) -> bool| self.rules.iter().all(|rule| test(rule));
        let http = |rule: &EgressRule| {
            rule.scheme == Some(EgressScheme::Http) || (rule.scheme.is_none() && !is_whole(rule))
        };
        if all(|rule| rule.scheme == Some(EgressScheme::Tls)) {
            return Speech::Tls;
        }
        if self.port == 443 && !all(|rule| rule.scheme == Some(EgressScheme::Http)) {
            return Speech::Tls;
        }
        match all(http) || self.port == 80 {
            true => Speech::Http,
            false => Speech::Any,
        }
    }

    /// Whether TLS may be spoken without anything inside of it being seen.
    pub(crate) fn unseen(&self) -> Result<(), Refusal> {
        let whole =
            |rule: &Arc<EgressRule>| is_whole(rule) && rule.scheme != Some(EgressScheme::Http);
        if self.rules.iter().any(whole) {
            return Ok(());
        }
        let why = format!(
            "the rules for `{}` allow some methods or paths, or HTTP alone, which cannot be seen inside TLS",
            self.at()
        );
        Err(Refusal::new(EgressCode::RequestNotVisible, why))
    }

    /// Whether a request may be made. The path is in its normal form, when it has one.
    pub(crate) fn request(
        &self,
        tls: bool,
        method: &str,
        path: Option<&str>,
    ) -> Result<(), Refusal> {
        let spoken = match tls {
            true => EgressScheme::Tls,
            false => EgressScheme::Http,
        };
        let fits = |rule: &Arc<EgressRule>| {
            rule.scheme.is_none_or(|scheme| scheme == spoken)
                && (rule.methods.is_empty() || rule.methods.iter().any(|known| known == method))
                && (rule.paths.is_empty()
                    || path.is_some_and(|path| rule.paths.iter().any(|known| below(path, known))))
        };
        if self.rules.iter().any(fits) {
            return Ok(());
        }
        let why = format!(
            "the rules for `{}` do not allow this method and path",
            self.at()
        );
        Err(Refusal::new(EgressCode::RequestNotAllowed, why))
    }
}

/// Without a word about methods and paths.
fn is_whole(rule: &EgressRule) -> bool {
    rule.methods.is_empty() && rule.paths.is_empty()
}

/// By whole segments.
fn below(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The one spelling of a path; `None` when servers would read it in more than one way.
pub(crate) fn normal_path(path: &str) -> Option<String> {
    let mut bytes = path.bytes();
    let mut normal = String::with_capacity(path.len());
    while let Some(byte) = bytes.next() {
        let letter = match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                let value = char::from_u32(high * 16 + low)?;
                // What is still special once it is decoded stays as it was, or has no one meaning.
                match value {
                    '/' | '\\' | '%' | '\0'..=' ' | '\u{7f}' => return None,
                    'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '.' | '_' | '~' => value,
                    _ => {
                        normal.push_str(&format!("%{:02X}", high * 16 + low));
                        continue;
                    }
                }
            }
            b'\\' | 0..=b' ' | 0x7f.. => return None,
            plain => char::from(plain),
        };
        normal.push(letter);
    }
    let odd = |part: &str| {
        let name = part.split(';').next().unwrap_or(part);
        matches!(name, "." | "..")
    };
    let inner_empty = normal.contains("//");
    (normal.starts_with('/') && !inner_empty && !normal.split('/').any(odd)).then_some(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> EgressRule {
        EgressRule::named(text).unwrap().remove(0)
    }

    #[test]
    fn a_path_has_one_spelling_or_none() {
        for (given, normal) in [
            ("/", "/"),
            ("/v1/users", "/v1/users"),
            ("/%76%31/%7Ejo", "/v1/~jo"),
            ("/a%2cb", "/a%2Cb"),
            ("/a...b/..c", "/a...b/..c"),
        ] {
            assert_eq!(normal_path(given).as_deref(), Some(normal), "{given}");
        }
        for odd in [
            "",
            "v1",
            "/v1/../v2",
            "/v1/%2e%2e/v2",
            "/v1/.%2E/v2",
            "/v1%2fv2",
            "/v1%5cv2",
            "/v1\\v2",
            "/v1//v2",
            "/%252e",
            "/a%00",
            "/a%",
            "/a%4",
            "/a%zz",
            "/..;/x",
            "/./x",
            "/a b",
        ] {
            assert_eq!(normal_path(odd), None, "{odd}");
        }
    }

    #[test]
    fn requests_are_held_to_methods_and_paths() {
        let mut read = rule("a.example:80");
        read.methods = vec!["GET".to_owned()];
        read.paths = vec!["/v1".to_owned()];
        let allowed = Rules::new(vec![read]).decide("a.example".parse().unwrap(), 80);
        let allowed = allowed.unwrap();
        assert_eq!(allowed.speech(), Speech::Http);
        assert!(allowed.unseen().is_err());
        let ask = |method, path: &str| {
            let path = normal_path(path);
            allowed.request(false, method, path.as_deref()).is_ok()
        };
        assert!(ask("GET", "/v1") && ask("GET", "/v1/x"));
        assert!(!ask("POST", "/v1") && !ask("GET", "/v10") && !ask("GET", "/v1/../v2"));
        assert!(!ask("get", "/v1"));
    }

    #[test]
    fn what_must_be_spoken_follows_from_rules_and_ports() {
        let speech = |text: &str, scheme| {
            let mut rule = rule(text);
            rule.scheme = scheme;
            let port = rule.port;
            let rules = Rules::new(vec![rule]);
            rules.decide("a".parse().unwrap(), port).unwrap().speech()
        };
        assert_eq!(speech("a:443", None), Speech::Tls);
        assert_eq!(speech("a:80", None), Speech::Http);
        assert_eq!(speech("a:22", None), Speech::Any);
        assert_eq!(speech("a:22", Some(EgressScheme::Tls)), Speech::Tls);
        assert_eq!(speech("a:22", Some(EgressScheme::Http)), Speech::Http);
        assert_eq!(speech("a:443", Some(EgressScheme::Http)), Speech::Http);
        assert_eq!(speech("a:80", Some(EgressScheme::Tls)), Speech::Tls);
    }
}
