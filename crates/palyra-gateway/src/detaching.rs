//! Questions whose asker did not stay: left for the same call made again.
//!
//! Some callers cannot wait for a person. Their question stays until it expires, and the answer is
//! for the identical call of the same agent: a yes is spent by the first one within ten minutes, and
//! a no is told to those that come as soon.

use std::sync::{Mutex, MutexGuard, PoisonError};

use palyra_approval::{ApprovalRecord, ApprovalState, GRANT_LIFETIME};
use palyra_core::{
    AgentName, ApprovalId, CallId, Denial, DenialCode, Facts, Principal, RecordedDigest, Timestamp,
};
use palyra_journal::{JournalError, JournalStore, RowQuery};

use crate::changes::Change;
use crate::error::Refusal;
use crate::records::{self, APPROVALS};
use crate::service::{GatewayService, Inner};

/// A question that was left.
#[derive(Debug, Clone)]
pub(crate) struct Left {
    id: ApprovalId,
    call: CallId,
    by: Principal,
    digest: RecordedDigest,
}

impl From<&ApprovalRecord> for Left {
    fn from(record: &ApprovalRecord) -> Self {
        Self {
            id: record.id.clone(),
            call: record.call.clone(),
            by: record.principal.clone(),
            digest: record.digest,
        }
    }
}

/// Those that can still be answered or used.
#[derive(Debug, Default)]
pub(crate) struct Detached(Mutex<Vec<Left>>);

impl Detached {
    fn lock(&self) -> MutexGuard<'_, Vec<Left>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is there now is all there is.
    pub(crate) fn replace(&self, other: Self) {
        let other = other.0.into_inner();
        *self.lock() = other.unwrap_or_else(PoisonError::into_inner);
    }

    pub(crate) fn leave(&self, record: &ApprovalRecord) {
        self.lock().push(Left::from(record));
    }

    fn forget(&self, id: &ApprovalId) {
        self.lock().retain(|left| left.id != *id);
    }
}

impl Inner {
    /// The question that was left about exactly this call, if it is of use.
    pub(crate) fn left_for(&self, facts: &Facts) -> Result<Option<ApprovalRecord>, Refusal> {
        let found = {
            let left = self.detached.lock();
            let same = |left: &&Left| {
                left.by == facts.origin.principal
                    && left.digest == facts.digest().recorded(&left.call)
            };
            left.iter().rev().find(same).cloned()
        };
        let Some(left) = found else {
            return Ok(None);
        };
        let record = records::approval(&self.journal, &left.id)?;
        let of_use = self.is_of_use(&record, self.clock.now());
        if !of_use {
            self.detached.forget(&left.id);
        }
        Ok(of_use.then_some(record))
    }

    /// A pause ends what an agent was allowed, and going on again does not bring it back.
    fn paused_since(&self, record: &ApprovalRecord, at: Timestamp) -> bool {
        let agents = self.agents();
        let agent = record.principal.agent().and_then(|name| agents.get(name));
        agent.is_none_or(|agent| {
            let resumed = agent.resumed_at.is_some_and(|resumed| resumed > at);
            agent.paused || resumed || agent.registered_at > at
        })
    }

    fn is_of_use(&self, record: &ApprovalRecord, now: Timestamp) -> bool {
        match record.state {
            ApprovalState::Pending => now < record.expires_at,
            ApprovalState::Allowed | ApprovalState::Denied => record
                .decided_at
                .is_some_and(|at| now < at.plus(GRANT_LIFETIME) && !self.paused_since(record, at)),
            ApprovalState::Expired
            | ApprovalState::Cancelled
            | ApprovalState::Superseded
            | ApprovalState::Spent => false,
        }
    }
}

impl GatewayService {
    /// What an agent left that may do nothing any more.
    pub(crate) async fn cancel_left_by(&self, agent: &AgentName) {
        let mut left = self.0.detached.lock().clone();
        left.retain(|left| left.by.agent() == Some(agent));
        for left in left {
            self.0.detached.forget(&left.id);
            self.0.inbox().remove(&left.id);
            let Ok(record) = records::approval(&self.0.journal, &left.id) else {
                continue;
            };
            let Ok(step) = palyra_approval::cancel(&record, "its agent may not act any more")
            else {
                continue;
            };
            match records::apply(&self.0.journal, step).await {
                Ok(()) | Err(JournalError::Conflict { .. }) => {}
                Err(error) => {
                    tracing::error!(%error, approval = %left.id, "could not be cancelled")
                }
            }
            let state = ApprovalState::Cancelled.as_str();
            self.0
                .changes
                .tell(Change::Approval(left.id.clone(), state));
        }
    }

    /// Nobody waits for these, so somebody else must say that their time is over.
    pub(crate) async fn expire_detached(&self, now: Timestamp) {
        let left = self.0.detached.lock().clone();
        for left in left {
            let Ok(record) = records::approval(&self.0.journal, &left.id) else {
                continue;
            };
            if self.0.is_of_use(&record, now) {
                continue;
            }
            if let Ok(step) = palyra_approval::expire(&record, now) {
                match records::apply(&self.0.journal, step).await {
                    Ok(()) | Err(JournalError::Conflict { .. }) => {}
                    Err(error) => {
                        tracing::error!(%error, approval = %left.id, "could not be expired");
                        continue;
                    }
                }
                let state = ApprovalState::Expired.as_str();
                let changed = Change::Approval(left.id.clone(), state);
                self.0.changes.tell(changed);
            }
            self.0.inbox().remove(&left.id);
            self.0.detached.forget(&left.id);
        }
    }
}

/// What an earlier daemon was left with.
pub(crate) fn take_up(journal: &JournalStore) -> Result<Detached, Refusal> {
    let mut left = Vec::new();
    for state in [
        ApprovalState::Pending,
        ApprovalState::Allowed,
        ApprovalState::Denied,
    ] {
        let query = RowQuery {
            state: Some(state.as_str().to_owned()),
            before: None,
            limit: 1_000,
            newest_first: true,
        };
        let rows = journal.rows(APPROVALS, &query)?;
        for row in rows.iter().rev() {
            let record = records::approval_row(row)?;
            if record.detached {
                left.push(Left::from(&record));
            }
        }
    }
    Ok(Detached(Mutex::new(left)))
}

/// What a caller hears who does not wait.
pub(crate) fn pending(id: &ApprovalId) -> Denial {
    Denial::new(
        DenialCode::ApprovalPending,
        format!("approval `{id}` waits for a person, and this call does not"),
        format!(
            "answer with `palyra approvals decide {id} --decision allow|deny`, then make exactly \
             this call again"
        ),
    )
}
