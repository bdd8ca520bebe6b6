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
    assert_eq!(session.notice_texts(), ["relation \"t\" already exists, skipping"]);
    assert_eq!(session.ok("DROP TABLE t"), "DROP TABLE");
    assert_eq!(session.fails("SELECT * FROM t"), "42P01: relation \"t\" does not exist");
    assert_eq!(session.fails("DROP TABLE t"), "42P01: table \"t\" does not exist");
    session.ok("DROP TABLE IF EXISTS t");
    assert_eq!(session.notice_texts(), ["table \"t\" does not exist, skipping"]);
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

#[test]
fn odd_tables() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE nothing ()");
    session.ok("INSERT INTO nothing DEFAULT VALUES");
    session.ok("INSERT INTO nothing DEFAULT VALUES");
    assert_eq!(session.rows("SELECT count(*) FROM nothing"), ["2"]);
    session.ok("ALTER TABLE nothing ADD a int DEFAULT 1");
    assert_eq!(session.rows("SELECT * FROM nothing"), ["1", "1"]);
    session.ok("CREATE TABLE \"Odd \"\"Name\" (\"select\" int DEFAULT -1, \"A\" text, a text, CHECK (\"A\" <> a))");
    session.ok("INSERT INTO \"Odd \"\"Name\" (\"A\") VALUES ('x')");
    assert_eq!(session.rows("SELECT \"select\", \"A\", a FROM \"Odd \"\"Name\""), ["-1,x,null"]);
    session.ok("ALTER TABLE \"Odd \"\"Name\" RENAME a TO \"B c\"");
    assert!(session.fails("UPDATE \"Odd \"\"Name\" SET \"B c\" = 'x'").starts_with("23514"));
    session.ok("ALTER TABLE \"Odd \"\"Name\" ADD PRIMARY KEY (\"select\")");
    let long = "n".repeat(64);
    assert!(session.fails(&format!("CREATE TABLE {long} (a int)")).starts_with("42622"));
    assert!(session.fails(&format!("CREATE TABLE t ({long} int)")).starts_with("42622"));
    assert_eq!(
        session.fails("CREATE TABLE t (a json PRIMARY KEY)"),
        "42704: data type json has no default operator class for access method \"btree\""
    );
    assert_eq!(
        session.fails("CREATE TABLE t (a int DEFAULT b, b int)"),
        "0A000: cannot use column reference in DEFAULT expression"
    );
    assert_eq!(
        session.fails("CREATE TABLE t (a int CHECK (a IN (SELECT 1)))"),
        "0A000: cannot use subquery in check constraint"
    );
    assert_eq!(
        session.fails("CREATE TABLE t (a int DEFAULT 'x')"),
        "22P02: invalid input syntax for type integer: \"x\""
    );
    assert_eq!(
        session.fails("CREATE TABLE t (a int CHECK (a))"),
        "42804: argument of CHECK must be type boolean, not type integer"
    );
    assert_eq!(session.fails("CREATE TABLE nowhere.t (a int)"), "3F000: schema \"nowhere\" does not exist");
    session.path.clear();
    assert_eq!(session.fails("CREATE TABLE t (a int)"), "3F000: no schema has been selected to create in");
    session.path.push(2200);
    let columns: Vec<String> = (0..1601).map(|n| format!("c{n} int")).collect();
    let too_many = session.fails(&format!("CREATE TABLE wide ({})", columns.join(", ")));
    assert_eq!(too_many, "54011: tables can have at most 1600 columns");
    session.ok(&format!("CREATE TABLE wide ({})", columns[..1600].join(", ")));
    session.ok("CREATE UNLOGGED TABLE u (a int)");
    assert_eq!(session.notice_texts(), ["unlogged tables are logged and replicated like all others"]);
}

#[test]
fn defaults_are_evaluated_for_each_row() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (a int, b double precision DEFAULT random(), c timestamptz DEFAULT now(), d text DEFAULT upper('x') || 'y')");
    session.ok("INSERT INTO t (a) VALUES (1), (2), (3)");
    assert_eq!(session.rows("SELECT count(DISTINCT b), count(DISTINCT c), min(d) FROM t"), ["3,1,Xy"]);
    session.ok("ALTER TABLE t ADD e double precision DEFAULT random(), ADD f timestamptz DEFAULT now()");
    assert_eq!(session.rows("SELECT count(DISTINCT e), count(DISTINCT f) FROM t"), ["3,1"]);
}

#[test]
fn like_takes_over_what_is_wanted() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (a int PRIMARY KEY, b text DEFAULT 'x' CHECK (b <> ''), c int GENERATED ALWAYS AS IDENTITY (START 7), UNIQUE (b, a))");
    session.ok("CREATE INDEX ON t (b)");
    session.ok("CREATE TABLE bare (LIKE t)");
    session.ok("INSERT INTO bare VALUES (1, '', 5), (1, null, 6)");
    assert!(session.fails("INSERT INTO bare VALUES (null, 'x', 1)").starts_with("23502"));
    session.ok("CREATE TABLE most (z int, LIKE t INCLUDING ALL EXCLUDING CONSTRAINTS)");
    session.ok("INSERT INTO most (z, a) VALUES (0, 1)");
    session.ok("INSERT INTO most (a, b) VALUES (2, '')");
    assert_eq!(session.rows("SELECT * FROM most ORDER BY a"), ["0,1,x,7", "null,2,,8"]);
    assert!(session.fails("INSERT INTO most (a) VALUES (1)").contains("\"most_pkey\""));
    let schema = session.schema();
    let Some(freshet_query::schema::Named::Table(oid)) = schema.named(2200, "most") else { panic!("it is there") };
    let names: Vec<_> = schema.table(oid).unwrap().table.indexes.iter().map(|index| index.name.clone()).collect();
    assert_eq!(names, ["most_pkey", "most_b_a_key", "most_b_idx"]);
    assert_eq!(session.fails("CREATE TABLE u (a text, LIKE t)"), "42701: column \"a\" specified more than once");
}
