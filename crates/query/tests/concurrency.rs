//! What concurrent sessions may do to one another, by name, at each level; locks, waits and their
//! ends.

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use crate::common::{Sql, SqlNode, eventually};

fn prepared(sql: &str) -> (SqlNode, Sql, Sql) {
    let node = SqlNode::in_memory();
    let (one, other) = (node.connect(), node.connect());
    one.lines(sql);
    (node, one, other)
}

const ACCOUNTS: &str = "CREATE TABLE a (id int PRIMARY KEY, v int); INSERT INTO a VALUES (1, 10), (2, 20)";

#[test]
fn nothing_uncommitted_is_read_at_any_level() {
    for level in ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let (_node, one, other) = prepared(ACCOUNTS);
        one.lines(&format!("BEGIN ISOLATION LEVEL {level}; UPDATE a SET v = 99 WHERE id = 1"));
        assert_eq!(other.lines("SELECT v FROM a WHERE id = 1"), ["10"], "{level}");
        one.lines("ROLLBACK");
        assert_eq!(other.lines("SELECT v FROM a WHERE id = 1"), ["10"], "{level}");
    }
}

#[test]
fn reads_are_repeated_where_the_level_demands_it() {
    for (level, second) in [("READ COMMITTED", "11"), ("REPEATABLE READ", "10"), ("SERIALIZABLE", "10")] {
        let (_node, one, other) = prepared(ACCOUNTS);
        one.lines(&format!("BEGIN ISOLATION LEVEL {level}"));
        assert_eq!(one.lines("SELECT v FROM a WHERE id = 1"), ["10"]);
        other.lines("UPDATE a SET v = 11 WHERE id = 1");
        assert_eq!(one.lines("SELECT v FROM a WHERE id = 1"), [second], "{level}");
        one.lines("COMMIT");
    }
}

#[test]
fn no_update_is_lost() {
    // READ COMMITTED waits and looks again; the others fail.
    for (level, state) in
        [("READ COMMITTED", None), ("REPEATABLE READ", Some("40001")), ("SERIALIZABLE", Some("40001"))]
    {
        let (_node, one, other) = prepared(ACCOUNTS);
        other.lines(&format!("BEGIN ISOLATION LEVEL {level}; SELECT v FROM a WHERE id = 1"));
        one.lines("BEGIN; UPDATE a SET v = v + 1 WHERE id = 1");
        let waiting = thread::spawn(move || {
            let done = other.query("UPDATE a SET v = v + 1 WHERE id = 1");
            (done.map_err(|error| error.code().unwrap().code().to_owned()), other)
        });
        one.lines("COMMIT");
        let (done, other) = waiting.join().unwrap();
        assert_eq!(done.err().as_deref(), state, "{level}");
        other.lines("COMMIT");
        let expected = if state.is_none() { "12" } else { "11" };
        assert_eq!(one.lines("SELECT v FROM a WHERE id = 1"), [expected], "{level}");
    }
}

#[test]
fn a_condition_is_looked_at_again_after_a_wait() {
    let (_node, one, other) = prepared(ACCOUNTS);
    one.lines("BEGIN; UPDATE a SET v = 50 WHERE id = 1; DELETE FROM a WHERE id = 2");
    let waiting = thread::spawn(move || {
        (other.lines("UPDATE a SET v = v + 1 WHERE v < 30 RETURNING id"), other.lines("SELECT id, v FROM a"))
    });
    one.lines("COMMIT");
    assert_eq!(waiting.join().unwrap(), (Vec::<String>::new(), vec!["1 50".to_owned()]));
}

#[test]
fn what_a_query_finds_to_be_changed_is_found_again_after_a_wait() {
    for statement in [
        "UPDATE a SET v = a.v + b.w FROM b WHERE a.id = b.id RETURNING a.id, a.v",
        "WITH c AS (SELECT id, w FROM b) UPDATE a SET v = v + (SELECT w FROM c WHERE c.id = a.id) \
         WHERE id IN (SELECT id FROM c) RETURNING id, v",
    ] {
        let (_node, one, other) = prepared(ACCOUNTS);
        one.lines("CREATE TABLE b (id int PRIMARY KEY, w int); INSERT INTO b VALUES (1, 1), (2, 2)");
        one.lines(
            "BEGIN; UPDATE a SET v = 50 WHERE id = 1; UPDATE b SET w = 100 WHERE id = 1; DELETE FROM b WHERE id = 2",
        );
        let statement = statement.to_owned();
        let waiting = thread::spawn(move || (other.lines(&statement), other));
        eventually("the other waits", || one.lines("SELECT count(*) FROM pg_locks WHERE NOT granted") == ["1"]);
        one.lines("COMMIT");
        // Of both tables what was there after the wait; row 2 has lost its partner.
        let (found, _other) = waiting.join().unwrap();
        assert_eq!(found, ["1 150"]);
        assert_eq!(one.lines("SELECT id, v FROM a ORDER BY id"), ["1 150", "2 20"]);
    }
}

#[test]
fn workers_at_a_queue_never_take_the_same_job() {
    let node = SqlNode::in_memory();
    let first = node.connect();
    first.lines("CREATE TABLE job (id int PRIMARY KEY, taken int NOT NULL DEFAULT 0)");
    first.lines("INSERT INTO job SELECT g FROM generate_series(1, 200) g");
    let take = "UPDATE job SET taken = taken + 1 WHERE id = \
                (SELECT id FROM job WHERE taken = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id";
    let workers: Vec<_> = (0..4).map(|_| node.connect()).collect();
    let workers = workers.into_iter().map(|worker| {
        thread::spawn(move || {
            let mut taken = Vec::new();
            loop {
                match worker.lines(take).pop() {
                    Some(id) => taken.push(id),
                    None => return taken,
                }
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut taken: Vec<u32> =
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).map(|id| id.parse().unwrap()).collect();
    taken.sort_unstable();
    assert_eq!(taken, (1..=200).collect::<Vec<_>>());
    assert_eq!(first.lines("SELECT min(taken), max(taken) FROM job"), ["1 1"]);
}

#[test]
fn write_skew_is_for_serializable_to_prevent() {
    for (level, prevented) in [("REPEATABLE READ", false), ("SERIALIZABLE", true)] {
        let (_node, one, other) = prepared(ACCOUNTS);
        for session in [&one, &other] {
            session.lines(&format!("BEGIN ISOLATION LEVEL {level}; SELECT sum(v) FROM a"));
        }
        one.lines("UPDATE a SET v = v - 20 WHERE id = 1");
        other.lines("UPDATE a SET v = v - 20 WHERE id = 2");
        one.lines("COMMIT");
        match prevented {
            true => assert_eq!(other.state("COMMIT"), "40001"),
            false => drop(other.lines("COMMIT")),
        }
        assert_eq!(one.lines("SELECT sum(v) FROM a"), [if prevented { "10" } else { "-10" }]);
    }
}

#[test]
fn phantoms_are_for_serializable_to_prevent() {
    let (_node, one, other) = prepared(ACCOUNTS);
    for session in [&one, &other] {
        session.lines("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM a WHERE id BETWEEN 5 AND 9");
    }
    one.lines("INSERT INTO a VALUES (5, 0)");
    other.lines("INSERT INTO a VALUES (6, 0)");
    one.lines("COMMIT");
    assert_eq!(other.state("COMMIT"), "40001");
}

#[test]
fn of_two_that_wait_for_each_other_one_gives_up() {
    let (_node, one, other) = prepared(ACCOUNTS);
    one.lines("BEGIN; UPDATE a SET v = 1 WHERE id = 1");
    other.lines("BEGIN; UPDATE a SET v = 2 WHERE id = 2");
    let waiting = thread::spawn(move || {
        let done =
            one.query("UPDATE a SET v = 1 WHERE id = 2").map_err(|error| error.code().unwrap().code().to_owned());
        (done.err(), one)
    });
    let second =
        other.query("UPDATE a SET v = 2 WHERE id = 1").map_err(|error| error.code().unwrap().code().to_owned());
    if second.is_err() {
        other.lines("ROLLBACK");
    }
    let (first, one) = waiting.join().unwrap();
    let given_up: Vec<String> = first.into_iter().chain(second.err()).collect();
    assert_eq!(given_up, ["40P01"]);
    drop(one);
}

#[test]
fn waits_end_as_they_are_configured_to() {
    let (_node, one, other) = prepared(ACCOUNTS);
    one.lines("BEGIN; SELECT * FROM a WHERE id = 1 FOR UPDATE");
    assert_eq!(other.state("SELECT * FROM a WHERE id = 1 FOR UPDATE NOWAIT"), "55P03");
    assert_eq!(other.lines("SELECT id FROM a ORDER BY id FOR UPDATE SKIP LOCKED"), ["2"]);
    other.lines("SET lock_timeout = '20ms'");
    assert_eq!(other.state("UPDATE a SET v = 0 WHERE id = 1"), "55P03");
    other.lines("SET lock_timeout = 0; SET statement_timeout = '20ms'");
    assert_eq!(other.state("UPDATE a SET v = 0 WHERE id = 1"), "57014");
    let begun = std::time::Instant::now();
    assert_eq!(other.state("SELECT pg_sleep(100)"), "57014");
    assert!(begun.elapsed() < freshet_base::wait::BOUND);
    other.lines("SET statement_timeout = 0");
    let cancel = other.client.cancel_token();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let waiting = thread::spawn(move || (other.state("UPDATE a SET v = 0 WHERE id = 1"), other));
    // It may not have begun to wait yet; asking once more does no harm.
    while !waiting.is_finished() {
        runtime.block_on(cancel.cancel_query(tokio_postgres::NoTls)).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(waiting.join().unwrap().0, "57014");
    assert_eq!(one.lines("SELECT v FROM a WHERE id = 1"), ["10"]);
}

#[test]
fn definitions_wait_for_writers_and_writers_notice_them() {
    let (_node, one, other) = prepared(ACCOUNTS);
    one.lines("BEGIN; UPDATE a SET v = 11 WHERE id = 1");
    let altering = thread::spawn(move || {
        other.lines("ALTER TABLE a ADD COLUMN w int DEFAULT 5; CREATE INDEX a_v ON a (v)");
        other
    });
    one.lines("UPDATE a SET v = 12 WHERE id = 1; COMMIT");
    let other = altering.join().unwrap();
    assert_eq!(one.lines("UPDATE a SET w = v WHERE id = 1 RETURNING id, v, w"), ["1 12 12"]);
    assert_eq!(other.lines("SELECT id FROM a WHERE v = 12"), ["1"]);
    // A statement that was prepared before continues with the new definition.
    one.lines("PREPARE p AS INSERT INTO a (id, v) VALUES ($1, 0)");
    other.lines("ALTER TABLE a ALTER COLUMN w SET DEFAULT 6; TRUNCATE a");
    one.lines("EXECUTE p (7)");
    assert_eq!(other.lines("SELECT * FROM a"), ["7 0 6"]);
}

/// Runs `change` in one session, then `statement` in the other, which waits until the first
/// commits. Says what has become of the statement.
fn waited(sql: &str, change: &str, statement: &'static str) -> (SqlNode, Sql, String) {
    let (node, one, other) = prepared(sql);
    one.lines(&format!("BEGIN; {change}"));
    let waiting = thread::spawn(move || other.outcome(statement));
    eventually("it waits", || one.lines("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted") == ["t"]);
    one.lines("COMMIT");
    let state = waiting.join().unwrap();
    (node, one, state)
}

#[test]
fn a_query_of_a_definition_is_bound_to_what_there_is_after_a_wait() {
    let view = "CREATE VIEW w AS SELECT id, v FROM a";
    for (change, statement, state) in [
        ("DROP TABLE a CASCADE", view, "42P01"),
        ("ALTER TABLE a RENAME TO a9", view, "42P01"),
        ("ALTER TABLE a SET SCHEMA s", view, "42P01"),
        ("ALTER TABLE a DROP COLUMN v CASCADE", view, "42703"),
        ("DROP VIEW x; ALTER TABLE a RENAME v TO v9", view, "42703"),
        ("DROP VIEW x", "CREATE VIEW w AS SELECT * FROM x", "42P01"),
        ("ALTER VIEW x RENAME TO x9", "CREATE VIEW w AS SELECT * FROM x", "42P01"),
        ("DROP TABLE a CASCADE", "CREATE VIEW w AS SELECT count(*) FROM a JOIN a AS b USING (id)", "42P01"),
        ("DROP TABLE a CASCADE", "CREATE OR REPLACE VIEW y AS SELECT id FROM a", "42P01"),
        ("DROP TABLE a CASCADE", "CREATE TABLE w AS SELECT * FROM a", "42P01"),
        ("ALTER TABLE a DROP COLUMN v CASCADE", "CREATE TABLE w AS SELECT v FROM a", "42703"),
    ] {
        let tables =
            format!("{ACCOUNTS}; CREATE SCHEMA s; CREATE VIEW x AS SELECT * FROM a; CREATE VIEW y AS SELECT 1 AS id");
        let (_node, one, found) = waited(&tables, change, statement);
        assert_eq!(found, state, "{change}, {statement}");
        assert_eq!(one.lines("SELECT count(*) FROM pg_class WHERE relname = 'w'"), ["0"]);
    }
    let text = "ALTER TABLE a ALTER v TYPE text USING 'n' || v";
    let (_node, _one, found) = waited(ACCOUNTS, text, "CREATE VIEW w AS SELECT v + 1 AS v FROM a");
    assert_eq!(found, "42883");
    for statement in ["CREATE VIEW w AS SELECT * FROM a", "CREATE TABLE w AS SELECT * FROM a"] {
        let (_node, one, found) = waited(ACCOUNTS, text, statement);
        assert_eq!(found, "00000", "{statement}");
        assert_eq!(one.lines("SELECT v, pg_typeof(v) FROM w ORDER BY id"), ["n10 text", "n20 text"], "{statement}");
        let (_node, one, found) = waited(ACCOUNTS, "ALTER TABLE a ADD z int DEFAULT 7", statement);
        assert_eq!(found, "00000", "{statement}");
        assert_eq!(one.lines("SELECT id, v, z FROM w ORDER BY id"), ["1 10 7", "2 20 7"], "{statement}");
    }
}

#[test]
fn sums_stay_the_same_under_load() {
    let node = Arc::new(SqlNode::in_memory());
    let sql = node.connect();
    sql.lines("CREATE TABLE a (id int PRIMARY KEY, v int)");
    for id in 0..10 {
        sql.lines(&format!("INSERT INTO a VALUES ({id}, 100)"));
    }
    let (threads, turns) = (4, 60);
    let barrier = Arc::new(Barrier::new(threads));
    let movers: Vec<_> = (0..threads)
        .map(|number| {
            let (node, barrier) = (Arc::clone(&node), Arc::clone(&barrier));
            thread::spawn(move || {
                let sql = node.connect();
                let level = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "READ COMMITTED"][number];
                barrier.wait();
                let mut done = 0;
                for turn in 0..turns {
                    let (from, to) = ((turn * 7 + number) % 10, (turn * 3 + number * 5) % 10);
                    let moved = sql.query(&format!(
                        "BEGIN ISOLATION LEVEL {level}; UPDATE a SET v = v - 1 WHERE id = {from}; UPDATE a SET v = v + 1 WHERE id = {to}; COMMIT"
                    ));
                    match moved {
                        Ok(_) => done += 1,
                        Err(error) => {
                            let state = error.code().unwrap().code().to_owned();
                            assert!(["40001", "40P01"].contains(&state.as_str()), "{state}");
                            sql.lines("ROLLBACK");
                        }
                    }
                    assert_eq!(sql.lines("SELECT sum(v) FROM a"), ["1000"]);
                }
                done
            })
        })
        .collect();
    let done: usize = movers.into_iter().map(|mover| mover.join().unwrap()).sum();
    assert!(done > 0);
    eventually("the sum", || sql.lines("SELECT sum(v) FROM a") == ["1000"]);
}

/// A statement that is a transaction of its own is tried again by the server: at every level,
/// nobody hears of lost races.
#[test]
fn statements_of_their_own_do_not_lose_races() {
    let node = Arc::new(SqlNode::in_memory());
    let sql = node.connect();
    sql.lines(ACCOUNTS);
    let (threads, turns) = (4, 50);
    let adders: Vec<_> = (0..threads)
        .map(|number| {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                let sql = node.connect();
                let level = ["read committed", "repeatable read", "serializable"][number % 3];
                sql.lines(&format!("SET default_transaction_isolation = '{level}'"));
                let mut failed = 0;
                for _ in 0..turns {
                    failed += usize::from(sql.query("UPDATE a SET v = v + 1 WHERE id = 1").is_err());
                }
                failed
            })
        })
        .collect();
    let failed: usize = adders.into_iter().map(|adder| adder.join().unwrap()).sum();
    assert_eq!(failed, 0);
    assert_eq!(sql.lines("SELECT v FROM a WHERE id = 1"), [(10 + threads * turns).to_string()]);
}
