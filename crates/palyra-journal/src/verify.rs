//! Verifying a journal without a daemon: a database file, or an exported segment.
//!
//! Every leaf is computed from its entry, the tree from the leaves, and every checkpoint's root and
//! signature is compared. Three answers are kept apart, because each can be true without the
//! others:
//!
//! - **Integrity**: what is there is what was signed.
//! - **Completeness**: nothing was cut off the end. A file alone cannot show that; a checkpoint that
//!   was kept elsewhere can, up to its own size.
//! - **Anchored range**: how far a key or checkpoint that *you* trust stands for it. A forger can
//!   sign a history of their own with a key of their own, and every signature in it is right.
//!
//! What verification cannot show is that the daemon told the truth when it wrote.

mod answers;
mod database;
mod eras;
mod files;
mod segment;
mod walk;

use std::io::{self, BufReader, Read as _, Seek as _};
use std::path::Path;
use std::sync::Arc;

pub use files::{open_regular, read_bounded};

use crate::blobs::BlobKey;
use crate::proof::{Checkpoint, NotACheckpoint, Note, VerifierKey};
use crate::schema;

/// How a database file begins.
const SQLITE: &[u8; 16] = b"SQLite format 3\0";

/// What the one who verifies believes already.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    keys: Vec<VerifierKey>,
    pinned: Vec<(Checkpoint, Note)>,
    blobs: Option<Arc<BlobKey>>,
}

impl Trust {
    /// Trusts nobody: the answer can be "self-consistent" at best.
    #[must_use]
    pub fn nobody() -> Self {
        Self::default()
    }

    /// Also believes what this key signs.
    #[must_use]
    pub fn key(mut self, key: VerifierKey) -> Self {
        self.keys.push(key);
        self
    }

    /// Also looks into blobs, which this key opens. Without it, only that they are there is seen.
    #[must_use]
    pub fn opening(mut self, key: BlobKey) -> Self {
        self.blobs = Some(Arc::new(key));
        self
    }

    fn blob_key(&self) -> Option<&BlobKey> {
        self.blobs.as_deref()
    }

    /// Also believes this checkpoint, because it was kept where nobody could change it.
    ///
    /// # Errors
    /// It is not a checkpoint.
    pub fn pinned(mut self, note: Note) -> Result<Self, NotACheckpoint> {
        let checkpoint = Checkpoint::unverified(&note)?;
        self.pinned.push((checkpoint, note));
        self.pinned.sort_by_key(|(checkpoint, _)| checkpoint.size);
        Ok(self)
    }
}

/// Where something is wrong.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "at", content = "place", rename_all = "snake_case")]
pub enum Place {
    /// This entry of the journal.
    Entry(u64),
    /// The checkpoint after this many entries.
    Checkpoint(u64),
    /// The blob in this row.
    Blob(u64),
    /// This line of an export.
    Line(u64),
    /// The file as a whole.
    File,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Entry(seq) => write!(f, "entry {seq}"),
            Self::Checkpoint(size) => write!(f, "checkpoint {size}"),
            Self::Blob(id) => write!(f, "blob {id}"),
            Self::Line(number) => write!(f, "line {number}"),
            Self::File => f.write_str("the file"),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Fault {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// What, for a person.
    pub what: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.place, self.what)
    }
}

/// Whether anything was cut off.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "completeness", rename_all = "snake_case")]
pub enum Completeness {
    /// There is no checkpoint from elsewhere to compare with.
    Unknown,
    /// All of the first `size` entries are there, as the checkpoint from elsewhere says.
    Complete {
        /// How many.
        size: u64,
    },
    /// The history ends before the checkpoint from elsewhere.
    Cut {
        /// Entries that are there.
        found: u64,
        /// Entries that there were.
        expected: u64,
    },
    /// The history is another one than the checkpoint from elsewhere is about.
    Forked {
        /// The two still agree after this many entries.
        after: u64,
        /// They do not any more after this many.
        by: u64,
    },
}

/// A key that signed, and from where on.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct KeyUsed {
    /// The key.
    pub key: String,
    /// The entry from which on it signs.
    pub from: u64,
    /// Whether the key before it vouches for it; the first has none before it.
    pub vouched: Option<bool>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// Which journal.
    pub origin: Option<String>,
    /// Entries before the first one that was looked at.
    pub after: u64,
    /// The last entry that was looked at.
    pub last: u64,
    /// Checkpoints whose root and signature are right.
    pub checkpoints: u64,
    /// Blobs that are what was committed to; `None` for an export, which holds none.
    pub blobs: Option<u64>,
    /// Blobs that were erased, as entries say.
    pub blobs_erased: Option<u64>,
    /// Blobs that were not looked into, because their key was not given.
    pub blobs_unopened: Option<u64>,
    /// Blobs that cannot be looked into, because another key sealed them than was given, as entries
    /// say. That is no fault of the log: what entries commit to is proven all the same.
    pub blobs_of_another_key: Option<u64>,
    /// Everything that is wrong, up to a hundred.
    pub faults: Vec<Fault>,
    /// How much is wrong.
    pub fault_count: u64,
    /// Whether anything was cut off.
    #[serde(flatten)]
    pub completeness: Completeness,
    /// Up to which entry something trusted stands for the history, if anything does.
    pub anchored: Option<u64>,
    /// Who signed.
    pub keys: Vec<KeyUsed>,
    /// The last checkpoint that is right, to be kept elsewhere.
    pub head: Option<String>,
}

/// The answer in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All of it is what somebody trusted signed.
    Verified,
    /// It fits together, and nobody trusted stands for all of it.
    SignerUnknown,
    /// Something is wrong.
    Faulty,
}

impl Report {
    /// The answer in one word.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let whole = matches!(
            self.completeness,
            Completeness::Unknown | Completeness::Complete { .. }
        );
        if self.fault_count > 0 || !whole {
            return Verdict::Faulty;
        }
        match self.anchored {
            Some(anchored) if anchored >= self.last => Verdict::Verified,
            Some(_) | None => Verdict::SignerUnknown,
        }
    }
}

/// Verifies a file, whichever of the two it is.
///
/// # Errors
/// The file cannot be read.
pub fn verify(path: &Path, trust: &Trust) -> io::Result<Report> {
    let mut file = open_regular(path)?;
    let mut magic = Vec::new();
    file.by_ref()
        .take(SQLITE.len() as u64)
        .read_to_end(&mut magic)?;
    if magic == SQLITE {
        // What lies beside it is opened as well.
        for beside in [schema::beside(path, "-wal"), schema::beside(path, "-shm")] {
            match open_regular(&beside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let why = format!("`{}`: {error}", beside.display());
                    return Err(io::Error::new(error.kind(), why));
                }
                Ok(_) | Err(_) => {}
            }
        }
        return database::verify(path, trust);
    }
    file.rewind()?;
    verify_segment(BufReader::new(file), trust)
}

/// Verifies an exported segment.
///
/// # Errors
/// It cannot be read.
pub fn verify_segment(segment: impl io::BufRead, trust: &Trust) -> io::Result<Report> {
    segment::verify(segment, trust)
}
