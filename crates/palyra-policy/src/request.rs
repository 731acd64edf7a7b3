//! What can be asked: who wants to do what, to what, from where.

use std::path::PathBuf;

use palyra_core::{
    AgentName, Channel, DeviceId, EgressHost, Facts, Principal, ProgramFacts, SecretRef, ToolName,
};

/// Which facts a question needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Those of a call: may it run now?
    Run,
    /// Those of a call: may a person be asked?
    Ask,
    /// Those of everything else.
    Api,
}

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident: $kind:ident = $text:literal, $words:literal;)*) => {
        /// Everything the schema declares as an action.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Action {
            $($(#[$doc])* $name,)*
        }

        impl Action {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The schema's name for it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            pub(crate) const fn kind(self) -> Kind {
                match self {
                    $(Self::$name => Kind::$kind,)*
                }
            }

            /// What it is, after "no policy lets them".
            pub(crate) const fn in_words(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }
        }
    };
}

actions! {
    /// Run this call now. It needs the facts of a call.
    ToolExecute: Run = "tool.execute", "run";
    /// Ask a person about this call. It needs the facts of a call.
    ToolExecuteAsk: Ask = "tool.execute.ask", "run, or have a person asked about,";
    /// Run a skill now. It needs the facts of a call.
    SkillExecute: Run = "skill.execute", "run";
    /// Ask a person about that.
    SkillExecuteAsk: Ask = "skill.execute.ask", "run, or have a person asked about,";
    /// Run a program, as an effect of a call.
    Exec: Run = "exec", "run";
    /// Ask a person about that.
    ExecAsk: Ask = "exec.ask", "run, or have a person asked about,";
    /// Read a path, as an effect of a call.
    FsRead: Run = "fs.read", "read";
    /// Ask a person about that.
    FsReadAsk: Ask = "fs.read.ask", "read, or have a person asked about,";
    /// Write a path, as an effect of a call.
    FsWrite: Run = "fs.write", "write";
    /// Ask a person about that.
    FsWriteAsk: Ask = "fs.write.ask", "write, or have a person asked about,";
    /// Connect to a host, as an effect of a call.
    NetConnect: Run = "net.connect", "connect to";
    /// Ask a person about that.
    NetConnectAsk: Ask = "net.connect.ask", "connect to, or have a person asked about,";
    /// Use a secret without seeing it, as an effect of a call.
    VaultUse: Run = "vault.use", "use";
    /// Ask a person about that.
    VaultUseAsk: Ask = "vault.use.ask", "use, or have a person asked about,";
    /// Be given a secret's value, as an effect of a call.
    SecretRead: Run = "secret.read", "read";
    /// Ask a person about that.
    SecretReadAsk: Ask = "secret.read.ask", "read, or have a person asked about,";
    /// See which tools there are, or one tool's description.
    ToolList: Api = "tool.list", "see";
    /// Read the record of a call.
    CallRead: Api = "call.read", "read";
    /// Read what was asked and answered.
    ApprovalRead: Api = "approval.read", "read";
    /// Read the journal.
    JournalRead: Api = "journal.read", "read the journal of";
    /// Check the journal's proofs.
    JournalVerify: Api = "journal.verify", "verify the journal of";
    /// See which agents there are, or one agent's registration.
    AgentRead: Api = "agent.read", "read";
    /// See which devices are paired.
    DeviceRead: Api = "device.read", "see the devices of";
    /// See which tokens there are.
    TokenRead: Api = "token.read", "see the tokens of";
    /// Read the policies.
    PolicyRead: Api = "policy.read", "read the policies of";
    /// See how the daemon is.
    DaemonStatus: Api = "daemon.status", "see the status of";
    /// See the timers.
    CronList: Api = "cron.list", "see the timers of";
    /// Read memories.
    MemoryRead: Api = "memory.read", "read the memory of";
    /// Read messages.
    MessageRead: Api = "message.read", "read the messages of";
    /// See the models of the compatible API.
    CompatModels: Api = "compat.models", "see the models of";
    /// See the names of secrets.
    VaultList: Api = "vault.list", "see the name of";
    /// Set a timer.
    CronCreate: Api = "cron.create", "set a timer of";
    /// Change a timer.
    CronUpdate: Api = "cron.update", "change a timer of";
    /// Keep a memory.
    MemoryWrite: Api = "memory.write", "add to the memory of";
    /// Send a message.
    MessageSend: Api = "message.send", "send messages from";
    /// Chat by the compatible API.
    CompatChat: Api = "compat.chat", "chat through";
    /// Store a secret.
    VaultPut: Api = "vault.put", "store";
    /// Rotate a secret or the key of all.
    VaultRotate: Api = "vault.rotate", "change the vault key of";
    /// Delete a timer.
    CronDelete: Api = "cron.delete", "delete a timer of";
    /// Ask a person about that.
    CronDeleteAsk: Api = "cron.delete.ask", "delete a timer of, or have a person asked about,";
    /// Forget for good.
    MemoryPurge: Api = "memory.purge", "purge the memory of";
    /// Ask a person about that.
    MemoryPurgeAsk: Api = "memory.purge.ask", "purge the memory of, or have a person asked about,";
    /// Reveal a secret to its reader.
    VaultGet: Api = "vault.get", "reveal";
    /// Ask a person about that.
    VaultGetAsk: Api = "vault.get.ask", "reveal, or have a person asked about,";
    /// Take every secret out.
    VaultExport: Api = "vault.export", "export the secrets of";
    /// Lock, unlock, change the key.
    VaultManage: Api = "vault.manage", "manage the vault of";
    /// Delete a secret.
    VaultDelete: Api = "vault.delete", "delete";
    /// Ask a person about that.
    VaultDeleteAsk: Api = "vault.delete.ask", "delete, or have a person asked about,";
    /// Take the journal out.
    JournalExport: Api = "journal.export", "export the journal of";
    /// Ask a person about that.
    JournalExportAsk: Api = "journal.export.ask", "export the journal of, or have a person asked about,";
    /// Answer for a person.
    ApprovalDecide: Api = "approval.decide", "decide";
    /// Register or remove agents.
    AgentManage: Api = "agent.manage", "register or remove";
    /// Pair or remove devices.
    DeviceManage: Api = "device.manage", "pair or remove devices of";
    /// Issue or revoke tokens.
    TokenManage: Api = "token.manage", "issue or revoke tokens of";
    /// Erase contents from the journal, back it up, make its projections anew.
    JournalManage: Api = "journal.manage", "manage the journal of";
    /// See what was taken away from workspaces, and put it back.
    QuarantineManage: Api = "quarantine.manage", "manage the quarantine of";
    /// Take other policies into use.
    PolicyActivate: Api = "policy.activate", "change the policies of";
    /// Return to earlier policies.
    PolicyRollback: Api = "policy.rollback", "roll back the policies of";
    /// Ask a person about that.
    PolicyActivateAsk: Api = "policy.activate.ask", "change the policies of, or have a person asked about,";
    /// Ask a person about that.
    PolicyRollbackAsk: Api = "policy.rollback.ask", "roll back the policies of, or have a person asked about,";
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an action is done to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// The daemon: its status, its journal, its list of tools.
    Daemon,
    /// One tool.
    Tool(ToolName),
    /// The record of a call.
    Call {
        /// Who made it.
        owner: Principal,
    },
    /// A question put to a person.
    Approval {
        /// Who asked.
        requester: Principal,
    },
    /// The registry of agents, which is the daemon's.
    Agents,
    /// One registered agent.
    Agent(AgentName),
    /// A program, with what is known of it.
    Program(ProgramFacts),
    /// A file or folder, by its real absolute path.
    Path(PathBuf),
    /// A host.
    Host(EgressHost),
    /// A stored secret, in its scope.
    Secret(SecretRef),
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Daemon => f.write_str("the daemon"),
            Self::Tool(name) => write!(f, "`{name}`"),
            Self::Call { owner } => write!(f, "a call of `{owner}`"),
            Self::Approval { requester } => write!(f, "an approval asked by `{requester}`"),
            Self::Agents => f.write_str("agents"),
            Self::Agent(name) => write!(f, "agent `{name}`"),
            Self::Program(known) => write!(f, "`{}`", known.program.display()),
            Self::Path(path) => write!(f, "`{}`", path.display()),
            Self::Host(name) => write!(f, "`{name}`"),
            Self::Secret(secret) => write!(f, "the secret `{secret}`"),
        }
    }
}

/// One question: may this principal do this to that?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRequest {
    /// Who. An agent here is only the agent, not the person behind it.
    pub principal: Principal,
    /// What.
    pub action: Action,
    /// To what.
    pub resource: Resource,
}

/// What is true of this one request. In Cedar it is the schema's `CallContext`, or `ApiContext`
/// for what is not a call: the same facts, typed, and absent where no room knows them yet
/// (`session`, `skill`, `layers`, `taint`, `spent`).
#[derive(Debug, Clone, Copy)]
pub struct PolicyRequestContext<'a> {
    /// From which device it comes.
    pub device_id: &'a DeviceId,
    /// By which way.
    pub channel: Channel,
    /// Run, tool and its capabilities, effects and whether they are all, risk, confinement, time,
    /// rate, digest, scopes and grant: only for the actions in `run` and `ask`, and always for
    /// those.
    pub call: Option<&'a Facts>,
}

impl<'a> From<&'a Facts> for PolicyRequestContext<'a> {
    fn from(facts: &'a Facts) -> Self {
        Self {
            device_id: &facts.origin.device,
            channel: facts.origin.channel,
            call: Some(facts),
        }
    }
}
