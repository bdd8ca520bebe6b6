use std::{io, net::SocketAddr, time::Duration};

use crate::frame::HeaderError;

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

/// Why a frame could not be sent. The connection is of no more use.
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
    #[error("{peer} took nothing in for {patience:?}")]
    Stalled {
        /// The other side.
        peer: SocketAddr,
        /// How long it was given.
        patience: Duration,
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

/// Why no frame could be received. The connection is of no more use.
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
    #[error("what arrived has no place here: {why}")]
    NoPlace {
        /// Why not.
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
    #[error("{what} from {peer} was damaged on the way: its checksum is {found:08x} instead of {expected:08x}")]
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
