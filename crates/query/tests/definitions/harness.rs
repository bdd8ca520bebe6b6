//! A session without a connection: definitions and simple statements, straight to the crate's
//! parts.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use freshet_engine::{Database, Isolation, Savepoint, Transaction, Worker};
use freshet_query::{
    bind::{Binder, Stop},
    ddl::{Ddl, Definition, Effects},
    execute::{RowIdSource, RowIds, Run, modify::Collected},
    expression::{Environment, SessionView},
    locks::{LockManager, LockMark, LockMode, OtherWaits, Patience, Planned, TableLocks},
    schema::{Catalog, FIRST_DATABASE, FIRST_ROLE, Named, Oid, PUBLIC, Schema},
    sequence::{Sequences, SessionSequences},
};
use freshet_sql::{
    SqlError, Type, Value,
    functions::{SessionCalls, SessionFunction, SetFunction},
    types::{EvalContext, Kind, ObjectNames, text},
};
use sqlparser::{ast::Statement, dialect::PostgreSqlDialect, parser::Parser};

/// A database without a log, or a node's, with a catalog.
pub struct Base {
    pub database: Database,
    pub catalog: Catalog,
    pub sequences: Sequences,
    pub locks: Arc<LockManager>,
    row_ids: Arc<RowIdSource>,
}

struct Records(Database);

impl OtherWaits for Records {
    fn waits_for(&self, waiter: usize) -> Vec<usize> {
        self.0.core().waits_for(waiter)
    }
}

impl Base {
    pub fn new() -> Self {
        Self::of(Database::volatile(16))
    }

    /// Of a primary.
    pub fn of(database: Database) -> Self {
        let base = Self::reading(database);
        base.catalog.make("admin").unwrap();
        base.sequences.make().unwrap();
        base
    }

    /// Of a node that may be a standby.
    pub fn reading(database: Database) -> Self {
        let catalog = Catalog::new(database.clone());
        let sequences = Sequences::new(database.clone());
        let locks = LockManager::new(Some(Arc::new(Records(database.clone()))));
        Self { database, catalog, sequences, locks, row_ids: Arc::new(RowIdSource::new().unwrap()) }
    }

    pub fn worker(&self) -> Worker {
        self.database.worker().unwrap()
    }

    pub fn session<'b>(&'b self, worker: &'b Worker) -> Session<'b> {
        Session {
            base: self,
            worker,
            transaction: None,
            explicit: false,
            isolation: Isolation::Snapshot,
            read_committed: true,
            role: FIRST_ROLE,
            path: vec![PUBLIC],
            locks: self.locks.session(worker.place(), FIRST_DATABASE),
            effects: Effects::default(),
            notices: Vec::new(),
            row_ids: RowIds::new(&self.row_ids),
            sequences: SessionSequences::default(),
            savepoints: Vec::new(),
            interrupted: Cell::new(false),
            schema: Arc::new(Schema::empty(FIRST_DATABASE)),
        }
    }
}

pub struct Session<'b> {
    pub base: &'b Base,
    worker: &'b Worker,
    transaction: Option<Transaction<'b>>,
    explicit: bool,
    pub isolation: Isolation,
    pub read_committed: bool,
    pub role: Oid,
    pub path: Vec<Oid>,
    pub locks: TableLocks,
    effects: Effects,
    pub notices: Vec<SqlError>,
    row_ids: RowIds,
    sequences: SessionSequences,
    savepoints: Vec<(Savepoint, LockMark)>,
    pub interrupted: Cell<bool>,
    schema: Arc<Schema>,
}

struct View<'s> {
    schema: &'s Schema,
    path: &'s [Oid],
    base: &'s Base,
    sequences: &'s SessionSequences,
}

impl ObjectNames for View<'_> {
    fn name_of(&self, _: Kind, id: u32) -> Option<String> {
        self.schema.sequence(id).map(|sequence| sequence.name.clone())
    }

    fn id_of(&self, kind: Kind, name: &str) -> Result<Option<u32>, SqlError> {
        Ok(match self.schema.find(self.path, name) {
            Some(Named::Sequence(oid) | Named::Table(oid) | Named::View(oid)) if kind == Kind::Regclass => Some(oid),
            _ => None,
        })
    }
}

impl SessionView for View<'_> {
    fn identity_value(&self, sequence: Oid) -> Result<Value, SqlError> {
        let sequence = self.schema.sequence(sequence).unwrap();
        self.sequences.next(&self.base.sequences, sequence, &|| Ok(())).map(Value::Int8)
    }
}

impl SessionCalls for View<'_> {
    fn call(&self, function: SessionFunction, arguments: &[Value]) -> Result<Value, SqlError> {
        let sequence = || {
            let oid = arguments[0].as_i64().unwrap();
            self.schema.sequence(oid as Oid).ok_or_else(|| SqlError::internal("no such sequence"))
        };
        Ok(Value::Int8(match function {
            SessionFunction::NextValue => self.sequences.next(&self.base.sequences, sequence()?, &|| Ok(()))?,
            SessionFunction::CurrentValue => self.sequences.current(sequence()?)?,
            other => return Err(SqlError::internal(format!("{other:?} is not here"))),
        }))
    }

    fn rows(&self, function: SetFunction, _: &[Value]) -> Result<Vec<Vec<Value>>, SqlError> {
        Err(SqlError::internal(format!("{function:?} is not here")))
    }
}

/// The rows of a statement, or its tag.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub tag: String,
    pub rows: Vec<Vec<String>>,
}

impl<'b> Session<'b> {
    /// Runs a statement, in a transaction of its own unless there is one.
    pub fn run(&mut self, sql: &str) -> Result<Answer, SqlError> {
        self.notices.clear();
        match sql {
            "BEGIN" => {
                self.begin();
                self.explicit = true;
                return Ok(tag("BEGIN"));
            }
            "COMMIT" => return self.commit().map(|()| tag("COMMIT")),
            "ROLLBACK" => {
                self.roll_back();
                return Ok(tag("ROLLBACK"));
            }
            "SAVEPOINT" => {
                let transaction = self.transaction.as_ref().unwrap();
                self.savepoints.push((transaction.savepoint(), self.locks.mark()));
                return Ok(tag("SAVEPOINT"));
            }
            "ROLLBACK TO" => {
                let (savepoint, mark) = self.savepoints.last().unwrap();
                self.transaction.as_ref().unwrap().roll_back_to(savepoint);
                self.locks.release_since(*mark);
                return Ok(tag("ROLLBACK"));
            }
            _ => {}
        }
        match &self.transaction {
            None => self.begin(),
            Some(transaction) if self.read_committed => transaction.refresh(),
            Some(_) => {}
        }
        let done = self.statement(sql);
        match (&done, self.explicit) {
            (_, true) => {}
            (Ok(_), false) => self.commit()?,
            (Err(_), false) => self.roll_back(),
        }
        done
    }

    fn begin(&mut self) {
        assert!(self.transaction.is_none());
        self.transaction = Some(self.worker.begin(self.isolation));
    }

    fn ended(&mut self) {
        self.savepoints.clear();
        self.explicit = false;
        let Base { catalog, sequences, locks, .. } = self.base;
        self.effects.settle(self.worker, catalog, sequences, locks).unwrap();
        self.locks.release();
    }

    fn commit(&mut self) -> Result<(), SqlError> {
        let committed = self.transaction.take().unwrap().commit();
        let committed = committed.map_err(freshet_query::error::commit_error);
        if let Ok(ticket) = &committed {
            self.base.database.wait(*ticket).unwrap();
        }
        self.ended();
        committed.map(drop)
    }

    fn roll_back(&mut self) {
        drop(self.transaction.take());
        self.ended();
    }

    /// Leaves everything as it is, as a crash does.
    pub fn forget(mut self) {
        drop(self.transaction.take());
        self.effects = Effects::default();
    }

    pub fn schema(&mut self) -> Arc<Schema> {
        match &self.transaction {
            Some(transaction) => self.base.catalog.read(transaction, FIRST_DATABASE).unwrap(),
            None => self.base.catalog.read(&self.worker.begin_read_only(), FIRST_DATABASE).unwrap(),
        }
    }

    fn statement(&mut self, sql: &str) -> Result<Answer, SqlError> {
        let transaction = self.transaction.as_ref().unwrap();
        let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).unwrap();
        let syntax = |cause: sqlparser::parser::ParserError| {
            SqlError::new(freshet_sql::SqlState::SYNTAX_ERROR, cause.to_string())
        };
        self.schema = self.base.catalog.read(transaction, FIRST_DATABASE)?;
        let flag = &self.interrupted;
        let interrupted = || match flag.get() {
            true => Err(SqlError::new(freshet_sql::SqlState::QUERY_CANCELED, "canceled")),
            false => Ok(()),
        };
        let schema = Arc::clone(&self.schema);
        let view = View { schema: &schema, path: &self.path, base: self.base, sequences: &self.sequences };
        let context = EvalContext { names: Some(&view), session: Some(&view), ..EvalContext::default() };
        if let Some(definition) = Definition::parse(&mut parser).map_err(syntax)? {
            let columns = RefCell::new(());
            let columns_of = |query: &sqlparser::ast::Query, schema: &Arc<Schema>| {
                let _one_at_a_time = columns.borrow_mut();
                let binder = Binder::new(schema, &self.path, self.role, &context);
                if let Some(columns) = columns_of_view(query, schema, &self.path) {
                    return Ok(columns);
                }
                let plan = binder.query(query).map_err(settled)?;
                Ok(plan.output.iter().map(|output| (output.name.clone(), output.ty)).collect::<Vec<(String, Type)>>())
            };
            let mut ddl = Ddl {
                catalog: &self.base.catalog,
                read_committed: false,
                transaction,
                schema: Arc::clone(&schema),
                path: &self.path,
                role: self.role,
                session_role: self.role,
                context: &context,
                session: &view,
                row_ids: &self.row_ids,
                locks: &self.locks,
                sequences: &self.base.sequences,
                lock_timeout: None,
                interrupted: &interrupted,
                columns_of: &columns_of,
                notices: &mut self.notices,
                effects: &mut self.effects,
                mark: None,
            };
            let outcome = ddl.define(&definition)?;
            self.schema = ddl.schema;
            assert_eq!(self.schema.version, self.base.catalog.read(transaction, FIRST_DATABASE)?.version);
            return Ok(tag(outcome.tag));
        }
        let statement = parser.parse_statement().map_err(syntax)?;
        loop {
            let schema = self.base.catalog.read(transaction, FIRST_DATABASE)?;
            let view = View { schema: &schema, path: &self.path, base: self.base, sequences: &self.sequences };
            let context = EvalContext { names: Some(&view), session: Some(&view), ..EvalContext::default() };
            let binder = Binder::new(&schema, &self.path, self.role, &context);
            let environment =
                Environment { parameters: &[], firsts: &[], context: &context, session: &view, captured: None };
            let mut run =
                Run::new(transaction, environment, &interrupted, &self.row_ids, freshet_sql::memory::Pool::of(1 << 30));
            run.read_committed = self.read_committed;
            let mut found = Collected::default();
            let patience = Patience { deadline: None, interrupted: &interrupted };
            let lock = |table: Oid| self.locks.weak(table, LockMode::RowExclusive, schema.version.number, patience);
            let outdated = |planned: Planned| {
                if planned == Planned::Outdated && !self.read_committed {
                    return Err(SqlError::new(freshet_sql::SqlState::SERIALIZATION_FAILURE, "changed"));
                }
                if planned == Planned::Outdated {
                    transaction.refresh();
                }
                Ok(planned == Planned::Outdated)
            };
            let tag = match &statement {
                Statement::Query(query) => {
                    let plan = binder.query(query).map_err(settled)?;
                    let count = run.select(&plan, &mut found, ())?;
                    let rows = found.0.iter().map(|row| {
                        let show = |(value, output): (&Value, &freshet_query::bind::select::Output)| {
                            let mut shown = String::new();
                            match value.is_null() {
                                true => shown.push_str("null"),
                                false => text::output_as(output.ty.kind(), value.as_ref(), &context, &mut shown),
                            }
                            shown
                        };
                        row.iter().zip(&plan.output).map(show).collect()
                    });
                    return Ok(Answer { tag: format!("SELECT {count}"), rows: rows.collect() });
                }
                Statement::Insert(insert) => {
                    let plan = binder.insert(insert, None).map_err(settled)?;
                    if outdated(lock(plan.table.table.oid)?)? {
                        continue;
                    }
                    format!("INSERT 0 {}", run.insert(&plan, &mut found, ())?)
                }
                Statement::Update(update) => {
                    let plan = binder.update(update, None).map_err(settled)?;
                    if outdated(lock(plan.table.table.oid)?)? {
                        continue;
                    }
                    format!("UPDATE {}", run.update(&plan, &mut found, ())?)
                }
                Statement::Delete(delete) => {
                    let plan = binder.delete(delete, None).map_err(settled)?;
                    if outdated(lock(plan.table.table.oid)?)? {
                        continue;
                    }
                    format!("DELETE {}", run.delete(&plan, &mut found, ())?)
                }
                other => panic!("{other} is for others to test"),
            };
            return Ok(Answer { tag, rows: Vec::new() });
        }
    }

    /// Runs what must succeed, and returns the tag.
    #[track_caller]
    pub fn ok(&mut self, sql: &str) -> String {
        self.run(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}")).tag
    }

    /// Runs a query, and returns rows as text, columns separated by commas.
    #[track_caller]
    pub fn rows(&mut self, sql: &str) -> Vec<String> {
        let answer = self.run(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        answer.rows.iter().map(|row| row.join(",")).collect()
    }

    /// Runs what must fail, and returns the state and the message.
    #[track_caller]
    pub fn fails(&mut self, sql: &str) -> String {
        let error = self.run(sql).err().unwrap_or_else(|| panic!("{sql}: it did not fail"));
        format!("{}: {}", error.state, error.message)
    }

    /// The messages of the last statement's notices.
    pub fn notice_texts(&self) -> Vec<String> {
        self.notices.iter().map(|notice| notice.message.to_string()).collect()
    }
}

/// The columns of a query of columns of one view: what others would say of it who run general
/// queries.
fn columns_of_view(query: &sqlparser::ast::Query, schema: &Schema, path: &[Oid]) -> Option<Vec<(String, Type)>> {
    let sql = query.to_string().replace('"', "");
    let (columns, from) = sql.strip_prefix("SELECT ")?.split_once(" FROM ")?;
    let name = from.split(' ').next()?.split('.').next_back()?;
    let Named::View(oid) = schema.find(path, name)? else { return None };
    let known = &schema.view(oid)?.columns;
    columns.split(", ").map(|name| known.iter().find(|(column, _)| column == name).cloned()).collect()
}

fn tag(tag: &str) -> Answer {
    Answer { tag: tag.to_owned(), rows: Vec::new() }
}

fn settled(stop: Stop) -> SqlError {
    match stop {
        Stop::Error(error) => error,
        Stop::General(what) => SqlError::internal(format!("for general queries: {what}")),
    }
}
