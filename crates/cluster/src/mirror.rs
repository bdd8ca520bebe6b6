//! Mirrors (Active-Memory): memory on another node that a primary keeps up to date by itself.
//!
//! | module | decides |
//! |---|---|
//! | [`feed`] | of the primary: when the mark moves, and what is acknowledged for a mirror |
//! | [`state`] | of the mirror: whether its memory is a state of the database, and has a vote |
//!
//! When a primary fails, each mirror revokes its access, so that nothing lands any more, and keeps
//! what has landed wholly, with all before it, as a log standby keeps what it has made persistent.
//! What clients know to be committed has landed on every mirror that counts. Two mirrors may keep
//! different prefixes of the same log; a candidate follows the longer one ([`crate::promotion`]).
//!
//! The paper keeps only what is marked on all mirrors (section 5.2), so that they have to tell one
//! another what they have, and clients wait for a second round. Crate `platform` measures that.

pub mod feed;
pub mod state;

pub use self::{
    feed::MirrorFeed,
    state::{Cut, MirrorState},
};
