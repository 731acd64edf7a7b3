//! What an operator does with policies: load, check, test, explain, simulate, compare.
//!
//! Everything but [`files`] works on texts and values, so the command line uses it without a
//! daemon and the daemon without a disk. Nothing here decides: a call is decided by
//! [`PolicyEngine`](crate::PolicyEngine) alone, from the text that a [`Bundle`] yields.

mod analyse;
mod bundle;
mod call;
mod cases;
mod change;
mod diff;
mod explain;
pub mod files;
mod goal;
mod lint;
mod meet;
mod notes;
mod question;
mod replay;
mod shape;
mod source;
mod terms;
mod tree;

pub use analyse::{analyse, find_solver};
pub use bundle::{Bundle, OperatorPolicy, PolicyVersion};
pub use call::{AskedQuestion, CallExplanation, CallRemedy, explain_call};
pub use cases::{Failure, TestReport, test};
pub use diff::{Analysis, Diff, Flip, Simulation, diff, simulate};
pub use explain::{Because, Explanation, PartyExplanation, Remedy, explain};
pub use lint::{Lint, LintKind, Report, check, lints};
pub use notes::{Mode, Notes};
pub use question::{
    EntityText, Outcome, PartyVerdict, Question, RequestText, Verdict, decide, outcome,
};
pub use replay::{Replay, decide_call};
pub use source::{NamedSource, Problem};

/// The attributes of an action's context, as the schema declares them.
#[cfg(test)]
pub(crate) fn context_of(action: &str) -> Option<&'static shape::Fields> {
    shape::Shapes::load().ok()?.contexts.get(action)
}
