//! Walking Cedar's expressions.

use cedar_policy::pst::Expr;

/// The expressions that an expression is made of.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum is Cedar's and open; what is not listed has no parts"
)]
pub(crate) fn parts(expression: &Expr) -> Vec<&Expr> {
    match expression {
        Expr::UnaryOp { expr, .. }
        | Expr::GetAttr { expr, .. }
        | Expr::HasAttr { expr, .. }
        | Expr::Like { expr, .. } => vec![expr],
        Expr::BinaryOp { left, right, .. } => vec![left, right],
        Expr::Is { expr, in_expr, .. } => match in_expr {
            Some(group) => vec![expr, group],
            None => vec![expr],
        },
        Expr::IfThenElse {
            cond,
            then_expr,
            else_expr,
        } => vec![cond, then_expr, else_expr],
        Expr::Set(items) => items.iter().map(AsRef::as_ref).collect(),
        Expr::Record(fields) => fields.values().map(AsRef::as_ref).collect(),
        _ => Vec::new(),
    }
}
