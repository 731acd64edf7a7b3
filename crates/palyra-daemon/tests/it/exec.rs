//! `palyra exec`: exit codes, streams, limits, records.

use palyra_testkit::{Daemon, is_root};
use serde_json::Value;

#[test]
fn a_childs_own_code_and_streams_pass_through() {
    let daemon = Daemon::start();
    let ran = daemon
        .palyra(&["exec", "--", "sh", "-c", "echo out; echo err >&2; exit 7"])
        .expect_code(7);
    assert_eq!(ran.stdout, "out\n");
    assert!(ran.stderr.contains("err\n"), "{}", ran.stderr);
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let _ = daemon
        .palyra(&["exec", "--", "sh", "-c", "kill -KILL $$"])
        .expect_code(137);
}

#[test]
fn palyras_own_codes() {
    let daemon = Daemon::start();
    let _ = daemon
        .palyra(&["exec", "--", "no-such-program"])
        .expect_code(127);
    let _ = daemon
        .palyra(&["exec", "--", "/etc/passwd"])
        .expect_code(126);
    let _ = daemon
        .palyra(&["exec", "--timeout", "300ms", "--", "sleep", "60"])
        .expect_code(124);
    let _ = daemon
        .palyra(&["exec", "--tier", "c", "--", "true"])
        .expect_code(0);
    let _ = daemon
        .palyra(&["exec", "--as", "agent:ghost", "--", "true"])
        .expect_code(120);
    let _ = daemon.palyra(&["exec"]).expect_code(125);
}

#[test]
fn json_keeps_outcome_and_exit_code_apart() {
    let daemon = Daemon::start();
    let result = daemon
        .palyra(&["exec", "--json", "--", "sh", "-c", "printf a; exit 3"])
        .expect_code(3)
        .json();
    assert_eq!(result["outcome"], "completed");
    assert_eq!(result["exit_code"], 3);
    assert_eq!(result["output"]["stdout"]["text"], "a");
    let attestation = &result["attestation"];
    assert_eq!(attestation["executor"], "sandbox_tier_c_linux_namespaces");
    assert_eq!(attestation["sandbox_enforcement"], "tier_c");
    assert_eq!(attestation["running_as_root"], false);
    let layers: Vec<&str> = attestation["layers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|layer| layer["name"].as_str())
        .collect();
    for layer in [
        "namespaces",
        "network",
        "landlock",
        "seccomp",
        "no_new_privs",
    ] {
        assert!(layers.contains(&layer), "{layers:?}");
    }
    let timed_out = daemon
        .palyra(&["exec", "--json", "--timeout", "200ms", "--", "sleep", "9"])
        .expect_code(124)
        .json();
    assert_eq!(timed_out["outcome"], "timed_out");
    assert_eq!(timed_out["exit_code"], Value::Null);
    assert_eq!(timed_out["attestation"]["timed_out"], true);
}

#[test]
fn the_environment_is_cleared_and_named_values_pass() {
    let daemon = Daemon::start();
    let mut command = daemon.program("palyra");
    command.env("SECRET_TOKEN", "hunter2").env("WANTED", "yes");
    command.args(["exec", "--env", "WANTED", "--env", "SET=1", "--", "env"]);
    let ran = palyra_testkit::Ran::from(command.output().unwrap()).expect_code(0);
    assert!(
        ran.stdout.contains("WANTED=yes\n") && ran.stdout.contains("SET=1\n"),
        "{}",
        ran.stdout
    );
    assert!(
        !ran.stdout.contains("hunter2") && !ran.stdout.contains("PALYRA_HOME"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("TMPDIR="), "{}", ran.stdout);
}

#[test]
fn output_that_is_no_text_and_output_without_end() {
    let daemon = Daemon::start();
    let mut command = daemon.program("palyra");
    command.args(["exec", "--", "sh", "-c", r"printf '\377\000\001'"]);
    assert_eq!(command.output().unwrap().stdout, b"\xff\x00\x01");
    let result = daemon
        .palyra(&["exec", "--json", "--", "sh", "-c", r"printf '\377'"])
        .expect_code(0)
        .json();
    assert_eq!(result["output"]["stdout"]["base64"], "/w==");
    let endless = [
        "exec",
        "--json",
        "--",
        "sh",
        "-c",
        "head -c 20000000 /dev/zero | tr '\\0' x",
    ];
    let result = daemon.palyra(&endless).expect_code(0).json();
    assert_eq!(result["attestation"]["truncated"], true);
    assert_eq!(result["output"]["stdout_bytes"], 20_000_000);
    assert!(result["output"]["stdout"]["text"].as_str().unwrap().len() < 9 << 20);
}

#[test]
fn every_call_leaves_its_record() {
    let daemon = Daemon::start();
    let result = daemon
        .palyra(&["exec", "--json", "--", "echo", "hi"])
        .expect_code(0)
        .json();
    let id = result["call_id"].as_str().unwrap();
    let record = daemon
        .palyra(&["calls", "show", id, "--json"])
        .expect_code(0)
        .json();
    let kinds: Vec<&str> = record["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|entry| entry["kind"].as_str())
        .collect();
    assert_eq!(
        kinds,
        ["proposed", "decided", "admitted", "finished", "attested"]
    );
    assert_eq!(record["state"], "completed");
    assert_eq!(record["arguments"]["argv"][0], "echo");
    assert_eq!(record["output"]["stdout"]["text"], "hi\n");
    assert_eq!(record["facts"]["tool"], "palyra.process.run");
    // Entries commit to arguments and output without containing them, also when a call fails.
    let missing = r#"{"path":"a-secret-name"}"#;
    let _ = daemon
        .palyra(&["call", "palyra.fs.read", "--args", missing])
        .expect_code(1);
    let tail = daemon.palyra(&["journal", "tail", "--json"]).expect_code(0);
    assert!(!tail.stdout.contains("\"hi\""), "{}", tail.stdout);
    assert!(!tail.stdout.contains("echo"), "{}", tail.stdout);
    assert!(!tail.stdout.contains("a-secret-name"), "{}", tail.stdout);
}

#[test]
fn standard_input_is_empty_unless_the_call_brings_it() {
    let daemon = Daemon::start();
    let ran = daemon.palyra(&["exec", "--", "cat"]).expect_code(0);
    assert_eq!(ran.stdout, "");
    let arguments = r#"{"argv":["cat"],"stdin":"from the call"}"#;
    let result = daemon
        .palyra(&["call", "palyra.process.run", "--args", arguments, "--json"])
        .expect_code(0)
        .json();
    assert_eq!(result["output"]["stdout"]["text"], "from the call");
}

#[test]
fn as_another_user_everything_works_too() {
    if !is_root() {
        palyra_testkit::not_run(
            "as_another_user_everything_works_too",
            "needs root to start a daemon as another user",
        );
        return;
    }
    let daemon = Daemon::builder().uid(64_001).start();
    let ran = daemon
        .palyra(&["exec", "--json", "--", "id", "-u"])
        .expect_code(0)
        .json();
    assert_eq!(ran["output"]["stdout"]["text"], "64001\n");
    assert_eq!(ran["attestation"]["running_as_root"], false);
    // Root is not this daemon's owner, and does not hand it anything.
    let status = std::process::Command::new(palyra_testkit::bin("palyra"))
        .env("PALYRA_HOME", daemon.home_folder())
        .args(["status"])
        .output()
        .unwrap();
    assert_eq!(status.status.code(), Some(5), "{status:?}");
}

#[test]
fn a_root_daemon_steps_down_to_the_folders_owner() {
    if !is_root() {
        palyra_testkit::not_run(
            "a_root_daemon_steps_down_to_the_folders_owner",
            "needs root to start a daemon as another user",
        );
        return;
    }
    let daemon = Daemon::start();
    let folder = daemon.workspace().join("theirs");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(64_002), Some(64_002)).unwrap();
    let folder = folder.to_str().unwrap();
    let mut command = daemon.program("palyra");
    command
        .current_dir(folder)
        .args(["exec", "--json", "--", "sh", "-c", "id -u; touch made"]);
    let result = palyra_testkit::Ran::from(command.output().unwrap())
        .expect_code(0)
        .json();
    assert_eq!(result["output"]["stdout"]["text"], "64002\n", "{result}");
    assert_eq!(result["attestation"]["running_as_root"], false);
    let arguments = r#"{"path":"written","content":"x"}"#;
    let _ = daemon
        .palyra(&[
            "call",
            "palyra.fs.write",
            "--args",
            arguments,
            "--workspace",
            folder,
        ])
        .expect_code(0);
    // The folder's group is not theirs to give: anybody can make a folder of group `shadow` inside
    // one that passes its group on.
    std::os::unix::fs::chown(folder, None, Some(0)).unwrap();
    let mut command = daemon.program("palyra");
    command.current_dir(folder).args(["exec", "--", "id", "-G"]);
    let groups = palyra_testkit::Ran::from(command.output().unwrap()).expect_code(0);
    assert_eq!(groups.stdout, "65534\n");
    use std::os::unix::fs::MetadataExt;
    for name in ["made", "written"] {
        let found = std::fs::metadata(format!("{folder}/{name}")).unwrap();
        assert_eq!(found.uid(), 64_002, "{name}");
    }
}

#[test]
fn a_caller_that_leaves_cancels_the_call() {
    let daemon = Daemon::start();
    let state = || {
        let calls = daemon
            .palyra(&["calls", "list", "--json"])
            .expect_code(0)
            .json();
        calls["items"][0]["state"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    // Ctrl-C.
    let running = daemon.palyra_in_background(&["exec", "--", "sh", "-c", "touch up; sleep 60"]);
    palyra_testkit::eventually("it runs", || {
        daemon.workspace().join("up").exists().then_some(())
    });
    let pid = running.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status()
        .unwrap();
    assert!(sent.success());
    let _ = palyra_testkit::Ran::from(running.wait_with_output().unwrap()).expect_code(130);
    palyra_testkit::eventually("it is cancelled", || (state() == "cancelled").then_some(()));
    // A reader that has enough.
    let mut piped = daemon.palyra_in_background(&["exec", "--", "yes"]);
    drop(piped.stdout.take());
    assert_eq!(piped.wait().unwrap().code(), Some(141));
    palyra_testkit::eventually("it is cancelled", || (state() == "cancelled").then_some(()));
}

#[test]
fn an_agent_starts_where_the_caller_stands_or_at_its_folder() {
    let daemon = Daemon::start();
    let (project, deeper) = (daemon.workspace().join("p"), daemon.workspace().join("p/q"));
    std::fs::create_dir_all(&deeper).unwrap();
    daemon.add_agent_on("a", &project);
    for (stands, starts) in [(&deeper, &deeper), (&daemon.workspace(), &project)] {
        let mut command = daemon.program("palyra");
        command
            .current_dir(stands)
            .args(["exec", "--as", "agent:a", "--", "pwd"]);
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null());
        let waiting = command.spawn().unwrap();
        let id = daemon.pending_approval();
        let _ = daemon
            .palyra(&["approvals", "decide", &id, "--decision", "allow"])
            .expect_code(0);
        let ran = palyra_testkit::Ran::from(waiting.wait_with_output().unwrap()).expect_code(0);
        assert_eq!(ran.stdout.trim(), starts.to_str().unwrap());
    }
}

#[test]
fn the_journal_is_followed_live() {
    let daemon = Daemon::start();
    let mut tail =
        daemon.palyra_in_background(&["journal", "tail", "--follow", "--json", "-n", "0"]);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let lines = std::io::BufRead::lines(std::io::BufReader::new(tail.stdout.take().unwrap()));
    let kinds: Vec<String> = lines
        .take(5)
        .map(|line| {
            serde_json::from_str::<Value>(&line.unwrap()).unwrap()["kind"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        kinds,
        ["proposed", "decided", "admitted", "finished", "attested"]
    );
    tail.kill().unwrap();
    tail.wait().unwrap();
}

/// Many short calls at once: what each wrote in its last moment is never lost.
#[test]
fn no_output_is_lost_under_load() {
    let daemon = Daemon::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let folder = daemon.workspace().to_str().unwrap().to_owned();
    let lost: usize = runtime.block_on(async {
        let mut callers = Vec::new();
        for caller in 0..8 {
            let (mut client, folder) = (daemon.client().await, folder.clone());
            callers.push(tokio::spawn(async move {
                let mut lost = 0;
                for number in 0..60 {
                    let word = format!("{caller}-{number}");
                    let request = palyra_api::wire::CallRequest {
                        tool: "palyra.process.run".to_owned(),
                        arguments: serde_json::json!({ "argv": ["sh", "-c", format!("echo {word}; echo {word} >&2")] }),
                        workspace: Some(folder.clone()),
                        window: None,
                        said: None,
                        detach: false,
                        patience_ms: None,
                    };
                    let output = client.call(&request).await.unwrap().output.unwrap();
                    let whole = format!("{word}\n");
                    let both = ["stdout", "stderr"].map(|stream| output[stream]["text"] == whole);
                    lost += both.iter().filter(|kept| !**kept).count();
                }
                lost
            }));
        }
        let mut lost = 0;
        for caller in callers {
            lost += caller.await.unwrap();
        }
        lost
    });
    assert_eq!(lost, 0, "of 960 outputs");
}
