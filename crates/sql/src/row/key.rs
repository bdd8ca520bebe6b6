//! Index keys: what the engine computes from a column of a row, and the same from a value that is
//! searched for.

use super::form::{Form, LONG_NAN, SHORT_NAN, float4_bits, float8_bits};
use crate::{
    SqlError, SqlState, ValueRef,
    types::{
        Kind, NumericRef,
        numeric::{Decimal, POWERS, SortBytes, Special},
        without_blanks,
    },
};

/// How a column's bytes become part of a key that sorts as the column's values do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEncoding {
    /// The column's bytes, as they are.
    Bytes,
    /// A little-endian unsigned integer, written big-endian.
    Unsigned,
    /// A little-endian two's-complement integer, written big-endian with its sign bit flipped.
    Signed,
    /// A little-endian IEEE number: negative ones with all bits flipped, others with the sign bit.
    Float,
    /// Place and length of bytes elsewhere in the row: written with each zero byte as `00 FF`, and
    /// ended by `00 00`.
    Variable,
}

/// A column of an index, as the engine has to know it, and how values are written into its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    /// Where the column starts in the row, in bytes; the byte before it is 0 for null.
    pub offset: u16,
    /// Its width, in bytes.
    pub width: u16,
    /// How it is written into the key.
    pub encoding: KeyEncoding,
    /// Whether the byte before the column says that there is a value: always.
    pub nullable: bool,
    /// Whether larger values come first: all bytes are flipped.
    pub descending: bool,
    /// Whether null is smaller than all values. Otherwise it is larger.
    pub null_low: bool,
    form: Form,
}

/// The byte before a value in a key, and in place of one that is null.
pub(super) const PRESENT: u8 = 1;
const NULL: u8 = 2;
const NULL_LOW: u8 = 0;

/// Where a value lies among those that a column can hold.
pub(super) enum Position<'v> {
    /// The column can hold it, as this.
    At(ValueRef<'v>),
    /// Above this value of the column, and below all larger ones.
    Above(ValueRef<'v>),
    /// Below every value of the column.
    BelowAll,
    /// Above every value of the column.
    AboveAll,
}

impl KeyColumn {
    pub(super) fn new(offset: u16, form: Form, descending: bool) -> Option<Self> {
        let (width, encoding) = match form {
            Form::Bool | Form::SingleChar | Form::Oid => (form.width(), KeyEncoding::Unsigned),
            Form::Int2
            | Form::Int4
            | Form::Int8
            | Form::Date
            | Form::Time
            | Form::Timestamp
            | Form::Timestamptz
            | Form::Short(_)
            | Form::Long(_) => (form.width(), KeyEncoding::Signed),
            Form::Float4 | Form::Float8 => (form.width(), KeyEncoding::Float),
            Form::Uuid | Form::Packed(_) => (form.width(), KeyEncoding::Bytes),
            Form::Interval => (16, KeyEncoding::Signed),
            Form::Numeric | Form::Text | Form::Char | Form::Bytea => (8, KeyEncoding::Variable),
            Form::Json | Form::Jsonb | Form::Array | Form::Dropped(_) => return None,
        };
        Some(Self { offset, width, encoding, nullable: true, descending, null_low: false, form })
    }

    /// The same, with nulls before all values, or behind them. Without this they come where
    /// PostgreSQL has them by default: behind values that ascend, before those that descend.
    pub fn nulls_first(self, first: bool) -> Self {
        Self { null_low: first != self.descending, ..self }
    }

    /// What stands for null in a key, before it is [directed](Self::direct).
    pub(super) fn null(&self) -> u8 {
        if self.null_low { NULL_LOW } else { NULL }
    }

    /// Appends to a key what the engine computes from a row with this value in the column: null
    /// included. Says whether the column can hold the value at all; if it cannot, no row has it,
    /// and nothing is appended.
    ///
    /// Values may be of another kind than the column's where that makes no difference to
    /// comparisons: whole numbers of any width for columns of whole numbers, these and `numeric`
    /// for both, and a `real` for a `double precision`.
    ///
    /// # Errors
    /// 42804 when the value is of any other type than the column.
    #[inline]
    pub fn append_key(&self, value: ValueRef<'_>, key: &mut Vec<u8>) -> Result<bool, SqlError> {
        match (self.form, value) {
            (Form::Int4, ValueRef::Int4(_)) | (Form::Int8, ValueRef::Int8(_)) | (Form::Text, ValueRef::Text(_)) => {
                self.write(value, key)?;
                Ok(true)
            }
            _ => match self.position(value)? {
                Position::At(value) => {
                    self.write(value, key)?;
                    Ok(true)
                }
                _ => Ok(false),
            },
        }
    }

    /// Flips what was appended to a key if larger values come first.
    #[inline]
    pub(super) fn direct(&self, key: &mut [u8]) {
        if self.descending {
            key.iter_mut().for_each(|byte| *byte = !*byte);
        }
    }

    /// Appends a value that the column can hold.
    #[inline]
    fn write(&self, value: ValueRef<'_>, key: &mut Vec<u8>) -> Result<(), SqlError> {
        let from = key.len();
        let mut fixed = |bytes: &[u8]| {
            key.push(PRESENT);
            key.extend_from_slice(bytes);
        };
        const SIGN8: u64 = 1 << 63;
        const SIGN16: u128 = 1 << 127;
        let signed8 = |number: i64| (number as u64 ^ SIGN8).to_be_bytes();
        match (self.form, value) {
            (Form::Int4, ValueRef::Int4(value)) => fixed(&(value as u32 ^ 1 << 31).to_be_bytes()),
            (Form::Int8, ValueRef::Int8(value)) => fixed(&signed8(value)),
            (Form::Text, ValueRef::Text(text)) => variable(text.as_bytes(), key),
            (_, ValueRef::Null) => key.push(self.null()),
            (Form::Int2, ValueRef::Int2(value)) => fixed(&(value as u16 ^ 1 << 15).to_be_bytes()),
            (Form::Date, ValueRef::Date(value)) => fixed(&(value.0 as u32 ^ 1 << 31).to_be_bytes()),
            (Form::Time, ValueRef::Time(value)) => fixed(&signed8(value.0)),
            (Form::Timestamp, ValueRef::Timestamp(value)) | (Form::Timestamptz, ValueRef::Timestamptz(value)) => {
                fixed(&signed8(value.0));
            }
            (Form::Bool, ValueRef::Bool(value)) => fixed(&[value.into()]),
            (Form::SingleChar, ValueRef::SingleChar(value)) => fixed(&[value]),
            (Form::Oid, ValueRef::Oid(value)) => fixed(&value.to_be_bytes()),
            (Form::Float4, ValueRef::Float4(value)) => {
                let bits = float4_bits(value);
                fixed(&(if bits >> 31 == 1 { !bits } else { bits ^ 1 << 31 }).to_be_bytes());
            }
            (Form::Float8, ValueRef::Float8(value)) => {
                let bits = float8_bits(value);
                fixed(&(if bits >> 63 == 1 { !bits } else { bits ^ SIGN8 }).to_be_bytes());
            }
            (Form::Uuid, ValueRef::Uuid(value)) => fixed(&value),
            (Form::Packed(_), ValueRef::Packed(value)) => fixed(value.sort_bytes().as_slice()),
            (Form::Interval, ValueRef::Interval(value)) => fixed(&(value.length() as u128 ^ SIGN16).to_be_bytes()),
            (Form::Short(_), ValueRef::Numeric(value)) => fixed(&signed8(match value {
                NumericRef::Small(value) => value.coefficient() as i64,
                NumericRef::Wide(_) => SHORT_NAN,
            })),
            (Form::Long(_), ValueRef::Numeric(value)) => {
                let coefficient = match value {
                    NumericRef::Small(value) => value.coefficient(),
                    NumericRef::Wide(_) => LONG_NAN,
                };
                fixed(&(coefficient as u128 ^ SIGN16).to_be_bytes());
            }
            (Form::Numeric, ValueRef::Numeric(value)) => match value {
                NumericRef::Small(value) => variable(SortBytes::of(value).as_slice(), key),
                NumericRef::Wide(_) => {
                    let mut bytes = Vec::new();
                    value.write_sorted(&mut bytes);
                    variable(&bytes, key);
                }
            },
            (Form::Char, ValueRef::Char(text)) => variable(without_blanks(text).as_bytes(), key),
            (Form::Bytea, ValueRef::Bytea(bytes)) => variable(bytes, key),
            (_, value) => return Err(self.mismatch(value)),
        }
        self.direct(&mut key[from..]);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn mismatch(&self, value: ValueRef<'_>) -> SqlError {
        let kind = value.kind().map_or("null", |kind| kind.sql_name());
        SqlError::new(SqlState::DATATYPE_MISMATCH, format!("an index on {:?} has no key for type {kind}", self.form))
    }

    /// Where a value lies among those of the column.
    pub(super) fn position<'v>(&self, value: ValueRef<'v>) -> Result<Position<'v>, SqlError> {
        Ok(match (self.form, value) {
            (_, ValueRef::Null) => Position::At(value),
            (Form::Int2 | Form::Int4 | Form::Int8, ValueRef::Int2(number)) => self.whole(number.into(), true),
            (Form::Int2 | Form::Int4 | Form::Int8, ValueRef::Int4(number)) => self.whole(number.into(), true),
            (Form::Int2 | Form::Int4 | Form::Int8, ValueRef::Int8(number)) => self.whole(number.into(), true),
            (Form::Int2 | Form::Int4 | Form::Int8, ValueRef::Numeric(number)) => match floor(number, 0) {
                Floor::At(floor, exact) => self.whole(floor, exact),
                Floor::Below => Position::BelowAll,
                Floor::Above => Position::AboveAll,
            },
            (Form::Short(_) | Form::Long(_) | Form::Numeric, ValueRef::Int2(number)) => {
                self.decimal(NumericRef::Small(Decimal::make(number.into(), 0)))
            }
            (Form::Short(_) | Form::Long(_) | Form::Numeric, ValueRef::Int4(number)) => {
                self.decimal(NumericRef::Small(Decimal::make(number.into(), 0)))
            }
            (Form::Short(_) | Form::Long(_) | Form::Numeric, ValueRef::Int8(number)) => {
                self.decimal(NumericRef::Small(Decimal::make(number.into(), 0)))
            }
            (Form::Short(_) | Form::Long(_) | Form::Numeric, ValueRef::Numeric(number)) => self.decimal(number),
            (Form::Float8, ValueRef::Float4(number)) => Position::At(ValueRef::Float8(number.into())),
            // An address of a host or of a network.
            (Form::Packed(kind), ValueRef::Packed(packed))
                if packed.kind() == kind || packed.as_net().is_some() && matches!(kind, Kind::Inet | Kind::Cidr) =>
            {
                Position::At(value)
            }
            (form, value) => {
                let fits = matches!(
                    (form, value),
                    (Form::Bool, ValueRef::Bool(_))
                        | (Form::Float4, ValueRef::Float4(_))
                        | (Form::Float8, ValueRef::Float8(_))
                        | (Form::Oid, ValueRef::Oid(_))
                        | (Form::SingleChar, ValueRef::SingleChar(_))
                        | (Form::Date, ValueRef::Date(_))
                        | (Form::Time, ValueRef::Time(_))
                        | (Form::Timestamp, ValueRef::Timestamp(_))
                        | (Form::Timestamptz, ValueRef::Timestamptz(_))
                        | (Form::Uuid, ValueRef::Uuid(_))
                        | (Form::Interval, ValueRef::Interval(_))
                        | (Form::Text, ValueRef::Text(_))
                        | (Form::Char, ValueRef::Char(_))
                        | (Form::Bytea, ValueRef::Bytea(_))
                );
                if !fits {
                    return Err(self.mismatch(value));
                }
                Position::At(value)
            }
        })
    }

    /// Where a whole number, or what lies above it and below the next one, is in a column of whole
    /// numbers.
    fn whole(&self, number: i128, exact: bool) -> Position<'static> {
        let value = match self.form {
            Form::Int2 => i16::try_from(number).ok().map(ValueRef::Int2),
            Form::Int4 => i32::try_from(number).ok().map(ValueRef::Int4),
            _ => i64::try_from(number).ok().map(ValueRef::Int8),
        };
        match value {
            Some(value) if exact => Position::At(value),
            Some(value) => Position::Above(value),
            None => beyond(number),
        }
    }

    fn decimal<'v>(&self, number: NumericRef<'v>) -> Position<'v> {
        let (scale, digits) = match self.form {
            Form::Short(scale) => (scale, 18),
            Form::Long(scale) => (scale, 38),
            _ => return Position::At(ValueRef::Numeric(number)),
        };
        let limit = POWERS[digits];
        let held = |coefficient| ValueRef::Numeric(NumericRef::Small(Decimal::make(coefficient, scale)));
        match floor(number, scale) {
            Floor::At(floor, true) if floor.abs() < limit => Position::At(held(floor)),
            Floor::At(floor, false) if floor.abs() < limit => Position::Above(held(floor)),
            Floor::At(..0, _) | Floor::Below => Position::BelowAll,
            Floor::Above if number.as_special() == Some(Special::NaN) => Position::At(ValueRef::Numeric(number)),
            // Only what is not a number is larger.
            Floor::At(..) | Floor::Above => Position::Above(held(limit - 1)),
        }
    }
}

/// The place of a number that is too large, or too small when it is negative.
const fn beyond(number: i128) -> Position<'static> {
    if number < 0 { Position::BelowAll } else { Position::AboveAll }
}

/// Where a number lies among those of a scale.
enum Floor {
    /// The coefficient of the largest number of this scale that is not above it, and whether it is
    /// that.
    At(i128, bool),
    /// Below the least coefficient.
    Below,
    /// Above the largest coefficient.
    Above,
}

fn floor(number: NumericRef<'_>, scale: u8) -> Floor {
    let beyond = |negative| if negative { Floor::Below } else { Floor::Above };
    let number = match number {
        NumericRef::Small(number) => number,
        NumericRef::Wide(_) => {
            let number = number.to_numeric();
            if let Some(special) = number.as_special() {
                return beyond(special == Special::MinusInfinity);
            }
            // Without the digits behind the scale, all that is there may be short.
            let cut = number.trunc(scale.into()).ok();
            return match cut.as_ref().and_then(|cut| cut.small()) {
                Some(small) => match floor(NumericRef::Small(small), scale) {
                    Floor::At(at, _) if cut.as_ref() == Some(&number) => Floor::At(at, true),
                    Floor::At(at, _) => Floor::At(at - i128::from(number.is_negative()), false),
                    beyond => beyond,
                },
                None => beyond(number.is_negative()),
            };
        }
    };
    let (coefficient, from) = (number.coefficient(), number.scale() as usize);
    let scale = usize::from(scale);
    if scale >= from {
        return match POWERS.get(scale - from).and_then(|by| coefficient.checked_mul(*by)) {
            Some(coefficient) => Floor::At(coefficient, true),
            None => beyond(coefficient < 0),
        };
    }
    let by = POWERS[from - scale];
    Floor::At(coefficient.div_euclid(by), coefficient.rem_euclid(by) == 0)
}

/// Appends bytes so that they sort like what they are, whatever follows.
#[inline]
fn variable(bytes: &[u8], key: &mut Vec<u8>) {
    key.reserve(bytes.len() + 3);
    key.push(PRESENT);
    escaped(bytes, key);
    key.extend_from_slice(&[0, 0]);
}

#[inline]
fn escaped(bytes: &[u8], key: &mut Vec<u8>) {
    if !bytes.contains(&0) {
        return key.extend_from_slice(bytes);
    }
    for byte in bytes {
        key.push(*byte);
        if *byte == 0 {
            key.push(0xFF);
        }
    }
}
