//! `palyra vault` as it is typed. No value is ever an argument: other processes can read those.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use palyra_core::{SecretName, SecretRef, Span, VaultScope};

use super::Whom;

/// `palyra vault`.
#[derive(Debug, Args)]
pub struct Vault {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// What.
    #[command(subcommand)]
    pub action: VaultAction,
}

/// What to do with the vault.
#[derive(Debug, Subcommand)]
pub enum VaultAction {
    /// Store a secret: its value from the prompt, or from standard input
    Put(PutArgs),
    /// Show a value, after you said yes to it; this is recorded
    Get {
        /// Its name, or SCOPE/NAME
        #[arg(value_name = "NAME")]
        secret: SecretRef,
        /// An earlier version
        #[arg(long, value_name = "N")]
        version: Option<u64>,
        /// Say yes beforehand, where there is no terminal
        #[arg(long)]
        yes: bool,
    },
    /// List secrets: names, versions, ages and audiences, never values
    List {
        /// How many at most
        #[arg(long, short = 'n', value_name = "N", default_value_t = 100,
              value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Only what follows this one
        #[arg(long, value_name = "NAME")]
        after: Option<SecretRef>,
    },
    /// Delete a secret with all its versions
    Delete {
        /// Its name, or SCOPE/NAME
        #[arg(value_name = "NAME")]
        secret: SecretRef,
    },
    /// List the versions of a secret that are kept
    Versions {
        /// Its name, or SCOPE/NAME
        #[arg(value_name = "NAME")]
        secret: SecretRef,
    },
    /// Change the key that every data key is wrapped by; no crash loses anything
    RotateKey,
    /// Show whether it is open, where its key is, and what that is worth
    Status,
    /// Write every secret into one age file, for other tools too
    Export {
        /// Write to this new file
        #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
        /// An age key that will open it (`age1…`); without one you are asked for a passphrase
        #[arg(long, value_name = "AGE1")]
        recipient: Vec<String>,
        /// Say yes beforehand, where there is no terminal
        #[arg(long)]
        yes: bool,
    },
    /// Store what such a file, or a file of NAME=VALUE lines, holds: all of it or nothing
    Import {
        /// The file; `-` for standard input
        #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
        /// The age secret key that opens it, in a file as `age-keygen` writes it
        #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "env")]
        identity: Option<PathBuf>,
        /// The file has NAME=VALUE lines, as `.env` files do
        #[arg(long)]
        env: bool,
        /// For whom, with --env
        #[arg(long, value_name = "SCOPE", default_value = "global", requires = "env")]
        scope: VaultScope,
    },
    /// Show who changed, saw and used what, the newest first
    Audit {
        /// Only this secret
        #[arg(value_name = "NAME")]
        secret: Option<SecretRef>,
        /// How many at most
        #[arg(long, short = 'n', value_name = "N", default_value_t = 50,
              value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
    /// Open the vault, with the passphrase if it has one; makes it where there is none
    Unlock {
        /// Take the file as it is, although the journal knows a later one
        #[arg(long)]
        accept_rollback: bool,
        /// Go on without journal keys that are lost, for good
        #[arg(long)]
        new_journal_keys: bool,
    },
    /// End what runs and forget the keys: nothing runs until `unlock`
    Lock,
}

/// `palyra vault put`.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// Its name: letters, digits, `-`, `_` and `.`
    pub name: SecretName,
    /// For whom: global, or principal:, agent:, session:, channel:, skill: or tool: and a name
    #[arg(long, value_name = "SCOPE", default_value = "global")]
    pub scope: VaultScope,
    /// Where it may be sent, as HOST, HOST:PORT or HOST:PORT/PATH; nowhere when absent
    #[arg(long, value_name = "HOST")]
    pub audience: Vec<String>,
    /// Only with these methods, for every audience
    #[arg(long, value_name = "METHOD", requires = "audience")]
    pub method: Vec<String>,
    /// Where it is put: bearer, basic:USER, header:NAME or query:NAME
    #[arg(
        long,
        value_name = "PLACE",
        default_value = "bearer",
        requires = "audience"
    )]
    pub place: String,
    /// How long it is to be used (`30d`)
    #[arg(long, value_name = "SPAN")]
    pub ttl: Option<Span>,
}
