//! `simulate` and `diff`: what a draft answers, and which answers it changes.
//!
//! `diff` asks both bundles about the requests it is given and about requests that it makes up
//! from the policies that differ: one that meets each of them, and what partial evaluation says
//! would have to change for it to be allowed. A flip that is found is real. That none is found
//! proves nothing, so the answer also says whether the solver has looked.

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::{EntityUid, PrincipalConstraint, ResourceConstraint};
use serde_json::{Map, Value, json};

use super::bundle::{Bundle, OperatorPolicy};
use super::explain::{Explanation, explain};
use super::notes::Mode;
use super::question::{EntityText, Outcome, Question, RequestText, outcome_of, verdict};
use super::shape::Shapes;

/// How many requests are made up.
const MAX_MADE_UP: usize = 500;

/// What a draft answers to a request, beside what is in force.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Simulation {
    /// What comes of it now.
    pub before: Outcome,
    /// What would come of it under the draft, and why.
    pub draft: Explanation,
}

impl Simulation {
    /// Whether the draft answers otherwise.
    #[must_use]
    pub fn flips(&self) -> bool {
        self.before != self.draft.outcome
    }
}

/// Asks a draft about a request. Nothing is changed.
///
/// # Errors
/// The request does not fit the schema, or evaluation failed.
pub fn simulate(
    active: &Bundle,
    draft: &Bundle,
    question: &Question,
) -> Result<Simulation, String> {
    Ok(Simulation {
        before: outcome_of(&active.enforced, active.schema, question)?,
        draft: explain(draft, question)?,
    })
}

/// A request that two bundles answer differently.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Flip {
    /// What the request is known by: a call's id, or the policy it was made up from.
    pub request: String,
    /// Who, what, to what, and the facts.
    pub details: Value,
    /// The old answer.
    pub before: Outcome,
    /// The new answer.
    pub after: Outcome,
    /// The policies behind the new answer.
    pub because: Vec<String>,
}

impl Flip {
    /// Whether the new answer lets more happen.
    #[must_use]
    pub const fn widens(&self) -> bool {
        matches!(
            (self.before, self.after),
            (Outcome::Deny, Outcome::Ask | Outcome::Allow) | (Outcome::Ask, Outcome::Allow)
        )
    }
}

/// Whether a solver has looked at every request there could be.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(tag = "analysis", rename_all = "snake_case")]
pub enum Analysis {
    /// It has, and the new policies allow nothing that the old ones did not.
    NothingNew {
        /// How many kinds of requests (principal, action, resource) the differences touch.
        kinds: usize,
    },
    /// It has, and found requests that only the new policies allow. Each was replayed.
    AllowsMore {
        /// One for each kind of request of which something new is allowed.
        counterexamples: Vec<Flip>,
    },
    /// Nobody has. The flips that were found are all that is known.
    NotAnalysed {
        /// Why not.
        why: String,
    },
}

impl std::fmt::Display for Analysis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NothingNew { kinds } => write!(
                f,
                "proved: nothing new is allowed ({kinds} kinds of requests differ)"
            ),
            Self::AllowsMore { counterexamples } => write!(
                f,
                "something new is allowed, in {} kinds of requests",
                counterexamples.len()
            ),
            Self::NotAnalysed { why } => write!(f, "not analysed: {why}"),
        }
    }
}

/// How two bundles differ.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Diff {
    /// Policies that only the new one has.
    pub added: Vec<String>,
    /// Policies that only the old one has.
    pub removed: Vec<String>,
    /// Policies that both have, with another text.
    pub changed: Vec<String>,
    /// How many requests were asked about.
    pub asked: usize,
    /// Which are answered differently.
    pub flips: Vec<Flip>,
    /// Which given requests could not be answered, and why. They are never guessed.
    pub unanswered: Vec<(String, String)>,
    /// Whether every possible request was looked at.
    pub analysis: Analysis,
}

/// Compares two bundles, over these requests and over some that are made up.
#[must_use]
pub fn diff(old: &Bundle, new: &Bundle, recorded: &[(String, Question)]) -> Diff {
    let (before, after) = (texts(old), texts(new));
    let only = |a: &Texts<'_>, b: &Texts<'_>| -> Vec<String> {
        let ids = a.keys().filter(|id| !b.contains_key(*id));
        ids.map(|id| (*id).to_owned()).collect()
    };
    let changed = before
        .iter()
        .filter(|(id, text)| after.get(*id).is_some_and(|other| other != *text))
        .map(|(id, _)| (*id).to_owned())
        .collect();
    let mut found = Diff {
        added: only(&after, &before),
        removed: only(&before, &after),
        changed,
        asked: 0,
        flips: Vec::new(),
        unanswered: Vec::new(),
        analysis: Analysis::NotAnalysed {
            why: "no solver has looked at this; only the requests above were asked".to_owned(),
        },
    };
    for (name, question) in recorded {
        found.ask(old, new, name, question, true);
    }
    for (name, question) in made_up(old, new, &found) {
        found.ask(old, new, &name, &question, false);
    }
    found
}

impl Diff {
    /// Whether something that was found lets more happen.
    #[must_use]
    pub fn widens(&self) -> bool {
        let proved = match &self.analysis {
            Analysis::AllowsMore { .. } => true,
            Analysis::NothingNew { .. } | Analysis::NotAnalysed { .. } => false,
        };
        proved || self.flips.iter().any(Flip::widens)
    }

    fn ask(&mut self, old: &Bundle, new: &Bundle, name: &str, question: &Question, given: bool) {
        match flip(old, new, name, question) {
            Ok(flip) => {
                self.asked += 1;
                let known = |flip: &Flip| self.flips.iter().any(|it| it.details == flip.details);
                let fresh = flip.filter(|flip| !known(flip));
                self.flips.extend(fresh);
            }
            Err(why) if given => self.unanswered.push((name.to_owned(), why)),
            // What was made up and does not fit the schema could not be asked by anyone.
            Err(_) => {}
        }
    }
}

type Texts<'a> = BTreeMap<&'a str, (&'a str, Mode)>;

/// The policies that differ, each from the bundle it is in.
#[cfg(feature = "solver")]
pub(crate) fn differing<'a>(
    old: &'a Bundle,
    new: &'a Bundle,
) -> impl Iterator<Item = &'a OperatorPolicy> {
    let (before, after) = (texts(old), texts(new));
    let policies = old.policies().iter().chain(new.policies());
    policies.filter(move |policy| {
        let id = policy.notes.id.as_str();
        before.get(id) != after.get(id)
    })
}

fn texts(bundle: &Bundle) -> Texts<'_> {
    let policies = bundle.policies().iter();
    policies
        .map(|policy| {
            let text = policy.text.as_str();
            (policy.notes.id.as_str(), (text, policy.notes.mode))
        })
        .collect()
}

fn flip(
    old: &Bundle,
    new: &Bundle,
    name: &str,
    question: &Question,
) -> Result<Option<Flip>, String> {
    let before = outcome_of(&old.enforced, old.schema, question)?;
    let after = outcome_of(&new.enforced, new.schema, question)?;
    if before == after {
        return Ok(None);
    }
    let mut because = verdict(&new.enforced, new.schema, question)?.matched();
    if let (Outcome::Ask, Some(asking)) = (after, question.asking(new.schema)) {
        because = verdict(&new.enforced, new.schema, &asking)?.matched();
    }
    Ok(Some(Flip {
        request: name.to_owned(),
        details: question.details(),
        before,
        after,
        because,
    }))
}

/// Requests that meet the policies which differ, and their remedies under either bundle.
fn made_up(old: &Bundle, new: &Bundle, found: &Diff) -> Vec<(String, Question)> {
    let Ok(shapes) = Shapes::load() else {
        return Vec::new();
    };
    let differs: BTreeSet<&String> = [&found.added, &found.removed, &found.changed]
        .into_iter()
        .flatten()
        .collect();
    let mut questions = Vec::new();
    for bundle in [new, old] {
        let policies = bundle.policies().iter();
        for policy in policies.filter(|policy| differs.contains(&policy.notes.id)) {
            for question in meeting(policy, bundle, shapes) {
                if questions.len() >= MAX_MADE_UP {
                    return questions;
                }
                let name = format!("made up from `{}`", policy.notes.id);
                for explaining in [new, old] {
                    let remedies = explain(explaining, &question).map(|it| it.remedies);
                    let remedies = remedies.into_iter().flatten();
                    questions.extend(remedies.map(|it| (name.clone(), it.applied().clone())));
                }
                questions.push((name, question));
            }
        }
    }
    questions
}

/// The plainest requests in the scope of a policy, with each truth of the resource's own yes-or-no
/// attributes.
fn meeting(policy: &OperatorPolicy, bundle: &Bundle, shapes: &Shapes) -> Vec<Question> {
    let mut questions = Vec::new();
    let principal = policy.policy.principal_constraint();
    let resource = policy.policy.resource_constraint();
    for env in policy.policy.get_valid_request_envs(bundle.schema) {
        let (who, which) = (env.principal().to_string(), env.resource().to_string());
        let who = Cast::of(&who, principal_end(&principal));
        let which = Cast::of(&which, resource_end(&resource));
        let flags = shapes.entities.get(&which.type_name);
        let flags = flags.into_iter().flatten();
        let flags = flags.filter(|(_, field)| field.shape == super::shape::Shape::Bool);
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
