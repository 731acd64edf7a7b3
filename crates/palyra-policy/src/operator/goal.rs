//! From "this condition should be so" to the changes that would make it so.

use cedar_policy::EvalResult;
use cedar_policy::pst::{BinaryOp, Expr, Literal, PatternElem, UnaryOp};
use serde_json::{Value, json};

use super::change::Change;
use super::shape::{self, Shape};
use super::terms::{Asked, Fact};

/// How many ways to the same goal are looked at.
const MAX_WAYS: usize = 48;
/// How long a yes would have to last, when one is imagined.
const A_QUARTER_HOUR: i64 = 15 * 60 * 1000;

/// One condition that is not as it should be: the expression, and what it should come to.
pub(crate) type Atom<'e> = (&'e Expr, bool);

/// The ways in which an expression would come to `wanted`, each a list of what is missing. What
/// holds already is left out, so a way without anything is one that is open now.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum is Cedar's and open; what is not a connective is one condition"
)]
pub(crate) fn ways<'e>(
    expression: &'e Expr,
    wanted: bool,
    asked: &Asked<'_>,
) -> Vec<Vec<Atom<'e>>> {
    let mut found = match expression {
        Expr::Literal(Literal::Bool(value)) if *value == wanted => vec![Vec::new()],
        Expr::Literal(Literal::Bool(_)) => Vec::new(),
        Expr::UnaryOp {
            op: UnaryOp::Not,
            expr,
        } => ways(expr, !wanted, asked),
        Expr::BinaryOp {
            op: op @ (BinaryOp::And | BinaryOp::Or),
            left,
            right,
        } => {
            let all = (*op == BinaryOp::And) == wanted;
            let (left, right) = (ways(left, wanted, asked), ways(right, wanted, asked));
            if all {
                product(&left, &right)
            } else {
                left.into_iter().chain(right).collect()
            }
        }
        Expr::IfThenElse {
            cond,
            then_expr,
            else_expr,
        } => {
            let yes = product(&ways(cond, true, asked), &ways(then_expr, wanted, asked));
            let no = product(&ways(cond, false, asked), &ways(else_expr, wanted, asked));
            yes.into_iter().chain(no).collect()
        }
        other if asked.is(other, wanted) => vec![Vec::new()],
        other => vec![vec![(other, wanted)]],
    };
    found.sort_by_key(Vec::len);
    found.truncate(MAX_WAYS);
    found
}

fn product<'e>(left: &[Vec<Atom<'e>>], right: &[Vec<Atom<'e>>]) -> Vec<Vec<Atom<'e>>> {
    let pairs = left
        .iter()
        .flat_map(|a| right.iter().map(move |b| [a.as_slice(), b].concat()));
    pairs.take(MAX_WAYS).collect()
}

/// The changes that would each make one condition so. None are known for some conditions, such as
/// who the principal is.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum is Cedar's and open; for what is not listed no change is known"
)]
pub(crate) fn changes((expression, wanted): Atom<'_>, asked: &Asked<'_>) -> Vec<Change> {
    match expression {
        Expr::HasAttr { expr, attrs } => {
            let Some(holder) = asked.fact(expr) else {
                return Vec::new();
            };
            let path = holder.path().iter().cloned();
            let path = path.chain(attrs.iter().map(ToString::to_string)).collect();
            let fact = match holder {
                Fact::Context(_) => Fact::Context(path),
                Fact::Entity(uid, _) => Fact::Entity(uid, path),
            };
            let shape = asked.shape(&fact).filter(|_| wanted);
            match (shape, wanted) {
                (Some(shape), _) => vec![Change::Set(fact, plain(shape, asked))],
                (None, true) => Vec::new(),
                (None, false) => vec![Change::Remove(fact)],
            }
        }
        Expr::GetAttr { .. } => set(expression, json!(wanted), asked),
        Expr::UnaryOp {
            op: UnaryOp::IsEmpty,
            expr,
        } if wanted => set(expr, json!([]), asked),
        Expr::Like { expr, pattern } if wanted => {
            let text: String = pattern
                .iter()
                .map(|element| match element {
                    PatternElem::Char(symbol) => *symbol,
                    PatternElem::Wildcard => 'x',
                })
                .collect();
            set(expr, json!(text), asked)
        }
        Expr::BinaryOp { op, left, right } => comparison(*op, left, right, wanted, asked),
        _ => Vec::new(),
    }
}

fn comparison(
    op: BinaryOp,
    left: &Expr,
    right: &Expr,
    wanted: bool,
    asked: &Asked<'_>,
) -> Vec<Change> {
    match (op, wanted) {
        (BinaryOp::Eq, true) | (BinaryOp::NotEq, false) => equal(left, right, asked),
        (BinaryOp::Eq, false) | (BinaryOp::NotEq, true) => other_than(left, right, asked),
        (BinaryOp::Less, true) | (BinaryOp::GreaterEq, false) => below(left, right, 1, asked),
        (BinaryOp::LessEq, true) | (BinaryOp::Greater, false) => below(left, right, 0, asked),
        (BinaryOp::Less, false) | (BinaryOp::GreaterEq, true) => below(right, left, 0, asked),
        (BinaryOp::LessEq, false) | (BinaryOp::Greater, true) => below(right, left, 1, asked),
        (BinaryOp::Contains, _) => contains(left, &one(right, asked), wanted, asked)
            .into_iter()
            .chain(member(right, left, wanted, asked))
            .collect(),
        (BinaryOp::ContainsAll, true) => contains(left, &many(right, asked), true, asked)
            .into_iter()
            .collect(),
        (BinaryOp::ContainsAny, true) => many(right, asked)
            .into_iter()
            .filter_map(|item| contains(left, &[item], true, asked))
            .collect(),
        (BinaryOp::ContainsAny, false) => contains(left, &many(right, asked), false, asked)
            .into_iter()
            .collect(),
        (BinaryOp::In, _) => hierarchy(left, right, wanted, asked),
        (_, _) => Vec::new(),
    }
}

fn set(expression: &Expr, value: Value, asked: &Asked<'_>) -> Vec<Change> {
    let fact = asked
        .fact(expression)
        .filter(|fact| !fact.path().is_empty());
    fact.map(|fact| Change::Set(fact, value))
        .into_iter()
        .collect()
}

fn equal(left: &Expr, right: &Expr, asked: &Asked<'_>) -> Vec<Change> {
    [(left, right), (right, left)]
        .into_iter()
        .filter_map(|(place, value)| Some(set(place, asked.json(value)?, asked)))
        .flatten()
        .collect()
}

/// Any other value would do; the nearest is named.
fn other_than(left: &Expr, right: &Expr, asked: &Asked<'_>) -> Vec<Change> {
    [(left, right), (right, left)]
        .into_iter()
        .filter_map(|(place, value)| {
            let other = match asked.value(value)? {
                EvalResult::Bool(value) => json!(!value),
                EvalResult::Long(value) => json!(value.checked_add(1).or(value.checked_sub(1))?),
                EvalResult::String(value) => json!(format!("not {value}")),
                EvalResult::EntityUid(_)
                | EvalResult::Set(_)
                | EvalResult::Record(_)
                | EvalResult::ExtensionValue(_) => return None,
            };
            Some(set(place, other, asked))
        })
        .flatten()
        .collect()
}

/// `low` at least `apart` below `high`: by raising the one or lowering the other.
fn below(low: &Expr, high: &Expr, apart: i64, asked: &Asked<'_>) -> Vec<Change> {
    let mut found = Vec::new();
    if let (Some(low_at), high_at) = (asked.millis(low), asked.millis(high)) {
        let raised = low_at.saturating_add(A_QUARTER_HOUR);
        found.extend(set(high, instant(raised), asked));
        if let Some(high_at) = high_at {
            found.extend(set(low, instant(high_at.saturating_sub(apart)), asked));
        }
        return found;
    }
    if let Some(value) = asked.number(low).and_then(|low| low.checked_add(apart)) {
        found.extend(set(high, json!(value), asked));
    }
    if let Some(value) = asked.number(high).and_then(|high| high.checked_sub(apart)) {
        found.extend(set(low, json!(value), asked));
    }
    found
}

fn instant(millis: i64) -> Value {
    let at = palyra_core::Timestamp::from_millis(millis);
    shape::extension("datetime", &at.to_string())
}

fn one(expression: &Expr, asked: &Asked<'_>) -> Vec<Value> {
    asked.json(expression).into_iter().collect()
}

fn many(expression: &Expr, asked: &Asked<'_>) -> Vec<Value> {
    match asked.json(expression) {
        Some(Value::Array(items)) => items,
        Some(_) | None => Vec::new(),
    }
}

/// A set that is a fact, with these items or without them.
fn contains(set_of: &Expr, items: &[Value], wanted: bool, asked: &Asked<'_>) -> Option<Change> {
    let fact = asked.fact(set_of).filter(|fact| !fact.path().is_empty())?;
    let mut all = many(set_of, asked);
    if items.is_empty() {
        return None;
    }
    all.retain(|item| !items.contains(item));
    if wanted {
        all.extend_from_slice(items);
    }
    Some(Change::Set(fact, Value::Array(all)))
}

/// A fact that is one of a written list.
fn member(item: &Expr, list: &Expr, wanted: bool, asked: &Asked<'_>) -> Vec<Change> {
    if !wanted || asked.fact(list).is_some() {
        return Vec::new();
    }
    many(list, asked)
        .into_iter()
        .flat_map(|value| set(item, value, asked))
        .collect()
}

fn hierarchy(left: &Expr, right: &Expr, wanted: bool, asked: &Asked<'_>) -> Vec<Change> {
    let Some(entity) = asked.entity(left) else {
        return Vec::new();
    };
    let groups = match asked.value(right) {
        Some(EvalResult::EntityUid(group)) => vec![group],
        Some(EvalResult::Set(groups)) => groups
            .iter()
            .filter_map(|group| match group {
                EvalResult::EntityUid(group) => Some(group.clone()),
                EvalResult::Bool(_)
                | EvalResult::Long(_)
                | EvalResult::String(_)
                | EvalResult::Set(_)
                | EvalResult::Record(_)
                | EvalResult::ExtensionValue(_) => None,
            })
            .collect(),
        Some(
            EvalResult::Bool(_)
            | EvalResult::Long(_)
            | EvalResult::String(_)
            | EvalResult::Record(_)
            | EvalResult::ExtensionValue(_),
        )
        | None => Vec::new(),
    };
    let change = |group| match wanted {
        true => Change::Join(entity.clone(), group),
        false => Change::Leave(entity.clone(), group),
    };
    groups.into_iter().map(change).collect()
}

/// The plainest value, with entities that exist: those the request itself names.
fn plain(shape: &Shape, asked: &Asked<'_>) -> Value {
    let question = asked.question;
    let stand_in = |type_name: &str| {
        let named = [&question.principal, &question.resource].into_iter();
        let same = named
            .chain(question.entities.keys())
            .find(|uid| uid.type_name().to_string() == type_name);
        let id = same.map_or("unspecified", |uid| uid.id().unescaped());
        shape::entity(type_name, id)
    };
    shape.plain(&stand_in)
}
