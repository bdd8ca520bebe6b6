//! ALTER TABLE.

use crate::harness::{Base, Session};

fn filled<'b>(base: &'b Base, worker: &'b freshet_engine::Worker) -> Session<'b> {
    let mut session = base.session(worker);
    session.ok("CREATE TABLE t (a int PRIMARY KEY, b varchar(10))");
    session.ok("INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, null)");
    session
}

#[test]
fn columns_come_and_go() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = filled(&base, &worker);
    session.ok("ALTER TABLE t ADD COLUMN c int DEFAULT 7 NOT NULL, ADD d text");
    assert_eq!(session.rows("SELECT * FROM t ORDER BY a"), ["1,one,7,null", "2,two,7,null", "3,null,7,null"]);
    session.ok("INSERT INTO t VALUES (4, 'four', 8, 'd')");
    session.ok("ALTER TABLE t ALTER c SET DEFAULT 9");
    session.ok("INSERT INTO t (a) VALUES (5)");
    assert_eq!(session.rows("SELECT a, c FROM t ORDER BY a"), ["1,7", "2,7", "3,7", "4,8", "5,9"]);
    session.ok("ALTER TABLE t DROP COLUMN b");
    assert_eq!(session.rows("SELECT * FROM t WHERE a > 3 ORDER BY a"), ["4,8,d", "5,9,null"]);
    assert_eq!(session.fails("SELECT b FROM t"), "42703: column \"b\" does not exist");
    session.ok("ALTER TABLE t ADD COLUMN b text DEFAULT 'new'");
    assert_eq!(session.rows("SELECT a, b FROM t WHERE a = 1"), ["1,new"]);
    assert_eq!(session.fails("ALTER TABLE t ADD b int"), "42701: column \"b\" of relation \"t\" already exists");
    session.ok("ALTER TABLE t ADD COLUMN IF NOT EXISTS b int");
    assert_eq!(session.notice_texts(), ["column \"b\" of relation \"t\" already exists, skipping"]);
    assert_eq!(
        session.fails("ALTER TABLE t DROP nothing"),
        "42703: column \"nothing\" of relation \"t\" does not exist"
    );
    session.ok("ALTER TABLE t DROP IF EXISTS nothing");
    // Each row its own value.
    session.ok("ALTER TABLE t ADD COLUMN id serial");
    let ids = session.rows("SELECT id FROM t ORDER BY id");
    assert_eq!(ids, ["1", "2", "3", "4", "5"]);
    assert!(
        session
            .fails("ALTER TABLE t ADD COLUMN n int NOT NULL")
            .starts_with("23502: column \"n\" of relation \"t\" contains null")
    );
    session.ok("ALTER TABLE t ADD COLUMN u int UNIQUE");
    session.ok("UPDATE t SET u = 1 WHERE a = 1");
    assert!(session.fails("UPDATE t SET u = 1 WHERE a = 2").starts_with("23505"));
    session.ok("ALTER TABLE t RENAME COLUMN u TO v");
    session.ok("ALTER TABLE t RENAME TO s");
    assert_eq!(session.rows("SELECT v FROM s WHERE a = 1"), ["1"]);
    assert_eq!(session.fails("SELECT * FROM t"), "42P01: relation \"t\" does not exist");
    session.ok("ALTER TABLE IF EXISTS t ADD x int");
    assert_eq!(session.notice_texts(), ["relation \"t\" does not exist, skipping"]);
}

#[test]
fn the_key_column_can_go_and_come_again() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = filled(&base, &worker);
    session.ok("ALTER TABLE t DROP COLUMN a");
    session.ok("INSERT INTO t VALUES ('one'), ('one')");
    assert_eq!(session.rows("SELECT * FROM t WHERE b = 'one'"), ["one", "one", "one"]);
    session.ok("ALTER TABLE t ADD COLUMN id bigserial PRIMARY KEY");
    assert_eq!(session.rows("SELECT count(*) FROM t WHERE id BETWEEN 1 AND 5"), ["5"]);
    assert_eq!(session.rows("SELECT b FROM t WHERE id = 6"), Vec::<String>::new());
}

#[test]
fn not_null_and_types() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = filled(&base, &worker);
    assert_eq!(
        session.fails("ALTER TABLE t ALTER b SET NOT NULL"),
        "23502: column \"b\" of relation \"t\" contains null values"
    );
    session.ok("UPDATE t SET b = '3' WHERE a = 3");
    session.ok("ALTER TABLE t ALTER b SET NOT NULL");
    assert!(session.fails("UPDATE t SET b = null").starts_with("23502"));
    session.ok("ALTER TABLE t ALTER b DROP NOT NULL");
    assert_eq!(session.fails("ALTER TABLE t ALTER a DROP NOT NULL"), "42P16: column \"a\" is in a primary key");
    session.ok("ALTER TABLE t ALTER b TYPE text");
    session.ok("UPDATE t SET b = 'something longer than before' WHERE a = 1");
    assert!(session.fails("ALTER TABLE t ALTER b TYPE varchar(5)").starts_with("22001"));
    assert_eq!(
        session.fails("ALTER TABLE t ALTER b TYPE int"),
        "42804: column \"b\" cannot be cast automatically to type integer"
    );
    assert!(session.fails("ALTER TABLE t ALTER b TYPE int USING b::int").starts_with("22P02"));
    session.ok("ALTER TABLE t ALTER b TYPE int USING length(b)");
    assert_eq!(session.rows("SELECT a, b FROM t ORDER BY a"), ["1,28", "2,3", "3,1"]);
    session.ok("ALTER TABLE t ALTER a TYPE bigint");
    session.ok("INSERT INTO t VALUES (10000000000, 1)");
    assert_eq!(session.rows("SELECT b FROM t WHERE a = 10000000000"), ["1"]);
    assert!(session.fails("ALTER TABLE t ALTER a TYPE int").starts_with("22003"));
    session.ok("ALTER TABLE t ALTER b SET DEFAULT 3");
    session.ok("ALTER TABLE t ALTER b TYPE numeric(6, 1)");
    session.ok("INSERT INTO t (a) VALUES (50)");
    assert_eq!(session.rows("SELECT b FROM t WHERE a = 50"), ["3.0"]);
    assert_eq!(
        session.fails("ALTER TABLE t ALTER b SET DEFAULT true"),
        "42804: column \"b\" is of type numeric but default expression is of type boolean"
    );
}

#[test]
fn identity_comes_and_goes() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = filled(&base, &worker);
    session.ok("ALTER TABLE t ALTER a ADD GENERATED BY DEFAULT AS IDENTITY (START WITH 100)");
    session.ok("INSERT INTO t (b) VALUES ('h')");
    assert_eq!(session.rows("SELECT a FROM t WHERE b = 'h'"), ["100"]);
    session.ok("ALTER TABLE t ALTER a SET GENERATED ALWAYS SET INCREMENT BY 10 RESTART WITH 200");
    session.ok("INSERT INTO t (b) VALUES ('i'), ('j')");
    assert_eq!(session.rows("SELECT a FROM t WHERE a > 100 ORDER BY a"), ["200", "210"]);
    assert!(session.fails("INSERT INTO t VALUES (5, 'k')").starts_with("428C9"));
    session.ok("ALTER TABLE t ALTER a DROP IDENTITY");
    session.ok("INSERT INTO t VALUES (5, 'k')");
    assert!(session.fails("INSERT INTO t (b) VALUES ('l')").starts_with("23502"));
    assert_eq!(
        session.fails("ALTER TABLE t ALTER a DROP IDENTITY"),
        "55000: column \"a\" of relation \"t\" is not an identity column"
    );
    session.ok("ALTER TABLE t ALTER a DROP IDENTITY IF EXISTS");
}

#[test]
fn tables_move_between_schemas() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = filled(&base, &worker);
    session.ok("CREATE SCHEMA s");
    session.ok("CREATE TABLE s.u (id serial PRIMARY KEY)");
    assert_eq!(session.fails("SELECT * FROM u"), "42P01: relation \"u\" does not exist");
    session.ok("ALTER TABLE s.u SET SCHEMA public");
    session.ok("INSERT INTO u DEFAULT VALUES");
    assert_eq!(session.rows("SELECT id FROM public.u"), ["1"]);
    session.ok("ALTER SCHEMA s RENAME TO r");
    assert_eq!(session.fails("CREATE TABLE s.x (a int)"), "3F000: schema \"s\" does not exist");
    session.ok("CREATE TABLE r.t (a int)");
    assert_eq!(
        session.fails("ALTER TABLE r.t SET SCHEMA public"),
        "42P07: relation \"t\" already exists in schema \"public\""
    );
    assert_eq!(session.fails("CREATE SCHEMA pg_mine"), "42939: unacceptable schema name \"pg_mine\"");
    assert_eq!(session.fails("DROP SCHEMA r"), "2BP01: cannot drop schema r because other objects depend on it");
    session.ok("DROP SCHEMA r CASCADE");
    assert_eq!(session.notice_texts(), ["drop cascades to table r.t"]);
}
