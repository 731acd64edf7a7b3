//! Whom policy wants asked, and what is new about a call: said before anybody is asked in vain.

use palyra_core::{DenialCode, RiskLevel};
use palyra_gateway::{CallHandle, Conclusion};

use crate::fixture::House;

const TWO: &str = r#"
@id("two_people")
@reason("two people look at this")
forbid (principal is Palyra::Agent, action in Palyra::Action::"run", resource)
when { context.tool.sensitive }
unless { context has grant && context.grant.people >= 2 };
"#;

const ROLE: &str = r#"
@id("only_approvers")
@reason("only an approver decides")
forbid (principal, action == Palyra::Action::"approval.decide", resource)
unless { principal in Palyra::Role::"approver" };
"#;

async fn denied(call: CallHandle) -> DenialCode {
    match &call.finish().await.unwrap().conclusion {
        Conclusion::Denied(denial) => denial.code,
        Conclusion::Executed { .. } | Conclusion::Advised { .. } => panic!("it was let"),
    }
}

#[tokio::test]
async fn two_people_and_a_role_are_refused_in_words_until_they_exist() {
    for (policy, code) in [
        (TWO, DenialCode::NeedsTwoPeople),
        (ROLE, DenialCode::NoApprover),
    ] {
        let house = House::open(policy, 1).await;
        let by = house.in_session(7);
        let call = house.propose(&by, &["/bin/true"], false).await;
        assert_eq!(denied(call).await, code);
        assert_eq!(house.gateway.waiting_now().len(), 0, "nobody is asked");
    }
    // The control: where neither is demanded, a person is asked.
    let house = House::open("", 1).await;
    assert!(house.is_asked(&house.in_session(7), &["/bin/true"]).await);
}

#[tokio::test]
async fn a_program_that_an_agent_never_ran_is_a_reason_to_look() {
    let house = House::waiting("", 1, std::time::Duration::from_secs(30)).await;
    let by = house.in_session(7);
    let (id, _call) = house.ask(&by, &["/bin/true"]).await;
    let shown = house.gateway.approval(&house.owner, id.as_str()).unwrap();
    let risk = shown.facts.unwrap().risk;
    assert!(risk.level >= RiskLevel::Medium);
    let new = |reason: &String| reason.contains("has not run");
    assert!(risk.reasons.iter().any(new), "{:?}", risk.reasons);
}
