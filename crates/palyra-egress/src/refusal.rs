//! Why something was not done: a word that stays the same, and a sentence for who reads it.

use palyra_core::EgressEnd;

/// Why a connection, a request or a lookup was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EgressCode {
    /// No rule covers the host and port.
    HostNotAllowed,
    /// What was asked for is not the name of a host.
    NotAHost,
    /// The name lies inside, and its rule does not say that it may.
    InsideAddress,
    /// TLS has to be spoken here, and was not.
    NotTls,
    /// HTTP has to be spoken here, and was not.
    NotHttp,
    /// A TLS hello without the name of a host.
    SniMissing,
    /// A TLS hello for another host than was asked for.
    SniMismatch,
    /// A request for another host than was asked for.
    HostMismatch,
    /// The rules allow other methods or paths.
    RequestNotAllowed,
    /// The rules allow some methods or paths alone, and this cannot be read.
    RequestNotVisible,
    /// A request or a message that could be read in more than one way, or in none.
    Malformed,
    /// A head of a request that is too large.
    TooLarge,
    /// What was to come did not come in time.
    TooSlow,
    /// Something of the protocol that is not done here.
    NotSupported,
    /// Too many names below a wildcard.
    TooManyNames,
    /// No more connections, at once or in all.
    ConnectionsUsedUp,
    /// No more bytes.
    BytesUsedUp,
    /// The placeholder of a secret on its way to where the secret may not go.
    SecretMisdirected,
    /// A secret that cannot stand where it was to be put.
    SecretUnfit,
    /// Nobody takes the records.
    NotRecorded,
    /// The name has no address.
    NoAddress,
    /// The host could not be reached.
    Unreachable,
    /// The host is not who it says, or speaks no TLS.
    UntrustedHost,
    /// The host broke off, or its answer could not be read.
    HostBroke,
    /// The call ended.
    CallEnded,
}

impl EgressCode {
    /// The word in records and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HostNotAllowed => "host_not_allowed",
            Self::NotAHost => "not_a_host",
            Self::InsideAddress => "inside_address",
            Self::NotTls => "not_tls",
            Self::NotHttp => "not_http",
            Self::SniMissing => "sni_missing",
            Self::SniMismatch => "sni_mismatch",
            Self::HostMismatch => "host_mismatch",
            Self::RequestNotAllowed => "request_not_allowed",
            Self::RequestNotVisible => "request_not_visible",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::TooSlow => "too_slow",
            Self::NotSupported => "not_supported",
            Self::TooManyNames => "too_many_names",
            Self::ConnectionsUsedUp => "connections_used_up",
            Self::BytesUsedUp => "bytes_used_up",
            Self::SecretMisdirected => "secret_misdirected",
            Self::SecretUnfit => "secret_unfit",
            Self::NotRecorded => "not_recorded",
            Self::NoAddress => "no_address",
            Self::Unreachable => "unreachable",
            Self::UntrustedHost => "untrusted_host",
            Self::HostBroke => "host_broke",
            Self::CallEnded => "call_ended",
        }
    }

    /// Whether it was refused here, and did not break on the way.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        !matches!(
            self,
            Self::BytesUsedUp
                | Self::NoAddress
                | Self::Unreachable
                | Self::UntrustedHost
                | Self::HostBroke
                | Self::CallEnded
        )
    }

    /// The status of an HTTP answer that says so.
    pub(crate) const fn status(self) -> u16 {
        match self {
            Self::NotAHost | Self::Malformed | Self::NotHttp | Self::NotTls => 400,
            Self::HostNotAllowed
            | Self::InsideAddress
            | Self::SniMissing
            | Self::SniMismatch
            | Self::HostMismatch
            | Self::RequestNotAllowed
            | Self::RequestNotVisible
            | Self::TooManyNames
            | Self::SecretMisdirected
            | Self::SecretUnfit => 403,
            Self::TooLarge => 431,
            Self::TooSlow => 408,
            Self::NotSupported => 501,
            Self::ConnectionsUsedUp | Self::BytesUsedUp => 429,
            Self::NotRecorded | Self::CallEnded => 503,
            Self::NoAddress | Self::Unreachable | Self::UntrustedHost | Self::HostBroke => 502,
        }
    }

    /// The reply of SOCKS 5 that says so: 2 is "not allowed by the rules".
    pub(crate) const fn socks_reply(self) -> u8 {
        match self {
            Self::NoAddress => 4,
            Self::Unreachable | Self::HostBroke | Self::UntrustedHost => 5,
            Self::NotSupported => 7,
            Self::CallEnded | Self::NotRecorded | Self::Malformed | Self::TooSlow => 1,
            Self::HostNotAllowed
            | Self::NotAHost
            | Self::InsideAddress
            | Self::NotTls
            | Self::NotHttp
            | Self::SniMissing
            | Self::SniMismatch
            | Self::HostMismatch
            | Self::RequestNotAllowed
            | Self::RequestNotVisible
            | Self::TooLarge
            | Self::TooManyNames
            | Self::ConnectionsUsedUp
            | Self::BytesUsedUp
            | Self::SecretMisdirected
            | Self::SecretUnfit => 2,
        }
    }
}

impl std::fmt::Display for EgressCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A code and its sentence, which the client, the caller and the journal all get.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {why}")]
pub(crate) struct Refusal {
    pub(crate) code: EgressCode,
    pub(crate) why: String,
}

impl Refusal {
    pub(crate) fn new(code: EgressCode, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { code, why }
    }

    pub(crate) fn malformed(why: impl Into<String>) -> Self {
        Self::new(EgressCode::Malformed, why)
    }

    pub(crate) fn too_slow(what: &str) -> Self {
        let why = format!("{what} did not come within the time for it");
        Self::new(EgressCode::TooSlow, why)
    }

    pub(crate) fn used_up() -> Self {
        let why = "this call has moved all the bytes that its budget allows";
        Self::new(EgressCode::BytesUsedUp, why)
    }

    pub(crate) fn into_end(self) -> EgressEnd {
        let (code, why) = (self.code.as_str().to_owned(), self.why);
        match self.code.is_refusal() {
            true => EgressEnd::Refused { code, why },
            false => EgressEnd::Broken { code, why },
        }
    }
}

/// Text of a client's with nothing in it that cannot be shown, and not much of it.
pub(crate) fn shown(text: &str) -> String {
    let plain = |letter: char| match letter.is_ascii_graphic() {
        true => letter,
        false => '?',
    };
    text.chars().take(255).map(plain).collect()
}
