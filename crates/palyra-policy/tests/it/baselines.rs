//! The tables of the baselines: what an agent may do in each, and that effects count.

use palyra_core::corridor::{Decides as _, PolicyAnswer};
use palyra_core::{DigestKey, Effect, Facts, RiskLevel, Scope, ScopeKind, Tier};
use palyra_policy::{Action, Baseline, PolicyEngine};

use crate::fixture::{ECHO, READ, RUN, SHY, WRITE, call, does, engine_of, granted, name, who};

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
    let mut facts = does(call(&who(person), tool, "x"), effects);
    facts.tier = tier;
    facts
}

fn connect(host: &str) -> Vec<Effect> {
    vec![Effect::NetConnect {
        host: host.parse().unwrap(),
        port: Some(443),
    }]
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
        // The network is outside every sandbox.
        (RUN, connect("example.com"), STRONG, ["ask", "ask", "ask"]),
        (ECHO, connect("example.com"), STRONG, ["run", "ask", "ask"]),
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

/// Whatever the tool and however strong the sandbox: what was not understood is asked about, and a
/// yes covers exactly that call.
#[test]
fn an_opaque_call_is_taken_at_its_worst() {
    for baseline in Baseline::ALL {
        let engine = engine_of(baseline.source());
        for tool in [ECHO, READ, RUN] {
            let opaque = |person| {
                let mut facts = with(person, tool, vec![], STRONG);
                facts.opaque = true;
                facts
            };
            assert_eq!(word(&engine, &opaque("claude")), "ask", "{baseline} {tool}");
            let yes = granted(opaque("claude"), |_| ());
            assert_eq!(word(&engine, &yes), "run", "{baseline} {tool}");
            let other = *call(&who("claude"), tool, "y").digest();
            let other = granted(opaque("claude"), |grant| grant.digest = other);
            assert_eq!(word(&engine, &other), "deny", "{baseline} {tool}");
            assert_eq!(word(&engine, &opaque("owner")), "run", "{baseline} {tool}");
        }
    }
}

/// A record from before calls were taken apart says nothing about it, and that is not innocence.
#[test]
fn a_record_without_the_newer_facts_was_not_understood() {
    let facts = with("claude", ECHO, exec("/usr/bin/ls"), STRONG);
    let engine = engine_of(Baseline::Standard.source());
    assert_eq!(word(&engine, &facts), "run");
    let mut record = serde_json::to_value(&facts).unwrap();
    for newer in ["opaque", "programs", "risk", "scopes"] {
        assert!(record.as_object_mut().unwrap().remove(newer).is_some());
    }
    let old: Facts = serde_json::from_value(record).unwrap();
    assert!(old.opaque && old.programs.is_empty() && old.scopes.is_empty());
    assert_eq!(old.risk.level, RiskLevel::Critical);
    assert_eq!(word(&engine, &old), "ask");
}

/// Facts that call themselves complete and say nothing of a program are not believed.
#[test]
fn a_program_that_nobody_looked_at_is_not_understood() {
    let engine = engine_of(r#"@id("open") permit (principal, action, resource);"#);
    let mut facts = with("owner", RUN, exec("/usr/bin/ls"), Tier::B);
    assert_eq!(word(&engine, &facts), "run");
    facts.programs.clear();
    assert!(engine.answer(&facts).is_err());
    facts.opaque = true;
    assert_eq!(word(&engine, &facts), "run");
}

/// Hosts by label, programs by what they are links to, risk and scope keys: all reach policy.
#[test]
fn what_was_understood_reaches_policy() {
    let rules = r#"
        @id("open") permit (principal, action, resource);
        @id("not_corp") forbid (principal, action in [Palyra::Action::"run", Palyra::Action::"ask"],
                resource in Palyra::Domain::"corp.example");
        @id("not_bash") forbid (principal, action in [Palyra::Action::"run", Palyra::Action::"ask"],
                resource in Palyra::Path::"/usr/bin/bash");
        @id("risky") forbid (principal, action in Palyra::Action::"run", resource)
        when { context.risk >= 3 };
        @id("nobody_knows") forbid (principal, action in Palyra::Action::"run", resource)
        when { context has session || context has skill || context has taint ||
               context has layers || context has spent };
    "#;
    let engine = engine_of(rules);
    let answer = |effects| word(&engine, &with("claude", RUN, effects, Tier::B));
    assert_eq!(answer(connect("example")), "run");
    assert_eq!(answer(connect("evilcorp.example")), "run");
    assert_eq!(answer(connect("corp.example")), "deny");
    assert_eq!(answer(connect("git.corp.example")), "deny");
    assert_eq!(answer(connect("127.0.0.1")), "run");
    let both = [connect("example"), connect("git.corp.example")].concat();
    assert_eq!(answer(both), "deny");

    let mut link = with("claude", RUN, exec("/src/project/ls"), Tier::B);
    assert_eq!(word(&engine, &link), "run");
    link.programs[0].real = Some("/usr/bin/bash".into());
    assert_eq!(word(&engine, &link), "deny");

    let mut risky = with("claude", RUN, exec("/usr/bin/ls"), Tier::B);
    risky.risk.level = RiskLevel::Critical;
    assert_eq!(word(&engine, &risky), "ask");

    let key = DigestKey::from_bytes([1; 32]);
    let (session, window) = (key.scope_key(&[b"s"]), key.scope_key(&[b"w"]));
    for scope in [session, window] {
        let engine = engine_of(&format!(
            r#"@id("scope") permit (principal, action in Palyra::Action::"run", resource)
               when {{ context.scopes.contains("{}") }};"#,
            scope.to_text()
        ));
        let mut facts = with("claude", RUN, exec("/usr/bin/ls"), Tier::B);
        assert_eq!(word(&engine, &facts), "deny");
        facts.scopes = vec![Scope {
            kind: ScopeKind::Program,
            session,
            window,
            sentence: String::new(),
        }];
        assert_eq!(word(&engine, &facts), "run");
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

/// There is no yes that could be given to a person, so nobody is asked for one.
#[test]
fn nobody_is_asked_about_a_persons_own_call() {
    let rules = r#"
        @id("open") permit (principal, action, resource);
        @id("no_echo") @reason("nobody echoes")
        forbid (principal, action == Palyra::Action::"tool.execute",
                resource == Palyra::Tool::"palyra.echo");"#;
    let engine = engine_of(rules);
    let facts = |person| with(person, ECHO, vec![], Tier::B);
    assert_eq!(word(&engine, &facts("claude")), "ask");
    assert!(engine.may_list(&who("claude"), &name(ECHO)));
    let PolicyAnswer::Deny { matched, denial } = engine.answer(&facts("owner")).unwrap() else {
        panic!("the owner is asked about the owner's call");
    };
    assert_eq!(
        (matched.as_slice(), denial.reason.as_str()),
        (&["no_echo".to_owned()] as &[_], "nobody echoes")
    );
    assert!(!engine.may_list(&who("owner"), &name(ECHO)));
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
