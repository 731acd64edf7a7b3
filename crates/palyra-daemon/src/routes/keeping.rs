//! What a person does to the journal.

use std::io::{self, Read as _};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::Bytes;
use palyra_api::wire::{
    CallErased, EraseCall, EraseWhat, ErasedContent, ErrorBody, JournalRebuilt, ProjectionRebuilt,
};
use palyra_gateway::keeping::What;

use super::calls::typed_body;
use super::{App, Named, Who, reading};
use crate::problem::Refused;

/// Bytes of a copy that are passed on at a time.
const CHUNK: usize = 256 << 10;

#[utoipa::path(
    post, path = "/api/v1/calls/{id}/erase", operation_id = "erase_call", params(("id" = String, Path,)), request_body = EraseCall,
    description = "Erases contents of a call that is over, for good. Its entries stay, every proof still holds, and a `blob_erased` entry says what went.",
    responses((status = 200, body = CallErased), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn erase(
    State(app): State<App>,
    Who(caller): Who,
    Named(id): Named,
    body: Body,
) -> Result<Json<CallErased>, Refused> {
    let wanted: EraseCall = typed_body(body).await?.1;
    let what = match wanted.what {
        // Environment values are among the arguments.
        EraseWhat::Arguments | EraseWhat::Environment => What::Arguments,
        EraseWhat::Output => What::Output,
        EraseWhat::All => What::All,
    };
    let erased = app
        .gateway
        .erase_call(&caller, &id, what, wanted.reason)
        .await?;
    let content = |blob: &palyra_core::entry::ErasedBlob| ErasedContent {
        kind: blob.kind.as_str().to_owned(),
        commitment: blob.commitment.0.to_string(),
    };
    Ok(Json(CallErased {
        call_id: erased.call.to_string(),
        erased: erased.blobs.iter().map(content).collect(),
        seq: erased.seq,
        log_cleared: erased.log_cleared,
    }))
}

#[utoipa::path(
    post, path = "/api/v1/journal/rebuild", operation_id = "rebuild_journal",
    description = "Makes every projection anew from all entries, compares, and mends what differs. Appending goes on meanwhile. What was mended is in the journal as `projection_mended`.",
    responses((status = 200, body = JournalRebuilt), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn rebuild(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<JournalRebuilt>, Refused> {
    let rebuild = app.gateway.rebuild_journal(&caller).await?;
    let found = |one: &palyra_journal::Rebuilt| ProjectionRebuilt {
        name: one.name.to_owned(),
        rows: one.rows,
        wrong: one.wrong,
        missing: one.missing,
        unknown: one.unknown,
    };
    Ok(Json(JournalRebuilt {
        entries: rebuild.entries,
        projections: rebuild.projections.iter().map(found).collect(),
        seq: rebuild.seq,
    }))
}

#[utoipa::path(
    get, path = "/api/v1/journal/backup", operation_id = "back_up_journal",
    description = "A whole journal as of now: an SQLite file that `palyra journal verify` checks and `palyra journal restore` puts back. Arguments and output in it are sealed with a key that is in the vault, and not in it.",
    responses((status = 200, content_type = "application/vnd.sqlite3"), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn backup(State(app): State<App>, Who(caller): Who) -> Result<Response, Refused> {
    let gateway = app.gateway.clone();
    let file = reading(move || gateway.journal_backup(&caller)).await?;
    let next = async |file: std::fs::File| {
        let read = tokio::task::spawn_blocking(move || part(file)).await;
        read.unwrap_or_else(|error| Some((Err(io::Error::other(error)), None)))
    };
    let parts = futures::stream::unfold(Some(file), move |file| async move { next(file?).await });
    let mut response = Response::new(Body::from_stream(parts));
    let kind = HeaderValue::from_static("application/vnd.sqlite3");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// The next bytes of a file, and the file unless it broke.
fn part(mut file: std::fs::File) -> Option<(io::Result<Bytes>, Option<std::fs::File>)> {
    let mut bytes = Vec::new();
    match file.by_ref().take(CHUNK as u64).read_to_end(&mut bytes) {
        Ok(0) => None,
        Ok(_) => Some((Ok(bytes.into()), Some(file))),
        // Whoever reads must not take it for the whole.
        Err(error) => Some((Err(error), None)),
    }
}
