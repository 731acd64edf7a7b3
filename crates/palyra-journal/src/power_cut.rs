//! The power is cut at every sync and anywhere between, under load: whatever the disk then holds
//! opens, verifies against the last checkpoint that anybody was given, has everything that anybody
//! was told is durable, and nothing half.
//!
//! `PALYRA_POWER_CUTS` is how many points are tried; `make crash` tries all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use palyra_core::attestation::{Ending, ExecutionReport};
use palyra_core::entry::{Entry, Stream};
use palyra_core::{Blob, BlobKind, CallId, Commitment, SystemClock, Timestamp};

use crate::failing::{Counting, keys};
use crate::faults::{Code, Fault, Image, Kept, On, Op, Part, Watch};
use crate::proof::Note;
use crate::verify::{Completeness, Trust, Verdict, verify};
use crate::{Append, Expected, JournalError, JournalStore, StreamAppend};

/// What somebody was told.
enum Told {
    Durable {
        stream: Stream,
        revision: u64,
        output: Commitment,
        length: usize,
    },
    Checkpoint(Note),
}

/// A load that is over, with everything that it did to the disk.
struct Load {
    ops: Vec<Op>,
    told: Vec<Told>,
    refused: usize,
}

const APPENDERS: usize = 6;

fn open(folder: &std::path::Path) -> Result<JournalStore, JournalError> {
    JournalStore::open(
        &folder.join(Part::Main.file_name()),
        vec![Box::new(Counting)],
        Arc::new(SystemClock),
        keys(),
    )
}

/// One append of three entries in two streams, and what it commits to. `what` is in both.
fn append(call: &Stream, revision: u64, what: &str, output: Blob) -> Append {
    let at = Timestamp::from_millis(0);
    let report = ExecutionReport {
        executor: what.to_owned(),
        sandbox_enforcement: "none".to_owned(),
        layers: Vec::new(),
        started_at: at,
        ended_at: at,
        ending: Ending::Exited { code: 0 },
        truncated: false,
        running_as_root: false,
        network: None,
    };
    let finished = Entry::Finished {
        report,
        output: output.commitment(),
    };
    let started = Entry::DaemonStarted {
        version: what.to_owned(),
        blob_key: None,
    };
    let to = |stream: &Stream, expected, entries| StreamAppend {
        stream: stream.clone(),
        expected,
        entries,
    };
    Append {
        streams: vec![
            to(
                call,
                Expected::Revision(revision),
                vec![started.clone(), finished],
            ),
            to(&Stream::Daemon, Expected::Any, vec![started]),
        ],
        blobs: vec![output],
    }
}

/// Several append at once, from the very first write of the file on.
async fn load(appends: usize, faults: &[Fault]) -> Load {
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::begin(folder.path());
    let journal = open(folder.path()).unwrap();
    faults.iter().for_each(|fault| watch.fail(*fault));
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for appender in 0..APPENDERS {
        let (journal, told) = (journal.clone(), Arc::clone(&told));
        let disk = Arc::clone(&watch);
        tasks.spawn(async move {
            let tell = |what| {
                let mut told = told.lock().unwrap();
                told.push(what);
                disk.told(told.len() - 1);
            };
            let mut refused = 0;
            let mut stream = Stream::Call(CallId::mint(Timestamp::from_millis(0)));
            let mut revision = 0;
            for number in 0..appends {
                let length = number * 7_919 % 9_000;
                let output = Blob::new(BlobKind::Output, vec![7; length]);
                let commitment = output.commitment();
                let what = format!("{appender}/{number}");
                let batch = append(&stream, revision, &what, output);
                match journal.append(batch).await {
                    Ok(appended) => {
                        revision = appended.revisions[0];
                        tell(Told::Durable {
                            stream: stream.clone(),
                            revision,
                            output: commitment,
                            length,
                        });
                    }
                    Err(
                        JournalError::Unsynced(_)
                        | JournalError::Locked(_)
                        | JournalError::Io(_)
                        | JournalError::Corrupt { .. },
                    ) => {
                        // Whether it is there is open; the next one is in another stream.
                        refused += 1;
                        stream = Stream::Call(CallId::mint(Timestamp::from_millis(0)));
                        revision = 0;
                        tokio::time::sleep(std::time::Duration::from_millis(40)).await;
                    }
                    Err(error) => panic!("{error:?}"),
                }
                if number % 5 == appender
                    && let Ok(note) = journal.checkpoint()
                {
                    tell(Told::Checkpoint(note));
                }
            }
            refused
        });
    }
    let mut refused = 0;
    while let Some(done) = tasks.join_next().await {
        refused += done.unwrap();
    }
    let ops = watch.ops();
    drop(journal);
    let told = Arc::into_inner(told).unwrap().into_inner().unwrap();
    Load { ops, told, refused }
}

/// Opens what the disk holds and compares it with what was told before.
async fn check(files: &BTreeMap<Part, Vec<u8>>, told: &[&Told], why: &str) {
    let folder = tempfile::tempdir().unwrap();
    for (part, bytes) in files {
        std::fs::write(folder.path().join(part.file_name()), bytes).unwrap();
    }
    let journal = open(folder.path()).unwrap_or_else(|error| panic!("{why}: {error:?}"));
    let entries = journal.read(0, usize::MAX).unwrap();
    assert_eq!(entries.len() as u64, journal.head(), "{why}");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    // Each append has the same word three times: in two entries that say it started, and a report.
    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    for recorded in &entries {
        *counts.entry(&recorded.stream).or_default() += 1;
        let word = if let Entry::DaemonStarted { version, .. } = &recorded.entry {
            version
        } else if let Entry::Finished { report, .. } = &recorded.entry {
            &report.executor
        } else {
            panic!("{why}: {recorded:?}");
        };
        *words.entry(word).or_default() += 1;
    }
    assert!(words.values().all(|count| *count == 3), "{why}: half");
    for (stream, count) in &counts {
        let row = journal.row("counts", stream).unwrap();
        assert_eq!(row.map(|row| row.value.len()), Some(*count), "{why}");
    }
    let mut trust = Trust::nobody().key(journal.key().unwrap());
    for told in told {
        match told {
            Told::Durable {
                stream,
                revision,
                output,
                length,
            } => {
                let found = counts.get(stream.to_string().as_str()).copied();
                assert!(found >= usize::try_from(*revision).ok(), "{why}: {stream}");
                let blob = journal.blob(output).unwrap();
                assert_eq!(blob.map(|it| it.bytes.len()), Some(*length), "{why}");
            }
            Told::Checkpoint(note) => trust = trust.pinned(note.clone()).unwrap(),
        }
    }
    let checkpoints = told.iter().any(|told| matches!(told, Told::Checkpoint(_)));
    let what = format!("after {why}");
    let more = append(
        &Stream::Call(CallId::mint(Timestamp::from_millis(0))),
        0,
        &what,
        Blob::new(BlobKind::Output, vec![1]),
    );
    journal.append(more).await.unwrap();
    drop(journal);
    let report = verify(&folder.path().join(Part::Main.file_name()), &trust).unwrap();
    assert_eq!(report.verdict(), Verdict::Verified, "{why}: {report:?}");
    let complete = matches!(report.completeness, Completeness::Complete { .. });
    assert_eq!(complete, checkpoints, "{why}: {report:?}");
}

/// How many points are tried.
fn points() -> usize {
    let wanted = std::env::var("PALYRA_POWER_CUTS").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// Cuts the power at syncs and between, and checks what is left in several ways.
async fn cut_everywhere(load: &Load) {
    let mut seed = u64::from(std::process::id()) << 20 | load.ops.len() as u64;
    let story = seed;
    let is_sync = |op: &Op| matches!(op, Op::Synced(..) | Op::Unsynced(..) | Op::Truncate(..));
    let syncs = load.ops.iter().filter(|op| is_sync(op)).count();
    // Just before and just after so many of the syncs, and as often anywhere.
    let near = 256 * points() as u64 / syncs.max(1) as u64;
    let far = 256 * points() as u64 / load.ops.len() as u64 + 1;
    let mut image = Image::default();
    let mut told = Vec::new();
    let mut states = 0;
    let mut before_sync = false;
    for (at, op) in load.ops.iter().enumerate() {
        let chance = if is_sync(op) || before_sync {
            near
        } else {
            far
        };
        before_sync = is_sync(op);
        if crate::faults::random(&mut seed) % 256 < chance && image.has_unsynced() {
            for kept in [
                Kept::Synced,
                Kept::Everything,
                Kept::Some {
                    piece: 4_096,
                    chance: 200,
                },
                Kept::Some {
                    piece: 512,
                    chance: 128,
                },
            ] {
                let files = image.survives(kept, &mut seed);
                let why = format!("cut at {at} of {}, {kept:?}, story {story}", load.ops.len());
                check(&files, &told, &why).await;
                states += 1;
            }
        }
        image.apply(op);
        if let Op::Told(what) = op {
            told.push(&load.told[*what]);
        }
    }
    assert!(states >= points(), "only {states} states");
    println!("{syncs} syncs, {states} states, {} refused", load.refused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_power_is_cut_under_load() {
    let load = load(30, &[]).await;
    assert_eq!(load.refused, 0);
    let folded = |op: &&Op| matches!(op, Op::Synced(Part::Main, _));
    assert!(
        load.ops.iter().filter(folded).count() > 2,
        "never folded back"
    );
    cut_everywhere(&load).await;
}

/// The same on a disk that fails some syncs: the kernel then calls clean what it did not write,
/// and keeps it (or not) for whoever reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_power_is_cut_on_a_disk_that_fails_to_sync() {
    for forgets in [false, true] {
        let fails = |part, skip| Fault {
            on: On::Sync,
            part,
            skip,
            times: 1,
            code: Code::Eio,
            forgets: forgets && part == Part::Log,
        };
        let log = |skip| fails(Part::Log, skip);
        let load = load(40, &[log(5), log(3), log(8), log(2), fails(Part::Main, 1)]).await;
        assert!(load.refused > 2, "{}", load.refused);
        cut_everywhere(&load).await;
    }
}
