//! The log buffer in persistent memory that loses what was not flushed and fenced, to find missing
//! flushes and fences. A crash is possible before every operation.

use std::cell::{Cell, RefCell};

use freshet_base::{Fid, Lsn, Rid, Term};

use freshet_memory::model::LossyLines;
pub(super) use freshet_memory::model::{Image, THREADS};

use super::{LINE, Lines, slots};
use crate::block::{Block, BlockBuilder, BlockKind, RecordKind};

/// What the model is made to forget, to show that the tests would notice.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Forget {
    Nothing,
    Flushes,
    Fences,
}

pub(super) struct Model {
    lines: RefCell<LossyLines>,
    /// Operations until the crash.
    left: Cell<u32>,
    pub(super) crashed: Cell<bool>,
    /// Which thread is at work.
    pub(super) thread: Cell<usize>,
    forget: Forget,
}

/// Of this many images at most, each is looked at; of more, a sample.
const IMAGES: usize = 4096;

impl Model {
    fn new(crash_at: u32, forget: Forget) -> Self {
        let (left, crashed, thread) = (Cell::new(crash_at), Cell::new(false), Cell::new(0));
        Self { lines: RefCell::default(), left, crashed, thread, forget }
    }

    /// Whether there was a crash before this operation.
    fn over(&self) -> bool {
        if self.left.get() == 0 {
            self.crashed.set(true);
        } else {
            self.left.set(self.left.get() - 1);
        }
        self.crashed.get()
    }
}

impl Lines for Model {
    fn store(&self, at: usize, bytes: &[u8]) {
        for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            if self.over() {
                return;
            }
            self.lines.borrow_mut().store(at / 8 + index, u64::from_le_bytes(*word));
        }
    }

    fn flush(&self, at: usize, length: usize) {
        if self.over() || self.forget == Forget::Flushes {
            return;
        }
        self.lines.borrow_mut().flush(self.thread.get(), at, length);
    }

    fn flush_received(&self, at: usize, length: usize) {
        self.flush(at, length);
    }

    fn fence(&self) {
        if self.over() || self.forget == Forget::Fences {
            return;
        }
        self.lines.borrow_mut().fence(self.thread.get());
    }
}

pub(super) fn bytes(image: &Image, at: usize, length: usize) -> Vec<u8> {
    let word = |at: usize| image.get(&(at / LINE)).map_or(0, |line| line[at % LINE / 8]);
    (at..at + length).step_by(8).flat_map(|at| word(at).to_le_bytes()).collect()
}

pub(super) fn newest(image: &Image) -> (u64, u64) {
    let bytes = bytes(image, 0, slots::BYTES);
    slots::read(bytes.as_slice().try_into().unwrap()).unwrap_or((0, 0))
}

pub(super) fn block(lsn: u64, length: usize, term: u32) -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    builder.begin();
    builder.push(None, Fid(1), Rid(lsn), RecordKind::Insert, &vec![lsn as u8 | 1; length]).unwrap();
    builder.seal_records();
    builder.finish(Lsn(lsn), Term(term), BlockKind::Redo).to_vec()
}

/// Runs `work` with a crash at every point and calls `check` for every memory that may be left.
fn at_every_crash(forget: Forget, work: impl Fn(&Model), check: impl Fn(&Model, &Image)) {
    at_every_crash_sampled(forget, IMAGES, work, check);
}

/// The same with at most this many memories after each crash.
pub(super) fn at_every_crash_sampled(
    forget: Forget,
    most: usize,
    work: impl Fn(&Model),
    check: impl Fn(&Model, &Image),
) {
    for crash_at in 0.. {
        let model = Model::new(crash_at, forget);
        work(&model);
        for image in model.lines.borrow().images(0x9E37_79B9_7F4A_7C15 ^ u64::from(crash_at), most) {
            check(&model, &image);
        }
        if !model.crashed.get() {
            return;
        }
    }
}

/// Blocks whose insertion was acknowledged are whole after any crash; they share lines with their
/// neighbours.
fn insert_blocks(forget: Forget) {
    let blocks: Vec<Vec<u8>> = [(0, 40), (104, 8), (176, 90)].map(|(at, length)| block(at, length, 1)).into();
    let acknowledged = Cell::new(0);
    let work = |model: &Model| {
        acknowledged.set(0);
        let mut at = 0;
        for block in &blocks {
            model.store(at, block);
            model.persist(at, block.len());
            at += block.len();
            if !model.crashed.get() {
                acknowledged.set(acknowledged.get() + 1);
            }
        }
    };
    at_every_crash(forget, work, |_, image| {
        let mut at = 0;
        for block in &blocks[..acknowledged.get()] {
            let bytes = bytes(image, at, block.len());
            assert!(Block::parse(&bytes, Lsn(at as u64)).is_ok(), "the block at {at} was acknowledged");
            at += block.len();
        }
    });
}

/// A value in slots is always one that was written, and never older than what was acknowledged.
fn replace_values(forget: Forget) {
    let acknowledged = Cell::new(0);
    let work = |model: &Model| {
        acknowledged.set(0);
        for sequence in 1..5 {
            slots::write(model, 0, sequence, sequence * 1000);
            if !model.crashed.get() {
                acknowledged.set(sequence);
            }
        }
    };
    at_every_crash(forget, work, |_, image| {
        let (sequence, value) = newest(image);
        assert_eq!(value, sequence * 1000, "a value that was never written");
        assert!(sequence >= acknowledged.get(), "{} was acknowledged, {sequence} found", acknowledged.get());
    });
}

#[test]
fn what_was_persisted_survives_any_crash() {
    insert_blocks(Forget::Nothing);
    replace_values(Forget::Nothing);
}

#[test]
#[should_panic(expected = "was acknowledged")]
fn a_missing_flush_is_noticed() {
    insert_blocks(Forget::Flushes);
}

#[test]
#[should_panic(expected = "was acknowledged")]
fn a_missing_fence_is_noticed() {
    insert_blocks(Forget::Fences);
}

#[test]
#[should_panic(expected = "was acknowledged")]
fn a_value_without_its_fence_is_noticed() {
    replace_values(Forget::Fences);
}

/// Replacing a value in place, in one slot, is not enough: a torn one leaves nothing.
#[test]
#[should_panic(expected = "was acknowledged")]
fn a_value_in_one_slot_is_noticed() {
    let acknowledged = Cell::new(0);
    let work = |model: &Model| {
        acknowledged.set(0);
        for sequence in [2, 4, 6] {
            // Even numbers share a slot.
            slots::write(model, 0, sequence, sequence * 1000);
            if !model.crashed.get() {
                acknowledged.set(sequence);
            }
        }
    };
    at_every_crash(Forget::Nothing, work, |_, image| {
        let (found, _) = newest(image);
        assert!(found >= acknowledged.get(), "{} was acknowledged, {found} found", acknowledged.get());
    });
}
