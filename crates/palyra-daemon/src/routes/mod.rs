//! Requests in, answers out. Each handler asks the gateway one question.

pub mod advising;
pub mod agents;
pub mod approvals;
pub mod calls;
pub mod doctor;
pub mod grants;
pub mod journal;
pub mod judging;
pub mod keeping;
pub mod policy;
pub mod postures;
pub mod presence;
pub mod proofs;
pub mod quarantine;
pub mod status;
pub mod tools;
pub mod vault;
pub mod watching;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::routing::{get, post};
use palyra_api::wire::{AS_HEADER, CHANNEL_HEADER, Page};
use palyra_core::{Channel, Timestamp};
use palyra_gateway::error::RefusalKind;
use palyra_gateway::{Caller, GatewayService};
use utoipa::OpenApi;

use crate::door::AtTheDoor;
use crate::openapi::Api;
use crate::problem::Refused;

/// What every handler can reach.
#[derive(Clone)]
pub(crate) struct App(Arc<AppState>);

pub(crate) struct AppState {
    pub(crate) gateway: GatewayService,
    pub(crate) about: About,
}

/// What a daemon says about itself.
pub struct About {
    /// When it started.
    pub started_at: Timestamp,
    /// Things an operator should know.
    pub warnings: Vec<String>,
}

impl std::ops::Deref for App {
    type Target = AppState;
    fn deref(&self) -> &AppState {
        &self.0
    }
}

/// The whole API over this gateway.
pub fn router(gateway: GatewayService, about: About) -> Router {
    let app = App(Arc::new(AppState { gateway, about }));
    Router::new()
        .route("/healthz", get(status::healthz))
        .route("/openapi.json", get(async || axum::Json(Api::openapi())))
        .route("/api/v1/status", get(status::status))
        .route("/api/v1/doctor", get(doctor::examine))
        .route("/api/v1/tools", get(tools::list))
        .route("/api/v1/tools/watch", get(tools::watch))
        .route("/api/v1/tools/{name}", get(tools::show))
        .route("/api/v1/agents", get(agents::list).post(agents::add))
        .route(
            "/api/v1/agents/{name}",
            get(agents::show).delete(agents::remove),
        )
        .route("/api/v1/agents/{name}/pause", post(agents::pause))
        .route("/api/v1/agents/{name}/resume", post(agents::resume))
        .route("/api/v1/vault", get(vault::status))
        .route("/api/v1/vault/secrets", get(vault::list).post(vault::put))
        .route("/api/v1/vault/versions", get(vault::versions))
        .route("/api/v1/vault/reveal", post(vault::reveal))
        .route("/api/v1/vault/delete", post(vault::delete))
        .route("/api/v1/vault/rotate", post(vault::rotate))
        .route("/api/v1/vault/unlock", post(vault::unlock))
        .route("/api/v1/vault/lock", post(vault::lock))
        .route("/api/v1/vault/export", post(vault::export))
        .route("/api/v1/vault/import", post(vault::import))
        .route("/api/v1/vault/audit", get(vault::audit))
        .route("/api/v1/calls", get(calls::list).post(calls::call))
        .route("/api/v1/calls/{id}", get(calls::show))
        .route("/api/v1/calls/{id}/input", post(calls::input))
        .route("/api/v1/calls/{id}/attestation", get(proofs::attestation))
        .route("/api/v1/calls/{id}/erase", post(keeping::erase))
        .route("/api/v1/advice", post(advising::advise))
        .route("/api/v1/approvals", get(approvals::list))
        .route("/api/v1/approvals/stats", get(approvals::stats))
        .route("/api/v1/approvals/{id}", get(approvals::show))
        .route("/api/v1/approvals/{id}/decide", post(approvals::decide))
        .route("/api/v1/grants", get(grants::list))
        .route("/api/v1/grants/explain", get(grants::explain))
        .route("/api/v1/grants/{id}", get(grants::show))
        .route("/api/v1/grants/{id}/revoke", post(grants::revoke))
        .route("/api/v1/postures", get(postures::list).post(postures::set))
        .route("/api/v1/presence", get(presence::show).post(presence::set))
        .route("/api/v1/presence/end", post(presence::end))
        .route("/api/v1/presence/forget", post(presence::forget))
        .route("/api/v1/watch", get(watching::watch))
        .route("/api/v1/journal", get(journal::read))
        .route("/api/v1/policy", get(policy::overview))
        .route("/api/v1/policy/versions", get(policy::versions))
        .route("/api/v1/policy/versions/{number}", get(policy::show))
        .route("/api/v1/policy/reload", post(policy::reload))
        .route("/api/v1/policy/activate", post(policy::activate))
        .route("/api/v1/policy/rollback", post(policy::rollback))
        .route("/api/v1/policy/explain", post(judging::explain))
        .route("/api/v1/policy/simulate", post(judging::simulate))
        .route("/api/v1/policy/replay", post(judging::replay))
        .route("/api/v1/quarantine", get(quarantine::list))
        .route("/api/v1/quarantine/{id}/restore", post(quarantine::restore))
        .route("/api/v1/journal/rebuild", post(keeping::rebuild))
        .route("/api/v1/journal/backup", get(keeping::backup))
        .route("/api/v1/journal/checkpoint", get(proofs::checkpoint))
        .route("/api/v1/journal/export", get(proofs::export))
        .fallback(async || no_route())
        .method_not_allowed_fallback(async || wrong_method())
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(app)
}

/// The caller of a request: who the kernel named at the door, lowered if the request says so.
pub(crate) struct Who(pub(crate) Caller);

impl FromRequestParts<App> for Who {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refused> {
        let at_the_door = parts.extensions.get::<AtTheDoor>();
        let visitor = match at_the_door {
            Some(Ok(visitor)) => visitor,
            Some(Err(refused)) => return Err(Refused(refused.0.clone())),
            None => {
                let (message, next_step) = ("the caller is not known", "connect to the socket");
                return Err(Refused::new(
                    RefusalKind::Forbidden,
                    "unknown_peer",
                    message,
                    next_step,
                ));
            }
        };
        let mut headers = parts.headers.get_all(AS_HEADER).iter();
        let channel = channel(parts)?;
        let caller = match channel {
            Channel::Cli => visitor.caller.clone(),
            Channel::Mcp | Channel::Hook => {
                // The client runs in the terminal's session, and can type there what it likes.
                if let Some(session) = &visitor.caller.session {
                    app.gateway.agent_seen(session);
                }
                visitor.alone()
            }
        };
        let caller = caller.by_channel(channel);
        match (headers.next(), headers.next()) {
            // A person does not come by an agent's client.
            (None, _) if channel != Channel::Cli => Err(not_for_a_person()),
            (None, _) => Ok(Self(Caller {
                presence: presence::given(&parts.headers)?,
                ..caller
            })),
            (Some(lowered), None) => {
                let text = lowered.to_str().ok();
                let name = text.and_then(|text| text.strip_prefix("agent:"));
                let name = name
                    .and_then(|name| name.parse().ok())
                    .ok_or_else(cannot_lower)?;
                Ok(Self(app.gateway.lower(&caller, &name)?))
            }
            (Some(_), Some(_)) => Err(cannot_lower()),
        }
    }
}

/// Which of the ways of an agent's client it says it is, if any.
fn channel(parts: &Parts) -> Result<Channel, Refused> {
    let mut headers = parts.headers.get_all(CHANNEL_HEADER).iter();
    let (Some(said), next) = (headers.next(), headers.next()) else {
        return Ok(Channel::Cli);
    };
    match (said.as_bytes(), next) {
        (b"mcp", None) => Ok(Channel::Mcp),
        (b"hook", None) => Ok(Channel::Hook),
        _ => Err(Refused::new(
            RefusalKind::Forbidden,
            "unknown_channel",
            "`palyra-channel` must be one `mcp` or `hook`",
            "leave it out, or use `palyra mcp serve`",
        )),
    }
}

fn not_for_a_person() -> Refused {
    Refused::new(
        RefusalKind::Forbidden,
        "agent_required",
        "only an agent comes by `palyra-channel`",
        "say which one with `--as agent:NAME`",
    )
}

/// What the query asks for; a mistake in it is answered like every other.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: serde::de::DeserializeOwned> FromRequestParts<App> for Asked<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refused> {
        let query = Query::<T>::from_request_parts(parts, app).await;
        query.map(|Query(asked)| Self(asked)).map_err(|error| {
            let next_step = "see the query's parameters in `GET /openapi.json`";
            Refused::new(
                RefusalKind::Invalid,
                "invalid_query",
                error.body_text(),
                next_step,
            )
        })
    }
}

/// The id or name in the path.
pub(crate) struct Named(pub(crate) String);

impl FromRequestParts<App> for Named {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refused> {
        let path = Path::<String>::from_request_parts(parts, app).await;
        path.map(|Path(name)| Self(name)).map_err(|_| no_route())
    }
}

fn cannot_lower() -> Refused {
    Refused::new(
        RefusalKind::Forbidden,
        "cannot_lower",
        "`palyra-as` must be one `agent:NAME`",
        "see who is registered with `palyra agents list`",
    )
}

fn no_route() -> Refused {
    let (message, next_step) = ("there is nothing at this path", "see `GET /openapi.json`");
    Refused::new(RefusalKind::NotFound, "no_such_route", message, next_step)
}

fn wrong_method() -> Refused {
    let (message, next_step) = ("this path takes other methods", "see `GET /openapi.json`");
    Refused::new(RefusalKind::Invalid, "wrong_method", message, next_step)
}

/// How many rows a list gives when nobody says, and at most.
const USUAL_PAGE: usize = 50;
const LARGEST_PAGE: usize = 1_000;

/// How many items the reader wants.
pub(crate) fn page_size(asked: Option<usize>) -> usize {
    asked.unwrap_or(USUAL_PAGE).clamp(1, LARGEST_PAGE)
}

/// A page of `size` from items that were read with one to spare: the spare one says that another
/// page follows.
pub(crate) fn page<T>(mut items: Vec<T>, size: usize, key: impl Fn(&T) -> String) -> Page<T> {
    let more = items.len() > size;
    items.truncate(size);
    let next = items.last().filter(|_| more).map(key);
    Page { items, next }
}

/// Reads SQLite without holding up the other requests of this thread.
pub(crate) async fn reading<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, palyra_gateway::Refusal> + Send + 'static,
) -> Result<T, Refused> {
    match tokio::task::spawn_blocking(read).await {
        Ok(answer) => answer.map_err(Refused),
        Err(error) => {
            tracing::error!(%error, "a reader broke");
            let next_step = "see the daemon's log";
            Err(Refused::new(
                RefusalKind::Unavailable,
                "internal_error",
                "reading broke",
                next_step,
            ))
        }
    }
}
