//! What happens to a commit rule, and what that leads to.

use freshet_base::{Lsn, NodeId, Safety, Term};
use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::CommitRule;
#[cfg(doc)]
use crate::in_sync::Holder;
use crate::{Moment, in_sync::SetName, meeting::Rival};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The primary's own log is persistent up to here.
    Durable(Lsn),
    /// A standby connected (again); its log is persistent up to `persisted` and agrees with ours up
    /// to there.
    Joined {
        /// Who.
        standby: NodeId,
        /// Which log it has: [`Holder::incarnation`].
        incarnation: u64,
        /// What is persistent there.
        persisted: Lsn,
        /// Whether commits may count on it.
        synchronous: bool,
    },
    /// A standby reports what is persistent there.
    Acked {
        /// Who.
        standby: NodeId,
        /// What is persistent there.
        persisted: Lsn,
        /// When the newest was sent that it has taken in, by this primary's clock.
        observed: Option<Moment>,
    },
    /// The cluster's witness has answered: it grants a lease, and has noted a set.
    Witnessed {
        /// Who.
        witness: NodeId,
        /// Which file it has noted that in: [`Holder::incarnation`].
        incarnation: u64,
        /// The newest set that it has noted.
        noted: Option<SetName>,
        /// When it was asked what it has answered, by this primary's clock.
        observed: Moment,
    },
    /// A standby's connection was lost, or the witness's.
    Left {
        /// Who.
        standby: NodeId,
    },
    /// A standby that is connected is about to begin again with an empty log: no commit is to count
    /// on it, nor any set; or it is not to begin again, after all.
    Excused {
        /// Who.
        standby: NodeId,
        /// Whether it is.
        excused: bool,
    },
    /// Nothing but the time has changed.
    Tick,
    /// This primary itself stood still until now, for longer than standbys may, and heard no node
    /// in the meantime. Patience with standbys begins from now. Otherwise the primary would take
    /// them for lost and continue alone, before it can hear that they follow another primary.
    StoodStill,
    /// The in-sync set of this number was written into the log, in a block that ends at `end`
    /// ([`CommitRule::to_write`]).
    Written {
        /// Which set.
        number: u64,
        /// Where its block ends.
        end: Lsn,
    },
    /// A node has promised this term to another, or the other says so itself. At most one of two
    /// terms of one number can commit anything, unless commits count on nobody or a failover was
    /// forced. Of the other it may be known what its log holds ([`crate::meeting`]). If not, this
    /// one ends if it has committed nothing, after `standby_timeout` at the latest; else it
    /// continues, and those who have promised themselves to the other follow in a later term: after
    /// a restart, or when it has handed its role over.
    Contested {
        /// The term of both.
        term: Term,
        /// The other, if it was met.
        rival: Option<Rival>,
    },
    /// A node showed proof of a later term: this one is over.
    Fenced {
        /// That term.
        by: Term,
    },
}

/// How a standby leaves the cluster for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leaves {
    /// Its log is gone, and another node is in its place.
    Replaced,
    /// An operator removes it. It may still run, and answer candidates.
    Removed,
    /// An operator removes it, and knows that it does not run, and never will again.
    RemovedGone,
}

/// Why a standby cannot leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotLeave {
    /// Without it too few would keep up, or the set without it could be taken for another.
    #[error(
        "of the {members} nodes that count {in_sync} keep up, this one included, and no set without that node could \
         follow: start those that are away, or let another node join first; one that is gone for good, and will never \
         run again with what it has, is removed with --gone"
    )]
    Needed {
        /// How many members the newest set has.
        members: usize,
        /// How many nodes with data keep up, the primary included.
        in_sync: u32,
    },
}

/// Why the level stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotChange {
    /// Nothing would commit.
    #[error(
        "under {level} a commit is on {needed} nodes, and {in_sync} keep up at the moment, this one included: nothing \
         would commit; let other nodes join first"
    )]
    TooFew {
        /// The level.
        level: Safety,
        /// How many nodes with data a commit needs under it, the primary included.
        needed: u32,
        /// How many there are.
        in_sync: u32,
    },
    /// A node knows of no other level than 1-safe, and could be promoted without asking the others.
    #[error(
        "node {0} is not connected, and under 1-safe it could be promoted without a question: start it first, or \
             remove it"
    )]
    Away(NodeId),
}

/// What an event led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// Up to here the client may be told "committed"; also the globally persistent LSN for
    /// standbys.
    pub committed: Lsn,
    /// Whether the standing, or some member's place, is another than before.
    pub changed: bool,
    /// Whether there is an in-sync set to be written: see [`CommitRule::to_write`].
    pub write: bool,
}
