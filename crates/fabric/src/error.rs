//! What can go wrong.

use std::{io, net::SocketAddr, time::Duration};

use crate::{FabricKind, frame::HeaderError};

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name means nothing.
    #[error("the address {address:?} cannot be resolved: {source}; use HOST:PORT")]
    Resolve {
        /// As it was given.
        address: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// Nobody answers there, or not in time.
    #[error("no connection to {address}: {source}")]
    Connect {
        /// As it was given.
        address: String,
        /// What the last attempt met.
        source: io::Error,
    },
}

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; choose another address or port")]
pub struct ListenError {
    /// As it was given.
    pub address: String,
    /// What the system says.
    pub source: io::Error,
}

/// Why a fabric cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// This program was built without it.
    #[error("this program was built without RDMA: build it with the cargo feature verbs, or use fabric tcp")]
    NotBuilt,
    /// It was built with it, and the machine lacks something.
    #[error("fabric {kind}: {why}")]
    Missing {
        /// Which.
        kind: FabricKind,
        /// What is missing, and what to do.
        why: String,
    },
    /// The two sides do not speak of the same.
    #[error("the other node wants fabric {theirs}, this one {ours}: configure the same on both")]
    OtherFabric {
        /// This side's.
        ours: FabricKind,
        /// The other side's.
        theirs: FabricKind,
    },
    /// Memory of the other side cannot be mapped.
    #[error(
        "fabric shm: the other node's memory cannot be mapped: {0}; both must run on one machine, as one user; use fabric tcp otherwise"
    )]
    Attach(io::Error),
    /// The operating system refused something.
    #[error("fabric {kind}: {source}")]
    System {
        /// Which.
        kind: FabricKind,
        /// What it says.
        source: io::Error,
    },
}

/// Why something could not be sent or posted. The connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The other side is gone.
    #[error("the connection to {peer} was lost: {source}")]
    Lost {
        /// The other side.
        peer: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The other side takes nothing in.
    #[error("{peer} has read nothing for {patience:?}")]
    Stalled {
        /// The other side.
        peer: SocketAddr,
        /// How long it was given.
        patience: Duration,
    },
    /// The other side has no such memory.
    #[error("{length} bytes at {offset} of region {region} are outside what {peer} has offered, or no whole word")]
    OutOfBounds {
        /// The other side.
        peer: SocketAddr,
        /// The number of the region.
        region: usize,
        /// Where in it.
        offset: u64,
        /// How much.
        length: u64,
    },
    /// The frame is larger than the format allows.
    #[error("a frame with {immediate} bytes of immediate value and {payload} bytes of payload cannot be sent")]
    TooLarge {
        /// Bytes of the immediate value.
        immediate: usize,
        /// Bytes of the payload.
        payload: usize,
    },
}

/// Why nothing more could be received. The connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The other side closed the connection between two frames.
    #[error("{peer} closed the connection")]
    Closed {
        /// The other side.
        peer: SocketAddr,
    },
    /// The other side is gone.
    #[error("the connection to {peer} was lost: {source}")]
    Lost {
        /// The other side.
        peer: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The other side says nothing.
    #[error("{peer} was silent for {patience:?}")]
    Silent {
        /// The other side.
        peer: SocketAddr,
        /// How long it was given.
        patience: Duration,
    },
    /// There is no place to put the payload.
    #[error("what arrived does not belong here: {why}")]
    NoPlace {
        /// Why not.
        why: String,
    },
    /// What came is none of the operations of a fabric.
    #[error("{peer} violated the protocol: {why}")]
    Violation {
        /// The other side.
        peer: SocketAddr,
        /// What.
        why: String,
    },
    /// What came is not a frame.
    #[error("{peer}: {source}")]
    Header {
        /// The other side.
        peer: SocketAddr,
        /// What is wrong with it.
        source: HeaderError,
    },
    /// The immediate value or the payload was damaged on the way.
    #[error("{what} from {peer} was damaged in transit: its checksum is {found:08x} instead of {expected:08x}")]
    Damaged {
        /// The other side.
        peer: SocketAddr,
        /// Which part.
        what: &'static str,
        /// What its bytes give.
        found: u32,
        /// What the header says.
        expected: u32,
    },
}
