//! Session: why a connection to a primary ended, and the frames that come on one.

use std::time::Duration;

use freshet_base::{Lsn, Term};
use freshet_cluster::upstream::Ended;
use freshet_fabric::{
    OpenError,
    channel::{Arrival, Receiver},
    frame::Header,
    tcp::{self, ReceiveError},
};
use freshet_log as log;

use super::{Shared, Store, fenced, violation};
use crate::{
    endpoint::CallError,
    terms::{NotPromised, TermStoreError},
    wire::{self, BatchNote, DecodeError, Kind, Refusal},
};

/// Why a connection to a primary, or the attempt at one, ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There was none.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It was lost, or damaged.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// Something came that means nothing.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The two nodes cannot write into one another's memory.
    #[error(transparent)]
    Fabric(#[from] OpenError),
    /// The primary ended it.
    #[error("the primary ended the connection: {0}")]
    Goodbye(Refusal),
    /// This node ended it.
    #[error("this standby ended the connection: {0}")]
    Refused(Refusal),
    /// Commits may count on this node, which must then follow the primary itself.
    #[error(
        "this standby is in the in-sync set: it must follow the primary, not a relay, until a recorded set leaves it out"
    )]
    Counted {
        /// Where that is, if known.
        primary: Option<String>,
    },
    /// This node is a mirror without content, and did not get any.
    #[error("this mirror cannot begin from the checkpoint of the node that it follows: {0}")]
    Seed(String),
    /// This mirror is an observer no more: it comes again, and commits count on it.
    #[error("{0}")]
    Seeded(Refusal),
    /// A term could not be noted, as on a full disk. It may be later.
    #[error(transparent)]
    Terms(#[from] TermStoreError),
    /// What is to be cut off could not be saved before, as on a full disk. It may be later.
    #[error("what the primary's log does not have is to be cut off here, and cannot be saved before: {0}")]
    NotSaved(String),
    /// This node is told to do something else.
    #[error("this standby was told to follow another node, or to stop following")]
    Interrupted,
    /// This node cannot go on.
    #[error("{0}")]
    Local(String),
}

impl SessionError {
    /// What the other side should be told.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) | Self::Seeded(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// The same for the machine that decides what to do next.
    pub(crate) fn ended(&self) -> Ended {
        match self {
            Self::Call(CallError::Refused { refusal, .. }) | Self::Goodbye(refusal) => Ended::Refused(refusal.clone()),
            Self::Call(_) => Ended::Unreachable,
            Self::Receive(_) => Ended::Lost,
            Self::Counted { primary } => Ended::Counted(primary.clone()),
            Self::Local(_) => Ended::Failed,
            Self::Decode(_)
            | Self::Fabric(_)
            | Self::Refused(_)
            | Self::Seed(_)
            | Self::Seeded(_)
            | Self::Terms(_)
            | Self::NotSaved(_)
            | Self::Interrupted => Ended::GivenUp,
        }
    }

    /// Why it is, if this node holds more than the one that it is to follow.
    pub(crate) fn holds_more(&self) -> Option<&Refusal> {
        let why = self.remote_refusal().or(self.refusal());
        why.filter(|why| matches!(why, Refusal::HoldsMore { .. } | Refusal::MirrorHoldsMore { .. }))
    }

    /// What the other side has said, if it was that which ended it.
    pub(crate) fn remote_refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Call(CallError::Refused { refusal, .. }) | Self::Goodbye(refusal) => Some(refusal),
            _ => None,
        }
    }
}

impl From<NotPromised> for SessionError {
    fn from(why: NotPromised) -> Self {
        match why {
            NotPromised::Refused(refusal) => Self::Refused(refusal),
            NotPromised::Store(error) => error.into(),
        }
    }
}

impl From<log::ReceiveError> for SessionError {
    fn from(error: log::ReceiveError) -> Self {
        Self::Local(error.to_string())
    }
}

/// Only this node's own log ends it; what is no block of it, the other side has sent.
impl From<log::AcceptError> for SessionError {
    fn from(error: log::AcceptError) -> Self {
        match error {
            log::AcceptError::Receive(error) => error.into(),
            damaged => violation(damaged.to_string()),
        }
    }
}

/// The next frame of a connection in `term`; none if the other side has only written its status.
/// Blocks for `patience` at most.
pub(crate) fn next_frame<S: Store>(
    shared: &Shared<S>,
    receiver: &mut Receiver,
    term: Term,
    patience: Duration,
) -> Result<Option<Header>, SessionError> {
    match receiver.next(patience)? {
        Some(Arrival::Frame(header)) if header.term != term => Err(fenced(shared, header.term)),
        Some(Arrival::Frame(header)) => Ok(Some(header)),
        Some(Arrival::Status) => Ok(None),
        None => Err(ReceiveError::Silent { peer: receiver.peer(), patience }.into()),
    }
}

/// Whether a batch continues the log, which ends at `from`, and its blocks can end where `note`
/// says.
pub(crate) fn check_batch(header: &Header, note: &BatchNote, from: Lsn) -> Result<(), SessionError> {
    freshet_base::step!(Receive, from, from);
    if header.address != from.0 {
        return Err(violation(format!("a batch begins at {}, the log ends at {from}", header.address)));
    }
    let ascending = note.ends.windows(2).all(|pair| pair[0] < pair[1]);
    if header.payload == 0 || !ascending || note.ends.first() == Some(&0) || note.ends.last() != Some(&header.payload) {
        return Err(violation(format!("the ends of blocks in the batch at {from} are impossible")));
    }
    Ok(())
}

/// The next frame of a log that is fetched, before its bytes are: it continues at `from`, and ends
/// at `until` at the latest.
pub(crate) fn next_fetched<S: Store>(
    shared: &Shared<S>,
    receiver: &mut tcp::Receiver,
    term: Term,
    (from, until): (Lsn, Lsn),
) -> Result<(Header, BatchNote), SessionError> {
    let header = receiver.receive()?;
    if header.term != term || !shared.terms.admits(term) {
        return Err(fenced(shared, header.term));
    }
    match Kind::from_code(header.kind) {
        Some(Kind::Batch) => {}
        Some(Kind::Goodbye) if header.payload == 0 => {
            return Err(SessionError::Goodbye(wire::decode("goodbye", receiver.immediate())?));
        }
        _ => return Err(violation(format!("a frame of kind {} was not expected", header.kind))),
    }
    let note: BatchNote = wire::decode("batch", receiver.immediate())?;
    check_batch(&header, &note, from)?;
    let to = from.plus(u64::from(header.payload));
    if to > until {
        return Err(violation(format!("a batch ends at {to}, beyond the end of the log that was agreed")));
    }
    Ok((header, note))
}
