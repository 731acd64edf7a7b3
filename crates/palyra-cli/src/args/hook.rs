//! `palyra hook` as it is typed, by a client's configuration.

use clap::{Args, ValueEnum};

use super::Whom;

/// `palyra hook`.
#[derive(Debug, Args)]
pub struct Hook {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// Whose hook it is: what it says on standard input, and what it understands
    #[arg(value_enum)]
    pub client: ClientArg,
}

/// A client that has hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(
    missing_docs,
    reason = "clap would print them, and stretch every help text"
)]
pub enum ClientArg {
    ClaudeCode,
    Codex,
}
