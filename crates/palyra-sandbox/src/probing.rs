//! What this machine can do: every wall is built once when the daemon starts, and looked at.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use palyra_core::plan::RunAs;
use palyra_core::{Ending, Layer, Limits};
use tokio_util::sync::CancellationToken;

use crate::caged;
use crate::call::{self, Means};
use crate::input::Feeding;
use crate::kit::{Folder, For, Lines};
use crate::sandbox::{Inner, SandboxStatus};
use crate::tier_c::TierCBackend;
use crate::tier_c::uids::Lease;
use crate::wire::{Order, Work};

/// How long the probe at the start may take.
const PROBE: Duration = Duration::from_secs(10);

/// Whom a probe runs as where there is no uid to lend.
const NOBODY: u32 = 65_534;

impl Inner {
    /// Builds every wall once, in both tiers, and looks at it.
    pub(crate) async fn probe(&self) -> SandboxStatus {
        let plain = match tokio::time::timeout(PROBE, self.try_walls()).await {
            Ok(Ok(cgroup)) => SandboxStatus {
                available: true,
                seccomp: true,
                cgroup,
                why: None,
                ..self.refused("")
            },
            Ok(Err(why)) => return self.refused(why),
            Err(_) => return self.refused("the sandbox helper does not answer"),
        };
        let mut whys = Vec::new();
        for backend in self.candidates() {
            self.uses(backend);
            let why = match tokio::time::timeout(PROBE, self.try_cage(backend)).await {
                Ok(Ok(())) => {
                    return SandboxStatus {
                        tier_c: Some(backend),
                        tier_c_why: None,
                        ..plain
                    };
                }
                Ok(Err(why)) => why,
                Err(_) => "the sandbox helper does not answer".to_owned(),
            };
            whys.push(why);
        }
        self.uses(TierCBackend::LinuxNamespaces);
        SandboxStatus {
            tier_c: None,
            tier_c_why: Some(whys.join("; and ")),
            ..plain
        }
    }

    /// What is tried, in this order: what the settings name and nothing else, or our own helper and
    /// then the program that some hosts grant more.
    fn candidates(&self) -> Vec<TierCBackend> {
        match self.settings.tier_c {
            Some(backend) => vec![backend],
            None => vec![TierCBackend::LinuxNamespaces, TierCBackend::LinuxBubblewrap],
        }
    }

    async fn try_walls(&self) -> Result<Option<PathBuf>, String> {
        let walls = self.walls()?;
        let helper = &self.settings.helper;
        let named = |error: io::Error| format!("`{}`: {error}", helper.display());
        self.helper().map_err(named)?;
        let text = |error: io::Error| error.to_string();
        let lease = self.uids.lend();
        let run_as = if rustix::process::geteuid().is_root() {
            let uid = lease.as_ref().map_or(NOBODY, Lease::first);
            RunAs::Owner { uid, gid: uid }
        } else {
            RunAs::Daemon
        };
        let whose = For {
            run_as,
            masked: Vec::new(),
            roots: self.host.reach(&[]),
        };
        let kit = self.kit(&whose).map_err(text)?;
        let order = Order {
            work: Work::Probe,
            run_as,
            limits: probe_limits(),
            landlock_abi: walls.abi().number(),
            masked: kit.wall.masked,
            tmp: Some(kit.tmp.made().clone()),
            caged: None,
        };
        let means = Means {
            doors: None,
            ruleset: Some(kit.wall.ruleset),
            lines: kit.lines,
            tmp: Some(kit.tmp),
            lease,
            stdin: self.no_input().map_err(text)?,
            sink: None,
            feeding: Feeding::none(),
            keep: 0,
            cancel: CancellationToken::new(),
        };
        let layers = self.tried(&order, means).await?;
        let in_a_cgroup = layers.iter().any(|layer| layer.name == "cgroup");
        let base = self.cgroup.as_ref().filter(|_| in_a_cgroup);
        Ok(base.map(|base| base.path.clone()))
    }

    /// A cage around an empty folder of ours.
    async fn try_cage(&self, backend: TierCBackend) -> Result<(), String> {
        match backend {
            TierCBackend::LinuxNamespaces | TierCBackend::LinuxBubblewrap => {}
            TierCBackend::MacosSandboxExec | TierCBackend::WindowsJobObject => {
                return Err(format!("`{}` does not run on Linux", backend.executor()));
            }
        }
        let walls = self.walls()?;
        let text = |error: io::Error| error.to_string();
        // Who cannot lend a uid is tried with a folder of one that nobody has.
        let spare = self.uids.lend();
        let owner = match backend {
            TierCBackend::LinuxBubblewrap => spare.as_ref().map_or(NOBODY, Lease::first),
            TierCBackend::LinuxNamespaces
            | TierCBackend::MacosSandboxExec
            | TierCBackend::WindowsJobObject => 0,
        };
        let (run_as, given_to) = match (rustix::process::geteuid().is_root(), owner) {
            (false, _) => (RunAs::Daemon, None),
            (true, 0) => (RunAs::Lent { uid: 0, gid: 0 }, None),
            (true, id) => (RunAs::Lent { uid: id, gid: id }, Some((id, id))),
        };
        let folder = Folder::make(self.temp().map_err(text)?, given_to).map_err(text)?;
        let workspace = folder.made().path.canonicalize().map_err(text)?;
        let made = caged::for_probe(self, backend, &workspace, folder.made().id, run_as)?;
        let order = Order {
            work: Work::Probe,
            run_as: made.run_as,
            limits: probe_limits(),
            landlock_abi: walls.abi().number(),
            masked: made.masked,
            tmp: None,
            caged: Some(made.order),
        };
        let means = Means {
            doors: None,
            ruleset: None,
            lines: Lines::new().map_err(text)?,
            tmp: None,
            lease: made.lease,
            stdin: self.no_input().map_err(text)?,
            sink: None,
            feeding: Feeding::none(),
            keep: 0,
            cancel: CancellationToken::new(),
        };
        self.tried(&order, means).await.map(drop)
    }

    /// Runs a probe; which layers stood, or what went wrong.
    async fn tried(&self, order: &Order, means: Means) -> Result<Vec<Layer>, String> {
        let outcome = call::run(self, order, means).await;
        match outcome.ending {
            Ending::Exited { code: 0 } => Ok(outcome.layers),
            Ending::Failed { message, .. } => Err(format!(
                "`{}` failed its probe: {message}",
                self.settings.helper.display()
            )),
            Ending::Exited { .. }
            | Ending::Signalled { .. }
            | Ending::TimedOut
            | Ending::Cancelled { .. } => Err("the sandbox helper did not finish its probe".into()),
        }
    }
}

fn probe_limits() -> Limits {
    Limits {
        wall: PROBE,
        ..Limits::default()
    }
}
