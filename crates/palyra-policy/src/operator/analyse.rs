//! "Does this allow anything new?", for every request there could be, by a solver.
//!
//! Cedar's symbolic compiler turns both bundles into formulas, and the helper program cvc5 looks
//! for a request that only the new one allows. What it finds is replayed with Cedar itself before
//! it is shown. Without the helper, and whenever it cannot tell, nothing is claimed.

use std::path::Path;

use super::bundle::Bundle;
use super::diff::Analysis;

/// Compares two bundles with the solver at this path.
///
/// It runs on tokio, with I/O and time enabled, and takes from milliseconds to seconds.
pub async fn analyse(old: &Bundle, new: &Bundle, solver: Option<&Path>) -> Analysis {
    let Some(solver) = solver else {
        return not_analysed("the helper program cvc5 is not installed");
    };
    match with_solver::search(old, new, solver).await {
        Ok(analysis) => analysis,
        Err(why) => not_analysed(why),
    }
}

fn not_analysed(why: impl Into<String>) -> Analysis {
    Analysis::NotAnalysed { why: why.into() }
}

#[cfg(not(feature = "solver"))]
mod with_solver {
    use super::{Analysis, Bundle, Path};

    #[expect(
        clippy::unused_async,
        reason = "the same function waits for the solver when it is built in"
    )]
    pub(super) async fn search(_: &Bundle, _: &Bundle, _: &Path) -> Result<Analysis, String> {
        Err("this program was built without the solver".to_owned())
    }
}

#[cfg(feature = "solver")]
mod with_solver {
    use std::collections::BTreeMap;

    use cedar_policy::{Authorizer, Decision, RequestEnv};
    use cedar_policy_symcc::solver::LocalSolver;
    use cedar_policy_symcc::{CedarSymCompiler, CompiledPolicySet, Env};
    use tokio::process::Command;

    use super::super::diff::{Flip, differing};
    use super::super::question::{Outcome, Question};
    use super::{Analysis, Bundle, Path};

    /// How long the solver may think in all, in milliseconds.
    const MAX_MILLIS: &str = "--tlimit=30000";

    pub(super) async fn search(
        old: &Bundle,
        new: &Bundle,
        solver: &Path,
    ) -> Result<Analysis, String> {
        let mut command = Command::new(solver);
        // It needs nothing of ours, and does not outlive the question.
        command
            .args(["--lang", "smt", MAX_MILLIS])
            .kill_on_drop(true);
        let solver = LocalSolver::from_command(&mut command)
            .map_err(|error| format!("the helper program did not start: {error}"))?;
        let mut compiler = CedarSymCompiler::new(solver).map_err(|error| error.to_string())?;
        let kinds = kinds(old, new);
        let mut counterexamples = Vec::new();
        for kind in kinds.values() {
            let could_not = |error: &dyn std::fmt::Display| format!("it could not tell: {error}");
            let compiled = |bundle: &Bundle| {
                CompiledPolicySet::compile(&bundle.enforced, kind, bundle.schema)
                    .map_err(|error| could_not(&error))
            };
            let (before, after) = (compiled(old)?, compiled(new)?);
            let found = compiler
                .check_implies_with_counterexample_opt(&after, &before)
                .await
                .map_err(|error| could_not(&error))?;
            if let Some(found) = found {
                counterexamples.push(replayed(old, new, &found)?);
            }
        }
        if counterexamples.is_empty() {
            let kinds = kinds.len();
            return Ok(Analysis::NothingNew { kinds });
        }
        Ok(Analysis::AllowsMore { counterexamples })
    }

    /// The kinds of requests that a policy which differs speaks about. In all others both bundles
    /// hold the same policies.
    fn kinds(old: &Bundle, new: &Bundle) -> BTreeMap<String, RequestEnv> {
        let mut kinds = BTreeMap::new();
        for policy in differing(old, new) {
            for kind in policy.policy.get_valid_request_envs(new.schema) {
                let name = format!("{} {} {}", kind.principal(), kind.action(), kind.resource());
                kinds.insert(name, kind);
            }
        }
        kinds
    }

    /// A counterexample, asked again of both bundles: the solver is not believed.
    fn replayed(old: &Bundle, new: &Bundle, found: &Env) -> Result<Flip, String> {
        let ask = |bundle: &Bundle| {
            Authorizer::new().is_authorized(&found.request, &bundle.enforced, &found.entities)
        };
        let (before, after) = (ask(old), ask(new));
        if before.decision() != Decision::Deny || after.decision() != Decision::Allow {
            return Err("a request that it found does not hold when it is replayed".to_owned());
        }
        let mut because: Vec<String> = after
            .diagnostics()
            .reason()
            .map(|id| AsRef::<str>::as_ref(id).to_owned())
            .collect();
        because.sort_unstable();
        Ok(Flip {
            request: "found by the solver".to_owned(),
            details: Question::of_request(&found.request, &found.entities)?.details(),
            before: Outcome::Deny,
            after: Outcome::Allow,
            because,
        })
    }
}
