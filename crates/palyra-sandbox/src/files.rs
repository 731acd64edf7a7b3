//! File tools: the daemon's side. The work itself is done by the helper, behind walls that grant
//! the workspace and nothing else.

use std::io;
use std::path::Path;

use palyra_core::corridor::{Executes, Running};
use palyra_core::{Ending, ExecutionReport, FileOperation, FilePlan, RunErrorKind, Tier};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::caged::{self, Hold};
use crate::call::{self, Means, Outcome};
use crate::ground::policy::Guard;
use crate::input::Feeding;
use crate::kit::Lines;
use crate::landlock::Access;
use crate::process::{Refused, TRIES, check_machine, has_moved, is_plain, report};
use crate::sandbox::{Inner, Sandbox};
use crate::surround::Reach;
use crate::wire::{Order, Work};

/// How much a result may take besides the content: each name of a listing is up to 255 bytes, six
/// times that when written as escapes, and what is said about it.
const PER_ENTRY: u64 = 2 * 1024;

/// How much longer than the content its JSON can be: a control character becomes six.
const ESCAPED: u64 = 6;

/// Runs file tools.
pub struct FileRunner {
    sandbox: Sandbox,
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

    async fn run(&self, running: Running<'_>, plan: FilePlan) -> (ExecutionReport, Value) {
        let inner = &*self.sandbox.inner;
        let started_at = inner.settings.clock.now();
        let tier = plan.tier;
        if !running.covers(&plan) {
            let refused = Refused::changed();
            return (refused.report(inner, started_at, tier), Value::Null);
        }
        let mut tries = 0;
        let outcome = loop {
            tries += 1;
            match attempt(inner, &plan, self.cancel.clone()).await {
                Ok(outcome) if has_moved(&outcome.ending) && tries < TRIES => {}
                Ok(outcome) => break outcome,
                Err(refused) => return (refused.report(inner, started_at, tier), Value::Null),
            }
        };
        let (ending, output) = match outcome.ending {
            done @ Ending::Exited { code: 0 } => {
                let complete = outcome.stdout.dropped() == 0;
                match serde_json::from_slice(&outcome.stdout.into_bytes()) {
                    Ok(output) if complete => (done, output),
                    Ok(_) | Err(_) => (broken(), Value::Null),
                }
            }
            other @ (Ending::Exited { .. }
            | Ending::Signalled { .. }
            | Ending::TimedOut
            | Ending::Cancelled { .. }
            | Ending::Failed { .. }) => (other, Value::Null),
        };
        let truncated = output
            .get("truncated")
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let report = ExecutionReport {
            truncated,
            ..report(inner, started_at, tier, outcome.layers, ending)
        };
        (report, output)
    }
}

fn broken() -> Ending {
    Ending::Failed {
        kind: RunErrorKind::RuntimeFailure,
        message: "the result of the file tool cannot be read".to_owned(),
    }
}

async fn attempt(
    inner: &Inner,
    plan: &FilePlan,
    cancel: CancellationToken,
) -> Result<Outcome, Refused> {
    check_machine(inner, plan.tier, plan.run_as)?;
    let guards = match plan.tier {
        Tier::B | Tier::Builtin => Vec::new(),
        Tier::C => {
            let hold = Hold {
                workspace: &plan.workspace,
                id: plan.workspace_id,
                masked: &plan.masked,
                rules: &plan.rules,
                writable: caged::writes(&plan.operation),
            };
            hold.look(inner).await?.guards
        }
    };
    let (order, means) = prepare(inner, plan.clone(), guards, cancel)?;
    Ok(call::run(inner, &order, means).await)
}

fn prepare(
    inner: &Inner,
    plan: FilePlan,
    guards: Vec<Guard>,
    cancel: CancellationToken,
) -> Result<(Order, Means), Refused> {
    let (path, access, result_bytes) = shape(&plan);
    let refused = |kind, message: String| Err(Refused::new(kind, message));
    if !is_plain(path) || !is_plain(&plan.workspace) || !plan.masked.iter().all(|it| is_plain(it)) {
        let message = "a path is not UTF-8 or contains a NUL character".to_owned();
        return refused(RunErrorKind::InvalidInput, message);
    }
    if path.is_absolute() {
        let message = format!("`{}` is not relative to the workspace", path.display());
        return refused(RunErrorKind::WorkspaceScopeDenied, message);
    }
    let walls = inner
        .walls()
        .map_err(|why| Refused::new(RunErrorKind::SandboxUnavailable, why))?;
    let broke = |error: io::Error| Refused::broke(&error);
    // The plan names a folder without links; where it leads elsewhere now, it is another one.
    let workspace = match plan.workspace.canonicalize() {
        Ok(real) if real == plan.workspace => real,
        Ok(_) => {
            let message = format!(
                "the workspace `{}` was changed since it was decided",
                plan.workspace.display()
            );
            return refused(RunErrorKind::Changed, message);
        }
        Err(error) => {
            let message = format!("the workspace `{}`: {error}", plan.workspace.display());
            return refused(RunErrorKind::InvalidInput, message);
        }
    };
    let mut run_as = plan.run_as;
    let (masked, ruleset, caged, lease) = match plan.tier {
        Tier::C => {
            let made = caged::for_files(inner, &plan, guards)?;
            run_as = made.run_as;
            (made.masked, None, Some(made.order), made.lease)
        }
        Tier::B | Tier::Builtin => {
            let masked = walls.places(&plan.masked).map_err(broke)?;
            if masked.iter().any(|mask| workspace.starts_with(mask)) {
                let message = format!(
                    "`{}` is the daemon's home or inside it",
                    workspace.display()
                );
                return refused(RunErrorKind::WorkspaceScopeDenied, message);
            }
            let root = Reach::new(&workspace, access);
            let wall = walls.for_files(masked, root).map_err(broke)?;
            (wall.masked, Some(wall.ruleset), None, None)
        }
    };
    let order = Order {
        run_as,
        landlock_abi: walls.abi().number(),
        masked,
        tmp: None,
        caged,
        limits: plan.limits,
        work: Work::File {
            workspace,
            workspace_id: plan.workspace_id,
            operation: plan.operation,
            rules: plan.rules,
        },
    };
    let means = Means {
        doors: None,
        ruleset,
        stdin: inner.no_input().map_err(broke)?,
        lines: Lines::new().map_err(broke)?,
        tmp: None,
        lease,
        sink: None,
        feeding: Feeding::none(),
        keep: result_bytes,
        cancel,
    };
    Ok((order, means))
}

/// Which path, how much of the workspace is granted, and how long the result can be.
fn shape(plan: &FilePlan) -> (&Path, Access, u64) {
    match &plan.operation {
        FileOperation::Read { path, max_bytes } => {
            let content = (*max_bytes).min(plan.limits.output_bytes);
            let most = content.saturating_mul(ESCAPED).saturating_add(PER_ENTRY);
            (path, Access::FileRead, most)
        }
        FileOperation::List { path, max_entries } => {
            let most = max_entries.saturating_add(1).saturating_mul(PER_ENTRY);
            (path, Access::FileRead, most)
        }
        FileOperation::Write { path, .. } | FileOperation::ApplyPatch { path, .. } => {
            (path, Access::FileWrite, PER_ENTRY)
        }
    }
}
