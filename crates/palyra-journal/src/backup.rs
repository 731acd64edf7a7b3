//! A copy of the journal while it is written, and putting one back.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use crate::error::JournalError;
use crate::queries::Readers;
use crate::schema;
use crate::store::JournalStore;

/// How often a copy is begun.
const TRIES: usize = 10;

/// How long a copy that gave way waits until the log is cut, before it begins anew.
const PATIENCE: Duration = Duration::from_secs(5);

/// Under which name a copy is made, beside the journal, and what SQLite makes beside that.
const COPY: &str = ".copying";
const BESIDE_COPY: [&str; 4] = ["", "-journal", "-wal", "-shm"];

/// Under which name a backup is copied before it takes the journal's place.
const FRESH: &str = ".restoring";

impl JournalStore {
    /// A whole journal of its own, as of now, in a file without a name: it is gone once it is
    /// closed. It holds one state, ends with a checkpoint, and has nothing of what was erased.
    /// Appending goes on meanwhile. Whoever mends or erases is not held up: the copy is begun anew
    /// after them. This blocks.
    ///
    /// # Errors
    /// The copy could not be written, such as for want of space; or it had to give way again and
    /// again.
    pub fn backup(&self) -> Result<File, JournalError> {
        let _one_at_a_time = self.copying();
        for _ in 0..TRIES {
            if let Some(copy) = self.copy_once()? {
                return Ok(copy);
            }
            tracing::info!("a backup gave way to an erasure or to mending, and begins anew");
            let until = Instant::now() + PATIENCE;
            while !self.log_is_clean() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Err(JournalError::GaveWay)
    }

    /// `None` when it gave way.
    fn copy_once(&self) -> Result<Option<File>, JournalError> {
        let copy = schema::beside(self.path(), COPY);
        let _reading = self.readers().count_me();
        remove_copies(self.path());
        let made = vacuum_into(self.readers(), &copy);
        let opened = match made {
            Ok(true) => File::open(&copy)
                .map(Some)
                .map_err(|source| JournalError::Open {
                    path: copy.clone(),
                    source: source.into(),
                }),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        remove_copies(self.path());
        opened
    }
}

/// Removes what a backup or a restore left that was cut short: it has everything in it, also what is
/// erased later. Nobody may be at one.
pub(crate) fn remove_copies(journal: &Path) {
    let copy = schema::beside(journal, COPY);
    let copies = BESIDE_COPY.map(|suffix| schema::beside(&copy, suffix));
    for left in copies.into_iter().chain([schema::beside(journal, FRESH)]) {
        match fs::remove_file(&left) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = %left.display(), %error, "an unfinished backup stays");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// `false` when it gave way.
fn vacuum_into(from: &Readers, to: &Path) -> Result<bool, JournalError> {
    // Made here and not by SQLite, which would follow the umask.
    schema::create_private(to).map_err(|source| JournalError::Open {
        path: to.to_owned(),
        source: source.into(),
    })?;
    let name = to.to_str().ok_or_else(|| JournalError::Open {
        path: to.to_owned(),
        source: io::Error::other("its path is not Unicode").into(),
    })?;
    let connection: Connection = schema::connect(from.path())?;
    let _patient = from.patient_with(&connection);
    match connection.execute("VACUUM INTO ?1", [name]) {
        Ok(_) => Ok(true),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Puts a journal in the place of another one, which is kept under the second name. Not under a
/// running daemon: its lock must be held.
///
/// # Errors
/// It could not be copied or moved. Then the journal is the one that it was, unless the error came
/// from the very last step; the kept one has everything in any case.
pub fn replace(journal: &Path, with: &Path, keep: &Path) -> io::Result<()> {
    let fresh = schema::beside(journal, FRESH);
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    schema::create_private(&fresh)?;
    let mut to = fs::OpenOptions::new().write(true).open(&fresh)?;
    io::copy(&mut File::open(with)?, &mut to)?;
    to.sync_all()?;
    let logs = ["-wal", "-shm"];
    if journal.exists() {
        fs::hard_link(journal, keep)?;
        for suffix in logs
            .iter()
            .filter(|suffix| schema::beside(journal, suffix).exists())
        {
            fs::hard_link(
                schema::beside(journal, suffix),
                schema::beside(keep, suffix),
            )?;
        }
        sync_folder(journal)?;
    }
    // The old log must be gone before the new file is there: SQLite would fold it into that.
    for suffix in logs {
        match fs::remove_file(schema::beside(journal, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    sync_folder(journal)?;
    fs::rename(&fresh, journal)?;
    sync_folder(journal)
}

fn sync_folder(of: &Path) -> io::Result<()> {
    of.parent()
        .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// What a journal has beyond a place.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Beyond {
    /// The first of these entries.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// Calls that were proposed among them.
    pub calls: u64,
    /// Answers that people gave.
    pub decisions: u64,
    /// Erasures: what they erased is still in an older copy.
    pub erasures: u64,
}

/// What a journal's file has after this entry; `None` when it has nothing more.
///
/// # Errors
/// It cannot be read.
pub fn beyond(file: &Path, after: u64) -> Result<Option<Beyond>, JournalError> {
    let connection = schema::open_evidence(file)?;
    let after = crate::queries::to_sql(after);
    let count = |kind: &str| {
        connection.query_row(
            "SELECT count(*) FROM entries WHERE seq > ?1 AND kind = ?2",
            rusqlite::params![after, kind],
            |row| row.get::<_, i64>(0),
        )
    };
    let range: (Option<i64>, Option<i64>) = connection.query_row(
        "SELECT min(seq), max(seq) FROM entries WHERE seq > ?1",
        [after],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let (Some(first), Some(last)) = range else {
        return Ok(None);
    };
    Ok(Some(Beyond {
        first: first.unsigned_abs(),
        last: last.unsigned_abs(),
        calls: count("proposed")?.unsigned_abs(),
        decisions: count("approval_decided")?.unsigned_abs(),
        erasures: count("blob_erased")?.unsigned_abs(),
    }))
}

/// The name under which a replaced journal is kept.
#[must_use]
pub fn kept_name(journal: &Path, at: palyra_core::Timestamp) -> PathBuf {
    let at = at.to_string().replace(':', "-");
    journal.with_file_name(format!("journal-replaced-{at}.db"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use palyra_core::entry::Stream;
    use palyra_core::{Blob, BlobKind};

    use super::*;
    use crate::batch::{Append, Expected, StreamAppend};
    use crate::failing;

    /// As long as a copy may take: what reads one state of the file and never comes to an end.
    fn read_for_ever(readers: &Readers) -> Option<ErrorCode> {
        let connection = schema::connect(readers.path()).unwrap();
        let _patient = readers.patient_with(&connection);
        let endless = "WITH RECURSIVE on_and_on (n) AS (
                           SELECT count(*) FROM blobs UNION ALL SELECT n + 1 FROM on_and_on
                       ) SELECT max(n) FROM on_and_on";
        let ended = connection.query_row(endless, [], |_| Ok(()));
        ended.unwrap_err().sqlite_error_code()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_long_copy_gives_way_to_an_erasure() {
        let folder = tempfile::tempdir().unwrap();
        let journal = failing::open(&folder);
        let call = palyra_core::CallId::mint(palyra_core::Timestamp::from_millis(0));
        let blob = Blob::new(BlobKind::Output, b"a secret".to_vec());
        let commitment = blob.commitment();
        let only = StreamAppend {
            stream: Stream::Call(call.clone()),
            expected: Expected::NoStream,
            entries: vec![palyra_core::entry::Entry::Interrupted],
        };
        let append = Append {
            streams: vec![only],
            blobs: vec![blob],
        };
        journal.append(append).await.unwrap();
        let readers = journal.shared_readers();
        let copy = tokio::task::spawn_blocking(move || {
            let _reading = readers.count_me();
            read_for_ever(&readers)
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!copy.is_finished(), "control");
        let erasure = crate::Erasure {
            call,
            revision: 1,
            blobs: vec![palyra_core::entry::ErasedBlob {
                kind: BlobKind::Output,
                commitment,
            }],
            by: "owner".parse().unwrap(),
            reason: None,
        };
        let erased = journal.erase(erasure).await.unwrap();
        assert!(erased.log_cleared);
        assert_eq!(copy.await.unwrap(), Some(ErrorCode::OperationInterrupted));
        // A copy that is begun after it goes through, without what was erased.
        journal.backup().unwrap();
    }

    /// Nothing executes while the journal is mended, so that does not wait for a copy either.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_long_copy_gives_way_to_mending() {
        let folder = tempfile::tempdir().unwrap();
        let journal = failing::open(&folder);
        let append = || failing::batch(&Stream::Daemon, Expected::Any, 8);
        journal.append(append()).await.unwrap();
        let readers = journal.shared_readers();
        let copy = tokio::task::spawn_blocking(move || {
            let _reading = readers.count_me();
            read_for_ever(&readers)
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        journal.shared().refuse_sync(true);
        journal.append(append()).await.unwrap_err();
        journal.shared().refuse_sync(false);
        assert_eq!(copy.await.unwrap(), Some(ErrorCode::OperationInterrupted));
        while journal.state() != crate::JournalState::Writable {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        journal.append(append()).await.unwrap();
    }
}
