//! Builds what a cage's plan says: mounts, put together in an empty folder that becomes the root.
//!
//! All by handles (`open_tree`, `move_mount`): a path is looked up once, without following links,
//! and what was found is what is mounted, whoever renames things meanwhile. One file system in
//! memory holds the root and every temporary folder; each is a mount of its own, so the root can be
//! read-only while they are not.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path};

use palyra_core::RunErrorKind;
use palyra_core::plan::FileId;
use rustix::fs::{CWD, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use super::code;
use super::target::{Refusal, changed};
use crate::doors::LaidFile;
use crate::ground::policy::{Guard, Hold};
use crate::program;
use crate::sys::{self, MountAttr};
use crate::tier_c::cage::{Cage, Step};
use crate::tier_c::copies::CodeCopy;
use crate::wire::MOVED;

const RDONLY: u64 = 0x1;
const NOSUID: u64 = 0x2;
const NODEV: u64 = 0x4;
const IDMAP: u64 = 0x10_0000;
const PRIVATE: u64 = 1 << 18;

/// What is in the file system in memory, beside the folders of the plan.
const ROOT: &str = "root";
const EMPTY_FOLDER: &str = "empty";
const EMPTY_FILE: &str = "nothing";

fn wall(error: impl std::fmt::Display, what: &str) -> Refusal {
    Refusal::degraded(what, error)
}

/// Cuts this process's view of the file system off from everybody else's.
pub(super) fn cut_off() -> Result<(), Refusal> {
    let attr = MountAttr {
        propagation: PRIVATE,
        ..MountAttr::default()
    };
    handle_of(Path::new("/"))
        .map_err(io::Error::from)
        .and_then(|root| sys::mount_setattr(root.as_fd(), true, &attr))
        .map_err(|error| wall(error, "the mount namespace"))
}

/// The processes of this namespace, as a file system that is not mounted anywhere yet.
pub(super) fn processes(full: bool) -> Result<OwnedFd, Refusal> {
    let options: &[(&str, &str)] = if full { &[] } else { &[("subset", "pid")] };
    let attr = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    new("proc", options, attr).map_err(|error| wall(error, "/proc"))
}

/// The workspace, as a tree that is not mounted anywhere yet: the folder that was decided about.
pub(super) fn workspace(path: &Path, decided: FileId) -> Result<OwnedFd, Refusal> {
    let cannot = |error: io::Error| {
        let message = format!("the workspace `{}`: {error}", path.display());
        Refusal::new(RunErrorKind::InvalidInput, message)
    };
    let folder = program::open_folder(path).map_err(cannot)?;
    let found = rustix::fs::fstat(&folder).map_err(|error| cannot(error.into()))?;
    if program::id_of(&found) != decided {
        return Err(changed("the workspace", path));
    }
    tree(&folder).map_err(|error| wall(error, "the workspace"))
}

/// Shows what belongs to one uid as belonging to another, as the user namespace says.
pub(super) fn map_ids(tree: &OwnedFd, userns: &OwnedFd) -> io::Result<()> {
    let attr = MountAttr {
        set: IDMAP,
        userns: u64::from(userns.as_raw_fd().unsigned_abs()),
        ..MountAttr::default()
    };
    sys::mount_setattr(tree.as_fd(), true, &attr)
}

/// What is put into the cage besides the plan.
pub(super) struct Parts {
    pub(super) workspace: OwnedFd,
    pub(super) processes: OwnedFd,
    /// To whom the folders in memory belong, if not to this process.
    pub(super) owner: Option<(u32, u32)>,
}

/// Builds it and makes it the root of this mount namespace.
pub(super) fn build(cage: &Cage, parts: Parts, unguarded: bool) -> Result<(), Refusal> {
    let Parts {
        workspace,
        processes,
        owner,
    } = parts;
    let (mut workspace, mut processes) = (Some(workspace), Some(processes));
    // Everything that comes from outside is fetched before anything is covered.
    let mut fetched = Vec::with_capacity(cage.steps.len());
    for step in &cage.steps {
        fetched.push(fetch(step, &mut workspace, &mut processes)?);
    }
    // What is copied takes nothing from the call's own folders in memory.
    let copied = cage.code().fold(0, |sum: u64, copy| {
        sum.saturating_add(copy.size.next_multiple_of(4_096))
    });
    let laid = cage.laid().fold(0, |sum: u64, file| {
        let size = u64::try_from(file.text.len()).unwrap_or(u64::MAX);
        sum.saturating_add(size.next_multiple_of(4_096))
    });
    let bytes = cage.scratch.saturating_add(copied).saturating_add(laid);
    let memory = Memory::make(bytes, owner).map_err(|error| wall(error, "the root"))?;
    for (step, tree) in cage.steps.iter().zip(fetched) {
        if !(unguarded && matches!(step, Step::Guard(_))) {
            memory.put(step, tree)?;
        }
    }
    memory
        .become_root()
        .map_err(|error| wall(error, "the root"))
}

/// What a step needs from outside. Something that is for reading and not there is left out.
fn fetch(
    step: &Step,
    workspace: &mut Option<OwnedFd>,
    processes: &mut Option<OwnedFd>,
) -> Result<Option<OwnedFd>, Refusal> {
    let named = |path: &Path, error: io::Error| wall(error, &path.display().to_string());
    match step {
        Step::Read { at } => match handle_of(at) {
            Ok(handle) => Ok(Some(closed(&handle).map_err(|error| named(at, error))?)),
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
            Err(error) => Err(named(at, error.into())),
        },
        Step::Device { at } => {
            let device = handle_of(at).map_err(|error| named(at, error.into()))?;
            let tree = tree(&device).map_err(|error| named(at, error))?;
            let attr = MountAttr {
                set: NOSUID,
                ..MountAttr::default()
            };
            sys::mount_setattr(tree.as_fd(), false, &attr).map_err(|error| named(at, error))?;
            Ok(Some(tree))
        }
        Step::Workspace { at, writable, .. } => {
            let tree = workspace.take();
            if let Some(tree) = &tree {
                let attr = MountAttr {
                    set: NOSUID | NODEV | if *writable { 0 } else { RDONLY },
                    ..MountAttr::default()
                };
                sys::mount_setattr(tree.as_fd(), true, &attr).map_err(|error| named(at, error))?;
            }
            Ok(tree)
        }
        Step::Proc { .. } => Ok(processes.take()),
        Step::Terminals => {
            let options = [("ptmxmode", "0666"), ("mode", "0620"), ("max", "256")];
            let attr = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            let terminals = new("devpts", &options, attr);
            Ok(Some(terminals.map_err(|error| wall(error, "/dev/pts"))?))
        }
        Step::Link { .. }
        | Step::Scratch { .. }
        | Step::Laid(_)
        | Step::Pin { .. }
        | Step::Cover { .. }
        | Step::Code(_)
        | Step::Guard(_) => Ok(None),
    }
}

/// A handle of what is at a path that holds no links.
fn handle_of(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let strict = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), strict)
}

/// A copy of the mounts from here on down, which nobody else sees.
fn tree(handle: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(handle, "", flags)?)
}

/// The same, for reading only.
fn closed(handle: &OwnedFd) -> io::Result<OwnedFd> {
    let tree = tree(handle)?;
    let attr = MountAttr {
        set: RDONLY | NOSUID | NODEV,
        ..MountAttr::default()
    };
    sys::mount_setattr(tree.as_fd(), true, &attr)?;
    Ok(tree)
}

/// A new file system.
fn new(kind: &str, options: &[(&str, &str)], attr: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *name, *value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    Ok(rustix::mount::fsmount(context.as_fd(), flags, attr)?)
}

/// Puts a tree where `place` is a handle of.
fn attach(tree: &OwnedFd, place: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, "", place, "", flags)?)
}

/// The file system in memory, with the root that is being built in it.
struct Memory {
    all: OwnedFd,
    root: OwnedFd,
    owner: Option<(u32, u32)>,
    next: std::cell::Cell<u32>,
    /// The workspace, once it is there.
    workspace: std::cell::OnceCell<OwnedFd>,
    /// Whether the empty file and folder can no longer be written to.
    closed: std::cell::Cell<bool>,
}

impl Memory {
    fn make(bytes: u64, owner: Option<(u32, u32)>) -> io::Result<Self> {
        // Names cost memory as well: as many as there are pages, within reason.
        let names = (bytes / 4_096).clamp(4_096, 1 << 20).to_string();
        let bytes = bytes.to_string();
        let options = [
            ("size", bytes.as_str()),
            ("nr_inodes", &names),
            ("mode", "0755"),
        ];
        let attr = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let all = new("tmpfs", &options, attr)?;
        // A mount can only be copied where it is mounted. It goes on top of the root, where no
        // lookup of ours sees it.
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&all, "", CWD, "/", flags)?;
        rustix::fs::mkdirat(&all, EMPTY_FOLDER, Mode::empty())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        drop(rustix::fs::openat(&all, EMPTY_FILE, flags, Mode::empty())?);
        rustix::fs::mkdirat(&all, ROOT, Mode::from_raw_mode(0o755))?;
        give(&all, ROOT, owner)?;
        let root = part_of(&all, ROOT)?;
        rustix::mount::move_mount(
            &root,
            "",
            &all,
            ROOT,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )?;
        Ok(Self {
            all,
            root,
            owner,
            next: std::cell::Cell::new(0),
            workspace: std::cell::OnceCell::new(),
            closed: std::cell::Cell::new(false),
        })
    }

    fn put(&self, step: &Step, tree: Option<OwnedFd>) -> Result<(), Refusal> {
        let at = match step {
            Step::Link { at, .. }
            | Step::Read { at }
            | Step::Workspace { at, .. }
            | Step::Scratch { at, .. }
            | Step::Device { at }
            | Step::Pin { at }
            | Step::Cover { at, .. } => at.as_path(),
            Step::Laid(file) => &file.at,
            Step::Terminals => Path::new("/dev/pts"),
            Step::Proc { .. } => Path::new("/proc"),
            Step::Guard(guard) => return self.hold(guard),
            Step::Code(copy) => return self.lay_over(copy),
        };
        self.put_at(at, step, tree)
            .map_err(|error| wall(error, &at.display().to_string()))
    }

    fn put_at(&self, at: &Path, step: &Step, tree: Option<OwnedFd>) -> io::Result<()> {
        match step {
            Step::Link { to, .. } => {
                let (parent, name) = self.parent(at)?;
                Ok(rustix::fs::symlinkat(to, &parent, name)?)
            }
            Step::Read { .. }
            | Step::Workspace { .. }
            | Step::Device { .. }
            | Step::Terminals
            | Step::Proc { .. } => {
                let Some(tree) = tree else {
                    return Ok(());
                };
                let is_folder = is_folder(&tree)?;
                attach(&tree, &self.place(at, is_folder)?)?;
                if let Step::Workspace { .. } = step {
                    let _ = self.workspace.set(tree);
                }
                Ok(())
            }
            Step::Scratch { mode, .. } => {
                let name = self.next_name();
                rustix::fs::mkdirat(&self.all, &name, Mode::RWXU)?;
                // The mask for new files does not count here.
                let mode = Mode::from_raw_mode(*mode);
                rustix::fs::chmodat(&self.all, &name, mode, rustix::fs::AtFlags::empty())?;
                self.give(&self.all, &name)?;
                attach(&part_of(&self.all, &name)?, &self.place(at, true)?)
            }
            Step::Laid(file) => self.lay(file),
            Step::Pin { .. } => self.pin(at),
            Step::Cover { within, .. } => self.cover(at, within.as_deref()),
            Step::Guard(_) | Step::Code(_) => Ok(()),
        }
    }

    /// What is there already, at a path that holds no links.
    fn found(&self, at: &Path) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let strict = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(&self.root, at, flags, Mode::empty(), strict) {
            Ok(place) => Ok(Some(place)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// Mounts a folder onto itself: a mount can be neither renamed nor removed.
    fn pin(&self, at: &Path) -> io::Result<()> {
        match self.found(at)? {
            Some(place) => attach(&tree(&place)?, &place),
            None => Ok(()),
        }
    }

    /// Hides what is there. What is not there cannot be made, as far as a folder on the way is there
    /// to be closed: it is pinned already.
    fn cover(&self, at: &Path, within: Option<&Path>) -> io::Result<()> {
        let Some(place) = self.found(at)? else {
            let below = within.map(|within| at.ancestors().take_while(move |it| *it != within));
            for above in below.into_iter().flatten().skip(1) {
                if let Some(folder) = self.found(above)? {
                    let attr = MountAttr {
                        set: RDONLY,
                        ..MountAttr::default()
                    };
                    return sys::mount_setattr(folder.as_fd(), false, &attr);
                }
            }
            return Ok(());
        };
        self.hide(&place)
    }

    /// Puts nothing on top.
    fn hide(&self, place: &OwnedFd) -> io::Result<()> {
        let name = match is_folder(place)? {
            true => EMPTY_FOLDER,
            false => EMPTY_FILE,
        };
        // Closed once, and copied from then on: copies are closed as well.
        if !self.closed.replace(true) {
            for name in [EMPTY_FOLDER, EMPTY_FILE] {
                let nothing = part_of(&self.all, name)?;
                set(&nothing, RDONLY)?;
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                rustix::mount::move_mount(&nothing, "", &self.all, name, flags)?;
            }
        }
        attach(&part_of(&self.all, name)?, place)
    }

    /// Holds something in the workspace, if it is what was seen there.
    fn hold(&self, guard: &Guard) -> Result<(), Refusal> {
        let failed = |error: io::Error| wall(error, &guard.at.to_string());
        let moved = || Refusal::new(RunErrorKind::Changed, MOVED);
        let Some(workspace) = self.workspace.get() else {
            return Err(wall("there is no workspace", "a guard"));
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let strict =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let at = guard.at.path();
        let place = match rustix::fs::openat2(workspace, at, flags, Mode::empty(), strict) {
            Ok(place) => place,
            // Gone, or on the move: whatever it is, it was not this that was looked at.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::AGAIN) => return Err(moved()),
            Err(other) => return Err(failed(other.into())),
        };
        let found = rustix::fs::fstat(&place).map_err(|error| failed(error.into()))?;
        if program::id_of(&found) != guard.id {
            return Err(moved());
        }
        let onto_itself = |change: fn(&OwnedFd) -> io::Result<()>| {
            let tree = tree(&place)?;
            change(&tree)?;
            attach(&tree, &place)
        };
        let held = match guard.hold {
            Hold::Masked => self.hide(&place),
            Hold::Pinned => onto_itself(|_| Ok(())),
            Hold::ReadOnly => onto_itself(|tree| set_all(tree, RDONLY, 0)),
            Hold::Writable => onto_itself(|tree| set_all(tree, 0, RDONLY)),
        };
        held.map_err(failed)
    }

    /// Lays a copy of a file over it, if that is what was decided about: whoever writes to the file
    /// from now on does not write to what runs.
    fn lay_over(&self, copy: &CodeCopy) -> Result<(), Refusal> {
        let Some(workspace) = self.workspace.get() else {
            return Err(wall("there is no workspace", "a copy"));
        };
        let failed = |error: io::Error| wall(error, &copy.at.display().to_string());
        let name = self.next_name();
        let original = code::original(workspace, copy)?;
        let make = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let to = rustix::fs::openat(&self.all, &name, make, Mode::RUSR)
            .map_err(|error| failed(error.into()))?;
        code::copy(&original, copy, &to)?;
        // Nobody can execute what is open for writing.
        drop(to);
        let lay = || -> io::Result<()> {
            self.give(&self.all, &name)?;
            let tree = part_of(&self.all, &name)?;
            set(&tree, RDONLY | NOSUID | NODEV)?;
            attach(&tree, &code::place(workspace, copy)?)
        };
        lay().map_err(failed)
    }

    /// Lays a file of ours over what is there, or makes it.
    fn lay(&self, file: &LaidFile) -> io::Result<()> {
        let name = self.next_name();
        let make = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let to = rustix::fs::openat(&self.all, &name, make, Mode::from_raw_mode(0o444))?;
        let mut to = std::fs::File::from(to);
        to.write_all(file.text.as_bytes())?;
        self.give(&self.all, &name)?;
        let tree = part_of(&self.all, &name)?;
        set(&tree, RDONLY | NOSUID | NODEV)?;
        let place = match self.found(&file.at)? {
            Some(place) => place,
            None => self.place(&file.at, false)?,
        };
        attach(&tree, &place)
    }

    fn next_name(&self) -> String {
        let number = self.next.get();
        self.next.set(number + 1);
        number.to_string()
    }

    /// A place to mount on, made if it is not there.
    fn place(&self, at: &Path, is_folder: bool) -> io::Result<OwnedFd> {
        let (parent, name) = self.parent(at)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if is_folder {
            self.folder(&parent, name)?;
        } else {
            let make = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            match rustix::fs::openat(&parent, name, make, Mode::from_raw_mode(0o644)) {
                Ok(_) | Err(Errno::EXIST) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Ok(rustix::fs::openat(&parent, name, flags, Mode::empty())?)
    }

    /// The folder that a name is in, made if it is not there, and the name.
    fn parent<'a>(&self, at: &'a Path) -> io::Result<(OwnedFd, &'a std::ffi::OsStr)> {
        let name = at.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut here = self.root.try_clone()?;
        for part in at.parent().into_iter().flat_map(Path::components) {
            match part {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(part) => here = self.folder(&here, part)?,
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
            }
        }
        Ok((here, name))
    }

    fn folder(&self, parent: &OwnedFd, name: &std::ffi::OsStr) -> io::Result<OwnedFd> {
        match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => self.give(parent, name)?,
            Err(Errno::EXIST) => {}
            Err(other) => return Err(other.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
    }

    /// What was made here belongs to whom the call runs as.
    fn give(&self, parent: &OwnedFd, name: impl rustix::path::Arg) -> io::Result<()> {
        give(parent, name, self.owner)
    }

    fn become_root(self) -> io::Result<()> {
        let attr = MountAttr {
            set: RDONLY,
            ..MountAttr::default()
        };
        sys::mount_setattr(self.root.as_fd(), false, &attr)?;
        rustix::process::fchdir(&self.root)?;
        // The old root goes on top of the new one, and with it what `make` put on top of the old
        // one. Both go away, the upper one first: whatever stays there is one `..` away from
        // everybody inside, and Landlock does not cover modes and times.
        rustix::process::pivot_root(".", ".")?;
        for _ in [&self.all, &self.root] {
            rustix::mount::unmount(".", UnmountFlags::DETACH)?;
        }
        Ok(rustix::process::chdir("/")?)
    }
}

fn give(
    parent: &OwnedFd,
    name: impl rustix::path::Arg,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let Some((uid, gid)) = owner else {
        return Ok(());
    };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    Ok(rustix::fs::chownat(
        parent,
        name,
        Some(uid),
        Some(gid),
        flags,
    )?)
}

/// Sets flags of one mount.
fn set(mount: &OwnedFd, flags: u64) -> io::Result<()> {
    let attr = MountAttr {
        set: flags,
        ..MountAttr::default()
    };
    sys::mount_setattr(mount.as_fd(), false, &attr)
}

/// Sets and clears flags of a mount and of those beneath.
fn set_all(mount: &OwnedFd, set: u64, clear: u64) -> io::Result<()> {
    let attr = MountAttr {
        set,
        clear,
        ..MountAttr::default()
    };
    sys::mount_setattr(mount.as_fd(), true, &attr)
}

/// A part of a mounted file system, as a mount of its own.
fn part_of(all: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(rustix::mount::open_tree(all, name, flags)?)
}

fn is_folder(handle: &OwnedFd) -> io::Result<bool> {
    let mode = rustix::fs::fstat(handle)?.st_mode;
    Ok(rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::Directory)
}
