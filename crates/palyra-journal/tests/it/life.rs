//! Projections made anew, copies that stand on their own, and appends that happen once.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use palyra_core::entry::{Entry, Stream};
use palyra_core::{Blob, BlobKind, Timestamp};
use palyra_journal::verify::{Trust, Verdict, verify};
use palyra_journal::{
    Append, Expected, JournalError, JournalStore, Kept, RowQuery, beyond, kept_name, replace,
};

use crate::support::{Counting, Place, blob_key, call, started, to};

fn rows(journal: &JournalStore) -> Vec<(String, String, Vec<u8>)> {
    let everything = RowQuery {
        limit: usize::MAX,
        newest_first: false,
        ..RowQuery::default()
    };
    let rows = journal.rows("counts", &everything).unwrap();
    rows.into_iter()
        .map(|row| (row.key, row.state, row.value))
        .collect()
}

async fn fill(journal: &JournalStore, streams: usize) {
    for number in 0..streams {
        let entries = vec![started(number.to_string()); 1 + number % 3];
        let stream = Stream::Call(call());
        journal
            .append_if(stream, Expected::NoStream, entries)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_rebuild_of_an_honest_journal_finds_and_records_nothing() {
    let place = Place::new();
    let journal = place.open_with(vec![Box::new(Counting("counts"))]);
    fill(&journal, 30).await;
    let (head, before) = (journal.head(), rows(&journal));
    let rebuild = journal.rebuild().await.unwrap();
    assert_eq!((rebuild.entries, rebuild.seq), (head, None));
    assert!(rebuild.projections.iter().all(|found| found.same()));
    let counts = rebuild
        .projections
        .iter()
        .find(|found| found.name == "counts");
    assert_eq!(counts.unwrap().rows, 30);
    assert_eq!((journal.head(), rows(&journal)), (head, before));
}

/// Rows are changed, removed and slipped in behind the daemon's back, while it goes on writing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_mends_what_was_changed_while_the_journal_is_written() {
    let place = Place::new();
    let journal = place.open_with(vec![Box::new(Counting("counts"))]);
    fill(&journal, 5_000).await;
    let honest = rows(&journal);
    place
        .shell()
        .execute_batch(
            "UPDATE projections SET value = CAST('77' AS BLOB)
                 WHERE name = 'counts' AND key IN (SELECT key FROM projections LIMIT 2500);
             DELETE FROM projections WHERE name = 'counts'
                 AND key IN (SELECT key FROM projections ORDER BY key DESC LIMIT 100);
             INSERT INTO projections VALUES ('counts', 'call_nobody', 'odd', CAST('1' AS BLOB));",
        )
        .unwrap();
    assert_ne!(rows(&journal), honest, "control");
    let appending = tokio::spawn({
        let journal = journal.clone();
        async move { fill(&journal, 200).await }
    });
    let rebuild = journal.rebuild().await.unwrap();
    appending.await.unwrap();
    let counts = rebuild
        .projections
        .iter()
        .find(|found| found.name == "counts");
    let counts = counts.unwrap();
    assert_eq!((counts.missing, counts.unknown), (100, 1), "{counts:?}");
    assert!(counts.wrong >= 2_400, "{counts:?}");
    let told = journal.read_stream(&Stream::Journal).unwrap();
    assert!(matches!(
        told.last().map(|last| &last.entry),
        Some(Entry::ProjectionMended {
            missing: 100,
            unknown: 1,
            ..
        })
    ));
    assert_eq!(told.last().map(|last| last.seq), rebuild.seq);
    // The next one finds nothing, and the first rows are what they were.
    let again = journal.rebuild().await.unwrap();
    assert_eq!(again.seq, None, "{again:?}");
    let now = rows(&journal);
    assert!(honest.iter().all(|row| now.contains(row)));
    // What is appended to a mended row counts from the right value.
    let (key, _, value) = honest.first().unwrap();
    let stream = Stream::Call(key.parse().unwrap());
    journal
        .append_if(stream, Expected::Any, vec![started("x")])
        .await
        .unwrap();
    let row = journal.row("counts", key).unwrap().unwrap();
    let number = |value: &[u8]| String::from_utf8_lossy(value).parse::<u64>().unwrap();
    assert_eq!(number(&row.value), number(value) + 1);
}

fn copy(journal: &JournalStore, to: &Place) {
    let mut file = journal.backup().unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    std::fs::write(to.file(), bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_a_whole_journal() {
    let place = Place::new();
    let journal = place.open_with(vec![Box::new(Counting("counts"))]);
    fill(&journal, 20).await;
    let blob = Blob::new(BlobKind::Output, b"kept".repeat(5_000));
    let streams = vec![to(Stream::Daemon, Expected::Any, vec![started("x")])];
    let blobs = vec![blob.clone()];
    journal.append(Append { streams, blobs }).await.unwrap();
    let before = journal.head();
    let appending = tokio::spawn({
        let journal = journal.clone();
        async move { fill(&journal, 150).await }
    });
    let (one, other) = (journal.clone(), journal.clone());
    let (first, second) = (Place::new(), Place::new());
    let both = [
        tokio::task::spawn_blocking(move || (copy(&one, &first), first).1),
        tokio::task::spawn_blocking(move || (copy(&other, &second), second).1),
    ];
    for made in both {
        let made = made.await.unwrap();
        let trust = Trust::nobody()
            .key(journal.key().unwrap())
            .opening(blob_key());
        let report = verify(&made.file(), &trust).unwrap();
        assert_eq!(report.verdict(), Verdict::Verified, "{report:?}");
        assert!(report.last >= before && report.blobs == Some(1));
        let restored = made.open_with(vec![Box::new(Counting("counts"))]);
        assert!(restored.kept(&blob.commitment()).unwrap() == Kept::Whole(blob.clone()));
        assert_eq!(restored.rebuild().await.unwrap().seq, None);
        fill(&restored, 1).await;
    }
    appending.await.unwrap();
    let left: Vec<_> = std::fs::read_dir(place.folder())
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().contains("copying")),
        "{left:?}"
    );
}

#[tokio::test]
async fn a_journal_is_replaced_whole_and_the_one_before_is_kept() {
    let place = Place::new();
    let journal = place.open();
    fill(&journal, 3).await;
    let backup = Place::new();
    copy(&journal, &backup);
    let old = journal.head();
    fill(&journal, 2).await;
    let head = journal.head();
    let lost = beyond(&place.file(), old).unwrap().unwrap();
    assert_eq!((lost.first, lost.last, lost.calls), (old + 1, head, 0));
    assert_eq!(beyond(&place.file(), head).unwrap(), None);
    // As a crash leaves it: the last entries are in the log only.
    let crashed = Place::new();
    for file in ["journal.db", "journal.db-wal"] {
        std::fs::copy(place.folder().join(file), crashed.folder().join(file)).unwrap();
    }
    let keep = kept_name(&crashed.file(), Timestamp::from_millis(1_794_733_261_000));
    replace(&crashed.file(), &backup.file(), &keep).unwrap();
    let mode = std::fs::metadata(crashed.file())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(crashed.open().head(), old);
    let kept = verify(&keep, &Trust::nobody().opening(blob_key())).unwrap();
    assert_eq!((kept.last, kept.fault_count), (head, 0), "{kept:?}");
}

#[tokio::test]
async fn an_append_under_a_key_happens_once_and_is_answered_the_same() {
    let place = Place::new();
    let journal = place.open();
    let id = call();
    let batch = |version: &str| Append {
        streams: vec![to(
            Stream::Call(id.clone()),
            Expected::Any,
            vec![started(version)],
        )],
        blobs: vec![Blob::new(BlobKind::Output, b"x".to_vec())],
    };
    let first = journal.append_once("key-1", batch("a")).await.unwrap();
    fill(&journal, 2).await;
    let head = journal.head();
    let again = journal.append_once("key-1", batch("b")).await.unwrap();
    assert_eq!((again, journal.head()), (first.clone(), head));
    let other = journal.append_once("key-2", batch("c")).await.unwrap();
    // Before each there is the entry about its key.
    assert_eq!(other.last_seq, head + 2);
    // At the same time: one of them counts, and all hear of it.
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (journal, batch) = (journal.clone(), batch("d"));
        tasks.spawn(async move { journal.append_once("key-3", batch).await.unwrap() });
    }
    let answers = tasks.join_all().await;
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(journal.head(), head + 4);
    drop(journal);
    let journal = place.open();
    assert_eq!(
        journal.append_once("key-1", batch("e")).await.unwrap(),
        first
    );
    let elsewhere = Append {
        streams: vec![to(Stream::Daemon, Expected::Any, vec![started("f")])],
        blobs: Vec::new(),
    };
    let reused = journal.append_once("key-1", elsewhere).await.unwrap_err();
    assert!(matches!(reused, JournalError::KeyReused { .. }), "{reused}");
    for wrong in ["", &"k".repeat(201)] {
        let refused = journal.append_once(wrong, batch("g")).await.unwrap_err();
        assert!(matches!(refused, JournalError::BadKey { .. }));
    }
    // A refusal is no answer: the key is still free.
    let conflict = Append {
        streams: vec![to(
            Stream::Call(id.clone()),
            Expected::NoStream,
            vec![started("h")],
        )],
        blobs: Vec::new(),
    };
    journal.append_once("key-4", conflict).await.unwrap_err();
    let now = journal.append_once("key-4", batch("i")).await.unwrap();
    assert_eq!(now.last_seq, head + 6);
    let mut lines = Vec::new();
    journal.export(0, &mut lines).unwrap();
    let said = String::from_utf8(lines).unwrap();
    assert!(said.contains("appended_once") && !said.contains("key-1"));
}

/// Answers to appends are made of entries: whoever changes, removes or invents one is found out, and
/// a rebuild puts it right.
#[tokio::test]
async fn an_answer_under_a_key_is_proven_by_its_entry() {
    let place = Place::new();
    let journal = place.open();
    let ids = [call(), call()];
    let batch = |entries: usize| Append {
        streams: vec![
            to(
                Stream::Call(ids[0].clone()),
                Expected::Any,
                vec![started("x"); entries],
            ),
            to(Stream::Call(ids[1].clone()), Expected::Any, Vec::new()),
        ],
        blobs: Vec::new(),
    };
    let mut answers = Vec::new();
    for (number, key) in ["a", "b", "c"].into_iter().enumerate() {
        let answer = journal.append_once(key, batch(number)).await.unwrap();
        answers.push((key, answer));
    }
    let faults = || {
        let trust = Trust::nobody().key(journal.key().unwrap());
        let report = verify(&place.file(), &trust).unwrap();
        report
            .faults
            .into_iter()
            .map(|fault| fault.what)
            .collect::<Vec<_>>()
    };
    assert_eq!(faults(), [""; 0], "control");
    for (attack, words) in [
        (
            "UPDATE answered SET last_seq = last_seq + 1 WHERE last_seq = 1",
            "another answer",
        ),
        (
            "UPDATE answered SET revisions = '[1,9,9]' WHERE last_seq = 1",
            "another answer",
        ),
        ("DELETE FROM answered WHERE last_seq = 1", "lost the answer"),
        (
            "INSERT INTO answered SELECT 'k', streams, last_seq, revisions FROM answered LIMIT 1",
            "no entry knows",
        ),
    ] {
        place.shell().execute_batch(attack).unwrap();
        let found = faults();
        assert!(
            found.len() == 1 && found[0].contains(words),
            "{attack}: {found:?}"
        );
        let rebuild = journal.rebuild().await.unwrap();
        let mended = rebuild.projections.iter().find(|found| !found.same());
        assert_eq!(mended.unwrap().name, "answered", "{attack}");
        assert_eq!(faults(), [""; 0], "{attack}");
    }
    for (key, answer) in answers {
        assert_eq!(journal.append_once(key, batch(1)).await.unwrap(), answer);
    }
}

#[tokio::test]
async fn states_keys_and_times_are_found_by_looking_once() {
    let place = Place::new();
    let journal = place.open_with(vec![Box::new(Counting("counts"))]);
    assert_eq!(journal.states("counts").unwrap(), [""; 0]);
    assert_eq!(journal.place_before(Timestamp::from_millis(0)).unwrap(), 0);
    fill(&journal, 9).await;
    assert_eq!(journal.states("counts").unwrap(), ["even", "odd"]);
    let all = rows(&journal);
    let of = |state: &str| {
        let mut keys: Vec<String> = all
            .iter()
            .filter(|(_, found, _)| found == state)
            .map(|(key, _, _)| key.clone())
            .collect();
        keys.reverse();
        keys
    };
    for state in ["even", "odd"] {
        let keys = journal.keys("counts", state, None, 100).unwrap();
        assert_eq!(keys, of(state));
        let after_first = journal.keys("counts", state, Some(&keys[0]), 1).unwrap();
        assert_eq!(after_first, keys[1..2]);
    }
    let entries = journal.read(0, usize::MAX).unwrap();
    for recorded in &entries {
        let place = journal.place_before(recorded.at).unwrap();
        let expected = entries
            .iter()
            .filter(|other| other.at < recorded.at)
            .count();
        assert_eq!(place, expected as u64);
    }
    let later = Timestamp::from_millis(i64::MAX);
    assert_eq!(journal.place_before(later).unwrap(), journal.head());
}
