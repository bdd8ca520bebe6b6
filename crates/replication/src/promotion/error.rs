//! Why a node is not promoted.

use std::time::Duration;

use freshet_base::{Lsn, NodeId, Safety, Term};

use crate::{follow::SessionError, terms::BeginError};

/// Why a promotion did not take place.
#[derive(Debug, thiserror::Error)]
pub enum PromoteError {
    /// Too few nodes answered.
    #[error(
        "only {answered} of {needed} required nodes answered, so acknowledged commits might be lost; bring \
         more nodes back{way}{unreachable}"
    )]
    TooFew {
        /// How many answered, this one included.
        answered: u32,
        /// How many it takes.
        needed: u32,
        /// What else can be done.
        way: &'static str,
        /// Who did not, and why.
        unreachable: String,
    },
    /// The primary may have changed its in-sync set, and no node that would know answered.
    #[error(
        "only {answered} of {needed} required members of the in-sync set answered: the primary may have continued \
         without this node, so acknowledged commits might be lost; bring \
         more of the in-sync set back{members}{way}{unreachable}"
    )]
    SetUncertain {
        /// How many members of the newest known in-sync set answered, this node included if it is
        /// one.
        answered: u32,
        /// How many it takes.
        needed: u32,
        /// Who they are.
        members: String,
        /// What else can be done.
        way: &'static str,
        /// Who did not answer, and why.
        unreachable: String,
    },
    /// This node comes back, and another has led since it did: it follows that one.
    #[error("{node} is the primary, or was, since term {term}; if it is gone for good, promote this node")]
    Superseded {
        /// Who.
        node: NodeId,
        /// Since when.
        term: Term,
        /// Whether a node lives under that term now.
        lives: bool,
        /// Where its primary can be reached, if known.
        primary: Option<String>,
    },
    /// It has no vote.
    #[error(
        "this node is an asynchronous standby, and safety level {0} relies on the synchronous nodes; promote one of \
         those, or force the promotion"
    )]
    Asynchronous(Safety),
    /// The newest record does not name this node's log.
    #[error(
        "this node's log is none of those that safety level {safety} counts on, as far as is known (nodes {members}): \
         it is new, was put out, or was emptied since; start one of those again, or promote one. To force the \
         promotion of this one may lose acknowledged commits"
    )]
    Newcomer {
        /// The level.
        safety: Safety,
        /// The nodes on which it counts.
        members: String,
    },
    /// Another node has more, and cannot pass it on.
    #[error(
        "node {node} at {at} has more than this one and cannot pass it on, since it is a mirror: promote that node; to \
         force the promotion of this one loses what the other has more"
    )]
    Better {
        /// Which.
        node: NodeId,
        /// Where.
        at: String,
    },
    /// This node holds what was acknowledged, and a more advanced log does not.
    #[error(
        "this node has what was acknowledged to clients up to {committed}, and the log of node {node} at {address} parts \
         from its own at {at}. No node was asked to promise anything. See what each node holds (freshet status), and \
         decide: freshet promote --force makes this node the primary with what it holds, and gives up what the other \
         side has committed since; or keep this node's directory aside, and start it with a new one"
    )]
    HoldsMore {
        /// Whose log that is.
        node: NodeId,
        /// Where that node can be reached.
        address: String,
        /// Where the two part.
        at: Lsn,
        /// Everything of this node's below was acknowledged.
        committed: Lsn,
    },
    /// Another node holds what was acknowledged, and this one's log does not.
    #[error(
        "node {node} at {address} has what was acknowledged to clients up to {committed}, and the log with which this \
         node would lead parts from that at {at}: two have led beside each other. No node has promised anything. See \
         what each holds (freshet status), and decide: leave the role with that node, or promote that one; or stop \
         that one, and promote this node again (with --force if it lacks other nodes, too), which gives up what that \
         one has committed since {at}"
    )]
    LeavesOut {
        /// Who has it.
        node: NodeId,
        /// Where that node can be reached.
        address: String,
        /// Where the two part.
        at: Lsn,
        /// Everything of that node's below was acknowledged.
        committed: Lsn,
    },
    /// A node began one term twice.
    #[error(
        "the log of {with} and this one cannot be reconciled: one node was primary in term {term} twice, the second \
         time with a directory that was set back, or copied. An operator must choose: freshet promote --force makes \
         the node the primary whose log is right; keep the directory of the other aside, and start it with a new one"
    )]
    SameTermTwice {
        /// The peer.
        with: String,
        /// The term.
        term: Term,
    },
    /// Others want to lead too.
    #[error("another node is taking over at the same time: terms rose to {0}")]
    Contested(Term),
    /// The primary hands its role over no more.
    #[error("{0} is the primary as before: its offer of the role stands no more, or it does not answer")]
    NotHanded(NodeId),
    /// It stands without having been told to.
    #[error("maintenance lasts: no node takes over by itself")]
    Maintenance,
    /// The missing part of the log could not be fetched.
    #[error("the end of the log could not be fetched from {from}: {source}")]
    Fetch {
        /// From whom.
        from: String,
        /// What went wrong.
        source: SessionError,
    },
    /// Another node's log counts for more than this one's, and does not go back to where the two
    /// part. That node may have joined from a checkpoint.
    #[error(
        "the log at {from} counts for more than this one, and is no longer kept there from {lsn} on, where this node \
         would continue: promote that node instead; if it cannot lead either, stop it and ask again, which gives up \
         what it alone holds"
    )]
    Unfetchable {
        /// Where that node is.
        from: String,
        /// From where on this node would need that log.
        lsn: Lsn,
    },
    /// The standby had failed before, or fails now.
    #[error("this standby cannot take over: {0}")]
    Local(String),
    /// Replay or persistence takes too long.
    #[error("the received log was not persisted and replayed within {0:?}")]
    Deadline(Duration),
    /// The term cannot begin.
    #[error(transparent)]
    Begin(#[from] BeginError),
}
