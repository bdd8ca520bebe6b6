//! What became of a transaction, asked by its token: in other sessions, on standbys, after restarts
//! and failovers.

use std::time::{Duration, Instant};

use crate::common::{SOON, Sql, SqlNode, config, eventually};
use freshet_engine::{Consent, Encoding, MirrorSettings, NodeConfig, Safety, node::RoleStatus};

/// Begins a transaction that inserts `id`, and returns its token.
fn begin(sql: &Sql, id: u32) -> String {
    sql.lines(&format!("BEGIN; INSERT INTO t VALUES ({id})"));
    token(sql)
}

fn token(sql: &Sql) -> String {
    sql.lines("SELECT freshet_transaction_token()").remove(0)
}

fn outcome(sql: &Sql, token: &str) -> String {
    sql.lines(&format!("SELECT freshet_transaction_outcome('{token}')")).remove(0)
}

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY)";

#[test]
fn a_transaction_has_one_outcome_which_others_can_ask_for() {
    let (_node, sql, other) = SqlNode::for_two(TABLE);
    for (end, becomes) in [("ROLLBACK", "aborted"), ("COMMIT", "committed")] {
        let token = begin(&sql, 1);
        assert_eq!(sql.lines("SELECT freshet_transaction_token()"), [token.as_str()], "a transaction has one");
        for session in [&sql, &other] {
            assert_eq!(outcome(session, &token), "in progress");
        }
        sql.lines(end);
        for session in [&sql, &other] {
            assert_eq!(outcome(session, &token), becomes);
        }
    }
    // Each transaction has its own, whatever else it does.
    let first = begin(&sql, 2);
    sql.lines("COMMIT AND CHAIN");
    let second = token(&sql);
    assert_ne!(first, second);
    assert_eq!([outcome(&other, &first), outcome(&other, &second)], ["committed", "in progress"]);
    sql.lines("COMMIT");
    assert_eq!(outcome(&other, &second), "committed", "it has written nothing but its token");
    let alone = token(&sql);
    assert_eq!(outcome(&other, &alone), "committed", "a transaction of one statement");
    // A token may be kept in a row.
    sql.lines("CREATE TABLE u (id int PRIMARY KEY, token uuid DEFAULT freshet_transaction_token())");
    sql.lines("INSERT INTO u (id) VALUES (1), (2)");
    let kept = "SELECT DISTINCT freshet_transaction_outcome(token) FROM u";
    assert_eq!(other.lines(kept), ["committed"]);
}

#[test]
fn every_kind_of_statement_can_ask() {
    let (_node, sql, other) = SqlNode::for_two(TABLE);
    let first = begin(&sql, 1);
    let ask = format!("freshet_transaction_outcome('{first}')");
    sql.lines("PREPARE p AS SELECT freshet_transaction_token()");
    sql.lines(&format!("DECLARE c CURSOR FOR SELECT {ask}"));
    let all = "SELECT count(DISTINCT freshet_transaction_token()) FROM generate_series(1, 10)";
    for (statement, answer) in [
        ("EXECUTE p", first.as_str()),
        ("FETCH c", "in progress"),
        (all, "1"),
        ("SELECT freshet_transaction_token() FROM t ORDER BY 1 LIMIT 1", &first),
        ("WITH q AS MATERIALIZED (SELECT freshet_transaction_token() AS it) SELECT it FROM q", &first),
        ("INSERT INTO t VALUES (2) RETURNING freshet_transaction_token()", &first),
        ("UPDATE t SET id = 3 WHERE id = 2 AND freshet_transaction_token() IS NOT NULL RETURNING id", "3"),
    ] {
        assert_eq!(sql.lines(statement), [answer], "{statement}");
    }
    let copied = sql.runtime.block_on(async {
        let rows = sql.client.copy_out("COPY (SELECT freshet_transaction_token()) TO STDOUT").await.unwrap();
        futures_util::TryStreamExt::try_collect::<Vec<_>>(rows).await.unwrap().concat()
    });
    assert_eq!(String::from_utf8(copied).unwrap().trim(), first);
    sql.lines("COMMIT");
    assert_eq!(other.lines(&format!("SELECT {ask}, {ask} FROM t")), ["committed committed"; 2]);
    let row =
        sql.runtime.block_on(sql.client.query_one("SELECT freshet_transaction_outcome($1::text::uuid)", &[&first]));
    assert_eq!(row.unwrap().get::<_, &str>(0), "committed");
}

#[test]
fn what_is_no_token_of_this_database_has_no_outcome() {
    let (_node, sql, other) = SqlNode::for_two(TABLE);
    let strange = ["00000000-0000-8000-8000-000000000000", "ffffffff-ffff-8fff-bfff-ffffffffffff"];
    for token in strange {
        assert_eq!(outcome(&sql, token), "NULL");
    }
    let token = begin(&sql, 1);
    sql.lines("COMMIT");
    for token in strange {
        assert_eq!(outcome(&other, token), "NULL");
    }
    // Of its generation, and made up: no transaction has it.
    let made_up = format!("{}-0000-8000-800000000000", &token[..13]);
    assert_eq!(outcome(&other, &made_up), "NULL", "{made_up}");
    assert_eq!(other.lines("SELECT freshet_transaction_outcome(NULL)"), ["NULL"]);
    assert_eq!(other.state("SELECT freshet_transaction_outcome('x')"), "22P02");
}

#[test]
fn a_transaction_that_fails_is_not_committed() {
    let (_node, sql, other) = SqlNode::for_two(TABLE);
    sql.lines("INSERT INTO t VALUES (0)");
    // By a statement that fails: at once, unless a savepoint may want it back.
    let token = begin(&sql, 1);
    assert_eq!(sql.state("INSERT INTO t VALUES (0)"), "23505");
    assert_eq!(outcome(&other, &token), "aborted");
    sql.lines("ROLLBACK");
    let token = begin(&sql, 1);
    sql.lines("SAVEPOINT s");
    assert_eq!(sql.state("INSERT INTO t VALUES (0)"), "23505");
    assert_eq!(outcome(&other, &token), "in progress");
    sql.lines("COMMIT");
    assert_eq!(outcome(&other, &token), "aborted");
    // By its commit.
    sql.lines("CREATE TABLE c (id int PRIMARY KEY, t int REFERENCES t DEFERRABLE INITIALLY DEFERRED)");
    let token = begin(&sql, 1);
    sql.lines("INSERT INTO c VALUES (1, 77)");
    assert_eq!(sql.state("COMMIT"), "23503");
    assert_eq!(outcome(&other, &token), "aborted");
    // By what others have committed.
    for session in [&sql, &other] {
        session.lines("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM t");
    }
    let tokens = [&sql, &other].map(token_of_insert);
    sql.lines("COMMIT");
    assert_eq!(other.state("COMMIT"), "40001");
    assert_eq!(tokens.map(|token| outcome(&sql, &token)), ["committed", "aborted"]);
}

fn token_of_insert(sql: &Sql) -> String {
    sql.lines("INSERT INTO t SELECT max(id) + 1 + pg_backend_pid() FROM t");
    token(sql)
}

#[test]
fn savepoints_take_no_token_back() {
    let (_node, sql, other) = SqlNode::for_two(TABLE);
    sql.lines("BEGIN; INSERT INTO t VALUES (1); SAVEPOINT s; INSERT INTO t VALUES (2)");
    let first = token(&sql);
    sql.lines("ROLLBACK TO s");
    assert_eq!(outcome(&other, &first), "in progress");
    assert_eq!(token(&sql), first);
    sql.lines("COMMIT");
    assert_eq!(outcome(&other, &first), "committed");
    assert_eq!(other.lines("SELECT id FROM t"), ["1"]);
}

#[test]
fn an_old_snapshot_has_the_newest_outcome() {
    let (_node, sql, other) = SqlNode::for_two(TABLE);
    let token = begin(&sql, 1);
    for level in ["REPEATABLE READ", "SERIALIZABLE READ ONLY DEFERRABLE"] {
        other.lines(&format!("BEGIN ISOLATION LEVEL {level}"));
        assert_eq!(other.lines("SELECT count(*) FROM t"), ["0"]);
        assert_eq!(outcome(&other, &token), "in progress");
        if level == "REPEATABLE READ" {
            other.lines("COMMIT");
        }
    }
    sql.lines("COMMIT");
    assert_eq!(other.lines("SELECT count(*) FROM t"), ["0"]);
    assert_eq!(outcome(&other, &token), "committed");
}

#[test]
fn who_may_not_write_gets_no_token_and_everybody_may_ask() {
    let (node, sql, other) = SqlNode::for_two(TABLE);
    sql.lines("CREATE ROLE reader LOGIN");
    let token = begin(&sql, 1);
    let reader = node.connect_as("reader");
    assert_eq!(outcome(&reader, &token), "in progress");
    let own = reader.lines("SELECT freshet_transaction_token()").remove(0);
    assert_eq!(outcome(&sql, &own), "committed");
    for begin in ["BEGIN READ ONLY", "BEGIN; SET TRANSACTION READ ONLY", "SET default_transaction_read_only = on"] {
        other.lines(begin);
        assert_eq!(other.state("SELECT freshet_transaction_token()"), "25006", "{begin}");
        other.lines("ROLLBACK");
    }
    assert_eq!(outcome(&other, &token), "in progress");
    sql.lines("COMMIT");
    assert_eq!(outcome(&other, &token), "committed");
}

#[test]
fn a_session_that_ends_leaves_nothing_open() {
    let (node, sql, other) = SqlNode::for_two(TABLE);
    let (lost, ended) = (node.connect(), node.connect());
    let tokens = [begin(&lost, 1), begin(&ended, 2), begin(&sql, 3)];
    drop(lost);
    let pid = ended.lines("SELECT pg_backend_pid()").remove(0);
    other.lines(&format!("SELECT pg_terminate_backend({pid})"));
    for token in &tokens[..2] {
        eventually("it was rolled back", || outcome(&other, token) == "aborted");
    }
    assert_eq!(outcome(&other, &tokens[2]), "in progress");
    sql.lines("COMMIT");
    assert_eq!(outcome(&other, &tokens[2]), "committed");
}

#[test]
fn a_restart_changes_no_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let start = || SqlNode::start(config(Some(directory.path())));
    let mut tokens = Vec::new();
    for round in 0..3 {
        let node = start();
        let (sql, other) = (node.connect(), node.connect());
        if round == 0 {
            sql.lines(TABLE);
        }
        let committed = begin(&sql, 10 * round);
        sql.lines("COMMIT");
        let open = begin(&other, 10 * round + 1);
        tokens.push((committed, open));
        for (number, (committed, open)) in tokens.iter().enumerate() {
            let last = number + 1 == tokens.len();
            assert_eq!(outcome(&sql, committed), "committed");
            assert_eq!(outcome(&sql, open), if last { "in progress" } else { "aborted" });
        }
        if round == 1 {
            node.node.checkpoint(freshet_engine::CheckpointKind::Fuzzy).unwrap();
        }
    }
}

fn of(directory: &tempfile::TempDir, safety: Safety) -> NodeConfig {
    NodeConfig { safety, ..config(Some(directory.path())) }
}

/// Waits until a standby shows what a primary has.
fn catch_up(primary: &SqlNode, standby: &SqlNode) {
    let end = primary.node.database().core().snapshots.current();
    standby.node.wait_visible(end, Some(Instant::now() + SOON)).unwrap();
}

/// A standby answers what its log says, and no more; when it has taken over, it knows the rest, and
/// so do those that follow it.
fn through_a_failover(encoding: Encoding) {
    let directories = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let primary = SqlNode::start(of(&directories[0], Safety::TwoSafe));
    let follow = |number: usize, primary: &SqlNode| {
        let join = Some(primary.node.address().to_owned());
        SqlNode::start(NodeConfig { join, encoding, ..of(&directories[number], Safety::TwoSafe) })
    };
    let standby = follow(1, &primary);
    let (sql, lost) = (primary.connect(), primary.connect());
    sql.lines(TABLE);
    catch_up(&primary, &standby);
    let reader = standby.connect();
    assert_eq!(reader.state("SELECT freshet_transaction_token()"), "25006");
    let [kept, back] = [("COMMIT", 1), ("ROLLBACK", 2)].map(|(end, id)| {
        let token = begin(&sql, id);
        sql.lines(end);
        token
    });
    let open = begin(&lost, 3);
    eventually("it is replayed", || outcome(&reader, &kept) == "committed");
    assert_eq!(reader.lines("SELECT id FROM t"), ["1"]);
    for token in [&back, &open] {
        assert_eq!(outcome(&reader, token), "unknown");
    }
    // One of a generation that may still come, and one that cannot.
    assert_eq!(outcome(&reader, "ffffffff-ffff-8fff-bfff-ffffffffffff"), "unknown");
    assert_eq!(outcome(&reader, "00000000-0000-8000-8000-000000000000"), "NULL");
    drop((sql, lost, primary));

    standby.node.promote(Consent::Loss).unwrap();
    let third = follow(2, &standby);
    // A session that was there before, and the first one that comes.
    for sql in [reader, standby.connect()] {
        assert_eq!([&kept, &back, &open].map(|token| outcome(&sql, token)), ["committed", "aborted", "aborted"]);
    }
    let late = begin(&standby.connect(), 4);
    catch_up(&standby, &third);
    let reader = third.connect();
    assert_eq!([&kept, &back, &open].map(|token| outcome(&reader, token)), ["committed", "aborted", "aborted"]);
    assert!(["unknown", "NULL"].contains(&outcome(&reader, &late).as_str()));
}

#[test]
fn a_failover_changes_no_outcome() {
    through_a_failover(Encoding::Bytes);
}

#[test]
fn a_failover_to_a_node_that_executes_statements_changes_none() {
    through_a_failover(Encoding::Inputs);
}

#[test]
fn a_failover_to_a_mirror_changes_none() {
    let directories = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let primary = SqlNode::start(of(&directories[0], Safety::Quorum(2)));
    let join = Some(primary.node.address().to_owned());
    let mirror = MirrorSettings { bytes: 256 << 20, directory_bytes: 1 << 20, ..MirrorSettings::default() };
    let mirror = SqlNode::start(NodeConfig { join, mirror, ..of(&directories[1], Safety::Quorum(2)) });
    let (sql, lost) = (primary.connect(), primary.connect());
    sql.lines(TABLE);
    let kept = begin(&sql, 1);
    sql.lines("COMMIT");
    let open = begin(&lost, 2);
    eventually("the mirror is whole", || matches!(mirror.node.status().role, RoleStatus::Mirror { own } if own.whole));
    drop((sql, lost, primary));
    mirror.node.promote(Consent::Loss).unwrap();
    let join = Some(mirror.node.address().into());
    let back = SqlNode::start(NodeConfig { join, ..of(&directories[2], Safety::Quorum(2)) });
    let sql = mirror.connect();
    assert_eq!([&kept, &open].map(|token| outcome(&sql, token)), ["committed", "aborted"]);
    assert_eq!(sql.lines("SELECT id FROM t"), ["1"]);
    catch_up(&mirror, &back);
    let reader = back.connect();
    assert_eq!([&kept, &open].map(|token| outcome(&reader, token)), ["committed", "aborted"]);
}

/// A commit whose client was not answered is committed when it is, and not before.
#[test]
fn nothing_is_committed_before_it_is_kept() {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let primary = SqlNode::start(of(&directories[0], Safety::Quorum(2)));
    let follow = || {
        let join = Some(primary.node.address().to_owned());
        SqlNode::start(NodeConfig { join, ..of(&directories[1], Safety::Quorum(2)) })
    };
    let standby = follow();
    let (sql, other) = (primary.connect(), primary.connect());
    sql.lines(TABLE);
    // Its generation is kept.
    let before = token(&sql);
    drop(standby);
    let open = begin(&sql, 1);
    other.lines("SET statement_timeout = '50ms'");
    let error = std::thread::scope(|scope| {
        let committing = scope.spawn(|| sql.query("SET statement_timeout = '500ms'; COMMIT").unwrap_err());
        while !committing.is_finished() {
            let asked = other.query(&format!("SELECT freshet_transaction_outcome('{open}')"));
            assert!(asked.is_err() || asked.unwrap() == [[Some("in progress".to_owned())]]);
            std::thread::sleep(Duration::from_millis(1));
        }
        committing.join().unwrap()
    });
    let error = error.as_db_error().expect("the session continues");
    assert_eq!(error.code().code(), "40003");
    assert!(error.detail().is_some_and(|detail| detail.contains(&open)), "{error:?}");
    let ask = format!("SELECT freshet_transaction_outcome('{open}')");
    assert_eq!(other.state(&ask), "57014", "it waits for the commit");
    assert_eq!(other.state(&format!("BEGIN; {ask}")), "57014", "also within a transaction");
    other.lines("ROLLBACK");
    assert_eq!(outcome(&other, &before), "committed");
    // Nor is it aborted: it is there, and is kept now.
    let standby = follow();
    other.lines("SET statement_timeout = 0");
    assert_eq!(outcome(&other, &open), "committed");
    let reader = standby.connect();
    eventually("it is shown", || outcome(&reader, &open) == "committed");
}
