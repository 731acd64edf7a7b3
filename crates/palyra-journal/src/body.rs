//! How an entry is spelled in the file: canonical JSON with the version of its shape.

use std::sync::Arc;

use palyra_core::entry::Entry;
use palyra_core::json::canonical_bytes;
use serde_json::Value;

use crate::error::JournalError;

/// The version of the shapes in [`Entry`].
const VERSION: u64 = 1;

/// `{"kind":…,…,"v":1}` in canonical bytes: these are the evidence, kept as they are.
pub(crate) fn encode(entry: &Entry) -> Result<Vec<u8>, JournalError> {
    let mut value = serde_json::to_value(entry).map_err(|source| JournalError::Unwritable {
        kind: entry.kind(),
        source: Arc::new(source),
    })?;
    if let Value::Object(members) = &mut value {
        members.insert("v".to_owned(), Value::from(VERSION));
    }
    Ok(canonical_bytes(&value))
}

#[derive(serde::Deserialize)]
struct Shape {
    v: u64,
}

/// The entry that these bytes spell.
pub(crate) fn decode(seq: u64, body: &[u8]) -> Result<Entry, JournalError> {
    let damaged =
        |why: serde_json::Error| JournalError::corrupt(format!("entry {seq} does not read: {why}"));
    let Shape { v } = serde_json::from_slice(body).map_err(damaged)?;
    if v != VERSION {
        return Err(JournalError::corrupt(format!(
            "entry {seq} has the unknown shape {v}"
        )));
    }
    serde_json::from_slice(body).map_err(damaged)
}
