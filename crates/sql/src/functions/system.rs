//! Functions about sizes, encodings and other things around a database.

use super::{Function, SessionFunction, mismatch, take};
use crate::{
    SqlError, SqlState,
    types::{EvalContext, Kind, Numeric, Value, text},
};

const T: Kind = Kind::Text;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("pg_size_pretty", &[Kind::Int8], T, size_pretty),
    Function::new("pg_size_pretty", &[Kind::Numeric], T, size_pretty),
    Function::new("pg_size_bytes", &[T], Kind::Int8, size_bytes),
    Function::new("pg_client_encoding", &[], Kind::Name, client_encoding).stable(),
    Function::new("getdatabaseencoding", &[], Kind::Name, |_, _| Ok(Value::text("UTF8"))).stable(),
    Function::new("pg_char_to_encoding", &[Kind::Name], Kind::Int4, encoding_number).stable(),
    Function::new("pg_encoding_max_length", &[Kind::Int4], Kind::Int4, encoding_length),
    Function::new("to_regclass", &[T], Kind::Regclass, |arguments, context| find(arguments, Kind::Regclass, context))
        .stable(),
    Function::new("to_regtype", &[T], Kind::Regtype, |arguments, context| find(arguments, Kind::Regtype, context))
        .stable(),
    Function::new("to_regproc", &[T], Kind::Regproc, |arguments, context| find(arguments, Kind::Regproc, context))
        .stable(),
    Function::new("to_regoper", &[T], Kind::Regoper, |arguments, context| find(arguments, Kind::Regoper, context))
        .stable(),
    Function::new("to_regoperator", &[T], Kind::Regoperator, |arguments, context| {
        find(arguments, Kind::Regoperator, context)
    })
    .stable(),
    Function::new("to_regcollation", &[T], Kind::Regcollation, |arguments, context| {
        find(arguments, Kind::Regcollation, context)
    })
    .stable(),
    Function::new("to_regnamespace", &[T], Kind::Regnamespace, |arguments, context| {
        find(arguments, Kind::Regnamespace, context)
    })
    .stable(),
    Function::new("to_regrole", &[T], Kind::Regrole, |arguments, context| find(arguments, Kind::Regrole, context))
        .stable(),
];

/// PostgreSQL's numbers of the encodings that are known here; -1 for others.
/// The encoding that the client speaks.
fn client_encoding(_: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let name = Value::text("client_encoding");
    context.session.map_or_else(|| Ok(Value::text("UTF8")), |it| it.call(SessionFunction::CurrentSetting, &[name]))
}

fn encoding_number(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(name));
    let key: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    Ok(Value::Int4(match key.to_ascii_lowercase().as_str() {
        "sqlascii" => 0,
        "utf8" | "unicode" => 6,
        "latin1" | "iso88591" => 8,
        _ => -1,
    }))
}

/// How many bytes a character has at most, by the encoding's number.
fn encoding_length(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Int4(number));
    Ok(match number {
        0 | 8 => Value::Int4(1),
        6 => Value::Int4(4),
        _ => Value::Null,
    })
}

/// The object of a name; null if none exists.
fn find(arguments: &[Value], kind: Kind, context: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(name));
    // What is read as a number is no name.
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Value::Null);
    }
    match text::input(kind.into(), name, context) {
        Err(refused) if refused.state == SqlState::INSUFFICIENT_PRIVILEGE => Err(refused),
        found => Ok(found.unwrap_or_default()),
    }
}

fn size_pretty(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let mut size = match arguments {
        [Value::Int8(size)] => i128::from(*size),
        [Value::Numeric(size)] => return size_pretty_numeric(size),
        _ => return Err(mismatch(arguments)),
    };
    // Each unit is used until there are 10,240 of it; halves are rounded away from zero.
    let mut scaled = 1i128;
    let mut name = "bytes";
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        if size.abs() < 10 * 1024 * scaled {
            break;
        }
        scaled *= 1024;
        name = next;
    }
    if scaled > 1 {
        size = (size.abs() * 2 + scaled) / (2 * scaled) * size.signum();
    }
    Ok(Value::text(format!("{size} {name}")))
}

/// The same for numbers that are no whole ones: each unit is used up to 10,240, and rounded to
/// whole ones.
fn size_pretty_numeric(size: &Numeric) -> Result<Value, SqlError> {
    let limit = Numeric::from(10_240i32);
    let mut size = size.clone();
    if size.abs() < limit {
        return Ok(Value::text(format!("{size} bytes")));
    }
    // Half a unit of the next size is added before it is cut off.
    let divide = |size: &Numeric, by: i32| size.div_trunc(&Numeric::from(by));
    let half = |size: &Numeric| {
        let towards = if size.is_negative() { size.sub(&Numeric::ONE) } else { size.add(&Numeric::ONE) };
        towards.and_then(|size| size.div_trunc(&Numeric::from(2i32)))
    };
    size = divide(&size, 1 << 9)?;
    for unit in ["kB", "MB", "GB", "TB"] {
        if size.abs() < Numeric::from(20 * 1024 - 1) {
            return Ok(Value::text(format!("{} {unit}", half(&size)?)));
        }
        size = divide(&size, 1 << 10)?;
    }
    Ok(Value::text(format!("{} PB", half(&size)?)))
}

/// The number of bytes in a size like `1.5 GB`.
fn size_bytes(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text));
    let invalid = || SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid size: \"{text}\""));
    let trimmed = text.trim_matches(text::is_space);
    // The number: sign, digits with a point, and an exponent if digits follow.
    let bytes = trimmed.as_bytes();
    let mut end = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut count = digits(end);
    end += count;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        count += fraction;
        end += 1 + fraction;
    }
    if count == 0 {
        return Err(invalid());
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    let number = Numeric::parse(&trimmed[..end], None)?;
    let unit = trimmed[end..].trim_start_matches(text::is_space);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "bytes" => 1i64,
        "kb" => 1 << 10,
        "mb" => 1 << 20,
        "gb" => 1 << 30,
        "tb" => 1 << 40,
        "pb" => 1 << 50,
        _ => {
            return Err(invalid()
                .with_detail(format!("Invalid size unit: \"{unit}\"."))
                .with_hint("Valid units are \"bytes\", \"B\", \"kB\", \"MB\", \"GB\", \"TB\", and \"PB\"."));
        }
    };
    let size = number.mul(&Numeric::from(factor))?;
    size.to_i64()
        .map(Value::Int8)
        .ok_or_else(|| SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range"))
}
