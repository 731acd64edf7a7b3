//! What a journal costs over its life: one appender alone, its memory as it grows, and the
//! signatures in it.
//!
//! ```text
//! a  one appender, durable, one at a time
//! b  one fdatasync of 4 KiB into a preallocated file, the same disk
//! c  checkpoints whose notes are read and verified, d as many bare Ed25519 verifications
//! e  memory of this process after appending to and verifying 10,000 entries, f after all of them
//! ```
//!
//! `PALYRA_LIFE_ENTRIES` sets another length (`make bench-long`: ten million).

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and stops at the first thing that is not as it should be"
)]

use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palyra_core::SystemClock;
use palyra_core::entry::{Entry, Stream};
use palyra_journal::proof::{Checkpoint, Note, SignerKey};
use palyra_journal::verify::{Trust, verify};
use palyra_journal::{Expected, JournalKeys, JournalStore};

const ENTRIES: u64 = 1_000_000;
const FEW: u64 = 10_000;
const GROUP: u64 = 100;
const ALONE: usize = 2_000;
const SIGNATURES: u32 = 5_000;

fn main() {
    let entries = std::env::var("PALYRA_LIFE_ENTRIES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(ENTRIES);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (alone, sync) = runtime.block_on(alone(folder.path()));
    let (notes, bare) = signatures();

    let file = folder.path().join("long.db");
    let journal = open(&file);
    runtime.block_on(fill(&journal, FEW));
    let short = memory_after_verifying(&file);
    runtime.block_on(fill(&journal, entries - FEW));
    let long = memory_after_verifying(&file);

    let micros = |span: Duration| span.as_secs_f64() * 1e6;
    let rows = [
        ("a one appender, median", micros(alone), "us"),
        ("b one fdatasync, median", micros(sync), "us"),
        (
            "c checkpoints verified",
            f64::from(SIGNATURES) / notes.as_secs_f64(),
            "/s",
        ),
        (
            "d bare signatures",
            f64::from(SIGNATURES) / bare.as_secs_f64(),
            "/s",
        ),
        ("e memory at 10,000 entries", short, "MiB"),
        ("f memory at all of them", long, "MiB"),
    ];
    let ratios = [
        (
            "one appender / one fdatasync (a/b)",
            micros(alone) / micros(sync),
            2.0,
            "max",
        ),
        (
            "checkpoints / bare signatures (c/d)",
            bare.as_secs_f64() / notes.as_secs_f64(),
            0.8,
            "min",
        ),
        // What SQLite's caches hold once they are full; beyond that, nothing grows.
        ("memory growth in MiB (f-e)", long - short, 20.0, "max"),
    ];
    for (name, value, unit) in rows {
        println!("{name:<44} {value:>12.2} {unit}");
    }
    let kept = |ratio: f64, bar: f64, kind: &str| match kind {
        "max" => ratio <= bar,
        _ => ratio >= bar,
    };
    for (name, ratio, bar, kind) in ratios {
        let verdict = if kept(ratio, bar, kind) {
            "ok"
        } else {
            "MISSED"
        };
        println!("{name:<44} {ratio:>12.2} x  ({kind} {bar}) {verdict}");
    }
    let rows = rows
        .map(|(name, value, unit)| serde_json::json!({"name": name, "value": value, "unit": unit}));
    let ratios = ratios.map(|(name, ratio, bar, kind)| {
        serde_json::json!({"name": name, "ratio": ratio, "bar": bar, "kind": kind, "ok": kept(ratio, bar, kind)})
    });
    let report = serde_json::json!({
        "bench": "life", "rows": rows.as_slice(), "ratios": ratios.as_slice(),
    });
    println!("JSON {report}");
}

fn open(file: &Path) -> JournalStore {
    let keys = JournalKeys::generate().unwrap();
    JournalStore::open(file, Vec::new(), Arc::new(SystemClock), keys).unwrap()
}

fn entry() -> Entry {
    Entry::DaemonStarted {
        version: "x".repeat(468),
        blob_key: None,
    }
}

async fn fill(journal: &JournalStore, entries: u64) {
    for _ in 0..entries / GROUP {
        let group = (0..GROUP).map(|_| entry()).collect();
        let append = journal.append_if(Stream::Daemon, Expected::Any, group);
        append.await.unwrap();
    }
}

/// One append at a time, and one sync at a time, in turns: a busy disk is busy for both.
async fn alone(folder: &Path) -> (Duration, Duration) {
    let journal = open(&folder.join("alone.db"));
    let mut plain = std::fs::File::create(folder.join("plain")).unwrap();
    plain.write_all(&vec![0; 16 << 20]).unwrap();
    plain.sync_all().unwrap();
    plain.rewind().unwrap();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for turn in 0..ALONE {
        let start = Instant::now();
        let append = journal.append_if(Stream::Daemon, Expected::Any, vec![entry()]);
        append.await.unwrap();
        ours.push(start.elapsed());
        if turn % 4_096 == 4_095 {
            plain.rewind().unwrap();
        }
        let start = Instant::now();
        plain.write_all(&[1; 4_096]).unwrap();
        plain.sync_data().unwrap();
        bare.push(start.elapsed());
    }
    (median(ours), median(bare))
}

fn median(mut taken: Vec<Duration>) -> Duration {
    taken.sort();
    taken.get(taken.len() / 2).copied().unwrap_or_default()
}

fn signatures() -> (Duration, Duration) {
    let key = SignerKey::from_seed("bench", &[7; 32]).unwrap();
    let verifier = key.verifier();
    let checkpoint = Checkpoint {
        origin: "bench".to_owned(),
        size: 1_000_000,
        root: palyra_journal::proof::Hash::empty(),
    };
    let text = checkpoint.sign(&key).unwrap().to_string();
    let start = Instant::now();
    for _ in 0..SIGNATURES {
        let note: Note = text.parse().unwrap();
        assert!(Checkpoint::signed_by(&note, &verifier).is_ok());
    }
    let notes = start.elapsed();
    let said = checkpoint.to_string();
    let signature = key.sign(said.as_bytes());
    let start = Instant::now();
    for _ in 0..SIGNATURES {
        assert!(verifier.verifies(said.as_bytes(), &signature));
    }
    (notes, start.elapsed())
}

/// The memory of this process, in MiB, after it read the whole journal.
fn memory_after_verifying(file: &Path) -> f64 {
    let report = verify(file, &Trust::nobody()).unwrap();
    assert_eq!(report.fault_count, 0);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib: f64 = line
        .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap();
    kib / 1_024.0
}
