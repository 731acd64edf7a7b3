//! What the vault costs, beside what the disk costs.
//!
//! ```text
//! a  one durable SQLite commit of a row as large, the same disk and settings
//! b  put, with no secrets, and with 100,000
//! c  get, warm, with no more than 1,000 secrets, and with 100,000
//! ```
//!
//! `PALYRA_VAULT_SECRETS` sets another size.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark prints, and stops at the first thing that is not as it should be"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palyra_core::{SecretRef, SecretValue, Timestamp};
use palyra_vault::keystore::KeyFile;
use palyra_vault::{NewSecret, SqliteBlobs, Vault};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const SECRETS: u64 = 100_000;
const FEW: u64 = 1_000;
const ROUNDS: u64 = 1_000;
const WARM: u64 = 1_200;
const GETS: u64 = 20_000;

fn main() {
    let secrets = std::env::var("PALYRA_VAULT_SECRETS").ok();
    let secrets = secrets
        .and_then(|text| text.parse().ok())
        .unwrap_or(SECRETS);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let vault = Vault::open(Box::new(SqliteBlobs::open(folder.path()).unwrap())).unwrap();
    let key = Arc::new(KeyFile::new(folder.path()));
    vault.create(Vault::new_id().unwrap(), key).unwrap();
    let bare = Bare::open(folder.path());

    // A log that grows costs more than one that is written over: both are of the second kind.
    (0..WARM).for_each(|_| bare.commit());
    (0..WARM / 4).for_each(|number| {
        vault.put(&new(number), NOW).unwrap();
    });
    let (commit_empty, put_empty) = puts(&vault, &bare, 0);
    let get_few = gets(&vault, FEW);
    fill(&vault, FEW, secrets);
    let (commit_full, put_full) = puts(&vault, &bare, secrets);
    let get_many = gets(&vault, secrets);

    let micros = |span: Duration| span.as_secs_f64() * 1e6;
    let rows = [
        (
            "a one durable commit, empty, quartile",
            micros(commit_empty),
        ),
        ("a one durable commit, full, quartile", micros(commit_full)),
        ("b put, empty, quartile", micros(put_empty)),
        ("b put, full, quartile", micros(put_full)),
        ("c get, few, median", micros(get_few)),
        ("c get, many, median", micros(get_many)),
    ];
    for (name, value) in &rows {
        println!("{name:<40} {value:>10.1} us");
    }
    let over = |one: Duration, other: Duration| one.as_secs_f64() / other.as_secs_f64();
    let ratios = [
        (
            "put over one durable commit",
            over(put_empty, commit_empty),
            1.3,
        ),
        (
            "put over one durable commit, full",
            over(put_full, commit_full),
            1.3,
        ),
        ("get over 50 us", micros(get_many) / 50.0, 1.0),
        ("put, full over empty", over(put_full, put_empty), 1.5),
        ("get, many over few", over(get_many, get_few), 1.5),
    ];
    let row = |(name, value): &(&str, f64)| {
        format!(r#"{{"name":"{name}","value":{value:.1},"unit":"us"}}"#)
    };
    let ratio = |(name, ratio, bar): &(&str, f64, f64)| {
        let ok = ratio <= bar;
        format!(r#"{{"name":"{name}","ratio":{ratio:.3},"bar":{bar},"kind":"max","ok":{ok}}}"#)
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    let ratios: Vec<String> = ratios.iter().map(ratio).collect();
    println!(
        r#"JSON {{"bench":"vault","rows":[{}],"ratios":[{}]}}"#,
        rows.join(","),
        ratios.join(",")
    );
}

fn new(number: u64) -> NewSecret {
    NewSecret {
        secret: named(number),
        value: SecretValue::new(format!("value {number:040}").into_bytes()),
        audience: Vec::new(),
        expires_at: None,
    }
}

fn named(number: u64) -> SecretRef {
    format!("secret-{number:08}").parse().unwrap()
}

fn fill(vault: &Vault, from: u64, to: u64) {
    let numbers: Vec<u64> = (from..to).collect();
    for chunk in numbers.chunks(5_000) {
        let new: Vec<NewSecret> = chunk.iter().map(|number| new(*number)).collect();
        vault.put_all(&new, NOW).unwrap();
    }
}

/// The same disk work without a vault: one row, one commit, the same settings.
struct Bare(rusqlite::Connection);

impl Bare {
    fn open(folder: &Path) -> Self {
        let connection = rusqlite::Connection::open(folder.join("bare.db")).unwrap();
        let pragmas = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL;
                       PRAGMA synchronous=FULL;
                       CREATE TABLE t (n INTEGER PRIMARY KEY, v BLOB);";
        connection.execute_batch(pragmas).unwrap();
        Self(connection)
    }

    fn commit(&self) {
        let sql = "INSERT INTO t (v) VALUES (?1)";
        let row = [0_u8; 400];
        self.0
            .prepare_cached(sql)
            .unwrap()
            .execute([&row[..]])
            .unwrap();
    }
}

/// A bare commit and a put, in turns, each first as often as the other, so that both meet the same
/// disk. The lower quartile of each: a neighbour's writes make a sync ten times as long, now for the
/// one and now for the other, and are nobody's of these two.
fn puts(vault: &Vault, bare: &Bare, from: u64) -> (Duration, Duration) {
    let (mut commits, mut puts) = (Vec::new(), Vec::new());
    for number in from..from + ROUNDS {
        let new = new(number);
        let mut commit = || commits.push(timed(|| bare.commit()));
        let mut put = || {
            puts.push(timed(|| {
                vault.put(&new, NOW).unwrap();
            }));
        };
        match number.is_multiple_of(2) {
            true => {
                commit();
                put();
            }
            false => {
                put();
                commit();
            }
        }
    }
    (quartile(commits), quartile(puts))
}

fn gets(vault: &Vault, among: u64) -> Duration {
    // A stride that meets every page, not one warm row.
    let pick = |round: u64| named(round.wrapping_mul(7_919) % among);
    (0..2_000).for_each(|round| drop(vault.get(&pick(round), None, NOW).unwrap()));
    let one = |round: u64| {
        let secret = pick(round);
        timed(|| drop(vault.get(&secret, None, NOW).unwrap()))
    };
    median((0..GETS).map(one).collect())
}

fn timed(work: impl FnOnce()) -> Duration {
    let since = Instant::now();
    work();
    since.elapsed()
}

fn quartile(mut spans: Vec<Duration>) -> Duration {
    spans.sort();
    spans[spans.len() / 4]
}

fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort();
    spans[spans.len() / 2]
}
