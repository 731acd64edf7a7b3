//! What appeared during calls and was taken away.

use axum::Json;
use axum::extract::State;
use palyra_api::wire::{ErrorBody, Page, Quarantined};

use super::{App, Named, Who, reading};
use crate::problem::Refused;

#[utoipa::path(
    get, path = "/api/v1/quarantine", operation_id = "list_quarantine",
    description = "Names that appeared in a workspace while a call ran, would be run later by somebody outside, and were taken away after the call.",
    responses((status = 200, body = Page<Quarantined>), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<Page<Quarantined>>, Refused> {
    let gateway = app.gateway.clone();
    let found = reading(move || gateway.quarantined(&caller)).await?;
    Ok(Json(Page {
        items: found.iter().map(on_the_wire).collect(),
        next: None,
    }))
}

#[utoipa::path(
    post, path = "/api/v1/quarantine/{id}/restore", operation_id = "restore_quarantined", params(("id" = String, Path,)),
    description = "Puts it back where it was, over nothing. Only a person can.",
    responses((status = 200, body = Quarantined), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn restore(
    State(app): State<App>,
    Who(caller): Who,
    Named(id): Named,
) -> Result<Json<Quarantined>, Refused> {
    let restored = app.gateway.restore_quarantined(&caller, &id).await?;
    Ok(Json(on_the_wire(&restored)))
}

fn on_the_wire(found: &palyra_sandbox::Quarantined) -> Quarantined {
    Quarantined {
        id: found.id.to_string(),
        workspace: found.workspace.display().to_string(),
        path: found.path().display().to_string(),
        why: found.why.clone(),
        taken_at: found.taken_at.to_string(),
    }
}
