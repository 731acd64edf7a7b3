//! An agent's sensitive call: asked, answered, resumed; or denied when nobody answers.

use std::process::Child;

use palyra_testkit::{Daemon, Ran};

fn with_agent(config: &str) -> Daemon {
    let daemon = Daemon::builder().config(config).start();
    daemon.add_agent("a");
    daemon
}

fn ask(daemon: &Daemon, script: &str) -> Child {
    daemon.palyra_in_background(&["exec", "--as", "agent:a", "--", "sh", "-c", script])
}

fn end(child: Child) -> Ran {
    child.wait_with_output().unwrap().into()
}

fn decide(daemon: &Daemon, id: &str, decision: &str) -> Ran {
    daemon.palyra(&["approvals", "decide", id, "--decision", decision, "--json"])
}

#[test]
fn a_yes_resumes_the_call() {
    let daemon = with_agent("");
    let waiting = ask(&daemon, "echo ran > proof; echo done");
    let id = daemon.pending_approval();
    assert!(
        !daemon.workspace().join("proof").exists(),
        "it ran before anybody answered"
    );
    let shown = daemon
        .palyra(&["approvals", "show", &id, "--json"])
        .expect_code(0)
        .json();
    assert_eq!(shown["principal"], "agent:a");
    assert_eq!(shown["arguments"]["argv"][0], "sh");
    let _ = decide(&daemon, &id, "allow").expect_code(0);
    let ran = end(waiting).expect_code(0);
    assert_eq!(ran.stdout, "done\n");
    assert!(
        ran.stderr.contains(&id) && ran.stderr.contains("palyra approvals decide"),
        "{}",
        ran.stderr
    );
    assert!(daemon.workspace().join("proof").exists());
    let calls = daemon
        .palyra(&["calls", "list", "--json"])
        .expect_code(0)
        .json();
    let call = calls["items"][0]["call_id"].as_str().unwrap().to_owned();
    let record = daemon
        .palyra(&["calls", "show", &call, "--json"])
        .expect_code(0)
        .json();
    let kinds: Vec<&str> = record["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|entry| entry["kind"].as_str())
        .collect();
    // Decided twice: the second time with the grant in context.
    assert_eq!(
        kinds,
        [
            "proposed", "decided", "decided", "admitted", "finished", "attested"
        ]
    );
    assert_eq!(record["facts"]["grant"]["approval"], id.as_str());
    let approval = daemon
        .palyra(&["approvals", "show", &id, "--json"])
        .expect_code(0)
        .json();
    assert_eq!(approval["state"], "spent");
}

#[test]
fn a_no_denies_it_with_the_reason() {
    let daemon = with_agent("");
    let waiting = ask(&daemon, "touch proof");
    let id = daemon.pending_approval();
    let _ = daemon
        .palyra(&[
            "approvals",
            "decide",
            &id,
            "--decision",
            "deny",
            "--reason",
            "not on my watch",
        ])
        .expect_code(0);
    let ran = end(waiting).expect_code(121);
    assert!(ran.stderr.contains("not on my watch"), "{}", ran.stderr);
    assert!(!daemon.workspace().join("proof").exists());
    // A decided approval never changes.
    let again = decide(&daemon, &id, "allow");
    assert_eq!(again.code, Some(1), "{again:?}");
    let approval = daemon
        .palyra(&["approvals", "show", &id, "--json"])
        .expect_code(0)
        .json();
    assert_eq!(approval["state"], "denied");
}

#[test]
fn nobody_answers() {
    let daemon = with_agent("[approvals]\nwait = \"300ms\"\n");
    let _ = end(ask(&daemon, "touch proof")).expect_code(121);
    assert!(!daemon.workspace().join("proof").exists());
    let all = daemon
        .palyra(&["approvals", "list", "--all", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(all["items"][0]["state"], "expired");
    let id = all["items"][0]["approval_id"].as_str().unwrap();
    assert_eq!(decide(&daemon, id, "allow").code, Some(4));
}

#[test]
fn the_asker_goes_away() {
    let daemon = with_agent("");
    let mut waiting = ask(&daemon, "touch proof");
    let id = daemon.pending_approval();
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    palyra_testkit::eventually("the approval is cancelled", || {
        let approval = daemon
            .palyra(&["approvals", "show", &id, "--json"])
            .expect_code(0)
            .json();
        (approval["state"] == "cancelled").then_some(())
    });
    assert_eq!(decide(&daemon, &id, "allow").code, Some(4));
    assert!(!daemon.workspace().join("proof").exists());
}

#[test]
fn a_restart_closes_what_waited() {
    let mut daemon = with_agent("");
    let waiting = ask(&daemon, "touch proof");
    let id = daemon.pending_approval();
    daemon.kill();
    let _ = end(waiting).expect_code(125);
    daemon.start_again(None);
    let approval = daemon
        .palyra(&["approvals", "show", &id, "--json"])
        .expect_code(0)
        .json();
    assert_eq!(approval["state"], "cancelled");
    assert_eq!(decide(&daemon, &id, "allow").code, Some(4));
    assert!(!daemon.workspace().join("proof").exists());
}

#[test]
fn an_agent_never_decides() {
    let daemon = with_agent("");
    daemon.add_agent("b");
    let waiting = ask(&daemon, "echo yes");
    let id = daemon.pending_approval();
    for agent in ["agent:a", "agent:b"] {
        let refused = daemon.palyra(&[
            "approvals",
            "decide",
            &id,
            "--decision",
            "allow",
            "--as",
            agent,
        ]);
        assert!(matches!(refused.code, Some(1 | 3)), "{agent}: {refused:?}");
    }
    let approval = daemon
        .palyra(&["approvals", "show", &id, "--json"])
        .expect_code(0)
        .json();
    assert_eq!(approval["state"], "pending");
    let _ = decide(&daemon, &id, "allow").expect_code(0);
    let _ = end(waiting).expect_code(0);
}

#[test]
fn one_of_two_answers_wins() {
    let daemon = with_agent("");
    let waiting = ask(&daemon, "echo ran >> proof");
    let id = daemon.pending_approval();
    let deciders: Vec<Child> = ["allow", "deny", "allow", "deny", "allow", "deny"]
        .iter()
        .map(|answer| {
            daemon.palyra_in_background(&["approvals", "decide", &id, "--decision", answer])
        })
        .collect();
    let won = deciders
        .into_iter()
        .map(end)
        .filter(|ran| ran.code == Some(0))
        .count();
    assert_eq!(won, 1, "exactly one answer counts");
    let code = end(waiting).code.unwrap();
    let ran = std::fs::read_to_string(daemon.workspace().join("proof")).unwrap_or_default();
    match code {
        0 => assert_eq!(ran, "ran\n"),
        121 => assert_eq!(ran, ""),
        other => panic!("exit {other}"),
    }
}

#[test]
fn an_identical_call_joins_the_one_that_waits() {
    let daemon = with_agent("");
    let first = ask(&daemon, "echo ran >> proof");
    let id = daemon.pending_approval();
    let second = ask(&daemon, "echo ran >> proof");
    let other = ask(&daemon, "echo other >> proof");
    palyra_testkit::eventually("the other call waits too", || {
        let list = daemon
            .palyra(&["approvals", "list", "--json"])
            .expect_code(0)
            .json();
        (list["items"].as_array().unwrap().len() == 2).then_some(())
    });
    std::thread::sleep(std::time::Duration::from_millis(200));
    let list = daemon
        .palyra(&["approvals", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        list["items"].as_array().unwrap().len(),
        2,
        "the identical call asked again"
    );
    let _ = decide(&daemon, &id, "allow").expect_code(0);
    let _ = end(first).expect_code(0);
    let _ = end(second).expect_code(0);
    assert_eq!(
        std::fs::read_to_string(daemon.workspace().join("proof")).unwrap(),
        "ran\n"
    );
    let left = daemon.pending_approval();
    let _ = decide(&daemon, &left, "deny").expect_code(0);
    let _ = end(other).expect_code(121);
}

#[test]
fn an_agents_harmless_tools_run_unasked() {
    let daemon = with_agent("");
    std::fs::write(daemon.workspace().join("a.txt"), "x").unwrap();
    let read = [
        "call",
        "palyra.fs.read",
        "--args",
        r#"{"path":"a.txt"}"#,
        "--as",
        "agent:a",
    ];
    let _ = daemon.palyra(&read).expect_code(0);
    let tools = daemon
        .palyra(&["tools", "list", "--json", "--as", "agent:a"])
        .expect_code(0)
        .json();
    assert_eq!(tools["items"].as_array().unwrap().len(), 6);
}

#[test]
fn hostile_words_arrive_visible() {
    let daemon = with_agent("");
    let waiting = ask(&daemon, "echo '\u{202e}evil\u{1b}[2J'");
    let id = daemon.pending_approval();
    let shown = daemon.palyra(&["approvals", "show", &id]).expect_code(0);
    for hidden in ["\u{202e}", "\u{1b}"] {
        assert!(!shown.stdout.contains(hidden), "{:?}", shown.stdout);
    }
    let reason = "no\u{1b}]0;owned\u{7}\u{202e}";
    let _ = daemon
        .palyra(&[
            "approvals",
            "decide",
            &id,
            "--decision",
            "deny",
            "--reason",
            reason,
        ])
        .expect_code(0);
    let ran = end(waiting).expect_code(121);
    assert!(ran.stderr.contains("owned"), "{:?}", ran.stderr);
    assert!(
        !ran.stderr.contains(['\u{1b}', '\u{202e}', '\u{7}']),
        "{:?}",
        ran.stderr
    );
}

/// A name means what the caller's `PATH` makes of it: the person sees what was found.
#[test]
fn the_program_that_was_found_is_shown() {
    let daemon = with_agent("");
    let evil = daemon.workspace().join("bin");
    std::fs::create_dir(&evil).unwrap();
    std::fs::write(evil.join("git"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(
        evil.join("git"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let path = format!("PATH={}:/usr/bin:/bin", evil.display());
    let also = "LD_PRELOAD=/tmp/x.so";
    let mut waiting = daemon.palyra_in_background(&[
        "exec", "--as", "agent:a", "--env", &path, "--env", also, "--", "git", "status",
    ]);
    let id = daemon.pending_approval();
    let shown = daemon
        .palyra(&["approvals", "show", &id, "--json"])
        .expect_code(0)
        .json();
    let found = evil.join("git");
    assert_eq!(shown["program"], found.to_str().unwrap());
    let summary = shown["summary"].as_str().unwrap();
    assert!(summary.starts_with(found.to_str().unwrap()), "{summary}");
    assert!(summary.contains("with LD_PRELOAD set"), "{summary}");
    assert_eq!(shown["workspace"], daemon.workspace().to_str().unwrap());
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

#[test]
fn a_removed_agents_calls_end() {
    let daemon = with_agent("");
    let waiting = ask(&daemon, "touch proof");
    let id = daemon.pending_approval();
    let _ = daemon.palyra(&["agents", "remove", "a"]).expect_code(0);
    let _ = end(waiting).expect_code(125);
    assert_eq!(decide(&daemon, &id, "allow").code, Some(4));
    // Who takes the name later does not inherit the past.
    daemon.add_agent("a");
    let calls = daemon
        .palyra(&["calls", "list", "--json", "--as", "agent:a"])
        .expect_code(0)
        .json();
    assert_eq!(calls["items"].as_array().unwrap().len(), 0, "{calls}");
}
