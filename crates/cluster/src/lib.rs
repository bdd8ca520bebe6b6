//! The protocols of a Freshet cluster as pure state machines: events and the time go in, decisions
//! come out. Nothing here opens a socket, touches a disk, starts a thread or reads a clock, so that
//! the code which runs in production is the code which the simulation (crate `sim`) drives through
//! loss, delay, crashes and partitions.
//!
//! | module | decides |
//! |---|---|
//! | [`commit_rule`] | up to where the client may be told "committed", and who is waited for |
//! | [`in_sync`] | who knows which standbys hold everything that is committed |
//! | [`relay`] | what a standby that ships on to others acknowledges, and what these may show |
//! | [`host`] | who is fed with the log, and what each of them counts for |
//! | [`flow`] | what is shipped to one of them next |
//! | [`entering`] | by which steps a node continues with another node's log |
//! | [`upstream`] | whom a node follows, and whom it tries next |
//! | [`promising`] | by which steps a node promises a term, before it answers |
//! | [`lane`] | nothing: effects that are carried out one after the other |
//! | [`view`] | what a node that follows knows of its cluster |
//! | [`follower`] | what a standby accepts, acknowledges, replays and shows |
//! | [`inputs`] | what a standby may acknowledge and execute that is fed with inputs |
//! | [`lease`] | until when a primary may answer without asking |
//! | [`term`] | whose word counts, and where a log must be cut |
//! | [`meeting`] | which of two primaries yields |
//! | [`handshake`] | which log may continue another, and from where |
//! | [`promotion`] | who may take over, and by which steps |
//! | [`switch_over`] | by which steps a primary that is well hands its role to a standby |
//! | [`witness`] | what a voter without data notes, promises and grants |
//! | [`register`] | the same for a witness that is a value, which others change by compare-and-swap |
//! | [`watch`] | when a node takes its primary for lost, and stands for the next term |
//! | [`maintenance`] | whether no node stands by itself for a while |
//! | [`contest`] | when a primary that a node cannot follow before a later term gives up its own |
//! | [`stuck`] | when a primary on which nothing becomes durable lets its standbys go |
//! | [`begin_again`] | whether a standby whose state is in doubt may begin again from its primary |
//! | [`recording`] | nothing: it records what happened to these machines, and replays it |
//! | [`mirror`] | how a primary feeds the memory of a mirror, and what that is worth |
#![forbid(unsafe_code)]

pub mod begin_again;
pub mod commit_rule;
pub mod contest;
pub mod entering;
pub mod flow;
pub mod follower;
pub mod handshake;
pub mod host;
pub mod in_sync;
pub mod inputs;
pub mod lane;
pub mod lease;
pub mod maintenance;
pub mod meeting;
pub mod mirror;
mod moment;
pub mod promising;
pub mod promotion;
pub mod recording;
pub mod register;
pub mod relay;
pub mod stuck;
pub mod switch_over;
pub mod term;
pub mod upstream;
pub mod view;
pub mod wanted;
pub mod watch;
pub mod witness;

pub use moment::Moment;
