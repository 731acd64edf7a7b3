//! The tools that a caller could run or ask for.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use palyra_api::wire::{ErrorBody, Page, Tool, ToolsEvent};
use palyra_core::ToolMetadata;

use super::{App, Named, Who};
use crate::problem::Refused;

/// How long nothing is said when nothing happens.
const QUIET: Duration = Duration::from_secs(10);

#[utoipa::path(get, path = "/api/v1/tools", responses((status = 200, body = Page<Tool>), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<Page<Tool>>, Refused> {
    let tools = app.gateway.tools(&caller)?;
    Ok(Json(Page {
        items: tools.into_iter().map(on_the_wire).collect(),
        next: None,
    }))
}

#[utoipa::path(get, path = "/api/v1/tools/{name}", params(("name" = String, Path,)), responses((status = 200, body = Tool), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn show(
    State(app): State<App>,
    Who(caller): Who,
    Named(name): Named,
) -> Result<Json<Tool>, Refused> {
    Ok(Json(on_the_wire(app.gateway.tool(&caller, &name)?)))
}

#[utoipa::path(
    get, path = "/api/v1/tools/watch", operation_id = "watch_tools",
    description = "When the list of tools that you may hear of is another one, one JSON object a line, until you go away. It tells nothing else; look the list up.",
    responses((status = 200, body = ToolsEvent), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn watch(State(app): State<App>, Who(caller): Who) -> Result<Response, Refused> {
    let watched = app.gateway.watch_tools(&caller)?;
    let lines = futures::stream::unfold((watched, true), async |(mut watched, first)| {
        let event = match first {
            true => ToolsEvent::Watching,
            false => match tokio::time::timeout(QUIET, watched.changed()).await {
                Err(_) => ToolsEvent::Alive,
                Ok(true) => ToolsEvent::Changed,
                Ok(false) => return None,
            },
        };
        let mut line = serde_json::to_vec(&event).unwrap_or_default();
        line.push(b'\n');
        Some((Ok::<_, Infallible>(Bytes::from(line)), (watched, false)))
    });
    let mut response = Response::new(Body::from_stream(lines));
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

fn on_the_wire(tool: ToolMetadata) -> Tool {
    Tool {
        sensitive: tool.is_sensitive(),
        name: tool.name.to_string(),
        description: tool.description,
        capabilities: tool
            .capabilities
            .iter()
            .map(|need| need.as_str().to_owned())
            .collect(),
        max_input_bytes: tool.max_input_bytes,
        input_schema: tool.input_schema,
        default_limits: serde_json::to_value(&tool.default_limits).unwrap_or_default(),
    }
}
