//! Fitting values to their types' modifiers: lengths, precisions, fields.

use std::borrow::Cow;

use super::{Kind, Packed, Type, Value, array::Array};
use crate::{SqlError, SqlState};

/// The longest `name`, in bytes.
const NAME_LENGTH: usize = 63;

/// As much of a name as fits.
pub(crate) fn cut_name(text: &str) -> &str {
    if text.len() <= NAME_LENGTH {
        return text;
    }
    &text[..text.floor_char_boundary(NAME_LENGTH)]
}

/// Where the first `length` characters end, if there are more.
fn end_of(text: &str, length: usize) -> Option<usize> {
    // Text has no more characters than bytes.
    if text.len() <= length {
        return None;
    }
    text.char_indices().nth(length).map(|(at, _)| at)
}

#[cold]
fn too_long(ty: Type) -> SqlError {
    let ty = ty.element().unwrap_or(ty);
    SqlError::new(SqlState::STRING_DATA_RIGHT_TRUNCATION, format!("value too long for type {ty}"))
}

/// Text as a `varchar(n)` holds it. What is too long is cut off if it is blank, or if that was
/// asked for.
pub(crate) fn fit_varchar(text: &str, ty: Type, explicit: bool) -> Result<&str, SqlError> {
    match ty.character_length().and_then(|length| end_of(text, length)) {
        None => Ok(text),
        Some(end) if explicit || text[end..].bytes().all(|byte| byte == b' ') => Ok(&text[..end]),
        Some(_) => Err(too_long(ty)),
    }
}

/// Text as a `char(n)` holds it: cut off like a `varchar(n)`, or filled with blanks.
pub(crate) fn fit_char(text: &str, ty: Type, explicit: bool) -> Result<Cow<'_, str>, SqlError> {
    let Some(length) = ty.character_length() else { return Ok(text.into()) };
    match end_of(text, length) {
        Some(end) if explicit || text[end..].bytes().all(|byte| byte == b' ') => Ok(text[..end].into()),
        Some(_) => Err(too_long(ty)),
        None => {
            let missing = length - text.chars().count();
            if missing == 0 {
                return Ok(text.into());
            }
            let mut padded = String::with_capacity(text.len() + missing);
            padded.push_str(text);
            padded.extend(std::iter::repeat_n(' ', missing));
            Ok(padded.into())
        }
    }
}

/// Fits a value of a type's kind to the type's modifier. In explicit casts, what is too long is cut
/// off.
///
/// # Errors
/// 22001 when text is too long, 22003 when a number has too many digits, 22008 when a time leaves
/// its range.
pub fn fit(value: Value, ty: Type, explicit: bool) -> Result<Value, SqlError> {
    if ty.modifier() < 0 {
        return Ok(value);
    }
    Ok(match value {
        Value::Text(text) if ty.kind() == Kind::Varchar => {
            let fitted = fit_varchar(&text, ty, explicit)?;
            if fitted.len() == text.len() { Value::Text(text) } else { Value::text(fitted) }
        }
        Value::Char(text) => {
            let fitted = fit_char(&text, ty, explicit)?;
            if fitted.len() == text.len() { Value::Char(text) } else { Value::Char(fitted.as_ref().into()) }
        }
        Value::Numeric(number) => match ty.precision() {
            Some(precision) => Value::Numeric(number.constrained(precision)?),
            None => Value::Numeric(number),
        },
        Value::Time(time) => Value::Time(time.rounded(ty.seconds_digits())),
        Value::Packed(packed) => match packed.as_timetz() {
            Some(time) => Value::Packed(Packed::timetz(time.rounded(ty.seconds_digits()))),
            None => Value::Packed(packed),
        },
        Value::Timestamp(timestamp) => Value::Timestamp(timestamp.rounded(ty.seconds_digits())?),
        Value::Timestamptz(timestamp) => Value::Timestamptz(timestamp.rounded(ty.seconds_digits())?),
        Value::Interval(interval) => Value::Interval(interval.constrained(ty)?),
        Value::Array(array) => match ty.element() {
            Some(element) => {
                let fitted: Array = array.map(array.element(), |value| fit(value.clone(), element, explicit))?;
                Value::array(fitted)
            }
            None => Value::Array(array),
        },
        value => value,
    })
}
