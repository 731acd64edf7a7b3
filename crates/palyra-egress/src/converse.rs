//! A connection that was allowed: what is spoken on it has to be for the name that was allowed.

use std::sync::Arc;
use std::time::Duration;

use palyra_core::EgressVia;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::call::{Call, HEAD_TIME};
use crate::head::{Looks, looks};
use crate::hello::{Hello, alert};
use crate::http::{self, Leg};
use crate::ledger::Open;
use crate::refusal::{EgressCode, Refusal};
use crate::relay::{Ended, relay, reset};
use crate::rewound::Rewound;
use crate::rules::{Allowed, Speech};
use crate::terminate;
use crate::watch::Watch;

/// How long a client that may be about to say anything is waited for.
const UNCLEAR_TIME: Duration = Duration::from_millis(250);

/// A client's connection to a host that a rule covers.
pub(crate) struct Conversation {
    pub(crate) call: Arc<Call>,
    pub(crate) via: EgressVia,
    pub(crate) to: Allowed,
    pub(crate) client: TcpStream,
    /// What the client sent already.
    pub(crate) first: Vec<u8>,
    /// The host, when it was dialled already.
    pub(crate) upstream: Option<TcpStream>,
    pub(crate) open: Open,
}

impl Conversation {
    /// Until it ends.
    pub(crate) async fn hold(mut self) {
        let spoken = match self.call.speech(&self.to) {
            Speech::Tls => self.sniff().await.and_then(|looked| match looked {
                Looks::Tls => Ok(looked),
                Looks::Http | Looks::Other | Looks::Unclear => {
                    let why = format!("only TLS is spoken with `{}`", self.to.at());
                    Err(Refusal::new(EgressCode::NotTls, why))
                }
            }),
            Speech::Http => self.sniff().await.and_then(|looked| match looked {
                Looks::Http => Ok(looked),
                Looks::Tls | Looks::Other | Looks::Unclear => {
                    let why = format!("only HTTP is spoken with `{}`", self.to.at());
                    Err(Refusal::new(EgressCode::NotHttp, why))
                }
            }),
            Speech::Any => self.first_word().await,
        };
        match spoken {
            Ok(Looks::Tls) => self.tls().await,
            Ok(Looks::Http) => Box::pin(self.http()).await,
            Ok(Looks::Other) => {
                let watch = Watch::over(&self.call.injections);
                self.pass(watch).await;
            }
            Ok(Looks::Unclear) => {
                let watch = Watch::from_the_beginning(&self.call.injections);
                self.pass(Some(watch)).await;
            }
            Err(refusal) => self.refuse(refusal).await,
        }
    }

    /// Reads until it can be told what the client speaks.
    async fn sniff(&mut self) -> Result<Looks, Refusal> {
        let reading = async {
            loop {
                let looked = looks(&self.first);
                if looked != Looks::Unclear {
                    return Ok(looked);
                }
                if self.read_more().await? == 0 {
                    return Ok(Looks::Other);
                }
            }
        };
        match timeout(HEAD_TIME, reading).await {
            Ok(looked) => looked,
            Err(_) => Err(Refusal::too_slow("the client's first word")),
        }
    }

    async fn read_more(&mut self) -> Result<usize, Refusal> {
        let gone = |_| Refusal::malformed("the client went away before it said anything");
        self.first.reserve(4 * 1024);
        self.client.read_buf(&mut self.first).await.map_err(gone)
    }

    /// On a port where anything may be spoken, the host may be the one who begins.
    async fn first_word(&mut self) -> Result<Looks, Refusal> {
        if self.first.is_empty() {
            let upstream = match self.upstream.take() {
                Some(upstream) => upstream,
                None => self.call.dial(&self.to, &mut self.open).await?,
            };
            // Peeked at, for a socket that is said to be readable need not be.
            let (mut word, mut other) = ([0], [0]);
            let host_began = tokio::select! {
                biased;
                _ = self.client.peek(&mut word) => false,
                _ = upstream.peek(&mut other) => true,
            };
            self.upstream = Some(upstream);
            if host_began {
                return Ok(Looks::Other);
            }
        }
        // A few letters may be all that a client says for now, and the host waits for them.
        match timeout(UNCLEAR_TIME, self.sniff()).await {
            Ok(looked) => looked,
            Err(_) => Ok(looks(&self.first)),
        }
    }

    /// TLS: the name in its hello has to be the name that was allowed.
    async fn tls(mut self) {
        if let Err(refusal) = self.hello().await {
            return self.refuse(refusal).await;
        }
        if self.call.terminates(&self.to) {
            return Box::pin(terminate::serve(self)).await;
        }
        match self.to.unseen() {
            Ok(()) => self.pass(None).await,
            Err(refusal) => self.refuse(refusal).await,
        }
    }

    async fn hello(&mut self) -> Result<(), Refusal> {
        let reading = async {
            let mut hello = Hello::default();
            let mut name = hello.take(&self.first)?;
            while name.is_none() {
                let before = self.first.len();
                if self.read_more().await? == 0 {
                    let why = "the client went away in the middle of its TLS hello";
                    return Err(Refusal::malformed(why));
                }
                name = hello.take(self.first.get(before..).unwrap_or_default())?;
            }
            Ok(name.flatten())
        };
        let name = match timeout(HEAD_TIME, reading).await {
            Ok(name) => name?,
            Err(_) => return Err(Refusal::too_slow("the TLS hello")),
        };
        let host = self.to.host();
        match name {
            Some(name) if name.parse().is_ok_and(|name| *host == name) => Ok(()),
            // An address has no name to send.
            None if host.is_address() => Ok(()),
            Some(name) => {
                let why = format!(
                    "a TLS hello for `{}` on a connection to `{}`",
                    crate::refusal::shown(&name),
                    self.to.at()
                );
                Err(Refusal::new(EgressCode::SniMismatch, why))
            }
            None => {
                let why = format!(
                    "a TLS hello without a server name on a connection to `{}`: nobody could tell whom it is for",
                    self.to.at()
                );
                Err(Refusal::new(EgressCode::SniMissing, why))
            }
        }
    }

    async fn http(self) {
        let io = Rewound::new(self.first, self.client);
        let leg = Leg::fixed(
            self.call,
            self.via,
            self.to,
            false,
            self.upstream,
            self.open,
        );
        http::serve(io, leg).await;
    }

    /// Bytes as they are.
    async fn pass(mut self, watch: Option<Watch>) {
        let upstream = match self.upstream.take() {
            Some(upstream) => upstream,
            None => match self.call.dial(&self.to, &mut self.open).await {
                Ok(upstream) => upstream,
                Err(refusal) => return self.refuse(refusal).await,
            },
        };
        let meter = self.open.meter();
        let first = std::mem::take(&mut self.first);
        let ended = relay(&self.client, first, &upstream, &meter, watch).await;
        match &ended {
            Ok(Ended::Done) => {}
            Ok(Ended::Gone) | Err(_) => {
                reset(self.client);
                reset(upstream);
            }
        }
        self.open.end(ended.map(|_| ())).await;
    }

    /// Says no in the language that the client speaks, as far as it said anything.
    async fn refuse(self, refusal: Refusal) {
        let answer = match looks(&self.first) {
            Looks::Tls => alert(refusal.code).to_vec(),
            Looks::Http => crate::answer::answer(&refusal),
            Looks::Other | Looks::Unclear => Vec::new(),
        };
        // Recorded before it is told: a client that is told may be the last of its call.
        self.open.end(Err(refusal)).await;
        crate::farewell::say(self.client, &answer).await;
    }
}
