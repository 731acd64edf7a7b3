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
use crate::queries::{self, to_sql};
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

/// Writes the entries after this place up to the last checkpoint within `head`, and every
/// checkpoint from `after` on; gives the place of the last entry.
pub(crate) fn export(
    connection: &Connection,
    after: u64,
    head: u64,
    out: &mut dyn Write,
) -> Result<u64, ExportFailed> {
    let before = nodes::frontier(connection, after)?;
    let header = HeaderLine {
        after,
        format: FORMAT.to_owned(),
        key: sealing::signer_after(connection, after)?.to_string(),
        peaks: before.peaks().to_vec(),
    };
    write_line(out, &header)?;
    let mut checkpoints = connection.prepare(
        "SELECT size, note, leaves FROM checkpoints WHERE size >= ?1 AND size <= ?2 ORDER BY size",
    )?;
    let mut entries = connection.prepare(
        "SELECT seq, stream, revision, kind, at, body FROM entries
         WHERE seq > ?1 AND seq <= ?2 ORDER BY seq",
    )?;
    let mut checkpoints = checkpoints.query([to_sql(after), to_sql(head)])?;
    let (mut done, mut line) = (after, Vec::new());
    while let Some(row) = checkpoints.next()? {
        let size: i64 = row.get(0)?;
        let size = u64::try_from(size)
            .map_err(|_| JournalError::corrupt("a checkpoint's size is negative"))?;
        let mut group = entries.query([to_sql(done), to_sql(size)])?;
        while let Some(row) = group.next()? {
            queries::entry_record(row)?.spell(&mut line);
            line.push(b'\n');
            out.write_all(&line)?;
        }
        let packed = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        let (leaves, _) = packed.as_chunks::<32>();
        // Of the group in whose middle the segment begins, only the end is here.
        let here = usize::try_from(size - done).unwrap_or(usize::MAX);
        let leaves = leaves.iter().skip(leaves.len().saturating_sub(here));
        let checkpoint = CheckpointLine {
            checkpoint: row.get(1)?,
            leaves: leaves.copied().map(Hash::from_bytes).collect(),
        };
        write_line(out, &checkpoint)?;
        done = size;
    }
    Ok(done)
}

fn write_line(out: &mut dyn Write, line: &impl serde::Serialize) -> io::Result<()> {
    let value = serde_json::to_value(line).map_err(io::Error::other)?;
    let mut bytes = canonical_bytes(&value);
    bytes.push(b'\n');
    out.write_all(&bytes)
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

impl From<rusqlite::Error> for ExportFailed {
    fn from(error: rusqlite::Error) -> Self {
        Self::Journal(error.into())
    }
}
