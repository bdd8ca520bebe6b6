//! Passage: how long the log takes from the primary's hand-over to the readers here, where both
//! nodes have one clock.

use std::{collections::VecDeque, time::Duration};

use freshet_base::Lsn;
use freshet_cluster::Moment;

use crate::status::Passage;

/// Batches on their way that are remembered; further ones are not measured.
const WAITING: usize = 4096;
/// The newest so many count.
const SAMPLES: usize = 8192;

/// Measures each batch.
#[derive(Debug, Default)]
pub(super) struct PassageMeter {
    /// (end of the batch, when the primary's group commit handed it over), ascending.
    waiting: VecDeque<(Lsn, Moment)>,
    /// Microseconds, round and round.
    samples: Vec<u32>,
    count: u64,
}

impl PassageMeter {
    /// A batch has arrived that ends at `end`.
    pub fn arrived(&mut self, end: Lsn, filled_at: Moment) {
        if self.waiting.len() < WAITING && self.waiting.back().is_none_or(|last| last.0 < end) {
            self.waiting.push_back((end, filled_at));
        }
    }

    /// Readers see up to `visible`.
    pub fn visible(&mut self, visible: Lsn, now: Moment) {
        while let Some((_, filled_at)) = self.waiting.pop_front_if(|batch| batch.0 <= visible) {
            let took = u32::try_from(now.since(filled_at).as_micros()).unwrap_or(u32::MAX);
            if self.samples.len() < SAMPLES {
                self.samples.push(took);
            } else {
                self.samples[(self.count % SAMPLES as u64) as usize] = took;
            }
            self.count += 1;
        }
    }

    /// Another connection: what was on its way comes again.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }

    /// Of the newest batches; none before the first.
    pub fn reading(&self) -> Option<Passage> {
        let mut samples = self.samples.clone();
        samples.sort_unstable();
        let at = |percent: usize| samples.get((samples.len() * percent / 100).min(samples.len().saturating_sub(1)));
        let took = |percent| at(percent).map(|micros| Duration::from_micros(u64::from(*micros)));
        Some(Passage { p50: took(50)?, p99: took(99)?, max: took(100)?, batches: self.count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_batch_is_measured_when_all_of_it_is_visible() {
        let mut meter = PassageMeter::default();
        assert_eq!(meter.reading(), None);
        for batch in 1..=100u64 {
            meter.arrived(Lsn(batch * 10), Moment(1000));
        }
        for batch in 1..=100u64 {
            meter.visible(Lsn(batch * 10 + 9), Moment(1000 + batch));
        }
        let micros = |passage: Duration| passage.as_micros();
        let reading = meter.reading().unwrap();
        assert_eq!((micros(reading.p50), micros(reading.p99), micros(reading.max)), (51, 100, 100));
        assert_eq!(reading.batches, 100);
        meter.arrived(Lsn(5000), Moment(0));
        meter.forget();
        meter.visible(Lsn(6000), Moment(9_000_000));
        assert_eq!(meter.reading(), Some(reading));
    }
}
