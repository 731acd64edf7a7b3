//! Exported segments: the journal as lines of JSON that anybody can read and verify.
//!
//! ```text
//! {"after":0,"format":"palyra.segment.v1","key":"…","peaks":[]}     where it begins
//! {"body":{…},…,"time":…}                                           an entry: its leaf's bytes
//! {"checkpoint":"…","leaves":["…"]}                                 a signed checkpoint
//! ```
//!
//! `peaks` are the subtrees before the first entry, so that a segment from the middle leads to the
//! same roots. Every line has one spelling.

use std::io::{self, Write};

use palyra_core::json::canonical_bytes;
use rusqlite::Connection;

use crate::error::JournalError;
use crate::nodes;
use crate::proof::{Checkpoint, Frontier, Hash, Note, VerifierKey};
use crate::queries::{self, Readers, to_sql};
use crate::sealing;

const FORMAT: &str = "palyra.segment.v1";

/// The first line.
pub(crate) struct Header {
    /// The subtrees before the first entry.
    before: HeaderLine,
    /// Who signs there.
    pub(crate) key: VerifierKey,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderLine {
    after: u64,
    format: String,
    key: String,
    peaks: Vec<Hash>,
}

impl Header {
    /// Reads the line, if it has the one spelling.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let before: HeaderLine = serde_json::from_slice(line).ok()?;
        let key = before.key.parse().ok()?;
        (before.format == FORMAT && spelled(&before)? == line).then_some(Self { before, key })
    }

    /// The tree before the first entry.
    pub(crate) fn frontier(&self) -> Option<Frontier> {
        // No journal is longer than SQLite can count.
        i64::try_from(self.before.after).ok()?;
        Frontier::new(self.before.after, self.before.peaks.clone())
    }
}

/// A checkpoint, with the leaves since the one before.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointLine {
    pub(crate) checkpoint: String,
    pub(crate) leaves: Vec<Hash>,
}

impl CheckpointLine {
    /// Reads the line, if it has the one spelling.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let parsed: Self = serde_json::from_slice(line).ok()?;
        (spelled(&parsed)? == line).then_some(parsed)
    }

    /// What size it says it is about; whether that is true is for its signature to say.
    pub(crate) fn size(&self) -> Option<u64> {
        let note: Note = self.checkpoint.parse().ok()?;
        Checkpoint::unverified(&note)
            .ok()
            .map(|checkpoint| checkpoint.size)
    }
}

fn spelled(line: &impl serde::Serialize) -> Option<Vec<u8>> {
    serde_json::to_value(line)
        .ok()
        .map(|value| canonical_bytes(&value))
}

/// How much of an export is read at a time.
const PAGE: usize = 256 << 10;

/// Writes the entries after this place up to the last checkpoint within `head`, and every
/// checkpoint from `after` on; gives the place of the last entry.
///
/// It is read page by page, each with a connection that is given back before anything is written:
/// whoever takes an export and stops reading holds up nobody who mends or erases. Pages fit
/// together all the same, because what is durable up to `head` never changes.
pub(crate) fn export(
    readers: &Readers,
    after: u64,
    head: u64,
    out: &mut dyn Write,
) -> Result<u64, ExportFailed> {
    let header = readers.with(|reader| {
        Ok(HeaderLine {
            after,
            format: FORMAT.to_owned(),
            key: sealing::signer_after(reader, after)?.to_string(),
            peaks: nodes::frontier(reader, after)?.peaks().to_vec(),
        })
    })?;
    out.write_all(&line_of(&header)?)?;
    let mut pages = Pages {
        sealed: after.checked_sub(1),
        after,
        written: after,
        head,
    };
    while let Some(page) = readers.with(|reader| pages.next(reader))? {
        out.write_all(&page)?;
    }
    Ok(pages.written)
}

/// How far an export is.
struct Pages {
    /// Only larger checkpoints are left to write; `None` is before all.
    sealed: Option<u64>,
    /// Where the group begins whose entries are being written.
    after: u64,
    /// The last entry that was written.
    written: u64,
    head: u64,
}

impl Pages {
    /// The next lines; `None` at the end. A group may be longer than a page.
    fn next(&mut self, connection: &Connection) -> Result<Option<Vec<u8>>, JournalError> {
        let mut page = Vec::new();
        let mut checkpoints = connection.prepare_cached(
            "SELECT size, note, leaves FROM checkpoints
             WHERE size > ?1 AND size <= ?2 ORDER BY size",
        )?;
        let above = self.sealed.map_or(-1, to_sql);
        let mut checkpoints = checkpoints.query([above, to_sql(self.head)])?;
        while page.len() < PAGE
            && let Some(row) = checkpoints.next()?
        {
            let size: i64 = row.get(0)?;
            let size = u64::try_from(size)
                .map_err(|_| JournalError::corrupt("a checkpoint's size is negative"))?;
            if !self.entries(connection, size, &mut page)? {
                break;
            }
            let packed = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
            let (leaves, _) = packed.as_chunks::<32>();
            // Of the group in whose middle the segment begins, only the end is here.
            let here = usize::try_from(size - self.after).unwrap_or(usize::MAX);
            let leaves = leaves.iter().skip(leaves.len().saturating_sub(here));
            let checkpoint = CheckpointLine {
                checkpoint: row.get(1)?,
                leaves: leaves.copied().map(Hash::from_bytes).collect(),
            };
            page.extend(line_of(&checkpoint)?);
            (self.sealed, self.after, self.written) = (Some(size), size, size);
        }
        Ok((!page.is_empty()).then_some(page))
    }

    /// Entries up to this one; `false` when the page is full before.
    fn entries(
        &mut self,
        connection: &Connection,
        last: u64,
        page: &mut Vec<u8>,
    ) -> Result<bool, JournalError> {
        let mut entries = connection.prepare_cached(
            "SELECT seq, stream, revision, kind, at, body FROM entries
             WHERE seq > ?1 AND seq <= ?2 ORDER BY seq",
        )?;
        let mut group = entries.query([to_sql(self.written), to_sql(last)])?;
        let mut line = Vec::new();
        while let Some(row) = group.next()? {
            if page.len() >= PAGE {
                return Ok(false);
            }
            let record = queries::entry_record(row)?;
            self.written = record.seq;
            record.spell(&mut line);
            page.extend_from_slice(&line);
            page.push(b'\n');
        }
        Ok(true)
    }
}

fn line_of(line: &impl serde::Serialize) -> Result<Vec<u8>, JournalError> {
    let value =
        serde_json::to_value(line).map_err(|error| JournalError::corrupt(error.to_string()))?;
    let mut bytes = canonical_bytes(&value);
    bytes.push(b'\n');
    Ok(bytes)
}

/// Why an export ended early.
#[derive(Debug, thiserror::Error)]
pub enum ExportFailed {
    /// The journal could not be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// What was read could not be passed on.
    #[error("the export could not be written: {0}")]
    Write(#[from] io::Error),
}
