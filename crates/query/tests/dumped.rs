//! What the catalog shows of a definition makes the same again.

use crate::common::{Sql, SqlNode, config};

/// Statements that the differential test compares with PostgreSQL.
const STATEMENTS: &str = include_str!("differential/definitions.sql");

/// The defaults, the constraints and the indexes of a table, as they are shown.
fn shown(sql: &Sql, table: &str) -> Vec<String> {
    let queries = [
        "SELECT attname, format_type(atttypid, atttypmod), pg_get_expr(adbin, adrelid) FROM pg_attribute
            LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
            WHERE attrelid = 'TABLE'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        "SELECT conname, pg_get_constraintdef(oid), pg_get_constraintdef(oid, true) FROM pg_constraint
            WHERE conrelid = 'TABLE'::regclass AND contype = 'c' ORDER BY conname",
        "SELECT replace(pg_get_indexdef(indexrelid), 'again.', ''), pg_get_expr(indpred, indrelid) FROM pg_index
            WHERE indrelid = 'TABLE'::regclass AND NOT indisprimary ORDER BY indexrelid",
    ];
    queries.iter().flat_map(|query| sql.lines(&query.replace("TABLE", table))).collect()
}

#[test]
fn what_is_shown_makes_the_same_again() {
    let node = SqlNode::start(config(None));
    let sql = node.connect();
    sql.lines("CREATE SCHEMA first; SET search_path = first");
    for statement in STATEMENTS.split(";\n").filter(|it| !it.starts_with("select") && !it.starts_with("insert")) {
        // Some are refused.
        let _ = sql.runtime.block_on(sql.client.simple_query(statement));
    }
    sql.lines("CREATE SCHEMA again");
    for table in ["t", "t2", "d3"] {
        let before = shown(&sql, &format!("first.{table}"));
        let columns = sql.lines(&format!(
            "SELECT string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod)
                || coalesce(' DEFAULT ' || pg_get_expr(adbin, adrelid), ''), ', ' ORDER BY attnum)
                FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
                WHERE attrelid = 'first.{table}'::regclass AND attnum > 0"
        ));
        sql.lines(&format!("CREATE TABLE again.{table} ({})", columns[0]));
        let constraints = sql.lines(&format!(
            "SELECT 'ALTER TABLE again.{table} ADD CONSTRAINT ' || quote_ident(conname) || ' '
                || pg_get_constraintdef(oid) FROM pg_constraint
                WHERE conrelid = 'first.{table}'::regclass AND contype = 'c' ORDER BY conname"
        ));
        let indexes = sql.lines(&format!(
            "SELECT replace(pg_get_indexdef(indexrelid), ' first.', ' again.') FROM pg_index
                WHERE indrelid = 'first.{table}'::regclass AND NOT indisprimary ORDER BY indexrelid"
        ));
        for statement in constraints.iter().chain(&indexes) {
            sql.lines(statement);
        }
        let after = shown(&sql, &format!("again.{table}"));
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.replace("first.", ""), *after);
        }
        assert_eq!(before.len(), after.len());
    }
}

#[test]
fn a_view_that_is_shown_makes_the_same_again() {
    let node = SqlNode::start(config(None));
    let sql = node.connect();
    sql.lines("CREATE TABLE t (a int PRIMARY KEY, b text, c numeric, d varchar(5)); CREATE TABLE u (a int, e text)");
    for query in [
        "SELECT a + 1 * 2 AS x, (b || 'x') AS y, CASE WHEN a > 1 THEN 'p' ELSE e'q\\n''' END AS z FROM t WHERE (a > 1)",
        "SELECT ((a)) AS a, (((b))) AS b FROM t AS s WHERE ((a > 1 AND (b = 'x' OR c < 5))) ORDER BY a DESC LIMIT 3",
        "SELECT t.*, u.e FROM t LEFT JOIN u USING (a) WHERE u.e IS NULL OR d IN ('a', 'b')",
        "SELECT (SELECT max(c) FROM t), count(*), sum(a) FILTER (WHERE a > 1) FROM u GROUP BY e HAVING count(*) > 1",
        "WITH w AS (SELECT a FROM t UNION ALL SELECT a FROM u) SELECT a, row_number() OVER (ORDER BY a) AS n FROM w",
        "SELECT date '2020-01-01' AS d, inet '10.0.0.1' AS i, interval '1' day AS l, -a AS m, NOT (a = 1) AS n FROM t",
        "SELECT * FROM (SELECT a FROM t) AS x, LATERAL (SELECT e FROM u WHERE u.a = x.a) AS y",
        "SELECT DISTINCT ON (a) a, e FROM u ORDER BY a, e DESC NULLS LAST",
    ] {
        sql.lines(&format!("CREATE VIEW v AS {query}"));
        let of = |view: &str| sql.lines(&format!("SELECT pg_get_viewdef('{view}'::regclass)")).join("\n");
        let first = of("v");
        sql.lines(&format!("CREATE VIEW again AS {first}"));
        assert_eq!(first, of("again"), "{query}");
        sql.lines("DROP VIEW v, again");
    }
}
