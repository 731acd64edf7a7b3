//! What a cage costs real work: a compiler, `git status` on 10,000 files and `grep -r`, each inside
//! Tier-C and outside, in turn.
//!
//! The whole call counts, with building the cage. A table for people, then one line `JSON {…}`.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot run has nothing to say"
)]

#[expect(dead_code, reason = "not every bench needs all that they share")]
mod corridor;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use corridor::{Place, confined};
use palyra_core::{EgressEnforcementMode, ProcessPlan, Tier};
use serde_json::{Value, json};

/// How often each is measured, and how often before that.
const RUNS: usize = 30;
const WARM_UP: usize = 3;

/// How long to wait before each.
const PAUSE: Duration = Duration::from_millis(10);

/// Functions in the program that is compiled.
const FUNCTIONS: usize = 400;

/// Files that git and grep look at, in a tenth as many folders.
const FILES: usize = 10_000;

/// Something people do all day, and how much longer it may take in a cage.
struct Work {
    name: &'static str,
    argv: &'static [&'static str],
    bar: f64,
}

const WORK: [Work; 3] = [
    Work {
        name: "compile",
        argv: &["/usr/bin/gcc", "-O1", "-c", "program.c", "-o", "program.o"],
        bar: 1.05,
    },
    Work {
        name: "git status, 10,000 files",
        argv: &["/usr/bin/git", "status", "--porcelain"],
        bar: 1.15,
    },
    Work {
        name: "grep -r, 10,000 files",
        argv: &["/usr/bin/grep", "-r", "-q", "needle 9999", "tree"],
        bar: 1.25,
    },
];

fn main() {
    corridor::run(measure());
}

async fn measure() {
    let place = Place::new();
    prepare(&place.work);
    let sandbox = place.sandbox().await;
    assert_eq!(sandbox.status().tier_c_why, None);
    let usual = ProcessPlan {
        home: Some("/home/somebody".into()),
        ..place.plan(Tier::C, EgressEnforcementMode::Strict)
    };
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    println!("real work, {RUNS} interleaved runs, median (and middle half)");
    for work in &WORK {
        let program = *work.argv.first().unwrap();
        let plan = ProcessPlan {
            program: program.into(),
            code: corridor::code(program),
            argv: work.argv.iter().map(|&word| word.to_owned()).collect(),
            env: ENVIRONMENT
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            ..usual.clone()
        };
        let (mut outside, mut inside) = (Vec::new(), Vec::new());
        for round in 0..WARM_UP + RUNS {
            tokio::time::sleep(PAUSE).await;
            let free = plain(work.argv, &place.work);
            tokio::time::sleep(PAUSE).await;
            let (caged, _) = confined(&sandbox, plan.clone()).await;
            if round >= WARM_UP {
                outside.push(free);
                inside.push(caged);
            }
        }
        outside.sort();
        inside.sort();
        report(work, &outside, &inside, &mut rows, &mut ratios);
    }
    let line = json!({ "bench": "work", "rows": rows, "ratios": ratios });
    println!("JSON {line}");
    sandbox.shutdown().await;
}

const ENVIRONMENT: [(&str, &str); 2] = [("PATH", "/usr/bin:/bin"), ("LC_ALL", "C")];

/// A program to compile, and a repository of [`FILES`] files with all of them committed.
fn prepare(work: &Path) {
    let mut program = String::new();
    for at in 0..FUNCTIONS {
        writeln!(
            program,
            "int f{at}(int *a, int n) {{ int s = {at}; for (int i = 0; i < n; i++) \
             {{ s += a[i] * {at}; if (s % 7 == {}) s ^= a[n - i - 1]; }} return s; }}",
            at % 7
        )
        .unwrap();
    }
    std::fs::write(work.join("program.c"), program).unwrap();
    for file in 0..FILES {
        let folder = work.join(format!("tree/{}", file / 10));
        if file % 10 == 0 {
            std::fs::create_dir_all(&folder).unwrap();
        }
        let text = format!("needle {file}\n").repeat(20);
        std::fs::write(folder.join(format!("{file}.txt")), text).unwrap();
    }
    let nobody = "user.name=nobody";
    for words in [
        &["git", "init", "-q", "."][..],
        &["git", "add", "tree"],
        &[
            "git",
            "-c",
            nobody,
            "-c",
            "user.email=n@n",
            "commit",
            "-qm",
            "all",
        ],
    ] {
        plain(words, work);
    }
}

/// The same outside: how long it took.
#[expect(clippy::disallowed_methods, reason = "the baseline")]
fn plain(argv: &[&str], folder: &Path) -> Duration {
    let (program, words) = argv.split_first().unwrap();
    let begun = Instant::now();
    let output = std::process::Command::new(program)
        .args(words)
        .current_dir(folder)
        .env_clear()
        .envs(ENVIRONMENT)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let took = begun.elapsed();
    assert!(output.status.success(), "{argv:?}: {output:?}");
    took
}

fn report(
    work: &Work,
    outside: &[Duration],
    inside: &[Duration],
    rows: &mut Vec<Value>,
    ratios: &mut Vec<Value>,
) {
    let at = |all: &[Duration], percent: usize| {
        let index = (all.len() * percent / 100).min(all.len() - 1);
        all.get(index).copied().unwrap_or_default().as_secs_f64() * 1e3
    };
    let ratio = at(inside, 50) / at(outside, 50);
    let (name, bar) = (work.name, work.bar);
    for (place, all) in [("outside", outside), ("tier_c", inside)] {
        let (low, middle, high) = (at(all, 25), at(all, 50), at(all, 75));
        println!("  {name:<26} {place:<8} {middle:>8.2} ms  ({low:.2} to {high:.2})");
        rows.push(json!({ "name": format!("{name}, {place}"), "value": middle, "unit": "ms" }));
    }
    println!("  {name:<26} ratio {ratio:.3} (bar {bar})");
    ratios.push(json!({
        "name": format!("{name}: tier_c / outside"),
        "ratio": ratio,
        "bar": bar,
        "kind": "max",
        "ok": ratio <= bar,
    }));
}
