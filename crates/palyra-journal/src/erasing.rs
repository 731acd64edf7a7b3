//! Erasing what entries commit to, so that its bytes are gone from the files.
//!
//! One transaction empties the blobs and appends an entry that names them; the entries that commit
//! to them stay as they are, and so do all proofs. SQLite zeroes what is emptied (`secure_delete`),
//! and then the write-ahead log, which still has it, is folded back and cut to nothing.

use std::sync::Arc;

use palyra_core::entry::{Entry, ErasedBlob, Stream};
use palyra_core::{CallId, UserName};

use crate::batch::{Appended, Expected, StreamAppend};
use crate::error::JournalError;
use crate::store::JournalStore;

/// What to erase of a call, and what to record about it.
#[derive(Debug, Clone)]
pub struct Erasure {
    /// The call, which is over.
    pub call: CallId,
    /// Where its stream stands: nothing may have happened since somebody looked.
    pub revision: u64,
    /// What goes.
    pub blobs: Vec<ErasedBlob>,
    /// Who wants it.
    pub by: UserName,
    /// Why.
    pub reason: Option<String>,
}

/// How an erasure went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    /// The place of the entry about it.
    pub seq: u64,
    /// Whether the write-ahead log is clean already. If somebody reads the journal for long, it is
    /// cleaned by itself within seconds after they are done, or when the daemon ends.
    pub log_cleared: bool,
}

impl JournalStore {
    /// Whether nothing that was erased is left in the write-ahead log.
    #[must_use]
    pub fn log_is_clean(&self) -> bool {
        self.checkpoints().log_is_clean()
    }

    /// Erases blobs for good and records that. Once this returns, what was erased cannot be read
    /// through the journal; `log_cleared` says whether its bytes are gone from the files, too.
    ///
    /// # Errors
    /// The stream is not where it was expected, or the journal could not be written: nothing was
    /// erased.
    pub async fn erase(&self, erasure: Erasure) -> Result<Erased, JournalError> {
        let erased = erasure.blobs.iter().map(|blob| blob.commitment).collect();
        let entry = Entry::BlobErased {
            blobs: erasure.blobs,
            by: erasure.by,
            reason: erasure.reason,
        };
        let only = StreamAppend {
            stream: Stream::Call(erasure.call),
            expected: Expected::Revision(erasure.revision),
            entries: vec![entry],
        };
        let Appended { last_seq, .. } = self
            .submit_with(vec![only], |batch| batch.erased = erased)
            .await?;
        let (checkpoints, shared) = (self.checkpoints(), Arc::clone(self.shared()));
        let readers = self.shared_readers();
        // It may have to wait for readers. If they take too long, the mender goes on trying.
        let cleared = tokio::task::spawn_blocking(move || {
            let cleared = checkpoints.clear_log(|| {
                readers.give_way();
                shared.still_synced().is_ok()
            });
            cleared.unwrap_or_else(|error| {
                shared.failed(&error);
                false
            })
        });
        Ok(Erased {
            seq: last_seq,
            log_cleared: cleared.await.unwrap_or(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use palyra_core::entry::Stream;
    use palyra_core::{Blob, BlobKind};

    use crate::batch::{Append, Expected, StreamAppend};
    use crate::failing;

    /// Whoever asked is gone before the log was cut: it is known that it still has to be.
    #[tokio::test]
    async fn an_erasure_that_nobody_waits_for_leaves_a_mark() {
        let folder = tempfile::tempdir().unwrap();
        let journal = failing::open(&folder);
        let blob = Blob::new(BlobKind::Output, b"a secret".to_vec());
        let commitment = blob.commitment();
        let blobs = vec![blob];
        journal
            .append(Append {
                streams: Vec::new(),
                blobs,
            })
            .await
            .unwrap();
        assert!(journal.log_is_clean(), "control");
        let only = StreamAppend {
            stream: Stream::Daemon,
            expected: Expected::Any,
            entries: Vec::new(),
        };
        let erased = journal.submit_with(vec![only], |batch| batch.erased = vec![commitment]);
        erased.await.unwrap();
        assert!(!journal.log_is_clean());
        let shared = journal.shared();
        let checkpoints = journal.checkpoints();
        assert!(
            checkpoints
                .clear_log(|| shared.still_synced().is_ok())
                .unwrap()
        );
        assert!(journal.log_is_clean());
    }
}
