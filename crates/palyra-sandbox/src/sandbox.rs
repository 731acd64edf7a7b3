//! The sandbox as the gateway sees it: started once, asked for runners, shut down.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use palyra_core::plan::RunAs;
use palyra_core::{Clock, Pinned, Tier};
use rustix::fs::{Mode, OFlags};
use tokio_util::sync::CancellationToken;

use crate::cgroup::CgroupBase;
use crate::controllers::Bases;
use crate::files::FileRunner;
use crate::ground::Grounds;
use crate::helper::{Helper, Image};
use crate::input::LiveInput;
use crate::inside::{LiveMarks, Mark};
use crate::jail::Wrapping;
use crate::kit::{For, Kit, Spares};
use crate::landlock::Abi;
use crate::lookout::Lookout;
use crate::output::OutputSink;
use crate::pins::{CodeWanted, PinProblem, Pins};
use crate::process::ProcessRunner;
use crate::quarantine::Quarantine;
use crate::tier_c::TierCBackend;
use crate::tier_c::host::Host;
use crate::tier_c::uids::Uids;
use crate::tmp::{self, TempRoot};
use crate::walls::{MountTable, Walls};

/// How long shutting down waits for the helper to end its calls.
const LAST_WAIT: Duration = Duration::from_secs(25);

/// What the sandbox needs to know.
#[derive(Clone)]
pub struct SandboxSettings {
    /// The `palyra-jail` binary.
    pub helper: PathBuf,
    /// Folders that no call ever sees, whatever its plan says: the daemon's home. At least one.
    pub masked: Vec<PathBuf>,
    /// Where names go that appeared during a call and must not stay: a folder of the daemon's own.
    pub quarantine: PathBuf,
    /// Where the times in reports come from.
    pub clock: Arc<dyn Clock>,
    /// What makes the walls of Tier-C; none means whatever is found to work.
    pub tier_c: Option<TierCBackend>,
}

/// The sandbox could not even be set up. (A machine that lacks a layer is not this: see
/// [`SandboxStatus`].)
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct SandboxUnavailable {
    /// For a person.
    pub why: String,
}

/// Whether a process is inside a call could not be found out; treat it as one that is.
#[derive(Debug, thiserror::Error)]
#[error("cannot tell whether process {pid} is inside a call: {why}")]
pub struct CannotTell {
    /// The process.
    pub pid: i32,
    /// For the log.
    pub why: String,
}

/// What this machine gives.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SandboxStatus {
    /// Whether calls run; otherwise each one is refused.
    pub available: bool,
    /// The kernel's Landlock version; 0 when there is none.
    pub landlock_abi: u32,
    /// Whether a system-call filter was observed in force.
    pub seccomp: bool,
    /// The folder under which calls get a cgroup of their own, where one is writable.
    pub cgroup: Option<PathBuf>,
    /// Why calls are refused; none when they run.
    pub why: Option<String>,
    /// What makes the walls of Tier-C, where something does.
    pub tier_c: Option<TierCBackend>,
    /// Why there is no Tier-C; none when there is.
    pub tier_c_why: Option<String>,
}

/// The sandbox. Clones share one helper.
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) settings: SandboxSettings,
    pub(crate) stopping: CancellationToken,
    pub(crate) marks: LiveMarks,
    /// What a call in Tier-C can be shown, and the uids that are lent to those of a root daemon.
    pub(crate) host: Host,
    pub(crate) uids: Uids,
    /// What is known of workspaces.
    pub(crate) grounds: Grounds,
    pub(crate) lookout: Lookout,
    /// What is in programs that only root can change.
    pub(crate) pins: Pins,
    status: OnceLock<SandboxStatus>,
    walls: Option<Walls>,
    // Before the folder they are in.
    spares: Spares,
    temp: Option<TempRoot>,
    image: Result<Image, String>,
    helper: Mutex<Option<(Arc<Helper>, Mark)>>,
    /// Cages are built by `bwrap`.
    wraps: AtomicBool,
    // Last: they are removed when the helper is gone.
    controllers: Bases,
    pub(crate) cgroup: Option<CgroupBase>,
}

impl Sandbox {
    /// Starts the helper and finds out, by really trying, which layers this machine has.
    ///
    /// When a layer is missing this still succeeds: every run is then refused with
    /// `sandbox_unavailable`, and [`Sandbox::status`] says why.
    ///
    /// # Errors
    /// The settings make no sense: nothing is masked, or something by a relative path.
    pub async fn start(settings: SandboxSettings) -> Result<Self, SandboxUnavailable> {
        if settings.masked.is_empty() {
            let why = "nothing is masked: at least the daemon's home has to be".to_owned();
            return Err(SandboxUnavailable { why });
        }
        if let Some(path) = settings.masked.iter().find(|path| !path.is_absolute()) {
            let why = format!("the masked path `{}` is not absolute", path.display());
            return Err(SandboxUnavailable { why });
        }
        let inner = Arc::new(Inner::new(settings));
        // What dead daemons left is nothing to wait for.
        std::thread::spawn(|| tmp::sweep(&std::env::temp_dir()));
        let status = inner.probe().await;
        if let Some(why) = &status.why {
            tracing::error!(
                why,
                "the sandbox is unavailable: every call will be refused"
            );
        } else if let Some(why) = &status.tier_c_why {
            tracing::error!(why, "Tier-C is unavailable");
        }
        let _ = inner.status.set(status);
        Ok(Self { inner })
    }

    /// What this machine gives.
    #[must_use]
    pub fn status(&self) -> SandboxStatus {
        self.inner.status()
    }

    /// A runner for one process; what it writes also goes to `sink` while it runs, and `input` is
    /// what it is sent meanwhile, if its plan says that something is.
    #[must_use]
    pub fn processes(
        &self,
        sink: Option<OutputSink>,
        input: Option<LiveInput>,
        cancel: CancellationToken,
    ) -> ProcessRunner {
        ProcessRunner::new(self.clone(), sink, input, cancel)
    }

    /// Reads a call's code before it is decided: what its plan will name. What was read before and
    /// cannot have changed is not read again; the rest is not read on a thread that others wait for.
    ///
    /// # Errors
    /// What would run cannot be told.
    pub async fn pin(&self, wanted: CodeWanted) -> Result<Vec<Pinned>, PinProblem> {
        if let Some(known) = self.inner.pins.known(&wanted) {
            return known;
        }
        let inner = Arc::clone(&self.inner);
        let program = wanted.program.clone();
        let read = tokio::task::spawn_blocking(move || inner.pins.read(&wanted)).await;
        read.unwrap_or_else(|error| Err(PinProblem::Unreadable(program, io::Error::other(error))))
    }

    /// A runner for file tools.
    #[must_use]
    pub fn files(&self, cancel: CancellationToken) -> FileRunner {
        FileRunner::new(self.clone(), cancel)
    }

    /// What appeared during calls and was taken away.
    #[must_use]
    pub fn quarantine(&self) -> Quarantine {
        Quarantine::new(self.inner.settings.quarantine.clone())
    }

    /// Whether this live process is inside a call: the spawn server is among its ancestors, or its
    /// session or cgroup is that of a live call.
    ///
    /// The process must be held by the caller (a pidfd) and still be alive afterwards; otherwise
    /// the number may have become somebody else's.
    ///
    /// # Errors
    /// It could not be found out: treat it as "yes".
    pub fn is_inside_a_call(&self, pid: i32) -> Result<bool, CannotTell> {
        let cgroups = self.inner.cgroup.as_ref().map(|base| base.name.as_path());
        let answer = self.inner.marks.cover(pid, cgroups);
        answer.map_err(|why| CannotTell { pid, why })
    }

    /// Prepares the next call of the same kind, while nobody waits for it.
    pub(crate) fn lay_by(&self, whose: For) {
        let inner = Arc::clone(&self.inner);
        drop(tokio::task::spawn_blocking(move || inner.lay_by(whose)));
    }

    /// Ends every call and the helper, and waits for that.
    pub async fn shutdown(&self) {
        self.inner.stopping.cancel();
        self.inner.spares.clear();
        let Some((helper, mark)) = self.inner.lock_helper().take() else {
            return;
        };
        if let Some(mut child) = helper.close() {
            let ended = tokio::task::spawn_blocking(move || child.wait());
            if tokio::time::timeout(LAST_WAIT, ended).await.is_err() {
                tracing::warn!("the sandbox helper takes long to end");
            }
        }
        drop(mark);
    }
}

impl Inner {
    fn new(settings: SandboxSettings) -> Self {
        let abi = Abi::of_this_kernel();
        let walls = abi.and_then(|abi| Walls::new(abi, settings.masked.clone()).ok());
        let mounts = MountTable::open().and_then(|table| table.read());
        let cgroup = mounts.ok().and_then(|mounts| CgroupBase::claim(&mounts));
        let image = Image::read(&settings.helper)
            .map_err(|error| format!("`{}`: {error}", settings.helper.display()));
        Self {
            image,
            settings,
            stopping: CancellationToken::new(),
            marks: LiveMarks::default(),
            host: Host::look(),
            uids: Uids::new(),
            grounds: Grounds::default(),
            lookout: Lookout::default(),
            pins: Pins::default(),
            status: OnceLock::new(),
            walls,
            spares: Spares::default(),
            temp: TempRoot::claim(&std::env::temp_dir())
                .inspect_err(|error| tracing::warn!(%error, "no temporary folder for calls"))
                .ok(),
            helper: Mutex::new(None),
            wraps: AtomicBool::new(false),
            controllers: Bases::claim(cgroup.as_ref().map(|base| base.path.as_path())),
            cgroup,
        }
    }

    pub(crate) fn status(&self) -> SandboxStatus {
        let unknown = || self.refused("it was not probed");
        self.status.get().cloned().unwrap_or_else(unknown)
    }

    pub(crate) fn refused(&self, why: impl Into<String>) -> SandboxStatus {
        SandboxStatus {
            available: false,
            landlock_abi: self.walls.as_ref().map_or(0, |walls| walls.abi().number()),
            seccomp: false,
            cgroup: None,
            why: Some(why.into()),
            tier_c: None,
            tier_c_why: Some("it was not probed".to_owned()),
        }
    }

    /// The walls, or why there are none.
    pub(crate) fn walls(&self) -> Result<&Walls, String> {
        self.walls.as_ref().ok_or_else(|| {
            "this kernel has no Landlock: it needs Linux 5.13 or later with `landlock` among the \
             security modules (see `cat /sys/kernel/security/lsm`)"
                .to_owned()
        })
    }

    /// Whom a call runs as must fit what the daemon is and the tier: nobody else's uid can be had,
    /// and root's is never given away.
    pub(crate) fn check_run_as(tier: Tier, run_as: RunAs) -> Result<(), String> {
        let root = rustix::process::geteuid().is_root();
        match (run_as, tier) {
            (RunAs::Daemon, _) if root => {
                Err("the daemon is root and the plan says it is not".into())
            }
            (RunAs::Owner { .. } | RunAs::Lent { .. }, _) if !root => {
                Err("the plan needs a daemon that is root".into())
            }
            (RunAs::Owner { uid: 0, .. }, _) => {
                Err("the owner a call steps down to is root".into())
            }
            (RunAs::Owner { .. }, Tier::C) => Err("Tier-C of a root daemon lends a uid".into()),
            (RunAs::Lent { .. }, Tier::B | Tier::Builtin) => {
                Err("a uid is lent in Tier-C only".into())
            }
            (RunAs::Daemon | RunAs::Owner { .. } | RunAs::Lent { .. }, _) => Ok(()),
        }
    }

    /// Everything for one process.
    pub(crate) fn kit(&self, whose: &For) -> io::Result<Kit> {
        let walls = self.walls().map_err(io::Error::other)?;
        self.spares.take(whose, walls, self.temp()?)
    }

    pub(crate) fn temp(&self) -> io::Result<&TempRoot> {
        let temp = self.temp.as_ref();
        temp.ok_or_else(|| io::Error::other("there is no temporary folder"))
    }

    fn lay_by(&self, whose: For) -> io::Result<()> {
        let walls = self.walls().map_err(io::Error::other)?;
        self.spares.lay_by(whose, walls, self.temp()?)?;
        if self.stopping.is_cancelled() {
            self.spares.clear();
        }
        Ok(())
    }

    /// Standard input of a call that gets none.
    pub(crate) fn no_input(&self) -> io::Result<OwnedFd> {
        // Opened for each call: flags and locks belong to what was opened, not to who opened it.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open("/dev/null", flags, Mode::empty())?)
    }

    fn lock_helper(&self) -> std::sync::MutexGuard<'_, Option<(Arc<Helper>, Mark)>> {
        self.helper
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The helper's program.
    pub(crate) fn image(&self) -> io::Result<&Image> {
        let image = self.image.as_ref();
        image.map_err(|why| io::Error::other(why.clone()))
    }

    /// The running helper; a new one when the last one is gone.
    pub(crate) fn helper(&self) -> io::Result<Arc<Helper>> {
        if self.stopping.is_cancelled() {
            return Err(io::Error::other("the daemon is stopping"));
        }
        let mut slot = self.lock_helper();
        if let Some((helper, _)) = slot.as_ref()
            && !helper.is_gone()
        {
            return Ok(Arc::clone(helper));
        }
        let cgroup = self.cgroup.as_ref();
        if slot.take().is_some() {
            tracing::warn!("the sandbox helper was killed; starting another one");
            // Its supervisors end what they watched over; this is for those that were killed too.
            if let Some(cgroup) = cgroup {
                cgroup.kill_all();
            }
        }
        let helper = Helper::start(
            self.image()?,
            cgroup.map(|base| base.path.as_path()),
            self.wrapping(),
            &self.controllers.all,
            self.temp
                .as_ref()
                .map(|temp| temp.handle().try_clone())
                .transpose()?,
        )?;
        let helper = Arc::new(helper);
        let mark = self.marks.add_server(helper.pid);
        *slot = Some((Arc::clone(&helper), mark));
        Ok(helper)
    }

    /// Hands an order to the helper. One that is found dead has not taken it, so the next one gets
    /// it; one that dies with it in hand is found out by the call.
    pub(crate) async fn hand_over(
        &self,
        caged: bool,
        order: &[u8],
        handles: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let helper = self.helper()?;
        match helper.send(caged, order, handles).await {
            Err(error) if is_closed(&error) => {
                self.discard(&helper);
                self.helper()?.send(caged, order, handles).await
            }
            other => other,
        }
    }

    fn discard(&self, dead: &Arc<Helper>) {
        let mut slot = self.lock_helper();
        if slot.as_ref().is_some_and(|(now, _)| Arc::ptr_eq(now, dead)) {
            *slot = None;
        }
    }

    /// From now on cages are built that way, by a helper that is made for it.
    pub(crate) fn uses(&self, backend: TierCBackend) {
        let wraps = backend == TierCBackend::LinuxBubblewrap;
        if self.wraps.swap(wraps, Ordering::Relaxed) != wraps
            && let Some((helper, _)) = self.lock_helper().take()
        {
            // Not closed: that would take the cgroups along.
            helper.kill();
        }
    }

    fn wrapping(&self) -> Wrapping {
        match self.wraps.load(Ordering::Relaxed) {
            true => Wrapping::Sometimes,
            false => Wrapping::Never,
        }
    }

    /// What makes the walls of Tier-C here; without any, what would be asked to.
    pub(crate) fn backend(&self) -> TierCBackend {
        let asked = self.settings.tier_c;
        let usual = asked.unwrap_or(TierCBackend::LinuxNamespaces);
        self.status().tier_c.unwrap_or(usual)
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::NotConnected
    )
}
