//! The one that writes: it drains the queue into one transaction and syncs once for all.
//!
//! It is one of two that take turns at it ([`crate::turns`]).

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use palyra_core::entry::{Entry, Stream};
use palyra_core::{Clock, Timestamp};
use rusqlite::{Connection, params};
use tokio::sync::{mpsc, oneshot};

use crate::batch::{Appended, Expected, Prepared, PreparedEntry, PreparedStream, StreamAppend};
use crate::blobs;
use crate::cache::Generations;
use crate::checkpoints::Checkpoints;
use crate::error::JournalError;
use crate::keyring::{Held, Keyring};
use crate::keys::JournalKeys;
use crate::log::{self, Position};
use crate::once;
use crate::projections::Projections;
use crate::proof::EntryRecord;
use crate::queries::{self, Readers, to_sql};
use crate::reserve::Reserve;
use crate::sealing::Sealer;
use crate::shared::{Mark, Shared};
use crate::turns::Written;

/// A group is closed at this many appends,
const MAX_APPENDS: usize = 512;

/// or at this many bytes, so that huge outputs do not make everybody wait for ever.
const MAX_BYTES: usize = 4 << 20;

/// Streams whose heads are remembered, per generation.
const REMEMBERED: usize = 4_096;

/// An append and the one who waits for it.
pub(crate) struct Request {
    pub(crate) batch: Prepared,
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// The answer, and what was appended: freeing it takes its time, and the writer's is everybody's.
pub(crate) type Reply = (Answer, Prepared);

type Answer = Result<Appended, JournalError>;

/// Everything whoever has the turn writes with.
pub(crate) struct Writer {
    pub(crate) connection: Connection,
    projections: Projections,
    pub(crate) sealer: Sealer,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) readers: Arc<Readers>,
    /// The last place that is written; durable is what [`Shared`] says.
    pub(crate) head: u64,
    reserve: Reserve,
    /// Groups so far.
    groups: u64,
    /// Revisions of streams, with those of the open transaction.
    known: Generations<String, u64>,
    /// Differs when another process wrote the file.
    pub(crate) data_version: i64,
    /// What was known about the disk was thrown away.
    pub(crate) lost: bool,
    /// The file failed, or read as nonsense.
    pub(crate) doubtful: bool,
    /// Where the last group that wrote anything ends in the log, if that is known.
    pub(crate) position: Option<Position>,
    pub(crate) checkpoints: Arc<Checkpoints>,
}

/// A transaction being filled.
pub(crate) struct Group {
    pub(crate) at: Timestamp,
    last_seq: u64,
    bytes: usize,
    /// Something was erased, and is in the log until that is cut.
    erased: bool,
    pub(crate) answers: Vec<(oneshot::Sender<Reply>, Reply)>,
}

impl Writer {
    pub(crate) fn new(
        connection: Connection,
        checkpoints: Checkpoints,
        projections: Projections,
        (sealer, keyring): (Sealer, Arc<Keyring>),
        clock: Arc<dyn Clock>,
        shared: Arc<Shared>,
        readers: Arc<Readers>,
    ) -> Result<Self, JournalError> {
        let data_version = data_version(&connection)?;
        let head = queries::last_seq(&connection)?;
        Ok(Self {
            connection,
            projections,
            sealer,
            keyring,
            clock,
            shared,
            reserve: Reserve::beside(readers.path()),
            readers,
            head,
            groups: 0,
            known: Generations::new(REMEMBERED),
            data_version,
            lost: false,
            doubtful: false,
            position: None,
            checkpoints: Arc::new(checkpoints),
        })
    }

    /// Seals with these keys from now on, and everything that earlier versions left open. The first
    /// thing appended is that another key takes over, if one does.
    pub(crate) fn take_keys(&mut self, keys: JournalKeys) -> Result<(), JournalError> {
        let blobs = keys.blobs();
        let handover = self.sealer.take(&mut self.connection, keys)?;
        blobs::upgrade(&mut self.connection, &blobs)?;
        blobs::warn_of_another_key(&self.connection, &blobs)?;
        if let Some(handover) = handover {
            self.append_first(handover)?;
        }
        let signer = self.sealer.key().ok_or(JournalError::Keyless)?;
        self.keyring.hold(Some(Held { signer, blobs }));
        Ok(())
    }

    /// Takes or forgets keys, if somebody asked for that.
    pub(crate) fn change_keys(&mut self) {
        let Some(wanted) = self.keyring.wanted() else {
            return;
        };
        let outcome = match wanted {
            Some(keys) => self.take_keys(*keys),
            None => {
                self.sealer.drop_key();
                self.keyring.hold(None);
                Ok(())
            }
        };
        if outcome.is_err() {
            self.sealer.drop_key();
            self.abandon();
        }
        self.keyring.made(outcome);
    }

    /// The last place that is written; durable it is once the log is synced.
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// Who folds the log back.
    pub(crate) fn checkpoints(&self) -> Arc<Checkpoints> {
        Arc::clone(&self.checkpoints)
    }

    /// Appends before anybody else can.
    fn append_first(&mut self, entry: Entry) -> Result<(), JournalError> {
        let only = StreamAppend {
            stream: Stream::Journal,
            expected: Expected::Any,
            entries: vec![entry],
        };
        let mut batch = Prepared::new(vec![only], Vec::new())?;
        let mut group = Group::new(self.clock.now());
        self.begin(&mut group)?;
        self.stage(&mut group, &mut batch)??;
        self.commit(&group)
    }

    /// Fills one group and writes it, or none of it; durable it is not yet.
    pub(crate) fn group(&mut self, first: Request, queue: &mut mpsc::Receiver<Request>) -> Written {
        let mut group = Group::new(self.clock.now());
        let mut outcome = self
            .fill(&mut group, first, queue)
            .and_then(|()| self.commit(&group));
        if matches!(outcome, Err(JournalError::Full(_))) && self.reserve.release() {
            outcome = self.only_ends(&mut group);
        }
        if outcome.is_ok() && group.erased {
            self.checkpoints.is_unclean();
            // Whoever asked may be gone, and there may be no append for long.
            self.shared.wake_mender();
        }
        match &outcome {
            Ok(()) if self.reserve.is_released() => self.shared.failed(&JournalError::full()),
            Ok(()) => self.shared.took(),
            Err(error) => {
                self.abandon();
                self.doubtful |=
                    matches!(error, JournalError::Corrupt { .. } | JournalError::Io(_));
                self.shared.failed(error);
            }
        }
        self.groups += 1;
        Written {
            outcome,
            mark: self.mark(&group),
            answers: group.answers,
        }
    }

    fn mark(&self, group: &Group) -> Mark {
        Mark {
            head: group.last_seq,
            number: self.groups,
            position: None,
            opened: self.shared.opened(),
        }
    }

    /// Where the last group that wrote anything ends in the log, as far as that can be read. A group
    /// that wrote nothing, such as one of conflicts only, may be durable before those it follows:
    /// then they are, too, and that is where they end.
    pub(crate) fn position(&mut self, log: &File) -> Option<Position> {
        if let Some(pages) = self.checkpoints.committed() {
            self.position = Position::of(log, pages).ok();
            if !self.reserve.is_released() {
                let _later = log::stay_ahead(log, pages);
            }
        }
        self.position
    }

    /// Nothing was written to this log yet; gives where it ends, if it is empty.
    pub(crate) fn starts_at(&mut self, log: &File) -> Option<Position> {
        self.position = Position::at_start(log);
        self.position
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
        while let Some(Request { mut batch, reply }) = next {
            let staged = begun.clone().and_then(|()| self.stage(group, &mut batch));
            let lost = staged.as_ref().err().cloned();
            let answer = staged.and_then(|answer| answer);
            group.answers.push((reply, (answer, batch)));
            if let Some(error) = lost {
                return Err(error);
            }
            next = if group.is_full() {
                None
            } else {
                queue.try_recv().ok()
            };
        }
        Ok(())
    }

    pub(crate) fn begin(&mut self, group: &mut Group) -> Result<(), JournalError> {
        self.shared.still_synced()?;
        if self.doubtful {
            self.reconnect()?;
        }
        self.reserve.look();
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
            let head = self.sealer.reload(&self.connection)?;
            self.shared.has_all(head)?;
            self.head = head;
            self.data_version = data_version;
            self.lost = false;
        }
        group.last_seq = self.head;
        Ok(())
    }

    /// Puts one append into the transaction, or says why it alone is refused. `Err` means that
    /// the whole group is lost.
    pub(crate) fn stage(
        &mut self,
        group: &mut Group,
        batch: &mut Prepared,
    ) -> Result<Answer, JournalError> {
        if self.reserve.is_released() && !batch.is_an_end() {
            return Ok(Err(JournalError::full()));
        }
        if let Some(key) = &batch.once
            && let Some(answer) = once::answered(&self.connection, key, &batch.streams)?
        {
            return Ok(answer);
        }
        let revisions = match self.check(&batch.streams)? {
            Ok(revisions) => revisions,
            Err(conflict) => return Ok(Err(conflict)),
        };
        let before = group.last_seq;
        for (stream, revision) in batch.streams.iter_mut().zip(&revisions) {
            match self.insert_entries(group, stream, *revision) {
                Ok(()) => {}
                Err(conflict @ JournalError::Conflict { .. }) if group.last_seq == before => {
                    return Ok(Err(conflict));
                }
                Err(error) => return Err(error),
            }
        }
        for blob in &batch.blobs {
            blobs::insert(&self.connection, blob)?;
        }
        for commitment in &batch.erased {
            blobs::erase(&self.connection, commitment)?;
        }
        if let Some(mending) = &batch.mending {
            self.projections.mend(&self.connection, mending)?;
        }
        group.erased |= !batch.erased.is_empty();
        group.bytes = group.bytes.saturating_add(batch.bytes);
        let appended = Appended {
            last_seq: group.last_seq,
            revisions,
        };
        if let Some(key) = &batch.once {
            once::answer(&self.connection, key, &batch.streams, &appended)?;
        }
        Ok(Ok(appended))
    }

    /// Compares what each stream is expected to be with where it stands, before anything of this
    /// append is inserted; gives the revisions it leads to.
    ///
    /// A first stream that is said to be new, as nearly all are, is taken at its word: looking it
    /// up costs as much as inserting it, and its first insert, which is the first of the append,
    /// fails in the unique index if it is not.
    fn check(
        &self,
        streams: &[PreparedStream],
    ) -> Result<Result<Vec<u64>, JournalError>, JournalError> {
        let mut revisions = Vec::with_capacity(streams.len());
        let mut ahead: HashMap<&str, u64> = HashMap::new();
        for (place, stream) in streams.iter().enumerate() {
            let at_its_word = place == 0 && stream.says_new() && !stream.entries.is_empty();
            let known = ahead
                .get(stream.name.as_str())
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
        stream: &mut PreparedStream,
        revision: u64,
    ) -> Result<(), JournalError> {
        if stream.entries.is_empty() {
            return Ok(());
        }
        let place = revision - stream.entries.len() as u64;
        let mut entries = std::mem::take(&mut stream.entries);
        let inserted = self.insert_each(group, stream, &mut entries, place);
        // Also when it failed: on a full disk a group is tried once more.
        stream.entries = entries;
        inserted?;
        self.known.insert(stream.name.clone(), revision, 1);
        Ok(())
    }

    fn insert_each(
        &mut self,
        group: &mut Group,
        stream: &PreparedStream,
        entries: &mut [PreparedEntry],
        mut place: u64,
    ) -> Result<(), JournalError> {
        for entry in entries {
            let PreparedEntry {
                recorded,
                body,
                leaf,
            } = entry;
            place += 1;
            let seq = group.last_seq + 1;
            let kind = recorded.entry.kind();
            (recorded.seq, recorded.revision, recorded.at) = (seq, place, group.at);
            let inserted = self
                .connection
                // Short, because the cache hashes all of it for each entry.
                .prepare_cached("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)")?
                .execute(params![
                    to_sql(seq),
                    stream.name,
                    to_sql(place),
                    kind,
                    group.at.as_millis(),
                    &*body,
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
            let record = EntryRecord {
                seq,
                stream: &stream.name,
                revision: place,
                kind,
                at: group.at.as_millis(),
                body,
            };
            self.sealer.add(&record, leaf.clone());
            self.projections.apply(&self.connection, recorded)?;
        }
        Ok(())
    }

    /// Returns once the group is in the log, where every connection sees it.
    pub(crate) fn commit(&mut self, group: &Group) -> Result<(), JournalError> {
        self.projections.write(&self.connection)?;
        self.sealer.write(&self.connection)?;
        if group.last_seq == self.head && !self.shared.is_writable() {
            self.touch()?;
        }
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        self.projections.committed();
        self.sealer.committed();
        self.head = group.last_seq;
        Ok(())
    }

    /// Leaves the disk as it was before the group, and believes nothing else about it.
    pub(crate) fn abandon(&mut self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "the journal could not roll back");
        }
        self.forget();
    }

    pub(crate) fn forget(&mut self) {
        self.projections.forget();
        self.sealer.forget();
        self.known.clear();
        self.lost = true;
    }
}

impl Group {
    pub(crate) fn new(at: Timestamp) -> Self {
        Self {
            at,
            last_seq: 0,
            bytes: 0,
            erased: false,
            answers: Vec::with_capacity(64),
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
pub(crate) fn data_version(connection: &Connection) -> Result<i64, JournalError> {
    Ok(connection
        .prepare_cached("PRAGMA data_version")?
        .query_row([], |row| row.get(0))?)
}
