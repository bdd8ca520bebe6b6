//! What happens to a standby, and what has to be done then.

use freshet_base::Lsn;
use serde::{Deserialize, Serialize};

use crate::{Moment, commit_rule};

/// What a standby holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// Its log is persistent up to here (and replayed, if replay is synchronous).
    pub persisted: Lsn,
    /// Ready to receive up to here.
    pub may_send_until: Lsn,
    /// Replayed up to here.
    pub replayed: Lsn,
    /// Its readers see up to here.
    pub visible: Lsn,
    /// When the newest was sent that it has taken in, by the primary's clock: the lease that this
    /// grants begins then ([`crate::lease`]).
    pub observed: Option<Moment>,
}

/// How far a node may be sent the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Up to here.
    pub until: Lsn,
    /// Other room is worth telling when it is this much more or less, in bytes.
    pub step: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Event {
    /// The primary, or the relay above, says that this is globally persistent.
    Global(Lsn),
    /// Blocks have arrived up to here in another form, from which they are regenerated: they are of
    /// this log, may be persistent as that, and are not part of it yet.
    Arrived(Lsn),
    /// The log is persistent up to here.
    Persisted(Lsn),
    /// The piece that ends here is replayed.
    Replayed(Lsn),
    /// Of a relay: something happened below.
    Below(commit_rule::Event),
}

/// What has to be done now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// Readers may see more: up to here.
    pub show: Option<Show>,
    /// There is something to replay, where there was nothing before.
    pub replay: bool,
    /// Of a relay: those below are to be told that this is globally persistent.
    pub down: Option<Lsn>,
    /// Of a relay: what lies below this is here, and globally persistent. It may end within a
    /// transaction, so those below are not told, but no room has to be kept for it.
    pub release: Option<Lsn>,
    /// Of a relay: the place of one of those below is another than before.
    pub places: bool,
}

/// Up to where readers may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Up to here, where a transaction ends.
    To(Lsn),
    /// Up to the last end of a transaction at or below this, which the log knows.
    Below(Lsn),
}

impl Show {
    /// Up to where that is. `transaction_end` says where the last transaction ends at or below an
    /// LSN.
    pub fn end(self, transaction_end: impl FnOnce(Lsn) -> Lsn) -> Lsn {
        match self {
            Self::To(end) => end,
            Self::Below(at) => transaction_end(at),
        }
    }
}

/// What is to be replayed at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins.
    pub from: Lsn,
    /// Ends of blocks in it, ascending; the last is its own end.
    pub ends: Vec<Lsn>,
}

/// The log has to be cut below what readers have seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What they have seen.
    pub visible: Lsn,
}
