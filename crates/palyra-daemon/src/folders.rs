//! The daemon's own folders and files: 0700 and 0600, ours, locked by one daemon.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use palyra_api::Home;

/// A folder or file of the daemon that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadHome {
    /// The kernel said no.
    #[error("`{}` cannot be used: {source}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It belongs to somebody else.
    #[error(
        "`{}` belongs to uid {owner}, and this is uid {us}; choose another folder with `PALYRA_HOME`",
        .path.display()
    )]
    Foreign {
        /// Which.
        path: PathBuf,
        /// Whose.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// It is a folder in use for something else.
    #[error(
        "`{}` holds other files and is open to others; choose a folder of its own with `PALYRA_HOME`",
        .path.display()
    )]
    NotOurs {
        /// Which.
        path: PathBuf,
    },
    /// Another daemon is there.
    #[error("another palyrad (pid {pid}) uses `{}`; try `palyra status`", .folder.display())]
    Locked {
        /// Where.
        folder: PathBuf,
        /// The other one's pid.
        pid: String,
    },
}

/// One daemon per home: held as long as it lives.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "closing the file lets the lock go")] File);

/// Makes the folders what they must be, and gives their real paths.
///
/// # Errors
/// A folder is not ours, or cannot be made.
pub fn prepare(home: &Home) -> Result<Vec<PathBuf>, BadHome> {
    home.folders()
        .iter()
        .map(|folder| prepare_folder(folder))
        .collect()
}

/// The folder in which the command line remembers what it saw of journals. It is made here so that
/// no call can make it first, and hidden from every call.
#[must_use]
pub fn witness() -> Option<PathBuf> {
    let folder = palyra_api::home::witness_folder(|name| std::env::var_os(name))?;
    let made = prepare_folder(&folder)
        .inspect_err(|error| tracing::warn!(%error, "what is seen of the journal has no place"));
    Some(made.unwrap_or(folder))
}

fn prepare_folder(folder: &Path) -> Result<PathBuf, BadHome> {
    let io = |source| BadHome::Io {
        path: folder.to_owned(),
        source,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(io)?;
    let real = folder.canonicalize().map_err(io)?;
    let found = std::fs::metadata(&real).map_err(io)?;
    let us = rustix::process::geteuid().as_raw();
    if found.uid() != us {
        return Err(BadHome::Foreign {
            path: real,
            owner: found.uid(),
            us,
        });
    }
    if found.mode() & 0o077 != 0 {
        // Tightening a folder in use for something else would lock its users out, and tools
        // would stop seeing it: only an empty or a Palyra folder is made ours.
        if !is_empty_or_ours(&real).map_err(io)? {
            return Err(BadHome::NotOurs { path: real });
        }
    }
    tighten(&real).map_err(io)?;
    Ok(real)
}

/// Closes the folder and the files in it to others. Metadata is the one thing that the sandbox
/// does not keep a call of our own uid from, so this is done at start and now and then.
///
/// # Errors
/// The folder cannot be read or changed.
pub fn tighten(folder: &Path) -> std::io::Result<()> {
    close(folder, 0o700)?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_file() {
            close(&entry.path(), 0o600)?;
        }
    }
    Ok(())
}

fn close(path: &Path, mode: u32) -> std::io::Result<()> {
    let found = std::fs::symlink_metadata(path)?.mode() & 0o777;
    if found & 0o077 == 0 && found & mode == mode {
        return Ok(());
    }
    tracing::warn!(path = %path.display(), found = format!("{found:o}"), "was open to others or shut to us");
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

fn is_empty_or_ours(folder: &Path) -> std::io::Result<bool> {
    let mut empty = true;
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        if Home::owns(&name) {
            return Ok(true);
        }
        empty = false;
    }
    Ok(empty)
}

/// Takes the lock, waiting `patience` for one that is about to let go, or names who has it.
///
/// # Errors
/// Another daemon holds it.
pub fn lock(home: &Home, patience: Duration) -> Result<Lock, BadHome> {
    let end = std::time::Instant::now() + patience;
    loop {
        match try_lock(home) {
            Err(BadHome::Locked { .. }) if std::time::Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(50));
            }
            ended => return ended,
        }
    }
}

fn try_lock(home: &Home) -> Result<Lock, BadHome> {
    let path = home.lock();
    let io = |source| BadHome::Io {
        path: path.clone(),
        source,
    };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            file.read_to_string(&mut pid).map_err(io)?;
            let pid = match pid.trim() {
                "" => "unknown".to_owned(),
                pid => pid.to_owned(),
            };
            return Err(BadHome::Locked {
                folder: home.state().to_owned(),
                pid,
            });
        }
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    file.set_len(0).map_err(io)?;
    file.rewind().map_err(io)?;
    writeln!(file, "{}", std::process::id()).map_err(io)?;
    Ok(Lock(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn folders_and_files_are_closed_to_others() {
        let outer = tempfile::tempdir().unwrap();
        let home = Home::in_folder(&outer.path().join("a/home"));
        let real = prepare(&home).unwrap();
        assert_eq!(mode(&real[0]), 0o700);
        let _lock = lock(&home, Duration::ZERO).unwrap();
        assert_eq!(mode(&home.lock()), 0o600);
    }

    #[test]
    fn a_second_daemon_is_told_the_first_ones_pid() {
        let outer = tempfile::tempdir().unwrap();
        let home = Home::in_folder(outer.path());
        let first = lock(&home, Duration::ZERO).unwrap();
        let error = lock(&home, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(first);
        assert!(lock(&home, Duration::from_secs(9)).is_ok());
    }

    #[test]
    fn a_folder_in_use_for_something_else_is_left_alone() {
        let outer = tempfile::tempdir().unwrap();
        std::fs::set_permissions(outer.path(), Permissions::from_mode(0o755)).unwrap();
        std::fs::write(outer.path().join("thesis.tex"), "x").unwrap();
        let refused = prepare(&Home::in_folder(outer.path()));
        assert!(matches!(refused, Err(BadHome::NotOurs { .. })));
        assert_eq!(mode(outer.path()), 0o755);
    }

    #[test]
    fn what_was_opened_is_closed_again() {
        let outer = tempfile::tempdir().unwrap();
        let home = Home::in_folder(outer.path());
        let _lock = lock(&home, Duration::ZERO).unwrap();
        std::fs::set_permissions(outer.path(), Permissions::from_mode(0o777)).unwrap();
        std::fs::set_permissions(home.lock(), Permissions::from_mode(0o666)).unwrap();
        tighten(outer.path()).unwrap();
        assert_eq!((mode(outer.path()), mode(&home.lock())), (0o700, 0o600));
    }
}
