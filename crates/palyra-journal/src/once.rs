//! Appends that happen once, however often they are asked for.
//!
//! An appender that does not know whether it was heard asks again with the same key. The first one
//! counts; whoever asks again hears the same answer, also after a restart.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::batch::{Append, Appended, Committed, PreparedStream};
use crate::error::JournalError;
use crate::store::JournalStore;

/// The longest key.
const MOST: usize = 200;

impl JournalStore {
    /// Appends, unless something was appended under this key before; then gives the answer that
    /// was given then.
    ///
    /// # Errors
    /// As [`append`](Self::append); or the key was used to append to other streams, or is empty or
    /// too long.
    pub async fn append_once(&self, key: &str, batch: Append) -> Result<Appended, JournalError> {
        if key.is_empty() || key.len() > MOST {
            return Err(JournalError::BadKey { length: key.len() });
        }
        let blobs: Vec<Committed> = batch.blobs.into_iter().map(Committed::from).collect();
        let blobs = self.sealed(&blobs)?;
        self.submit_with(batch.streams, |prepared| {
            prepared.bytes += blobs.iter().map(|blob| blob.bytes.len()).sum::<usize>();
            prepared.blobs = blobs;
            prepared.once = Some(key.to_owned());
        })
        .await
    }
}

/// The answer that was given under this key, if there was one.
pub(crate) fn answered(
    connection: &Connection,
    key: &str,
    streams: &[PreparedStream],
) -> Result<Option<Result<Appended, JournalError>>, JournalError> {
    let found: Option<(String, i64, String)> = connection
        .prepare_cached("SELECT streams, last_seq, revisions FROM answered WHERE key = ?1")?
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((filed, last_seq, revisions)) = found else {
        return Ok(None);
    };
    if filed != names(streams) {
        let key = key.to_owned();
        return Ok(Some(Err(JournalError::KeyReused { key })));
    }
    let damaged = || JournalError::corrupt(format!("the answer kept under `{key}` does not read"));
    Ok(Some(Ok(Appended {
        last_seq: last_seq.unsigned_abs(),
        revisions: serde_json::from_str(&revisions).map_err(|_| damaged())?,
    })))
}

/// Keeps an answer, in the transaction that it is about.
pub(crate) fn answer(
    connection: &Connection,
    key: &str,
    streams: &[PreparedStream],
    appended: &Appended,
) -> Result<(), JournalError> {
    let revisions = serde_json::Value::from(appended.revisions.clone()).to_string();
    connection
        .prepare_cached(
            "INSERT INTO answered (key, streams, last_seq, revisions) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            key,
            names(streams),
            crate::queries::to_sql(appended.last_seq),
            revisions
        ])?;
    Ok(())
}

fn names(streams: &[PreparedStream]) -> String {
    let names: Vec<&str> = streams.iter().map(|stream| stream.name.as_str()).collect();
    names.join(" ")
}
