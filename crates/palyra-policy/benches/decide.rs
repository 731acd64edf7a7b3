//! What a decision costs, beside Cedar alone on the same questions.
//!
//! Ours is everything between facts and answer: looking up who and what is meant, building the
//! context, validating each request against the schema, evaluating, and naming the policies. The
//! baseline is `Authorizer::is_authorized` on the same requests, policies and entities, all built
//! beforehand. The two take turns, and the figures are medians per question.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops at the first surprise"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use cedar_policy::Authorizer;
use palyra_core::corridor::Decides as _;
use palyra_core::facts::Origin;
use palyra_core::{
    ApprovalId, CallId, CanonicalJson, Channel, DeviceId, DigestKey, Effect, Facts, Grant, Limits,
    Principal, ReplyPlan, RunId, Tier, Timestamp, ToolCapability, ToolMetadata, ToolProposal,
    UserName,
};
use palyra_policy::PolicyEngine;

/// Ours may cost at most this much more than Cedar alone.
const BAR: f64 = 3.0;
const ROUNDS: usize = 400;
const BATCH: usize = 25;
const NOW: Timestamp = Timestamp::from_millis(1_794_733_261_042);

fn main() {
    let engine = PolicyEngine::standard().unwrap();
    let tools: Vec<ToolMetadata> = (0..20)
        .map(|number| tool(&format!("tool.{number}"), number % 2 == 1))
        .collect();
    engine.set_tools(&tools).unwrap();
    let agents = (0..20).map(|number| (format!("agent-{number}").parse().unwrap(), owner()));
    engine.set_agents(agents).unwrap();

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
    let cases = [
        ("owner runs", facts(&person, &sensitive)),
        ("agent runs", facts(&agent, &plain)),
        ("agent asks", asked.clone()),
        ("agent runs granted", asked.with_grant(grant, NOW)),
    ];

    println!("decide, per question, medians of {ROUNDS} rounds of {BATCH}");
    println!(
        "{:<20} {:>9} {:>12} {:>12} {:>7}",
        "call", "questions", "ours µs", "cedar µs", "ratio"
    );
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for (name, facts) in cases {
        let (questions, ours, raw) = compare(&engine, &facts);
        let ratio = ours / raw;
        println!("{name:<20} {questions:>9} {ours:>12.2} {raw:>12.2} {ratio:>7.2}");
        rows.push(serde_json::json!({"name": format!("{name}, ours"), "value": ours, "unit": "us/question"}));
        rows.push(serde_json::json!({"name": format!("{name}, raw cedar"), "value": raw, "unit": "us/question"}));
        ratios.push(serde_json::json!({
            "name": format!("decide, {name}"),
            "ratio": ratio,
            "bar": BAR,
            "kind": "max",
            "ok": ratio <= BAR,
        }));
    }
    let report = serde_json::json!({"bench": "decide", "rows": rows, "ratios": ratios});
    println!("JSON {report}");
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
    let each = |times: Vec<Duration>| {
        median(times).as_secs_f64() * 1e6 / (BATCH as f64) / (questions as f64)
    };
    (questions, each(ours), each(cedars))
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
    Facts::new(
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
    )
}
