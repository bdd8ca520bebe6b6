//! Three-valued logic, and functions that treat null as a value.

use super::{Function, mismatch};
use crate::{
    SqlError, SqlState,
    types::{EvalContext, Kind, Value},
    work,
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("coalesce", &[Kind::AnyElement], Kind::AnyElement, coalesce).variadic().lenient(),
    Function::new("nullif", &[Kind::AnyElement, Kind::AnyElement], Kind::AnyElement, null_if).lenient(),
    Function::new("greatest", &[Kind::AnyElement], Kind::AnyElement, greatest).variadic().lenient(),
    Function::new("least", &[Kind::AnyElement], Kind::AnyElement, least).variadic().lenient(),
    Function::new("num_nulls", &[Kind::Any], Kind::Int4, num_nulls).variadic().lenient(),
    Function::new("num_nonnulls", &[Kind::Any], Kind::Int4, num_nonnulls).variadic().lenient(),
];

/// AND: false if one is false, unknown if one is unknown.
pub const fn and(one: Option<bool>, two: Option<bool>) -> Option<bool> {
    match (one, two) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// OR: true if one is true, unknown if one is unknown.
pub const fn or(one: Option<bool>, two: Option<bool>) -> Option<bool> {
    match (one, two) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

/// NOT: unknown stays unknown.
pub const fn not(one: Option<bool>) -> Option<bool> {
    match one {
        Some(truth) => Some(!truth),
        None => None,
    }
}

/// IS DISTINCT FROM: null is one value among others.
pub fn is_distinct(one: &Value, two: &Value) -> bool {
    one != two
}

/// `left operator ANY (array)`: true if it is for one element, unknown if it is for one.
///
/// # Errors
/// What the operator returns.
pub fn any(operator: &Function, left: &Value, array: &Value, context: &EvalContext<'_>) -> Result<Value, SqlError> {
    quantified(operator, left, array, context, true)
}

/// `left operator ALL (array)`: false if it is for one element, unknown if it is for one.
///
/// # Errors
/// What the operator returns.
pub fn all(operator: &Function, left: &Value, array: &Value, context: &EvalContext<'_>) -> Result<Value, SqlError> {
    quantified(operator, left, array, context, false)
}

/// Looks for an element for which the operator says `decisive`.
fn quantified(
    operator: &Function,
    left: &Value,
    array: &Value,
    context: &EvalContext<'_>,
    decisive: bool,
) -> Result<Value, SqlError> {
    let array = match array {
        Value::Null => return Ok(Value::Null),
        Value::Array(array) => array,
        _ => return Err(mismatch(std::slice::from_ref(array))),
    };
    let mut arguments = [left.clone(), Value::Null];
    let mut unknown = false;
    for element in array.values() {
        work::done(1)?;
        arguments[1] = element.clone();
        match operator.call(&arguments, context)? {
            Value::Bool(truth) if truth == decisive => return Ok(Value::Bool(decisive)),
            Value::Bool(_) => {}
            _ => unknown = true,
        }
    }
    Ok(if unknown { Value::Null } else { Value::Bool(!decisive) })
}

fn coalesce(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(arguments.iter().find(|value| !value.is_null()).cloned().unwrap_or_default())
}

fn null_if(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    match arguments {
        [one, two] if one == two => Ok(Value::Null),
        [one, _] => Ok(one.clone()),
        _ => Err(mismatch(arguments)),
    }
}

fn greatest(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    // Of equal ones the first.
    let values = arguments.iter().filter(|value| !value.is_null());
    Ok(values.reduce(|most, next| if next > most { next } else { most }).cloned().unwrap_or_default())
}

fn least(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(arguments.iter().filter(|value| !value.is_null()).min().cloned().unwrap_or_default())
}

fn num_nulls(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(Value::Int4(arguments.iter().filter(|value| value.is_null()).count() as i32))
}

fn num_nonnulls(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(Value::Int4(arguments.iter().filter(|value| !value.is_null()).count() as i32))
}

/// How many values a row may have, as in PostgreSQL, and one that is compared by its first
/// difference: such a comparison is as deep as its rows are long.
const ROW: (usize, usize) = (1664, 256);

/// Whether rows of `length` values may be compared by an operator.
///
/// # Errors
/// 54011 when they are too long.
pub fn check_row_length(operator: &str, length: usize) -> Result<(), SqlError> {
    let most = if matches!(operator, "=" | "<>" | "!=") { ROW.0 } else { ROW.1 };
    if length <= most {
        return Ok(());
    }
    let message = format!("ROW expressions can have at most {most} entries for operator {operator}");
    Err(SqlError::new(SqlState::new("54011"), message))
}
