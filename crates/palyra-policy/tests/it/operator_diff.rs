//! What a draft would change, before it changes anything.

use std::path::{Path, PathBuf};

use palyra_policy::operator::{
    Analysis, Bundle, NamedSource, Outcome, Question, RequestText, analyse, diff, find_solver,
    simulate,
};

use crate::operator::bundle;

fn ask(tool: &str, sensitive: bool) -> Question {
    let text = serde_json::json!({
        "principal": "Agent::\"claude\"", "action": "tool.execute",
        "resource": format!("Tool::{tool:?}"),
        "entity": [
            { "uid": "Agent::\"claude\"" },
            { "uid": format!("Tool::{tool:?}"), "attrs": { "sensitive": sensitive } },
        ],
    });
    Question::read(&serde_json::from_value::<RequestText>(text).unwrap()).unwrap()
}

const NO_READER: &str = r#"@id("no_reader") @reason("not this one")
forbid (principal is Palyra::Agent, action in Palyra::Action::"run", resource == Palyra::Tool::"r");"#;

#[test]
fn a_draft_is_asked_without_being_used() {
    let (active, draft) = (bundle(""), bundle(NO_READER));
    let simulated = simulate(&active, &draft, &ask("r", false)).unwrap();
    assert!(simulated.flips());
    assert_eq!(simulated.before, Outcome::Allow);
    assert_eq!(simulated.draft.outcome, Outcome::Deny);
    assert_eq!(simulated.draft.parties[0].because[0].policy, "no_reader");
    assert!(!simulate(&active, &draft, &ask("w", true)).unwrap().flips());
}

#[test]
fn recorded_requests_that_flip_are_listed() {
    let recorded = [
        ("call_1".to_owned(), ask("r", false)),
        ("call_2".to_owned(), ask("x", false)),
    ];
    let found = diff(&bundle(""), &bundle(NO_READER), &recorded);
    assert_eq!(found.added, ["no_reader"]);
    assert_eq!(found.flips[0].request, "call_1");
    assert_eq!(found.flips[0].because, ["no_reader"]);
    assert!(!found.widens());
    assert!(found.flips.iter().all(|flip| flip.request != "call_2"));
    assert!(matches!(found.analysis, Analysis::NotAnalysed { .. }));
}

#[test]
fn a_widening_edit_is_found_without_any_recorded_request() {
    let guests = r#"@id("guests") @reason("r")
permit (principal == Palyra::User::"guest", action in Palyra::Action::"run", resource)
when { context.tier >= 3 };"#;
    let found = diff(&bundle(""), &bundle(guests), &[]);
    assert!(found.widens(), "{found:#?}");
    let flip = found.flips.iter().find(|flip| flip.widens()).unwrap();
    assert_eq!(flip.because, ["guests"]);
    assert_eq!(flip.details["context"]["tier"], 3);
    // The other way round it narrows, and the same bundle twice does nothing.
    let back = diff(&bundle(guests), &bundle(""), &[]);
    assert_eq!(back.removed, ["guests"]);
    assert!(!back.flips.is_empty() && !back.widens());
    let same = diff(&bundle(guests), &bundle(guests), &[]);
    assert!(same.flips.is_empty() && same.added.is_empty() && same.changed.is_empty());
}

#[test]
fn a_threshold_that_is_lowered_is_found() {
    let guests = |tier: i64| {
        bundle(&format!(
            "@id(\"guests\") @reason(\"r\") permit (principal == Palyra::User::\"guest\", action in Palyra::Action::\"run\", resource) when {{ context.tier >= {tier} }};"
        ))
    };
    let found = diff(&guests(4), &guests(3), &[]);
    assert_eq!(found.changed, ["guests"]);
    assert!(found.widens(), "{found:#?}");
}

/// A forbid that is taken away, or made to hold for less, lets something happen: requests that it
/// held for are made up, and asked.
#[test]
fn a_conditional_forbid_that_is_removed_or_narrowed_is_found() {
    let forbid = |action: &str, resource: &str, condition: &str| {
        format!(
            "@id(\"f\") @reason(\"r\") forbid (principal is Palyra::Agent, action == Palyra::Action::\"{action}\", {resource}) {condition};"
        )
    };
    let on_tool = |condition| forbid("tool.execute", "resource == Palyra::Tool::\"r\"", condition);
    let pairs = [
        // Removed.
        (
            on_tool("when { context.tier < 3 && context.calls_last_minute > 50 }"),
            String::new(),
        ),
        (
            on_tool("when { context.writes.contains(\"/etc/passwd\") }"),
            String::new(),
        ),
        (
            on_tool("unless { context has workspace && context.workspace like \"/src/*\" }"),
            String::new(),
        ),
        (
            on_tool("when { resource.sensitive || context.opaque }"),
            String::new(),
        ),
        (
            forbid(
                "fs.write",
                "resource in Palyra::Path::\"/etc\"",
                "when { context.risk >= 2 }",
            ),
            String::new(),
        ),
        (
            forbid(
                "net.connect",
                "resource in Palyra::Domain::\"corp.example\"",
                "unless { context.tier >= 3 }",
            ),
            String::new(),
        ),
        (
            forbid(
                "exec",
                "resource",
                "when { resource in Palyra::ProgramGroup::\"system\" && context.calls_last_minute > 9 }",
            ),
            String::new(),
        ),
        // Narrowed.
        (
            on_tool("when { context.calls_last_minute > 50 }"),
            on_tool("when { context.calls_last_minute > 500 }"),
        ),
        (
            on_tool("when { context.calls_last_minute > 50 }"),
            on_tool("when { context.calls_last_minute > 50 && context.tier < 3 }"),
        ),
        (
            on_tool("unless { context.tier >= 3 }"),
            on_tool("unless { context.tier >= 3 || context has taint }"),
        ),
        (
            on_tool("when { context.writes.containsAny([\"/etc/passwd\", \"/etc/shadow\"]) }"),
            on_tool("when { context.writes.contains(\"/etc/passwd\") }"),
        ),
        (
            on_tool("when { context.risk > 1 }"),
            on_tool("when { context.risk > 1 }")
                .replace("is Palyra::Agent", "== Palyra::Agent::\"x\""),
        ),
        // Only watched from now on.
        (
            on_tool("when { context.risk > 1 }"),
            on_tool("when { context.risk > 1 }").replace("@reason", "@mode(\"log_only\") @reason"),
        ),
    ];
    for (before, after) in pairs {
        let found = diff(&bundle(&before), &bundle(&after), &[]);
        assert!(found.widens(), "{before}\n{after}\n{found:#?}");
        // And the other way round nothing more is let happen.
        let back = diff(&bundle(&after), &bundle(&before), &[]);
        assert!(
            !back.flips.is_empty() && !back.widens(),
            "{before}\n{after}\n{back:#?}"
        );
    }
}

fn analysed(old: &Bundle, new: &Bundle, solver: Option<&Path>) -> Analysis {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(analyse(old, new, solver))
}

#[test]
fn without_the_helper_nothing_is_claimed() {
    let (old, new) = (bundle(""), bundle(NO_READER));
    let none = analysed(&old, &new, None).to_string();
    assert!(none.contains("`apt-get install cvc5`"), "{none}");
    let absent = Path::new("/nowhere/cvc5");
    let gone = analysed(&old, &new, Some(absent)).to_string();
    assert!(gone.contains("/nowhere/cvc5"), "{gone}");
    // One that says nothing, and one that talks nonsense.
    let mute = analysed(&old, &new, Some(Path::new("/bin/true"))).to_string();
    let odd = analysed(&old, &new, Some(Path::new("/bin/cat"))).to_string();
    for said in [none, gone, mute, odd] {
        assert!(said.starts_with("not analysed: "), "{said}");
    }
}

/// The helper, or a note that what it would show was not shown.
fn helper(test: &str) -> Option<PathBuf> {
    let found = find_solver();
    if found.is_none() {
        let why = "the helper program cvc5 is not installed; apt-get install cvc5";
        palyra_testkit::not_run(test, why);
    }
    found
}

#[test]
fn with_the_helper_widening_is_proved_or_ruled_out() {
    let Some(solver) = helper("diff with a solver") else {
        return;
    };
    let odd = r#"@id("odd") @reason("r")
permit (principal == Palyra::User::"guest", action == Palyra::Action::"tool.execute", resource)
when { context.tier > 12 && context.tier < 14 && context has taint && context.taint.contains("odd") };"#;
    let (old, new) = (bundle(""), bundle(odd));
    let widened = analysed(&old, &new, Some(&solver));
    let Analysis::AllowsMore { counterexamples } = &widened else {
        panic!("{widened}");
    };
    let found = &counterexamples[0];
    assert_eq!(found.because, ["odd"]);
    assert_eq!(found.details["context"]["tier"], 13);
    assert_eq!(
        found.details["context"]["taint"],
        serde_json::json!(["odd"])
    );
    let said = widened.to_string();
    assert!(
        said.contains("User::\"guest\" Action::\"tool.execute\" Tool::"),
        "{said}"
    );
    assert!(
        said.contains("deny before, allow now, because of `odd`"),
        "{said}"
    );
    // The other way round it is proved that nothing new is allowed; and so for a forbid.
    for (old, new) in [(&new, &old), (&old, &bundle(NO_READER))] {
        let narrowed = analysed(old, new, Some(&solver));
        assert!(
            matches!(narrowed, Analysis::NothingNew { .. }),
            "{narrowed}"
        );
    }
}

/// A forbid made narrower in a corner of numbers.
#[test]
fn with_the_helper_a_narrowed_forbid_has_a_counterexample() {
    let Some(solver) = helper("a narrowed forbid with a solver") else {
        return;
    };
    let forbid = |condition: &str| {
        bundle(&format!(
            "@id(\"f\") @reason(\"r\") forbid (principal is Palyra::Agent, action == Palyra::Action::\"fs.write\", resource in Palyra::Path::\"/etc\") when {{ {condition} }};"
        ))
    };
    let wide = forbid("context.calls_last_minute > 10");
    let narrow = forbid("context.calls_last_minute > 10 && context.calls_last_minute != 21");
    let widened = analysed(&wide, &narrow, Some(&solver));
    let Analysis::AllowsMore { counterexamples } = &widened else {
        panic!("{widened}");
    };
    assert_eq!(
        counterexamples[0].details["context"]["calls_last_minute"],
        21
    );
    let narrowed = analysed(&narrow, &wide, Some(&solver));
    assert!(
        matches!(narrowed, Analysis::NothingNew { .. }),
        "{narrowed}"
    );
}

/// The promise of the baselines: a sensitive call of an agent does not run without a live yes of
/// its own, whatever the request. Any permit beside them changes nothing about that.
#[test]
fn with_the_helper_no_permit_lets_a_sensitive_call_run() {
    let Some(solver) = helper("the floor of the baselines with a solver") else {
        return;
    };
    let open = r#"@id("open") @reason("r")
permit (principal is Palyra::Agent, action == Palyra::Action::"tool.execute", resource)
when { context.tool.sensitive && !(context has grant) };"#;
    let found = analysed(&bundle(""), &bundle(open), Some(&solver));
    assert!(matches!(found, Analysis::NothingNew { .. }), "{found}");
    // The control: without a baseline it does.
    let alone = |text: &str| {
        let none = NamedSource::new("none.cedar", "");
        Bundle::load(&none, &[NamedSource::new("mine.cedar", text)]).unwrap()
    };
    let found = analysed(&alone(""), &alone(open), Some(&solver));
    assert!(matches!(found, Analysis::AllowsMore { .. }), "{found}");
}

/// To the solver a policy that fails is one that does not apply; here it denies. So nothing is
/// claimed where one can.
#[test]
fn with_the_helper_nothing_is_claimed_where_a_policy_can_fail() {
    let Some(solver) = helper("policies that can fail with a solver") else {
        return;
    };
    let fails = r#"@id("fails") @reason("r")
forbid (principal, action == Palyra::Action::"tool.execute", resource)
when { context.calls_last_minute * 9223372036854775807 > 0 };"#;
    let found = analysed(&bundle(fails), &bundle(""), Some(&solver)).to_string();
    assert!(
        found.starts_with("not analysed: `fails` can fail"),
        "{found}"
    );
}
