//! Advice for an agent's client about what it does by itself.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use palyra_api::wire::{AdviceAnswer, AdviceRequest, ErrorBody, Problem};
use palyra_core::{CanonicalJson, DenialCode};
use palyra_gateway::advising::{Advice, Advised};

use super::calls::{typed_body, wanted};
use super::{App, Who};
use crate::problem::Refused;

#[utoipa::path(
    post, path = "/api/v1/advice", operation_id = "advise", request_body = AdviceRequest,
    description = "Whether an agent's client may do this with a tool of its own. Nothing runs. With `rewritable` the answer is a token, and the call runs here by it.",
    responses((status = 200, body = AdviceAnswer), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn advise(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<AdviceAnswer>, Refused> {
    let (whole, request): (CanonicalJson, AdviceRequest) = typed_body(body).await?;
    let advice = match request.rewritable {
        true => Advice::Rewritten,
        false => Advice::Native,
    };
    let wanted = wanted(&whole, request.call())?;
    let advised = app.gateway.advise(&caller, wanted, advice).await?;
    Ok(Json(match advised {
        Advised::Native(call) => answer("allow", &call),
        Advised::Rewritten(call, token) => AdviceAnswer {
            token: Some(token),
            ..answer("allow", &call)
        },
        Advised::Denied(call, denial, approval) => AdviceAnswer {
            problem: Some(Problem {
                code: denial.code.as_str().to_owned(),
                message: denial.reason,
                next_step: denial.next_step,
            }),
            approval_id: approval.map(|id| id.to_string()),
            ..answer(
                match denial.code == DenialCode::ApprovalPending {
                    true => "pending",
                    false => "deny",
                },
                &call,
            )
        },
    }))
}

fn answer(decision: &str, call: &palyra_core::CallId) -> AdviceAnswer {
    AdviceAnswer {
        decision: decision.to_owned(),
        call_id: call.to_string(),
        token: None,
        problem: None,
        approval_id: None,
    }
}
