//! The journal as the rest of Palyra sees it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use palyra_core::entry::{Entry, Fold, Stream};
use palyra_core::{Clock, Digest};
use tokio::sync::{mpsc, oneshot, watch};

use crate::batch::{Append, Appended, Committed, Expected, Prepared, StreamAppend};
use crate::blobs::Sealed;
use crate::checkpoints::Checkpoints;
use crate::error::JournalError;
use crate::keyring::{Held, Keyring};
use crate::keys::JournalKeys;
use crate::projections::Projections;
use crate::proof::VerifierKey;
use crate::queries::Readers;
use crate::schema;
use crate::sealing::Sealer;
use crate::shared::{JournalState, Mark, Shared};
use crate::turns;
use crate::unattested::Unattested;
use crate::writer::{Request, Writer};
use crate::{backup, mending};

/// How many appends may wait; beyond that, appenders wait to be let in.
const QUEUE: usize = 1_024;

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
    readers: Arc<Readers>,
    shared: Arc<Shared>,
    keyring: Arc<Keyring>,
    /// Keys come and go one after another.
    changing: tokio::sync::Mutex<()>,
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
        Self::open_with(path, folds, clock, Some(keys), |_| {})
    }

    /// Opens it without its keys: it is read, and takes nothing until [`unlock`](Self::unlock).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_locked(
        path: &Path,
        folds: Vec<Box<dyn Fold>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, JournalError> {
        Self::open_with(path, folds, clock, None, |_| {})
    }

    /// Opens a journal that seals nothing, to know what sealing costs. It cannot be opened again.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[cfg(feature = "unsealed")]
    pub fn open_unsealed(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, JournalError> {
        let keys = JournalKeys::generate().map_err(|error| JournalError::key(&error))?;
        Self::open_with(path, Vec::new(), clock, Some(keys), Sealer::switch_off)
    }

    fn open_with(
        path: &Path,
        folds: Vec<Box<dyn Fold>>,
        clock: Arc<dyn Clock>,
        keys: Option<JournalKeys>,
        adjust: impl FnOnce(&mut Sealer),
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
        backup::remove_copies(&path);
        projections.reconcile(&mut connection)?;
        let mut sealer = Sealer::open(&mut connection)?;
        adjust(&mut sealer);
        let keyring = Arc::new(Keyring::default());
        if let Some(signer) = sealer.signer() {
            keyring.knows(signer.clone());
        }
        let shared = Arc::new(Shared::default());
        let checkpoints = Checkpoints::of(&mut connection, schema::connect(&path)?)?;
        let readers = Arc::new(Readers::new(path.clone()));
        let mut writer = Writer::new(
            connection,
            checkpoints,
            projections,
            (sealer, Arc::clone(&keyring)),
            clock,
            Arc::clone(&shared),
            Arc::clone(&readers),
        )?;
        if let Some(keys) = keys {
            writer.take_keys(keys)?;
        }
        let checkpoints = writer.checkpoints();
        // An erasure that the end of a daemon cut short: the log may still hold what it erased.
        checkpoints.is_unclean();
        checkpoints.clear_log_once()?;
        let opened = path.clone();
        let log = move || schema::open_log(&opened);
        let first = Mark {
            head: writer.head(),
            number: 0,
            position: writer.starts_at(&log().map_err(cannot)?),
            opened: 0,
        };
        shared.sync(&log().map_err(cannot)?, first)?;
        let (queue, requests) = mpsc::channel(QUEUE);
        mending::start(&shared, &checkpoints, queue.downgrade()).map_err(cannot)?;
        if !checkpoints.log_is_clean() {
            shared.wake_mender();
        }
        let threads = turns::start(writer, requests, log).map_err(cannot)?;
        Ok(Self {
            inner: Arc::new(Inner {
                queue: Some(queue),
                threads,
                readers,
                shared,
                keyring,
                changing: tokio::sync::Mutex::new(()),
                checkpoints,
                folds,
                path,
                copying: Mutex::new(()),
            }),
        })
    }

    /// Takes entries from now on, sealed with these keys; what [`open`](Self::open) says of keys is so
    /// here. Nothing happens when it has keys.
    ///
    /// # Errors
    /// The keys cannot be used, or the journal could not be written: it has none, as before.
    pub async fn unlock(&self, keys: JournalKeys) -> Result<(), JournalError> {
        let _one_at_a_time = self.inner.changing.lock().await;
        match self.is_locked() {
            true => self.change_keys(Some(keys)).await,
            false => Ok(()),
        }
    }

    /// Forgets the keys. What was accepted is written first.
    ///
    /// # Errors
    /// The writer is gone.
    pub async fn lock(&self) -> Result<(), JournalError> {
        let _one_at_a_time = self.inner.changing.lock().await;
        // From here on nothing is accepted.
        self.inner.keyring.hold(None);
        self.change_keys(None).await
    }

    /// Whether it is without its keys.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.inner.keyring.is_empty()
    }

    async fn change_keys(&self, keys: Option<JournalKeys>) -> Result<(), JournalError> {
        let keyring = &self.inner.keyring;
        keyring.want(keys);
        loop {
            // It may be taken up in the middle of a group, which is no place for other keys.
            let answered = self.enqueue(Prepared::nothing()).await;
            match (keyring.outcome(), answered) {
                (Some(outcome), answered) => return outcome.and(answered.map(drop)),
                (None, Err(JournalError::Closed)) => return Err(JournalError::Closed),
                (None, _) => tokio::task::yield_now().await,
            }
        }
    }

    pub(crate) fn held(&self) -> Result<Arc<Held>, JournalError> {
        self.inner.keyring.held()
    }

    /// Appends to several streams and stores blobs in one transaction; returns once it is
    /// durable. Appends that wait at the same time share one sync.
    ///
    /// Dropping the future takes nothing back: what was accepted may still become durable.
    ///
    /// # Errors
    /// A stream is not where it was expected, or the journal could not be written: nothing of
    /// this append is recorded. Only after [`JournalError::Unsynced`] it is open whether the disk
    /// kept it, and the journal takes nothing more until it has mended itself.
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
        let held = self.held()?;
        let seal = |blob| held.blobs.seal(blob);
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
        self.held()?;
        self.enqueue(batch).await
    }

    async fn enqueue(&self, batch: Prepared) -> Result<Appended, JournalError> {
        let (reply, answer) = oneshot::channel();
        let queue = self.inner.queue.as_ref().ok_or(JournalError::Closed)?;
        let sent = queue.send(Request { batch, reply }).await;
        sent.map_err(|_| JournalError::Closed)?;
        let (answer, _spent) = answer.await.map_err(|_| JournalError::Closed)?;
        answer
    }

    /// The place of the last durable entry; 0 when there is none.
    #[must_use]
    pub fn head(&self) -> u64 {
        *self.inner.shared.head().borrow()
    }

    /// The key that signs this journal's checkpoints; its name is the journal's. `None` for a new
    /// one that was never given a key.
    #[must_use]
    pub fn key(&self) -> Option<VerifierKey> {
        self.inner.keyring.known()
    }

    /// The key of an append as it is recorded.
    pub(crate) fn recorded_key(&self, key: &str) -> Result<Digest, JournalError> {
        Ok(self.held()?.blobs.once(key))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.inner.readers
    }

    pub(crate) fn shared_readers(&self) -> Arc<Readers> {
        Arc::clone(&self.inner.readers)
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

    /// Tells the key that seals blobs from others.
    ///
    /// # Errors
    /// It is not at hand.
    pub fn blob_key(&self) -> Result<String, JournalError> {
        Ok(self.held()?.blobs.fingerprint().to_owned())
    }

    /// The head, told anew each time it moved. It moves after durability, before the appender
    /// hears; several moves may be told as one.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.inner.shared.head().subscribe()
    }

    /// Whether the last append went through.
    #[must_use]
    pub fn state(&self) -> JournalState {
        match self.is_locked() {
            true => JournalState::because(&JournalError::Keyless),
            false => self.inner.shared.state().clone(),
        }
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
        // Whoever else has the file open keeps SQLite from removing the log.
        if !self.checkpoints.log_is_clean() && self.shared.still_synced().is_ok() {
            let _next_start = self.checkpoints.clear_log_once();
        }
    }
}
