//! Wherever a session's thread waits or computes, it ends soon by `statement_timeout`,
//! `lock_timeout`, a request to cancel and `pg_terminate_backend`. This is the list of these
//! places; waits for commits are in `waits.rs`.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use crate::common::{
    SOON, Sql, SqlNode, config, ends, eventually,
    wire::{Part, Wire},
};
use freshet_base::wait::BOUND;
use freshet_engine::{Consent, NodeConfig};

/// Nobody takes so long to notice, on whatever machine.
const LATE: Duration = Duration::from_secs(15);

/// A place where a session waits for others, or has to do more than anybody has time for.
struct Place {
    /// What another session does first. It stays in its transaction.
    held: &'static str,
    /// What the session itself does first.
    before: &'static str,
    statement: &'static str,
    /// Whether `lock_timeout` ends it.
    is_lock: bool,
}

const fn lock(held: &'static str, statement: &'static str) -> Place {
    Place { held, before: "", statement, is_lock: true }
}

const fn work(statement: &'static str) -> Place {
    Place { held: "", before: "", statement, is_lock: false }
}

const MADE: &str = "
CREATE TABLE t (id int PRIMARY KEY, v int, w text);
INSERT INTO t SELECT g, g % 10, 'w' || g FROM generate_series(1, 2000) g;
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent);
INSERT INTO parent VALUES (1), (2);
INSERT INTO child VALUES (2, 2);
CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED, parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE sink (x bigint, y text);
CREATE TABLE fewer (x int CHECK (x > 0), y text);
CREATE VIEW endless AS SELECT count(*) FROM generate_series(1, 1000000000000) g WHERE g % 7 = 3;
CREATE TABLE chained (a int, b int);
INSERT INTO chained SELECT g, g FROM generate_series(1, 300) g;
";

/// Another transaction holds what is wanted.
const LOCKS: &[Place] = &[
    lock("UPDATE t SET v = 0 WHERE id = 1", "UPDATE t SET v = 1 WHERE id = 1"),
    lock("UPDATE t SET v = 0 WHERE id = 1", "DELETE FROM t WHERE id = 1"),
    lock("UPDATE t SET v = 0 WHERE id = 1", "SELECT * FROM t WHERE id = 1 FOR UPDATE"),
    lock("SELECT * FROM t WHERE id = 1 FOR SHARE", "SELECT * FROM t WHERE id = 1 FOR NO KEY UPDATE"),
    lock("DELETE FROM t WHERE id = 1", "SELECT * FROM t WHERE id = 1 FOR KEY SHARE"),
    lock("UPDATE t SET v = 0 WHERE id = 1", "UPDATE t SET v = 1 FROM chained WHERE t.id = chained.a"),
    lock("UPDATE t SET v = 0 WHERE id = 1", "SELECT * FROM t JOIN chained c ON t.id = c.a FOR UPDATE OF t"),
    lock("UPDATE t SET v = 0 WHERE id = 1", "INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET v = 5"),
    lock("INSERT INTO t VALUES (9999)", "INSERT INTO t VALUES (9999)"),
    lock("INSERT INTO t VALUES (9999)", "INSERT INTO t VALUES (9999) ON CONFLICT DO NOTHING"),
    lock("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (1)"),
    lock("DELETE FROM parent WHERE id = 1", "INSERT INTO child VALUES (1, 1)"),
    lock("INSERT INTO child VALUES (1, 1)", "DELETE FROM parent WHERE id = 1"),
    lock("INSERT INTO child VALUES (1, 1)", "UPDATE parent SET id = 7 WHERE id = 1"),
    // When a constraint is checked at the end.
    Place {
        before: "BEGIN; INSERT INTO late VALUES (5)",
        ..lock("INSERT INTO late VALUES (5); SET CONSTRAINTS ALL IMMEDIATE", "COMMIT")
    },
    Place {
        before: "BEGIN; INSERT INTO late VALUES (5)",
        ..lock("INSERT INTO late VALUES (5); SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL IMMEDIATE")
    },
    Place { before: "BEGIN; INSERT INTO late VALUES (6, 1)", ..lock("DELETE FROM parent WHERE id = 1", "COMMIT") },
    // Tables.
    Place { before: "BEGIN", ..lock("LOCK TABLE t IN SHARE MODE", "LOCK TABLE t IN ROW EXCLUSIVE MODE") },
    lock("LOCK TABLE t", "INSERT INTO t VALUES (9998)"),
    lock("LOCK TABLE t", "COPY t FROM STDIN"),
    lock("LOCK TABLE parent", "COPY child FROM STDIN"),
    lock("LOCK TABLE t", "COPY (SELECT * FROM t FOR UPDATE) TO STDOUT"),
    Place { before: "BEGIN", ..lock("INSERT INTO t VALUES (9997)", "LOCK TABLE t") },
    lock("INSERT INTO t VALUES (9997)", "ALTER TABLE t ADD COLUMN z int"),
    lock("INSERT INTO t VALUES (9997)", "ALTER TABLE t ALTER COLUMN v TYPE bigint"),
    lock("INSERT INTO t VALUES (9997)", "ALTER TABLE t ADD CHECK (id > 0)"),
    lock("INSERT INTO t VALUES (9997)", "ALTER TABLE t RENAME TO tt"),
    lock("INSERT INTO t VALUES (9997)", "TRUNCATE t"),
    lock("INSERT INTO t VALUES (9997)", "DROP TABLE t"),
    lock("INSERT INTO t VALUES (9997)", "CREATE INDEX ON t (v)"),
    lock("INSERT INTO t VALUES (9997)", "CREATE INDEX CONCURRENTLY ON t (v)"),
    lock("INSERT INTO t VALUES (9997)", "CREATE INDEX ON t ((v + 1)) WHERE v + 2 > 5"),
    lock("INSERT INTO t VALUES (9997)", "CREATE UNIQUE INDEX ON t (w)"),
    lock("INSERT INTO t VALUES (9997)", "ALTER TABLE t DROP CONSTRAINT t_pkey"),
    lock("INSERT INTO t VALUES (9997)", "ALTER TABLE sink ADD FOREIGN KEY (x) REFERENCES t"),
    lock("CREATE TABLE fresh (x int)", "CREATE TABLE fresh (x int)"),
    lock("ALTER TABLE t ADD COLUMN z int", "ALTER TABLE t ADD COLUMN zz int"),
    lock("CREATE SCHEMA fresh", "CREATE SCHEMA fresh"),
    lock("CREATE ROLE fresh", "CREATE ROLE fresh"),
    // Numbers.
    lock("SELECT pg_advisory_lock(1)", "SELECT pg_advisory_lock(1)"),
    lock("SELECT pg_advisory_xact_lock(1)", "SELECT pg_advisory_xact_lock_shared(1)"),
    lock("SELECT pg_advisory_xact_lock(1)", "SELECT count(*) FROM chained WHERE pg_advisory_xact_lock(1) IS NULL"),
];

/// Too much to do.
const WORK: &[Place] = &[
    work("SELECT pg_sleep(1000)"),
    work("SELECT pg_sleep(1000) FROM chained ORDER BY 1"),
    work("SELECT count(*) FROM chained WHERE pg_sleep(1000) IS NULL"),
    work("SELECT count(*) FROM generate_series(1, 1000000000000)"),
    work("SELECT * FROM endless"),
    work("SELECT generate_series(1, 1000000000000) OFFSET 999999999999"),
    work("WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT 1 FROM r) SELECT count(*) FROM r"),
    work("WITH RECURSIVE r (n) AS (SELECT 1 UNION SELECT (n + 1) % 1000000007 FROM r) SELECT count(*) FROM r"),
    // Joins: of general queries and here, by all ways.
    work("SELECT count(*) FROM t a, t b, t c, t d WHERE a.v + b.v + c.v + d.v = 77"),
    work(
        "SELECT count(*) FROM t a JOIN t b ON a.v = b.v JOIN t c ON b.v = c.v JOIN t d ON c.v = d.v JOIN t e ON d.v = e.v",
    ),
    work("SELECT count(*) FROM t a JOIN t b ON a.id = b.v JOIN t c ON b.v < c.v, t d, t e"),
    work(
        "SELECT count(*) FROM t a LEFT JOIN t b ON a.v < b.v + 20 LEFT JOIN t c ON b.v < c.v + 20 LEFT JOIN t d ON true",
    ),
    work("SELECT count(*) FROM t a WHERE EXISTS (SELECT 1 FROM t b, t c, t d WHERE b.v + c.v + d.v + a.v = -1)"),
    work("SELECT (SELECT count(*) FROM t b, t c, t d WHERE b.v + c.v + d.v > a.v) FROM t a"),
    work("SELECT count(*) FROM t a, LATERAL (SELECT count(*) n FROM t b, t c WHERE b.v + c.v = a.v) l, t d"),
    // Sorts, groups, windows, sets.
    work("SELECT a.w || b.w FROM t a, t b, t c ORDER BY 1 LIMIT 1"),
    work("SELECT DISTINCT (a.v + b.v + c.v) % 3 FROM t a, t b, t c, t d"),
    work("SELECT a.v, count(DISTINCT b.v + c.v) FROM t a, t b, t c GROUP BY a.v"),
    work("SELECT a.id, array_agg(b.id) FROM t a, t b, t c GROUP BY a.id HAVING count(*) < 0"),
    work("SELECT sum(count(*)) OVER (ORDER BY a.v) FROM t a, t b, t c GROUP BY a.v"),
    work("SELECT max(a.w || b.w) FROM t a, t b, t c"),
    work("SELECT a.v FROM t a, t b, t c INTERSECT SELECT -1"),
    work("SELECT mode() WITHIN GROUP (ORDER BY (a.v + b.v + c.v) % 5) FROM t a, t b, t c"),
    // Functions.
    work("SELECT regexp_count(repeat('ab', 1000000), '(a|ab)(c|bcd)*(d*)\\1(?=x)') FROM t"),
    work("SELECT regexp_replace(repeat('a', 3000000), 'a{1,200}b', 'x') FROM t"),
    work("SELECT count(*) FROM t a, t b WHERE repeat('a', 100000) || a.id || b.id LIKE '%a%a%a%a%a%b%a'"),
    work("SELECT repeat('a', 10000000) LIKE '%' || repeat('a_', 2000) || 'b%' FROM t"),
    work("SELECT array_agg(g) @> array_agg(g + 1) FROM generate_series(1, 200000) g"),
    work("SELECT array_agg(g) && array_agg(-g) FROM generate_series(1, 200000) g"),
    work("SELECT jsonb_agg(g) @> jsonb_agg(g) FROM generate_series(1, 200000) g"),
    work("SELECT jsonb_agg(g) - array_agg((-g)::text) FROM generate_series(1, 200000) g"),
    work("SELECT sum(factorial(20000)) FROM t"),
    work("SELECT count(exp(id::numeric(1000, 500) / 7)) FROM t a"),
    work("SELECT count(power(1.0000000001::numeric, a.id * 1000003)) FROM t a, t b"),
    work("SELECT strpos(repeat('a', 8000000), repeat('a', 400000) || 'b') FROM t"),
    work("SELECT replace(repeat('a', 8000000), repeat('a', 400000) || 'b', '') FROM t"),
    work("SELECT sum((SELECT count(*) FROM generate_series(1, 100000) g WHERE g % a.id = 1)) FROM t a, t b"),
    work("SELECT digest(repeat(a.w, 1000000), 'sha512') IS NULL FROM t a ORDER BY 1"),
    work("SELECT count(*) FROM t a, t b, t c WHERE a.id = ANY (SELECT d.v + b.v FROM t d)"),
    // What writes.
    work("INSERT INTO sink SELECT a.id, b.w FROM t a, t b, t c WHERE a.v + b.v + c.v < 0"),
    work("INSERT INTO sink SELECT g FROM generate_series(1, 1000000000000) g WHERE g < 0"),
    work("UPDATE t SET v = (SELECT count(*) FROM t b, t c, t d WHERE b.v + c.v + d.v > t.v)"),
    work("UPDATE t SET v = 0 FROM t b, t c, t d WHERE b.v + c.v + d.v = -1"),
    work("UPDATE t SET v = 0 WHERE id + length((pg_sleep(1) IS NULL)::text) > 0"),
    work("DELETE FROM t USING t b, t c, t d WHERE b.v + c.v + d.v = -1"),
    work("INSERT INTO t SELECT 1 FROM generate_series(1, 1000000000000) ON CONFLICT DO NOTHING"),
    work("CREATE TABLE filled AS SELECT count(*) FROM t a, t b, t c, t d"),
    work("ALTER TABLE chained ADD COLUMN z text DEFAULT (pg_sleep(1) IS NULL)::text"),
    work("ALTER TABLE chained ALTER COLUMN b TYPE text USING (pg_sleep(1) IS NULL)::text"),
    work("ALTER TABLE chained ADD CHECK (pg_sleep(1) IS NOT NULL)"),
    // Other ways to run a query.
    work("EXPLAIN ANALYZE SELECT count(*) FROM t a, t b, t c, t d WHERE a.v + b.v + c.v + d.v = -1"),
    Place {
        before: "BEGIN; DECLARE c CURSOR FOR SELECT g FROM generate_series(1, 5) g",
        ..work("FETCH ALL FROM c; SELECT * FROM endless")
    },
    work(
        "BEGIN; DECLARE c CURSOR FOR SELECT count(*) FROM t a, t b, t c, t d WHERE a.v + b.v + c.v + d.v = -1; FETCH c",
    ),
    work("DECLARE h CURSOR WITH HOLD FOR SELECT count(*) FROM t a, t b, t c, t d WHERE a.v + b.v + c.v + d.v = -1"),
    Place { before: "PREPARE p AS SELECT * FROM endless", ..work("EXECUTE p") },
    // A node's state.
    Place {
        before: "SET freshet.read_after = '9000000000000000000'; SET freshet.read_after_timeout = '1h'",
        ..work("SELECT * FROM t")
    },
];

/// Asks for something again and again, as soon as the session runs the statement, until that ends.
fn reached(node: &SqlNode, asking: &Sql, function: &str, place: &Place) -> String {
    let session = node.connect();
    let pid = session.lines("SELECT pg_backend_pid()").remove(0);
    if !place.before.is_empty() {
        session.lines(place.before);
    }
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| ends(&session, place.statement));
        let busy = format!("SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND state = 'active'");
        eventually("it runs", || waits.is_finished() || !asking.lines(&busy).is_empty());
        // It may be between two statements of its text: a request that comes too early does
        // nothing.
        while !waits.is_finished() {
            asking.lines(&format!("SELECT {function}({pid})"));
            std::thread::sleep(Duration::from_millis(10));
        }
        waits.join().unwrap()
    })
}

/// Tries all ways to end each, and returns what goes wrong.
fn try_all(places: &[Place]) {
    let node = SqlNode::in_memory();
    let holder = node.connect();
    let asking = node.connect();
    holder.lines(MADE);
    let mut wrong = String::new();
    for place in places {
        if !place.held.is_empty() {
            holder.lines(&format!("BEGIN; {}", place.held));
        }
        let mut timed = |setting: &str, expected: &str| {
            let session = node.connect();
            session.lines(&format!("SET {setting} = '100ms'; {}", place.before));
            let begun = Instant::now();
            let state = ends(&session, place.statement);
            // Who waits is woken, and does not only look now and then.
            let late = if place.is_lock { BOUND } else { LATE };
            if state != expected || begun.elapsed() > late {
                writeln!(wrong, "{setting}: {} gives {state} after {:?}", place.statement, begun.elapsed()).unwrap();
            }
        };
        timed("statement_timeout", "57014");
        if place.is_lock {
            timed("lock_timeout", "55P03");
        }
        for (function, expected) in [("pg_cancel_backend", "57014"), ("pg_terminate_backend", "57P01")] {
            let begun = Instant::now();
            let state = reached(&node, &asking, function, place);
            if state != expected || begun.elapsed() > LATE {
                writeln!(wrong, "{function}: {} gives {state} after {:?}", place.statement, begun.elapsed()).unwrap();
            }
        }
        if !place.held.is_empty() {
            holder.lines("ROLLBACK; SELECT pg_advisory_unlock_all()");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    // Nobody is left, and nothing is held.
    eventually("all have gone", || {
        asking.lines("SELECT count(*) FROM pg_stat_activity WHERE client_addr IS NOT NULL") == ["2"]
    });
    asking.lines("SET lock_timeout = '10s'; BEGIN; LOCK TABLE t, parent, child, late, sink, chained; ROLLBACK");
}

#[test]
fn waits_for_locks_end() {
    try_all(LOCKS);
}

#[test]
fn work_ends() {
    try_all(WORK);
}

/// A session over the bare protocol, with its number.
fn bare(node: &SqlNode, settings: &str) -> (Wire, String) {
    let mut wire = Wire::tcp(node.address());
    assert_eq!(wire.query(settings).state(), None);
    let answer = wire.query("SELECT pg_backend_pid()");
    let pid = answer.parts.iter().find_map(|part| match part {
        Part::Row(row) => row[0].clone(),
        _ => None,
    });
    (wire, pid.unwrap())
}

fn state_of(asking: &Sql, pid: &str) -> String {
    asking.lines(&format!("SELECT state FROM pg_stat_activity WHERE pid = {pid}")).pop().unwrap_or_default()
}

/// A client that sends nothing more in the middle of a COPY. Its locks count as those of INSERT do.
#[test]
fn a_copy_whose_client_stalls_ends() {
    let node = SqlNode::in_memory();
    let asking = node.connect();
    asking.lines("CREATE TABLE sink (x int, y int); INSERT INTO sink VALUES (0, 0); SET lock_timeout = '100ms'");
    for (how, expected) in [("", "57014"), ("pg_cancel_backend", "57014"), ("pg_terminate_backend", "57P01")] {
        let limit = if how.is_empty() { "SET statement_timeout = '2s'" } else { "SET statement_timeout = 0" };
        let (mut wire, pid) = bare(&node, limit);
        wire.begin_copy("COPY sink FROM STDIN", "1\t1\n2\t");
        if how.is_empty() {
            for definition in [
                "ALTER TABLE sink DROP COLUMN y",
                "ALTER TABLE sink ALTER y TYPE text",
                "DROP TABLE sink",
                "LOCK TABLE sink",
            ] {
                assert_eq!(asking.state(&format!("BEGIN; {definition}")), "55P03", "{definition}");
                asking.lines("ROLLBACK");
            }
        } else {
            asking.lines(&format!("SELECT {how}({pid})"));
        }
        eventually("it ends", || state_of(&asking, &pid) != "active");
        assert_eq!(wire.answer().state(), Some(expected), "{how}");
        assert_eq!(asking.lines("SELECT count(*) FROM sink"), ["1"]);
    }
}

/// A client that does not read: what it was sent it still gets, then the error. Only
/// `pg_terminate_backend` ends it without that, since half a message cannot be taken back.
#[test]
fn a_statement_whose_client_does_not_read_ends() {
    let node = SqlNode::in_memory();
    let asking = node.connect();
    asking.lines("CREATE VIEW much AS SELECT repeat('x', 1000), g FROM generate_series(1, 1000000000) g");
    for sql in [
        "SELECT * FROM much",
        "COPY (SELECT * FROM much) TO STDOUT",
        "SELECT repeat('x', 1000), generate_series(1, 1000000000)",
    ] {
        let begun = Instant::now();
        let (mut wire, _) = bare(&node, "SET statement_timeout = '300ms'");
        wire.ask(sql, "");
        while begun.elapsed() < Duration::from_millis(400) {
            std::thread::yield_now();
        }
        assert_eq!(wire.answer().state(), Some("57014"), "{sql}");
        assert!(begun.elapsed() < SOON, "{sql}");
        let (mut wire, pid) = bare(&node, "SET statement_timeout = 0");
        wire.ask(sql, "");
        eventually("it runs", || state_of(&asking, &pid) == "active");
        asking.lines(&format!("SELECT pg_cancel_backend({pid})"));
        assert_eq!(wire.answer().state(), Some("57014"), "{sql}");
        wire.ask(sql, "");
        eventually("it runs", || state_of(&asking, &pid) == "active");
        asking.lines(&format!("SELECT pg_terminate_backend({pid})"));
        eventually("it is gone", || state_of(&asking, &pid).is_empty());
    }
}

#[test]
fn idle_sessions_end() {
    let node = SqlNode::in_memory();
    let asking = node.connect();
    for (setting, statements, state) in [
        ("idle_session_timeout", "", "57P05"),
        ("idle_in_transaction_session_timeout", "BEGIN; SELECT 1", "25P03"),
        ("idle_in_transaction_session_timeout", "BEGIN; SELECT 1/(random() * 0)::int", "25P03"),
    ] {
        let mut wire = Wire::tcp(node.address());
        // By itself: what is set in a transaction that fails is void.
        wire.query(&format!("SET {setting} = '100ms'"));
        if !statements.is_empty() {
            wire.query(statements);
        }
        let answer = wire.answer();
        assert_eq!((answer.state(), answer.status), (Some(state), 'X'), "{setting}: {statements}");
    }
    for settings in ["SELECT 1", "BEGIN; SELECT 1"] {
        let (mut wire, pid) = bare(&node, settings);
        asking.lines(&format!("SELECT pg_cancel_backend({pid})"));
        assert_eq!(wire.query("SELECT 1").state(), None, "nothing was there to be canceled");
        asking.lines(&format!("SELECT pg_terminate_backend({pid})"));
        assert_eq!(wire.answer().state(), Some("57P01"));
    }
}

/// What waits for a database's sessions to leave.
#[test]
fn waits_for_other_sessions_end() {
    let node = SqlNode::in_memory();
    let asking = node.connect();
    asking.lines("CREATE DATABASE busy");
    let config = Sql::config(node.address(), "freshet", None).dbname("busy").to_owned();
    let _there = Sql::open(&config).unwrap();
    for statement in ["DROP DATABASE busy", "ALTER DATABASE busy RENAME TO idle", "CREATE DATABASE copy TEMPLATE busy"]
    {
        let place = work(statement);
        let session = node.connect();
        session.lines("SET statement_timeout = '100ms'");
        let begun = Instant::now();
        assert_eq!(ends(&session, statement), "57014", "{statement}");
        assert!(begun.elapsed() < BOUND, "{statement}");
        for (function, state) in [("pg_cancel_backend", "57014"), ("pg_terminate_backend", "57P01")] {
            assert_eq!(reached(&node, &asking, function, &place), state, "{statement}");
        }
    }
}

/// A standby without its primary waits for what does not come.
#[test]
fn waits_of_standbys_end() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let of = |number: usize| NodeConfig { ..config(Some(directories[number].path())) };
    let primary = SqlNode::start(of(0));
    let standby = SqlNode::start(NodeConfig { join: Some(primary.node.address().to_owned()), ..of(1) });
    primary.connect().lines("CREATE TABLE t (id int)");
    let mut asking = None;
    eventually("it has the table", || {
        asking = Sql::try_connect(standby.address(), "freshet", None).ok();
        asking.as_ref().is_some_and(|asking| asking.outcome("SELECT * FROM t") == "00000")
    });
    let asking = asking.unwrap();
    drop(primary);
    for before in [
        "SET freshet.read_after = '9000000000000000000'; SET freshet.read_after_timeout = '1h'",
        "SET freshet.max_staleness = '1ms'",
    ] {
        let session = standby.connect();
        session.lines(&format!("SET statement_timeout = '100ms'; {before}"));
        assert_eq!(ends(&session, "SELECT * FROM t"), "57014", "{before}");
    }
    let place = Place {
        before: "SET freshet.read_after = '9000000000000000000'; SET freshet.read_after_timeout = '1h'",
        ..work("SELECT * FROM t")
    };
    for (function, state) in [("pg_cancel_backend", "57014"), ("pg_terminate_backend", "57P01")] {
        assert_eq!(reached(&standby, &asking, function, &place), state);
    }
}

/// A primary that is deposed ends its sessions, whatever they wait for.
#[test]
fn a_deposed_primary_ends_its_sessions() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let of = |number: usize| NodeConfig { ..config(Some(directories[number].path())) };
    let mut primary = SqlNode::start(of(0));
    let standby = SqlNode::start(NodeConfig { join: Some(primary.node.address().to_owned()), ..of(1) });
    let holder = primary.connect();
    holder.lines("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)");
    eventually("it has the table", || {
        Sql::try_connect(standby.address(), "freshet", None).is_ok_and(|sql| sql.outcome("SELECT * FROM t") == "00000")
    });
    holder.lines("BEGIN; UPDATE t SET v = 2; SELECT pg_advisory_lock(1)");
    let statements = [
        "UPDATE t SET v = 3",
        "SELECT pg_advisory_lock(1)",
        "ALTER TABLE t ADD COLUMN z int",
        "SELECT pg_sleep(1000)",
        "SELECT count(*) FROM generate_series(1, 1000000000000)",
        "SET freshet.read_after = '9000000000000000000'; SET freshet.read_after_timeout = '1h'; SELECT 1",
    ];
    let sessions: Vec<Sql> = statements.iter().map(|_| primary.connect()).collect();
    let (mut copying, _) = bare(&primary, "SELECT 1");
    copying.begin_copy("COPY t FROM STDIN", "5\t");
    let asking = primary.connect();
    std::thread::scope(|scope| {
        let waits: Vec<_> =
            sessions.iter().zip(statements).map(|(sql, statement)| scope.spawn(move || ends(sql, statement))).collect();
        let busy = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active'";
        eventually("all wait", || asking.lines(busy) == [(statements.len() + 2).to_string()]);
        standby.node.promote(Consent::Loss).unwrap();
        eventually("it knows", || primary.node.is_deposed());
        assert_eq!(primary.shut_down(), 0, "some have not ended");
        for (wait, statement) in waits.into_iter().zip(statements) {
            assert_eq!(wait.join().unwrap(), "57P01", "{statement}");
        }
    });
    assert_eq!(copying.answer().state(), Some("57P01"));
}
