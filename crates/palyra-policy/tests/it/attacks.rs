//! Each way around a decision that we know of, and the decision that it gets.
//!
//! Every attack stands beside the same call without it, which must pass.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use palyra_core::corridor::{Decides as _, PolicyAnswer};
use palyra_core::{Channel, DenialCode, DeviceId, Effect, Facts, Grant, Timestamp};
use palyra_policy::{Action, PolicyEngine, PolicyRequest, PolicyRequestContext, Resource};

use crate::fixture::{
    ECHO, NOW, RUN, agent_of, call, does, engine, engine_of, grant_for, granted, name, tool, who,
};

fn runs(engine: &PolicyEngine, facts: &Facts) -> bool {
    matches!(engine.answer(facts), Ok(PolicyAnswer::Run { .. }))
}

fn denied(engine: &PolicyEngine, facts: &Facts) -> bool {
    matches!(engine.answer(facts), Ok(PolicyAnswer::Deny { .. }))
}

/// Cedar skips a policy that fails, a forbid too. Here that is a denial.
#[test]
fn an_erroring_forbid_does_not_open_the_gate() {
    let permit = r#"@id("open") permit (principal, action, resource);"#;
    let control = engine_of(permit);
    assert!(runs(&control, &call(&who("claude"), RUN, "x")));

    // Overflows, which no validator can rule out.
    let failing = r#"@id("failing") forbid (principal, action == Palyra::Action::"tool.execute", resource)
        when { context.calls_last_minute * 9223372036854775807 < 0 };"#;
    let engine = engine_of(&format!("{permit}\n{failing}"));
    let mut facts = call(&who("claude"), RUN, "x");
    facts.calls_last_minute = 2;
    let denial = engine.answer(&facts).unwrap_err();
    assert_eq!(denial.code, DenialCode::PolicyUnavailable);
    assert!(denial.reason.contains("failing"), "{}", denial.reason);
    assert!(!engine.may_list(&who("nobody"), &name(RUN)));

    // The same request does not fail when the product fits.
    facts.calls_last_minute = 1;
    assert!(runs(&engine, &facts));
}

/// An erroring permit beside one that works: still "could not tell".
#[test]
fn an_erroring_permit_is_not_overlooked() {
    let source = r#"
        @id("open") permit (principal, action, resource);
        @id("failing") permit (principal, action == Palyra::Action::"tool.execute", resource)
        when { context.calls_last_minute + 9223372036854775807 < 0 };"#;
    let answer = engine_of(source).answer(&call(&who("owner"), ECHO, "x"));
    assert_eq!(answer.unwrap_err().code, DenialCode::PolicyUnavailable);
}

#[test]
fn what_is_not_known_is_denied() {
    let engine = engine_of(r#"@id("open") permit (principal, action, resource);"#);
    assert!(runs(&engine, &call(&who("claude"), ECHO, "x")));

    let unknown_agent = call(&who("nobody"), ECHO, "x");
    let switched_user = call(&agent_of("claude", "guest"), ECHO, "x");
    let unknown_user = call(&agent_of("claude", "mallory"), ECHO, "x");
    let unknown_person = call(
        &palyra_core::Principal::User {
            name: "mallory".parse().unwrap(),
        },
        ECHO,
        "x",
    );
    let unknown_tool = call(&who("claude"), "palyra.nothing", "x");
    let mut unknown_device = call(&who("claude"), ECHO, "x");
    unknown_device.origin.device = serde_json::from_str("\"dev_other\"").unwrap();
    for facts in [
        unknown_agent,
        switched_user,
        unknown_user,
        unknown_person,
        unknown_tool,
        unknown_device,
    ] {
        let denial = engine.answer(&facts).unwrap_err();
        assert_eq!(denial.code, DenialCode::PolicyUnavailable, "{facts:?}");
        assert!(!denial.next_step.is_empty());
    }
    let denial = engine.answer(&call(&who("nobody"), ECHO, "x")).unwrap_err();
    assert!(denial.next_step.contains("palyra agents add nobody"));
}

/// Facts cannot talk a sensitive tool down.
#[test]
fn the_registry_says_what_is_sensitive() {
    let engine = engine();
    let mut facts = call(&who("claude"), RUN, "x");
    facts.sensitive = false;
    facts.capabilities.clear();
    assert_eq!(
        engine.answer(&facts).unwrap_err().code,
        DenialCode::PolicyUnavailable
    );
}

#[test]
fn a_grant_serves_only_what_it_was_given_for() {
    let engine = engine();
    let facts = || call(&who("claude"), RUN, "x");
    assert!(runs(&engine, &granted(facts(), |_| ())));

    let other = *call(&who("claude"), RUN, "y").digest();
    let other_tool = *call(&who("claude"), ECHO, "x").digest();
    let others_call = *call(&who("codex"), RUN, "x").digest();
    type Spoil<'a> = (&'static str, &'a dyn Fn(&mut Grant));
    let spoil: [Spoil<'_>; 9] = [
        ("another agent's", &|grant| {
            grant.agent = "codex".parse().unwrap();
        }),
        ("an agent named like the owner", &|grant| {
            grant.agent = "owner".parse().unwrap();
        }),
        ("other arguments", &|grant| grant.digest = other),
        ("another tool", &|grant| grant.digest = other_tool),
        ("another agent's call", &|grant| grant.digest = others_call),
        ("ended", &|grant| {
            grant.not_after = Timestamp::from_millis(NOW.as_millis() - 1);
        }),
        ("at its last instant", &|grant| grant.not_after = NOW),
        ("given by nobody", &|grant| grant.people = 0),
        ("given by less than nobody", &|grant| grant.people = -1),
    ];
    for (what, spoil) in spoil {
        assert!(denied(&engine, &granted(facts(), spoil)), "{what}");
    }
    // One millisecond before its end it is alive.
    assert!(runs(
        &engine,
        &granted(facts(), |grant| {
            grant.not_after = Timestamp::from_millis(NOW.as_millis() + 1);
        })
    ));
    // A grant of `claude`'s in the hands of `codex`.
    let stolen = call(&who("codex"), RUN, "x");
    let grant = grant_for(stolen.digest());
    assert!(denied(&engine, &stolen.with_grant(grant, NOW)));
}

/// A grant does not lift what the agent's person may not do.
#[test]
fn an_agent_of_a_guest_runs_nothing_even_with_a_yes() {
    let facts = granted(call(&who("stray"), RUN, "x"), |grant| {
        grant.agent = "stray".parse().unwrap();
    });
    let engine = engine();
    let answer = engine.deliberate(&facts).unwrap();
    // The agent itself would be allowed by the grant; its person is not.
    assert!(answer.asked.first().unwrap().allowed);
    assert!(matches!(answer.answer, PolicyAnswer::Deny { .. }));
    assert!(denied(&engine, &call(&who("stray"), ECHO, "x")));
}

/// A time that Cedar cannot hold is no time at all.
#[test]
fn times_beyond_the_calendar_deny() {
    let engine = engine();
    for millis in [i64::MAX, i64::MIN, 253_402_300_800_000] {
        let facts = granted(call(&who("claude"), RUN, "x"), |grant| {
            grant.not_after = Timestamp::from_millis(millis);
        });
        assert!(!runs(&engine, &facts), "{millis}");
    }
}

#[test]
fn an_agent_never_decides_even_if_a_policy_would_let_it() {
    let open = "@id(\"open\") permit (principal, action, resource);";
    let engine = engine_of(&format!("{}\n{open}", palyra_policy::DEFAULT_POLICY_SRC));
    let decide = |name: &str, requester: &str| {
        let requester = who(requester);
        engine.authorize(
            &who(name),
            &DeviceId::local(),
            Channel::Cli,
            Action::ApprovalDecide,
            Resource::Approval { requester },
        )
    };
    assert!(decide("owner", "claude").is_ok());
    for (agent, requester) in [
        ("claude", "claude"),
        ("claude", "codex"),
        ("claude", "owner"),
    ] {
        let denial = decide(agent, requester).unwrap_err();
        assert_eq!(denial.code, DenialCode::DeniedByPolicy);
        assert_eq!(
            denial.reason,
            "an agent never decides approvals and never manages agents"
        );
        assert!(denial.next_step.contains("palyra approvals decide"));
    }
    let manage = engine.authorize(
        &who("claude"),
        &DeviceId::local(),
        Channel::Cli,
        Action::AgentManage,
        Resource::Agents,
    );
    assert!(manage.is_err());
}

/// A sensitive call does not run for an agent because somebody added a broad permit.
#[test]
fn a_broad_permit_does_not_outweigh_the_forbid() {
    let open = "@id(\"open\") permit (principal, action, resource);";
    let engine = engine_of(&format!("{}\n{open}", palyra_policy::DEFAULT_POLICY_SRC));
    assert!(runs(&engine, &call(&who("claude"), ECHO, "x")));
    assert!(!runs(&engine, &call(&who("claude"), RUN, "x")));
}

/// Executing is asked with the facts of a call; without them there is no such question.
#[test]
fn executing_cannot_be_authorized_by_the_side_door() {
    let engine = engine();
    for action in [Action::ToolExecute, Action::ToolExecuteAsk] {
        let denial = engine
            .authorize(
                &who("owner"),
                &DeviceId::local(),
                Channel::Cli,
                action,
                Resource::Tool(name(RUN)),
            )
            .unwrap_err();
        assert_eq!(denial.code, DenialCode::PolicyUnavailable);
    }
}

/// A request that does not fit the schema is never evaluated.
#[test]
fn a_request_that_does_not_fit_the_schema_is_denied() {
    let engine = engine_of(r#"@id("open") permit (principal, action, resource);"#);
    let owner = who("owner");
    let facts = call(&owner, RUN, "x");
    let ask = |action, resource, context: &PolicyRequestContext<'_>| {
        let request = PolicyRequest {
            principal: owner.clone(),
            action,
            resource,
        };
        engine.evaluate_with_context(&request, context)
    };
    let of_call = PolicyRequestContext::from(&facts);
    let of_api = PolicyRequestContext {
        call: None,
        ..of_call
    };
    let tool = || Resource::Tool(name(RUN));
    assert!(ask(Action::ToolExecute, tool(), &of_call).unwrap().allowed);
    assert!(ask(Action::ToolList, tool(), &of_api).unwrap().allowed);

    // The wrong resource, the wrong context.
    for (action, resource, context) in [
        (Action::ToolExecute, Resource::Daemon, &of_call),
        (Action::JournalRead, tool(), &of_api),
        (
            Action::ApprovalDecide,
            Resource::Call {
                owner: owner.clone(),
            },
            &of_api,
        ),
        (Action::ToolExecute, tool(), &of_api),
        (Action::DaemonStatus, Resource::Daemon, &of_call),
    ] {
        let denial = ask(action, resource, context).unwrap_err();
        assert_eq!(denial.code, DenialCode::PolicyUnavailable, "{action}");
    }
}

/// A tool that becomes sensitive is sensitive for the next question.
#[test]
fn a_tool_that_becomes_sensitive_is_asked_about() {
    let engine = engine();
    assert!(runs(&engine, &call(&who("claude"), ECHO, "x")));
    let mut changed = tool(ECHO);
    changed.default_sensitive = true;
    engine.set_tools(&[changed]).unwrap();
    // The facts were made before the change.
    assert!(engine.answer(&call(&who("claude"), ECHO, "x")).is_err());
    let mut facts = call(&who("claude"), ECHO, "x");
    facts.sensitive = true;
    assert!(matches!(
        engine.answer(&facts),
        Ok(PolicyAnswer::Ask { .. })
    ));
}

/// Programs, paths and tiers reach policy as whole values.
#[test]
fn effects_reach_policy() {
    let source = r#"
        @id("open") permit (principal, action, resource);
        @id("no_git") forbid (principal, action in [Palyra::Action::"run", Palyra::Action::"ask"], resource is Palyra::Tool)
        when { context.programs.contains("/usr/bin/git") && context.tier < 3 &&
               context has workspace && context.workspace == "/src/project" };"#;
    let engine = engine_of(source);
    let mut facts = call(&who("owner"), RUN, "x");
    assert!(denied(&engine, &facts));
    facts.effects.clear();
    assert!(runs(&engine, &facts));

    // A path that is not text would have to be changed before it could be compared.
    let odd: &OsStr = OsStrExt::from_bytes(b"/usr/bin/git\xff");
    let facts = does(
        facts,
        vec![Effect::Exec {
            program: odd.into(),
        }],
    );
    let denial = engine.answer(&facts).unwrap_err();
    assert_eq!(denial.code, DenialCode::PolicyUnavailable);
}
