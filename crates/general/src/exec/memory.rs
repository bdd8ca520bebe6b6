//! Rows that are kept in memory.

use std::{fmt, sync::Arc};

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use datafusion_common::Result;
use datafusion_execution::{SendableRecordBatchStream, TaskContext, memory_pool::MemoryConsumer};
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    metrics::{BaselineMetrics, ExecutionPlanMetricsSet},
};

use super::{next_batch, operator, properties, stepping};
use crate::{error::external, session, subquery::Depends};

/// Gives out batches with only the columns that are wanted.
fn projected(batch: &RecordBatch, columns: &[usize], schema: &SchemaRef) -> Result<RecordBatch> {
    let arrays = columns.iter().map(|column| Arc::clone(batch.column(*column))).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)?)
}

/// The rows of a plan that is run once, however many parts of a query read it. The run has the
/// plan: it is in no place below.
#[derive(Clone, Debug)]
pub(crate) struct SharedExec {
    number: usize,
    depends: Depends,
    columns: Vec<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SharedExec {
    pub fn new(number: usize, depends: Depends, columns: Vec<usize>, schema: SchemaRef) -> Self {
        let properties = properties(&schema);
        let metrics = ExecutionPlanMetricsSet::new();
        Self { number, depends, columns, schema, properties, metrics }
    }

    fn batches(&self, context: &Arc<TaskContext>) -> Result<Arc<Vec<RecordBatch>>> {
        session::with(|session| {
            session.state.shared(self.number, &self.depends, &mut |reservation| {
                let plan = session.state.take_shared_plan(self.number)?;
                let mut stream = plan.execute(0, Arc::clone(context))?;
                let mut batches = Vec::new();
                while let Some(batch) = next_batch(&mut stream)? {
                    reservation.try_grow(batch.get_array_memory_size())?;
                    batches.push(batch);
                }
                drop(stream);
                session.state.give_shared_plan(self.number, plan);
                Ok(batches)
            })
        })
    }
}

impl ExecutionPlan for SharedExec {
    operator!(SharedExec, "Shared", children: [], expressions: |_| Vec::new());

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let shared = self.clone();
        let state: (usize, Option<Arc<Vec<RecordBatch>>>) = (0, None);
        Ok(stepping(Arc::clone(&self.schema), metrics, state, move |(at, batches)| {
            session::check()?;
            let batches = match batches {
                Some(batches) => batches,
                none => none.insert(shared.batches(&context)?),
            };
            let Some(batch) = batches.get(*at) else { return Ok(None) };
            *at += 1;
            projected(batch, &shared.columns, &shared.schema).map(Some)
        }))
    }
}

impl DisplayAs for SharedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared: {}", self.number)
    }
}

/// The rows from which a recursive query continues.
#[derive(Clone, Debug)]
pub(crate) struct WorkExec {
    number: usize,
    name: String,
    columns: Vec<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl WorkExec {
    pub fn new(number: usize, name: String, columns: Vec<usize>, schema: SchemaRef) -> Self {
        let properties = properties(&schema);
        Self { number, name, columns, schema, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl ExecutionPlan for WorkExec {
    operator!(WorkExec, "WorkTable", children: [], expressions: |_| Vec::new());

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let work = self.clone();
        let state: (usize, Option<Arc<Vec<RecordBatch>>>) = (0, None);
        Ok(stepping(Arc::clone(&self.schema), metrics, state, move |(at, batches)| {
            session::check()?;
            let batches = match batches {
                Some(batches) => batches,
                none => none.insert(session::with(|session| {
                    session.state.work(work.number).ok_or_else(|| {
                        external(freshet_sql::SqlError::internal("a recursive query is read outside of itself"))
                    })
                })?),
            };
            let Some(batch) = batches.get(*at) else { return Ok(None) };
            *at += 1;
            projected(batch, &work.columns, &work.schema).map(Some)
        }))
    }
}

impl DisplayAs for WorkExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkTable: {}", self.name)
    }
}

/// Counts the memory of an input for an operator above that keeps all of it and does not count
/// itself.
#[derive(Clone, Debug)]
pub(crate) struct MeterExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl MeterExec {
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        // It leaves everything as it is, the order of rows too.
        let properties = Arc::clone(input.properties());
        Self { input, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl ExecutionPlan for MeterExec {
    operator!(MeterExec, "Meter", children: [input], expressions: |_| Vec::new());

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let reservation = MemoryConsumer::new("window").register(context.memory_pool());
        let input = self.input.execute(partition, context)?;
        Ok(stepping(self.input.schema(), metrics, (input, reservation), |(input, reservation)| {
            let batch = next_batch(input)?;
            if let Some(batch) = &batch {
                session::check()?;
                // The operator copies what it keeps once.
                reservation.try_grow(batch.get_array_memory_size().saturating_mul(2))?;
            }
            Ok(batch)
        }))
    }
}

impl DisplayAs for MeterExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meter")
    }
}

/// Notices interruptions between the batches of an operator that may work for long on one batch of
/// its inputs.
#[derive(Clone, Debug)]
pub(crate) struct WatchExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl WatchExec {
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = Arc::clone(input.properties());
        Self { input, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// The same, where nothing may be concluded from what columns are computed of: DataFusion takes
    /// a volatile function of constants for a constant, and leaves out to sort by it.
    pub fn opaque(input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = properties(&input.schema());
        Self { input, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl ExecutionPlan for WatchExec {
    operator!(WatchExec, "Watch", children: [input], expressions: |_| Vec::new());

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let input = self.input.execute(partition, context)?;
        Ok(stepping(self.input.schema(), metrics, input, |input| {
            session::check()?;
            next_batch(input)
        }))
    }
}

impl DisplayAs for WatchExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch")
    }
}
