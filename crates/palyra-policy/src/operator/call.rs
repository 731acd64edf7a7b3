//! `explain` of a recorded call: every question that was asked, why it was answered so, and what
//! would have to change.

use std::collections::BTreeMap;

use palyra_core::{Denial, Facts};

use super::bundle::Bundle;
use super::change::{Change, sentences};
use super::explain::{Because, Remedy, because, grounds, is_within, remedies};
use super::question::{Outcome, PartyVerdict, Question, Verdict, decide};
use super::replay::Replay;
use super::shape::Shapes;
use crate::decision::PolicyDecision;
use crate::error::broken;

/// How many changed calls are looked at. Each is every question of the call.
const MAX_TRIES: usize = 12;
/// How many remedies of a call are named.
const MAX_REMEDIES: usize = 3;

/// Why a call is answered as it is.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CallExplanation {
    /// What comes of it: it runs, a person is asked, or neither.
    pub outcome: Outcome,
    /// The digest of the policies that say so, in short.
    pub version: String,
    /// What was asked, in order. The strictest answer counted.
    pub questions: Vec<AskedQuestion>,
    /// What would have to change for the whole call to run, the nearest first. Empty when it runs,
    /// and when no change of the facts is known that would do.
    pub remedies: Vec<CallRemedy>,
    /// Policies that are only watched and would have made it another answer.
    pub log_only: Vec<String>,
}

/// One question about a call, and its answer.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct AskedQuestion {
    /// About whom: an agent, or a person.
    pub principal: String,
    /// What they want to do. What ends in `.ask` is whether a person may be asked.
    pub action: String,
    /// To what.
    pub resource: String,
    /// Whether they may.
    pub allowed: bool,
    /// Why. A no without any means that nothing permits it.
    pub because: Vec<Because>,
    /// The facts that the policies behind the answer looked at, each with its value.
    pub facts: BTreeMap<String, String>,
    /// What would have to change for this one to be allowed, the nearest first.
    pub remedies: Vec<Remedy>,
    /// Why facts and remedies are missing, when they could not be found out.
    pub unexplained: Option<String>,
}

/// Something that would have to be different for a call to run.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CallRemedy {
    /// All of these together, each completing "it would run with …".
    pub sentences: Vec<String>,
    #[serde(skip)]
    after: Vec<Question>,
}

impl CallRemedy {
    /// Every question whether the call may run, with the change made.
    #[must_use]
    pub fn applied(&self) -> &[Question] {
        &self.after
    }
}

/// Explains what this bundle says to a recorded call.
///
/// # Errors
/// Policy could not tell, as in the daemon.
pub fn explain_call(bundle: &Bundle, facts: &Facts) -> Result<CallExplanation, Denial> {
    let mut replay = Replay::of(bundle).map_err(broken)?;
    let found = replay.decide(facts)?;
    let (written, to_run) = replay.questions(facts, &found.asked)?;
    let questions = found.asked.iter().zip(&written);
    let outcome = Outcome::from(&found.answer);
    Ok(CallExplanation {
        outcome,
        version: found.version,
        questions: questions
            .map(|(asked, written)| explained(bundle, asked, written))
            .collect(),
        remedies: match outcome {
            Outcome::Allow => Vec::new(),
            Outcome::Ask | Outcome::Deny => of_the_whole(bundle, &to_run),
        },
        log_only: found.log_only,
    })
}

fn explained(bundle: &Bundle, asked: &PolicyDecision, written: &Question) -> AskedQuestion {
    let party = PartyVerdict {
        principal: asked.principal.to_string(),
        allowed: asked.allowed,
        matched: asked.matched.clone(),
    };
    let verdict = Verdict {
        parties: vec![party.clone()],
    };
    let party = because(bundle, party);
    let grounds = Shapes::load()
        .map_err(|error| error.to_string())
        .and_then(|shapes| grounds(bundle, shapes, written, &verdict));
    let (facts, remedies, unexplained) = match grounds {
        Ok((facts, remedies)) => (facts, remedies, None),
        Err(why) => (BTreeMap::new(), Vec::new(), Some(why)),
    };
    AskedQuestion {
        principal: party.principal,
        action: asked.action.to_string(),
        resource: asked.resource.to_string(),
        allowed: party.allowed,
        because: party.because,
        facts,
        remedies,
        unexplained,
    }
}

/// What helps the first refused question is tried on all of them; what still refuses is helped in
/// its turn. Every change that is named lets every question be allowed.
fn of_the_whole(bundle: &Bundle, to_run: &[Question]) -> Vec<CallRemedy> {
    let Ok(shapes) = Shapes::load() else {
        return Vec::new();
    };
    let cost = |changes: &Vec<Change>| changes.iter().map(Change::cost).sum::<u32>();
    let mut open: Vec<Vec<Change>> = vec![Vec::new()];
    let mut found: Vec<CallRemedy> = Vec::new();
    for _ in 0..MAX_TRIES {
        let nearest = open.iter().enumerate();
        let nearest = nearest.min_by_key(|(_, changes)| cost(changes));
        let Some((nearest, _)) = nearest.filter(|_| found.len() < MAX_REMEDIES) else {
            break;
        };
        let changes = open.swap_remove(nearest);
        let after: Vec<Question> = to_run.iter().map(|it| changed(it, &changes)).collect();
        let may = |question: &&Question| decide(bundle, question).is_ok_and(|it| it.allowed());
        match after.iter().find(|question| !may(question)) {
            None => {
                let before = to_run.first().into_iter();
                let sentences: Vec<String> =
                    before.flat_map(|it| sentences(&changes, it)).collect();
                if !found.iter().any(|it| is_within(&it.sentences, &sentences)) {
                    found.push(CallRemedy { sentences, after });
                }
            }
            Some(refused) => {
                let further = remedies(bundle, shapes, refused).into_iter().flatten();
                open.extend(further.map(|it| [changes.as_slice(), &it.changes].concat()));
            }
        }
    }
    found
}

/// What is about somebody or something else changes nothing here.
fn changed(question: &Question, changes: &[Change]) -> Question {
    let mut after = question.clone();
    for change in changes {
        let _ = change.apply(&mut after);
    }
    after
}
