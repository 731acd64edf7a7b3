//! A call's output and input while it runs, through the API.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palyra_api::ClientError;
use palyra_api::client::Events;
use palyra_api::wire::{CallEvent, CallInput, CallResult, InputTaken, OutputStream};
use palyra_testkit::{Daemon, eventually};
use serde_json::json;

type Told = Events<CallEvent>;

async fn start(daemon: &Daemon, arguments: serde_json::Value) -> (Told, String) {
    let body = json!({
        "tool": "palyra.process.run", "arguments": arguments, "workspace": daemon.workspace(),
    });
    let mut client = daemon.client().await;
    let mut told = client.call_events(body.to_string().into()).await.unwrap();
    match told.next().await.unwrap() {
        Some(CallEvent::Accepted { call_id }) => (told, call_id),
        other => panic!("{other:?}"),
    }
}

/// What is written until `text` comes, and how much of it was missed.
async fn until(told: &mut Told, text: &str) -> (String, u64) {
    let (mut all, mut lost) = (String::new(), 0);
    while !all.contains(text) {
        match told.next().await.unwrap() {
            Some(CallEvent::Output { base64, missed, .. }) => {
                all += &String::from_utf8(STANDARD.decode(base64).unwrap()).unwrap();
                lost += missed;
            }
            Some(CallEvent::Started) => {}
            other => panic!("{all}: {other:?}"),
        }
    }
    (all, lost)
}

/// The end, and what was written and missed before it.
async fn end(told: &mut Told) -> (CallResult, [(Vec<u8>, u64); 2]) {
    let mut written = [(Vec::new(), 0), (Vec::new(), 0)];
    loop {
        match told.next().await.unwrap() {
            Some(CallEvent::Output {
                stream,
                base64,
                missed,
            }) => {
                let to = &mut written[usize::from(stream == OutputStream::Stderr)];
                to.0.extend(STANDARD.decode(base64).unwrap());
                to.1 += missed;
            }
            Some(CallEvent::Finished { result }) => return (*result, written),
            Some(CallEvent::Started) => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn send(daemon: &Daemon, call: &str, input: &CallInput) -> Result<InputTaken, ClientError> {
    let mut client = daemon.client().await;
    client
        .post(&format!("/api/v1/calls/{call}/input"), input)
        .await
}

fn bytes(text: &str) -> CallInput {
    CallInput {
        base64: Some(STANDARD.encode(text)),
        ..CallInput::default()
    }
}

fn status(refused: Result<InputTaken, ClientError>) -> u16 {
    let error = refused.unwrap_err();
    let ClientError::Refused { status, .. } = error else {
        panic!("{error:?}");
    };
    status
}

/// What is written is heard before the call ends: it does not end before it is answered.
#[tokio::test]
async fn output_is_heard_and_input_is_read_while_it_runs() {
    let daemon = Daemon::start();
    let script = "echo one; read a; echo two $a >&2; read b; echo three $b; cat; exit 4";
    let arguments = json!({ "argv": ["sh", "-c", script], "interactive": "stdin" });
    let (mut told, call) = start(&daemon, arguments).await;
    until(&mut told, "one\n").await;
    send(&daemon, &call, &bytes("A\n")).await.unwrap();
    until(&mut told, "two A\n").await;
    send(&daemon, &call, &bytes("B\nrest")).await.unwrap();
    until(&mut told, "three B\n").await;
    let over = CallInput {
        end: true,
        ..CallInput::default()
    };
    send(&daemon, &call, &over).await.unwrap();
    let (result, _) = end(&mut told).await;
    assert_eq!(result.exit_code, Some(4));
    let output = result.output.unwrap();
    assert_eq!(output["stdout"]["text"], "one\nthree B\nrest");
    assert_eq!(output["stderr"]["text"], "two A\n");
    assert_eq!(status(send(&daemon, &call, &bytes("late")).await), 404);
}

#[tokio::test]
async fn pieces_come_in_the_order_in_which_they_were_written() {
    let daemon = Daemon::start();
    let arguments = json!({ "argv": ["seq", "1", "100000"] });
    let (mut told, _) = start(&daemon, arguments).await;
    let (result, [(stdout, missed), _]) = end(&mut told).await;
    let expected: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(missed, 0);
    assert!(stdout == expected.as_bytes());
    assert_eq!(result.output.unwrap()["stdout"]["text"], expected);
}

/// A watcher who reads nothing: the call ends all the same, and so does its time.
#[tokio::test]
async fn who_reads_nothing_holds_up_neither_the_call_nor_its_limits() {
    let daemon = Daemon::start();
    let much = json!({ "argv": ["sh", "-c", "head -c 200000000 /dev/zero | tr '\\0' x"] });
    let endless = json!({ "argv": ["yes"], "timeout_ms": 500 });
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        let kib = line.split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap()
    };
    let before = memory();
    let (mut much, much_id) = start(&daemon, much).await;
    let (mut endless, endless_id) = start(&daemon, endless).await;
    for (id, state) in [(much_id, "completed"), (endless_id, "timed_out")] {
        eventually("it is over", || {
            let shown = daemon.palyra(&["calls", "list", "--json"]).expect_code(0);
            let shown = shown.json();
            let mut calls = shown["items"].as_array()?.iter();
            calls
                .find(|call| call["call_id"] == id && call["state"] == state)
                .map(drop)
        });
    }
    // Of far more than this, what is kept (8 MiB each) and what is under way, in a few copies.
    assert!(
        memory() - before < 200_000,
        "{before} kB, then {} kB",
        memory()
    );
    let (result, [(stdout, missed), _]) = end(&mut much).await;
    assert!(missed > 0, "it is told");
    let output = result.output.unwrap();
    assert_eq!(output["stdout_bytes"], 200_000_000);
    let kept = output["stdout"]["text"].as_str().unwrap();
    let shown = stdout.len() as u64 + missed;
    assert_eq!(kept.len() as u64, shown, "nothing is lost that is kept");
    let (_, [(_, missed), _]) = end(&mut endless).await;
    assert!(missed > 0);
}

#[tokio::test]
async fn input_reaches_only_ones_own_calls_that_take_it() {
    let daemon = Daemon::start();
    daemon.add_agent("a");
    let (mut told, call) = start(&daemon, json!({ "argv": ["cat"], "interactive": "stdin" })).await;
    let mut agent = daemon.client().await.lowered_to(Some("agent:a".to_owned()));
    let path = format!("/api/v1/calls/{call}/input");
    let intruding: Result<InputTaken, _> = agent.post(&path, &bytes("intruder")).await;
    assert_eq!(status(intruding), 404);
    // The same person from elsewhere is not who made the call.
    let mut elsewhere = daemon.command(std::path::Path::new("setsid"));
    elsewhere.args([
        "--wait",
        "curl",
        "-s",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
    ]);
    elsewhere.arg("--unix-socket").arg(daemon.home().socket());
    elsewhere.args(["-H", "content-type: application/json", "-d"]);
    elsewhere.arg(json!({ "base64": "aW50cnVkZXI=" }).to_string());
    let intruding = elsewhere.arg(format!("http://localhost{path}")).output();
    assert_eq!(intruding.unwrap().stdout, b"404");
    let too_much = bytes(&"x".repeat((64 << 10) + 1));
    assert_eq!(status(send(&daemon, &call, &too_much).await), 413);
    let garbled = CallInput {
        base64: Some("*".to_owned()),
        ..CallInput::default()
    };
    assert_eq!(status(send(&daemon, &call, &garbled).await), 400);
    assert_eq!(
        status(send(&daemon, "call_nonsense", &bytes("x")).await),
        404
    );
    let fine = CallInput {
        end: true,
        ..bytes("mine")
    };
    send(&daemon, &call, &fine).await.unwrap();
    let (result, _) = end(&mut told).await;
    assert_eq!(result.output.unwrap()["stdout"]["text"], "mine");

    let (told, call) = start(&daemon, json!({ "argv": ["sleep", "60"] })).await;
    assert_eq!(status(send(&daemon, &call, &bytes("x")).await), 409);
    drop(told);
    let both = json!({ "argv": ["cat"], "interactive": "stdin", "stdin": "x" });
    let both = json!({
        "tool": "palyra.process.run", "arguments": both, "workspace": daemon.workspace(),
    });
    let refused = daemon
        .client()
        .await
        .call_events(both.to_string().into())
        .await;
    assert!(matches!(
        refused,
        Err(ClientError::Refused { status: 400, .. })
    ));
}

/// What is typed is known to nobody who decides: not even of a pager is it known what it does.
#[tokio::test]
async fn what_is_typed_later_is_not_understood() {
    let daemon = Daemon::start();
    for (interactive, opaque) in [
        (None, false),
        (Some("stdin"), true),
        (Some("terminal"), true),
    ] {
        let mut arguments = json!({ "argv": ["cat", "x"] });
        if let Some(how) = interactive {
            arguments["interactive"] = how.into();
        }
        let (mut told, call) = start(&daemon, arguments).await;
        end(&mut told).await;
        let record = daemon
            .palyra(&["calls", "show", &call, "--json"])
            .expect_code(0);
        assert_eq!(record.json()["facts"]["opaque"], opaque, "{interactive:?}");
    }
}
