//! A journal's database file, opened so that nothing in it is changed or run.
//!
//! The file may have been prepared by somebody: its schema must be ours to the letter, so that a
//! name we read from is our table and not a view or a virtual table of theirs.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use palyra_core::Commitment;
use palyra_core::entry::ErasedBlob;
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::eras::Eras;
use super::walk::Walk;
use super::{Place, Report, Trust};
use crate::blobs::{self, BlobKey};
use crate::error::JournalError;
use crate::proof::{Frontier, Hash, VerifierKey};
use crate::queries::{self, to_sql};
use crate::{nodes, once, schema};

pub(super) fn verify(path: &Path, trust: &Trust) -> io::Result<Report> {
    let opened = schema::open_evidence(path).and_then(|connection| {
        let differs = schema::differs(&connection)?;
        Ok((connection, differs))
    });
    let (connection, differs) = match opened {
        Ok(opened) => opened,
        Err(error) => return unreadable(trust, error),
    };
    if let Some(what) = differs {
        let mut walk = Walk::new(trust, Frontier::default(), None);
        walk.fault(Place::File, what);
        return Ok(walk.finish());
    }
    // One state of it, also when a daemon is writing meanwhile.
    if let Err(error) = connection.execute_batch("BEGIN") {
        return unreadable(trust, error.into());
    }
    let (key, unread) = match first_key(&connection) {
        Ok(key) => (key, None),
        Err(error) => (None, Some(error)),
    };
    let mut walk = Walk::new(trust, Frontier::default(), key);
    if let Some(error) = unread {
        walk.fault(Place::File, format!("does not say who signs: {error}"));
    }
    let mut verifying = Verifying {
        connection: &connection,
        walk,
        key: trust.blob_key(),
        erased: BTreeSet::new(),
        eras: Eras::of(trust.blob_key()),
        blobs: Counted::default(),
        nodes: 0,
    };
    for step in [
        Verifying::structure,
        Verifying::history,
        Verifying::kept_nodes,
        Verifying::answers,
        Verifying::blobs,
    ] {
        if let Err(error) = step(&mut verifying) {
            let what = format!("cannot be read to its end: {error}");
            verifying.walk.fault(Place::File, what);
        }
    }
    let mut report = verifying.walk.finish();
    report.blobs = Some(verifying.blobs.whole);
    report.blobs_erased = Some(verifying.blobs.erased);
    report.blobs_unopened = Some(verifying.blobs.unopened);
    report.blobs_of_another_key = Some(verifying.blobs.of_another_key);
    Ok(report)
}

/// A disk that refuses is no evidence of anything; a file that makes no sense is.
fn unreadable(trust: &Trust, error: JournalError) -> io::Result<Report> {
    let JournalError::Corrupt { what } = error else {
        return Err(io::Error::other(error));
    };
    let mut walk = Walk::new(trust, Frontier::default(), None);
    walk.fault(Place::File, format!("cannot be read: {what}"));
    Ok(walk.finish())
}

fn first_key(connection: &Connection) -> Result<Option<VerifierKey>, JournalError> {
    let text: String =
        connection.query_row("SELECT first_key FROM signer WHERE id = 1", [], |row| {
            row.get(0)
        })?;
    text.parse()
        .map(Some)
        .map_err(|error| JournalError::corrupt(format!("the first key: {error}")))
}

struct Verifying<'c, 't> {
    connection: &'c Connection,
    walk: Walk<'t>,
    key: Option<&'t BlobKey>,
    /// What entries say was erased.
    erased: BTreeSet<[u8; 32]>,
    /// Which key sealed what, as entries say.
    eras: Eras,
    blobs: Counted,
    nodes: u64,
}

/// How many blobs are in which state.
#[derive(Default)]
struct Counted {
    whole: u64,
    erased: u64,
    unopened: u64,
    of_another_key: u64,
}

impl Verifying<'_, '_> {
    /// What SQLite itself can tell: pages, order, indexes, types.
    fn structure(&mut self) -> Result<(), JournalError> {
        let mut statement = self.connection.prepare("PRAGMA integrity_check(10)")?;
        let told = statement.query_map([], |row| row.get::<_, String>(0))?;
        for told in told {
            let told = told?;
            if told != "ok" {
                self.walk.fault(Place::File, format!("is damaged: {told}"));
            }
        }
        Ok(())
    }

    /// Entries and checkpoints, in the order in which they were written.
    fn history(&mut self) -> Result<(), JournalError> {
        let mut entries = self
            .connection
            .prepare("SELECT seq, stream, revision, kind, at, body FROM entries ORDER BY seq")?;
        let mut checkpoints = self
            .connection
            .prepare("SELECT size, note, leaves FROM checkpoints ORDER BY size")?;
        let mut entries = entries.query([])?;
        let mut checkpoints = checkpoints.query([])?;
        let mut entry = entries.next()?;
        while let Some(checkpoint) = checkpoints.next()? {
            let size: i64 = checkpoint.get(0)?;
            while let Some(row) = entry {
                if row.get::<_, i64>(0)? > size {
                    break;
                }
                self.entry(row)?;
                entry = entries.next()?;
            }
            self.checkpoint(size, checkpoint)?;
            self.completed()?;
        }
        while let Some(row) = entry {
            self.entry(row)?;
            entry = entries.next()?;
        }
        Ok(())
    }

    fn entry(&mut self, row: &Row<'_>) -> Result<(), JournalError> {
        let seq: i64 = row.get(0)?;
        match queries::entry_record(row) {
            Ok(record) => {
                self.walk.entry(&record);
                self.referred(record.seq, record.kind, record.body)
            }
            Err(error) => {
                let seq = u64::try_from(seq).unwrap_or_default();
                self.walk.unreadable(seq, &error.to_string());
                Ok(())
            }
        }
    }

    fn checkpoint(&mut self, size: i64, row: &Row<'_>) -> Result<(), JournalError> {
        let Ok(size) = u64::try_from(size) else {
            self.walk
                .fault(Place::Checkpoint(0), "has a size that is negative");
            return Ok(());
        };
        let texts = (row.get_ref(1)?.as_str(), row.get_ref(2)?.as_blob());
        let (Ok(note), Ok(packed)) = texts else {
            self.walk
                .fault(Place::Checkpoint(size), "is not spelled as one");
            return Ok(());
        };
        let (leaves, rest) = packed.as_chunks::<32>();
        if !rest.is_empty() {
            let what = "keeps leaves that are not whole";
            self.walk.fault(Place::Checkpoint(size), what);
        }
        let leaves: Vec<Hash> = leaves.iter().copied().map(Hash::from_bytes).collect();
        self.walk.checkpoint(size, note, &leaves);
        Ok(())
    }

    /// Compares the nodes that the tree has by now with those that are kept.
    fn completed(&mut self) -> Result<(), JournalError> {
        for (level, index, node) in self.walk.completed() {
            self.nodes += 1;
            let kept = nodes::kept(self.connection, level, index, index + 1)?;
            if kept.as_slice() != [node] {
                let last = (index + 1) << level;
                let what = format!(
                    "keeps another node over the {} entries up to it",
                    1_u64 << level
                );
                self.walk.fault(Place::Entry(last), what);
            }
        }
        Ok(())
    }

    fn kept_nodes(&mut self) -> Result<(), JournalError> {
        let kept: i64 = self
            .connection
            .query_row("SELECT count(*) FROM nodes", [], |row| row.get(0))?;
        if kept != to_sql(self.nodes) {
            let what = format!("keeps {kept} nodes of the tree instead of {}", self.nodes);
            self.walk.fault(Place::File, what);
        }
        Ok(())
    }

    /// Whether the answers to appends that happen once are those that entries say.
    fn answers(&mut self) -> Result<(), JournalError> {
        let (_, differing) = once::differing(self.connection)?;
        for differs in differing {
            let what = match (differs.is_kept, differs.mend.row) {
                (true, Some(_)) => "keeps another answer under a key than was given",
                (false, _) => "has lost the answer that was given under a key",
                (true, None) => "keeps an answer under a key that no entry knows",
            };
            self.walk.fault(Place::File, what);
        }
        Ok(())
    }

    /// Whether what an entry commits to is there, be it erased.
    fn referred(&mut self, seq: u64, kind: &str, body: &[u8]) -> Result<(), JournalError> {
        self.eras.entry(kind, body);
        let Some(commitments) = Commitments::of(kind, body) else {
            return Ok(());
        };
        for (what, commitment) in commitments.each() {
            let there: Option<i64> = self
                .connection
                .prepare_cached("SELECT id FROM blobs WHERE commitment = ?1")?
                .query_row([commitment.0.as_bytes().as_slice()], |row| row.get(0))
                .optional()?;
            match there {
                Some(id) => self.eras.refers(kind, id),
                None => self
                    .walk
                    .fault(Place::Entry(seq), format!("has lost its {what}")),
            }
        }
        let erased = commitments.blobs.iter().flatten();
        self.erased
            .extend(erased.map(|blob| *blob.commitment.0.as_bytes()));
        Ok(())
    }

    /// Whether each blob is what its commitment says.
    fn blobs(&mut self) -> Result<(), JournalError> {
        let mut statement = self
            .connection
            .prepare("SELECT id, commitment, kind, sealed FROM blobs ORDER BY id")?;
        let mut rows = statement.query([])?;
        let mut expected = 0;
        while let Some(row) = rows.next()? {
            expected += 1;
            let id: i64 = row.get(0)?;
            if id != expected {
                let what = format!("is in the place of blob {expected}");
                self.walk.fault(Place::Blob(id.unsigned_abs()), what);
                expected = id;
            }
            let found = self.look_at(id, row);
            let wrong = match found {
                Found::Whole => {
                    self.blobs.whole += 1;
                    continue;
                }
                Found::Unopened => {
                    self.blobs.unopened += 1;
                    continue;
                }
                Found::OfAnotherKey => {
                    self.blobs.of_another_key += 1;
                    continue;
                }
                Found::Erased => {
                    self.blobs.erased += 1;
                    continue;
                }
                Found::Emptied => "was emptied, and no entry says so",
                Found::Back => "is there, though an entry says that it was erased",
                Found::Wrong => "is not what was committed to, or is sealed with another key",
            };
            // Looking for it reads everything, so not for faults that nobody is told.
            let filed = row.get_ref(1)?.as_blob().ok();
            let whose = filed
                .filter(|_| self.walk.tells_more())
                .and_then(|commitment| self.whose(commitment));
            let whose =
                whose.map_or_else(String::new, |seq| format!(" (entry {seq} commits to it)"));
            let what = format!("{wrong}{whose}");
            self.walk.fault(Place::Blob(id.unsigned_abs()), what);
        }
        Ok(())
    }

    fn look_at(&self, id: i64, row: &Row<'_>) -> Found {
        let filed = row.get_ref(1).ok().and_then(|value| value.as_blob().ok());
        let Some(commitment) = filed.and_then(blobs::commitment_of) else {
            return Found::Wrong;
        };
        let (Ok(kind), Ok(sealed)) = (row.get::<_, String>(2), row.get_ref(3)) else {
            return Found::Wrong;
        };
        let erased = self.erased.contains(commitment.0.as_bytes());
        let Ok(sealed) = sealed.as_blob_or_null() else {
            return Found::Wrong;
        };
        match (sealed, erased, self.key) {
            (None, true, _) => Found::Erased,
            (None, false, _) => Found::Emptied,
            (Some(_), true, _) => Found::Back,
            (Some(_), false, None) => Found::Unopened,
            (Some(sealed), false, Some(key)) => match key.open(&commitment, &kind, sealed) {
                Some(_) => Found::Whole,
                None if self.eras.sealed_otherwise(id) => Found::OfAnotherKey,
                None => Found::Wrong,
            },
        }
    }

    /// The first entry that commits to this; looked for only when something is wrong.
    fn whose(&self, commitment: &[u8]) -> Option<u64> {
        let hex: String = commitment
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let found: Option<i64> = self
            .connection
            .query_row(
                "SELECT min(seq) FROM entries WHERE instr(body, CAST(?1 AS BLOB)) > 0",
                [format!("sha256:{hex}")],
                |row| row.get(0),
            )
            .ok()?;
        found.and_then(|seq| u64::try_from(seq).ok())
    }
}

/// What a blob's row turns out to be.
enum Found {
    Whole,
    /// There is no key to look into it.
    Unopened,
    /// An entry says that another key sealed it.
    OfAnotherKey,
    Erased,
    Emptied,
    Back,
    Wrong,
}

/// What an entry commits to.
#[derive(serde::Deserialize)]
struct Commitments {
    arguments: Option<Commitment>,
    facts: Option<Commitment>,
    output: Option<Commitment>,
    sources: Option<Commitment>,
    /// What was erased.
    blobs: Option<Vec<ErasedBlob>>,
}

impl Commitments {
    /// `None` for kinds of entries that commit to nothing of their own.
    fn of(kind: &str, body: &[u8]) -> Option<Self> {
        match kind {
            // Whether the body was changed is for its leaf to say.
            "proposed" | "decided" | "approval_requested" | "finished" | "policy_activated"
            | "policy_staged" | "blob_erased" => serde_json::from_slice(body).ok(),
            _ => None,
        }
    }

    fn each(&self) -> impl Iterator<Item = (&'static str, Commitment)> {
        let named = [
            ("arguments", self.arguments),
            ("facts", self.facts),
            ("output", self.output),
            ("policies", self.sources),
        ];
        named
            .into_iter()
            .filter_map(|(name, commitment)| Some((name, commitment?)))
    }
}
