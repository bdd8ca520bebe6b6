//! Memory and interruption.

use std::{cell::Cell, sync::Arc};

use freshet_sql::{
    SqlError, SqlState, Value,
    general::{Relations, Run},
    memory::Pool,
    types::EvalContext,
};

use sqlparser::ast::Query;

use crate::support::{Database, fetch, parse_query, plan, rows, run_query};

const NUMBERS: &str = "CREATE TABLE n (a int, t text); INSERT INTO n VALUES (1, 'x'), (2, 'y'), (3, 'z');";

fn run_within(relations: &Arc<dyn Relations>, sql: &str, memory: usize) -> Result<Vec<Vec<Value>>, SqlError> {
    let query = parse_query(sql).unwrap();
    let plan = plan(relations, &query, &[]).unwrap();
    let context = EvalContext::default();
    fetch(
        plan.as_ref(),
        &Run { parameters: &[], context: &context, memory: &Pool::of(memory), interrupted: &|| Ok(()) },
    )
}

#[test]
fn what_needs_too_much_memory_ends_with_an_error() {
    let database = Database::of(NUMBERS);
    let queries = [
        // A sort, groups, a join's table, values of an aggregate, a shared result, a recursive
        // query, a window.
        "SELECT g FROM generate_series(1, 300000) g ORDER BY g DESC",
        "SELECT g, count(*) FROM generate_series(1, 300000) g GROUP BY g",
        "SELECT count(*) FROM generate_series(1, 300000) a JOIN generate_series(1, 300000) b ON a = b",
        "SELECT length(string_agg(repeat('x', 100), '')) FROM generate_series(1, 100000)",
        "SELECT count(DISTINCT g) FROM generate_series(1, 300000) g",
        "WITH s AS (SELECT g, repeat('x', 50) AS t FROM generate_series(1, 100000) g)
         SELECT count(*) FROM s a, (SELECT max(t) FROM s) b",
        "WITH RECURSIVE r(a, t) AS (SELECT 1, 'x' UNION SELECT a + 1, t || 'x' FROM r WHERE a < 10000) SELECT max(a) FROM r",
        "SELECT sum(g) OVER () FROM generate_series(1, 300000) g",
        "SELECT count(*) FROM generate_series(1, 300000) g WHERE g IN (SELECT h FROM generate_series(1, 300000) h)",
    ];
    for sql in queries {
        let error = run_within(&database, sql, 1 << 20).expect_err(sql);
        assert_eq!(error.state, SqlState::OUT_OF_MEMORY, "{sql}: {error:?}");
        run_within(&database, sql, 512 << 20).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
}

#[test]
fn queries_that_keep_nothing_need_no_memory() {
    let database = Database::of(NUMBERS);
    for sql in [
        "SELECT count(*), sum(g) FROM generate_series(1, 300000) g",
        "SELECT g FROM generate_series(1, 300000) g WHERE g % 100000 = 0",
        "SELECT g FROM generate_series(1, 300000) g ORDER BY g DESC LIMIT 3",
    ] {
        run_within(&database, sql, 1 << 20).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
}

/// Runs a query that is interrupted when it has asked so often whether it is.
fn interrupted_after(relations: &Arc<dyn Relations>, sql: &str, times: u32) -> Result<usize, SqlError> {
    let query = parse_query(sql).unwrap();
    let plan = plan(relations, &query, &[])?;
    let context = EvalContext::default();
    let asked = Cell::new(0);
    let interrupted = || {
        asked.set(asked.get() + 1);
        if asked.get() > times {
            return Err(SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"));
        }
        Ok(())
    };
    let run = Run { parameters: &[], context: &context, memory: &Pool::of(256 << 20), interrupted: &interrupted };
    fetch(plan.as_ref(), &run).map(|rows| rows.len())
}

#[test]
fn endless_queries_are_interrupted() {
    let database = Database::of(NUMBERS);
    let queries = [
        "SELECT count(*) FROM generate_series(1, 9000000000000000000) g",
        "SELECT g FROM generate_series(1, 9000000000000000000) g WHERE g < 0",
        "SELECT count(*) FROM generate_series(1, 3000) a, generate_series(1, 3000) b, generate_series(1, 3000) c,
                generate_series(1, 3000) d",
        // Joins that find nothing for long.
        "SELECT 1 FROM generate_series(1, 100000) a JOIN generate_series(1, 100000) b ON a + b < 0",
        "SELECT 1 FROM generate_series(1, 100000) a LEFT JOIN generate_series(1, 100000) b ON a + b < 0 WHERE b > 0",
        "SELECT 1 FROM generate_series(1, 100000) a WHERE EXISTS (SELECT 1 FROM generate_series(1, 100000) b WHERE a + b < 0)",
        "SELECT count(*) FROM generate_series(1, 20000) a JOIN generate_series(1, 20000) b ON a % 1 = b % 1
                JOIN generate_series(1, 20000) c ON a % 1 = c % 1",
        "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a FROM r) SELECT count(*) FROM r",
        "SELECT (SELECT count(*) FROM generate_series(1, 9000000000000000000 - a) b) FROM n",
        "SELECT x FROM n, LATERAL (SELECT count(*) AS x FROM generate_series(a, 9000000000000000000)) q",
        "SELECT sum(g) OVER (ORDER BY g ROWS BETWEEN 40000 PRECEDING AND CURRENT ROW) FROM
            (SELECT g::float8 AS g FROM generate_series(1, 80000) g) q",
    ];
    for sql in queries {
        let error = interrupted_after(&database, sql, 50).expect_err(sql);
        assert_eq!(error.state, SqlState::QUERY_CANCELED, "{sql}: {error:?}");
    }
}

#[test]
fn an_interruption_is_noticed_before_the_first_row() {
    let database = Database::of(NUMBERS);
    for sql in ["SELECT 1", "SELECT a FROM n", "VALUES (1), (2)"] {
        assert_eq!(interrupted_after(&database, sql, 0).expect_err(sql).state, SqlState::QUERY_CANCELED);
    }
}

#[test]
fn a_query_that_is_dropped_ends() {
    let database = Database::build("CREATE TABLE n (a int); INSERT INTO n VALUES (1), (2), (3);");
    let given = Arc::clone(&database.tables["n"].given);
    let relations: Arc<dyn Relations> = Arc::new(database);
    let query = parse_query("SELECT a, g FROM n, generate_series(a, 9000000000000000000) g").unwrap();
    let plan = plan(&relations, &query, &[]).unwrap();
    let context = EvalContext::default();
    let run = Run { parameters: &[], context: &context, memory: &Pool::of(64 << 20), interrupted: &|| Ok(()) };
    let mut running = plan.run(&run).unwrap();
    let mut rows = Vec::new();
    running.next(&mut rows).unwrap();
    assert!(!rows.is_empty());
    drop(running);
    assert_eq!(*given.lock().unwrap(), 3);
    // Another run of the same plan begins again.
    let mut running = plan.run(&run).unwrap();
    let mut again = Vec::new();
    running.next(&mut again).unwrap();
    assert_eq!(rows, again);
}

#[test]
fn a_plan_runs_many_times_and_in_many_threads() {
    let database = Database::of(NUMBERS);
    let query = parse_query(
        "WITH q AS (SELECT a, (SELECT count(*) FROM n m WHERE m.a <= n.a) AS c FROM n)
         SELECT x.a, y.c FROM q x JOIN q y ON x.a = y.a ORDER BY 1",
    )
    .unwrap();
    let plan = plan(&database, &query, &[]).unwrap();
    let expected = vec![
        vec![Value::Int4(1), Value::Int8(1)],
        vec![Value::Int4(2), Value::Int8(2)],
        vec![Value::Int4(3), Value::Int8(3)],
    ];
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let context = EvalContext::default();
                let run =
                    Run { parameters: &[], context: &context, memory: &Pool::of(64 << 20), interrupted: &|| Ok(()) };
                for _ in 0..20 {
                    assert_eq!(fetch(plan.as_ref(), &run).unwrap(), expected);
                }
            });
        }
    });
    assert_eq!(rows(&database, "SELECT count(*) FROM n"), ["3"]);
}

/// A query that the parser needs more room for than a test has.
fn parse_deep(sql: String) -> Box<Query> {
    let parser = std::thread::Builder::new().stack_size(256 << 20).spawn(move || parse_query(&sql).unwrap());
    parser.unwrap().join().unwrap()
}

#[test]
fn deep_nesting_fits_or_is_refused() {
    let database = Database::of(NUMBERS);
    let answer = |query: &Query| run_query(&database, query, &[]).map(|(_, rows)| rows);
    // As deep as the parser goes.
    let mut sql = "SELECT a FROM n".to_owned();
    for _ in 0..20 {
        sql = format!("SELECT a FROM ({sql}) q WHERE a IN (SELECT 1)");
    }
    assert_eq!(answer(&parse_deep(sql)).unwrap(), [[Value::Int4(1)]]);
    let sum = vec!["a"; 100].join(" + ");
    assert_eq!(answer(&parse_deep(format!("SELECT {sum} FROM n WHERE a = 1"))).unwrap(), [[Value::Int4(100)]]);
    let sum = parse_deep(format!("SELECT {} FROM n", vec!["a"; 3000].join(" + ")));
    assert_eq!(answer(&sum).expect_err("a long sum").state, SqlState::STATEMENT_TOO_COMPLEX);
    // Conditions may be many.
    for (word, operator, expected) in [("OR", "=", 3), ("AND", "<>", 0)] {
        let conditions: Vec<String> = (0..3000).map(|at| format!("a {operator} {at}")).collect();
        let sql = format!("SELECT count(*) FROM n WHERE {}", conditions.join(&format!(" {word} ")));
        assert_eq!(answer(&parse_deep(sql)).unwrap(), [[Value::Int8(expected)]], "{word}");
    }
}
