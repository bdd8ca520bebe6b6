//! Indexes.

use crate::harness::Base;

#[test]
fn indexes_are_made_of_filled_tables() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (a int PRIMARY KEY, b int, c text)");
    for chunk in 0..20 {
        let rows: Vec<String> = (0..100).map(|n| format!("({}, {}, 'c{}')", chunk * 100 + n, n, n % 7)).collect();
        session.ok(&format!("INSERT INTO t VALUES {}", rows.join(", ")));
    }
    assert_eq!(session.fails("CREATE UNIQUE INDEX ON t (b)"), "23505: could not create unique index \"t_b_idx\"");
    session.ok("CREATE INDEX ON t (b)");
    session.ok("CREATE INDEX CONCURRENTLY by_c ON t USING btree (c DESC, a)");
    session.ok("CREATE INDEX IF NOT EXISTS by_c ON t (a)");
    assert_eq!(session.notice_texts(), ["relation \"by_c\" already exists, skipping"]);
    assert_eq!(session.rows("SELECT count(*) FROM t WHERE b = 5"), ["20"]);
    assert_eq!(session.rows("SELECT a FROM t WHERE c = 'c3' ORDER BY a LIMIT 2"), ["3", "10"]);
    let info = |session: &mut crate::harness::Session<'_>| {
        let schema = session.schema();
        let Some(freshet_query::schema::Named::Table(oid)) = schema.named(2200, "t") else { panic!("no t") };
        let info = schema.table(oid).unwrap();
        info.table.indexes.iter().map(|index| index.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(info(&mut session), ["t_pkey", "t_b_idx", "by_c"]);
    session.ok("ALTER INDEX by_c RENAME TO sorted");
    session.ok("DROP INDEX t_b_idx");
    assert_eq!(info(&mut session), ["t_pkey", "sorted"]);
    assert_eq!(session.rows("SELECT count(*) FROM t WHERE b = 5"), ["20"]);
    assert_eq!(
        session.fails("DROP INDEX t_pkey"),
        "2BP01: cannot drop index t_pkey because constraint t_pkey on table t requires it"
    );
    assert_eq!(session.fails("DROP INDEX t_b_idx"), "42704: index \"t_b_idx\" does not exist");
    assert_eq!(session.fails("CREATE INDEX ON t (nothing)"), "42703: column \"nothing\" does not exist");
    let immutable = "42P17: functions in index expression must be marked IMMUTABLE";
    assert_eq!(session.fails("CREATE INDEX ON t (to_char(now(), c))"), immutable);
    assert_eq!(session.fails("CREATE INDEX ON t USING gin (b)"), "0A000: access method \"gin\" is not supported");
    session.ok("CREATE TABLE j (a json)");
    assert!(session.fails("CREATE INDEX ON j (a)").starts_with("42704: data type json has no default operator class"));
}

#[test]
fn an_error_has_the_new_name_of_a_renamed_unique_index() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (a int PRIMARY KEY, b int UNIQUE)");
    session.ok("INSERT INTO t VALUES (1, 1)");
    session.ok("ALTER TABLE t RENAME CONSTRAINT t_b_key TO only_once");
    let violated = "23505: duplicate key value violates unique constraint \"only_once\"";
    assert_eq!(session.fails("INSERT INTO t VALUES (2, 1)"), violated);
    session.ok("INSERT INTO t VALUES (2, 1) ON CONFLICT ON CONSTRAINT only_once DO NOTHING");
    // Its old name is free for another one.
    session.ok("CREATE INDEX t_b_key ON t (b)");
    assert_eq!(session.fails("INSERT INTO t VALUES (2, 1)"), violated);
    session.ok("ALTER TABLE t DROP CONSTRAINT only_once");
    session.ok("INSERT INTO t VALUES (2, 1)");
}

#[test]
fn rows_of_before_a_column_was_added_are_indexed() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (a int)");
    session.ok("INSERT INTO t VALUES (1), (2)");
    session.ok("ALTER TABLE t ADD b int DEFAULT 5");
    session.ok("INSERT INTO t VALUES (3, 6)");
    session.ok("CREATE INDEX ON t (b)");
    assert_eq!(session.rows("SELECT a FROM t WHERE b = 5 ORDER BY a"), ["1", "2"]);
    session.ok("UPDATE t SET b = 7 WHERE a = 1");
    assert_eq!(session.rows("SELECT a FROM t WHERE b >= 6 ORDER BY a"), ["1", "3"]);
}
