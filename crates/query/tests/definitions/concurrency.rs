//! Definitions and writers at once.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use freshet_query::locks::LockMode;

use crate::harness::Base;

#[test]
fn a_definition_waits_for_writers() {
    let base = Base::new();
    let worker = base.worker();
    let mut writer = base.session(&worker);
    writer.ok("CREATE TABLE t (a int PRIMARY KEY, b int)");
    writer.ok("BEGIN");
    writer.ok("INSERT INTO t VALUES (1, 1)");
    let changed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let worker = base.worker();
            let mut changer = base.session(&worker);
            changer.ok("ALTER TABLE t ALTER b TYPE text");
            changed.store(true, Ordering::SeqCst);
            assert_eq!(changer.rows("SELECT * FROM t ORDER BY a"), ["1,1", "2,2"]);
        });
        // It has said that it waits.
        while !base.locks.is_wanted() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!changed.load(Ordering::SeqCst));
        // Others can change the catalog in the meantime.
        let three = base.worker();
        base.session(&three).ok("CREATE TABLE other (a int)");
        writer.ok("INSERT INTO t VALUES (2, 2)");
        writer.ok("COMMIT");
        changing.join().unwrap();
    });
    // The next statement is planned with the new definition.
    writer.ok("INSERT INTO t VALUES (3, 'x')");
    assert_eq!(writer.rows("SELECT b FROM t ORDER BY a"), ["1", "2", "x"]);
}

#[test]
fn a_writer_with_an_old_snapshot_notices() {
    let base = Base::new();
    let (one, two) = (base.worker(), base.worker());
    let mut writer = base.session(&one);
    let mut changer = base.session(&two);
    changer.ok("CREATE TABLE t (a int PRIMARY KEY, b int)");
    writer.read_committed = false;
    writer.ok("BEGIN");
    assert_eq!(writer.rows("SELECT count(*) FROM t"), ["0"]);
    changer.ok("ALTER TABLE t ALTER b TYPE text");
    assert!(writer.fails("INSERT INTO t VALUES (1, 1)").starts_with("40001"));
    writer.ok("ROLLBACK");
    writer.ok("INSERT INTO t VALUES (1, 'x')");
    // A table that was not changed is written to with an old snapshot.
    changer.ok("CREATE TABLE u (a int)");
    writer.ok("BEGIN");
    assert_eq!(writer.rows("SELECT count(*) FROM u"), ["0"]);
    changer.ok("ALTER TABLE t ADD c int");
    writer.ok("INSERT INTO u VALUES (1)");
    writer.ok("COMMIT");
}

#[test]
fn deadlocks_between_definitions_and_writers_end() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE a (n int PRIMARY KEY)");
    session.ok("CREATE TABLE b (n int PRIMARY KEY)");
    session.ok("INSERT INTO a VALUES (1)");
    session.ok("INSERT INTO b VALUES (1)");
    let barrier = std::sync::Barrier::new(2);
    let failed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (first, second) in [("a", "b"), ("b", "a")] {
            let (base, barrier, failed) = (&base, &barrier, &failed);
            scope.spawn(move || {
                let worker = base.worker();
                let mut session = base.session(&worker);
                session.ok("BEGIN");
                session.ok(&format!("UPDATE {first} SET n = n + 1"));
                barrier.wait();
                match session.run(&format!("TRUNCATE {second}")) {
                    Ok(_) => drop(session.ok("COMMIT")),
                    Err(error) => {
                        assert_eq!(error.state.code(), "40P01", "{error}");
                        failed.fetch_add(1, Ordering::SeqCst);
                        session.ok("ROLLBACK");
                    }
                }
            });
        }
    });
    assert_eq!(failed.load(Ordering::SeqCst), 1);
}

#[test]
fn deadlocks_over_records_and_tables_end() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE a (n int PRIMARY KEY, m int)");
    session.ok("CREATE TABLE b (n int PRIMARY KEY)");
    session.ok("INSERT INTO a VALUES (1, 1)");
    session.ok("INSERT INTO b VALUES (1)");
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let waits_for_record = scope.spawn(|| {
            let worker = base.worker();
            let mut session = base.session(&worker);
            session.ok("BEGIN");
            session.ok("UPDATE b SET n = 2");
            barrier.wait();
            // Waits for the record that the other one holds.
            let done = session.run("UPDATE a SET m = m + 1");
            session.ok(if done.is_ok() { "COMMIT" } else { "ROLLBACK" });
            done.map_err(|error| error.state.code().to_owned())
        });
        let waits_for_table = scope.spawn(|| {
            let worker = base.worker();
            let mut session = base.session(&worker);
            session.ok("BEGIN");
            session.ok("UPDATE a SET m = m + 1");
            barrier.wait();
            let done = session.run("ALTER TABLE b ADD c int");
            session.ok(if done.is_ok() { "COMMIT" } else { "ROLLBACK" });
            done.map_err(|error| error.state.code().to_owned())
        });
        let (record, table) = (waits_for_record.join().unwrap(), waits_for_table.join().unwrap());
        assert_eq!(table.unwrap_err(), "40P01");
        assert!(record.is_ok(), "{record:?}");
    });
}

#[test]
fn lock_table_and_its_modes() {
    let base = Base::new();
    let (one, two) = (base.worker(), base.worker());
    let mut first = base.session(&one);
    let mut second = base.session(&two);
    first.ok("CREATE TABLE t (a int)");
    first.ok("BEGIN");
    assert_eq!(first.ok("LOCK TABLE t IN SHARE MODE"), "LOCK TABLE");
    second.ok("BEGIN");
    second.ok("LOCK t IN SHARE MODE NOWAIT");
    assert_eq!(second.fails("LOCK t IN EXCLUSIVE MODE NOWAIT"), "55P03: could not obtain lock on relation \"t\"");
    first.ok("ROLLBACK");
    second.ok("LOCK t IN EXCLUSIVE MODE NOWAIT");
    second.ok("COMMIT");
    assert!(!second.locks.holds(1, LockMode::AccessShare));
    assert_eq!(second.fails("LOCK TABLE nothing"), "42P01: relation \"nothing\" does not exist");
}

#[test]
fn writers_lose_nothing_while_definitions_change_tables() {
    const WRITERS: u64 = 3;
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (id bigint PRIMARY KEY, n int)");
    let next = AtomicU64::new(0);
    let written = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let worker = base.worker();
                let mut session = base.session(&worker);
                while !over.load(Ordering::SeqCst) {
                    let id = next.fetch_add(1, Ordering::SeqCst);
                    session.ok("BEGIN");
                    session.ok(&format!("INSERT INTO t (id, n) VALUES ({id}, 1)"));
                    session.ok(&format!("UPDATE t SET n = 2 WHERE id = {id}"));
                    if id.is_multiple_of(5) {
                        session.ok("ROLLBACK");
                    } else {
                        session.ok("COMMIT");
                        written.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        for round in 0..6 {
            session.ok("CREATE INDEX i ON t (n)");
            session.ok(&format!("ALTER TABLE t ADD COLUMN c{round} int DEFAULT {round}"));
            session.ok("ALTER TABLE t ALTER n TYPE bigint");
            session.ok("DROP INDEX i");
            session.ok("ALTER TABLE t ALTER n TYPE int");
        }
        over.store(true, Ordering::SeqCst);
    });
    let written = written.load(Ordering::SeqCst).to_string();
    assert_eq!(session.rows("SELECT count(*) FROM t WHERE n = 2"), [written.as_str()]);
    assert_eq!(session.rows("SELECT count(*) FROM t"), [written]);
}
