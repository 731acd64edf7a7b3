//! The types that the schema declares, as far as building and changing a request needs them.
//!
//! They are read from the schema itself, so that requests written by people can leave out what
//! does not matter and a new attribute of the schema breaks no test that never spoke of it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::error::PolicyError;
use crate::policies::SCHEMA_SRC;

/// Everything outside the namespace is ours.
pub(crate) const NAMESPACE: &str = "Palyra";
/// How deep common types may refer to each other. Cedar refuses circles; this is for the rest.
const MAX_DEPTH: usize = 16;

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    Bool,
    Long,
    Text,
    Entity(String),
    Set(Box<Self>),
    Record(Fields),
    Extension(String),
}

/// The attributes of a record or an entity.
pub(crate) type Fields = BTreeMap<String, Field>;

/// One attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) shape: Shape,
    pub(crate) required: bool,
}

/// What the schema declares.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shapes {
    /// The attributes of each entity type, by its full name.
    pub(crate) entities: BTreeMap<String, Fields>,
    /// The attributes of each action's context, by the action's id.
    pub(crate) contexts: BTreeMap<String, Fields>,
}

impl Shapes {
    /// The schema's types, read once.
    pub(crate) fn load() -> Result<&'static Self, PolicyError> {
        static READ: LazyLock<Result<Shapes, PolicyError>> = LazyLock::new(Shapes::read);
        READ.as_ref().map_err(Clone::clone)
    }

    fn read() -> Result<Self, PolicyError> {
        let wrong = |why: String| PolicyError::Schema(why);
        let (tree, _warnings) = cedar_policy::schema_str_to_json_with_resolved_types(SCHEMA_SRC)
            .map_err(|error| wrong(error.to_string()))?;
        let ours = tree
            .get(NAMESPACE)
            .ok_or_else(|| wrong(format!("there is no namespace `{NAMESPACE}`")))?;
        let common = ours.get("commonTypes").unwrap_or(&Value::Null);
        let mut shapes = Self::default();
        for (name, declared) in members(ours.get("entityTypes")) {
            let fields = fields_of(declared.get("shape"), common);
            shapes
                .entities
                .insert(format!("{NAMESPACE}::{name}"), fields);
        }
        for (name, declared) in members(ours.get("actions")) {
            let context = declared.get("appliesTo").and_then(|to| to.get("context"));
            shapes
                .contexts
                .insert(name.clone(), fields_of(context, common));
        }
        Ok(shapes)
    }
}

impl Shape {
    /// The plainest value of this type.
    pub(crate) fn plain(&self, entity: &dyn Fn(&str) -> Value) -> Value {
        match self {
            Self::Bool => json!(false),
            Self::Long => json!(0),
            Self::Text => json!(""),
            Self::Entity(name) => entity(name),
            Self::Set(_) => json!([]),
            Self::Record(fields) => {
                let mut record = Map::new();
                fill(&mut record, fields, entity);
                Value::Object(record)
            }
            Self::Extension(name) => {
                let argument = match name.as_str() {
                    "datetime" => "1970-01-01T00:00:00Z",
                    "duration" => "0ms",
                    "decimal" => "0.0",
                    _ => "0.0.0.0",
                };
                extension(name, argument)
            }
        }
    }

    /// A value as a person wrote it, in the explicit form that Cedar reads without guessing.
    pub(crate) fn explicit(&self, value: &Value, at: &str) -> Result<Value, String> {
        let wrong = |what: &str| Err(format!("`{at}` is not {what}"));
        match (self, value) {
            (Self::Bool, Value::Bool(_)) | (Self::Text, Value::String(_)) => Ok(value.clone()),
            (Self::Long, Value::Number(number)) if number.is_i64() => Ok(value.clone()),
            (Self::Bool, _) => wrong("`true` or `false`"),
            (Self::Long, _) => wrong("a whole number"),
            (Self::Text, _) => wrong("a text"),
            (Self::Entity(name), _) => match entity_of(value) {
                Some(uid) if uid.0 == *name => Ok(entity(&uid.0, &uid.1)),
                Some(_) | None => wrong(&format!("an entity such as `{name}::\"name\"`")),
            },
            (Self::Set(inner), Value::Array(items)) => items
                .iter()
                .map(|item| inner.explicit(item, at))
                .collect::<Result<Vec<_>, _>>()
                .map(Value::Array),
            (Self::Set(_), _) => wrong("a list"),
            (Self::Record(fields), Value::Object(record)) => {
                explicit(record, fields, at).map(Value::Object)
            }
            (Self::Record(_), _) => wrong("a table"),
            (Self::Extension(name), _) => match argument_of(value) {
                Some(argument) => Ok(extension(name, &argument)),
                None => wrong(&format!("a {name}, written as text")),
            },
        }
    }
}

/// Attributes as a person wrote them, in explicit form.
pub(crate) fn explicit(
    record: &Map<String, Value>,
    fields: &Fields,
    at: &str,
) -> Result<Map<String, Value>, String> {
    let mut read = Map::new();
    for (name, value) in record {
        let here = format!("{at}.{name}");
        let field = fields.get(name).ok_or_else(|| {
            let known: Vec<&str> = fields.keys().map(String::as_str).collect();
            format!("there is no `{here}`; there are `{}`", known.join("`, `"))
        })?;
        read.insert(name.clone(), field.shape.explicit(value, &here)?);
    }
    Ok(read)
}

/// Adds the plainest value for every required attribute that is missing.
pub(crate) fn fill(
    record: &mut Map<String, Value>,
    fields: &Fields,
    entity: &dyn Fn(&str) -> Value,
) {
    for (name, field) in fields {
        match (record.get_mut(name), &field.shape) {
            (Some(Value::Object(inner)), Shape::Record(fields)) => fill(inner, fields, entity),
            (Some(_), _) => {}
            (None, _) if !field.required => {}
            (None, shape) => {
                record.insert(name.clone(), shape.plain(entity));
            }
        }
    }
}

/// An entity reference in explicit form.
pub(crate) fn entity(type_name: &str, id: &str) -> Value {
    json!({ "__entity": { "type": type_name, "id": id } })
}

/// An extension value in explicit form.
pub(crate) fn extension(function: &str, argument: &str) -> Value {
    json!({ "__extn": { "fn": function, "arg": argument } })
}

/// Type and id of an entity reference in any form: `Palyra::User::"a"`, `User::"a"`, or a table.
pub(crate) fn entity_of(value: &Value) -> Option<(String, String)> {
    match value {
        Value::String(text) => {
            let uid = parse_uid(text).ok()?;
            Some((uid.type_name().to_string(), uid.id().unescaped().to_owned()))
        }
        Value::Object(table) => {
            let table = table.get("__entity").and_then(Value::as_object);
            let table = table.or_else(|| value.as_object())?;
            let text = |name| table.get(name).and_then(Value::as_str);
            Some((text("type")?.to_owned(), text("id")?.to_owned()))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// An entity as people write it, with or without the namespace.
pub(crate) fn parse_uid(text: &str) -> Result<cedar_policy::EntityUid, String> {
    let full = if text.starts_with("Palyra::") {
        text.to_owned()
    } else {
        format!("{NAMESPACE}::{text}")
    };
    full.parse()
        .map_err(|_| format!("`{text}` is not an entity such as `Agent::\"name\"`"))
}

/// The argument of an extension value: a text, or a date as TOML has them.
fn argument_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Object(table) => {
            let inner = table.get("__extn").and_then(|extn| extn.get("arg"));
            let date = table.get("$__toml_private_datetime");
            inner.or(date)?.as_str().map(str::to_owned)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

fn members(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}

fn fields_of(declared: Option<&Value>, common: &Value) -> Fields {
    match declared.and_then(|declared| shape_of(declared, common, 0)) {
        Some(Shape::Record(fields)) => fields,
        Some(_) | None => Fields::new(),
    }
}

fn shape_of(declared: &Value, common: &Value, depth: usize) -> Option<Shape> {
    if depth > MAX_DEPTH {
        return None;
    }
    let text = |name| declared.get(name).and_then(Value::as_str);
    match text("type")?.trim_start_matches("__cedar::") {
        "Bool" | "Boolean" => Some(Shape::Bool),
        "Long" => Some(Shape::Long),
        "String" => Some(Shape::Text),
        "Entity" => Some(Shape::Entity(text("name")?.to_owned())),
        "Set" => {
            let element = shape_of(declared.get("element")?, common, depth + 1)?;
            Some(Shape::Set(Box::new(element)))
        }
        "Record" => {
            let mut fields = Fields::new();
            for (name, attribute) in members(declared.get("attributes")) {
                let required = attribute.get("required").and_then(Value::as_bool);
                fields.insert(
                    name.clone(),
                    Field {
                        shape: shape_of(attribute, common, depth + 1)?,
                        required: required.unwrap_or(true),
                    },
                );
            }
            Some(Shape::Record(fields))
        }
        "Extension" => Some(Shape::Extension(text("name")?.to_owned())),
        extension @ ("datetime" | "duration" | "decimal" | "ipaddr") => {
            Some(Shape::Extension(extension.to_owned()))
        }
        name => {
            let name = name.rsplit("::").next()?;
            shape_of(common.get(name)?, common, depth + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A type that this module does not understand would make a record look empty.
    #[test]
    fn every_declared_type_is_understood() {
        let (tree, _) = cedar_policy::schema_str_to_json_with_resolved_types(SCHEMA_SRC).unwrap();
        let ours = &tree[NAMESPACE];
        let shapes = Shapes::load().unwrap();
        for (name, declared) in members(ours.get("entityTypes")) {
            let expected = declared["shape"]["attributes"].as_object();
            let found = &shapes.entities[&format!("{NAMESPACE}::{name}")];
            assert_eq!(found.len(), expected.map_or(0, Map::len), "{name}");
        }
        for (name, declared) in members(ours.get("actions")) {
            let context = declared["appliesTo"].get("context");
            assert_eq!(
                shapes.contexts[name].is_empty(),
                context.is_none(),
                "{name}"
            );
        }
    }
}
