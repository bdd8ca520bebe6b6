//! EXPLAIN: its options, its formats, what it measures.

use crate::common::{Sql, SqlNode};
use tokio_postgres::types::Type;

const TABLES: &str = "CREATE TABLE t (id int PRIMARY KEY, a int, b text);
    CREATE TABLE u (id int PRIMARY KEY, t int);
    INSERT INTO t SELECT g, g % 3, 'b' || g FROM generate_series(1, 10) g";

fn plan(sql: &Sql, statement: &str) -> String {
    let mut lines = sql.lines(statement);
    assert_eq!(lines.len(), 1, "one row: {lines:?}");
    lines.remove(0)
}

fn message_of(sql: &Sql, statement: &str) -> String {
    let error = sql.query(statement).expect_err(statement);
    let error = error.as_db_error().expect("the server's");
    format!("{} {}", error.code().code(), error.message())
}

#[test]
fn options_are_understood_or_refused_as_in_postgresql() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    for (options, expected) in [
        ("foo", "42601 unrecognized EXPLAIN option \"foo\""),
        ("analyze, \"foo bar\" 1", "42601 unrecognized EXPLAIN option \"foo bar\""),
        ("\"Costs\" off", "42601 unrecognized EXPLAIN option \"Costs\""),
        ("analyze maybe", "42601 analyze requires a Boolean value"),
        ("ANALYZE 2", "42601 analyze requires a Boolean value"),
        ("costs -1", "42601 costs requires a Boolean value"),
        ("verbose 1.0", "42601 verbose requires a Boolean value"),
        ("format", "42601 format requires a parameter"),
        ("format foo", "22023 unrecognized value for EXPLAIN option \"format\": \"foo\""),
        ("format 'Json'", "22023 unrecognized value for EXPLAIN option \"format\": \"Json\""),
        ("format 1", "22023 unrecognized value for EXPLAIN option \"format\": \"1\""),
        ("timing", "22023 EXPLAIN option TIMING requires ANALYZE"),
        ("timing, analyze off", "22023 EXPLAIN option TIMING requires ANALYZE"),
        ("wal", "22023 EXPLAIN option WAL requires ANALYZE"),
        ("timing, wal", "22023 EXPLAIN option WAL requires ANALYZE"),
    ] {
        assert_eq!(message_of(&sql, &format!("EXPLAIN ({options}) SELECT 1")), expected, "{options}");
    }
    for options in [
        "costs off",
        "BUFFERS",
        "settings on",
        "timing off, wal 0",
        "verbose 'TrUe', costs 'off', \"buffers\" true",
        "format json, format text",
        "summary off, format TEXT",
        "analyze off",
    ] {
        assert_eq!(sql.lines(&format!("EXPLAIN ({options}) SELECT 1")), ["Result"], "{options}");
    }
    assert_eq!(
        sql.lines("EXPLAIN (analyze, timing off, summary off, wal, buffers) SELECT 1"),
        ["Result  (rows=1 loops=1)"]
    );
    let lines = sql.lines("EXPLAIN (summary) SELECT 1");
    assert!(lines.len() == 2 && lines[1].starts_with("Planning Time: "), "{lines:?}");
    let lines = sql.lines("EXPLAIN ANALYZE VERBOSE SELECT 1");
    assert!(lines.len() == 3 && lines[2].starts_with("Execution Time: "), "{lines:?}");
}

#[test]
fn only_what_has_a_plan_is_explained() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.lines(TABLES);
    for statement in ["CREATE TABLE x (a int)", "BEGIN", "DROP TABLE t", "TRUNCATE t", "FORMAT JSON SELECT 1"] {
        for before in ["EXPLAIN", "EXPLAIN ANALYZE", "EXPLAIN (ANALYZE, FORMAT JSON)"] {
            assert_eq!(sql.state(&format!("{before} {statement}")), "42601", "{before} {statement}");
        }
    }
    assert_eq!(sql.lines("EXPLAIN CREATE TABLE x AS SELECT 1"), ["Result"]);
    assert_eq!(sql.state("SELECT * FROM x"), "42P01");
    // What was prepared, with its parameters.
    sql.lines("PREPARE p (int) AS SELECT b FROM t WHERE id = $1");
    assert_eq!(sql.lines("EXPLAIN EXECUTE p (3)"), ["Index Get using t_pkey on t", "  Index Cond: id = …"]);
    let ran = sql.lines("EXPLAIN (ANALYZE, TIMING off, SUMMARY off) EXECUTE p (3)");
    assert_eq!(ran, ["Index Get using t_pkey on t  (rows=1 loops=1)", "  Index Cond: id = …"]);
    assert_eq!(sql.state("EXPLAIN EXECUTE p"), "42601");
    assert_eq!(sql.state("EXPLAIN EXECUTE q"), "26000");
}

#[test]
fn structured_formats_are_one_row_with_a_tree() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.lines(TABLES);
    let json = plan(&sql, "EXPLAIN (FORMAT JSON) SELECT b FROM t WHERE id = 1 AND b = 'x' LIMIT 1");
    let expected = r#"[
  {
    "Plan": {
      "Node Type": "Limit",
      "Plans": [
        {
          "Node Type": "Index Get",
          "Parent Relationship": "Outer",
          "Index Name": "t_pkey",
          "Index Cond": "id = …",
          "Scan Direction": "Forward",
          "Relation Name": "t",
          "Alias": "t",
          "Filter": "…"
        }
      ]
    }
  }
]"#;
    assert_eq!(json, expected);
    let yaml = plan(&sql, "EXPLAIN (FORMAT yaml) INSERT INTO u VALUES (1, 1), (2, 2) ON CONFLICT DO NOTHING");
    let expected = r#"- Plan:
    Node Type: "ModifyTable"
    Operation: "Insert"
    Relation Name: "u"
    Conflict Resolution: "NOTHING"
    Plans:
      - Node Type: "Values"
        Parent Relationship: "Outer""#;
    assert_eq!(yaml, expected);
    let xml = plan(&sql, "EXPLAIN (FORMAT xml) DELETE FROM u x WHERE id = 1");
    assert!(xml.starts_with("<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n  <Query>\n    <Plan>\n"));
    assert!(xml.contains("<Operation>Delete</Operation>") && xml.contains("<Alias>x</Alias>"), "{xml}");
    // A general query's operators are steps, too.
    let general = plan(&sql, "EXPLAIN (FORMAT JSON) SELECT t.b FROM t LEFT JOIN u ON u.t = t.a");
    assert!(general.contains("\"Node Type\": \"HashJoinExec\""), "{general}");
    assert!(general.contains("\"Description\": \"t [a, b]\""), "{general}");
    let within = plan(&sql, "EXPLAIN (FORMAT JSON) UPDATE t SET b = '' FROM u WHERE u.t = t.a");
    let place = |what: &str| within.find(what).unwrap_or_else(|| panic!("{what} in {within}"));
    assert!(place("ModifyTable") < place("General query") && place("General query") < place("HashJoinExec"));
    // The server itself can read it.
    sql.lines(&format!("SELECT '{}'::jsonb", general.replace('\'', "''")));
    for (format, ty) in [("JSON", Type::JSON), ("YAML", Type::TEXT), ("TEXT", Type::TEXT), ("nonsense", Type::TEXT)] {
        let statement = format!("EXPLAIN (FORMAT {format}) SELECT 1");
        let prepared = sql.runtime.block_on(sql.client.prepare(&statement)).unwrap();
        let columns: Vec<_> = prepared.columns().iter().map(|column| (column.name(), column.type_())).collect();
        assert_eq!(columns, [("QUERY PLAN", &ty)], "{format}");
    }
}

#[test]
fn a_run_is_measured_and_has_its_effect() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.lines(TABLES);
    let options = "ANALYZE, TIMING off, SUMMARY off, FORMAT JSON";
    let first_rows = |statement: &str| {
        let json = plan(&sql, &format!("EXPLAIN ({options}) {statement}"));
        let (_, rest) = json.split_once("\"Actual Rows\": ").unwrap_or_else(|| panic!("rows in {json}"));
        assert!(!json.contains(" Time\""), "{json}");
        rest.split([',', '\n']).next().unwrap().to_owned()
    };
    assert_eq!(first_rows("SELECT id FROM t WHERE a = 1"), "4");
    assert_eq!(first_rows("SELECT id, row_number() OVER () FROM t WHERE a = 1"), "4");
    assert_eq!(first_rows("INSERT INTO u VALUES (1, 1), (2, 2)"), "2");
    assert_eq!(first_rows("UPDATE t SET b = '' FROM u WHERE u.t = t.id"), "2");
    assert_eq!(first_rows("DELETE FROM u"), "2");
    assert_eq!(sql.lines("SELECT count(*) FROM u"), ["0"]);
    assert_eq!(sql.lines("SELECT count(*) FROM t WHERE b = ''"), ["2"]);
    let json = plan(&sql, "EXPLAIN (ANALYZE, FORMAT JSON) SELECT id, row_number() OVER () FROM t");
    for key in ["Own Time", "Planning Time", "Execution Time"] {
        assert!(json.contains(&format!("\"{key}\": ")), "{key} in {json}");
    }
    sql.lines("BEGIN READ ONLY");
    assert_eq!(sql.state("EXPLAIN ANALYZE DELETE FROM t"), "25006");
    sql.lines("ROLLBACK");
}

#[test]
fn each_step_shows_what_it_took() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.lines(TABLES);
    sql.lines("INSERT INTO u SELECT g, g % 4 FROM generate_series(1, 20) g; CREATE INDEX ON u (t)");
    let run = |statement: &str| sql.lines(&format!("EXPLAIN (ANALYZE, TIMING off, SUMMARY off) {statement}"));
    let titles = |statement: &str| {
        let all = run(statement).into_iter().filter(|line| line.contains("rows="));
        let title = |line: String| line.trim_start_matches([' ', '-', '>']).replace(" in the order of t_pkey", "");
        all.map(title).collect::<Vec<_>>()
    };
    assert_eq!(
        titles("SELECT t.id, u.id FROM t JOIN u ON u.t = t.id WHERE t.id < 4"),
        [
            "Nested Loop  (rows=15 loops=1)",
            "Index Scan using t_pkey on t  (rows=3 loops=1)",
            "Index Scan using u_t_idx on u  (rows=15 loops=3)",
        ]
    );
    assert_eq!(
        titles("SELECT DISTINCT a FROM t WHERE id > 1 ORDER BY a LIMIT 2"),
        [
            "Limit  (rows=2 loops=1)",
            "Top-N Sort  (rows=2 loops=1)",
            "Unique (by hash)  (rows=3 loops=1)",
            "Index Scan using t_pkey on t  (rows=9 loops=1)",
        ]
    );
    assert_eq!(
        titles("SELECT a, count(*) FROM t WHERE b <> 'b1' GROUP BY a HAVING count(*) > 2 ORDER BY 2 DESC"),
        ["Sort  (rows=3 loops=1)", "Hash Aggregate  (rows=3 loops=1)", "Scan on t  (rows=9 loops=1)"]
    );
    assert_eq!(
        titles("SELECT id FROM t ORDER BY a, id LIMIT 4 FOR UPDATE"),
        [
            "Limit  (rows=4 loops=1)",
            "Lock Rows  (rows=4 loops=1)",
            "Sort  (rows=4 loops=1)",
            "Scan on t  (rows=10 loops=1)"
        ]
    );
    assert_eq!(
        titles("UPDATE t SET b = 'n' WHERE id IN (1, 2, 30)"),
        ["Update on t  (rows=2 loops=1)", "Index Gets using t_pkey on t  (rows=2 loops=1)"]
    );
    assert_eq!(
        titles("DELETE FROM t WHERE id = (SELECT max(id) FROM t)"),
        [
            "Delete on t  (rows=1 loops=1)",
            "Index Get using t_pkey on t  (rows=1 loops=1)",
            "Aggregate  (rows=1 loops=1)",
            "Scan on t  (rows=10 loops=1)",
        ]
    );
    assert_eq!(
        titles("INSERT INTO u VALUES (101, 1), (102, 2)"),
        ["Insert on u  (rows=2 loops=1)", "Values (2 rows)  (rows=2 loops=1)"]
    );
    assert_eq!(
        titles("INSERT INTO u SELECT id + 200, a FROM t WHERE id < 3"),
        ["Insert on u  (rows=2 loops=1)", "Index Scan using t_pkey on t  (rows=2 loops=1)"]
    );
    assert_eq!(titles("SELECT id FROM t WHERE id = 1 AND false")[0], "Index Get using t_pkey on t  (rows=0 loops=0)");
    // With times, each has its own.
    let timed = sql.lines("EXPLAIN ANALYZE SELECT t.id FROM t JOIN u ON u.t = t.id WHERE t.id < 4 ORDER BY u.id");
    assert_eq!(timed.iter().filter(|line| line.contains(" time=")).count(), 4, "{timed:?}");
    let json = plan(&sql, "EXPLAIN (ANALYZE, FORMAT JSON) SELECT b FROM t WHERE id = 1");
    for key in ["Actual Rows", "Actual Loops", "Own Time"] {
        assert!(json.contains(&format!("\"{key}\": ")), "{key} in {json}");
    }
}

#[test]
fn a_table_that_is_made_of_a_query_is_made() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.lines(TABLES);
    let analyze = "EXPLAIN (ANALYZE, TIMING off, SUMMARY off)";
    assert_eq!(
        sql.lines(&format!("{analyze} CREATE TABLE x AS SELECT id, b FROM t WHERE id < 4")),
        ["Index Scan using t_pkey on t  (rows=3 loops=1)", "  Index Cond: id up to …", "  Filter"]
    );
    assert_eq!(sql.lines("SELECT b FROM x ORDER BY id"), ["b1", "b2", "b3"]);
    let lines = sql.lines(&format!("{analyze} CREATE TABLE y AS SELECT a, row_number() OVER () AS n FROM t"));
    assert!(lines[0].ends_with("(rows=10 loops=1)"), "{lines:?}");
    assert_eq!(sql.lines("SELECT max(n) FROM y"), ["10"]);
    assert_eq!(sql.state(&format!("{analyze} CREATE TABLE x AS SELECT 1")), "42P07");
    let again = sql.lines(&format!("{analyze} CREATE TABLE IF NOT EXISTS x AS SELECT 1"));
    assert_eq!(again, ["Result"]);
    sql.lines("BEGIN");
    sql.lines(&format!("{analyze} CREATE TABLE gone AS SELECT 1"));
    sql.lines("ROLLBACK; BEGIN READ ONLY");
    assert_eq!(sql.state(&format!("{analyze} CREATE TABLE gone AS SELECT 1")), "25006");
    sql.lines("ROLLBACK");
    assert_eq!(sql.state("SELECT * FROM gone"), "42P01");
}
