//! The file: its format, how it is recognised, and who may read it.
//!
//! A file that is not ours, is damaged or comes from a later version is refused before anything
//! is written to it.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction};

use crate::error::JournalError;
use crate::{disk, log};

/// "PLYR", in the file's header: this SQLite file is a journal.
const APPLICATION_ID: i64 = 0x504c_5952;

/// The format written and read here.
const FORMAT: i64 = 3;

/// Before there were proofs; such a file is brought up to date when it is opened.
const WITHOUT_PROOFS: i64 = 1;

/// Before blobs were sealed; they are when it is opened.
const WITH_OPEN_BLOBS: i64 = 2;

/// How long to wait for another process, such as a backup, that holds the file.
const BUSY: Duration = Duration::from_secs(5);

/// Statements kept compiled; there are fewer.
const STATEMENTS: usize = 32;

/// The triggers are for mistakes, ours or those of somebody with an SQLite shell. Whoever may
/// write the file can drop them: that is what proofs are for.
const SCHEMA: &str = "
CREATE TABLE entries (
    seq      INTEGER PRIMARY KEY,
    stream   TEXT    NOT NULL,
    revision INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    body     BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX entries_by_stream ON entries (stream, revision);
CREATE TRIGGER entries_are_never_changed BEFORE UPDATE ON entries
    BEGIN SELECT RAISE(ABORT, 'journal entries are never changed'); END;
CREATE TRIGGER entries_are_never_removed BEFORE DELETE ON entries
    BEGIN SELECT RAISE(ABORT, 'journal entries are never removed'); END;

CREATE TABLE projections (
    name  TEXT NOT NULL,
    key   TEXT NOT NULL,
    state TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX projections_by_state ON projections (name, state, key);

CREATE TABLE folds (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
";

/// The third format's, with the answers to appends that happen once. An integer key lets contents lie in the order they came; only the narrow
/// index of commitments, which are random, is written all over. `NULL` is what was erased.
const SEALED_BLOBS: &str = "
CREATE TABLE blobs (
    id         INTEGER PRIMARY KEY,
    commitment BLOB NOT NULL UNIQUE,
    kind       TEXT NOT NULL,
    sealed     BLOB
) STRICT;
CREATE TRIGGER blobs_are_never_changed BEFORE UPDATE ON blobs
    WHEN NEW.sealed IS NOT NULL OR NEW.id IS NOT OLD.id
        OR NEW.commitment IS NOT OLD.commitment OR NEW.kind IS NOT OLD.kind
    BEGIN SELECT RAISE(ABORT, 'blobs are erased, and never changed'); END;
CREATE TRIGGER blobs_are_never_removed BEFORE DELETE ON blobs
    BEGIN SELECT RAISE(ABORT, 'blobs are erased, and never removed'); END;

CREATE TABLE answered (
    key       TEXT PRIMARY KEY,
    streams   TEXT NOT NULL,
    last_seq  INTEGER NOT NULL,
    revisions TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

/// What the second format adds.
const PROOFS: &str = "
CREATE TABLE signer (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    first_key TEXT NOT NULL
) STRICT;

CREATE TABLE checkpoints (
    size   INTEGER PRIMARY KEY,
    note   TEXT NOT NULL,
    leaves BLOB NOT NULL
) STRICT;
CREATE TRIGGER checkpoints_are_never_changed BEFORE UPDATE ON checkpoints
    BEGIN SELECT RAISE(ABORT, 'checkpoints are never changed'); END;
CREATE TRIGGER checkpoints_are_never_removed BEFORE DELETE ON checkpoints
    BEGIN SELECT RAISE(ABORT, 'checkpoints are never removed'); END;

CREATE TABLE nodes (
    level INTEGER NOT NULL,
    place INTEGER NOT NULL,
    hash  BLOB NOT NULL,
    PRIMARY KEY (level, place)
) STRICT, WITHOUT ROWID;
";

/// Opens the file for the writer, making it when there is none. What a daemon before left in the
/// log is made durable before anybody believes it.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, JournalError> {
    open_log_and_all(path, log::renew)
}

/// Opens the file for the writer once more; the log is this process's own.
pub(crate) fn open_writer_again(path: &Path) -> Result<Connection, JournalError> {
    open_log_and_all(path, |_| Ok(()))
}

fn open_log_and_all(
    path: &Path,
    renew: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<Connection, JournalError> {
    let cannot = |source: io::Error| JournalError::Open {
        path: path.to_owned(),
        source: Arc::new(source),
    };
    create_if_missing(path).map_err(cannot)?;
    let has_log = beside(path, "-wal").exists();
    let mut connection = connect(path)?;
    // Until the file is known to be ours, closing it must not fold its write-ahead log into it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)?;
    recognise(&connection, path)?;
    if has_log {
        // Nobody writes meanwhile; then it is read anew.
        connection.execute_batch("BEGIN IMMEDIATE")?;
        renew(path).map_err(|error| JournalError::Unsynced(Arc::new(error)))?;
        connection = connect(path)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    }
    for file in [path.to_owned(), beside(path, "-wal"), beside(path, "-shm")] {
        restrict(&file).map_err(cannot)?;
    }
    // A commit is one append to the write-ahead log. Its sync is the writer's own, so that the next
    // group is filled meanwhile; before the log is folded back, SQLite syncs it all the same.
    connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    // Until here a new file has a rollback journal. It is removed, but should it come back after
    // the power was cut, SQLite would take everything back to before there was a log.
    disk::sync_folder(path).map_err(cannot)?;
    connection.execute_batch(
        "PRAGMA synchronous = NORMAL;
         PRAGMA cache_size = -16384;
         PRAGMA temp_store = MEMORY;
         PRAGMA secure_delete = ON;
         PRAGMA recursive_triggers = ON;",
    )?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(connection)
}

/// Opens the write-ahead log to sync it. SQLite makes it before the first read and keeps it until
/// the last connection is closed.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    disk::open(&beside(path, "-wal"))
}

/// Opens the file, which [`open_writer`] has seen, for reading.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, JournalError> {
    let connection = connect(path)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -2048;")?;
    Ok(connection)
}

/// Opens a file that may be anybody's, to look at it and nothing else. A file without a log beside
/// it is read as it lies there; one with a log belongs to a daemon, or was left by one.
pub(crate) fn open_evidence(path: &Path) -> Result<Connection, JournalError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let path = std::path::absolute(path).map_err(|source| JournalError::Open {
        path: path.to_owned(),
        source: Arc::new(source),
    })?;
    let still = if beside(&path, "-wal").exists() {
        ""
    } else {
        "?immutable=1"
    };
    let connection = Connection::open_with_flags(format!("{}{still}", uri(&path)), flags)?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cell_size_check = ON;")?;
    Ok(connection)
}

/// A path as SQLite takes it beside parameters.
fn uri(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            // Writing to memory does not fail.
            other => drop(write!(uri, "%{other:02X}")),
        }
    }
    uri
}

/// In what a file is not a journal as this version makes it.
pub(crate) fn differs(connection: &Connection) -> Result<Option<String>, JournalError> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let found = (
        number("PRAGMA application_id")?,
        number("PRAGMA user_version")?,
    );
    let words = match found {
        (APPLICATION_ID, FORMAT) => None,
        (APPLICATION_ID, WITHOUT_PROOFS) => {
            Some("was written before there were proofs; start the daemon once to seal it")
        }
        (APPLICATION_ID, WITH_OPEN_BLOBS) => {
            Some("was written before blobs were sealed; start the daemon once to seal them")
        }
        (APPLICATION_ID, _) => Some("was written by another version of palyra"),
        _ => Some("is not a journal"),
    };
    if let Some(words) = words {
        return Ok(Some(words.to_owned()));
    }
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(&format!("{SCHEMA} {PROOFS} {SEALED_BLOBS}"))?;
    let (ours, found) = (objects(&ours)?, objects(connection)?);
    let differing = ours.symmetric_difference(&found).next();
    Ok(differing.map(|(_, name, _)| format!("has another `{name}` than a journal has")))
}

/// Kind, name and definition of everything in a database.
type Objects = BTreeSet<(String, String, Option<String>)>;

fn objects(connection: &Connection) -> Result<Objects, JournalError> {
    let mut statement = connection.prepare("SELECT type, name, sql FROM sqlite_schema")?;
    let objects = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(objects.collect::<Result<_, _>>()?)
}

/// Opens the file, which is there, with nothing decided yet.
pub(crate) fn connect(path: &Path) -> Result<Connection, JournalError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without this, some statements are compiled anew each time a parameter is bound, in case
    // statistics (there are none) would suggest another plan for the new value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// An empty database for projections, gone once it is closed.
pub(crate) fn scratch() -> Result<Connection, JournalError> {
    let connection = Connection::open("")?;
    connection.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         CREATE TABLE projections (
             name TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL, value BLOB NOT NULL,
             PRIMARY KEY (name, key)
         ) STRICT, WITHOUT ROWID;",
    )?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// A new empty file for the owner alone.
pub(crate) fn create_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).map(drop)
}

/// Made here and not by SQLite, which would follow the umask.
fn create_if_missing(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    match options.write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let regular = fs::metadata(path)?.is_file();
            regular
                .then_some(())
                .ok_or_else(|| io::Error::other("it is not a regular file"))
        }
        Err(error) => Err(error),
    }
}

/// SQLite gives the files beside the journal the journal's own mode; older ones may be looser.
fn restrict(file: &Path) -> io::Result<()> {
    match fs::metadata(file) {
        Ok(found) if found.permissions().mode() & 0o077 == 0 => Ok(()),
        Ok(_) => fs::set_permissions(file, Permissions::from_mode(0o600)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Brings a file of an earlier format up to date; what it then lacks is added by whoever knows it.
pub(crate) fn upgrade(transaction: &Transaction<'_>) -> Result<(), JournalError> {
    let format = transaction.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))?;
    if format == WITHOUT_PROOFS {
        transaction.execute_batch(&format!(
            "{PROOFS} PRAGMA user_version = {WITH_OPEN_BLOBS};"
        ))?;
    }
    Ok(())
}

/// Writes something that says nothing new.
pub(crate) fn touch(connection: &Connection) -> Result<(), JournalError> {
    Ok(connection.execute_batch(&format!("PRAGMA user_version = {FORMAT}"))?)
}

/// Whether the file's blobs are still to be sealed.
pub(crate) fn has_open_blobs(connection: &Connection) -> Result<bool, JournalError> {
    let format = connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))?;
    Ok(format == WITH_OPEN_BLOBS)
}

/// Makes the place for sealed blobs.
pub(crate) fn add_sealed_blobs(transaction: &Transaction<'_>) -> Result<(), JournalError> {
    Ok(transaction.execute_batch(SEALED_BLOBS)?)
}

/// All of them are in it.
pub(crate) fn blobs_are_sealed(transaction: &Transaction<'_>) -> Result<(), JournalError> {
    Ok(transaction.execute_batch(&format!("PRAGMA user_version = {FORMAT};"))?)
}

/// Reads before it writes: only an empty file is turned into a journal.
fn recognise(connection: &Connection, path: &Path) -> Result<(), JournalError> {
    let not_ours = || JournalError::NotAJournal {
        path: path.to_owned(),
    };
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application = match number("PRAGMA application_id") {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            return Err(not_ours());
        }
        other => other?,
    };
    let format = number("PRAGMA user_version")?;
    match (application, format) {
        (APPLICATION_ID, FORMAT | WITH_OPEN_BLOBS | WITHOUT_PROOFS) => Ok(()),
        (APPLICATION_ID, found) if found > FORMAT => Err(JournalError::Newer {
            path: path.to_owned(),
            found,
            known: FORMAT,
        }),
        (0, 0) if number("SELECT count(*) FROM sqlite_schema")? == 0 => {
            connection.execute_batch(&format!(
                "BEGIN IMMEDIATE; {SCHEMA} {PROOFS} {SEALED_BLOBS}
                 PRAGMA application_id = {APPLICATION_ID};
                 PRAGMA user_version = {FORMAT};
                 COMMIT;"
            ))?;
            Ok(())
        }
        _ => Err(not_ours()),
    }
}
