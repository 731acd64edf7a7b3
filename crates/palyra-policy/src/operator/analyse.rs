//! "Does this allow anything new?", for every request there could be, by a solver.
//!
//! Cedar's symbolic compiler turns both bundles into formulas, and the helper program cvc5 looks
//! for a request that only the new one allows. What it finds is replayed with Cedar itself before
//! it is shown. Without the helper, and whenever it cannot tell, nothing is claimed.

use std::path::{Path, PathBuf};

use super::bundle::Bundle;
use super::diff::Analysis;

/// Where the helper program is named when it is not on the `PATH`.
const NAMED: &str = "PALYRA_CVC5";

/// The helper program: what `PALYRA_CVC5` names, or `cvc5` on the `PATH`.
#[must_use]
pub fn find_solver() -> Option<PathBuf> {
    let named = std::env::var_os(NAMED).filter(|name| !name.is_empty());
    named.map(PathBuf::from).or_else(|| {
        let folders = std::env::var_os("PATH")?;
        let mut places = std::env::split_paths(&folders).map(|folder| folder.join("cvc5"));
        places.find(|place| place.is_absolute() && place.is_file())
    })
}

/// Compares two bundles with the solver at this path, such as [`find_solver`] finds.
///
/// It runs on tokio, with I/O and time enabled, and takes from milliseconds to a minute.
pub async fn analyse(old: &Bundle, new: &Bundle, solver: Option<&Path>) -> Analysis {
    let Some(solver) = solver else {
        return not_analysed(format!(
            "the helper program cvc5 is not installed; install it with `apt-get install cvc5`, or \
             name it in `{NAMED}`"
        ));
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
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::{Duration, Instant};

    use cedar_policy::{
        ActionConstraint, Authorizer, Decision, EntityUid, Policy, PolicySet, PrincipalConstraint,
        RequestEnv, ResourceConstraint, Schema,
    };
    use cedar_policy_symcc::solver::LocalSolver;
    use cedar_policy_symcc::{CedarSymCompiler, CompiledPolicySet, Env};
    use tokio::process::Command;

    use super::super::diff::{Flip, differing};
    use super::super::lint::fallible;
    use super::super::question::{Outcome, Question};
    use super::{Analysis, Bundle, Path};

    /// How long all of it may take.
    const MAX_TIME: Duration = Duration::from_secs(60);
    /// How long the solver may think about one kind of request, in milliseconds. It stops by itself.
    const MAX_MILLIS: &str = "--tlimit-per=20000";
    /// How many policies may speak about one kind of request. Turning one into a formula takes
    /// about a millisecond.
    const MAX_OF_A_KIND: usize = 1_000;

    type Solver = CedarSymCompiler<LocalSolver>;

    pub(super) async fn search(
        old: &Bundle,
        new: &Bundle,
        solver: &Path,
    ) -> Result<Analysis, String> {
        let late = || format!("it took longer than {} s", MAX_TIME.as_secs());
        let all = search_all(old, new, solver, Instant::now());
        let found = tokio::time::timeout(MAX_TIME, all).await;
        found.map_err(|_| late())?
    }

    async fn search_all(
        old: &Bundle,
        new: &Bundle,
        solver: &Path,
        start: Instant,
    ) -> Result<Analysis, String> {
        let mut command = Command::new(solver);
        // It needs nothing of ours, and does not outlive the question.
        command
            .args(["--lang", "smt", MAX_MILLIS])
            .env_clear()
            .kill_on_drop(true);
        let solver = LocalSolver::from_command(&mut command).map_err(|error| {
            format!(
                "the helper program `{}` did not start: {error}",
                solver.display()
            )
        })?;
        let mut solver = CedarSymCompiler::new(solver).map_err(|error| error.to_string())?;
        let kinds = kinds(old, new);
        let mut counterexamples = Vec::new();
        for kind in kinds.values() {
            counterexamples.extend(search_kind(old, new, kind, &mut solver).await?);
            // Between two answers of the solver nothing waits, so nothing would stop it in time.
            if start.elapsed() > MAX_TIME {
                return Err(format!("it took longer than {} s", MAX_TIME.as_secs()));
            }
        }
        if counterexamples.is_empty() {
            let kinds = kinds.len();
            return Ok(Analysis::NothingNew { kinds });
        }
        Ok(Analysis::AllowsMore { counterexamples })
    }

    /// A request of this kind that only the new bundle allows.
    async fn search_kind(
        old: &Bundle,
        new: &Bundle,
        kind: &RequestEnv,
        solver: &mut Solver,
    ) -> Result<Option<Flip>, String> {
        let could_not = |error: &dyn std::fmt::Display| format!("it could not tell: {error}");
        let compiled = |bundle: &Bundle| {
            let set = about(bundle, kind)?;
            CompiledPolicySet::compile(&set, kind, bundle.schema).map_err(|error| could_not(&error))
        };
        let (before, after) = (compiled(old)?, compiled(new)?);
        let found = solver
            .check_implies_with_counterexample_opt(&after, &before)
            .await
            .map_err(|error| could_not(&error))?;
        found.map(|found| replayed(old, new, &found)).transpose()
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

    /// The policies whose scope does not rule out this kind of request.
    fn about(bundle: &Bundle, kind: &RequestEnv) -> Result<PolicySet, String> {
        let above = above(kind.action(), bundle.schema)?;
        let speaks = |policy: &&Policy| {
            let by_action = match policy.action_constraint() {
                ActionConstraint::Any => true,
                ActionConstraint::Eq(action) => action == *kind.action(),
                ActionConstraint::In(groups) => groups.iter().any(|group| above.contains(group)),
            };
            let by_principal = match policy.principal_constraint() {
                PrincipalConstraint::Any | PrincipalConstraint::In(_) => true,
                PrincipalConstraint::Eq(uid) => uid.type_name() == kind.principal(),
                PrincipalConstraint::Is(name) | PrincipalConstraint::IsIn(name, _) => {
                    name == *kind.principal()
                }
            };
            let by_resource = match policy.resource_constraint() {
                ResourceConstraint::Any | ResourceConstraint::In(_) => true,
                ResourceConstraint::Eq(uid) => uid.type_name() == kind.resource(),
                ResourceConstraint::Is(name) | ResourceConstraint::IsIn(name, _) => {
                    name == *kind.resource()
                }
            };
            by_action && by_principal && by_resource
        };
        let found: Vec<&Policy> = bundle.enforced.policies().filter(speaks).collect();
        // To the solver a policy that fails is one that does not apply; here it denies.
        if let Some(policy) = found.iter().find(|policy| !fallible(policy).is_empty()) {
            return Err(format!(
                "`{}` can fail, which the solver does not see",
                policy.id()
            ));
        }
        if found.len() > MAX_OF_A_KIND {
            return Err(format!(
                "more than {MAX_OF_A_KIND} policies speak about `{}`",
                kind.action().id().unescaped()
            ));
        }
        PolicySet::from_policies(found.into_iter().cloned()).map_err(|error| error.to_string())
    }

    /// An action and the groups it is in.
    fn above(action: &EntityUid, schema: &Schema) -> Result<BTreeSet<EntityUid>, String> {
        let actions = schema
            .action_entities()
            .map_err(|error| error.to_string())?;
        let groups = actions.ancestors(action).into_iter().flatten();
        Ok(groups.chain([action]).cloned().collect())
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
