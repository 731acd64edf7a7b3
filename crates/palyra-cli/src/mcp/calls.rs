//! One call, between its client and the daemon: what it hears on the way, and when it gives up.

use std::time::Duration;

use palyra_api::wire::{CallEvent, CallRequest, Problem};
use palyra_api::{Client, ClientError};
use rmcp::model::{CallToolResult, JsonObject, ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext, RoleServer};
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior};

use super::reach::Reach;
use super::results;
use crate::failure::Failure;

/// How often a client hears that its call goes on.
const OFTEN: Duration = Duration::from_secs(5);
/// The daemon ends a wait by itself. Should it wait for somebody else's sake, we do not.
const GRACE: Duration = Duration::from_secs(2);

/// Makes a call. Dropped, its connection is closed, and the daemon ends it.
///
/// # Errors
/// The daemon does not know the tool.
pub async fn make(
    reach: &Reach,
    tool: &str,
    arguments: Option<JsonObject>,
    patience: Duration,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, UnknownTool> {
    let arguments = arguments.unwrap_or_default();
    if arguments.contains_key("interactive") {
        return Ok(results::refused(&not_over_mcp()));
    }
    let request = CallRequest {
        tool: tool.to_owned(),
        arguments: Value::Object(arguments),
        workspace: None,
        window: None,
        said: None,
        // The question outlives the wait for its answer, so that the same call can join it.
        detach: true,
        patience_ms: u64::try_from(patience.as_millis()).ok(),
    };
    let mut client = match reach.client().await {
        Ok(client) => client,
        Err(failure) => return failed(failure),
    };
    let hearing = Hearing {
        progress: Progress::new(context),
        leave_at: Instant::now() + patience + GRACE,
    };
    let heard = tokio::select! {
        heard = hearing.hear(&mut client, &request) => heard,
        // Nobody reads the answer any more.
        () = context.ct.cancelled() => return Ok(results::refused(&cancelled())),
    };
    match heard {
        Ok(Heard::Finished(result)) => {
            reach.keep(client);
            Ok(result)
        }
        Ok(Heard::Left(result)) => Ok(result),
        Err(error) => failed(error.into()),
    }
}

/// There is no such tool, for this agent.
#[derive(Debug)]
pub struct UnknownTool(pub String);

fn failed(failure: Failure) -> Result<CallToolResult, UnknownTool> {
    if failure.code == "unknown_tool" {
        return Err(UnknownTool(failure.message));
    }
    let Failure {
        code,
        message,
        hint,
        ..
    } = failure;
    let next_step = hint;
    Ok(results::refused(&Problem {
        code,
        message,
        next_step,
    }))
}

enum Heard {
    /// To its end: the connection can be used again.
    Finished(CallToolResult),
    /// In the middle.
    Left(CallToolResult),
}

struct Hearing {
    progress: Progress,
    leave_at: Instant,
}

impl Hearing {
    async fn hear(
        mut self,
        client: &mut Client,
        request: &CallRequest,
    ) -> Result<Heard, ClientError> {
        let body = serde_json::to_vec(request);
        let body = body.map_err(|error| ClientError::Broken(error.to_string()))?;
        let mut events = client.call_events(body.into()).await?;
        let (mut call, mut waits_for) = (String::new(), None::<String>);
        let mut state = "decided".to_owned();
        let mut ticks = tokio::time::interval_at(Instant::now() + OFTEN, OFTEN);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let event = tokio::select! {
                event = events.next() => event?,
                _ = ticks.tick() => {
                    self.progress.say(&state).await;
                    continue;
                }
                () = tokio::time::sleep_until(self.leave_at), if waits_for.is_some() => {
                    let approval = waits_for.unwrap_or_default();
                    return Ok(Heard::Left(results::pending(&call, &approval)));
                }
            };
            match event {
                Some(CallEvent::Accepted { call_id }) => call = call_id,
                Some(CallEvent::ApprovalPending { approval_id, .. }) => {
                    state = format!("waits for a person: approval {approval_id}");
                    waits_for = Some(approval_id);
                    self.progress.say(&state).await;
                }
                Some(CallEvent::Started) => {
                    waits_for = None;
                    "running".clone_into(&mut state);
                }
                Some(CallEvent::Output { .. } | CallEvent::Connection { .. }) => {}
                Some(CallEvent::Finished { result }) => {
                    // The end of the stream frees the connection.
                    let _ = events.next().await;
                    return Ok(Heard::Finished(results::finished(&result)));
                }
                Some(CallEvent::Refused { error }) => {
                    return Ok(Heard::Left(results::refused(&error)));
                }
                None => {
                    let broken = "it ended in the middle of the call".to_owned();
                    return Err(ClientError::Broken(broken));
                }
            }
        }
    }
}

/// Tells a client that wants to know how its call goes.
struct Progress {
    to: Option<(Peer<RoleServer>, ProgressToken)>,
    since: Instant,
    told: f64,
}

impl Progress {
    fn new(context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        Self {
            to: token.map(|token| (context.peer.clone(), token)),
            since: Instant::now(),
            told: 0.0,
        }
    }

    /// Says where the call stands; the number is the seconds so far, and always grows.
    async fn say(&mut self, state: &str) {
        let Some((peer, token)) = &self.to else {
            return;
        };
        self.told = self.since.elapsed().as_secs_f64().max(self.told + 0.001);
        let progress = ProgressNotificationParam::new(token.clone(), self.told);
        let _ = peer.notify_progress(progress.with_message(state)).await;
    }
}

fn not_over_mcp() -> Problem {
    Problem {
        code: "not_over_mcp".to_owned(),
        message: "nobody can type to a program over MCP".to_owned(),
        next_step: String::new(),
    }
}

fn cancelled() -> Problem {
    Problem {
        code: "cancelled".to_owned(),
        message: "the client cancelled it".to_owned(),
        next_step: String::new(),
    }
}
