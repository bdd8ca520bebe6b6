//! The protocols of a Freshet cluster as pure state machines: events and the
//! time go in, decisions come out. Nothing here opens a socket, touches a disk,
//! starts a thread or reads a clock, so that the code which runs in production
//! is the code which the tests drive through loss, delay, crashes and partitions.
//!
//! | module | decides |
//! |---|---|
//! | [`commit_rule`] | up to where the client may be told "committed", and who is waited for |
//! | [`flow`] | what a primary sends to one standby next |
//! | [`term`] | whose word counts, where a log must be cut, and who may take over |
#![forbid(unsafe_code)]

pub mod commit_rule;
pub mod flow;
mod moment;
pub mod term;

pub use moment::Moment;

#[cfg(test)]
mod simulation;
