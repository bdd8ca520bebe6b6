//! Tables that are dropped: gone on every node and after every restart, with all that they held;
//! for those who began before, still there.

mod common;

use std::{
    path::Path,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{SHAPES, Shape, all_are_named, churn, config, definition, hash, next_rid, row, soon, start, wait_for};
use freshet_engine::{
    CheckpointKind, CommitError, Consent, CreateTableError, Database, DropTableError, Isolation, Lsn, Node, NodeConfig,
    ProcedureError, ReadError, Safety, StateHash, Table, TableDefinition, Ticket, WriteError,
};

fn named(name: &str) -> TableDefinition {
    TableDefinition { name: name.into(), ..definition() }
}

fn of(shape: Shape, n: usize, directory: &Path) -> NodeConfig {
    let mut config = shape.of_node(n, config(Some(directory)));
    config.checkpoint.interval_s = 0;
    config.checkpoint.keep_log_bytes = 0;
    config.log.segment_bytes = 1 << 16;
    config
}

fn put(database: &Database, table: &Table, ids: std::ops::Range<u64>) -> Ticket {
    let worker = database.worker().unwrap();
    let ((), ticket) = worker
        .execute(Isolation::Snapshot, |txn| {
            for id in ids.clone() {
                txn.insert(table, &row(id, id % 7, id))?;
            }
            Ok(())
        })
        .unwrap();
    ticket
}

/// Whether its content was given up.
fn is_empty(database: &Database, table: &Table) -> bool {
    let participant = database.core().participants.join().unwrap();
    table.content(&participant.pin_without_snapshot()).is_none()
}

fn check_handle(database: &Database, table: &Table) {
    let worker = database.worker().unwrap();
    let txn = worker.begin(Isolation::Serializable);
    let dropped = ReadError::Dropped(table.name().into());
    assert_eq!(txn.get(table, 0, &5u64.to_be_bytes()).unwrap_err(), dropped);
    let everything = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let scanned = txn.scan(table, 1, everything, freshet_engine::Direction::Forward, |_, _| unreachable!());
    assert_eq!(scanned.unwrap_err(), dropped);
    assert_eq!(txn.insert(table, &row(5, 5, 5)).unwrap_err(), WriteError::Read(dropped.clone()));
    assert_eq!(txn.drop_table(table).unwrap_err(), WriteError::Read(dropped.clone()));
    drop(txn);
    let again = database.drop_table(table).unwrap_err();
    assert!(again.to_string().contains("was dropped"), "{again}");
    assert!(
        matches!(again, DropTableError::Procedure(ProcedureError::Write(WriteError::Read(error))) if error == dropped)
    );
}

#[test]
fn they_are_gone_after_restarts_and_their_names_are_free() {
    for shape in SHAPES {
        let directory = tempfile::tempdir().unwrap();
        let mut fids = Vec::new();
        for round in 0..6u64 {
            let node = start(of(shape, 1, directory.path()));
            let database = node.database();
            assert_eq!(database.table("passing").is_some(), round > 0, "{shape:?}, round {round}");
            if round == 0 {
                churn(database, &database.create_table(&named("stays")).unwrap(), 0, 200);
            } else {
                let old = database.table("passing").unwrap();
                assert_eq!(fids.last(), Some(&old.fid()));
                let count = common::look(database, &old, |content| content.array_bytes());
                assert!(count > 0);
                database.drop_table(&old).unwrap();
                assert!(database.table("passing").is_none());
                // The sweep may be reading it.
                common::wait_for("nobody reads it", || is_empty(database, &old));
                check_handle(database, &old);
                // The collector may be looking at it.
                common::wait_for("only this test has it", || Arc::strong_count(&old) == 1);
            }
            if round % 3 == 1 {
                node.checkpoint(CheckpointKind::Fuzzy).unwrap();
            }
            let new = database.create_table(&named("passing")).unwrap();
            assert!(fids.iter().all(|fid| *fid < new.fid()), "{shape:?}: {fids:?}, {new:?}");
            let exists = database.create_table(&named("passing")).unwrap_err();
            assert!(matches!(exists, CreateTableError::Catalog(_)), "{exists}");
            fids.push(new.fid());
            let _ = put(database, &new, round * 1000..round * 1000 + 500);
            if round % 3 == 2 {
                node.checkpoint(CheckpointKind::Fuzzy).unwrap();
            }
            churn(database, &database.table("stays").unwrap(), 1000 * (round + 1), 1000 * (round + 1) + 100);
            let before = hash(&node);
            node.stop().unwrap();
            drop(node);
            let node = start(of(shape, 1, directory.path()));
            assert_eq!(hash(&node), before, "{shape:?}, round {round}");
            // Dropped last, and nothing made since: its id is not used again, wherever the restart
            // comes from.
            let database = node.database();
            let last = database.create_table(&named("last")).unwrap();
            assert!(fids.iter().all(|fid| *fid < last.fid()));
            fids.insert(fids.len() - 1, last.fid());
            database.drop_table(&last).unwrap();
            if round % 2 == 0 {
                node.checkpoint(CheckpointKind::Fuzzy).unwrap();
            }
            node.stop().unwrap();
        }
    }
}

#[test]
fn who_began_before_goes_on_reading() {
    let node = start(config(None));
    let database = node.database();
    let table = database.create_table(&named("passing")).unwrap();
    database.wait(put(database, &table, 0..3000)).unwrap();
    let workers = [database.worker().unwrap(), database.worker().unwrap()];
    let old = workers[0].begin(Isolation::Serializable);
    let seen = StateHash::of(&old).unwrap();
    database.drop_table(&table).unwrap();
    let new = database.create_table(&named("passing")).unwrap();
    database.wait(put(database, &new, 0..10)).unwrap();
    for _ in 0..100 {
        database.wait(put(database, &database.table("passing").unwrap(), 0..0)).unwrap();
        workers[1].collect_garbage();
    }
    assert!(!is_empty(database, &table));
    assert_eq!(old.table("passing").unwrap().fid(), table.fid());
    assert_eq!(StateHash::of(&old).unwrap(), seen);
    assert!(old.get(&table, 0, &77u64.to_be_bytes()).unwrap().is_some());
    // It sees the table, but nothing that it writes there could ever be seen.
    assert!(matches!(old.insert(&table, &row(9999, 1, 1)), Err(WriteError::Read(ReadError::Dropped(_)))));
    let young = workers[1].begin_read_only();
    assert_eq!(young.table("passing").unwrap().fid(), new.fid());
    assert!(matches!(young.get(&table, 0, &77u64.to_be_bytes()), Err(ReadError::Dropped(_))));
    drop(young);
    let record = old.get(&table, 0, &78u64.to_be_bytes()).unwrap().unwrap();
    assert_eq!(record.row, row(78, 78 % 7, 78));
    drop(old);
    // The node's own collector may be about to.
    wait_for("a table that nobody sees is empty", || {
        workers[1].collect_garbage();
        is_empty(database, &table)
    });
    // A newer snapshot sees no more of it.
    let reading = workers[0].begin(Isolation::Snapshot);
    assert!(reading.get(&new, 0, &5u64.to_be_bytes()).unwrap().is_some());
    database.drop_table(&new).unwrap();
    assert!(reading.get(&new, 0, &5u64.to_be_bytes()).unwrap().is_some());
    reading.refresh();
    assert!(matches!(reading.get(&new, 0, &5u64.to_be_bytes()), Err(ReadError::Dropped(_))));
    drop(reading);
    drop(workers);
    node.stop().unwrap();
}

#[test]
fn what_was_written_to_it_cannot_be_committed_later() {
    for volatile in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let node = (!volatile).then(|| start(of(Shape::OneStream, 1, directory.path())));
        let alone = volatile.then(|| Database::volatile(8));
        let database = node.as_ref().map_or_else(|| alone.as_ref().unwrap(), |node| node.database());
        let other = database.create_table(&named("other")).unwrap();
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            for long in [false, true] {
                let table = database.create_table(&named("passing")).unwrap();
                database.wait(put(database, &table, 0..100)).unwrap();
                let workers: Vec<_> = (0..3).map(|_| database.worker().unwrap()).collect();
                let writes = workers[0].begin(isolation);
                let old = writes.get(&table, 0, &3u64.to_be_bytes()).unwrap().unwrap();
                writes.update(&table, old.rid, &row(3, 3, 333)).unwrap();
                for id in 0..if long { 9000 } else { 3 } {
                    writes.insert(&table, &row(1000 + id, 1, 1)).unwrap();
                }
                let takes_back = workers[1].begin(isolation);
                let savepoint = takes_back.savepoint();
                takes_back.insert(&table, &row(500_000, 1, 1)).unwrap();
                let reads = workers[2].begin(isolation);
                assert!(reads.get(&table, 0, &5u64.to_be_bytes()).unwrap().is_some());
                reads.insert(&other, &row(next_rid(database, &other), 1, 1)).unwrap();
                database.drop_table(&table).unwrap();
                let error = writes.commit().unwrap_err();
                assert_eq!(error, CommitError::Dropped("passing".into()), "{isolation}, long: {long}");
                // What was taken back does not count.
                takes_back.roll_back_to(&savepoint);
                takes_back.insert(&other, &row(next_rid(database, &other), 1, 1)).unwrap();
                database.wait(takes_back.commit().unwrap()).unwrap();
                match reads.commit() {
                    Ok(ticket) => {
                        assert_eq!(isolation, Isolation::Snapshot);
                        database.wait(ticket).unwrap();
                    }
                    Err(error) => {
                        assert_eq!(
                            (error, isolation),
                            (CommitError::Dropped("passing".into()), Isolation::Serializable)
                        );
                    }
                }
                drop(workers);
                let worker = database.worker().unwrap();
                // Who sums up the state may hold a snapshot for a moment.
                wait_for("the table's content to go", || {
                    worker.collect_garbage();
                    is_empty(database, &table)
                });
            }
        }
        // A transaction that drops a table that it has written to.
        let table = database.create_table(&named("passing")).unwrap();
        let worker = database.worker().unwrap();
        let txn = worker.begin(Isolation::Serializable);
        txn.insert(&table, &row(1, 1, 1)).unwrap();
        txn.drop_table(&table).unwrap();
        let definition = freshet_storage::Catalog::row_of(&named("passing")).unwrap();
        txn.insert(database.core().catalog.table(), &definition).unwrap();
        database.wait(txn.commit().unwrap()).unwrap();
        assert_ne!(database.table("passing").unwrap().fid(), table.fid());
        // One that is rolled back has dropped nothing.
        let table = database.table("passing").unwrap();
        let txn = worker.begin(Isolation::Snapshot);
        txn.drop_table(&table).unwrap();
        let second = database.worker().unwrap();
        let too_late = second.begin(Isolation::Snapshot);
        assert_eq!(too_late.drop_table(&table).unwrap_err(), WriteError::Conflict);
        drop(too_late);
        txn.roll_back();
        database.wait(put(database, &table, 0..10)).unwrap();
        drop((worker, second));
        if let Some(node) = &node {
            node.stop().unwrap();
        }
    }
}

/// Tables come and go while others read and write them, checkpoints are written, and a standby
/// follows.
#[test]
fn under_load_and_under_checkpoints() {
    for shape in SHAPES {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let primary = start(NodeConfig { safety: Safety::TwoSafe, ..of(shape, 0, directories[0].path()) });
        let join = Some(primary.address().to_owned());
        let standby = start(NodeConfig { join: join.clone(), ..of(shape, 1, directories[1].path()) });
        let stays = primary.database().create_table(&named("stays")).unwrap();
        let done = AtomicBool::new(false);
        let (mut made, refused) = (0, std::sync::atomic::AtomicU64::new(0));
        std::thread::scope(|scope| {
            for worker in 0..3u64 {
                let (primary, stays, done, refused) = (&primary, &stays, &done, &refused);
                scope.spawn(move || {
                    let database = primary.database();
                    let session = database.worker().unwrap();
                    let mut last = None;
                    for turn in 0..u64::MAX {
                        if done.load(Ordering::SeqCst) {
                            break;
                        }
                        let id = turn * 3 + worker;
                        let name = ["even", "odd"][(turn / 7 % 2) as usize];
                        let outcome = session.execute(Isolation::Serializable, |txn| {
                            let Some(table) = txn.table(name) else { return Ok(()) };
                            txn.insert(stays, &row(id, id % 5, id))?;
                            // Not more than can be looked through again and again.
                            if let Some(old) = txn.get(stays, 0, &(id.saturating_sub(3000)).to_be_bytes())? {
                                txn.delete(stays, old.rid)?;
                            }
                            txn.insert(&table, &row(id, id % 5, id))?;
                            if let Some(old) = txn.get(&table, 0, &(id.saturating_sub(9)).to_be_bytes())? {
                                txn.delete(&table, old.rid)?;
                            }
                            Ok(())
                        });
                        match outcome {
                            Ok(((), ticket)) => last = Some(ticket),
                            Err(ProcedureError::Commit(CommitError::Dropped(_))) => {
                                refused.fetch_add(1, Ordering::SeqCst);
                            }
                            Err(ProcedureError::Write(WriteError::Read(ReadError::Dropped(_)))) => {}
                            Err(ProcedureError::Read(ReadError::Dropped(_))) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    database.wait(last.unwrap()).unwrap();
                });
            }
            for node in [&primary, &standby] {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::SeqCst) {
                        node.checkpoint(CheckpointKind::Fuzzy).unwrap();
                        let worker = node.database().worker().unwrap();
                        let txn = worker.begin_read_only();
                        let seen = StateHash::of(&txn).unwrap();
                        std::thread::sleep(Duration::from_millis(20));
                        assert_eq!(StateHash::of(&txn).unwrap(), seen, "{shape:?}");
                    }
                });
            }
            let database = primary.database();
            for round in 0..25 {
                let name = ["even", "odd"][round % 2];
                if let Some(table) = database.table(name) {
                    database.drop_table(&table).unwrap();
                }
                let table = database.create_table(&named(name)).unwrap();
                made += 1;
                assert!(table.dropped_at().is_none());
                std::thread::sleep(Duration::from_millis(10));
            }
            done.store(true, Ordering::SeqCst);
        });
        println!("{shape:?}: {made} made, {refused:?} commits refused");
        let end = primary.database().core().snapshots.current();
        standby.wait_visible(end, soon()).unwrap();
        let state = hash(&primary);
        assert_eq!(hash(&standby), state, "{shape:?}");
        for node in [&primary, &standby] {
            let database = node.database();
            wait_for("dropped tables are given up", || {
                database.worker().unwrap().collect_garbage();
                !database.core().catalog.has_dropped()
            });
        }
        primary.stop().unwrap();
        standby.stop().unwrap();
        drop((primary, standby));
        let primary = start(NodeConfig { ..of(shape, 0, directories[0].path()) });
        assert_eq!(hash(&primary), state, "{shape:?}: the primary from its checkpoint and log");
        // Alone it cannot know that its primary is not going on.
        let alone = NodeConfig { join: None, force_primary: true, ..of(shape, 1, directories[1].path()) };
        let standby = start(alone);
        assert_eq!(hash(&standby), state, "{shape:?}: the standby from its own");
        primary.stop().unwrap();
        standby.stop().unwrap();
    }
}

/// A snapshot has a table from its beginning to its end, or never: also one that is taken when a
/// change of tables has its LSN, and nothing else yet.
#[test]
fn a_table_neither_comes_nor_goes_within_a_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(of(SHAPES[0], 0, directory.path()));
    let (database, done) = (node.database(), AtomicBool::new(false));
    let seen: [u64; 2] = std::thread::scope(|scope| {
        let read = || {
            let worker = database.worker().unwrap();
            let mut seen = [0; 2];
            while !done.load(Ordering::SeqCst) {
                let txn = worker.begin_read_only();
                let first = txn.table("passing");
                seen[usize::from(first.is_some())] += 1;
                let fid = first.as_ref().map(|table| table.fid());
                for _ in 0..20 {
                    if let Some(table) = &first {
                        assert_eq!(txn.get(table, 0, &5u64.to_be_bytes()).map(|row| row.is_some()), Ok(false));
                    }
                    assert_eq!(txn.table("passing").map(|table| table.fid()), fid, "at {}", txn.snapshot());
                    std::thread::yield_now();
                }
            }
            seen
        };
        let readers = [(); 3].map(|()| scope.spawn(read));
        let round = |_| {
            let table = database.create_table(&named("passing")).unwrap();
            database.drop_table(&table).unwrap();
        };
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (0..150).for_each(round)));
        done.store(true, Ordering::SeqCst);
        changed.unwrap();
        readers
            .map(|reader| reader.join().unwrap())
            .into_iter()
            .fold([0; 2], |all, it| [all[0] + it[0], all[1] + it[1]])
    });
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    node.stop().unwrap();
}

fn reading(node: &Node, name: &str) -> u64 {
    let worker = node.database().worker().unwrap();
    let txn = worker.begin_read_only();
    let Some(table) = txn.table(name) else { return 0 };
    let mut count = 0;
    let everything = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    txn.scan(&table, 0, everything, freshet_engine::Direction::Forward, |_, _| {
        count += 1;
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    count
}

#[test]
fn a_standby_follows_and_takes_over() {
    for shape in SHAPES {
        let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let cluster = |n: usize| NodeConfig { safety: Safety::Quorum(2), ..of(shape, n, directories[n].path()) };
        let old = start(cluster(0));
        let join = Some(old.address().to_owned());
        let second = start(NodeConfig { join: join.clone(), ..cluster(1) });
        let third = start(NodeConfig { join, ..cluster(2) });
        let table = old.database().create_table(&named("passing")).unwrap();
        churn(old.database(), &old.database().create_table(&named("stays")).unwrap(), 0, 100);
        let end = put(old.database(), &table, 0..2000).until;
        second.wait_visible(end, soon()).unwrap();
        // A reader on a standby from before; half of its table has been loaded when the table goes.
        let theirs = second.database().table("passing").unwrap();
        let worker = second.database().worker().unwrap();
        let long = worker.begin_read_only();
        assert!(long.get(&theirs, 0, &7u64.to_be_bytes()).unwrap().is_some());
        let before = hash(&old);
        old.database().drop_table(&table).unwrap();
        let new = old.database().create_table(&named("passing")).unwrap();
        let end = put(old.database(), &new, 0..50).until;
        for node in [&second, &third] {
            node.wait_visible(end, soon()).unwrap();
            assert_eq!(hash(node), hash(&old), "{shape:?}");
            assert_eq!(reading(node, "passing"), 50);
        }
        let seen = StateHash::of(&long).unwrap();
        assert_eq!((seen.hash, seen.records), before, "{shape:?}: the long reader");
        let gone = third.database().table("passing").unwrap();
        assert_eq!(gone.fid(), new.fid());
        assert!(!is_empty(second.database(), &theirs));
        all_are_named(&old);
        old.stop().unwrap();
        drop((old, table, new));
        second.promote(Consent::Nothing).unwrap();
        let seen = StateHash::of(&long).unwrap();
        assert_eq!((seen.hash, seen.records), before, "{shape:?}: the long reader after the failover");
        assert_eq!(reading(&second, "passing"), 50);
        drop(long);
        drop(worker);
        wait_for("its content is given up", || is_empty(second.database(), &theirs));
        check_handle(second.database(), &theirs);
        let database = second.database();
        database.drop_table(&database.table("passing").unwrap()).unwrap();
        let newest = database.create_table(&named("passing")).unwrap();
        let end = put(database, &newest, 0..7).until;
        let back = start(NodeConfig { join: Some(second.address().into()), ..cluster(0) });
        for node in [&third, &back] {
            node.wait_visible(end, soon()).unwrap();
            assert_eq!(hash(node), hash(&second), "{shape:?}");
            assert_eq!(reading(node, "passing"), 7);
        }
        for node in [back, third, second] {
            node.stop().unwrap();
        }
    }
}

/// Two standbys; one has heard of a table that was dropped, and of one that was made; the
/// other takes over and has not.
#[test]
fn what_a_failover_cuts_off_was_neither_dropped_nor_made() {
    for shape in SHAPES {
        for live in [true, false] {
            let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
            let cluster = |n: usize| NodeConfig { safety: Safety::Quorum(3), ..of(shape, n, directories[n].path()) };
            let old = start(cluster(0));
            let join = Some(old.address().to_owned());
            let second = start(NodeConfig { join: join.clone(), ..cluster(1) });
            let third = start(NodeConfig { join, ..cluster(2) });
            let database = old.database();
            let table = database.create_table(&named("dropped")).unwrap();
            database.wait(put(database, &table, 0..1000)).unwrap();
            let end = database.core().snapshots.current();
            for node in [&second, &third] {
                node.wait_visible(end, soon()).unwrap();
            }
            let before = hash(&old);
            // From now on only the second hears.
            third.stop().unwrap();
            drop(third);
            let replayed = |node: &Node| match node.status().role {
                freshet_engine::node::RoleStatus::Standby { own, .. } => own.replayed,
                other => panic!("{other:?}"),
            };
            let barrier = Arc::new(Barrier::new(2));
            std::thread::scope(|scope| {
                let (theirs, waiting) = (Arc::clone(&barrier), Arc::clone(&old));
                let table = &table;
                scope.spawn(move || {
                    let worker = waiting.database().worker().unwrap();
                    let row = freshet_storage::Catalog::row_of(&named("made")).unwrap();
                    let catalog = waiting.database().core().catalog.table();
                    let ((), ticket) = worker
                        .execute(Isolation::Snapshot, |txn| {
                            txn.drop_table(table)?;
                            txn.insert(catalog, &row)?;
                            Ok(())
                        })
                        .unwrap();
                    let made = waiting.database().table("made").unwrap();
                    let _ = put(waiting.database(), &made, 0..10);
                    theirs.wait();
                    let _ = waiting.database().wait(ticket);
                });
                barrier.wait();
                let end = database.core().snapshots.current();
                wait_for("the second has replayed it", || replayed(&second) >= end);
                assert_eq!(hash(&second), before, "{shape:?}: nobody sees it there");
                assert!(second.database().table("made").is_none() && second.database().table("dropped").is_some());
                old.log().unwrap().crash_for_test();
                assert!(old.stop().is_err(), "it crashed");
            });
            drop((old, table));
            let second = if live {
                second
            } else {
                second.stop().unwrap();
                drop(second);
                // Not yet: its log is to be found as it was.
                start(NodeConfig { join: Some("127.0.0.1:1".into()), ..cluster(1) })
            };
            // It has forgotten where the other one is, and so does not ask for its log.
            std::fs::remove_file(directories[2].path().join("other-nodes")).unwrap();
            let nobody = Some("127.0.0.1:1".to_owned());
            let third = start(NodeConfig { join: nobody, safety: Safety::OneSafe, ..cluster(2) });
            third.promote(Consent::Loss).unwrap();
            let database = third.database();
            // Other tables with the ids of those that never were.
            let other = database.create_table(&named("else")).unwrap();
            let end = put(database, &other, 0..20).until;
            second.follow(third.address());
            second.wait_visible(end, soon()).unwrap();
            assert_eq!(hash(&second), hash(&third), "{shape:?}, live: {live}");
            assert_eq!(
                [reading(&second, "dropped"), reading(&second, "made"), reading(&second, "else")],
                [1000, 0, 20]
            );
            let made = database.create_table(&named("made")).unwrap();
            let end: Lsn = put(database, &made, 0..30).until;
            second.wait_visible(end, soon()).unwrap();
            assert_eq!(hash(&second), hash(&third), "{shape:?}, live: {live}");
            for node in [second, third] {
                node.stop().unwrap();
            }
        }
    }
}
