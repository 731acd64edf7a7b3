//! A question put where the call was made: on the terminal in front of a person.
//!
//! The answer is given as the person, never as the agent, on a connection of its own. Whoever answers
//! first, here or elsewhere, is heard; here everything but a yes is a no.

use std::io::IsTerminal as _;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use palyra_api::wire::{Approval, Decide, Decision, Reach};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use tokio::sync::oneshot;

use crate::commands::approvals;
use crate::output::Output;
use crate::present;
use crate::safe;
use crate::session::{Session, in_time};

/// A question on the terminal that waits for a line.
pub struct Asking {
    approval: Approval,
    answer: oneshot::Receiver<Decision>,
    /// Set when nobody needs the answer any more.
    over: Arc<AtomicBool>,
}

/// More than this is no answer.
const LONGEST_LINE: usize = 200;

impl Asking {
    /// Puts the question, if there is a person in front of a terminal who may answer it.
    pub async fn begin(approval: &str, session: &Session) -> Option<Self> {
        if session.agent.is_none() || session.output.is_json() || !std::io::stderr().is_terminal() {
            return None;
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        let mut client = as_oneself(session)?.connect().await.ok()?;
        let path = format!("{}?full=true", approvals::path(approval));
        let approval: Approval = in_time(client.get(&path)).await.ok()?;
        let output = &session.output;
        for line in approvals::shown(&approval).lines() {
            output.say(&format!("  {line}"));
        }
        output.say("allow exactly this, once? y for yes, anything else is a no");
        let (said, answer) = oneshot::channel();
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        // A thread, which ends with the process: reading a terminal cannot be called off.
        std::thread::spawn(move || {
            if let Some(decision) = listen(&terminal, &until) {
                let _ = said.send(decision);
            }
        });
        Some(Self {
            approval,
            answer,
            over,
        })
    }

    /// Waits for a line. Dropping this loses nothing that was typed.
    pub async fn answer(&mut self) -> Decision {
        (&mut self.answer).await.unwrap_or(Decision::Deny)
    }

    /// Says it to the daemon; somebody else may have been first.
    pub async fn decide(self, decision: Decision, session: &Session) {
        let answer = Decide {
            decision,
            reason: None,
            scope: Reach::Once,
            cover: None,
            lasts_ms: None,
            // All of it was on the terminal.
            shown: self.approval.shown_code.clone(),
        };
        let path = format!("{}/decide", approvals::path(&self.approval.approval_id));
        if let Err(error) = send(&path, &answer, session).await {
            tell(&session.output, &error);
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

/// Reads one line, unless it is over first: what is typed afterwards is for the program.
fn listen(terminal: &OwnedFd, over: &AtomicBool) -> Option<Decision> {
    let a_while = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    let mut line = Vec::new();
    while !over.load(Ordering::Acquire) {
        let mut ready = [PollFd::from_borrowed_fd(terminal.as_fd(), PollFlags::IN)];
        if poll(&mut ready, Some(&a_while)) == Ok(0) || over.load(Ordering::Acquire) {
            continue;
        }
        let mut byte = [0];
        match rustix::io::read(terminal, &mut byte) {
            Ok(0) => return Some(Decision::Deny),
            Ok(_) if byte == *b"\n" || line.len() >= LONGEST_LINE => {
                let said = String::from_utf8_lossy(&line).trim().to_lowercase();
                return Some(match said.as_str() {
                    "y" | "yes" => Decision::Allow,
                    _ => Decision::Deny,
                });
            }
            Ok(_) => line.extend_from_slice(&byte),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => return Some(Decision::Deny),
        }
    }
    None
}

async fn send(path: &str, answer: &Decide, session: &Session) -> Result<(), String> {
    let own = as_oneself(session).ok_or("nobody to speak as")?;
    let decided: Result<Approval, _> = present::post(&own, path, answer).await;
    decided.map(drop).map_err(|error| error.message)
}

fn tell(output: &Output, why: &str) {
    output.note(&format!("your answer was not needed: {}", safe::line(why)));
}

/// The same way to the daemon, not lowered to the agent: an agent answers nothing.
fn as_oneself(session: &Session) -> Option<Session> {
    session.agent.as_ref()?;
    Some(Session {
        agent: None,
        ..session.clone()
    })
}
