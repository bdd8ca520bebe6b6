//! Shipping the log to standbys, and what standbys do with it (Query Fresh, sections 3.1, 3.2 and
//! 3.4).
//!
//! The files are named after the steps:
//!
//! ```text
//! primary    ship ──▶ (wire) ──▶ receive    standby
//!                                persist
//!            ack  ◀── (wire) ◀── ack
//!            commit              replay
//!                                visible
//! ```
//!
//! `ship` and `ack` of the primary's side are in `feed`: a standby may be a relay, which feeds
//! standbys of its own in the same way.
//!
//! A batch that the group commit hands over ([`primary::Primary`] is its sink) is shipped while the
//! local flush is under way. The standby's receiving thread reads it straight into its log buffer;
//! when it is persistent there the primary is told, the commit rule
//! ([`freshet_cluster::commit_rule`]) moves `committed`, and clients hear. Replay follows by itself
//! (replay pipelining), and readers see min(replayed, own persisted, globally persistent).
//!
//! Architecture invariants: nothing is queued per standby, the log is the queue; the log crate does
//! not know of this one; what replays is behind [`standby::ReplayTarget`]; decisions are made by
//! the pure state machines of the cluster crate, and here are only the threads that bind them to
//! sockets. A primary and a standby are two compositions, and the [`endpoint`] is what a node keeps
//! when it changes from one to the other.
#![forbid(unsafe_code)]

mod bell;
pub mod checkpoints;
mod clock;
pub mod endpoint;
pub mod feed;
pub mod follow;
pub mod forms;
mod hop;
mod link;
mod load;
pub mod maintenance;
pub mod members;
pub mod mirror;
mod originals;
pub mod primary;
pub mod promotion;
pub mod register;
pub mod renewal;
pub mod restart;
mod rights;
pub mod standby;
pub mod status;
pub mod tape;
pub mod terms;
pub mod whole_cluster;
pub mod wire;
pub mod witness;

#[cfg(test)]
mod tests;
