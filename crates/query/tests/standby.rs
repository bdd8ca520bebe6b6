//! Sessions on a standby: what they see, and how they wait for it.

use std::time::Instant;

use crate::common::{SOON, Sql, SqlNode, config, eventually};
use freshet_base::{Consent, Rid};
use freshet_engine::{Lsn, NodeConfig, ReplayMode, Safety, node::RoleStatus};
use freshet_storage::Announcement;

pub fn pair() -> (SqlNode, SqlNode, [tempfile::TempDir; 2]) {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let of = |number: usize| NodeConfig { safety: Safety::TwoSafe, ..config(Some(directories[number].path())) };
    let primary = SqlNode::start(of(0));
    let standby = SqlNode::start(NodeConfig { join: Some(primary.node.address().to_owned()), ..of(1) });
    // The first session makes the catalog.
    drop(primary.connect());
    let made = primary.node.database().core().snapshots.current();
    standby.node.wait_visible(made, Some(Instant::now() + SOON)).unwrap();
    (primary, standby, directories)
}

#[test]
fn an_lsn_makes_a_standby_wait_for_what_it_stands_for() {
    let (primary, standby, _directories) = pair();
    let writer = primary.connect();
    writer.lines("CREATE TABLE t (id int PRIMARY KEY)");
    let reader = standby.connect();
    for id in 0..50 {
        writer.lines(&format!("INSERT INTO t VALUES ({id})"));
        let lsn = writer.lines("SHOW freshet.last_commit").remove(0);
        reader.lines(&format!("SET freshet.read_after = '{lsn}'"));
        assert_eq!(reader.lines(&format!("SELECT id FROM t WHERE id = {id}")), [id.to_string()]);
    }
    // What is not there in time is an error, and the session continues.
    let far = u64::MAX / 2;
    reader.lines(&format!("SET freshet.read_after_timeout = '20ms'; SET freshet.read_after = '{far}'"));
    assert_eq!(reader.state("SELECT 1 FROM t"), "57014");
    assert_eq!(reader.lines("RESET freshet.read_after; SELECT count(*) FROM t"), ["50"]);
}

/// What a session waits for beside its node's level is said to a primary.
#[test]
fn a_standby_answers_whatever_level_its_session_wants() {
    let (primary, standby, _directories) = pair();
    primary.connect().lines("CREATE TABLE t (id int PRIMARY KEY)");
    let reader = standby.connect();
    for safety in ["1-safe", "2-safe", "very-safe", "quorum:2"] {
        reader.lines(&format!("SET freshet.safety = '{safety}'"));
        assert_eq!(reader.lines("SELECT 1"), ["1"], "{safety}");
        assert_eq!(
            reader.lines("BEGIN; SELECT count(*) FROM pg_class WHERE relname = 'no'; COMMIT"),
            ["0"],
            "{safety}"
        );
    }
}

#[test]
fn a_standby_whose_state_differs_serves_no_reader() {
    let (primary, standby, _directories) = pair();
    let (writer, reader) = (primary.connect(), standby.connect());
    writer.lines("SET synchronous_commit = remote_apply; CREATE TABLE t (id int PRIMARY KEY, v int)");
    writer.lines("INSERT INTO t VALUES (1, 1)");
    assert_eq!(reader.lines("SELECT v FROM t"), ["1"]);
    eventually("the states were compared", || standby.node.state_proof().equal_at.is_some());
    // Replay takes what comes next for something old.
    let database = standby.node.database();
    let table = database.core().catalog.tables_at(database.core().snapshots.current()).pop().unwrap();
    let worker = database.worker().unwrap();
    {
        let guard = worker.pin();
        let content = table.content(&guard).unwrap();
        let without = (0..10_000).map(Rid).filter(|rid| content.replayed(*rid).is_none());
        without.for_each(|rid| assert!(content.replay_store(rid, Announcement::at(Lsn(1 << 40)))));
    }
    writer.lines("SET synchronous_commit = local; INSERT INTO t VALUES (2, 2)");
    eventually("the difference is found", || standby.node.proof().reason().is_some());
    assert_eq!(reader.state("SELECT v FROM t"), "XX001");
    assert_eq!(standby.connect().state("SELECT 1 FROM t"), "XX001");
    assert_eq!(writer.lines("SELECT v FROM t ORDER BY id"), ["1", "2"]);
}

/// What is acknowledged under remote_apply is there for a reader that begins afterwards and asks
/// for nothing.
#[test]
fn remote_apply_waits_until_standbys_show_a_commit() {
    let (primary, standby, _directories) = pair();
    let (writer, reader) = (primary.connect(), standby.connect());
    writer.lines("SET synchronous_commit = remote_apply; CREATE TABLE t (id int PRIMARY KEY, v text)");
    assert_eq!(reader.lines("SELECT count(*) FROM t"), ["0"]);
    let mut rows = 0;
    for round in 0..100 {
        // Long ones, whose replay takes longer than their way.
        let more = if round % 10 == 9 { 5_000 } else { 1 };
        writer.lines(&format!("INSERT INTO t SELECT g, 'x' || g FROM generate_series({rows} + 1, {rows} + {more}) g"));
        rows += more;
        assert_eq!(reader.lines("SELECT count(*) FROM t"), [rows.to_string()]);
    }
    writer.lines("BEGIN; DELETE FROM t WHERE id > 1; SAVEPOINT s; SELECT 1; COMMIT");
    assert_eq!(reader.lines("SELECT count(*) FROM t"), ["1"]);
    // What has only read has nothing to wait for.
    writer.lines("SELECT * FROM t; BEGIN; SELECT 1 FROM t; COMMIT");
}

/// A standby that never replays never shows a commit. The commit holds.
#[test]
fn remote_apply_can_be_canceled_while_a_standby_shows_nothing() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let of = |number: usize| NodeConfig { safety: Safety::TwoSafe, ..config(Some(directories[number].path())) };
    let primary = SqlNode::start(of(0));
    let join = Some(primary.node.address().to_owned());
    let _standby = SqlNode::start(NodeConfig { join, replay: ReplayMode::None, ..of(1) });
    let writer = primary.connect();
    writer.lines("CREATE TABLE t (id int PRIMARY KEY)");
    let in_sync = || match primary.node.status().role {
        RoleStatus::Primary { shipping, .. } => shipping.standbys.iter().any(|standby| standby.in_sync),
        _ => false,
    };
    eventually("it is in sync", in_sync);
    writer.lines("INSERT INTO t VALUES (1)");
    writer.lines("SET synchronous_commit = remote_apply; SET statement_timeout = '200ms'");
    let begun = Instant::now();
    writer.lines("INSERT INTO t VALUES (2)");
    assert!(begun.elapsed() >= std::time::Duration::from_millis(200), "nothing was waited for");
    let ended = primary.connect();
    ended.lines("SET synchronous_commit = remote_apply");
    let pid = ended.lines("SELECT pg_backend_pid()").remove(0);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| ended.state("INSERT INTO t VALUES (3)"));
        eventually("it is committed", || writer.lines("SELECT 1 FROM t WHERE id = 3") == ["1"]);
        writer.lines(&format!("SELECT pg_terminate_backend({pid})"));
        assert_eq!(waits.join().unwrap(), "57P01");
    });
    assert_eq!(writer.lines("SELECT count(*) FROM t"), ["3"]);
}

#[test]
fn a_primary_that_does_not_have_an_lsn_does_not_pretend_to() {
    let (primary, _standby, _directories) = pair();
    let session = primary.connect();
    session.lines("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let lsn: u64 = session.lines("SHOW freshet.last_commit").remove(0).parse().unwrap();
    session.lines(&format!("SET freshet.read_after_timeout = '20ms'; SET freshet.read_after = '{lsn}'"));
    assert_eq!(session.lines("SELECT id FROM t"), ["1"]);
    // As if from another primary that this one has not heard of, because this one stood still, for
    // example.
    session.lines(&format!("SET freshet.read_after = '{}'", lsn + (1 << 30)));
    assert_eq!(session.state("SELECT id FROM t"), "57014");
    assert_eq!(session.lines("RESET freshet.read_after; SELECT id FROM t"), ["1"]);
}

#[test]
fn a_view_is_no_older_than_it_may_be() {
    let (primary, standby, _directories) = pair();
    let reader = standby.connect();
    reader.lines("SET freshet.max_staleness = '10s'");
    assert_eq!(reader.lines("SELECT pg_is_in_recovery()"), ["t"]);
    // Without a primary it grows older.
    primary.node.stop().unwrap();
    reader.lines("SET freshet.max_staleness = '1ms'");
    eventually("it is too old", || reader.query("SELECT 1").is_err());
    assert_eq!(reader.state("SELECT 1"), "57014");
    reader.lines("RESET freshet.max_staleness; SELECT 1");
}

#[test]
fn definitions_reach_sessions_that_are_open() {
    let (primary, standby, _directories) = pair();
    let (writer, reader) = (primary.connect(), standby.connect());
    assert_eq!(reader.state("SELECT * FROM t"), "42P01");
    writer.lines("CREATE TABLE t (id int PRIMARY KEY, v text DEFAULT 'x'); INSERT INTO t VALUES (1)");
    eventually("the table", || reader.query("SELECT * FROM t").is_ok());
    writer.lines("ALTER TABLE t ADD COLUMN w int DEFAULT 7; CREATE INDEX t_v ON t (v)");
    eventually("the column", || reader.query("SELECT w FROM t").is_ok());
    assert_eq!(reader.lines("SELECT id, w FROM t WHERE v = 'x'"), ["1 7"]);
    writer.lines("DROP TABLE t");
    eventually("its end", || reader.query("SELECT * FROM t").is_err());
    assert_eq!(reader.state("SELECT * FROM t"), "42P01");
}

#[test]
fn a_standby_that_takes_over_takes_writes() {
    let (primary, standby, _directories) = pair();
    let writer = primary.connect();
    writer.lines("CREATE TABLE t (id serial PRIMARY KEY, v int); INSERT INTO t (v) VALUES (1), (2)");
    let reader = standby.connect();
    eventually("the rows", || {
        reader.query("SELECT count(*) FROM t").is_ok_and(|rows| rows[0][0].as_deref() == Some("2"))
    });
    primary.node.stop().unwrap();
    // A standby alone cannot know whether its primary went on without it (2-safe): the operator
    // says.
    standby.node.promote(Consent::Loss).unwrap();
    let sql = standby.connect();
    assert_eq!(sql.lines("SELECT pg_is_in_recovery()"), ["f"]);
    // Values that the old primary had logged ahead are not given out again.
    let id: i64 = sql.lines("INSERT INTO t (v) VALUES (3) RETURNING id").remove(0).parse().unwrap();
    assert!(id > 2, "{id}");
    assert_eq!(sql.lines("SELECT v FROM t ORDER BY id"), ["1", "2", "3"]);
    sql.lines("CREATE TABLE u (x int); INSERT INTO u VALUES (1)");
}

/// A standby whose primary is gone serves what it has, also when it begins again.
#[test]
fn a_standby_that_starts_alone_serves_what_it_has() {
    let (primary, standby, directories) = pair();
    let writer = primary.connect();
    writer.lines("SET synchronous_commit = remote_apply; CREATE TABLE t (id int); INSERT INTO t VALUES (1), (2)");
    assert_eq!(standby.connect().lines("SELECT count(*) FROM t"), ["2"]);
    let address = primary.node.address().to_owned();
    drop(primary);
    drop(standby);
    let again = NodeConfig { safety: Safety::TwoSafe, join: Some(address), ..config(Some(directories[1].path())) };
    let standby = SqlNode::start(again);
    eventually("it serves readers", || Sql::try_connect(standby.address(), "freshet", None).is_ok());
    assert_eq!(standby.connect().lines("SELECT count(*) FROM t"), ["2"]);
}
