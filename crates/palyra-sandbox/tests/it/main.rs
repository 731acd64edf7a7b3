//! The sandbox against attackers and ordinary programs, with the real helper.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod behaviour;
mod bubblewrap;
mod caged;
mod clients;
mod death;
mod doors;
mod endurance;
mod files;
mod fixture;
mod guards;
mod inside;
mod masked;
mod ordinary;
mod pinned;
mod processes;
mod sockets;
mod survivors;
mod temporary;
