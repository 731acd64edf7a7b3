//! Whoever reads for long holds up nobody who erases, and what is said to be gone is.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use palyra_core::CallId;
use palyra_core::entry::{ErasedBlob, Stream};
use palyra_journal::verify::{Trust, Verdict, verify_segment};
use palyra_journal::{Erasure, Expected, JournalStore};

use crate::blobs::{found, recorded, sealed};
use crate::support::{Place, call, started};

/// Somebody who takes an export and stops reading after the first bytes.
struct Stalled {
    has: Vec<u8>,
    begun: SyncSender<()>,
    go_on: Receiver<()>,
}

impl Write for Stalled {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.has.is_empty() {
            self.begun.send(()).unwrap();
            self.go_on.recv().unwrap();
        }
        self.has.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn erasure(call: CallId, blobs: Vec<ErasedBlob>) -> Erasure {
    Erasure {
        call,
        revision: 1,
        blobs,
        by: "owner".parse().unwrap(),
        reason: None,
    }
}

/// From the middle: large blobs go over pages of their own.
fn trace(place: &Place) -> Vec<u8> {
    let first = sealed(place).swap_remove(0);
    first.get(1_000..1_064).unwrap().to_vec()
}

async fn until_clean(journal: &JournalStore) {
    for _ in 0..1_500 {
        if journal.log_is_clean() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(journal.log_is_clean(), "the log is never cut");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_that_nobody_reads_holds_up_no_erasure() {
    let place = Place::new();
    let journal = place.open();
    let (id, blobs) = recorded(&journal, "oops").await;
    let bytes = trace(&place);
    assert!(found(&place, &bytes), "control");
    let (begun, has_begun) = sync_channel(1);
    let (go_on, waiting) = sync_channel(1);
    let exporting = journal.clone();
    let export = tokio::task::spawn_blocking(move || {
        let mut out = Stalled {
            has: Vec::new(),
            begun,
            go_on: waiting,
        };
        let last = exporting.export(0, &mut out).unwrap();
        (last, out.has)
    });
    tokio::task::spawn_blocking(move || has_begun.recv().unwrap())
        .await
        .unwrap();
    let erased = journal.erase(erasure(id, blobs)).await.unwrap();
    assert!(erased.log_cleared);
    assert!(!found(&place, &bytes));
    go_on.send(()).unwrap();
    let (last, lines) = export.await.unwrap();
    // What was appended after it began is not in it, and what is in it is whole.
    assert_eq!(last, 1);
    let trust = Trust::nobody().key(journal.key().unwrap());
    let report = verify_segment(lines.as_slice(), &trust).unwrap();
    assert_eq!((report.verdict(), report.last), (Verdict::Verified, 1));
}

/// Many pages, of small groups and of one that is longer than a page.
#[tokio::test]
async fn an_export_of_many_pages_is_whole_from_wherever_it_begins() {
    let place = Place::new();
    let journal = place.open();
    for entries in [1, 3, 4_000, 1, 2, 2_500, 1] {
        let entries = vec![started("a".repeat(100)); entries];
        let stream = Stream::Call(call());
        journal
            .append_if(stream, Expected::NoStream, entries)
            .await
            .unwrap();
    }
    let trust = Trust::nobody().key(journal.key().unwrap());
    for after in [0, 1, 2, 4, 1_000, 4_004, 4_007, 6_506, 6_508] {
        let mut lines = Vec::new();
        assert_eq!(journal.export(after, &mut lines).unwrap(), 6_508);
        let report = verify_segment(lines.as_slice(), &trust).unwrap();
        assert_eq!(report.verdict(), Verdict::Verified, "{after}: {report:?}");
        assert_eq!((report.after, report.last), (after, 6_508));
    }
}

/// Somebody reads for longer than an erasure waits: it is not said to be done, and is done by
/// itself once they are gone, without an append.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_erased_leaves_the_log_by_itself_once_a_reader_is_gone() {
    let place = Place::new();
    let journal = place.open();
    let (id, blobs) = recorded(&journal, "oops").await;
    let bytes = trace(&place);
    let reader = place.shell();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM entries")
        .unwrap();
    let erased = journal.erase(erasure(id, blobs)).await.unwrap();
    assert!(!erased.log_cleared && !journal.log_is_clean());
    assert!(found(&place, &bytes), "control: it is still there");
    // Others append meanwhile, and do not wait for the reader.
    for _ in 0..20 {
        journal
            .append_if(Stream::Daemon, Expected::Any, vec![started("x")])
            .await
            .unwrap();
    }
    reader.execute_batch("COMMIT").unwrap();
    until_clean(&journal).await;
    assert!(!found(&place, &bytes));
}

/// A daemon is killed in the middle of a backup: what it had copied goes at the next start, and
/// with the next backup.
#[tokio::test]
async fn a_copy_that_was_cut_short_does_not_outlive_the_next_start_or_backup() {
    let place = Place::new();
    drop(place.open());
    let left = [
        "copying",
        "copying-journal",
        "copying-wal",
        "copying-shm",
        "restoring",
    ]
    .map(|name| place.folder().join(format!("journal.db.{name}")));
    let leave = || {
        for file in &left {
            std::fs::write(file, b"all that there was").unwrap();
        }
        assert!(found(&place, b"all that there was"), "control");
    };
    leave();
    let journal = place.open();
    assert!(left.iter().all(|file| !file.exists()));
    leave();
    journal.backup().unwrap();
    assert!(left.iter().all(|file| !file.exists()));
    assert!(!found(&place, b"all that there was"));
}
