//! Requests made up from a policy: in its scope, and with its condition as one wants it.

use cedar_policy::pst::{Clause, Expr};
use cedar_policy::{EntityUid, PrincipalConstraint, ResourceConstraint, Schema};
use serde_json::{Map, Value, json};

use super::bundle::{Bundle, OperatorPolicy};
use super::goal::{Atom, changes, ways};
use super::question::{EntityText, Question, RequestText};
use super::shape::{Shape, Shapes};
use super::terms::Asked;

/// How many requests one search holds at a time.
const MOST: usize = 8;

/// This request, changed so that the policy's condition holds. Nothing when it has none, when it
/// holds already, or when no change is known that would do.
pub(crate) fn holding(
    policy: &OperatorPolicy,
    question: &Question,
    schema: &Schema,
    shapes: &Shapes,
) -> Vec<Question> {
    let clauses = clauses(policy);
    let mut reached = vec![question.clone()];
    for (clause, wanted) in &clauses {
        let further = reached.iter().flat_map(|so_far| {
            let found = brought_about(clause, *wanted, so_far, schema, shapes);
            found.into_iter().take(MOST)
        });
        reached = further.take(MOST).collect();
    }
    // A later change may have undone an earlier one.
    reached.retain(|it| it != question && holds(&clauses, it, schema, shapes));
    reached
}

/// This request, changed so that the condition of the one policy holds and that of the other does
/// not.
pub(crate) fn apart(
    policy: &OperatorPolicy,
    other: &OperatorPolicy,
    question: &Question,
    schema: &Schema,
    shapes: &Shapes,
) -> Vec<Question> {
    let (here, there) = (clauses(policy), clauses(other));
    let mut found: Vec<Question> = there
        .iter()
        .flat_map(|(clause, wanted)| brought_about(clause, !wanted, question, schema, shapes))
        .filter(|it| holds(&here, it, schema, shapes) && !holds(&there, it, schema, shapes))
        .collect();
    found.truncate(MOST);
    found
}

/// The conditions of a policy, each with what it must come to.
fn clauses(policy: &OperatorPolicy) -> Vec<(Expr, bool)> {
    let Ok(tree) = policy.policy.to_pst() else {
        return Vec::new();
    };
    let clauses = tree.body().clauses().iter();
    clauses
        .map(|clause| match clause {
            Clause::When(body) => (Expr::clone(body), true),
            Clause::Unless(body) => (Expr::clone(body), false),
        })
        .collect()
}

fn holds(clauses: &[(Expr, bool)], question: &Question, schema: &Schema, shapes: &Shapes) -> bool {
    let asked = Asked::new(question, &question.principal, schema, shapes);
    asked.is_ok_and(|asked| clauses.iter().all(|(body, wanted)| asked.is(body, *wanted)))
}

/// The request with one condition as it should be, in every way that is known.
fn brought_about(
    condition: &Expr,
    wanted: bool,
    question: &Question,
    schema: &Schema,
    shapes: &Shapes,
) -> Vec<Question> {
    let Ok(asked) = Asked::new(question, &question.principal, schema, shapes) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for way in ways(condition, wanted, &asked) {
        let mut reached = vec![question.clone()];
        for atom in way {
            let further = reached
                .iter()
                .flat_map(|it| with_atom(atom, it, schema, shapes));
            reached = further.take(MOST).collect();
        }
        found.extend(reached);
    }
    found
}

fn with_atom(
    atom: Atom<'_>,
    question: &Question,
    schema: &Schema,
    shapes: &Shapes,
) -> Vec<Question> {
    let Ok(asked) = Asked::new(question, &question.principal, schema, shapes) else {
        return Vec::new();
    };
    if asked.is(atom.0, atom.1) {
        return vec![question.clone()];
    }
    let changes = changes(atom, &asked).into_iter();
    changes
        .filter_map(|change| {
            let mut changed = question.clone();
            change.apply(&mut changed)?;
            Some(changed)
        })
        .collect()
}

/// The plainest requests in the scope of a policy, with each truth of the resource's own yes-or-no
/// attributes.
pub(crate) fn meeting(policy: &OperatorPolicy, bundle: &Bundle, shapes: &Shapes) -> Vec<Question> {
    let mut questions = Vec::new();
    let principal = policy.policy.principal_constraint();
    let resource = policy.policy.resource_constraint();
    for env in policy.policy.get_valid_request_envs(bundle.schema) {
        let (who, which) = (env.principal().to_string(), env.resource().to_string());
        let who = Cast::of(&who, principal_end(&principal));
        let which = Cast::of(&which, resource_end(&resource));
        let flags = shapes.entities.get(&which.type_name);
        let flags = flags.into_iter().flatten();
        let flags = flags.filter(|(_, field)| field.shape == Shape::Bool);
        let flags: Vec<&String> = flags.map(|(name, _)| name).collect();
        for value in [false, true] {
            let attrs = flags.iter().map(|name| ((*name).clone(), json!(value)));
            let text = RequestText {
                principal: who.uid.clone(),
                action: env.action().to_string(),
                resource: which.uid.clone(),
                context: Map::new(),
                entities: vec![who.entity(Map::new()), which.entity(attrs.collect())],
            };
            questions.extend(Question::complete(&text, &[], shapes));
        }
    }
    questions
}

/// Who plays a part in a made-up request.
struct Cast {
    type_name: String,
    uid: String,
    parents: Vec<String>,
}

impl Cast {
    fn of(type_name: &str, (exactly, below): (Option<&EntityUid>, Option<&EntityUid>)) -> Self {
        let above = below.map(|uid| (uid.type_name().basename(), uid.id().unescaped()));
        // A place is where its name says, so one below another is named after it.
        let id = match (type_name, above) {
            ("Palyra::User", _) => "owner".to_owned(),
            ("Palyra::Daemon", _) => "palyrad".to_owned(),
            ("Palyra::Path" | "Palyra::Program", Some(("Path", folder))) => {
                format!("{}/some", folder.trim_end_matches('/'))
            }
            ("Palyra::Path" | "Palyra::Program", _) => "/some".to_owned(),
            ("Palyra::Host", Some(("Domain", domain))) => format!("some.{domain}"),
            (_, _) => "some".to_owned(),
        };
        let plain = || format!("{type_name}::{id:?}");
        Self {
            type_name: type_name.to_owned(),
            uid: exactly.map_or_else(plain, ToString::to_string),
            parents: below.iter().map(ToString::to_string).collect(),
        }
    }

    fn entity(&self, attrs: Map<String, Value>) -> EntityText {
        EntityText {
            uid: self.uid.clone(),
            attrs,
            parents: self.parents.clone(),
        }
    }
}

type Ends<'a> = (Option<&'a EntityUid>, Option<&'a EntityUid>);

fn principal_end(constraint: &PrincipalConstraint) -> Ends<'_> {
    match constraint {
        PrincipalConstraint::Any | PrincipalConstraint::Is(_) => (None, None),
        PrincipalConstraint::Eq(uid) => (Some(uid), None),
        PrincipalConstraint::In(uid) | PrincipalConstraint::IsIn(_, uid) => (None, Some(uid)),
    }
}

fn resource_end(constraint: &ResourceConstraint) -> Ends<'_> {
    match constraint {
        ResourceConstraint::Any | ResourceConstraint::Is(_) => (None, None),
        ResourceConstraint::Eq(uid) => (Some(uid), None),
        ResourceConstraint::In(uid) | ResourceConstraint::IsIn(_, uid) => (None, Some(uid)),
    }
}
