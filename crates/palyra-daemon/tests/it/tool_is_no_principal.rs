//! A process inside a call is never a principal: each attack works outside and fails inside.

use palyra_testkit::{Daemon, Ran};

/// Speaks raw HTTP to a Unix socket, without any client of ours.
const RAW: &str = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.connect(sys.argv[1])
s.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
print(s.makefile("rb").readline().decode().strip())
"#;

/// Daemons, each with a tier that calls run in. In Tier-C it takes a client in the workspace to even
/// try; Tier-B shows a program everything but the daemon's home.
fn daemons() -> Vec<(Daemon, &'static str)> {
    let mut daemons = vec![(Daemon::start(), "c")];
    if palyra_testkit::is_root() {
        daemons.push((Daemon::builder().uid(64_004).start(), "c"));
        daemons.push((Daemon::builder().uid(64_005).start(), "b"));
    } else {
        daemons.push((Daemon::start(), "b"));
    }
    for (daemon, _) in &daemons {
        let copy = daemon.workspace().join("palyra");
        std::fs::copy(daemon.bins().join("palyra"), copy).unwrap();
    }
    daemons
}

/// Where a call finds the client, and which daemon is meant.
fn variables(daemon: &Daemon) -> [String; 2] {
    let home = format!("PALYRA_HOME={}", daemon.home_folder().display());
    let path = format!(
        "PATH={}:{}",
        daemon.workspace().display(),
        std::env::var("PATH").unwrap()
    );
    [home, path]
}

fn inside(daemon: &Daemon, tier: &str, words: &[&str]) -> Ran {
    let [home, path] = variables(daemon);
    let mut arguments = vec!["exec", "--tier", tier, "--env", &home, "--env", &path, "--"];
    arguments.extend_from_slice(words);
    daemon.palyra(&arguments)
}

#[test]
fn palyra_exec_inside_a_call() {
    for (daemon, tier) in daemons() {
        let _ = daemon.palyra(&["exec", "--", "id"]).expect_code(0);
        let refused = inside(&daemon, tier, &["palyra", "exec", "--", "id"]);
        assert!(!refused.stdout.contains("uid="), "{refused:?}");
        // Being kept from the socket is never taken for "no daemon": nothing is started. (In a cage
        // there is none, and nothing to start either.)
        assert_eq!(refused.code, Some(123), "{tier}: {refused:?}");
        assert!(!refused.stderr.contains("started"), "{refused:?}");
    }
}

#[test]
fn palyra_approvals_decide_inside_a_call() {
    for (daemon, tier) in daemons() {
        daemon.add_agent("a");
        let waiting =
            daemon.palyra_in_background(&["exec", "--as", "agent:a", "--", "echo", "yes"]);
        let id = daemon.pending_approval();
        let refused = inside(
            &daemon,
            tier,
            &["palyra", "approvals", "decide", &id, "--decision", "allow"],
        );
        assert_ne!(refused.code, Some(0), "{refused:?}");
        let approval = daemon
            .palyra(&["approvals", "show", &id, "--json"])
            .expect_code(0)
            .json();
        assert_eq!(approval["state"], "pending");
        let _ = daemon
            .palyra(&["approvals", "decide", &id, "--decision", "allow"])
            .expect_code(0);
        assert_eq!(Ran::from(waiting.wait_with_output().unwrap()).code, Some(0));
    }
}

#[test]
fn raw_http_inside_a_call() {
    for (daemon, tier) in daemons() {
        let script = daemon.workspace().join("raw.py");
        std::fs::write(&script, RAW).unwrap();
        let socket = daemon.home().socket();
        let (script, socket) = (script.to_str().unwrap(), socket.to_str().unwrap());
        let outside = python(&daemon, script, socket);
        assert_eq!(outside.stdout.trim(), "HTTP/1.1 200 OK", "{outside:?}");
        let refused = inside(&daemon, tier, &["python3", script, socket]);
        assert!(!refused.stdout.contains("200"), "{refused:?}");
        // It was Python that was refused, and not we that did not find it.
        assert!(refused.stderr.contains("Error"), "{refused:?}");
        assert_eq!(refused.code, Some(1), "{refused:?}");
    }
}

fn python(daemon: &Daemon, script: &str, socket: &str) -> Ran {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    let owner = std::fs::metadata(daemon.workspace()).unwrap().uid();
    let mut command = std::process::Command::new("python3");
    command
        .args([script, socket])
        .current_dir(daemon.workspace());
    if owner != 0 {
        command.uid(owner).gid(owner);
    }
    command.output().unwrap().into()
}

#[test]
fn the_daemons_home_is_masked_in_every_call() {
    for (daemon, tier) in daemons() {
        let key = daemon.home_folder().join("vault.key");
        let key = key.to_str().unwrap();
        // The control: the owner reads it outside.
        assert_eq!(std::fs::read(key).unwrap().len(), 65);
        for words in [
            vec!["cat", key],
            vec!["ls", daemon.home_folder().to_str().unwrap()],
            vec!["sh", "-c", &format!("echo x > {key}")],
            vec!["cat", &format!("/proc/self/root{key}")],
            vec!["ln", key, "stolen"],
            vec!["mv", daemon.home_folder().to_str().unwrap(), "moved"],
        ] {
            let refused = inside(&daemon, tier, &words);
            assert_ne!(refused.code, Some(0), "{words:?}: {refused:?}");
        }
        assert_eq!(std::fs::read(key).unwrap().len(), 65);
    }
}

/// The second wall alone. A process that no filter keeps from the socket, but that lives in a
/// call's cgroup, is told apart at the door; a moment earlier, outside of it, it was let in.
#[test]
fn the_door_recognises_a_process_of_a_call() {
    let daemon = Daemon::start();
    let status = daemon.palyra(&["status", "--json"]).expect_code(0).json();
    let Some(cgroup) = status["sandbox"]["cgroup"].as_str() else {
        palyra_testkit::not_run(
            "the_door_recognises_a_process_of_a_call",
            "no cgroup is writable here; run the tests as root",
        );
        return;
    };
    let mut running = daemon.palyra_in_background(&["exec", "--", "sleep", "60"]);
    let call = palyra_testkit::eventually("the call has a cgroup", || {
        let groups = std::fs::read_dir(cgroup).ok()?.flatten();
        groups.map(|group| group.path()).find(|path| {
            let members = std::fs::read_to_string(path.join("cgroup.procs"));
            members.is_ok_and(|members| !members.trim().is_empty())
        })
    });
    let script = daemon.folder().join("raw.py");
    std::fs::write(&script, RAW).unwrap();
    let socket = daemon.home().socket();
    let enter = format!(
        "python3 {0} {1}; echo $$ > {2}/cgroup.procs && exec python3 {0} {1}",
        script.display(),
        socket.display(),
        call.display()
    );
    let tried: Ran = std::process::Command::new("sh")
        .args(["-c", &enter])
        .output()
        .unwrap()
        .into();
    let answers: Vec<&str> = tried.stdout.lines().collect();
    assert_eq!(
        answers,
        ["HTTP/1.1 200 OK", "HTTP/1.1 403 Forbidden"],
        "{tried:?}"
    );
    running.kill().unwrap();
    running.wait().unwrap();
}

/// The same from a call that an agent asked for and a person approved.
#[test]
fn an_approved_call_is_no_principal_either() {
    for (daemon, tier) in daemons() {
        daemon.add_agent("a");
        let [home, path] = variables(&daemon);
        let tries = "palyra exec -- id; palyra approvals list; palyra status; echo tried";
        let waiting = daemon.palyra_in_background(&[
            "exec", "--as", "agent:a", "--tier", tier, "--env", &home, "--env", &path, "--", "sh",
            "-c", tries,
        ]);
        let id = daemon.pending_approval();
        let _ = daemon
            .palyra(&["approvals", "decide", &id, "--decision", "allow"])
            .expect_code(0);
        let ran = Ran::from(waiting.wait_with_output().unwrap()).expect_code(0);
        assert_eq!(ran.stdout, "tried\n", "{ran:?}");
        assert!(ran.stderr.contains("may not be reached"), "{tier}: {ran:?}");
    }
}

/// Another uid is nobody to the daemon; and a daemon of another uid is nobody to the client.
#[test]
fn another_uid_is_turned_away_at_both_ends() {
    if !palyra_testkit::is_root() {
        palyra_testkit::not_run(
            "another_uid_is_turned_away_at_both_ends",
            "needs root to start a daemon as another user",
        );
        return;
    }
    let daemon = Daemon::builder().uid(64_006).start();
    let script = daemon.folder().join("raw.py");
    std::fs::write(&script, RAW).unwrap();
    let socket = daemon.home().socket();
    let as_root: Ran = std::process::Command::new("python3")
        .arg(&script)
        .arg(&socket)
        .output()
        .unwrap()
        .into();
    assert_eq!(
        as_root.stdout.trim(),
        "HTTP/1.1 403 Forbidden",
        "{as_root:?}"
    );
    let mut palyra = std::process::Command::new(palyra_testkit::bin("palyra"));
    palyra.args(["exec", "--env", "A=secret", "--", "true"]);
    palyra
        .env("PALYRA_HOME", daemon.home_folder())
        .current_dir(daemon.workspace());
    let refused = Ran::from(palyra.output().unwrap()).expect_code(123);
    assert!(
        refused.stderr.contains("belongs to uid 64006"),
        "{refused:?}"
    );
}

/// The helper runs outside of every wall. A call that can write to the file it came from must not
/// decide what is started when the helper is started again.
#[test]
fn a_replaced_helper_is_not_started() {
    if !palyra_testkit::is_root() {
        palyra_testkit::not_run(
            "a_replaced_helper_is_not_started",
            "needs root to start a daemon as another user",
        );
        return;
    }
    let daemon = Daemon::builder().uid(64_007).start();
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let (marker, helper) = (
        daemon.workspace().join("replaced"),
        daemon.bins().join("palyra-jail"),
    );
    std::fs::remove_file(&helper).unwrap();
    std::fs::write(&helper, format!("#!/bin/sh\ntouch {}\n", marker.display())).unwrap();
    std::fs::set_permissions(&helper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // The control: this is what would happen.
    let control = std::process::Command::new(&helper).status().unwrap();
    assert!(control.success() && marker.exists());
    std::fs::remove_file(&marker).unwrap();
    let children = format!("/proc/{0}/task/{0}/children", daemon.pid());
    let server = std::fs::read_to_string(children).unwrap().trim().to_owned();
    let killed = std::process::Command::new("kill")
        .args(["-KILL", &server])
        .status();
    assert!(killed.unwrap().success(), "{server}");
    palyra_testkit::eventually("calls run again", || {
        let again = daemon.palyra(&["exec", "--", "echo", "again"]);
        (again.stdout == "again\n").then_some(())
    });
    assert!(!marker.exists(), "what lay on the disk was started");
}
