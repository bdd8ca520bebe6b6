//! Transactions that are many times longer than the log's buffer: all of one is there, or nothing,
//! on every node and after every kind of end.

mod common;

use std::{
    ops::{Bound, ControlFlow},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use common::{SHAPES, Shape, all_are_named, churn, config, definition, hash, row, soon, start};
use freshet_engine::{
    CheckpointKind, CommitError, Consent, Database, Direction, Isolation, Lsn, Node, NodeConfig, ProcedureError, Role,
    Safety, Table, Ticket, Transaction, WriteError, node::RoleStatus,
};

/// A log buffer of 256 KiB.
fn small(mut config: NodeConfig) -> NodeConfig {
    config.log.buffer_bytes = 256 << 10;
    config.log.segment_bytes = 1 << 20;
    config.log.batch_bytes = 64 << 10;
    config.checkpoint.interval_s = 0;
    config
}

fn of(shape: Shape, n: usize, directory: &Path) -> NodeConfig {
    small(shape.of_node(n, config(Some(directory))))
}

/// Records of long transactions have ids from here on.
const LONG: u64 = 1 << 40;

/// A row of about 200 bytes.
fn wide(id: u64, group: u64, value: u64) -> Vec<u8> {
    let mut row = row(id, group, value);
    row.resize(200, value as u8);
    row
}

fn insert_many(transaction: &Transaction<'_>, table: &Table, ids: std::ops::Range<u64>, group: u64) {
    for id in ids {
        transaction.insert(table, &wide(LONG + id, group, id)).unwrap();
    }
}

/// Inserts this many records in one transaction.
fn long(database: &Database, table: &Table, ids: std::ops::Range<u64>, group: u64) -> Ticket {
    let worker = database.worker().unwrap();
    let transaction = worker.begin(Isolation::Serializable);
    insert_many(&transaction, table, ids, group);
    transaction.commit().unwrap()
}

/// How many records a group has, as one snapshot sees it.
fn count(node: &Node, group: u64) -> u64 {
    let worker = node.database().worker().unwrap();
    let transaction = worker.begin_read_only();
    let Some(table) = node.database().table("things") else { return 0 };
    let key = group.to_be_bytes();
    let range = (Bound::Included(&key[..]), Bound::Included(&key[..]));
    let mut count = 0;
    transaction
        .scan(&table, 1, range, Direction::Forward, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    count
}

fn received(standby: &Node) -> Lsn {
    match standby.status().role {
        RoleStatus::Standby { own, .. } => own.received,
        other => panic!("{other:?}"),
    }
}

#[test]
fn they_survive_restarts() {
    for shape in SHAPES {
        let directory = tempfile::tempdir().unwrap();
        let node = start(of(shape, 1, directory.path()));
        let table = node.database().create_table(&definition()).unwrap().clone();
        churn(node.database(), &table, 0, 300);
        let ticket = long(node.database(), &table, 0..6000, 5);
        assert!(ticket.until.since(ticket.lsn.unwrap()) > 1_300_000);
        node.database().wait(ticket).unwrap();
        churn(node.database(), &table, 1000, 1100);
        let mut before = hash(&node);
        node.stop().unwrap();
        drop((node, table));
        for round in 0..3u64 {
            let node = start(of(shape, 1, directory.path()));
            assert_eq!(hash(&node), before, "{shape:?}, round {round}");
            assert!(count(&node, 5) >= 4000);
            let table = node.database().table("things").unwrap().clone();
            // Changes all that an earlier one has inserted, changes some of it again, and takes
            // some of it back.
            let worker = node.database().worker().unwrap();
            let transaction = worker.begin(Isolation::Serializable);
            for id in 0..6000 {
                let old = transaction.get(&table, 0, &(LONG + id).to_be_bytes()).unwrap().unwrap();
                match id % 3 {
                    0 => drop(transaction.update(&table, old.rid, &wide(LONG + id, 5, id + round)).unwrap()),
                    1 => drop(transaction.update(&table, old.rid, &wide(LONG + id, round, id)).unwrap()),
                    _ => {
                        transaction.delete(&table, old.rid).unwrap();
                        transaction.insert(&table, &wide(LONG + id, 5, id)).unwrap();
                    }
                }
            }
            let savepoint = transaction.savepoint();
            insert_many(&transaction, &table, 20_000..23_000, 6);
            transaction.roll_back_to(&savepoint);
            for id in (0..6000).step_by(7) {
                let own = transaction.get(&table, 0, &(LONG + id).to_be_bytes()).unwrap().unwrap();
                transaction.update(&table, own.rid, &wide(LONG + id, 5, id * round)).unwrap();
            }
            node.database().wait(transaction.commit().unwrap()).unwrap();
            drop(worker);
            if round % 2 == 0 {
                node.checkpoint(CheckpointKind::Fuzzy).unwrap();
            }
            before = hash(&node);
            node.stop().unwrap();
        }
    }
}

#[test]
fn a_checkpoint_meanwhile_has_all_of_one_or_nothing() {
    for shape in SHAPES {
        let directory = tempfile::tempdir().unwrap();
        let node = start(of(shape, 1, directory.path()));
        let table = node.database().create_table(&definition()).unwrap().clone();
        churn(node.database(), &table, 0, 300);
        for round in 0..3u64 {
            let writing = std::thread::scope(|scope| {
                let writing =
                    scope.spawn(|| long(node.database(), &table, round * 10_000..round * 10_000 + 8000, 5 + round));
                while node.log().unwrap().filled() == node.log().unwrap().reserved() && !writing.is_finished() {
                    std::thread::yield_now();
                }
                node.checkpoint(CheckpointKind::Fuzzy).unwrap();
                writing.join().unwrap()
            });
            node.database().wait(writing).unwrap();
        }
        let before = hash(&node);
        node.stop().unwrap();
        drop((node, table));
        let node = start(of(shape, 1, directory.path()));
        assert_eq!(hash(&node), before, "{shape:?}");
        assert!(node.status().checkpoint.unwrap().start.is_some());
        node.stop().unwrap();
    }
}

/// Others commit and read in the meantime, here and on a standby; nobody fails, and nobody sees a
/// part of one.
#[test]
fn others_go_on_and_see_all_of_one_or_nothing() {
    for shape in SHAPES.into_iter().map(Some).chain([None]) {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let node = |n: usize| match shape {
            Some(shape) => of(shape, n, directories[n].path()),
            // Nothing is kept on disk: the buffer is all that a standby can be fed from.
            None => small(config(None)),
        };
        let primary = start(NodeConfig { safety: Safety::Quorum(2), ..node(0) });
        let standby = start(NodeConfig { join: Some(primary.address().into()), ..node(1) });
        let table = primary.database().create_table(&definition()).unwrap().clone();
        const ROUNDS: u64 = 2;
        const RECORDS: u64 = 3000;
        let done = AtomicBool::new(false);
        let end = std::thread::scope(|scope| {
            for worker in 0..2u64 {
                let (primary, table, done) = (&primary, &table, &done);
                scope.spawn(move || {
                    let mut id = worker << 30;
                    while !done.load(Ordering::SeqCst) {
                        // Reads, and waits for what it has written.
                        churn(primary.database(), table, id, id + 20);
                        id += 100;
                    }
                });
            }
            for node in [&primary, &standby] {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::SeqCst) {
                        for round in 0..ROUNDS {
                            let seen = count(node, 1 << 50 | round);
                            assert!(seen == 0 || seen == RECORDS, "{shape:?}: {seen} of {RECORDS}");
                        }
                    }
                });
            }
            let mut last = None;
            for round in 0..ROUNDS {
                let ids = round * RECORDS..(round + 1) * RECORDS;
                let ticket = long(primary.database(), &table, ids, 1 << 50 | round);
                // It is seen here at once, and acknowledged when all of it is durable there.
                assert_eq!(count(&primary, 1 << 50 | round), RECORDS);
                primary.database().wait(ticket).unwrap();
                assert!(received(&standby) >= ticket.until, "{shape:?}");
                last = Some(ticket);
            }
            done.store(true, Ordering::SeqCst);
            last.unwrap().until
        });
        let end = end.max(primary.database().core().snapshots.current());
        standby.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(&standby), hash(&primary), "{shape:?}");
        for round in 0..ROUNDS {
            assert_eq!(count(&standby, 1 << 50 | round), RECORDS);
        }
        primary.stop().unwrap();
        standby.stop().unwrap();
    }
}

/// Begins a long transaction and waits until a part of it has come to `standby`; then `interrupt`
/// does what it does. Returns where it would have ended.
fn interrupted(primary: &Arc<Node>, standby: &Node, table: &Table, interrupt: impl FnOnce()) -> Lsn {
    let until = soon().unwrap();
    std::thread::scope(|scope| {
        let begin = primary.log().unwrap().reserved();
        // Longer than the log buffer: it cannot all be on its way.
        let writing = scope.spawn(|| long(primary.database(), table, 0..100_000, 1 << 50));
        while received(standby) < begin.plus(400_000) {
            assert!(Instant::now() < until, "nothing arrives");
            std::thread::yield_now();
        }
        interrupt();
        writing.join().unwrap().until
    })
}

/// The primary dies while it writes one; a standby that has a part of it takes over.
#[test]
fn a_failover_takes_no_part_of_one() {
    for shape in SHAPES {
        // On a busy machine the crash may come when all of it has arrived.
        assert!((0..5).any(|_| failover_takes_no_part_of_one(shape)), "{shape:?}: the crash is always too late");
    }
}

/// Says `false` when the crash came too late: all of the transaction had arrived.
fn failover_takes_no_part_of_one(shape: Shape) -> bool {
    let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let cluster = |n: usize| NodeConfig { safety: Safety::Quorum(2), ..of(shape, n, directories[n].path()) };
    let old = start(cluster(0));
    let join = Some(old.address().to_owned());
    let second = start(NodeConfig { join: join.clone(), ..cluster(1) });
    let third = start(NodeConfig { join, ..cluster(2) });
    let table = old.database().create_table(&definition()).unwrap().clone();
    let end = churn(old.database(), &table, 0, 500);
    for node in [&second, &third] {
        node.wait_visible(end, soon()).unwrap();
    }
    all_are_named(&old);
    let before = hash(&old);
    let lost = interrupted(&old, &second, &table, || old.log().unwrap().crash_for_test());
    drop(table);
    drop(old);
    if received(&second) >= lost {
        second.stop().unwrap();
        third.stop().unwrap();
        return false;
    }
    let promotion = second.promote(Consent::Nothing).unwrap();
    assert!(promotion.at >= end && promotion.at < lost);
    assert_eq!((second.role(), hash(&second)), (Role::Primary, before), "{shape:?}");
    let table = second.database().table("things").unwrap().clone();
    // The same once more, and this time it comes to its end.
    let ticket = long(second.database(), &table, 0..9000, 1 << 50);
    second.database().wait(ticket).unwrap();
    let end = churn(second.database(), &table, 10_000, 10_200);
    let back = start(NodeConfig { join: Some(second.address().into()), ..cluster(0) });
    for node in [&third, &back] {
        node.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(node), hash(&second), "{shape:?}");
        assert_eq!(count(node, 1 << 50), 9000);
    }
    for node in [back, third, second] {
        node.stop().unwrap();
    }
    true
}

/// The primary dies while it writes one, and comes back: its log ends before that, and so do those
/// of its standbys.
#[test]
fn a_restart_takes_no_part_of_one() {
    for shape in SHAPES {
        // On a busy machine the crash may come when all of it is there.
        assert!((0..5).any(|_| restarts_take_no_part_of_one(shape)), "{shape:?}: the crash is always too late");
    }
}

/// Says `false` when a crash came too late: all of the transaction was there, and is there after
/// the restart.
fn restarts_take_no_part_of_one(shape: Shape) -> bool {
    let directories: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let cluster = |n: usize| NodeConfig { safety: Safety::TwoSafe, ..of(shape, n, directories[n].path()) };
    let mut primary = start(cluster(0));
    let address = primary.address().to_owned();
    let standby = start(NodeConfig { join: Some(address.clone()), ..cluster(1) });
    let table = primary.database().create_table(&definition()).unwrap().clone();
    let end = churn(primary.database(), &table, 0, 500);
    standby.wait_visible(end, soon()).unwrap();
    drop(table);
    let mut in_time = true;
    for round in 1..4u64 {
        let before = hash(&primary);
        let table = primary.database().table("things").unwrap().clone();
        interrupted(&primary, &standby, &table, || primary.log().unwrap().crash_for_test());
        drop((primary, table));
        primary = start(NodeConfig { listen: address.parse().unwrap(), ..cluster(0) });
        if count(&primary, 1 << 50) == 100_000 {
            in_time = false;
            break;
        }
        assert_eq!(hash(&primary), before, "{shape:?}");
        let table = primary.database().table("things").unwrap().clone();
        let end = churn(primary.database(), &table, round * 1000, round * 1000 + 50);
        standby
            .wait_visible(end, soon())
            .unwrap_or_else(|error| panic!("{shape:?}: {error}: {:#?} {:#?}", primary.status(), standby.status()));
        assert_eq!(hash(&standby), hash(&primary), "{shape:?}");
        assert_eq!(count(&standby, 1 << 50), 0);
    }
    primary.stop().unwrap();
    standby.stop().unwrap();
    in_time
}

/// A standby ends while one arrives, and begins again: what it has of it counts for nothing, and
/// all of it comes.
#[test]
fn a_standby_that_restarts_gets_all_of_one() {
    for shape in SHAPES {
        let directories: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
        let cluster = |n: usize| NodeConfig { ..of(shape, n, directories[n].path()) };
        let primary = start(cluster(0));
        let join = Some(primary.address().to_owned());
        let standby = start(NodeConfig { join: join.clone(), ..cluster(1) });
        let table = primary.database().create_table(&definition()).unwrap().clone();
        let end = churn(primary.database(), &table, 0, 500);
        standby.wait_visible(end, soon()).unwrap();
        let whole = interrupted(&primary, &standby, &table, || {
            standby.stop().unwrap();
        });
        drop(standby);
        let again = start(NodeConfig { join, ..cluster(1) });
        again.wait_visible(whole, soon()).unwrap();
        assert_eq!(hash(&again), hash(&primary), "{shape:?}");
        assert_eq!(count(&again, 1 << 50), 100_000);
        primary.stop().unwrap();
        again.stop().unwrap();
    }
}

#[test]
fn there_is_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = of(Shape::OneStream, 1, directory.path());
    settings.log.transaction_bytes = 1 << 20;
    let node = start(settings);
    let table = node.database().create_table(&definition()).unwrap().clone();
    let worker = node.database().worker().unwrap();
    let mut written = 0;
    let refused = worker.execute(Isolation::Snapshot, |transaction| {
        written = 0;
        loop {
            transaction.insert(&table, &wide(LONG + written, 1, written))?;
            written += 1;
        }
        #[expect(unreachable_code, reason = "says what the closure returns")]
        Ok(())
    });
    let Err(ProcedureError::Write(error @ WriteError::TooLarge { limit: 1_048_576 })) = refused else {
        panic!("{refused:?}")
    };
    assert!(error.to_string().contains("1048576 bytes of log"), "{error}");
    assert_eq!(written, (1 << 20) / 232);
    // What was taken back leaves room, and what it had replaced does not count.
    let transaction = worker.begin(Isolation::Snapshot);
    for round in 0..5 {
        let savepoint = transaction.savepoint();
        insert_many(&transaction, &table, 0..4000, round);
        for id in 0..4000 {
            let own = transaction.get(&table, 0, &(LONG + id).to_be_bytes()).unwrap().unwrap();
            transaction.update(&table, own.rid, &wide(LONG + id, round, id + 1)).unwrap();
        }
        if round < 4 {
            transaction.roll_back_to(&savepoint);
        }
    }
    node.database().wait(transaction.commit().unwrap()).unwrap();
    assert_eq!(count(&node, 4), 4000);
    // One row that is longer than half the buffer.
    let transaction = worker.begin(Isolation::Snapshot);
    let mut huge = row(7, 7, 7);
    huge.resize(140 << 10, 7);
    transaction.insert(&table, &huge).unwrap();
    let error = transaction.commit().unwrap_err();
    assert!(matches!(&error, CommitError::TooLarge(why) if why.contains("larger log buffer")), "{error}");
    assert_eq!(count(&node, 7), 0);
    // And one that just fits.
    let transaction = worker.begin(Isolation::Snapshot);
    transaction.insert(&table, &huge[..120 << 10]).unwrap();
    node.database().wait(transaction.commit().unwrap()).unwrap();
    assert_eq!(count(&node, 7), 1);
    drop(worker);
    node.stop().unwrap();
}

/// A serializable one that has read what others have changed in the meantime is no exception.
#[test]
fn they_are_certified() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(of(Shape::OneStream, 1, directory.path()));
    let table = node.database().create_table(&definition()).unwrap().clone();
    churn(node.database(), &table, 0, 100);
    let workers = [node.database().worker().unwrap(), node.database().worker().unwrap()];
    for phantom in [false, true] {
        let before = hash(&node);
        let transaction = workers[0].begin(Isolation::Serializable);
        let read = transaction.get(&table, 0, &99u64.to_be_bytes()).unwrap().unwrap();
        let none = transaction.get(&table, 0, &777u64.to_be_bytes()).unwrap();
        assert!(none.is_none());
        insert_many(&transaction, &table, 0..5000, 9);
        let ((), other) = workers[1]
            .execute(Isolation::Snapshot, |other| {
                match phantom {
                    true => drop(other.insert(&table, &row(777, 1, 1))?),
                    false => drop(other.update(&table, read.rid, &row(99, 99 % 7, 12_345))?),
                }
                Ok(())
            })
            .unwrap();
        let error = transaction.commit().unwrap_err();
        match phantom {
            true => assert_eq!(error, CommitError::Phantom),
            false => assert_eq!(error, CommitError::ReadChanged),
        }
        node.database().wait(other).unwrap();
        assert_ne!(hash(&node), before);
        assert_eq!(count(&node, 9), 0);
    }
    drop(workers);
    node.stop().unwrap();
}
