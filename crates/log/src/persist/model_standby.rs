//! A standby's ring in the memory that loses lines: blocks are stored by somebody else, made
//! durable in shares by several threads, acknowledged, put into segments, overwritten by the next
//! lap, and cut. Whatever is lost, what a restart finds is a log that was there, and nothing that
//! was acknowledged and not cut is missing from it.

use std::cell::RefCell;

use freshet_base::{Lsn, Term};

use super::{
    Lines,
    model::{Forget, Image, Model, THREADS, at_every_crash_sampled, block, bytes, newest},
    ring::{Ring, chain},
    slots,
};

const RING: Ring = Ring { base: slots::BYTES, capacity: 512 };
/// Memories that are looked at after each crash.
const MOST: usize = 200;

/// Rules that are left out, to show that the tests would notice.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mutant {
    None,
    /// One thread fences for all.
    OneFence,
    /// It is acknowledged when the first share is durable.
    FirstShare,
    /// Room is given back, and what the segments have is not noted.
    RoomOnly,
    /// What is cut stays in the ring.
    NoErasing,
    /// The segments are cut before the ring says that they have less.
    SegmentsFirst,
}

/// What is known outside of the memory.
#[derive(Clone, Default)]
struct World {
    /// The log as it was received, cuts included.
    log: Vec<u8>,
    acknowledged: u64,
    /// What the segments hold; another test's matter how.
    segments: u64,
    destaged: u64,
    sequence: u64,
    /// Not the log any more, but until the cut is complete it may still be found.
    before: Option<Vec<u8>>,
    terms: Vec<(Term, Lsn)>,
}

struct Standby<'a> {
    model: &'a Model,
    mutant: Mutant,
    world: &'a RefCell<World>,
}

impl Standby<'_> {
    fn alive(&self) -> bool {
        !self.model.crashed.get()
    }

    /// Somebody else puts a block of this length into the ring.
    fn receive(&self, rows: usize, term: u32) {
        if !self.alive() {
            return;
        }
        let mut world = self.world.borrow_mut();
        let at = world.log.len() as u64;
        let block = block(at, rows, term);
        assert!(at + block.len() as u64 <= world.destaged + RING.capacity, "there is room");
        for (offset, word) in block.as_chunks::<8>().0.iter().enumerate() {
            self.model.store(RING.base + ((at as usize + offset * 8) % RING.capacity as usize), word);
        }
        world.log.extend(block);
    }

    /// Persist-upon-replay: each thread its share, in any lengths; then it is acknowledged.
    fn persist(&self) {
        if !self.alive() {
            return;
        }
        let mut world = self.world.borrow_mut();
        let (from, to) = (world.acknowledged, world.log.len() as u64);
        // Not at lines' borders.
        let cut = |part: u64| Lsn((from + (to - from) * part / THREADS as u64).next_multiple_of(8).min(to));
        for part in 0..THREADS as u64 {
            self.model.thread.set(part as usize);
            if self.mutant == Mutant::OneFence && part > 0 {
                for place in (cut(part).0..cut(part + 1).0).step_by(8) {
                    self.model.flush_received(RING.base + (place % RING.capacity) as usize, 8);
                }
                continue;
            }
            RING.persist_received(self.model, cut(part), cut(part + 1));
            if self.mutant == Mutant::FirstShare && self.alive() {
                world.acknowledged = to;
            }
        }
        if self.mutant == Mutant::OneFence {
            self.model.thread.set(0);
            self.model.fence();
        }
        self.model.thread.set(0);
        if self.alive() {
            world.acknowledged = to;
        }
        // A place for a crash before anything else happens.
        self.model.fence();
    }

    fn note(&self, world: &mut World, destaged: u64) {
        world.sequence += 1;
        slots::write(self.model, 0, world.sequence, destaged);
    }

    /// What is persisted goes to the segments, and its room is free again.
    fn destage(&self) {
        if !self.alive() {
            return;
        }
        let world = &mut *self.world.borrow_mut();
        world.segments = world.acknowledged;
        let destaged = world.segments;
        if self.mutant != Mutant::RoomOnly {
            self.note(world, destaged);
        }
        world.destaged = destaged;
    }

    /// As `PersistentBuffer::take_back`, and then the segments.
    fn cut(&self, at: u64, term: u32) {
        if !self.alive() {
            return;
        }
        let world = &mut *self.world.borrow_mut();
        let end = world.log.len() as u64;
        world.before = Some(world.log.clone());
        world.log.truncate(at as usize);
        world.acknowledged = world.acknowledged.min(at);
        if self.mutant == Mutant::SegmentsFirst {
            world.segments = world.segments.min(at);
        }
        if self.mutant != Mutant::NoErasing {
            RING.erase(self.model, Lsn(at), Lsn(end));
        }
        if at < world.destaged {
            self.note(world, at);
            world.destaged = at;
        }
        if self.alive() {
            world.segments = world.segments.min(at);
            // Only then a term is entered.
            world.before = None;
            world.terms.push((Term(term), Lsn(at)));
        }
    }
}

fn check(world: &World, image: &Image, knows_terms: bool) {
    let (_, destaged) = newest(image);
    let end = world.segments;
    assert!(destaged <= end, "the ring says that the segments have {destaged}, they have {end}");
    let ring = bytes(image, RING.base, RING.capacity as usize);
    let terms: &[(Term, Lsn)] = if knows_terms { &world.terms } else { &[] };
    let rest = chain(&ring, Lsn(end), Lsn(destaged + RING.capacity), terms);
    let found = end as usize + rest.len();
    assert!(found as u64 >= world.acknowledged, "{} was acknowledged, {found} found", world.acknowledged);
    // What came after the crash is not in the memory, but in the log here.
    let was_there = |log: &[u8]| log.get(end as usize..found) == Some(&rest[..]);
    let before = world.before.as_deref().is_some_and(was_there);
    assert!(was_there(&world.log) || before, "what was found up to {found} was cut, or never there");
}

/// A life: more than two laps, with a cut below what the segments have and one above.
fn live(forget: Forget, mutant: Mutant, knows_terms: bool) {
    let world = RefCell::new(World::default());
    let work = |model: &Model| {
        world.replace(World { terms: vec![(Term(1), Lsn(0))], ..World::default() });
        let standby = Standby { model, mutant, world: &world };
        standby.destage();
        // In the middle of a lap, several blocks at once, then one after the other.
        standby.receive(40, 1);
        standby.receive(24, 1);
        standby.persist();
        standby.receive(16, 1);
        standby.persist();
        standby.destage();
        // Around the ring's end, with a block that is not persisted when the crash comes.
        standby.receive(32, 1);
        standby.receive(64, 1);
        standby.persist();
        standby.receive(48, 1);
        standby.persist();
        // What is cut lies above the segments' end; something else comes in its place.
        standby.cut(496, 2);
        standby.receive(16, 2);
        standby.persist();
        standby.destage();
        // Below it.
        standby.receive(8, 2);
        standby.receive(8, 2);
        standby.persist();
        standby.destage();
        standby.cut(648, 3);
        standby.receive(16, 3);
        standby.persist();
        standby.destage();
        assert!(!standby.alive() || world.borrow().segments == 728, "the life is as it was meant");
    };
    at_every_crash_sampled(forget, MOST, work, |_, image| check(&world.borrow(), image, knows_terms));
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_cut_comes_back() {
    live(Forget::Nothing, Mutant::None, true);
}

#[test]
fn a_cut_needs_no_terms_to_be_remembered() {
    live(Forget::Nothing, Mutant::None, false);
}

#[test]
#[should_panic(expected = "was acknowledged")]
fn a_missing_flush_is_noticed() {
    live(Forget::Flushes, Mutant::None, true);
}

#[test]
#[should_panic(expected = "was acknowledged")]
fn a_missing_fence_is_noticed() {
    live(Forget::Fences, Mutant::None, true);
}

#[test]
#[should_panic(expected = "was acknowledged")]
fn one_thread_cannot_fence_for_the_others() {
    live(Forget::Nothing, Mutant::OneFence, true);
}

#[test]
#[should_panic(expected = "was acknowledged")]
fn an_acknowledgement_before_the_last_share_is_noticed() {
    live(Forget::Nothing, Mutant::FirstShare, true);
}

#[test]
#[should_panic(expected = "was acknowledged")]
fn room_that_is_given_back_without_a_note_is_noticed() {
    live(Forget::Nothing, Mutant::RoomOnly, true);
}

#[test]
#[should_panic(expected = "was cut, or never there")]
fn a_cut_that_leaves_blocks_in_the_ring_is_noticed() {
    live(Forget::Nothing, Mutant::NoErasing, false);
}

#[test]
#[should_panic(expected = "the ring says that the segments have")]
fn segments_that_are_cut_first_are_noticed() {
    live(Forget::Nothing, Mutant::SegmentsFirst, true);
}
