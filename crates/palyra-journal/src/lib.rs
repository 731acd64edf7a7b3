//! Durable evidence: an append-only journal in one SQLite file.
//!
//! This room knows *streams* (an entry has a place in its stream and a place in the whole, both
//! without gaps), *blobs* (what an entry commits to without containing it), *projections* (rows
//! that a pure fold makes of entries, never behind them) and how to make all three durable
//! together. It also keeps the corridor's ledger: [`CallRecorder`] admits and attests one call.
//! It knows no rule of any other room: what a row means belongs to the fold that made it.
//!
//! Every commit is *sealed*: the Merkle tree over all entries grows, and its root is signed
//! ([`proof`]). So a journal, an export of it or one call's attestation can be verified by somebody
//! who has nothing but a file ([`verify`]).
//!
//! ```text
//! append ─▶ bounded queue ─▶ one writer thread: drain, check, insert, fold, commit ─▶ reply
//! read, row, blob ─▶ connections of their own; they see what is durable and nothing else
//! ```
//!
//! What holds, and is tested:
//!
//! - An append that returned `Ok` is on disk (one sync per group of appends), also after the power
//!   was cut at any point.
//! - An append that returned `Err` is not there for anybody to read. One exception, which the
//!   corridor is built for: when the machine dies right after a failed sync, the group may be
//!   found complete at the next start. So a failed admission means "did not run", and a start
//!   reports it as interrupted; the reverse, running without an entry, cannot happen.
//! - Once the cause of a failure is gone, the journal takes entries again by itself.
//! - A conflict refuses its own append and no other in the same group.
//! - Entries are never changed or removed; if somebody does, whoever verifies finds out which.

#![cfg_attr(not(test), forbid(unsafe_code))]

mod attestation;
mod backup;
mod batch;
mod blobs;
mod body;
mod cache;
mod checkpoints;
mod disk;
mod erasing;
mod error;
#[cfg(test)]
mod failing;
#[cfg(test)]
mod faults;
mod keyring;
mod keys;
mod log;
mod mending;
mod nodes;
mod once;
#[cfg(test)]
mod power_cut;
mod projections;
pub mod proof;
mod queries;
mod reading;
mod rebuilding;
mod recorder;
#[cfg(test)]
mod recovering;
mod reserve;
mod schema;
mod sealing;
mod segment;
mod shared;
mod statement;
mod store;
mod turns;
mod unattested;
pub mod verify;
mod writer;

pub use attestation::{AttestationFile, Attested, NotAttested};
pub use backup::{Beyond, beyond, kept_name, replace};
pub use batch::{Append, Appended, Expected, StreamAppend};
pub use blobs::{BlobKey, Kept};
pub use erasing::{Erased, Erasure};
pub use error::JournalError;
pub use keys::JournalKeys;
pub use queries::RowQuery;
pub use rebuilding::{Rebuild, Rebuilt};
pub use recorder::CallRecorder;
pub use segment::ExportFailed;
pub use shared::JournalState;
pub use statement::NoStatement;
pub use store::JournalStore;
