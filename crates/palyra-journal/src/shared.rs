//! What the writer tells everybody: how far the journal is durable, and whether it takes entries.

use std::fs::File;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::watch;

use crate::disk;
use crate::error::JournalError;
use crate::log::Position;

/// Whether the journal takes entries. Reading goes on either way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalState {
    /// The last append went through.
    Writable,
    /// The last append failed. The journal tries again by itself, and so does the next append.
    Unwritable {
        /// For a person.
        why: String,
        /// What they can do about it.
        next_step: String,
    },
}

impl JournalState {
    pub(crate) fn because(error: &JournalError) -> Self {
        Self::Unwritable {
            why: error.to_string(),
            next_step: error.remedy().to_owned(),
        }
    }
}

/// A group that is written and not durable yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// The place of its last entry.
    pub(crate) head: u64,
    /// Groups written before it.
    pub(crate) number: u64,
    /// Where it, or the last one before it that wrote anything, ends in the log, if that is known.
    pub(crate) position: Option<Position>,
    /// How often everything had been opened again when it was written.
    pub(crate) opened: u64,
}

/// What is known about the log.
#[derive(Default)]
struct Synced {
    /// Why it cannot be believed.
    broken: Option<JournalError>,
    /// How often everything was opened again. A group from before is lost, whatever a sync of the
    /// descriptors of before says.
    opened: u64,
    /// The last group that is durable, and where it ends, if that is known.
    number: u64,
    position: Option<Position>,
}

pub(crate) struct Shared {
    head: watch::Sender<u64>,
    state: Mutex<JournalState>,
    synced: Mutex<Synced>,
    /// Descriptors of the log from before anything was written to it after it was opened again: one
    /// that is opened later does not hear of what was lost in between.
    fresh_logs: Mutex<Vec<File>>,
    /// Wakes the one who tries again.
    mender: OnceLock<SyncSender<()>>,
    #[cfg(test)]
    page_cap: std::sync::atomic::AtomicU32,
    #[cfg(test)]
    refuse_sync: std::sync::atomic::AtomicBool,
    #[cfg(test)]
    pub(crate) forgetful: std::sync::atomic::AtomicBool,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            head: watch::Sender::new(0),
            state: Mutex::new(JournalState::Writable),
            synced: Mutex::default(),
            fresh_logs: Mutex::default(),
            mender: OnceLock::new(),
            #[cfg(test)]
            page_cap: std::sync::atomic::AtomicU32::new(0),
            #[cfg(test)]
            refuse_sync: std::sync::atomic::AtomicBool::new(false),
            #[cfg(test)]
            forgetful: std::sync::atomic::AtomicBool::new(false),
        }
    }
}

impl Shared {
    /// The place of the last durable entry.
    pub(crate) const fn head(&self) -> &watch::Sender<u64> {
        &self.head
    }

    /// From now on this one is woken when a group is lost.
    pub(crate) fn mended_by(&self, mender: SyncSender<()>) {
        // There is one for each journal.
        let _set = self.mender.set(mender);
    }

    /// Makes what is in the log durable. A sync that failed is never tried again on what it was
    /// about: the kernel may have dropped the pages and would call the next one a success.
    pub(crate) fn sync(&self, log: &File, mark: Mark) -> Result<(), JournalError> {
        let outcome = disk::sync(log);
        #[cfg(test)]
        let outcome = outcome.and_then(|()| self.refused());
        if let Err(error) = outcome {
            let error = JournalError::Unsynced(Arc::new(error));
            self.failed(&error);
            return Err(error);
        }
        let mut synced = self.synced();
        if let Some(broken) = &synced.broken {
            return Err(broken.clone());
        }
        if synced.opened != mark.opened {
            return Err(JournalError::lost());
        }
        if mark.number >= synced.number {
            synced.number = mark.number;
            synced.position = mark.position;
        }
        // Under the lock: from the moment the log is broken, nothing becomes durable.
        self.durable(mark.head);
        Ok(())
    }

    /// Whether what is in the log can be believed.
    pub(crate) fn still_synced(&self) -> Result<(), JournalError> {
        self.synced()
            .broken
            .as_ref()
            .map_or(Ok(()), |error| Err(error.clone()))
    }

    /// How far the log is known to be on disk, if it has to be mended.
    pub(crate) fn broken(&self) -> Option<Option<Position>> {
        let synced = self.synced();
        synced.broken.as_ref().map(|_| synced.position)
    }

    /// The log is what is on disk again, with this as its last entry.
    pub(crate) fn mended(&self, head: u64) {
        let mut synced = self.synced();
        synced.broken = None;
        self.durable(head);
    }

    /// Everything was opened again, and nothing is written to it yet.
    pub(crate) fn opened_again(&self, logs: Vec<File>) {
        *self.fresh_logs() = logs;
        self.synced().opened += 1;
    }

    /// A descriptor of the log as it was opened the last time.
    pub(crate) fn fresh_log(&self) -> Option<File> {
        self.fresh_logs().pop()
    }

    fn fresh_logs(&self) -> MutexGuard<'_, Vec<File>> {
        let logs = &self.fresh_logs;
        logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log could not be mended; this is what everybody hears until it is.
    pub(crate) fn still_broken(&self, error: JournalError) {
        self.synced().broken = Some(error);
    }

    /// Whether this many entries are at least those that somebody was told are durable.
    pub(crate) fn has_all(&self, head: u64) -> Result<(), JournalError> {
        let durable = *self.head.borrow();
        (head >= durable).then_some(()).ok_or_else(|| {
            let what = format!("{durable} entries were durable, and {head} are there");
            JournalError::corrupt(what)
        })
    }

    /// How often everything was opened again.
    pub(crate) fn opened(&self) -> u64 {
        self.synced().opened
    }

    /// A group was written.
    pub(crate) fn took(&self) {
        let mut state = self.state();
        if *state != JournalState::Writable && self.synced().broken.is_none() {
            *state = JournalState::Writable;
            tracing::info!("the journal takes entries again");
        }
    }

    /// A group was lost, or only what ends something is taken.
    pub(crate) fn failed(&self, error: &JournalError) {
        if matches!(error, JournalError::Unsynced(_)) {
            self.synced().broken.get_or_insert_with(|| error.clone());
        }
        let mut state = self.state();
        if *state == JournalState::Writable {
            tracing::error!(%error, "the journal takes no entries; nothing executes until it does");
        }
        *state = JournalState::because(error);
        drop(state);
        self.wake_mender();
    }

    /// There is something to be mended, or to be cut off the log.
    pub(crate) fn wake_mender(&self) {
        if let Some(mender) = self.mender.get() {
            // Full: it is awake already.
            let _woken = mender.try_send(());
        }
    }

    /// The writer is gone.
    pub(crate) fn closed(&self) {
        *self.state() = JournalState::because(&JournalError::Closed);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether entries are taken.
    pub(crate) fn is_writable(&self) -> bool {
        *self.state() == JournalState::Writable
    }

    /// Everything up to here is on disk; later groups may have said so before.
    fn durable(&self, head: u64) {
        self.head.send_if_modified(|known| {
            let moved = head > *known;
            *known = head.max(*known);
            moved
        });
    }

    fn synced(&self) -> MutexGuard<'_, Synced> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Shared {
    /// From the next group on the file may have this many pages; 0 lifts the cap.
    pub(crate) fn cap(&self, pages: u32) {
        let cap = &self.page_cap;
        cap.store(pages, std::sync::atomic::Ordering::SeqCst);
    }

    /// From now on the disk does, or does not, refuse to sync.
    pub(crate) fn refuse_sync(&self, refuse: bool) {
        let refused = &self.refuse_sync;
        refused.store(refuse, std::sync::atomic::Ordering::SeqCst);
    }

    /// Caps the file's size for the writer's connection, which is how a disk gets full in tests.
    pub(crate) fn cap_pages(&self, writer: &rusqlite::Connection) -> Result<(), JournalError> {
        let pages = self.page_cap.load(std::sync::atomic::Ordering::SeqCst);
        let pages = if pages == 0 { u32::MAX - 1 } else { pages };
        writer.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
        if self.forgetful.load(std::sync::atomic::Ordering::SeqCst) {
            writer.release_memory()?;
        }
        Ok(())
    }

    fn refused(&self) -> std::io::Result<()> {
        let refuse = self.refuse_sync.load(std::sync::atomic::Ordering::SeqCst);
        (!refuse)
            .then_some(())
            .ok_or_else(|| std::io::Error::other("refused"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    /// A group of conflicts only is synced before the one it follows: when the log is cut, what was
    /// acknowledged stays.
    #[test]
    fn a_group_that_wrote_nothing_hides_no_end() {
        let log = tempfile::tempfile().unwrap();
        log.write_all_at(&[7; 32], 0).unwrap();
        let end = |frames| Some(Position::of(&log, frames).unwrap());
        let mark = |number, head, position| Mark {
            head,
            number,
            position,
            opened: 0,
        };
        for overtaken in [false, true] {
            let shared = Shared::default();
            shared.sync(&log, mark(1, 5, end(3))).unwrap();
            let (wrote, nothing) = (mark(2, 6, end(8)), mark(3, 6, end(8)));
            let order = if overtaken {
                [nothing, wrote]
            } else {
                [wrote, nothing]
            };
            for mark in order {
                shared.sync(&log, mark).unwrap();
            }
            shared.still_broken(JournalError::lost());
            assert_eq!(shared.broken(), Some(end(8)), "overtaken: {overtaken}");
        }
    }
}
