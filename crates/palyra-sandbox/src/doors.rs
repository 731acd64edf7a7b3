//! The doors of a call's own network: sockets that were made inside it and that the daemon holds.
//!
//! A socket stays in the network it was made in, whoever holds it. So the daemon takes connections
//! and questions from inside a call without being there, and nothing else leads out. The doors of a
//! call are in no other call's network: no tool can come in by another's.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use palyra_core::ProcessPlan;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// Where a call finds what serves it: on its own loopback, and not where a program that starts a
/// server of its own looks first.
pub const OWN_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 66, 0, 1);

/// Where names are asked for.
pub(crate) const NAMES: SocketAddrV4 = SocketAddrV4::new(OWN_ADDRESS, 53);

/// Where the proxy is.
pub const PROXY: SocketAddrV4 = SocketAddrV4::new(OWN_ADDRESS, 3128);

/// How many ports can be forwarded: what fits into one packet of descriptors.
pub const MOST_PORTS: usize = 48;

/// What the kernel lets wait at a door.
pub(crate) const WAITING: i32 = 1_024;

/// The doors of one call, each listening and set not to block.
#[derive(Debug)]
pub struct Doors {
    /// Questions for names, by datagrams.
    pub dns_udp: OwnedFd,
    /// The same, by connections.
    pub dns_tcp: OwnedFd,
    /// The proxy.
    pub proxy: OwnedFd,
    /// For each port that a rule names, what is dialled there at any address of the call's own.
    pub forwards: Vec<(u16, OwnedFd)>,
}

impl Doors {
    /// From the descriptors as they travel.
    pub(crate) fn from_list(ports: &[u16], list: Vec<OwnedFd>) -> Option<Self> {
        let mut all = list.into_iter();
        let (dns_udp, dns_tcp, proxy) = (all.next()?, all.next()?, all.next()?);
        let forwards: Vec<(u16, OwnedFd)> = ports.iter().copied().zip(all.by_ref()).collect();
        let complete = forwards.len() == ports.len() && all.next().is_none();
        complete.then_some(Self {
            dns_udp,
            dns_tcp,
            proxy,
            forwards,
        })
    }
}

/// The ports of the hosts that a call is held to, each once.
pub(crate) fn ports_of(plan: &ProcessPlan) -> Vec<u16> {
    if !plan.egress.is_enforced() {
        return Vec::new();
    }
    let ports = plan.allowed_egress_hosts.iter().map(|rule| rule.port);
    ports.collect::<BTreeSet<_>>().into_iter().collect()
}

/// A file of ours that a call finds, wherever it lies: what clients are to trust, for example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaidFile {
    /// Where.
    pub at: PathBuf,
    /// What is in it.
    pub text: String,
}

/// Who takes the doors of a call, and what is laid into its cage for those who go through them.
#[derive(Debug)]
pub struct Outlet {
    /// Whoever serves them. They come once, when every wall stands, before the program begins. What
    /// nobody takes is closed.
    pub doors: mpsc::Sender<Doors>,
    /// What is laid into the cage besides.
    pub files: Vec<LaidFile>,
    /// Variables that are made when the call starts, and count before those of its plan.
    pub env: Vec<(String, String)>,
}
