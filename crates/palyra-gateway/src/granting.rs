//! Grants: what is in force, who may see it, and how it ends.
//!
//! The journal is the truth about a grant; what is in force is also in memory, by key, for the calls
//! that look for one. Policy decides about what is found.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use palyra_approval::{GrantRecord, GrantState, GrantsFold, LiveGrants};
use palyra_core::entry::Row;
use palyra_core::{Facts, Grant, GrantId, Reach, Timestamp, UserName, WhyEnded};
use palyra_identity::Agents;
use palyra_journal::{JournalError, JournalStore, RowQuery};
use palyra_policy::{Action, Resource};

use crate::changes::Change;
use crate::error::{Refusal, RefusalKind};
use crate::records::{self, unreadable};
use crate::service::{Caller, GatewayService, Inner};

/// The projection of grants.
pub(crate) const GRANTS: &str = GrantsFold::NAME;

/// What is in force.
#[derive(Debug, Default)]
pub(crate) struct Granting(Mutex<LiveGrants>);

impl Granting {
    pub(crate) const fn of(live: LiveGrants) -> Self {
        Self(Mutex::new(live))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LiveGrants> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A grant with the words of what it covers, while they are kept.
#[derive(Debug)]
pub struct GrantView {
    /// The record.
    pub record: GrantRecord,
    /// What it covers, in words that an agent may have chosen.
    pub sentence: Option<String>,
}

/// Whether a grant would cover a call.
#[derive(Debug)]
pub struct GrantExplained {
    /// The grant that would be put before policy.
    pub grant: Option<GrantView>,
    /// `run`, `ask` or `deny`.
    pub answer: &'static str,
    /// Why.
    pub reasons: Vec<String>,
}

impl GatewayService {
    /// Grants, newest first.
    ///
    /// # Errors
    /// Policy forbids it, or the journal cannot be read.
    pub fn grants(&self, caller: &Caller, live_only: bool) -> Result<Vec<GrantView>, Refusal> {
        let query = RowQuery {
            state: live_only.then(|| GrantState::Live.as_str().to_owned()),
            before: None,
            limit: 1_000,
            newest_first: true,
        };
        let rows = self.0.journal.rows(GRANTS, &query)?;
        let mut found = Vec::new();
        for row in &rows {
            let record = grant_row(row)?;
            if self.may_read_grant(caller, &record).is_ok() {
                found.push(self.grant_view(record)?);
            }
        }
        Ok(found)
    }

    /// One grant.
    ///
    /// # Errors
    /// There is none that this caller may see, or the journal cannot be read.
    pub fn grant(&self, caller: &Caller, id: &str) -> Result<GrantView, Refusal> {
        let unknown = || {
            let shown: String = id.escape_debug().take(80).collect();
            Refusal::new(
                RefusalKind::NotFound,
                "unknown_grant",
                format!("there is no grant `{shown}`"),
                "see `palyra grants list --all`",
            )
        };
        let id: GrantId = id.parse().map_err(|_| unknown())?;
        let row = self.0.journal.row(GRANTS, id.as_str())?;
        let record = grant_row(&row.ok_or_else(unknown)?)?;
        self.may_read_grant(caller, &record)
            .map_err(|_| unknown())?;
        self.grant_view(record)
    }

    /// Takes a grant back. What runs goes on; nothing more is admitted under it.
    ///
    /// # Errors
    /// Policy forbids it, there is none of this id, or it ended already.
    pub async fn revoke_grant(&self, caller: &Caller, id: &str) -> Result<GrantView, Refusal> {
        let record = self.grant(caller, id)?.record;
        let requester = records::asker(&record.terms);
        let on = Resource::Approval { requester };
        self.allowed(caller, Action::ApprovalDecide, on)?;
        let by = Some(caller.principal.user().clone());
        let ended = self
            .end_grants(vec![record.terms.id.clone()], WhyEnded::Revoked, by)
            .await;
        if ended == 0 {
            let why = record.why_ended.map_or("over", WhyEnded::as_str);
            return Err(Refusal::new(
                RefusalKind::Conflict,
                "grant_ended",
                format!("grant `{id}` ended already: {why}"),
                format!("see it with `palyra grants show {id}`"),
            ));
        }
        self.grant(caller, id)
    }

    /// Which grant would cover this call if it were made again now, or why none does.
    ///
    /// # Errors
    /// There is no such call that this caller may read, or its facts are not kept.
    pub fn explain_grant(&self, caller: &Caller, call: &str) -> Result<GrantExplained, Refusal> {
        let row = self.call_row_of(caller, call)?;
        let facts = self.facts_of(&row)?.ok_or_else(|| {
            Refusal::new(
                RefusalKind::Conflict,
                "facts_erased",
                format!("what policy saw of `{call}` is not kept"),
                "make the call again, and explain that one",
            )
        })?;
        let mut facts = facts;
        facts.grant = None;
        facts.now = self.0.clock.now();
        let found = self.0.grant_for(&facts);
        let mut reasons = Vec::new();
        let granted = found.as_ref().map(|grant| {
            let mut facts = facts.clone();
            facts.grant = Some(grant.clone());
            facts
        });
        let mut answer = self.answer_to(granted.as_ref().unwrap_or(&facts), &mut reasons);
        if let (Some(grant), true) = (&found, answer != "run") {
            let id = grant.standing.as_ref().map_or("", |id| id.as_str());
            reasons.insert(
                0,
                format!("grant `{id}` has its key, and policy does not honour it"),
            );
            answer = self.answer_to(&facts, &mut reasons);
        }
        if found.is_none() {
            reasons.extend(self.why_no_grant(&facts)?);
        }
        let grant = match found.and_then(|grant| grant.standing) {
            Some(id) => Some(self.grant(caller, id.as_str())?),
            None => None,
        };
        Ok(GrantExplained {
            grant,
            answer,
            reasons,
        })
    }

    fn answer_to(&self, facts: &Facts, reasons: &mut Vec<String>) -> &'static str {
        use palyra_core::corridor::{Decides as _, PolicyAnswer};
        match self.0.policy.answer(facts) {
            Ok(PolicyAnswer::Run { matched }) => {
                reasons.push(format!("it would run: {}", matched.join(", ")));
                "run"
            }
            Ok(PolicyAnswer::Ask { matched }) => {
                reasons.push(format!("a person would be asked: {}", matched.join(", ")));
                "ask"
            }
            Ok(PolicyAnswer::Deny { denial, .. }) | Err(denial) => {
                reasons.push(format!("it would be denied: {}", denial.reason));
                "deny"
            }
        }
    }

    /// What comes nearest, of the newest grants of this agent and tool.
    fn why_no_grant(&self, facts: &Facts) -> Result<Vec<String>, Refusal> {
        let mut why = Vec::new();
        let Some(agent) = facts.origin.principal.agent() else {
            return Ok(vec!["a person's own call needs no grant".to_owned()]);
        };
        let query = RowQuery {
            state: None,
            before: None,
            limit: 200,
            newest_first: true,
        };
        for row in &self.0.journal.rows(GRANTS, &query)? {
            let GrantRecord {
                terms,
                state,
                why_ended,
                ..
            } = grant_row(row)?;
            let (id, cover) = (&terms.id, terms.cover.flag());
            let has_key = facts
                .scopes
                .iter()
                .any(|scope| scope.session == terms.key || scope.window == terms.key);
            let same_kind = facts.scopes.iter().any(|scope| scope.kind == terms.cover);
            if has_key && state == GrantState::Ended {
                let ended = why_ended.map_or("over", WhyEnded::as_str);
                why.push(format!("grant `{id}` covers it and has ended: {ended}"));
            } else if terms.agent == *agent && terms.tool == facts.tool && !has_key {
                why.push(match (same_kind, terms.reach) {
                    (false, _) => format!(
                        "grant `{id}` covers `{cover}`, which this call cannot be covered by"
                    ),
                    (true, Reach::Session) => {
                        format!("grant `{id}` is for another session, or for another `{cover}`")
                    }
                    (true, Reach::Once | Reach::Window) => {
                        format!("grant `{id}` is for another `{cover}`")
                    }
                });
            }
            if why.len() >= 5 {
                break;
            }
        }
        if why.is_empty() {
            why.push(format!("agent `{agent}` has no grant for `{}`", facts.tool));
        }
        Ok(why)
    }

    /// Ends these, for good; how many were in force.
    pub(crate) async fn end_grants(
        &self,
        grants: Vec<GrantId>,
        why: WhyEnded,
        by: Option<UserName>,
    ) -> usize {
        let mut ended = 0;
        for id in grants {
            // First nobody finds it any more, then it is recorded: what finds it in between is
            // refused by the admission, which looks at the record.
            let _ = self.0.grants.lock().remove(&id);
            let step = palyra_approval::end_grant(&id, why, by.clone());
            match records::apply(&self.0.journal, step).await {
                Ok(()) => ended += 1,
                Err(JournalError::Conflict { .. }) => continue,
                Err(error) => tracing::error!(%error, grant = %id, "its end could not be recorded"),
            }
            self.0
                .changes
                .tell(Change::Grant(id, GrantState::Ended.as_str()));
        }
        ended
    }

    /// Ends what is over by the clock; to be called now and then.
    pub async fn end_what_is_over(&self) {
        // Nothing can be recorded, and nothing runs either.
        if self.0.journal.is_locked() {
            return;
        }
        let now = self.0.latest.see(self.0.clock.now());
        let over = self.0.grants.lock().over(now, Instant::now());
        self.end_grants(over, WhyEnded::TimeOver, None).await;
        self.expire_detached(now).await;
    }

    fn may_read_grant(&self, caller: &Caller, record: &GrantRecord) -> Result<(), Refusal> {
        let requester = records::asker(&record.terms);
        let on = Resource::Approval { requester };
        self.allowed(caller, Action::ApprovalRead, on)
    }

    fn grant_view(&self, record: GrantRecord) -> Result<GrantView, Refusal> {
        let facts = self.blob_json(Some(record.terms.facts))?;
        let facts: Option<Facts> = facts.and_then(|facts| serde_json::from_value(facts).ok());
        let cover = record.terms.cover;
        let scope = facts.and_then(|facts| facts.scopes.into_iter().find(|it| it.kind == cover));
        Ok(GrantView {
            sentence: scope.map(|scope| scope.sentence),
            record,
        })
    }
}

impl Inner {
    /// The one grant to put before policy about this call.
    pub(crate) fn grant_for(&self, facts: &Facts) -> Option<Grant> {
        let now = self.latest.see(self.clock.now());
        self.grants.lock().find(facts, now, Instant::now())
    }
}

/// What is in force at start. Sessions ended with the daemon before; so did what was for them.
pub(crate) async fn take_up(
    journal: &JournalStore,
    agents: &Agents,
    now: Timestamp,
) -> Result<LiveGrants, Refusal> {
    let query = RowQuery {
        state: Some(GrantState::Live.as_str().to_owned()),
        before: None,
        limit: usize::MAX >> 1,
        newest_first: false,
    };
    let mut live = LiveGrants::default();
    for row in &journal.rows(GRANTS, &query)? {
        let GrantRecord { terms, made_at, .. } = grant_row(row)?;
        let agent = agents.get(&terms.agent);
        let why = match (agent, terms.reach) {
            // Another one of the same name does not inherit it.
            (agent, _) if agent.is_none_or(|agent| agent.registered_at > made_at) => {
                Some(WhyEnded::AgentRemoved)
            }
            (Some(agent), _) if agent.paused => Some(WhyEnded::AgentPaused),
            (_, Reach::Once | Reach::Session) => Some(WhyEnded::Restarted),
            (_, Reach::Window) => (now >= terms.not_after).then_some(WhyEnded::TimeOver),
        };
        match why {
            None => live.insert(terms, now, Instant::now()),
            Some(why) => {
                let step = palyra_approval::end_grant(&terms.id, why, None);
                records::apply(journal, step).await?;
            }
        }
    }
    Ok(live)
}

pub(crate) fn grant_row(row: &Row) -> Result<GrantRecord, Refusal> {
    serde_json::from_slice(&row.value).map_err(|_| unreadable(&row.key))
}
