//! [`BlobBackend`] in one embedded database, held by one process.

use palyra_core::{SecretRef, Timestamp};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Transaction, params};

use crate::VaultError;
use crate::backend::{BlobBackend, Latest, Meta, Own, Sealed, Stored, Write};
use crate::files::Folder;
use crate::head::Head;
use crate::key::KeyId;

/// The file in the vault's folder.
pub(crate) const FILE: &str = "vault.db";
/// The format that is written here.
const FORMAT: i64 = 3;
/// The format before a secret's newest number stood with its versions.
const WITH_LATEST: i64 = 2;
/// The format before the daemon's own keys were kept here.
const WITHOUT_OWN: i64 = 1;
/// No database is smaller.
const SMALLEST: usize = 512;
/// "plyv", so that `file` and we know it from other databases.
const APPLICATION: i64 = 0x706c_7976;

const SCHEMA: &str = "
CREATE TABLE vault (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id BLOB NOT NULL, keystore TEXT NOT NULL,
    active BLOB NOT NULL, pending BLOB, previous BLOB, integrity BLOB NOT NULL,
    generation INTEGER NOT NULL, versions INTEGER NOT NULL,
    sum BLOB NOT NULL, mac BLOB NOT NULL, change TEXT NOT NULL
) STRICT;
";

/// Every version of every secret. The newest row of a secret that is gone stays, without a value:
/// numbers never repeat. One tree and no index beside it, so a put touches one page here.
const VERSIONS: &str = "
CREATE TABLE version (
    scope TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
    created_at INTEGER, expires_at INTEGER, audience TEXT,
    key BLOB, wrapped BLOB, value BLOB,
    PRIMARY KEY (scope, name, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX version_ends ON version (expires_at) WHERE expires_at IS NOT NULL;
";

/// From the two tables of the formats before.
const FROM_LATEST: &str = "
INSERT INTO version SELECT scope, name, version, created_at, expires_at, audience, key, wrapped, value
    FROM blob;
INSERT INTO version (scope, name, version) SELECT scope, name, version FROM latest WHERE live = 0;
DROP TABLE blob;
DROP TABLE latest;
";

const OWN: &str = "
CREATE TABLE IF NOT EXISTS own (
    name TEXT PRIMARY KEY, key BLOB NOT NULL, wrapped BLOB NOT NULL, value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
";

const COLUMNS: &str =
    "b.scope, b.name, b.version, b.created_at, b.expires_at, b.audience, b.key, b.wrapped, b.value";

/// Blobs in SQLite: a write-ahead log, synced before a commit comes back.
pub struct SqliteBlobs {
    connection: Connection,
    folder: Folder,
}

impl SqliteBlobs {
    /// Opens the database in this folder, which is made if it is not there.
    ///
    /// # Errors
    /// The folder or the file is not ours alone, another process has it, or it is no vault.
    pub fn open(folder: &std::path::Path) -> Result<Self, VaultError> {
        let folder = Folder::open(folder)?;
        let size = folder.check(FILE)?;
        for name in ["vault.db-wal", "vault.db-shm"] {
            folder.check(name)?;
        }
        if size.is_some_and(|size| size > 0) {
            begins_as_ours(&folder)?;
        }
        folder.touch(FILE).map_err(VaultError::storage)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection = Connection::open_with_flags(folder.path().join(FILE), flags)?;
        // Alone, and with the log open from the start: no file is opened by its name later.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.busy_timeout(std::time::Duration::ZERO)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "secure_delete", "ON")?;
        connection.pragma_update(None, "trusted_schema", "OFF")?;
        connection.pragma_update(None, "cell_size_check", "ON")?;
        // Sealed pages only, and only as many as there are secrets: a hundred thousand stay warm.
        connection.pragma_update(None, "cache_size", -65_536)?;
        // One plan for a statement, whatever is bound to it: else SQLite prepares some anew each time.
        connection.set_db_config(
            rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG,
            true,
        )?;
        connection.set_prepared_statement_cache_capacity(32);
        let mut blobs = Self { connection, folder };
        blobs.prepare(size.is_none_or(|size| size == 0))?;
        blobs.folder.same()?;
        Ok(blobs)
    }

    /// `fresh` is whether there was nothing: a file that was cut short must not become a new vault.
    fn prepare(&mut self, fresh: bool) -> Result<(), VaultError> {
        let transaction = self
            .connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Exclusive)?;
        let number = |name: &str| transaction.pragma_query_value(None, name, |row| row.get(0));
        let (format, application): (i64, i64) =
            (number("user_version")?, number("application_id")?);
        let tables: i64 =
            transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        match (format, application, tables) {
            (0, 0, 0) if fresh => {
                for part in [SCHEMA, VERSIONS, OWN] {
                    transaction.execute_batch(part)?;
                }
                transaction.pragma_update(None, "application_id", APPLICATION)?;
                transaction.pragma_update(None, "user_version", FORMAT)?;
                transaction.commit()?;
                Ok(())
            }
            (FORMAT, APPLICATION, _) => Ok(()),
            (WITHOUT_OWN | WITH_LATEST, APPLICATION, _) => {
                for part in [OWN, VERSIONS, FROM_LATEST] {
                    transaction.execute_batch(part)?;
                }
                transaction.pragma_update(None, "user_version", FORMAT)?;
                transaction.commit()?;
                Ok(())
            }
            (found, APPLICATION, _) if found > FORMAT => Err(VaultError::Newer {
                found,
                known: FORMAT,
            }),
            (..) => Err(VaultError::damaged(format!("`{FILE}` is not a vault"))),
        }
    }

    /// That nothing else is there either: a vault whose one row cannot be found is damaged, and must
    /// not become a new one with a key of its own.
    fn is_empty(&self) -> Result<(), VaultError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM version) OR EXISTS (SELECT 1 FROM own)";
        let any: bool = self.connection.query_row(sql, [], |row| row.get(0))?;
        match any {
            false => Ok(()),
            true => Err(VaultError::damaged(
                "what is known of the whole vault is gone",
            )),
        }
    }

    fn select(
        &self,
        rest: &str,
        values: &[&dyn rusqlite::ToSql],
        see: &mut dyn FnMut(Stored) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        let sql = format!("SELECT {COLUMNS} FROM {rest}");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(values)?;
        while let Some(row) = rows.next()? {
            see(stored(row)?)?;
        }
        Ok(())
    }

    fn collect(
        &self,
        rest: &str,
        values: &[&dyn rusqlite::ToSql],
    ) -> Result<Vec<Stored>, VaultError> {
        let mut found = Vec::new();
        self.select(rest, values, &mut |stored| {
            found.push(stored);
            Ok(())
        })?;
        Ok(found)
    }
}

impl BlobBackend for SqliteBlobs {
    fn meta(&self) -> Result<Option<Meta>, VaultError> {
        let sql = "SELECT id, keystore, active, pending, previous, integrity, generation, versions,
                          sum, mac, change FROM vault WHERE one = 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        match rows.next()? {
            Some(row) => meta(row).map(Some),
            None => self.is_empty().map(|()| None),
        }
    }

    fn commit(&mut self, meta: &Meta, writes: &[Write<'_>]) -> Result<(), VaultError> {
        self.folder.same()?;
        let transaction = self.connection.transaction()?;
        for write in writes {
            apply(&transaction, write)?;
        }
        keep_meta(&transaction, meta)?;
        transaction.commit()?;
        Ok(())
    }

    fn latest(&self, secret: &SecretRef) -> Result<Option<Latest>, VaultError> {
        let sql = "SELECT version, value IS NOT NULL FROM version
                   WHERE scope = ?1 AND name = ?2 ORDER BY version DESC LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let names = params![secret.scope.to_string(), secret.name.as_str()];
        let found = statement.query_row(names, |row| {
            Ok(Latest {
                version: row.get(0)?,
                live: row.get(1)?,
            })
        });
        Ok(found.optional()?)
    }

    fn get(&self, secret: &SecretRef, version: u64) -> Result<Option<Stored>, VaultError> {
        let rest = "version b WHERE b.scope = ?1 AND b.name = ?2 AND b.version = ?3
            AND b.value IS NOT NULL";
        let scope = secret.scope.to_string();
        let found = self.collect(rest, &[&scope, &secret.name.as_str(), &version])?;
        Ok(found.into_iter().next())
    }

    fn versions(&self, secret: &SecretRef) -> Result<Vec<Stored>, VaultError> {
        let rest = "version b WHERE b.scope = ?1 AND b.name = ?2 AND b.value IS NOT NULL
            ORDER BY b.version DESC";
        self.collect(rest, &[&secret.scope.to_string(), &secret.name.as_str()])
    }

    fn list(&self, after: Option<&SecretRef>, most: usize) -> Result<Vec<Stored>, VaultError> {
        let rest = "version b WHERE (b.scope, b.name) > (?1, ?2) AND b.value IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM version n
                WHERE n.scope = b.scope AND n.name = b.name AND n.version > b.version)
            ORDER BY b.scope, b.name LIMIT ?3";
        let scope = after.map_or_else(String::new, |after| after.scope.to_string());
        let name = after.map_or("", |after| after.name.as_str());
        self.collect(rest, &[&scope, &name, &limit(most)])
    }

    fn each(
        &self,
        see: &mut dyn FnMut(Stored) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        self.select("version b WHERE b.value IS NOT NULL", &[], see)
    }

    fn each_latest(
        &self,
        see: &mut dyn FnMut(&SecretRef, Latest) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        // Beside a maximum, SQLite gives the other columns of the row that has it.
        let sql = "SELECT scope, name, max(version), value IS NOT NULL FROM version
                   GROUP BY scope, name";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let latest = Latest {
                version: row.get(2)?,
                live: row.get(3)?,
            };
            see(&secret(row)?, latest)?;
        }
        Ok(())
    }

    fn owned(&self) -> Result<Vec<Own>, VaultError> {
        let sql = "SELECT name, key, wrapped, value FROM own ORDER BY name";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let key: Vec<u8> = row.get(1)?;
            found.push(Own {
                name: row.get(0)?,
                sealed: Sealed {
                    key: KeyId::from_bytes(&key).ok_or_else(|| odd("a key's id"))?,
                    wrapped: row.get(2)?,
                    value: row.get(3)?,
                },
            });
        }
        Ok(found)
    }

    fn page(&self, after: Option<&Stored>, most: usize) -> Result<Vec<Stored>, VaultError> {
        let rest = "version b WHERE (b.scope, b.name, b.version) > (?1, ?2, ?3)
            AND b.value IS NOT NULL ORDER BY b.scope, b.name, b.version LIMIT ?4";
        let scope = after.map_or_else(String::new, |after| after.secret.scope.to_string());
        let name = after.map_or("", |after| after.secret.name.as_str());
        let version = after.map_or(0, |after| after.version);
        self.collect(rest, &[&scope, &name, &version, &limit(most)])
    }

    fn ended(&self, now: Timestamp, most: usize) -> Result<Vec<Stored>, VaultError> {
        let rest = "version b WHERE b.expires_at <= ?1 LIMIT ?2";
        self.collect(rest, &[&now.as_millis(), &limit(most)])
    }
}

/// Refuses what SQLite would take for nothing and write over: the first bytes of a file that was cut
/// short.
fn begins_as_ours(folder: &Folder) -> Result<(), VaultError> {
    let bytes = folder.read(FILE)?.unwrap_or_default();
    match bytes.len() >= SMALLEST && bytes.starts_with(b"SQLite format 3\0") {
        true => Ok(()),
        false => Err(VaultError::damaged(format!("`{FILE}` is not a vault"))),
    }
}

fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

fn apply(transaction: &Transaction<'_>, write: &Write<'_>) -> Result<(), VaultError> {
    let scope = |secret: &SecretRef| secret.scope.to_string();
    match write {
        Write::Put(stored) => transaction
            .prepare_cached("INSERT INTO version VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?
            .execute(params![
                scope(&stored.secret),
                stored.secret.name.as_str(),
                stored.version,
                stored.created_at.as_millis(),
                stored.expires_at.map(Timestamp::as_millis),
                stored.audience,
                stored.sealed.key.as_bytes().as_slice(),
                stored.sealed.wrapped,
                stored.sealed.value,
            ])?,
        Write::Remove(secret, version) => transaction
            .prepare_cached("DELETE FROM version WHERE scope = ?1 AND name = ?2 AND version = ?3")?
            .execute(params![scope(secret), secret.name.as_str(), version])?,
        // It stands with its version; what was kept in place of one that is gone goes.
        Write::Latest(secret, latest) if latest.live => transaction
            .prepare_cached(
                "DELETE FROM version
                 WHERE scope = ?1 AND name = ?2 AND version < ?3 AND value IS NULL",
            )?
            .execute(params![scope(secret), secret.name.as_str(), latest.version])?,
        Write::Latest(secret, latest) => transaction
            .prepare_cached("INSERT INTO version (scope, name, version) VALUES (?1, ?2, ?3)")?
            .execute(params![scope(secret), secret.name.as_str(), latest.version])?,
        Write::Rewrap(stored) => transaction
            .prepare_cached(
                "UPDATE version SET key = ?4, wrapped = ?5 WHERE scope = ?1 AND name = ?2 AND version = ?3",
            )?
            .execute(params![
                scope(&stored.secret),
                stored.secret.name.as_str(),
                stored.version,
                stored.sealed.key.as_bytes().as_slice(),
                stored.sealed.wrapped,
            ])?,
        Write::Own(own) => transaction
            .prepare_cached("INSERT OR REPLACE INTO own VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![
                own.name,
                own.sealed.key.as_bytes().as_slice(),
                own.sealed.wrapped,
                own.sealed.value,
            ])?,
    };
    Ok(())
}

fn keep_meta(transaction: &Transaction<'_>, meta: &Meta) -> Result<(), VaultError> {
    let id = |key: &Option<KeyId>| key.map(|key| key.as_bytes().to_vec());
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO vault
             VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            meta.vault.as_slice(),
            meta.keystore.as_str(),
            meta.active.as_bytes().as_slice(),
            id(&meta.pending),
            id(&meta.previous),
            meta.integrity,
            meta.head.generation,
            meta.head.versions,
            meta.head.sum.as_slice(),
            meta.head.mac.as_slice(),
            meta.change,
        ])?;
    Ok(())
}

fn odd(what: &str) -> VaultError {
    VaultError::damaged(format!("{what} cannot be read"))
}

fn array<const N: usize>(bytes: &[u8], what: &str) -> Result<[u8; N], VaultError> {
    bytes.try_into().map_err(|_| odd(what))
}

fn meta(row: &Row<'_>) -> Result<Meta, VaultError> {
    let bytes = |place: usize| row.get::<_, Vec<u8>>(place);
    let key = |place: usize| -> Result<Option<KeyId>, VaultError> {
        let found: Option<Vec<u8>> = row.get(place)?;
        found
            .map(|bytes| KeyId::from_bytes(&bytes).ok_or_else(|| odd("a key's id")))
            .transpose()
    };
    let keystore: String = row.get(1)?;
    Ok(Meta {
        vault: array(&bytes(0)?, "the vault's id")?,
        keystore: keystore.parse().map_err(|_| odd("the key store"))?,
        active: key(2)?.ok_or_else(|| odd("the key's id"))?,
        pending: key(3)?,
        previous: key(4)?,
        integrity: bytes(5)?,
        head: Head {
            generation: row.get(6)?,
            versions: row.get(7)?,
            sum: array(&bytes(8)?, "the head")?,
            mac: array(&bytes(9)?, "the head")?,
        },
        change: row.get(10)?,
    })
}

fn secret(row: &Row<'_>) -> Result<SecretRef, VaultError> {
    let (scope, name): (String, String) = (row.get(0)?, row.get(1)?);
    Ok(SecretRef {
        scope: scope.parse().map_err(|_| odd("a secret's scope"))?,
        name: name.parse().map_err(|_| odd("a secret's name"))?,
    })
}

fn stored(row: &Row<'_>) -> Result<Stored, VaultError> {
    let key: Vec<u8> = row.get(6)?;
    let expires: Option<i64> = row.get(4)?;
    Ok(Stored {
        secret: secret(row)?,
        version: row.get(2)?,
        created_at: Timestamp::from_millis(row.get(3)?),
        expires_at: expires.map(Timestamp::from_millis),
        audience: row.get(5)?,
        sealed: Sealed {
            key: KeyId::from_bytes(&key).ok_or_else(|| odd("a key's id"))?,
            wrapped: row.get(7)?,
            value: row.get(8)?,
        },
    })
}

impl From<rusqlite::Error> for VaultError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::InUse,
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::damaged(error.to_string())
            }
            Some(_) => Self::storage(error),
            None if is_odd_row(&error) => Self::damaged(error.to_string()),
            None => Self::storage(error),
        }
    }
}

/// A row that holds something else than was written.
const fn is_odd_row(error: &rusqlite::Error) -> bool {
    use rusqlite::Error as E;
    matches!(
        error,
        E::InvalidColumnType(..)
            | E::FromSqlConversionFailure(..)
            | E::IntegralValueOutOfRange(..)
            | E::Utf8Error(..)
    )
}
