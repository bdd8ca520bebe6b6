//! LATERAL: a query that is run again for each row.

use std::{collections::VecDeque, fmt, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array},
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

use super::{next_batch, operator, properties, stepping};
use crate::session;

/// Each row beside each row of a query that depends on it.
#[derive(Clone, Debug)]
pub(crate) struct ApplyExec {
    input: Arc<dyn ExecutionPlan>,
    subquery: usize,
    captures: Vec<Arc<dyn PhysicalExpr>>,
    outer: bool,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// A batch of the input with what its rows are captured of.
struct Batch {
    batch: RecordBatch,
    captures: Vec<ColumnarValue>,
    next: usize,
}

impl ApplyExec {
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        subquery: usize,
        captures: Vec<Arc<dyn PhysicalExpr>>,
        outer: bool,
        schema: SchemaRef,
    ) -> Self {
        let properties = properties(&schema);
        Self { input, subquery, captures, outer, schema, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// The rows for one row of the input.
    fn rows(&self, batch: &Batch, row: usize, results: &mut VecDeque<RecordBatch>) -> Result<()> {
        let captured = batch
            .captures
            .iter()
            .map(|value| match value {
                ColumnarValue::Scalar(scalar) => Ok(scalar.clone()),
                ColumnarValue::Array(array) => ScalarValue::try_from_array(array, row),
            })
            .collect::<Result<Vec<_>>>()?;
        let width = batch.batch.num_columns();
        let mut any = false;
        session::with(|session| {
            session.check()?;
            session.state.run(self.subquery, captured, &mut |right| {
                if right.num_rows() > 0 {
                    any = true;
                    results.push_back(self.beside(&batch.batch, row, right.num_rows(), right.columns().to_vec())?);
                }
                Ok(true)
            })
        })?;
        if !any && self.outer {
            let nulls =
                self.schema.fields()[width..].iter().map(|field| new_null_array(field.data_type(), 1)).collect();
            results.push_back(self.beside(&batch.batch, row, 1, nulls)?);
        }
        Ok(())
    }

    fn beside(&self, left: &RecordBatch, row: usize, count: usize, right: Vec<ArrayRef>) -> Result<RecordBatch> {
        let rows = UInt32Array::from(vec![row as u32; count]);
        let mut columns: Vec<ArrayRef> =
            left.columns().iter().map(|column| take(column, &rows, None)).collect::<Result<_, _>>()?;
        columns.extend(right);
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

impl ExecutionPlan for ApplyExec {
    operator!(ApplyExec, "Apply", children: [input], expressions: |apply| apply.captures.iter().collect());

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let input = self.input.execute(partition, context)?;
        let apply = self.clone();
        let state: (SendableRecordBatchStream, Option<Batch>, VecDeque<RecordBatch>) = (input, None, VecDeque::new());
        Ok(stepping(Arc::clone(&self.schema), metrics, state, move |(input, batch, results)| {
            loop {
                if let Some(result) = results.pop_front() {
                    return Ok(Some(result));
                }
                match batch {
                    Some(current) if current.next < current.batch.num_rows() => {
                        current.next += 1;
                        apply.rows(current, current.next - 1, results)?;
                    }
                    _ => match next_batch(input)? {
                        Some(next) => {
                            let captures =
                                apply.captures.iter().map(|expr| expr.evaluate(&next)).collect::<Result<_>>()?;
                            *batch = Some(Batch { batch: next, captures, next: 0 });
                        }
                        None => return Ok(None),
                    },
                }
            }
        }))
    }
}

impl DisplayAs for ApplyExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Apply: subquery {}", self.subquery)
    }
}
