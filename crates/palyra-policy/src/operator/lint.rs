//! `check`: what loads and is still probably not what was meant.

use cedar_policy::{
    ActionConstraint, Policy, PrincipalConstraint, RequestEnv, ResourceConstraint,
    pst::{BinaryOp, Clause, Expr, UnaryOp},
};

use super::bundle::{Bundle, OperatorPolicy};
use super::notes::Mode;
use super::source::{NamedSource, Problem, printable};

/// What is suspicious.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LintKind {
    /// Names neither principal, action nor resource, so it is tried on every request.
    Unscoped,
    /// Can never apply.
    Dead,
    /// An unconditional forbid covers everything it speaks about.
    Shadowed,
    /// Its evaluation can fail, which denies whatever was asked.
    MayError,
    /// Forbids running and lets a person be asked, whose yes is then refused.
    AskedInVain,
    /// A permit that tells nobody why.
    NoReason,
    /// An annotation that means nothing here.
    UnknownAnnotation,
}

/// A suspicion about one policy.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Lint {
    /// Of which kind.
    pub kind: LintKind,
    /// About which policy.
    pub policy: String,
    /// Where, and in words.
    #[serde(flatten)]
    pub problem: Problem,
}

impl std::fmt::Display for Lint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.problem.fmt(f)
    }
}

/// What `check` found: problems keep a bundle from being used, lints do not.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Report {
    /// What must be put right.
    pub problems: Vec<Problem>,
    /// What should be looked at.
    pub lints: Vec<Lint>,
}

/// Checks sources: everything that keeps them from loading, or everything suspicious.
#[must_use]
pub fn check(baseline: &NamedSource, operator: &[NamedSource]) -> Report {
    match Bundle::load(baseline, operator) {
        Ok(bundle) => Report {
            problems: Vec::new(),
            lints: lints(&bundle),
        },
        Err(problems) => Report {
            problems,
            lints: Vec::new(),
        },
    }
}

/// Everything suspicious about the operator's policies. The baseline is tested by us.
#[must_use]
pub fn lints(bundle: &Bundle) -> Vec<Lint> {
    let reach: Vec<Reach<'_>> = bundle
        .policies()
        .iter()
        .map(|policy| Reach::of(policy, bundle))
        .collect();
    let mut found = Vec::new();
    for (index, here) in reach.iter().enumerate() {
        if here.policy.baseline {
            continue;
        }
        let mut say = |kind, message: String| {
            let policy = here.policy;
            found.push(Lint {
                kind,
                policy: policy.notes.id.clone(),
                problem: Problem::at(&policy.file, policy.place, message),
            });
        };
        if here.policy.notes.reason.is_none() && here.policy.permits() {
            say(
                LintKind::NoReason,
                format!(
                    "`{}` permits without saying why; add `@reason(\"…\")`",
                    here.policy.notes.id
                ),
            );
        }
        for name in &here.policy.notes.unknown {
            say(
                LintKind::UnknownAnnotation,
                format!(
                    "the annotation `@{name}` means nothing here; `@id`, `@reason`, `@hint`, \
                 `@approvers`, `@max_ttl` and `@mode` do"
                ),
            );
        }
        if here.is_unscoped() {
            say(
                LintKind::Unscoped,
                format!(
                    "`{}` names no principal, action or resource, so it is tried on every request; \
                 name the action at least",
                    here.policy.notes.id
                ),
            );
        }
        if here.envs.is_empty() {
            say(
                LintKind::Dead,
                format!(
                    "`{}` can never apply: no request has such a principal, action and resource, or \
                 its condition is always false",
                    here.policy.notes.id
                ),
            );
        } else if let Some(above) = shadow(&reach, index) {
            say(
                LintKind::Shadowed,
                format!(
                    "`{}` changes nothing: `{}` forbids all of it without a condition",
                    here.policy.notes.id, above.notes.id
                ),
            );
        }
        if let Some(action) = asked_in_vain(&reach, here) {
            say(
                LintKind::AskedInVain,
                format!(
                    "`{}` forbids `{action}` but not `{action}.ask`, so a person is asked and their \
                     yes is then refused; name the action in `ask` too, or lift it with a grant",
                    here.policy.notes.id
                ),
            );
        }
        for expression in fallible(&here.policy.policy) {
            say(
                LintKind::MayError,
                format!(
                    "`{}` can overflow, and a policy that fails denies the request",
                    printable(&expression)
                ),
            );
        }
    }
    found
}

/// What a policy speaks about.
struct Reach<'a> {
    policy: &'a OperatorPolicy,
    envs: Vec<Env>,
    principal: PrincipalConstraint,
    resource: ResourceConstraint,
}

type Env = (String, String, String);

impl<'a> Reach<'a> {
    fn of(policy: &'a OperatorPolicy, bundle: &Bundle) -> Self {
        let name = |env: RequestEnv| {
            let (principal, resource) = (env.principal(), env.resource());
            (
                principal.to_string(),
                env.action().to_string(),
                resource.to_string(),
            )
        };
        let envs = policy.policy.get_valid_request_envs(bundle.schema);
        Self {
            policy,
            envs: envs.map(name).collect(),
            principal: policy.policy.principal_constraint(),
            resource: policy.policy.resource_constraint(),
        }
    }

    fn is_unscoped(&self) -> bool {
        matches!(self.principal, PrincipalConstraint::Any)
            && matches!(self.resource, ResourceConstraint::Any)
            && matches!(
                self.policy.policy.action_constraint(),
                ActionConstraint::Any
            )
    }

    /// Whether every request that `other` speaks about is one that this speaks about.
    fn covers(&self, other: &Self) -> bool {
        let principal = End::of_principal(&self.principal);
        let resource = End::of_resource(&self.resource);
        other.envs.iter().all(|env| self.envs.contains(env))
            && principal.covers(&End::of_principal(&other.principal))
            && resource.covers(&End::of_resource(&other.resource))
    }
}

/// One end of a scope, without its type: types are compared as request environments.
enum End {
    Anyone,
    Exactly(String),
    Below(String),
}

impl End {
    fn of_principal(constraint: &PrincipalConstraint) -> Self {
        match constraint {
            PrincipalConstraint::Any | PrincipalConstraint::Is(_) => Self::Anyone,
            PrincipalConstraint::Eq(uid) => Self::Exactly(uid.to_string()),
            PrincipalConstraint::In(uid) | PrincipalConstraint::IsIn(_, uid) => {
                Self::Below(uid.to_string())
            }
        }
    }

    fn of_resource(constraint: &ResourceConstraint) -> Self {
        match constraint {
            ResourceConstraint::Any | ResourceConstraint::Is(_) => Self::Anyone,
            ResourceConstraint::Eq(uid) => Self::Exactly(uid.to_string()),
            ResourceConstraint::In(uid) | ResourceConstraint::IsIn(_, uid) => {
                Self::Below(uid.to_string())
            }
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Anyone, _) => true,
            (Self::Exactly(a), Self::Exactly(b)) => a == b,
            (Self::Below(a), Self::Exactly(b) | Self::Below(b)) => a == b,
            (Self::Exactly(_) | Self::Below(_), _) => false,
        }
    }
}

/// The first action that a policy forbids for good while a person may still be asked about it. One
/// that looks at the grant is lifted by a yes, so there asking has a point.
fn asked_in_vain(reach: &[Reach<'_>], here: &Reach<'_>) -> Option<String> {
    if here.policy.permits() || looks_at_grant(&here.policy.policy) {
        return None;
    }
    let mut actions = here.envs.iter();
    let alone = actions.find(|env| {
        let asking = (env.0.clone(), asking(&env.1), env.2.clone());
        let asked_about = |it: &Reach<'_>| it.envs.contains(&asking);
        // Somebody must be able to ask at all, and no forbid like this one says no to that.
        let may_ask = reach
            .iter()
            .any(|it| it.policy.permits() && asked_about(it));
        let also = |it: &Reach<'_>| {
            !it.policy.permits()
                && asked_about(it)
                && End::of_principal(&it.principal).covers(&End::of_principal(&here.principal))
                && End::of_resource(&it.resource).covers(&End::of_resource(&here.resource))
                && conditions(&it.policy.policy).is_none_or(|its| {
                    conditions(&here.policy.policy).is_some_and(|ours| its == ours)
                })
        };
        may_ask && !reach.iter().any(also)
    })?;
    let id = alone.1.rsplit("::").next().unwrap_or_default();
    Some(id.trim_matches('"').to_owned())
}

/// `Palyra::Action::"exec.ask"` of `Palyra::Action::"exec"`.
fn asking(action: &str) -> String {
    let open = action.strip_suffix('"').unwrap_or(action);
    format!("{open}.ask\"")
}

/// The conditions of a policy as text; nothing when it has none.
fn conditions(policy: &Policy) -> Option<Vec<String>> {
    if !policy.has_non_scope_constraint() {
        return None;
    }
    let tree = policy.to_pst().ok()?;
    let clauses = tree.body().clauses().iter();
    let texts = clauses.map(|clause| match clause {
        Clause::When(body) => format!("when {body}"),
        Clause::Unless(body) => format!("unless {body}"),
    });
    Some(texts.collect())
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum is Cedar's and open; only these two name an attribute"
)]
fn looks_at_grant(policy: &Policy) -> bool {
    let Ok(tree) = policy.to_pst() else {
        return false;
    };
    let clauses = tree.body().clauses().iter();
    let mut pending: Vec<&Expr> = clauses
        .map(|clause| match clause {
            Clause::When(body) | Clause::Unless(body) => body.as_ref(),
        })
        .collect();
    while let Some(expression) = pending.pop() {
        let named = match expression {
            Expr::HasAttr { attrs, .. } => attrs.iter().any(|name| name.as_str() == "grant"),
            Expr::GetAttr { attr, .. } => attr.as_str() == "grant",
            _ => false,
        };
        if named {
            return true;
        }
        pending.extend(super::tree::parts(expression));
    }
    false
}

/// The unconditional forbid over all that this policy speaks about, if there is one.
fn shadow<'a>(reach: &[Reach<'a>], index: usize) -> Option<&'a OperatorPolicy> {
    let here = reach.get(index)?;
    reach
        .iter()
        .enumerate()
        .filter(|(at, above)| {
            let unconditional = !above.policy.policy.has_non_scope_constraint();
            let twins = *at > index && here.covers(above) && !here.policy.permits();
            *at != index
                && !twins
                && unconditional
                && !above.policy.permits()
                && above.policy.notes.mode == Mode::Enforced
        })
        .find(|(_, above)| above.covers(here))
        .map(|(_, above)| above.policy)
}

/// The parts of a policy that can fail. Strict validation leaves only arithmetic: attributes that
/// may be absent and texts that may not parse do not load.
pub(crate) fn fallible(policy: &Policy) -> Vec<String> {
    let Ok(tree) = policy.to_pst() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for clause in tree.body().clauses() {
        match clause {
            Clause::When(body) | Clause::Unless(body) => arithmetic(body, &mut found),
        }
    }
    found
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum is Cedar's and open; only arithmetic can fail after strict validation"
)]
fn arithmetic(root: &Expr, found: &mut Vec<String>) {
    let mut pending = vec![root];
    while let Some(expression) = pending.pop() {
        let fails = match expression {
            Expr::BinaryOp { op, left, right } => {
                let known = |side: &Expr| matches!(side, Expr::Literal(_));
                matches!(
                    op,
                    BinaryOp::Add
                        | BinaryOp::Sub
                        | BinaryOp::Mul
                        | BinaryOp::Offset
                        | BinaryOp::DurationSince
                ) && !(known(left) && known(right))
            }
            Expr::UnaryOp { op, expr } => {
                *op == UnaryOp::Neg && !matches!(**expr, Expr::Literal(_))
            }
            _ => false,
        };
        if fails {
            found.push(expression.to_string());
        } else {
            pending.extend(super::tree::parts(expression));
        }
    }
}
