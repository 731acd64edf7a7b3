//! `palyra`, the command line.
//!
//! This room knows arguments ([`args`], [`values`], [`help`], [`examples`]), what they mean ([`commands`]) and
//! how to answer: [`output`], [`table`], [`when`], [`safe`], [`failure`] and [`exit`]. It reads
//! [`stdin`] when asked, passes it on while a call runs ([`sending`], [`terminal`]), speaks to the daemon through `palyra-api` alone, starts one for a person
//! who has none ([`autostart`]), and never touches the daemon's state. Policies it reads and judges
//! by itself, with `palyra-policy`.

#![forbid(unsafe_code)]

pub mod args;
pub mod asking;
pub mod autostart;
pub mod calling;
pub mod commands;
pub mod connecting;
pub mod examples;
pub mod exit;
pub mod failure;
pub mod folders;
pub mod help;
pub mod hidden;
pub mod hooking;
pub mod mcp;
pub mod network;
pub mod output;
pub mod place;
pub mod present;
pub mod safe;
pub mod sending;
pub mod session;
pub mod stdin;
pub mod table;
pub mod terminal;
pub mod tui;
pub mod values;
pub mod when;
pub mod witness;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{Command, Palyra};
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::output::Output;

/// Runs the command line `words`, program name first, and gives the code to exit with.
#[must_use]
pub fn run(words: Vec<OsString>) -> ExitCode {
    let parsed = help::command()
        .try_get_matches_from(&words)
        .and_then(|matches| Palyra::from_arg_matches(&matches));
    let palyra = match parsed {
        Ok(palyra) => palyra,
        Err(error) => return not_parsed(&error, means_exec(&words)),
    };
    let of_exec = matches!(palyra.command, Command::Exec(_));
    let output = Output::new(palyra.style);
    let exit = carry_out(palyra.command, output).unwrap_or_else(|failure| {
        output.failure(&failure);
        Exit::Ours(failure.meaning)
    });
    ExitCode::from(exit.code(of_exec))
}

/// The work goes on beside the wait for Ctrl-C, so that even a blocked write can be left.
fn carry_out(command: Command, output: Output) -> Result<Exit, Failure> {
    let cancels = matches!(command, Command::Exec(_) | Command::Call(_));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| internal(&error))?;
    let exit = runtime.block_on(async {
        // Before the work begins, so that there is no moment in which Ctrl-C only kills us.
        let ends = cancels.then(Ends::listen).transpose();
        let ends = ends.map_err(|error| internal(&error))?;
        let work = tokio::spawn(commands::run(command, output));
        tokio::select! {
            done = work => done.map_err(|error| internal(&error))?,
            exit = ended(ends) => {
                terminal::restore();
                tell_cancelled(&output);
                Ok(exit)
            }
        }
    });
    // What the work left behind, should it have broken.
    terminal::restore();
    // Closing the connection is what cancels the call; nothing is waited for.
    runtime.shutdown_background();
    exit
}

/// The signals that end a command which has something to cancel, and maybe a terminal to put back;
/// others just end by them.
struct Ends {
    interrupt: Signal,
    /// With their numbers: terminate, hang up, quit.
    others: [(Signal, u8); 3],
}

impl Ends {
    fn listen() -> std::io::Result<Self> {
        let with_number = |kind: SignalKind| {
            let number = u8::try_from(kind.as_raw_value()).unwrap_or_default();
            signal(kind).map(|signal| (signal, number))
        };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            others: [
                with_number(SignalKind::terminate())?,
                with_number(SignalKind::hangup())?,
                with_number(SignalKind::quit())?,
            ],
        })
    }
}

async fn ended(ends: Option<Ends>) -> Exit {
    let Some(Ends {
        mut interrupt,
        others: [mut term, mut hang_up, mut quit],
    }) = ends
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => Exit::Ours(Meaning::Interrupted),
        _ = term.0.recv() => Exit::Signalled(term.1),
        _ = hang_up.0.recv() => Exit::Signalled(hang_up.1),
        _ = quit.0.recv() => Exit::Signalled(quit.1),
    }
}

fn tell_cancelled(output: &Output) {
    match calling::UNDER_WAY.get() {
        Some(call) => output.note(&format!("cancelled {}", safe::line(call))),
        None => output.note("cancelled"),
    }
}

fn internal(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        Meaning::Error,
        "internal",
        format!("something that cannot happen did: {error}"),
        "report it as a bug, with this line",
    )
}

/// Help and version are answers; anything else is a usage error.
fn not_parsed(error: &clap::Error, of_exec: bool) -> ExitCode {
    let printed = error.print();
    let meaning = match (error.use_stderr(), printed) {
        (true, _) => Meaning::Usage,
        (false, Ok(())) => Meaning::Ok,
        (false, Err(error)) => Failure::unwritable(&error).meaning,
    };
    ExitCode::from(Exit::Ours(meaning).code(of_exec))
}

/// Whether words that do not parse were meant for `exec`, whose usage errors have their own code.
fn means_exec(words: &[OsString]) -> bool {
    let mut words = words.iter().skip(1).filter_map(|word| word.to_str());
    words.find(|word| !word.starts_with('-')) == Some("exec")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_is_recognised_before_it_parses() {
        let means =
            |line: &str| means_exec(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(means("palyra exec --bogus"));
        assert!(means("palyra --json -q exec --bogus"));
        assert!(!means("palyra call exec"));
        assert!(!means("palyra"));
    }
}
