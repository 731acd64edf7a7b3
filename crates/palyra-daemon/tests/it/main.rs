//! The daemon as its users meet it: real processes, the real command line, a throw-away home.

#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests start programs; nothing of this ships"
)]

mod api;
mod approvals;
mod bad_input;
mod crash;
mod exec;
mod floods;
mod guarantees;
mod keeping;
mod lifecycle;
mod past;
mod policies;
mod proofs;
mod readme;
mod scripts;
mod tool_is_no_principal;
