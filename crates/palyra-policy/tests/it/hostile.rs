//! Whatever a call is made of, it is answered or refused: no panic, and no yes by mistake.
//!
//! Names are checked before they come here, so hostile ones arrive only in records, and there the
//! door refuses them. Paths, hosts, numbers and clocks are anything.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use palyra_core::corridor::PolicyAnswer;
use palyra_core::{Effect, Facts, ProgramFacts, ProgramGroup, Tier, Timestamp};
use palyra_policy::operator::{Bundle, NamedSource, Question, Replay, RequestText, outcome};
use palyra_policy::{Baseline, PolicyEngine};
use proptest::prelude::*;

use crate::fixture::{ECHO, NOW, READ, RUN, SHY, WRITE, call, furnish, grant_for, who};
use crate::slices::cases;

/// Besides the baseline, a forbid for each fact that is easy to get wrong.
const GUARDS: &str = r#"
@id("passwd") @reason("r")
forbid (principal, action in [Palyra::Action::"run", Palyra::Action::"ask"], resource)
when { context.writes.contains("/etc/passwd") };
@id("below") @reason("r")
forbid (principal, action in [Palyra::Action::"fs.write", Palyra::Action::"fs.write.ask"], resource in Palyra::Path::"/etc");
@id("corp") @reason("r")
forbid (principal, action in [Palyra::Action::"net.connect", Palyra::Action::"net.connect.ask"], resource in Palyra::Domain::"corp.example");
@id("late") @reason("r")
forbid (principal, action in [Palyra::Action::"run", Palyra::Action::"ask"], resource)
when { context.now >= datetime("2100-01-01") };
@id("fast") @reason("r")
forbid (principal, action in [Palyra::Action::"run", Palyra::Action::"ask"], resource)
when { context.calls_last_minute > 1000 };
@id("home") @reason("r")
forbid (principal, action in [Palyra::Action::"run", Palyra::Action::"ask"], resource)
when { context has workspace && context.workspace like "/root*" };
"#;

fn bundle() -> Bundle {
    let standard = NamedSource::new("standard.cedar", Baseline::Standard.source());
    Bundle::load(&standard, &[NamedSource::new("guards.cedar", GUARDS)]).unwrap()
}

/// Direction marks, zero widths, quotes, escapes, what looks like something else.
const ODD: &[&str] = &[
    "\u{202e}",
    "\u{200b}",
    "\u{feff}",
    "\"",
    "\\",
    "\0",
    "\n",
    "\u{1b}[2J",
    "*",
    "..",
    ".",
    "//",
    "é",
    "e\u{301}",
    "𝕏",
    "\u{e0041}",
    "Palyra::Path::\"/\"",
    "?principal",
    "%2e",
    "/etc/passwd",
    "ⅼ",
    "xn--",
    "CORP.example",
    "0x7f.1",
    "localhost.",
    "/srv",
    " ",
    "-rf",
];

fn text() -> impl Strategy<Value = String> {
    let odd = prop::collection::vec(prop::sample::select(ODD), 0..5);
    prop_oneof![
        odd.prop_map(|parts| parts.concat()),
        any::<String>(),
        "[a-z/.]{0,30}",
        // A megabyte of it, once in a while.
        Just("x".repeat(1 << 20)),
        Just("/x".repeat(300)),
    ]
}

fn path() -> impl Strategy<Value = PathBuf> {
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    let known = [
        "/etc/passwd",
        "/etc",
        "/etc/../x",
        "/src/project/a",
        "/",
        "/etc-x",
        "/usr/bin/git",
    ];
    prop_oneof![
        4 => prop::sample::select(known.to_vec()).prop_map(PathBuf::from),
        2 => text().prop_map(|text| PathBuf::from(format!("/{text}"))),
        1 => text().prop_map(PathBuf::from),
        1 => bytes.prop_map(|bytes| PathBuf::from(OsString::from_vec(bytes))),
    ]
}

fn effect() -> impl Strategy<Value = Option<Effect>> {
    let known = [
        "git.corp.example",
        "corp.example",
        "api.example.com",
        "127.0.0.1",
        "evilcorp.example",
    ];
    let host = prop_oneof![
        prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        text()
    ];
    prop_oneof![
        path().prop_map(|program| Some(Effect::Exec { program })),
        path().prop_map(|path| Some(Effect::FsRead { path })),
        path().prop_map(|path| Some(Effect::FsWrite { path })),
        // What is no host does not become one.
        (host, any::<Option<u16>>()).prop_map(|(host, port)| {
            let host = host.parse().ok()?;
            Some(Effect::NetConnect { host, port })
        }),
    ]
}

/// A clock that jumps: to its ends, to year 10000 and year 0, back and forth around now.
fn instant() -> impl Strategy<Value = Timestamp> {
    let near = (-100_000_i64..100_000).prop_map(|by| NOW.as_millis() + by);
    let ends = prop::sample::select(vec![
        i64::MIN,
        i64::MAX,
        0,
        -1,
        253_402_300_799_999,
        253_402_300_800_000,
        -62_167_219_200_000,
        -62_167_219_200_001,
        4_102_444_800_000,
    ]);
    prop_oneof![3 => near, 1 => ends, 1 => any::<i64>()].prop_map(Timestamp::from_millis)
}

#[derive(Debug, Clone)]
struct Odd {
    person: &'static str,
    tool: &'static str,
    effects: Vec<Effect>,
    forget: bool,
    opaque: bool,
    workspace: Option<PathBuf>,
    real: Option<PathBuf>,
    now: Timestamp,
    rate: u64,
    grant: Option<(Timestamp, i64, bool)>,
}

fn odd() -> impl Strategy<Value = Odd> {
    (
        (
            prop::sample::select(vec!["owner", "claude", "codex", "stray", "guest"]),
            prop::sample::select(vec![ECHO, READ, RUN, WRITE, SHY]),
            prop::collection::vec(effect(), 0..4),
            prop::bool::weighted(0.1),
            any::<bool>(),
        ),
        prop::option::of(path()),
        prop::option::weighted(0.2, path()),
        instant(),
        prop_oneof![3 => 0..2_000_u64, 1 => any::<u64>()],
        prop::option::of((instant(), any::<i64>(), any::<bool>())),
    )
        .prop_map(
            |((person, tool, effects, forget, opaque), workspace, real, now, rate, grant)| Odd {
                person,
                tool,
                effects: effects.into_iter().flatten().collect(),
                forget,
                opaque,
                workspace,
                real,
                now,
                rate,
                grant,
            },
        )
}

fn facts_of(odd: &Odd) -> Facts {
    let mut facts = call(&who(odd.person), odd.tool, "x");
    facts.effects.clone_from(&odd.effects);
    let programs = odd.effects.iter().filter_map(|effect| match effect {
        Effect::Exec { program } => Some(ProgramFacts {
            program: program.clone(),
            real: odd.real.clone(),
            groups: vec![ProgramGroup::Vcs],
        }),
        Effect::FsRead { .. } | Effect::FsWrite { .. } | Effect::NetConnect { .. } => None,
    });
    facts.programs = programs.filter(|_| !odd.forget).collect();
    facts.opaque = odd.opaque;
    facts.workspace.clone_from(&odd.workspace);
    facts.now = odd.now;
    facts.calls_last_minute = odd.rate;
    facts.tier = Tier::B;
    facts.grant = odd.grant.map(|(not_after, people, fits)| {
        let other = call(&who("codex"), RUN, "y");
        let digest = if fits { facts.digest() } else { other.digest() };
        let mut grant = grant_for(digest);
        grant.not_after = not_after;
        grant.people = people;
        grant
    });
    facts
}

/// Why this call must not run, said without Cedar.
fn must_not_run(facts: &Facts) -> bool {
    let touches = |effect: &Effect| match effect {
        Effect::FsWrite { path } => path.starts_with("/etc"),
        Effect::NetConnect { host, .. } => host.domains().any(|domain| domain == "corp.example"),
        Effect::Exec { .. } | Effect::FsRead { .. } => false,
    };
    let live = facts.grant.as_ref().is_some_and(|grant| {
        facts.origin.principal.agent() == Some(&grant.agent)
            && grant.digest == *facts.digest()
            && facts.now < grant.not_after
            && grant.people >= 1
    });
    let agent = facts.origin.principal.agent().is_some();
    let home = facts.workspace.as_ref().and_then(|it| it.to_str());
    facts.effects.iter().any(touches)
        || facts.now >= Timestamp::from_millis(4_102_444_800_000)
        || facts.calls_last_minute > 1_000
        || home.is_some_and(|text| text.starts_with("/root"))
        || facts.origin.principal.user().as_str() != "owner"
        || (agent && (facts.sensitive || facts.opaque) && !live)
}

fn config(per_cent: u32) -> ProptestConfig {
    ProptestConfig {
        cases: (cases() * per_cent / 100).max(1),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    }
}

#[test]
fn a_call_of_anything_is_answered_or_refused() {
    let bundle = bundle();
    let engine = furnish(PolicyEngine::of(&bundle).unwrap());
    let replay = RefCell::new(Replay::of(&bundle).unwrap());
    let mut runner = proptest::test_runner::TestRunner::new(config(200));
    let counts = [const { Cell::new(0_usize) }; 3];
    let [ran, closed, failed] = &counts;
    let result = runner.run(&odd(), |odd| {
        let facts = facts_of(&odd);
        let answer = engine.deliberate(&facts);
        // From a record the same comes out, unless it cannot be written down at all.
        if let Ok(text) = serde_json::to_string(&facts)
            && let Ok(recorded) = serde_json::from_str::<Facts>(&text)
        {
            let again = replay.borrow_mut().decide(&recorded);
            prop_assert_eq!(&again, &answer);
        }
        match answer {
            Ok(found) if matches!(found.answer, PolicyAnswer::Run { .. }) => {
                ran.update(|count| count + 1);
                prop_assert!(!must_not_run(&facts), "{:?}", odd);
            }
            Ok(_) => closed.update(|count| count + 1),
            Err(_) => failed.update(|count| count + 1),
        }
        Ok(())
    });
    result.unwrap();
    let all: usize = counts.iter().map(Cell::get).sum();
    // Each comes about; how often is chance.
    for count in &counts {
        assert!(count.get() * 400 > all, "{counts:?}");
    }
}

/// A record that somebody wrote by hand: what is not a name, a host or a time is refused when it
/// is read, and what is read is decided.
#[test]
fn a_record_of_anything_is_refused_or_decided() {
    let bundle = bundle();
    let plain = serde_json::to_value(call(&who("claude"), RUN, "x")).unwrap();
    let fields: Vec<String> = plain.as_object().unwrap().keys().cloned().collect();
    let value = prop_oneof![
        text().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_map(serde_json::Value::from),
        any::<bool>().prop_map(serde_json::Value::from),
        Just(serde_json::Value::Null),
        text().prop_map(|text| serde_json::json!([text])),
        text().prop_map(|text| serde_json::json!({ "kind": "user", "name": text })),
        text()
            .prop_map(|text| serde_json::json!({ "kind": "agent", "name": text, "user": "owner" })),
        text().prop_map(|text| serde_json::json!([{ "effect": "fs_write", "path": text }])),
        text().prop_map(
            |text| serde_json::json!([{ "effect": "net_connect", "host": text, "port": null }])
        ),
    ];
    let changes = prop::collection::vec((prop::sample::select(fields), value), 1..3);
    let replay = RefCell::new(Replay::of(&bundle).unwrap());
    let mut runner = proptest::test_runner::TestRunner::new(config(100));
    let result = runner.run(&changes, |changes| {
        let mut record = plain.clone();
        for (name, value) in changes {
            record.as_object_mut().unwrap().insert(name, value);
        }
        let Ok(facts) = serde_json::from_value::<Facts>(record) else {
            return Ok(());
        };
        let answer = replay.borrow_mut().decide(&facts);
        let runs = answer.is_ok_and(|it| matches!(it.answer, PolicyAnswer::Run { .. }));
        prop_assert!(!runs || !must_not_run(&facts), "{:?}", facts);
        Ok(())
    });
    result.unwrap();
}

/// A request that somebody wrote by hand.
#[test]
fn a_request_of_anything_is_refused_or_answered() {
    let bundle = bundle();
    let uid = || {
        let types = [
            "Agent",
            "User",
            "Tool",
            "Path",
            "Host",
            "Program",
            "Daemon",
            "Nothing",
            "Palyra::Path",
        ];
        (prop::sample::select(types.to_vec()), text())
            .prop_map(|(name, id)| format!("{name}::{id:?}"))
    };
    let actions = prop_oneof![
        prop::sample::select(vec![
            "tool.execute",
            "fs.read",
            "net.connect",
            "exec",
            "tool.list"
        ])
        .prop_map(str::to_owned),
        text(),
    ];
    let named = prop_oneof![uid(), text()];
    let request = (named, actions, uid(), text(), uid(), any::<i64>());
    let mut runner = proptest::test_runner::TestRunner::new(config(100));
    let result = runner.run(
        &request,
        |(principal, action, resource, word, other, number)| {
            let request = serde_json::json!({
                "principal": principal, "action": action, "resource": resource,
                "context": { "tier": number, "digest": word, "now": word, "writes": [word] },
                "entity": [
                    { "uid": principal },
                    { "uid": other, "attrs": { "sensitive": true }, "parents": [resource] },
                    { "uid": resource, "parents": [other] },
                ],
            });
            let text: RequestText = serde_json::from_value(request).unwrap();
            if let Ok(question) = Question::read(&text) {
                let _ = outcome(&bundle, &question);
                let _ = question.details();
            }
            Ok(())
        },
    );
    result.unwrap();
}
