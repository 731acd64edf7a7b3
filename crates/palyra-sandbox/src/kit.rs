//! What a process gets for its call: a temporary folder, a wall, pipes and a report socket.
//!
//! A kit serves one call. The next one is laid by while nobody waits for it, and thrown away
//! unused when the file system has changed since.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use palyra_core::plan::RunAs;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::surround::Reach;
use crate::tmp::{self, TempRoot};
use crate::walls::{View, Wall, Walls};
use crate::wire::CallTmp;

/// How many are laid by, each for another uid or other masks.
const MOST_SPARES: usize = 4;

/// For whom a kit is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct For {
    pub(crate) run_as: RunAs,
    /// Besides what is always masked.
    pub(crate) masked: Vec<PathBuf>,
    /// What it can reach, besides its temporary folder.
    pub(crate) roots: Vec<Reach>,
}

/// Everything for one process.
pub(crate) struct Kit {
    pub(crate) view: Arc<View>,
    pub(crate) tmp: Folder,
    pub(crate) wall: Wall,
    pub(crate) lines: Lines,
}

impl Kit {
    fn make(view: Arc<View>, whose: &For, walls: &Walls, temp: &TempRoot) -> io::Result<Self> {
        let owner = match whose.run_as {
            RunAs::Owner { uid, gid } => Some((uid, gid)),
            RunAs::Daemon | RunAs::Lent { .. } => None,
        };
        let (tmp, handle) = Folder::make_with_handle(temp, owner)?;
        Ok(Self {
            wall: walls.for_process(&view, handle)?,
            view,
            tmp,
            lines: Lines::new()?,
        })
    }
}

/// A call's temporary folder, removed here unless a supervisor has taken that over.
pub(crate) struct Folder {
    made: CallTmp,
    /// The daemon's folder, in which it is.
    within: Arc<OwnedFd>,
    /// It is up to us to remove it.
    ours: bool,
    /// It belongs to another uid.
    foreign: bool,
}

impl Folder {
    /// A fresh one.
    pub(crate) fn make(temp: &TempRoot, owner: Option<(u32, u32)>) -> io::Result<Self> {
        Self::make_with_handle(temp, owner).map(|(folder, _)| folder)
    }

    fn make_with_handle(temp: &TempRoot, owner: Option<(u32, u32)>) -> io::Result<(Self, OwnedFd)> {
        let (made, handle) = temp.folder(owner)?;
        let folder = Self {
            made,
            within: temp.handle(),
            ours: true,
            foreign: owner.is_some(),
        };
        Ok((folder, handle))
    }

    pub(crate) const fn made(&self) -> &CallTmp {
        &self.made
    }

    /// Somebody else removes it.
    pub(crate) const fn hand_over(&mut self) {
        self.ours = false;
    }

    /// The one who should have removed it did not live to do so.
    pub(crate) const fn take_back(&mut self) {
        self.ours = true;
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        let (within, made) = (Arc::clone(&self.within), self.made.clone());
        if self.foreign {
            // With a root daemon's rights nothing is removed that somebody else may have filled.
            return drop(tmp::remove_empty(within, &made));
        }
        // What a call left in it may be large: not on a thread that others wait for.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || tmp::remove(within, &made))),
            Err(_) => drop(tmp::remove(within, &made)),
        }
    }
}

/// Both ends of what connects the daemon with a call.
pub(crate) struct Lines {
    /// Read end and write end.
    pub(crate) stdout: (OwnedFd, OwnedFd),
    pub(crate) stderr: (OwnedFd, OwnedFd),
    /// Our end and the call's.
    pub(crate) report: (OwnedFd, OwnedFd),
}

impl Lines {
    pub(crate) fn new() -> io::Result<Self> {
        let report = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::io::ioctl_fionbio(&report.0, true)?;
        Ok(Self {
            stdout: output_pipe()?,
            stderr: output_pipe()?,
            report,
        })
    }
}

/// A pipe whose reading end does not block; the call's end does, as programs expect.
fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((read, write))
}

/// Kits that were laid by.
#[derive(Default)]
pub(crate) struct Spares(Mutex<Vec<(For, Kit)>>);

impl Spares {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(For, Kit)>> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A kit that fits the file system as it is now: the spare one, or a new one.
    pub(crate) fn take(&self, whose: &For, walls: &Walls, temp: &TempRoot) -> io::Result<Kit> {
        let view = walls.view(&whose.masked, &whose.roots)?;
        let spare = {
            let mut spares = self.lock();
            let at = spares.iter().position(|(other, _)| other == whose);
            at.map(|at| spares.swap_remove(at).1)
        };
        match spare {
            Some(kit) if Arc::ptr_eq(&kit.view, &view) => Ok(kit),
            _ => Kit::make(view, whose, walls, temp),
        }
    }

    /// Lays one by for the next call of the same kind.
    pub(crate) fn lay_by(&self, whose: For, walls: &Walls, temp: &TempRoot) -> io::Result<()> {
        if self.lock().iter().any(|(other, _)| *other == whose) {
            return Ok(());
        }
        let view = walls.view(&whose.masked, &whose.roots)?;
        let kit = Kit::make(view, &whose, walls, temp)?;
        let mut spares = self.lock();
        if spares.len() < MOST_SPARES && !spares.iter().any(|(other, _)| *other == whose) {
            spares.push((whose, kit));
        }
        Ok(())
    }

    /// Throws all away. They are unused, so their folders are empty.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.lock());
        for (_, mut kit) in all {
            kit.tmp.hand_over();
            let _ = tmp::remove_empty(&kit.tmp.within, &kit.tmp.made);
        }
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.clear();
    }
}
