//! What appears during a call, would be run later, and is taken away: told, listed, given back.

use palyra_testkit::Daemon;

#[test]
fn what_was_taken_away_is_given_back_only_by_a_person() {
    let daemon = Daemon::start();
    daemon.add_agent("robot");
    let nothing = daemon.palyra(&["quarantine", "list"]).expect_code(0);
    assert_eq!(nothing.stdout, "");

    let script = "echo evil >.bashrc; echo fine >file";
    let ran = daemon
        .palyra(&["exec", "--", "sh", "-c", script])
        .expect_code(0);
    let work = daemon.workspace();
    assert!(!work.join(".bashrc").exists() && work.join("file").exists());
    // Whoever ran it is told, with the command that gives it back.
    let told = "`.bashrc` appeared during the call and was taken away";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    let listed = daemon
        .palyra(&["quarantine", "list", "--json"])
        .expect_code(0);
    let listed = listed.json();
    let id = listed["items"][0]["id"].as_str().unwrap();
    let command = format!("palyra quarantine restore {id}");
    assert!(ran.stderr.contains(&command), "{}", ran.stderr);
    let shown = daemon.palyra(&["quarantine", "list"]).expect_code(0);
    assert!(shown.stdout.contains(id) && shown.stdout.contains(".bashrc"));

    // It is attested as seen afterwards, without its name.
    let calls = daemon.palyra(&["calls", "list", "--json"]).expect_code(0);
    let call = calls.json()["items"][0]["call_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = daemon
        .palyra(&["calls", "show", &call, "--json"])
        .expect_code(0);
    assert!(
        shown.stdout.contains("after the fact: 1 taken away"),
        "{}",
        shown.stdout
    );

    // Neither an agent nor a process of a call gets it back.
    for action in [&["quarantine", "list"][..], &["quarantine", "restore", id]] {
        let as_agent: Vec<&str> = action
            .iter()
            .copied()
            .chain(["--as", "agent:robot"])
            .collect();
        let ran = daemon.palyra(&as_agent);
        assert_ne!(ran.code, Some(0), "{ran:?}");
    }
    assert!(!work.join(".bashrc").exists());

    let unknown = "quar_01kgq5r7h3e8x2m4n6p8q0s2t4";
    let ran = daemon.palyra(&["quarantine", "restore", unknown]);
    assert_ne!(ran.code, Some(0));
    assert!(
        ran.stderr.contains("palyra quarantine list"),
        "{}",
        ran.stderr
    );
    // Never over something that is there.
    std::fs::write(work.join(".bashrc"), "mine").unwrap();
    let ran = daemon.palyra(&["quarantine", "restore", id]);
    assert_ne!(ran.code, Some(0));
    assert_eq!(
        std::fs::read_to_string(work.join(".bashrc")).unwrap(),
        "mine"
    );
    std::fs::remove_file(work.join(".bashrc")).unwrap();
    let restored = daemon.palyra(&["quarantine", "restore", id]).expect_code(0);
    assert!(restored.stdout.contains(".bashrc"), "{}", restored.stdout);
    assert_eq!(
        std::fs::read_to_string(work.join(".bashrc")).unwrap(),
        "evil\n"
    );
    assert!(!daemon.state_folder().join("quarantine").join(id).exists());
    // Recorded once, with who and where; what was refused is not.
    let tail = daemon.palyra(&["journal", "tail", "-n", "50", "--json"]);
    let said = tail.expect_code(0).stdout;
    let entry = "\"entry\":{\"kind\":\"quarantine_restored\"";
    assert_eq!(said.matches(entry).count(), 1, "{said}");
    let place = work.canonicalize().unwrap().join(".bashrc");
    assert!(
        said.contains(id) && said.contains(place.to_str().unwrap()),
        "{said}"
    );
}

#[test]
fn rules_of_the_configuration_reach_calls_and_tools() {
    let rules = "[[files]]\npath = \"fixtures\"\naccess = \"writable\"\n\
                 [[files]]\npath = \"plans\"\naccess = \"masked\"\n";
    let daemon = Daemon::builder().config(rules).start();
    let work = daemon.workspace();
    for name in ["fixtures", "plans"] {
        std::fs::create_dir(work.join(name)).unwrap();
        std::fs::write(work.join(name).join(".env"), "content").unwrap();
    }
    let ran = daemon
        .palyra(&["exec", "--", "cat", "fixtures/.env"])
        .expect_code(0);
    assert_eq!(ran.stdout, "content");
    let ran = daemon.palyra(&["exec", "--", "ls", "plans"]);
    assert!(
        ran.code != Some(0) && ran.stderr.contains("likely"),
        "{ran:?}"
    );
    let read = |path: &str| {
        let arguments = format!(r#"{{"path":"{path}"}}"#);
        daemon.palyra(&["call", "palyra.fs.read", "--args", &arguments, "--json"])
    };
    assert_eq!(read("fixtures/.env").code, Some(0));
    let refused = read("plans/.env");
    assert_ne!(refused.code, Some(0));
    assert!(refused.stdout.contains("path_masked"), "{refused:?}");
}
