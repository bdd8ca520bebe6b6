//! What it takes to plan queries, to begin them, and to run them: `cargo bench -p freshet-general`.
//!
//! Rows are in memory already, so that the figures are those of queries alone. Each is the median
//! of many runs.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_general::QueryEngine;
use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value, ValueRef,
    general::{
        Cells, Column, Filter, General, GeneralPlan, Named, Readable, Relation, Relations, Rows, Run, Scan, Test,
    },
    memory::Pool,
    types::{EvalContext, Numeric},
};
use sqlparser::{
    ast::{Query, Statement},
    dialect::PostgreSqlDialect,
    parser::Parser,
};

const MEMORY: usize = 1 << 30;

/// Rows (id, group, name, amount, price), found by id.
#[derive(Debug)]
struct Table {
    columns: Vec<Column>,
    rows: Arc<Vec<[Value; 5]>>,
}

impl Table {
    fn new(count: i32) -> Self {
        let column = |name: &str, ty| Column { name: name.to_owned(), ty, hidden: false };
        let columns = vec![
            column("id", Type::INT4),
            column("g", Type::INT4),
            column("name", Type::TEXT),
            column("amount", Type::INT8),
            column("price", Type::numeric(12, 2).expect("a type")),
        ];
        let rows = (0..count)
            .map(|id| {
                [
                    Value::Int4(id),
                    Value::Int4(id % 1000),
                    Value::text(format!("name {}", id % 5000)),
                    Value::Int8(i64::from(id) * 7 % 10_000),
                    Numeric::new(i128::from(id % 100_000), 2).map_or(Value::Null, Value::Numeric),
                ]
            })
            .collect();
        Self { columns, rows: Arc::new(rows) }
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
        Some(self.rows.len() as u64)
    }

    fn takes(&self, filter: &Filter) -> bool {
        filter.column == 0 && matches!(filter.test, Test::Equal(_) | Test::Among(_))
    }

    fn scan(&self, scan: Scan) -> Result<Box<dyn Rows>, SqlError> {
        let keys = scan.filters.first().map(|filter| match &filter.test {
            Test::Equal(value) => vec![value.clone()],
            Test::Among(values) => values.clone(),
            _ => Vec::new(),
        });
        let places = keys.map(|keys| {
            let places = keys.iter().filter_map(|key| usize::try_from(key.as_i64()?).ok());
            places.filter(|place| *place < self.rows.len()).collect()
        });
        Ok(Box::new(Reading { rows: Arc::clone(&self.rows), columns: scan.columns, places, at: 0 }))
    }
}

struct Reading {
    rows: Arc<Vec<[Value; 5]>>,
    columns: Vec<usize>,
    /// Where the rows are, when not all are wanted.
    places: Option<Vec<usize>>,
    at: usize,
}

struct Row<'a>(&'a [Value; 5], &'a [usize]);

impl Cells for Row<'_> {
    fn cell(&self, n: usize) -> Result<ValueRef<'_>, SqlError> {
        Ok(self.0[self.1[n]].as_ref())
    }
}

impl Rows for Reading {
    fn next(
        &mut self,
        count: usize,
        sink: &mut dyn FnMut(&dyn Cells) -> Result<(), SqlError>,
    ) -> Result<bool, SqlError> {
        let all = self.places.as_ref().map_or(self.rows.len(), Vec::len);
        let end = (self.at + count).min(all);
        for at in self.at..end {
            let place = self.places.as_ref().map_or(at, |places| places[at]);
            sink(&Row(&self.rows[place], &self.columns))?;
        }
        self.at = end;
        Ok(end < all)
    }
}

#[derive(Debug)]
struct Tables(Vec<(&'static str, Arc<Table>)>);

impl Relations for Tables {
    fn named(&self, _: Option<&str>, name: &str) -> Result<Named, SqlError> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, table)| Named::Relation(Arc::clone(table) as Arc<dyn Relation>))
            .ok_or_else(|| SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")))
    }
}

fn parse(sql: &str) -> Query {
    match Parser::parse_sql(&PostgreSqlDialect {}, sql).map(|mut statements| statements.pop()) {
        Ok(Some(Statement::Query(query))) => *query,
        other => panic!("{sql}: {other:?}"),
    }
}

fn rows(plan: &dyn GeneralPlan, run: &Run<'_>) -> Result<usize, SqlError> {
    let mut running = plan.run(run)?;
    let (mut count, mut rows) = (0, Vec::new());
    loop {
        rows.clear();
        running.next(&mut rows)?;
        if rows.is_empty() {
            return Ok(count);
        }
        count += rows.len();
    }
}

/// The median of what something takes.
fn median(mut work: impl FnMut(), least: usize) -> Duration {
    work();
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < least || begun.elapsed() < Duration::from_millis(300) {
        let start = Instant::now();
        work();
        times.push(start.elapsed());
    }
    times.sort();
    times[times.len() / 2]
}

fn main() {
    let relations: Arc<dyn Relations> =
        Arc::new(Tables(vec![("big", Arc::new(Table::new(1_000_000))), ("small", Arc::new(Table::new(1000)))]));
    let queries: &[(&str, &str, &[Value])] = &[
        ("constant", "SELECT 1", &[]),
        ("point", "SELECT id, name FROM big WHERE id = $1", &[Value::Int4(77)]),
        (
            "point join",
            "SELECT b.name, s.name FROM big b JOIN small s ON s.id = b.g WHERE b.id = $1",
            &[Value::Int4(77)],
        ),
        (
            "three joins, group, order",
            "SELECT s.name, count(*), sum(b.price) FROM small s JOIN big b ON b.id = s.id JOIN small t ON t.id = b.g
             WHERE s.id IN (1, 2, 3) AND b.id IN (1, 2, 3) GROUP BY s.name ORDER BY 2 DESC, 1 LIMIT 10",
            &[],
        ),
        ("correlated subquery", "SELECT (SELECT b.name FROM big b WHERE b.id = s.id) FROM small s", &[]),
        ("count, 1 M rows", "SELECT count(*) FROM big", &[]),
        ("sums, 1 M rows", "SELECT sum(amount), sum(price), avg(amount), min(name) FROM big", &[]),
        ("filter, 1 M rows", "SELECT count(*) FROM big WHERE amount > 5000 AND name LIKE '%7'", &[]),
        ("arithmetic, 1 M rows", "SELECT sum(amount * 2 + g), sum(price * 1.19) FROM big", &[]),
        ("group, 1 M rows into 1000", "SELECT g, count(*), sum(price) FROM big GROUP BY g", &[]),
        ("group by text, 1 M into 5000", "SELECT name, count(*) FROM big GROUP BY name", &[]),
        ("join, 1 M with 1000", "SELECT count(*) FROM big b JOIN small s ON s.id = b.g", &[]),
        ("join, 1 M with 1 M", "SELECT count(*) FROM big a JOIN big b ON a.id = b.id", &[]),
        ("sort, 1 M rows", "SELECT id FROM big ORDER BY amount, id", &[]),
        ("top 10 of 1 M", "SELECT id FROM big ORDER BY amount DESC, id LIMIT 10", &[]),
        (
            "window, 1 M rows",
            "SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY g ORDER BY id) r FROM big) q",
            &[],
        ),
        ("all rows out, 1 M", "SELECT id, name, price FROM big", &[]),
        ("text functions, 1 M rows", "SELECT max(upper(name) || substr(name, 3)) FROM big", &[]),
    ];
    let context = EvalContext::default();
    let only = std::env::args().nth(1).filter(|argument| !argument.starts_with("--"));
    println!("{:<32} {:>12} {:>12} {:>12}", "query", "plan", "begin", "run");
    for (name, sql, parameters) in queries {
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let query = parse(sql);
        let types: Vec<Option<Type>> =
            parameters.iter().map(|value| value.kind().map(|kind: Kind| Type::of(kind))).collect();
        let make = || QueryEngine.plan(&query, &types, &relations, &context).expect(name);
        let plan = make();
        let run = Run { parameters, context: &context, memory: &Pool::of(MEMORY), interrupted: &|| Ok(()) };
        let planning = median(|| drop(make()), 20);
        let beginning = median(|| drop(plan.run(&run).expect(name)), 20);
        let running = median(
            || {
                rows(plan.as_ref(), &run).expect(name);
            },
            3,
        );
        println!("{name:<32} {planning:>12.1?} {beginning:>12.1?} {running:>12.1?}");
    }
}
