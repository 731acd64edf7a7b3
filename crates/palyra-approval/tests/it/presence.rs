//! Signed answers, and answers of two people, at the fold: what a writer merely claims is none.

use ed25519_dalek::{Signer as _, SigningKey};
use palyra_approval::{ApprovalRecord, ApprovalState, Transition, ask, decide, grant};
use palyra_core::entry::Entry;
use palyra_core::{ApprovalDecision, ApproverKey, ApproverSignature, Principal, Signed, UserName};

use crate::fixture::{Journal, START, agent, digest, later, owner, pending};

const ALLOW: ApprovalDecision = ApprovalDecision::Allow;

fn person(seed: u8) -> (SigningKey, ApproverKey) {
    let key = SigningKey::from_bytes(&[seed; 32]);
    let public = ApproverKey::from_bytes(key.verifying_key().to_bytes()).unwrap();
    (key, public)
}

fn user(name: &str) -> Principal {
    let name = serde_json::from_value::<UserName>(name.into()).unwrap();
    Principal::User { name }
}

/// A question whose answer must be signed with this key.
fn asked(approver: Option<ApproverKey>, people: u8, by: Principal) -> Journal {
    let mut question = pending(by);
    (question.approver, question.people) = (approver, people);
    let mut journal = Journal::new(&question.id);
    assert!(journal.append(&ask(&question), START));
    journal
}

fn signed(record: &ApprovalRecord, step: Transition, by: &SigningKey) -> Transition {
    let said = record.question().statement(&step.entry, None).unwrap();
    let signature = ApproverSignature::from_bytes(by.sign(&said.bytes()).to_bytes());
    let key = ApproverKey::from_bytes(by.verifying_key().to_bytes()).unwrap();
    let terms = None;
    step.signed(Signed {
        key,
        signature,
        terms,
    })
}

fn yes(record: &ApprovalRecord) -> Transition {
    decide(record, ALLOW, &owner(), None, later(1)).unwrap()
}

#[test]
fn only_an_answer_signed_by_the_persons_key_is_one() {
    let ((key, public), (other, _)) = (person(1), person(2));
    let journal = asked(Some(public), 1, agent("claude"));
    let record = journal.record();
    let taken = |step: &Transition| {
        let mut journal = journal.clone();
        assert!(journal.append(step, later(2)));
        let record = journal.record();
        assert_eq!(
            grant(&record, &digest("git push")).is_some(),
            record.state == ApprovalState::Allowed
        );
        record.state
    };
    // The control.
    let right = signed(&record, yes(&record), &key);
    assert_eq!(taken(&right), ApprovalState::Allowed);
    // None, and one by another key.
    assert_eq!(taken(&yes(&record)), ApprovalState::Pending);
    let foreign = signed(&record, yes(&record), &other);
    assert_eq!(taken(&foreign), ApprovalState::Pending);
    // Any other answer under the same signature.
    for spoil in [
        |entry: &mut Entry| {
            if let Entry::ApprovalDecided { decision, .. } = entry {
                *decision = ApprovalDecision::Deny;
            }
        },
        |entry: &mut Entry| {
            if let Entry::ApprovalDecided { reason, .. } = entry {
                *reason = Some("because".to_owned());
            }
        },
        |entry: &mut Entry| {
            if let Entry::ApprovalDecided { grant, .. } = entry {
                *grant = Some(palyra_core::GrantId::mint(START));
            }
        },
        |entry: &mut Entry| {
            if let Entry::ApprovalDecided { signed, .. } = entry {
                signed.as_mut().unwrap().terms = Some(palyra_core::Digest::of(b"wider"));
            }
        },
    ] {
        let mut spoiled = right.clone();
        spoil(&mut spoiled.entry);
        assert_eq!(taken(&spoiled), ApprovalState::Pending);
    }
}

#[test]
fn a_signature_of_one_answer_is_of_no_use_for_another() {
    let (key, public) = person(1);
    let first = asked(Some(public), 1, agent("claude")).record();
    let right = signed(&first, yes(&first), &key);
    let mut second = asked(Some(public), 1, agent("claude"));
    assert!(second.append_if(1, right.entry, later(2)));
    assert_eq!(second.record().state, ApprovalState::Pending);
    // Where none is demanded, one that does not hold is not taken either.
    let mut open = asked(None, 1, agent("claude"));
    let foreign = signed(&first, yes(&first), &key);
    assert!(open.append_if(1, foreign.entry, later(2)));
    assert_eq!(open.record().state, ApprovalState::Pending);
}

/// Case 28: two people, not two sessions, and never the one who asked.
#[test]
fn two_people_are_two_people() {
    let mut journal = asked(None, 2, agent("claude"));
    let said = |journal: &mut Journal, by: &Principal| {
        let step = decide(&journal.record(), ALLOW, by, None, later(1)).unwrap();
        assert!(journal.append(&step, later(1)));
        journal.record()
    };
    let (ann, bob) = (user("ann"), user("bob"));
    assert_eq!(said(&mut journal, &ann).state, ApprovalState::Pending);
    // Ann once more, from another session: still one person.
    assert_eq!(said(&mut journal, &ann).state, ApprovalState::Pending);
    let record = said(&mut journal, &bob);
    assert_eq!(record.state, ApprovalState::Allowed);
    assert_eq!(grant(&record, &digest("git push")).unwrap().people, 2);
    // One no is enough.
    let mut journal = asked(None, 2, agent("claude"));
    let _ = said(&mut journal, &ann);
    let no = decide(
        &journal.record(),
        ApprovalDecision::Deny,
        &bob,
        None,
        later(1),
    );
    assert!(journal.append(&no.unwrap(), later(1)));
    assert_eq!(journal.record().state, ApprovalState::Denied);
    // Who asked is none of the two; and an agent is nobody.
    let mut journal = asked(None, 2, ann.clone());
    assert_eq!(said(&mut journal, &ann).state, ApprovalState::Pending);
    assert_eq!(said(&mut journal, &bob).state, ApprovalState::Pending);
    assert_eq!(
        said(&mut journal, &user("cid")).state,
        ApprovalState::Allowed
    );
    let journal = asked(None, 2, agent("claude"));
    assert!(decide(&journal.record(), ALLOW, &agent("other"), None, later(1)).is_err());
}
