//! The tables of the baselines: what an agent may do in each, and that effects count.

use palyra_core::corridor::{Decides as _, PolicyAnswer};
use palyra_core::{Effect, Facts, Tier};
use palyra_policy::{Action, Baseline, PolicyEngine};

use crate::fixture::{ECHO, READ, RUN, SHY, WRITE, call, engine_of, granted, who};

fn word(engine: &PolicyEngine, facts: &Facts) -> &'static str {
    match engine.answer(facts).unwrap() {
        PolicyAnswer::Run { .. } => "run",
        PolicyAnswer::Ask { .. } => "ask",
        PolicyAnswer::Deny { .. } => "deny",
    }
}

fn exec(program: &str) -> Vec<Effect> {
    vec![Effect::Exec {
        program: program.into(),
    }]
}

fn read(path: &str) -> Vec<Effect> {
    vec![Effect::FsRead { path: path.into() }]
}

fn write(path: &str) -> Vec<Effect> {
    vec![Effect::FsWrite { path: path.into() }]
}

fn with(person: &str, tool: &str, effects: Vec<Effect>, tier: Tier) -> Facts {
    let mut facts = call(&who(person), tool, "x");
    facts.effects = effects;
    facts.tier = tier;
    facts
}

/// A strong sandbox; Tier-C will be the common one.
const STRONG: Tier = Tier::Builtin;

#[test]
fn what_an_agent_may_do_in_each_baseline() {
    let inside = "/src/project/a.txt";
    let table = [
        //                                          standard  sandboxed  locked
        (ECHO, vec![], STRONG, ["run", "run", "ask"]),
        (SHY, vec![], STRONG, ["ask", "ask", "ask"]),
        (READ, read(inside), Tier::B, ["run", "run", "ask"]),
        (READ, read("/etc/passwd"), STRONG, ["run", "ask", "ask"]),
        (
            READ,
            read("/src/project-evil"),
            STRONG,
            ["run", "ask", "ask"],
        ),
        (WRITE, write(inside), Tier::B, ["ask", "ask", "ask"]),
        (WRITE, write(inside), STRONG, ["ask", "run", "ask"]),
        (WRITE, write("/etc/passwd"), STRONG, ["ask", "ask", "ask"]),
        (RUN, exec("/usr/bin/git"), Tier::B, ["ask", "ask", "ask"]),
        (RUN, exec("/usr/bin/git"), STRONG, ["ask", "run", "ask"]),
        // Interpreters and wrappers, by group.
        (RUN, exec("/usr/bin/bash"), Tier::B, ["ask", "ask", "ask"]),
        (
            RUN,
            exec("/usr/bin/python3.12"),
            STRONG,
            ["ask", "run", "ask"],
        ),
        (RUN, exec("/usr/bin/sudo"), STRONG, ["ask", "ask", "ask"]),
        // Whatever tool runs them.
        (ECHO, exec("/usr/bin/bash"), Tier::B, ["ask", "ask", "ask"]),
        (ECHO, exec("/usr/bin/env"), STRONG, ["ask", "ask", "ask"]),
        (ECHO, exec("/usr/bin/ls"), Tier::B, ["run", "run", "ask"]),
    ];
    for (baseline, column) in Baseline::ALL.into_iter().zip(0..) {
        let engine = engine_of(baseline.source());
        for (tool, effects, tier, expected) in &table {
            let what = format!("{baseline}: {tool} {effects:?} {tier:?}");
            let facts = |person| with(person, tool, effects.clone(), *tier);
            assert_eq!(
                Some(&word(&engine, &facts("claude"))),
                expected.get(column),
                "{what}"
            );
            // A yes to exactly this call is honoured, whatever it does.
            let yes = granted(facts("claude"), |_| ());
            assert_eq!(word(&engine, &yes), "run", "{what}");
            // The owner may, and nobody acts for a guest.
            assert_eq!(word(&engine, &facts("owner")), "run", "{what}");
            for other in ["guest", "stray"] {
                assert_eq!(word(&engine, &facts(other)), "deny", "{what}");
            }
        }
    }
}

#[test]
fn baselines_are_chosen_by_name() {
    for baseline in Baseline::ALL {
        assert_eq!(baseline.as_str().parse(), Ok(baseline));
    }
    assert_eq!(Baseline::default(), Baseline::Standard);
    let error = "Locked\u{1b}".parse::<Baseline>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no baseline `Locked\\u{1b}`; choose `standard`, `sandboxed` or `locked`"
    );
}

/// The tool is allowed, and one of its effects is not.
#[test]
fn the_strictest_answer_wins() {
    let rules = r#"
        @id("open") permit (principal, action, resource);
        @id("no_vcs") @reason("no version control")
        forbid (principal, action in [Palyra::Action::"run", Palyra::Action::"ask"],
                resource in Palyra::ProgramGroup::"vcs");
        @id("not_etc_unasked") @reason("ask before touching /etc")
        forbid (principal, action == Palyra::Action::"fs.write", resource in Palyra::Path::"/etc");
    "#;
    let engine = engine_of(rules);
    let answer = |effects| word(&engine, &with("claude", RUN, effects, Tier::B));
    assert_eq!(answer(exec("/usr/bin/ls")), "run");
    assert_eq!(answer(exec("/usr/bin/git")), "deny");
    assert_eq!(answer(write("/etc/passwd")), "ask");
    assert_eq!(answer(write("/etc-evil/passwd")), "run");
    assert_eq!(answer(read("/etc/passwd")), "run");
    let both = [exec("/usr/bin/ls"), write("/etc/passwd")].concat();
    assert_eq!(answer(both), "ask");
    // In any order.
    let all = [write("/etc/passwd"), exec("/usr/bin/git"), exec("/bin/ls")].concat();
    assert_eq!(answer(all), "deny");

    let facts = with("claude", RUN, exec("/usr/bin/git"), Tier::B);
    let PolicyAnswer::Deny { matched, denial } = engine.answer(&facts).unwrap() else {
        panic!("git ran");
    };
    assert_eq!(matched, ["no_vcs"]);
    assert_eq!(denial.reason, "no version control");
}

/// What is not in its normal form would have other ancestors than it seems.
#[test]
fn a_path_that_is_not_normal_is_refused() {
    let engine = engine_of(r#"@id("open") permit (principal, action, resource);"#);
    for path in ["/src/../etc/passwd", "/src//x", "/src/", "src", ""] {
        for effects in [read(path), write(path), exec(path)] {
            let facts = with("owner", RUN, effects, Tier::B);
            assert!(engine.answer(&facts).is_err(), "{path}");
        }
    }
}

/// An effect needs both, as the tool does.
#[test]
fn an_effect_is_asked_of_the_agent_and_of_its_person() {
    let open = r#"@id("tools") permit (principal, action, resource is Palyra::Tool);"#;
    let exec_for = |who| {
        format!("{open} @id(\"exec\") permit ({who}, action in Palyra::Action::\"run\", resource);")
    };
    let answer = |rules: &str| {
        let facts = with("claude", RUN, exec("/usr/bin/git"), Tier::B);
        word(&engine_of(rules), &facts)
    };
    assert_eq!(answer(&exec_for("principal")), "run");
    assert_eq!(answer(&exec_for("principal is Palyra::Agent")), "deny");
    assert_eq!(answer(&exec_for("principal is Palyra::User")), "deny");
    assert_eq!(answer(open), "deny");
}

#[test]
fn questions_are_counted() {
    let engine = engine_of(Baseline::Standard.source());
    let asked = |person: &str, effects| {
        let facts = with(person, RUN, effects, Tier::B);
        let asked = engine.deliberate(&facts).unwrap().asked;
        asked
            .iter()
            .map(|decision| decision.action)
            .collect::<Vec<_>>()
    };
    assert_eq!(asked("owner", vec![]).len(), 1);
    assert_eq!(
        asked("owner", exec("/usr/bin/git")),
        [Action::ToolExecute, Action::Exec]
    );
    // The same effect twice is one question; another one is another.
    let twice = [exec("/usr/bin/git"), exec("/usr/bin/git"), read("/src")].concat();
    assert_eq!(
        asked("owner", twice),
        [Action::ToolExecute, Action::Exec, Action::FsRead]
    );
    // The agent may not; then both are asked whether a person may be.
    let pairs = [
        Action::ToolExecute,
        Action::ToolExecuteAsk,
        Action::ToolExecuteAsk,
        Action::Exec,
        Action::ExecAsk,
        Action::ExecAsk,
    ];
    assert_eq!(asked("claude", exec("/usr/bin/git")), pairs);
}
