//! A secret stored through the socket: policy, the vault's commit and the journal's entry, beside one
//! durable commit of SQLite on the same disk, in turns; the lower quartile of each, because neighbours write too.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops when anything breaks"
)]

use std::time::Instant;

use palyra_api::wire::vault::{PutSecret, Secret};
use palyra_testkit::Daemon;
use serde_json::json;

const ROUNDS: usize = 400;
const BAR: f64 = 2.5;

fn main() {
    let daemon = Daemon::start();
    let bare = rusqlite::Connection::open(daemon.folder().join("bare.db")).unwrap();
    let pragmas = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
                   CREATE TABLE t (n INTEGER PRIMARY KEY, v BLOB);";
    bare.execute_batch(pragmas).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (mut commits, mut puts) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        let mut client = daemon.client().await;
        for number in 0..ROUNDS {
            let since = Instant::now();
            let row = [0_u8; 400];
            let mut insert = bare
                .prepare_cached("INSERT INTO t (v) VALUES (?1)")
                .unwrap();
            insert.execute([&row[..]]).unwrap();
            commits.push(since.elapsed().as_secs_f64() * 1e6);
            let wish = PutSecret {
                secret: format!("secret-{number:06}"),
                value: "dmFsdWUgb2YgYSBzZWNyZXQ=".to_owned(),
                audience: Vec::new(),
                ttl_ms: None,
            };
            let since = Instant::now();
            let _stored: Secret = client.post("/api/v1/vault/secrets", &wish).await.unwrap();
            puts.push(since.elapsed().as_secs_f64() * 1e6);
        }
    });
    let (commit, put) = (quartile(&mut commits), quartile(&mut puts));
    let (ratio, ok) = (put / commit, put / commit <= BAR);
    println!("one durable commit, quartile           {commit:>10.1} us");
    println!("put through the daemon, quartile       {put:>10.1} us");
    println!(
        "ratio {ratio:.2}, bar {BAR} {}",
        if ok { "ok" } else { "MISSED" }
    );
    let rows = [
        json!({ "name": "one durable commit, quartile", "value": commit, "unit": "us" }),
        json!({ "name": "put through the daemon, quartile", "value": put, "unit": "us" }),
    ];
    let name = "put through the daemon over one durable commit";
    let ratios = [json!({ "name": name, "ratio": ratio, "bar": BAR, "kind": "max", "ok": ok })];
    println!(
        "JSON {}",
        json!({ "bench": "vault-daemon", "rows": rows, "ratios": ratios })
    );
}

fn quartile(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 4).copied().unwrap_or_default()
}
