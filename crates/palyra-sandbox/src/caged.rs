//! Tier-C from the daemon's side: from a plan to a cage and an order.

use std::io;
use std::path::{Path, PathBuf};

use palyra_core::plan::{EgressEnforcementMode, FileId, ProcView, RunAs};
use palyra_core::{FileOperation, FilePlan, ProcessPlan, RunErrorKind};

use crate::process::Refused;
use crate::sandbox::Inner;
use crate::tier_c::TierCBackend;
use crate::tier_c::cage::{self, Cage, NoCage, Step, Wanted};
use crate::tier_c::uids::Lease;
use crate::wire::{CagedOrder, Lent};

/// A cage and what it hides.
pub(crate) struct Made {
    pub(crate) order: CagedOrder,
    pub(crate) masked: Vec<PathBuf>,
    /// As whom it is built.
    pub(crate) run_as: RunAs,
    /// The uids that are lent to it, for as long as it lives.
    pub(crate) lease: Option<Lease>,
}

/// The cage of a process.
pub(crate) fn for_process(inner: &Inner, plan: &ProcessPlan) -> Result<Made, Refused> {
    let masked = places(inner, &plan.masked)?;
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
        egress: plan.egress,
        proc: plan.proc,
        scratch: plan.limits.scratch,
        with_system: true,
    };
    let cage = cage::plan(&inner.host, &wanted).map_err(|why| no_cage(&why))?;
    is_shown(&cage, &plan.program)?;
    made(inner, inner.backend(), cage, plan.run_as, masked)
}

/// The cage of a file tool: its workspace and, where our own helper builds it, nothing else.
pub(crate) fn for_files(inner: &Inner, plan: &FilePlan) -> Result<Made, Refused> {
    let masked = places(inner, &plan.masked)?;
    let writable = match plan.operation {
        FileOperation::Read { .. } | FileOperation::List { .. } => false,
        FileOperation::Write { .. } | FileOperation::ApplyPatch { .. } => true,
    };
    let wanted = Wanted {
        workspace: &plan.workspace,
        workspace_id: plan.workspace_id,
        writable,
        home: None,
        read_only: &[],
        masked: &masked,
        egress: EgressEnforcementMode::Strict,
        proc: ProcView::Pids,
        scratch: plan.limits.scratch,
        // The helper starts anew inside, and needs its libraries for that. Landlock grants the
        // workspace alone in either case.
        with_system: inner.backend() == TierCBackend::LinuxBubblewrap,
    };
    let cage = cage::plan(&inner.host, &wanted).map_err(|why| no_cage(&why))?;
    made(inner, inner.backend(), cage, plan.run_as, masked)
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
        egress: EgressEnforcementMode::Strict,
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
    let shown = cage.steps.iter().any(|step| match step {
        Step::Read { at } | Step::Workspace { at, .. } => real.starts_with(at),
        Step::Link { .. }
        | Step::Scratch { .. }
        | Step::Device { .. }
        | Step::Terminals
        | Step::Proc { .. }
        | Step::Pin { .. }
        | Step::Cover { .. } => false,
    });
    if shown {
        return Ok(());
    }
    let message = format!(
        "`{}` lies outside of what Tier-C shows: the system's folders, toolchains in the home \
         directory, and the workspace",
        program.display()
    );
    Err(Refused::new(RunErrorKind::ProgramNotFound, message))
}
