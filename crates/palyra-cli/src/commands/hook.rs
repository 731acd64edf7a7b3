//! `palyra hook`: what an agent's client is about to do with a tool of its own, decided by the same
//! policy and the same people.
//!
//! The client says what it is about to do on standard input and reads the answer from standard
//! output. What cannot be decided is blocked: no daemon, no JSON, a tool that nobody here knows. A
//! command is never let run by itself: it is run here, in the sandbox, or not at all.

use palyra_api::wire::{AdviceAnswer, AdviceRequest};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::args::{ClientArg, Hook};
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::hooking::{self, Amounts};
use crate::session::{Session, in_time};
use crate::stdin;

/// What a client says before it uses a tool. It says more, which does not matter here.
#[derive(Debug, Deserialize)]
struct Said {
    hook_event_name: String,
    tool_name: String,
    #[serde(default)]
    tool_input: Map<String, Value>,
    #[serde(default)]
    cwd: Option<String>,
}

pub(super) async fn run(args: &Hook, session: &Session) -> Result<Exit, Failure> {
    // A client takes this exit code, and this one alone, as "do not".
    let blocked = |failure: Failure| Failure {
        meaning: Meaning::Usage,
        ..failure
    };
    let said = listen().map_err(blocked)?;
    if session.agent.is_none() {
        return Err(Failure::usage(
            "`palyra hook` speaks for one of your agents, and none is named",
            "say which one with `--as agent:NAME`",
        ));
    }
    let answer = answer(args.client, said, session).await.map_err(blocked)?;
    if let Some(answer) = answer {
        session
            .output
            .text(&format!("{answer}\n"))
            .map_err(blocked)?;
    }
    Ok(Exit::OK)
}

fn listen() -> Result<Said, Failure> {
    let text = stdin::read()?;
    let said: Said = serde_json::from_slice(&text).map_err(|error| {
        Failure::usage(
            format!("what the client said is not understood, so it is blocked: {error}"),
            "it is meant to be run by the client's own hook; see `palyra connect --help`",
        )
    })?;
    match said.hook_event_name.as_str() {
        "PreToolUse" => Ok(said),
        other => Err(Failure::usage(
            format!(
                "the event `{}` is not decided here",
                crate::safe::line(other)
            ),
            "configure it for `PreToolUse`",
        )),
    }
}

/// The answer for the client; nothing when it is none of ours to give.
async fn answer(
    client: ClientArg,
    said: Said,
    session: &Session,
) -> Result<Option<Value>, Failure> {
    let rewrites = client == ClientArg::ClaudeCode;
    let amounts = hooking::amounts_to(&said.tool_name, &said.tool_input, said.cwd.as_deref());
    let request = match amounts {
        Amounts::Ours => return Ok(None),
        Amounts::Unknown(why) => return Ok(Some(denied(&why))),
        Amounts::Command(_) if !rewrites => {
            let why = "this client cannot be told to run a command in the sandbox: use the tool \
                       `palyra_process_run` instead";
            return Ok(Some(denied(why)));
        }
        Amounts::Command(arguments) => AdviceRequest {
            tool: "palyra.process.run".to_owned(),
            arguments,
            said: None,
            rewritable: true,
        },
        Amounts::File(tool, arguments) => AdviceRequest {
            tool: tool.to_owned(),
            arguments,
            said: None,
            rewritable: false,
        },
    };
    let mut client = session
        .connect_or_start_for_client()
        .await?
        .by_channel("hook");
    let asked: Result<AdviceAnswer, Failure> =
        in_time(client.post("/api/v1/advice", &request)).await;
    let answer = match asked {
        Ok(answer) => answer,
        // It was understood and refused: the model can mend its arguments.
        Err(failure) if failure.meaning != Meaning::Unreachable => {
            return Ok(Some(denied(&format!(
                "{} ({})",
                failure.message, failure.code
            ))));
        }
        Err(failure) => return Err(failure),
    };
    Ok(told(&answer, said.tool_input, rewrites))
}

/// What the daemon answered, as the client understands it.
fn told(answer: &AdviceAnswer, mut input: Map<String, Value>, rewrites: bool) -> Option<Value> {
    match (answer.decision.as_str(), &answer.token) {
        ("allow", Some(token)) => {
            input.insert("command".to_owned(), hooking::command(token).into());
            Some(json!({ "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "allow",
                "permissionDecisionReason": "allowed by policy; it runs in the sandbox",
                "updatedInput": input,
            }}))
        }
        // The others know no "allow": to say nothing leaves it to them.
        ("allow", None) if !rewrites => None,
        ("allow", None) => Some(json!({ "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "permissionDecisionReason": "allowed by policy; this client does it by itself",
        }})),
        ("pending", _) => {
            let id = answer.approval_id.as_deref().unwrap_or("unknown");
            Some(denied(&format!(
                "approval {id} waits for a person. Tell your person, and once they answered do \
                 exactly the same again"
            )))
        }
        _ => {
            let problem = answer.problem.as_ref();
            let why = problem.map_or_else(
                || "denied".to_owned(),
                |problem| format!("{} ({})", problem.message, problem.code),
            );
            Some(denied(&format!(
                "{why}. Do not try the same in another way; ask your person"
            )))
        }
    }
}

fn denied(why: &str) -> Value {
    json!({ "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": format!("Palyra: {why}"),
    }})
}
