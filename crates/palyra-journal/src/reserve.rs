//! Space that is kept for a full disk, so that what ends can still be recorded.
//!
//! A file beside the journal holds some room. When the disk is full it is given up, and from then on
//! the journal takes only what ends something (a denial, a report, an expiry) and nothing that
//! begins. Once there is room for the file again, it is made again, and everything is as before.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use palyra_core::entry::Entry;
use rustix::fs::{FallocateFlags, fallocate, statvfs};

use crate::batch::Prepared;
use crate::error::JournalError;
use crate::schema;
use crate::writer::{Group, Writer};

/// What is kept on a disk with room: some hundred denials, each a commit of its own.
const MOST: u64 = 4 << 20;

/// Less than this is not worth keeping.
const LEAST: u64 = 128 << 10;

/// A small disk is not to be filled with what is kept for the day it is full.
const PART: u64 = 4;

/// What ends something is small; what is larger would take the room of many others.
const LARGEST: usize = 64 << 10;

/// The room that is kept.
pub(crate) struct Reserve {
    file: PathBuf,
    held: Held,
}

#[derive(Clone, Copy)]
enum Held {
    /// It is there.
    Kept { size: u64 },
    /// There never was room for it.
    Never,
    /// It was given up: the disk is full.
    Released { size: u64 },
}

impl Reserve {
    /// Keeps some room beside the journal, if there is any.
    pub(crate) fn beside(journal: &Path) -> Self {
        let file = schema::beside(journal, "-reserve");
        let held = match make(&file, None) {
            Ok(size) => Held::Kept { size },
            Err(error) => {
                tracing::warn!(%error, "no room is kept for the journal on a full disk");
                Held::Never
            }
        };
        Self { file, held }
    }

    /// Gives the room up; `false` when there is none to give.
    pub(crate) fn release(&mut self) -> bool {
        let Held::Kept { size } = self.held else {
            return false;
        };
        if let Err(error) = fs::remove_file(&self.file) {
            tracing::error!(%error, "the room kept for a full disk cannot be given up");
            return false;
        }
        tracing::warn!("the disk is full: the journal takes only what ends something");
        self.held = Held::Released { size };
        true
    }

    /// Keeps room again, once there is some.
    pub(crate) fn look(&mut self) {
        if let Held::Released { size } = self.held
            && let Ok(size) = make(&self.file, Some(size))
        {
            tracing::info!("there is room again for the journal");
            self.held = Held::Kept { size };
        }
    }

    /// Whether it was given up.
    pub(crate) const fn is_released(&self) -> bool {
        matches!(self.held, Held::Released { .. })
    }
}

/// Makes the file, whole or not at all; gives its size. One that was given up is made again once
/// there is room for it *and* for others: what it gave up itself is no reason.
fn make(file: &Path, again: Option<u64>) -> io::Result<u64> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let found = statvfs(folder)?;
    let kept = fs::metadata(file).map_or(0, |found| found.len());
    let room = found.f_bavail.saturating_mul(found.f_frsize);
    let (size, enough) = match again {
        Some(size) => (size, room >= size.saturating_mul(2)),
        None if kept >= LEAST => (kept, true),
        None => (MOST.min(room / PART), true),
    };
    if size < LEAST || !enough {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false);
    let made = options.mode(0o600).open(file)?;
    fill(&made, size).inspect_err(|_| drop(fs::remove_file(file)))?;
    Ok(size)
}

/// Gives the file its blocks now, and not when somebody writes to it.
fn fill(mut file: &File, size: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, size) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let zeros = vec![0; 64 << 10];
            let mut left = size;
            while left > 0 {
                let now = usize::try_from(left).map_or(zeros.len(), |left| left.min(zeros.len()));
                file.write_all(zeros.get(..now).unwrap_or_default())?;
                left -= now as u64;
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

impl Writer {
    /// Writes of a group that found no room what ends something; the rest is refused.
    pub(crate) fn only_ends(&mut self, group: &mut Group) -> Result<(), JournalError> {
        self.abandon();
        let answers = std::mem::take(&mut group.answers);
        *group = Group::new(group.at);
        let mut outcome = self.begin(group);
        for (reply, (_, mut batch)) in answers {
            let staged = outcome.clone().and_then(|()| self.stage(group, &mut batch));
            let answer = staged.unwrap_or_else(|error| {
                outcome = Err(error.clone());
                Err(error)
            });
            group.answers.push((reply, (answer, batch)));
        }
        outcome.and_then(|()| self.commit(group))
    }
}

impl Prepared {
    /// Whether this may take of the room that is kept: it ends something, and is small.
    pub(crate) fn is_an_end(&self) -> bool {
        let entries = self.streams.iter().flat_map(|stream| &stream.entries);
        self.bytes <= LARGEST
            && entries
                .into_iter()
                .all(|it| is_no_beginning(&it.recorded.entry))
    }
}

/// Whether nothing more follows from it. What leads to a denial is written with the denial.
const fn is_no_beginning(entry: &Entry) -> bool {
    match entry {
        Entry::Proposed { .. }
        | Entry::Decided { .. }
        | Entry::ApprovalDecided { .. }
        | Entry::ApprovalExpired
        | Entry::ApprovalCancelled { .. }
        | Entry::GrantEnded { .. }
        | Entry::PostureSet { .. }
        | Entry::AgentPaused { .. }
        | Entry::Finished { .. }
        | Entry::Attested { .. }
        | Entry::Closed { .. }
        | Entry::Interrupted
        | Entry::AgentRemoved { .. }
        | Entry::PolicyRefused { .. }
        | Entry::PolicyWithdrawn { .. }
        | Entry::Flooded { .. }
        | Entry::DaemonStarted { .. }
        | Entry::AppendedOnce { .. }
        | Entry::QuarantineRestored { .. }
        | Entry::VaultChanged { .. }
        | Entry::SecretAccessed { .. }
        | Entry::SecretInArguments { .. }
        | Entry::AgentResumed { .. }
        | Entry::PresenceChanged { .. }
        | Entry::Notified { .. }
        | Entry::KeyRotated { .. }
        | Entry::BlobErased { .. } => true,
        Entry::ApprovalRequested { .. }
        | Entry::ApprovalSuperseded { .. }
        | Entry::GrantMade { .. }
        | Entry::GrantSpent { .. }
        | Entry::Admitted { .. }
        | Entry::Advised { .. }
        | Entry::AgentAdded { .. }
        | Entry::PolicyActivated { .. }
        | Entry::PolicyStaged { .. }
        | Entry::ProjectionMended { .. } => false,
    }
}
