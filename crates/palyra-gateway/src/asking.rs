//! One call's question: whether there is anybody to put it to, and the wait for the answer.

use std::sync::Arc;
use std::time::Duration;

use palyra_approval::{ApprovalRecord, ApprovalState, PendingToolApproval};
use palyra_core::corridor::{Decides, PolicyAnswer};
use palyra_core::{ApprovalId, Commitment, Denial, DenialCode, Grant, GrantId, Principal};
use palyra_journal::JournalError;
use palyra_policy::{Action, Resource};

use crate::changes::Change;
use crate::drive::{Drive, Event, NotPermitted, Noted};
use crate::service::Inner;
use crate::{detaching, records, waiting};

impl Drive {
    /// Whether there is a person for this agent's questions.
    pub(crate) fn somebody_can_be_asked(&self) -> Result<(), Denial> {
        let Some(name) = self.caller.principal.agent() else {
            return Ok(());
        };
        let unattended = self
            .gateway
            .agents()
            .get(name)
            .map(|agent| agent.unattended);
        if unattended != Some(true) {
            return Ok(());
        }
        Err(Denial::new(
            DenialCode::NoApprover,
            format!("agent `{name}` works unattended: nobody is there to be asked"),
            "let policy allow the call, or register the agent without `--unattended`",
        ))
    }

    /// Whether a person may decide at all, and whether one is enough: nobody is asked in vain.
    pub(crate) fn one_person_is_enough(&self) -> Result<(), Denial> {
        let Some(agent) = self.caller.principal.agent() else {
            return Ok(());
        };
        let (device, channel) = (self.facts.origin.device.clone(), self.facts.origin.channel);
        let person = Principal::User {
            name: self.caller.principal.user().clone(),
        };
        let requester = self.caller.principal.clone();
        let on = Resource::Approval { requester };
        let policy = &self.gateway.policy;
        if let Err(denial) = policy.authorize(&person, &device, channel, Action::ApprovalDecide, on)
        {
            return Err(Denial::new(
                DenialCode::NoApprover,
                format!("policy lets nobody here decide this: {}", denial.reason),
                "let `approval.decide` be permitted for somebody; this version knows the owner only",
            ));
        }
        let now = self.gateway.clock.now();
        let yes_of = |people: i64| {
            let grant = Grant {
                approval: ApprovalId::mint(now),
                standing: None,
                agent: agent.clone(),
                digest: *self.facts.digest(),
                scope: None,
                not_after: now.plus(palyra_approval::GRANT_LIFETIME),
                people,
            };
            let facts = self.facts.clone().with_grant(grant, now);
            let answer = policy.deliberate(&facts);
            answer.is_ok_and(|found| matches!(found.answer, PolicyAnswer::Run { .. }))
        };
        if yes_of(1) || !yes_of(2) {
            return Ok(());
        }
        Err(Denial::new(
            DenialCode::NeedsTwoPeople,
            "policy demands the yes of two people, and this version knows one",
            "let one person's yes be enough (`context.grant.people >= 1`), or do it yourself",
        ))
    }

    /// The answer to the same question, which was left before: that may still have to be waited for.
    pub(crate) async fn answer_to_what_was_left(
        &mut self,
        left: ApprovalRecord,
    ) -> Result<ApprovalRecord, Denial> {
        if left.state != ApprovalState::Pending {
            return Ok(left);
        }
        if self.leaves_at_once() {
            return Err(detaching::pending(&left.id));
        }
        let gateway = Arc::clone(&self.gateway);
        let place = gateway.waiting.wait(
            &left.id,
            left.expires_at,
            *self.facts.digest(),
            &self.shared,
        );
        let event = Event::ApprovalPending {
            approval: left.id.clone(),
            expires_at: left.expires_at,
            joined: true,
        };
        let _ = self.events.send(event).await;
        let wait = left.expires_at.since(gateway.clock.now());
        self.await_answer(&left.id, &place, wait).await
    }

    /// Whether its caller leaves a question without waiting for the answer.
    const fn leaves_at_once(&self) -> bool {
        self.detached && self.patience.is_zero()
    }

    /// Puts the question to a person and waits for the answer.
    pub(crate) async fn ask(
        &mut self,
        arguments: Commitment,
        approval: &mut Option<ApprovalId>,
    ) -> Result<ApprovalRecord, NotPermitted> {
        let gateway = Arc::clone(&self.gateway);
        let principal = self.caller.principal.clone();
        let limits = &gateway.settings.floods;
        let counted = gateway
            .lock_floods()
            .ask(&principal, limits, std::time::Instant::now());
        if let Err(flooded) = counted {
            return Err(NotPermitted::Flooded(gateway.turned_away(flooded).await));
        }
        let waiting = gateway.inbox().of(&principal);
        if self.detached && waiting >= limits.pending {
            gateway.lock_floods().settled(&principal);
            return Err(NotPermitted::Denied(Denial::new(
                DenialCode::RateLimited,
                format!("{waiting} questions of `{principal}` wait already"),
                "wait until a person has answered: `palyra approvals list`",
            )));
        }
        let _pending = PendingPlace {
            gateway: &gateway,
            principal: &principal,
        };
        let now = gateway.clock.now();
        let pending = PendingToolApproval {
            id: ApprovalId::mint(now),
            call: self.facts.call.clone(),
            principal: principal.clone(),
            tool: self.facts.tool.clone(),
            digest: *self.facts.digest(),
            arguments,
            expires_at: now.plus(gateway.settings.approval_wait),
            session: self.facts.origin.session.clone(),
            risk: self.facts.risk.level,
            detached: self.detached,
            approver: gateway.presence.key(),
            people: 1,
        };
        *approval = Some(pending.id.clone());
        Ok(self.question(pending).await?)
    }

    async fn question(&mut self, pending: PendingToolApproval) -> Result<ApprovalRecord, Denial> {
        let (id, expires_at) = (&pending.id, pending.expires_at);
        // Listen before the question is visible, so that an answer at once is not missed.
        let waiting = Arc::clone(&self.gateway.waiting);
        let place = waiting.wait(id, expires_at, pending.digest, &self.shared);
        let asked = palyra_approval::ask(&pending);
        self.recorder
            .request_approval(asked.stream, asked.entry)
            .await?;
        let (principal, risk) = (pending.principal.clone(), pending.risk);
        self.gateway.inbox().insert(id.clone(), principal, risk);
        let state = ApprovalState::Pending.as_str();
        let changed = Change::Approval(id.clone(), state);
        self.gateway.changes.tell(changed);
        if self.detached {
            let record = records::approval(&self.gateway.journal, id).map_err(unreadable)?;
            self.gateway.detached.leave(&record);
        }
        if self.leaves_at_once() {
            return Err(detaching::pending(id));
        }
        let event = Event::ApprovalPending {
            approval: id.clone(),
            expires_at,
            joined: false,
        };
        let _ = self.events.send(event).await;
        self.await_answer(id, &place, self.gateway.settings.approval_wait)
            .await
    }

    async fn await_answer(
        &self,
        id: &ApprovalId,
        place: &waiting::Place,
        wait: Duration,
    ) -> Result<ApprovalRecord, Denial> {
        enum Woken {
            Told,
            TimeOver,
            Leaves,
            Gone(&'static str),
        }
        let deadline = tokio::time::Instant::now() + wait;
        let leaves = tokio::time::Instant::now() + self.patience.min(wait);
        loop {
            let woken = tokio::select! {
                () = place.heard() => Woken::Told,
                () = tokio::time::sleep_until(deadline) => Woken::TimeOver,
                () = tokio::time::sleep_until(leaves), if self.detached => Woken::Leaves,
                () = self.shared.cancel.cancelled() => Woken::Gone("its caller is gone"),
                () = self.gateway.stopping.cancelled() => Woken::Gone("the daemon stopped"),
            };
            let record = records::approval(&self.gateway.journal, id).map_err(unreadable)?;
            if record.state != ApprovalState::Pending {
                self.gateway.inbox().remove(id);
                return Ok(record);
            }
            let change = match woken {
                Woken::Told => match self.covered_by_now() {
                    Some(grant) => palyra_approval::supersede(&record, &grant),
                    None => continue,
                },
                Woken::TimeOver => palyra_approval::expire(&record, record.expires_at),
                Woken::Leaves if deadline <= leaves => {
                    palyra_approval::expire(&record, record.expires_at)
                }
                Woken::Leaves => return Err(detaching::pending(id)),
                // The question was left before, and stays.
                Woken::Gone(_) if record.detached => return Err(detaching::pending(id)),
                Woken::Gone(why) => palyra_approval::cancel(&record, why),
            };
            let Ok(change) = change else { continue };
            match records::apply(&self.gateway.journal, change).await {
                Ok(()) | Err(JournalError::Conflict { .. }) => {}
                Err(error) => return Err(unreadable(error)),
            }
            let ended = records::approval(&self.gateway.journal, id).map_err(unreadable)?;
            if ended.state != ApprovalState::Pending {
                self.gateway.inbox().remove(id);
                let changed = Change::Approval(id.clone(), ended.state.as_str());
                self.gateway.changes.tell(changed);
                return Ok(ended);
            }
        }
    }

    /// A grant that came into force while this call waited, if policy lets it run under it.
    fn covered_by_now(&self) -> Option<GrantId> {
        let grant = self.gateway.grant_for(&self.facts)?;
        let id = grant.standing.clone()?;
        let facts = self.facts.clone();
        let facts = facts.with_grant(grant, self.gateway.clock.now());
        let runs = matches!(
            Noted::new(&self.gateway.policy).answer(&facts),
            Ok(PolicyAnswer::Run { .. })
        );
        runs.then_some(id)
    }
}

/// A place among an agent's waiting approvals, given back whatever happens.
struct PendingPlace<'a> {
    gateway: &'a Inner,
    principal: &'a Principal,
}

impl Drop for PendingPlace<'_> {
    fn drop(&mut self) {
        self.gateway.lock_floods().settled(self.principal);
    }
}

pub(crate) fn unreadable(error: impl std::fmt::Display) -> Denial {
    Denial::new(
        DenialCode::JournalUnavailable,
        format!("the approval cannot be read or written: {error}"),
        "see `palyra status`; free disk space or mend the journal's folder, then try again",
    )
}
