//! Which rows are locked by queries of many shapes: the same as in a PostgreSQL 15 that the test
//! starts. A statement of `locked_shapes.txt` runs in a transaction; which rows it has locked, and
//! how strongly, another session finds out by SKIP LOCKED.

use crate::common::{Sql, SqlNode, eventually, judge::Judge};
use freshet_testing::{Missing, skip};

const TABLES: &str = "
    CREATE SCHEMA shapes; SET search_path = shapes;
    CREATE TABLE t (a int PRIMARY KEY, b int, c text);
    CREATE TABLE u (a int PRIMARY KEY, t int REFERENCES t, d int UNIQUE);
    CREATE TABLE w (a int, b int);
    CREATE SEQUENCE sq;
    INSERT INTO t VALUES (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'z'), (4, 40, NULL);
    INSERT INTO u VALUES (1, 1, 11), (2, 1, 12), (3, 2, 13);
    CREATE VIEW v AS SELECT a, b FROM t WHERE b > 10;
    CREATE VIEW vv AS SELECT a FROM v WHERE b < 40;
    CREATE VIEW vj AS SELECT t.a, u.d FROM t JOIN u ON u.t = t.a;
    CREATE VIEW vl AS SELECT t.a, u.d FROM t LEFT JOIN u ON u.t = t.a;
    CREATE VIEW vo AS SELECT a FROM t ORDER BY b DESC LIMIT 2;
    CREATE VIEW vlock AS SELECT a, b FROM t WHERE a < 4 FOR SHARE;
    CREATE VIEW vg AS SELECT b, count(*) AS n FROM t GROUP BY b;
    CREATE VIEW vu AS SELECT a FROM t UNION ALL SELECT a FROM u;
    CREATE VIEW vd AS SELECT DISTINCT b FROM t;
    CREATE VIEW vw AS SELECT a, row_number() OVER (ORDER BY a) AS n FROM t;
    CREATE VIEW vn AS SELECT * FROM (SELECT a FROM t UNION SELECT a FROM u) s;";

/// Rows, or the SQLSTATE.
fn answer(session: &Sql, sql: &str) -> String {
    match session.query(sql) {
        Ok(rows) => format!("{rows:?}"),
        Err(error) => error.code().map_or_else(|| error.to_string(), |state| state.code().to_owned()),
    }
}

/// What a statement says, and which rows others can still have.
fn locked(one: &Sql, other: &Sql, sql: &str) -> Vec<String> {
    one.lines("BEGIN");
    let mut found = vec![answer(one, sql)];
    if one.query("SELECT 1").is_ok() {
        for (table, lock) in [("t", "UPDATE"), ("t", "SHARE"), ("t", "KEY SHARE"), ("u", "UPDATE"), ("u", "KEY SHARE")]
        {
            let free = other.lines(&format!("SELECT a FROM {table} ORDER BY a FOR {lock} SKIP LOCKED"));
            found.push(format!("{table}, FOR {lock}: {}", free.join(" ")));
        }
    }
    one.lines("ROLLBACK");
    found
}

/// Two sessions.
fn two(open: impl Fn() -> Sql) -> [Sql; 2] {
    let pair = [open(), open()];
    pair[0].lines(TABLES);
    pair[1].lines("SET search_path = shapes");
    pair
}

#[test]
fn rows_are_locked_as_in_postgresql() {
    let judge = match Judge::start() {
        Ok(judge) => judge,
        Err(why) => return skip(Missing::Tool, "row locks of queries as in PostgreSQL", why),
    };
    let node = SqlNode::in_memory();
    let [one, other] = two(|| node.connect());
    let [one_there, other_there] = two(|| Sql::open(&judge.config()).unwrap());
    let mut wrong = Vec::new();
    for sql in include_str!("locked_shapes.txt").lines() {
        for sql in [sql.to_owned(), sql.replace("FOR UPDATE", "FOR KEY SHARE")] {
            let (ours, theirs) = (locked(&one, &other, &sql), locked(&one_there, &other_there, &sql));
            if ours != theirs {
                wrong.push(format!("{sql}\n    Freshet:    {ours:?}\n    PostgreSQL: {theirs:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn rows_of_others_are_left_out_or_an_error() {
    let node = SqlNode::in_memory();
    let [one, other] = two(|| node.connect());
    one.lines("BEGIN; SELECT a FROM t WHERE a IN (1, 3) FOR NO KEY UPDATE");
    for from in ["v", "(SELECT a FROM t WHERE b > 10) s", "(SELECT a FROM t WHERE b > 10 ORDER BY b LIMIT 9) s"] {
        let sql = format!("SELECT a FROM {from} ORDER BY a FOR UPDATE");
        assert_eq!(other.lines(&format!("{sql} SKIP LOCKED")), ["2", "4"], "{from}");
        assert_eq!(other.outcome(&format!("{sql} NOWAIT")), "55P03", "{from}");
        assert_eq!(other.lines(&sql.replace("FOR UPDATE", "FOR KEY SHARE NOWAIT")), ["2", "3", "4"], "{from}");
    }
    for sql in [
        "WITH q AS (SELECT a FROM t ORDER BY a LIMIT 1 FOR UPDATE SKIP LOCKED) SELECT * FROM q",
        "SELECT * FROM (SELECT a FROM t ORDER BY a FOR UPDATE SKIP LOCKED) s LIMIT 1",
        "WITH q AS (SELECT a FROM t ORDER BY a LIMIT 1 FOR UPDATE SKIP LOCKED) \
         UPDATE t SET c = 'taken' FROM q WHERE t.a = q.a RETURNING t.a",
    ] {
        assert_eq!(other.lines(sql), ["2"], "{sql}");
    }
    // Who skips a row takes the next one; nothing is taken twice.
    other.lines("BEGIN");
    let take = "WITH q AS (SELECT a FROM v ORDER BY a LIMIT 1 FOR UPDATE SKIP LOCKED) \
                UPDATE t SET c = 'taken' FROM q WHERE t.a = q.a RETURNING t.a";
    assert_eq!(other.lines(take), ["2"]);
    one.lines("COMMIT; BEGIN");
    assert_eq!(one.lines(take), ["3"]);
}

#[test]
fn a_row_that_was_changed_meanwhile_is_looked_at_again() {
    for (sql, before, after) in [
        ("SELECT b FROM v WHERE a = 2 FOR UPDATE", "UPDATE t SET b = 25 WHERE a = 2", "25"),
        ("SELECT b FROM v WHERE b < 25 FOR UPDATE", "UPDATE t SET b = 5 WHERE a = 2", ""),
        ("SELECT b FROM (SELECT a, b FROM t) s WHERE a = 2 FOR UPDATE", "UPDATE t SET b = 26 WHERE a = 2", "26"),
        // It moves.
        ("SELECT a FROM (SELECT a, b FROM t) s WHERE b = 20 FOR UPDATE", "UPDATE t SET a = 9 WHERE a = 2", "9"),
        ("WITH q AS (SELECT b FROM t WHERE a = 2 FOR UPDATE) SELECT * FROM q", "UPDATE t SET b = 27 WHERE a = 2", "27"),
        ("SELECT b FROM (SELECT b FROM t WHERE a = 2 FOR SHARE) s", "UPDATE t SET b = 28 WHERE a = 2", "28"),
        ("SELECT b FROM (SELECT b FROM t WHERE a = 4 FOR SHARE) s", "DELETE FROM t WHERE a = 4", ""),
        (
            "SELECT (SELECT b FROM t WHERE a = 2 AND u.a = 1 FOR UPDATE) FROM u WHERE a = 1",
            "UPDATE t SET b = 29 WHERE a = 2",
            "29",
        ),
        (
            "UPDATE w SET b = s.b FROM (SELECT b FROM t WHERE a = 2 FOR UPDATE) s RETURNING w.b",
            "UPDATE t SET b = 30 WHERE a = 2",
            "30",
        ),
        (
            "INSERT INTO w SELECT a, b FROM (SELECT * FROM v WHERE a = 2 FOR UPDATE) s RETURNING b",
            "UPDATE t SET b = 31 WHERE a = 2",
            "31",
        ),
    ] {
        let node = SqlNode::in_memory();
        let [one, other] = two(|| node.connect());
        one.lines("INSERT INTO w VALUES (1, 1); DELETE FROM u WHERE t = 2");
        one.lines(&format!("BEGIN; {before}"));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| other.lines(sql).join(" "));
            eventually("the other waits", || one.lines("SELECT count(*) FROM pg_locks WHERE NOT granted") == ["1"]);
            one.lines("COMMIT");
            assert_eq!(waiting.join().unwrap(), after, "{sql}");
        });
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            let node = SqlNode::in_memory();
            let [one, other] = two(|| node.connect());
            one.lines("INSERT INTO w VALUES (1, 1); DELETE FROM u WHERE t = 2");
            other.lines(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM w"));
            one.lines(before);
            assert_eq!(other.outcome(sql), "40001", "{level}: {sql}");
        }
    }
}

#[test]
fn locking_a_view_needs_the_privilege_to_update_it() {
    let node = SqlNode::in_memory();
    let [one, _] = two(|| node.connect());
    one.lines(
        "CREATE ROLE reader LOGIN; CREATE ROLE writer LOGIN; GRANT USAGE ON SCHEMA shapes TO reader, writer; \
         GRANT SELECT ON v, t TO reader; GRANT SELECT, UPDATE (b) ON v TO writer; GRANT SELECT ON t TO writer",
    );
    for (role, view, table) in [("reader", "42501", "42501"), ("writer", "00000", "42501")] {
        let session = node.connect_as(role);
        session.lines("SET search_path = shapes");
        assert_eq!(session.outcome("SELECT * FROM v FOR UPDATE"), view, "{role}");
        assert_eq!(session.outcome("SELECT * FROM (SELECT * FROM v) s FOR KEY SHARE"), view, "{role}");
        assert_eq!(session.outcome("SELECT * FROM (SELECT * FROM t) s FOR KEY SHARE"), table, "{role}");
        assert_eq!(session.outcome("WITH q AS (SELECT * FROM t FOR UPDATE) SELECT * FROM q"), table, "{role}");
    }
    assert_eq!(one.outcome("BEGIN READ ONLY; SELECT * FROM v FOR SHARE"), "25006");
}

#[test]
fn a_cursor_stands_on_its_row_whatever_becomes_of_it() {
    let node = SqlNode::in_memory();
    let [one, other] = two(|| node.connect());
    one.lines("DELETE FROM u");
    one.lines("BEGIN; DECLARE c CURSOR FOR SELECT * FROM t WHERE b > 10");
    one.lines("FETCH c");
    // Another transaction changes and moves the row, which fits the query no more.
    other.lines("UPDATE t SET b = 5, a = 22 WHERE a = 2");
    assert_eq!(one.lines("UPDATE t SET c = c || '!', b = b + 1 WHERE CURRENT OF c RETURNING a"), ["22"]);
    assert_eq!(one.lines("SELECT b FROM t WHERE a = 22"), ["6"]);
    one.lines("FETCH c");
    other.lines("DELETE FROM t WHERE a = 3");
    assert_eq!(one.lines("DELETE FROM t WHERE CURRENT OF c RETURNING a"), [""; 0]);
    one.lines("COMMIT");
    // A row that is locked is waited for.
    one.lines("BEGIN; DECLARE c CURSOR FOR SELECT * FROM t WHERE a = 4 FOR UPDATE; FETCH c");
    other.lines("SET lock_timeout = '100ms'");
    assert_eq!(other.outcome("UPDATE t SET b = 1 WHERE a = 4"), "55P03");
    one.lines("UPDATE t SET b = 41 WHERE CURRENT OF c; COMMIT");
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        one.lines(&format!("BEGIN ISOLATION LEVEL {level}; DECLARE c CURSOR FOR SELECT * FROM t WHERE a = 4"));
        one.lines("FETCH c");
        other.lines("UPDATE t SET b = b + 1 WHERE a = 4");
        assert_eq!(one.outcome("UPDATE t SET b = 0 WHERE CURRENT OF c"), "40001", "{level}");
        one.lines("ROLLBACK");
    }
}

#[test]
fn a_record_on_which_a_cursor_stands_is_not_anothers_later() {
    // Records that are deleted give their ids to new rows, unless somebody may still ask for them.
    let node = SqlNode::in_memory();
    let [one, other] = two(|| node.connect());
    one.lines("CREATE TABLE r (a int PRIMARY KEY, b int); INSERT INTO r SELECT g, 0 FROM generate_series(1, 100) g");
    one.lines("BEGIN; DECLARE c CURSOR FOR SELECT * FROM r");
    other.lines("SET search_path = shapes");
    for round in 0..50 {
        other.lines("DELETE FROM r");
        other.lines(&format!("INSERT INTO r SELECT g + {round}, 1 FROM generate_series(1001, 1100) g"));
        one.lines("FETCH c");
        assert_eq!(one.lines("UPDATE r SET b = 2 WHERE CURRENT OF c RETURNING a"), [""; 0], "round {round}");
    }
    one.lines("COMMIT");
    assert_eq!(other.lines("SELECT count(*) FROM r WHERE b <> 1"), ["0"]);
}
