//! The spawn server: keeps slots ready, and sees to it that nothing is left behind.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::process::{Pid, Signal};

use seccompiler::BpfProgram;

use super::children::{self, Children, Waited};
use super::left_out::Wall;
use super::sight::Namespaces;
use super::supervisor;
use super::wrapped::Wrapping;
use crate::cgroup::{self, KillSwitch};
use crate::controllers::{Base, Opened};
use crate::landlock::Abi;
use crate::seccomp::{self, Network};
use crate::sys;
use crate::wire::Work;

/// How many slots wait for an order.
const READY: usize = 4;

/// How long calls get to end when the daemon is gone.
const LAST_PATIENCE: Duration = Duration::from_secs(20);

/// What every slot inherits.
pub(super) struct Shared {
    /// The sockets on which orders come, those of Tier-B and those for cages; slots read them, the
    /// server only watches the first one close.
    pub(super) control: OwnedFd,
    pub(super) caged_control: OwnedFd,
    /// Where a slot says that it has an order, by its supervisor's process id.
    pub(super) taken: OwnedFd,
    /// Readable when a child ended or this process's parent is gone.
    pub(super) signals: OwnedFd,
    pub(super) cgroups: Option<OwnedFd>,
    /// Where limits on whole calls are held.
    pub(super) controllers: Vec<Opened>,
    /// The daemon's temporary folder, as it was when the daemon made it.
    pub(super) temp: Option<OwnedFd>,
    pub(super) server: Pid,
    pub(super) wrapping: Wrapping,
    pub(super) basis: Basis,
}

/// What a target needs to put on its last walls and to look at them.
pub(super) struct Basis {
    /// Those of every call, compiled once.
    pub(super) filters: Filters,
    /// The machine's own namespaces, and the daemon's uid and gid.
    pub(super) namespaces: Namespaces,
    pub(super) ids: (u32, u32),
    /// What a broken helper leaves out: nothing, but in a test.
    pub(super) missing: Option<Wall>,
}

impl Basis {
    pub(super) fn new(
        abi: Abi,
        namespaces: Namespaces,
        ids: (u32, u32),
        missing: Option<Wall>,
    ) -> Self {
        Self {
            filters: Filters::compile(abi),
            namespaces,
            ids,
            missing,
        }
    }
}

/// The filters that calls put on.
pub(super) struct Filters {
    call: BpfProgram,
    program: BpfProgram,
    offline: BpfProgram,
    init: BpfProgram,
}

impl Filters {
    fn compile(abi: Abi) -> Self {
        Self {
            call: seccomp::for_call(abi),
            program: seccomp::for_program(Network::Some),
            offline: seccomp::for_program(Network::None),
            init: seccomp::for_init(),
        }
    }

    /// Puts this process behind the filter of every call.
    pub(super) fn put_on(&self) -> Result<(), String> {
        seccompiler::apply_filter(&self.call).map_err(|error| error.to_string())
    }

    /// Puts it behind what is refused besides for its work.
    pub(super) fn put_on_last(&self, work: &Work) -> Result<(), String> {
        let filter = match work {
            Work::File { .. } => return Ok(()),
            Work::Process { offline: true, .. } => &self.offline,
            Work::Process { .. } | Work::Probe => &self.program,
        };
        seccompiler::apply_filter(filter).map_err(|error| error.to_string())
    }

    /// Puts the first process of a cage behind its own.
    pub(super) fn put_on_init(&self) -> Result<(), String> {
        seccompiler::apply_filter(&self.init).map_err(|error| error.to_string())
    }
}

/// What a slot is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Tier-B and file tools without namespaces.
    Plain,
    /// Tier-C.
    Caged,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Ready(Kind),
    Busy,
}

struct Server {
    shared: Shared,
    taken: OwnedFd,
    /// What it takes to end everything, in hand before there is anything to end.
    children: Children,
    end_all: Option<KillSwitch>,
    slots: HashMap<Pid, Slot>,
    /// A slot could not be made, or died waiting: try again then.
    pause_until: Option<Instant>,
    /// Children that belong to no slot are about.
    strangers: bool,
}

/// Serves until the daemon closes the control socket, by design or by dying.
pub(super) fn run(
    cgroup: Option<&Path>,
    wrapping: Wrapping,
    controllers: &[Base],
    missing: Option<Wall>,
) -> io::Result<()> {
    sys::close_all_inherited()?;
    // A session of its own: Ctrl-C in the daemon's terminal is for the daemon, which then decides
    // what becomes of running calls.
    rustix::process::setsid()?;
    // Nobody of the same uid may trace us or read our memory and descriptors.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let caged_control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?;
    let temp = inherited_folder()?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let (taken, say_taken) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let abi = Abi::of_this_kernel().unwrap_or(Abi::from_number(1));
    close_the_doors(abi);
    let ids = (rustix::process::geteuid(), rustix::process::getegid());
    let shared = Shared {
        control,
        caged_control,
        taken: say_taken,
        signals: sys::signal_descriptor(&[libc::SIGCHLD, libc::SIGTERM])?,
        cgroups: cgroup.and_then(open_folder),
        controllers: Opened::all(controllers),
        temp,
        server: rustix::process::getpid(),
        wrapping,
        basis: Basis::new(
            abi,
            Namespaces::look(),
            (ids.0.as_raw(), ids.1.as_raw()),
            missing,
        ),
    };
    let mut server = Server {
        children: Children::of_this_process(),
        end_all: shared
            .cgroups
            .as_ref()
            .and_then(|it| KillSwitch::of(it).ok()),
        shared,
        taken,
        slots: HashMap::new(),
        pause_until: None,
        strangers: false,
    };
    let served = loop {
        match server.turn() {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            // Who cannot watch over calls any longer does not leave them alone.
            Err(error) => break Err(error),
        }
    };
    // Another server may take over the cgroups, but not those of a daemon that is gone.
    server.finish(cgroup.filter(|_| served.is_ok()));
    if served.is_ok() {
        controllers.iter().for_each(Base::remove);
    }
    served
}

/// The daemon's temporary folder, which comes as standard output; none when that is no folder.
fn inherited_folder() -> io::Result<Option<OwnedFd>> {
    let found = rustix::fs::fstat(rustix::stdio::stdout())?;
    let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    let handle = is_folder.then(|| rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3));
    Ok(handle.transpose()?)
}

/// Puts the short filter on, for good: every process that is ever forked from here has it, before
/// it has an order. Nothing that the helper itself does is refused.
///
/// What goes wrong here shows itself in the self-test of every target, which then refuses.
fn close_the_doors(abi: Abi) {
    if rustix::thread::set_no_new_privs(true).is_ok() {
        let _ = seccompiler::apply_filter(&seccomp::for_helper(abi));
    }
}

fn open_folder(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

impl Server {
    /// One turn; false when the daemon is gone.
    fn turn(&mut self) -> io::Result<bool> {
        self.refill();
        let mut watched = [
            // No interest in what arrives there, only in its closing.
            PollFd::new(&self.shared.control, PollFlags::RDHUP),
            PollFd::new(&self.taken, PollFlags::IN),
            PollFd::new(&self.shared.signals, PollFlags::IN),
        ];
        let pause = self.pause_until.map(|until| until - Instant::now());
        let pause = pause.map(|left| left + Duration::from_millis(1));
        let nap = self.strangers.then(|| Duration::from_millis(5));
        let timeout = pause.into_iter().chain(nap).min();
        let timeout = timeout.and_then(|span| span.try_into().ok());
        match rustix::event::poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(other) => return Err(other.into()),
        }
        let [control, taken, signals] = watched.map(|one| !one.revents().is_empty());
        if control {
            return Ok(false);
        }
        if taken {
            self.note_taken()?;
        }
        if signals || self.strangers {
            drain(&self.shared.signals);
            self.reap();
        }
        Ok(true)
    }

    /// Forks slots until enough are ready.
    fn refill(&mut self) {
        if self.pause_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.pause_until = None;
        for kind in [Kind::Caged, Kind::Plain] {
            let ready = |slot: &&Slot| **slot == Slot::Ready(kind);
            for _ in self.slots.values().filter(ready).count()..READY {
                match sys::fork(None, || supervisor::run(&self.shared, kind)) {
                    Ok(pid) => {
                        self.slots.insert(pid, Slot::Ready(kind));
                    }
                    Err(_) => return self.pause(),
                }
            }
        }
    }

    fn pause(&mut self) {
        self.pause_until = Some(Instant::now() + Duration::from_millis(50));
    }

    fn note_taken(&mut self) -> io::Result<()> {
        let mut numbers = [0; 4 * 64];
        let length = rustix::io::read(&self.taken, &mut numbers)?;
        for number in numbers.get(..length).unwrap_or_default().chunks_exact(4) {
            let number = number.try_into().map_or(0, i32::from_ne_bytes);
            let slot = Pid::from_raw(number).and_then(|pid| self.slots.get_mut(&pid));
            if let Some(slot) = slot {
                *slot = Slot::Busy;
            }
        }
        Ok(())
    }

    /// Waits for what ended. A supervisor that did not end well leaves its call to us: its orphans
    /// are our children now, and children that are no supervisors are killed.
    fn reap(&mut self) {
        while let Waited::Ended(pid, status) = children::wait_for_any() {
            let Some(slot) = self.slots.remove(&pid) else {
                self.strangers = true;
                continue;
            };
            if status.exit_status() != Some(0) {
                self.strangers = true;
                let supervisor = pid.as_raw_nonzero().get();
                if let Some(base) = &self.shared.cgroups {
                    cgroup::bury(base, supervisor);
                }
                for base in &self.shared.controllers {
                    base.bury(&cgroup::call_name(supervisor));
                }
            }
            if slot != Slot::Busy {
                self.pause();
            }
        }
        if self.strangers {
            // Not being able to look is no sign that nobody is there: look again.
            if let Ok(mut strangers) = self.children.list() {
                strangers.retain(|pid| !self.slots.contains_key(pid));
                self.strangers = !strangers.is_empty();
                strangers.into_iter().for_each(children::kill);
            }
        }
    }

    /// The daemon is gone, or is better served by another server: end every call, then this process.
    fn finish(mut self, cgroup: Option<&Path>) {
        // Nobody waits for an order that comes from now on.
        for control in [&self.shared.control, &self.shared.caged_control] {
            let _ = rustix::net::shutdown(control, rustix::net::Shutdown::Both);
        }
        let deadline = Instant::now() + LAST_PATIENCE;
        for pid in self.slots.keys() {
            let _ = rustix::process::kill_process(*pid, Signal::TERM);
        }
        while Instant::now() < deadline {
            self.strangers = true;
            self.reap();
            if self.slots.is_empty() && !self.strangers {
                break;
            }
            let mut watched = [PollFd::new(&self.shared.signals, PollFlags::IN)];
            let soon = Duration::from_millis(20).try_into().ok();
            let _ = rustix::event::poll(&mut watched, soon.as_ref());
            drain(&self.shared.signals);
        }
        if let Some(path) = cgroup {
            if let Some(end_all) = &self.end_all {
                end_all.pull();
            }
            let _ = rustix::fs::rmdir(path);
        }
    }
}

/// Forgets the signals that wait; what they announced is looked at afterwards. True when one of
/// them was SIGTERM.
pub(super) fn drain(signals: impl AsFd) -> bool {
    /// The kernel's `struct signalfd_siginfo`, which begins with the number.
    const RECORD: usize = 128;
    let mut records = [0; RECORD * 4];
    let mut asked_to_end = false;
    while let Ok(length @ 1..) = rustix::io::read(signals.as_fd(), &mut records) {
        for record in records
            .get(..length)
            .unwrap_or_default()
            .chunks_exact(RECORD)
        {
            let number = record.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
            asked_to_end |= number == Some(libc::SIGTERM);
        }
    }
    asked_to_end
}
