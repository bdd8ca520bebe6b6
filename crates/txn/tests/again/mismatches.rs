//! Transactions that are not what they were.

use freshet_base::{Certifier, Fid, Isolation, Lsn, RecordKind, Rid};
use freshet_txn::{Entry, Mismatch, ProcedureError, WriteError};

use crate::{
    primary::Scene,
    program::{Program, Step},
    standby::Standby,
};

/// What comes of it when a transaction of the steps `first` is executed again as `then`, with
/// changed entries.
fn again(first: &[Step], then: &[Step], change: impl FnOnce(&mut Vec<Entry>)) -> Result<bool, Mismatch> {
    let first = Program::new(Isolation::Snapshot, first);
    let scene = Scene::new(1, &[(1, 1, 0), (2, 2, 0), (3, 3, 0)], Certifier::Validation);
    assert_eq!(scene.run(0, std::slice::from_ref(&first), |_| 0), 1);
    let mut standby = Standby::new(scene.log(), 1);
    match standby.try_next(&Program::new(Isolation::Snapshot, then), change) {
        Ok(same) => Ok(same),
        Err(ProcedureError::Write(WriteError::Mismatch(how))) => Err(how),
        Err(cause) => panic!("{cause}"),
    }
}

fn same(_: &mut Vec<Entry>) {}

#[test]
fn what_is_the_same_has_the_same_bytes() {
    let steps = [Step::Get(1), Step::Change(2), Step::Insert(4, 4, 0), Step::Delete(3)];
    assert_eq!(again(&steps, &steps, same), Ok(true));
}

#[test]
fn other_values_are_other_bytes() {
    // Of the same length, since all that differs is which record was read.
    let (first, then) = ([Step::Delete(1)], [Step::Delete(2)]);
    assert!(matches!(again(&first, &then, same), Err(Mismatch::NotAnnounced { .. })));
    let (first, then) = ([Step::Insert(4, 4, 0)], [Step::Insert(4, 5, 0)]);
    assert_eq!(again(&first, &then, same), Ok(false));
}

#[test]
fn more_or_less_than_was_written_is_a_mismatch() {
    let both = [Step::Change(1), Step::Change(2)];
    assert!(matches!(again(&both, &both[..1], same), Err(Mismatch::Kind { kind: RecordKind::Update, .. })));
    assert!(matches!(again(&both[..1], &both, same), Err(Mismatch::NotAnnounced { .. })));
    let inserted = [Step::Insert(4, 4, 0)];
    assert!(matches!(again(&both, &inserted, same), Err(Mismatch::NotInserted { .. })));
    let two = [Step::Insert(4, 4, 0), Step::Insert(5, 5, 0)];
    assert!(matches!(again(&inserted, &two, same), Err(Mismatch::NotInserted { .. })));
    assert!(matches!(again(&two, &inserted, same), Err(Mismatch::Kind { kind: RecordKind::Insert, .. })));
    let taken_back = [Step::Insert(4, 4, 0), Step::Delete(4)];
    assert!(matches!(again(&inserted, &taken_back, same), Err(Mismatch::Kind { kind: RecordKind::Insert, .. })));
    assert!(matches!(again(&both, &[Step::Delete(1)], same), Err(Mismatch::Kind { kind: RecordKind::Update, .. })));
    // A row of another length.
    let longer = [Step::Get(2), Step::Get(3), Step::Change(1)];
    assert!(matches!(again(&both[..1], &longer, same), Err(Mismatch::Length { .. })));
}

#[test]
fn what_no_recorded_transaction_does_is_a_mismatch() {
    let once = [Step::Change(1)];
    let refreshed = [Step::Refresh, Step::Change(1)];
    assert_eq!(again(&refreshed, &refreshed, same), Ok(true));
    assert_eq!(again(&once, &refreshed, same), Err(Mismatch::Snapshot(1)));
    let taken_back = [Step::Savepoint, Step::Change(1), Step::Back];
    assert!(matches!(again(&once, &taken_back, same), Err(Mismatch::Unrecorded(_))));
    let nothing_to_take_back = [Step::Change(1), Step::Savepoint, Step::Get(2), Step::Back];
    assert_eq!(again(&nothing_to_take_back, &nothing_to_take_back, same), Ok(true));
}

#[test]
fn no_entries_cause_a_panic() {
    let steps = [Step::Change(1), Step::Insert(4, 4, 0), Step::Delete(3)];
    let kinds = [RecordKind::Insert, RecordKind::Update, RecordKind::Delete];
    for place in 0..3 {
        let changed = |change: fn(&mut Entry)| again(&steps, &steps, |entries| change(&mut entries[place]));
        assert_ne!(changed(|entry| entry.rid = Rid(u64::MAX)), Ok(true));
        assert_ne!(changed(|entry| entry.rid = Rid(1 << 40)), Ok(true));
        assert_ne!(changed(|entry| entry.fid = Fid(77)), Ok(true));
        assert_ne!(changed(|entry| entry.fid = Fid::INPUTS), Ok(true));
        assert_ne!(changed(|entry| entry.length += 1), Ok(true));
        assert_ne!(changed(|entry| entry.prev = entry.prev.xor(Some(Lsn(8)))), Ok(true));
        for kind in kinds {
            let outcome = again(&steps, &steps, |entries| {
                let before = std::mem::replace(&mut entries[place].kind, kind);
                assert_eq!(before, [RecordKind::Update, RecordKind::Insert, RecordKind::Delete][place]);
            });
            assert_eq!(outcome.is_ok(), kind == [RecordKind::Update, RecordKind::Insert, RecordKind::Delete][place]);
        }
        assert!(
            again(&steps, &steps, |entries| {
                entries.remove(place);
            })
            .is_err()
        );
        assert!(again(&steps, &steps, |entries| entries.push(entries[place])).is_err());
    }
    let entry = Entry { fid: Fid(1), rid: Rid(u64::MAX), kind: RecordKind::Update, length: 0, prev: None };
    assert!(again(&steps, &steps, |entries| entries.extend(std::iter::repeat_n(entry, 100))).is_err());
}
