//! Messages that transactions carry: on every node in the order of the log, when they are committed
//! there, whatever the log is made of.

mod common;

use std::{path::Path, thread, time::Instant};

use common::{SHAPES, Shape, config, definition, row, soon, start, wait_for};
use freshet_engine::{Database, Isolation, Lsn, Node, NodeConfig, Safety, Table};

const WRITERS: u64 = 3;
const EACH: u64 = 40;
/// Every this many transactions one is many times longer than the log's buffer.
const LONG_EVERY: u64 = 10;

fn of(shape: Shape, n: usize, directory: &Path) -> NodeConfig {
    let mut config = shape.of_node(n, config(Some(directory)));
    config.log.buffer_bytes = 256 << 10;
    config.log.batch_bytes = 64 << 10;
    config.checkpoint.interval_s = 0;
    NodeConfig { safety: Safety::TwoSafe, ..config }
}

/// The messages of transaction `number` of a writer: one, or three, or thousands.
fn messages_of(writer: u64, number: u64) -> Vec<Vec<u8>> {
    let count = if number % LONG_EVERY == 7 { 4000 } else { number % 4 };
    (0..count).map(|place| format!("{writer} {number} {place} {}", "x".repeat(200)).into_bytes()).collect()
}

fn write(database: &Database, table: &Table, writer: u64) {
    let worker = database.worker().unwrap();
    for number in 0..EACH {
        let transaction = worker.begin(Isolation::Snapshot);
        // Some only send messages.
        if number % 3 != 0 {
            transaction.insert(table, &row(writer * EACH + number, writer, number)).unwrap();
        }
        messages_of(writer, number).iter().for_each(|message| transaction.carry(message).unwrap());
        let ticket = transaction.commit().unwrap();
        drop(database.wait(ticket));
        // One that is rolled back sends nothing.
        let transaction = worker.begin(Isolation::Snapshot);
        transaction.carry(b"nothing").unwrap();
        transaction.roll_back();
    }
}

/// All that a node receives until `count` messages have come. Whatever they are about can be read.
fn receive(node: &Node, count: usize) -> Vec<Vec<u8>> {
    let database = node.database();
    let worker = database.worker().unwrap();
    let mut received: Vec<Vec<u8>> = Vec::new();
    let deadline = soon().unwrap();
    while received.len() < count {
        assert!(Instant::now() < deadline, "{} of {count}", received.len());
        let Some(first) = database.messages().first(deadline.into()) else {
            continue;
        };
        database.wait_committed(first.plus(1), deadline);
        let committed = database.committed();
        let taken = database.messages().take(committed);
        assert!(taken.keys().all(|at| *at < committed));
        let transaction = worker.begin_read_only();
        assert!(transaction.snapshot() >= committed);
        received.extend(taken.into_values().map(Vec::from));
        drop(transaction);
    }
    received
}

#[test]
fn all_nodes_receive_the_same_in_the_same_order() {
    for shape in SHAPES {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let primary = start(of(shape, 0, directories[0].path()));
        let join = Some(primary.address().to_owned());
        let standby = start(NodeConfig { join, ..of(shape, 1, directories[1].path()) });
        let table = primary.database().create_table(&definition()).unwrap();
        [&primary, &standby].iter().for_each(|node| node.database().messages().keep());
        let all: Vec<(u64, u64)> =
            (0..WRITERS).flat_map(|writer| (0..EACH).map(move |number| (writer, number))).collect();
        let count = all.iter().map(|(writer, number)| messages_of(*writer, *number).len()).sum();
        let (here, there) = thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (database, table) = (primary.database(), &table);
                scope.spawn(move || write(database, table, writer));
            }
            let here = scope.spawn(|| receive(&primary, count));
            let there = receive(&standby, count);
            (here.join().unwrap(), there)
        });
        assert!(here == there, "{shape:?}: one order");
        // What a transaction says comes together, as it was said, and a writer's transactions as
        // they came.
        let mut rest = &here[..];
        let mut next = vec![0; WRITERS as usize];
        while let Some(first) = rest.first() {
            let writer: u64 = std::str::from_utf8(first).unwrap().split(' ').next().unwrap().parse().unwrap();
            let number = &mut next[writer as usize];
            while messages_of(writer, *number).is_empty() {
                *number += 1;
            }
            let wanted = messages_of(writer, *number);
            assert!(rest.starts_with(&wanted), "{shape:?}: transaction {number} of {writer}");
            rest = &rest[wanted.len()..];
            *number += 1;
        }
        let messages = [&primary, &standby].map(|node| node.database().messages().take(Lsn::MAX).len());
        assert_eq!(messages, [0, 0], "{shape:?}: nothing else");
        // They are no records of a table: a restart, and what it gives to the next one, passes over
        // them.
        standby.stop().unwrap();
        primary.stop().unwrap();
        drop((primary, standby));
        let primary = start(of(shape, 0, directories[0].path()));
        let join = Some(primary.address().to_owned());
        let standby = start(NodeConfig { join, ..of(shape, 1, directories[1].path()) });
        wait_for("the standby has all", || common::hash(&primary) == common::hash(&standby));
        standby.stop().unwrap();
        primary.stop().unwrap();
    }
}
