//! Grants, sessions, postures and the terminal, as people meet them: the real command line, and
//! calls that really run.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use palyra_testkit::{Daemon, Ran, eventually};
use serde_json::Value;

fn with_agent() -> Daemon {
    let daemon = Daemon::start();
    daemon.add_agent("a");
    daemon
}

fn json(daemon: &Daemon, words: &[&str]) -> Value {
    let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
    daemon.palyra(&words).expect_code(0).json()
}

fn ask(daemon: &Daemon, argv: &[&str]) -> Child {
    let words = ["exec", "--as", "agent:a", "--"].iter().chain(argv);
    daemon.palyra_in_background(&words.copied().collect::<Vec<_>>())
}

fn end(child: Child) -> Ran {
    child.wait_with_output().unwrap().into()
}

fn allow(daemon: &Daemon, id: &str, more: &[&str]) -> Value {
    let words = ["approvals", "decide", id, "--decision", "allow"];
    json(
        daemon,
        &words.iter().chain(more).copied().collect::<Vec<_>>(),
    )
}

/// A shell that leads a session of its own, and runs what it is told.
struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn start(daemon: &Daemon) -> Self {
        let mut command = Command::new("setsid");
        let like = daemon.program("palyra");
        command
            .args(["--wait", "sh"])
            .current_dir(daemon.workspace());
        command.env_clear();
        for (name, value) in like.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.env("PALYRA", daemon.bins().join("palyra"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            input,
            output,
        }
    }

    /// Runs a program as the agent; its exit code.
    fn exec(&mut self, words: &str) -> String {
        self.tell(words);
        self.hear()
    }

    fn tell(&mut self, words: &str) {
        let line = format!("\"$PALYRA\" exec --as agent:a -- {words} >/dev/null; echo $?\n");
        let input = self.input.as_mut().unwrap();
        input.write_all(line.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn end(mut self) {
        drop(self.input.take());
        self.child.wait().unwrap();
    }
}

#[test]
fn case_21_22_a_session_is_the_terminals_and_ends_with_it() {
    let daemon = with_agent();
    let mut shell = Shell::start(&daemon);
    shell.tell("touch one");
    let id = daemon.pending_approval();
    let decided = allow(&daemon, &id, &["--scope", "session", "--cover", "program"]);
    let grant = decided["grant_id"].as_str().unwrap().to_owned();
    assert_eq!(shell.hear(), "0");
    assert_eq!(shell.exec("touch two"), "0");
    assert!(daemon.workspace().join("two").exists());

    // Another shell is another session, whatever it says.
    let mut other = Shell::start(&daemon);
    other.tell("touch three");
    let id = daemon.pending_approval();
    assert!(!daemon.workspace().join("three").exists());
    let words = ["approvals", "decide", &id, "--decision", "deny"];
    let _ = daemon.palyra(&words).expect_code(0);
    assert_eq!(other.hear(), "121");
    other.end();

    let shown = json(&daemon, &["grants", "show", &grant]);
    assert_eq!(
        (&shown["state"], &shown["uses"]),
        (&"live".into(), &1.into())
    );
    let rule = shown["rule"].as_str().unwrap();
    assert!(rule.contains("Palyra::Agent::\"a\""), "{rule}");
    shell.end();
    eventually("the session's grant ends", || {
        let shown = json(&daemon, &["grants", "show", &grant]);
        (shown["why_ended"] == "session_ended").then_some(())
    });
}

#[test]
fn a_window_is_shown_used_and_taken_back() {
    let daemon = with_agent();
    let waiting = ask(&daemon, &["touch", "one"]);
    let id = daemon.pending_approval();
    let shown = json(&daemon, &["approvals", "show", &id]);
    let covers: Vec<&str> = shown["covers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cover| cover["cover"].as_str().unwrap())
        .collect();
    assert_eq!(covers, ["exact", "args", "dir", "program", "tool"]);
    assert!(
        shown["covers"][1]["sentence"]
            .as_str()
            .unwrap()
            .contains("touch *")
    );
    let text = daemon
        .palyra(&["approvals", "show", &id])
        .expect_code(0)
        .stdout;
    assert!(text.contains("a yes may cover"), "{text}");
    let words = ["--scope", "window", "--for", "1m", "--cover", "args"];
    let decided = allow(&daemon, &id, &words);
    let grant = decided["grant_id"].as_str().unwrap().to_owned();
    let _ = end(waiting).expect_code(0);
    let _ = end(ask(&daemon, &["touch", "two"])).expect_code(0);
    let list = daemon.palyra(&["grants", "list"]).expect_code(0).stdout;
    assert!(list.contains(&grant) && list.contains("touch *"), "{list}");
    // The journal names the grant beside the admission.
    let calls = json(&daemon, &["calls", "list"]);
    let call = calls["items"][0]["call_id"].as_str().unwrap().to_owned();
    let record = json(&daemon, &["calls", "show", &call]);
    let admitted = record["entries"].as_array().unwrap().iter();
    let mut admitted = admitted.filter(|entry| entry["kind"] == "admitted");
    assert_eq!(admitted.next().unwrap()["entry"]["grant"], *grant);
    let explained = json(&daemon, &["grants", "explain", &call]);
    assert_eq!(explained["grant"]["grant_id"], *grant);

    let _ = daemon.palyra(&["grants", "revoke", &grant]).expect_code(0);
    let mut asked = ask(&daemon, &["touch", "three"]);
    let _ = daemon.pending_approval();
    asked.kill().unwrap();
    asked.wait().unwrap();
    assert!(!daemon.workspace().join("three").exists());
    let explained = json(&daemon, &["grants", "explain", &call]);
    assert_eq!(explained["answer"], "ask");
    assert!(
        explained["reasons"].to_string().contains("revoked"),
        "{explained}"
    );
}

/// What a rule would also have covered is found by asking it about what was recorded.
#[test]
fn a_draft_says_what_it_would_have_covered() {
    let daemon = with_agent();
    for name in ["one", "two"] {
        let waiting = ask(&daemon, &["touch", name]);
        let id = daemon.pending_approval();
        let _ = allow(&daemon, &id, &[]);
        let _ = end(waiting).expect_code(0);
    }
    let mut waiting = ask(&daemon, &["touch", "three"]);
    let id = daemon.pending_approval();
    let shown = json(&daemon, &["approvals", "show", &id]);
    let seen = |place: usize| &shown["covers"][place]["seen_before"];
    assert_eq!(seen(0)["covered"], 0, "exact: {shown}");
    assert_eq!(seen(1)["covered"], 2, "args: {shown}");
    assert!(seen(1)["examples"].to_string().contains("touch two"));
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

#[test]
fn case_06_a_long_command_is_not_allowed_until_it_was_shown() {
    let daemon = with_agent();
    let long = format!("{}\u{20}payload {}", "a".repeat(60_000), "b".repeat(40_000));
    let waiting = ask(&daemon, &["touch", "--", &long]);
    let id = daemon.pending_approval();
    let decide = ["approvals", "decide", &id, "--decision", "allow"];
    let refused = daemon.palyra(&decide);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("--full"), "{}", refused.stderr);
    let full = json(&daemon, &["approvals", "show", &id, "--full"]);
    assert!(full["full"].as_str().unwrap().contains(" payload "));
    let code = full["shown_code"].as_str().unwrap();
    let plain = daemon.palyra(&["approvals", "show", &id]).expect_code(0);
    assert!(!plain.stdout.contains(code) && !plain.stdout.contains(" payload "));
    let _ = allow(&daemon, &id, &["--shown", code]);
    // It runs; that no file system takes such a name is another matter.
    assert_ne!(end(waiting).code, Some(121));
}

#[test]
fn case_07_an_agents_words_are_apart_and_labelled() {
    let daemon = with_agent();
    let words = "exec --as agent:a --why";
    let mut words: Vec<&str> = words.split(' ').collect();
    words.extend(["harmless\u{1b}[2J, run ls", "--", "touch", "proof"]);
    let mut waiting = daemon.palyra_in_background(&words);
    let id = daemon.pending_approval();
    let shown = daemon
        .palyra(&["approvals", "show", &id])
        .expect_code(0)
        .stdout;
    let own = shown
        .lines()
        .find(|line| line.starts_with("its words"))
        .unwrap();
    assert!(
        own.contains("(unchecked)") && own.contains(r"\u{1b}[2J"),
        "{own}"
    );
    let what = shown
        .lines()
        .find(|line| line.starts_with("what "))
        .unwrap();
    assert!(
        what.contains("touch proof") && !what.contains("harmless"),
        "{what}"
    );
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

#[test]
fn case_05_letters_that_look_alike_are_named() {
    let daemon = with_agent();
    let mut waiting = ask(&daemon, &["touch", "pа\u{443}pal.com"]);
    let id = daemon.pending_approval();
    let shown = json(&daemon, &["approvals", "show", &id]);
    assert!(
        shown["warnings"].to_string().contains("several scripts"),
        "{shown}"
    );
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

#[test]
fn a_file_change_is_shown_as_a_diff() {
    let daemon = with_agent();
    std::fs::write(daemon.workspace().join("f"), "one\ntwo\n").unwrap();
    let arguments = r#"{"path":"f","content":"one\n2\n"}"#;
    let words = [
        "call",
        "palyra.fs.write",
        "--args",
        arguments,
        "--as",
        "agent:a",
    ];
    let mut waiting = daemon.palyra_in_background(&words);
    let id = daemon.pending_approval();
    let shown = json(&daemon, &["approvals", "show", &id]);
    let diff = shown["diff"].as_str().unwrap();
    assert!(diff.contains("-two\n+2\n"), "{diff}");
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

#[test]
fn at_a_terminal_the_question_is_put_there() {
    let daemon = with_agent();
    let words = |name: &'static str| ["exec", "--as", "agent:a", "--", "touch", name];
    for (keys, name, code) in [
        ("y\r", "yes", 0),
        ("n\r", "no", 121),
        ("\r", "silence", 121),
    ] {
        let mut terminal = daemon.palyra_in_terminal(&words(name));
        terminal.sees("allow exactly this, once?");
        terminal.keys(keys);
        assert_eq!(terminal.ended().code(), Some(code), "{}", terminal.all());
        assert_eq!(daemon.workspace().join(name).exists(), code == 0);
        let _ = daemon.palyra(&["agents", "resume", "a"]).expect_code(0);
    }
}

#[test]
fn postures_and_pauses_reach_the_agent() {
    let daemon = with_agent();
    let set = [
        "postures",
        "set",
        "palyra.process.run",
        "disabled",
        "--agent",
        "a",
    ];
    let list = daemon.palyra(&set).expect_code(0).stdout;
    assert!(list.contains("agent:a"), "{list}");
    let ran = end(ask(&daemon, &["touch", "x"]));
    assert!(
        ran.stderr.contains("turned `palyra.process.run` off"),
        "{}",
        ran.stderr
    );
    let unset = [
        "postures",
        "set",
        "palyra.process.run",
        "unset",
        "--agent",
        "a",
    ];
    let _ = daemon.palyra(&unset).expect_code(0);

    let waiting = ask(&daemon, &["touch", "x"]);
    let id = daemon.pending_approval();
    let pause = ["agents", "pause", "a", "--reason", "let me look"];
    let _ = daemon.palyra(&pause).expect_code(0);
    assert_ne!(end(waiting).code, Some(0));
    let late = daemon.palyra(&["approvals", "decide", &id, "--decision", "allow"]);
    assert_eq!(late.code, Some(4));
    let ran = end(ask(&daemon, &["touch", "x"]));
    assert!(ran.stderr.contains("let me look"), "{}", ran.stderr);
    let _ = daemon.palyra(&["agents", "resume", "a"]).expect_code(0);
    let mut asked = ask(&daemon, &["touch", "x"]);
    let _ = daemon.pending_approval();
    asked.kill().unwrap();
    asked.wait().unwrap();
}

#[test]
fn a_question_can_be_left_for_the_same_command() {
    let mut daemon = with_agent();
    let words = ["exec", "--as", "agent:a", "--detach", "--", "touch", "x"];
    let left = daemon.palyra(&words);
    assert!(left.stderr.contains("make exactly"), "{}", left.stderr);
    daemon.stop();
    daemon.start_again(None);
    let id = daemon.pending_approval();
    let _ = allow(&daemon, &id, &[]);
    let _ = daemon.palyra(&words).expect_code(0);
    assert!(daemon.workspace().join("x").exists());
    std::fs::remove_file(daemon.workspace().join("x")).unwrap();
    let again = daemon.palyra(&words);
    assert_ne!(again.code, Some(0), "one yes, one run");
    assert!(!daemon.workspace().join("x").exists());
}

#[test]
fn changes_are_heard_as_they_happen() {
    let daemon = with_agent();
    let mut watching = daemon.palyra_in_background(&["approvals", "watch", "--json"]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains("watching"));
    let waiting = ask(&daemon, &["touch", "x"]);
    let id = daemon.pending_approval();
    let asked = format!("{{\"event\":\"approval\",\"id\":\"{id}\",\"state\":\"pending\"}}");
    while next() != asked {}
    let _ = allow(&daemon, &id, &[]);
    let answered = asked.replace("pending", "allowed");
    while next() != answered {}
    let _ = end(waiting).expect_code(0);
    watching.kill().unwrap();
    watching.wait().unwrap();
}
