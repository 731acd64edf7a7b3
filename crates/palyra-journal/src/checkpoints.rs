//! When the write-ahead log is folded back into the file.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use rusqlite::Connection;

use crate::error::JournalError;

/// Pages in the log (4 KiB each) at which it is folded back. A page written again and again in
/// between is copied once, so more is faster; a start after a crash reads them all, so less is
/// quicker then. 16 MiB read in some 10 ms.
const PAGES: usize = 4_096;

/// A rest this small is folded back while nobody writes.
const REST: usize = 256;

/// Passes while others write, until the rest is small.
const PASSES: usize = 4;

/// SQLite would do it inside the commit that crosses the line, while that group waits. Here one of
/// the threads does most of it while the other writes, and then has the turn for the rest: only a
/// log that is folded back whole starts again at its beginning, so it cannot grow for ever.
pub(crate) struct Checkpoints {
    /// Pages in the log, told by SQLite at each commit.
    pages: Arc<AtomicUsize>,
    folding: Mutex<Folding>,
}

struct Folding {
    /// A connection of its own: the writer's is in the middle of something.
    connection: Connection,
    seen: usize,
    due: usize,
}

impl Checkpoints {
    /// Takes over from SQLite. `writer` is the connection that writes, `own` another to the same
    /// file.
    pub(crate) fn of(writer: &mut Connection, own: Connection) -> Result<Self, JournalError> {
        let pages = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&pages);
        writer.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            told.store(usize::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self {
            pages,
            folding: Mutex::new(Folding {
                connection: own,
                seen: 0,
                due: PAGES,
            }),
        })
    }

    /// Folds the log back when it is long; `turn` keeps the other thread from writing for as long
    /// as what it gives is held. A failure loses nothing: the log stays as it is.
    pub(crate) fn run_if_due<T>(&self, turn: impl FnOnce() -> Option<T>) {
        let pages = self.pages.load(Ordering::Relaxed);
        let mut folding = match self.folding.try_lock() {
            Ok(folding) => folding,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            // The other thread is at it.
            Err(TryLockError::WouldBlock) => return,
        };
        if folding.is_due(pages)
            && let Err(error) = folding.run(turn)
        {
            tracing::warn!(%error, "the journal's log could not be folded back yet");
        }
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

    fn run<T>(&self, turn: impl FnOnce() -> Option<T>) -> Result<(), rusqlite::Error> {
        for _ in 0..PASSES {
            if self.pass()? < REST {
                break;
            }
        }
        let Some(_turn) = turn() else { return Ok(()) };
        self.pass().map(drop)
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
