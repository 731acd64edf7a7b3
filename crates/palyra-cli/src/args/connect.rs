//! `palyra connect` as it is typed.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use palyra_core::AgentName;

/// `palyra connect`.
#[derive(Debug, Args)]
pub struct Connect {
    /// Which client; generic prints what any MCP client needs
    #[arg(value_enum)]
    pub client: ConnectArg,
    /// The agent to register for it [default: the client's name]
    #[arg(long, value_name = "NAME")]
    pub agent: Option<AgentName>,
    /// The folder it works on, where its configuration is [default: the current folder]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub workspace: Option<PathBuf>,
    /// Show what would be written, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Take it out of the client's configuration again; the agent stays registered
    #[arg(long)]
    pub undo: bool,
}

/// A client that can be connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(
    missing_docs,
    reason = "clap would print them, and stretch every help text"
)]
pub enum ConnectArg {
    ClaudeCode,
    Codex,
    Generic,
}
