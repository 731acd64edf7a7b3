//! What proofs cost: an inclusion proof in a long journal, and verifying a whole one.
//!
//! ```text
//! a  inclusion proofs of random entries out of a million, one at a time
//! b  an export of them verified: every leaf, the tree, every checkpoint's signature
//! c  as many bare Ed25519 verifications as b had checkpoints
//! ```
//!
//! `PALYRA_PROOF_ENTRIES` sets another size.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and stops at the first thing that is not as it should be"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use palyra_core::SystemClock;
use palyra_core::entry::{Entry, Stream};
use palyra_journal::proof::{Checkpoint, SignerKey};
use palyra_journal::verify::{Trust, Verdict, verify_segment};
use palyra_journal::{Expected, JournalKeys, JournalStore};

const ENTRIES: u64 = 1_000_000;
const GROUP: u64 = 100;
const PROOFS: u32 = 2_000;
const ENTRY_BYTES: usize = 512;

fn main() {
    let entries = std::env::var("PALYRA_PROOF_ENTRIES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(ENTRIES);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let keys = JournalKeys::generate().unwrap();
    let file = folder.path().join("journal.db");
    let journal = JournalStore::open(&file, Vec::new(), Arc::new(SystemClock), keys).unwrap();
    fill(&journal, entries);

    let (usual, worst) = prove(&journal, entries);
    let (verified, checkpoints) = verify(&journal, entries);
    let bare = signatures(checkpoints);
    let millis = |span: Duration| span.as_secs_f64() * 1_000.0;
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let rate = |count: u64, span: Duration| count as f64 / span.as_secs_f64();
    let hashing = verified.saturating_sub(bare);
    let rows = [
        ("inclusion proof, median", millis(usual), "ms"),
        ("inclusion proof, 99th percentile", millis(worst), "ms"),
        ("verify, all of it", rate(entries, verified), "entries/s"),
        (
            "verify, without the signatures",
            rate(entries, hashing),
            "entries/s",
        ),
        ("bare signatures", rate(checkpoints, bare), "checks/s"),
    ];
    let ratios = [
        // Of the median: the rest is what a busy neighbour does to it.
        ("1 ms / inclusion proof", 1.0 / millis(usual), 1.0),
        (
            "hashing / 200,000 entries a second",
            rate(entries, hashing) / 200_000.0,
            1.0,
        ),
    ];
    for (name, value, unit) in rows {
        println!("{name:<44} {value:>12.2} {unit}");
    }
    for (name, ratio, bar) in ratios {
        let verdict = if ratio >= bar { "ok" } else { "MISSED" };
        println!("{name:<44} {ratio:>12.2} x  (bar {bar}) {verdict}");
    }
    let rows = rows
        .map(|(name, value, unit)| serde_json::json!({"name": name, "value": value, "unit": unit}));
    let ratios = ratios.map(|(name, ratio, bar)| {
        serde_json::json!({"name": name, "ratio": ratio, "bar": bar, "kind": "min", "ok": ratio >= bar})
    });
    let report = serde_json::json!({
        "bench": "proofs", "rows": rows.as_slice(), "ratios": ratios.as_slice(),
    });
    println!("JSON {report}");
}

/// Appends in commits of a hundred, as a busy daemon does.
fn fill(journal: &JournalStore, entries: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        for _ in 0..entries / GROUP {
            let entry = || Entry::DaemonStarted {
                version: "x".repeat(ENTRY_BYTES - 44),
                blob_key: None,
            };
            let group = (0..GROUP).map(|_| entry()).collect();
            let append = journal.append_if(Stream::Daemon, Expected::Any, group);
            append.await.unwrap();
        }
    });
}

/// How long it usually takes, and how long the slowest but one in a hundred.
fn prove(journal: &JournalStore, entries: u64) -> (Duration, Duration) {
    let mut place = 1;
    let mut taken: Vec<Duration> = (0..PROOFS)
        .map(|_| {
            // Spread without a pattern that the tree has, too.
            place = (place * 6_364_136_223_846_793_005_u64 + 1_442_695_040_888_963_407) % entries;
            let start = Instant::now();
            journal
                .prove_inclusion(place + 1, entries - 1)
                .unwrap()
                .unwrap();
            start.elapsed()
        })
        .collect();
    taken.sort();
    let at = |percent: usize| taken.get(taken.len() * percent / 100).copied();
    (at(50).unwrap_or_default(), at(99).unwrap_or_default())
}

fn verify(journal: &JournalStore, entries: u64) -> (Duration, u64) {
    let mut export = Vec::new();
    journal.export(0, &mut export).unwrap();
    let trust = Trust::nobody().key(journal.key().unwrap());
    let start = Instant::now();
    let report = verify_segment(export.as_slice(), &trust).unwrap();
    let taken = start.elapsed();
    assert_eq!(report.verdict(), Verdict::Verified);
    assert_eq!(report.last, entries);
    (taken, report.checkpoints)
}

fn signatures(count: u64) -> Duration {
    let key = SignerKey::from_seed("bench", &[7; 32]).unwrap();
    let checkpoint = Checkpoint {
        origin: "bench".to_owned(),
        size: 1_000_000,
        root: palyra_journal::proof::Hash::empty(),
    };
    let (text, verifier) = (checkpoint.to_string(), key.verifier());
    let signature = key.sign(text.as_bytes());
    let start = Instant::now();
    for _ in 0..count {
        assert!(verifier.verifies(text.as_bytes(), &signature));
    }
    start.elapsed()
}
