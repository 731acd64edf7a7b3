//! The journal's own projection: calls that were admitted and have no end yet.

use palyra_core::entry::{Entry, Fold, Recorded, Row};

/// One row per open call. Few are open at any time, so finding them at a start reads a page or
/// two however long the journal is.
pub(crate) struct Unattested;

impl Unattested {
    pub(crate) const NAME: &'static str = "journal.unattested";
}

impl Fold for Unattested {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn key(&self, recorded: &Recorded) -> Option<String> {
        matters(&recorded.entry).then(|| recorded.stream.clone())
    }

    fn fold(&self, _before: Option<&[u8]>, recorded: &Recorded) -> Option<Row> {
        matches!(recorded.entry, Entry::Admitted { .. }).then(|| Row {
            key: recorded.stream.clone(),
            state: "admitted".to_owned(),
            value: Vec::new(),
        })
    }
}

/// Whether an entry opens or ends an execution.
const fn matters(entry: &Entry) -> bool {
    match entry {
        Entry::Admitted { .. }
        | Entry::Attested { .. }
        | Entry::Closed { .. }
        | Entry::Interrupted => true,
        Entry::Proposed { .. }
        | Entry::Decided { .. }
        | Entry::ApprovalRequested { .. }
        | Entry::Advised { .. }
        | Entry::ApprovalDecided { .. }
        | Entry::ApprovalExpired
        | Entry::ApprovalCancelled { .. }
        | Entry::GrantSpent { .. }
        | Entry::ApprovalSuperseded { .. }
        | Entry::GrantMade { .. }
        | Entry::GrantEnded { .. }
        | Entry::PostureSet { .. }
        | Entry::AgentPaused { .. }
        | Entry::Finished { .. }
        | Entry::AgentAdded { .. }
        | Entry::AgentRemoved { .. }
        | Entry::PolicyActivated { .. }
        | Entry::PolicyRefused { .. }
        | Entry::PolicyStaged { .. }
        | Entry::PolicyWithdrawn { .. }
        | Entry::Flooded { .. }
        | Entry::DaemonStarted { .. }
        | Entry::AppendedOnce { .. }
        | Entry::QuarantineRestored { .. }
        | Entry::BlobErased { .. }
        | Entry::ProjectionMended { .. }
        | Entry::VaultChanged { .. }
        | Entry::SecretAccessed { .. }
        | Entry::SecretInArguments { .. }
        | Entry::AgentResumed { .. }
        | Entry::PresenceChanged { .. }
        | Entry::Notified { .. }
        | Entry::KeyRotated { .. } => false,
    }
}
