//! Tables, their columns and keys.

use freshet_query::schema::Entry;

use crate::harness::Base;

#[test]
fn a_table_is_made_filled_and_dropped() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    assert_eq!(
        session.ok("CREATE TABLE t (a int PRIMARY KEY, b text DEFAULT 'x' NOT NULL, c numeric(8, 2))"),
        "CREATE TABLE"
    );
    session.ok("INSERT INTO t (a, c) VALUES (1, 2.5), (2, null)");
    assert_eq!(session.rows("SELECT a, b, c FROM t ORDER BY a"), ["1,x,2.50", "2,x,null"]);
    assert_eq!(
        session.fails("INSERT INTO t (a) VALUES (1)"),
        "23505: duplicate key value violates unique constraint \"t_pkey\""
    );
    assert_eq!(session.fails("CREATE TABLE t (a int)"), "42P07: relation \"t\" already exists");
    session.ok("CREATE TABLE IF NOT EXISTS t (a int)");
    assert_eq!(session.told(), ["relation \"t\" already exists, skipping"]);
    assert_eq!(session.ok("DROP TABLE t"), "DROP TABLE");
    assert_eq!(session.fails("SELECT * FROM t"), "42P01: relation \"t\" does not exist");
    assert_eq!(session.fails("DROP TABLE t"), "42P01: table \"t\" does not exist");
    session.ok("DROP TABLE IF EXISTS t");
    assert_eq!(session.told(), ["table \"t\" does not exist, skipping"]);
}

#[test]
fn a_table_without_a_key_keeps_equal_rows() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (a int, b text)");
    session.ok("INSERT INTO t VALUES (1, 'x'), (1, 'x'), (1, 'x')");
    assert_eq!(session.rows("SELECT * FROM t"), ["1,x", "1,x", "1,x"]);
    assert_eq!(session.fails("ALTER TABLE t ADD PRIMARY KEY (a)"), "23505: could not create unique index \"t_pkey\"");
    session.ok("DELETE FROM t");
    session.ok("INSERT INTO t VALUES (1, 'x'), (2, 'y')");
    session.ok("ALTER TABLE t ADD PRIMARY KEY (a)");
    assert_eq!(session.rows("SELECT * FROM t ORDER BY a"), ["1,x", "2,y"]);
    assert!(session.fails("INSERT INTO t VALUES (2, 'z')").starts_with("23505"));
    session.ok("ALTER TABLE t DROP CONSTRAINT t_pkey");
    session.ok("INSERT INTO t VALUES (2, 'z')");
    assert_eq!(session.rows("SELECT * FROM t ORDER BY b"), ["1,x", "2,y", "2,z"]);
}

#[test]
fn serial_columns_have_sequences_that_go_with_them() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok(
        "CREATE TABLE t (id serial PRIMARY KEY, n bigint GENERATED ALWAYS AS IDENTITY (START 10 INCREMENT 5), b text)",
    );
    session.ok("INSERT INTO t (b) VALUES ('x'), ('y')");
    session.ok("INSERT INTO t (b) VALUES ('z')");
    assert_eq!(session.rows("SELECT * FROM t ORDER BY id"), ["1,10,x", "2,15,y", "3,20,z"]);
    assert!(session.fails("INSERT INTO t (n) VALUES (1)").starts_with("428C9"));
    assert_eq!(
        session.fails("DROP SEQUENCE t_id_seq"),
        "2BP01: cannot drop sequence t_id_seq because other objects depend on it"
    );
    assert!(session.fails("DROP SEQUENCE t_n_seq").contains("because column n of table t requires it"));
    // Renamed, it is still the column's.
    session.ok("ALTER SEQUENCE t_id_seq RENAME TO other");
    session.ok("INSERT INTO t (b) VALUES ('w')");
    assert_eq!(session.rows("SELECT id FROM t WHERE b = 'w'"), ["4"]);
    session.ok("TRUNCATE t");
    session.ok("INSERT INTO t (b) VALUES ('v')");
    assert_eq!(session.rows("SELECT * FROM t"), ["5,30,v"]);
    session.ok("TRUNCATE t RESTART IDENTITY");
    session.ok("INSERT INTO t (b) VALUES ('u')");
    assert_eq!(session.rows("SELECT * FROM t"), ["1,10,u"]);
    session.ok("DROP TABLE t");
    let sequences = session.schema().entries().filter(|it| matches!(it, Entry::Sequence(_))).count();
    assert_eq!(sequences, 0);
}
