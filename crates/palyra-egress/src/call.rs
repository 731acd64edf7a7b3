//! What the doors of one call share: its rules, names, secrets and records, and the only way out.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palyra_core::{CallId, EgressHost, InjectionTable};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::address::{inside, never_by_name};
use crate::authority::Authority;
use crate::ledger::{Ledger, Open};
use crate::names::Names;
use crate::refusal::{EgressCode, Refusal};
use crate::relay::unreachable;
use crate::resolve::Resolve;
use crate::roots::Roots;
use crate::rules::{Allowed, Rules, Speech};

/// How long a client has for its hello, its head or its greeting.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(15);
const LOOKUP_TIME: Duration = Duration::from_secs(10);
const DIAL_TIME: Duration = Duration::from_secs(10);
/// What was looked up is used this long, so that many connections are one lookup.
const KEPT: Duration = Duration::from_secs(30);
const MOST_ADDRESSES: usize = 8;

/// One call's network.
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) rules: Rules,
    pub(crate) names: Names,
    pub(crate) injections: Arc<InjectionTable>,
    pub(crate) authority: Option<Arc<Authority>>,
    pub(crate) roots: Arc<Roots>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) at_once: Arc<Semaphore>,
    pub(crate) ended: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) found: Mutex<HashMap<EgressHost, (Instant, Vec<IpAddr>)>>,
}

impl Call {
    /// Connects to what was allowed: looks it up once, judges every address, dials those very
    /// addresses. There is no other way out.
    pub(crate) async fn dial(&self, to: &Allowed, open: &mut Open) -> Result<TcpStream, Refusal> {
        let addresses = self.judged(to).await?;
        let mut last = None;
        for address in addresses.into_iter().take(MOST_ADDRESSES) {
            let address = SocketAddr::new(address, to.port());
            let error = match timeout(DIAL_TIME, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    open.reached(address);
                    return Ok(stream);
                }
                Ok(Err(error)) => error,
                Err(_) => io::Error::from(io::ErrorKind::TimedOut),
            };
            last = Some(error);
        }
        let error = last.unwrap_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable));
        Err(unreachable(&to.at(), &error))
    }

    async fn judged(&self, to: &Allowed) -> Result<Vec<IpAddr>, Refusal> {
        let literal: Option<IpAddr> = to.host().as_str().parse().ok();
        let (found, by_name) = match literal {
            Some(address) => (vec![address], false),
            None => (self.looked_up(to.host()).await?, true),
        };
        let mut why = None;
        let mut fits = |address: &IpAddr| {
            let matter = match to.inward() {
                false => inside(*address),
                true if by_name => never_by_name(*address),
                true => None,
            };
            why = why.or(matter);
            matter.is_none()
        };
        let fitting: Vec<IpAddr> = found.into_iter().filter(&mut fits).collect();
        match (fitting.is_empty(), why) {
            (false, _) => Ok(fitting),
            (true, None) => {
                let why = format!("`{}` has no address", to.host());
                Err(Refusal::new(EgressCode::NoAddress, why))
            }
            (true, Some(matter)) => {
                let why = format!(
                    "`{}` lies at an address that is {matter}, and it was not named as one inside; a host inside is named with its port, as in --allow-host {}",
                    to.host(),
                    to.at()
                );
                Err(Refusal::new(EgressCode::InsideAddress, why))
            }
        }
    }

    async fn looked_up(&self, name: &EgressHost) -> Result<Vec<IpAddr>, Refusal> {
        let lock = || self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |(at, _): &&(Instant, Vec<IpAddr>)| at.elapsed() < KEPT;
        if let Some((_, known)) = lock().get(name).filter(fresh) {
            return Ok(known.clone());
        }
        let no_address = |why: String| {
            let why = format!("`{name}` could not be looked up: {why}");
            Refusal::new(EgressCode::NoAddress, why)
        };
        let found = match timeout(LOOKUP_TIME, self.resolver.lookup(name)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return Err(no_address(error.to_string())),
            Err(_) => return Err(no_address("nobody answered in time".to_owned())),
        };
        let mut known = lock();
        known.retain(|_, (at, _)| at.elapsed() < KEPT);
        known.insert(name.clone(), (Instant::now(), found.clone()));
        Ok(found)
    }

    /// Whether TLS to this host and port is ended here: secrets may be put in there.
    pub(crate) fn terminates(&self, to: &Allowed) -> bool {
        let audiences = self.injections.all().iter().flat_map(|one| &one.audience);
        let mut audiences = audiences.map(|audience| (&audience.host, audience.port));
        self.authority.is_some() && audiences.any(|at| at == (to.host(), to.port()))
    }

    /// What has to be spoken on a connection. Where TLS is ended here, requests are seen in both.
    pub(crate) fn speech(&self, to: &Allowed) -> Speech {
        match to.speech() {
            Speech::Http if to.port() != 80 && self.terminates(to) => Speech::Any,
            speech @ (Speech::Tls | Speech::Http | Speech::Any) => speech,
        }
    }
}
