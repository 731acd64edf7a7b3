//! Projections: the rows that folds make of entries, in the transaction that appends them.
//!
//! Within one group a row may change many times; it is written once. What is remembered between
//! groups is what the last commit left on disk, and nothing after a rollback.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use palyra_core::entry::{Fold, Recorded, Row};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::cache::Generations;
use crate::error::JournalError;
use crate::once;
use crate::queries;

/// How many bytes of rows each generation of each projection remembers.
const REMEMBERED: usize = 1 << 20;

/// How many entries are read at a time when a projection is made anew.
const CHUNK: usize = 4_096;

/// All projections of an open journal.
pub(crate) struct Projections {
    slots: Vec<Slot>,
}

/// Rows that are not what they should be.
pub(crate) struct Mending {
    /// As of this place, `rows` are right.
    pub(crate) since: u64,
    pub(crate) rows: Vec<Mend>,
}

/// A row as it should be; `None` should not be there.
pub(crate) struct Mend {
    pub(crate) name: &'static str,
    pub(crate) key: String,
    pub(crate) row: Option<Row>,
}

struct Slot {
    fold: Arc<dyn Fold>,
    /// Values on disk; `None` is a row known to be absent.
    known: Generations<String, Option<Vec<u8>>>,
    /// Rows changed in the open transaction; `None` is removed.
    changed: BTreeMap<String, Option<Row>>,
}

impl Projections {
    /// The projections that these folds make.
    pub(crate) fn new(folds: Vec<Arc<dyn Fold>>) -> Result<Self, JournalError> {
        let mut names = BTreeSet::new();
        for fold in &folds {
            if !names.insert(fold.name()) {
                return Err(JournalError::TwoFolds { name: fold.name() });
            }
        }
        let slot = |fold| Slot {
            fold,
            known: Generations::new(REMEMBERED),
            changed: BTreeMap::new(),
        };
        Ok(Self {
            slots: folds.into_iter().map(slot).collect(),
        })
    }

    /// Brings the file in line with the folds in use: rows of a fold that is gone are dropped
    /// (nobody would keep them up to date), those of a new one are made from all entries.
    pub(crate) fn reconcile(&mut self, connection: &mut Connection) -> Result<(), JournalError> {
        let transaction =
            connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let filed: BTreeSet<String> = transaction
            .prepare("SELECT name FROM folds")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let used: BTreeSet<&str> = self.slots.iter().map(|slot| slot.fold.name()).collect();
        for gone in filed.iter().filter(|name| !used.contains(name.as_str())) {
            transaction.execute("DELETE FROM projections WHERE name = ?1", [gone])?;
            transaction.execute("DELETE FROM folds WHERE name = ?1", [gone])?;
        }
        let mut fresh: Vec<&mut Slot> = self
            .slots
            .iter_mut()
            .filter(|slot| !filed.contains(slot.fold.name()))
            .collect();
        for slot in &fresh {
            transaction.execute("INSERT INTO folds (name) VALUES (?1)", [slot.fold.name()])?;
        }
        feed(&transaction, &transaction, &mut fresh)?;
        transaction.commit()?;
        self.committed();
        Ok(())
    }

    /// Feeds all entries of one database to every fold, and writes the rows into another.
    pub(crate) fn feed(&mut self, from: &Connection, to: &Connection) -> Result<(), JournalError> {
        let mut slots: Vec<&mut Slot> = self.slots.iter_mut().collect();
        feed(from, to, &mut slots)
    }

    /// Puts rows right in the open transaction: as they should have been at some place, brought up
    /// to date with every entry since.
    pub(crate) fn mend(
        &mut self,
        connection: &Connection,
        mending: &Mending,
    ) -> Result<(), JournalError> {
        let answers = mending.rows.iter().filter(|mend| mend.name == once::NAME);
        for answer in answers {
            once::put_right(connection, answer)?;
        }
        for slot in &mut self.slots {
            let own = mending
                .rows
                .iter()
                .filter(|mend| mend.name == slot.fold.name());
            let mut rows: BTreeMap<String, Option<Row>> = own
                .map(|mend| (mend.key.clone(), mend.row.clone()))
                .collect();
            if rows.is_empty() {
                continue;
            }
            let (mut after, last) = (mending.since, queries::last_seq(connection)?);
            while after < last {
                let entries = queries::entries_between(connection, after, last, CHUNK)?;
                let Some(end) = entries.last().map(|entry| entry.seq) else {
                    break;
                };
                after = end;
                for recorded in &entries {
                    let Some(key) = slot.fold.key(recorded) else {
                        continue;
                    };
                    if let Some(row) = rows.get_mut(&key) {
                        let before = row.as_ref().map(|row| row.value.as_slice());
                        *row = slot.fold.fold(before, recorded);
                    }
                }
            }
            slot.changed.append(&mut rows);
        }
        Ok(())
    }

    /// Feeds one entry to every fold.
    pub(crate) fn apply(
        &mut self,
        connection: &Connection,
        recorded: &Recorded,
    ) -> Result<(), rusqlite::Error> {
        self.slots
            .iter_mut()
            .try_for_each(|slot| slot.apply(connection, recorded))
    }

    /// Writes every changed row once, in key order.
    pub(crate) fn write(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        self.slots
            .iter()
            .try_for_each(|slot| slot.write(connection))
    }

    /// What was changed is on disk now.
    pub(crate) fn committed(&mut self) {
        self.slots.iter_mut().for_each(Slot::committed);
    }

    /// Nothing is known about the disk any more.
    pub(crate) fn forget(&mut self) {
        for slot in &mut self.slots {
            slot.changed.clear();
            slot.known.clear();
        }
    }
}

impl Slot {
    fn apply(
        &mut self,
        connection: &Connection,
        recorded: &Recorded,
    ) -> Result<(), rusqlite::Error> {
        let Some(key) = self.fold.key(recorded) else {
            return Ok(());
        };
        let after = if let Some(changed) = self.changed.get(&key) {
            let before = changed.as_ref().map(|row| row.value.as_slice());
            self.fold.fold(before, recorded)
        } else if let Some(known) = self.known.get(&key) {
            self.fold.fold(known.as_deref(), recorded)
        } else {
            let stored: Option<Vec<u8>> = connection
                .prepare_cached("SELECT value FROM projections WHERE name = ?1 AND key = ?2")?
                .query_row([self.fold.name(), &key], |row| row.get(0))
                .optional()?;
            self.fold.fold(stored.as_deref(), recorded)
        };
        // A row is filed under the key that its fold named, whatever key it carries.
        self.changed.insert(key, after);
        Ok(())
    }

    fn write(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        let name = self.fold.name();
        for (key, row) in &self.changed {
            match row {
                Some(row) => connection
                    .prepare_cached(
                        "INSERT INTO projections (name, key, state, value)
                         VALUES (?1, ?2, ?3, ?4)
                         ON CONFLICT (name, key)
                         DO UPDATE SET state = excluded.state, value = excluded.value",
                    )?
                    .execute(params![name, key, row.state, row.value])?,
                None => connection
                    .prepare_cached("DELETE FROM projections WHERE name = ?1 AND key = ?2")?
                    .execute([name, key])?,
            };
        }
        Ok(())
    }

    fn committed(&mut self) {
        for (key, row) in std::mem::take(&mut self.changed) {
            let value = row.map(|row| row.value);
            let weight = 96 + key.len() + value.as_ref().map_or(0, Vec::len);
            self.known.insert(key, value, weight);
        }
    }
}

/// Feeds the whole journal to these folds.
fn feed(from: &Connection, to: &Connection, slots: &mut [&mut Slot]) -> Result<(), JournalError> {
    if slots.is_empty() {
        return Ok(());
    }
    let (mut after, last) = (0, queries::last_seq(from)?);
    loop {
        let entries = queries::entries_between(from, after, last, CHUNK)?;
        let Some(last) = entries.last() else {
            return Ok(());
        };
        after = last.seq;
        for slot in slots.iter_mut() {
            for recorded in &entries {
                slot.apply(to, recorded)?;
            }
            // Written chunk by chunk, so that memory does not grow with the journal.
            slot.write(to)?;
            slot.committed();
        }
    }
}
