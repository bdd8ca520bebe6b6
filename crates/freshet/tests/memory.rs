//! A node that may take little memory: what ended it before is refused, and it continues.

mod common;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use common::{SOON, Sql, open_sql, start, status};
use freshet::children::NodeProcess;
use rustix::process::{Pid, Signal, kill_process};

/// What the node may take: some megabytes more than an empty database, and its log buffer.
const LIMIT: &str = "41943040";
/// Of a standby: as much as its buffers and 10 MB of rows, and half as many again.
const OF_STANDBY: &str = "25165824";

fn state(outcome: Result<Vec<String>, tokio_postgres::Error>) -> String {
    match outcome {
        Ok(_) => "00000".to_owned(),
        Err(error) => error.code().map_or_else(|| error.to_string(), |state| state.code().to_owned()),
    }
}

/// A node below this directory that may take [`LIMIT`].
fn limited(place: &Path) -> NodeProcess {
    let sql = open_sql(&place.join("access"));
    let mut flags: Vec<&str> = sql.iter().map(String::as_str).collect();
    flags.extend(["--memory-bytes", LIMIT]);
    start(&place.join("a"), &flags)
}

/// Tries this statement again until it is not refused any more, until `deadline` at most.
fn succeeds(node: &NodeProcess, session: &Sql, statement: &str, deadline: Instant) {
    loop {
        let outcome = state(session.run(statement));
        if outcome == "00000" {
            return;
        }
        assert!(Instant::now() < deadline, "{statement}: {outcome}, {:#}", status(node)["memory"]);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_node_at_its_limit_refuses_what_adds_rows_and_does_all_else() {
    let place = tempfile::tempdir().unwrap();
    let node = limited(place.path());
    let session = Sql::connect(&node);
    let run = |text: &str| session.run(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    run("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE few (id int); INSERT INTO few VALUES (1), (2)");
    let mut rows = 0;
    let refused = loop {
        let text = format!("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series({rows}, {rows} + 99) g");
        match session.run(&text) {
            Ok(_) => rows += 100,
            Err(error) => break error,
        }
        assert!(rows < 100_000, "nothing is refused");
    };
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "53200");
    assert!(refused.message().contains("memory-bytes"), "{refused:?}");
    assert!(refused.message().contains("bytes taken: rows "), "{refused:?}");
    assert!(refused.hint().is_some_and(|hint| hint.contains("Delete rows")), "{refused:?}");
    // What the refused statement had made is given back, and leaves room for some rows more.
    let deadline = Instant::now() + SOON;
    let full = loop {
        while session.run(&format!("INSERT INTO t VALUES ({rows}, repeat('x', 1000))")).is_ok() {
            rows += 1;
        }
        match status(&node) {
            status if status["memory"]["full"] == true => break status,
            status => assert!(Instant::now() < deadline, "a limit that is reached has not come about: {status:#}"),
        }
    };
    assert_eq!(full["memory"]["limit"].to_string(), LIMIT);
    let owners: u64 = full["memory"]["owners"].as_object().unwrap().values().map(|it| it.as_u64().unwrap()).sum();
    assert_eq!(full["memory"]["used"].as_u64(), Some(owners));
    // Statements have something left, and no more than that.
    let grouped = session.run("SELECT count(*) FROM (SELECT DISTINCT v || id FROM t) q");
    let crowded_out = grouped.unwrap_err().as_db_error().unwrap().to_string();
    assert!(crowded_out.contains("this node has reached its setting memory-bytes"), "{crowded_out}");
    assert_eq!(run("SELECT count(*) FROM (SELECT id FROM t ORDER BY id DESC LIMIT 10) q"), ["10"]);
    for text in [
        "INSERT INTO t VALUES (-1, repeat('y', 70000))",
        "UPDATE t SET v = v || 'z'",
        "CREATE TABLE copied AS SELECT * FROM t",
        "CREATE INDEX t_v ON t (v)",
        "ALTER TABLE t ALTER COLUMN id TYPE bigint",
    ] {
        assert_eq!(state(session.run(text)), "53200", "{text}");
    }
    assert_eq!(run("SELECT count(*) FROM t"), [rows.to_string()]);
    run("CREATE ROLE low LOGIN PASSWORD 'x'; GRANT SELECT ON t TO low; CREATE TABLE more (id int)");
    run("REVOKE SELECT ON t FROM low; ALTER ROLE low NOLOGIN; GRANT SELECT ON t TO low");
    // What definitions have more is used up, too. What takes away is not refused even then.
    let (mut schemas, comment) = (0, "c".repeat(50_000));
    let refused = loop {
        let text = format!("CREATE SCHEMA s{schemas}; COMMENT ON SCHEMA s{schemas} IS '{comment}'");
        match state(session.run(&text)) {
            outcome if outcome == "00000" => schemas += 1,
            other => break other,
        }
        assert!(schemas < 1000, "nothing is refused");
    };
    assert_eq!(refused, "53200");
    run("REVOKE SELECT ON t FROM low; TRUNCATE few; DROP TABLE more; DROP ROLE low");
    for schema in 0..schemas {
        run(&format!("DROP SCHEMA s{schema}"));
    }
    run("BEGIN; DELETE FROM t WHERE id % 2 = 0; COMMIT; DROP TABLE few");
    succeeds(&node, &session, "INSERT INTO t VALUES (-1, 'y')", Instant::now() + SOON);
    run("CREATE INDEX t_id ON t (id)");
}

/// A role without any privilege begins a transaction and waits; others change rows.
#[test]
fn an_idle_transaction_ends_no_node() {
    let place = tempfile::tempdir().unwrap();
    let node = limited(place.path());
    let (session, idle) = (Sql::connect(&node), Sql::connect(&node));
    session.run("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE ROLE low").unwrap();
    session.run("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 200) g").unwrap();
    idle.run("SET SESSION AUTHORIZATION low; SET idle_in_transaction_session_timeout = 0").unwrap();
    idle.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").unwrap();
    // Far more versions than would fit.
    let (mut updated, deadline) = (0, Instant::now() + 2 * SOON);
    while updated < 40 << 20 {
        match state(session.run("UPDATE t SET v = repeat('y', 1000)")).as_str() {
            "00000" => updated += 200 * 1000,
            // Until it is given up.
            "53200" => std::thread::sleep(Duration::from_millis(20)),
            other => panic!("{other}"),
        }
        assert!(Instant::now() < deadline, "writers do not get on: {:#}", status(&node)["memory"]);
    }
    assert_eq!(state(idle.run("SELECT 1")), "72000");
}

/// A truncated table takes its memory as long as a snapshot sees its rows.
#[test]
fn an_idle_transaction_does_not_keep_what_was_truncated() {
    let place = tempfile::tempdir().unwrap();
    let node = limited(place.path());
    let (session, idle) = (Sql::connect(&node), Sql::connect(&node));
    session.run("CREATE TABLE t (id int, v text)").unwrap();
    let fill = "INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 1000) g";
    while session.run(fill).is_ok() {}
    idle.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").unwrap();
    session.run("TRUNCATE t").unwrap();
    let deadline = Instant::now() + SOON;
    (0..10).for_each(|_| succeeds(&node, &session, fill, deadline));
    assert_eq!(state(idle.run("SELECT 1")), "72000");
}

/// What a snapshot has kept while the node was a standby is in no count once that leads.
#[test]
fn an_idle_reader_of_a_standby_does_not_stop_writes_when_that_leads() {
    let place = tempfile::tempdir().unwrap();
    let sql = open_sql(&place.path().join("access"));
    let sql: Vec<&str> = sql.iter().map(String::as_str).collect();
    let mut primary = start(&place.path().join("a"), &sql);
    let file = place.path().join("b.toml");
    std::fs::write(&file, "memory-bytes = 1073741824\n").unwrap();
    let more = ["--join", &primary.ready().listen, "--config", file.to_str().unwrap()];
    let standby = start(&place.path().join("b"), &[&sql[..], &more].concat());
    common::wait_until(&primary, "it is in sync", |status| common::in_sync(status) == 1);
    let session = Sql::connect(&primary);
    session.run("CREATE TABLE t (id int PRIMARY KEY, v text)").unwrap();
    session.run("INSERT INTO t SELECT g, repeat('x', 10000) FROM generate_series(1, 1000) g").unwrap();
    let idle = Sql::connect(&standby);
    idle.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT sum(length(v)) FROM t").unwrap();
    session.run("UPDATE t SET v = repeat('y', 10000)").unwrap();
    Sql::connect(&standby).run("SELECT sum(length(v)) FROM t").unwrap();
    primary.kill();
    let (code, text) = common::run(&["promote", &standby.ready().address, "--primary-is-gone"]);
    assert_eq!(code, Some(0), "{text}");
    // Both versions of each row are there, and do not fit any more.
    std::fs::write(&file, "memory-bytes = 25165824\n").unwrap();
    kill_process(Pid::from_raw(standby.pid() as i32).unwrap(), Signal::HUP).unwrap();
    common::wait_until(&standby, "it is full", |status| status["memory"]["full"] == true);
    succeeds(&standby, &Sql::connect(&standby), "INSERT INTO t VALUES (0, 'z')", Instant::now() + SOON);
    assert_eq!(state(idle.run("SELECT 1")), "72000");
}

/// Readers on a standby see rows of long ago while all change, until it has no memory left to
/// replay into. When they are gone, what they kept goes, though no row is read or replayed.
#[test]
fn a_standby_without_memory_replays_again_when_its_readers_are_gone() {
    let place = tempfile::tempdir().unwrap();
    let sql = open_sql(&place.path().join("access"));
    let sql: Vec<&str> = sql.iter().map(String::as_str).collect();
    let primary = start(&place.path().join("a"), &sql);
    let join = ["--join", &primary.ready().listen, "--memory-bytes", OF_STANDBY];
    let standby = start(&place.path().join("b"), &[&sql[..], &join].concat());
    common::wait_until(&primary, "it is in sync", |status| common::in_sync(status) == 1);
    let session = Sql::connect(&primary);
    session.run("CREATE TABLE t (id int PRIMARY KEY, v text)").unwrap();
    session.run("INSERT INTO t SELECT g, repeat('x', 10000) FROM generate_series(1, 1000) g").unwrap();
    let lacks = || status(&standby)["lacks"].is_string();
    let deadline = Instant::now() + 2 * SOON;
    let begin = || {
        let reader = Sql::connect(&standby);
        let _ = reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT sum(length(v)) FROM t");
        reader
    };
    let mut reader = begin();
    while !lacks() {
        assert!(Instant::now() < deadline, "it never lacks memory: {:#}", status(&standby)["memory"]);
        session.run("UPDATE t SET v = repeat('y', 10000)").unwrap();
        // It is given up now and then.
        if state(reader.run("SELECT sum(length(v)) FROM t")) != "00000" {
            reader = begin();
        }
    }
    drop(reader);
    common::wait_until(&standby, "it replays again", |status| {
        status["memory"]["full"] == false && status["lacks"].is_null()
    });
    session.run("UPDATE t SET v = 'z'").unwrap();
    common::wait_until(&primary, "it is in sync again", |status| common::in_sync(status) == 1);
}

/// What sessions of a role without privileges may have made at the same time, whatever with, stays
/// within the limit, but for what the program and its threads take.
#[test]
fn what_functions_make_is_refused_before_it_is_there() {
    let place = tempfile::tempdir().unwrap();
    let node = limited(place.path());
    Sql::connect(&node).run("CREATE TABLE lines (v text)").unwrap();
    let wide: Vec<_> = (0..1000).map(|number| format!("repeat('x', 65000) || {number}")).collect();
    let statements = [
        "SELECT length(repeat('x', 67000000))".to_owned(),
        "SELECT ('[' || repeat('{},', 10000000) || '1]')::jsonb -> 0".to_owned(),
        format!("SELECT {}", wide.join(", ")),
        "SELECT count(*) FROM generate_series(1, 20000) g, LATERAL (SELECT string_agg(repeat('y', 1000), '') \
         FROM generate_series(1, 50) h WHERE h <> g) z (t) WHERE length(t) > 1"
            .to_owned(),
        r"SELECT 'aaa' ~ '(\w{29}){29}'".to_owned(),
        "SELECT array_length(string_to_array(repeat('a,', 4000000), ','), 1)".to_owned(),
        "INSERT INTO lines SELECT repeat('z', 3000000) FROM generate_series(1, 100)".to_owned(),
    ];
    let peak = || status(&node)["peak_resident_bytes"].as_u64().unwrap();
    let before = peak();
    std::thread::scope(|scope| {
        for number in 0..28 {
            let (node, statements) = (&node, &statements);
            scope.spawn(move || {
                let session = Sql::connect(node);
                let turns = (0..statements.len()).map(|round| &statements[(number + round) % statements.len()]);
                let refused = turns.filter(|statement| state(session.run(statement)) == "53200").count();
                assert!(refused > 3, "{refused} were refused to session {number}");
            });
        }
    });
    // Before they were, 28 sessions took 2 GiB for that.
    let more = (peak() - before) >> 20;
    assert!(more < 250, "{more} MiB");
    assert_eq!(Sql::connect(&node).run("SELECT length(repeat('x', 1000000))").unwrap(), ["1000000"]);
}
