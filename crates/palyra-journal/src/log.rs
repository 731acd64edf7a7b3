//! The write-ahead log as a file: how far it is known to be on disk, and how to return to there.
//!
//! After a sync failed, nobody can tell what is on disk by reading: the kernel calls the pages it
//! could not write clean, keeps them or drops them, and the next sync says that all is well. Two
//! things are certain. What a sync covered that went through is on disk. And what is written anew is
//! dirty again, so that the next sync is about it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Advice, FlockOperation, fadvise, fcntl_lock};

use crate::disk;
use crate::error::JournalError;
use crate::schema;

/// In front of all frames.
const HEADER: u64 = 32;

/// In front of each page.
const FRAME_HEADER: u64 = 24;

/// What the kernel writes back as one.
const BLOCK: u64 = 4_096;

/// How far the file reaches beyond what is in it, at most.
const AHEAD: u64 = if cfg!(test) { 64 << 10 } else { 256 << 10 };

/// A place in the log at which a group ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// Two random numbers, new each time the log starts again at its beginning.
    salts: [u8; 8],
    /// Pages up to here.
    frames: u64,
}

impl Position {
    /// Nothing is in the log.
    const START: Self = Self {
        salts: [0; 8],
        frames: 0,
    };

    /// Where a log ends that has not been written to yet; `None` for any other.
    pub(crate) fn at_start(log: &File) -> Option<Self> {
        let empty = log.metadata().is_ok_and(|found| found.len() == 0);
        empty.then_some(Self::START)
    }

    /// Where the log ends, which holds this many pages. Nobody may be writing to it.
    pub(crate) fn of(log: &File, frames: u64) -> io::Result<Self> {
        let salts = header(log)?.map_or([0; 8], |header| header.salts);
        Ok(Self { salts, frames })
    }

    /// The bytes up to here in a log that may have started again since.
    fn length(&self, header: &Header) -> u64 {
        if header.salts == self.salts && self.frames > 0 {
            HEADER + self.frames * (FRAME_HEADER + header.page_size)
        } else {
            // Everything before this log was folded back and synced before it began.
            0
        }
    }

    /// Up to where the log may have been folded back, by whomever, as its index says. SQLite syncs
    /// the log up to there before it begins, and from then on the file is whole only together with
    /// it: this much must stay.
    fn folded(index: &File) -> io::Result<Self> {
        let mut bytes = [0; 132];
        index.read_exact_at(&mut bytes, 0)?;
        let mut salts = [0; 8];
        salts.copy_from_slice(bytes.get(32..40).unwrap_or_default());
        let [.., a, b, c, d] = bytes;
        Ok(Self {
            salts,
            frames: u64::from(u32::from_ne_bytes([a, b, c, d])),
        })
    }
}

/// Lets the file grow before it has to: a sync of a file that grew also waits for the file system
/// to note so, which takes as long again. What lies there is nothing to SQLite, whose frames carry
/// the salts of their log. Only whoever has the turn may do it, and a disk that refuses is left to
/// SQLite to complain about.
pub(crate) fn stay_ahead(log: &File, frames: u64) -> io::Result<()> {
    let reached = HEADER + frames * (FRAME_HEADER + BLOCK);
    let end = log.metadata()?.len();
    if reached + AHEAD / 2 <= end {
        return Ok(());
    }
    let zeros = vec![0; usize::try_from(AHEAD).unwrap_or(0)];
    disk::write_at(log, &zeros, end)
}

struct Header {
    salts: [u8; 8],
    page_size: u64,
}

fn header(log: &File) -> io::Result<Option<Header>> {
    let mut bytes = [0; 24];
    match log.read_exact_at(&mut bytes, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let [_, _, _, _, _, _, _, _, a, b, c, d, _, _, _, _, salts @ ..] = bytes;
    let page_size = u64::from(u32::from_be_bytes([a, b, c, d]));
    Ok(Some(Header { salts, page_size }))
}

/// Cuts the log back to where it is known to be on disk, or was folded back, and makes that durable.
/// Nobody of this process has the journal open; if somebody else has, nothing is done, because they
/// would go on reading what is cut.
pub(crate) fn cut(path: &Path, known: Option<Position>) -> Result<(), JournalError> {
    let cannot = |source| JournalError::Open {
        path: path.to_owned(),
        source: Arc::new(source),
    };
    let index = alone(path)?;
    let folded = index.as_ref().and_then(|it| Position::folded(it).ok());
    let log = match schema::open_log(path) {
        Ok(log) => log,
        // Folded back and removed: what is in the file is all there is.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot(error)),
    };
    match (known, folded) {
        (Some(known), Some(folded)) => cut_to(&log, known, folded),
        // It is not known what may go, so nothing does.
        (None, _) | (_, None) => rewrite(&log),
    }
    .map_err(|error| JournalError::Unsynced(Arc::new(error)))?;
    // What is read from here on comes from the disk, as far as the kernel lets go of its copy.
    for file in [&log, &File::open(path).map_err(cannot)?] {
        let _advice = fadvise(file, 0, None, Advice::DontNeed);
    }
    Ok(())
}

/// Every connection to the journal holds a lock on the log's index for as long as it is open.
fn alone(path: &Path) -> Result<Option<File>, JournalError> {
    let index = schema::beside(path, "-shm");
    let index = match OpenOptions::new().read(true).write(true).open(&index) {
        Ok(index) => index,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(JournalError::Open {
                path: index,
                source: Arc::new(error),
            });
        }
    };
    match fcntl_lock(&index, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(index)),
        Err(_) => Err(JournalError::locked()),
    }
}

fn cut_to(log: &File, known: Position, folded: Position) -> io::Result<()> {
    let (synced, length) = match header(log)? {
        // Somebody put another log there: none of it is ours to cut.
        Some(header) if header.salts != known.salts && header.salts != folded.salts => {
            return rewrite(log);
        }
        Some(header) => {
            let synced = known.length(&header);
            (synced, synced.max(folded.length(&header)))
        }
        None => (0, 0),
    };
    let found = log.metadata()?.len();
    if found < length {
        return Err(io::Error::other(format!(
            "the log has {found} bytes, and {length} were on disk"
        )));
    }
    disk::truncate(log, length)?;
    // The last block was being written when the sync failed, and what it holds of the time before
    // may have been torn with it.
    let start = synced / BLOCK * BLOCK;
    copy_onto_itself(log, start, length)?;
    disk::sync(log)
}

/// Writes the whole log onto itself: the same bytes, but dirty again.
fn rewrite(log: &File) -> io::Result<()> {
    copy_onto_itself(log, 0, log.metadata()?.len())?;
    disk::sync(log)
}

fn copy_onto_itself(log: &File, start: u64, end: u64) -> io::Result<()> {
    let mut at = start;
    let mut block = Vec::new();
    while at < end {
        block.resize(usize::try_from((end - at).min(1 << 20)).unwrap_or(0), 0);
        log.read_exact_at(&mut block, at)?;
        disk::write_at(log, &block, at)?;
        at += block.len() as u64;
    }
    Ok(())
}

/// What a daemon before this one left in the log may be in the kernel's memory and nowhere else.
/// The caller holds the journal's write lock.
pub(crate) fn renew(path: &Path) -> io::Result<()> {
    match schema::open_log(path) {
        Ok(log) => rewrite(&log),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
