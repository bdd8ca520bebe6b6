//! The log: the database itself, one stream of blocks addressed by stamps.
//!
//! Query Fresh, section 3: the log is the only place where rows are persistent, a stamp is a position in it, and
//! the same bytes are flushed here and shipped to standbys.
//!
//! - [`block`]: what the log is made of, byte for byte
//! - [`buffer`]: the ring that workers copy blocks into (all of this crate's `unsafe` is there)
//! - [`stream`]: reserving, filling, and the group commit of a primary
//! - [`segments`] on a [`medium`]: where the bytes persist; [`store`]: one row of them for each stream
//! - [`control`]: the directory, its owner and its term history
//! - [`scan`] and [`tail`]: reading it again after a restart, and judging where it ends
//! - [`standby`]: the log of a node that receives it
//! - [`inspect`]: looking at it from outside
//!
//! The log never learns of replicas: it offers a [`stream::Sink`].

pub mod block;
pub mod buffer;
pub mod control;
mod core;
mod identity;
pub mod inspect;
pub mod medium;
#[cfg(all(test, loom))]
mod model;
pub mod persist;
pub mod reading;
mod runs;
pub mod scan;
pub mod segments;
pub mod standby;
pub mod store;
pub mod stream;
pub mod tail;
mod transaction_ends;

#[cfg(not(loom))]
pub use crate::buffer::RingMemory;
pub use crate::core::{LogFailure, LogReader, LogStatistics, ReadError};
pub use crate::{
    block::{Block, BlockBuilder, BlockError, BlockHeader, BlockKind, RecordHeader, RecordKind, RecordRef},
    control::{Control, ControlError, LogDirectory, LogPlace, check_devices},
    scan::{BlockScanner, Chunk, LogSource},
    segments::{Lack, SegmentStore, StoreConfig, StoreError},
    standby::{AcceptError, Accepted, ReceiveError, Receiver, StandbyLog, StandbyRing, Writable},
    store::{LogStore, Piece, PieceError},
    stream::{
        Batch, Division, DurableError, GroupCommitKind, Grouping, Log, LogConfig, LogOpenError, Nudge, Reservation,
        ReserveError, Sink, SinkHandle, TooManyWriters, Writer,
    },
    tail::{Tail, TailError, Torn, find_tail},
    transaction_ends::TransactionEnds,
};
