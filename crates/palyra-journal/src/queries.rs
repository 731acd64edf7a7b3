//! Reading: connections of their own, which see what is written and never wait for the writer.

use std::path::{Path, PathBuf};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::{Duration, Instant};

use palyra_core::Timestamp;
use palyra_core::entry::{Recorded, Row};
use rusqlite::{Connection, InterruptHandle, OptionalExtension as _, ToSql, params};

use crate::body;
use crate::error::JournalError;
use crate::proof::EntryRecord;
use crate::schema;

/// Idle connections that are kept; more are opened when more threads read at once.
const KEPT: usize = 4;

/// How long readers are waited for.
const PATIENCE: Duration = Duration::from_secs(1);

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
    /// Those who read for long and can begin anew.
    patient: Mutex<Vec<Arc<InterruptHandle>>>,
}

/// Somebody reads for long, and gives way when asked to.
pub(crate) struct Patient<'a> {
    readers: &'a Readers,
    handle: Arc<InterruptHandle>,
}

impl Drop for Patient<'_> {
    fn drop(&mut self) {
        let mut patient = self.readers.patient();
        patient.retain(|other| !Arc::ptr_eq(other, &self.handle));
    }
}

impl Readers {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            idle: Mutex::new(Vec::new()),
            gate: RwLock::new(()),
            patient: Mutex::default(),
        }
    }

    /// Where the journal is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until nobody reads, closes all connections, and lets nobody read for as long as what
    /// it gives is held. `None` when somebody reads for long: perhaps they wait for whoever asks.
    pub(crate) fn pause(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.give_way();
            let alone = match self.gate.try_write() {
                Ok(alone) => alone,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                Err(TryLockError::WouldBlock) => return None,
            };
            self.close();
            return Some(alone);
        }
    }

    /// For whoever reads with a connection of their own: they count as readers for as long as what
    /// it gives is held, and the connection must be closed before.
    pub(crate) fn count_me(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What reads with this connection is interrupted whenever somebody else cannot go on because
    /// of it, for as long as what this gives is held.
    pub(crate) fn patient_with(&self, connection: &Connection) -> Patient<'_> {
        let handle = Arc::new(connection.get_interrupt_handle());
        self.patient().push(Arc::clone(&handle));
        Patient {
            readers: self,
            handle,
        }
    }

    /// Interrupts those who said that they give way. One that is about to begin does not hear it,
    /// so whoever waits asks again.
    pub(crate) fn give_way(&self) {
        self.patient().iter().for_each(|handle| handle.interrupt());
    }

    /// Lends a connection.
    pub(crate) fn with<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let _reading = self.count_me();
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

    fn patient(&self) -> MutexGuard<'_, Vec<Arc<InterruptHandle>>> {
        self.patient.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The states that rows are in. Each is found by a look into the index, however many rows it has.
pub(crate) fn states(
    connection: &Connection,
    projection: &str,
) -> Result<Vec<String>, JournalError> {
    let mut statement = connection.prepare_cached(
        "WITH RECURSIVE found (state) AS (
             SELECT min(state) FROM projections WHERE name = ?1
             UNION ALL
             SELECT (SELECT min(state) FROM projections WHERE name = ?1 AND state > found.state)
             FROM found WHERE found.state IS NOT NULL
         )
         SELECT state FROM found WHERE state IS NOT NULL",
    )?;
    let states = statement.query_map([projection], |row| row.get(0))?;
    Ok(states.collect::<Result<_, _>>()?)
}

/// Keys in one state, from the index alone.
pub(crate) fn keys(
    connection: &Connection,
    projection: &str,
    state: &str,
    before: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, JournalError> {
    let mut statement = connection.prepare_cached(
        "SELECT key FROM projections INDEXED BY projections_by_state
         WHERE name = ?1 AND state = ?2 AND key < ?3 ORDER BY key DESC LIMIT ?4",
    )?;
    // Every text sorts before every blob.
    let nothing: &[u8] = &[];
    let before: &dyn ToSql = match &before {
        Some(key) => key,
        None => &nothing,
    };
    let limit = count(limit);
    let keys = statement.query_map([&projection as &dyn ToSql, &state, before, &limit], |row| {
        row.get(0)
    })?;
    Ok(keys.collect::<Result<_, _>>()?)
}

/// The last place before a time, found by halving.
pub(crate) fn place_before(
    connection: &Connection,
    at: Timestamp,
    head: u64,
) -> Result<u64, JournalError> {
    let mut statement = connection.prepare_cached("SELECT at FROM entries WHERE seq = ?1")?;
    let (mut low, mut high) = (0, head);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        let found: i64 = statement.query_row([to_sql(middle)], |row| row.get(0))?;
        if found < at.as_millis() {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Ok(low)
}

pub(crate) fn to_row(row: &rusqlite::Row<'_>) -> Result<Row, rusqlite::Error> {
    Ok(Row {
        key: row.get(0)?,
        state: row.get(1)?,
        value: row.get(2)?,
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
