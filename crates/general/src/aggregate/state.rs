//! Aggregates of values, one row at a time.

use std::{
    cmp::Ordering,
    collections::{HashSet, VecDeque},
    fmt,
};

use arrow::array::{Array as _, ArrayRef, BooleanArray};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Accumulator;
use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value,
    functions::resolve,
    types::{Array, Dimension, EvalContext, Interval, Numeric, json},
    work::{self, Kept},
};

use super::{
    Aggregate, AggregateKind, SortKey, counted,
    fast::add_floats,
    groups::{Groups, passes},
    no_partial_state,
    statistics::{Floats, Pairs, Regression},
};
use crate::{
    error::external,
    layout::{Reader, to_scalar},
    session,
};

/// A text of more bytes grows by a quarter, not to twice its length.
const LONG: usize = 1 << 20;
/// What a batch adds is counted in steps of this number of bytes.
const STEP: usize = 64 << 10;

/// A row of arguments.
type Row = Vec<Value>;

/// What an aggregate knows of a group.
#[derive(Clone, Debug)]
enum State {
    Count(i64),
    /// Whole numbers and how many they are.
    Integers(i128, i64),
    Numbers(Option<Numeric>, i64),
    Float4(Option<f32>),
    Float8(Option<f64>),
    Intervals(Option<Interval>, i64),
    Averaged(Floats),
    /// The value that is kept.
    Kept(Value),
    Bool(Option<bool>),
    Bits(Option<i64>),
    /// Text so far, and whether there is any.
    Text(String, bool),
    Bytes(Option<Vec<u8>>),
    Values(Vec<Value>),
    /// Count, sum, and sum of squares.
    Squares(i64, Numeric, Numeric),
    Pairs(Pairs),
    /// What an ordered set is taken of, in its order, with the fraction.
    Ordered(Option<Value>, Vec<Value>),
}

/// Roughly how many bytes a value takes.
fn value_size(value: &Value) -> usize {
    let behind = match value {
        Value::Text(text) | Value::Char(text) | Value::Json(text) | Value::Jsonb(text) => text.len() + 16,
        Value::Bytea(bytes) => bytes.len() + 16,
        Value::Numeric(number) => number.extent(),
        Value::Array(array) => array.values().iter().map(value_size).sum::<usize>() + 64,
        _ => 0,
    };
    size_of::<Value>() + behind
}

#[cold]
fn out_of_range(kind: Kind) -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{kind} out of range"))
}

#[cold]
fn mismatch(aggregate: &Aggregate) -> SqlError {
    SqlError::internal(format!("{} was given values of other types", aggregate.name))
}

impl State {
    fn new(aggregate: &Aggregate) -> Self {
        use AggregateKind as A;
        let kind = aggregate.types.first().map_or(Kind::Unknown, |ty| ty.kind());
        match (aggregate.kind, kind) {
            (A::Count, _) => Self::Count(0),
            (A::Sum | A::Avg, Kind::Int2 | Kind::Int4 | Kind::Int8) => Self::Integers(0, 0),
            (A::Sum | A::Avg, Kind::Numeric) => Self::Numbers(None, 0),
            (A::Sum | A::Avg, Kind::Interval) => Self::Intervals(None, 0),
            (A::Sum, Kind::Float4) => Self::Float4(None),
            (A::Sum, _) => Self::Float8(None),
            (A::Avg, _) => Self::Averaged(Floats::default()),
            (A::Min | A::Max | A::AnyValue, _) => Self::Kept(Value::Null),
            (A::BoolAnd | A::BoolOr, _) => Self::Bool(None),
            (A::BitAnd | A::BitOr | A::BitXor, _) => Self::Bits(None),
            (A::StringAgg, Kind::Bytea) => Self::Bytes(None),
            (A::StringAgg | A::JsonAgg { .. } | A::JsonObjectAgg { .. }, _) => Self::Text(String::new(), false),
            (A::ArrayAgg, _) => Self::Values(Vec::new()),
            (A::Variance { .. }, Kind::Numeric) => Self::Squares(0, Numeric::ZERO, Numeric::ZERO),
            (A::Variance { .. }, _) => Self::Averaged(Floats::default()),
            (A::Regression(_), _) => Self::Pairs(Pairs::default()),
            (A::PercentileCont | A::PercentileDisc | A::Mode, _) => Self::Ordered(None, Vec::new()),
        }
    }

    /// Adds a row, and says how many bytes more are taken.
    fn add(&mut self, aggregate: &Aggregate, row: &[Value], context: &EvalContext<'_>) -> Result<usize, SqlError> {
        use AggregateKind as A;
        let Some(first) = row.first() else { return Ok(0) };
        let counts_nulls = matches!(
            aggregate.kind,
            A::ArrayAgg | A::JsonAgg { .. } | A::JsonObjectAgg { .. } | A::PercentileCont | A::PercentileDisc
        );
        if first.is_null() && !counts_nulls {
            return Ok(0);
        }
        match (self, first) {
            (Self::Count(count), _) => *count += 1,
            (Self::Integers(sum, count), number) => {
                *sum += i128::from(number.as_i64().ok_or_else(|| mismatch(aggregate))?);
                *count += 1;
            }
            (Self::Numbers(sum, count), Value::Numeric(number)) => {
                *sum = Some(match sum {
                    Some(sum) => sum.add(number)?,
                    None => number.clone(),
                });
                *count += 1;
            }
            (Self::Float4(sum), Value::Float4(number)) => {
                let next = sum.unwrap_or_default() + number;
                add_floats(sum.unwrap_or_default().into(), (*number).into())?;
                *sum = Some(next);
            }
            (Self::Float8(sum), Value::Float8(number)) => *sum = Some(add_floats(sum.unwrap_or_default(), *number)?),
            (Self::Intervals(sum, count), Value::Interval(interval)) => {
                *sum = Some(match sum {
                    Some(sum) => sum.add(*interval)?,
                    None => *interval,
                });
                *count += 1;
            }
            (Self::Averaged(floats), Value::Float8(number)) => floats.add(*number)?,
            (Self::Averaged(floats), Value::Float4(number)) => floats.add((*number).into())?,
            (Self::Kept(kept), value) => {
                // Of values that are equal and look different, the last one stays.
                let better = match aggregate.kind {
                    A::Max => kept.is_null() || *value >= *kept,
                    A::Min => kept.is_null() || *value <= *kept,
                    _ => kept.is_null(),
                };
                if better {
                    let grown = value_size(value).saturating_sub(value_size(kept));
                    *kept = value.clone();
                    return Ok(grown);
                }
            }
            (Self::Bool(found), Value::Bool(value)) => {
                *found = Some(match (*found, aggregate.kind) {
                    (None, _) => *value,
                    (Some(found), A::BoolAnd) => found && *value,
                    (Some(found), _) => found || *value,
                });
            }
            (Self::Bits(bits), number) => {
                let number = number.as_i64().ok_or_else(|| mismatch(aggregate))?;
                *bits = Some(match (*bits, aggregate.kind) {
                    (None, _) => number,
                    (Some(bits), A::BitAnd) => bits & number,
                    (Some(bits), A::BitOr) => bits | number,
                    (Some(bits), _) => bits ^ number,
                });
            }
            (Self::Text(text, any), value) => {
                let before = text.len();
                let more = value_size(value) + row.get(1).map_or(0, value_size);
                if before > LONG && text.capacity() - before < more {
                    // Not twice as much, and as much again while it is copied.
                    text.reserve_exact(more.max(before / 4));
                }
                add_text(aggregate, text, *any, value, row.get(1), context)?;
                *any = true;
                // It is copied when it grows, and for the result.
                return Ok(2 * (text.len() - before));
            }
            (Self::Bytes(bytes), Value::Bytea(value)) => {
                match bytes {
                    None => *bytes = Some(value.to_vec()),
                    Some(bytes) => {
                        if let Some(Value::Bytea(separator)) = row.get(1) {
                            bytes.extend_from_slice(separator);
                        }
                        bytes.extend_from_slice(value);
                    }
                }
                return Ok(value.len());
            }
            (Self::Values(values), value) => {
                values.push(value.clone());
                return Ok(value_size(value));
            }
            (Self::Squares(count, sum, squares), Value::Numeric(number)) => {
                *count += 1;
                *sum = sum.add(number)?;
                *squares = squares.add(&number.mul(number)?)?;
            }
            (Self::Pairs(pairs), Value::Float8(y)) => {
                if let Some(Value::Float8(x)) = row.get(1) {
                    pairs.add(*y, *x)?;
                }
            }
            (Self::Ordered(fraction, values), first) => {
                let value = if aggregate.kind == A::Mode {
                    Some(first)
                } else {
                    *fraction = Some(first.clone());
                    row.get(1)
                };
                if let Some(value) = value.filter(|value| !value.is_null()) {
                    values.push(value.clone());
                    return Ok(value_size(value));
                }
            }
            _ => return Err(mismatch(aggregate)),
        }
        Ok(0)
    }

    /// Takes a row back, if that can be done.
    fn remove(&mut self, row: &[Value]) -> Result<bool, SqlError> {
        let Some(first) = row.first() else { return Ok(true) };
        match (self, first) {
            (Self::Count(_) | Self::Integers(..), Value::Null) => {}
            (Self::Count(count), _) => *count -= 1,
            (Self::Integers(sum, count), number) => {
                *sum -= i128::from(number.as_i64().unwrap_or_default());
                *count -= 1;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn result(&self, aggregate: &Aggregate) -> Result<Value, SqlError> {
        use AggregateKind as A;
        Ok(match self {
            Self::Count(count) => Value::Int8(*count),
            Self::Integers(_, 0) => Value::Null,
            Self::Integers(sum, count) => {
                let number = || Numeric::from(*sum);
                match (aggregate.kind, aggregate.result.kind()) {
                    (A::Avg, _) => Value::Numeric(number().div(&(*count).into())?),
                    (_, Kind::Numeric) => Value::Numeric(number()),
                    _ => Value::Int8(i64::try_from(*sum).map_err(|_| out_of_range(Kind::Int8))?),
                }
            }
            Self::Numbers(Some(sum), count) if aggregate.kind == A::Avg => Value::Numeric(sum.div(&(*count).into())?),
            Self::Numbers(sum, _) => sum.clone().into(),
            Self::Float4(sum) => (*sum).into(),
            Self::Float8(sum) => (*sum).into(),
            Self::Intervals(Some(sum), count) if aggregate.kind == A::Avg => Value::Interval(sum.div(*count as f64)?),
            Self::Intervals(sum, _) => (*sum).into(),
            Self::Averaged(floats) => match aggregate.kind {
                A::Variance { population, root } => floats.variance(population, root),
                _ => floats.average(),
            },
            Self::Kept(value) => value.clone(),
            Self::Bool(found) => (*found).into(),
            Self::Bits(bits) => match (bits, aggregate.result.kind()) {
                (None, _) => Value::Null,
                (Some(bits), Kind::Int2) => Value::Int2(*bits as i16),
                (Some(bits), Kind::Int4) => Value::Int4(*bits as i32),
                (Some(bits), _) => Value::Int8(*bits),
            },
            Self::Text(_, false) => Value::Null,
            Self::Text(text, true) => text_result(aggregate, text)?,
            Self::Bytes(bytes) => bytes.clone().into(),
            Self::Values(values) => array_of(values, aggregate.result)?,
            Self::Squares(count, sum, squares) => match aggregate.kind {
                A::Variance { population, root } => variance(*count, sum, squares, population, root)?,
                _ => Value::Null,
            },
            Self::Pairs(pairs) => match aggregate.kind {
                A::Regression(what) => pairs.result(what),
                _ => pairs.result(Regression::Count),
            },
            Self::Ordered(fraction, values) => ordered(aggregate.kind, fraction.as_ref(), values)?,
        })
    }
}

fn add_text(
    aggregate: &Aggregate,
    text: &mut String,
    any: bool,
    value: &Value,
    second: Option<&Value>,
    context: &EvalContext<'_>,
) -> Result<(), SqlError> {
    let to_json = |value: &Value| -> Result<Value, SqlError> {
        let kind = value.kind().unwrap_or(Kind::Text);
        resolve("to_json", &[kind])?.function.call(std::slice::from_ref(value), context)
    };
    match aggregate.kind {
        AggregateKind::JsonAgg { rows, .. } => {
            let structured = rows || aggregate.types.first().is_some_and(|ty| ty.kind().is_array());
            text.push_str(match (any, structured && !value.is_null()) {
                (false, _) => "[",
                (true, false) => ", ",
                (true, true) => ", \n ",
            });
            match to_json(value)? {
                Value::Json(json) => text.push_str(&json),
                _ => text.push_str("null"),
            }
        }
        AggregateKind::JsonObjectAgg { .. } => {
            if value.is_null() {
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "field name must not be null"));
            }
            text.push_str(if any { ", " } else { "{ " });
            let key = aggregate.types.first().map_or(Kind::Text, |ty| ty.kind());
            let name = freshet_sql::types::text::to_text(key, value, context);
            freshet_sql::types::json::write_string(&name, text);
            text.push_str(" : ");
            match second.map(to_json).transpose()? {
                Some(Value::Json(json)) => text.push_str(&json),
                _ => text.push_str("null"),
            }
        }
        _ => {
            if any && let Some(Value::Text(separator)) = second {
                text.push_str(separator);
            }
            text.push_str(value.as_str().unwrap_or_default());
        }
    }
    Ok(())
}

fn text_result(aggregate: &Aggregate, text: &str) -> Result<Value, SqlError> {
    let (closed, binary) = match aggregate.kind {
        AggregateKind::JsonAgg { binary, .. } => (format!("{text}]"), binary),
        AggregateKind::JsonObjectAgg { binary } => (format!("{text} }}"), binary),
        _ => return Ok(Value::text(text)),
    };
    if binary { Ok(Value::Jsonb(json::canonical(&closed)?.into())) } else { Ok(Value::Json(closed.into())) }
}

/// Values as an array; arrays as one of a dimension more.
fn array_of(values: &[Value], result: Type) -> Result<Value, SqlError> {
    let element = result.kind().element().unwrap_or(Kind::Text);
    if values.is_empty() {
        return Ok(Value::Null);
    }
    if !values.iter().any(|value| matches!(value, Value::Array(_))) {
        return Ok(Value::array(Array::new(element, values.to_vec())));
    }
    let error = |message| Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT_ERROR, message));
    let mut shape: Option<&[Dimension]> = None;
    let mut elements = Vec::new();
    for value in values {
        let Value::Array(array) = value else {
            return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, "cannot accumulate null arrays"));
        };
        if array.values().is_empty() {
            return error("cannot accumulate empty arrays");
        }
        if shape.is_some_and(|shape| shape != array.dimensions()) {
            return error("cannot accumulate arrays of different dimensionality");
        }
        shape = Some(array.dimensions());
        elements.extend_from_slice(array.values());
    }
    let mut dimensions = vec![Dimension { length: values.len() as u32, lower: 1 }];
    dimensions.extend_from_slice(shape.unwrap_or(&[]));
    Array::with_dimensions(element, dimensions, elements).map(Value::array)
}

/// (N * sum of squares - square of sum) / N or N - 1, by N.
fn variance(count: i64, sum: &Numeric, squares: &Numeric, population: bool, root: bool) -> Result<Value, SqlError> {
    let by = if population { count } else { count - 1 };
    if by < 1 {
        return Ok(Value::Null);
    }
    let number = Numeric::from(count);
    let difference = number.mul(squares)?.sub(&sum.mul(sum)?)?;
    if difference.as_special().is_some() {
        return Ok(Value::Numeric(Numeric::nan()));
    }
    if difference.cmp(&Numeric::ZERO).is_le() {
        return Ok(Value::Numeric(Numeric::ZERO));
    }
    let variance = difference.div(&number.mul(&Numeric::from(by))?)?;
    Ok(Value::Numeric(if root { variance.sqrt()? } else { variance }))
}

fn ordered(kind: AggregateKind, fraction: Option<&Value>, values: &[Value]) -> Result<Value, SqlError> {
    if values.is_empty() {
        return Ok(Value::Null);
    }
    if kind == AggregateKind::Mode {
        // Equal values are neighbours; the first of the longest runs counts.
        let mut best = (0, 0);
        let mut start = 0;
        for at in 1..=values.len() {
            if at == values.len() || values[at] != values[start] {
                if at - start > best.1 {
                    best = (start, at - start);
                }
                start = at;
            }
        }
        return Ok(values[best.0].clone());
    }
    let Some(Value::Float8(fraction)) = fraction else { return Ok(Value::Null) };
    if !(0.0..=1.0).contains(fraction) {
        return Err(SqlError::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("percentile value {fraction} is not between 0 and 1"),
        ));
    }
    if kind == AggregateKind::PercentileDisc {
        let at = (fraction * values.len() as f64).ceil() as usize;
        return Ok(values[at.max(1) - 1].clone());
    }
    let place = fraction * (values.len() - 1) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    let part = place - low as f64;
    Ok(match (&values[low], &values[high]) {
        (one, _) if low == high => one.clone(),
        (Value::Float8(one), Value::Float8(two)) => Value::Float8(one + part * (two - one)),
        (Value::Interval(one), Value::Interval(two)) => Value::Interval(one.add(two.sub(*one)?.mul(part)?)?),
        (one, _) => one.clone(),
    })
}

/// Compares rows as ORDER BY does, by the values from `start` on.
fn compare(order: &[SortKey], start: usize, one: &[Value], two: &[Value]) -> Ordering {
    for (key, (one, two)) in order.iter().zip(one.iter().skip(start).zip(two.iter().skip(start))) {
        let compared = match (one.is_null(), two.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => {
                if key.nulls_first {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
            (false, true) => {
                if key.nulls_first {
                    Ordering::Greater
                } else {
                    Ordering::Less
                }
            }
            (false, false) if key.descending => two.cmp(one),
            (false, false) => one.cmp(two),
        };
        if compared.is_ne() {
            return compared;
        }
    }
    Ordering::Equal
}

/// The rows of a group that have to be sorted, or to be told apart, before they are added up.
#[derive(Default)]
struct Gathered {
    rows: Vec<Row>,
    seen: HashSet<Row>,
}

impl Gathered {
    fn result(&self, aggregate: &Aggregate, context: &EvalContext<'_>) -> Result<Value, SqlError> {
        let mut rows: Vec<&Row> =
            if aggregate.distinct { self.seen.iter().collect() } else { self.rows.iter().collect() };
        let start = if aggregate.kind.is_ordered_set() { aggregate.own - 1 } else { aggregate.own };
        if aggregate.distinct {
            rows.sort_by(|one, two| compare(&aggregate.order, start, one, two).then_with(|| one.cmp(two)));
        } else {
            rows.sort_by(|one, two| compare(&aggregate.order, start, one, two));
        }
        let mut state = State::new(aggregate);
        for row in rows {
            state.add(aggregate, &row[..aggregate.own.min(row.len())], context)?;
        }
        state.result(aggregate)
    }
}

/// Any aggregate, for many groups.
pub(super) struct Generic {
    aggregate: Aggregate,
    states: Vec<State>,
    gathered: Vec<Gathered>,
    bytes: usize,
}

impl Generic {
    pub fn new(aggregate: Aggregate) -> Self {
        Self { aggregate, states: Vec::new(), gathered: Vec::new(), bytes: 0 }
    }

    fn gathers(&self) -> bool {
        self.aggregate.distinct || !self.aggregate.order.is_empty()
    }
}

/// Readers of an aggregate's arguments.
fn readers<'a>(types: &[Type], values: &'a [ArrayRef]) -> Result<Vec<Reader<'a>>> {
    types.iter().zip(values).map(|(ty, array)| Reader::new(*ty, array).map_err(external)).collect()
}

impl Groups for Generic {
    fn resize(&mut self, count: usize) {
        if self.gathers() {
            self.gathered.resize_with(count, Gathered::default);
        } else {
            self.states.resize_with(count, || State::new(&self.aggregate));
        }
    }

    fn update(&mut self, values: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>) -> Result<()> {
        let gathers = self.gathers();
        let readers = readers(&self.aggregate.types, values)?;
        session::with(|session| {
            // All of it is counted behind the batch; until then, what the batch adds.
            let (before, held) = (self.bytes, session.state.reserve());
            for (at, group) in groups.iter().enumerate() {
                if self.bytes - before > held.size() {
                    held.try_grow(self.bytes - before - held.size() + STEP)?;
                }
                if !passes(filter, at) {
                    continue;
                }
                let mut row = Vec::with_capacity(readers.len());
                for reader in &readers {
                    row.push(reader.value(at).map_err(external)?);
                }
                if !gathers {
                    self.bytes += self.states[*group].add(&self.aggregate, &row, session.context).map_err(external)?;
                    continue;
                }
                let size = row.iter().map(value_size).sum::<usize>() + size_of::<Row>();
                let gathered = &mut self.gathered[*group];
                if !self.aggregate.distinct {
                    gathered.rows.push(row);
                    self.bytes += size;
                } else if gathered.seen.insert(row) {
                    self.bytes += size;
                }
            }
            Ok(())
        })
    }

    fn value(&self, group: usize) -> Result<Value, SqlError> {
        if !self.gathers() {
            return self.states[group].result(&self.aggregate);
        }
        session::with(|session| self.gathered[group].result(&self.aggregate, session.context).map_err(external))
            .map_err(crate::error::to_sql)
    }

    fn drop_first(&mut self, count: usize) {
        self.states.drain(..count.min(self.states.len()));
        self.gathered.drain(..count.min(self.gathered.len()));
    }

    fn size(&self) -> usize {
        self.bytes + self.states.capacity() * size_of::<State>() + self.gathered.capacity() * size_of::<Gathered>()
    }
}

/// Any aggregate over a window's frame, which rows enter at its end and leave at its beginning.
pub(super) struct Sliding {
    aggregate: Aggregate,
    rows: VecDeque<Row>,
    /// The state of these rows, unless one has left that could not be taken back.
    state: Option<State>,
    bytes: usize,
    /// The memory of the results, counted for as long as they live.
    given: Kept,
}

impl Sliding {
    pub fn new(aggregate: Aggregate) -> Self {
        Self { aggregate, rows: VecDeque::new(), state: None, bytes: 0, given: work::kept() }
    }
}

impl fmt::Debug for Sliding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sliding").field("aggregate", &self.aggregate.name).finish_non_exhaustive()
    }
}

impl Accumulator for Sliding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let readers = readers(&self.aggregate.types, values)?;
        session::with(|session| {
            session.check()?;
            for at in 0..values.first().map_or(0, |array| array.len()) {
                let row =
                    readers.iter().map(|reader| reader.value(at)).collect::<Result<Row, _>>().map_err(external)?;
                if let Some(state) = &mut self.state {
                    state.add(&self.aggregate, &row, session.context).map_err(external)?;
                }
                self.bytes += row.iter().map(value_size).sum::<usize>() + size_of::<Row>();
                self.rows.push_back(row);
            }
            Ok(())
        })
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in 0..values.first().map_or(0, |array| array.len()) {
            let Some(row) = self.rows.pop_front() else { break };
            self.bytes -= row.iter().map(value_size).sum::<usize>() + size_of::<Row>();
            if let Some(state) = &mut self.state
                && !state.remove(&row).map_err(external)?
            {
                self.state = None;
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        session::with(|session| {
            if self.state.is_none() {
                session.check()?;
                let mut state = State::new(&self.aggregate);
                for row in &self.rows {
                    state.add(&self.aggregate, row, session.context).map_err(external)?;
                }
                self.state = Some(state);
            }
            let value = match &self.state {
                Some(state) => state.result(&self.aggregate).map_err(external)?,
                None => Value::Null,
            };
            counted(to_scalar(self.aggregate.result, &value).map_err(external)?, &self.given)
        })
    }

    fn size(&self) -> usize {
        self.bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        no_partial_state()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        no_partial_state()
    }
}
