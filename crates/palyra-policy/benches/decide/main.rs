//! What a decision costs, beside Cedar alone on the same questions.
//!
//! Ours is everything between facts and answer: looking up who and what is meant, building the
//! context and the entities of a path or a host, validating the request against the schema,
//! evaluating, and naming the policies. The baseline is `Authorizer::is_authorized` on the same
//! question, ten policies and entities, all built beforehand. They take turns, and the figures are
//! medians.
//!
//! ```text
//! questions   one on a tool, a path, a host among 10, 1,000 and 10,000 policies
//! calls       each kind of answer, and `git status | head` with all its questions
//! reload      10,000 policies taken into use while another thread decides
//! memory      what a process grows by with 10,000 policies
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops at the first surprise"
)]

mod report;
mod world;

use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cedar_policy::{Authorizer, PolicySet, Request, Schema, ValidationMode, Validator};
use palyra_core::corridor::Decides as _;
use palyra_core::{ApprovalId, Effect, Facts, Grant};
use palyra_policy::operator::{Bundle, Replay};
use palyra_policy::{
    Action, PolicyEngine, PolicyRequest, PolicyRequestContext, RawQuestions, Resource, SCHEMA_SRC,
};

use crate::report::{Report, in_turn, median};
use crate::world::{
    NOW, agent, bundle, engine, everybody, facts, git_status_head, owner, sources, tool,
};

/// A question on a tool may cost at most this much more than Cedar alone over ten policies.
const TOOL_BAR: f64 = 3.0;
/// One on a path or a host, whose entity and ancestors are made for it.
const PLACE_BAR: f64 = 6.0;
/// At 10,000 policies a question may cost at most this much more than at 10.
const GROWTH_BAR: f64 = 1.5;
/// And Cedar alone over all of them must take at least this many times as long.
const WHOLE_BAR: f64 = 200.0;
/// A call may cost at most this much more than its questions one by one.
const CALL_BAR: f64 = 1.2;
/// Reloading may take at most this much more than parsing and validating.
const RELOAD_BAR: f64 = 1.3;
/// How many MiB a process may grow by with 10,000 policies.
const MEMORY_BAR: f64 = 150.0;
const SIZES: [usize; 3] = [10, 1_000, 10_000];
const ROUNDS: usize = 400;
const BATCH: u32 = 25;
const RELOADS: usize = 5;
/// The argument with which this program measures its own growth and prints it.
const GROW: &str = "--grow";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == GROW) {
        return grow();
    }
    // `cargo bench` says `--bench`; a part of it runs by itself when it is named.
    let parts: Vec<&String> = arguments.iter().filter(|it| !it.starts_with('-')).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|it| *it == part);
    let mut report = Report::default();
    if wanted("questions") || wanted("calls") {
        let bundles = SIZES.map(bundle);
        let engines = bundles.each_ref().map(engine);
        if wanted("questions") {
            questions(&engines, &mut report);
        }
        if wanted("calls") {
            calls(&engines, &bundles, &mut report);
        }
    }
    if wanted("reload") {
        reload(&mut report);
    }
    if wanted("memory") {
        memory(&mut report);
    }
    report.finish();
}

/// One question by itself, on each kind of thing, among ever more policies.
fn questions(engines: &[PolicyEngine; 3], report: &mut Report) {
    println!("one question, medians of {ROUNDS} rounds of {BATCH}");
    let path = "/home/ada/src/project/src/main.rs";
    let host = "api.git.example.com";
    let sensitive = tool("tool.3", true);
    let read = Effect::FsRead { path: path.into() };
    let connect = Effect::NetConnect {
        host: host.parse().unwrap(),
        port: Some(443),
    };
    let on_tool = Resource::Tool(sensitive.name.clone());
    let on_host = Resource::Host(host.parse().unwrap());
    let subjects = [
        ("tool", Action::ToolExecute, on_tool, None, TOOL_BAR),
        (
            "path",
            Action::FsRead,
            Resource::Path(path.into()),
            Some(read),
            PLACE_BAR,
        ),
        (
            "host",
            Action::NetConnect,
            on_host,
            Some(connect),
            PLACE_BAR,
        ),
    ];
    for (name, action, resource, effect, bar) in subjects {
        let facts = facts(&agent(), &sensitive, effect.into_iter().collect());
        let request = PolicyRequest {
            principal: agent(),
            action,
            resource,
        };
        question(engines, (name, bar), &facts, &request, report);
    }
}

fn question(
    engines: &[PolicyEngine; 3],
    (name, bar): (&str, f64),
    facts: &Facts,
    request: &PolicyRequest,
    report: &mut Report,
) {
    let context = PolicyRequestContext::from(facts);
    let ask = |engine: &PolicyEngine| {
        let context = black_box(&context);
        let decision = engine
            .evaluate_with_context(black_box(request), context)
            .unwrap();
        assert!(!black_box(decision).allowed);
    };
    let [ten, thousand, most] = engines;
    let authorizer = Authorizer::new();
    let few = Raw::of(ten, facts, request.action);
    let medians = in_turn(
        ROUNDS,
        BATCH,
        &mut [
            &mut || few.ask(&authorizer),
            &mut || ask(ten),
            &mut || ask(thousand),
            &mut || ask(most),
        ],
    );
    let [raw, ours @ ..] = medians.as_slice() else {
        return;
    };
    report.row(&format!("on a {name}, 10 policies, raw cedar"), *raw, "us");
    for (size, cost) in SIZES.iter().zip(ours) {
        report.row(&format!("on a {name}, {size} policies, ours"), *cost, "us");
        let promise = format!("on a {name}, {size} policies, to raw over 10");
        report.at_most(&promise, cost / raw, bar);
    }
    let [at_ten, _, at_most] = *ours else {
        return;
    };
    report.at_most(
        &format!("on a {name}, growth from 10 to 10,000"),
        at_most / at_ten,
        GROWTH_BAR,
    );
    let all = Raw::of(most, facts, request.action);
    let medians = in_turn(9, 1, &mut [&mut || all.ask(&authorizer)]);
    let whole = medians.first().copied().unwrap();
    report.row(
        &format!("on a {name}, 10000 policies, raw cedar"),
        whole,
        "us",
    );
    report.at_least(
        &format!("on a {name}, raw over 10,000 to ours"),
        whole / at_most,
        WHOLE_BAR,
    );
}

/// One question as Cedar gets it, everything built beforehand.
struct Raw {
    questions: RawQuestions,
    request: Request,
}

impl Raw {
    fn of(engine: &PolicyEngine, facts: &Facts, action: Action) -> Self {
        let questions = engine.raw_questions(facts).unwrap();
        let mut all = questions.requests.iter();
        let is_it =
            |request: &&Request| request.action().unwrap().id().unescaped() == action.as_str();
        let request = all.find(is_it).unwrap().clone();
        Self { questions, request }
    }

    fn ask(&self, authorizer: &Authorizer) {
        let RawQuestions {
            policies, entities, ..
        } = &self.questions;
        black_box(authorizer.is_authorized(black_box(&self.request), policies, entities));
    }
}

/// Whole calls: each kind of answer on a tool, and a real one with its effects.
fn calls(engines: &[PolicyEngine; 3], bundles: &[Bundle; 3], report: &mut Report) {
    println!("calls, medians of {ROUNDS} rounds of {BATCH}");
    let [_, _, most] = engines;
    let (plain, sensitive) = (tool("tool.2", false), tool("tool.3", true));
    let asked = facts(&agent(), &sensitive, Vec::new());
    let grant = Grant {
        approval: ApprovalId::mint(NOW),
        standing: None,
        scope: None,
        agent: "agent-7".parse().unwrap(),
        digest: *asked.digest(),
        not_after: NOW.plus(Duration::from_secs(600)),
        people: 1,
    };
    for (name, facts) in [
        ("owner runs", facts(&owner(), &sensitive, Vec::new())),
        ("agent runs", facts(&agent(), &plain, Vec::new())),
        ("agent asks", asked.clone()),
        ("agent runs granted", asked.with_grant(grant, NOW)),
    ] {
        call(engines, name, &facts, report);
    }
    let real = facts(&agent(), &sensitive, git_status_head());
    call(engines, "git status | head asks", &real, report);
    let everybody = everybody();
    let mut next = everybody.iter().cycle();
    let medians = in_turn(
        ROUNDS,
        BATCH,
        &mut [&mut || drop(black_box(most.deliberate(next.next().unwrap()).unwrap()))],
    );
    let varied = medians.first().copied().unwrap();
    report.row(
        "every agent with every tool in turn, 10000 policies",
        varied,
        "us",
    );
    let mut replay = Replay::of(&bundles[2]).unwrap();
    let medians = in_turn(
        ROUNDS,
        BATCH,
        &mut [
            &mut || drop(black_box(most.deliberate(&real).unwrap())),
            &mut || drop(black_box(replay.decide(&real).unwrap())),
        ],
    );
    let [_, again] = *medians.as_slice() else {
        return;
    };
    report.row("git status | head, 10000 policies, replayed", again, "us");
}

/// A call beside its questions one by one, both among 10,000 policies.
fn call(engines: &[PolicyEngine; 3], name: &str, facts: &Facts, report: &mut Report) {
    let [ten, _, most] = engines;
    let asked = most.deliberate(facts).unwrap().asked;
    let raw = ten.raw_questions(facts).unwrap();
    let context = PolicyRequestContext::from(facts);
    let single: Vec<PolicyRequest> = asked.iter().map(|it| it.request()).collect();
    let authorizer = Authorizer::new();
    let medians = in_turn(
        ROUNDS,
        BATCH,
        &mut [
            &mut || drop(black_box(most.answer(black_box(facts)).unwrap())),
            &mut || {
                for request in &single {
                    black_box(most.evaluate_with_context(request, &context).unwrap());
                }
            },
            &mut || {
                for request in &raw.requests {
                    black_box(authorizer.is_authorized(request, &raw.policies, &raw.entities));
                }
            },
        ],
    );
    let [whole, one_by_one, alone] = *medians.as_slice() else {
        return;
    };
    let count = asked.len();
    report.row(
        &format!("{name}, {count} questions, 10000 policies, ours"),
        whole,
        "us",
    );
    report.row(
        &format!("{name}, {count} questions one by one, ours"),
        one_by_one,
        "us",
    );
    report.row(
        &format!("{name}, {count} questions, 10 policies, raw cedar"),
        alone,
        "us",
    );
    report.at_most(
        &format!("{name}, to its {count} questions"),
        whole / one_by_one,
        CALL_BAR,
    );
}

/// Ten thousand policies taken into use, beside parsing and validating them, while another thread
/// decides without pause.
fn reload(report: &mut Report) {
    println!("reload of 10,000 policies, medians of {RELOADS}");
    let (ten, rules) = sources(10_000);
    let engine = engine(&Bundle::load(&ten, &rules).unwrap());
    let (schema, _) = Schema::from_cedarschema_str(SCHEMA_SRC).unwrap();
    let text: String = std::iter::once(&ten)
        .chain(&rules)
        .map(|it| it.text.as_str())
        .collect();
    let real = facts(&agent(), &tool("tool.3", true), git_status_head());
    let (done, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut ours, mut alone) = (Vec::new(), Vec::new());
    let (mut during_ours, mut during_alone) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let start = Instant::now();
                black_box(engine.deliberate(&real).unwrap());
                let took = u64::try_from(start.elapsed().as_micros()).unwrap();
                longest.fetch_max(took, Ordering::Relaxed);
            }
        });
        for _ in 0..RELOADS {
            longest.store(0, Ordering::Relaxed);
            let start = Instant::now();
            engine
                .replace(&Bundle::load(&ten, &rules).unwrap())
                .unwrap();
            ours.push(start.elapsed());
            during_ours = longest.swap(0, Ordering::Relaxed).max(during_ours);
            let start = Instant::now();
            let set: PolicySet = text.parse().unwrap();
            let validator = Validator::new(schema.clone());
            let result = validator.validate_with_level(&set, ValidationMode::Strict, 1);
            assert!(result.validation_passed());
            drop(black_box((set, result)));
            alone.push(start.elapsed());
            during_alone = longest.swap(0, Ordering::Relaxed).max(during_alone);
        }
        done.store(true, Ordering::Relaxed);
    });
    let [ours, alone] = [ours, alone].map(|times| median(times).as_secs_f64() * 1e3);
    report.row("reload of 10000 policies, ours", ours, "ms");
    report.row("parse and validate 10000 policies, raw cedar", alone, "ms");
    report.at_most("reload of 10,000 policies", ours / alone, RELOAD_BAR);
    report.row(
        "longest decision of a call during our reloads",
        during_ours as f64 / 1e3,
        "ms",
    );
    report.row(
        "longest decision of a call during raw parsing",
        during_alone as f64 / 1e3,
        "ms",
    );
}

/// What a process of its own grows by: this one has had too much in its hands already.
fn memory(report: &mut Report) {
    println!("memory");
    #[expect(
        clippy::disallowed_methods,
        reason = "the bench starts itself, and nothing else"
    )]
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.arg(GROW).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut figures = text.split_whitespace().map(|it| it.parse::<f64>().unwrap());
    let (first, reloaded) = (figures.next().unwrap(), figures.next().unwrap());
    report.row("grown by with 10000 policies", first, "MiB");
    report.row("grown by after five reloads", reloaded, "MiB");
    report.at_most("MiB that 10,000 policies take", first, MEMORY_BAR);
    report.at_most(
        "MiB that they take after five reloads",
        reloaded,
        MEMORY_BAR,
    );
}

/// Loads ten thousand policies, decides with them, and prints by how many MiB this process grew.
fn grow() {
    let small = engine(&bundle(10));
    let real = facts(&agent(), &tool("tool.3", true), git_status_head());
    black_box(small.deliberate(&real).unwrap());
    let (ten, rules) = sources(10_000);
    let before = resident();
    let bundle = Bundle::load(&ten, &rules).unwrap();
    let large = engine(&bundle);
    for call in everybody() {
        black_box(large.deliberate(&call).unwrap());
    }
    let grown = resident() - before;
    drop(bundle);
    for _ in 0..5 {
        large.replace(&Bundle::load(&ten, &rules).unwrap()).unwrap();
        black_box(large.deliberate(&real).unwrap());
    }
    println!("{grown:.1} {:.1}", resident() - before);
}

/// Resident memory in MiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024.0
}
