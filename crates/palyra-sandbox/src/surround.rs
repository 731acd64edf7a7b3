//! The places that a call can reach, less the masked folders: granted piece by piece.
//!
//! Landlock only grants, and a grant on a folder reaches everything beneath. So each folder on the
//! way to a masked one is not granted itself but child by child, and the child that leads further
//! is looked into in turn. Links are left out: opening one is judged at its target, and its target
//! may be masked.
//!
//! The price, which is part of the contract: in the folders *on the way* a call can neither list
//! names nor make new ones.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use palyra_core::FileId;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::landlock::{Abi, Access, Ruleset};

/// How many handles are kept open between calls; beyond, they are opened for each call.
const MOST_HANDLES: usize = 512;

/// A place that is granted with everything beneath it but what is masked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Reach {
    pub(crate) path: PathBuf,
    pub(crate) access: Access,
}

impl Reach {
    pub(crate) fn new(path: impl Into<PathBuf>, access: Access) -> Self {
        let path = path.into();
        Self { path, access }
    }
}

/// Which folders are looked into and which paths are granted as a whole.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Around {
    pub(crate) looked_into: Vec<PathBuf>,
    pub(crate) granted: Vec<PathBuf>,
}

/// The pure part: what to grant below `root`, given what each folder on the way holds.
pub(crate) fn around(
    root: &Path,
    masked: &BTreeSet<PathBuf>,
    children: &mut impl FnMut(&Path) -> Vec<PathBuf>,
) -> Around {
    let mut plan = Around::default();
    grow(&mut plan, root, masked, children);
    plan
}

fn grow(
    plan: &mut Around,
    here: &Path,
    masked: &BTreeSet<PathBuf>,
    children: &mut impl FnMut(&Path) -> Vec<PathBuf>,
) {
    if masked.iter().any(|mask| here.starts_with(mask)) {
        return;
    }
    let on_the_way = masked.iter().any(|mask| mask.starts_with(here));
    if !on_the_way {
        plan.granted.push(here.to_owned());
        return;
    }
    plan.looked_into.push(here.to_owned());
    let mut next: BTreeSet<PathBuf> = children(here).into_iter().collect();
    // A folder that may be entered but not listed (`/home` with mode 711) still leads on.
    next.extend(masked.iter().filter_map(|mask| {
        let name = mask.strip_prefix(here).ok()?.components().next()?;
        Some(here.join(name))
    }));
    for child in next {
        grow(plan, &child, masked, children);
    }
}

/// A granted place: a handle, or its path when there are too many to keep open.
struct Place {
    path: PathBuf,
    handle: Option<OwnedFd>,
    is_folder: bool,
    access: Access,
}

/// What shows that a folder is still the one that was looked into, unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    modified: (i64, u64),
    changed: (i64, u64),
}

/// The places around the masked folders as they were found.
pub(crate) struct Surround {
    places: Vec<Place>,
    /// Which folder, or file, each root was.
    roots: Vec<(PathBuf, Option<(u64, u64)>)>,
    stamps: Vec<(PathBuf, Option<Stamp>)>,
    settled: bool,
}

impl Surround {
    /// Looks at the file system. Handles of places that `may_pin` says no to are not kept.
    pub(crate) fn scan(
        roots: &[Reach],
        masked: &BTreeSet<PathBuf>,
        may_pin: impl Fn(&Path) -> bool,
    ) -> io::Result<Self> {
        let mut stamps = Vec::new();
        let mut on_the_way = HashSet::new();
        let mut granted = Vec::new();
        for root in roots {
            let plan = around(&root.path, masked, &mut |folder| {
                // The stamp is taken first: what changes while we read shows up as a change.
                let found = stat(folder);
                on_the_way.extend(found.as_ref().map(identity));
                stamps.push((folder.to_owned(), found.as_ref().map(stamp)));
                list(folder)
            });
            granted.extend(plan.granted.into_iter().map(|path| (path, root.access)));
        }
        on_the_way.extend(
            masked
                .iter()
                .filter_map(|mask| stat(mask))
                .map(|it| identity(&it)),
        );
        // Handles are let go while scanning, not afterwards: a folder of thousands beside the
        // daemon's home must not use up the daemon's descriptors.
        let mut kept = 0;
        let mut places = Vec::new();
        for (path, access) in granted {
            let Some((handle, found)) = open(&path)? else {
                continue;
            };
            // The same folder under another name (a bind mount, a rename just now) is not granted
            // either.
            if on_the_way.contains(&identity(&found)) {
                continue;
            }
            let keep = kept < MOST_HANDLES && may_pin(&path);
            kept += usize::from(keep);
            places.push(Place {
                access,
                handle: keep.then_some(handle),
                is_folder: FileType::from_raw_mode(found.st_mode) == FileType::Directory,
                path,
            });
        }
        let settled = stamps
            .iter()
            .all(|(_, stamp)| stamp.as_ref().is_none_or(is_old));
        let which = |root: &Reach| (root.path.clone(), stat(&root.path).as_ref().map(identity));
        Ok(Self {
            places,
            roots: roots.iter().map(which).collect(),
            stamps,
            settled,
        })
    }

    /// Whether the file system still looks as it did.
    pub(crate) fn is_current(&self) -> bool {
        let same = |(path, then): &(PathBuf, Option<(u64, u64)>)| {
            stat(path).as_ref().map(identity) == *then
        };
        self.settled
            && self.roots.iter().all(same)
            && self
                .stamps
                .iter()
                .all(|(path, then)| stat(path).as_ref().map(stamp) == *then)
    }

    /// Whether the root of this path is this one.
    pub(crate) fn is(&self, path: &Path, id: FileId) -> bool {
        let mut roots = self.roots.iter();
        roots.any(|(root, found)| root == path && *found == Some((id.device, id.inode)))
    }

    /// A ruleset that grants it.
    pub(crate) fn ruleset(&self, abi: Abi) -> io::Result<Ruleset> {
        let ruleset = Ruleset::new(abi)?;
        for place in &self.places {
            let opened;
            let handle = match &place.handle {
                Some(handle) => handle,
                None => match open(&place.path)? {
                    Some((handle, _)) => {
                        opened = handle;
                        &opened
                    }
                    None => continue,
                },
            };
            ruleset.grant(handle.as_fd(), place.access, place.is_folder)?;
        }
        Ok(ruleset)
    }
}

/// A handle of what is at `path`, unless it is a link, is gone or may not be reached. Running out
/// of descriptors is an error: leaving things out for it would fail in a way nobody understands.
pub(crate) fn open(path: &Path) -> io::Result<Option<(OwnedFd, Stat)>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(handle) => handle,
        Err(full @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(full.into()),
        Err(_) => return Ok(None),
    };
    let Ok(found) = rustix::fs::fstat(&handle) else {
        return Ok(None);
    };
    let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
    Ok((!is_link).then_some((handle, found)))
}

fn stat(path: &Path) -> Option<Stat> {
    rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()
}

const fn identity(found: &Stat) -> (u64, u64) {
    (found.st_dev, found.st_ino)
}

pub(crate) const fn stamp(found: &Stat) -> Stamp {
    Stamp {
        device: found.st_dev,
        inode: found.st_ino,
        modified: (found.st_mtime, found.st_mtime_nsec),
        changed: (found.st_ctime, found.st_ctime_nsec),
    }
}

/// Whether a second change would get another time than this one. The kernel stamps with the last
/// tick; a name made within the same tick as the scan would go unnoticed for ever.
pub(crate) fn is_old(stamp: &Stamp) -> bool {
    const TICK: i64 = 20_000_000;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let nanos = |(seconds, nanos): (i64, i64)| seconds.saturating_mul(1_000_000_000) + nanos;
    let changed = (stamp.changed.0, i64::try_from(stamp.changed.1).unwrap_or(0));
    nanos((now.tv_sec, now.tv_nsec)).abs_diff(nanos(changed)) > TICK.unsigned_abs()
}

/// What is in a folder; nothing when it may not be listed.
fn list(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(all: &[&str]) -> Vec<PathBuf> {
        all.iter().map(PathBuf::from).collect()
    }

    fn plan(root: &str, masked: &[&str]) -> Around {
        let masked = paths(masked).into_iter().collect();
        around(
            Path::new(root),
            &masked,
            &mut |folder| match folder.to_str().unwrap() {
                "/" => paths(&["/bin", "/home", "/tmp"]),
                "/home" => paths(&["/home/u", "/home/v"]),
                "/home/u" => paths(&["/home/u/.palyra", "/home/u/.palyra2", "/home/u/work"]),
                other => panic!("{other} was looked into"),
            },
        )
    }

    #[test]
    fn everything_but_the_masked_folder_is_granted() {
        let plan = plan("/", &["/home/u/.palyra"]);
        assert_eq!(plan.looked_into, paths(&["/", "/home", "/home/u"]));
        let granted = [
            "/bin",
            "/home/u/.palyra2",
            "/home/u/work",
            "/home/v",
            "/tmp",
        ];
        assert_eq!(plan.granted, paths(&granted));
    }

    #[test]
    fn several_masks_one_inside_the_other() {
        let masks = ["/home/u/.palyra", "/home/u/.palyra/blobs", "/tmp"];
        let plan = plan("/", &masks);
        let granted = ["/bin", "/home/u/.palyra2", "/home/u/work", "/home/v"];
        assert_eq!(plan.granted, paths(&granted));
    }

    #[test]
    fn a_file_tool_gets_its_workspace_and_nothing_else() {
        let masks = ["/home/u/.palyra"];
        let plan_of = |root| plan(root, &masks).granted;
        assert_eq!(plan_of("/home/u/work"), paths(&["/home/u/work"]));
        assert_eq!(
            plan_of("/home/u"),
            paths(&["/home/u/.palyra2", "/home/u/work"])
        );
        assert_eq!(plan_of("/home/u/.palyra"), paths(&[]));
        assert_eq!(plan_of("/home/u/.palyra/blobs"), paths(&[]));
    }

    #[test]
    fn a_folder_that_cannot_be_listed_still_leads_on() {
        let masked = paths(&["/a/b/home"]).into_iter().collect();
        let plan = around(
            Path::new("/"),
            &masked,
            &mut |folder| match folder.to_str().unwrap() {
                "/a/b" => paths(&["/a/b/home", "/a/b/work"]),
                _ => Vec::new(),
            },
        );
        assert_eq!(plan.granted, paths(&["/a/b/work"]));
    }

    #[test]
    fn links_are_not_granted_and_changes_are_noticed() {
        let here = tempfile::tempdir().unwrap();
        let here = here.path().canonicalize().unwrap();
        for name in ["home", "work"] {
            std::fs::create_dir(here.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("home", here.join("link")).unwrap();
        let masked = BTreeSet::from([here.join("home")]);
        let names = |surround: &Surround| -> Vec<PathBuf> {
            surround
                .places
                .iter()
                .map(|place| place.path.clone())
                .collect()
        };

        let roots = [Reach::new(&here, Access::Full)];
        let scan = || Surround::scan(&roots, &masked, |_| true).unwrap();
        let first = scan();
        assert_eq!(names(&first), [here.join("work")]);
        assert!(
            !first.is_current(),
            "a folder changed just now is not trusted"
        );

        std::thread::sleep(std::time::Duration::from_millis(30));
        let second = scan();
        assert!(second.is_current());
        std::fs::create_dir(here.join("new")).unwrap();
        assert!(!second.is_current());
        assert_eq!(names(&scan()), [here.join("new"), here.join("work")]);
    }

    #[test]
    fn a_root_in_anothers_place_is_noticed() {
        let here = tempfile::tempdir().unwrap();
        let here = here.path().canonicalize().unwrap();
        let work = here.join("work");
        std::fs::create_dir(&work).unwrap();
        let roots = [Reach::new(&work, Access::Workspace)];
        let seen = Surround::scan(&roots, &BTreeSet::new(), |_| true).unwrap();
        std::fs::write(work.join("file"), "").unwrap();
        assert!(seen.is_current());
        std::fs::rename(&work, here.join("old")).unwrap();
        std::fs::create_dir(&work).unwrap();
        assert!(!seen.is_current());
    }
}
