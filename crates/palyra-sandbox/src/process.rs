//! Processes: from a plan to an order, and from what was seen to a report.

use std::io::{self, ErrorKind::NotADirectory, ErrorKind::NotFound};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use palyra_core::corridor::{Executes, Running};
use palyra_core::plan::RunAs;
use palyra_core::{
    CodeFact, CodePart, EgressEnforcementMode, Ending, ExecutionReport, Layer, Pinned, ProcessPlan,
    RunErrorKind, Stdin, Tier, Timestamp,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::caged::{self, Hold, Swept};
use crate::call::{self, Means, Outcome};
use crate::doors::{self, Outlet};
use crate::ground::hints;
use crate::ground::policy::Guard;
use crate::ground::spot::Spot;
use crate::input::{Feeding, LiveInput};
use crate::kit::{For, Lines};
use crate::output::OutputSink;
use crate::sandbox::{Inner, Sandbox};
use crate::surround::Reach;
use crate::tier_c::cage;
use crate::wire::{CagedOrder, CodeCheck, Decided, MOVED, Order, Work};

/// Runs one process.
pub struct ProcessRunner {
    sandbox: Sandbox,
    sink: Option<OutputSink>,
    /// Until it is taken: only one process can be sent it.
    input: Mutex<Option<LiveInput>>,
    cancel: CancellationToken,
    outlet: Option<Outlet>,
}

impl ProcessRunner {
    pub(crate) const fn new(
        sandbox: Sandbox,
        sink: Option<OutputSink>,
        input: Option<LiveInput>,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            sandbox,
            sink,
            input: Mutex::new(input),
            cancel,
            outlet: None,
        }
    }

    /// The same, for a call that reaches hosts: who takes the doors of its network.
    #[must_use]
    pub fn with_outlet(mut self, outlet: Option<Outlet>) -> Self {
        self.outlet = outlet;
        self
    }
}

impl Executes for ProcessRunner {
    type Plan = ProcessPlan;
    type Output = Value;

    async fn run(&self, running: Running<'_>, plan: ProcessPlan) -> (ExecutionReport, Value) {
        let input = self.input.lock();
        let input = input.unwrap_or_else(PoisonError::into_inner).take();
        let with = With {
            sink: self.sink.clone(),
            outlet: self.outlet.as_ref(),
            cancel: self.cancel.clone(),
        };
        run_constrained_process(&self.sandbox, running, plan, with, input).await
    }
}

/// What a process is run with, besides its plan.
#[derive(Debug, Clone)]
pub struct With<'a> {
    /// Where what it writes goes while it runs.
    pub sink: Option<OutputSink>,
    /// Who takes the doors of its network.
    pub outlet: Option<&'a Outlet>,
    /// Ends it.
    pub cancel: CancellationToken,
}

/// Runs one process behind the walls of its tier.
///
/// The corridor's proof is the second argument: nobody else can call this. The output is
/// `{"stdout": …, "stderr": …, "stdout_bytes": n, "stderr_bytes": n, "ran": […]}`, each stream as
/// `{"text": …}` or, when it is not UTF-8, `{"base64": …}`, and each file that ran with its content's
/// digest. That is where the attestation has it: a record in clear would tell which calls were equal.
pub async fn run_constrained_process(
    sandbox: &Sandbox,
    running: Running<'_>,
    plan: ProcessPlan,
    with: With<'_>,
    input: Option<LiveInput>,
) -> (ExecutionReport, Value) {
    let inner = &*sandbox.inner;
    let started_at = inner.settings.clock.now();
    let tier = plan.tier;
    let whose = For {
        run_as: plan.run_as,
        masked: plan.masked.clone(),
        roots: inner.host.reach_of(&plan.workspace, &plan.read_only),
    };
    if !running.covers(&plan) {
        let refused = Refused::changed();
        return (refused.report(inner, started_at, tier), Value::Null);
    }
    // What somebody types can be given to one try only.
    let most = if input.is_some() { 1 } else { TRIES };
    let mut input = input;
    let mut tries = 0;
    let attempted = loop {
        tries += 1;
        match attempt(inner, &plan, &whose, with.clone(), input.take()).await {
            Ok(attempted) if attempted.has_moved() && tries < most => {}
            Ok(attempted) => break attempted,
            Err(refused) => return (refused.report(inner, started_at, tier), Value::Null),
        }
    };
    if tier != Tier::C {
        sandbox.lay_by(whose);
    }
    let Attempted {
        outcome,
        guards,
        swept,
        replaced,
    } = attempted;
    let truncated = outcome.stdout.dropped() > 0 || outcome.stderr.dropped() > 0;
    let Outcome {
        mut layers,
        ending,
        stdout,
        stderr,
    } = outcome;
    // Whoever found every wall standing and did not fail after that has started what was decided.
    let started = !layers.is_empty() && !matches!(ending, Ending::Failed { .. });
    layers.extend(preflight(plan.egress).filter(|_| started));
    layers.extend(swept.layer());
    layers.extend(replaced.as_ref().filter(|_| started).map(|_| Layer {
        name: "code_replaced".to_owned(),
        observed: "after the fact: another file was put in the place of one that ran".to_owned(),
    }));
    let ended_well = ending == Ending::Exited { code: 0 };
    let report = ExecutionReport {
        truncated,
        ..report(inner, started_at, tier, layers, ending)
    };
    let (stdout_bytes, stderr_bytes) = (stdout.total(), stderr.total());
    let mut output = json!({
        "stdout": stdout.into_value(),
        "stderr": stderr.into_value(),
        "stdout_bytes": stdout_bytes,
        "stderr_bytes": stderr_bytes,
    });
    let hints = match ended_well {
        true => Vec::new(),
        false => likely(&output, &guards),
    };
    let told = swept.told();
    if let Value::Object(fields) = &mut output {
        if started {
            let ran: Vec<CodeFact> = plan.code.iter().map(CodeFact::from).collect();
            fields.insert("ran".to_owned(), json!(ran));
            if let Some(at) = &replaced {
                let at = plan.workspace.join(at.path()).display().to_string();
                fields.insert("replaced".to_owned(), json!(at));
            }
        }
        if !hints.is_empty() {
            fields.insert("hints".to_owned(), json!(hints));
        }
        if !told.is_empty() {
            fields.insert("quarantined".to_owned(), json!(told));
        }
    }
    (report, output)
}

/// What there is to say of a call whose hosts were only looked at.
fn preflight(mode: EgressEnforcementMode) -> Option<Layer> {
    let observed = match mode {
        EgressEnforcementMode::Strict | EgressEnforcementMode::None => return None,
        EgressEnforcementMode::Preflight => {
            "preflight: the requested hosts were checked before it started; not enforced at run time"
        }
    };
    Some(Layer {
        name: "egress".to_owned(),
        observed: observed.to_owned(),
    })
}

/// Why it may have failed, going by what it said.
fn likely(output: &Value, guards: &[Guard]) -> Vec<String> {
    let said = |name: &str| {
        let text = output.get(name).and_then(|stream| stream.get("text"));
        text.and_then(Value::as_str).unwrap_or_default()
    };
    hints::of(&[said("stderr"), said("stdout")], guards)
}

/// How often a cage is tried to be built when what is guarded in the workspace changes meanwhile.
pub(crate) const TRIES: usize = 5;

/// Whether nothing ran because what is guarded is no longer what was seen.
pub(crate) fn has_moved(ending: &Ending) -> bool {
    matches!(
        ending,
        Ending::Failed { kind: RunErrorKind::Changed, message } if message == MOVED
    )
}

/// What came of one try.
struct Attempted {
    outcome: Outcome,
    guards: Vec<Guard>,
    swept: Swept,
    /// A script over which somebody renamed another file while it ran.
    replaced: Option<Spot>,
}

impl Attempted {
    /// Whether nothing ran because what is guarded is no longer what was seen.
    fn has_moved(&self) -> bool {
        has_moved(&self.outcome.ending)
    }
}

async fn attempt(
    inner: &Inner,
    plan: &ProcessPlan,
    whose: &For,
    with: With<'_>,
    input: Option<LiveInput>,
) -> Result<Attempted, Refused> {
    check_machine(inner, plan.tier, plan.run_as)?;
    check_plan(plan)?;
    match plan.tier {
        Tier::C => {}
        Tier::B | Tier::Builtin => {
            let (order, means) = prepare(inner, plan.clone(), whose, Vec::new(), with, input)?;
            let outcome = call::run(inner, &order, means).await;
            let (guards, swept) = (Vec::new(), Swept::default());
            return Ok(Attempted {
                outcome,
                guards,
                swept,
                replaced: None,
            });
        }
    }
    let hold = Hold {
        workspace: &plan.workspace,
        id: plan.workspace_id,
        masked: &plan.masked,
        rules: &plan.rules,
        writable: true,
    };
    let held = hold.look(inner).await?;
    let guards = held.guards.clone();
    // From before there is a cage: what is replaced until then the helper notices.
    let end = with.cancel.child_token();
    let scripts = scripts(plan);
    let watched = inner
        .lookout
        .watch(&held.root, &guards, &scripts, end.clone());
    let watching = match watched {
        Ok(watching) => watching,
        // A folder went in between.
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => {
            return Ok(Attempted {
                outcome: Outcome::failed(RunErrorKind::Changed, MOVED),
                guards,
                swept: Swept::default(),
                replaced: None,
            });
        }
        Err(error) => return Err(unwatched(&error)),
    };
    let with = With {
        cancel: end,
        ..with
    };
    let (order, means) = prepare(inner, plan.clone(), whose, guards.clone(), with, input)?;
    let mut outcome = call::run(inner, &order, means).await;
    if let Some(at) = watching.lost() {
        outcome.ending = lost(at, !outcome.layers.is_empty());
    }
    let replaced = watching.replaced().cloned();
    drop(watching);
    // What never ran left nothing.
    let swept = match outcome.layers.is_empty() {
        true => Swept::default(),
        false => held.sweep(inner, &plan.rules).await,
    };
    Ok(Attempted {
        outcome,
        guards,
        swept,
        replaced,
    })
}

/// Where in the workspace the scripts of a call are: what is not executed by a descriptor.
fn scripts(plan: &ProcessPlan) -> Vec<Spot> {
    let is_script = |one: &&Pinned| one.part != CodePart::Later && one.seen.is_some();
    let code = plan.code.iter().filter(is_script);
    let inside = code.filter_map(|one| one.real.strip_prefix(&plan.workspace).ok());
    let mut spots: Vec<Spot> = inside.filter_map(Spot::of).collect();
    spots.retain(|spot| !spot.bytes().is_empty());
    spots
}

fn unwatched(error: &io::Error) -> Refused {
    let message = format!(
        "what is masked in the workspace cannot be watched: {error}; see `sysctl \
         fs.inotify.max_user_instances fs.inotify.max_user_watches`"
    );
    Refused::new(RunErrorKind::RuntimeFailure, message)
}

/// How a call ends whose mask was lost. One that had not begun is tried again.
fn lost(at: &Spot, had_begun: bool) -> Ending {
    let (kind, message) = match had_begun {
        true => (
            RunErrorKind::MaskLost,
            format!(
                "`{at}` was replaced by somebody outside while the call ran, which uncovered it; the \
                 call was ended: run it again"
            ),
        ),
        false => (RunErrorKind::Changed, MOVED.to_owned()),
    };
    Ending::Failed { kind, message }
}

/// Why a plan was not even tried.
pub(crate) struct Refused {
    kind: RunErrorKind,
    pub(crate) message: String,
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
        tier: Tier,
    ) -> ExecutionReport {
        let Self { kind, message } = self;
        let ending = Ending::Failed { kind, message };
        report(inner, started_at, tier, Vec::new(), ending)
    }
}

/// A report of what was observed: without layers nothing was confined, and nothing ran.
pub(crate) fn report(
    inner: &Inner,
    started_at: Timestamp,
    tier: Tier,
    layers: Vec<Layer>,
    ending: Ending,
) -> ExecutionReport {
    let (executor, enforcement) = match tier {
        Tier::C => (inner.backend().executor(), "tier_c"),
        Tier::B | Tier::Builtin => ("sandbox_tier_b", "tier_b"),
    };
    let confined = !layers.is_empty();
    ExecutionReport {
        executor: executor.to_owned(),
        sandbox_enforcement: if confined { enforcement } else { "none" }.to_owned(),
        layers,
        started_at,
        ended_at: inner.settings.clock.now(),
        ending,
        truncated: false,
        // No plan can say so, and a target that finds itself root does not go on.
        running_as_root: false,
        network: None,
    }
}

/// Refuses when the machine lacks what the tier needs, and plans that do not fit the daemon.
pub(crate) fn check_machine(inner: &Inner, tier: Tier, run_as: RunAs) -> Result<(), Refused> {
    let status = inner.status();
    let missing = match tier {
        Tier::C => status.why.or(status.tier_c_why),
        Tier::B | Tier::Builtin => status.why,
    };
    if let Some(why) = missing {
        return Err(Refused::new(RunErrorKind::SandboxUnavailable, why));
    }
    Inner::check_run_as(tier, run_as).map_err(|why| Refused::new(RunErrorKind::InvalidInput, why))
}

fn prepare(
    inner: &Inner,
    plan: ProcessPlan,
    whose: &For,
    guards: Vec<Guard>,
    with: With<'_>,
    input: Option<LiveInput>,
) -> Result<(Order, Means), Refused> {
    let With {
        sink,
        outlet,
        cancel,
    } = with;
    let laid = outlet.map_or(&[][..], |outlet| &outlet.files);
    let mut plan = plan;
    for (name, value) in outlet.iter().flat_map(|outlet| &outlet.env) {
        plan.env.retain(|(known, _)| known != name);
        plan.env.push((name.clone(), value.clone()));
    }
    let broke = |error: io::Error| Refused::broke(&error);
    let walls = inner
        .walls()
        .map_err(|why| Refused::new(RunErrorKind::SandboxUnavailable, why))?;
    let window = input.as_ref().map(|input| input.window);
    let fed = Feeding::open(&plan.stdin, input).map_err(broke)?;
    let (stdin, feeding) = match (&plan.stdin, fed) {
        (_, Some(fed)) => fed,
        (Stdin::Text(text), None) => {
            let stdin = call::memory_file(text.as_bytes()).map_err(broke)?;
            (stdin, Feeding::none())
        }
        (Stdin::Nothing | Stdin::Live | Stdin::Terminal, None) => {
            (inner.no_input().map_err(broke)?, Feeding::none())
        }
    };
    let terminal = (plan.stdin == Stdin::Terminal).then(|| window.unwrap_or_default());
    let means = |lines: Lines| Means {
        ruleset: None,
        stdin,
        feeding,
        lines,
        sink,
        keep: plan.limits.output_bytes,
        cancel,
        tmp: None,
        lease: None,
        doors: outlet.map(|outlet| outlet.doors.clone()),
    };
    let mut run_as = plan.run_as;
    let (masked, tmp, caged, means) = match plan.tier {
        Tier::C => {
            let made = caged::for_process(inner, &plan, guards, laid)?;
            run_as = made.run_as;
            let means = Means {
                lease: made.lease,
                ..means(Lines::new().map_err(broke)?)
            };
            (made.masked, None, Some(made.order), means)
        }
        Tier::B | Tier::Builtin => {
            let kit = inner.kit(whose).map_err(broke)?;
            if let Ok(real) = plan.cwd.canonicalize()
                && kit.view.hides(&real)
            {
                let message = format!("`{}` is the daemon's home or inside it", plan.cwd.display());
                return Err(Refused::new(RunErrorKind::WorkspaceScopeDenied, message));
            }
            cage::can_be_worked_on(&plan.workspace, &[]).map_err(|why| caged::no_cage(&why))?;
            if !kit.view.reaches(&plan.workspace, plan.workspace_id) {
                let message = format!(
                    "the workspace `{}` was changed since it was decided",
                    plan.workspace.display()
                );
                return Err(Refused::new(RunErrorKind::Changed, message));
            }
            is_within_reach(&plan, &whose.roots)?;
            let tmp = kit.tmp.made().clone();
            let means = Means {
                ruleset: Some(kit.wall.ruleset),
                tmp: Some(kit.tmp),
                ..means(kit.lines)
            };
            (kit.wall.masked, Some(tmp), None, means)
        }
    };
    let order = Order {
        work: Work::Process {
            argv: plan.argv,
            env: plan.env,
            cwd: plan.cwd,
            offline: plan.tier == Tier::B && plan.egress.is_enforced(),
            decided: Decided {
                code: checks(&plan.code, caged.as_ref()),
                cwd: plan.cwd_id,
            },
            terminal,
        },
        run_as,
        limits: plan.limits,
        landlock_abi: walls.abi().number(),
        masked,
        tmp,
        caged,
    };
    Ok((order, means))
}

/// What the helper compares before anything starts.
fn checks(code: &[Pinned], caged: Option<&CagedOrder>) -> Vec<CodeCheck> {
    let copied = |real: &Path| caged.is_some_and(|caged| caged.cage.copies(real));
    let check = |one: &Pinned| CodeCheck {
        path: one.path.clone(),
        part: one.part,
        content: one.content,
        seen: one.seen,
        fixed: one.fixed,
        copied: copied(&one.real),
    };
    code.iter().map(check).collect()
}

/// A program that is there and cannot be reached: better said now than "permission denied" later.
fn is_within_reach(plan: &ProcessPlan, roots: &[Reach]) -> Result<(), Refused> {
    let Ok(real) = plan.program.canonicalize() else {
        return Ok(());
    };
    if roots.iter().any(|root| real.starts_with(&root.path)) {
        return Ok(());
    }
    let message = format!(
        "`{}` lies outside of what Tier-B can reach: the system's folders, toolchains in the home \
         directory, and the workspace",
        plan.program.display()
    );
    Err(Refused::new(RunErrorKind::ProgramNotFound, message))
}

/// What no program can be started with.
fn check_plan(plan: &ProcessPlan) -> Result<(), Refused> {
    let wrong = |what: &str| Err(Refused::new(RunErrorKind::InvalidInput, what));
    match plan.tier {
        Tier::B | Tier::C => {}
        Tier::Builtin => return wrong("the plan is for no process"),
    }
    if plan.tier != Tier::C && !doors::ports_of(plan).is_empty() {
        let message = "Tier-B has no network of its own, so nothing can be held to named hosts there; \
                       leave `--tier b` out, or use `--egress preflight`";
        return Err(Refused::new(RunErrorKind::EgressDenied, message));
    }
    if plan.argv.is_empty() {
        return wrong("the plan has no arguments, not even the program's name");
    }
    if !plan.program.is_absolute() || !plan.cwd.is_absolute() {
        return wrong("the program and the folder it starts in need absolute paths");
    }
    let starts = |one: &Pinned| one.part == CodePart::Program && one.path == plan.program;
    if !plan.code.first().is_some_and(starts) {
        return wrong("the plan does not say what is in the program that it starts");
    }
    let code = plan.code.iter().flat_map(|one| [&one.path, &one.real]);
    let paths = [&plan.program, &plan.cwd, &plan.workspace];
    let lists = plan.masked.iter().chain(&plan.read_only).chain(&plan.home);
    let all = paths.into_iter().chain(lists).chain(code);
    if !all.into_iter().all(|path| is_plain(path)) {
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
