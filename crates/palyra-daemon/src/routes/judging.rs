//! Asking policies about the past: explain, simulate, replay.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::Bytes;
use palyra_api::wire::ErrorBody;
use palyra_api::wire::policy::{
    CallExplained, ExplainCall, PolicyBecause, PolicyDraft, PolicyExplanation, PolicyQuestion,
    PolicySimulation, ReplayEvent, ReplayFlip, ReplayGap, ReplayPolicies, ReplaySummary,
    SimulatePolicies, Verdict,
};
use palyra_gateway::Caller;
use palyra_gateway::error::RefusalKind;
use palyra_gateway::policies::{self, CallJudged, Draft, Simulated, SourceText};
use palyra_policy::operator::{Because, CallExplanation, Explanation, Outcome};
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use super::calls::{typed_body, typed_body_of};
use super::{App, Who, reading};
use crate::problem::Refused;

/// A draft is a whole folder of policies, written as JSON.
const MOST_DRAFT: usize = 24 << 20;

#[utoipa::path(post, path = "/api/v1/policy/explain", operation_id = "explain_call", request_body = ExplainCall, responses((status = 200, body = CallExplained), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn explain(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<CallExplained>, Refused> {
    let _turn = turn(&app, &caller).await?;
    let wanted: ExplainCall = typed_body(body).await?.1;
    let gateway = app.gateway.clone();
    let found = reading(move || gateway.explain_call(&caller, &wanted.call_id)).await?;
    let CallJudged {
        call,
        recorded,
        matched,
        policy_version,
        number,
        explained_with,
        explanation,
        now,
    } = found;
    Ok(Json(CallExplained {
        call_id: call.to_string(),
        recorded: verdict(recorded),
        matched,
        policy_version,
        number,
        explained_with,
        now: verdict(now),
        explanation: of_call(explanation),
    }))
}

#[utoipa::path(post, path = "/api/v1/policy/simulate", operation_id = "simulate_policies", request_body = SimulatePolicies, responses((status = 200, body = PolicySimulation), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn simulate(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<PolicySimulation>, Refused> {
    let _turn = turn(&app, &caller).await?;
    let wanted: SimulatePolicies = typed_body_of(body, MOST_DRAFT).await?.1;
    let draft = draft(wanted.draft)?;
    let gateway = app.gateway.clone();
    let (asked, found) = match (wanted.call_id, wanted.request) {
        (Some(call), None) => {
            let found = reading(move || gateway.simulate_call(&caller, &draft, &call));
            (Value::Null, found.await?)
        }
        (None, Some(request)) => {
            let asked = request.clone();
            let found = reading(move || gateway.simulate_request(&caller, &draft, request));
            (asked, found.await?)
        }
        (Some(_), Some(_)) | (None, None) => return Err(one_of_two()),
    };
    let (before, draft) = match found {
        Simulated::Call { before, draft } => (before, of_call(*draft)),
        Simulated::Request(found) => (found.before, of_request(found.draft, &asked)),
    };
    let before = verdict(before);
    Ok(Json(PolicySimulation {
        flips: before != draft.outcome,
        before,
        draft,
    }))
}

#[utoipa::path(
    post, path = "/api/v1/policy/replay", operation_id = "replay_policies", request_body = ReplayPolicies,
    description = "Decides again what was decided in that time. The answer is a stream of ReplayEvent, one a line.",
    responses((status = 200, body = ReplayEvent, content_type = "application/x-ndjson"), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn replay(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Response, Refused> {
    let turn = turn(&app, &caller).await?;
    let wanted: ReplayPolicies = typed_body_of(body, MOST_DRAFT).await?.1;
    let draft = draft(wanted.draft)?;
    let since = Duration::from_millis(wanted.since_ms);
    let heard = app.gateway.replay_policies(&caller, draft, since).await?;
    Ok(event_stream(heard, turn))
}

/// Lets in whoever may ask at all, before a large body is read for them, and few at a time: each
/// may check thousands of policies.
async fn turn(app: &App, caller: &Caller) -> Result<SemaphorePermit<'static>, Refused> {
    static TURNS: Semaphore = Semaphore::const_new(2);
    const PATIENCE: Duration = Duration::from_secs(10);
    app.gateway.may_judge(caller)?;
    match tokio::time::timeout(PATIENCE, TURNS.acquire()).await {
        Ok(Ok(turn)) => Ok(turn),
        Ok(Err(_)) | Err(_) => Err(Refused::new(
            RefusalKind::Unavailable,
            "policies_busy",
            "others are explaining, simulating or replaying",
            "wait until they are done, then repeat it",
        )),
    }
}

/// The events of a replay, one JSON object a line. Dropping the stream ends it.
fn event_stream(
    heard: mpsc::Receiver<policies::ReplayEvent>,
    turn: SemaphorePermit<'static>,
) -> Response {
    let lines = futures::stream::unfold((heard, turn), async |(mut heard, turn)| {
        let event = on_the_wire(heard.recv().await?);
        let mut line = serde_json::to_vec(&event).unwrap_or_default();
        line.push(b'\n');
        Some((Ok::<_, Infallible>(Bytes::from(line)), (heard, turn)))
    });
    let mut response = Response::new(Body::from_stream(lines));
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn on_the_wire(event: policies::ReplayEvent) -> ReplayEvent {
    use policies::ReplayEvent as Heard;
    let gap = |call_id: String, at: palyra_core::Timestamp| ReplayGap {
        call_id,
        at: at.to_string(),
    };
    match event {
        Heard::Progress { read, of } => ReplayEvent::Progress { read, of },
        Heard::Erased { call, at } => ReplayEvent::Erased(gap(call, at)),
        Heard::Unreadable { call, at } => ReplayEvent::Unreadable(gap(call, at)),
        Heard::Flip(flip) => ReplayEvent::Flip(ReplayFlip {
            call_id: flip.facts.call.to_string(),
            at: flip.at.to_string(),
            principal: flip.facts.origin.principal.to_string(),
            tool: flip.facts.tool.to_string(),
            before: verdict(flip.before),
            after: verdict(flip.after),
            widens: flip.widens(),
            policies: flip.policies,
            could_not_tell: flip.could_not_tell,
        }),
        Heard::Finished(found) => ReplayEvent::Finished(ReplaySummary {
            decisions: found.decisions,
            flips: found.flips,
            widening: found.widening,
            erased: found.erased,
            unreadable: found.unreadable,
        }),
        Heard::Failed(refusal) => ReplayEvent::Failed {
            error: Refused(refusal).problem(),
        },
    }
}

fn draft(draft: PolicyDraft) -> Result<Draft, Refused> {
    let baseline = draft.baseline.map(|name| name.parse()).transpose();
    let files = draft.files.into_iter().map(|file| SourceText {
        name: file.name,
        text: file.text,
    });
    Ok(Draft {
        baseline: baseline.map_err(|error: palyra_policy::UnknownBaseline| {
            let next_step = "leave it out for the daemon's own";
            let message = error.to_string();
            Refused::new(RefusalKind::Invalid, "unknown_baseline", message, next_step)
        })?,
        files: files.collect(),
    })
}

fn one_of_two() -> Refused {
    Refused::new(
        RefusalKind::Invalid,
        "invalid_simulation",
        "a draft is asked about either a call or a request",
        "give one of `call_id` and `request`",
    )
}

const fn verdict(outcome: Outcome) -> Verdict {
    match outcome {
        Outcome::Allow => Verdict::Allow,
        Outcome::Ask => Verdict::Ask,
        Outcome::Deny => Verdict::Deny,
    }
}

fn of_call(found: CallExplanation) -> PolicyExplanation {
    let questions = found.questions.into_iter().map(|asked| PolicyQuestion {
        principal: asked.principal,
        action: asked.action,
        resource: asked.resource,
        allowed: asked.allowed,
        because: asked.because.into_iter().map(because).collect(),
        facts: asked.facts,
        unexplained: asked.unexplained,
    });
    PolicyExplanation {
        outcome: verdict(found.outcome),
        questions: questions.collect(),
        remedies: found.remedies.into_iter().map(|it| it.sentences).collect(),
        log_only: found.log_only,
    }
}

fn of_request(found: Explanation, asked: &Value) -> PolicyExplanation {
    let part = |name: &str| {
        let part = asked.get(name).and_then(Value::as_str);
        part.unwrap_or_default().to_owned()
    };
    let Explanation {
        outcome,
        parties,
        facts,
        remedies,
        log_only,
    } = found;
    let questions = parties.into_iter().map(|party| PolicyQuestion {
        principal: party.principal,
        action: part("action"),
        resource: part("resource"),
        allowed: party.allowed,
        because: party.because.into_iter().map(because).collect(),
        facts: facts.clone(),
        unexplained: None,
    });
    PolicyExplanation {
        outcome: verdict(outcome),
        questions: questions.collect(),
        remedies: remedies.into_iter().map(|it| it.sentences).collect(),
        log_only,
    }
}

fn because(found: Because) -> PolicyBecause {
    PolicyBecause {
        policy: found.policy,
        permits: found.permits,
        reason: found.reason,
        hint: found.hint,
    }
}
