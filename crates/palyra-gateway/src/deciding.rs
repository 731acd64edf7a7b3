//! A person's answer: to one call, or to calls like it until it ends.

use std::time::Instant;

use palyra_approval::{ApprovalRecord, ApprovalState, GrantState, Refused, Transition, Wanted};
use palyra_core::entry::{AnsweredFrom, Entry, Stream};
use palyra_core::json::canonical_bytes;
use palyra_core::{
    AgentName, ApprovalDecision, Channel, DeviceId, Digest, GrantTerms, Reach, Signed, Timestamp,
    WhyEnded,
};
use palyra_journal::{Append, Expected, JournalError, RowQuery, StreamAppend};
use palyra_policy::{Action, Resource};
use palyra_vault::ApproverSigner;

use crate::calls::{CALLS, CallRow};
use crate::changes::Change;
use crate::error::{Refusal, RefusalKind};
use crate::records::{self, APPROVALS, ApprovalView};
use crate::service::{Caller, GatewayService};

/// At so many denials in a row an agent is paused.
const MOST_DENIALS: usize = 3;

/// How many of the newest approvals are looked at for that.
const LOOKED_BACK: usize = 500;

/// What a person says.
#[derive(Debug, Clone)]
pub struct PersonsAnswer {
    /// Yes or no.
    pub decision: ApprovalDecision,
    /// Why.
    pub reason: Option<String>,
    /// How far a yes reaches.
    pub wanted: Wanted,
    /// The code of what was shown in full.
    pub shown: Option<String>,
}

impl GatewayService {
    /// A person's answer. One answer wins; a decided approval never changes.
    ///
    /// # Errors
    /// Policy forbids it, there is no such approval, it is decided or over, part of it was not
    /// shown, or a yes cannot reach that far.
    pub async fn decide_approval(
        &self,
        caller: &Caller,
        id: &str,
        answer: PersonsAnswer,
    ) -> Result<ApprovalView, Refusal> {
        let view = self.approval(caller, id)?;
        let record = &view.record;
        let requester = record.principal.clone();
        let on = Resource::Approval { requester };
        self.allowed(caller, Action::ApprovalDecide, on)?;
        let now = self.0.clock.now();
        let reason = answer.reason.as_deref();
        let step = palyra_approval::decide(record, answer.decision, &caller.principal, reason, now)
            .map_err(refused)?;
        let signer = self.present(caller, "decide an approval").await?;
        let given = match answer.decision {
            ApprovalDecision::Deny => None,
            ApprovalDecision::Allow => {
                self.was_shown(&view, answer.shown.as_deref())?;
                match answer.wanted.reach {
                    Reach::Once => None,
                    Reach::Session | Reach::Window => {
                        // A clock that was set back must not shorten what is given now.
                        let now = self.0.latest.see(now);
                        Some(self.terms(caller, record, answer.wanted, now)?)
                    }
                }
            }
        };
        let from = AnsweredFrom {
            device: DeviceId::local(),
            channel: Channel::Cli,
            session: caller.session.clone(),
        };
        let step = step.answered(from, given.as_ref().map(|terms| terms.id.clone()));
        let step = sign(record, step, given.as_ref(), signer.as_deref())?;
        self.append_answer(id, step, given.clone()).await?;
        self.0.inbox().remove(&record.id);
        let state = match answer.decision {
            ApprovalDecision::Allow => ApprovalState::Allowed,
            ApprovalDecision::Deny => ApprovalState::Denied,
        };
        let changed = Change::Approval(record.id.clone(), state.as_str());
        self.0.changes.tell(changed);
        self.0.waiting.tell(&record.id);
        if let Some(terms) = given {
            self.put_in_force(terms, now).await;
        }
        if let (ApprovalState::Denied, Some(agent)) = (state, record.principal.agent()) {
            self.pause_if_tired(agent).await?;
        }
        self.approval(caller, id)
    }

    /// Part of a call that was folded away must have been shown before it is allowed.
    fn was_shown(&self, view: &ApprovalView, code: Option<&str>) -> Result<(), Refusal> {
        let hidden = view.hidden_bytes();
        if hidden == 0 || code == Some(self.0.shown_code(&view.record)?.as_str()) {
            return Ok(());
        }
        Err(refused(Refused::NotShown {
            id: view.record.id.clone(),
            bytes: hidden,
        }))
    }

    /// The terms of a grant that is to be given with a yes.
    fn terms(
        &self,
        caller: &Caller,
        record: &ApprovalRecord,
        wanted: Wanted,
        now: Timestamp,
    ) -> Result<GrantTerms, Refusal> {
        let row = self.0.journal.row(CALLS, record.call.as_str())?;
        let row: Option<CallRow> = row.as_ref().map(records::call_row).transpose()?;
        let committed = row.as_ref().and_then(|row| row.facts);
        let facts = match &row {
            Some(row) => self.facts_of(row)?,
            None => None,
        };
        let (Some(facts), Some(committed)) = (facts, committed) else {
            return Err(Refusal::new(
                RefusalKind::Conflict,
                "facts_erased",
                "what policy saw of this call is not kept, so nothing like it can be allowed",
                "allow it with `--scope once`, or deny it",
            ));
        };
        let by = caller.principal.user();
        let shown = (&facts, committed);
        let terms = palyra_approval::make_grant(record, shown, wanted, by, now).map_err(refused)?;
        let over = |session: &palyra_core::SessionId| !self.session_lasts(session);
        if terms.session.as_ref().is_some_and(over) {
            return Err(refused(Refused::NotGrantable {
                why: "the session that asked has ended".to_owned(),
                covers: facts.scopes.iter().map(|scope| scope.kind).collect(),
                reach: wanted.reach,
            }));
        }
        Ok(terms)
    }

    /// The answer and the grant that is given with it, both or neither.
    async fn append_answer(
        &self,
        id: &str,
        step: Transition,
        given: Option<GrantTerms>,
    ) -> Result<(), Refusal> {
        let answered = StreamAppend {
            stream: step.stream,
            expected: Expected::Revision(step.expected),
            entries: vec![step.entry],
        };
        let made = given.map(|terms| StreamAppend {
            stream: Stream::Grant(terms.id.clone()),
            expected: Expected::NoStream,
            entries: vec![Entry::GrantMade {
                terms: Box::new(terms),
            }],
        });
        let batch = Append {
            streams: std::iter::once(answered).chain(made).collect(),
            blobs: Vec::new(),
        };
        match self.0.journal.append(batch).await {
            Ok(_) => Ok(()),
            Err(JournalError::Conflict { .. }) => Err(Refusal::new(
                RefusalKind::Conflict,
                "already_decided",
                format!("`{id}` was decided, expired or cancelled in the meantime"),
                format!("see it with `palyra approvals show {id}`"),
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// The grant is found from now on, and what waits and is covered goes on.
    async fn put_in_force(&self, terms: GrantTerms, now: Timestamp) {
        let now = self.0.latest.see(now);
        let (id, agent, session) = (terms.id.clone(), terms.agent.clone(), terms.session.clone());
        self.0.grants.lock().insert(terms, now, Instant::now());
        let live = GrantState::Live.as_str();
        self.0.changes.tell(Change::Grant(id.clone(), live));
        // What ended while this was written ended before the grant could be found.
        let stands = self.0.agents().get(&agent).map(|agent| agent.paused);
        let why = match (stands, session) {
            (None, _) => Some(WhyEnded::AgentRemoved),
            (Some(true), _) => Some(WhyEnded::AgentPaused),
            (Some(false), Some(session)) if !self.session_lasts(&session) => {
                Some(WhyEnded::SessionEnded)
            }
            (Some(false), _) => None,
        };
        match why {
            Some(why) => drop(self.end_grants(vec![id], why, None).await),
            None => self.0.waiting.tell_all(),
        }
    }

    /// Three denials in a row by a person: somebody should look at what the agent is doing.
    async fn pause_if_tired(&self, agent: &AgentName) -> Result<(), Refusal> {
        let Some(known) = self.0.agents().get(agent).cloned() else {
            return Ok(());
        };
        let since = known.resumed_at.unwrap_or(known.registered_at);
        let query = RowQuery {
            state: None,
            before: None,
            limit: LOOKED_BACK,
            newest_first: true,
        };
        let mut answers = Vec::new();
        for row in &self.0.journal.rows(APPROVALS, &query)? {
            let record = records::approval_row(row)?;
            let by_a_person = record.decided_by.is_some();
            let own = record.principal.agent() == Some(agent) && record.requested_at >= since;
            if let Some(at) = record.decided_at.filter(|_| own && by_a_person) {
                answers.push((at, record.id, record.state));
            }
        }
        answers.sort_by(|one, other| (other.0, &other.1).cmp(&(one.0, &one.1)));
        let last = answers.iter().take(MOST_DENIALS);
        let denied = last.filter(|(_, _, state)| *state == ApprovalState::Denied);
        if denied.count() == MOST_DENIALS {
            let why = format!("{MOST_DENIALS} of its requests in a row were denied");
            self.pause(agent, None, &why).await?;
        }
        Ok(())
    }
}

/// The answer with the signature of the person who gives it, when persons prove that they are there.
fn sign(
    record: &ApprovalRecord,
    step: Transition,
    given: Option<&GrantTerms>,
    signer: Option<&ApproverSigner>,
) -> Result<Transition, Refusal> {
    let other = || {
        Refusal::new(
            RefusalKind::Conflict,
            "asked_for_another_key",
            format!(
                "`{}` was asked when another key was to sign its answer",
                record.id
            ),
            "let it expire, and repeat the call to be asked again",
        )
    };
    let Some(signer) = signer else {
        return record.approver.is_none().then_some(step).ok_or_else(other);
    };
    let terms = given.map(|terms| Digest::of(&canonical_bytes(&json(terms))));
    let question = record.question();
    let said = question.statement(&step.entry, terms.as_ref());
    let (Some(said), Ok(key)) = (said, signer.key()) else {
        return Err(other());
    };
    let signature = signer.sign(&said);
    let step = step.signed(Signed {
        key,
        signature,
        terms,
    });
    let holds = record.question().is_answered_by(&step.entry);
    holds.then_some(step).ok_or_else(other)
}

fn json(terms: &GrantTerms) -> serde_json::Value {
    serde_json::to_value(terms).unwrap_or_default()
}

pub(crate) fn refused(error: Refused) -> Refusal {
    let kind = match &error {
        Refused::ReasonTooLong { .. } | Refused::NotGrantable { .. } => RefusalKind::Invalid,
        Refused::AgentMayNotDecide { .. } => RefusalKind::Forbidden,
        Refused::AlreadyDecided { .. }
        | Refused::Expired { .. }
        | Refused::Cancelled { .. }
        | Refused::Superseded { .. }
        | Refused::NotShown { .. }
        | Refused::NotExpiredYet { .. } => RefusalKind::Conflict,
    };
    Refusal::new(kind, error.code(), error.to_string(), error.hint())
}
