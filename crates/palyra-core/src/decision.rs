//! Denials as values, and what a person may decide.

/// Why a call does not run. The text of each code is stable: programs compare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenialCode {
    /// No policy allows it, or one forbids it.
    DeniedByPolicy,
    /// Policy could not be evaluated, so the gate stays closed.
    PolicyUnavailable,
    /// A person said no.
    ApprovalDenied,
    /// Nobody answered in time.
    ApprovalExpired,
    /// The asker went away before anybody answered.
    ApprovalCancelled,
    /// A person was asked, and nobody waits for the answer: the same call made again has it.
    ApprovalPending,
    /// Nobody is there to be asked: the agent works unattended.
    NoApprover,
    /// Policy demands the yes of two people, and there is one.
    NeedsTwoPeople,
    /// A person turned this tool off.
    ToolDisabled,
    /// The asker went away before it started.
    CallerGone,
    /// The yes was used already, or ended.
    GrantSpent,
    /// The intent could not be made durable.
    JournalUnavailable,
    /// The plan changed between decision and execution.
    PlanChanged,
    /// The sandbox cannot be built on this machine.
    SandboxUnavailable,
    /// Too many calls, asks or waiting approvals.
    RateLimited,
    /// The run used up its calls, time or bytes.
    BudgetExhausted,
    /// The daemon is on its way down.
    ShuttingDown,
    /// The vault's key is not here, or its file is not the one it was.
    VaultLocked,
    /// A value of the vault stands in the arguments.
    SecretInArguments,
    /// The agent did something for which it may do nothing more until a person says so.
    AgentPaused,
    /// A host that the call asks for may not be reached.
    EgressDenied,
    /// A secret that the call wants to use may not be used, or is not there.
    SecretDenied,
}

impl DenialCode {
    /// The stable text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeniedByPolicy => "denied_by_policy",
            Self::PolicyUnavailable => "policy_unavailable",
            Self::ApprovalDenied => "approval_denied",
            Self::ApprovalExpired => "approval_expired",
            Self::ApprovalCancelled => "approval_cancelled",
            Self::ApprovalPending => "approval_pending",
            Self::NoApprover => "no_approver",
            Self::NeedsTwoPeople => "needs_two_people",
            Self::ToolDisabled => "tool_disabled",
            Self::CallerGone => "caller_gone",
            Self::GrantSpent => "grant_spent",
            Self::JournalUnavailable => "journal_unavailable",
            Self::PlanChanged => "plan_changed",
            Self::SandboxUnavailable => "sandbox_unavailable",
            Self::RateLimited => "rate_limited",
            Self::BudgetExhausted => "budget_exhausted",
            Self::ShuttingDown => "shutting_down",
            Self::VaultLocked => "vault_locked",
            Self::SecretInArguments => "secret_in_arguments",
            Self::AgentPaused => "agent_paused",
            Self::EgressDenied => "egress_denied",
            Self::SecretDenied => "secret_denied",
        }
    }
}

/// A no: a stable code, a sentence for a person, and the next step.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Denial {
    /// For programs.
    pub code: DenialCode,
    /// For a person.
    pub reason: String,
    /// What to do about it.
    pub next_step: String,
}

impl Denial {
    /// A denial.
    #[must_use]
    pub fn new(code: DenialCode, reason: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            next_step: next_step.into(),
        }
    }
}

/// What a person answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// Yes, to exactly what was shown.
    Allow,
    /// No.
    Deny,
}
