//! `(a, b) OVERLAPS (c, d)`, where b and d are ends or lengths.

use std::cmp::Ordering;

use super::{Function, mismatch, named};
use crate::{
    SqlError,
    types::{EvalContext, Kind, Value},
};

/// All four ways to tell ends or lengths, for each kind of time.
macro_rules! overlaps {
    ($($kind:ident),+) => {
        pub(super) const FUNCTIONS: &[Function] = &[$(
            Function::new("overlaps", &[Kind::$kind, Kind::$kind, Kind::$kind, Kind::$kind], Kind::Bool, overlaps)
                .lenient(),
            Function::new("overlaps", &[Kind::$kind, Kind::Interval, Kind::$kind, Kind::Interval], Kind::Bool, overlaps)
                .lenient()
                .stable(),
            Function::new("overlaps", &[Kind::$kind, Kind::$kind, Kind::$kind, Kind::Interval], Kind::Bool, overlaps)
                .lenient()
                .stable(),
            Function::new("overlaps", &[Kind::$kind, Kind::Interval, Kind::$kind, Kind::$kind], Kind::Bool, overlaps)
                .lenient()
                .stable(),
        )+];
    };
}

overlaps!(Time, Timestamp, Timestamptz);

/// Where a period ends.
fn end(start: &Value, end: &Value, context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let Value::Interval(_) = end else { return Ok(end.clone()) };
    let Some(kind) = start.kind() else { return Ok(Value::Null) };
    let sum = named("+").iter().find(|function| *function.arguments == [kind, Kind::Interval]);
    match sum {
        Some(sum) => sum.call(&[start.clone(), end.clone()], context),
        None => Err(mismatch(std::slice::from_ref(start))),
    }
}

/// A period's ends, the earlier one first. The first one is known unless none is.
fn in_order(one: Value, two: Value) -> (Value, Value) {
    if one.is_null() || !two.is_null() && two < one { (two, one) } else { (one, two) }
}

fn overlaps(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let [first, first_end, second, second_end] = arguments else { return Err(mismatch(arguments)) };
    let (start, stop) = in_order(first.clone(), end(first, first_end, context)?);
    let (other, other_stop) = in_order(second.clone(), end(second, second_end, context)?);
    if start.is_null() || other.is_null() {
        return Ok(Value::Null);
    }
    // Whether the one that begins earlier lasts until the other begins; what is not known of the
    // other may matter.
    let lasts = |stop: &Value, until: &Value, other_stop: &Value| {
        if stop.is_null() {
            Value::Null
        } else if until < stop {
            Value::Bool(true)
        } else if other_stop.is_null() {
            Value::Null
        } else {
            Value::Bool(false)
        }
    };
    Ok(match start.cmp(&other) {
        Ordering::Less => lasts(&stop, &other, &other_stop),
        Ordering::Greater => lasts(&other_stop, &start, &stop),
        Ordering::Equal if stop.is_null() || other_stop.is_null() => Value::Null,
        Ordering::Equal => Value::Bool(true),
    })
}
