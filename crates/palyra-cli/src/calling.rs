//! A call as its caller hears it: the wait for a person, the output, the end.

use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use palyra_api::wire::{Approval, CallEvent, CallResult, Outcome, OutputStream};
use palyra_api::{Client, ClientError};
use palyra_core::{ApprovalId, Clock, SystemClock};
use serde_json::Value;

use crate::asking::Asking;
use crate::commands::approvals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::network;
use crate::output::{COMMAND, DIM, Output, STRONG, pretty};
use crate::safe;
use crate::sending::{self, Along, Sending};
use crate::session::Session;
use crate::terminal::HandedThrough;
use crate::when;

/// The call that goes on, for whoever has to say that it was cancelled.
pub static UNDER_WAY: OnceLock<String> = OnceLock::new();

/// How long a person waits to hear what waits for them.
const SOON: Duration = Duration::from_secs(2);

/// Which command makes the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Output is passed on as it comes, and the exit code is the child's.
    Exec,
    /// What the tool gave back is printed, and the exit code is Palyra's.
    Call,
}

/// A call about to be made.
pub struct Calling {
    /// The request as JSON.
    pub body: Bytes,
    /// What was asked for, harmless to a terminal; shown when the daemon does not say what it found.
    pub what: String,
    /// Which command makes it.
    pub by: By,
    /// What it is sent while it runs.
    pub input: Input,
}

/// What a call is sent while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    None,
    /// Standard input.
    Stdin,
    /// What is typed on the terminal; what it writes is shown there.
    Terminal,
}

impl Calling {
    /// Makes the call and tells of it until its end.
    ///
    /// # Errors
    /// It could not be proposed, or the conversation broke.
    pub async fn run(self, client: &mut Client, session: &Session) -> Result<Exit, Failure> {
        let output = &session.output;
        let Heard { result, shown } = self.hear(client, session).await?;
        match (&result.output, self.by) {
            _ if output.is_json() => output.document(&result)?,
            (Some(value), By::Call) => output.text(&format!("{}\n", pretty(value)))?,
            (Some(_), By::Exec) if self.input == Input::Terminal => {}
            // A call that joined another hears nothing while it runs, and who was slow not all.
            (Some(value), By::Exec) => shown.rest(value, output)?,
            (None, By::Exec | By::Call) => {}
        }
        explain(&result, output);
        Ok(Exit::of_result(&result, self.by == By::Exec))
    }

    /// Makes the call and gives back its result, unsaid.
    ///
    /// # Errors
    /// It could not be proposed, or the conversation broke.
    async fn hear(&self, client: &mut Client, session: &Session) -> Result<Heard, Failure> {
        let output = &session.output;
        let mut events = client.call_events(self.body.clone()).await?;
        let (mut waited, mut shown, mut call) = (false, Shown::default(), String::new());
        // Dropped in this order: nothing is sent any more, then the terminal is put back.
        let mut handed_through = None;
        let mut sending = None;
        let mut asking: Option<Asking> = None;
        loop {
            let event = match &mut asking {
                None => events.next().await?,
                Some(question) => tokio::select! {
                    event = events.next() => event?,
                    decision = question.answer() => {
                        if let Some(question) = asking.take() {
                            question.decide(decision, session).await;
                        }
                        continue;
                    }
                },
            };
            match event {
                Some(CallEvent::Accepted { call_id }) => {
                    call.clone_from(&call_id);
                    let _ = UNDER_WAY.set(call_id);
                }
                Some(CallEvent::ApprovalPending {
                    approval_id,
                    expires_at,
                    joined,
                    ..
                }) => {
                    waited = true;
                    let found = what_was_found(&approval_id, session).await;
                    let what = found.as_ref().unwrap_or(&self.what);
                    tell_waiting(what, &approval_id, &expires_at, joined, output);
                    asking = Asking::begin(&approval_id, session).await;
                }
                Some(CallEvent::Started) => {
                    drop(asking.take());
                    if waited {
                        output.note("approved; it runs");
                    }
                    // Not sooner: until then Ctrl-C is for us.
                    (handed_through, sending) = self.input.begin(&call, session).await?;
                }
                Some(CallEvent::Output {
                    stream,
                    base64,
                    missed,
                }) if self.by == By::Exec && !output.is_json() => {
                    let bytes = STANDARD.decode(base64).map_err(garbled)?;
                    if self.input == Input::Terminal || shown.follows(stream, missed, &bytes) {
                        output.raw(stream, &bytes)?;
                    }
                }
                Some(CallEvent::Output { .. } | CallEvent::Connection { .. }) => {}
                Some(CallEvent::Finished { result }) => {
                    drop((sending, handed_through));
                    let result = *result;
                    return Ok(Heard { result, shown });
                }
                Some(CallEvent::Refused { error }) => return Err(Failure::stated(None, error)),
                None => {
                    let broken = "it ended in the middle of the call".to_owned();
                    return Err(ClientError::Broken(broken).into());
                }
            }
        }
    }
}

/// Who asks and what will really run, as the daemon found it; nothing if it does not say in time.
async fn what_was_found(approval: &str, session: &Session) -> Option<String> {
    let approval: ApprovalId = approval.parse().ok()?;
    let asking = async {
        // The call's own connection is busy telling of the call.
        let mut client = session.connect().await.ok()?;
        let found: Approval = client.get(&approvals::path(approval.as_str())).await.ok()?;
        let who = safe::line(&found.principal);
        Some(format!("{who}: {}", approvals::what(&found)))
    };
    tokio::time::timeout(SOON, asking).await.ok().flatten()
}

/// Not a note: without it the command would only seem to hang.
fn tell_waiting(what: &str, approval: &str, expires_at: &str, joined: bool, output: &Output) {
    let approval = safe::line(approval);
    let until = when::instant(expires_at, SystemClock.now());
    let decide = format!("palyra approvals decide {approval} --decision");
    let joined = if joined {
        " (the same call was waiting already)"
    } else {
        ""
    };
    output.say(&format!(
        "waiting for approval {STRONG}{approval}{STRONG:#}{joined}"
    ));
    for (name, value) in [
        ("what", what.to_owned()),
        ("yes", format!("{COMMAND}{decide} allow{COMMAND:#}")),
        ("no", format!("{COMMAND}{decide} deny{COMMAND:#}")),
        ("until", format!("{until}; then it is denied")),
    ] {
        output.say(&format!("  {DIM}{name:5}{DIM:#}  {value}"));
    }
}

impl Input {
    /// The call runs: from now on what is typed is for it.
    async fn begin(
        self,
        call: &str,
        session: &Session,
    ) -> Result<(Option<HandedThrough>, Option<Sending>), Failure> {
        let along = match self {
            Self::None => return Ok((None, None)),
            Self::Stdin => Along::Nothing,
            Self::Terminal => Along::Window,
        };
        let handed_through = (self == Self::Terminal).then(HandedThrough::begin);
        let handed_through = handed_through.transpose()?;
        let sending = sending::start(call, along, session).await?;
        Ok((handed_through, Some(sending)))
    }
}

/// The end of a call, and what of its output was passed on while it ran.
struct Heard {
    result: CallResult,
    shown: Shown,
}

/// How much of each stream was passed on while the call ran.
#[derive(Debug, Default)]
struct Shown {
    stdout: Passed,
    stderr: Passed,
}

#[derive(Debug, Default)]
struct Passed {
    bytes: usize,
    /// Something was missed: what follows waits for the end, to come in its place.
    gap: bool,
}

impl Shown {
    /// Whether this piece follows what was passed on; it is taken to be passed on then.
    fn follows(&mut self, stream: OutputStream, missed: u64, bytes: &[u8]) -> bool {
        let passed = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        passed.gap |= missed > 0;
        if !passed.gap {
            passed.bytes += bytes.len();
        }
        !passed.gap
    }

    /// Passes on what was kept of a process's output and not passed on yet.
    fn rest(&self, kept: &Value, output: &Output) -> Result<(), Failure> {
        let both = [&self.stdout, &self.stderr];
        let heard = both.iter().any(|passed| passed.bytes > 0 || passed.gap);
        for (name, stream, passed) in [
            ("stdout", OutputStream::Stdout, &self.stdout),
            ("stderr", OutputStream::Stderr, &self.stderr),
        ] {
            let Some(kept) = kept.get(name) else { continue };
            if heard && !passed.gap {
                continue;
            }
            let member = |name: &str| kept.get(name).and_then(Value::as_str);
            let all = match (member("text"), member("base64")) {
                (Some(text), _) => text.as_bytes().to_vec(),
                (None, Some(bytes)) => STANDARD.decode(bytes).map_err(garbled)?,
                (None, None) => continue,
            };
            output.raw(stream, all.get(passed.bytes..).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Says what the exit code and the output alone would not.
fn explain(result: &CallResult, output: &Output) {
    let call = safe::line(&result.call_id);
    if let Some(problem) = &result.problem {
        output.complain(&problem.message, &problem.next_step);
    } else if let Some((message, hint)) = usual_words(result.outcome) {
        output.complain(message, &hint.replace("CALL", &call));
    }
    if let Some(signal) = result.signal {
        output.note(&format!("ended by signal {signal}"));
    }
    for refused in network::refusals(result.output.as_ref()) {
        output.note(&refused);
    }
    explain_files(result, output);
    let observed = |name: &str| {
        result
            .attestation
            .as_ref()
            .and_then(|record| record.get(name))
            == Some(&Value::Bool(true))
    };
    if observed("truncated") {
        output.note(&format!(
            "its output was longer than its limit and was cut; see `palyra calls show {call}`"
        ));
    }
}

/// What was taken away after the call, and why it may have failed.
fn explain_files(result: &CallResult, output: &Output) {
    let list = |name: &str| {
        let found = result.output.as_ref().and_then(|output| output.get(name));
        found.and_then(Value::as_array).cloned().unwrap_or_default()
    };
    for hint in list("hints").iter().filter_map(Value::as_str) {
        output.note(&safe::line(hint));
    }
    for taken in list("quarantined") {
        let text = |name: &str| safe::line(taken.get(name).and_then(Value::as_str).unwrap_or(""));
        let (path, why, restore) = (text("path"), text("why"), text("restore"));
        output.note(&match restore.is_empty() {
            true => format!("`{path}` appeared during the call: {why}"),
            false => format!(
                "`{path}` appeared during the call and was taken away: {why}; put it back with \
                 `{restore}`"
            ),
        });
    }
}

/// For outcomes that came without a word of the daemon's.
fn usual_words(outcome: Outcome) -> Option<(&'static str, &'static str)> {
    Some(match outcome {
        Outcome::Completed => return None,
        Outcome::Denied => ("denied", "see why with `palyra calls show CALL`"),
        Outcome::ApprovalDenied => ("a person said no", "see why with `palyra calls show CALL`"),
        Outcome::ApprovalExpired => (
            "nobody answered in time",
            "ask again, and answer with `palyra approvals decide`",
        ),
        Outcome::TimedOut => (
            "timed out; it and everything it started was killed",
            "give it longer with `--timeout`",
        ),
        Outcome::Cancelled => ("cancelled", "see `palyra calls show CALL`"),
        Outcome::Failed => ("failed", "see why with `palyra calls show CALL`"),
        Outcome::SandboxUnavailable => (
            "the sandbox cannot be built here",
            "see what is missing with `palyra doctor`",
        ),
        Outcome::Interrupted => (
            "the daemon ended while it ran; whether it finished is not known",
            "see `palyra calls show CALL`",
        ),
    })
}

/// Words as a shell would need them typed, harmless to a terminal.
#[must_use]
pub fn quoted(argv: &[String]) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "_-./:=@%+,".contains(letter);
    let word = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        // Not by a backslash: it would be shown doubled.
        false => format!("'{}'", word.replace('\'', "'\"'\"'")),
    };
    safe::line(&argv.iter().map(word).collect::<Vec<_>>().join(" "))
}

fn garbled(error: base64::DecodeError) -> Failure {
    ClientError::Broken(format!("a piece of output is not base64: {error}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_typed() {
        let shown =
            |words: &[&str]| quoted(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(shown(&["git", "log", "--format=%H"]), "git log --format=%H");
        assert_eq!(
            shown(&["sh", "-c", "echo 'a' $b", ""]),
            "sh -c 'echo '\"'\"'a'\"'\"' $b' ''"
        );
        assert_eq!(shown(&["a\u{1b}[2Kb\n"]), r"'a\u{1b}[2Kb\n'");
    }
}
