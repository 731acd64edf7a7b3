//! Journals in temporary folders, and the small things that tests append.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use palyra_core::entry::{Entry, Fold, Recorded, Row, Stream};
use palyra_core::{CallId, Clock, Timestamp};
use palyra_journal::{Append, BlobKey, Expected, JournalKeys, JournalStore, StreamAppend};

/// A clock that moves by one millisecond each time it is looked at: the writer looks once a group,
/// so entries of one commit have one time.
#[derive(Default)]
pub(crate) struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        let ticks = self.0.fetch_add(1, Ordering::Relaxed);
        Timestamp::from_millis(1_794_733_261_000 + ticks)
    }
}

/// The same each time, so that a file can be opened again.
pub(crate) fn keys() -> JournalKeys {
    let secret = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
    JournalKeys::from_text(secret, blob_key()).unwrap()
}

/// The key that seals the blobs of all of them.
pub(crate) fn blob_key() -> BlobKey {
    BlobKey::from_bytes(&[7; 32])
}

/// Takes a closed file back to when blobs lay in it as they are. They open with [`blob_key`].
pub(crate) fn unseal(place: &Place, blobs: &[palyra_core::Blob]) {
    let shell = place.shell();
    shell
        .execute_batch(
            "DROP TABLE blobs; DROP TABLE answered;
             CREATE TABLE blobs (
                 id         INTEGER PRIMARY KEY,
                 commitment BLOB NOT NULL UNIQUE,
                 kind       TEXT NOT NULL,
                 salt       BLOB NOT NULL,
                 bytes      BLOB NOT NULL
             ) STRICT;
             CREATE TRIGGER blobs_are_never_changed BEFORE UPDATE ON blobs
                 BEGIN SELECT RAISE(ABORT, 'blobs are never changed'); END;
             PRAGMA user_version = 2;",
        )
        .unwrap();
    for blob in blobs {
        shell
            .execute(
                "INSERT INTO blobs (commitment, kind, salt, bytes) VALUES (?1, ?2, ?3, ?4)",
                rusqlite::params![
                    blob.commitment().0.as_bytes(),
                    blob.kind.as_str(),
                    blob.salt,
                    blob.bytes
                ],
            )
            .unwrap();
    }
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(Ticking::default())
}

/// A folder that is removed, with a journal in it that can be opened again and again.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("journal.db")
    }

    pub(crate) fn open(&self) -> JournalStore {
        self.open_with(Vec::new())
    }

    pub(crate) fn open_keyed(&self, keys: JournalKeys) -> JournalStore {
        let keys = keys.sealing_with(blob_key());
        JournalStore::open(&self.file(), Vec::new(), clock(), keys).unwrap()
    }

    pub(crate) fn open_with(&self, folds: Vec<Box<dyn Fold>>) -> JournalStore {
        JournalStore::open(&self.file(), folds, clock(), keys()).unwrap()
    }

    /// Keeps the writer from starting a transaction until this is dropped.
    pub(crate) fn hold(&self) -> rusqlite::Connection {
        let holder = self.shell();
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();
        holder
    }

    /// The file as anybody with an SQLite shell sees it.
    pub(crate) fn shell(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.file()).unwrap()
    }
}

pub(crate) fn started(version: impl Into<String>) -> Entry {
    Entry::DaemonStarted {
        version: version.into(),
        blob_key: None,
    }
}

pub(crate) fn to(stream: Stream, expected: Expected, entries: Vec<Entry>) -> StreamAppend {
    StreamAppend {
        stream,
        expected,
        entries,
    }
}

pub(crate) fn all(streams: Vec<StreamAppend>) -> Append {
    Append {
        streams,
        blobs: Vec::new(),
    }
}

pub(crate) fn call() -> CallId {
    CallId::mint(Timestamp::from_millis(1_794_733_261_000))
}

/// Counts the entries of each stream; a stream whose last entry is `interrupted` has no row.
pub(crate) struct Counting(pub(crate) &'static str);

impl Fold for Counting {
    fn name(&self) -> &'static str {
        self.0
    }

    fn key(&self, recorded: &Recorded) -> Option<String> {
        Some(recorded.stream.clone())
    }

    fn fold(&self, before: Option<&[u8]>, recorded: &Recorded) -> Option<Row> {
        let before = before.map_or(0, |value| {
            String::from_utf8_lossy(value).parse::<u64>().unwrap()
        });
        (recorded.entry != Entry::Interrupted).then(|| Row {
            key: recorded.stream.clone(),
            state: (if before.is_multiple_of(2) {
                "odd"
            } else {
                "even"
            })
            .to_owned(),
            value: (before + 1).to_string().into_bytes(),
        })
    }
}

/// Says that a test could not run here; in CI that is a failure.
pub(crate) fn not_run(test: &str, why: &str) {
    use std::io::Write as _;
    assert!(
        std::env::var_os("CI").is_none(),
        "{test} could not run: {why}"
    );
    if let Some(list) = std::env::var_os("PALYRA_NOT_RUN") {
        let list = std::fs::OpenOptions::new().append(true).open(list);
        writeln!(list.unwrap(), "{test}: {why}").unwrap();
    }
}

/// The file as somebody who knows SQLite edits it: triggers are no obstacle.
pub(crate) fn editor(file: &Path) -> rusqlite::Connection {
    let editor = rusqlite::Connection::open(file).unwrap();
    editor
        .set_db_config(
            rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER,
            false,
        )
        .unwrap();
    editor
}

/// The same of a journal that nobody has open: every edit is in the file at once.
pub(crate) fn only_editor(file: &Path) -> rusqlite::Connection {
    let editor = editor(file);
    editor
        .execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;")
        .unwrap();
    editor
}
