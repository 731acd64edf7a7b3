//! Verification by somebody who has nothing but the file, against somebody who can edit it.

use std::fs;

use palyra_core::entry::Stream;
use palyra_journal::proof::{Checkpoint, EntryRecord};
use palyra_journal::verify::{Completeness, Place as Where, Trust, Verdict, verify};
use palyra_journal::{Expected, JournalKeys};

use crate::sample::{Sample, append, places, segment};
use crate::support::{Place, blob_key, keys, only_editor, started};

#[tokio::test]
async fn an_honest_history_verifies() {
    let sample = Sample::new().await;
    let (export, file) = (sample.export(0), sample.place.file());
    let second = Trust::nobody().key(sample.journal.key().unwrap());
    for trust in [sample.trust(), second, sample.pinned()] {
        // With a log beside it, as an export, and as a file that lies still.
        let copy = Place::new();
        sample
            .place
            .shell()
            .execute("VACUUM INTO ?1", [copy.file().to_str()])
            .unwrap();
        for report in [
            verify(&file, &trust).unwrap(),
            segment(&export, &trust),
            verify(&copy.file(), &trust).unwrap(),
        ] {
            assert_eq!(report.verdict(), Verdict::Verified, "{report:?}");
            assert_eq!((report.after, report.last), (0, 7));
            assert_eq!(report.anchored, Some(7));
            assert_eq!(report.checkpoints, 4);
            let looked_into = [report.blobs, report.blobs_unopened];
            let all = looked_into.iter().flatten().sum::<u64>();
            assert!(report.blobs.is_none() || all == 4, "{report:?}");
            assert_eq!(report.keys.len(), 2);
            assert_eq!(report.keys[1].vouched, Some(true));
            assert_eq!(report.head, Some(sample.checkpoint().to_string()));
        }
    }
    let complete = segment(&export, &sample.pinned()).completeness;
    assert_eq!(complete, Completeness::Complete { size: 7 });
    for report in [
        segment(&export, &Trust::nobody()),
        verify(&file, &Trust::nobody()).unwrap(),
    ] {
        assert_eq!(report.verdict(), Verdict::SignerUnknown);
        assert_eq!(report.anchored, None);
        assert_eq!(report.completeness, Completeness::Unknown);
    }
}

#[tokio::test]
async fn a_segment_from_the_middle_leads_to_the_same_root() {
    let sample = Sample::new().await;
    for after in 0..=7 {
        let export = sample.export(after);
        let report = segment(&export, &sample.pinned());
        assert_eq!(report.verdict(), Verdict::Verified, "{after}: {report:?}");
        assert_eq!((report.after, report.last), (after, 7));
        let other = segment(&export, &sample.trust());
        let known = after < 4;
        assert_eq!(other.verdict() == Verdict::Verified, known, "{after}");
    }
    let beyond = sample.journal.export(8, &mut Vec::new());
    assert!(beyond.unwrap_err().to_string().contains("no entry 8"));
}

#[tokio::test]
async fn every_changed_byte_of_an_export_is_found_and_its_index_named() {
    let sample = Sample::new().await;
    let (export, trust) = (sample.export(0), sample.trust());
    let mut start = 0;
    for line in export.split_inclusive(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        let number = |after: &str| -> Option<u64> {
            let (_, rest) = text.split_once(after)?;
            let digits = rest.split(|char: char| !char.is_ascii_digit()).next()?;
            digits.parse().ok()
        };
        let (seq, size) = (number("\"seq\":"), number("PeterNeumann\\n"));
        for place in 0..line.len() {
            let mut changed = export.clone();
            changed[start + place] ^= 1 << (place % 8);
            let report = segment(&changed, &trust);
            let told = format!("byte {place} of {text}: {report:?}");
            assert_eq!(report.verdict(), Verdict::Faulty, "{told}");
            let named = places(&report).into_iter().any(|place| match place {
                Where::Entry(found) => seq.or(size).is_some_and(|here| found.abs_diff(here) <= 3),
                Where::Checkpoint(found) => size.is_some_and(|size| *found == size) || *found > 7,
                Where::Line(line) => *line == 1 || size.is_some(),
                Where::Blob(_) | Where::File => false,
            });
            assert!(named, "{told}");
            if let Some(seq) = seq {
                assert!(places(&report).contains(&&Where::Entry(seq)), "{told}");
            }
        }
        start += line.len();
    }
}

#[tokio::test]
async fn every_cut_is_found_against_a_checkpoint_and_open_without() {
    let sample = Sample::new().await;
    let (export, trust, pinned) = (sample.export(0), sample.trust(), sample.pinned());
    let mut clean = 0;
    for length in 0..export.len() {
        let cut = &export[..length];
        let report = segment(cut, &pinned);
        assert_eq!(report.verdict(), Verdict::Faulty, "{length}: {report:?}");
        let report = segment(cut, &trust);
        if report.verdict() == Verdict::Faulty {
            continue;
        }
        clean += 1;
        assert_eq!(report.completeness, Completeness::Unknown, "{length}");
        let last = cut
            .strip_suffix(b"\n")
            .and_then(|cut| cut.rsplit(|byte| *byte == b'\n').next());
        assert!(last.unwrap().starts_with(b"{\"checkpoint\""), "{length}");
    }
    assert_eq!(clean, 3, "after each checkpoint but the last");
}

#[tokio::test]
async fn what_an_editor_would_try_is_found() {
    let sample = Sample::new().await;
    let trust = sample.trust();
    let place = sample.close();
    let honest = fs::read(place.file()).unwrap();
    for (attack, at) in [
        ("DELETE FROM entries WHERE seq = 2", Where::Entry(2)),
        ("DELETE FROM entries WHERE seq > 3", Where::Entry(4)),
        (
            "UPDATE entries SET body = (SELECT body FROM entries WHERE seq = 7),
                kind = 'daemon_started' WHERE seq = 3",
            Where::Entry(3),
        ),
        (
            "INSERT INTO entries SELECT 8, stream, 9, kind, at, body FROM entries WHERE seq = 7",
            Where::Entry(8),
        ),
        (
            "UPDATE entries SET seq = -seq; UPDATE entries SET seq = 8 + seq",
            Where::Entry(1),
        ),
        (
            "DELETE FROM checkpoints WHERE size = 3",
            Where::Checkpoint(4),
        ),
        ("DELETE FROM checkpoints WHERE size = 7", Where::Entry(5)),
        ("DELETE FROM checkpoints WHERE size > 0", Where::Entry(1)),
        ("DELETE FROM checkpoints", Where::Entry(1)),
        ("DELETE FROM entries", Where::Entry(1)),
        ("DELETE FROM blobs WHERE id = 2", Where::Entry(2)),
        (
            "UPDATE blobs SET sealed = CAST('other' AS BLOB) WHERE id = 2",
            Where::Blob(2),
        ),
        (
            "UPDATE blobs SET sealed = NULL WHERE id = 2",
            Where::Blob(2),
        ),
        (
            "UPDATE blobs SET sealed = (SELECT sealed FROM blobs WHERE id = 3) WHERE id = 2",
            Where::Blob(2),
        ),
        ("DROP TRIGGER entries_are_never_changed", Where::File),
        ("CREATE TABLE mine (x)", Where::File),
        (
            "ALTER TABLE entries RENAME TO true_entries;
             CREATE VIEW entries AS SELECT * FROM true_entries WHERE seq < 4",
            Where::File,
        ),
        ("PRAGMA user_version = 1", Where::File),
        ("PRAGMA application_id = 7", Where::File),
        ("DELETE FROM signer", Where::File),
    ] {
        fs::write(place.file(), &honest).unwrap();
        only_editor(&place.file()).execute_batch(attack).unwrap();
        let report = verify(&place.file(), &trust).unwrap();
        assert_eq!(report.verdict(), Verdict::Faulty, "{attack}");
        assert!(places(&report).contains(&&at), "{attack}: {report:?}");
    }
}

/// Who edits an entry and everything that can be computed without the key is left with a
/// signature that does not fit, and with one range of entries to explain.
#[tokio::test]
async fn an_entry_with_all_hashes_made_anew_is_found() {
    let sample = Sample::new().await;
    let trust = sample.trust();
    let place = sample.close();
    let editor = only_editor(&place.file());
    let body = br#"{"kind":"daemon_started","v":1,"version":"lie"}"#;
    let record = EntryRecord {
        seq: 3,
        stream: "daemon",
        revision: 1,
        kind: "daemon_started",
        at: editor
            .query_row("SELECT at FROM entries WHERE seq = 3", [], |row| row.get(0))
            .unwrap(),
        body,
    };
    let leaf = record.leaf(&mut Vec::new());
    let kept: Vec<u8> = editor
        .query_row("SELECT leaves FROM checkpoints WHERE size = 3", [], |row| {
            row.get(0)
        })
        .unwrap();
    let leaves = [&kept[..64], leaf.as_bytes()].concat();
    editor
        .execute(
            "UPDATE entries SET body = ?1 WHERE seq = 3",
            [body.as_slice()],
        )
        .unwrap();
    editor
        .execute(
            "UPDATE checkpoints SET leaves = ?1 WHERE size = 3",
            [&leaves],
        )
        .unwrap();
    let report = verify(&place.file(), &trust).unwrap();
    assert_eq!(places(&report)[0], &Where::Checkpoint(3), "{report:?}");
    assert!(
        report.faults[0].what.contains("entries 1 to 3"),
        "{report:?}"
    );
    assert_eq!(report.anchored, Some(0), "the empty beginning is true");
}

/// Another history under the same name, signed with a key of the forger's.
#[tokio::test]
async fn a_forged_history_under_a_new_key_fits_together_and_is_believed_by_nobody() {
    let sample = Sample::new().await;
    let forged = Place::new();
    let name = sample.first.name();
    let key = palyra_journal::proof::SignerKey::from_seed(name, &[9; 32]).unwrap();
    let journal = forged.open_keyed(JournalKeys::from_text(&key.to_secret(), blob_key()).unwrap());
    for words in ["one", "two", "three"] {
        append(&journal, words).await;
    }
    let file = forged.file();
    let nobody = verify(&file, &Trust::nobody()).unwrap();
    assert_eq!(nobody.verdict(), Verdict::SignerUnknown);
    assert_eq!(nobody.origin.as_deref(), Some(name));
    for trust in [sample.trust(), sample.pinned()] {
        let report = verify(&file, &trust).unwrap();
        assert_eq!(report.verdict(), Verdict::Faulty, "{report:?}");
        assert_eq!(report.anchored, None);
    }
    let report = verify(&file, &sample.pinned()).unwrap();
    assert_eq!(
        report.completeness,
        Completeness::Forked { after: 0, by: 7 }
    );

    // The beginning is true, and then a key that nobody vouched for goes on.
    let stolen = Place::new();
    sample
        .place
        .shell()
        .execute("VACUUM INTO ?1", [stolen.file().to_str()])
        .unwrap();
    let journal = stolen.open_keyed(JournalKeys::generate().unwrap());
    append(&journal, "lie").await;
    let report = verify(&stolen.file(), &sample.trust()).unwrap();
    assert_eq!(report.verdict(), Verdict::SignerUnknown, "{report:?}");
    assert_eq!((report.anchored, report.last), (Some(7), 11));
    assert_eq!(report.keys[2].vouched, Some(false));
}

/// A key that was replaced is stolen later: what it signs counts for the time before.
#[tokio::test]
async fn an_old_key_cannot_go_on_after_it_handed_over() {
    let sample = Sample::new().await;
    let (trust, checkpoint) = (sample.trust(), sample.checkpoint());
    let new_key = Trust::nobody().key(sample.journal.key().unwrap());
    let said = Checkpoint::unverified(&checkpoint).unwrap();
    let pinned = sample.pinned();
    let place = sample.close();
    let old = palyra_journal::proof::SignerKey::from_secret(keys().to_text().trim()).unwrap();
    let resigned = said.sign(&old).unwrap().to_string();
    only_editor(&place.file())
        .execute(
            "UPDATE checkpoints SET note = ?1 WHERE size = 7",
            [resigned],
        )
        .unwrap();
    let report = verify(&place.file(), &trust).unwrap();
    assert!(
        places(&report).contains(&&Where::Checkpoint(7)),
        "{report:?}"
    );

    // With the old key one can tell another story of the time before, but not to those who know
    // the new key or any checkpoint.
    let other = Place::new();
    let journal = other.open();
    append(&journal, "another one").await;
    assert_eq!(
        verify(&other.file(), &trust).unwrap().verdict(),
        Verdict::Verified
    );
    for trust in [new_key, pinned] {
        let report = verify(&other.file(), &trust).unwrap();
        assert_eq!(report.verdict(), Verdict::Faulty, "{report:?}");
    }
}

/// The thief of a retired key puts it back: the journal then says that it took over once more.
#[tokio::test]
async fn a_retired_key_does_not_come_back() {
    let sample = Sample::new().await;
    let trust = sample.trust();
    let place = sample.close();
    let report = verify(&place.file(), &trust).unwrap();
    assert_eq!(report.verdict(), Verdict::Verified, "control: {report:?}");
    let journal = place.open_keyed(keys());
    append(&journal, "by the thief").await;
    drop(journal);
    let report = verify(&place.file(), &trust).unwrap();
    assert_eq!(report.verdict(), Verdict::Faulty, "{report:?}");
    assert!(places(&report).contains(&&Where::Entry(8)), "{report:?}");
}

/// A file that is made to overflow or to fill the memory of whoever looks at it.
#[tokio::test]
async fn a_hostile_export_costs_no_more_than_an_honest_one() {
    let sample = Sample::new().await;
    let honest = String::from_utf8(sample.export(0)).unwrap();
    let report = segment(honest.as_bytes(), &sample.trust());
    assert_eq!(report.verdict(), Verdict::Verified, "control: {report:?}");
    let peak = serde_json::to_value(palyra_journal::proof::Hash::empty()).unwrap();
    for after in [u64::MAX, u64::MAX - 1, 1 << 63] {
        let peaks = vec![peak.clone(); after.count_ones() as usize];
        let begins = format!("\"after\":{after},");
        let hostile = honest.replacen("\"after\":0,", &begins, 1).replacen(
            "\"peaks\":[]",
            &format!("\"peaks\":{}", serde_json::Value::from(peaks)),
            1,
        );
        assert_ne!(hostile, honest);
        let report = segment(hostile.as_bytes(), &sample.trust());
        assert_eq!(report.verdict(), Verdict::Faulty, "{report:?}");
    }
    let (header, _) = honest.split_once('\n').unwrap();
    let mut hostile = format!("{header}\n").into_bytes();
    for number in 1..200 {
        let mut line = Vec::new();
        let record = EntryRecord {
            seq: number * 60_000,
            stream: "daemon",
            revision: number,
            kind: "daemon_started",
            at: 0,
            body: b"{}",
        };
        record.spell(&mut line);
        hostile.extend(line);
        hostile.push(b'\n');
    }
    let report = segment(&hostile, &sample.trust());
    assert_eq!(report.verdict(), Verdict::Faulty);
    assert!(report.fault_count < 70_000, "{}", report.fault_count);
}

#[tokio::test]
async fn where_two_histories_part_is_named() {
    let (place, other) = (Place::new(), Place::new());
    let journal = place.open();
    let mut kept = Vec::new();
    for number in 0..4 {
        append(&journal, &number.to_string()).await;
        kept.push(journal.checkpoint().unwrap());
        if number == 1 {
            let into = other.file();
            let copy = place.shell().execute("VACUUM INTO ?1", [into.to_str()]);
            copy.unwrap();
        }
    }
    let journal = other.open();
    append(&journal, "another way").await;
    append(&journal, "and on").await;
    let trust = kept
        .into_iter()
        .try_fold(Trust::nobody(), Trust::pinned)
        .unwrap();
    let report = verify(&other.file(), &trust).unwrap();
    assert_eq!(
        report.completeness,
        Completeness::Forked { after: 6, by: 9 }
    );
    assert_eq!(report.anchored, Some(6));
    assert_eq!(report.verdict(), Verdict::Faulty);
    let report = verify(&place.file(), &trust).unwrap();
    assert_eq!(report.completeness, Completeness::Complete { size: 12 });
    assert_eq!(report.verdict(), Verdict::Verified);
}

/// An empty history is nobody's, too.
#[tokio::test]
async fn an_empty_journal_is_believed_only_under_a_key_that_is() {
    let place = Place::new();
    let journal = place.open();
    let trust = Trust::nobody().key(journal.key().unwrap());
    let mut export = Vec::new();
    journal.export(0, &mut export).unwrap();
    for (trust, verdict) in [
        (Trust::nobody(), Verdict::SignerUnknown),
        (trust, Verdict::Verified),
    ] {
        assert_eq!(segment(&export, &trust).verdict(), verdict);
        assert_eq!(verify(&place.file(), &trust).unwrap().verdict(), verdict);
    }
}

#[tokio::test]
async fn nodes_that_were_changed_are_found() {
    let place = Place::new();
    let journal = place.open();
    let trust = Trust::nobody().key(journal.key().unwrap());
    let entries = (0..600).map(|_| started("")).collect();
    let append = journal.append_if(Stream::Daemon, Expected::Any, entries);
    append.await.unwrap();
    drop(journal);
    let honest = fs::read(place.file()).unwrap();
    assert_eq!(
        verify(&place.file(), &trust).unwrap().verdict(),
        Verdict::Verified
    );
    for (attack, at) in [
        (
            "UPDATE nodes SET hash = zeroblob(32) WHERE place = 1",
            Where::Entry(512),
        ),
        ("DELETE FROM nodes WHERE place = 0", Where::Entry(256)),
        ("INSERT INTO nodes VALUES (8, 9, zeroblob(32))", Where::File),
    ] {
        fs::write(place.file(), &honest).unwrap();
        only_editor(&place.file()).execute_batch(attack).unwrap();
        let report = verify(&place.file(), &trust).unwrap();
        assert!(places(&report).contains(&&at), "{attack}: {report:?}");
    }
}

#[tokio::test]
async fn what_is_no_journal_at_all_is_said_to_be_none() {
    let place = Place::new();
    for (bytes, at) in [
        (&b""[..], Where::Line(1)),
        (b"hello\n", Where::Line(1)),
        (b"SQLite format 3\0 and then nothing", Where::File),
    ] {
        fs::write(place.file(), bytes).unwrap();
        let report = verify(&place.file(), &Trust::nobody()).unwrap();
        assert_eq!(report.verdict(), Verdict::Faulty);
        assert_eq!(places(&report), [&at]);
    }
    rusqlite::Connection::open(place.folder().join("other.db"))
        .unwrap()
        .execute_batch("CREATE TABLE x (y)")
        .unwrap();
    let report = verify(&place.folder().join("other.db"), &Trust::nobody()).unwrap();
    assert!(
        report.faults[0].what.contains("not a journal"),
        "{report:?}"
    );
    assert!(verify(&place.folder().join("nowhere"), &Trust::nobody()).is_err());
}
