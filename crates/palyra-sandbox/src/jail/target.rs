//! A target: waits for an order, walls itself in, and becomes the program.
//!
//! The order of the steps is the point. `no_new_privs` and a filter are inherited from the server
//! and were there before anything else; the long filter is put on while waiting. Then what needs
//! rights (limits, uid), then Landlock, which takes the last ones away. Between the last wall and the
//! program stands the self-test: a wall that is not seen to stand means that nothing runs.
//!
//! All that does not depend on the order is done while waiting for it.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use palyra_core::plan::RunAs;
use palyra_core::{CodePart, Content, Digest, FileId, Layer, Limits, ProgramId, RunErrorKind};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::{Gid, Uid};
use serde::de::DeserializeOwned;

use super::code::{self, Launch, Opened};
use super::self_test::Ahead;
use super::server::Shared;
use super::terminal::{self, Terminal};
use super::watch::Watch;
use super::wrapped::Wrapping;
use super::{files, init, observe, wrapped};
use crate::controllers::CallLimits;
use crate::landlock::{self, Abi};
use crate::wire::{
    self, Assignment, CallTmp, CodeCheck, Decided, Handles, Order, PACKET, Report, Work,
};
use crate::{program, sys};

/// The largest order; arguments are capped long before.
const LARGEST_ORDER: u64 = 256 << 20;

/// The exit code of a target that did not do its work; the report has said why.
pub(super) const DID_NOT_RUN: i32 = 125;

/// Why the work was not done.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) kind: RunErrorKind,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(kind: RunErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// A wall could not be built.
    pub(super) fn degraded(wall: &str, error: impl std::fmt::Display) -> Self {
        let message = format!("{wall} did not take: {error}");
        Self::new(RunErrorKind::SandboxDegraded, message)
    }
}

/// A target's life. The result is its exit code, unless it became another program.
pub(super) fn run(shared: &Shared, supervisor: Pid, link: &OwnedFd, whole: &CallLimits) -> i32 {
    // Done before there is an order: none of this depends on it.
    if die_with(supervisor).is_err() || rustix::process::setsid().is_err() {
        return DID_NOT_RUN;
    }
    // A program of uid 0 would get what the bounding set holds, so nothing is left in it. (Whoever
    // is not root may not change the set, and need not.)
    if rustix::process::geteuid().is_root() && init::drop_bounding_set().is_err() {
        return DID_NOT_RUN;
    }
    // Where that fails there is no limit, and the record says so.
    let _ = whole.join();
    sys::default_signals();
    // Files made by a call look as if made from a shell, whatever the daemon's mask is.
    rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);

    let ahead = Ahead::look(whole);
    let mut packet = vec![0; PACKET];
    rehearse(&mut packet, &ahead);
    // `bwrap` would be refused its work. Should it fail, the self-test sees it.
    if shared.wrapping == Wrapping::Never {
        let _ = shared.basis.filters.put_on();
    }

    let Ok(Some((length, handles))) = wire::receive(&shared.control, &mut packet) else {
        return 0;
    };
    let inline = packet.get(..length).unwrap_or_default();
    let Some(handles) = Handles::from_list(handles, inline != wire::WRAPPED) else {
        return DID_NOT_RUN;
    };
    let order = match parse(inline, handles.order.as_ref()) {
        Ok(order) => order,
        Err(error) => {
            let message = format!("the order cannot be read: {error}");
            let refusal = Refusal::new(RunErrorKind::RuntimeFailure, message);
            return refuse(&handles.report, refusal);
        }
    };
    // From here on the supervisor watches over time and over the daemon.
    let assignment = Assignment::of(&order);
    let Ok(assignment) = serde_json::to_vec(&assignment) else {
        return DID_NOT_RUN;
    };
    if wire::send(link, &assignment, &[handles.report.as_fd()]).is_err() {
        return DID_NOT_RUN;
    }
    let ahead = ahead.with_limits(whole, &order.limits);
    if order.caged.is_some() {
        return wrapped::run(shared, supervisor, &order, handles, &ahead);
    }
    match carry_out(shared, supervisor, &order, &handles, &ahead) {
        Ok(()) => 0,
        Err(refusal) => refuse(&handles.report, refusal),
    }
}

/// Goes through the motions of an order once, without doing anything, while nobody waits: after a
/// fork every page of code and memory has to be fetched again when it is first touched.
fn rehearse(packet: &mut [u8], ahead: &Ahead) {
    rehearse_order(packet);
    let limits = [(Resource::Core, rustix::process::getrlimit(Resource::Core))];
    let expected = observe::Expected {
        run_as: RunAs::Daemon,
        abi: Abi::from_number(1),
        limits: &limits,
    };
    let layers = observe::rehearse(&expected, ahead);
    let confined = Report::Confined {
        supervisor: 0,
        session: None,
        layers,
    };
    let _ = std::hint::black_box(serde_json::to_vec(&confined));
}

/// The part of it that every kind of target shares: reading an order.
pub(super) fn rehearse_order(packet: &mut [u8]) {
    let example = Order {
        work: Work::Process {
            argv: vec!["true".to_owned(); 4],
            env: vec![("NAME".to_owned(), "value".to_owned()); 8],
            cwd: "/".into(),
            offline: false,
            decided: Decided {
                code: vec![CodeCheck {
                    path: "/bin/true".into(),
                    part: CodePart::Program,
                    content: Content::Sha256(Digest::from_bytes([0; 32])),
                    seen: Some(ProgramId {
                        file: FileId {
                            device: 0,
                            inode: 0,
                        },
                        size: 0,
                        modified: (0, 0),
                        changed: (0, 0),
                    }),
                    fixed: true,
                    copied: false,
                }],
                cwd: FileId {
                    device: 0,
                    inode: 0,
                },
            },
            terminal: None,
        },
        run_as: RunAs::Owner { uid: 1, gid: 1 },
        limits: Limits::default(),
        landlock_abi: 1,
        masked: vec!["/".into()],
        tmp: Some(CallTmp {
            path: "/tmp/palyra".into(),
            id: FileId {
                device: 0,
                inode: 0,
            },
        }),
        caged: None,
    };
    // Its first page; a longer order is rare enough.
    if let Some(first) = packet.first_mut() {
        *first = 0;
    }
    let order = serde_json::to_vec(&example)
        .map_err(io::Error::from)
        .and_then(|bytes| parse(&bytes, None));
    if let Ok(order) = order
        && let Work::Process { argv, env, .. } = &order.work
    {
        let _ = std::hint::black_box(Program::new(argv, env, Path::new("/tmp")));
        let _ = std::hint::black_box(code::launch(&order.work));
    }
}

pub(super) fn refuse(report: &OwnedFd, refusal: Refusal) -> i32 {
    let Refusal { kind, message } = refusal;
    let _ = wire::send_value(report, &Report::Refused { kind, message });
    DID_NOT_RUN
}

pub(super) fn parse(inline: &[u8], file: Option<&OwnedFd>) -> io::Result<Order> {
    match file {
        Some(file) => parse_file(file),
        None => Ok(serde_json::from_slice(inline)?),
    }
}

pub(super) fn parse_file<T: DeserializeOwned>(file: &OwnedFd) -> io::Result<T> {
    let mut bytes = Vec::new();
    let file = File::from(file.try_clone()?);
    file.take(LARGEST_ORDER).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// This process dies when its supervisor does. A change of uid clears the setting.
pub(super) fn die_with(supervisor: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(supervisor) {
        return Err(io::Error::other("the supervisor is gone"));
    }
    Ok(())
}

fn carry_out(
    shared: &Shared,
    supervisor: Pid,
    order: &Order,
    handles: &Handles<OwnedFd>,
    ahead: &Ahead,
) -> Result<(), Refusal> {
    // Made while memory is all there is to it: a NUL in an argument ends here.
    let program = match &order.work {
        Work::Process { argv, env, .. } => {
            let tmp = order
                .tmp
                .as_ref()
                .map_or(Path::new("/tmp"), |tmp| &tmp.path);
            Some(Program::new(argv, env, tmp)?)
        }
        Work::File { .. } | Work::Probe => None,
    };
    let limits =
        limit(&order.limits, &[], true).map_err(|error| Refusal::degraded("a limit", error))?;
    become_user(order.run_as).map_err(|error| Refusal::degraded("the uid", error))?;
    die_with(supervisor).map_err(|error| Refusal::degraded("the tie to the supervisor", error))?;
    if let Work::Process { cwd, decided, .. } = &order.work {
        enter(cwd, decided.cwd)?;
    }
    let terminal = Terminal::for_work(&order.work)?;
    standard_streams(handles, terminal.as_ref())
        .map_err(|error| Refusal::degraded("a descriptor", error))?;
    let abi = Abi::from_number(order.landlock_abi);
    let ruleset = handles
        .ruleset
        .as_ref()
        .ok_or_else(|| Refusal::degraded("landlock", "there is no ruleset"))?;
    landlock::restrict_self(ruleset, abi).map_err(|error| Refusal::degraded("landlock", error))?;
    let filters = &shared.basis.filters;
    let late = match shared.wrapping {
        Wrapping::Never => Ok(()),
        Wrapping::Sometimes => filters.put_on(),
    };
    late.and_then(|()| filters.put_on_last(&order.work))
        .map_err(|error| Refusal::degraded("seccomp", error))?;

    let expected = observe::Expected {
        run_as: order.run_as,
        abi,
        limits: &limits,
    };
    let observed = observe::Observed::look(&order.masked, &limits, ahead);
    let mut layers = observe::judge(&expected, &observed)
        .map_err(|missing| Refusal::new(RunErrorKind::SandboxDegraded, missing))?;
    let launch = code::launch(&order.work);
    layers.extend(code::layer_of(&launch));
    let session = Some(observed.session());
    tell_confined(&handles.report, supervisor, session, layers, terminal)?;
    let launch = launch?;

    match (&order.work, program.zip(launch)) {
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
            let files = files::Workspace::open(workspace, &order.masked, Watch::new(rules))?;
            if files.id() != Some(*workspace_id) {
                return Err(changed("the workspace", workspace));
            }
            files.carry_out(operation, order.limits.output_bytes)
        }
        (Work::Probe | Work::Process { .. }, _) => Ok(()),
    }
}

/// Says that every wall stands, and hands over the daemon's end of the terminal: none of it is left
/// here when the program begins.
pub(super) fn tell_confined(
    report: &OwnedFd,
    supervisor: Pid,
    session: Option<i32>,
    mut layers: Vec<Layer>,
    terminal: Option<Terminal>,
) -> Result<(), Refusal> {
    if terminal.is_some() {
        layers.push(terminal::observe()?);
    }
    let confined = Report::Confined {
        supervisor: supervisor.as_raw_nonzero().get(),
        session,
        layers,
    };
    let far_end: Vec<_> = terminal.iter().map(Terminal::far_end).collect();
    serde_json::to_vec(&confined)
        .map_err(io::Error::from)
        .and_then(|bytes| wire::send(report, &bytes, &far_end))
        .map_err(|error| Refusal::new(RunErrorKind::RuntimeFailure, error.to_string()))
}

/// Starts in the folder that was decided about. One that was swapped for another, or for a link,
/// is noticed: the handle is compared, and the handle is what is entered.
pub(super) fn enter(cwd: &Path, decided: FileId) -> Result<(), Refusal> {
    let cannot = |error: io::Error| match error.raw_os_error() {
        // The call's own limit is too low for the walls to be built.
        Some(libc::EMFILE) => Refusal::degraded("a descriptor", error),
        _ => {
            let message = format!("cannot start in `{}`: {error}", cwd.display());
            Refusal::new(RunErrorKind::InvalidInput, message)
        }
    };
    let folder = program::open_folder(cwd).map_err(cannot)?;
    let found = rustix::fs::fstat(&folder).map_err(|error| cannot(error.into()))?;
    if program::id_of(&found) != decided {
        return Err(changed("the folder", cwd));
    }
    rustix::process::fchdir(&folder).map_err(|error| cannot(error.into()))
}

pub(super) fn changed(what: &str, path: &Path) -> Refusal {
    let message = format!(
        "{what} `{}` was changed since it was decided",
        path.display()
    );
    Refusal::new(RunErrorKind::Changed, message)
}

pub(super) struct Program {
    argv: Vec<CString>,
    env: Vec<CString>,
}

impl Program {
    pub(super) fn new(
        argv: &[String],
        env: &[(String, String)],
        tmp: &Path,
    ) -> Result<Self, Refusal> {
        let mut variables = Vec::with_capacity(env.len() + 1);
        for (name, value) in env.iter().filter(|(name, _)| name != "TMPDIR") {
            variables.push(text(format!("{name}={value}").as_bytes(), "a variable")?);
        }
        let value = [b"TMPDIR=", tmp.as_os_str().as_bytes()].concat();
        variables.push(text(&value, "the temporary folder")?);
        Ok(Self {
            argv: words(argv)?,
            env: variables,
        })
    }

    /// Becomes what was compared.
    pub(super) fn exec(self, launch: Launch) -> Refusal {
        let argv = match launch.words.as_deref().map(words).transpose() {
            Ok(other) => other.unwrap_or(self.argv),
            Err(refusal) => return refusal,
        };
        let (error, path) = match launch.what {
            Opened::Path(path) => match text(path.as_os_str().as_bytes(), "the program's path") {
                Ok(name) => (sys::exec(&name, &argv, &self.env), path),
                Err(refusal) => return refusal,
            },
            Opened::Descriptor(file, path) => {
                (sys::exec_opened(file.as_fd(), &argv, &self.env), path)
            }
        };
        // Somebody is writing to it right now.
        if error.raw_os_error() == Some(libc::ETXTBSY) {
            return code::changed(&path);
        }
        let kind = match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => RunErrorKind::ProgramNotFound,
            Some(libc::EACCES | libc::EPERM | libc::ENOEXEC | libc::EISDIR | libc::ELOOP) => {
                RunErrorKind::ProgramNotExecutable
            }
            Some(libc::E2BIG | libc::ENAMETOOLONG) => RunErrorKind::InvalidInput,
            _ => RunErrorKind::RuntimeFailure,
        };
        Refusal::new(
            kind,
            format!("cannot execute `{}`: {error}", path.display()),
        )
    }
}

fn words(argv: &[String]) -> Result<Vec<CString>, Refusal> {
    let words = argv.iter().map(|one| text(one.as_bytes(), "an argument"));
    words.collect()
}

fn text(bytes: &[u8], what: &str) -> Result<CString, Refusal> {
    CString::new(bytes).map_err(|_| {
        let message = format!("{what} contains a NUL character");
        Refusal::new(RunErrorKind::InvalidInput, message)
    })
}

/// Sets the limits, none higher than it was, and gives back what should now be in force. Nothing is
/// set without `really`: that is how a test sees a limit missing.
pub(super) fn limit(
    limits: &Limits,
    more: &[(Resource, u64)],
    really: bool,
) -> io::Result<Vec<(Resource, Rlimit)>> {
    let seconds = limits.cpu.as_millis().div_ceil(1_000);
    let cpu = u64::try_from(seconds).unwrap_or(u64::MAX).max(1);
    let wanted = [
        (Resource::Cpu, Some(cpu)),
        (Resource::Fsize, Some(limits.file_size)),
        (Resource::Nofile, Some(limits.open_files)),
        (Resource::Core, Some(0)),
        (Resource::As, limits.address_space),
    ];
    let more = more
        .iter()
        .map(|(resource, value)| (*resource, Some(*value)));
    let mut set = Vec::with_capacity(wanted.len() + more.len());
    for (resource, value) in wanted.into_iter().chain(more) {
        let Some(value) = value else { continue };
        let highest = rustix::process::getrlimit(resource).maximum;
        let value = highest.map_or(value, |highest| highest.min(value));
        let limit = Rlimit {
            current: Some(value),
            maximum: Some(value),
        };
        if really {
            rustix::process::setrlimit(resource, limit)?;
        }
        set.push((resource, limit));
    }
    Ok(set)
}

/// Becomes whom the plan names. The calls of `rustix` concern one thread, and there is one.
pub(super) fn become_user(run_as: RunAs) -> io::Result<()> {
    match run_as {
        // Who is lent a uid runs in a cage, and gets it there.
        RunAs::Daemon | RunAs::Lent { .. } => Ok(()),
        RunAs::Owner { uid, gid } => {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_res_gid(gid, gid, gid)?;
            Ok(rustix::thread::set_thread_res_uid(uid, uid, uid)?)
        }
    }
}

/// Standard input, output and error become the call's; everything else closes on exec.
pub(super) fn standard_streams(
    handles: &Handles<OwnedFd>,
    terminal: Option<&Terminal>,
) -> io::Result<()> {
    let [stdin, stdout, stderr] = match terminal {
        Some(terminal) => [terminal.near_end(); 3],
        None => [&handles.stdin, &handles.stdout, &handles.stderr].map(AsFd::as_fd),
    };
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    sys::close_all_on_exec()
}
