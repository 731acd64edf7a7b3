//! How a change of policies becomes an entry.

use palyra_core::entry::{Entry, Stream, WhyActivated};
use palyra_core::{Blob, Commitment, Digest, UserName};
use palyra_journal::{Append, Expected, JournalStore, StreamAppend};
use palyra_policy::operator::Bundle;

use super::refusals::unknown_version;
use super::versions::{self, PolicyVersion};
use crate::error::Refusal;

/// A version to be.
pub(super) struct New<'a> {
    pub(super) bundle: &'a Bundle,
    pub(super) baseline: String,
    pub(super) sources: Kept,
    pub(super) why: WhyActivated,
    pub(super) by: Option<UserName>,
    pub(super) set_aside: Option<Digest>,
}

/// Texts that are stored already, or with the version.
pub(super) enum Kept {
    Already(Commitment),
    Now(Blob),
}

/// Makes a version durable.
pub(super) async fn record(
    journal: &JournalStore,
    number: u64,
    new: New<'_>,
) -> Result<(), Refusal> {
    let (sources, blobs) = match new.sources {
        Kept::Already(commitment) => (commitment, Vec::new()),
        Kept::Now(blob) => (blob.commitment(), vec![blob]),
    };
    let entry = Entry::PolicyActivated {
        number,
        digest: new.bundle.digest(),
        policy_version: new.bundle.version_text(),
        baseline: new.baseline,
        files: new.bundle.version(number).files,
        sources,
        why: new.why,
        by: new.by,
        set_aside: new.set_aside,
    };
    append(journal, entry, blobs).await
}

/// A version as it is recorded.
pub(super) fn recorded(journal: &JournalStore, number: u64) -> Result<PolicyVersion, Refusal> {
    versions::find(journal, number)?.ok_or_else(|| unknown_version(number))
}

pub(super) async fn append(
    journal: &JournalStore,
    entry: Entry,
    blobs: Vec<Blob>,
) -> Result<(), Refusal> {
    let streams = vec![StreamAppend {
        stream: Stream::Policy,
        expected: Expected::Any,
        entries: vec![entry],
    }];
    journal.append(Append { streams, blobs }).await?;
    Ok(())
}
