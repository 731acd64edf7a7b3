//! 10,000 Tier-C calls in a row leave nothing behind: no descriptor, process, mount or cgroup, and
//! no memory that grows with them.
//!
//! What is there is counted after the first tenth and after all of them. A table for people, then
//! one line `JSON {…}`.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot run has nothing to say"
)]

#[expect(dead_code, reason = "not every bench needs all that they share")]
mod corridor;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use corridor::{Place, confined, rate};
use palyra_core::{EgressEnforcementMode, Tier};
use serde_json::{Value, json};

/// How many calls, and how many of them at once.
const CALLS: usize = 10_000;
const LANES: usize = 4;

/// How much more memory all of them may leave than the first tenth.
const GROWTH: f64 = 4.0;

fn main() {
    corridor::run(measure());
}

async fn measure() {
    let place = Place::new();
    let sandbox = place.sandbox().await;
    assert_eq!(sandbox.status().tier_c_why, None);
    let plan = place.plan(Tier::C, EgressEnforcementMode::Strict);
    let calls = |count: usize| {
        let (sandbox, plan) = (&sandbox, &plan);
        let lane = move |_| async move {
            for _ in 0..count / LANES {
                confined(sandbox, plan.clone()).await;
            }
        };
        futures::future::join_all((0..LANES).map(lane))
    };
    calls(CALLS / 10).await;
    let first = Count::settled().await;
    let begun = Instant::now();
    calls(CALLS - CALLS / 10).await;
    let speed = rate(begun, CALLS - CALLS / 10);
    let last = Count::settled().await;
    report(&first, &last, speed);
    sandbox.shutdown().await;
}

/// What there is of everything that a call needs.
#[derive(Debug)]
struct Count {
    descriptors: usize,
    processes: usize,
    mounts: usize,
    cgroups: usize,
    memory: f64,
}

impl Count {
    /// Once the last call is cleaned up after.
    async fn settled() -> Self {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let own = family();
        Self {
            descriptors: own
                .iter()
                .map(|pid| entries(&format!("/proc/{pid}/fd")))
                .sum(),
            processes: own.len(),
            mounts: own
                .iter()
                .map(|pid| lines(&format!("/proc/{pid}/mountinfo")))
                .sum(),
            cgroups: cgroups(),
            memory: own.iter().map(|pid| resident(*pid)).sum(),
        }
    }
}

/// This process and all that come from it.
fn family() -> BTreeSet<u32> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let after = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned());
        let parent = after.and_then(|rest| rest.split(' ').nth(1)?.parse::<u32>().ok());
        parents.insert(pid, parent.unwrap_or(0));
    }
    let mut own = BTreeSet::from([std::process::id()]);
    loop {
        let more: BTreeSet<u32> = parents
            .iter()
            .filter(|(pid, parent)| own.contains(parent) && !own.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            return own;
        }
        own.extend(more);
    }
}

fn entries(folder: &str) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

fn lines(file: &str) -> usize {
    fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

/// Those of any Palyra, in every hierarchy.
fn cgroups() -> usize {
    fn below(folder: &Path, ours: bool) -> usize {
        let folders = fs::read_dir(folder).into_iter().flatten().flatten();
        folders
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| {
                let name = entry.file_name();
                let ours = ours || name.to_string_lossy().starts_with("palyra-");
                usize::from(ours) + below(&entry.path(), ours)
            })
            .sum()
    }
    below(Path::new("/sys/fs/cgroup"), false)
}

/// In MiB.
fn resident(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1_024.0
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn report(first: &Count, last: &Count, speed: f64) {
    println!("{CALLS} Tier-C calls, {LANES} at a time, {speed:.0} calls/s");
    let kinds: [(&str, f64, f64, f64); 5] = [
        (
            "descriptors",
            first.descriptors as f64,
            last.descriptors as f64,
            0.0,
        ),
        (
            "processes",
            first.processes as f64,
            last.processes as f64,
            0.0,
        ),
        ("mounts", first.mounts as f64, last.mounts as f64, 0.0),
        ("cgroups", first.cgroups as f64, last.cgroups as f64, 0.0),
        ("memory in MiB", first.memory, last.memory, GROWTH),
    ];
    let (mut rows, mut ratios): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for (name, before, after, bar) in kinds {
        let growth = after - before;
        println!("  {name:<14} {before:>8.1} after 1,000, {after:>8.1} after all: {growth:+.1}");
        rows.push(json!({ "name": name, "value": after, "unit": "" }));
        ratios.push(json!({
            "name": format!("growth of {name}, 1,000 to 10,000 calls"),
            "ratio": growth,
            "bar": bar,
            "kind": "max",
            "ok": growth <= bar,
        }));
    }
    let line = json!({ "bench": "soak", "rows": rows, "ratios": ratios });
    println!("JSON {line}");
}
