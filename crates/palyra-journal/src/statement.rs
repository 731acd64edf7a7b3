//! What a call's record says, as an in-toto statement: a pure function of its entries.
//!
//! Whoever verifies makes the statement anew from entries that are proven to be in the journal, so
//! nothing can be said in it that the journal does not say. The keyed digests of calls stay out of
//! it: they tell whether two calls are the same, and that is nobody else's business.

use palyra_core::entry::{Answer, Entry};
use palyra_core::{ApprovalId, CallId, Commitment, Timestamp, ToolAttestation};
use serde_json::{Value, json};

/// The type of the statement's predicate.
const PREDICATE: &str = "urn:palyra:tool-call:v1";

/// An entry with what a statement needs of its place.
pub(crate) struct Step {
    pub(crate) stream: String,
    pub(crate) revision: u64,
    pub(crate) at: Timestamp,
    pub(crate) entry: Entry,
}

/// Why entries do not make a statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoStatement {
    /// Entries of a stream are missing or of another call.
    #[error("the entries are not the whole record of one call")]
    Incomplete,
    /// The call was not executed, or its end is not recorded.
    #[error("the call has no attestation: it was not executed, or is not over")]
    NotAttested,
}

/// The statement about a call: first the entries of its stream, then those of its approval.
pub(crate) fn statement(steps: &[Step]) -> Result<Value, NoStatement> {
    let call = steps.first().ok_or(NoStatement::NotAttested)?;
    let call: CallId = call.stream.parse().map_err(|_| NoStatement::Incomplete)?;
    let (own, approval) = split(steps, &call)?;
    // Nothing but erasures follows an attestation. Whether one was left out at the end cannot be
    // seen here, and takes nothing from what the others say.
    let is_erasure = |step: &&Step| matches!(step.entry, Entry::BlobErased { .. });
    let last = own.iter().rfind(|step| !is_erasure(step));
    let Some(Entry::Attested { attestation }) = last.map(|step| &step.entry) else {
        return Err(NoStatement::NotAttested);
    };
    if attestation.call_id != call {
        return Err(NoStatement::Incomplete);
    }
    let Commitment(output) = attestation.execution_sha256;
    let hex = output.to_string();
    let hex = hex.trim_start_matches("sha256:");
    Ok(json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": call, "digest": {"sha256": hex}}],
        "predicateType": PREDICATE,
        "predicate": predicate(own, approval, attestation),
    }))
}

/// An approval that was spent, and its stream.
type Spent<'a> = (ApprovalId, &'a [Step]);

/// The stream of the call and that of the approval it spent, both whole.
fn split<'a>(
    steps: &'a [Step],
    call: &CallId,
) -> Result<(&'a [Step], Option<Spent<'a>>), NoStatement> {
    let count = steps
        .iter()
        .take_while(|step| step.stream == call.as_str())
        .count();
    let (own, rest) = steps.split_at(count);
    let admitted = |step: &Step| {
        let Entry::Admitted { approval, .. } = &step.entry else {
            return None;
        };
        Some(approval.clone())
    };
    let approval = own
        .iter()
        .find_map(admitted)
        .ok_or(NoStatement::NotAttested)?;
    let whole = |steps: &[Step]| (1..).zip(steps).all(|(place, step)| step.revision == place);
    // Nothing follows the spending of a yes, and this call is the one that spent it.
    let spent_here =
        |step: &Step| matches!(&step.entry, Entry::GrantSpent { call: by } if by == call);
    let of_approval = |approval: &ApprovalId| {
        rest.last().is_some_and(spent_here)
            && rest.iter().all(|step| step.stream == approval.as_str())
    };
    let complete = match &approval {
        Some(approval) => of_approval(approval),
        None => rest.is_empty(),
    };
    (complete && whole(own) && whole(rest))
        .then(|| (own, approval.map(|approval| (approval, rest))))
        .ok_or(NoStatement::Incomplete)
}

fn predicate(own: &[Step], approval: Option<Spent<'_>>, attestation: &ToolAttestation) -> Value {
    let mut predicate = json!({
        "call_id": attestation.call_id,
        "attestation_id": attestation.attestation_id,
        "execution_sha256": attestation.execution_sha256,
        "executed_at": attestation.executed_at,
        "timed_out": attestation.timed_out,
        "plan": attestation.plan,
        "execution": attestation.report,
        "decisions": own.iter().filter_map(decision).collect::<Vec<_>>(),
    });
    let proposed = own.iter().find_map(proposal);
    if let Value::Object(members) = &mut predicate {
        members.insert("proposal".to_owned(), proposed.unwrap_or_default());
        let erased: Vec<Value> = own.iter().filter_map(erasure).collect();
        if !erased.is_empty() {
            members.insert("erased".to_owned(), Value::Array(erased));
        }
        if let Some((id, steps)) = approval {
            members.insert("approval".to_owned(), answered(&id, steps));
        }
    }
    predicate
}

fn proposal(step: &Step) -> Option<Value> {
    let Entry::Proposed {
        tool,
        origin,
        arguments,
    } = &step.entry
    else {
        return None;
    };
    Some(json!({"at": step.at, "tool": tool, "origin": origin, "arguments": arguments}))
}

/// What the journal still commits to and no longer has.
fn erasure(step: &Step) -> Option<Value> {
    let Entry::BlobErased { blobs, by, reason } = &step.entry else {
        return None;
    };
    Some(json!({"at": step.at, "by": by, "reason": reason, "blobs": blobs}))
}

fn decision(step: &Step) -> Option<Value> {
    let Entry::Decided {
        answer,
        matched,
        policy_version,
        facts,
        ..
    } = &step.entry
    else {
        return None;
    };
    let answer = match answer {
        Answer::Permit => "permit",
        Answer::Ask => "ask",
        Answer::Deny(_) => "deny",
    };
    Some(json!({
        "at": step.at, "answer": answer, "matched": matched,
        "policy_version": policy_version, "facts": facts,
    }))
}

/// Who answered, and what was asked.
fn answered(id: &ApprovalId, steps: &[Step]) -> Value {
    let mut approval = json!({ "approval_id": id });
    let Value::Object(members) = &mut approval else {
        return approval;
    };
    for step in steps {
        if let Entry::ApprovalRequested { principal, .. } = &step.entry {
            members.insert("asked_by".to_owned(), json!(principal));
            members.insert("asked_at".to_owned(), json!(step.at));
        }
        if let Entry::ApprovalDecided {
            decision,
            decided_by,
            reason,
            grant,
            ..
        } = &step.entry
        {
            members.insert("decision".to_owned(), json!(decision));
            members.insert("decided_by".to_owned(), json!(decided_by));
            members.insert("decided_at".to_owned(), json!(step.at));
            members.insert("reason".to_owned(), json!(reason));
            if let Some(grant) = grant {
                members.insert("grant".to_owned(), json!(grant));
            }
        }
    }
    approval
}
