//! Subqueries as functions of the row around them, and what a running query keeps.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap, HashSet},
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::{
    array::{Array as _, RecordBatch},
    datatypes::DataType,
};
use datafusion_common::{Result, ScalarValue};
use datafusion_execution::{
    TaskContext,
    memory_pool::{MemoryConsumer, MemoryReservation},
};
use datafusion_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use datafusion_physical_plan::{ExecutionPlan, execution_plan::reset_plan_states};
use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value,
    functions::{self, Function},
    types::Array,
    work,
};

use crate::{
    error::external,
    exec::{BATCH_ROWS, next_batch},
    function::{Outer, call},
    layout::{Builder, Reader, data_type, from_scalar, to_scalar},
    plan::Planned,
    session::{self, Session},
};

/// As many answers of one subquery are remembered.
const MAX_REMEMBERED: usize = 65_536;

/// What is asked of a subquery.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// The value of its only row, null of none.
    Scalar,
    /// Whether it has rows.
    Exists,
    /// All its values, as an array.
    Array,
    /// Whether one of its values, which are conditions, holds.
    Holds,
    /// Whether an operator holds between a value and one of its values.
    Any(&'static Function),
    /// Whether an operator holds between a value and all its values.
    All(&'static Function),
}

impl Answer {
    fn identity(&self) -> (u8, usize) {
        let address = |function: &'static Function| std::ptr::from_ref(function).addr();
        match self {
            Self::Scalar => (0, 0),
            Self::Exists => (1, 0),
            Self::Array => (2, 0),
            Self::Any(function) => (3, address(function)),
            Self::All(function) => (4, address(function)),
            Self::Holds => (5, 0),
        }
    }
}

/// How often a subquery is run: as often as PostgreSQL runs it, if it is volatile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Runs {
    /// For values that it has not been asked with before. It is not volatile.
    ForNewValues,
    /// Once: it takes nothing from outside.
    Once,
    /// Once in each run of the subquery around it, of whose rows it takes nothing.
    InEachRun(usize),
    ForEachRow,
}

/// A subquery as a function of what it takes from the row around it.
#[derive(Clone, Debug)]
pub(crate) struct SubqueryFunction {
    pub subquery: usize,
    answer: Answer,
    pub runs: Runs,
    /// On what its rows depend besides what it is called with.
    pub depends: Depends,
    /// The type of the value that its values are compared with, if any, and the types of what it
    /// takes.
    types: Vec<Type>,
    /// The type of its column.
    element: Type,
    result: Type,
    signature: Signature,
}

impl PartialEq for SubqueryFunction {
    fn eq(&self, other: &Self) -> bool {
        self.subquery == other.subquery && self.answer.identity() == other.answer.identity()
    }
}

impl Eq for SubqueryFunction {}

impl Hash for SubqueryFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.subquery, self.answer.identity()).hash(state);
    }
}

impl SubqueryFunction {
    pub fn call(
        subquery: usize,
        answer: Answer,
        (runs, depends): (Runs, Depends),
        types: Vec<Type>,
        element: Type,
        result: Type,
        arguments: Vec<Expr>,
    ) -> Expr {
        let volatility = match runs {
            Runs::ForNewValues | Runs::Once => Volatility::Immutable,
            Runs::InEachRun(_) | Runs::ForEachRow => Volatility::Volatile,
        };
        let signature = Signature::user_defined(volatility);
        call(Self { subquery, answer, runs, depends, types, element, result, signature }, arguments)
    }

    /// Whether it stops at a row, and does something until then.
    pub fn is_cut_short(&self) -> bool {
        match self.answer {
            Answer::Exists => self.runs != Runs::ForNewValues,
            Answer::Any(_) | Answer::All(_) | Answer::Holds => self.runs == Runs::ForEachRow,
            Answer::Scalar | Answer::Array => false,
        }
    }

    fn compares(&self) -> bool {
        matches!(self.answer, Answer::Any(_) | Answer::All(_))
    }

    /// The answer for one row.
    fn answer(&self, session: &Session<'_>, left: &Value, captured: Vec<ScalarValue>) -> Result<Value> {
        let state = session.state;
        if let Runs::InEachRun(around) = self.runs {
            state.forget_in_next_run(self.subquery, around);
        }
        state.forget_of_other_works(self.subquery, &self.depends);
        let remembered = match self.runs {
            Runs::ForEachRow => None,
            _ => state.remembered(self.subquery, &captured),
        };
        let found = match remembered {
            Some(found) => found,
            None => {
                let found = Arc::new(self.ask(session, left, captured.clone())?);
                if self.runs != Runs::ForEachRow {
                    state.remember(self.subquery, captured, &found);
                }
                found
            }
        };
        match (self.answer, found.as_ref()) {
            (Answer::Any(operator), Found::Values { values, set, has_null }) => {
                compared(operator, left, values, set, *has_null, true, session).map_err(external)
            }
            (Answer::All(operator), Found::Values { values, set, has_null }) => {
                compared(operator, left, values, set, *has_null, false, session).map_err(external)
            }
            (_, Found::Value(value)) => Ok(value.clone()),
            (_, Found::Values { .. }) => Err(external(SqlError::internal("a subquery has several values"))),
        }
    }

    /// Whether the answer is still open behind these values. One that is asked again for each row
    /// is run no further than that.
    fn is_open(&self, session: &Session<'_>, left: &Value, values: &[Value]) -> Result<bool> {
        let (operator, any) = match self.answer {
            Answer::Any(operator) if self.runs == Runs::ForEachRow => (operator, true),
            Answer::All(operator) if self.runs == Runs::ForEachRow => (operator, false),
            _ => return Ok(true),
        };
        let set = values.iter().filter(|value| !value.is_null()).cloned().collect();
        let has_null = values.iter().any(Value::is_null);
        let answer = compared(operator, left, values, &set, has_null, any, session).map_err(external)?;
        Ok(answer != Value::Bool(any))
    }

    /// Runs the subquery for these captured values, and says what came of it.
    fn ask(&self, session: &Session<'_>, left: &Value, captured: Vec<ScalarValue>) -> Result<Found> {
        let mut values: Vec<Value> = Vec::new();
        let mut rows = 0;
        let reservation = MemoryConsumer::new("subquery").register(session.state.task.memory_pool());
        session.state.run(self.subquery, captured, &mut |batch| {
            rows += batch.num_rows();
            match self.answer {
                Answer::Exists => return Ok(rows == 0),
                Answer::Scalar if rows > 1 => {
                    return Err(external(SqlError::new(
                        SqlState::CARDINALITY_VIOLATION,
                        "more than one row returned by a subquery used as an expression",
                    )));
                }
                _ => {}
            }
            let Some(column) = batch.columns().first() else { return Ok(true) };
            reservation.try_grow(column.get_array_memory_size())?;
            let reader = Reader::new(self.element, column).map_err(external)?;
            for row in 0..batch.num_rows() {
                values.push(reader.value(row).map_err(external)?);
            }
            if matches!(self.answer, Answer::Holds) && values.contains(&Value::Bool(true)) {
                return Ok(false);
            }
            self.is_open(session, left, &values[values.len() - batch.num_rows()..])
        })?;
        Ok(match self.answer {
            Answer::Exists => Found::Value(Value::Bool(rows > 0)),
            Answer::Scalar => Found::Value(values.pop().unwrap_or_default()),
            Answer::Holds if values.contains(&Value::Bool(true)) => Found::Value(Value::Bool(true)),
            Answer::Holds if values.iter().any(Value::is_null) => Found::Value(Value::Null),
            Answer::Holds => Found::Value(Value::Bool(false)),
            Answer::Array => Found::Value(array_of(values, self.result).map_err(external)?),
            Answer::Any(_) | Answer::All(_) => {
                let has_null = values.iter().any(Value::is_null);
                let set = values.iter().filter(|value| !value.is_null()).cloned().collect();
                Found::Values { values, set, has_null }
            }
        })
    }
}

fn array_of(values: Vec<Value>, result: Type) -> Result<Value, SqlError> {
    let element = result.kind().element().unwrap_or(Kind::Text);
    if values.iter().any(|value| matches!(value, Value::Array(_))) {
        return crate::array::make_nested(element, &values);
    }
    Ok(Value::array(Array::new(element, values)))
}

/// Whether an operator holds between a value and one of many, or all.
fn compared(
    operator: &Function,
    left: &Value,
    values: &[Value],
    set: &HashSet<Value>,
    has_null: bool,
    any: bool,
    session: &Session<'_>,
) -> Result<Value, SqlError> {
    if values.is_empty() {
        return Ok(Value::Bool(!any));
    }
    if left.is_null() {
        return Ok(Value::Null);
    }
    // Equality of values of one kind is looked up.
    let same_kind = operator.arguments.first() == operator.arguments.get(1);
    match (operator.name, any) {
        ("=", true) if same_kind => {
            return Ok(if set.contains(left) {
                Value::Bool(true)
            } else if has_null {
                Value::Null
            } else {
                Value::Bool(false)
            });
        }
        ("<>", false) if same_kind => {
            return Ok(if set.contains(left) {
                Value::Bool(false)
            } else if has_null {
                Value::Null
            } else {
                Value::Bool(true)
            });
        }
        _ => {}
    }
    let element = values.iter().find_map(Value::kind).unwrap_or(Kind::Text);
    let array = Value::array(Array::new(element, values.to_vec()));
    if any {
        functions::any(operator, left, &array, session.context)
    } else {
        functions::all(operator, left, &array, session.context)
    }
}

impl ScalarUDFImpl for SubqueryFunction {
    fn name(&self) -> &'static str {
        "subquery"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.result))
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        session::with(|session| {
            let (left, captured) = match arguments.args.split_first() {
                Some((left, captured)) if self.compares() => (Some(left), captured),
                _ => (None, arguments.args.as_slice()),
            };
            let scalar = |value: &ColumnarValue, row: usize| match value {
                ColumnarValue::Scalar(scalar) => Ok(scalar.clone()),
                ColumnarValue::Array(array) => ScalarValue::try_from_array(array, row),
            };
            let constant = self.runs != Runs::ForEachRow
                && arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
            let evaluate = |row: usize| -> Result<Value> {
                let left = match (left, self.types.first()) {
                    (Some(left), Some(ty)) => from_scalar(*ty, &scalar(left, row)?).map_err(external)?,
                    _ => Value::Null,
                };
                let captured = captured.iter().map(|value| scalar(value, row)).collect::<Result<Vec<_>>>()?;
                self.answer(session, &left, captured)
            };
            if constant {
                let value = evaluate(0)?;
                return to_scalar(self.result, &value).map(ColumnarValue::Scalar).map_err(external);
            }
            let mut builder = Builder::new(self.result, arguments.number_rows);
            for row in 0..arguments.number_rows {
                builder.append(evaluate(row)?.as_ref()).map_err(external)?;
            }
            Ok(ColumnarValue::Array(builder.finish()))
        })
    }
}

/// What a subquery was found to return.
enum Found {
    Value(Value),
    Values { values: Vec<Value>, set: HashSet<Value>, has_null: bool },
}

impl Found {
    fn size(&self) -> usize {
        match self {
            Self::Value(value) => size_of::<Value>() + value.as_str().map_or(0, str::len),
            Self::Values { values, .. } => values.len() * 3 * size_of::<Value>(),
        }
    }
}

/// A subquery within a run.
#[derive(Default)]
struct Run {
    /// Its plan, unless it runs.
    plan: Option<Arc<dyn ExecutionPlan>>,
    captured: Vec<ScalarValue>,
    /// How often something else was captured.
    generation: u64,
    /// How often it was begun.
    begun: u64,
    /// In which run of the subquery around it answers were remembered.
    remembered_in: u64,
    /// From which rows of recursive queries.
    remembered_of: Vec<Option<Work>>,
    remembered: HashMap<Vec<ScalarValue>, Arc<Found>>,
    reservation: Option<MemoryReservation>,
}

/// The rows from which a recursive query continues.
pub(crate) type Work = Arc<Vec<RecordBatch>>;

/// On what rows depend that parts of a query read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Depends {
    /// What they take from the rows for which subqueries run.
    pub outers: Vec<Outer>,
    /// The recursive queries from whose last rows they are computed.
    pub works: Vec<usize>,
}

impl Depends {
    /// It depends on this, too.
    pub fn add(&mut self, other: &Self) {
        for outer in &other.outers {
            self.add_outer(outer);
        }
        for number in &other.works {
            self.add_work(*number);
        }
    }

    /// It takes this from outside.
    pub fn add_outer(&mut self, outer: &Outer) {
        if !self.outers.contains(outer) {
            self.outers.push(outer.clone());
        }
    }

    /// It reads the last rows of this recursive query.
    pub fn add_work(&mut self, number: usize) {
        if !self.works.contains(&number) {
            self.works.push(number);
        }
    }

    /// Whether it takes something from the row for which this subquery runs.
    pub fn sees(&self, subquery: usize) -> bool {
        self.outers.iter().any(|outer| outer.subquery == subquery)
    }
}

/// The plan of rows that several parts of a query read.
struct SharedPlan {
    /// The plan, while no part of the query runs it.
    plan: Option<Arc<dyn ExecutionPlan>>,
    /// About how many rows come out of it.
    rows: f64,
    /// Whether it has run.
    has_run: bool,
}

/// Rows that several parts of a query read.
struct SharedRows {
    batches: Arc<Vec<RecordBatch>>,
    /// In which generations of subqueries they were computed.
    generations: Vec<u64>,
    /// From which rows of recursive queries.
    works: Vec<Option<Work>>,
    _reservation: MemoryReservation,
}

/// Whether these are the same rows of recursive queries.
fn are_same(one: &[Option<Work>], two: &[Option<Work>]) -> bool {
    let same = |(one, two): (&Option<Work>, &Option<Work>)| match (one, two) {
        (Some(one), Some(two)) => Arc::ptr_eq(one, two),
        (one, two) => one.is_none() && two.is_none(),
    };
    one.len() == two.len() && one.iter().zip(two).all(same)
}

/// What a running query keeps besides its operators.
pub(crate) struct State {
    pub planned: Arc<Planned>,
    pub task: Arc<TaskContext>,
    runs: RefCell<Vec<Run>>,
    shared: RefCell<HashMap<usize, SharedRows>>,
    shared_plans: RefCell<BTreeMap<usize, SharedPlan>>,
    /// What the operators take.
    operators: MemoryReservation,
    work: RefCell<HashMap<usize, Work>>,
    /// No more rows are to be read at once, while functions make large values of them.
    rows_at_once: Cell<usize>,
}

/// Of a batch of rows a function should not make more.
const BATCH_BYTES: usize = 1 << 20;

impl State {
    pub fn new(planned: Arc<Planned>, task: Arc<TaskContext>) -> Self {
        let mut runs = Vec::new();
        runs.resize_with(planned.subqueries.len(), Run::default);
        let operators = MemoryConsumer::new("operators").register(task.memory_pool());
        Self {
            planned,
            task,
            shared_plans: RefCell::default(),
            operators,
            runs: RefCell::new(runs),
            shared: RefCell::default(),
            work: RefCell::default(),
            rows_at_once: Cell::new(BATCH_ROWS),
        }
    }

    /// Memory of the statement, to be taken.
    pub fn reserve(&self) -> MemoryReservation {
        MemoryConsumer::new("values").register(self.task.memory_pool())
    }

    /// A function has made this number of bytes for this number of rows.
    pub fn have_made(&self, rows: usize, bytes: usize) {
        if bytes > BATCH_BYTES {
            let fewer = rows.saturating_mul(BATCH_BYTES) / bytes;
            self.rows_at_once.set(self.rows_at_once.get().min(fewer).max(1));
        }
    }

    /// How many rows a batch has at most.
    pub fn batch_rows(&self) -> usize {
        if self.planned.one_by_one { 1 } else { BATCH_ROWS }
    }

    /// How many rows are to be read at once.
    pub fn rows_at_once(&self) -> usize {
        if self.planned.one_by_one {
            return 1;
        }
        let now = self.rows_at_once.get();
        self.rows_at_once.set((now * 2).min(BATCH_ROWS));
        now
    }

    /// What a running subquery has captured.
    pub fn captured(&self, subquery: usize, at: usize) -> Option<ScalarValue> {
        self.runs.borrow().get(subquery)?.captured.get(at).cloned()
    }

    fn remembered(&self, subquery: usize, captured: &[ScalarValue]) -> Option<Arc<Found>> {
        self.runs.borrow().get(subquery)?.remembered.get(captured).cloned()
    }

    /// Forgets the answers of a subquery when the one around it runs again.
    fn forget_in_next_run(&self, subquery: usize, around: usize) {
        let mut runs = self.runs.borrow_mut();
        let Some(now) = runs.get(around).map(|run| run.begun) else { return };
        if let Some(run) = runs.get_mut(subquery)
            && run.remembered_in != now
        {
            run.remembered_in = now;
            run.remembered.clear();
            run.reservation = None;
        }
    }

    /// Forgets the answers of a subquery that reads the last rows of a recursive query, when these
    /// are others.
    fn forget_of_other_works(&self, subquery: usize, depends: &Depends) {
        if depends.works.is_empty() {
            return;
        }
        let now = self.works(depends);
        if let Some(run) = self.runs.borrow_mut().get_mut(subquery)
            && !are_same(&run.remembered_of, &now)
        {
            run.remembered_of = now;
            run.remembered.clear();
            run.reservation = None;
        }
    }

    fn remember(&self, subquery: usize, captured: Vec<ScalarValue>, found: &Arc<Found>) {
        let mut runs = self.runs.borrow_mut();
        let Some(run) = runs.get_mut(subquery) else { return };
        if run.remembered.len() >= MAX_REMEMBERED {
            return;
        }
        let reservation = run
            .reservation
            .get_or_insert_with(|| MemoryConsumer::new("answers of subqueries").register(self.task.memory_pool()));
        let size = found.size() + captured.iter().map(ScalarValue::size).sum::<usize>() + 64;
        // Without room it is asked again.
        if reservation.try_grow(size).is_ok() {
            run.remembered.insert(captured, Arc::clone(found));
        }
    }

    /// Runs a subquery for a row, and gives its rows to `visit`, until that says no more are
    /// wanted.
    ///
    /// # Errors
    /// What the subquery or `visit` returns.
    pub fn run(
        &self,
        subquery: usize,
        captured: Vec<ScalarValue>,
        visit: &mut dyn FnMut(&RecordBatch) -> Result<bool>,
    ) -> Result<()> {
        let plan = self.begin(subquery, captured)?;
        let mut stream = plan.execute(0, Arc::clone(&self.task))?;
        while let Some(batch) = next_batch(&mut stream)? {
            if !visit(&batch)? {
                break;
            }
        }
        drop(stream);
        self.end(subquery, plan)
    }

    /// The plan of a subquery, which sees these values until it is given back.
    ///
    /// # Errors
    /// When it cannot be planned.
    pub fn begin(&self, subquery: usize, captured: Vec<ScalarValue>) -> Result<Arc<dyn ExecutionPlan>> {
        let missing = || external(SqlError::internal("there is no such subquery"));
        let known = {
            let mut runs = self.runs.borrow_mut();
            let run = runs.get_mut(subquery).ok_or_else(missing)?;
            run.begun += 1;
            if run.captured != captured {
                run.captured = captured;
                run.generation += 1;
            }
            run.plan.take()
        };
        match known {
            Some(plan) => Ok(plan),
            None => self.planned.subquery(subquery),
        }
    }

    /// Gives a subquery's plan back, to be run again.
    ///
    /// # Errors
    /// When it cannot be run again: a mistake in an operator.
    pub fn end(&self, subquery: usize, plan: Arc<dyn ExecutionPlan>) -> Result<()> {
        let plan = reset_plan_states(plan)?;
        if let Some(run) = self.runs.borrow_mut().get_mut(subquery) {
            run.plan = Some(plan);
        }
        Ok(())
    }

    /// Counts what operators take, which are about to be made.
    ///
    /// # Errors
    /// 53200, 57014, 57P01.
    pub fn makes(&self, bytes: usize) -> Result<()> {
        work::done(1 + bytes / 64).map_err(external)?;
        self.operators.try_grow(bytes)
    }

    /// Has the plan of a shared result, and about how many rows it has.
    pub fn put_shared_plan(&self, number: usize, plan: Arc<dyn ExecutionPlan>, rows: f64) {
        self.shared_plans.borrow_mut().insert(number, SharedPlan { plan: Some(plan), rows, has_run: false });
    }

    /// About how many rows a shared result has.
    ///
    /// # Errors
    /// When its plan was not made: a mistake in this crate.
    pub fn shared_estimate(&self, number: usize) -> Result<f64> {
        let known = self.shared_plans.borrow().get(&number).map(|shared| shared.rows);
        known.ok_or_else(|| external(SqlError::internal("a shared result without a plan")))
    }

    /// The plan of a shared result, to be run; it is to be given back.
    ///
    /// # Errors
    /// When none exists, or it cannot be run again: a mistake in an operator.
    pub fn take_shared_plan(&self, number: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let taken = self.shared_plans.borrow_mut().get_mut(&number).and_then(|shared| {
            let has_run = std::mem::replace(&mut shared.has_run, true);
            shared.plan.take().map(|plan| (plan, has_run))
        });
        match taken {
            Some((plan, false)) => Ok(plan),
            Some((plan, true)) => reset_plan_states(plan),
            None => Err(external(SqlError::internal("a shared result without a plan"))),
        }
    }

    /// Gives the plan of a shared result back.
    pub fn give_shared_plan(&self, number: usize, plan: Arc<dyn ExecutionPlan>) {
        if let Some(shared) = self.shared_plans.borrow_mut().get_mut(&number) {
            shared.plan = Some(plan);
        }
    }

    /// The plans of all shared results, by their numbers.
    pub fn all_shared_plans(&self) -> Vec<(usize, Arc<dyn ExecutionPlan>)> {
        let shared = self.shared_plans.borrow();
        shared.iter().filter_map(|(number, shared)| Some((*number, Arc::clone(shared.plan.as_ref()?)))).collect()
    }

    /// The rows of a shared result, which are computed unless they are there.
    ///
    /// # Errors
    /// What computing them returns.
    pub fn shared(
        &self,
        number: usize,
        depends: &Depends,
        compute: &mut dyn FnMut(&MemoryReservation) -> Result<Vec<RecordBatch>>,
    ) -> Result<Arc<Vec<RecordBatch>>> {
        let generations: Vec<u64> = {
            let runs = self.runs.borrow();
            depends.outers.iter().map(|outer| runs.get(outer.subquery).map_or(0, |run| run.generation)).collect()
        };
        let works = self.works(depends);
        if let Some(rows) = self.shared.borrow().get(&number)
            && rows.generations == generations
            && are_same(&rows.works, &works)
        {
            return Ok(Arc::clone(&rows.batches));
        }
        self.shared.borrow_mut().remove(&number);
        let reservation = MemoryConsumer::new("shared result").register(self.task.memory_pool());
        let batches = Arc::new(compute(&reservation)?);
        let rows = SharedRows { batches: Arc::clone(&batches), generations, works, _reservation: reservation };
        self.shared.borrow_mut().insert(number, rows);
        Ok(batches)
    }

    /// The rows from which a recursive query continues.
    pub fn work(&self, number: usize) -> Option<Work> {
        self.work.borrow().get(&number).cloned()
    }

    /// Those on which something depends.
    fn works(&self, depends: &Depends) -> Vec<Option<Work>> {
        depends.works.iter().map(|number| self.work(*number)).collect()
    }

    /// Sets the rows from which a recursive query continues, and gives back those from before.
    pub fn set_work(&self, number: usize, batches: Option<Work>) -> Option<Work> {
        let mut work = self.work.borrow_mut();
        match batches {
            Some(batches) => work.insert(number, batches),
            None => work.remove(&number),
        }
    }
}
