//! `explain`: the answer, its reasons, the facts it used, and what would have to change.
//!
//! What would have to change is found by partial evaluation: the policies are evaluated for this
//! principal, action and resource with the context and the resource's own attributes unknown, and
//! what is left of each is the condition that still matters. From there a short search looks for
//! the nearest changes. Every change that is named was tried: the changed request is allowed.

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::pst::{Clause, Expr};
use cedar_policy::{
    ActionConstraint, Effect, EntityUid, PartialEntities, PartialEntityUid, PartialRequest, Policy,
    PolicySet, PrincipalConstraint, ResourceConstraint, Schema,
};
use serde_json::{Value, json};

use super::bundle::Bundle;
use super::change::{Change, sentences, shown};
use super::goal::{changes, ways};
use super::question::{Outcome, PartyVerdict, Question, Verdict, outcome_of, reference, verdict};
use super::shape::Shapes;
use super::terms::Asked;
use super::tree::parts;

/// How many changed requests are tried.
const MAX_TRIES: usize = 400;
/// How many remedies are named.
const MAX_REMEDIES: usize = 3;
/// How many times a changed request that is still denied is changed again.
const MAX_STEPS: usize = 5;
/// How many policies that speak about a request are looked at. Partial evaluation takes about
/// 10 µs for each, and evaluating a condition piece by piece more.
const MAX_RELEVANT: usize = 2_000;

/// A policy that made the answer what it is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Because {
    /// Its id.
    pub policy: String,
    /// Whether it permits; otherwise it forbids.
    pub permits: bool,
    /// Its sentence for people.
    pub reason: Option<String>,
    /// What it says can be done.
    pub hint: Option<String>,
}

/// The answer about one principal, with its reasons.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PartyExplanation {
    /// About whom.
    pub principal: String,
    /// Whether they may.
    pub allowed: bool,
    /// Why. A no without any means that nothing permits it.
    pub because: Vec<Because>,
}

/// Something that would have to be different for the request to be allowed.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Remedy {
    /// All of these together, each completing "it would be allowed with …".
    pub sentences: Vec<String>,
    /// The policies that would allow it then.
    pub policies: Vec<String>,
    #[serde(skip)]
    pub(crate) changes: Vec<Change>,
    #[serde(skip)]
    after: Question,
}

impl Remedy {
    /// The request with the change made.
    #[must_use]
    pub const fn applied(&self) -> &Question {
        &self.after
    }
}

/// Why a request is answered as it is.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Explanation {
    /// What comes of it.
    pub outcome: Outcome,
    /// Each answer, the agent's first.
    pub parties: Vec<PartyExplanation>,
    /// The facts that the policies behind the answer looked at, each with its value.
    pub facts: BTreeMap<String, String>,
    /// What would have to change, the nearest first. Empty when it is allowed, and when no change
    /// of the facts would do.
    pub remedies: Vec<Remedy>,
    /// Policies that are only watched and would have changed the answer.
    pub log_only: Vec<String>,
}

/// Explains the answer to a request.
///
/// # Errors
/// The request does not fit the schema, or evaluation failed. The daemon denies then.
pub fn explain(bundle: &Bundle, question: &Question) -> Result<Explanation, String> {
    let shapes = Shapes::load().map_err(|error| error.to_string())?;
    let found = verdict(&bundle.enforced, bundle.schema, question)?;
    let log_only = match &bundle.with_log_only {
        Some(set) => watched(bundle, set, question, &found)?,
        None => Vec::new(),
    };
    let (facts, remedies) = grounds(bundle, shapes, question, &found)?;
    Ok(Explanation {
        outcome: outcome_of(&bundle.enforced, bundle.schema, question)?,
        facts,
        parties: found
            .parties
            .into_iter()
            .map(|party| because(bundle, party))
            .collect(),
        remedies,
        log_only,
    })
}

/// The facts behind this answer, each with its value, and what would have to change.
pub(crate) fn grounds(
    bundle: &Bundle,
    shapes: &Shapes,
    question: &Question,
    found: &Verdict,
) -> Result<(BTreeMap<String, String>, Vec<Remedy>), String> {
    let facts = facts(bundle, shapes, question, found)?;
    if found.allowed() {
        return Ok((facts, Vec::new()));
    }
    Ok((facts, remedies(bundle, shapes, question)?))
}

/// The policies that are only watched and would have turned this answer around.
fn watched(
    bundle: &Bundle,
    set: &PolicySet,
    question: &Question,
    found: &Verdict,
) -> Result<Vec<String>, String> {
    let otherwise = verdict(set, bundle.schema, question)?;
    if otherwise.allowed() == found.allowed() {
        return Ok(Vec::new());
    }
    let mut ids = otherwise.matched();
    ids.retain(|id| bundle.watched().any(|policy| policy.notes.id == *id));
    Ok(ids)
}

pub(crate) fn because(bundle: &Bundle, party: PartyVerdict) -> PartyExplanation {
    let said = party.matched.into_iter().map(|id| {
        let policy = bundle.policy(&id);
        Because {
            permits: party.allowed,
            reason: policy.and_then(|policy| policy.notes.reason.clone()),
            hint: policy.and_then(|policy| policy.notes.hint.clone()),
            policy: id,
        }
    });
    PartyExplanation {
        principal: party.principal,
        allowed: party.allowed,
        because: said.collect(),
    }
}

/// What the policies behind an answer read. When nothing permitted it, what the permits read that
/// speak about such a request.
fn facts(
    bundle: &Bundle,
    shapes: &Shapes,
    question: &Question,
    found: &Verdict,
) -> Result<BTreeMap<String, String>, String> {
    let mut read = BTreeMap::new();
    for (principal, party) in question.parties().iter().zip(&found.parties) {
        let asked = Asked::new(question, principal, bundle.schema, shapes)?;
        let bodies: Vec<Policy> = if party.matched.is_empty() {
            let left = residuals(bundle, question, principal)?.into_values();
            left.filter(|it| it.effect() == Effect::Permit).collect()
        } else {
            let ids = party.matched.iter();
            ids.filter_map(|id| Some(bundle.policy(id)?.policy.clone()))
                .collect()
        };
        for body in bodies.iter().flat_map(conditions) {
            note_facts(&body, &asked, &mut read);
        }
    }
    Ok(read)
}

fn note_facts(root: &Expr, asked: &Asked<'_>, read: &mut BTreeMap<String, String>) {
    let mut pending = vec![root];
    while let Some(expression) = pending.pop() {
        if matches!(expression, Expr::GetAttr { .. } | Expr::HasAttr { .. })
            && let Some(value) = asked.json(expression)
        {
            read.insert(expression.to_string(), shown(&value));
            continue;
        }
        pending.extend(parts(expression));
    }
}

fn conditions(policy: &Policy) -> Vec<Expr> {
    let Ok(tree) = policy.to_pst() else {
        return Vec::new();
    };
    tree.body()
        .clauses()
        .iter()
        .map(|clause| match clause {
            Clause::When(body) | Clause::Unless(body) => Expr::clone(body),
        })
        .collect()
}

/// What is left of each policy when principal, action and resource are known and the rest is not.
fn residuals(
    bundle: &Bundle,
    question: &Question,
    principal: &EntityUid,
) -> Result<BTreeMap<String, Policy>, String> {
    let schema = bundle.schema;
    let relevant = relevant(bundle, question, principal)?;
    let whole = |uid: &EntityUid| PartialEntityUid::from_concrete(uid.clone());
    let request = PartialRequest::new(
        whole(principal),
        question.action.clone(),
        whole(&question.resource),
        None,
        schema,
    )
    .map_err(|error| error.to_string())?;
    let entities = partial_entities(question, schema)?;
    let response = relevant
        .tpe(&request, &entities, schema)
        .map_err(|error| error.to_string())?;
    let named = response.policies().map(|policy| {
        let id: &str = policy.id().as_ref();
        (id.to_owned(), policy)
    });
    Ok(named.collect())
}

/// The policies whose scope does not rule this request out.
fn relevant(
    bundle: &Bundle,
    question: &Question,
    principal: &EntityUid,
) -> Result<PolicySet, String> {
    let actions = bundle.schema.action_entities();
    let actions = actions.map_err(|error| error.to_string())?;
    let above: BTreeSet<&EntityUid> = actions
        .ancestors(&question.action)
        .into_iter()
        .flatten()
        .chain([&question.action])
        .collect();
    let speaks = |policy: &Policy| {
        let by_action = match policy.action_constraint() {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(action) => action == question.action,
            ActionConstraint::In(groups) => groups.iter().any(|group| above.contains(group)),
        };
        let by_principal = match policy.principal_constraint() {
            PrincipalConstraint::Any | PrincipalConstraint::In(_) => true,
            PrincipalConstraint::Eq(uid) => uid == *principal,
            PrincipalConstraint::Is(name) | PrincipalConstraint::IsIn(name, _) => {
                name == *principal.type_name()
            }
        };
        let by_resource = match policy.resource_constraint() {
            ResourceConstraint::Any | ResourceConstraint::In(_) => true,
            ResourceConstraint::Eq(uid) => uid == question.resource,
            ResourceConstraint::Is(name) | ResourceConstraint::IsIn(name, _) => {
                name == *question.resource.type_name()
            }
        };
        by_action && by_principal && by_resource
    };
    let found: Vec<&Policy> = bundle.enforced.policies().filter(|it| speaks(it)).collect();
    if found.len() > MAX_RELEVANT {
        return Err(format!(
            "more than {MAX_RELEVANT} policies speak about this request, too many to explain"
        ));
    }
    PolicySet::from_policies(found.into_iter().cloned()).map_err(|error| error.to_string())
}

/// Everything known but the resource's own attributes and groups, and what hangs on the context.
fn partial_entities(question: &Question, schema: &Schema) -> Result<PartialEntities, String> {
    let groups: BTreeSet<&EntityUid> = question
        .entities
        .values()
        .flat_map(|known| &known.parents)
        .collect();
    let all = question.entities.iter().map(|(uid, known)| {
        let parents: Vec<Value> = known.parents.iter().map(reference).collect();
        if *uid != question.resource {
            return json!({ "uid": reference(uid), "attrs": known.attrs, "parents": parents, "tags": {} });
        }
        // Cedar wants the groups of a group to be known.
        if groups.contains(uid) {
            return json!({ "uid": reference(uid), "parents": parents, "tags": {} });
        }
        json!({ "uid": reference(uid), "tags": {} })
    });
    PartialEntities::from_json_value(all.collect(), schema).map_err(|error| error.to_string())
}

/// A changed request on the way to an allowed one.
struct Attempt {
    question: Question,
    changes: Vec<Change>,
    steps: usize,
}

impl Attempt {
    fn cost(&self) -> u32 {
        self.changes.iter().map(Change::cost).sum()
    }
}

pub(crate) fn remedies(
    bundle: &Bundle,
    shapes: &Shapes,
    question: &Question,
) -> Result<Vec<Remedy>, String> {
    let mut left = BTreeMap::new();
    for principal in question.parties() {
        let conditions_left = residuals(bundle, question, &principal)?
            .into_iter()
            .map(|(id, policy)| (id, (policy.effect(), conditions(&policy))))
            .collect();
        left.insert(principal, conditions_left);
    }
    let mut open = vec![Attempt {
        question: question.clone(),
        changes: Vec::new(),
        steps: 0,
    }];
    let mut found: Vec<Remedy> = Vec::new();
    for _ in 0..MAX_TRIES {
        if found.len() >= MAX_REMEDIES {
            break;
        }
        let nearest = open
            .iter()
            .enumerate()
            .min_by_key(|(_, attempt)| attempt.cost());
        let Some((nearest, _)) = nearest else {
            break;
        };
        let attempt = open.swap_remove(nearest);
        // A change that does not fit the schema is no change that could happen.
        let Ok(answer) = verdict(&bundle.enforced, bundle.schema, &attempt.question) else {
            continue;
        };
        if answer.allowed() {
            let said = sentences(&attempt.changes, question);
            let more = found.iter().any(|known| is_within(&known.sentences, &said));
            if !more {
                found.push(Remedy {
                    sentences: said,
                    policies: answer.matched(),
                    changes: attempt.changes,
                    after: attempt.question,
                });
            }
            continue;
        }
        if attempt.steps < MAX_STEPS {
            open.extend(next(bundle, shapes, &attempt, &answer, &left));
        }
    }
    Ok(found)
}

pub(crate) fn is_within(few: &[String], many: &[String]) -> bool {
    few.iter().all(|sentence| many.contains(sentence))
}

type Conditions = BTreeMap<String, (Effect, Vec<Expr>)>;

/// The requests one step further: a forbid that holds no longer does, or a permit now does.
fn next(
    bundle: &Bundle,
    shapes: &Shapes,
    attempt: &Attempt,
    answer: &Verdict,
    left: &BTreeMap<EntityUid, Conditions>,
) -> Vec<Attempt> {
    let parties = attempt.question.parties();
    let refused = parties.iter().zip(&answer.parties);
    let Some((principal, party)) = refused.clone().find(|(_, party)| !party.allowed) else {
        return Vec::new();
    };
    let Some(conditions) = left.get(principal) else {
        return Vec::new();
    };
    let goals: Vec<(&Expr, bool)> = match party.matched.first() {
        Some(forbid) => {
            let bodies = conditions.get(forbid).map(|(_, bodies)| bodies);
            bodies
                .into_iter()
                .flatten()
                .map(|body| (body, false))
                .collect()
        }
        None => conditions
            .values()
            .filter(|(effect, _)| *effect == Effect::Permit)
            .flat_map(|(_, bodies)| bodies.iter().map(|body| (body, true)))
            .collect(),
    };
    let Ok(asked) = Asked::new(&attempt.question, principal, bundle.schema, shapes) else {
        return Vec::new();
    };
    let mut further = Vec::new();
    for (body, wanted) in goals {
        for way in ways(body, wanted, &asked) {
            let mut reached = vec![Attempt {
                question: attempt.question.clone(),
                changes: attempt.changes.clone(),
                steps: attempt.steps + 1,
            }];
            for atom in way {
                reached = reached
                    .iter()
                    .flat_map(|so_far| with_atom(bundle, shapes, so_far, principal, atom))
                    .take(8)
                    .collect();
            }
            further.extend(reached);
        }
    }
    further.retain(|reached| reached.question != attempt.question);
    further
}

/// A request with one condition more as it should be.
fn with_atom(
    bundle: &Bundle,
    shapes: &Shapes,
    so_far: &Attempt,
    principal: &EntityUid,
    atom: (&Expr, bool),
) -> Vec<Attempt> {
    let Ok(asked) = Asked::new(&so_far.question, principal, bundle.schema, shapes) else {
        return Vec::new();
    };
    let again = |question, changes| Attempt {
        question,
        changes,
        steps: so_far.steps,
    };
    // An earlier change may have brought it about already.
    if asked.is(atom.0, atom.1) {
        return vec![again(so_far.question.clone(), so_far.changes.clone())];
    }
    changes(atom, &asked)
        .into_iter()
        .filter_map(|change| {
            let mut question = so_far.question.clone();
            change.apply(&mut question)?;
            let mut changes = so_far.changes.clone();
            changes.push(change);
            Some(again(question, changes))
        })
        .collect()
}
