//! Proving that a person is there: the passphrase is asked on the terminal itself, never taken from
//! standard input, an argument or the environment, which a program could fill.

use std::fs::File;
use std::io::{Read as _, Write as _};

use palyra_api::Client;
use palyra_api::wire::presence::{PRESENCE_REQUIRED, Presence};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::block_in_place;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::session::{Session, in_time};

/// How often a wrong one may be corrected.
const TRIES: usize = 3;

/// Longer than anybody types.
const LONGEST: usize = 1_024;

/// `POST`s; when the daemon wants to know that a person is there, asks them and tries again.
///
/// # Errors
/// The daemon refused, nobody is at a terminal, or the passphrase was wrong each time.
pub async fn post<B: Serialize, T: DeserializeOwned>(
    session: &Session,
    path: &str,
    body: &B,
) -> Result<T, Failure> {
    insist(session, path, body, true).await
}

/// The same connection for a call of one's own, which proves that a person makes it where that is
/// demanded. Without a terminal it goes on as it is, and policy says what it makes of that.
pub async fn proving(session: &Session, mut client: Client) -> Client {
    if session.agent.is_some() {
        return client;
    }
    let stands: Result<Presence, _> = in_time(client.get("/api/v1/presence")).await;
    let asks = stands.is_ok_and(|it| it.key.is_some() && (!it.held || it.with_agents));
    match asks.then(|| ask("your passphrase")) {
        Some(Ok(passphrase)) => client.with_passphrase(&passphrase),
        Some(Err(_)) | None => client,
    }
}

/// The same, however long the answer takes.
///
/// # Errors
/// As [`post`].
pub async fn post_unhurried<B: Serialize, T: DeserializeOwned>(
    session: &Session,
    path: &str,
    body: &B,
) -> Result<T, Failure> {
    insist(session, path, body, false).await
}

async fn send<B: Serialize, T: DeserializeOwned>(
    mut client: Client,
    path: &str,
    body: &B,
    hurried: bool,
) -> Result<T, Failure> {
    match hurried {
        true => in_time(client.post(path, body)).await,
        false => client.post(path, body).await.map_err(Failure::from),
    }
}

async fn insist<B: Serialize, T: DeserializeOwned>(
    session: &Session,
    path: &str,
    body: &B,
    hurried: bool,
) -> Result<T, Failure> {
    let mut answer = send(session.connect().await?, path, body, hurried).await;
    for _ in 0..TRIES {
        match &answer {
            Err(failure) if asks_again(failure) && session.agent.is_none() => {
                if failure.code == WRONG {
                    session.output.say(&failure.message);
                }
            }
            Ok(_) | Err(_) => return answer,
        }
        let Ok(passphrase) = ask("your passphrase") else {
            return answer;
        };
        // A connection of its own: what it carries goes with it.
        let client = session.connect().await?.with_passphrase(&passphrase);
        answer = send(client, path, body, hurried).await;
    }
    answer
}

const WRONG: &str = "wrong_passphrase";

/// Whether a passphrase, or another one, would lift it.
#[must_use]
pub fn asks_again(failure: &Failure) -> bool {
    [PRESENCE_REQUIRED, WRONG].contains(&failure.code.as_str())
}

/// Asks on the terminal, and shows nothing of what is typed.
///
/// # Errors
/// There is no terminal, or nothing came.
pub fn ask(prompt: &str) -> Result<Zeroizing<String>, Failure> {
    block_in_place(|| read(prompt)).map_err(|error| {
        Failure::usage(
            format!("a passphrase is asked at a terminal, and there is none: {error}"),
            "run the command in a terminal of your own",
        )
    })
}

fn read(prompt: &str) -> std::io::Result<Zeroizing<String>> {
    unseen()?;
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let quiet = Quiet::begin(terminal.try_clone()?)?;
    write!(terminal, "{prompt}: ")?;
    terminal.flush()?;
    // Room for all of it at once: a buffer that grows leaves copies behind.
    let mut line = Zeroizing::new(Vec::with_capacity(LONGEST));
    let mut byte = Zeroizing::new([0]);
    while terminal.read(byte.as_mut_slice())? == 1 && *byte != *b"\n" && line.len() < LONGEST {
        line.extend_from_slice(byte.as_slice());
    }
    drop(quiet);
    writeln!(terminal)?;
    let text = std::str::from_utf8(&line).map_err(std::io::Error::other)?;
    match text.trim_end_matches('\r') {
        "" => Err(std::io::Error::other("nothing was typed")),
        text => Ok(Zeroizing::new(text.to_owned())),
    }
}

/// From here on no core file of this process, and nobody of this uid looks into it.
///
/// # Errors
/// The kernel does not take it.
pub fn unseen() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit};
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    Ok(rustix::process::setrlimit(Resource::Core, none)?)
}

/// The terminal shows nothing of what is typed, until this goes.
struct Quiet(File, Termios);

impl Quiet {
    fn begin(terminal: File) -> std::io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        quiet.local_modes.insert(LocalModes::ICANON);
        // What was typed before the question is no answer to it.
        tcsetattr(&terminal, OptionalActions::Flush, &quiet)?;
        Ok(Self(terminal, before))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.0, OptionalActions::Flush, &self.1);
    }
}
