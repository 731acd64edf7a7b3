//! Approvals: seeing and deciding them.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use palyra_api::wire::{Approval, Decide, Decision, ErrorBody, Page};
use palyra_approval::ApprovalPromptRecord;
use palyra_core::ApprovalDecision;
use palyra_gateway::records::{ApprovalView, ListQuery};
use serde::Deserialize;

use super::calls::typed_body;
use super::{App, Who, page, page_size, reading};
use crate::problem::Refused;

/// Which approvals.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    state: Option<String>,
    before: Option<String>,
    limit: Option<usize>,
}

#[utoipa::path(
    get, path = "/api/v1/approvals", operation_id = "list_approvals",
    params(("state" = Option<String>, Query, description = "`pending` (default), `all`, or another state"), ("before" = Option<String>, Query,), ("limit" = Option<usize>, Query,)),
    responses((status = 200, body = Page<Approval>), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Query(which): Query<Which>,
) -> Result<Json<Page<Approval>>, Refused> {
    let state = which.state.unwrap_or_else(|| "pending".to_owned());
    let size = page_size(which.limit);
    let query = ListQuery {
        state: Some(state).filter(|state| state != "all"),
        agent: None,
        before: which.before,
        limit: size + 1,
    };
    let gateway = app.gateway.clone();
    let found = reading(move || gateway.approvals(&caller, &query)).await?;
    let items = found.into_iter().map(on_the_wire).collect();
    Ok(Json(page(items, size, |approval: &Approval| {
        approval.approval_id.clone()
    })))
}

#[utoipa::path(get, path = "/api/v1/approvals/{id}", operation_id = "show_approval", params(("id" = String, Path,)), responses((status = 200, body = Approval), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn show(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Approval>, Refused> {
    let gateway = app.gateway.clone();
    Ok(Json(on_the_wire(
        reading(move || gateway.approval(&caller, &id)).await?,
    )))
}

#[utoipa::path(post, path = "/api/v1/approvals/{id}/decide", operation_id = "decide_approval", params(("id" = String, Path,)), request_body = Decide, responses((status = 200, body = Approval), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn decide(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    body: Body,
) -> Result<Json<Approval>, Refused> {
    let answer: Decide = typed_body(body).await?.1;
    let decision = match answer.decision {
        Decision::Allow => ApprovalDecision::Allow,
        Decision::Deny => ApprovalDecision::Deny,
    };
    let decided = app
        .gateway
        .decide_approval(&caller, &id, decision, answer.reason)
        .await?;
    Ok(Json(on_the_wire(decided)))
}

fn on_the_wire(view: ApprovalView) -> Approval {
    let prompt = ApprovalPromptRecord::new(&view.record, view.arguments.as_ref());
    let shown = prompt
        .arguments
        .unwrap_or_else(|| "(arguments erased)".to_owned());
    let record = view.record;
    Approval {
        approval_id: record.id.to_string(),
        state: record.state.as_str().to_owned(),
        call_id: record.call.to_string(),
        tool: record.tool.to_string(),
        principal: record.principal.to_string(),
        requested_at: record.requested_at.to_string(),
        expires_at: record.expires_at.to_string(),
        decided_by: record.decided_by.as_ref().map(ToString::to_string),
        decided_at: record.decided_at.map(|at| at.to_string()),
        reason: record.reason,
        summary: shown,
        arguments: view.arguments,
    }
}
