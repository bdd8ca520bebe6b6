//! Load: how busy this standby is, or this mirror. The thread that acknowledges looks about once a
//! second, and the node that is followed is told with each acknowledgement.

use std::time::{Duration, Instant};

use freshet_base::cpu::{Ticks, ticks};

use crate::status::Load;

/// It looks this often.
const EVERY: Duration = Duration::from_secs(1);

/// What a node has done so far for what it follows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// For how long something was on its way to it, as far as it knows.
    pub link_busy: Duration,
    /// Processor time.
    pub following: Duration,
}

/// Looks again and again.
#[derive(Debug, Default)]
pub(crate) struct LoadMeter {
    last: Option<Look>,
    load: Option<Load>,
}

/// What has been so far at a time.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    ticks: Option<Ticks>,
    done: Done,
}

/// How many thousandths of `whole` this part is.
pub(crate) fn thousandths(part: Duration, whole: Duration) -> u32 {
    (part.as_secs_f64() / whole.as_secs_f64().max(1e-9) * 1000.0).round() as u32
}

impl Look {
    /// How busy a node with this number of processors was since `before`; nothing where the system
    /// does not say.
    fn since(&self, before: &Self, processors: u32) -> Option<Load> {
        let idle = self.ticks?.idle_since(&before.ticks?)?;
        let time = self.at.saturating_duration_since(before.at);
        Some(Load {
            processors,
            idle: (idle * 1000.0).round() as u32,
            link_busy: thousandths(self.done.link_busy.saturating_sub(before.done.link_busy), time).min(1000),
            following: thousandths(self.done.following.saturating_sub(before.done.following), time),
        })
    }
}

impl LoadMeter {
    /// How busy this node was when it was looked last, if that is known.
    pub fn load(&self) -> Option<Load> {
        self.load
    }

    /// Looks again, if it is time for that, and says whether it was. Costs a clock's reading
    /// otherwise.
    pub fn look(&mut self, done: impl FnOnce() -> Done) -> bool {
        let at = Instant::now();
        if self.last.is_some_and(|before| at.saturating_duration_since(before.at) < EVERY) {
            return false;
        }
        let look = Look { at, ticks: ticks(), done: done() };
        if let Some(before) = self.last.replace(look) {
            let processors = std::thread::available_parallelism().map_or(1, |all| all.get() as u32);
            self.load = look.since(&before, processors);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_what_has_been_done_in_the_time_between() {
        let (at, ms) = (Instant::now(), Duration::from_millis);
        let done = |link_busy, following| Done { link_busy: ms(link_busy), following: ms(following) };
        let before = Look { at, ticks: Some(Ticks { all: 1000, idle: 900 }), done: done(40, 700) };
        let ticks = Some(Ticks { all: 1400, idle: 1000 });
        let now = Look { at: at + ms(2000), ticks, done: done(540, 3700) };
        let load = Load { processors: 2, idle: 250, link_busy: 250, following: 1500 };
        assert_eq!(now.since(&before, 2), Some(load));
        assert_eq!(Look { ticks: None, ..now }.since(&before, 2), None);
        // A meter that was noted late, and a clock that stood still.
        let late = Look { done: done(9000, 3700), ..now };
        assert_eq!(late.since(&before, 2).map(|load| load.link_busy), Some(1000));
        assert_eq!(now.since(&now, 2), None, "no tick has passed");
    }
}
