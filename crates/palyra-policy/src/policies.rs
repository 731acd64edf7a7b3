//! A policy set: parsed, named, and validated strictly before anything is decided with it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use cedar_policy::{Entities, Policy, PolicyId, PolicySet, Schema, ValidationMode, Validator};
use palyra_core::Digest;

use crate::error::{Place, PolicyError};
use crate::operator::{Bundle, OperatorPolicy};
use crate::slices::Slices;
use crate::vocabulary::Vocabulary;

/// What policies can talk about.
pub const SCHEMA_SRC: &str = include_str!("../schema/palyra.cedarschema");

/// The embedded baseline.
pub const DEFAULT_POLICY_SRC: &str = include_str!("../policies/standard.cedar");

/// How far a policy may follow attributes: `principal.user` yes, `resource.agent.user` no. It is
/// what makes a request's own entities enough to evaluate it.
pub(crate) const MAX_LEVEL: u32 = 1;

/// How long an `@id` may be.
const MAX_ID_BYTES: usize = 64;

/// What a policy tells people about itself.
#[derive(Debug)]
struct Note {
    reason: Option<String>,
    hint: Option<String>,
}

/// A validated policy set.
#[derive(Debug)]
pub(crate) struct Policies {
    pub(crate) slices: Slices,
    /// Absent when nothing is only watched.
    pub(crate) watched: Option<Watched>,
    pub(crate) schema: &'static Schema,
    /// The schema's actions as entities, with the groups they are in.
    pub(crate) actions: Entities,
    pub(crate) version: String,
    notes: HashMap<String, Note>,
}

/// What is only watched.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) ids: HashSet<String>,
    /// These together with what decides.
    pub(crate) slices: Slices,
}

impl Policies {
    pub(crate) fn load(source: &str, words: &Vocabulary) -> Result<Self, PolicyError> {
        let validator = validator()?;
        let schema = validator.schema();
        let (set, notes) = named(&parse(source)?)?;
        validate(&set, validator, source)?;
        let actions = actions(schema)?;
        Ok(Self {
            slices: Slices::new(Arc::new(set), &actions, words),
            watched: None,
            actions,
            schema,
            version: version(source),
            notes,
        })
    }

    /// The policies of a bundle, which were parsed and validated when it was loaded.
    pub(crate) fn of(bundle: &Bundle, words: &Vocabulary) -> Result<Self, PolicyError> {
        let schema = bundle.schema;
        let actions = actions(schema)?;
        let slices = |set: &Arc<PolicySet>| Slices::new(Arc::clone(set), &actions, words);
        let policies = bundle.policies().iter();
        let note = |policy: &OperatorPolicy| {
            let note = Note {
                reason: policy.notes.reason.clone(),
                hint: policy.notes.hint.clone(),
            };
            (policy.notes.id.clone(), note)
        };
        Ok(Self {
            slices: slices(&bundle.enforced),
            watched: bundle.with_log_only.as_ref().map(|set| Watched {
                ids: bundle.watched().map(|it| it.notes.id.clone()).collect(),
                slices: slices(set),
            }),
            notes: policies.map(note).collect(),
            version: bundle.version_text(),
            actions,
            schema,
        })
    }

    /// What a policy says to a person.
    pub(crate) fn reason(&self, id: &str) -> Option<&str> {
        self.notes.get(id)?.reason.as_deref()
    }

    /// What a policy says can be done.
    pub(crate) fn hint(&self, id: &str) -> Option<&str> {
        self.notes.get(id)?.hint.as_deref()
    }
}

/// The schema's actions as entities.
fn actions(schema: &Schema) -> Result<Entities, PolicyError> {
    schema
        .action_entities()
        .map_err(|error| PolicyError::Schema(error.to_string()))
}

/// The schema is embedded, so it is read once.
pub(crate) fn validator() -> Result<&'static Validator, PolicyError> {
    static VALIDATOR: LazyLock<Result<Validator, PolicyError>> = LazyLock::new(|| {
        let (schema, _warnings) = Schema::from_cedarschema_str(SCHEMA_SRC)
            .map_err(|error| PolicyError::Schema(error.to_string()))?;
        Ok(Validator::new(schema))
    });
    VALIDATOR.as_ref().map_err(Clone::clone)
}

fn parse(source: &str) -> Result<PolicySet, PolicyError> {
    source.parse::<PolicySet>().map_err(|errors| {
        let others = errors.iter().count().saturating_sub(1);
        match errors.iter().next() {
            Some(first) => PolicyError::Syntax {
                place: Place::of(first, source),
                message: first.to_string(),
                others,
            },
            None => PolicyError::Schema(errors.to_string()),
        }
    })
}

/// The same policies under the names that their authors gave them.
fn named(parsed: &PolicySet) -> Result<(PolicySet, HashMap<String, Note>), PolicyError> {
    if parsed.num_of_templates() > 0 {
        return Err(PolicyError::Template);
    }
    let mut set = PolicySet::new();
    let mut notes = HashMap::new();
    let mut policies: Vec<(usize, &Policy)> = parsed.policies().map(numbered).collect();
    policies.sort_by_key(|(number, _)| *number);
    for (number, policy) in policies {
        let wrong = |problem: String| PolicyError::Annotation { number, problem };
        let id = policy
            .annotation("id")
            .ok_or_else(|| wrong("it has no `@id`".to_owned()))?;
        if !is_plain(id) {
            return Err(wrong(format!(
                "its `@id` is not 1 to {MAX_ID_BYTES} of a-z, 0-9, `_`, `-` and `.`"
            )));
        }
        let note = Note {
            reason: sentence(policy, "reason").map_err(wrong)?,
            hint: sentence(policy, "hint").map_err(wrong)?,
        };
        if notes.insert(id.to_owned(), note).is_some() {
            return Err(wrong(format!("its `@id` `{id}` is taken")));
        }
        set.add(policy.new_id(PolicyId::new(id)))
            .map_err(|error| wrong(error.to_string()))?;
    }
    Ok((set, notes))
}

/// Cedar calls parsed policies `policy0`, `policy1`, … in the order of the source.
pub(crate) fn numbered(policy: &Policy) -> (usize, &Policy) {
    let id: &str = policy.id().as_ref();
    let number = id.strip_prefix("policy").and_then(|text| text.parse().ok());
    (number.map_or(0, |number: usize| number + 1), policy)
}

/// Ids end up in records, logs and terminals.
fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.')
    };
    (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(plain)
}

/// A sentence for people, which must not be able to repaint their terminal.
fn sentence(policy: &Policy, name: &str) -> Result<Option<String>, String> {
    match policy.annotation(name) {
        Some(text) if text.chars().any(char::is_control) => {
            Err(format!("its `@{name}` holds a control character"))
        }
        Some(text) => Ok((!text.is_empty()).then(|| text.to_owned())),
        None => Ok(None),
    }
}

fn validate(set: &PolicySet, validator: &Validator, source: &str) -> Result<(), PolicyError> {
    let result = validator.validate_with_level(set, ValidationMode::Strict, MAX_LEVEL);
    let mut faults: Vec<_> = result
        .validation_errors()
        .map(|error| (Place::of(error, source), error.to_string()))
        .collect();
    faults.sort_by_key(|(place, _)| (place.line, place.column));
    let others = faults.len().saturating_sub(1);
    match faults.into_iter().next() {
        None => Ok(()),
        Some((place, message)) => Err(PolicyError::Invalid {
            place,
            message,
            others,
        }),
    }
}

/// Twelve hex digits that change with every byte of the schema or the policies.
fn version(source: &str) -> String {
    let parts = [SCHEMA_SRC.as_bytes(), source.as_bytes()];
    short(&Digest::of_parts("palyra policy v1", &parts))
}

/// How records and people name a policy set.
pub(crate) fn short(digest: &Digest) -> String {
    digest
        .as_bytes()
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Baseline;
    use crate::request::Action;

    fn baselines() -> impl Iterator<Item = (Baseline, Policies)> {
        let words = Vocabulary::new().unwrap();
        let load = move |baseline: Baseline| Policies::load(baseline.source(), &words).unwrap();
        Baseline::ALL
            .into_iter()
            .map(move |baseline| (baseline, load(baseline)))
    }

    #[test]
    fn the_baselines_pass_without_warnings() {
        for (baseline, policies) in baselines() {
            let result = validator()
                .unwrap()
                .validate(policies.slices.whole(), ValidationMode::Strict);
            assert!(
                result.validation_passed_without_warnings(),
                "{baseline}: {result}"
            );
        }
    }

    /// An id that two baselines have means the same in both.
    #[test]
    fn the_same_id_is_the_same_policy() {
        let mut seen: HashMap<String, String> = HashMap::new();
        for (baseline, policies) in baselines() {
            for policy in policies.slices.whole().policies() {
                let id: &str = policy.id().as_ref();
                let text = policy.to_string();
                let first = seen.entry(id.to_owned()).or_insert_with(|| text.clone());
                assert_eq!(*first, text, "{id} of {baseline}");
            }
        }
    }

    #[test]
    fn the_schema_passes_without_warnings() {
        let (_, warnings) = Schema::from_cedarschema_str(SCHEMA_SRC).unwrap();
        assert_eq!(warnings.count(), 0);
    }

    #[test]
    fn every_policy_of_the_baselines_speaks_to_people() {
        for (_, policies) in baselines() {
            for policy in policies.slices.whole().policies() {
                let id: &str = policy.id().as_ref();
                let reason = policies.reason(id).unwrap();
                assert!(!reason.ends_with('.'), "{id}");
                assert!(reason.starts_with(char::is_lowercase), "{id}");
                if policy.effect() == cedar_policy::Effect::Forbid {
                    assert!(policies.hint(id).is_some(), "{id}");
                }
            }
        }
    }

    /// The schema and the program know the same actions.
    #[test]
    fn every_action_is_declared_and_every_declared_action_is_ours() {
        let schema = validator().unwrap().schema();
        let groups: Vec<String> = schema.action_groups().map(ToString::to_string).collect();
        let mut declared: Vec<String> = schema
            .actions()
            .map(ToString::to_string)
            .filter(|action| !groups.contains(action))
            .collect();
        let mut ours: Vec<String> = Action::ALL
            .iter()
            .map(|action| format!("Palyra::Action::\"{action}\""))
            .collect();
        declared.sort();
        ours.sort();
        assert_eq!(declared, ours);
    }
}
