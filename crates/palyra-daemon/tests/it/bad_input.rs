//! Hostile and broken requests: one clear error with a stable code, and nothing lost.

use bytes::Bytes;
use hyper::{Method, StatusCode};
use palyra_testkit::Daemon;
use serde_json::Value;

async fn post(daemon: &Daemon, body: impl Into<Bytes>) -> (StatusCode, Value) {
    let mut client = daemon.client().await;
    let (status, bytes) = client
        .raw(Method::POST, "/api/v1/calls", body.into())
        .await
        .unwrap();
    (status, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn each_bad_request_has_its_code() {
    let daemon = Daemon::start();
    let folder = daemon.workspace();
    let folder = folder.to_str().unwrap();
    let run = |arguments: &str| {
        format!(r#"{{"tool":"palyra.process.run","arguments":{arguments},"workspace":"{folder}"}}"#)
    };
    let echo = |arguments: &str| format!(r#"{{"tool":"palyra.echo","arguments":{arguments}}}"#);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"".to_vec(), "invalid_json"),
        (b"{".to_vec(), "invalid_json"),
        (b"[]".to_vec(), "invalid_json"),
        (b"{\"tool\":\"\xff\"}".to_vec(), "invalid_json"),
        (br#"{"tool":"palyra.echo"}"#.to_vec(), "invalid_json"),
        (
            br#"{"tool":"palyra.echo","arguments":{},"arguments":{}}"#.to_vec(),
            "invalid_json",
        ),
        (
            br#"{"tool":"palyra.echo","arguments":{},"sudo":true}"#.to_vec(),
            "invalid_json",
        ),
        (
            echo(r#"{"message":"a","message":"b"}"#).into(),
            "invalid_json",
        ),
        (echo(r#"{"message":"\ud800"}"#).into(), "invalid_json"),
        (
            echo(r#"{"message":9007199254740993}"#).into(),
            "inexact_number",
        ),
        (echo(r#"{"message":1}"#).into(), "invalid_arguments"),
        (
            echo(r#"{"message":"x","extra":1}"#).into(),
            "invalid_arguments",
        ),
        (echo("[]").into(), "invalid_arguments"),
        (
            echo(&format!(r#"{{"message":"{}"}}"#, "x".repeat(70_000))).into(),
            "input_too_large",
        ),
        (
            br#"{"tool":"palyra.ehco","arguments":{}}"#.to_vec(),
            "unknown_tool",
        ),
        (
            br#"{"tool":"palyra.process.run","arguments":{"argv":["true"]}}"#.to_vec(),
            "workspace_required",
        ),
        (run(r#"{"argv":[]}"#).into(), "invalid_arguments"),
        (
            run(r#"{"argv":["echo","a\u0000b"]}"#).into(),
            "invalid_arguments",
        ),
        (
            run(r#"{"argv":["true"],"env":{"A=B":"x"}}"#).into(),
            "invalid_arguments",
        ),
        (
            run(r#"{"argv":["true"],"env":{"A":"x\u0000"}}"#).into(),
            "invalid_arguments",
        ),
        (
            run(r#"{"argv":["no-such-program"]}"#).into(),
            "program_not_found",
        ),
        (
            run(r#"{"argv":["/etc/passwd"]}"#).into(),
            "program_not_executable",
        ),
        (
            run(r#"{"argv":["true"],"cwd":"/"}"#).into(),
            "cwd_outside_workspace",
        ),
        (
            run(r#"{"argv":["true"],"cwd":"/nonexistent"}"#).into(),
            "workspace_missing",
        ),
        (
            run(r#"{"argv":["true"],"tier":"d"}"#).into(),
            "invalid_arguments",
        ),
        (
            run(r#"{"argv":["true"],"timeout_ms":0}"#).into(),
            "invalid_arguments",
        ),
    ];
    for (body, code) in cases {
        let shown: String = String::from_utf8_lossy(&body).chars().take(120).collect();
        let (status, answer) = post(&daemon, body).await;
        assert!(!status.is_success(), "{shown}: {answer}");
        assert_eq!(answer["error"]["code"], code, "{shown}: {answer}");
        assert!(
            !answer["error"]["next_step"].as_str().unwrap().is_empty(),
            "{shown}"
        );
    }
    // Ten megabytes of arguments: refused, and the sender hears why.
    let (status, answer) = post(
        &daemon,
        echo(&format!(r#"{{"message":"{}"}}"#, "x".repeat(10 << 20))),
    )
    .await;
    assert_eq!(
        (status.as_u16(), answer["error"]["code"].as_str()),
        (413, Some("input_too_large"))
    );
    // The daemon is as well as before.
    let (status, answer) = post(&daemon, echo(r#"{"message":"still here"}"#)).await;
    assert!(status.is_success(), "{answer}");
    assert_eq!(answer["output"]["message"], "still here");
}

#[tokio::test]
async fn one_spelling_is_what_the_tool_receives() {
    let daemon = Daemon::start();
    let (_, answer) = post(
        &daemon,
        r#"{"arguments":{"message":"\u0041\/"} , "tool":"palyra.echo"}"#,
    )
    .await;
    assert_eq!(answer["output"]["message"], "A/");
}

#[test]
fn file_tools_stay_beneath_the_workspace_and_off_the_daemons_home() {
    let daemon = Daemon::start();
    let workspace = daemon.workspace();
    std::fs::write(workspace.join("a.txt"), "hello\n").unwrap();
    std::os::unix::fs::symlink("/etc", workspace.join("etc")).unwrap();
    std::os::unix::fs::symlink(daemon.home_folder(), workspace.join("house")).unwrap();
    let call = |tool: &str, arguments: &str, folder: &str| {
        daemon.palyra(&[
            "call",
            tool,
            "--args",
            arguments,
            "--workspace",
            folder,
            "--json",
        ])
    };
    let folder = workspace.to_str().unwrap();
    let read = call("palyra.fs.read", r#"{"path":"a.txt"}"#, folder)
        .expect_code(0)
        .json();
    assert_eq!(read["output"]["text"], "hello\n", "{read}");
    for path in [
        "../home/vault.key",
        "/etc/passwd",
        "etc/passwd",
        "house/vault.key",
        "house",
    ] {
        let refused = call("palyra.fs.read", &format!(r#"{{"path":"{path}"}}"#), folder);
        assert_eq!(refused.code, Some(1), "{path}: {refused:?}");
        let write = format!(r#"{{"path":"{path}","content":"x"}}"#);
        let refused = call("palyra.fs.write", &write, folder);
        assert_eq!(refused.code, Some(1), "{path}: {refused:?}");
    }
    // A person may work on the folder above; the daemon's home stays shut all the same.
    let above = daemon.folder().to_str().unwrap().to_owned();
    let control = call("palyra.fs.read", r#"{"path":"w/a.txt"}"#, &above)
        .expect_code(0)
        .json();
    assert_eq!(control["output"]["text"], "hello\n");
    for path in ["home/vault.key", "w/house/vault.key"] {
        let refused = call("palyra.fs.read", &format!(r#"{{"path":"{path}"}}"#), &above);
        assert!(matches!(refused.code, Some(1 | 3)), "{path}: {refused:?}");
    }
}

#[test]
fn file_tools_write_list_and_patch() {
    let daemon = Daemon::start();
    let workspace = daemon.workspace();
    let call =
        |tool: &str, arguments: &str| daemon.palyra(&["call", tool, "--args", arguments, "--json"]);
    let _ = call(
        "palyra.fs.write",
        r#"{"path":"d/b.txt","content":"one\ntwo\n","create_parents":true}"#,
    )
    .expect_code(0);
    assert_eq!(
        std::fs::read_to_string(workspace.join("d/b.txt")).unwrap(),
        "one\ntwo\n"
    );
    let listed = call("palyra.fs.list", r#"{"path":"d"}"#)
        .expect_code(0)
        .json();
    assert_eq!(listed["output"]["entries"][0]["name"], "b.txt", "{listed}");
    let patch = r#"{"path":"d/b.txt","patch":"--- a/d/b.txt\n+++ b/d/b.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"}"#;
    let _ = call("palyra.fs.apply_patch", patch).expect_code(0);
    assert_eq!(
        std::fs::read_to_string(workspace.join("d/b.txt")).unwrap(),
        "one\nthree\n"
    );
    // The same patch no longer fits: nothing changes.
    let refused = call("palyra.fs.apply_patch", patch);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_eq!(
        std::fs::read_to_string(workspace.join("d/b.txt")).unwrap(),
        "one\nthree\n"
    );
}

#[tokio::test]
async fn a_mistake_in_the_query_is_answered_like_every_other() {
    let daemon = Daemon::start();
    let mut client = daemon.client().await;
    for (path, code) in [
        ("/api/v1/calls?limit=abc", "invalid_query"),
        ("/api/v1/calls?state=bogus", "invalid_query"),
        ("/api/v1/approvals?state=bogus", "invalid_query"),
        ("/api/v1/journal?aftr=1", "invalid_query"),
        ("/api/v1/calls/%ff", "no_such_route"),
    ] {
        let (_, body) = client.raw(Method::GET, path, Bytes::new()).await.unwrap();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["error"]["code"], code, "{path}: {answer}");
        assert!(!answer["error"]["next_step"].as_str().unwrap().is_empty());
    }
    for state in ["all", "pending", "denied"] {
        let path = format!("/api/v1/approvals?state={state}");
        let (status, _) = client.raw(Method::GET, &path, Bytes::new()).await.unwrap();
        assert!(status.is_success(), "{path}");
    }
}
