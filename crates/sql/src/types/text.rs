//! Values as text: what clients send and see, and what casts from and to text do.

use std::{fmt::Write, sync::Arc};

use super::{
    EvalContext, Kind, Type, Value, ValueRef,
    array::Array,
    bytes,
    datetime::{Date, Interval, Time, Timestamp},
    float, json, modifier,
    numeric::Numeric,
    packed::Packed,
};
use crate::{SqlError, SqlState};

/// White space, as C's `isspace` has it.
pub const fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}')
}

/// The error for text that is no value of a type.
#[cold]
pub(crate) fn invalid(kind: Kind, text: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("invalid input syntax for type {kind}: \"{text}\""))
}

/// Reads a value of a type, and fits it to the type's modifier.
///
/// # Errors
/// 22P02, 22007 and others when the text is no such value, 22003 and 22008 when it is out of range,
/// 22001 when it is too long, 22021 when it has a zero byte.
pub fn input(ty: Type, text: &str, context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let kind = ty.kind();
    Ok(match kind {
        Kind::Bool => Value::Bool(parse_bool(text)?),
        Kind::Int2 => Value::Int2(parse_integer(kind, text)?),
        Kind::Int4 => Value::Int4(parse_integer(kind, text)?),
        Kind::Int8 => Value::Int8(parse_integer(kind, text)?),
        Kind::Float4 => Value::Float4(float::parse_f32(text)?),
        Kind::Float8 => Value::Float8(float::parse_f64(text)?),
        Kind::Numeric => Value::Numeric(Numeric::parse(text, ty.precision())?),
        Kind::Oid | Kind::Xid => Value::Oid(parse_object_id(kind, text)?),
        kind if kind.is_object_alias() => Value::Oid(parse_object_name(kind, text, context)?),
        Kind::SingleChar => Value::SingleChar(text.bytes().next().unwrap_or(0)),
        Kind::Text | Kind::Unknown => Value::Text(checked(text)?.into()),
        Kind::Name => Value::Text(modifier::cut_name(checked(text)?).into()),
        Kind::Varchar => Value::Text(modifier::fit_varchar(checked(text)?, ty, false)?.into()),
        Kind::Char => Value::Char(modifier::fit_char(checked(text)?, ty, false)?.as_ref().into()),
        Kind::Bytea => Value::Bytea(bytes::parse(text)?.into()),
        Kind::Date => Value::Date(Date::parse(text, context.moment())?),
        Kind::Time => Value::Time(Time::parse(text, context.moment())?.rounded(ty.seconds_digits())),
        Kind::Timestamp => Value::Timestamp(Timestamp::parse(text, context.moment())?.rounded(ty.seconds_digits())?),
        Kind::Timestamptz => {
            Value::Timestamptz(Timestamp::parse_zoned(text, context.moment())?.rounded(ty.seconds_digits())?)
        }
        Kind::Interval => Value::Interval(Interval::parse(text, ty, context.formats.interval)?),
        Kind::Uuid => Value::Uuid(parse_uuid(text)?),
        kind if kind.packed_width().is_some() => {
            modifier::fit(Value::Packed(Packed::parse(kind, text, context)?), ty, false)?
        }
        Kind::Json => {
            json::check(checked(text)?)?;
            Value::Json(text.into())
        }
        Kind::Jsonb => Value::Jsonb(json::canonical(checked(text)?)?.into()),
        Kind::Void => Value::Text("".into()),
        Kind::Int2Vector | Kind::OidVector => {
            let element = kind.element().unwrap_or(Kind::Oid);
            let values = text
                .split_ascii_whitespace()
                .map(|item| input(Type::of(element), item, context))
                .collect::<Result<Vec<_>, _>>()?;
            Value::array(Array::with_lower(element, values, 0))
        }
        Kind::Any | Kind::AnyArray | Kind::AnyElement | Kind::AnyNonArray => {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("cannot accept a value of type {kind}"),
            ));
        }
        _ => match ty.element() {
            Some(element) => Value::array(Array::parse(text, element, context)?),
            None => return Err(SqlError::internal(format!("no text input for type {kind}"))),
        },
    })
}

/// The value of a number that stands in a statement: the first of `integer`, `bigint` and `numeric`
/// that holds it.
///
/// # Errors
/// 22P02 when it is no number, 22003 when it is too large for any type.
pub fn number(digits: &str) -> Result<Value, SqlError> {
    if let Ok(number) = digits.parse() {
        return Ok(Value::Int4(number));
    }
    if let Ok(number) = digits.parse() {
        return Ok(Value::Int8(number));
    }
    Numeric::parse(digits, None).map(Value::Numeric)
}

/// Writes a value of a type. Null is written as nothing.
pub fn output_as(kind: Kind, value: ValueRef<'_>, context: &EvalContext<'_>, out: &mut String) {
    match value {
        ValueRef::Oid(id) if kind.is_object_alias() => write_object_name(kind, id, context, out),
        ValueRef::Array(array) if matches!(kind, Kind::Int2Vector | Kind::OidVector) => {
            for (at, value) in array.to_array().values().iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                output(value.as_ref(), context, out);
            }
        }
        _ => output(value, context, out),
    }
}

/// Writes a value of the kind that it tells itself. Null is written as nothing.
pub fn output(value: ValueRef<'_>, context: &EvalContext<'_>, out: &mut String) {
    match value {
        ValueRef::Null => {}
        ValueRef::Bool(value) => out.push(if value { 't' } else { 'f' }),
        ValueRef::Int2(value) => write_integer(value.into(), out),
        ValueRef::Int4(value) => write_integer(value.into(), out),
        ValueRef::Int8(value) => write_integer(value, out),
        ValueRef::Float4(value) => float::write_f32(value, context.formats.float_digits, out),
        ValueRef::Float8(value) => float::write_f64(value, context.formats.float_digits, out),
        ValueRef::Numeric(value) => value.write(out),
        ValueRef::Oid(value) => write_integer(value.into(), out),
        ValueRef::SingleChar(value) => write_single_char(value, out),
        ValueRef::Text(value) | ValueRef::Char(value) | ValueRef::Json(value) | ValueRef::Jsonb(value) => {
            out.push_str(value);
        }
        ValueRef::Bytea(value) if context.formats.bytea_escape => bytes::write_octal(value, out),
        ValueRef::Bytea(value) => bytes::write(value, out),
        ValueRef::Date(value) => value.write_styled(context.formats, out),
        ValueRef::Time(value) => value.write(out),
        ValueRef::Timestamp(value) => value.write_styled(None, context.formats, out),
        ValueRef::Timestamptz(value) => value.write_styled(Some(context.zone), context.formats, out),
        ValueRef::Interval(value) => value.write_styled(context.formats.interval, out),
        ValueRef::Uuid(value) => write_uuid(value, out),
        ValueRef::Packed(value) => value.write(out),
        ValueRef::Array(value) => value.to_array().write(context, out),
    }
}

/// A value as a text of its own.
pub fn to_text(kind: Kind, value: &Value, context: &EvalContext<'_>) -> Arc<str> {
    match value {
        Value::Text(text) | Value::Json(text) | Value::Jsonb(text) => Arc::clone(text),
        _ => {
            let mut text = String::new();
            output_as(kind, value.as_ref(), context, &mut text);
            text.into()
        }
    }
}

/// Text without zero bytes, which no text may have.
pub(crate) fn checked(text: &str) -> Result<&str, SqlError> {
    if text.as_bytes().contains(&0) { Err(bad_encoding(&[0])) } else { Ok(text) }
}

/// The error for bytes that are no text.
#[cold]
pub(crate) fn bad_encoding(bytes: &[u8]) -> SqlError {
    let mut message = "invalid byte sequence for encoding \"UTF8\":".to_owned();
    for byte in bytes {
        let _ = write!(message, " 0x{byte:02x}");
    }
    SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
}

/// Bytes as text.
///
/// # Errors
/// 22021 when they are not UTF-8, or one of them is zero.
pub fn decode(bytes: &[u8]) -> Result<&str, SqlError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => checked(text),
        Err(error) => {
            let bad = &bytes[error.valid_up_to()..];
            // As many bytes as the first one announces.
            let length = match bad.first() {
                Some(0xc2..=0xdf) => 2,
                Some(0xe0..=0xef) => 3,
                Some(0xf0..=0xf7) => 4,
                _ => 1,
            };
            Err(bad_encoding(&bad[..length.min(bad.len())]))
        }
    }
}

/// Reads a boolean: `true`, `yes`, `on`, `1` and their opposites, or a beginning that tells which
/// is meant.
fn parse_bool(text: &str) -> Result<bool, SqlError> {
    let word = text.trim_matches(is_space);
    let begins = |full: &str| {
        !word.is_empty()
            && full.as_bytes().get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
    };
    if begins("true") || begins("yes") || word == "1" || word.eq_ignore_ascii_case("on") {
        return Ok(true);
    }
    // "o" alone could be both.
    if begins("false") || begins("no") || word == "0" || word.len() >= 2 && begins("off") {
        return Ok(false);
    }
    Err(invalid(Kind::Bool, text))
}

/// Reads digits with a sign.
fn parse_integer<T: TryFrom<i64>>(kind: Kind, text: &str) -> Result<T, SqlError> {
    let body = text.trim_matches(is_space);
    let digits = body.strip_prefix(['-', '+']).unwrap_or(body);
    let rest = digits.trim_start_matches(|digit: char| digit.is_ascii_digit());
    if digits.len() == rest.len() {
        return Err(invalid(kind, text));
    }
    let out_of_range = || {
        SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("value \"{text}\" is out of range for type {kind}"))
    };
    let digits = &digits[..digits.len() - rest.len()];
    let negative = digits.parse().ok().and_then(|number: u64| 0_i64.checked_sub_unsigned(number));
    // What is too large for either sign is so, whatever follows, as in PostgreSQL.
    let negative = negative.filter(|number| T::try_from(*number).is_ok()).ok_or_else(out_of_range)?;
    if !rest.is_empty() {
        return Err(invalid(kind, text));
    }
    let number = if body.starts_with('-') { Some(negative) } else { negative.checked_neg() };
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(out_of_range)
}

fn write_integer(number: i64, out: &mut String) {
    // Twenty bytes hold any of them.
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push('-');
    }
    out.push_str(std::str::from_utf8(&digits[at..]).unwrap_or(""));
}

/// Reads an object id; negative numbers are taken as the unsigned ones of the same bits.
fn parse_object_id(kind: Kind, text: &str) -> Result<u32, SqlError> {
    let body = text.trim_matches(is_space);
    let digits = body.strip_prefix(['-', '+']).unwrap_or(body);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid(kind, text));
    }
    let number: Option<i64> = body.parse().ok();
    number
        .and_then(|number| {
            u32::try_from(number).ok().or_else(|| i32::try_from(number).ok().map(|number| number as u32))
        })
        .ok_or_else(|| {
            SqlError::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!("value \"{text}\" is out of range for type {kind}"),
            )
        })
}

/// Reads the name of an object, or its id.
fn parse_object_name(kind: Kind, text: &str, context: &EvalContext<'_>) -> Result<u32, SqlError> {
    if text == "-" {
        return Ok(0);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return parse_object_id(Kind::Oid, text);
    }
    if kind == Kind::Regtype
        && let Some(ty) = Type::from_name(text)
    {
        return Ok(ty.oid());
    }
    context.names.map_or(Ok(None), |names| names.id_of(kind, text))?.ok_or_else(|| {
        let (state, what) = match kind {
            Kind::Regclass => (SqlState::UNDEFINED_TABLE, "relation"),
            Kind::Regtype => (SqlState::UNDEFINED_OBJECT, "type"),
            Kind::Regnamespace => (SqlState::INVALID_SCHEMA_NAME, "schema"),
            Kind::Regrole => (SqlState::UNDEFINED_OBJECT, "role"),
            Kind::Regoper | Kind::Regoperator => {
                let message = format!("operator does not exist: {text}");
                return SqlError::new(SqlState::UNDEFINED_FUNCTION, message);
            }
            Kind::Regcollation => {
                let message = format!("collation \"{text}\" for encoding \"UTF8\" does not exist");
                return SqlError::new(SqlState::UNDEFINED_OBJECT, message);
            }
            _ => (SqlState::UNDEFINED_FUNCTION, "function"),
        };
        SqlError::new(state, format!("{what} \"{text}\" does not exist"))
    })
}

fn write_object_name(kind: Kind, id: u32, context: &EvalContext<'_>, out: &mut String) {
    if id == 0 {
        return out.push('-');
    }
    if let Some(name) = context.names.and_then(|names| names.name_of(kind, id)) {
        return out.push_str(&name);
    }
    match Kind::from_oid(id) {
        Some(ty) if kind == Kind::Regtype => out.push_str(ty.sql_name()),
        _ => write_integer(id.into(), out),
    }
}

/// Writes a `"char"`: nothing for zero, bytes that are no ASCII in octal.
fn write_single_char(byte: u8, out: &mut String) {
    match byte {
        0 => {}
        0x80.. => {
            let _ = write!(out, "\\{byte:03o}");
        }
        _ => out.push(char::from(byte)),
    }
}

/// Reads a UUID: 32 digits, perhaps in braces, perhaps with a hyphen behind any group of four.
fn parse_uuid(text: &str) -> Result<[u8; 16], SqlError> {
    let error = || invalid(Kind::Uuid, text);
    let body = match text.strip_prefix('{') {
        Some(body) => body.strip_suffix('}').ok_or_else(error)?,
        None => text,
    };
    let mut uuid = [0; 16];
    let mut rest = body.as_bytes();
    for (at, byte) in uuid.iter_mut().enumerate() {
        if at > 0
            && at % 2 == 0
            && let [b'-', after @ ..] = rest
        {
            rest = after;
        }
        let [high, low, after @ ..] = rest else { return Err(error()) };
        *byte =
            bytes::hex_digit(*high).zip(bytes::hex_digit(*low)).map(|(high, low)| high << 4 | low).ok_or_else(error)?;
        rest = after;
    }
    if rest.is_empty() { Ok(uuid) } else { Err(error()) }
}

fn write_uuid(uuid: [u8; 16], out: &mut String) {
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        bytes::write_hex(*byte, out);
    }
}
