//! One agent's flood is turned away before it is journaled, and counted once a minute.

use palyra_api::wire::CallRequest;
use palyra_testkit::Daemon;
use serde_json::{Value, json};

fn daemon(config: &str) -> Daemon {
    let daemon = Daemon::builder().config(config).start();
    for name in ["a", "b"] {
        daemon.add_agent(name);
    }
    daemon
}

fn echo() -> CallRequest {
    let arguments = json!({ "message": "x" });
    CallRequest {
        tool: "palyra.echo".to_owned(),
        arguments,
        workspace: None,
        window: None,
        said: None,
        detach: false,
        patience_ms: None,
    }
}

#[tokio::test]
async fn proposals() {
    let daemon = daemon("[floods]\nproposals_per_minute = 5\n");
    let mut client = daemon.client().await.lowered_to(Some("agent:a".to_owned()));
    for _ in 0..5 {
        client.call(&echo()).await.unwrap();
    }
    let before = head(&daemon).await;
    for _ in 0..50 {
        let Err(palyra_api::ClientError::Refused {
            status: 429,
            problem,
        }) = client.call(&echo()).await
        else {
            panic!("not turned away")
        };
        assert_eq!(problem.code, "rate_limited");
    }
    assert_eq!(
        head(&daemon).await,
        before + 1,
        "fifty refusals, one counted entry"
    );
    // Neither the owner nor another agent is slowed.
    daemon.client().await.call(&echo()).await.unwrap();
    daemon
        .client()
        .await
        .lowered_to(Some("agent:b".to_owned()))
        .call(&echo())
        .await
        .unwrap();
}

#[test]
fn waiting_approvals() {
    let daemon = daemon("[floods]\npending = 2\n");
    let ask =
        |word: &str| daemon.palyra_in_background(&["exec", "--as", "agent:a", "--", "echo", word]);
    let mut waiting = vec![ask("1"), ask("2")];
    palyra_testkit::eventually("both wait", || {
        let list = daemon
            .palyra(&["approvals", "list", "--json"])
            .expect_code(0)
            .json();
        (list["items"].as_array().unwrap().len() == 2).then_some(())
    });
    let head = || {
        let status = daemon.palyra(&["status", "--json"]).expect_code(0).json();
        status["journal_head"].as_u64().unwrap()
    };
    let before = head();
    for _ in 0..5 {
        let third = daemon
            .palyra(&["exec", "--as", "agent:a", "--", "echo", "3"])
            .expect_code(120);
        assert!(third.stderr.contains("limit"), "{}", third.stderr);
    }
    assert_eq!(head(), before + 1, "five refusals, one counted entry");
    for child in &mut waiting {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[tokio::test]
async fn a_run_has_a_budget() {
    let daemon = daemon("[budget]\ncalls = 3\n");
    let mut client = daemon.client().await;
    for _ in 0..3 {
        client.call(&echo()).await.unwrap();
    }
    let Err(palyra_api::ClientError::Refused {
        status: 429,
        problem,
    }) = client.call(&echo()).await
    else {
        panic!("the budget has no end")
    };
    assert_eq!(problem.code, "budget_exhausted");
    // Another connection is another run.
    daemon.client().await.call(&echo()).await.unwrap();
}

#[tokio::test]
async fn a_runs_output_is_charged_whatever_the_tool() {
    let daemon = daemon("[budget]\noutput_bytes = 1000\n");
    std::fs::write(daemon.workspace().join("large"), "x".repeat(5_000)).unwrap();
    let read = CallRequest {
        tool: "palyra.fs.read".to_owned(),
        arguments: json!({ "path": "large" }),
        workspace: Some(daemon.workspace().to_str().unwrap().to_owned()),
        window: None,
        said: None,
        detach: false,
        patience_ms: None,
    };
    let mut client = daemon.client().await;
    client.call(&read).await.unwrap();
    let Err(palyra_api::ClientError::Refused {
        status: 429,
        problem,
    }) = client.call(&read).await
    else {
        panic!("the budget has no end")
    };
    assert_eq!(problem.code, "budget_exhausted");
}

async fn head(daemon: &Daemon) -> u64 {
    let status: Value = daemon.client().await.get("/api/v1/status").await.unwrap();
    status["journal_head"].as_u64().unwrap()
}
