//! The index against a sorted set, one operation after the other.
//!
//! Keys are chosen so that they are prefixes of one another, share long prefixes, differ only in
//! zeros, have many duplicates, are empty, or are as long as they may be.

use std::{
    collections::BTreeSet,
    ops::{Bound, ControlFlow},
};

use freshet_base::{Lsn, Rid};
use freshet_storage::{
    Guard, Participants,
    index::{BTree, BulkLoadError, BulkPart, Direction, InsertError, KeyTooLong, MAX_KEY, ScanBuffer},
};
use proptest::prelude::*;

type Pair = (Vec<u8>, Rid);

/// A stretch of operations on neighbouring keys: single ones would hardly ever split a leaf.
#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, u64),
    Admitted(Vec<u8>, u64),
    Remove(Vec<u8>, u64),
    Ascending(Vec<u8>, u16, u16),
    Descending(Vec<u8>, u16, u16),
    Duplicates(Vec<u8>, u64, u16),
    /// Pairs at once, sorted or as they come.
    Run(Vec<Pair>, bool),
    RemoveRange(Bound<Vec<u8>>, Bound<Vec<u8>>),
    Get(Vec<u8>),
    Scan(Bound<Vec<u8>>, Bound<Vec<u8>>, bool, usize),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)], 0..12),
        2 => prop::collection::vec(any::<u8>(), 0..6),
        2 => any::<u16>().prop_map(|n| u64::from(n).to_be_bytes().to_vec()),
        2 => (0u8..4, any::<u16>()).prop_map(|(p, n)| [&[p; 20][..], &n.to_be_bytes()].concat()),
        1 => (0u8..3, MAX_KEY - 3..=MAX_KEY).prop_map(|(p, length)| vec![p; length]),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| [&[7; 300][..], &[a, b], &[9; 100]].concat()),
    ]
}

fn rid() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..8, 1 => Just(Rid::MAX.0), 1 => 0..=Rid::MAX.0]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        2 => key().prop_map(Bound::Included),
        2 => key().prop_map(Bound::Excluded),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (key(), rid()).prop_map(|(k, r)| Step::Insert(k, r)),
        3 => (key(), rid()).prop_map(|(k, r)| Step::Admitted(k, r)),
        3 => (key(), rid()).prop_map(|(k, r)| Step::Remove(k, r)),
        2 => (key(), any::<u16>(), 1u16..400).prop_map(|(k, from, n)| Step::Ascending(k, from, n)),
        1 => (key(), any::<u16>(), 1u16..400).prop_map(|(k, from, n)| Step::Descending(k, from, n)),
        1 => (key(), rid(), 1u16..600).prop_map(|(k, from, n)| Step::Duplicates(k, from, n)),
        3 => (prop::collection::vec((key(), rid().prop_map(Rid)), 0..300), any::<bool>())
            .prop_map(|(pairs, sorted)| Step::Run(pairs, sorted)),
        2 => (bound(), bound()).prop_map(|(low, high)| Step::RemoveRange(low, high)),
        3 => key().prop_map(Step::Get),
        4 => (bound(), bound(), any::<bool>(), prop_oneof![Just(usize::MAX), 0usize..100])
            .prop_map(|(low, high, forward, limit)| Step::Scan(low, high, forward, limit)),
    ]
}

fn borrow(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn within(low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>, key: &[u8]) -> bool {
    let above = match low {
        Bound::Unbounded => true,
        Bound::Included(low) => key >= low.as_slice(),
        Bound::Excluded(low) => key > low.as_slice(),
    };
    let below = match high {
        Bound::Unbounded => true,
        Bound::Included(high) => key <= high.as_slice(),
        Bound::Excluded(high) => key < high.as_slice(),
    };
    above && below
}

fn collect(tree: &BTree, guard: &Guard<'_>, key: &[u8]) -> Vec<Rid> {
    let mut rids = Vec::new();
    let flow = tree.get(guard, key, |rid| {
        rids.push(rid);
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    rids
}

fn scan(
    tree: &BTree,
    guard: &Guard<'_>,
    low: &Bound<Vec<u8>>,
    high: &Bound<Vec<u8>>,
    direction: Direction,
    limit: usize,
    buffer: &mut ScanBuffer,
) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let _ = tree.scan(
        guard,
        (borrow(low), borrow(high)),
        direction,
        buffer,
        |_| {},
        |key, rid| {
            pairs.push((key.to_vec(), rid));
            if pairs.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    );
    pairs
}

fn expected(
    model: &BTreeSet<Pair>,
    low: &Bound<Vec<u8>>,
    high: &Bound<Vec<u8>>,
    direction: Direction,
    limit: usize,
) -> Vec<Pair> {
    let inside = model.iter().filter(|pair| within(low, high, &pair.0)).cloned();
    let limit = limit.max(1);
    match direction {
        Direction::Forward => inside.take(limit).collect(),
        Direction::Backward => inside.rev().take(limit).collect(),
    }
}

fn insert(tree: &BTree, guard: &Guard<'_>, model: &mut BTreeSet<Pair>, key: Vec<u8>, rid: u64) {
    match tree.insert(guard, &key, Rid(rid)) {
        Ok(new) => assert_eq!(new, model.insert((key, Rid(rid)))),
        Err(KeyTooLong { length }) => assert!(length == key.len() && length > MAX_KEY),
    }
}

fn apply(tree: &BTree, guard: &Guard<'_>, model: &mut BTreeSet<Pair>, buffer: &mut ScanBuffer, step: Step) {
    match step {
        Step::Insert(key, rid) => insert(tree, guard, model, key, rid),
        Step::Admitted(key, rid) => {
            let same_key: Vec<Rid> = model.iter().filter(|pair| pair.0 == key).map(|pair| pair.1).collect();
            let mut asked = Vec::new();
            let admit = |other: Rid| {
                asked.push(other);
                if other.0 == 3 { Err("three") } else { Ok(()) }
            };
            let result = tree.insert_admitted(guard, &key, Rid(rid), admit);
            if let Some(three) = same_key.iter().position(|other| other.0 == 3) {
                assert_eq!(result, Err(InsertError::Refused("three")));
                assert_eq!(asked, same_key[..=three]);
            } else {
                assert_eq!(asked, same_key);
                assert_eq!(result, Ok(model.insert((key, Rid(rid)))));
            }
        }
        Step::Remove(key, rid) => {
            let present = model.contains(&(key.clone(), Rid(rid)));
            assert!(!tree.remove_if(guard, &key, Rid(rid), Lsn::ZERO, || {
                assert!(present);
                false
            }));
            assert_eq!(tree.remove(guard, &key, Rid(rid)), model.remove(&(key, Rid(rid))));
        }
        Step::Ascending(key, from, count) => {
            for n in 0..count {
                let key = [&key[..], &from.wrapping_add(n).to_be_bytes()].concat();
                insert(tree, guard, model, key, u64::from(n % 3));
            }
        }
        Step::Descending(key, from, count) => {
            for n in 0..count {
                let key = [&key[..], &from.wrapping_sub(n).to_be_bytes()].concat();
                insert(tree, guard, model, key, u64::from(n % 3));
            }
        }
        Step::Duplicates(key, from, count) => {
            for n in 0..u64::from(count) {
                insert(tree, guard, model, key.clone(), (from + n * 7) & Rid::MAX.0);
            }
        }
        Step::Run(mut pairs, sorted) => {
            if sorted {
                pairs.sort();
            }
            let inserted = tree.insert_run(guard, pairs.iter().map(|(key, rid)| (key.as_slice(), *rid)));
            assert_eq!(inserted, Ok(pairs.into_iter().filter(|pair| model.insert(pair.clone())).count() as u64));
        }
        Step::RemoveRange(low, high) => {
            for (key, rid) in expected(model, &low, &high, Direction::Forward, usize::MAX) {
                assert!(tree.remove(guard, &key, rid));
                model.remove(&(key, rid));
            }
        }
        Step::Get(key) => {
            let same_key: Vec<Rid> = model.iter().filter(|pair| pair.0 == key).map(|pair| pair.1).collect();
            assert_eq!(collect(tree, guard, &key), same_key);
        }
        Step::Scan(low, high, forward, limit) => {
            let direction = if forward { Direction::Forward } else { Direction::Backward };
            assert_eq!(
                scan(tree, guard, &low, &high, direction, limit, buffer),
                expected(model, &low, &high, direction, limit)
            );
        }
    }
}

fn check_all(tree: &BTree, guard: &Guard<'_>, model: &BTreeSet<Pair>, buffer: &mut ScanBuffer) {
    for direction in [Direction::Forward, Direction::Backward] {
        let all = (Bound::Unbounded, Bound::Unbounded);
        assert_eq!(
            scan(tree, guard, &all.0, &all.1, direction, usize::MAX, buffer),
            expected(model, &all.0, &all.1, direction, usize::MAX)
        );
    }
    assert_eq!(tree.statistics(guard).entries, model.len() as u64);
}

/// A short run; `PROPTEST_CASES` makes it longer, and `FRESHET_SEED` repeats one.
fn configuration() -> ProptestConfig {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().expect("a number"));
    let mut configuration = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    configuration.cases = number("PROPTEST_CASES").map_or(48, |cases| cases as u32);
    let seed = number("FRESHET_SEED").unwrap_or_else(new_seed);
    println!("FRESHET_SEED={seed}");
    configuration.rng_seed = prop::test_runner::RngSeed::Fixed(seed);
    configuration
}

fn new_seed() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn load<K: AsRef<[u8]>>(
    tree: &BTree,
    guard: &Guard<'_>,
    sorted: impl IntoIterator<Item = (K, Rid)>,
    fill: u8,
) -> Result<u64, BulkLoadError> {
    tree.bulk_load(guard, vec![BulkPart::new(sorted, fill)?], fill)
}

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn the_index_is_a_sorted_set(steps in prop::collection::vec(step(), 1..40)) {
        let participants = Participants::new(1);
        let participant = participants.join().unwrap();
        let (tree, mut model, mut buffer) = (BTree::new(), BTreeSet::new(), ScanBuffer::new());
        for step in steps {
            let guard = participant.pin_without_snapshot();
            apply(&tree, &guard, &mut model, &mut buffer, step);
        }
        let guard = participant.pin_without_snapshot();
        check_all(&tree, &guard, &model, &mut buffer);
        // Removing everything leaves one empty leaf.
        for (key, rid) in std::mem::take(&mut model) {
            prop_assert!(tree.remove(&guard, &key, rid));
        }
        check_all(&tree, &guard, &model, &mut buffer);
        let statistics = tree.statistics(&guard);
        prop_assert_eq!((statistics.leaves, statistics.inners, statistics.height), (1, 0, 1));
    }

    #[test]
    fn bulk_loading_gives_the_same(
        keys in prop::collection::btree_set((key(), rid().prop_map(Rid)), 0..1500),
        steps in prop::collection::vec(step(), 0..12),
        fill in 50u8..=100,
        // Where parts end; several in one place make empty parts.
        cuts in prop::option::of(prop::collection::vec(any::<prop::sample::Index>(), 0..12)),
    ) {
        let participants = Participants::new(1);
        let participant = participants.join().unwrap();
        let guard = participant.pin_without_snapshot();
        let (tree, mut model, mut buffer) = (BTree::new(), keys, ScanBuffer::new());
        let pairs: Vec<_> = model.iter().map(|(key, rid)| (key, *rid)).collect();
        let count = match cuts {
            None => load(&tree, &guard, pairs, fill),
            Some(cuts) => {
                let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(pairs.len() + 1)).collect();
                cuts.extend([0, pairs.len()]);
                cuts.sort_unstable();
                let part = |cut: &[usize]| BulkPart::new(pairs[cut[0]..cut[1]].iter().copied(), fill).unwrap();
                let parts: Vec<BulkPart> = cuts.windows(2).map(part).collect();
                prop_assert_eq!(parts.iter().map(BulkPart::pairs).sum::<u64>(), pairs.len() as u64);
                tree.bulk_load(&guard, parts, fill)
            }
        };
        prop_assert_eq!(count, Ok(model.len() as u64));
        check_all(&tree, &guard, &model, &mut buffer);
        for step in steps {
            apply(&tree, &guard, &mut model, &mut buffer, step);
        }
        check_all(&tree, &guard, &model, &mut buffer);
    }
}

#[test]
fn keys_that_are_too_long_are_refused() {
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let tree = BTree::new();
    let long = [7; MAX_KEY + 1];
    let error = KeyTooLong { length: MAX_KEY + 1 };
    assert_eq!(tree.insert(&guard, &long, Rid(1)), Err(error));
    assert_eq!(tree.insert_admitted(&guard, &long, Rid(1), |_| Ok::<(), ()>(())), Err(InsertError::KeyTooLong(error)));
    assert_eq!(load(&tree, &guard, [(&long, Rid(1))], 90), Err(BulkLoadError::KeyTooLong(error)));
    assert!(!tree.remove(&guard, &long, Rid(1)));
    // Reading with such a key, or between such keys, finds what is there.
    tree.insert(&guard, &long[1..], Rid(1)).unwrap();
    assert_eq!(collect(&tree, &guard, &long), []);
    let (low, high) = (Bound::Excluded(vec![6; 2000]), Bound::Excluded(vec![7; 2000]));
    for direction in [Direction::Forward, Direction::Backward] {
        assert_eq!(scan(&tree, &guard, &low, &high, direction, 9, &mut ScanBuffer::new()).len(), 1);
    }
}

#[test]
fn bulk_loading_wants_order_and_an_empty_index() {
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let tree = BTree::new();
    let unsorted = (0u32..5000).map(|n| (if n == 4321 { 0 } else { n }.to_be_bytes(), Rid(1)));
    assert_eq!(load(&tree, &guard, unsorted, 90), Err(BulkLoadError::OutOfOrder { position: 4321 }));
    let part = |numbers: std::ops::Range<u32>| BulkPart::new(numbers.map(|n| (n.to_be_bytes(), Rid(1))), 90).unwrap();
    let parts = vec![part(0..2000), part(0..0), part(2000..3000), part(2999..4000), part(4000..5000)];
    assert_eq!(tree.bulk_load(&guard, parts, 90), Err(BulkLoadError::OutOfOrder { position: 3000 }));
    assert_eq!(tree.statistics(&guard).entries, 0);
    tree.insert(&guard, b"x", Rid(1)).unwrap();
    assert_eq!(load(&tree, &guard, [(b"y", Rid(1))], 90), Err(BulkLoadError::NotEmpty));
    assert_eq!(tree.bulk_load(&guard, vec![part(0..2000)], 90), Err(BulkLoadError::NotEmpty));
    assert_eq!(collect(&tree, &guard, b"y"), []);
}

/// Ascending keys fill their leaves, at the right end of the index and in the middle.
#[test]
fn runs_fill_their_leaves() {
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let tree = BTree::new();
    // Ten runs side by side, a few keys at a time, as order lines of ten districts.
    for order in 0u32..2000 {
        for district in 0u8..10 {
            for line in 0u8..10 {
                let key = [&[district][..], &order.to_be_bytes(), &[line]].concat();
                assert!(tree.insert(&guard, &key, Rid(u64::from(order))).unwrap());
            }
        }
    }
    let runs = tree.statistics(&guard);
    let loaded = BTree::new();
    let mut keys = Vec::new();
    let _ = tree.scan(
        &guard,
        (Bound::Unbounded, Bound::Unbounded),
        Direction::Forward,
        &mut ScanBuffer::new(),
        |_| {},
        |key, rid| {
            keys.push((key.to_vec(), rid));
            ControlFlow::Continue(())
        },
    );
    load(&loaded, &guard, keys, 100).unwrap();
    let full = loaded.statistics(&guard);
    assert_eq!(runs.entries, full.entries);
    assert!(full.leaves * 100 >= runs.leaves * 90, "{runs:?} against {full:?}");
}

/// A queue neither grows nor leaves empty leaves at its low end.
#[test]
fn a_queue_does_not_grow() {
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    let tree = BTree::new();
    let key = |n: u64| n.to_be_bytes();
    let length = 1000;
    for n in 0..length {
        tree.insert(&participant.pin_without_snapshot(), &key(n), Rid(n)).unwrap();
    }
    let at_first = tree.statistics(&participant.pin_without_snapshot());
    for n in length..100_000 {
        let guard = participant.pin_without_snapshot();
        tree.insert(&guard, &key(n), Rid(n)).unwrap();
        assert!(tree.remove(&guard, &key(n - length), Rid(n - length)));
        if n % 1000 == 0 {
            let mut leaves = 0;
            let _ = tree.scan(
                &guard,
                (Bound::Unbounded, Bound::Unbounded),
                Direction::Forward,
                &mut ScanBuffer::new(),
                |_| leaves += 1,
                |found, _| {
                    assert_eq!(found, key(n - length + 1));
                    ControlFlow::Break(())
                },
            );
            assert!(leaves <= 3, "{leaves} leaves before the first pair");
        }
    }
    let at_last = tree.statistics(&participant.pin_without_snapshot());
    assert!(at_last.bytes <= at_first.bytes + 3 * 4096, "{at_last:?} against {at_first:?}");
    assert!(participant.waiting() < 500, "{} nodes wait to be freed", participant.waiting());
}

/// A reader that misses a pair sees the deletion that has taken it, whatever became of its
/// leaf since, and whichever way it looks; and no reader sees more than there was.
#[test]
fn who_misses_a_pair_sees_its_deletion() {
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let tree = BTree::new();
    let key = |n: u64| n.to_be_bytes();
    const PAIRS: u64 = 20_000;
    for n in 0..PAIRS {
        tree.insert(&guard, &key(n), Rid(n)).unwrap();
    }
    // In an order in which leaves become sparse, and are merged, at different times; and others
    // come and split them again.
    for n in 0..PAIRS {
        let n = n * 7919 % PAIRS;
        if !n.is_multiple_of(10) {
            assert!(tree.remove_if(&guard, &key(n), Rid(n), Lsn(n + 1), || true));
        }
    }
    for n in 0..PAIRS {
        tree.insert(&guard, &[&key(n)[..], b"more"].concat(), Rid(n)).unwrap();
    }
    let mut buffer = ScanBuffer::new();
    for n in 0..PAIRS {
        let mut removed = Lsn::ZERO;
        let mut found = false;
        let _ = tree.get_certified(
            &guard,
            &key(n),
            |leaf| removed = removed.max(leaf.removed()),
            |_| {
                found = true;
                ControlFlow::Continue(())
            },
        );
        assert_eq!(found, n.is_multiple_of(10));
        assert!((found || removed >= Lsn(n + 1)) && removed <= Lsn(PAIRS), "{n}: {removed}");
        for direction in [Direction::Forward, Direction::Backward] {
            let (low, high) = (key(n), key(n + 1));
            let range = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
            let mut removed = Lsn::ZERO;
            let note = |leaf: freshet_storage::index::LeafVersion<'_>| removed = removed.max(leaf.removed());
            let _ = tree.scan(&guard, range, direction, &mut buffer, note, |_, _| ControlFlow::Continue(()));
            assert!(found || removed >= Lsn(n + 1), "{n} {direction:?}: {removed}");
        }
    }
    // Far away from everything that was ever there.
    let fresh = BTree::new();
    fresh.insert(&guard, b"a", Rid(1)).unwrap();
    let _ =
        fresh.get_certified(&guard, b"b", |leaf| assert_eq!(leaf.removed(), Lsn::ZERO), |_| ControlFlow::Continue(()));
}
