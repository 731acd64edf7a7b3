//! The command line as it is typed: one definition for parsing, help, completions and man pages.
//!
//! What it *means* (which folder, which environment, which request) is worked out in
//! [`crate::commands`]. Examples live in [`crate::help`] and lead every help text.

mod approvals;
mod connect;
mod hook;
mod journal;
mod mcp;
mod policy;
mod vault;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use palyra_core::{AgentName, CallId, QuarantineId, Span, ToolName};

pub use self::approvals::{
    Approvals, ApprovalsAction, CoverArg, DecisionArg, Grants, GrantsAction, PostureArg, Postures,
    PosturesAction, Presence, PresenceAction, ReachArg,
};
pub use self::connect::{Connect, ConnectArg};
pub use self::hook::{ClientArg, Hook};
pub use self::journal::{
    Attest, AttestAction, Erase, Journal, JournalAction, Restore, TailFilter, Verify, WhatArg,
};
pub use self::mcp::{Mcp, McpAction};
pub use self::policy::{BaselineArg, Policy, PolicyAction, PolicyOver, PolicyPlace};
pub use self::vault::{PutArgs, Vault, VaultAction};
use crate::values::{AsAgent, EnvArg, JsonArg, SecretArg};

/// Puts a decision, limits and a durable record in front of every tool call
#[derive(Debug, Parser)]
#[command(
    name = "palyra",
    version,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Palyra {
    /// How to answer.
    #[command(flatten)]
    pub style: Style,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How to answer.
#[derive(Debug, Clone, Copy, Args)]
pub struct Style {
    /// Print one JSON document instead of text (JSON lines with `--follow`)
    #[arg(long, global = true, display_order = 100)]
    pub json: bool,
    /// Print only data and errors, no notes
    #[arg(long, short, global = true, display_order = 101)]
    pub quiet: bool,
}

/// As whom to speak to the daemon.
#[derive(Debug, Clone, Args)]
pub struct Whom {
    /// Act as one of your agents: this lowers what you may do and never raises it
    // An id of its own: `calls list` has an argument named `agent`, which would hide it.
    #[arg(
        id = "as",
        long = "as",
        value_name = "agent:NAME",
        global = true,
        display_order = 90
    )]
    pub agent: Option<AsAgent>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a commented palyra.toml and make the daemon's folders; overwrites nothing
    Init(Init),
    /// Show whether the daemon runs, who you are to it, and what waits for you
    Status(Whom),
    /// Try what this machine gives to the sandbox, and what to do about the rest
    Doctor(Whom),
    /// Run a program in the sandbox, if policy or a person allows it, and record it
    Exec(Exec),
    /// Call one tool with JSON arguments and print what it gives back
    Call(Call),
    /// Register, list and remove the agents that act for you
    Agents(Agents),
    /// List the tools that can be called, and show what one takes
    Tools(Tools),
    /// List calls, past and running, and show what one did
    Calls(Calls),
    /// List the calls that wait for your answer; allow or deny them
    Approvals(Approvals),
    /// Put Palyra between an agent's client and this machine
    Connect(Connect),
    /// Decide what an agent's client is about to do by itself (its hook runs this)
    Hook(Hook),
    /// Serve the tools to an agent's MCP client
    Mcp(Mcp),
    /// Answer what waits and watch what runs, on one screen: inbox, calls, grants, journal
    Tui,
    /// List what you allowed for a session or a while; take it back
    Grants(Grants),
    /// Set how a tool is treated: as policy says, always asked about, or off
    Postures(Postures),
    /// Set the passphrase that deciding asks for; change it, end it
    Presence(Presence),
    /// Print the journal: every proposal, decision, answer and execution, in order
    Journal(Journal),
    /// List, check and compare policies; see, reload and roll back what decides
    Policy(Policy),
    /// Show, export and verify what was attested about one call
    Attest(Attest),
    /// List what appeared during calls and was taken away, and put it back
    Quarantine(Quarantine),
    /// Store secrets sealed; list, rotate, back up and audit them
    Vault(Vault),
    /// Print a completion script for your shell
    Completions(Completions),
    /// Print the man page, or write one for every command
    Man(Man),
    /// Show what the exit codes mean
    ExitCodes,
}

impl Command {
    /// As whom this command speaks to the daemon.
    #[must_use]
    pub const fn whom(&self) -> Option<&AsAgent> {
        let whom = match self {
            // The screen is for the person, and an agent decides nothing.
            Self::Init(_)
            | Self::Connect(_)
            | Self::Tui
            | Self::Completions(_)
            | Self::Man(_)
            | Self::ExitCodes => {
                return None;
            }
            Self::Status(whom) | Self::Doctor(whom) => whom,
            Self::Exec(exec) => &exec.whom,
            Self::Call(call) => &call.whom,
            Self::Agents(agents) => &agents.whom,
            Self::Tools(tools) => &tools.whom,
            Self::Calls(calls) => &calls.whom,
            Self::Approvals(approvals) => &approvals.whom,
            Self::Grants(grants) => &grants.whom,
            Self::Postures(postures) => &postures.whom,
            Self::Presence(presence) => &presence.whom,
            Self::Journal(journal) => &journal.whom,
            Self::Policy(policy) => &policy.whom,
            Self::Attest(attest) => &attest.whom,
            Self::Quarantine(quarantine) => &quarantine.whom,
            Self::Mcp(mcp) => &mcp.whom,
            Self::Hook(hook) => &hook.whom,
            Self::Vault(vault) => &vault.whom,
        };
        whom.agent.as_ref()
    }
}

/// `palyra init`.
#[derive(Debug, Args)]
pub struct Init {
    /// What decides where your policies say nothing else [default: asked on a terminal, or standard]
    #[arg(long, value_enum, value_name = "NAME")]
    pub baseline: Option<BaselineArg>,
    /// Where the vault's key is kept; chosen once [default: file, the weakest]
    #[arg(long, value_enum, value_name = "STORE")]
    pub keystore: Option<KeyStoreArg>,
}

/// Where the vault's key is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(
    missing_docs,
    reason = "clap would print them, and stretch every help text"
)]
pub enum KeyStoreArg {
    File,
    Passphrase,
    SecretService,
    SystemdCredential,
    #[cfg(any(target_os = "macos", windows))]
    Native,
}

impl KeyStoreArg {
    /// The word in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Passphrase => "passphrase",
            Self::SecretService => "secret-service",
            Self::SystemdCredential => "systemd-credential",
            #[cfg(any(target_os = "macos", windows))]
            Self::Native => "native",
        }
    }
}

/// `palyra exec`.
#[derive(Debug, Args)]
pub struct Exec {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// Kill it, and everything it started, after this long (`500ms`, `30s`, `1h30m`)
    #[arg(long, value_name = "SPAN")]
    pub timeout: Option<Span>,
    /// The folder it works on [default: the current folder, or the agent's own]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub workspace: Option<PathBuf>,
    /// How strongly to confine it: c (the default) shows it the system, its workspace and nothing else; b has no namespaces
    #[arg(long, value_enum)]
    pub tier: Option<TierArg>,
    /// How it is held to the hosts it may reach: strict (the default) while it runs; preflight only looks before it starts; none is the machine's own network
    #[arg(long, value_enum)]
    pub egress: Option<EgressArg>,
    /// A host it has to reach, ports 80 and 443 without a port; without any it reaches nothing
    #[arg(long, value_name = "HOST[:PORT]")]
    pub allow_host: Vec<String>,
    /// A secret of the vault that is put into its requests on the way out; it sees a placeholder in this variable, or in this file of its home folder
    #[arg(long, value_name = "ENV=NAME|@FILE=NAME")]
    pub secret: Vec<SecretArg>,
    /// Pass a variable on, or set one; otherwise it sees PATH, LANG, LC_ALL, TERM and TZ
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<EnvArg>,
    /// Read standard input to its end and give it to the program (UTF-8 only)
    #[arg(long)]
    pub stdin: bool,
    /// Pass standard input on while it runs
    #[arg(short, long, conflicts_with = "stdin")]
    pub interactive: bool,
    /// Give it a terminal of its own, and be in front of it: `-it -- bash`
    #[arg(short, long, requires = "interactive")]
    pub tty: bool,
    /// What a person should know about it; they see it as your words, apart from what runs
    #[arg(long, value_name = "TEXT")]
    pub why: Option<String>,
    /// Do not wait for a person: the question stays, and this same command runs after a yes
    #[arg(long, conflicts_with = "interactive")]
    pub detach: bool,
    /// Run what was decided about before, by the token that the hook gave for it
    #[arg(long, value_name = "TOKEN", exclusive = true)]
    pub call: Option<String>,
    /// The program and its arguments; put `--` before them
    #[arg(
        value_name = "PROG",
        required_unless_present = "call",
        trailing_var_arg = true,
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// How strongly to confine a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(
    missing_docs,
    reason = "clap would print them, and stretch every help text"
)]
pub enum TierArg {
    B,
    C,
}

impl TierArg {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::B => "b",
            Self::C => "c",
        }
    }
}

/// What a program may reach over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EgressArg {
    /// Only the hosts of `--allow-host`.
    Strict,
    /// The same, looked at before it starts and not held while it runs.
    Preflight,
    /// What the machine reaches.
    None,
}

impl EgressArg {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Preflight => "preflight",
            Self::None => "none",
        }
    }
}

/// `palyra call`.
#[derive(Debug, Args)]
pub struct Call {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// The tool, as `palyra tools list` names it
    pub tool: ToolName,
    /// Its arguments: JSON text, `-` for standard input, or `@FILE`
    #[arg(long = "args", value_name = "JSON|-|@FILE", default_value = "{}")]
    pub arguments: JsonArg,
    /// The folder it works on [default: the current folder, or the agent's own]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub workspace: Option<PathBuf>,
    /// What a person should know about it; they see it as your words, apart from what runs
    #[arg(long, value_name = "TEXT")]
    pub why: Option<String>,
    /// Do not wait for a person: the question stays, and this same call runs after a yes
    #[arg(long)]
    pub detach: bool,
}

/// `palyra quarantine`.
#[derive(Debug, Args)]
pub struct Quarantine {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// What.
    #[command(subcommand)]
    pub action: QuarantineAction,
}

/// What to do with what was taken away.
#[derive(Debug, Subcommand)]
pub enum QuarantineAction {
    /// List what was taken away, and why
    List,
    /// Put one back where it was; a person's decision, which no agent can take
    Restore {
        /// Its id
        id: QuarantineId,
    },
}

/// `palyra agents`.
#[derive(Debug, Args)]
pub struct Agents {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// What.
    #[command(subcommand)]
    pub action: AgentsAction,
}

/// What to do with agents.
#[derive(Debug, Subcommand)]
pub enum AgentsAction {
    /// Register an agent and the one folder it works on
    Add {
        /// Its name: a-z, 0-9, `-`, `_` and `.`
        name: AgentName,
        /// The folder it works on [default: the current folder]
        #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
        workspace: Option<PathBuf>,
        /// Nobody is there to be asked: what would need a yes is denied at once
        #[arg(long)]
        unattended: bool,
    },
    /// List the agents and their folders
    List,
    /// Show one agent: for whom it acts, its folder, since when
    Show {
        /// Its name
        name: AgentName,
    },
    /// Have an agent do nothing: its calls, questions and grants end
    Pause {
        /// Its name
        name: AgentName,
        /// Why; it goes back to the agent
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Let a paused agent act again
    Resume {
        /// Its name
        name: AgentName,
    },
    /// Remove an agent: it may no longer act; its records stay
    Remove {
        /// Its name
        name: AgentName,
    },
}

/// `palyra tools`.
#[derive(Debug, Args)]
pub struct Tools {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// What.
    #[command(subcommand)]
    pub action: ToolsAction,
}

/// What to do with tools.
#[derive(Debug, Subcommand)]
pub enum ToolsAction {
    /// List the tools, and whether an agent's call to one waits for you
    List,
    /// Show one tool: what it needs, its limits, the schema of its arguments
    Show {
        /// Its name
        name: ToolName,
    },
}

/// `palyra calls`.
#[derive(Debug, Args)]
pub struct Calls {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// What.
    #[command(subcommand)]
    pub action: CallsAction,
}

/// What to do with calls.
#[derive(Debug, Subcommand)]
pub enum CallsAction {
    /// List calls and how they came out, newest first
    List {
        /// How many at most
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20,
              value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Only calls older than this one
        #[arg(long, value_name = "CALL")]
        before: Option<CallId>,
        /// Only calls of this agent
        #[arg(long, value_name = "NAME")]
        agent: Option<AgentName>,
        /// Only calls in this state
        #[arg(long, value_enum)]
        state: Option<StateArg>,
    },
    /// Show one call: arguments, output, exit code and its entries in the journal
    Show {
        /// The call
        id: CallId,
        /// Only what it did with its network, connection by connection
        #[arg(long)]
        network: bool,
    },
}

/// Where a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words are the wire's own")]
pub enum StateArg {
    Proposed,
    Waiting,
    Admitted,
    Completed,
    Denied,
    ApprovalDenied,
    ApprovalExpired,
    TimedOut,
    Cancelled,
    Failed,
    SandboxUnavailable,
    Interrupted,
    Advised,
}

/// `palyra completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell that will read it
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `palyra man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Write one page per command into this folder instead of printing palyra(1)
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub folder: Option<PathBuf>,
}
