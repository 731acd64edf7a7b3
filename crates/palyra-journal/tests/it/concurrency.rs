//! Many appenders at once: groups, places without gaps, conflicts that stay alone.

use std::collections::BTreeMap;

use palyra_core::entry::Stream;
use palyra_journal::{Expected, JournalError, JournalStore};

use crate::support::{Place, all, call, started, to};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn places_have_no_gaps_and_streams_keep_their_order() {
    const APPENDERS: usize = 64;
    const EACH: u64 = 40;
    let place = Place::new();
    let journal = place.open();
    let appenders: Vec<_> = (0..APPENDERS)
        .map(|_| tokio::spawn(appender(journal.clone(), EACH)))
        .collect();
    let mut acknowledged = Vec::new();
    for appender in appenders {
        acknowledged.extend(appender.await.unwrap());
    }
    acknowledged.sort_unstable();
    let entries = journal.read(0, usize::MAX).unwrap();
    let expected: Vec<u64> = (1..=APPENDERS as u64 * EACH).collect();
    let places: Vec<u64> = entries.iter().map(|entry| entry.seq).collect();
    assert_eq!(places, expected);
    assert_eq!(acknowledged, expected, "each was told its own place");
    let mut streams: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in &entries {
        let revision = streams.entry(&entry.stream).or_default();
        *revision += 1;
        assert_eq!(entry.revision, *revision, "{}", entry.stream);
    }
    assert!(streams.values().all(|revisions| *revisions == EACH));
}

async fn appender(journal: JournalStore, each: u64) -> Vec<u64> {
    let stream = Stream::Call(call());
    let mut places = Vec::new();
    for revision in 0..each {
        let appended = journal
            .append_if(
                stream.clone(),
                Expected::Revision(revision),
                vec![started("x")],
            )
            .await
            .unwrap();
        assert_eq!(appended.revisions, [revision + 1]);
        assert!(journal.head() >= appended.last_seq);
        places.push(appended.last_seq);
    }
    places
}

/// Lets every spawned append reach the queue: one thread runs them all, in turn.
async fn gather() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// While the writer is kept waiting the appends gather in its queue, so they are one group.
#[tokio::test]
async fn a_conflict_refuses_itself_and_not_its_neighbours() {
    let place = Place::new();
    let journal = place.open();
    let held = place.hold();
    let contested = Stream::Approval(palyra_core::ApprovalId::mint(
        palyra_core::Timestamp::from_millis(1),
    ));
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..200_u32 {
        let (journal, contested) = (journal.clone(), contested.clone());
        waiting.spawn(async move {
            let own = to(
                Stream::Call(call()),
                Expected::NoStream,
                vec![started("own")],
            );
            // Every third also wants to be the first in a stream that takes only one.
            let wants = number.is_multiple_of(3).then(|| {
                to(
                    contested,
                    Expected::NoStream,
                    vec![started(number.to_string())],
                )
            });
            // Contested first or last: neither leaves anything behind.
            let streams = if number.is_multiple_of(2) {
                std::iter::once(own).chain(wants).collect()
            } else {
                wants.into_iter().chain([own]).collect()
            };
            (number, journal.append(all(streams)).await)
        });
    }
    gather().await;
    drop(held);
    let (mut winners, mut losers) = (0, 0);
    while let Some(outcome) = waiting.join_next().await {
        match outcome.unwrap() {
            (_, Ok(appended)) => winners += appended.revisions.len() - 1,
            (number, Err(error)) => {
                assert!(number.is_multiple_of(3));
                assert!(
                    matches!(error, JournalError::Conflict { found: 1, .. }),
                    "{error}"
                );
                losers += 1;
            }
        }
    }
    assert_eq!((winners, losers), (1, 66));
    let entries = journal.read(0, usize::MAX).unwrap();
    assert_eq!(entries.len(), 200 - 66 + 1, "losers left nothing behind");
    assert!(
        entries.iter().all(|entry| entry.at == entries[0].at),
        "one commit"
    );
    assert!(
        entries
            .iter()
            .zip(1..)
            .all(|(entry, place)| entry.seq == place)
    );
    assert_eq!(journal.read_stream(&contested).unwrap().len(), 1);
}

/// As above, when the writer has never seen the contested stream and learns of it by inserting.
#[tokio::test]
async fn a_stream_that_is_only_on_disk_is_a_conflict_of_its_own_too() {
    let place = Place::new();
    let append = |journal: &JournalStore, stream: &Stream| {
        let (journal, stream) = (journal.clone(), stream.clone());
        async move {
            journal
                .append_if(stream, Expected::NoStream, vec![started("x"), started("y")])
                .await
        }
    };
    let old: Vec<Stream> = (0..50).map(|_| Stream::Call(call())).collect();
    let journal = place.open();
    for stream in &old {
        append(&journal, stream).await.unwrap();
    }
    drop(journal);
    let journal = place.open();
    let held = place.hold();
    let mut waiting = tokio::task::JoinSet::new();
    for stream in &old {
        let (again, fresh) = (
            append(&journal, stream),
            append(&journal, &Stream::Call(call())),
        );
        waiting.spawn(async move { tokio::join!(again, fresh) });
    }
    gather().await;
    drop(held);
    while let Some(outcomes) = waiting.join_next().await {
        let (again, fresh) = outcomes.unwrap();
        assert!(
            matches!(again, Err(JournalError::Conflict { found: 2, .. })),
            "{again:?}"
        );
        assert_eq!(fresh.unwrap().revisions, [2]);
    }
    let entries = journal.read(0, usize::MAX).unwrap();
    assert_eq!(entries.len(), 200);
    assert!(
        entries[100..]
            .iter()
            .all(|entry| entry.at == entries[100].at),
        "one commit"
    );
    assert!(
        entries
            .iter()
            .zip(1..)
            .all(|(entry, place)| entry.seq == place)
    );
}

#[tokio::test]
async fn a_watcher_sees_the_head_move_only_to_what_can_be_read() {
    let place = Place::new();
    let journal = place.open();
    let mut watch = journal.watch();
    assert_eq!(*watch.borrow_and_update(), 0);
    let writer = tokio::spawn({
        let journal = journal.clone();
        async move { appender(journal, 50).await }
    });
    let mut last = 0;
    while last < 50 {
        watch.changed().await.unwrap();
        let head = *watch.borrow_and_update();
        assert!(head > last);
        last = head;
        assert!(
            journal
                .read(head - 1, 1)
                .unwrap()
                .iter()
                .any(|entry| entry.seq == head)
        );
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn an_appender_that_went_away_disturbs_nobody() {
    let place = Place::new();
    let journal = place.open();
    for _ in 0..20 {
        let gone = journal.append_if(Stream::Daemon, Expected::Any, vec![started("gone")]);
        let _timed_out = tokio::time::timeout(std::time::Duration::ZERO, gone).await;
    }
    let stays = journal.append_if(Stream::Agents, Expected::NoStream, vec![started("stays")]);
    let appended = stays.await.unwrap();
    let entries = journal.read(0, usize::MAX).unwrap();
    assert_eq!(entries.len() as u64, appended.last_seq);
}
