//! Cedar decides.
//!
//! This room knows the schema (`schema/palyra.cedarschema`: what policies can talk about), the
//! embedded baselines ([`Baseline`]: `policies/*.cedar`, by default [`DEFAULT_POLICY_SRC`]), and how
//! the facts of a call become Cedar questions. [`PolicyEngine`] answers them: two about a call's tool and each of
//! its effects ("may it run now", and if not, "may a person be asked"), each for the agent *and*
//! for the person it acts for, the strictest answer counting; and one for everything else the
//! daemon offers ([`PolicyEngine::authorize`]).
//!
//! It closes when unsure. Cedar skips a policy that fails to evaluate, a `forbid` too; so here
//! policies are validated strictly when they are loaded, every request is validated against the
//! schema, everything a request names must be known, and any error that evaluation reports is a
//! denial.
//!
//! It does not know the clock (time is a fact), storage, or which approvals exist. Facts never
//! pass through JSON on their way to Cedar.

#![forbid(unsafe_code)]

mod baseline;
mod call;
mod context;
mod decision;
mod engine;
mod error;
mod judge;
pub mod operator;
mod places;
mod policies;
mod request;
mod rule;
mod slices;
mod vocabulary;
mod world;

pub use baseline::{Baseline, UnknownBaseline};
pub use decision::{Deliberation, PolicyDecision};
#[doc(hidden)]
pub use engine::RawQuestions;
pub use engine::{PolicyEngine, ReadyPolicies};
pub use error::{Place, PolicyError};
pub use policies::{DEFAULT_POLICY_SRC, SCHEMA_SRC};
pub use request::{Action, PolicyRequest, PolicyRequestContext, Resource};
pub use rule::{GrantRule, grant_text};
