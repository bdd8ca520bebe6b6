//! Restart: from files to a database, in named phases; and the checkpoints that make it short.
//!
//! | phase | does | stops the node when |
//! |---|---|---|
//! | tail | finds where the log ends behind the noted watermark, cuts off what a crash tore | the log was durable beyond a bad place |
//! | checkpoint | reads the newest checkpoint's files with several threads | none can be used and the log does not reach back far enough |
//! | log | replays the log since the checkpoint's start, newest pieces first, with several threads | a block below the end is bad |
//! | indexes | builds the indexes from the sorted entries that the two phases before have collected | never |
//!
//! The words of records that the log has changed are log addresses then; versions are made when
//! they are first read (Query Fresh, section 3.3), so that the node serves before every version is
//! in memory.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod point_in_time;
mod recorded;
mod restart;

pub use self::{
    checkpoint::{CheckpointError, Manifest},
    recorded::{RecordedError, RecordedLog},
    restart::{Phase, PhaseStatus, Restart, RestoreError, Restored, settle_tail, settle_tail_before_buffer},
};
