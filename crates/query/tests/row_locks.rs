//! Locks on rows: which strengths exclude which, who waits, and that references do not make a
//! parent a hot spot.

use std::{sync::Barrier, thread, time::SystemTime};

use crate::common::{Sql, SqlNode, eventually};

const TABLES: &str = "CREATE TABLE p (id int PRIMARY KEY, u int UNIQUE, v int); \
                      CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p); \
                      INSERT INTO p VALUES (1, 1, 10), (2, 2, 20), (3, 3, 30)";

fn prepared() -> (SqlNode, Sql, Sql) {
    SqlNode::for_two(TABLES)
}

/// What holds a row with which strength: 0 is the weakest.
const HOLDERS: [(&str, usize); 8] = [
    ("SELECT * FROM p WHERE id = 1 FOR KEY SHARE", 0),
    ("INSERT INTO c VALUES (1, 1)", 0),
    ("SELECT * FROM p WHERE id = 1 FOR SHARE", 1),
    ("SELECT * FROM p WHERE id = 1 FOR NO KEY UPDATE", 2),
    ("UPDATE p SET v = 11 WHERE id = 1", 2),
    ("SELECT * FROM p WHERE id = 1 FOR UPDATE", 3),
    ("UPDATE p SET u = 100 WHERE id = 1", 3),
    ("DELETE FROM p WHERE id = 1", 3),
];

#[test]
fn strengths_exclude_one_another_as_in_postgresql() {
    let conflicts = |one: usize, other: usize| one + other >= 3;
    let (_node, one, other) = prepared();
    for (held, strength) in HOLDERS {
        one.lines(&format!("BEGIN; {held}"));
        for (number, lock) in ["KEY SHARE", "SHARE", "NO KEY UPDATE", "UPDATE"].into_iter().enumerate() {
            let refused = conflicts(strength, number);
            let found = other.query(&format!("SELECT id FROM p WHERE id < 3 ORDER BY id FOR {lock} SKIP LOCKED"));
            assert_eq!(found.unwrap().len(), if refused { 1 } else { 2 }, "{held}, FOR {lock} SKIP LOCKED");
            let found = other.query(&format!("SELECT id FROM p WHERE id = 1 FOR {lock} NOWAIT"));
            match found {
                Ok(_) => assert!(!refused, "{held}, FOR {lock} NOWAIT"),
                Err(error) => {
                    assert!(refused, "{held}, FOR {lock} NOWAIT: {error}");
                    let text = crate::common::shown(&error);
                    assert!(text.contains("could not obtain lock on row in relation \"p\""), "{text}");
                    assert!(text.contains("55P03"), "{text}");
                }
            }
            // A session that waits is ended by its timeout.
            let waited = other.outcome(&format!("SELECT id FROM p WHERE id = 1 FOR {lock}"));
            assert_eq!(waited, if refused { "55P03" } else { "00000" }, "{held}, FOR {lock}");
        }
        for (wanted, number) in HOLDERS {
            let wanted = wanted.replace("(1, 1)", "(2, 1)");
            let waited = other.outcome(&format!("BEGIN; {wanted}"));
            let expected = if conflicts(strength, number) { "55P03" } else { "00000" };
            assert_eq!(waited, expected, "{held}, {wanted}");
            other.lines("ROLLBACK");
        }
        one.lines("ROLLBACK");
        // Nothing is left of it.
        assert_eq!(other.lines("SELECT id FROM p WHERE id = 1 FOR UPDATE NOWAIT"), ["1"], "{held}");
    }
}

#[test]
fn who_locks_rows_shares_the_table_with_those_who_lock_it() {
    let (_node, one, other) = prepared();
    const MODES: [&str; 8] = [
        "ACCESS SHARE",
        "ROW SHARE",
        "ROW EXCLUSIVE",
        "SHARE UPDATE EXCLUSIVE",
        "SHARE",
        "SHARE ROW EXCLUSIVE",
        "EXCLUSIVE",
        "ACCESS EXCLUSIVE",
    ];
    // How many of the modes others can have these tables in. Readers have no lock.
    for (held, tables) in [
        ("SELECT * FROM p WHERE id = 1 FOR KEY SHARE", [("p", 6), ("c", 8)]),
        ("SELECT * FROM p WHERE id = 1 FOR SHARE", [("p", 6), ("c", 8)]),
        ("SELECT * FROM p WHERE id = 1 FOR NO KEY UPDATE", [("p", 6), ("c", 8)]),
        ("SELECT * FROM p WHERE id = 1 FOR UPDATE", [("p", 6), ("c", 8)]),
        ("SELECT * FROM p WHERE id = 1 AND v = 77 FOR UPDATE", [("p", 6), ("c", 8)]),
        ("SELECT * FROM p LEFT JOIN c ON c.p = p.id WHERE p.id = 1 FOR UPDATE OF p", [("p", 6), ("c", 8)]),
        ("SELECT * FROM (SELECT * FROM p FOR UPDATE) AS q ORDER BY u", [("p", 6), ("c", 8)]),
        ("INSERT INTO c VALUES (1, 1)", [("p", 6), ("c", 4)]),
        ("DELETE FROM c USING (SELECT id FROM p FOR KEY SHARE) AS q WHERE c.id = q.id", [("p", 6), ("c", 4)]),
    ] {
        one.lines(&format!("BEGIN; {held}"));
        for (table, shared) in tables {
            for (number, mode) in MODES.into_iter().enumerate() {
                let found = other.outcome(&format!("BEGIN; LOCK TABLE {table} IN {mode} MODE NOWAIT"));
                let expected = if number < shared { "00000" } else { "55P03" };
                assert_eq!(found, expected, "{held}: {table}, {mode}");
                other.lines("ROLLBACK");
            }
        }
        one.lines("ROLLBACK");
    }
    // Who has locked a row and then writes to it waits for those who have locked the table.
    one.lines("BEGIN; SELECT * FROM p WHERE id = 1 FOR UPDATE");
    other.lines("BEGIN; LOCK TABLE p IN SHARE MODE");
    assert_eq!(one.outcome("SET lock_timeout = '50ms'; UPDATE p SET v = 0 WHERE id = 1"), "55P03");
}

#[test]
fn several_hold_a_shared_lock_until_the_last_has_ended() {
    let (node, one, other) = prepared();
    let third = node.connect();
    for (shared, wanted) in [("SHARE", "UPDATE p SET v = 0 WHERE id = 1"), ("KEY SHARE", "DELETE FROM p WHERE id = 1")]
    {
        one.lines(&format!("BEGIN; SELECT * FROM p WHERE id = 1 FOR {shared}"));
        third.lines(&format!("BEGIN; SELECT * FROM p WHERE id = 1 FOR {shared}"));
        assert_eq!(other.outcome(wanted), "55P03");
        one.lines("COMMIT");
        assert_eq!(other.outcome(wanted), "55P03", "{shared}");
        third.lines("ROLLBACK");
        assert_eq!(other.outcome(wanted), "00000", "{shared}");
    }
}

#[test]
fn of_names_the_tables_whose_rows_are_locked() {
    let (_node, one, other) = prepared();
    one.lines("INSERT INTO c VALUES (1, 1)");
    let locked = |what: &str| other.outcome(&format!("SELECT * FROM {what} WHERE id = 1 FOR UPDATE NOWAIT"));
    for (of, p, c) in [
        ("OF p", "55P03", "00000"),
        ("OF c", "00000", "55P03"),
        ("OF c, p", "55P03", "55P03"),
        ("", "55P03", "55P03"),
        ("OF p NOWAIT FOR SHARE OF c", "55P03", "55P03"),
        ("OF c SKIP LOCKED", "00000", "55P03"),
    ] {
        one.lines(&format!("BEGIN; SELECT * FROM p JOIN c ON c.p = p.id FOR UPDATE {of}"));
        assert_eq!((locked("p").as_str(), locked("c").as_str()), (p, c), "{of}");
        one.lines("ROLLBACK");
    }
}

#[test]
fn a_rollback_to_a_savepoint_releases_what_was_locked_since() {
    let (_node, one, other) = prepared();
    let free = |lock: &str| other.outcome(&format!("SELECT * FROM p WHERE id = 1 FOR {lock} NOWAIT")) == "00000";
    one.lines("BEGIN; SELECT * FROM p WHERE id = 1 FOR KEY SHARE; SAVEPOINT s");
    for more in [
        "SELECT * FROM p WHERE id = 1 FOR UPDATE",
        "SELECT * FROM p WHERE id = 1 FOR SHARE",
        "DELETE FROM p WHERE id = 1",
    ] {
        one.lines(more);
        assert!(!free("NO KEY UPDATE"), "{more}");
        one.lines("ROLLBACK TO s");
        // What was held before is still held.
        assert!(free("NO KEY UPDATE") && !free("UPDATE"), "{more}");
    }
    one.lines("SELECT * FROM p WHERE id = 1 FOR SHARE; RELEASE s");
    assert!(!free("NO KEY UPDATE"));
    one.lines("ROLLBACK");
    assert!(free("UPDATE"));
}

#[test]
fn a_lock_becomes_a_stronger_one_unless_others_share_it() {
    let (_node, one, other) = prepared();
    // A change keeps nobody from sharing the key; then the row cannot go.
    one.lines("BEGIN; SET LOCAL lock_timeout = '100ms'; UPDATE p SET v = 11 WHERE id = 1; SAVEPOINT s");
    other.lines("BEGIN; INSERT INTO c VALUES (1, 1)");
    for wanted in
        ["DELETE FROM p WHERE id = 1", "UPDATE p SET id = 9 WHERE id = 1", "SELECT * FROM p WHERE id = 1 FOR UPDATE"]
    {
        assert_eq!(one.outcome(wanted), "55P03", "{wanted}");
        one.lines("ROLLBACK TO s");
    }
    one.lines("UPDATE p SET v = 12 WHERE id = 1; COMMIT");
    other.lines("COMMIT");
    assert_eq!(one.lines("SELECT v FROM p WHERE id = 1"), ["12"]);
    assert_eq!(one.outcome("DELETE FROM p WHERE id = 1"), "23503");
}

#[test]
fn upgrades_that_wait_for_one_another_are_deadlocks() {
    for (shared, wanted) in
        [("SHARE", "UPDATE p SET v = v + 1 WHERE id = 1"), ("KEY SHARE", "DELETE FROM p WHERE id = 1")]
    {
        let node = SqlNode::in_memory();
        node.connect().lines(TABLES);
        let sessions = 3;
        let barrier = Barrier::new(sessions);
        let states: Vec<String> = thread::scope(|scope| {
            let threads: Vec<_> = (0..sessions)
                .map(|_| {
                    scope.spawn(|| {
                        let session = node.connect();
                        session.lines(&format!("BEGIN; SELECT * FROM p WHERE id = 1 FOR {shared}"));
                        barrier.wait();
                        let state = session.outcome(wanted);
                        session.lines(if state == "00000" { "COMMIT" } else { "ROLLBACK" });
                        state
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let victims = states.iter().filter(|state| *state == "40P01").count();
        assert_eq!(victims, sessions - 1, "all but one give up: {states:?}");
        assert_eq!(states.iter().filter(|state| *state == "00000").count(), 1, "{states:?}");
    }
}

#[test]
fn deadlocks_over_several_rows_and_strengths_are_found() {
    let cycles: [&[&str]; 3] = [
        &["SELECT * FROM p WHERE id = $ FOR KEY SHARE", "DELETE FROM p WHERE id = $"],
        &["INSERT INTO c VALUES ($, $)", "UPDATE p SET u = u + 100 WHERE id = $"],
        &["SELECT * FROM p WHERE id = $ FOR NO KEY UPDATE", "SELECT * FROM p WHERE id = $ FOR SHARE"],
    ];
    for cycle in cycles {
        let node = SqlNode::in_memory();
        node.connect().lines(TABLES);
        let barrier = Barrier::new(3);
        let victims: usize = thread::scope(|scope| {
            let threads: Vec<_> = (1..=3)
                .map(|number: usize| {
                    let (node, barrier) = (&node, &barrier);
                    scope.spawn(move || {
                        let session = node.connect();
                        session.lines("BEGIN");
                        session.lines(&cycle[0].replace('$', &number.to_string()));
                        barrier.wait();
                        let state = session.outcome(&cycle[1].replace('$', &(number % 3 + 1).to_string()));
                        session.lines("ROLLBACK");
                        assert!(state == "00000" || state == "40P01", "{state}");
                        usize::from(state == "40P01")
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(victims >= 1, "{cycle:?}");
    }
}

#[test]
fn children_of_one_parent_do_not_wait_for_one_another() {
    let (node, one, other) = prepared();
    let third = node.connect();
    third.lines("SET lock_timeout = '100ms'");
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        one.lines(&format!("BEGIN ISOLATION LEVEL {level}; INSERT INTO c VALUES (1, 1)"));
        other.lines(&format!("BEGIN ISOLATION LEVEL {level}; INSERT INTO c VALUES (2, 1)"));
        // Nor does a change of the parent that leaves its keys.
        third.lines("UPDATE p SET v = v + 1 WHERE id = 1");
        assert_eq!(third.outcome("DELETE FROM p WHERE id = 1"), "55P03", "{level}");
        assert_eq!(third.outcome("UPDATE p SET id = 7 WHERE id = 1"), "55P03", "{level}");
        one.lines("INSERT INTO c VALUES (3, 1); COMMIT");
        assert_eq!(third.outcome("DELETE FROM p WHERE id = 1"), "55P03", "{level}");
        other.lines("COMMIT");
        assert_eq!(third.outcome("DELETE FROM p WHERE id = 1"), "23503", "{level}");
        assert_eq!(third.lines("DELETE FROM c RETURNING id").len(), 3);
    }
}

#[test]
fn a_conflicting_insert_does_not_wait_for_a_lock() {
    let (_node, one, other) = prepared();
    one.lines("BEGIN; SELECT * FROM p WHERE id = 1 FOR UPDATE");
    assert_eq!(other.outcome("INSERT INTO p VALUES (1, 9, 9)"), "23505");
    assert_eq!(other.query("INSERT INTO p VALUES (1, 9, 9) ON CONFLICT DO NOTHING RETURNING id").unwrap().len(), 0);
    assert_eq!(other.query("INSERT INTO p VALUES (9, 1, 9) ON CONFLICT (u) DO NOTHING RETURNING id").unwrap().len(), 0);
    assert_eq!(other.outcome("INSERT INTO p VALUES (1, 9, 9) ON CONFLICT (id) DO UPDATE SET v = 0"), "55P03");
    one.lines("COMMIT; BEGIN; SELECT * FROM p WHERE id = 1 FOR KEY SHARE");
    assert_eq!(other.outcome("INSERT INTO p VALUES (1, 9, 9) ON CONFLICT (id) DO UPDATE SET v = 0"), "00000");
    assert_eq!(other.outcome("INSERT INTO p VALUES (1, 9, 9) ON CONFLICT (id) DO UPDATE SET u = 50"), "55P03");
    // A change may give the key up, so it is waited for.
    one.lines("DELETE FROM p WHERE id = 1");
    assert_eq!(other.outcome("INSERT INTO p VALUES (1, 9, 9) ON CONFLICT DO NOTHING"), "55P03");
    one.lines("ROLLBACK");
}

#[test]
fn a_row_that_was_changed_since_the_snapshot_cannot_be_locked() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let (_node, one, other) = prepared();
        let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM c");
        for (change, lock, state) in [
            ("UPDATE p SET v = v + 1 WHERE id = 1", "UPDATE", "40001"),
            ("UPDATE p SET v = v + 1 WHERE id = 1", "SHARE", "40001"),
            // Its key is what it was.
            ("UPDATE p SET v = v + 1 WHERE id = 1", "KEY SHARE", "00000"),
            ("UPDATE p SET u = u + 10 WHERE id = 1", "KEY SHARE", "40001"),
            ("BEGIN; SELECT * FROM p WHERE id = 1 FOR UPDATE; COMMIT", "UPDATE", "00000"),
            ("DELETE FROM p WHERE id = 1", "KEY SHARE", "40001"),
        ] {
            other.lines(&begin);
            one.lines(change);
            assert_eq!(
                other.outcome(&format!("SELECT * FROM p WHERE id = 1 FOR {lock}")),
                state,
                "{level}, {change}, {lock}"
            );
            other.lines("ROLLBACK");
        }
    }
}

#[test]
fn a_child_that_a_snapshot_does_not_see_keeps_its_parent() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let (_node, one, other) = prepared();
        other.lines(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM p"));
        one.lines("INSERT INTO c VALUES (1, 1)");
        let state = other.outcome("DELETE FROM p WHERE id = 1");
        if level == "SERIALIZABLE" && state == "00000" {
            assert_eq!(other.outcome("COMMIT"), "40001");
        } else {
            assert_eq!(state, "23503", "{level}");
            other.lines("ROLLBACK");
        }
        assert_eq!(one.lines("SELECT p.id FROM c JOIN p ON c.p = p.id"), ["1"]);
    }
}

#[test]
fn a_queue_locks_no_more_rows_than_it_takes() {
    // In an order that no index has.
    let (_node, one, other) = prepared();
    let take = "SELECT id FROM p ORDER BY v DESC LIMIT 1 FOR UPDATE SKIP LOCKED";
    one.lines("BEGIN");
    assert_eq!(one.lines(take), ["3"]);
    other.lines("BEGIN");
    assert_eq!(other.lines(take), ["2"]);
    assert_eq!(one.lines(take), ["3"], "it has that one");
    other.lines("COMMIT");
    assert_eq!(other.lines("SELECT id FROM p ORDER BY v DESC OFFSET 1 LIMIT 1 FOR UPDATE SKIP LOCKED"), ["1"]);
}

#[test]
fn readers_and_locks_of_other_rows_are_not_in_the_way() {
    let (_node, one, other) = prepared();
    one.lines("BEGIN; SELECT * FROM p FOR UPDATE");
    assert_eq!(other.lines("SELECT count(*) FROM p"), ["3"]);
    other.lines("INSERT INTO p VALUES (4, 4, 4)");
    assert_eq!(other.lines("SELECT id FROM p FOR KEY SHARE SKIP LOCKED"), ["4"]);
    one.lines("COMMIT");
}

#[test]
fn who_waits_for_a_shared_lock_is_seen() {
    let (node, one, other) = prepared();
    other.lines("RESET lock_timeout");
    one.lines("BEGIN; INSERT INTO c VALUES (1, 1)");
    let third = node.connect();
    third.lines("BEGIN; INSERT INTO c VALUES (2, 1)");
    let pids: Vec<String> = [&one, &third].iter().flat_map(|it| it.lines("SELECT pg_backend_pid()")).collect();
    let waiter = other.lines("SELECT pg_backend_pid()").remove(0);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| other.outcome("DELETE FROM p WHERE id = 1"));
        let looking = node.connect();
        let blocked = format!("SELECT unnest(pg_blocking_pids({waiter})) ORDER BY 1");
        let mut expected = pids.clone();
        expected.sort_by_key(|pid| pid.parse::<i64>().unwrap());
        eventually("the other waits for both", || looking.lines(&blocked) == expected);
        assert_eq!(looking.lines("SELECT count(*) FROM pg_locks WHERE NOT granted"), ["1"]);
        one.lines("ROLLBACK");
        third.lines("ROLLBACK");
        assert_eq!(waiting.join().unwrap(), "00000");
    });
}

#[test]
fn references_hold_whatever_happens_at_once() {
    let seed = std::env::var("FRESHET_SEED").ok().map_or_else(
        || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64,
        |seed| seed.parse().unwrap(),
    );
    println!("FRESHET_SEED={seed}");
    let node = SqlNode::in_memory();
    let first = node.connect();
    first.lines("CREATE TABLE p (id int PRIMARY KEY, v int DEFAULT 0); INSERT INTO p SELECT generate_series(1, 3)");
    first.lines("CREATE TABLE c (id serial PRIMARY KEY, p int REFERENCES p)");
    let counts: Vec<[usize; 3]> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|number| {
                let node = &node;
                scope.spawn(move || {
                    let mut state = (seed ^ (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1;
                    let mut below = move |limit: u64| {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        state % limit
                    };
                    let session = node.connect();
                    let mut counts = [0; 3];
                    for _ in 0..150 {
                        let level = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][below(3) as usize];
                        session.lines(&format!("BEGIN ISOLATION LEVEL {level}"));
                        let mut state = "00000".to_owned();
                        for _ in 0..1 + below(3) {
                            let id = 1 + below(3);
                            let sql = match below(8) {
                                0..=2 => format!("INSERT INTO c (p) VALUES ({id})"),
                                3 => format!("UPDATE p SET v = v + 1 WHERE id = {id}"),
                                4 => format!("DELETE FROM c WHERE p = {id}"),
                                5 => format!("DELETE FROM p WHERE id = {id}"),
                                6 => format!("INSERT INTO p VALUES ({id}) ON CONFLICT DO NOTHING"),
                                _ => format!("UPDATE c SET p = {id} WHERE p = {}", 1 + below(3)),
                            };
                            state = session.outcome(&sql);
                            if state != "00000" {
                                break;
                            }
                        }
                        if state == "00000" {
                            state = session.outcome("COMMIT");
                        } else {
                            session.lines("ROLLBACK");
                        }
                        match state.as_str() {
                            "00000" => counts[0] += 1,
                            "23503" => counts[1] += 1,
                            "40001" | "40P01" => counts[2] += 1,
                            other => panic!("{other}"),
                        }
                    }
                    counts
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    println!("committed, refused, given up: {counts:?}");
    let orphans = "SELECT count(*) FROM c WHERE p IS NOT NULL AND NOT EXISTS (SELECT FROM p WHERE p.id = c.p)";
    assert_eq!(first.lines(orphans), ["0"]);
    assert!(counts.iter().map(|counts| counts[0]).sum::<usize>() > 0);
    // Nobody holds anything any more.
    assert_eq!(first.outcome("SELECT * FROM p FOR UPDATE NOWAIT"), "00000");
    assert_eq!(first.outcome("SELECT * FROM c FOR UPDATE NOWAIT"), "00000");
}

#[test]
fn general_queries_lock_rows_in_their_order() {
    let (_node, one, other) = prepared();
    let outer = "FROM p LEFT JOIN c ON c.p = p.id";
    one.lines(&format!("BEGIN; SELECT p.id {outer} WHERE p.id = 1 FOR UPDATE OF p"));
    assert_eq!(other.outcome("SELECT id FROM p WHERE id = 1 FOR UPDATE NOWAIT"), "55P03");
    assert_eq!(other.outcome(&format!("SELECT p.id {outer} FOR SHARE OF p NOWAIT")), "55P03");
    assert_eq!(other.outcome(&format!("SELECT p.id {outer} FOR SHARE OF p")), "55P03");
    other.lines("BEGIN");
    let take = format!("SELECT p.id {outer} ORDER BY p.v LIMIT 1 FOR UPDATE OF p SKIP LOCKED");
    assert_eq!(other.lines(&take), ["2"]);
    // No more than that one.
    assert_eq!(one.lines("SELECT id FROM p ORDER BY id FOR UPDATE SKIP LOCKED"), ["1", "3"]);
    other.lines("COMMIT; RESET lock_timeout");
    one.lines("UPDATE p SET v = 99 WHERE id = 1");
    let waiting = thread::spawn(move || other.lines(&format!("SELECT p.v {outer} WHERE p.id = 1 FOR UPDATE OF p")));
    eventually("the other waits", || one.lines("SELECT count(*) FROM pg_locks WHERE NOT granted") == ["1"]);
    one.lines("COMMIT");
    assert_eq!(waiting.join().unwrap(), ["99"], "what it is after the wait");
}
