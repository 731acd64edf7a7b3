//! Policy versions: which set of policies decides, since when, why, and how it is changed.
//!
//! The operator's folder and the baseline make a set. Every set that comes into force is a
//! version: numbered, recorded with all its texts, and kept (`versions`). `keeper` is the one
//! place that changes which one decides (`starting`: at a start); `folder` is what it looks at,
//! `recording` how a change becomes an entry. `judging` and `replay` ask a
//! version or a draft about calls of the past and change nothing.

mod folder;
mod judging;
mod keeper;
mod recording;
mod refusals;
mod replay;
mod service;
mod starting;
mod versions;

pub use folder::PolicyPlace;
pub use judging::{CallJudged, Draft, Simulated};
pub use keeper::{Considered, RefusedPolicies, Standing};
pub(crate) use keeper::{Keeper, blocking};
pub use replay::{Flip, ReplayEvent, ReplaySummary};
pub use service::PolicyOverview;
pub use versions::{
    PolicyBesideFold, PolicyVersion, PolicyVersionsFold, SourceText, Sources, StagedPolicies,
};
