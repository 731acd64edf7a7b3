//! What an answer is worth: a grant for exactly one call, or a denial that says why not.

use std::time::Duration;

use palyra_core::{CallDigest, Denial, DenialCode, Facts, Grant, Timestamp};

use crate::record::{ApprovalRecord, ApprovalState};
use crate::render;

/// How long a yes can be used after it was given. It is counted from the answer, not from the
/// question: a yes in the last second of the wait still leaves time to start the call.
pub const GRANT_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// The grant of an unused yes: the exact call, for the agent that asked, until
/// [`GRANT_LIFETIME`] after the answer. Whether it has ended is for policy to say, which knows
/// the time and reads [`Grant::not_after`] as the first instant at which it is over.
///
/// `None` unless the approval is allowed, is about the call with this digest, and an agent asked: a
/// person's own call needs no grant.
#[must_use]
pub fn grant(record: &ApprovalRecord, digest: &CallDigest) -> Option<Grant> {
    match record.state {
        ApprovalState::Allowed => {}
        ApprovalState::Pending
        | ApprovalState::Denied
        | ApprovalState::Expired
        | ApprovalState::Cancelled
        | ApprovalState::Superseded
        | ApprovalState::Spent => return None,
    }
    // A yes by nobody, or at no time, is not one.
    record.decided_by.as_ref()?;
    if record.digest != digest.recorded(&record.call) {
        return None;
    }
    Some(Grant {
        approval: record.id.clone(),
        standing: None,
        scope: None,
        agent: record.principal.agent()?.clone(),
        digest: *digest,
        not_after: record.decided_at?.plus(GRANT_LIFETIME),
        // Records of before one could count them say yes by one.
        people: i64::try_from(record.allowed_by.len().max(1)).unwrap_or(1),
    })
}

/// Merges a person's answer into the facts of the call that waited, so that policy can be asked
/// again at `now` with everything before it. An answer that is not a live yes is the denial.
///
/// # Errors
/// The approval was denied, expired, cancelled, spent, is still pending, or is another call's.
pub fn apply_tool_approval_outcome(
    record: &ApprovalRecord,
    facts: Facts,
    now: Timestamp,
) -> Result<Facts, Denial> {
    if let Some(denial) = denial(record) {
        return Err(denial);
    }
    match grant(record, facts.digest()) {
        Some(grant) => Ok(facts.with_grant(grant, now)),
        None => Err(Denial::new(
            DenialCode::ApprovalDenied,
            format!("approval `{}` was given for another call", record.id),
            format!(
                "see what was approved with `palyra approvals show {}`",
                record.id
            ),
        )),
    }
}

/// The denial that an approval stands for; none while it is an unused yes.
fn denial(record: &ApprovalRecord) -> Option<Denial> {
    let id = &record.id;
    let reason = record.reason.as_deref().map(render::line);
    let because = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    let again = "repeat the call to be asked again";
    let (code, reason, next_step) = match record.state {
        ApprovalState::Allowed => return None,
        ApprovalState::Denied => {
            let by = record
                .decided_by
                .as_ref()
                .map_or("a person", |by| by.as_str());
            (
                DenialCode::ApprovalDenied,
                format!("`{by}` denied approval `{id}`{because}"),
                format!("see it with `palyra approvals show {id}`; do something else"),
            )
        }
        ApprovalState::Expired => (
            DenialCode::ApprovalExpired,
            format!("nobody answered approval `{id}` in time"),
            format!("{again}, and answer with `palyra approvals decide ID --decision allow|deny`"),
        ),
        ApprovalState::Pending => (
            DenialCode::ApprovalExpired,
            format!("nobody has answered approval `{id}`"),
            format!("answer it with `palyra approvals decide {id} --decision allow|deny`"),
        ),
        ApprovalState::Cancelled => (
            DenialCode::ApprovalCancelled,
            format!("approval `{id}` was cancelled{because}"),
            again.to_owned(),
        ),
        ApprovalState::Superseded => (
            DenialCode::GrantSpent,
            format!("a grant was to cover the call of approval `{id}`, and has ended"),
            again.to_owned(),
        ),
        ApprovalState::Spent => (
            DenialCode::GrantSpent,
            format!("the yes of approval `{id}` was used already"),
            again.to_owned(),
        ),
    };
    Some(Denial::new(code, reason, next_step))
}
