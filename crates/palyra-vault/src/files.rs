//! A folder held by its handle: whatever its path leads to later, what was checked is what is used.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use zeroize::Zeroizing;

use crate::VaultError;

/// No file of the vault that is read whole is longer than this.
const MOST_BYTES: u64 = 64 * 1024;

/// A folder that is ours and closed to others.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    handle: OwnedFd,
}

impl Folder {
    /// Opens the folder, which is no link, belongs to us and is closed to others.
    pub(crate) fn open(path: &Path) -> Result<Self, VaultError> {
        let wrong = |why: String| VaultError::Place {
            path: path.to_owned(),
            why,
        };
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let handle = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
            rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => {
                wrong("it is not a folder itself, but a link or a file".to_owned())
            }
            other => wrong(io::Error::from(other).to_string()),
        })?;
        let found = rustix::fs::fstat(&handle).map_err(|error| wrong(error.to_string()))?;
        check(&found).map_err(wrong)?;
        let path = path
            .canonicalize()
            .map_err(|error| wrong(error.to_string()))?;
        let folder = Self { path, handle };
        folder.same()?;
        Ok(folder)
    }

    /// Its real path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its path still leads to it. A change of names under a running daemon would have us
    /// write one vault and read another at the next start.
    pub(crate) fn same(&self) -> Result<(), VaultError> {
        let held = rustix::fs::fstat(&self.handle).map(identity);
        let named = rustix::fs::lstat(&self.path).map(identity);
        match held.is_ok() && held == named {
            true => Ok(()),
            false => Err(self.wrong("", "it was replaced while it was in use")),
        }
    }

    /// Refuses a file here that is a link, foreign, or open to others. Its size, if there is one.
    pub(crate) fn check(&self, name: &str) -> Result<Option<i64>, VaultError> {
        match rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if !FileType::from_raw_mode(found.st_mode).is_file() => {
                Err(self.wrong(name, "it is not a plain file"))
            }
            Ok(found) => check(&found)
                .map(|()| Some(found.st_size))
                .map_err(|why| self.wrong(name, &why)),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(self.wrong(name, &error.to_string())),
        }
    }

    /// Makes an empty file, unless there is one.
    pub(crate) fn touch(&self, name: &str) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(())
    }

    /// A whole file; `None` when there is none.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, VaultError> {
        if self.check(name)?.is_none() {
            return Ok(None);
        }
        let read = || -> io::Result<Zeroizing<Vec<u8>>> {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&self.handle, name, flags, Mode::empty())?;
            let file = File::from(file);
            // Room for all of it at once: a buffer that grows leaves copies behind.
            let room = usize::try_from(file.metadata()?.len().min(MOST_BYTES)).unwrap_or(0) + 1;
            let mut bytes = Zeroizing::new(Vec::with_capacity(room));
            file.take(MOST_BYTES).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read()
            .map(Some)
            .map_err(|error| self.wrong(name, &error.to_string()))
    }

    /// Writes a file whole or not at all.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), VaultError> {
        let fresh = format!("{name}.new");
        let write = || -> io::Result<()> {
            let flags = OFlags::CREATE
                | OFlags::TRUNC
                | OFlags::WRONLY
                | OFlags::NOFOLLOW
                | OFlags::CLOEXEC;
            let mode = Mode::RUSR | Mode::WUSR;
            let mut file = File::from(rustix::fs::openat(&self.handle, &fresh, flags, mode)?);
            rustix::fs::fchmod(&file, mode)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            rustix::fs::renameat(&self.handle, &fresh, &self.handle, name)?;
            rustix::fs::fsync(&self.handle)?;
            Ok(())
        };
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        write().map_err(
            |error| match matches!(error.kind(), StorageFull | QuotaExceeded) {
                true => VaultError::Full,
                false => self.wrong(name, &error.to_string()),
            },
        )
    }

    fn wrong(&self, name: &str, why: &str) -> VaultError {
        VaultError::Place {
            path: match name {
                "" => self.path.clone(),
                name => self.path.join(name),
            },
            why: why.to_owned(),
        }
    }
}

fn identity(found: Stat) -> (u64, u64) {
    (found.st_dev, found.st_ino)
}

fn check(found: &Stat) -> Result<(), String> {
    let us = rustix::process::geteuid().as_raw();
    if found.st_uid != us {
        return Err(format!(
            "it belongs to uid {}, and this is uid {us}",
            found.st_uid
        ));
    }
    match found.st_mode & 0o077 {
        0 => Ok(()),
        _ => Err(format!(
            "it is open to others (mode {:o}); close it with `chmod go-rwx`",
            found.st_mode & 0o777
        )),
    }
}
