//! What can go wrong, for the one who has to do something about it.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::ErrorCode;

use crate::batch::Expected;

/// Why the journal could not do what was asked.
///
/// It is `Clone` because one failed commit answers every append of its group.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// Somebody else appended first.
    #[error("`{stream}` was expected to be {expected} and is at revision {found}")]
    Conflict {
        /// The stream.
        stream: String,
        /// What the appender thought.
        expected: Expected,
        /// Where it is; 0 when it has no entries.
        found: u64,
    },
    /// The disk, or the file's quota, is full.
    #[error("there is no space left on the journal's disk")]
    Full(#[source] Arc<rusqlite::Error>),
    /// The disk refused to read, write or sync.
    #[error("the journal's disk failed: {0}")]
    Io(#[source] Arc<rusqlite::Error>),
    /// The disk did not say that it kept what was written; whether it did is open until the journal
    /// has been mended, which it tries by itself.
    #[error("the journal's disk may have lost what was written: {0}")]
    Unsynced(#[source] Arc<std::io::Error>),
    /// The file may not be written.
    #[error("the journal's file may not be written")]
    ReadOnly(#[source] Arc<rusqlite::Error>),
    /// Another process holds the file.
    #[error("another process holds the journal's file")]
    Locked(#[source] Arc<rusqlite::Error>),
    /// What was read is not what was written.
    #[error("the journal is damaged: {what}")]
    Corrupt {
        /// Where.
        what: String,
    },
    /// The file is something else; it was left as it is.
    #[error("`{}` is not a journal; it was left untouched", path.display())]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a later version; it was left as it is.
    #[error(
        "`{}` was written by a newer palyra (format {found}, this one knows {known}); upgrade palyra",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// The file could not be opened.
    #[error("the journal `{}` cannot be opened: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Arc<std::io::Error>,
    },
    /// An entry that has no spelling, such as one with a path that is not Unicode.
    #[error("a `{kind}` entry cannot be written down: {source}")]
    Unwritable {
        /// Which kind.
        kind: &'static str,
        /// Why.
        source: Arc<serde_json::Error>,
    },
    /// A blob beyond what one row can hold.
    #[error("a blob of {bytes} bytes is more than the {limit} that the journal takes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The most there may be.
        limit: usize,
    },
    /// Two projections under one name.
    #[error("two projections are called `{name}`")]
    TwoFolds {
        /// The name.
        name: &'static str,
    },
    /// The journal's key does not sign.
    #[error("the journal's key cannot be used: {why}")]
    Key {
        /// Why.
        why: String,
    },
    /// The journal's keys are not at hand: it is read, and takes nothing.
    #[error("the journal's keys are in the vault, which is locked")]
    Keyless,
    /// Somebody asks about a place beyond the end.
    #[error("there is no entry {place}; the last one is {head}")]
    NoSuchPlace {
        /// The place.
        place: u64,
        /// The last one there is.
        head: u64,
    },
    /// A key under which something else was appended.
    #[error("the key `{key}` was used to append something else")]
    KeyReused {
        /// The key.
        key: String,
    },
    /// A key that cannot be one.
    #[error("a key of {length} bytes was given; it has 1 to 200")]
    BadKey {
        /// Its length.
        length: usize,
    },
    /// A copy was begun anew too often.
    #[error("the journal was mended, or something was erased, each time it was being copied")]
    GaveWay,
    /// The writer is gone.
    #[error("the journal is closed")]
    Closed,
    /// SQLite refused for a reason of its own.
    #[error("the journal's database failed: {0}")]
    Database(#[source] Arc<rusqlite::Error>),
}

impl JournalError {
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }

    /// Somebody else has the file.
    pub(crate) fn locked() -> Self {
        Self::Locked(Arc::new(failure(rusqlite::ffi::SQLITE_BUSY)))
    }

    /// There is no space for this.
    pub(crate) fn full() -> Self {
        Self::Full(Arc::new(failure(rusqlite::ffi::SQLITE_FULL)))
    }

    /// The log was mended without this group.
    pub(crate) fn lost() -> Self {
        let what = "it was written just before the log was mended";
        Self::Unsynced(Arc::new(std::io::Error::other(what)))
    }

    pub(crate) fn key(why: &impl std::fmt::Display) -> Self {
        Self::Key {
            why: why.to_string(),
        }
    }

    /// What a person can do about it, as one line.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Full(_) => {
                "free disk space, then run it again; `palyra status` shows the journal"
            }
            Self::Io(_) => "check the disk (`dmesg`), then `palyra status`, then run it again",
            Self::Unsynced(_) => {
                "check the disk (`dmesg`); the journal tries again by itself, see `palyra status`"
            }
            Self::ReadOnly(_) => {
                "make the journal's file and folder writable, then check `palyra status`"
            }
            Self::Locked(_) => "stop the other process, then check `palyra status`",
            Self::Corrupt { .. } | Self::NotAJournal { .. } => {
                "move the file aside or restore it from a backup, then start again"
            }
            Self::Newer { .. } => "upgrade palyra, then start again",
            Self::Open { .. } => {
                "make the file and its folder accessible, then check `palyra status` or start again"
            }
            Self::NoSuchPlace { .. } => "see the last entry with `palyra journal tail -n 1`",
            Self::GaveWay => "run it again; `palyra status` shows the journal",
            Self::KeyReused { .. } | Self::BadKey { .. } => "append under another key",
            Self::Conflict { .. } => "read the stream again, then decide again",
            Self::Unwritable { .. } | Self::TooLarge { .. } => "send less, or plain Unicode text",
            Self::Keyless => "open the vault with `palyra vault unlock`",
            Self::Key { .. } => "restore the journal's key from a backup, then start again",
            Self::Closed | Self::TwoFolds { .. } | Self::Database(_) => {
                "check `palyra status` and the daemon's log, then restart the daemon"
            }
        }
    }
}

fn failure(code: std::ffi::c_int) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
}

/// Whether it was SQLite's own sync that failed.
fn is_unsynced(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC))
}

impl From<rusqlite::Error> for JournalError {
    fn from(error: rusqlite::Error) -> Self {
        if is_unsynced(&error) {
            return Self::Unsynced(Arc::new(std::io::Error::other(error)));
        }
        let code = error.sqlite_error_code();
        let corrupt = error.to_string();
        let error = Arc::new(error);
        match code {
            Some(ErrorCode::DiskFull) => Self::Full(error),
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => Self::Io(error),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly(error),
            // The last one is what SQLite says after losing a hundred races for a lock.
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed,
            ) => Self::Locked(error),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::corrupt(corrupt),
            _ => Self::Database(error),
        }
    }
}
