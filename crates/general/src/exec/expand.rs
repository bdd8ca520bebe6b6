//! Functions that return sets: each row once for each row that they return for it.

use std::{fmt, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array},
    compute::take,
    datatypes::SchemaRef,
};
use datafusion_common::{Result, ScalarValue};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    metrics::{BaselineMetrics, ExecutionPlanMetricsSet},
};
use freshet_sql::{Type, Value};

use super::{BATCH_ROWS, FIRST_ROWS, next_batch, operator, properties, stepping};
use crate::{
    error::external,
    layout::{Builder, from_scalar},
    series::{Series, SeriesRows},
    session,
};

/// A function with its arguments and the types of its columns.
#[derive(Clone, Debug)]
pub(crate) struct ExpandCall {
    pub series: Series,
    pub arguments: Vec<(Arc<dyn PhysicalExpr>, Type)>,
    pub columns: Vec<Type>,
}

/// Each row once for each row that functions return for it; they go side by side, the shorter ones
/// filled with nulls.
#[derive(Clone, Debug)]
pub(crate) struct ExpandExec {
    input: Arc<dyn ExecutionPlan>,
    calls: Vec<ExpandCall>,
    ordinality: bool,
    outer: bool,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// The functions' rows for one row of the input.
struct Current {
    row: u32,
    calls: Vec<(SeriesRows, bool)>,
    number: i64,
}

/// A batch of the input with its arguments.
struct Batch {
    batch: RecordBatch,
    arguments: Vec<Vec<(ColumnarValue, Type)>>,
    next: usize,
    current: Option<Current>,
}

impl ExpandExec {
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        calls: Vec<ExpandCall>,
        ordinality: bool,
        outer: bool,
        schema: SchemaRef,
    ) -> Self {
        let properties = properties(&schema);
        Self { input, calls, ordinality, outer, schema, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    fn begin(&self, batch: RecordBatch) -> Result<Batch> {
        let mut arguments = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            let mut values = Vec::with_capacity(call.arguments.len());
            for (expr, ty) in &call.arguments {
                values.push((expr.evaluate(&batch)?, *ty));
            }
            arguments.push(values);
        }
        Ok(Batch { batch, arguments, next: 0, current: None })
    }

    /// The functions' rows for a row.
    fn enter(&self, batch: &Batch, row: usize) -> Result<Current> {
        session::with(|session| {
            let mut calls = Vec::with_capacity(self.calls.len());
            for (call, arguments) in self.calls.iter().zip(&batch.arguments) {
                let mut values = Vec::with_capacity(arguments.len());
                for (value, ty) in arguments {
                    let scalar = match value {
                        ColumnarValue::Scalar(scalar) => scalar.clone(),
                        ColumnarValue::Array(array) => ScalarValue::try_from_array(array, row)?,
                    };
                    values.push(from_scalar(*ty, &scalar).map_err(external)?);
                }
                calls.push((call.series.rows(values, session.context).map_err(external)?, true));
            }
            Ok(Current { row: row as u32, calls, number: 0 })
        })
    }

    /// Adds rows until the batch is full, or none is left.
    fn fill(&self, batch: &mut Batch, count: &mut usize) -> Result<Option<RecordBatch>> {
        session::check()?;
        let most = (*count).min(session::with(|session| Ok(session.state.rows_at_once()))?);
        *count = (*count * 4).min(BATCH_ROWS);
        let mut rows: Vec<u32> = Vec::new();
        let mut builders: Vec<Vec<Builder>> =
            self.calls.iter().map(|call| call.columns.iter().map(|ty| Builder::new(*ty, 64)).collect()).collect();
        let mut numbers = Builder::new(Type::INT8, 64);
        while rows.len() < most {
            let mut current = match batch.current.take() {
                Some(current) => current,
                None if batch.next < batch.batch.num_rows() => {
                    batch.next += 1;
                    self.enter(batch, batch.next - 1)?
                }
                None => break,
            };
            let mut found: Vec<Option<Vec<Value>>> = Vec::with_capacity(current.calls.len());
            for (rows, open) in &mut current.calls {
                let row = if *open { rows.next().transpose().map_err(external)? } else { None };
                *open = row.is_some();
                found.push(row);
            }
            let any = found.iter().any(Option::is_some);
            let stays = self.outer && current.number == 0;
            if !any && !stays {
                continue;
            }
            rows.push(current.row);
            current.number += 1;
            for (row, builders) in found.iter().zip(&mut builders) {
                for (at, builder) in builders.iter_mut().enumerate() {
                    let value = row.as_ref().and_then(|row| row.get(at)).unwrap_or(&Value::Null);
                    builder.append(value.as_ref()).map_err(external)?;
                }
            }
            let number = if any { Value::Int8(current.number) } else { Value::Null };
            numbers.append(number.as_ref()).map_err(external)?;
            if any {
                batch.current = Some(current);
            }
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let count = rows.len();
        let rows = UInt32Array::from(rows);
        let mut columns: Vec<ArrayRef> =
            batch.batch.columns().iter().map(|column| take(column, &rows, None)).collect::<Result<_, _>>()?;
        columns.extend(builders.iter_mut().flatten().map(Builder::finish));
        if self.ordinality {
            columns.push(numbers.finish());
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(Some(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?))
    }
}

impl ExecutionPlan for ExpandExec {
    operator!(ExpandExec, "Expand", children: [input], expressions: |expand| {
        expand.calls.iter().flat_map(|call| call.arguments.iter().map(|(expr, _)| expr)).collect()
    });

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let input = self.input.execute(partition, context)?;
        let expand = self.clone();
        let state: (SendableRecordBatchStream, Option<Batch>, usize) = (input, None, FIRST_ROWS);
        Ok(stepping(Arc::clone(&self.schema), metrics, state, move |(input, batch, count)| {
            loop {
                if let Some(current) = batch {
                    if let Some(result) = expand.fill(current, count)? {
                        return Ok(Some(result));
                    }
                    *batch = None;
                }
                match next_batch(input)? {
                    Some(next) => *batch = Some(expand.begin(next)?),
                    None => return Ok(None),
                }
            }
        }))
    }
}

impl DisplayAs for ExpandExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: Vec<&str> = self.calls.iter().map(|call| call.series.name()).collect();
        write!(f, "Expand: {}", calls.join(", "))
    }
}
