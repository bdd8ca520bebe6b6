//! Lag: how far each step is behind the primary's log, known on the standby alone.
//!
//! The primary says, with every batch and every keep-alive, what time it is there and how far its
//! log reaches. Times are compared with times of the same clock only; what has passed since the
//! last word is measured here.

use std::{collections::VecDeque, time::Duration};

use freshet_base::Stamp;
use freshet_cluster::Moment;

use crate::status::Lag;

/// Words of the primary that are kept. When a standby is so far behind that they do not suffice,
/// its lag in time is told a little too large.
const LIMIT: usize = 4096;

/// Remembers when the primary's log reached which position.
#[derive(Clone, Debug, Default)]
pub(super) struct LagMeter {
    /// (end of the primary's log, when it said so, by its clock), both ascending.
    words: VecDeque<(Stamp, Moment)>,
    /// The primary's clock at its last word, and ours.
    last: Option<(Moment, Moment)>,
    end: Stamp,
    in_sync: Option<bool>,
}

impl LagMeter {
    /// The primary said at `time`, by its clock, that its log reaches `end`; it is `now` here.
    /// `visible` is where readers are.
    pub fn heard(&mut self, end: Stamp, time: Moment, in_sync: bool, visible: Stamp, now: Moment) {
        self.last = Some((time, now));
        self.in_sync = Some(in_sync);
        while self.words.front().is_some_and(|word| word.0 <= visible) {
            self.words.pop_front();
        }
        if end <= self.end {
            return;
        }
        self.end = end;
        if self.words.len() < LIMIT {
            self.words.push_back((end, time));
        } else if let Some(last) = self.words.back_mut() {
            last.0 = end;
        }
    }

    /// Another primary, another clock.
    pub fn forget(&mut self) {
        *self = Self { in_sync: self.in_sync, ..Self::default() };
    }

    /// How far the primary's log reached at its last word.
    pub fn end(&self) -> Stamp {
        self.end
    }

    pub fn in_sync(&self) -> Option<bool> {
        self.in_sync
    }

    /// How long ago the primary said anything.
    pub fn silence(&self, now: Moment) -> Option<Duration> {
        self.last.map(|(_, heard)| now.since(heard))
    }

    /// How far a step is behind that has reached `stamp`.
    pub fn at(&self, stamp: Stamp, now: Moment) -> Lag {
        let Some((time, heard)) = self.last else { return Lag::default() };
        let bytes = self.end.since(stamp);
        if bytes == 0 {
            return Lag::default();
        }
        let first_missing = self.words.partition_point(|word| word.0 <= stamp);
        let since = self.words.get(first_missing).map_or(time, |word| word.1);
        Lag { bytes, time: time.since(since) + now.since(heard) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Moment = |ms| Moment(ms * 1000);

    #[test]
    fn lag_is_what_is_missing_and_since_when() {
        let mut lag = LagMeter::default();
        assert_eq!(lag.at(Stamp(0), MS(5)), Lag::default(), "nobody has said anything");
        // The primary's clock is 1 s ahead of ours; that plays no part.
        lag.heard(Stamp(100), MS(1000), true, Stamp(0), MS(10));
        lag.heard(Stamp(200), MS(1020), true, Stamp(0), MS(30));
        lag.heard(Stamp(300), MS(1050), true, Stamp(0), MS(60));
        assert_eq!(lag.at(Stamp(300), MS(70)), Lag::default());
        assert_eq!(lag.at(Stamp(150), MS(65)), Lag { bytes: 150, time: Duration::from_millis(35) });
        assert_eq!(lag.at(Stamp(0), MS(65)), Lag { bytes: 300, time: Duration::from_millis(55) });
        // Idle: keep-alives with the same end; whoever has it all has no lag.
        lag.heard(Stamp(300), MS(1500), true, Stamp(300), MS(510));
        assert_eq!(lag.at(Stamp(300), MS(900)), Lag::default());
        assert_eq!(lag.silence(MS(520)), Some(Duration::from_millis(10)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut lag = LagMeter::default();
        for k in 1..=3 * LIMIT as u64 {
            lag.heard(Stamp(k), MS(k), true, Stamp(0), MS(k));
        }
        assert_eq!(lag.words.len(), LIMIT);
        assert_eq!(lag.at(Stamp(0), MS(3 * LIMIT as u64)).bytes, 3 * LIMIT as u64);
    }
}
