//! What the tests of sessions share that nodes hand on.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::{
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use freshet::children::NodeProcess;
use tokio_postgres::error::SqlState;

use crate::common::{SOON, Sql, connect, in_sync, open_sql, start, wait_until};

/// Who wants the primary.
pub const ROUTED: &str = "user=freshet options='-c freshet.route=primary'";

/// A primary and two standbys in sync.
pub fn cluster(directory: &Path, more: &[&str]) -> [NodeProcess; 3] {
    let open = open_sql(&directory.join("access"));
    let quorum = ["--safety", "quorum:2", "--failover", "automatic"];
    let flags: Vec<&str> =
        quorum.into_iter().chain(open.iter().map(String::as_str)).chain(more.iter().copied()).collect();
    let path = |name: &str| directory.join(name);
    let primary = start(&path("a"), &flags);
    let joins = |name| start(&path(name), &[&["--join", &primary.ready().listen], &flags[..]].concat());
    let (second, third) = (joins("b"), joins("c"));
    all_in_sync(&primary);
    for node in [&second, &third] {
        until("it shows the catalog", || Sql::connect_as(node, "user=freshet").is_ok());
    }
    [primary, second, third]
}

/// Blocks until the primary has two standbys in sync.
pub fn all_in_sync(primary: &NodeProcess) {
    wait_until(primary, "two standbys in sync", |status| in_sync(status) == 2);
}

/// A session that wants the primary.
pub fn routed(node: &NodeProcess) -> Sql {
    Sql::connect_as(node, ROUTED).unwrap()
}

/// The SQLSTATE of an error.
pub fn code(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("none", SqlState::code)
}

/// Hands the role of `primary` to `to`.
pub fn switch_over(primary: &NodeProcess, to: &NodeProcess) {
    let to = Some(to.ready().listen.clone());
    // On a busy machine it may be taken back.
    until("the role is handed over", || connect(primary).switch_over(to.clone(), SOON).is_ok());
}

/// What a statement gives, run again while it fails without having been begun or committed.
pub fn again(session: &Sql, sql: &str) -> Vec<String> {
    let deadline = Instant::now() + SOON;
    loop {
        match session.run(sql) {
            Ok(rows) => return rows,
            Err(error) => {
                assert!(matches!(code(&error), "40001" | "40003"), "{error:?}");
                assert!(Instant::now() < deadline, "it never succeeds: {error:?}");
            }
        }
    }
}

/// Blocks until a condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} has not come about");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs what sleeps for long, and calls `then` once the node is at it.
pub fn while_it_sleeps(
    session: &Arc<Sql>,
    node: &NodeProcess,
    then: impl FnOnce(),
) -> Result<Vec<String>, tokio_postgres::Error> {
    let watching = Sql::connect_as(node, "user=freshet").unwrap();
    let sleeper = Arc::clone(session);
    let sleeping = thread::spawn(move || sleeper.run("SELECT pg_sleep(600)"));
    let active = "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(600)'";
    until("it sleeps", || !watching.run(active).unwrap().is_empty());
    then();
    sleeping.join().unwrap()
}
