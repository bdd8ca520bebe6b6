//! Leaf versions notice every insertion into what was read, and unique keys stay unique.

mod index_common;

use std::{
    ops::{Bound, ControlFlow},
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use freshet_base::Rid;
use freshet_storage::{
    Guard, Participants,
    index::{BTree, BulkPart, Direction, InsertError, LeafVersion, ScanBuffer},
};
use index_common::{Random, seed};

/// Keys of two lengths, so that some are prefixes of others.
fn key(n: u64) -> Vec<u8> {
    let mut key = (n / 2).to_be_bytes()[4..].to_vec();
    if n % 2 == 1 {
        key.push(0);
    }
    key
}

/// The leaves of a scan from `low` to `high`, both included.
fn scan<'g>(
    tree: &'g BTree,
    guard: &'g Guard<'_>,
    low: &[u8],
    high: &[u8],
    direction: Direction,
) -> Vec<LeafVersion<'g>> {
    let mut leaves = Vec::new();
    let range = (Bound::Included(low), Bound::Included(high));
    let _ = tree.scan(
        guard,
        range,
        direction,
        &mut ScanBuffer::new(),
        |leaf| leaves.push(leaf),
        |_, _| ControlFlow::Continue(()),
    );
    leaves
}

/// Whatever happens outside, an insertion into a range that was read is noticed, also where the
/// range is empty, at its ends, and where leaves meet.
#[test]
fn an_insertion_into_a_scanned_range_is_noticed() {
    let mut random = Random::new(seed());
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    let space = 4000;
    for _ in 0..40 {
        let tree = BTree::new();
        let density = 1 + random.below(20);
        let insert = |guard: &Guard<'_>, n: u64| tree.insert(guard, &key(n), Rid(n)).unwrap();
        let mut present: Vec<bool> = (0..space).map(|_| random.below(20) < density).collect();
        for n in (0..space).filter(|n| present[*n as usize]) {
            insert(&participant.pin_without_snapshot(), n);
        }
        for _ in 0..60 {
            let guard = participant.pin_without_snapshot();
            let from = random.below(space);
            let longest = if random.below(2) == 0 { 4 } else { 900 };
            let length = 1 + random.below(longest);
            let to = (from + length).min(space - 1);
            let direction = if random.below(2) == 0 { Direction::Forward } else { Direction::Backward };
            let leaves = scan(&tree, &guard, &key(from), &key(to), direction);
            assert!(!leaves.is_empty());
            assert!(leaves.iter().all(LeafVersion::unchanged), "nothing has happened");
            // Insertions and removals outside of the range may make leaves split and merge.
            for _ in 0..random.below(300) {
                let n = random.below(space);
                if (from..=to).contains(&n) {
                    continue;
                }
                if random.below(2) == 0 {
                    insert(&guard, n);
                    present[n as usize] = true;
                } else {
                    tree.remove(&guard, &key(n), Rid(n));
                    present[n as usize] = false;
                }
            }
            let inside = from + random.below(to - from + 1);
            if present[inside as usize] {
                assert!(tree.remove(&guard, &key(inside), Rid(inside)));
                present[inside as usize] = false;
            } else {
                assert!(insert(&guard, inside));
                present[inside as usize] = true;
            }
            assert!(!leaves.iter().all(LeafVersion::unchanged), "{inside} slipped into {from}..={to}, {direction:?}");
        }
    }
}

/// As above, for single keys.
#[test]
fn an_insertion_of_a_key_that_was_missed_is_noticed() {
    let mut random = Random::new(seed());
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    let tree = BTree::new();
    for round in 0..4000 {
        let guard = participant.pin_without_snapshot();
        let wanted = key(random.below(2000));
        let mut leaves = Vec::new();
        let mut rids = Vec::new();
        let _ = tree.get_certified(
            &guard,
            &wanted,
            |leaf| leaves.push(leaf),
            |rid| {
                rids.push(rid);
                ControlFlow::Continue(())
            },
        );
        assert!(!leaves.is_empty() && leaves.iter().all(LeafVersion::unchanged));
        for _ in 0..random.below(30) {
            let other = key(random.below(2000));
            if other != wanted {
                tree.insert(&guard, &other, Rid(round)).unwrap();
            }
        }
        // Some keys get enough pairs to fill several leaves.
        let copies = if wanted[3].is_multiple_of(16) { 300 } else { 1 };
        for copy in 0..copies {
            assert!(tree.insert(&guard, &wanted, Rid((round + 1) * 1000 + copy)).unwrap());
        }
        assert!(!leaves.iter().all(LeafVersion::unchanged), "{wanted:?} was inserted unnoticed");
        for rid in rids {
            assert!(tree.remove(&guard, &wanted, rid));
        }
    }
}

/// A leaf that takes over what its neighbour held is not the leaf that was read.
#[test]
fn a_merge_is_noticed() {
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let tree = BTree::new();
    let pairs = (0..1000).map(|n| (key(n), Rid(n)));
    tree.bulk_load(&guard, vec![BulkPart::new(pairs, 100).unwrap()], 100).unwrap();
    let mut leaves = Vec::new();
    let _ = tree.get_certified(&guard, &key(0), |leaf| leaves.push(leaf), |_| ControlFlow::Continue(()));
    assert!(tree.statistics(&guard).leaves > 4);
    for n in (1..1000).rev() {
        assert!(tree.remove(&guard, &key(n), Rid(n)));
        if tree.statistics(&guard).leaves == 1 {
            assert!(!leaves[0].unchanged(), "the first leaf has merged with the second");
            return;
        }
        assert!(leaves[0].unchanged(), "nothing in the first leaf was touched yet");
    }
    panic!("the leaves were never merged");
}

/// Two insertions of one key: the second sees the first. Also among enough stale pairs of the key
/// to fill several leaves.
#[test]
fn a_unique_key_is_inserted_once() {
    const THREADS: u64 = 3;
    const KEYS: u64 = 60;
    let participants = Participants::new(THREADS as usize);
    let tree = BTree::new();
    let wins: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let barrier = Barrier::new(THREADS as usize);
    let stale = |n: u64| if n.is_multiple_of(4) { 500 } else { n % 3 };
    let key = |n: u64| n.to_be_bytes();
    {
        let participant = participants.join().unwrap();
        for n in 0..KEYS {
            for copy in 0..stale(n) {
                tree.insert(&participant.pin_without_snapshot(), &key(n), Rid(copy * 100)).unwrap();
            }
        }
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (participants, tree, wins, barrier) = (&participants, &tree, &wins, &barrier);
            scope.spawn(move || {
                let participant = participants.join().unwrap();
                for round in 0..20 {
                    barrier.wait();
                    for n in 0..KEYS {
                        let guard = participant.pin_without_snapshot();
                        // Those that are no multiples of 100 are live.
                        let rid = Rid(n * 700 % 40_000 + thread + 1);
                        let mut asked = 0;
                        let result = tree.insert_admitted(&guard, &key(n), rid, |other| {
                            asked += 1;
                            if other.0.is_multiple_of(100) { Ok(()) } else { Err(other) }
                        });
                        match result {
                            Ok(new) => {
                                assert!(new);
                                assert_eq!(asked, stale(n), "it was asked about every pair");
                                wins[n as usize].fetch_add(1, Relaxed);
                            }
                            Err(InsertError::Refused(other)) => assert!(!other.0.is_multiple_of(100)),
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                    barrier.wait();
                    for n in (0..KEYS).filter(|n| n % THREADS == thread) {
                        assert_eq!(wins[n as usize].load(Relaxed), round + 1, "key {n} was inserted once");
                        let guard = participant.pin_without_snapshot();
                        let removed = (1..=THREADS)
                            .filter(|other| tree.remove(&guard, &key(n), Rid(n * 700 % 40_000 + other)))
                            .count();
                        assert_eq!(removed, 1);
                    }
                }
            });
        }
    });
}
