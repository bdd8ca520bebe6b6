//! Models of the latch-free parts, at every interleaving that the memory model allows (loom).
//!
//! Blocks are dealt out to streams under a lock, so the order of whole steps is all that matters
//! there: `runs::tests` tries them all. What the parts come to together is in
//! `tests/watermark_rules`.

use freshet_base::{
    Lsn,
    sync::{Arc, AtomicU64, Ordering, thread},
};

use crate::{
    buffer::{LogBuffer, RingRead},
    stream::{bounds::Bounds, dirty::Dirty, doorbell::Doorbell},
};

/// Two writers fill what they reserved while the group commit looks: `filled` never covers a range
/// whose bytes are not there to see, and in the end it covers all.
#[test]
fn filled_never_covers_an_unfilled_reservation() {
    struct World {
        bounds: Bounds,
        reserved: AtomicU64,
        log: [AtomicU64; 3],
    }
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let world = Arc::new(World {
            bounds: Bounds::new(2),
            reserved: AtomicU64::new(0),
            log: std::array::from_fn(|_| AtomicU64::new(0)),
        });
        let write = |world: &World, slot: usize| {
            let start = world.bounds.take(slot, &world.reserved, 1);
            // Relaxed, as in the ring: only the bounds order it.
            world.log[start as usize].store(1, Ordering::Relaxed);
            world.bounds.clear(slot);
        };
        let writer = {
            let world = Arc::clone(&world);
            let slot = world.bounds.claim().unwrap();
            thread::spawn(move || {
                write(&world, slot);
                // Once more: the second bound must not uncover the first block.
                write(&world, slot);
            })
        };
        let other = {
            let world = Arc::clone(&world);
            let slot = world.bounds.claim().unwrap();
            thread::spawn(move || write(&world, slot))
        };
        let look = |world: &World| {
            let filled = world.bounds.filled(&world.reserved);
            for place in &world.log[..filled as usize] {
                assert_eq!(place.load(Ordering::Relaxed), 1, "filled up to {filled}");
            }
            filled
        };
        look(&world);
        writer.join().unwrap();
        other.join().unwrap();
        assert_eq!(look(&world), 3);
    });
}

/// A transaction is filled in part by part while another writer continues and the group commit
/// looks: what was filled of it counts, and no more.
#[test]
fn filled_never_covers_an_unfilled_part() {
    struct World {
        bounds: Bounds,
        reserved: AtomicU64,
        log: [AtomicU64; 3],
    }
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let world = Arc::new(World {
            bounds: Bounds::new(2),
            reserved: AtomicU64::new(0),
            log: std::array::from_fn(|_| AtomicU64::new(0)),
        });
        let writer = {
            let world = Arc::clone(&world);
            let slot = world.bounds.claim().unwrap();
            thread::spawn(move || {
                // As `Reservation::put`.
                let start = world.bounds.take(slot, &world.reserved, 2);
                world.log[start as usize].store(1, Ordering::Relaxed);
                world.bounds.sharpen(slot, start + 1);
                world.log[start as usize + 1].store(1, Ordering::Relaxed);
                world.bounds.clear(slot);
            })
        };
        let other = {
            let world = Arc::clone(&world);
            let slot = world.bounds.claim().unwrap();
            thread::spawn(move || {
                let start = world.bounds.take(slot, &world.reserved, 1);
                world.log[start as usize].store(1, Ordering::Relaxed);
                world.bounds.clear(slot);
            })
        };
        let look = || {
            let filled = world.bounds.filled(&world.reserved);
            for place in &world.log[..filled as usize] {
                assert_eq!(place.load(Ordering::Relaxed), 1, "filled up to {filled}");
            }
            filled
        };
        look();
        writer.join().unwrap();
        other.join().unwrap();
        assert_eq!(look(), 3);
    });
}

/// A reader that copies while the next lap is written either sees the old bytes, whole, or is told.
#[test]
fn a_reader_never_takes_the_next_lap_for_the_old_one() {
    loom::model(|| {
        let (ring, mut flusher) = LogBuffer::new(16, Lsn(0));
        ring.reserved().fetch_add(16, Ordering::SeqCst);
        ring.write(Lsn(0), &[1; 16]);
        ring.fill_to(Lsn(16));
        flusher.done(&ring, Lsn(16));
        ring.release(Lsn(16));
        let ring = Arc::new(ring);
        let writer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let at = ring.reserved().fetch_add(8, Ordering::SeqCst);
                ring.write(Lsn(at), &[2; 8]);
                ring.fill_to(Lsn(at + 8));
            })
        };
        let mut bytes = [0; 16];
        if ring.read(Lsn(0), &mut bytes) == RingRead::Copied {
            assert_eq!(bytes, [1; 16]);
        }
        if ring.read(Lsn(16), &mut bytes[..8]) == RingRead::Copied {
            assert_eq!(bytes[..8], [2; 8]);
        }
        writer.join().unwrap();
    });
}

/// A reader that copies while the end is cut and written again sees all old bytes, all new ones, or
/// is told.
#[test]
fn a_reader_notices_a_cut() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (ring, mut flusher) = LogBuffer::new(32, Lsn(0));
        ring.claim(Lsn(24));
        ring.write(Lsn(0), &[1; 24]);
        ring.fill_to(Lsn(24));
        let ring = Arc::new(ring);
        let reader = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let mut bytes = [0; 16];
                if ring.read(Lsn(8), &mut bytes) == RingRead::Copied {
                    assert!(bytes == [1; 16] || bytes == [2; 16], "{bytes:?}");
                }
            })
        };
        ring.cut(&mut [&mut flusher], Lsn(8));
        ring.write(Lsn(8), &[2; 16]);
        ring.fill_to(Lsn(24));
        reader.join().unwrap();
    });
}

/// The first block into an idle log wakes the group commit, always; loom reports a deadlock
/// otherwise.
#[test]
fn the_first_block_wakes_the_sleeper() {
    loom::model(|| {
        let world = Arc::new((Doorbell::new(), AtomicU64::new(0)));
        let worker = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.1.fetch_add(1, Ordering::SeqCst);
                world.0.ring_if_asleep();
            })
        };
        while world.1.load(Ordering::SeqCst) == 0 {
            world.0.sleep(|| world.1.load(Ordering::SeqCst) > 0);
        }
        worker.join().unwrap();
    });
}

/// A thread that waits for an answer ends a nap, always; a nap under loom does not end by time.
#[test]
fn a_waiting_client_ends_the_nap() {
    loom::model(|| {
        let world = Arc::new((Doorbell::new(), AtomicU64::new(0)));
        let client = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.1.fetch_max(1, Ordering::SeqCst);
                world.0.ring();
            })
        };
        while world.1.load(Ordering::SeqCst) == 0 {
            world.0.nap(std::time::Duration::from_secs(1), false, || world.1.load(Ordering::SeqCst) > 0);
        }
        client.join().unwrap();
    });
}

/// Workers of passive group commit, and what their processors hold back.
struct Unfenced {
    bounds: Bounds,
    reserved: AtomicU64,
    slots: [Dirty; 2],
    /// By worker: the last block that it has copied, plus one; zero when nothing is held back.
    held: [AtomicU64; 2],
    /// By block.
    durable: [AtomicU64; 3],
}

impl Unfenced {
    fn new() -> Self {
        let this = Self {
            bounds: Bounds::new(2),
            reserved: AtomicU64::new(0),
            slots: std::array::from_fn(|_| Dirty::new()),
            held: std::array::from_fn(|_| AtomicU64::new(0)),
            durable: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        while this.bounds.claim().is_some() {}
        this
    }

    /// What the worker's processor holds back becomes durable. Relaxed: only the slots and bounds
    /// order it.
    fn drain(&self, worker: usize) {
        if let Some(block) = self.held[worker].load(Ordering::Relaxed).checked_sub(1) {
            self.durable[block as usize].store(1, Ordering::Relaxed);
        }
    }

    /// As `Reservation::put_persistently`.
    fn write(&self, worker: usize) {
        let lsn = self.bounds.take(worker, &self.reserved, 1);
        self.slots[worker].settle(|| self.drain(worker));
        self.held[worker].store(lsn + 1, Ordering::Relaxed);
        self.slots[worker].leave_open(lsn);
        self.bounds.clear(worker);
    }

    /// As `Shared::advance_persistent`.
    fn look(&self, force_fence: bool) -> u64 {
        let filled = self.bounds.filled(&self.reserved);
        if force_fence {
            let seen = [0, 1].map(|worker: usize| self.slots[worker].seen());
            // The barrier runs on every processor: whatever was stored before a slot was seen is
            // drained.
            (0..2).for_each(|worker| self.drain(worker));
            seen.into_iter().zip(&self.slots).filter(|(seen, _)| *seen != 0).for_each(|(seen, slot)| slot.clean(seen));
        }
        let dirty = self.slots.iter().filter_map(|slot| slot.seen().checked_sub(1));
        let durable = dirty.fold(filled, u64::min);
        for (lsn, block) in self.durable[..durable as usize].iter().enumerate() {
            assert_eq!(block.load(Ordering::Relaxed), 1, "durable up to {durable}, and block {lsn} is not");
        }
        durable
    }
}

/// Whatever a look calls durable was fenced, by its worker or by a forced fence; and a forced fence
/// leaves no stragglers.
#[test]
fn no_unfenced_block_is_called_durable() {
    for force_fence in [false, true] {
        let mut model = loom::model::Builder::new();
        // With three it takes a minute.
        model.preemption_bound = Some(2);
        model.check(move || {
            let world = Arc::new(Unfenced::new());
            let workers = [1, 2].map(|blocks| {
                let world = Arc::clone(&world);
                thread::spawn(move || (0..blocks).for_each(|_| world.write(blocks - 1)))
            });
            world.look(force_fence);
            for worker in workers {
                worker.join().unwrap();
            }
            assert_eq!(world.look(true), 3);
        });
    }
}

/// A handler runs on a thread whose writer moves to another one: it does not take that one's block
/// for fenced.
#[test]
fn a_force_fence_of_the_former_owner_leaves_the_new_ones_block_alone() {
    loom::model(|| {
        let world = Arc::new((Unfenced::new(), AtomicU64::new(0)));
        world.0.write(0);
        // The writer moves, which drains what its first thread held back.
        world.0.drain(0);
        let mover = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let (log, owner) = &*world;
                let lsn = log.bounds.take(0, &log.reserved, 1);
                log.slots[0].settle(|| log.drain(1));
                log.held[1].store(lsn + 1, Ordering::Relaxed);
                owner.store(1, Ordering::Release);
                log.slots[0].leave_open(lsn);
                log.bounds.clear(0);
            })
        };
        let (log, owner) = &*world;
        log.drain(0);
        log.slots[0].clean_own(|| owner.load(Ordering::Acquire) == 0);
        log.look(false);
        mover.join().unwrap();
        assert_eq!(log.look(false), 1);
    });
}
