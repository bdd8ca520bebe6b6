//! Models of the latch-free parts, at every interleaving that the memory model allows (loom).

use freshet_base::{
    Stamp,
    sync::{Arc, AtomicU64, Ordering, thread},
};

use crate::{
    buffer::{LogBuffer, RingRead},
    stream::{bounds::Bounds, doorbell::Doorbell},
};

/// Two writers fill what they reserved while the group commit looks: `filled` never covers a range whose bytes are not
/// there to see, and in the end it covers all.
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

/// A reader that copies while the next lap is written either sees the old bytes, whole, or is told.
#[test]
fn a_reader_never_takes_the_next_lap_for_the_old_one() {
    loom::model(|| {
        let (ring, mut flusher) = LogBuffer::new(16, Stamp(0));
        ring.frontier().fetch_add(16, Ordering::SeqCst);
        ring.write(Stamp(0), &[1; 16]);
        ring.fill_to(Stamp(16));
        flusher.done(&ring, Stamp(16));
        ring.release(Stamp(16));
        let ring = Arc::new(ring);
        let writer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let at = ring.frontier().fetch_add(8, Ordering::SeqCst);
                ring.write(Stamp(at), &[2; 8]);
                ring.fill_to(Stamp(at + 8));
            })
        };
        let mut bytes = [0; 16];
        if ring.read(Stamp(0), &mut bytes) == RingRead::Copied {
            assert_eq!(bytes, [1; 16]);
        }
        if ring.read(Stamp(16), &mut bytes[..8]) == RingRead::Copied {
            assert_eq!(bytes[..8], [2; 8]);
        }
        writer.join().unwrap();
    });
}

/// A reader that copies while the end is cut and written anew sees all old bytes, all new ones, or is told.
#[test]
fn a_reader_notices_a_cut() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (ring, mut flusher) = LogBuffer::new(32, Stamp(0));
        ring.claim(Stamp(24));
        ring.write(Stamp(0), &[1; 24]);
        ring.fill_to(Stamp(24));
        let ring = Arc::new(ring);
        let reader = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let mut bytes = [0; 16];
                if ring.read(Stamp(8), &mut bytes) == RingRead::Copied {
                    assert!(bytes == [1; 16] || bytes == [2; 16], "{bytes:?}");
                }
            })
        };
        ring.cut(&mut [&mut flusher], Stamp(8));
        ring.write(Stamp(8), &[2; 16]);
        ring.fill_to(Stamp(24));
        reader.join().unwrap();
    });
}

/// The first block into an idle log wakes the group commit, always; loom reports a deadlock otherwise.
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

/// Whoever waits for an answer ends a nap, always; a nap under loom does not end by time.
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
