//! Hosts that a test makes itself, and a daemon whose calls may ask for some of them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use palyra_testkit::{Daemon, Ran};
use serde_json::Value;

/// An HTTP server on the machine's loopback: answers everything with its word, and keeps what it was
/// sent.
pub(crate) struct Host {
    pub(crate) port: u16,
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Host {
    pub(crate) fn says(word: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let (kept, count) = (Arc::clone(&heads), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || answer(stream, word, &kept));
            }
        });
        Self {
            port,
            heads,
            connections,
        }
    }

    /// How many came.
    pub(crate) fn came(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn answer(mut stream: TcpStream, word: &str, kept: &Mutex<Vec<String>>) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            Ok(_) | Err(_) => break,
        }
    }
    kept.lock()
        .unwrap()
        .push(String::from_utf8_lossy(&head).into_owned());
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{word}\n",
        word.len() + 1
    );
}

/// The machine's own datagrams, to see that none comes.
pub(crate) fn datagrams() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

/// A daemon that knows `good.example`, `other.example` and `sneaky.example` on this machine; the
/// first two may lie inside at the ports of two hosts.
pub(crate) struct World {
    pub(crate) daemon: Daemon,
    pub(crate) good: Host,
    pub(crate) other: Host,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// With more in the `[egress]` part of the configuration.
    pub(crate) fn with(more: &str) -> Self {
        Self::built(Daemon::builder(), more)
    }

    /// A daemon that is not root's.
    pub(crate) fn of_a_plain_user() -> Self {
        match palyra_testkit::is_root() {
            true => Self::built(Daemon::builder().uid(64_041), ""),
            false => Self::new(),
        }
    }

    fn built(builder: palyra_testkit::DaemonBuilder, more: &str) -> Self {
        let (good, other) = (Host::says("good"), Host::says("other"));
        let config = format!(
            "[egress]\nallowed_hosts = [\"good.example:{0}\", \"localhost:{0}\", \
             \"other.example:{1}\", \"sneaky.example\", \"127.0.0.1:{0}\", \"*.below.example\"]\n\
             {more}\n[egress.addresses]\n\"good.example\" = \"127.0.0.1\"\n\"other.example\" = \
             \"127.0.0.1\"\n\"sneaky.example\" = \"127.0.0.1\"\n",
            good.port, other.port
        );
        Self {
            daemon: builder.config(&config).start(),
            good,
            other,
        }
    }

    /// Where the first host is.
    pub(crate) fn url(&self) -> String {
        format!("http://good.example:{}/", self.good.port)
    }

    /// Runs a program that may reach the first host.
    pub(crate) fn exec(&self, argv: &[&str]) -> Ran {
        let host = format!("good.example:{}", self.good.port);
        self.exec_with(&["--allow-host", &host], argv)
    }

    pub(crate) fn exec_with(&self, flags: &[&str], argv: &[&str]) -> Ran {
        let words = ["exec"].iter().chain(flags).chain(&["--"]).chain(argv);
        let words: Vec<&str> = words.copied().collect();
        self.daemon.palyra(&words)
    }

    /// The same with everything that is known of it.
    pub(crate) fn exec_json(&self, flags: &[&str], argv: &[&str]) -> Value {
        let flags: Vec<&str> = ["--json"].iter().chain(flags).copied().collect();
        let ran = self.exec_with(&flags, argv);
        serde_json::from_str(&ran.stdout)
            .unwrap_or_else(|_| panic!("{} {}", ran.stdout, ran.stderr))
    }
}

/// The connections of a result.
pub(crate) fn connections(result: &Value) -> Vec<Value> {
    let list = result["output"]["network"]["connections"].as_array();
    list.cloned().unwrap_or_default()
}

/// The codes of what was refused.
pub(crate) fn refused(result: &Value) -> Vec<String> {
    let all = connections(result);
    let refused = all.iter().filter(|record| record["end"] == "refused");
    refused
        .filter_map(|record| record["code"].as_str().map(str::to_owned))
        .collect()
}

/// A program that the machine has, or a word that it is missing.
pub(crate) fn has(program: &str, install: &str) -> bool {
    let found = ["/usr/bin", "/usr/local/bin", "/bin"]
        .iter()
        .any(|folder| Path::new(folder).join(program).exists());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "install it: {install}");
        println!("not run: {program} is missing; to add it: {install}");
    }
    found
}
