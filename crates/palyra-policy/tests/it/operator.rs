//! Operator policies: what loads, what is refused and where, what is suspicious, what is tested.

use palyra_core::corridor::{Decides as _, PolicyAnswer};
use palyra_policy::operator::{
    Bundle, LintKind, Mode, NamedSource, PolicyVersion, Problem, check, lints, test,
};
use palyra_policy::{Baseline, DEFAULT_POLICY_SRC, Place};
use proptest::prelude::*;

use crate::fixture;

pub(crate) fn baseline() -> NamedSource {
    NamedSource::new("standard.cedar", DEFAULT_POLICY_SRC)
}

pub(crate) fn bundle(text: &str) -> Bundle {
    Bundle::load(&baseline(), &[NamedSource::new("mine.cedar", text)]).unwrap()
}

pub(crate) fn refused(text: &str) -> Vec<Problem> {
    Bundle::load(&baseline(), &[NamedSource::new("mine.cedar", text)]).unwrap_err()
}

fn places(problems: &[Problem]) -> Vec<(usize, usize)> {
    problems.iter().map(|it| (it.line, it.column)).collect()
}

#[test]
fn the_baseline_alone_is_a_bundle_without_suspicions() {
    let alone = Bundle::load(&baseline(), &[]).unwrap();
    assert!(lints(&alone).is_empty());
    assert!(alone.engine().is_ok());
    let ids = alone.policies().iter().all(|policy| policy.baseline);
    assert!(ids && !alone.policies().is_empty());
}

#[test]
fn every_problem_of_every_file_is_said_with_its_place() {
    let first = "\
@id(\"a\") permit (principal, action, resource;
permit (principal, action, resource);
@id(\"ok\") @reason(\"r\") forbid (principal, action == Palyra::Action::\"tool.list\", resource);
@id(\"c\") permit (principal, action == Palyra::Action::\"tool.destroy\", resource);
";
    let second = "// a comment; with a semicolon\n\n  @id(\"ok\") permit (principal == ?principal, action, resource);\n@id(\"ok\") permit (principal, action, resource)\nwhen { context.moon };";
    let sources = [
        NamedSource::new("z.cedar", second),
        NamedSource::new("a.cedar", first),
    ];
    let problems = Bundle::load(&baseline(), &sources).unwrap_err();
    let found: Vec<(&str, usize)> = problems
        .iter()
        .map(|problem| (problem.file.as_str(), problem.line))
        .collect();
    assert_eq!(
        found,
        [
            ("a.cedar", 1),
            ("a.cedar", 2),
            ("a.cedar", 4),
            ("z.cedar", 3),
            ("z.cedar", 4),
        ],
        "{problems:#?}"
    );
    let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(said[0].starts_with("a.cedar:1:45: "), "{}", said[0]);
    assert!(said[1].contains("has no name"), "{}", said[1]);
    assert!(said[2].contains("tool.destroy"), "{}", said[2]);
    assert!(said[3].contains("template"), "{}", said[3]);
    assert!(
        said[4].contains("taken by the policy in a.cedar, line 3, column 1"),
        "{}",
        said[4]
    );
}

#[test]
fn a_mistake_in_a_condition_is_found_in_its_own_line() {
    let problems = refused(
        "// first\n@id(\"a\") @reason(\"b\")\npermit (principal, action in Palyra::Action::\"run\", resource)\nwhen { context.tier > 2 &&\n  context.grant.people > 1 };",
    );
    assert_eq!(places(&problems)[0].0, 5, "{problems:#?}");
    assert!(problems[0].message.contains("has"), "{problems:#?}");
}

/// Many policies are validated by several threads, and a file without a fault is parsed at once:
/// each fault is still said, in its place, in the order of the file.
#[test]
fn among_many_policies_each_fault_is_said_in_its_place() {
    let policy = |number: usize, condition: &str| {
        format!(
            "@id(\"p{number}\")\nforbid (principal, action in Palyra::Action::\"run\", resource)\nwhen {{ {condition} }};\n"
        )
    };
    let faulty = [3, 400, 401, 899];
    let text = |fault: &str| -> String {
        (0..900)
            .map(|number| {
                policy(
                    number,
                    if faulty.contains(&number) {
                        fault
                    } else {
                        "context.tier > 2"
                    },
                )
            })
            .collect()
    };
    assert_eq!(
        bundle(&text("context.tier > 3"))
            .policies()
            .iter()
            .filter(|it| !it.baseline)
            .count(),
        900
    );
    let problems = refused(&text("context.tier > \"3\""));
    let expected: Vec<(usize, usize)> = faulty.iter().map(|number| (3 * number + 3, 23)).collect();
    assert_eq!(places(&problems), expected, "{problems:#?}");
    let problems = refused(&text("context.tier > "));
    let expected: Vec<(usize, usize)> = faulty.iter().map(|number| (3 * number + 3, 24)).collect();
    assert_eq!(places(&problems), expected, "{problems:#?}");
}

#[test]
fn an_id_of_the_baseline_is_taken() {
    let problems = refused("@id(\"allow_granted\") permit (principal, action, resource);");
    assert!(
        problems[0].message.contains("standard.cedar"),
        "{problems:?}"
    );
}

#[test]
fn a_bundle_has_a_digest_and_versions_count_up() {
    let one = bundle("");
    let two = bundle("// a comment");
    assert_ne!(one.digest(), two.digest());
    assert_eq!(one.digest(), bundle("").digest());
    let first = PolicyVersion::following(None, &one).unwrap();
    assert_eq!(first.number, 1);
    assert_eq!(PolicyVersion::following(Some(&first), &one), None);
    let second = PolicyVersion::following(Some(&first), &two).unwrap();
    assert_eq!((second.number, second.digest), (2, two.digest()));
    let text = serde_json::to_string(&second).unwrap();
    assert_eq!(
        serde_json::from_str::<PolicyVersion>(&text).unwrap(),
        second
    );
}

#[test]
fn what_is_only_watched_does_not_decide() {
    let watched = bundle(
        "@id(\"w\") @mode(\"log_only\") forbid (principal, action in Palyra::Action::\"run\", resource);",
    );
    assert_eq!(watched.policy("w").unwrap().notes.mode, Mode::LogOnly);
    let owner = fixture::who("owner");
    let facts = fixture::call(&owner, fixture::ECHO, "x");
    let engine = watched.engine().unwrap();
    engine.set_tools(&fixture::tools()).unwrap();
    assert!(matches!(
        engine.answer(&facts),
        Ok(PolicyAnswer::Run { .. })
    ));
}

fn suspicions(text: &str) -> Vec<(LintKind, usize)> {
    let report = check(&baseline(), &[NamedSource::new("mine.cedar", text)]);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let found = report.lints.iter();
    found.map(|lint| (lint.kind, lint.problem.line)).collect()
}

#[test]
fn each_suspicion_is_found_and_the_plain_policy_is_not_suspected() {
    let cases: &[(&str, &[LintKind])] = &[
        (
            r#"@id("a") @reason("r") permit (principal is Palyra::Agent, action in Palyra::Action::"run", resource) when { context.tier >= 3 };"#,
            &[],
        ),
        (
            r#"@id("a") permit (principal is Palyra::Agent, action in Palyra::Action::"run", resource);"#,
            &[LintKind::NoReason],
        ),
        (
            r#"@id("a") forbid (principal, action, resource) unless { context.device.paired };"#,
            &[LintKind::Unscoped],
        ),
        (
            r#"@id("a") @reason("r") permit (principal, action == Palyra::Action::"daemon.status", resource is Palyra::Tool);"#,
            &[LintKind::Dead],
        ),
        (
            r#"@id("a") @reason("r") permit (principal is Palyra::Agent, action == Palyra::Action::"approval.decide", resource);"#,
            &[LintKind::Shadowed],
        ),
        (
            r#"@id("a") @reason("r") permit (principal, action in Palyra::Action::"run", resource) when { context.calls_last_minute + 1 < 10 };"#,
            &[LintKind::MayError],
        ),
        (
            r#"@id("a") @reson("r") forbid (principal, action in [Palyra::Action::"run", Palyra::Action::"ask"], resource);"#,
            &[LintKind::UnknownAnnotation],
        ),
        (
            r#"@id("a") forbid (principal is Palyra::Agent, action in Palyra::Action::"run", resource) when { context.tier < 3 };"#,
            &[LintKind::AskedInVain],
        ),
    ];
    for (text, expected) in cases {
        let found: Vec<LintKind> = suspicions(text).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(found, *expected, "{text}");
    }
}

/// Nobody is asked in vain where a yes lifts the forbid, where asking is forbidden as well, and
/// where nobody could be asked.
#[test]
fn a_forbid_that_lets_a_person_be_asked_in_vain_is_named() {
    let in_vain = |text: &str| {
        let found = suspicions(text);
        found.contains(&(LintKind::AskedInVain, 1))
    };
    let exec = r#"@id("a") forbid (principal is Palyra::Agent, action == Palyra::Action::"exec", resource in Palyra::Path::"/opt") when { context.risk > 1 };"#;
    assert!(in_vain(exec));
    assert!(in_vain(
        r#"@id("a") forbid (principal is Palyra::Agent, action in [Palyra::Action::"exec", Palyra::Action::"fs.write.ask"], resource);"#
    ));
    let ask_too = exec
        .replace("@id(\"a\")", "@id(\"b\")")
        .replace("\"exec\"", "\"exec.ask\"");
    assert!(!in_vain(&format!("{exec}\n{ask_too}")));
    let wider = r#"@id("b") forbid (principal, action in Palyra::Action::"ask", resource);"#;
    assert!(!in_vain(&format!("{exec}\n{wider}")));
    // One that forbids asking elsewhere, or sometimes, does not help.
    for other in [
        ask_too.replace("/opt", "/srv"),
        ask_too.replace("context.risk > 1", "context.risk > 2"),
    ] {
        assert!(in_vain(&format!("{exec}\n{other}")), "{other}");
    }
    for lifted in [
        exec.replace("context.risk > 1", "!(context has grant)"),
        exec.replace(
            "when { context.risk > 1 }",
            "unless { context has grant && context.grant.people >= 2 }",
        ),
        r#"@id("a") forbid (principal, action == Palyra::Action::"tool.list", resource);"#
            .to_owned(),
        r#"@id("a") forbid (principal, action in Palyra::Action::"sensitive", resource);"#
            .to_owned(),
    ] {
        assert!(!in_vain(&lifted), "{lifted}");
    }
}

#[test]
fn a_shadow_must_cover_the_scope_and_decide() {
    let permit = r#"@id("p") @reason("r") permit (principal == Palyra::Agent::"x", action == Palyra::Action::"tool.execute", resource == Palyra::Tool::"t");"#;
    let over = |forbid: &str| {
        let found = suspicions(&format!("{permit}\n{forbid}"));
        found.contains(&(LintKind::Shadowed, 1))
    };
    assert!(over(
        r#"@id("f") forbid (principal, action in Palyra::Action::"run", resource);"#
    ));
    assert!(over(
        r#"@id("f") forbid (principal == Palyra::Agent::"x", action == Palyra::Action::"tool.execute", resource is Palyra::Tool);"#
    ));
    for narrower in [
        r#"@id("f") forbid (principal == Palyra::Agent::"y", action, resource);"#,
        r#"@id("f") forbid (principal, action == Palyra::Action::"tool.execute.ask", resource);"#,
        r#"@id("f") forbid (principal, action in Palyra::Action::"run", resource) when { context.tier < 2 };"#,
        r#"@id("f") @mode("log_only") forbid (principal, action in Palyra::Action::"run", resource);"#,
    ] {
        assert!(!over(narrower), "{narrower}");
    }
}

const CASES: &str = r#"
[[entity]]
uid = 'Tool::"w"'
attrs = { sensitive = true }
[[entity]]
uid = 'Tool::"r"'
[[entity]]
uid = 'Agent::"claude"'

[[case]]
name = "a sensitive tool is asked about"
principal = 'Agent::"claude"'
action = "tool.execute"
resource = 'Tool::"w"'
expect = "ask"
policy = "deny_sensitive_without_approval"

[[case]]
name = "a plain one runs"
principal = 'Agent::"claude"'
action = "tool.execute"
resource = 'Tool::"r"'
expect = "allow"
policy = "allow_agent_insensitive"

[[case]]
name = "a yes lets it run"
principal = 'Agent::"claude"'
action = "tool.execute"
resource = 'Tool::"w"'
context = { digest = "d", now = 2026-01-01T00:00:00Z, grant = { agent = 'Agent::"claude"', digest = "d", not_after = "2026-01-01T00:00:01Z", people = 1 } }
expect = "allow"

[[case]]
name = "an agent never decides"
principal = 'Agent::"claude"'
action = "approval.decide"
resource = 'Approval::"this"'
expect = "deny"
policy = "deny_agent_person_actions"
[[case.entity]]
uid = 'Approval::"this"'
"#;

#[test]
fn cases_hold_against_the_baseline() {
    let report = test(&bundle(""), &[NamedSource::new("a.test.toml", CASES)]);
    assert!(report.holds(), "{:#?}", report.failures);
    assert_eq!(report.passed, 4);
}

#[test]
fn paths_hosts_and_programs_are_in_what_is_above_them() {
    let mine = bundle(
        r#"@id("srv") @reason("r") permit (principal == Palyra::User::"guest", action == Palyra::Action::"fs.read", resource in Palyra::Path::"/srv");
@id("host") @reason("r") permit (principal == Palyra::User::"guest", action == Palyra::Action::"net.connect", resource in Palyra::Domain::"example.com");
@id("vcs") @reason("r") permit (principal == Palyra::User::"guest", action == Palyra::Action::"exec", resource in Palyra::ProgramGroup::"vcs")
when { resource in Palyra::Path::"/srv" };"#,
    );
    let case = |action: &str, resource: &str, expect: &str| {
        format!(
            "[[case]]\nname = 'n'\nprincipal = 'User::\"guest\"'\naction = '{action}'\nresource = '{resource}'\nexpect = '{expect}'\n[[case.entity]]\nuid = 'Tool::\"unspecified\"'\n"
        )
    };
    let program = |uid: &str, group: &str, expect: &str| {
        let case = case("exec", uid, expect);
        format!("{case}[[case.entity]]\nuid = '{uid}'\nparents = ['ProgramGroup::\"{group}\"']\n")
    };
    let cases = [
        case("fs.read", "Path::\"/srv/a/b\"", "allow"),
        case("fs.read", "Path::\"/srv-evil/a\"", "deny"),
        case("net.connect", "Host::\"api.example.com\"", "allow"),
        case("net.connect", "Host::\"evil-example.com\"", "deny"),
        // A program is in its folders, and in the groups that are declared.
        program("Program::\"/srv/tool\"", "vcs", "allow"),
        program("Program::\"/srv-evil/tool\"", "vcs", "deny"),
        program("Program::\"/srv/tool\"", "build", "deny"),
    ];
    let report = test(&mine, &[NamedSource::new("a.test.toml", cases.concat())]);
    assert!(report.holds(), "{:#?}", report.failures);
    for odd in [
        case("fs.read", "Path::\"/srv/../etc\"", "deny"),
        case("net.connect", "Host::\"API.example.com\"", "deny"),
        // Nobody said what it is: a case that holds would prove nothing.
        case("exec", "Program::\"/srv/tool\"", "deny"),
    ] {
        let report = test(&mine, &[NamedSource::new("a.test.toml", odd)]);
        assert_eq!(report.failures.len(), 1);
    }
}

#[test]
fn a_case_that_does_not_hold_says_why_and_where() {
    let widened = bundle(
        "@id(\"no\") @reason(\"x\") forbid (principal, action in Palyra::Action::\"run\", resource);",
    );
    let report = test(&widened, &[NamedSource::new("a.test.toml", CASES)]);
    assert_eq!(report.passed, 2);
    let said: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
    assert_eq!(
        said[0],
        "a.test.toml:18:1: `a plain one runs`: expected allow, got deny, because of `no`"
    );
}

#[test]
fn a_case_that_cannot_be_read_fails_with_its_place() {
    let cases = [
        ("[[case]]\nname = 1\n", "2:8"),
        ("x = [", "1:"),
        (
            "[[case]]\nname = \"n\"\nprincipal = 'Agent::\"a\"'\naction = \"fly\"\nresource = 'Tool::\"r\"'\nexpect = \"deny\"",
            "no action `fly`",
        ),
        (
            "[[case]]\nname = \"n\"\nprincipal = 'Agent::\"a\"'\naction = \"tool.execute\"\nresource = 'Tool::\"r\"'\nexpect = \"deny\"",
            "nothing is known about",
        ),
        (
            "[[case]]\nname = \"n\"\nprincipal = 'User::\"owner\"'\naction = \"tool.list\"\nresource = 'Daemon::\"palyrad\"'\nexpect = \"deny\"\ncontext = { moon = 1 }",
            "no `context.moon`",
        ),
        (
            "[[case]]\nname = \"n\"\nprincipal = 'User::\"owner\"'\naction = \"tool.list\"\nresource = 'Daemon::\"palyrad\"'\nexpect = \"maybe\"",
            "maybe",
        ),
        (
            "[[case]]\nname = \"n\"\nprincipal = 'User::\"owner\"'\naction = \"tool.list\"\nresource = 'Daemon::\"palyrad\"'\nexpect = \"allow\"\npolicy = \"gone\"",
            "no policy `gone`",
        ),
    ];
    for (text, expected) in cases {
        let report = test(&bundle(""), &[NamedSource::new("a.test.toml", text)]);
        assert_eq!(report.failures.len(), 1, "{text}");
        let said = report.failures[0].to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn deep_and_long_policies_are_refused_before_they_can_exhaust_the_stack() {
    let within = |body: &str| {
        format!(
            "@id(\"a\") permit (principal, action in Palyra::Action::\"run\", resource) when {{ {body} }};"
        )
    };
    for body in [
        "(".repeat(50_000),
        format!("{}true", "true || ".repeat(100_000)),
        format!("{}1 > 0", "1 + ".repeat(50_000)),
        "!".repeat(10_000),
        format!("{}true", "if true then true else ".repeat(5_000)),
    ] {
        assert!(!refused(&within(&body)).is_empty());
    }
    // As long as they may be, and they load, also on the small stack of a thread.
    bundle(&within(&format!(
        "{}true",
        "context.tier == 1 || ".repeat(180)
    )));
    bundle(&within(&format!(
        "{}true",
        "if context.tier > 1 then true else ".repeat(300)
    )));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever bytes a policy file and a test file hold, they load or are refused.
    #[test]
    fn arbitrary_texts_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        words in prop::collection::vec(prop::sample::select(vec![
            "permit", "forbid", "(", ")", "{", "}", "[", "]", ";", "\"", "\\", "//", "\n", "@id(\"a\")",
            "@approvers(\"2\")", "principal", "action", "resource", ",", "when", "unless", "context",
            ".", "tier", ">=", "==", "in", "is", "like", "has", "Palyra::Agent", "::\"x\"", "?principal",
            "true", "!", "-", "9223372036854775807", "+", "datetime(\"\")", "\u{202e}", "é", "if", "then", "else",
            "[[case]]", "[[entity]]", "name = \"n\"", "uid = 'Tool::\"t\"'", "expect = \"deny\"", "=", "'",
            "principal = 'Agent::\"a\"'", "action = \"tool.execute\"", "1979-05-27",
        ]), 0..40),
    ) {
        let noise = String::from_utf8_lossy(&bytes).into_owned();
        let spaced = words.join(" ");
        let closed = words.concat();
        thread_local! {
            static BUNDLE: Bundle = bundle("");
        }
        for text in [noise, spaced, closed] {
            let source = NamedSource::new("f.cedar", text);
            let report = check(&NamedSource::new("none.cedar", ""), std::slice::from_ref(&source));
            for problem in &report.problems {
                prop_assert!(problem.line >= 1 && problem.column >= 1);
                prop_assert!(!problem.message.chars().any(char::is_control));
            }
            BUNDLE.with(|bundle| drop(test(bundle, &[source])));
        }
    }
}

#[test]
fn places_are_shared_with_the_engine() {
    assert_eq!(
        bundle("\n @id(\"a\") @reason(\"r\") permit (principal, action in Palyra::Action::\"run\", resource);")
            .policy("a")
            .unwrap()
            .place,
        Place { line: 2, column: 2 }
    );
}

/// Cedar ends a comment at a carriage return, so what follows one decides.
#[test]
fn nothing_hides_behind_a_carriage_return() {
    let under = NamedSource::new("standard.cedar", Baseline::Standard.source());
    let text = "// quiet\r@id(\"x\") @reason(\"r\") forbid (principal, action, resource);\n\
                @id(\"y\") @reason(\"r\") permit (principal, action, resource);\n";
    let bundle = Bundle::load(&under, &[NamedSource::new("a.cedar", text)]).unwrap();
    assert!(bundle.policy("x").is_some() && bundle.policy("y").is_some());
    let deep = format!("// \r{}{}", "(".repeat(200_000), ")".repeat(200_000));
    assert!(Bundle::load(&under, &[NamedSource::new("a.cedar", deep)]).is_err());
}
