//! What is only watched changes no answer and is named when it would have; and an answer says
//! which policies gave it.

use std::sync::atomic::{AtomicBool, Ordering};

use palyra_core::corridor::PolicyAnswer;
use palyra_core::{Effect, Facts};
use palyra_policy::operator::{Bundle, NamedSource, Outcome};
use palyra_policy::{Baseline, PolicyEngine};

use crate::fixture::{ECHO, RUN, call, does, furnish, who};
use crate::operator::bundle;

fn engine(text: &str) -> PolicyEngine {
    furnish(PolicyEngine::of(&bundle(text)).unwrap())
}

/// What the answer is, and what would have made it another.
fn watched(text: &str, facts: &Facts) -> (Outcome, Vec<String>) {
    let found = engine(text).deliberate(facts).unwrap();
    (Outcome::from(&found.answer), found.log_only)
}

const NO_ECHO: &str = r#"@id("no_echo") @mode("log_only")
forbid (principal is Palyra::Agent, action in [Palyra::Action::"run", Palyra::Action::"ask"],
        resource == Palyra::Tool::"palyra.echo");"#;

#[test]
fn a_forbid_is_named_when_it_would_have_denied() {
    let echo = call(&who("claude"), ECHO, "x");
    let named = vec!["no_echo".to_owned()];
    assert_eq!(watched(NO_ECHO, &echo), (Outcome::Allow, named));
    // Nothing to name: somebody else's call, and the same policy in force.
    let owners = call(&who("owner"), ECHO, "x");
    assert_eq!(watched(NO_ECHO, &owners), (Outcome::Allow, Vec::new()));
    let enforced = NO_ECHO.replace("@mode(\"log_only\")", "");
    assert_eq!(watched(&enforced, &echo), (Outcome::Deny, Vec::new()));
}

#[test]
fn a_permit_is_named_when_it_would_have_allowed() {
    let guests = r#"@id("guests") @mode("log_only") @reason("r")
permit (principal == Palyra::User::"guest", action in Palyra::Action::"run", resource);
@id("also") @mode("log_only") @reason("r")
permit (principal == Palyra::User::"owner", action in Palyra::Action::"run", resource);"#;
    let guest = call(&who("guest"), ECHO, "x");
    let named = vec!["guests".to_owned()];
    assert_eq!(watched(guests, &guest), (Outcome::Deny, named));
    // `also` permits what is permitted anyway.
    let owners = call(&who("owner"), ECHO, "x");
    assert_eq!(watched(guests, &owners), (Outcome::Allow, Vec::new()));
}

#[test]
fn only_those_that_turned_a_question_around_are_named() {
    // One effect of the call would be forbidden and asked about; the other policies speak about
    // this call, too, and change no question of it.
    let text = r#"@id("no_git") @mode("log_only")
forbid (principal is Palyra::Agent, action == Palyra::Action::"exec", resource in Palyra::ProgramGroup::"vcs");
@id("may_ask") @mode("log_only") @reason("r")
permit (principal is Palyra::Agent, action == Palyra::Action::"exec.ask", resource);
@id("idle") @mode("log_only") @reason("r")
permit (principal is Palyra::Agent, action in Palyra::Action::"run", resource);
@id("elsewhere") @mode("log_only")
forbid (principal is Palyra::Agent, action == Palyra::Action::"exec", resource in Palyra::Path::"/opt");"#;
    let echo = call(&who("claude"), ECHO, "x");
    let named = vec!["may_ask".to_owned(), "no_git".to_owned()];
    assert_eq!(watched(text, &echo), (Outcome::Allow, named));
}

#[test]
fn one_that_fails_is_reported_and_changes_nothing() {
    let text = r#"@id("overflows") @mode("log_only")
forbid (principal, action in Palyra::Action::"run", resource)
when { context.calls_last_minute * 9223372036854775807 > 1 };"#;
    let mut facts = call(&who("claude"), ECHO, "x");
    facts.calls_last_minute = 2;
    let named = vec!["overflows failed".to_owned()];
    assert_eq!(watched(text, &facts), (Outcome::Allow, named));
    // In force it closes.
    let enforced = text.replace("@mode(\"log_only\")", "");
    assert!(engine(&enforced).deliberate(&facts).is_err());
}

#[test]
fn an_answer_names_the_version_that_gave_it() {
    let (old, new) = (bundle(""), bundle(NO_ECHO));
    let engine = furnish(PolicyEngine::of(&old).unwrap());
    let echo = call(&who("claude"), ECHO, "x");
    let first = engine.deliberate(&echo).unwrap();
    assert_eq!(first.version, old.version_text());
    assert_eq!(first.version, engine.version());
    engine.replace(&new).unwrap();
    let second = engine.deliberate(&echo).unwrap();
    assert_eq!(second.version, new.version_text());
    assert_ne!(second.version, first.version);
    assert_eq!((first.log_only.len(), second.log_only.len()), (0, 1));
}

/// Two bundles of which one denies and watches nothing, the other runs and watches. Whatever is
/// swapped while a call is decided, answer, version and what was watched are of one bundle.
#[test]
fn an_answer_is_of_one_bundle() {
    let denies = NO_ECHO.replace("@mode(\"log_only\")", "");
    let (watches, denies) = (bundle(NO_ECHO), bundle(&denies));
    let engine = furnish(PolicyEngine::of(&watches).unwrap());
    let echo = call(&who("claude"), ECHO, "x");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                engine.replace(&denies).unwrap();
                engine.replace(&watches).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut seen = 0;
        while !done.load(Ordering::Relaxed) || seen == 0 {
            seen += 1;
            let found = engine.deliberate(&echo).unwrap();
            if found.version == watches.version_text() {
                assert!(matches!(found.answer, PolicyAnswer::Run { .. }));
                assert_eq!(found.log_only, ["no_echo"]);
            } else {
                assert_eq!(found.version, denies.version_text());
                assert!(matches!(found.answer, PolicyAnswer::Deny { .. }));
                assert!(found.log_only.is_empty());
            }
        }
    });
}

/// The bundle's own set decides as its text does.
#[test]
fn a_bundle_decides_like_its_text() {
    for baseline in Baseline::ALL {
        let source = NamedSource::new("baseline.cedar", baseline.source());
        let of = furnish(PolicyEngine::of(&Bundle::load(&source, &[]).unwrap()).unwrap());
        let new = furnish(PolicyEngine::new(baseline.source()).unwrap());
        for person in ["owner", "claude", "stray", "guest"] {
            for (tool, program) in [(ECHO, "/usr/bin/git"), (RUN, "/usr/bin/bash")] {
                let effects = vec![Effect::Exec {
                    program: program.into(),
                }];
                let facts = does(call(&who(person), tool, "x"), effects);
                let [of, new] = [&of, &new].map(|engine| engine.deliberate(&facts).unwrap());
                assert_eq!(of.answer, new.answer);
                assert_eq!(of.asked, new.asked);
            }
        }
    }
}
