//! What entries commit to.

use palyra_core::entry::{Entry, ErasedBlob, Stream};
use palyra_core::{Blob, BlobKind, CallId};
use palyra_journal::verify::{Trust, verify};
use palyra_journal::{Append, BlobKey, Erasure, Expected, JournalError, JournalStore, Kept};

use crate::recording::executed;
use crate::support::{Place, blob_key, call, clock, editor, keys, started, to, unseal};

fn with(blobs: Vec<Blob>) -> Append {
    Append {
        streams: vec![to(Stream::Daemon, Expected::Any, vec![started("x")])],
        blobs,
    }
}

#[tokio::test]
async fn a_blob_comes_back_whole_whatever_its_size() {
    let place = Place::new();
    let journal = place.open();
    let sizes = [0, 1, 4_095, 4_096, 5 << 20];
    let kinds = [
        BlobKind::Arguments,
        BlobKind::Facts,
        BlobKind::Output,
        BlobKind::Policies,
    ];
    let blobs: Vec<Blob> = sizes
        .iter()
        .zip(kinds.iter().cycle())
        .map(|(size, kind)| Blob::new(*kind, vec![0xa5; *size]))
        .collect();
    journal.append(with(blobs.clone())).await.unwrap();
    for blob in &blobs {
        let found = journal.blob(&blob.commitment()).unwrap();
        assert!(found.as_ref() == Some(blob), "{} bytes", blob.bytes.len());
    }
    drop(journal);
    let journal = place.open();
    assert!(journal.blob(&blobs[4].commitment()).unwrap().as_ref() == Some(&blobs[4]));
}

#[tokio::test]
async fn an_unknown_commitment_has_no_blob() {
    let place = Place::new();
    let unknown = Blob::new(BlobKind::Output, Vec::new()).commitment();
    assert!(place.open().blob(&unknown).unwrap().is_none());
}

#[tokio::test]
async fn the_same_blob_twice_is_stored_once() {
    let place = Place::new();
    let journal = place.open();
    let blob = Blob::new(BlobKind::Facts, b"same".to_vec());
    journal
        .append(with(vec![blob.clone(), blob.clone()]))
        .await
        .unwrap();
    journal.append(with(vec![blob.clone()])).await.unwrap();
    let count: i64 = place
        .shell()
        .query_row("SELECT count(*) FROM blobs", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 1);
    assert!(journal.blob(&blob.commitment()).unwrap() == Some(blob));
}

#[tokio::test]
async fn a_blob_that_was_changed_is_not_handed_out() {
    let place = Place::new();
    let journal = place.open();
    let blob = Blob::new(BlobKind::Output, b"honest".to_vec());
    journal.append(with(vec![blob.clone()])).await.unwrap();
    let shell = place.shell();
    for attempt in [
        "UPDATE blobs SET sealed = CAST('forged' AS BLOB)",
        "UPDATE blobs SET sealed = NULL, kind = 'facts'",
        "DELETE FROM blobs",
    ] {
        shell.execute_batch(attempt).unwrap_err();
    }
    shell
        .execute_batch(
            "DROP TRIGGER blobs_are_never_changed;
             UPDATE blobs SET sealed = CAST('forged' AS BLOB)",
        )
        .unwrap();
    let outcome = journal.blob(&blob.commitment());
    assert!(matches!(outcome, Err(JournalError::Corrupt { .. })));
}

/// Whether these bytes stand in any of a journal's files.
pub(crate) fn found(place: &Place, what: &[u8]) -> bool {
    let mut files = std::fs::read_dir(place.folder()).unwrap();
    files.any(|file| {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        bytes.windows(what.len()).any(|window| window == what)
    })
}

#[tokio::test]
async fn no_file_shows_a_content_or_its_salt() {
    let place = Place::new();
    let journal = place.open();
    let (small, large) = (
        Blob::new(BlobKind::Arguments, b"the sword is in the stone".to_vec()),
        Blob::new(
            BlobKind::Output,
            b"the sword is in the lake. ".repeat(9_000),
        ),
    );
    let blobs = vec![small.clone(), large.clone()];
    journal.append(with(blobs)).await.unwrap();
    let started = Entry::DaemonStarted {
        version: "in the clear".to_owned(),
        blob_key: None,
    };
    journal
        .append_if(Stream::Daemon, Expected::Any, vec![started])
        .await
        .unwrap();
    for open in [true, false] {
        assert!(found(&place, b"in the clear"), "control, open: {open}");
        assert!(found(&place, small.commitment().0.as_bytes()), "control");
        assert!(!found(&place, b"the sword is in"), "open: {open}");
        assert!(!found(&place, &small.salt) && !found(&place, &large.salt));
        if open {
            drop(journal.clone());
        }
    }
    drop(journal);
    assert!(found(&place, b"in the clear"), "control, closed");
    assert!(!found(&place, b"the sword is in") && !found(&place, &small.salt));
}

/// A file of the version before: what lay in it in the clear is gone once it was opened.
#[tokio::test]
async fn blobs_of_the_version_before_are_sealed_when_the_file_is_opened() {
    let place = Place::new();
    drop(place.open());
    let mut blobs: Vec<Blob> = (0..40)
        .map(|number: usize| {
            let bytes = format!("plain as day {number} ").repeat(1 + number * 40);
            Blob::new(BlobKind::Output, bytes.into_bytes())
        })
        .collect();
    blobs.push(Blob::new(BlobKind::Facts, Vec::new()));
    unseal(&place, &blobs);
    assert!(found(&place, b"plain as day"), "control");
    let journal = place.open();
    for blob in &blobs {
        assert!(journal.blob(&blob.commitment()).unwrap().as_ref() == Some(blob));
    }
    assert!(!found(&place, b"plain as day"), "while it is open");
    drop(journal);
    assert!(!found(&place, b"plain as day"), "once it is closed");
    let trust = Trust::nobody().opening(blob_key());
    let report = verify(&place.file(), &trust).unwrap();
    assert_eq!((report.fault_count, report.blobs), (0, Some(41)));
    // Without the key it can be seen only that they are there.
    let report = verify(&place.file(), &Trust::nobody()).unwrap();
    let counted = (report.fault_count, report.blobs, report.blobs_unopened);
    assert_eq!(counted, (0, Some(0), Some(41)));
}

#[tokio::test]
async fn another_key_opens_nothing_and_the_journal_goes_on() {
    let place = Place::new();
    let journal = place.open();
    let before = Blob::new(BlobKind::Output, b"before".to_vec());
    journal.append(with(vec![before.clone()])).await.unwrap();
    drop(journal);
    let keys = keys().sealing_with(BlobKey::from_bytes(&[9; 32]));
    let journal = JournalStore::open(&place.file(), Vec::new(), clock(), keys).unwrap();
    assert!(journal.kept(&before.commitment()).unwrap() == Kept::Unreadable);
    let refused = journal.blob(&before.commitment()).err().unwrap();
    assert!(
        refused.to_string().contains("the key is another"),
        "{refused}"
    );
    let after = Blob::new(BlobKind::Output, b"after".to_vec());
    journal.append(with(vec![after.clone()])).await.unwrap();
    assert!(journal.blob(&after.commitment()).unwrap() == Some(after));
}

/// `blobs.key` is lost, and the daemon goes on with another: what the old one sealed is counted apart,
/// and what was changed is still found by whoever has the key.
#[tokio::test]
async fn a_lost_blob_key_is_told_from_a_changed_blob() {
    let place = Place::new();
    let key = |byte| BlobKey::from_bytes(&[byte; 32]);
    let mut sealed_by = Vec::new();
    for byte in [1, 2] {
        let keys = keys().sealing_with(key(byte));
        let journal = JournalStore::open(&place.file(), Vec::new(), clock(), keys).unwrap();
        let started = Entry::DaemonStarted {
            version: "x".to_owned(),
            blob_key: Some(journal.blob_key().unwrap()),
        };
        journal
            .append_if(Stream::Daemon, Expected::Any, vec![started])
            .await
            .unwrap();
        executed(&journal, false).await;
        let all: i64 = place
            .shell()
            .query_row("SELECT count(*) FROM blobs", [], |row| row.get(0))
            .unwrap();
        sealed_by.push(all - sealed_by.iter().sum::<i64>());
    }
    let [by_first, by_second] = *sealed_by.as_slice() else {
        panic!("{sealed_by:?}");
    };
    let seen = |byte| {
        let report = verify(&place.file(), &Trust::nobody().opening(key(byte))).unwrap();
        let counted = [report.blobs, report.blobs_of_another_key];
        let [whole, other] = counted.map(|count| count.unwrap().cast_signed());
        (report.fault_count, (whole, other))
    };
    assert_eq!(seen(1), (0, (by_first, by_second)));
    assert_eq!(seen(2), (0, (by_second, by_first)));
    assert_eq!(seen(3), (0, (0, by_first + by_second)), "neither of them");
    // Changed ones are faults to whoever has their key, and to nobody else.
    for (blob, faults) in [(1, [1, 0]), (by_first + 1, [1, 1])] {
        let change = "UPDATE blobs SET sealed = zeroblob(length(sealed)) WHERE id = ?1";
        editor(&place.file()).execute(change, [blob]).unwrap();
        assert_eq!([seen(1).0, seen(2).0], faults, "blob {blob}");
    }
}

/// A call that ran, with everything it commits to.
pub(crate) async fn recorded(journal: &JournalStore, secret: &str) -> (CallId, Vec<ErasedBlob>) {
    let id = call();
    let blobs: Vec<Blob> = [BlobKind::Arguments, BlobKind::Output]
        .into_iter()
        .map(|kind| Blob::new(kind, secret.repeat(700).into_bytes()))
        .collect();
    let named = blobs.iter().map(|blob| ErasedBlob {
        kind: blob.kind,
        commitment: blob.commitment(),
    });
    let named = named.collect();
    let streams = vec![to(
        Stream::Call(id.clone()),
        Expected::NoStream,
        vec![started("x")],
    )];
    journal.append(Append { streams, blobs }).await.unwrap();
    (id, named)
}

/// The sealed bytes of every blob, as they lie in the file.
pub(crate) fn sealed(place: &Place) -> Vec<Vec<u8>> {
    let shell = place.shell();
    let mut statement = shell
        .prepare("SELECT sealed FROM blobs WHERE sealed IS NOT NULL ORDER BY id")
        .unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_erased_is_gone_from_every_file_and_every_proof_holds() {
    let place = Place::new();
    let journal = place.open();
    let (id, mut blobs) = recorded(&journal, "oops").await;
    let (_, others) = recorded(&journal, "fine").await;
    let ciphers = sealed(&place);
    let [arguments, output, kept, _] = ciphers.as_slice() else {
        panic!("{}", ciphers.len());
    };
    // From the middle: large ones go over pages of their own.
    let trace = |bytes: &[u8]| bytes[1_000..1_064].to_vec();
    for bytes in [arguments, output, kept] {
        assert!(found(&place, &trace(bytes)), "control");
    }
    let output_named = blobs.pop().unwrap();
    let erase = |revision, blobs| Erasure {
        call: id.clone(),
        revision,
        blobs,
        by: "owner".parse().unwrap(),
        reason: Some("a password".to_owned()),
    };
    let conflict = journal.erase(erase(7, blobs.clone())).await.unwrap_err();
    assert!(matches!(conflict, JournalError::Conflict { .. }));
    assert!(found(&place, &trace(arguments)), "refused is not erased");
    let erased = journal.erase(erase(1, blobs.clone())).await.unwrap();
    assert_eq!((erased.seq, erased.log_cleared), (3, true));
    assert!(!found(&place, &trace(arguments)));
    assert!(found(&place, &trace(output)) && found(&place, &trace(kept)));
    assert!(journal.kept(&blobs[0].commitment).unwrap() == Kept::Erased);
    assert!(journal.blob(&blobs[0].commitment).unwrap().is_none());
    assert!(journal.blob(&output_named.commitment).unwrap().is_some());
    // A reader in the middle of the log: it is cut once they are gone.
    let reader = place.shell();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM entries")
        .unwrap();
    let erased = journal.erase(erase(2, vec![output_named])).await.unwrap();
    assert!(!erased.log_cleared);
    reader.execute_batch("COMMIT").unwrap();
    journal.append(with(Vec::new())).await.unwrap();
    drop(journal);
    assert!(!found(&place, &trace(output)) && found(&place, &trace(kept)));
    let trust = Trust::nobody().opening(blob_key());
    let report = verify(&place.file(), &trust).unwrap();
    assert_eq!(report.fault_count, 0, "{report:?}");
    assert_eq!((report.blobs, report.blobs_erased), (Some(2), Some(2)));
    // Put back what an entry says was erased, or erase without an entry: both are seen.
    for (attack, words) in [
        (
            "UPDATE blobs SET sealed = zeroblob(9) WHERE id = 1",
            "says that it was erased",
        ),
        (
            "UPDATE blobs SET sealed = NULL WHERE id = 3",
            "no entry says so",
        ),
    ] {
        let shell = place.shell();
        let config = rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER;
        shell.set_db_config(config, false).unwrap();
        shell.execute_batch(attack).unwrap();
        drop(shell);
        let report = verify(&place.file(), &trust).unwrap();
        assert!(
            report.faults.iter().any(|fault| fault.what.contains(words)),
            "{report:?}"
        );
    }
    drop(others);
}

/// The daemon dies right after an erasure: the next one finishes it.
#[tokio::test]
async fn an_erasure_that_was_cut_short_is_finished_at_the_next_start() {
    let place = Place::new();
    let journal = place.open();
    let (_, blobs) = recorded(&journal, "oops").await;
    let bytes = sealed(&place)[0][1_000..1_064].to_vec();
    let shell = place.shell();
    shell
        .execute_batch("PRAGMA secure_delete = ON; UPDATE blobs SET sealed = NULL WHERE id = 1")
        .unwrap();
    // Copied as a crash leaves it: the log still holds what was erased.
    let after = Place::new();
    for file in ["journal.db", "journal.db-wal"] {
        std::fs::copy(place.folder().join(file), after.folder().join(file)).unwrap();
    }
    assert!(found(&after, &bytes), "control");
    let again = after.open();
    assert!(again.kept(&blobs[0].commitment).unwrap() == Kept::Erased);
    assert!(!found(&after, &bytes));
}
