//! Durable appends per second: ours, and what the disk and SQLite give without us.
//!
//! ```text
//! a  64 appenders, one entry of about 512 bytes each time, answered once durable
//! b  the same appenders, group-committed into a preallocated file, one fdatasync per group
//! c  our groups replayed into a preallocated file: nobody waits and nobody is woken
//! d  our groups replayed into a growing file
//! e  64 threads sharing one SQLite connection, one commit per append, synchronous=FULL
//! f  64 callers, each call recorded whole: 5 entries and 3 blobs in two commits
//! g  as a, with nothing sealed
//! ```
//!
//! The promise is made against b, where 64 appenders wait and are woken as ours are. c is printed
//! beside it: nobody waits there, so on an idle machine it shows what SQLite does for each row.
//!
//! Rounds of all of them are interleaved, and each figure is the median of its rounds: a busy
//! neighbour slows down everybody alike.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and stops at the first thing that is not as it should be"
)]

mod calls;
mod file;

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use palyra_core::entry::{Entry, Stream};
use palyra_core::{CallId, Clock, SystemClock, Timestamp};
use palyra_journal::{Expected, JournalKeys, JournalStore};
use tokio::runtime::Runtime;

use crate::file::{GroupCommitted, Log, preallocated};

const APPENDERS: usize = 64;
const ENTRY_BYTES: usize = 512;
const ROUNDS: usize = 7;
const WINDOW: Duration = Duration::from_millis(450);

fn main() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let ours = Ours::open(&folder.path().join("ours.db"));
    let unsealed = Ours::open_unsealed(&folder.path().join("unsealed.db"));
    let whole = calls::Calls::open(&folder.path().join("calls.db"));
    let single = Single::open(&folder.path().join("single.db"));
    let path = |name: &str| folder.path().join(name);
    let committed = GroupCommitted::on(Log::within(preallocated(&path("committed"))));
    let mut replayed = Log::within(preallocated(&path("replayed")));

    let mut figures = [const { Vec::new() }; 8];
    for round in 0..=ROUNDS {
        let groups = ours.round(&runtime, WINDOW);
        let without = unsealed.round(&runtime, WINDOW);
        let mut growing = Log::growing(File::create(path("growing")).unwrap());
        let round_figures = [
            groups.per_second,
            groups.mean(),
            committed.round(&runtime),
            replayed.replay(&groups.sizes),
            growing.replay(&groups.sizes),
            single.round(),
            whole.round(&runtime, WINDOW),
            without.per_second,
        ];
        // The first round of each warms up and is not counted.
        if round > 0 {
            for (figures, figure) in figures.iter_mut().zip(round_figures) {
                figures.push(figure);
            }
        }
    }
    // Long enough that the log is folded back again and again in the middle of it.
    let sustained = ours.round(&runtime, WINDOW * 8).per_second;
    println!(
        "{:<44} {sustained:>12.1} appends/s",
        "journal, 64 appenders, for seconds"
    );
    print(figures.map(median));
}

fn print(
    [
        ours,
        group,
        committed,
        replayed,
        growing,
        single,
        whole,
        unsealed,
    ]: [f64; 8],
) {
    let rows = [
        ("journal, 64 appenders", ours, "appends/s"),
        ("journal, appends per group", group, "appends"),
        ("preallocated file, 64 appenders", committed, "appends/s"),
        ("preallocated file, groups replayed", replayed, "appends/s"),
        ("growing file, groups replayed", growing, "appends/s"),
        ("sqlite, 64 threads, one commit each", single, "appends/s"),
        ("journal, whole calls, 64 callers", whole, "calls/s"),
        ("journal, 64 appenders, unsealed", unsealed, "appends/s"),
        ("journal / replayed groups", ours / replayed, "x"),
    ];
    let ratios = [
        (
            "journal / preallocated file, 64 appenders",
            ours / committed,
            0.35,
        ),
        ("journal / one commit each", ours / single, 10.0),
        ("journal / the same unsealed", ours / unsealed, 0.9),
    ];
    for (name, value, unit) in rows {
        println!("{name:<44} {value:>12.1} {unit}");
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
        "bench": "journal", "rows": rows.as_slice(), "ratios": ratios.as_slice(),
    });
    println!("JSON {report}");
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

fn per_second(count: u64, since: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of a second or so")]
    let count = count as f64;
    count / since.elapsed().as_secs_f64()
}

/// A clock that moves each time it is read: the journal reads it once a group, so that groups can
/// be told apart afterwards.
#[derive(Default)]
struct Ticks(AtomicI64);

impl Clock for Ticks {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

struct Ours {
    journal: JournalStore,
}

/// What one round of ours did.
struct Groups {
    per_second: f64,
    sizes: Vec<usize>,
}

impl Groups {
    #[expect(clippy::cast_precision_loss, reason = "counts of a second or so")]
    fn mean(&self) -> f64 {
        self.sizes.iter().sum::<usize>() as f64 / self.sizes.len() as f64
    }
}

impl Ours {
    fn open(file: &Path) -> Self {
        let clock = Arc::new(Ticks::default());
        Self {
            journal: JournalStore::open(file, Vec::new(), clock, JournalKeys::generate().unwrap())
                .unwrap(),
        }
    }

    fn open_unsealed(file: &Path) -> Self {
        Self {
            journal: JournalStore::open_unsealed(file, Arc::new(Ticks::default())).unwrap(),
        }
    }

    fn round(&self, runtime: &Runtime, window: Duration) -> Groups {
        let before = self.journal.head();
        let start = Instant::now();
        runtime.block_on(async {
            let appenders: Vec<_> = (0..APPENDERS)
                .map(|_| tokio::spawn(appender(self.journal.clone(), start + window)))
                .collect();
            for appender in appenders {
                appender.await.unwrap();
            }
        });
        let per_second = per_second(self.journal.head() - before, start);
        let entries = self.journal.read(before, usize::MAX).unwrap();
        let sizes = entries
            .chunk_by(|one, next| one.at == next.at)
            .map(<[_]>::len)
            .collect();
        Groups { per_second, sizes }
    }
}

async fn appender(journal: JournalStore, end: Instant) {
    while Instant::now() < end {
        // Short streams whose names sort by age, as those of calls are.
        let stream = Stream::Call(CallId::mint(SystemClock.now()));
        let entry = Entry::DaemonStarted {
            // With `{"kind":"daemon_started","v":1,"version":""}` around it.
            version: "x".repeat(ENTRY_BYTES - 44),
            blob_key: None,
        };
        journal
            .append_if(stream, Expected::NoStream, vec![entry])
            .await
            .unwrap();
    }
}

/// SQLite as it is without a writer of its own.
struct Single {
    connection: Mutex<rusqlite::Connection>,
}

impl Single {
    fn open(file: &Path) -> Self {
        let connection = rusqlite::Connection::open(file).unwrap();
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL;
                 PRAGMA synchronous = FULL;
                 CREATE TABLE entries (
                     seq INTEGER PRIMARY KEY, stream TEXT NOT NULL, revision INTEGER NOT NULL,
                     kind TEXT NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL
                 ) STRICT;
                 CREATE UNIQUE INDEX by_stream ON entries (stream, revision);",
            )
            .unwrap();
        Self {
            connection: Mutex::new(connection),
        }
    }

    fn round(&self) -> f64 {
        let start = Instant::now();
        let count = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..APPENDERS {
                scope.spawn(|| count.fetch_add(self.appender(start + WINDOW), Ordering::Relaxed));
            }
        });
        per_second(count.into_inner(), start)
    }

    fn appender(&self, end: Instant) -> u64 {
        let body = vec![b'x'; ENTRY_BYTES];
        let mut count = 0;
        while Instant::now() < end {
            let stream = CallId::mint(SystemClock.now());
            let connection = self.connection.lock().unwrap();
            connection
                .prepare_cached(
                    "INSERT INTO entries (stream, revision, kind, at, body)
                     VALUES (?1, 1, 'daemon_started', 0, ?2)",
                )
                .unwrap()
                .execute(rusqlite::params![stream.as_str(), body])
                .unwrap();
            count += 1;
        }
        count
    }
}
