//! `palyra journal` and `palyra attest`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use palyra_core::{AgentName, CallId, ToolName};

use super::{StateArg, Whom};
use crate::values::WhenArg;

/// `palyra journal`.
#[derive(Debug, Args)]
pub struct Journal {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// What.
    #[command(subcommand)]
    pub action: JournalAction,
}

/// What to do with the journal.
#[derive(Debug, Subcommand)]
pub enum JournalAction {
    /// Print the newest entries, the latest of them last
    Tail {
        /// How many at most
        #[arg(short = 'n', long, value_name = "N", default_value_t = 10,
              value_parser = clap::value_parser!(u32).range(0..=100_000))]
        lines: u32,
        /// Go on printing entries as they are written
        #[arg(long, short)]
        follow: bool,
        /// Which of them.
        #[command(flatten)]
        filter: TailFilter,
    },
    /// Check a journal or an export, without a daemon: edited, cut, or signed by whom
    Verify(Verify),
    /// Print the signed head of the journal, to be kept elsewhere
    Checkpoint,
    /// Erase what a call was given or gave back; its record and proofs stay
    Erase(Erase),
    /// Make every projection anew from all entries, and mend what differs
    Rebuild,
    /// Copy the journal while the daemon runs, without its keys
    Backup {
        /// A new file, or a folder to make one in
        #[arg(value_name = "FILE|DIR", value_hint = clap::ValueHint::AnyPath)]
        out: PathBuf,
    },
    /// Verify a backup and put it in place, while no daemon runs
    Restore(Restore),
    /// Write the journal as JSON lines that anybody can verify; arguments stay here
    Export {
        /// Write to this new file instead of standard output
        #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        out: Option<PathBuf>,
        /// Only what follows this entry
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: u64,
    },
}

/// Which entries of the journal.
#[derive(Debug, Clone, Default, Args)]
pub struct TailFilter {
    /// Only what was recorded since then (`2h` ago, or `2026-11-15T09:00:00Z`)
    #[arg(long, value_name = "WHEN")]
    pub since: Option<WhenArg>,
    /// Only what was recorded until then
    #[arg(long, value_name = "WHEN")]
    pub until: Option<WhenArg>,
    /// Only entries about calls of this agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<AgentName>,
    /// Only entries about calls of this tool
    #[arg(long, value_name = "TOOL")]
    pub tool: Option<ToolName>,
    /// Only entries about calls that came out like this, as they stand now
    #[arg(long, value_enum)]
    pub outcome: Option<StateArg>,
}

/// `palyra journal restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// The backup
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// Also if the journal in place has more, is another history, or cannot be read: it is lost then
    #[arg(long)]
    pub accept_older: bool,
    /// A checkpoint that was kept elsewhere: nothing up to it may be missing
    #[arg(long, value_name = "CHECKPOINT", value_hint = clap::ValueHint::FilePath)]
    pub against: Option<PathBuf>,
    /// A key that is trusted, or a file with it
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
}

/// `palyra journal erase`.
#[derive(Debug, Args)]
pub struct Erase {
    /// The call, which is over
    #[arg(value_name = "CALL")]
    pub id: CallId,
    /// Which contents; environment values are kept with the arguments, so both go
    #[arg(long, value_enum, default_value = "all")]
    pub what: WhatArg,
    /// Why, for the record; it cannot be erased later
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Which contents of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(
    missing_docs,
    reason = "clap would print them, and stretch every help text"
)]
pub enum WhatArg {
    Arguments,
    Environment,
    Output,
    All,
}

/// `palyra attest`.
#[derive(Debug, Args)]
pub struct Attest {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// What.
    #[command(subcommand)]
    pub action: AttestAction,
}

/// What to do with an attestation.
#[derive(Debug, Subcommand)]
pub enum AttestAction {
    /// Print what is attested about a call, after checking it
    Show {
        /// The call's id
        #[arg(value_name = "CALL")]
        id: CallId,
    },
    /// Write it as one file that proves itself: statement, signature, proofs, checkpoint
    Export {
        /// The call's id
        #[arg(value_name = "CALL")]
        id: CallId,
        /// Write to this new file instead of standard output
        #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        out: Option<PathBuf>,
    },
    /// Check such a file, without a daemon
    Verify {
        /// The file
        #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
        /// A key that is trusted, or a file with it
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
    },
}

/// `palyra journal verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// A journal, the folder it is in, or an export; your daemon's journal when absent
    #[arg(value_name = "FILE|DIR", value_hint = clap::ValueHint::AnyPath)]
    pub path: Option<PathBuf>,
    /// A checkpoint that was kept elsewhere: nothing up to it may be missing
    #[arg(long, value_name = "CHECKPOINT", value_hint = clap::ValueHint::FilePath)]
    pub against: Option<PathBuf>,
    /// A key that is trusted, or a file with it
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// The key of arguments and output, 32 bytes from a vault export
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub blob_key: Option<PathBuf>,
}
