//! What is refused when policies are loaded, and that the error says where.

use palyra_policy::{DEFAULT_POLICY_SRC, Place, PolicyEngine, PolicyError};

fn refused(source: &str) -> PolicyError {
    PolicyEngine::new(source).unwrap_err()
}

#[test]
fn the_baseline_loads_and_has_a_version() {
    let engine = PolicyEngine::standard().unwrap();
    assert_eq!(engine.version().len(), 12);
    assert_eq!(
        engine.version(),
        PolicyEngine::standard().unwrap().version()
    );
    let changed = format!("{DEFAULT_POLICY_SRC}\n");
    assert_ne!(
        engine.version(),
        PolicyEngine::new(&changed).unwrap().version()
    );
}

#[test]
fn nothing_at_all_is_a_policy_set_that_denies() {
    assert!(PolicyEngine::new("").is_ok());
}

#[test]
fn what_does_not_parse_is_refused_with_its_place() {
    let error = refused("@id(\"a\")\npermit (principal, action, resource;\n");
    let PolicyError::Syntax { place, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(
        *place,
        Place {
            line: 2,
            column: 36
        }
    );
    assert!(
        error.to_string().starts_with("line 2, column 36: "),
        "{error}"
    );
}

#[test]
fn what_does_not_validate_is_refused_with_its_place() {
    for (source, line) in [
        // No such action.
        (
            "@id(\"a\")\npermit (principal, action == Palyra::Action::\"tool.destroy\", resource);",
            2,
        ),
        // No such attribute.
        (
            "@id(\"a\")\npermit (principal, action, resource)\nwhen { context.moon == \"full\" };",
            3,
        ),
        // An attribute that may be absent, read without looking.
        (
            "@id(\"a\")\npermit (principal, action in Palyra::Action::\"run\", resource)\nwhen { context.grant.people > 1 };",
            3,
        ),
        // Of the wrong type.
        (
            "@id(\"a\")\npermit (principal, action in Palyra::Action::\"run\", resource)\nwhen { context.tier == \"b\" };",
            3,
        ),
        // Two steps away: those entities are not part of a question.
        (
            "@id(\"a\")\npermit (principal, action == Palyra::Action::\"call.read\", resource)\nwhen { resource has agent && resource.agent.user == Palyra::User::\"owner\" };",
            3,
        ),
    ] {
        let error = refused(source);
        let PolicyError::Invalid { place, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(place.line, line, "{error}");
    }
}

#[test]
fn every_policy_has_a_name_of_its_own_that_can_be_printed() {
    let policy = "permit (principal, action, resource);";
    let cases = [
        (policy.to_owned(), 1),
        (format!("@id(\"a\") {policy} @id(\"a\") {policy}"), 2),
        (format!("@id(\"a\") {policy} @id(\"\") {policy}"), 2),
        (format!("@id(\"A b\") {policy}"), 1),
        (format!("@id(\"a\\u{{202e}}\") {policy}"), 1),
        (format!("@id(\"{}\") {policy}", "a".repeat(65)), 1),
        (format!("@id(\"a\") @reason(\"\\u{{1b}}[2J\") {policy}"), 1),
    ];
    for (source, expected) in cases {
        let error = refused(&source);
        let PolicyError::Annotation { number, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(*number, expected, "{source}");
    }
}

#[test]
fn templates_are_refused() {
    let source = "@id(\"a\") permit (principal == ?principal, action, resource);";
    assert_eq!(refused(source), PolicyError::Template);
}
