//! Presence: with a passphrase set, a process that merely has the owner's uid decides nothing.

use std::path::Path;

use palyra_testkit::{Daemon, Terminal, eventually};

const PASSPHRASE: &str = "seven green bottles";

fn with_agent(config: &str) -> Daemon {
    let mut daemon = Daemon::start();
    daemon.add_agent("a");
    if !config.is_empty() {
        daemon.stop();
        std::fs::write(daemon.home_folder().join("palyra.toml"), config).unwrap();
        daemon.start_again(None);
    }
    daemon
}

/// Sets it at a terminal, as a person does.
fn set(daemon: &Daemon, passphrase: &str) {
    let mut terminal = daemon.palyra_in_terminal(&["presence", "set"]);
    terminal.sees("new passphrase: ");
    terminal.line(passphrase);
    terminal.sees("the same again: ");
    terminal.line(passphrase);
    assert!(terminal.ended().success(), "{}", terminal.all());
    assert!(!terminal.all().contains(passphrase), "{}", terminal.all());
}

/// Leaves a question that does not need its asker.
fn leave(daemon: &Daemon, name: &str) -> String {
    let touch = ["exec", "--as", "agent:a", "--detach", "--", "touch", name];
    let ran = daemon.palyra(&touch);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    let list = daemon.palyra(&["approvals", "list", "--json"]).json();
    let newest = list["items"].as_array().unwrap().iter();
    let ids = newest.filter_map(|it| it["approval_id"].as_str());
    ids.max().unwrap().to_owned()
}

fn decide<'a>(id: &'a str, decision: &'a str) -> [&'a str; 6] {
    ["approvals", "decide", id, "--decision", decision, "--json"]
}

fn state(daemon: &Daemon, id: &str) -> String {
    let shown = daemon.palyra(&["approvals", "show", id, "--json"]).json();
    shown["state"].as_str().unwrap().to_owned()
}

/// A person's shell in a terminal of its own.
fn shell(daemon: &Daemon) -> Terminal {
    let mut command = daemon.command(Path::new("/bin/sh"));
    command.arg("-i").env("PS1", "> ").env("ENV", "");
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", daemon.bins().display()));
    daemon.in_terminal(&command)
}

fn entries(daemon: &Daemon, kind: &str) -> Vec<serde_json::Value> {
    let tail = ["journal", "tail", "-n", "1000", "--json"];
    let page = daemon.palyra(&tail).expect_code(0).json();
    let all = page["items"].as_array().unwrap().clone();
    let of = all.into_iter().filter(|entry| entry["kind"] == kind);
    of.collect()
}

#[test]
fn a_process_with_the_owners_uid_decides_nothing_without_the_passphrase() {
    let daemon = with_agent("");
    // The control: without a passphrase the same process decides.
    let id = leave(&daemon, "one");
    let _ = daemon.palyra(&decide(&id, "allow")).expect_code(0);
    set(&daemon, PASSPHRASE);
    let status = daemon.palyra(&["status", "--json"]).json();
    assert_eq!(status["presence"], "passphrase");
    let id = leave(&daemon, "two");
    for decision in ["allow", "deny"] {
        let refused = daemon.palyra(&decide(&id, decision));
        assert_eq!(refused.error_code(), "presence_required");
    }
    // On standard input it is no person's either.
    let piped = daemon.palyra_with_input(&decide(&id, "allow"), &format!("{PASSPHRASE}\n"));
    assert_eq!(piped.error_code(), "presence_required");
    // Nor can such a process end it, change it, or change what is decided.
    for action in [
        &["presence", "off", "--json"][..],
        &["postures", "set", "palyra.echo", "always-allow", "--json"],
        &["agents", "resume", "a", "--json"],
        &["policy", "rollback", "--json"],
    ] {
        let refused = daemon.palyra(action);
        assert_eq!(refused.error_code(), "presence_required", "{action:?}");
    }
    assert_eq!(state(&daemon, &id), "pending");
    // A person at a terminal does, and what they said is signed.
    let mut terminal = daemon.palyra_in_terminal(&decide(&id, "allow"));
    terminal.sees("your passphrase: ");
    terminal.line(PASSPHRASE);
    assert!(terminal.ended().success(), "{}", terminal.all());
    let again = daemon.palyra(&["exec", "--as", "agent:a", "--", "touch", "two"]);
    let _ = again.expect_code(0);
    assert!(daemon.workspace().join("two").exists());
    let decided = entries(&daemon, "approval_decided");
    let key = entries(&daemon, "presence_changed")[0]["entry"]["key"].clone();
    let signed = |at: usize| &decided[at]["entry"]["signed"];
    assert!(
        signed(0).is_null() && signed(1)["key"] == key,
        "{decided:?}"
    );
    let _ = daemon.palyra(&["journal", "verify"]).expect_code(7);
    let _ = daemon.palyra(&["journal", "verify"]).expect_code(0);
}

#[test]
fn it_counts_for_the_terminal_it_was_typed_in_until_an_agent_is_seen_there() {
    held_until(|_| "palyra status --as agent:a".to_owned());
    // By its client, which is a session of its own and runs in this terminal all the same.
    held_until(|daemon| {
        let asked = serde_json::json!({
            "hook_event_name": "PreToolUse",
            "session_id": "s",
            "cwd": daemon.workspace(),
            "tool_name": "Bash",
            "tool_input": { "command": "true" },
        });
        format!("echo '{asked}' | palyra hook claude-code --as agent:a")
    });
}

fn held_until(agent_speaks: impl Fn(&Daemon) -> String) {
    let daemon = with_agent("");
    set(&daemon, PASSPHRASE);
    let ids = ["x", "y", "z"].map(|name| leave(&daemon, name));
    let mut shell = shell(&daemon);
    let decides = |id: &str| format!("palyra approvals decide {id} --decision allow; echo did-$?");
    shell.sees("> ");
    shell.line(&decides(&ids[0]));
    shell.sees("your passphrase: ");
    shell.line(PASSPHRASE);
    shell.sees("\ndid-0");
    // Held for this terminal, and for no other.
    shell.line(&decides(&ids[1]));
    shell.sees("\ndid-0");
    let elsewhere = daemon.palyra(&decide(&ids[2], "deny"));
    assert_eq!(elsewhere.error_code(), "presence_required");
    // An agent speaks from the same terminal: from here on each decision asks.
    let speaks = agent_speaks(&daemon);
    shell.line(&format!("{speaks} >/dev/null 2>&1; echo was-$?"));
    shell.sees("\nwas-0");
    shell.line(&decides(&ids[2]));
    shell.sees("your passphrase: ");
    shell.line(PASSPHRASE);
    shell.sees("\ndid-0");
    let id = leave(&daemon, "w");
    shell.line(&decides(&id));
    shell.sees("your passphrase: ");
    shell.line("wrong it is");
    shell.sees("the passphrase is wrong");
    shell.sees("your passphrase: ");
    shell.keys("\u{3}");
    assert_eq!(state(&daemon, &id), "pending");
}

#[test]
fn guesses_are_counted_recorded_and_stopped() {
    let daemon = with_agent("");
    set(&daemon, PASSPHRASE);
    let id = leave(&daemon, "x");
    for round in 0..2 {
        let mut terminal = daemon.palyra_in_terminal(&decide(&id, "allow"));
        for _ in 0..(if round == 0 { 3 } else { 2 }) {
            terminal.sees("your passphrase: ");
            terminal.line("some other words");
        }
        if round == 1 {
            terminal.sees("your passphrase: ");
            terminal.line(PASSPHRASE);
            terminal.sees("too_many_passphrases");
        }
        assert!(!terminal.ended().success());
    }
    let refused = entries(&daemon, "presence_changed");
    let refused = refused
        .iter()
        .filter(|it| it["entry"]["change"] == "refused");
    assert_eq!(refused.count(), 5);
    assert_eq!(state(&daemon, &id), "pending");
}

#[test]
fn the_passphrase_is_left_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut daemon = Daemon::builder()
        .config("[log]\nlevel = \"trace\"\n")
        .log_to(log.clone())
        .start();
    daemon.add_agent("a");
    set(&daemon, PASSPHRASE);
    let id = leave(&daemon, "x");
    let mut terminal = daemon.palyra_in_terminal(&decide(&id, "deny"));
    terminal.sees("your passphrase: ");
    // While it is asked, nobody of this uid looks into the command, and no core file is written.
    let pid = terminal.pid();
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core"));
    assert_eq!(core.unwrap().split_whitespace().nth(4), Some("0"));
    terminal.line(PASSPHRASE);
    assert!(terminal.ended().success(), "{}", terminal.all());
    daemon.stop();
    use base64::Engine as _;
    let spelled = base64::engine::general_purpose::STANDARD.encode(PASSPHRASE);
    let mut looked = 0;
    for place in [daemon.folder(), folder.path()] {
        looked += find(place, &[PASSPHRASE.as_bytes(), spelled.as_bytes()]);
    }
    assert!(looked > 5, "{looked} files were looked at");
}

/// Looks through every file beneath; how many there were.
fn find(folder: &Path, wanted: &[&[u8]]) -> usize {
    let mut looked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.symlink_metadata().unwrap().file_type();
        if kind.is_dir() {
            looked += find(&path, wanted);
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            for wanted in wanted {
                let there = bytes.windows(wanted.len()).any(|it| it == *wanted);
                assert!(!there, "{} holds it", path.display());
            }
            looked += 1;
        }
    }
    looked
}

#[test]
fn another_key_in_its_place_is_not_taken() {
    let (daemon, other) = (with_agent(""), with_agent(""));
    set(&daemon, PASSPHRASE);
    set(&other, "what the attacker knows");
    let id = leave(&daemon, "x");
    let file = |of: &Daemon| of.home().state().join("presence.key");
    std::fs::copy(file(&other), file(&daemon)).unwrap();
    let mut terminal = daemon.palyra_in_terminal(&decide(&id, "allow"));
    terminal.sees("your passphrase: ");
    terminal.line("what the attacker knows");
    terminal.sees("presence_key_replaced");
    assert!(!terminal.ended().success());
    assert_eq!(state(&daemon, &id), "pending");
}

#[test]
fn the_configuration_demands_what_is_not_there_and_says_so() {
    let daemon = with_agent("presence = \"device\"\n");
    let id = leave(&daemon, "x");
    let refused = daemon.palyra(&decide(&id, "allow"));
    assert_eq!(refused.error_code(), "presence_no_device");
    let status = daemon.palyra(&["status", "--json"]).json();
    assert_eq!(status["presence"], "device");
    assert!(status["warnings"].to_string().contains("pairs none"));
    let daemon = with_agent("presence = \"passphrase\"\n");
    let id = leave(&daemon, "x");
    let refused = daemon.palyra(&decide(&id, "allow"));
    assert_eq!(refused.error_code(), "presence_not_set");
    // Nor is a pause undone by registering another.
    let folder = daemon.workspace();
    let add = [
        "agents",
        "add",
        "b",
        "--workspace",
        folder.to_str().unwrap(),
    ];
    let refused = daemon.palyra(&[&add[..], &["--json"]].concat());
    assert_eq!(refused.error_code(), "presence_not_set");
}

#[test]
fn a_changed_file_is_not_a_persons_word_and_turning_it_off_leaves_a_mark() {
    let mut daemon = with_agent("");
    set(&daemon, PASSPHRASE);
    let policies = daemon.home().policies();
    std::fs::create_dir_all(&policies).unwrap();
    let all = "@id(\"everything\")\n@reason(\"because\")\npermit(principal, action, resource);\n";
    std::fs::write(policies.join("evil.cedar"), all).unwrap();
    eventually("it is staged", || {
        let status = daemon.palyra(&["status", "--json"]).json();
        (!status["policy_staged"].is_null()).then_some(())
    });
    // Neither does a restart, nor a configuration that says nothing of presence.
    daemon.stop();
    daemon.start_again(None);
    let status = daemon.palyra(&["status", "--json"]).json();
    assert!(!status["policy_staged"].is_null(), "{status}");
    assert_eq!(status["presence"], "passphrase");
    // A person turns it off with the passphrase.
    let mut terminal = daemon.palyra_in_terminal(&["presence", "off"]);
    terminal.sees("your passphrase: ");
    terminal.line(PASSPHRASE);
    assert!(terminal.ended().success(), "{}", terminal.all());
    let status = daemon.palyra(&["status", "--json"]).json();
    assert_eq!(status["presence"], "off");
}

/// An agent that drops its `--as` is no person either.
#[test]
fn a_call_of_ones_own_needs_the_passphrase_too() {
    let daemon = with_agent("");
    let touch = |name| ["exec", "--", "touch", name];
    let _ = daemon.palyra(&touch("control")).expect_code(0);
    set(&daemon, PASSPHRASE);
    let refused = daemon.palyra(&touch("proof"));
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("passphrase"), "{refused:?}");
    assert!(!daemon.workspace().join("proof").exists());
    let mut terminal = daemon.palyra_in_terminal(&touch("proof"));
    terminal.sees("your passphrase: ");
    terminal.line(PASSPHRASE);
    assert!(terminal.ended().success(), "{}", terminal.all());
    assert!(daemon.workspace().join("proof").exists());
}
