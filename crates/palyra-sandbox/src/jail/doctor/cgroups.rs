//! Limits on a whole call: a cgroup is made beside this process's own, limited, entered by a child
//! that goes beyond the limit, and removed.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, WaitOptions};

use super::{AtStep, Bad, Tried, found, useless};
use crate::sys;

/// A cgroup that is removed again.
struct Trial {
    folder: PathBuf,
    version: u8,
}

impl Drop for Trial {
    fn drop(&mut self) {
        for _ in 0..50 {
            // The kernel takes a moment to notice that the last process is gone.
            match fs::remove_dir(&self.folder) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                Ok(()) | Err(_) => return,
            }
        }
    }
}

impl Trial {
    /// Where this controller's hierarchy has this process, whichever version that is.
    fn new(controller: &str) -> Result<Self, Bad> {
        let own = fs::read_to_string("/proc/self/cgroup").at("the list of cgroups")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").at("the list of mounts")?;
        let Some((beside, version)) = place(&own, &mounts, controller) else {
            return Err(useless("finding the controller", "no hierarchy has it"));
        };
        let folder = beside.join(format!("palyra-doctor-{}", std::process::id()));
        fs::create_dir(&folder).at("making a cgroup")?;
        Ok(Self { folder, version })
    }

    fn set(&self, one: &str, two: &str, value: &str) -> Result<(), Bad> {
        let name = if self.version == 1 { one } else { two };
        fs::write(self.folder.join(name), value).at("setting its limit")
    }

    /// Has a child enter it and do something; what the child ends with, 0 when it was killed.
    fn inside(&self, work: impl FnOnce() -> i32) -> Result<i32, Bad> {
        let procs = self.folder.join("cgroup.procs");
        let child = sys::fork(None, || match fs::write(procs, "0") {
            Ok(()) => work(),
            Err(_) => CANNOT_ENTER,
        })
        .at("a process for it")?;
        let ended = rustix::process::waitpid(Some(child), WaitOptions::empty()).at("its end")?;
        match ended.and_then(|(_, status)| status.exit_status()) {
            Some(CANNOT_ENTER) => Err(useless("entering it", "a process could not be moved there")),
            Some(code) => Ok(code),
            None => Ok(0),
        }
    }
}

const CANNOT_ENTER: i32 = 101;
const WENT_BEYOND: i32 = 102;

pub(super) fn processes() -> Tried {
    let trial = Trial::new("pids")?;
    trial.set("pids.max", "pids.max", "4")?;
    let code = trial.inside(|| {
        let mut born: Vec<Pid> = Vec::new();
        let beyond = (0..8).all(|_| {
            let child = sys::fork(None, || {
                std::thread::sleep(std::time::Duration::from_secs(2));
                0
            });
            child.map(|child| born.push(child)).is_ok()
        });
        for child in born {
            let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
            let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
        }
        if beyond { WENT_BEYOND } else { 0 }
    })?;
    held(&trial, code, "the fifth process was refused")
}

pub(super) fn memory() -> Tried {
    let trial = Trial::new("memory")?;
    trial.set("memory.limit_in_bytes", "memory.max", "16777216")?;
    let code = trial.inside(|| {
        // Written to, so that it is really there.
        let all: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 20]).collect();
        std::hint::black_box(&all);
        WENT_BEYOND
    })?;
    held(&trial, code, "64 MiB were not had behind a limit of 16")
}

pub(super) fn cpu() -> Tried {
    let trial = Trial::new("cpu")?;
    trial.set("cpu.cfs_quota_us", "cpu.max", "50000")?;
    let code = trial.inside(|| 0)?;
    held(&trial, code, "half a CPU was set")
}

fn held(trial: &Trial, code: i32, what: &str) -> Tried {
    match code {
        WENT_BEYOND => Err(useless("going beyond the limit", "it was allowed")),
        _ => found(format!("version {}: {what}", trial.version)),
    }
}

/// The folder of this process's own cgroup for a controller, and the version of its hierarchy.
fn place(own: &str, mounts: &str, controller: &str) -> Option<(PathBuf, u8)> {
    let one = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        names
            .split(',')
            .any(|name| name == controller)
            .then_some(path)
    });
    let two = own.lines().find_map(|line| line.strip_prefix("0::"));
    if let Some(path) = one {
        let point = mount_point(mounts, "cgroup", Some(controller))?;
        return Some((join(&point, path), 1));
    }
    let folder = join(&mount_point(mounts, "cgroup2", None)?, two?);
    // A child has the controller only where this one hands it down.
    let handed_down = fs::read_to_string(folder.join("cgroup.subtree_control")).ok()?;
    let has = handed_down
        .split_whitespace()
        .any(|name| name == controller);
    has.then_some((folder, 2))
}

fn join(point: &str, path: &str) -> PathBuf {
    Path::new(point).join(path.trim_start_matches('/'))
}

/// Where a hierarchy is mounted: of this type and, for version 1, with this controller.
fn mount_point(mounts: &str, kind: &str, controller: Option<&str>) -> Option<String> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (its_kind, options) = (after.next()?, after.nth(1)?);
        let fits = its_kind == kind
            && controller.is_none_or(|name| options.split(',').any(|option| option == name));
        fits.then(|| before.split(' ').nth(4).map(str::to_owned))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 25 0:26 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct
32 25 0:28 / /sys/fs/cgroup/unified rw shared:11 - cgroup2 cgroup2 rw";

    #[test]
    fn each_controller_is_looked_for_where_it_is() {
        let own = "3:cpu,cpuacct:/a\n2:pids:/user/b\n0::/c\n";
        let at = |controller| place(own, HYBRID, controller);
        let pids = PathBuf::from("/sys/fs/cgroup/pids/user/b");
        assert_eq!(at("pids"), Some((pids, 1)));
        let cpu = PathBuf::from("/sys/fs/cgroup/cpu,cpuacct/a");
        assert_eq!(at("cpu"), Some((cpu, 1)));
        // Version 2 is there, but hands nothing down.
        assert_eq!(at("memory"), None);
    }
}
