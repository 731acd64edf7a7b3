//! The daemon's few arguments.

use clap::{Parser, Subcommand};
use palyra_core::Span;

/// How `palyrad` is started.
#[derive(Debug, Parser)]
#[command(
    name = "palyrad",
    version,
    about = "The Palyra daemon: every tool call is decided, approved, executed and attested here",
    before_help = "Examples:\n  palyrad                     in the foreground, logs on stderr\n  \
                   PALYRA_HOME=/srv/p palyrad  everything under one folder\n  \
                   palyrad --log-format json   logs for a machine to read\n  \
                   palyrad doctor              what this machine gives to the sandbox",
    args_conflicts_with_subcommands = true
)]
pub struct Args {
    /// Something else than being a daemon.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Leave the terminal, write the log to a file, and end when idle.
    #[arg(long)]
    pub detached: bool,

    /// End after this long with nothing running, waiting or connected (30m when detached).
    #[arg(long, value_name = "SPAN")]
    pub idle_exit: Option<Span>,

    /// Sign the journal with a new key from now on; the old one vouches for it and is forgotten.
    #[arg(long)]
    pub rotate_journal_key: bool,

    /// Go on without the passphrase of persons that was set, because it is lost; the journal keeps
    /// that for good.
    #[arg(long)]
    pub give_up_presence: bool,

    /// `text` or `json`; overrides `[log] format`.
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<crate::config::LogFormat>,
}

/// What `palyrad` does instead of being a daemon.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Try what this machine gives to the sandbox, without a daemon; 6 when Tier-C cannot run
    Doctor {
        /// Print one JSON document instead of text
        #[arg(long)]
        json: bool,
    },
}
