//! Signs before numbers.

use sqlparser::ast::{Expr, UnaryOperator, Value as Literal};

use crate::{
    SqlError,
    types::{Value, text},
};

/// The number that a minus before `expr` makes of it, if that is a literal: a minus belongs to the
/// number behind it, also when others or parentheses are between. So the smallest integer can be
/// written, which has no positive counterpart, and the negative of that is a `numeric`.
///
/// # Errors
/// Those of [`text::number`].
pub fn negated(mut expr: &Expr) -> Option<Result<Value, SqlError>> {
    let mut sign = "-";
    loop {
        match expr {
            Expr::Nested(inner) => expr = inner,
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => {
                sign = if sign.is_empty() { "-" } else { "" };
                expr = inner;
            }
            Expr::Value(value) => {
                let Literal::Number(digits, _) = &value.value else { return None };
                return Some(text::number(&format!("{sign}{digits}")));
            }
            _ => return None,
        }
    }
}
