//! Stuck: a primary on which nothing becomes durable any more, although its threads live: its disk
//! does not answer, is full, or has failed. Keep-alives need no disk, so its standbys would not
//! notice. Where the nodes fail over by themselves, it lets them go, feeds no node, and tells no
//! candidate that it leads, until its log moves again, or another node leads.

use std::time::{Duration, Instant};

use freshet_base::Lsn;
use freshet_log::Log;

/// What was written must be durable after so long.
const PATIENCE: Duration = Duration::from_secs(2);

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
        let stuck = log.has_failed() || now.duration_since(self.at) >= PATIENCE;
        std::mem::replace(&mut self.stuck, stuck) != stuck
    }

    pub fn is_stuck(&self) -> bool {
        self.stuck
    }
}
