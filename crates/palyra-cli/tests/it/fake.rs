//! A daemon that says what it is told to: enough HTTP for one client.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// One request, as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

/// What to answer to a request line such as `GET /healthz`.
#[derive(Clone)]
pub(crate) enum Answer {
    Json(u16, serde_json::Value),
    /// Lines of a call's events, then the end of the stream.
    Events(Vec<serde_json::Value>),
    /// Lines of a call's events, then silence.
    Silence(Vec<serde_json::Value>),
    /// One event, over and over until the client leaves.
    Endless(serde_json::Value),
}

pub(crate) struct Fake {
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Told when a client goes away in the middle of a silence.
    pub(crate) gone: std::sync::mpsc::Receiver<()>,
}

impl Fake {
    /// Listens in this home until the test ends.
    pub(crate) fn listen(home: &Path, answers: &[(&str, Answer)]) -> Self {
        std::fs::create_dir_all(home).unwrap();
        let listener = UnixListener::bind(home.join("palyrad.sock")).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let known: HashMap<String, Answer> = answers
            .iter()
            .map(|(line, answer)| ((*line).to_owned(), answer.clone()))
            .collect();
        let (tell, gone) = std::sync::mpsc::channel();
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, known, tell) = (Arc::clone(&log), known.clone(), tell.clone());
                std::thread::spawn(move || serve(&stream.unwrap(), &known, &log, &tell));
            }
        });
        Self { asked, gone }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The body of the one call that was made.
    pub(crate) fn call(&self) -> serde_json::Value {
        let asked = self.asked();
        let call = asked
            .iter()
            .find(|asked| asked.line == "POST /api/v1/calls")
            .unwrap();
        serde_json::from_str(&call.body).unwrap()
    }
}

fn serve(
    stream: &UnixStream,
    known: &HashMap<String, Answer>,
    log: &Mutex<Vec<Asked>>,
    tell: &std::sync::mpsc::Sender<()>,
) {
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read_request(&mut reader) {
        let answer = known.get(&asked.line).cloned().unwrap_or_else(|| {
            let error = serde_json::json!({
                "code": "no_such_route", "message": asked.line, "next_step": "mend the test"
            });
            Answer::Json(404, serde_json::json!({ "error": error }))
        });
        log.lock().unwrap().push(asked);
        let mut to = stream;
        match answer {
            Answer::Json(status, body) => {
                let body = body.to_string();
                write!(
                    to,
                    "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
                .unwrap();
            }
            Answer::Events(events) => {
                write_events(to, &events).unwrap();
                write!(to, "0\r\n\r\n").unwrap();
            }
            Answer::Silence(events) => {
                let _ = write_events(to, &events);
                let _ = reader.read(&mut [0]);
                let _ = tell.send(());
                return;
            }
            Answer::Endless(event) => {
                let _ = write_head(to);
                while write_event(to, &event).is_ok() {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                let _ = tell.send(());
                return;
            }
        }
    }
}

/// The client may leave in the middle; that is what some tests are about.
fn write_events(to: &UnixStream, events: &[serde_json::Value]) -> std::io::Result<()> {
    write_head(to)?;
    events.iter().try_for_each(|event| write_event(to, event))
}

fn write_head(mut to: &UnixStream) -> std::io::Result<()> {
    to.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
}

/// In two pieces, so that lines arrive split.
fn write_event(mut to: &UnixStream, event: &serde_json::Value) -> std::io::Result<()> {
    let line = format!("{event}\n");
    let (one, other) = line.as_bytes().split_at(line.len() / 2);
    for piece in [one, other] {
        write!(to, "{:x}\r\n", piece.len())?;
        to.write_all(piece)?;
        write!(to, "\r\n")?;
    }
    Ok(())
}

fn read_request(reader: &mut BufReader<&UnixStream>) -> Option<Asked> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let line = line.rsplit_once(' ')?.0.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Asked {
        line,
        headers,
        body: String::from_utf8(body).unwrap(),
    })
}
