//! Comparing projections with what their folds make of all entries, and mending what differs.
//!
//! Everything is folded anew into a database of its own, from one state of the file: the rows of
//! that very state must be the same. Appending goes on meanwhile. A row that differs is handed to
//! the writer, which brings it up to date with the entries since and puts it in place, in one
//! transaction with the entry that says so.

use std::cmp::Ordering;

use palyra_core::entry::{Entry, Row, Stream};
use rusqlite::Connection;

use crate::batch::{Expected, StreamAppend};
use crate::error::JournalError;
use crate::once;
use crate::projections::{Mend, Mending, Projections};
use crate::queries;
use crate::schema;
use crate::store::JournalStore;

/// Rows that are mended in one transaction.
const CHUNK: usize = 2_000;

/// What was found in one projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// Which.
    pub name: &'static str,
    /// Rows as they should be.
    pub rows: u64,
    /// Rows that were something else.
    pub wrong: u64,
    /// Rows that were not there.
    pub missing: u64,
    /// Rows that should not have been there.
    pub unknown: u64,
}

impl Rebuilt {
    /// Whether nothing differed.
    #[must_use]
    pub const fn same(&self) -> bool {
        self.wrong == 0 && self.missing == 0 && self.unknown == 0
    }
}

/// What a rebuild found and mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuild {
    /// Entries that were folded.
    pub entries: u64,
    /// Each projection.
    pub projections: Vec<Rebuilt>,
    /// The last entry about what was mended; `None` when nothing differed.
    pub seq: Option<u64>,
}

impl JournalStore {
    /// Folds all entries anew, compares, mends what differs and records that. Appending goes on.
    ///
    /// # Errors
    /// The journal could not be read or written; what was mended by then stays mended.
    pub async fn rebuild(&self) -> Result<Rebuild, JournalError> {
        let (store, handle) = (self.clone(), tokio::runtime::Handle::current());
        let compared = tokio::task::spawn_blocking(move || {
            let mend = |mending| handle.block_on(store.submit_mending(mending));
            store.compare(mend)
        });
        let (entries, projections) = compared.await.map_err(|_| JournalError::Closed)??;
        let told: Vec<Entry> = projections
            .iter()
            .filter(|rebuilt| !rebuilt.same())
            .map(|rebuilt| Entry::ProjectionMended {
                name: rebuilt.name.to_owned(),
                wrong: rebuilt.wrong,
                missing: rebuilt.missing,
                unknown: rebuilt.unknown,
            })
            .collect();
        let seq = match told.is_empty() {
            true => None,
            false => Some(self.append_if(Stream::Journal, Expected::Any, told).await?),
        };
        Ok(Rebuild {
            entries,
            projections,
            seq: seq.map(|appended| appended.last_seq),
        })
    }

    fn compare(
        &self,
        mut mend: impl FnMut(Mending) -> Result<(), JournalError>,
    ) -> Result<(u64, Vec<Rebuilt>), JournalError> {
        let _reading = self.readers().count_me();
        let live = schema::open_reader(self.path())?;
        // One state of the file, whatever is appended meanwhile.
        live.execute_batch("BEGIN")?;
        let since = queries::last_seq(&live)?;
        let fresh = schema::scratch()?;
        let mut projections = Projections::new(self.folds().to_vec())?;
        projections.feed(&live, &fresh)?;
        let mut found = Vec::new();
        for fold in self.folds() {
            let mut rebuilt = Rebuilt {
                name: fold.name(),
                rows: 0,
                wrong: 0,
                missing: 0,
                unknown: 0,
            };
            let mut rows = Vec::new();
            merge(&live, &fresh, fold.name(), |key, was, should| {
                rebuilt.rows += u64::from(should.is_some());
                match (&was, &should) {
                    (Some(was), Some(should)) if was == should => return Ok(()),
                    (Some(_), Some(_)) => rebuilt.wrong += 1,
                    (None, Some(_)) => rebuilt.missing += 1,
                    (Some(_), None) => rebuilt.unknown += 1,
                    (None, None) => return Ok(()),
                }
                rows.push(Mend {
                    name: fold.name(),
                    key,
                    row: should,
                });
                if rows.len() < CHUNK {
                    return Ok(());
                }
                let rows = std::mem::take(&mut rows);
                mend(Mending { since, rows })
            })?;
            if !rows.is_empty() {
                mend(Mending { since, rows })?;
            }
            found.push(rebuilt);
        }
        let (answers, rows) = answers(&live)?;
        found.push(answers);
        if !rows.is_empty() {
            mend(Mending { since, rows })?;
        }
        Ok((since, found))
    }

    async fn submit_mending(&self, mending: Mending) -> Result<(), JournalError> {
        self.submit_with(Vec::<StreamAppend>::new(), |batch| {
            batch.mending = Some(mending);
        })
        .await
        .map(drop)
    }
}

/// The answers to appends that happen once, which are made of entries as well.
fn answers(live: &Connection) -> Result<(Rebuilt, Vec<Mend>), JournalError> {
    let (rows, differing) = once::differing(live)?;
    let count = |fits: fn(&once::Differs) -> bool| {
        differing.iter().filter(|differs| fits(differs)).count() as u64
    };
    let rebuilt = Rebuilt {
        name: once::NAME,
        rows,
        wrong: count(|it| it.is_kept && it.mend.row.is_some()),
        missing: count(|it| !it.is_kept),
        unknown: count(|it| it.mend.row.is_none()),
    };
    let mends = differing.into_iter().map(|differs| differs.mend);
    Ok((rebuilt, mends.collect()))
}

/// The rows of a projection in both databases, key by key.
fn merge(
    live: &Connection,
    fresh: &Connection,
    name: &str,
    mut each: impl FnMut(String, Option<Row>, Option<Row>) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    let sql = "SELECT key, state, value FROM projections WHERE name = ?1 ORDER BY key";
    let (mut live, mut fresh) = (live.prepare(sql)?, fresh.prepare(sql)?);
    let mut live = live.query_map([name], queries::to_row)?;
    let mut fresh = fresh.query_map([name], queries::to_row)?;
    let (mut was, mut should) = (live.next().transpose()?, fresh.next().transpose()?);
    loop {
        let order = match (&was, &should) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(was), Some(should)) => was.key.cmp(&should.key),
        };
        let left = match order {
            Ordering::Less | Ordering::Equal => {
                std::mem::replace(&mut was, live.next().transpose()?)
            }
            Ordering::Greater => None,
        };
        let right = match order {
            Ordering::Greater | Ordering::Equal => {
                std::mem::replace(&mut should, fresh.next().transpose()?)
            }
            Ordering::Less => None,
        };
        let key = left.as_ref().or(right.as_ref()).map(|row| row.key.clone());
        each(key.unwrap_or_default(), left, right)?;
    }
}
