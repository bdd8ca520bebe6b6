//! Ids of deleted records are used again, after a restart and after a failover too; and readers
//! that were there before see what they saw.

mod common;

use common::{SHAPES, Shape, all_are_named, config, definition, hash, look, next_rid, row, soon, start, wait_for};
use freshet_engine::{
    CheckpointKind, CommandExecutor, Consent, Database, Encoding, Isolation, Lsn, Node, NodeConfig, ProcedureError,
    Safety, StateHash, Table, Transaction, executors, node::RoleStatus, record_as,
};

const RECORDS: u64 = 10_000;

/// One transaction for this many records.
fn in_parts(database: &Database, ids: impl Iterator<Item = u64>, each: impl Fn(&Transaction<'_>, u64)) {
    let worker = database.worker().unwrap();
    let ids: Vec<u64> = ids.collect();
    let mut last = None;
    for part in ids.chunks(100) {
        let ((), ticket) = worker
            .execute(Isolation::Snapshot, |txn| {
                part.iter().for_each(|id| each(txn, *id));
                Ok(())
            })
            .unwrap();
        last = Some(ticket);
    }
    database.wait(last.unwrap()).unwrap();
}

fn insert(node: &Node, table: &Table, ids: impl Iterator<Item = u64>) {
    in_parts(node.database(), ids, |txn, id| {
        txn.insert(table, &row(id, id % 7, id)).unwrap();
    });
}

fn delete(node: &Node, table: &Table, ids: impl Iterator<Item = u64>) {
    in_parts(node.database(), ids, |txn, id| {
        let found = txn.get(table, 0, &id.to_be_bytes()).unwrap().unwrap();
        txn.delete(table, found.rid).unwrap();
    });
}

/// Ids that the table knows to be free, but for those of workers.
fn free(node: &Node, table: &Table) -> u64 {
    let mut count = 0;
    look(node.database(), table, |content| content.gone_before(Lsn::MAX, |_, _| count += 1));
    count
}

fn bytes_of(node: &Node, table: &Table) -> u64 {
    look(node.database(), table, |content| content.array_bytes())
}

/// Every record is found by its key.
fn check(node: &Node, ids: impl Iterator<Item = u64>) {
    let worker = node.database().worker().unwrap();
    let txn = worker.begin_read_only();
    let table = node.database().table("things").unwrap();
    for id in ids {
        let found = txn.get(&table, 0, &id.to_be_bytes()).unwrap().unwrap();
        assert_eq!(found.row, row(id, id % 7, id));
    }
}

#[test]
fn a_restart_finds_them_in_the_log() {
    for shape in SHAPES {
        let directory = tempfile::tempdir().unwrap();
        let settings = || shape.of_node(1, config(Some(directory.path())));
        let node = start(settings());
        let table = node.database().create_table(&definition()).unwrap().clone();
        insert(&node, &table, 0..RECORDS);
        delete(&node, &table, (0..RECORDS).step_by(2));
        let before = hash(&node);
        node.stop().unwrap();
        drop((node, table));
        for round in 1..4 {
            let node = start(settings());
            let table = node.database().table("things").unwrap().clone();
            assert_eq!(free(&node, &table), RECORDS / 2, "{shape:?}");
            let bytes = bytes_of(&node, &table);
            let next = next_rid(node.database(), &table);
            insert(&node, &table, (0..RECORDS).step_by(2).map(|id| id + round * RECORDS));
            assert_eq!((free(&node, &table), bytes_of(&node, &table)), (0, bytes), "{shape:?}");
            // A range for this look itself, and one that its worker may have begun.
            assert!(next_rid(node.database(), &table) <= next + 2 * 1024, "{shape:?}: the table grows");
            check(&node, (0..RECORDS).map(|id| if id % 2 == 0 { id + round * RECORDS } else { id }));
            delete(&node, &table, (0..RECORDS).step_by(2).map(|id| id + round * RECORDS));
            assert_eq!(hash(&node), before);
            node.stop().unwrap();
        }
    }
}

/// Checkpoints are made when asked for, and the log below them is removed.
fn checkpointed(shape: Shape, directory: &std::path::Path) -> NodeConfig {
    let mut config = shape.of_node(1, config(Some(directory)));
    config.checkpoint.interval_s = 0;
    config.checkpoint.keep_log_bytes = 0;
    config.log.segment_bytes = 1 << 16;
    config
}

#[test]
fn a_restart_finds_them_in_the_checkpoint() {
    for shape in SHAPES {
        let directory = tempfile::tempdir().unwrap();
        let settings = || checkpointed(shape, directory.path());
        let node = start(settings());
        let table = node.database().create_table(&definition()).unwrap().clone();
        insert(&node, &table, 0..RECORDS);
        delete(&node, &table, (0..RECORDS).step_by(2));
        let before = hash(&node);
        // Ids that the collector is working on are in no list.
        wait_for("the deleted records are gone", || free(&node, &table) == RECORDS / 2);
        let written = node.checkpoint(CheckpointKind::Fuzzy).unwrap();
        assert_eq!(written.rows, RECORDS / 2 + 1, "those that are gone are no rows");
        node.stop().unwrap();
        drop((node, table));
        for round in 1..4 {
            let node = start(settings());
            assert_eq!(hash(&node), before);
            let table = node.database().table("things").unwrap().clone();
            assert_eq!(free(&node, &table), RECORDS / 2, "{shape:?}");
            let next = next_rid(node.database(), &table);
            insert(&node, &table, (0..RECORDS).step_by(2).map(|id| id + round * RECORDS));
            assert!(next_rid(node.database(), &table) <= next + 2 * 1024, "{shape:?}: the table grows");
            check(&node, (0..RECORDS).map(|id| if id % 2 == 0 { id + round * RECORDS } else { id }));
            delete(&node, &table, (0..RECORDS).step_by(2).map(|id| id + round * RECORDS));
            assert_eq!(hash(&node), before);
            // Some are in the checkpoint, some in the log behind it.
            if round == 2 {
                wait_for("the deleted records are gone", || free(&node, &table) == RECORDS / 2);
                node.checkpoint(CheckpointKind::Fuzzy).unwrap();
            }
            node.stop().unwrap();
        }
    }
}

/// A reader holds the deleted records back while the checkpoint is written, and the log with their
/// tombstones is gone after it.
#[test]
fn a_restart_finds_those_that_a_reader_held_back_in_the_checkpoint() {
    for shape in SHAPES {
        let directory = tempfile::tempdir().unwrap();
        let settings = || checkpointed(shape, directory.path());
        let node = start(settings());
        let table = node.database().create_table(&definition()).unwrap().clone();
        insert(&node, &table, 0..RECORDS);
        let reader = node.database().worker().unwrap();
        let long = reader.begin_read_only();
        delete(&node, &table, (0..RECORDS).step_by(2));
        // Its start lies above the deletions.
        insert(&node, &table, RECORDS..RECORDS + 2000);
        node.checkpoint(CheckpointKind::Fuzzy).unwrap();
        drop(long);
        drop(reader);
        node.stop().unwrap();
        drop((node, table));
        let node = start(settings());
        let table = node.database().table("things").unwrap().clone();
        assert_eq!(free(&node, &table), RECORDS / 2, "{shape:?}");
        check(&node, (0..RECORDS + 2000).filter(|id| id % 2 == 1 || *id >= RECORDS));
        node.stop().unwrap();
    }
}

/// A cluster of three; a reader on the third node begins before records are deleted, and stays
/// until their ids have been used again: by the old primary after a restart, or by a new one.
#[test]
fn old_readers_see_old_records_whose_ids_are_used_again() {
    for shape in SHAPES {
        for failover in [false, true] {
            used_again(shape, failover);
        }
    }
}

fn used_again(shape: Shape, failover: bool) {
    let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let cluster = |n: usize| {
        let config = NodeConfig { safety: Safety::Quorum(2), ..config(Some(directories[n].path())) };
        shape.of_node(n, config)
    };
    let first = start(cluster(0));
    let address = first.address().to_owned();
    let join = |n: usize, to: &str| start(NodeConfig { join: Some(to.to_owned()), ..cluster(n) });
    let (second, third) = (join(1, &address), join(2, &address));
    let table = first.database().create_table(&definition()).unwrap().clone();
    insert(&first, &table, 0..RECORDS);
    let end = first.database().core().snapshots.current();
    third.wait_visible(end, soon()).unwrap();
    let reader = third.database().worker().unwrap();
    let long = reader.begin_read_only();
    // What they are to see; they look when the ids have been used again. Some records are in memory
    // there, most are not.
    let seen = hash(&first);
    check(&third, 0..RECORDS / 8);
    let in_the_middle = RECORDS / 4;
    delete(&first, &table, (0..in_the_middle).step_by(2));
    let end = first.database().core().snapshots.current();
    third.wait_visible(end, soon()).unwrap();
    let later = third.database().worker().unwrap();
    let later = later.begin_read_only();
    let seen_later = hash(&first);
    delete(&first, &table, (in_the_middle..RECORDS).step_by(2));
    let end = first.database().core().snapshots.current();
    for node in [&second, &third] {
        node.wait_visible(end, soon()).unwrap();
    }
    all_are_named(&first);
    let before = hash(&first);
    let theirs = second.database().table("things").unwrap();
    wait_for("what is left of the dead is gone", || free(&second, &theirs) == RECORDS / 2);
    drop(theirs);
    first.stop().unwrap();
    drop((first, table));
    let (primary, other) = if failover {
        second.promote(Consent::Nothing).unwrap();
        let back = join(0, second.address());
        (second, back)
    } else {
        (start(NodeConfig { listen: address.parse().unwrap(), ..cluster(0) }), second)
    };
    assert_eq!(hash(&primary), before);
    let table = primary.database().table("things").unwrap().clone();
    // A primary that asked before it led again found them as a standby does: by and by.
    wait_for("the ids of the dead are free", || free(&primary, &table) == RECORDS / 2);
    let next = next_rid(primary.database(), &table);
    insert(&primary, &table, (0..RECORDS).step_by(2).map(|id| id + RECORDS));
    assert!(
        next_rid(primary.database(), &table) <= next + 2 * 1024,
        "{shape:?}, failover: {failover}: the table grows"
    );
    let end = primary.database().core().snapshots.current();
    for node in [&third, &other] {
        node.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(node), hash(&primary), "{shape:?}, failover: {failover}");
        check(node, (0..RECORDS).map(|id| if id % 2 == 0 { id + RECORDS } else { id }));
    }
    for (reader, seen) in [(&later, seen_later), (&long, seen)] {
        let hash = StateHash::of(reader).unwrap();
        assert_eq!((hash.hash, hash.records), seen, "{shape:?}, failover: {failover}");
    }
    drop((later, long));
    for node in [primary, other, third] {
        node.stop().unwrap();
    }
}

/// Inserts the record that it is told.
struct Inserts;

impl CommandExecutor for Inserts {
    fn execute(&self, txn: &Transaction<'_>, _: u32, inputs: &[u8]) -> Result<(), ProcedureError> {
        let id = inputs.try_into().map_err(|_| ProcedureError::Aborted("no id".into()))?;
        insert_input(txn, u64::from_be_bytes(id))
    }
}

fn insert_input(txn: &Transaction<'_>, id: u64) -> Result<(), ProcedureError> {
    let table = txn.table("things").ok_or_else(|| ProcedureError::Aborted("no table".into()))?;
    txn.insert(&table, &row(id, id % 7, id))?;
    Ok(())
}

/// A worker of the old primary has free ids while a checkpoint is made, which does not say that
/// they are free. The new primary uses them again, and the old one executes that.
#[test]
fn a_node_that_lacks_free_ids_executes_transactions_again_that_use_them() {
    for shape in [Shape::OneStream, Shape::ThreeStreams] {
        let directories: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
        let cluster = |n: usize| NodeConfig { safety: Safety::TwoSafe, ..checkpointed(shape, directories[n].path()) };
        let first = start(cluster(0));
        let second = start(NodeConfig { join: Some(first.address().to_owned()), ..cluster(1) });
        let table = first.database().create_table(&definition()).unwrap().clone();
        insert(&first, &table, 0..RECORDS);
        delete(&first, &table, (0..RECORDS).step_by(2));
        wait_for("the deleted records are gone", || free(&first, &table) == RECORDS / 2);
        let keeper = first.database().worker().unwrap();
        let ((), ticket) = keeper.execute(Isolation::Snapshot, |txn| insert_input(txn, RECORDS)).unwrap();
        first.database().wait(ticket).unwrap();
        assert!(free(&first, &table) < RECORDS / 2 - 1, "the worker has some");
        first.checkpoint(CheckpointKind::Fuzzy).unwrap();
        let end = first.database().core().snapshots.current();
        second.wait_visible(end, soon()).unwrap();
        let theirs = second.database().table("things").unwrap();
        // Of the one that was used again the word says so only when it is read.
        wait_for("what is left of the dead is gone", || free(&second, &theirs) >= RECORDS / 2 - 1);
        drop(theirs);
        drop(keeper);
        first.stop().unwrap();
        drop((first, table));
        second.promote(Consent::Loss).unwrap();
        let join = Some(second.address().to_owned());
        let first = NodeConfig { join, encoding: Encoding::Inputs, ..cluster(0) };
        let first = Node::start_executing(first, Some(executors(|| Inserts)), |_| {}).unwrap();
        wait_for("inputs are recorded", || second.database().core().records_inputs());
        let worker = second.database().worker().unwrap();
        for id in RECORDS + 1..RECORDS + RECORDS / 2 {
            let ((), ticket) = worker
                .execute(Isolation::Snapshot, |txn| {
                    insert_input(txn, id)?;
                    record_as(txn, 1, &id.to_be_bytes());
                    Ok(())
                })
                .unwrap();
            if id % 100 == 0 {
                second.database().wait(ticket).unwrap();
            }
        }
        drop(worker);
        let theirs = second.database().table("things").unwrap();
        assert!(free(&second, &theirs) <= 1, "all are used again");
        drop(theirs);
        first.wait_visible(second.database().core().snapshots.current(), soon()).unwrap();
        assert_eq!(hash(&first), hash(&second), "{shape:?}");
        let RoleStatus::Standby { again: Some(again), .. } = first.status().role else { panic!("it executes") };
        assert!(again.executed > RECORDS / 4 && again.mismatches == 0, "{shape:?}: {again:?}");
        first.stop().unwrap();
        second.stop().unwrap();
    }
}
