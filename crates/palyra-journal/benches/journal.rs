//! Durable appends per second: ours, and what the disk and SQLite give without us.
//!
//! ```text
//! a  64 appenders, one entry of about 512 bytes each time, answered once durable
//! b  the same groups written to a preallocated file, one fdatasync per group
//! c  the same groups written to a growing file
//! d  64 threads sharing one SQLite connection, one commit per append, synchronous=FULL
//! e  64 callers, each call recorded whole: 5 entries and 3 blobs in two commits
//! ```
//!
//! Rounds of all of them are interleaved, and each figure is the median of its rounds: a busy
//! neighbour slows down everybody alike. `b` and `c` have no appenders to wake, so they are what
//! the disk alone could do with our groups.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and stops at the first thing that is not as it should be"
)]

mod calls;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use palyra_core::entry::{Entry, Stream};
use palyra_core::{CallId, Clock, SystemClock, Timestamp};
use palyra_journal::{Expected, JournalStore};
use tokio::runtime::Runtime;

const APPENDERS: usize = 64;
const ENTRY_BYTES: usize = 512;
const ROUNDS: usize = 7;
const WINDOW: Duration = Duration::from_millis(600);
const FILE_BYTES: u64 = 32 << 20;

fn main() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let ours = Ours::open(&folder.path().join("ours.db"));
    let whole = calls::Calls::open(&folder.path().join("calls.db"));
    let single = Single::open(&folder.path().join("single.db"));
    let preallocated = preallocated(&folder.path().join("preallocated"));

    let mut figures = Figures::default();
    // The first round of each warms up and is not counted.
    for round in 0..=ROUNDS {
        let groups = ours.round(&runtime);
        let b = replay(&preallocated, &groups.sizes, FILE_BYTES);
        let growing = File::create(folder.path().join("growing")).unwrap();
        let c = replay(&growing, &groups.sizes, u64::MAX);
        let d = single.round();
        let e = whole.round(&runtime, WINDOW);
        if round > 0 {
            figures.a.push(groups.per_second);
            figures.group.push(groups.mean());
            figures.b.push(b);
            figures.c.push(c);
            figures.d.push(d);
            figures.e.push(e);
        }
    }
    figures.print();
}

/// One figure per round.
#[derive(Default)]
struct Figures {
    a: Vec<f64>,
    group: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
    d: Vec<f64>,
    e: Vec<f64>,
}

impl Figures {
    fn print(self) {
        let [a, group, b, c, d, e] =
            [self.a, self.group, self.b, self.c, self.d, self.e].map(median);
        let rows = [
            ("journal, 64 appenders", a, "appends/s"),
            ("journal, appends per group", group, "appends"),
            ("preallocated file, same groups, fdatasync", b, "appends/s"),
            ("growing file, same groups, fdatasync", c, "appends/s"),
            ("sqlite, 64 threads, one commit each", d, "appends/s"),
            ("journal, whole calls, 64 callers", e, "calls/s"),
        ];
        let ratios = [
            ("journal / preallocated file", a / b, 0.35),
            ("journal / one commit each", a / d, 10.0),
        ];
        for (name, value, unit) in rows {
            println!("{name:<44} {value:>12.1} {unit}");
        }
        for (name, ratio, bar) in ratios {
            let verdict = if ratio >= bar { "ok" } else { "MISSED" };
            println!("{name:<44} {ratio:>12.2} x  (bar {bar}) {verdict}");
        }
        let rows = rows.map(
            |(name, value, unit)| serde_json::json!({"name": name, "value": value, "unit": unit}),
        );
        let ratios = ratios.map(|(name, ratio, bar)| {
            serde_json::json!({"name": name, "ratio": ratio, "bar": bar, "ok": ratio >= bar})
        });
        let report = serde_json::json!({
            "bench": "journal", "rows": rows.as_slice(), "ratios": ratios.as_slice(),
        });
        println!("JSON {report}");
    }
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

/// A clock that gives each group its own instant, so that groups can be told apart afterwards.
#[derive(Default)]
struct PerGroup(AtomicI64);

impl Clock for PerGroup {
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
        let clock = Arc::new(PerGroup::default());
        Self {
            journal: JournalStore::open(file, Vec::new(), clock).unwrap(),
        }
    }

    fn round(&self, runtime: &Runtime) -> Groups {
        let before = self.journal.head();
        let start = Instant::now();
        runtime.block_on(async {
            let appenders: Vec<_> = (0..APPENDERS)
                .map(|_| tokio::spawn(appender(self.journal.clone(), start + WINDOW)))
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
        };
        journal
            .append_if(stream, Expected::NoStream, vec![entry])
            .await
            .unwrap();
    }
}

/// A file whose blocks are there and were written, so that a sync has no metadata to write.
fn preallocated(path: &Path) -> File {
    let file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(path)
        .unwrap();
    let zeros = vec![0; 1 << 20];
    for place in 0..FILE_BYTES >> 20 {
        file.write_all_at(&zeros, place << 20).unwrap();
    }
    file.sync_all().unwrap();
    file
}

/// Writes groups of these sizes, syncing after each, for one window.
fn replay(file: &File, sizes: &[usize], end_of_file: u64) -> f64 {
    let buffer = vec![b'x'; ENTRY_BYTES * sizes.iter().max().unwrap()];
    let start = Instant::now();
    let (mut count, mut offset) = (0, 0);
    for size in sizes.iter().cycle() {
        let bytes = buffer.get(..size * ENTRY_BYTES).unwrap();
        if offset + bytes.len() as u64 > end_of_file {
            offset = 0;
        }
        file.write_all_at(bytes, offset).unwrap();
        file.sync_data().unwrap();
        offset += bytes.len() as u64;
        count += *size as u64;
        if start.elapsed() >= WINDOW {
            break;
        }
    }
    per_second(count, start)
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
