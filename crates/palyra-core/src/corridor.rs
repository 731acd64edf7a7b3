//! The corridor: the only way from a proposal to an execution, walked once, forwards.
//!
//! ```text
//! Facts ─decide─▶ Permit ─admit─▶ Admitted ─execute─▶ Finished ─attest─▶ ToolAttestation
//! ```
//!
//! Each arrow consumes what is left of it and only this module can make what is right of it: the
//! fields are private and nothing here is `Clone`. A room takes part by implementing a trait
//! ([`Decides`], [`Admits`], [`Executes`], [`Attests`]); it is handed what it needs to do its
//! part and never a way to mint the next state.

use std::future::Future;

use crate::attestation::{ExecutionReport, ToolAttestation};
use crate::decision::{Denial, DenialCode};
use crate::digest::{CallDigest, PlanDigest, PlanSeal};
use crate::facts::{Backing, Facts, Grant};
use crate::id::CallId;
use crate::plan::Plan;

/// What policy answers about a call. An allow or an ask names the policies that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyAnswer {
    /// It may execute now.
    Run {
        /// Ids of the policies that allowed it.
        matched: Vec<String>,
    },
    /// A person may be asked.
    Ask {
        /// Ids of the policies that allow asking.
        matched: Vec<String>,
    },
    /// Neither.
    Deny {
        /// Ids of the policies that forbade it; none when nothing allowed it.
        matched: Vec<String>,
        /// Why and what to do.
        denial: Denial,
    },
}

/// Policy. `Err` means "could not tell", and the corridor closes.
pub trait Decides {
    /// The answer to these facts.
    ///
    /// # Errors
    /// A denial that says why no answer could be had.
    fn answer(&self, facts: &Facts) -> Result<PolicyAnswer, Denial>;
}

/// The outcome of deciding.
#[derive(Debug)]
#[must_use]
pub enum ToolDecision {
    /// It may execute now.
    Permit(Permit),
    /// A person must be asked first; afterwards, decide again with their grant in the facts.
    Ask(Asked),
    /// No.
    Deny(Denied),
}

/// Policy wants a person to be asked.
#[derive(Debug)]
pub struct Asked {
    /// Ids of the policies that allow asking.
    pub matched: Vec<String>,
}

/// Policy said no, or could not be asked.
#[derive(Debug)]
pub struct Denied {
    /// Ids of the policies that forbade it.
    pub matched: Vec<String>,
    /// Why and what to do.
    pub denial: Denial,
}

/// A key that opens one execution of exactly one call. It is spent by [`Permit::admit`].
#[derive(Debug)]
#[must_use]
pub struct Permit {
    call: CallId,
    digest: CallDigest,
    plan: PlanDigest,
    seal: PlanSeal,
    grant: Option<Backing>,
    matched: Vec<String>,
}

/// Asks policy about a call.
pub fn decide(policy: &impl Decides, facts: &Facts) -> ToolDecision {
    match policy.answer(facts) {
        Ok(PolicyAnswer::Run { matched }) => permit(facts, matched),
        Ok(PolicyAnswer::Ask { matched }) => ToolDecision::Ask(Asked { matched }),
        Ok(PolicyAnswer::Deny { matched, denial }) => {
            ToolDecision::Deny(Denied { matched, denial })
        }
        Err(denial) => ToolDecision::Deny(Denied {
            matched: Vec::new(),
            denial,
        }),
    }
}

/// Only the daemon that prepared a call can run it: facts from a record name no plan to execute.
fn permit(facts: &Facts, matched: Vec<String>) -> ToolDecision {
    let Some(plan) = facts.live_plan() else {
        let reason = "these facts were read from a record, so there is nothing to execute";
        let denial = Denial::new(DenialCode::PlanChanged, reason, "propose the call again");
        return ToolDecision::Deny(Denied { matched, denial });
    };
    ToolDecision::Permit(Permit {
        call: facts.call.clone(),
        digest: *facts.digest(),
        plan: *plan,
        seal: *facts.plan(),
        grant: facts.grant.as_ref().map(Grant::backing),
        matched,
    })
}

/// What is about to be executed, for whoever makes it durable.
#[derive(Debug)]
pub struct Intent<'a> {
    /// The call.
    pub call: &'a CallId,
    /// Keyed digest of the call.
    pub digest: &'a CallDigest,
    /// What exactly will run, as it is recorded.
    pub plan: &'a PlanSeal,
    /// The yes it spends, or the grant that must still be in force, in the same transaction.
    pub grant: Option<&'a Backing>,
}

/// Makes an intent durable before anything runs.
pub trait Admits {
    /// Returns only once the intent, and the spending of its grant, are durable.
    fn admit(&mut self, intent: Intent<'_>) -> impl Future<Output = Result<(), Denial>> + Send;
}

impl Permit {
    /// The policies that allowed it.
    #[must_use]
    pub fn matched(&self) -> &[String] {
        &self.matched
    }

    /// Spends the permit on a durable intent.
    ///
    /// # Errors
    /// The intent could not be recorded, or its grant was spent already: nothing may run.
    pub async fn admit(self, ledger: &mut impl Admits) -> Result<Admitted, Denial> {
        let Self {
            call,
            digest,
            plan,
            seal,
            grant,
            matched: _,
        } = self;
        let intent = Intent {
            call: &call,
            digest: &digest,
            plan: &seal,
            grant: grant.as_ref(),
        };
        ledger.admit(intent).await?;
        Ok(Admitted { call, plan, seal })
    }
}

/// A call whose intent is durable. It is spent by [`Admitted::execute`].
#[derive(Debug)]
#[must_use]
pub struct Admitted {
    call: CallId,
    plan: PlanDigest,
    seal: PlanSeal,
}

/// Shown to an executor as proof that the call in hand was admitted; it cannot be kept.
#[derive(Debug)]
pub struct Running<'a> {
    call: &'a CallId,
    plan: &'a PlanDigest,
}

impl Running<'_> {
    /// The call.
    #[must_use]
    pub const fn call(&self) -> &CallId {
        self.call
    }

    /// Whether this plan is the one that was decided.
    #[must_use]
    pub fn covers(&self, plan: &impl Plan) -> bool {
        plan.digest() == *self.plan
    }
}

/// Carries out plans.
pub trait Executes {
    /// What it can carry out.
    type Plan: Plan;
    /// What comes back besides the report.
    type Output: Send;

    /// Runs the plan. Whatever happens, a report comes back.
    fn run(
        &self,
        running: Running<'_>,
        plan: Self::Plan,
    ) -> impl Future<Output = (ExecutionReport, Self::Output)> + Send;
}

impl Admitted {
    /// The call.
    #[must_use]
    pub const fn call(&self) -> &CallId {
        &self.call
    }

    /// Executes the plan that was decided, and no other.
    ///
    /// # Errors
    /// The plan is not the one the permit was minted for. The call stays admitted and unattested;
    /// whoever holds the journal closes it.
    pub async fn execute<E: Executes>(
        self,
        executor: &E,
        plan: E::Plan,
    ) -> Result<Finished<E::Output>, PlanChanged> {
        let running = Running {
            call: &self.call,
            plan: &self.plan,
        };
        if !running.covers(&plan) {
            return Err(PlanChanged { call: self.call });
        }
        let (report, output) = executor.run(running, plan).await;
        Ok(Finished {
            call: self.call,
            seal: self.seal,
            report,
            output,
        })
    }
}

/// The plan offered for execution is not the one that was decided.
#[derive(Debug, thiserror::Error)]
#[error("the plan of `{call}` changed between decision and execution")]
pub struct PlanChanged {
    /// The call.
    pub call: CallId,
}

/// An execution that ended and is not attested yet. It is spent by [`Finished::attest`].
#[derive(Debug)]
#[must_use]
pub struct Finished<O> {
    call: CallId,
    seal: PlanSeal,
    report: ExecutionReport,
    output: O,
}

/// What an attestation is made from.
#[derive(Debug)]
pub struct Evidence<'a, O> {
    /// The call.
    pub call: &'a CallId,
    /// The plan that ran, as it is recorded.
    pub plan: &'a PlanSeal,
    /// What the executor saw.
    pub report: &'a ExecutionReport,
    /// What the tool gave back.
    pub output: &'a O,
}

/// Records what was executed.
pub trait Attests<O> {
    /// Returns only once the record is durable.
    fn attest(
        &mut self,
        evidence: Evidence<'_, O>,
    ) -> impl Future<Output = Result<ToolAttestation, Denial>> + Send;
}

impl<O: Send + Sync> Finished<O> {
    /// Records the execution and gives back its output.
    ///
    /// # Errors
    /// The record could not be made durable; the call is reported as interrupted at the next
    /// start, and its output is not handed out.
    pub async fn attest(
        self,
        ledger: &mut impl Attests<O>,
    ) -> Result<(ToolAttestation, O), Denial> {
        let Self {
            call,
            seal,
            report,
            output,
        } = self;
        let evidence = Evidence {
            call: &call,
            plan: &seal,
            report: &report,
            output: &output,
        };
        let attestation = ledger.attest(evidence).await?;
        Ok((attestation, output))
    }
}
