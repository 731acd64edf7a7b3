//! Presence. What is read here is a passphrase, so no error quotes a body or a header.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palyra_api::wire::ErrorBody;
use palyra_api::wire::presence::{PRESENCE_HEADER, Presence, SetPresence};
use palyra_gateway::error::RefusalKind;
use palyra_gateway::presence::{GivenPassphrase, PresenceOverview};

use super::{App, Who, vault};
use crate::problem::Refused;

#[utoipa::path(get, path = "/api/v1/presence", operation_id = "presence", responses((status = 200, body = Presence), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn show(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<Presence>, Refused> {
    Ok(Json(on_the_wire(&app.gateway.presence(&caller)?)))
}

#[utoipa::path(post, path = "/api/v1/presence", operation_id = "set_presence", request_body = SetPresence, responses((status = 200, body = Presence), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn set(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<Presence>, Refused> {
    let wanted: SetPresence = vault::read(body).await?;
    let new = GivenPassphrase::new(wanted.passphrase);
    let overview = app.gateway.set_presence(&caller, new).await?;
    Ok(Json(on_the_wire(&overview)))
}

#[utoipa::path(post, path = "/api/v1/presence/end", operation_id = "end_presence", responses((status = 200, body = Presence), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn end(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<Presence>, Refused> {
    Ok(Json(on_the_wire(&app.gateway.end_presence(&caller).await?)))
}

#[utoipa::path(post, path = "/api/v1/presence/forget", operation_id = "forget_presence", responses((status = 200, body = Presence), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn forget(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<Presence>, Refused> {
    Ok(Json(on_the_wire(&app.gateway.forget_presence(&caller)?)))
}

/// The passphrase that came with a request.
pub(super) fn given(headers: &HeaderMap) -> Result<Option<GivenPassphrase>, Refused> {
    let mut all = headers.get_all(PRESENCE_HEADER).iter();
    let Some(first) = all.next() else {
        return Ok(None);
    };
    let text = STANDARD.decode(first.as_bytes()).ok();
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
    match (text, all.next()) {
        (Some(text), None) => Ok(Some(GivenPassphrase::new(text))),
        (None, _) | (_, Some(_)) => Err(Refused::new(
            RefusalKind::Invalid,
            "invalid_presence",
            format!("`{PRESENCE_HEADER}` must be one passphrase in base 64"),
            "run the command at a terminal, which asks for it",
        )),
    }
}

fn on_the_wire(overview: &PresenceOverview) -> Presence {
    Presence {
        mode: overview.mode.as_str().to_owned(),
        key: overview.key.map(|key| key.to_string()),
        held: overview.held,
        with_agents: overview.with_agents,
    }
}

/// What an operator should know of it.
pub(super) fn warning(overview: &PresenceOverview) -> Option<String> {
    use palyra_core::PresenceMode::{Device, Off, Passphrase};
    match (overview.mode, overview.key, overview.given_up_at) {
        (Device, _, _) => Some(
            "nobody can decide anything: `presence = \"device\"`, and this version pairs none; say \
             `presence = \"passphrase\"` in palyra.toml and restart the daemon"
                .to_owned(),
        ),
        (Passphrase, None, _) => Some(
            "nobody can decide anything: a passphrase is demanded and none is set; set one with \
             `palyra presence set`"
                .to_owned(),
        ),
        (Off, _, Some(at)) => Some(format!(
            "presence was given up without the passphrase at {at}; set another one with `palyra \
             presence set`"
        )),
        (Passphrase, Some(_), _) | (Off, _, None) => None,
    }
}
