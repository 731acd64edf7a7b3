//! Starting, stopping, and everything that can be in the way of it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use palyra_testkit::{Daemon, Ran, eventually};

#[test]
fn a_second_daemon_names_the_first() {
    let daemon = Daemon::start();
    let second = Ran::from(daemon.program("palyrad").output().unwrap()).expect_code(1);
    assert!(
        second.stderr.contains(&daemon.pid().to_string()),
        "{}",
        second.stderr
    );
    let _ = daemon.palyra(&["status"]).expect_code(0);
}

#[test]
fn a_stale_socket_is_replaced() {
    let mut daemon = Daemon::start();
    daemon.kill();
    assert!(
        daemon.home().socket().exists(),
        "killed daemons leave their socket"
    );
    let unreachable = daemon.palyra(&["status"]);
    assert_eq!(unreachable.code, Some(5), "{unreachable:?}");
    daemon.start_again(None);
    let _ = daemon.palyra(&["status"]).expect_code(0);
}

/// As in a container that was entered from outside: the session's leader has no number in there.
/// And who is outside has none for the daemon: it cannot be told from a tool.
#[test]
fn a_pid_namespace_without_its_sessions_leader() {
    use std::io::{BufRead, BufReader};

    let daemon = Daemon::builder().prepare();
    let script = r#""$0" exec -- echo inside && exec "$0" exec -- cat"#;
    let mut enter = daemon.command(Path::new("unshare"));
    if !palyra_testkit::is_root() {
        enter.args(["--user", "--map-root-user"]);
    }
    enter.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    enter.args(["sh", "-c", script]);
    enter.arg(daemon.bins().join("palyra"));
    enter.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut inside = enter.spawn().unwrap();
    let mut said = BufReader::new(inside.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "inside");

    let outside = daemon.palyra(&["status"]);
    assert_ne!(outside.code, Some(0), "{outside:?}");
    assert!(outside.stderr.contains("pid namespace"), "{outside:?}");

    // Closing its input ends `cat`, and with it the namespace and the daemon in it.
    drop(inside.stdin.take());
    assert!(inside.wait().unwrap().success());
}

/// The shell parser would log every word it reads, if it were let.
#[test]
fn no_log_has_the_words_of_a_call() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["text", "json"] {
        let log = folder.path().join(format);
        let daemon = Daemon::builder()
            .config(&format!(
                "[log]\nformat = \"{format}\"\n\
                 level = \"trace,parse=trace,tokenize=trace,expansion=trace,arithmetic=trace\"\n"
            ))
            .log_to(log.clone())
            .start();
        let line = "echo \"unlikely-word-$LANG\" $((424242 + 1))";
        let ran = daemon.palyra(&["exec", "--", "sh", "-c", line]);
        assert!(ran.expect_code(0).stdout.contains("unlikely-word"));
        let said = std::fs::read_to_string(&log).unwrap();
        for word in ["unlikely-word", "424242"] {
            assert!(!said.contains(word), "{format}: {said}");
        }
        // The level is in force where the words were read.
        assert!(said.contains("taken apart"), "{format}: {said}");
    }
}

#[test]
fn everything_is_closed_to_others() {
    let daemon = Daemon::start();
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let mode = |path: &std::path::Path| {
        std::fs::symlink_metadata(path)
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(&daemon.home_folder()), 0o700);
    for entry in std::fs::read_dir(daemon.home_folder()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
    }
}

#[test]
fn a_mistake_in_the_config_is_named() {
    let daemon = Daemon::builder()
        .config("[approvals]\nwiat = \"1m\"\n")
        .prepare();
    let refused = Ran::from(daemon.program("palyrad").output().unwrap()).expect_code(1);
    assert!(
        refused.stderr.contains("did you mean `wait`?"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("palyra.toml"), "{}", refused.stderr);
}

#[test]
fn a_corrupt_journal_is_left_as_it_is() {
    let mut daemon = Daemon::start();
    daemon.stop();
    let journal = daemon.home().journal();
    std::fs::write(
        &journal,
        b"this is not a database, but somebody's last hope",
    )
    .unwrap();
    let refused = Ran::from(daemon.program("palyrad").output().unwrap()).expect_code(1);
    assert!(refused.stderr.contains("journal"), "{}", refused.stderr);
    assert!(std::fs::read(&journal).unwrap().starts_with(b"this is not"));
}

#[test]
fn a_stop_lets_running_calls_end_or_cancels_them_and_says_which() {
    let mut daemon = Daemon::builder()
        .config("[daemon]\nstop_grace = \"2s\"\n")
        .prepare();
    let log = daemon.folder().join("log");
    daemon.start_again(Some(&log));
    let short =
        daemon.palyra_in_background(&["exec", "--", "sh", "-c", "touch s; sleep 0.6; echo short"]);
    let long =
        daemon.palyra_in_background(&["exec", "--", "sh", "-c", "touch l; sleep 60; echo long"]);
    daemon.add_agent("a");
    let waiting = daemon.palyra_in_background(&["exec", "--as", "agent:a", "--", "true"]);
    let _ = daemon.pending_approval();
    eventually("both run", || {
        let there = |name: &str| daemon.workspace().join(name).exists();
        (there("s") && there("l")).then_some(())
    });
    daemon.signal("TERM");
    let short = Ran::from(short.wait_with_output().unwrap());
    assert_eq!(
        (short.code, short.stdout.as_str()),
        (Some(0), "short\n"),
        "{}",
        short.stderr
    );
    let long = Ran::from(long.wait_with_output().unwrap());
    assert_eq!(long.code, Some(125), "{long:?}");
    let _ = Ran::from(waiting.wait_with_output().unwrap()).expect_code(125);
    assert_eq!(daemon.wait(), Some(0));
    let said = std::fs::read_to_string(&log).unwrap();
    assert_eq!(
        said.matches("finished before the stop").count(),
        1,
        "{said}"
    );
    assert_eq!(said.matches("cancelled by the stop").count(), 2, "{said}");
    assert!(!daemon.home().socket().exists());
    daemon.start_again(None);
    let calls = daemon
        .palyra(&["calls", "list", "--json"])
        .expect_code(0)
        .json();
    let mut states: Vec<&str> = calls["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|call| call["state"].as_str())
        .collect();
    states.sort_unstable();
    assert_eq!(states, ["cancelled", "cancelled", "completed"]);
}

#[test]
fn a_killed_daemon_leaves_no_process_and_reports_the_call() {
    let mut daemon = Daemon::start();
    let marker = format!("{}", 700_000 + std::process::id());
    let running = daemon.palyra_in_background(&[
        "exec",
        "--",
        "sh",
        "-c",
        &format!("touch up; sleep {marker}"),
    ]);
    eventually("it runs", || {
        daemon.workspace().join("up").exists().then_some(())
    });
    eventually("it sleeps", || sleeps(&marker).then_some(()));
    daemon.kill();
    eventually("the sleep is gone", || (!sleeps(&marker)).then_some(()));
    let _ = Ran::from(running.wait_with_output().unwrap()).expect_code(125);
    daemon.start_again(None);
    let status = daemon.palyra(&["status", "--json"]).expect_code(0).json();
    let interrupted = status["interrupted_at_start"].as_array().unwrap();
    assert_eq!(interrupted.len(), 1, "{status}");
    let call = interrupted[0].as_str().unwrap();
    let record = daemon
        .palyra(&["calls", "show", call, "--json"])
        .expect_code(0)
        .json();
    assert_eq!(record["state"], "interrupted");
}

fn sleeps(marker: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .any(|line| {
            line.split(|byte| *byte == 0)
                .any(|word| word == marker.as_bytes())
                && line.starts_with(b"sleep")
        })
}

#[test]
fn exec_starts_a_daemon_when_none_runs_and_it_ends_when_idle() {
    let daemon = Daemon::builder().prepare();
    // An agent starts nothing.
    let _ = daemon
        .palyra(&["exec", "--as", "agent:a", "--", "true"])
        .expect_code(123);
    let _ = daemon.palyra(&["status"]).expect_code(5);
    let ran = daemon
        .palyra(&["exec", "--", "echo", "hello"])
        .expect_code(0);
    assert_eq!(ran.stdout, "hello\n");
    assert!(ran.stderr.contains("start"), "{}", ran.stderr);
    let status = daemon.palyra(&["status", "--json"]).expect_code(0).json();
    let pid = status["pid"].as_u64().unwrap();
    assert!(daemon.home().log().exists());
    // The second call finds it.
    let again = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    assert!(!again.stderr.contains("start"), "{}", again.stderr);
    let ended = std::process::Command::new("kill")
        .arg(pid.to_string())
        .status()
        .unwrap();
    assert!(ended.success());
    eventually("it ends", || {
        (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });

    let mut idle = daemon.program("palyrad");
    idle.args(["--idle-exit", "300ms"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut idle = idle.spawn().unwrap();
    assert!(idle.wait().unwrap().success());
}

#[test]
fn many_at_once_start_one_daemon() {
    let daemon = Daemon::builder().prepare();
    let started: Vec<_> = (0..6)
        .map(|_| daemon.palyra_in_background(&["exec", "--", "echo", "x"]))
        .collect();
    for child in started {
        let ran = Ran::from(child.wait_with_output().unwrap()).expect_code(0);
        assert_eq!(ran.stdout, "x\n");
    }
    let status = daemon.palyra(&["status", "--json"]).expect_code(0).json();
    let pid = status["pid"].as_u64().unwrap();
    let _ = std::process::Command::new("kill")
        .arg(pid.to_string())
        .status()
        .unwrap();
    eventually("it ends", || {
        (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
}

#[test]
fn the_daemon_cannot_be_dumped() {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    // An undumpable process's files in /proc belong to root, whoever runs it. Where that is root
    // itself nothing can be told, so the daemon is then another user's.
    let (daemon, uid) = match palyra_testkit::is_root() {
        true => (Daemon::builder().uid(64_003).start(), 64_003),
        false => {
            let own = std::fs::metadata("/proc/self").unwrap().uid();
            (Daemon::start(), own)
        }
    };
    let owner = |pid: u32| {
        std::fs::metadata(format!("/proc/{pid}/environ"))
            .unwrap()
            .uid()
    };
    let mut dumpable = std::process::Command::new("sleep");
    dumpable.arg("60");
    if palyra_testkit::is_root() {
        dumpable.uid(uid).gid(uid);
    }
    let mut dumpable = dumpable.spawn().unwrap();
    let control = owner(dumpable.id());
    dumpable.kill().unwrap();
    dumpable.wait().unwrap();
    assert_eq!(control, uid, "an ordinary process owns its files in /proc");
    assert_eq!(owner(daemon.pid()), 0);
}

#[test]
fn a_full_disk_denies_and_recovers() {
    if !palyra_testkit::is_root() {
        palyra_testkit::not_run(
            "a_full_disk_denies_and_recovers",
            "needs root to mount a small disk",
        );
        return;
    }
    let mut daemon = Daemon::builder().prepare();
    let home = daemon.home_folder();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs"])
        .arg(&home)
        .status()
        .unwrap();
    assert!(mount.success());
    daemon.start_again(None);
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let ballast = home.join("ballast");
    let filled = std::process::Command::new("dd")
        .args(["if=/dev/zero", "bs=64k"])
        .arg(format!("of={}", ballast.display()))
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(!filled.success(), "the disk must be full");
    // The log has room for some in advance.
    let runs = || daemon.palyra(&["exec", "--", "true"]).code == Some(0);
    assert!((0..100).any(|_| !runs()), "it goes on without any room");
    let denied = daemon.palyra(&["exec", "--json", "--", "touch", "proof"]);
    assert_eq!(denied.code, Some(125), "{denied:?}");
    assert!(
        !daemon.workspace().join("proof").exists(),
        "executed without a durable intent"
    );
    assert!(
        denied.stderr.contains("journal") || denied.stdout.contains("journal_unavailable"),
        "{denied:?}"
    );
    // Reading goes on, and says what is wrong.
    let status = daemon.palyra(&["status", "--json"]).expect_code(0).json();
    assert_ne!(status["journal_state"], "writable", "{status}");
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("nothing executes"), "{warnings}");
    assert!(
        warnings.contains("free disk space"),
        "the next step: {warnings}"
    );
    // Room was kept, so that the refusal itself is on record.
    let tail = daemon.palyra(&["journal", "tail", "-n", "1", "--json"]);
    let tail = tail.expect_code(0).stdout;
    assert!(
        tail.contains("closed") && tail.contains("no space left"),
        "{tail}"
    );
    std::fs::remove_file(&ballast).unwrap();
    let _ = daemon
        .palyra(&["exec", "--", "touch", "proof"])
        .expect_code(0);
    let status = daemon.palyra(&["status", "--json"]).expect_code(0).json();
    assert_eq!(status["journal_state"], "writable");
    daemon.stop();
    let _ = std::process::Command::new("umount")
        .arg(&home)
        .status()
        .unwrap();
}

/// What `palyra init` writes is what the daemon does without it.
#[test]
fn the_written_config_spells_out_the_defaults() {
    use palyra_daemon::config::ConfigFile;
    let template = include_str!("../../../palyra-cli/src/commands/palyra.toml");
    let settings: String = template
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if setting.contains(" = ") && !setting.starts_with(' ') => setting,
            Some(_) => "",
            None => line,
        })
        .fold(String::new(), |text, line| text + line + "\n");
    assert!(settings.matches(" = ").count() >= 10, "{settings}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("palyra.toml");
    std::fs::write(&path, settings).unwrap();
    let written = ConfigFile::read(&path).unwrap().meant();
    assert_eq!(written, ConfigFile::default().meant());
}

#[test]
fn a_mistake_in_the_config_reaches_the_one_who_needs_a_daemon() {
    let daemon = Daemon::builder().config("[aprovals]\n").prepare();
    let refused = daemon.palyra(&["exec", "--", "true"]).expect_code(123);
    assert!(
        refused.stderr.contains("did you mean `approvals`?"),
        "{}",
        refused.stderr
    );
}

#[test]
fn who_needs_a_daemon_while_one_stops_gets_the_next_one() {
    let mut daemon = Daemon::builder()
        .config("[daemon]\nstop_grace = \"1500ms\"\n")
        .start();
    let running = daemon.palyra_in_background(&["exec", "--", "sh", "-c", "touch up; sleep 60"]);
    eventually("it runs", || {
        daemon.workspace().join("up").exists().then_some(())
    });
    daemon.signal("TERM");
    eventually("its socket is gone", || {
        (!daemon.home().socket().exists()).then_some(())
    });
    let ran = daemon
        .palyra(&["exec", "--", "echo", "next"])
        .expect_code(0);
    assert_eq!(ran.stdout, "next\n");
    assert_eq!(daemon.wait(), Some(0));
    let _ = Ran::from(running.wait_with_output().unwrap()).expect_code(125);
    let status = daemon.palyra(&["status", "--json"]).expect_code(0).json();
    let pid = status["pid"].as_u64().unwrap().to_string();
    let _ = std::process::Command::new("kill")
        .arg(&pid)
        .status()
        .unwrap();
    eventually("it ends", || {
        (!std::path::Path::new("/proc").join(&pid).exists()).then_some(())
    });
}

#[test]
fn told_to_stop_at_once_it_stops() {
    for _ in 0..8 {
        let mut daemon = Daemon::start();
        daemon.signal("TERM");
        assert_eq!(daemon.wait(), Some(0));
    }
}
