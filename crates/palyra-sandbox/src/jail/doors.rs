//! Makes the doors of a call's network, and sees that there is no other way out of it.
//!
//! The target does it right after it made the network, while it still may listen at low ports and
//! before anything of the call runs. The sockets go to the daemon; none stays here.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};

use palyra_core::{Layer, RunErrorKind};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::self_test::{layer, missing};
use super::target::Refusal;
use crate::doors::{NAMES, PROXY, WAITING};
use crate::wire::{self, Report};

/// Addresses that are nobody's: whoever can send there can send anywhere.
const ELSEWHERE: [SocketAddr; 2] = [
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9),
    SocketAddr::new(
        std::net::IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        9,
    ),
];

/// Makes them and hands them over.
pub(super) fn hand_over(report: &OwnedFd, ports: &[u16]) -> Result<(), Refusal> {
    let degraded = |error: io::Error| Refusal::degraded("a door of the network", error);
    let doors = make(ports).map_err(degraded)?;
    let handles: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
    let ports = ports.to_vec();
    let packet = serde_json::to_vec(&Report::Doors { ports }).map_err(io::Error::from);
    let sent = packet.and_then(|bytes| wire::send(report, &bytes, &handles));
    sent.map_err(degraded)
}

fn make(ports: &[u16]) -> io::Result<Vec<OwnedFd>> {
    let datagrams = socket(AddressFamily::INET, SocketType::DGRAM)?;
    rustix::net::bind(&datagrams, &NAMES)?;
    let mut doors = vec![datagrams, listen(NAMES)?, listen(PROXY)?];
    for port in ports {
        doors.push(listen(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, *port))?);
    }
    Ok(doors)
}

fn socket(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(family, kind, flags, None)?)
}

fn listen(at: SocketAddrV4) -> io::Result<OwnedFd> {
    let door = socket(AddressFamily::INET, SocketType::STREAM)?;
    // Names and the proxy have ports that a host may have as well: the narrower door is taken.
    if at.port() == NAMES.port() || at.port() == PROXY.port() {
        sockopt::set_socket_reuseport(&door, true)?;
    }
    rustix::net::bind(&door, &at)?;
    rustix::net::listen(&door, WAITING)?;
    Ok(door)
}

/// Looks whether anything else leads out.
pub(super) fn observe(ports: &[u16]) -> Result<Layer, Refusal> {
    for address in ELSEWHERE {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let dialled = match socket(family, SocketType::DGRAM) {
            Ok(socket) => rustix::net::connect(&socket, &address),
            // A kernel without IPv6.
            Err(_) => continue,
        };
        if !matches!(
            dialled,
            Err(Errno::NETUNREACH | Errno::ADDRNOTAVAIL | Errno::HOSTUNREACH)
        ) {
            let seen = missing("strict egress", format!("{address}: {dialled:?}"));
            return Err(Refusal::new(RunErrorKind::SandboxDegraded, seen));
        }
    }
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    let observed = format!(
        "strict: names, a proxy and port {} lead to the daemon; no route leads elsewhere",
        ports.join(", ")
    );
    Ok(layer("egress", observed))
}
