//! Ending every descendant, whatever it did to get away.
//!
//! A subreaper inherits every orphan below it, so it is enough to kill *direct* children again and
//! again until there are none: a dead child's children become ours. Only direct children are
//! killed by number, because only their numbers cannot be given to another process before we have
//! waited for them; a number read deeper in the tree may belong to a stranger by the time it is
//! used.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

/// How much of the list is read at once.
const AT_ONCE: usize = 16 * 1024;

/// This process's children.
///
/// The file that lists them is opened before there is any call to end, so that nothing that a call
/// does (using up descriptors, say) keeps us from reading it.
pub(super) struct Children {
    own: i32,
    /// None on a kernel without that file.
    list: Option<OwnedFd>,
}

impl Children {
    /// Of the process that asks; after a fork it has to ask again.
    pub(super) fn of_this_process() -> Self {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let path = format!("/proc/self/task/{own}/children");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Self {
            own,
            list: rustix::fs::open(path, flags, Mode::empty()).ok(),
        }
    }

    /// Their process ids, living or waiting to be waited for. That they cannot be listed does not
    /// mean that there are none.
    pub(super) fn list(&self) -> io::Result<Vec<Pid>> {
        let Some(file) = &self.list else {
            return by_parent(self.own);
        };
        let mut text = Vec::new();
        let mut buffer = [0; AT_ONCE];
        loop {
            let from = text.len() as u64;
            match rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut buffer, from))? {
                0 => break,
                length => text.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            }
        }
        Ok(String::from_utf8_lossy(&text)
            .split_ascii_whitespace()
            .filter_map(|number| Pid::from_raw(number.parse().ok()?))
            .collect())
    }

    /// Kills until there is nobody left. False when some would not die in time (a process stuck in
    /// the kernel, or forks that outrun us where there is no cgroup) or cannot even be listed.
    pub(super) fn end_all(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            // Not listed is not ended: only `wait` says that nobody is left.
            self.list().unwrap_or_default().into_iter().for_each(kill);
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
}

fn by_parent(parent: i32) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        match crate::inside::stat(pid) {
            Ok(stat) if stat.parent == parent => found.extend(Pid::from_raw(pid)),
            Ok(_) => {}
            // It ended meanwhile; a child of ours would have stayed until we waited for it.
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
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
            Err(Errno::CHILD) => return Waited::NoneLeft,
            // Nothing else is known to happen; it would not mean that nobody is there.
            Err(_) => return Waited::StillRunning,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a child to be listed")]
    fn children_are_listed_again_and_again_by_one_handle() {
        // The file lists children of one thread: that of the helper, which has no other. Here it
        // is the test's main thread, so both ways are compared by what they say of each other.
        let own = i32::try_from(std::process::id()).unwrap();
        let children = Children::of_this_process();
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        assert!(by_parent(own).unwrap().contains(&pid));
        for _ in 0..3 {
            let listed = children.list().unwrap();
            let all = by_parent(own).unwrap();
            assert!(listed.iter().all(|one| all.contains(one)), "{listed:?}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!by_parent(own).unwrap().contains(&pid));
    }
}
