//! Tests of the writer when the disk refuses: what was told to appenders is what is on disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use palyra_core::corridor::{Admits as _, Intent};
use palyra_core::entry::{Answer, Entry, Fold, Recorded, Row, Stream};
use palyra_core::{
    Blob, BlobKind, CallId, DenialCode, Digest, DigestKey, PlanDigest, SystemClock, Timestamp,
};

use crate::{
    Append, CallRecorder, Expected, JournalError, JournalKeys, JournalState, JournalStore,
    StreamAppend,
};

/// The number of entries in each stream.
pub(crate) struct Counting;

impl Fold for Counting {
    fn name(&self) -> &'static str {
        "counts"
    }

    fn key(&self, recorded: &Recorded) -> Option<String> {
        Some(recorded.stream.clone())
    }

    fn fold(&self, before: Option<&[u8]>, recorded: &Recorded) -> Option<Row> {
        let mut value = before.unwrap_or_default().to_vec();
        value.push(b'I');
        Some(Row {
            key: recorded.stream.clone(),
            state: "counted".to_owned(),
            value,
        })
    }
}

pub(crate) fn open(folder: &tempfile::TempDir) -> JournalStore {
    let file = folder.path().join("journal.db");
    JournalStore::open(
        &file,
        vec![Box::new(Counting)],
        Arc::new(SystemClock),
        keys(),
    )
    .unwrap()
}

/// The same each time, so that a file can be opened again.
pub(crate) fn keys() -> JournalKeys {
    let secret = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
    JournalKeys::from_text(secret, crate::BlobKey::from_bytes(&[7; 32])).unwrap()
}

fn started() -> Entry {
    Entry::DaemonStarted {
        version: "x".to_owned(),
        blob_key: None,
    }
}

/// One entry, with a blob of this size.
pub(crate) fn batch(stream: &Stream, expected: Expected, bytes: usize) -> Append {
    Append {
        streams: vec![StreamAppend {
            stream: stream.clone(),
            expected,
            entries: vec![started()],
        }],
        blobs: vec![Blob::new(BlobKind::Output, vec![1; bytes])],
    }
}

#[tokio::test]
async fn a_file_that_may_not_grow_is_full_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(&folder);
    let stream = Stream::Daemon;
    let small = |revision| journal.append(batch(&stream, Expected::Revision(revision), 8));
    small(0).await.unwrap();
    journal.shared().cap(1);
    for _ in 0..3 {
        let big = batch(&stream, Expected::Revision(1), 100_000);
        let error = journal.append(big).await.unwrap_err();
        assert!(matches!(error, JournalError::Full(_)), "{error:?}");
        assert!(
            matches!(journal.state(), JournalState::Unwritable { why, .. } if why.contains("space"))
        );
        assert_eq!(journal.head(), 1);
        assert_eq!(journal.read_stream(&stream).unwrap().len(), 1);
    }
    journal.shared().cap(0);
    assert_eq!(small(1).await.unwrap().last_seq, 2);
    assert_eq!(journal.state(), JournalState::Writable);
    let row = journal.row("counts", "daemon").unwrap().unwrap();
    assert_eq!(
        row.value, b"II",
        "what failed left nothing in memory either"
    );
}

/// A sync that failed is never taken back by one that goes through: the kernel forgets what it
/// lost. What it was about is cut off the log, and then the journal goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_failed_is_not_believed_when_it_goes_through_later() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(&folder);
    let append = |journal: &JournalStore, name: Stream| {
        let (journal, batch) = (journal.clone(), batch(&name, Expected::Any, 8));
        async move { journal.append(batch).await }
    };
    append(&journal, Stream::Daemon).await.unwrap();
    journal.shared().refuse_sync(true);
    let many: Vec<_> = (0..40)
        .map(|_| tokio::spawn(append(&journal, Stream::Agents)))
        .collect();
    for one in many {
        let error = one.await.unwrap().unwrap_err();
        assert!(matches!(error, JournalError::Unsynced(_)), "{error:?}");
    }
    assert!(matches!(journal.state(), JournalState::Unwritable { .. }));
    assert_eq!(journal.head(), 1);
    assert_eq!(journal.read(0, usize::MAX).unwrap().len(), 1);
    journal.shared().refuse_sync(false);
    while journal.state() != JournalState::Writable {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(journal.read_stream(&Stream::Agents).unwrap().is_empty());
    append(&journal, Stream::Agents).await.unwrap();
    assert_eq!(journal.head(), 2);
    drop(journal);
    assert_eq!(open(&folder).head(), 2);
}

/// Appends to a stream of its own for as long as `go_on` says; gives the stream and how far it
/// was told to be.
async fn append_while(
    journal: JournalStore,
    mut go_on: impl FnMut(&JournalStore, bool) -> bool,
) -> (Stream, u64) {
    let stream = Stream::Call(CallId::mint(Timestamp::from_millis(0)));
    let mut revision = 0;
    loop {
        let expected = Expected::Revision(revision);
        let outcome = journal.append(batch(&stream, expected, 10_000)).await;
        let went_through = match outcome {
            Ok(appended) => {
                revision += 1;
                assert_eq!(appended.revisions, [revision]);
                true
            }
            Err(JournalError::Full(_)) => false,
            Err(error) => panic!("{error:?}"),
        };
        if !go_on(&journal, went_through) {
            return (stream, revision);
        }
    }
}

/// The disk fills up and is freed while many append: whole groups fail with all that is in them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_fail_leave_memory_as_the_disk_is() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(&folder);
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let stop = Arc::clone(&stop);
        let go_on = move |_: &JournalStore, _| !stop.load(Ordering::SeqCst);
        tasks.spawn(append_while(journal.clone(), go_on));
    }
    // This one turns the cap each time it saw the effect: 15 times full, 15 times free again.
    let mut turns = 0;
    tasks.spawn(append_while(
        journal.clone(),
        move |journal, went_through| {
            let capped = turns % 2 == 1;
            if went_through != capped {
                turns += 1;
                journal.shared().cap(turns % 2);
            }
            stop.store(turns > 30, Ordering::SeqCst);
            turns <= 30
        },
    ));
    let mut acknowledged = 0;
    while let Some(done) = tasks.join_next().await {
        let (stream, revision) = done.unwrap();
        acknowledged += revision;
        let entries = journal.read_stream(&stream).unwrap();
        assert_eq!(entries.len() as u64, revision);
        let row = journal.row("counts", &stream.to_string()).unwrap();
        assert_eq!(row.map_or(0, |row| row.value.len()) as u64, revision);
    }
    assert_eq!(journal.head(), acknowledged);
    let entries = journal.read(0, usize::MAX).unwrap();
    let places: Vec<u64> = entries.iter().map(|recorded| recorded.seq).collect();
    assert_eq!(places, (1..=acknowledged).collect::<Vec<_>>());
    drop(journal);
    assert_eq!(open(&folder).head(), acknowledged, "and the tree fits");
}

#[tokio::test]
async fn a_call_is_not_admitted_on_a_full_disk_and_is_once_there_is_space() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(&folder);
    let call = CallId::mint(Timestamp::from_millis(0));
    let digest = DigestKey::from_bytes([1; 32]).call_digest(&[]);
    let plan = DigestKey::from_bytes([1; 32]).plan_seal(&call, &PlanDigest(Digest::of(b"plan")));
    let mut recorder = CallRecorder::new(journal.clone(), call.clone(), Arc::new(SystemClock));
    let facts = Blob::new(BlobKind::Facts, vec![1; 100_000]);
    recorder.decided(Answer::Permit, Vec::new(), "v1".to_owned(), digest, facts);
    let intent = || Intent {
        call: &call,
        digest: &digest,
        plan: &plan,
        grant: None,
    };
    journal.shared().cap(1);
    let denial = recorder.admit(intent()).await.unwrap_err();
    assert_eq!(denial.code, DenialCode::JournalUnavailable);
    assert!(denial.reason.contains("no space left"), "{denial:?}");
    assert!(denial.next_step.contains("free disk space"), "{denial:?}");
    assert!(denial.next_step.contains("palyra status"), "{denial:?}");
    assert!(journal.unattested().unwrap().is_empty());
    journal.shared().cap(0);
    recorder.admit(intent()).await.unwrap();
    let entries = journal.read_stream(&Stream::Call(call.clone())).unwrap();
    let kinds: Vec<_> = entries
        .iter()
        .map(|recorded| recorded.entry.kind())
        .collect();
    assert_eq!(kinds, ["decided", "admitted"], "what was buffered was kept");
}

/// A fold with a bug.
struct Panicking;

impl Fold for Panicking {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn key(&self, _: &Recorded) -> Option<String> {
        panic!("a bug in a fold");
    }

    fn fold(&self, _: Option<&[u8]>, _: &Recorded) -> Option<Row> {
        None
    }
}

#[tokio::test]
async fn a_writer_that_died_is_no_journal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let folds: Vec<Box<dyn Fold>> = vec![Box::new(Panicking)];
    let journal = JournalStore::open(&file, folds, Arc::new(SystemClock), keys()).unwrap();
    for _ in 0..2 {
        let append = journal.append(batch(&Stream::Daemon, Expected::Any, 1));
        assert!(matches!(append.await, Err(JournalError::Closed)));
    }
    assert!(matches!(journal.state(), JournalState::Unwritable { .. }));
    drop(journal);
    assert_eq!(open(&folder).head(), 0, "nothing of the group is there");
}
