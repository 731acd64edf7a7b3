//! Somebody who can edit the file and knows how it is made, but has no key.

use std::fs;

use palyra_core::entry::{Entry, Stream};
use palyra_journal::proof::{EntryRecord, Note};
use palyra_journal::verify::{Completeness, Place as Where, Report, Trust, Verdict, verify};
use palyra_journal::{Expected, JournalError, JournalState, JournalStore};
use rusqlite::Connection;

use crate::support::{Place, editor, started};

/// Commits of one entry each, with the checkpoint that was kept after all of them.
async fn history(place: &Place, commits: usize) -> (JournalStore, Trust, Note) {
    let journal = place.open();
    for number in 0..commits {
        let entry: Entry = started(number.to_string());
        let append = journal.append_if(Stream::Daemon, Expected::Any, vec![entry]);
        append.await.unwrap();
    }
    let trust = Trust::nobody().key(journal.key().unwrap());
    let note = journal.checkpoint().unwrap();
    (journal, trust, note)
}

/// Makes everything anew that can be made without the key: places without gaps, every leaf beside
/// its checkpoint. Only the signatures stay as they were.
fn compute_anew(editor: &Connection) {
    editor
        .execute_batch(
            "CREATE TEMP TABLE moved AS
                 SELECT row_number() OVER (ORDER BY seq) AS place, * FROM entries;
             DELETE FROM entries;
             INSERT INTO entries SELECT place, stream, place, kind, at, body FROM moved;
             DROP TABLE moved;",
        )
        .unwrap();
    let count: i64 = editor
        .query_row("SELECT count(*) FROM entries", [], |row| row.get(0))
        .unwrap();
    editor
        .execute("DELETE FROM checkpoints WHERE size > ?1", [count])
        .unwrap();
    let mut entries = editor
        .prepare("SELECT seq, stream, revision, kind, at, body FROM entries ORDER BY seq")
        .unwrap();
    let mut rows = entries.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let (seq, revision): (i64, i64) = (row.get(0).unwrap(), row.get(2).unwrap());
        let (stream, kind): (String, String) = (row.get(1).unwrap(), row.get(3).unwrap());
        let body: Vec<u8> = row.get(5).unwrap();
        let record = EntryRecord {
            seq: seq.unsigned_abs(),
            stream: &stream,
            revision: revision.unsigned_abs(),
            kind: &kind,
            at: row.get(4).unwrap(),
            body: &body,
        };
        let leaf = record.leaf(&mut Vec::new());
        editor
            .execute(
                "UPDATE checkpoints SET leaves = ?1 WHERE size = ?2",
                (leaf.as_bytes().as_slice(), seq),
            )
            .unwrap();
    }
}

fn found(report: &Report, at: &Where) -> bool {
    report.faults.iter().any(|fault| fault.place == *at)
}

/// The signature of the first checkpoint after the change does not fit any more, and no later one.
#[tokio::test]
async fn edits_with_everything_computed_anew_are_found_where_they_begin() {
    let place = Place::new();
    let (journal, trust, _) = history(&place, 6).await;
    drop(journal);
    let honest = fs::read(place.file()).unwrap();
    for (attack, first) in [
        ("SELECT 1", None),
        (
            "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), '\"2\"', '\"7\"') AS BLOB)",
            Some(3),
        ),
        ("DELETE FROM entries WHERE seq = 4", Some(4)),
        (
            "UPDATE entries SET seq = -seq WHERE seq IN (2, 5);
             UPDATE entries SET seq = 7 + seq WHERE seq < 0",
            Some(2),
        ),
        (
            "UPDATE entries SET seq = -seq - 1 WHERE seq > 3;
             UPDATE entries SET seq = -seq WHERE seq < 0;
             INSERT INTO entries SELECT 4, stream, 99, kind, at, body FROM entries WHERE seq = 3",
            Some(4),
        ),
    ] {
        fs::write(place.file(), &honest).unwrap();
        let editor = editor(&place.file());
        editor.execute_batch(attack).unwrap();
        compute_anew(&editor);
        drop(editor);
        let report = verify(&place.file(), &trust).unwrap();
        let Some(first) = first else {
            assert_eq!(report.verdict(), Verdict::Verified, "control: {report:?}");
            continue;
        };
        assert_eq!(report.verdict(), Verdict::Faulty, "{attack}");
        assert!(
            found(&report, &Where::Checkpoint(first)),
            "{attack}: {report:?}"
        );
        assert_eq!(report.anchored, Some(first - 1), "{attack}");
    }
}

/// A tail that is cut with its checkpoints leaves a whole journal, and so does an older copy. Only
/// what was kept elsewhere shows it.
#[tokio::test]
async fn a_cut_tail_and_an_older_copy_are_found_only_against_what_was_kept() {
    let place = Place::new();
    let (journal, trust, older) = history(&place, 3).await;
    drop(journal);
    let copy = fs::read(place.file()).unwrap();
    let (journal, _, note) = history(&place, 3).await;
    drop(journal);
    let honest = fs::read(place.file()).unwrap();
    let pinned = |note: &Note| trust.clone().pinned(note.clone()).unwrap();
    let cuts = [
        (
            "DELETE FROM entries WHERE seq > 5; DELETE FROM checkpoints WHERE size > 5",
            5,
        ),
        (
            "DELETE FROM entries WHERE seq > 1; DELETE FROM checkpoints WHERE size > 1",
            1,
        ),
        (
            "DELETE FROM entries; DELETE FROM checkpoints WHERE size > 0",
            0,
        ),
    ];
    let mut states: Vec<(Vec<u8>, u64)> = vec![(copy, 3)];
    for (cut, left) in cuts {
        fs::write(place.file(), &honest).unwrap();
        editor(&place.file()).execute_batch(cut).unwrap();
        states.push((fs::read(place.file()).unwrap(), left));
    }
    for (state, left) in states {
        fs::write(place.file(), state).unwrap();
        let report = verify(&place.file(), &trust).unwrap();
        assert_eq!(report.verdict(), Verdict::Verified, "{left}: {report:?}");
        assert_eq!(report.completeness, Completeness::Unknown);
        let report = verify(&place.file(), &pinned(&note)).unwrap();
        assert_eq!(report.verdict(), Verdict::Faulty, "{left}: {report:?}");
        let expected = 6;
        assert_eq!(
            report.completeness,
            Completeness::Cut {
                found: left,
                expected
            }
        );
        // Its own checkpoint vouches for the older copy, and for nothing after it.
        if left == 3 {
            let report = verify(&place.file(), &pinned(&older)).unwrap();
            assert_eq!(report.completeness, Completeness::Complete { size: 3 });
        }
    }
}

/// The database file, and the log beside it, cut at any place.
#[tokio::test]
async fn every_truncation_of_the_files_is_found_against_what_was_kept() {
    let place = Place::new();
    let (journal, trust, note) = history(&place, 5).await;
    let pinned = trust.pinned(note).unwrap();
    // While it is open, all of it is in the log.
    let (file, log) = (place.file(), place.folder().join("journal.db-wal"));
    let (main, frames) = (fs::read(&file).unwrap(), fs::read(&log).unwrap());
    drop(journal);
    let whole = fs::read(&file).unwrap();

    let other = Place::new();
    let beside = other.folder().join("journal.db-wal");
    let found = |what: &str| {
        // A file that is not even a database is refused before it is looked at.
        let report = verify(&other.file(), &pinned).ok()?;
        let faulty = report.verdict() == Verdict::Faulty;
        (!faulty).then(|| format!("{what}: {report:?}"))
    };
    let said = verify(&file, &pinned).unwrap();
    assert_eq!(said.verdict(), Verdict::Verified);
    let mut unseen = 0;
    for length in (0..whole.len()).step_by(331) {
        fs::write(other.file(), &whole[..length]).unwrap();
        if found("").is_some() {
            // The last page has unused space at its end: nothing that is said was cut.
            assert!(whole[length..].iter().all(|byte| *byte == 0), "{length}");
            assert_eq!(verify(&other.file(), &pinned).unwrap(), said);
            unseen += 1;
        }
    }
    assert!(unseen <= 4_096 / 331 + 1, "one page at most: {unseen}");
    let committed = frames.len();
    for length in (0..committed).step_by(997) {
        let _index = fs::remove_file(other.folder().join("journal.db-shm"));
        fs::write(other.file(), &main).unwrap();
        fs::write(&beside, &frames[..length]).unwrap();
        assert_eq!(found(&format!("log of {length}")), None);
    }
    let _index = fs::remove_file(other.folder().join("journal.db-shm"));
    fs::write(other.file(), &main).unwrap();
    fs::write(&beside, &frames).unwrap();
    let control = verify(&other.file(), &pinned).unwrap();
    assert_eq!(control.verdict(), Verdict::Verified, "{control:?}");
}

/// A daemon that runs knows what it signed: a tail that is cut under it is not continued.
#[tokio::test]
async fn a_tail_that_is_cut_under_a_running_daemon_is_not_signed_over() {
    let place = Place::new();
    let (journal, _, _) = history(&place, 5).await;
    let editor = editor(&place.file());
    editor
        .execute_batch(
            "DELETE FROM entries WHERE seq > 3; DELETE FROM checkpoints WHERE size > 3;
             DELETE FROM projections",
        )
        .unwrap();
    drop(editor);
    for _ in 0..2 {
        let append = journal.append_if(Stream::Agents, Expected::Any, vec![started("x")]);
        let error = append.await.unwrap_err();
        assert!(matches!(error, JournalError::Corrupt { .. }), "{error:?}");
        assert!(error.to_string().contains("5 entries"), "{error}");
        assert!(matches!(journal.state(), JournalState::Unwritable { .. }));
    }
    drop(journal);
    let shell = place.shell();
    let checkpoints: i64 = shell
        .query_row("SELECT count(*) FROM checkpoints", [], |row| row.get(0))
        .unwrap();
    assert_eq!(checkpoints, 4, "nothing was signed after it");
}
