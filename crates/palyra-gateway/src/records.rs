//! Reading what is recorded, and a person's answers, each asked of policy first.

use palyra_approval::{ApprovalRecord, ApprovalState, Transition};
use palyra_core::entry::{Recorded, Row, Stream};
use palyra_core::{
    AgentName, ApprovalId, BlobKind, CallId, Commitment, DeviceId, Facts, GrantTerms, Principal,
    Timestamp,
};
use palyra_journal::{Expected, JournalError, JournalState, JournalStore, Kept, RowQuery};
use palyra_policy::{Action, Resource};
use palyra_sandbox::{DoctorReport, SandboxStatus};

use crate::calls::{CALLS, CallRow, CallState};
use crate::error::{Refusal, RefusalKind};
use crate::filtering::JournalFilter;
use crate::policies::{PolicyOverview, PolicyVersion};
use crate::service::{Caller, GatewayService};

/// The projection of approvals.
pub(crate) const APPROVALS: &str = palyra_approval::ApprovalsFold::NAME;
const MOST_ROWS: usize = 1_000;

/// Which rows of a list.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    /// Only calls that stand here.
    pub state: Option<CallState>,
    /// Only approvals in this state.
    pub approval_state: Option<String>,
    /// Only of this agent.
    pub agent: Option<AgentName>,
    /// Only before this key.
    pub before: Option<String>,
    /// How many.
    pub limit: usize,
}

/// What an operator asks first.
#[derive(Debug, Clone)]
pub struct Overview {
    /// The policy version in force.
    pub policy: PolicyVersion,
    /// What there is to know beside it, for those who may read policies.
    pub policies: Option<PolicyOverview>,
    /// Calls that run or wait.
    pub live_calls: usize,
    /// Approvals that wait.
    pub pending_approvals: usize,
    /// The newest entry.
    pub journal_head: u64,
    /// Whether the journal can be written.
    pub journal_state: JournalState,
    /// What the sandbox can do here.
    pub sandbox: SandboxStatus,
    /// Calls that were closed as interrupted at this start.
    pub interrupted: Vec<CallId>,
}

/// A call with what is kept about it.
#[derive(Debug)]
pub struct CallRecordView {
    /// As listed.
    pub row: CallRow,
    /// The entries of its stream.
    pub entries: Vec<Recorded>,
    /// Its arguments, while they are kept.
    pub arguments: Option<serde_json::Value>,
    /// What policy saw, while it is kept.
    pub facts: Option<serde_json::Value>,
    /// What it gave back, while it is kept.
    pub output: Option<serde_json::Value>,
    /// Of these, what is kept and does not open.
    pub unreadable: Vec<BlobKind>,
}

/// An approval with the exact arguments it is about.
#[derive(Debug)]
pub struct ApprovalView {
    /// The record.
    pub record: ApprovalRecord,
    /// The arguments, while they are kept.
    pub arguments: Option<serde_json::Value>,
    /// What policy saw: which program exactly, in which folder.
    pub facts: Option<Facts>,
}

impl GatewayService {
    pub(crate) fn allowed(
        &self,
        caller: &Caller,
        action: Action,
        on: Resource,
    ) -> Result<(), Refusal> {
        self.may_be_asked(&action)?;
        let (device, channel) = (DeviceId::local(), caller.channel);
        let answer = self
            .0
            .policy
            .authorize(&caller.principal, &device, channel, action, on);
        answer.map(drop).map_err(Refusal::denied)
    }

    /// How the daemon is.
    ///
    /// # Errors
    /// Policy forbids it, or the journal cannot be read.
    pub fn overview(&self, caller: &Caller) -> Result<Overview, Refusal> {
        self.allowed(caller, Action::DaemonStatus, Resource::Daemon)?;
        let policies = self.policies_now();
        let may_read = self.allowed(caller, Action::PolicyRead, Resource::Daemon);
        Ok(Overview {
            policy: policies.standing.active.clone(),
            policies: may_read.is_ok().then_some(policies),
            live_calls: self.0.lock_live().len(),
            pending_approvals: self.0.inbox().len(),
            journal_head: self.0.journal.head(),
            journal_state: self.0.journal.state(),
            sandbox: self.0.sandbox.status(),
            interrupted: self.0.waking.interrupted(),
        })
    }

    /// What this machine gives to the sandbox, tried in the daemon's own context.
    ///
    /// # Errors
    /// Policy forbids it, or the helper does not answer.
    pub async fn examine(&self, caller: &Caller) -> Result<DoctorReport, Refusal> {
        self.allowed(caller, Action::DaemonStatus, Resource::Daemon)?;
        self.0.sandbox.examine().await.map_err(|error| {
            let next_step = "look at the daemon's log; `palyra-jail` belongs beside `palyrad`";
            let message = format!("the sandbox's helper does not answer: {error}");
            Refusal::new(
                RefusalKind::Unavailable,
                "sandbox_unavailable",
                message,
                next_step,
            )
        })
    }

    /// Calls, newest first: a person sees all, an agent its own.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn calls(&self, caller: &Caller, query: &ListQuery) -> Result<Vec<CallRow>, Refusal> {
        let wanted = |row: &CallRow| {
            let of = query.agent.as_ref();
            of.is_none_or(|agent| row.principal.agent() == Some(agent))
                && self.may_read_call(caller, row).is_ok()
        };
        if query.state.is_none() && query.agent.is_none() {
            return self.list(CALLS, query, |row| Ok(Some(call_row(row)?).filter(wanted)));
        }
        let filter = JournalFilter {
            agent: query.agent.clone(),
            outcome: query.state,
            ..JournalFilter::default()
        };
        let limit = query.limit.clamp(1, MOST_ROWS + 1);
        let (mut picked, mut before) = (Vec::new(), query.before.clone());
        loop {
            let keys = self.newest_calls(&filter, before.as_deref(), limit)?;
            for key in &keys {
                if picked.len() == limit {
                    return Ok(picked);
                }
                let row = self.0.journal.row(CALLS, key)?;
                let row = row.as_ref().map(call_row).transpose()?;
                picked.extend(row.filter(wanted));
            }
            match keys.last() {
                Some(last) if keys.len() == limit => before = Some(last.clone()),
                Some(_) | None => return Ok(picked),
            }
        }
    }

    /// One call with its whole record.
    ///
    /// # Errors
    /// Policy forbids it, there is none, or the journal cannot be read.
    pub fn call_record(&self, caller: &Caller, id: &str) -> Result<CallRecordView, Refusal> {
        let row = self.call_row_of(caller, id)?;
        let contents = [
            (BlobKind::Arguments, Some(row.arguments)),
            (BlobKind::Facts, row.facts),
            (BlobKind::Output, row.output),
        ];
        let mut unreadable = Vec::new();
        for (kind, commitment) in contents {
            if self.does_not_open(commitment)? {
                unreadable.push(kind);
            }
        }
        Ok(CallRecordView {
            unreadable,
            entries: self
                .0
                .journal
                .read_stream(&Stream::Call(row.call.clone()))?,
            arguments: self.blob_json(Some(row.arguments))?,
            facts: self.blob_json(row.facts)?,
            output: self.blob_json(row.output)?,
            row,
        })
    }

    /// The call of this id, if the caller may read it.
    pub(crate) fn call_row_of(&self, caller: &Caller, id: &str) -> Result<CallRow, Refusal> {
        let unknown = || not_found("unknown_call", "call", id, "see `palyra calls list`");
        let id: CallId = id.parse().map_err(|_| unknown())?;
        let row = self
            .0
            .journal
            .row(CALLS, id.as_str())?
            .ok_or_else(unknown)?;
        let row = call_row(&row)?;
        // To somebody who may not read it, it is not there.
        self.may_read_call(caller, &row).map_err(|_| unknown())?;
        Ok(row)
    }

    fn may_read_call(&self, caller: &Caller, row: &CallRow) -> Result<(), Refusal> {
        self.is_of_this_registration(caller, &row.principal, row.proposed_at)?;
        let owner = row.principal.clone();
        self.allowed(caller, Action::CallRead, Resource::Call { owner })
    }

    /// Records carry an agent's name. What was proposed before the caller was registered was
    /// another agent's of the same name. (Asked before policy because it is cheap: an agent
    /// lists over everybody's rows.)
    fn is_of_this_registration(
        &self,
        caller: &Caller,
        owner: &Principal,
        at: Timestamp,
    ) -> Result<(), Refusal> {
        let Some(name) = caller.principal.agent() else {
            return Ok(());
        };
        let since = self.0.agents().get(name).map(|agent| agent.registered_at);
        let own = *owner == caller.principal && since.is_some_and(|since| since <= at);
        own.then_some(()).ok_or_else(|| no_agent(name))
    }

    /// Approvals: a person sees all, an agent its own. Those that wait are in the order of the inbox,
    /// others newest first.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn approvals(
        &self,
        caller: &Caller,
        query: &ListQuery,
    ) -> Result<Vec<ApprovalView>, Refusal> {
        if query.approval_state.as_deref() == Some(ApprovalState::Pending.as_str()) {
            return self.inbox(caller, query);
        }
        self.list(APPROVALS, query, |row| {
            let record = approval_row(row)?;
            let readable = self.may_read_approval(caller, &record).is_ok();
            readable.then(|| self.approval_view(record)).transpose()
        })
    }

    /// What waits, fair between those who ask; `before` is where the page before ended.
    fn inbox(&self, caller: &Caller, query: &ListQuery) -> Result<Vec<ApprovalView>, Refusal> {
        let order = self.0.inbox().in_order();
        let after = query.before.as_deref();
        let start = after.and_then(|after| order.iter().position(|id| id.as_str() == after));
        let limit = query.limit.clamp(1, MOST_ROWS + 1);
        let mut picked = Vec::new();
        for id in order.iter().skip(start.map_or(0, |start| start + 1)) {
            if picked.len() == limit {
                break;
            }
            let record = approval(&self.0.journal, id)?;
            if record.state != ApprovalState::Pending {
                self.0.inbox().remove(id);
                continue;
            }
            if self.may_read_approval(caller, &record).is_ok() {
                picked.push(self.approval_view(record)?);
            }
        }
        Ok(picked)
    }

    /// One approval.
    ///
    /// # Errors
    /// Policy forbids it, there is none, or the journal cannot be read.
    pub fn approval(&self, caller: &Caller, id: &str) -> Result<ApprovalView, Refusal> {
        let unknown = || {
            not_found(
                "unknown_approval",
                "approval",
                id,
                "see `palyra approvals list`",
            )
        };
        let id: ApprovalId = id.parse().map_err(|_| unknown())?;
        let row = self
            .0
            .journal
            .row(APPROVALS, id.as_str())?
            .ok_or_else(unknown)?;
        let record = approval_row(&row)?;
        self.may_read_approval(caller, &record)
            .map_err(|_| unknown())?;
        self.approval_view(record)
    }

    /// What policy saw of a call when it decided last, while that is kept.
    pub(crate) fn facts_of(&self, row: &CallRow) -> Result<Option<Facts>, Refusal> {
        let facts = self.blob_json(row.facts)?;
        Ok(facts.and_then(|facts| serde_json::from_value(facts).ok()))
    }

    /// What only a person does.
    pub(crate) fn only_a_person(&self, caller: &Caller, what: &str) -> Result<(), Refusal> {
        let Some(agent) = caller.principal.agent() else {
            return Ok(());
        };
        Err(Refusal::new(
            RefusalKind::Forbidden,
            "not_for_agents",
            format!("agent `{agent}` may not {what}"),
            "a person does that, without `--as`",
        ))
    }

    fn may_read_approval(&self, caller: &Caller, record: &ApprovalRecord) -> Result<(), Refusal> {
        self.is_of_this_registration(caller, &record.principal, record.requested_at)?;
        let requester = record.principal.clone();
        self.allowed(
            caller,
            Action::ApprovalRead,
            Resource::Approval { requester },
        )
    }

    fn approval_view(&self, record: ApprovalRecord) -> Result<ApprovalView, Refusal> {
        let arguments = self.blob_json(Some(record.arguments))?;
        let call = self.0.journal.row(CALLS, record.call.as_str())?;
        let call = call.as_ref().map(call_row).transpose()?;
        let facts = match &call {
            Some(row) => self.facts_of(row)?,
            None => None,
        };
        Ok(ApprovalView {
            record,
            arguments,
            facts,
        })
    }

    /// Calls that were closed as interrupted at this start.
    #[must_use]
    pub fn interrupted(&self) -> Vec<CallId> {
        self.0.waking.interrupted()
    }

    fn list<T>(
        &self,
        projection: &str,
        query: &ListQuery,
        mut pick: impl FnMut(&Row) -> Result<Option<T>, Refusal>,
    ) -> Result<Vec<T>, Refusal> {
        // One more than a page, so that its reader knows whether another follows.
        let limit = query.limit.clamp(1, MOST_ROWS + 1);
        // Small steps where most rows are wanted, larger ones where many are passed over.
        let mut chunk = limit;
        let mut picked = Vec::new();
        let mut before = query.before.clone();
        loop {
            let page = RowQuery {
                state: query.approval_state.clone(),
                before: before.clone(),
                limit: chunk,
                newest_first: true,
            };
            let rows = self.0.journal.rows(projection, &page)?;
            for row in &rows {
                picked.extend(pick(row)?);
                if picked.len() == limit {
                    return Ok(picked);
                }
            }
            match rows.last() {
                Some(last) if rows.len() == chunk => {
                    before = Some(last.key.clone());
                    chunk = MOST_ROWS;
                }
                _ => return Ok(picked),
            }
        }
    }

    /// Whether a content is there, but changed or sealed with another key.
    fn does_not_open(&self, of: Option<Commitment>) -> Result<bool, Refusal> {
        let Some(commitment) = of else {
            return Ok(false);
        };
        let kept = self.0.journal.kept(&commitment);
        // The record is shown without what is sealed; the status says why.
        let sealed = matches!(kept, Err(JournalError::Keyless));
        Ok(sealed || kept? == Kept::Unreadable)
    }

    pub(crate) fn blob_json(
        &self,
        of: Option<Commitment>,
    ) -> Result<Option<serde_json::Value>, Refusal> {
        let Some(commitment) = of else {
            return Ok(None);
        };
        let kept = self.0.journal.kept(&commitment);
        if matches!(kept, Err(JournalError::Keyless)) {
            return Ok(None);
        }
        Ok(match kept? {
            Kept::Whole(blob) => serde_json::from_slice(&blob.bytes).ok(),
            Kept::Erased | Kept::Unreadable | Kept::Unknown => None,
        })
    }
}

/// Appends a change of an approval, if nothing else changed it first.
pub(crate) async fn apply(journal: &JournalStore, change: Transition) -> Result<(), JournalError> {
    let Transition {
        stream,
        expected,
        entry,
    } = change;
    journal
        .append_if(stream, Expected::Revision(expected), vec![entry])
        .await
        .map(drop)
}

/// Who asked for what a grant covers.
pub(crate) fn asker(terms: &GrantTerms) -> Principal {
    Principal::Agent {
        name: terms.agent.clone(),
        user: terms.user.clone(),
    }
}

/// Every approval that still waits, oldest first.
pub(crate) fn pending_approvals(journal: &JournalStore) -> Result<Vec<ApprovalRecord>, Refusal> {
    let query = RowQuery {
        state: Some("pending".to_owned()),
        before: None,
        limit: usize::MAX >> 1,
        newest_first: false,
    };
    journal
        .rows(APPROVALS, &query)?
        .iter()
        .map(approval_row)
        .collect()
}

/// The approval as the journal has it.
pub(crate) fn approval(journal: &JournalStore, id: &ApprovalId) -> Result<ApprovalRecord, Refusal> {
    let row = journal.row(APPROVALS, id.as_str())?;
    row.as_ref()
        .map_or_else(|| Err(unreadable(id.as_str())), approval_row)
}

pub(crate) fn call_row(row: &Row) -> Result<CallRow, Refusal> {
    serde_json::from_slice(&row.value).map_err(|_| unreadable(&row.key))
}

pub(crate) fn approval_row(row: &Row) -> Result<ApprovalRecord, Refusal> {
    serde_json::from_slice(&row.value).map_err(|_| unreadable(&row.key))
}

pub(crate) fn unreadable(key: &str) -> Refusal {
    Refusal::new(
        RefusalKind::Unavailable,
        "journal_unreadable",
        format!("the record of `{key}` cannot be read"),
        "was it written by a newer version? see `palyra status`",
    )
}

pub(crate) fn no_agent(name: &AgentName) -> Refusal {
    not_found(
        "unknown_agent",
        "agent",
        name.as_str(),
        "see `palyra agents list`",
    )
}

fn not_found(code: &'static str, what: &str, id: &str, next_step: &str) -> Refusal {
    let shown: String = id.escape_debug().take(80).collect();
    Refusal::new(
        RefusalKind::NotFound,
        code,
        format!("there is no {what} `{shown}`"),
        next_step,
    )
}
