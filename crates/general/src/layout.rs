//! How values lie in Arrow's arrays.
//!
//! DataFusion moves, hashes, compares and sorts arrays; it never computes with their values by
//! rules of its own. So what lies in them is chosen for being lossless first, and for comparing as
//! its values do second:
//!
//! | type | array | compares as its values do |
//! |---|---|---|
//! | boolean, integers | their own | yes |
//! | floats | their own; all NaN are one | by key: -0 becomes 0 |
//! | `numeric(p,s)` of up to 38 digits | `Decimal128(38, s)`, NaN being the largest | yes |
//! | other `numeric` | bytes: scale and coefficient, or 255 and the bytes of a wide number | by key: bytes |
//! | `text`, `varchar`, `name`, `json` | `Utf8View` | yes (`json` has no order) |
//! | `char(n)` | `Utf8View` without trailing blanks | yes |
//! | `bpchar` | `Utf8View` with them | by key: without |
//! | `bytea`, `uuid`, `oid` and its like, `"char"` | bytes, 16 bytes, `UInt32`, `UInt8` | yes |
//! | `date` / `time`, `timestamp`, `timestamptz` | `Int32` days / `Int64` microseconds, counted from 2000 | yes |
//! | `inet`, `cidr`, `macaddr`, `macaddr8`, `timetz` | bytes that sort | yes |
//! | `interval` | 16 bytes: months, days, microseconds | by key: its length |
//! | `jsonb` | `Utf8View` | by key: bytes, see [`crate::key`] |
//! | arrays | bytes, as on the wire | by key: bytes |

use std::sync::Arc;

use arrow::{
    array::{
        Array as _, ArrayRef, BinaryViewArray, BinaryViewBuilder, BooleanArray, BooleanBuilder, Decimal128Array,
        Decimal128Builder, FixedSizeBinaryArray, FixedSizeBinaryBuilder, Float32Array, Float32Builder, Float64Array,
        Float64Builder, Int16Array, Int16Builder, Int32Array, Int32Builder, Int64Array, Int64Builder, StringViewArray,
        StringViewBuilder, UInt8Array, UInt8Builder, UInt32Array, UInt32Builder,
    },
    buffer::{Buffer, NullBuffer},
    datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef},
};
use datafusion_common::{Result, ScalarValue};
use datafusion_execution::memory_pool::MemoryReservation;
use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value, ValueRef,
    types::{
        Date, EvalContext, Interval, Numeric, NumericRef, Packed, Precision, Time, Timestamp, binary, fit,
        numeric::{Decimal, Special},
        without_blanks,
    },
};

/// The first byte of a number that is wide; that of any other is its scale.
const WIDE_NUMBER: u8 = 255;
/// In the place of a coefficient: not a number.
const NAN: i128 = i128::MAX;
/// Bytes of an `interval` or a `uuid`.
const WIDE: i32 = 16;

/// The array type in which values of a type lie.
pub(crate) fn data_type(ty: Type) -> DataType {
    match ty.kind() {
        Kind::Bool => DataType::Boolean,
        Kind::Int2 => DataType::Int16,
        Kind::Int4 | Kind::Date => DataType::Int32,
        Kind::Int8 | Kind::Time | Kind::Timestamp | Kind::Timestamptz => DataType::Int64,
        Kind::Float4 => DataType::Float32,
        Kind::Float8 => DataType::Float64,
        Kind::Numeric => match ty.precision().and_then(Precision::short_scale) {
            Some(scale) => DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale as i8),
            None => DataType::BinaryView,
        },
        Kind::SingleChar => DataType::UInt8,
        Kind::Bytea => DataType::BinaryView,
        Kind::Interval | Kind::Uuid => DataType::FixedSizeBinary(WIDE),
        kind if kind.packed_width().is_some() => DataType::FixedSizeBinary(kind.packed_width().unwrap_or(0) as i32),
        kind if kind.is_object_id() || kind == Kind::Xid => DataType::UInt32,
        kind if kind.is_array() => DataType::BinaryView,
        _ => DataType::Utf8View,
    }
}

/// A field for values of a type.
pub(crate) fn field(name: &str, ty: Type) -> FieldRef {
    Arc::new(Field::new(name, data_type(ty), true))
}

/// A mistake in this crate: an array is not of the type that it was taken for.
#[cold]
fn mismatch(ty: Type, found: &DataType) -> SqlError {
    SqlError::internal(format!("values of type {ty} lie in an array of {found}"))
}

/// The bytes of a number, in a buffer for short ones and one for long ones.
pub(crate) struct NumericBytes {
    short: [u8; 17],
    length: usize,
    long: Vec<u8>,
}

impl NumericBytes {
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        if self.length == 0 { &self.long } else { &self.short[..self.length] }
    }
}

/// The fewer bytes there are, the cheaper it is to move them: the sign's at the end go.
#[inline]
pub(crate) fn numeric_to_bytes(number: NumericRef<'_>) -> NumericBytes {
    match number {
        NumericRef::Small(number) => {
            let coefficient = number.coefficient();
            let bits = 129 - (coefficient ^ coefficient >> 127).leading_zeros() as usize;
            let mut short = [0; 17];
            short[0] = number.scale() as u8;
            short[1..].copy_from_slice(&coefficient.to_le_bytes());
            NumericBytes { short, length: 1 + bits.div_ceil(8).min(16), long: Vec::new() }
        }
        NumericRef::Wide(bytes) => {
            let mut long = Vec::with_capacity(1 + bytes.len());
            long.push(WIDE_NUMBER);
            long.extend_from_slice(bytes);
            NumericBytes { short: [0; 17], length: 0, long }
        }
    }
}

#[inline]
pub(crate) fn numeric_from_bytes(bytes: &[u8]) -> Option<NumericRef<'_>> {
    let (&scale, coefficient) = bytes.split_first()?;
    if scale == WIDE_NUMBER {
        return Some(NumericRef::Wide(coefficient));
    }
    let fill = if *coefficient.last()? >= 0x80 { 0xff } else { 0 };
    let mut all = [fill; 16];
    all.get_mut(..coefficient.len())?.copy_from_slice(coefficient);
    Decimal::new(i128::from_le_bytes(all), scale.into()).map(NumericRef::Small)
}

/// The number of an array of `numeric(p,s)` with this coefficient.
#[inline]
pub(crate) fn numeric_of(coefficient: i128, scale: u32) -> Option<Numeric> {
    if coefficient == NAN {
        return Some(Numeric::nan());
    }
    Numeric::new(coefficient, scale)
}

fn interval_to_bytes(interval: Interval) -> [u8; WIDE as usize] {
    let mut bytes = [0; WIDE as usize];
    bytes[..4].copy_from_slice(&interval.months.to_le_bytes());
    bytes[4..8].copy_from_slice(&interval.days.to_le_bytes());
    bytes[8..].copy_from_slice(&interval.micros.to_le_bytes());
    bytes
}

fn interval_from_bytes(bytes: &[u8]) -> Option<Interval> {
    let (months, rest) = bytes.split_first_chunk::<4>()?;
    let (days, rest) = rest.split_first_chunk::<4>()?;
    let (micros, _) = rest.split_first_chunk::<8>()?;
    Some(Interval {
        months: i32::from_le_bytes(*months),
        days: i32::from_le_bytes(*days),
        micros: i64::from_le_bytes(*micros),
    })
}

/// The number, or the only NaN that there is.
#[inline]
pub(crate) fn canonical_f64(number: f64) -> f64 {
    if number.is_nan() { f64::NAN } else { number }
}

/// The number, or the only NaN that there is.
#[inline]
pub(crate) fn canonical_f32(number: f32) -> f32 {
    if number.is_nan() { f32::NAN } else { number }
}

/// Reads values out of an array.
pub(crate) struct Reader<'a> {
    ty: Type,
    nulls: Option<&'a NullBuffer>,
    cells: Cells<'a>,
}

enum Cells<'a> {
    Bool(&'a BooleanArray),
    Int2(&'a Int16Array),
    Int4(&'a Int32Array),
    Int8(&'a Int64Array),
    Float4(&'a Float32Array),
    Float8(&'a Float64Array),
    Decimal(&'a Decimal128Array, u32),
    Bytes(&'a FixedSizeBinaryArray),
    Oid(&'a UInt32Array),
    SingleChar(&'a UInt8Array),
    Text(&'a StringViewArray),
    Binary(&'a BinaryViewArray),
}

impl<'a> Reader<'a> {
    /// A reader of values of a type.
    ///
    /// # Errors
    /// When they do not lie in such an array.
    pub fn new(ty: Type, array: &'a ArrayRef) -> Result<Self, SqlError> {
        let found = array.data_type();
        let array_any = array.as_any();
        macro_rules! cells {
            ($($pattern:pat => $variant:ident($array:ty)),+ $(,)?) => {
                match found {
                    DataType::Decimal128(_, scale) => {
                        let scale = u32::try_from(*scale).ok();
                        array_any.downcast_ref::<Decimal128Array>().zip(scale).map(|(a, s)| Cells::Decimal(a, s))
                    }
                    $($pattern => array_any.downcast_ref::<$array>().map(Cells::$variant),)+
                    _ => None,
                }
            };
        }
        let cells = cells! {
            DataType::Boolean => Bool(BooleanArray),
            DataType::Int16 => Int2(Int16Array),
            DataType::Int32 => Int4(Int32Array),
            DataType::Int64 => Int8(Int64Array),
            DataType::Float32 => Float4(Float32Array),
            DataType::Float64 => Float8(Float64Array),
            DataType::FixedSizeBinary(_) => Bytes(FixedSizeBinaryArray),
            DataType::UInt32 => Oid(UInt32Array),
            DataType::UInt8 => SingleChar(UInt8Array),
            DataType::Utf8View => Text(StringViewArray),
            DataType::BinaryView => Binary(BinaryViewArray),
        };
        match cells {
            Some(cells) if data_type(ty) == *found || ty.kind() == Kind::Numeric => {
                Ok(Self { ty, nulls: array.nulls(), cells })
            }
            _ => Err(mismatch(ty, found)),
        }
    }

    /// Whether there is no value at this place.
    #[inline]
    pub fn is_null(&self, at: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(at))
    }

    /// The value at this place.
    ///
    /// # Errors
    /// When the bytes there are none.
    pub fn value(&self, at: usize) -> Result<Value, SqlError> {
        if self.is_null(at) {
            return Ok(Value::Null);
        }
        let damaged = || SqlError::internal(format!("the bytes of an array are no value of type {}", self.ty));
        Ok(match (&self.cells, self.ty.kind()) {
            (Cells::Bool(array), _) => Value::Bool(array.value(at)),
            (Cells::Int2(array), _) => Value::Int2(array.value(at)),
            (Cells::Int4(array), Kind::Date) => Value::Date(Date(array.value(at))),
            (Cells::Int4(array), _) => Value::Int4(array.value(at)),
            (Cells::Int8(array), Kind::Time) => Value::Time(Time(array.value(at))),
            (Cells::Int8(array), Kind::Timestamp) => Value::Timestamp(Timestamp(array.value(at))),
            (Cells::Int8(array), Kind::Timestamptz) => Value::Timestamptz(Timestamp(array.value(at))),
            (Cells::Int8(array), _) => Value::Int8(array.value(at)),
            (Cells::Float4(array), _) => Value::Float4(array.value(at)),
            (Cells::Float8(array), _) => Value::Float8(array.value(at)),
            (Cells::Decimal(array, scale), _) => {
                Value::Numeric(numeric_of(array.value(at), *scale).ok_or_else(damaged)?)
            }
            (Cells::Binary(array), Kind::Numeric) => {
                Value::Numeric(numeric_from_bytes(array.value(at)).ok_or_else(damaged)?.to_numeric())
            }
            (Cells::Bytes(array), Kind::Interval) => {
                Value::Interval(interval_from_bytes(array.value(at)).ok_or_else(damaged)?)
            }
            (Cells::Bytes(array), kind) if kind.packed_width().is_some() => {
                Value::Packed(Packed::from_sort_bytes(kind, array.value(at)).ok_or_else(damaged)?)
            }
            (Cells::Bytes(array), _) => Value::Uuid(array.value(at).try_into().map_err(|_| damaged())?),
            (Cells::Oid(array), _) => Value::Oid(array.value(at)),
            (Cells::SingleChar(array), _) => Value::SingleChar(array.value(at)),
            (Cells::Text(array), kind) => text_value(kind, array.value(at), self.ty)?,
            (Cells::Binary(array), Kind::Bytea) => Value::bytea(array.value(at)),
            (Cells::Binary(array), _) => binary::input(Type::of(self.ty.kind()), array.value(at))?,
        })
    }
}

fn text_value(kind: Kind, text: &str, ty: Type) -> Result<Value, SqlError> {
    Ok(match kind {
        Kind::Char => fit(Value::Char(text.into()), ty, false)?,
        Kind::Json => Value::Json(text.into()),
        Kind::Jsonb => Value::Jsonb(text.into()),
        _ => Value::text(text),
    })
}

/// A buffer and the memory that was reserved for it.
struct Counted {
    buffer: Buffer,
    _kept: MemoryReservation,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

/// The same buffers, with what was reserved for all of them.
fn counted(buffers: &[Buffer], kept: MemoryReservation) -> Vec<Buffer> {
    let mut buffers = buffers.to_vec();
    if let Some(first) = buffers.first_mut() {
        let counted = Counted { buffer: first.clone(), _kept: kept };
        *first = Buffer::from(bytes::Bytes::from_owner(counted));
    }
    buffers
}

/// Collects values into an array.
pub(crate) struct Builder {
    ty: Type,
    cells: CellsBuilder,
    scratch: Vec<u8>,
}

enum CellsBuilder {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Decimal(Decimal128Builder, u32),
    Bytes(FixedSizeBinaryBuilder),
    Oid(UInt32Builder),
    SingleChar(UInt8Builder),
    Text(StringViewBuilder),
    Binary(BinaryViewBuilder),
}

impl Builder {
    /// A builder of an array of values of a type, about `count` of them.
    pub fn new(ty: Type, count: usize) -> Self {
        let cells = match data_type(ty) {
            DataType::Boolean => CellsBuilder::Bool(BooleanBuilder::with_capacity(count)),
            DataType::Int16 => CellsBuilder::Int2(Int16Builder::with_capacity(count)),
            DataType::Int32 => CellsBuilder::Int4(Int32Builder::with_capacity(count)),
            DataType::Int64 => CellsBuilder::Int8(Int64Builder::with_capacity(count)),
            DataType::Float32 => CellsBuilder::Float4(Float32Builder::with_capacity(count)),
            DataType::Float64 => CellsBuilder::Float8(Float64Builder::with_capacity(count)),
            data_type @ DataType::Decimal128(_, scale) => CellsBuilder::Decimal(
                Decimal128Builder::with_capacity(count).with_data_type(data_type),
                scale.unsigned_abs().into(),
            ),
            DataType::FixedSizeBinary(width) => {
                CellsBuilder::Bytes(FixedSizeBinaryBuilder::with_capacity(count, width))
            }
            DataType::UInt32 => CellsBuilder::Oid(UInt32Builder::with_capacity(count)),
            DataType::UInt8 => CellsBuilder::SingleChar(UInt8Builder::with_capacity(count)),
            DataType::BinaryView => CellsBuilder::Binary(BinaryViewBuilder::with_capacity(count)),
            _ => CellsBuilder::Text(StringViewBuilder::with_capacity(count)),
        };
        Self { ty, cells, scratch: Vec::new() }
    }

    /// Appends a value.
    ///
    /// # Errors
    /// When it is not of the builder's type.
    pub fn append(&mut self, value: ValueRef<'_>) -> Result<(), SqlError> {
        match (&mut self.cells, value) {
            (_, ValueRef::Null) => self.append_null(),
            (CellsBuilder::Bool(builder), ValueRef::Bool(value)) => builder.append_value(value),
            (CellsBuilder::Int2(builder), ValueRef::Int2(value)) => builder.append_value(value),
            (CellsBuilder::Int4(builder), ValueRef::Int4(value)) => builder.append_value(value),
            (CellsBuilder::Int4(builder), ValueRef::Date(value)) => builder.append_value(value.0),
            (CellsBuilder::Int8(builder), ValueRef::Int8(value)) => builder.append_value(value),
            (CellsBuilder::Int8(builder), ValueRef::Time(value)) => builder.append_value(value.0),
            (CellsBuilder::Int8(builder), ValueRef::Timestamp(value) | ValueRef::Timestamptz(value)) => {
                builder.append_value(value.0);
            }
            (CellsBuilder::Float4(builder), ValueRef::Float4(value)) => builder.append_value(canonical_f32(value)),
            (CellsBuilder::Float8(builder), ValueRef::Float8(value)) => builder.append_value(canonical_f64(value)),
            (CellsBuilder::Decimal(builder, scale), ValueRef::Numeric(value)) => {
                builder.append_value(coefficient_at(value, *scale)?);
            }
            (CellsBuilder::Binary(builder), ValueRef::Numeric(value)) => {
                builder.append_value(numeric_to_bytes(value).as_slice());
            }
            (CellsBuilder::Bytes(builder), ValueRef::Interval(value)) => {
                append_bytes(builder, &interval_to_bytes(value));
            }
            (CellsBuilder::Bytes(builder), ValueRef::Uuid(value)) => append_bytes(builder, &value),
            (CellsBuilder::Bytes(builder), ValueRef::Packed(value)) => {
                append_bytes(builder, value.sort_bytes().as_slice());
            }
            (CellsBuilder::Oid(builder), ValueRef::Oid(value)) => builder.append_value(value),
            (CellsBuilder::SingleChar(builder), ValueRef::SingleChar(value)) => builder.append_value(value),
            (CellsBuilder::Text(builder), ValueRef::Char(value)) => {
                builder.append_value(stored_char(value, self.ty));
            }
            (CellsBuilder::Text(builder), ValueRef::Text(value) | ValueRef::Json(value) | ValueRef::Jsonb(value)) => {
                builder.append_value(value);
            }
            (CellsBuilder::Binary(builder), ValueRef::Bytea(value)) => builder.append_value(value),
            (CellsBuilder::Binary(builder), value @ ValueRef::Array(_)) => {
                self.scratch.clear();
                binary::output(value, &mut self.scratch);
                builder.append_value(&self.scratch);
            }
            (_, value) => {
                return Err(SqlError::internal(format!(
                    "a {:?} was given for a value of type {}",
                    value.kind(),
                    self.ty
                )));
            }
        }
        Ok(())
    }

    fn append_null(&mut self) {
        match &mut self.cells {
            CellsBuilder::Bool(builder) => builder.append_null(),
            CellsBuilder::Int2(builder) => builder.append_null(),
            CellsBuilder::Int4(builder) => builder.append_null(),
            CellsBuilder::Int8(builder) => builder.append_null(),
            CellsBuilder::Float4(builder) => builder.append_null(),
            CellsBuilder::Float8(builder) => builder.append_null(),
            CellsBuilder::Decimal(builder, _) => builder.append_null(),
            CellsBuilder::Bytes(builder) => builder.append_null(),
            CellsBuilder::Oid(builder) => builder.append_null(),
            CellsBuilder::SingleChar(builder) => builder.append_null(),
            CellsBuilder::Text(builder) => builder.append_null(),
            CellsBuilder::Binary(builder) => builder.append_null(),
        }
    }

    /// The array of all that was appended, which keeps what was reserved for it as long as anything
    /// has its texts.
    ///
    /// # Errors
    /// When the array is not whole: a mistake here.
    pub fn finish_counted(&mut self, kept: MemoryReservation) -> Result<ArrayRef> {
        Ok(match &mut self.cells {
            CellsBuilder::Text(builder) => {
                let (views, buffers, nulls) = builder.finish().into_parts();
                Arc::new(StringViewArray::try_new(views, counted(&buffers, kept), nulls)?)
            }
            CellsBuilder::Binary(builder) => {
                let (views, buffers, nulls) = builder.finish().into_parts();
                Arc::new(BinaryViewArray::try_new(views, counted(&buffers, kept), nulls)?)
            }
            // These have nothing to keep it with, and are not large.
            _ => self.finish(),
        })
    }

    /// The array of all that was appended.
    pub fn finish(&mut self) -> ArrayRef {
        match &mut self.cells {
            CellsBuilder::Bool(builder) => Arc::new(builder.finish()),
            CellsBuilder::Int2(builder) => Arc::new(builder.finish()),
            CellsBuilder::Int4(builder) => Arc::new(builder.finish()),
            CellsBuilder::Int8(builder) => Arc::new(builder.finish()),
            CellsBuilder::Float4(builder) => Arc::new(builder.finish()),
            CellsBuilder::Float8(builder) => Arc::new(builder.finish()),
            CellsBuilder::Decimal(builder, _) => Arc::new(builder.finish()),
            CellsBuilder::Bytes(builder) => Arc::new(builder.finish()),
            CellsBuilder::Oid(builder) => Arc::new(builder.finish()),
            CellsBuilder::SingleChar(builder) => Arc::new(builder.finish()),
            CellsBuilder::Text(builder) => Arc::new(builder.finish()),
            CellsBuilder::Binary(builder) => Arc::new(builder.finish()),
        }
    }
}

/// The builder's width is that of its type, so appending cannot fail.
fn append_bytes(builder: &mut FixedSizeBinaryBuilder, bytes: &[u8]) {
    if builder.append_value(bytes).is_err() {
        builder.append_null();
    }
}

/// What is kept of a `char(n)`: its blanks come back from its length.
fn stored_char(text: &str, ty: Type) -> &str {
    if ty.character_length().is_some() { without_blanks(text) } else { text }
}

/// The coefficient of a number with `scale` digits behind the point.
fn coefficient_at(number: NumericRef<'_>, scale: u32) -> Result<i128, SqlError> {
    if let NumericRef::Small(number) = number
        && number.scale() == scale
    {
        return Ok(number.coefficient());
    }
    if number.as_special() == Some(Special::NaN) {
        return Ok(NAN);
    }
    match number.to_numeric().rescaled(scale).and_then(|number| number.small()) {
        Some(number) => Ok(number.coefficient()),
        None => Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")),
    }
}

/// A value as a literal.
///
/// # Errors
/// When it is not of this type.
pub(crate) fn to_scalar(ty: Type, value: &Value) -> Result<ScalarValue, SqlError> {
    let data_type = data_type(ty);
    Ok(match (value, &data_type) {
        (Value::Null, _) => ScalarValue::try_from(&data_type).map_err(crate::error::to_sql)?,
        (Value::Bool(value), DataType::Boolean) => ScalarValue::Boolean(Some(*value)),
        (Value::Int2(value), DataType::Int16) => ScalarValue::Int16(Some(*value)),
        (Value::Int4(value), DataType::Int32) => ScalarValue::Int32(Some(*value)),
        (Value::Date(value), DataType::Int32) => ScalarValue::Int32(Some(value.0)),
        (Value::Int8(value), DataType::Int64) => ScalarValue::Int64(Some(*value)),
        (Value::Time(value), DataType::Int64) => ScalarValue::Int64(Some(value.0)),
        (Value::Timestamp(value) | Value::Timestamptz(value), DataType::Int64) => ScalarValue::Int64(Some(value.0)),
        (Value::Float4(value), DataType::Float32) => ScalarValue::Float32(Some(canonical_f32(*value))),
        (Value::Float8(value), DataType::Float64) => ScalarValue::Float64(Some(canonical_f64(*value))),
        (Value::Numeric(value), DataType::Decimal128(precision, scale)) => ScalarValue::Decimal128(
            Some(coefficient_at(value.as_ref(), scale.unsigned_abs().into())?),
            *precision,
            *scale,
        ),
        (Value::Numeric(value), DataType::BinaryView) => {
            ScalarValue::BinaryView(Some(numeric_to_bytes(value.as_ref()).as_slice().to_vec()))
        }
        (Value::Interval(value), DataType::FixedSizeBinary(width)) => {
            ScalarValue::FixedSizeBinary(*width, Some(interval_to_bytes(*value).to_vec()))
        }
        (Value::Packed(value), DataType::FixedSizeBinary(width)) => {
            ScalarValue::FixedSizeBinary(*width, Some(value.sort_bytes().as_slice().to_vec()))
        }
        (Value::Uuid(value), DataType::FixedSizeBinary(width)) => {
            ScalarValue::FixedSizeBinary(*width, Some(value.to_vec()))
        }
        (Value::Oid(value), DataType::UInt32) => ScalarValue::UInt32(Some(*value)),
        (Value::SingleChar(value), DataType::UInt8) => ScalarValue::UInt8(Some(*value)),
        (Value::Char(value), DataType::Utf8View) => ScalarValue::Utf8View(Some(stored_char(value, ty).to_owned())),
        (Value::Text(value) | Value::Json(value) | Value::Jsonb(value), DataType::Utf8View) => {
            ScalarValue::Utf8View(Some(value.to_string()))
        }
        (Value::Bytea(value), DataType::BinaryView) => ScalarValue::BinaryView(Some(value.to_vec())),
        (value @ Value::Array(_), DataType::BinaryView) => {
            let mut bytes = Vec::new();
            binary::output(value.as_ref(), &mut bytes);
            ScalarValue::BinaryView(Some(bytes))
        }
        (value, _) => {
            return Err(SqlError::internal(format!("a {:?} was given for a value of type {ty}", value.kind())));
        }
    })
}

/// The value of a literal.
///
/// # Errors
/// When it is not of this type.
pub(crate) fn from_scalar(ty: Type, scalar: &ScalarValue) -> Result<Value, SqlError> {
    let damaged = || mismatch(ty, &scalar.data_type());
    if scalar.is_null() {
        return Ok(Value::Null);
    }
    Ok(match (scalar, ty.kind()) {
        (ScalarValue::Boolean(Some(value)), Kind::Bool) => Value::Bool(*value),
        (ScalarValue::Int16(Some(value)), Kind::Int2) => Value::Int2(*value),
        (ScalarValue::Int32(Some(value)), Kind::Int4) => Value::Int4(*value),
        (ScalarValue::Int32(Some(value)), Kind::Date) => Value::Date(Date(*value)),
        (ScalarValue::Int64(Some(value)), Kind::Int8) => Value::Int8(*value),
        (ScalarValue::Int64(Some(value)), Kind::Time) => Value::Time(Time(*value)),
        (ScalarValue::Int64(Some(value)), Kind::Timestamp) => Value::Timestamp(Timestamp(*value)),
        (ScalarValue::Int64(Some(value)), Kind::Timestamptz) => Value::Timestamptz(Timestamp(*value)),
        (ScalarValue::Float32(Some(value)), Kind::Float4) => Value::Float4(*value),
        (ScalarValue::Float64(Some(value)), Kind::Float8) => Value::Float8(*value),
        (ScalarValue::Decimal128(Some(value), _, scale), Kind::Numeric) => {
            Value::Numeric(numeric_of(*value, scale.unsigned_abs().into()).ok_or_else(damaged)?)
        }
        (ScalarValue::BinaryView(Some(bytes)), Kind::Numeric) => {
            Value::Numeric(numeric_from_bytes(bytes).ok_or_else(damaged)?.to_numeric())
        }
        (ScalarValue::FixedSizeBinary(_, Some(bytes)), Kind::Interval) => {
            Value::Interval(interval_from_bytes(bytes).ok_or_else(damaged)?)
        }
        (ScalarValue::FixedSizeBinary(_, Some(bytes)), kind) if kind.packed_width().is_some() => {
            Value::Packed(Packed::from_sort_bytes(kind, bytes).ok_or_else(damaged)?)
        }
        (ScalarValue::FixedSizeBinary(_, Some(bytes)), Kind::Uuid) => {
            Value::Uuid(bytes.as_slice().try_into().map_err(|_| damaged())?)
        }
        (ScalarValue::UInt32(Some(value)), _) => Value::Oid(*value),
        (ScalarValue::UInt8(Some(value)), Kind::SingleChar) => Value::SingleChar(*value),
        (ScalarValue::Utf8View(Some(text)), kind) => text_value(kind, text, ty)?,
        (ScalarValue::BinaryView(Some(bytes)), Kind::Bytea) => Value::bytea(bytes.as_slice()),
        (ScalarValue::BinaryView(Some(bytes)), kind) if kind.is_array() => binary::input(Type::of(kind), bytes)?,
        _ => return Err(damaged()),
    })
}

/// How a literal prints in plans.
pub(crate) fn literal_text(ty: Type, scalar: &ScalarValue) -> String {
    match from_scalar(ty, scalar) {
        Ok(Value::Null) => "NULL".to_owned(),
        Ok(value) => freshet_sql::types::text::to_text(ty.kind(), &value, &EvalContext::default()).to_string(),
        Err(_) => scalar.to_string(),
    }
}

/// Two values of a kind, to ask with.
pub(crate) fn sample(kind: Kind) -> Option<Vec<Value>> {
    Some(match kind {
        Kind::Int2 => vec![Value::Int2(0), Value::Int2(1)],
        Kind::Int4 => vec![Value::Int4(0), Value::Int4(1)],
        Kind::Int8 => vec![Value::Int8(0), Value::Int8(1)],
        Kind::Text | Kind::Varchar | Kind::Name => vec![Value::text("a"), Value::text("b")],
        Kind::Char => vec![Value::Char("a".into()), Value::Char("b".into())],
        Kind::Numeric => vec![Value::Numeric(Numeric::ZERO), Value::Numeric(Numeric::ONE)],
        Kind::Date => vec![Value::Date(Date(0)), Value::Date(Date(1))],
        Kind::Timestamp => vec![Value::Timestamp(Timestamp(0)), Value::Timestamp(Timestamp(1))],
        Kind::Timestamptz => vec![Value::Timestamptz(Timestamp(0)), Value::Timestamptz(Timestamp(1))],
        Kind::Uuid => vec![Value::Uuid([0; 16]), Value::Uuid([1; 16])],
        kind if kind.is_object_id() => vec![Value::Oid(0), Value::Oid(1)],
        _ => return None,
    })
}
