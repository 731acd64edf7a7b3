//! When the write-ahead log is folded back into the file.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rusqlite::Connection;

use crate::error::JournalError;

/// Pages in the log (4 KiB each) at which it is folded back. A page written again and again in
/// between is copied once, so more is faster; a start after a crash reads them all, so less is
/// quicker then. 48 MiB are read in some 30 ms.
const PAGES: usize = if cfg!(test) { 96 } else { 12_288 };

/// A rest this small is folded back while nobody writes.
const REST: usize = if cfg!(test) { 6 } else { 256 };

/// Passes while others write, until the rest is small.
const PASSES: usize = 4;

/// How long cutting the log waits for readers at a time: as long, nobody can append.
const PATIENCE: Duration = Duration::from_millis(200);

/// How often it is tried at once.
const TRIES: usize = 20;

/// SQLite would do it inside the commit that crosses the line, while that group waits. Here one of
/// the threads does most of it while the other writes, and then has the turn for the rest: only a
/// log that is folded back whole starts again at its beginning, so it cannot grow for ever.
pub(crate) struct Checkpoints {
    /// Pages in the log, told by SQLite at each commit.
    pages: Arc<AtomicUsize>,
    /// Whether they were told since somebody asked.
    told: Arc<AtomicBool>,
    folding: Mutex<Folding>,
    /// How often something was erased that is then in the log,
    erasures: AtomicU64,
    /// and how many of these are not in it any more.
    cleared: AtomicU64,
}

pub(crate) struct Folding {
    /// A connection of its own: the writer's is in the middle of something.
    connection: Connection,
    seen: usize,
    due: usize,
}

impl Checkpoints {
    /// Takes over from SQLite. `writer` is the connection that writes, `own` another to the same
    /// file.
    pub(crate) fn of(writer: &mut Connection, own: Connection) -> Result<Self, JournalError> {
        let checkpoints = Self {
            pages: Arc::default(),
            told: Arc::default(),
            folding: Mutex::new(Folding {
                connection: own,
                seen: 0,
                due: PAGES,
            }),
            erasures: AtomicU64::new(0),
            cleared: AtomicU64::new(0),
        };
        checkpoints.attach(writer)?;
        Ok(checkpoints)
    }

    /// Listens to the connection that writes from now on.
    pub(crate) fn attach(&self, writer: &mut Connection) -> Result<(), JournalError> {
        let (told, known) = (Arc::clone(&self.told), Arc::clone(&self.pages));
        self.told.store(false, Ordering::Relaxed);
        writer.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            known.store(usize::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            told.store(true, Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(())
    }

    /// Pages in the log after a commit since this was asked the last time; `None` when there was
    /// none, or it wrote nothing.
    pub(crate) fn committed(&self) -> Option<u64> {
        let told = self.told.swap(false, Ordering::Relaxed);
        told.then(|| self.pages.load(Ordering::Relaxed) as u64)
    }

    /// Keeps the log from being folded back; `None` while it is.
    pub(crate) fn pause(&self) -> Option<MutexGuard<'_, Folding>> {
        match self.folding.try_lock() {
            Ok(folding) => Some(folding),
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Folds the log back and cuts it to nothing, because it holds what was erased; says whether
    /// that went through. If not, or while the log is in doubt, the mender tries again by itself.
    ///
    /// # Errors
    /// A sync failed: what is in the log is in doubt from now on.
    pub(crate) fn clear_log(&self, still_synced: impl Fn() -> bool) -> Result<bool, JournalError> {
        self.is_unclean();
        for turn in 0..TRIES {
            if turn > 0 {
                std::thread::sleep(PATIENCE);
            }
            if still_synced() && self.clear_log_once()? {
                return Ok(true);
            }
        }
        tracing::warn!("the journal's log still holds what was erased: somebody is reading it");
        Ok(false)
    }

    /// From now on the log holds what was erased.
    pub(crate) fn is_unclean(&self) {
        self.erasures.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether nothing that was erased is left in the log.
    pub(crate) fn log_is_clean(&self) -> bool {
        self.cleared.load(Ordering::SeqCst) >= self.erasures.load(Ordering::SeqCst)
    }

    /// The same, once.
    pub(crate) fn clear_log_once(&self) -> Result<bool, JournalError> {
        let folding = self.folding.lock().unwrap_or_else(PoisonError::into_inner);
        // Something may be erased while it is cut: that is still in it.
        let erasures = self.erasures.load(Ordering::SeqCst);
        match folding.cut().map_err(JournalError::from) {
            Ok(true) => {
                self.cleared.fetch_max(erasures, Ordering::SeqCst);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error @ JournalError::Unsynced(_)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "the journal's log could not be cut yet");
                Ok(false)
            }
        }
    }

    /// Folds the log back when it is long; `turn` keeps the other thread from writing for as long
    /// as what it gives is held. A failure loses nothing: the log stays as it is. But a log that is
    /// in doubt (`still_synced`) must not be folded back: after the next cut of the power it might
    /// be gone, with half of it in the file.
    pub(crate) fn run_if_due<T>(
        &self,
        turn: impl FnOnce() -> Option<T>,
        still_synced: impl Fn() -> bool,
    ) -> Result<(), JournalError> {
        let pages = self.pages.load(Ordering::Relaxed);
        // Taken: the other thread is at it.
        let Some(mut folding) = self.pause() else {
            return Ok(());
        };
        if !folding.is_due(pages) || !still_synced() {
            return Ok(());
        }
        Ok(folding.run(turn, still_synced)?)
    }
}

impl Folding {
    const fn is_due(&mut self, pages: usize) -> bool {
        if pages < self.seen {
            // It was folded back completely and started again.
            self.due = PAGES;
        }
        self.seen = pages;
        if pages < self.due {
            return false;
        }
        // A reader in the middle of the log stops it there; it is tried again a little later.
        self.due = pages.saturating_add(PAGES / 4);
        true
    }

    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Goes on with another connection; gives the one so far.
    pub(crate) const fn replace(&mut self, connection: Connection) -> Connection {
        std::mem::replace(&mut self.connection, connection)
    }

    fn run<T>(
        &self,
        turn: impl FnOnce() -> Option<T>,
        still_synced: impl Fn() -> bool,
    ) -> Result<(), rusqlite::Error> {
        for _ in 0..PASSES {
            if self.pass()? < REST {
                break;
            }
        }
        let Some(_turn) = turn() else { return Ok(()) };
        if !still_synced() {
            return Ok(());
        }
        self.pass().map(drop)
    }

    /// Folds everything back and cuts the log, unless somebody reads it.
    fn cut(&self) -> Result<bool, rusqlite::Error> {
        self.connection.busy_timeout(PATIENCE)?;
        // A connection that stands in for one that could not be opened has no log at all: -1.
        let (busy, pages): (i64, i64) = self
            .connection
            .prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(busy == 0 && pages != -1)
    }

    /// Folds back what nobody reads; gives how much is left, as far as that is known.
    fn pass(&self) -> Result<usize, rusqlite::Error> {
        let (pages, folded): (i64, i64) = self
            .connection
            .prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?
            .query_row([], |row| Ok((row.get(1)?, row.get(2)?)))?;
        Ok(usize::try_from(pages - folded).unwrap_or(0))
    }
}
