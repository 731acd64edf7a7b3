//! The operator's own policies: in force from the start, or no start; and every change after it.

use palyra_testkit::{Daemon, Ran};

pub(crate) fn with(config: &str, policies: &[(&str, &str)]) -> Daemon {
    let daemon = Daemon::builder().config(config).prepare();
    let folder = daemon.home().policies();
    std::fs::create_dir(&folder).unwrap();
    for (name, text) in policies {
        std::fs::write(folder.join(name), text).unwrap();
    }
    daemon
}

pub(crate) const NO_ECHO: &str = r#"
@id("house.no-echo")
@reason("nobody echoes in this house")
forbid (principal, action in [Palyra::Action::"run", Palyra::Action::"ask"],
        resource == Palyra::Tool::"palyra.echo");
"#;

pub(crate) const ECHO: [&str; 4] = ["call", "palyra.echo", "--args", r#"{"message":"x"}"#];

#[test]
fn an_operators_forbid_is_obeyed_and_gives_its_reason() {
    let mut control = Daemon::builder().prepare();
    control.start_again(None);
    let _ = control.palyra(&ECHO).expect_code(0);
    let mut daemon = with("", &[("house.cedar", NO_ECHO)]);
    daemon.start_again(None);
    let denied = daemon.palyra(&ECHO).expect_code(3);
    assert!(
        denied.stderr.contains("nobody echoes in this house"),
        "{}",
        denied.stderr
    );
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
}

#[test]
fn a_policy_that_cannot_be_used_ends_the_start_and_names_its_place() {
    for (text, place) in [
        ("forbid (principal, action, resource", "house.cedar:1:"),
        (
            "@id(\"a\") permit (principal is Palyra::Nobody, action, resource);",
            "house.cedar:1:",
        ),
        ("\npermit (principal, action, resource);", "house.cedar:2:"),
    ] {
        let daemon = with("", &[("house.cedar", text)]);
        let refused = Ran::from(daemon.program("palyrad").output().unwrap()).expect_code(1);
        assert!(refused.stderr.contains(place), "{text}: {}", refused.stderr);
        assert!(
            refused.stderr.contains("palyra policy check"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn the_locked_baseline_asks_about_everything_an_agent_does() {
    let daemon = Daemon::builder()
        .config("[policy]\nbaseline = \"locked\"\n[approvals]\nwait = \"200ms\"\n")
        .start();
    daemon.add_agent("a");
    let status = daemon.palyra(&["status", "--json"]).expect_code(0).json();
    assert_eq!(status["baseline"], "locked");
    let mut as_agent = ECHO.to_vec();
    as_agent.extend(["--as", "agent:a"]);
    // Under `standard` it runs unasked; here nobody answers, so it is denied.
    let _ = daemon.palyra(&as_agent).expect_code(4);
    let _ = daemon.palyra(&ECHO).expect_code(0);
}

/// The specification's settings are policies: they decide, give their reason and are listed.
#[test]
fn settings_decide_for_agents_and_never_for_the_owner() {
    let daemon = Daemon::builder()
        .config(
            "[policy]\nallow_sensitive_tools = false\n\
             allowed_tools = [\"palyra.echo\", \"palyra.process.run\"]\n",
        )
        .start();
    daemon.add_agent("a");
    let refused = daemon.palyra(&["exec", "--as", "agent:a", "--", "true"]);
    let refused = refused.expect_code(120);
    assert!(
        refused.stderr.contains("allow_sensitive_tools"),
        "{}",
        refused.stderr
    );
    let list = ["call", "palyra.fs.list", "--args", r#"{"path":"."}"#];
    let mut as_agent = list.to_vec();
    as_agent.extend(["--as", "agent:a"]);
    let refused = daemon.palyra(&as_agent).expect_code(3);
    assert!(
        refused.stderr.contains("allowed_tools"),
        "{}",
        refused.stderr
    );
    let mut as_agent = ECHO.to_vec();
    as_agent.extend(["--as", "agent:a"]);
    let _ = daemon.palyra(&as_agent).expect_code(0);
    let _ = daemon.palyra(&list).expect_code(0);
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let listed = daemon.palyra(&["policy", "list"]).expect_code(0);
    assert!(
        listed.stdout.contains("setting_allowed_tools"),
        "{}",
        listed.stdout
    );
}

#[test]
fn an_unknown_baseline_is_named() {
    let daemon = Daemon::builder()
        .config("[policy]\nbaseline = \"lax\"\n")
        .prepare();
    let refused = Ran::from(daemon.program("palyrad").output().unwrap()).expect_code(1);
    assert!(
        refused
            .stderr
            .contains("`standard`, `sandboxed` or `locked`"),
        "{}",
        refused.stderr
    );
}

/// The part of a house that does not matter for what is tested.
pub(crate) const NO_CRON: &str = r#"
@id("house.no-cron")
@reason("nothing is timed in this house")
forbid (principal, action == Palyra::Action::"cron.create", resource);
"#;

pub(crate) const BROKEN: &str =
    "\n@id(\"oops\")\npermit (principal, action, resource) when { context.nothing };\n";

pub(crate) fn write(daemon: &Daemon, name: &str, text: &str) {
    let folder = daemon.home().policies();
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), text).unwrap();
}

pub(crate) fn json(daemon: &Daemon, words: &[&str]) -> serde_json::Value {
    let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
    daemon.palyra(&words).expect_code(0).json()
}

/// The number of the version in force.
pub(crate) fn number(daemon: &Daemon) -> u64 {
    json(daemon, &["status"])["policy_number"].as_u64().unwrap()
}

fn warnings(daemon: &Daemon) -> String {
    json(daemon, &["status"])["warnings"].to_string()
}

/// Everything in the journal of this kind.
fn entries(daemon: &Daemon, kind: &str) -> Vec<serde_json::Value> {
    let lines = daemon
        .palyra(&["journal", "tail", "-n", "1000", "--json"])
        .expect_code(0)
        .json();
    let items = lines["items"].as_array().unwrap().iter();
    items
        .filter(|entry| entry["kind"] == kind)
        .map(|entry| entry["entry"].clone())
        .collect()
}

pub(crate) fn becomes(daemon: &Daemon, wanted: u64) {
    palyra_testkit::eventually("the version is in force", || {
        (number(daemon) == wanted).then_some(())
    });
}

#[test]
fn a_reload_is_numbered_journaled_and_decides() {
    let daemon = Daemon::start();
    assert_eq!(number(&daemon), 1);
    let _ = daemon.palyra(&ECHO).expect_code(0);
    write(&daemon, "house.cedar", NO_ECHO);
    let done = json(&daemon, &["policy", "reload"]);
    // The watch may have been faster; either way it is in force when the command returns.
    assert_eq!(done["active"]["number"], 2, "{done}");
    let _ = daemon.palyra(&ECHO).expect_code(3);
    let again = json(&daemon, &["policy", "reload"]);
    assert_eq!(again["outcome"], "unchanged");
    let versions = json(&daemon, &["policy", "versions"]);
    let numbers: Vec<_> = versions["items"].as_array().unwrap().iter().collect();
    assert_eq!(numbers.len(), 2, "{versions}");
    assert_eq!(versions["items"][0]["state"], "active");
    assert_eq!(versions["items"][1]["state"], "kept");
    let activated = entries(&daemon, "policy_activated");
    assert_eq!(activated.len(), 2);
    assert!(
        activated[1]["files"]["house.cedar"].is_string(),
        "{activated:?}"
    );
    // What a call was decided with is found by its version.
    let calls = json(&daemon, &["calls", "list"]);
    let call = calls["items"][0]["call_id"].as_str().unwrap().to_owned();
    let call = json(&daemon, &["calls", "show", &call]);
    let decided = &call["entries"][1]["entry"];
    assert_eq!(decided["kind"], "decided");
    assert_eq!(
        decided["policy_version"],
        versions["items"][0]["policy_version"]
    );
    let kept = json(&daemon, &["policy", "versions", "2"]);
    assert_eq!(kept["sources"][1]["text"], NO_ECHO);
}

#[test]
fn a_changed_folder_is_noticed_however_it_changes() {
    let daemon = Daemon::start();
    let folder = daemon.home().policies();
    // The folder appears, with a file in it.
    let next = daemon.folder().join("next");
    std::fs::create_dir(&next).unwrap();
    std::fs::write(next.join("house.cedar"), NO_ECHO).unwrap();
    std::fs::rename(&next, &folder).unwrap();
    becomes(&daemon, 2);
    let _ = daemon.palyra(&ECHO).expect_code(3);
    // A file is replaced by renaming, as editors do.
    let fresh = folder.join(".house.cedar.swp");
    std::fs::write(&fresh, NO_CRON).unwrap();
    std::fs::rename(&fresh, folder.join("house.cedar")).unwrap();
    becomes(&daemon, 3);
    let _ = daemon.palyra(&ECHO).expect_code(0);
    // The whole folder is replaced, as deployments do.
    std::fs::create_dir(&next).unwrap();
    std::fs::write(next.join("house.cedar"), NO_ECHO).unwrap();
    std::fs::rename(&folder, daemon.folder().join("old")).unwrap();
    std::fs::rename(&next, &folder).unwrap();
    palyra_testkit::eventually("the new folder decides", || {
        (daemon.palyra(&ECHO).code == Some(3)).then_some(())
    });
    // And a file of the new folder is written in place.
    write(&daemon, "house.cedar", NO_CRON);
    palyra_testkit::eventually("the written file decides", || {
        (daemon.palyra(&ECHO).code == Some(0)).then_some(())
    });
    let why = json(&daemon, &["policy", "versions"])["items"][0]["why"].clone();
    assert_eq!(why, "changed");
}

/// A folder that is gone lifts no `forbid`; an empty one does.
#[test]
fn a_folder_that_is_gone_leaves_its_policies_in_force() {
    let mut daemon = with("", &[("house.cedar", NO_ECHO)]);
    daemon.start_again(None);
    std::fs::remove_dir_all(daemon.home().policies()).unwrap();
    palyra_testkit::eventually("the status warns", || {
        warnings(&daemon)
            .contains("the folder is gone")
            .then_some(())
    });
    let _ = daemon.palyra(&ECHO).expect_code(3);
    daemon.stop();
    daemon.start_again(None);
    assert!(warnings(&daemon).contains("the folder is gone"));
    let _ = daemon.palyra(&ECHO).expect_code(3);
    std::fs::create_dir(daemon.home().policies()).unwrap();
    palyra_testkit::eventually("an empty folder means none", || {
        (daemon.palyra(&ECHO).code == Some(0)).then_some(())
    });
}

#[test]
fn a_bad_file_leaves_the_old_set_in_force_and_says_so() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut daemon = with("", &[("house.cedar", NO_ECHO)]);
    daemon.start_again(Some(log.path()));
    write(&daemon, "more.cedar", BROKEN);
    palyra_testkit::eventually("the status warns", || {
        warnings(&daemon).contains("more.cedar:3:").then_some(())
    });
    assert!(warnings(&daemon).contains("palyra policy check"));
    let _ = daemon.palyra(&ECHO).expect_code(3);
    assert_eq!(number(&daemon), 1);
    let refused = daemon.palyra(&["policy", "reload"]).expect_code(1);
    for part in [
        "more.cedar:3:",
        "version 1 stays in force",
        "palyra policy check",
    ] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    let code = daemon
        .palyra(&["policy", "reload", "--json"])
        .expect_code(1);
    assert_eq!(code.json()["error"]["code"], "policies_invalid");
    let listed = json(&daemon, &["policy", "list"]);
    let problem = listed["daemon"]["refused"]["problems"][0].as_str().unwrap();
    assert!(problem.starts_with("more.cedar:3:"), "{listed}");
    assert_eq!(entries(&daemon, "policy_refused").len(), 1);
    let said = std::fs::read_to_string(log.path()).unwrap();
    assert!(
        said.contains("ERROR") && said.contains("more.cedar:3:"),
        "{said}"
    );
    // A restart with it: the same version, the same warning, no second entry.
    daemon.stop();
    daemon.start_again(None);
    assert!(warnings(&daemon).contains("more.cedar:3:"));
    assert_eq!(number(&daemon), 1);
    let _ = daemon.palyra(&ECHO).expect_code(3);
    assert_eq!(entries(&daemon, "policy_refused").len(), 1);
    // Mended: the warning goes.
    write(&daemon, "more.cedar", NO_CRON);
    becomes(&daemon, 2);
    assert!(!warnings(&daemon).contains("more.cedar"));
}

#[test]
fn a_restart_with_the_same_files_is_the_same_version() {
    let mut daemon = with("", &[("house.cedar", NO_ECHO)]);
    daemon.start_again(None);
    daemon.stop();
    daemon.start_again(None);
    assert_eq!(number(&daemon), 1);
    assert_eq!(entries(&daemon, "policy_activated").len(), 1);
    daemon.stop();
    write(&daemon, "house.cedar", NO_CRON);
    daemon.start_again(None);
    assert_eq!(number(&daemon), 2);
    let _ = daemon.palyra(&ECHO).expect_code(0);
    let versions = json(&daemon, &["policy", "versions"]);
    assert_eq!(versions["items"][0]["why"], "started");
}

#[test]
fn an_unusable_folder_changes_nothing_whatever_is_wrong_with_it() {
    let daemon = Daemon::start();
    let folder = daemon.home().policies();
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("x.cedar");
    let large = || std::fs::write(&path, vec![b' '; 50 << 20]);
    let link = || std::os::unix::fs::symlink("/etc/hostname", &path);
    let inside = || std::fs::create_dir(&path);
    let odd = || std::fs::write(&path, [0xff]);
    type Make<'a> = &'a dyn Fn() -> std::io::Result<()>;
    let wrong: [(&str, Make<'_>); 4] = [
        ("is larger than", &large),
        ("is a link", &link),
        ("folders inside", &inside),
        ("is not UTF-8", &odd),
    ];
    for (said, make) in wrong {
        make().unwrap();
        let refused = daemon.palyra(&["policy", "reload"]).expect_code(1);
        assert!(refused.stderr.contains(said), "{said}: {}", refused.stderr);
        assert_eq!(number(&daemon), 1);
        let _ = daemon.palyra(&ECHO).expect_code(0);
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_dir(&path);
    }
    let mended = json(&daemon, &["policy", "reload"]);
    assert_eq!(mended["refused"], serde_json::Value::Null);
}

#[test]
fn an_agent_changes_and_reads_no_policies() {
    let daemon = Daemon::start();
    daemon.add_agent("a");
    write(&daemon, "house.cedar", NO_CRON);
    becomes(&daemon, 2);
    let digest = format!("sha256:{}", "0".repeat(64));
    for words in [
        &["policy", "reload"][..],
        &["policy", "rollback"],
        &["policy", "activate", &digest],
        &["policy", "versions"],
        &["policy", "list"],
    ] {
        let mut as_agent = words.to_vec();
        as_agent.extend(["--as", "agent:a"]);
        let _ = daemon.palyra(&as_agent).expect_code(3);
    }
    assert_eq!(number(&daemon), 2);
    // It sees which version decides, and nothing of what is wrong with the files.
    write(&daemon, "house.cedar", BROKEN);
    palyra_testkit::eventually("the owner is warned", || {
        warnings(&daemon).contains("house.cedar").then_some(())
    });
    let seen = json(&daemon, &["status", "--as", "agent:a"]);
    assert_eq!(seen["policy_number"], 2);
    assert!(!seen["warnings"].to_string().contains("house.cedar"));
}

#[test]
fn a_rollback_holds_against_the_watch_and_a_restart() {
    let mut daemon = with("", &[("house.cedar", NO_CRON)]);
    daemon.start_again(None);
    write(&daemon, "house.cedar", NO_ECHO);
    becomes(&daemon, 2);
    let _ = daemon.palyra(&ECHO).expect_code(3);
    let done = json(&daemon, &["policy", "rollback"]);
    assert_eq!(done["active"]["number"], 3);
    assert_eq!(done["active"]["rolled_back_to"], 1);
    assert_eq!(done["set_aside"], true);
    let _ = daemon.palyra(&ECHO).expect_code(0);
    assert!(warnings(&daemon).contains("set aside"));
    // Touching the file is no change of it.
    write(&daemon, "house.cedar", NO_ECHO);
    daemon.stop();
    daemon.start_again(None);
    assert_eq!(number(&daemon), 3);
    let _ = daemon.palyra(&ECHO).expect_code(0);
    for (words, code) in [
        (&["policy", "rollback", "9"][..], "unknown_policy_version"),
        (&["policy", "rollback", "3"], "already_active"),
        (&["policy", "rollback", "1"], "already_active"),
    ] {
        let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        let refused = daemon.palyra(&words).expect_code(1).json();
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    // A change of the files counts again.
    write(&daemon, "more.cedar", NO_CRON);
    write(&daemon, "house.cedar", NO_ECHO);
    becomes(&daemon, 4);
    let _ = daemon.palyra(&ECHO).expect_code(3);
    assert!(!warnings(&daemon).contains("set aside"));
}

#[test]
fn there_is_nothing_before_the_first_version() {
    let daemon = Daemon::start();
    let refused = daemon
        .palyra(&["policy", "rollback", "--json"])
        .expect_code(1);
    assert_eq!(refused.json()["error"]["code"], "no_earlier_version");
}

#[test]
fn with_staging_a_change_waits_for_a_person_also_across_a_restart() {
    let mut daemon = with("[policy]\nstaging = true\n", &[("house.cedar", NO_CRON)]);
    daemon.start_again(None);
    assert_eq!(number(&daemon), 1, "there is nothing else to decide with");
    write(&daemon, "house.cedar", NO_ECHO);
    let staged = |daemon: &Daemon| json(daemon, &["status"])["policy_staged"].clone();
    let digest = palyra_testkit::eventually("it is staged", || {
        staged(&daemon).as_str().map(str::to_owned)
    });
    let _ = daemon.palyra(&ECHO).expect_code(0);
    assert!(warnings(&daemon).contains(&format!("palyra policy activate {digest}")));
    daemon.stop();
    daemon.start_again(None);
    assert_eq!(staged(&daemon), digest);
    assert_eq!(number(&daemon), 1);
    let _ = daemon.palyra(&ECHO).expect_code(0);
    assert_eq!(entries(&daemon, "policy_staged").len(), 1);
    // Reloading stages too; only what was looked at is activated.
    assert_eq!(json(&daemon, &["policy", "reload"])["outcome"], "staged");
    let other = format!("sha256:{}", "0".repeat(64));
    let refused = daemon
        .palyra(&["policy", "activate", &other, "--json"])
        .expect_code(1);
    assert_eq!(refused.json()["error"]["code"], "staged_changed");
    let done = json(&daemon, &["policy", "activate", &digest]);
    assert_eq!(done["active"]["number"], 2);
    assert_eq!(done["active"]["why"], "activated");
    let _ = daemon.palyra(&ECHO).expect_code(3);
    assert!(staged(&daemon).is_null());
    let refused = daemon
        .palyra(&["policy", "activate", &digest, "--json"])
        .expect_code(1);
    assert_eq!(refused.json()["error"]["code"], "nothing_staged");
    // What is taken back is no longer staged.
    write(&daemon, "house.cedar", NO_CRON);
    palyra_testkit::eventually("it is staged", || staged(&daemon).as_str().map(drop));
    write(&daemon, "house.cedar", NO_ECHO);
    palyra_testkit::eventually("it is withdrawn", || {
        staged(&daemon).is_null().then_some(())
    });
    assert_eq!(entries(&daemon, "policy_withdrawn").len(), 1);
}

/// A call that waits for its yes while the policies change, and what becomes of it.
fn approved_after(change: &str) -> Ran {
    let daemon = Daemon::start();
    daemon.add_agent("a");
    let waiting =
        daemon.palyra_in_background(&["exec", "--as", "agent:a", "--", "sh", "-c", "echo ran"]);
    let id = daemon.pending_approval();
    write(&daemon, "house.cedar", change);
    becomes(&daemon, 2);
    let approval = json(&daemon, &["approvals", "show", &id]);
    assert_eq!(approval["state"], "pending", "a reload voids no question");
    let _ = daemon
        .palyra(&["approvals", "decide", &id, "--decision", "allow"])
        .expect_code(0);
    Ran::from(waiting.wait_with_output().unwrap())
}

#[test]
fn a_reload_neither_voids_nor_widens_a_yes() {
    let ran = approved_after(NO_CRON).expect_code(0);
    assert_eq!(ran.stdout, "ran\n");
    let no_shell = r#"
@id("house.no-shell")
@reason("shells are over")
forbid (principal is Palyra::Agent, action in [Palyra::Action::"run", Palyra::Action::"ask"],
        resource);
"#;
    let denied = approved_after(no_shell).expect_code(120);
    assert!(
        denied.stderr.contains("shells are over"),
        "{}",
        denied.stderr
    );
    assert_eq!(denied.stdout, "");
}

/// Somebody else holds the journal's lock: nothing can be recorded, so nothing changes.
#[test]
fn a_set_that_cannot_be_recorded_does_not_decide() {
    use std::io::{BufRead, BufReader};
    let daemon = Daemon::start();
    let holds = "import sqlite3,sys\n\
                 c=sqlite3.connect(sys.argv[1],isolation_level=None)\n\
                 c.execute('BEGIN IMMEDIATE')\nprint('held',flush=True)\nsys.stdin.read()";
    let mut holder = std::process::Command::new("python3")
        .args(["-c", holds])
        .arg(daemon.home().journal())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(holder.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    write(&daemon, "house.cedar", NO_ECHO);
    let refused = daemon
        .palyra(&["policy", "reload", "--json"])
        .expect_code(1);
    assert_eq!(refused.json()["error"]["code"], "journal_unavailable");
    assert_eq!(number(&daemon), 1);
    drop(holder.stdin.take());
    holder.wait().unwrap();
    // Free again: it is taken up.
    let done = json(&daemon, &["policy", "reload"]);
    assert_eq!(done["active"]["number"], 2);
    let _ = daemon.palyra(&ECHO).expect_code(3);
}
