//! What a person does to the journal: contents of a call are erased for good, projections are made
//! anew, a copy is taken.

use palyra_core::entry::{Entry, ErasedBlob, Recorded, Stream};
use palyra_core::{BlobKind, CallId, Commitment};
use palyra_journal::{Erasure, JournalError, Kept, Rebuild};
use palyra_policy::{Action, Resource};

use crate::error::{Refusal, RefusalKind};
use crate::service::{Caller, GatewayService};

/// The longest reason that is recorded.
const MOST_REASON: usize = 1_000;

/// Which contents of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Its arguments, environment values among them, and what policy saw, which names them.
    Arguments,
    /// What it gave back.
    Output,
    /// All of it.
    All,
}

impl What {
    const fn covers(self, kind: BlobKind) -> bool {
        match (self, kind) {
            (Self::All, BlobKind::Arguments | BlobKind::Facts | BlobKind::Output)
            | (Self::Arguments, BlobKind::Arguments | BlobKind::Facts)
            | (Self::Output, BlobKind::Output) => true,
            (Self::Arguments, BlobKind::Output)
            | (Self::Output, BlobKind::Arguments | BlobKind::Facts)
            | (_, BlobKind::Policies) => false,
        }
    }
}

/// What was erased.
#[derive(Debug, Clone)]
pub struct CallErased {
    /// Of which call.
    pub call: CallId,
    /// What went now; empty when it was gone already.
    pub blobs: Vec<ErasedBlob>,
    /// The entry about it.
    pub seq: Option<u64>,
    /// Whether its bytes are gone from every file of the journal.
    pub log_cleared: bool,
}

impl GatewayService {
    /// Erases contents of a call that is over. Its entries, and every proof of them, stay.
    ///
    /// # Errors
    /// Policy forbids it, there is no such call, it is not over, or the journal cannot be written.
    pub async fn erase_call(
        &self,
        caller: &Caller,
        id: &str,
        what: What,
        reason: Option<String>,
    ) -> Result<CallErased, Refusal> {
        self.allowed(caller, Action::JournalManage, Resource::Daemon)?;
        if let Some(length) = reason.as_ref().map(String::len)
            && length > MOST_REASON
        {
            return Err(Refusal::new(
                RefusalKind::Invalid,
                "reason_too_long",
                format!("the reason has {length} bytes, and {MOST_REASON} are recorded"),
                "say it shorter",
            ));
        }
        let (gateway, asked, id) = (self.clone(), caller.clone(), id.to_owned());
        let looked = move || gateway.erasable(&asked, &id, what);
        let (call, revision, blobs) = crate::policies::blocking(looked).await??;
        if blobs.is_empty() {
            return Ok(CallErased {
                call,
                blobs,
                seq: None,
                log_cleared: self.0.journal.log_is_clean(),
            });
        }
        let erasure = Erasure {
            call: call.clone(),
            revision,
            blobs: blobs.clone(),
            by: caller.principal.user().clone(),
            reason,
        };
        match self.0.journal.erase(erasure).await {
            Ok(erased) => Ok(CallErased {
                call,
                blobs,
                seq: Some(erased.seq),
                log_cleared: erased.log_cleared,
            }),
            Err(JournalError::Conflict { .. }) => Err(Refusal::new(
                RefusalKind::Conflict,
                "call_changed",
                format!("`{call}` changed in the meantime"),
                "run it again",
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes every projection anew from all entries, and mends what differs.
    ///
    /// # Errors
    /// Policy forbids it, or the journal cannot be read or written.
    pub async fn rebuild_journal(&self, caller: &Caller) -> Result<Rebuild, Refusal> {
        self.allowed(caller, Action::JournalManage, Resource::Daemon)?;
        let rebuild = self.0.journal.rebuild().await?;
        for odd in rebuild.projections.iter().filter(|found| !found.same()) {
            tracing::error!(
                projection = odd.name,
                odd.wrong,
                odd.missing,
                odd.unknown,
                "was mended"
            );
        }
        Ok(rebuild)
    }

    /// A copy of the journal as of now, which is gone once it is closed. This blocks.
    ///
    /// # Errors
    /// Policy forbids it, or the copy cannot be written.
    pub fn journal_backup(&self, caller: &Caller) -> Result<std::fs::File, Refusal> {
        self.allowed(caller, Action::JournalManage, Resource::Daemon)?;
        Ok(self.0.journal.backup()?)
    }

    /// Which contents of a call are there to be erased, and where its stream stands.
    fn erasable(
        &self,
        caller: &Caller,
        id: &str,
        what: What,
    ) -> Result<(CallId, u64, Vec<ErasedBlob>), Refusal> {
        let call = self.call_row_of(caller, id)?.call;
        let entries = self.0.journal.read_stream(&Stream::Call(call.clone()))?;
        if !entries.iter().any(ends) {
            return Err(Refusal::new(
                RefusalKind::Conflict,
                "call_not_over",
                format!("`{call}` is not over: it still runs or waits"),
                format!("wait for its end (`palyra calls show {call}`), then erase"),
            ));
        }
        let mut blobs: Vec<ErasedBlob> = Vec::new();
        for (kind, commitment) in entries.iter().filter_map(committed) {
            let known = blobs.iter().any(|blob| blob.commitment == commitment);
            if !what.covers(kind) || known {
                continue;
            }
            match self.0.journal.kept(&commitment)? {
                Kept::Whole(_) | Kept::Unreadable => blobs.push(ErasedBlob { kind, commitment }),
                Kept::Erased | Kept::Unknown => {}
            }
        }
        let revision = entries.last().map_or(0, |last| last.revision);
        Ok((call, revision, blobs))
    }
}

/// Whether nothing that commits to contents can follow.
const fn ends(recorded: &Recorded) -> bool {
    matches!(
        recorded.entry,
        Entry::Attested { .. } | Entry::Closed { .. } | Entry::Advised { .. } | Entry::Interrupted
    )
}

/// What an entry of a call commits to.
fn committed(recorded: &Recorded) -> Option<(BlobKind, Commitment)> {
    if let Entry::Proposed { arguments, .. } = &recorded.entry {
        return Some((BlobKind::Arguments, *arguments));
    }
    if let Entry::Decided { facts, .. } = &recorded.entry {
        return Some((BlobKind::Facts, *facts));
    }
    if let Entry::Finished { output, .. } = &recorded.entry {
        return Some((BlobKind::Output, *output));
    }
    None
}
