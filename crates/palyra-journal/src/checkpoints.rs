//! When the write-ahead log is folded back into the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::Connection;

use crate::error::JournalError;

/// Pages in the log (4 KiB each) at which it is folded back. A page written again and again in
/// between is copied once, so more is faster; a start after a crash reads them all, so less is
/// quicker then. 16 MiB read in some 10 ms.
const PAGES: usize = 4_096;

/// SQLite would do it inside the commit that crosses the line, while that group waits for its
/// answer; here it happens after the answers, on the same thread, so that the log cannot grow
/// faster than it is folded back.
pub(crate) struct Checkpoints {
    /// Pages in the log, told by SQLite at each commit.
    pages: Arc<AtomicUsize>,
    seen: usize,
    due: usize,
}

impl Checkpoints {
    /// Takes over from SQLite.
    pub(crate) fn of(connection: &mut Connection) -> Result<Self, JournalError> {
        let pages = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&pages);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            told.store(usize::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self {
            pages,
            seen: 0,
            due: PAGES,
        })
    }

    /// Folds the log back when it is long. A failure loses nothing: the log stays as it is.
    pub(crate) fn run_if_due(&mut self, connection: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.seen {
            // It was folded back completely and started again.
            self.due = PAGES;
        }
        self.seen = pages;
        if pages < self.due {
            return;
        }
        // A reader in the middle of the log stops it there; it is tried again a little later.
        self.due = pages.saturating_add(PAGES / 4);
        let outcome = connection
            .prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")
            .and_then(|mut statement| statement.query_row([], |_| Ok(())));
        if let Err(error) = outcome {
            tracing::warn!(%error, "the journal's log could not be folded back yet");
        }
    }
}
