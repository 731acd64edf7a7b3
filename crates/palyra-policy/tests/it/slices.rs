//! A slice answers like the whole set: over random policy sets, and every request of a small
//! world. `PALYRA_POLICY_CASES` sets how many sets are tried; the long form is 10,000.

use std::cell::Cell;

use palyra_core::{Channel, DenialCode, DeviceId, Facts, Principal};
use palyra_policy::{Action, PolicyDecision, PolicyRequest, PolicyRequestContext, Resource};
use proptest::prelude::*;

use crate::fixture::{ECHO, RUN, SHY, call, engine_of, granted, known, name, who};

const CASES: u32 = 500;

const PRINCIPALS: &[&str] = &[
    "principal",
    "principal is Palyra::Agent",
    "principal is Palyra::User",
    "principal == Palyra::Agent::\"claude\"",
    "principal == Palyra::User::\"owner\"",
    "principal in Palyra::Agent::\"codex\"",
    "principal in Palyra::User::\"owner\"",
    "principal is Palyra::Agent in Palyra::Agent::\"claude\"",
    // Nobody.
    "principal == Palyra::Agent::\"gone\"",
];

const RESOURCES: &[&str] = &[
    "resource",
    "resource is Palyra::Tool",
    "resource == Palyra::Tool::\"palyra.echo\"",
    "resource == Palyra::Tool::\"palyra.process.run\"",
    "resource in Palyra::Tool::\"palyra.shy\"",
    "resource is Palyra::Tool in Palyra::Tool::\"palyra.echo\"",
    "resource == Palyra::Tool::\"gone\"",
    "resource in Palyra::ToolGroup::\"process_exec\"",
    "resource is Palyra::Tool in Palyra::ToolGroup::\"plain\"",
    "resource in Palyra::Path::\"/\"",
    "resource in Palyra::Path::\"/usr/bin\"",
    "resource == Palyra::Path::\"/srv/app\"",
    "resource in Palyra::Path::\"/srv\"",
    "resource is Palyra::Program in Palyra::Path::\"/usr\"",
    "resource in Palyra::ProgramGroup::\"vcs\"",
    "resource in Palyra::Domain::\"example.com\"",
    "resource == Palyra::Host::\"api.example.com\"",
];

/// Actions of calls, with what can be said about those; and of everything.
const CALL_ACTIONS: &[&str] = &[
    "action == Palyra::Action::\"tool.execute\"",
    "action in Palyra::Action::\"run\"",
    "action in Palyra::Action::\"ask\"",
    "action in [Palyra::Action::\"run\", Palyra::Action::\"ask\"]",
    "action in [Palyra::Action::\"run\", Palyra::Action::\"tool.execute\"]",
    "action in [Palyra::Action::\"exec\", Palyra::Action::\"fs.read\", Palyra::Action::\"net.connect\"]",
];

const CALL_CONDITIONS: &[&str] = &[
    "",
    "when { context.tier >= 3 }",
    "when { context has grant && context.grant.agent == principal }",
    "unless { context.calls_last_minute > 1 }",
    // Fails for some requests and not for others.
    "when { context.calls_last_minute * 4611686018427387904 > 0 }",
    "when { principal == Palyra::Agent::\"claude\" && context.calls_last_minute + 9223372036854775807 > 0 }",
];

const ACTIONS: &[&str] = &[
    "action",
    "action == Palyra::Action::\"tool.list\"",
    "action in Palyra::Action::\"read_only\"",
    "action in [Palyra::Action::\"run\", Palyra::Action::\"read_only\"]",
];

const CONDITIONS: &[&str] = &[
    "",
    "when { context.device.paired }",
    "unless { principal == Palyra::Agent::\"codex\" }",
];

fn pick(from: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(from)
}

fn policy() -> impl Strategy<Value = String> {
    let of_calls = (pick(CALL_ACTIONS), pick(CALL_CONDITIONS));
    let of_all = (pick(ACTIONS), pick(CONDITIONS));
    (
        prop_oneof![3 => Just("permit"), 1 => Just("forbid")],
        pick(PRINCIPALS),
        pick(RESOURCES),
        prop_oneof![of_calls, of_all],
    )
        .prop_map(|(effect, principal, resource, (action, condition))| {
            format!("{effect} ({principal}, {action}, {resource}) {condition};")
        })
}

fn source(policies: &[String]) -> String {
    let named = policies.iter().enumerate();
    named
        .map(|(number, policy)| format!("@id(\"p{number}\") {policy}\n"))
        .collect()
}

fn request(principal: &Principal, action: Action, resource: Resource) -> PolicyRequest {
    PolicyRequest {
        principal: principal.clone(),
        action,
        resource,
    }
}

/// Every request of the small world: calls with their facts, and the rest.
fn requests() -> Vec<(PolicyRequest, Option<Facts>)> {
    let mut requests = Vec::new();
    for person in ["owner", "guest", "claude", "codex"].map(who) {
        for tool in [ECHO, RUN, SHY] {
            let plain = call(&person, tool, "x");
            let mut busy = plain.clone();
            busy.calls_last_minute = 2;
            let yes = granted(plain.clone(), |_| ());
            for facts in [plain, busy, yes] {
                for action in [Action::ToolExecute, Action::ToolExecuteAsk] {
                    let on = Resource::Tool(name(tool));
                    requests.push((request(&person, action, on), Some(facts.clone())));
                }
            }
            let on = Resource::Tool(name(tool));
            requests.push((request(&person, Action::ToolList, on), None));
        }
        let effects = [
            (Action::Exec, program("/usr/bin/git")),
            (Action::ExecAsk, program("/opt/bin/sh")),
            (Action::FsRead, Resource::Path("/srv/app/x".into())),
            (Action::FsWrite, Resource::Path("/srv/app".into())),
            (Action::FsWriteAsk, Resource::Path("/srv-evil".into())),
            (Action::NetConnect, host("api.example.com")),
            (Action::NetConnect, host("evil-example.com")),
        ];
        let facts = granted(call(&person, RUN, "x"), |_| ());
        for (action, on) in effects {
            requests.push((request(&person, action, on), Some(facts.clone())));
        }
        let owner = who("claude");
        for (action, on) in [
            (Action::DaemonStatus, Resource::Daemon),
            (Action::AgentManage, Resource::Agents),
            (Action::CallRead, Resource::Call { owner }),
        ] {
            requests.push((request(&person, action, on), None));
        }
    }
    requests
}

fn program(path: &str) -> Resource {
    Resource::Program(known(path.as_ref()))
}

fn host(name: &str) -> Resource {
    Resource::Host(name.parse().unwrap())
}

/// Which of several errors is named first is not part of the answer.
fn comparable(
    answer: Result<PolicyDecision, palyra_core::Denial>,
) -> Result<PolicyDecision, DenialCode> {
    answer.map_err(|denial| denial.code)
}

/// How many cases the long forms try.
pub(crate) fn cases() -> u32 {
    let asked = std::env::var("PALYRA_POLICY_CASES").ok();
    asked.map_or(CASES, |text| text.parse().unwrap())
}

#[test]
fn a_slice_answers_like_the_whole_set() {
    let config = ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let requests = requests();
    let counts = [const { Cell::new(0_usize) }; 3];
    let [allowed, denied, failed] = &counts;
    let sets = prop::collection::vec(policy(), 0..24);
    let compared = proptest::test_runner::TestRunner::new(config).run(&sets, |policies| {
        let source = source(&policies);
        let engine = engine_of(&source);
        for (request, facts) in &requests {
            let device = DeviceId::local();
            let context = match facts {
                Some(facts) => PolicyRequestContext::from(facts),
                None => PolicyRequestContext {
                    device_id: &device,
                    channel: Channel::Cli,
                    call: None,
                },
            };
            let whole = comparable(engine.evaluate_whole(request, &context));
            let sliced = comparable(engine.evaluate_with_context(request, &context));
            prop_assert_eq!(&sliced, &whole, "{:?} of\n{}", request, source);
            // And once more from the slice that was kept.
            let again = comparable(engine.evaluate_with_context(request, &context));
            prop_assert_eq!(&again, &whole, "{:?} of\n{}", request, source);
            match whole {
                Ok(decision) if decision.allowed => allowed.update(|count| count + 1),
                Ok(_) => denied.update(|count| count + 1),
                Err(_) => failed.update(|count| count + 1),
            }
        }
        Ok(())
    });
    compared.unwrap();
    // Sets that always say the same would prove nothing.
    let all: usize = counts.iter().map(Cell::get).sum();
    for (answer, count) in [("yes", allowed), ("no", denied), ("error", failed)] {
        assert!(
            count.get() * 1_000 > all,
            "only {} of {all} answers are {answer}",
            count.get()
        );
    }
}
