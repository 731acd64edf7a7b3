//! The journal, as the operator reads it.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use palyra_api::wire::{ErrorBody, JournalEntry, Page};
use palyra_core::Timestamp;
use palyra_core::entry::Recorded;
use palyra_gateway::Caller;
use palyra_gateway::calls::CallState;
use palyra_gateway::error::RefusalKind;
use palyra_gateway::filtering::{JournalFilter, JournalPage};
use serde::Deserialize;

use super::{App, Asked, Who, page_size, reading};
use crate::problem::Refused;

/// How long a request that waits is held.
const PATIENCE: Duration = Duration::from_secs(20);

/// Which entries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    after: Option<u64>,
    limit: Option<usize>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    agent: Option<String>,
    tool: Option<String>,
    outcome: Option<CallState>,
    #[serde(default)]
    wait: bool,
}

#[utoipa::path(
    get, path = "/api/v1/journal", operation_id = "read_journal",
    description = "Entries, oldest first: the newest that fit, or those after a place. `next` is the last place that was looked at, also when nothing there fits.",
    params(
        ("after" = Option<u64>, Query, description = "a seq; the newest entries when absent"),
        ("limit" = Option<usize>, Query,),
        ("since" = Option<String>, Query, description = "a time; recorded then or later"),
        ("until" = Option<String>, Query, description = "a time; recorded then or before"),
        ("agent" = Option<String>, Query, description = "about calls of this agent"),
        ("tool" = Option<String>, Query, description = "about calls of this tool"),
        ("outcome" = Option<String>, Query, description = "about calls in this state, as they stand now"),
        ("wait" = Option<bool>, Query, description = "with `after`: when there is nothing yet, hold the request until there is, for some seconds"),
    ),
    responses((status = 200, body = Page<JournalEntry>), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn read(
    State(app): State<App>,
    Who(caller): Who,
    Asked(which): Asked<Which>,
) -> Result<Json<Page<JournalEntry>>, Refused> {
    let filter = JournalFilter {
        since: which.since,
        until: which.until,
        agent: which.agent.as_deref().map(named).transpose()?,
        tool: which.tool.as_deref().map(named).transpose()?,
        outcome: which.outcome,
    };
    let limit = page_size(which.limit);
    let mut page = look(&app, &caller, &filter, which.after, limit).await?;
    if let Some(after) = which
        .after
        .filter(|after| which.wait && page.next <= *after)
    {
        app.gateway.journal_past(after, PATIENCE).await;
        page = look(&app, &caller, &filter, which.after, limit).await?;
    }
    let items: Vec<JournalEntry> = page.entries.into_iter().map(on_the_wire).collect();
    let next = Some(page.next.to_string()).filter(|_| page.next > 0);
    Ok(Json(Page { items, next }))
}

async fn look(
    app: &App,
    caller: &Caller,
    filter: &JournalFilter,
    after: Option<u64>,
    limit: usize,
) -> Result<JournalPage, Refused> {
    let (gateway, caller, filter) = (app.gateway.clone(), caller.clone(), filter.clone());
    reading(move || gateway.journal_page(&caller, &filter, after, limit)).await
}

/// A name in a query.
fn named<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, Refused> {
    text.parse().map_err(|error: T::Err| {
        let next_step = "see `palyra agents list` and `palyra tools list`";
        Refused::new(
            RefusalKind::Invalid,
            "invalid_name",
            error.to_string(),
            next_step,
        )
    })
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
