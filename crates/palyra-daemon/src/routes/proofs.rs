//! The journal's proofs: its signed head, and an export that anybody can verify.

use std::io::{self, BufWriter, Write};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::Bytes;
use palyra_api::wire::{ErrorBody, JournalHead};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::{App, Asked, Named, Who, reading};
use crate::problem::Refused;

/// Bytes of an export that are passed on at a time.
const CHUNK: usize = 64 << 10;

/// Chunks that may wait for a slow reader.
const WAITING: usize = 4;

/// Which head.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Since {
    since: Option<u64>,
}

#[utoipa::path(
    get, path = "/api/v1/journal/checkpoint", operation_id = "journal_checkpoint",
    params(("since" = Option<u64>, Query, description = "also prove that the first so many entries are the same")),
    responses((status = 200, body = JournalHead), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn checkpoint(
    State(app): State<App>,
    Who(caller): Who,
    Asked(which): Asked<Since>,
) -> Result<Json<JournalHead>, Refused> {
    let gateway = app.gateway.clone();
    let head = reading(move || gateway.journal_head(&caller, which.since)).await?;
    let texts = |hashes: Vec<_>| hashes.iter().map(ToString::to_string).collect();
    Ok(Json(JournalHead {
        key: head.key.to_string(),
        checkpoint: head.checkpoint.to_string(),
        continues: head.continues.map(texts),
    }))
}

#[utoipa::path(
    get, path = "/api/v1/calls/{id}/attestation", operation_id = "attest_call", params(("id" = String, Path,)),
    description = "A call's attestation as one self-contained document: a DSSE envelope with an in-toto statement, the entries it is made of, their inclusion proofs, and the signed checkpoint. Its bytes have one spelling; keep them as they are.",
    responses((status = 200, content_type = "application/json"), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn attestation(
    State(app): State<App>,
    Who(caller): Who,
    Named(id): Named,
) -> Result<Response, Refused> {
    let gateway = app.gateway.clone();
    let file = reading(move || gateway.attestation(&caller, &id)).await?;
    let mut response = Response::new(Body::from(file.to_bytes()));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// From where.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct After {
    #[serde(default)]
    after: u64,
}

#[utoipa::path(
    get, path = "/api/v1/journal/export", operation_id = "export_journal",
    params(("after" = Option<u64>, Query, description = "a seq; everything when absent")),
    description = "The journal as JSON lines: where it begins, entries, and the signed checkpoints among them. `palyra journal verify` checks it without a daemon.",
    responses((status = 200, content_type = "application/x-ndjson"), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn export(
    State(app): State<App>,
    Who(caller): Who,
    Asked(which): Asked<After>,
) -> Result<Response, Refused> {
    let (gateway, asked) = (app.gateway.clone(), caller.clone());
    // What can be refused is refused before the first byte.
    reading(move || gateway.journal_head(&asked, Some(which.after))).await?;
    let gateway = app.gateway.clone();
    let (chunks, written) = mpsc::channel(WAITING);
    tokio::task::spawn_blocking(move || {
        let mut out = BufWriter::with_capacity(CHUNK, Chunks(chunks.clone()));
        let exported = gateway.journal_export(&caller, which.after, &mut out);
        let broken = match exported {
            Ok(_) => out.flush().err(),
            Err(refusal) => Some(io::Error::other(refusal)),
        };
        if let Some(error) = broken {
            tracing::warn!(%error, "an export ended early");
            // Whoever reads must not take it for the whole.
            let _gone = chunks.blocking_send(Err(error));
        }
    });
    let next = async |mut written: mpsc::Receiver<_>| Some((written.recv().await?, written));
    let mut response = Response::new(Body::from_stream(futures::stream::unfold(written, next)));
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// Passes on what is written.
struct Chunks(mpsc::Sender<io::Result<Bytes>>);

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let chunk = Bytes::copy_from_slice(bytes);
        let sent = self.0.blocking_send(Ok(chunk));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
