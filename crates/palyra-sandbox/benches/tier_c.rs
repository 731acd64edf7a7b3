//! What Tier-C costs: `/bin/true` in a cage against the same in bubblewrap, with a filter and the
//! same mounts, and against a plain `posix_spawn`.
//!
//! All run in turn, so that whatever else the machine does meets all alike. Then the same with 2 GiB
//! resident in this process, and eight at once. A table for people, then one line `JSON {…}`.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot run has nothing to say"
)]

mod corridor;

use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use corridor::{Place, confined, rate, spawn};
use palyra_core::{EgressEnforcementMode, EgressRule, ProcessPlan, Tier};
use palyra_sandbox::Sandbox;
use serde_json::{Value, json};

/// How often each is measured, and how often before that.
const RUNS: usize = 300;
const WARM_UP: usize = 30;

/// How many at once, and how many of them.
const LANES: usize = 8;
const AT_ONCE: usize = 800;

/// How long to wait before each.
const PAUSE: Duration = Duration::from_millis(6);

/// How much of bubblewrap's time a cage may take.
const BAR: f64 = 0.6;

/// How many calls a second at least, eight at once on two cores.
const RATE: f64 = 400.0;

/// How much memory the daemon holds in the second part.
const RESIDENT: usize = 2 << 30;

fn main() {
    corridor::run(measure());
}

async fn measure() {
    let place = Place::new();
    let sandbox = place.sandbox().await;
    assert_eq!(sandbox.status().tier_c_why, None);
    let plan = ProcessPlan {
        home: Some("/home/somebody".into()),
        ..place.plan(Tier::C, EgressEnforcementMode::Strict)
    };
    let mut bubblewrap = Bubblewrap::new(&place.work);

    let first = interleaved(&sandbox, &plan, &mut bubblewrap, RUNS).await;
    // Touched, so that it is really there.
    let resident = vec![1_u8; RESIDENT];
    let large = interleaved(&sandbox, &plan, &mut bubblewrap, RUNS / 3).await;
    assert_eq!(resident.last(), Some(&1));
    drop(resident);
    let begun = Instant::now();
    let lanes = (0..LANES).map(|_| async {
        for _ in 0..AT_ONCE / LANES {
            confined(&sandbox, plan.clone()).await;
        }
    });
    futures::future::join_all(lanes).await;
    let at_once = rate(begun, AT_ONCE);
    report(&first, &large, at_once);
    full_workspace(&place, &sandbox, &plan).await;
    with_a_host(&sandbox, &plan).await;
    sandbox.shutdown().await;
}

/// How much longer a call may take that is held to a host, in microseconds.
const DOORS: f64 = 1_000.0;

/// The same call without any network, and held to one host, in turn.
async fn with_a_host(sandbox: &Sandbox, plan: &ProcessPlan) {
    let held = ProcessPlan {
        allowed_egress_hosts: EgressRule::named("example.com").unwrap(),
        ..plan.clone()
    };
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + RUNS {
        tokio::time::sleep(PAUSE).await;
        let (nothing, _) = confined(sandbox, plan.clone()).await;
        tokio::time::sleep(PAUSE).await;
        let (one, layers) = confined(sandbox, held.clone()).await;
        assert!(layers.contains("egress"), "{layers}");
        if round >= WARM_UP {
            without.push(nothing);
            with.push(one);
        }
    }
    without.sort();
    with.sort();
    let (without, with) = (at(&without, 50), at(&with, 50));
    let (more, ratio) = (with - without, with / without);
    println!(
        "  no network {without:.1} µs, one host {with:.1} µs: {more:.1} µs more, {ratio:.2} (bar \
         {DOORS} µs)"
    );
    let row = |name: &str, value: f64| json!({ "name": name, "value": value, "unit": "us" });
    let rows = [row("no network p50", without), row("one host p50", with)];
    let ratios = [json!({
        "name": "tier_c one host - no network p50 (us)",
        "ratio": more,
        "bar": DOORS,
        "kind": "max",
        "ok": more <= DOORS,
    })];
    let line = json!({ "bench": "tier_c egress", "rows": rows, "ratios": ratios });
    println!("JSON {line}");
}

/// How much longer a call may take in a workspace of 10,000 files in 1,000 folders.
const FULL: f64 = 2.0;

/// The same call in an empty workspace and in a full one with secrets in it, in turn.
async fn full_workspace(place: &Place, sandbox: &Sandbox, plan: &ProcessPlan) {
    let work = place.work.with_file_name("full");
    for folder in 0..1_000 {
        let folder = work.join(format!("{}/{folder}", folder % 10));
        std::fs::create_dir_all(&folder).unwrap();
        for file in 0..10 {
            std::fs::write(folder.join(file.to_string()), "").unwrap();
        }
    }
    for name in [".env", "1/1/.env", "2/2/id_rsa", ".bashrc"] {
        std::fs::write(work.join(name), "").unwrap();
    }
    let id = palyra_sandbox::look_at_folder(&work).unwrap().id;
    let full = ProcessPlan {
        cwd: work.clone(),
        cwd_id: id,
        workspace: work,
        workspace_id: id,
        ..plan.clone()
    };
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + RUNS {
        tokio::time::sleep(PAUSE).await;
        let (empty, _) = confined(sandbox, plan.clone()).await;
        tokio::time::sleep(PAUSE).await;
        let (filled, layers) = confined(sandbox, full.clone()).await;
        assert!(layers.contains("guards"), "{layers}");
        if round >= WARM_UP {
            without.push(empty);
            with.push(filled);
        }
    }
    without.sort();
    with.sort();
    let (without, with) = (at(&without, 50), at(&with, 50));
    let ratio = with / without;
    println!(
        "  empty workspace {without:.1} µs, 10,000 files {with:.1} µs: {ratio:.2} (bar {FULL})"
    );
    let row = |name: &str, value: f64| json!({ "name": name, "value": value, "unit": "us" });
    let rows = [row("empty p50", without), row("10,000 files p50", with)];
    let ratios = [json!({
        "name": "tier_c 10,000 files / empty p50",
        "ratio": ratio,
        "bar": FULL,
        "kind": "max",
        "ok": ratio <= FULL,
    })];
    let line = json!({ "bench": "tier_c full workspace", "rows": rows, "ratios": ratios });
    println!("JSON {line}");
}

/// Times of one part, sorted.
struct Times {
    plain: Vec<Duration>,
    theirs: Vec<Duration>,
    ours: Vec<Duration>,
    layers: String,
}

async fn interleaved(
    sandbox: &Sandbox,
    plan: &ProcessPlan,
    bubblewrap: &mut Bubblewrap,
    runs: usize,
) -> Times {
    let mut times = Times {
        plain: Vec::new(),
        theirs: Vec::new(),
        ours: Vec::new(),
        layers: String::new(),
    };
    for round in 0..WARM_UP + runs {
        // What the run before left to do afterwards is not to be counted to this one.
        tokio::time::sleep(PAUSE).await;
        let begun = Instant::now();
        spawn();
        let plain = begun.elapsed();
        tokio::time::sleep(PAUSE).await;
        let begun = Instant::now();
        bubblewrap.run();
        let theirs = begun.elapsed();
        tokio::time::sleep(PAUSE).await;
        let (ours, layers) = confined(sandbox, plan.clone()).await;
        if round >= WARM_UP {
            times.plain.push(plain);
            times.theirs.push(theirs);
            times.ours.push(ours);
            times.layers = layers;
        }
    }
    for all in [&mut times.plain, &mut times.theirs, &mut times.ours] {
        all.sort();
    }
    times
}

/// `bwrap --unshare-all` with a filter and what a cage has. The filter is as short as one can be,
/// which is in its favour.
struct Bubblewrap {
    filter: std::fs::File,
    arguments: Vec<String>,
}

impl Bubblewrap {
    fn new(work: &Path) -> Self {
        let memory = rustix::fs::memfd_create("filter", rustix::fs::MemfdFlags::empty()).unwrap();
        let mut filter = std::fs::File::from(memory);
        // Load the number; `ptrace` is refused; the rest is allowed.
        let program: [(u16, u8, u8, u32); 4] = [
            (0x20, 0, 0, 0),
            (0x15, 0, 1, 101),
            (0x06, 0, 0, 0x0005_0001),
            (0x06, 0, 0, 0x7fff_0000),
        ];
        for (code, jt, jf, k) in program {
            filter.write_all(&code.to_ne_bytes()).unwrap();
            filter.write_all(&[jt, jf]).unwrap();
            filter.write_all(&k.to_ne_bytes()).unwrap();
        }
        let mut arguments: Vec<String> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(|&word| word.to_owned()));
        add(&[
            "--unshare-all",
            "--die-with-parent",
            "--new-session",
            "--clearenv",
        ]);
        add(&["--cap-drop", "ALL"]);
        for path in [
            "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt",
        ] {
            let Ok(found) = std::fs::symlink_metadata(path) else {
                continue;
            };
            if found.is_symlink() {
                let to = std::fs::read_link(path).unwrap();
                add(&["--symlink", to.to_str().unwrap(), path]);
            } else {
                add(&["--ro-bind", path, path]);
            }
        }
        add(&["--dev", "/dev", "--proc", "/proc"]);
        for path in ["/tmp", "/var/tmp", "/dev/shm", "/home/somebody"] {
            add(&["--tmpfs", path]);
        }
        let work = work.to_str().unwrap();
        add(&["--bind", work, work, "--chdir", work]);
        add(&[
            "--seccomp",
            &filter.as_raw_fd().to_string(),
            "--",
            "/bin/true",
        ]);
        Self { filter, arguments }
    }

    #[expect(clippy::disallowed_methods, reason = "the baseline")]
    fn run(&mut self) {
        self.filter.seek(SeekFrom::Start(0)).unwrap();
        let status = std::process::Command::new("bwrap")
            .args(&self.arguments)
            .status();
        let worked = status.is_ok_and(|status| status.success());
        assert!(
            worked,
            "bwrap does not run; to add it: apt install bubblewrap"
        );
    }
}

/// Microseconds.
fn at(all: &[Duration], percent: usize) -> f64 {
    let index = (all.len() * percent / 100).min(all.len() - 1);
    all.get(index).copied().unwrap_or_default().as_secs_f64() * 1e6
}

fn report(first: &Times, large: &Times, at_once: f64) {
    println!(
        "Tier-C /bin/true, {RUNS} interleaved runs; layers: {}",
        first.layers
    );
    let mut rows: Vec<Value> = Vec::new();
    let mut ratios: Vec<Value> = Vec::new();
    for (part, times) in [("", first), (", 2 GiB resident", large)] {
        for (name, all) in [
            ("posix_spawn", &times.plain),
            ("bwrap", &times.theirs),
            ("tier_c", &times.ours),
        ] {
            let (p50, p95) = (at(all, 50), at(all, 95));
            println!("  {name}{part:<18} p50 {p50:>9.1} µs   p95 {p95:>9.1} µs");
            for (percent, value) in [("p50", p50), ("p95", p95)] {
                let name = format!("{name} {percent}{part}");
                rows.push(json!({ "name": name, "value": value, "unit": "us" }));
            }
        }
        let ratio = at(&times.ours, 50) / at(&times.theirs, 50);
        let plain = at(&times.ours, 50) / at(&times.plain, 50);
        println!("  ratio p50 {ratio:.2} of bwrap (bar {BAR}), {plain:.2} of posix_spawn");
        ratios.push(json!({
            "name": format!("tier_c / bwrap p50{part}"),
            "ratio": ratio,
            "bar": BAR,
            "kind": "max",
            "ok": ratio <= BAR,
        }));
    }
    println!("  {LANES} at once: {at_once:.0} calls/s");
    rows.push(json!({ "name": "tier_c 8 at once", "value": at_once, "unit": "1/s" }));
    ratios.push(json!({
        "name": "tier_c calls/s, 8 at once",
        "ratio": at_once,
        "bar": RATE,
        "kind": "min",
        "ok": at_once >= RATE,
    }));
    let line = json!({ "bench": "tier_c", "rows": rows, "ratios": ratios });
    println!("JSON {line}");
}
