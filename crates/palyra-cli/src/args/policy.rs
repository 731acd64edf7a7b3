//! `palyra policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use palyra_core::{CallId, Digest, Span};

use super::Whom;

/// `palyra policy`.
#[derive(Debug, Args)]
pub struct Policy {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// What.
    #[command(subcommand)]
    pub action: PolicyAction,
}

/// What to do with policies.
#[derive(Debug, Subcommand)]
pub enum PolicyAction {
    /// List the policies that decide, or those of a folder; also what is staged or refused
    List(PolicyPlace),
    /// Show one policy: what it says, why, and where it is written
    Show {
        /// Its `@id`
        id: String,
        /// Which policies.
        #[command(flatten)]
        place: PolicyPlace,
    },
    /// Print the schema: what a policy can talk about
    Schema,
    /// Check the *.cedar files: problems, and what is probably not meant
    Check(PolicyPlace),
    /// Run the cases of the *.test.toml files
    Test(PolicyPlace),
    /// Explain the answer to a call or to one request, and what would have to change
    Explain {
        /// The call; with `--request`, the folder of your policies
        #[arg(value_name = "CALL|DIR", required_unless_present = "request")]
        what: Option<PathBuf>,
        /// A request instead, in TOML or JSON: principal, action, resource, context, entity
        #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        request: Option<PathBuf>,
        /// Over which baseline.
        #[command(flatten)]
        over: PolicyOver,
    },
    /// Ask a draft about a past call or a request, beside what is in force
    Simulate {
        /// The folder of the draft
        #[arg(value_name = "DRAFT_DIR", value_hint = clap::ValueHint::DirPath)]
        draft: PathBuf,
        /// A call of the past
        #[arg(
            long,
            value_name = "CALL",
            required_unless_present = "request",
            conflicts_with = "request"
        )]
        call: Option<CallId>,
        /// A request, in TOML or JSON: principal, action, resource, context, entity
        #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        request: Option<PathBuf>,
        /// Over which baseline.
        #[command(flatten)]
        over: PolicyOver,
    },
    /// Decide past calls again with a draft, and list the answers that flip
    Replay {
        /// The folder of the draft
        #[arg(value_name = "DRAFT_DIR", value_hint = clap::ValueHint::DirPath)]
        draft: PathBuf,
        /// How far back (`30m`, `12h`, `7d`)
        #[arg(long, value_name = "SPAN", default_value = "7d")]
        since: Span,
        /// Over which baseline.
        #[command(flatten)]
        over: PolicyOver,
    },
    /// List the versions that were in force, newest first, or show the texts of one
    Versions {
        /// Show the texts of this version
        number: Option<u64>,
        /// How many at most
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20,
              value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Only versions before this one
        #[arg(long, value_name = "NUMBER")]
        before: Option<u64>,
    },
    /// Have the daemon read the folder again; a changed file is also noticed by itself
    Reload,
    /// Take staged policies into use, exactly those that were looked at
    Activate {
        /// What is staged, as `palyra policy list` names it
        #[arg(value_name = "DIGEST")]
        digest: Digest,
    },
    /// Go back to an earlier version; what the folder holds is set aside until it changes
    Rollback {
        /// The version to go back to [default: the one before]
        number: Option<u64>,
    },
    /// Compare two folders: which policies differ, and which answers flip
    Diff {
        /// The folder before
        #[arg(value_name = "OLD_DIR", value_hint = clap::ValueHint::DirPath)]
        old: PathBuf,
        /// The folder after
        #[arg(value_name = "NEW_DIR", value_hint = clap::ValueHint::DirPath)]
        new: PathBuf,
        /// Over which baseline.
        #[command(flatten)]
        over: PolicyOver,
    },
}

/// Which policies.
#[derive(Debug, Clone, Args)]
pub struct PolicyPlace {
    /// The folder of your policies [default: `policies` beside palyra.toml]
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub folder: Option<PathBuf>,
    /// Over which baseline.
    #[command(flatten)]
    pub over: PolicyOver,
}

impl PolicyPlace {
    /// Whether nothing else than the daemon's own policies is named.
    #[must_use]
    pub const fn is_the_daemons(&self) -> bool {
        self.folder.is_none() && self.over.baseline.is_none()
    }
}

/// Over which baseline.
#[derive(Debug, Clone, Copy, Args)]
pub struct PolicyOver {
    /// The policies underneath [default: `baseline` of palyra.toml, or standard]
    #[arg(long, value_enum, value_name = "NAME")]
    pub baseline: Option<BaselineArg>,
}

/// A policy set that comes with the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(
    missing_docs,
    reason = "clap would print them, and stretch every help text"
)]
pub enum BaselineArg {
    Standard,
    Sandboxed,
    Locked,
}

impl From<BaselineArg> for palyra_policy::Baseline {
    fn from(arg: BaselineArg) -> Self {
        match arg {
            BaselineArg::Standard => Self::Standard,
            BaselineArg::Sandboxed => Self::Sandboxed,
            BaselineArg::Locked => Self::Locked,
        }
    }
}
