//! The journal, as the operator reads it.

use axum::Json;
use axum::extract::State;
use palyra_api::wire::{ErrorBody, JournalEntry, Page};
use palyra_core::entry::Recorded;
use serde::Deserialize;

use super::{App, Asked, Who, page_size, reading};
use crate::problem::Refused;

/// Which entries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    after: Option<u64>,
    limit: Option<usize>,
}

#[utoipa::path(
    get, path = "/api/v1/journal", operation_id = "read_journal",
    params(("after" = Option<u64>, Query, description = "a seq; the newest entries when absent"), ("limit" = Option<usize>, Query,)),
    responses((status = 200, body = Page<JournalEntry>), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn read(
    State(app): State<App>,
    Who(caller): Who,
    Asked(which): Asked<Which>,
) -> Result<Json<Page<JournalEntry>>, Refused> {
    let gateway = app.gateway.clone();
    let limit = page_size(which.limit);
    let entries = reading(move || gateway.journal(&caller, which.after, limit)).await?;
    let items: Vec<JournalEntry> = entries.into_iter().map(on_the_wire).collect();
    let next = items.last().map(|last| last.seq.to_string());
    Ok(Json(Page { items, next }))
}

pub(super) fn on_the_wire(recorded: Recorded) -> JournalEntry {
    JournalEntry {
        seq: recorded.seq,
        stream: recorded.stream,
        revision: recorded.revision,
        at: recorded.at.to_string(),
        kind: recorded.entry.kind().to_owned(),
        entry: serde_json::to_value(&recorded.entry).unwrap_or_default(),
    }
}
