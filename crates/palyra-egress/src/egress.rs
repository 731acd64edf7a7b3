//! Serving a call's network from its doors, until the call is over.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use palyra_core::{Clock, ConnectionRecord, InjectionTable};
use tokio::sync::mpsc;

use crate::authority::Authority;
use crate::doors::{Doors, Terms};
use crate::resolve::Resolve;

/// Serves the networks of calls. One for the whole daemon.
pub struct Egress {
    #[expect(dead_code, reason = "served next")]
    resolver: Arc<dyn Resolve>,
    clock: Arc<dyn Clock>,
}

impl Egress {
    /// With who knows addresses, and the time.
    #[must_use]
    pub fn new(resolver: Arc<dyn Resolve>, clock: Arc<dyn Clock>) -> Self {
        Self { resolver, clock }
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
        drop((doors, records));
        Ok(Running {
            authority: terms.authority,
        })
    }
}

/// A call's network while it is served. Dropping it ends every connection.
#[derive(Debug)]
pub struct Running {
    authority: Option<Arc<Authority>>,
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
    /// The hosts that were reached, as `host:port`.
    pub names: BTreeSet<String>,
    /// Records that were not sent, because there were too many of their kind: they are counted above.
    pub unrecorded: u64,
}

impl Running {
    /// The certificate that the call's sandbox has to trust, when something is injected.
    #[must_use]
    pub fn authority_pem(&self) -> Option<&str> {
        self.authority.as_deref().map(Authority::pem)
    }

    /// Ends every connection, waits for the records of all of them, and sums up.
    pub async fn finish(self) -> Summary {
        Summary::default()
    }
}
