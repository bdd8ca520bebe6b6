//! FOR UPDATE: rows are locked as they come by.

use std::{fmt, sync::Arc};

use arrow::{
    array::{Array as _, ArrayRef, Int64Array, RecordBatch},
    datatypes::Int64Type,
};
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    metrics::{BaselineMetrics, ExecutionPlanMetricsSet},
};
use freshet_sql::{general::Lockable, locking::RowMark};

use super::{next_batch, operator, properties, stepping};
use crate::error::external;

/// A table, by what its rows are locked, and how.
#[derive(Clone, Debug)]
pub(crate) struct LockedTable {
    pub table: Arc<dyn Lockable>,
    pub row: Arc<dyn PhysicalExpr>,
    pub mark: RowMark,
}

/// Locks rows, and leaves out those that others hold or that are gone. It gives one row at a time:
/// who wants no more of them locks no more.
#[derive(Clone, Debug)]
pub(crate) struct LockExec {
    input: Arc<dyn ExecutionPlan>,
    tables: Vec<LockedTable>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// A batch whose rows from this one on are still to be locked.
struct Rest {
    batch: RecordBatch,
    rows: Vec<Int64Array>,
    next: usize,
}

impl LockExec {
    pub fn new(input: Arc<dyn ExecutionPlan>, tables: Vec<LockedTable>) -> Self {
        let properties = properties(&input.schema());
        Self { input, tables, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    fn rest(&self, batch: RecordBatch) -> Result<Rest> {
        let rows = self.tables.iter().map(|locked| {
            let column: ArrayRef = locked.row.evaluate(&batch)?.into_array(batch.num_rows())?;
            let ids = arrow::array::cast::as_primitive_array::<Int64Type>(&column);
            Ok(ids.clone())
        });
        let rows = rows.collect::<Result<_>>()?;
        Ok(Rest { batch, rows, next: 0 })
    }

    /// Locks what a row is made of; says whether the row stays.
    fn lock(&self, rest: &Rest, row: usize) -> Result<bool> {
        for (locked, ids) in self.tables.iter().zip(&rest.rows) {
            if ids.is_null(row) {
                return Err(DataFusionError::Internal("a row that is to be locked has no id".to_owned()));
            }
            if !locked.table.lock(ids.value(row), locked.mark).map_err(external)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl ExecutionPlan for LockExec {
    operator!(LockExec, "Lock", children: [input], expressions: |lock| lock.tables.iter().map(|it| &it.row).collect());

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let input = self.input.execute(partition, context)?;
        let lock = self.clone();
        let state: (SendableRecordBatchStream, Option<Rest>) = (input, None);
        Ok(stepping(self.input.schema(), metrics, state, move |(input, rest)| {
            loop {
                let Some(there) = rest.as_mut().filter(|rest| rest.next < rest.batch.num_rows()) else {
                    let Some(batch) = next_batch(input)? else { return Ok(None) };
                    *rest = Some(lock.rest(batch)?);
                    continue;
                };
                let row = there.next;
                there.next += 1;
                if lock.lock(there, row)? {
                    return Ok(Some(there.batch.slice(row, 1)));
                }
            }
        }))
    }
}

impl DisplayAs for LockExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lock")
    }
}
