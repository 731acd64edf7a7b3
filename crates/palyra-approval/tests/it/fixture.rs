//! A journal of one approval, as small as it can be: revisions, a fold, a clock that is a number.

use palyra_approval::{ApprovalRecord, ApprovalsFold, PendingToolApproval, Transition};
use palyra_core::entry::{Entry, Fold as _, Recorded, Row};
use palyra_core::{
    ApprovalId, Blob, BlobKind, CallDigest, CallId, DigestKey, Principal, Timestamp, UserName,
};

pub(crate) const START: Timestamp = Timestamp::from_millis(1_794_733_261_000);
pub(crate) const EXPIRES: Timestamp = Timestamp::from_millis(1_794_733_261_000 + 600_000);

pub(crate) fn later(millis: i64) -> Timestamp {
    Timestamp::from_millis(START.as_millis() + millis)
}

pub(crate) fn owner() -> Principal {
    Principal::User {
        name: UserName::owner(),
    }
}

pub(crate) fn agent(name: &str) -> Principal {
    Principal::Agent {
        name: name.parse().unwrap(),
        user: UserName::owner(),
    }
}

pub(crate) fn digest(text: &str) -> CallDigest {
    DigestKey::from_bytes([1; 32]).call_digest(&[text.as_bytes()])
}

pub(crate) fn pending(principal: Principal) -> PendingToolApproval {
    PendingToolApproval {
        id: ApprovalId::mint(START),
        call: CallId::mint(START),
        principal,
        tool: "palyra.process.run".parse().unwrap(),
        digest: digest("git push"),
        arguments: Blob::new(BlobKind::Arguments, b"{}".to_vec()).commitment(),
        expires_at: EXPIRES,
        session: None,
        risk: palyra_core::RiskLevel::Medium,
        detached: false,
        approver: None,
        people: 1,
    }
}

/// The journal's side of one approval: it appends only at the revision that was expected.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    pub(crate) stream: String,
    pub(crate) revision: u64,
    pub(crate) row: Option<Row>,
}

impl Journal {
    pub(crate) fn new(id: &ApprovalId) -> Self {
        Self {
            stream: id.to_string(),
            revision: 0,
            row: None,
        }
    }

    /// An approval that has just been asked.
    pub(crate) fn asked(principal: Principal) -> Self {
        let pending = pending(principal);
        let mut journal = Self::new(&pending.id);
        assert!(journal.append(&palyra_approval::ask(&pending), START));
        journal
    }

    /// Whether the step was the next one.
    pub(crate) fn append(&mut self, step: &Transition, at: Timestamp) -> bool {
        assert_eq!(step.stream.to_string(), self.stream);
        self.append_if(step.expected, step.entry.clone(), at)
    }

    pub(crate) fn append_if(&mut self, expected: u64, entry: Entry, at: Timestamp) -> bool {
        if expected != self.revision {
            return false;
        }
        self.revision += 1;
        let recorded = Recorded {
            seq: self.revision,
            stream: self.stream.clone(),
            revision: self.revision,
            at,
            entry,
        };
        let Some(key) = ApprovalsFold.key(&recorded) else {
            return true;
        };
        assert_eq!(key, self.stream);
        let before = self.row.take();
        self.row = ApprovalsFold.fold(before.as_ref().map(|row| &*row.value), &recorded);
        true
    }

    pub(crate) fn record(&self) -> ApprovalRecord {
        let row = self.row.as_ref().unwrap();
        let record: ApprovalRecord = serde_json::from_slice(&row.value).unwrap();
        assert_eq!(row.key, record.id.to_string());
        assert_eq!(row.state, record.state.as_str());
        record
    }

    /// As the journal's recorder does it: in the admission's transaction, at revision 2.
    pub(crate) fn spend(&mut self, call: &CallId, at: Timestamp) -> bool {
        self.append_if(2, Entry::GrantSpent { call: call.clone() }, at)
    }
}
