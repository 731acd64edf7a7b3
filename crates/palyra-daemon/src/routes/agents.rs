//! Registered agents.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use palyra_api::wire::{Agent, ErrorBody, NewAgent, Page, PauseAgent};

use super::calls::typed_body;
use super::{App, Named, Who};
use crate::problem::Refused;

#[utoipa::path(get, path = "/api/v1/agents", operation_id = "list_agents", responses((status = 200, body = Page<Agent>), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<Page<Agent>>, Refused> {
    let agents = app.gateway.agents(&caller)?;
    Ok(Json(Page {
        items: agents.into_iter().map(on_the_wire).collect(),
        next: None,
    }))
}

#[utoipa::path(post, path = "/api/v1/agents", operation_id = "add_agent", request_body = NewAgent, responses((status = 200, body = Agent), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn add(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<Agent>, Refused> {
    let wanted: NewAgent = typed_body(body).await?.1;
    let folder = std::path::PathBuf::from(wanted.workspace);
    let agent = app
        .gateway
        .add_agent(&caller, &wanted.name, &folder, wanted.unattended)
        .await?;
    Ok(Json(on_the_wire(agent)))
}

#[utoipa::path(get, path = "/api/v1/agents/{name}", operation_id = "show_agent", params(("name" = String, Path,)), responses((status = 200, body = Agent), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn show(
    State(app): State<App>,
    Who(caller): Who,
    Named(name): Named,
) -> Result<Json<Agent>, Refused> {
    Ok(Json(on_the_wire(app.gateway.agent(&caller, &name)?)))
}

#[utoipa::path(delete, path = "/api/v1/agents/{name}", operation_id = "remove_agent", params(("name" = String, Path,)), responses((status = 200, body = Agent), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    Who(caller): Who,
    Named(name): Named,
) -> Result<Json<Agent>, Refused> {
    Ok(Json(on_the_wire(
        app.gateway.remove_agent(&caller, &name).await?,
    )))
}

#[utoipa::path(post, path = "/api/v1/agents/{name}/pause", operation_id = "pause_agent", description = "Ends what the agent runs and asks and what was granted to it; it may do nothing until a person resumes it.", params(("name" = String, Path,)), request_body = PauseAgent, responses((status = 200, body = Agent), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn pause(
    State(app): State<App>,
    Who(caller): Who,
    Named(name): Named,
    body: Body,
) -> Result<Json<Agent>, Refused> {
    let wanted: PauseAgent = typed_body(body).await?.1;
    let reason = wanted.reason.as_deref();
    Ok(Json(on_the_wire(
        app.gateway.pause_agent(&caller, &name, reason).await?,
    )))
}

#[utoipa::path(post, path = "/api/v1/agents/{name}/resume", operation_id = "resume_agent", params(("name" = String, Path,)), responses((status = 200, body = Agent), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn resume(
    State(app): State<App>,
    Who(caller): Who,
    Named(name): Named,
) -> Result<Json<Agent>, Refused> {
    Ok(Json(on_the_wire(
        app.gateway.resume_agent(&caller, &name).await?,
    )))
}

fn on_the_wire(agent: palyra_identity::Agent) -> Agent {
    Agent {
        name: agent.name.to_string(),
        user: agent.user.to_string(),
        workspace: agent.workspace.display().to_string(),
        registered_at: agent.registered_at.to_string(),
        paused: agent.paused,
        paused_for: agent.paused_for.as_deref().map(palyra_core::render::line),
        unattended: agent.unattended,
    }
}
