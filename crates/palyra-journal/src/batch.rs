//! What is appended: entries for one or more streams, and blobs, all or nothing.

use std::sync::Arc;

use palyra_core::entry::{Entry, Recorded, Stream};
use palyra_core::{Blob, Commitment, Timestamp};

use crate::blobs::Sealed;
use crate::body;
use crate::error::JournalError;
use crate::projections::Mending;
use crate::proof::LeafStart;

/// Where a stream must stand for an append to go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Anywhere.
    Any,
    /// Nowhere yet: it has no entries.
    NoStream,
    /// Exactly here.
    Revision(u64),
}

impl Expected {
    pub(crate) const fn accepts(self, found: u64) -> bool {
        match self {
            Self::Any => true,
            Self::NoStream => found == 0,
            Self::Revision(revision) => revision == found,
        }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("anywhere"),
            Self::NoStream => f.write_str("new"),
            Self::Revision(revision) => write!(f, "at revision {revision}"),
        }
    }
}

/// Entries for one stream.
#[derive(Debug, Clone)]
pub struct StreamAppend {
    /// The stream.
    pub stream: Stream,
    /// Where it must stand.
    pub expected: Expected,
    /// What happened, in order.
    pub entries: Vec<Entry>,
}

/// One append: all of it becomes durable, or none.
#[derive(Clone, Default)]
pub struct Append {
    /// Entries, stream by stream; their places in the journal follow this order.
    pub streams: Vec<StreamAppend>,
    /// What the entries commit to. A blob that is stored already is not stored twice.
    pub blobs: Vec<Blob>,
}

impl From<StreamAppend> for Append {
    fn from(stream: StreamAppend) -> Self {
        Self {
            streams: vec![stream],
            blobs: Vec::new(),
        }
    }
}

/// Where an append ended up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The place of its last entry in the whole journal; the head when it had no entries.
    pub last_seq: u64,
    /// The revision of each stream after it, in the order they were given.
    pub revisions: Vec<u64>,
}

/// An append spelled out, ready for the writer: it only has to be inserted.
pub(crate) struct Prepared {
    pub(crate) streams: Vec<PreparedStream>,
    pub(crate) blobs: Vec<Sealed>,
    /// What is erased with it.
    pub(crate) erased: Vec<Commitment>,
    /// Rows that are put right with it.
    pub(crate) mending: Option<Mending>,
    /// The key under which it happens once.
    pub(crate) once: Option<String>,
    /// Roughly how much is written, to bound a group.
    pub(crate) bytes: usize,
}

pub(crate) struct PreparedStream {
    pub(crate) name: String,
    pub(crate) expected: Expected,
    pub(crate) entries: Vec<PreparedEntry>,
}

/// An entry; the writer fills in its place and its time.
pub(crate) struct PreparedEntry {
    pub(crate) recorded: Recorded,
    pub(crate) body: Vec<u8>,
    pub(crate) leaf: LeafStart,
}

/// A blob with its commitment; shared, so that a refused append can be tried again for free.
#[derive(Clone)]
pub(crate) struct Committed {
    pub(crate) commitment: Commitment,
    pub(crate) blob: Arc<Blob>,
}

impl From<Blob> for Committed {
    fn from(blob: Blob) -> Self {
        Self {
            commitment: blob.commitment(),
            blob: Arc::new(blob),
        }
    }
}

impl Prepared {
    /// An append of nothing: whether one would go through.
    pub(crate) const fn nothing() -> Self {
        Self {
            streams: Vec::new(),
            blobs: Vec::new(),
            erased: Vec::new(),
            mending: None,
            once: None,
            bytes: 0,
        }
    }

    /// Whether this appends nothing.
    pub(crate) const fn is_nothing(&self) -> bool {
        self.streams.is_empty()
            && self.blobs.is_empty()
            && self.erased.is_empty()
            && self.mending.is_none()
    }

    /// Spells everything out on the caller's thread; the writer's time is everybody's.
    pub(crate) fn new(
        streams: Vec<StreamAppend>,
        blobs: Vec<Sealed>,
    ) -> Result<Self, JournalError> {
        let mut bytes = 0;
        let streams = streams
            .into_iter()
            .map(PreparedStream::new)
            .inspect(|stream| bytes += stream.as_ref().map_or(0, PreparedStream::bytes))
            .collect::<Result<Vec<_>, _>>()?;
        bytes += blobs.iter().map(|blob| blob.bytes.len()).sum::<usize>();
        Ok(Self {
            streams,
            blobs,
            erased: Vec::new(),
            mending: None,
            once: None,
            bytes,
        })
    }
}

impl PreparedStream {
    fn new(given: StreamAppend) -> Result<Self, JournalError> {
        let name = given.stream.to_string();
        let spell = |entry: Entry| {
            let body = body::encode(&entry)?;
            let leaf = LeafStart::of(&body);
            let recorded = Recorded {
                seq: 0,
                stream: name.clone(),
                revision: 0,
                at: Timestamp::from_millis(0),
                entry,
            };
            Ok(PreparedEntry {
                recorded,
                body,
                leaf,
            })
        };
        Ok(Self {
            expected: given.expected,
            entries: given
                .entries
                .into_iter()
                .map(spell)
                .collect::<Result<_, JournalError>>()?,
            name,
        })
    }

    /// Whether the appender believes that the stream has no entries.
    pub(crate) const fn says_new(&self) -> bool {
        matches!(self.expected, Expected::NoStream | Expected::Revision(0))
    }

    /// What the appender hears when the stream is elsewhere.
    pub(crate) fn conflict(&self, found: u64) -> JournalError {
        JournalError::Conflict {
            stream: self.name.clone(),
            expected: self.expected,
            found,
        }
    }

    fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.body.len()).sum()
    }
}
