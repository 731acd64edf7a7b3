//! What a draft would change, before it changes anything.

use palyra_policy::operator::{Analysis, Outcome, Question, RequestText, analyse, diff, simulate};

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

fn analysed(old: &str, new: &str) -> Analysis {
    let solver = std::env::var_os("CVC5");
    let solver = solver.as_deref().map(std::path::Path::new);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(analyse(&bundle(old), &bundle(new), solver))
}

#[test]
fn without_the_helper_nothing_is_claimed() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let absent = std::path::Path::new("/nowhere/cvc5");
    for solver in [None, Some(absent)] {
        let found = runtime.block_on(analyse(&bundle(""), &bundle(NO_READER), solver));
        assert!(matches!(found, Analysis::NotAnalysed { .. }), "{found}");
        assert!(found.to_string().starts_with("not analysed: "), "{found}");
    }
}

/// Runs where `CVC5` names the helper; elsewhere the answer must be "not analysed".
#[test]
fn with_the_helper_widening_is_proved_or_ruled_out() {
    let guests = r#"@id("guests") @reason("r")
permit (principal == Palyra::User::"guest", action == Palyra::Action::"tool.execute", resource)
when { context.tier >= 3 && context has taint && context.taint.contains("odd") };"#;
    let widened = analysed("", guests);
    let narrowed = analysed("", NO_READER);
    if std::env::var_os("CVC5").is_none() || !cfg!(feature = "solver") {
        assert!(matches!(widened, Analysis::NotAnalysed { .. }), "{widened}");
        return;
    }
    let Analysis::AllowsMore { counterexamples } = &widened else {
        panic!("{widened}");
    };
    assert_eq!(counterexamples[0].because, ["guests"]);
    assert!(
        matches!(narrowed, Analysis::NothingNew { .. }),
        "{narrowed}"
    );
}
