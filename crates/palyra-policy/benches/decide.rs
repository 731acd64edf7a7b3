//! What a decision costs, beside Cedar alone on the same questions.
//!
//! Ours is everything between facts and answer: looking up who and what is meant, building the
//! context, validating each request against the schema, evaluating, and naming the policies. The
//! baseline is `Authorizer::is_authorized` on the same requests, policies and entities, all built
//! beforehand. The two take turns, and the figures are medians per question.
//!
//! Then the same calls among 10, 1,000 and 10,000 policies: the cost of a question beside Cedar
//! alone over ten policies, how it grows, and what Cedar alone takes over all of them. And what a
//! reload of 10,000 policies takes, beside parsing and validating alone.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops at the first surprise"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use cedar_policy::{Authorizer, PolicySet, Schema, ValidationMode, Validator};
use palyra_core::corridor::Decides as _;
use palyra_core::facts::Origin;
use palyra_core::{
    ApprovalId, CallId, CanonicalJson, Channel, DeviceId, DigestKey, Effect, Facts, Grant, Limits,
    Principal, ProgramFacts, ProgramGroup, ReplyPlan, Risk, RiskLevel, RunId, Tier, Timestamp,
    ToolCapability, ToolMetadata, ToolProposal, Understanding, UserName,
};
use palyra_policy::{DEFAULT_POLICY_SRC, PolicyEngine, SCHEMA_SRC};

/// Ours may cost at most this much more than Cedar alone.
const BAR: f64 = 3.0;
/// At 10,000 policies a question may cost at most this much more than at 10.
const GROWTH_BAR: f64 = 1.5;
/// And Cedar alone over all of them must take at least this many times as long.
const WHOLE_BAR: f64 = 200.0;
/// Reloading may take at most this much more than parsing and validating.
const RELOAD_BAR: f64 = 1.3;
const SIZES: [usize; 3] = [10, 1_000, 10_000];
const ROUNDS: usize = 400;
const BATCH: usize = 25;
const RELOADS: usize = 5;
const NOW: Timestamp = Timestamp::from_millis(1_794_733_261_042);

fn main() {
    let mut report = Report::default();
    baseline(&mut report);
    sizes(&mut report);
    reload(&mut report);
    let Report { rows, ratios } = report;
    let report = serde_json::json!({"bench": "decide", "rows": rows, "ratios": ratios});
    println!("JSON {report}");
}

#[derive(Default)]
struct Report {
    rows: Vec<serde_json::Value>,
    ratios: Vec<serde_json::Value>,
}

impl Report {
    fn row(&mut self, name: String, value: f64, unit: &str) {
        self.rows
            .push(serde_json::json!({"name": name, "value": value, "unit": unit}));
    }

    /// At most the bar.
    fn at_most(&mut self, name: String, ratio: f64, bar: f64) {
        self.ratio(name, ratio, bar, "max", ratio <= bar);
    }

    /// At least the bar.
    fn at_least(&mut self, name: String, ratio: f64, bar: f64) {
        self.ratio(name, ratio, bar, "min", ratio >= bar);
    }

    fn ratio(&mut self, name: String, ratio: f64, bar: f64, kind: &str, ok: bool) {
        let word = if ok { "ok" } else { "MISSED" };
        println!("  {name}: {ratio:.2} ({kind} {bar}) {word}");
        self.ratios.push(serde_json::json!({
            "name": name, "ratio": ratio, "bar": bar, "kind": kind, "ok": ok,
        }));
    }
}

/// The standard baseline, each kind of answer.
fn baseline(report: &mut Report) {
    let engine = engine(DEFAULT_POLICY_SRC);
    println!("decide, per question, medians of {ROUNDS} rounds of {BATCH}");
    println!(
        "{:<20} {:>9} {:>12} {:>12}",
        "call", "questions", "ours µs", "cedar µs"
    );
    for (name, facts) in cases() {
        let (questions, ours, raw) = compare(&engine, &facts);
        println!("{name:<20} {questions:>9} {ours:>12.2} {raw:>12.2}");
        report.row(format!("{name}, ours"), ours, "us/question");
        report.row(format!("{name}, raw cedar"), raw, "us/question");
        report.at_most(format!("decide, {name}"), ours / raw, BAR);
    }
}

/// A call of an agent to a sensitive tool, among ever more policies.
fn sizes(report: &mut Report) {
    let sources = SIZES.map(policies);
    let engines = sources.each_ref().map(|source| engine(source));
    let [ten, _, _] = &engines;
    let (_, facts) = cases().into_iter().nth(2).unwrap();
    let raw = ten.raw_questions(&facts).unwrap();
    let questions = raw.requests.len() as f64;
    let authorizer = Authorizer::new();
    let mut alone = Vec::new();
    let mut ours = SIZES.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (engine, times) in engines.iter().zip(&mut ours) {
            times.push(time(|| {
                black_box(engine.answer(black_box(&facts)).unwrap());
            }));
        }
        alone.push(time(|| {
            for request in &raw.requests {
                black_box(authorizer.is_authorized(request, &raw.policies, &raw.entities));
            }
        }));
    }
    let each = |times: Vec<Duration>| per_question(times, BATCH, questions);
    let alone = each(alone);
    report.row("10 policies, raw cedar".to_owned(), alone, "us/question");
    let ours = ours.map(each);
    println!("raw cedar over 10 policies: {alone:.2} µs/question, ours {ours:.2?}");
    for (size, cost) in SIZES.iter().zip(ours) {
        report.row(format!("{size} policies, ours"), cost, "us/question");
        let name = format!("decide on a tool, {size} policies to raw over 10");
        report.at_most(name, cost / alone, BAR);
    }
    let [at_ten, _, at_most] = ours;
    report.at_most(
        "growth from 10 to 10,000 policies".to_owned(),
        at_most / at_ten,
        GROWTH_BAR,
    );
    let [_, _, large] = &engines;
    let raw = large.raw_questions(&facts).unwrap();
    let whole = (0..8).map(|_| {
        let start = Instant::now();
        for request in &raw.requests {
            black_box(authorizer.is_authorized(request, &raw.policies, &raw.entities));
        }
        start.elapsed()
    });
    let whole = per_question(whole.collect(), 1, questions);
    println!("raw cedar over 10,000 policies: {whole:.0} µs/question");
    report.row("10000 policies, raw cedar".to_owned(), whole, "us/question");
    report.at_least(
        "raw over 10,000 policies to ours".to_owned(),
        whole / at_most,
        WHOLE_BAR,
    );
}

/// Ten thousand policies taken into use, beside parsing and validating them.
fn reload(report: &mut Report) {
    let source = policies(10_000);
    let engine = engine(&source);
    let (schema, _) = Schema::from_cedarschema_str(SCHEMA_SRC).unwrap();
    let (mut ours, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..RELOADS {
        let start = Instant::now();
        engine.replace_policies(&source).unwrap();
        ours.push(start.elapsed());
        let start = Instant::now();
        let set: PolicySet = source.parse().unwrap();
        let validator = Validator::new(schema.clone());
        let result = validator.validate_with_level(&set, ValidationMode::Strict, 1);
        assert!(result.validation_passed());
        drop(black_box((set, result)));
        alone.push(start.elapsed());
    }
    let [ours, alone] = [ours, alone].map(|times| median(times).as_secs_f64() * 1e3);
    println!("reload of 10,000 policies: {ours:.0} ms, parse and validate {alone:.0} ms");
    report.row("reload of 10000 policies, ours".to_owned(), ours, "ms");
    report.row(
        "parse and validate 10000 policies, raw cedar".to_owned(),
        alone,
        "ms",
    );
    let name = "reload of 10,000 policies".to_owned();
    report.at_most(name, ours / alone, RELOAD_BAR);
}

/// The ten that decide about every call, and then rules about single agents and tools.
fn policies(count: usize) -> String {
    let ten = include_str!("ten.cedar");
    let rules = (0..count - 10).map(|number| {
        let (agent, tool) = (number % AGENTS, number / AGENTS % TOOLS);
        let (effect, condition) = match number % 3 {
            0 => ("forbid", format!("context.calls_last_minute > {}", 100 + number)),
            1 => ("permit", format!("context.tier >= 3 && context.calls_last_minute < {number}")),
            _ => ("permit", "context.capabilities.contains(\"network\") && context has grant".to_owned()),
        };
        let verb = if number % 2 == 0 { "run" } else { "ask" };
        format!(
            "@id(\"rule-{number}\") @reason(\"rule {number}\")\n{effect} (principal == Palyra::Agent::\"agent-{agent}\", action in Palyra::Action::\"{verb}\", resource == Palyra::Tool::\"tool.{tool}\")\nwhen {{ {condition} }};\n"
        )
    });
    std::iter::once(ten.to_owned()).chain(rules).collect()
}

const AGENTS: usize = 100;
const TOOLS: usize = 50;

fn engine(source: &str) -> PolicyEngine {
    let engine = PolicyEngine::new(source).unwrap();
    let tools: Vec<ToolMetadata> = (0..TOOLS)
        .map(|number| tool(&format!("tool.{number}"), number % 2 == 1))
        .collect();
    engine.set_tools(&tools).unwrap();
    let agents = (0..AGENTS).map(|number| (format!("agent-{number}").parse().unwrap(), owner()));
    engine.set_agents(agents).unwrap();
    engine
}

/// One call for each kind of answer.
fn cases() -> [(&'static str, Facts); 4] {
    let person = Principal::User { name: owner() };
    let agent = Principal::Agent {
        name: "agent-7".parse().unwrap(),
        user: owner(),
    };
    let (plain, sensitive) = (tool("tool.2", false), tool("tool.3", true));
    let asked = facts(&agent, &sensitive);
    let grant = Grant {
        approval: ApprovalId::mint(NOW),
        agent: "agent-7".parse().unwrap(),
        digest: *asked.digest(),
        not_after: NOW.plus(Duration::from_secs(600)),
        people: 1,
    };
    [
        ("owner runs", facts(&person, &sensitive)),
        ("agent runs", facts(&agent, &plain)),
        ("agent asks", asked.clone()),
        ("agent runs granted", asked.with_grant(grant, NOW)),
    ]
}

/// How many questions the call takes, and what one costs in microseconds: ours, Cedar's.
fn compare(engine: &PolicyEngine, facts: &Facts) -> (usize, f64, f64) {
    let raw = engine.raw_questions(facts).unwrap();
    let questions = raw.requests.len();
    let authorizer = Authorizer::new();
    let (mut ours, mut cedars) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(time(|| {
            black_box(engine.answer(black_box(facts)).unwrap());
        }));
        cedars.push(time(|| {
            for request in &raw.requests {
                black_box(authorizer.is_authorized(
                    black_box(request),
                    &raw.policies,
                    &raw.entities,
                ));
            }
        }));
    }
    let each = |times| per_question(times, BATCH, questions as f64);
    (questions, each(ours), each(cedars))
}

/// Microseconds.
fn per_question(times: Vec<Duration>, batch: usize, questions: f64) -> f64 {
    median(times).as_secs_f64() * 1e6 / (batch as f64) / questions
}

fn time(mut work: impl FnMut()) -> Duration {
    let start = Instant::now();
    for _ in 0..BATCH {
        work();
    }
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap()
}

fn owner() -> UserName {
    UserName::owner()
}

fn tool(name: &str, sensitive: bool) -> ToolMetadata {
    ToolMetadata {
        name: name.parse().unwrap(),
        description: String::new(),
        input_schema: serde_json::json!({}),
        capabilities: sensitive
            .then_some(ToolCapability::ProcessExec)
            .into_iter()
            .collect(),
        default_sensitive: false,
        max_input_bytes: 1024,
        default_limits: Limits::default(),
    }
}

fn facts(principal: &Principal, tool: &ToolMetadata) -> Facts {
    let arguments = serde_json::json!({ "argv": ["git", "status"] });
    let origin = Origin {
        principal: principal.clone(),
        run: RunId::mint(NOW),
        device: DeviceId::local(),
        channel: Channel::Cli,
    };
    let proposal = ToolProposal {
        tool: tool.name.clone(),
        arguments: CanonicalJson::from_value(&arguments).unwrap(),
    };
    let facts = Facts::new(
        CallId::mint(NOW),
        origin,
        tool,
        &proposal,
        vec![Effect::Exec {
            program: "/usr/bin/git".into(),
        }],
        Some("/home/ada/src/project".into()),
        Tier::B,
        &ReplyPlan { reply: arguments },
        &DigestKey::from_bytes([7; 32]),
        NOW,
        3,
    );
    facts.with_understanding(Understanding {
        opaque: false,
        programs: vec![ProgramFacts {
            program: "/usr/bin/git".into(),
            real: None,
            groups: vec![ProgramGroup::Vcs, ProgramGroup::Network],
        }],
        risk: Risk {
            level: RiskLevel::Medium,
            reasons: Vec::new(),
        },
        scopes: Vec::new(),
    })
}
