//! What clients do, and what else uses something up.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use freshet::children::NodeProcess;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::{
    Job,
    common::{Sql, open_sql, status, wait_until},
    node,
};

const DAY: u64 = 86_400;

fn sql_node(place: &Path, more: &[&str]) -> NodeProcess {
    let sql = open_sql(&place.join("access"));
    let sql: Vec<&str> = sql.iter().map(String::as_str).collect();
    node(&place.join("a"), &[&sql[..], more].concat())
}

#[test]
fn memory_is_used_up() {
    let place = tempfile::tempdir().unwrap();
    let one = sql_node(place.path(), &["--memory-bytes", "41943040"]);
    let session = Sql::connect(&one);
    session.run("CREATE TABLE t (id int PRIMARY KEY, v text)").unwrap();
    let mut job = Job::of(&[&one]);
    job.is_silent("FreshetMemoryNearlyFull");
    job.is_silent("FreshetMemoryFull");
    let mut rows = 0;
    while session
        .run(&format!("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series({rows}, {rows} + 99) g"))
        .is_ok()
    {
        rows += 100;
        assert!(rows < 100_000, "nothing is refused");
    }
    job.wait_for("FreshetMemoryNearlyFull");
    while session.run(&format!("INSERT INTO t VALUES ({rows}, repeat('x', 1000))")).is_ok() {
        rows += 1;
        assert!(rows < 100_000, "nothing is refused");
    }
    job.wait_for("FreshetMemoryFull");
}

#[test]
fn a_session_waits_and_two_in_a_circle() {
    let place = tempfile::tempdir().unwrap();
    let one = sql_node(place.path(), &[]);
    let (a, b) = (Sql::connect(&one), Sql::connect(&one));
    a.run("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0), (2, 0)").unwrap();
    let mut job = Job::of(&[&one]);
    job.is_silent("FreshetSessionsWait");
    job.is_silent("FreshetDeadlocks");
    a.run("BEGIN; UPDATE t SET v = 1 WHERE id = 1").unwrap();
    b.run("BEGIN; UPDATE t SET v = 2 WHERE id = 2").unwrap();
    let waits = std::thread::spawn(move || b.run("UPDATE t SET v = 2 WHERE id = 1; COMMIT").map(drop));
    job.wait_for("FreshetSessionsWait");
    let outcome = a.run("UPDATE t SET v = 1 WHERE id = 2; COMMIT");
    let outcomes = [outcome.map(drop), waits.join().unwrap()];
    assert!(outcomes.iter().any(Result::is_err), "{outcomes:?}");
    job.wait_for("FreshetDeadlocks");
}

#[test]
fn transactions_fail_and_statements_take_long() {
    let place = tempfile::tempdir().unwrap();
    let one = sql_node(place.path(), &[]);
    let session = Sql::connect(&one);
    session.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)").unwrap();
    let mut job = Job::of(&[&one]);
    job.is_silent("FreshetRollbacks");
    job.is_silent("FreshetSlowStatements");
    for _ in 0..10 {
        session.run("INSERT INTO t VALUES (2); DELETE FROM t WHERE id = 2").unwrap();
    }
    job.is_silent("FreshetRollbacks");
    for _ in 0..20 {
        session.run("INSERT INTO t VALUES (1)").unwrap_err();
    }
    job.wait_for("FreshetRollbacks");
    session.run("SELECT pg_sleep(2.1)").unwrap();
    job.wait_for("FreshetSlowStatements");
}

#[test]
fn descriptors_are_used_up() {
    let place = tempfile::tempdir().unwrap();
    let one = sql_node(place.path(), &[]);
    let mut job = Job::of(&[&one]);
    job.is_silent("FreshetDescriptors");
    let used = status(&one)["descriptors"]["used"].as_u64().unwrap();
    let limit = Some(used + 40);
    let pid = Pid::from_raw(i32::try_from(one.pid()).unwrap());
    prlimit(pid, Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
    let mut sessions = Vec::new();
    // Some are left for the scrape itself.
    loop {
        job.scrape();
        if job.fires("FreshetDescriptors") {
            break;
        }
        assert!(sessions.len() < 40, "{:#}", status(&one)["descriptors"]);
        sessions.push(Sql::connect(&one));
    }
    job.wait_for("FreshetDescriptors");
}

#[test]
fn a_certificate_ends() {
    let place = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let start = |name: &str, days: u64| {
        let directory = place.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        let mut params =
            CertificateParams::new(vec!["0000000000000001.node.freshet".to_owned(), "node.freshet".to_owned()])
                .unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        params.not_before = (UNIX_EPOCH + now - Duration::from_secs(DAY)).into();
        params.not_after = (UNIX_EPOCH + now + Duration::from_secs(days * DAY)).into();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        for (file, text) in
            [("node.crt", certificate), ("node.key", key.serialize_pem()), ("authority.crt", authority.clone())]
        {
            freshet_base::private::write(&directory.join(file), text.as_bytes()).unwrap();
        }
        let data = place.path().join(format!("{name}-data"));
        node(&data, &["--member-certificates", directory.to_str().unwrap()])
    };
    let (long, short) = (start("long", 100), start("short", 10));
    wait_until(&short, "it leads", |status| status["role"] == "primary");
    Job::of(&[&long]).is_silent("FreshetCertificateEnds");
    Job::of(&[&short]).wait_for("FreshetCertificateEnds");
}
