//! Two threads that take turns at writing.
//!
//! Whoever has the turn collects what waits, inserts it and commits, which writes the pages to the
//! write-ahead log; then the other has the turn, while the first syncs the log, moves the head and
//! answers the appenders. So inserting never waits for the disk, nobody hears of anything before it
//! is durable, and what is durable is always a beginning of what was written.

use std::fs::File;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::checkpoints::Checkpoints;
use crate::error::JournalError;
use crate::shared::{Mark, Shared};
use crate::writer::{Reply, Request, Writer};

/// One writes while the other waits for the disk.
pub(crate) const THREADS: usize = 2;

/// Starts the two threads; they end when every handle of the journal is gone. `log` opens the
/// write-ahead log: a descriptor each, because the kernel tells each descriptor once that pages were
/// lost, and both must hear it.
pub(crate) fn start(
    writer: Writer,
    queue: mpsc::Receiver<Request>,
    log: impl Fn() -> std::io::Result<File> + Send + Sync + 'static,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    let log = Arc::new(log);
    let (shared, checkpoints) = (Arc::clone(&writer.shared), Arc::clone(&writer.checkpoints));
    let turns = Arc::new(Mutex::new(Turn { writer, queue }));
    let thread = |_| {
        let (turns, shared) = (Arc::clone(&turns), Arc::clone(&shared));
        let (checkpoints, open) = (Arc::clone(&checkpoints), Arc::clone(&log));
        let log = open()?;
        std::thread::Builder::new()
            .name("palyra-journal".to_owned())
            .spawn(move || take_turns(&turns, log, &checkpoints, &shared))
    };
    (0..THREADS).map(thread).collect()
}

fn take_turns(turns: &Mutex<Turn>, mut log: File, checkpoints: &Checkpoints, shared: &Arc<Shared>) {
    // Should a fold panic, nobody must believe that the journal still writes.
    let _alarm = Alarm(Arc::clone(shared));
    let mut opened = 0;
    loop {
        // Poisoned: the other one panicked in the middle of a transaction.
        let Ok(mut turn) = turns.lock() else { return };
        let Some(mut written) = turn.take() else {
            return;
        };
        if written.mark.opened != opened {
            // The descriptor so far is of another time, perhaps of another file.
            match shared.fresh_log() {
                Some(anew) => (log, opened) = (anew, written.mark.opened),
                None => written.is_lost(JournalError::lost(), shared),
            }
        }
        written.mark.position = turn.writer.position(&log);
        drop(turn);
        if written.make_durable(&log, shared) {
            let still_synced = || shared.still_synced().is_ok();
            let folded = checkpoints.run_if_due(|| turns.lock().ok(), still_synced);
            if let Err(error) = folded {
                tracing::warn!(%error, "the journal's log could not be folded back yet");
                if matches!(error, JournalError::Unsynced(_)) {
                    shared.failed(&error);
                }
            }
        }
    }
}

/// What one of the threads has at a time.
struct Turn {
    writer: Writer,
    queue: mpsc::Receiver<Request>,
}

impl Turn {
    /// Waits for appends and writes them; `None` once there will be no more.
    fn take(&mut self) -> Option<Written> {
        let first = self.queue.blocking_recv()?;
        if first.batch.is_nothing() {
            self.writer.change_keys();
            self.writer.mend();
        }
        Some(self.writer.group(first, &mut self.queue))
    }
}

/// A group that is in the log or failed to get there; nobody has heard yet.
pub(crate) struct Written {
    pub(crate) outcome: Result<(), JournalError>,
    pub(crate) mark: Mark,
    pub(crate) answers: Vec<(oneshot::Sender<Reply>, Reply)>,
}

impl Written {
    /// It cannot be synced.
    fn is_lost(&mut self, error: JournalError, shared: &Shared) {
        shared.failed(&error);
        self.outcome = Err(error);
    }

    /// Syncs the log, answers everybody in the group, and says whether it is durable.
    fn make_durable(self, log: &File, shared: &Shared) -> bool {
        let outcome = self.outcome.and_then(|()| shared.sync(log, self.mark));
        for (reply, (answer, spent)) in self.answers {
            // A conflict is held back until here: had the group failed, there was none.
            let answer = outcome.clone().and(answer);
            // The appender may be gone; what it appended is durable all the same.
            let _gone = reply.send((answer, spent));
        }
        outcome.is_ok()
    }
}

/// Rings when the thread ends, however it ends.
struct Alarm(Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.closed();
    }
}
