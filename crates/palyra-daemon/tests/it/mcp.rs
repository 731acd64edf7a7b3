//! `palyra mcp serve`, met by the official clients and by ones that behave badly.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use palyra_testkit::{Daemon, eventually, outside_client};
use serde_json::{Value, json};

/// Runs an outside client with a scenario; it says itself when all of it holds.
fn holds(daemon: &Daemon, program: &Path, words: &[&OsStr]) {
    let mut command = daemon.command(program);
    command.args(words).stdin(Stdio::null());
    let done = command.output().unwrap();
    let (out, err) = (&done.stdout, &done.stderr);
    assert!(
        done.status.success() && out.ends_with(b"all of it holds\n"),
        "{}\n{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    );
}

fn scenario(test: &str, mode: &str) {
    let Some(python) = outside_client(test, "python/bin/python") else {
        return;
    };
    let (daemon, script) = (daemon(), clients("scenario.py"));
    let palyra = daemon.bins().join("palyra");
    let words = [script.as_os_str(), palyra.as_os_str(), mode.as_ref()];
    holds(&daemon, &python, &words);
}

fn clients(file: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("tests/clients").join(file)
}

#[test]
fn the_typescript_sdk() {
    let sdk = "node_modules/@modelcontextprotocol/sdk";
    let Some(sdk) = outside_client("mcp::the_typescript_sdk", sdk) else {
        return;
    };
    let (daemon, script) = (daemon(), clients("scenario.mjs"));
    let palyra = daemon.bins().join("palyra");
    let folder = sdk.ancestors().nth(3).unwrap();
    let words = [script.as_os_str(), folder.as_os_str(), palyra.as_os_str()];
    holds(&daemon, Path::new("node"), &words);
}

#[test]
fn the_python_sdk_with_a_handshake() {
    scenario("mcp::the_python_sdk_with_a_handshake", "legacy");
}

#[test]
fn the_python_sdk_without_a_handshake() {
    scenario("mcp::the_python_sdk_without_a_handshake", "2026-07-28");
}

/// A client of our own, for what official ones do not do.
struct Rude {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Rude {
    fn start(daemon: &Daemon) -> Self {
        let mut command = daemon.program("palyra");
        command.args(["mcp", "serve", "--as", "agent:claude"]);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn greeted(daemon: &Daemon) -> Self {
        let mut client = Self::start(daemon);
        client.say(
            &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "agent:owner", "version": "1"}}}),
        );
        assert_eq!(client.hear()["result"]["serverInfo"]["name"], "palyra");
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn say(&mut self, message: &Value) {
        self.say_raw(format!("{message}\n").as_bytes());
    }

    fn say_raw(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        assert!(
            self.output.read_line(&mut line).unwrap() > 0,
            "it went away"
        );
        serde_json::from_str(&line).unwrap()
    }

    fn call(&mut self, id: u64, tool: &str, arguments: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}}));
    }

    fn echoes(&mut self, id: u64) {
        self.call(id, "palyra_echo", &json!({"message": "still here"}));
        let heard = self.hear();
        assert_eq!(heard["id"], id, "{heard}");
        assert_eq!(
            heard["result"]["structuredContent"]["decision"], "permitted",
            "{heard}"
        );
    }
}

impl Drop for Rude {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn daemon() -> Daemon {
    let daemon = Daemon::start();
    daemon.add_agent("claude");
    daemon
}

#[test]
fn what_is_no_message_is_answered_and_the_next_one_counts() {
    let daemon = daemon();
    let mut client = Rude::greeted(&daemon);
    let deep = "[".repeat(100_000);
    for (number, bad) in [
        "nonsense",
        "{\"jsonrpc\":\"2.0\"",
        "[]",
        "{}",
        "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}]",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}",
        "\"\u{202e}\u{0}\"",
        &deep,
    ]
    .iter()
    .enumerate()
    {
        client.say_raw(format!("{bad}\n").as_bytes());
        let heard = client.hear();
        assert!(
            heard["error"]["code"].is_i64() && heard["result"].is_null(),
            "{bad:.40} {heard}"
        );
        client.echoes(100 + number as u64);
    }
    client.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "palyra/raise", "params": {}}));
    assert_eq!(client.hear()["error"]["code"], -32601);
    // Answers to questions that were never asked, and ids out of order.
    client.say(&json!({"jsonrpc": "2.0", "id": 77, "result": {}}));
    client.say(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 4_000}}),
    );
    client.echoes(9);
    client.echoes(3);
}

#[test]
fn a_message_without_end_is_refused_in_bounded_memory() {
    let daemon = daemon();
    let mut client = Rude::greeted(&daemon);
    let piece = vec![b'x'; 1 << 20];
    client.say_raw(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"");
    for _ in 0..100 {
        client.say_raw(&piece);
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.child.id())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 100 << 10, "{peak} kB for a message of 100 MiB");
    client.say_raw(b"\"}\n");
    assert!(client.hear()["error"]["code"].is_i64());
    client.echoes(2);
}

#[test]
fn ids_that_are_used_twice_do_not_confuse_the_rest() {
    let daemon = daemon();
    let mut client = Rude::greeted(&daemon);
    for _ in 0..20 {
        client.call(5, "palyra_echo", &json!({"message": "same id"}));
    }
    client.call(6, "palyra_echo", &json!({"message": "other id"}));
    // At least one answer for 5, and the one for 6, whatever came between.
    let mut ids = Vec::new();
    while ids.last() != Some(&json!(6)) {
        ids.push(client.hear()["id"].clone());
    }
    eventually("the rest is quiet again", || {
        client.call(7, "palyra_echo", &json!({"message": "last"}));
        let heard = client.hear();
        (heard["id"] == 7).then_some(())
    });
}

/// The call's own process ends, and the journal says that it was cancelled.
fn vanishes(leave: impl FnOnce(&mut Rude)) {
    let daemon = daemon();
    let mut client = Rude::greeted(&daemon);
    client.call(
        1,
        "palyra_process_run",
        &json!({"argv": ["sleep", "987654"]}),
    );
    let asked = daemon.pending_approval();
    let _ = daemon
        .palyra(&["approvals", "decide", &asked, "--decision", "allow"])
        .expect_code(0);
    let sleeps = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok())
            .any(|line| line == b"sleep\x00987654\x00")
    };
    eventually("it runs", || sleeps().then_some(()));
    leave(&mut client);
    eventually("it is killed", || (!sleeps()).then_some(()));
    eventually("it is recorded", || {
        let list = daemon
            .palyra(&["calls", "list", "--json"])
            .expect_code(0)
            .json();
        (list["items"][0]["state"] == "cancelled").then_some(())
    });
}

#[test]
fn a_client_that_closes_its_end_takes_its_call_with_it() {
    vanishes(|client| drop(client.input.take()));
}

#[test]
fn a_server_that_is_killed_takes_its_call_with_it() {
    vanishes(|client| client.child.kill().unwrap());
}

#[test]
fn only_a_registered_agent_is_served() {
    let daemon = daemon();
    let nobody = daemon.palyra(&["mcp", "serve"]);
    assert_eq!(nobody.code, Some(2), "{}", nobody.stderr);
    let unknown = daemon.palyra(&["mcp", "serve", "--as", "agent:other"]);
    assert_ne!(unknown.code, Some(0));
    assert!(
        unknown.stdout.is_empty() && unknown.stderr.contains("other"),
        "{}",
        unknown.stderr
    );
    let mut client = Rude::greeted(&daemon);
    client.echoes(1);
    let _ = daemon
        .palyra(&["agents", "remove", "claude"])
        .expect_code(0);
    // It hears that its tools are others, and is refused.
    assert_eq!(client.hear()["method"], "notifications/tools/list_changed");
    client.call(2, "palyra_echo", &json!({"message": "x"}));
    let heard = client.hear();
    let refused = heard["result"]["isError"] == true || heard["error"]["code"].is_i64();
    assert!(refused, "{heard}");
}
