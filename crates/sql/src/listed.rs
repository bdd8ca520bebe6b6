//! ORDER BY, GROUP BY and DISTINCT ON: how an entry of theirs means a column of the select list.

use sqlparser::ast::{Expr, UnaryOperator, Value};

use crate::{SqlError, SqlState, names};

/// What an entry is that is neither an expression nor a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// A number: a place in the list, from 1, if there is such a place ([`place`]).
    Place(String),
    /// A name, which may be a column's.
    Name(String),
    /// Another constant, which means nothing ([`no_place`]).
    Constant,
}

/// What the entry is. Parentheses around it say nothing, and a minus before a number belongs to it.
pub fn listed(expr: &Expr) -> Option<Listed> {
    match bare(expr) {
        Expr::Identifier(name) => Some(Listed::Name(names::fold(name))),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match listed(expr)? {
            Listed::Place(digits) => Some(Listed::Place(format!("-{digits}"))),
            Listed::Constant if is_number(bare(expr)) => Some(Listed::Constant),
            _ => None,
        },
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                Some(Listed::Place(digits.clone()))
            }
            Value::Placeholder(_) => None,
            _ => Some(Listed::Constant),
        },
        _ => None,
    }
}

/// An expression without the parentheses around it.
pub fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(expr) => bare(expr),
        expr => expr,
    }
}

fn is_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::Number(..)))
}

/// The index of the column that a number in `clause` means, in a list of `many` columns.
///
/// # Errors
/// 42P10 when the list has no such place.
pub fn place(digits: &str, many: usize, clause: &str) -> Result<usize, SqlError> {
    let index = digits.parse::<usize>().ok().and_then(|place| place.checked_sub(1));
    index.filter(|index| *index < many).ok_or_else(|| {
        let message = format!("{clause} position {digits} is not in select list");
        SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message)
    })
}

/// 42601: another constant in `clause`.
pub fn no_place(clause: &str) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, format!("non-integer constant in {clause}"))
}
