//! Streams, places and conflicts.

use palyra_core::entry::{Entry, Stream};
use palyra_journal::{Append, Expected, JournalError};

use crate::support::{Place, all, call, started, to};

#[tokio::test]
async fn entries_come_back_in_order_with_their_places() {
    let place = Place::new();
    let journal = place.open();
    let (one, other) = (Stream::Call(call()), Stream::Call(call()));
    let appended = journal
        .append(all(vec![
            to(
                one.clone(),
                Expected::NoStream,
                vec![started("a"), started("b")],
            ),
            to(other.clone(), Expected::Any, vec![started("c")]),
            to(one.clone(), Expected::Revision(2), vec![started("d")]),
        ]))
        .await
        .unwrap();
    assert_eq!(appended.last_seq, 4);
    assert_eq!(appended.revisions, [2, 1, 3]);
    assert_eq!(journal.head(), 4);

    let read = journal.read(0, 100).unwrap();
    let places: Vec<_> = read
        .iter()
        .map(|entry| (entry.seq, entry.revision))
        .collect();
    assert_eq!(places, [(1, 1), (2, 2), (3, 1), (4, 3)]);
    let entries: Vec<_> = read.iter().map(|entry| entry.entry.clone()).collect();
    assert_eq!(entries, ["a", "b", "c", "d"].map(started));
    assert_eq!(journal.read(1, 2).unwrap(), read[1..3]);
    assert_eq!(journal.read(4, 10).unwrap(), []);

    let stream = journal.read_stream(&one).unwrap();
    assert_eq!(stream, [read[0].clone(), read[1].clone(), read[3].clone()]);
}

#[tokio::test]
async fn a_stream_that_moved_is_a_conflict_and_nothing_is_recorded() {
    let place = Place::new();
    let journal = place.open();
    let stream = Stream::Agents;
    let append = |expected| journal.append_if(stream.clone(), expected, vec![started("x")]);
    append(Expected::NoStream).await.unwrap();
    for wrong in [
        Expected::NoStream,
        Expected::Revision(0),
        Expected::Revision(2),
    ] {
        let error = append(wrong).await.unwrap_err();
        let JournalError::Conflict {
            stream,
            expected,
            found,
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((stream.as_str(), *expected, *found), ("agents", wrong, 1));
    }
    assert_eq!(journal.head(), 1);
    assert_eq!(append(Expected::Revision(1)).await.unwrap().revisions, [2]);
}

#[tokio::test]
async fn one_stream_in_conflict_refuses_the_whole_append() {
    let place = Place::new();
    let journal = place.open();
    let outcome = journal
        .append(all(vec![
            to(Stream::Agents, Expected::NoStream, vec![started("x")]),
            to(Stream::Daemon, Expected::Revision(7), vec![started("y")]),
        ]))
        .await;
    assert!(matches!(
        outcome,
        Err(JournalError::Conflict { found: 0, .. })
    ));
    assert_eq!(journal.read(0, 10).unwrap(), []);
    assert!(
        journal
            .append(Append::default())
            .await
            .unwrap()
            .revisions
            .is_empty()
    );
}

#[tokio::test]
async fn an_entry_that_cannot_be_spelled_is_refused_alone() {
    use std::os::unix::ffi::OsStringExt as _;
    let place = Place::new();
    let journal = place.open();
    let hostile = Entry::AgentAdded {
        name: "a".parse().unwrap(),
        user: palyra_core::UserName::owner(),
        workspace: std::ffi::OsString::from_vec(b"/tmp/\xff".to_vec()).into(),
        unattended: false,
    };
    let outcome = journal
        .append_if(Stream::Agents, Expected::Any, vec![hostile])
        .await;
    assert!(matches!(
        outcome,
        Err(JournalError::Unwritable {
            kind: "agent_added",
            ..
        })
    ));
    assert_eq!(journal.state(), palyra_journal::JournalState::Writable);
}
