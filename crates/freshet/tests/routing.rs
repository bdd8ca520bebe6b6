//! Sessions that reach a standby, want the primary, and outlive it.

mod common;
mod routed;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use common::{SOON, Sql, in_sync, status, wait_until};
use freshet::children::NodeProcess;
use routed::{ROUTED, again, all_in_sync, cluster, code, routed, switch_over, until, while_it_sleeps};

#[test]
fn a_session_is_served_by_the_node_that_it_wants() {
    let directory = tempfile::tempdir().unwrap();
    let [primary, standby, _third] = cluster(directory.path(), &[]);
    let session = routed(&standby);
    assert_eq!(session.run("SELECT pg_is_in_recovery()").unwrap(), ["f"]);
    assert_eq!(session.run("SHOW freshet.route").unwrap(), ["primary"]);
    session.run("CREATE TABLE t (a integer PRIMARY KEY)").unwrap();
    session.run("INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(Sql::connect(&primary).run("SELECT a FROM t").unwrap(), ["1"]);

    // The primary knows the client, and not the node between.
    let shown = "SELECT client_addr || ' ' || client_port FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    let [by_primary, by_client] = [shown, "SELECT inet_client_addr() || ' ' || inet_client_port()"]
        .map(|sql| session.run(sql).unwrap().remove(0));
    assert!(by_primary.starts_with("127.0.0.1 "));
    assert_eq!(by_primary, by_client);

    // Who does not ask is served where it is.
    assert_eq!(Sql::connect(&standby).run("SELECT pg_is_in_recovery()").unwrap(), ["t"]);
    let local = |node: &NodeProcess, route: &str| {
        Sql::connect_as(node, &format!("user=freshet options='-c freshet.route={route}'"))
    };
    assert_eq!(local(&standby, "standby").unwrap().run("SELECT pg_is_in_recovery()").unwrap(), ["t"]);
    assert_eq!(local(&standby, "node").unwrap().run("SELECT pg_is_in_recovery()").unwrap(), ["t"]);
    assert_eq!(local(&primary, "primary").unwrap().run("SELECT pg_is_in_recovery()").unwrap(), ["f"]);
    assert_eq!(code(&local(&primary, "standby").err().unwrap()), "57P03");
    assert_eq!(code(&local(&standby, "some").err().unwrap()), "22023");
    assert_eq!(code(&session.run("SET freshet.route = node").unwrap_err()), "55P02");

    // Roles and databases may say so, too; the client's own word counts for more.
    session.run("CREATE ROLE r LOGIN PASSWORD 'p'; ALTER ROLE r SET freshet.route = primary").unwrap();
    let of_role = |more: &str| Sql::connect_as(&standby, &format!("user=r password=p {more}"));
    until("the role is known there", || of_role("").is_ok());
    assert_eq!(of_role("").unwrap().run("SELECT pg_is_in_recovery()").unwrap(), ["f"]);
    let said = of_role("options='-c freshet.route=node'").unwrap();
    assert_eq!(said.run("SELECT pg_is_in_recovery()").unwrap(), ["t"]);
}

/// The primary has only that node's word who the client is.
#[test]
fn what_a_removed_node_has_handed_on_ends() {
    let directory = tempfile::tempdir().unwrap();
    let [primary, standby, other] = cluster(directory.path(), &[]);
    let (session, stays) = (routed(&standby), routed(&other));
    [&session, &stays].into_iter().for_each(|session| drop(session.run("SELECT 1").unwrap()));
    let (code, text) = common::run(&["remove", "--address", &primary.ready().address, &standby.ready().listen]);
    assert_eq!(code, Some(0), "{text}");
    until("its session ends", || session.run("SELECT 1").is_err());
    until("none of its own is served any more", || Sql::connect_as(&standby, ROUTED).is_err());
    assert_eq!(stays.run("SELECT pg_is_in_recovery()").unwrap(), ["f"]);
}

#[test]
fn what_a_session_does_on_the_primary_can_be_canceled() {
    let directory = tempfile::tempdir().unwrap();
    let [primary, standby, _third] = cluster(directory.path(), &[]);
    let session = Arc::new(routed(&standby));
    let canceled = while_it_sleeps(&session, &primary, || {
        let (client, runtime) = session.parts();
        runtime.block_on(client.cancel_token().cancel_query(tokio_postgres::NoTls)).unwrap();
    });
    assert_eq!(code(&canceled.unwrap_err()), "57014");
    assert_eq!(session.run("SELECT 1").unwrap(), ["1"]);

    // Who is sent away by the primary's operator is, and does not come back.
    let ended = while_it_sleeps(&session, &primary, || {
        let all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'";
        Sql::connect(&primary).run(all).unwrap();
    });
    assert_eq!(code(&ended.unwrap_err()), "57P01");
    assert!(session.run("SELECT 1").is_err());

    // A client that goes leaves nothing behind.
    drop(session);
    let watching = Sql::connect(&primary);
    let sessions = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
    until("nobody else is there", || watching.run(sessions).unwrap().is_empty());
}

#[test]
fn a_session_outlives_its_primary() {
    let directory = tempfile::tempdir().unwrap();
    let [mut primary, second, standby] = cluster(directory.path(), &[]);
    let session = routed(&standby);
    session.run("CREATE TABLE t (a integer PRIMARY KEY, b text); CREATE ROLE r; GRANT ALL ON t TO r").unwrap();
    session.run("SET application_name = 'wanderer'; SET search_path = pg_catalog, public; SET my.own = 'x y'").unwrap();
    session.run("BEGIN; SET my.own = 'taken back'; ROLLBACK; BEGIN; SET LOCAL my.own = 'local'; COMMIT").unwrap();
    session.run("SET datestyle = 'German'; SET ROLE r; PREPARE p (integer) AS SELECT b FROM t WHERE a = $1").unwrap();
    session.run("PREPARE gone AS SELECT 1; DEALLOCATE gone").unwrap();
    session.run("RESET ROLE; CREATE SEQUENCE public.s START 5; SELECT nextval('public.s'); SET ROLE r").unwrap();
    let (client, runtime) = session.parts();
    let insert = runtime.block_on(client.prepare("INSERT INTO t VALUES ($1, $2)")).unwrap();
    let mut rows = 0;
    let mut check = |session: &Sql| {
        rows += 1;
        runtime.block_on(client.execute(&insert, &[&rows, &"kept"])).unwrap();
        assert_eq!(session.run(&format!("EXECUTE p ({rows})")).unwrap(), ["kept"]);
        assert_eq!(session.run("SHOW application_name").unwrap(), ["wanderer"]);
        assert_eq!(session.run("SHOW search_path").unwrap(), ["pg_catalog, public"]);
        assert_eq!(session.run("SHOW my.own").unwrap(), ["x y"]);
        assert_eq!(session.run("SHOW datestyle").unwrap(), ["German, DMY"]);
        assert_eq!(session.run("SELECT current_user || ' ' || session_user").unwrap(), ["r freshet"]);
        let names = session.run("SELECT name FROM pg_prepared_statements WHERE name IN ('p', 'gone')").unwrap();
        assert_eq!(names, ["p"]);
        let [last, of_any] =
            ["currval('public.s')", "lastval()"].map(|it| session.run(&format!("RESET ROLE; SELECT {it}; SET ROLE r")));
        assert_eq!([last.unwrap(), of_any.unwrap()], [["5"], ["5"]]);
        assert_eq!(session.run("SELECT count(*) FROM t").unwrap(), [rows.to_string()]);
    };
    check(&session);
    switch_over(&primary, &second);
    until("the old primary follows", || {
        Sql::connect_as(&primary, "user=freshet")
            .is_ok_and(|sql| sql.run("SHOW in_hot_standby").is_ok_and(|it| it == ["on"]))
    });
    again(&session, "SELECT 1");
    check(&session);
    switch_over(&second, &primary);
    again(&session, "SELECT 1");
    check(&session);
    all_in_sync(&primary);
    primary.kill();
    // What was under way then is open; what comes later is not.
    again(&session, "SELECT 1");
    check(&session);
    session.run("RESET ROLE; RESET application_name").unwrap();
    assert_eq!(session.run("SELECT current_user").unwrap(), ["freshet"]);
    assert_eq!(session.run("SHOW application_name").unwrap(), [""]);
}

#[test]
fn a_transaction_that_is_lost_fails_and_its_session_continues() {
    let directory = tempfile::tempdir().unwrap();
    let [mut primary, _second, standby] = cluster(directory.path(), &[]);
    let [one, two, three] = [(), (), ()].map(|()| routed(&standby));
    one.run("CREATE TABLE t (a integer PRIMARY KEY)").unwrap();
    for (number, session) in [&one, &two, &three].into_iter().enumerate() {
        session.run(&format!("BEGIN; INSERT INTO t VALUES ({number})")).unwrap();
    }
    let keeps = routed(&standby);
    keeps.run("LISTEN news").unwrap();
    let locks = routed(&standby);
    locks.run("SELECT pg_advisory_lock(7)").unwrap();
    primary.kill();
    // It says so once, and the transaction has failed as by any error.
    assert_eq!(code(&one.run("INSERT INTO t VALUES (10)").unwrap_err()), "40001");
    assert_eq!(code(&one.run("INSERT INTO t VALUES (11)").unwrap_err()), "25P02");
    one.run("COMMIT").unwrap();
    assert_eq!(one.run("SELECT count(*) FROM t").unwrap(), ["0"]);
    // To take it back is to take it back.
    two.run("ROLLBACK").unwrap();
    again(&two, "INSERT INTO t VALUES (20)");
    // It could be believed to be committed if that said nothing.
    assert!(matches!(code(&three.run("COMMIT").unwrap_err()), "40001" | "40003"));
    again(&three, "ROLLBACK");
    assert_eq!(again(&three, "SELECT a FROM t"), ["20"]);
    // What cannot be moved ends, and says why.
    for (session, why) in [(&keeps, "listens"), (&locks, "advisory")] {
        let ended = session.run("SELECT 1").unwrap_err();
        let text = format!("{ended:?}");
        assert!(ended.is_closed() || code(&ended) == "57P01" && text.contains(why), "{text}");
    }
}

/// Writes rows one after the other through a node, and never gives up.
fn writer(session: Sql, client: u64, stop: &AtomicBool, count: &AtomicU64) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
    let (mut acknowledged, mut open, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for sequence in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let insert = format!("INSERT INTO j VALUES ({client}, {sequence})");
        // Some in transactions of their own, whose COMMIT is a statement of its own.
        let statements =
            if sequence % 2 == 0 { vec![insert] } else { vec!["BEGIN".to_owned(), insert, "COMMIT".to_owned()] };
        let failure = statements.iter().find_map(|sql| session.run(sql).err());
        match failure {
            None => {
                acknowledged.push(sequence);
                count.fetch_add(1, Ordering::Relaxed);
            }
            Some(error) => {
                match code(&error) {
                    "40003" => open.push(sequence),
                    "40001" => refused.push(sequence),
                    _ => panic!("the session is to go on: {error:?}"),
                }
                if sequence % 2 == 1 {
                    again(&session, "ROLLBACK");
                }
            }
        }
    }
    (acknowledged, open, refused)
}

#[test]
fn every_acknowledged_row_is_there_once() {
    const WRITERS: u64 = 6;
    let directory = tempfile::tempdir().unwrap();
    let [mut primary, second, standby] = cluster(directory.path(), &[]);
    // Without a key: what is said twice is there twice.
    routed(&standby).run("CREATE TABLE j (client bigint, sequence bigint)").unwrap();
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let written = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..WRITERS)
        .map(|client| {
            let (session, stop, count) = (routed(&standby), Arc::clone(&stop), Arc::clone(&count));
            let written = Arc::clone(&written);
            thread::spawn(move || {
                let what = writer(session, client, &stop, &count);
                written.lock().unwrap().push((client, what));
            })
        })
        .collect();
    let more = |rows| until_more(&count, rows);
    more(100);
    switch_over(&primary, &second);
    more(100);
    until("the old primary follows", || {
        wait_until(&second, "both in sync", |status| in_sync(status) == 2);
        true
    });
    switch_over(&second, &primary);
    more(100);
    all_in_sync(&primary);
    primary.kill();
    more(100);
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let session = routed(&standby);
    let (mut opened, mut lost) = (0, 0);
    for (client, (acknowledged, open, refused)) in written.lock().unwrap().iter() {
        let rows = session.run(&format!("SELECT sequence FROM j WHERE client = {client} ORDER BY sequence")).unwrap();
        let rows: Vec<u64> = rows.iter().map(|row| row.parse().unwrap()).collect();
        assert!(rows.windows(2).all(|pair| pair[0] < pair[1]), "nothing is there twice: {rows:?}");
        assert!(acknowledged.iter().all(|sequence| rows.contains(sequence)), "what was acknowledged is there");
        assert!(!refused.iter().any(|sequence| rows.contains(sequence)), "what was rolled back is not");
        (opened, lost) = (opened + open.len(), lost + refused.len());
    }
    println!("{opened} open, {lost} rolled back");
}

#[test]
fn routed_sessions_count_where_they_are_served_and_where_they_came() {
    let directory = tempfile::tempdir().unwrap();
    let [mut primary, _second, standby] = cluster(directory.path(), &["--sql-connections", "8"]);
    let first = routed(&standby);
    first.run("CREATE ROLE r LOGIN PASSWORD 'p' CONNECTION LIMIT 2").unwrap();
    let of_role = || Sql::connect_as(&standby, "user=r password=p options='-c freshet.route=primary'");
    until("the role is known there", || of_role().is_ok());
    let watching = Sql::connect(&primary);
    until("nobody of that role is there", || {
        watching.run("SELECT pid FROM pg_stat_activity WHERE usename = 'r'").unwrap().is_empty()
    });
    let on_primary: Vec<_> = (0..2).map(|_| Sql::connect_as(&primary, "user=r password=p").unwrap()).collect();
    // The limit holds there, whichever way they come; the client is told after it has waited.
    let refused = of_role().err().unwrap();
    assert_eq!(code(&refused), "53300", "{refused:?}");
    drop(on_primary);
    let (mut some, deadline) = (Vec::new(), Instant::now() + SOON);
    while some.len() < 2 {
        some.extend(of_role());
        assert!(Instant::now() < deadline);
    }
    assert_eq!(code(&of_role().err().unwrap()), "53300", "here, by the node that it has reached");

    // Where the node itself leads in the end, a session counts once.
    let all: Vec<_> = (0..8).map_while(|_| Sql::connect_as(&standby, ROUTED).ok()).collect();
    assert_eq!(all.len(), 8 - 4, "the other seats of the primary are taken");
    drop(some);
    primary.kill();
    for session in all.iter().chain([&first]) {
        assert_eq!(again(session, "SELECT pg_is_in_recovery()"), ["f"]);
    }
    assert!(status(&standby)["role"].is_string());
}

/// Blocks until as many more rows were written as that.
fn until_more(count: &AtomicU64, rows: u64) {
    let from = count.load(Ordering::Relaxed);
    until("more rows", || count.load(Ordering::Relaxed) >= from + rows);
}

/// Blocks until this node knows another primary than in `term`.
fn until_another_term(node: &NodeProcess, term: u64) {
    wait_until(node, "another term", |status| {
        status["term"].as_u64().is_some_and(|now| now > term)
            && (status["role"] == "primary" || status["link"]["link"] == "following")
    });
}

#[test]
fn a_primary_that_stands_still_does_not_keep_its_sessions() {
    let directory = tempfile::tempdir().unwrap();
    let [primary, _second, standby] = cluster(directory.path(), &[]);
    let [idle, busy] = [(), ()].map(|()| Arc::new(routed(&standby)));
    idle.run("CREATE TABLE t (a integer PRIMARY KEY)").unwrap();
    busy.run("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    let term = status(&standby)["term"].as_u64().unwrap();
    primary.pause();
    let commits = Arc::clone(&busy);
    let committing = thread::spawn(move || commits.run("COMMIT"));
    until_another_term(&standby, term);
    assert_eq!(code(&committing.join().unwrap().unwrap_err()), "40003");
    assert_eq!(idle.run("SELECT count(*) FROM t").unwrap(), ["0"]);
    again(&busy, "INSERT INTO t VALUES (1)");
    primary.resume();
    assert_eq!(again(&idle, "SELECT count(*) FROM t"), ["1"]);
}

#[test]
fn what_waits_for_a_switch_over_is_done_by_the_next_primary() {
    let directory = tempfile::tempdir().unwrap();
    let [primary, second, standby] = cluster(directory.path(), &[]);
    let [begun, done] = [(), ()].map(|()| routed(&standby));
    begun.run("CREATE TABLE t (client integer, a integer)").unwrap();
    all_in_sync(&primary);
    // A transaction in which nothing was done is another one's, if that does not show.
    begun.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").unwrap();
    done.run("BEGIN").unwrap();
    done.run("SET LOCAL my.own = 'x'").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..8)
        .map(|client: i32| {
            let (session, stop, count) = (routed(&standby), Arc::clone(&stop), Arc::clone(&count));
            let insert = format!("INSERT INTO t VALUES ({client}, $1)");
            thread::spawn(move || {
                let (client, runtime) = session.parts();
                let insert = runtime.block_on(client.prepare(&insert)).unwrap();
                let (mut written, mut failed) = (Vec::new(), Vec::new());
                for row in 0.. {
                    // By itself, and in a transaction.
                    let block = row % 2 == 0;
                    let wrote = runtime.block_on(async {
                        if block {
                            client.batch_execute("BEGIN").await?;
                        }
                        client.execute(&insert, &[&row]).await?;
                        if block { client.batch_execute("COMMIT").await } else { Ok(()) }
                    });
                    match wrote {
                        Ok(()) => written.push(row),
                        Err(error) => {
                            assert_eq!(code(&error), "40001", "{error:?}");
                            runtime.block_on(client.batch_execute("ROLLBACK")).unwrap();
                            failed.push(error);
                        }
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
                (written, failed)
            })
        })
        .collect();
    let more = |rows| until_more(&count, rows);
    more(100);
    switch_over(&primary, &second);
    more(100);
    stop.store(true, Ordering::Relaxed);
    let (mut all_failed, mut there) = (Vec::new(), 0);
    for (client, writer) in writers.into_iter().enumerate() {
        let (written, failed) = writer.join().unwrap();
        all_failed.extend(failed);
        let rows = format!("SELECT a FROM t WHERE client = {client} ORDER BY a");
        let rows: Vec<i32> = routed(&standby).run(&rows).unwrap().iter().map(|row| row.parse().unwrap()).collect();
        assert_eq!(rows, written, "each is there once");
        there += rows.len();
    }
    // What was open for 200 ms, on a busy machine.
    assert!(all_failed.len() <= 2, "{there} transactions have not failed: {all_failed:?}");
    assert_eq!(begun.run("SHOW transaction_isolation").unwrap(), ["repeatable read"]);
    assert_eq!(begun.run("SELECT count(*) FROM t").unwrap(), [there.to_string()]);
    assert_eq!(code(&begun.run("INSERT INTO t VALUES (0, 0)").unwrap_err()), "25006");
    begun.run("ROLLBACK").unwrap();
    assert_eq!(code(&done.run("SELECT 1").unwrap_err()), "40001");
    done.run("ROLLBACK").unwrap();
}

#[test]
fn much_goes_through_in_both_directions() {
    let directory = tempfile::tempdir().unwrap();
    let [_primary, _second, standby] = cluster(directory.path(), &[]);
    let session = routed(&standby);
    session.run("CREATE TABLE t (a integer, b text)").unwrap();
    let (client, runtime) = session.parts();
    runtime.block_on(async {
        use futures_util::{SinkExt, StreamExt, future::join_all};
        // A long message, up and down.
        let long = "x".repeat(3 << 20);
        let back = client.query_one("SELECT $1::text", &[&long]).await.unwrap().get::<_, String>(0);
        assert_eq!(back, long);
        // Many rows, and data that flows while the statement runs.
        let sink = client.copy_in("COPY t FROM STDIN").await.unwrap();
        let mut sink = std::pin::pin!(sink);
        for number in 0..2000 {
            sink.send(bytes::Bytes::from(format!("{number}\t{}\n", "y".repeat(1000)))).await.unwrap();
        }
        assert_eq!(sink.finish().await.unwrap(), 2000);
        let mut out = std::pin::pin!(client.copy_out("COPY t TO STDOUT").await.unwrap());
        let mut bytes = 0;
        while let Some(piece) = out.next().await {
            bytes += piece.unwrap().len();
        }
        assert!(bytes > 2_000_000);
        // Much is asked before anything is read.
        let all = (0..500).map(|_| client.query("SELECT b FROM t LIMIT 100", &[]));
        assert!(join_all(all).await.iter().all(|rows| rows.as_ref().is_ok_and(|rows| rows.len() == 100)));
        let failed = client.query("SELECT 1 / (SELECT 0)", &[]).await.unwrap_err();
        assert_eq!(code(&failed), "22012");
    });
    assert_eq!(session.run("SELECT count(*) FROM t").unwrap(), ["2000"]);
}
