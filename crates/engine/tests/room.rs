//! A primary whose log finds no room for its next segment, here for want of descriptors: readers
//! are answered with what is committed, writers are refused, and both continue when there is room.

mod common;

use std::{
    env,
    fs::File,
    process::Command,
    time::{Duration, Instant},
};

use common::{config, definition, row, start};
use freshet_engine::{CommitError, Isolation, ProcedureError, Ticket, Worker};

const ROLE: &str = "FRESHET_TEST_ROOM_ROLE";
/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(60);

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < SOON, "{what} has not come about");
        std::thread::yield_now();
    }
}

/// Runs a test once more in a process of its own, whose limits and descriptors are its own.
fn alone(test: &str) -> bool {
    if env::var_os(ROLE).is_some() {
        return true;
    }
    let mut child = Command::new(env::current_exe().unwrap());
    let child = child.args(["--exact", test, "--nocapture"]).env(ROLE, "alone").output().unwrap();
    let messages = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{messages}");
    println!("{messages}");
    false
}

/// Takes every descriptor that this process may have.
fn take_all() -> Vec<File> {
    let limit = rustix::process::Rlimit { current: Some(256), maximum: Some(256) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    assert!(!taken.is_empty());
    taken
}

/// Rows that take several segments.
const MANY: std::ops::Range<u64> = 100..200;

fn long(id: u64) -> Vec<u8> {
    let mut row = row(id, 1, 1);
    row.resize(4000, 7);
    row
}

struct Scene {
    node: std::sync::Arc<freshet_engine::Node>,
    table: std::sync::Arc<freshet_engine::Table>,
    _directory: tempfile::TempDir,
}

impl Scene {
    /// A primary with one record that is committed.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(Some(directory.path()));
        config.log.segment_bytes = 64 << 10;
        let node = start(config);
        let table = node.database().create_table(&definition()).unwrap().clone();
        let scene = Self { node, table, _directory: directory };
        let worker = scene.worker();
        let ticket = scene.insert(&worker, 1..2).unwrap();
        scene.node.database().wait(ticket).unwrap();
        scene
    }

    fn worker(&self) -> Worker {
        self.node.database().worker().unwrap()
    }

    fn insert(&self, worker: &Worker, ids: std::ops::Range<u64>) -> Result<Ticket, ProcedureError> {
        let insert = worker.execute(Isolation::Snapshot, |txn| {
            ids.clone().try_for_each(|id| txn.insert(&self.table, &long(id)).map(drop))?;
            Ok(())
        });
        insert.map(|((), ticket)| ticket)
    }

    /// Whether a reader finds the record, once its answer may be told, which must be soon.
    fn finds(&self, worker: &Worker, id: u64) -> bool {
        let txn = worker.begin_read_only();
        let found = txn.get(&self.table, 0, &id.to_be_bytes()).unwrap().is_some();
        let ticket = txn.commit().unwrap();
        self.node.database().wait_until(ticket, Some(Instant::now() + SOON)).expect("a reader is answered");
        found
    }

    /// Takes all descriptors, and waits until the log lacks one for what it is given then. The
    /// ticket is that of what waits.
    fn stall(&self, worker: &Worker) -> (Vec<File>, Ticket) {
        let taken = take_all();
        let ticket = self.insert(worker, MANY).unwrap();
        wait_for("the stall", || self.node.log().unwrap().is_stalled());
        (taken, ticket)
    }
}

#[test]
fn readers_are_answered_and_writers_refused_until_there_is_room() {
    if !alone("readers_are_answered_and_writers_refused_until_there_is_room") {
        return;
    }
    let scene = Scene::new();
    let (worker, reader) = (scene.worker(), scene.worker());
    let (taken, ticket) = scene.stall(&worker);
    assert!(
        scene.node.log_out_of_space().unwrap().to_string().contains("waits for room"),
        "{:?}",
        scene.node.log_out_of_space()
    );
    assert!(scene.finds(&reader, 1) && !scene.finds(&reader, 150));
    match scene.insert(&worker, 2..3) {
        Err(ProcedureError::Commit(CommitError::NoRoom(why))) => assert!(why.contains("Too many open files"), "{why}"),
        other => panic!("{other:?}"),
    }
    drop(taken);
    let database = scene.node.database();
    database.wait_until(ticket, Some(Instant::now() + SOON)).unwrap();
    wait_for("room", || scene.node.log_out_of_space().is_none());
    assert!(scene.finds(&reader, 1) && scene.finds(&reader, 150));
    database.wait(scene.insert(&worker, 2..3).unwrap()).unwrap();
    drop((worker, reader));
    scene.node.stop().unwrap();
}

/// What was under way when the log failed is seen by no later reader.
#[test]
fn readers_are_answered_after_the_log_has_failed() {
    if !alone("readers_are_answered_after_the_log_has_failed") {
        return;
    }
    let scene = Scene::new();
    let (worker, reader) = (scene.worker(), scene.worker());
    let (taken, ticket) = scene.stall(&worker);
    scene.node.log().unwrap().crash_for_test();
    assert!(scene.node.log().unwrap().failure().is_some());
    drop(taken);
    assert!(scene.node.database().wait_until(ticket, Some(Instant::now() + SOON)).is_err());
    assert!(scene.finds(&reader, 1) && !scene.finds(&reader, 150));
    assert!(scene.insert(&worker, 2..3).is_err());
}
