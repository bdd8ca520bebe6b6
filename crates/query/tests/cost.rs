//! What one client may cost, whatever its privileges: plans that grow, input and output that are
//! large, texts that are long.

use std::sync::Arc;

use crate::{
    common::{
        SqlNode, config, eventually,
        wire::{Part, Wire},
    },
    session::wire as raw,
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
    deaf.ask("SELECT repeat('x', 4000000) FROM generate_series(1, 100)", "");
    // The value, as it is made and as it comes, the row, and what is to be sent of it.
    eventually("it waits for its client", || used() > before + 15_000_000);
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

/// What a stranger with one role found: each grew without a bound, or ended the node.
#[test]
fn short_statements_do_not_grow_into_large_ones() {
    let node = small();
    let sql = node.connect();
    sql.lines("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x'), (2, 'y')");
    let list = |count: usize, one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>().join(", ");
    let ids = |count: usize| list(count, &|_| "id".to_owned());
    // Each of these came to 2 to the power of its levels.
    let joins: String = (1..60).map(|at| format!(" FULL JOIN t t{at} USING (id)")).collect();
    assert_eq!(sql.lines(&format!("SELECT count(*), min(id) FROM t{joins}")), ["2 1"]);
    let levels: String = (1..12)
        .map(|at| {
            let before = at - 1;
            format!(", q{at} AS (SELECT x || x || x || x || x || x || x || x AS x FROM q{before} WHERE x IS NOT NULL)")
        })
        .collect();
    let with = "WITH q0 AS (SELECT v AS x FROM t WHERE id < 0)";
    assert_eq!(sql.lines(&format!("{with}{levels} SELECT count(x) FROM q11 WHERE x IS NOT NULL")), ["0"]);
    let nested = (0..20).fold("id".to_owned(), |inner, at| format!("coalesce(abs({inner} + 1), {at})"));
    assert_eq!(sql.lines(&format!("SELECT {nested} FROM t JOIN t u USING (id) ORDER BY 1 LIMIT 1")), ["21"]);
    let many = list(800, &|at| format!("nullif(id, {})", at % 2 + 1));
    assert_eq!(sql.lines(&format!("SELECT coalesce({many}, id) FROM t JOIN t u USING (id) ORDER BY 1")), ["1", "2"]);
    // Rows are compared by recursion where their order counts.
    for from in ["t", "t JOIN t u USING (id)"] {
        let compare = |count: usize, operator: &str| {
            format!("SELECT count(*) FROM {from} WHERE ({0}) {operator} ({0})", ids(count))
        };
        assert_eq!(sql.lines(&compare(256, "<=")), ["2"]);
        assert_eq!(sql.state(&compare(257, "<=")), "54011");
        assert_eq!(sql.lines(&compare(1664, "=")), ["2"]);
        assert_eq!(sql.state(&compare(1665, "=")), "54011");
    }
    let sets = list(2000, &|at| format!("(id % {})", at + 2));
    assert_eq!(sql.state(&format!("SELECT count(*) FROM t GROUP BY GROUPING SETS ({sets})")), "53200");
    let keys =
        |count: usize| format!("SELECT sum(id) OVER (PARTITION BY {}) FROM t", list(count, &|at| format!("id + {at}")));
    assert_eq!((sql.lines(&keys(64)).len(), sql.state(&keys(65)).as_str()), (2, "54001"));
    for aggregate in ["array_agg(g)", "string_agg(g::text, ',')", "json_agg(g)"] {
        for frame in ["", "ROWS BETWEEN 5000 PRECEDING AND CURRENT ROW"] {
            let over = |rows: usize| {
                let window =
                    format!("SELECT {aggregate} OVER (ORDER BY g {frame}) a FROM generate_series(1, {rows}) g");
                format!("SELECT count(a) FROM ({window}) q")
            };
            assert_eq!(sql.lines(&over(100)), ["100"]);
            assert_eq!(sql.state(&over(30_000)), "53200", "{aggregate} {frame}");
        }
    }
    assert_eq!(sql.lines("SELECT 1"), ["1"]);
}

#[test]
fn regular_expressions_cost_no_more_than_they_may() {
    let node = small();
    let sql = node.connect();
    for pattern in [
        "repeat('x', 5000000)",
        "repeat('[[:alpha:]]|', 10000)",
        "repeat('[[:alpha:]äöü]', 5000)",
        "repeat('(?=x)', 40000)",
        "repeat('x', 30000) || '(x)\\1'",
        "'[' || repeat('xyz', 2000000) || ']'",
    ] {
        assert_eq!(sql.state(&format!("SELECT 'a' ~* ({pattern})")), "2201B", "{pattern}");
    }
    assert_eq!(sql.lines("SELECT 'word7' ~ ('^(' || repeat('word|', 5000) || 'word)\\d$')"), ["t"]);
}

#[test]
fn a_statement_changes_no_more_settings_than_it_may() {
    let node = small();
    let sql = node.connect();
    let set = |name: &str, count: usize| {
        sql.outcome(&format!("SELECT count(set_config({name}, g::text, false)) FROM generate_series(1, {count}) g"))
    };
    assert_eq!((set("'my.x' || g", 1000), set("'my.y' || g", 1001)), ("00000".to_owned(), "54000".to_owned()));
    assert_eq!(set("'my.one'", 5000), "00000");
    assert_eq!(sql.lines("SELECT current_setting('my.one'), current_setting('my.x7')"), ["5000 7"]);
}

#[test]
fn half_a_message_is_counted() {
    let node = small();
    let used = || node.server.shared().memory.used();
    let before = used();
    let connect = || {
        let mut wire = raw::Wire::connect(node.address());
        wire.send(&raw::startup(&[("user", "freshet")]));
        wire.receive_until('Z');
        wire
    };
    let (mut half, mut whole) = (connect(), connect());
    let message = |bytes: usize| raw::query(&format!("SELECT length('{}')", "x".repeat(bytes)));
    let text = message(4 * MB);
    half.send(&text[..3 * MB]);
    eventually("what has come is counted", || used() >= before + 4 * MB);
    half.send(&text[3 * MB..]);
    assert_eq!(half.receive_until('Z')[0].0, 'T');
    eventually("nothing is kept", || used() < before + MB);
    // More than a session may keep: it is passed over.
    whole.send(&message(20 * MB));
    let answers = whole.receive_until('Z');
    assert_eq!(raw::field(&answers[0].1, 'C').as_deref(), Some("53200"));
    whole.send(&raw::query("SELECT 1"));
    assert_eq!(whole.receive_until('Z')[0].0, 'T');
}
