//! One thing that could be different about a request, in words and as an edit.

use cedar_policy::EntityUid;
use serde_json::{Map, Value};

use super::question::Question;
use super::shape::entity_of;
use super::terms::Fact;

/// One thing that could be different.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// A fact has this value.
    Set(Fact, Value),
    /// A fact is absent.
    Remove(Fact),
    /// An entity is in a group.
    Join(EntityUid, EntityUid),
    /// An entity is not in a group.
    Leave(EntityUid, EntityUid),
}

impl Change {
    /// The same request with this change.
    pub(crate) fn apply(&self, question: &mut Question) -> Option<()> {
        match self {
            Self::Set(fact, value) => {
                let (record, name) = holder(question, fact)?;
                record.insert(name, value.clone());
            }
            Self::Remove(fact) => {
                let (record, name) = holder(question, fact)?;
                record.remove(&name)?;
            }
            Self::Join(member, group) => {
                let known = question.entities.entry(member.clone()).or_default();
                known.parents.insert(group.clone());
                question.entities.entry(group.clone()).or_default();
            }
            Self::Leave(member, group) => {
                let known = question.entities.get_mut(member)?;
                known.parents.remove(group).then_some(())?;
            }
        }
        Some(())
    }

    /// How far away this is: a person's yes is the nearest, another place or time the furthest.
    pub(crate) fn cost(&self) -> u32 {
        match self {
            Self::Set(fact, _) | Self::Remove(fact) => match fact {
                Fact::Context(path) => match path.first().map(String::as_str) {
                    Some("grant") => 1,
                    Some("device" | "channel" | "now" | "digest" | "run") => 20,
                    Some(_) | None => 4,
                },
                Fact::Entity(..) => 6,
            },
            Self::Join(..) | Self::Leave(..) => 10,
        }
    }

    /// What would be different, after "it would be allowed with".
    fn in_words(&self) -> String {
        match self {
            Self::Set(fact, value) => set_in_words(fact, value),
            Self::Remove(fact) => format!("no {}", name(fact)),
            Self::Join(member, group) => format!("{} being in {}", thing(member), thing(group)),
            Self::Leave(member, group) => {
                format!("{} not being in {}", thing(member), thing(group))
            }
        }
    }
}

/// Changes as sentences. What is said about a record that was absent before is one sentence.
pub(crate) fn sentences(changes: &[Change], before: &Question) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    let granted = !before.context.contains_key("grant");
    for change in changes {
        let about_grant = match change {
            Change::Set(Fact::Context(path), _) => path.first().is_some_and(|it| it == "grant"),
            Change::Set(Fact::Entity(..), _)
            | Change::Remove(_)
            | Change::Join(..)
            | Change::Leave(..) => false,
        };
        let sentence = if about_grant && granted {
            grant_in_words(changes)
        } else {
            change.in_words()
        };
        // The last word about a fact is the one that was tried.
        if !said.contains(&sentence) {
            said.push(sentence);
        }
    }
    said
}

fn grant_in_words(changes: &[Change]) -> String {
    let people = changes.iter().rev().find_map(|change| match change {
        Change::Set(Fact::Context(path), value) if path.ends_with(&["people".to_owned()]) => {
            value.as_i64()
        }
        Change::Set(..) | Change::Remove(_) | Change::Join(..) | Change::Leave(..) => None,
    });
    match people {
        Some(people) if people > 1 => format!("a grant for this call, by {people} people"),
        Some(_) | None => "a grant for this call".to_owned(),
    }
}

fn set_in_words(fact: &Fact, value: &Value) -> String {
    let name = name(fact);
    match (fact, value) {
        (Fact::Entity(uid, path), Value::Bool(value)) => {
            let not = if *value { "" } else { "not " };
            format!("{} {not}being {}", thing(uid), path.join("."))
        }
        (Fact::Context(_), Value::Bool(true)) => format!("{name} being true"),
        (Fact::Context(_), Value::Bool(false)) => format!("{name} being false"),
        (_, value) => format!("{name} being {}", shown(value)),
    }
}

fn name(fact: &Fact) -> String {
    match fact {
        Fact::Context(path) => format!("`{}`", path.join(".")),
        Fact::Entity(uid, path) => format!("`{}` of {}", path.join("."), thing(uid)),
    }
}

fn thing(uid: &EntityUid) -> String {
    let type_name = uid.type_name().basename().to_lowercase();
    format!("the {type_name} `{}`", uid.id().unescaped())
}

pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Array(items) if items.is_empty() => "empty".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            items.join(" and ")
        }
        Value::Object(table) => match (entity_of(value), table.get("__extn")) {
            (Some((type_name, id)), _) => format!("`{type_name}::\"{id}\"`"),
            (None, Some(extension)) => {
                let argument = extension.get("arg").and_then(Value::as_str);
                format!("`{}`", argument.unwrap_or_default())
            }
            (None, None) => format!("`{value}`"),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => format!("`{value}`"),
    }
}

/// The record that holds a fact, and the fact's name in it.
fn holder<'a>(
    question: &'a mut Question,
    fact: &Fact,
) -> Option<(&'a mut Map<String, Value>, String)> {
    let (last, inner) = fact.path().split_last()?;
    let mut record = match fact {
        Fact::Context(_) => &mut question.context,
        Fact::Entity(uid, _) => &mut question.entities.get_mut(uid)?.attrs,
    };
    for name in inner {
        record = record.get_mut(name)?.as_object_mut()?;
    }
    Some((record, last.clone()))
}
