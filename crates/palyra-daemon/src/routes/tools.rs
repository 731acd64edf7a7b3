//! The tools that a caller could run or ask for.

use axum::Json;
use axum::extract::State;
use palyra_api::wire::{ErrorBody, Page, Tool};
use palyra_core::ToolMetadata;

use super::{App, Named, Who};
use crate::problem::Refused;

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
