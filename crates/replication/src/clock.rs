use std::time::Instant;

use freshet_base::clock::monotonic;
use freshet_cluster::Moment;

/// Binds [`Moment`]s to the system's monotone clock: of one machine's processes they can be
/// compared.
#[derive(Clone, Copy, Debug)]
pub struct Clock(());

impl Clock {
    /// A clock.
    pub fn start() -> Self {
        Self(())
    }

    /// The present.
    pub fn now(&self) -> Moment {
        Moment::from(monotonic())
    }

    /// The system's name for `moment`, as far as it lies in the future. Threads sleep by a clock
    /// that does not count the time that the machine is suspended.
    pub fn instant(&self, moment: Moment) -> Instant {
        Instant::now() + moment.since(self.now())
    }
}
