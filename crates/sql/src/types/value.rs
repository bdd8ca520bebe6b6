//! Values: owned, and borrowed from where they lie.

use std::{cmp::Ordering, fmt, hash, sync::Arc};

use super::{
    Kind,
    array::{Array, ArrayRef},
    datetime::{Date, Interval, Time, Timestamp},
    json::Json,
    numeric::{Numeric, NumericRef},
    packed::Packed,
};

/// A value of any type, or null. Three words; cloning never copies bytes.
///
/// Equality, order and hashing are those of SQL's `=` and `<`, with two additions that grouping and
/// sorting need: null equals null and comes last, and `json` compares as bytes. Values of different
/// kinds are ordered by kind.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// `boolean`
    Bool(bool),
    /// `smallint`
    Int2(i16),
    /// `integer`
    Int4(i32),
    /// `bigint`
    Int8(i64),
    /// `real`
    Float4(f32),
    /// `double precision`
    Float8(f64),
    /// `numeric`
    Numeric(Numeric),
    /// `oid` and its aliases, `xid`
    Oid(u32),
    /// `"char"`
    SingleChar(u8),
    /// `text`, `varchar`, `name`, and literals of unknown type
    Text(Arc<str>),
    /// `char(n)`, with its blanks
    Char(Arc<str>),
    /// `bytea`
    Bytea(Arc<[u8]>),
    /// `date`
    Date(Date),
    /// `time`
    Time(Time),
    /// `timestamp`
    Timestamp(Timestamp),
    /// `timestamptz`
    Timestamptz(Timestamp),
    /// `interval`
    Interval(Interval),
    /// `uuid`
    Uuid([u8; 16]),
    /// `inet`, `cidr`, `macaddr`, `macaddr8`, `timetz`
    Packed(Packed),
    /// `json`, as written
    Json(Arc<str>),
    /// `jsonb`, in canonical form
    Jsonb(Arc<str>),
    /// An array
    Array(Arc<Array>),
}

/// A value that lies somewhere else: in a [`Value`] or in a row.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "as for `Value`")]
pub enum ValueRef<'a> {
    #[default]
    Null,
    Bool(bool),
    Int2(i16),
    Int4(i32),
    Int8(i64),
    Float4(f32),
    Float8(f64),
    Numeric(NumericRef<'a>),
    Oid(u32),
    SingleChar(u8),
    Text(&'a str),
    Char(&'a str),
    Bytea(&'a [u8]),
    Date(Date),
    Time(Time),
    Timestamp(Timestamp),
    Timestamptz(Timestamp),
    Interval(Interval),
    Uuid([u8; 16]),
    Packed(Packed),
    Json(&'a str),
    Jsonb(&'a str),
    Array(ArrayRef<'a>),
}

const _: () = assert!(size_of::<Value>() == 24 && size_of::<ValueRef<'_>>() <= 24);

impl Value {
    /// A `text`.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    /// A `bytea`.
    pub fn bytea(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self::Bytea(bytes.into())
    }

    /// An array.
    pub fn array(array: Array) -> Self {
        Self::Array(Arc::new(array))
    }

    /// Whether it is null.
    #[inline]
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The same value, borrowed.
    #[inline]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Bool(value) => ValueRef::Bool(*value),
            Self::Int2(value) => ValueRef::Int2(*value),
            Self::Int4(value) => ValueRef::Int4(*value),
            Self::Int8(value) => ValueRef::Int8(*value),
            Self::Float4(value) => ValueRef::Float4(*value),
            Self::Float8(value) => ValueRef::Float8(*value),
            Self::Numeric(value) => ValueRef::Numeric(value.as_ref()),
            Self::Oid(value) => ValueRef::Oid(*value),
            Self::SingleChar(value) => ValueRef::SingleChar(*value),
            Self::Text(value) => ValueRef::Text(value),
            Self::Char(value) => ValueRef::Char(value),
            Self::Bytea(value) => ValueRef::Bytea(value),
            Self::Date(value) => ValueRef::Date(*value),
            Self::Time(value) => ValueRef::Time(*value),
            Self::Timestamp(value) => ValueRef::Timestamp(*value),
            Self::Timestamptz(value) => ValueRef::Timestamptz(*value),
            Self::Interval(value) => ValueRef::Interval(*value),
            Self::Uuid(value) => ValueRef::Uuid(*value),
            Self::Packed(value) => ValueRef::Packed(*value),
            Self::Json(value) => ValueRef::Json(value),
            Self::Jsonb(value) => ValueRef::Jsonb(value),
            Self::Array(value) => ValueRef::Array(ArrayRef::Value(value)),
        }
    }

    /// The kind that the value itself tells: `text` for all that is kept as text, `oid` for its
    /// aliases.
    pub fn kind(&self) -> Option<Kind> {
        self.as_ref().kind()
    }

    /// The truth of a condition: nothing when it is unknown, or no boolean.
    #[inline]
    pub const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if it is whole.
    pub const fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int2(value) => Some(*value as i64),
            Self::Int4(value) => Some(*value as i64),
            Self::Int8(value) => Some(*value),
            Self::Oid(value) => Some(*value as i64),
            _ => None,
        }
    }

    /// The characters, if it has any.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Char(text) | Self::Json(text) | Self::Jsonb(text) => Some(text),
            _ => None,
        }
    }
}

impl<'a> ValueRef<'a> {
    /// Whether it is null.
    #[inline]
    pub const fn is_null(self) -> bool {
        matches!(self, Self::Null)
    }

    /// The same value, owned.
    pub fn to_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int2(value) => Value::Int2(value),
            Self::Int4(value) => Value::Int4(value),
            Self::Int8(value) => Value::Int8(value),
            Self::Float4(value) => Value::Float4(value),
            Self::Float8(value) => Value::Float8(value),
            Self::Numeric(value) => Value::Numeric(value.to_numeric()),
            Self::Oid(value) => Value::Oid(value),
            Self::SingleChar(value) => Value::SingleChar(value),
            Self::Text(value) => Value::Text(value.into()),
            Self::Char(value) => Value::Char(value.into()),
            Self::Bytea(value) => Value::Bytea(value.into()),
            Self::Date(value) => Value::Date(value),
            Self::Time(value) => Value::Time(value),
            Self::Timestamp(value) => Value::Timestamp(value),
            Self::Timestamptz(value) => Value::Timestamptz(value),
            Self::Interval(value) => Value::Interval(value),
            Self::Uuid(value) => Value::Uuid(value),
            Self::Packed(value) => Value::Packed(value),
            Self::Json(value) => Value::Json(value.into()),
            Self::Jsonb(value) => Value::Jsonb(value.into()),
            Self::Array(value) => Value::Array(value.to_array()),
        }
    }

    /// The kind that the value itself tells: `text` for all that is kept as text, `oid` for its
    /// aliases.
    pub fn kind(self) -> Option<Kind> {
        Some(match self {
            Self::Null => return None,
            Self::Bool(_) => Kind::Bool,
            Self::Int2(_) => Kind::Int2,
            Self::Int4(_) => Kind::Int4,
            Self::Int8(_) => Kind::Int8,
            Self::Float4(_) => Kind::Float4,
            Self::Float8(_) => Kind::Float8,
            Self::Numeric(_) => Kind::Numeric,
            Self::Oid(_) => Kind::Oid,
            Self::SingleChar(_) => Kind::SingleChar,
            Self::Text(_) => Kind::Text,
            Self::Char(_) => Kind::Char,
            Self::Bytea(_) => Kind::Bytea,
            Self::Date(_) => Kind::Date,
            Self::Time(_) => Kind::Time,
            Self::Timestamp(_) => Kind::Timestamp,
            Self::Timestamptz(_) => Kind::Timestamptz,
            Self::Interval(_) => Kind::Interval,
            Self::Uuid(_) => Kind::Uuid,
            Self::Packed(value) => value.kind(),
            Self::Json(_) => Kind::Json,
            Self::Jsonb(_) => Kind::Jsonb,
            Self::Array(array) => array.element().array()?,
        })
    }

    /// The place of its kind in the order of values of different kinds.
    const fn rank(self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Int2(_) => 1,
            Self::Int4(_) => 2,
            Self::Int8(_) => 3,
            Self::Float4(_) => 4,
            Self::Float8(_) => 5,
            Self::Numeric(_) => 6,
            Self::Oid(_) => 7,
            Self::SingleChar(_) => 8,
            Self::Text(_) => 9,
            Self::Char(_) => 10,
            Self::Bytea(_) => 11,
            Self::Date(_) => 12,
            Self::Time(_) => 13,
            Self::Timestamp(_) => 14,
            Self::Timestamptz(_) => 15,
            Self::Interval(_) => 16,
            Self::Uuid(_) => 17,
            Self::Json(_) => 18,
            Self::Jsonb(_) => 19,
            Self::Array(_) => 20,
            Self::Packed(_) => 21,
            // Nulls come last.
            Self::Null => 22,
        }
    }

    /// Compares as `<` and `=` do; see [`Value`].
    #[inline]
    pub fn compare(self, other: ValueRef<'_>) -> Ordering {
        match (self, other) {
            (Self::Int4(one), ValueRef::Int4(two)) => one.cmp(&two),
            (Self::Int8(one), ValueRef::Int8(two)) => one.cmp(&two),
            (Self::Text(one), ValueRef::Text(two)) => one.as_bytes().cmp(two.as_bytes()),
            _ => self.compare_any(other),
        }
    }

    fn compare_any(self, other: ValueRef<'_>) -> Ordering {
        match (self, other) {
            (Self::Bool(one), ValueRef::Bool(two)) => one.cmp(&two),
            (Self::Int2(one), ValueRef::Int2(two)) => one.cmp(&two),
            (Self::Int4(one), ValueRef::Int4(two)) => one.cmp(&two),
            (Self::Int8(one), ValueRef::Int8(two)) => one.cmp(&two),
            (Self::Float4(one), ValueRef::Float4(two)) => compare_floats(one.into(), two.into()),
            (Self::Float8(one), ValueRef::Float8(two)) => compare_floats(one, two),
            (Self::Numeric(one), ValueRef::Numeric(two)) => one.compare(two),
            (Self::Oid(one), ValueRef::Oid(two)) => one.cmp(&two),
            (Self::SingleChar(one), ValueRef::SingleChar(two)) => one.cmp(&two),
            (Self::Text(one), ValueRef::Text(two)) | (Self::Json(one), ValueRef::Json(two)) => {
                one.as_bytes().cmp(two.as_bytes())
            }
            (Self::Char(one), ValueRef::Char(two)) => {
                without_blanks(one).as_bytes().cmp(without_blanks(two).as_bytes())
            }
            (Self::Bytea(one), ValueRef::Bytea(two)) => one.cmp(two),
            (Self::Date(one), ValueRef::Date(two)) => one.cmp(&two),
            (Self::Time(one), ValueRef::Time(two)) => one.cmp(&two),
            (Self::Timestamp(one), ValueRef::Timestamp(two)) | (Self::Timestamptz(one), ValueRef::Timestamptz(two)) => {
                one.cmp(&two)
            }
            (Self::Interval(one), ValueRef::Interval(two)) => one.cmp(&two),
            (Self::Uuid(one), ValueRef::Uuid(two)) => one.cmp(&two),
            (Self::Packed(one), ValueRef::Packed(two)) => one.compare(two),
            (Self::Jsonb(one), ValueRef::Jsonb(two)) => compare_jsonb(one, two),
            (Self::Array(one), ValueRef::Array(two)) => one.to_array().compare(&two.to_array()),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    /// Whether both are equal as `=` has it.
    #[inline]
    pub fn equals(self, other: ValueRef<'_>) -> bool {
        match (self, other) {
            (Self::Int4(one), ValueRef::Int4(two)) => one == two,
            (Self::Int8(one), ValueRef::Int8(two)) => one == two,
            // Lengths are compared first.
            (Self::Text(one), ValueRef::Text(two)) => one == two,
            _ => self.compare_any(other).is_eq(),
        }
    }

    /// Hashes what equal values have in common.
    #[expect(clippy::should_implement_trait, reason = "by value, as all methods here")]
    pub fn hash<H: hash::Hasher>(self, state: &mut H) {
        use hash::Hash;
        state.write_u8(self.rank());
        match self {
            Self::Null => {}
            Self::Bool(value) => value.hash(state),
            Self::Int2(value) => value.hash(state),
            Self::Int4(value) => value.hash(state),
            Self::Int8(value) => value.hash(state),
            Self::Float4(value) => canonical_bits(value.into()).hash(state),
            Self::Float8(value) => canonical_bits(value).hash(state),
            Self::Numeric(value) => value.hash(state),
            Self::Oid(value) => value.hash(state),
            Self::SingleChar(value) => value.hash(state),
            Self::Text(value) | Self::Json(value) => value.hash(state),
            Self::Char(value) => without_blanks(value).hash(state),
            Self::Bytea(value) => value.hash(state),
            Self::Date(value) => value.hash(state),
            Self::Time(value) => value.hash(state),
            Self::Timestamp(value) | Self::Timestamptz(value) => value.hash(state),
            Self::Interval(value) => value.hash(state),
            Self::Uuid(value) => value.hash(state),
            Self::Packed(value) => value.hash(state),
            // Equal numbers may be written in different ways, so only their number counts.
            Self::Jsonb(value) => hash_jsonb(value, state),
            Self::Array(value) => {
                let array = value.to_array();
                array.values().len().hash(state);
                for value in array.values() {
                    value.as_ref().hash(state);
                }
            }
        }
    }
}

/// The order of floating-point numbers: NaN equals itself and is larger than all others.
pub(crate) fn compare_floats(one: f64, two: f64) -> Ordering {
    one.partial_cmp(&two).unwrap_or_else(|| one.is_nan().cmp(&two.is_nan()))
}

/// The bits of a number, the same ones for numbers that are equal.
fn canonical_bits(number: f64) -> u64 {
    if number.is_nan() {
        f64::NAN.to_bits()
    } else if number == 0.0 {
        0
    } else {
        number.to_bits()
    }
}

/// What counts of a `char(n)`.
#[inline]
pub fn without_blanks(text: &str) -> &str {
    text.trim_end_matches(' ')
}

fn compare_jsonb(one: &str, two: &str) -> Ordering {
    match (Json::of_value(one), Json::of_value(two)) {
        (Ok(one), Ok(two)) => one.compare(&two),
        // What is in a value was checked before.
        _ => one.cmp(two),
    }
}

fn hash_jsonb<H: hash::Hasher>(text: &str, state: &mut H) {
    use hash::Hash;
    fn visit<H: hash::Hasher>(json: &Json<'_>, state: &mut H) {
        match json {
            Json::Null => 0u8.hash(state),
            Json::Bool(value) => value.hash(state),
            Json::Number(_) => 1u8.hash(state),
            Json::String(value) => value.hash(state),
            Json::Array(elements) => {
                elements.len().hash(state);
                elements.iter().for_each(|element| visit(element, state));
            }
            Json::Object(members) => members.iter().for_each(|(key, value)| {
                key.hash(state);
                visit(value, state);
            }),
        }
    }
    if let Ok(json) = Json::of_value(text) {
        visit(&json, state);
    }
}

impl PartialEq for Value {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_ref().equals(other.as_ref())
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ref().compare(other.as_ref())
    }
}

impl hash::Hash for Value {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.equals(*other)
    }
}

/// As text, for messages: what a client sees depends on the session, see
/// [`output`](super::text::output).
impl fmt::Display for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        super::text::output(*self, &super::EvalContext::default(), &mut text);
        f.write_str(&text)
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident,)+) => {$(
        impl From<$from> for Value {
            #[inline]
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        }
    )+};
}

from! {
    bool => Bool, i16 => Int2, i32 => Int4, i64 => Int8, f32 => Float4, f64 => Float8, Numeric => Numeric,
    &str => Text, String => Text, Vec<u8> => Bytea, Date => Date, Time => Time, Interval => Interval,
    [u8; 16] => Uuid,
}

/// `None` becomes null.
impl<T: Into<Value>> From<Option<T>> for Value {
    #[inline]
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
