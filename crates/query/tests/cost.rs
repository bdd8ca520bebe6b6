//! What one client may cost, whatever its privileges: plans that grow, input and output that are
//! large, texts that are long.

use std::sync::Arc;

use crate::common::{
    SqlNode, config, eventually,
    wire::{Part, Wire},
};
use freshet_general::QueryEngine;
use freshet_query::session::settings::Bounds;

const MB: usize = 1 << 20;

/// A statement may keep 16 MB, a session 24.
fn small() -> SqlNode {
    let bounds = Bounds { memory: 64 * MB, session_memory: 24 * MB, statement_memory: 16 * MB, ..Bounds::default() };
    SqlNode::start_within(config(None), Arc::new(QueryEngine), bounds)
}

/// Queries of WITH; each names the one before twice.
fn doubling(count: usize, how: &str) -> String {
    let each = (1..count).map(|at| format!(", q{at} AS {how} (SELECT a.x FROM q{0} a, q{0} b)", at - 1));
    format!("WITH q0 AS {how} (SELECT 1 AS x){} SELECT count(*) FROM q{}", each.collect::<String>(), count - 1)
}

#[test]
fn plans_do_not_grow_beyond_the_memory_of_their_statement() {
    let node = small();
    let sql = node.connect();
    // One plan, however often it is named.
    assert_eq!(sql.lines(&doubling(40, "")), ["1"]);
    assert!(sql.lines(&format!("EXPLAIN {}", doubling(40, ""))).len() < 500);
    sql.lines("CREATE TABLE t (x int); CREATE VIEW v0 AS SELECT x FROM t");
    for at in 1..9 {
        sql.lines(&format!("CREATE VIEW v{at} AS SELECT a.x FROM v{0} a, v{0} b", at - 1));
    }
    sql.lines("CREATE ROLE low LOGIN; GRANT SELECT ON v0, v3, v8 TO low");
    sql.lines("CREATE TABLE x (a int); INSERT INTO x VALUES (1), (2); GRANT SELECT ON x TO low");
    let low = node.connect_as("low");
    for (statement, state) in [
        (doubling(40, "NOT MATERIALIZED"), "54001"),
        ("SELECT count(*) FROM v8 a, v8 b".to_owned(), "54001"),
        (format!("SELECT count(*) FROM v0{}", (0..600).map(|at| format!(", v0 j{at}")).collect::<String>()), "54001"),
    ] {
        for sql in [&sql, &low] {
            assert_eq!(sql.state(&statement), state, "{}", &statement[..40]);
            assert_eq!(sql.lines("SELECT 1"), ["1"]);
        }
        // Prepared, too.
        let prepared = low.runtime.block_on(low.client.prepare(&statement));
        assert_eq!(prepared.unwrap_err().code().unwrap().code(), state, "{}", &statement[..40]);
    }
    // Operands that stand several times in what is made of them: 2 to the power of 30 times.
    for form in [
        "(() BETWEEN 0 AND 2)::int",
        "CASE () WHEN 1 THEN 2 WHEN 3 THEN 4 ELSE 5 END",
        "() IN (a, 1, 2)",
        "(() IS DISTINCT FROM 2)::int",
    ] {
        let nested = (0..30).fold("a".to_owned(), |inner, _| form.replace("()", &format!("({inner})")));
        for from in ["x", "generate_series(1, 3) a"] {
            let state = low.outcome(&format!("SELECT {nested} FROM {from}"));
            assert!(["00000", "53200", "54001", "42883"].contains(&&*state), "{form} over {from}: {state}");
        }
    }
    for form in ["coalesce((), 1)", "nullif((), 1)", "greatest((), 1, a)"] {
        let nested = (0..30).fold("a".to_owned(), |inner, _| form.replace("()", &format!("({inner})")));
        for from in ["x", "generate_series(1, 3) a"] {
            let state = low.outcome(&format!("SELECT {nested} FROM {from}"));
            assert!(["00000", "53200", "54001"].contains(&&*state), "{form} over {from}: {state}");
        }
    }
    assert_eq!(low.lines("SELECT count(*) FROM v3"), ["0"]);
}

#[test]
fn documents_and_lists_are_counted_while_they_are_read() {
    let node = small();
    let sql = node.connect();
    let list = format!("('[' || repeat('1,', {}) || '1]')", 3 * MB);
    for statement in [
        // A tree of as many values.
        format!("SELECT jsonb_pretty({list}::jsonb)"),
        format!("SELECT {list}::jsonb || '[]'"),
        // As many values.
        format!("SELECT cardinality(string_to_array(repeat('1,', {}), ','))", 2 * MB),
        format!("SELECT cardinality(translate({list}, '[]', '{{}}')::int[])"),
        format!("SELECT to_char(now(), repeat('- ', {}))", 2 * MB),
    ] {
        assert_eq!(sql.state(&statement), "53200", "{statement}");
        assert_eq!(sql.lines("SELECT 1"), ["1"]);
    }
    // These need no more than they make.
    let half = "('[' || repeat('1,', 500000) || '1]')";
    for (statement, answer) in [
        (format!("SELECT jsonb_array_length({half}::jsonb)"), "500001"),
        (format!("SELECT sum(x::int) FROM jsonb_array_elements_text({half}::jsonb) x"), "500001"),
        ("SELECT count(x) FROM string_to_table(repeat('1,', 1000000), ',') x".to_owned(), "1000001"),
        ("SELECT string_agg(x, '') FROM string_to_table('a,b,,c,', ',', 'b') x".to_owned(), "ac"),
        (
            "SELECT string_agg(k || v, ',') FROM jsonb_each_text('{\"b\":1,\"a\":{\"c\":2}}') e(k, v)".to_owned(),
            "a{\"c\": 2},b1",
        ),
    ] {
        assert_eq!(sql.lines(&statement), [answer], "{statement}");
    }
}

#[test]
fn a_long_text_is_read_as_it_is_written() {
    let node = SqlNode::start(config(None));
    let sql = node.connect();
    let long = "a''b\\".repeat(MB);
    assert_eq!(sql.lines(&format!("SELECT length('{long}'), length('x'''\n'y')")).len(), 1);
    assert_eq!(sql.lines(&format!("SELECT length('{long}')")), [(4 * MB).to_string()]);
    assert_eq!(sql.lines(&format!("SELECT length('{long}'\n '{long}')")), [(8 * MB).to_string()]);
    assert_eq!(
        sql.lines(&format!("SELECT length(N'{long}') + length(E'{}')", "a\\n".repeat(MB))),
        [(6 * MB).to_string()]
    );
    assert_eq!(sql.state(&format!("SELECT '{long}")), "42601");
    let small = small();
    assert_eq!(small.connect().state(&format!("SELECT length('{}')", "x".repeat(20 * MB))), "53200");
}

#[test]
fn a_client_that_does_not_read_holds_no_statement() {
    let node = SqlNode::start(config(None));
    let sql = node.connect();
    let mut deaf = Wire::tcp(node.address());
    deaf.query("SET statement_timeout = '300ms'; SET application_name = 'deaf'");
    deaf.ask("SELECT repeat('x', 1000000) FROM generate_series(1, 100)", "");
    // The statement has ended, while its client is still to read what it said.
    eventually("the statement ends", || {
        let last = "SELECT state FROM pg_stat_activity WHERE application_name = 'deaf' AND query ~ 'repeat'";
        sql.lines(last) == ["idle"]
    });
    let answer = deaf.answer();
    assert_eq!((answer.state(), answer.status), (Some("57014"), 'I'));
    let whole = |part: &Part| match part {
        Part::Row(row) => row[0].as_ref().is_some_and(|text| text.len() == 1_000_000),
        _ => true,
    };
    assert!(answer.parts.iter().all(whole), "every row is whole");
    assert_eq!(deaf.query("SELECT 1").parts.len(), 3);
    // Who reads gets everything.
    let answer = deaf.query("SET statement_timeout = 0; SELECT repeat('x', 1000000) FROM generate_series(1, 20)");
    assert_eq!(answer.state(), None);
    assert_eq!(answer.parts.iter().filter(|part| matches!(part, Part::Row(_))).count(), 20);
}

#[test]
fn what_is_on_its_way_to_a_client_is_counted() {
    let node = small();
    let sql = node.connect();
    let used = || node.server.shared().memory.used();
    let before = used();
    let mut deaf = Wire::tcp(node.address());
    deaf.query("SET application_name = 'deaf'");
    deaf.ask("SELECT repeat('x', 6000000) FROM generate_series(1, 100)", "");
    // The value, the row, and what is to be sent of it.
    eventually("it waits for its client", || used() > before + 17_000_000);
    // A session may not keep twice as much.
    let much = sql.state("SELECT repeat('x', 13000000)");
    assert_eq!(much, "53200");
    let pid = &sql.lines("SELECT pid FROM pg_stat_activity WHERE application_name = 'deaf'")[0];
    assert_eq!(sql.lines(&format!("SELECT pg_terminate_backend({pid})")), ["t"]);
    eventually("it has gone", || {
        sql.lines("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'deaf'") == ["0"]
    });
    drop(sql);
    eventually("nothing is kept", || used() == 0);
}
