//! Functions of places in the log.

use super::{Function, mismatch};
use crate::{
    SqlError, SqlState,
    types::{Kind, Numeric, Packed, Value, numeric::Special},
};

const P: Kind = Kind::PgLsn;
const N: Kind = Kind::Numeric;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("-", &[P, P], N, |arguments, _| difference(arguments)),
    Function::new("pg_wal_lsn_diff", &[P, P], N, |arguments, _| difference(arguments)),
    Function::new("+", &[P, N], P, |arguments, _| match arguments {
        [place, Value::Numeric(by)] => moved(place, by, "add NaN to"),
        _ => Err(mismatch(arguments)),
    }),
    Function::new("+", &[N, P], P, |arguments, _| match arguments {
        [Value::Numeric(by), place] => moved(place, by, "add NaN to"),
        _ => Err(mismatch(arguments)),
    }),
    Function::new("-", &[P, N], P, |arguments, _| match arguments {
        [place, Value::Numeric(by)] => moved(place, &by.neg(), "subtract NaN from"),
        _ => Err(mismatch(arguments)),
    }),
    Function::new("pg_lsn", &[N], P, |arguments, _| match arguments {
        [Value::Numeric(number)] => place(number, "convert NaN to"),
        _ => Err(mismatch(arguments)),
    }),
];

fn number(value: &Value) -> Result<i128, SqlError> {
    match value {
        Value::Packed(packed) => packed.as_lsn().map(i128::from).ok_or_else(|| mismatch(std::slice::from_ref(value))),
        _ => Err(mismatch(std::slice::from_ref(value))),
    }
}

fn difference(arguments: &[Value]) -> Result<Value, SqlError> {
    let [one, other] = arguments else { return Err(mismatch(arguments)) };
    Ok(Value::Numeric(Numeric::from(number(one)? - number(other)?)))
}

fn moved(from: &Value, by: &Numeric, what: &str) -> Result<Value, SqlError> {
    if by.as_special() == Some(Special::NaN) {
        return place(by, what);
    }
    place(&Numeric::from(number(from)?).add(by)?, what)
}

/// The place with this number, rounded. `what` cannot be done with what is no number.
fn place(number: &Numeric, what: &str) -> Result<Value, SqlError> {
    let what = match number.as_special() {
        Some(Special::NaN) => what,
        Some(_) => "convert infinity to",
        None => {
            let whole = number.round(0)?.small().and_then(|it| u64::try_from(it.coefficient()).ok());
            let out_of_range = || SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "pg_lsn out of range");
            return whole.map(|lsn| Value::Packed(Packed::lsn(lsn))).ok_or_else(out_of_range);
        }
    };
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("cannot {what} pg_lsn")))
}
