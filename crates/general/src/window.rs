//! The functions that are nothing but window functions.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{Array as _, ArrayRef, Float64Array, Int32Array, Int64Array},
    compute::interleave,
    datatypes::{DataType, Field, FieldRef},
};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::{
    PartitionEvaluator, Signature, Volatility, WindowUDFImpl,
    function::{PartitionEvaluatorArgs, WindowUDFFieldArgs},
};
use freshet_sql::{SqlError, SqlState, Type};

use crate::{error::external, layout::data_type};

/// The window functions that are no aggregates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WindowKind {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile,
    Lag,
    Lead,
    FirstValue,
    LastValue,
    NthValue,
}

impl WindowKind {
    /// The function of a name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "row_number" => Self::RowNumber,
            "rank" => Self::Rank,
            "dense_rank" => Self::DenseRank,
            "percent_rank" => Self::PercentRank,
            "cume_dist" => Self::CumeDist,
            "ntile" => Self::Ntile,
            "lag" => Self::Lag,
            "lead" => Self::Lead,
            "first_value" => Self::FirstValue,
            "last_value" => Self::LastValue,
            "nth_value" => Self::NthValue,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            // DataFusion concludes more than it may from the name row_number.
            Self::RowNumber => "row number",
            Self::Rank => "rank",
            Self::DenseRank => "dense_rank",
            Self::PercentRank => "percent_rank",
            Self::CumeDist => "cume_dist",
            Self::Ntile => "ntile",
            Self::Lag => "lag",
            Self::Lead => "lead",
            Self::FirstValue => "first_value",
            Self::LastValue => "last_value",
            Self::NthValue => "nth_value",
        }
    }

    /// How many arguments it takes, at least and at most.
    pub fn arguments(self) -> (usize, usize) {
        match self {
            Self::RowNumber | Self::Rank | Self::DenseRank | Self::PercentRank | Self::CumeDist => (0, 0),
            Self::Ntile | Self::FirstValue | Self::LastValue => (1, 1),
            Self::NthValue => (2, 2),
            Self::Lag | Self::Lead => (1, 3),
        }
    }
}

/// A window function with the type of its result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ranking {
    kind: WindowKind,
    ty: Type,
    signature: Signature,
}

impl Ranking {
    pub fn new(kind: WindowKind, ty: Type) -> Self {
        Self { kind, ty, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl WindowUDFImpl for Ranking {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(&self, _: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Evaluator { kind: self.kind }))
    }

    fn field(&self, arguments: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(arguments.name(), data_type(self.ty), true)))
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }
}

#[derive(Debug)]
struct Evaluator {
    kind: WindowKind,
}

#[cold]
fn must_be_positive(state: &str, message: &'static str) -> DataFusionError {
    external(SqlError::new(SqlState::new(state), message))
}

fn integer(values: &[ArrayRef], at: usize, row: usize) -> Option<i64> {
    let array = values.get(at)?.as_any().downcast_ref::<Int32Array>()?;
    array.is_valid(row).then(|| array.value(row).into())
}

impl Evaluator {
    /// Numbers the buckets: the first ones take what is left over.
    fn ntile(values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let Some(buckets) = integer(values, 0, 0) else {
            return Ok(Arc::new(Int32Array::new_null(rows)));
        };
        let Some(buckets) = usize::try_from(buckets).ok().filter(|buckets| *buckets > 0) else {
            return Err(must_be_positive("22014", "argument of ntile must be greater than zero"));
        };
        let (size, larger) = (rows / buckets, rows % buckets);
        let number = |row: usize| {
            let in_larger = larger * (size + 1);
            let bucket = if row < in_larger { row / (size + 1) } else { larger + (row - in_larger) / size.max(1) };
            i32::try_from(bucket + 1).unwrap_or(i32::MAX)
        };
        Ok(Arc::new(Int32Array::from_iter_values((0..rows).map(number))))
    }

    /// The values some rows before or after each row, or else the default.
    fn shifted(&self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let Some(column) = values.first() else {
            return Err(DataFusionError::Internal("a window function has no argument".to_owned()));
        };
        let missing = match values.get(2) {
            Some(default) => Arc::clone(default),
            None => arrow::array::new_null_array(column.data_type(), rows.max(1)),
        };
        let null = arrow::array::new_null_array(column.data_type(), 1);
        let indices: Vec<(usize, usize)> = (0..rows)
            .map(|row| {
                let offset = if values.len() > 1 { integer(values, 1, row) } else { Some(1) };
                let Some(offset) = offset else { return (2, 0) };
                let offset = if self.kind == WindowKind::Lag { -offset } else { offset };
                match (row as i64).checked_add(offset).and_then(|to| usize::try_from(to).ok()).filter(|to| *to < rows) {
                    Some(to) => (0, to),
                    None => (1, if values.len() > 2 { row } else { 0 }),
                }
            })
            .collect();
        Ok(interleave(&[column.as_ref(), missing.as_ref(), null.as_ref()], &indices)?)
    }
}

impl PartitionEvaluator for Evaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        match self.kind {
            WindowKind::RowNumber => Ok(Arc::new(Int64Array::from_iter_values(1..=rows as i64))),
            WindowKind::Ntile => Self::ntile(values, rows),
            _ => self.shifted(values, rows),
        }
    }

    fn evaluate_all_with_rank(&self, rows: usize, peers: &[Range<usize>]) -> Result<ArrayRef> {
        fn integers(peers: &[Range<usize>], of: impl Fn(usize, &Range<usize>) -> i64) -> ArrayRef {
            let ranks = peers.iter().enumerate().flat_map(|(at, range)| {
                let rank = of(at, range);
                range.clone().map(move |_| rank)
            });
            Arc::new(Int64Array::from_iter_values(ranks))
        }
        fn floats(peers: &[Range<usize>], of: impl Fn(&Range<usize>) -> f64) -> ArrayRef {
            let ranks = peers.iter().flat_map(|range| {
                let rank = of(range);
                range.clone().map(move |_| rank)
            });
            Arc::new(Float64Array::from_iter_values(ranks))
        }
        Ok(match self.kind {
            WindowKind::DenseRank => integers(peers, |at, _| at as i64 + 1),
            WindowKind::PercentRank => {
                floats(peers, |range| if rows > 1 { range.start as f64 / (rows - 1) as f64 } else { 0.0 })
            }
            WindowKind::CumeDist => floats(peers, |range| range.end as f64 / rows as f64),
            _ => integers(peers, |_, range| range.start as i64 + 1),
        })
    }

    fn evaluate(&mut self, values: &[ArrayRef], frame: &Range<usize>) -> Result<ScalarValue> {
        let Some(column) = values.first() else {
            return Err(DataFusionError::Internal("a window function has no argument".to_owned()));
        };
        let at = match self.kind {
            WindowKind::LastValue => frame.end.checked_sub(1).filter(|at| *at >= frame.start),
            WindowKind::NthValue => match integer(values, 1, frame.start.min(column.len().saturating_sub(1))) {
                None => None,
                Some(number) if number < 1 => {
                    return Err(must_be_positive("22016", "argument of nth_value must be greater than zero"));
                }
                Some(number) => usize::try_from(number - 1)
                    .ok()
                    .and_then(|n| frame.start.checked_add(n))
                    .filter(|at| *at < frame.end),
            },
            _ => Some(frame.start).filter(|at| *at < frame.end),
        };
        match at {
            Some(at) => ScalarValue::try_from_array(column, at),
            None => ScalarValue::try_from(column.data_type()),
        }
    }

    fn uses_window_frame(&self) -> bool {
        matches!(self.kind, WindowKind::FirstValue | WindowKind::LastValue | WindowKind::NthValue)
    }

    fn include_rank(&self) -> bool {
        matches!(self.kind, WindowKind::Rank | WindowKind::DenseRank | WindowKind::PercentRank | WindowKind::CumeDist)
    }
}
