//! Verification by somebody who has nothing but the file, against somebody who can edit it.

use std::fs;
use std::path::Path;

use palyra_core::attestation::Ending;
use palyra_core::entry::{Entry, Stream};
use palyra_core::facts::{Channel, Origin};
use palyra_core::{
    Blob, BlobKind, Commitment, DeviceId, ExecutionReport, Principal, RunId, Timestamp,
};
use palyra_journal::proof::{Checkpoint, EntryRecord, Note, VerifierKey};
use palyra_journal::verify::{Completeness, Place as Where, Report, Trust, Verdict, verify};
use palyra_journal::{Append, Expected, JournalKeys, JournalStore};
use rusqlite::config::DbConfig;
use rusqlite::types::Value;

use crate::support::{Place, blob_key, call, keys, started, to};

const AT: Timestamp = Timestamp::from_millis(1_794_733_261_000);

/// A small journal with everything in it: commits, blobs, and a key that took over.
struct Sample {
    place: Place,
    journal: JournalStore,
    first: VerifierKey,
}

impl Sample {
    async fn new() -> Self {
        let place = Place::new();
        let journal = place.open();
        let first = journal.key().clone();
        append(&journal, "one").await;
        drop(journal);
        let journal = place.open_keyed(keys().rotated().unwrap());
        append(&journal, "two").await;
        Self {
            place,
            journal,
            first,
        }
    }

    fn export(&self, after: u64) -> Vec<u8> {
        let mut out = Vec::new();
        self.journal.export(after, &mut out).unwrap();
        out
    }

    fn checkpoint(&self) -> Note {
        self.journal.checkpoint().unwrap()
    }

    fn trust(&self) -> Trust {
        Trust::nobody().key(self.first.clone()).opening(blob_key())
    }

    fn pinned(&self) -> Trust {
        Trust::nobody().pinned(self.checkpoint()).unwrap()
    }

    /// Closes it, so that all of it is in the file.
    fn close(self) -> Place {
        drop(self.journal);
        self.place
    }
}

/// One commit: two entries that commit to something, and one that does not.
async fn append(journal: &JournalStore, words: &str) {
    let arguments = Blob::new(BlobKind::Arguments, format!("{{\"a\":\"{words}\"}}").into());
    let output = Blob::new(BlobKind::Output, words.as_bytes().to_vec());
    let entries = vec![
        proposed(arguments.commitment()),
        finished(output.commitment()),
    ];
    let streams = vec![
        to(Stream::Call(call()), Expected::NoStream, entries),
        to(Stream::Daemon, Expected::Any, vec![started(words)]),
    ];
    let blobs = vec![arguments, output];
    journal.append(Append { streams, blobs }).await.unwrap();
}

fn proposed(arguments: Commitment) -> Entry {
    let origin = Origin {
        principal: Principal::User {
            name: "ada".parse().unwrap(),
        },
        run: RunId::mint(AT),
        device: DeviceId::local(),
        channel: Channel::Cli,
    };
    Entry::Proposed {
        tool: "palyra.echo".parse().unwrap(),
        origin: Box::new(origin),
        arguments,
    }
}

fn finished(output: Commitment) -> Entry {
    let report = ExecutionReport {
        executor: "x".to_owned(),
        sandbox_enforcement: "none".to_owned(),
        layers: Vec::new(),
        started_at: AT,
        ended_at: AT,
        ending: Ending::Exited { code: 0 },
        truncated: false,
        running_as_root: false,
    };
    Entry::Finished { report, output }
}

fn segment(bytes: &[u8], trust: &Trust) -> Report {
    palyra_journal::verify::verify_segment(bytes, trust).unwrap()
}

fn places(report: &Report) -> Vec<&Where> {
    report.faults.iter().map(|fault| &fault.place).collect()
}

#[tokio::test]
async fn an_honest_history_verifies() {
    let sample = Sample::new().await;
    let (export, file) = (sample.export(0), sample.place.file());
    let second = Trust::nobody().key(sample.journal.key().clone());
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

/// The file as somebody who knows SQLite edits it: triggers are no obstacle.
fn editor(file: &Path) -> rusqlite::Connection {
    let editor = rusqlite::Connection::open(file).unwrap();
    editor
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)
        .unwrap();
    editor
        .execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;")
        .unwrap();
    editor
}

/// A value with one thing changed, in every place it can be.
fn changes(value: &Value) -> Vec<Value> {
    let flipped = |bytes: &[u8]| -> Vec<Value> {
        (0..bytes.len())
            .map(|place| {
                let flip = |(at, byte): (usize, &u8)| match at == place {
                    true => byte ^ (1 << (place % 8)),
                    false => *byte,
                };
                Value::Blob(bytes.iter().enumerate().map(flip).collect())
            })
            .collect()
    };
    match value {
        Value::Integer(number) => [number + 1, number - 1, -number - 7, i64::MAX]
            .into_iter()
            .map(Value::Integer)
            .collect(),
        Value::Text(text) => flipped(text.as_bytes()),
        Value::Blob(bytes) => flipped(bytes),
        // The journal holds neither.
        Value::Null | Value::Real(_) => Vec::new(),
    }
}

fn rows(editor: &rusqlite::Connection, table: &str) -> (Vec<String>, Vec<Vec<Value>>) {
    let mut statement = editor.prepare(&format!("SELECT * FROM {table}")).unwrap();
    let columns = statement.column_names().map(str::to_owned);
    let columns: Vec<String> = columns.collect();
    let rows = statement
        .query_map([], |row| (0..columns.len()).map(|at| row.get(at)).collect())
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    (columns, rows)
}

#[tokio::test]
async fn every_changed_byte_of_the_database_is_found() {
    let sample = Sample::new().await;
    let trust = sample.trust();
    let place = sample.close();
    let editor = editor(&place.file());
    let mut found = 0;
    for table in ["entries", "checkpoints", "blobs", "signer"] {
        let (columns, rows) = rows(&editor, table);
        let key = &columns[0];
        assert!(!rows.is_empty());
        for row in &rows {
            for (column, value) in columns.iter().zip(row) {
                let set = if matches!(value, Value::Text(_)) {
                    "CAST(?1 AS TEXT)"
                } else {
                    "?1"
                };
                let sql = format!("UPDATE {table} SET {column} = {set} WHERE {key} = ?2");
                for changed in changes(value) {
                    // Refused are a place that is taken, and a second signer.
                    if editor.execute(&sql, (&changed, &row[0])).is_err() {
                        continue;
                    }
                    let report = verify(&place.file(), &trust).unwrap();
                    let told = format!("{table}.{column} {changed:?}: {report:?}");
                    assert_eq!(report.verdict(), Verdict::Faulty, "{told}");
                    if let ("entries", Value::Integer(seq)) = (table, &row[0]) {
                        let here = Where::Entry(seq.unsigned_abs());
                        assert!(places(&report).contains(&&here), "{told}");
                    }
                    if let (true, Value::Integer(key)) = (column != key, &row[0]) {
                        let here = match table {
                            "checkpoints" => Where::Checkpoint(key.unsigned_abs()),
                            "blobs" => Where::Blob(key.unsigned_abs()),
                            "entries" => Where::Entry(key.unsigned_abs()),
                            _ => Where::File,
                        };
                        let all = places(&report);
                        assert!(all.contains(&&here) || table == "signer", "{told}");
                    }
                    found += 1;
                    let now = if column == key { &changed } else { &row[0] };
                    assert_eq!(editor.execute(&sql, (value, now)).unwrap(), 1);
                }
            }
        }
        let report = verify(&place.file(), &trust).unwrap();
        assert_eq!(report.verdict(), Verdict::Verified, "{table}: {report:?}");
    }
    assert!(found > 3_000, "{found}");
}

/// Bytes of the file itself, below SQL. A flip either is found, or changes nothing that the
/// journal says: there is unused space in every page. `PALYRA_EVERY_BYTE=1` leaves none out.
#[tokio::test]
async fn flipped_bytes_of_pages_are_found_or_mean_nothing() {
    let sample = Sample::new().await;
    let trust = sample.trust();
    let place = sample.close();
    let dump = |file: &Path| -> Vec<Vec<Vec<Value>>> {
        let shell = rusqlite::Connection::open(file).unwrap();
        let tables = ["entries", "checkpoints", "blobs", "signer"];
        tables.map(|table| rows(&shell, table).1).to_vec()
    };
    let (bytes, said) = (fs::read(place.file()).unwrap(), dump(&place.file()));
    let step = if std::env::var_os("PALYRA_EVERY_BYTE").is_some() {
        1
    } else {
        23
    };
    let mut found = 0;
    for at in (0..bytes.len()).step_by(step) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        fs::write(place.file(), &changed).unwrap();
        let Ok(report) = verify(&place.file(), &trust) else {
            continue;
        };
        if report.verdict() == Verdict::Faulty {
            found += 1;
            continue;
        }
        assert_eq!(report.verdict(), Verdict::Verified);
        for (table, said) in dump(&place.file()).into_iter().zip(&said) {
            assert_eq!(table.len(), said.len(), "byte {at}");
            for (found, said) in table.iter().zip(said) {
                assert_eq!(found, said, "byte {at}");
            }
        }
    }
    assert!(found > 100, "{found}");
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
        editor(&place.file()).execute_batch(attack).unwrap();
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
    let editor = editor(&place.file());
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
    let new_key = Trust::nobody().key(sample.journal.key().clone());
    let said = Checkpoint::unverified(&checkpoint).unwrap();
    let pinned = sample.pinned();
    let place = sample.close();
    let old = palyra_journal::proof::SignerKey::from_secret(keys().to_text().trim()).unwrap();
    let resigned = said.sign(&old).unwrap().to_string();
    editor(&place.file())
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
    let trust = Trust::nobody().key(journal.key().clone());
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
    let trust = Trust::nobody().key(journal.key().clone());
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
        editor(&place.file()).execute_batch(attack).unwrap();
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
