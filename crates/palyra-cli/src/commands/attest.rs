//! `palyra attest`: what is attested about one call, and whether it holds.

use std::io::Write as _;
use std::path::Path;

use bytes::Bytes;
use palyra_api::wire::OutputStream;
use palyra_core::CallId;
use palyra_journal::verify::read_bounded;
use palyra_journal::{AttestationFile, Attested};
use serde_json::{Value, json};

use super::proofs::{cannot_read, create, key_of};
use crate::args::AttestAction;
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::output::{BAD, GOOD, Output, WAITING};
use crate::safe;
use crate::session::{Session, in_time};
use crate::table::{Cell, Facts};
use crate::witness::{Seen, Witness};

/// The most that an attestation may have; it holds no arguments and no output.
const MOST: u64 = 64 << 20;

pub(super) async fn run(action: &AttestAction, session: &Session) -> Result<Exit, Failure> {
    match action {
        AttestAction::Show { id } => show(id, session).await,
        AttestAction::Export { id, out } => export(id, out.as_deref(), session).await,
        AttestAction::Verify { file, key } => verify(file, key.as_deref(), session),
    }
}

async fn show(id: &CallId, session: &Session) -> Result<Exit, Failure> {
    let bytes = download(id, session).await?;
    let attested = check(&bytes)?;
    session
        .output
        .answer(&attested.statement, |statement| render(statement).render())?;
    Ok(Exit::OK)
}

async fn export(id: &CallId, out: Option<&Path>, session: &Session) -> Result<Exit, Failure> {
    let bytes = download(id, session).await?;
    check(&bytes)?;
    let Some(path) = out else {
        session.output.raw(OutputStream::Stdout, &bytes)?;
        return Ok(Exit::OK);
    };
    let mut file = create(path)?;
    file.write_all(&bytes)
        .and_then(|()| file.sync_all())
        .map_err(|error| Failure::unwritable(&error))?;
    session.output.suggest(&format!(
        "check it anywhere with `palyra attest verify {}`",
        safe::line(&path.display().to_string())
    ));
    Ok(Exit::OK)
}

async fn download(id: &CallId, session: &Session) -> Result<Bytes, Failure> {
    let mut client = session.connect().await?;
    let path = format!("/api/v1/calls/{id}/attestation");
    let mut body = in_time(client.download(&path)).await?;
    let mut bytes = Vec::new();
    while let Some(more) = in_time(body.next()).await? {
        bytes.extend_from_slice(&more);
    }
    Ok(bytes.into())
}

/// What a file shows. One that does not hold is not shown at all.
fn check(bytes: &[u8]) -> Result<Attested, Failure> {
    AttestationFile::parse(bytes)
        .and_then(|file| file.verify())
        .map_err(|error| faulty(format!("the attestation does not hold: {error}")))
}

fn verify(file: &Path, key: Option<&str>, session: &Session) -> Result<Exit, Failure> {
    let bytes = read_bounded(file, MOST).map_err(|error| Failure {
        hint: "name a file that `palyra attest export` wrote".to_owned(),
        ..cannot_read(file, &error)
    })?;
    let attested = check(&bytes)?;
    let given = key.map(key_of).transpose()?;
    if given.as_ref().is_some_and(|key| *key != attested.key) {
        return Err(faulty(
            "the attestation is signed with another key than the one given",
        ));
    }
    let seen = match Witness::from_env() {
        Some(witness) => witness.of_origin(attested.key.name())?,
        None => Vec::new(),
    };
    let trusted = given.is_some() || seen.iter().any(|seen| vouches(seen, &attested));
    answer(&attested, trusted, &session.output)?;
    Ok(Exit::Ours(match trusted {
        true => Meaning::Ok,
        false => Meaning::SignerUnknown,
    }))
}

/// Whether it is of the journal that was seen: under the key that was seen, or about a checkpoint
/// that was.
fn vouches(seen: &Seen, attested: &Attested) -> bool {
    let mut checkpoints = seen.checkpoints.iter();
    seen.key == attested.key || checkpoints.any(|(found, _)| *found == attested.checkpoint)
}

fn answer(attested: &Attested, trusted: bool, output: &Output) -> Result<(), Failure> {
    let verdict = match trusted {
        true => "verified",
        false => "signer_unknown",
    };
    let document = json!({
        "verdict": verdict, "key": attested.key.to_string(), "statement": attested.statement,
    });
    output.answer(&document, |_| {
        let signer = match trusted {
            true => Cell::styled(format!("{}, which is trusted", attested.key), GOOD),
            false => Cell::styled(
                format!("{}, which is unknown here (give --key)", attested.key),
                WAITING,
            ),
        };
        render(&attested.statement)
            .with("signed by", signer)
            .render()
    })
}

/// The statement for a person, harmless to their terminal.
fn render(statement: &Value) -> Facts {
    let predicate = statement.get("predicate").unwrap_or(&Value::Null);
    let text = |pointer: &str| match predicate.pointer(pointer) {
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let rows = |pointer: &str, line: fn(&Value) -> String| -> Vec<Cell> {
        let items = predicate.pointer(pointer).and_then(Value::as_array);
        let items = items.map(Vec::as_slice).unwrap_or_default();
        items.iter().map(|item| Cell::new(line(item))).collect()
    };
    let ending = match text("/execution/ending").as_str() {
        "exited" => Cell::new(format!("exited {}", text("/execution/code"))),
        other => Cell::styled(other, BAD),
    };
    Facts::default()
        .with("call", text("/call_id"))
        .with("tool", text("/proposal/tool"))
        .with("by", text("/proposal/origin/principal"))
        .with("arguments", text("/proposal/arguments"))
        .lines("decided", rows("/decisions", decision))
        .with("approval", approval(predicate))
        .with("plan", text("/plan"))
        .with("enforcement", text("/execution/sandbox_enforcement"))
        .lines("layers", rows("/execution/layers", layer))
        .with("started", text("/execution/started_at"))
        .with("ended", text("/execution/ended_at"))
        .with("ending", ending)
        .with("output", text("/execution_sha256"))
        .with("cut", text("/execution/truncated"))
        .lines("erased", rows("/erased", erased))
}

fn decision(item: &Value) -> String {
    let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
    let matched = item
        .get("matched")
        .map(Value::to_string)
        .unwrap_or_default();
    format!(
        "{} by {matched}, policy version {}",
        text("answer"),
        text("policy_version")
    )
}

/// What the journal commits to and no longer has.
fn erased(item: &Value) -> String {
    let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
    let blobs = item.get("blobs").and_then(Value::as_array);
    let kinds: Vec<&str> = blobs
        .into_iter()
        .flatten()
        .filter_map(|blob| blob.get("kind")?.as_str())
        .collect();
    let why = match text("reason") {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    format!(
        "{} by {} at {}{why}",
        kinds.join(", "),
        text("by"),
        text("at")
    )
}

fn layer(item: &Value) -> String {
    let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
    format!("{}: {}", text("name"), text("observed"))
}

fn approval(predicate: &Value) -> String {
    let Some(approval) = predicate.get("approval") else {
        return "none was needed".to_owned();
    };
    let text = |name: &str| {
        approval
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    format!(
        "{} by {} ({})",
        text("decision"),
        text("decided_by"),
        text("approval_id")
    )
}

fn faulty(message: impl Into<String>) -> Failure {
    Failure::new(
        Meaning::Faulty,
        "attestation_faulty",
        message,
        "ask for it again, from somebody you trust",
    )
}
