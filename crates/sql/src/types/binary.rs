//! Values in the binary formats of the wire, which are big-endian.

use super::{
    Kind, Type, Value, ValueRef,
    array::{Array, Dimension, MAX_DIMENSIONS},
    datetime::{Date, Interval, Time, Timestamp},
    json, modifier,
    numeric::Numeric,
    packed::Packed,
    text,
    wire::{Reader, bad_format},
};
use crate::{SqlError, SqlState};

/// The version of the binary `jsonb`.
const JSONB_VERSION: u8 = 1;

#[cold]
fn out_of_range(what: &str) -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("{what} out of range"))
}

/// Reads a value of a type, and fits it to the type's modifier.
///
/// # Errors
/// 22P03 or 08P01 when the bytes are no such value, 22021 when they are no text, and what text
/// input returns for values that are out of range.
pub fn input(ty: Type, bytes: &[u8]) -> Result<Value, SqlError> {
    let kind = ty.kind();
    let mut reader = Reader::new(bytes);
    let value = match kind {
        Kind::Bool => Value::Bool(reader.u8()? != 0),
        Kind::Int2 => Value::Int2(reader.i16()?),
        Kind::Int4 => Value::Int4(reader.i32()?),
        Kind::Int8 => Value::Int8(reader.i64()?),
        Kind::Float4 => Value::Float4(reader.f32()?),
        Kind::Float8 => Value::Float8(reader.f64()?),
        Kind::Numeric => Value::Numeric(Numeric::read_binary(&mut reader, ty.precision())?),
        kind if kind.is_object_id() || kind == Kind::Xid => Value::Oid(reader.u32()?),
        Kind::SingleChar => Value::SingleChar(reader.u8()?),
        Kind::Date => {
            let date = Date(reader.i32()?);
            if date.is_finite() && Date::new(date.0.into()).is_none() {
                return Err(out_of_range("date"));
            }
            Value::Date(date)
        }
        Kind::Time => {
            let time = Time::new(reader.i64()?).ok_or_else(|| out_of_range("time"))?;
            Value::Time(time.rounded(ty.seconds_digits()))
        }
        Kind::Timestamp => Value::Timestamp(timestamp(&mut reader, ty)?),
        Kind::Timestamptz => Value::Timestamptz(timestamp(&mut reader, ty)?),
        Kind::Interval => {
            let (micros, days, months) = (reader.i64()?, reader.i32()?, reader.i32()?);
            Value::Interval(Interval { months, days, micros }.constrained(ty)?)
        }
        Kind::Uuid => Value::Uuid(reader.array()?),
        kind if kind.packed_width().is_some() => {
            modifier::fit(Value::Packed(Packed::read_binary(kind, &mut reader)?), ty, false)?
        }
        Kind::Bytea => return Ok(Value::bytea(bytes)),
        Kind::Text | Kind::Unknown => return Ok(Value::text(text::decode(bytes)?)),
        Kind::Name => return Ok(Value::text(modifier::cut_name(text::decode(bytes)?))),
        Kind::Varchar => return Ok(Value::text(modifier::fit_varchar(text::decode(bytes)?, ty, false)?)),
        Kind::Char => return Ok(Value::Char(modifier::fit_char(text::decode(bytes)?, ty, false)?.as_ref().into())),
        Kind::Json => {
            let text = text::decode(bytes)?;
            json::check(text)?;
            return Ok(Value::Json(text.into()));
        }
        Kind::Jsonb => {
            let version = reader.u8()?;
            if version != JSONB_VERSION {
                return Err(SqlError::new(
                    SqlState::INVALID_BINARY_REPRESENTATION,
                    format!("unsupported jsonb version number {version}"),
                ));
            }
            let text = text::decode(reader.rest())?;
            return Ok(Value::Jsonb(json::canonical(text)?.into()));
        }
        Kind::Void => return Ok(Value::text("")),
        _ => match ty.element() {
            Some(element) => return Ok(Value::array(input_array(bytes, Some(element))?)),
            None => {
                return Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("cannot accept a value of type {kind}"),
                ));
            }
        },
    };
    reader.end()?;
    Ok(value)
}

fn timestamp(reader: &mut Reader<'_>, ty: Type) -> Result<Timestamp, SqlError> {
    let timestamp = Timestamp(reader.i64()?);
    if !timestamp.is_finite() {
        return Ok(timestamp);
    }
    Timestamp::checked(timestamp.0.into())?.rounded(ty.seconds_digits())
}

/// Writes a value. Null is written as nothing.
pub fn output(value: ValueRef<'_>, out: &mut Vec<u8>) {
    match value {
        ValueRef::Null => {}
        ValueRef::Bool(value) => out.push(value.into()),
        ValueRef::Int2(value) => out.extend(value.to_be_bytes()),
        ValueRef::Int4(value) => out.extend(value.to_be_bytes()),
        ValueRef::Int8(value) => out.extend(value.to_be_bytes()),
        ValueRef::Float4(value) => out.extend(value.to_be_bytes()),
        ValueRef::Float8(value) => out.extend(value.to_be_bytes()),
        ValueRef::Numeric(value) => value.write_binary(out),
        ValueRef::Oid(value) => out.extend(value.to_be_bytes()),
        ValueRef::SingleChar(value) => out.push(value),
        ValueRef::Text(value) | ValueRef::Char(value) | ValueRef::Json(value) => out.extend(value.as_bytes()),
        ValueRef::Jsonb(value) => {
            out.push(JSONB_VERSION);
            out.extend(value.as_bytes());
        }
        ValueRef::Bytea(value) => out.extend(value),
        ValueRef::Date(value) => out.extend(value.0.to_be_bytes()),
        ValueRef::Time(value) => out.extend(value.0.to_be_bytes()),
        ValueRef::Timestamp(value) | ValueRef::Timestamptz(value) => out.extend(value.0.to_be_bytes()),
        ValueRef::Interval(value) => {
            out.extend(value.micros.to_be_bytes());
            out.extend(value.days.to_be_bytes());
            out.extend(value.months.to_be_bytes());
        }
        ValueRef::Uuid(value) => out.extend(value),
        ValueRef::Packed(value) => value.write_binary(out),
        ValueRef::Array(super::array::ArrayRef::Stored(bytes)) => out.extend(bytes),
        ValueRef::Array(value) => output_array(&value.to_array(), out),
    }
}

/// Writes an array: how many dimensions, whether there are nulls, the elements' type, the
/// dimensions, the elements.
pub(super) fn output_array(array: &Array, out: &mut Vec<u8>) {
    let nulls = array.values().iter().any(Value::is_null);
    out.extend((array.dimensions().len() as u32).to_be_bytes());
    out.extend(u32::from(nulls).to_be_bytes());
    out.extend(array.element().oid().to_be_bytes());
    for dimension in array.dimensions() {
        out.extend(dimension.length.to_be_bytes());
        out.extend(dimension.lower.to_be_bytes());
    }
    for value in array.values() {
        let start = out.len();
        out.extend((-1i32).to_be_bytes());
        if !value.is_null() {
            output(value.as_ref(), out);
            let length = (out.len() - start - 4) as i32;
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
}

/// The elements' kind of an array's binary form.
pub(super) fn stored_element(bytes: &[u8]) -> Option<Kind> {
    let mut reader = Reader::new(bytes);
    reader.take(8).ok()?;
    Kind::from_oid(reader.u32().ok()?)
}

/// Reads an array, of elements of this type if it is known beforehand.
pub(super) fn input_array(bytes: &[u8], expected: Option<Type>) -> Result<Array, SqlError> {
    let mut reader = Reader::new(bytes);
    let malformed = |message: String| SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, message);
    let count = reader.u32()?;
    if count as usize > MAX_DIMENSIONS {
        return Err(SqlError::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!("number of array dimensions ({count}) exceeds the maximum allowed ({MAX_DIMENSIONS})"),
        ));
    }
    let flags = reader.u32()?;
    if flags > 1 {
        return Err(malformed("invalid array flags".to_owned()));
    }
    let oid = reader.u32()?;
    let element = match (expected, Kind::from_oid(oid)) {
        (None, Some(kind)) => Type::of(kind),
        (Some(expected), _) if expected.oid() == oid => expected,
        // Drivers send what they take for text as text.
        (Some(expected), Some(Kind::Text | Kind::Varchar | Kind::Unknown))
            if matches!(expected.kind(), Kind::Text | Kind::Varchar | Kind::Char | Kind::Name) =>
        {
            expected
        }
        (expected, _) => {
            let expected = expected.map_or(0, Type::oid);
            return Err(SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!("binary data has array element type {oid} instead of expected {expected}"),
            ));
        }
    };
    let mut dimensions = Vec::with_capacity(count as usize);
    let mut total = usize::from(count > 0);
    for _ in 0..count {
        let (length, lower) = (reader.u32()?, reader.i32()?);
        dimensions.push(Dimension { length, lower });
        total = total.saturating_mul(length as usize);
    }
    // Each element has a length of four bytes at least: what claims more is not believed.
    if total > reader.rest().len() / 4 {
        return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, "insufficient data left in message"));
    }
    let mut values = Vec::with_capacity(total);
    for _ in 0..total {
        let length = reader.i32()?;
        values.push(match usize::try_from(length) {
            Ok(length) => input(element, reader.take(length)?)?,
            Err(_) if length == -1 => Value::Null,
            Err(_) => return Err(bad_format()),
        });
    }
    reader.end()?;
    Array::with_dimensions(element.kind(), dimensions, values)
}
