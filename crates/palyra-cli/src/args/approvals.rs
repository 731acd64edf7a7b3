//! `palyra approvals`, `palyra grants` and `palyra postures` as they are typed.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use palyra_api::wire::{CoverKind, Reach};
use palyra_core::{AgentName, ApprovalId, CallId, GrantId, SessionId, Span, ToolName};

use super::Whom;

/// `palyra approvals`.
#[derive(Debug, Args)]
pub struct Approvals {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// What.
    #[command(subcommand)]
    pub action: ApprovalsAction,
}

/// What to do with approvals.
#[derive(Debug, Subcommand)]
pub enum ApprovalsAction {
    /// List the calls that wait for an answer, the worst first, each agent in turn
    List {
        /// Include what was decided, expired or cancelled; newest first
        #[arg(long)]
        all: bool,
        /// How many at most
        #[arg(long, short = 'n', value_name = "N", default_value_t = 50,
              value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Only those that follow this one
        #[arg(long, value_name = "APPROVAL")]
        before: Option<ApprovalId>,
    },
    /// Show exactly what would run, its risk, and how far a yes can reach
    Show {
        /// The approval
        id: ApprovalId,
        /// All of the arguments, and the code that `decide --shown` wants for a long call
        #[arg(long)]
        full: bool,
    },
    /// Print what waits as it comes and goes, until you stop it
    Watch,
    /// Allow or deny; once, or for calls like it until a session or a time ends
    Decide {
        /// The approval
        id: ApprovalId,
        /// The answer, to exactly what `palyra approvals show` prints
        #[arg(long, value_enum)]
        decision: DecisionArg,
        /// How far a yes reaches in time
        #[arg(long, value_enum, default_value = "once")]
        scope: ReachArg,
        /// How long a yes with `--scope window` lasts (`15m`, `2h`; at most 12h)
        #[arg(long = "for", value_name = "SPAN")]
        lasts: Option<Span>,
        /// What a yes for a session or a window covers
        #[arg(long, value_enum, default_value = "exact")]
        cover: CoverArg,
        /// Why; a deny reason goes back to the agent
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// The code that `palyra approvals show --full` ends with
        #[arg(long, value_name = "CODE")]
        shown: Option<String>,
    },
    /// Show how often you were asked, what you said, and what a grant would spare
    Stats,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(
    missing_docs,
    reason = "clap would print them, and stretch every help text"
)]
pub enum DecisionArg {
    Allow,
    Deny,
}

/// How far a yes reaches in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(
    missing_docs,
    reason = "clap would print them, and stretch every help text"
)]
pub enum ReachArg {
    Once,
    Session,
    Window,
}

impl ReachArg {
    /// The word on the wire.
    #[must_use]
    pub const fn wire(self) -> Reach {
        match self {
            Self::Once => Reach::Once,
            Self::Session => Reach::Session,
            Self::Window => Reach::Window,
        }
    }
}

/// What a yes covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(
    missing_docs,
    reason = "clap would print them, and stretch every help text"
)]
pub enum CoverArg {
    Exact,
    Args,
    Program,
    Dir,
    Host,
    Tool,
}

impl CoverArg {
    /// The word on the wire.
    #[must_use]
    pub const fn wire(self) -> CoverKind {
        match self {
            Self::Exact => CoverKind::Exact,
            Self::Args => CoverKind::Args,
            Self::Program => CoverKind::Program,
            Self::Dir => CoverKind::Dir,
            Self::Host => CoverKind::Host,
            Self::Tool => CoverKind::Tool,
        }
    }
}

/// `palyra grants`.
#[derive(Debug, Args)]
pub struct Grants {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// What.
    #[command(subcommand)]
    pub action: GrantsAction,
}

/// What to do with grants.
#[derive(Debug, Subcommand)]
pub enum GrantsAction {
    /// List what is in force, and until when
    List {
        /// Include what ended
        #[arg(long)]
        all: bool,
    },
    /// Show one grant: what it covers, in words and as a Cedar rule
    Show {
        /// The grant
        id: GrantId,
    },
    /// Take a grant back; nothing more runs under it
    Revoke {
        /// The grant
        id: GrantId,
    },
    /// Say which grant would cover a call, or why none does
    Explain {
        /// The call
        call: CallId,
    },
}

/// `palyra postures`.
#[derive(Debug, Args)]
pub struct Postures {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// What.
    #[command(subcommand)]
    pub action: PosturesAction,
}

/// What to do with postures.
#[derive(Debug, Subcommand)]
pub enum PosturesAction {
    /// List what is set about tools; the strictest that concerns a call counts
    List,
    /// Set how a tool is treated; it only ever narrows what policy allows
    Set {
        /// The tool, as `palyra tools list` names it
        tool: ToolName,
        /// How: as policy says, always asked about, not at all, or nothing said
        #[arg(value_enum)]
        posture: PostureArg,
        /// Only for calls that work on this folder
        #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, group = "level")]
        workspace: Option<PathBuf>,
        /// Only for calls of this agent
        #[arg(long, value_name = "NAME", group = "level")]
        agent: Option<AgentName>,
        /// Only for calls of this session
        #[arg(long, value_name = "SESSION", group = "level")]
        session: Option<SessionId>,
    },
}

/// How a tool is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(
    missing_docs,
    reason = "clap would print them, and stretch every help text"
)]
pub enum PostureArg {
    AlwaysAllow,
    AskEachTime,
    Disabled,
    Unset,
}

impl PostureArg {
    /// The word on the wire; none when nothing is to be said.
    #[must_use]
    pub const fn wire(self) -> Option<&'static str> {
        match self {
            Self::AlwaysAllow => Some("always_allow"),
            Self::AskEachTime => Some("ask_each_time"),
            Self::Disabled => Some("disabled"),
            Self::Unset => None,
        }
    }
}

/// `palyra presence`.
#[derive(Debug, Args)]
pub struct Presence {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// What.
    #[command(subcommand)]
    pub action: PresenceAction,
}

/// What to do about persons being there.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum PresenceAction {
    /// Show what person actions demand, and whether they ask in this terminal
    Show,
    /// Set a passphrase, or change it; from then on each decision is signed
    Set,
    /// Forget at once what was typed in every session; the next action asks
    Forget,
    /// End it, with the passphrase: deciding asks nothing any more
    Off,
}
