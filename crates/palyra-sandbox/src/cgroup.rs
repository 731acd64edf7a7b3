//! A cgroup for each call, where version 2 is writable: who belongs to the call, and one write
//! that kills all of it. It is never required.
//!
//! The daemon makes one folder beside its own processes (`palyra-XXXXXXXX`); supervisors make
//! theirs in it. Limits are another matter (`controllers`), so this also works on hybrid machines,
//! where version 2 is mounted without any controller.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};

use crate::masks::Mount;

const PREFIX: &str = "palyra-";

/// How often another name is tried.
const TRIES: usize = 4;

/// The daemon's folder of cgroups.
pub(crate) struct CgroupBase {
    /// Where it is in the file system.
    pub(crate) path: PathBuf,
    /// How `/proc/PID/cgroup` names it.
    pub(crate) name: PathBuf,
    /// Its lock tells other daemons that it is in use.
    _folder: OwnedFd,
}

impl CgroupBase {
    /// Makes the folder, and clears away those of dead daemons. None when it cannot be made.
    pub(crate) fn claim(mounts: &[Mount]) -> Option<Self> {
        // Only under /sys: calls may not write there, so none of them can leave its cgroup.
        let mount = mounts
            .iter()
            .find(|mount| mount.kind == "cgroup2" && mount.point.starts_with("/sys"))?;
        let own = name_of(Path::new("/proc/self/cgroup")).ok()??;
        let beside = mount.point.join(own.strip_prefix("/").ok()?);
        sweep(&beside);
        (0..TRIES).find_map(|_| Self::make(&beside, &own))
    }

    fn make(beside: &Path, own: &Path) -> Option<Self> {
        let mut bytes = [0; 4];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
        let name = base_name(u32::from_ne_bytes(bytes));
        let path = beside.join(&name);
        rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)).ok()?;
        let folder = open(&path).ok()?;
        let locked = rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive);
        // Without `cgroup.kill` (before Linux 5.14) it would be of little use. And another daemon
        // that swept it away before it was locked has taken that file along.
        if locked.is_err() || !path.join("cgroup.kill").exists() {
            let _ = rustix::fs::rmdir(&path);
            return None;
        }
        Some(Self {
            path,
            name: own.join(name),
            _folder: folder,
        })
    }

    /// Kills what is left in any of its cgroups.
    pub(crate) fn kill_all(&self) {
        let _ = std::fs::write(self.path.join("cgroup.kill"), "1");
    }

    /// Whether nothing is seen to be left of the call of this supervisor. That it cannot be told
    /// is no "yes".
    pub(crate) fn is_over(&self, supervisor: i32) -> bool {
        let folder = self.path.join(call_name(supervisor));
        match std::fs::read_to_string(folder.join("cgroup.events")) {
            Ok(events) => events.lines().any(|line| line == "populated 0"),
            // A cgroup with a process in it cannot be removed. (ENODEV: removed as we read.)
            Err(error) => {
                error.kind() == io::ErrorKind::NotFound
                    || error.raw_os_error() == Some(libc::ENODEV)
            }
        }
    }
}

impl Drop for CgroupBase {
    fn drop(&mut self) {
        clear(&self.path);
    }
}

/// The cgroup that a `/proc/PID/cgroup` file names in the version 2 hierarchy.
pub(crate) fn name_of(file: &Path) -> io::Result<Option<PathBuf>> {
    let text = std::fs::read_to_string(file)?;
    Ok(text
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .map(PathBuf::from))
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// How a daemon's folder is called.
pub(crate) fn base_name(number: u32) -> String {
    format!("{PREFIX}{number:08x}")
}

/// Kills and removes what dead daemons left.
pub(crate) fn sweep(beside: &Path) {
    let Ok(entries) = std::fs::read_dir(beside) else {
        return;
    };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| {
            name.strip_prefix(PREFIX)
                .is_some_and(|rest| rest.len() == 8 && rest.bytes().all(|b| b.is_ascii_hexdigit()))
        });
        if !ours {
            continue;
        }
        let Ok(folder) = open(&entry.path()) else {
            continue;
        };
        if rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::write(entry.path().join("cgroup.kill"), "1");
            clear(&entry.path());
        }
    }
}

pub(crate) fn clear(path: &Path) {
    if let Ok(entries) = std::fs::read_dir(path) {
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let _ = std::fs::remove_dir(entry.path());
            }
        }
    }
    let _ = std::fs::remove_dir(path);
}

/// One call's cgroup, in its supervisor's hands.
pub(crate) struct CallCgroup {
    base: OwnedFd,
    name: String,
    folder: OwnedFd,
    end: KillSwitch,
}

/// `cgroup.kill` of a cgroup, opened before it is needed: what goes on in a call cannot keep us
/// from writing to it.
pub(crate) struct KillSwitch(OwnedFd);

impl KillSwitch {
    /// Of the cgroup that `folder` is a handle of.
    pub(crate) fn of(folder: impl AsFd) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, "cgroup.kill", flags, Mode::empty())?;
        Ok(Self(file))
    }

    /// Kills everything in the cgroup and below, forks in flight included.
    pub(crate) fn pull(&self) {
        let _ = rustix::io::pwrite(&self.0, b"1", 0);
    }
}

impl CallCgroup {
    /// Makes it. The name comes from the supervisor's process id, which is nobody else's.
    pub(crate) fn make(base: impl AsFd, supervisor: i32) -> io::Result<Self> {
        let base = base.as_fd().try_clone_to_owned()?;
        let name = call_name(supervisor);
        match rustix::fs::mkdirat(&base, &name, Mode::RWXU | Mode::RGRP | Mode::XGRP) {
            // One with the same number was killed before it could clear up.
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(other) => return Err(other.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&base, &name, flags, Mode::empty())?;
        let end = KillSwitch::of(&folder)?;
        Ok(Self {
            base,
            name,
            folder,
            end,
        })
    }

    pub(crate) fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    /// Kills everything in it, forks in flight included.
    pub(crate) fn kill(&self) {
        self.end.pull();
    }

    /// Removes it. The kernel may take a moment to notice that the last process is gone.
    pub(crate) fn remove(self) {
        drop(self.folder);
        remove_in(&self.base, &self.name);
    }
}

/// Kills and removes the cgroup of a supervisor that was killed itself.
pub(crate) fn bury(base: impl AsFd, supervisor: i32) {
    let name = call_name(supervisor);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(folder) = rustix::fs::openat(base.as_fd(), &name, flags, Mode::empty()) {
        if let Ok(end) = KillSwitch::of(&folder) {
            end.pull();
        }
        remove_in(base, &name);
    }
}

pub(crate) fn call_name(supervisor: i32) -> String {
    format!("call-{supervisor}")
}

pub(crate) fn remove_in(base: impl AsFd, name: &str) {
    for _ in 0..50 {
        match rustix::fs::unlinkat(base.as_fd(), name, AtFlags::REMOVEDIR) {
            Err(rustix::io::Errno::BUSY) => {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            Ok(()) | Err(_) => return,
        }
    }
}
