//! The second process of a cage: puts on the last walls, looks whether all of them stand, and
//! becomes the program or does the file work.
//!
//! The long filter comes first, while the cage is being built. Then what needs rights (limits, uid),
//! then Landlock, then the capabilities go, and the few calls that only our own code may make are
//! refused last.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use palyra_core::{FileOperation, RunErrorKind};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit};
use rustix::thread::{Gid, Uid};

use super::code::{self, Launch};
use super::left_out::Wall;
use super::self_test::Ahead;
use super::server::Basis;
use super::sight;
use super::target::{self, Program, Refusal};
use super::terminal::Terminal;
use super::watch::Watch;
use super::{doors, files, init};
use crate::landlock::{self, Abi, Access, Ruleset};
use crate::sys;
use crate::tier_c::TierCBackend;
use crate::tier_c::cage::Writing;
use crate::wire::{CagedOrder, Handles, Order, Work};

/// A call in a cage, as both of its processes know it.
pub(super) struct Caged<'a> {
    pub(super) basis: &'a Basis,
    pub(super) supervisor: Pid,
    pub(super) order: &'a Order,
    pub(super) caged: &'a CagedOrder,
    pub(super) handles: &'a Handles<OwnedFd>,
    pub(super) ahead: &'a Ahead,
    /// As whose a file is seen here that was made outside, by whom the call runs as; only where
    /// another program made the namespaces.
    pub(super) witness: Option<u32>,
}

/// Its life. The result is its exit code, unless it became another program.
pub(super) fn run(call: &Caged<'_>, go: &OwnedFd) -> i32 {
    // It takes longest, and needs nothing of what is being built meanwhile.
    let network = call.own_network().and_then(|()| call.filter());
    // Nobody says so when the cage could not be built: then this process ends with its namespace.
    let told = rustix::io::retry_on_intr(|| rustix::io::read(go, &mut [0; 1]));
    if told != Ok(1) {
        return target::DID_NOT_RUN;
    }
    match network.and_then(|()| call.carry_out()) {
        Ok(()) => 0,
        Err(refusal) => target::refuse(&call.handles.report, refusal),
    }
}

/// Goes through the motions once while nobody waits; see [`target::rehearse`].
pub(super) fn rehearse(packet: &mut [u8], ahead: &Ahead) {
    target::rehearse_order(packet);
    std::hint::black_box(sight::Seen::look(&[], &[], Path::new("/"), ahead));
}

impl Caged<'_> {
    fn misses(&self, wall: Wall) -> bool {
        self.basis.missing == Some(wall)
    }

    /// A network of its own, with a loopback for servers that a test starts and talks to.
    fn own_network(&self) -> Result<(), Refusal> {
        let made_already = match self.caged.backend {
            TierCBackend::LinuxNamespaces => false,
            TierCBackend::LinuxBubblewrap
            | TierCBackend::MacosSandboxExec
            | TierCBackend::WindowsJobObject => true,
        };
        if made_already && !self.ports().is_empty() {
            let why = "it was made by another program, and has none";
            return Err(Refusal::degraded("a door of the network", why));
        }
        if made_already || !self.caged.cage.isolated_network || self.misses(Wall::Network) {
            return Ok(());
        }
        sys::unshare(libc::CLONE_NEWNET)
            .map_err(|error| Refusal::degraded("the network namespace", error))?;
        rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
            .map_err(io::Error::from)
            .and_then(|socket| sys::loopback_up(socket.as_fd()))
            .map_err(|error| Refusal::degraded("the loopback", error))?;
        match self.ports() {
            [] => Ok(()),
            ports => doors::hand_over(&self.handles.report, ports),
        }
    }

    /// The ports at which it reaches hosts.
    fn ports(&self) -> &[u16] {
        &self.caged.cage.ports
    }

    /// Nothing that is still to be done is refused by it.
    fn filter(&self) -> Result<(), Refusal> {
        if self.misses(Wall::Seccomp) {
            return Ok(());
        }
        let filters = &self.basis.filters;
        filters
            .put_on()
            .map_err(|error| Refusal::degraded("seccomp", error))
    }

    fn carry_out(&self) -> Result<(), Refusal> {
        let Order {
            work,
            limits,
            landlock_abi,
            masked,
            ..
        } = self.order;
        let program = match work {
            Work::Process { argv, env, .. } => Some(Program::new(argv, env, Path::new("/tmp"))?),
            Work::File { .. } | Work::Probe => None,
        };
        if !self.misses(Wall::Session) {
            rustix::process::setsid()
                .map_err(|error| Refusal::degraded("a session of its own", error))?;
        }
        let limits = self
            .limit(limits)
            .map_err(|error| Refusal::degraded("a limit", error))?;
        self.become_owner()
            .map_err(|error| Refusal::degraded("the uid", error))?;
        // Its files in /proc are its own from here on, as they will be for the program. Nobody but
        // this process is there to look at them.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
            .map_err(|error| Refusal::degraded("a process", error))?;
        if let Work::Process { cwd, decided, .. } = work {
            target::enter(cwd, decided.cwd)?;
        }
        let terminal = Terminal::for_work(work)?;
        target::standard_streams(self.handles, terminal.as_ref())
            .map_err(|error| Refusal::degraded("a descriptor", error))?;
        let abi = Abi::from_number(*landlock_abi);
        if !self.misses(Wall::Landlock) {
            self.landlock(abi)
                .map_err(|error| Refusal::degraded("landlock", error))?;
        }
        if !self.misses(Wall::Capabilities) {
            init::drop_bounding_set()
                .and_then(|()| init::drop_capabilities())
                .map_err(|error| Refusal::degraded("dropping capabilities", error))?;
        }
        if !self.misses(Wall::Seccomp) {
            let filters = &self.basis.filters;
            filters
                .put_on_last(work)
                .map_err(|error| Refusal::degraded("seccomp", error))?;
        }
        let expected = sight::Expected {
            abi,
            limits: &limits,
            lent: self.caged.lent,
            isolated_network: self.caged.cage.isolated_network,
            outside: &self.basis.namespaces,
            ids: self.basis.ids,
            witness: self.witness,
        };
        let workspace = self.caged.cage.workspace();
        let seen = sight::Seen::look(masked, &limits, workspace, self.ahead)
            .with_guards(workspace, self.caged.cage.guards());
        let mut layers = sight::judge(&expected, &seen)
            .map_err(|missing| Refusal::new(RunErrorKind::SandboxDegraded, missing))?;
        if !self.ports().is_empty() {
            layers.push(doors::observe(self.ports())?);
        }
        let launch = code::launch(work);
        layers.extend(code::layer_of(&launch));
        let report = &self.handles.report;
        target::tell_confined(report, self.supervisor, None, layers, terminal)?;
        self.work(program.zip(launch?))
    }

    fn work(&self, start: Option<(Program, Launch)>) -> Result<(), Refusal> {
        match (&self.order.work, start) {
            (Work::Process { .. }, Some((program, launch))) => Err(program.exec(launch)),
            (
                Work::File {
                    workspace,
                    workspace_id,
                    operation,
                    rules,
                },
                _,
            ) => {
                sys::ignore_file_size_signal();
                let watch = Watch::new(rules).with_guards(self.caged.cage.guards().collect());
                let files = files::Workspace::open(workspace, &self.order.masked, watch)?;
                if files.id() != Some(*workspace_id) {
                    return Err(target::changed("the workspace", workspace));
                }
                files.carry_out(operation, self.order.limits.output_bytes)
            }
            (Work::Probe | Work::Process { .. }, _) => Ok(()),
        }
    }

    fn limit(&self, limits: &palyra_core::Limits) -> io::Result<Vec<(Resource, Rlimit)>> {
        let processes = [(Resource::Nproc, limits.processes)];
        target::limit(limits, &processes, !self.misses(Wall::Limits))
    }

    /// Becomes the workspace's owner as this namespace spells it; outside that is a lent uid.
    fn become_owner(&self) -> io::Result<()> {
        let Some(lent) = self.caged.lent else {
            return Ok(());
        };
        if self.misses(Wall::Identity) {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(lent.owner), Gid::from_raw(lent.group));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        // Keeps the rights inside its namespace, which the walls still to come need.
        rustix::thread::set_keep_capabilities(true)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        let all = rustix::thread::capabilities(None)?;
        let again = rustix::thread::CapabilitySets {
            effective: all.permitted,
            ..all
        };
        rustix::thread::set_capabilities(None, again)?;
        Ok(rustix::thread::set_keep_capabilities(false)?)
    }

    /// Everything in the cage can be read, and written only where the plan says so. A file tool
    /// gets the workspace alone.
    fn landlock(&self, abi: Abi) -> io::Result<()> {
        let ruleset = Ruleset::new(abi)?;
        let grant = |path: &Path, access: Access| -> io::Result<()> {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            match rustix::fs::open(path, flags, Mode::empty()) {
                Ok(handle) => ruleset.grant(handle, access, true),
                Err(rustix::io::Errno::NOENT) => Ok(()),
                Err(other) => Err(other.into()),
            }
        };
        match &self.order.work {
            Work::File {
                workspace,
                operation,
                ..
            } => {
                let access = match operation {
                    FileOperation::Read { .. } | FileOperation::List { .. } => Access::FileRead,
                    FileOperation::Write { .. } | FileOperation::ApplyPatch { .. } => {
                        Access::FileWrite
                    }
                };
                grant(workspace, access)?;
                grant(Path::new("/proc"), Access::FileRead)?;
            }
            Work::Process { .. } | Work::Probe => {
                grant(Path::new("/"), Access::Read)?;
                grant(Path::new("/dev"), Access::Devices)?;
                for (path, writing) in &self.caged.cage.writable {
                    let access = match writing {
                        Writing::Workspace => Access::Workspace,
                        Writing::Scratch => Access::Full,
                    };
                    grant(path, access)?;
                }
            }
        }
        landlock::restrict_self(ruleset.into_fd(), abi)
    }
}
