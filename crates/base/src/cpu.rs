//! The processor time of threads, for reports.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// The processor time that the calling thread has used so far. Costs a system call.
pub fn thread_time() -> Duration {
    time_of(rustix::time::ClockId::ThreadCPUTime)
}

/// The same of all threads of this process.
pub fn process_time() -> Duration {
    time_of(rustix::time::ClockId::ProcessCPUTime)
}

fn time_of(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The processor time of one stage, which may be carried out by several threads, one after another
/// or at once.
#[derive(Debug, Default)]
pub struct Meter {
    nanoseconds: AtomicU64,
}

impl Meter {
    /// The time used so far, as of the last [`Stint::note`] of each thread.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    /// The calling thread begins to work on this stage.
    pub fn begin(&self) -> Stint<'_> {
        Stint { meter: self, noted: thread_time() }
    }
}

/// One thread's work on a stage; belongs to the thread that began it.
#[derive(Debug)]
pub struct Stint<'m> {
    meter: &'m Meter,
    noted: Duration,
}

impl Stint<'_> {
    /// Adds what the calling thread used since the last time.
    pub fn note(&mut self) {
        let now = thread_time();
        let used = u64::try_from(now.saturating_sub(self.noted).as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: a statistic, ordered with nothing.
        self.meter.nanoseconds.fetch_add(used, Ordering::Relaxed);
        self.noted = now;
    }
}

impl Drop for Stint<'_> {
    fn drop(&mut self) {
        self.note();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_once() {
        let meter = Meter::default();
        let before = thread_time();
        let mut stint = meter.begin();
        let mut sum = 0u64;
        while thread_time() - before < Duration::from_millis(3) {
            sum = std::hint::black_box(sum + 1);
        }
        stint.note();
        drop(stint);
        let used = thread_time() - before;
        assert!(meter.total() >= Duration::from_millis(2) && meter.total() <= used, "{:?}", meter.total());
    }
}
