//! Snapshots that are too old, or keep too much in memory, are given up: their transactions get
//! 72000, whatever their roles have set, and their locks go.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    common::{SOON, Sql, SqlNode, config, eventually},
    session::wire::{Wire, bind, execute, message, outline, parse, sync},
};
use freshet_engine::NodeConfig;
use freshet_query::session::settings::Bounds;

/// What may be kept for open transactions.
const MOST: u64 = 2 << 20;

fn node_with(bounds: Bounds, config: NodeConfig) -> SqlNode {
    SqlNode::start_within(config, Arc::new(freshet_general::QueryEngine), bounds)
}

fn by_bytes() -> SqlNode {
    node_with(Bounds { snapshot_bytes: MOST, ..Bounds::default() }, config(None))
}

fn made(session: &Sql) {
    session.lines("CREATE TABLE t (id int PRIMARY KEY, v text)");
    session.lines("INSERT INTO t SELECT g, repeat('a', 1000) FROM generate_series(1, 500) g");
    session.lines("CREATE ROLE low LOGIN");
}

fn kept(node: &SqlNode) -> u64 {
    node.node.memory().kept_for_snapshots
}

/// Updates until far more is kept than may be, or until what was kept has been freed in between;
/// the most that was kept.
fn update_much(node: &SqlNode, writer: &Sql) -> u64 {
    let (mut most, deadline) = (0, Instant::now() + SOON);
    loop {
        writer.lines(&format!("UPDATE t SET v = repeat('{}', 1000)", most % 10));
        let now = kept(node);
        if most > MOST && now < MOST / 2 {
            return most;
        }
        most = most.max(now);
        assert!(Instant::now() < deadline, "{most} bytes were kept, and are not given back");
    }
}

#[test]
fn an_idle_snapshot_that_keeps_too_much_is_given_up() {
    let node = by_bytes();
    let (writer, idle) = (node.connect(), node.connect_as("freshet"));
    made(&writer);
    let low = node.connect_as("low");
    low.lines("SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    idle.lines(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_advisory_xact_lock(7); LOCK TABLE t IN ROW SHARE MODE",
    );
    idle.lines("SAVEPOINT s; SELECT count(*) FROM t");
    update_much(&node, &writer);
    // What it held is free, although it has not been heard of since.
    writer.lines("SET lock_timeout = '10s'; BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE");
    writer.lines("SELECT pg_advisory_xact_lock(7); COMMIT");
    for session in [&low, &idle] {
        assert_eq!(session.state("SELECT count(*) FROM t"), "72000");
        assert_eq!(session.state("SELECT 1"), "25P02");
    }
    assert_eq!(idle.state("ROLLBACK TO s"), "3B001");
    idle.lines("ROLLBACK");
    assert_eq!(idle.lines("SELECT count(*) FROM t"), ["500"]);
    // Who says COMMIT next must not take it for committed.
    low.lines("ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    update_much(&node, &writer);
    assert_eq!(low.state("COMMIT"), "72000");
    assert_eq!(low.lines("SELECT 1"), ["1"]);
}

#[test]
fn what_is_no_block_is_given_up_too() {
    let node = by_bytes();
    let writer = node.connect();
    made(&writer);
    // A transaction of messages, which ends with the Sync that does not come.
    let mut wire = Wire::open(node.address(), "freshet");
    wire.send(&[parse("", "SELECT 1"), bind("", "", &[]), execute("", 0), message(b'H', b"")].concat());
    assert_eq!(outline(&wire.receive_until('C')), "1 2 D C");
    update_much(&node, &writer);
    assert_eq!(wire.ask(&sync()), "E72000 ZI");
}

#[test]
fn cursors_that_are_held_stay() {
    let node = by_bytes();
    let (writer, reader) = (node.connect(), node.connect());
    made(&writer);
    reader.lines("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY id; COMMIT");
    reader.lines("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t");
    update_much(&node, &writer);
    assert_eq!(reader.state("FETCH c"), "72000");
    reader.lines("ROLLBACK");
    assert_eq!(reader.lines("FETCH 2 FROM c"), ["1", "2"]);
}

#[test]
fn a_statement_that_runs_is_ended() {
    let node = by_bytes();
    let (writer, runner) = (node.connect(), node.connect());
    made(&writer);
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| runner.state("SELECT count(*), (SELECT pg_sleep(600)) FROM t"));
        eventually("it runs", || {
            let others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
            writer.lines(&format!("SELECT count(*) {others} AND query LIKE '%sleep(600)%'")) == ["1"]
        });
        update_much(&node, &writer);
        assert_eq!(runs.join().unwrap(), "72000");
    });
}

#[test]
fn a_snapshot_may_be_of_a_certain_age() {
    let age = Duration::from_millis(1_000);
    let node = node_with(Bounds { snapshot_age: age, ..Bounds::default() }, config(None));
    let (writer, old) = (node.connect(), node.connect());
    made(&writer);
    old.lines("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM t");
    eventually("the snapshot is too old", || {
        writer.lines("UPDATE t SET v = 'x' WHERE id = 1");
        old.outcome("SELECT count(*) FROM t") == "72000"
    });
    // Statements of their own begin a snapshot each.
    assert_eq!(writer.lines("SELECT count(*) FROM t WHERE v = 'x'"), ["1"]);
}

/// Readers of a standby are bounded by the standby's own limits.
#[test]
fn a_standby_bounds_its_own_readers_and_replay_ends_none() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let of = |place: usize| config(Some(directories[place].path()));
    let primary = node_with(Bounds::default(), of(0));
    let writer = primary.connect();
    made(&writer);
    let join = || Some(primary.node.address().to_owned());
    let bounds = Bounds { snapshot_age: Duration::from_millis(1_000), ..Bounds::default() };
    let standby = node_with(bounds, NodeConfig { join: join(), ..of(1) });
    let reader = eventually_connected(&standby);
    reader.lines("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(reader.lines("SELECT count(*) FROM t"), ["500"]);
    eventually("the snapshot is too old", || {
        writer.lines("UPDATE t SET v = 'x'");
        reader.outcome("SELECT count(*) FROM t") == "72000"
    });
    reader.lines("ROLLBACK");
    // Where the standby has no limits, nothing ends them.
    standby.server.set_bounds(Bounds::default());
    reader.lines("BEGIN ISOLATION LEVEL REPEATABLE READ");
    let seen = reader.lines("SELECT count(*), min(v) FROM t");
    for round in 0..30 {
        writer.lines(&format!("UPDATE t SET v = 'y{round}'"));
        assert_eq!(reader.lines("SELECT count(*), min(v) FROM t"), seen);
    }
}

fn eventually_connected(standby: &SqlNode) -> Sql {
    eventually("the table is there", || {
        Sql::try_connect(standby.address(), "freshet", None).is_ok_and(|it| it.outcome("SELECT 1 FROM t") == "00000")
    });
    standby.connect()
}
