//! A copy of the journal while it is written, and putting one back.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::error::JournalError;
use crate::schema;
use crate::store::JournalStore;

impl JournalStore {
    /// A whole journal of its own, as of now, in a file without a name: it is gone once it is
    /// closed. It holds one state, ends with a checkpoint, and has nothing of what was erased.
    /// Appending goes on meanwhile. This blocks.
    ///
    /// # Errors
    /// The copy could not be written, such as for want of space.
    pub fn backup(&self) -> Result<File, JournalError> {
        let copy = schema::beside(self.path(), ".copying");
        let cannot = |source: io::Error| JournalError::Open {
            path: copy.clone(),
            source: source.into(),
        };
        let _one_at_a_time = self.copying();
        let _reading = self.readers().count_me();
        // One that a crash left.
        let _absent = fs::remove_file(&copy);
        let made = vacuum_into(self.path(), &copy);
        let opened = made.and_then(|()| File::open(&copy).map_err(cannot));
        let _absent = fs::remove_file(&copy);
        opened
    }
}

fn vacuum_into(from: &Path, to: &Path) -> Result<(), JournalError> {
    // Made here and not by SQLite, which would follow the umask.
    schema::create_private(to).map_err(|source| JournalError::Open {
        path: to.to_owned(),
        source: source.into(),
    })?;
    let name = to.to_str().ok_or_else(|| JournalError::Open {
        path: to.to_owned(),
        source: io::Error::other("its path is not Unicode").into(),
    })?;
    let connection: Connection = schema::connect(from)?;
    connection.execute("VACUUM INTO ?1", [name])?;
    Ok(())
}

/// Puts a journal in the place of another one, which is kept under the second name. Not under a
/// running daemon: its lock must be held.
///
/// # Errors
/// It could not be copied or moved. Then the journal is the one that it was, unless the error came
/// from the very last step; the kept one has everything in any case.
pub fn replace(journal: &Path, with: &Path, keep: &Path) -> io::Result<()> {
    let fresh = schema::beside(journal, ".restoring");
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
