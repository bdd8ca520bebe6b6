//! How values lie in their slots.
//!
//! The presence byte of most values is 1. A floating-point zero is stored without its sign, so that
//! keys have one zero; if it is negative, its presence byte is 2. The presence byte of a `numeric`
//! without a modifier is its scale plus 1: its bytes tell the value alone and sort as values do, so
//! that 1.0 and 1.00 have the same key. If the number is longer than 38 digits, or none that is
//! finite, its presence byte is 255, and its scale follows its bytes.

use std::str;

use crate::{
    Kind, SqlError, SqlState, Type, ValueRef,
    types::{
        ArrayRef, Date, Interval, NumericRef, Packed, Time, Timestamp,
        numeric::{Decimal, NAN_BYTES, SortBytes, read_sorted},
        without_blanks,
    },
};

/// How a type's values lie in their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Oid,
    SingleChar,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Uuid,
    /// The sort bytes of a packed type.
    Packed(Kind),
    /// Its length in microseconds, 16 bytes, which sorts as intervals do; then months and days.
    Interval,
    /// `numeric(p,s)` of up to 18 digits, with this scale: the coefficient in 8 bytes.
    Short(u8),
    /// `numeric(p,s)` of more digits, with this scale: the coefficient in 16 bytes.
    Long(u8),
    /// `numeric` without a modifier, or with more digits than those: its sort bytes.
    Numeric,
    Text,
    /// Place and length of what counts, and the length together with the blanks behind it.
    Char,
    Bytea,
    Json,
    Jsonb,
    /// Place and length of the array in PostgreSQL's binary form.
    Array,
    /// A dropped column's slot of this width.
    Dropped(u16),
}

/// The presence byte of most values, and that of a negative zero.
const PRESENT: u8 = 1;
const NEGATIVE_ZERO: u8 = 2;
/// The most digits that 8 bytes hold.
const SHORT_DIGITS: u16 = 18;
/// The presence byte of a number whose scale follows its bytes.
pub(super) const WIDE: u8 = 255;
/// In the place of a coefficient: not a number. It sorts behind all others.
pub(super) const SHORT_NAN: i64 = i64::MAX;
pub(super) const LONG_NAN: i128 = i128::MAX;

/// Presence byte, slot and bytes of variable length that a value is written as.
pub(super) struct Written<'a> {
    pub(super) presence: u8,
    pub(super) rest: Rest<'a>,
}

/// What a value has besides its slot.
pub(super) enum Rest<'a> {
    /// The slot says everything.
    None,
    /// Bytes; the first `length` count.
    Bytes { bytes: &'a [u8], counting: usize },
    /// The sort bytes of a number.
    Decimal(SortBytes),
    /// An array that is in a value.
    Array(ArrayRef<'a>),
}

#[inline]
fn number<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}

/// The bytes that a slot names, or as many as its word at `length_at` says.
#[inline]
pub(super) fn variable<'r>(slot: &[u8], length_at: usize, row: &'r [u8]) -> Option<&'r [u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(number(slot.get(at..)?)?) as usize);
    let (from, length) = (word(0)?, word(length_at)?);
    row.get(from..from.checked_add(length)?)
}

#[inline]
fn text<'r>(slot: &[u8], length_at: usize, row: &'r [u8]) -> Option<&'r str> {
    str::from_utf8(variable(slot, length_at, row)?).ok()
}

/// A number that equal ones have in common, and whether that hides that it is a negative zero.
fn canonical_f64(number: f64) -> (f64, bool) {
    if number.is_nan() {
        (f64::NAN, false)
    } else if number == 0.0 {
        (0.0, number.is_sign_negative())
    } else {
        (number, false)
    }
}

fn canonical_f32(number: f32) -> (f32, bool) {
    if number.is_nan() {
        (f32::NAN, false)
    } else if number == 0.0 {
        (0.0, number.is_sign_negative())
    } else {
        (number, false)
    }
}

/// The bits that keys are made of.
pub(super) fn float8_bits(number: f64) -> u64 {
    canonical_f64(number).0.to_bits()
}

pub(super) fn float4_bits(number: f32) -> u32 {
    canonical_f32(number).0.to_bits()
}

impl Form {
    pub(super) fn of(ty: Type) -> Result<Self, SqlError> {
        Ok(match ty.kind() {
            Kind::Bool => Self::Bool,
            Kind::Int2 => Self::Int2,
            Kind::Int4 => Self::Int4,
            Kind::Int8 => Self::Int8,
            Kind::Float4 => Self::Float4,
            Kind::Float8 => Self::Float8,
            Kind::SingleChar => Self::SingleChar,
            Kind::Date => Self::Date,
            Kind::Time => Self::Time,
            Kind::Timestamp => Self::Timestamp,
            Kind::Timestamptz => Self::Timestamptz,
            Kind::Uuid => Self::Uuid,
            kind if kind.packed_width().is_some() => Self::Packed(kind),
            Kind::Interval => Self::Interval,
            Kind::Numeric => match ty.precision() {
                Some(precision) => match precision.short_scale() {
                    Some(scale) if precision.digits <= SHORT_DIGITS => Self::Short(scale),
                    Some(scale) => Self::Long(scale),
                    None => Self::Numeric,
                },
                None => Self::Numeric,
            },
            Kind::Text | Kind::Varchar | Kind::Name | Kind::Unknown => Self::Text,
            Kind::Char => Self::Char,
            Kind::Bytea => Self::Bytea,
            Kind::Json => Self::Json,
            Kind::Jsonb => Self::Jsonb,
            kind if kind.is_object_id() || kind == Kind::Xid => Self::Oid,
            kind if kind.is_array() => Self::Array,
            kind => {
                return Err(SqlError::new(
                    SqlState::INVALID_TABLE_DEFINITION,
                    format!("column has pseudo-type {kind}"),
                ));
            }
        })
    }

    /// How many bytes a slot has, without the presence byte.
    pub(super) const fn width(self) -> u16 {
        match self {
            Self::Bool | Self::SingleChar => 1,
            Self::Int2 => 2,
            Self::Int4 | Self::Float4 | Self::Oid | Self::Date => 4,
            Self::Int8 | Self::Float8 | Self::Time | Self::Timestamp | Self::Timestamptz | Self::Short(_) => 8,
            Self::Uuid | Self::Long(_) => 16,
            Self::Packed(kind) => match kind.packed_width() {
                Some(width) => width as u16,
                None => 0,
            },
            Self::Interval => 24,
            Self::Numeric | Self::Text | Self::Bytea | Self::Json | Self::Jsonb | Self::Array => 8,
            Self::Char => 12,
            Self::Dropped(width) => width,
        }
    }

    /// Whether values have bytes outside of their slot.
    pub(super) const fn is_variable(self) -> bool {
        matches!(self, Self::Numeric | Self::Text | Self::Char | Self::Bytea | Self::Json | Self::Jsonb | Self::Array)
    }

    /// Where in the slot it says how long the bytes outside of it are.
    pub(super) const fn length_at(self) -> usize {
        if matches!(self, Self::Char) { 8 } else { 4 }
    }

    /// Reads a value that is there; nothing when it is damaged.
    #[inline]
    pub(super) fn read<'r>(self, presence: u8, slot: &'r [u8], row: &'r [u8]) -> Option<ValueRef<'r>> {
        Some(match self {
            Self::Int4 => ValueRef::Int4(i32::from_le_bytes(number(slot)?)),
            Self::Int8 => ValueRef::Int8(i64::from_le_bytes(number(slot)?)),
            Self::Text => ValueRef::Text(text(slot, 4, row)?),
            Self::Short(scale) => ValueRef::Numeric(short(i64::from_le_bytes(number(slot)?), scale)),
            _ => return self.read_any(presence, slot, row),
        })
    }

    fn read_any<'r>(self, presence: u8, slot: &'r [u8], row: &'r [u8]) -> Option<ValueRef<'r>> {
        Some(match self {
            Self::Bool => ValueRef::Bool(slot[0] != 0),
            Self::Int2 => ValueRef::Int2(i16::from_le_bytes(number(slot)?)),
            Self::Int4 => ValueRef::Int4(i32::from_le_bytes(number(slot)?)),
            Self::Int8 => ValueRef::Int8(i64::from_le_bytes(number(slot)?)),
            Self::Float4 => ValueRef::Float4(match f32::from_le_bytes(number(slot)?) {
                0.0 if presence == NEGATIVE_ZERO => -0.0,
                number => number,
            }),
            Self::Float8 => ValueRef::Float8(match f64::from_le_bytes(number(slot)?) {
                0.0 if presence == NEGATIVE_ZERO => -0.0,
                number => number,
            }),
            Self::Oid => ValueRef::Oid(u32::from_le_bytes(number(slot)?)),
            Self::SingleChar => ValueRef::SingleChar(slot[0]),
            Self::Date => ValueRef::Date(Date(i32::from_le_bytes(number(slot)?))),
            Self::Time => ValueRef::Time(Time(i64::from_le_bytes(number(slot)?))),
            Self::Timestamp => ValueRef::Timestamp(Timestamp(i64::from_le_bytes(number(slot)?))),
            Self::Timestamptz => ValueRef::Timestamptz(Timestamp(i64::from_le_bytes(number(slot)?))),
            Self::Uuid => ValueRef::Uuid(number(slot)?),
            Self::Packed(kind) => ValueRef::Packed(Packed::from_sort_bytes(kind, slot)?),
            Self::Interval => {
                let length = i128::from_le_bytes(number(slot)?);
                let months = i32::from_le_bytes(number(slot.get(16..)?)?);
                let days = i32::from_le_bytes(number(slot.get(20..)?)?);
                let rest = Interval { months, days, micros: 0 }.length();
                let micros = length.checked_sub(rest).and_then(|micros| i64::try_from(micros).ok())?;
                ValueRef::Interval(Interval { months, days, micros })
            }
            Self::Short(scale) => ValueRef::Numeric(short(i64::from_le_bytes(number(slot)?), scale)),
            Self::Long(scale) => ValueRef::Numeric(match i128::from_le_bytes(number(slot)?) {
                LONG_NAN => NumericRef::Wide(NAN_BYTES),
                coefficient => NumericRef::Small(Decimal::new(coefficient, scale.into())?),
            }),
            Self::Numeric if presence == WIDE => ValueRef::Numeric(NumericRef::Wide(wide(slot, row)?)),
            Self::Numeric => ValueRef::Numeric(NumericRef::Small(read_sorted(variable(slot, 4, row)?, presence - 1)?)),
            Self::Text => ValueRef::Text(text(slot, 4, row)?),
            Self::Char => ValueRef::Char(text(slot, 8, row)?),
            Self::Bytea => ValueRef::Bytea(variable(slot, 4, row)?),
            Self::Json => ValueRef::Json(text(slot, 4, row)?),
            Self::Jsonb => ValueRef::Jsonb(text(slot, 4, row)?),
            Self::Array => ValueRef::Array(ArrayRef::Stored(variable(slot, 4, row)?)),
            Self::Dropped(_) => ValueRef::Null,
        })
    }

    /// Writes a value that is not null into its slot, except for place and length; nothing when it
    /// is of another type.
    #[inline]
    pub(super) fn write<'v>(self, value: ValueRef<'v>, slot: &mut [u8]) -> Option<Written<'v>> {
        let mut presence = PRESENT;
        let mut rest = Rest::None;
        let mut put = |bytes: &[u8]| slot.copy_from_slice(bytes);
        match (self, value) {
            (Self::Int4, ValueRef::Int4(value)) => put(&value.to_le_bytes()),
            (Self::Int8, ValueRef::Int8(value)) => put(&value.to_le_bytes()),
            (Self::Text, ValueRef::Text(value)) => rest = whole(value.as_bytes()),
            (Self::Bool, ValueRef::Bool(value)) => put(&[value.into()]),
            (Self::Int2, ValueRef::Int2(value)) => put(&value.to_le_bytes()),
            (Self::Float4, ValueRef::Float4(value)) => {
                let (number, negative_zero) = canonical_f32(value);
                put(&number.to_le_bytes());
                if negative_zero {
                    presence = NEGATIVE_ZERO;
                }
            }
            (Self::Float8, ValueRef::Float8(value)) => {
                let (number, negative_zero) = canonical_f64(value);
                put(&number.to_le_bytes());
                if negative_zero {
                    presence = NEGATIVE_ZERO;
                }
            }
            (Self::Oid, ValueRef::Oid(value)) => put(&value.to_le_bytes()),
            (Self::SingleChar, ValueRef::SingleChar(value)) => put(&[value]),
            (Self::Date, ValueRef::Date(value)) => put(&value.0.to_le_bytes()),
            (Self::Time, ValueRef::Time(value)) => put(&value.0.to_le_bytes()),
            (Self::Timestamp, ValueRef::Timestamp(value)) | (Self::Timestamptz, ValueRef::Timestamptz(value)) => {
                put(&value.0.to_le_bytes());
            }
            (Self::Uuid, ValueRef::Uuid(value)) => put(&value),
            (Self::Packed(kind), ValueRef::Packed(value)) if value.kind() == kind => put(value.sort_bytes().as_slice()),
            (Self::Interval, ValueRef::Interval(value)) => {
                slot[..16].copy_from_slice(&value.length().to_le_bytes());
                slot[16..20].copy_from_slice(&value.months.to_le_bytes());
                slot[20..].copy_from_slice(&value.days.to_le_bytes());
            }
            (Self::Short(_), ValueRef::Numeric(value)) if is_nan(value) => put(&SHORT_NAN.to_le_bytes()),
            (Self::Long(_), ValueRef::Numeric(value)) if is_nan(value) => put(&LONG_NAN.to_le_bytes()),
            (Self::Short(scale), ValueRef::Numeric(value)) => {
                put(&i64::try_from(coefficient(value, scale)?).ok()?.to_le_bytes());
            }
            (Self::Long(scale), ValueRef::Numeric(value)) => put(&coefficient(value, scale)?.to_le_bytes()),
            (Self::Numeric, ValueRef::Numeric(NumericRef::Small(value))) => {
                presence = value.scale() as u8 + 1;
                rest = Rest::Decimal(SortBytes::of(value));
            }
            (Self::Numeric, ValueRef::Numeric(NumericRef::Wide(bytes))) => {
                presence = WIDE;
                rest = Rest::Bytes { bytes, counting: bytes.len().checked_sub(2)? };
            }
            (Self::Char, ValueRef::Char(value)) => {
                rest = Rest::Bytes { bytes: value.as_bytes(), counting: without_blanks(value).len() };
            }
            (Self::Bytea, ValueRef::Bytea(value)) => rest = whole(value),
            (Self::Json, ValueRef::Json(value)) | (Self::Jsonb, ValueRef::Jsonb(value)) => {
                rest = whole(value.as_bytes());
            }
            (Self::Array, ValueRef::Array(ArrayRef::Stored(bytes))) => rest = whole(bytes),
            (Self::Array, ValueRef::Array(array)) => rest = Rest::Array(array),
            _ => return None,
        }
        Some(Written { presence, rest })
    }
}

fn whole(bytes: &[u8]) -> Rest<'_> {
    Rest::Bytes { bytes, counting: bytes.len() }
}

/// The scale is that of a type, and any coefficient of 8 bytes is in range.
#[inline]
fn short(coefficient: i64, scale: u8) -> NumericRef<'static> {
    if coefficient == SHORT_NAN {
        return NumericRef::Wide(NAN_BYTES);
    }
    NumericRef::Small(Decimal::make(coefficient as i128, scale))
}

#[inline]
fn is_nan(number: NumericRef<'_>) -> bool {
    matches!(number, NumericRef::Wide(NAN_BYTES))
}

/// The bytes that a slot names, and the scale behind them.
pub(super) fn wide<'r>(slot: &[u8], row: &'r [u8]) -> Option<&'r [u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(number(slot.get(at..)?)?) as usize);
    let (from, length) = (word(0)?, word(4)?);
    row.get(from..from.checked_add(length)?.checked_add(2)?)
}

/// The coefficient that a number has at this scale, if it has no digit behind that.
#[inline]
fn coefficient(number: NumericRef<'_>, scale: u8) -> Option<i128> {
    match number {
        NumericRef::Small(number) if number.scale() == u32::from(scale) => Some(number.coefficient()),
        _ => {
            let number = number.to_numeric();
            let rescaled = number.rescaled(scale.into()).filter(|rescaled| *rescaled == number)?;
            rescaled.small().map(Decimal::coefficient)
        }
    }
}
