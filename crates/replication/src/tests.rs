//! Real sockets on the loopback, logs in memory, and no sleeps: every wait is for something that
//! will happen.

mod bootstrap;
mod configs;
mod fixture;
mod forms;
#[path = "../../log/tests/gate/mod.rs"]
mod gate;
mod joining;
mod keeping;
mod mirroring;
mod reaching;
mod relaying;
mod renewing;
mod replaying;
mod rights;
mod storm;
mod strangers;
mod succeeding;
mod taking_over;
mod toy;
mod waiting;
mod whole_cluster;

pub(crate) use fixture::blocks;
