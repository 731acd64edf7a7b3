//! The journal as the rest of Palyra sees it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use palyra_core::entry::{Entry, Fold, Recorded, Row, Stream};
use palyra_core::{Blob, CallId, Clock, Commitment};
use tokio::sync::{mpsc, oneshot, watch};

use crate::batch::{Append, Appended, Committed, Expected, Prepared, StreamAppend};
use crate::error::JournalError;
use crate::projections::Projections;
use crate::queries::{self, Readers, RowQuery};
use crate::schema;
use crate::unattested::Unattested;
use crate::writer::{Request, Writer};

/// How many appends may wait; beyond that, appenders wait to be let in.
const QUEUE: usize = 1_024;

/// Whether the journal takes entries. Reading goes on either way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalState {
    /// The last append went through.
    Writable,
    /// The last append failed; the next one tries again.
    Unwritable {
        /// For a person.
        why: String,
    },
}

/// A handle of the journal; clones share one file and one writer.
///
/// When the last handle is dropped, what was accepted is written and the file is closed.
#[derive(Clone)]
pub struct JournalStore {
    inner: Arc<Inner>,
}

struct Inner {
    queue: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
    readers: Readers,
    shared: Arc<Shared>,
}

impl JournalStore {
    /// Opens the journal, or makes an empty one (mode 0600) in a folder that exists.
    ///
    /// Every fold keeps a projection. One that this file has not seen before is fed all entries
    /// first; rows of one that is no longer given are dropped. A fold whose rule changes takes a
    /// new name.
    ///
    /// # Errors
    /// The file cannot be opened, is damaged, is something else or comes from a later version;
    /// it is left as it was.
    pub fn open(
        path: &Path,
        folds: Vec<Box<dyn Fold>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, JournalError> {
        let cannot = |source| JournalError::Open {
            path: path.to_owned(),
            source: Arc::new(source),
        };
        // A relative path would follow the working directory, and `file:` is a URI to SQLite.
        let path = std::path::absolute(path).map_err(cannot)?;
        let mut folds = folds;
        folds.push(Box::new(Unattested));
        let mut projections = Projections::new(folds)?;
        let mut connection = schema::open_writer(&path)?;
        projections.reconcile(&mut connection)?;
        let shared = Arc::new(Shared::default());
        let writer = Writer::new(connection, projections, clock, Arc::clone(&shared))?;
        let (queue, requests) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("palyra-journal".to_owned())
            .spawn(move || writer.run(requests))
            .map_err(cannot)?;
        Ok(Self {
            inner: Arc::new(Inner {
                queue: Some(queue),
                writer: Some(thread),
                readers: Readers::new(path),
                shared,
            }),
        })
    }

    /// Appends to several streams and stores blobs in one transaction; returns once it is
    /// durable. Appends that wait at the same time share one sync.
    ///
    /// Dropping the future takes nothing back: what was accepted may still become durable.
    ///
    /// # Errors
    /// A stream is not where it was expected, or the journal could not be written. Either way
    /// nothing of this append is recorded.
    pub async fn append(&self, batch: Append) -> Result<Appended, JournalError> {
        let blobs = batch.blobs.into_iter().map(Committed::from).collect();
        self.submit(batch.streams, blobs).await
    }

    /// Appends to one stream if it is where it is expected.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn append_if(
        &self,
        stream: Stream,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, JournalError> {
        let only = StreamAppend {
            stream,
            expected,
            entries,
        };
        self.submit(vec![only], Vec::new()).await
    }

    pub(crate) async fn submit(
        &self,
        streams: Vec<StreamAppend>,
        blobs: Vec<Committed>,
    ) -> Result<Appended, JournalError> {
        let batch = Prepared::new(streams, blobs)?;
        let (reply, answer) = oneshot::channel();
        let queue = self.inner.queue.as_ref().ok_or(JournalError::Closed)?;
        let sent = queue.send(Request { batch, reply }).await;
        sent.map_err(|_| JournalError::Closed)?;
        answer.await.unwrap_or(Err(JournalError::Closed))
    }

    /// Entries after this place in the whole journal, in order. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read, or an entry in it makes no sense.
    pub fn read(&self, after: u64, limit: usize) -> Result<Vec<Recorded>, JournalError> {
        self.inner
            .readers
            .with(|reader| queries::entries_after(reader, after, limit))
    }

    /// All entries of one stream, in order. This reads the disk and blocks.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_stream(&self, stream: &Stream) -> Result<Vec<Recorded>, JournalError> {
        let name = stream.to_string();
        self.inner
            .readers
            .with(|reader| queries::entries_of(reader, &name))
    }

    /// The place of the last durable entry; 0 when there is none.
    #[must_use]
    pub fn head(&self) -> u64 {
        *self.inner.shared.head.borrow()
    }

    /// One row of a projection. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read.
    pub fn row(&self, projection: &str, key: &str) -> Result<Option<Row>, JournalError> {
        self.inner
            .readers
            .with(|reader| queries::row(reader, projection, key))
    }

    /// Rows of a projection, in key order. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read.
    pub fn rows(&self, projection: &str, query: &RowQuery) -> Result<Vec<Row>, JournalError> {
        self.inner
            .readers
            .with(|reader| queries::rows(reader, projection, query))
    }

    /// A blob, compared with its commitment. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read, or the blob is not what was committed to.
    pub fn blob(&self, commitment: &Commitment) -> Result<Option<Blob>, JournalError> {
        self.inner
            .readers
            .with(|reader| queries::blob(reader, commitment))
    }

    /// Calls that were admitted and have no attestation, interruption or closing, oldest first.
    /// At a start these are the ones that were cut short; later, also the ones that run.
    ///
    /// # Errors
    /// The file could not be read.
    pub fn unattested(&self) -> Result<Vec<CallId>, JournalError> {
        let all = RowQuery {
            state: None,
            before: None,
            limit: usize::MAX,
            newest_first: false,
        };
        let call = |row: Row| {
            let wrong = |_| JournalError::corrupt(format!("`{}` was admitted", row.key));
            row.key.parse().map_err(wrong)
        };
        let rows = self.rows(Unattested::NAME, &all)?;
        rows.into_iter().map(call).collect()
    }

    /// The head, told anew each time it moved. It moves after durability, before the appender
    /// hears; several moves may be told as one.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.inner.shared.head.subscribe()
    }

    /// Whether the last append went through.
    #[must_use]
    pub fn state(&self) -> JournalState {
        self.inner.shared.state().clone()
    }
}

#[cfg(test)]
impl JournalStore {
    /// From the next group on the file may have this many pages; 0 lifts the cap.
    pub(crate) fn cap(&self, pages: u32) {
        let cap = &self.inner.shared.page_cap;
        cap.store(pages, std::sync::atomic::Ordering::SeqCst);
    }
}

impl std::fmt::Debug for JournalStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalStore")
            .field("head", &self.head())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The writer is the last to close, so that it is the one to tidy up the log.
        self.readers.close();
        drop(self.queue.take());
        if let Some(writer) = self.writer.take() {
            // It panicked if this fails, and said so.
            let _ended = writer.join();
        }
    }
}

/// What the writer tells everybody.
pub(crate) struct Shared {
    head: watch::Sender<u64>,
    state: Mutex<JournalState>,
    #[cfg(test)]
    page_cap: std::sync::atomic::AtomicU32,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            head: watch::Sender::new(0),
            state: Mutex::new(JournalState::Writable),
            #[cfg(test)]
            page_cap: std::sync::atomic::AtomicU32::new(0),
        }
    }
}

impl Shared {
    /// Everything up to here is on disk.
    pub(crate) fn durable(&self, head: u64) {
        let mut state = self.state();
        if *state != JournalState::Writable {
            *state = JournalState::Writable;
            tracing::info!("the journal takes entries again");
        }
        drop(state);
        self.head.send_replace(head);
    }

    /// A group was lost.
    pub(crate) fn failed(&self, error: &JournalError) {
        let mut state = self.state();
        if *state == JournalState::Writable {
            tracing::error!(%error, "the journal takes no entries; nothing executes until it does");
        }
        *state = JournalState::Unwritable {
            why: error.to_string(),
        };
    }

    /// The writer is gone.
    pub(crate) fn closed(&self) {
        *self.state() = JournalState::Unwritable {
            why: JournalError::Closed.to_string(),
        };
    }

    /// Caps the file's size for the writer's connection, which is how a disk gets full in tests.
    #[cfg(test)]
    pub(crate) fn cap_pages(&self, writer: &rusqlite::Connection) -> Result<(), JournalError> {
        let pages = self.page_cap.load(std::sync::atomic::Ordering::SeqCst);
        let pages = if pages == 0 { u32::MAX - 1 } else { pages };
        writer.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
