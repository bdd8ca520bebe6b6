//! Constraints that are checked later, with other sessions beside them.

use std::{sync::Barrier, thread};

use crate::common::{SqlNode, eventually};

const KEY: &str = "CREATE TABLE t (id int PRIMARY KEY, k int UNIQUE DEFERRABLE INITIALLY DEFERRED)";

#[test]
fn the_second_to_write_a_deferred_key_waits_when_it_commits() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for first_commits in [true, false] {
            let (_node, one, other) = SqlNode::for_two(KEY);
            one.lines(&format!("BEGIN ISOLATION LEVEL {level}; INSERT INTO t VALUES (1, 7)"));
            other.lines(&format!("BEGIN ISOLATION LEVEL {level}; INSERT INTO t VALUES (2, 7)"));
            other.lines("RESET lock_timeout");
            let waiting = thread::spawn(move || (other.outcome("COMMIT"), other));
            eventually("the other waits", || one.lines("SELECT count(*) FROM pg_locks WHERE NOT granted") == ["1"]);
            // The first to come has nobody to wait for.
            one.lines(if first_commits { "COMMIT" } else { "ROLLBACK" });
            let (state, other) = waiting.join().unwrap();
            let expected = match (first_commits, level) {
                (false, _) => "00000",
                (true, "SERIALIZABLE") => "40001",
                (true, _) => "23505",
            };
            assert_eq!(state, expected, "{level}, {first_commits}");
            assert_eq!(other.lines("SELECT count(*) FROM t"), ["1"]);
        }
    }
}

#[test]
fn a_key_that_is_given_up_elsewhere_is_waited_for() {
    let (_node, one, other) = SqlNode::for_two(KEY);
    one.lines("INSERT INTO t VALUES (1, 7)");
    one.lines("BEGIN; DELETE FROM t WHERE id = 1");
    other.lines("RESET lock_timeout; BEGIN; INSERT INTO t VALUES (2, 7)");
    let waiting = thread::spawn(move || (other.outcome("COMMIT"), other));
    eventually("the other waits", || one.lines("SELECT count(*) FROM pg_locks WHERE NOT granted") == ["1"]);
    one.lines("COMMIT");
    let (state, other) = waiting.join().unwrap();
    assert_eq!(state, "00000");
    assert_eq!(other.lines("SELECT id FROM t"), ["2"]);
}

#[test]
fn no_key_is_there_twice_whatever_happens_at_once() {
    let node = SqlNode::in_memory();
    let first = node.connect();
    first.lines(KEY);
    let barrier = Barrier::new(4);
    let counts: Vec<[usize; 3]> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|number: u32| {
                let (node, barrier) = (&node, &barrier);
                scope.spawn(move || {
                    let session = node.connect();
                    let mut counts = [0; 3];
                    for round in 0..60 {
                        barrier.wait();
                        let (id, key) = (round * 4 + number, round);
                        session.lines(&format!("BEGIN; INSERT INTO t VALUES ({id}, {key})"));
                        match session.outcome("COMMIT").as_str() {
                            "00000" => counts[0] += 1,
                            "23505" => counts[1] += 1,
                            "40P01" => counts[2] += 1,
                            other => panic!("{other}"),
                        }
                    }
                    counts
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    println!("committed, refused, deadlocks: {counts:?}");
    assert_eq!(first.lines("SELECT k FROM t GROUP BY k HAVING count(*) > 1"), Vec::<String>::new());
    assert_eq!(first.lines("SELECT count(DISTINCT k) FROM t"), ["60"]);
}

#[test]
fn a_deferred_reference_is_looked_at_when_its_transaction_commits() {
    let tables = "CREATE TABLE p (id int PRIMARY KEY); \
                  CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p DEFERRABLE INITIALLY DEFERRED)";
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let (_node, one, other) = SqlNode::for_two(tables);
        // What another transaction has committed since counts where a new snapshot does.
        one.lines(&format!("BEGIN ISOLATION LEVEL {level}; INSERT INTO c VALUES (1, 1)"));
        other.lines("INSERT INTO p VALUES (1)");
        let state = one.outcome("COMMIT");
        let expected = if level == "READ COMMITTED" { "00000" } else { "23503" };
        assert_eq!(state, expected, "{level}");
        // A parent cannot go while a child's transaction has looked at it.
        one.lines("DELETE FROM c; INSERT INTO p VALUES (2)");
        one.lines(&format!("BEGIN ISOLATION LEVEL {level}; INSERT INTO c VALUES (2, 2)"));
        assert_eq!(other.outcome("BEGIN; DELETE FROM p WHERE id = 2; COMMIT"), "00000", "it has not looked yet");
        assert_eq!(one.outcome("COMMIT"), if level == "READ COMMITTED" { "23503" } else { "40001" }, "{level}");
        one.lines("INSERT INTO p VALUES (3)");
        one.lines(&format!(
            "BEGIN ISOLATION LEVEL {level}; INSERT INTO c VALUES (3, 3); SET CONSTRAINTS ALL IMMEDIATE"
        ));
        assert_eq!(other.outcome("DELETE FROM p WHERE id = 3"), "55P03", "{level}");
        one.lines("COMMIT");
        assert_eq!(other.outcome("DELETE FROM p WHERE id = 3"), "23503", "{level}");
    }
}

#[test]
fn a_row_that_keeps_its_reference_is_not_looked_at() {
    let tables = |action: &str| {
        format!(
            "CREATE TABLE p (id int PRIMARY KEY, u int UNIQUE); INSERT INTO p VALUES (1, 1); \
             CREATE TABLE c (id int PRIMARY KEY, u int REFERENCES p (u) DEFERRABLE INITIALLY DEFERRED, \
                             p int REFERENCES p {action} DEFERRABLE); \
             INSERT INTO c VALUES (1, 1, 1)"
        )
    };
    for (action, remove) in [
        ("", "BEGIN; DELETE FROM p WHERE id = 1; DELETE FROM c WHERE u = 1; COMMIT"),
        ("ON DELETE CASCADE", "DELETE FROM p WHERE id = 1"),
    ] {
        let (_node, one, other) = SqlNode::for_two(&tables(action));
        // The row lies elsewhere then.
        one.lines("BEGIN; UPDATE c SET id = 100 WHERE id = 1; UPDATE c SET id = 101 WHERE id = 100");
        other.lines("RESET lock_timeout; SET CONSTRAINTS ALL DEFERRED");
        let remove = remove.replace("BEGIN;", "BEGIN; SET CONSTRAINTS ALL DEFERRED;");
        let waiting = thread::spawn(move || (other.outcome(&remove), other));
        eventually("the other waits", || one.lines("SELECT count(*) FROM pg_locks WHERE NOT granted") == ["1"]);
        assert_eq!(one.outcome("COMMIT"), "00000", "{action}");
        let (state, other) = waiting.join().unwrap();
        assert_eq!(state, "00000", "{action}");
        assert_eq!(other.lines("SELECT (SELECT count(*) FROM p), (SELECT count(*) FROM c)"), ["0 0"], "{action}");
    }
}

#[test]
fn what_is_left_to_look_at_is_found_wherever_the_row_lies() {
    let tables = "CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p VALUES (1); \
                  CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p DEFERRABLE INITIALLY DEFERRED); \
                  INSERT INTO c VALUES (1, 1)";
    let (_node, one, _other) = SqlNode::for_two(tables);
    for (statements, expected) in [
        ("UPDATE c SET id = 2", "00000"),
        ("INSERT INTO c VALUES (5, 9)", "23503"),
        ("INSERT INTO c VALUES (5, 9); UPDATE c SET id = 6 WHERE id = 5", "23503"),
        ("INSERT INTO c VALUES (5, 9); UPDATE c SET id = id + 10; UPDATE c SET id = id + 10", "23503"),
        ("UPDATE c SET p = 9; UPDATE c SET id = 7", "23503"),
        ("UPDATE c SET p = 9, id = 7; UPDATE c SET id = 8", "23503"),
        ("UPDATE c SET p = 9; UPDATE c SET id = 7; UPDATE c SET p = 1", "00000"),
        ("UPDATE c SET p = 9; SAVEPOINT s; UPDATE c SET id = 7; ROLLBACK TO s; UPDATE c SET id = 8", "23503"),
        ("SAVEPOINT s; UPDATE c SET p = 9, id = 7; ROLLBACK TO s; UPDATE c SET id = 8", "00000"),
        ("INSERT INTO c VALUES (5, 9); UPDATE c SET id = 6 WHERE id = 5; DELETE FROM c WHERE id = 6", "00000"),
        ("INSERT INTO c VALUES (5, 9); UPDATE c SET id = 6 WHERE id = 5; INSERT INTO p VALUES (9)", "00000"),
        (
            "INSERT INTO p VALUES (8); UPDATE c SET p = 8; SAVEPOINT s; SET CONSTRAINTS ALL IMMEDIATE; \
          ROLLBACK TO s; UPDATE c SET id = 7; DELETE FROM p WHERE id = 8",
            "23503",
        ),
        (
            "INSERT INTO p VALUES (8); UPDATE c SET p = 8; SET CONSTRAINTS ALL IMMEDIATE; \
          SET CONSTRAINTS ALL DEFERRED; UPDATE c SET id = 7; DELETE FROM p WHERE id = 8",
            "23503",
        ),
        (
            "INSERT INTO c VALUES (5, 9) ON CONFLICT (id) DO UPDATE SET id = 6; \
          INSERT INTO c VALUES (5, 9) ON CONFLICT (id) DO UPDATE SET id = 6",
            "23503",
        ),
    ] {
        one.lines("DELETE FROM c; DELETE FROM p; INSERT INTO p VALUES (1); INSERT INTO c VALUES (1, 1)");
        let found = one.outcome(&format!("BEGIN; {statements}; COMMIT"));
        assert_eq!(found, expected, "{statements}");
        one.outcome("ROLLBACK");
    }
}

#[test]
fn an_error_at_the_end_ends_the_transaction() {
    let (_node, one, other) = SqlNode::for_two(KEY);
    one.lines("INSERT INTO t VALUES (1, 1)");
    one.lines("BEGIN; INSERT INTO t VALUES (2, 1); INSERT INTO t VALUES (3, 3)");
    assert_eq!(one.outcome("COMMIT"), "23505");
    // It is over, and holds nothing.
    assert_eq!(one.lines("SELECT id FROM t"), ["1"]);
    assert_eq!(other.outcome("INSERT INTO t VALUES (3, 3)"), "00000");
    // A statement by itself ends with its transaction.
    assert_eq!(one.outcome("INSERT INTO t VALUES (4, 1)"), "23505");
    // Several of one message are one transaction.
    assert_eq!(one.outcome("INSERT INTO t VALUES (5, 1); DELETE FROM t WHERE id = 1"), "00000");
    assert_eq!(one.lines("SELECT id FROM t ORDER BY id"), ["3", "5"]);
}

#[test]
fn what_is_left_to_look_at_takes_memory_of_the_session() {
    let node = SqlNode::in_memory();
    let session = node.connect();
    session.lines("CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE c (p int REFERENCES p INITIALLY DEFERRED)");
    session.lines("SET freshet.query_memory = '1MB'");
    assert_eq!(session.outcome("INSERT INTO c SELECT g FROM generate_series(1, 400000) g"), "53200");
    assert_eq!(session.lines("SELECT count(*) FROM c"), ["0"]);
}
