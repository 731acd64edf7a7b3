//! What the journal makes of an approval's entries: the projection `approvals`.
//!
//! The fold does not trust its input to be well ordered. An entry that cannot follow the state it
//! meets changes nothing, so a decided approval never changes and nothing is spent twice, even if
//! a faulty writer appended a second decision.

use palyra_core::entry::{Entry, Fold, Recorded, Row};
use palyra_core::{ApprovalDecision, ApprovalId, Principal, UserName};

use crate::record::{ApprovalRecord, ApprovalState};

/// The projection `approvals`: one row for each approval, keyed by its id, selected by its state.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApprovalsFold;

impl ApprovalsFold {
    /// The projection's name.
    pub const NAME: &'static str = "approvals";
}

impl Fold for ApprovalsFold {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn key(&self, recorded: &Recorded) -> Option<String> {
        match &recorded.entry {
            Entry::ApprovalRequested { .. }
            | Entry::ApprovalDecided { .. }
            | Entry::ApprovalExpired
            | Entry::ApprovalCancelled { .. }
            | Entry::ApprovalSuperseded { .. }
            | Entry::GrantSpent { .. } => recorded
                .stream
                .parse::<ApprovalId>()
                .ok()
                .map(|id| id.to_string()),
            Entry::Proposed { .. }
            | Entry::Decided { .. }
            | Entry::Admitted { .. }
            | Entry::Finished { .. }
            | Entry::Attested { .. }
            | Entry::Advised { .. }
            | Entry::Closed { .. }
            | Entry::Interrupted
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
            | Entry::BlobErased { .. }
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
        let id = recorded.stream.parse::<ApprovalId>().ok()?;
        let record = match before {
            None => requested(id, recorded)?,
            // A row that cannot be read is an approval nobody can use: it goes.
            Some(value) => {
                let mut record: ApprovalRecord = serde_json::from_slice(value).ok()?;
                step(&mut record, recorded);
                record.revision = recorded.revision;
                record
            }
        };
        Some(Row {
            key: record.id.to_string(),
            state: record.state.as_str().to_owned(),
            value: serde_json::to_vec(&record).ok()?,
        })
    }
}

/// The first entry of a stream.
fn requested(id: ApprovalId, recorded: &Recorded) -> Option<ApprovalRecord> {
    let Entry::ApprovalRequested {
        call,
        principal,
        tool,
        digest,
        arguments,
        expires_at,
        session,
        risk,
        detached,
        approver,
        people,
    } = &recorded.entry
    else {
        return None;
    };
    Some(ApprovalRecord {
        id,
        call: call.clone(),
        principal: principal.clone(),
        tool: tool.clone(),
        digest: *digest,
        arguments: *arguments,
        requested_at: recorded.at,
        expires_at: *expires_at,
        state: ApprovalState::Pending,
        decided_by: None,
        decided_at: None,
        reason: None,
        spent_by: None,
        session: session.clone(),
        risk: risk.unwrap_or_default(),
        detached: *detached,
        answered_from: None,
        grant: None,
        approver: *approver,
        signed: None,
        people: *people,
        allowed_by: Vec::new(),
        revision: recorded.revision,
    })
}

/// A later entry, if it may follow the state it meets.
fn step(record: &mut ApprovalRecord, recorded: &Recorded) {
    match record.state {
        ApprovalState::Pending => end(record, recorded),
        ApprovalState::Allowed => {
            if let Entry::GrantSpent { call } = &recorded.entry {
                record.state = ApprovalState::Spent;
                record.spent_by = Some(call.clone());
            }
        }
        ApprovalState::Denied
        | ApprovalState::Expired
        | ApprovalState::Cancelled
        | ApprovalState::Superseded
        | ApprovalState::Spent => {}
    }
}

/// Counts a yes; whether there are enough now. Two sessions of one person are one person, and where
/// more than one is wanted, the person who asked is none of them.
fn said_by_enough(record: &mut ApprovalRecord, by: &UserName) -> bool {
    let alone = record.people <= 1;
    let asked = match &record.principal {
        Principal::User { name } => name == by,
        // What an agent does, the person it acts for wanted: that is one of the two.
        Principal::Agent { .. } => false,
    };
    if !record.allowed_by.contains(by) && (alone || !asked) {
        record.allowed_by.push(by.clone());
    }
    record.allowed_by.len() >= usize::from(record.people.max(1))
}

/// The one entry that ends the wait.
fn end(record: &mut ApprovalRecord, recorded: &Recorded) {
    let (state, by, reason) = match &recorded.entry {
        Entry::ApprovalDecided {
            decision,
            decided_by,
            reason,
            from,
            grant,
            signed,
        } => {
            // An answer that somebody only claims to have given is none.
            if !record.question().is_answered_by(&recorded.entry) {
                return;
            }
            if *decision == ApprovalDecision::Allow && !said_by_enough(record, decided_by) {
                return;
            }
            record.signed = signed.as_deref().copied();
            record.answered_from = from.as_deref().cloned();
            record.grant.clone_from(grant);
            let state = match decision {
                ApprovalDecision::Allow => ApprovalState::Allowed,
                ApprovalDecision::Deny => ApprovalState::Denied,
            };
            (state, Some(decided_by.clone()), reason.clone())
        }
        Entry::ApprovalExpired => (ApprovalState::Expired, None, None),
        Entry::ApprovalCancelled { reason } => {
            (ApprovalState::Cancelled, None, Some(reason.clone()))
        }
        Entry::ApprovalSuperseded { by } => {
            record.grant = Some(by.clone());
            (ApprovalState::Superseded, None, None)
        }
        Entry::ApprovalRequested { .. }
        | Entry::GrantSpent { .. }
        | Entry::GrantMade { .. }
        | Entry::GrantEnded { .. }
        | Entry::PostureSet { .. }
        | Entry::AgentPaused { .. }
        | Entry::Proposed { .. }
        | Entry::Decided { .. }
        | Entry::Admitted { .. }
        | Entry::Finished { .. }
        | Entry::Attested { .. }
        | Entry::Advised { .. }
        | Entry::Closed { .. }
        | Entry::Interrupted
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
        | Entry::BlobErased { .. }
        | Entry::ProjectionMended { .. }
        | Entry::VaultChanged { .. }
        | Entry::SecretAccessed { .. }
        | Entry::SecretInArguments { .. }
        | Entry::AgentResumed { .. }
        | Entry::PresenceChanged { .. }
        | Entry::Notified { .. }
        | Entry::KeyRotated { .. } => return,
    };
    record.state = state;
    record.decided_by = by;
    record.decided_at = Some(recorded.at);
    record.reason = reason;
}
