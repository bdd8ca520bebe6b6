//! Link: for how long something was on its way from the node that is followed.
//!
//! With every batch and every word that node says when it began to send it, by its clock. Of a
//! mirror it takes down itself for how long it waits. What
//! took least shows how far the clocks differ; what a batch takes beyond that is the time that it
//! needed, or that what went before it did. Times that overlap count once. So a link that is full
//! is busy all the time, however small the batches are, and wherever they wait.

use std::time::Duration;

use freshet_cluster::Moment;

/// Threads that are woken late are no busy link: this much of each time does not count, in
/// nanoseconds.
const LATE: i128 = 500_000;
/// Clocks may drift apart by one in this number. Words without blocks come often enough to show the
/// least time again.
const DRIFT: i128 = 10_000;

/// Adds up when something was on its way.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkMeter {
    quickest: Quickest,
    /// Up to here something was on its way, in nanoseconds of the other's clock.
    until: i128,
    busy: Duration,
}

fn nanoseconds(moment: Moment) -> i128 {
    i128::from(moment.0) * 1000
}

/// The quickest that anything has come from another node, whose clock is another one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quickest {
    /// How long it took, in nanoseconds, and by how much our clock is ahead; and when anything came
    /// last.
    least: Option<(i128, Moment)>,
}

impl Quickest {
    /// By how many nanoseconds what was sent at `sent`, by the other's clock, has come later than
    /// the quickest; it is `now` here. The clocks may part by one in `drift`.
    pub fn late(&mut self, sent: Moment, now: Moment, drift: i128) -> i128 {
        let took = nanoseconds(now) - nanoseconds(sent);
        let drifted = self.silence(now) / drift;
        let least = self.least.map_or(took, |(least, _)| took.min(least + drifted));
        self.least = Some((least, now));
        took - least
    }

    /// For how many nanoseconds nothing has come; zero before anything has.
    fn silence(&self, now: Moment) -> i128 {
        self.least.map_or(0, |(_, last)| nanoseconds(now) - nanoseconds(last))
    }
}

impl LinkMeter {
    /// What the other node began to send at `begun`, by its clock, has come; it is `now` here.
    pub fn observe(&mut self, begun: Moment, now: Moment) {
        let silence = self.quickest.silence(now);
        let late = self.quickest.late(begun, now, DRIFT);
        let begun = nanoseconds(begun);
        let until = begun + (late - LATE).max(0);
        // Whatever the other node says, no time counts twice.
        let busy = (until - begun.max(self.until)).clamp(0, silence);
        self.busy += Duration::from_nanos(u64::try_from(busy).unwrap_or(0));
        self.until = self.until.max(until);
    }

    /// Another connection; perhaps another clock.
    pub fn forget(&mut self) {
        *self = Self { busy: self.busy, ..Self::default() };
    }

    /// All in all.
    pub fn busy(&self) -> Duration {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other clock is an hour ahead.
    const AHEAD: u64 = 3_600_000_000;

    /// Sends a batch every `every` µs for ten seconds over a link that needs `needs` for each, and
    /// whose latency is 3 ms; the sender waits while `window` are on their way. Returns which share
    /// of the time it was busy.
    fn share(every: u64, needs: u64, window: usize) -> f64 {
        let mut link = LinkMeter::default();
        let (mut at, mut free, mut arrivals) = (0, 0, Vec::new());
        // A word.
        link.observe(Moment(AHEAD), Moment(3000));
        while at < 10_000_000 {
            let begun: u64 = at;
            free = begun.max(free) + needs;
            arrivals.push(free + 3000);
            link.observe(Moment(begun + AHEAD), Moment(free + 3000));
            at += every;
            if arrivals.len() >= window {
                at = at.max(arrivals[arrivals.len() - window]);
            }
        }
        link.busy().as_secs_f64() / (at.max(free) as f64 / 1e6)
    }

    #[test]
    fn a_link_is_busy_while_something_is_on_its_way() {
        for (every, needs, window, from, to) in [
            (10_000, 100, usize::MAX, 0.0, 0.01),
            (10_000, 5_500, usize::MAX, 0.4, 0.6),
            // More is sent than it carries, and waits in buffers.
            (10_000, 10_500, usize::MAX, 0.95, 1.0),
            (1_000, 5_000, 100, 0.95, 1.0),
            // The same, where the sender waits until what was sent before has come.
            (1_000, 20_000, 1, 0.75, 1.0),
        ] {
            let share = share(every, needs, window);
            println!("{needs} µs every {every} µs: {share}");
            assert!((from..=to).contains(&share), "{needs} µs every {every} µs: {share}");
        }
    }

    #[test]
    fn no_more_time_is_counted_than_has_passed() {
        let mut link = LinkMeter::default();
        let lies = [0, u64::MAX, 5, u64::MAX / 2, 1 << 40, 0];
        for (number, begun) in lies.into_iter().cycle().take(600).enumerate() {
            link.observe(Moment(begun), Moment(number as u64 * 1000));
        }
        assert!(link.busy() <= Duration::from_millis(600), "{link:?}");
        link.forget();
        link.observe(Moment(7), Moment(1));
        assert!(link.busy() <= Duration::from_millis(600), "{link:?}");
    }
}
