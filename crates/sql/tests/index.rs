//! Conditions on columns as ranges of an index of the engine.

use std::ops::{Bound, ControlFlow};

use freshet_base::Rid;
use freshet_sql::{
    Type, Value, ValueRef,
    row::{Column, KeyRange, Layout},
};
use freshet_storage::{
    Participants,
    index::{BTree, Direction, MAX_KEY, ScanBuffer},
};
use proptest::prelude::*;

/// Short values that are often the same, and such as are too long for a key.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let small = prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xFF)], 0..4);
    (small.clone(), prop_oneof![4 => Just(0), 1 => 200usize..1200], small)
        .prop_map(|(front, filling, back)| [front, vec![0xFF; filling], back].concat())
}

fn row() -> impl Strategy<Value = (Value, Value)> {
    let number = prop_oneof![1 => Just(Value::Null), 4 => (-2i32..3).prop_map(Value::Int4)];
    let bytes = prop_oneof![1 => Just(Value::Null), 6 => bytes().prop_map(Value::bytea)];
    (number, bytes)
}

fn bound(kind: u8, value: &Value) -> Bound<ValueRef<'_>> {
    match kind % 3 {
        0 => Bound::Unbounded,
        1 => Bound::Included(value.as_ref()),
        _ => Bound::Excluded(value.as_ref()),
    }
}

proptest! {
    #[test]
    fn scans_find_what_fulfils_the_condition(
        rows in prop::collection::vec(row(), 1..60),
        wanted in row(),
        (lower, upper) in (bytes(), bytes()),
        kinds in any::<(u8, u8)>(),
        descending in any::<(bool, bool)>(),
        backward in any::<bool>(),
    ) {
        let layout = Layout::new(vec![Column::new(Type::INT4), Column::new(Type::BYTEA)]).unwrap();
        let first = layout.key_column(0, descending.0).unwrap();
        let second = layout.key_column(1, descending.1).unwrap();
        let participants = Participants::new(1);
        let participant = participants.join().unwrap();
        let guard = participant.pin_without_snapshot();
        let tree = BTree::new();
        let mut kept = Vec::new();
        for (at, (number, bytes)) in rows.iter().enumerate() {
            let mut key = Vec::new();
            prop_assert!(first.append_key(number.as_ref(), &mut key).unwrap());
            prop_assert!(second.append_key(bytes.as_ref(), &mut key).unwrap());
            // Rows whose keys are too long are refused by the table.
            let fits = key.len() <= MAX_KEY;
            prop_assert_eq!(tree.insert(&guard, &key, Rid(at as u64)).is_ok(), fits);
            if fits {
                kept.push(at);
            }
        }
        let (lower, upper) = (Value::bytea(lower), Value::bytea(upper));
        let (lower, upper) = (bound(kinds.0, &lower), bound(kinds.1, &upper));
        let mut prefix = Vec::new();
        prop_assert!(first.append_key(wanted.0.as_ref(), &mut prefix).unwrap());
        let mut range = KeyRange::new();
        let mut buffer = ScanBuffer::new();
        let mut check = |range: &KeyRange, condition: &dyn Fn(&(Value, Value)) -> bool| {
            let mut found = Vec::new();
            let direction = if backward { Direction::Backward } else { Direction::Forward };
            let _ = tree.scan(&guard, range.bounds(), direction, &mut buffer, |_| {}, |_, rid| {
                found.push(rid.0 as usize);
                ControlFlow::Continue(())
            });
            // In the order of the index, nulls behind everything else.
            let order = |one: &usize, two: &usize| {
                let (one, two) = (&rows[*one], &rows[*two]);
                let number = one.0.cmp(&two.0);
                let bytes = one.1.cmp(&two.1);
                let directed = |order: std::cmp::Ordering, flag| if flag { order.reverse() } else { order };
                directed(directed(number, descending.0).then(directed(bytes, descending.1)), backward)
            };
            assert!(found.is_sorted_by(|one, two| order(one, two).is_le()));
            found.sort_unstable();
            let expected: Vec<usize> = kept.iter().copied().filter(|at| condition(&rows[*at])).collect();
            assert_eq!(found, expected);
        };
        range.set_between(&prefix, &second, lower, upper).unwrap();
        check(&range, &|(number, bytes)| {
            let above = match lower {
                Bound::Unbounded => true,
                Bound::Included(lower) => bytes.as_ref().compare(lower).is_ge(),
                Bound::Excluded(lower) => bytes.as_ref().compare(lower).is_gt(),
            };
            let below = match upper {
                Bound::Unbounded => true,
                Bound::Included(upper) => bytes.as_ref().compare(upper).is_le(),
                Bound::Excluded(upper) => bytes.as_ref().compare(upper).is_lt(),
            };
            *number == wanted.0 && !bytes.is_null() && above && below
        });
        range.set_prefix(&prefix);
        check(&range, &|(number, _)| *number == wanted.0);
        prop_assert!(second.append_key(wanted.1.as_ref(), &mut prefix).unwrap());
        range.set_prefix(&prefix);
        check(&range, &|row| *row == wanted);
        range.set_prefix(&[]);
        check(&range, &|_| true);
    }
}
