//! What an answer costs: from a person's yes to the start of the call, the first page and the memory of
//! an inbox of 10,000 questions, and a decision where 10,000 grants are in force.
//!
//! One agent may leave 20 questions, and ask 60 in a minute. `[floods]` and `[budget]` are raised here,
//! so that a hundred agents have asked 10,000 within seconds; everything else is as usual. Those left
//! by callers who do not wait come first, and are what becomes grants; 10,000 callers who wait come on
//! top of them.
//!
//! `PALYRA_APPROVALS` sets another number than 10,000, of more than a page.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark prints, and stops at the first thing that is not as it should be"
)]

mod house;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use house::{House, KEY, PAUSE, executed, heard, median};
use palyra_approval::LiveGrants;
use palyra_core::corridor::{Decides as _, PolicyAnswer};
use palyra_core::{
    Clock as _, DigestKey, Facts, GrantId, GrantTerms, Reach, SystemClock, UserName,
};
use palyra_gateway::{CallReport, Caller};
use palyra_policy::PolicyEngine;
use serde_json::{Value, json};

/// Questions that wait, and grants in force.
const MANY: usize = 10_000;
/// Asked and withdrawn before memory is looked at.
const WITHDRAWN: usize = 1_000;
/// How often each is measured, and how often before that.
const ANSWERS: usize = 100;
const PAGES: usize = 200;
const DECISIONS: usize = 2_000;
const WARM_UP: usize = 20;

/// From a yes to the start, and a first page, in milliseconds.
const START_BAR: f64 = 5.0;
const PAGE_BAR: f64 = 50.0;
/// What 10,000 questions take, in MiB.
const MEMORY_BAR: f64 = 50.0;
/// What 10,000 grants may slow a decision by.
const GRANTS_BAR: f64 = 1.5;

fn main() {
    let many = std::env::var("PALYRA_APPROVALS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(MANY);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::spawn(measure(many)).await.unwrap() });
}

async fn measure(many: usize) {
    let mut table = Table::default();
    let house = House::open().await;
    let (start, output) = house.answers(WARM_UP, ANSWERS).await;
    table.row("a yes to the call's start, p50", start, "ms");
    table.row("a yes to the program's first output, p50", output, "ms");
    table.bar("a yes to the start / 5 ms", start / START_BAR, 1.0);

    let agents = house.agents().await;
    withdrawn(&house, &agents).await;
    let before = resident_mib();
    let left = house.leave(&agents, many).await;
    let inbox = resident_mib() - before;
    assert_eq!(house.pending(), many);
    table.row("questions that were left, resident", inbox, "MiB");
    table.bar("10,000 left questions / 50 MiB", inbox / MEMORY_BAR, 1.0);
    let page = house.first_page(PAGES);
    table.row("first page, p50", page, "ms");
    table.bar("first page of 10,000 / 50 ms", page / PAGE_BAR, 1.0);

    let before = resident_mib();
    let waiting = house.wait(&agents, many).await;
    let waited = resident_mib() - before;
    assert_eq!(house.pending(), 2 * many);
    table.row("calls that wait for a person, resident", waited, "MiB");
    table.bar("10,000 waiting calls / 50 MiB", waited / MEMORY_BAR, 1.0);
    drop(waiting);
    house.idle().await;

    house.grant_all(left).await;
    assert_eq!(house.pending(), 0);
    house.under_grants(many, &mut table).await;
    house.gateway.stop(Duration::ZERO).await;
    table.print();
}

impl House {
    /// A call for which there is a grant from now on, as it ran under it.
    async fn covered(&self) -> Arc<CallReport> {
        let (id, call) = self.ask(&self.agent, COVERED).await;
        self.allow(&id, Reach::Window).await;
        executed(&call.finish().await.unwrap());
        let call = self.propose(&self.agent, COVERED, false).await;
        let report = call.finish().await.unwrap();
        executed(&report);
        assert_eq!(report.approval, None, "nobody is asked any more");
        report
    }

    /// From proposing a call that a grant covers to its start.
    async fn permitted(&self) -> Duration {
        tokio::time::sleep(PAUSE).await;
        let begun = Instant::now();
        let call = self.propose(&self.agent, COVERED, false).await;
        let (started, _) = heard(call).await;
        started - begun
    }

    /// Decisions here, where so many grants are in force, beside those where there is one or none.
    async fn under_grants(&self, many: usize, table: &mut Table) {
        let one = Self::open().await;
        let (report, _) = (self.covered().await, one.covered().await);
        let (mut few, mut lots) = (Vec::new(), Vec::new());
        for round in 0..WARM_UP + ANSWERS {
            let (alone, among) = (one.permitted().await, self.permitted().await);
            if round >= WARM_UP {
                few.push(alone);
                lots.push(among);
            }
        }
        one.gateway.stop(Duration::ZERO).await;
        let (few, lots) = (median(&mut few), median(&mut lots));
        table.row("proposed to started under the only grant, p50", few, "ms");
        table.row("the same among 10,000, p50", lots, "ms");
        table.bar("started under one grant of 10,000", lots / few, GRANTS_BAR);

        let record = self.gateway.call_record(&self.owner, report.call.as_str());
        let mut facts: Facts = serde_json::from_value(record.unwrap().facts.unwrap()).unwrap();
        let used = facts.grant.take().and_then(|grant| grant.standing).unwrap();
        let used = self.gateway.grant(&self.owner, used.as_str()).unwrap();
        let engine = PolicyEngine::standard().unwrap();
        engine
            .set_tools(&self.gateway.tools(&self.owner).unwrap())
            .unwrap();
        let name = self.agent.principal.agent().unwrap().clone();
        engine.set_agents([(name, UserName::owner())]).unwrap();
        decisions(&engine, &facts, &used.record.terms, many, table);
    }
}

/// What is granted in the last part.
const COVERED: &str = "covered";

/// The lookup and Cedar alone, in turns: with no grant and with so many that do not cover the call,
/// and under a grant that is the only one or among as many.
fn decisions(
    engine: &PolicyEngine,
    facts: &Facts,
    own: &GrantTerms,
    many: usize,
    table: &mut Table,
) {
    let now = SystemClock.now();
    let key = DigestKey::from_bytes(KEY);
    let live = |others: usize, with_own: bool| {
        let mut live = LiveGrants::default();
        for number in 0..others {
            let other = GrantTerms {
                id: GrantId::mint(now),
                key: key.scope_key(&[&number.to_le_bytes()]),
                ..own.clone()
            };
            live.insert(other, now, Instant::now());
        }
        if with_own {
            live.insert(own.clone(), now, Instant::now());
        }
        assert_eq!(live.len(), others + usize::from(with_own));
        live
    };
    let mut sides = [(0, false), (many, false), (0, true), (many, true)]
        .map(|(others, with_own)| (live(others, with_own), with_own, Vec::new()));
    for round in 0..WARM_UP + DECISIONS {
        for (live, runs, taken) in &mut sides {
            let begun = Instant::now();
            let mut facts = facts.clone();
            if let Some(grant) = live.find(&facts, now, Instant::now()) {
                facts = facts.with_grant(grant, now);
            }
            let answer = black_box(engine.answer(&facts));
            let one = begun.elapsed();
            match answer.unwrap() {
                PolicyAnswer::Run { .. } => assert!(*runs),
                PolicyAnswer::Ask { .. } => assert!(!*runs),
                PolicyAnswer::Deny { denial, .. } => panic!("{}", denial.reason),
            }
            if round >= WARM_UP {
                taken.push(one);
            }
        }
    }
    let [none, uncovered, alone, among] = sides.map(|(_, _, mut taken)| median(&mut taken) * 1e3);
    table.row("looked up and decided, no grant, p50", none, "us");
    table.row("none of 10,000 covers it, p50", uncovered, "us");
    table.row("the only grant covers it, p50", alone, "us");
    table.row("one of 10,000 covers it, p50", among, "us");
    let name = "decided with 10,000 grants / with none";
    table.bar(name, uncovered / none, GRANTS_BAR);
    let name = "decided under one of 10,000 / the only one";
    table.bar(name, among / alone, GRANTS_BAR);
}

/// Asked and withdrawn, so that what is kept for later use is there before memory is looked at.
async fn withdrawn(house: &House, agents: &Arc<Vec<Caller>>) {
    drop(house.wait(agents, WITHDRAWN).await);
    house.idle().await;
    assert_eq!(house.pending(), 0);
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let line = lines.find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1_024.0
}

/// What was measured, and what was promised of it.
#[derive(Default)]
struct Table {
    rows: Vec<Value>,
    ratios: Vec<Value>,
}

impl Table {
    fn row(&mut self, name: &str, value: f64, unit: &str) {
        println!("{name:<48} {value:>10.3} {unit}");
        self.rows
            .push(json!({ "name": name, "value": value, "unit": unit }));
    }

    fn bar(&mut self, name: &str, ratio: f64, bar: f64) {
        let ok = ratio <= bar;
        let verdict = if ok { "ok" } else { "MISSED" };
        println!("  {name:<46} {ratio:>10.3} x  (max {bar}) {verdict}");
        self.ratios
            .push(json!({ "name": name, "ratio": ratio, "bar": bar, "kind": "max", "ok": ok }));
    }

    fn print(&self) {
        let (rows, ratios) = (&self.rows, &self.ratios);
        let line = json!({ "bench": "approvals", "rows": rows, "ratios": ratios });
        println!("JSON {line}");
    }
}
