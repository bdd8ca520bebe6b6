//! What statements, sessions and the server may keep in memory, which no role can lift.

use std::{sync::Arc, time::Duration};

use crate::common::{Sql, SqlNode, config};
use freshet_general::QueryEngine;
use freshet_query::session::settings::Bounds;

const MB: usize = 1 << 20;

/// A statement may keep 8 MB, a session 16, all together 24.
fn small() -> SqlNode {
    let bounds = Bounds { memory: 24 * MB, session_memory: 16 * MB, statement_memory: 8 * MB, ..Bounds::default() };
    SqlNode::start_within(config(None), Arc::new(QueryEngine), bounds)
}

/// About six and a half megabytes of rows.
const ROWS: &str = "SELECT repeat('x', 6500) FROM generate_series(1, 1000)";

fn cursors(sql: &Sql, from: usize) -> usize {
    for number in from..from + 6 {
        if let Err(error) = sql.query(&format!("SAVEPOINT s; DECLARE c{number} CURSOR FOR {ROWS}")) {
            assert_eq!(error.code().unwrap().code(), "53200", "{error}");
            sql.lines("ROLLBACK TO s");
            return number - from;
        }
    }
    6
}

#[test]
fn a_role_cannot_lift_what_a_statement_may_keep() {
    let node = small();
    let sql = node.connect();
    assert_eq!(sql.lines("SHOW freshet.query_memory"), ["8MB"]);
    for more in ["900TB", "9MB", "8193kB"] {
        assert_eq!(sql.state(&format!("SET freshet.query_memory = '{more}'")), "22023", "{more}");
        assert_eq!(sql.state(&format!("SET LOCAL freshet.query_memory = '{more}'")), "22023", "{more}");
        assert_eq!(
            sql.state(&format!("SELECT set_config('freshet.query_memory', '{more}', false)")),
            "22023",
            "{more}"
        );
    }
    let sorted = "SELECT count(*) FROM (SELECT g FROM generate_series(1, 100000) g ORDER BY g DESC OFFSET 1) s";
    sql.lines(sorted);
    sql.lines("SET freshet.query_memory = '100kB'");
    assert_eq!(sql.state(sorted), "53200");
    // The session continues.
    sql.lines("RESET freshet.query_memory");
    sql.lines(sorted);
    // Whatever it is that is kept.
    sql.lines("CREATE TABLE t (id int PRIMARY KEY, x text); CREATE TABLE u (id int PRIMARY KEY, x text)");
    sql.lines("INSERT INTO t SELECT g, repeat('x', 1000) || g FROM generate_series(1, 5000) g");
    sql.lines("INSERT INTO t SELECT g, repeat('x', 1000) || g FROM generate_series(5001, 10000) g");
    for statement in [
        "SELECT x FROM t ORDER BY x",
        "SELECT DISTINCT x FROM t",
        "SELECT count(DISTINCT x) FROM t",
        "SELECT x, count(*) FROM t GROUP BY x",
        "INSERT INTO u SELECT id, x FROM t",
        "SELECT array_agg(x) FROM t",
        "SELECT a.x FROM t a JOIN t b ON a.x = b.x",
        "EXPLAIN ANALYZE SELECT x FROM t",
        "SELECT x, sum(id) OVER (ORDER BY x) FROM t",
    ] {
        assert_eq!(sql.state(statement), "53200", "{statement}");
        assert_eq!(sql.lines("SELECT 1"), ["1"]);
    }
    assert_eq!(sql.lines("SELECT count(*) FROM u"), ["0"]);
    assert_eq!(node.server.shared().memory.used(), session_rest(&node), "all was given back");
}

/// What two idle sessions keep: their settings, and not more than two steps of a pool each.
fn session_rest(node: &SqlNode) -> usize {
    let used = node.server.shared().memory.used();
    assert!(used <= 320 << 10, "{used} bytes are kept by sessions that do nothing");
    used
}

#[test]
fn cursors_are_bounded_by_session_and_by_server() {
    let node = small();
    let (one, other) = (node.connect(), node.connect());
    for sql in [&one, &other] {
        sql.lines("BEGIN");
    }
    assert_eq!(cursors(&one, 0), 2, "a session keeps 16 MB");
    assert_eq!(cursors(&other, 0), 1, "the server keeps 24 MB");
    // What is closed can be had again, by anybody.
    one.lines("CLOSE c0");
    assert_eq!(cursors(&other, 10), 1);
    for sql in [&one, &other] {
        sql.lines("ROLLBACK");
        assert_eq!(sql.lines("SELECT 1"), ["1"]);
    }
    session_rest(&node);
    drop((one, other));
    crate::common::eventually("sessions that are gone keep nothing", || node.server.shared().memory.used() == 0);
}

#[test]
fn settings_and_prepared_statements_count() {
    let node = small();
    let sql = node.connect();
    let long = "x".repeat(MB);
    let refused = (0..40).find(|number| match sql.query(&format!("SET custom.s{number} = '{long}'")) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.code().unwrap().code(), "53200", "{error}");
            true
        }
    });
    assert!(refused.is_some_and(|number| (4..=16).contains(&number)), "{refused:?}");
    // The one that was refused is not there, and those before it can be shortened.
    assert_eq!(sql.lines(&format!("SELECT current_setting('custom.s{}', true) IS NULL", refused.unwrap())), ["t"]);
    for number in 0..refused.unwrap() {
        sql.lines(&format!("SET custom.s{number} = ''"));
    }
    sql.lines(&format!("BEGIN; SET LOCAL custom.s1 = '{long}'; ROLLBACK"));
    session_rest(&node);
    let texts = "x".repeat(10_000);
    let prepared = (0..40).find(|number| {
        let prepared = sql.query(&format!("PREPARE p{number} AS SELECT '{texts}'"));
        prepared.is_err_and(|error| error.code().unwrap().code() == "53200")
    });
    assert!(prepared.is_some_and(|number| (5..=30).contains(&number)), "{prepared:?}");
    sql.lines("DEALLOCATE ALL");
    let parameter = "y".repeat(5 * MB);
    let done = sql.runtime.block_on(async {
        let statement = sql.client.prepare("SELECT length($1::text)").await?;
        sql.client.query_one(&statement, &[&parameter]).await
    });
    assert_eq!(done.unwrap().get::<_, i32>(0) as usize, parameter.len());
    drop(sql);
    crate::common::eventually("nothing is kept", || node.server.shared().memory.used() == 0);
}

#[test]
fn time_limits_have_defaults_that_the_server_sets() {
    let bounds = Bounds {
        statement_timeout: Duration::from_millis(50),
        idle_in_transaction_timeout: Duration::from_millis(70),
        idle_session_timeout: Duration::from_secs(3600),
        ..Bounds::default()
    };
    let node = SqlNode::start_within(config(None), Arc::new(QueryEngine), bounds);
    let sql = node.connect();
    assert_eq!(sql.state("SELECT pg_sleep(100)"), "57014");
    assert_eq!(sql.lines("SHOW statement_timeout"), ["50ms"]);
    assert_eq!(sql.lines("SHOW idle_session_timeout"), ["1h"]);
    // A session may want something else, and go back to that.
    sql.lines("SET statement_timeout = 0; SELECT pg_sleep(0.1)");
    sql.lines("RESET statement_timeout");
    assert_eq!(sql.lines("SHOW statement_timeout"), ["50ms"]);
    sql.lines("SET statement_timeout = 0; BEGIN");
    crate::common::eventually("it was ended", || sql.client.is_closed());
}

/// What would take minutes or longer in one call of a function, each with what it needs before.
const LONG: &[&str] = &[
    "SELECT repeat('ab', 3000000) LIKE '%_' || repeat('ab', 100000) || 'c%'",
    "SELECT repeat('ab', 3000000)::bytea LIKE ('%_' || repeat('ab', 100000) || 'c%')::bytea",
    "SELECT count(*) FROM generate_series(1, 2000000) g WHERE g = ANY (array_fill(0, ARRAY[1000000]))",
    "SELECT count(*) FROM generate_series(1, 2000000) g WHERE array_position(array_fill(0, ARRAY[1000000]), g) > 0",
    "SELECT jsonb_agg(g) @> jsonb_agg(-g) FROM generate_series(1, 200000) g",
    "SELECT jsonb_agg('x' || g) @> jsonb_agg('y' || g) FROM generate_series(1, 200000) g",
    "SELECT count(*) FROM regexp_matches(repeat('a', 3000000), 'a*b|a', 'g')",
    "SELECT regexp_count(repeat('a', 3000000), 'a*b|a')",
    "SELECT length(regexp_replace(repeat('a', 3000000), 'a*b|a', '', 'g'))",
    "SELECT cardinality(regexp_split_to_array(repeat('a', 3000000), 'a*b|a'))",
    "SELECT sum(length(s || g)) FROM generate_series(1, 1000000) g, (SELECT repeat('x', 3000000) s OFFSET 0) q",
];

#[test]
fn a_single_call_ends_when_its_time_is_over() {
    let node = SqlNode::start(config(None));
    let sql = node.connect();
    sql.lines("CREATE TABLE t (id int PRIMARY KEY, x text, y text)");
    sql.lines("INSERT INTO t SELECT 1, repeat('ab', 300000), '%_' || repeat('ab', 100000) || 'c%'");
    sql.lines("SET statement_timeout = '200ms'");
    for statement in LONG.iter().chain(&["SELECT id FROM t WHERE x LIKE y"]) {
        assert_eq!(sql.state(statement), "57014", "{statement}");
    }
    sql.lines("RESET statement_timeout");
    // These are linear.
    for (statement, answer) in [
        ("SELECT repeat('ab', 3000000) LIKE '%' || repeat('ab', 100000) || 'c%'", "f"),
        ("SELECT repeat('a', 1000000) LIKE repeat('%a', 50) || '%b'", "f"),
        ("SELECT array_agg(g) && array_agg(-g) FROM generate_series(1, 100000) g", "f"),
        ("SELECT array_agg(g) @> array_agg(g) FROM generate_series(1, 100000) g", "t"),
        ("SELECT array_agg(g) <@ array_agg(g + 1) FROM generate_series(1, 100000) g", "f"),
        (
            "SELECT length(translate(repeat('z', 1000000), string_agg(chr(g), ''), '')) FROM generate_series(256, 50000) g",
            "1000000",
        ),
    ] {
        assert_eq!(sql.lines(statement), [answer], "{statement}");
    }
}

#[test]
fn what_functions_make_counts_while_it_is_there() {
    let node = SqlNode::start(config(None));
    let sql = node.connect();
    sql.lines("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 50)");
    let many = |what: &str| vec![what; 20].join(", ");
    let constant = "repeat('x', 30000000)";
    let computed = "repeat('x', id + 30000000)";
    for statement in [
        format!("SELECT {}", many(constant)),
        format!("SELECT ARRAY[{}]", many(constant)),
        format!("SELECT jsonb_build_array({})", many(constant)),
        format!("SELECT {} FROM t", many(computed)),
        format!("SELECT ARRAY[{}] FROM t", many(computed)),
        format!("SELECT jsonb_build_array({}) FROM t", many(computed)),
        format!("SELECT count(*) FROM t WHERE concat({}) = ''", many(computed)),
        format!("INSERT INTO t VALUES (length(concat({})))", many(constant)),
    ] {
        assert_eq!(sql.state(&statement), "53200", "{}", &statement[..80]);
        assert_eq!(sql.lines("SELECT 1"), ["1"]);
    }
    // Each row by itself needs little enough.
    assert_eq!(
        sql.lines(&format!("SELECT max(length({computed})) FROM t WHERE length({computed}) > 30000049")),
        ["30000050"]
    );
    assert_eq!(sql.lines("SELECT id FROM t WHERE length(repeat('x', id + 30000000)) < 0"), [""; 0]);
    // No value is larger than a client can send.
    for statement in [
        "SELECT jsonb_build_array(repeat('x', 40000000), repeat('x', 40000000))",
        "SELECT ARRAY[repeat('x', 40000000), repeat('x', 40000000)]",
    ] {
        assert_eq!(sql.state(statement), "54000", "{statement}");
    }
    sql.lines("DEALLOCATE ALL");
    session_rest(&node);
}

#[test]
fn long_statements_count_before_they_are_planned() {
    let node = small();
    let sql = node.connect();
    sql.lines("CREATE TABLE t (id int PRIMARY KEY, x text)");
    let rows = |count: usize| (0..count).map(|n| format!("({n},'x')")).collect::<Vec<_>>().join(",");
    let statements = |count: usize| {
        [
            format!("SELECT count(*) FROM (VALUES {}) v", rows(count)),
            format!("INSERT INTO t VALUES {}", rows(count)),
            format!("SELECT 1 WHERE 5 IN ({})", (0..count * 3).map(|n| n.to_string()).collect::<Vec<_>>().join(",")),
        ]
    };
    for statement in statements(10_000) {
        assert_eq!(sql.state(&statement), "53200", "{}", &statement[..60]);
        let prepared = sql.runtime.block_on(sql.client.prepare(&statement));
        assert_eq!(prepared.unwrap_err().code().unwrap().code(), "53200", "{}", &statement[..60]);
        assert_eq!(sql.lines("SELECT 1"), ["1"]);
    }
    for statement in statements(1000) {
        sql.lines(&statement);
    }
    session_rest(&node);
}

#[test]
fn savepoints_count_and_their_names_are_short() {
    let node = small();
    let sql = node.connect();
    sql.lines("BEGIN");
    let many = "SAVEPOINT s;".repeat(2000);
    let refused = (0..40).find(|_| match sql.query(&many) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.code().unwrap().code(), "53200", "{error}");
            true
        }
    });
    assert!(refused.is_some_and(|count| count > 5), "{refused:?}");
    sql.lines("ROLLBACK");
    session_rest(&node);
    let long = "s".repeat(MB);
    sql.lines("BEGIN");
    for _ in 0..40 {
        sql.lines(&format!("SAVEPOINT {long}"));
    }
    session_rest(&node);
    sql.lines(&format!("ROLLBACK TO {}; COMMIT", &long[..63]));
}

#[test]
fn settings_have_the_values_that_they_can_have() {
    let node = small();
    let sql = node.connect();
    for none in ["0", "0kB", "-1"] {
        assert_eq!(sql.state(&format!("SET freshet.query_memory = '{none}'")), "22023", "{none}");
    }
    assert_eq!(sql.lines("SHOW freshet.query_memory"), ["8MB"]);
    sql.lines("SET application_name = E'a\tb\u{e4}~'");
    assert_eq!(sql.lines("SHOW application_name"), ["a?b??~"]);
    sql.lines(&format!("SET application_name = '{}'", "x".repeat(100)));
    assert_eq!(sql.lines("SHOW application_name"), ["x".repeat(63)]);
}

#[test]
fn what_functions_make_of_general_queries_rows_counts_while_it_is_there() {
    let node = SqlNode::start(config(None));
    let sql = node.connect();
    // Each another one: a query computes the same expression once.
    let many = |what: &str| {
        (0..20).map(|n| what.replace("30000000", &format!("{}", 30_000_000 + n))).collect::<Vec<_>>().join(", ")
    };
    let computed = "repeat('x', g + 30000000)";
    for statement in [
        format!("SELECT {} FROM generate_series(1, 3) g", many(computed)),
        format!("SELECT ARRAY[{}] FROM generate_series(1, 3) g", many(computed)),
        format!("SELECT jsonb_build_array({}) FROM generate_series(1, 3) g", many(computed)),
        format!("SELECT {} FROM generate_series(1, 3) g", many("concat('y', repeat('x', 30000000))")),
        "SELECT repeat('x', g + 60000000) x FROM generate_series(1, 50) g ORDER BY x".to_owned(),
    ] {
        let error = sql.query(&statement).map(|_| ()).expect_err(&statement[..60]);
        assert!(matches!(error.code().unwrap().code(), "53200" | "54000"), "{error}: {}", &statement[..60]);
        assert_eq!(sql.lines("SELECT 1"), ["1"]);
    }
    // Many rows whose values are large together, one after another.
    for (statement, answer) in [
        ("SELECT sum(length(repeat('x', 100000 + g % 2))) FROM generate_series(1, 20000) g", "2000010000"),
        ("SELECT max(length(x)) FROM (SELECT repeat('x', 20000 + g) x FROM generate_series(1, 30000) g) q", "50000"),
    ] {
        assert_eq!(sql.lines(statement), [answer], "{statement}");
    }
    // A constant is shared among its rows.
    let shared = sql.lines("SELECT repeat('x', 10000000) FROM generate_series(1, 30) g");
    assert!(shared.len() == 30 && shared.iter().all(|line| line.len() == 10_000_000));
    drop(shared);
    session_rest(&node);
}
