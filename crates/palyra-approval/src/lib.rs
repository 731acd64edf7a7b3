//! Asking a person, and what their answer is worth.
//!
//! An approval is a stream of its own in the journal: requested (revision 1), then exactly one of
//! decided, expired or cancelled (revision 2), then at most one spending of a yes (revision 3).
//! This room knows which of these steps may follow which ([`ask`], [`decide`], [`expire`],
//! [`cancel`] give the entry to append and the revision it must be appended at), what the journal
//! makes of them ([`ApprovalsFold`]), and what a yes is worth ([`grant`]: the exact call, the
//! agent that asked, once, for [`GRANT_LIFETIME`]). A yes is never a permit: policy is asked again
//! with the grant in its facts ([`apply_tool_approval_outcome`]).
//!
//! It also knows how to show a hostile call to a person ([`render`], [`ApprovalPromptRecord`]).
//!
//! It does not know HTTP, terminals, policy text or the clock, and it does no I/O. Two deciders
//! who read the same pending record both get an entry for the same revision; the journal appends
//! one of them.

#![forbid(unsafe_code)]

mod fold;
mod outcome;
mod prompt;
mod record;
mod transition;

pub use fold::ApprovalsFold;
pub use outcome::{GRANT_LIFETIME, apply_tool_approval_outcome, grant};
pub use palyra_core::render;
pub use prompt::ApprovalPromptRecord;
pub use record::{ApprovalRecord, ApprovalState, PendingToolApproval};
pub use transition::{
    DEFAULT_WAIT, MAX_REASON_BYTES, Refused, Transition, ask, cancel, decide, expire,
};
