//! One call through the corridor: decide, approve, admit, execute, attest.
//!
//! This is the only place that holds a `Permit`. Whatever happens, the call ends in an entry of
//! its stream: an attestation, or a closing denial.

use std::sync::Arc;
use std::time::Duration;

use palyra_approval::{ApprovalRecord, ApprovalState};
use palyra_core::corridor::{
    Admitted, Executes, Finished, Permit, PlanChanged, Running, ToolDecision, decide,
};
use palyra_core::entry::Answer;
use palyra_core::json::canonical_bytes;
use palyra_core::{
    ApprovalId, Blob, BlobKind, CallId, Clock, Commitment, Denial, DenialCode, Ending,
    ExecutionReport, Facts, ReplyPlan, Timestamp, ToolAttestation, ToolProposal,
};
use palyra_journal::{CallRecorder, JournalError};
use palyra_sandbox::OutputChunk;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::service::{CallShared, Caller, Inner};
use crate::tools::AnyPlan;
use crate::{records, waiting};

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
        let walked = match self.permit(committed, &mut approval).await {
            Ok(permit) => self.carry_out(permit).await,
            Err(denial) => Err(denial),
        };
        let conclusion = match walked {
            Ok(executed) => executed,
            Err(denial) => Conclusion::Denied(self.close(denial).await),
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
    ) -> Result<Permit, Denial> {
        match self.decide() {
            ToolDecision::Permit(permit) => return Ok(permit),
            ToolDecision::Deny(denied) => return Err(denied.denial),
            ToolDecision::Ask(_) => {}
        }
        let record = self.ask(arguments, approval).await?;
        let (facts, now) = (self.facts.clone(), self.gateway.clock.now());
        self.facts = palyra_approval::apply_tool_approval_outcome(&record, facts, now)?;
        match self.decide() {
            ToolDecision::Permit(permit) => Ok(permit),
            ToolDecision::Deny(denied) => Err(denied.denial),
            ToolDecision::Ask(_) => Err(Denial::new(
                DenialCode::GrantSpent,
                "the approval does not cover this call any more",
                "propose the call again",
            )),
        }
    }

    fn decide(&mut self) -> ToolDecision {
        let decision = decide(&self.gateway.policy, &self.facts);
        let (answer, matched) = match &decision {
            ToolDecision::Permit(permit) => (Answer::Permit, permit.matched()),
            ToolDecision::Ask(asked) => (Answer::Ask, asked.matched.as_slice()),
            ToolDecision::Deny(denied) => (
                Answer::Deny(denied.denial.clone()),
                denied.matched.as_slice(),
            ),
        };
        let seen = serde_json::to_value(&self.facts).unwrap_or_default();
        let facts = Blob::new(BlobKind::Facts, canonical_bytes(&seen));
        let version = self.gateway.policy.version();
        self.recorder.decided(
            answer,
            matched.to_vec(),
            version,
            *self.facts.digest(),
            facts,
        );
        decision
    }

    /// Puts the question to a person and waits for the answer.
    async fn ask(
        &mut self,
        arguments: Commitment,
        approval: &mut Option<ApprovalId>,
    ) -> Result<ApprovalRecord, Denial> {
        let gateway = Arc::clone(&self.gateway);
        let principal = self.caller.principal.clone();
        let limits = &gateway.settings.floods;
        let counted = gateway
            .lock_floods()
            .ask(&principal, limits, std::time::Instant::now());
        if let Err(flooded) = counted {
            return Err(gateway.turned_away(flooded).await);
        }
        let id = ApprovalId::mint(gateway.clock.now());
        *approval = Some(id.clone());
        let answer = self.question(&id, arguments).await;
        gateway.lock_floods().settled(&principal);
        answer
    }

    async fn question(
        &mut self,
        id: &ApprovalId,
        arguments: Commitment,
    ) -> Result<ApprovalRecord, Denial> {
        let wait = self.gateway.settings.approval_wait;
        let expires_at = self.gateway.clock.now().plus(wait);
        // Listen before the question is visible, so that an answer at once is not missed.
        let digest = *self.facts.digest();
        let place = self
            .gateway
            .waiting
            .wait(id, expires_at, digest, &self.shared);
        self.recorder
            .request_approval(
                id.clone(),
                self.caller.principal.clone(),
                self.facts.tool.clone(),
                *self.facts.digest(),
                arguments,
                expires_at,
            )
            .await?;
        let pending = Event::ApprovalPending {
            approval: id.clone(),
            expires_at,
            joined: false,
        };
        let _ = self.events.send(pending).await;
        self.await_answer(id, &place, wait).await
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
            Gone(&'static str),
        }
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            let woken = tokio::select! {
                () = place.heard() => Woken::Told,
                () = tokio::time::sleep_until(deadline) => Woken::TimeOver,
                () = self.shared.cancel.cancelled() => Woken::Gone("its caller is gone"),
                () = self.gateway.stopping.cancelled() => Woken::Gone("the daemon stopped"),
            };
            let record = records::approval(&self.gateway.journal, id).map_err(unreadable)?;
            if record.state != ApprovalState::Pending {
                return Ok(record);
            }
            let change = match woken {
                Woken::Told => continue,
                Woken::TimeOver => palyra_approval::expire(&record, record.expires_at),
                Woken::Gone(why) => palyra_approval::cancel(&record, why),
            };
            let Ok(change) = change else { continue };
            match records::apply(&self.gateway.journal, change).await {
                Ok(_) | Err(JournalError::Conflict { .. }) => {}
                Err(error) => return Err(unreadable(error)),
            }
        }
    }

    /// Admits, executes and attests.
    async fn carry_out(&mut self, permit: Permit) -> Result<Conclusion, Denial> {
        if self.shared.cancel.is_cancelled() {
            return Err(Denial::new(
                DenialCode::ApprovalCancelled,
                "its caller went away before it started",
                "propose the call again",
            ));
        }
        let admitted = permit.admit(&mut self.recorder).await?;
        let _ = self.events.send(Event::Started).await;
        let executed = self.execute_tool_call(admitted).await;
        let finished = executed.map_err(|error| {
            let next_step = "propose the call again";
            Denial::new(DenialCode::PlanChanged, error.to_string(), next_step)
        })?;
        let (attestation, output) = finished.attest(&mut self.recorder).await?;
        let took = attestation
            .report
            .ended_at
            .since(attestation.report.started_at);
        let bytes = ["stdout_bytes", "stderr_bytes"].map(|name| output.get(name));
        let bytes = bytes.into_iter().flatten().filter_map(Value::as_u64).sum();
        self.caller.usage.executed(took, bytes);
        Ok(Conclusion::Executed {
            attestation: Box::new(attestation),
            output,
        })
    }

    /// Hands the plan to the executor it names.
    async fn execute_tool_call(&self, admitted: Admitted) -> Result<Finished<Value>, PlanChanged> {
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
                admitted
                    .execute(&sandbox.processes(Some(sink), cancel), *plan)
                    .await
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
