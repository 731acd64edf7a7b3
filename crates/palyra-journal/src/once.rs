//! Appends that happen once, however often they are asked for.
//!
//! An appender that does not know whether it was heard asks again with the same key. The first one
//! counts; whoever asks again hears the same answer, also after a restart.
//!
//! That something was appended under a key is an entry like any other, `appended_once`, right before
//! what was appended. The table of answers is made of these entries: it is only there to be looked up,
//! verifying compares it with them, and a rebuild makes it anew. In the entry the key stands as a
//! digest under a secret of its own, so that nobody who has an export can guess it.

use std::collections::BTreeMap;

use palyra_core::entry::{AppendedTo, Entry, Row, Stream};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::batch::{Append, Appended, Committed, Expected, PreparedStream, StreamAppend};
use crate::body;
use crate::error::JournalError;
use crate::projections::Mend;
use crate::queries::to_sql;
use crate::store::JournalStore;

/// The longest key.
const MOST: usize = 200;

/// What answers are called among what is made of entries.
pub(crate) const NAME: &str = "answered";

impl JournalStore {
    /// Appends, unless something was appended under this key before; then gives the answer that
    /// was given then. Whoever loses `blobs.key` loses what was appended under which key.
    ///
    /// # Errors
    /// As [`append`](Self::append); or the key was used to append to other streams, or is empty or
    /// too long.
    pub async fn append_once(&self, key: &str, batch: Append) -> Result<Appended, JournalError> {
        if key.is_empty() || key.len() > MOST {
            return Err(JournalError::BadKey { length: key.len() });
        }
        let digest = self.recorded_key(key)?;
        let blobs: Vec<Committed> = batch.blobs.into_iter().map(Committed::from).collect();
        let blobs = self.sealed(&blobs)?;
        let to = |append: &StreamAppend| AppendedTo {
            stream: append.stream.to_string(),
            entries: append.entries.len() as u64,
        };
        let first = StreamAppend {
            stream: Stream::Journal,
            expected: Expected::Any,
            entries: vec![Entry::AppendedOnce {
                key: digest,
                streams: batch.streams.iter().map(to).collect(),
            }],
        };
        let streams = std::iter::once(first).chain(batch.streams).collect();
        let appended = self
            .submit_with(streams, |prepared| {
                prepared.bytes += blobs.iter().map(|blob| blob.bytes.len()).sum::<usize>();
                prepared.blobs = blobs;
                prepared.once = Some(digest.to_string());
            })
            .await;
        match appended {
            // Where the entry about the key is, nobody asked.
            Ok(appended) => Ok(Appended {
                revisions: appended.revisions.into_iter().skip(1).collect(),
                ..appended
            }),
            Err(JournalError::KeyReused { .. }) => Err(JournalError::KeyReused {
                key: key.to_owned(),
            }),
            Err(error) => Err(error),
        }
    }
}

/// The answer that was given under this key, if there was one.
pub(crate) fn answered(
    connection: &Connection,
    key: &str,
    streams: &[PreparedStream],
) -> Result<Option<Result<Appended, JournalError>>, JournalError> {
    let Some(kept) = Kept::read(connection, key)? else {
        return Ok(None);
    };
    if kept.streams != names(streams) {
        let key = key.to_owned();
        return Ok(Some(Err(JournalError::KeyReused { key })));
    }
    let damaged = || JournalError::corrupt(format!("the answer kept under `{key}` does not read"));
    Ok(Some(Ok(Appended {
        last_seq: kept.last_seq.unsigned_abs(),
        revisions: serde_json::from_str(&kept.revisions).map_err(|_| damaged())?,
    })))
}

/// Keeps an answer, in the transaction that it is about.
pub(crate) fn answer(
    connection: &Connection,
    key: &str,
    streams: &[PreparedStream],
    appended: &Appended,
) -> Result<(), JournalError> {
    let kept = Kept {
        streams: names(streams),
        last_seq: to_sql(appended.last_seq),
        revisions: spelled(&appended.revisions),
    };
    kept.write(connection, key)
}

fn names(streams: &[PreparedStream]) -> String {
    let names: Vec<&str> = streams.iter().map(|stream| stream.name.as_str()).collect();
    names.join(" ")
}

fn spelled(revisions: &[u64]) -> String {
    serde_json::Value::from(revisions).to_string()
}

/// An answer as it lies in the file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Kept {
    streams: String,
    last_seq: i64,
    revisions: String,
}

impl Kept {
    pub(crate) fn read(connection: &Connection, key: &str) -> Result<Option<Self>, JournalError> {
        let found = connection
            .prepare_cached("SELECT streams, last_seq, revisions FROM answered WHERE key = ?1")?
            .query_row([key], |row| {
                Ok(Self {
                    streams: row.get(0)?,
                    last_seq: row.get(1)?,
                    revisions: row.get(2)?,
                })
            })
            .optional()?;
        Ok(found)
    }

    fn write(&self, connection: &Connection, key: &str) -> Result<(), JournalError> {
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO answered (key, streams, last_seq, revisions)
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![key, self.streams, self.last_seq, self.revisions])?;
        Ok(())
    }

    /// What must be kept about an `appended_once` entry, by what follows it.
    pub(crate) fn of_entry(
        connection: &Connection,
        seq: u64,
        revision: u64,
        appended: &[AppendedTo],
    ) -> Result<Self, JournalError> {
        let mut names = vec![Stream::Journal.to_string()];
        let (mut last_seq, mut revisions) = (seq, vec![revision]);
        for to in appended {
            last_seq = last_seq.saturating_add(to.entries);
            let reached: Option<i64> = connection
                .prepare_cached(
                    "SELECT max(revision) FROM entries WHERE stream = ?1 AND seq <= ?2",
                )?
                .query_row(params![to.stream, to_sql(last_seq)], |row| row.get(0))?;
            revisions.push(reached.unwrap_or(0).unsigned_abs());
            names.push(to.stream.clone());
        }
        Ok(Self {
            streams: names.join(" "),
            last_seq: to_sql(last_seq),
            revisions: spelled(&revisions),
        })
    }
}

/// An answer that is not what its entry says.
pub(crate) struct Differs {
    /// Whether there is one at all under its key.
    pub(crate) is_kept: bool,
    /// What should be there.
    pub(crate) mend: Mend,
}

/// Answers that are not what entries say, and how many there should be.
pub(crate) fn differing(connection: &Connection) -> Result<(u64, Vec<Differs>), JournalError> {
    let mut should = BTreeMap::new();
    let mut entries = connection.prepare(
        "SELECT seq, revision, body FROM entries
         WHERE stream = ?1 AND kind = 'appended_once' ORDER BY revision",
    )?;
    let mut rows = entries.query([Stream::Journal.to_string()])?;
    while let Some(row) = rows.next()? {
        let (seq, revision): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (seq, revision) = (seq.unsigned_abs(), revision.unsigned_abs());
        let body = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        if let Entry::AppendedOnce { key, streams } = body::decode(seq, body)? {
            let kept = Kept::of_entry(connection, seq, revision, &streams)?;
            should.insert(key.to_string(), kept);
        }
    }
    let wanted = should.len() as u64;
    let mut found = Vec::new();
    let mut kept = connection.prepare("SELECT key FROM answered ORDER BY key")?;
    let keys = kept.query_map([], |row| row.get::<_, String>(0))?;
    for key in keys {
        let key = key?;
        let (was, should) = (Kept::read(connection, &key)?, should.remove(&key));
        if was != should {
            found.push(Differs {
                is_kept: true,
                mend: mend(key, should.as_ref())?,
            });
        }
    }
    for (key, should) in should {
        found.push(Differs {
            is_kept: false,
            mend: mend(key, Some(&should))?,
        });
    }
    Ok((wanted, found))
}

fn mend(key: String, should: Option<&Kept>) -> Result<Mend, JournalError> {
    let spell = |kept: &Kept| -> Result<Row, JournalError> {
        let value =
            serde_json::to_vec(kept).map_err(|error| JournalError::corrupt(error.to_string()))?;
        Ok(Row {
            key: key.clone(),
            state: NAME.to_owned(),
            value,
        })
    };
    let row = should.map(spell).transpose()?;
    Ok(Mend {
        name: NAME,
        key,
        row,
    })
}

/// Puts an answer right. What is answered never changes, so it is right whenever this happens.
pub(crate) fn put_right(connection: &Connection, mend: &Mend) -> Result<(), JournalError> {
    let Some(row) = &mend.row else {
        let mut statement = connection.prepare_cached("DELETE FROM answered WHERE key = ?1")?;
        statement.execute([&mend.key])?;
        return Ok(());
    };
    let kept: Kept = serde_json::from_slice(&row.value)
        .map_err(|error| JournalError::corrupt(error.to_string()))?;
    kept.write(connection, &mend.key)
}
