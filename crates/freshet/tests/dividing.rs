//! Sessions whose reads go to standbys, and that see what they have written and read
//! (`freshet.route = any`).

mod common;
mod routed;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use common::{Sql, in_sync, start, status, wait_until};
use freshet::children::NodeProcess;
use routed::{again, all_in_sync, cluster, code, switch_over, until, while_it_sleeps};

const ANY: &str = "user=freshet options='-c freshet.route=any'";

fn divided(node: &NodeProcess) -> Sql {
    Sql::connect_as(node, ANY).unwrap()
}

/// Where a statement of one column was done that says so: on the primary, or on a standby.
fn place(session: &Sql, sql: &str) -> String {
    match session.run(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}")).pop().as_deref() {
        Some(text) if text.starts_with('f') => "primary".to_owned(),
        Some(text) if text.starts_with('t') => "standby".to_owned(),
        other => panic!("{sql}: {other:?}"),
    }
}

/// Blocks until this session reads on a standby: it may have found one to be slow before.
fn until_it_reads(session: &Sql) {
    until("it reads on a standby", || place(session, "SELECT pg_is_in_recovery()") == "standby");
}

const HERE: &str = "SELECT pg_is_in_recovery()";

#[test]
fn statements_go_where_they_can_be_done() {
    let directory = tempfile::tempdir().unwrap();
    let [primary, standby, _third] = cluster(directory.path(), &[]);
    Sql::connect(&primary)
        .run(
            "CREATE TABLE t (a integer PRIMARY KEY); INSERT INTO t VALUES (1); CREATE SEQUENCE s; \
              CREATE VIEW n AS SELECT nextval('s') AS v; \
              CREATE VIEW l AS SELECT pg_try_advisory_lock(1) AS v",
        )
        .unwrap();
    for node in [&standby, &primary] {
        let session = divided(node);
        assert_eq!(session.run("SHOW freshet.route").unwrap(), ["any"]);
        until_it_reads(&session);
        for (sql, expected) in [
            (HERE, "standby"),
            ("SELECT pg_is_in_recovery() FROM t WHERE a = 1", "standby"),
            ("WITH q AS (SELECT a FROM t) SELECT bool_and(pg_is_in_recovery()) FROM q", "standby"),
            ("SELECT 1; SELECT pg_is_in_recovery()", "standby"),
            ("SELECT pg_is_in_recovery() FROM t FOR UPDATE", "primary"),
            ("SELECT pg_is_in_recovery() || '' || nextval('s')", "primary"),
            ("SELECT pg_is_in_recovery() || '' || currval('s')", "primary"),
            ("SELECT pg_is_in_recovery() || '' || v FROM n", "primary"),
            ("SELECT pg_is_in_recovery() || '' || v FROM l", "primary"),
            ("SELECT pg_is_in_recovery() || '' || pg_backend_pid()", "primary"),
            ("SELECT pg_is_in_recovery() || '' || count(*) FROM pg_stat_activity", "primary"),
            ("SELECT 1; SHOW in_hot_standby; SELECT pg_is_in_recovery()", "primary"),
            ("BEGIN; SELECT pg_is_in_recovery(); COMMIT", "primary"),
            ("BEGIN READ ONLY; SELECT pg_is_in_recovery(); COMMIT", "standby"),
        ] {
            // What is bound to its session on the primary stays there.
            session.run("SELECT pg_advisory_unlock_all()").unwrap();
            assert_eq!(place(&session, sql), expected, "{sql}");
        }
    }
}

#[test]
fn transactions_that_are_read_only_are_on_a_standby_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let [_primary, standby, _third] = cluster(directory.path(), &[]);
    let session = divided(&standby);
    session.run("CREATE TABLE t (a integer); INSERT INTO t VALUES (1)").unwrap();
    until_it_reads(&session);
    for (begin, expected) in [
        (&["BEGIN"][..], "primary"),
        (&["BEGIN READ ONLY"], "standby"),
        (&["START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"], "standby"),
        (&["START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY"], "primary"),
        (&["BEGIN READ ONLY", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"], "primary"),
        (&["BEGIN; SET TRANSACTION READ ONLY"], "standby"),
        (&["BEGIN", "SET TRANSACTION READ ONLY"], "standby"),
        (&["BEGIN", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET TRANSACTION READ ONLY"], "standby"),
        (&["BEGIN", "SELECT a FROM t", "SET TRANSACTION READ ONLY"], "primary"),
        (&["BEGIN READ ONLY", "SET TRANSACTION READ WRITE", "INSERT INTO t VALUES (2)"], "primary"),
        (&["BEGIN READ ONLY", "SELECT pg_advisory_xact_lock(1)"], "primary"),
    ] {
        begin.iter().for_each(|sql| drop(session.run(sql).unwrap_or_else(|error| panic!("{begin:?}: {error:?}"))));
        assert_eq!(place(&session, "SELECT pg_is_in_recovery() FROM t LIMIT 1"), expected, "{begin:?}");
        assert_eq!(place(&session, "DECLARE c CURSOR FOR SELECT pg_is_in_recovery(); FETCH c"), expected);
        if expected == "standby" {
            assert_eq!(code(&session.run("SELECT pg_advisory_lock(1)").unwrap_err()), "25006");
            assert_eq!(code(&session.run("SELECT 1").unwrap_err()), "25P02");
        }
        session.run("ROLLBACK").unwrap();
    }
    assert_eq!(code(&session.run("BEGIN READ ONLY; INSERT INTO t VALUES (3)").unwrap_err()), "25006");
    session.run("ROLLBACK").unwrap();

    // Also where that is the default.
    session.run("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY").unwrap();
    for (begin, expected) in [("BEGIN", "standby"), ("BEGIN READ WRITE", "primary")] {
        session.run(begin).unwrap();
        assert_eq!(place(&session, HERE), expected, "{begin}");
        session.run("COMMIT").unwrap();
    }
    session.run("SET default_transaction_read_only = off; BEGIN").unwrap();
    assert_eq!(place(&session, HERE), "primary");
    session.run("ROLLBACK").unwrap();
    assert_eq!(session.run("SELECT count(*) FROM t").unwrap(), ["1"]);
}

#[test]
fn a_session_is_the_same_on_both_nodes() {
    let directory = tempfile::tempdir().unwrap();
    let [primary, standby, _third] = cluster(directory.path(), &[]);
    for node in [&standby, &primary] {
        let session = divided(node);
        session.run("DROP SCHEMA IF EXISTS a CASCADE; DROP ROLE IF EXISTS r").unwrap();
        session
            .run("CREATE ROLE r; CREATE SCHEMA a; CREATE TABLE a.t (a integer); INSERT INTO a.t VALUES (7)")
            .unwrap();
        session.run("GRANT ALL ON SCHEMA a TO r; GRANT ALL ON a.t TO r").unwrap();
        until_it_reads(&session);
        session.run("SET search_path = a; SET my.own = 'x'; SET datestyle = 'German'").unwrap();
        let both = "SELECT pg_is_in_recovery() || ' ' || a || current_setting('my.own') || current_user \
                    || DATE '2020-01-02' || current_setting('search_path') FROM t";
        let check = |expected: &str| {
            until_it_reads(&session);
            assert_eq!(session.run(both).unwrap(), [format!("true {expected}")]);
            assert_eq!(session.run(&format!("{both} FOR SHARE")).unwrap(), [format!("false {expected}")]);
        };
        check("7xfreshet02.01.2020a");
        session.run("SET ROLE r").unwrap();
        check("7xr02.01.2020a");
        // What a READ ONLY transaction sets on the standby is so on the primary, if it commits.
        session.run("BEGIN READ ONLY; SET my.own = 'y'; SET LOCAL datestyle = 'ISO'; COMMIT").unwrap();
        session.run("BEGIN READ ONLY; SET my.own = 'z'; ROLLBACK").unwrap();
        check("7yr02.01.2020a");
        session.run("RESET ROLE; RESET datestyle; RESET my.own; SET my.own = 'w'").unwrap();
        check("7wfreshet2020-01-02a");

        // Statements that were prepared on either.
        session.run("PREPARE p (integer) AS SELECT pg_is_in_recovery(), $1").unwrap();
        session.run("BEGIN READ ONLY; PREPARE q AS SELECT pg_is_in_recovery() FROM t FOR UPDATE; COMMIT").unwrap();
        assert_eq!(place(&session, "EXECUTE p (1)"), "standby");
        assert_eq!(place(&session, "EXECUTE q"), "primary");
        let names = "SELECT name FROM pg_prepared_statements WHERE name IN ('p', 'q') ORDER BY 1";
        assert_eq!(session.run(names).unwrap(), ["p", "q"]);
        session.run("DEALLOCATE p").unwrap();
        assert_eq!(session.run(names).unwrap(), ["q"]);
        assert_eq!(code(&session.run("EXECUTE p (1)").unwrap_err()), "26000");

        // Numbers of sequences.
        session.run("DROP SEQUENCE IF EXISTS s; CREATE SEQUENCE s START 42").unwrap();
        assert_eq!(session.run("SELECT nextval('s')").unwrap(), ["42"]);
        let last = "BEGIN READ ONLY; SELECT pg_is_in_recovery() || ' ' || currval('s') || ' ' || lastval(); COMMIT";
        assert_eq!(session.run(last).unwrap(), ["true 42 42"]);
        session.run("DISCARD SEQUENCES").unwrap();
        assert_eq!(code(&session.run(last).unwrap_err()), "55000");
        session.run("ROLLBACK").unwrap();

        // What only the primary's session has.
        session.run("LISTEN news").unwrap();
        assert_eq!(place(&session, HERE), "primary");
        session.run("UNLISTEN *").unwrap();
        assert_eq!(place(&session, HERE), "standby");
    }
}

#[test]
fn drivers_prepare_and_run_on_both_nodes() {
    let directory = tempfile::tempdir().unwrap();
    let [_primary, standby, _third] = cluster(directory.path(), &[]);
    let session = divided(&standby);
    session.run("CREATE TABLE t (a integer PRIMARY KEY, b text)").unwrap();
    until_it_reads(&session);
    let counted = |what: &str| status(&standby)["divided"][what].as_u64().unwrap();
    assert!(counted("by_primary") > 0 && counted("by_standbys") > 0);
    let (client, runtime) = session.parts();
    runtime.block_on(async {
        let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await.unwrap();
        let read = client.prepare("SELECT b, pg_is_in_recovery() FROM t WHERE a = $1").await.unwrap();
        let mut on_standby = 0;
        for number in 0..200 {
            assert_eq!(client.execute(&insert, &[&number, &format!("row {number}")]).await.unwrap(), 1);
            let row = client.query_one(&read, &[&number]).await.unwrap();
            assert_eq!(row.get::<_, String>(0), format!("row {number}"));
            on_standby += i32::from(row.get::<_, bool>(1));
        }
        assert!(on_standby > 0, "none was read there");
        // An error in the middle of a unit, and the next unit after it.
        let failed = client.query("SELECT 1 / $1::integer", &[&0]).await.unwrap_err();
        assert_eq!(code(&failed), "22012");
        assert_eq!(client.query_one(&read, &[&7]).await.unwrap().get::<_, String>(0), "row 7");
        // Much is asked before anything is answered.
        let all = (0..200).map(|number| client.query_one(&read, if number < 100 { &[&1] } else { &[&2] }));
        assert!(futures_util::future::join_all(all).await.iter().all(Result::is_ok));
        // Long ones go by as well.
        let long = "x".repeat(300 << 10);
        let row = client.query_one("SELECT $1::text, pg_is_in_recovery()", &[&long]).await.unwrap();
        assert_eq!((row.get::<_, String>(0), row.get::<_, bool>(1)), (long, false), "too long to be put back");
        let rows = client.query("SELECT repeat('y', 300000) FROM generate_series(1, 5)", &[]).await.unwrap();
        assert_eq!(rows.len(), 5);
    });
    until_it_reads(&session);
    runtime.block_on(async {
        // The client holds the session itself for a transaction.
        client.batch_execute("BEGIN READ ONLY").await.unwrap();
        assert!(client.query_one(HERE, &[]).await.unwrap().get::<_, bool>(0));
        client.batch_execute("COMMIT").await.unwrap();
    });
}

/// Writes rows and reads them back at once; says how many reads a standby has done.
fn reads_back(session: &Sql, client: u64, stop: &AtomicBool, count: &AtomicU64) -> (u64, u64) {
    let (mut written, mut seen, mut on_standby) = (0, 0, 0);
    let read = format!(
        "SELECT pg_is_in_recovery() || ' ' || count(*) || ' ' || (SELECT count(*) FROM j) \
         FROM j WHERE client = {client}"
    );
    while !stop.load(Ordering::Relaxed) {
        match session.run(&format!("INSERT INTO j VALUES ({client})")) {
            Ok(_) => written += 1,
            Err(error) => assert!(matches!(code(&error), "40001" | "40003"), "{error:?}"),
        }
        for _ in 0..3 {
            let row = match session.run(&read) {
                Ok(rows) => rows.concat(),
                // On the primary, when that was lost.
                Err(error) => {
                    assert!(matches!(code(&error), "40001" | "40003"), "{error:?}");
                    continue;
                }
            };
            let fields: Vec<&str> = row.split(' ').collect();
            let [own, all] = [1, 2].map(|at: usize| fields[at].parse::<u64>().unwrap());
            assert!(own >= written, "{row}: {written} rows of its own were acknowledged");
            assert!(all >= seen, "{row}: it has seen {seen} rows before");
            seen = all;
            on_standby += u64::from(fields[0] == "true");
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    (written, on_standby)
}

/// Has sessions write and read through nodes, while `then` does something; it gets what blocks
/// until this number of further reads was done.
fn while_they_read(nodes: &[&NodeProcess], then: impl FnOnce(&dyn Fn(u64))) -> u64 {
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = nodes
        .iter()
        .zip(0..)
        .map(|(node, client)| {
            let (session, stop, count) = (divided(node), Arc::clone(&stop), Arc::clone(&count));
            thread::spawn(move || reads_back(&session, client, &stop, &count))
        })
        .collect();
    then(&|reads| {
        let from = count.load(Ordering::Relaxed);
        until("more reads", || count.load(Ordering::Relaxed) >= from + reads);
    });
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().map(|thread| thread.join().unwrap().1).sum()
}

#[test]
fn a_session_sees_what_it_has_written_and_read_whatever_a_standby_does() {
    let directory = tempfile::tempdir().unwrap();
    let [primary, second, third] = cluster(directory.path(), &[]);
    let check = divided(&primary);
    check.run("CREATE TABLE j (client bigint)").unwrap();
    let on_standbys = while_they_read(&[&primary, &second, &second, &third], |more| {
        more(200);
        // Sessions on the primary read there, and the level still has its quorum.
        third.pause();
        wait_until(&primary, "one is in sync", |status| in_sync(status) == 1);
        third.resume();
        all_in_sync(&primary);
        more(200);
    });
    assert!(on_standbys > 100, "{on_standbys} reads on standbys");
}

#[test]
fn a_standby_that_shows_nothing_new_reads_nothing_old() {
    let directory = tempfile::tempdir().unwrap();
    let open = common::open_sql(&directory.path().join("access"));
    let flags: Vec<&str> = open.iter().map(String::as_str).collect();
    let primary = start(&directory.path().join("a"), &flags);
    let joins = ["--join", &primary.ready().listen, "--replay", "none"];
    let standby = start(&directory.path().join("b"), &[&joins, &flags[..]].concat());
    wait_until(&primary, "one is in sync", |status| in_sync(status) == 1);
    // The primary believes it to be one that shows something, and asks it again and again.
    let session = divided(&primary);
    session.run("CREATE TABLE t (a integer)").unwrap();
    // Longer than it leaves a standby alone that did not read.
    let (mut rows, begun) = (0, Instant::now());
    while begun.elapsed() < Duration::from_secs(3) {
        rows += 1;
        session.run("INSERT INTO t VALUES (1)").unwrap();
        assert_eq!(session.run("SELECT count(*) FROM t").unwrap(), [rows.to_string()]);
    }
    assert!(status(&primary)["divided"]["by_primary"].as_u64().unwrap() > 2 * rows);
    drop(standby);
}

#[test]
fn reads_continue_while_there_is_no_primary() {
    let directory = tempfile::tempdir().unwrap();
    let open = common::open_sql(&directory.path().join("access"));
    let flags: Vec<&str> = open.iter().map(String::as_str).collect();
    let mut primary = start(&directory.path().join("a"), &flags);
    let joins = ["--join", &primary.ready().listen];
    let standby = start(&directory.path().join("b"), &[&joins, &flags[..]].concat());
    wait_until(&primary, "one is in sync", |status| in_sync(status) == 1);
    until("it shows the catalog", || Sql::connect_as(&standby, "user=freshet").is_ok());
    let session = divided(&standby);
    session.run("CREATE TABLE t (a integer); INSERT INTO t VALUES (1)").unwrap();
    until_it_reads(&session);
    // Of two nodes none takes over by itself.
    primary.kill();
    let lost = Instant::now();
    while lost.elapsed() < Duration::from_secs(7) {
        assert_eq!(place(&session, "SELECT pg_is_in_recovery() FROM t"), "standby");
    }
    assert_eq!(code(&session.run("INSERT INTO t VALUES (2)").unwrap_err()), "57P03");
}

#[test]
fn reads_and_writes_go_on_through_failovers() {
    let directory = tempfile::tempdir().unwrap();
    let [mut primary, second, standby] = cluster(directory.path(), &[]);
    divided(&standby).run("CREATE TABLE j (client bigint)").unwrap();
    let on_standbys = while_they_read(&[&standby, &standby, &standby, &standby], |more| {
        more(100);
        switch_over(&primary, &second);
        more(100);
        wait_until(&second, "both in sync", |status| in_sync(status) == 2);
        switch_over(&second, &primary);
        more(100);
        all_in_sync(&primary);
        primary.kill();
        more(100);
    });
    assert!(on_standbys > 50, "{on_standbys} reads on standbys");
    // Its own node leads in the end, or follows: both serve all.
    let session = divided(&standby);
    let rows = again(&session, "SELECT count(*) FROM j");
    again(&session, "INSERT INTO j VALUES (99)");
    assert_eq!(session.run("SELECT count(*) FROM j").unwrap(), [(rows[0].parse::<u64>().unwrap() + 1).to_string()]);
}

/// The standby that a session reads on which has reached the primary.
fn reads_on(session: &Sql, standbys: [NodeProcess; 2]) -> [NodeProcess; 2] {
    until_it_reads(session);
    session.run("SET application_name = 'a reader'").unwrap();
    until_it_reads(session);
    let [second, third] = standbys;
    let there = |node: &NodeProcess| {
        let all = "SELECT pid FROM pg_stat_activity WHERE application_name = 'a reader'";
        Sql::connect(node).run(all).unwrap().len()
    };
    match [there(&second), there(&third)] {
        [1, 0] => [second, third],
        [0, 1] => [third, second],
        other => panic!("it reads on one of them: {other:?}"),
    }
}

#[test]
fn a_standby_that_is_lost_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let [primary, second, third] = cluster(directory.path(), &[]);
    let session = Arc::new(divided(&primary));
    session.run("CREATE TABLE t (a integer); INSERT INTO t VALUES (1)").unwrap();
    let [reader, other] = reads_on(&session, [second, third]);

    // It stands still: what it was to read the primary reads, after a while.
    reader.pause();
    assert_eq!(session.run("SELECT a FROM t").unwrap(), ["1"]);
    reader.resume();
    until_it_reads(&session);
    all_in_sync(&primary);

    // In the middle of a read, before the client has got anything of it: the primary does it.
    let [mut reader, other] = reads_on(&session, [reader, other]);
    let sleeps = Arc::clone(&session);
    let sleeping = thread::spawn(move || place(&sleeps, "SELECT pg_is_in_recovery() FROM (SELECT pg_sleep(3)) q"));
    let there = Sql::connect(&reader);
    let active = "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(3)%' \
                  AND pid <> pg_backend_pid()";
    until("it sleeps", || !there.run(active).unwrap().is_empty());
    reader.kill();
    assert_eq!(sleeping.join().unwrap(), "primary");

    // A transaction fails that was on it, and its session continues.
    until_it_reads(&session);
    session.run("BEGIN READ ONLY").unwrap();
    assert_eq!(place(&session, HERE), "standby");
    let all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'a reader'";
    assert_eq!(Sql::connect(&other).run(all).unwrap(), ["t"]);
    until("its end is known", || session.run("SELECT a FROM t").is_err_and(|error| code(&error) == "40001"));
    assert_eq!(code(&session.run("SELECT a FROM t").unwrap_err()), "25P02");
    session.run("ROLLBACK").unwrap();
    session.run("INSERT INTO t VALUES (2)").unwrap();
    assert_eq!(session.run("SELECT count(*) FROM t").unwrap(), ["2"]);
    until_it_reads(&session);
}

#[test]
fn what_a_standby_does_can_be_canceled() {
    let directory = tempfile::tempdir().unwrap();
    let [primary, standby, _third] = cluster(directory.path(), &[]);
    let session = Arc::new(divided(&standby));
    until_it_reads(&session);
    let canceled = while_it_sleeps(&session, &standby, || {
        let (client, runtime) = session.parts();
        runtime.block_on(client.cancel_token().cancel_query(tokio_postgres::NoTls)).unwrap();
    });
    assert_eq!(code(&canceled.unwrap_err()), "57014");
    assert_eq!(place(&session, HERE), "standby");
    session.run("CREATE TABLE t (a integer)").unwrap();

    // A client that goes leaves nothing behind, on either node.
    drop(session);
    for node in [&primary, &standby] {
        let watching = Sql::connect_as(node, "user=freshet").unwrap();
        let sessions =
            "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
        until("nobody else is there", || watching.run(sessions).unwrap().is_empty());
    }
}

#[test]
fn an_idle_session_ends_when_its_client_is_idle() {
    let directory = tempfile::tempdir().unwrap();
    let [_primary, standby, _third] = cluster(directory.path(), &[]);
    let session = divided(&standby);
    session.run("SET idle_session_timeout = 2000").unwrap();
    until_it_reads(&session);
    // It works on the standby for longer than that, and is idle on the primary.
    for _ in 0..4 {
        session.run("SELECT pg_sleep(0.8)").unwrap();
    }
    session.run("CREATE TABLE t (a integer)").unwrap();
    until_it_reads(&session);
    until("it is idle for too long", || session.parts().0.is_closed());
}

#[test]
fn a_primary_alone_serves_all() {
    let directory = tempfile::tempdir().unwrap();
    let open = common::open_sql(&directory.path().join("access"));
    let flags: Vec<&str> = open.iter().map(String::as_str).collect();
    let primary = start(&directory.path().join("a"), &flags);
    let session = divided(&primary);
    session.run("CREATE TABLE t (a integer); INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(session.run("SELECT a FROM t").unwrap(), ["1"]);
    session.run("BEGIN READ ONLY").unwrap();
    assert_eq!(place(&session, HERE), "primary");
    session.run("COMMIT").unwrap();
}
