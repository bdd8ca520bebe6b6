//! The frames between clients and nodes.
//!
//! A connection carries frames both ways, each of them a length (u32, little endian, at most
//! [`MAX_FRAME`]) and this many bytes: a [`Request`] or [`Response`] in postcard's encoding.
//! Requests bear a number that the client chooses; responses bear the number of their request and
//! come in any order, so that a client may have many requests under way. The first request is
//! [`Ask::Hello`].
//!
//! A client's rights are known before the first frame: for a process of the same user on the same
//! machine by its socket, for others by their certificates (see `server`).
//!
//! A peer that breaks the rules is told so once, as far as that is possible, and the connection
//! ends. Nothing that comes over it makes a node panic, hang, or reserve memory that the peer has
//! not filled.

#[cfg(test)]
mod tests;

use std::io::{self, Read};

use freshet_base::{Consent, Lsn, NodeId, Safety, versions::Versions};
use freshet_engine::{Mix, StateAnswer, StateAsk};
use freshet_membership::Grant;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

/// The versions of this protocol that this release speaks. The client names its newest in the first
/// request, the node answers with the highest that both speak. What is new comes last in
/// [`Ask`] and [`Answer`].
pub const READS: Versions = Versions::new(8, 9);
/// The newest.
pub const VERSION: u32 = READS.newest();

/// The most bytes that a frame may have.
pub const MAX_FRAME: usize = 4 << 20;

/// Bytes of a frame's length.
const PREFIX: usize = 4;

/// What a client wants, under a number of its choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The response will bear it.
    pub id: u64,
    /// The request itself.
    pub ask: Ask,
}

/// What a client may want.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Comes first. Answered by [`Answer::Hello`].
    Hello {
        /// The client's newest version.
        version: u32,
    },
    /// Answered by [`Answer::Status`].
    Status,
    /// Cheap. Answered by [`Answer::Watermarks`].
    Watermarks,
    /// Makes this standby the primary. Answered by [`Answer::Promoted`].
    Promote {
        /// What the operator has agreed to.
        consent: Consent,
    },
    /// Hands the role of this primary to a standby. Answered by [`Answer::SwitchedOver`].
    SwitchOver {
        /// The standby's id, or the address where other nodes reach it; none: the nearest.
        to: Option<String>,
    },
    /// Has this primary take a node out of the cluster. Answered by [`Answer::Removed`].
    Remove {
        /// The node's id, or the address where others reach it.
        node: String,
        /// It does not run, and never will again.
        gone: bool,
    },
    /// Has this primary change what commits promise. Answered by [`Answer::LevelChanged`].
    ChangeLevel {
        /// The level.
        level: Safety,
    },
    /// Has this primary give its cluster another authority. Answered by [`Answer::Rotated`].
    Rotate,
    /// Has a node start again. Answered by [`Answer::Restarts`] when it has taken that order.
    Restart {
        /// Its id, or the address where others reach it; none: this one.
        node: Option<String>,
    },
    /// Writes a checkpoint now. Answered by [`Answer::Checkpoint`] when it is installed.
    Checkpoint {
        /// The checkpoint is to be of one snapshot.
        consistent: bool,
    },
    /// Hashes all records. Answered by [`Answer::Hash`].
    Hash {
        /// Not before everything below this is visible here.
        at: Option<Lsn>,
        /// How long that may take, in milliseconds.
        deadline_ms: u64,
    },
    /// Gives out a token with which a node or client from another machine is certified, once.
    /// Answered by [`Answer::Token`].
    Token {
        /// The identity that the token is for.
        grant: Grant,
        /// How long it may be used, in seconds.
        valid_s: u64,
    },
    /// Answered by [`Answer::Visible`] as soon as everything below the LSN is visible here.
    WaitVisible {
        /// Where the caller's transaction committed, as a rule.
        lsn: Lsn,
        /// How long that may take, in milliseconds.
        deadline_ms: u64,
    },
    /// Looks at a piece of a primary's log. Answered by [`Answer::Mix`].
    Mix {
        /// Where it begins; a block does.
        from: Lsn,
        /// What counts as a batch, in bytes.
        batch_bytes: u64,
    },
    /// Compares this node's state with another's. Answered by [`Answer::State`].
    State(StateAsk),
    /// Has a mirror give up what it holds more than the node that it is to follow, and begin again
    /// with what that has. Answered by [`Answer::GivenUp`].
    Refill,
    /// Has a standby move aside what it has, and begin again with what its primary has. Answered by
    /// [`Answer::BeginsAgain`].
    BeginAgain {
        /// Although nothing speaks against its state.
        force: bool,
    },
    /// Which nodes there are in the cluster. Answered by [`Answer::Members`].
    Members,
    /// No node of the cluster takes over by itself for a while. Answered by
    /// [`Answer::Maintenance`].
    Maintenance {
        /// For how long, in seconds; 0 ends it.
        for_s: u64,
    },
    /// Has a node stop, as after SIGTERM. Answered by [`Answer::Stops`] when it has taken that
    /// order.
    Stop {
        /// Its id, or the address where others reach it; none: this one.
        node: Option<String>,
    },
    /// What the node is configured with. Answered by [`Answer::Configuration`].
    Configuration,
    /// Has this primary raise its cluster's format level. Answered by [`Answer::UpgradeFinished`].
    FinishUpgrade,
}

/// A node's answer to the request of that number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// The request's number; [`Response::NOBODY`] when it could not be made out.
    pub id: u64,
    /// The answer itself.
    pub answer: Answer,
}

impl Response {
    /// The number of a request whose number could not be read.
    pub const NOBODY: u64 = u64::MAX;
}

/// What a node may answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The node speaks the client's version: requests may follow.
    Hello {
        /// The version that both speak from now on.
        version: u32,
    },
    /// The node's status, as JSON.
    Status(String),
    /// Where the node's watermarks are.
    Watermarks(Watermarks),
    /// The node is the primary now.
    Promoted {
        /// The number of the new term.
        term: u32,
        /// The LSN at which the term begins.
        at: Lsn,
    },
    /// Another node is the primary now.
    SwitchedOver {
        /// Its id.
        node: NodeId,
        /// Where other nodes reach it.
        address: String,
        /// The term before.
        after: u32,
        /// Everything below was acknowledged before the role moved.
        at: Lsn,
    },
    /// A node does not belong to the cluster any more.
    Removed {
        /// Its id.
        node: NodeId,
    },
    /// Commits promise something else now.
    LevelChanged {
        /// What they promised before.
        before: Safety,
    },
    /// The cluster has another authority.
    Rotated {
        /// Which one.
        generation: u64,
    },
    /// A node is about to start again.
    Restarts {
        /// Its id.
        node: NodeId,
    },
    /// A checkpoint was written.
    Checkpoint {
        /// The LSN at which the checkpoint begins.
        start: Lsn,
        /// The LSN up to which the checkpoint needs the log.
        end: Lsn,
        /// How many bytes it has.
        bytes: u64,
        /// How many rows it has.
        rows: u64,
    },
    /// A token, as text. Secret.
    Token(String),
    /// The hash of all records.
    Hash {
        /// The snapshot whose records were hashed.
        at: Lsn,
        /// The hash, which does not depend on the order of records.
        hash: u64,
        /// How many records there are.
        records: u64,
    },
    /// Whether the transaction will survive is open: it is neither committed nor rolled back.
    OutcomeOpen {
        /// What the node does not know, and why.
        reason: String,
    },
    /// Nothing was done, or is going to be.
    Refused {
        /// Why, and what would help.
        reason: String,
    },
    /// Everything below this is visible here.
    Visible {
        /// The read view at that moment.
        lsn: Lsn,
    },
    /// What kinds of transactions wrote that piece of the log.
    Mix(Mix),
    /// What there is of the state.
    State(StateAnswer),
    /// The mirror begins again.
    GivenUp,
    /// So does the standby.
    BeginsAgain {
        /// Where its primary is.
        from: String,
    },
    /// They, as JSON.
    Members(String),
    /// Maintenance was ordered, or ended.
    Maintenance {
        /// How many nodes know of that.
        known: u32,
        /// Which do not, and why.
        unreached: Vec<String>,
    },
    /// A node is about to stop.
    Stops {
        /// Its id.
        node: NodeId,
    },
    /// Each key with its value, as JSON.
    Configuration(String),
    /// The cluster has the format level of the primary's release.
    UpgradeFinished {
        /// The level before.
        before: u32,
        /// The level now.
        level: u32,
    },
}

/// A node's watermarks: positions in the virtual log, in bytes. What a node does not have is
/// `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermarks {
    /// Whether the node is the primary.
    pub primary: bool,
    /// Primary: LSNs up to here were handed out.
    pub reserved: Option<Lsn>,
    /// Primary: everything below is persistent on this node.
    pub durable: Option<Lsn>,
    /// Primary: the clients may have been told.
    pub committed: Option<Lsn>,
    /// What a transaction that begins now sees: everything below.
    pub visible: Lsn,
}

/// Why a connection ended.
#[derive(Debug, Error)]
pub enum FrameError {
    /// The peer closed the connection between two frames.
    #[error("the connection was closed")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// A frame is longer than allowed.
    #[error("a frame of {length} bytes exceeds the maximum of {MAX_FRAME}")]
    TooLong {
        /// The length that the frame announces, in bytes.
        length: usize,
    },
    /// A frame is not what it should be.
    #[error("cannot decode a frame of {length} bytes: {cause}")]
    Malformed {
        /// The length of the frame, in bytes.
        length: usize,
        /// What the decoder says.
        cause: String,
    },
}

/// Appends a frame.
///
/// # Errors
/// [`FrameError::TooLong`]; nothing was appended then.
pub fn encode<T: Serialize>(message: &T, into: &mut Vec<u8>) -> Result<(), FrameError> {
    let bytes =
        postcard::to_stdvec(message).map_err(|cause| FrameError::Malformed { length: 0, cause: cause.to_string() })?;
    let length = bytes.len();
    let prefix = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME).ok_or(FrameError::TooLong { length })?;
    into.extend_from_slice(&prefix.to_le_bytes());
    into.extend_from_slice(&bytes);
    Ok(())
}

/// Takes frames from a stream of bytes.
#[derive(Debug)]
pub struct Frames<R> {
    stream: R,
    /// Bytes that came and were not taken: `buffer[taken..]`.
    buffer: Vec<u8>,
    taken: usize,
}

/// How much is read at once, and so how far a buffer grows ahead of what has arrived.
const CHUNK: usize = 64 << 10;

impl<R: Read> Frames<R> {
    /// Takes frames from this stream.
    pub fn new(stream: R) -> Self {
        Self { stream, buffer: Vec::new(), taken: 0 }
    }

    /// The next frame's message. Blocks until it is there.
    ///
    /// # Errors
    /// See [`FrameError`]. Nothing more can be taken then.
    pub fn next_frame<T: DeserializeOwned>(&mut self) -> Result<T, FrameError> {
        loop {
            let have = &self.buffer[self.taken..];
            if let Some(prefix) = have.first_chunk::<PREFIX>() {
                let length = u32::from_le_bytes(*prefix) as usize;
                if length > MAX_FRAME {
                    return Err(FrameError::TooLong { length });
                }
                if let Some(frame) = have.get(PREFIX..PREFIX + length) {
                    let malformed = |cause: &str| FrameError::Malformed { length, cause: cause.to_owned() };
                    let (message, rest) =
                        postcard::take_from_bytes(frame).map_err(|cause| malformed(&cause.to_string()))?;
                    if !rest.is_empty() {
                        return Err(malformed("bytes are left over"));
                    }
                    self.taken += PREFIX + length;
                    return Ok(message);
                }
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), FrameError> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let have = self.buffer.len();
        self.buffer.resize(have + CHUNK, 0);
        let count = loop {
            match self.stream.read(&mut self.buffer[have..]) {
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => {
                    self.buffer.truncate(have);
                    return Err(cause.into());
                }
                Ok(count) => break count,
            }
        };
        self.buffer.truncate(have + count);
        match (count, have) {
            (0, 0) => Err(FrameError::Closed),
            (0, _) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            _ => Ok(()),
        }
    }
}
