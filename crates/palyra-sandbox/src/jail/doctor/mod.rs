//! `palyra-jail doctor`: makes each thing that a sandbox needs once, really, and says what came of it.
//!
//! Each trial has a process of its own, so what it makes or takes from itself ends with it, and a
//! trial that hangs is killed. The answer is one JSON document on standard output.

mod cgroups;
mod namespaces;
mod walls;

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, WaitOptions};

use crate::doctor::trial::{Ended, Trial, What};
use crate::sys;

/// How long one trial may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The doctor's `main`.
pub(super) fn main() -> ExitCode {
    if sys::close_all_inherited().is_err() {
        return ExitCode::FAILURE;
    }
    let trials: Vec<Trial> = What::ALL
        .into_iter()
        .map(|what| Trial {
            what,
            ended: attempt(what),
        })
        .collect();
    let written = serde_json::to_vec(&trials)
        .map_err(io::Error::from)
        .and_then(|bytes| io::stdout().write_all(&bytes));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// A trial that came to its end: what was found, or why it is of no use here.
enum Good {
    Found(String),
    NotNeeded(String),
}

/// A trial that did not: how far it came, and the kernel's reason.
struct Bad {
    step: &'static str,
    error: io::Error,
}

type Tried = Result<Good, Bad>;

/// Names the step that an error came from.
trait AtStep<T> {
    fn at(self, step: &'static str) -> Result<T, Bad>;
}

impl<T, E: Into<io::Error>> AtStep<T> for Result<T, E> {
    fn at(self, step: &'static str) -> Result<T, Bad> {
        self.map_err(|error| Bad {
            step,
            error: error.into(),
        })
    }
}

/// Something was made and does not do what it is for.
fn useless(step: &'static str, why: &str) -> Bad {
    let error = io::Error::other(why.to_owned());
    Bad { step, error }
}

fn found(text: impl Into<String>) -> Tried {
    Ok(Good::Found(text.into()))
}

fn trial(what: What) -> Tried {
    match what {
        What::Landlock => walls::landlock(),
        What::Seccomp => walls::seccomp(),
        What::UserNamespace => namespaces::user(),
        What::Namespaces => namespaces::others(),
        What::Mounts => namespaces::mounts(),
        What::Proc => namespaces::proc(),
        What::IdmappedMount => namespaces::idmapped(),
        What::Overlay => namespaces::overlay(),
        What::Processes => cgroups::processes(),
        What::Memory => cgroups::memory(),
        What::Cpu => cgroups::cpu(),
        What::Bubblewrap => walls::bubblewrap(),
    }
}

/// Makes one thing in a process of its own.
fn attempt(what: What) -> Ended {
    in_a_process(|| ended(trial(what))).unwrap_or_else(|error| Ended::Failed {
        step: "a process for it".to_owned(),
        errno: error.raw_os_error().unwrap_or(0),
        error: said(&error),
    })
}

fn ended(tried: Tried) -> Ended {
    match tried {
        Ok(Good::Found(found)) => Ended::Works { found },
        Ok(Good::NotNeeded(why)) => Ended::NotNeeded { why },
        Err(Bad { step, error }) => Ended::Failed {
            step: step.to_owned(),
            errno: error.raw_os_error().unwrap_or(0),
            error: said(&error),
        },
    }
}

/// The kernel's reason without the number that Rust puts after it.
fn said(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text.get(..end).unwrap_or(&text).to_lowercase()
}

fn in_a_process(work: impl FnOnce() -> Ended) -> io::Result<Ended> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let child = sys::fork(None, || {
        // Whoever is started from here ends with it.
        let _ = rustix::process::setsid();
        let said = serde_json::to_vec(&work()).unwrap_or_default();
        let _ = std::fs::File::from(write).write_all(&said);
        0
    })?;
    let heard = listen(read);
    let _ = rustix::process::kill_process_group(child, Signal::KILL);
    let _ = rustix::process::kill_process(child, Signal::KILL);
    let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
    serde_json::from_slice(&heard?).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
}

/// What the trial says before its time is over. (The child has the other writing end.)
fn listen(from: OwnedFd) -> io::Result<Vec<u8>> {
    let mut watched = [PollFd::new(&from, PollFlags::IN)];
    let patience = PATIENCE.try_into().map_err(io::Error::other)?;
    rustix::event::poll(&mut watched, Some(&patience))?;
    if watched.iter().all(|one| one.revents().is_empty()) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut said = vec![0; 16 * 1024];
    let length = std::fs::File::from(from).read(&mut said)?;
    said.truncate(length);
    Ok(said)
}
