//! How long executing what has come takes, by what executing other transactions took.
//!
//! Every execution is measured, without its waits for versions of others. So the figures depend on
//! the transactions alone, and not on how many there were: a standby with little to do is not slow.

use std::time::Duration;

/// The averages are over about these many transactions: what has just changed, and what is seldom,
/// must both show. The one that says that more time is needed counts.
const OVER: [u32; 2] = [32, 4096];
/// The weight of a newer share against those before.
const WEIGHT: f64 = 0.5;
/// At the end of an interval with more than this part of what was done in it still to do, there
/// was always more to do. What may arrive is bounded, so there is never a whole interval's work.
const BUSY: u64 = 16;
/// There is always room for about this many transactions.
const LEAST: f64 = 2.0;

/// What an average transaction takes.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    transactions: u32,
    seconds: f64,
    bytes: f64,
}

impl Mean {
    fn note(&mut self, over: u32, seconds: f64, bytes: f64) {
        self.transactions = (self.transactions + 1).min(over);
        let weight = 1.0 / f64::from(self.transactions);
        self.seconds += weight * (seconds - self.seconds);
        self.bytes += weight * (bytes - self.bytes);
    }
}

/// How fast transactions are executed, as far as that was seen. It has no clock.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    means: [Mean; OVER.len()],
    /// The time of all executions, and up to the last observation.
    spent: (Duration, Duration),
    /// How many are executed at once, where there is always more to do.
    at_once: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { means: Default::default(), spent: Default::default(), at_once: 1.0 }
    }
}

impl Pace {
    /// A transaction was executed, or came with its bytes, and took that long; this many bytes of
    /// log are its.
    pub fn executed(&mut self, time: Duration, bytes: u64) {
        self.spent.0 += time;
        for (mean, over) in self.means.iter_mut().zip(OVER) {
            mean.note(over, time.as_secs_f64(), bytes as f64);
        }
    }

    /// In `interval` this many bytes were completed; at its end others were pending.
    pub fn observe(&mut self, interval: Duration, completed: u64, pending: u64) {
        let (spent, seconds) = (self.spent.0 - self.spent.1, interval.as_secs_f64());
        self.spent.1 = self.spent.0;
        if completed == 0 || seconds <= 0.0 {
            return;
        }
        let at_once = (spent.as_secs_f64() / seconds).max(1.0);
        self.at_once = match pending >= completed / BUSY {
            // There was always more to do: it can do that much, and no more.
            true => self.at_once + WEIGHT * (at_once - self.at_once),
            // It can do that much at least.
            false => self.at_once.max(at_once),
        };
    }

    /// How long executing this many transactions takes; nothing while none was executed.
    pub fn left(&self, transactions: u64) -> Option<Duration> {
        Duration::try_from_secs_f64(transactions as f64 * self.seconds()? / self.at_once).ok()
    }

    /// By how much a transaction that has been executed for so long takes longer than others.
    pub fn late(&self, elapsed: Duration) -> Duration {
        let usual = self.seconds().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        elapsed.saturating_sub(usual.unwrap_or_default())
    }

    /// How many bytes of log are executed in this time, but some always are; nothing while none
    /// were.
    pub fn within(&self, time: Duration) -> Option<u64> {
        self.seconds()?;
        let bytes = self.means.iter().map(|mean| time.as_secs_f64() * self.at_once / mean.seconds * mean.bytes);
        Some(bytes.fold(f64::INFINITY, f64::min).max(LEAST * self.means[0].bytes) as u64)
    }

    fn seconds(&self) -> Option<f64> {
        let seconds = self.means.iter().filter(|mean| mean.transactions > 0).map(|mean| mean.seconds);
        seconds.reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_left_is_estimated_from_what_executing_took() {
        let mut pace = Pace::default();
        assert_eq!((pace.left(7), pace.within(SECOND)), (None, None));
        // Scans that take long and write little.
        for _ in 0..100 {
            pace.executed(50 * MS, 300);
        }
        assert!(pace.left(20).unwrap().abs_diff(SECOND) < MS, "{pace:?}");
        assert!(pace.within(200 * MS).unwrap().abs_diff(1200) <= 1, "{pace:?}");
        // There is room for one, however short the time.
        assert!(pace.within(Duration::ZERO).unwrap() >= 300);
        // One that is late takes its time from the others.
        assert!(pace.late(70 * MS).abs_diff(20 * MS) < MS, "{pace:?}");
        // Four were executed at once, all the time.
        for _ in 0..40 {
            (0..80).for_each(|_| pace.executed(50 * MS, 300));
            pace.observe(SECOND, 80 * 300, 80 * 300);
        }
        assert!(pace.within(200 * MS).unwrap().abs_diff(4800) <= 10, "{pace:?}");
        assert!(pace.left(80).unwrap().abs_diff(SECOND) < 10 * MS, "{pace:?}");
        // An idle second says nothing else.
        pace.observe(SECOND, 0, 0);
        pace.observe(SECOND, 300, 0);
        assert!(pace.within(200 * MS).unwrap().abs_diff(4800) <= 10, "{pace:?}");
    }

    #[test]
    fn what_changes_shows_at_once_and_what_is_seldom_is_not_forgotten() {
        let mut pace = Pace::default();
        (0..10_000).for_each(|_| pace.executed(MS / 20, 1000));
        let fast = pace.within(SECOND).unwrap();
        assert!(fast.abs_diff(20_000_000) < 100_000, "{fast}");
        // A hundred slow ones, and the room is theirs.
        (0..100).for_each(|_| pace.executed(50 * MS, 300));
        let slow = pace.within(SECOND).unwrap();
        assert!(slow < 8_000, "{slow}");
        // Every hundredth is slow: that is not forgotten between two.
        for number in 0..20_000 {
            pace.executed(if number % 100 == 0 { 50 * MS } else { MS / 20 }, 1000);
        }
        (0..60).for_each(|_| pace.executed(MS / 20, 1000));
        let mixed = pace.within(SECOND).unwrap();
        assert!((1_500_000..2_200_000).contains(&mixed), "{mixed}");
        // What comes with its bytes takes no time.
        (0..50_000).for_each(|_| pace.executed(Duration::ZERO, 1000));
        assert!(pace.within(SECOND).unwrap() > 1 << 30);
    }
}
