//! Calls: proposing one, hearing how it goes, reading what is recorded.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use bytes::Bytes;
use http_body_util::BodyExt;
use palyra_api::wire::{
    CallDetail, CallEvent, CallInput, CallRequest, CallResult, CallSummary, ErrorBody, InputTaken,
    Outcome, OutputStream, Page, Problem, RedeemCall,
};
use palyra_core::json::NotCanonical;
use palyra_core::{BlobKind, CanonicalJson, Ending, RunErrorKind};
use palyra_gateway::calls::{CallRow, CallState};
use palyra_gateway::error::RefusalKind;
use palyra_gateway::records::ListQuery;
use palyra_gateway::{CallHandle, CallReport, Conclusion, Event, ProposedCall};
use palyra_sandbox::Fed;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{App, Asked, Named, Who, journal, page, page_size, reading};
use crate::problem::Refused;

/// Requests are smaller, but for whole folders of policies; the tools' own caps are smaller too.
const MOST_BODY: usize = 6 << 20;
/// What a call is sent at once.
const MOST_INPUT: usize = 64 << 10;
/// A too large body is read to here, so that its sender hears why it was refused.
const MOST_DRAINED: usize = 64 << 20;

#[utoipa::path(
    post, path = "/api/v1/calls", operation_id = "call_tool", request_body = CallRequest,
    description = "Calls a tool. With `Accept: application/x-ndjson` the answer is a stream of CallEvent, one a line, as they happen; otherwise one CallResult at the end. Closing the connection cancels the call. Who reads slowly slows the program down as a full pipe does, and after two seconds misses what comes (`missed`); it is kept all the same. A call with `interactive` among its arguments is sent what it reads by `send_input`.",
    responses((status = 200, body = CallResult), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody))
)]
pub(crate) async fn call(
    State(app): State<App>,
    Who(caller): Who,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refused> {
    let (whole, request): (CanonicalJson, serde_json::Value) = typed_body(body).await?;
    let handle = match request.get("redeem") {
        Some(_) => {
            let token: RedeemCall = meant(request)?;
            app.gateway.redeem(&caller, &token.redeem).await?
        }
        None => {
            let request: CallRequest = meant(request)?;
            app.gateway.call(&caller, wanted(&whole, request)?).await?
        }
    };
    let streamed = headers
        .get(ACCEPT)
        .is_some_and(|kind| kind == "application/x-ndjson");
    if streamed {
        return Ok(event_stream(handle));
    }
    let report = handle.finish().await?;
    Ok(Json(result(&report)).into_response())
}

fn meant<T: DeserializeOwned>(request: serde_json::Value) -> Result<T, Refused> {
    serde_json::from_value(request).map_err(|error| not_json(&error.to_string()))
}

pub(super) fn wanted(whole: &CanonicalJson, request: CallRequest) -> Result<ProposedCall, Refused> {
    Ok(ProposedCall {
        tool: request.tool,
        arguments: whole
            .member("arguments")
            .ok_or_else(|| not_json("`arguments` are missing"))?,
        workspace: request.workspace.map(PathBuf::from),
        window: request.window.map(window),
        said: request.said,
        detached: request.detach,
        patience: Duration::from_millis(request.patience_ms.unwrap_or_default()),
        advice: None,
        bound_to: None,
    })
}

#[utoipa::path(
    post, path = "/api/v1/calls/{id}/input", operation_id = "send_input", request_body = CallInput,
    description = "Sends something to a call of one's own that was proposed with `interactive` and waits or runs. The answer comes when the call has taken it, so a program that reads nothing keeps its sender waiting. Send one after another: what is sent at once arrives in any order.",
    params(("id" = String, Path,)),
    responses((status = 200, body = InputTaken), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn input(
    State(app): State<App>,
    Who(caller): Who,
    Named(call_id): Named,
    body: Body,
) -> Result<Json<InputTaken>, Refused> {
    let (_, sent): (_, CallInput) = typed_body_of(body, 2 * MOST_INPUT).await?;
    let bytes = sent
        .base64
        .map(|text| base64::engine::general_purpose::STANDARD.decode(text))
        .transpose()
        .map_err(|error| not_json(&format!("`base64` is not base64: {error}")))?;
    if bytes.as_ref().is_some_and(|bytes| bytes.len() > MOST_INPUT) {
        return Err(Refused::new(
            RefusalKind::TooLarge,
            "input_too_large",
            format!("a call is sent {MOST_INPUT} bytes at once at most"),
            "send them in smaller pieces, one after another",
        ));
    }
    let parts = [
        sent.window.map(|size| Fed::Window(window(size))),
        bytes.map(Fed::Bytes),
        sent.end.then_some(Fed::End),
    ];
    for part in parts.into_iter().flatten() {
        app.gateway.feed(&caller, &call_id, part).await?;
    }
    Ok(Json(InputTaken { call_id }))
}

const fn window(size: palyra_api::wire::Window) -> palyra_core::Window {
    palyra_core::Window {
        rows: size.rows,
        columns: size.columns,
    }
}

/// Which calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    agent: Option<String>,
    state: Option<CallState>,
    before: Option<String>,
    limit: Option<usize>,
}

#[utoipa::path(
    get, path = "/api/v1/calls", operation_id = "list_calls",
    params(("agent" = Option<String>, Query,), ("state" = Option<String>, Query,), ("before" = Option<String>, Query,), ("limit" = Option<usize>, Query,)),
    responses((status = 200, body = Page<CallSummary>), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Asked(which): Asked<Which>,
) -> Result<Json<Page<CallSummary>>, Refused> {
    let agent = which.agent.map(|name| name.parse()).transpose();
    let agent = agent.map_err(|error: palyra_core::principal::NotAName| {
        let next_step = "see `palyra agents list`";
        Refused::new(
            RefusalKind::Invalid,
            "invalid_name",
            error.to_string(),
            next_step,
        )
    })?;
    let size = page_size(which.limit);
    let query = ListQuery {
        state: which.state,
        approval_state: None,
        agent,
        before: which.before,
        limit: size + 1,
    };
    let gateway = app.gateway.clone();
    let rows = reading(move || gateway.calls(&caller, &query)).await?;
    let items = rows.iter().map(summary).collect();
    Ok(Json(page(items, size, |call: &CallSummary| {
        call.call_id.clone()
    })))
}

#[utoipa::path(get, path = "/api/v1/calls/{id}", operation_id = "show_call", params(("id" = String, Path,)), responses((status = 200, body = CallDetail), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn show(
    State(app): State<App>,
    Who(caller): Who,
    Named(id): Named,
) -> Result<Json<CallDetail>, Refused> {
    let gateway = app.gateway.clone();
    let view = reading(move || gateway.call_record(&caller, &id)).await?;
    Ok(Json(CallDetail {
        summary: summary(&view.row),
        arguments: view.arguments,
        facts: view.facts,
        output: view.output,
        erased: kinds(&view.row.erased),
        unreadable: kinds(&view.unreadable),
        entries: view.entries.into_iter().map(journal::on_the_wire).collect(),
    }))
}

fn kinds(of: &[BlobKind]) -> Vec<String> {
    of.iter().map(|kind| kind.as_str().to_owned()).collect()
}

/// A body through the strict door, and what it means.
pub(super) async fn typed_body<T: DeserializeOwned>(
    body: Body,
) -> Result<(CanonicalJson, T), Refused> {
    typed_body_of(body, MOST_BODY).await
}

/// The same, of at most so many bytes.
pub(super) async fn typed_body_of<T: DeserializeOwned>(
    body: Body,
    most: usize,
) -> Result<(CanonicalJson, T), Refused> {
    let bytes = whole_body(body, most).await?;
    let whole = CanonicalJson::parse(&bytes).map_err(|error| match &error {
        NotCanonical::Malformed(_) => not_json(&error.to_string()),
        NotCanonical::InexactNumber(_) => Refused::new(
            RefusalKind::Invalid,
            "inexact_number",
            error.to_string(),
            "quote the number, or round it to 53 bits",
        ),
    })?;
    if !whole.value().is_object() {
        return Err(not_json("the body is not a JSON object"));
    }
    let meant = T::deserialize(whole.value()).map_err(|error| not_json(&error.to_string()))?;
    Ok((whole, meant))
}

pub(super) async fn whole_body(mut body: Body, most: usize) -> Result<Bytes, Refused> {
    let mut kept = Vec::new();
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| not_json(&format!("the body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        read += data.len();
        if read > MOST_DRAINED {
            break;
        }
        if read <= most {
            kept.extend_from_slice(&data);
        }
    }
    if read > most {
        return Err(Refused::new(
            RefusalKind::TooLarge,
            "input_too_large",
            format!("this request takes {most} bytes at most"),
            "send less; put large content into a file of the workspace",
        ));
    }
    Ok(kept.into())
}

fn not_json(why: &str) -> Refused {
    let next_step = "send one JSON object as `GET /openapi.json` describes it";
    Refused::new(RefusalKind::Invalid, "invalid_json", why, next_step)
}

/// The events of a call, one JSON object a line. Dropping the stream lets go of the call.
fn event_stream(handle: CallHandle) -> Response {
    enum Stage {
        Accepted(CallHandle),
        Going(CallHandle),
        Over,
    }
    let lines = futures::stream::unfold(Stage::Accepted(handle), async |stage| {
        let (event, next) = match stage {
            Stage::Accepted(handle) => {
                let call_id = handle.call().to_string();
                (CallEvent::Accepted { call_id }, Stage::Going(handle))
            }
            Stage::Going(mut handle) => match handle.next().await {
                Some(event) => (on_the_wire(event, &handle), Stage::Going(handle)),
                None => (ending(handle).await, Stage::Over),
            },
            Stage::Over => return None,
        };
        let mut line = serde_json::to_vec(&event).unwrap_or_default();
        line.push(b'\n');
        Some((Ok::<_, Infallible>(Bytes::from(line)), next))
    });
    let mut response = Response::new(Body::from_stream(lines));
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn on_the_wire(event: Event, handle: &CallHandle) -> CallEvent {
    match event {
        Event::ApprovalPending {
            approval,
            expires_at,
            joined,
        } => CallEvent::ApprovalPending {
            call_id: handle.call().to_string(),
            approval_id: approval.to_string(),
            expires_at: expires_at.to_string(),
            joined,
        },
        Event::Started => CallEvent::Started,
        Event::Output(chunk) => CallEvent::Output {
            stream: match chunk.stream {
                palyra_sandbox::OutputStream::Stdout => OutputStream::Stdout,
                palyra_sandbox::OutputStream::Stderr => OutputStream::Stderr,
            },
            base64: base64::engine::general_purpose::STANDARD.encode(&chunk.bytes),
            missed: chunk.missed,
        },
        Event::Connection(record) => CallEvent::Connection {
            record: serde_json::to_value(record).unwrap_or_default(),
        },
    }
}

async fn ending(handle: CallHandle) -> CallEvent {
    match handle.finish().await {
        Ok(report) => CallEvent::Finished {
            result: Box::new(result(&report)),
        },
        Err(refusal) => CallEvent::Refused {
            error: Refused(refusal).problem(),
        },
    }
}

fn result(report: &Arc<CallReport>) -> CallResult {
    let mut result = CallResult {
        call_id: report.call.to_string(),
        outcome: Outcome::Completed,
        exit_code: None,
        signal: None,
        output: None,
        problem: None,
        approval_id: report.approval.as_ref().map(ToString::to_string),
        attestation: None,
    };
    match &report.conclusion {
        // Not how a call ends: those who ask for advice are answered elsewhere.
        Conclusion::Advised { .. } => result.outcome = outcome(CallState::Advised),
        Conclusion::Denied(denial) => {
            result.outcome = outcome(CallState::after_denial(denial.code));
            result.problem = Some(Problem {
                code: denial.code.as_str().to_owned(),
                message: denial.reason.clone(),
                next_step: denial.next_step.clone(),
            });
        }
        Conclusion::Executed {
            attestation,
            output,
        } => {
            let ending = &attestation.report.ending;
            result.outcome = outcome(CallState::after(ending));
            result.output = Some(output.clone());
            result.attestation = serde_json::to_value(attestation).ok();
            match ending {
                Ending::Exited { code } => result.exit_code = Some(*code),
                Ending::Signalled { signal } => result.signal = Some(*signal),
                Ending::TimedOut => {
                    let next_step = "give it longer with `--timeout`";
                    result.problem = problem("timed_out", "its time was over", next_step);
                }
                Ending::Cancelled { reason } => {
                    result.problem = problem("cancelled", reason, "propose the call again");
                }
                Ending::Failed { kind, message } => {
                    let next_step = match kind {
                        RunErrorKind::ProgramChanged => {
                            "look at what is there now, then propose the call again".to_owned()
                        }
                        RunErrorKind::SandboxUnavailable
                        | RunErrorKind::SandboxDegraded
                        | RunErrorKind::ProgramNotFound
                        | RunErrorKind::ProgramNotExecutable
                        | RunErrorKind::InvalidInput
                        | RunErrorKind::Changed
                        | RunErrorKind::WorkspaceScopeDenied
                        | RunErrorKind::PathMasked
                        | RunErrorKind::PathReadOnly
                        | RunErrorKind::MaskLost
                        | RunErrorKind::EgressDenied
                        | RunErrorKind::RuntimeFailure => {
                            format!("see `palyra calls show {}`", report.call)
                        }
                    };
                    result.problem = problem(kind.as_str(), message, &next_step);
                }
            }
        }
    }
    result
}

fn problem(code: &str, message: &str, next_step: &str) -> Option<Problem> {
    let (code, message) = (code.to_owned(), message.to_owned());
    Some(Problem {
        code,
        message,
        next_step: next_step.to_owned(),
    })
}

const fn outcome(state: CallState) -> Outcome {
    match state {
        CallState::Completed => Outcome::Completed,
        CallState::Denied => Outcome::Denied,
        CallState::ApprovalDenied => Outcome::ApprovalDenied,
        CallState::ApprovalExpired => Outcome::ApprovalExpired,
        CallState::TimedOut => Outcome::TimedOut,
        CallState::Cancelled => Outcome::Cancelled,
        CallState::SandboxUnavailable => Outcome::SandboxUnavailable,
        CallState::Interrupted => Outcome::Interrupted,
        CallState::Advised
        | CallState::Failed
        | CallState::Proposed
        | CallState::Waiting
        | CallState::Admitted => Outcome::Failed,
    }
}

fn summary(row: &CallRow) -> CallSummary {
    CallSummary {
        call_id: row.call.to_string(),
        tool: row.tool.to_string(),
        principal: row.principal.to_string(),
        proposed_at: row.proposed_at.to_string(),
        state: row.state.as_str().to_owned(),
        exit_code: row.exit_code,
        code: row.code.clone(),
        approval_id: row.approval.as_ref().map(ToString::to_string),
        took_ms: row.took_ms,
    }
}
