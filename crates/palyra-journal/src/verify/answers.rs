//! Whether each answer of a person is signed as its question demanded, and each grant is the one that
//! was signed.

use std::collections::HashMap;

use palyra_core::entry::Entry;
use palyra_core::json::canonical_bytes;
use palyra_core::{
    ApprovalId, ApproverKey, CallId, Digest, PresenceChange, Question, RecordedDigest,
};

use crate::body;
use crate::proof::EntryRecord;

/// A question that nobody has answered yet.
struct Asked {
    approval: ApprovalId,
    call: CallId,
    digest: RecordedDigest,
    approver: Option<ApproverKey>,
}

/// What was asked, and whose signature answers need.
#[derive(Default)]
pub(super) struct Answers {
    asked: HashMap<String, Asked>,
    /// The key of the passphrase that is set.
    key: Option<ApproverKey>,
    /// Grants that were signed, until they are made.
    terms: HashMap<String, Digest>,
}

impl Answers {
    /// Looks at the next entry; what is wrong with it.
    pub(super) fn look(&mut self, record: &EntryRecord<'_>) -> Option<&'static str> {
        match record.kind {
            "approval_requested" | "approval_decided" | "presence_changed" | "grant_made" => {}
            "approval_expired" | "approval_cancelled" | "approval_superseded" => {
                self.asked.remove(record.stream);
                return None;
            }
            _ => return None,
        }
        // One that cannot be read is named elsewhere.
        let entry = body::decode(record.seq, record.body).ok()?;
        if let Entry::ApprovalRequested {
            call,
            digest,
            approver,
            ..
        } = &entry
        {
            let asked = Asked {
                approval: record.stream.parse().ok()?,
                call: call.clone(),
                digest: *digest,
                approver: *approver,
            };
            self.asked.insert(record.stream.to_owned(), asked);
        }
        if let Entry::PresenceChanged { change, .. } = &entry {
            self.changed(change);
        }
        if let Entry::GrantMade { terms } = &entry {
            let signed = self.terms.remove(terms.id.as_str())?;
            let made = serde_json::to_value(terms).ok()?;
            let same = Digest::of(&canonical_bytes(&made)) == signed;
            return (!same).then_some("is another grant than the one that its person signed");
        }
        self.answered(record.stream, &entry)
    }

    const fn changed(&mut self, change: &PresenceChange) {
        match change {
            PresenceChange::Set { key } => self.key = Some(*key),
            PresenceChange::Ended | PresenceChange::GivenUp => self.key = None,
            PresenceChange::Changed | PresenceChange::Refused => {}
        }
    }

    fn answered(&mut self, stream: &str, answer: &Entry) -> Option<&'static str> {
        let Entry::ApprovalDecided { signed, grant, .. } = answer else {
            return None;
        };
        let signed = signed.as_deref();
        if let (Some(grant), Some(terms)) = (grant, signed.and_then(|signed| signed.terms)) {
            self.terms.insert(grant.to_string(), terms);
        }
        if self.key.is_some() && signed.map(|signed| signed.key) != self.key {
            return Some("is an answer without the signature of the person whose key was set");
        }
        // What was asked before this segment is not here to be compared.
        let asked = self.asked.remove(stream)?;
        let question = Question {
            approval: &asked.approval,
            call: &asked.call,
            digest: &asked.digest,
            approver: asked.approver.as_ref(),
        };
        let holds = question.is_answered_by(answer);
        (!holds).then_some("is an answer that its person did not sign")
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer as _, SigningKey};
    use palyra_core::{
        ApprovalDecision, ApproverSignature, Blob, BlobKind, DigestKey, Principal, Signed,
        Timestamp, UserName,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_794_733_261_000);

    fn look(answers: &mut Answers, stream: &str, entry: &Entry) -> Option<&'static str> {
        let body = body::encode(entry).unwrap();
        answers.look(&EntryRecord {
            seq: 1,
            stream,
            revision: 1,
            kind: entry.kind(),
            at: NOW.as_millis(),
            body: &body,
        })
    }

    #[test]
    fn an_answer_that_its_person_did_not_sign_is_named() {
        let signer = SigningKey::from_bytes(&[1; 32]);
        let key = ApproverKey::from_bytes(signer.verifying_key().to_bytes()).unwrap();
        let (approval, call) = (ApprovalId::mint(NOW), CallId::mint(NOW));
        let digest = DigestKey::from_bytes([1; 32])
            .call_digest(&[b"x"])
            .recorded(&call);
        let asked = Entry::ApprovalRequested {
            call: call.clone(),
            principal: Principal::User {
                name: UserName::owner(),
            },
            tool: "palyra.echo".parse().unwrap(),
            digest,
            arguments: Blob::new(BlobKind::Arguments, Vec::new()).commitment(),
            expires_at: NOW,
            session: None,
            risk: None,
            detached: false,
            approver: Some(key),
            people: 1,
        };
        let unsigned = Entry::ApprovalDecided {
            decision: ApprovalDecision::Allow,
            decided_by: UserName::owner(),
            reason: None,
            from: None,
            grant: None,
            signed: None,
        };
        let question = Question {
            approval: &approval,
            call: &call,
            digest: &digest,
            approver: Some(&key),
        };
        let said = question.statement(&unsigned, None).unwrap().bytes();
        let signature = ApproverSignature::from_bytes(signer.sign(&said).to_bytes());
        let right = Entry::ApprovalDecided {
            decision: ApprovalDecision::Allow,
            decided_by: UserName::owner(),
            reason: None,
            from: None,
            grant: None,
            signed: Some(Box::new(Signed {
                key,
                signature,
                terms: None,
            })),
        };
        for (answer, holds) in [(&right, true), (&unsigned, false)] {
            let mut answers = Answers::default();
            assert_eq!(look(&mut answers, approval.as_str(), &asked), None);
            let wrong = look(&mut answers, approval.as_str(), answer);
            assert_eq!(wrong.is_none(), holds, "{wrong:?}");
        }
        // Also where the question itself was changed to demand nothing.
        let mut answers = Answers::default();
        let change = PresenceChange::Set { key };
        let session = None;
        let set = Entry::PresenceChanged { change, session };
        assert_eq!(look(&mut answers, "presence", &set), None);
        assert!(look(&mut answers, approval.as_str(), &unsigned).is_some());
    }
}
