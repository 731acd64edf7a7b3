//! Grants: what is in force, why, and its end.

use axum::Json;
use axum::extract::State;
use palyra_api::wire::{ErrorBody, Explained, Grant, Page, Reach as WireReach};
use palyra_core::{Reach, WhyEnded, render};
use palyra_gateway::granting::GrantView;
use serde::Deserialize;

use super::approvals::cover;
use super::{App, Asked, Named, Who, reading};
use crate::problem::Refused;

/// Which grants.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    #[serde(default)]
    all: bool,
}

#[utoipa::path(
    get, path = "/api/v1/grants", operation_id = "list_grants",
    params(("all" = Option<bool>, Query, description = "those that ended, too")),
    responses((status = 200, body = Page<Grant>), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Asked(which): Asked<Which>,
) -> Result<Json<Page<Grant>>, Refused> {
    let gateway = app.gateway.clone();
    let found = reading(move || gateway.grants(&caller, !which.all)).await?;
    Ok(Json(Page {
        items: found.iter().map(on_the_wire).collect(),
        next: None,
    }))
}

#[utoipa::path(get, path = "/api/v1/grants/{id}", operation_id = "show_grant", params(("id" = String, Path,)), responses((status = 200, body = Grant), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn show(
    State(app): State<App>,
    Who(caller): Who,
    Named(id): Named,
) -> Result<Json<Grant>, Refused> {
    let gateway = app.gateway.clone();
    let view = reading(move || gateway.grant(&caller, &id)).await?;
    Ok(Json(with_rule(&view)))
}

#[utoipa::path(post, path = "/api/v1/grants/{id}/revoke", operation_id = "revoke_grant", params(("id" = String, Path,)), responses((status = 200, body = Grant), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn revoke(
    State(app): State<App>,
    Who(caller): Who,
    Named(id): Named,
) -> Result<Json<Grant>, Refused> {
    let view = app.gateway.revoke_grant(&caller, &id).await?;
    Ok(Json(with_rule(&view)))
}

/// Which call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfCall {
    call: String,
}

#[utoipa::path(
    get, path = "/api/v1/grants/explain", operation_id = "explain_grant",
    params(("call" = String, Query, description = "a call that was made before")),
    responses((status = 200, body = Explained), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn explain(
    State(app): State<App>,
    Who(caller): Who,
    Asked(of): Asked<OfCall>,
) -> Result<Json<Explained>, Refused> {
    let (gateway, call) = (app.gateway.clone(), of.call.clone());
    let explained = reading(move || gateway.explain_grant(&caller, &call)).await?;
    Ok(Json(Explained {
        call_id: of.call,
        grant: explained.grant.as_ref().map(with_rule),
        answer: explained.answer.to_owned(),
        reasons: explained
            .reasons
            .iter()
            .map(|it| render::line(it))
            .collect(),
    }))
}

fn with_rule(view: &GrantView) -> Grant {
    let sentence = view.sentence.as_deref().unwrap_or("its words were erased");
    let rule = palyra_policy::grant_text(&view.record.terms, sentence);
    Grant {
        rule: Some(rule),
        ..on_the_wire(view)
    }
}

fn on_the_wire(view: &GrantView) -> Grant {
    let (record, terms) = (&view.record, &view.record.terms);
    Grant {
        grant_id: terms.id.to_string(),
        state: record.state.as_str().to_owned(),
        agent: terms.agent.to_string(),
        tool: terms.tool.to_string(),
        scope: match terms.reach {
            Reach::Once => WireReach::Once,
            Reach::Session => WireReach::Session,
            Reach::Window => WireReach::Window,
        },
        cover: cover(terms.cover),
        sentence: view.sentence.as_deref().map(render::line),
        session_id: terms.session.as_ref().map(ToString::to_string),
        approval_id: terms.approval.to_string(),
        call_id: terms.call.to_string(),
        made_by: terms.made_by.to_string(),
        made_at: record.made_at.to_string(),
        not_after: terms.not_after.to_string(),
        ended_at: record.ended_at.map(|at| at.to_string()),
        why_ended: record.why_ended.map(WhyEnded::as_str).map(str::to_owned),
        ended_by: record.ended_by.as_ref().map(ToString::to_string),
        uses: record.uses,
        last_used_at: record.last_used_at.map(|at| at.to_string()),
        rule: None,
    }
}
