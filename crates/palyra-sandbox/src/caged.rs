//! Tier-C from the daemon's side: from a plan to a cage and an order.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use palyra_core::plan::{EgressEnforcementMode, FileId, ProcView, RunAs};
use palyra_core::{
    Clock, CodePart, FileOperation, FilePlan, FsRule, Layer, Pinned, ProcessPlan, RunErrorKind,
};
use serde_json::{Value, json};

use crate::doors::{self, LaidFile, MOST_PORTS};
use crate::ground::policy::{Guard, SandboxProcessRunnerPolicy};
use crate::ground::root::{Root, SWAPPED};
use crate::ground::survey::Found;
use crate::ground::{self, Ground, arrivals};
use crate::process::Refused;
use crate::quarantine::{Quarantine, Quarantined};
use crate::sandbox::Inner;
use crate::tier_c::TierCBackend;
use crate::tier_c::cage::{self, Cage, NoCage, Wanted};
use crate::tier_c::uids::Lease;
use crate::wire::{CagedOrder, Lent, MOVED};

/// A cage and what it hides.
pub(crate) struct Made {
    pub(crate) order: CagedOrder,
    pub(crate) masked: Vec<PathBuf>,
    /// As whom it is built.
    pub(crate) run_as: RunAs,
    /// The uids that are lent to it, for as long as it lives.
    pub(crate) lease: Option<Lease>,
}

/// What is held in a workspace, as it was just now.
pub(crate) struct Held {
    ground: Ground,
    /// A handle of it.
    pub(crate) root: Root,
    /// Everything that was found in it.
    before: Vec<Found>,
    pub(crate) guards: Vec<Guard>,
}

/// Which part of a plan says what is held.
pub(crate) struct Hold<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) id: FileId,
    pub(crate) masked: &'a [PathBuf],
    pub(crate) rules: &'a [FsRule],
    pub(crate) writable: bool,
}

impl Hold<'_> {
    /// Looks at the workspace. The first look takes a while where there is much to see, and is then
    /// not taken on a thread that others wait for.
    pub(crate) async fn look(&self, inner: &Inner) -> Result<Held, Refused> {
        let masked = places(inner, self.masked)?;
        // Before anybody walks through the whole machine.
        cage::can_be_worked_on(self.workspace, &masked).map_err(|why| no_cage(&why))?;
        let ground = inner.grounds.of(self.workspace, self.id, &masked);
        let (rules, writable) = (self.rules.to_vec(), self.writable);
        let quick = is_quick(&ground);
        let looked = off_thread(quick, move || look(ground, &rules, writable)).await;
        looked.map_err(|error| {
            let kind = match error.to_string().as_str() {
                MOVED | SWAPPED => RunErrorKind::Changed,
                _ => RunErrorKind::InvalidInput,
            };
            let message = format!("the workspace `{}`: {error}", self.workspace.display());
            Refused::new(kind, message)
        })
    }
}

fn is_quick(ground: &Ground) -> bool {
    ground.try_lock().is_ok_and(|survey| survey.is_quick())
}

/// Does something here if it is quick, and elsewhere otherwise.
async fn off_thread<T: Send + 'static>(
    quick: bool,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if quick {
        return work();
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(io::Error::other).flatten()
}

fn look(ground: Ground, rules: &[FsRule], writable: bool) -> io::Result<Held> {
    let mut survey = ground::lock(&ground);
    let root = survey.refresh()?;
    let guards = SandboxProcessRunnerPolicy::new(rules)
        .guards(&survey, &root, writable)
        .map_err(io::Error::other)?;
    let before = survey.found().collect();
    drop(survey);
    Ok(Held {
        ground,
        root,
        before,
        guards,
    })
}

/// What appeared during a call and must not stay.
#[derive(Default)]
pub(crate) struct Swept {
    pub(crate) taken: Vec<Quarantined>,
    /// What could not be taken away, and why.
    pub(crate) left: Vec<(String, String)>,
}

impl Held {
    /// Takes away what appeared since and must not stay.
    pub(crate) async fn sweep(self, inner: &Inner, rules: &[FsRule]) -> Swept {
        let quarantine = Quarantine::new(inner.settings.quarantine.clone());
        let (clock, rules) = (Arc::clone(&inner.settings.clock), rules.to_vec());
        let path = self.root.path().display().to_string();
        let quick = is_quick(&self.ground);
        let swept = off_thread(quick, move || {
            self.sweep_into(&quarantine, &rules, clock.as_ref())
        });
        swept.await.unwrap_or_else(|error| Swept {
            taken: Vec::new(),
            left: vec![(path, error.to_string())],
        })
    }

    fn sweep_into(
        &self,
        quarantine: &Quarantine,
        rules: &[FsRule],
        clock: &dyn Clock,
    ) -> io::Result<Swept> {
        let mut swept = Swept::default();
        let mut survey = ground::lock(&self.ground);
        let root = survey.refresh()?;
        let policy = SandboxProcessRunnerPolicy::new(rules);
        for arrival in arrivals::since(&self.before, &survey, &root, policy) {
            match quarantine.take(&root, &arrival, clock.now()) {
                Ok(taken) => swept.taken.push(taken),
                Err(error) => swept.left.push((arrival.at.to_string(), error.to_string())),
            }
        }
        Ok(swept)
    }
}

impl Swept {
    /// How it is attested: what was seen after the fact.
    pub(crate) fn layer(&self) -> Option<Layer> {
        if self.taken.is_empty() && self.left.is_empty() {
            return None;
        }
        let ids: Vec<&str> = self.taken.iter().map(|one| one.id.as_str()).collect();
        let observed = format!(
            "after the fact: {} taken away ({}), {} could not be",
            ids.len(),
            ids.join(", "),
            self.left.len()
        );
        Some(Layer {
            name: "quarantine".to_owned(),
            observed,
        })
    }

    /// How it is told to whoever made the call.
    pub(crate) fn told(&self) -> Vec<Value> {
        let taken = self.taken.iter().map(|one| {
            json!({
                "path": one.path().display().to_string(),
                "why": one.why,
                "id": one.id,
                "restore": format!("palyra quarantine restore {}", one.id),
            })
        });
        let left = self.left.iter().map(|(path, error)| {
            json!({ "path": path, "why": format!("it could not be taken away: {error}") })
        });
        taken.chain(left).collect()
    }
}

/// The cage of a process.
pub(crate) fn for_process(
    inner: &Inner,
    plan: &ProcessPlan,
    guards: Vec<Guard>,
    laid: &[LaidFile],
) -> Result<Made, Refused> {
    let masked = places(inner, &plan.masked)?;
    let ports = ports(inner.backend(), plan)?;
    if let Ok(real) = plan.cwd.canonicalize()
        && masked.iter().any(|mask| real.starts_with(mask))
    {
        return Err(no_cage(&NoCage::Masked(plan.cwd.clone())));
    }
    let wanted = Wanted {
        workspace: &plan.workspace,
        workspace_id: plan.workspace_id,
        writable: true,
        home: plan.home.as_deref(),
        read_only: &plan.read_only,
        masked: &masked,
        guards,
        code: &copied(inner.backend(), &plan.code),
        egress: plan.egress,
        ports: &ports,
        laid,
        proc: plan.proc,
        scratch: plan.limits.scratch,
        with_system: true,
    };
    let cage = cage::plan(&inner.host, &wanted).map_err(|why| no_cage(&why))?;
    is_shown(&cage, &plan.program)?;
    made(inner, inner.backend(), cage, plan.run_as, masked)
}

/// The ports of the doors that a plan needs. `bwrap` leaves no right to listen where names are asked
/// for, so a cage of its making has none.
fn ports(backend: TierCBackend, plan: &ProcessPlan) -> Result<Vec<u16>, Refused> {
    let ports = doors::ports_of(plan);
    if ports.is_empty() {
        return Ok(ports);
    }
    let why = match backend {
        TierCBackend::LinuxNamespaces if ports.len() <= MOST_PORTS => return Ok(ports),
        TierCBackend::LinuxNamespaces => format!(
            "the hosts are at {} different ports, and {MOST_PORTS} can be forwarded; ask for fewer",
            ports.len()
        ),
        TierCBackend::LinuxBubblewrap
        | TierCBackend::MacosSandboxExec
        | TierCBackend::WindowsJobObject => format!(
            "`{}` cannot hold a call to named hosts: it leaves no right to answer names inside; let \
             `palyra-jail` make namespaces (`palyra doctor` says how), or use `--egress preflight`",
            backend.executor()
        ),
    };
    Err(Refused::new(RunErrorKind::EgressDenied, why))
}

/// The code that is copied where it lies in the workspace. `bwrap` removes the file that it lays over
/// another, and a program would be told that it is deleted: there it is only compared.
fn copied(backend: TierCBackend, code: &[Pinned]) -> Vec<Pinned> {
    let is_chain = |one: &&Pinned| match one.part {
        CodePart::Program | CodePart::Interpreter => true,
        CodePart::Operand | CodePart::Later => false,
    };
    let executed = code.iter().take_while(is_chain).count().saturating_sub(1);
    let mut all = code.to_vec();
    match backend {
        TierCBackend::LinuxBubblewrap if executed < all.len() => drop(all.remove(executed)),
        TierCBackend::LinuxBubblewrap
        | TierCBackend::LinuxNamespaces
        | TierCBackend::MacosSandboxExec
        | TierCBackend::WindowsJobObject => {}
    }
    all
}

/// The cage of a file tool: its workspace and, where our own helper builds it, nothing else.
pub(crate) fn for_files(
    inner: &Inner,
    plan: &FilePlan,
    guards: Vec<Guard>,
) -> Result<Made, Refused> {
    let masked = places(inner, &plan.masked)?;
    let wanted = Wanted {
        workspace: &plan.workspace,
        workspace_id: plan.workspace_id,
        writable: writes(&plan.operation),
        home: None,
        read_only: &[],
        masked: &masked,
        guards,
        code: &[],
        egress: EgressEnforcementMode::Strict,
        ports: &[],
        laid: &[],
        proc: ProcView::Pids,
        scratch: plan.limits.scratch,
        // The helper starts anew inside, and needs its libraries for that. Landlock grants the
        // workspace alone in either case.
        with_system: inner.backend() == TierCBackend::LinuxBubblewrap,
    };
    let cage = cage::plan(&inner.host, &wanted).map_err(|why| no_cage(&why))?;
    made(inner, inner.backend(), cage, plan.run_as, masked)
}

/// Whether a file tool changes anything.
pub(crate) const fn writes(operation: &FileOperation) -> bool {
    match operation {
        FileOperation::Read { .. } | FileOperation::List { .. } => false,
        FileOperation::Write { .. } | FileOperation::ApplyPatch { .. } => true,
    }
}

/// The cage of a probe, with everything that a cage can have.
pub(crate) fn for_probe(
    inner: &Inner,
    backend: TierCBackend,
    workspace: &Path,
    id: FileId,
    run_as: RunAs,
) -> Result<Made, String> {
    let walls = inner.walls()?;
    let masked = walls.places(&[]).map_err(|error| error.to_string())?;
    let wanted = Wanted {
        workspace,
        workspace_id: id,
        writable: true,
        home: Some(Path::new("/home/palyra")),
        read_only: &[],
        masked: &masked,
        guards: Vec::new(),
        code: &[],
        egress: EgressEnforcementMode::Strict,
        ports: &[],
        laid: &[],
        proc: ProcView::Pids,
        scratch: 1 << 20,
        with_system: true,
    };
    let cage = cage::plan(&inner.host, &wanted).map_err(|why| why.to_string())?;
    made(inner, backend, cage, run_as, masked).map_err(|refused| refused.message)
}

fn made(
    inner: &Inner,
    backend: TierCBackend,
    cage: Cage,
    run_as: RunAs,
    masked: Vec<PathBuf>,
) -> Result<Made, Refused> {
    let lends = backend == TierCBackend::LinuxNamespaces;
    let (lent, lease) = match run_as {
        RunAs::Lent { uid: 0, .. } if !lends => {
            let message = "the workspace belongs to root, and `bwrap` cannot show its files as \
                           another uid's; work on a folder of an ordinary user, or leave \
                           `tier_c_backend` out of `palyra.toml`";
            return Err(Refused::new(RunErrorKind::SandboxUnavailable, message));
        }
        RunAs::Lent { .. } if !lends => (None, None),
        RunAs::Lent { uid, gid } => {
            let lease = inner.uids.lend().ok_or_else(|| {
                let message = "every uid that can be lent is taken: too many calls at once";
                Refused::new(RunErrorKind::SandboxUnavailable, message)
            })?;
            let lent = Lent {
                first: lease.first(),
                owner: uid,
                group: gid,
            };
            (Some(lent), Some(lease))
        }
        RunAs::Daemon | RunAs::Owner { .. } => (None, None),
    };
    // Who cannot lend a uid builds it as the workspace's owner.
    let run_as = match run_as {
        RunAs::Lent { uid, gid } if !lends => RunAs::Owner { uid, gid },
        RunAs::Lent { .. } | RunAs::Daemon | RunAs::Owner { .. } => run_as,
    };
    Ok(Made {
        order: CagedOrder {
            backend,
            cage,
            lent,
        },
        run_as,
        masked,
        lease,
    })
}

fn places(inner: &Inner, masked: &[PathBuf]) -> Result<Vec<PathBuf>, Refused> {
    let walls = inner
        .walls()
        .map_err(|why| Refused::new(RunErrorKind::SandboxUnavailable, why))?;
    let broke = |error: io::Error| Refused::broke(&error);
    walls.places(masked).map_err(broke)
}

pub(crate) fn no_cage(why: &NoCage) -> Refused {
    let kind = match why {
        NoCage::Workspace(_) => RunErrorKind::InvalidInput,
        NoCage::Masked(_) => RunErrorKind::WorkspaceScopeDenied,
    };
    Refused::new(kind, why.to_string())
}

/// A program that is there and that the cage does not show: better said now than "not found" later.
fn is_shown(cage: &Cage, program: &Path) -> Result<(), Refused> {
    let Ok(real) = program.canonicalize() else {
        return Ok(());
    };
    if cage.shows(&real) {
        return Ok(());
    }
    let message = format!(
        "`{}` lies outside of what Tier-C shows: the system's folders, toolchains in the home \
         directory, and the workspace",
        program.display()
    );
    Err(Refused::new(RunErrorKind::ProgramNotFound, message))
}
