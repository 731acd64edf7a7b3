//! Grants: whom they serve, and that they end.

use std::time::Duration;

use palyra_core::{Reach, ScopeKind, WhyEnded};
use palyra_gateway::sessions::Anchor;

use crate::fixture::{AGENT, House};

/// Long enough for a person.
const LONG: Duration = Duration::from_secs(600);

/// Why the newest grant ended.
fn ended(house: &House) -> Option<WhyEnded> {
    let grants = house.gateway.grants(&house.owner, false).unwrap();
    grants.first().unwrap().record.why_ended
}

/// A grant for `git status`, and the call that asked for it.
async fn granted(house: &House, by: &palyra_gateway::Caller, reach: Reach, cover: ScopeKind) {
    let (id, call) = house.ask(by, &["git", "status"]).await;
    let decided = house.allow(&id, reach, cover).await.unwrap();
    assert!(decided.record.grant.is_some());
    // The call that was shown runs under its own yes.
    assert_eq!(house.code(call).await, "executed");
}

#[tokio::test]
async fn case_21_a_grant_serves_no_other_agent_session_device_or_channel() {
    let house = House::waiting("", 1, LONG).await;
    let (one, other) = (house.in_session(10), house.in_session(11));
    assert!(
        house.is_asked(&one, &["git", "status", "-s"]).await,
        "a control"
    );
    granted(&house, &one, Reach::Session, ScopeKind::Program).await;
    assert!(!house.is_asked(&one, &["git", "status", "-s"]).await);
    assert!(!house.is_asked(&one, &["git", "log"]).await);
    assert!(
        house.is_asked(&other, &["git", "status"]).await,
        "another session"
    );
    assert!(
        house.is_asked(&house.agent, &["git", "status"]).await,
        "none at all"
    );
    assert!(house.is_asked(&one, &["ls"]).await, "another program");

    let folder = house.workspace.clone();
    let added = house.gateway.add_agent(&house.owner, "b", &folder, false);
    let lowered = house
        .gateway
        .lower(&house.owner, &added.await.unwrap().name);
    let session = one.session.clone().unwrap();
    let another = lowered.unwrap().in_session(session);
    assert!(
        house.is_asked(&another, &["git", "status"]).await,
        "another agent"
    );
}

#[tokio::test]
async fn case_22_sessions_and_restarts_end_session_grants() {
    let house = House::waiting("", 1, LONG).await;
    let one = house.in_session(10);
    granted(&house, &one, Reach::Session, ScopeKind::Program).await;
    assert!(!house.is_asked(&one, &["git", "log"]).await, "a control");
    house
        .gateway
        .session_ended(Anchor {
            pid: 10,
            started: 1,
        })
        .await;
    assert!(house.is_asked(&one, &["git", "log"]).await);
    assert_eq!(ended(&house), Some(WhyEnded::SessionEnded));
    // The same pid is another session.
    assert_ne!(house.in_session(10).session, one.session);

    let again = house.in_session(12);
    granted(&house, &again, Reach::Session, ScopeKind::Program).await;
    assert!(!house.is_asked(&again, &["git", "log"]).await, "a control");
    let house = house.restart(1, LONG).await;
    assert!(house.is_asked(&again, &["git", "log"]).await);
    assert_eq!(ended(&house), Some(WhyEnded::Restarted));
}

#[tokio::test]
async fn case_22_a_clock_set_back_never_revives_a_grant() {
    let minute = 60_000;
    let house = House::waiting("", 1, LONG).await;
    granted(&house, &house.agent, Reach::Window, ScopeKind::Program).await;
    assert!(
        !house.is_asked(&house.agent, &["git", "log"]).await,
        "a control"
    );
    house.clock.turn(16 * minute);
    assert!(
        house.is_asked(&house.agent, &["git", "log"]).await,
        "its time is over"
    );
    house.clock.turn(-16 * minute);
    assert!(
        house.is_asked(&house.agent, &["git", "log"]).await,
        "set back"
    );
    house.gateway.end_what_is_over().await;
    assert_eq!(ended(&house), Some(WhyEnded::TimeOver));

    // Nor when the daemon was not there while the clock was set back.
    granted(&house, &house.agent, Reach::Window, ScopeKind::Program).await;
    house.clock.turn(32 * minute);
    // Something is recorded at the later time.
    assert!(house.is_asked(&house.agent, &["ls"]).await);
    house.clock.turn(-32 * minute);
    let house = house.restart(1, LONG).await;
    assert!(house.is_asked(&house.agent, &["git", "log"]).await);
    assert_eq!(ended(&house), Some(WhyEnded::TimeOver));
}

#[tokio::test]
async fn a_window_outlives_a_restart_and_a_session() {
    let house = House::waiting("", 1, LONG).await;
    let one = house.in_session(10);
    granted(&house, &one, Reach::Window, ScopeKind::Program).await;
    let house = house.restart(1, LONG).await;
    assert!(!house.is_asked(&house.agent, &["git", "log"]).await);
}

#[tokio::test]
async fn case_14_a_revoked_grant_is_decided_again() {
    let house = House::waiting("", 1, LONG).await;
    granted(&house, &house.agent, Reach::Window, ScopeKind::Program).await;
    assert!(
        !house.is_asked(&house.agent, &["git", "log"]).await,
        "a control"
    );
    let grants = house.gateway.grants(&house.owner, true).unwrap();
    let id = grants.first().unwrap().record.terms.id.to_string();
    // An agent takes nothing back, and gives nothing.
    assert!(house.gateway.revoke_grant(&house.agent, &id).await.is_err());
    house.gateway.revoke_grant(&house.owner, &id).await.unwrap();
    assert!(house.is_asked(&house.agent, &["git", "log"]).await);
    let twice = house.gateway.revoke_grant(&house.owner, &id).await;
    assert_eq!(twice.unwrap_err().code, "grant_ended");
    assert!(house.gateway.grants(&house.owner, true).unwrap().is_empty());
}

#[tokio::test]
async fn case_17_interpreters_shells_and_wrappers_get_exact_only() {
    let house = House::waiting("", 1, LONG).await;
    for argv in [
        &["python3", "-c", "print(1)"][..],
        &["sh", "-c", "ls"],
        &["env", "ls"],
        &["xargs", "ls"],
        &["find", ".", "-exec", "ls", ";"],
        &["timeout", "5", "ls"],
        &["nice", "ls"],
    ] {
        let (id, call) = house.ask(&house.agent, argv).await;
        for cover in [
            ScopeKind::Shape,
            ScopeKind::Host,
            ScopeKind::Directory,
            ScopeKind::Program,
            ScopeKind::Tool,
        ] {
            let refused = house.allow(&id, Reach::Window, cover).await.unwrap_err();
            assert_eq!(refused.code, "not_grantable", "{argv:?} {cover:?}");
            assert!(refused.next_step.contains("exact"), "{}", refused.next_step);
        }
        drop(call);
    }
    // Exactly the same words again are what was shown.
    let argv = ["sh", "-c", "ls"];
    let (id, call) = house.ask(&house.agent, &argv).await;
    house
        .allow(&id, Reach::Window, ScopeKind::Exact)
        .await
        .unwrap();
    assert_eq!(house.code(call).await, "executed");
    assert!(!house.is_asked(&house.agent, &argv).await);
    assert!(house.is_asked(&house.agent, &["sh", "-c", "ls -a"]).await);
}

#[tokio::test]
async fn case_09_any_changed_word_is_another_call_for_an_exact_grant() {
    let house = House::waiting("", 1, LONG).await;
    granted(&house, &house.agent, Reach::Window, ScopeKind::Exact).await;
    assert!(
        !house.is_asked(&house.agent, &["git", "status"]).await,
        "a control"
    );
    for argv in [
        &["git", "status", ""][..],
        &["git", "Status"],
        &["git", "status "],
        &["git"],
    ] {
        assert!(house.is_asked(&house.agent, argv).await, "{argv:?}");
    }
}

/// Not only its words: where it works, what it is given, and under which walls.
#[tokio::test]
async fn case_09_anything_else_that_changes_is_another_call() {
    let house = House::waiting("", 1, LONG).await;
    std::fs::create_dir(house.workspace.join("sub")).unwrap();
    let plain = serde_json::json!({ "argv": ["git", "status"] });
    let changed = |name: &str, value: serde_json::Value| {
        let mut arguments = plain.clone();
        arguments[name] = value;
        arguments
    };
    let asked = async |arguments: &serde_json::Value| {
        let mut call = house.propose_with(&house.agent, arguments).await;
        matches!(
            call.next().await,
            Some(palyra_gateway::Event::ApprovalPending { .. })
        )
    };
    granted(&house, &house.agent, Reach::Window, ScopeKind::Exact).await;
    assert!(!asked(&plain).await, "a control");
    for arguments in [
        changed(
            "cwd",
            house.workspace.join("sub").display().to_string().into(),
        ),
        changed("env", serde_json::json!({ "GIT_DIR": "x" })),
        changed("env", serde_json::json!({ "GIT_DIR": "y" })),
        changed("stdin", "y".into()),
        changed("address_space", 4_000_000_000_u64.into()),
        changed("egress", "none".into()),
        changed("timeout_ms", 1_000.into()),
    ] {
        assert!(asked(&arguments).await, "{arguments}");
    }
}

#[tokio::test]
async fn a_pause_and_a_removal_end_everything_that_was_granted() {
    let house = House::waiting("", 1, LONG).await;
    granted(&house, &house.agent, Reach::Window, ScopeKind::Program).await;
    let (gateway, owner) = (&house.gateway, &house.owner);
    let paused = gateway
        .pause_agent(owner, AGENT, Some("look"))
        .await
        .unwrap();
    assert!(paused.paused);
    assert_eq!(ended(&house), Some(WhyEnded::AgentPaused));
    gateway.resume_agent(owner, AGENT).await.unwrap();
    assert!(house.is_asked(&house.agent, &["git", "log"]).await);

    granted(&house, &house.agent, Reach::Window, ScopeKind::Program).await;
    gateway.remove_agent(owner, AGENT).await.unwrap();
    assert_eq!(ended(&house), Some(WhyEnded::AgentRemoved));
    let folder = house.workspace.clone();
    gateway
        .add_agent(owner, AGENT, &folder, false)
        .await
        .unwrap();
    assert!(house.is_asked(&house.agent, &["git", "log"]).await);
}

#[tokio::test]
async fn what_waits_and_is_covered_goes_on() {
    let house = House::waiting("", 1, LONG).await;
    let (first, one) = house.ask(&house.agent, &["git", "status"]).await;
    let (second, other) = house.ask(&house.agent, &["git", "log"]).await;
    let (third, ls) = house.ask(&house.agent, &["ls"]).await;
    house
        .allow(&first, Reach::Window, ScopeKind::Program)
        .await
        .unwrap();
    assert_eq!(house.code(one).await, "executed");
    assert_eq!(house.code(other).await, "executed");
    let seen = house
        .gateway
        .approval(&house.owner, second.as_str())
        .unwrap();
    assert_eq!(seen.record.state.as_str(), "superseded");
    assert!(seen.record.grant.is_some());
    // A decided question does not change any more.
    let late = house.deny(&second).await.unwrap_err();
    assert_eq!(late.code, "approval_superseded");
    let waits = house
        .gateway
        .approval(&house.owner, third.as_str())
        .unwrap();
    assert_eq!(waits.record.state.as_str(), "pending");
    drop(ls);
}

#[tokio::test]
async fn a_grant_says_which_calls_it_covers_and_why_not() {
    let house = House::waiting("", 1, LONG).await;
    granted(&house, &house.agent, Reach::Window, ScopeKind::Shape).await;
    let explain = |id: &str| house.gateway.explain_grant(&house.owner, id).unwrap();
    let same = house.propose(&house.agent, &["git", "status"], false).await;
    let id = same.call().to_string();
    assert_eq!(house.code(same).await, "executed");
    let covered = explain(&id);
    assert_eq!(covered.answer, "run");
    let grant = covered.grant.unwrap();
    assert!(grant.sentence.unwrap().contains("git status"));
    assert_eq!(grant.record.uses, 1);
    let (_, other) = house.ask(&house.agent, &["git", "log"]).await;
    let not = explain(other.call().as_str());
    assert_eq!(not.answer, "ask");
    assert!(not.grant.is_none());
    let why = not.reasons.iter();
    let of_another = why.filter(|why| why.contains("another `args`"));
    assert_eq!(of_another.count(), 1, "{:?}", not.reasons);
    drop(other);
}
