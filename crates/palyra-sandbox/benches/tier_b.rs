//! What Tier-B costs: `/bin/true` behind every wall against a plain `posix_spawn` of it.
//!
//! Both run in turn, so that whatever else the machine does meets both alike. A table for people,
//! then one line `JSON {…}` for `make bench`.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot run has nothing to say"
)]

mod corridor;

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use corridor::{Place, confined, rate, spawn};
use palyra_core::{EgressEnforcementMode, Tier};
use serde_json::{Value, json};

/// How often each is measured, and how often before that.
const RUNS: usize = 600;
const WARM_UP: usize = 50;

/// How many at once, when several are.
const LANES: usize = 8;

/// How long to wait before each.
const PAUSE: Duration = Duration::from_millis(4);

/// An owner that is nobody on this machine.
const OWNER: u32 = 65_532;

/// How much more Tier-B may cost, with every layer.
const BAR: f64 = 1.9;

fn main() {
    corridor::run(measure());
}

async fn measure() {
    let place = Place::new();
    if rustix::process::geteuid().is_root() {
        // Nothing runs as root.
        std::os::unix::fs::chown(&place.work, Some(OWNER), Some(OWNER)).unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.work.parent().unwrap(), open).unwrap();
    }
    let sandbox = place.sandbox().await;
    assert_eq!(sandbox.status().why, None);
    let plan = place.plan(Tier::B, EgressEnforcementMode::None);

    let (mut plain, mut ours, mut layers) = (Vec::new(), Vec::new(), String::new());
    for round in 0..WARM_UP + RUNS {
        // What the run before left to do afterwards is not to be counted to this one.
        tokio::time::sleep(PAUSE).await;
        let begun = Instant::now();
        spawn();
        let one = begun.elapsed();
        tokio::time::sleep(PAUSE).await;
        let (other, seen) = confined(&sandbox, plan.clone()).await;
        layers = seen;
        if round >= WARM_UP {
            plain.push(one);
            ours.push(other);
        }
    }
    let begun = Instant::now();
    for _ in 0..RUNS {
        confined(&sandbox, plan.clone()).await;
    }
    let in_a_row = rate(begun, RUNS);
    let begun = Instant::now();
    let lanes = (0..LANES).map(|_| async {
        for _ in 0..RUNS / LANES {
            confined(&sandbox, plan.clone()).await;
        }
    });
    futures::future::join_all(lanes).await;
    let at_once = rate(begun, RUNS);
    report(&mut plain, &mut ours, &layers, in_a_row, at_once);
    sandbox.shutdown().await;
}

fn report(
    plain: &mut [Duration],
    ours: &mut [Duration],
    layers: &str,
    in_a_row: f64,
    at_once: f64,
) {
    plain.sort();
    ours.sort();
    let at = |all: &[Duration], percent: usize| {
        let index = (all.len() * percent / 100).min(all.len() - 1);
        all.get(index).copied().unwrap_or_default().as_secs_f64() * 1e6
    };
    let rows = [
        ("posix_spawn p50", at(plain, 50)),
        ("posix_spawn p95", at(plain, 95)),
        ("tier_b p50", at(ours, 50)),
        ("tier_b p95", at(ours, 95)),
    ];
    println!("Tier-B /bin/true, {RUNS} interleaved runs; layers: {layers}");
    for (name, value) in rows {
        println!("  {name:<18} {value:>9.1} µs");
    }
    let ratio = at(ours, 50) / at(plain, 50);
    let tail = at(ours, 95) / at(plain, 95);
    println!(
        "  one after the other, no pause: {in_a_row:.0} calls/s; {LANES} at once: {at_once:.0}"
    );
    println!("  ratio p50 {ratio:.2} (bar {BAR}), p95 {tail:.2}");
    let rows = rows.map(|(name, value)| json!({ "name": name, "value": value, "unit": "us" }));
    let rates = [("tier_b in a row", in_a_row), ("tier_b 8 at once", at_once)]
        .map(|(name, value)| json!({ "name": name, "value": value, "unit": "1/s" }));
    let rows: Vec<Value> = rows.into_iter().chain(rates).collect();
    let line = json!({
        "bench": "tier_b",
        "rows": rows,
        "ratios": [{
            "name": "tier_b / posix_spawn p50",
            "ratio": ratio,
            "bar": BAR,
            "kind": "max",
            "ok": ratio <= BAR,
        }],
    });
    println!("JSON {line}");
}
