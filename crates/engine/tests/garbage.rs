//! What deleted records leave behind goes, even if the session that has deleted them does nothing
//! more, or never stops.

mod common;

use common::{config, definition, row, start, wait_for};
use freshet_engine::{Database, Isolation, Node, NodeConfig, Safety, Table, Worker};

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

/// Everything that was deleted is gone, while no session does anything.
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

/// A primary that waits for a standby that is not there yet.
fn alone(directory: &std::path::Path) -> std::sync::Arc<Node> {
    let mut config = NodeConfig { safety: Safety::Quorum(2), ..config(Some(directory)) };
    config.log.uncommitted_bytes = 1 << 20;
    start(config)
}

fn follow(primary: &Node, directory: &std::path::Path) -> std::sync::Arc<Node> {
    start(NodeConfig { join: Some(primary.address().to_owned()), ..config(Some(directory)) })
}

#[test]
fn garbage_does_not_wait_for_standbys_and_readers_know_what_they_miss() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let primary = alone(directories[0].path());
    let database = primary.database();
    let (table, _) = database.define_table(&definition()).unwrap();
    let worker = database.worker().unwrap();
    let insert =
        |id: u64| worker.execute(Isolation::Snapshot, |txn| Ok(txn.insert(&table, &row(id, id % 7, id))?)).unwrap().1;
    let delete = |id: u64| {
        let delete = |txn: &freshet_engine::Transaction<'_>| {
            let found = txn.get(&table, 0, &id.to_be_bytes())?.expect("inserted before");
            Ok(txn.delete(&table, found.rid)?)
        };
        worker.execute(Isolation::Snapshot, delete).unwrap().1
    };
    for id in 0..600 {
        let _ = insert(id);
    }
    let before = database.core().snapshots.current();
    let mut last = None;
    for id in 0..500 {
        last = Some(delete(id));
    }
    wait_for("records gone whose deletions are not committed", || entries(database, &table) == 200);
    let last = last.unwrap();
    assert!(database.outcome(last).is_none(), "nobody acknowledges anything");
    let reader = database.worker().unwrap();
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        // A reader that misses a record is not answered before the record's deletion is committed:
        // by key, and in a range.
        let txn = reader.begin(isolation);
        assert!(txn.get(&table, 0, &499u64.to_be_bytes()).unwrap().is_none());
        let missed = txn.commit().unwrap();
        assert!(missed.until > last.lsn.unwrap() && database.outcome(missed).is_none(), "{missed:?}");
        let txn = reader.begin(isolation);
        let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let mut found = 0;
        txn.scan(&table, 1, all, freshet_engine::Direction::Forward, |_, _| {
            found += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        let seen = txn.commit().unwrap();
        assert_eq!(found, 100);
        assert!(seen.until > last.lsn.unwrap(), "{seen:?}");
        // What is found by its key tells nothing of others.
        let txn = reader.begin(isolation);
        assert!(txn.get(&table, 0, &550u64.to_be_bytes()).unwrap().is_some());
        assert!(txn.commit().unwrap().until <= before);
    }
    // Ids are used again, and what takes them is what a standby sees in the end.
    for id in 1000..1500 {
        let _ = insert(id);
    }
    let last = delete(1000);
    let standby = follow(&primary, directories[1].path());
    database.wait(last).unwrap();
    standby.wait_visible(last.until, common::soon()).unwrap();
    assert_eq!(common::hash(&primary), common::hash(&standby));
    drop((worker, reader));
    standby.stop().unwrap();
    primary.stop().unwrap();
}

#[test]
fn writers_wait_while_too_much_is_uncommitted() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let primary = alone(directories[0].path());
    let database = primary.database();
    let (table, _) = database.define_table(&definition()).unwrap();
    let worker = database.worker().unwrap();
    let now = || Some(std::time::Instant::now());
    let write = |worker: &Worker, from: u64| {
        let insert = |txn: &freshet_engine::Transaction<'_>| {
            (from..from + 100).try_for_each(|id| txn.insert(&table, &row(id, id % 7, id)).map(drop))?;
            Ok(())
        };
        worker.execute(Isolation::Snapshot, insert).unwrap().1
    };
    let begun = database.core().snapshots.current();
    let mut next = 0;
    while database.wait_for_room(now()) {
        let _ = write(&worker, next);
        next += 100;
    }
    let uncommitted = database.core().snapshots.current().0 - begun.0;
    assert!(uncommitted < (1 << 20) + (64 << 10), "{uncommitted} bytes and no more than one transaction beyond");
    std::thread::scope(|scope| {
        let late = scope.spawn(|| write(&database.worker().unwrap(), next));
        // Readers continue, and see what is there.
        let reader = database.worker().unwrap();
        assert!(reader.begin_read_only().get(&table, 0, &5u64.to_be_bytes()).unwrap().is_some());
        assert!(!database.wait_for_room(now()) && !late.is_finished());
        let standby = follow(&primary, directories[1].path());
        database.wait(late.join().unwrap()).unwrap();
        assert!(database.wait_for_room(now()));
        standby.stop().unwrap();
    });
    drop(worker);
    primary.stop().unwrap();
}
