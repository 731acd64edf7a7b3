//! Tests of a disk that refuses for a while: nothing is told to be durable that is not, reading goes
//! on, and once the cause is gone the journal takes entries again by itself.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use palyra_core::corridor::{Admits as _, Intent};
use palyra_core::entry::{Answer, Stream};
use palyra_core::{
    Blob, BlobKind, CallId, Denial, DenialCode, Digest, DigestKey, PlanDigest, SystemClock,
    Timestamp,
};

use crate::failing::{batch, open};
use crate::faults::{Code, Fault, On, Part, Watch};
use crate::verify::{Trust, Verdict, verify};
use crate::{CallRecorder, Expected, JournalError, JournalState, JournalStore};

/// Something goes wrong until it is healed.
const fn always(on: On, part: Part, skip: u32, code: Code) -> Fault {
    Fault {
        on,
        part,
        skip,
        times: u32::MAX,
        code,
        forgets: false,
    }
}

fn call() -> Stream {
    Stream::Call(CallId::mint(Timestamp::from_millis(0)))
}

/// Waits until the journal takes entries, without appending any.
async fn until_writable(journal: &JournalStore) {
    for _ in 0..2_000 {
        if journal.state() == JournalState::Writable {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it does not recover by itself: {:?}", journal.state());
}

fn verified(folder: &tempfile::TempDir, journal: &JournalStore) {
    let trust = Trust::nobody().key(journal.key().unwrap());
    let trust = trust.pinned(journal.checkpoint().unwrap()).unwrap();
    let report = verify(&folder.path().join("journal.db"), &trust).unwrap();
    assert_eq!(report.verdict(), Verdict::Verified, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_disk_refuses_nothing_is_lost_and_it_resumes_by_itself() {
    use {Code::*, On::*};
    for (on, part, code, why) in [
        (Write, Part::Log, Eio, "disk failed"),
        (Write, Part::Log, Erofs, "disk failed"),
        (Write, Part::Log, Enospc, "no space left"),
        (Sync, Part::Log, Eio, "may have lost"),
        (Sync, Part::Log, Enospc, "may have lost"),
        (Sync, Part::Main, Eio, "may have lost"),
    ] {
        for skip in [0, 7] {
            let folder = tempfile::tempdir().unwrap();
            let watch = Watch::begin(folder.path());
            let journal = open(&folder);
            let stream = call();
            let append = |revision| batch(&stream, Expected::Revision(revision), 5_000);
            journal.append(append(0)).await.unwrap();
            watch.fail(always(on, part, skip, code));
            let told = format!("{on:?} {part:?} {code:?} {skip}");
            let mut durable = 1;
            let error = loop {
                match journal.append(append(durable)).await {
                    Ok(_) => durable += 1,
                    Err(error) => break error,
                }
                assert!(durable < 2_000, "{told}: nothing went wrong");
            };
            assert!(error.to_string().contains(why), "{told}: {error}");
            let JournalState::Unwritable { why, next_step } = journal.state() else {
                panic!("{told}: it does not show");
            };
            assert_eq!(
                (why, next_step.as_str()),
                (error.to_string(), error.remedy())
            );
            for _ in 0..3 {
                let more = journal.append(append(durable)).await;
                assert!(more.is_err(), "{told}: {more:?}");
                assert_eq!(journal.read(0, usize::MAX).unwrap().len() as u64, durable);
                assert_eq!(journal.head(), durable, "{told}");
            }
            watch.heal();
            until_writable(&journal).await;
            // The appender was told no, and no it is: the same append goes through. Unless it was
            // being folded back when that failed: then it may be in the file already and stays.
            let folded = (on, part) == (Sync, Part::Main);
            match journal.append(append(durable)).await {
                Ok(_) => {}
                Err(JournalError::Conflict { found, .. }) if folded && found == durable + 1 => {}
                Err(error) => panic!("{told}: {error}"),
            }
            let entries = journal.read_stream(&stream).unwrap();
            assert_eq!(entries.len() as u64, durable + 1, "{told}");
            let row = journal.row("counts", &stream.to_string()).unwrap();
            assert_eq!(row.unwrap().value.len() as u64, durable + 1, "{told}");
            verified(&folder, &journal);
            drop(journal);
            assert_eq!(open(&folder).head(), durable + 1, "{told}");
        }
    }
}

/// The file cannot take what is in the log: that is no reason to stop, the log only gets longer.
#[tokio::test]
async fn a_log_that_cannot_be_folded_back_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::begin(folder.path());
    let journal = open(&folder);
    watch.fail(always(On::Write, Part::Main, 3, Code::Eio));
    for _ in 0..150 {
        let append = batch(&Stream::Daemon, Expected::Any, 5_000);
        journal.append(append).await.unwrap();
    }
    watch.heal();
    for _ in 0..50 {
        let append = batch(&Stream::Daemon, Expected::Any, 5_000);
        journal.append(append).await.unwrap();
    }
    verified(&folder, &journal);
}

#[tokio::test]
async fn an_admission_that_was_not_synced_never_was_and_the_call_can_be_closed() {
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::begin(folder.path());
    let journal = open(&folder);
    let append = batch(&Stream::Daemon, Expected::Any, 8);
    journal.append(append).await.unwrap();
    let call = CallId::mint(Timestamp::from_millis(0));
    let digest = DigestKey::from_bytes([1; 32]).call_digest(&[]);
    let plan = DigestKey::from_bytes([1; 32]).plan_seal(&call, &PlanDigest(Digest::of(b"plan")));
    let mut recorder = CallRecorder::new(journal.clone(), call.clone(), Arc::new(SystemClock));
    let facts = Blob::new(BlobKind::Facts, vec![1; 100]);
    recorder.decided(Answer::Permit, Vec::new(), "v1".to_owned(), digest, facts);
    watch.fail(always(On::Sync, Part::Log, 0, Code::Eio));
    let intent = Intent {
        call: &call,
        digest: &digest,
        plan: &plan,
        grant: None,
    };
    let denial = recorder.admit(intent).await.unwrap_err();
    assert_eq!(denial.code, DenialCode::JournalUnavailable);
    assert!(denial.reason.contains("may have lost"), "{denial:?}");
    assert!(denial.next_step.contains("palyra status"), "{denial:?}");
    watch.heal();
    until_writable(&journal).await;
    assert!(journal.unattested().unwrap().is_empty());
    let denial = Denial::new(
        DenialCode::JournalUnavailable,
        "it was not admitted",
        "again",
    );
    recorder.close(denial).await.unwrap();
    let entries = journal.read_stream(&Stream::Call(call)).unwrap();
    let kinds: Vec<_> = entries.iter().map(|it| it.entry.kind()).collect();
    assert_eq!(kinds, ["decided", "closed"]);
}

#[tokio::test]
async fn a_page_that_reads_as_nonsense_stops_it_until_it_reads_as_it_should() {
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::begin(folder.path());
    let journal = open(&folder);
    for _ in 0..60 {
        let append = batch(&call(), Expected::NoStream, 3_000);
        journal.append(append).await.unwrap();
    }
    let before = journal.read(0, usize::MAX).unwrap();
    drop(journal);
    // All of it is in the file now, and the writer remembers no page of it.
    let journal = open(&folder);
    journal.shared().forgetful.store(true, Ordering::SeqCst);
    watch.garble(true);
    let error = loop {
        let append = batch(&call(), Expected::NoStream, 3_000);
        if let Err(error) = journal.append(append).await {
            break error;
        }
    };
    assert!(matches!(error, JournalError::Corrupt { .. }), "{error:?}");
    assert!(
        matches!(journal.state(), JournalState::Unwritable { why, .. } if why.contains("damaged"))
    );
    let durable = journal.head();
    watch.heal();
    until_writable(&journal).await;
    journal
        .append(batch(&call(), Expected::NoStream, 1))
        .await
        .unwrap();
    assert_eq!(journal.head(), durable + 1);
    let after = journal.read(0, usize::MAX).unwrap();
    assert_eq!(after[..before.len()], before);
    verified(&folder, &journal);
}

/// A log that somebody else reads is not cut under their feet; once they are gone it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_not_mended_while_another_process_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::begin(folder.path());
    let journal = open(&folder);
    let append = || batch(&Stream::Daemon, Expected::Any, 8);
    journal.append(append()).await.unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "another process is what this is about"
    )]
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "recovering::another_process", "--nocapture"])
        .env("PALYRA_READS", folder.path().join("journal.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(other.stdout.take().unwrap()).lines();
    assert!(told.any(|line| line.unwrap().contains("reads 1")));
    watch.fail(Fault {
        times: 1,
        ..always(On::Sync, Part::Log, 0, Code::Eio)
    });
    let error = journal.append(append()).await.unwrap_err();
    assert!(matches!(error, JournalError::Unsynced(_)), "{error:?}");
    let held = |state| matches!(state, JournalState::Unwritable { why, .. } if why.contains("another process"));
    while !held(journal.state()) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(journal.append(append()).await.is_err());
    assert_eq!(
        journal.read(0, usize::MAX).unwrap().len(),
        1,
        "reading goes on"
    );
    other.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(other.wait().unwrap().success());
    until_writable(&journal).await;
    journal.append(append()).await.unwrap();
    assert_eq!(journal.head(), 2);
    verified(&folder, &journal);
}

/// Not a test of its own: what another process does.
#[test]
fn another_process() {
    let Some(file) = std::env::var_os("PALYRA_READS") else {
        return;
    };
    let connection = rusqlite::Connection::open(file).unwrap();
    let count: i64 = connection
        .query_row("SELECT count(*) FROM entries", [], |row| row.get(0))
        .unwrap();
    println!("reads {count}");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// A group that wrote nothing is synced before the one it follows, and that one is acknowledged
/// later. When the log is cut after a failed sync, it stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_was_acknowledged_after_it_was_overtaken_is_not_cut() {
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::begin(folder.path());
    let journal = open(&folder);
    let append = |stream: &Stream, expected| {
        let (journal, batch) = (journal.clone(), batch(stream, expected, 8));
        tokio::spawn(async move { journal.append(batch).await })
    };
    append(&Stream::Daemon, Expected::NoStream)
        .await
        .unwrap()
        .unwrap();
    let (has_begun, go_on) = watch.stall_next_sync();
    let slow = append(&Stream::Agents, Expected::NoStream);
    tokio::task::spawn_blocking(move || has_begun.recv().unwrap())
        .await
        .unwrap();
    let nothing = append(&Stream::Daemon, Expected::NoStream).await.unwrap();
    assert!(matches!(nothing, Err(JournalError::Conflict { .. })));
    assert!(!slow.is_finished(), "control: it was overtaken");
    go_on.send(()).unwrap();
    assert_eq!(slow.await.unwrap().unwrap().last_seq, 2);
    watch.fail(Fault {
        times: 1,
        ..always(On::Sync, Part::Log, 0, Code::Eio)
    });
    let lost = append(&Stream::Policy, Expected::NoStream).await.unwrap();
    assert!(matches!(lost, Err(JournalError::Unsynced(_))), "{lost:?}");
    until_writable(&journal).await;
    assert_eq!(journal.head(), 2);
    assert_eq!(journal.read_stream(&Stream::Agents).unwrap().len(), 1);
    assert!(journal.read_stream(&Stream::Policy).unwrap().is_empty());
    let again = append(&Stream::Policy, Expected::NoStream).await.unwrap();
    assert_eq!(again.unwrap().last_seq, 3);
    verified(&folder, &journal);
}

/// Somebody takes an export and stops reading: the journal is mended all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_that_nobody_reads_holds_up_no_mending() {
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::begin(folder.path());
    let journal = open(&folder);
    let append = || batch(&Stream::Daemon, Expected::Any, 8);
    journal.append(append()).await.unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    // More than the pipe takes, so that it stalls.
    for _ in 0..300 {
        let many = crate::StreamAppend {
            stream: call(),
            expected: Expected::NoStream,
            entries: vec![palyra_core::entry::Entry::Interrupted; 5],
        };
        journal.append(many.into()).await.unwrap();
    }
    let exporting = journal.clone();
    let mut writer = writer;
    let export = tokio::task::spawn_blocking(move || exporting.export(0, &mut writer).unwrap());
    reader.read_exact(&mut [0]).unwrap();
    watch.fail(Fault {
        times: 1,
        ..always(On::Sync, Part::Log, 0, Code::Eio)
    });
    journal.append(append()).await.unwrap_err();
    until_writable(&journal).await;
    assert!(!export.is_finished(), "control: it stalls");
    let rest =
        tokio::task::spawn_blocking(move || std::io::copy(&mut reader, &mut std::io::sink()));
    assert_eq!(export.await.unwrap(), 1_501);
    rest.await.unwrap().unwrap();
}

/// What a daemon before this one could not sync is written anew before anything follows it.
#[tokio::test]
async fn what_was_left_in_the_log_is_synced_before_it_is_believed() {
    use crate::faults::{Image, Kept};
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::begin(folder.path());
    let journal = open(&folder);
    journal
        .append(batch(&Stream::Daemon, Expected::Any, 8))
        .await
        .unwrap();
    watch.fail(always(On::Sync, Part::Log, 0, Code::Eio));
    let lost = journal
        .append(batch(&Stream::Agents, Expected::Any, 8))
        .await;
    assert!(matches!(lost, Err(JournalError::Unsynced(_))));
    drop(journal);
    watch.heal();
    // The kernel still shows all of it; the next daemon finds a whole group and goes on after it.
    let journal = open(&folder);
    let found = journal.head();
    journal
        .append(batch(&Stream::Daemon, Expected::Any, 8))
        .await
        .unwrap();
    let held = Image::after(&watch.ops()).survives(Kept::Synced, &mut 1);
    let after = tempfile::tempdir().unwrap();
    for (part, bytes) in held {
        std::fs::write(after.path().join(part.file_name()), bytes).unwrap();
    }
    assert_eq!(open(&after).head(), found + 1);
}
