//! How fast a standby completes what has come, and how long what is pending would take.

use std::time::Duration;

/// The weight of a newer rate against those before.
const WEIGHT: f64 = 0.5;
/// At the end of an interval with more than this part of what was done in it still to do, there
/// was always more to do. What may arrive is bounded, so there is never a whole interval's work.
const BUSY: u64 = 16;

/// Bytes of log completed in a second, as far as that was seen. It has no clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    rate: Option<f64>,
}

impl Pace {
    /// In `interval` this many bytes were completed; at its end others were pending.
    pub fn observe(&mut self, interval: Duration, completed: u64, pending: u64) {
        let seconds = interval.as_secs_f64();
        if completed == 0 || seconds <= 0.0 {
            return;
        }
        let rate = completed as f64 / seconds;
        self.rate = Some(match self.rate {
            // There was always more to do: it can do that much, and no more.
            Some(before) if pending >= completed / BUSY => before + WEIGHT * (rate - before),
            // It can do that much at least.
            Some(before) => before.max(rate),
            None => rate,
        });
    }

    /// How long completing this many bytes takes; nothing while no rate is known.
    pub fn left(&self, pending: u64) -> Option<Duration> {
        Duration::try_from_secs_f64(pending as f64 / self.rate?).ok()
    }

    /// How many bytes are completed in this time; nothing while no rate is known.
    pub fn within(&self, time: Duration) -> Option<u64> {
        Some((self.rate? * time.as_secs_f64()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_left_is_told_from_what_was_done() {
        let mut pace = Pace::default();
        assert_eq!((pace.left(0), pace.left(7), pace.within(SECOND)), (None, None, None));
        // While it keeps up, the best second counts.
        for completed in [200, 1000, 100, 64, 0] {
            pace.observe(SECOND, completed, 3);
        }
        assert_eq!(pace.left(500), Some(SECOND / 2));
        // Two seconds are one of twice as much.
        pace.observe(2 * SECOND, 4000, 0);
        assert_eq!((pace.left(500), pace.within(SECOND / 4)), (Some(SECOND / 4), Some(500)));
        // When it does not keep up, what it does is what it can do.
        for _ in 0..30 {
            pace.observe(SECOND, 100, 7);
        }
        assert!(pace.left(500).unwrap().abs_diff(5 * SECOND) < SECOND / 10, "{pace:?}");
        // It stands still: that says nothing about how fast it is.
        pace.observe(SECOND, 0, 10_000);
        assert!(pace.left(500).unwrap().abs_diff(5 * SECOND) < SECOND / 10, "{pace:?}");
    }
}
