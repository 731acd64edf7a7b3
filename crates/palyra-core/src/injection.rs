//! Where a secret may go: the requests that may carry it, and the table that an executor is handed
//! instead of the vault.

use crate::host::EgressHost;
use crate::secret::{SecretRef, SecretValue, shown};

/// Where in a request a secret is put.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "in", rename_all = "snake_case", deny_unknown_fields)]
pub enum InjectionPlace {
    /// `Authorization: Bearer VALUE`.
    Bearer,
    /// `Authorization: Basic`, with this user name.
    Basic {
        /// Who.
        user: String,
    },
    /// A header of this name.
    Header {
        /// Which.
        name: String,
    },
    /// A parameter of the query.
    Query {
        /// Which.
        name: String,
    },
}

/// One kind of request that a secret may be sent with.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audience {
    /// The host, exactly.
    pub host: EgressHost,
    /// The port; 443 when it is not said.
    #[serde(default = "https")]
    pub port: u16,
    /// The methods, in capitals; empty means every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// What the path begins with, by whole segments; absent means every path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Where it is put.
    pub place: InjectionPlace,
}

const fn https() -> u16 {
    443
}

/// Why an audience is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAudience {
    /// No host.
    #[error(transparent)]
    Host(#[from] crate::host::NotAHost),
    /// No port.
    #[error("`{0}` is not a port: use 1 to 65535")]
    Port(String),
    /// No path.
    #[error(
        "`{0}` is not a path prefix: it starts with `/`, is plain ASCII and has no `..`, `?`, `#` or `%`"
    )]
    Path(String),
    /// No method.
    #[error("`{0}` is not a method such as GET")]
    Method(String),
    /// No header, user or parameter.
    #[error("`{0}` is not a header, user or parameter name: use letters, digits, `-`, `_` and `.`")]
    Place(String),
}

impl Audience {
    /// An audience as written, `HOST[:PORT][/PATH]`, every method, as a bearer token.
    ///
    /// # Errors
    /// It is something else.
    pub fn at(text: &str) -> Result<Self, NotAnAudience> {
        let (authority, path) = match text.find('/') {
            Some(place) => text.split_at(place),
            None => (text, ""),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
            Some(_) | None => (authority, None),
        };
        let port = match port {
            None => https(),
            Some(text) => text
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| NotAnAudience::Port(shown(text)))?,
        };
        let audience = Self {
            host: host.parse()?,
            port,
            methods: Vec::new(),
            path: (!path.is_empty() && path != "/").then(|| path.to_owned()),
            place: InjectionPlace::Bearer,
        };
        audience.checked()
    }

    /// The same, when every part of it can be what it says.
    ///
    /// # Errors
    /// A part cannot.
    pub fn checked(self) -> Result<Self, NotAnAudience> {
        if self.port == 0 {
            return Err(NotAnAudience::Port("0".to_owned()));
        }
        if let Some(path) = &self.path
            && !is_prefix(path)
        {
            return Err(NotAnAudience::Path(shown(path)));
        }
        let method = |text: &&String| {
            !(1..=16).contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_uppercase())
        };
        if let Some(wrong) = self.methods.iter().find(method) {
            return Err(NotAnAudience::Method(shown(wrong)));
        }
        match &self.place {
            InjectionPlace::Bearer => Ok(self),
            InjectionPlace::Basic { user: name }
            | InjectionPlace::Header { name }
            | InjectionPlace::Query { name } => match is_token(name) {
                true => Ok(self),
                false => Err(NotAnAudience::Place(shown(name))),
            },
        }
    }

    /// Whether a request may carry the secret. The path is one that was normalised.
    #[must_use]
    pub fn covers(&self, host: &EgressHost, port: u16, method: &str, path: &str) -> bool {
        let below = |prefix: &String| {
            let prefix = prefix.trim_end_matches('/');
            path.strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        *host == self.host
            && port == self.port
            && (self.methods.is_empty() || self.methods.iter().any(|known| known == method))
            && self.path.as_ref().is_none_or(below)
    }
}

/// Without anything that servers read in more than one way.
fn is_prefix(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'%' | b'\\');
    path.starts_with('/')
        && path.len() <= 1_024
        && path.bytes().all(plain)
        && path.split('/').all(|part| part != ".." && part != ".")
}

fn is_token(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=128).contains(&name.len()) && name.bytes().all(legal)
}

/// One secret of an [`InjectionTable`]: its value, and every request that may carry it.
pub struct Injection {
    /// Which, for the record.
    pub secret: SecretRef,
    /// Which version of it.
    pub version: u64,
    /// What it may be sent with.
    pub audience: Vec<Audience>,
    placeholder: Placeholder,
    value: SecretValue,
}

impl Injection {
    /// A secret that a call may have sent for it. Its placeholder is a new one.
    #[must_use]
    pub fn new(
        secret: SecretRef,
        version: u64,
        audience: Vec<Audience>,
        value: SecretValue,
    ) -> Self {
        Self {
            secret,
            version,
            audience,
            placeholder: Placeholder::mint(),
            value,
        }
    }

    /// What the call has in the secret's stead.
    #[must_use]
    pub const fn placeholder(&self) -> &Placeholder {
        &self.placeholder
    }

    /// The places for it in this request, none when its audience does not cover the request. The
    /// path is one that was normalised.
    pub fn for_request<'a>(
        &'a self,
        host: &'a EgressHost,
        port: u16,
        method: &'a str,
        path: &'a str,
    ) -> impl Iterator<Item = (&'a InjectionPlace, &'a SecretValue)> {
        let covering = move |audience: &&Audience| audience.covers(host, port, method, path);
        let covering = self.audience.iter().filter(covering);
        covering.map(|audience| (&audience.place, &self.value))
    }
}

/// What a call has in a secret's stead: a text that is worth nothing, made for this one call, which
/// is swapped for the secret on the way out. Letters, digits and `_`, so that no client writes it in
/// another way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Placeholder(String);

impl Placeholder {
    /// A new one. Nobody can guess it, so a text that has it got it from this call.
    #[must_use]
    pub fn mint() -> Self {
        Self(format!("palyra_secret_{}", crate::id::random_text()))
    }

    /// As the call sees it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What one call may have put into its requests on the way out. An executor is handed this and
/// never the vault. The value comes out only for a request that its audience covers.
#[derive(Default)]
pub struct InjectionTable(Vec<Injection>);

impl InjectionTable {
    /// These secrets and no others.
    #[must_use]
    pub const fn new(secrets: Vec<Injection>) -> Self {
        Self(secrets)
    }

    /// Which secrets, never their values.
    pub fn secrets(&self) -> impl Iterator<Item = (&SecretRef, u64)> {
        self.0.iter().map(|one| (&one.secret, one.version))
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Injection] {
        &self.0
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The secret for this request and where it goes; `None` when it is not in the table or its
    /// audience does not cover the request.
    #[must_use]
    pub fn for_request(
        &self,
        secret: &SecretRef,
        host: &EgressHost,
        port: u16,
        method: &str,
        path: &str,
    ) -> Option<(&InjectionPlace, &SecretValue)> {
        let found = self.0.iter().find(|one| one.secret == *secret)?;
        let covering = |audience: &&Audience| audience.covers(host, port, method, path);
        let covering = found.audience.iter().find(covering)?;
        Some((&covering.place, &found.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audience_covers_what_it_says_and_nothing_near_it() {
        let mut audience = Audience::at("api.example.com/v1").unwrap();
        audience.methods = vec!["GET".to_owned()];
        let covers = |host: &str, port, method, path| {
            audience.covers(&host.parse().unwrap(), port, method, path)
        };
        assert!(covers("API.example.com.", 443, "GET", "/v1/users"));
        assert!(covers("api.example.com", 443, "GET", "/v1"));
        assert!(!covers("api.example.com", 443, "GET", "/v10"));
        assert!(!covers("api.example.com", 443, "POST", "/v1"));
        assert!(!covers("api.example.com", 8443, "GET", "/v1"));
        assert!(!covers("x.api.example.com", 443, "GET", "/v1"));
        assert!(!covers("example.com", 443, "GET", "/v1"));
        assert_eq!(Audience::at("[::1]:8080/x").unwrap().port, 8080);
        for wrong in ["", "a:0", "a:x", "a/..", "a/%2e", "a b", "a/x?y"] {
            assert!(Audience::at(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_placeholder_is_new_for_each_call_and_plain() {
        let (one, other) = (Placeholder::mint(), Placeholder::mint());
        assert_ne!(one, other);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        assert!(one.as_str().bytes().all(plain) && one.as_str().len() == 40);
    }

    #[test]
    fn a_table_gives_a_value_only_where_it_may_go() {
        let secret: SecretRef = "token".parse().unwrap();
        let audience = vec![Audience::at("api.example.com").unwrap()];
        let value = SecretValue::new(b"s3cret".to_vec());
        let table = InjectionTable::new(vec![Injection::new(secret.clone(), 1, audience, value)]);
        let ask = |secret: &SecretRef, host: &str| {
            let host = host.parse().unwrap();
            table
                .for_request(secret, &host, 443, "GET", "/")
                .map(|(_, value)| value.expose().to_vec())
        };
        assert_eq!(ask(&secret, "api.example.com").unwrap(), b"s3cret");
        assert!(ask(&secret, "evil.example.com").is_none());
        assert!(ask(&"other".parse().unwrap(), "api.example.com").is_none());
    }
}
