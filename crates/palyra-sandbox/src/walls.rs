//! Rulesets for calls: what was found out about the file system is kept, and looked at again
//! before it is used.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use palyra_core::FileId;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::landlock::{Abi, Access};
use crate::masks::{Mount, Places};
use crate::surround::{Reach, Surround};

/// How many different lists of masked folders are remembered; there is hardly ever a second.
const MOST_KEPT: usize = 16;

/// Where rulesets come from.
pub(crate) struct Walls {
    abi: Abi,
    /// Masked in every call.
    masked: Vec<PathBuf>,
    kept: Mutex<Kept>,
}

struct Kept {
    mounts: MountTable,
    /// The table as it was last read.
    table: Option<Arc<Vec<Mount>>>,
    views: HashMap<(BTreeSet<PathBuf>, Vec<Reach>), Arc<View>>,
}

/// The machine as calls with certain masks see it.
pub(crate) struct View {
    /// Every place that has to stay hidden.
    pub(crate) places: BTreeSet<PathBuf>,
    around: Surround,
}

/// What the self-test needs to know, and the ruleset it tests.
pub(crate) struct Wall {
    pub(crate) ruleset: OwnedFd,
    pub(crate) masked: Vec<PathBuf>,
}

impl Walls {
    pub(crate) fn new(abi: Abi, masked: Vec<PathBuf>) -> io::Result<Self> {
        let kept = Kept {
            mounts: MountTable::open()?,
            table: None,
            views: HashMap::new(),
        };
        Ok(Self {
            abi,
            masked,
            kept: Mutex::new(kept),
        })
    }

    pub(crate) const fn abi(&self) -> Abi {
        self.abi
    }

    /// The current view of these places, with these masks besides the ones that always hold.
    pub(crate) fn view(&self, masked: &[PathBuf], roots: &[Reach]) -> io::Result<Arc<View>> {
        let all: BTreeSet<PathBuf> = self.masked.iter().chain(masked).cloned().collect();
        let mut kept = self
            .kept
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mounts = kept.current_mounts()?;
        let key = (all, roots.to_vec());
        if let Some(view) = kept.views.get(&key)
            && view.around.is_current()
        {
            return Ok(Arc::clone(view));
        }
        let places = Places::of(&key.0, &mounts)?;
        let around = Surround::scan(roots, &places.all, |path| places.may_pin(path, &mounts))?;
        let view = Arc::new(View {
            places: places.all,
            around,
        });
        if kept.views.len() >= MOST_KEPT {
            kept.views.clear();
        }
        kept.views.insert(key, Arc::clone(&view));
        Ok(view)
    }

    /// Every place that has to stay hidden with these masks besides the ones that always hold.
    pub(crate) fn places(&self, masked: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
        let all: BTreeSet<PathBuf> = self.masked.iter().chain(masked).cloned().collect();
        let mounts = {
            let mut kept = self
                .kept
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            kept.current_mounts()?
        };
        Ok(Places::of(&all, &mounts)?.all.into_iter().collect())
    }

    /// The wall of a process: what it can reach around the masked folders, and its temporary folder.
    pub(crate) fn for_process(&self, view: &View, tmp: impl AsFd) -> io::Result<Wall> {
        let ruleset = view.around.ruleset(self.abi)?;
        ruleset.grant(tmp, Access::Full, true)?;
        Ok(Wall {
            ruleset: ruleset.into_fd(),
            masked: view.places.iter().cloned().collect(),
        })
    }

    /// The wall of a file tool: its workspace, around the masked folders, and nothing else.
    pub(crate) fn for_files(&self, masked: Vec<PathBuf>, workspace: Reach) -> io::Result<Wall> {
        let places = masked.iter().cloned().collect();
        let around = Surround::scan(&[workspace], &places, |_| true)?;
        Ok(Wall {
            ruleset: around.ruleset(self.abi)?.into_fd(),
            masked,
        })
    }
}

impl Kept {
    /// The table of mounts as it is now. What was found out with another one is forgotten.
    fn current_mounts(&mut self) -> io::Result<Arc<Vec<Mount>>> {
        if self.mounts.changed()? {
            self.views.clear();
            self.table = None;
        }
        match &self.table {
            Some(table) => Ok(Arc::clone(table)),
            None => {
                let table = Arc::new(self.mounts.read()?);
                self.table = Some(Arc::clone(&table));
                Ok(table)
            }
        }
    }
}

impl View {
    /// Whether what can be reached by this path is this folder.
    pub(crate) fn reaches(&self, path: &Path, id: FileId) -> bool {
        self.around.is(path, id)
    }

    /// Whether a canonical path is a masked folder or inside one.
    pub(crate) fn hides(&self, path: &Path) -> bool {
        self.places.iter().any(|place| path.starts_with(place))
    }
}

/// The table of mounts, which says when it has changed.
pub(crate) struct MountTable(File);

impl MountTable {
    pub(crate) fn open() -> io::Result<Self> {
        File::open("/proc/self/mountinfo").map(Self)
    }

    /// Whether something was mounted or unmounted since the last question.
    fn changed(&self) -> io::Result<bool> {
        let mut watched = [PollFd::new(&self.0, PollFlags::PRI)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut watched, Some(&now))?;
        let [table] = watched;
        Ok(table.revents().intersects(PollFlags::PRI | PollFlags::ERR))
    }

    pub(crate) fn read(&self) -> io::Result<Vec<Mount>> {
        // Another description of the same file: the watched one keeps its position and its memory
        // of what it has seen.
        let mut table = Vec::new();
        File::open("/proc/self/mountinfo")?.read_to_end(&mut table)?;
        Ok(Mount::parse_all(&table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_kept_until_something_changes() {
        let here = tempfile::tempdir().unwrap();
        let here = here.path().canonicalize().unwrap();
        let home = here.join("a/home");
        std::fs::create_dir_all(&home).unwrap();
        let walls = Walls::new(Abi::from_number(7), vec![home.clone()]).unwrap();
        let roots = [Reach::new(&here, Access::Full)];
        let view = || walls.view(&[], &roots).unwrap();

        let kept = (0..50).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(30));
            Arc::ptr_eq(&view(), &view())
        });
        assert!(kept);
        let before = view();
        std::fs::create_dir(here.join("a/new")).unwrap();
        assert!(!Arc::ptr_eq(&before, &view()));
        assert!(before.hides(&home.join("x")));
        assert!(!before.hides(&here.join("a/new")));
    }

    #[test]
    fn masks_of_the_plan_come_on_top() {
        let walls = Walls::new(Abi::from_number(7), vec!["/nowhere/one".into()]).unwrap();
        let view = walls.view(&["/nowhere/two".into()], &[]).unwrap();
        assert!(view.hides(Path::new("/nowhere/one/x")) && view.hides(Path::new("/nowhere/two")));
    }
}
