//! Tables in memory, made by statements, and queries over them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use freshet_general::QueryEngine;
use freshet_sql::{
    SqlError, SqlState, Type, Value, ValueRef,
    general::{
        Cells, Column, Filter, General, GeneralPlan, Named, Readable, Relation, Relations, ResultColumn, Rows, Run,
        Scan, Test,
    },
    memory::Pool,
    types::{Cast, CastContext, EvalContext, Kind, text},
};
use sqlparser::{
    ast::{Expr, ObjectName, Query, SetExpr, Statement, Values},
    dialect::PostgreSqlDialect,
    parser::Parser,
};

/// As much memory as tests need.
pub const MEMORY: usize = 256 << 20;

/// Rows in memory.
#[derive(Debug)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Value>>,
    /// The columns whose filters it takes.
    pub indexed: Vec<usize>,
    pub estimate: Option<u64>,
    /// All that was ever read.
    pub scans: Mutex<Vec<Scan>>,
    /// How many rows were given out.
    pub given: Arc<Mutex<usize>>,
}

#[derive(Debug, Default)]
pub struct Database {
    pub names: HashMap<String, Named>,
    pub tables: HashMap<String, Arc<Table>>,
}

impl Relations for Database {
    fn named(&self, schema: Option<&str>, name: &str) -> Result<Named, SqlError> {
        match (schema, self.names.get(name)) {
            (None | Some("public"), Some(named)) => Ok(named.clone()),
            (Some(schema), _) => {
                Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{schema}.{name}\" does not exist")))
            }
            _ => Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))),
        }
    }
}

/// Lets every role read.
#[derive(Debug)]
struct Everybody;

impl Readable for Everybody {
    fn may_read(&self, _: &[usize]) -> Result<(), SqlError> {
        Ok(())
    }
}

impl Readable for Table {
    fn may_read(&self, _: &[usize]) -> Result<(), SqlError> {
        Ok(())
    }
}

impl Relation for Table {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn row_estimate(&self) -> Option<u64> {
        self.estimate
    }

    fn takes(&self, filter: &Filter) -> bool {
        self.indexed.contains(&filter.column)
    }

    fn scan(&self, scan: Scan) -> Result<Box<dyn Rows>, SqlError> {
        self.scans.lock().unwrap().push(scan.clone());
        let passing: Vec<Vec<Value>> = self
            .rows
            .iter()
            .filter(|row| scan.filters.iter().all(|filter| fulfils(&filter.test, &row[filter.column])))
            .take(scan.limit.map_or(usize::MAX, |limit| limit as usize))
            .map(|row| scan.columns.iter().map(|column| row[*column].clone()).collect())
            .collect();
        Ok(Box::new(Reading { rows: passing, at: 0, given: Arc::clone(&self.given) }))
    }
}

fn fulfils(test: &Test, value: &Value) -> bool {
    if let Test::IsNull = test {
        return value.is_null();
    }
    if value.is_null() {
        return false;
    }
    let same_kind = |other: &Value| assert_eq!(value.kind(), other.kind(), "a filter's value is of another kind");
    match test {
        Test::Less(other) => {
            same_kind(other);
            value < other
        }
        Test::LessOrEqual(other) => value <= other,
        Test::Equal(other) => {
            same_kind(other);
            value == other
        }
        Test::GreaterOrEqual(other) => value >= other,
        Test::Greater(other) => value > other,
        Test::NotEqual(other) => value != other,
        Test::Among(others) => others.contains(value),
        Test::IsNull | Test::IsNotNull => true,
    }
}

struct Reading {
    rows: Vec<Vec<Value>>,
    at: usize,
    given: Arc<Mutex<usize>>,
}

struct Row<'a>(&'a [Value]);

impl Cells for Row<'_> {
    fn cell(&self, n: usize) -> Result<ValueRef<'_>, SqlError> {
        Ok(self.0[n].as_ref())
    }
}

impl Rows for Reading {
    fn next(
        &mut self,
        count: usize,
        sink: &mut dyn FnMut(&dyn Cells) -> Result<(), SqlError>,
    ) -> Result<bool, SqlError> {
        let end = (self.at + count).min(self.rows.len());
        for row in &self.rows[self.at..end] {
            sink(&Row(row))?;
        }
        *self.given.lock().unwrap() += end - self.at;
        self.at = end;
        Ok(end < self.rows.len())
    }
}

pub fn parse(sql: &str) -> Vec<Statement> {
    Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

pub fn parse_query(sql: &str) -> Result<Box<Query>, String> {
    let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).map_err(|error| error.to_string())?;
    match statements.pop() {
        Some(Statement::Query(query)) if statements.is_empty() => Ok(query),
        _ => Err("no query".to_owned()),
    }
}

fn plain(name: &ObjectName) -> String {
    name.to_string().trim_matches('"').to_owned()
}

impl Database {
    /// Tables and views as statements make them: CREATE TABLE, CREATE INDEX, CREATE VIEW, INSERT
    /// ... VALUES.
    pub fn of(sql: &str) -> Arc<dyn Relations> {
        Arc::new(Self::build(sql))
    }

    pub fn build(sql: &str) -> Self {
        let mut database = Self::default();
        let mut tables: HashMap<String, Table> = HashMap::new();
        let mut views = Vec::new();
        for statement in parse(sql) {
            match statement {
                Statement::CreateTable(create) => {
                    let columns = create
                        .columns
                        .iter()
                        .map(|column| Column {
                            name: column.name.value.clone(),
                            ty: Type::from_sql(&column.data_type).unwrap(),
                            hidden: false,
                        })
                        .collect();
                    let table = Table {
                        columns,
                        rows: Vec::new(),
                        indexed: Vec::new(),
                        estimate: None,
                        scans: Mutex::default(),
                        given: Arc::default(),
                    };
                    tables.insert(plain(&create.name), table);
                }
                Statement::CreateIndex(create) => {
                    let table = tables.get_mut(&plain(&create.table_name)).unwrap();
                    for column in &create.columns {
                        let Expr::Identifier(ident) = &column.column.expr else { panic!("an index on an expression") };
                        let at = table.columns.iter().position(|column| column.name == ident.value).unwrap();
                        table.indexed.push(at);
                    }
                }
                Statement::CreateView(view) => views.push((plain(&view.name), view.query)),
                Statement::Insert(insert) => {
                    let table = tables.get_mut(insert.table.to_string().trim_matches('"')).unwrap();
                    let source = insert.source.unwrap();
                    let nothing: Arc<dyn Relations> = Arc::new(Self::default());
                    let context = EvalContext::default();
                    let SetExpr::Values(values) = source.body.as_ref() else { panic!("an INSERT without VALUES") };
                    // Each row on its own: a literal is of its column's type, whatever stands below
                    // it.
                    for row in &values.rows {
                        let one = Values { rows: vec![row.clone()], ..values.clone() };
                        let source = Query { body: Box::new(SetExpr::Values(one)), ..source.as_ref().clone() };
                        let (columns, mut rows) = run_query(&nothing, &source, &[]).unwrap();
                        let row = rows.remove(0).into_iter().enumerate().map(|(at, value)| {
                            let from = if columns[at].ty == Type::TEXT { Kind::Unknown } else { columns[at].ty.kind() };
                            let cast = Cast::find(from, table.columns[at].ty, CastContext::Assignment).unwrap();
                            cast.apply(value, &context).unwrap()
                        });
                        table.rows.push(row.collect());
                    }
                    table.estimate = Some(table.rows.len() as u64);
                }
                other => panic!("no statement for a fixture: {other}"),
            }
        }
        for (name, table) in tables {
            let table = Arc::new(table);
            database.names.insert(name.clone(), Named::Relation(Arc::clone(&table) as Arc<dyn Relation>));
            database.tables.insert(name, table);
        }
        for (name, query) in views {
            let relations: Arc<dyn Relations> =
                Arc::new(Self { names: database.names.clone(), tables: HashMap::new() });
            let plan = plan(&relations, &query, &[]).unwrap();
            let column = |column: &ResultColumn| Column { name: column.name.clone(), ty: column.ty, hidden: false };
            let columns = plan.columns().iter().map(column).collect();
            let access = Arc::new(Everybody);
            database.names.insert(name, Named::View { query: Arc::new(*query), relations, columns, access });
        }
        database
    }
}

pub fn plan(
    relations: &Arc<dyn Relations>,
    query: &Query,
    parameters: &[Option<Type>],
) -> Result<Arc<dyn GeneralPlan>, SqlError> {
    QueryEngine.plan(query, parameters, relations, &EvalContext::default())
}

type Answer = (Vec<ResultColumn>, Vec<Vec<Value>>);

pub fn run_query(relations: &Arc<dyn Relations>, query: &Query, parameters: &[Value]) -> Result<Answer, SqlError> {
    let plan = plan(relations, query, &[])?;
    let context = EvalContext::default();
    let run = Run { parameters, context: &context, memory: &Pool::of(MEMORY), interrupted: &|| Ok(()) };
    let rows = fetch(plan.as_ref(), &run)?;
    Ok((plan.columns().to_vec(), rows))
}

/// All rows of a run.
pub fn fetch(plan: &dyn GeneralPlan, run: &Run<'_>) -> Result<Vec<Vec<Value>>, SqlError> {
    let mut running = plan.run(run)?;
    let mut rows = Vec::new();
    loop {
        let before = rows.len();
        running.next(&mut rows)?;
        if rows.len() == before {
            return Ok(rows);
        }
    }
}

/// A value as a client sees it.
pub fn print(value: &Value, ty: Type) -> String {
    match value {
        Value::Null => "∅".to_owned(),
        value => {
            let mut out = String::new();
            text::output_as(ty.kind(), value.as_ref(), &EvalContext::default(), &mut out);
            out
        }
    }
}

pub fn ask(relations: &Arc<dyn Relations>, sql: &str) -> Result<Vec<Vec<String>>, SqlError> {
    ask_with(relations, sql, &[])
}

pub fn ask_with(relations: &Arc<dyn Relations>, sql: &str, parameters: &[Value]) -> Result<Vec<Vec<String>>, SqlError> {
    let query = parse_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let (columns, rows) = run_query(relations, &query, parameters)?;
    Ok(rows
        .iter()
        .map(|row| {
            assert_eq!(row.len(), columns.len());
            row.iter().zip(&columns).map(|(value, column)| print(value, column.ty)).collect()
        })
        .collect())
}

/// The rows of a query, each as one text.
pub fn rows(relations: &Arc<dyn Relations>, sql: &str) -> Vec<String> {
    let rows = ask(relations, sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    rows.into_iter().map(|row| row.join("|")).collect()
}
