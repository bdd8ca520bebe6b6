//! Executing again: the statements of a recorded transaction, on any node.
//!
//! There is no session: nothing is locked or waited for, no privilege is checked, no client is told
//! anything. All of that has been done, and came out well. What is left is the plans, made for the
//! catalog that the statement's snapshot sees, and what they do.

use std::{
    collections::HashMap,
    fmt::Write,
    ops::ControlFlow,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use freshet_base::varint;
use freshet_engine::{CommandExecutor, Database, ProcedureError, Transaction};
use freshet_sql::{
    SqlError, SqlState, Type, Value,
    functions::{SessionCalls, SessionFunction, SetFunction},
    general::GeneralPlan,
    memory::Pool,
    types::{EvalContext, Kind, Large, ObjectNames, Timestamp},
    work,
};
use sqlparser::ast::{self, Statement};

use super::{
    BEGUN, PROCEDURE, READ_COMMITTED,
    captured::{Captured, CapturedSession},
    dictionary::Words,
    nowhere::Nowhere,
    recorded::{Decoded, Word, put_types},
    surroundings::Surroundings,
    template::HOLE,
    value,
};
use crate::{
    bind::{Binder, first::First, general::Planner, select::Output},
    execute::{RowIdSource, RowIds, Run, Sink},
    expression::{Environment, SessionView, Source},
    relations::{Reader, Snapshot},
    schema::{Catalog, Schema, SchemaVersion},
    session::{
        parse::{Parsed, parse_within},
        prepare::{Plan, change_of},
    },
    syntax::Remarks,
    system::{self, SystemView},
};

/// How many plans are kept. When there are more, all are made again.
const PLANS: usize = 1024;
/// About how many characters of a transaction's statements are shown to people.
const DESCRIBED: usize = 2000;
/// The most memory that all transactions may take, where nothing else is said.
const MEMORY: usize = 1 << 30;

/// Executes recorded statements again, on one node. Any number of threads may do so at once.
#[derive(Debug)]
pub struct StatementExecutor {
    /// Known when there is a transaction.
    catalog: OnceLock<Catalog>,
    system: Arc<dyn SystemView>,
    words: Words,
    /// The memory of the server, and how much of it a transaction may take.
    memory: (Arc<Pool>, usize),
    /// Plans of statements with parameters, by all that they depend on but the catalog.
    plans: RwLock<HashMap<Vec<u8>, Arc<Made>>>,
    /// Whether what another build has recorded is executed, too.
    any_build: bool,
}

/// A plan that was made.
#[derive(Debug)]
struct Made {
    version: SchemaVersion,
    firsts: Vec<First>,
    plan: Plan,
    /// Whether another plan may be better when the parameters are known.
    by_values: bool,
    /// The types of its parameters.
    types: Vec<Option<Type>>,
}

/// A transaction, between its statements.
struct Progress {
    /// When it began, in microseconds after its server started, if that counts.
    begun: i64,
    is_read_committed: bool,
    /// Encoded, and not.
    surroundings: (Arc<[u8]>, Surroundings),
    template: Arc<str>,
    schema: Option<Arc<Schema>>,
    memory: Arc<Pool>,
}

impl Default for StatementExecutor {
    fn default() -> Self {
        Self::within(&Pool::new("server", MEMORY, ""), MEMORY)
    }
}

#[cold]
fn damaged() -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, "a recorded transaction's statements are damaged")
}

/// The error of a statement that nobody wants any more, as one of a session that is cancelled.
#[cold]
fn given_up() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "the transaction is not executed again any more")
}

impl CommandExecutor for StatementExecutor {
    fn execute(&self, transaction: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> Result<(), ProcedureError> {
        if procedure != PROCEDURE {
            return Err(ProcedureError::Aborted(format!("procedure {procedure} is not known here").into()));
        }
        self.run(transaction, inputs).map_err(|error| match error {
            Failed::OtherBuild => ProcedureError::OtherBuild,
            Failed::Statement(error) if error.state == SqlState::OUT_OF_MEMORY => {
                ProcedureError::Memory(error.to_string())
            }
            Failed::Statement(error) => ProcedureError::Aborted(error.to_string().into()),
        })
    }

    fn describe(&self, transaction: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> String {
        match procedure {
            PROCEDURE => self.texts(transaction, inputs),
            _ => format!("procedure {procedure}"),
        }
    }
}

/// Why a transaction's statements did not run to their end.
enum Failed {
    /// They were recorded by another build.
    OtherBuild,
    Statement(SqlError),
}

impl From<SqlError> for Failed {
    fn from(error: SqlError) -> Self {
        Self::Statement(error)
    }
}

impl StatementExecutor {
    /// One that takes its memory from that of the server's sessions, `limit` bytes for a
    /// transaction at most. One that needs more, or more than is left, is not executed.
    pub fn within(server: &Arc<Pool>, limit: usize) -> Self {
        Self {
            catalog: OnceLock::new(),
            system: Arc::new(Nowhere),
            words: Words::default(),
            memory: (Arc::clone(server), limit),
            plans: RwLock::default(),
            any_build: false,
        }
    }

    /// Executes also what another build of the program has recorded, which may come out otherwise.
    pub fn of_any_build() -> Self {
        Self { any_build: true, ..Self::default() }
    }

    /// Runs the statements of a transaction.
    ///
    /// # Errors
    /// XX001 when that is no recorded transaction; what goes wrong in it.
    fn run(&self, transaction: &Transaction<'_>, mut inputs: &[u8]) -> Result<(), Failed> {
        let from = &mut inputs;
        let (flags, begun) = begin(from).ok_or_else(damaged)?;
        let mut progress = Progress {
            begun,
            is_read_committed: flags & READ_COMMITTED != 0,
            surroundings: Default::default(),
            template: Arc::default(),
            schema: None,
            memory: self.memory.0.below(
                "transaction that is executed again",
                self.memory.1,
                "Its bytes are fetched instead; see the settings sql.memory-bytes and sql.statement-memory-bytes.",
            ),
        };
        while !from.is_empty() {
            let decoded = self.next(transaction, from, &progress.template).ok_or_else(damaged)?;
            if let Some(word) = decoded.surroundings {
                let bytes = self.spell(transaction, word).ok_or_else(damaged)?;
                if !self.any_build && Surroundings::is_of_other_build(&bytes) {
                    return Err(Failed::OtherBuild);
                }
                let surroundings = Surroundings::decode(&bytes).ok_or_else(damaged)?;
                progress.surroundings = (bytes, surroundings);
            }
            progress.template = Arc::clone(&decoded.template);
            self.statement(transaction, &mut progress, decoded)?;
        }
        Ok(())
    }

    /// The next statement, whose template may be the one `before`.
    fn next<'b>(&self, transaction: &Transaction<'_>, from: &mut &'b [u8], before: &Arc<str>) -> Option<Decoded<'b>> {
        // Its words are those that its own snapshot sees.
        if Decoded::has_refreshed(from) {
            transaction.refresh();
        }
        let spell = |word| std::str::from_utf8(&self.spell(transaction, word)?).ok().map(Arc::from);
        Decoded::take(from, before, spell)
    }

    /// The texts of a transaction's statements and their parameters, as far as they can be read.
    fn texts(&self, transaction: &Transaction<'_>, mut inputs: &[u8]) -> String {
        let (mut texts, mut template) = (String::new(), Arc::default());
        let from = &mut inputs;
        if begin(from).is_none() {
            return texts;
        }
        while !from.is_empty() {
            let separator = if texts.is_empty() { "" } else { "; " };
            let decoded = self.next(transaction, from, &template).filter(|_| texts.len() < DESCRIBED);
            let Some(decoded) = decoded else {
                texts.push_str(separator);
                texts.push_str("...");
                break;
            };
            texts.push_str(separator);
            texts.extend(decoded.text.chars().take(DESCRIBED));
            if !decoded.parameters.is_empty() {
                let _ = write!(texts, " with {:?}", decoded.parameters);
            }
            template = decoded.template;
        }
        texts
    }

    /// A word of the dictionary, or one that is not there.
    fn spell(&self, transaction: &Transaction<'_>, word: Word<'_>) -> Option<Arc<[u8]>> {
        match word {
            Word::Known(number) => self.words.find(transaction, number),
            Word::Spelt(word) => Some(word.into()),
        }
    }

    fn statement(
        &self,
        transaction: &Transaction<'_>,
        progress: &mut Progress,
        decoded: Decoded<'_>,
    ) -> Result<(), SqlError> {
        let interrupted = || if transaction.is_given_up() { Err(given_up()) } else { Ok(()) };
        let memory = Arc::clone(&progress.memory);
        work::within(&interrupted, &memory, || self.statement_within(transaction, progress, decoded, &interrupted))
    }

    fn statement_within(
        &self,
        transaction: &Transaction<'_>,
        progress: &mut Progress,
        mut decoded: Decoded<'_>,
        interrupted: &dyn Fn() -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let captured = Captured::replaying(std::mem::take(&mut decoded.captured), std::mem::take(&mut decoded.looks));
        let parameters = decoded.parameters.as_slice();
        let schema = self.schema(transaction, progress)?;
        let around = &progress.surroundings.1;
        let snapshot = self.snapshot(&schema, around);
        let view = View { snapshot: &snapshot };
        let session = CapturedSession { captured: &captured, session: &view };
        let begun = around.started.saturating_add(progress.begun);
        let started = begun.saturating_add(decoded.started.unwrap_or(0));
        let context = EvalContext {
            zone: around.zone(),
            formats: around.formats(),
            transaction_start: Timestamp(begun).into(),
            statement_start: Timestamp(started).into(),
            names: Some(&view),
            session: Some(&session),
            large: Large::of(&progress.memory),
            ..EvalContext::default()
        };
        // `now` in its text is when its plan was made, which the session may have kept since.
        let bound = Timestamp(around.started.saturating_add(decoded.bound.unwrap_or(0)));
        let made = self.made(
            progress,
            &decoded,
            &schema,
            &EvalContext { transaction_start: bound.into(), ..context.clone() },
        )?;
        let row_ids = RowIds::starting_at(RowIdSource::of(around.run), decoded.row_ids.unwrap_or_default());
        let environment =
            Environment { parameters, firsts: &[], context: &context, session: &view, captured: Some(&captured) };
        let mut firsts = Vec::new();
        for first in &made.firsts {
            let mut run = Run::new(
                transaction,
                Environment { firsts: &firsts, ..environment },
                interrupted,
                &row_ids,
                Arc::clone(&progress.memory),
            );
            run.schema = Some(&schema);
            firsts.push(first.given(run.first(first, ()))?);
        }
        let environment = Environment { firsts: &firsts, ..environment };
        let mut run = Run::new(transaction, environment, interrupted, &row_ids, Arc::clone(&progress.memory));
        run.read_committed = progress.is_read_committed;
        run.schema = Some(&schema);
        match &made.plan {
            Plan::Insert(plan) => run.insert(plan, &mut Evaluated, ())?,
            Plan::Update(plan) => run.update(plan, &mut Evaluated, ())?,
            Plan::Delete(plan) => run.delete(plan, &mut Evaluated, ())?,
            Plan::Select(_) | Plan::General(_) | Plan::Utility => return Err(damaged()),
        };
        run.finish()?;
        captured.finish()
    }

    /// The catalog that the transaction sees.
    fn schema(&self, transaction: &Transaction<'_>, progress: &mut Progress) -> Result<Arc<Schema>, SqlError> {
        let catalog = self.catalog.get_or_init(|| Catalog::new(Database::of(transaction.worker().core())));
        let database = progress.surroundings.1.database;
        let schema = match progress.schema.take() {
            Some(schema) if schema.database == database && catalog.is_current(transaction, &schema)? => schema,
            _ => catalog.read(transaction, database)?,
        };
        progress.schema = Some(Arc::clone(&schema));
        Ok(schema)
    }

    fn snapshot(&self, schema: &Arc<Schema>, around: &Surroundings) -> Snapshot {
        Snapshot {
            schema: Arc::clone(schema),
            path: around.path.clone(),
            role: around.role,
            reader: Reader::Nobody,
            database: schema.database().map_or_else(Arc::default, |database| database.name.as_str().into()),
            system: Arc::clone(&self.system),
        }
    }

    /// The plan of a statement. It is kept, unless the statement has its values in its text, which
    /// hardly comes again, or these depend on when its plan was made.
    fn made(
        &self,
        progress: &Progress,
        decoded: &Decoded<'_>,
        schema: &Arc<Schema>,
        context: &EvalContext<'_>,
    ) -> Result<Arc<Made>, SqlError> {
        let Decoded { template, text, types, parameters, bound, .. } = decoded;
        let make = |types, values| make(progress, text, schema, context, types, values).map(Arc::new);
        if bound.is_some() || parameters.is_empty() && template.contains(HOLE) {
            return make(types.clone(), None);
        }
        let mut key = Vec::with_capacity(progress.surroundings.0.len() + text.len() + 16);
        value::put_bytes(&progress.surroundings.0, &mut key);
        value::put_bytes(text.as_bytes(), &mut key);
        put_types(types, &mut key);
        let known = self.plans.read().unwrap_or_else(PoisonError::into_inner).get(&key).map(Arc::clone);
        let made = match known.filter(|known| known.version == schema.version) {
            Some(known) => known,
            None => {
                let made = make(types.clone(), None)?;
                let mut plans = self.plans.write().unwrap_or_else(PoisonError::into_inner);
                if plans.len() >= PLANS {
                    plans.clear();
                }
                plans.insert(key, Arc::clone(&made));
                made
            }
        };
        if !made.by_values {
            return Ok(made);
        }
        make(made.types.clone(), Some(parameters)).or(Ok(made))
    }
}

/// Takes what stands before the statements: flags, and when the transaction began, if that counts.
fn begin(from: &mut &[u8]) -> Option<(u8, i64)> {
    let [flags] = value::take_array(from).filter(|[flags]| flags & !(BEGUN | READ_COMMITTED) == 0)?;
    let begun = if flags & BEGUN != 0 { varint::unzigzag(varint::take(from)?) } else { 0 };
    Some((flags, begun))
}

/// Reads and binds a statement.
fn make(
    progress: &Progress,
    text: &str,
    schema: &Arc<Schema>,
    context: &EvalContext<'_>,
    types: Vec<Option<Type>>,
    values: Option<&[Value]>,
) -> Result<Made, SqlError> {
    let around = &progress.surroundings.1;
    let kept = progress.memory.reserve();
    let statements = parse_within(text, &kept, around.literals(), &mut Remarks::default())?;
    let Some(Parsed::Sql(statement)) = statements.into_iter().next() else { return Err(damaged()) };
    let statement: &Statement = &statement;
    let binder = Binder {
        parameters: types.into(),
        values,
        planner: Some(&NoGeneral),
        checked: false,
        ..Binder::new(schema, &around.path, around.role, context)
    };
    let plan = change_of(&binder, statement)?.ok_or_else(damaged)?;
    let by_values = values.is_none() && plan.may_be_better();
    let (firsts, types) = (binder.firsts.take(), binder.parameters.take());
    Ok(Made { version: schema.version, firsts, plan, by_values, types })
}

/// What functions that are no one's session ask.
struct View<'s> {
    snapshot: &'s Snapshot,
}

impl SessionCalls for View<'_> {
    fn call(&self, function: SessionFunction, _: &[Value]) -> Result<Value, SqlError> {
        Err(SqlError::internal(format!("{}() was not captured", function.name())))
    }

    fn rows(&self, function: SetFunction, _: &[Value]) -> Result<Vec<Vec<Value>>, SqlError> {
        Err(SqlError::internal(format!("{function:?} was not captured")))
    }
}

impl SessionView for View<'_> {}

impl ObjectNames for View<'_> {
    fn name_of(&self, kind: Kind, id: u32) -> Option<String> {
        system::names::name_of(self.snapshot, kind, id)
    }

    fn id_of(&self, kind: Kind, name: &str) -> Result<Option<u32>, SqlError> {
        system::names::id_of(self.snapshot, kind, name)
    }
}

/// No general query is executed again.
struct NoGeneral;

impl Planner for NoGeneral {
    fn plan(
        &self,
        _: &ast::Query,
        _: &[Option<Type>],
        _: &EvalContext<'_>,
        _: bool,
    ) -> Option<Result<Arc<dyn GeneralPlan>, SqlError>> {
        None
    }
}

/// Takes rows that nobody gets. They are evaluated, since they may ask for captured values.
struct Evaluated;

impl Sink for Evaluated {
    fn row(
        &mut self,
        output: &[Output],
        rows: &[Source<'_>],
        environment: &Environment<'_>,
    ) -> Result<ControlFlow<()>, SqlError> {
        for output in output {
            output.expression.look(rows, environment, &mut Value::Null)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn values(&mut self, _: &[Value]) -> Result<ControlFlow<()>, SqlError> {
        Ok(ControlFlow::Continue(()))
    }
}
