//! Lag: how far each step is behind the primary's log, known on the standby alone.
//!
//! The primary says, with every batch and every keep-alive, what time it is there and how far its
//! log reaches. Times are compared with times of the same clock only; what has passed since the
//! last word is measured here.

use std::{collections::VecDeque, time::Duration};

use freshet_base::Lsn;
use freshet_cluster::{Moment, host::Word};

use crate::{
    link::Quickest,
    status::{Lag, STALE},
};

/// Words of the primary that are kept. When a standby is so far behind that they do not suffice,
/// its lag in time is told a little too large.
const LIMIT: usize = 4096;

/// A clock that is being put right, by 500 in a million at most, parts from the other's by less
/// than one in this number.
const DRIFT: i128 = 1000;

/// Remembers when the primary's log reached which position.
#[derive(Clone, Debug, Default)]
pub(super) struct LagMeter {
    /// (end of the primary's log, when it said so, by its clock), both ascending.
    words: VecDeque<(Lsn, Moment)>,
    /// The primary's clock at its last word, and ours when that was true: it may have waited here
    /// while this node stood still, or have come from a primary without a lease, or from a relay
    /// that heard it a while ago.
    last: Option<(Moment, Moment)>,
    quickest: Quickest,
    end: Lsn,
    /// How far the log reached at the primary's first word: when it reached less, it has not said.
    first: Lsn,
    /// Everything below is committed there, by its last word.
    global: Lsn,
    /// Since when there is something that is not, by our clock.
    commits_nothing: Option<Moment>,
    in_sync: Option<bool>,
}

impl LagMeter {
    /// A word of the primary has come; it is `now` here. `visible` is where readers are.
    pub fn observe(&mut self, Word { end, time, sure }: Word, in_sync: bool, visible: Lsn, now: Moment) {
        if self.last.is_none() {
            self.first = end;
        }
        let late = (self.quickest.late(time, now, DRIFT) / 1000) as u64;
        self.last = Some((time, Moment(now.0.saturating_sub(late + time.since(sure).as_micros() as u64))));
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

    /// Another primary, another clock; or the same one after a while that nothing is known of.
    pub fn forget(&mut self) {
        *self = Self { in_sync: self.in_sync, ..Self::default() };
    }

    /// The primary said that everything below `global` is committed; its log reaches `end`.
    pub fn committed(&mut self, global: Lsn, end: Lsn, now: Moment) {
        if global >= end {
            self.commits_nothing = None;
        } else if global > self.global || self.commits_nothing.is_none() {
            self.commits_nothing = Some(now);
        }
        self.global = self.global.max(global);
    }

    /// How long the primary has committed nothing, although there was something to commit, by its
    /// last word.
    pub fn commits_nothing(&self, now: Moment) -> Option<Duration> {
        let since = self.commits_nothing.filter(|_| self.is_known(now))?;
        Some(now.since(since))
    }

    /// How far the primary's log reached at its last word.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// Whether the primary counts on this node, if it has said so a moment ago.
    pub fn in_sync(&self, now: Moment) -> Option<bool> {
        self.in_sync.filter(|_| self.is_known(now))
    }

    /// Whether the primary has said something a moment ago.
    fn is_known(&self, now: Moment) -> bool {
        self.silence(now).is_some_and(|silence| silence < STALE)
    }

    /// How long ago the primary, which was sure then that it leads, said anything.
    pub fn silence(&self, now: Moment) -> Option<Duration> {
        self.last.map(|(_, arrived)| now.since(arrived))
    }

    /// How far a step is behind that has reached `lsn`; none where nobody knows.
    pub fn at(&self, lsn: Lsn, now: Moment) -> Option<Lag> {
        if !self.is_known(now) {
            return None;
        }
        let bytes = self.end.since(lsn);
        if bytes == 0 {
            return Some(Lag::default());
        }
        let (_, arrived) = self.last?;
        Some(Lag { bytes, time: self.before_last(lsn).map(|time| time + now.since(arrived)) })
    }

    /// How old what readers see may be who are at `lsn`; none where nobody knows. It grows
    /// while the primary is silent.
    pub fn age(&self, lsn: Lsn, now: Moment) -> Option<Duration> {
        Some(self.silence(now)? + self.before_last(lsn)?)
    }

    /// How long before its last word the primary's log went beyond `lsn`, if it has said so.
    fn before_last(&self, lsn: Lsn) -> Option<Duration> {
        let (time, _) = self.last?;
        if self.end <= lsn {
            return Some(Duration::ZERO);
        }
        if lsn < self.first {
            return None;
        }
        let first_missing = self.words.partition_point(|word| word.0 <= lsn);
        let since = self.words.get(first_missing).map_or(time, |word| word.1);
        Some(time.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Moment = |ms| Moment(ms * 1000);

    /// Of a primary that is sure that it leads.
    fn word(end: Lsn, time: Moment) -> Word {
        Word { end, time, sure: time }
    }

    /// What waited while this node stood still is as old as when it was sent.
    #[test]
    fn words_are_as_old_as_they_waited() {
        let mut lag = LagMeter::default();
        (0..10).for_each(|k| lag.observe(word(Lsn(100), MS(100 * k)), true, Lsn(100), MS(7 + 100 * k)));
        assert_eq!(lag.age(Lsn(100), MS(910)), Some(Duration::from_millis(3)));
        lag.observe(word(Lsn(100), MS(1000)), true, Lsn(100), MS(6907));
        let age = lag.age(Lsn(100), MS(6907)).unwrap();
        assert!((5880..5901).contains(&age.as_millis()), "{age:?}");
        lag.observe(word(Lsn(100), MS(6901)), true, Lsn(100), MS(6909));
        assert!(lag.age(Lsn(100), MS(6909)).unwrap() < Duration::from_millis(10));
    }

    /// A primary that was cut off still sends words, and so does a relay without a primary.
    #[test]
    fn words_are_as_old_as_the_primary_was_sure() {
        let mut lag = LagMeter::default();
        lag.observe(word(Lsn(100), MS(1000)), true, Lsn(100), MS(10));
        assert_eq!(lag.age(Lsn(100), MS(20)), Some(Duration::from_millis(10)));
        lag.observe(Word { sure: MS(1100), ..word(Lsn(100), MS(3000)) }, true, Lsn(100), MS(2010));
        assert_eq!(lag.age(Lsn(100), MS(2020)), Some(Duration::from_millis(1910)));
        lag.observe(Word { sure: MS(1100), ..word(Lsn(100), MS(9000)) }, true, Lsn(100), MS(8010));
        assert_eq!((lag.at(Lsn(100), MS(8010)), lag.in_sync(MS(8010))), (None, None), "it may count on others by now");
        lag.observe(word(Lsn(100), MS(9100)), true, Lsn(100), MS(8110));
        assert_eq!((lag.age(Lsn(100), MS(8110)), lag.in_sync(MS(8110))), (Some(Duration::ZERO), Some(true)));
    }

    #[test]
    fn lag_is_what_is_missing_and_since_when() {
        let mut lag = LagMeter::default();
        assert_eq!(lag.at(Lsn(0), MS(5)), None, "nobody has said anything");
        assert_eq!((lag.age(Lsn(0), MS(5)), lag.in_sync(MS(5))), (None, None));
        // The primary's clock is 1 s ahead of ours; that plays no part.
        lag.observe(word(Lsn(100), MS(1000)), true, Lsn(0), MS(10));
        lag.observe(word(Lsn(200), MS(1020)), true, Lsn(0), MS(30));
        lag.observe(word(Lsn(300), MS(1050)), true, Lsn(0), MS(60));
        let behind = |bytes, ms: Option<u64>| Some(Lag { bytes, time: ms.map(Duration::from_millis) });
        assert_eq!(lag.at(Lsn(300), MS(70)), Some(Lag::default()));
        assert_eq!(lag.at(Lsn(150), MS(65)), behind(150, Some(35)));
        assert_eq!(lag.age(Lsn(150), MS(65)), Some(Duration::from_millis(35)));
        // The log was there already when this standby came: since when, nobody has said.
        assert_eq!(lag.at(Lsn(0), MS(65)), behind(300, None));
        assert_eq!(lag.age(Lsn(0), MS(65)), None);
        // Idle: keep-alives with the same end; whoever has it all has no lag.
        lag.observe(word(Lsn(300), MS(1500)), true, Lsn(300), MS(510));
        assert_eq!(lag.at(Lsn(300), MS(900)), Some(Lag::default()));
        assert_eq!(lag.silence(MS(520)), Some(Duration::from_millis(10)));
        assert_eq!(lag.in_sync(MS(900)), Some(true));
        // A primary that is frozen, or cut off: nobody knows what it has by now.
        assert_eq!((lag.at(Lsn(300), MS(3000)), lag.in_sync(MS(3000))), (None, None));
        assert_eq!(lag.age(Lsn(300), MS(3000)), Some(Duration::from_millis(2490)));
        lag.observe(word(Lsn(300), MS(4000)), true, Lsn(300), MS(3010));
        assert_eq!(lag.at(Lsn(300), MS(3020)), Some(Lag::default()));
    }

    #[test]
    fn a_primary_that_commits_nothing_is_noticed() {
        let mut lag = LagMeter::default();
        let observe = |lag: &mut LagMeter, end, global, at| {
            lag.observe(word(Lsn(end), MS(at)), true, Lsn(global), MS(at));
            lag.committed(Lsn(global), Lsn(end), MS(at));
        };
        observe(&mut lag, 100, 100, 10);
        assert_eq!(lag.commits_nothing(MS(1000)), None, "there is nothing to commit");
        observe(&mut lag, 200, 100, 1000);
        observe(&mut lag, 300, 150, 1100);
        observe(&mut lag, 400, 150, 2000);
        assert_eq!(lag.commits_nothing(MS(2100)), Some(Duration::from_millis(1000)));
        observe(&mut lag, 400, 400, 2200);
        assert_eq!(lag.commits_nothing(MS(2300)), None);
        observe(&mut lag, 500, 400, 2400);
        assert_eq!(lag.commits_nothing(MS(9000)), None, "nobody knows");
    }

    #[test]
    fn memory_is_bounded() {
        let mut lag = LagMeter::default();
        for k in 1..=3 * LIMIT as u64 {
            lag.observe(word(Lsn(k), MS(k)), true, Lsn(0), MS(k));
        }
        assert_eq!(lag.words.len(), LIMIT);
        assert_eq!(lag.at(Lsn(0), MS(3 * LIMIT as u64)).unwrap().bytes, 3 * LIMIT as u64);
    }
}
