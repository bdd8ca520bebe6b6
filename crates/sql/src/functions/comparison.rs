//! Comparison.

use std::cmp::Ordering;

use super::{Function, mismatch};
use crate::{
    SqlError,
    types::{EvalContext, Kind, TimeZone, Timestamp, Value, compare_floats},
};

/// All six operators between two kinds.
macro_rules! operators {
    ($($one:ident $two:ident: $module:ident),+ $(,)?) => {
        &[$(
            Function::new("=", &[Kind::$one, Kind::$two], Kind::Bool, $module::equal),
            Function::new("<>", &[Kind::$one, Kind::$two], Kind::Bool, $module::not_equal),
            Function::new("<", &[Kind::$one, Kind::$two], Kind::Bool, $module::less),
            Function::new("<=", &[Kind::$one, Kind::$two], Kind::Bool, $module::less_or_equal),
            Function::new(">", &[Kind::$one, Kind::$two], Kind::Bool, $module::greater),
            Function::new(">=", &[Kind::$one, Kind::$two], Kind::Bool, $module::greater_or_equal),
        )+]
    };
}

pub(super) const FUNCTIONS: &[Function] = operators![
    Bool Bool: same,
    Int2 Int2: same,
    Int4 Int4: same,
    Int8 Int8: same,
    Int2 Int4: integers,
    Int2 Int8: integers,
    Int4 Int2: integers,
    Int4 Int8: integers,
    Int8 Int2: integers,
    Int8 Int4: integers,
    Float4 Float4: same,
    Float8 Float8: same,
    Float4 Float8: floats,
    Float8 Float4: floats,
    Numeric Numeric: same,
    Oid Oid: same,
    Xid Xid: same,
    SingleChar SingleChar: same,
    Text Text: same,
    Name Name: same,
    Name Text: same,
    Text Name: same,
    Char Char: same,
    Bytea Bytea: same,
    Date Date: same,
    Time Time: same,
    Timestamp Timestamp: same,
    Timestamptz Timestamptz: same,
    Date Timestamp: times,
    Date Timestamptz: times,
    Timestamp Date: times,
    Timestamp Timestamptz: times,
    Timestamptz Date: times,
    Timestamptz Timestamp: times,
    Interval Interval: same,
    Uuid Uuid: same,
    Inet Inet: same,
    Macaddr Macaddr: same,
    Macaddr8 Macaddr8: same,
    Timetz Timetz: same,
    PgLsn PgLsn: same,
    Jsonb Jsonb: same,
    AnyArray AnyArray: same,
];

/// The six functions that follow from an order.
macro_rules! from_order {
    ($module:ident, $compare:path) => {
        mod $module {
            use super::*;

            fn compare(arguments: &[Value], context: &EvalContext<'_>) -> Result<Ordering, SqlError> {
                match arguments {
                    [one, two] => $compare(one, two, context).ok_or_else(|| mismatch(arguments)),
                    _ => Err(mismatch(arguments)),
                }
            }

            pub fn equal(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
                Ok(Value::Bool(compare(arguments, context)?.is_eq()))
            }

            pub fn not_equal(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
                Ok(Value::Bool(compare(arguments, context)?.is_ne()))
            }

            pub fn less(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
                Ok(Value::Bool(compare(arguments, context)?.is_lt()))
            }

            pub fn less_or_equal(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
                Ok(Value::Bool(compare(arguments, context)?.is_le()))
            }

            pub fn greater(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
                Ok(Value::Bool(compare(arguments, context)?.is_gt()))
            }

            pub fn greater_or_equal(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
                Ok(Value::Bool(compare(arguments, context)?.is_ge()))
            }
        }
    };
}

from_order!(same, compare_same);
from_order!(integers, compare_integers);
from_order!(floats, compare_mixed_floats);
from_order!(times, compare_times);

#[inline]
fn compare_same(one: &Value, two: &Value, _: &EvalContext<'_>) -> Option<Ordering> {
    Some(one.as_ref().compare(two.as_ref()))
}

fn compare_integers(one: &Value, two: &Value, _: &EvalContext<'_>) -> Option<Ordering> {
    Some(one.as_i64()?.cmp(&two.as_i64()?))
}

fn compare_mixed_floats(one: &Value, two: &Value, _: &EvalContext<'_>) -> Option<Ordering> {
    let number = |value: &Value| match value {
        Value::Float4(number) => Some(f64::from(*number)),
        Value::Float8(number) => Some(*number),
        _ => None,
    };
    Some(compare_floats(number(one)?, number(two)?))
}

/// Dates are their midnights; times without a zone are those of the session's.
fn compare_times(one: &Value, two: &Value, context: &EvalContext<'_>) -> Option<Ordering> {
    let zoned = matches!(one, Value::Timestamptz(_)) || matches!(two, Value::Timestamptz(_));
    let zone = if zoned { context.zone } else { TimeZone::Utc };
    let moment = |value: &Value| -> Option<Timestamp> {
        let local = match value {
            Value::Timestamptz(moment) => return Some(*moment),
            Value::Timestamp(local) => *local,
            Value::Date(date) => date.saturating_timestamp(),
            _ => return None,
        };
        // Out of range either way, it is beyond all others on its side.
        Some(local.to_utc(zone).unwrap_or(if local.0 < 0 { Timestamp::MINUS_INFINITY } else { Timestamp::INFINITY }))
    };
    Some(moment(one)?.cmp(&moment(two)?))
}
