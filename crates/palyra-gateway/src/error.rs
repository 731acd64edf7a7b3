//! Refusals: what a front door answers when there is no call to speak of.
//!
//! A [`Refusal`] comes before a call exists (malformed arguments, an unknown tool) or concerns
//! something else than a call (an unknown id). A call that exists ends in a
//! [`Denial`] or an execution, and both are journaled.

use palyra_core::Denial;

/// Which family a refusal belongs to; the daemon maps each to one HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// The request makes no sense.
    Invalid,
    /// The request is too large.
    TooLarge,
    /// There is no such thing.
    NotFound,
    /// Policy, or who the caller is, forbids it.
    Forbidden,
    /// It contradicts what is already so.
    Conflict,
    /// Too much, too fast.
    TooMany,
    /// The daemon cannot do it now.
    Unavailable,
}

/// A no to a request, with a stable code, a sentence and the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The family.
    pub kind: RefusalKind,
    /// For programs.
    pub code: &'static str,
    /// For a person.
    pub message: String,
    /// What to do about it.
    pub next_step: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(
        kind: RefusalKind,
        code: &'static str,
        message: impl Into<String>,
        next_step: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            code,
            message: message.into(),
            next_step: next_step.into(),
        }
    }

    /// The arguments do not fit the tool.
    pub fn arguments(message: impl Into<String>, tool: &str) -> Self {
        let next_step = format!("see the schema with `palyra tools show {tool}`");
        Self::new(
            RefusalKind::Invalid,
            "invalid_arguments",
            message,
            next_step,
        )
    }

    /// A denial that concerns no call.
    #[must_use]
    pub fn denied(denial: Denial) -> Self {
        let Denial {
            code,
            reason,
            next_step,
        } = denial;
        use palyra_core::DenialCode as Code;
        let kind = match code {
            Code::RateLimited | Code::BudgetExhausted => RefusalKind::TooMany,
            Code::DeniedByPolicy
            | Code::EgressDenied
            | Code::SecretDenied
            | Code::PolicyUnavailable
            | Code::ApprovalDenied
            | Code::ApprovalExpired
            | Code::ApprovalPending
            | Code::NoApprover
            | Code::NeedsTwoPeople
            | Code::ToolDisabled
            | Code::ApprovalCancelled
            | Code::CallerGone
            | Code::GrantSpent
            | Code::SecretInArguments
            | Code::AgentPaused
            | Code::PlanChanged => RefusalKind::Forbidden,
            Code::JournalUnavailable
            | Code::SandboxUnavailable
            | Code::ShuttingDown
            | Code::VaultLocked => RefusalKind::Unavailable,
        };
        Self::new(kind, code.as_str(), reason, next_step)
    }
}

impl From<palyra_journal::JournalError> for Refusal {
    fn from(error: palyra_journal::JournalError) -> Self {
        if matches!(error, palyra_journal::JournalError::Keyless) {
            return Self::denied(Denial::new(
                palyra_core::DenialCode::VaultLocked,
                error.to_string(),
                error.remedy(),
            ));
        }
        tracing::error!(%error, "the journal failed");
        Self::new(
            RefusalKind::Unavailable,
            "journal_unavailable",
            format!("the journal cannot be used: {error}"),
            "see `palyra status`; free disk space or mend the journal's folder, then try again",
        )
    }
}

impl From<palyra_policy::PolicyError> for Refusal {
    fn from(error: palyra_policy::PolicyError) -> Self {
        tracing::error!(%error, "policy cannot take this in");
        Self::new(
            RefusalKind::Unavailable,
            "policy_unavailable",
            format!("policy cannot take this in: {error}"),
            "see the daemon's log; nothing runs until it is mended",
        )
    }
}
