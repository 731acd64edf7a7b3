//! The room where plans are carried out: Tier-B processes and file tools.
//!
//! It knows how to build the walls around a call and how to observe that they stand; it decides
//! nothing and stores no secrets. A plan arrives through the corridor ([`ProcessRunner`],
//! [`FileRunner`]), is handed to `palyra-jail`, and comes back as a report of what was seen.
//!
//! ```text
//! daemon ── control socket ──▶ palyra-jail (spawn server, one thread)
//!    ▲                              └─ fork ─▶ supervisor (subreaper, one per call)
//!    └──── report socket ◀──────────────────────┴─ fork ─▶ target: layers, self-test, exec
//! ```
//!
//! The daemon never forks: it has threads and may be large. The helper is started once, is small
//! and has a single thread, so forking it is cheap and what happens between fork and exec may
//! allocate.

#![deny(unsafe_code)]

mod output;
mod process;
mod program;
mod sandbox;

pub use output::{OutputChunk, OutputSink, OutputStream};
pub use process::{FileRunner, ProcessRunner, run_constrained_process};
pub use program::{ProgramProblem, resolve_program, run_as};
pub use sandbox::{CannotTell, Sandbox, SandboxSettings, SandboxStatus, SandboxUnavailable};
