//! A supervisor: the parent of one call's target, and in the end of everything the target starts.
//!
//! It stays outside the walls (and keeps the daemon's uid), so nothing inside can trace it or read
//! its memory. It ends its call when the target ends, when the time is over, when the daemon says
//! so or is gone, and when the spawn server is gone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::children::{self, Children, Waited};
use super::left_out::Wall;
use super::server::{Kind, Shared, drain};
use super::{init, target};
use crate::cgroup::CallCgroup;
use crate::controllers::CallLimits;
use crate::landlock::{self, Abi, Access, Ruleset};
use crate::wire::{self, Assignment, CallTmp, End, Report};
use crate::{sys, tmp};

/// How long killing may take before the report says that something survived.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Calls that end sooner are left alone until they have.
const SHORT: Duration = Duration::from_millis(3);

/// How long a path in an assignment can be, and some room.
const ASSIGNMENT: usize = 16 * 1024;

/// A supervisor's life. The result is its exit code; anything but 0 makes the server look for what
/// may be left.
pub(super) fn run(shared: &Shared, kind: Kind) -> i32 {
    match supervise(shared, kind) {
        Ok(true) => 0,
        Ok(false) | Err(_) => 1,
    }
}

/// True when nothing is left. Errors are only those from before there was anything.
fn supervise(shared: &Shared, kind: Kind) -> io::Result<bool> {
    let own = rustix::process::getpid();
    // The server's death reaches us as SIGTERM, which is blocked and read from `signals`.
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    if rustix::process::getppid() != Some(shared.server) {
        return Ok(true);
    }
    rustix::process::set_child_subreaper(Some(own))?;
    // What it takes to end a call is in hand before there is one.
    let children = Children::of_this_process();
    let cgroup = shared
        .cgroups
        .as_ref()
        .and_then(|base| CallCgroup::make(base, own.as_raw_nonzero().get()).ok());
    let name = crate::cgroup::call_name(own.as_raw_nonzero().get());
    let second = cgroup.as_ref().map(CallCgroup::folder);
    let limits = CallLimits::make(&shared.controllers, second, &name);
    let (link, far_link) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let namespaces = match kind {
        Kind::Plain => 0,
        Kind::Caged if shared.basis.missing == Some(Wall::Processes) => {
            init::namespaces() & !libc::CLONE_NEWPID
        }
        Kind::Caged => init::namespaces(),
    };
    let wait = || match kind {
        Kind::Plain => target::run(shared, own, &far_link, &limits),
        Kind::Caged => init::run(shared, own, &far_link, &limits),
    };
    let folder = cgroup.as_ref().map(|it| it.folder().as_fd());
    // A cgroup is a gain where it works and never a condition.
    let forked = match sys::fork_into(namespaces, folder, wait) {
        Err(_) if folder.is_some() => sys::fork_into(namespaces, None, wait),
        other => other,
    };
    let target = match (forked, kind) {
        (Err(why), Kind::Caged) => sys::fork(None, || init::run_without(shared, &far_link, &why))?,
        (forked, Kind::Plain | Kind::Caged) => forked?,
    };
    drop(far_link);
    let call = Call {
        kind,
        target,
        link,
        children,
        cgroup,
        limits,
        said_taken: std::cell::Cell::new(false),
    };
    Ok(call.see_through(shared))
}

/// How a target ended, and whether everything that it started is known to be gone with it.
enum Ended {
    Buried(End),
    Unburied(End),
}

struct Call {
    kind: Kind,
    /// The target, or the first process of its cage.
    target: Pid,
    /// Where it hands over its assignment, and where a cage's first process says how it ended.
    link: OwnedFd,
    children: Children,
    cgroup: Option<CallCgroup>,
    limits: CallLimits,
    said_taken: std::cell::Cell<bool>,
}

impl Call {
    /// Tells the server that this slot is used up, so that it makes another one: forking it while a
    /// short call runs would slow that down, so it is told when the call is over or is not short.
    fn say_taken(&self, shared: &Shared) {
        if !self.said_taken.replace(true) {
            let own = rustix::process::getpid().as_raw_nonzero().get();
            let _ = rustix::io::write(&shared.taken, &own.to_ne_bytes());
        }
    }

    /// True when nothing of the call is left.
    fn see_through(self, shared: &Shared) -> bool {
        let (assignment, report) = match self.wait_for_assignment(shared) {
            Ok(Some(assigned)) => assigned,
            Ok(None) | Err(_) => {
                let ended = self.end_everything();
                self.clear_up(shared, None);
                return ended;
            }
        };
        // Not being able to watch any longer is no reason to let it run on.
        let how = self.wait_for_end(shared, &assignment, &report);
        let how = how.unwrap_or(Ended::Unburied(End::Unwatched));
        let (how, buried) = match how {
            // Its first process has buried all others and is about to go itself. That takes a
            // while (mounts, a network), and there is nothing left to wait for.
            Ended::Buried(how) => (how, true),
            Ended::Unburied(how) => (how, self.end_everything()),
        };
        let survivors = !buried;
        // The daemon may be gone; nobody else wants to know.
        let _ = wire::send_value(&report, &Report::Ended { how, survivors });
        drop(report);
        self.say_taken(shared);
        let ended = self.end_everything();
        self.clear_up(shared, Some(&assignment));
        ended
    }

    /// None when the slot is no longer wanted.
    fn wait_for_assignment(&self, shared: &Shared) -> io::Result<Option<(Assignment, OwnedFd)>> {
        loop {
            let mut watched = [
                PollFd::new(&self.link, PollFlags::IN),
                PollFd::new(&shared.signals, PollFlags::IN),
            ];
            poll(&mut watched, None)?;
            let [link, signals] = watched.map(|one| !one.revents().is_empty());
            if link {
                let mut buffer = vec![0; ASSIGNMENT];
                let Some((length, handles)) = wire::receive(&self.link, &mut buffer)? else {
                    return Ok(None);
                };
                let bytes = buffer.get(..length).unwrap_or_default();
                let report = handles.into_iter().next();
                let report = report.ok_or(io::ErrorKind::InvalidData)?;
                return Ok(Some((serde_json::from_slice(bytes)?, report)));
            }
            // A target that ended closed its end of the link: the next turn sees it.
            if signals && drain(&shared.signals) {
                return Ok(None);
            }
        }
    }

    fn wait_for_end(
        &self,
        shared: &Shared,
        assignment: &Assignment,
        report: &OwnedFd,
    ) -> io::Result<Ended> {
        let begun = Instant::now();
        let deadline = begun.checked_add(Duration::from_millis(assignment.wall_ms));
        loop {
            if begun.elapsed() >= SHORT {
                self.say_taken(shared);
            }
            // The target may have ended while the assignment was on its way.
            if let Some(ended) = self.has_ended() {
                return Ok(ended);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Ended::Unburied(End::TimedOut));
            }
            let mut watched = vec![
                PollFd::new(report, PollFlags::IN),
                PollFd::new(&shared.signals, PollFlags::IN),
            ];
            // A plain target holds the link's other end until it is another program. That it is
            // closed says nothing, but the kernel would say so without end, asked or not.
            if self.kind == Kind::Caged {
                watched.push(PollFd::new(&self.link, PollFlags::IN));
            }
            let soon = (!self.said_taken.get()).then_some(SHORT);
            poll(&mut watched, left.into_iter().chain(soon).min())?;
            let mut seen = watched.iter().map(|one| !one.revents().is_empty());
            let (said, signals) = (seen.next() == Some(true), seen.next() == Some(true));
            if signals && drain(&shared.signals) {
                return Ok(Ended::Unburied(End::ServerLost));
            }
            // Whatever arrives, the end of the conversation included, means "end it". But a target
            // that ended by itself just now has ended by itself.
            if said {
                // Taken off the socket: closing it with something unread would make the daemon
                // see a broken conversation instead of our last word.
                let _ = wire::receive(report, &mut [0; 8]);
                let ended = self.has_ended();
                return Ok(ended.unwrap_or(Ended::Unburied(End::Ended)));
            }
        }
    }

    /// How the target ended, if it has.
    fn has_ended(&self) -> Option<Ended> {
        if self.kind == Kind::Caged
            && let Ok(Some(how)) = self.last_word()
        {
            return Some(Ended::Buried(how));
        }
        while let Waited::Ended(pid, status) = children::wait_for_any() {
            if pid == self.target {
                // It may have spoken just before it went.
                return Some(match self.last_word() {
                    Ok(Some(how)) if self.kind == Kind::Caged => Ended::Buried(how),
                    Ok(_) | Err(_) => Ended::Unburied(end_of(status)),
                });
            }
        }
        None
    }

    /// What the first process of a cage said, if it has spoken.
    fn last_word(&self) -> io::Result<Option<End>> {
        let mut watched = [PollFd::new(&self.link, PollFlags::IN)];
        poll_now(&mut watched)?;
        let [link] = watched;
        if !link.revents().contains(PollFlags::IN) {
            return Ok(None);
        }
        wire::receive_value(&self.link, &mut [0; 256])
    }

    /// Kills what is left of the call; false when something survived.
    fn end_everything(&self) -> bool {
        if matches!(children::wait_for_any(), Waited::NoneLeft) {
            return true;
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
        self.children.end_all(KILL_PATIENCE)
    }

    fn clear_up(self, shared: &Shared, assignment: Option<&Assignment>) {
        if let Some(within) = &shared.temp
            && let Some(assignment) = assignment
            && let Some(made) = &assignment.tmp
            && !tmp::remove_empty(within, made).unwrap_or(true)
        {
            // What the call left there is cleared away with the call's own rights: somebody of the
            // same uid may still be moving things about in it.
            let clear = || {
                let cleared =
                    target::become_user(assignment.run_as).and_then(|()| clear_away(within, made));
                i32::from(cleared.is_err())
            };
            if let Ok(child) = sys::fork(None, clear) {
                let _ = rustix::io::retry_on_intr(|| {
                    rustix::process::waitpid(Some(child), WaitOptions::empty())
                });
            }
            let _ = tmp::remove_empty(within, made);
        }
        self.limits.remove();
        if let Some(cgroup) = self.cgroup {
            cgroup.remove();
        }
    }
}

/// Removes everything in a call's folder, behind a wall that leaves this folder and nothing else:
/// whatever is moved in or out meanwhile, nothing beyond it goes.
fn clear_away(within: &OwnedFd, made: &CallTmp) -> io::Result<()> {
    let folder = tmp::open(within, made)?;
    // The first version of Landlock lets nobody move anything, which clearing away has to.
    if let Some(abi) = Abi::of_this_kernel().filter(|abi| abi.number() >= 2) {
        let ruleset = Ruleset::new(abi)?;
        ruleset.grant(&folder, Access::Full, true)?;
        landlock::restrict_self(ruleset.into_fd(), abi)?;
    }
    tmp::empty(&folder)
}

fn poll_now(watched: &mut [PollFd<'_>]) -> io::Result<()> {
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match rustix::event::poll(watched, Some(&now)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(other) => Err(other.into()),
    }
}

fn poll(watched: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    // The kernel rounds down to milliseconds in places; one more never ends a call early.
    let timeout = timeout.map(|span| span + Duration::from_millis(1));
    let timeout = timeout.and_then(|span| span.try_into().ok());
    match rustix::event::poll(watched, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(other) => Err(other.into()),
    }
}

pub(super) fn end_of(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Signalled(signal),
        (None, None) => End::Ended,
    }
}
