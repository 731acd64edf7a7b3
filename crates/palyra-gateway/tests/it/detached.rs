//! Questions whose asker did not stay.

use std::time::Duration;

use palyra_core::{Reach, ScopeKind};

use crate::fixture::House;

const LONG: Duration = Duration::from_secs(600);
const PUSH: [&str; 2] = ["git", "push"];

/// The approval that the agent left, by making this call without waiting.
async fn left(house: &House) -> palyra_core::ApprovalId {
    let call = house.propose(&house.agent, &PUSH, true).await;
    let report = call.finish().await.unwrap();
    report.approval.clone().unwrap()
}

#[tokio::test]
async fn a_yes_is_spent_by_the_identical_retry_once() {
    let house = House::waiting("", 1, LONG).await;
    let id = left(&house).await;
    let again = left(&house).await;
    assert_eq!(id, again, "the same question is not put twice");
    house
        .allow(&id, Reach::Once, ScopeKind::Exact)
        .await
        .unwrap();
    assert!(
        house.is_asked(&house.agent, &["git", "push", "-f"]).await,
        "another call"
    );
    let retried = house.propose(&house.agent, &PUSH, true).await;
    assert_eq!(house.code(retried).await, "executed");
    let third = house.propose(&house.agent, &PUSH, true).await;
    assert_eq!(house.code(third).await, "approval_pending");
}

#[tokio::test]
async fn a_no_is_told_to_the_retry() {
    let house = House::waiting("", 1, LONG).await;
    let id = left(&house).await;
    house.deny(&id).await.unwrap();
    let retried = house.propose(&house.agent, &PUSH, true).await;
    assert_eq!(house.code(retried).await, "approval_denied");
}

#[tokio::test]
async fn it_is_still_there_after_a_restart_and_others_are_closed() {
    let house = House::waiting("", 1, LONG).await;
    let id = left(&house).await;
    let (waited_for, call) = house.ask(&house.agent, &["git", "pull"]).await;
    let house = house.restart(1, LONG).await;
    drop(call);
    let state = |id: &palyra_core::ApprovalId| {
        let seen = house.gateway.approval(&house.owner, id.as_str()).unwrap();
        (seen.record.state.as_str(), seen.record.reason)
    };
    let (closed, why) = state(&waited_for);
    assert_eq!(closed, "cancelled");
    assert!(why.is_some());
    assert_eq!(state(&id).0, "pending");
    house
        .allow(&id, Reach::Once, ScopeKind::Exact)
        .await
        .unwrap();
    let house = house.restart(1, LONG).await;
    let retried = house.propose(&house.agent, &PUSH, false).await;
    assert_eq!(house.code(retried).await, "executed");
}

#[tokio::test]
async fn its_time_ends() {
    let house = House::waiting("", 1, LONG).await;
    let id = left(&house).await;
    house.clock.turn(11 * 60_000);
    house.gateway.end_what_is_over().await;
    let seen = house.gateway.approval(&house.owner, id.as_str()).unwrap();
    assert_eq!(seen.record.state.as_str(), "expired");
    // And so does a yes that nobody used.
    let id = left(&house).await;
    house
        .allow(&id, Reach::Once, ScopeKind::Exact)
        .await
        .unwrap();
    house.clock.turn(11 * 60_000);
    let late = house.propose(&house.agent, &PUSH, true).await;
    assert_eq!(house.code(late).await, "approval_pending");
}
