//! The runners that the corridor calls.

use palyra_core::corridor::{Executes, Running};
use palyra_core::{Ending, ExecutionReport, FilePlan, ProcessPlan, RunErrorKind};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::output::OutputSink;
use crate::sandbox::Sandbox;

/// Runs processes.
pub struct ProcessRunner {
    sandbox: Sandbox,
    sink: Option<OutputSink>,
    cancel: CancellationToken,
}

impl ProcessRunner {
    pub(crate) const fn new(
        sandbox: Sandbox,
        sink: Option<OutputSink>,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            sandbox,
            sink,
            cancel,
        }
    }
}

impl Executes for ProcessRunner {
    type Plan = ProcessPlan;
    type Output = Value;

    async fn run(&self, running: Running<'_>, plan: ProcessPlan) -> (ExecutionReport, Value) {
        run_constrained_process(
            &self.sandbox,
            running,
            plan,
            self.sink.clone(),
            self.cancel.clone(),
        )
        .await
    }
}

/// Runs one process behind the walls of Tier-B. The `running` proof makes this callable only from
/// the corridor.
pub async fn run_constrained_process(
    sandbox: &Sandbox,
    _running: Running<'_>,
    _plan: ProcessPlan,
    _sink: Option<OutputSink>,
    _cancel: CancellationToken,
) -> (ExecutionReport, Value) {
    (refused(sandbox), Value::Null)
}

/// Runs file tools.
pub struct FileRunner {
    sandbox: Sandbox,
    #[expect(dead_code, reason = "placeholder")]
    cancel: CancellationToken,
}

impl FileRunner {
    pub(crate) const fn new(sandbox: Sandbox, cancel: CancellationToken) -> Self {
        Self { sandbox, cancel }
    }
}

impl Executes for FileRunner {
    type Plan = FilePlan;
    type Output = Value;

    async fn run(&self, _running: Running<'_>, _plan: FilePlan) -> (ExecutionReport, Value) {
        (refused(&self.sandbox), Value::Null)
    }
}

fn refused(sandbox: &Sandbox) -> ExecutionReport {
    let now = sandbox.inner.settings.clock.now();
    ExecutionReport {
        executor: "sandbox_tier_b".to_owned(),
        sandbox_enforcement: "tier_b".to_owned(),
        layers: Vec::new(),
        started_at: now,
        ended_at: now,
        ending: Ending::Failed {
            kind: RunErrorKind::SandboxUnavailable,
            message: "not built yet".to_owned(),
        },
        truncated: false,
        running_as_root: false,
    }
}
