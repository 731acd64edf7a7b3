//! Standard input, sent to a call while it runs.
//!
//! A thread of its own waits for what is typed: nothing else can be waited for that way, and it goes
//! with the process. One request follows another, so what is typed arrives in order; what comes while
//! one is under way goes along with the next.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palyra_api::wire::{CallInput, InputTaken};
use palyra_api::{Client, ClientError};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::failure::Failure;
use crate::session::Session;
use crate::terminal;

/// What the daemon takes at once.
const MOST: usize = 64 << 10;

/// Pieces that wait while one is sent.
const MOST_WAITING: usize = 4;

/// Sends until it is dropped.
pub struct Sending(JoinHandle<()>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What is sent besides what is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Along {
    /// Nothing.
    Nothing,
    /// The size of the terminal, whenever it changes.
    Window,
}

/// Starts to send standard input to this call.
///
/// # Errors
/// The daemon cannot be reached a second time.
pub async fn start(call: &str, along: Along, session: &Session) -> Result<Sending, Failure> {
    let client = session.connect().await?;
    let changes = match along {
        Along::Nothing => None,
        Along::Window => signal(SignalKind::window_change()).ok(),
    };
    let sender = Sender {
        client,
        path: format!("/api/v1/calls/{call}/input"),
        typed: typed(),
        changes,
    };
    Ok(Sending(tokio::spawn(sender.run())))
}

/// What comes on standard input, piece by piece; closed at its end.
fn typed() -> mpsc::Receiver<Vec<u8>> {
    let (to, typed) = mpsc::channel(MOST_WAITING);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = vec![0; MOST / MOST_WAITING];
        loop {
            let length = match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => length,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let piece = buffer.get(..length).unwrap_or_default().to_vec();
            if to.blocking_send(piece).is_err() {
                return;
            }
        }
    });
    typed
}

struct Sender {
    client: Client,
    path: String,
    typed: mpsc::Receiver<Vec<u8>>,
    changes: Option<Signal>,
}

impl Sender {
    /// Until the input has ended, or the call takes no more: how that came is the call's to tell.
    async fn run(mut self) {
        // It may have changed since the call was proposed.
        let mut next = CallInput {
            window: self.changes.as_ref().and_then(|_| terminal::window()),
            ..CallInput::default()
        };
        let mut ended = false;
        loop {
            ended |= next.end;
            if next != CallInput::default() && self.send(&next).await.is_err() {
                return;
            }
            next = match (ended, &mut self.changes) {
                (true, None) => return,
                (true, Some(changes)) => {
                    changes.recv().await;
                    resized()
                }
                (false, None) => with_more(self.typed.recv().await, &mut self.typed),
                (false, Some(changes)) => tokio::select! {
                    piece = self.typed.recv() => with_more(piece, &mut self.typed),
                    _ = changes.recv() => resized(),
                },
            };
        }
    }

    async fn send(&mut self, input: &CallInput) -> Result<InputTaken, ClientError> {
        self.client.post(&self.path, input).await
    }
}

fn resized() -> CallInput {
    CallInput {
        window: terminal::window(),
        ..CallInput::default()
    }
}

/// A piece and all that came meanwhile, as far as it is taken at once.
fn with_more(piece: Option<Vec<u8>>, typed: &mut mpsc::Receiver<Vec<u8>>) -> CallInput {
    let Some(mut bytes) = piece else {
        return CallInput {
            end: true,
            ..CallInput::default()
        };
    };
    while bytes.len() <= MOST - MOST / MOST_WAITING
        && let Ok(more) = typed.try_recv()
    {
        bytes.extend(more);
    }
    CallInput {
        base64: Some(STANDARD.encode(bytes)),
        ..CallInput::default()
    }
}
