//! Where transactions end in the newest stretch of a log.
//!
//! A transaction that is longer than one block is a row of blocks, all but the last marked
//! "continued". How far a log is filled, durable or replayed is told block by block, and so may lie
//! within such a transaction; what readers see, what clients are told, and where a log is cut never
//! does. To pass from the one to the other, ask here for the last end of a transaction at or
//! below an LSN.
//!
//! Not every end is entered: about one for each 16 KiB of log, and the last of each batch, so that
//! a watermark comes up to the end of every batch. Their number is bounded.

use std::collections::VecDeque;

use freshet_base::Lsn;

/// Within a batch, ends are entered about this many bytes apart.
pub(crate) const SPACING: u64 = 16 << 10;
/// When there are more than this many, every second one is forgotten: those who wait for one of
/// them wait for the next instead.
const LIMIT: usize = 1 << 15;

/// Ends of transactions, ascending.
#[derive(Clone, Debug)]
pub struct TransactionEnds(VecDeque<Lsn>);

impl TransactionEnds {
    /// For a log that ends at `start`, where no transaction is under way.
    pub fn new(start: Lsn) -> Self {
        Self(VecDeque::from([start]))
    }

    /// A transaction ends at `end`. Those that are entered ascend.
    pub fn enter(&mut self, end: Lsn) {
        if self.last() >= end {
            return;
        }
        self.0.push_back(end);
        if self.0.len() > LIMIT {
            let mut number = 0;
            let last = self.last();
            self.0.retain(|end| {
                number += 1;
                number % 2 == 1 || *end == last
            });
        }
    }

    /// The last known end at or below `at`; zero when that is not known any more.
    pub fn below(&self, at: Lsn) -> Lsn {
        let above = self.0.partition_point(|end| *end <= at);
        above.checked_sub(1).map_or(Lsn::ZERO, |last| self.0[last])
    }

    /// The last known end of all.
    pub fn last(&self) -> Lsn {
        self.0.back().copied().unwrap_or_default()
    }

    /// Nobody will ask for anything below `at` any more.
    pub fn forget(&mut self, at: Lsn) {
        let above = self.0.partition_point(|end| *end <= at);
        self.0.drain(..above.saturating_sub(1));
    }

    /// The log was cut at `at`.
    pub fn cut(&mut self, at: Lsn) {
        self.0.truncate(self.0.partition_point(|end| *end <= at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_end_is_always_known() {
        let mut ends = TransactionEnds::new(Lsn(100));
        for end in (200..4_000_000_000).step_by(7_777) {
            ends.enter(Lsn(end));
            assert_eq!((ends.last(), ends.below(Lsn(end + 50))), (Lsn(end), Lsn(end)));
            assert!(ends.0.len() <= LIMIT);
        }
        assert!(ends.0.iter().is_sorted());
        let known: Vec<_> = ends.0.iter().copied().collect();
        for pair in known.windows(2) {
            assert_eq!(ends.below(Lsn(pair[1].0 - 1)), pair[0]);
        }
        assert_eq!(ends.below(Lsn(99)), Lsn::ZERO);
        let middle = known[known.len() / 2];
        ends.forget(Lsn(middle.0 + 1));
        assert_eq!((ends.below(middle), ends.below(Lsn(middle.0 - 1))), (middle, Lsn::ZERO));
        ends.cut(Lsn(middle.0 + 1));
        assert_eq!(ends.last(), middle);
        ends.enter(Lsn(middle.0 + 8));
        assert_eq!(ends.last(), Lsn(middle.0 + 8));
    }
}
