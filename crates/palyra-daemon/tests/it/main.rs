//! The daemon as its users meet it: real processes, the real command line, a throw-away home.

#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests start programs and tell what they saw; nothing of this ships"
)]

mod api;
mod approvals;
mod attacks;
mod bad_input;
mod connect;
mod crash;
mod doctor;
mod egress;
mod exec;
mod floods;
mod grants;
mod guarantees;
mod hook;
mod keeping;
mod keys;
mod lifecycle;
mod mcp;
mod notices;
mod past;
mod pinned;
mod policies;
mod presence;
mod proofs;
mod quarantine;
mod readme;
mod scripts;
mod streaming;
mod terminal;
mod tool_is_no_principal;
mod vault;
mod workspaces;
