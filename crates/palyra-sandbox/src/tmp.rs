//! Temporary folders: one per call, `/tmp/palyra-<uid>/<daemon>/<call>`, gone when the call is.
//!
//! The outer two belong to the daemon alone. A root daemon lets others pass through them (0711),
//! so that a call that runs as the workspace's owner reaches its own folder, which is 0700 and
//! that owner's; names in them cannot be listed.
//!
//! A call of the daemon's own uid may rename any of them and put a link in its place, and whoever
//! removes a folder stands outside of every wall. So nothing is removed by its path: only by its
//! name in a handle of the daemon's folder, held since before the call, and only if it is the
//! folder that was made.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use palyra_core::FileId;
use rustix::fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use crate::wire::CallTmp;

/// How often another name is tried.
const TRIES: usize = 16;

/// How long removing may take when somebody keeps filling the folder.
const PATIENCE: Duration = Duration::from_secs(120);

/// The daemon's own folder, under which calls get theirs.
pub(crate) struct TempRoot {
    path: PathBuf,
    /// The folder that it is in, and its name there.
    root: OwnedFd,
    name: String,
    /// Its lock tells other daemons that the folder is in use; it ends with this process.
    _lock: OwnedFd,
    /// By which everything in it is made and removed.
    folder: Arc<OwnedFd>,
    next: AtomicU64,
}

impl TempRoot {
    /// Makes the folder.
    pub(crate) fn claim(under: &Path) -> io::Result<Self> {
        let (root, root_path) = own_root(under)?;
        let mut last = io::Error::other("no name is free");
        for _ in 0..TRIES {
            let name = format!("{:08x}", random()?);
            match make_locked(&root, &name) {
                Ok(lock) => {
                    return Ok(Self {
                        path: root_path.join(&name),
                        // A description of its own: it goes to the helper, and the lock does not.
                        folder: Arc::new(open_handle(&lock, c".")?),
                        _lock: lock,
                        root,
                        name,
                        next: AtomicU64::new(1),
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A handle of it, for whoever removes the folders of calls.
    pub(crate) fn handle(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.folder)
    }

    /// A fresh folder for one call, and a handle of it.
    pub(crate) fn folder(&self, owner: Option<(u32, u32)>) -> io::Result<(CallTmp, OwnedFd)> {
        let name = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        rustix::fs::mkdirat(&self.folder, &name, Mode::RWXU)?;
        if let Some((uid, gid)) = owner {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(&self.folder, &name, Some(uid), Some(gid), flags)?;
        }
        let handle = open_handle(&self.folder, &name)?;
        let made = CallTmp {
            id: id_of(&handle)?,
            path: self.path.join(name),
        };
        Ok((made, handle))
    }
}

/// Removes folders whose daemon is gone: nobody holds their lock. It may take a while.
pub(crate) fn sweep(under: &Path) -> io::Result<()> {
    let (root, _) = own_root(under)?;
    for name in names_in(&root)? {
        let Ok(folder) = open_folder(&root, &name) else {
            continue;
        };
        if rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            sweep_calls(&folder);
            let _ = rustix::fs::unlinkat(&root, &name, AtFlags::REMOVEDIR);
        }
    }
    Ok(())
}

/// Removes what is ours. What belongs to others is theirs to fill with surprises, and is not
/// removed with a root daemon's rights; only what is empty goes.
fn sweep_calls(daemon: &OwnedFd) {
    let own = rustix::process::geteuid().as_raw();
    for name in names_in(daemon).unwrap_or_default() {
        if rustix::fs::unlinkat(daemon, &name, AtFlags::REMOVEDIR).is_ok() {
            continue;
        }
        if let Ok(folder) = open_folder(daemon, &name)
            && rustix::fs::fstat(&folder).is_ok_and(|found| found.st_uid == own)
            && empty(&folder).is_ok()
        {
            let _ = rustix::fs::unlinkat(daemon, &name, AtFlags::REMOVEDIR);
        }
    }
}

fn names_in(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if name.as_c_str() != c"." && name.as_c_str() != c".." {
            names.push(name);
        }
    }
    Ok(names)
}

impl Drop for TempRoot {
    fn drop(&mut self) {
        // Folders of calls are removed by their supervisors; what is still there is swept later.
        let _ = rustix::fs::unlinkat(&self.root, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Makes a folder and locks it. Until it is locked, a daemon that sweeps takes it for abandoned, so
/// it is only good if it is still there afterwards.
fn make_locked(root: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    rustix::fs::mkdirat(root, name, outer_mode())?;
    rustix::fs::chmodat(root, name, outer_mode(), AtFlags::empty())?;
    let folder = open_folder(root, name)?;
    rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    rustix::fs::statat(root, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(folder)
}

/// Others pass through a root daemon's folders; nobody else's.
fn outer_mode() -> Mode {
    if rustix::process::geteuid().is_root() {
        Mode::RWXU | Mode::XGRP | Mode::XOTH
    } else {
        Mode::RWXU
    }
}

fn own_root(under: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let plain = under.join(format!("palyra-{}", rustix::process::geteuid().as_raw()));
    if let Ok(folder) = make_own(&plain) {
        return Ok((folder, plain));
    }
    // Somebody else sits on the name (anybody may make names in /tmp): take another one.
    let mut path = plain.into_os_string();
    path.push(format!("-{:08x}", random()?));
    let path = PathBuf::from(path);
    Ok((make_own(&path)?, path))
}

/// Makes the folder, or takes the one that is there if it is ours and nobody else can write to it.
fn make_own(path: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(path, outer_mode()) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(other) => return Err(other.into()),
    }
    let folder = open_folder(rustix::fs::CWD, path)?;
    let found = rustix::fs::fstat(&folder)?;
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(
            "the temporary folder belongs to somebody else",
        ));
    }
    rustix::fs::fchmod(&folder, outer_mode())?;
    Ok(folder)
}

fn open_folder(parent: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

fn random() -> io::Result<u32> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(bytes))
}

/// A handle without rights, which can be had of any folder.
fn open_handle(parent: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

fn id_of(handle: &OwnedFd) -> io::Result<FileId> {
    let found = rustix::fs::fstat(handle)?;
    Ok(FileId {
        device: found.st_dev,
        inode: found.st_ino,
    })
}

/// Removes a call's folder with everything in it.
pub(crate) fn remove(within: impl AsFd, made: &CallTmp) -> io::Result<()> {
    if remove_empty(within.as_fd(), made)? {
        return Ok(());
    }
    empty(&open(within.as_fd(), made)?)?;
    remove_empty(within, made).map(drop)
}

/// Removes it if nothing is in it; false otherwise.
pub(crate) fn remove_empty(within: impl AsFd, made: &CallTmp) -> io::Result<bool> {
    match checked(within.as_fd(), made) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    }
    match rustix::fs::unlinkat(within, name_of(made)?, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

/// Opens it to be emptied, also when the call took its own rights to it away.
pub(crate) fn open(within: impl AsFd, made: &CallTmp) -> io::Result<OwnedFd> {
    let handle = checked(within, made)?;
    allow_handle(&handle);
    // Through the handle: its name may lead elsewhere by now.
    open_folder(handle, c".")
}

/// A handle of the folder that was made, and of no other that took its name.
fn checked(within: impl AsFd, made: &CallTmp) -> io::Result<OwnedFd> {
    let handle = open_handle(within, name_of(made)?)?;
    if id_of(&handle)? != made.id {
        return Err(io::Error::other("another folder is in its place"));
    }
    Ok(handle)
}

fn name_of(made: &CallTmp) -> io::Result<&std::ffi::OsStr> {
    let name = made.path.file_name();
    name.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Removes everything in `top` without following links, however deep it goes.
///
/// What a call left behind is hostile: a chain of a million folders must exhaust neither the stack
/// nor the descriptors. So folders are not descended into: what is in a folder is moved up beside
/// it, and the folder, now empty, is removed.
pub(crate) fn empty(top: &OwnedFd) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut serial: u64 = 0;
    loop {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut found = false;
        for entry in rustix::fs::Dir::read_from(top)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            found = true;
            if unlink(top, name)? {
                continue;
            }
            let folder = open_stubborn(top, name)?;
            for inner in rustix::fs::Dir::read_from(&folder)? {
                let inner = inner?;
                let inner_name = inner.file_name();
                if inner_name == c"." || inner_name == c".." || unlink(&folder, inner_name)? {
                    continue;
                }
                // A folder can only be moved by those who may write to it (its `..` changes).
                allow(&folder, inner_name);
                serial += 1;
                let moved = format!("palyra-removing-{serial}");
                match rustix::fs::renameat(&folder, inner_name, top, &moved) {
                    Ok(()) | Err(Errno::NOENT | Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {
                    }
                    Err(other) => return Err(other.into()),
                }
            }
            let _ = rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR);
        }
        if !found {
            return Ok(());
        }
    }
}

/// Removes a file or an empty folder; false when it is a folder with something in it.
fn unlink(parent: &OwnedFd, name: &CStr) -> io::Result<bool> {
    let remove = |flags| match rustix::fs::unlinkat(parent, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST | Errno::PERM | Errno::NOTDIR) => {
            Ok(false)
        }
        Err(other) => Err(io::Error::from(other)),
    };
    let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    let is_folder =
        found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
    if is_folder {
        remove(AtFlags::REMOVEDIR)
    } else {
        match remove(AtFlags::empty())? {
            true => Ok(true),
            false => Err(io::Error::other("a file cannot be removed")),
        }
    }
}

/// Opens a folder, also one that its owner made unreadable.
fn open_stubborn(parent: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    allow(parent, name);
    open_folder(parent, name)
}

/// Gives a folder's owner all rights. Names here are folders that were just looked at; a link put
/// in their place would lead a plain `chmod` elsewhere, so it goes through a handle.
fn allow(parent: &OwnedFd, name: &CStr) {
    if let Ok(handle) = open_handle(parent, name) {
        allow_handle(&handle);
    }
}

fn allow_handle(handle: &OwnedFd) {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let _ = rustix::fs::chmod(path, Mode::RWXU);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn folders_are_private_and_their_root_is_ours() {
        let under = tempfile::tempdir().unwrap();
        let root = TempRoot::claim(under.path()).unwrap();
        let (made, _) = root.folder(None).unwrap();
        let path = made.path.clone();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(path.parent().unwrap()), outer_mode().as_raw_mode());
        remove(root.handle(), &made).unwrap();
        assert!(!path.exists());
    }

    /// What a call of the same uid can do: rename, and put something else there.
    #[test]
    fn only_the_folder_that_was_made_is_removed() {
        let under = tempfile::tempdir().unwrap();
        let precious = under.path().join("precious");
        let keep = |name: &str| {
            std::fs::create_dir_all(precious.join(name)).unwrap();
            std::fs::write(precious.join(name).join("keep"), "x").unwrap();
            precious.join(name).join("keep")
        };
        let root = TempRoot::claim(under.path()).unwrap();
        let handle = root.handle();
        let (first, _) = root.folder(None).unwrap();
        let (second, _) = root.folder(None).unwrap();
        let (third, _) = root.folder(None).unwrap();
        let keeps = [keep("1"), keep("2"), keep("3"), keep("moved")];

        // The daemon's folder is moved away and a link put there, as the attacker did.
        let away = root.path.with_extension("away");
        std::fs::write(first.path.join("file"), "x").unwrap();
        std::fs::rename(&root.path, &away).unwrap();
        std::os::unix::fs::symlink(&precious, &root.path).unwrap();
        remove(&handle, &first).unwrap();
        assert!(
            !away.join("1").exists(),
            "the real one is found and removed"
        );

        // The call's own folder is a link, or another folder.
        std::fs::rename(away.join("2"), away.join("2.away")).unwrap();
        std::os::unix::fs::symlink(precious.join("2"), away.join("2")).unwrap();
        assert!(remove(&handle, &second).is_err());
        std::fs::rename(away.join("3"), away.join("3.away")).unwrap();
        std::fs::rename(precious.join("moved"), away.join("3")).unwrap();
        assert!(remove(&handle, &third).is_err());
        assert!(remove_empty(&handle, &third).is_err());
        std::fs::rename(away.join("3"), precious.join("moved")).unwrap();
        for path in keeps {
            assert!(path.exists(), "{}", path.display());
        }
    }

    #[test]
    fn a_folder_that_its_owner_locked_is_removed() {
        let under = tempfile::tempdir().unwrap();
        let root = TempRoot::claim(under.path()).unwrap();
        let (made, _) = root.folder(None).unwrap();
        std::fs::write(made.path.join("file"), "x").unwrap();
        let locked = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(&made.path, locked).unwrap();
        remove(root.handle(), &made).unwrap();
        assert!(!made.path.exists());
    }

    #[test]
    fn a_name_taken_by_a_link_is_not_used() {
        let under = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let name = format!("palyra-{}", rustix::process::geteuid().as_raw());
        std::os::unix::fs::symlink(elsewhere.path(), under.path().join(&name)).unwrap();
        let root = TempRoot::claim(under.path()).unwrap();
        let (made, _) = root.folder(None).unwrap();
        assert!(
            made.path
                .canonicalize()
                .unwrap()
                .starts_with(under.path().canonicalize().unwrap())
        );
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_abandoned_folders_are_swept() {
        let under = tempfile::tempdir().unwrap();
        let live = TempRoot::claim(under.path()).unwrap();
        let dead = TempRoot::claim(under.path()).unwrap();
        let (left, _) = dead.folder(None).unwrap();
        std::fs::write(left.path.join("file"), "x").unwrap();
        drop(dead);
        let (kept, _) = live.folder(None).unwrap();
        sweep(under.path()).unwrap();
        assert!(!left.path.exists());
        assert!(kept.path.exists());
    }

    #[test]
    fn deep_trees_links_and_locked_folders_go_and_nothing_else_does() {
        let under = tempfile::tempdir().unwrap();
        let outside = under.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("keep"), "x").unwrap();
        let top = under.path().join("top");
        std::fs::create_dir(&top).unwrap();
        std::os::unix::fs::symlink(&outside, top.join("link")).unwrap();
        std::fs::create_dir(top.join("locked")).unwrap();
        std::fs::write(top.join("locked/file"), "x").unwrap();
        std::fs::set_permissions(top.join("locked"), std::fs::Permissions::from_mode(0o000))
            .unwrap();
        // Deeper than a path can be written.
        let mut here = open_folder(rustix::fs::CWD, &top).unwrap();
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
            std::os::unix::fs::symlink(
                "/",
                format!("/proc/self/fd/{}/l", {
                    use std::os::fd::AsRawFd;
                    here.as_raw_fd()
                }),
            )
            .unwrap();
            here = open_folder(&here, "d").unwrap();
        }
        empty(&open_folder(rustix::fs::CWD, &top).unwrap()).unwrap();
        std::fs::remove_dir(&top).unwrap();
        assert!(!top.exists());
        assert!(outside.join("keep").exists());
    }
}
