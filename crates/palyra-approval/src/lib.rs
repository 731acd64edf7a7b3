//! Asking a person, and what their answer is worth.
//!
//! An approval is a stream of its own in the journal: requested (revision 1), then exactly one of
//! decided, expired, cancelled or superseded (revision 2), then at most one spending of a yes (revision 3).
//! This room knows which of these steps may follow which ([`ask`], [`decide`], [`expire`],
//! [`cancel`] give the entry to append and the revision it must be appended at), what the journal
//! makes of them ([`ApprovalsFold`]), and what a yes is worth ([`grant`]: the exact call, the
//! agent that asked, once, for [`GRANT_LIFETIME`]). A yes is never a permit: policy is asked again
//! with the grant in its facts ([`apply_tool_approval_outcome`]).
//!
//! A yes can cover calls like the one that was shown, until a session or a time ends: that is a
//! grant, a stream and a row of its own ([`make_grant`], [`GrantsFold`]), found by its key among
//! those in force ([`LiveGrants`]). And a person can have a tool treated more strictly than policy
//! alone would ([`Postures`]).
//!
//! It also knows how to show a hostile call to a person ([`render`], [`ApprovalPromptRecord`]).
//!
//! It does not know HTTP, terminals, policy text or the clock, and it does no I/O. Two deciders
//! who read the same pending record both get an entry for the same revision; the journal appends
//! one of them.

#![forbid(unsafe_code)]

mod diff;
mod fold;
mod grants;
mod inbox;
mod index;
mod outcome;
mod postures;
mod prompt;
mod record;
mod suspects;
mod transition;

pub use diff::{diff, shown_patch};
pub use fold::ApprovalsFold;
pub use grants::{
    DEFAULT_WINDOW, GrantRecord, GrantState, GrantsFold, LONGEST_GRANT, Wanted, end_grant,
    make_grant,
};
pub use inbox::Inbox;
pub use index::LiveGrants;
pub use outcome::{GRANT_LIFETIME, apply_tool_approval_outcome, grant};
pub use palyra_core::render;
pub use postures::{PosedCall, PostureRow, Postures, PosturesFold};
pub use prompt::ApprovalPromptRecord;
pub use record::{ApprovalRecord, ApprovalState, PendingToolApproval};
pub use suspects::suspects;
pub use transition::{
    DEFAULT_WAIT, MAX_REASON_BYTES, Refused, Transition, ask, cancel, decide, expire, supersede,
};
