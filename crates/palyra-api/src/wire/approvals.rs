//! Approvals, grants, postures: what waits for a person, what they allowed, what they set.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// An approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    /// The approval.
    pub approval_id: String,
    /// `pending`, `allowed`, `denied`, `expired`, `cancelled`, `superseded` or `spent`.
    pub state: String,
    /// The call that waits.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// Who asks.
    pub principal: String,
    /// When.
    pub requested_at: String,
    /// When it is denied for want of an answer.
    pub expires_at: String,
    /// Who answered.
    pub decided_by: Option<String>,
    /// When.
    pub decided_at: Option<String>,
    /// Why, in their words.
    pub reason: Option<String>,
    /// What will run, in one line that is safe to print: the program that was found first.
    pub summary: String,
    /// The program that was found, absolute, when one runs.
    pub program: Option<String>,
    /// The folder it works on.
    pub workspace: Option<String>,
    /// What it does to the machine, one line each, safe to print.
    pub effects: Vec<String>,
    /// The exact arguments, while they are kept.
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Value>,
    /// `low`, `medium`, `high` or `critical`.
    #[serde(default)]
    pub risk: String,
    /// Why, the worst first.
    #[serde(default)]
    pub risk_reasons: Vec<String>,
    /// What a person should know before they answer, one line each, safe to print: letters that look
    /// like others, names that are not what they seem, what an approval does not cover.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What the asker says about the call, safe to print. Not checked, and not to be trusted.
    #[serde(default)]
    pub untrusted_words: Option<String>,
    /// What changes in files, as a unified diff that is safe to print.
    #[serde(default)]
    pub diff: Option<String>,
    /// How far a yes can reach, the narrowest first.
    #[serde(default)]
    pub covers: Vec<Cover>,
    /// The session that asks.
    #[serde(default)]
    pub session_id: Option<String>,
    /// Whether the question stays when its asker is gone.
    #[serde(default)]
    pub detached: bool,
    /// From where it was answered.
    #[serde(default)]
    pub answered_from: Option<String>,
    /// The grant that was given with the yes, or that made the question needless.
    #[serde(default)]
    pub grant_id: Option<String>,
    /// How many bytes of the arguments a prompt leaves out. While there are some, an allow needs the
    /// code that comes with `?full=true`.
    #[serde(default)]
    pub hidden_bytes: u64,
    /// With `?full=true`: all of the arguments, safe to print.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
    /// With `?full=true`: what says that all of it was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_code: Option<String>,
}

/// In which way one call stands for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CoverKind {
    /// Only this call, word for word.
    Exact,
    /// The same program with the same options.
    Args,
    /// The same program, anywhere in the workspace.
    Program,
    /// The same program or tool, in the same folder.
    Dir,
    /// The same hosts, by the same program.
    Host,
    /// The same tool.
    Tool,
}

impl CoverKind {
    /// The word in flags and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Args => "args",
            Self::Program => "program",
            Self::Dir => "dir",
            Self::Host => "host",
            Self::Tool => "tool",
        }
    }
}

/// One way in which a yes can cover more than this one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cover {
    /// Which.
    pub cover: CoverKind,
    /// What a yes would cover, in words that are safe to print.
    pub sentence: String,
    /// As Cedar text; only where one approval is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What it would also have allowed among the last calls; only where one approval is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_before: Option<SeenBefore>,
}

/// What a draft of a grant would have covered, found by evaluating it on what was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SeenBefore {
    /// How many of the last calls were looked at, of everybody.
    pub looked_at: u64,
    /// How many of them it covers.
    pub covered: u64,
    /// Some of those, in one line each, safe to print.
    pub examples: Vec<String>,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Yes, to exactly what was shown.
    Allow,
    /// No.
    Deny,
}

/// How far a yes reaches in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// The call that waits, once.
    #[default]
    Once,
    /// Until the session that asked ends.
    Session,
    /// For a while.
    Window,
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// Yes or no.
    pub decision: Decision,
    /// Why; a deny reason goes back to the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How far a yes reaches in time.
    #[serde(default)]
    pub scope: Reach,
    /// What a yes for a session or a window covers; `exact` when not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cover: Option<CoverKind>,
    /// How long a yes for a window lasts, in milliseconds; 15 minutes when not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts_ms: Option<u64>,
    /// The code that says that all of it was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
}

/// A yes to more than one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// The grant.
    pub grant_id: String,
    /// `live` or `ended`.
    pub state: String,
    /// The agent it serves.
    pub agent: String,
    /// The tool.
    pub tool: String,
    /// `session` or `window`.
    pub scope: Reach,
    /// What it covers.
    pub cover: CoverKind,
    /// The same in words that are safe to print; absent when they were erased.
    pub sentence: Option<String>,
    /// The session it serves.
    pub session_id: Option<String>,
    /// The approval it came from.
    pub approval_id: String,
    /// The call that was shown.
    pub call_id: String,
    /// Who gave it.
    pub made_by: String,
    /// When.
    pub made_at: String,
    /// The first instant at which it is over.
    pub not_after: String,
    /// When it ended.
    pub ended_at: Option<String>,
    /// Why: `time_over`, `session_ended`, `restarted`, `agent_paused`, `agent_removed`, `revoked`.
    pub why_ended: Option<String>,
    /// The person who wanted that.
    pub ended_by: Option<String>,
    /// How many calls ran under it.
    pub uses: u64,
    /// When the last one did.
    pub last_used_at: Option<String>,
    /// As Cedar text; only where one grant is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// Which grant would cover a call if it were made again now, or why none does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explained {
    /// The call.
    pub call_id: String,
    /// The grant that would be put before policy.
    pub grant: Option<Grant>,
    /// What policy would answer: `run`, `ask` or `deny`.
    pub answer: String,
    /// Why, one line each, safe to print.
    pub reasons: Vec<String>,
}

/// How a tool is treated, more strictly than policy alone would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Posture {
    /// The tool.
    pub tool: String,
    /// `global`, `workspace:DIR`, `agent:NAME` or `session:ID`.
    pub level: String,
    /// `always_allow` (as policy says), `ask_each_time` or `disabled`.
    pub posture: String,
    /// Who set it.
    pub set_by: String,
    /// When.
    pub set_at: String,
}

/// A wish to set a posture, or to have nothing said any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PostureSet {
    /// The tool.
    pub tool: String,
    /// `global`, `workspace:DIR`, `agent:NAME` or `session:ID`.
    pub level: String,
    /// `always_allow`, `ask_each_time`, `disabled`; absent to have nothing said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posture: Option<String>,
}

/// How approvals went lately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// How many of the newest approvals were looked at.
    pub asked: u64,
    /// Answered yes.
    pub allowed: u64,
    /// Answered no.
    pub denied: u64,
    /// Not answered in time.
    pub expired: u64,
    /// Their asker went away, or a grant came first.
    pub dropped: u64,
    /// Waiting now.
    pub pending: u64,
    /// The median time between question and answer, in milliseconds.
    pub median_answer_ms: Option<u64>,
    /// Calls that ran under a grant, without a question.
    pub under_grants: u64,
    /// What is always allowed, with a narrow grant that would have spared the questions.
    pub proposals: Vec<StatsProposal>,
}

/// Something that was asked about often and always allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatsProposal {
    /// Who asks.
    pub principal: String,
    /// The tool.
    pub tool: String,
    /// What a grant would cover.
    pub cover: CoverKind,
    /// The same in words that are safe to print.
    pub sentence: String,
    /// How often it was asked about and allowed.
    pub times: u64,
}

/// What `GET /api/v1/watch` says: one JSON object a line. It names what changed; look it up for the
/// rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WatchEvent {
    /// It begins. What changed before is to be looked up now.
    Watching,
    /// An approval was asked for, decided, or ended.
    Approval {
        /// Which.
        id: String,
        /// Where it stands.
        state: String,
    },
    /// A grant was made or ended.
    Grant {
        /// Which.
        id: String,
        /// `live` or `ended`.
        state: String,
    },
    /// A call began, started to run or ended.
    Call {
        /// Which.
        id: String,
        /// `proposed`, `admitted` or `over`.
        state: String,
    },
    /// An agent was added, removed, paused or resumed.
    Agent {
        /// Which.
        name: String,
    },
    /// Postures changed.
    Postures,
    /// Policies were read again, and may decide otherwise.
    Policies,
    /// Too much happened at once to be told: look everything up again.
    Missed,
    /// Nothing happened for a while.
    Alive,
}
