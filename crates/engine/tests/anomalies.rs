//! Isolation anomalies by name, each at each level, as fixed interleavings of transactions in one
//! thread.
//!
//! Names and numbers are those of Berenson et al., "A Critique of ANSI SQL Isolation Levels"
//! (1995), Adya's thesis (1999), and Fekete, O'Neil and O'Neil, "A Read-Only Transaction Anomaly
//! Under Snapshot Isolation" (2004).

#[macro_use]
mod items;

use std::ops::Bound::{Excluded, Included};

use freshet_engine::{
    Direction::{Backward, Forward},
    Isolation::{self, Serializable, Snapshot},
    StateHash, WriteError,
};
use items::{Item, World, refused_if_serializable, tens};

at_both_levels!(
    dirty_write_p0,
    dirty_read_p1,
    lost_update_p4,
    fuzzy_read_p2,
    read_skew_a5a,
    write_skew_a5b,
    read_only_anomaly,
    unique_race_of_two_inserters,
    unique_race_in_the_second_index,
    insert_after_an_uncommitted_delete,
    insert_after_a_delete_since_the_snapshot,
    insert_after_an_insert_since_the_snapshot,
    insert_after_an_uncommitted_change_of_the_key,
    own_writes_are_visible,
    an_abort_leaves_no_trace,
    a_failed_insert_leaves_the_rest,
    a_failed_change_of_a_key_leaves_the_row,
    a_conflicting_change_of_a_key_leaves_no_trace,
    insert_and_delete_in_one_transaction,
    two_updates_in_one_transaction,
    delete_and_insert_of_the_same_key,
);

/// Items 1 and 2 with value 10 each.
fn two() -> World {
    World::new(3, [Item::plain(1, 10), Item::plain(2, 10)])
}

fn dirty_write_p0(level: Isolation) {
    let world = two();
    let (one, other) = (world.begin(0, level), world.begin(1, level));
    one.set(1, 11).unwrap();
    assert_eq!(other.set(1, 12), Err(WriteError::Conflict));
    assert_eq!(other.delete(1), Err(WriteError::Conflict));
    // The other transaction may go on with something else.
    other.set(2, 22).unwrap();
    one.roll_back();
    other.set(1, 21).unwrap();
    let _ = other.commit().unwrap();
    assert_eq!(world.read(0).all(), [Item::plain(1, 21), Item::plain(2, 22)]);
}

fn dirty_read_p1(level: Isolation) {
    let world = two();
    let writer = world.begin(0, level);
    writer.set(1, 11).unwrap();
    writer.delete(2).unwrap();
    writer.insert(Item::plain(3, 13)).unwrap();
    let before = world.begin(1, level);
    assert_eq!(before.all(), [Item::plain(1, 10), Item::plain(2, 10)], "not what is uncommitted");
    // Nor what was replaced before the commit (Adya's G1b).
    writer.set(1, 12).unwrap();
    assert_eq!((before.value(1), before.get(3)), (10, None));
    writer.roll_back();
    assert_eq!(before.all(), [Item::plain(1, 10), Item::plain(2, 10)], "nor what was rolled back (G1a)");
    let _ = before.commit().unwrap();
    assert_eq!(world.begin(0, level).all(), [Item::plain(1, 10), Item::plain(2, 10)]);
}

fn lost_update_p4(level: Isolation) {
    let world = two();
    let (one, other) = (world.begin(0, level), world.begin(1, level));
    let (seen, also_seen) = (one.value(1), other.value(1));
    one.set(1, seen + 1).unwrap();
    let _ = one.commit().unwrap();
    assert_eq!(other.set(1, also_seen + 1), Err(WriteError::Conflict), "the first to update wins");
    other.roll_back();
    let again = world.begin(1, level);
    again.set(1, again.value(1) + 1).unwrap();
    let _ = again.commit().unwrap();
    assert_eq!(world.read(0).value(1), 12);
}

fn fuzzy_read_p2(level: Isolation) {
    let world = two();
    let (reader, writer) = (world.begin(0, level), world.begin(1, level));
    assert_eq!(reader.value(1), 10);
    writer.set(1, 11).unwrap();
    writer.delete(2).unwrap();
    let _ = writer.commit().unwrap();
    assert_eq!(reader.all(), [Item::plain(1, 10), Item::plain(2, 10)]);
    // It has written nothing: it comes before the writer.
    let _ = reader.commit().unwrap();
}

fn read_skew_a5a(level: Isolation) {
    let world = two();
    let (reader, writer) = (world.begin(0, level), world.begin(1, level));
    assert_eq!(reader.value(1), 10);
    // What the reader is going to write: so it does not come before the writer.
    assert_eq!(writer.get(3), None);
    writer.set(1, 5).unwrap();
    writer.set(2, 15).unwrap();
    let _ = writer.commit().unwrap();
    assert_eq!(reader.value(1) + reader.value(2), 20);
    reader.insert(Item::plain(3, 0)).unwrap();
    refused_if_serializable(level, reader.commit());
}

fn write_skew_a5b(level: Isolation) {
    let world = two();
    let (one, other) = (world.begin(0, level), world.begin(1, level));
    assert_eq!(one.value(1) + one.value(2), 20);
    assert_eq!(other.value(1) + other.value(2), 20);
    one.set(1, -5).unwrap();
    other.set(2, -5).unwrap();
    let _ = one.commit().unwrap();
    refused_if_serializable(level, other.commit());
}

/// Savings 1 and current account 2, both empty. A deposit of 20 goes to 1. A withdrawal of 10 from
/// 2 sees neither money in 1 and so adds a penalty of 1. A report between their commits sees the
/// deposit alone.
fn read_only_anomaly(level: Isolation) {
    let world = World::new(3, [Item::plain(1, 0), Item::plain(2, 0)]);
    let withdrawal = world.begin(0, level);
    assert_eq!(withdrawal.value(1) + withdrawal.value(2), 0);
    let deposit = world.begin(1, level);
    deposit.set(1, deposit.value(1) + 20).unwrap();
    let _ = deposit.commit().unwrap();
    let report = world.reading(2, level);
    assert_eq!((report.value(1), report.value(2)), (20, 0));
    let _ = report.commit().unwrap();
    withdrawal.set(2, -11).unwrap();
    refused_if_serializable(level, withdrawal.commit());
}

fn unique_race_of_two_inserters(level: Isolation) {
    let world = two();
    let (one, other) = (world.begin(0, level), world.begin(1, level));
    one.insert(Item::plain(3, 1)).unwrap();
    assert_eq!(other.insert(Item::plain(3, 2)), Err(WriteError::Conflict), "it may yet be free");
    one.roll_back();
    other.insert(Item::plain(3, 2)).unwrap();
    let _ = other.commit().unwrap();
    let late = world.begin(0, level);
    assert_eq!(late.insert(Item::plain(3, 3)), Err(WriteError::UniqueViolation { index: "items_id".into() }));
    assert_eq!(late.value(3), 2);
}

fn unique_race_in_the_second_index(level: Isolation) {
    let world = two();
    let (one, other) = (world.begin(0, level), world.begin(1, level));
    one.insert(Item { id: 3, name: 7, group: 0, value: 1 }).unwrap();
    let rival = Item { id: 4, name: 7, group: 0, value: 2 };
    assert_eq!(other.insert(rival), Err(WriteError::Conflict));
    // Its first index was entered already: nothing of that is left, also for third parties.
    assert_eq!(other.get(4), None);
    world.begin(2, level).insert(Item { id: 4, name: 8, group: 0, value: 0 }).unwrap();
    let _ = one.commit().unwrap();
    other.roll_back();
    let late = world.begin(1, level);
    assert_eq!(late.insert(rival), Err(WriteError::UniqueViolation { index: "items_name".into() }));
    assert_eq!((late.get(4), late.named(7).unwrap().id), (None, 3));
}

fn insert_after_an_uncommitted_delete(level: Isolation) {
    let world = two();
    let (one, other) = (world.begin(0, level), world.begin(1, level));
    one.delete(1).unwrap();
    assert_eq!(other.insert(Item::plain(1, 7)), Err(WriteError::Conflict), "the deletion may yet be taken back");
    one.roll_back();
    assert!(matches!(other.insert(Item::plain(1, 7)), Err(WriteError::UniqueViolation { .. })));
}

/// The first to write a key wins: an insertion does not go past a deletion that its snapshot does
/// not see, or it would stand beside the record that its own transaction still sees.
fn insert_after_a_delete_since_the_snapshot(level: Isolation) {
    let world = two();
    let late = world.begin(0, level);
    let first = world.begin(1, level);
    first.delete(1).unwrap();
    let _ = first.commit().unwrap();
    assert_eq!(late.insert(Item::plain(1, 7)), Err(WriteError::Conflict));
    assert_eq!(late.value(1), 10);
    late.roll_back();
    let again = world.begin(0, level);
    again.insert(Item::plain(1, 7)).unwrap();
    assert_eq!(again.value(1), 7);
    let _ = again.commit().unwrap();
}

/// Snapshot isolation tells the truth about the present; a serializable transaction must not know
/// of it.
fn insert_after_an_insert_since_the_snapshot(level: Isolation) {
    let world = two();
    let late = world.begin(0, level);
    let first = world.begin(1, level);
    first.insert(Item::plain(3, 1)).unwrap();
    let _ = first.commit().unwrap();
    match (level, late.insert(Item::plain(3, 2))) {
        (Snapshot, Err(WriteError::UniqueViolation { .. })) | (Serializable, Err(WriteError::Conflict)) => {}
        (level, result) => panic!("{level}: {result:?}"),
    }
    assert_eq!(late.get(3), None);
}

fn insert_after_an_uncommitted_change_of_the_key(level: Isolation) {
    let world = two();
    let (one, other) = (world.begin(0, level), world.begin(1, level));
    one.update(1, Item::plain(5, 10)).unwrap();
    assert_eq!(other.insert(Item::plain(1, 7)), Err(WriteError::Conflict));
    assert_eq!(other.insert(Item::plain(5, 7)), Err(WriteError::Conflict));
    let _ = one.commit().unwrap();
    other.roll_back();
    let late = world.begin(1, level);
    late.insert(Item::plain(1, 7)).unwrap();
    assert!(matches!(late.insert(Item::plain(5, 7)), Err(WriteError::UniqueViolation { .. })));
    let _ = late.commit().unwrap();
    assert_eq!(world.read(0).all(), [Item::plain(1, 7), Item::plain(2, 10), Item::plain(5, 10)]);
}

fn own_writes_are_visible(level: Isolation) {
    let world = tens();
    let txn = world.begin(0, level);
    txn.insert(Item { id: 25, name: 25, group: 2, value: 2 }).unwrap();
    txn.set(20, 3).unwrap();
    txn.delete(30).unwrap();
    txn.update(40, Item { id: 45, name: 40, group: 2, value: 4 }).unwrap();
    let ids = |items: Vec<Item>| items.iter().map(|item| item.id).collect::<Vec<_>>();
    assert_eq!(ids(txn.all()), [10, 20, 25, 45, 50]);
    assert_eq!(ids(txn.scan((Excluded(10), Excluded(50)), Backward, 2)), [45, 25]);
    assert_eq!((ids(txn.group(1)), ids(txn.group(2))), (vec![10, 20, 50], vec![25, 45]));
    assert_eq!((txn.value(20), txn.get(30), txn.get(40), txn.named(40).unwrap().id), (3, None, None, 45));
    assert_eq!(ids(world.read(1).all()), [10, 20, 30, 40, 50], "to it alone");
    let _ = txn.commit().unwrap();
    assert_eq!(ids(world.read(1).all()), [10, 20, 25, 45, 50]);
}

fn an_abort_leaves_no_trace(level: Isolation) {
    let world = tens();
    let hash = |world: &World| StateHash::of(&world.workers[2].begin_read_only()).unwrap();
    let (before, indexes) = (hash(&world), world.indexes());
    for _ in 0..3 {
        let txn = world.begin(0, level);
        txn.insert(Item { id: 25, name: 25, group: 2, value: 2 }).unwrap();
        txn.set(25, 4).unwrap();
        txn.set(20, 3).unwrap();
        txn.set(20, 4).unwrap();
        txn.delete(20).unwrap();
        txn.delete(30).unwrap();
        txn.insert(Item { id: 30, name: 31, group: 2, value: 2 }).unwrap();
        txn.delete(30).unwrap();
        txn.update(40, Item { id: 45, name: 40, group: 2, value: 4 }).unwrap();
        txn.update(45, Item { id: 46, name: 40, group: 2, value: 4 }).unwrap();
        let _ = txn.insert(Item::plain(50, 0)).unwrap_err();
        txn.roll_back();
        assert_eq!((hash(&world), world.indexes()), (before, indexes.clone()));
    }
    // And when it is certification that fails.
    let (one, other) = (world.begin(0, level), world.begin(1, level));
    one.all();
    one.insert(Item::plain(25, 2)).unwrap();
    one.delete(30).unwrap();
    assert_eq!(other.get(25), None);
    other.set(20, 7).unwrap();
    let _ = other.commit().unwrap();
    if level == Serializable {
        let _ = one.commit().unwrap_err();
        assert_eq!(world.indexes(), indexes);
        assert_eq!(world.read(0).scan((Excluded(20), Included(30)), Forward, 9).len(), 1);
    }
}

fn a_failed_insert_leaves_the_rest(level: Isolation) {
    let world = two();
    let entries = world.indexes();
    let txn = world.begin(0, level);
    txn.set(1, 11).unwrap();
    // The first index takes it, the second does not.
    let twin = Item { id: 3, name: 2, group: 0, value: 0 };
    assert_eq!(txn.insert(twin), Err(WriteError::UniqueViolation { index: "items_name".into() }));
    assert_eq!((txn.get(3), txn.named(2), world.indexes()), (None, Some(Item::plain(2, 10)), entries));
    assert!(matches!(txn.inner.insert(txn.table, &[1, 2, 3]), Err(WriteError::Row { length: 3, .. })));
    txn.insert(Item::plain(3, 1)).unwrap();
    let _ = txn.commit().unwrap();
    assert_eq!(world.read(0).all(), [Item::plain(1, 11), Item::plain(2, 10), Item::plain(3, 1)]);
}

fn a_failed_change_of_a_key_leaves_the_row(level: Isolation) {
    let world = two();
    let entries = world.indexes();
    let txn = world.begin(0, level);
    let violation = |index: &str| Err(WriteError::UniqueViolation { index: index.into() });
    // A committed record.
    assert_eq!(txn.update(1, Item::plain(2, 0)), violation("items_id"));
    assert_eq!(txn.update(1, Item { id: 3, name: 2, group: 5, value: 0 }), violation("items_name"));
    assert_eq!(txn.all(), [Item::plain(1, 10), Item::plain(2, 10)]);
    assert_eq!(world.indexes(), entries);
    // One that the transaction has changed itself, and one that it has made itself.
    txn.set(1, 11).unwrap();
    txn.insert(Item::plain(4, 1)).unwrap();
    for id in [1, 4] {
        let before = txn.get(id).unwrap();
        assert_eq!(txn.update(id, Item { id: 9, name: 2, group: 5, value: 0 }), violation("items_name"));
        assert_eq!((txn.get(id), txn.named(id), txn.get(9)), (Some(before), Some(before), None));
        assert_eq!(txn.group(0).len(), 3);
        // Others are still kept out.
        assert_ne!(world.begin(1, level).insert(Item::plain(id, 0)), Ok(()));
    }
    let _ = txn.commit().unwrap();
    let after = [Item::plain(1, 11), Item::plain(2, 10), Item::plain(4, 1)];
    assert_eq!((world.read(1).all(), world.read(0).group(0).len()), (after.to_vec(), 3));
}

/// The new keys are free but the old record is not: what was inserted first goes again.
fn a_conflicting_change_of_a_key_leaves_no_trace(level: Isolation) {
    let world = two();
    let entries = world.indexes();
    let (one, other) = (world.begin(0, level), world.begin(1, level));
    one.set(1, 11).unwrap();
    assert_eq!(other.update(1, Item { id: 3, name: 1, group: 0, value: 0 }), Err(WriteError::Conflict));
    assert_eq!((other.get(3), other.all().len(), world.indexes()), (None, 2, entries));
    other.insert(Item::plain(3, 0)).unwrap();
}

fn insert_and_delete_in_one_transaction(level: Isolation) {
    let world = two();
    let entries = world.indexes();
    let txn = world.begin(0, level);
    txn.insert(Item::plain(3, 1)).unwrap();
    txn.set(3, 2).unwrap();
    txn.delete(3).unwrap();
    assert_eq!((txn.get(3), txn.delete(3)), (None, Err(WriteError::NotFound)));
    let _ = txn.commit().unwrap();
    assert_eq!((world.indexes(), world.read(1).all().len()), (entries, 2));
    let txn = world.begin(0, level);
    txn.insert(Item::plain(3, 1)).unwrap();
    txn.delete(3).unwrap();
    txn.set(1, 11).unwrap();
    txn.insert(Item::plain(3, 5)).unwrap();
    let _ = txn.commit().unwrap();
    assert_eq!(world.read(1).all(), [Item::plain(1, 11), Item::plain(2, 10), Item::plain(3, 5)]);
}

fn two_updates_in_one_transaction(level: Isolation) {
    let world = two();
    let old = world.read(1);
    let txn = world.begin(0, level);
    let first = txn.inner.get(txn.table, items::BY_ID, &1u64.to_be_bytes()).unwrap().unwrap();
    txn.set(1, 11).unwrap();
    txn.set(1, 12).unwrap();
    assert_eq!((Item::of(first.row).value, txn.value(1)), (10, 12), "rows that were read stay as they were");
    let _ = txn.commit().unwrap();
    assert_eq!((old.value(1), world.read(2).value(1)), (10, 12));
    let txn = world.begin(0, level);
    txn.set(1, 13).unwrap();
    txn.delete(1).unwrap();
    let _ = txn.commit().unwrap();
    assert_eq!((old.value(1), world.read(2).get(1)), (10, None));
}

fn delete_and_insert_of_the_same_key(level: Isolation) {
    let world = two();
    let old = world.read(1);
    let txn = world.begin(0, level);
    txn.delete(1).unwrap();
    assert_eq!(txn.get(1), None);
    txn.insert(Item::plain(1, 7)).unwrap();
    assert_eq!(txn.value(1), 7);
    assert_eq!(world.begin(2, level).insert(Item::plain(1, 8)), Err(WriteError::Conflict));
    txn.delete(1).unwrap();
    txn.insert(Item::plain(1, 9)).unwrap();
    let _ = txn.commit().unwrap();
    assert_eq!((old.value(1), old.all().len()), (10, 2));
    let now = world.read(2);
    assert_eq!((now.value(1), now.named(1).unwrap().value, now.all().len()), (9, 9, 2));
}

#[test]
fn a_read_only_transaction_does_not_write() {
    let world = two();
    let reader = world.read(0);
    assert!(matches!(reader.set(1, 0), Err(WriteError::ReadOnly(_))));
    assert!(matches!(reader.delete(1), Err(WriteError::ReadOnly(_))));
    assert!(matches!(reader.insert(Item::plain(9, 0)), Err(WriteError::ReadOnly(_))));
}

/// The catalog is a table, but not for clients.
#[test]
fn the_catalog_takes_nothing_but_tables() {
    let world = two();
    let catalog = world.database.table("freshet_catalog").unwrap();
    let txn = world.begin(0, Snapshot);
    assert!(matches!(txn.inner.insert(&catalog, &[b'x'; 200]), Err(WriteError::Row { .. })));
    let mut name = [0; 64];
    name[..5].copy_from_slice(b"items");
    let record = txn.inner.get(&catalog, 0, &name).unwrap().unwrap();
    assert!(matches!(txn.inner.delete(&catalog, record.rid), Err(WriteError::ReadOnly(_))));
    let row = record.row.to_vec();
    assert!(matches!(txn.inner.update(&catalog, record.rid, &row), Err(WriteError::ReadOnly(_))));
    assert!(matches!(txn.inner.insert(&catalog, &row), Err(WriteError::UniqueViolation { .. })));
}
