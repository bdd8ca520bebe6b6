//! What depends on what is dropped.

use crate::harness::Base;

#[test]
fn what_is_needed_stays_or_goes_too() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (a int PRIMARY KEY, b int)");
    session.ok("CREATE VIEW v AS SELECT a, b AS c FROM t");
    session.ok("CREATE VIEW w AS SELECT c FROM v");
    let error = session.run("DROP TABLE t").unwrap_err();
    assert_eq!(error.message, "cannot drop table t because other objects depend on it");
    assert_eq!(error.detail.as_deref(), Some("view v depends on table t\nview w depends on view v"));
    assert_eq!(error.hint.as_deref(), Some("Use DROP ... CASCADE to drop the dependent objects too."));
    assert!(session.fails("ALTER TABLE t DROP COLUMN b").starts_with("2BP01: cannot drop column b of table t"));
    assert!(session.fails("ALTER TABLE t ALTER b TYPE text").starts_with("0A000"));
    assert!(session.fails("ALTER TABLE t RENAME b TO d").starts_with("0A000"));
    assert!(session.fails("DROP VIEW v").starts_with("2BP01"));
    session.ok("DROP VIEW w, v");
    session.ok("CREATE VIEW v AS SELECT a FROM t");
    session.ok("ALTER TABLE t DROP COLUMN b");
    session.ok("DROP TABLE t CASCADE");
    assert_eq!(session.notice_texts(), ["drop cascades to view v"]);
    assert_eq!(session.fails("DROP VIEW v"), "42P01: view \"v\" does not exist");
}

#[test]
fn keys_that_others_refer_to() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE p (a int PRIMARY KEY, b int)");
    session.ok("CREATE TABLE c (a int REFERENCES p)");
    assert_eq!(
        session.fails("ALTER TABLE p DROP CONSTRAINT p_pkey"),
        "2BP01: cannot drop constraint p_pkey on table p because other objects depend on it"
    );
    assert!(session.fails("ALTER TABLE p DROP COLUMN a").starts_with("2BP01"));
    session.ok("ALTER TABLE p DROP COLUMN a CASCADE");
    assert_eq!(session.notice_texts(), ["drop cascades to constraint c_a_fkey on table c"]);
    session.ok("INSERT INTO c VALUES (5)");
    // Both at once need no CASCADE.
    session.ok("CREATE TABLE q (a int PRIMARY KEY)");
    session.ok("CREATE TABLE d (a int REFERENCES q)");
    session.ok("DROP TABLE q, d");
}

#[test]
fn sequences_that_defaults_use() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE SEQUENCE s START 5");
    session.ok(
        "CREATE TABLE t (a int, b bigint DEFAULT nextval('s'), c bigint DEFAULT nextval('public.s'::regclass) + 100)",
    );
    session.ok("INSERT INTO t (a) VALUES (1)");
    assert_eq!(session.rows("SELECT * FROM t"), ["1,5,106"]);
    session.ok("ALTER SEQUENCE s RENAME TO z");
    session.ok("INSERT INTO t (a) VALUES (2)");
    assert_eq!(session.rows("SELECT * FROM t WHERE a = 2"), ["2,7,108"]);
    assert!(session.fails("DROP SEQUENCE z").starts_with("2BP01"));
    session.ok("DROP SEQUENCE z CASCADE");
    assert_eq!(session.notice_texts(), ["drop cascades to 2 other objects"]);
    session.ok("INSERT INTO t (a) VALUES (3)");
    assert_eq!(session.rows("SELECT * FROM t WHERE a = 3"), ["3,null,null"]);
    assert_eq!(session.fails("CREATE TABLE u (a int DEFAULT nextval('z'))"), "42P01: relation \"z\" does not exist");
}
