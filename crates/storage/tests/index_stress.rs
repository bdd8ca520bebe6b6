//! Scans under writes: a fixed set of pairs is never touched while others come and go around it, so
//! that leaves split, empty and merge all the time. Every scan must deliver all fixed pairs of its
//! range, in order, once, and nothing outside; and what its leaf versions promise must hold.

mod index_common;

use std::{
    ops::{Bound, ControlFlow},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use freshet_base::Rid;
use freshet_storage::{
    Participants,
    index::{BTree, Direction, LeafVersion, ScanBuffer},
};
use index_common::{Random, seed, stress_time};

const WRITERS: u64 = 2;
const READERS: u64 = 2;
/// Numbers that become keys.
const SPACE: u64 = 24_000;
/// One of this many is fixed.
const EVERY: u64 = 16;
/// Record id of fixed pairs; those that come and go have others.
const FIXED: Rid = Rid(150);

/// Groups of keys with long common prefixes, of several lengths, some being prefixes of others.
fn key(n: u64) -> Vec<u8> {
    let mut key = (n / 64).to_be_bytes()[5..].to_vec();
    key.extend(std::iter::repeat_n(b'=', (n / 640 % 5 * 9) as usize));
    key.extend(std::iter::repeat_n(0, (n % 64 / 16) as usize));
    key.push((n % 16) as u8);
    key
}

/// All fixed keys in order, to compare scans with.
fn fixed_keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = (0..SPACE).step_by(EVERY as usize).map(key).collect();
    keys.sort();
    keys.dedup();
    keys
}

struct Shared {
    tree: BTree,
    /// The same pairs, by somebody else.
    reference: scc::TreeIndex<(Vec<u8>, u64), ()>,
    participants: Arc<Participants>,
    fixed: Vec<Vec<u8>>,
    stop: AtomicBool,
    writes: AtomicU64,
    scans: AtomicU64,
    kept_promises: AtomicU64,
}

#[test]
fn scans_are_exact_under_writes() {
    let seed = seed();
    let participants = Participants::new((WRITERS + READERS + 1) as usize);
    let shared = Shared {
        tree: BTree::new(),
        reference: scc::TreeIndex::new(),
        participants,
        fixed: fixed_keys(),
        stop: AtomicBool::new(false),
        writes: AtomicU64::new(0),
        scans: AtomicU64::new(0),
        kept_promises: AtomicU64::new(0),
    };
    let participant = shared.participants.join().unwrap();
    for key in &shared.fixed {
        let guard = participant.pin_without_snapshot();
        assert!(shared.tree.insert(&guard, key, FIXED).unwrap());
        shared.reference.insert_sync((key.clone(), FIXED.0), ()).unwrap();
    }
    let end = Instant::now() + stress_time();
    std::thread::scope(|scope| {
        let shared = &shared;
        for n in 0..WRITERS {
            scope.spawn(move || StopOnPanic(shared).run(|| write(shared, seed, n, end)));
        }
        for n in 0..READERS {
            scope.spawn(move || StopOnPanic(shared).run(|| read(shared, seed, n)));
        }
    });
    let guard = participant.pin_without_snapshot();
    for direction in [Direction::Forward, Direction::Backward] {
        let mut pairs = Vec::new();
        let all = (Bound::Unbounded, Bound::Unbounded);
        let _ = shared.tree.scan(
            &guard,
            all,
            direction,
            &mut ScanBuffer::new(),
            |_| {},
            |key, rid| {
                pairs.push((key.to_vec(), rid.0));
                ControlFlow::Continue(())
            },
        );
        if direction == Direction::Backward {
            pairs.reverse();
        }
        let epoch = scc::Guard::new();
        let expected: Vec<_> = shared.reference.iter(&epoch).map(|(pair, ())| pair.clone()).collect();
        assert!(pairs == expected, "{} pairs, the reference has {}", pairs.len(), expected.len());
    }
    println!(
        "{} writes, {} scans, {} of them with promises that were kept; {:?}",
        shared.writes.load(Relaxed),
        shared.scans.load(Relaxed),
        shared.kept_promises.load(Relaxed),
        shared.tree.statistics(&guard)
    );
    assert!(shared.scans.load(Relaxed) > 0 && shared.kept_promises.load(Relaxed) > 0);
}

/// A few leaves, in which a writer shifts, splits and merges without pause while a reader looks
/// keys up: whatever half-done state a get may come across, it comes across here.
#[test]
fn gets_are_exact_under_writes() {
    let participants = Participants::new(2);
    let tree = BTree::new();
    let key = |n: u64| [&n.to_be_bytes()[..], b"behind the head"].concat();
    let fixed: Vec<u64> = (0..40).map(|n| n * 10 + 5).collect();
    {
        let participant = participants.join().unwrap();
        for n in &fixed {
            tree.insert(&participant.pin_without_snapshot(), &key(*n), Rid(*n)).unwrap();
        }
    }
    let end = Instant::now() + stress_time() / 2;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let participant = participants.join().unwrap();
            while Instant::now() < end {
                for (count, remove) in [(30, false), (30, true), (400, false), (400, true)] {
                    for n in (0..count).filter(|n| n % 10 != 5) {
                        let guard = participant.pin_without_snapshot();
                        let done = match remove {
                            false => tree.insert(&guard, &key(n), Rid(n)).unwrap(),
                            true => tree.remove(&guard, &key(n), Rid(n)),
                        };
                        assert!(done);
                    }
                }
            }
            stop.store(true, Relaxed);
        });
        let participant = participants.join().unwrap();
        while !stop.load(Relaxed) {
            for n in &fixed {
                let guard = participant.pin_without_snapshot();
                let mut found = Vec::new();
                let _ = tree.get(&guard, &key(*n), |rid| {
                    found.push(rid);
                    ControlFlow::Continue(())
                });
                assert!(found == [Rid(*n)], "{n} has {found:?}");
            }
        }
    });
}

/// Ends the others' loops when one fails.
struct StopOnPanic<'a>(&'a Shared);

impl StopOnPanic<'_> {
    fn run(self, body: impl FnOnce()) {
        body();
    }
}

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop.store(true, Relaxed);
        }
    }
}

/// Fills a stretch of keys and empties it again, in some order. Each writer has record ids of its
/// own.
fn write(shared: &Shared, seed: u64, n: u64, end: Instant) {
    let participant = shared.participants.join().unwrap();
    let mut random = Random::new(seed ^ n << 32);
    while Instant::now() < end && !shared.stop.load(Relaxed) {
        let (from, length) = (random.below(SPACE), 1 + random.below(1500));
        let copies = 1 + random.below(3);
        for round in 0..2 {
            let order = random.below(3);
            for i in 0..length {
                let i = match order {
                    0 => i,
                    1 => length - 1 - i,
                    _ => i.wrapping_mul(0x9e37_79b1) % length,
                };
                // Below and above the record id of fixed pairs, which some of these keys have.
                let rid = Rid((random.below(copies) * WRITERS + n) * 100);
                let key = key((from + i) % SPACE);
                let guard = participant.pin_without_snapshot();
                if round == 0 && random.below(32) == 0 {
                    // The next ones at once.
                    let mut keys: Vec<_> = (from + i..from + i + 100).map(|n| self::key(n % SPACE)).collect();
                    keys.sort();
                    let new = shared.tree.insert_run(&guard, keys.iter().map(|key| (key.as_slice(), rid))).unwrap();
                    let reference = |key: Vec<u8>| shared.reference.insert_sync((key, rid.0), ()).is_ok();
                    assert_eq!(new, keys.into_iter().filter_map(|key| reference(key).then_some(())).count() as u64);
                } else if round == 0 || random.below(8) == 0 {
                    let new = match random.below(2) {
                        0 => shared.tree.insert(&guard, &key, rid).unwrap(),
                        _ => shared.tree.insert_admitted(&guard, &key, rid, |_| Ok::<(), ()>(())).unwrap(),
                    };
                    assert_eq!(new, shared.reference.insert_sync((key, rid.0), ()).is_ok());
                } else {
                    for copy in 0..copies {
                        let rid = Rid((copy * WRITERS + n) * 100);
                        let removed = shared.tree.remove(&guard, &key, rid);
                        assert_eq!(removed, shared.reference.remove_sync(&(key.clone(), rid.0)));
                    }
                }
                shared.writes.fetch_add(1, Relaxed);
            }
        }
    }
    shared.stop.store(true, Relaxed);
}

fn read(shared: &Shared, seed: u64, n: u64) {
    let participant = shared.participants.join().unwrap();
    let mut random = Random::new(seed ^ (n + 100) << 32);
    let mut buffer = ScanBuffer::new();
    let mut pairs: Vec<(Vec<u8>, Rid)> = Vec::new();
    while !shared.stop.load(Relaxed) {
        let guard = participant.pin_without_snapshot();
        let mut leaves = Vec::new();
        let (from, furthest) = (random.below(SPACE), [SPACE, 1000, 1000, 50][random.below(4) as usize]);
        let (a, b) = (key(from), key((from + random.below(furthest)) % SPACE));
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        let bound = |key: &'_ [u8], random: &mut Random| match random.below(8) {
            0 => Bound::Unbounded,
            1..4 => Bound::Excluded(key.to_vec()),
            _ => Bound::Included(key.to_vec()),
        };
        let (low, high) = (bound(&low, &mut random), bound(&high, &mut random));
        let direction = if random.below(2) == 0 { Direction::Forward } else { Direction::Backward };
        let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        pairs.clear();
        let _ = shared.tree.scan(
            &guard,
            range,
            direction,
            &mut buffer,
            |leaf| leaves.push(leaf),
            |key, rid| {
                pairs.push((key.to_vec(), rid));
                ControlFlow::Continue(())
            },
        );
        check(shared, &pairs, range, direction);
        // If the leaves are unchanged after a second scan, it must have found the same.
        let mut again = 0;
        let mut same = true;
        let _ = shared.tree.scan(
            &guard,
            range,
            direction,
            &mut buffer,
            |_| {},
            |key, rid| {
                same &= pairs.get(again).is_some_and(|pair| pair.0 == key && pair.1 == rid);
                again += 1;
                ControlFlow::Continue(())
            },
        );
        if leaves.iter().all(LeafVersion::unchanged) {
            assert!(same && again == pairs.len(), "unchanged leaves, but {again} pairs after {}", pairs.len());
            shared.kept_promises.fetch_add(1, Relaxed);
        }
        for _ in 0..50 {
            let key = &shared.fixed[random.below(shared.fixed.len() as u64) as usize];
            let mut last = None;
            let mut found = false;
            let _ = shared.tree.get(&guard, key, |rid| {
                assert!(last < Some(rid), "record ids ascend");
                last = Some(rid);
                found |= rid == FIXED;
                ControlFlow::Continue(())
            });
            assert!(found, "lost {key:?}");
        }
        shared.scans.fetch_add(1, Relaxed);
    }
}

fn check(shared: &Shared, pairs: &[(Vec<u8>, Rid)], range: (Bound<&[u8]>, Bound<&[u8]>), direction: Direction) {
    for two in pairs.windows(2) {
        match direction {
            Direction::Forward => assert!(two[0] < two[1], "disorder: {two:?}"),
            Direction::Backward => assert!(two[0] > two[1], "disorder: {two:?}"),
        }
    }
    let inside = |key: &[u8]| {
        (match range.0 {
            Bound::Unbounded => true,
            Bound::Included(low) => low <= key,
            Bound::Excluded(low) => low < key,
        }) && match range.1 {
            Bound::Unbounded => true,
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
        }
    };
    if let Some(pair) = pairs.iter().find(|pair| !inside(&pair.0)) {
        panic!("{pair:?} is outside {range:?}");
    }
    let mut found = pairs.iter().filter(|pair| pair.1 == FIXED).map(|pair| &pair.0);
    let check = |key: &Vec<u8>| {
        let next = found.next();
        assert!(next == Some(key), "missed {key:?} in {range:?} {direction:?}, got {next:?}");
    };
    let expected = shared.fixed.iter().filter(|key| inside(key));
    match direction {
        Direction::Forward => expected.for_each(check),
        Direction::Backward => expected.rev().for_each(check),
    }
    assert!(found.next().is_none());
}
