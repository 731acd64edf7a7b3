//! The steps of an approval, each as the entry to append and the revision to append it at.
//!
//! A step is computed from a record that may be out of date by the time it reaches the journal.
//! That is safe: the journal appends it only while the stream still has [`Transition::expected`]
//! entries, so of two steps from the same record one wins.

use std::time::Duration;

use palyra_core::entry::{AnsweredFrom, Entry, Stream};
use palyra_core::{
    AgentName, ApprovalDecision, ApprovalId, GrantId, Principal, Reach, ScopeKind, Signed,
    Timestamp, UserName,
};

use crate::record::{ApprovalRecord, ApprovalState, PendingToolApproval};
use crate::render;

/// How long a person has to answer, unless configured otherwise.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(10 * 60);

/// How long a reason may be; it is kept in the journal for good.
pub const MAX_REASON_BYTES: usize = 2_000;

/// The next entry of an approval's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "nothing has happened until the journal has appended it"]
pub struct Transition {
    /// The approval's stream.
    pub stream: Stream,
    /// How many entries the stream must have for this one to be appended.
    pub expected: u64,
    /// What to append.
    pub entry: Entry,
}

impl Transition {
    /// The same answer, with from where it was given and the grant that was given with it.
    pub fn answered(mut self, place: AnsweredFrom, given: Option<GrantId>) -> Self {
        if let Entry::ApprovalDecided { from, grant, .. } = &mut self.entry {
            *from = Some(Box::new(place));
            *grant = given;
        }
        self
    }

    /// The same answer, signed by the person who gives it.
    pub fn signed(mut self, by: Signed) -> Self {
        if let Entry::ApprovalDecided { signed, .. } = &mut self.entry {
            *signed = Some(Box::new(by));
        }
        self
    }
}

/// Why a step is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Somebody answered already, and a decided approval never changes.
    #[error("approval `{id}` was decided already: {state} by `{by}` at {at}")]
    AlreadyDecided {
        /// The approval.
        id: ApprovalId,
        /// Who decided.
        by: UserName,
        /// When.
        at: Timestamp,
        /// What became of it.
        state: ApprovalState,
    },
    /// The time to answer is over.
    #[error("approval `{id}` expired at {at}")]
    Expired {
        /// The approval.
        id: ApprovalId,
        /// When.
        at: Timestamp,
    },
    /// The asker went away.
    #[error("approval `{id}` was cancelled: {reason}")]
    Cancelled {
        /// The approval.
        id: ApprovalId,
        /// Why, safe to print.
        reason: String,
    },
    /// A grant covers the call by now.
    #[error("approval `{id}` is needless: a grant covers the call")]
    Superseded {
        /// The approval.
        id: ApprovalId,
    },
    /// A yes cannot reach so far.
    #[error("{why}")]
    NotGrantable {
        /// Why.
        why: String,
        /// What the call can be covered by.
        covers: Vec<ScopeKind>,
        /// What was wanted.
        reach: Reach,
    },
    /// Part of what would run was not shown.
    #[error("{bytes} bytes of what `{id}` would run were not shown")]
    NotShown {
        /// The approval.
        id: ApprovalId,
        /// How many.
        bytes: usize,
    },
    /// An agent never decides, for itself or for another.
    #[error("agent `{agent}` may not decide an approval; a person does")]
    AgentMayNotDecide {
        /// Which agent tried.
        agent: AgentName,
    },
    /// There is still time to answer.
    #[error("approval `{id}` waits until {until}")]
    NotExpiredYet {
        /// The approval.
        id: ApprovalId,
        /// Until when.
        until: Timestamp,
    },
    /// The reason would fill the journal.
    #[error("the reason has {bytes} bytes; at most {MAX_REASON_BYTES} are kept")]
    ReasonTooLong {
        /// How long it is.
        bytes: usize,
    },
}

impl Refused {
    /// The stable text for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::AlreadyDecided { .. } => "already_decided",
            Self::Expired { .. } => "approval_expired",
            Self::Cancelled { .. } => "approval_cancelled",
            Self::Superseded { .. } => "approval_superseded",
            Self::NotGrantable { .. } => "not_grantable",
            Self::NotShown { .. } => "not_shown",
            Self::AgentMayNotDecide { .. } => "agent_may_not_decide",
            Self::NotExpiredYet { .. } => "not_expired_yet",
            Self::ReasonTooLong { .. } => "reason_too_long",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::AlreadyDecided { id, .. } => {
                format!("see what was decided with `palyra approvals show {id}`")
            }
            Self::Superseded { id } => format!("see which one with `palyra approvals show {id}`"),
            Self::NotGrantable { covers, .. } => {
                let covers: Vec<&str> = covers.iter().map(|cover| cover.flag()).collect();
                format!(
                    "choose another `--scope`, or of `--cover` {}",
                    covers.join("|")
                )
            }
            Self::NotShown { id, .. } => format!(
                "see all of it with `palyra approvals show {id} --full`, which ends with the code \
                 for `--shown`"
            ),
            Self::Expired { .. } | Self::Cancelled { .. } => {
                "repeat the call to be asked again; see what waits with `palyra approvals list`"
                    .to_owned()
            }
            Self::AgentMayNotDecide { .. } => {
                "decide as yourself: `palyra approvals decide ID --decision allow|deny`".to_owned()
            }
            Self::NotExpiredYet { id, .. } => {
                format!("decide it with `palyra approvals decide {id} --decision allow|deny`")
            }
            Self::ReasonTooLong { .. } => {
                "shorten `--reason` of `palyra approvals decide`".to_owned()
            }
        }
    }
}

/// Puts a call before a person.
pub fn ask(pending: &PendingToolApproval) -> Transition {
    Transition {
        stream: Stream::Approval(pending.id.clone()),
        expected: 0,
        entry: Entry::ApprovalRequested {
            call: pending.call.clone(),
            principal: pending.principal.clone(),
            tool: pending.tool.clone(),
            digest: pending.digest.recorded(&pending.call),
            arguments: pending.arguments,
            expires_at: pending.expires_at,
            session: pending.session.clone(),
            risk: Some(pending.risk),
            detached: pending.detached,
            approver: pending.approver,
            people: pending.people,
        },
    }
}

/// A person's answer.
///
/// # Errors
/// The decider is an agent, the time is over (the last instant is already over, as it is for a
/// grant), the approval is not pending, or the reason is too long.
pub fn decide(
    record: &ApprovalRecord,
    decision: ApprovalDecision,
    by: &Principal,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<Transition, Refused> {
    let decided_by = match by {
        Principal::User { name } => name.clone(),
        Principal::Agent { name, .. } => {
            return Err(Refused::AgentMayNotDecide {
                agent: name.clone(),
            });
        }
    };
    still_pending(record)?;
    if now >= record.expires_at {
        return Err(expired(record));
    }
    let reason = reason.map(str::trim).filter(|reason| !reason.is_empty());
    if let Some(bytes) = reason.map(str::len)
        && bytes > MAX_REASON_BYTES
    {
        return Err(Refused::ReasonTooLong { bytes });
    }
    Ok(next(
        record,
        Entry::ApprovalDecided {
            decision,
            decided_by,
            reason: reason.map(str::to_owned),
            from: None,
            grant: None,
            signed: None,
        },
    ))
}

/// A grant came into force that covers the call that waits.
///
/// # Errors
/// The approval is not pending.
pub fn supersede(record: &ApprovalRecord, by: &GrantId) -> Result<Transition, Refused> {
    still_pending(record)?;
    Ok(next(record, Entry::ApprovalSuperseded { by: by.clone() }))
}

/// Nobody answered in time.
///
/// # Errors
/// There is still time, or the approval is not pending.
pub fn expire(record: &ApprovalRecord, now: Timestamp) -> Result<Transition, Refused> {
    still_pending(record)?;
    if now < record.expires_at {
        return Err(Refused::NotExpiredYet {
            id: record.id.clone(),
            until: record.expires_at,
        });
    }
    Ok(next(record, Entry::ApprovalExpired))
}

/// The asker is gone. A reason longer than [`MAX_REASON_BYTES`] is cut.
///
/// # Errors
/// The approval is not pending: a yes that nobody uses simply ends.
pub fn cancel(record: &ApprovalRecord, why: &str) -> Result<Transition, Refused> {
    still_pending(record)?;
    let reason = why.get(..why.floor_char_boundary(MAX_REASON_BYTES));
    Ok(next(
        record,
        Entry::ApprovalCancelled {
            reason: reason.unwrap_or_default().to_owned(),
        },
    ))
}

fn next(record: &ApprovalRecord, entry: Entry) -> Transition {
    Transition {
        stream: Stream::Approval(record.id.clone()),
        expected: record.revision,
        entry,
    }
}

fn expired(record: &ApprovalRecord) -> Refused {
    Refused::Expired {
        id: record.id.clone(),
        at: record.expires_at,
    }
}

/// Only a pending approval takes a step.
fn still_pending(record: &ApprovalRecord) -> Result<(), Refused> {
    match record.state {
        ApprovalState::Pending => Ok(()),
        ApprovalState::Expired => Err(expired(record)),
        ApprovalState::Cancelled => Err(Refused::Cancelled {
            id: record.id.clone(),
            reason: render::line(record.reason.as_deref().unwrap_or("the asker is gone")),
        }),
        ApprovalState::Superseded => Err(Refused::Superseded {
            id: record.id.clone(),
        }),
        ApprovalState::Allowed | ApprovalState::Denied | ApprovalState::Spent => {
            Err(Refused::AlreadyDecided {
                id: record.id.clone(),
                // The fold sets both with the state; a record without them is still decided.
                by: record.decided_by.clone().unwrap_or_else(UserName::owner),
                at: record.decided_at.unwrap_or(record.requested_at),
                state: record.state,
            })
        }
    }
}
