//! One call through the corridor: decide, approve, admit, execute, attest.
//!
//! This is the only place that holds a `Permit`. Whatever happens, the call ends in an entry of
//! its stream: an attestation, or a closing denial.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use palyra_approval::{ApprovalRecord, ApprovalState, PendingToolApproval};
use palyra_core::corridor::{
    Admitted, Decides, Executes, Finished, Permit, PlanChanged, PolicyAnswer, Running,
    ToolDecision, decide,
};
use palyra_core::entry::{Answer, Entry};
use palyra_core::json::canonical_bytes;
use palyra_core::{
    ApprovalId, Blob, BlobKind, CallDigest, CallId, Clock, Commitment, ConnectionRecord, Denial,
    DenialCode, Ending, ExecutionReport, Facts, Grant, GrantId, InjectionTable, Principal,
    ReplyPlan, SecretAccess, SecretRef, Timestamp, ToolAttestation, ToolProposal,
};
use palyra_egress::Authority;
use palyra_journal::{CallRecorder, JournalError};
use palyra_policy::{Action, PolicyEngine, Resource};
use palyra_sandbox::{LiveInput, OutputChunk};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::advising::Advice;
use crate::changes::Change;
use crate::handle::CallShared;
use crate::networked::{Network, Networked};
use crate::service::{Caller, GatewayService, Inner};
use crate::tools::AnyPlan;
use crate::{detaching, networked, records, waiting};

/// What a caller hears while a call goes on.
#[derive(Debug)]
pub enum Event {
    /// The call waits for a person.
    ApprovalPending {
        /// What to decide.
        approval: ApprovalId,
        /// When it is denied for want of an answer.
        expires_at: Timestamp,
        /// Whether it joined an identical call.
        joined: bool,
    },
    /// It runs.
    Started,
    /// A piece of output.
    Output(OutputChunk),
    /// A connection that ended or was refused.
    Connection(Box<ConnectionRecord>),
}

/// How a call ended.
#[derive(Debug)]
pub struct CallReport {
    /// The call.
    pub call: CallId,
    /// The approval it waited for.
    pub approval: Option<ApprovalId>,
    /// The end.
    pub conclusion: Conclusion,
}

impl CallReport {
    /// Whether it did not come to an end of its own.
    pub(crate) fn was_cut_short(&self) -> bool {
        match &self.conclusion {
            Conclusion::Denied(_) => true,
            Conclusion::Advised { .. } => false,
            Conclusion::Executed { attestation, .. } => {
                matches!(attestation.report.ending, Ending::Cancelled { .. })
            }
        }
    }
}

/// The two ends of a call.
#[derive(Debug)]
pub enum Conclusion {
    /// It was executed, and this is the record.
    Executed {
        /// The record.
        attestation: Box<ToolAttestation>,
        /// What the tool gave back.
        output: Value,
    },
    /// It was not.
    Denied(Denial),
    /// It was not, and its caller was told that it may do this by itself, or have it run here.
    Advised {
        /// Exactly this call.
        digest: CallDigest,
    },
}

/// A call on its way.
pub(crate) struct Drive {
    pub(crate) gateway: Arc<Inner>,
    pub(crate) caller: Caller,
    pub(crate) proposal: ToolProposal,
    pub(crate) facts: Facts,
    pub(crate) plan: AnyPlan,
    pub(crate) recorder: CallRecorder,
    pub(crate) shared: Arc<CallShared>,
    pub(crate) events: mpsc::Sender<Event>,
    /// What its caller sends while it runs, until it runs.
    pub(crate) input: Option<LiveInput>,
    /// Whether its caller does not wait for a person.
    pub(crate) detached: bool,
    /// How long a caller who does not wait waits all the same.
    pub(crate) patience: Duration,
    /// Nothing is to be run: a client only asks whether it may.
    pub(crate) advice: Option<Advice>,
}

impl Drive {
    /// Walks the corridor once, forwards.
    pub(crate) async fn run(mut self) -> CallReport {
        let arguments = Blob::new(
            BlobKind::Arguments,
            self.proposal.arguments.bytes().to_vec(),
        );
        let committed = arguments.commitment();
        self.recorder.proposed(
            self.facts.tool.clone(),
            self.facts.origin.clone(),
            arguments,
        );
        let mut approval = None;
        let permitted = self.permit(committed, &mut approval).await;
        let conclusion = match permitted {
            Ok(permit) => match self.advice {
                None => self.carry_out(permit).await,
                Some(advice) => self.advise(permit, advice).await,
            },
            Err(NotPermitted::Denied(denial)) => Conclusion::Denied(self.close(denial).await),
            // Turned away before anything was journaled: the recorder is dropped unwritten.
            Err(NotPermitted::Flooded(denial)) => Conclusion::Denied(denial),
        };
        CallReport {
            call: self.facts.call.clone(),
            approval,
            conclusion,
        }
    }

    /// Decides; when policy wants a person, asks and decides again with the grant in the facts.
    async fn permit(
        &mut self,
        arguments: Commitment,
        approval: &mut Option<ApprovalId>,
    ) -> Result<Permit, NotPermitted> {
        if let AnyPlan::Process(plan) = &self.plan {
            self.gateway.settings.egress.check(plan)?;
        }
        self.would_be_let_here().await?;
        self.facts.posture = self.gateway.posture(&self.facts)?;
        if let Some(permit) = self.under_a_grant() {
            return Ok(permit);
        }
        match self.decide() {
            ToolDecision::Permit(permit) => return Ok(permit),
            ToolDecision::Deny(denied) => return Err(denied.denial.into()),
            ToolDecision::Ask(_) => {}
        }
        self.somebody_can_be_asked()?;
        self.one_person_is_enough()?;
        let record = match self.gateway.left_for(&self.facts).map_err(unreadable)? {
            Some(left) => {
                *approval = Some(left.id.clone());
                self.answer_to_what_was_left(left).await?
            }
            None => self.ask(arguments, approval).await?,
        };
        if record.state == ApprovalState::Superseded
            && let Some(permit) = self.under_a_grant()
        {
            return Ok(permit);
        }
        let (facts, now) = (self.facts.clone(), self.gateway.clock.now());
        self.facts = palyra_approval::apply_tool_approval_outcome(&record, facts, now)?;
        match self.decide() {
            ToolDecision::Permit(permit) => Ok(permit),
            ToolDecision::Deny(denied) => Err(denied.denial.into()),
            ToolDecision::Ask(_) => Err(NotPermitted::Denied(Denial::new(
                DenialCode::GrantSpent,
                "the approval does not cover this call any more",
                "propose the call again",
            ))),
        }
    }

    /// What a client does by itself is nothing that a call would not be let do: before anybody is
    /// asked, since no answer changes that.
    async fn would_be_let_here(&self) -> Result<(), Denial> {
        let (Some(Advice::Native), AnyPlan::File(plan)) = (self.advice, &self.plan) else {
            return Ok(());
        };
        let refused = self.gateway.sandbox.would_refuse(plan).await;
        refused.map_or(Ok(()), |why| {
            Err(Denial::new(
                DenialCode::DeniedByPolicy,
                why,
                "see `[[files]]` in palyra.toml for what calls may do with files",
            ))
        })
    }

    /// The permit under a grant that is in force, if policy honours it. One that it does not honour
    /// leaves no trace: the call is decided as if there were none.
    fn under_a_grant(&mut self) -> Option<Permit> {
        let grant = self.gateway.grant_for(&self.facts)?;
        let before = self.facts.clone();
        self.facts = before.clone().with_grant(grant, self.gateway.clock.now());
        let policy = Noted::new(&self.gateway.policy);
        let decision = decide(&policy, &self.facts);
        if let ToolDecision::Permit(permit) = decision {
            let answered = (Answer::Permit, permit.matched().to_vec());
            self.note_decision(answered, policy.version());
            return Some(permit);
        }
        self.facts = before;
        None
    }

    /// Whether there is a person for this agent's questions.
    fn somebody_can_be_asked(&self) -> Result<(), Denial> {
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
    fn one_person_is_enough(&self) -> Result<(), Denial> {
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
    async fn answer_to_what_was_left(
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

    fn decide(&mut self) -> ToolDecision {
        let policy = Noted::new(&self.gateway.policy);
        let decision = decide(&policy, &self.facts);
        let (answer, matched) = match &decision {
            ToolDecision::Permit(permit) => (Answer::Permit, permit.matched()),
            ToolDecision::Ask(asked) => (Answer::Ask, asked.matched.as_slice()),
            ToolDecision::Deny(denied) => (
                Answer::Deny(denied.denial.clone()),
                denied.matched.as_slice(),
            ),
        };
        let answered = (answer, matched.to_vec());
        self.note_decision(answered, policy.version());
        decision
    }

    fn note_decision(&mut self, (answer, matched): (Answer, Vec<String>), version: String) {
        let seen = serde_json::to_value(&self.facts).unwrap_or_default();
        let facts = Blob::new(BlobKind::Facts, canonical_bytes(&seen));
        let digest = *self.facts.digest();
        self.recorder
            .decided(answer, matched, version, digest, facts);
    }

    /// Puts the question to a person and waits for the answer.
    async fn ask(
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

    /// Records that a client may do this. The permit ends here, unspent.
    async fn advise(&mut self, permit: Permit, advice: Advice) -> Conclusion {
        drop(permit);
        let digest = *self.facts.digest();
        let backing = self.facts.grant.as_ref().map(Grant::backing);
        let to_come = advice == Advice::Rewritten;
        let recorded = self
            .recorder
            .advise(&digest, backing.as_ref(), to_come)
            .await;
        match recorded {
            Ok(()) => Conclusion::Advised { digest },
            Err(denial) => Conclusion::Denied(self.close(denial).await),
        }
    }

    /// Admits, executes and attests.
    async fn carry_out(&mut self, permit: Permit) -> Conclusion {
        if self.shared.cancel.is_cancelled() {
            let (reason, next_step) =
                ("its caller went away before it started", "propose it again");
            let denial = Denial::new(DenialCode::CallerGone, reason, next_step);
            return Conclusion::Denied(self.close(denial).await);
        }
        let secrets = match self.secrets().await {
            Ok(secrets) => secrets,
            Err(denial) => return Conclusion::Denied(self.close(denial).await),
        };
        let admitted = match permit.admit(&mut self.recorder).await {
            Ok(admitted) => admitted,
            Err(denial) => return Conclusion::Denied(self.close(denial).await),
        };
        self.gateway.seen.executed(&self.facts);
        let running = Change::Call(self.facts.call.clone(), "admitted");
        self.gateway.changes.tell(running);
        let _ = self.events.send(Event::Started).await;
        let finished = match self.execute_tool_call(admitted, secrets).await {
            Ok(finished) => finished,
            Err(error) => {
                let next_step = "propose the call again";
                let denial = Denial::new(DenialCode::PlanChanged, error.to_string(), next_step);
                return Conclusion::Denied(self.close(denial).await);
            }
        };
        match finished.attest(&mut self.recorder).await {
            Ok((attestation, output)) => {
                self.raise_misdirected(&output).await;
                let took = attestation
                    .report
                    .ended_at
                    .since(attestation.report.started_at);
                self.caller.usage.executed(took, size(&output));
                Conclusion::Executed {
                    attestation: Box::new(attestation),
                    output,
                }
            }
            // It ran: it must never be closed as one that did not. Without an attestation it is
            // reported as interrupted at the next start.
            Err(denial) => Conclusion::Denied(Denial {
                reason: format!(
                    "it ran, but its record could not be written: {}",
                    denial.reason
                ),
                ..denial
            }),
        }
    }

    /// What is put into its requests, each secret asked of policy with the facts of this very call,
    /// its approval among them, and who signs for the hosts these go to.
    async fn secrets(&self) -> Result<Secrets, Denial> {
        let AnyPlan::Process(plan) = &self.plan else {
            return Ok(Secrets::default());
        };
        if plan.secrets.is_empty() {
            return Ok(Secrets::default());
        }
        let denied = |reason: String, next_step: String| {
            Denial::new(DenialCode::SecretDenied, reason, next_step)
        };
        let wanted: Vec<SecretRef> = plan.secrets.iter().map(|one| one.secret.clone()).collect();
        let service = GatewayService(Arc::clone(&self.gateway));
        let table = service.injection_table(&self.caller, &self.facts, &wanted);
        let table = table
            .await
            .map_err(|refusal| denied(refusal.message, refusal.next_step))?;
        let authority = self.gateway.egress.authority(&table).map_err(|error| {
            let reason = format!("nobody can sign for the hosts of its secrets: {error}");
            denied(reason, "propose the call again".to_owned())
        })?;
        Ok(Secrets {
            table: Arc::new(table),
            authority,
        })
    }

    /// What stands for a secret was sent where the secret may not go: blocked, and said aloud.
    async fn raise_misdirected(&self, output: &Value) {
        let AnyPlan::Process(plan) = &self.plan else {
            return;
        };
        for secret in networked::misdirected(plan, output) {
            let call = &self.facts.call;
            tracing::warn!(%call, %secret, "its placeholder was sent where it may not go");
            let entry = Entry::SecretAccessed {
                secret: secret.clone(),
                version: 0,
                access: SecretAccess::Misdirected,
                by: self.caller.principal.clone(),
                call: Some(call.clone()),
            };
            if let Err(error) = self.gateway.vault.note(entry).await {
                tracing::error!(%call, error = error.message, "that could not be recorded");
            }
        }
    }

    /// Hands the plan to the executor it names.
    async fn execute_tool_call(
        &mut self,
        admitted: Admitted,
        secrets: Secrets,
    ) -> Result<Finished<Value>, PlanChanged> {
        let input = self.input.take();
        let cancel = self.shared.cancel.clone();
        let sandbox = &self.gateway.sandbox;
        match self.plan.clone() {
            AnyPlan::Reply(plan) => {
                let replies = Replies {
                    clock: self.gateway.clock.as_ref(),
                };
                admitted.execute(&replies, plan).await
            }
            AnyPlan::Process(plan) => {
                let sink = self.output_sink();
                let runner = sandbox.processes(Some(sink), input, cancel);
                let network = Network {
                    egress: Arc::clone(&self.gateway.egress),
                    call: self.facts.call.clone(),
                    budget: self.gateway.settings.egress.budget,
                    events: self.events.clone(),
                    injections: secrets.table,
                    authority: secrets.authority,
                    trust: self.gateway.settings.egress.trust.clone(),
                };
                let networked = Networked::new(runner, network, &plan);
                admitted.execute(&networked, *plan).await
            }
            AnyPlan::File(plan) => admitted.execute(&sandbox.files(cancel), *plan).await,
        }
    }

    /// Output goes to the caller as it comes; the executor keeps its own copy for the record.
    fn output_sink(&self) -> palyra_sandbox::OutputSink {
        let (sink, mut chunks) = mpsc::channel(16);
        let events = self.events.clone();
        tokio::spawn(async move {
            while let Some(chunk) = chunks.recv().await {
                if events.send(Event::Output(chunk)).await.is_err() {
                    return;
                }
            }
        });
        sink
    }

    async fn close(&mut self, denial: Denial) -> Denial {
        match self.recorder.close(denial.clone()).await {
            Ok(()) => denial,
            Err(unrecorded) => unrecorded,
        }
    }
}

/// Policy, with a note of which version it answered from: a reload in between must not let the
/// record name another one.
struct Noted<'a> {
    policy: &'a PolicyEngine,
    version: OnceLock<String>,
}

impl<'a> Noted<'a> {
    const fn new(policy: &'a PolicyEngine) -> Self {
        Self {
            policy,
            version: OnceLock::new(),
        }
    }

    /// The version that answered; the present one when none could.
    fn version(self) -> String {
        let answered = self.version.into_inner();
        answered.unwrap_or_else(|| self.policy.version())
    }
}

impl Decides for Noted<'_> {
    fn answer(&self, facts: &Facts) -> Result<PolicyAnswer, Denial> {
        let found = self.policy.deliberate(facts)?;
        if !found.log_only.is_empty() {
            let (call, policies) = (&facts.call, found.log_only.join(", "));
            tracing::info!(%call, policies, "would be answered otherwise by policies that are only watched");
        }
        let _ = self.version.set(found.version);
        Ok(found.answer)
    }
}

/// What a call may have put into its requests.
#[derive(Default)]
struct Secrets {
    table: Arc<InjectionTable>,
    authority: Option<Arc<Authority>>,
}

/// Why there is no permit.
enum NotPermitted {
    /// Policy or a person said no: it is recorded.
    Denied(Denial),
    /// Too many questions: counted, not recorded one by one.
    Flooded(Denial),
}

impl From<Denial> for NotPermitted {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
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

/// How many bytes of output a run is charged with.
fn size(output: &Value) -> u64 {
    let written = ["stdout_bytes", "stderr_bytes"].map(|name| output.get(name));
    let written: u64 = written
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .sum();
    written.max(canonical_bytes(output).len() as u64)
}

/// Answers [`ReplyPlan`]s: our own pure functions, nothing of the machine.
struct Replies<'a> {
    clock: &'a dyn Clock,
}

impl Executes for Replies<'_> {
    type Plan = ReplyPlan;
    type Output = Value;

    async fn run(&self, _: Running<'_>, plan: ReplyPlan) -> (ExecutionReport, Value) {
        let now = self.clock.now();
        let report = ExecutionReport {
            executor: "builtin".to_owned(),
            sandbox_enforcement: "none".to_owned(),
            layers: Vec::new(),
            started_at: now,
            ended_at: now,
            ending: Ending::Exited { code: 0 },
            truncated: false,
            running_as_root: false,
            network: None,
        };
        (report, plan.reply)
    }
}

fn unreadable(error: impl std::fmt::Display) -> Denial {
    Denial::new(
        DenialCode::JournalUnavailable,
        format!("the approval cannot be read or written: {error}"),
        "see `palyra status`; free disk space or mend the journal's folder, then try again",
    )
}
