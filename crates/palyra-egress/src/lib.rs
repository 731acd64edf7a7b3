//! The network of one call.
//!
//! A call that may reach some hosts gets a network namespace with nothing in it but a loopback.
//! Sockets are bound inside it and handed to this room, which answers at them:
//!
//! - a resolver that knows the allowed names alone, each with a loopback address of its own;
//! - at those addresses, every port that a rule names, so that a client which knows of no proxy
//!   connects as it always does;
//! - a proxy for those that do: `CONNECT`, whole URLs and SOCKS 5.
//!
//! Whichever way a connection comes, it is decided by its name before anything is looked up, the
//! name is resolved once and outside, every address is judged, and that very address is dialled. What
//! is spoken has to be for that name too: the name in a TLS hello, the `Host` of a request.
//!
//! Secrets are put in on the way out from an [`InjectionTable`](palyra_core::InjectionTable), for
//! hosts of their audience alone.
//!
//! This room does not decide who may call, and does not know the vault.

#![forbid(unsafe_code)]

mod address;
mod answer;
mod authority;
mod call;
mod converse;
mod dns;
mod doors;
mod egress;
mod farewell;
#[cfg(test)]
mod fuzzing;
mod head;
mod hello;
mod http;
mod ledger;
mod metered;
mod names;
mod neighbours;
mod proxy;
mod refusal;
mod relay;
mod resolve;
mod rewound;
mod roots;
mod rules;
mod serve;
mod socks;
mod swap;
mod terminate;
mod upgrade;
mod watch;
mod watched;

pub use address::lies_inside;
pub use authority::Authority;
pub use doors::{DOOR_ADDRESS, Doors, PROXY_PORT, Terms};
pub use egress::{Egress, Running, Summary};
pub use names::synthetic_addresses;
pub use refusal::EgressCode;
pub use resolve::{HostResolver, Resolve};
