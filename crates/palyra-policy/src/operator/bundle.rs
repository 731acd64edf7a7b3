//! A bundle: a baseline and the operator's policies over it, checked as one set.
//!
//! Everything here is a value. Reading files is [`files`](super::files)' part; numbering,
//! journaling and taking into use is the daemon's.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::sync::Arc;

use cedar_policy::{Effect, Policy, PolicyId, PolicySet, Schema, ValidationMode, Validator};
use palyra_core::Digest;

use super::notes::{Mode, Notes};
use super::source::{
    NamedSource, Problem, Statement, Walk, offset_of, place_within, sentence_of, statements,
};
use crate::engine::PolicyEngine;
use crate::error::{Place, PolicyError};
use crate::policies::{MAX_LEVEL, SCHEMA_SRC, numbered, short, validator};

/// How many policies are validated at a time when there are many.
const SHARE: usize = 128;

/// A policy, where it was written, and what it says about itself.
#[derive(Debug, Clone)]
pub struct OperatorPolicy {
    /// In which file.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// Its annotations.
    pub notes: Notes,
    /// The policy itself, as it was written.
    pub text: String,
    /// Whether it is part of the baseline.
    pub baseline: bool,
    pub(crate) policy: Policy,
    /// Where it begins in the text that Cedar parsed, which is what Cedar's errors count in.
    parsed_from: usize,
}

impl OperatorPolicy {
    /// Whether it permits; otherwise it forbids.
    #[must_use]
    pub fn permits(&self) -> bool {
        match self.policy.effect() {
            Effect::Permit => true,
            Effect::Forbid => false,
        }
    }
}

/// A baseline and the operator's policies: parsed, named and validated together.
#[derive(Debug, Clone)]
pub struct Bundle {
    policies: Vec<OperatorPolicy>,
    files: BTreeMap<String, Digest>,
    baseline: String,
    digest: Digest,
    pub(crate) schema: &'static Schema,
    /// What decides.
    pub(crate) enforced: Arc<PolicySet>,
    /// That, together with what is only watched; absent when nothing is.
    pub(crate) with_log_only: Option<Arc<PolicySet>>,
}

/// One activated bundle. The number grows by one with every activation, also of a rollback.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PolicyVersion {
    /// Counted from 1.
    pub number: u64,
    /// Of the schema, the baseline and every file with its name.
    pub digest: Digest,
    /// The baseline's name.
    pub baseline: String,
    /// The operator's files, each with the digest of its text.
    pub files: BTreeMap<String, Digest>,
}

impl PolicyVersion {
    /// The version that this bundle is when it follows `last`; nothing when it is the same.
    #[must_use]
    pub fn following(last: Option<&Self>, bundle: &Bundle) -> Option<Self> {
        if last.is_some_and(|last| last.digest == bundle.digest) {
            return None;
        }
        let number = last.map_or(1, |last| last.number.saturating_add(1));
        Some(bundle.version(number))
    }
}

impl Bundle {
    /// Checks these sources as one set.
    ///
    /// # Errors
    /// Every problem of every file, in their order: nothing of the bundle can be used then.
    pub fn load(baseline: &NamedSource, operator: &[NamedSource]) -> Result<Self, Vec<Problem>> {
        let validator =
            validator().map_err(|error| vec![Problem::whole("schema", error.to_string())])?;
        let mut sources: Vec<&NamedSource> = operator.iter().collect();
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        let mut problems = twice_named(&sources);
        let mut policies = Vec::new();
        read(baseline, true, &mut policies, &mut problems);
        for source in &sources {
            read(source, false, &mut policies, &mut problems);
        }
        let mut taken = BTreeMap::new();
        policies.retain(|policy| first_of_its_name(policy, &mut taken, &mut problems));
        let all = Arc::new(set_of(policies.iter()));
        validate(&all, validator, &policies, &mut problems);
        if !problems.is_empty() {
            let order: Vec<&str> = [baseline.name.as_str()]
                .into_iter()
                .chain(sources.iter().map(|source| source.name.as_str()))
                .collect();
            let rank = |file: &str| order.iter().position(|name| *name == file);
            problems.sort_by_key(|problem| (rank(&problem.file), problem.line, problem.column));
            return Err(problems);
        }
        let decides = |policy: &&OperatorPolicy| policy.notes.mode == Mode::Enforced;
        let (enforced, with_log_only) = if policies.iter().all(|policy| decides(&policy)) {
            (all, None)
        } else {
            let enforced = set_of(policies.iter().filter(decides));
            (Arc::new(enforced), Some(all))
        };
        Ok(Self {
            enforced,
            with_log_only,
            files: sources
                .iter()
                .map(|source| (source.name.clone(), Digest::of(source.text.as_bytes())))
                .collect(),
            baseline: baseline.name.clone(),
            digest: digest(baseline, &sources),
            schema: validator.schema(),
            policies,
        })
    }

    /// Every policy: the baseline's first, then the operator's, in the order of their files.
    #[must_use]
    pub fn policies(&self) -> &[OperatorPolicy] {
        &self.policies
    }

    /// One policy by its id.
    #[must_use]
    pub fn policy(&self, id: &str) -> Option<&OperatorPolicy> {
        self.policies.iter().find(|policy| policy.notes.id == id)
    }

    /// The digest of the schema, the baseline and every file with its name.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// This bundle as the version with this number.
    #[must_use]
    pub fn version(&self, number: u64) -> PolicyVersion {
        PolicyVersion {
            number,
            digest: self.digest,
            baseline: self.baseline.clone(),
            files: self.files.clone(),
        }
    }

    /// The digest in short, as records and people name it: the [version](PolicyEngine::version) of
    /// an engine that decides with this.
    #[must_use]
    pub fn version_text(&self) -> String {
        short(&self.digest)
    }

    /// The policies that are only watched.
    pub fn watched(&self) -> impl Iterator<Item = &OperatorPolicy> {
        let policies = self.policies.iter();
        policies.filter(|policy| policy.notes.mode == Mode::LogOnly)
    }

    /// An engine that decides with this bundle.
    ///
    /// # Errors
    /// As [`PolicyEngine::of`].
    pub fn engine(&self) -> Result<PolicyEngine, PolicyError> {
        PolicyEngine::of(self)
    }
}

fn twice_named(sources: &[&NamedSource]) -> Vec<Problem> {
    let mut seen = BTreeSet::new();
    sources
        .iter()
        .filter(|source| !seen.insert(&source.name))
        .map(|source| Problem::whole(&source.name, "there are two files of this name"))
        .collect()
}

/// Parses a source; what cannot be read becomes a problem, the rest goes on.
fn read(
    source: &NamedSource,
    baseline: bool,
    policies: &mut Vec<OperatorPolicy>,
    problems: &mut Vec<Problem>,
) {
    let statements = statements(&source.text);
    let mut at_once = match parse_at_once(&source.text, &statements) {
        Ok(policies) => policies.map(Vec::into_iter),
        Err(differs) => return problems.push(Problem::whole(&source.name, differs)),
    };
    let mut walk = Walk::over(&source.text);
    for statement in statements {
        let (begin, start) = (statement.span.start, walk.to(statement.span.start));
        let text = source.text.get(statement.span).unwrap_or_default();
        let mut wrong = |offset: usize, message: String| {
            let place = place_within(start, text, offset);
            problems.push(Problem::at(&source.name, place, message));
        };
        if let Some(refused) = statement.refused {
            wrong(0, refused);
            continue;
        }
        let next = at_once.as_mut().and_then(Iterator::next);
        let parsed = match next {
            Some(policy) => Ok((policy, begin)),
            None => parse_one(text).map(|policy| (policy, 0)),
        };
        let (policy, parsed_from) = match parsed {
            Ok(parsed) => parsed,
            Err(faults) => {
                faults.into_iter().for_each(|(at, said)| wrong(at, said));
                continue;
            }
        };
        match Notes::of(&policy) {
            Ok(notes) => policies.push(OperatorPolicy {
                file: source.name.clone(),
                place: start,
                policy: policy.new_id(PolicyId::new(&notes.id)),
                notes,
                text: text.to_owned(),
                baseline,
                parsed_from,
            }),
            Err(messages) => messages.into_iter().for_each(|message| wrong(0, message)),
        }
    }
}

/// All policies of a source in their order, when every statement is one: for a large file Cedar
/// takes a fifth less than for each by itself. Nothing when anything is not as it should be, which
/// is then said about each by itself.
///
/// Should Cedar find another number of policies than were cut, one of them would be lost without a
/// word: that is an error.
fn parse_at_once(text: &str, statements: &[Statement]) -> Result<Option<Vec<Policy>>, String> {
    if statements
        .iter()
        .any(|statement| statement.refused.is_some())
    {
        return Ok(None);
    }
    let Ok(set) = text.parse::<PolicySet>() else {
        return Ok(None);
    };
    let found = set.num_of_policies() + set.num_of_templates();
    if found != statements.len() {
        return Err(format!(
            "Cedar finds {found} policies here where {} are written; put each on lines of its own",
            statements.len()
        ));
    }
    if set.num_of_templates() > 0 {
        return Ok(None);
    }
    let mut policies: Vec<(usize, &Policy)> = set.policies().map(numbered).collect();
    policies.sort_by_key(|(number, _)| *number);
    let policies = policies.into_iter().map(|(_, policy)| policy.clone());
    Ok(Some(policies.collect()))
}

/// One statement, or what is wrong with it and where.
fn parse_one(text: &str) -> Result<Policy, Vec<(usize, String)>> {
    Policy::parse(None, text).map_err(|errors| {
        if cedar_policy::Template::parse(None, text).is_ok() {
            let at = errors.iter().next().map_or(0, |error| offset_of(error));
            let message = "this is a template, which nothing here fills; \
                           name the principal and the resource instead of using a slot";
            return vec![(at, message.to_owned())];
        }
        let faults = errors.iter();
        faults
            .map(|error| (offset_of(error), sentence_of(error)))
            .collect()
    })
}

fn first_of_its_name(
    policy: &OperatorPolicy,
    taken: &mut BTreeMap<String, (String, Place)>,
    problems: &mut Vec<Problem>,
) -> bool {
    let id = &policy.notes.id;
    let here = (policy.file.clone(), policy.place);
    let Some((file, place)) = taken.get(id) else {
        taken.insert(id.clone(), here);
        return true;
    };
    let message = format!("the `@id` `{id}` is taken by the policy in {file}, {place}");
    problems.push(Problem::at(&policy.file, policy.place, message));
    false
}

fn set_of<'a>(policies: impl Iterator<Item = &'a OperatorPolicy>) -> PolicySet {
    let mut set = PolicySet::new();
    for policy in policies {
        // Ids are unique by now; a set with one missing would still only be validated.
        drop(set.add(policy.policy.clone()));
    }
    set
}

/// Validates every policy. Cedar takes about a millisecond for each and looks at each by itself, so
/// many are shared out between processors, a few at a time.
fn validate(
    set: &PolicySet,
    validator: &Validator,
    policies: &[OperatorPolicy],
    problems: &mut Vec<Problem>,
) {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let shares = processors.min(policies.len() / SHARE);
    if shares <= 1 {
        problems.extend(faults(set, validator, policies));
        return;
    }
    let share = |first| {
        let some = policies.chunks(SHARE).skip(first).step_by(shares);
        some.flat_map(|some| faults(&set_of(some.iter()), validator, some))
            .collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..shares)
            .map(|first| scope.spawn(move || share(first)))
            .collect();
        for share in running {
            // Cedar does not panic; if it did, nobody would know whether its share is right.
            let unknown = |_| vec![Problem::whole("policies", "could not be validated")];
            problems.extend(share.join().unwrap_or_else(unknown));
        }
    });
}

fn faults(set: &PolicySet, validator: &Validator, policies: &[OperatorPolicy]) -> Vec<Problem> {
    let result = validator.validate_with_level(set, ValidationMode::Strict, MAX_LEVEL);
    let by_id: BTreeMap<&str, &OperatorPolicy> = policies
        .iter()
        .map(|policy| (policy.notes.id.as_str(), policy))
        .collect();
    let mut problems = Vec::new();
    for error in result.validation_errors() {
        let id: &str = error.policy_id().as_ref();
        let Some(policy) = by_id.get(id) else {
            problems.push(Problem::whole("policies", sentence_of(error)));
            continue;
        };
        let offset = offset_of(error).saturating_sub(policy.parsed_from);
        let place = place_within(policy.place, &policy.text, offset);
        // Cedar begins with "for policy `id`, ", which the place says better.
        let said = sentence_of(error);
        let said = said
            .strip_prefix(&format!("for policy `{id}`, "))
            .unwrap_or(&said);
        problems.push(Problem::at(&policy.file, place, said));
    }
    problems.dedup();
    problems
}

fn digest(baseline: &NamedSource, sources: &[&NamedSource]) -> Digest {
    let mut parts = vec![SCHEMA_SRC.as_bytes()];
    for source in [baseline].into_iter().chain(sources.iter().copied()) {
        parts.extend([source.name.as_bytes(), source.text.as_bytes()]);
    }
    Digest::of_parts("palyra policy bundle v1", &parts)
}
