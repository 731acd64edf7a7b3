//! Over random sequences of steps, honest and faulty: one answer wins and nothing is spent twice.

use palyra_approval::{ApprovalRecord, ApprovalState, cancel, decide, expire, grant};
use palyra_core::entry::Entry;
use palyra_core::{ApprovalDecision, CallId, UserName};
use proptest::prelude::*;

use crate::fixture::{Journal, START, agent, digest, later, owner, pending};

/// Something that somebody does.
#[derive(Debug, Clone)]
enum Event {
    /// An answer, computed from an earlier record: this many looks ago.
    Decide(ApprovalDecision, bool, usize),
    Expire(usize),
    Cancel(usize),
    Spend,
    /// A writer that ignores the rules and appends at whatever revision the stream has.
    Faulty(Box<Entry>),
}

fn decision() -> impl Strategy<Value = ApprovalDecision> {
    prop_oneof![Just(ApprovalDecision::Allow), Just(ApprovalDecision::Deny)]
}

fn faulty() -> impl Strategy<Value = Entry> {
    prop_oneof![
        decision().prop_map(|decision| Entry::ApprovalDecided {
            decision,
            decided_by: UserName::owner(),
            reason: Some("faulty".to_owned()),
            from: None,
            grant: None,
            signed: None,
        }),
        Just(Entry::ApprovalExpired),
        Just(Entry::ApprovalCancelled {
            reason: "faulty".to_owned()
        }),
        Just(()).prop_map(|()| Entry::GrantSpent {
            call: CallId::mint(START)
        }),
        Just(()).prop_map(|()| palyra_approval::ask(&pending(agent("mallory"))).entry),
        Just(Entry::Interrupted),
    ]
}

fn event(with_faulty: bool) -> impl Strategy<Value = Event> {
    let weight = u32::from(with_faulty) * 4;
    prop_oneof![
        4 => (decision(), any::<bool>(), 0..4_usize)
            .prop_map(|(decision, by_agent, ago)| Event::Decide(decision, by_agent, ago)),
        2 => (0..4_usize).prop_map(Event::Expire),
        2 => (0..4_usize).prop_map(Event::Cancel),
        3 => Just(Event::Spend),
        weight => faulty().prop_map(|entry| Event::Faulty(Box::new(entry))),
    ]
}

/// What must hold between a record and the one after it.
fn check(before: &ApprovalRecord, after: &ApprovalRecord) -> Result<(), TestCaseError> {
    use ApprovalState::{Allowed, Pending, Spent};
    // What was asked never changes.
    prop_assert_eq!(
        (
            &before.id,
            &before.call,
            &before.principal,
            &before.digest,
            before.expires_at
        ),
        (
            &after.id,
            &after.call,
            &after.principal,
            &after.digest,
            after.expires_at
        )
    );
    match (before.state, after.state) {
        (Pending, Spent) => prop_assert!(false, "spent without an answer"),
        (Pending, _) => {}
        (Allowed, Spent) => prop_assert!(after.spent_by.is_some()),
        (state, other) => {
            prop_assert_eq!(state, other);
            prop_assert_eq!(&before.spent_by, &after.spent_by);
        }
    }
    if before.state != Pending {
        prop_assert_eq!(
            (&before.decided_by, before.decided_at, &before.reason),
            (&after.decided_by, after.decided_at, &after.reason)
        );
    }
    prop_assert_eq!(
        grant(after, &digest("git push")).is_some(),
        after.state == Allowed
    );
    Ok(())
}

/// Plays the events, and counts the answers that were taken and the times a yes was spent.
fn play(events: Vec<(Event, i64)>, honest: bool) -> Result<(), TestCaseError> {
    let mut journal = Journal::asked(agent("claude"));
    let mut seen = vec![journal.record()];
    let (mut ends, mut spent, mut now) = (0, 0, 0);
    for (event, waited) in events {
        now += waited;
        let at = later(now);
        let before = journal.record();
        let looked = |ago: usize| seen.iter().rev().nth(ago).unwrap_or(&before).clone();
        let step = match event {
            Event::Decide(decision, by_agent, ago) => {
                let by = if by_agent { agent("claude") } else { owner() };
                let step = decide(&looked(ago), decision, &by, None, at);
                prop_assert!(!(by_agent && step.is_ok()));
                step.ok()
            }
            Event::Expire(ago) => expire(&looked(ago), at).ok(),
            Event::Cancel(ago) => cancel(&looked(ago), "gone").ok(),
            Event::Spend => {
                // The journal's admission looks for a grant first, and then spends at 2.
                let admitted = grant(&before, &digest("git push")).is_some()
                    && journal.spend(&before.call, at);
                spent += u32::from(admitted);
                None
            }
            Event::Faulty(entry) => {
                prop_assert!(journal.append_if(journal.revision, *entry, at));
                None
            }
        };
        if let Some(step) = step {
            ends += u32::from(journal.append(&step, at));
        }
        let after = journal.record();
        check(&before, &after)?;
        seen.push(after);
    }
    prop_assert!(spent <= 1);
    if honest {
        prop_assert!(ends <= 1);
        prop_assert!(journal.revision <= 3);
        prop_assert_eq!(journal.record().revision, journal.revision);
    }
    Ok(())
}

fn events(with_faulty: bool) -> impl Strategy<Value = Vec<(Event, i64)>> {
    let pause = prop_oneof![3 => 0..1_000_i64, 1 => 0..700_000_i64];
    prop::collection::vec((event(with_faulty), pause), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_answer_wins_and_a_yes_is_spent_once(events in events(false)) {
        play(events, true)?;
    }

    #[test]
    fn even_a_faulty_writer_changes_nothing_that_was_decided(events in events(true)) {
        play(events, false)?;
    }
}
