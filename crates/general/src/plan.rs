//! A planned query, and how it runs.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock},
};

use arrow::array::RecordBatch;
use datafusion_common::Result;
use datafusion_execution::{
    SendableRecordBatchStream, TaskContext,
    config::SessionConfig,
    disk_manager::{DiskManagerBuilder, DiskManagerMode},
    memory_pool::{MemoryLimit, MemoryPool, MemoryReservation},
    runtime_env::{RuntimeEnv, RuntimeEnvBuilder},
};
use datafusion_expr::LogicalPlan;
use datafusion_physical_plan::ExecutionPlan;
use freshet_base::panics;
use freshet_sql::{
    SqlError, Type, Value,
    explain::Step,
    general::{GeneralPlan, GeneralRows, Relations, ResultColumn, Run},
    memory::{Pool, Reservation, size_of_value},
    types::EvalContext,
    work,
};
use sqlparser::ast::Query;

use crate::{
    bind::{Bound, bind},
    error::{external, to_sql},
    exec::{BATCH_ROWS, next_batch},
    explain,
    layout::Reader,
    optimize::{Optimized, is_cut_short, optimize},
    physical::{physical, shared},
    session::Session,
    subquery::State,
};

/// What all runs have in common but their memory.
static ENVIRONMENT: LazyLock<Option<RuntimeEnv>> = LazyLock::new(|| {
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    RuntimeEnvBuilder::new().with_disk_manager_builder(disk).build().ok()
});

static CONFIG: LazyLock<SessionConfig> =
    LazyLock::new(|| SessionConfig::new().with_target_partitions(1).with_batch_size(BATCH_ROWS));

/// The plans of a query: its own, and those of its subqueries.
pub(crate) struct Planned {
    pub plan: Arc<LogicalPlan>,
    pub subqueries: Vec<Option<Arc<LogicalPlan>>>,
    /// Those of its shared results by their numbers: each reads only what stands before it.
    pub shared: Vec<(usize, Arc<LogicalPlan>)>,
    /// Whether rows come one by one: what is computed does something, and some rows may not be
    /// wanted.
    pub one_by_one: bool,
    columns: Vec<ResultColumn>,
    locked: Vec<u32>,
    records: Vec<u32>,
    parameters: Vec<Type>,
}

impl Planned {
    /// Plans a query.
    ///
    /// # Errors
    /// When it is no query over these relations.
    pub fn new(
        query: &Query,
        parameters: &[Option<Type>],
        relations: &Arc<dyn Relations>,
        context: &EvalContext<'_>,
    ) -> Result<Self, SqlError> {
        guarded(|| {
            let bound = bind(query, parameters, relations, context)?;
            let Optimized { plan, subqueries, shared } = optimize(&bound)?;
            let Bound { columns, locked, records, parameters, .. } = bound;
            let one_by_one = subqueries.iter().flatten().chain([&plan]).any(|plan| is_cut_short(plan, false));
            Ok(Self { plan, subqueries, shared, one_by_one, columns, locked, records, parameters })
        })
    }

    /// The operators of a subquery.
    ///
    /// # Errors
    /// When no query has this number, and what planning it returns.
    pub fn subquery(&self, number: usize) -> Result<Arc<dyn ExecutionPlan>> {
        match self.subqueries.get(number).and_then(Option::as_ref) {
            Some(plan) => physical(plan),
            None => Err(external(SqlError::internal("there is no such subquery"))),
        }
    }
}

/// Does something, a panic in which is an error: mistakes in operators end a query, not its
/// session.
fn guarded<T>(work: impl FnOnce() -> Result<T, SqlError>) -> Result<T, SqlError> {
    let done = panics::contained("a general query", work);
    done.unwrap_or_else(|panics::Caught(text)| Err(SqlError::internal(format!("a query has failed: {text}"))))
}

/// A planned query as the door has it.
pub(crate) struct Plan(pub Arc<Planned>);

/// A statement's memory, as DataFusion's operators take it.
#[derive(Debug)]
struct Counted(Arc<Pool>);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl MemoryPool for Counted {
    fn name(&self) -> &str {
        "statement"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        self.0.force(additional);
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        self.0.give(shrink);
    }

    fn try_grow(&self, _: &MemoryReservation, additional: usize) -> Result<()> {
        self.0.take(additional).map_err(external)
    }

    fn reserved(&self) -> usize {
        self.0.used()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.0.limit())
    }
}

/// The memory of a run, and nothing on disk.
fn task(memory: &Arc<Pool>, one_by_one: bool) -> Result<Arc<TaskContext>, SqlError> {
    let Some(environment) = ENVIRONMENT.as_ref() else {
        return Err(SqlError::internal("the environment of queries could not be made"));
    };
    let mut environment = environment.clone();
    environment.memory_pool = Arc::new(Counted(Arc::clone(memory)));
    Ok(Arc::new(TaskContext::new(
        None,
        String::new(),
        if one_by_one { CONFIG.clone().with_batch_size(1) } else { CONFIG.clone() },
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        Arc::new(environment),
    )))
}

/// A run that has begun.
pub(crate) struct Running<'r> {
    run: Run<'r>,
    state: State,
    types: Vec<Type>,
    stream: Option<SendableRecordBatchStream>,
    /// A batch whose rows from this one on are still to be given.
    rest: Option<(RecordBatch, usize)>,
    /// What the rows take that were given last, if it is much: it is on its way to the client, and
    /// is taken from the session's memory.
    given: Reservation,
}

/// Rows of more bytes are given one after another, not a whole batch at once.
const ROWS_BYTES: usize = 1 << 20;

impl<'r> Running<'r> {
    fn new(planned: &Arc<Planned>, run: &Run<'r>) -> Result<Self, SqlError> {
        if run.parameters.len() < planned.parameters.len() {
            return Err(SqlError::new(
                freshet_sql::SqlState::PROTOCOL_VIOLATION,
                format!(
                    "{} parameters were given to a query that has {}",
                    run.parameters.len(),
                    planned.parameters.len()
                ),
            ));
        }
        let state = State::new(Arc::clone(planned), task(run.memory, planned.one_by_one)?);
        let records = planned.records.iter().map(|_| Type::INT8);
        let types = planned.columns.iter().map(|column| column.ty).chain(records).collect();
        let given = run.memory.above().unwrap_or(run.memory).reserve();
        Ok(Self { run: *run, state, types, stream: None, rest: None, given })
    }

    /// Does something as part of the run.
    pub fn enter<T>(&self, then: impl FnOnce() -> Result<T>) -> Result<T, SqlError> {
        let session = Session {
            context: self.run.context,
            parameters: self.run.parameters,
            interrupted: self.run.interrupted,
            state: &self.state,
        };
        let Run { interrupted, memory, .. } = self.run;
        guarded(|| work::within(interrupted, memory, || session.enter(then).map_err(to_sql)))
    }

    /// The operators of the query itself.
    pub fn operators(&self) -> Result<Arc<dyn ExecutionPlan>, SqlError> {
        self.enter(|| {
            for (number, plan) in &self.state.planned.shared {
                shared(*number, plan)?;
            }
            physical(&self.state.planned.plan)
        })
    }

    /// Begins to run the operators.
    pub fn start(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<(), SqlError> {
        self.stream = Some(self.enter(|| plan.execute(0, Arc::clone(&self.state.task)))?);
        Ok(())
    }
}

impl GeneralRows for Running<'_> {
    fn next(&mut self, rows: &mut Vec<Vec<Value>>) -> Result<(), SqlError> {
        let before = rows.len();
        self.given.set(0)?;
        loop {
            let (batch, first) = match self.rest.take() {
                Some(rest) => rest,
                None => {
                    let Some(mut stream) = self.stream.take() else { return Ok(()) };
                    let batch = self.enter(|| {
                        crate::session::check()?;
                        next_batch(&mut stream)
                    })?;
                    let Some(batch) = batch else { return Ok(()) };
                    self.stream = Some(stream);
                    (batch, 0)
                }
            };
            let readers = self
                .types
                .iter()
                .zip(batch.columns())
                .map(|(ty, column)| Reader::new(*ty, column))
                .collect::<Result<Vec<_>, _>>()?;
            rows.reserve(batch.num_rows() - first);
            let mut bytes = 0;
            for row in first..batch.num_rows() {
                let values = readers.iter().map(|reader| reader.value(row)).collect::<Result<Vec<_>, _>>()?;
                bytes += values.iter().map(size_of_value).sum::<usize>();
                if bytes > ROWS_BYTES {
                    self.given.set(bytes)?;
                }
                rows.push(values);
                if bytes > ROWS_BYTES && row + 1 < batch.num_rows() {
                    drop(readers);
                    self.rest = Some((batch, row + 1));
                    return Ok(());
                }
            }
            if rows.len() > before {
                return Ok(());
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // What operators let go of may still look at the session.
        if let Some(stream) = self.stream.take() {
            let _ = self.enter(|| {
                drop(stream);
                Ok(())
            });
        }
    }
}

impl GeneralPlan for Plan {
    fn columns(&self) -> &[ResultColumn] {
        &self.0.columns
    }

    fn locked(&self) -> &[u32] {
        &self.0.locked
    }

    fn records(&self) -> &[u32] {
        &self.0.records
    }

    fn parameters(&self) -> &[Type] {
        &self.0.parameters
    }

    fn run<'r>(&self, run: &Run<'r>) -> Result<Box<dyn GeneralRows + 'r>, SqlError> {
        let mut running = Running::new(&self.0, run)?;
        let plan = running.operators()?;
        running.start(&plan)?;
        Ok(Box::new(running))
    }

    fn explain(&self, run: &Run<'_>, analyze: bool) -> Result<Step, SqlError> {
        let mut running = Running::new(&self.0, run)?;
        let plan = running.operators()?;
        if analyze {
            running.start(&plan)?;
            let mut rows = Vec::new();
            loop {
                rows.clear();
                running.next(&mut rows)?;
                if rows.is_empty() {
                    break;
                }
            }
        }
        let mut step = explain::step(plan.as_ref(), analyze);
        for number in 0..self.0.subqueries.len() {
            if self.0.subqueries[number].is_some() {
                let subquery = running.enter(|| self.0.subquery(number))?;
                step.subplans.push((format!("Subquery {number}"), explain::step(subquery.as_ref(), false)));
            }
        }
        for (number, plan) in running.state.all_shared_plans() {
            step.subplans.push((format!("Shared {number}"), explain::step(plan.as_ref(), analyze)));
        }
        Ok(step)
    }
}
