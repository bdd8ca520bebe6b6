//! DISTINCT ON: the first row of those that have equal keys and follow each other.

use std::{fmt, sync::Arc};

use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch},
    compute::filter_record_batch,
    row::{OwnedRow, RowConverter, SortField},
};
use datafusion_common::Result;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    metrics::{BaselineMetrics, ExecutionPlanMetricsSet},
};

use super::{next_batch, operator, properties, stepping};

/// The first row of each run of equal keys.
#[derive(Clone, Debug)]
pub(crate) struct UniqueExec {
    input: Arc<dyn ExecutionPlan>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl UniqueExec {
    pub fn new(input: Arc<dyn ExecutionPlan>, keys: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        let properties = properties(&input.schema());
        Self { input, keys, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    fn first_ones(
        &self,
        converter: &RowConverter,
        last: &mut Option<OwnedRow>,
        batch: &RecordBatch,
    ) -> Result<RecordBatch> {
        let columns = self
            .keys
            .iter()
            .map(|key| key.evaluate(batch)?.into_array(batch.num_rows()))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let rows = converter.convert_columns(&columns)?;
        let mut keep = Vec::with_capacity(batch.num_rows());
        for (at, row) in rows.iter().enumerate() {
            let same = match at.checked_sub(1) {
                Some(before) => rows.row(before) == row,
                None => last.as_ref().is_some_and(|last| last.row() == row),
            };
            keep.push(!same);
        }
        if let Some(at) = batch.num_rows().checked_sub(1) {
            *last = Some(rows.row(at).owned());
        }
        Ok(filter_record_batch(batch, &BooleanArray::from(keep))?)
    }
}

impl ExecutionPlan for UniqueExec {
    operator!(UniqueExec, "Unique", children: [input], expressions: |unique| unique.keys.iter().collect());

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let schema = self.input.schema();
        let input = self.input.execute(partition, context)?;
        let fields =
            self.keys.iter().map(|key| Ok(SortField::new(key.data_type(&schema)?))).collect::<Result<Vec<_>>>()?;
        let converter = RowConverter::new(fields)?;
        let unique = self.clone();
        let state: (SendableRecordBatchStream, Option<OwnedRow>) = (input, None);
        Ok(stepping(schema, metrics, state, move |(input, last)| {
            while let Some(batch) = next_batch(input)? {
                let batch = unique.first_ones(&converter, last, &batch)?;
                if batch.num_rows() > 0 {
                    return Ok(Some(batch));
                }
            }
            Ok(None)
        }))
    }
}

impl DisplayAs for UniqueExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unique")
    }
}
