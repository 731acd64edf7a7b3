//! `[notify]` of the configuration: who elsewhere is told that a person is asked.

use std::net::IpAddr;
use std::time::Duration;

use palyra_core::{SecretRef, Span};
use serde::Deserialize;
use url::{Host, Url};

/// Who is told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Notify {
    /// By HTTP.
    pub webhooks: Vec<Webhook>,
    /// By a program of the owner's.
    pub commands: Vec<Hook>,
}

impl Notify {
    /// Whether nobody is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.webhooks.is_empty() && self.commands.is_empty()
    }
}

/// A place that is told by HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// What the journal calls it: a URL may hold a secret.
    pub name: String,
    /// Where.
    pub url: Target,
    /// The secret of the vault that signs what is sent.
    pub secret: SecretRef,
    /// Whether `http://` to another machine is meant: then anybody on the way reads it.
    #[serde(default)]
    pub allow_plain_http: bool,
    /// How long one try may take.
    #[serde(default = "ten_seconds")]
    pub timeout: Span,
    /// How often it is tried.
    #[serde(default = "five")]
    pub attempts: u32,
    /// The pause after the first try; each one after it is four times as long.
    #[serde(default = "one_second")]
    pub backoff: Span,
}

/// A program that is told.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// What the journal calls it.
    pub name: String,
    /// The program, by its whole path, and its arguments.
    #[serde(deserialize_with = "whole_path")]
    pub argv: Vec<String>,
    /// How long it may run.
    #[serde(default = "ten_seconds")]
    pub timeout: Span,
}

const fn ten_seconds() -> Span {
    Span(Duration::from_secs(10))
}

const fn one_second() -> Span {
    Span(Duration::from_secs(1))
}

const fn five() -> u32 {
    5
}

fn whole_path<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let argv = Vec::<String>::deserialize(from)?;
    match argv.first().is_some_and(|program| program.starts_with('/')) {
        true => Ok(argv),
        false => Err(serde::de::Error::custom(
            "`argv` begins with the whole path of a program, such as \"/usr/bin/notify-send\"",
        )),
    }
}

/// An `http` or `https` address without a user in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target(Url);

impl Target {
    /// The address.
    #[must_use]
    pub const fn url(&self) -> &Url {
        &self.0
    }

    /// Whether it is read by nobody on the way.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Whether it is on this machine.
    #[must_use]
    pub fn is_here(&self) -> bool {
        match self.0.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
            Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
            None => false,
        }
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // Never quoted: it may hold a secret.
        let wrong = |why: &str| serde::de::Error::custom(format!("this `url` {why}"));
        let text = String::deserialize(from)?;
        let url = Url::parse(&text).map_err(|_| wrong("is no address"))?;
        if !["http", "https"].contains(&url.scheme()) || url.host().is_none() {
            return Err(wrong("is neither `https://` nor `http://`"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong(
                "holds a user or password; requests are signed instead",
            ));
        }
        Ok(Self(url))
    }
}
