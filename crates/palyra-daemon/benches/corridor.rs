//! The whole corridor through the socket: durable `palyra.echo` calls a second, the resident
//! size of an idle daemon, and the time from start to ready. Absolute figures, so they say as
//! much about the machine as about us; the rooms' own benches print ratios.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops when anything breaks"
)]

use std::time::{Duration, Instant};

use palyra_api::wire::{CallRequest, Outcome};
use palyra_testkit::Daemon;
use serde_json::json;

const CALLERS: usize = 64;
const WINDOW: Duration = Duration::from_secs(3);
const ROUNDS: usize = 5;

fn main() {
    let mut ready: Vec<f64> = (0..9).map(|_| start_to_ready()).collect();
    let daemon = Daemon::builder()
        .config("[budget]\ncalls = 100000000\n")
        .start();
    let resident = resident_mib(daemon.pid());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| runtime.block_on(calls_per_second(&daemon)))
        .collect();
    let (ready, rate) = (median(&mut ready), median(&mut rates));
    let rows = [
        (
            "palyra.echo through the socket",
            rate,
            "calls/s",
            2_000.0,
            "min",
        ),
        ("idle daemon, resident", resident, "MiB", 40.0, "max"),
        ("start to ready", ready, "ms", 150.0, "max"),
    ];
    for (name, value, unit, bar, kind) in rows {
        let ok = if kind == "min" {
            value >= bar
        } else {
            value <= bar
        };
        println!(
            "{name:<34} {value:>10.1} {unit:<8} bar {kind} {bar:<6} {}",
            if ok { "ok" } else { "MISSED" }
        );
    }
    let figures =
        rows.map(|(name, value, unit, ..)| json!({ "name": name, "value": value, "unit": unit }));
    let ratios = rows.map(|(name, value, _, bar, kind)| {
        let ok = if kind == "min" {
            value >= bar
        } else {
            value <= bar
        };
        json!({ "name": name, "ratio": value, "bar": bar, "kind": kind, "ok": ok })
    });
    println!(
        "JSON {}",
        json!({ "bench": "corridor", "rows": figures, "ratios": ratios })
    );
}

async fn calls_per_second(daemon: &Daemon) -> f64 {
    let started = Instant::now();
    let mut callers = Vec::new();
    for _ in 0..CALLERS {
        let mut client = daemon.client().await;
        callers.push(tokio::spawn(async move {
            let request = CallRequest {
                tool: "palyra.echo".to_owned(),
                arguments: json!({ "message": "hello" }),
                workspace: None,
                window: None,
                said: None,
                detach: false,
                patience_ms: None,
            };
            let mut done = 0_u32;
            while started.elapsed() < WINDOW {
                let result = client.call(&request).await.unwrap();
                assert_eq!(result.outcome, Outcome::Completed);
                done += 1;
            }
            done
        }));
    }
    let mut done = 0_u32;
    for caller in callers {
        done += caller.await.unwrap();
    }
    f64::from(done) / started.elapsed().as_secs_f64()
}

fn start_to_ready() -> f64 {
    let mut daemon = Daemon::builder().prepare();
    let started = Instant::now();
    daemon.start_again(None);
    started.elapsed().as_secs_f64() * 1_000.0
}

fn resident_mib(pid: u32) -> f64 {
    std::thread::sleep(Duration::from_millis(500));
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1_024.0
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
