//! Aggregates of whole arrays.

use arrow::{
    array::{
        Array as _, ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, Decimal128Array, PrimitiveArray,
        StringViewArray,
    },
    datatypes::{DataType, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, UInt32Type},
};
use datafusion_common::Result;
use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value,
    types::{Date, Numeric, NumericRef, Time, Timestamp},
};

use super::{
    AggregateKind,
    groups::{Groups, passes},
};
use crate::{
    error::external,
    layout::{data_type, numeric_from_bytes, numeric_of},
};

/// The fast way to an aggregate, if there is one.
pub(super) fn groups(kind: AggregateKind, types: &[Type], result: Type) -> Option<Box<dyn Groups>> {
    use AggregateKind as A;
    let argument = *types.first()?;
    Some(match (kind, argument.kind()) {
        (A::Count, _) => Box::new(Count::default()),
        (A::Sum, Kind::Int2) => Box::new(Sums::<Int16Type, i64>::new(
            0,
            |sum, number| sum.checked_add(number.into()).ok_or_else(|| out_of_range(Kind::Int8)),
            |sum| Ok(Value::Int8(sum)),
        )),
        (A::Sum, Kind::Int4) => Box::new(Sums::<Int32Type, i64>::new(
            0,
            |sum, number| sum.checked_add(number.into()).ok_or_else(|| out_of_range(Kind::Int8)),
            |sum| Ok(Value::Int8(sum)),
        )),
        (A::Sum, Kind::Int8) => Box::new(Sums::<Int64Type, i128>::new(
            0,
            |sum, number| Ok(sum + i128::from(number)),
            |sum| Ok(Value::Numeric(Numeric::from(sum))),
        )),
        // Of negative zeros the sum is negative, too.
        (A::Sum, Kind::Float4) => Box::new(Sums::<Float32Type, f32>::new(
            -0.0,
            |sum, number| {
                let next = sum + number;
                if next.is_infinite() && sum.is_finite() && number.is_finite() { Err(overflow()) } else { Ok(next) }
            },
            |sum| Ok(Value::Float4(sum)),
        )),
        (A::Sum, Kind::Float8) => {
            Box::new(Sums::<Float64Type, f64>::new(-0.0, add_floats, |sum| Ok(Value::Float8(sum))))
        }
        (A::Sum | A::Avg, Kind::Numeric) => Box::new(Numbers::new(kind == A::Avg)),
        (A::Avg, Kind::Int2) => Box::new(Averages::<Int16Type>::default()),
        (A::Avg, Kind::Int4) => Box::new(Averages::<Int32Type>::default()),
        (A::Avg, Kind::Int8) => Box::new(Averages::<Int64Type>::default()),
        (A::BoolAnd, _) => Box::new(Booleans { all: true, ..Booleans::default() }),
        (A::BoolOr, _) => Box::new(Booleans::default()),
        (A::Min | A::Max, _) => return extremes(argument, result, kind == A::Max),
        _ => return None,
    })
}

/// The least or largest of values whose arrays compare as they do.
fn extremes(argument: Type, result: Type, largest: bool) -> Option<Box<dyn Groups>> {
    let integer: fn(i64) -> Value = match argument.kind() {
        Kind::Time => |value| Value::Time(Time(value)),
        Kind::Timestamp => |value| Value::Timestamp(Timestamp(value)),
        Kind::Timestamptz => |value| Value::Timestamptz(Timestamp(value)),
        _ => Value::Int8,
    };
    let narrow: fn(i32) -> Value = match argument.kind() {
        Kind::Date => |value| Value::Date(Date(value)),
        _ => Value::Int4,
    };
    Some(match data_type(argument) {
        DataType::Int16 => Box::new(Extremes::<Int16Type, _>::new(largest, Ord::cmp, Value::Int2)),
        DataType::Int32 => Box::new(Extremes::<Int32Type, _>::new(largest, Ord::cmp, narrow)),
        DataType::Int64 => Box::new(Extremes::<Int64Type, _>::new(largest, Ord::cmp, integer)),
        DataType::UInt32 => Box::new(Extremes::<UInt32Type, _>::new(largest, Ord::cmp, Value::Oid)),
        DataType::Float32 => Box::new(Extremes::<Float32Type, _>::new(largest, f32::total_cmp, Value::Float4)),
        DataType::Float64 => Box::new(Extremes::<Float64Type, _>::new(largest, f64::total_cmp, Value::Float8)),
        DataType::Decimal128(_, scale) => {
            let scale = u32::from(scale.unsigned_abs());
            let value = move |value| numeric_of(value, scale).map_or(Value::Null, Value::Numeric);
            Box::new(Extremes::<Decimal128Type, _>::new(largest, Ord::cmp, value))
        }
        DataType::Utf8View if result.kind() == Kind::Text => Box::new(Texts { largest, ..Texts::default() }),
        _ => return None,
    })
}

#[cold]
fn out_of_range(kind: Kind) -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{kind} out of range"))
}

#[cold]
pub(super) fn overflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")
}

/// The sum of two numbers.
///
/// # Errors
/// 22003 when it is too large.
pub(super) fn add_floats(sum: f64, number: f64) -> Result<f64, SqlError> {
    let next = sum + number;
    if next.is_infinite() && sum.is_finite() && number.is_finite() { Err(overflow()) } else { Ok(next) }
}

fn wrong_array() -> SqlError {
    SqlError::internal("an aggregate was given an array of another type")
}

fn column<T: 'static>(values: &[ArrayRef]) -> Result<&T> {
    values.first().and_then(|array| array.as_any().downcast_ref()).ok_or_else(|| external(wrong_array()))
}

fn drop_first<T>(values: &mut Vec<T>, count: usize) {
    values.drain(..count.min(values.len()));
}

#[derive(Default)]
struct Count {
    counts: Vec<i64>,
}

impl Groups for Count {
    fn resize(&mut self, count: usize) {
        self.counts.resize(count, 0);
    }

    fn update(&mut self, values: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>) -> Result<()> {
        let Some(array) = values.first() else { return Ok(()) };
        match (array.nulls().filter(|nulls| nulls.null_count() > 0), filter) {
            (None, None) => groups.iter().for_each(|group| self.counts[*group] += 1),
            (nulls, filter) => {
                for (row, group) in groups.iter().enumerate() {
                    if passes(filter, row) && nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                        self.counts[*group] += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn value(&self, group: usize) -> Result<Value, SqlError> {
        Ok(Value::Int8(self.counts[group]))
    }

    fn drop_first(&mut self, count: usize) {
        drop_first(&mut self.counts, count);
    }

    fn size(&self) -> usize {
        self.counts.capacity() * size_of::<i64>()
    }
}

/// Visits the values that count.
fn each<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    groups: &[usize],
    filter: Option<&BooleanArray>,
    mut visit: impl FnMut(usize, T::Native) -> Result<(), SqlError>,
) -> Result<()> {
    if array.null_count() == 0 && filter.is_none() {
        for (group, value) in groups.iter().zip(array.values()) {
            visit(*group, *value).map_err(external)?;
        }
        return Ok(());
    }
    for (row, group) in groups.iter().enumerate() {
        if array.is_valid(row) && passes(filter, row) {
            visit(*group, array.value(row)).map_err(external)?;
        }
    }
    Ok(())
}

/// Sums; no values have no sum.
struct Sums<T: ArrowPrimitiveType, S> {
    sums: Vec<Option<S>>,
    start: S,
    add: fn(S, T::Native) -> Result<S, SqlError>,
    value: fn(S) -> Result<Value, SqlError>,
}

impl<T: ArrowPrimitiveType, S> Sums<T, S> {
    fn new(start: S, add: fn(S, T::Native) -> Result<S, SqlError>, value: fn(S) -> Result<Value, SqlError>) -> Self {
        Self { sums: Vec::new(), start, add, value }
    }
}

impl<T: ArrowPrimitiveType, S: Copy + Send + Sync> Groups for Sums<T, S> {
    fn resize(&mut self, count: usize) {
        self.sums.resize(count, None);
    }

    fn update(&mut self, values: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>) -> Result<()> {
        each(column::<PrimitiveArray<T>>(values)?, groups, filter, |group, value| {
            let sum = &mut self.sums[group];
            *sum = Some((self.add)(sum.unwrap_or(self.start), value)?);
            Ok(())
        })
    }

    fn value(&self, group: usize) -> Result<Value, SqlError> {
        self.sums[group].map_or(Ok(Value::Null), self.value)
    }

    fn drop_first(&mut self, count: usize) {
        drop_first(&mut self.sums, count);
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<Option<S>>()
    }
}

/// Averages of whole numbers.
struct Averages<T> {
    sums: Vec<(i128, i64)>,
    of: std::marker::PhantomData<fn(T)>,
}

impl<T> Default for Averages<T> {
    fn default() -> Self {
        Self { sums: Vec::new(), of: std::marker::PhantomData }
    }
}

impl<T: ArrowPrimitiveType<Native: Into<i128>>> Groups for Averages<T> {
    fn resize(&mut self, count: usize) {
        self.sums.resize(count, (0, 0));
    }

    fn update(&mut self, values: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>) -> Result<()> {
        each(column::<PrimitiveArray<T>>(values)?, groups, filter, |group, value| {
            let (sum, count) = &mut self.sums[group];
            *sum += value.into();
            *count += 1;
            Ok(())
        })
    }

    fn value(&self, group: usize) -> Result<Value, SqlError> {
        match self.sums[group] {
            (_, 0) => Ok(Value::Null),
            (sum, count) => Numeric::from(sum).div(&count.into()).map(Value::Numeric),
        }
    }

    fn drop_first(&mut self, count: usize) {
        drop_first(&mut self.sums, count);
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<(i128, i64)>()
    }
}

/// Sums and averages of `numeric`.
struct Numbers {
    average: bool,
    sums: Vec<(Numeric, i64)>,
}

impl Numbers {
    fn new(average: bool) -> Self {
        Self { average, sums: Vec::new() }
    }

    fn add(&mut self, group: usize, number: NumericRef<'_>) -> Result<()> {
        let (sum, count) = &mut self.sums[group];
        // Usually the scales are equal, and there is room.
        let quick = match (&*sum, number) {
            (Numeric::Small(sum), NumericRef::Small(number)) => sum.checked_add(number),
            _ => None,
        };
        *sum = match quick {
            Some(sum) => sum.into(),
            None => sum.add(&number.to_numeric()).map_err(external)?,
        };
        *count += 1;
        Ok(())
    }
}

impl Groups for Numbers {
    fn resize(&mut self, count: usize) {
        self.sums.resize(count, (Numeric::ZERO, 0));
    }

    fn update(&mut self, values: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>) -> Result<()> {
        if let Ok(array) = column::<Decimal128Array>(values) {
            let scale = u32::from(array.scale().unsigned_abs());
            for (row, group) in groups.iter().enumerate() {
                if array.is_valid(row) && passes(filter, row) {
                    let number = numeric_of(array.value(row), scale).ok_or_else(|| external(wrong_array()))?;
                    self.add(*group, number.as_ref())?;
                }
            }
            return Ok(());
        }
        let array = column::<BinaryViewArray>(values)?;
        for (row, group) in groups.iter().enumerate() {
            if array.is_valid(row) && passes(filter, row) {
                let number = numeric_from_bytes(array.value(row)).ok_or_else(|| external(wrong_array()))?;
                self.add(*group, number)?;
            }
        }
        Ok(())
    }

    fn value(&self, group: usize) -> Result<Value, SqlError> {
        match &self.sums[group] {
            (_, 0) => Ok(Value::Null),
            (sum, count) if self.average => sum.div(&(*count).into()).map(Value::Numeric),
            (sum, _) => Ok(Value::Numeric(sum.clone())),
        }
    }

    fn drop_first(&mut self, count: usize) {
        drop_first(&mut self.sums, count);
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<(Numeric, i64)>()
    }
}

/// Whether all are true, or any.
#[derive(Default)]
struct Booleans {
    all: bool,
    found: Vec<Option<bool>>,
}

impl Groups for Booleans {
    fn resize(&mut self, count: usize) {
        self.found.resize(count, None);
    }

    fn update(&mut self, values: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>) -> Result<()> {
        let array = column::<BooleanArray>(values)?;
        for (row, group) in groups.iter().enumerate() {
            if array.is_valid(row) && passes(filter, row) {
                let found = self.found[*group].get_or_insert(self.all);
                *found = if self.all { *found && array.value(row) } else { *found || array.value(row) };
            }
        }
        Ok(())
    }

    fn value(&self, group: usize) -> Result<Value, SqlError> {
        Ok(self.found[group].into())
    }

    fn drop_first(&mut self, count: usize) {
        drop_first(&mut self.found, count);
    }

    fn size(&self) -> usize {
        self.found.capacity()
    }
}

/// The least or the largest.
struct Extremes<T: ArrowPrimitiveType, V> {
    largest: bool,
    found: Vec<Option<T::Native>>,
    compare: fn(&T::Native, &T::Native) -> std::cmp::Ordering,
    value: V,
}

impl<T: ArrowPrimitiveType, V> Extremes<T, V> {
    fn new(largest: bool, compare: fn(&T::Native, &T::Native) -> std::cmp::Ordering, value: V) -> Self {
        Self { largest, found: Vec::new(), compare, value }
    }
}

impl<T: ArrowPrimitiveType, V: Fn(T::Native) -> Value + Send + Sync> Groups for Extremes<T, V> {
    fn resize(&mut self, count: usize) {
        self.found.resize(count, None);
    }

    fn update(&mut self, values: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>) -> Result<()> {
        let wanted = if self.largest { std::cmp::Ordering::Greater } else { std::cmp::Ordering::Less };
        each(column::<PrimitiveArray<T>>(values)?, groups, filter, |group, value| {
            let found = &mut self.found[group];
            if found.is_none_or(|found| (self.compare)(&value, &found) == wanted) {
                *found = Some(value);
            }
            Ok(())
        })
    }

    fn value(&self, group: usize) -> Result<Value, SqlError> {
        Ok(self.found[group].map_or(Value::Null, &self.value))
    }

    fn drop_first(&mut self, count: usize) {
        drop_first(&mut self.found, count);
    }

    fn size(&self) -> usize {
        self.found.capacity() * size_of::<Option<T::Native>>()
    }
}

/// The least or the largest text.
#[derive(Default)]
struct Texts {
    largest: bool,
    found: Vec<Option<String>>,
    bytes: usize,
}

impl Groups for Texts {
    fn resize(&mut self, count: usize) {
        self.found.resize(count, None);
    }

    fn update(&mut self, values: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>) -> Result<()> {
        let array = column::<StringViewArray>(values)?;
        for (row, group) in groups.iter().enumerate() {
            if array.is_null(row) || !passes(filter, row) {
                continue;
            }
            let value = array.value(row);
            match &mut self.found[*group] {
                Some(found) => {
                    let better = if self.largest { value > found.as_str() } else { value < found.as_str() };
                    if better {
                        let before = found.capacity();
                        value.clone_into(found);
                        self.bytes += found.capacity() - before;
                    }
                }
                none => {
                    self.bytes += value.len();
                    *none = Some(value.to_owned());
                }
            }
        }
        Ok(())
    }

    fn value(&self, group: usize) -> Result<Value, SqlError> {
        Ok(self.found[group].as_deref().map_or(Value::Null, Value::text))
    }

    fn drop_first(&mut self, count: usize) {
        drop_first(&mut self.found, count);
    }

    fn size(&self) -> usize {
        self.found.capacity() * size_of::<Option<String>>() + self.bytes
    }
}
