//! LIMIT and OFFSET of numbers that are another for each row around a subquery.

use std::{fmt, sync::Arc};

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::Schema,
};
use datafusion_common::Result;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    metrics::{BaselineMetrics, ExecutionPlanMetricsSet},
};
use freshet_sql::Type;

use super::{next_batch, operator, properties, stepping};
use crate::{error::external, layout::from_scalar, node::negative_count};

/// The number that LIMIT or OFFSET say; null says nothing.
///
/// # Errors
/// 2201W and 2201X when it is below zero.
pub(crate) fn counted(count: &Arc<dyn PhysicalExpr>, clause: &'static str) -> Result<Option<usize>> {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let one = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
    let scalar = match count.evaluate(&one)? {
        ColumnarValue::Scalar(scalar) => scalar,
        ColumnarValue::Array(array) => datafusion_common::ScalarValue::try_from_array(&array, 0)?,
    };
    let value = from_scalar(Type::INT8, &scalar).map_err(external)?;
    match value.as_i64() {
        None => Ok(None),
        Some(number) => usize::try_from(number).map(Some).map_err(|_| external(negative_count(clause))),
    }
}

/// Some of the rows, by numbers that are computed each time it runs.
#[derive(Clone, Debug)]
pub(crate) struct LimitExec {
    input: Arc<dyn ExecutionPlan>,
    skip: Option<Arc<dyn PhysicalExpr>>,
    fetch: Option<Arc<dyn PhysicalExpr>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl LimitExec {
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        skip: Option<Arc<dyn PhysicalExpr>>,
        fetch: Option<Arc<dyn PhysicalExpr>>,
    ) -> Self {
        let properties = properties(&input.schema());
        Self { input, skip, fetch, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl ExecutionPlan for LimitExec {
    operator!(LimitExec, "Limit", children: [input], expressions: |limit| {
        limit.skip.iter().chain(&limit.fetch).collect()
    });

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let count = |count: &Option<Arc<dyn PhysicalExpr>>, clause| match count {
            Some(expr) => counted(expr, clause),
            None => Ok(None),
        };
        let skip = count(&self.skip, "OFFSET")?.unwrap_or(0);
        let fetch = count(&self.fetch, "LIMIT")?;
        let input = self.input.execute(partition, context)?;
        Ok(stepping(self.input.schema(), metrics, (input, skip, fetch), |(input, skip, fetch)| {
            while *fetch != Some(0) {
                let Some(batch) = next_batch(input)? else { return Ok(None) };
                let skipped = (*skip).min(batch.num_rows());
                *skip -= skipped;
                let taken = fetch.unwrap_or(usize::MAX).min(batch.num_rows() - skipped);
                if let Some(fetch) = fetch {
                    *fetch -= taken;
                }
                if taken > 0 {
                    return Ok(Some(batch.slice(skipped, taken)));
                }
            }
            Ok(None)
        }))
    }
}

impl DisplayAs for LimitExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Limit: for each row")
    }
}
