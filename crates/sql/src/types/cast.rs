//! Casts between types.

use std::sync::Arc;

use super::{
    Category, EvalContext, Kind, Type, Value,
    datetime::TimeTz,
    fit, float, json, modifier,
    numeric::{Numeric, Special},
    packed::Packed,
    text, without_blanks,
};
use crate::{SqlError, SqlState};

/// Where a cast stands, and thereby which casts are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CastContext {
    /// Wherever another type is needed.
    Implicit,
    /// A value is put into a column.
    Assignment,
    /// `CAST` or `::`.
    Explicit,
}

/// A cast that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    from: Kind,
    to: Type,
    explicit: bool,
}

/// Whether values of one kind become those of another without being told to.
pub fn implicitly(from: Kind, to: Kind) -> bool {
    needed(from, to) == Some(CastContext::Implicit)
}

/// What a cast needs at least, if there is one.
fn needed(from: Kind, to: Kind) -> Option<CastContext> {
    use CastContext::{Assignment, Explicit, Implicit};
    if from == to || from == Kind::Unknown || to.is_polymorphic() && to == Kind::Any {
        return Some(Implicit);
    }
    if let (Some(from), Some(to)) = (from.element(), to.element()) {
        // Vectors are arrays of their elements without further ado.
        return needed(from, to);
    }
    let listed = match (from, to) {
        (Kind::Bool, Kind::Int4) | (Kind::Int4, Kind::Bool | Kind::SingleChar) => Some(Explicit),
        (Kind::SingleChar, Kind::Int4) => Some(Explicit),
        (Kind::SingleChar, Kind::Text) => Some(Implicit),
        (Kind::Int2, Kind::Int4 | Kind::Int8 | Kind::Float4 | Kind::Float8 | Kind::Numeric)
        | (Kind::Int4, Kind::Int8 | Kind::Float4 | Kind::Float8 | Kind::Numeric)
        | (Kind::Int8, Kind::Float4 | Kind::Float8 | Kind::Numeric)
        | (Kind::Numeric, Kind::Float4 | Kind::Float8)
        | (Kind::Float4, Kind::Float8) => Some(Implicit),
        (Kind::Int4, Kind::Int2)
        | (Kind::Int8, Kind::Int2 | Kind::Int4)
        | (Kind::Numeric, Kind::Int2 | Kind::Int4 | Kind::Int8)
        | (Kind::Float4, Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Numeric)
        | (Kind::Float8, Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Numeric | Kind::Float4) => Some(Assignment),
        (Kind::Int2 | Kind::Int4 | Kind::Int8, to) if to.is_object_id() => Some(Implicit),
        (Kind::Oid, to) if to.is_object_alias() => Some(Implicit),
        (from, Kind::Oid) if from.is_object_alias() => Some(Implicit),
        (Kind::Regoper, Kind::Regoperator) | (Kind::Regoperator, Kind::Regoper) => Some(Implicit),
        (Kind::Regproc, Kind::Regprocedure) | (Kind::Regprocedure, Kind::Regproc) => Some(Implicit),
        (from, Kind::Int4 | Kind::Int8) if from.is_object_id() => Some(Assignment),
        (Kind::Text | Kind::Varchar | Kind::Char, Kind::Text | Kind::Varchar | Kind::Char | Kind::Name)
        | (Kind::Text | Kind::Varchar, Kind::Regclass)
        | (Kind::Name, Kind::Text) => Some(Implicit),
        (Kind::Text | Kind::Varchar | Kind::Char, Kind::SingleChar) => Some(Assignment),
        (Kind::Date, Kind::Timestamp | Kind::Timestamptz)
        | (Kind::Timestamp, Kind::Timestamptz)
        | (Kind::Time, Kind::Interval | Kind::Timetz)
        | (Kind::Cidr, Kind::Inet)
        | (Kind::Macaddr, Kind::Macaddr8)
        | (Kind::Macaddr8, Kind::Macaddr) => Some(Implicit),
        (Kind::Timestamp | Kind::Timestamptz, Kind::Date | Kind::Time)
        | (Kind::Timestamptz, Kind::Timestamp)
        | (Kind::Interval, Kind::Time)
        | (Kind::Timestamptz, Kind::Timetz)
        | (Kind::Timetz, Kind::Time)
        | (Kind::Inet, Kind::Cidr)
        | (Kind::Json, Kind::Jsonb)
        | (Kind::Jsonb, Kind::Json) => Some(Assignment),
        (
            Kind::Jsonb,
            Kind::Bool | Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Float4 | Kind::Float8 | Kind::Numeric,
        ) => Some(Explicit),
        _ => None,
    };
    // Everything can be written as text, and read from it.
    listed
        .or((to.category() == Category::String && !is_pseudo(from)).then_some(Assignment))
        .or((from.category() == Category::String && !is_pseudo(to)).then_some(Explicit))
}

fn is_pseudo(kind: Kind) -> bool {
    kind.category() == Category::Pseudo
}

impl Cast {
    /// Whether the other one makes the same of every value.
    pub fn is_same(&self, other: &Self) -> bool {
        // What is too long is cut off or refused: only there it matters who asks.
        let asked = self.explicit == other.explicit || self.to.modifier() == -1;
        asked && self.from == other.from && self.to == other.to
    }

    /// Whether a statement asks for it.
    pub fn is_explicit(&self) -> bool {
        self.explicit
    }

    /// Whether it makes the same of a value in all sessions, as PostgreSQL says.
    pub fn is_immutable(&self) -> bool {
        let (from, to) = (self.from, self.to.kind());
        let is_text = |kind: Kind| kind.category() == Category::String || kind == Kind::Unknown;
        let zoned = |kind: Kind| matches!(kind, Kind::Timestamptz);
        if from == to {
            return true;
        }
        match (is_text(from), is_text(to)) {
            // Read as the session's settings say, or names of objects.
            (true, false) => {
                let read = matches!(to, Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz | Kind::Interval);
                !read && !to.is_object_alias() && !to.is_array()
            }
            (false, true) => {
                let written = matches!(from, Kind::Date | Kind::Timestamp | Kind::Timestamptz);
                !written && !from.is_object_alias() && !from.is_array()
            }
            // Only one of them knows a time zone.
            (false, false) => zoned(from) == zoned(to),
            (true, true) => true,
        }
    }

    /// The cast between two types, if it is allowed in this context.
    ///
    /// # Errors
    /// 42846 when none exists, 42804 when a value would have to be cast explicitly to be put into
    /// a column.
    pub fn find(from: Kind, to: Type, context: CastContext) -> Result<Self, SqlError> {
        match needed(from, to.kind()) {
            Some(needed) if needed <= context => Ok(Self { from, to, explicit: context == CastContext::Explicit }),
            found => Err(match (found, context) {
                (_, CastContext::Assignment) => SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!("expression is of type {from} but type {} is needed", to.kind()),
                )
                .with_hint("You will need to rewrite or cast the expression."),
                _ => SqlError::new(SqlState::CANNOT_COERCE, format!("cannot cast type {from} to {}", to.kind())),
            }),
        }
    }

    /// The type that it leads to.
    pub const fn to(self) -> Type {
        self.to
    }

    /// Whether it leaves all values as they are.
    pub fn is_identity(self) -> bool {
        self.to.modifier() < 0 && (self.from == self.to.kind() || self.keeps_value())
    }

    /// Whether values of both kinds are kept in the same way.
    fn keeps_value(self) -> bool {
        matches!(
            (self.from, self.to.kind()),
            (Kind::Varchar | Kind::Name | Kind::Unknown, Kind::Text) | (Kind::Text | Kind::Name, Kind::Varchar)
        ) || self.from.is_object_id() && self.to.kind().is_object_id()
    }

    /// Casts a value.
    ///
    /// # Errors
    /// What reading and fitting values returns; 22003 when it is out of range.
    #[inline]
    pub fn apply(self, value: Value, context: &EvalContext<'_>) -> Result<Value, SqlError> {
        if value.is_null() {
            return Ok(value);
        }
        let to = self.to.kind();
        match (&value, to) {
            (Value::Int2(number), Kind::Int4) => return Ok(Value::Int4((*number).into())),
            (Value::Int2(number), Kind::Int8) => return Ok(Value::Int8((*number).into())),
            (Value::Int4(number), Kind::Int8) => return Ok(Value::Int8((*number).into())),
            _ => {}
        }
        if self.from == to || self.keeps_value() {
            return fit(value, self.to, self.explicit);
        }
        self.convert(value, context)
    }

    fn convert(self, value: Value, context: &EvalContext<'_>) -> Result<Value, SqlError> {
        let (to, kind) = (self.to, self.to.kind());
        let converted = match (value, kind) {
            (Value::Array(array), _) if kind.is_array() => {
                let Some(element) = to.element() else { return Err(self.missing()) };
                let cast = Self { from: array.element(), to: element, explicit: self.explicit };
                let cast_array = array.map(element.kind(), |value| cast.apply(value.clone(), context))?;
                return Ok(Value::array(cast_array));
            }
            // Strings.
            (Value::Bool(value), Kind::Text | Kind::Varchar | Kind::Char) => {
                self.string(if value { "true".into() } else { "false".into() })
            }
            (Value::Char(value), Kind::Text | Kind::Varchar | Kind::Name) => self.string(without_blanks(&value).into()),
            // With the length of its prefix.
            (Value::Packed(value), Kind::Text | Kind::Varchar | Kind::Char) if self.from == Kind::Inet => {
                let mut text = String::new();
                value.as_net().ok_or_else(|| self.missing())?.0.write(true, &mut text);
                self.string(text.into())
            }
            (value, Kind::Text | Kind::Varchar | Kind::Char | Kind::Name) => {
                self.string(text::to_text(self.from, &value, context))
            }
            (Value::Text(value), _) => return self.read(&value, context),
            (Value::Char(value), Kind::SingleChar) => return self.read(&value, context),
            (Value::Char(value), _) => return self.read(&value, context),
            // Numbers.
            (Value::Bool(value), Kind::Int4) => Value::Int4(value.into()),
            (Value::Int4(value), Kind::Bool) => Value::Bool(value != 0),
            (Value::Int4(value), Kind::SingleChar) => match i8::try_from(value) {
                Ok(value) => Value::SingleChar(value as u8),
                Err(_) => return Err(out_of_range(kind)),
            },
            (Value::SingleChar(value), Kind::Int4) => Value::Int4((value as i8).into()),
            // Their bits, whatever the sign.
            (Value::Int4(value), _) if kind.is_object_id() => Value::Oid(value as u32),
            (Value::Int2(value), _) if kind.is_object_id() => Value::Oid(i32::from(value) as u32),
            (value @ (Value::Int2(_) | Value::Int4(_) | Value::Int8(_)), _) => {
                from_integer(value.as_i64().unwrap_or(0), kind)?
            }
            (Value::Oid(value), Kind::Int4) => Value::Int4(value as i32),
            (Value::Oid(value), Kind::Int8) => Value::Int8(value.into()),
            (Value::Oid(value), _) => Value::Oid(value),
            (Value::Float4(value), Kind::Numeric) => Value::Numeric(Numeric::from_f32(value)?),
            (Value::Float4(value), _) => from_float(value.into(), kind)?,
            (Value::Float8(value), _) => from_float(value, kind)?,
            (Value::Numeric(value), _) => from_numeric(&value, kind)?,
            // Dates and times.
            (Value::Date(value), Kind::Timestamp) => Value::Timestamp(value.to_timestamp()?),
            (Value::Date(value), Kind::Timestamptz) => Value::Timestamptz(value.to_timestamp()?.to_utc(context.zone)?),
            (Value::Timestamp(value), Kind::Timestamptz) => Value::Timestamptz(value.to_utc(context.zone)?),
            (Value::Timestamp(value), Kind::Date) => Value::Date(value.date()),
            (Value::Timestamp(value), Kind::Time) => {
                if value.is_finite() {
                    Value::Time(value.time())
                } else {
                    Value::Null
                }
            }
            (Value::Timestamptz(value), Kind::Timestamp) => Value::Timestamp(value.to_local(context.zone)?),
            (Value::Timestamptz(value), Kind::Date) => Value::Date(value.to_local(context.zone)?.date()),
            (Value::Timestamptz(value), Kind::Time) => {
                if value.is_finite() {
                    Value::Time(value.to_local(context.zone)?.time())
                } else {
                    Value::Null
                }
            }
            (Value::Time(value), Kind::Interval) => {
                Value::Interval(super::Interval { months: 0, days: 0, micros: value.0 })
            }
            (Value::Interval(value), Kind::Time) => Value::Time(value.to_time()),
            (Value::Time(value), Kind::Timetz) => {
                let moment = context.transaction_start.at().to_local(context.zone)?.date().to_timestamp()?;
                let local = super::Timestamp::checked(i128::from(moment.0) + i128::from(value.0))?;
                let west = -context.zone.offset_of_local(local);
                Value::Packed(Packed::timetz(TimeTz { micros: value.0, west }))
            }
            (Value::Timestamptz(value), Kind::Timetz) if value.is_finite() => {
                Value::Packed(Packed::timetz(TimeTz::of(value, context.zone)?))
            }
            (Value::Timestamptz(_), Kind::Timetz) => Value::Null,
            (Value::Packed(value), _) => self.convert_packed(value)?,
            // JSON.
            (Value::Json(value), Kind::Jsonb) => Value::Jsonb(json::canonical(&value)?.into()),
            (Value::Jsonb(value), Kind::Json) => Value::Json(value),
            (Value::Jsonb(value), _) => return from_jsonb(&value, to, context),
            _ => return Err(self.missing()),
        };
        fit(converted, to, self.explicit)
    }

    fn convert_packed(self, value: Packed) -> Result<Value, SqlError> {
        Ok(match (self.to.kind(), value.as_net(), value.as_timetz(), value.as_card()) {
            (Kind::Inet, Some((net, _)), ..) => Value::Packed(Packed::net(net, false)),
            (Kind::Cidr, Some((net, _)), ..) => Value::Packed(Packed::net(net.network(), true)),
            (Kind::Time, _, Some(time), _) => Value::Time(time.time()),
            (Kind::Macaddr8, .., Some(&[a, b, c, d, e, f])) => {
                Value::Packed(Packed::macaddr8([a, b, c, 0xff, 0xfe, d, e, f]))
            }
            (Kind::Macaddr, .., Some(&[a, b, c, 0xff, 0xfe, d, e, f])) => {
                Value::Packed(Packed::macaddr([a, b, c, d, e, f]))
            }
            (Kind::Macaddr, .., Some(_)) => {
                let message = "macaddr8 data out of range to convert to macaddr";
                return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message).with_hint(
                    "Only addresses that have FF and FE as values in the 4th and 5th bytes from the left, for \
                     example xx:xx:xx:ff:fe:xx:xx:xx, are eligible to be converted from macaddr8 to macaddr.",
                ));
            }
            _ => return Err(self.missing()),
        })
    }

    fn string(self, text: Arc<str>) -> Value {
        match self.to.kind() {
            Kind::Char => Value::Char(text),
            Kind::Name => Value::Text(modifier::cut_name(&text).into()),
            _ => Value::Text(text),
        }
    }

    /// Reads text as a value. Its length is fitted afterwards, because explicit casts cut off what
    /// is too long.
    fn read(self, value: &str, context: &EvalContext<'_>) -> Result<Value, SqlError> {
        match self.to.kind() {
            Kind::Varchar | Kind::Char | Kind::VarcharArray | Kind::CharArray => {
                fit(text::input(Type::of(self.to.kind()), value, context)?, self.to, self.explicit)
            }
            _ => text::input(self.to, value, context),
        }
    }

    fn missing(self) -> SqlError {
        SqlError::internal(format!("a value is not of type {} that is cast to {}", self.from, self.to))
    }
}

/// The error for a number that a type does not have.
#[cold]
pub(crate) fn out_of_range(kind: Kind) -> SqlError {
    let message = match kind {
        Kind::Oid => "OID out of range".to_owned(),
        kind => format!("{kind} out of range"),
    };
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
}

fn from_integer(number: i64, kind: Kind) -> Result<Value, SqlError> {
    Ok(match kind {
        Kind::Int2 => Value::Int2(i16::try_from(number).map_err(|_| out_of_range(kind))?),
        Kind::Int4 => Value::Int4(i32::try_from(number).map_err(|_| out_of_range(kind))?),
        Kind::Int8 => Value::Int8(number),
        Kind::Float4 => Value::Float4(number as f32),
        Kind::Float8 => Value::Float8(number as f64),
        Kind::Numeric => Value::Numeric(number.into()),
        kind if kind.is_object_id() => Value::Oid(u32::try_from(number).map_err(|_| out_of_range(Kind::Oid))?),
        _ => return Err(SqlError::internal(format!("no cast of an integer to {kind}"))),
    })
}

fn from_float(number: f64, kind: Kind) -> Result<Value, SqlError> {
    let whole = |low: f64, high: f64| {
        let rounded = number.round_ties_even();
        // The upper bound is a power of two, which is too large itself.
        if rounded >= low && rounded < high { Ok(rounded as i64) } else { Err(out_of_range(kind)) }
    };
    let power = |bits: u32| (1u64 << bits) as f64;
    match kind {
        Kind::Int2 => from_integer(whole(-power(15), power(15))?, kind),
        Kind::Int4 => from_integer(whole(-power(31), power(31))?, kind),
        Kind::Int8 => from_integer(whole(-power(63), power(63))?, kind),
        Kind::Float8 => Ok(Value::Float8(number)),
        Kind::Float4 => {
            let narrow = number as f32;
            let out = |what: &'static str| Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, what));
            if narrow.is_infinite() && number.is_finite() {
                return out("value out of range: overflow");
            }
            if narrow == 0.0 && number != 0.0 {
                return out("value out of range: underflow");
            }
            Ok(Value::Float4(narrow))
        }
        Kind::Numeric => Ok(Value::Numeric(Numeric::from_f64(number)?)),
        _ => Err(SqlError::internal(format!("no cast of a floating-point number to {kind}"))),
    }
}

fn from_numeric(number: &Numeric, kind: Kind) -> Result<Value, SqlError> {
    match kind {
        Kind::Int2 | Kind::Int4 | Kind::Int8 => match number.as_special() {
            None => from_integer(number.to_i64().ok_or_else(|| out_of_range(kind))?, kind),
            Some(special) => {
                let special = if special == Special::NaN { "NaN" } else { "infinity" };
                let message = format!("cannot convert {special} to {kind}");
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
            }
        },
        // What is out of range says so.
        Kind::Float4 => match number.to_f32() {
            narrow if narrow != 0.0 && narrow.is_finite() || number.is_zero() => Ok(Value::Float4(narrow)),
            _ => float::parse_f32(&number.to_string()).map(Value::Float4),
        },
        Kind::Float8 => match number.to_f64() {
            wide if wide != 0.0 && wide.is_finite() || number.is_zero() => Ok(Value::Float8(wide)),
            _ => float::parse_f64(&number.to_string()).map(Value::Float8),
        },
        Kind::Numeric => Ok(Value::Numeric(number.clone())),
        _ => Err(SqlError::internal(format!("no cast of a numeric to {kind}"))),
    }
}

fn from_jsonb(text: &str, to: Type, context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let found = json::type_name(text)?;
    let kind = to.kind();
    match (found, kind) {
        ("boolean", Kind::Bool) => Ok(Value::Bool(text == "true")),
        ("number", Kind::Numeric) => Ok(Value::Numeric(Numeric::parse(text, to.precision())?)),
        ("number", Kind::Int2 | Kind::Int4 | Kind::Int8) => from_numeric(&Numeric::parse(text, None)?, kind),
        ("number", Kind::Float4 | Kind::Float8) => text::input(to, text, context),
        _ => {
            let found = if found == "number" { "numeric" } else { found };
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("cannot cast jsonb {found} to type {kind}")))
        }
    }
}
