//! How long batches take from being sent until they are known to be persistent on the other side:
//! the round trip of the link, with what waits in its buffers and what persisting takes there.
//!
//! One batch at a time is timed, so that nothing is kept of the others.

use freshet_base::{Lsn, sync::Mutex};
use freshet_cluster::Moment;

use crate::status::RoundTrips;

/// Times batches.
#[derive(Debug, Default)]
pub(crate) struct Timing(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The end of the batch that is timed, and since when.
    under_way: Option<(Lsn, Moment)>,
    timed: RoundTrips,
}

impl Timing {
    /// A batch that ends at `to` is being sent.
    pub fn sent(&self, to: Lsn, now: impl FnOnce() -> Moment) {
        let mut state = self.0.lock().expect("no code panics under this mutex");
        if state.under_way.is_none() {
            state.under_way = Some((to, now()));
        }
    }

    /// Everything below `to` is persistent there.
    pub fn held(&self, to: Lsn, now: impl FnOnce() -> Moment) {
        let mut state = self.0.lock().expect("no code panics under this mutex");
        let Some((_, begun)) = state.under_way.take_if(|(end, _)| *end <= to) else { return };
        let took = now().since(begun);
        let RoundTrips { count, total, least } = state.timed;
        let least = if count == 0 { took } else { least.min(took) };
        state.timed = RoundTrips { count: count + 1, total: total.saturating_add(took), least };
    }

    /// What was timed so far.
    pub fn so_far(&self) -> RoundTrips {
        self.0.lock().expect("no code panics under this mutex").timed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_batch_at_a_time_is_timed() {
        let timing = Timing::default();
        let at = |micros| move || Moment(micros);
        timing.held(Lsn(8), at(1));
        assert_eq!(timing.so_far(), RoundTrips::default(), "nothing was sent");
        timing.sent(Lsn(100), at(1000));
        timing.sent(Lsn(200), at(1500));
        timing.held(Lsn(99), at(1700));
        assert_eq!(timing.so_far().count, 0, "it is not there yet");
        timing.held(Lsn(200), at(1800));
        timing.sent(Lsn(300), at(2000));
        timing.held(Lsn(300), at(2200));
        timing.held(Lsn(300), at(9000));
        let (total, least) = (Duration::from_micros(1000), Duration::from_micros(200));
        assert_eq!(timing.so_far(), RoundTrips { count: 2, total, least });
    }
}
