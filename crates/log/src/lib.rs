//! The log: the database itself, one stream of blocks addressed by LSNs.
//!
//! Query Fresh, section 3: the log is the only place where rows are persistent, an LSN is a
//! position in it, and the same bytes are flushed here and shipped to standbys.
//!
//! - [`block`]: what the log is made of, byte for byte
//! - [`buffer`]: the ring that workers copy blocks into (all of this crate's `unsafe` is there)
//! - [`stream`]: the log itself: who fills it, what persists it and when, and its sinks
//! - [`segments`] on a [`medium`]: where the bytes persist; [`store`]: one row of them for each
//!   stream
//! - [`control`]: the directory, its owner and its term history; [`sealed`]: texts with a checksum;
//!   `parts`: whether what is in the directory belongs together
//! - [`scan`] and [`tail`]: reading it again after a restart, and judging where it ends
//! - [`inspect`]: looking at it from outside; [`hang`]: devices that do not answer
//!
//! The log never learns of replicas: it offers a [`stream::Sink`].

#![cfg_attr(loom, allow(dead_code, unreachable_code, unused_imports, reason = "models use the latch-free parts alone"))]

pub mod block;
pub mod buffer;
#[cfg(not(loom))]
pub mod control;
#[cfg(not(loom))]
mod core;
#[cfg(not(loom))]
pub mod hang;
#[cfg(not(loom))]
mod identity;
#[cfg(not(loom))]
pub mod inspect;
#[cfg(not(loom))]
pub mod journal;
#[cfg(not(loom))]
pub mod medium;
#[cfg(all(test, loom))]
mod model;
#[cfg(not(loom))]
mod parts;
#[cfg(not(loom))]
pub mod persist;
#[cfg(not(loom))]
pub mod reading;
#[cfg(not(loom))]
mod runs;
#[cfg(not(loom))]
pub mod scan;
#[cfg(not(loom))]
pub mod sealed;
#[cfg(not(loom))]
pub mod segments;
#[cfg(not(loom))]
pub mod store;
#[cfg(not(loom))]
pub mod stream;
#[cfg(not(loom))]
pub mod tail;
#[cfg(not(loom))]
mod transaction_ends;

/// The latch-free parts, which is what loom models.
#[cfg(loom)]
mod stream {
    pub(crate) mod bounds;
    pub(crate) mod dirty;
    pub(crate) mod doorbell;
}

#[cfg(not(loom))]
pub use crate::{
    block::{
        Block, BlockBuilder, BlockError, BlockHeader, BlockKind, Blocks, PlacedRecord, RecordHeader, RecordKind,
        RecordRef,
    },
    buffer::RingMemory,
    control::{Control, ControlError, LogDirectory, LogPlace, check_devices},
    core::{LogFailure, LogReader, LogStatistics, ReadError},
    hang::Hang,
    parts::KEEP_ASIDE,
    scan::{BlockScanner, Chunk, LogSource},
    segments::{OutOfSpace, SegmentStore, StoreConfig, StoreError},
    store::{LogStore, Piece},
    stream::{
        AcceptError, Accepted, Batch, Division, DurableError, ForceFence, GroupCommitKind, Grouping, Log, LogConfig,
        LogOpenError, Noting, Persistence, ReceiveConfig, ReceiveError, Receiver, Reservation, ReserveError, Sink,
        SinkHandle, TooManyWriters, Writable, Writer,
    },
    tail::{Tail, TailError, Torn, find_tail},
    transaction_ends::TransactionEnds,
};
