//! When the write-ahead log is folded back into the file.
//!
//! SQLite would do it inside the commit that crosses a line, while that group waits. Here a thread
//! of its own does it, and rather when nobody writes: folding competes for the disk with the syncs
//! that appenders wait for. Only a log that is folded back whole starts again at its beginning, so
//! beyond a second line it is done in the middle of everything, and what is left after a few passes
//! while nobody may write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use rusqlite::Connection;

use crate::error::JournalError;

/// Pages in the log (4 KiB each) at which it is folded back as soon as nobody writes: 16 MiB.
const PAGES: usize = 4_096;

/// And whether anybody writes or not: 64 MiB. A page written again and again in between is copied
/// once, so more is faster; a start after a crash reads them all, so less is quicker then.
const TOO_MANY: usize = 16_384;

/// Nobody writes when nothing was committed for this long.
const QUIET: Duration = Duration::from_millis(10);

/// A rest this small is folded back while nobody may write.
const REST: usize = 256;

/// Passes while others write, until the rest is small.
const PASSES: usize = 4;

/// What the writer knows of it.
pub(crate) struct Checkpoints {
    log: Arc<Log>,
    due: SyncSender<()>,
}

/// The log as SQLite tells of it at each commit.
#[derive(Default)]
struct Log {
    pages: AtomicUsize,
    commits: AtomicUsize,
}

/// What folds the log back.
pub(crate) struct Folding {
    /// A connection of its own: the writer's is in the middle of something.
    connection: Connection,
    log: Arc<Log>,
    due: Receiver<()>,
    /// Pages at which the next try is worth it.
    next: usize,
}

impl Checkpoints {
    /// Takes over from SQLite. `writer` is the connection that writes, `own` another to the same
    /// file.
    pub(crate) fn of(
        writer: &mut Connection,
        own: Connection,
    ) -> Result<(Self, Folding), JournalError> {
        let log = Arc::new(Log::default());
        let told = Arc::clone(&log);
        writer.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            let pages = usize::try_from(pages).unwrap_or(0);
            told.pages.store(pages, Ordering::Relaxed);
            told.commits.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }))?;
        let (sender, receiver) = sync_channel(1);
        let folding = Folding {
            connection: own,
            log: Arc::clone(&log),
            due: receiver,
            next: PAGES,
        };
        Ok((Self { log, due: sender }, folding))
    }

    /// Has the log folded back soon if it is long.
    pub(crate) fn look(&self) {
        if self.log.pages.load(Ordering::Relaxed) >= PAGES {
            // It knows already, or ended with a panic: then the log grows and nothing is lost.
            let _knows = self.due.try_send(());
        }
    }
}

impl Folding {
    /// Folds the log back whenever that is due, until the writer is gone. `turn` keeps everybody
    /// from writing for as long as what it gives is held. A failure loses nothing: the log stays as
    /// it is.
    pub(crate) fn run<T>(mut self, turn: impl Fn() -> Option<T>) {
        while self.due.recv().is_ok() {
            if self.is_due()
                && let Err(error) = self.fold(&turn)
            {
                tracing::warn!(%error, "the journal's log could not be folded back yet");
            }
        }
    }

    /// Waits until nobody writes or the log is too long.
    fn is_due(&mut self) -> bool {
        loop {
            let pages = self.log.pages.load(Ordering::Relaxed);
            if pages < PAGES {
                // It was folded back completely and started again.
                self.next = PAGES;
            }
            if pages < self.next {
                return false;
            }
            let commits = self.log.commits.load(Ordering::Relaxed);
            if pages < TOO_MANY {
                std::thread::sleep(QUIET);
            }
            if pages >= TOO_MANY || commits == self.log.commits.load(Ordering::Relaxed) {
                // A reader in the middle of the log stops it there; it is tried again later.
                self.next = pages.saturating_add(PAGES / 4);
                return true;
            }
        }
    }

    fn fold<T>(&self, turn: &impl Fn() -> Option<T>) -> Result<(), rusqlite::Error> {
        for _ in 0..PASSES {
            match self.pass()? {
                0 => return Ok(()),
                rest if rest < REST => break,
                _ => {}
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
