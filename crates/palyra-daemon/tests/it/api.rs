//! Status, the API's description, who sees what.

use palyra_testkit::Daemon;
use serde_json::Value;

#[test]
fn status_says_what_an_operator_asks_first() {
    let daemon = Daemon::start();
    let status = daemon.palyra(&["status", "--json"]).expect_code(0).json();
    assert_eq!(status["principal"], "user:owner");
    assert_eq!(status["presence"], "off");
    assert_eq!(status["baseline"], "standard");
    assert_eq!(status["journal_state"], "writable");
    assert_eq!(status["sandbox"]["available"], true, "{status}");
    assert_eq!(status["pid"], daemon.pid());
}

#[tokio::test]
async fn the_api_describes_itself() {
    let daemon = Daemon::start();
    let mut client = daemon.client().await;
    let api: Value = client.get("/openapi.json").await.unwrap();
    assert!(
        api["openapi"].as_str().unwrap().starts_with("3.1"),
        "{}",
        api["openapi"]
    );
    for path in [
        "/healthz",
        "/api/v1/status",
        "/api/v1/calls",
        "/api/v1/approvals/{id}/decide",
    ] {
        assert!(api["paths"][path].is_object(), "{path}");
    }
    let health: Value = client.get("/healthz").await.unwrap();
    assert_eq!(health["status"], "ok");
}

#[tokio::test]
async fn what_is_not_there_says_so_in_the_same_shape() {
    let daemon = Daemon::start();
    let mut client = daemon.client().await;
    for (path, code) in [
        ("/nowhere", "no_such_route"),
        ("/api/v1/calls/call_x", "unknown_call"),
        (
            "/api/v1/approvals/appr_00000000000000000000000000",
            "unknown_approval",
        ),
        ("/api/v1/agents/nobody", "unknown_agent"),
        ("/api/v1/tools/palyra.fs.raed", "unknown_tool"),
    ] {
        let Err(palyra_api::ClientError::Refused { status, problem }) =
            client.get::<Value>(path).await
        else {
            panic!("{path}")
        };
        assert_eq!((status, problem.code.as_str()), (404, code), "{path}");
        assert!(!problem.next_step.is_empty());
    }
}

#[test]
fn an_agent_sees_its_own_calls_and_nothing_else() {
    let daemon = Daemon::start();
    let workspace = daemon.workspace();
    let folder = workspace.to_str().unwrap();
    for name in ["one", "two"] {
        let _ = daemon
            .palyra(&["agents", "add", name, "--workspace", folder])
            .expect_code(0);
    }
    let call = |agent: &str| {
        let arguments = [
            "call",
            "palyra.echo",
            "--args",
            r#"{"message":"x"}"#,
            "--json",
            "--as",
            agent,
        ];
        let result = daemon.palyra(&arguments).expect_code(0).json();
        result["call_id"].as_str().unwrap().to_owned()
    };
    let (own, other) = (call("agent:one"), call("agent:two"));
    let listed = daemon
        .palyra(&["calls", "list", "--json", "--as", "agent:one"])
        .expect_code(0)
        .json();
    let ids: Vec<&str> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|call| call["call_id"].as_str())
        .collect();
    assert_eq!(ids, [own.as_str()]);
    let _ = daemon
        .palyra(&["calls", "show", &own, "--as", "agent:one"])
        .expect_code(0);
    let _ = daemon
        .palyra(&["calls", "show", &other, "--as", "agent:one"])
        .expect_code(1);
    let _ = daemon
        .palyra(&["journal", "tail", "--as", "agent:one"])
        .expect_code(3);
    let _ = daemon
        .palyra(&["agents", "add", "three", "--as", "agent:one"])
        .expect_code(3);
    // The owner sees both.
    let all = daemon
        .palyra(&["calls", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
}

#[test]
fn nobody_is_raised_or_made_up() {
    let daemon = Daemon::start();
    let unknown = daemon.palyra(&[
        "call",
        "palyra.echo",
        "--args",
        r#"{"message":"x"}"#,
        "--as",
        "agent:ghost",
    ]);
    assert_eq!(unknown.code, Some(3), "{unknown:?}");
    assert!(unknown.stderr.contains("ghost"), "{}", unknown.stderr);
}

#[tokio::test]
async fn a_header_can_only_lower() {
    let daemon = Daemon::start();
    for claim in ["user:owner", "agent:", "agent:Owner", "root", ""] {
        let mut client = daemon.client().await.lowered_to(Some(claim.to_owned()));
        let answer = client.get::<Value>("/api/v1/status").await;
        let Err(palyra_api::ClientError::Refused {
            status: 403,
            problem,
        }) = answer
        else {
            panic!("{claim}: {answer:?}")
        };
        assert_eq!(problem.code, "cannot_lower", "{claim}");
    }
}

#[test]
fn folders_that_no_agent_may_work_on() {
    let daemon = Daemon::start();
    let (home, parent) = (daemon.home_folder(), daemon.folder().to_owned());
    std::fs::create_dir_all(home.join("inside")).unwrap();
    let user_home = std::env::var("HOME").unwrap();
    let inside = home.join("inside");
    for folder in [
        "/",
        &user_home,
        home.to_str().unwrap(),
        parent.to_str().unwrap(),
        inside.to_str().unwrap(),
    ] {
        let refused = daemon.palyra(&["agents", "add", "a", "--workspace", folder]);
        assert_eq!(refused.code, Some(1), "{folder}: {refused:?}");
    }
    // A link does not help.
    let link = daemon.folder().join("link");
    std::os::unix::fs::symlink(&home, &link).unwrap();
    let refused = daemon.palyra(&["agents", "add", "a", "--workspace", link.to_str().unwrap()]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    // The control: a project folder works.
    daemon.add_agent("a");
}

#[test]
fn an_agents_folder_that_was_swapped_for_a_link_is_refused() {
    let daemon = Daemon::start();
    let project = daemon.workspace().join("project");
    std::fs::create_dir(&project).unwrap();
    daemon.add_agent_on("a", &project);
    let list = [
        "call",
        "palyra.fs.list",
        "--args",
        "{}",
        "--as",
        "agent:a",
        "--json",
    ];
    let _ = daemon.palyra(&list).expect_code(0);
    std::fs::remove_dir(&project).unwrap();
    std::os::unix::fs::symlink("/etc", &project).unwrap();
    let refused = daemon.palyra(&list);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("now leads to") || refused.stdout.contains("workspace_moved"),
        "{refused:?}"
    );
}
