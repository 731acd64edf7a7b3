//! `palyra hook`: what a client does with tools of its own, decided as calls are.

use std::process::Stdio;

use palyra_testkit::{Daemon, Ran};
use serde_json::{Value, json};

fn hook(daemon: &Daemon, client: &str, tool: &str, input: &Value) -> Ran {
    let said = json!({
        "session_id": "s", "transcript_path": "/t", "hook_event_name": "PreToolUse",
        "cwd": daemon.workspace(), "tool_name": tool, "tool_input": input,
    });
    daemon.palyra_with_input(&["hook", client, "--as", "agent:claude"], &said.to_string())
}

fn decision(ran: &Ran) -> (String, String) {
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let answer = &ran.json()["hookSpecificOutput"];
    assert_eq!(answer["hookEventName"], "PreToolUse");
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    (text("permissionDecision"), text("permissionDecisionReason"))
}

fn daemon() -> Daemon {
    let daemon = Daemon::start();
    daemon.add_agent("claude");
    daemon
}

fn answer(daemon: &Daemon, decision: &str) -> String {
    let asked = daemon.pending_approval();
    let _ = daemon
        .palyra(&["approvals", "decide", &asked, "--decision", decision])
        .expect_code(0);
    asked
}

fn calls(daemon: &Daemon) -> Vec<Value> {
    let list = daemon.palyra(&["calls", "list", "--json"]).expect_code(0);
    list.json()["items"].as_array().unwrap().clone()
}

#[test]
fn reading_is_advised_and_never_attested() {
    let daemon = daemon();
    let file = daemon.workspace().join("a.txt");
    std::fs::write(&file, "hello").unwrap();
    let ran = hook(
        &daemon,
        "claude-code",
        "Read",
        &json!({ "file_path": file }),
    );
    assert_eq!(decision(&ran).0, "allow");
    let call = &calls(&daemon)[0];
    assert_eq!(
        (&call["state"], &call["tool"]),
        (&json!("advised"), &json!("palyra.fs.read"))
    );
    let id = call["call_id"].as_str().unwrap();
    let shown = daemon
        .palyra(&["calls", "show", id, "--json"])
        .expect_code(0)
        .json();
    let kinds: Vec<&str> = shown["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["proposed", "decided", "advised"]);
    assert_eq!(shown["facts"]["channel"], "hook");
    let text = daemon.palyra(&["journal", "tail"]).expect_code(0).stdout;
    assert!(text.contains("outside of Palyra; not attested"), "{text}");
    let listed = daemon
        .palyra(&["calls", "list", "--state", "advised"])
        .expect_code(0)
        .stdout;
    assert!(listed.contains("advised"), "{listed}");
    // To those who know no "allow", nothing is said.
    let codex = hook(&daemon, "codex", "Read", &json!({ "file_path": file })).expect_code(0);
    assert_eq!(codex.stdout, "");
}

#[test]
fn a_question_is_left_and_the_same_again_spends_the_answer() {
    let daemon = daemon();
    let file = daemon.workspace().join("b.txt");
    let write = json!({ "file_path": file, "content": "x" });
    let (first, why) = decision(&hook(&daemon, "claude-code", "Write", &write));
    assert_eq!(first, "deny");
    let asked = daemon.pending_approval();
    assert!(why.contains(&asked) && !why.contains("decide"), "{why}");
    let shown = daemon.palyra(&["approvals", "show", &asked]).expect_code(0);
    assert!(shown.stdout.contains("outside of Palyra"), "{shown:?}");
    // Asked again, it is the same question.
    let again = decision(&hook(&daemon, "claude-code", "Write", &write));
    assert!(again.1.contains(&asked), "{}", again.1);
    assert_eq!(answer(&daemon, "allow"), asked);
    assert_eq!(
        decision(&hook(&daemon, "claude-code", "Write", &write)).0,
        "allow"
    );
    // Spent: nothing was written here, and the next one is asked about anew.
    let anew = decision(&hook(&daemon, "claude-code", "Write", &write));
    assert!(anew.0 == "deny" && !anew.1.contains(&asked), "{anew:?}");
    assert!(!file.exists());
    let spent = daemon
        .palyra(&["approvals", "show", &asked, "--json"])
        .expect_code(0)
        .json();
    assert_eq!(spent["state"], "spent");
}

#[test]
fn a_command_runs_in_the_sandbox_by_a_token_that_is_used_once() {
    let daemon = daemon();
    let secret = daemon.folder().join("outside.txt");
    std::fs::write(&secret, "not for agents").unwrap();
    let line = format!("cat {} ; echo ran > here.txt; exit 7", secret.display());
    // The control: outside of a call it can be read.
    assert!(std::fs::read(&secret).is_ok());
    let bash = json!({ "command": line, "description": "d" });
    assert_eq!(
        decision(&hook(&daemon, "claude-code", "Bash", &bash)).0,
        "deny"
    );
    answer(&daemon, "allow");
    let ran = hook(&daemon, "claude-code", "Bash", &bash);
    assert_eq!(decision(&ran).0, "allow");
    let input = &ran.json()["hookSpecificOutput"]["updatedInput"];
    assert_eq!(input["description"], "d");
    let command = input["command"].as_str().unwrap();
    assert!(
        command.contains(" exec --call plyrcall_") && !command.contains("cat"),
        "{command}"
    );
    let by_hand = || {
        let mut shell = daemon.command(std::path::Path::new("/bin/sh"));
        shell.args(["-c", command]).stdin(Stdio::null());
        Ran::from(shell.output().unwrap())
    };
    let done = by_hand();
    assert_eq!(done.code, Some(7), "{}{}", done.stdout, done.stderr);
    assert!(!done.stdout.contains("not for agents"), "{}", done.stdout);
    assert_eq!(
        std::fs::read_to_string(daemon.workspace().join("here.txt")).unwrap(),
        "ran\n"
    );
    let newest = &calls(&daemon)[0];
    assert_eq!(
        (&newest["principal"], &newest["state"]),
        (&json!("agent:claude"), &json!("completed"))
    );
    // Once.
    let again = by_hand();
    assert_ne!(again.code, Some(7));
    assert!(again.stderr.contains("token was used"), "{}", again.stderr);
    // Another agent cannot use what was given to this one; nor can it be guessed.
    daemon.add_agent("other");
    let bash = json!({ "command": "true" });
    let _ = decision(&hook(&daemon, "claude-code", "Bash", &bash));
    answer(&daemon, "allow");
    let ran = hook(&daemon, "claude-code", "Bash", &bash).json();
    let command = ran["hookSpecificOutput"]["updatedInput"]["command"]
        .as_str()
        .unwrap();
    let token = command.rsplit(' ').next().unwrap().to_owned();
    let body = json!({ "redeem": token }).to_string();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let refused = runtime.block_on(async {
        let mut other = daemon
            .client()
            .await
            .lowered_to(Some("agent:other".to_owned()));
        other
            .raw(hyper::Method::POST, "/api/v1/calls", body.into())
            .await
            .unwrap()
    });
    assert_eq!(refused.0, 403, "{:?}", refused.1);
}

#[test]
fn what_cannot_be_decided_is_blocked() {
    let mut daemon = daemon();
    for (tool, input) in [
        ("WebFetch", json!({ "url": "https://example.com" })),
        ("SomethingNew", json!({})),
        ("mcp__other__delete", json!({})),
        ("Read", json!({ "file_path": "/etc/shadow" })),
        ("Read", json!({ "file_path": "../outside" })),
        (
            "Write",
            json!({ "file_path": daemon.home_folder().join("palyra.toml"), "content": "" }),
        ),
        ("Bash", json!({ "command": ["rm"] })),
    ] {
        let (said, why) = decision(&hook(&daemon, "claude-code", tool, &input));
        assert!(
            said == "deny" && why.starts_with("Palyra: "),
            "{tool}: {said} {why}"
        );
    }
    // What no call sees, the client is not let see either: by its name, by a link, or in a folder.
    let workspace = daemon.workspace();
    std::fs::write(workspace.join(".env"), "KEY=1").unwrap();
    std::os::unix::fs::symlink(".env", workspace.join("plain.txt")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", workspace.join("host.txt")).unwrap();
    std::fs::write(workspace.join("open.txt"), "x").unwrap();
    for (tool, input) in [
        ("Read", json!({ "file_path": workspace.join(".env") })),
        ("Read", json!({ "file_path": workspace.join("plain.txt") })),
        ("Read", json!({ "file_path": workspace.join("host.txt") })),
        ("Grep", json!({ "pattern": "KEY" })),
        (
            "Write",
            json!({ "file_path": workspace.join(".git/hooks/pre-commit"), "content": "x" }),
        ),
    ] {
        let (said, why) = decision(&hook(&daemon, "claude-code", tool, &input));
        assert!(
            said == "deny" && !why.contains("waits"),
            "{tool} {input}: {said} {why}"
        );
    }
    // The control: what is beside them is read, by name or from where the client stands.
    for path in [workspace.join("open.txt"), "open.txt".into()] {
        let read = hook(
            &daemon,
            "claude-code",
            "Read",
            &json!({ "file_path": path }),
        );
        assert_eq!(decision(&read).0, "allow");
    }
    // A client without rewriting never runs a command by itself.
    let (said, why) = decision(&hook(&daemon, "codex", "Bash", &json!({ "command": "ls" })));
    assert!(
        said == "deny" && why.contains("palyra_process_run"),
        "{why}"
    );
    // Our own tools are decided when they come.
    let ours = hook(
        &daemon,
        "claude-code",
        "mcp__palyra__palyra_echo",
        &json!({}),
    )
    .expect_code(0);
    assert_eq!(ours.stdout, "");
    // What is not understood: the exit code that blocks.
    for said in [
        "",
        "nonsense",
        "{}",
        "[]",
        "{\"hook_event_name\":\"Stop\",\"tool_name\":\"Bash\"}",
    ] {
        let ran = daemon.palyra_with_input(&["hook", "claude-code", "--as", "agent:claude"], said);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{said}");
    }
    let read = json!({ "hook_event_name": "PreToolUse", "tool_name": "Read",
        "tool_input": { "file_path": "a" } })
    .to_string();
    for words in [
        &["hook", "claude-code"][..],
        &["hook", "claude-code", "--as", "agent:nobody"],
    ] {
        let ran = daemon.palyra_with_input(words, &read);
        let denied = ran.code == Some(2) || decision(&ran).0 == "deny";
        assert!(denied, "{words:?} {} {}", ran.stdout, ran.stderr);
    }
    // A daemon that is there and cannot be reached.
    daemon.stop();
    let socket = daemon.home().socket();
    std::fs::create_dir(&socket).unwrap();
    let ran = hook(&daemon, "claude-code", "Read", &json!({ "file_path": "a" }));
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(2), ""),
        "{}",
        ran.stderr
    );
}
