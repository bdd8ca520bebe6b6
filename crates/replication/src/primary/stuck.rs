//! Stuck: a primary on which nothing becomes durable any more, although its threads live: its disk
//! does not answer, is full, or has failed. Keep-alives need no disk, so its standbys would not
//! notice. Where the nodes fail over by themselves, it lets them go, feeds no node, and tells no
//! candidate that it leads, until its log moves again, or another node leads.
//!
//! One whose log lacks room still answers readers, which it cannot without standbys. The others may
//! have no room either. So it lets them go for [`WINDOW`] in each [`CYCLE`], in which another that
//! has room can take its place.

use std::time::{Duration, Instant};

use freshet_base::{Lsn, sync::MutexGuard};
use freshet_log::Log;

use super::Shared;

/// What was written must be durable after so long.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a primary whose log lacks room lets its standbys go, behind [`PATIENCE`].
const WINDOW: Duration = Duration::from_secs(5);
/// How often it does.
const CYCLE: Duration = Duration::from_secs(60);

/// How far the log has become durable.
#[derive(Debug)]
pub(super) struct Progress {
    durable: Lsn,
    /// When it was seen to be there, or to have nothing to do.
    at: Instant,
    /// It is stuck.
    stuck: bool,
}

impl Progress {
    pub fn new(log: &Log) -> Self {
        Self { durable: log.durable(), at: Instant::now(), stuck: false }
    }

    /// Looks again. Says whether the answer is another than before.
    pub fn look(&mut self, log: &Log) -> bool {
        let (durable, now) = (log.durable(), Instant::now());
        if durable > self.durable || durable >= log.filled() {
            (self.durable, self.at) = (durable, now);
        }
        let stuck = log.has_failed()
            || match log.out_of_space() {
                Some(lack) => lets_go(now.saturating_duration_since(lack.since)),
                None => now.duration_since(self.at) >= PATIENCE,
            };
        std::mem::replace(&mut self.stuck, stuck) != stuck
    }
}

impl Shared {
    /// Lets its standbys go, where they can choose another primary, when nothing becomes durable
    /// here any more.
    pub(super) fn look_whether_stuck(&self) {
        if self.config.rule.lease.is_none() {
            return;
        }
        let mut progress = self.progress();
        if !progress.look(&self.log) {
            return;
        }
        let (term, stuck) = (self.who.term.0, progress.stuck);
        drop(progress);
        if stuck {
            let waits = || self.log.out_of_space().map(|out_of_space| out_of_space.to_string());
            let cause = self.log.stall().or_else(waits).unwrap_or_else(|| "its device does not answer".into());
            tracing::error!(term, cause, "nothing becomes durable on this primary: its standbys may choose another");
            self.feeds.end();
        } else {
            tracing::warn!(term, "what is written becomes durable again: this primary feeds its standbys again");
            self.announce.ring();
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no code panics under this mutex")
    }

    /// Whether nothing becomes durable here any more, so that another node is to lead.
    pub(super) fn is_stuck(&self) -> bool {
        self.progress().stuck
    }
}

/// Whether standbys are let go of a primary whose log has lacked room for so long.
fn lets_go(lacking: Duration) -> bool {
    let within = Duration::from_millis((lacking.as_millis() % CYCLE.as_millis()) as u64);
    (PATIENCE..PATIENCE + WINDOW).contains(&within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standbys_are_let_go_for_a_while_of_each_minute_without_room() {
        let gone = (0..130).filter(|seconds| lets_go(Duration::from_secs(*seconds)));
        assert_eq!(gone.collect::<Vec<_>>(), [2, 3, 4, 5, 6, 62, 63, 64, 65, 66, 122, 123, 124, 125, 126]);
    }
}
