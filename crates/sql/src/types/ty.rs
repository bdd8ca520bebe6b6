//! A type as columns have it: its kind and its modifier.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Kind, numeric::Numeric};
use crate::{SqlError, SqlState};

/// A type with its modifier: `numeric(10,2)`, `text[]`.
///
/// The modifier is PostgreSQL's `atttypmod`, -1 when none exists. Stored as object id and
/// modifier, so that catalogs outlive changes of this program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "(u32, i32)", try_from = "(u32, i32)")]
pub struct Type {
    kind: Kind,
    modifier: i32,
}

/// How many digits a `numeric(p,s)` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Precision {
    /// How many digits there are in all.
    pub digits: u16,
    /// Digits behind the point; before it, when negative.
    pub scale: i16,
}

impl Precision {
    /// The scale of a type whose numbers all have the short form: up to 38 digits, as many of them
    /// behind the point.
    #[inline]
    pub fn short_scale(self) -> Option<u8> {
        let short = Numeric::MAX_DIGITS as u16;
        u8::try_from(self.scale).ok().filter(|scale| self.digits <= short && u16::from(*scale) <= short)
    }
}

/// Modifiers that are lengths and precisions of `numeric` begin here, so that 0 is none of them.
const HEADER: i32 = 4;
/// The longest `varchar(n)` and `char(n)`.
const MAX_LENGTH: i32 = 10_485_760;
/// The most digits that a type can have, and the most digits behind the point or before it.
const MAX_PRECISION: i64 = 1000;
/// Where a modifier has the scale, and which of these bits is its sign.
const SCALE_BITS: i32 = 0x7ff;
const SCALE_SIGN: i32 = 0x400;
/// The fields of an interval that has all of them.
const ALL_FIELDS: i32 = 0x7fff;
/// The precision of an interval that says none.
const FULL_PRECISION: i32 = 0xffff;

/// Which fields an interval keeps, as bits of its modifier.
pub mod interval_fields {
    /// Months.
    pub const MONTH: i32 = 1 << 1;
    /// Years.
    pub const YEAR: i32 = 1 << 2;
    /// Days.
    pub const DAY: i32 = 1 << 3;
    /// Hours.
    pub const HOUR: i32 = 1 << 10;
    /// Minutes.
    pub const MINUTE: i32 = 1 << 11;
    /// Seconds.
    pub const SECOND: i32 = 1 << 12;
}

macro_rules! plain {
    ($($name:ident = $kind:ident,)+) => {
        $(#[doc = concat!("`", stringify!($kind), "` without a modifier.")] pub const $name: Self = Self::of(Kind::$kind);)+
    };
}

impl Type {
    plain! {
        BOOL = Bool, INT2 = Int2, INT4 = Int4, INT8 = Int8, FLOAT4 = Float4, FLOAT8 = Float8, NUMERIC = Numeric,
        TEXT = Text, VARCHAR = Varchar, BPCHAR = Char, BYTEA = Bytea, DATE = Date, TIME = Time, TIMESTAMP = Timestamp,
        TIMESTAMPTZ = Timestamptz, INTERVAL = Interval, UUID = Uuid, JSON = Json, JSONB = Jsonb,
        SINGLE_CHAR = SingleChar, NAME = Name, OID = Oid, REGCLASS = Regclass, REGTYPE = Regtype, UNKNOWN = Unknown,
        VOID = Void,
    }

    /// A kind without a modifier.
    #[inline]
    pub const fn of(kind: Kind) -> Self {
        Self { kind, modifier: -1 }
    }

    /// A kind with a modifier as the catalog has it. A modifier that means nothing for the kind is
    /// dropped.
    pub fn with_modifier(kind: Kind, modifier: i32) -> Self {
        let scalar = kind.element().unwrap_or(kind);
        let meaningful = match scalar {
            Kind::Varchar | Kind::Char => (HEADER + 1..=HEADER + MAX_LENGTH).contains(&modifier),
            Kind::Numeric => {
                modifier >= HEADER && {
                    let Precision { digits, scale } = unpack(modifier);
                    check_precision(digits.into(), scale.into()).is_ok()
                }
            }
            Kind::Time | Kind::Timetz | Kind::Timestamp | Kind::Timestamptz => (0..=6).contains(&modifier),
            Kind::Interval => modifier >= 0 && matches!(modifier & FULL_PRECISION, 0..=6 | FULL_PRECISION),
            _ => false,
        };
        Self { kind, modifier: if meaningful { modifier } else { -1 } }
    }

    /// `varchar(length)`.
    ///
    /// # Errors
    /// When there is no such length.
    pub fn varchar(length: i64) -> Result<Self, SqlError> {
        Ok(Self { kind: Kind::Varchar, modifier: HEADER + check_length("varchar", length)? })
    }

    /// `char(length)`.
    ///
    /// # Errors
    /// When there is no such length.
    pub fn char(length: i64) -> Result<Self, SqlError> {
        Ok(Self { kind: Kind::Char, modifier: HEADER + check_length("char", length)? })
    }

    /// `numeric(digits, scale)`. At most 1,000 digits, and as many behind the point or before it.
    ///
    /// # Errors
    /// When there is no such precision or scale.
    pub fn numeric(digits: i64, scale: i64) -> Result<Self, SqlError> {
        let Precision { digits, scale } = check_precision(digits, scale)?;
        Ok(Self { kind: Kind::Numeric, modifier: HEADER + (i32::from(digits) << 16 | i32::from(scale) & SCALE_BITS) })
    }

    /// `time(digits)`, `timestamp(digits)` or `timestamptz(digits)`; more than six digits become
    /// six, as PostgreSQL has it.
    ///
    /// # Errors
    /// When the number is negative, or `kind` has no such precision.
    pub fn with_precision(kind: Kind, digits: i64) -> Result<Self, SqlError> {
        let name = match kind {
            Kind::Time | Kind::Timetz => "TIME",
            Kind::Timestamp => "TIMESTAMP",
            Kind::Timestamptz => "TIMESTAMP",
            Kind::Interval => return Self::interval(ALL_FIELDS, Some(digits)),
            _ => return Err(no_modifier(kind)),
        };
        if digits < 0 {
            let zoned = if matches!(kind, Kind::Timestamptz | Kind::Timetz) { " WITH TIME ZONE" } else { "" };
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("{name}({digits}){zoned} precision must not be negative"),
            ));
        }
        Ok(Self { kind, modifier: digits.min(6) as i32 })
    }

    /// `interval` with these fields (bits of [`interval_fields`], 0 for all) and this many digits
    /// of seconds.
    ///
    /// # Errors
    /// When the number of digits is negative.
    pub fn interval(fields: i32, digits: Option<i64>) -> Result<Self, SqlError> {
        let precision = match digits {
            None => FULL_PRECISION,
            Some(digits @ 0..) => digits.min(6) as i32,
            Some(digits) => {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("INTERVAL({digits}) precision must not be negative"),
                ));
            }
        };
        let fields = if fields == 0 { ALL_FIELDS } else { fields & ALL_FIELDS };
        let modifier = if (fields, precision) == (ALL_FIELDS, FULL_PRECISION) { -1 } else { fields << 16 | precision };
        Ok(Self { kind: Kind::Interval, modifier })
    }

    /// The same without its modifier's kind: what overload resolution looks at.
    #[inline]
    pub const fn kind(self) -> Kind {
        self.kind
    }

    /// The catalog's `atttypmod`.
    #[inline]
    pub const fn modifier(self) -> i32 {
        self.modifier
    }

    /// The catalog's `atttypid`.
    pub const fn oid(self) -> u32 {
        self.kind.oid()
    }

    /// The array of these.
    pub fn to_array(self) -> Option<Self> {
        Some(Self { kind: self.kind.array()?, modifier: self.modifier })
    }

    /// The type of the elements of an array, with the array's modifier.
    pub fn element(self) -> Option<Self> {
        Some(Self { kind: self.kind.element()?, modifier: self.modifier })
    }

    /// The n of `varchar(n)` and `char(n)`, in characters.
    #[inline]
    pub fn character_length(self) -> Option<usize> {
        match self.kind.element().unwrap_or(self.kind) {
            Kind::Varchar | Kind::Char if self.modifier > HEADER => Some((self.modifier - HEADER) as usize),
            _ => None,
        }
    }

    /// The digits of `numeric(p,s)`.
    #[inline]
    pub fn precision(self) -> Option<Precision> {
        match self.kind.element().unwrap_or(self.kind) {
            Kind::Numeric if self.modifier >= HEADER => Some(unpack(self.modifier)),
            _ => None,
        }
    }

    /// How many digits behind the point seconds have in this type of time, timestamp or interval.
    pub fn seconds_digits(self) -> Option<u32> {
        if self.modifier < 0 {
            return None;
        }
        match self.kind.element().unwrap_or(self.kind) {
            Kind::Time | Kind::Timetz | Kind::Timestamp | Kind::Timestamptz => Some(self.modifier as u32),
            Kind::Interval => match self.modifier & FULL_PRECISION {
                FULL_PRECISION => None,
                digits => Some(digits as u32),
            },
            _ => None,
        }
    }

    /// Which fields an interval of this type keeps, when not all: bits of [`interval_fields`].
    pub fn interval_fields(self) -> Option<i32> {
        match self.kind.element().unwrap_or(self.kind) {
            Kind::Interval if self.modifier >= 0 && self.modifier >> 16 != ALL_FIELDS => Some(self.modifier >> 16),
            _ => None,
        }
    }
}

fn check_length(name: &str, length: i64) -> Result<i32, SqlError> {
    let error = |message| Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    if length < 1 {
        return error(format!("length for type {name} must be at least 1"));
    }
    if length > i64::from(MAX_LENGTH) {
        return error(format!("length for type {name} cannot exceed {MAX_LENGTH}"));
    }
    Ok(length as i32)
}

fn check_precision(digits: i64, scale: i64) -> Result<Precision, SqlError> {
    let error = |message| Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    let limit = MAX_PRECISION;
    if !(1..=limit).contains(&digits) {
        return error(format!("NUMERIC precision {digits} must be between 1 and {limit}"));
    }
    if !(-limit..=limit).contains(&scale) {
        return error(format!("NUMERIC scale {scale} must be between -{limit} and {limit}"));
    }
    Ok(Precision { digits: digits as u16, scale: scale as i16 })
}

/// The digits that a modifier of `numeric` says.
const fn unpack(modifier: i32) -> Precision {
    let packed = modifier - HEADER;
    let scale = packed & SCALE_BITS;
    // Its highest bit is its sign.
    Precision { digits: (packed >> 16) as u16, scale: ((scale ^ SCALE_SIGN) - SCALE_SIGN) as i16 }
}

/// The error for `kind(n)` where there is no such thing.
pub(super) fn no_modifier(kind: Kind) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, format!("type modifier is not allowed for type \"{}\"", kind.catalog_name()))
}

impl From<Kind> for Type {
    fn from(kind: Kind) -> Self {
        Self::of(kind)
    }
}

impl From<Type> for (u32, i32) {
    fn from(ty: Type) -> Self {
        (ty.oid(), ty.modifier)
    }
}

impl TryFrom<(u32, i32)> for Type {
    type Error = String;

    fn try_from((oid, modifier): (u32, i32)) -> Result<Self, String> {
        let kind = Kind::from_oid(oid).ok_or_else(|| format!("there is no type with the object id {oid}"))?;
        Ok(Self::with_modifier(kind, modifier))
    }
}

/// As PostgreSQL's `format_type` prints it.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scalar = self.kind.element().filter(|_| self.kind.array().is_none()).unwrap_or(self.kind);
        match (scalar, self.modifier) {
            // Without a length, the name "character" would mean character(1).
            (Kind::Char, -1) => f.write_str("bpchar")?,
            (_, -1) => f.write_str(scalar.sql_name())?,
            (Kind::Varchar | Kind::Char, modifier) => write!(f, "{}({})", scalar.sql_name(), modifier - HEADER)?,
            (Kind::Numeric, _) => {
                if let Some(Precision { digits, scale }) = self.precision() {
                    write!(f, "numeric({digits},{scale})")?;
                }
            }
            (Kind::Time, digits) => write!(f, "time({digits}) without time zone")?,
            (Kind::Timetz, digits) => write!(f, "time({digits}) with time zone")?,
            (Kind::Timestamp, digits) => write!(f, "timestamp({digits}) without time zone")?,
            (Kind::Timestamptz, digits) => write!(f, "timestamp({digits}) with time zone")?,
            (Kind::Interval, _) => {
                f.write_str("interval")?;
                f.write_str(self.interval_fields().map_or("", fields_name))?;
                if let Some(digits) = self.seconds_digits() {
                    write!(f, "({digits})")?;
                }
            }
            _ => f.write_str(scalar.sql_name())?,
        }
        if scalar != self.kind { f.write_str("[]") } else { Ok(()) }
    }
}

fn fields_name(fields: i32) -> &'static str {
    use interval_fields::*;
    const YEAR_MONTH: i32 = YEAR | MONTH;
    const DAY_HOUR: i32 = DAY | HOUR;
    const DAY_MINUTE: i32 = DAY | HOUR | MINUTE;
    const DAY_SECOND: i32 = DAY | HOUR | MINUTE | SECOND;
    const HOUR_MINUTE: i32 = HOUR | MINUTE;
    const HOUR_SECOND: i32 = HOUR | MINUTE | SECOND;
    const MINUTE_SECOND: i32 = MINUTE | SECOND;
    match fields {
        YEAR => " year",
        MONTH => " month",
        DAY => " day",
        HOUR => " hour",
        MINUTE => " minute",
        SECOND => " second",
        YEAR_MONTH => " year to month",
        DAY_HOUR => " day to hour",
        DAY_MINUTE => " day to minute",
        DAY_SECOND => " day to second",
        HOUR_MINUTE => " hour to minute",
        HOUR_SECOND => " hour to second",
        MINUTE_SECOND => " minute to second",
        _ => "",
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers_are_those_of_postgresql() {
        let cases = [
            (Type::varchar(20).unwrap(), 24, "character varying(20)"),
            (Type::char(1).unwrap(), 5, "character(1)"),
            (Type::numeric(10, 2).unwrap(), 655_366, "numeric(10,2)"),
            (Type::numeric(1000, 1000).unwrap(), 65_537_004, "numeric(1000,1000)"),
            (Type::numeric(5, -3).unwrap(), 329_729, "numeric(5,-3)"),
            (Type::with_precision(Kind::Timestamptz, 3).unwrap(), 3, "timestamp(3) with time zone"),
            (Type::interval(0, None).unwrap(), -1, "interval"),
            (Type::interval(0, Some(3)).unwrap(), 2_147_418_115, "interval(3)"),
            (
                Type::interval(interval_fields::YEAR | interval_fields::MONTH, None).unwrap(),
                458_751,
                "interval year to month",
            ),
            (Type::varchar(7).unwrap().to_array().unwrap(), 11, "character varying(7)[]"),
            (Type::of(Kind::Int2Vector), -1, "int2vector"),
            (Type::BPCHAR, -1, "bpchar"),
        ];
        for (ty, modifier, name) in cases {
            assert_eq!((ty.modifier(), ty.to_string().as_str()), (modifier, name));
            assert_eq!(Type::with_modifier(ty.kind(), modifier), ty);
            assert_eq!(Type::try_from(<(u32, i32)>::from(ty)), Ok(ty));
            let bytes = postcard::to_allocvec(&ty).unwrap();
            assert_eq!(postcard::from_bytes::<Type>(&bytes).unwrap(), ty);
        }
        assert_eq!(Type::with_modifier(Kind::Int4, 5), Type::INT4);
        assert!(Type::try_from((1, -1)).is_err());
    }

    #[test]
    fn what_cannot_be_declared_is_refused() {
        for error in [
            Type::varchar(0).unwrap_err(),
            Type::char(20_000_000).unwrap_err(),
            Type::numeric(1001, 0).unwrap_err(),
            Type::numeric(5, -1001).unwrap_err(),
            Type::with_precision(Kind::Time, -1).unwrap_err(),
        ] {
            assert_eq!(error.state, SqlState::INVALID_PARAMETER_VALUE);
        }
    }
}
