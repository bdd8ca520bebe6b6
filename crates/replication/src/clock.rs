use std::time::{Duration, Instant};

use freshet_base::clock::monotonic;
use freshet_cluster::Moment;

/// Binds [`Moment`]s to the system's monotone clock: of one machine's processes they can be
/// compared.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: (Instant, Duration),
}

impl Clock {
    /// A clock.
    pub fn start() -> Self {
        Self { started: (Instant::now(), monotonic()) }
    }

    /// The present.
    pub fn now(&self) -> Moment {
        Moment::from(monotonic())
    }

    /// The system's name for `moment`.
    pub fn instant(&self, moment: Moment) -> Instant {
        self.started.0 + moment.since(Moment::from(self.started.1))
    }
}
