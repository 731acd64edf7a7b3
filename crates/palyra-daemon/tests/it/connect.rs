//! `palyra connect`: a client's configuration, written, used and taken back.

use palyra_testkit::{Daemon, Ran};
use serde_json::{Value, json};

fn json_of(path: &std::path::Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn claude_code_is_connected_and_what_was_written_works() {
    let daemon = Daemon::start();
    let workspace = daemon.workspace();
    let (servers, settings) = (
        workspace.join(".mcp.json"),
        workspace.join(".claude/settings.json"),
    );
    let before = "{\"mcpServers\": {\"git\": {\"command\": \"git-mcp\"}}}";
    std::fs::write(&servers, before).unwrap();
    let dry = daemon
        .palyra(&["connect", "claude-code", "--dry-run"])
        .expect_code(0);
    assert!(dry.stdout.contains("would write"), "{}", dry.stdout);
    assert_eq!(std::fs::read_to_string(&servers).unwrap(), before);
    assert!(!settings.exists());
    let none = daemon
        .palyra(&["agents", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(none["items"], json!([]), "a dry run registers nobody");

    let done = daemon.palyra(&["connect", "claude-code"]).expect_code(0);
    assert!(
        done.stdout.contains("git"),
        "the other server is named: {}",
        done.stdout
    );
    let agent = daemon
        .palyra(&["agents", "show", "claude", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(agent["workspace"], json!(workspace));
    assert_eq!(
        std::fs::read_to_string(workspace.join(".mcp.json.before-palyra")).unwrap(),
        before
    );
    // The server that was written serves.
    let entry = &json_of(&servers)["mcpServers"]["palyra"];
    let words: Vec<&str> = entry["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    assert_eq!(words, ["mcp", "serve", "--as", "agent:claude"]);
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let heard = daemon
        .palyra_with_input(&words, &format!("{hello}\n"))
        .expect_code(0);
    assert!(heard.stdout.contains("\"palyra\""), "{}", heard.stdout);
    // The hook that was written decides, and blocks when its program is gone.
    let hook = json_of(&settings)["hooks"]["PreToolUse"][0].clone();
    assert_eq!(hook["matcher"], "*", "no tool passes by it");
    let command = hook["hooks"][0]["command"].as_str().unwrap().to_owned();
    let said = json!({"hook_event_name": "PreToolUse", "tool_name": "WebFetch", "tool_input": {}})
        .to_string();
    let run = |command: &str| {
        use std::io::Write;
        let mut shell = daemon.command(std::path::Path::new("/bin/sh"));
        shell
            .args(["-c", command])
            .stdin(std::process::Stdio::piped());
        shell
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(said.as_bytes());
        Ran::from(child.wait_with_output().unwrap())
    };
    let denied = run(&command).expect_code(0).json();
    assert_eq!(denied["hookSpecificOutput"]["permissionDecision"], "deny");
    let gone = command.replacen("palyra' hook", "no-such' hook", 1);
    assert_ne!(gone, command);
    assert_eq!(run(&gone).code, Some(2), "a hook that cannot be run blocks");

    // Again changes nothing; undo leaves what was there.
    let again = daemon
        .palyra(&["connect", "claude-code", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(again["changes"], json!([]));
    let _ = daemon
        .palyra(&["connect", "claude-code", "--undo"])
        .expect_code(0);
    assert_eq!(
        json_of(&servers),
        serde_json::from_str::<Value>(before).unwrap()
    );
    assert!(!settings.exists(), "it was ours alone");
}

#[test]
fn codex_and_others() {
    let daemon = Daemon::start();
    let config = daemon.workspace().join(".codex/config.toml");
    std::fs::create_dir(daemon.workspace().join(".codex")).unwrap();
    std::fs::write(&config, "# mine\nmodel = \"o\"\n").unwrap();
    let _ = daemon.palyra(&["connect", "codex"]).expect_code(0);
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(
        text.starts_with("# mine\n") && text.contains("[mcp_servers.palyra]"),
        "{text}"
    );
    assert!(daemon.workspace().join(".codex/hooks.json").exists());
    let _ = daemon
        .palyra(&["connect", "codex", "--undo"])
        .expect_code(0);
    assert!(!std::fs::read_to_string(&config).unwrap().contains("palyra"));
    let generic = daemon
        .palyra(&["connect", "generic", "--agent", "mine"])
        .expect_code(0);
    assert!(generic.stdout.contains("agent:mine"), "{}", generic.stdout);
    // What is not understood is not written over; an agent has one folder.
    std::fs::write(&config, "= broken").unwrap();
    let broken = daemon.palyra(&["connect", "codex"]);
    assert!(
        broken.code != Some(0) && broken.stderr.contains("config.toml"),
        "{}",
        broken.stderr
    );
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "= broken");
    let other = daemon.folder().join("other");
    std::fs::create_dir(&other).unwrap();
    let taken = daemon.palyra(&[
        "connect",
        "claude-code",
        "--agent",
        "mine",
        "--workspace",
        other.to_str().unwrap(),
    ]);
    assert!(
        taken.code == Some(2) && taken.stderr.contains("--agent"),
        "{}",
        taken.stderr
    );
    assert!(!other.join(".mcp.json").exists());
}
