//! The shapes of requests and answers. Fields are added, never renamed or removed.

pub mod approvals;
pub mod policy;
pub mod presence;
pub mod vault;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use approvals::{
    Approval, Cover, CoverKind, Decide, Decision, Explained, Grant, Posture, PostureSet, Reach,
    SeenBefore, Stats, StatsProposal, WatchEvent,
};

/// The header by which an owner's connection is lowered to one of their agents (`agent:NAME`).
/// It never raises: any other value, or an unknown agent, is refused.
pub const AS_HEADER: &str = "palyra-as";

/// The header by which an agent's connection says that it serves an agent's own client: `mcp` or
/// `hook`. Its session is then the sending process's own. Only a lowered connection may say so.
pub const CHANNEL_HEADER: &str = "palyra-channel";

/// An error: a stable code, a sentence, the next step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// For programs.
    pub code: String,
    /// For a person.
    pub message: String,
    /// What to do about it.
    pub next_step: String,
}

/// The body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong.
    pub error: Problem,
}

/// What `GET /healthz` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or `degraded` when no call can be executed.
    pub status: String,
}

/// What `GET /api/v1/status` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// When it started.
    pub started_at: String,
    /// Who you are to it, such as `user:owner` or `agent:claude`.
    pub principal: String,
    /// What person actions demand: `off`, `passphrase` or `device`.
    pub presence: String,
    /// The policy set in force, as `decided` entries name it.
    pub policy_version: String,
    /// Its number; see `GET /api/v1/policy/versions`.
    #[serde(default)]
    pub policy_number: u64,
    /// The digest of policies that wait for a person to activate them.
    #[serde(default)]
    pub policy_staged: Option<String>,
    /// The baseline in force.
    pub baseline: String,
    /// Calls running now.
    pub running_calls: u64,
    /// Approvals waiting for a person.
    pub pending_approvals: u64,
    /// The newest entry of the journal.
    pub journal_head: u64,
    /// `writable`, or why not.
    pub journal_state: String,
    /// Where the journal's keys are, in words.
    #[serde(default)]
    pub journal_keys: String,
    /// What the sandbox can do here.
    #[schema(value_type = Object)]
    pub sandbox: Value,
    /// Calls that were cut short by the end of an earlier daemon and closed at this start.
    pub interrupted_at_start: Vec<String>,
    /// Things an operator should know.
    pub warnings: Vec<String>,
}

/// What `GET /api/v1/doctor` says: what this machine gives to the sandbox, really tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Doctor {
    /// Whether Tier-C can run.
    pub tier_c: bool,
    /// Whether Tier-B can run.
    pub tier_b: bool,
    /// One by one.
    pub checks: Vec<DoctorCheck>,
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoctorCheck {
    /// Which, such as `landlock` or `user_namespace`.
    pub name: String,
    /// `works`, `missing` or `not_needed`.
    pub state: String,
    /// What it is needed for.
    pub needed_for: String,
    /// What was seen.
    pub found: String,
    /// What to do about it; absent when it works.
    pub remedy: Option<String>,
}

/// A tool, as listed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// What it needs.
    pub capabilities: Vec<String>,
    /// Whether an agent's call to it needs approval.
    pub sensitive: bool,
    /// How many bytes of arguments it takes.
    pub max_input_bytes: u64,
    /// The JSON Schema of its arguments.
    #[schema(value_type = Object)]
    pub input_schema: Value,
    /// The limits of a call that asks for none.
    #[schema(value_type = Object)]
    pub default_limits: Value,
}

/// What an agent hears about its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ToolsEvent {
    /// It begins. What changed before is to be looked up now.
    Watching,
    /// The list is another one.
    Changed,
    /// Nothing happened for a while.
    Alive,
}

/// A list, newest first where it has an age.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Pass it as `before` (for the journal as `after`) for what follows; absent at the end.
    pub next: Option<String>,
}

/// A registered agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// For whom it acts.
    pub user: String,
    /// The folder it works on.
    pub workspace: String,
    /// When it was registered.
    pub registered_at: String,
    /// Whether it may do nothing until a person resumes it.
    #[serde(default)]
    pub paused: bool,
    /// Why, when somebody said.
    #[serde(default)]
    pub paused_for: Option<String>,
    /// Whether nobody is there to be asked about its calls: what would be asked is denied.
    #[serde(default)]
    pub unattended: bool,
}

/// A wish to register an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAgent {
    /// Its name.
    pub name: String,
    /// The folder it works on, absolute.
    pub workspace: String,
    /// Whether nobody is there to be asked about its calls: what would be asked is denied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
}

/// Why an agent is paused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseAgent {
    /// For the record; it goes back to the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A wish to call a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CallRequest {
    /// Which tool.
    pub tool: String,
    /// Its arguments.
    #[schema(value_type = Object)]
    pub arguments: Value,
    /// The folder to work on, absolute; an agent's is fixed and need not be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// How large your terminal is, for a call with `interactive: "terminal"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// What you say about the call, at most 2,000 bytes. A person sees it apart from what will run,
    /// as your words; policy never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// Do not wait for a person. If one must be asked, the question stays until it expires, and the
    /// same call made again runs once after a yes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detach: bool,
    /// With `detach`: wait this long for a person all the same, before the question is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_ms: Option<u64>,
}

/// A call that was decided about before, by the token that was given for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RedeemCall {
    /// The token. It is used up by this.
    pub redeem: String,
}

/// What an agent's client is about to do with a tool of its own, as the call that it amounts to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdviceRequest {
    /// Which tool of ours it amounts to.
    pub tool: String,
    /// Its arguments.
    #[schema(value_type = Object)]
    pub arguments: Value,
    /// What the agent says about it; see [`CallRequest::said`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// Whether the client can be told to run something else: then it is to run here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rewritable: bool,
}

impl AdviceRequest {
    /// The call.
    #[must_use]
    pub fn call(self) -> CallRequest {
        CallRequest {
            tool: self.tool,
            arguments: self.arguments,
            workspace: None,
            window: None,
            said: self.said,
            detach: true,
            patience_ms: None,
        }
    }
}

/// The answer to an agent's client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdviceAnswer {
    /// `allow`, `deny`, or `pending` when a person is asked.
    pub decision: String,
    /// The record of this.
    pub call_id: String,
    /// With `allow` and `rewritable`: what to run it by, once, within two minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// Which approval waits, or was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
}

/// How large a terminal is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// Something for a call that takes input while it runs. All of it at once, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CallInput {
    /// Your terminal is this large now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Bytes for it to read, at most 64 KiB of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Nothing more comes: a pipe ends, and in a terminal Ctrl-D is typed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub end: bool,
}

/// What was sent is on its way to the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InputTaken {
    /// To which one.
    pub call_id: String,
}

/// How a call came out; apart from the exit code of what it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran to its end; the exit code may still be anything.
    Completed,
    /// Policy, a budget or a limit said no.
    Denied,
    /// A person said no, or the yes was used up.
    ApprovalDenied,
    /// Nobody answered in time.
    ApprovalExpired,
    /// Its time was over.
    TimedOut,
    /// Its caller went away or the daemon stopped.
    Cancelled,
    /// It could not run, or broke on the way.
    Failed,
    /// The sandbox cannot be built here.
    SandboxUnavailable,
    /// The daemon ended while it ran; whether it finished is not known.
    Interrupted,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallResult {
    /// The call.
    pub call_id: String,
    /// How it came out.
    pub outcome: Outcome,
    /// The exit code of the process, when one ran to its end.
    pub exit_code: Option<i32>,
    /// The signal that ended the process.
    pub signal: Option<i32>,
    /// What the tool gave back.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    /// Why it did not run, or what broke.
    pub problem: Option<Problem>,
    /// The approval it waited for.
    pub approval_id: Option<String>,
    /// The record of its execution.
    #[schema(value_type = Option<Object>)]
    pub attestation: Option<Value>,
}

/// Which stream a piece of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a caller hears while a call goes on: one JSON object a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CallEvent {
    /// The call has an id.
    Accepted {
        /// The call.
        call_id: String,
    },
    /// The call waits for a person.
    ApprovalPending {
        /// The call.
        call_id: String,
        /// What to decide.
        approval_id: String,
        /// When it is denied for want of an answer.
        expires_at: String,
        /// Whether it joined an identical call that was waiting already.
        joined: bool,
    },
    /// It runs.
    Started,
    /// A piece of output, base64.
    Output {
        /// From which stream.
        stream: OutputStream,
        /// The bytes.
        base64: String,
        /// How many bytes of this stream before these were not sent, because you took nothing for
        /// a while. As far as they are kept, they are in the result.
        #[serde(default, skip_serializing_if = "is_zero")]
        missed: u64,
    },
    /// A connection of it ended, or was refused. All of them are in the result.
    Connection {
        /// Name, address, port, bytes, rule, duration and how it ended.
        record: Value,
    },
    /// It ended; nothing follows.
    Finished {
        /// How.
        result: Box<CallResult>,
    },
    /// It could not even be proposed; nothing follows.
    Refused {
        /// Why.
        error: Problem,
    },
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A call, as listed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallSummary {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// Who asked.
    pub principal: String,
    /// When.
    pub proposed_at: String,
    /// `proposed`, `waiting`, `admitted`, or how it came out.
    pub state: String,
    /// The exit code, when a process ran to its end.
    pub exit_code: Option<i32>,
    /// Stable code of the denial or failure.
    pub code: Option<String>,
    /// The approval it waited for.
    pub approval_id: Option<String>,
    /// How long the execution took, in milliseconds.
    pub took_ms: Option<u64>,
}

/// A call with its whole record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallDetail {
    /// As listed.
    #[serde(flatten)]
    pub summary: CallSummary,
    /// Its arguments, while they are kept.
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Value>,
    /// Everything policy saw, while it is kept.
    #[schema(value_type = Option<Object>)]
    pub facts: Option<Value>,
    /// What it gave back, while it is kept.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    /// Which of these were erased: `arguments`, `facts`, `output`.
    #[serde(default)]
    pub erased: Vec<String>,
    /// Which of these are kept and do not open: they were changed, or sealed with another key.
    #[serde(default)]
    pub unreadable: Vec<String>,
    /// The entries of its stream.
    pub entries: Vec<JournalEntry>,
}

/// Which contents of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EraseWhat {
    /// Its arguments, and what policy saw of them.
    Arguments,
    /// Its environment values; they are kept with the arguments, so both go.
    Environment,
    /// What it gave back.
    Output,
    /// All of it.
    #[default]
    All,
}

/// What to erase of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EraseCall {
    /// Which contents.
    #[serde(default)]
    pub what: EraseWhat,
    /// Why, for the record. It is not erased later: say no secret.
    #[serde(default)]
    pub reason: Option<String>,
}

/// A content that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErasedContent {
    /// What it was.
    pub kind: String,
    /// What the entries commit to.
    pub commitment: String,
}

/// What was erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallErased {
    /// Of which call.
    pub call_id: String,
    /// What went now; empty when it was gone already.
    pub erased: Vec<ErasedContent>,
    /// The entry about it.
    pub seq: Option<u64>,
    /// Whether the sealed bytes are gone from every file of the journal. If not, somebody is reading
    /// it, and they go once that is over.
    pub log_cleared: bool,
}

/// Something that appeared during a call and was taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quarantined {
    /// Its id.
    pub id: String,
    /// The workspace it was in.
    pub workspace: String,
    /// Where it was, beneath the workspace.
    pub path: String,
    /// Why it could not stay.
    pub why: String,
    /// When it was taken away.
    pub taken_at: String,
}

/// What was found in one projection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProjectionRebuilt {
    /// Which.
    pub name: String,
    /// Rows as they should be.
    pub rows: u64,
    /// Rows that were something else.
    pub wrong: u64,
    /// Rows that were not there.
    pub missing: u64,
    /// Rows that should not have been there.
    pub unknown: u64,
}

/// What a rebuild found. Everything that differed is mended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JournalRebuilt {
    /// Entries that were read.
    pub entries: u64,
    /// Each projection.
    pub projections: Vec<ProjectionRebuilt>,
    /// The entry about what was mended; absent when nothing differed.
    pub seq: Option<u64>,
}

/// The journal's head, and that it continues an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JournalHead {
    /// The key that signs, as `NAME+HASH+BASE64`.
    pub key: String,
    /// The signed checkpoint: a C2SP note.
    pub checkpoint: String,
    /// The consistency proof of RFC 6962, in base64, when an earlier size was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues: Option<Vec<String>>,
}

/// One entry of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JournalEntry {
    /// Its place in the journal.
    pub seq: u64,
    /// Its stream.
    pub stream: String,
    /// Its place in the stream.
    pub revision: u64,
    /// When it was recorded.
    pub at: String,
    /// What kind.
    pub kind: String,
    /// The entry.
    #[schema(value_type = Object)]
    pub entry: Value,
}
