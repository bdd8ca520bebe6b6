//! How long slots are.
//!
//! Storage knows which columns of a row its indexes want, and not how long rows are, and SQL is
//! not to be known here. What has come of a table says more than its definition could: rows of
//! fixed columns are all as long as the first one, and of others a definition says nothing. So the
//! lengths of a table's newest rows are counted ([`Lengths`]), and each chunk gets the slots with
//! which those would have taken least.

use crate::slot::{HEADER, LEAST, LONGEST, MOST};

/// The shortest slot for rows that lie elsewhere. The next ones are longer by a quarter of the
/// power of two below, so that no row takes more than 1.25 times its length.
const SHORTEST: u64 = 64;
const STEPS: usize = 4;
/// How many sizes exist: up to a gibibyte.
pub(crate) const CLASSES: usize = 24 * STEPS + 1;

const _: () = assert!(size_of(CLASSES - 1) > LONGEST as u64 && size_of(CLASSES - 2) <= LONGEST as u64);

/// The smallest size of slots for rows elsewhere that has room for this many bytes.
pub(crate) fn class_of(bytes: u64) -> usize {
    if bytes <= SHORTEST {
        return 0;
    }
    let last = bytes - 1;
    let power = last.ilog2();
    let step = (last >> (power - STEPS.ilog2())) as usize % STEPS;
    (power - SHORTEST.ilog2()) as usize * STEPS + step + 1
}

/// How long slots of this size are.
pub(crate) const fn size_of(class: usize) -> u64 {
    ((STEPS + class % STEPS) as u64) << (class / STEPS + (SHORTEST.ilog2() - STEPS.ilog2()) as usize)
}

/// Slots of tables have multiples of this number of bytes.
pub(crate) const STEP: usize = 16;

/// How long the slot of a table is whose rows have up to this many bytes, and mostly some more.
fn slot_for(row: usize) -> u64 {
    (HEADER + row).clamp(LEAST, MOST).next_multiple_of(STEP) as u64
}

/// A row elsewhere is written whole whenever it changes, and the node that feeds has to know where
/// it is. So it counts as half as much again as it takes, with this many bytes more.
const ELSEWHERE: u64 = 64;

fn cost_elsewhere(class: usize) -> u64 {
    (size_of(class) + ELSEWHERE) * 3 / 2
}

/// Rows that may lie in slots of tables are counted by the class that they would have elsewhere.
const BUCKETS: usize = 25;
/// When as many rows were counted, each of them counts half.
const ENOUGH: u32 = 8192;

/// How long the newest rows of a table are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lengths {
    buckets: [Bucket; BUCKETS],
    /// Rows that are longer than any slot.
    longer: u32,
    all: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    rows: u32,
    longest: u32,
}

impl Lengths {
    /// Counts this many rows.
    pub fn note(&mut self, length: usize, rows: u32) {
        let rows = rows.min(ENOUGH);
        match self.buckets.get_mut(class_of(length as u64)).filter(|_| length <= MOST - HEADER) {
            Some(bucket) => {
                bucket.rows += rows;
                bucket.longest = bucket.longest.max(length as u32);
            }
            None => self.longer += rows,
        }
        self.all += rows;
        if self.all >= ENOUGH {
            self.buckets.iter_mut().for_each(Bucket::forget_half);
            self.longer /= 2;
            self.all = self.longer + self.buckets.iter().map(|bucket| bucket.rows).sum::<u32>();
        }
    }

    /// How long slots are with which these rows cost least: each of them has a slot, and some lie
    /// elsewhere.
    pub fn slot(&self) -> u64 {
        let (mut least, mut elsewhere) = ((u64::MAX, LEAST as u64), 0);
        let mut consider = |slot, elsewhere| least = least.min((u64::from(self.all) * slot + elsewhere, slot));
        for (class, bucket) in self.buckets.iter().enumerate().rev().filter(|(_, bucket)| bucket.rows > 0) {
            consider(slot_for(bucket.longest as usize), elsewhere);
            elsewhere += u64::from(bucket.rows) * cost_elsewhere(class);
        }
        consider(LEAST as u64, elsewhere);
        least.1
    }
}

impl Bucket {
    fn forget_half(&mut self) {
        self.rows /= 2;
        if self.rows == 0 {
            self.longest = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_smallest_that_has_room() {
        let mut before = 0;
        for class in 0..CLASSES {
            let size = size_of(class);
            assert_eq!((class_of(size), class_of(before + 1)), (class, class), "{size}");
            assert!(size.is_multiple_of(16) && size > before);
            assert!(before < SHORTEST || size * 4 <= before * 5, "{size} after {before}");
            before = size;
        }
        assert_eq!(class_of((MOST - HEADER) as u64) + 1, BUCKETS);
    }

    #[test]
    fn slots_are_as_long_as_costs_least() {
        let of = |rows: &[(usize, u32)]| {
            let mut lengths = Lengths::default();
            rows.iter().for_each(|(length, rows)| lengths.note(*length, *rows));
            lengths.slot()
        };
        assert_eq!((of(&[]), of(&[(0, 1)])), (LEAST as u64, LEAST as u64));
        for length in [20, 100, 1000, 3900] {
            assert_eq!(of(&[(length, 100)]), slot_for(length), "all are as long");
        }
        assert_eq!(of(&[(5000, 100)]), LEAST as u64, "all lie elsewhere");
        assert_eq!(of(&[(3900, 1), (100, 7)]), slot_for(100), "one is longer by far");
        assert_eq!(of(&[(80, 10), (90, 50), (110, 10)]), slot_for(110), "some are a little longer");
        assert_eq!(of(&[(10, 50), (3900, 50)]), LEAST as u64, "half of them are long");
        assert_eq!(of(&[(100, ENOUGH), (1000, ENOUGH), (1000, ENOUGH)]), slot_for(1000), "the newest count most");
    }
}
