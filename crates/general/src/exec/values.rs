//! Rows that are written out.

use std::{fmt, sync::Arc};

use arrow::{
    array::{RecordBatch, RecordBatchOptions, new_empty_array},
    datatypes::{Schema, SchemaRef},
};
use datafusion_common::{Result, ScalarValue};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    metrics::{BaselineMetrics, ExecutionPlanMetricsSet},
};

use super::{operator, properties, stepping};
use crate::session;

/// Rows of expressions that see no columns.
#[derive(Clone, Debug)]
pub(crate) struct ValuesExec {
    rows: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ValuesExec {
    pub fn new(rows: Vec<Vec<Arc<dyn PhysicalExpr>>>, schema: SchemaRef) -> Self {
        let properties = properties(&schema);
        Self { rows, schema, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// All rows.
    ///
    /// # Errors
    /// What their expressions return.
    pub fn batch(&self) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
        // An array for each value would take kilobytes.
        let mut columns: Vec<Vec<ScalarValue>> =
            self.schema.fields().iter().map(|_| Vec::with_capacity(self.rows.len())).collect();
        for (at, exprs) in self.rows.iter().enumerate() {
            if at % 1024 == 0 {
                session::check()?;
            }
            for (column, expr) in columns.iter_mut().zip(exprs) {
                column.push(match expr.evaluate(&row)? {
                    ColumnarValue::Scalar(scalar) => scalar,
                    ColumnarValue::Array(array) => ScalarValue::try_from_array(&array, 0)?,
                });
            }
        }
        let columns = columns
            .into_iter()
            .zip(self.schema.fields())
            .map(|(column, field)| match column.is_empty() {
                true => Ok(new_empty_array(field.data_type())),
                false => ScalarValue::iter_to_array(column),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

impl ExecutionPlan for ValuesExec {
    operator!(ValuesExec, "Values", children: [], expressions: |values| values.rows.iter().flatten().collect());

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let values = self.clone();
        let left = !self.rows.is_empty();
        Ok(stepping(Arc::clone(&self.schema), metrics, left, move |left| {
            if std::mem::take(left) { values.batch().map(Some) } else { Ok(None) }
        }))
    }
}

impl DisplayAs for ValuesExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Values: {} rows", self.rows.len())
    }
}
