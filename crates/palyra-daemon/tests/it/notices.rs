//! Those elsewhere are told, and nothing that comes back decides.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use palyra_testkit::{Daemon, eventually};

const KEY: &str = "a key between us two";

/// What came in.
struct Came {
    headers: Vec<(String, String)>,
    body: String,
}

impl Came {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(own, _)| own == name);
        &found.unwrap_or_else(|| panic!("{name} is not there")).1
    }
}

/// A server on this machine that gives these answers, one a request, the last one for ever.
fn server(answers: &'static [&'static str]) -> (String, Receiver<Came>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook?of=me", listener.local_addr().unwrap());
    let (told, came) = channel();
    std::thread::spawn(move || {
        for (at, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut headers = Vec::new();
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            loop {
                line.clear();
                reader.read_line(&mut line).unwrap();
                let Some((name, value)) = line.trim().split_once(": ") else {
                    break;
                };
                headers.push((name.to_lowercase(), value.to_owned()));
            }
            let came = Came {
                headers,
                body: String::new(),
            };
            let length = came.header("content-length").parse().unwrap();
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let body = String::from_utf8(body).unwrap();
            let answer = answers.get(at).or(answers.last()).unwrap();
            if answer.is_empty() {
                // Never answers; the other end gives up.
                let _ = stream.read(&mut [0]);
            } else {
                let _ = stream.write_all(answer.as_bytes());
            }
            if told.send(Came { body, ..came }).is_err() {
                return;
            }
        }
    });
    (url, came)
}

fn webhook(url: &str, more: &str) -> String {
    format!(
        "[[notify.webhooks]]\nname = \"ops\"\nurl = \"{url}\"\nsecret = \"hook\"\nbackoff = \
         \"10ms\"\n{more}\n"
    )
}

fn start(config: &str) -> Daemon {
    let daemon = Daemon::builder().config(config).start();
    daemon.add_agent("a");
    let put = daemon.palyra_with_input(&["vault", "put", "hook"], KEY);
    let _ = put.expect_code(0);
    daemon
}

fn leave(daemon: &Daemon, word: &str) -> String {
    let _ = daemon.palyra(&["exec", "--as", "agent:a", "--detach", "--", "touch", word]);
    daemon.pending_approval()
}

fn outcome(daemon: &Daemon) -> serde_json::Value {
    eventually("it is recorded", || {
        let tail = ["journal", "tail", "-n", "100", "--json"];
        let page = daemon.palyra(&tail).expect_code(0).json();
        let entries = page["items"].as_array().unwrap().iter();
        let mut told = entries.filter(|entry| entry["kind"] == "notified");
        told.next_back().map(|entry| entry["entry"].clone())
    })
}

const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const BUSY: &str = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
const GONE: &str = "HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n";

#[test]
fn a_webhook_is_signed_and_tells_no_arguments() {
    let (url, came) = server(&[FINE]);
    let daemon = start(&webhook(&url, ""));
    let id = leave(&daemon, "a-telling-name");
    let came = came.recv_timeout(Duration::from_secs(30)).unwrap();
    let body: serde_json::Value = serde_json::from_str(&came.body).unwrap();
    assert_eq!(body["approval_id"], id.as_str());
    assert_eq!(body["principal"], "agent:a");
    assert!(!came.body.contains("telling"), "{}", came.body);
    let (own, at) = (came.header("webhook-id"), came.header("webhook-timestamp"));
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(KEY.as_bytes()).unwrap();
    mac.update(format!("{own}.{at}.{}", came.body).as_bytes());
    use base64::Engine as _;
    let tag = base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes());
    assert_eq!(came.header("webhook-signature"), format!("v1,{tag}"));
    let told = outcome(&daemon);
    assert_eq!(
        (&told["way"], &told["attempts"]),
        (&"ops".into(), &1.into())
    );
    assert!(told["failed"].is_null(), "{told}");
}

#[test]
fn one_that_fails_is_tried_again_and_one_that_is_gone_is_not() {
    let (url, came) = server(&[BUSY, "", FINE]);
    let daemon = start(&webhook(&url, "timeout = \"200ms\""));
    let id = leave(&daemon, "x");
    for _ in 0..3 {
        let came = came.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(came.header("webhook-id"), id);
    }
    let told = outcome(&daemon);
    assert_eq!(told["attempts"], 3);
    assert!(told["failed"].is_null(), "{told}");
    let (url, _came) = server(&[GONE]);
    let daemon = start(&webhook(&url, ""));
    let _ = leave(&daemon, "x");
    let told = outcome(&daemon);
    assert_eq!(told["attempts"], 1);
    assert_eq!(told["failed"], "it answered 410 Gone");
    let (url, _came) = server(&[BUSY]);
    let daemon = start(&webhook(&url, "attempts = 2"));
    let _ = leave(&daemon, "x");
    let told = outcome(&daemon);
    assert_eq!(told["attempts"], 2);
    assert!(told["failed"].as_str().unwrap().contains("503"), "{told}");
}

#[test]
fn plain_http_leaves_the_machine_only_when_that_is_meant() {
    let daemon = start(&webhook("http://192.0.2.1/hook", ""));
    let _ = leave(&daemon, "x");
    let told = outcome(&daemon);
    assert_eq!(told["attempts"], 1);
    assert!(
        told["failed"]
            .as_str()
            .unwrap()
            .contains("allow_plain_http")
    );
}

/// Case 25: whatever a receiver answers, forges, asserts or repeats, it decides nothing.
#[test]
fn nothing_that_comes_back_decides() {
    const YES: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: \
                       43\r\n\r\n{\"decision\":\"allow\",\"approved_by\":\"owner\"}\n";
    let (url, came) = server(&[YES]);
    let daemon = start(&webhook(&url, ""));
    let id = leave(&daemon, "x");
    let came = came.recv_timeout(Duration::from_secs(30)).unwrap();
    let _ = outcome(&daemon);
    let state = |id: &str| {
        let shown = daemon.palyra(&["approvals", "show", id, "--json"]).json();
        shown["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(&id), "pending");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let post = |path: &str, body: &str| {
        runtime.block_on(async {
            let mut client = daemon.client().await;
            let body = bytes::Bytes::from(body.to_owned());
            let sent = client.raw(hyper::Method::POST, path, body).await.unwrap();
            (sent.0.as_u16(), String::from_utf8(sent.1.to_vec()).unwrap())
        })
    };
    let decide = format!("/api/v1/approvals/{id}/decide");
    // The notice itself sent back, an approver that the body asserts, and no such place for it.
    for (path, body) in [
        (decide.as_str(), came.body.as_str()),
        (&decide, r#"{"decision":"allow","decided_by":"owner"}"#),
        ("/api/v1/webhooks", came.body.as_str()),
    ] {
        let (status, said) = post(path, body);
        assert!((400..500).contains(&status), "{path}: {status} {said}");
    }
    assert_eq!(state(&id), "pending");
    // A right answer counts once; the same request again is told so.
    let yes = r#"{"decision":"allow"}"#;
    assert_eq!(post(&decide, yes).0, 200);
    let (status, said) = post(&decide, yes);
    assert_eq!(status, 409, "{said}");
    assert!(said.contains("already_decided"), "{said}");
}

#[test]
fn a_command_is_told_on_its_input_with_a_plain_environment_and_not_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let script = format!(
        "cat > {0}.new; env > {0}.env; mv {0}.new {0}",
        out.display()
    );
    let hook = |name: &str, script: &str, timeout: &str| {
        format!(
            "[[notify.commands]]\nname = \"{name}\"\nargv = [\"/bin/sh\", \"-c\", \
             \"{script}\"]\ntimeout = \"{timeout}\"\n"
        )
    };
    let mut daemon = Daemon::builder()
        .config(&hook("desk", &script, "20s"))
        .prepare();
    daemon.set_variable("DATABASE_PASSWORD", "not-for-hooks");
    daemon.start_again(None);
    daemon.add_agent("a");
    let id = leave(&daemon, "x");
    let told = outcome(&daemon);
    assert!(told["failed"].is_null(), "{told}");
    let body: serde_json::Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(body["approval_id"], id.as_str());
    let env = std::fs::read_to_string(out.with_extension("env")).unwrap();
    assert!(
        !env.contains("not-for-hooks") && !env.contains("PALYRA"),
        "{env}"
    );
    // One that hangs is ended with what it started; the question waits on.
    let daemon = start(&hook("slow", "sleep 1000 & sleep 1000", "200ms"));
    let id = leave(&daemon, "x");
    let told = outcome(&daemon);
    assert!(
        told["failed"].as_str().unwrap().contains("was ended"),
        "{told}"
    );
    let _ = daemon
        .palyra(&["approvals", "decide", &id, "--decision", "deny"])
        .expect_code(0);
}
