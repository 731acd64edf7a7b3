//! What the journal makes of the policy stream: every version that was in force, and what is to
//! be known beside the one that is.

use std::collections::BTreeMap;

use palyra_core::entry::{Entry, Fold, Recorded, Row, WhyActivated};
use palyra_core::json::canonical_bytes;
use palyra_core::{Blob, BlobKind, Commitment, Digest, Timestamp, UserName};
use palyra_journal::{JournalStore, Kept, RowQuery};
use palyra_policy::operator::{Bundle, NamedSource, Problem};
use serde::{Deserialize, Serialize};

use crate::error::{Refusal, RefusalKind};

/// The projection of versions.
pub(crate) const VERSIONS: &str = "policy_versions";
/// The projection of what stands beside them, in one row.
const BESIDE: &str = "policy_beside";
const ONLY: &str = "now";

/// A policy set that is or was in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyVersion {
    /// Counted from 1; the highest is the one in force.
    pub number: u64,
    /// Of the schema, the baseline and every file with its name.
    pub digest: Digest,
    /// What `decided` entries name it by.
    pub policy_version: String,
    /// The baseline's name.
    pub baseline: String,
    /// The operator's files, each with the digest of its text.
    pub files: BTreeMap<String, Digest>,
    /// Commitment to every text.
    pub sources: Commitment,
    /// Why it came into force.
    #[serde(flatten)]
    pub why: WhyActivated,
    /// The person who wanted it, when one did.
    pub by: Option<UserName>,
    /// What the folder held and was set aside for it.
    pub set_aside: Option<Digest>,
    /// When.
    pub activated_at: Timestamp,
}

/// Policies that wait for a person to activate them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedPolicies {
    /// What to activate.
    pub digest: Digest,
    /// The baseline's name.
    pub baseline: String,
    /// The operator's files, each with the digest of its text.
    pub files: BTreeMap<String, Digest>,
    /// Commitment to every text.
    pub sources: Commitment,
    /// Since when.
    pub staged_at: Timestamp,
}

/// What the journal knows beside the versions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Beside {
    pub(crate) staged: Option<StagedPolicies>,
    /// What the folder held when it was set aside.
    pub(crate) set_aside: Option<Digest>,
    /// The refusal that was recorded last.
    pub(crate) refused: Option<Digest>,
}

/// The projection of versions: one row each, by number.
#[derive(Debug, Clone, Copy, Default)]
pub struct PolicyVersionsFold;

impl Fold for PolicyVersionsFold {
    fn name(&self) -> &'static str {
        VERSIONS
    }

    fn key(&self, recorded: &Recorded) -> Option<String> {
        version(recorded).map(|version| key(version.number))
    }

    fn fold(&self, before: Option<&[u8]>, recorded: &Recorded) -> Option<Row> {
        let version = version(recorded)?;
        let value = match before {
            // A number is given once: whatever claims it later changes nothing.
            Some(first) => first.to_vec(),
            None => serde_json::to_vec(&version).ok()?,
        };
        Some(Row {
            key: key(version.number),
            state: "kept".to_owned(),
            value,
        })
    }
}

/// The projection of what stands beside the version in force.
#[derive(Debug, Clone, Copy, Default)]
pub struct PolicyBesideFold;

impl Fold for PolicyBesideFold {
    fn name(&self) -> &'static str {
        BESIDE
    }

    fn key(&self, recorded: &Recorded) -> Option<String> {
        next(Beside::default(), recorded).map(|_| ONLY.to_owned())
    }

    fn fold(&self, before: Option<&[u8]>, recorded: &Recorded) -> Option<Row> {
        let before = before.and_then(|bytes| serde_json::from_slice(bytes).ok());
        let beside = next(before.unwrap_or_default(), recorded)?;
        Some(Row {
            key: ONLY.to_owned(),
            state: ONLY.to_owned(),
            value: serde_json::to_vec(&beside).ok()?,
        })
    }
}

/// What stands beside after this entry; nothing when it is about something else.
fn next(mut beside: Beside, recorded: &Recorded) -> Option<Beside> {
    match &recorded.entry {
        Entry::PolicyActivated { why, set_aside, .. } => {
            beside.staged = None;
            beside.set_aside = *set_aside;
            match why {
                WhyActivated::Started
                | WhyActivated::Changed
                | WhyActivated::Reloaded
                | WhyActivated::Activated => beside.refused = None,
                // The folder is what it was.
                WhyActivated::RolledBack { .. } => {}
            }
        }
        Entry::PolicyStaged {
            digest,
            baseline,
            files,
            sources,
        } => {
            beside.set_aside = None;
            beside.refused = None;
            beside.staged = Some(StagedPolicies {
                digest: *digest,
                baseline: baseline.clone(),
                files: files.clone(),
                sources: *sources,
                staged_at: recorded.at,
            });
        }
        Entry::PolicyWithdrawn { .. } => beside.staged = None,
        Entry::PolicyRefused { digest, .. } => beside.refused = Some(*digest),
        Entry::KeyRotated { .. }
        | Entry::VaultChanged { .. }
        | Entry::SecretAccessed { .. }
        | Entry::SecretInArguments { .. }
        | Entry::AgentResumed { .. }
        | Entry::ProjectionMended { .. }
        | Entry::BlobErased { .. }
        | Entry::Proposed { .. }
        | Entry::Decided { .. }
        | Entry::ApprovalRequested { .. }
        | Entry::ApprovalDecided { .. }
        | Entry::ApprovalExpired
        | Entry::ApprovalCancelled { .. }
        | Entry::GrantSpent { .. }
        | Entry::ApprovalSuperseded { .. }
        | Entry::GrantMade { .. }
        | Entry::GrantEnded { .. }
        | Entry::PostureSet { .. }
        | Entry::AgentPaused { .. }
        | Entry::Admitted { .. }
        | Entry::Finished { .. }
        | Entry::Attested { .. }
        | Entry::Advised { .. }
        | Entry::Closed { .. }
        | Entry::Interrupted
        | Entry::AgentAdded { .. }
        | Entry::AgentRemoved { .. }
        | Entry::Flooded { .. }
        | Entry::DaemonStarted { .. }
        | Entry::AppendedOnce { .. }
        | Entry::PresenceChanged { .. }
        | Entry::Notified { .. }
        | Entry::QuarantineRestored { .. } => return None,
    }
    Some(beside)
}

fn version(recorded: &Recorded) -> Option<PolicyVersion> {
    let Entry::PolicyActivated {
        number,
        digest,
        policy_version,
        baseline,
        files,
        sources,
        why,
        by,
        set_aside,
    } = &recorded.entry
    else {
        return None;
    };
    Some(PolicyVersion {
        number: *number,
        digest: *digest,
        policy_version: policy_version.clone(),
        baseline: baseline.clone(),
        files: files.clone(),
        sources: *sources,
        why: *why,
        by: by.clone(),
        set_aside: *set_aside,
        activated_at: recorded.at,
    })
}

/// The row of a number; rows list in the order of numbers.
fn key(number: u64) -> String {
    format!("{number:020}")
}

/// Versions, the newest first: those before a number, or all.
pub(crate) fn list(
    journal: &JournalStore,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<PolicyVersion>, Refusal> {
    let query = RowQuery {
        state: None,
        before: before.map(key),
        limit,
        newest_first: true,
    };
    let rows = journal.rows(VERSIONS, &query)?;
    rows.iter().map(read).collect()
}

/// One version.
pub(crate) fn find(journal: &JournalStore, number: u64) -> Result<Option<PolicyVersion>, Refusal> {
    let row = journal.row(VERSIONS, &key(number))?;
    row.as_ref().map(read).transpose()
}

/// The version that was in force last.
pub(crate) fn latest(journal: &JournalStore) -> Result<Option<PolicyVersion>, Refusal> {
    Ok(list(journal, None, 1)?.pop())
}

/// What stands beside it.
pub(crate) fn beside(journal: &JournalStore) -> Result<Beside, Refusal> {
    let row = journal.row(BESIDE, ONLY)?;
    row.as_ref().map_or_else(|| Ok(Beside::default()), read)
}

fn read<T: serde::de::DeserializeOwned>(row: &Row) -> Result<T, Refusal> {
    serde_json::from_slice(&row.value).map_err(|_| crate::records::unreadable(&row.key))
}

/// The texts that a policy set is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// The baseline.
    pub baseline: SourceText,
    /// The operator's files.
    pub files: Vec<SourceText>,
}

/// A text and its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceText {
    /// The file's name.
    pub name: String,
    /// What is in it.
    pub text: String,
}

impl From<&NamedSource> for SourceText {
    fn from(source: &NamedSource) -> Self {
        Self {
            name: source.name.clone(),
            text: source.text.clone(),
        }
    }
}

impl From<&SourceText> for NamedSource {
    fn from(source: &SourceText) -> Self {
        Self::new(source.name.clone(), source.text.clone())
    }
}

impl Sources {
    /// These texts, checked as one set.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn bundle(&self) -> Result<Bundle, Vec<Problem>> {
        let files: Vec<NamedSource> = self.files.iter().map(NamedSource::from).collect();
        Bundle::load(&NamedSource::from(&self.baseline), &files)
    }

    /// The baseline's name, without the ending of its file.
    #[must_use]
    pub fn baseline_name(&self) -> &str {
        let name = self.baseline.name.as_str();
        name.strip_suffix(".cedar").unwrap_or(name)
    }

    /// What a version keeps.
    pub(crate) fn blob(&self) -> Blob {
        let value = serde_json::to_value(self).unwrap_or_default();
        Blob::new(BlobKind::Policies, canonical_bytes(&value))
    }

    /// What was kept under this commitment.
    pub(crate) fn kept(journal: &JournalStore, under: &Commitment) -> Result<Self, Refusal> {
        let read = match journal.kept(under)? {
            Kept::Whole(blob) => serde_json::from_slice(&blob.bytes).ok(),
            Kept::Erased | Kept::Unreadable | Kept::Unknown => None,
        };
        read.ok_or_else(|| {
            Refusal::new(
                RefusalKind::NotFound,
                "policy_sources_gone",
                "the texts of this policy version are not kept, or the key does not open them",
                "choose another one of `palyra policy versions`",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(entry: Entry) -> Recorded {
        Recorded {
            seq: 1,
            stream: "policy".to_owned(),
            revision: 1,
            at: Timestamp::from_millis(5),
            entry,
        }
    }

    fn activated(number: u64, why: WhyActivated, set_aside: Option<Digest>) -> Entry {
        Entry::PolicyActivated {
            number,
            digest: Digest::of(b"set"),
            policy_version: "abc".to_owned(),
            baseline: "standard".to_owned(),
            files: BTreeMap::from([("a.cedar".to_owned(), Digest::of(b"a"))]),
            sources: Commitment(Digest::of(b"blob")),
            why,
            by: None,
            set_aside,
        }
    }

    fn after(before: &Beside, entry: Entry) -> Beside {
        next(before.clone(), &recorded(entry)).unwrap()
    }

    #[test]
    fn an_entry_reads_back_as_it_was_written() {
        for why in [WhyActivated::Started, WhyActivated::RolledBack { to: 3 }] {
            let entry = activated(7, why, None);
            let text = serde_json::to_string(&entry).unwrap();
            assert_eq!(
                serde_json::from_str::<Entry>(&text).unwrap(),
                entry,
                "{text}"
            );
        }
    }

    #[test]
    fn rows_list_by_number_and_a_number_is_given_once() {
        let fold = PolicyVersionsFold;
        let first = recorded(activated(2, WhyActivated::Started, None));
        let row = fold.fold(None, &first).unwrap();
        assert!(row.key < key(10));
        let again = recorded(activated(2, WhyActivated::Changed, None));
        assert_eq!(
            fold.fold(Some(&row.value), &again).unwrap().value,
            row.value
        );
        let other = recorded(Entry::ApprovalExpired);
        assert_eq!(fold.key(&other), None);
        assert_eq!(PolicyBesideFold.key(&other), None);
    }

    #[test]
    fn what_stands_beside_follows_the_entries() {
        let (staged, bad) = (Digest::of(b"staged"), Digest::of(b"bad"));
        let refused = after(
            &Beside::default(),
            Entry::PolicyRefused {
                digest: bad,
                problems: Vec::new(),
            },
        );
        let waiting = after(
            &refused,
            Entry::PolicyStaged {
                digest: staged,
                baseline: "standard".to_owned(),
                files: BTreeMap::new(),
                sources: Commitment(staged),
            },
        );
        assert_eq!(waiting.staged.as_ref().map(|it| it.digest), Some(staged));
        assert_eq!(waiting.refused, None);
        let withdrawn = after(&waiting, Entry::PolicyWithdrawn { digest: staged });
        assert_eq!(withdrawn, Beside::default());
        let back = activated(3, WhyActivated::RolledBack { to: 1 }, Some(staged));
        let back = after(&refused, back);
        assert_eq!((back.set_aside, back.refused), (Some(staged), Some(bad)));
        let on = after(&back, activated(4, WhyActivated::Changed, None));
        assert_eq!(on, Beside::default());
    }
}
