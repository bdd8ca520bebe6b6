//! Ids of records that are gone, found again after a restart.

use std::collections::BTreeSet;

use freshet_base::{Lsn, Rid};

use super::{live, table};
use crate::{
    owner::Owners,
    reclaim::Participants,
    table::{Content, RID_RANGE, Reclaimed},
};

/// Takes ids as a worker does until a range of new ones would be taken.
fn take_all(table: &Content, at_once: usize) -> Vec<Reclaimed> {
    let mut all = Vec::new();
    for _ in 0..1000 {
        let mut some = Vec::new();
        table.take_reclaimed(at_once, &mut some);
        some.reverse();
        all.extend(some);
    }
    all
}

#[test]
fn ids_of_the_dead_are_found_once_and_ascending() {
    let before = live();
    let (table, owners, participants) = (table(), Owners::new(1), Participants::new(1));
    let participant = participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let records = 5 * RID_RANGE + 100;
    let mut expected = BTreeSet::new();
    for rid in 0..records {
        // Three ranges have none.
        if rid % 7 == 0 && !(RID_RANGE..4 * RID_RANGE).contains(&rid) {
            assert!(table.restore_gone(&guard, Rid(rid), Lsn(1000 + rid)));
            expected.insert(rid);
        } else {
            assert!(table.restore_version(&guard, Rid(rid), Lsn(500), b"row"));
        }
    }
    // The log says that one was deleted, and that another was used again since the checkpoint.
    assert!(table.restore(&guard, Rid(8), Lsn(7000)));
    table.restored_is_gone(Rid(8), Lsn(7000));
    expected.insert(8);
    assert!(table.restore(&guard, Rid(14), Lsn(8000)) && table.restore_gone(&guard, Rid(14), Lsn(1014)));
    expected.remove(&14);

    let mut given = BTreeSet::new();
    table.gone_before(Lsn(7000), |rid, tombstone| {
        assert_eq!(tombstone, Lsn(1000 + rid.0));
        given.insert(rid.0);
    });
    assert!(expected.remove(&8) && given == expected && expected.insert(8));

    let taken = take_all(&table, 100);
    assert_eq!(taken.iter().map(|it| it.rid.0).collect::<Vec<_>>(), expected.iter().copied().collect::<Vec<_>>());
    assert!(taken.iter().all(|it| it.tombstone == Some(Lsn(if it.rid.0 == 8 { 7000 } else { 1000 + it.rid.0 }))));
    assert_eq!(table.take_rids().0, Rid(6 * RID_RANGE));
    // Each can be given to a record, and goes back to the list.
    let owner = owners.begin(0);
    for place in &taken {
        let installed = table.insert(*place, owner, b"new").unwrap();
        assert_eq!(installed.prev(), place.tombstone);
        table.roll_back(&guard, installed);
    }
    table.give_back(taken.iter().copied());
    assert_eq!(take_all(&table, 100).len(), taken.len());
    drop(guard);
    drop((participant, table));
    drop(participants);
    assert_eq!(live(), before);
}

#[test]
fn a_search_gives_up_when_it_would_take_long() {
    let (table, participants) = (table(), Participants::new(1));
    let participant = participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    assert!(table.restore_gone(&guard, Rid(3), Lsn(10)));
    let far = Rid(100 * RID_RANGE);
    assert!(table.restore_gone(&guard, far, Lsn(20)));
    let mut taken = Vec::new();
    table.take_reclaimed(10, &mut taken);
    assert_eq!(taken.pop(), Some(Reclaimed { rid: Rid(3), tombstone: Some(Lsn(10)) }));
    let mut requests = 0;
    while taken.is_empty() {
        table.take_reclaimed(10, &mut taken);
        requests += 1;
    }
    assert!(requests > 10 && taken == [Reclaimed { rid: far, tombstone: Some(Lsn(20)) }]);
    taken.clear();
    table.take_reclaimed(10, &mut taken);
    assert_eq!(taken, []);
}
