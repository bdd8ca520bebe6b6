//! How much of a processor a thread in the background takes.

use std::time::Duration;

use freshet_base::cpu::thread_time;

/// A thread that works for less than this does not rest yet.
const STINT: Duration = Duration::from_millis(1);

/// Keeps a thread, the one that made it, from taking more than its share of a processor.
pub(super) struct Pace {
    percent: u32,
    worked: Duration,
}

impl Pace {
    /// `percent` of a processor, 1 to 100.
    pub fn new(percent: u32) -> Self {
        Self { percent: percent.clamp(1, 100), worked: thread_time() }
    }

    /// For how long the thread has to rest after the work since the last rest, if it is time to.
    pub fn due(&self) -> Option<Duration> {
        let worked = thread_time() - self.worked;
        (worked >= STINT).then(|| worked * (100 - self.percent) / self.percent)
    }

    /// It has rested.
    pub fn rested(&mut self) {
        self.worked = thread_time();
    }
}
