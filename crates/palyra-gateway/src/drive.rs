//! One call through the corridor: decide, approve, admit, execute, attest.
//!
//! This is the only place that holds a `Permit`. Whatever happens, the call ends in an entry of
//! its stream: an attestation, or a closing denial.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use palyra_approval::ApprovalState;
use palyra_core::corridor::{
    Admitted, Decides, Executes, Finished, Permit, PlanChanged, PolicyAnswer, Running,
    ToolDecision, decide,
};
use palyra_core::entry::{Answer, Entry};
use palyra_core::json::canonical_bytes;
use palyra_core::{
    ApprovalId, Blob, BlobKind, CallDigest, CallId, Clock, Commitment, ConnectionRecord, Denial,
    DenialCode, Ending, ExecutionReport, Facts, Grant, InjectionTable, ReplyPlan, SecretAccess,
    SecretRef, Timestamp, ToolAttestation, ToolProposal,
};
use palyra_egress::Authority;
use palyra_journal::CallRecorder;
use palyra_policy::PolicyEngine;
use palyra_sandbox::{LiveInput, OutputChunk};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::advising::Advice;
use crate::asking::unreadable;
use crate::changes::Change;
use crate::handle::CallShared;
use crate::networked;
use crate::networked::{Network, Networked};
use crate::service::{Caller, GatewayService, Inner};
use crate::tools::AnyPlan;

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
        let plan = match (self.advice, &self.plan) {
            (Some(Advice::Native), AnyPlan::File(plan)) => plan,
            (Some(Advice::Native), AnyPlan::Process(_)) => {
                return Err(Denial::new(
                    DenialCode::DeniedByPolicy,
                    "a command runs here or not at all; this client cannot have it run here",
                    "use the tool `palyra_process_run`",
                ));
            }
            (Some(Advice::Native), AnyPlan::Reply(_)) | (Some(Advice::Rewritten) | None, _) => {
                return Ok(());
            }
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
pub(crate) struct Noted<'a> {
    policy: &'a PolicyEngine,
    version: OnceLock<String>,
}

impl<'a> Noted<'a> {
    pub(crate) const fn new(policy: &'a PolicyEngine) -> Self {
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
pub(crate) enum NotPermitted {
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
