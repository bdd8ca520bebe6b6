//! Load: how busy this standby is. The thread that acknowledges looks about once a second, and the
//! node that is followed is told with each acknowledgement.

use std::time::{Duration, Instant};

use freshet_base::cpu::{Ticks, ticks};

use super::Shared;
use crate::status::Load;

/// It looks this often.
const EVERY: Duration = Duration::from_secs(1);

/// What was when it looked last.
#[derive(Debug, Default)]
pub(super) struct LoadMeter(Option<Look>);

/// What has been so far at a time.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    ticks: Option<Ticks>,
    link_busy: Duration,
    following: Duration,
}

/// How many thousandths of `whole` this part is.
fn thousandths(part: Duration, whole: Duration) -> u32 {
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
            link_busy: thousandths(self.link_busy.saturating_sub(before.link_busy), time).min(1000),
            following: thousandths(self.following.saturating_sub(before.following), time),
        })
    }
}

impl Shared {
    /// How busy this node was, if that is known.
    pub(super) fn load(&self) -> Option<Load> {
        *self.load.lock().expect("no code panics under this mutex")
    }

    /// Looks again, if it is time for that. Costs a clock's reading otherwise.
    pub(super) fn look_at_load(&self, meter: &mut LoadMeter) {
        let at = Instant::now();
        if meter.0.is_some_and(|before| at.saturating_duration_since(before.at) < EVERY) {
            return;
        }
        let own = [&self.receive_cpu, &self.ack_cpu, &self.replay_cpu, &self.journal_cpu].map(|meter| meter.total());
        let following = own.iter().sum::<Duration>() + self.log.statistics().thread_cpu + self.target.processor_time();
        let look = Look { at, ticks: ticks(), link_busy: self.state().link.busy(), following };
        if let Some(before) = meter.0.replace(look) {
            let processors = std::thread::available_parallelism().map_or(1, |all| all.get() as u32);
            *self.load.lock().expect("no code panics under this mutex") = look.since(&before, processors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_what_has_been_done_in_the_time_between() {
        let (at, ms) = (Instant::now(), Duration::from_millis);
        let before = Look { at, ticks: Some(Ticks { all: 1000, idle: 900 }), link_busy: ms(40), following: ms(700) };
        let now = Look {
            at: at + ms(2000),
            ticks: Some(Ticks { all: 1400, idle: 1000 }),
            link_busy: ms(540),
            following: ms(3700),
        };
        let load = Load { processors: 2, idle: 250, link_busy: 250, following: 1500 };
        assert_eq!(now.since(&before, 2), Some(load));
        assert_eq!(Look { ticks: None, ..now }.since(&before, 2), None);
        // A meter that was noted late, and a clock that stood still.
        let late = Look { link_busy: ms(9000), ..now };
        assert_eq!(late.since(&before, 2).map(|load| load.link_busy), Some(1000));
        assert_eq!(now.since(&now, 2), None, "no tick has passed");
    }
}
