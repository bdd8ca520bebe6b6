//! `freshet verify --state`: two running nodes say that they are the same, under load too, or which
//! record differs first.
#![cfg(debug_assertions)]

mod common;

use std::{
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use common::{SOON, Sql, connect, in_sync, open_sql, program, start, status, wait_until};
use freshet::{children::NodeProcess, verify::state::compare};
use freshet_engine::{Break, StateAnswer, StateAsk};

fn begin(directory: &tempfile::TempDir, name: &str, more: &[&str]) -> NodeProcess {
    let access = open_sql(&directory.path().join(format!("{name}.access")));
    // With all three nodes: then a standby in doubt does not begin again by itself.
    let quorum = ["--safety", "quorum:3"];
    let flags: Vec<&str> = access.iter().map(String::as_str).chain(quorum).chain(more.iter().copied()).collect();
    start(&directory.path().join(name), &flags)
}

fn verify(one: &NodeProcess, other: &NodeProcess) -> (Output, String) {
    let nodes = [one.ready().address.as_str(), other.ready().address.as_str()];
    let output = Command::new(program()).args(["verify", "--state"]).args(nodes).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, printed)
}

/// Inserts, changes and deletes rows until it is told to stop.
fn write(sql: &Sql, session: u64, stop: &AtomicBool) {
    for number in 0.. {
        if stop.load(SeqCst) {
            return;
        }
        let id = session * 1_000_000 + number % 200;
        let deleted = number.wrapping_mul(7) % 200 + session * 1_000_000;
        // One may meet another, and is taken back then.
        let _ = sql.run(&format!(
            "BEGIN; INSERT INTO things VALUES ({id}, 'secret {number}') ON CONFLICT (id) DO UPDATE SET v = excluded.v; \
             DELETE FROM things WHERE id = {deleted}; UPDATE things SET id = id + 1000 WHERE id = {id} AND {number} % 5 = 0; \
             COMMIT"
        ));
        if number % 50 == 0 {
            let _ = sql.run(&format!("CREATE TABLE other{session} (id int PRIMARY KEY); DROP TABLE other{session}"));
        }
    }
}

#[test]
fn nodes_are_the_same_under_load_and_the_first_record_that_differs_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let primary = begin(&directory, "a", &[]);
    let upstream = primary.ready().listen.clone();
    let join = ["--join", upstream.as_str()];
    let bytes = begin(&directory, "b", &join);
    let inputs = begin(&directory, "c", &[&join[..], &["--encoding", "inputs"]].concat());
    wait_until(&primary, "two standbys in sync", |status| in_sync(status) == 2);
    let sql = Sql::connect(&primary);
    sql.run("CREATE TABLE things (id bigint PRIMARY KEY, v text); CREATE INDEX ON things (v)").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|session| {
            let (sql, stop) = (Sql::connect(&primary), Arc::clone(&stop));
            std::thread::spawn(move || write(&sql, session, &stop))
        })
        .collect();
    let clients = [&primary, &bytes, &inputs].map(connect);
    let mut last = freshet_base::Lsn::ZERO;
    for round in 0..12 {
        let pair = [[0, 1], [1, 2], [2, 0]][round % 3];
        let compared = compare(pair.map(|node| &*clients[node]), SOON).unwrap();
        assert_eq!(compared.difference, None, "round {round}");
        assert!(compared.tables > 3 && compared.records > 0 && compared.at >= last, "{compared:?}");
        last = compared.at;
    }
    stop.store(true, SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let (output, printed) = verify(&primary, &bytes);
    assert!(output.status.success() && printed.starts_with("the same: "), "{printed}");
    for node in [&primary, &bytes, &inputs] {
        let status = status(node);
        assert_eq!((&status["sweep"]["damage"], &status["doubt"]), (&0.into(), &serde_json::Value::Null), "{status:#}");
    }

    // One row of a standby is another one.
    let sql = Sql::connect(&bytes);
    assert!(!sql.run("SELECT count(*) FROM things WHERE v <> ''").unwrap().is_empty());
    let broken = clients[1].state(StateAsk::Break { what: Break::Row, seed: 3 }, SOON).unwrap();
    let StateAnswer::Broken(Some(broken)) = broken else { panic!("{broken:?}") };
    let compared = compare([&*clients[0], &*clients[1]], SOON).unwrap();
    let difference = compared.difference.unwrap();
    assert_eq!(broken, format!("Row of table {:?}, record {}", difference.table, difference.rid));
    assert_eq!(difference.lsns[0], difference.lsns[1]);
    let (output, printed) = verify(&bytes, &primary);
    assert!(!output.status.success() && printed.contains("the same version with another row"), "{printed}");
    assert!(printed.contains(&format!("record {}", difference.rid)) && !printed.contains("secret"), "{printed}");
    assert_eq!(compare([&*clients[0], &*clients[2]], SOON).unwrap().difference, None);
}

#[test]
fn a_view_is_bounded_in_number_and_time_and_ends_with_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path(), &[]);
    let client = connect(&node);
    let open = |keep_ms| client.state(StateAsk::Open { keep_ms }, SOON);
    let opened = |answer| match answer {
        StateAnswer::Opened { view, at } => (view, at),
        other => panic!("{other:?}"),
    };
    let (first, at) = opened(open(60_000).unwrap());
    let (second, _) = opened(open(60_000).unwrap());
    assert!(open(60_000).unwrap_err().to_string().contains("try again later"));
    client.state(StateAsk::Close { view: second }, SOON).unwrap();
    let hash =
        |view, at, step| client.state(StateAsk::Hash { view, at, fid: 0, from: 0, step, ranges: u32::MAX }, SOON);
    let hashes = |step| match hash(first, at, step).unwrap() {
        StateAnswer::Hashes(hashes) => hashes,
        other => panic!("{other:?}"),
    };
    // Whatever is asked for, an answer is short.
    assert_eq!(hashes(u64::MAX).len(), 256);
    assert_eq!(hashes(u64::MAX)[0].records, hashes(1).iter().map(|range| range.records).sum::<u64>());
    assert!(hash(first, freshet_base::Lsn(at.0 - 1), 1).unwrap_err().to_string().contains("can be read from"));
    assert!(hash(first, freshet_base::Lsn::MAX, 1).is_err() && hash(second, at, 1).is_err());
    let missing = StateAsk::Hash { view: first, at, fid: 77_777, from: 0, step: 1, ranges: 1 };
    assert!(client.state(missing, SOON).unwrap_err().to_string().contains("there is no table"));
    // Nobody closes this one, and its place is free again all the same.
    let (short, at) = opened(open(1).unwrap());
    let deadline = std::time::Instant::now() + SOON;
    while hash(short, at, 1).is_ok() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    opened(open(60_000).unwrap());
}
