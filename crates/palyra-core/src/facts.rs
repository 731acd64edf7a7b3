//! Facts: everything that policy sees about a call, kept so that a decision can be replayed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::digest::{CallDigest, DigestKey, PlanDigest, PlanSeal};
use crate::host::EgressHost;
use crate::id::{ApprovalId, CallId, DeviceId, GrantId, RunId, SessionId};
use crate::plan::{Plan, Tier};
use crate::posture::Posture;
use crate::principal::{AgentName, Principal};
use crate::program::CodeFact;
use crate::risk::{ProgramFacts, Risk};
use crate::scope::{Scope, ScopeKey};
use crate::time::Timestamp;
use crate::tool::{ToolCapability, ToolMetadata, ToolName, ToolProposal};

/// One thing that a call does to the machine.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum Effect {
    /// Runs this program.
    Exec {
        /// Its absolute path.
        program: PathBuf,
    },
    /// Reads this file or folder.
    FsRead {
        /// Its absolute path.
        path: PathBuf,
    },
    /// Writes this file.
    FsWrite {
        /// Its absolute path.
        path: PathBuf,
    },
    /// Connects to this host.
    NetConnect {
        /// Which host.
        host: EgressHost,
        /// Which port, when the call says so or its protocol has one.
        port: Option<u16>,
    },
}

/// What was understood of a call, beyond its effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Understanding {
    /// See [`Facts::opaque`].
    pub opaque: bool,
    /// See [`Facts::programs`].
    pub programs: Vec<ProgramFacts>,
    /// See [`Facts::reads_more_code`].
    pub reads_more_code: bool,
    /// See [`Facts::risk`].
    pub risk: Risk,
    /// See [`Facts::scopes`].
    pub scopes: Vec<Scope>,
}

/// The way a call came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// The daemon's Unix socket.
    Cli,
    /// An MCP client of an agent, through `palyra mcp serve`.
    Mcp,
    /// The hook of an agent's client: what the client is about to do by itself.
    Hook,
}

impl Channel {
    /// The specification's word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Mcp => "mcp",
            Self::Hook => "hook",
        }
    }
}

/// A person's yes, as policy sees it: to exactly one call once, or to calls like it until it ends.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Grant {
    /// The approval it came from.
    pub approval: ApprovalId,
    /// The grant's own id, when it serves more than one call. Without one, it is spent by the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<GrantId>,
    /// The agent that asked.
    pub agent: AgentName,
    /// The call it covers.
    pub digest: CallDigest,
    /// What else it covers: calls with this among their scope keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeKey>,
    /// When it ends.
    pub not_after: Timestamp,
    /// How many people said yes.
    pub people: i64,
}

impl Grant {
    /// What an execution under it rests on.
    #[must_use]
    pub fn backing(&self) -> Backing {
        match &self.standing {
            Some(id) => Backing::Standing(id.clone()),
            None => Backing::Once(self.approval.clone()),
        }
    }
}

/// What an execution rests on, besides policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// A yes that is spent with the admission.
    Once(ApprovalId),
    /// A grant that must still be in force at the admission.
    Standing(GrantId),
}

/// Where a call came from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Origin {
    /// Who asks.
    pub principal: Principal,
    /// What their connection does.
    pub run: RunId,
    /// From which device.
    pub device: DeviceId,
    /// By which way.
    pub channel: Channel,
    /// What it belongs to besides its connection; records of before do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
}

/// Everything that policy sees about one call.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Facts {
    /// The call.
    pub call: CallId,
    /// Where it came from.
    #[serde(flatten)]
    pub origin: Origin,
    /// The tool.
    pub tool: ToolName,
    /// Whether the tool is sensitive.
    pub sensitive: bool,
    /// What the tool needs.
    pub capabilities: BTreeSet<ToolCapability>,
    /// What this call does.
    pub effects: Vec<Effect>,
    /// Whether `effects` may be incomplete, because part of the call could not be understood.
    /// Such a call is treated at its worst. Unless somebody looked, this is so.
    #[serde(default = "not_understood")]
    pub opaque: bool,
    /// The programs among `effects`, each with its groups.
    #[serde(default)]
    pub programs: Vec<ProgramFacts>,
    /// The files that run, with what is in them: exactly these are executed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<CodeFact>,
    /// Whether a program among these runs files that it opens by itself, which `code` does not
    /// list: interpreters import, build tools read their recipes.
    #[serde(default)]
    pub reads_more_code: bool,
    /// How bad it can be, and why.
    #[serde(default)]
    pub risk: Risk,
    /// The ways in which this call stands for others, the narrowest first; an opaque call, an
    /// interpreter and a wrapper have `exact` only.
    #[serde(default)]
    pub scopes: Vec<Scope>,
    /// The folder it works on, when it needs one.
    pub workspace: Option<PathBuf>,
    /// How strongly it will be confined.
    pub tier: Tier,
    /// When it was asked.
    pub now: Timestamp,
    /// How many calls this principal proposed in the last minute.
    pub calls_last_minute: u64,
    /// What the caller says about it: for a person, apart from everything else. Policy never sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// The strictest posture for it, when a person set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posture: Option<Posture>,
    /// Whether the person who calls for themselves confirmed it by calling, as far as their presence
    /// is demanded; nothing about an agent's call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_confirmed: Option<bool>,
    /// A person's yes, when there is one.
    pub grant: Option<Grant>,
    digest: CallDigest,
    plan: PlanSeal,
    /// The plan itself, only in the daemon that prepared the call: facts read back from a record
    /// can be judged again, but never turned into a permit.
    #[serde(skip)]
    live_plan: Option<PlanDigest>,
}

impl Facts {
    /// The facts of a call, with the digest of exactly this call under the local key.
    #[must_use]
    #[expect(
        clippy::too_many_arguments,
        reason = "one argument per kind of fact, each of its own type"
    )]
    pub fn new(
        call: CallId,
        origin: Origin,
        metadata: &ToolMetadata,
        proposal: &ToolProposal,
        effects: Vec<Effect>,
        workspace: Option<PathBuf>,
        tier: Tier,
        plan: &impl Plan,
        key: &DigestKey,
        now: Timestamp,
        calls_last_minute: u64,
    ) -> Self {
        let plan = plan.digest();
        let effect_bytes = serde_json::to_vec(&effects).unwrap_or_default();
        // The same words mean something else to another version of the tool.
        let schema = serde_json::to_vec(&metadata.input_schema).unwrap_or_default();
        let digest = key.call_digest(&[
            origin.principal.to_string().as_bytes(),
            proposal.tool.as_str().as_bytes(),
            &schema,
            proposal.arguments.bytes(),
            &effect_bytes,
            plan.0.as_bytes(),
        ]);
        let seal = key.plan_seal(&call, &plan);
        Self {
            call,
            origin,
            tool: metadata.name.clone(),
            sensitive: metadata.is_sensitive(),
            capabilities: metadata.capabilities.clone(),
            effects,
            opaque: true,
            programs: Vec::new(),
            code: Vec::new(),
            // Unless somebody looked.
            reads_more_code: true,
            risk: Risk::default(),
            scopes: Vec::new(),
            workspace,
            tier,
            now,
            calls_last_minute,
            said: None,
            posture: None,
            self_confirmed: None,
            grant: None,
            digest,
            plan: seal,
            live_plan: Some(plan),
        }
    }

    /// The same call, with what was understood of it. Without this it counts as opaque.
    #[must_use]
    pub fn with_understanding(mut self, understood: Understanding) -> Self {
        self.opaque = understood.opaque;
        self.programs = understood.programs;
        self.reads_more_code = understood.reads_more_code;
        self.risk = understood.risk;
        self.scopes = understood.scopes;
        self
    }

    /// The same call, with the files that run.
    #[must_use]
    pub fn with_code(mut self, code: Vec<CodeFact>) -> Self {
        self.code = code;
        self
    }

    /// The same call, asked again at `now` with a person's answer in context.
    #[must_use]
    pub fn with_grant(mut self, grant: Grant, now: Timestamp) -> Self {
        self.grant = Some(grant);
        self.now = now;
        self
    }

    /// "The same call", keyed.
    #[must_use]
    pub const fn digest(&self) -> &CallDigest {
        &self.digest
    }

    /// What exactly would run, as it is recorded.
    #[must_use]
    pub const fn plan(&self) -> &PlanSeal {
        &self.plan
    }

    pub(crate) const fn live_plan(&self) -> Option<&PlanDigest> {
        self.live_plan.as_ref()
    }
}

/// Records from before anybody looked read as not understood.
const fn not_understood() -> bool {
    true
}
