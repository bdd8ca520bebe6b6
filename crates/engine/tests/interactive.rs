//! What interactive transactions need: waiting for holders, newer snapshots, locks, savepoints.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
    sync::{Barrier, mpsc},
    time::{Duration, Instant},
};

use freshet_base::wait::Patience;
use freshet_engine::{
    Database, Direction, IndexDefinition, Isolation, KeyPart, LockWaitError, RowLock, Table, TableDefinition,
    Transaction, WriteError,
};

fn definition() -> TableDefinition {
    TableDefinition::new(
        "things",
        vec![
            IndexDefinition::new("things_id", true, &[KeyPart::unsigned(0, 8)]),
            IndexDefinition::new("things_name", true, &[KeyPart::unsigned(8, 8)]),
            IndexDefinition::new("things_value", false, &[KeyPart::unsigned(16, 8)]),
        ],
    )
}

fn row(id: u64, name: u64, value: u64) -> Vec<u8> {
    [id, name, value].iter().flat_map(|column| column.to_le_bytes()).collect()
}

fn column(row: &[u8], number: usize) -> u64 {
    u64::from_le_bytes(row[8 * number..8 * number + 8].try_into().unwrap())
}

/// Adds one to a record's value as READ COMMITTED does it: its holder is waited for, and the newest
/// value counts.
fn increment(txn: &Transaction<'_>, table: &Table, id: u64) -> Result<(), LockWaitError> {
    loop {
        let found = txn.get(table, 0, &id.to_be_bytes()).unwrap().unwrap();
        let changed = row(id, column(found.row, 1), column(found.row, 2) + 1);
        match txn.update(table, found.rid, &changed) {
            Ok(_) => return Ok(()),
            // Its value is a key, so the record may have moved, too.
            Err(WriteError::Conflict | WriteError::NotFound) => {
                txn.wait_for_holder(Patience::endless())?;
                txn.refresh();
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn no_increment_is_lost_when_writers_wait_for_one_another() {
    let database = Database::volatile(8);
    let table = database.create_table(&definition()).unwrap().clone();
    let worker = database.worker().unwrap();
    let insert = |id: u64| worker.execute(Isolation::Snapshot, |txn| Ok(txn.insert(&table, &row(id, id, 0))?)).unwrap();
    for id in 0..3 {
        let _ = insert(id);
    }
    let (threads, turns) = (4, 500);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let worker = database.worker().unwrap();
                for _ in 0..turns {
                    let txn = worker.begin(Isolation::Snapshot);
                    // Always in the same order, so there is no circle.
                    (0..3).for_each(|id| increment(&txn, &table, id).unwrap());
                    let _ = txn.commit().unwrap();
                }
            });
        }
    });
    let txn = worker.begin_read_only();
    for id in 0..3u64 {
        let found = txn.get(&table, 0, &id.to_be_bytes()).unwrap().unwrap();
        assert_eq!(column(found.row, 2), threads * turns);
    }
}

#[test]
fn of_those_who_wait_in_a_circle_one_gives_up() {
    let database = Database::volatile(8);
    let table = database.create_table(&definition()).unwrap().clone();
    let worker = database.worker().unwrap();
    for id in 0..3 {
        let _ = worker.execute(Isolation::Snapshot, |txn| Ok(txn.insert(&table, &row(id, id, 0))?)).unwrap();
    }
    for circle in [2, 3] {
        let barrier = Barrier::new(circle);
        let given_up: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..circle as u64)
                .map(|number| {
                    let (database, table, barrier) = (&database, &table, &barrier);
                    scope.spawn(move || {
                        let worker = database.worker().unwrap();
                        let txn = worker.begin(Isolation::Snapshot);
                        increment(&txn, table, number).unwrap();
                        barrier.wait();
                        match increment(&txn, table, (number + 1) % circle as u64) {
                            Ok(()) => drop(txn.commit().unwrap()),
                            Err(why) => {
                                assert_eq!(why, LockWaitError::Deadlock);
                                return 1;
                            }
                        }
                        0
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(given_up, 1, "of {circle}");
    }
}

#[test]
fn a_lock_keeps_others_away_and_leaves_nothing() {
    let database = Database::volatile(8);
    let table = database.create_table(&definition()).unwrap().clone();
    let (one, other) = (database.worker().unwrap(), database.worker().unwrap());
    let ((), _) = one.execute(Isolation::Snapshot, |txn| Ok(txn.insert(&table, &row(1, 1, 0)).map(drop)?)).unwrap();
    let locking = one.begin(Isolation::Snapshot);
    let rid = locking.get(&table, 0, &1u64.to_be_bytes()).unwrap().unwrap().rid;
    locking.lock(&table, rid, RowLock::Update).unwrap();
    let waiting = other.begin(Isolation::Snapshot);
    assert_eq!(waiting.update(&table, rid, &row(1, 1, 7)), Err(WriteError::Conflict));
    let soon = Instant::now() + Duration::from_millis(30);
    assert_eq!(waiting.wait_for_holder(soon.into()), Err(LockWaitError::Deadline));
    assert_eq!(waiting.update(&table, rid, &row(1, 1, 7)), Err(WriteError::Conflict));
    assert_eq!(waiting.wait_for_holder(Patience::endless().unless(&|| true)), Err(LockWaitError::Cancelled));
    // Readers do not mind.
    assert!(waiting.get(&table, 0, &1u64.to_be_bytes()).unwrap().is_some());
    let ticket = locking.commit().unwrap();
    assert_eq!(ticket.lsn, None, "nothing was written");
    // Since nothing has changed, not even the snapshot is too old.
    waiting.update(&table, rid, &row(1, 1, 7)).unwrap();
    let _ = waiting.commit().unwrap();
    // A lock that becomes a change is one.
    let txn = one.begin(Isolation::Snapshot);
    let rid = txn.get(&table, 0, &1u64.to_be_bytes()).unwrap().unwrap().rid;
    txn.lock(&table, rid, RowLock::Update).unwrap();
    txn.update(&table, rid, &row(1, 2, 7)).unwrap();
    assert!(txn.commit().unwrap().lsn.is_some());
    assert!(one.begin_read_only().get(&table, 1, &2u64.to_be_bytes()).unwrap().is_some());
}

#[test]
fn a_waiter_is_woken_by_the_end_of_the_holder() {
    let database = Database::volatile(8);
    let table = database.create_table(&definition()).unwrap().clone();
    let worker = database.worker().unwrap();
    let _ = worker.execute(Isolation::Snapshot, |txn| Ok(txn.insert(&table, &row(1, 1, 0))?)).unwrap();
    for commits in [true, false] {
        let txn = worker.begin(Isolation::Snapshot);
        increment(&txn, &table, 1).unwrap();
        let (finds, found) = mpsc::channel();
        std::thread::scope(|scope| {
            let (database, table) = (&database, &table);
            let waiter = scope.spawn(move || {
                let worker = database.worker().unwrap();
                let txn = worker.begin(Isolation::Snapshot);
                let found = txn.get(table, 0, &1u64.to_be_bytes()).unwrap().unwrap();
                let (rid, changed) = (found.rid, row(1, 1, 100));
                assert_eq!(txn.update(table, rid, &changed), Err(WriteError::Conflict));
                finds.send(()).unwrap();
                txn.wait_for_holder(Patience::endless()).unwrap();
                // The first to commit wins; if it gave up, nothing has happened.
                txn.update(table, rid, &changed).is_ok()
            });
            found.recv().unwrap();
            if commits {
                let _ = txn.commit().unwrap();
            } else {
                txn.roll_back();
            }
            assert_eq!(waiter.join().unwrap(), !commits);
        });
    }
}

/// All records by each index, and the model.
fn check(txn: &Transaction<'_>, table: &Table, model: &BTreeMap<u64, (u64, u64)>) {
    for index in 0..3 {
        let mut found = BTreeMap::new();
        txn.scan(table, index, (Bound::Unbounded, Bound::Unbounded), Direction::Forward, |_, record| {
            let there = found.insert(column(record.row, 0), (column(record.row, 1), column(record.row, 2)));
            assert_eq!(there, None, "once");
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(&found, model, "by index {index}");
    }
}

#[test]
fn savepoints_take_back_what_came_after_them() {
    let seed = std::env::var("FRESHET_SEED").ok().map_or(7, |seed| seed.parse().unwrap());
    println!("FRESHET_SEED={seed}");
    let mut random = generator(seed);
    let database = Database::volatile(8);
    let table = database.create_table(&definition()).unwrap().clone();
    let worker = database.worker().unwrap();
    let mut committed: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for turn in 0..400 {
        let isolation = if turn % 2 == 0 { Isolation::Snapshot } else { Isolation::Serializable };
        let txn = worker.begin(isolation);
        let mut model = committed.clone();
        let mut savepoints = Vec::new();
        for _ in 0..random(30) {
            let id = random(12);
            let found = txn.get(&table, 0, &id.to_be_bytes()).unwrap().map(|found| found.rid);
            match (random(6), found) {
                (0, _) => savepoints.push((txn.savepoint(), model.clone())),
                (1, _) if !savepoints.is_empty() => {
                    savepoints.truncate(random(savepoints.len() as u64) as usize + 1);
                    let (savepoint, before) = savepoints.last().unwrap();
                    txn.roll_back_to(savepoint);
                    model = before.clone();
                    check(&txn, &table, &model);
                }
                (2, Some(rid)) => {
                    txn.delete(&table, rid).unwrap();
                    model.remove(&id);
                }
                (3, Some(rid)) => txn.lock(&table, rid, RowLock::Update).unwrap(),
                (_, found) => {
                    let (name, value) = (random(20), random(5));
                    let outcome = match found {
                        Some(rid) => txn.update(&table, rid, &row(id, name, value)).map(drop),
                        None => txn.insert(&table, &row(id, name, value)).map(drop),
                    };
                    let taken = model.iter().any(|(other, there)| *other != id && there.0 == name);
                    match outcome {
                        Ok(()) => {
                            assert!(!taken);
                            model.insert(id, (name, value));
                        }
                        Err(WriteError::UniqueViolation { .. }) => assert!(taken),
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        }
        check(&txn, &table, &model);
        if random(3) == 0 {
            txn.roll_back();
        } else {
            let _ = txn.commit().unwrap();
            committed = model;
        }
        check(&worker.begin_read_only(), &table, &committed);
    }
}

/// A small generator: numbers below what is asked for.
fn generator(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below.max(1)
    }
}
