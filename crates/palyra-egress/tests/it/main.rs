//! A call's network, with real sockets: every attack, and beside it what an honest client gets.

mod doors;
mod injecting;
mod limits;
mod lookups;
mod secure;
mod secure_host;
mod smuggling;
mod support;
