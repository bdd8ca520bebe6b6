//! The machine's monotone clock.

use std::time::Duration;

/// Time since the machine was started, as all processes of this machine see it. It counts the time
/// that the machine was suspended, which leases rest on; [`std::time::Instant`] does not.
pub fn monotonic() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
