//! Indexes that come and go on filled tables, while others write: complete on every node and after
//! every restart, or not there at all.

mod common;

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
    path::Path,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use common::{SHAPES, Shape, config, definition, hash, look, row, soon, start, wait_for};
use freshet_base::{Consent, Rid};
use freshet_engine::{
    BuildError, CheckpointKind, CommitError, Database, Direction, IndexDefinition, IndexError, IndexState, Isolation,
    KeyPart, Lsn, Node, NodeConfig, ProcedureError, ReadError, RowTest, Safety, Table, Ticket, Transaction, WriteError,
};

fn of(shape: Shape, n: usize, directory: &Path) -> NodeConfig {
    let mut config = shape.of_node(n, config(Some(directory)));
    config.checkpoint.interval_s = 0;
    config.checkpoint.keep_log_bytes = 0;
    config.log.segment_bytes = 1 << 16;
    config
}

fn never() -> bool {
    false
}

fn add_index(
    database: &Database,
    table: &Table,
    definition: &IndexDefinition,
    cancelled: &dyn Fn() -> bool,
) -> Result<usize, IndexError> {
    database.begin_index(table, definition, cancelled)?.finish(cancelled)
}

fn drop_index(database: &Database, table: &Table, number: usize) -> Result<(), IndexError> {
    database.wait(database.drop_index(table, number)?)?;
    database.worker()?.collect_garbage();
    Ok(())
}

/// By the third column, which changes in place as long as there is no such index.
fn by_value(name: &str) -> IndexDefinition {
    IndexDefinition::new(name, false, &[KeyPart::unsigned(16, 8)])
}

fn unique(name: &str, offset: u16) -> IndexDefinition {
    IndexDefinition::new(name, true, &[KeyPart::unsigned(offset, 8)])
}

fn put(database: &Database, table: &Table, ids: std::ops::Range<u64>, column: impl Fn(u64) -> (u64, u64)) -> Ticket {
    let worker = database.worker().unwrap();
    let ((), ticket) = worker
        .execute(Isolation::Snapshot, |txn| {
            for id in ids.clone() {
                let (group, value) = column(id);
                txn.insert(table, &row(id, group, value))?;
            }
            Ok(())
        })
        .unwrap();
    ticket
}

/// A key and its row.
type Entry = (Vec<u8>, Vec<u8>);

fn rows(txn: &Transaction<'_>, table: &Table, index: usize) -> Result<Vec<Entry>, ReadError> {
    let mut rows = Vec::new();
    txn.scan(table, index, (Bound::Unbounded, Bound::Unbounded), Direction::Forward, |key, record| {
        rows.push((key.to_vec(), record.row.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

/// The index has just what the table has of the rows that it is for, in its order.
fn check(txn: &Transaction<'_>, table: &Table, index: usize, what: &str) -> usize {
    let found = rows(txn, table, index).unwrap();
    assert!(found.is_sorted_by(|one, other| one.0 <= other.0), "{what}: in order");
    let mut found: Vec<_> = found.into_iter().map(|(_, row)| row).collect();
    let participant = txn.worker().core().participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let content = table.content(&guard).unwrap();
    let definition = content.indexes(&guard).get(index).unwrap().definition();
    let all = rows(txn, table, 0).unwrap().into_iter().map(|(_, row)| row);
    let mut there: Vec<_> = all.filter(|row| definition.has(row)).collect();
    found.sort();
    there.sort();
    assert_eq!(found.len(), there.len(), "{what}");
    assert_eq!(found, there, "{what}");
    found.len()
}

fn check_node(node: &Node, name: &str, index: &str, what: &str) -> usize {
    let worker = node.database().worker().unwrap();
    let txn = worker.begin_read_only();
    let table = txn.table(name).unwrap();
    check(&txn, &table, table.index_number(index).unwrap(), what)
}

/// Bytes that a table's indexes take, and how many there are.
fn index_bytes(database: &Database, table: &Table) -> (u64, usize) {
    let participant = database.core().participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let indexes = table.content(&guard).unwrap().indexes(&guard);
    (indexes.iter().map(|(_, index)| index.tree().statistics(&guard).bytes).sum(), indexes.iter().count())
}

fn is_missing(error: &ReadError) -> bool {
    matches!(error, ReadError::NoIndex { .. })
}

/// Threads that insert, change, move and delete records of `table` until `done`.
fn write(database: &Database, table: &Table, worker: u64, done: &AtomicBool) -> u64 {
    let session = database.worker().unwrap();
    let (mut last, mut turn) = (None, 0);
    while !done.load(Ordering::SeqCst) {
        turn += 1;
        let id = (turn * 3 + worker) * 1_000_000_007 % 3000 * 3 + worker;
        let outcome = session.execute(Isolation::Snapshot, |txn| {
            let key = id.to_be_bytes();
            match txn.get(table, 0, &key)? {
                None => drop(txn.insert(table, &row(id, id % 7, turn))?),
                Some(old) if turn % 5 == 0 => txn.delete(table, old.rid)?,
                // In place, but not where there is an index.
                Some(old) if turn % 5 < 4 => drop(txn.update(table, old.rid, &row(id, id % 7, turn))?),
                Some(old) => drop(txn.update(table, old.rid, &row(id, turn % 11, turn + 1))?),
            }
            Ok(())
        });
        match outcome {
            Ok(((), ticket)) => last = Some(ticket),
            Err(ProcedureError::Exhausted { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    if let Some(ticket) = last {
        database.wait(ticket).unwrap();
    }
    turn
}

/// Whether a standby has forgotten this deleted record.
fn is_gone(database: &Database, table: &Table, rid: Rid) -> bool {
    let mut found = false;
    look(database, table, |content| content.gone_before(Lsn::MAX, |gone, _| found |= gone == rid));
    found
}

/// A standby that a reader keeps from forgetting the dead: their ids have been used again, and the
/// new records have got in place, without an index, what the dead had. Then there is an index.
#[test]
fn what_dead_records_had_stays_in_an_index_that_comes_later() {
    for shape in SHAPES {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let cluster =
            |n: usize, join| start(NodeConfig { safety: Safety::TwoSafe, join, ..of(shape, n, directories[n].path()) });
        let primary = cluster(0, None);
        let standby = cluster(1, Some(primary.address().into()));
        let database = primary.database();
        let table = database.create_table(&definition()).unwrap();
        database.wait(put(database, &table, 0..100, |id| (id % 7, 100))).unwrap();
        let number = add_index(database, &table, &by_value("before"), &never).unwrap();
        let shown = database.core().snapshots.current();
        standby.wait_visible(shown, soon()).unwrap();
        let reader = standby.database().worker().unwrap();
        let keeps = reader.begin_read_only();
        let worker = database.worker().unwrap();
        let change = |id: u64, value: u64| {
            let changed = worker.execute(Isolation::Snapshot, |txn| {
                let old = txn.get(&table, 0, &id.to_be_bytes())?.expect("it is there");
                txn.update(&table, old.rid, &row(id, id % 7, value))?;
                Ok(())
            });
            let ((), ticket) = changed.unwrap();
            database.wait(ticket).unwrap();
            worker.collect_garbage();
        };
        (0..50).for_each(|id| change(id, 99));
        drop_index(database, &table, number).unwrap();
        (0..50).for_each(|id| change(id, 100));
        add_index(database, &table, &by_value("after"), &never).unwrap();
        let deleted = worker.execute(Isolation::Snapshot, |txn| {
            let old = txn.get(&table, 0, &99u64.to_be_bytes())?.expect("it is there");
            txn.delete(&table, old.rid)?;
            Ok(old.rid)
        });
        let (last, ticket) = deleted.unwrap();
        database.wait(ticket).unwrap();
        let end = database.core().snapshots.current();
        standby.wait_visible(end, soon()).unwrap();
        assert_eq!(check_node(&standby, "things", "after", "with what is left of the dead"), 99, "{shape:?}");
        drop(keeps);
        // The oldest first.
        let theirs = standby.database().table("things").unwrap();
        wait_for("the dead are forgotten", || is_gone(standby.database(), &theirs, last));
        for node in [&primary, &standby] {
            assert_eq!(check_node(node, "things", "after", "without the dead"), 99, "{shape:?}");
        }
    }
}

#[test]
fn while_others_write_with_standbys_checkpoints_and_restarts() {
    for shape in SHAPES {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let cluster = |n: usize, join: Option<String>| {
            start(NodeConfig { safety: Safety::TwoSafe, join, ..of(shape, n, directories[n].path()) })
        };
        let (mut primary, mut standby);
        primary = cluster(0, None);
        standby = cluster(1, Some(primary.address().into()));
        let first = primary.database().create_table(&definition()).unwrap();
        primary.database().wait(put(primary.database(), &first, 0..2000, |id| (id % 7, id / 3))).unwrap();
        drop(first);
        for round in 0..3u64 {
            let table = primary.database().table("things").unwrap();
            let done = AtomicBool::new(false);
            let (name, key, some) = (format!("value{round}"), format!("key{round}"), format!("some{round}"));
            std::thread::scope(|scope| {
                for worker in 0..3 {
                    let (primary, table, done) = (&primary, &table, &done);
                    scope.spawn(move || write(primary.database(), table, worker, done));
                }
                if round % 2 == 0 {
                    let (done, nodes) = (&done, [&primary, &standby]);
                    scope.spawn(move || {
                        while !done.load(Ordering::SeqCst) {
                            for node in nodes {
                                node.checkpoint(CheckpointKind::Fuzzy).unwrap();
                            }
                        }
                    });
                }
                let database = primary.database();
                std::thread::sleep(Duration::from_millis(20));
                let parts = [KeyPart::unsigned(16, 8), KeyPart::unsigned(0, 8)];
                // Rows come in and go out as their values change.
                let some_rows = unique(&some, 0).of_rows(vec![RowTest { offset: 17, zero: true }]);
                for definition in [by_value(&name), IndexDefinition::new(&key, true, &parts), some_rows] {
                    let number = add_index(database, &table, &definition, &never).unwrap();
                    assert_eq!(table.index_number(&definition.name), Some(number));
                    let worker = database.worker().unwrap();
                    let count = check(&worker.begin_read_only(), &table, number, &format!("{shape:?}, round {round}"));
                    assert!(count > if definition.tests.is_empty() { 1000 } else { 0 });
                }
                if round > 0 {
                    let before = format!("value{}", round - 1);
                    drop_index(database, &table, table.index_number(&before).unwrap()).unwrap();
                }
                std::thread::sleep(Duration::from_millis(20));
                done.store(true, Ordering::SeqCst);
            });
            let end = primary.database().core().snapshots.current();
            standby.wait_visible(end, soon()).unwrap();
            let state = hash(&primary);
            for (who, node) in [("primary", &primary), ("standby", &standby)] {
                assert_eq!(hash(node), state);
                for index in [&name, &key, &some] {
                    check_node(node, "things", index, &format!("{shape:?}, round {round}, {who}, {index}"));
                }
                let database = node.database();
                wait_for("what was dropped is given up", || {
                    database.worker().unwrap().collect_garbage();
                    !database.core().catalog.has_dropped()
                });
            }
            primary.stop().unwrap();
            standby.stop().unwrap();
            drop((primary, standby, table));
            primary = cluster(0, None);
            standby = cluster(1, Some(primary.address().into()));
            assert_eq!(hash(&primary), state);
            standby.wait_visible(end, soon()).unwrap();
            for (who, node) in [("primary", &primary), ("standby", &standby)] {
                for index in [&name, &key, &some] {
                    check_node(node, "things", index, &format!("{shape:?}, round {round}, restarted {who}, {index}"));
                }
                if round > 0 {
                    let table = node.database().table("things").unwrap();
                    let gone = table.index_number(&format!("value{}", round - 1));
                    let there = |number| {
                        let participant = node.database().core().participants.join().unwrap();
                        let guard = participant.pin_without_snapshot();
                        table.content(&guard).unwrap().indexes(&guard).get(number).is_some()
                    };
                    wait_for("what was dropped is gone", || gone.is_none_or(|number| !there(number)));
                }
            }
        }
        primary.stop().unwrap();
        standby.stop().unwrap();
    }
}

#[test]
fn what_is_not_unique_leaves_no_index() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let primary = start(of(Shape::OneStream, 0, directories[0].path()));
    let join = Some(primary.address().to_owned());
    let standby = start(NodeConfig { join, ..of(Shape::OneStream, 1, directories[1].path()) });
    let database = primary.database();
    let table = database.create_table(&definition()).unwrap();
    let _ = put(database, &table, 0..5000, |id| (id, if id == 4321 { 77 } else { id }));
    let before = index_bytes(database, &table);
    for _ in 0..3 {
        let error = add_index(database, &table, &unique("values", 16), &never).unwrap_err();
        let IndexError::Build(BuildError::UniqueViolation { index, row: found }) = &error else { panic!("{error}") };
        assert_eq!((index.as_str(), &found[16..]), ("values", &77u64.to_le_bytes()[..]));
        wait_for("its memory is given back", || {
            database.worker().unwrap().collect_garbage();
            // Of the others, a leaf or two may have been split.
            let (bytes, count) = index_bytes(database, &table);
            count == before.1 && bytes < before.0 + (16 << 10) && !database.core().catalog.has_dropped()
        });
        // Nobody is kept from anything.
        let _ = put(database, &table, 10_000..10_001, |_| (1, 77));
        let worker = database.worker().unwrap();
        let (_, ticket) = worker
            .execute(Isolation::Snapshot, |txn| {
                let record = txn.get(&table, 0, &10_000u64.to_be_bytes())?.unwrap();
                Ok(txn.delete(&table, record.rid)?)
            })
            .unwrap();
        database.wait(ticket).unwrap();
    }
    // Rows that are too short for it, and one who changes his mind.
    let error = add_index(database, &table, &unique("long", 24), &never).unwrap_err();
    assert!(matches!(error, IndexError::Build(BuildError::Row { length: 24, .. })), "{error}");
    let asked = AtomicU64::new(0);
    let error = add_index(database, &table, &by_value("value"), &|| asked.fetch_add(1, Ordering::SeqCst) == 3);
    assert!(matches!(error, Err(IndexError::Cancelled)));
    // The same name twice, and no index.
    let error = add_index(database, &table, &by_value("things_group"), &never).unwrap_err();
    assert!(error.to_string().contains("already"), "{error}");
    let error = add_index(database, &table, &IndexDefinition::new("none", false, &[]), &never).unwrap_err();
    assert!(error.to_string().contains("no column"), "{error}");
    assert!(matches!(drop_index(database, &table, 0), Err(IndexError::NoIndex { .. })));
    assert!(matches!(drop_index(database, &table, 2), Err(IndexError::NoIndex { .. })));
    assert!(matches!(drop_index(database, &table, 99), Err(IndexError::NoIndex { .. })));
    // Without the second one it can be.
    let worker = database.worker().unwrap();
    let moved = worker.execute(Isolation::Snapshot, |txn| {
        let record = txn.get(&table, 0, &4321u64.to_be_bytes())?.unwrap();
        Ok(txn.update(&table, record.rid, &row(4321, 4321, 4321))?)
    });
    let _ = moved.unwrap();
    let number = add_index(database, &table, &unique("values", 16), &never).unwrap();
    check(&worker.begin_read_only(), &table, number, "unique");
    let taken = worker.begin(Isolation::Snapshot).insert(&table, &row(9999, 1, 77)).unwrap_err();
    assert_eq!(taken, WriteError::UniqueViolation { index: "values".into() });
    let end = database.core().snapshots.current();
    standby.wait_visible(end, soon()).unwrap();
    check_node(&standby, "things", "values", "the standby");
    wait_for("the standby gives up what was dropped", || !standby.database().core().catalog.has_dropped());
    let theirs = standby.database().table("things").unwrap();
    assert_eq!(index_bytes(standby.database(), &theirs).1, 3);
    drop(worker);
    primary.stop().unwrap();
    standby.stop().unwrap();
}

/// Writers that use few keys, so that they meet each other's and those that were there before.
#[test]
fn a_unique_index_comes_while_others_write_the_same_keys() {
    let database = Database::volatile(8);
    let (mut made, mut refused) = (0, 0);
    for round in 0..60u64 {
        let table = database.create_table(&definition()).unwrap();
        // Each value once; then each writer moves values around among its records, and some give
        // one to two records.
        let _ = put(&database, &table, 0..600, |id| (id % 7, id * 2));
        let (done, clashes) = (AtomicBool::new(false), round % 2 == 0);
        let kept = AtomicU64::new(0);
        let added = std::thread::scope(|scope| {
            for worker in 0..2u64 {
                let (database, table, done, kept) = (&database, &table, &done, &kept);
                scope.spawn(move || {
                    let session = database.worker().unwrap();
                    let mut turn = round * 977 + worker;
                    while !done.load(Ordering::SeqCst) {
                        turn += 2;
                        let (one, other) = (turn * 7919 % 600, turn * 104_729 % 600);
                        let outcome = session.execute(Isolation::Snapshot, |txn| {
                            let found = |id: u64| txn.get(table, 0, &id.to_be_bytes());
                            let (Some(one), Some(other)) = (found(one)?, found(other)?) else { return Ok(()) };
                            let mut new = one.row.to_vec();
                            new[16..].copy_from_slice(&other.row[16..]);
                            if one.rid == other.rid {
                                return Ok(());
                            }
                            let mut swapped = other.row.to_vec();
                            swapped[16..].copy_from_slice(&one.row[16..]);
                            if clashes && turn % 16 < 2 {
                                txn.update(table, one.rid, &new)?;
                            } else {
                                txn.delete(table, other.rid)?;
                                txn.update(table, one.rid, &new)?;
                                txn.insert(table, &swapped)?;
                            }
                            Ok(())
                        });
                        match outcome {
                            Ok(_) | Err(ProcedureError::Exhausted { .. }) => {}
                            Err(ProcedureError::Write(WriteError::UniqueViolation { index })) if index == "values" => {
                                kept.fetch_add(1, Ordering::SeqCst);
                            }
                            Err(error) => panic!("round {round}: {error}"),
                        }
                    }
                });
            }
            let added = add_index(&database, &table, &unique("values", 16), &never);
            std::thread::sleep(Duration::from_millis(2));
            done.store(true, Ordering::SeqCst);
            added
        });
        let worker = database.worker().unwrap();
        let txn = worker.begin_read_only();
        let mut values: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for (_, row) in rows(&txn, &table, 0).unwrap() {
            *values.entry(row[16..].to_vec()).or_default() += 1;
        }
        match added {
            Ok(number) => {
                made += 1;
                assert!(values.values().all(|count| *count == 1), "round {round}: {values:?}");
                check(&txn, &table, number, &format!("round {round}"));
            }
            Err(IndexError::Build(BuildError::UniqueViolation { .. })) => {
                refused += 1;
                assert!(clashes, "round {round}: nobody has written a value twice");
                let number = table.index_number("values").unwrap();
                assert!(rows(&txn, &table, number).is_err_and(|error| is_missing(&error)));
            }
            Err(error) => panic!("round {round}: {error}"),
        }
        drop(txn);
        database.drop_table(&table).unwrap();
    }
    println!("{made} made, {refused} refused");
    assert!(made >= 30, "those without clashes, at least: {made}");
}

#[test]
fn who_began_before_does_not_use_it_and_goes_on_using_what_is_dropped() {
    let database = Database::volatile(8);
    let table = database.create_table(&definition()).unwrap();
    let _ = put(&database, &table, 0..3000, |id| (id % 7, id));
    let workers: Vec<_> = (0..4).map(|_| database.worker().unwrap()).collect();
    let old = workers[0].begin(Isolation::Serializable);
    old.insert(&table, &row(9000, 1, 1)).unwrap();
    let elsewhere = workers[1].begin(Isolation::Serializable);
    check(&elsewhere, &table, 0, "before");
    let number = add_index(&database, &table, &by_value("value"), &never).unwrap();
    assert!(rows(&old, &table, number).is_err_and(|error| is_missing(&error)));
    assert!(old.get(&table, number, &5u64.to_be_bytes()).is_err_and(|error| is_missing(&error)));
    // What it wrote is not in the index.
    assert!(matches!(old.commit(), Err(CommitError::Altered(name)) if name == "things"));
    // Who has only read is not concerned, nor who writes now.
    elsewhere.insert(&table, &row(9001, 1, 5)).unwrap();
    let _ = elsewhere.commit().unwrap();
    let long = workers[0].begin(Isolation::Serializable);
    assert_eq!(check(&long, &table, number, "after"), 3001);
    let bytes = index_bytes(&database, &table);
    assert_eq!(bytes.1, 3);
    drop_index(&database, &table, number).unwrap();
    let _ = put(&database, &table, 4000..5000, |id| (id % 7, 1));
    let changed = workers[1].execute(Isolation::Snapshot, |txn| {
        for id in 0..1000u64 {
            let record = txn.get(&table, 0, &id.to_be_bytes())?.unwrap();
            // In place again.
            assert_eq!(txn.update(&table, record.rid, &row(id, id % 7, 12))?, record.rid);
        }
        Ok(())
    });
    let _ = changed.unwrap();
    workers[1].collect_garbage();
    assert_eq!(check(&long, &table, number, "the long reader"), 3001);
    assert!(rows(&workers[2].begin_read_only(), &table, number).is_err_and(|error| is_missing(&error)));
    assert_eq!(index_bytes(&database, &table).1, 3);
    drop(long);
    wait_for("nothing is left of the dropped index", || {
        workers[1].collect_garbage();
        !database.core().catalog.has_dropped()
    });
    let (left, count) = index_bytes(&database, &table);
    assert!(count == 2 && left < bytes.0 + (1 << 16), "{left} of {bytes:?}");
    // Its name can be used again, its number is not.
    let again = add_index(&database, &table, &by_value("value"), &never).unwrap();
    assert_eq!((again, table.index_number("value")), (number + 1, Some(number + 1)));
    assert_eq!(check(&workers[0].begin_read_only(), &table, again, "again"), 4001);
    // It goes with its table.
    database.drop_table(&table).unwrap();
    let error = add_index(&database, &table, &by_value("more"), &never).unwrap_err();
    assert!(error.to_string().contains("dropped"), "{error}");
    assert!(drop_index(&database, &table, again).is_err());
}

/// A primary ends while it builds an index; it, or another one, drops what is left of that.
#[test]
fn what_was_being_built_is_dropped_by_the_next_primary() {
    for shape in SHAPES {
        for failover in [false, true] {
            let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
            let cluster = |n: usize| NodeConfig { ..of(shape, n, directories[n].path()) };
            let primary = start(NodeConfig { safety: Safety::TwoSafe, ..cluster(0) });
            let join = Some(primary.address().to_owned());
            let standby = start(NodeConfig { join, safety: Safety::OneSafe, ..cluster(1) });
            let database = primary.database();
            let table = database.create_table(&definition()).unwrap();
            let _ = put(database, &table, 0..1000, |id| (id % 7, id / 2));
            if failover {
                primary.checkpoint(CheckpointKind::Fuzzy).unwrap();
            }
            let worker = database.worker().unwrap();
            let (number, ticket) = worker
                .execute(Isolation::Snapshot, |txn| {
                    Ok(txn.change_indexes(&table, |indexes| {
                        indexes.push(IndexDefinition { state: IndexState::Building, ..unique("values", 16) });
                        Ok(indexes.len() - 1)
                    })?)
                })
                .unwrap();
            database.wait(ticket).unwrap();
            // A value that is new to those whom the half-built index knows.
            let ticket = put(database, &table, 2000..2010, |id| (id % 7, id));
            database.wait(ticket).unwrap();
            standby.wait_visible(ticket.until, soon()).unwrap();
            if !failover {
                primary.checkpoint(CheckpointKind::Fuzzy).unwrap();
            }
            assert!(rows(&worker.begin_read_only(), &table, number).is_err_and(|error| is_missing(&error)));
            // Without the catalog, which the next primary changes at once.
            let state = |node: &Node| {
                let worker = node.database().worker().unwrap();
                let txn = worker.begin_read_only();
                rows(&txn, &txn.table("things").unwrap(), 0).unwrap()
            };
            let before = state(&primary);
            drop(worker);
            primary.log().unwrap().crash_for_test();
            assert!(primary.stop().is_err());
            drop((primary, table));
            let next = if failover {
                standby.promote(Consent::Loss).unwrap();
                standby
            } else {
                standby.stop().unwrap();
                drop(standby);
                start(NodeConfig { safety: Safety::OneSafe, ..cluster(0) })
            };
            assert_eq!(state(&next), before, "{shape:?}");
            let database = next.database();
            let table = database.table("things").unwrap();
            // Two that the index would not have had.
            let _ = put(database, &table, 3000..3002, |_| (1, 2000));
            let worker = database.worker().unwrap();
            assert!(rows(&worker.begin_read_only(), &table, number).is_err_and(|error| is_missing(&error)));
            wait_for("it is given up", || {
                worker.collect_garbage();
                !database.core().catalog.has_dropped() && index_bytes(database, &table).1 == 2
            });
            let number = add_index(database, &table, &by_value("values"), &never).unwrap();
            assert_eq!(check(&worker.begin_read_only(), &table, number, &format!("{shape:?}")), 1012);
            drop(worker);
            next.stop().unwrap();
        }
    }
}

/// Two standbys; one has heard of an index that came, and of one that went; the other
/// takes over and has not.
#[test]
fn what_a_failover_cuts_off_was_neither_added_nor_dropped() {
    for shape in SHAPES {
        for live in [true, false] {
            let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
            let cluster = |n: usize| NodeConfig { safety: Safety::Quorum(3), ..of(shape, n, directories[n].path()) };
            let old = start(cluster(0));
            let join = Some(old.address().to_owned());
            let second = start(NodeConfig { join: join.clone(), ..cluster(1) });
            let third = start(NodeConfig { join, ..cluster(2) });
            let database = old.database();
            let table = database.create_table(&definition()).unwrap();
            database.wait(put(database, &table, 0..1000, |id| (id % 7, id))).unwrap();
            let kept = add_index(database, &table, &by_value("kept"), &never).unwrap();
            let end = database.core().snapshots.current();
            for node in [&second, &third] {
                node.wait_visible(end, soon()).unwrap();
            }
            third.stop().unwrap();
            drop(third);
            let replayed = |node: &Node| match node.status().role {
                freshet_engine::node::RoleStatus::Standby { own, .. } => own.replayed,
                other => panic!("{other:?}"),
            };
            let barrier = Barrier::new(2);
            std::thread::scope(|scope| {
                let (theirs, waiting, table) = (&barrier, Arc::clone(&old), &table);
                scope.spawn(move || {
                    let worker = waiting.database().worker().unwrap();
                    let ((), ticket) = worker
                        .execute(Isolation::Snapshot, |txn| {
                            Ok(txn.change_indexes(table, |indexes| {
                                indexes[kept].state = IndexState::Dropped;
                                indexes.push(unique("lost", 16));
                                Ok(())
                            })?)
                        })
                        .unwrap();
                    let _ = put(waiting.database(), table, 5000..5100, |id| (id % 7, id));
                    theirs.wait();
                    let _ = waiting.database().wait(ticket);
                });
                barrier.wait();
                let end = database.core().snapshots.current();
                wait_for("the second has replayed it", || replayed(&second) >= end);
                check_node(&second, "things", "kept", "nobody sees it there");
                old.log().unwrap().crash_for_test();
                assert!(old.stop().is_err(), "it crashed");
            });
            drop((old, table));
            let second = if live {
                second
            } else {
                second.stop().unwrap();
                drop(second);
                start(NodeConfig { join: Some("127.0.0.1:1".into()), ..cluster(1) })
            };
            // It has forgotten where the other one is, and so does not ask for its log.
            std::fs::remove_file(directories[2].path().join("other-nodes")).unwrap();
            let nobody = Some("127.0.0.1:1".to_owned());
            let third = start(NodeConfig { join: nobody, safety: Safety::OneSafe, ..cluster(2) });
            third.promote(Consent::Loss).unwrap();
            let database = third.database();
            let table = database.table("things").unwrap();
            let _ = put(database, &table, 5000..5050, |_| (1, 1));
            let added = add_index(database, &table, &by_value("other"), &never).unwrap();
            assert_eq!(added, kept + 1);
            let end: Lsn = put(database, &table, 6000..6050, |_| (1, 1)).until;
            second.follow(third.address());
            second.wait_visible(end, soon()).unwrap();
            for node in [&second, &third] {
                assert_eq!(hash(node), hash(&third), "{shape:?}, live: {live}");
                for index in ["kept", "other"] {
                    assert_eq!(check_node(node, "things", index, &format!("{shape:?}, live: {live}, {index}")), 1100);
                }
                let table = node.database().table("things").unwrap();
                assert_eq!(table.index_number("lost"), None);
            }
            for node in [second, third] {
                node.stop().unwrap();
            }
        }
    }
}

#[test]
fn rows_are_counted_approximately() {
    let database = Database::volatile(4);
    let table = database.create_table(&definition()).unwrap();
    assert_eq!(database.approximate_rows(&table), Some(0));
    let mut count = 0u64;
    for upto in [1, 10, 100, 1000, 30_000] {
        let _ = put(&database, &table, count..upto, |id| (id % 7, id));
        count = upto;
        let found = database.approximate_rows(&table).unwrap();
        assert!(found.abs_diff(count) <= count / 4, "{found} of {count}");
    }
    let leaves = look(&database, &table, |content| content.array_bytes());
    assert!(leaves > 0);
    database.drop_table(&table).unwrap();
    assert_eq!(database.approximate_rows(&table), Some(0));
}

/// Those of indexes that were added later are built in a second pass.
#[test]
fn a_restart_reports_the_entries_of_all_indexes() {
    let (shape, directory) = (SHAPES[0], tempfile::tempdir().unwrap());
    let node = start(of(shape, 0, directory.path()));
    let database = node.database();
    let table = database.create_table(&definition()).unwrap().clone();
    database.wait(put(database, &table, 0..500, |id| (id % 7, id))).unwrap();
    add_index(database, &table, &by_value("value"), &never).unwrap();
    node.stop().unwrap();
    drop((table, node));
    let node = start(of(shape, 0, directory.path()));
    let [_, _, (_, entries)] = node.restart_phases();
    assert_eq!(entries, 2 * 500 + 500 + 1, "two indexes, a later one, and the catalog has the table");
    node.stop().unwrap();
}
