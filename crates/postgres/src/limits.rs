//! How much clients may have.

use std::time::Duration;

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How many sessions there may be at once.
    pub connections: usize,
    /// This many of them are for superusers only.
    pub reserved: usize,
    /// How many one role may have that is no superuser, and for which nothing else was said: a
    /// backend gives them to those as [`Access::connections`](crate::Access::connections).
    pub of_role: usize,
    /// Connections at once that have not proved yet who they are. When there are as many, further
    /// ones wait in the system's queue, and those that take more than half a second, or a tenth of
    /// `start_up`, are sent away.
    pub starting: usize,
    /// The longest delay before a client hears that its password is wrong; the delay grows with
    /// each failure. Zero for no delay.
    pub refusal: Duration,
    /// How long a client may take from connecting to its proof.
    pub start_up: Duration,
    /// The longest message of a client, in bytes. Its memory is taken as it arrives.
    pub message: usize,
    /// A client that reads nothing of its answer for so long is given up.
    pub write: Duration,
    /// A connection on which nothing happens is probed after so long, then each tenth of it; given
    /// up after ten probes without an answer.
    pub keep_alive: Duration,
    /// The stack of a session's thread, in bytes. Memory is taken only for what of it was used.
    /// Statements may be nested so deep that a build without optimization needs most of the
    /// default.
    pub stack: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 100,
            reserved: 3,
            of_role: usize::MAX,
            starting: 128,
            refusal: Duration::from_secs(4),
            start_up: Duration::from_secs(30),
            message: 64 << 20,
            write: Duration::from_secs(600),
            keep_alive: Duration::from_secs(60),
            stack: 16 << 20,
        }
    }
}
