//! Secrets from a person or a pipe: never from an argument, never shown while they are typed.

use std::io::{BufRead, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::task::block_in_place;

use crate::failure::Failure;
use crate::stdin;

/// Whether a person is there to be asked.
#[must_use]
pub fn somebody_is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// A secret: typed at the prompt, or all of standard input without its last line end.
///
/// # Errors
/// It cannot be read.
pub fn secret(prompt: &str) -> Result<Vec<u8>, Failure> {
    if somebody_is_there() {
        return Ok(typed(prompt)?.into_bytes());
    }
    let mut bytes = stdin::read()?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    Ok(bytes)
}

/// The same, as text.
///
/// # Errors
/// It cannot be read, or is not text.
pub fn passphrase(prompt: &str) -> Result<String, Failure> {
    String::from_utf8(secret(prompt)?).map_err(|_| {
        Failure::usage(
            "the passphrase is not UTF-8",
            "type it, or give it on standard input",
        )
    })
}

/// Asks yes or no. Nobody there means no.
#[must_use]
pub fn confirmed(question: &str) -> bool {
    if !somebody_is_there() {
        return false;
    }
    say(&format!("{question} [y/N] "));
    let mut line = String::new();
    let read = block_in_place(|| std::io::stdin().lock().read_line(&mut line));
    read.is_ok() && matches!(line.trim(), "y" | "yes")
}

fn typed(prompt: &str) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        Failure::usage(
            format!("the terminal cannot be read: {error}"),
            "give it on standard input",
        )
    };
    let quiet = Quiet::new().map_err(failed)?;
    say(&format!("{prompt}: "));
    let mut line = String::new();
    let read = block_in_place(|| std::io::stdin().lock().read_line(&mut line));
    drop(quiet);
    say("\n");
    read.map_err(failed)?;
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok(line)
}

fn say(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr
        .write_all(text.as_bytes())
        .and_then(|()| stderr.flush());
}

/// The terminal shows nothing of what is typed, until this goes.
struct Quiet(Termios);

impl Quiet {
    fn new() -> std::io::Result<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &quiet)?;
        Ok(Self(before))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}
