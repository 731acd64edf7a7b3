//! Ending every descendant, whatever it did to get away.
//!
//! A subreaper inherits every orphan below it, so it is enough to kill *direct* children again and
//! again until there are none: a dead child's children become ours. Only direct children are
//! killed by number, because only their numbers cannot be given to another process before we have
//! waited for them; a number read deeper in the tree may belong to a stranger by the time it is
//! used.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

/// The process ids of this process's children, living or waiting to be waited for.
pub(super) fn of_this_process() -> Vec<Pid> {
    let own = rustix::process::getpid().as_raw_nonzero();
    match std::fs::read_to_string(format!("/proc/self/task/{own}/children")) {
        Ok(list) => list
            .split_ascii_whitespace()
            .filter_map(|number| Pid::from_raw(number.parse().ok()?))
            .collect(),
        // A kernel without that file.
        Err(_) => by_parent(own.get()),
    }
}

fn by_parent(parent: i32) -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| crate::inside::stat(*pid).is_ok_and(|stat| stat.parent == parent))
        .filter_map(Pid::from_raw)
        .collect()
}

/// Kills a direct child and the process group it is in.
///
/// The group goes in one step: the kernel refuses to fork a process that has a signal waiting, so
/// a loop of forks inside one group ends here and now.
pub(super) fn kill(child: Pid) {
    let _ = rustix::process::kill_process(child, Signal::KILL);
    // The child keeps its group's number taken until we have waited for it.
    let own = rustix::process::getpgid(None);
    match (rustix::process::getpgid(Some(child)), own) {
        (Ok(group), Ok(own)) if group != own => {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        _ => {}
    }
}

/// What waiting found.
#[derive(Debug)]
pub(super) enum Waited {
    /// This child ended.
    Ended(Pid, rustix::process::WaitStatus),
    /// There are children, and none has ended.
    StillRunning,
    /// There are none.
    NoneLeft,
}

/// Waits for any child without waiting.
pub(super) fn wait_for_any() -> Waited {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => return Waited::Ended(pid, status),
            Ok(None) => return Waited::StillRunning,
            Err(Errno::INTR) => {}
            Err(_) => return Waited::NoneLeft,
        }
    }
}

/// Kills until there is nobody left. False when some would not die in time (a process stuck in
/// the kernel, or forks that outrun us where there is no cgroup).
pub(super) fn end_all(patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        of_this_process().into_iter().for_each(kill);
        // The dead take a moment to become waitable: look again soon, then less often.
        for pause in [0, 50, 200, 1_000] {
            std::thread::sleep(Duration::from_micros(pause));
            loop {
                match wait_for_any() {
                    Waited::Ended(..) => {}
                    Waited::StillRunning => break,
                    Waited::NoneLeft => return true,
                }
            }
        }
        if Instant::now() > deadline {
            return false;
        }
    }
}
