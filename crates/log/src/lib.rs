//! The log: the database itself, one stream of blocks addressed by stamps.
//!
//! Query Fresh, section 3: the log is the only place where rows are persistent, a stamp is a position in it, and
//! the same bytes are flushed here and shipped to standbys.
//!
//! - [`block`]: what the log is made of, byte for byte
//! - [`buffer`]: the ring that workers copy blocks into (all of this crate's `unsafe` is there)
//! - [`stream`]: reserving, filling, and the group commit of a primary
//! - [`segments`] on a [`medium`]: where the bytes persist
//!
//! The log never learns of replicas: it offers a [`stream::Sink`].

pub mod block;
pub mod buffer;
mod core;
pub mod medium;
pub mod segments;
pub mod stream;

pub use crate::core::{LogFailure, LogReader, LogStatistics, ReadError};
pub use crate::{
    block::{Block, BlockBuilder, BlockError, BlockHeader, BlockKind, RecordHeader, RecordKind, RecordRef},
    segments::{SegmentStore, StoreConfig, StoreError},
    stream::{
        AttachError, Batch, DurableError, Log, LogConfig, LogOpenError, Reservation, ReserveError, Sink, SinkHandle,
        TooManyWriters, Writer,
    },
};
