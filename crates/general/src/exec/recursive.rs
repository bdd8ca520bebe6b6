//! WITH RECURSIVE.

use std::{collections::HashSet, fmt, sync::Arc};

use arrow::{
    array::{BooleanArray, RecordBatch, RecordBatchOptions},
    compute::filter_record_batch,
    datatypes::SchemaRef,
};
use datafusion_common::Result;
use datafusion_execution::{
    SendableRecordBatchStream, TaskContext,
    memory_pool::{MemoryConsumer, MemoryReservation},
};
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    execution_plan::reset_plan_states,
    metrics::{BaselineMetrics, ExecutionPlanMetricsSet},
};
use freshet_sql::{Type, Value};

use super::{next_batch, operator, properties, stepping};
use crate::{error::external, layout::Reader, session};

/// The rows of a first query, and those that a second one makes of them, again and again.
#[derive(Clone, Debug)]
pub(crate) struct RecursiveExec {
    base: Arc<dyn ExecutionPlan>,
    step: Arc<dyn ExecutionPlan>,
    number: usize,
    name: String,
    distinct: Option<Vec<Type>>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl RecursiveExec {
    pub fn new(
        base: Arc<dyn ExecutionPlan>,
        step: Arc<dyn ExecutionPlan>,
        number: usize,
        name: String,
        distinct: Option<Vec<Type>>,
        schema: SchemaRef,
    ) -> Self {
        let properties = properties(&schema);
        Self { base, step, number, name, distinct, schema, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

/// A recursive query that is running.
struct Running {
    exec: RecursiveExec,
    context: Arc<TaskContext>,
    plan: Arc<dyn ExecutionPlan>,
    stream: Option<SendableRecordBatchStream>,
    /// The rows of this round, from which the next one continues.
    made: Vec<RecordBatch>,
    /// The rows from which this round continues.
    work: Arc<Vec<RecordBatch>>,
    /// All rows that there were, if each is taken only once.
    seen: HashSet<Vec<Value>>,
    reservation: MemoryReservation,
    first: bool,
}

impl Running {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            session::check()?;
            let stream = match &mut self.stream {
                Some(stream) => stream,
                None => {
                    let plan = if self.first { &self.exec.base } else { &self.plan };
                    self.stream.insert(plan.execute(0, Arc::clone(&self.context))?)
                }
            };
            // Recursive queries may be nested, and the rows of this one are to be seen only while
            // it runs.
            let (number, work) = (self.exec.number, Arc::clone(&self.work));
            let next = session::with(|session| {
                let outside = session.state.set_work(number, Some(work));
                let next = next_batch(stream);
                session.state.set_work(number, outside);
                next
            })?;
            match next {
                Some(batch) => {
                    let batch = self.renamed(&batch)?;
                    let batch = self.new_rows(batch)?;
                    if batch.num_rows() > 0 {
                        self.reservation.try_grow(batch.get_array_memory_size())?;
                        self.made.push(batch.clone());
                        return Ok(Some(batch));
                    }
                }
                None => {
                    self.stream = None;
                    if self.made.is_empty() {
                        return Ok(None);
                    }
                    let before: usize = self.work.iter().map(RecordBatch::get_array_memory_size).sum();
                    self.work = Arc::new(std::mem::take(&mut self.made));
                    self.reservation.shrink(before.min(self.reservation.size()));
                    if !self.first {
                        self.plan = reset_plan_states(Arc::clone(&self.plan))?;
                    }
                    self.first = false;
                }
            }
        }
    }

    fn renamed(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.exec.schema), columns, &options)?)
    }

    /// The rows that were not there before.
    fn new_rows(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let Some(types) = &self.exec.distinct else { return Ok(batch) };
        let readers = types
            .iter()
            .zip(batch.columns())
            .map(|(ty, column)| Reader::new(*ty, column))
            .collect::<Result<Vec<_>, _>>()
            .map_err(external)?;
        let mut keep = Vec::with_capacity(batch.num_rows());
        for at in 0..batch.num_rows() {
            let row = readers.iter().map(|reader| reader.value(at)).collect::<Result<Vec<_>, _>>().map_err(external)?;
            let size = 64 + row.iter().map(|value| 24 + value.as_str().map_or(0, str::len)).sum::<usize>();
            let new = self.seen.insert(row);
            if new {
                self.reservation.try_grow(size)?;
            }
            keep.push(new);
        }
        Ok(filter_record_batch(&batch, &BooleanArray::from(keep))?)
    }
}

impl ExecutionPlan for RecursiveExec {
    operator!(RecursiveExec, "Recursive", children: [base, step], expressions: |_| Vec::new());

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let running = Running {
            exec: self.clone(),
            plan: Arc::clone(&self.step),
            stream: None,
            made: Vec::new(),
            work: Arc::new(Vec::new()),
            seen: HashSet::new(),
            reservation: MemoryConsumer::new("recursive query").register(context.memory_pool()),
            context,
            first: true,
        };
        Ok(stepping(Arc::clone(&self.schema), metrics, running, Running::next))
    }
}

impl DisplayAs for RecursiveExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recursive: {}", self.name)
    }
}
