//! `simulate` and `diff`: what a draft answers, and which answers it changes.
//!
//! `diff` asks both bundles about the requests it is given and about requests that it makes up
//! from the policies that differ: some that each of them speaks about, with and without its
//! condition, and what partial evaluation says would have to change for them to be allowed. A flip
//! that is found is real. That none is found proves nothing, so the answer also says whether the
//! solver has looked.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::bundle::Bundle;
#[cfg(feature = "solver")]
use super::bundle::OperatorPolicy;
use super::explain::{Explanation, explain};
use super::meet::{self, meeting};
use super::notes::Mode;
use super::question::{Outcome, Question, outcome_of, verdict};
use super::shape::Shapes;
use super::source::printable;

/// How many requests are made up.
const MAX_MADE_UP: usize = 500;
/// How many of them from one policy, before their remedies.
const MAX_OF_ONE: usize = 24;

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

impl std::fmt::Display for Flip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = |name: &str| {
            let text = self.details.get(name).and_then(Value::as_str);
            printable(text.unwrap_or_default().trim_start_matches("Palyra::"))
        };
        let (who, what, to_what) = (part("principal"), part("action"), part("resource"));
        write!(
            f,
            "{who} {what} {to_what}: {} before, {} now",
            self.before, self.after
        )?;
        match self.because.as_slice() {
            [] => Ok(()),
            ids => write!(f, ", because of `{}`", ids.join("`, `")),
        }
    }
}

impl Flip {
    /// Whether the new answer lets more happen.
    #[must_use]
    pub const fn widens(&self) -> bool {
        self.after.widens(self.before)
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
            Self::AllowsMore { counterexamples } => {
                write!(f, "something new is allowed, such as")?;
                counterexamples
                    .iter()
                    .try_for_each(|it| write!(f, "\n{it}"))
            }
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

/// Requests that meet the policies which differ: the plainest ones in their scope, those for which
/// their condition holds, those for which it holds in one bundle only, and for each of these what
/// would have to change for it to be allowed.
fn made_up(old: &Bundle, new: &Bundle, found: &Diff) -> Vec<(String, Question)> {
    let Ok(shapes) = Shapes::load() else {
        return Vec::new();
    };
    let differs: BTreeSet<&String> = [&found.added, &found.removed, &found.changed]
        .into_iter()
        .flatten()
        .collect();
    let mut questions = Vec::new();
    for (bundle, other) in [(new, old), (old, new)] {
        let policies = bundle.policies().iter();
        for policy in policies.filter(|policy| differs.contains(&policy.notes.id)) {
            let name = format!("made up from `{}`", policy.notes.id);
            let mut of_it = Vec::new();
            for plain in meeting(policy, bundle, shapes) {
                let met = meet::holding(policy, &plain, bundle.schema, shapes);
                let counterpart = other.policy(&policy.notes.id);
                let apart = counterpart.into_iter().flat_map(|other| {
                    let met = met.iter().chain([&plain]);
                    met.flat_map(|it| meet::apart(policy, other, it, bundle.schema, shapes))
                });
                let apart: Vec<Question> = apart.collect();
                of_it.extend(apart.into_iter().chain(met).chain([plain]));
                if of_it.len() >= MAX_OF_ONE {
                    break;
                }
            }
            of_it.truncate(MAX_OF_ONE);
            for question in of_it {
                if questions.len() >= MAX_MADE_UP {
                    return questions;
                }
                for explaining in [new, old] {
                    let remedies = explain(explaining, &question).map(|it| it.remedies);
                    let remedies = remedies.into_iter().flatten();
                    questions.extend(remedies.map(|it| (name.clone(), it.applied().clone())));
                }
                questions.push((name.clone(), question));
            }
        }
    }
    questions
}
