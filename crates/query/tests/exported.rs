//! Snapshots that one session exports and others import.

use std::time::Instant;

use crate::common::{SOON, Sql, SqlNode, config};
use freshet_engine::{NodeConfig, Safety};

const ROWS: &str = "SELECT count(*), sum(v) FROM t";

fn table(session: &Sql) {
    session
        .lines("CREATE TABLE u (a int); CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 100) i");
}

/// Begins a transaction at a level, and exports its snapshot.
fn export(session: &Sql, level: &str) -> String {
    session.lines(&format!("BEGIN ISOLATION LEVEL {level}"));
    session.lines("SELECT pg_export_snapshot()").remove(0)
}

/// Begins a transaction that sees what another one has exported.
fn import(session: &Sql, level: &str, name: &str) {
    session.lines(&format!("BEGIN ISOLATION LEVEL {level}; SET TRANSACTION SNAPSHOT '{name}'"));
}

/// Changes and removes rows, again and again, so that what is not needed is reclaimed.
fn change(session: &Sql) {
    for round in 0..50 {
        session.lines("UPDATE t SET v = v + 1000 WHERE id > 10");
        session.lines(&format!("DELETE FROM t WHERE id = {}", round + 1));
    }
    session.lines("ALTER TABLE t ADD COLUMN IF NOT EXISTS w int DEFAULT 7");
}

#[test]
fn an_imported_snapshot_sees_what_the_exporter_saw() {
    let node = SqlNode::in_memory();
    let (exporter, one, two, writer) = (node.connect(), node.connect(), node.connect(), node.connect());
    table(&exporter);
    let name = export(&exporter, "REPEATABLE READ");
    change(&writer);
    import(&one, "REPEATABLE READ, READ ONLY", &name);
    assert_eq!(one.lines(ROWS), ["100 5050"]);
    assert_eq!(one.state("SELECT w FROM t"), "42703", "the catalog is that of the snapshot, too");
    one.lines("ROLLBACK");
    import(&one, "REPEATABLE READ", &name);
    import(&two, "REPEATABLE READ", &name);
    exporter.lines("COMMIT");
    // Who has it keeps it; it can be imported no more.
    for session in [&one, &two] {
        change(&writer);
        assert_eq!(session.lines(ROWS), ["100 5050"]);
    }
    let late = node.connect();
    late.lines("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(late.state(&format!("SET TRANSACTION SNAPSHOT '{name}'")), "22023");
    // It is a snapshot like any other for who writes.
    assert_eq!(one.state("UPDATE t SET v = 0 WHERE id = 60"), "40001");
    assert_eq!(two.lines("INSERT INTO u VALUES (1); COMMIT; SELECT a FROM u"), ["1"]);
}

#[test]
fn a_snapshot_stays_though_the_exporter_sees_more() {
    let node = SqlNode::in_memory();
    let (exporter, importer, writer) = (node.connect(), node.connect(), node.connect());
    table(&exporter);
    let first = export(&exporter, "READ COMMITTED");
    writer.lines("DELETE FROM t WHERE id > 50");
    assert_eq!(exporter.lines("SELECT count(*) FROM t"), ["50"]);
    let second = exporter.lines("SELECT pg_export_snapshot()").remove(0);
    assert_ne!(first, second);
    change(&writer);
    import(&importer, "REPEATABLE READ", &first);
    assert_eq!(importer.lines(ROWS), ["100 5050"]);
    importer.lines("ROLLBACK");
    import(&importer, "REPEATABLE READ", &second);
    assert_eq!(importer.lines(ROWS), ["50 1275"]);
    // Who waits for a lock keeps the snapshot.
    writer.lines("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE; INSERT INTO t VALUES (500, 1, 1)");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| importer.lines("LOCK TABLE t IN ACCESS SHARE MODE"));
        crate::common::eventually("the importer waits", || {
            writer.lines("SELECT count(*) FROM pg_locks WHERE NOT granted") == ["1"]
        });
        writer.lines("COMMIT");
        waiter.join().unwrap();
    });
    assert_eq!(importer.lines(ROWS), ["50 1275"]);
    // A name goes with its transaction, however that ends.
    assert_eq!(exporter.state("SELECT 1 / 0"), "22012");
    importer.lines("ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(importer.state(&format!("SET TRANSACTION SNAPSHOT '{second}'")), "22023");
}

#[test]
fn levels_must_agree() {
    let node = SqlNode::in_memory();
    let (exporter, importer) = (node.connect(), node.connect());
    let refused = |level: &str, name: &str| {
        importer.lines(&format!("BEGIN ISOLATION LEVEL {level}"));
        let state = importer.state(&format!("SET TRANSACTION SNAPSHOT '{name}'"));
        importer.lines("ROLLBACK");
        state
    };
    let weak = export(&exporter, "REPEATABLE READ");
    assert_eq!(refused("READ COMMITTED", &weak), "0A000");
    assert_eq!(refused("SERIALIZABLE", &weak), "0A000");
    exporter.lines("ROLLBACK");
    let reader = export(&exporter, "SERIALIZABLE, READ ONLY");
    assert_eq!(refused("SERIALIZABLE", &reader), "0A000");
    import(&importer, "SERIALIZABLE, READ ONLY", &reader);
    importer.lines("ROLLBACK");
    exporter.lines("ROLLBACK");
    let strong = export(&exporter, "SERIALIZABLE");
    import(&importer, "SERIALIZABLE", &strong);
    import(&node.connect(), "REPEATABLE READ", &strong);
}

#[test]
fn a_standby_lends_snapshots_too() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let of = |number: usize| NodeConfig { safety: Safety::TwoSafe, ..config(Some(directories[number].path())) };
    let primary = SqlNode::start(of(0));
    let standby = SqlNode::start(NodeConfig { join: Some(primary.node.address().to_owned()), ..of(1) });
    let writer = primary.connect();
    table(&writer);
    let made = primary.node.database().core().snapshots.current();
    standby.node.wait_visible(made, Some(Instant::now() + SOON)).unwrap();
    let (exporter, importer) = (standby.connect(), standby.connect());
    let name = export(&exporter, "REPEATABLE READ");
    change(&writer);
    let changed = primary.node.database().core().snapshots.current();
    standby.node.wait_visible(changed, Some(Instant::now() + SOON)).unwrap();
    import(&importer, "REPEATABLE READ", &name);
    importer.lines("LOCK TABLE t IN ACCESS SHARE MODE NOWAIT");
    assert_eq!(importer.lines(ROWS), ["100 5050"]);
    assert_eq!(importer.state("LOCK TABLE t IN SHARE MODE"), "25006");
    assert_eq!(exporter.lines("COMMIT; SELECT count(*) FROM t"), ["50"]);
}
