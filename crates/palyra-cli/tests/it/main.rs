//! The binary as its users meet it. What needs a real daemon is tested with the daemon, but for the
//! screen of `palyra tui`; here a fake one says its lines.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails where it stands; clippy knows `#[test]` functions, not their helpers"
)]

mod calls;
mod fake;
mod palyra;
mod policy;
mod setup;
mod starting;
mod tmux;
mod tui;
mod words;
