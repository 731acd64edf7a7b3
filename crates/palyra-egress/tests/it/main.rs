//! A call's network, with real sockets: every attack, and beside it what an honest client gets.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it should be"
)]

mod clients;
mod doors;
mod injecting;
mod limits;
mod lookups;
mod secure;
mod secure_host;
mod smuggling;
mod support;
