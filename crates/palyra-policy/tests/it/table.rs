//! The table of the standard baseline: who may do what.

use palyra_core::corridor::{Decides as _, PolicyAnswer};
use palyra_core::{Channel, DenialCode, DeviceId, Principal};
use palyra_policy::{Action, Baseline, PolicyEngine, Resource};

use crate::fixture::{
    ECHO, READ, RUN, SHY, WRITE, call, engine, engine_of, granted, name, tools, who,
};

/// One word for an answer.
fn word(engine: &PolicyEngine, principal: &Principal, tool: &str) -> &'static str {
    match engine.answer(&call(principal, tool, "x")).unwrap() {
        PolicyAnswer::Run { .. } => "run",
        PolicyAnswer::Ask { .. } => "ask",
        PolicyAnswer::Deny { .. } => "deny",
    }
}

#[test]
fn who_may_run_what() {
    let engine = engine();
    let table = [
        //                 owner  claude  stray   guest
        (ECHO, ["run", "run", "deny", "deny"]),
        (READ, ["run", "run", "deny", "deny"]),
        (RUN, ["run", "ask", "deny", "deny"]),
        (WRITE, ["run", "ask", "deny", "deny"]),
        (SHY, ["run", "ask", "deny", "deny"]),
    ];
    for (tool, row) in table {
        for (person, expected) in ["owner", "claude", "stray", "guest"].iter().zip(row) {
            let principal = who(person);
            assert_eq!(
                word(&engine, &principal, tool),
                expected,
                "{person} on {tool}"
            );
            let listed = expected != "deny";
            assert_eq!(
                engine.may_list(&principal, &name(tool)),
                listed,
                "{person} sees {tool}"
            );
        }
    }
}

#[test]
fn answers_name_their_policies_and_say_their_reasons() {
    let engine = engine();
    let answer = engine.answer(&call(&who("owner"), RUN, "x")).unwrap();
    let PolicyAnswer::Run { matched } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(matched, ["allow_owner_execution"]);
    assert_eq!(
        engine.reason("allow_owner_execution"),
        Some("the owner may run every tool".to_owned())
    );

    let answer = engine.answer(&call(&who("claude"), ECHO, "x")).unwrap();
    let both = ["allow_agent_insensitive", "allow_owner_execution"].map(str::to_owned);
    assert_eq!(
        answer,
        PolicyAnswer::Run {
            matched: both.to_vec()
        }
    );

    let answer = engine.answer(&call(&who("claude"), RUN, "x")).unwrap();
    let both = ["ask_agent_sensitive", "ask_for_owner"].map(str::to_owned);
    assert_eq!(
        answer,
        PolicyAnswer::Ask {
            matched: both.to_vec()
        }
    );

    let facts = granted(call(&who("claude"), RUN, "x"), |_| ());
    let answer = engine.answer(&facts).unwrap();
    let both = ["allow_granted", "allow_owner_execution"].map(str::to_owned);
    assert_eq!(
        answer,
        PolicyAnswer::Run {
            matched: both.to_vec()
        }
    );
}

#[test]
fn a_no_says_why_and_what_to_do() {
    let answer = engine().answer(&call(&who("guest"), RUN, "x")).unwrap();
    let PolicyAnswer::Deny { matched, denial } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(matched, Vec::<String>::new());
    assert_eq!(denial.code, DenialCode::DeniedByPolicy);
    assert_eq!(
        denial.reason,
        "no policy lets `user:guest` run `palyra.process.run`"
    );
    assert_eq!(
        denial.next_step,
        "see what may be run with `palyra tools list`"
    );

    let facts = granted(call(&who("claude"), RUN, "x"), |grant| grant.people = 0);
    let answer = engine().answer(&facts).unwrap();
    let PolicyAnswer::Deny { matched, denial } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(
        matched,
        ["deny_asking_twice", "deny_sensitive_without_approval"]
    );
    assert_eq!(
        denial.reason,
        "the approval that was given does not cover this call, or has ended"
    );
    assert_eq!(denial.next_step, "repeat the call to be asked again");
}

/// What the daemon offers besides calls: owner, claude, codex, stray, guest.
#[test]
fn who_may_read_decide_and_manage() {
    let engine = engine();
    let people = ["owner", "claude", "codex", "stray", "guest"];
    let of = |name| who(name);
    let call_of = |name| Resource::Call { owner: of(name) };
    let approval_of = |name| Resource::Approval {
        requester: of(name),
    };
    let agent = |name: &str| Resource::Agent(name.parse().unwrap());
    let only_owner = [true, false, false, false, false];
    let owner_and_claude = [true, true, false, false, false];
    let everyone = [true; 5];
    let table = [
        (Action::ToolList, Resource::Daemon, everyone),
        (Action::ToolList, Resource::Tool(name(RUN)), everyone),
        (Action::DaemonStatus, Resource::Daemon, everyone),
        (Action::CallRead, call_of("claude"), owner_and_claude),
        (Action::CallRead, call_of("owner"), only_owner),
        (Action::CallRead, call_of("stray"), only_owner),
        (Action::CallRead, call_of("guest"), only_owner),
        // An agent that is no longer registered.
        (Action::CallRead, call_of("gone"), only_owner),
        (
            Action::ApprovalRead,
            approval_of("claude"),
            owner_and_claude,
        ),
        (Action::ApprovalRead, approval_of("owner"), only_owner),
        (Action::JournalRead, Resource::Daemon, only_owner),
        (Action::AgentRead, Resource::Agents, only_owner),
        (Action::AgentRead, agent("claude"), owner_and_claude),
        (Action::AgentManage, Resource::Agents, only_owner),
        (Action::AgentManage, agent("claude"), only_owner),
        (Action::ApprovalDecide, approval_of("claude"), only_owner),
        (Action::ApprovalDecide, approval_of("owner"), only_owner),
        (Action::ApprovalDecide, approval_of("stray"), only_owner),
    ];
    for (action, resource, expected) in table {
        for (person, allowed) in people.iter().zip(expected) {
            let answer = engine.authorize(
                &who(person),
                &DeviceId::local(),
                Channel::Cli,
                action,
                resource.clone(),
            );
            let context = format!("{person}: {action} on {resource}");
            match (allowed, answer) {
                (true, Ok(matched)) => assert!(!matched.is_empty(), "{context}"),
                (false, Err(denial)) => {
                    assert_eq!(denial.code, DenialCode::DeniedByPolicy, "{context}");
                    assert!(!denial.reason.is_empty() && !denial.next_step.is_empty());
                }
                (_, answer) => panic!("{context}: {answer:?}"),
            }
        }
    }
}

/// An agent that acts for a guest reads its own calls only if the guest may: nothing permits that.
#[test]
fn an_agent_reads_no_more_than_its_person() {
    let owner = who("stray");
    let denial = engine()
        .authorize(
            &owner,
            &DeviceId::local(),
            Channel::Cli,
            Action::CallRead,
            Resource::Call {
                owner: owner.clone(),
            },
        )
        .unwrap_err();
    assert_eq!(
        denial.reason,
        "no policy lets `user:guest` read a call of `agent:stray`"
    );
}

#[test]
fn replacing_tools_and_agents_takes_effect_at_once() {
    let engine = engine();
    let claude = who("claude");
    assert_eq!(word(&engine, &claude, ECHO), "run");

    engine.set_agents([]).unwrap();
    assert!(engine.answer(&call(&claude, ECHO, "x")).is_err());
    assert!(!engine.may_list(&claude, &name(ECHO)));
    assert_eq!(word(&engine, &who("owner"), ECHO), "run");

    let claude_again = ("claude".parse().unwrap(), "owner".parse().unwrap());
    engine.set_agents([claude_again]).unwrap();
    assert_eq!(word(&engine, &claude, ECHO), "run");

    engine.set_tools(&[]).unwrap();
    assert!(engine.answer(&call(&claude, ECHO, "x")).is_err());
    engine.set_tools(&tools()).unwrap();
    assert_eq!(word(&engine, &claude, ECHO), "run");
}

#[test]
fn the_engine_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let engine = engine();
    shared(&engine);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(word(&engine, &who("claude"), RUN), "ask");
                }
            });
        }
        for _ in 0..50 {
            engine.set_tools(&tools()).unwrap();
        }
    });
}

/// A person's own word is enough, unless a passphrase is demanded and was not given. Then nobody is
/// asked instead, and no grant of theirs exists that could lift it.
#[test]
fn a_persons_own_call_is_confirmed_by_making_it() {
    for baseline in Baseline::ALL {
        let engine = engine_of(baseline.source());
        let answer = |who_calls: &str, tool: &str, confirmed: Option<bool>| {
            let mut facts = call(&who(who_calls), tool, "x");
            facts.self_confirmed = confirmed;
            engine.answer(&facts)
        };
        for confirmed in [None, Some(true)] {
            let ran = answer("owner", RUN, confirmed);
            assert!(matches!(ran, Ok(PolicyAnswer::Run { .. })), "{ran:?}");
        }
        let denied = answer("owner", RUN, Some(false));
        let Ok(PolicyAnswer::Deny { matched, .. }) = &denied else {
            panic!("{baseline:?}: {denied:?}");
        };
        assert_eq!(matched, &["deny_unconfirmed"]);
        // What is not sensitive needs nobody's word.
        let plain = answer("owner", ECHO, Some(false));
        assert!(matches!(plain, Ok(PolicyAnswer::Run { .. })), "{plain:?}");
    }
}
