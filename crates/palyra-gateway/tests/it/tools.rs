//! An agent sees the tools that it could run or ask for, and hears of no other.

use palyra_core::CanonicalJson;
use palyra_gateway::{Caller, ProposedCall};

use crate::fixture::House;

const NO_PROCESSES: &str = r#"
    @id("no_processes") @reason("nothing is started here")
    forbid (principal is Palyra::Agent, action in [Palyra::Action::"run", Palyra::Action::"ask"],
            resource in Palyra::ToolGroup::"process_exec");"#;

fn names(house: &House, caller: &Caller) -> Vec<String> {
    let tools = house.gateway.tools(caller).unwrap();
    tools.iter().map(|tool| tool.name.to_string()).collect()
}

#[tokio::test]
async fn a_list_has_what_could_be_run_or_asked_for() {
    let open = House::open("", 1).await;
    assert_eq!(names(&open, &open.agent), names(&open, &open.owner));

    let house = House::open(NO_PROCESSES, 1).await;
    let all = names(&house, &house.owner);
    assert!(all.contains(&"palyra.process.run".to_owned()));
    let left: Vec<String> = all
        .iter()
        .filter(|name| *name != "palyra.process.run")
        .cloned()
        .collect();
    assert_eq!(names(&house, &house.agent), left);

    // What may only be asked for is listed as well.
    let asking = r#"@id("slow") forbid (principal is Palyra::Agent, action in Palyra::Action::"run",
        resource in Palyra::ToolGroup::"process_exec");"#;
    let house = House::open(asking, 1).await;
    assert_eq!(names(&house, &house.agent), all);
}

/// Neither its description nor a hint at its name tells an agent that it is there.
#[tokio::test]
async fn a_tool_that_is_not_listed_is_not_there() {
    let house = House::open(NO_PROCESSES, 1).await;
    let show = |caller, name| house.gateway.tool(caller, name);
    assert!(show(&house.owner, "palyra.process.run").is_ok());
    for name in ["palyra.process.run", "palyra.process.rum"] {
        let refusal = show(&house.agent, name).unwrap_err();
        assert_eq!(refusal.code, "unknown_tool");
        assert!(!refusal.next_step.contains("palyra.process.run"));
    }
    let hint = show(&house.owner, "palyra.process.rum").unwrap_err();
    assert!(hint.next_step.contains("palyra.process.run"));

    let wanted = |tool: &str| ProposedCall {
        tool: tool.to_owned(),
        arguments: CanonicalJson::from_value(&serde_json::json!({ "argv": ["ls"] })).unwrap(),
        workspace: Some(house.workspace.clone()),
        window: None,
        said: None,
        detached: false,
        patience: std::time::Duration::ZERO,
        advice: None,
        bound_to: None,
    };
    let typo = |caller| house.gateway.call(caller, wanted("palyra.process.rum"));
    let agents = typo(&house.agent).await.err().unwrap();
    assert!(!agents.next_step.contains("palyra.process.run"));
    let owners = typo(&house.owner).await.err().unwrap();
    assert!(owners.next_step.contains("palyra.process.run"));
}
