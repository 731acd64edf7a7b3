//! Tier-B processes: from a plan to an order, and from what was seen to a report.

use std::io;
use std::path::Path;

use palyra_core::corridor::{Executes, Running};
use palyra_core::plan::RunAs;
use palyra_core::{Ending, ExecutionReport, Layer, ProcessPlan, RunErrorKind, Tier, Timestamp};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::call::{self, Means, Outcome};
use crate::kit::For;
use crate::output::OutputSink;
use crate::sandbox::{Inner, Sandbox};
use crate::wire::{Decided, Order, Work};

/// The executor's name in reports.
const EXECUTOR: &str = "sandbox_tier_b";

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
        let (sink, cancel) = (self.sink.clone(), self.cancel.clone());
        run_constrained_process(&self.sandbox, running, plan, sink, cancel).await
    }
}

/// Runs one process behind the walls of Tier-B.
///
/// The corridor's proof is the second argument: nobody else can call this. The output is
/// `{"stdout": …, "stderr": …, "stdout_bytes": n, "stderr_bytes": n}`, each stream as
/// `{"text": …}` or, when it is not UTF-8, `{"base64": …}`.
pub async fn run_constrained_process(
    sandbox: &Sandbox,
    running: Running<'_>,
    plan: ProcessPlan,
    sink: Option<OutputSink>,
    cancel: CancellationToken,
) -> (ExecutionReport, Value) {
    let inner = &*sandbox.inner;
    let started_at = inner.settings.clock.now();
    let run_as = plan.run_as;
    let whose = For {
        run_as,
        masked: plan.masked.clone(),
    };
    let prepared = if running.covers(&plan) {
        prepare(inner, plan, &whose, sink, cancel)
    } else {
        Err(Refused::changed())
    };
    let (order, means) = match prepared {
        Ok(prepared) => prepared,
        Err(refused) => return (refused.report(inner, started_at, run_as), Value::Null),
    };
    let outcome = call::run(inner, &order, means).await;
    sandbox.lay_by(whose);
    let truncated = outcome.stdout.dropped() > 0 || outcome.stderr.dropped() > 0;
    let Outcome {
        layers,
        ending,
        stdout,
        stderr,
    } = outcome;
    let report = ExecutionReport {
        truncated,
        ..report(inner, started_at, run_as, layers, ending)
    };
    let (stdout_bytes, stderr_bytes) = (stdout.total(), stderr.total());
    let output = json!({
        "stdout": stdout.into_value(),
        "stderr": stderr.into_value(),
        "stdout_bytes": stdout_bytes,
        "stderr_bytes": stderr_bytes,
    });
    (report, output)
}

/// Why a plan was not even tried.
pub(crate) struct Refused {
    kind: RunErrorKind,
    message: String,
}

impl Refused {
    pub(crate) fn new(kind: RunErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    pub(crate) fn changed() -> Self {
        let message = "the plan is not the one that was decided";
        Self::new(RunErrorKind::InvalidInput, message)
    }

    /// Something on our side failed before the call began.
    pub(crate) fn broke(error: &io::Error) -> Self {
        let message = format!("the call could not be prepared: {error}");
        Self::new(RunErrorKind::RuntimeFailure, message)
    }

    pub(crate) fn report(
        self,
        inner: &Inner,
        started_at: Timestamp,
        run_as: RunAs,
    ) -> ExecutionReport {
        let Self { kind, message } = self;
        let ending = Ending::Failed { kind, message };
        report(inner, started_at, run_as, Vec::new(), ending)
    }
}

/// A report of what was observed: without layers nothing was confined, and nothing ran.
pub(crate) fn report(
    inner: &Inner,
    started_at: Timestamp,
    run_as: RunAs,
    layers: Vec<Layer>,
    ending: Ending,
) -> ExecutionReport {
    let confined = !layers.is_empty();
    ExecutionReport {
        executor: EXECUTOR.to_owned(),
        sandbox_enforcement: if confined { "tier_b" } else { "none" }.to_owned(),
        layers,
        started_at,
        ended_at: inner.settings.clock.now(),
        ending,
        truncated: false,
        running_as_root: confined && matches!(run_as, RunAs::Root),
    }
}

/// Refuses when the machine lacks a layer, and plans that do not fit the daemon.
pub(crate) fn check_machine(inner: &Inner, run_as: RunAs) -> Result<(), Refused> {
    if let Some(why) = inner.status().why {
        return Err(Refused::new(RunErrorKind::SandboxUnavailable, why));
    }
    Inner::check_run_as(run_as).map_err(|why| Refused::new(RunErrorKind::InvalidInput, why))
}

fn prepare(
    inner: &Inner,
    plan: ProcessPlan,
    whose: &For,
    sink: Option<OutputSink>,
    cancel: CancellationToken,
) -> Result<(Order, Means), Refused> {
    check_machine(inner, plan.run_as)?;
    check_plan(&plan)?;
    let broke = |error: io::Error| Refused::broke(&error);
    let walls = inner
        .walls()
        .map_err(|why| Refused::new(RunErrorKind::SandboxUnavailable, why))?;
    let stdin = match &plan.stdin {
        Some(text) => call::memory_file(text.as_bytes()),
        None => inner.no_input(),
    };
    let stdin = stdin.map_err(broke)?;
    let kit = inner.kit(whose).map_err(broke)?;
    if let Ok(real) = plan.cwd.canonicalize()
        && kit.view.hides(&real)
    {
        let message = format!("`{}` is the daemon's home or inside it", plan.cwd.display());
        return Err(Refused::new(RunErrorKind::WorkspaceScopeDenied, message));
    }
    let means = Means {
        ruleset: kit.wall.ruleset,
        stdin,
        lines: kit.lines,
        sink,
        keep: plan.limits.output_bytes,
        cancel,
        tmp: None,
    };
    let order = Order {
        work: Work::Process {
            program: plan.program,
            argv: plan.argv,
            env: plan.env,
            cwd: plan.cwd,
            decided: Decided {
                program: plan.program_id,
                cwd: plan.cwd_id,
            },
        },
        run_as: plan.run_as,
        limits: plan.limits,
        landlock_abi: walls.abi().number(),
        masked: kit.wall.masked,
        tmp: Some(kit.tmp.made().clone()),
    };
    let tmp = Some(kit.tmp);
    Ok((order, Means { tmp, ..means }))
}

/// What no program can be started with.
fn check_plan(plan: &ProcessPlan) -> Result<(), Refused> {
    let wrong = |what: &str| Err(Refused::new(RunErrorKind::InvalidInput, what));
    match plan.tier {
        Tier::B => {}
        Tier::Builtin => return wrong("the plan is not for Tier-B"),
    }
    if plan.argv.is_empty() {
        return wrong("the plan has no arguments, not even the program's name");
    }
    if !plan.program.is_absolute() || !plan.cwd.is_absolute() {
        return wrong("the program and the folder it starts in need absolute paths");
    }
    let paths = [plan.program.as_path(), plan.cwd.as_path()];
    if !paths
        .into_iter()
        .chain(plan.masked.iter().map(|it| it.as_path()))
        .all(is_plain)
    {
        return wrong("a path of the plan is not UTF-8 or contains a NUL character");
    }
    if plan.argv.iter().any(|argument| argument.contains('\0')) {
        return wrong("an argument contains a NUL character");
    }
    for (name, value) in &plan.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return wrong("a variable has no name, or `=` or a NUL character where it may not");
        }
    }
    Ok(())
}

/// Paths travel as text.
pub(crate) fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|text| !text.contains('\0'))
}
