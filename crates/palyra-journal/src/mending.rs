//! Mending: how the journal takes entries again once the cause is gone, without a restart.
//!
//! A failed write leaves nothing behind that the next group would not write over, so it is just
//! tried again. A failed *sync*, or a page that reads as something else, puts in doubt what this
//! process believes about its files. Then every connection is closed, the log is cut back to where
//! it is known to be on disk ([`crate::log`]), everything is read anew, and the end of the history is
//! compared with its own signed checkpoint before anything is written after it.
//!
//! Nothing that was acknowledged is ever cut, and nothing that was not is written a second time:
//! its appender was told, and may try again.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::{mpsc, oneshot};

use crate::batch::Prepared;
use crate::checkpoints::{Checkpoints, Folding};
use crate::error::JournalError;
use crate::log;
use crate::schema;
use crate::shared::Shared;
use crate::turns::THREADS;
use crate::writer::{Request, Writer, data_version};

/// The first try comes this soon,
const FIRST: Duration = Duration::from_millis(50);

/// and later ones are at most this far apart.
const LONGEST: Duration = Duration::from_secs(5);

/// Starts the one who tries again while nobody appends. It ends with the journal.
pub(crate) fn start(
    shared: &Arc<Shared>,
    checkpoints: &Arc<Checkpoints>,
    queue: mpsc::WeakSender<Request>,
) -> std::io::Result<()> {
    let (wake, woken): (SyncSender<()>, Receiver<()>) = sync_channel(1);
    shared.mended_by(wake);
    let mender = Mender {
        shared: Arc::downgrade(shared),
        checkpoints: Arc::downgrade(checkpoints),
        queue,
    };
    std::thread::Builder::new()
        .name("palyra-mender".to_owned())
        .spawn(move || while woken.recv().is_ok() && mender.try_until(&woken) {})
        .map(drop)
}

/// Knows the journal without keeping it open.
struct Mender {
    shared: Weak<Shared>,
    checkpoints: Weak<Checkpoints>,
    queue: mpsc::WeakSender<Request>,
}

impl Mender {
    /// Tries until the journal takes entries and its log has nothing that was erased; `false` once
    /// there is none.
    fn try_until(&self, woken: &Receiver<()>) -> bool {
        let mut pause = FIRST;
        loop {
            let until = std::time::Instant::now() + pause;
            // Whoever fails meanwhile wakes in vain: tries are this far apart.
            loop {
                let left = until.saturating_duration_since(std::time::Instant::now());
                match woken.recv_timeout(left) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return false,
                }
            }
            match self.try_once() {
                Some(false) => {}
                Some(true) => return true,
                None => return false,
            }
            pause = LONGEST.min(pause * 2);
        }
    }

    /// Whether all is well; `None` when there is no journal.
    fn try_once(&self) -> Option<bool> {
        let (shared, checkpoints) = (self.shared.upgrade()?, self.checkpoints.upgrade()?);
        if !shared.is_writable() {
            // The writer must be able to end meanwhile.
            drop((shared, checkpoints));
            return probe(&self.queue).then_some(false);
        }
        if checkpoints.log_is_clean() {
            return Some(true);
        }
        if shared.still_synced().is_err() {
            return Some(false);
        }
        let cleared = checkpoints.clear_log_once();
        Some(cleared.unwrap_or_else(|error| {
            shared.failed(&error);
            false
        }))
    }
}

/// Appends nothing, to see whether it would go through; `false` when there is no journal.
fn probe(queue: &mpsc::WeakSender<Request>) -> bool {
    let (reply, answer) = oneshot::channel();
    let batch = Prepared::nothing();
    let sent = match queue.upgrade() {
        Some(queue) => queue.blocking_send(Request { batch, reply }).is_ok(),
        None => false,
    };
    // What it says is in the journal's state.
    sent && answer.blocking_recv().is_ok()
}

impl Writer {
    /// Brings the log back to what is on disk, if that is in doubt.
    pub(crate) fn mend(&mut self) {
        let Some(known) = self.shared.broken() else {
            return;
        };
        match self.start_over(|path| log::cut(path, known)) {
            Ok(()) => {
                self.shared.mended(self.head);
                tracing::info!(head = self.head, "the journal was read anew and is whole");
            }
            Err(error) => {
                tracing::warn!(%error, "the journal cannot be mended yet");
                self.shared.still_broken(error);
            }
        }
    }

    /// Opens everything again, by name, after the file could not be read or written, or read as
    /// nonsense. The next time it may not; and what lies there now may be on another mount.
    pub(crate) fn reconnect(&mut self) -> Result<(), JournalError> {
        self.start_over(|_| Ok(()))
    }

    /// Closes all connections, does something to the log, and reads the journal as it then is.
    fn start_over(
        &mut self,
        meanwhile: impl FnOnce(&Path) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let checkpoints = Arc::clone(&self.checkpoints);
        // Taken: the other thread folds the log back and waits for this one's turn.
        let mut folding = checkpoints.pause().ok_or_else(JournalError::locked)?;
        let readers = Arc::clone(&self.readers);
        let _nobody = readers.pause().ok_or_else(JournalError::locked)?;
        self.forget();
        close(std::mem::replace(
            &mut self.connection,
            Connection::open_in_memory()?,
        ))?;
        close(folding.replace(Connection::open_in_memory()?))?;
        self.read_anew(meanwhile, &mut folding).inspect_err(|_| {
            // Whoever else has the journal open must not be the last to close it: that one would
            // fold the log back.
            if let Ok(held) = hold(readers.path()) {
                self.connection = held;
            }
        })
    }

    fn read_anew(
        &mut self,
        meanwhile: impl FnOnce(&Path) -> Result<(), JournalError>,
        folding: &mut Folding,
    ) -> Result<(), JournalError> {
        let (readers, checkpoints) = (Arc::clone(&self.readers), Arc::clone(&self.checkpoints));
        let path = readers.path();
        if !path.exists() {
            return Err(JournalError::Open {
                path: path.to_owned(),
                source: Arc::new(std::io::ErrorKind::NotFound.into()),
            });
        }
        meanwhile(path)?;
        let mut connection = schema::open_writer_again(path)?;
        let own = schema::connect(path)?;
        checkpoints.attach(&mut connection)?;
        let head = self.sealer.reload(&connection)?;
        self.sealer.compare_end(&connection)?;
        self.shared.has_all(head)?;
        self.data_version = data_version(&connection)?;
        let logs = (0..THREADS).map(|_| schema::open_log(path));
        let logs = logs
            .collect::<Result<_, _>>()
            .map_err(|error| JournalError::Unsynced(Arc::new(error)))?;
        self.connection = connection;
        let _empty = folding.replace(own);
        self.head = head;
        self.lost = false;
        self.doubtful = false;
        self.position = None;
        // Groups from before are on their way to the descriptors of before.
        self.shared.opened_again(logs);
        Ok(())
    }
}

impl Writer {
    /// Whether the file takes anything at all. For a group that would write nothing.
    pub(crate) fn touch(&self) -> Result<(), JournalError> {
        schema::touch(&self.connection)
    }
}

/// A log that is in doubt is not folded back when the journal is closed, either.
impl Drop for Writer {
    fn drop(&mut self) {
        if self.shared.still_synced().is_ok() {
            return;
        }
        let keep = |connection: &Connection| {
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        };
        // It fails for a connection that is of no use either.
        let _kept = keep(&self.connection);
        if let Some(folding) = self.checkpoints.pause() {
            let _kept = keep(folding.connection());
        }
    }
}

/// A connection that is there and does nothing.
fn hold(path: &Path) -> Result<Connection, JournalError> {
    let connection = schema::connect(path)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

/// Closes a connection without folding a log back that is in doubt.
fn close(connection: Connection) -> Result<(), JournalError> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.close().map_err(|(_, error)| error.into())
}
