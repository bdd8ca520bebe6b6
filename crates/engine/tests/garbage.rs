//! What deleted records leave behind goes, although the session that has deleted them does nothing more, or goes on for ever.

mod common;

use common::{config, definition, row, start, wait_for};
use freshet_engine::{Database, Isolation, Node, Table, Worker};

const RECORDS: u64 = 5_000;

/// Index entries of all records, dead ones included.
fn entries(database: &Database, table: &Table) -> u64 {
    let participant = database.core().participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let indexes = table.content(&guard).expect("it is not dropped").indexes(&guard);
    indexes.iter().map(|(_, index)| index.tree().statistics(&guard).entries).sum()
}

/// One transaction that fills the table, and one that empties it.
fn churn(database: &Database, worker: &Worker, table: &Table, records: u64) {
    let ((), _) = worker
        .execute(Isolation::Snapshot, |txn| {
            for id in 0..records {
                txn.insert(table, &row(id, id % 7, id))?;
            }
            Ok(())
        })
        .unwrap();
    let ((), ticket) = worker
        .execute(Isolation::Snapshot, |txn| {
            for id in 0..records {
                let found = txn.get(table, 0, &id.to_be_bytes())?.expect("just inserted");
                txn.delete(table, found.rid)?;
            }
            Ok(())
        })
        .unwrap();
    database.wait(ticket).unwrap();
}

/// Everything that was deleted is gone, with nobody doing anything.
fn comes_clean(node: &Node, table: &Table) {
    wait_for("an empty table's index without entries", || entries(node.database(), table) == 0);
    let core = node.database().core();
    wait_for("memory that is given back", || core.participants.waiting() == 0);
}

#[test]
fn the_garbage_of_an_idle_session_is_collected() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(config(Some(directory.path())));
    let table = node.database().create_table(&definition()).unwrap();
    let worker = node.database().worker().unwrap();
    // Far fewer than a session hands on because there are many.
    churn(node.database(), &worker, &table, 600);
    comes_clean(&node, &table);
    churn(node.database(), &worker, &table, RECORDS);
    comes_clean(&node, &table);
    // Ids were used again.
    assert!(common::next_rid(node.database(), &table) <= 2 * RECORDS);
    node.stop().unwrap();
}

#[test]
fn the_garbage_of_a_session_that_never_rests_stays_within_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(config(Some(directory.path())));
    let table = node.database().create_table(&definition()).unwrap();
    let worker = node.database().worker().unwrap();
    for round in 0..20 {
        churn(node.database(), &worker, &table, 4 * RECORDS);
        // Two indexes: of what this round has deleted, and of what may wait to be collected.
        let dead = entries(node.database(), &table) / 2;
        assert!(dead <= 4 * RECORDS + (100 << 10), "{dead} dead records after round {round}");
    }
    comes_clean(&node, &table);
    node.stop().unwrap();
}
