//! Hearing of changes as they happen.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use palyra_api::wire::{ErrorBody, WatchEvent};
use palyra_gateway::changes::Change;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::{App, Who};
use crate::problem::Refused;

/// How long nothing is said when nothing happens.
const QUIET: Duration = Duration::from_secs(10);

#[utoipa::path(
    get, path = "/api/v1/watch", operation_id = "watch",
    description = "What changes, one JSON object a line, until you go away: approvals, grants, calls, agents, postures. It names what changed; look it up for the rest.",
    responses((status = 200, body = WatchEvent), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn watch(State(app): State<App>, Who(caller): Who) -> Result<Response, Refused> {
    let changes = app.gateway.watch(&caller)?;
    let stage: (Option<Receiver<Change>>, bool) = (Some(changes), true);
    let lines = futures::stream::unfold(stage, async |(changes, first)| {
        let mut changes = changes?;
        let event = match first {
            true => WatchEvent::Watching,
            false => match tokio::time::timeout(QUIET, changes.recv()).await {
                Err(_) => WatchEvent::Alive,
                Ok(Ok(change)) => on_the_wire(change),
                Ok(Err(RecvError::Lagged(_))) => WatchEvent::Missed,
                Ok(Err(RecvError::Closed)) => return None,
            },
        };
        let mut line = serde_json::to_vec(&event).unwrap_or_default();
        line.push(b'\n');
        Some((
            Ok::<_, Infallible>(Bytes::from(line)),
            (Some(changes), false),
        ))
    });
    let mut response = Response::new(Body::from_stream(lines));
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

fn on_the_wire(change: Change) -> WatchEvent {
    match change {
        Change::Approval(id, state) => WatchEvent::Approval {
            id: id.to_string(),
            state: state.to_owned(),
        },
        Change::Grant(id, state) => WatchEvent::Grant {
            id: id.to_string(),
            state: state.to_owned(),
        },
        Change::Call(id, state) => WatchEvent::Call {
            id: id.to_string(),
            state: state.to_owned(),
        },
        Change::Agent(name) => WatchEvent::Agent {
            name: name.to_string(),
        },
        Change::Postures => WatchEvent::Postures,
        Change::Policies => WatchEvent::Policies,
    }
}
