//! The processor time of threads, for reports.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sync::{AtomicU64, Ordering};

/// The processor time that the calling thread has used so far. Costs a system call.
pub fn thread_time() -> Duration {
    time_of(rustix::time::ClockId::ThreadCPUTime)
}

/// The same of all threads of this process.
pub fn process_time() -> Duration {
    time_of(rustix::time::ClockId::ProcessCPUTime)
}

/// What processors have done since the machine started, summed over them, in the system's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticks {
    /// For how long they have been there.
    pub all: u64,
    /// For how long of that they had nothing to do.
    pub idle: u64,
}

impl Ticks {
    /// In which share of the time since `before`, which was looked up earlier, they had nothing to
    /// do; nothing when no tick has passed.
    pub fn idle_since(&self, before: &Self) -> Option<f64> {
        let all = self.all.saturating_sub(before.all);
        (all > 0).then(|| self.idle.saturating_sub(before.idle) as f64 / all as f64)
    }
}

/// Of those processors that the calling thread may use; nothing where the system does not say.
/// Reads a file of the system's.
pub fn ticks() -> Option<Ticks> {
    let usable = rustix::thread::sched_getaffinity(None).ok()?;
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    ticks_in(&stat, |processor| processor < rustix::thread::CpuSet::MAX_CPU && usable.is_set(processor))
}

/// The same from the text of that file.
fn ticks_in(stat: &str, counts: impl Fn(usize) -> bool) -> Option<Ticks> {
    let mut found = Ticks::default();
    for line in stat.lines() {
        let mut words = line.split_ascii_whitespace();
        let number = words.next().and_then(|word| word.strip_prefix("cpu")?.parse().ok());
        if !number.is_some_and(&counts) {
            continue;
        }
        // user, nice, system, idle, waits for devices, two kinds of interrupts, taken by the host.
        let times: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        found.all += times.iter().sum::<u64>();
        found.idle += times.iter().skip(3).take(2).sum::<u64>();
    }
    (found.all > 0).then_some(found)
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
    fn idle_processors_are_those_that_count() {
        let stat =
            "cpu  9 9 9 9 9\ncpu0 10 1 5 100 20 1 2 3 50 50\ncpu1 7 0 0 40 0 0 0 0 0 0\ncpu12 1 1 1 1\nintr 5 6\n";
        assert_eq!(ticks_in(stat, |_| true), Some(Ticks { all: 142 + 47 + 4, idle: 120 + 40 + 1 }));
        assert_eq!(ticks_in(stat, |processor| processor == 1), Some(Ticks { all: 47, idle: 40 }));
        assert_eq!(ticks_in(stat, |_| false), None);
        assert_eq!(ticks_in("cpu0 x\ncpu\n", |_| true), None);
        let before = Ticks { all: 100, idle: 60 };
        assert_eq!(Ticks { all: 140, idle: 70 }.idle_since(&before), Some(0.25));
        assert_eq!(before.idle_since(&before), None);
    }

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
