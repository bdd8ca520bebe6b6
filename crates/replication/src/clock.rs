use std::time::Instant;

use freshet_cluster::Moment;

/// Binds [`Moment`]s to the system's monotone clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts at zero.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// The present.
    pub fn now(&self) -> Moment {
        Moment::from(self.origin.elapsed())
    }

    /// The system's name for `moment`.
    pub fn instant(&self, moment: Moment) -> Instant {
        self.origin + moment.since(Moment::default())
    }
}
