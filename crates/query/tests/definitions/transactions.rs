//! Definitions are part of transactions.

use freshet_engine::Isolation;

use crate::harness::Base;

#[test]
fn what_is_rolled_back_leaves_nothing() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE kept (a int PRIMARY KEY)");
    session.ok("INSERT INTO kept VALUES (1), (2)");
    let before = session.schema();
    session.ok("BEGIN");
    session.ok("CREATE TABLE t (id serial PRIMARY KEY, b text)");
    session.ok("INSERT INTO t (b) VALUES ('x')");
    session.ok("CREATE INDEX ON t (b)");
    assert_eq!(session.rows("SELECT * FROM t WHERE b = 'x'"), ["1,x"]);
    session.ok("INSERT INTO kept VALUES (3)");
    session.ok("ALTER TABLE kept ADD COLUMN b int UNIQUE");
    session.ok("INSERT INTO kept VALUES (4, 4)");
    assert_eq!(session.rows("SELECT a FROM kept ORDER BY a"), ["1", "2", "3", "4"]);
    session.ok("TRUNCATE kept");
    assert_eq!(session.rows("SELECT count(*) FROM kept"), ["0"]);
    session.ok("ROLLBACK");
    assert_eq!(session.rows("SELECT * FROM kept ORDER BY a"), ["1", "2"]);
    assert_eq!(session.schema().version, before.version);
    assert_eq!(session.fails("SELECT * FROM t"), "42P01: relation \"t\" does not exist");
    // The same ids and names again.
    session.ok("CREATE TABLE t (id serial PRIMARY KEY, b text)");
    session.ok("INSERT INTO t (b) VALUES ('y')");
    assert_eq!(session.rows("SELECT * FROM t"), ["1,y"]);
    // What was made and is not needed is gone.
    for name in base.catalog.made_tables().iter().map(|table| table.name()) {
        let named = session
            .schema()
            .entries()
            .any(|entry| matches!(entry, freshet_query::schema::Entry::Table(info) if info.table.rows == name));
        assert!(named, "{name} is there still");
    }
}

/// Names of the engine's tables are given again. A sweep may have seen the table that had a name
/// before.
#[test]
fn what_is_discarded_is_not_what_has_its_name_since() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (a int PRIMARY KEY, b int)");
    session.ok("INSERT INTO t VALUES (1, 1)");
    let [before] = &base.catalog.made_tables()[..] else { panic!("one table was made") };
    session.ok("ALTER TABLE t ALTER b TYPE text");
    session.ok("ALTER TABLE t ALTER b TYPE int USING 7");
    let [now] = &base.catalog.made_tables()[..] else { panic!("the others are gone") };
    assert_eq!((before.name(), before.dropped_at().is_some()), (now.name(), true));
    base.catalog.discard(&base.worker(), before).unwrap();
    assert_eq!(session.rows("SELECT * FROM t"), ["1,7"]);
}

#[test]
fn savepoints_take_definitions_back() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (a int PRIMARY KEY, b int)");
    session.ok("INSERT INTO t VALUES (1, 1)");
    session.ok("BEGIN");
    session.ok("INSERT INTO t VALUES (2, 2)");
    session.ok("SAVEPOINT");
    session.ok("ALTER TABLE t ALTER b TYPE text");
    session.ok("INSERT INTO t VALUES (3, 'x')");
    session.ok("CREATE TABLE u (a int)");
    assert_eq!(session.rows("SELECT * FROM t ORDER BY a"), ["1,1", "2,2", "3,x"]);
    session.ok("ROLLBACK TO");
    assert_eq!(session.rows("SELECT * FROM t ORDER BY a"), ["1,1", "2,2"]);
    session.ok("INSERT INTO t VALUES (4, 4)");
    assert_eq!(session.fails("SELECT * FROM u"), "42P01: relation \"u\" does not exist");
    session.ok("COMMIT");
    assert_eq!(session.rows("SELECT * FROM t ORDER BY a"), ["1,1", "2,2", "4,4"]);
    session.ok("CREATE INDEX ON t (b)");
    assert_eq!(session.rows("SELECT a FROM t WHERE b = 4"), ["4"]);
}

#[test]
fn definitions_in_every_isolation_level() {
    for (isolation, read_committed) in
        [(Isolation::Snapshot, true), (Isolation::Snapshot, false), (Isolation::Serializable, false)]
    {
        let base = Base::new();
        let worker = base.worker();
        let mut session = base.session(&worker);
        (session.isolation, session.read_committed) = (isolation, read_committed);
        session.ok("BEGIN");
        session.ok("CREATE TABLE t (a int PRIMARY KEY, b int)");
        session.ok("INSERT INTO t VALUES (1, 1), (2, 2)");
        session.ok("ALTER TABLE t ADD c int DEFAULT 3");
        session.ok("CREATE UNIQUE INDEX ON t (b)");
        assert_eq!(session.rows("SELECT * FROM t WHERE b = 2"), ["2,2,3"], "{isolation:?} {read_committed}");
        session.ok("UPDATE t SET c = 4 WHERE a = 1");
        session.ok("ALTER TABLE t ALTER c TYPE text");
        assert_eq!(session.rows("SELECT * FROM t ORDER BY a"), ["1,1,4", "2,2,3"], "{isolation:?} {read_committed}");
        session.ok("COMMIT");
        assert_eq!(session.rows("SELECT * FROM t ORDER BY a"), ["1,1,4", "2,2,3"], "{isolation:?} {read_committed}");
        session.ok("TRUNCATE t");
        assert_eq!(session.rows("SELECT count(*) FROM t"), ["0"]);
    }
}

#[test]
fn old_snapshots_see_what_was() {
    let base = Base::new();
    let (one, two) = (base.worker(), base.worker());
    let mut session = base.session(&one);
    session.ok("CREATE TABLE t (a int PRIMARY KEY)");
    session.ok("INSERT INTO t VALUES (1), (2)");
    let mut old = base.session(&two);
    old.read_committed = false;
    old.ok("BEGIN");
    assert_eq!(old.rows("SELECT count(*) FROM t"), ["2"]);
    session.ok("ALTER TABLE t ADD b int DEFAULT 5");
    assert_eq!(old.rows("SELECT * FROM t ORDER BY a"), ["1", "2"]);
    old.ok("COMMIT");
    assert_eq!(old.rows("SELECT * FROM t ORDER BY a"), ["1,5", "2,5"]);
}
