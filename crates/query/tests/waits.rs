//! What a session waits for ends by a time-out, by a request to cancel, and with the session; and
//! reads of what is committed do not wait.

use std::time::{Duration, Instant};

use crate::common::{
    SOON, Sql, SqlNode, config,
    wire::{Part, Wire},
};
use freshet_base::wait::BOUND;
use freshet_engine::{NodeConfig, Safety};

/// A primary under very-safe whose standby is gone: nothing commits any more. There is a table with
/// two rows, and a sequence.
fn blocked() -> (SqlNode, [tempfile::TempDir; 2]) {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let of = |number: usize| {
        let mut config = NodeConfig { safety: Safety::Quorum(2), ..config(Some(directories[number].path())) };
        config.log.uncommitted_bytes = 256 << 10;
        config
    };
    let primary = SqlNode::start(of(0));
    let standby = SqlNode::start(NodeConfig { join: Some(primary.node.address().to_owned()), ..of(1) });
    primary.connect().lines(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2); CREATE SEQUENCE s; CREATE TABLE u (x int)",
    );
    drop(standby);
    (primary, directories)
}

/// The SQLSTATE with which a statement fails, if it ends at all: at once when it is to, and not
/// when its session happens to look.
fn ends(sql: &Sql, statement: &str) -> String {
    let begun = Instant::now();
    let state = ends_some_time(sql, statement);
    assert!(begun.elapsed() < BOUND, "{statement} has ended after {:?}", begun.elapsed());
    state
}

fn ends_some_time(sql: &Sql, statement: &str) -> String {
    match sql.runtime.block_on(async { tokio::time::timeout(SOON, sql.client.simple_query(statement)).await }) {
        Err(_) => panic!("{statement} has not ended after {SOON:?}"),
        Ok(Ok(_)) => panic!("{statement} has succeeded"),
        Ok(Err(error)) => error.code().map_or_else(|| "closed".to_owned(), |state| state.code().to_owned()),
    }
}

#[test]
fn a_time_out_ends_every_wait() {
    let (primary, _directories) = blocked();
    let (writer, reader) = (primary.connect(), primary.connect());
    for session in [&writer, &reader] {
        session.lines("SET statement_timeout = '100ms'");
    }
    // What becomes of it is unknown.
    assert_eq!(ends(&writer, "INSERT INTO t VALUES (3, 3)"), "40003");
    writer.lines("BEGIN; UPDATE t SET v = 4 WHERE id = 2");
    assert_eq!(ends(&writer, "COMMIT"), "40003");
    assert_eq!(ends(&writer, "SET freshet.safety = 'very-safe'; INSERT INTO u VALUES (1)"), "40003");
    writer.lines("RESET freshet.safety");
    // Who reads what may be lost waits for it; who reads what is committed does not.
    assert_eq!(ends(&reader, "SELECT v FROM t WHERE id = 3"), "57014");
    assert_eq!(ends(&reader, "SELECT v FROM t WHERE id = 2"), "57014");
    assert_eq!(reader.lines("SELECT v FROM t WHERE id = 1"), ["1"]);
    assert_eq!(reader.lines("SELECT 1"), ["1"]);
    // That a key is taken is said of what is kept, and not of what may be lost.
    for insert in ["INSERT INTO t VALUES (3, 4)", "INSERT INTO t VALUES (3, 4) ON CONFLICT DO NOTHING"] {
        assert_eq!(ends(&reader, insert), "57014", "{insert}");
        reader.lines("BEGIN ISOLATION LEVEL SERIALIZABLE");
        let ended = reader.query(insert).is_err() || reader.query("COMMIT").is_err();
        assert!(ended, "{insert}");
        let _ = reader.query("ROLLBACK");
    }
    assert_eq!(ends(&reader, "INSERT INTO t VALUES (1, 4)"), "23505");
    reader.lines("INSERT INTO t VALUES (1, 4) ON CONFLICT DO NOTHING");
    // What is to be logged before it is given out, and definitions, which wait in between.
    assert_eq!(ends(&writer, "SELECT nextval('s')"), "57014");
    assert_eq!(ends(&writer, "CREATE INDEX t_v ON t (v)"), "57014");
    // Who does not want to wait for others need not.
    writer.lines("SET synchronous_commit = local; INSERT INTO t VALUES (5, 5)");
    writer.lines("SET statement_timeout = 0; SET synchronous_commit = off; INSERT INTO t VALUES (6, 6)");
}

#[test]
fn a_request_to_cancel_ends_a_wait_and_so_does_the_end_of_the_session() {
    let (primary, _directories) = blocked();
    let (other, early) = (primary.connect(), primary.connect());
    for (statement, state) in [("INSERT INTO t VALUES (3, 3)", "40003"), ("SELECT v FROM t WHERE id = 3", "57014")] {
        let session = primary.connect();
        let pid = session.lines("SELECT pg_backend_pid()").remove(0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ends(&session, statement));
            // Before it has taken effect, a request to cancel takes it back.
            early.lines("SET synchronous_commit = off");
            crate::common::eventually("it has taken effect", || {
                !early.lines("SELECT 1 FROM t WHERE id = 3").is_empty()
            });
            // It may not have begun to wait: a request that comes too early does nothing.
            let deadline = Instant::now() + SOON;
            while !waits.is_finished() && Instant::now() < deadline {
                other.lines(&format!("SELECT pg_cancel_backend({pid})"));
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(waits.join().unwrap(), state);
        });
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ends(&session, "INSERT INTO u VALUES (1)"));
            let busy = format!("SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND query LIKE 'INSERT INTO u%'");
            crate::common::eventually("it runs", || !other.lines(&busy).is_empty());
            other.lines(&format!("SELECT pg_terminate_backend({pid})"));
            let state = waits.join().unwrap();
            assert!(["40003", "57P01", "closed"].contains(&state.as_str()), "{state}");
        });
        assert!(session.query("SELECT 1").is_err(), "the session is over");
    }
}

/// The end of the session alone would say that nothing was done.
#[test]
fn a_commit_that_waits_is_unknown_when_its_session_ends() {
    let (primary, _directories) = blocked();
    let (early, other) = (primary.connect(), primary.connect());
    early.lines("SET synchronous_commit = off");
    let mut wire = Wire::tcp(primary.address());
    let row = |part: Part| if let Part::Row(row) = part { row.into_iter().flatten().next() } else { None };
    let pid = wire.query("SELECT pg_backend_pid()").parts.into_iter().find_map(row).unwrap();
    wire.ask("INSERT INTO t VALUES (4, 4)", "");
    crate::common::eventually("it has taken effect", || !early.lines("SELECT 1 FROM t WHERE id = 4").is_empty());
    other.lines(&format!("SELECT pg_terminate_backend({pid})"));
    assert_eq!(wire.last_errors(), ["40003", "57P01"]);
}

/// Nothing has happened yet when a commit waits for room, so the outcome is known.
#[test]
fn who_has_no_room_for_more_that_is_uncommitted_can_be_ended() {
    let (primary, _directories) = blocked();
    let writer = primary.connect();
    writer.lines("SET synchronous_commit = off; SET statement_timeout = '1s'");
    let mut rows = 0;
    let state = loop {
        // Some 100 KB of log.
        let insert = format!("INSERT INTO u SELECT {rows} FROM generate_series(1, 2000)");
        if writer.query(&insert).is_err() {
            break ends(&writer, &insert);
        }
        rows += 1;
        assert!(rows < 100, "nothing is committed, and everything is taken");
    };
    assert_eq!(state, "57014");
    writer.lines("SET synchronous_commit = local");
    let reader = primary.connect();
    reader.lines("SET synchronous_commit = off");
    assert_eq!(reader.lines("SELECT count(*) FROM u"), [(rows * 2000).to_string()]);
}
