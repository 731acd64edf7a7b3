//! Recorded calls: decided again after their agent is gone, and explained with changes that help.

use std::collections::BTreeSet;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, EntityUid, PolicySet, Request, Schema,
};
use palyra_core::corridor::PolicyAnswer;
use palyra_core::{DenialCode, Effect, Facts, Tier};
use palyra_policy::operator::{
    Bundle, CallRemedy, NamedSource, Outcome, Question, Replay, decide_call, explain_call,
};
use palyra_policy::{Baseline, Deliberation, PolicyEngine, SCHEMA_SRC};

use crate::fixture::{ECHO, READ, RUN, SHY, WRITE, agent_of, call, does, furnish, granted, who};

/// Rules of many shapes: rates, places, hosts, groups, tiers, people, grants by two.
const MINE: &str = r#"
@id("rate") @reason("too many calls in a minute")
forbid (principal is Palyra::Agent, action in [Palyra::Action::"run", Palyra::Action::"ask"], resource)
when { context.calls_last_minute > 100 };
@id("etc") @reason("nothing is written there")
forbid (principal, action in [Palyra::Action::"fs.write", Palyra::Action::"fs.write.ask"], resource in Palyra::Path::"/etc")
unless { context.tier >= 4 };
@id("corp") @reason("only from the sandbox")
forbid (principal is Palyra::Agent, action == Palyra::Action::"net.connect", resource in Palyra::Domain::"corp.example")
unless { context.tier >= 3 && context.risk < 2 };
@id("destructive") @reason("not in one step")
forbid (principal is Palyra::Agent, action == Palyra::Action::"exec", resource in Palyra::ProgramGroup::"system")
unless { context has grant && context.grant.people >= 2 };
@id("guest") @reason("a guest may run what is harmless, slowly")
permit (principal == Palyra::User::"guest", action in Palyra::Action::"run", resource)
when { !context.tool.sensitive && (context.calls_last_minute < 5 || context.tier == 4) };
@id("where") @reason("only in the project")
forbid (principal == Palyra::Agent::"codex", action in Palyra::Action::"run", resource)
unless { context has workspace && context.workspace like "/src/*" };
@id("reads") @reason("keys are not read")
forbid (principal, action in [Palyra::Action::"run", Palyra::Action::"ask"], resource)
when { context.reads.contains("/home/ada/.ssh/id_ed25519") };
"#;

fn bundles() -> Vec<(String, Bundle)> {
    let mut all = Vec::new();
    for baseline in Baseline::ALL {
        for (name, text) in [("alone", ""), ("with rules", MINE)] {
            let source = NamedSource::new("baseline.cedar", baseline.source());
            let own = [NamedSource::new("mine.cedar", text)];
            let bundle = Bundle::load(&source, &own).unwrap();
            all.push((format!("{baseline} {name}"), bundle));
        }
    }
    all
}

fn exec(program: &str) -> Effect {
    Effect::Exec {
        program: program.into(),
    }
}

fn read(path: &str) -> Effect {
    Effect::FsRead { path: path.into() }
}

fn write(path: &str) -> Effect {
    Effect::FsWrite { path: path.into() }
}

fn connect(host: &str) -> Effect {
    Effect::NetConnect {
        host: host.parse().unwrap(),
        port: Some(443),
    }
}

/// Calls that differ in who, tool, effects, confinement, rate, place, and what was understood.
fn calls() -> Vec<Facts> {
    let effects: Vec<(&str, Vec<Effect>)> = vec![
        (ECHO, vec![]),
        (ECHO, vec![exec("/usr/bin/env"), exec("/usr/bin/git")]),
        (ECHO, vec![write("/etc/passwd")]),
        (ECHO, vec![connect("git.corp.example")]),
        (SHY, vec![read("/src/project/a")]),
        (READ, vec![read("/home/ada/.ssh/id_ed25519")]),
        (READ, vec![read("/src/project/a"), read("/var/log/syslog")]),
        (WRITE, vec![write("/src/project/a")]),
        (WRITE, vec![write("/etc/cron.d/x")]),
        (RUN, vec![exec("/usr/bin/git"), exec("/usr/bin/head")]),
        (RUN, vec![exec("/usr/bin/bash"), exec("/usr/bin/git")]),
        (RUN, vec![exec("/usr/bin/sudo"), write("/etc/hosts")]),
        (RUN, vec![exec("/usr/bin/git"), connect("api.example.com")]),
        (RUN, vec![exec("/usr/bin/git"), connect("git.corp.example")]),
    ];
    let kinds = [
        ("claude", Tier::B, 1, false),
        ("claude", Tier::Builtin, 1, true),
        ("codex", Tier::Builtin, 101, false),
        ("stray", Tier::B, 7, false),
        ("guest", Tier::Builtin, 200, false),
    ];
    let mut calls = Vec::new();
    for (number, (person, tier, rate, opaque)) in kinds.into_iter().enumerate() {
        for (tool, does_this) in &effects {
            let mut facts = does(call(&who(person), tool, "x"), does_this.clone());
            facts.tier = tier;
            facts.calls_last_minute = rate;
            facts.opaque = opaque;
            if person == "codex" {
                facts.workspace = (number % 2 == 1).then(|| "/srv/elsewhere".into());
            }
            calls.push(facts);
        }
    }
    // A yes that does not fit, or has ended.
    let asked = does(call(&who("claude"), RUN, "x"), vec![exec("/usr/bin/git")]);
    calls.push(granted(asked.clone(), |grant| grant.people = 0));
    calls.push(granted(asked.clone(), |grant| {
        grant.agent = "codex".parse().unwrap();
    }));
    calls.push(granted(asked, |grant| {
        grant.not_after = crate::fixture::NOW
    }));
    calls
}

/// Cedar's own answer, from what a question says about itself, with none of our code between.
struct Plain {
    schema: Schema,
    set: PolicySet,
}

impl Plain {
    fn of(bundle: &Bundle) -> Self {
        let (schema, _) = Schema::from_cedarschema_str(SCHEMA_SRC).unwrap();
        let text: String = bundle
            .policies()
            .iter()
            .map(|it| it.text.as_str())
            .collect();
        let set = text.parse().unwrap();
        Self { schema, set }
    }

    fn allows(&self, question: &Question) -> bool {
        let details = question.details();
        let part = |name: &str| details.get(name).unwrap().clone();
        let uid = |name: &str| -> EntityUid { part(name).as_str().unwrap().parse().unwrap() };
        let (context, entities) = (part("context"), part("entities"));
        let context = Context::from_json_value(context, Some((&self.schema, &uid("action"))));
        let request = Request::new(
            uid("principal"),
            uid("action"),
            uid("resource"),
            context.unwrap(),
            Some(&self.schema),
        );
        let entities = Entities::from_json_value(entities, Some(&self.schema)).unwrap();
        let response = Authorizer::new().is_authorized(&request.unwrap(), &self.set, &entities);
        assert_eq!(response.diagnostics().errors().count(), 0);
        response.decision() == Decision::Allow
    }
}

/// The promise: of many kinds of calls that are denied or asked about, every change that is named
/// makes the decision another.
#[test]
fn every_change_that_is_named_flips_the_decision() {
    let mut kinds: BTreeSet<String> = BTreeSet::new();
    let (mut helped, mut whole) = (0, 0);
    for (name, bundle) in bundles() {
        let plain = Plain::of(&bundle);
        let mut replay = Replay::of(&bundle).unwrap();
        for facts in calls() {
            let decided = replay.decide(&facts).unwrap();
            let runs = matches!(decided.answer, PolicyAnswer::Run { .. });
            if runs || !kinds.insert(format!("{name} {}", kind(&decided))) {
                continue;
            }
            let found = explain_call(&bundle, &facts).unwrap();
            assert_eq!(found.outcome, Outcome::from(&decided.answer));
            assert_eq!(found.questions.len(), decided.asked.len());
            for question in &found.questions {
                assert_eq!(question.unexplained, None);
                assert!(question.remedies.is_empty() || !question.allowed);
                // Where nothing helps, nothing is named: no policy speaks of a guest.
                let guest = question.principal == "user:guest";
                let helps = question.allowed || !question.remedies.is_empty();
                assert!(helps || guest, "{name} {question:?}");
                for remedy in &question.remedies {
                    assert!(!remedy.sentences.is_empty());
                    assert!(plain.allows(remedy.applied()), "{name} {remedy:?}");
                    helped += 1;
                }
            }
            let guests = facts.origin.principal.user().as_str() == "guest";
            assert!(!found.remedies.is_empty() || guests, "{name} {facts:?}");
            for remedy in &found.remedies {
                flips(&bundle, &plain, &facts, remedy);
                whole += 1;
            }
        }
    }
    assert!(kinds.len() >= 50, "only {} kinds", kinds.len());
    assert!(helped >= 100 && whole >= 100, "{helped} and {whole}");
    for outcome in ["Ask", "Deny"] {
        assert!(kinds.iter().any(|kind| kind.ends_with(outcome)));
    }
}

fn flips(bundle: &Bundle, plain: &Plain, facts: &Facts, remedy: &CallRemedy) {
    assert!(!remedy.sentences.is_empty() && !remedy.applied().is_empty());
    let all = remedy.applied().iter().all(|it| plain.allows(it));
    assert!(all, "{remedy:?}");
    // What can be done to the facts themselves is done to them.
    let claudes = facts.origin.principal == who("claude") && facts.grant.is_none();
    if remedy.sentences == ["a grant for this call"] && claudes {
        let yes = granted(facts.clone(), |_| ());
        let again = decide_call(bundle, &yes).unwrap();
        assert_eq!(Outcome::from(&again.answer), Outcome::Allow, "{facts:?}");
    }
}

/// What makes two refusals of different kinds.
fn kind(decided: &Deliberation) -> String {
    let asked = decided.asked.iter();
    let asked = asked.map(|it| format!("{} {} {:?};", it.action, it.allowed, it.matched));
    let outcome = Outcome::from(&decided.answer);
    format!("{}{outcome:?}", asked.collect::<String>())
}

/// What is explained is what was asked: the same questions, the same answers, the same policies.
#[test]
fn an_explanation_is_of_the_questions_that_were_asked() {
    let (_, bundle) = bundles().pop().unwrap();
    for facts in calls() {
        let decided = decide_call(&bundle, &facts).unwrap();
        let replayed = Replay::of(&bundle).unwrap().decide(&facts).unwrap();
        assert_eq!(decided, replayed);
    }
    let facts = does(call(&who("claude"), RUN, "x"), vec![exec("/usr/bin/git")]);
    let found = explain_call(&bundle, &facts).unwrap();
    let said: Vec<_> = found
        .questions
        .iter()
        .map(|it| {
            (
                it.principal.as_str(),
                it.action.as_str(),
                it.resource.as_str(),
                it.allowed,
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            (
                "agent:claude",
                "tool.execute",
                "`palyra.process.run`",
                false
            ),
            (
                "agent:claude",
                "tool.execute.ask",
                "`palyra.process.run`",
                true
            ),
            (
                "user:owner",
                "tool.execute.ask",
                "`palyra.process.run`",
                true
            ),
            ("agent:claude", "exec", "`/usr/bin/git`", false),
            ("agent:claude", "exec.ask", "`/usr/bin/git`", true),
            ("user:owner", "exec.ask", "`/usr/bin/git`", true),
        ]
    );
    let first = &found.questions[0];
    assert!(first.because[0].reason.is_some() && !first.because[0].permits);
    assert_eq!(first.facts["context has grant"], "`false`");
    assert_eq!(found.remedies[0].sentences, ["a grant for this call"]);
    assert_eq!(found.version, bundle.version_text());
    // It can be sent and kept.
    let text = serde_json::to_value(&found).unwrap();
    assert_eq!(text["outcome"], "ask");
    assert_eq!(text["questions"][3]["action"], "exec");
}

/// A call is decided again as the daemon decided it, when agent, tool and person are gone.
#[test]
fn a_recorded_call_is_decided_without_its_world() {
    for (name, bundle) in bundles() {
        let engine = furnish(PolicyEngine::of(&bundle).unwrap());
        let empty = PolicyEngine::of(&bundle).unwrap();
        let mut replay = Replay::of(&bundle).unwrap();
        for facts in calls() {
            // Read back from a record.
            let text = serde_json::to_string(&facts).unwrap();
            let recorded: Facts = serde_json::from_str(&text).unwrap();
            let now = engine.deliberate(&facts);
            assert_eq!(replay.decide(&recorded), now, "{name} {facts:?}");
            assert!(empty.deliberate(&recorded).is_err());
        }
    }
}

/// An agent that changed hands and a tool that became sensitive are each what they were.
#[test]
fn the_same_names_are_what_they_were_in_each_record() {
    let (_, bundle) = bundles().swap_remove(0);
    let mut replay = Replay::of(&bundle).unwrap();
    let mut outcome = |facts: &Facts| Outcome::from(&replay.decide(facts).unwrap().answer);
    let before = call(&who("claude"), ECHO, "x");
    let mut sensitive = before.clone();
    sensitive.sensitive = true;
    let strays = call(&agent_of("claude", "guest"), ECHO, "x");
    for _ in 0..2 {
        assert_eq!(outcome(&before), Outcome::Allow);
        assert_eq!(outcome(&sensitive), Outcome::Ask);
        assert_eq!(outcome(&strays), Outcome::Deny);
    }
}

/// What policy could not tell then, it cannot tell now.
#[test]
fn what_contradicts_itself_is_not_guessed() {
    let (_, bundle) = bundles().swap_remove(0);
    let mut facts = call(&who("claude"), RUN, "x");
    facts.programs.clear();
    let denial = decide_call(&bundle, &facts).unwrap_err();
    assert_eq!(denial.code, DenialCode::PolicyUnavailable);
    assert_eq!(explain_call(&bundle, &facts).unwrap_err(), denial);
}
