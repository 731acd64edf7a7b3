//! No daemon, a daemon that may not be reached, and starting one.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::fake::{Answer, Fake};
use crate::palyra::{Palyra, Ran, mode};

/// Tells that it was started.
const MARK: &str = "touch \"$PALYRA_HOME/started\"; exit 1";

fn was_started(palyra: &Palyra) -> bool {
    palyra.home().join("started").exists()
}

#[test]
fn without_a_daemon_nothing_but_exec_and_call_starts_one() {
    let palyra = Palyra::new().with_daemon(MARK);
    for words in [
        &["status"][..],
        &["agents", "list"],
        &["tools", "list"],
        &["calls", "list"],
        &["approvals", "list"],
        &["journal", "tail"],
    ] {
        palyra
            .run(words)
            .exits(5)
            .complains("no daemon listens", "palyra exec -- true");
        let error = &palyra.run(&[words, &["--json"]].concat()).exits(5).json()["error"];
        assert_eq!(error["code"], "no_daemon");
    }
    assert!(!was_started(&palyra));
    palyra.run(&["call", "palyra.echo"]).exits(5);
    assert!(was_started(&palyra));
}

#[test]
fn nothing_is_started_for_an_agent() {
    let palyra = Palyra::new().with_daemon(MARK);
    let hint = "only a person starts one";
    palyra
        .run(&["exec", "--as", "agent:x", "--", "id"])
        .exits(123)
        .complains("agent:x", hint);
    palyra
        .run(&["call", "palyra.echo", "--as", "agent:x"])
        .exits(5)
        .complains("agent:x", hint);
    assert!(!was_started(&palyra));
}

#[test]
fn what_may_not_be_reached_is_not_absent() {
    let palyra = Palyra::new().with_daemon(MARK);
    // Anything but "nothing is there" must do; root is never refused by permission bits.
    std::fs::write(palyra.home(), "a file where the folder should be").unwrap();
    palyra
        .run(&["exec", "--", "id"])
        .exits(123)
        .complains("may not be reached", "outside of a Palyra call");
    palyra.run(&["status"]).exits(5);
}

#[test]
fn no_daemon_to_start_names_the_remedy() {
    let palyra = Palyra::new();
    palyra
        .run(&["exec", "--", "id"])
        .exits(123)
        .complains("bin/palyrad` to start", "install it next to `palyra`");
}

#[test]
fn a_daemon_that_ends_at_once_is_explained_by_its_log() {
    let palyra = Palyra::new().with_daemon("echo 'line 3: unknown key `wiat`' >&2; exit 9");
    let ran = palyra.run(&["exec", "--", "id"]).exits(123);
    assert!(ran.stderr.contains("unknown key `wiat`"), "{ran:?}");
    ran.complains("ended at once (exit status: 9)", "what its log says");
    assert_eq!(mode(&palyra.home()), 0o700);
    for file in ["palyrad.log", "start.lock"] {
        assert_eq!(mode(&palyra.home().join(file)), 0o600, "{file}");
    }
    // The log of an earlier start explains nothing.
    let silent = palyra
        .with_daemon("exit 9")
        .run(&["exec", "--", "id"])
        .exits(123);
    assert!(!silent.stderr.contains("wiat"), "{silent:?}");
}

#[test]
fn the_daemon_gets_a_cleared_environment() {
    let script = "echo \"$*\" > \"$PALYRA_HOME/argv\"; env > \"$PALYRA_HOME/env\"; \
                  pwd > \"$PALYRA_HOME/cwd\"; exit 1";
    let palyra = Palyra::new()
        .with_daemon(script)
        .with("AWS_SECRET_ACCESS_KEY", "s3cret")
        .with("LD_LIBRARY_PATH", "/evil")
        .with("LANG", "C.UTF-8");
    palyra.run(&["exec", "--", "id"]).exits(123);
    let read = |name: &str| std::fs::read_to_string(palyra.home().join(name)).unwrap();
    assert_eq!(read("argv"), "--detached\n");
    assert_eq!(read("cwd"), "/\n");
    let env = read("env");
    assert!(
        env.contains("LANG=C.UTF-8") && env.contains("PALYRA_HOME="),
        "{env}"
    );
    assert!(!env.contains("s3cret") && !env.contains("/evil"), "{env}");
}

#[test]
fn a_home_of_somebody_else_is_left_alone() {
    let palyra = Palyra::new().with_daemon(MARK);
    let foreign = if rustix::process::geteuid().is_root() {
        // As `sudo` leaves it: somebody's home, and no Palyra folder in it yet.
        std::fs::create_dir(palyra.path("person")).unwrap();
        std::os::unix::fs::chown(palyra.path("person"), Some(4242), Some(4242)).unwrap();
        palyra.path("person/.palyra")
    } else {
        "/etc".into()
    };
    let palyra = palyra.with("PALYRA_HOME", foreign.to_str().unwrap());
    palyra
        .run(&["exec", "--", "id"])
        .exits(123)
        .complains("belongs to uid", "PALYRA_HOME");
    palyra
        .run(&["call", "palyra.echo"])
        .exits(5)
        .complains("belongs to uid", "PALYRA_HOME");
    palyra
        .run(&["init"])
        .exits(1)
        .complains("belongs to uid", "PALYRA_HOME");
    assert!(!foreign.join("start.lock").exists() && !foreign.join("palyra.toml").exists());
}

#[test]
fn a_running_daemon_is_used() {
    let palyra = Palyra::new().with_daemon(MARK);
    let page = json!({"items": [], "next": null});
    let fake = Fake::listen(
        &palyra.home(),
        &[("GET /api/v1/agents", Answer::Json(200, page))],
    );
    let ran = palyra.run(&["agents", "list", "--as", "agent:x"]).exits(0);
    assert!(
        ran.stdout.is_empty() && ran.stderr.contains("palyra agents add"),
        "{ran:?}"
    );
    assert_eq!(fake.asked()[0].headers["palyra-as"], "agent:x");
    assert!(!was_started(&palyra));
}

#[test]
fn two_commands_at_once_start_one_daemon() {
    let palyra = Palyra::new().with_daemon("echo started >> \"$PALYRA_HOME/started\"");
    let running: Vec<_> = (0..2)
        .map(|_| {
            let mut command = palyra.command(&["exec", "--", "true"]);
            command.stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let since = Instant::now();
    while !was_started(&palyra) && since.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Slow enough that both have to wait, and say so.
    std::thread::sleep(Duration::from_millis(1_300));
    let result = json!({
        "call_id": "call_x", "outcome": "completed", "exit_code": 0, "signal": null,
        "output": null, "problem": null, "approval_id": null, "attestation": null
    });
    let finished = json!({"event": "finished", "result": result});
    let _fake = Fake::listen(
        &palyra.home(),
        &[
            ("GET /healthz", Answer::Json(200, json!({"status": "ok"}))),
            ("POST /api/v1/calls", Answer::Events(vec![finished])),
        ],
    );
    let mut said = String::new();
    for child in running {
        said.push_str(&Ran::from(child.wait_with_output().unwrap()).exits(0).stderr);
    }
    let starts = std::fs::read_to_string(palyra.home().join("started")).unwrap();
    assert_eq!(starts, "started\n");
    assert_eq!(said.matches("started a daemon").count(), 1, "{said}");
    assert_eq!(said.matches("waiting for the daemon").count(), 1, "{said}");
    assert_eq!(
        said.matches("waiting for another command").count(),
        1,
        "{said}"
    );
}
