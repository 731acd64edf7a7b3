//! Parts of a condition, evaluated for one request, and the facts they are about.

use std::str::FromStr as _;

use cedar_policy::pst::{Expr, Literal, Var};
use cedar_policy::{Entities, EntityUid, EvalResult, Expression, Request, Schema, eval_expression};
use serde_json::{Value, json};

use super::question::Question;
use super::shape::{self, Fields, Shape, Shapes};

/// One request about one principal, ready to be evaluated piece by piece.
pub(crate) struct Asked<'a> {
    pub(crate) question: &'a Question,
    pub(crate) shapes: &'a Shapes,
    request: Request,
    entities: Entities,
}

/// Where a fact is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fact {
    /// In the context.
    Context(Vec<String>),
    /// In an entity.
    Entity(EntityUid, Vec<String>),
}

impl Fact {
    pub(crate) fn path(&self) -> &[String] {
        match self {
            Self::Context(path) | Self::Entity(_, path) => path,
        }
    }

    fn then(mut self, attribute: &str) -> Self {
        match &mut self {
            Self::Context(path) | Self::Entity(_, path) => path.push(attribute.to_owned()),
        }
        self
    }
}

impl<'a> Asked<'a> {
    pub(crate) fn new(
        question: &'a Question,
        principal: &EntityUid,
        schema: &Schema,
        shapes: &'a Shapes,
    ) -> Result<Self, String> {
        Ok(Self {
            request: question.cedar_request(principal, schema)?,
            entities: question.cedar_entities(schema)?,
            question,
            shapes,
        })
    }

    /// What an expression comes to here; nothing when it fails.
    pub(crate) fn value(&self, expression: &Expr) -> Option<EvalResult> {
        let expression = Expression::from_str(&expression.to_string()).ok()?;
        eval_expression(&self.request, &self.entities, &expression).ok()
    }

    /// Whether an expression is this, here.
    pub(crate) fn is(&self, expression: &Expr, wanted: bool) -> bool {
        self.value(expression) == Some(EvalResult::Bool(wanted))
    }

    /// Which entity an expression names here.
    pub(crate) fn entity(&self, expression: &Expr) -> Option<EntityUid> {
        match self.value(expression)? {
            EvalResult::EntityUid(uid) => Some(uid),
            EvalResult::Bool(_)
            | EvalResult::Long(_)
            | EvalResult::String(_)
            | EvalResult::Set(_)
            | EvalResult::Record(_)
            | EvalResult::ExtensionValue(_) => None,
        }
    }

    /// The number that an expression is here.
    pub(crate) fn number(&self, expression: &Expr) -> Option<i64> {
        long(self.value(expression)?)
    }

    /// Milliseconds since 1970 of a point in time.
    pub(crate) fn millis(&self, expression: &Expr) -> Option<i64> {
        let text =
            format!("({expression}).durationSince(datetime(\"1970-01-01\")).toMilliseconds()");
        let expression = Expression::from_str(&text).ok()?;
        long(eval_expression(&self.request, &self.entities, &expression).ok()?)
    }

    /// The same as JSON in explicit form.
    pub(crate) fn json(&self, expression: &Expr) -> Option<Value> {
        match self.value(expression)? {
            EvalResult::ExtensionValue(_) => {
                let at = palyra_core::Timestamp::from_millis(self.millis(expression)?);
                Some(shape::extension("datetime", &at.to_string()))
            }
            plain @ (EvalResult::Bool(_)
            | EvalResult::Long(_)
            | EvalResult::String(_)
            | EvalResult::EntityUid(_)
            | EvalResult::Set(_)
            | EvalResult::Record(_)) => plain_json(&plain),
        }
    }

    /// The fact that an expression reads, if it reads one: `context.tier`, `resource.sensitive`,
    /// `context.device.paired`.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum is Cedar's and open; nothing else reads a fact"
    )]
    pub(crate) fn fact(&self, expression: &Expr) -> Option<Fact> {
        match expression {
            Expr::Var(Var::Context) => Some(Fact::Context(Vec::new())),
            Expr::GetAttr { expr, attr } => {
                let inside = self.fact(expr).filter(|fact| self.fields(fact).is_some());
                let holder = match inside {
                    Some(record) => record,
                    None => Fact::Entity(self.entity(expr)?, Vec::new()),
                };
                Some(holder.then(attr))
            }
            Expr::Var(Var::Principal | Var::Resource) | Expr::Literal(Literal::EntityUID(_)) => {
                Some(Fact::Entity(self.entity(expression)?, Vec::new()))
            }
            _ => None,
        }
    }

    /// The type of a fact.
    pub(crate) fn shape(&self, fact: &Fact) -> Option<&'a Shape> {
        let (last, inner) = fact.path().split_last()?;
        let holder = match fact {
            Fact::Context(_) => Fact::Context(inner.to_vec()),
            Fact::Entity(uid, _) => Fact::Entity(uid.clone(), inner.to_vec()),
        };
        Some(&self.fields(&holder)?.get(last)?.shape)
    }

    /// The attributes of a fact that is a record, an entity, or the context.
    pub(crate) fn fields(&self, fact: &Fact) -> Option<&'a Fields> {
        let mut fields = match fact {
            Fact::Context(_) => {
                let action = self.question.action.id().unescaped();
                self.shapes.contexts.get(action)?
            }
            Fact::Entity(uid, _) => self.shapes.entities.get(&uid.type_name().to_string())?,
        };
        for name in fact.path() {
            match &fields.get(name)?.shape {
                Shape::Record(inner) => fields = inner,
                Shape::Bool
                | Shape::Long
                | Shape::Text
                | Shape::Entity(_)
                | Shape::Set(_)
                | Shape::Extension(_) => return None,
            }
        }
        Some(fields)
    }
}

fn plain_json(value: &EvalResult) -> Option<Value> {
    match value {
        EvalResult::Bool(value) => Some(json!(value)),
        EvalResult::Long(value) => Some(json!(value)),
        EvalResult::String(value) => Some(json!(value)),
        EvalResult::EntityUid(uid) => {
            let type_name = uid.type_name().to_string();
            Some(shape::entity(&type_name, uid.id().unescaped()))
        }
        EvalResult::Set(items) => items.iter().map(plain_json).collect(),
        EvalResult::Record(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, value)| Some((name.clone(), plain_json(value)?)));
            fields.collect::<Option<_>>().map(Value::Object)
        }
        EvalResult::ExtensionValue(_) => None,
    }
}

fn long(value: EvalResult) -> Option<i64> {
    match value {
        EvalResult::Long(number) => Some(number),
        EvalResult::Bool(_)
        | EvalResult::EntityUid(_)
        | EvalResult::String(_)
        | EvalResult::Set(_)
        | EvalResult::Record(_)
        | EvalResult::ExtensionValue(_) => None,
    }
}
