//! `exec` and `call` against a fake daemon: what is sent, what is heard, how it ends.

use std::io::{Read, Write};
use std::process::Stdio;

use palyra_api::wire::AS_HEADER;
use serde_json::{Value, json};

use crate::fake::{Answer, Fake};
use crate::palyra::{Palyra, Ran};

const CALL: &str = "call_01kgq5r7h3e8x2m4n6p8q0s2t4";
const APPROVAL: &str = "appr_01kgq5r7h3e8x2m4n6p8q0s2t4";

fn finished(outcome: &str, more: &Value) -> Value {
    let mut result = json!({
        "call_id": CALL, "outcome": outcome, "exit_code": null, "signal": null, "output": null,
        "problem": null, "approval_id": null, "attestation": null
    });
    for (name, value) in more.as_object().unwrap() {
        result[name] = value.clone();
    }
    json!({"event": "finished", "result": result})
}

fn accepted() -> Value {
    json!({"event": "accepted", "call_id": CALL})
}

/// A home whose daemon answers a call with these events.
fn answering(events: Vec<Value>) -> (Palyra, Fake) {
    let palyra = Palyra::new();
    let fake = Fake::listen(
        &palyra.home(),
        &[("POST /api/v1/calls", Answer::Events(events))],
    );
    (palyra, fake)
}

fn exec_ends(outcome: &str, more: &Value) -> Ran {
    let (palyra, _fake) = answering(vec![accepted(), finished(outcome, more)]);
    palyra.run(&["exec", "--", "prog"])
}

#[test]
fn output_passes_byte_for_byte() {
    // "\x1b[31m\xff\0" on one stream, "err" on the other: nothing is stripped or translated.
    let (palyra, fake) = answering(vec![
        accepted(),
        json!({"event": "started"}),
        json!({"event": "output", "stream": "stdout", "base64": "G1szMW3/AA=="}),
        json!({"event": "output", "stream": "stderr", "base64": "ZXJy"}),
        finished("completed", &json!({"exit_code": 7})),
    ]);
    let ran = palyra
        .command(&["exec", "--timeout", "2s", "--", "sh", "-c", "x"])
        .output()
        .unwrap();
    assert_eq!(ran.stdout, b"\x1b[31m\xff\0");
    assert_eq!(ran.stderr, b"err");
    assert_eq!(ran.status.code(), Some(7));
    let sent = fake.call();
    let work = palyra.path("work");
    assert_eq!(sent["tool"], "palyra.process.run");
    assert_eq!(sent["workspace"], work.to_str().unwrap());
    let arguments = json!({
        "argv": ["sh", "-c", "x"], "cwd": work, "env": {"PATH": "/usr/bin:/bin"},
        "timeout_ms": 2000
    });
    assert_eq!(sent["arguments"], arguments);
}

#[test]
fn standard_input_goes_along_when_asked() {
    let (palyra, fake) = answering(vec![accepted(), finished("completed", &json!({}))]);
    std::fs::write(palyra.path("work/in.txt"), "b\na\n").unwrap();
    let given = || std::fs::File::open(palyra.path("work/in.txt")).unwrap();
    let run = |words: &[&str]| Ran::from(palyra.command(words).stdin(given()).output().unwrap());
    let ran = run(&["exec", "--stdin", "--", "sort"]).exits(0);
    assert_eq!(ran.stderr, "");
    assert_eq!(fake.call()["arguments"]["stdin"], "b\na\n");

    let note = "palyra: standard input is not passed on; use --stdin\n";
    assert_eq!(run(&["exec", "--", "sort"]).exits(0).stderr, note);
    assert_eq!(run(&["exec", "-q", "--", "sort"]).exits(0).stderr, "");
    let last: Value = serde_json::from_str(&fake.asked().last().unwrap().body).unwrap();
    assert_eq!(last["arguments"].get("stdin"), None);

    std::fs::write(palyra.path("work/in.txt"), b"ab\xff").unwrap();
    let calls = fake.asked().len();
    run(&["exec", "--stdin", "--", "sort"])
        .exits(125)
        .complains("not UTF-8: byte 2", "file of the workspace");
    assert_eq!(fake.asked().len(), calls, "nothing is sent");
}

#[test]
fn ctrl_c_is_heard_while_standard_input_is_awaited() {
    let palyra = Palyra::new();
    for words in [
        &["exec", "--stdin", "--", "sort"][..],
        &["call", "palyra.echo", "--args", "-"],
    ] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut command = palyra.command(words);
        let child = command
            .stdin(reader)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It reads once the pipe, which holds 64 KiB, takes more than that.
        writer.write_all(&[b' '; 128 << 10]).unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap()).exits(130);
        assert!(ran.stderr.contains("cancelled"), "{ran:?}");
    }
}

#[test]
fn exit_codes_of_exec() {
    let problem = |code: &str| json!({"problem": {"code": code, "message": "it is so", "next_step": "do `this`"}});
    for (outcome, more, code) in [
        ("completed", json!({"exit_code": 0}), 0),
        ("completed", json!({"exit_code": 255}), 255),
        ("completed", json!({"signal": 9}), 137),
        ("denied", problem("denied_by_policy"), 120),
        ("approval_denied", problem("approval_denied"), 121),
        ("approval_expired", problem("approval_expired"), 121),
        ("sandbox_unavailable", problem("sandbox_unavailable"), 122),
        ("timed_out", json!({}), 124),
        ("cancelled", json!({}), 125),
        ("interrupted", json!({}), 125),
        ("failed", problem("runtime_failure"), 125),
        ("failed", problem("program_not_executable"), 126),
        ("failed", problem("program_not_found"), 127),
    ] {
        let ran = exec_ends(outcome, &more).exits(code);
        assert_eq!(ran.stdout, "");
        if outcome != "completed" {
            let (message, hint) = match more["problem"].is_object() {
                true => ("it is so", "do `this`"),
                false => ("", "`"),
            };
            ran.complains(message, hint);
        }
    }
}

#[test]
fn refusals_before_a_call_exists() {
    for (status, code, exec, call) in [
        (404, "program_not_found", 127, 1),
        (503, "sandbox_unavailable", 122, 6),
        (403, "caller_is_a_tool", 120, 3),
        (429, "rate_limited", 120, 3),
        (404, "unknown_tool", 125, 1),
        (413, "input_too_large", 125, 1),
    ] {
        let palyra = Palyra::new();
        let body = json!({"error": {"code": code, "message": "no", "next_step": "see `x`"}});
        let answer = ("POST /api/v1/calls", Answer::Json(status, body.clone()));
        let _fake = Fake::listen(&palyra.home(), &[answer]);
        palyra
            .run(&["exec", "--", "prog"])
            .exits(exec)
            .complains("no", "see `x`");
        let ran = palyra.run(&["call", "some.tool", "--json"]).exits(call);
        assert_eq!(ran.json(), body);
    }
}

#[test]
fn json_is_the_result_and_nothing_else() {
    let (palyra, _fake) = answering(vec![
        accepted(),
        json!({"event": "output", "stream": "stdout", "base64": "aGk="}),
        finished(
            "completed",
            &json!({"exit_code": 3, "output": {"stdout": "hi\u{9b}"}}),
        ),
    ]);
    let ran = palyra.run(&["exec", "--json", "--", "prog"]).exits(3);
    assert!(ran.stdout.contains(r"hi\u009b"), "{ran:?}");
    assert_eq!(ran.json()["outcome"], "completed");
    assert_eq!(ran.json()["output"]["stdout"], "hi\u{9b}");
    assert_eq!(ran.stderr, "");
}

#[test]
fn waiting_tells_how_to_decide() {
    let palyra = Palyra::new();
    let pending = json!({
        "event": "approval_pending", "call_id": CALL, "approval_id": APPROVAL,
        "expires_at": "2099-01-01T00:00:00Z", "joined": false
    });
    let events = vec![
        accepted(),
        pending,
        json!({"event": "started"}),
        finished("completed", &json!({"exit_code": 0})),
    ];
    let agent = json!({
        "name": "x", "user": "owner", "workspace": "/elsewhere",
        "registered_at": "2026-01-01T00:00:00Z"
    });
    let fake = Fake::listen(
        &palyra.home(),
        &[
            ("GET /api/v1/agents/x", Answer::Json(200, agent)),
            ("POST /api/v1/calls", Answer::Events(events)),
        ],
    );
    let words = [
        "exec",
        "--quiet",
        "--as",
        "agent:x",
        "--",
        "rm",
        "-rf",
        "a b\u{1b}[2K",
    ];
    let ran = palyra.run(&words).exits(0);
    for part in [
        APPROVAL,
        r"agent:x: rm -rf 'a b\u{1b}[2K'",
        &format!("palyra approvals decide {APPROVAL} --decision allow"),
        "2099-01-01T00:00:00Z (in ",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    let sent = fake.call();
    assert_eq!(
        sent.get("workspace"),
        None,
        "an agent's workspace is the daemon's to know"
    );
    assert_eq!(sent["arguments"].get("cwd"), None, "we stand outside of it");
    assert!(
        fake.asked()
            .iter()
            .all(|asked| asked.headers[AS_HEADER] == "agent:x")
    );
}

#[test]
fn waiting_tells_what_was_found_to_run() {
    let palyra = Palyra::new();
    let pending = json!({
        "event": "approval_pending", "call_id": CALL, "approval_id": APPROVAL,
        "expires_at": "2099-01-01T00:00:00Z", "joined": false
    });
    let approval = json!({
        "approval_id": APPROVAL, "state": "pending", "call_id": CALL,
        "tool": "palyra.process.run", "principal": "agent:x",
        "requested_at": "2026-11-15T09:00:00Z", "expires_at": "2099-01-01T00:00:00Z",
        "summary": r"/tmp/evil/git 'a\u{1b}', in /home/a", "effects": []
    });
    let events = vec![accepted(), pending, finished("completed", &json!({}))];
    let shown = format!("GET /api/v1/approvals/{APPROVAL}");
    let _fake = Fake::listen(
        &palyra.home(),
        &[
            ("POST /api/v1/calls", Answer::Events(events)),
            (&shown, Answer::Json(200, approval)),
        ],
    );
    let ran = palyra.run(&["exec", "--", "git", "a\u{1b}"]).exits(0);
    let what = r"what   agent:x: /tmp/evil/git 'a\u{1b}', in /home/a";
    assert!(ran.stderr.contains(what), "{}", ran.stderr);
}

#[test]
fn a_joined_call_shows_the_output_at_the_end() {
    // Not UTF-8 on one stream, so that one comes as base64 and the other as text.
    let output = json!({
        "stdout": {"base64": "G1szMW3/AA=="}, "stderr": {"text": "err\u{1b}"},
        "stdout_bytes": 7, "stderr_bytes": 4
    });
    let done = finished("completed", &json!({"exit_code": 3, "output": output}));
    let joined = json!({
        "event": "approval_pending", "call_id": CALL, "approval_id": APPROVAL,
        "expires_at": "2099-01-01T00:00:00Z", "joined": true
    });
    let (palyra, _fake) = answering(vec![accepted(), joined, done.clone()]);
    let ran = palyra.command(&["exec", "--", "x"]).output().unwrap();
    assert_eq!(ran.stdout, b"\x1b[31m\xff\0");
    assert!(ran.stderr.ends_with(b"err\x1b"), "{ran:?}");
    assert_eq!(ran.status.code(), Some(3));

    // What came while it ran is not printed twice.
    let piece = json!({"event": "output", "stream": "stdout", "base64": "aGk="});
    let (palyra, _fake) = answering(vec![accepted(), piece, done]);
    let ran = palyra.run(&["exec", "--", "x"]).exits(3);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("hi", ""));
}

#[test]
fn an_unknown_agent_is_the_daemons_to_refuse() {
    let palyra = Palyra::new();
    let body = json!({"error": {
        "code": "unknown_agent", "message": "there is no agent `x`",
        "next_step": "register it with `palyra agents add x`"
    }});
    let _fake = Fake::listen(
        &palyra.home(),
        &[("GET /api/v1/agents/x", Answer::Json(404, body))],
    );
    palyra
        .run(&["exec", "--as", "agent:x", "--", "id"])
        .exits(125)
        .complains("no agent `x`", "palyra agents add x");
}

#[test]
fn ctrl_c_cancels() {
    let palyra = Palyra::new();
    let started = vec![
        accepted(),
        json!({"event": "output", "stream": "stdout", "base64": "aGk="}),
    ];
    let fake = Fake::listen(
        &palyra.home(),
        &[("POST /api/v1/calls", Answer::Silence(started))],
    );
    let mut child = palyra
        .command(&["exec", "--", "sleep", "60"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut hi = [0; 2];
    child.stdout.as_mut().unwrap().read_exact(&mut hi).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap()).exits(130);
    assert!(ran.stderr.contains(&format!("cancelled {CALL}")), "{ran:?}");
    fake.gone
        .recv_timeout(std::time::Duration::from_secs(10))
        .unwrap();
}

#[test]
fn ctrl_c_is_heard_while_nobody_reads_the_output() {
    let palyra = Palyra::new();
    // More than a pipe holds, so that it cannot be written to its end.
    let large = "A".repeat(256 << 10);
    let piece = json!({"event": "output", "stream": "stdout", "base64": large});
    let fake = Fake::listen(
        &palyra.home(),
        &[(
            "POST /api/v1/calls",
            Answer::Silence(vec![accepted(), piece]),
        )],
    );
    let mut command = palyra.command(&["exec", "--", "yes"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    fake.gone
        .recv_timeout(std::time::Duration::from_secs(10))
        .unwrap();
}

#[test]
fn a_reader_that_leaves_cancels() {
    let palyra = Palyra::new();
    // Endless, since a process that is just being forked may hold the pipe a moment longer.
    let chunk = json!({"event": "output", "stream": "stdout", "base64": "aGk="});
    let fake = Fake::listen(
        &palyra.home(),
        &[("POST /api/v1/calls", Answer::Endless(chunk))],
    );
    let mut child = palyra
        .command(&["exec", "--", "yes"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(141));
    fake.gone
        .recv_timeout(std::time::Duration::from_secs(10))
        .unwrap();
}

#[test]
fn a_daemon_that_dies_in_the_middle_is_said() {
    let (palyra, _fake) = answering(vec![accepted()]);
    palyra
        .run(&["exec", "--", "id"])
        .exits(125)
        .complains("broke", "palyra calls list");
}

#[test]
fn call_prints_what_the_tool_gave_back() {
    let done = finished(
        "completed",
        &json!({"output": {"message": "hi"}, "exit_code": null}),
    );
    let (palyra, fake) = answering(vec![accepted(), done]);
    let ran = palyra
        .run(&["call", "palyra.echo", "--args", r#"{ "message": "hi" }"#])
        .exits(0);
    assert_eq!(ran.json(), json!({"message": "hi"}));
    let asked = fake.asked();
    let body = &asked.last().unwrap().body;
    assert!(
        body.contains(r#""arguments":{ "message": "hi" }"#),
        "as written: {body}"
    );
    for malformed in [r#"{"a":1,"a":2}"#, "{", "[9007199254740993]"] {
        let ran = palyra
            .run(&["call", "palyra.echo", "--args", malformed])
            .exits(2);
        ran.complains("", "palyra tools show palyra.echo");
    }
    assert_eq!(fake.asked().len(), asked.len(), "nothing ambiguous is sent");
}

#[test]
fn call_reads_arguments_from_files_and_standard_input() {
    let (palyra, fake) = answering(vec![finished("completed", &json!({}))]);
    std::fs::write(palyra.path("work/a.json"), r#"{"n":1}"#).unwrap();
    palyra
        .run(&["call", "some.tool", "--args", "@a.json"])
        .exits(0);
    assert_eq!(fake.call()["arguments"], json!({"n": 1}));
    let from_file = std::fs::File::open(palyra.path("work/a.json")).unwrap();
    let mut piped = palyra.command(&["call", "some.tool", "--args", "-"]);
    assert!(piped.stdin(from_file).status().unwrap().success());
    palyra
        .run(&["call", "some.tool", "--args", "@none"])
        .exits(2)
        .complains("none", "--args");
}

/// Who was slow misses pieces while the call runs; its end brings them, and nothing comes twice.
#[test]
fn what_was_missed_comes_at_the_end_in_its_place() {
    let output = |stream: &str, base64: &str, missed: u64| json!({"event": "output", "stream": stream, "base64": base64, "missed": missed});
    let kept = json!({"stdout": {"text": "abcdef"}, "stderr": {"text": "xy"}});
    let (palyra, _fake) = answering(vec![
        accepted(),
        json!({"event": "started"}),
        output("stdout", "YWI=", 0),
        output("stderr", "eHk=", 0),
        output("stdout", "ZQ==", 2),
        output("stdout", "Zg==", 0),
        finished("completed", &json!({"exit_code": 0, "output": kept})),
    ]);
    let ran = palyra.run(&["exec", "--", "prog"]).exits(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("abcdef", "xy"));
}

#[test]
fn standard_input_is_sent_while_it_runs() {
    let palyra = Palyra::new();
    let input = format!("POST /api/v1/calls/{CALL}/input");
    let events = vec![accepted(), json!({"event": "started"})];
    let fake = Fake::listen(
        &palyra.home(),
        &[
            ("POST /api/v1/calls", Answer::Silence(events)),
            (&input, Answer::Json(200, json!({"call_id": CALL}))),
        ],
    );
    let mut command = palyra.command(&["exec", "-i", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"\xffhello").unwrap();
    let sent = || -> Vec<Value> {
        let asked = fake.asked().into_iter().filter(|asked| asked.line == input);
        asked
            .map(|asked| serde_json::from_str(&asked.body).unwrap())
            .collect()
    };
    palyra_testkit::eventually("the end is sent", || {
        (sent().last()? == &json!({"end": true})).then_some(())
    });
    assert_eq!(
        sent(),
        [json!({"base64": "/2hlbGxv"}), json!({"end": true})]
    );
    assert_eq!(fake.call()["arguments"]["interactive"], "stdin");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_terminal_is_demanded_and_shows_what_a_document_would_hide() {
    let palyra = Palyra::new();
    palyra
        .run(&["exec", "-it", "--", "sh"])
        .exits(125)
        .complains("not a terminal", "-i");
    palyra
        .run(&["exec", "-it", "--json", "--", "sh"])
        .exits(125)
        .complains("exclude each other", "--json");
    for words in [
        &["exec", "-t", "--", "sh"][..],
        &["exec", "-i", "--stdin", "--", "sh"],
    ] {
        let _ = palyra.run(words).exits(125);
    }
}
