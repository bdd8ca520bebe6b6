//! What the serial safety net lets through and what not, as fixed interleavings in one thread.
//! Where the other certifier decides otherwise, that is shown, too.
//!
//! What both refuse is in `anomalies.rs` and `phantoms.rs`, random histories are in `history.rs`.

mod common;
mod items;

use std::ops::Bound::{Excluded, Included, Unbounded};

use freshet_base::RowLock;
use freshet_engine::{
    Certifier::{self, Ssn, Validation},
    CommitError,
    Direction::Forward,
    Isolation::{Serializable, Snapshot},
    Node, NodeConfig, Ticket, Transaction,
};
use items::{BY_ID, Item, Txn, World, certified_by};

const CERTIFIERS: [Certifier; 2] = [Validation, Ssn];

/// Items 1 to 9 with value 0, and six workers.
fn nine(certifier: Certifier) -> World {
    certified_by(certifier, || World::new(6, (1..=9).map(|id| Item::plain(id, 0))))
}

fn done(result: Result<Ticket, CommitError>) {
    assert!(result.is_ok(), "{result:?}");
}

fn excluded(result: Result<Ticket, CommitError>) {
    assert_eq!(result.unwrap_err(), CommitError::Exclusion);
}

/// What only the safety net lets through.
fn back_in_time(certifier: Certifier, result: Result<Ticket, CommitError>) {
    match (certifier, result) {
        (Ssn, Ok(_)) | (Validation, Err(CommitError::ReadChanged | CommitError::Phantom)) => {}
        (certifier, result) => panic!("{certifier}: {result:?}"),
    }
}

/// Sets an item, and has read nothing else.
fn set(world: &World, worker: usize, id: u64, value: i64) {
    let writer = world.begin(worker, Serializable);
    writer.set(id, value).unwrap();
    done(writer.commit());
}

#[test]
fn one_whose_reads_were_changed_comes_before_that() {
    for certifier in CERTIFIERS {
        let world = nine(certifier);
        let late = world.begin(0, Serializable);
        assert_eq!(late.value(1), 0);
        set(&world, 1, 1, 7);
        late.set(2, 8).unwrap();
        back_in_time(certifier, late.commit());
    }
}

#[test]
fn a_record_that_comes_into_a_range_is_no_more_than_a_change() {
    for certifier in CERTIFIERS {
        let world = nine(certifier);
        let late = world.begin(0, Serializable);
        assert_eq!(late.all().len(), 9);
        let other = world.begin(1, Serializable);
        other.insert(Item::plain(20, 0)).unwrap();
        done(other.commit());
        late.set(2, 8).unwrap();
        back_in_time(certifier, late.commit());
    }
}

/// A report over everything, which is written down, while others change what it has read: under
/// validation it never comes to an end.
#[test]
fn a_long_reader_that_writes_comes_through() {
    for certifier in CERTIFIERS {
        let world = certified_by(certifier, || World::new(3, (0..200).map(|id| Item::plain(id, 10))));
        for report in 0..30 {
            let reader = world.begin(0, Serializable);
            let mut sum = 0;
            for id in 0..200 {
                sum += reader.value(id);
                // Some of what it has read, and some of what it will read.
                let transfer = world.begin(1 + (id % 2) as usize, Serializable);
                let (from, to) = (id, (id + 77) % 200);
                transfer.set(from, transfer.value(from) - 1).unwrap();
                transfer.set(to, transfer.value(to) + 1).unwrap();
                done(transfer.commit());
            }
            assert_eq!(sum, 2000);
            reader.insert(Item::plain(1000 + report, sum)).unwrap();
            back_in_time(certifier, reader.commit());
        }
        assert_eq!(world.read(0).all().len(), if certifier == Ssn { 230 } else { 200 });
    }
}

#[test]
fn one_comes_before_another_that_comes_before_a_third() {
    let world = nine(Ssn);
    let (third, second) = (world.begin(0, Serializable), world.begin(1, Serializable));
    assert_eq!((second.value(1), third.value(2)), (0, 0));
    set(&world, 2, 1, 7);
    // It sees the first one, and so comes after it, and must not come before the second.
    let between = world.begin(3, Serializable);
    assert_eq!((between.value(1), between.value(2)), (7, 0));
    second.set(2, 7).unwrap();
    done(second.commit());
    third.set(3, 7).unwrap();
    done(third.commit());
    between.set(4, 7).unwrap();
    excluded(between.commit());
    // One that has seen nothing of the first may.
    let world = nine(Ssn);
    let second = world.begin(1, Serializable);
    assert_eq!(second.value(1), 0);
    set(&world, 2, 1, 7);
    let between = world.begin(3, Serializable);
    assert_eq!(between.value(2), 0);
    second.set(2, 7).unwrap();
    done(second.commit());
    between.set(4, 7).unwrap();
    done(between.commit());
}

#[test]
fn a_reader_of_what_one_writes_is_in_its_way_only_since_the_change() {
    let world = nine(Ssn);
    let late = world.begin(0, Serializable);
    assert_eq!(late.value(1), 0);
    let read_two = |worker| {
        let reader = world.begin(worker, Serializable);
        assert_eq!(reader.value(2), 0);
        reader.set(3, reader.value(3) + 1).unwrap();
        done(reader.commit());
    };
    // Before the change: it comes before both.
    read_two(1);
    set(&world, 2, 1, 7);
    late.set(2, 8).unwrap();
    done(late.commit());
    let late = world.begin(0, Serializable);
    assert_eq!(late.value(1), 7);
    set(&world, 2, 1, 9);
    let reader = world.begin(1, Serializable);
    assert_eq!(reader.value(2), 8);
    reader.set(3, 5).unwrap();
    done(reader.commit());
    late.set(2, 10).unwrap();
    excluded(late.commit());
}

/// The last one has read item 1 before it was changed. Another one has seen that change, and then
/// has `looked` somewhere; so the last one, which does something `there`, cannot come before the
/// change.
fn pincer<T>(looked: impl Fn(&Txn<'_>) -> T, there: impl Fn(&Txn<'_>)) -> Result<Ticket, CommitError> {
    let world = nine(Ssn);
    let last = world.begin(0, Serializable);
    assert_eq!(last.value(1), 0);
    set(&world, 1, 1, 7);
    let other = world.begin(2, Serializable);
    assert_eq!(other.value(1), 7);
    let _ = looked(&other);
    other.set(9, 7).unwrap();
    done(other.commit());
    there(&last);
    last.commit()
}

#[test]
fn ranges_are_known_to_those_that_insert_into_them() {
    let insert = |id, group| move |txn: &Txn<'_>| txn.insert(Item { id, name: id, group, value: 0 }).unwrap();
    let scan = |low, high, limit| move |txn: &Txn<'_>| txn.scan((low, high), Forward, limit);
    let all = usize::MAX;
    excluded(pincer(|txn| txn.group(4), insert(20, 4)));
    done(pincer(|txn| txn.group(4), insert(20, 5)));
    excluded(pincer(|txn| txn.get(20), insert(20, 5)));
    excluded(pincer(|txn| txn.named(20), insert(20, 5)));
    done(pincer(|txn| txn.get(20), insert(21, 5)));
    excluded(pincer(scan(Included(15), Excluded(25), all), insert(20, 5)));
    excluded(pincer(scan(Excluded(250), Included(259), all), insert(259, 5)));
    excluded(pincer(scan(Unbounded, Included(25), all), insert(20, 5)));
    excluded(pincer(scan(Included(15), Unbounded, all), insert(1 << 60, 5)));
    // What the bounds begin with is what counts: all but the last byte, here.
    done(pincer(scan(Included(15), Excluded(25), all), insert(256 + 20, 5)));
    // Where it broke off, it has read nothing.
    done(pincer(scan(Included(2), Excluded(1 << 40), 2), insert(300, 5)));
    // What keys are changed to, as well.
    let move_it = |txn: &Txn<'_>| txn.update(8, Item { id: 20, name: 8, group: 0, value: 0 }).unwrap();
    excluded(pincer(|txn| txn.get(20), move_it));
    done(pincer(|txn| txn.get(21), move_it));
}

#[test]
fn what_was_looked_at_is_known_to_those_that_change_it() {
    excluded(pincer(|txn| txn.get(2), |txn| txn.set(2, 1).unwrap()));
    excluded(pincer(|txn| txn.get(2), |txn| txn.delete(2).unwrap()));
    excluded(pincer(|txn| txn.group(0), |txn| txn.delete(2).unwrap()));
    done(pincer(|txn| txn.get(3), |txn| txn.set(2, 1).unwrap()));
    // A record that is locked by its key need not be certified, but it was found.
    let lock = |txn: &Txn<'_>| {
        let found = txn.inner.lock_key(txn.table, BY_ID, &2u64.to_be_bytes(), RowLock::KeyShare).unwrap();
        assert!(found.is_some());
    };
    excluded(pincer(lock, |txn| txn.delete(2).unwrap()));
}

/// Who only reads, and wants a serializable answer, is known as well, or fails itself.
#[test]
fn those_that_only_read_see_a_serial_order_if_they_want_to() {
    for (level, is_seen) in [(Serializable, true), (Snapshot, false)] {
        let world = nine(Ssn);
        let last = world.begin(0, Serializable);
        assert_eq!(last.value(1), 0);
        set(&world, 1, 1, 7);
        let report = world.reading(2, level);
        assert_eq!((report.value(1), report.value(2)), (7, 0));
        done(report.commit());
        last.set(2, 8).unwrap();
        if is_seen { excluded(last.commit()) } else { done(last.commit()) }
    }
    for level in [Serializable, Snapshot] {
        let world = nine(Ssn);
        let last = world.begin(0, Serializable);
        assert_eq!(last.value(1), 0);
        set(&world, 1, 1, 7);
        let report = world.reading(2, level);
        assert_eq!(report.value(1), 7);
        last.set(2, 8).unwrap();
        done(last.commit());
        assert_eq!(report.value(2), 0);
        if level == Serializable {
            excluded(report.commit())
        } else {
            done(report.commit())
        }
        // Under validation that one is refused, and any snapshot is a state of the serial order.
        let world = nine(Validation);
        let last = world.begin(0, Serializable);
        assert_eq!(last.value(1), 0);
        set(&world, 1, 1, 7);
        let report = world.reading(2, level);
        assert_eq!(report.value(1), 7);
        last.set(2, 8).unwrap();
        assert_eq!(last.commit().unwrap_err(), CommitError::ReadChanged);
        assert_eq!(report.value(2), 0);
        done(report.commit());
    }
    // One that could have written counts as one that only reads.
    let world = nine(Ssn);
    let last = world.begin(0, Serializable);
    assert_eq!(last.value(1), 0);
    set(&world, 1, 1, 7);
    let report = world.begin(2, Serializable);
    assert_eq!((report.value(1), report.value(2)), (7, 0));
    done(report.commit());
    last.set(2, 8).unwrap();
    excluded(last.commit());
}

/// That a key is free is something that a transaction has read which has done no more than insert.
#[test]
fn who_has_freed_a_key_comes_before_the_one_that_takes_it() {
    for is_freed in [true, false] {
        let world = nine(Ssn);
        let second = world.begin(0, Serializable);
        assert_eq!(second.value(1), 0);
        set(&world, 1, 1, 7);
        let third = world.begin(2, Serializable);
        assert_eq!(third.value(1), 7);
        third.delete(if is_freed { 5 } else { 6 }).unwrap();
        done(third.commit());
        let last = world.begin(3, Serializable);
        assert_eq!(last.value(2), 0);
        second.set(2, 7).unwrap();
        done(second.commit());
        if is_freed {
            last.insert(Item::plain(5, 1)).unwrap();
            excluded(last.commit());
        } else {
            last.set(3, 1).unwrap();
            done(last.commit());
        }
    }
}

/// One that fails, or is rolled back, has read nothing.
#[test]
fn those_that_fail_are_in_nobodys_way() {
    let world = nine(Ssn);
    let last = world.begin(0, Serializable);
    assert_eq!(last.value(1), 0);
    let skewed = world.begin(1, Serializable);
    assert_eq!((skewed.value(1), skewed.value(2)), (0, 0));
    let first = world.begin(2, Serializable);
    assert_eq!(first.value(3), 0);
    first.set(1, 7).unwrap();
    done(first.commit());
    skewed.set(3, 7).unwrap();
    excluded(skewed.commit());
    let rolled_back = world.begin(1, Serializable);
    assert_eq!((rolled_back.value(1), rolled_back.value(2)), (7, 0));
    rolled_back.set(4, 7).unwrap();
    rolled_back.roll_back();
    last.set(2, 8).unwrap();
    done(last.commit());
}

/// At level snapshot no transaction is certified, and what it has read is in no one's way.
#[test]
fn levels_may_be_mixed() {
    let world = nine(Ssn);
    let last = world.begin(0, Serializable);
    assert_eq!(last.value(1), 0);
    let first = world.begin(1, Snapshot);
    assert_eq!(first.value(2), 0);
    first.set(1, 7).unwrap();
    done(first.commit());
    last.set(2, 8).unwrap();
    done(last.commit());
    // Its writes are.
    let last = world.begin(0, Serializable);
    let other = world.begin(1, Snapshot);
    assert_eq!((last.value(1), other.value(2)), (7, 8));
    other.set(1, 9).unwrap();
    other.set(3, 9).unwrap();
    done(other.commit());
    last.set(2, 10).unwrap();
    done(last.commit());
    let now = world.read(0);
    assert_eq!((now.value(1), now.value(2)), (9, 10));
}

/// The key decides, on a node with a log, where versions' LSNs are addresses. The late
/// transaction comes before the other one, unless that one has read what the late one writes.
#[test]
fn a_node_certifies_as_it_is_configured() {
    let key = |id: u64| id.to_be_bytes();
    for certifier in CERTIFIERS {
        let node = Node::start(NodeConfig { certifier, ..common::config(None) }, |_| {}).unwrap();
        let database = node.database();
        let table = database.create_table(&common::definition()).unwrap();
        let (one, other) = (database.worker().unwrap(), database.worker().unwrap());
        let insert = |txn: &Transaction<'_>, id| Ok(txn.insert(&table, &common::row(id, 0, 0)).map(drop)?);
        let _ = one.execute(Serializable, |txn| (1..4).try_for_each(|id| insert(txn, id))).unwrap();
        let get = |txn: &Transaction<'_>, id| txn.get(&table, 0, &key(id)).unwrap().unwrap().rid;
        let update = |txn: &Transaction<'_>, id| txn.update(&table, get(txn, id), &common::row(id, 0, 1)).map(drop);
        for is_read in [false, true] {
            let (late, other) = (one.begin(Serializable), other.begin(Serializable));
            get(&late, 1);
            if is_read {
                get(&other, 3);
            }
            // The address of the second one's version is not its LSN.
            update(&other, 2).unwrap();
            update(&other, 1).unwrap();
            done(other.commit());
            update(&late, 3).unwrap();
            match is_read {
                true if certifier == Ssn => excluded(late.commit()),
                _ => back_in_time(certifier, late.commit()),
            }
        }
        node.stop().unwrap();
    }
}
