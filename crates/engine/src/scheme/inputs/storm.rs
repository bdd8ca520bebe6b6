//! Storms: too many of the transactions that come as inputs have to be fetched as bytes, and the
//! node had better ask for bytes. Each costs the link more than bytes alone, a round trip for those
//! who wait for its versions, and, once the primary is gone, a failover that waits for a node that
//! has it.
//!
//! A storm begins when more than a tenth of the blocks with inputs, and at least 16 of them, had to
//! be fetched within ten seconds. Then the node asks for bytes, and for inputs again after a
//! minute: whether the storm is over cannot be known before. After each storm that follows within
//! an hour that takes twice as long, up to an hour. It has no clock.

use std::time::Duration;

use serde::Serialize;

/// More than this share of the blocks is a storm,
const SHARE: f64 = 0.1;
/// if it is at least this many,
const LEAST: u64 = 16;
/// within this time.
const WITHIN: Duration = Duration::from_secs(10);
/// How long bytes are asked for: at first, and at most.
const REST: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

/// A storm that lasts: bytes are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StormStatus {
    /// What has made it one, for people.
    pub why: String,
    /// For how long bytes have been asked for.
    pub lasts: Duration,
    /// How long until inputs are asked for again.
    pub left: Duration,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// To ask for bytes; why.
    Begins(String),
    /// To ask for what was asked for before.
    Ends,
}

/// Hears what has to be fetched.
#[derive(Clone, Debug)]
pub(super) struct Storm {
    /// What has come with inputs, and had to be fetched, in this time.
    seen: (u64, u64, Duration),
    /// Why, and for how long, if there is one.
    now: Option<(String, Duration)>,
    /// How long it has been calm since the last one.
    calm: Duration,
    rest: Duration,
}

impl Default for Storm {
    fn default() -> Self {
        Self { seen: Default::default(), now: None, calm: REST.1, rest: REST.0 }
    }
}

impl Storm {
    /// In `interval` this many blocks have come with inputs, and `fetched` of them had to be
    /// fetched.
    pub fn observe(&mut self, interval: Duration, with_inputs: u64, fetched: u64) -> Option<Turn> {
        if let Some((_, lasts)) = &mut self.now {
            *lasts += interval;
            if *lasts < self.rest {
                return None;
            }
            (self.now, self.seen, self.calm) = (None, Default::default(), Duration::ZERO);
            return Some(Turn::Ends);
        }
        self.calm = self.calm.saturating_add(interval);
        let (blocks, had, time) = &mut self.seen;
        (*blocks, *had, *time) = (*blocks + with_inputs, *had + fetched, *time + interval);
        let (blocks, had, time) = self.seen;
        if had >= LEAST && had as f64 > SHARE * blocks as f64 {
            self.rest = if self.calm < REST.1 { (2 * self.rest).min(REST.1) } else { REST.0 };
            let why = format!(
                "{had} of {blocks} blocks that came with inputs within {:.0} s had to be fetched",
                time.as_secs_f64().max(1.0)
            );
            self.now = Some((why.clone(), Duration::ZERO));
            return Some(Turn::Begins(why));
        }
        if time >= WITHIN {
            self.seen = Default::default();
        }
        None
    }

    /// The one that lasts.
    pub fn status(&self) -> Option<StormStatus> {
        let (why, lasts) = self.now.as_ref()?;
        Some(StormStatus { why: why.clone(), lasts: *lasts, left: self.rest.saturating_sub(*lasts) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How many seconds of this it takes until it says something.
    fn until(storm: &mut Storm, blocks: u64, fetched: u64) -> (u64, Turn) {
        for second in 1..10_000 {
            if let Some(turn) = storm.observe(SECOND, blocks, fetched) {
                return (second, turn);
            }
        }
        panic!("it says nothing");
    }

    #[test]
    fn many_fetches_are_a_storm_and_it_comes_back_less_often_each_time() {
        let mut storm = Storm::default();
        // A tenth is none, and few are none, for ever.
        assert!((0..5000).all(|_| storm.observe(SECOND, 10_000, 1_000).is_none()));
        assert!((0..5000).all(|_| storm.observe(SECOND, 1, 1).is_none()));
        assert_eq!(storm.status(), None);
        // It is seen within ten seconds, however few transactions there are.
        let (second, turn) = until(&mut storm, 4, 4);
        assert!(second <= 10 && matches!(&turn, Turn::Begins(why) if why.contains("had to be fetched")), "{turn:?}");
        let StormStatus { lasts, left, .. } = storm.status().unwrap();
        assert_eq!((lasts, left), (Duration::ZERO, 60 * SECOND));
        for rest in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
            assert_eq!(until(&mut storm, 0, 0), (rest, Turn::Ends));
            assert_eq!(storm.status(), None);
            assert!(matches!(until(&mut storm, 50, 50), (1, Turn::Begins(_))));
        }
        assert_eq!(until(&mut storm, 0, 0), (3600, Turn::Ends));
        // After a calm hour it is the first again.
        assert!((0..3600).all(|_| storm.observe(SECOND, 10_000, 10).is_none()));
        assert!(matches!(until(&mut storm, 50, 50), (1, Turn::Begins(_))));
        assert_eq!(until(&mut storm, 0, 0), (60, Turn::Ends));
    }
}
