//! What is read from the journal: entries, proofs, rows and blobs. All of it blocks on the disk.

use std::io::Write;

use palyra_core::entry::{Entry, Recorded, Row, Stream};
use palyra_core::{Blob, CallId, Commitment, Timestamp};

use crate::attestation::{AttestationFile, ProvenEntry};
use crate::blobs::{self, Kept};
use crate::error::JournalError;
use crate::nodes;
use crate::proof::{self, Checkpoint, Hash, Note};
use crate::queries::{self, RowQuery};
use crate::segment::{self, ExportFailed};
use crate::store::JournalStore;
use crate::unattested::Unattested;

impl JournalStore {
    /// Entries after this place in the whole journal, in order. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read, or an entry in it makes no sense.
    pub fn read(&self, after: u64, limit: usize) -> Result<Vec<Recorded>, JournalError> {
        self.readers()
            .with(|reader| queries::entries_between(reader, after, self.head(), limit))
    }

    /// All entries of one stream, in order. This reads the disk and blocks.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_stream(&self, stream: &Stream) -> Result<Vec<Recorded>, JournalError> {
        let name = stream.to_string();
        self.readers()
            .with(|reader| queries::entries_of(reader, &name))
    }

    /// The signed checkpoint about everything that is durable. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read, or what is in it makes no sense.
    pub fn checkpoint(&self) -> Result<Note, JournalError> {
        let head = self.head();
        let note = self
            .readers()
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
        self.readers().with(|reader| {
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
        self.readers().with(|reader| {
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
        segment::export(self.readers(), after, head, out)
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
        let lines = self.readers().with(|reader| {
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
        AttestationFile::new(entries, &checkpoint, &self.held()?.signer).map(Some)
    }

    /// One row of a projection. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read.
    pub fn row(&self, projection: &str, key: &str) -> Result<Option<Row>, JournalError> {
        self.readers()
            .with(|reader| queries::row(reader, projection, key))
    }

    /// Rows of a projection, in key order. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read.
    pub fn rows(&self, projection: &str, query: &RowQuery) -> Result<Vec<Row>, JournalError> {
        self.readers()
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
                "the blob {} does not open: it was changed, or the key is another one",
                commitment.0
            ))),
        }
    }

    /// What is left of a blob. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read.
    pub fn kept(&self, commitment: &Commitment) -> Result<Kept, JournalError> {
        let held = self.held().ok();
        let key = held.as_ref().map(|held| held.blobs.as_ref());
        self.readers()
            .with(|reader| blobs::read(reader, key, commitment))
    }

    /// The states that rows of a projection are in. This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read.
    pub fn states(&self, projection: &str) -> Result<Vec<String>, JournalError> {
        self.readers()
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
        self.readers()
            .with(|reader| queries::keys(reader, projection, state, before, limit))
    }

    /// The last place whose entry was recorded before this time, if the clock was never set back.
    /// This reads the disk and blocks.
    ///
    /// # Errors
    /// The file could not be read.
    pub fn place_before(&self, at: Timestamp) -> Result<u64, JournalError> {
        let head = self.head();
        self.readers()
            .with(|reader| queries::place_before(reader, at, head))
    }

    /// Whether anything in it is sealed, so that a key that is lost is missed. This reads the disk
    /// and blocks.
    ///
    /// # Errors
    /// The file could not be read.
    pub fn has_sealed_blobs(&self) -> Result<bool, JournalError> {
        self.readers().with(blobs::any_sealed)
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
}
