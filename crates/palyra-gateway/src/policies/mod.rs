//! Policy versions: which set of policies decides, since when, why, and how it is changed.
//!
//! The operator's folder and the baseline make a set. Every set that comes into force is a
//! version: numbered, recorded with all its texts, and kept (`versions`). `keeper` is the one
//! place that changes which one decides; `folder` is what it looks at.

mod folder;
mod keeper;
mod service;
mod versions;

pub use folder::PolicyPlace;
pub(crate) use keeper::Keeper;
pub use keeper::{Considered, RefusedPolicies, Standing};
pub use service::PolicyOverview;
pub use versions::{
    PolicyBesideFold, PolicyVersion, PolicyVersionsFold, SourceText, Sources, StagedPolicies,
};
