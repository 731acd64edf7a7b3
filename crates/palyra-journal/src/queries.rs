//! Reading: connections of their own, which see what is written and never wait for the writer.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use palyra_core::entry::{Recorded, Row};
use palyra_core::{Blob, BlobKind, Commitment, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, ToSql, params};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as NoSuchKind, StrDeserializer};

use crate::body;
use crate::error::JournalError;
use crate::proof::EntryRecord;
use crate::schema;

/// Idle connections that are kept; more are opened when more threads read at once.
const KEPT: usize = 4;

/// Which rows of a projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowQuery {
    /// Only rows in this state.
    pub state: Option<String>,
    /// Only rows whose key sorts before this one: the last key of the page before, when the
    /// newest come first.
    pub before: Option<String>,
    /// How many at most.
    pub limit: usize,
    /// From the last key down instead of from the first up; keys such as ids sort by age.
    pub newest_first: bool,
}

impl Default for RowQuery {
    fn default() -> Self {
        Self {
            state: None,
            before: None,
            limit: 100,
            newest_first: true,
        }
    }
}

/// The connections that read.
pub(crate) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    /// Held by whoever reads; taken by whoever has to close all connections for a moment.
    gate: RwLock<()>,
}

impl Readers {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            idle: Mutex::new(Vec::new()),
            gate: RwLock::new(()),
        }
    }

    /// Where the journal is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until nobody reads, closes all connections, and lets nobody read for as long as what
    /// it gives is held.
    pub(crate) fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        let alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        self.close();
        alone
    }

    /// Lends a connection.
    pub(crate) fn with<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let _reading = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let lent = self.idle().pop();
        let connection = match lent {
            Some(connection) => connection,
            None => schema::open_reader(&self.path)?,
        };
        // A connection that failed is closed: the next reader starts afresh.
        let answer = read(&connection)?;
        let mut idle = self.idle();
        if idle.len() < KEPT {
            idle.push(connection);
        }
        Ok(answer)
    }

    /// Closes the idle ones.
    pub(crate) fn close(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entries of the whole journal after one place and up to another.
pub(crate) fn entries_between(
    connection: &Connection,
    after: u64,
    last: u64,
    limit: usize,
) -> Result<Vec<Recorded>, JournalError> {
    let sql = "SELECT seq, stream, revision, at, body FROM entries
               WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3";
    recorded(
        connection,
        sql,
        params![to_sql(after), to_sql(last), count(limit)],
    )
}

/// Entries of one stream.
pub(crate) fn entries_of(
    connection: &Connection,
    stream: &str,
) -> Result<Vec<Recorded>, JournalError> {
    let sql = "SELECT seq, stream, revision, at, body FROM entries
               WHERE stream = ?1 ORDER BY revision";
    recorded(connection, sql, params![stream])
}

/// The lines of one stream's entries, each with its place in the whole.
pub(crate) fn lines_of(
    connection: &Connection,
    stream: &str,
) -> Result<Vec<(u64, String)>, JournalError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, stream, revision, kind, at, body FROM entries
         WHERE stream = ?1 ORDER BY revision",
    )?;
    let mut rows = statement.query([stream])?;
    let (mut lines, mut buffer) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let record = entry_record(row)?;
        record.spell(&mut buffer);
        let line = String::from_utf8(buffer.clone())
            .map_err(|_| JournalError::corrupt(format!("entry {} is no text", record.seq)))?;
        lines.push((record.seq, line));
    }
    Ok(lines)
}

fn recorded(
    connection: &Connection,
    sql: &str,
    parameters: &[&dyn ToSql],
) -> Result<Vec<Recorded>, JournalError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let seq = from_sql(row.get(0)?)?;
        let body = row.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?;
        entries.push(Recorded {
            seq,
            stream: row.get(1)?,
            revision: from_sql(row.get(2)?)?,
            at: Timestamp::from_millis(row.get(3)?),
            entry: body::decode(seq, body)?,
        });
    }
    Ok(entries)
}

/// An entry as it lies in the file: `seq, stream, revision, kind, at, body`.
pub(crate) fn entry_record<'a>(
    row: &'a rusqlite::Row<'_>,
) -> Result<EntryRecord<'a>, JournalError> {
    let text = |column| {
        let value = row.get_ref(column)?;
        value.as_str().map_err(rusqlite::Error::from)
    };
    Ok(EntryRecord {
        seq: from_sql(row.get(0)?)?,
        stream: text(1)?,
        revision: from_sql(row.get(2)?)?,
        kind: text(3)?,
        at: row.get(4)?,
        body: row.get_ref(5)?.as_blob().map_err(rusqlite::Error::from)?,
    })
}

/// The place of the last entry; 0 when there is none.
pub(crate) fn last_seq(connection: &Connection) -> Result<u64, JournalError> {
    let last: Option<i64> = connection
        .prepare_cached("SELECT max(seq) FROM entries")?
        .query_row([], |row| row.get(0))?;
    from_sql(last.unwrap_or(0))
}

/// Where a stream stands; 0 when it has no entries.
pub(crate) fn revision_of(connection: &Connection, stream: &str) -> Result<u64, JournalError> {
    let last: Option<i64> = connection
        .prepare_cached("SELECT max(revision) FROM entries WHERE stream = ?1")?
        .query_row([stream], |row| row.get(0))?;
    from_sql(last.unwrap_or(0))
}

/// One row.
pub(crate) fn row(
    connection: &Connection,
    projection: &str,
    key: &str,
) -> Result<Option<Row>, JournalError> {
    let row = connection
        .prepare_cached("SELECT key, state, value FROM projections WHERE name = ?1 AND key = ?2")?
        .query_row([projection, key], to_row)
        .optional()?;
    Ok(row)
}

/// Rows in key order.
pub(crate) fn rows(
    connection: &Connection,
    projection: &str,
    query: &RowQuery,
) -> Result<Vec<Row>, JournalError> {
    let sql = match (query.state.is_some(), query.newest_first) {
        (true, true) => {
            "SELECT key, state, value FROM projections
             WHERE name = ?1 AND key < ?2 AND state = ?4 ORDER BY key DESC LIMIT ?3"
        }
        (true, false) => {
            "SELECT key, state, value FROM projections
             WHERE name = ?1 AND key < ?2 AND state = ?4 ORDER BY key LIMIT ?3"
        }
        (false, true) => {
            "SELECT key, state, value FROM projections
             WHERE name = ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3"
        }
        (false, false) => {
            "SELECT key, state, value FROM projections
             WHERE name = ?1 AND key < ?2 ORDER BY key LIMIT ?3"
        }
    };
    // In SQLite every text sorts before every blob: the empty one stands for "no end".
    let nothing: &[u8] = &[];
    let before: &dyn ToSql = match &query.before {
        Some(key) => key,
        None => &nothing,
    };
    let limit = count(query.limit);
    let mut parameters: Vec<&dyn ToSql> = vec![&projection, before, &limit];
    if let Some(state) = &query.state {
        parameters.push(state);
    }
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_map(parameters.as_slice(), to_row)?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn to_row(row: &rusqlite::Row<'_>) -> Result<Row, rusqlite::Error> {
    Ok(Row {
        key: row.get(0)?,
        state: row.get(1)?,
        value: row.get(2)?,
    })
}

/// One blob, compared with what was committed to.
pub(crate) fn blob(
    connection: &Connection,
    commitment: &Commitment,
) -> Result<Option<Blob>, JournalError> {
    let damaged = || JournalError::corrupt(format!("the blob {} changed", commitment.0));
    let stored = connection
        .prepare_cached("SELECT kind, salt, bytes FROM blobs WHERE commitment = ?1")?
        .query_row([commitment.0.as_bytes().as_slice()], |row| {
            let kind: String = row.get(0)?;
            Ok((kind, row.get::<_, Vec<u8>>(1)?, row.get(2)?))
        })
        .optional()?;
    let Some((kind, salt, bytes)) = stored else {
        return Ok(None);
    };
    let blob = assemble(&kind, &salt, bytes).ok_or_else(damaged)?;
    (blob.commitment() == *commitment)
        .then_some(Some(blob))
        .ok_or_else(damaged)
}

/// A blob from its columns, if they can be one.
pub(crate) fn assemble(kind: &str, salt: &[u8], bytes: Vec<u8>) -> Option<Blob> {
    let kind: StrDeserializer<'_, NoSuchKind> = kind.into_deserializer();
    Some(Blob {
        kind: BlobKind::deserialize(kind).ok()?,
        salt: salt.try_into().ok()?,
        bytes,
    })
}

/// SQLite counts in signed numbers; ours start at 1 and never get near the end.
pub(crate) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn from_sql(number: i64) -> Result<u64, JournalError> {
    u64::try_from(number).map_err(|_| JournalError::corrupt("a place is negative"))
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
