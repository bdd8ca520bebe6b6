//! Where partitions of the log end (Query Fresh, section 3.4.2).
//!
//! The virtual log is divided into partitions of one size. A partition ends where the first block
//! ends that reaches into the next one, so a partition end is always a block boundary, and a
//! standby gives each of its replay threads whole blocks without looking at any.
//!
//! Access protocol: slot `k mod slots` belongs to boundary `k`. The writer whose block crosses
//! boundary `k` stores the block's end there, after it has room and before it clears its bound; the
//! group commit reads the slot when `filled` has passed the end. (What is received is noted, and
//! collected, by the receiver alone.) There are twice as many slots as boundaries in the ring, and
//! nobody has room for boundary `k + slots` before boundary `k` was flushed, so none is overwritten
//! unread.

use freshet_base::{
    Lsn,
    sync::{AtomicU64, Ordering},
};

#[derive(Debug)]
pub(crate) struct PartitionEnds {
    shift: u32,
    slots: Box<[AtomicU64]>,
}

impl PartitionEnds {
    /// For partitions of `partition` bytes (a power of two) in a ring of `capacity`.
    pub(crate) fn new(partition: u64, capacity: u64) -> Self {
        let slots = (2 * capacity / partition).max(2);
        Self { shift: partition.trailing_zeros(), slots: (0..slots).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes a block; returns whether it ends a partition.
    #[inline]
    pub(crate) fn note(&self, start: u64, end: u64) -> bool {
        let boundary = end >> self.shift;
        let crosses = start >> self.shift != boundary;
        if crosses {
            // Relaxed: published with the block, by the release store that clears the bound.
            self.slots[boundary as usize & (self.slots.len() - 1)].store(end, Ordering::Relaxed);
        }
        crosses
    }

    /// The log was cut at `at`. Nobody notes or collects in the meantime.
    pub(crate) fn cut(&self, at: Lsn) {
        for slot in &self.slots {
            // Relaxed: the caller synchronises with those who note.
            if slot.load(Ordering::Relaxed) > at.0 {
                slot.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Collects the partition ends in `(from, to]`, ascending.
    pub(crate) fn collect(&self, from: Lsn, to: Lsn, into: &mut Vec<Lsn>) {
        into.clear();
        for boundary in (from.0 >> self.shift) + 1..=to.0 >> self.shift {
            // Relaxed: the bounds that made `to` were acquired.
            let end = self.slots[boundary as usize & (self.slots.len() - 1)].load(Ordering::Relaxed);
            // A boundary inside a long block has no end of its own.
            if end >> self.shift == boundary && end > from.0 && end <= to.0 {
                into.push(Lsn(end));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_block_ends_in_order() {
        let ends = PartitionEnds::new(64, 256);
        let mut at = 0;
        for length in [32, 40, 200, 8 + 32, 64] {
            ends.note(at, at + length);
            at += length;
        }
        let mut found = Vec::new();
        ends.collect(Lsn(0), Lsn(at), &mut found);
        assert_eq!(found, [Lsn(72), Lsn(272), Lsn(376)]);
        ends.collect(Lsn(72), Lsn(312), &mut found);
        assert_eq!(found, [Lsn(272)]);
    }
}
