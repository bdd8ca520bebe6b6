//! Statements that take too long, by their own timeouts and by others' requests; and clients that
//! are gone in the middle.

use std::{thread, time::Duration};

use freshet_fuzzing::message::{message, query};

use crate::{
    client::Client,
    subject::{Subject, eventually},
};

/// Statements that do not end by themselves while somebody else holds what [`hold`] takes.
const ENDLESS: &[&str] = &[
    "SELECT pg_sleep(1000)",
    // Native: nested loops, and a function of each row.
    "SELECT count(*) FROM big a, big b, big c WHERE a.a + b.a + c.a < 0",
    "SELECT count(*) FROM big WHERE pg_sleep(a::float8) IS NULL",
    // General: one operator after another.
    "SELECT count(*) FROM generate_series(1, 9000000000000000000)",
    "SELECT g FROM generate_series(1, 9000000000000000000) g WHERE g < 0",
    "SELECT count(*) FROM big a LEFT JOIN big b ON a.a + b.a < 0 LEFT JOIN big c ON a.a + c.a < 0",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM r) SELECT count(*) FROM r",
    "SELECT (SELECT count(*) FROM generate_series(1, 9000000000000000000)) FROM t",
    "INSERT INTO t SELECT g FROM generate_series(1, 9000000000000000000) g WHERE g < 0",
    "COPY (SELECT g FROM generate_series(1, 9000000000000000000) g WHERE g < 0) TO STDOUT",
    // The client is asked for data and sends none.
    "COPY t FROM STDIN",
    // Locks: a row's, a table's, a number's.
    "UPDATE t SET a = 5 WHERE id = 1",
    "SELECT * FROM t WHERE id = 1 FOR UPDATE",
    "DELETE FROM t",
    "COPY t FROM STDIN WITH (FORMAT csv)",
    "ALTER TABLE t ADD COLUMN c int",
    "SELECT pg_advisory_lock(77)",
    "TRUNCATE t",
];

fn hold(subject: &Subject) -> Client {
    let mut holder = subject.connect();
    holder.run("BEGIN; UPDATE t SET a = 9 WHERE id = 1; SELECT pg_advisory_lock(77)");
    holder
}

#[test]
fn statements_end_when_their_time_is_over() {
    let mut subject = Subject::start(10);
    let holder = hold(&subject);
    let mut client = subject.connect();
    client.run("SET statement_timeout = '200ms'");
    for sql in ENDLESS {
        assert_eq!(client.state(sql), "57014", "{sql}");
        assert_eq!(client.rows("SELECT 1"), [["1"]], "{sql}");
    }
    client.run("SET statement_timeout = 0; SET lock_timeout = '100ms'");
    for sql in ["UPDATE t SET a = 5 WHERE id = 1", "DELETE FROM t", "TRUNCATE t", "LOCK TABLE t"] {
        assert_eq!(client.state(&format!("BEGIN; {sql}")), "55P03", "{sql}");
        client.run("ROLLBACK");
    }
    client.terminate();
    holder.terminate();
    subject.assert_unharmed();
}

#[test]
fn statements_end_when_they_are_canceled() {
    let mut subject = Subject::start(10);
    let holder = hold(&subject);
    let mut client = subject.connect();
    for sql in ENDLESS {
        client.send(&query(sql.as_bytes()));
        eventually("the statement runs", || {
            subject.connect().rows("SELECT count(*) FROM pg_stat_activity WHERE state = 'active'") == [["2"]]
        });
        client.cancel();
        assert_eq!(client.outline(), "57014 Z", "{sql}");
        assert_eq!(client.rows("SELECT 1"), [["1"]], "{sql}");
    }
    client.terminate();
    holder.terminate();
    subject.assert_unharmed();
}

#[test]
fn sessions_end_when_they_are_terminated() {
    let mut subject = Subject::start(10);
    let holder = hold(&subject);
    let mut killer = subject.connect();
    for sql in ENDLESS.iter().chain(&["BEGIN; UPDATE t SET a = 0 WHERE id = 2"]) {
        let mut client = subject.connect();
        client.send(&query(sql.as_bytes()));
        let pid = client.pid();
        eventually("the statement was begun", || {
            let sql = format!("SELECT query <> '' FROM pg_stat_activity WHERE pid = {pid}");
            killer.rows(&sql) == [["t"]]
        });
        assert_eq!(killer.rows(&format!("SELECT pg_terminate_backend({pid})")), [["t"]], "{sql}");
        let outline = client.outline();
        assert!(outline == "57P01" || outline == "Z", "{sql}: {outline}");
    }
    killer.terminate();
    holder.terminate();
    subject.assert_unharmed();
}

#[test]
fn clients_that_go_away_take_everything_with_them() {
    let mut subject = Subject::start(60);
    let holder = hold(&subject);
    for sql in ENDLESS {
        let mut client = subject.connect();
        client.send(&query(sql.as_bytes()));
        thread::sleep(Duration::from_millis(20));
        drop(client);
    }
    let mut client = subject.connect();
    eventually("only two sessions are left", || {
        client.rows("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'") == [["2"]]
    });
    client.terminate();
    drop(holder);
    // In a transaction, in a copy that has begun, in the middle of a message.
    let mut client = subject.connect();
    client.run("BEGIN; UPDATE t SET a = 100");
    drop(client);
    let mut client = subject.connect();
    client.send(&query(b"COPY t FROM STDIN"));
    client.send(&message(b'd', b"50\t1\tx\n51\t"));
    drop(client);
    let mut client = subject.connect();
    client.run("BEGIN; UPDATE t SET a = 100");
    client.send(&query(b"SELECT 1")[..7]);
    drop(client);
    let mut client = subject.connect();
    eventually("the rows are free", || client.state("SET lock_timeout = '1s'; UPDATE t SET b = b").is_empty());
    assert_eq!(client.rows("SELECT sum(a), count(*) FROM t"), [["3", "2"]]);
    client.terminate();
    subject.assert_unharmed();
}

#[test]
fn clients_that_do_not_read_hold_up_nobody_else() {
    let mut subject = Subject::start(10);
    let before = subject.memory();
    let mut deaf: Vec<Client> = (0..5).map(|_| subject.connect()).collect();
    for client in &mut deaf {
        client.send(&query(b"SELECT repeat('x', 1000) FROM generate_series(1, 100000000)"));
    }
    let mut other = subject.connect();
    other.run("UPDATE t SET b = b");
    eventually("they wait for their clients", || {
        other.rows("SELECT count(*) FROM pg_stat_activity WHERE state = 'active'") == [["6"]]
    });
    thread::sleep(Duration::from_millis(500));
    let grown = subject.memory().saturating_sub(before) >> 20;
    assert!(grown < 200, "{grown} MiB are kept for clients that do not read");
    // One is terminated, one canceled, the others go.
    let pid = deaf[0].pid();
    assert_eq!(other.rows(&format!("SELECT pg_terminate_backend({pid})")), [["t"]]);
    deaf[1].cancel();
    deaf.truncate(2);
    eventually("the terminated one is gone", || {
        other.rows(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}")) == [["0"]]
    });
    drop(deaf);
    other.terminate();
    subject.assert_unharmed();
}

#[test]
fn a_node_ends_though_a_session_does_not() {
    let mut subject = Subject::start(10);
    let mut client = subject.connect();
    // One match of an expression whose automaton has too many states to be kept. Nothing is asked
    // within a match.
    let text = "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 60000) g)";
    let expression = "[0-7][0-9a-f]{250}[^0-9a-f]";
    client.run(&format!("CREATE TABLE texts (x text); INSERT INTO texts {text}"));
    client.send(&query(format!("SELECT repeat(x, 10) ~ '{expression}' FROM texts").as_bytes()));
    eventually("the statement runs", || {
        subject.connect().rows("SELECT count(*) FROM pg_stat_activity WHERE state = 'active'") == [["2"]]
    });
    let mut other = subject.connect();
    other.run("INSERT INTO t VALUES (77, 77, 'kept')");
    let messages = subject.end();
    assert!(messages.contains("sessions did not end in time") && messages.contains("sessions=1"), "{messages}");
    subject.start_again();
    assert_eq!(subject.connect().rows("SELECT b FROM t WHERE id = 77"), [["kept"]]);
}
