//! The three modes, who may ask for hosts, and what is denied before anything starts.

use palyra_testkit::Daemon;

use super::world::World;

#[test]
fn without_hosts_nothing_is_reached() {
    let world = World::new();
    let url = format!("http://127.0.0.1:{}/", world.good.port);
    let ran = world.exec_with(&[], &["curl", "-sS", &url]);
    assert_ne!(ran.code, Some(0));
    assert_eq!(world.good.came(), 0);
    // The control, which is never a default.
    let ran = world.exec_with(&["--egress", "none"], &["curl", "-sS", &url]);
    assert_eq!(ran.expect_code(0).stdout, "good\n");
}

/// Not in Tier-B either.
#[test]
fn no_enforcement_is_no_default_of_any_tier() {
    // A root daemon has no Tier-B in a folder of root's.
    let world = World::of_a_plain_user();
    let url = format!("http://127.0.0.1:{}/", world.good.port);
    let ran = world.exec_with(&["--tier", "b"], &["curl", "-sS", &url]);
    assert_ne!(ran.code, Some(0));
    let flags = ["--tier", "b", "--egress", "none"];
    let ran = world.exec_with(&flags, &["curl", "-sS", &url]);
    assert_eq!(ran.expect_code(0).stdout, "good\n");
}

#[test]
fn preflight_checks_before_and_says_that_it_holds_nothing() {
    let world = World::new();
    let host = format!("good.example:{}", world.good.port);
    let url = format!("http://127.0.0.1:{}/", world.good.port);
    let flags = ["--egress", "preflight", "--allow-host", &host];
    let result = world.exec_json(&flags, &["curl", "-sS", &url]);
    assert_eq!(result["output"]["stdout"]["text"], "good\n", "{result}");
    let layers = result["attestation"]["layers"].to_string();
    assert!(layers.contains("not enforced at run time"), "{layers}");
    // Outside the list it does not start.
    let flags = ["--egress", "preflight", "--allow-host", "evil.example"];
    let result = world.exec_json(&flags, &["touch", "made"]);
    assert_eq!(result["problem"]["code"], "egress_denied", "{result}");
    assert!(!world.daemon.workspace().join("made").exists());
}

#[test]
fn a_host_outside_the_list_is_denied_before_anything_starts_and_recorded() {
    let world = World::new();
    for host in ["evil.example", "good.example", "below.example", "localhost"] {
        let result = world.exec_json(&["--allow-host", host], &["touch", "made"]);
        assert_eq!(result["outcome"], "denied", "{result}");
        assert_eq!(result["problem"]["code"], "egress_denied", "{result}");
        assert!(!world.daemon.workspace().join("made").exists());
        let call = result["call_id"].as_str().unwrap();
        let shown = world.daemon.palyra(&["calls", "show", call]);
        assert!(shown.expect_code(0).stdout.contains("egress_denied"));
    }
    // The controls: what the list has.
    for host in ["x.below.example", "sneaky.example"] {
        let result = world.exec_json(&["--allow-host", host], &["true"]);
        assert_eq!(result["outcome"], "completed", "{result}");
    }
}

#[test]
fn policy_forbids_a_host_with_the_same_word() {
    let daemon = Daemon::builder().prepare();
    let policies = daemon.home().policies();
    std::fs::create_dir_all(&policies).unwrap();
    let text = "@id(\"no_evil\") @reason(\"not there\")\nforbid (principal, action in \
                [Palyra::Action::\"net.connect\", Palyra::Action::\"net.connect.ask\"], resource in \
                Palyra::Domain::\"evil.example\");\n";
    std::fs::write(policies.join("hosts.cedar"), text).unwrap();
    let mut daemon = daemon;
    daemon.start_again(None);
    let ran = daemon.palyra(&[
        "exec",
        "--json",
        "--allow-host",
        "a.evil.example",
        "--",
        "true",
    ]);
    let result: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(result["problem"]["code"], "egress_denied", "{result}");
    assert_eq!(result["problem"]["message"], "not there", "{result}");
    let ran = daemon.palyra(&["exec", "--allow-host", "a.good.example", "--", "true"]);
    let _ = ran.expect_code(0);
}

#[test]
fn an_agent_is_asked_about_and_the_person_sees_the_host() {
    let world = World::new();
    world.daemon.add_agent("claude");
    let host = format!("good.example:{}", world.good.port);
    let url = world.url();
    let words = [
        "exec",
        "--as",
        "agent:claude",
        "--allow-host",
        &host,
        "--",
        "curl",
        "-sS",
        &url,
    ];
    let asked = world.daemon.palyra_in_background(&words);
    let approval = world.daemon.pending_approval();
    let shown = world.daemon.palyra(&["approvals", "show", &approval]);
    let shown = shown.expect_code(0).stdout;
    let sentence = format!("connects to good.example port {}", world.good.port);
    assert!(shown.contains(&sentence), "{shown}");
    assert_eq!(world.good.came(), 0);
    let decide = ["approvals", "decide", &approval, "--decision", "allow"];
    let _ = world.daemon.palyra(&decide).expect_code(0);
    let ended = asked.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "good\n");
}

#[test]
fn what_makes_no_sense_is_said_and_not_run() {
    let world = World::new();
    for (flags, word) in [
        (
            &["--allow-host", "*.below.example"][..],
            "more than one host",
        ),
        (&["--allow-host", "http://x"], "is not a port"),
        (&["--allow-host", "x:0"], "port"),
        (&["--egress", "none", "--allow-host", "x"], "egress none"),
        (&["--tier", "b", "--allow-host", "x"], "preflight"),
    ] {
        let ran = world.exec_with(flags, &["touch", "made"]);
        assert_ne!(ran.code, Some(0), "{flags:?}");
        assert!(ran.stderr.contains(word), "{flags:?}: {}", ran.stderr);
        assert!(!world.daemon.workspace().join("made").exists());
    }
}
