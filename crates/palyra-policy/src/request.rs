//! What can be asked: who wants to do what, to what, from where.

use palyra_core::{AgentName, Channel, DeviceId, Facts, Principal, ToolName};

/// Everything the schema declares as an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Run this call now. It needs the facts of a call.
    ToolExecute,
    /// Ask a person about this call. It needs the facts of a call.
    ToolExecuteAsk,
    /// See which tools there are, or one tool's description.
    ToolList,
    /// Read the record of a call.
    CallRead,
    /// Read what was asked and answered.
    ApprovalRead,
    /// Read the journal.
    JournalRead,
    /// See which agents there are, or one agent's registration.
    AgentRead,
    /// See how the daemon is.
    DaemonStatus,
    /// Answer for a person.
    ApprovalDecide,
    /// Register or remove agents.
    AgentManage,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::ToolExecute,
        Self::ToolExecuteAsk,
        Self::ToolList,
        Self::CallRead,
        Self::ApprovalRead,
        Self::JournalRead,
        Self::AgentRead,
        Self::DaemonStatus,
        Self::ApprovalDecide,
        Self::AgentManage,
    ];

    /// The schema's name for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolExecute => "tool.execute",
            Self::ToolExecuteAsk => "tool.execute.ask",
            Self::ToolList => "tool.list",
            Self::CallRead => "call.read",
            Self::ApprovalRead => "approval.read",
            Self::JournalRead => "journal.read",
            Self::AgentRead => "agent.read",
            Self::DaemonStatus => "daemon.status",
            Self::ApprovalDecide => "approval.decide",
            Self::AgentManage => "agent.manage",
        }
    }

    /// What it is, after "no policy lets them".
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::ToolExecute => "run",
            Self::ToolExecuteAsk => "run, or have a person asked about,",
            Self::ToolList => "see",
            Self::CallRead | Self::ApprovalRead | Self::AgentRead => "read",
            Self::JournalRead => "read the journal of",
            Self::DaemonStatus => "see the status of",
            Self::ApprovalDecide => "decide",
            Self::AgentManage => "register or remove",
        }
    }
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

/// What is true of this one request.
#[derive(Debug, Clone, Copy)]
pub struct PolicyRequestContext<'a> {
    /// From which device it comes.
    pub device_id: &'a DeviceId,
    /// By which way.
    pub channel: Channel,
    /// Run, tool needs, effects, confinement, time, digest and grant: only for the actions
    /// `tool.execute` and `tool.execute.ask`, and always for those.
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
