//! Limits on a whole call: how many processes, how much memory. Held by cgroup controllers, in
//! whichever hierarchy has them: version 2 where it does, else version 1, as on hybrid machines.
//!
//! A slot joins its groups while it waits, because joining one of version 1 takes a lock of the whole
//! machine, and sets the usual limits. When the order comes there is nothing left to do, or a number
//! to write. Where there is no controller there is no limit, and the record says so.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use palyra_core::Limits;
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::cgroup;

/// A controller that is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Controller {
    Pids,
    Memory,
}

const ALL: [Controller; 2] = [Controller::Pids, Controller::Memory];

impl Controller {
    const fn name(self) -> &'static str {
        match self {
            Self::Pids => "pids",
            Self::Memory => "memory",
        }
    }

    /// The file that holds the limit.
    const fn file(self, version: Version) -> &'static str {
        match (self, version) {
            (Self::Pids, _) => "pids.max",
            (Self::Memory, Version::Two) => "memory.max",
            (Self::Memory, Version::One) => "memory.limit_in_bytes",
        }
    }

    const fn of(self, limits: &Limits) -> u64 {
        match self {
            Self::Pids => limits.processes,
            Self::Memory => limits.memory,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where a controller's groups of one daemon are, as the helper is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    controller: Controller,
    version: Version,
    /// In version 2, the folder that is there anyway.
    path: PathBuf,
}

impl Base {
    /// The word for the helper.
    pub(crate) fn word(&self) -> std::ffi::OsString {
        let version = match self.version {
            Version::One => "1",
            Version::Two => "2",
        };
        let mut word = std::ffi::OsString::from(format!("{}:{version}:", self.controller.name()));
        word.push(&self.path);
        word
    }

    /// Removes it, when its daemon is gone and no call is left.
    pub(crate) fn remove(&self) {
        if self.version == Version::One {
            cgroup::clear(&self.path);
        }
    }

    /// What the helper was told.
    pub(crate) fn of_word(word: &std::ffi::OsStr) -> Option<Self> {
        let text = word.to_str()?;
        let (name, rest) = text.split_once(':')?;
        let (version, path) = rest.split_once(':')?;
        Some(Self {
            controller: ALL.into_iter().find(|it| it.name() == name)?,
            version: match version {
                "1" => Version::One,
                "2" => Version::Two,
                _ => return None,
            },
            path: path.into(),
        })
    }
}

/// The groups of a daemon, removed when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    pub(crate) all: Vec<Base>,
    /// Their locks tell other daemons that they are in use.
    _locks: Vec<OwnedFd>,
}

impl Bases {
    /// Makes what can be made. `folder` is the daemon's own in version 2, and the name of all.
    pub(crate) fn claim(folder: Option<&Path>) -> Self {
        let mut bases = Self::default();
        for controller in ALL {
            let second = folder.filter(|folder| enable(folder, controller));
            if let Some(folder) = second {
                bases.all.push(Base {
                    controller,
                    version: Version::Two,
                    path: folder.to_owned(),
                });
            } else if let Some((base, lock)) = claim_first(controller) {
                bases.all.push(base);
                bases._locks.push(lock);
            }
        }
        bases
    }
}

impl Drop for Bases {
    fn drop(&mut self) {
        self.all.iter().for_each(Base::remove);
    }
}

/// Lets the groups in `folder` have the controller, in version 2.
fn enable(folder: &Path, controller: Controller) -> bool {
    let asked = format!("+{}", controller.name());
    if let Some(above) = folder.parent() {
        // Refused where processes live in it; then it was given to us, or it was not.
        let _ = std::fs::write(above.join("cgroup.subtree_control"), &asked);
    }
    std::fs::write(folder.join("cgroup.subtree_control"), &asked).is_ok()
}

/// A folder of ours in the hierarchy of version 1 that has the controller, beside our processes.
fn claim_first(controller: Controller) -> Option<(Base, OwnedFd)> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let beside = place(controller, &mounts, &own)?;
    cgroup::sweep(&beside);
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    let path = beside.join(cgroup::base_name(u32::from_ne_bytes(bytes)));
    rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)).ok()?;
    let folder = open(&path).ok()?;
    let locked = rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive);
    if locked.is_err() || !path.join(controller.file(Version::One)).exists() {
        let _ = rustix::fs::rmdir(&path);
        return None;
    }
    let base = Base {
        controller,
        version: Version::One,
        path,
    };
    Some((base, folder))
}

/// Where our processes are in the hierarchy of version 1 that has the controller.
fn place(controller: Controller, mounts: &str, own: &str) -> Option<PathBuf> {
    let has = |list: &str| list.split(',').any(|one| one == controller.name());
    // `9 8 0:3 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids`; only under /sys: calls may not
    // write there, so none of them can leave its group.
    let point = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let is_first = right.next()? == "cgroup" && has(right.nth(1)?);
        let (root, point) = (left.split(' ').nth(3)?, left.split(' ').nth(4)?);
        (is_first && root == "/" && point.starts_with("/sys/")).then_some(point)
    })?;
    // `8:pids:/some/where`
    let within = own.lines().find_map(|line| {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        has(names).then_some(path)
    })?;
    Some(Path::new(point).join(within.trim_start_matches('/')))
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// A controller's groups, in the helper's hands.
pub(crate) struct Opened {
    controller: Controller,
    version: Version,
    folder: OwnedFd,
}

impl Opened {
    /// Those that can be opened.
    pub(crate) fn all(bases: &[Base]) -> Vec<Self> {
        let open = |base: &Base| {
            Some(Self {
                controller: base.controller,
                version: base.version,
                folder: open(&base.path).ok()?,
            })
        };
        bases.iter().filter_map(open).collect()
    }

    /// Removes the group of a call whose supervisor did not live to do so.
    pub(crate) fn bury(&self, name: &str) {
        if self.version == Version::One {
            cgroup::remove_in(&self.folder, name);
        }
    }
}

/// The groups of one slot.
pub(crate) struct CallLimits {
    held: Vec<Held>,
    /// What has to be written to, to be in them.
    joins: Vec<OwnedFd>,
    /// Groups of version 1, to be removed.
    made: Vec<OwnedFd>,
    name: String,
}

struct Held {
    controller: Controller,
    file: OwnedFd,
}

impl CallLimits {
    /// Makes them. What cannot be made is left out.
    pub(crate) fn make(all: &[Opened], second: Option<&OwnedFd>, name: &str) -> Self {
        let mut limits = Self {
            held: Vec::new(),
            joins: Vec::new(),
            made: Vec::new(),
            name: name.to_owned(),
        };
        for one in all {
            let _ = limits.add(one, second);
        }
        limits
    }

    fn add(&mut self, one: &Opened, second: Option<&OwnedFd>) -> io::Result<()> {
        let limit = |folder: &OwnedFd| -> io::Result<Held> {
            let flags = OFlags::RDWR | OFlags::CLOEXEC;
            let file = one.controller.file(one.version);
            Ok(Held {
                controller: one.controller,
                file: rustix::fs::openat(folder, file, flags, Mode::empty())?,
            })
        };
        if one.version == Version::Two {
            let folder = second.ok_or(io::ErrorKind::NotFound)?;
            self.held.push(limit(folder)?);
            return Ok(());
        }
        match rustix::fs::mkdirat(&one.folder, self.name.as_str(), Mode::from_raw_mode(0o755)) {
            // One with the same number was killed before it could clear up.
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(other) => return Err(other.into()),
        }
        self.made.push(one.folder.try_clone()?);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&one.folder, self.name.as_str(), flags, Mode::empty())?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let join = rustix::fs::openat(&folder, "cgroup.procs", flags, Mode::empty())?;
        self.held.push(limit(&folder)?);
        self.joins.push(join);
        Ok(())
    }

    /// Puts this process into them. From then on everything it starts is in them too.
    pub(crate) fn join(&self) -> io::Result<()> {
        for join in &self.joins {
            rustix::io::write(join, b"0")?;
        }
        Ok(())
    }

    /// Sets the usual limits, while there is no order yet; what is then in force.
    pub(crate) fn set_usual(&self) -> String {
        let _ = self.set(&Limits::default());
        self.observed()
    }

    /// Sets those of an order, if they are other ones; what is then in force.
    pub(crate) fn set_for(&self, limits: &Limits, usual: String) -> String {
        let default = Limits::default();
        if ALL.iter().all(|it| it.of(limits) == it.of(&default)) {
            return usual;
        }
        let _ = self.set(limits);
        self.observed()
    }

    fn set(&self, limits: &Limits) -> io::Result<()> {
        for held in &self.held {
            let value = held.controller.of(limits).to_string();
            rustix::io::pwrite(&held.file, value.as_bytes(), 0)?;
        }
        Ok(())
    }

    /// What the kernel says is in force, in words for the record.
    fn observed(&self) -> String {
        let all: Vec<String> = ALL
            .into_iter()
            .map(|controller| {
                let held = self.held.iter().find(|it| it.controller == controller);
                let name = controller.name();
                match held.and_then(|held| read(&held.file)) {
                    Some(limit) => format!("{name} {limit}"),
                    None => format!("{name} not limited"),
                }
            })
            .collect();
        all.join(", ")
    }

    /// Removes those of version 1; those of version 2 are removed with the call's own.
    pub(crate) fn remove(self) {
        drop((self.held, self.joins));
        for base in self.made {
            cgroup::remove_in(base, &self.name);
        }
    }
}

fn read(file: impl AsFd) -> Option<u64> {
    let mut bytes = [0; 32];
    let length = rustix::io::pread(file, &mut bytes, 0).ok()?;
    let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_that_has_the_controller_is_found() {
        let mounts = "30 29 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      31 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 30 0:36 / /sys/fs/cgroup/pids rw,nosuid - cgroup cgroup rw,pids\n\
                      33 30 0:37 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      34 30 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "9:name=systemd:/\n8:pids:/user/1\n4:memory:/docker/x\n0::/\n";
        let found = |controller| place(controller, mounts, own);
        assert_eq!(
            found(Controller::Pids),
            Some("/sys/fs/cgroup/pids/user/1".into())
        );
        // A part of the hierarchy, as in a container: where we are in it cannot be said.
        assert_eq!(found(Controller::Memory), None);
        assert_eq!(place(Controller::Pids, "", own), None);
        assert_eq!(place(Controller::Pids, mounts, "0::/\n"), None);
    }

    #[test]
    fn the_helper_understands_what_it_is_told() {
        for version in [Version::One, Version::Two] {
            let base = Base {
                controller: Controller::Memory,
                version,
                path: "/sys/fs/cgroup/a:b/palyra-1".into(),
            };
            assert_eq!(Base::of_word(&base.word()), Some(base));
        }
        for wrong in ["", "cpu:1:/x", "pids:3:/x", "pids"] {
            assert_eq!(Base::of_word(wrong.as_ref()), None, "{wrong}");
        }
    }
}
