//! What a person is shown before they answer.

use palyra_core::{ApprovalId, CallId, RecordedDigest, Timestamp};

use crate::record::{ApprovalRecord, ApprovalState};
use crate::render;

/// How wide each text among the arguments is shown at most.
const ARGUMENT_WIDTH: usize = 2_000;

/// The question as it is put to a person, made by the daemon from the call that will run and
/// never from the asker's description of it. Every text in it is safe to print.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ApprovalPromptRecord {
    /// The approval.
    pub id: ApprovalId,
    /// The call that waits.
    pub call: CallId,
    /// Where it stands.
    pub state: ApprovalState,
    /// Who asks.
    pub requester: String,
    /// For whom they act.
    pub on_behalf_of: String,
    /// The tool.
    pub tool: String,
    /// The arguments, indented; `None` when they were erased.
    pub arguments: Option<String>,
    /// How many bytes of the arguments are not in that text.
    pub hidden_bytes: usize,
    /// Keyed digest of exactly this call.
    pub digest: RecordedDigest,
    /// When a person was asked.
    pub requested_at: Timestamp,
    /// When it is denied for want of an answer.
    pub expires_at: Timestamp,
}

impl ApprovalPromptRecord {
    /// The question of this record, with the arguments that its commitment stands for.
    #[must_use]
    pub fn new(record: &ApprovalRecord, arguments: Option<&serde_json::Value>) -> Self {
        let arguments = arguments.map(|value| render::json(value, ARGUMENT_WIDTH));
        Self {
            id: record.id.clone(),
            call: record.call.clone(),
            state: record.state,
            requester: record.principal.to_string(),
            on_behalf_of: record.principal.user().to_string(),
            tool: record.tool.to_string(),
            hidden_bytes: arguments.as_ref().map_or(0, |shown| shown.hidden_bytes),
            arguments: arguments.map(|shown| shown.text),
            digest: record.digest,
            requested_at: record.requested_at,
            expires_at: record.expires_at,
        }
    }
}
