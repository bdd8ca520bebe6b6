//! Phantoms (P3 of Berenson et al., "A Critique of ANSI SQL Isolation Levels", 1995) in all the
//! ways in which a transaction may learn what is there and what is not, at each level, as fixed
//! interleavings in one thread. And that changes outside of what was read do no harm.

#[macro_use]
mod items;

use std::ops::Bound::{self, Excluded, Included, Unbounded};

use freshet_engine::{
    CommitError,
    Direction::{Backward, Forward},
    Isolation, Ticket, WriteError,
};
use items::{Item, Txn, refused_if_serializable, tens};

at_both_levels!(
    phantom_p3_insert,
    phantom_p3_delete,
    phantom_p3_update_of_the_key,
    phantom_p3_absent_key,
    phantom_p3_absent_group,
    phantom_p3_limited_scan,
    phantom_p3_backward_scan,
    phantom_p3_insert_rolled_back,
    phantom_p3_insert_begun_before_the_scan,
    predicate_write_skew,
    absence_learned_from_a_failed_write,
    presence_learned_from_a_unique_violation,
    freedom_of_a_key_learned_from_an_insert_taken_back,
    freedom_of_a_key_learned_from_a_violation_of_another,
);

const EVERYTHING: (Bound<u64>, Bound<u64>) = (Unbounded, Unbounded);

/// A transaction that reads a predicate and writes elsewhere, while another one changes what is
/// there and commits. That one has read what the first one writes, so the first one can come
/// neither before it nor after it. Whether certification noticed.
fn intruded(
    level: Isolation,
    read: impl Fn(&Txn<'_>) -> Vec<Item>,
    intrude: impl Fn(&Txn<'_>),
    again: bool,
) -> Result<Ticket, CommitError> {
    let world = tens();
    let reader = world.begin(0, level);
    let before = read(&reader);
    let intruder = world.begin(1, level);
    assert_eq!(intruder.get(1000), None);
    intrude(&intruder);
    let _ = intruder.commit().unwrap();
    if again {
        assert_eq!(read(&reader), before, "no phantom within the transaction");
    }
    reader.insert(Item::plain(1000, 0)).unwrap();
    reader.commit()
}

/// The change is within the predicate.
fn phantom(level: Isolation, read: impl Fn(&Txn<'_>) -> Vec<Item>, intrude: impl Fn(&Txn<'_>)) {
    // Another read comes across the new record, and knows of it as one that was not
    // seen. Who does not has only the range to go by.
    for again in [true, false] {
        refused_if_serializable(level, intruded(level, &read, &intrude, again));
    }
}

/// The change is outside: no level minds.
fn no_phantom(level: Isolation, read: impl Fn(&Txn<'_>) -> Vec<Item>, intrude: impl Fn(&Txn<'_>)) {
    for again in [true, false] {
        let _ = intruded(level, &read, &intrude, again).unwrap();
    }
}

fn put(id: u64) -> impl Fn(&Txn<'_>) {
    move |txn| txn.insert(Item { id, name: id, group: 1, value: 0 }).unwrap()
}

fn phantom_p3_insert(level: Isolation) {
    let inside = |txn: &Txn<'_>| txn.scan((Included(15), Excluded(40)), Forward, usize::MAX);
    phantom(level, inside, put(15));
    phantom(level, inside, put(25));
    phantom(level, inside, put(39));
    no_phantom(level, inside, put(14));
    no_phantom(level, inside, put(41));
    phantom(level, |txn| txn.scan((Included(21), Excluded(29)), Forward, usize::MAX), put(25));
    phantom(level, |txn| txn.scan(EVERYTHING, Forward, usize::MAX), put(60));
    phantom(level, |txn| txn.group(1), put(60));
}

fn phantom_p3_delete(level: Isolation) {
    let inside = |txn: &Txn<'_>| txn.scan((Included(15), Excluded(40)), Forward, usize::MAX);
    phantom(level, inside, |txn| txn.delete(20).unwrap());
    no_phantom(level, inside, |txn| txn.delete(40).unwrap());
    phantom(level, |txn| txn.group(1), |txn| txn.delete(20).unwrap());
}

fn phantom_p3_update_of_the_key(level: Isolation) {
    let inside = |txn: &Txn<'_>| txn.scan((Included(15), Excluded(40)), Forward, usize::MAX);
    let to = |id| Item { id, name: 50, group: 1, value: 1 };
    phantom(level, inside, |txn| txn.update(50, to(25)).unwrap());
    phantom(level, inside, |txn| txn.update(20, Item { id: 60, name: 20, group: 1, value: 1 }).unwrap());
    no_phantom(level, inside, |txn| txn.update(50, to(60)).unwrap());
    phantom(level, |txn| txn.group(2), |txn| txn.update(50, Item { group: 2, ..to(50) }).unwrap());
}

fn phantom_p3_absent_key(level: Isolation) {
    phantom(level, |txn| txn.get(25).into_iter().collect(), put(25));
    phantom(level, |txn| txn.named(25).into_iter().collect(), put(25));
    no_phantom(level, |txn| txn.get(25).into_iter().collect(), put(26));
    phantom(
        level,
        |txn| txn.get(25).into_iter().collect(),
        |txn| {
            txn.update(20, Item { id: 25, name: 20, group: 1, value: 1 }).unwrap();
        },
    );
    // A key that is there belongs to a record that was read.
    phantom(
        level,
        |txn| txn.get(20).into_iter().collect(),
        |txn| {
            txn.delete(20).unwrap();
            txn.insert(Item::plain(20, 7)).unwrap();
        },
    );
}

fn phantom_p3_absent_group(level: Isolation) {
    let member = |id, group| move |txn: &Txn<'_>| txn.insert(Item { id, name: id, group, value: 0 }).unwrap();
    phantom(level, |txn| txn.group(7), member(60, 7));
    no_phantom(level, |txn| txn.group(7), member(60, 6));
    no_phantom(level, |txn| txn.group(7), member(60, 8));
}

fn phantom_p3_limited_scan(level: Isolation) {
    let first_two = |txn: &Txn<'_>| txn.scan(EVERYTHING, Forward, 2);
    phantom(level, first_two, put(5));
    phantom(level, first_two, put(15));
    phantom(level, first_two, |txn| txn.delete(20).unwrap());
    // Where it broke off, it has read nothing.
    no_phantom(level, first_two, put(25));
    no_phantom(level, first_two, |txn| txn.delete(30).unwrap());
}

fn phantom_p3_backward_scan(level: Isolation) {
    let last_two = |txn: &Txn<'_>| txn.scan(EVERYTHING, Backward, 2);
    phantom(level, last_two, put(60));
    phantom(level, last_two, put(45));
    phantom(level, last_two, |txn| txn.delete(40).unwrap());
    no_phantom(level, last_two, put(35));
    let inside = |txn: &Txn<'_>| txn.scan((Excluded(10), Included(30)), Backward, usize::MAX);
    phantom(level, inside, put(11));
    phantom(level, inside, put(29));
    no_phantom(level, inside, put(31));
    no_phantom(level, inside, put(9));
}

fn phantom_p3_insert_rolled_back(level: Isolation) {
    let world = tens();
    let reader = world.begin(0, level);
    assert_eq!(reader.all().len(), 5);
    let intruder = world.begin(1, level);
    put(25)(&intruder);
    assert_eq!(reader.all().len(), 5);
    intruder.roll_back();
    reader.insert(Item::plain(1000, 0)).unwrap();
    let _ = reader.commit().unwrap();
}

/// The index entry is there before the scan, the record becomes visible after it: leaf versions
/// tell nothing.
fn phantom_p3_insert_begun_before_the_scan(level: Isolation) {
    let world = tens();
    let intruder = world.begin(1, level);
    assert_eq!(intruder.get(1000), None);
    put(25)(&intruder);
    let reader = world.begin(0, level);
    assert_eq!(reader.all().len(), 5);
    let _ = intruder.commit().unwrap();
    reader.insert(Item::plain(1000, 0)).unwrap();
    refused_if_serializable(level, reader.commit());
}

/// Two transactions each see that a group is empty and enter it.
fn predicate_write_skew(level: Isolation) {
    let world = tens();
    let (one, other) = (world.begin(0, level), world.begin(1, level));
    assert!(one.group(9).is_empty());
    assert!(other.group(9).is_empty());
    one.insert(Item { id: 1, name: 1, group: 9, value: 0 }).unwrap();
    other.insert(Item { id: 2, name: 2, group: 9, value: 0 }).unwrap();
    let _ = one.commit().unwrap();
    refused_if_serializable(level, other.commit());
}

/// A deletion that fails because nothing is there has read that nothing is there.
fn absence_learned_from_a_failed_write(level: Isolation) {
    let world = tens();
    let maker = world.begin(1, level);
    assert_eq!(maker.get(1000), None);
    let rid = maker.inner.insert(maker.table, &Item::plain(25, 0).row()).unwrap();
    let reader = world.begin(0, level);
    assert_eq!(reader.inner.delete(reader.table, rid), Err(WriteError::NotFound));
    assert_eq!(reader.inner.update(reader.table, rid, &Item::plain(25, 0).row()), Err(WriteError::NotFound));
    let _ = maker.commit().unwrap();
    reader.insert(Item::plain(1000, 0)).unwrap();
    refused_if_serializable(level, reader.commit());
}

/// An insertion that fails because its key is taken has read that it is taken.
fn presence_learned_from_a_unique_violation(level: Isolation) {
    let world = tens();
    let reader = world.begin(0, level);
    assert!(matches!(reader.insert(Item::plain(20, 0)), Err(WriteError::UniqueViolation { .. })));
    let other = world.begin(1, level);
    assert_eq!(other.get(1000), None);
    other.delete(20).unwrap();
    let _ = other.commit().unwrap();
    reader.insert(Item::plain(1000, 0)).unwrap();
    refused_if_serializable(level, reader.commit());
}

/// A transaction that could insert a key has read that it was free, also when nothing of that is
/// left to keep others from it.
fn freedom_of_a_key_learned_from_an_insert_taken_back(level: Isolation) {
    let insert_and_delete = |txn: &Txn<'_>| {
        put(25)(txn);
        txn.delete(25).unwrap();
        Vec::new()
    };
    refused_if_serializable(level, intruded(level, insert_and_delete, put(25), false));
    let _ = intruded(level, insert_and_delete, put(26), false).unwrap();
}

fn freedom_of_a_key_learned_from_a_violation_of_another(level: Isolation) {
    let insert = |txn: &Txn<'_>| {
        let result = txn.insert(Item { id: 25, name: 20, group: 1, value: 0 });
        assert_eq!(result, Err(WriteError::UniqueViolation { index: "items_name".into() }));
        Vec::new()
    };
    refused_if_serializable(level, intruded(level, insert, put(25), false));
    let _ = intruded(level, insert, put(26), false).unwrap();
}
