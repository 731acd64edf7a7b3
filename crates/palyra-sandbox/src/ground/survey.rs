//! A walk through a workspace for names that matter, kept and brought up to date.
//!
//! Nothing is left out of the walk: a folder that nobody looks into is a place to move secrets to.
//! The first walk lists every folder. Later ones only look at the times of each: a folder's content
//! cannot change without its change time, and nobody can set that back. One stamped within the
//! clock's last tick is listed again.
//!
//! No link is followed on the way, so whoever swaps things meanwhile leads nobody out. What changes
//! after the look is found by the helper, which compares what it covers with what was seen here.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use palyra_core::FileId;
use rustix::fs::{AtFlags, FileType, OFlags};
use rustix::io::Errno;

use super::names::{self, KeyFile, Nature};
use super::root::{Root, entries_of};
use super::spot::Spot;
use crate::program;
use crate::surround::{self, Stamp};
use crate::wire::MOVED;

/// A workspace with more folders is refused: looking at each takes too long.
const MOST_FOLDERS: usize = 1_000_000;

/// How often everything is looked at while things move about.
const MOST_PASSES: usize = 24;

/// So many are looked at within a few milliseconds.
const MANY_FOLDERS: usize = 5_000;

/// Something in the workspace that calls do not get as they like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) at: Spot,
    pub(crate) id: FileId,
    pub(crate) what: What,
}

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Credentials, and variables for programs.
    Secret,
    /// A private key.
    Key,
    /// A folder that the daemon cannot look into, so nobody knows what is in it.
    Closed,
    /// Settings that make somebody outside run something.
    RunsLater,
    /// A folder of git's.
    GitFolder,
    /// The configuration of a repository.
    GitConfig,
    /// The hooks of a repository.
    GitHooks,
    /// Says where a repository is.
    GitPointer,
}

/// What is known of a workspace.
pub(crate) struct Survey {
    path: PathBuf,
    id: FileId,
    /// The daemon's own places inside: hidden as a whole.
    own: Vec<Spot>,
    folders: HashMap<Spot, Folder>,
    /// What links with such a name led to. It stays hidden while it is there: otherwise a call
    /// would remove the link, and the next one read what it led to.
    targets: HashMap<Spot, (FileId, What)>,
    doubt: Doubt,
    /// Something that matters went and was not found again yet, or nobody knows what there was.
    searching: bool,
}

/// Whether something may have been moved past us: from where it was not yet looked for to where it
/// was looked for already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Doubt {
    None,
    /// A folder that nobody had looked into is gone.
    Unknown,
    /// Something that matters is gone, or a folder with it.
    Known,
}

#[derive(Default)]
struct Folder {
    stamp: Option<Stamp>,
    settled: bool,
    inside: Vec<Box<[u8]>>,
    found: Vec<Found>,
    links: Vec<(Spot, What)>,
    keys: Vec<Key>,
    /// Something that matters was taken away while it was listed.
    missed: bool,
}

/// A file whose content says what it is.
struct Key {
    at: Spot,
    kind: KeyFile,
    /// None when it is gone.
    id: Option<FileId>,
    stamp: Option<Stamp>,
    secret: bool,
}

impl Survey {
    /// Nothing is known yet.
    pub(crate) fn new(path: &Path, id: FileId, own: Vec<Spot>) -> Self {
        Self {
            path: path.to_owned(),
            id,
            own,
            folders: HashMap::new(),
            targets: HashMap::new(),
            doubt: Doubt::None,
            searching: true,
        }
    }

    /// Whether bringing it up to date takes no time to speak of.
    pub(crate) fn is_quick(&self) -> bool {
        (1..MANY_FOLDERS).contains(&self.folders.len())
    }

    /// Brings it up to date with the file system, and gives a handle of the workspace. None is kept
    /// in between: it would keep a disk from being unmounted.
    pub(crate) fn refresh(&mut self) -> io::Result<Root> {
        let root = Root::of(&self.path, self.id)?;
        if self.folders.is_empty() {
            self.walk(&root, Spot::default())?;
        }
        // What is moved while we look may be seen nowhere. Builds move folders all the time, so what
        // counts is only what is gone: it is looked for again until nothing is missed.
        for pass in 0.. {
            self.doubt = Doubt::None;
            let changed = self.pass(&root, pass == 0)?;
            match self.doubt {
                // What is looked for can be nowhere else only when everything stood still: otherwise
                // it may have gone from what changed to what was looked at before.
                Doubt::None if !(self.searching && changed) => {
                    self.searching = false;
                    break;
                }
                // Temporary folders come and go: in one that is new nothing was lost.
                Doubt::Unknown if !self.searching => break,
                Doubt::None | Doubt::Unknown | Doubt::Known if pass >= MOST_PASSES => {
                    return Err(io::Error::other(MOVED));
                }
                Doubt::None | Doubt::Unknown => {}
                Doubt::Known => self.searching = true,
            }
        }
        for folder in self.folders.values_mut() {
            for key in &mut folder.keys {
                key.look(&root);
            }
        }
        self.follow_links(&root);
        Ok(root)
    }

    /// Looks at every folder once, and lists those that changed; whether there were any.
    fn pass(&mut self, root: &Root, first: bool) -> io::Result<bool> {
        let is_dirty = |at: &Spot, folder: &Folder| {
            (first && !folder.settled) || folder.stamp.is_none() || root.stamp(at) != folder.stamp
        };
        let mut dirty: Vec<Spot> = self
            .folders
            .iter()
            .filter(|(at, folder)| is_dirty(at, folder))
            .map(|(at, _)| at.clone())
            .collect();
        // What is above first: it may no longer lead to what is below.
        dirty.sort();
        let changed = !dirty.is_empty();
        for at in dirty {
            if self.folders.contains_key(&at) {
                self.walk(root, at)?;
            }
        }
        Ok(changed)
    }

    /// Everything that was found, in no order.
    pub(crate) fn found(&self) -> impl Iterator<Item = Found> + '_ {
        let listed = self.folders.values().flat_map(|folder| {
            let keys = folder.keys.iter().filter(|key| key.secret);
            let keys = keys.filter_map(|key| {
                let (at, id, what) = (key.at.clone(), key.id?, What::Key);
                Some(Found { at, id, what })
            });
            folder.found.iter().cloned().chain(keys)
        });
        let targets = self.targets.iter().map(|(at, (id, what))| Found {
            at: at.clone(),
            id: *id,
            what: *what,
        });
        listed.chain(targets)
    }

    /// Whether something was reached through a link: nobody would find it if its folder were moved.
    pub(crate) fn is_target(&self, at: &Spot) -> bool {
        self.targets.contains_key(at)
    }

    /// Lists a folder, and every folder below that is new.
    fn walk(&mut self, root: &Root, at: Spot) -> io::Result<()> {
        let mut todo = vec![at];
        while let Some(at) = todo.pop() {
            if self.folders.len() >= MOST_FOLDERS {
                return Err(io::Error::other(format!(
                    "the workspace has more than {MOST_FOLDERS} folders; work on a part of it"
                )));
            }
            let Some(listed) = self.list(root, &at)? else {
                self.forget(&at);
                self.doubt = self.doubt.max(Doubt::Unknown);
                // Its folder was listed with it: that has changed since.
                let above = at.parent().and_then(|above| self.folders.get_mut(&above));
                if let Some(above) = above {
                    above.stamp = None;
                }
                continue;
            };
            let before = self.folders.remove(&at).unwrap_or_default();
            if listed.missed || before.lost_to(&listed) {
                self.doubt = Doubt::Known;
            }
            for gone in before
                .inside
                .iter()
                .filter(|name| !listed.inside.contains(name))
            {
                self.forget(&at.join(gone));
            }
            let new = listed.inside.iter().map(|name| at.join(name));
            todo.extend(new.filter(|inside| !self.folders.contains_key(inside)));
            self.folders.insert(at, listed);
        }
        Ok(())
    }

    fn forget(&mut self, at: &Spot) {
        let mut todo = vec![at.clone()];
        while let Some(at) = todo.pop() {
            if let Some(folder) = self.folders.remove(&at) {
                if folder.matters() {
                    self.doubt = Doubt::Known;
                }
                todo.extend(folder.inside.iter().map(|name| at.join(name)));
            }
        }
    }

    /// What is in a folder; none when it is gone.
    fn list(&self, root: &Root, at: &Spot) -> io::Result<Option<Folder>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let handle = match root.open(at, flags) {
            Ok(handle) => handle,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(Errno::ACCESS | Errno::PERM) => return Ok(unlisted(root, at)),
            Err(other) => return Err(other.into()),
        };
        let found = rustix::fs::fstat(&handle)?;
        let stamp = surround::stamp(&found);
        let mut folder = Folder {
            settled: surround::is_old(&stamp),
            stamp: Some(stamp),
            ..Folder::default()
        };
        if is_the_kernels(&handle) {
            return Ok(Some(folder));
        }
        let entries = entries_of(&handle)?;
        let is_git = is_git_folder(at.name(), &entries);
        if is_git && at.name().eq_ignore_ascii_case(b".git") {
            let id = program::id_of(&found);
            let (at, what) = (at.clone(), What::GitFolder);
            folder.found.push(Found { at, id, what });
        }
        let name_here = self.name_of(at);
        for (name, kind) in entries {
            let spot = at.join(&name);
            // Not every file system says.
            let kind = match kind == FileType::Unknown {
                true => root.kind(&spot),
                false => Some(kind),
            };
            match kind {
                Some(FileType::Directory) => {
                    let what = match names::of_folder(&name) {
                        Some(_) => Some(What::RunsLater),
                        None if is_git && name == *b"hooks" => Some(What::GitHooks),
                        None => None,
                    };
                    note(&handle, &mut folder, &spot, what);
                    if !self.own.contains(&spot) {
                        folder.inside.push(name.into());
                    }
                }
                Some(FileType::Symlink) => {
                    let what = what_of_file(&name_here, &name, is_git);
                    let what = what.or_else(|| names::of_folder(&name).map(|_| What::RunsLater));
                    folder.links.extend(what.map(|what| (spot, what)));
                }
                Some(FileType::RegularFile) => {
                    if let Some(Nature::MayBeKey(kind)) = names::of_file(&name_here, &name) {
                        folder.keys.push(Key::unread(spot, kind));
                        continue;
                    }
                    note(
                        &handle,
                        &mut folder,
                        &spot,
                        what_of_file(&name_here, &name, is_git),
                    );
                }
                Some(_) | None => {}
            }
        }
        Ok(Some(folder))
    }

    /// The name of a folder; the workspace's own is not in its path.
    fn name_of(&self, at: &Spot) -> Vec<u8> {
        match at.name() {
            b"" => {
                let name = self.path.file_name().unwrap_or_default();
                name.as_encoded_bytes().to_vec()
            }
            name => name.to_vec(),
        }
    }

    /// Where links with such names lead, if that is inside. (What is outside is not in a cage.)
    fn follow_links(&mut self, root: &Root) {
        self.targets.retain(|at, (id, _)| root.id(at) == Some(*id));
        let links = self.folders.values().flat_map(|folder| &folder.links);
        for (link, what) in links {
            let real = root.path().join(link.path()).canonicalize();
            let beneath = real.ok().and_then(|real| {
                let beneath = real.strip_prefix(root.path()).ok()?;
                Spot::of(beneath)
            });
            if let Some(at) = beneath.filter(|at| !at.bytes().is_empty())
                && !self.own.iter().any(|own| at.is_within(own))
                && let Some(id) = root.id(&at)
            {
                self.targets.insert(at, (id, *what));
            }
        }
    }
}

/// A folder that cannot be looked into may become one that can, by whoever owns it.
fn unlisted(root: &Root, at: &Spot) -> Option<Folder> {
    let found = root.stat(at)?;
    let id = program::id_of(&found);
    let (spot, what) = (at.clone(), What::Closed);
    Some(Folder {
        stamp: Some(surround::stamp(&found)),
        settled: true,
        found: vec![Found { at: spot, id, what }],
        ..Folder::default()
    })
}

/// By the handle of its folder, which may be elsewhere by now.
fn note(handle: &OwnedFd, folder: &mut Folder, at: &Spot, what: Option<What>) {
    let Some(what) = what else { return };
    match rustix::fs::statat(handle, at.name(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => folder.found.push(Found {
            at: at.clone(),
            id: program::id_of(&found),
            what,
        }),
        Err(_) => folder.missed = true,
    }
}

impl Folder {
    /// Whether something in it was found.
    fn matters(&self) -> bool {
        !(self.found.is_empty() && self.keys.is_empty() && self.links.is_empty())
    }

    /// Whether something that was found in it is no longer there.
    fn lost_to(&self, now: &Self) -> bool {
        let spots = |folder: &Self| -> HashSet<Spot> {
            let found = folder.found.iter().map(|found| &found.at);
            let keys = folder.keys.iter().map(|key| &key.at);
            let links = folder.links.iter().map(|(at, _)| at);
            found.chain(keys).chain(links).cloned().collect()
        };
        self.matters() && !spots(self).is_subset(&spots(now))
    }
}

impl Key {
    const fn unread(at: Spot, kind: KeyFile) -> Self {
        Self {
            at,
            kind,
            id: None,
            stamp: None,
            secret: true,
        }
    }

    /// Reads it again if it changed.
    fn look(&mut self, root: &Root) {
        let found = root.stat(&self.at);
        self.id = found.as_ref().map(program::id_of);
        let stamp = found.as_ref().map(surround::stamp);
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        let content = root.read(&self.at);
        self.secret = content.is_none_or(|content| self.kind.is_secret(&content));
        // What was written within the last tick may be written again within it.
        self.stamp = stamp.filter(surround::is_old);
    }
}

fn what_of_file(folder: &[u8], name: &[u8], is_git: bool) -> Option<What> {
    match names::of_file(folder, name) {
        Some(Nature::Secret) => return Some(What::Secret),
        // A link to one; a file is read first.
        Some(Nature::Key | Nature::MayBeKey(_)) => return Some(What::Key),
        Some(Nature::RunsLater) => return Some(What::RunsLater),
        None => {}
    }
    match name {
        b".git" => Some(What::GitPointer),
        b"config" | b"config.worktree" if is_git => Some(What::GitConfig),
        b"commondir" | b"gitdir" if is_git => Some(What::GitPointer),
        // Instead of a folder: git would follow a file nowhere, but a link it does.
        b"hooks" if is_git => Some(What::GitHooks),
        _ => None,
    }
}

/// Whether git would take a folder for a repository, or for the part of one that worktrees share.
fn is_git_folder(name: &[u8], entries: &[(Vec<u8>, FileType)]) -> bool {
    let has = |wanted: &[u8]| entries.iter().any(|(name, _)| name == wanted);
    name.eq_ignore_ascii_case(b".git")
        || (has(b"objects") && has(b"refs") && (has(b"HEAD") || has(b"config")))
        || (has(b"HEAD") && has(b"commondir"))
}

/// Whether this is a view of the kernel's, mounted in a workspace (a chroot's `/proc`): no files.
fn is_the_kernels(handle: &OwnedFd) -> bool {
    const VIEWS: [u64; 5] = [0x9fa0, 0x6265_6572, 0x6367_7270, 0x0027_e0eb, 0x1cd1];
    rustix::fs::fstatfs(handle)
        .is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| VIEWS.contains(&kind)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::symlink;

    use super::*;

    struct House(tempfile::TempDir);

    impl House {
        fn new(files: &[&str]) -> Self {
            let house = Self(tempfile::tempdir().unwrap());
            files.iter().for_each(|file| house.write(file, ""));
            house
        }

        fn path(&self) -> PathBuf {
            self.0.path().canonicalize().unwrap()
        }

        fn write(&self, file: &str, content: &str) {
            let path = self.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }

        fn survey(&self) -> Survey {
            let id = program::id_of(&rustix::fs::stat(self.path()).unwrap());
            Survey::new(&self.path(), id, Vec::new())
        }
    }

    fn seen(survey: &mut Survey) -> BTreeMap<String, What> {
        survey.refresh().unwrap();
        let found = survey.found();
        found
            .map(|found| (found.at.to_string(), found.what))
            .collect()
    }

    fn expected(all: &[(&str, What)]) -> BTreeMap<String, What> {
        all.iter()
            .map(|(at, what)| ((*at).to_owned(), *what))
            .collect()
    }

    #[test]
    fn secrets_and_what_runs_later_are_found_everywhere() {
        let house = House::new(&[
            ".env",
            ".env.example",
            "a/b/c/.npmrc",
            "a/.vscode/settings.json",
            ".bashrc",
            "node_modules/x/.env",
            ".git/objects/ab/.env",
        ]);
        let all = [
            (".env", What::Secret),
            ("a/b/c/.npmrc", What::Secret),
            ("a/.vscode", What::RunsLater),
            (".bashrc", What::RunsLater),
            ("node_modules/x/.env", What::Secret),
            (".git/objects/ab/.env", What::Secret),
            (".git", What::GitFolder),
        ];
        assert_eq!(seen(&mut house.survey()), expected(&all));
    }

    #[test]
    fn repositories_are_known_by_what_is_in_them() {
        let house = House::new(&[
            ".git/HEAD",
            ".git/config",
            ".git/hooks/pre-commit.sample",
            ".git/modules/sub/HEAD",
            ".git/modules/sub/config",
            ".git/modules/sub/objects/x",
            ".git/modules/sub/refs/x",
            ".git/worktrees/w/HEAD",
            ".git/worktrees/w/commondir",
            ".git/worktrees/w/gitdir",
            "w/.git",
            "bare/HEAD",
            "bare/config",
            "bare/objects/x",
            "bare/refs/x",
            "bare/hooks/x",
            "src/config",
            "src/HEAD",
        ]);
        let all = [
            (".git", What::GitFolder),
            (".git/config", What::GitConfig),
            (".git/hooks", What::GitHooks),
            (".git/modules/sub/config", What::GitConfig),
            (".git/worktrees/w/commondir", What::GitPointer),
            (".git/worktrees/w/gitdir", What::GitPointer),
            ("w/.git", What::GitPointer),
            ("bare/config", What::GitConfig),
            ("bare/hooks", What::GitHooks),
        ];
        assert_eq!(seen(&mut house.survey()), expected(&all));
    }

    #[test]
    fn changes_are_seen_wherever_they_are() {
        let house = House::new(&["a/b/x", "c/x", ".env"]);
        let mut survey = house.survey();
        assert_eq!(seen(&mut survey).len(), 1);
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert_eq!(seen(&mut survey).len(), 1);

        house.write("a/b/.env", "");
        std::fs::rename(house.path().join("c"), house.path().join("d")).unwrap();
        house.write("d/e/.env", "");
        let all = [
            (".env", What::Secret),
            ("a/b/.env", What::Secret),
            ("d/e/.env", What::Secret),
        ];
        assert_eq!(seen(&mut survey), expected(&all));

        // A folder with one in it moves: it is found where it went, and nowhere else.
        std::fs::rename(house.path().join("a"), house.path().join("d/a")).unwrap();
        std::fs::remove_file(house.path().join(".env")).unwrap();
        let all = [("d/a/b/.env", What::Secret), ("d/e/.env", What::Secret)];
        assert_eq!(seen(&mut survey), expected(&all));
    }

    #[test]
    fn a_time_that_is_set_back_hides_nothing() {
        let house = House::new(&["a/x"]);
        let mut survey = house.survey();
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(seen(&mut survey).is_empty());
        let before = std::fs::metadata(house.path().join("a")).unwrap();
        house.write("a/.env", "");
        let folder = std::fs::File::open(house.path().join("a")).unwrap();
        folder.set_modified(before.modified().unwrap()).unwrap();
        assert_eq!(seen(&mut survey), expected(&[("a/.env", What::Secret)]));
    }

    /// Whatever is moved meanwhile: a look that succeeds has seen it.
    #[test]
    fn what_is_moved_about_while_we_look_is_not_missed() {
        let house = House::new(&["a/.env", "x/file"]);
        let mut survey = house.survey();
        let (from, to) = (house.path().join("a"), house.path().join("x/b"));
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::fs::rename(&from, &to).unwrap();
                    std::fs::rename(&to, &from).unwrap();
                    std::thread::sleep(std::time::Duration::from_micros(50));
                }
            });
            let looks: Vec<usize> = (0..300)
                .filter_map(|_| survey.refresh().ok().map(|_| survey.found().count()))
                .collect();
            // Before anything is said about them: a panic here would wait for the other for ever.
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(!looks.is_empty());
            // It may be found where it was as well: the helper compares before it covers anything.
            assert!(looks.iter().all(|found| *found >= 1), "{looks:?}");
        });
    }

    #[test]
    fn a_key_is_known_by_its_content_also_when_that_changes() {
        let house = House::new(&[]);
        house.write("ca.pem", "-----BEGIN CERTIFICATE-----\n");
        let mut survey = house.survey();
        assert!(seen(&mut survey).is_empty());
        // In place: its folder does not change.
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(seen(&mut survey).is_empty());
        house.write("ca.pem", "-----BEGIN PRIVATE KEY-----\n");
        assert_eq!(seen(&mut survey), expected(&[("ca.pem", What::Key)]));
    }

    #[test]
    fn what_a_link_leads_to_is_hidden_and_stays_so_without_the_link() {
        let house = House::new(&["real/settings.txt", "outside"]);
        symlink("real/settings.txt", house.path().join(".env")).unwrap();
        symlink("/etc/passwd", house.path().join(".env.out")).unwrap();
        symlink("nowhere", house.path().join(".env.gone")).unwrap();
        symlink(".env.round", house.path().join(".env.round")).unwrap();
        let mut survey = house.survey();
        let all = [("real/settings.txt", What::Secret)];
        assert_eq!(seen(&mut survey), expected(&all));
        std::fs::remove_file(house.path().join(".env")).unwrap();
        assert_eq!(seen(&mut survey), expected(&all));
        house.write("real/other", "");
        std::fs::rename(
            house.path().join("real/other"),
            house.path().join("real/settings.txt"),
        )
        .unwrap();
        assert!(seen(&mut survey).is_empty(), "another file is no target");
    }
}
