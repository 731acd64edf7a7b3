//! Where names that appeared during a call are kept until a person looks at them: a folder of the
//! daemon's, outside of every workspace.
//!
//! `ID/about.json` says what it was and is written first; `ID/item` is the thing itself, moved, or
//! copied where it lies on another file system. It gets back only by a person's word, and never
//! over something that is there.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use palyra_core::{QuarantineId, Timestamp};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::ground::arrivals::Arrival;
use crate::ground::root::Root;
use crate::ground::spot::Spot;
use crate::{program, tmp};

const ABOUT: &str = "about.json";
const ITEM: &str = "item";

/// Something that was taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// Its id.
    pub id: QuarantineId,
    /// The workspace it was in.
    pub workspace: PathBuf,
    /// Where it was, beneath the workspace.
    at: Spot,
    /// Why it could not stay.
    pub why: String,
    /// When it was taken away.
    pub taken_at: Timestamp,
}

impl Quarantined {
    /// Where it was, beneath the workspace.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.at.path()
    }
}

/// Why something could not be given back.
#[derive(Debug, thiserror::Error)]
pub enum CannotRestore {
    /// There is no such thing.
    #[error("there is nothing `{0}` in quarantine")]
    Unknown(String),
    /// Something else is there by now.
    #[error("`{}` is there again", .0.display())]
    Taken(PathBuf),
    /// It did not work.
    #[error("`{}` cannot be put back: {source}", .path.display())]
    Failed {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The folder.
#[derive(Debug, Clone)]
pub struct Quarantine(PathBuf);

impl Quarantine {
    /// In this folder, which is made when it is needed.
    #[must_use]
    pub const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Takes something away.
    pub(crate) fn take(
        &self,
        root: &Root,
        arrival: &Arrival,
        now: Timestamp,
    ) -> io::Result<Quarantined> {
        let taken = Quarantined {
            id: QuarantineId::mint(now),
            workspace: root.path().to_owned(),
            at: arrival.at.clone(),
            why: arrival.why.to_owned(),
            taken_at: now,
        };
        let mut private = std::fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        let folder = self.0.join(taken.id.as_str());
        private.create(&folder)?;
        let mut about = std::fs::OpenOptions::new();
        about.write(true).create_new(true).mode(0o600);
        let about = about.open(folder.join(ABOUT))?;
        serde_json::to_writer(&about, &taken)?;
        about.sync_all()?;
        let parent = arrival.at.parent().unwrap_or_default();
        let from = root.open(&parent, OFlags::PATH | OFlags::DIRECTORY)?;
        let to = program::open_folder(&folder.canonicalize()?)?;
        let name = OsStr::from_bytes(arrival.at.name());
        let moved = match carry(&from, name, &to, OsStr::new(ITEM)) {
            // Whoever made it may have closed it, or the folder it is in.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                opened(&from, name, || carry(&from, name, &to, OsStr::new(ITEM)))
            }
            other => other,
        };
        if let Err(error) = moved {
            let _ = std::fs::remove_dir_all(&folder);
            return Err(error);
        }
        Ok(taken)
    }

    /// Everything in it, oldest first.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn list(&self) -> io::Result<Vec<Quarantined>> {
        let entries = match std::fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut all: Vec<Quarantined> = entries
            .flatten()
            .filter_map(|entry| {
                let about = std::fs::read(entry.path().join(ABOUT)).ok()?;
                serde_json::from_slice(&about).ok()
            })
            .collect();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(all)
    }

    /// Puts something back where it was.
    ///
    /// # Errors
    /// There is no such thing, something else is in its place, or it cannot be put there.
    pub fn restore(&self, id: &str) -> Result<Quarantined, CannotRestore> {
        let unknown = || CannotRestore::Unknown(id.chars().take(64).collect());
        let known: QuarantineId = id.parse().map_err(|_| unknown())?;
        let folder = self.0.join(known.as_str());
        let about = std::fs::read(folder.join(ABOUT)).map_err(|_| unknown())?;
        let taken: Quarantined = serde_json::from_slice(&about).map_err(|_| unknown())?;
        let path = taken.workspace.join(taken.at.path());
        let failed = |source: io::Error| CannotRestore::Failed {
            path: path.clone(),
            source,
        };
        let put = || -> io::Result<()> {
            let workspace = program::open_folder(&taken.workspace)?;
            let parent = taken.at.parent().unwrap_or_default();
            let to = beneath(&workspace, &parent)?;
            let from = program::open_folder(&folder.canonicalize()?)?;
            carry(
                &from,
                OsStr::new(ITEM),
                &to,
                OsStr::from_bytes(taken.at.name()),
            )
        };
        match put() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(CannotRestore::Taken(path));
            }
            Err(error) => return Err(failed(error)),
        }
        let _ = std::fs::remove_dir_all(&folder);
        Ok(taken)
    }
}

/// A folder beneath another one, no link on the way followed.
fn beneath(folder: &OwnedFd, at: &Spot) -> io::Result<OwnedFd> {
    use rustix::fs::ResolveFlags;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(folder, at.path(), flags, Mode::empty(), how);
    Ok(opened?)
}

/// Moves something, over no other; copies it where it has to go to another file system.
fn carry(from: &OwnedFd, name: &OsStr, to: &OwnedFd, new_name: &OsStr) -> io::Result<()> {
    match rustix::fs::renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
        Err(Errno::XDEV) => {}
        other => return Ok(other?),
    }
    copy(from, name, to, new_name)?;
    remove(from, name)
}

/// Tries again with the folder that something is in, and the thing itself if it is a folder, open to
/// their owner.
fn opened(
    folder: &OwnedFd,
    name: &OsStr,
    again: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(folder)?.st_mode & 0o7777);
    let by_handle = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(folder));
    rustix::fs::chmod(&by_handle, mode | Mode::RWXU)?;
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inside = rustix::fs::openat(folder, name, flags, Mode::empty())?;
        let by_handle = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&inside));
        rustix::fs::chmod(&by_handle, Mode::RWXU)?;
    }
    let done = again();
    let _ = rustix::fs::chmod(&by_handle, mode);
    done
}

/// Copies a file, a link or a folder with all that is in it; what is none of these is left out.
fn copy(from: &OwnedFd, name: &OsStr, to: &OwnedFd, new_name: &OsStr) -> io::Result<()> {
    let found = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    // Not the set-id bits: nobody vouches for them.
    let mode = Mode::from_raw_mode(found.st_mode & 0o777);
    let base = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let new: OwnedFd = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | base;
            let source = rustix::fs::openat(from, name, flags, Mode::empty())?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | base;
            let target = rustix::fs::openat(to, new_name, flags, Mode::RUSR | Mode::WUSR)?;
            let mut target = std::fs::File::from(target);
            io::copy(&mut std::fs::File::from(source), &mut target)?;
            target.sync_all()?;
            target.into()
        }
        FileType::Directory => {
            rustix::fs::mkdirat(to, new_name, Mode::RWXU)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | base;
            let source = rustix::fs::openat(from, name, flags, Mode::empty())?;
            let target = rustix::fs::openat(to, new_name, flags, Mode::empty())?;
            for entry in rustix::fs::Dir::read_from(&source)? {
                let entry = entry?;
                let name = entry.file_name();
                if name != c"." && name != c".." {
                    let name = OsStr::from_bytes(name.to_bytes());
                    copy(&source, name, &target, name)?;
                }
            }
            target
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(from, name, Vec::new())?;
            return Ok(rustix::fs::symlinkat(target, to, new_name)?);
        }
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => return Ok(()),
    };
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid));
        rustix::fs::fchown(&new, Some(uid), Some(gid))?;
    }
    Ok(rustix::fs::fchmod(&new, mode)?)
}

fn remove(from: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(from, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return Ok(other?),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    tmp::empty(&rustix::fs::openat(from, name, flags, Mode::empty())?)?;
    Ok(rustix::fs::unlinkat(from, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(under: &Path) {
        std::fs::create_dir_all(under.join("thing/deep")).unwrap();
        std::fs::write(under.join("thing/deep/file"), "content").unwrap();
        std::os::unix::fs::symlink("/nowhere", under.join("thing/link")).unwrap();
    }

    fn open(path: &Path) -> OwnedFd {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).unwrap()
    }

    /// To another file system and back: nothing is lost, and nothing is overwritten.
    #[test]
    fn things_are_carried_between_file_systems() {
        let here = tempfile::tempdir().unwrap();
        let there = tempfile::tempdir_in("/dev/shm").unwrap();
        tree(here.path());
        let (from, to) = (open(here.path()), open(there.path()));
        let (thing, item) = (OsStr::new("thing"), OsStr::new("item"));
        carry(&from, thing, &to, item).unwrap();
        assert!(!here.path().join("thing").exists());
        let content = std::fs::read_to_string(there.path().join("item/deep/file"));
        assert_eq!(content.unwrap(), "content");
        assert!(there.path().join("item/link").is_symlink());

        std::fs::write(here.path().join("thing"), "newer").unwrap();
        let error = carry(&to, item, &from, thing).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        std::fs::remove_file(here.path().join("thing")).unwrap();
        carry(&to, item, &from, thing).unwrap();
        assert!(here.path().join("thing/deep/file").exists());
        assert!(!there.path().join("item").exists());
    }
}
