//! The corridor, wired: one service that every front door calls.
//!
//! This room knows the order of things: which tool a name means ([`tools`]), what a call may use
//! up ([`budget`], [`floods`]), which policies decide ([`policies`]), who waits for whom (`waiting`, `detaching`), what a person said and
//! how far it reaches ([`deciding`], [`granting`], [`sessions`]), whether they are there
//! ([`presence`]), and how decide, approve, execute and attest follow each other (`drive`), with
//! the network of a call (`networked`). It speaks to no network itself, writes no SQL and
//! spawns nothing; those are other rooms.

#![forbid(unsafe_code)]

pub mod advising;
mod asking;
pub mod budget;
pub mod calls;
pub mod changes;
pub mod deciding;
mod detaching;
mod drive;
pub mod error;
mod feeding;
pub mod filtering;
pub mod floods;
pub mod granting;
mod handle;
pub mod keeping;
pub mod listing;
pub mod network;
mod networked;
pub mod notices;
pub mod people;
pub mod policies;
mod postures;
pub mod presence;
pub mod prompting;
pub mod proofs;
mod quarantine;
pub mod records;
mod recovery;
mod registrations;
mod resolver;
mod seen;
pub mod service;
pub mod sessions;
pub mod stats;
pub mod tools;
pub mod vault;
mod waiting;
mod waking;
mod workspace;

pub use budget::{Budget, Usage};
pub use drive::{CallReport, Conclusion, Event};
pub use error::Refusal;
pub use floods::FloodLimits;
pub use handle::CallHandle;
pub use network::EgressSettings;
pub use people::People;
pub use service::{Caller, GatewayService, ProposedCall, Settings};
