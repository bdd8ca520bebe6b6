//! Memory and interruption.

use std::{cell::Cell, sync::Arc};

use freshet_sql::{
    SqlError, SqlState, Value,
    general::{Named, Relations, Run},
    memory::Pool,
    types::EvalContext,
    work,
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
        "SELECT count(*) FROM (SELECT g FROM generate_series(1, 100000) g EXCEPT ALL
                SELECT g FROM generate_series(1, 100000) g) q",
        "SELECT count(*) FROM (SELECT g FROM generate_series(1, 100000) g INTERSECT ALL
                SELECT g FROM generate_series(1, 100000) g) q",
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

/// A query of WITH for each number, which names the one before twice.
fn doubling(count: usize, how: &str) -> String {
    let each = (1..count).map(|at| {
        let before = at - 1;
        format!("q{at} AS {how} (SELECT a.x FROM q{before} a, q{before} b)")
    });
    let queries: Vec<String> = std::iter::once(format!("q0 AS {how} (SELECT 1 AS x)")).chain(each).collect();
    format!("WITH {} SELECT count(*), sum(x) FROM q{}", queries.join(", "), count - 1)
}

/// Plans a query as a part of a statement.
fn plan_within(
    relations: &Arc<dyn Relations>,
    sql: &str,
    memory: &Arc<Pool>,
    check: &dyn Fn() -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    let query = parse_query(sql).unwrap();
    work::within(check, memory, || plan(relations, &query, &[]).map(drop))
}

/// Does something in a thread that has as much room as a session's.
fn with_a_sessions_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(16 << 20).spawn(test).unwrap().join().unwrap();
}

#[test]
fn what_is_named_twice_is_planned_and_run_once() {
    with_a_sessions_stack(named_twice);
}

fn named_twice() {
    let database = Database::of(NUMBERS);
    let sql = doubling(40, "");
    let memory = Pool::of(4 << 20);
    let asked = Cell::new(0);
    let count = || {
        asked.set(asked.get() + 1);
        Ok(())
    };
    plan_within(&database, &sql, &memory, &count).unwrap();
    assert_eq!(memory.used(), 0);
    assert!(asked.get() < 1000, "{}", asked.get());
    assert_eq!(rows(&database, &sql), ["1|1"]);
    // What is told of it, too.
    let plan = plan(&database, &parse_query(&sql).unwrap(), &[]).unwrap();
    let context = EvalContext::default();
    let run = Run { parameters: &[], context: &context, memory: &memory, interrupted: &|| Ok(()) };
    for analyze in [false, true] {
        assert_eq!(plan.explain(&run, analyze).unwrap().subplans.len(), 39);
    }
    // Again and again within a subquery, whose values are others each time.
    assert_eq!(
        rows(
            &database,
            "SELECT a, (WITH q AS (SELECT n.a + m.a AS x FROM n m), p AS (SELECT one.x FROM q one, q two)
                        SELECT sum(p.x) + count(r.x) FROM p, p r) FROM n ORDER BY a"
        ),
        ["1|324", "2|405", "3|486"]
    );
}

#[test]
fn plans_that_grow_are_refused_and_can_be_ended() {
    with_a_sessions_stack(plans_that_grow);
}

fn plans_that_grow() {
    let mut tables = NUMBERS.to_owned();
    tables.push_str("CREATE VIEW v0 AS SELECT a FROM n;");
    let database = Database::of(&tables);
    let views: Arc<dyn Relations> = Arc::new(Doubling(Arc::clone(&database)));
    let joins = format!("SELECT count(*) FROM n{}", (0..60).map(|at| format!(", n n{at}")).collect::<String>());
    let lists = format!("SELECT count(*) FROM n WHERE {}", vec!["a IN (1, 2, 3)"; 500].join(" OR "));
    let unions = vec!["SELECT a FROM n"; 50].join(" UNION ");
    let whens = format!("SELECT CASE {} END FROM n", "WHEN a = 1 THEN 2 ".repeat(500));
    let subqueries = format!("SELECT {}", vec!["(SELECT max(a) FROM n)"; 60].join(", "));
    let ended = || Err(SqlError::new(SqlState::QUERY_CANCELED, "canceled"));
    for (relations, sql, grows) in [
        (&database, doubling(40, "NOT MATERIALIZED"), true),
        (&views, "SELECT * FROM v40".to_owned(), true),
        (&database, joins, false),
        (&database, lists, false),
        (&database, unions, false),
        (&database, whens, false),
        (&database, subqueries, false),
    ] {
        let shown = &sql[..sql.len().min(40)];
        let error = plan_within(relations, &sql, &Pool::of(1 << 30), &ended).expect_err(shown);
        assert_eq!(error.state, SqlState::QUERY_CANCELED, "{shown}: {error:?}");
        let small = Pool::of(32 << 10);
        let error = plan_within(relations, &sql, &small, &|| Ok(())).expect_err(shown);
        assert_eq!(error.state, SqlState::OUT_OF_MEMORY, "{shown}: {error:?}");
        assert_eq!(small.used(), 0);
        if grows {
            let error = plan_within(relations, &sql, &Pool::of(8 << 20), &|| Ok(())).expect_err(shown);
            assert_eq!(error.state, SqlState::STATEMENT_TOO_COMPLEX, "{shown}: {error:?}");
        } else {
            plan_within(relations, &sql, &Pool::of(128 << 20), &|| Ok(())).expect(shown);
        }
    }
}

/// Views; each names the one before twice.
#[derive(Debug)]
struct Doubling(Arc<dyn Relations>);

impl Relations for Doubling {
    fn named(&self, schema: Option<&str>, name: &str) -> Result<Named, SqlError> {
        let known = self.0.named(schema, name);
        let Some(number) = name.strip_prefix('v').and_then(|number| number.parse::<u32>().ok()) else { return known };
        if number == 0 {
            return known;
        }
        let Named::View { columns, access, .. } = self.0.named(None, "v0")? else { return known };
        let before = number - 1;
        let query = parse_query(&format!("SELECT one.a FROM v{before} one, v{before} two")).unwrap();
        Ok(Named::View { query: Arc::from(query), relations: Arc::new(Self(Arc::clone(&self.0))), columns, access })
    }
}

#[test]
fn chains_of_with_queries_fit_or_are_refused() {
    with_a_sessions_stack(|| {
        let database = Database::of(NUMBERS);
        let chain = |count: usize| {
            let each = (1..count).map(|at| format!("q{at} AS (SELECT x + 1 AS x FROM q{})", at - 1));
            let queries: Vec<String> = std::iter::once("q0 AS (SELECT 1 AS x)".to_owned()).chain(each).collect();
            format!("WITH {} SELECT x FROM q{}", queries.join(", "), count - 1)
        };
        assert_eq!(rows(&database, &chain(250)), ["250"]);
        assert_eq!(rows(&database, &doubling(250, "")), ["1|1"]);
        for sql in [chain(3000), doubling(3000, "")] {
            let error = run_query(&database, &parse_query(&sql).unwrap(), &[]).expect_err(&sql[..sql.len().min(40)]);
            assert_eq!(error.state, SqlState::STATEMENT_TOO_COMPLEX, "{error:?}");
        }
    });
}

#[test]
fn equal_rows_are_counted_on_both_sides() {
    let database = Database::of(
        "CREATE TABLE l (a int, t text);
         INSERT INTO l VALUES (1, 'x'), (1, 'x'), (1, 'x'), (2, NULL), (2, NULL), (NULL, 'z'), (4, 'l');
         CREATE TABLE r (a int, t text);
         INSERT INTO r VALUES (1, 'x'), (2, NULL), (2, NULL), (2, NULL), (NULL, 'z'), (5, 'r');",
    );
    let sorted = |sql: &str| {
        let mut rows = rows(&database, sql);
        rows.sort_unstable();
        rows
    };
    assert_eq!(sorted("SELECT * FROM l EXCEPT ALL SELECT * FROM r"), ["1|x", "1|x", "4|l"]);
    assert_eq!(sorted("SELECT * FROM l INTERSECT ALL SELECT * FROM r"), ["1|x", "2|∅", "2|∅", "∅|z"]);
    assert_eq!(sorted("SELECT * FROM r EXCEPT ALL SELECT * FROM l"), ["2|∅", "5|r"]);
    // Of equal values that look different, the one on the left is shown.
    assert_eq!(sorted("SELECT 1.0 EXCEPT ALL SELECT 2"), ["1.0"]);
    assert_eq!(sorted("(VALUES (1.0), (1.00), (2)) INTERSECT ALL VALUES (1.000)"), ["1.0"]);
    assert_eq!(sorted("SELECT a + 1 AS b FROM l EXCEPT ALL SELECT 2 ORDER BY b LIMIT 2"), ["2", "2"]);
}
