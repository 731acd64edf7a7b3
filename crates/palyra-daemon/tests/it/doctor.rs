//! `palyra doctor` and `palyrad doctor`: what a machine gives, really tried.

use std::process::Command;

use palyra_testkit::{Daemon, Ran, bin, eventually, is_root};
use serde_json::Value;

/// What is tried, in this order.
const ALL: [&str; 12] = [
    "landlock",
    "seccomp",
    "user_namespace",
    "namespaces",
    "mounts",
    "proc",
    "idmapped_mount",
    "overlay",
    "cgroup_pids",
    "cgroup_memory",
    "cgroup_cpu",
    "bubblewrap",
];

fn named<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap()
}

/// Whether it says what Tier-C needs, and with the code that goes with it.
fn consistent(ran: &Ran) -> Value {
    let report = ran.json();
    let names: Vec<&str> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|check| check["name"].as_str())
        // Of the daemon alone.
        .filter(|name| *name != "vault")
        .collect();
    assert_eq!(names, ALL);
    for check in report["checks"].as_array().unwrap() {
        let missing = check["state"] == "missing";
        assert_eq!(missing, check["remedy"].is_string(), "{check}");
        assert!(!check["found"].as_str().unwrap().is_empty(), "{check}");
    }
    let expected = if report["tier_c"] == true { 0 } else { 6 };
    assert_eq!(ran.code, Some(expected), "{ran:?}");
    report
}

#[test]
fn the_doctor_tries_everything_in_the_daemons_context() {
    let mut daemons = vec![Daemon::start()];
    if is_root() {
        daemons.push(Daemon::builder().uid(64_031).start());
    }
    for (at, daemon) in daemons.iter().enumerate() {
        let ran = daemon.palyra(&["doctor", "--json"]);
        let report = consistent(&ran);
        // Calls run here, so these two are there.
        let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
        for name in ["landlock", "seccomp"] {
            assert_eq!(named(&report, name)["state"], "works", "{report}");
        }
        assert_eq!(report["tier_b"], true);
        let vault = named(&report, "vault");
        assert_eq!(vault["state"], "works", "{report}");
        let found = vault["found"].as_str().unwrap();
        assert!(found.contains("sealed in the vault"), "{found}");
        let root = is_root() && at == 0;
        let idmapped = &named(&report, "idmapped_mount")["state"];
        assert_eq!(root, idmapped != "not_needed", "{report}");
        // For people: the same, and what can run.
        let told = daemon.palyra(&["doctor"]);
        assert_eq!(told.code, ran.code);
        for word in ["user_namespace", "Tier-B can run here"] {
            assert!(told.stdout.contains(word), "{told:?}");
        }
        // And without the daemon.
        let mut alone = daemon.program("palyrad");
        alone.args(["doctor", "--json"]);
        let alone = consistent(&alone.output().unwrap().into());
        assert_eq!(alone["tier_c"], report["tier_c"]);
    }
    nothing_is_left();
}

/// A machine that grants no user namespaces: one is made in which there are none.
#[test]
fn a_missing_piece_has_its_remedy_and_a_code() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" doctor \"$@\"";
    let doctor = |more: &[&str]| -> Ran {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", script]);
        command.arg(bin("palyrad")).args(more);
        command.current_dir(folder.path()).output().unwrap().into()
    };
    // The control: outside, they can be made.
    let outside = Command::new("unshare").args(["--user", "true"]).status();
    assert!(
        outside.unwrap().success(),
        "no user namespaces even outside"
    );
    let ran = doctor(&["--json"]);
    let report = consistent(&ran);
    assert_eq!(report["tier_c"], false, "{report}");
    assert_eq!(report["tier_b"], true, "{report}");
    for name in ["user_namespace", "namespaces", "mounts", "proc"] {
        let check = named(&report, name);
        assert_eq!(check["state"], "missing", "{check}");
        assert_eq!(
            check["remedy"],
            "sudo sysctl -w user.max_user_namespaces=15000"
        );
    }
    let told = doctor(&[]).expect_code(6);
    for word in [
        "sudo sysctl -w user.max_user_namespaces=15000",
        "Tier-C cannot run here",
    ] {
        assert!(told.stdout.contains(word), "{told:?}");
    }
    nothing_is_left();
}

#[test]
fn without_a_daemon_the_other_doctor_is_named() {
    let daemon = Daemon::builder().prepare();
    let ran = daemon.palyra(&["doctor"]).expect_code(5);
    assert!(ran.stderr.contains("palyrad doctor"), "{ran:?}");
}

/// What the doctor makes ends with it.
fn nothing_is_left() {
    eventually("the doctor's cgroups are gone", || {
        let find = Command::new("find")
            .args(["/sys/fs/cgroup", "-name", "palyra-doctor-*"])
            .output()
            .unwrap();
        find.stdout.is_empty().then_some(())
    });
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("palyra-doctor"), "{mounts}");
}

/// What a daemon tried at its start is what it says, and what it is told to use it uses.
#[test]
fn the_back_end_is_the_one_that_is_asked_for() {
    let backend = |daemon: &Daemon| {
        let status = daemon.palyra(&["status", "--json"]).expect_code(0).json();
        status["sandbox"]["tier_c"].clone()
    };
    assert_eq!(backend(&Daemon::start()), "linux_namespaces");
    let mut named = vec!["linux_namespaces"];
    if std::path::Path::new("/usr/bin/bwrap").exists() {
        named.push("linux_bubblewrap");
    } else {
        palyra_testkit::not_run(
            "the_back_end_is_the_one_that_is_asked_for",
            "install `bubblewrap`",
        );
    }
    for name in named {
        let config = format!("[sandbox]\ntier_c_backend = \"{name}\"\n");
        let daemon = Daemon::builder().config(&config).start();
        assert_eq!(backend(&daemon), name);
    }
    let daemon = Daemon::builder()
        .config("[sandbox]\ntier_c_backend = \"docker\"\n")
        .prepare();
    let refused = Ran::from(daemon.program("palyrad").output().unwrap()).expect_code(1);
    assert!(
        refused.stderr.contains("linux_bubblewrap"),
        "{}",
        refused.stderr
    );
}
