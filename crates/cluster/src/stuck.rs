//! Stuck: a primary on which nothing becomes durable any more, although its threads live: its disk
//! does not answer, is full, or has failed. Keep-alives need no disk, so its standbys would not
//! notice. Where the nodes fail over by themselves, it lets them go, feeds no node, and tells no
//! candidate that it leads, until its log moves again, or another node leads.
//!
//! One whose log lacks room still answers readers, which it cannot without standbys. The others may
//! have no room either. So it lets them go for [`StuckConfig::window`] in each
//! [`StuckConfig::cycle`], in which another that has room can take its place.

use std::time::Duration;

use freshet_base::Lsn;

use crate::Moment;

/// How long each takes.
#[derive(Clone, Copy, Debug)]
pub struct StuckConfig {
    /// What was written must be durable after so long, and there must be room.
    pub patience: Duration,
    /// A primary whose log lacks room lets its standbys go for so long behind that.
    pub window: Duration,
    /// And again in each such time.
    pub cycle: Duration,
}

impl Default for StuckConfig {
    fn default() -> Self {
        // So writes stop for ten seconds and an election at most, once another node has room.
        let [patience, window, cycle] = [2, 2, 10].map(Duration::from_secs);
        Self { patience, window, cycle }
    }
}

/// What a primary sees of its log.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// It takes nothing any more.
    pub failed: bool,
    /// For how long it has waited for room, if it does.
    pub lacking: Option<Duration>,
    /// Where it is filled up to.
    pub filled: Lsn,
    /// Up to where it is durable.
    pub durable: Lsn,
}

/// How far the log of a primary has become durable.
#[derive(Clone, Debug)]
pub struct Stuck {
    config: StuckConfig,
    durable: Lsn,
    /// When it was seen to be there, or to have nothing to do.
    at: Moment,
    stuck: bool,
}

impl Stuck {
    /// A primary begins to lead, with a log that is durable up to there.
    pub fn new(config: StuckConfig, durable: Lsn, now: Moment) -> Self {
        Self { config, durable, at: now, stuck: false }
    }

    /// Looks again. Says whether the answer is another than before.
    pub fn look(&mut self, seen: &Seen, now: Moment) -> bool {
        if seen.durable > self.durable || seen.durable >= seen.filled {
            (self.durable, self.at) = (seen.durable, now);
        }
        let stuck = seen.failed
            || match seen.lacking {
                Some(lacking) => self.lets_go(lacking),
                None => now >= self.at.after(self.config.patience),
            };
        std::mem::replace(&mut self.stuck, stuck) != stuck
    }

    /// Whether another node is to lead.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Whether standbys are let go of a primary whose log has lacked room for so long.
    fn lets_go(&self, lacking: Duration) -> bool {
        let StuckConfig { patience, window, cycle } = self.config;
        let within = Duration::from_millis((lacking.as_millis() % cycle.as_millis().max(1)) as u64);
        (patience..patience + window).contains(&within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn seen(durable: u64) -> Seen {
        Seen { failed: false, lacking: None, filled: Lsn(100), durable: Lsn(durable) }
    }

    #[test]
    fn a_log_that_does_not_move_is_stuck_after_a_while_and_one_that_has_failed_at_once() {
        let mut it = Stuck::new(StuckConfig::default(), Lsn(0), Moment(0));
        assert!(!it.look(&seen(10), Moment(SECOND)));
        assert!(!it.look(&seen(10), Moment(3 * SECOND - 1)));
        assert!(it.look(&seen(10), Moment(3 * SECOND)) && it.is_stuck());
        assert!(it.look(&seen(11), Moment(4 * SECOND)) && !it.is_stuck(), "it moves");
        assert!(!it.look(&seen(100), Moment(5 * SECOND)));
        assert!(!it.look(&seen(100), Moment(50 * SECOND)), "there is nothing to do");
        assert!(it.look(&Seen { failed: true, ..seen(100) }, Moment(50 * SECOND)) && it.is_stuck());
    }

    #[test]
    fn standbys_are_let_go_now_and_then_without_room() {
        let mut it = Stuck::new(StuckConfig::default(), Lsn(0), Moment(0));
        let gone = (0..30).filter(|at| {
            let lacking = Some(Duration::from_secs(*at));
            it.look(&Seen { lacking, ..seen(10) }, Moment(at * SECOND));
            it.is_stuck()
        });
        assert_eq!(gone.collect::<Vec<_>>(), [2, 3, 12, 13, 22, 23]);
    }
}
