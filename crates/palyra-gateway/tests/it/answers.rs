//! A person's answers: one wins, nothing hidden is allowed, and nobody is worn down.

use std::time::Duration;

use palyra_approval::Wanted;
use palyra_core::{ApprovalDecision, Posture, PostureLevel, Reach, ScopeKind};
use palyra_gateway::deciding::PersonsAnswer;

use crate::fixture::{AGENT, House};

const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn case_23_of_two_answers_one_wins_and_the_other_is_told() {
    let house = House::waiting("", 1, LONG).await;
    for _ in 0..20 {
        let (id, call) = house.ask(&house.agent, &["git", "status"]).await;
        let allowed = house.allow(&id, Reach::Once, ScopeKind::Exact);
        let (yes, no) = tokio::join!(allowed, house.deny(&id));
        assert!(yes.is_ok() != no.is_ok(), "{yes:?} {no:?}");
        let won = yes.is_ok();
        let lost = yes.err().or(no.err()).unwrap();
        assert_eq!(lost.code, "already_decided");
        let expected = if won { "executed" } else { "approval_denied" };
        assert_eq!(house.code(call).await, expected);
        // Three denials would pause it; that is tested elsewhere.
        let _ = house.gateway.resume_agent(&house.owner, AGENT).await;
    }
}

#[tokio::test]
async fn case_06_what_was_folded_away_is_not_approvable_until_shown() {
    let house = House::waiting("", 1, LONG).await;
    let long = format!("{}payload{}", "a".repeat(60_000), "b".repeat(40_000));
    let (id, call) = house.ask(&house.agent, &["echo", &long]).await;
    let view = house.gateway.approval(&house.owner, id.as_str()).unwrap();
    assert!(view.hidden_bytes() > 90_000);
    let refused = house.allow(&id, Reach::Once, ScopeKind::Exact).await;
    assert_eq!(refused.unwrap_err().code, "not_shown");
    let answer = |shown: &str| PersonsAnswer {
        decision: ApprovalDecision::Allow,
        reason: None,
        wanted: Wanted {
            reach: Reach::Once,
            cover: ScopeKind::Exact,
            lasts: None,
        },
        shown: Some(shown.to_owned()),
    };
    let wrong = answer("00000000");
    let guessed = house
        .gateway
        .decide_approval(&house.owner, id.as_str(), wrong);
    assert_eq!(guessed.await.unwrap_err().code, "not_shown");
    // All of it, and the code that goes with it; another question has another code.
    let (whole, code) = house.gateway.in_full(&view).unwrap();
    assert!(whole.contains(&long));
    let (other, waits) = house.ask(&house.agent, &["echo", "x", &long]).await;
    let right = answer(&code);
    let elsewhere = house
        .gateway
        .decide_approval(&house.owner, other.as_str(), right.clone());
    assert_eq!(elsewhere.await.unwrap_err().code, "not_shown");
    let shown = house
        .gateway
        .decide_approval(&house.owner, id.as_str(), right);
    shown.await.unwrap();
    assert_eq!(house.code(call).await, "executed");
    drop(waits);
}

#[tokio::test]
async fn three_denials_in_a_row_pause_the_agent() {
    let house = House::waiting("", 1, LONG).await;
    let paused = || {
        let agent = house.gateway.agent(&house.owner, AGENT).unwrap();
        agent.paused
    };
    let ask_and_deny = async || {
        let (id, call) = house.ask(&house.agent, &["git", "push"]).await;
        house.deny(&id).await.unwrap();
        let _ = house.code(call).await;
    };
    ask_and_deny().await;
    ask_and_deny().await;
    let (id, call) = house.ask(&house.agent, &["git", "pull"]).await;
    house
        .allow(&id, Reach::Once, ScopeKind::Exact)
        .await
        .unwrap();
    let _ = house.code(call).await;
    ask_and_deny().await;
    ask_and_deny().await;
    assert!(!paused(), "a yes between them counts");
    ask_and_deny().await;
    assert!(paused());
    house
        .gateway
        .resume_agent(&house.owner, AGENT)
        .await
        .unwrap();
    ask_and_deny().await;
    assert!(!paused(), "counted anew");
}

#[tokio::test]
async fn nobody_is_asked_for_an_unattended_agent() {
    let house = House::waiting("", 1, LONG).await;
    let folder = house.workspace.clone();
    let added = house.gateway.add_agent(&house.owner, "cron", &folder, true);
    let name = added.await.unwrap().name;
    let cron = house.gateway.lower(&house.owner, &name).unwrap();
    let call = house.propose(&cron, &["git", "push"], false).await;
    assert_eq!(house.code(call).await, "no_approver");
    assert!(
        house.is_asked(&house.agent, &["git", "push"]).await,
        "a control"
    );
}

#[tokio::test]
async fn postures_only_narrow() {
    let house = House::waiting("", 1, LONG).await;
    let tool = "palyra.process.run";
    let set = async |level: PostureLevel, posture| {
        let set = house
            .gateway
            .set_posture(&house.owner, tool, level, posture);
        set.await.unwrap()
    };
    let agent = || PostureLevel::Agent {
        name: AGENT.parse().unwrap(),
    };
    // As policy says: a question stays one.
    set(PostureLevel::Global, Some(Posture::AlwaysAllow)).await;
    assert!(house.is_asked(&house.agent, &["git", "log"]).await);
    // A grant counts, until somebody wants to be asked each time.
    let (id, call) = house.ask(&house.agent, &["git", "status"]).await;
    house
        .allow(&id, Reach::Window, ScopeKind::Program)
        .await
        .unwrap();
    assert_eq!(house.code(call).await, "executed");
    assert!(
        !house.is_asked(&house.agent, &["git", "log"]).await,
        "a control"
    );
    set(agent(), Some(Posture::AskEachTime)).await;
    let (id, call) = house.ask(&house.agent, &["git", "log"]).await;
    house
        .allow(&id, Reach::Once, ScopeKind::Exact)
        .await
        .unwrap();
    assert_eq!(house.code(call).await, "executed");
    assert!(
        house.is_asked(&house.agent, &["git", "log"]).await,
        "each time"
    );
    // Off is off, for the person too, whatever a narrower level says.
    set(PostureLevel::Global, Some(Posture::Disabled)).await;
    set(agent(), Some(Posture::AlwaysAllow)).await;
    for caller in [&house.agent, &house.owner] {
        let call = house.propose(caller, &["git", "log"], false).await;
        assert_eq!(house.code(call).await, "tool_disabled");
    }
    set(PostureLevel::Global, None).await;
    let call = house.propose(&house.owner, &["git", "log"], false).await;
    assert_eq!(house.code(call).await, "executed");
    // An agent sets nothing.
    let own = house
        .gateway
        .set_posture(&house.agent, tool, agent(), None)
        .await;
    assert!(own.is_err());
}

#[tokio::test]
async fn case_29_an_agent_reaches_nothing_that_decides() {
    let house = House::waiting("", 1, LONG).await;
    let (id, call) = house.ask(&house.agent, &["git", "status"]).await;
    let answer = PersonsAnswer {
        decision: ApprovalDecision::Allow,
        reason: None,
        wanted: Wanted {
            reach: Reach::Once,
            cover: ScopeKind::Exact,
            lasts: None,
        },
        shown: None,
    };
    let (gateway, agent) = (&house.gateway, &house.agent);
    let own = gateway.decide_approval(agent, id.as_str(), answer).await;
    assert!(own.is_err());
    assert!(gateway.pause_agent(agent, AGENT, None).await.is_err());
    assert!(gateway.resume_agent(agent, AGENT).await.is_err());
    assert!(gateway.watch(agent).is_err());
    assert!(gateway.approval_stats(agent).is_err());
    drop(call);
}

#[tokio::test]
async fn stats_propose_narrow_grants_for_what_is_always_allowed() {
    let house = House::waiting("", 1, LONG).await;
    for _ in 0..5 {
        let (id, call) = house.ask(&house.agent, &["git", "status"]).await;
        house
            .allow(&id, Reach::Once, ScopeKind::Exact)
            .await
            .unwrap();
        let _ = house.code(call).await;
    }
    let (id, call) = house.ask(&house.agent, &["git", "push"]).await;
    house.deny(&id).await.unwrap();
    let _ = house.code(call).await;
    let stats = house.gateway.approval_stats(&house.owner).unwrap();
    assert_eq!((stats.asked, stats.allowed, stats.denied), (6, 5, 1));
    assert!(stats.median_answer_ms.is_some());
    let [proposal] = stats.proposals.as_slice() else {
        panic!("{:?}", stats.proposals)
    };
    assert_eq!((proposal.times, proposal.cover), (5, ScopeKind::Shape));
    assert!(proposal.sentence.contains("git status"));
}

/// An agent is refused whatever policy says; a person is, too, where policy forbids reading.
#[tokio::test]
async fn what_changes_is_watched_by_whom_policy_lets_read() {
    let forbids =
        "@id(\"unread\") forbid (principal, action == Palyra::Action::\"journal.read\", resource);";
    for (policies, may) in [("", true), (forbids, false)] {
        let house = House::open(policies, 1).await;
        assert_eq!(house.gateway.watch(&house.owner).is_ok(), may);
    }
}
