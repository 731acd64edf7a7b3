//! What a call's network is made of: the sockets bound inside it, and the terms it has.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::Arc;

use palyra_core::{CallId, EgressBudget, EgressRule, InjectionTable};

use crate::authority::Authority;

/// Where the resolver and the proxy are, inside.
pub const DOOR_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 66, 0, 1);

/// The port of the proxy, inside.
pub const PROXY_PORT: u16 = 3128;

/// The sockets bound inside a call's own network namespace. A socket keeps its namespace, so
/// nothing outside of the call reaches them.
#[derive(Debug)]
pub struct Doors {
    /// The resolver: bound at [`DOOR_ADDRESS`], port 53.
    pub dns_udp: UdpSocket,
    /// The same, for long answers and stubborn clients.
    pub dns_tcp: TcpListener,
    /// The proxy: [`DOOR_ADDRESS`], [`PROXY_PORT`]. `CONNECT`, whole URLs and SOCKS 5, told apart
    /// by the first byte.
    pub proxy: TcpListener,
    /// Every port that a rule names, and its listener at `0.0.0.0`: the local address of an
    /// accepted socket says which name was dialled.
    pub forwards: Vec<(u16, TcpListener)>,
}

/// What one call may do with its network.
pub struct Terms {
    /// Whose network it is.
    pub call: CallId,
    /// The destinations. With none, everything is refused.
    pub rules: Vec<EgressRule>,
    /// The secrets that are put in on the way out.
    pub injections: Arc<InjectionTable>,
    /// Who signs for the hosts whose TLS is ended here: from
    /// [`Egress::authority`](crate::Egress::authority), needed when something is injected.
    pub authority: Option<Arc<Authority>>,
    /// How much.
    pub budget: EgressBudget,
}

impl Terms {
    /// Terms without secrets, and the usual budget.
    #[must_use]
    pub fn new(call: CallId, rules: Vec<EgressRule>) -> Self {
        Self {
            call,
            rules,
            injections: Arc::default(),
            authority: None,
            budget: EgressBudget::default(),
        }
    }
}
