//! Remove: an operator takes a node out of the cluster ([`freshet_cluster::in_sync::Roster`]).

use std::time::Instant;

use freshet_base::NodeId;
use freshet_cluster::commit_rule::{CannotLeave, Event, Leaves};

use super::{
    Primary, Shared,
    on_record::{ON_RECORD, comes_true},
};
use crate::{
    feed::{Feeder, REMOVED},
    members::{FROM_ABOVE, is_named},
    wire::Peer,
};

/// Why a node was not removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoveError {
    /// No node of the cluster has this name.
    #[error(
        "no node of the cluster has the id or address {0}: `freshet members` shows all that have. What is gone and was \
         never one, as a backup that was stolen, is removed by its whole id with --gone"
    )]
    Unknown(String),
    /// It leads.
    #[error("this node is the primary: hand its role over first, with `freshet switch-over`")]
    Primary,
    /// See there.
    #[error("node {node} cannot be removed: {cause}")]
    Refused {
        /// Which node.
        node: NodeId,
        /// Why.
        cause: CannotLeave,
    },
    /// The set without it is not in effect yet.
    #[error(
        "node {0} was let go, but that is not on record yet: commits wait for other nodes, or another node has taken \
         over; see `freshet status`, and remove it again, with those for which they wait if these are gone, too"
    )]
    NotRecorded(NodeId),
}

impl Primary {
    /// Takes the node `who`, its id or the address where others reach it, out of the cluster: no
    /// commit counts on it, and it may not come back with what it has. `gone`: it does not run, and
    /// never will again, so that what it has promised to candidates counts no more. Blocks until
    /// that is on record, ten seconds at most; then until the cluster's new authority is, ten
    /// seconds at most.
    ///
    /// # Errors
    /// [`RemoveError`]; unless it says otherwise nothing has changed.
    pub fn remove(&self, who: &str, gone: bool) -> Result<NodeId, RemoveError> {
        let shared = &self.shared;
        // A backup has a certificate, and is known nowhere.
        let unknown = || who.parse().ok().filter(|_| gone);
        let node = shared
            .named(who)
            .or_else(|| shared.shown(who))
            .or_else(unknown)
            .ok_or_else(|| RemoveError::Unknown(who.to_owned()))?;
        if node == shared.who.node {
            return Err(RemoveError::Primary);
        }
        // They are on record with this: nodes that are away come back by their keys.
        shared.note_all_keys();
        let how = if gone { Leaves::RemovedGone } else { Leaves::Removed };
        shared.commit.leave(node, how).map_err(|cause| RemoveError::Refused { node, cause })?;
        tracing::warn!(%node, gone, term = shared.who.term.0, "an operator removes a node from the cluster");
        // The commit rule may have a set to write now.
        shared.apply(Event::Tick);
        if !comes_true(Instant::now() + ON_RECORD, || shared.commit.has_removed(node)) {
            return Err(RemoveError::NotRecorded(node));
        }
        shared.let_go(node);
        // What it can sign counts nowhere from now on. The next authority may come later.
        if let Err(cause) = shared.wait_for_authority(Instant::now() + ON_RECORD) {
            tracing::warn!(%cause, "no node lets new ones in until the cluster has another authority");
        }
        Ok(node)
    }
}

impl Shared {
    /// The node of the cluster that has this id or address.
    fn named(&self, who: &str) -> Option<NodeId> {
        let mut peers = self.known();
        // Of some that it has not met in this term, it knows addresses alone.
        self.terms.name(&mut peers);
        let peers = peers.into_iter().filter_map(|peer| Some((peer.node?, peer.address)));
        let members = self.commit.places().into_keys().chain(self.commit.voters()).chain(self.commit.witness());
        // Also of those on which nothing counts: an archive that was stolen is removed by its id.
        let members = members.chain(self.commit.known_nodes());
        let members = members.map(|node| (node, self.address_of(node).unwrap_or_default()));
        peers.chain(members).find(|(node, address)| is_named(who, *node, address)).map(|(node, _)| node)
    }

    /// The node with this id or address among those that it shows: relays know those below them.
    /// Blocks for a time that is bounded.
    fn shown(&self, who: &str) -> Option<NodeId> {
        let nodes = self.known_members(FROM_ABOVE).nodes;
        nodes.iter().find(|it| is_named(who, it.node, &it.address)).map(|it| it.node)
    }

    /// This node feeds it no more, and no node asks it anything.
    fn let_go(&self, node: NodeId) {
        let address = self.address_of(node);
        let is_it =
            |peer: &Peer| peer.node == Some(node) || peer.node.is_none() && Some(&peer.address) == address.as_ref();
        self.peers.lock().expect("no code panics under this mutex").retain(|peer| !is_it(peer));
        self.remember_peers();
        self.feeds.end_feeds_of(node, REMOVED);
        self.feeds.peers_changed();
    }
}
