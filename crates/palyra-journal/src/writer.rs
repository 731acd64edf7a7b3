//! The one thread that writes: it drains the queue into one transaction and syncs once for all.
//!
//! The syscalls of a group, after its inserts: one write per changed page and one sync of the
//! write-ahead log. Only then does the head move and do the appenders hear about it. Folding the
//! log back into the file waits until they have heard.

use std::collections::HashMap;
use std::sync::Arc;

use palyra_core::entry::Recorded;
use palyra_core::{Clock, Timestamp};
use rusqlite::{Connection, params};
use tokio::sync::{mpsc, oneshot};

use crate::batch::{Appended, Committed, Prepared, PreparedStream};
use crate::cache::Generations;
use crate::checkpoints::Checkpoints;
use crate::error::JournalError;
use crate::projections::Projections;
use crate::queries::{self, to_sql};
use crate::store::Shared;

/// A group is closed at this many appends,
const MAX_APPENDS: usize = 512;

/// or at this many bytes, so that huge outputs do not make everybody wait for ever.
const MAX_BYTES: usize = 4 << 20;

/// Streams whose heads are remembered, per generation.
const REMEMBERED: usize = 4_096;

/// An append and the one who waits for it.
pub(crate) struct Request {
    pub(crate) batch: Prepared,
    pub(crate) reply: oneshot::Sender<Answer>,
}

type Answer = Result<Appended, JournalError>;

/// Everything the thread owns.
pub(crate) struct Writer {
    connection: Connection,
    projections: Projections,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    /// The last place that is durable.
    head: u64,
    /// Revisions on disk.
    known: Generations<String, u64>,
    /// Differs when another process wrote the file.
    data_version: i64,
    /// What was known about the disk was thrown away.
    lost: bool,
    checkpoints: Checkpoints,
}

/// A transaction being filled.
struct Group {
    last_seq: u64,
    /// Revisions of the streams it touched.
    heads: HashMap<String, u64>,
    bytes: usize,
    changed: bool,
    answers: Vec<(oneshot::Sender<Answer>, Answer)>,
}

impl Writer {
    pub(crate) fn new(
        mut connection: Connection,
        projections: Projections,
        clock: Arc<dyn Clock>,
        shared: Arc<Shared>,
    ) -> Result<Self, JournalError> {
        let checkpoints = Checkpoints::of(&mut connection)?;
        let data_version = data_version(&connection)?;
        let head = queries::last_seq(&connection)?;
        shared.durable(head);
        Ok(Self {
            connection,
            projections,
            clock,
            shared,
            head,
            known: Generations::new(REMEMBERED),
            data_version,
            lost: false,
            checkpoints,
        })
    }

    /// Runs until every handle of the journal is gone.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<Request>) {
        // Should a fold panic, nobody must believe that the journal still writes.
        let _alarm = Alarm(Arc::clone(&self.shared));
        while let Some(first) = queue.blocking_recv() {
            self.group(first, &mut queue);
        }
    }

    /// Makes one group durable, or none of it, and answers everybody in it.
    fn group(&mut self, first: Request, queue: &mut mpsc::Receiver<Request>) {
        let mut group = Group::new();
        let outcome = self
            .fill(&mut group, first, queue)
            .and_then(|()| self.commit(&mut group));
        if let Err(error) = &outcome {
            self.abandon();
            self.shared.failed(error);
        }
        for (reply, answer) in group.answers {
            // A conflict is held back until here: had the commit failed, there was none.
            let answer = outcome.clone().and(answer);
            // The appender may be gone; what it appended is durable all the same.
            let _gone = reply.send(answer);
        }
        if outcome.is_ok() {
            self.checkpoints.run_if_due(&self.connection);
        }
    }

    /// Takes appends until the queue is empty: while some are inserted, others arrive.
    fn fill(
        &mut self,
        group: &mut Group,
        first: Request,
        queue: &mut mpsc::Receiver<Request>,
    ) -> Result<(), JournalError> {
        let begun = self.begin(group);
        let mut next = Some(first);
        while let Some(Request { batch, reply }) = next {
            let staged = begun.clone().and_then(|()| self.stage(group, batch));
            match staged {
                Ok(answer) => group.answers.push((reply, answer)),
                Err(error) => {
                    group.answers.push((reply, Err(error.clone())));
                    return Err(error);
                }
            }
            next = if group.is_full() {
                None
            } else {
                queue.try_recv().ok()
            };
        }
        Ok(())
    }

    fn begin(&mut self, group: &mut Group) -> Result<(), JournalError> {
        #[cfg(test)]
        self.shared.cap_pages(&self.connection)?;
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")?
            .execute([])?;
        let data_version = data_version(&self.connection)?;
        if data_version != self.data_version {
            self.forget();
        }
        if self.lost {
            self.head = queries::last_seq(&self.connection)?;
            self.data_version = data_version;
            self.lost = false;
        }
        group.last_seq = self.head;
        Ok(())
    }

    /// Puts one append into the transaction, or says why it alone is refused. `Err` means that
    /// the whole group is lost.
    fn stage(&mut self, group: &mut Group, batch: Prepared) -> Result<Answer, JournalError> {
        let revisions = match self.check(group, &batch.streams)? {
            Ok(revisions) => revisions,
            Err(conflict) => return Ok(Err(conflict)),
        };
        let (before, at) = (group.last_seq, self.clock.now());
        for (stream, revision) in batch.streams.into_iter().zip(&revisions) {
            match self.insert_entries(group, stream, *revision, at) {
                Ok(()) => {}
                Err(conflict @ JournalError::Conflict { .. }) if group.last_seq == before => {
                    return Ok(Err(conflict));
                }
                Err(error) => return Err(error),
            }
        }
        for blob in &batch.blobs {
            self.insert_blob(blob)?;
            group.changed = true;
        }
        group.bytes = group.bytes.saturating_add(batch.bytes);
        Ok(Ok(Appended {
            last_seq: group.last_seq,
            revisions,
        }))
    }

    /// Compares what each stream is expected to be with where it stands, before anything of this
    /// append is inserted; gives the revisions it leads to.
    ///
    /// A first stream that is said to be new, as nearly all are, is taken at its word: looking it
    /// up costs as much as inserting it, and its first insert, which is the first of the append,
    /// fails in the unique index if it is not.
    fn check(
        &self,
        group: &Group,
        streams: &[PreparedStream],
    ) -> Result<Result<Vec<u64>, JournalError>, JournalError> {
        let mut revisions = Vec::with_capacity(streams.len());
        let mut ahead: HashMap<&str, u64> = HashMap::new();
        for (place, stream) in streams.iter().enumerate() {
            let at_its_word = place == 0 && stream.says_new() && !stream.entries.is_empty();
            let known = ahead
                .get(stream.name.as_str())
                .or_else(|| group.heads.get(&stream.name))
                .or_else(|| self.known.get(&stream.name));
            let found = match known {
                Some(revision) => *revision,
                None if at_its_word => 0,
                None => queries::revision_of(&self.connection, &stream.name)?,
            };
            if !stream.expected.accepts(found) {
                return Ok(Err(stream.conflict(found)));
            }
            let after = found + stream.entries.len() as u64;
            revisions.push(after);
            if streams.len() > 1 {
                ahead.insert(&stream.name, after);
            }
        }
        Ok(Ok(revisions))
    }

    /// `revision` is where the stream stands afterwards. A conflict here means that nothing was
    /// inserted.
    fn insert_entries(
        &mut self,
        group: &mut Group,
        mut stream: PreparedStream,
        revision: u64,
        at: Timestamp,
    ) -> Result<(), JournalError> {
        let entries = std::mem::take(&mut stream.entries);
        if entries.is_empty() {
            return Ok(());
        }
        let mut place = revision - entries.len() as u64;
        for (entry, body) in entries {
            place += 1;
            let seq = group.last_seq + 1;
            let inserted = self
                .connection
                .prepare_cached(
                    "INSERT INTO entries (seq, stream, revision, kind, at, body)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![
                    to_sql(seq),
                    stream.name,
                    to_sql(place),
                    entry.kind(),
                    at.as_millis(),
                    body,
                ]);
            if let Err(error) = inserted {
                let taken = stream.says_new() && place == 1 && is_duplicate(&error);
                return Err(if taken {
                    stream.conflict(queries::revision_of(&self.connection, &stream.name)?)
                } else {
                    error.into()
                });
            }
            group.last_seq = seq;
            let recorded = Recorded {
                seq,
                stream: stream.name.clone(),
                revision: place,
                at,
                entry,
            };
            self.projections.apply(&self.connection, &recorded)?;
        }
        group.changed = true;
        group.heads.insert(stream.name, place);
        Ok(())
    }

    fn insert_blob(&self, committed: &Committed) -> Result<(), JournalError> {
        let Committed { commitment, blob } = committed;
        self.connection
            .prepare_cached(
                "INSERT INTO blobs (commitment, kind, salt, bytes) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (commitment) DO NOTHING",
            )?
            .execute(params![
                commitment.0.as_bytes(),
                blob.kind.as_str(),
                blob.salt,
                blob.bytes
            ])?;
        Ok(())
    }

    /// Returns once the group is on disk; what is remembered follows.
    fn commit(&mut self, group: &mut Group) -> Result<(), JournalError> {
        self.projections.write(&self.connection)?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        self.projections.committed();
        for (stream, revision) in group.heads.drain() {
            self.known.insert(stream, revision, 1);
        }
        self.head = group.last_seq;
        if group.changed {
            self.shared.durable(self.head);
        }
        Ok(())
    }

    /// Leaves the disk as it was before the group, and believes nothing else about it.
    fn abandon(&mut self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "the journal could not roll back");
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.projections.forget();
        self.known.clear();
        self.lost = true;
    }
}

impl Group {
    fn new() -> Self {
        Self {
            last_seq: 0,
            heads: HashMap::new(),
            bytes: 0,
            changed: false,
            answers: Vec::new(),
        }
    }

    const fn is_full(&self) -> bool {
        self.answers.len() >= MAX_APPENDS || self.bytes >= MAX_BYTES
    }
}

/// Whether a place in a stream is taken.
fn is_duplicate(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
}

/// A number that differs when another connection changed the file.
fn data_version(connection: &Connection) -> Result<i64, JournalError> {
    Ok(connection
        .prepare_cached("PRAGMA data_version")?
        .query_row([], |row| row.get(0))?)
}

/// Rings when the thread ends, however it ends.
struct Alarm(Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.closed();
    }
}
