//! The journal as the rest of Palyra sees it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use palyra_core::entry::{Entry, Fold, Recorded, Row, Stream};
use palyra_core::{Blob, CallId, Clock, Commitment, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};

use crate::attestation::{AttestationFile, ProvenEntry};
use crate::batch::{Append, Appended, Committed, Expected, Prepared, StreamAppend};
use crate::blobs::{self, BlobKey, Kept, Sealed};
use crate::checkpoints::Checkpoints;
use crate::error::JournalError;
use crate::keys::JournalKeys;
use crate::nodes;
use crate::projections::Projections;
use crate::proof::{self, Checkpoint, Hash, Note, SignerKey, VerifierKey};
use crate::queries::{self, Readers, RowQuery};
use crate::schema;
use crate::sealing::Sealer;
use crate::segment::{self, ExportFailed};
use crate::unattested::Unattested;
use crate::writer::{self, Request, Writer};

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
    threads: Vec<JoinHandle<()>>,
    readers: Readers,
    shared: Arc<Shared>,
    signer: Arc<SignerKey>,
    key: VerifierKey,
    blob_key: Arc<BlobKey>,
    checkpoints: Arc<Checkpoints>,
    folds: Vec<Arc<dyn Fold>>,
    path: PathBuf,
    /// One copy is made at a time.
    copying: Mutex<()>,
}

impl JournalStore {
    /// Opens the journal, or makes an empty one (mode 0600) in a folder that exists.
    ///
    /// Every fold keeps a projection. One that this file has not seen before is fed all entries
    /// first; rows of one that is no longer given are dropped. A fold whose rule changes takes a
    /// new name.
    ///
    /// Every group of entries is sealed with the key. When it is another one than so far, the
    /// first thing recorded is that it took over, and whether the old one vouches for it.
    ///
    /// # Errors
    /// The file cannot be opened, is damaged, is something else or comes from a later version;
    /// it is left as it was.
    pub fn open(
        path: &Path,
        folds: Vec<Box<dyn Fold>>,
        clock: Arc<dyn Clock>,
        keys: JournalKeys,
    ) -> Result<Self, JournalError> {
        let cannot = |source| JournalError::Open {
            path: path.to_owned(),
            source: Arc::new(source),
        };
        // A relative path would follow the working directory, and `file:` is a URI to SQLite.
        let path = std::path::absolute(path).map_err(cannot)?;
        let mut folds: Vec<Arc<dyn Fold>> = folds.into_iter().map(Arc::from).collect();
        folds.push(Arc::new(Unattested));
        let mut projections = Projections::new(folds.clone())?;
        let mut connection = schema::open_writer(&path)?;
        projections.reconcile(&mut connection)?;
        let blob_key = keys.blobs();
        let opened = Sealer::open(&mut connection, keys)?;
        blobs::upgrade(&mut connection, &blob_key)?;
        blobs::warn_of_another_key(&connection, &blob_key)?;
        let signer = opened.sealer.key();
        let shared = Arc::new(Shared::default());
        let checkpoints = Checkpoints::of(&mut connection, schema::connect(&path)?)?;
        let writer = Writer::new(
            connection,
            checkpoints,
            projections,
            opened,
            clock,
            Arc::clone(&shared),
        )?;
        let log = || schema::open_log(&path);
        shared.sync(&log().map_err(cannot)?, writer.head())?;
        let checkpoints = writer.checkpoints();
        // An erasure that the end of a daemon cut short: the log may still hold what it erased.
        checkpoints.clear_log_once();
        let (queue, requests) = mpsc::channel(QUEUE);
        let threads = writer::start(writer, requests, log).map_err(cannot)?;
        Ok(Self {
            inner: Arc::new(Inner {
                queue: Some(queue),
                threads,
                readers: Readers::new(path.clone()),
                shared,
                key: signer.verifier(),
                signer,
                blob_key,
                checkpoints,
                folds,
                path,
                copying: Mutex::new(()),
            }),
        })
    }

    /// Appends to several streams and stores blobs in one transaction; returns once it is
    /// durable. Appends that wait at the same time share one sync.
    ///
    /// Dropping the future takes nothing back: what was accepted may still become durable.
    ///
    /// # Errors
    /// A stream is not where it was expected, or the journal could not be written: nothing of
    /// this append is recorded. Only after [`JournalError::Unsynced`] it is open whether the disk
    /// kept it, and the journal takes nothing more until it is opened again.
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
        let blobs = self.sealed(&blobs)?;
        self.send(Prepared::new(streams, blobs)?).await
    }

    /// Seals on this thread: the writer's time is everybody's.
    pub(crate) fn sealed(&self, blobs: &[Committed]) -> Result<Vec<Sealed>, JournalError> {
        let seal = |blob| self.inner.blob_key.seal(blob);
        blobs.iter().map(seal).collect()
    }

    /// An append with something more to it.
    pub(crate) async fn submit_with(
        &self,
        streams: Vec<StreamAppend>,
        more: impl FnOnce(&mut Prepared),
    ) -> Result<Appended, JournalError> {
        let mut batch = Prepared::new(streams, Vec::new())?;
        more(&mut batch);
        self.send(batch).await
    }

    async fn send(&self, batch: Prepared) -> Result<Appended, JournalError> {
        let (reply, answer) = oneshot::channel();
        let queue = self.inner.queue.as_ref().ok_or(JournalError::Closed)?;
        let sent = queue.send(Request { batch, reply }).await;
        sent.map_err(|_| JournalError::Closed)?;
        let (answer, _spent) = answer.await.map_err(|_| JournalError::Closed)?;
        answer
    }

    /// Entries after this place in the whole journal, in order. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read, or an entry in it makes no sense.
    pub fn read(&self, after: u64, limit: usize) -> Result<Vec<Recorded>, JournalError> {
        self.inner
            .readers
            .with(|reader| queries::entries_between(reader, after, self.head(), limit))
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

    /// The key that signs this journal's checkpoints; its name is the journal's.
    #[must_use]
    pub fn key(&self) -> &VerifierKey {
        &self.inner.key
    }

    /// The signed checkpoint about everything that is durable. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read, or what is in it makes no sense.
    pub fn checkpoint(&self) -> Result<Note, JournalError> {
        let head = self.head();
        let note = self
            .inner
            .readers
            .with(|reader| nodes::last_note(reader, head))?;
        note.and_then(|note| note.parse().ok())
            .ok_or_else(|| JournalError::corrupt("the last checkpoint does not read"))
    }

    /// That an entry is one of the first `size`; `None` when it is not, or they are not all
    /// durable. This reads the disk and blocks.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint).
    pub fn prove_inclusion(&self, seq: u64, size: u64) -> Result<Option<Vec<Hash>>, JournalError> {
        let Some(index) = seq.checked_sub(1).filter(|_| size <= self.head()) else {
            return Ok(None);
        };
        self.inner.readers.with(|reader| {
            proof::inclusion(index, size, |level, index| {
                nodes::node(reader, level, index)
            })
        })
    }

    /// That the first `size` entries begin with the first `old`; `None` when they are not all
    /// durable. This reads the disk and blocks.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint).
    pub fn prove_consistency(
        &self,
        old: u64,
        size: u64,
    ) -> Result<Option<Vec<Hash>>, JournalError> {
        if size > self.head() {
            return Ok(None);
        }
        self.inner.readers.with(|reader| {
            proof::consistency(old, size, |level, index| nodes::node(reader, level, index))
        })
    }

    /// Writes everything after this place, up to the last checkpoint, as lines that anybody can
    /// verify ([`crate::verify`]); gives the place of the last entry. This reads the disk and
    /// blocks.
    ///
    /// # Errors
    /// The journal has no such place or could not be read, or `out` refused.
    pub fn export(&self, after: u64, out: &mut dyn Write) -> Result<u64, ExportFailed> {
        let head = self.head();
        if after > head {
            return Err(JournalError::NoSuchPlace { place: after, head }.into());
        }
        let mut written = Ok(0);
        self.inner.readers.with(|reader| {
            written = segment::export(reader, after, head, out);
            Ok(())
        })?;
        written
    }

    /// A call's attestation as a file that proves itself; `None` for a call that was not executed, or
    /// is not over. This reads the disk and blocks.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint).
    pub fn attestation(&self, call: &CallId) -> Result<Option<AttestationFile>, JournalError> {
        let mut streams = vec![call.to_string()];
        let entries = self.read_stream(&Stream::Call(call.clone()))?;
        let over = |recorded: &Recorded| matches!(recorded.entry, Entry::Attested { .. });
        if !entries.iter().any(over) {
            return Ok(None);
        }
        for recorded in entries {
            if let Entry::Admitted { approval, .. } = recorded.entry {
                streams.extend(approval.map(|approval| approval.to_string()));
            }
        }
        let lines = self.inner.readers.with(|reader| {
            let lines = streams.iter().map(|name| queries::lines_of(reader, name));
            lines.collect::<Result<Vec<_>, _>>()
        })?;
        // Later than everything that was just read.
        let checkpoint = self.checkpoint()?;
        let size = Checkpoint::unverified(&checkpoint)
            .map_err(|error| JournalError::corrupt(error.to_string()))?
            .size;
        let mut entries = Vec::new();
        for (seq, line) in lines.into_iter().flatten().filter(|(seq, _)| *seq <= size) {
            let path = self.prove_inclusion(seq, size)?;
            let path = path.ok_or_else(|| JournalError::corrupt(format!("entry {seq} is lost")))?;
            entries.push(ProvenEntry { line, path });
        }
        AttestationFile::new(entries, &checkpoint, &self.inner.signer).map(Some)
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

    /// A blob, compared with its commitment; `None` when it was erased or never was there. This
    /// reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read, or the blob is not what was committed to.
    pub fn blob(&self, commitment: &Commitment) -> Result<Option<Blob>, JournalError> {
        match self.kept(commitment)? {
            Kept::Whole(blob) => Ok(Some(blob)),
            Kept::Erased | Kept::Unknown => Ok(None),
            Kept::Unreadable => Err(JournalError::corrupt(format!(
                "the blob {} does not open: it was changed, or `blobs.key` is another one",
                commitment.0
            ))),
        }
    }

    /// What is left of a blob. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read.
    pub fn kept(&self, commitment: &Commitment) -> Result<Kept, JournalError> {
        let key = &self.inner.blob_key;
        self.inner
            .readers
            .with(|reader| blobs::read(reader, key, commitment))
    }

    pub(crate) fn checkpoints(&self) -> Arc<Checkpoints> {
        Arc::clone(&self.inner.checkpoints)
    }

    pub(crate) fn folds(&self) -> &[Arc<dyn Fold>] {
        &self.inner.folds
    }

    pub(crate) fn path(&self) -> &Path {
        &self.inner.path
    }

    pub(crate) fn copying(&self) -> MutexGuard<'_, ()> {
        let copying = &self.inner.copying;
        copying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The states that rows of a projection are in. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read.
    pub fn states(&self, projection: &str) -> Result<Vec<String>, JournalError> {
        self.inner
            .readers
            .with(|reader| queries::states(reader, projection))
    }

    /// Keys of rows in this state, the last one first, before this key. Rows themselves are not
    /// read. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read.
    pub fn keys(
        &self,
        projection: &str,
        state: &str,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, JournalError> {
        self.inner
            .readers
            .with(|reader| queries::keys(reader, projection, state, before, limit))
    }

    /// The last place whose entry was recorded before this time, if the clock was never set back.
    /// This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read.
    pub fn place_before(&self, at: Timestamp) -> Result<u64, JournalError> {
        let head = self.head();
        self.inner
            .readers
            .with(|reader| queries::place_before(reader, at, head))
    }

    /// Tells the key that seals blobs from others.
    #[must_use]
    pub fn blob_key(&self) -> &str {
        self.inner.blob_key.fingerprint()
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

    /// From now on the disk does, or does not, refuse to sync.
    pub(crate) fn refuse_sync(&self, refuse: bool) {
        let refused = &self.inner.shared.refuse_sync;
        refused.store(refuse, std::sync::atomic::Ordering::SeqCst);
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
        for thread in self.threads.drain(..) {
            // It panicked if this fails, and said so.
            let _ended = thread.join();
        }
    }
}

/// What the writer tells everybody.
pub(crate) struct Shared {
    head: watch::Sender<u64>,
    state: Mutex<JournalState>,
    /// Why the disk cannot be believed any more.
    unsynced: OnceLock<JournalError>,
    #[cfg(test)]
    page_cap: std::sync::atomic::AtomicU32,
    #[cfg(test)]
    refuse_sync: std::sync::atomic::AtomicBool,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            head: watch::Sender::new(0),
            state: Mutex::new(JournalState::Writable),
            unsynced: OnceLock::new(),
            #[cfg(test)]
            page_cap: std::sync::atomic::AtomicU32::new(0),
            #[cfg(test)]
            refuse_sync: std::sync::atomic::AtomicBool::new(false),
        }
    }
}

impl Shared {
    /// Everything up to here is on disk; later groups may have said so before.
    pub(crate) fn durable(&self, head: u64) {
        self.head.send_if_modified(|known| {
            let moved = head > *known;
            *known = head.max(*known);
            moved
        });
    }

    /// Makes what is in the log durable. A sync that failed is never tried again: the kernel may
    /// have dropped the pages and would call the next one a success.
    pub(crate) fn sync(&self, log: &File, head: u64) -> Result<(), JournalError> {
        let synced = log.sync_data();
        #[cfg(test)]
        let synced = synced.and_then(|()| self.refused());
        if let Err(error) = synced {
            let error = JournalError::Unsynced(Arc::new(error));
            tracing::error!(%error, "the journal takes no entries until the daemon is restarted");
            let error = self.unsynced.get_or_init(|| error);
            self.failed(error);
        }
        self.still_synced()?;
        self.durable(head);
        Ok(())
    }

    /// Whether every sync went through.
    pub(crate) fn still_synced(&self) -> Result<(), JournalError> {
        self.unsynced
            .get()
            .map_or(Ok(()), |error| Err(error.clone()))
    }

    /// A group was written.
    pub(crate) fn took(&self) {
        let mut state = self.state();
        if *state != JournalState::Writable && self.unsynced.get().is_none() {
            *state = JournalState::Writable;
            tracing::info!("the journal takes entries again");
        }
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

    #[cfg(test)]
    fn refused(&self) -> std::io::Result<()> {
        let refuse = self.refuse_sync.load(std::sync::atomic::Ordering::SeqCst);
        (!refuse)
            .then_some(())
            .ok_or_else(|| std::io::Error::other("refused"))
    }

    fn state(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
