//! Journal entries: the typed, versioned facts that are evidence.
//!
//! Every entry belongs to a stream (one call, one approval, the agents, the policies). Entries hold commitments
//! and keyed digests, never arguments, environment values or output.

use std::collections::BTreeMap;

use crate::attestation::{ExecutionReport, ToolAttestation};
use crate::blob::{BlobKind, Commitment};
use crate::decision::{ApprovalDecision, Denial};
use crate::digest::{Digest, PlanSeal, RecordedDigest};
use crate::facts::{Channel, Origin};
use crate::id::{ApprovalId, CallId, DeviceId, GrantId, SessionId};
use crate::posture::{Posture, PostureLevel};
use crate::presence::{ApproverKey, PresenceChange, Signed};
use crate::principal::{AgentName, Principal, UserName};
use crate::risk::RiskLevel;
use crate::scope::{GrantTerms, WhyEnded};
use crate::secret::{SecretAccess, SecretRef, VaultChange};
use crate::time::Timestamp;
use crate::tool::ToolName;

/// The stream an entry belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Stream {
    /// One call.
    Call(CallId),
    /// One approval.
    Approval(ApprovalId),
    /// One grant.
    Grant(GrantId),
    /// The postures that people set.
    Postures,
    /// The registry of agents.
    Agents,
    /// The policies that decide.
    Policy,
    /// What concerns the whole daemon: floods, starts.
    Daemon,
    /// What concerns the journal itself: its keys.
    Journal,
    /// The vault: each change, and each value that left it.
    Vault,
    /// Whether persons prove that they are there.
    Presence,
    /// Those who were told that somebody is asked.
    Notices,
}

impl std::fmt::Display for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(id) => write!(f, "{id}"),
            Self::Approval(id) => write!(f, "{id}"),
            Self::Grant(id) => write!(f, "{id}"),
            Self::Postures => f.write_str("postures"),
            Self::Agents => f.write_str("agents"),
            Self::Policy => f.write_str("policy"),
            Self::Daemon => f.write_str("daemon"),
            Self::Journal => f.write_str("journal"),
            Self::Vault => f.write_str("vault"),
            Self::Presence => f.write_str("presence"),
            Self::Notices => f.write_str("notices"),
        }
    }
}

/// How policy answered.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// Run it now.
    Permit,
    /// Ask a person.
    Ask,
    /// No.
    Deny(Denial),
}

/// Why a policy set came into force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum WhyActivated {
    /// The daemon started, and the folder held another set than the last one in force.
    Started,
    /// The folder changed while the daemon ran.
    Changed,
    /// A person had the folder read again.
    Reloaded,
    /// A person activated what was staged.
    Activated,
    /// A person went back to an earlier version.
    RolledBack {
        /// The number of that version.
        to: u64,
    },
}

impl WhyActivated {
    /// The word in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Changed => "changed",
            Self::Reloaded => "reloaded",
            Self::Activated => "activated",
            Self::RolledBack { .. } => "rolled_back",
        }
    }
}

/// From where a person answered.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AnsweredFrom {
    /// On which device.
    pub device: DeviceId,
    /// By which way.
    pub channel: Channel,
    /// In which session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
}

/// A content that was erased: only what it was, and the commitment to it, are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ErasedBlob {
    /// What it held.
    pub kind: BlobKind,
    /// What the entries before committed to.
    pub commitment: Commitment,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// A call came in.
    Proposed {
        /// The tool.
        tool: ToolName,
        /// From where.
        origin: Box<Origin>,
        /// Commitment to its arguments.
        arguments: Commitment,
    },
    /// Policy answered.
    Decided {
        /// How.
        #[serde(flatten)]
        answer: Answer,
        /// The policies that made the answer.
        matched: Vec<String>,
        /// The policy set in force.
        policy_version: String,
        /// Digest of the call, keyed and bound to it.
        digest: RecordedDigest,
        /// Commitment to everything that policy saw.
        facts: Commitment,
    },
    /// A person is asked. In the approval's stream.
    ApprovalRequested {
        /// The call that waits.
        call: CallId,
        /// Who asks.
        principal: Principal,
        /// The tool.
        tool: ToolName,
        /// Digest of the call, keyed and bound to it.
        digest: RecordedDigest,
        /// Commitment to its arguments.
        arguments: Commitment,
        /// When it is denied for want of an answer.
        expires_at: Timestamp,
        /// The session it was asked in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
        /// How bad the call can be; questions of before do not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        risk: Option<RiskLevel>,
        /// Whether the question stays when its asker is gone, for the same call made again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        detached: bool,
        /// The key that an answer must be signed with, when persons prove that they are there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approver: Option<ApproverKey>,
        /// How many people must say yes; one, unless it says more.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        people: u8,
    },
    /// A person answered. In the approval's stream.
    ApprovalDecided {
        /// What.
        decision: ApprovalDecision,
        /// Who.
        decided_by: UserName,
        /// Why, in their words.
        reason: Option<String>,
        /// From where; answers of before do not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Box<AnsweredFrom>>,
        /// The grant that was given with it, when it covers more than this one call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<GrantId>,
        /// Their signature, when persons prove that they are there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<Box<Signed>>,
    },
    /// Nobody answered in time. In the approval's stream.
    ApprovalExpired,
    /// The asker is gone. In the approval's stream.
    ApprovalCancelled {
        /// Why.
        reason: String,
    },
    /// A grant came into force that covers the call that waited. In the approval's stream.
    ApprovalSuperseded {
        /// Which.
        by: GrantId,
    },
    /// A yes to more than one call. In the grant's stream, with the answer that gave it.
    GrantMade {
        /// What it says.
        terms: Box<GrantTerms>,
    },
    /// A grant is over, for good. In the grant's stream.
    GrantEnded {
        /// Why.
        why: WhyEnded,
        /// The person who wanted it, when one did.
        by: Option<UserName>,
    },
    /// How a tool is treated from here on. In the stream of postures.
    PostureSet {
        /// For which calls.
        #[serde(flatten)]
        at: PostureLevel,
        /// Which tool.
        tool: ToolName,
        /// How; nothing said when it is absent.
        posture: Option<Posture>,
        /// Who wanted it.
        by: UserName,
    },
    /// The yes was used by this call. In the approval's stream, in the admission's transaction.
    GrantSpent {
        /// The call that ran.
        call: CallId,
    },
    /// The intent to execute, durable before anything runs.
    Admitted {
        /// Digest of the call, keyed and bound to it.
        digest: RecordedDigest,
        /// What exactly will run.
        plan: PlanSeal,
        /// The approval whose grant it spends.
        approval: Option<ApprovalId>,
        /// The grant under which it runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<GrantId>,
    },
    /// The execution ended.
    Finished {
        /// What the executor saw.
        report: ExecutionReport,
        /// Commitment to the output.
        output: Commitment,
    },
    /// The record of the execution.
    Attested {
        /// The attestation.
        attestation: ToolAttestation,
    },
    /// The call did not run, or its record was cut short; nothing follows in its stream.
    Closed {
        /// Why.
        denial: Denial,
    },
    /// An agent's client was told that it may do this by itself. Nothing ran here, and nothing is
    /// attested: what the client then did, it did outside. Nothing follows in the call's stream.
    Advised {
        /// Whether the client was told to have it run here instead, as a call of its own.
        rewritten: bool,
        /// The approval whose yes this rests on; it is spent unless the call is still to come.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval: Option<ApprovalId>,
        /// The grant that this rests on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<GrantId>,
    },
    /// An admitted call had no attestation when the daemon started: it may or may not have run.
    Interrupted,
    /// Contents of a call that is over were erased for good. In the call's stream, in the
    /// transaction that erased them.
    BlobErased {
        /// Which.
        blobs: Vec<ErasedBlob>,
        /// Who wanted it.
        by: UserName,
        /// Why, in their words.
        reason: Option<String>,
    },
    /// An agent was registered.
    AgentAdded {
        /// Its name.
        name: AgentName,
        /// For whom it acts.
        user: UserName,
        /// The folder it works on.
        workspace: std::path::PathBuf,
        /// Whether nobody is there to be asked about its calls.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unattended: bool,
    },
    /// An agent was removed.
    AgentRemoved {
        /// Its name.
        name: AgentName,
    },
    /// A policy set came into force. In the policy stream, before it decides anything.
    PolicyActivated {
        /// Counted from 1; every activation has its own, a rollback too.
        number: u64,
        /// Of the schema, the baseline and every file with its name.
        digest: Digest,
        /// What `decided` entries name it by.
        policy_version: String,
        /// The baseline's name.
        baseline: String,
        /// The operator's files, each with the digest of its text.
        files: BTreeMap<String, Digest>,
        /// Commitment to every text.
        sources: Commitment,
        /// Why.
        #[serde(flatten)]
        why: WhyActivated,
        /// The person who wanted it, when one did.
        by: Option<UserName>,
        /// Digest of what the folder holds and is not used until it changes.
        set_aside: Option<Digest>,
    },
    /// The folder holds policies that cannot be used; those before stay in force.
    PolicyRefused {
        /// Digest of what was refused.
        digest: Digest,
        /// What is wrong, the first of them.
        problems: Vec<String>,
    },
    /// The folder holds other policies, which wait for a person to activate them.
    PolicyStaged {
        /// Of the schema, the baseline and every file with its name.
        digest: Digest,
        /// The baseline's name.
        baseline: String,
        /// The operator's files, each with the digest of its text.
        files: BTreeMap<String, Digest>,
        /// Commitment to every text.
        sources: Commitment,
    },
    /// What was staged is no longer in the folder, which holds what is in force again.
    PolicyWithdrawn {
        /// What was staged.
        digest: Digest,
    },
    /// Calls were turned away before they were journaled, counted once a minute.
    Flooded {
        /// Whose.
        principal: Principal,
        /// Which limit.
        limit: String,
        /// How many since the last such entry.
        refused: u64,
    },
    /// The daemon started.
    DaemonStarted {
        /// Its version.
        version: String,
        /// Tells the key that seals blobs while it runs from others; entries of before do not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob_key: Option<String>,
    },
    /// What follows was appended under a key, and happens once. In the journal's own stream.
    AppendedOnce {
        /// The key, under another one that stays in the daemon's home.
        key: Digest,
        /// What follows this entry, in order.
        streams: Vec<AppendedTo>,
    },
    /// What was taken away from a workspace after a call is put back; recorded before it is.
    QuarantineRestored {
        /// Its id in the quarantine.
        item: String,
        /// Where it is put.
        path: String,
        /// Who wanted it.
        by: UserName,
    },
    /// A projection was compared with what its fold makes of all entries, differed, and is what it
    /// should be again. In the journal's own stream.
    ProjectionMended {
        /// Which.
        name: String,
        /// Rows that were something else.
        wrong: u64,
        /// Rows that were not there.
        missing: u64,
        /// Rows that should not have been there.
        unknown: u64,
    },
    /// Another key signs the journal from here on. In the journal's own stream.
    KeyRotated {
        /// The key so far.
        previous: String,
        /// The key from here on.
        next: String,
        /// What both of them signed; only the new one, if the old one was lost.
        note: String,
    },
    /// The vault changed: its generation, and what it is committed to. In the vault's stream.
    VaultChanged {
        /// Counts every change of the vault.
        generation: u64,
        /// Of the vault's signed head.
        head: Digest,
        /// What changed.
        #[serde(flatten)]
        change: VaultChange,
        /// Who wanted it, when somebody did.
        by: Option<Principal>,
        /// Whether this was written late, because a daemon ended between the two commits.
        mended: bool,
    },
    /// A value is about to leave the vault. In the vault's stream, before it does.
    SecretAccessed {
        /// Which secret.
        secret: SecretRef,
        /// Which version of it.
        version: u64,
        /// How.
        access: SecretAccess,
        /// By whom.
        by: Principal,
        /// For which call, when it is for one.
        call: Option<CallId>,
    },
    /// A call's arguments held a value of the vault: it was refused, and its arguments were not
    /// recorded. Never which value.
    SecretInArguments {
        /// Whose call.
        principal: Principal,
        /// Of which tool.
        tool: String,
        /// How often, since the agent was last resumed.
        times: u64,
        /// Whether the agent is paused from here on.
        paused: bool,
    },
    /// An agent may do nothing until a person resumes it.
    AgentPaused {
        /// Its name.
        name: AgentName,
        /// Who wanted it; nobody when it was paused by itself.
        by: Option<UserName>,
        /// Why.
        why: String,
    },
    /// A paused agent may act again.
    AgentResumed {
        /// Its name.
        name: AgentName,
        /// Who wanted it.
        by: UserName,
    },
    /// Whether persons prove that they are there, and how. In the stream of presence.
    PresenceChanged {
        /// What changed.
        #[serde(flatten)]
        change: PresenceChange,
        /// In which session, when it was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
    },
    /// Somebody elsewhere was told, or could not be told, that a person is asked. In the stream of
    /// notices.
    Notified {
        /// About which question.
        approval: ApprovalId,
        /// By which of the configured ways, by its name.
        way: String,
        /// How often it was tried.
        attempts: u32,
        /// Nothing when it arrived, else why the last try did not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
}

/// How many people say yes where nothing else is said.
const fn one() -> u8 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "it is what serde gives")]
const fn is_one(people: &u8) -> bool {
    *people == 1
}

impl Entry {
    /// The kind, as it stands in the record.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Proposed { .. } => "proposed",
            Self::Decided { .. } => "decided",
            Self::ApprovalRequested { .. } => "approval_requested",
            Self::ApprovalDecided { .. } => "approval_decided",
            Self::ApprovalExpired => "approval_expired",
            Self::ApprovalCancelled { .. } => "approval_cancelled",
            Self::ApprovalSuperseded { .. } => "approval_superseded",
            Self::GrantMade { .. } => "grant_made",
            Self::GrantEnded { .. } => "grant_ended",
            Self::PostureSet { .. } => "posture_set",
            Self::GrantSpent { .. } => "grant_spent",
            Self::Admitted { .. } => "admitted",
            Self::Finished { .. } => "finished",
            Self::Attested { .. } => "attested",
            Self::Closed { .. } => "closed",
            Self::Advised { .. } => "advised",
            Self::Interrupted => "interrupted",
            Self::BlobErased { .. } => "blob_erased",
            Self::AgentAdded { .. } => "agent_added",
            Self::AgentRemoved { .. } => "agent_removed",
            Self::PolicyActivated { .. } => "policy_activated",
            Self::PolicyRefused { .. } => "policy_refused",
            Self::PolicyStaged { .. } => "policy_staged",
            Self::PolicyWithdrawn { .. } => "policy_withdrawn",
            Self::Flooded { .. } => "flooded",
            Self::DaemonStarted { .. } => "daemon_started",
            Self::AppendedOnce { .. } => "appended_once",
            Self::QuarantineRestored { .. } => "quarantine_restored",
            Self::ProjectionMended { .. } => "projection_mended",
            Self::KeyRotated { .. } => "key_rotated",
            Self::VaultChanged { .. } => "vault_changed",
            Self::SecretAccessed { .. } => "secret_accessed",
            Self::SecretInArguments { .. } => "secret_in_arguments",
            Self::AgentPaused { .. } => "agent_paused",
            Self::AgentResumed { .. } => "agent_resumed",
            Self::PresenceChanged { .. } => "presence_changed",
            Self::Notified { .. } => "notified",
        }
    }
}

/// How much was appended to a stream.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AppendedTo {
    /// The stream's name.
    pub stream: String,
    /// Entries.
    pub entries: u64,
}

/// An entry with its place: what folds are fed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Place in the whole journal, from 1, without gaps.
    pub seq: u64,
    /// The stream.
    pub stream: String,
    /// Place in the stream, from 1.
    pub revision: u64,
    /// When it was recorded.
    pub at: Timestamp,
    /// What happened.
    pub entry: Entry,
}

/// One row of a projection: what a fold makes of the entries about one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The key, such as a call id; rows list in its order.
    pub key: String,
    /// The one thing rows are selected by, such as `pending`.
    pub state: String,
    /// The value as JSON.
    pub value: Vec<u8>,
}

/// A projection: a pure fold from entries to rows, owned by the room whose rule it is.
///
/// The journal applies it in the transaction that appends, so a row is never behind its entries.
pub trait Fold: Send + Sync {
    /// The projection's name.
    fn name(&self) -> &'static str;

    /// Which row this entry changes; `None` when it is not about this projection.
    fn key(&self, recorded: &Recorded) -> Option<String>;

    /// The row after this entry; `None` removes it. `before` is the row's value so far.
    fn fold(&self, before: Option<&[u8]>, recorded: &Recorded) -> Option<Row>;
}
