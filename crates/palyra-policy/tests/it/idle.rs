//! No policy of a baseline is idle: taking one away changes an answer.
//!
//! A forbid that only repeats what no permit grants would change nothing by itself, so each set is
//! also tried beside a permit of everything, which is what such forbids are for.

use cedar_policy::{Policy, PolicySet};
use palyra_core::corridor::{Decides as _, PolicyAnswer};
use palyra_core::{Channel, DeviceId, Effect, Facts, Posture, Tier};
use palyra_policy::{
    Action, Baseline, PolicyEngine, PolicyRequest, PolicyRequestContext, Resource,
};

use crate::fixture::{ECHO, RUN, call, does, engine_of, granted, name, who};

const OPEN: &str = "@id(\"open\") permit (principal, action, resource);";

/// Every answer that this engine gives, as one text.
fn answers(engine: &PolicyEngine) -> String {
    let mut said = String::new();
    for person in ["owner", "claude", "guest"] {
        for (tool, program, tier, opaque) in calls() {
            let effects = vec![Effect::Exec {
                program: program.into(),
            }];
            let mut plain = does(call(&who(person), tool, "x"), effects);
            plain.tier = tier;
            plain.opaque = opaque;
            let yes = granted(plain.clone(), |_| ());
            let stale = granted(plain.clone(), |grant| grant.people = 0);
            let posed = |facts: &Facts, posture| {
                let mut facts = facts.clone();
                facts.posture = Some(posture);
                facts
            };
            let (each, off) = (Posture::AskEachTime, Posture::Disabled);
            let postures = [posed(&plain, each), posed(&yes, each), posed(&yes, off)];
            let mut unconfirmed = plain.clone();
            unconfirmed.self_confirmed = Some(false);
            for facts in [plain, yes, stale, unconfirmed].into_iter().chain(postures) {
                said.push_str(match engine.answer(&facts) {
                    Ok(PolicyAnswer::Run { .. }) => "run ",
                    Ok(PolicyAnswer::Ask { .. }) => "ask ",
                    Ok(PolicyAnswer::Deny { .. }) => "deny ",
                    Err(_) => "error ",
                });
            }
        }
        let facts = granted(call(&who(person), ECHO, "x"), |_| ());
        for secret in ["token", "agent:codex/token"] {
            let request = PolicyRequest {
                principal: who(person),
                action: Action::VaultUse,
                resource: Resource::Secret(secret.parse().unwrap()),
            };
            let answer =
                engine.evaluate_with_context(&request, &PolicyRequestContext::from(&facts));
            let allowed = answer.is_ok_and(|decision| decision.allowed);
            said.push_str(if allowed { "use " } else { "no " });
        }
        for (action, resource) in questions(person) {
            let (device, channel) = (DeviceId::local(), Channel::Cli);
            let answer = engine.authorize(&who(person), &device, channel, action, resource);
            said.push_str(if answer.is_ok() { "yes " } else { "no " });
        }
    }
    said
}

/// Plain and sensitive, each kind of program, weakly and strongly confined, understood or not.
fn calls() -> Vec<(&'static str, &'static str, Tier, bool)> {
    let mut calls = Vec::new();
    for tool in [ECHO, RUN] {
        for program in ["/usr/bin/git", "/usr/bin/bash", "/usr/bin/env"] {
            for opaque in [false, true] {
                let tiers = [Tier::B, Tier::Builtin];
                calls.extend(tiers.map(|tier| (tool, program, tier, opaque)));
            }
        }
    }
    calls
}

fn questions(person: &str) -> Vec<(Action, Resource)> {
    let mut questions = vec![
        (Action::ToolList, Resource::Tool(name(RUN))),
        (Action::DaemonStatus, Resource::Daemon),
        (Action::JournalRead, Resource::Daemon),
        (Action::AgentManage, Resource::Agents),
        (Action::PolicyActivate, Resource::Daemon),
        (Action::CronDelete, Resource::Daemon),
        (
            Action::AgentRead,
            Resource::Agent("claude".parse().unwrap()),
        ),
    ];
    for owner in [person, "codex"].map(who) {
        let requester = owner.clone();
        questions.extend([
            (Action::CallRead, Resource::Call { owner }),
            (
                Action::ApprovalRead,
                Resource::Approval {
                    requester: requester.clone(),
                },
            ),
            (Action::ApprovalDecide, Resource::Approval { requester }),
        ]);
    }
    questions
}

#[test]
fn taking_any_policy_away_changes_an_answer() {
    for baseline in Baseline::ALL {
        no_policy_is_idle(baseline);
    }
}

fn no_policy_is_idle(baseline: Baseline) {
    let set: PolicySet = baseline.source().parse().unwrap();
    let policies: Vec<&Policy> = set.policies().collect();
    let both = |keep: &dyn Fn(&Policy) -> bool| {
        let kept = policies.iter().filter(|policy| keep(policy));
        let source: String = kept.map(|policy| format!("{policy}\n")).collect();
        let opened = format!("{source}{OPEN}");
        [answers(&engine_of(&source)), answers(&engine_of(&opened))]
    };
    let whole = both(&|_| true);
    for policy in &policies {
        let id = policy.annotation("id").unwrap();
        // An unpaired device cannot be made from out here; the engine's own tests have one.
        if id != "floor_known_origin" {
            assert_ne!(
                both(&|other| other != *policy),
                whole,
                "`{id}` of {baseline} is idle"
            );
        }
    }
}
