//! Secrets of the real vault: the tool sees what stands for one, the host gets the secret, and
//! nobody else gets either.

use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use palyra_testkit::{Daemon, Ran};
use serde_json::Value;

use super::world::{Host, connections, refused};

const VALUE: &str = "s3cret-value-of-the-vault-0123456789";

/// A host that speaks TLS, vouched for by an authority of the test's own; keeps what it was sent.
struct SecureHost {
    server: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl SecureHost {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let script = format!(
            "cd {at}; openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 \
             -subj /CN=test-authority 2>/dev/null && \
             openssl req -newkey rsa:2048 -nodes -keyout key.pem -out leaf.csr \
             -subj /CN=secure.example 2>/dev/null && \
             printf 'subjectAltName=DNS:secure.example' >ext && \
             openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile ext -out cert.pem 2>/dev/null"
        );
        let made = Command::new("/bin/sh").args(["-c", &script]).status();
        assert!(made.unwrap().success(), "apt install openssl");
        let script = "import http.server, ssl, sys\n\
            class H(http.server.BaseHTTPRequestHandler):\n\
            \x20   def do_GET(self):\n\
            \x20       open('heads', 'a').write(self.requestline + '\\n' + str(self.headers))\n\
            \x20       self.send_response(200); self.send_header('content-length', '7'); self.end_headers()\n\
            \x20       self.wfile.write(b'secure\\n')\n\
            \x20   def log_message(self, *a): pass\n\
            s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)\n\
            c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); c.load_cert_chain('cert.pem', 'key.pem')\n\
            s.socket = c.wrap_socket(s.socket, server_side=True)\n\
            print(s.server_address[1], flush=True)\n\
            s.serve_forever()";
        let mut server = Command::new("/usr/bin/python3")
            .args(["-c", script])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(server.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        Self {
            server,
            port,
            folder,
        }
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

impl Drop for SecureHost {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A daemon that knows the host, and has a secret for it.
fn daemon(secure: &SecureHost, plain: &Host) -> Daemon {
    let config = format!(
        "[egress]\nallowed_hosts = [\"secure.example:{0}\", \"plain.example:{1}\"]\ntrust = \
         \"{2}/ca.pem\"\n[egress.addresses]\n\"secure.example\" = \"127.0.0.1\"\n\"plain.example\" = \
         \"127.0.0.1\"\n",
        secure.port,
        plain.port,
        secure.folder.path().display(),
    );
    let daemon = Daemon::builder().config(&config).start();
    let audience = format!("secure.example:{}", secure.port);
    let put = ["vault", "put", "token", "--audience", &audience];
    let _ = daemon.palyra_with_input(&put, VALUE).expect_code(0);
    daemon
}

fn run(daemon: &Daemon, secure: &SecureHost, plain: &Host, script: &str) -> Value {
    let hosts = [
        format!("secure.example:{}", secure.port),
        format!("plain.example:{}", plain.port),
    ];
    let words = [
        "exec",
        "--json",
        "--allow-host",
        &hosts[0],
        "--allow-host",
        &hosts[1],
        "--secret",
        "TOKEN=token",
        "--secret",
        "@.token=token",
        "--",
        "bash",
        "-c",
        script,
    ];
    let ran = daemon.palyra(&words);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{} {}", ran.stdout, ran.stderr))
}

#[test]
fn the_host_gets_the_secret_and_the_tool_never_has_it() {
    let (secure, plain) = (SecureHost::new(), Host::says("plain"));
    let daemon = daemon(&secure, &plain);
    let url = format!("https://secure.example:{}/", secure.port);
    let script = format!(
        "echo $TOKEN; cat ~/.token; echo; \
         curl -sS -H \"Authorization: Bearer $TOKEN\" {url}; \
         curl -sS --noproxy '*' -H \"Authorization: Bearer $TOKEN\" {url}; \
         curl -sS -H \"Authorization: Bearer $(cat ~/.token)\" {url}; env; cat /run/palyra/ca.pem | wc -l"
    );
    let result = run(&daemon, &secure, &plain, &script);
    let said = result["output"]["stdout"]["text"].as_str().unwrap();
    assert_eq!(said.matches("secure\n").count(), 3, "{result}");
    assert!(said.starts_with("palyra_secret_"), "{result}");
    assert!(
        !result.to_string().contains(VALUE),
        "the tool or the record has it"
    );
    let heads = secure.file("heads");
    assert_eq!(
        heads.matches(&format!("Bearer {VALUE}")).count(),
        3,
        "{heads}"
    );
    assert!(!heads.contains("palyra_secret_"), "{heads}");
    // Which secret went along is in the record.
    let carried = connections(&result);
    let carried = carried.iter().filter(|record| {
        let secrets = record["credentials"].as_array();
        secrets.is_some_and(|secrets| !secrets.is_empty())
    });
    assert_eq!(carried.count(), 3, "{result}");
}

#[test]
fn other_clients_carry_it_too() {
    let (secure, plain) = (SecureHost::new(), Host::says("plain"));
    let daemon = daemon(&secure, &plain);
    let url = format!("https://secure.example:{}/", secure.port);
    let script = format!(
        "/usr/bin/python3 -c \"import urllib.request as r, os; print(r.urlopen(r.Request('{url}', \
         headers={{'Authorization': 'Bearer ' + os.environ['TOKEN']}})).read().decode().strip())\""
    );
    let result = run(&daemon, &secure, &plain, &script);
    assert_eq!(result["output"]["stdout"]["text"], "secure\n", "{result}");
    assert!(secure.file("heads").contains(VALUE));
    if !Path::new("/usr/bin/node").exists() {
        assert!(std::env::var_os("CI").is_none(), "apt install nodejs");
        return;
    }
    let script = format!(
        "node -e \"fetch('{url}', {{headers: {{Authorization: 'Bearer ' + process.env.TOKEN}}}})\
         .then(a => a.text()).then(t => console.log(t.trim()))\""
    );
    let result = run(&daemon, &secure, &plain, &script);
    assert_eq!(result["output"]["stdout"]["text"], "secure\n", "{result}");
    assert_eq!(secure.file("heads").matches(VALUE).count(), 2);
}

/// What stands for a secret, sent to another host: blocked, recorded, and raised.
#[test]
fn a_placeholder_toward_another_host_is_blocked_and_raised() {
    let (secure, plain) = (SecureHost::new(), Host::says("plain"));
    let daemon = daemon(&secure, &plain);
    let url = format!("http://plain.example:{}/", plain.port);
    let script = format!(
        "curl -sS -H \"Authorization: Bearer $TOKEN\" {url}; curl -sS \"{url}?x=$TOKEN\"; \
         curl -sS --noproxy '*' -H \"X: $TOKEN\" {url}; echo; echo control; curl -sS {url}"
    );
    let result = run(&daemon, &secure, &plain, &script);
    let said = result["output"]["stdout"]["text"].as_str().unwrap();
    assert!(said.ends_with("control\nplain\n"), "{result}");
    let codes = refused(&result);
    assert!(
        codes.iter().any(|code| code == "secret_misdirected"),
        "{result}"
    );
    let heads = plain.heads.lock().unwrap().join("\n");
    assert!(
        !heads.contains("palyra_secret_") && !heads.contains(VALUE),
        "{heads}"
    );
    let audit = daemon.palyra(&["vault", "audit", "token"]).expect_code(0);
    assert!(audit.stdout.contains("misdirected"), "{}", audit.stdout);
}

#[test]
fn a_secret_that_is_not_there_or_not_for_the_agent_is_denied_before_anything_starts() {
    let (secure, plain) = (SecureHost::new(), Host::says("plain"));
    let daemon = daemon(&secure, &plain);
    let host = format!("secure.example:{}", secure.port);
    let words = |secret: &'static str| {
        let host = host.clone();
        move |daemon: &Daemon| {
            let words = [
                "exec",
                "--json",
                "--allow-host",
                &host,
                "--secret",
                secret,
                "--",
                "touch",
                "made",
            ];
            daemon.palyra(&words)
        }
    };
    let ran = words("TOKEN=missing")(&daemon);
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(result["problem"]["code"], "secret_denied", "{result}");
    assert!(!daemon.workspace().join("made").exists());
    // Another agent's, even with a person's yes to the call.
    daemon.add_agent("a");
    let put = [
        "vault",
        "put",
        "own",
        "--scope",
        "agent:b",
        "--audience",
        &host,
    ];
    let _ = daemon.palyra_with_input(&put, VALUE).expect_code(0);
    let by_agent = |secret: &'static str| {
        let words = [
            "exec",
            "--as",
            "agent:a",
            "--json",
            "--allow-host",
            &host,
            "--secret",
            secret,
            "--",
            "touch",
            "made",
        ];
        let call = daemon.palyra_in_background(&words);
        let asked = daemon.pending_approval();
        let shown = daemon.palyra(&["approvals", "show", &asked]).expect_code(0);
        for reason in ["it uses a secret", "has not connected to"] {
            assert!(shown.stdout.contains(reason), "{reason}: {shown:?}");
        }
        let yes = ["approvals", "decide", &asked, "--decision", "allow"];
        let _ = daemon.palyra(&yes).expect_code(0);
        Ran::from(call.wait_with_output().unwrap())
    };
    let ran = by_agent("TOKEN=agent:b/own");
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(result["problem"]["code"], "secret_denied", "{result}");
    assert!(!daemon.workspace().join("made").exists());
    // The control: its own.
    let put = [
        "vault",
        "put",
        "mine",
        "--scope",
        "agent:a",
        "--audience",
        &host,
    ];
    let _ = daemon.palyra_with_input(&put, VALUE).expect_code(0);
    assert_eq!(by_agent("TOKEN=agent:a/mine").code, Some(0));
    std::fs::remove_file(daemon.workspace().join("made")).unwrap();
    // Without hosts there is nowhere to send it.
    let ran = daemon.palyra(&["exec", "--secret", "TOKEN=token", "--", "touch", "made"]);
    assert!(ran.stderr.contains("--allow-host"), "{}", ran.stderr);
    // The control.
    let ran = words("TOKEN=token")(&daemon);
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    assert!(daemon.workspace().join("made").exists());
}
