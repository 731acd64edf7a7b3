//! A request as people write and change it, and its answer.
//!
//! Inside the daemon facts reach Cedar natively; here they come from files and records, so they
//! are JSON, completed from the schema and validated against it before they are evaluated.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, EntityUid, PolicySet, Request, Schema,
};
use palyra_core::corridor::PolicyAnswer;
use palyra_core::host::NotAHost;
use palyra_core::{EgressHost, ProgramFacts};
use serde_json::{Map, Value, json};

use super::bundle::Bundle;
use super::shape::{self, Shapes, entity_of, parse_uid};
use crate::places;
use crate::request::{Action, Kind};
use crate::vocabulary::Vocabulary;

/// A request as it is written in a file.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestText {
    /// Who, such as `Agent::"claude"`.
    pub principal: String,
    /// What, such as `tool.execute`.
    pub action: String,
    /// To what, such as `Tool::"palyra.fs.read"`.
    pub resource: String,
    /// What is true of this request. What is left out and required is the plainest there is.
    #[serde(default)]
    pub context: Map<String, Value>,
    /// What is known about those that the request names.
    #[serde(default, rename = "entity")]
    pub entities: Vec<EntityText>,
}

/// An entity as it is written in a file.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntityText {
    /// Such as `Tool::"palyra.fs.read"`.
    pub uid: String,
    /// Its attributes. What is left out and required is the plainest there is.
    #[serde(default)]
    pub attrs: Map<String, Value>,
    /// What it is in.
    #[serde(default)]
    pub parents: Vec<String>,
}

/// What is known about one entity.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Known {
    pub(crate) attrs: Map<String, Value>,
    pub(crate) parents: BTreeSet<EntityUid>,
}

/// A complete request: who, what, to what, and everything that is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub(crate) principal: EntityUid,
    pub(crate) action: EntityUid,
    pub(crate) resource: EntityUid,
    pub(crate) context: Map<String, Value>,
    pub(crate) entities: BTreeMap<EntityUid, Known>,
    /// Whether it is about an agent without its person.
    pub(crate) alone: bool,
}

/// The answer about one principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartyVerdict {
    /// About whom.
    pub principal: String,
    /// Whether they may.
    pub allowed: bool,
    /// The ids of the policies that made it so. A no without any means that nothing permits it.
    pub matched: Vec<String>,
}

/// The answer about everyone who must be allowed: an agent, and the person it acts for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Each answer, the agent's first.
    pub parties: Vec<PartyVerdict>,
}

impl Verdict {
    /// Whether everyone may.
    #[must_use]
    pub fn allowed(&self) -> bool {
        !self.parties.is_empty() && self.parties.iter().all(|party| party.allowed)
    }

    /// The ids behind the answer: of a yes all of them, of a no those of the refusals.
    #[must_use]
    pub fn matched(&self) -> Vec<String> {
        let allowed = self.allowed();
        let mut ids: Vec<String> = self
            .parties
            .iter()
            .filter(|party| party.allowed == allowed)
            .flat_map(|party| party.matched.iter().cloned())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

/// What comes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It may be done.
    Allow,
    /// A person may be asked.
    Ask,
    /// Neither.
    Deny,
}

impl Outcome {
    /// Whether more may happen than with `before`.
    #[must_use]
    pub const fn widens(self, before: Self) -> bool {
        matches!(
            (before, self),
            (Self::Deny, Self::Ask | Self::Allow) | (Self::Ask, Self::Allow)
        )
    }
}

impl From<&PolicyAnswer> for Outcome {
    fn from(answer: &PolicyAnswer) -> Self {
        match answer {
            PolicyAnswer::Run { .. } => Self::Allow,
            PolicyAnswer::Ask { .. } => Self::Ask,
            PolicyAnswer::Deny { .. } => Self::Deny,
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        })
    }
}

impl Question {
    /// Completes a request from the schema: this machine's socket, and the plainest facts.
    ///
    /// # Errors
    /// A sentence for the person who wrote it.
    pub fn read(text: &RequestText) -> Result<Self, String> {
        let shapes = Shapes::load().map_err(|error| error.to_string())?;
        Self::complete(text, &[], shapes)
    }

    pub(crate) fn complete(
        text: &RequestText,
        shared: &[EntityText],
        shapes: &Shapes,
    ) -> Result<Self, String> {
        let principal = parse_uid(&text.principal)?;
        let resource = parse_uid(&text.resource)?;
        let (action, fields) = action_of(&text.action, shapes)?;
        let mut entities = well_known(shapes);
        for entity in shared.iter().chain(&text.entities) {
            let uid = parse_uid(&entity.uid)?;
            let type_name = uid.type_name().to_string();
            let declared = shapes
                .entities
                .get(&type_name)
                .ok_or_else(|| format!("there is no entity type `{type_name}`"))?;
            let mut attrs = shape::explicit(&entity.attrs, declared, &entity.uid)?;
            shape::fill(&mut attrs, declared, &stand_in(&[]));
            let parents = entity.parents.iter().map(|parent| parse_uid(parent));
            let mut parents = parents.collect::<Result<BTreeSet<_>, _>>()?;
            parents.extend(place(&uid)?);
            entities.insert(uid, Known { attrs, parents });
        }
        let mut context = shape::explicit(&text.context, fields, "context")?;
        let person = person_behind(&entities, &principal);
        let named: Vec<&EntityUid> = [Some(&principal), Some(&resource), person.as_ref()]
            .into_iter()
            .flatten()
            .collect();
        shape::fill(&mut context, fields, &stand_in(&named));
        let mut question = Self {
            principal,
            action,
            resource,
            context,
            entities,
            alone: false,
        };
        question.know_the_rest(shapes)?;
        Ok(question)
    }

    /// A request as Cedar got it: about this principal, and nobody behind it.
    ///
    /// # Errors
    /// It is a partial one, or cannot be written down.
    pub fn of_request(request: &Request, entities: &Entities) -> Result<Self, String> {
        let whole = |uid: Option<&EntityUid>| uid.cloned().ok_or("the request is not complete");
        let context = request.context().ok_or("the request is not complete")?;
        let context = context.to_json_value().map_err(|error| error.to_string())?;
        let all = entities
            .to_json_value()
            .map_err(|error| error.to_string())?;
        let mut known = BTreeMap::new();
        for entity in all.as_array().into_iter().flatten() {
            let uid = |value: &Value| {
                let (type_name, id) = entity_of(value).ok_or("an entity has no name")?;
                let type_name = type_name.parse().map_err(|_| "an entity has no type")?;
                let id = cedar_policy::EntityId::new(id);
                Ok::<_, String>(EntityUid::from_type_name_and_id(type_name, id))
            };
            let name = uid(entity.get("uid").unwrap_or(&Value::Null))?;
            // The schema has them.
            if name.type_name().basename() == "Action" {
                continue;
            }
            let attrs = entity.get("attrs").and_then(Value::as_object).cloned();
            let parents = entity.get("parents").and_then(Value::as_array);
            let parents = parents.into_iter().flatten().map(uid);
            let facts = Known {
                attrs: attrs.unwrap_or_default(),
                parents: parents.collect::<Result<_, _>>()?,
            };
            known.insert(name, facts);
        }
        Ok(Self {
            principal: whole(request.principal())?,
            action: whole(request.action())?,
            resource: whole(request.resource())?,
            context: context.as_object().cloned().unwrap_or_default(),
            entities: known,
            alone: true,
        }
        .with_groups())
    }

    /// The same, with everything known that something is in: it has nothing but its name.
    fn with_groups(mut self) -> Self {
        let all = self.entities.values();
        let groups: BTreeSet<_> = all.flat_map(|known| known.parents.clone()).collect();
        for group in groups {
            let parents = place(&group).unwrap_or_default();
            let known = self.entities.entry(group);
            known.or_insert_with(|| Known {
                attrs: Map::new(),
                parents,
            });
        }
        self
    }

    /// The request as JSON: who, what, to what, the facts, and what is known.
    #[must_use]
    pub fn details(&self) -> Value {
        let known = self.entities.iter().map(|(uid, known)| known.json(uid));
        json!({
            "principal": self.principal.to_string(),
            "action": self.action.to_string(),
            "resource": self.resource.to_string(),
            "context": self.context,
            "entities": known.collect::<Vec<_>>(),
        })
    }

    /// Everyone who must be allowed.
    pub(crate) fn parties(&self) -> Vec<EntityUid> {
        let person = person_behind(&self.entities, &self.principal).filter(|_| !self.alone);
        [Some(self.principal.clone()), person]
            .into_iter()
            .flatten()
            .collect()
    }

    /// The same request, asking whether a person may be asked; if there is such an action, and it
    /// is not a person's own call.
    pub(crate) fn asking(&self, schema: &Schema) -> Option<Self> {
        let verb = self.action.id().unescaped();
        let is_call = |action: &&Action| action.as_str() == verb && action.kind() == Kind::Run;
        let by_agent = self.principal.type_name().basename() == "Agent";
        if !by_agent && Action::ALL.iter().any(|action| is_call(&action)) {
            return None;
        }
        let id = format!("{verb}.ask");
        let id = cedar_policy::EntityId::new(id);
        let action = EntityUid::from_type_name_and_id(self.action.type_name().clone(), id);
        schema.actions().find(|declared| **declared == action)?;
        Some(Self {
            action,
            ..self.clone()
        })
    }

    pub(crate) fn cedar_entities(&self, schema: &Schema) -> Result<Entities, String> {
        let all = self.entities.iter().map(|(uid, known)| known.json(uid));
        let all = Value::Array(all.collect());
        Entities::from_json_value(all, Some(schema)).map_err(|error| chain(&error))
    }

    pub(crate) fn cedar_request(
        &self,
        principal: &EntityUid,
        schema: &Schema,
    ) -> Result<Request, String> {
        let context = Value::Object(self.context.clone());
        let context = Context::from_json_value(context, Some((schema, &self.action)))
            .map_err(|error| chain(&error))?;
        let (action, resource) = (self.action.clone(), self.resource.clone());
        Request::new(principal.clone(), action, resource, context, Some(schema))
            .map_err(|error| chain(&error))
    }

    /// Every entity that is named and not known. One whose type has no required attribute has
    /// nothing that could be said wrongly, and one that stands in for a fact that was left out is
    /// as plain as that; the others must be declared. So must a program: what it is in besides
    /// its folders is not in its name.
    fn know_the_rest(&mut self, shapes: &Shapes) -> Result<(), String> {
        let mut named = vec![self.principal.clone(), self.resource.clone()];
        let context = Value::Object(self.context.clone());
        references(&context, &mut named);
        for known in self.entities.values() {
            named.extend(known.parents.iter().cloned());
            references(&Value::Object(known.attrs.clone()), &mut named);
        }
        for uid in named {
            if self.entities.contains_key(&uid) {
                continue;
            }
            let fields = shapes.entities.get(&uid.type_name().to_string());
            let fields = fields.ok_or_else(|| format!("there is no entity type of `{uid}`"))?;
            if uid.type_name().basename() == "Program" {
                return Err(format!(
                    "nothing is known about `{uid}`; declare it with an `entity` table, and its \
                     groups as `parents`"
                ));
            }
            let plain = fields.values().all(|field| !field.required);
            if !plain && uid.id().unescaped() != UNSPECIFIED {
                let names: Vec<&str> = fields.keys().map(String::as_str).collect();
                return Err(format!(
                    "nothing is known about `{uid}`; declare it with an `entity` table ({})",
                    names.join(", ")
                ));
            }
            let mut attrs = Map::new();
            shape::fill(&mut attrs, fields, &stand_in(&[]));
            let parents = place(&uid)?;
            for parent in parents.iter().filter(|parent| **parent != uid) {
                let above = self.entities.entry(parent.clone());
                above.or_default();
            }
            self.entities.insert(uid, Known { attrs, parents });
        }
        Ok(())
    }
}

impl Known {
    fn json(&self, uid: &EntityUid) -> Value {
        let parents: Vec<Value> = self.parents.iter().map(reference).collect();
        json!({ "uid": reference(uid), "attrs": self.attrs, "parents": parents })
    }
}

/// What this bundle's policies say to a request, for everyone who must be allowed.
///
/// # Errors
/// The request does not fit the schema, or evaluation failed. The daemon denies then.
pub fn decide(bundle: &Bundle, question: &Question) -> Result<Verdict, String> {
    verdict(&bundle.enforced, bundle.schema, question)
}

/// What comes of a request: with the second question, whether a person may be asked.
///
/// # Errors
/// As [`decide`].
pub fn outcome(bundle: &Bundle, question: &Question) -> Result<Outcome, String> {
    outcome_of(&bundle.enforced, bundle.schema, question)
}

pub(crate) fn outcome_of(
    set: &PolicySet,
    schema: &Schema,
    question: &Question,
) -> Result<Outcome, String> {
    if verdict(set, schema, question)?.allowed() {
        return Ok(Outcome::Allow);
    }
    match question.asking(schema) {
        Some(asking) if verdict(set, schema, &asking)?.allowed() => Ok(Outcome::Ask),
        Some(_) | None => Ok(Outcome::Deny),
    }
}

pub(crate) fn verdict(
    set: &PolicySet,
    schema: &Schema,
    question: &Question,
) -> Result<Verdict, String> {
    let entities = question.cedar_entities(schema)?;
    let parties = question.parties().into_iter().map(|principal| {
        let request = question.cedar_request(&principal, schema)?;
        let response = Authorizer::new().is_authorized(&request, set, &entities);
        if let Some(error) = response.diagnostics().errors().next() {
            return Err(error.to_string());
        }
        let mut matched: Vec<String> = response
            .diagnostics()
            .reason()
            .map(|id| AsRef::<str>::as_ref(id).to_owned())
            .collect();
        matched.sort_unstable();
        Ok(PartyVerdict {
            principal: principal.to_string(),
            allowed: response.decision() == Decision::Allow,
            matched,
        })
    });
    Ok(Verdict {
        parties: parties.collect::<Result<_, _>>()?,
    })
}

/// The id of what stands in for an entity that was left out.
const UNSPECIFIED: &str = "unspecified";

pub(crate) fn reference(uid: &EntityUid) -> Value {
    json!({ "type": uid.type_name().to_string(), "id": uid.id().unescaped() })
}

fn action_of<'a>(text: &str, shapes: &'a Shapes) -> Result<(EntityUid, &'a shape::Fields), String> {
    let uid = if text.contains("::") {
        parse_uid(text)?
    } else {
        parse_uid(&format!("Action::{text:?}"))?
    };
    match shapes.contexts.get(uid.id().unescaped()) {
        Some(fields) => Ok((uid, fields)),
        None => Err(format!(
            "there is no action `{text}`; see them with `palyra policy schema`"
        )),
    }
}

/// The person for whom an agent acts.
fn person_behind(
    entities: &BTreeMap<EntityUid, Known>,
    principal: &EntityUid,
) -> Option<EntityUid> {
    if principal.type_name().to_string() != "Palyra::Agent" {
        return None;
    }
    let (type_name, id) = entity_of(entities.get(principal)?.attrs.get("user")?)?;
    let type_name = type_name.parse().ok()?;
    let id = cedar_policy::EntityId::new(id);
    Some(EntityUid::from_type_name_and_id(type_name, id))
}

/// Who is meant when an entity is left out.
fn stand_in(named: &[&EntityUid]) -> impl Fn(&str) -> Value {
    let named: Vec<(String, String)> = named
        .iter()
        .map(|uid| (uid.type_name().to_string(), uid.id().unescaped().to_owned()))
        .collect();
    move |type_name| {
        let same = named.iter().find(|(known, _)| known == type_name);
        let id = match (same, type_name) {
            (Some((_, id)), _) => id.as_str(),
            (None, "Palyra::User") => "owner",
            (None, "Palyra::Device") => "dev_local",
            (None, "Palyra::Channel") => "cli",
            (None, _) => UNSPECIFIED,
        };
        shape::entity(type_name, id)
    }
}

/// What a program, path or host is in by its name, exactly as the engine says; everything else is
/// in nothing unless it is declared so, and a program's groups are declared, too.
fn place(uid: &EntityUid) -> Result<BTreeSet<EntityUid>, String> {
    let words = Vocabulary::new().map_err(|error| error.to_string())?;
    let id = uid.id().unescaped();
    let entity = match uid.type_name().basename() {
        "Program" => {
            let known = ProgramFacts {
                program: id.into(),
                real: None,
                groups: Vec::new(),
            };
            places::program(&words, &known).map_err(|denial| denial.reason)?
        }
        "Path" => places::path(&words, Path::new(id)).map_err(|denial| denial.reason)?,
        "Host" => {
            let host: EgressHost = id.parse().map_err(|error: NotAHost| error.to_string())?;
            if host.as_str() != id {
                return Err(format!("write the host `{id}` as `{host}`"));
            }
            places::host(&words, &host)
        }
        _ => return Ok(BTreeSet::new()),
    };
    let (_, _, above) = entity.into_inner();
    Ok(above.into_iter().collect())
}

/// What is true everywhere: the owner, this machine's socket, the daemon.
fn well_known(shapes: &Shapes) -> BTreeMap<EntityUid, Known> {
    let all = [
        ("User", "owner", None),
        ("Device", "dev_local", Some("paired")),
        ("Channel", "cli", Some("authenticated")),
        ("Channel", "mcp", Some("authenticated")),
        ("Channel", "hook", Some("authenticated")),
        ("Daemon", "palyrad", None),
    ];
    let mut known = BTreeMap::new();
    for (name, id, holds) in all {
        let declared = shapes.entities.get(&format!("Palyra::{name}"));
        let (Some(fields), Ok(uid)) = (declared, parse_uid(&format!("{name}::{id:?}"))) else {
            continue;
        };
        let mut attrs = Map::new();
        if let Some(holds) = holds.filter(|holds| fields.contains_key(*holds)) {
            attrs.insert(holds.to_owned(), json!(true));
        }
        shape::fill(&mut attrs, fields, &stand_in(&[]));
        let parents = BTreeSet::new();
        known.insert(uid, Known { attrs, parents });
    }
    known
}

fn references(value: &Value, named: &mut Vec<EntityUid>) {
    match value {
        Value::Object(table) => {
            if table.contains_key("__entity") {
                let uid = entity_of(value).and_then(|(type_name, id)| {
                    let id = cedar_policy::EntityId::new(id);
                    let type_name = type_name.parse().ok()?;
                    Some(EntityUid::from_type_name_and_id(type_name, id))
                });
                named.extend(uid);
            } else {
                table.values().for_each(|inner| references(inner, named));
            }
        }
        Value::Array(items) => items.iter().for_each(|inner| references(inner, named)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        said = format!("{said}: {inner}");
        cause = inner.source();
    }
    said
}
