//! A call whose cage `bwrap` builds: this process takes the order and stays outside, as whom the
//! call runs; `bwrap` is its child, and `palyra-jail inner` the first process of the cage.
//!
//! ```text
//! supervisor ── this ── bwrap ─┊─ palyra-jail inner ── target
//! ```
//!
//! Each dies with the one before. How the target ended comes back on a socket, and this process ends
//! the same way, which is what its supervisor looks at.

use std::ffi::CString;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use palyra_core::RunErrorKind;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions};
use serde::{Deserialize, Serialize};

use super::code;
use super::self_test::Ahead;
use super::server::Shared;
use super::sight::Namespaces;
use super::target::{self, DID_NOT_RUN, Refusal};
use crate::call::memory_file;
use crate::tier_c::bubblewrap::{self, Descriptors, Found};
use crate::tier_c::cage::Cage;
use crate::wire::{self, End, Handles, Order};
use crate::{program, sys};

/// What the helper inside says first.
pub(super) const BEGUN: &[u8] = b"b";

/// How much of what `bwrap` complains about is passed on.
const COMPLAINT: u64 = 2_048;

/// Whether the cages of this server are built by `bwrap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrapping {
    Never,
    Sometimes,
}

impl Wrapping {
    /// The word for the helper.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Never => "namespaces",
            Self::Sometimes => "bwrap",
        }
    }

    /// What the helper was told.
    pub(crate) fn of_word(word: &std::ffi::OsStr) -> Option<Self> {
        [Self::Never, Self::Sometimes]
            .into_iter()
            .find(|it| word == it.word())
    }
}

/// What the helper inside has to know besides the order. The file that it comes in shows it as well
/// who it is outside: it was made here, by whom the call runs as.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Given {
    pub(super) supervisor: i32,
    pub(super) ids: (u32, u32),
    pub(super) namespaces: Namespaces,
    pub(super) ahead: Ahead,
}

/// A wrapped call's life, from its order on. The result is its exit code.
pub(super) fn run(
    shared: &Shared,
    supervisor: Pid,
    order: &Order,
    handles: Handles<OwnedFd>,
    ahead: &Ahead,
) -> i32 {
    let report = handles.report.try_clone();
    let ended = carry_out(shared, supervisor, order, handles, ahead);
    match (ended, report) {
        (Ok(how), _) => end_like(how),
        (Err(refusal), Ok(report)) => target::refuse(&report, refusal),
        (Err(_), Err(_)) => DID_NOT_RUN,
    }
}

fn carry_out(
    shared: &Shared,
    supervisor: Pid,
    order: &Order,
    handles: Handles<OwnedFd>,
    ahead: &Ahead,
) -> Result<End, Refusal> {
    let (Some(caged), Some(order_file)) = (&order.caged, &handles.order) else {
        let message = "the order is not for a cage";
        return Err(Refusal::new(RunErrorKind::RuntimeFailure, message));
    };
    let bwrap = bubblewrap::PLACES
        .into_iter()
        .find(|place| Path::new(place).exists())
        .ok_or_else(|| unavailable("it is not installed"))?;
    let broke = |error: io::Error| Refusal::degraded("bwrap", error);
    // Before this process is somebody else, who may not look at its files in /proc.
    let own_program = rustix::fs::open("/proc/self/exe", OFlags::RDONLY, Mode::empty())
        .map_err(|error| broke(error.into()))?;
    target::become_user(order.run_as).map_err(|error| Refusal::degraded("the uid", error))?;
    target::die_with(supervisor).map_err(broke)?;
    let given = give(shared, supervisor, ahead)?;
    let (link, far_link) = link().map_err(broke)?;
    // It was read here, from the same place.
    rustix::fs::seek(order_file, rustix::fs::SeekFrom::Start(0))
        .map_err(|error| broke(error.into()))?;
    let handed = [
        &far_link,
        &given,
        order_file,
        &handles.report,
        &handles.stdin,
        &handles.stdout,
        &handles.stderr,
    ];
    let copies = copies(&caged.cage)?;
    let words = words(&caged.cage, &own_program, &handed, &copies).map_err(broke)?;
    let complaints = memory_file(b"").map_err(broke)?;
    let inherited = handed.into_iter().chain([&own_program]).chain(&copies);
    let child = start(bwrap, &words, inherited, &complaints).map_err(broke)?;
    // Those inside have their own copies, and their end has to be seen.
    drop((far_link, handles));
    wait_for(child, &link, complaints)
}

/// What the helper inside is given, made by whom the call runs as, who is never root.
fn give(shared: &Shared, supervisor: Pid, ahead: &Ahead) -> Result<OwnedFd, Refusal> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if uid.is_root() {
        let why = "nothing runs as root, and it cannot lend a uid";
        return Err(unavailable(why));
    }
    let given = Given {
        supervisor: supervisor.as_raw_nonzero().get(),
        ids: (uid.as_raw(), gid.as_raw()),
        namespaces: shared.basis.namespaces.clone(),
        ahead: ahead.clone(),
    };
    let bytes = serde_json::to_vec(&given).map_err(io::Error::from);
    let file = bytes.and_then(|bytes| memory_file(&bytes));
    file.map_err(|error| Refusal::degraded("bwrap", error))
}

fn link() -> io::Result<(OwnedFd, OwnedFd)> {
    let (unix, packets) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socketpair(
        unix,
        packets,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Starts `bwrap`, which inherits these and nothing else, and complains into a file.
fn start<'a>(
    bwrap: &str,
    words: &[CString],
    inherited: impl Iterator<Item = &'a OwnedFd>,
    complaints: &OwnedFd,
) -> io::Result<Pid> {
    let program = CString::new(bwrap)?;
    let ready = || -> io::Result<()> {
        rustix::stdio::dup2_stderr(complaints)?;
        for handle in inherited {
            rustix::io::fcntl_setfd(handle, FdFlags::empty())?;
        }
        Ok(())
    };
    sys::fork(None, || {
        if ready().is_ok() {
            drop(sys::exec(&program, words, &[]));
        }
        DID_NOT_RUN
    })
}

/// The code that `bwrap` lays over the workspace's own, copied if it is what was decided about.
fn copies(cage: &Cage) -> Result<Vec<OwnedFd>, Refusal> {
    let broke = |error: io::Error| Refusal::degraded("a copy", error);
    if cage.code().next().is_none() {
        return Ok(Vec::new());
    }
    let workspace = program::open_folder(cage.workspace()).map_err(broke)?;
    let one = |copy| {
        let original = code::original(&workspace, copy)?;
        let to = memory_file(b"").map_err(broke)?;
        code::copy(&original, copy, &to)?;
        let start = rustix::fs::SeekFrom::Start(0);
        rustix::fs::seek(&to, start).map_err(|error| broke(error.into()))?;
        Ok(to)
    };
    cage.code().map(one).collect()
}

fn words(
    cage: &Cage,
    program: &OwnedFd,
    handed: &[&OwnedFd],
    copies: &[OwnedFd],
) -> io::Result<Vec<CString>> {
    let descriptors = Descriptors {
        program: program.as_raw_fd(),
        handed: handed.iter().map(|handle| handle.as_raw_fd()).collect(),
        copies: copies.iter().map(AsRawFd::as_raw_fd).collect(),
    };
    let words = bubblewrap::arguments(cage, &descriptors, &found);
    let words = words.into_iter().map(|word| CString::new(word.into_vec()));
    words.collect::<Result<_, _>>().map_err(io::Error::other)
}

/// Looks without following links: where one leads is not what was decided about.
fn found(path: &Path) -> Found {
    if program::open_folder(path).is_ok() {
        return Found::Folder;
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let strict = rustix::fs::ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), strict) {
        Ok(_) => Found::File,
        Err(_) => Found::Nothing,
    }
}

/// Waits until the helper inside says how the target ended, or for the end of `bwrap`.
fn wait_for(child: Pid, link: &OwnedFd, complaints: OwnedFd) -> Result<End, Refusal> {
    let mut begun = false;
    loop {
        let mut watched = [PollFd::new(link, PollFlags::IN)];
        match rustix::event::poll(&mut watched, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Refusal::degraded("bwrap", error)),
        }
        let mut buffer = [0; 256];
        let received = wire::receive(link, &mut buffer).ok().flatten();
        let said = received.map(|(length, _)| buffer.get(..length).unwrap_or_default());
        match said {
            Some(BEGUN) => begun = true,
            Some(other) => {
                let how = serde_json::from_slice(other);
                return how.map_err(|error| Refusal::degraded("bwrap", error));
            }
            // Everybody inside is gone. Whoever had begun has said why it did not go on.
            None => {
                let ended = rustix::io::retry_on_intr(|| {
                    rustix::process::waitpid(Some(child), WaitOptions::empty())
                });
                return match (begun, ended) {
                    (true, _) => Ok(End::Exited(DID_NOT_RUN)),
                    (false, _) => Err(unavailable(complaint(complaints).trim())),
                };
            }
        }
    }
}

fn complaint(said: OwnedFd) -> String {
    let mut file = std::fs::File::from(said);
    let mut bytes = Vec::new();
    let read = file.rewind();
    let read = read.and_then(|()| file.take(COMPLAINT).read_to_end(&mut bytes));
    match read {
        Ok(_) if !bytes.is_empty() => String::from_utf8_lossy(&bytes).into_owned(),
        Ok(_) | Err(_) => "it said nothing".to_owned(),
    }
}

fn unavailable(why: &str) -> Refusal {
    let message = format!("`bwrap` cannot build the cage: {why}; see `palyra doctor`");
    Refusal::new(RunErrorKind::SandboxUnavailable, message)
}

/// Ends as the target did.
fn end_like(how: End) -> i32 {
    match how {
        End::Exited(code) => code,
        End::Signalled(number) => {
            let none = Rlimit {
                current: Some(0),
                maximum: Some(0),
            };
            let _ = rustix::process::setrlimit(Resource::Core, none);
            sys::end_by(number)
        }
        End::TimedOut | End::Ended | End::ServerLost | End::Unwatched => DID_NOT_RUN,
    }
}
