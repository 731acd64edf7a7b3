//! The projection `calls`: where each call stands, folded from its entries.

use std::borrow::Cow;

use palyra_core::attestation::Ending;
use palyra_core::entry::{Answer, Entry, Fold, Recorded, Row};
use palyra_core::{
    ApprovalId, BlobKind, CallId, Commitment, DenialCode, Principal, Timestamp, ToolName,
};
use serde::{Deserialize, Serialize};

/// The projection's name. Its rows are selected by [`Selector`].
pub const CALLS: &str = "calls.2";

/// What rows are selected by: where the call stands, whose it is, and of which tool. One text, so
/// that one index serves them all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector<'a> {
    /// Where it stands.
    pub state: &'a str,
    /// Whose it is.
    pub principal: Cow<'a, str>,
    /// The tool.
    pub tool: &'a str,
}

impl<'a> Selector<'a> {
    /// Reads one. None of the three has a space in it.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let (state, rest) = text.split_once(' ')?;
        let (principal, tool) = rest.split_once(' ')?;
        Some(Self {
            state,
            principal: Cow::Borrowed(principal),
            tool,
        })
    }

    /// That of a row.
    #[must_use]
    pub fn of(row: &'a CallRow) -> Self {
        Self {
            state: row.state.as_str(),
            principal: Cow::Owned(row.principal.to_string()),
            tool: row.tool.as_str(),
        }
    }
}

impl std::fmt::Display for Selector<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.state, self.principal, self.tool)
    }
}

/// Where a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// It came in.
    Proposed,
    /// It waits for a person.
    Waiting,
    /// Its intent is durable; it runs, or ran when the daemon ended.
    Admitted,
    /// It ran to its end.
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
    /// The daemon ended while it ran.
    Interrupted,
    /// It did not run here: an agent's client was told that it may do it by itself.
    Advised,
}

impl CallState {
    /// The word in storage and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Waiting => "waiting",
            Self::Admitted => "admitted",
            Self::Completed => "completed",
            Self::Denied => "denied",
            Self::ApprovalDenied => "approval_denied",
            Self::ApprovalExpired => "approval_expired",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::SandboxUnavailable => "sandbox_unavailable",
            Self::Interrupted => "interrupted",
            Self::Advised => "advised",
        }
    }

    /// Where a denial leaves a call.
    #[must_use]
    pub const fn after_denial(code: DenialCode) -> Self {
        match code {
            DenialCode::DeniedByPolicy
            | DenialCode::PolicyUnavailable
            | DenialCode::RateLimited
            | DenialCode::SecretInArguments
            | DenialCode::AgentPaused
            | DenialCode::EgressDenied
            | DenialCode::SecretDenied
            | DenialCode::ApprovalPending
            | DenialCode::NoApprover
            | DenialCode::NeedsTwoPeople
            | DenialCode::ToolDisabled
            | DenialCode::BudgetExhausted => Self::Denied,
            DenialCode::ApprovalDenied | DenialCode::GrantSpent => Self::ApprovalDenied,
            DenialCode::ApprovalExpired => Self::ApprovalExpired,
            DenialCode::ApprovalCancelled | DenialCode::CallerGone | DenialCode::ShuttingDown => {
                Self::Cancelled
            }
            DenialCode::SandboxUnavailable => Self::SandboxUnavailable,
            DenialCode::JournalUnavailable | DenialCode::VaultLocked | DenialCode::PlanChanged => {
                Self::Failed
            }
        }
    }

    /// Where an execution leaves a call.
    #[must_use]
    pub const fn after(ending: &Ending) -> Self {
        use palyra_core::RunErrorKind as Kind;
        match ending {
            Ending::Exited { .. } | Ending::Signalled { .. } => Self::Completed,
            Ending::TimedOut => Self::TimedOut,
            Ending::Cancelled { .. } => Self::Cancelled,
            Ending::Failed {
                kind: Kind::SandboxUnavailable | Kind::SandboxDegraded,
                ..
            } => Self::SandboxUnavailable,
            Ending::Failed {
                kind:
                    Kind::ProgramNotFound
                    | Kind::ProgramNotExecutable
                    | Kind::InvalidInput
                    | Kind::Changed
                    | Kind::ProgramChanged
                    | Kind::WorkspaceScopeDenied
                    | Kind::PathMasked
                    | Kind::PathReadOnly
                    | Kind::MaskLost
                    | Kind::EgressDenied
                    | Kind::RuntimeFailure,
                ..
            } => Self::Failed,
        }
    }
}

/// One call, as listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRow {
    /// The call.
    pub call: CallId,
    /// The tool.
    pub tool: ToolName,
    /// Who asked.
    pub principal: Principal,
    /// When.
    pub proposed_at: Timestamp,
    /// Where it stands.
    pub state: CallState,
    /// The exit code, when a process ran to its end.
    pub exit_code: Option<i32>,
    /// Stable code of the denial or failure.
    pub code: Option<String>,
    /// The approval it waited for.
    pub approval: Option<ApprovalId>,
    /// How long the execution took, in milliseconds.
    pub took_ms: Option<u64>,
    /// Its arguments.
    pub arguments: Commitment,
    /// What policy saw when it decided last.
    pub facts: Option<Commitment>,
    /// What it gave back.
    pub output: Option<Commitment>,
    /// Which of these were erased.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub erased: Vec<BlobKind>,
}

/// The fold behind [`CALLS`].
pub struct CallsFold;

impl Fold for CallsFold {
    fn name(&self) -> &'static str {
        CALLS
    }

    fn key(&self, recorded: &Recorded) -> Option<String> {
        match &recorded.entry {
            Entry::ApprovalRequested { call, .. } => Some(call.to_string()),
            Entry::Proposed { .. }
            | Entry::Decided { .. }
            | Entry::Admitted { .. }
            | Entry::Finished { .. }
            | Entry::Closed { .. }
            | Entry::Advised { .. }
            | Entry::Interrupted
            | Entry::BlobErased { .. } => Some(recorded.stream.clone()),
            Entry::Attested { .. }
            | Entry::ApprovalDecided { .. }
            | Entry::ApprovalExpired
            | Entry::ApprovalCancelled { .. }
            | Entry::GrantSpent { .. }
            | Entry::ApprovalSuperseded { .. }
            | Entry::GrantMade { .. }
            | Entry::GrantEnded { .. }
            | Entry::PostureSet { .. }
            | Entry::AgentPaused { .. }
            | Entry::AgentAdded { .. }
            | Entry::AgentRemoved { .. }
            | Entry::PolicyActivated { .. }
            | Entry::PolicyRefused { .. }
            | Entry::PolicyStaged { .. }
            | Entry::PolicyWithdrawn { .. }
            | Entry::Flooded { .. }
            | Entry::DaemonStarted { .. }
            | Entry::AppendedOnce { .. }
            | Entry::QuarantineRestored { .. }
            | Entry::ProjectionMended { .. }
            | Entry::VaultChanged { .. }
            | Entry::SecretAccessed { .. }
            | Entry::SecretInArguments { .. }
            | Entry::AgentResumed { .. }
            | Entry::PresenceChanged { .. }
            | Entry::Notified { .. }
            | Entry::KeyRotated { .. } => None,
        }
    }

    fn fold(&self, before: Option<&[u8]>, recorded: &Recorded) -> Option<Row> {
        let before = before.and_then(|bytes| serde_json::from_slice::<CallRow>(bytes).ok());
        let row = match before {
            None => first(recorded)?,
            Some(row) => next(row, recorded),
        };
        Some(Row {
            key: row.call.to_string(),
            state: Selector::of(&row).to_string(),
            value: serde_json::to_vec(&row).ok()?,
        })
    }
}

fn first(recorded: &Recorded) -> Option<CallRow> {
    let Entry::Proposed {
        tool,
        origin,
        arguments,
    } = &recorded.entry
    else {
        return None;
    };
    Some(CallRow {
        call: recorded.stream.parse().ok()?,
        tool: tool.clone(),
        principal: origin.principal.clone(),
        proposed_at: recorded.at,
        state: CallState::Proposed,
        exit_code: None,
        code: None,
        approval: None,
        took_ms: None,
        arguments: *arguments,
        facts: None,
        output: None,
        erased: Vec::new(),
    })
}

fn next(mut row: CallRow, recorded: &Recorded) -> CallRow {
    match &recorded.entry {
        Entry::ApprovalRequested { .. } => {
            row.state = CallState::Waiting;
            row.approval = recorded.stream.parse().ok();
        }
        Entry::Decided { answer, facts, .. } => {
            row.facts = Some(*facts);
            match answer {
                Answer::Permit | Answer::Ask => {}
                Answer::Deny(denial) => row.code = Some(denial.code.as_str().to_owned()),
            }
        }
        Entry::Admitted { .. } => row.state = CallState::Admitted,
        Entry::Finished { report, output } => {
            row.state = CallState::after(&report.ending);
            row.output = Some(*output);
            let took = report.ended_at.since(report.started_at);
            row.took_ms = Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            match &report.ending {
                Ending::Exited { code } => row.exit_code = Some(*code),
                Ending::Failed { kind, .. } => row.code = Some(kind.as_str().to_owned()),
                Ending::Signalled { .. } | Ending::TimedOut | Ending::Cancelled { .. } => {}
            }
        }
        Entry::Closed { denial } => {
            row.state = CallState::after_denial(denial.code);
            row.code = Some(denial.code.as_str().to_owned());
        }
        Entry::Advised { .. } => row.state = CallState::Advised,
        Entry::Interrupted => row.state = CallState::Interrupted,
        Entry::BlobErased { blobs, .. } => {
            row.erased.extend(blobs.iter().map(|blob| blob.kind));
            row.erased.sort_by_key(|kind| kind.as_str());
            row.erased.dedup();
        }
        Entry::Proposed { .. }
        | Entry::Attested { .. }
        | Entry::ApprovalDecided { .. }
        | Entry::ApprovalExpired
        | Entry::ApprovalCancelled { .. }
        | Entry::GrantSpent { .. }
        | Entry::ApprovalSuperseded { .. }
        | Entry::GrantMade { .. }
        | Entry::GrantEnded { .. }
        | Entry::PostureSet { .. }
        | Entry::AgentPaused { .. }
        | Entry::AgentAdded { .. }
        | Entry::AgentRemoved { .. }
        | Entry::PolicyActivated { .. }
        | Entry::PolicyRefused { .. }
        | Entry::PolicyStaged { .. }
        | Entry::PolicyWithdrawn { .. }
        | Entry::Flooded { .. }
        | Entry::DaemonStarted { .. }
        | Entry::AppendedOnce { .. }
        | Entry::QuarantineRestored { .. }
        | Entry::ProjectionMended { .. }
        | Entry::VaultChanged { .. }
        | Entry::SecretAccessed { .. }
        | Entry::SecretInArguments { .. }
        | Entry::AgentResumed { .. }
        | Entry::PresenceChanged { .. }
        | Entry::Notified { .. }
        | Entry::KeyRotated { .. } => {}
    }
    row
}
