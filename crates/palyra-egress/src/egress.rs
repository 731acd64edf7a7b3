//! Serving a call's network from its doors, until the call is over.

use std::collections::BTreeSet;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};

use palyra_core::{Clock, ConnectionRecord, InjectionTable};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::authority::Authority;
use crate::call::Call;
use crate::doors::{Doors, Terms};
use crate::ledger::Ledger;
use crate::names::Names;
use crate::resolve::Resolve;
use crate::roots::Roots;
use crate::rules::Rules;
use crate::serve::{Door, accept, dns_over_udp};

/// Clients that wait at a door to be let in.
const WAITING: i32 = 1_024;

/// Serves the networks of calls. One for the whole daemon.
pub struct Egress {
    resolver: Arc<dyn Resolve>,
    clock: Arc<dyn Clock>,
    roots: Arc<Roots>,
}

impl Egress {
    /// With who knows addresses, and the time.
    #[must_use]
    pub fn new(resolver: Arc<dyn Resolve>, clock: Arc<dyn Clock>) -> Self {
        let roots = Arc::default();
        Self {
            resolver,
            clock,
            roots,
        }
    }

    /// Trusts hosts that the certificates of a PEM text vouch for, besides those that the machine's
    /// own roots do. For a company's authority.
    ///
    /// # Errors
    /// There is no certificate in the text.
    pub fn also_trusting(mut self, pem: &[u8]) -> io::Result<Self> {
        self.roots = Arc::new(Roots::with(pem)?);
        Ok(self)
    }

    /// Who signs for the hosts of a call whose TLS is ended here, made before the call starts so
    /// that its sandbox can be told to trust it. `None` when nothing is injected.
    ///
    /// # Errors
    /// No key could be made.
    pub fn authority(&self, table: &InjectionTable) -> io::Result<Option<Arc<Authority>>> {
        Ok(Authority::for_table(table, self.clock.now())?.map(Arc::new))
    }

    /// Serves until what it returns is finished or dropped. Each connection's record is sent when
    /// it ends, each refusal's at once. Needs a Tokio runtime around it.
    ///
    /// # Errors
    /// A socket cannot be served, or something is injected and nobody signs.
    pub fn serve(
        &self,
        terms: Terms,
        doors: Doors,
        records: mpsc::Sender<ConnectionRecord>,
    ) -> io::Result<Running> {
        if !terms.injections.is_empty() && terms.authority.is_none() {
            let why = "secrets are injected, and nobody signs for their hosts";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let clock = Arc::clone(&self.clock);
        let at_once = usize::try_from(terms.budget.at_once).unwrap_or(Semaphore::MAX_PERMITS);
        let call = Arc::new(Call {
            id: terms.call,
            names: Names::of(&terms.rules),
            rules: Rules::new(terms.rules),
            injections: terms.injections,
            authority: terms.authority,
            roots: Arc::clone(&self.roots),
            ledger: Arc::new(Ledger::new(clock, records, terms.budget)),
            at_once: Arc::new(Semaphore::new(at_once)),
            ended: CancellationToken::new(),
            tasks: TaskTracker::new(),
            resolver: Arc::clone(&self.resolver),
            found: Mutex::default(),
        });
        let udp = udp(doors.dns_udp)?;
        let listeners = [(doors.dns_tcp, Door::Dns), (doors.proxy, Door::Proxy)].into_iter();
        let forwards = doors.forwards.into_iter();
        let forwards = forwards.map(|(port, listener)| (listener, Door::Forward(port)));
        let listeners: io::Result<Vec<_>> = listeners
            .chain(forwards)
            .map(|(listener, door)| Ok((tcp(listener)?, door)))
            .collect();
        for (listener, door) in listeners? {
            call.tasks.spawn(accept(Arc::clone(&call), listener, door));
        }
        call.tasks.spawn(dns_over_udp(Arc::clone(&call), udp));
        let until = call.ended.clone().drop_guard();
        Ok(Running { call, until })
    }
}

fn tcp(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    // Whoever bound it may have left room for a few to wait: the rest would be dropped and come again
    // after a second.
    rustix::net::listen(&listener, WAITING)?;
    tokio::net::TcpListener::from_std(listener)
}

fn udp(socket: UdpSocket) -> io::Result<tokio::net::UdpSocket> {
    socket.set_nonblocking(true)?;
    tokio::net::UdpSocket::from_std(socket)
}

/// A call's network while it is served. Dropping it ends every connection.
pub struct Running {
    call: Arc<Call>,
    until: DropGuard,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Running");
        shown.field("call", &self.call.id).finish_non_exhaustive()
    }
}

/// What a call did with its network, in all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Connections that reached a host.
    pub connections: u64,
    /// What was refused: connections, requests, lookups.
    pub refused: u64,
    /// Bytes from the call to hosts.
    pub sent: u64,
    /// Bytes from hosts to the call.
    pub received: u64,
    /// The hosts that were reached, as `host:port`; the first thousand.
    pub names: BTreeSet<String>,
    /// Refusals without a record of their own, because there were many of their kind. They are
    /// counted above.
    pub unrecorded: u64,
}

impl Running {
    /// The certificate that the call's sandbox has to trust, when something is injected.
    #[must_use]
    pub fn authority_pem(&self) -> Option<&str> {
        self.call.authority.as_deref().map(Authority::pem)
    }

    /// Ends every connection, sends the records of all of them, and sums up. The records have to be
    /// taken meanwhile.
    pub async fn finish(self) -> Summary {
        let Self { call, until } = self;
        drop(until);
        call.tasks.close();
        call.tasks.wait().await;
        call.ledger.close().await
    }
}
