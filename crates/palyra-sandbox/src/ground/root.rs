//! A workspace by its handle: whoever swaps its path, or something beneath, leads nobody out of it.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use palyra_core::FileId;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;

use super::spot::Spot;
use crate::program;
use crate::surround::{self, Stamp};

/// Another folder took the workspace's place.
pub(crate) const SWAPPED: &str = "it was changed since it was decided";

/// A key file that is longer is taken for a secret without reading it.
pub(crate) const LONGEST_KEY: u64 = 1 << 20;

/// A workspace, held by a handle.
pub(crate) struct Root {
    path: PathBuf,
    handle: OwnedFd,
}

impl Root {
    /// The folder that was decided about, or nothing.
    pub(super) fn of(path: &Path, id: FileId) -> io::Result<Self> {
        let handle = program::open_folder(path)?;
        if program::id_of(&rustix::fs::fstat(&handle)?) != id {
            return Err(io::Error::other(SWAPPED));
        }
        Ok(Self {
            path: path.to_owned(),
            handle,
        })
    }

    /// Opens something beneath, without following a link anywhere.
    pub(crate) fn open(&self, at: &Spot, flags: OFlags) -> Result<OwnedFd, Errno> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            match rustix::fs::openat2(&self.handle, at.path(), flags, Mode::empty(), how) {
                // Something was renamed meanwhile, so the kernel cannot vouch for "beneath".
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// What is there. The links of folders on the way count as folders that changed.
    pub(super) fn stat(&self, at: &Spot) -> Option<Stat> {
        rustix::fs::statat(&self.handle, at.path(), AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    pub(super) fn stamp(&self, at: &Spot) -> Option<Stamp> {
        self.stat(at).as_ref().map(surround::stamp)
    }

    pub(crate) fn id(&self, at: &Spot) -> Option<FileId> {
        self.stat(at).as_ref().map(program::id_of)
    }

    pub(super) fn kind(&self, at: &Spot) -> Option<FileType> {
        let found = self.stat(at)?;
        Some(FileType::from_raw_mode(found.st_mode))
    }

    /// The content of a regular file that is not long.
    pub(crate) fn read(&self, at: &Spot) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open(at, flags).ok()?;
        let found = rustix::fs::fstat(&file).ok()?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return None;
        }
        let mut content = Vec::new();
        let file = std::fs::File::from(file);
        let read = file.take(LONGEST_KEY + 1).read_to_end(&mut content);
        read.is_ok_and(|read| read as u64 <= LONGEST_KEY)
            .then_some(content)
    }

    /// The names in a folder.
    pub(crate) fn names(&self, at: &Spot) -> Option<Vec<Vec<u8>>> {
        let folder = self.open(at, OFlags::RDONLY | OFlags::DIRECTORY).ok()?;
        let entries = entries_of(&folder).ok()?;
        Some(entries.into_iter().map(|(name, _)| name).collect())
    }

    /// The path that leads to it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The text of a file of a workspace as it is now, for a person who is asked about changing it;
/// none if it is no text or longer than `most`. What somebody puts in its place, or in that of a
/// folder on the way, is not followed, and a pipe is not waited for.
#[must_use]
pub fn text_of(workspace: &Path, file: &Path, most: usize) -> Option<String> {
    let at = Spot::of(file.strip_prefix(workspace).ok()?)?;
    let id = program::look_at_folder(workspace).ok()?.id;
    let content = Root::of(workspace, id).ok()?.read(&at)?;
    let text = String::from_utf8(content).ok()?;
    (text.len() <= most).then_some(text)
}

/// What is in a folder, and of which kind.
pub(super) fn entries_of(folder: &OwnedFd) -> io::Result<Vec<(Vec<u8>, FileType)>> {
    let mut buffer = [MaybeUninit::<u8>::uninit(); 16 * 1024];
    let mut entries = Vec::new();
    let mut listing = RawDir::new(folder, &mut buffer);
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            entries.push((name.to_vec(), entry.file_type()));
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Each one leads somebody who opens the path to the secret, or has them wait for ever.
    #[test]
    fn what_is_put_in_a_files_place_is_not_shown() {
        let here = tempfile::tempdir().unwrap();
        let here = here.path().canonicalize().unwrap();
        let (work, outside) = (here.join("work"), here.join("outside"));
        for folder in [&work, &outside, &work.join("in")] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(outside.join("key"), "secret").unwrap();
        let file = work.join("in/key");
        std::fs::write(&file, "own").unwrap();
        let shown = || text_of(&work, &file, 100);
        assert_eq!(shown().as_deref(), Some("own"), "control");
        assert_eq!(text_of(&work, &file, 2), None, "too long");
        assert_eq!(text_of(&work, &outside.join("key"), 100), None);
        assert_eq!(text_of(&work, &work.join("../outside/key"), 100), None);

        std::fs::remove_file(&file).unwrap();
        symlink("../../outside/key", &file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "secret", "control");
        assert_eq!(shown(), None);

        std::fs::remove_dir_all(work.join("in")).unwrap();
        symlink("../outside", work.join("in")).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "secret", "control");
        assert_eq!(shown(), None);

        std::fs::remove_file(work.join("in")).unwrap();
        std::fs::create_dir(work.join("in")).unwrap();
        let pipe = rustix::fs::FileType::Fifo;
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &file, pipe, mode, 0).unwrap();
        assert_eq!(shown(), None);
    }
}
