//! Who belongs to a cluster, and by which authority and keys its nodes know one another: part of
//! each record of an in-sync set.

use std::collections::{BTreeMap, BTreeSet};

use freshet_base::{NodeId, versions::Level};
use serde::{Deserialize, Serialize};

/// Who belongs to the cluster, in sync or not. Only an operator takes a node out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// All nodes with data that were members of a set, and were not removed or replaced since.
    pub voters: BTreeSet<NodeId>,
    /// The witness that has come last, if it was not removed or replaced since.
    pub witness: Option<NodeId>,
    /// The nodes that an operator removes: that is not known to be on record anywhere else yet, and
    /// void if the record of it never takes effect.
    pub leaving: BTreeSet<NodeId>,
    /// The nodes that an operator has removed, the last of them last: at most [`REMOVED`]. They may
    /// not join again.
    pub removed: Vec<NodeId>,
    /// By what its nodes are known.
    pub known: Known,
    /// Up to which versions formats are written: all members know that level. Last, since records
    /// of the first level end before it. A register of before there were levels lacks it, too.
    #[serde(default)]
    pub format: Level,
}

/// By what the nodes of a cluster are known to one another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Counts the cluster's authorities. What an authority of an earlier number has signed counts
    /// only where the key that it is for is among `keys`.
    pub generation: u64,
    /// The fingerprint of the certificate of that authority; none: it is yet to be made, or the
    /// operator provides the certificates.
    pub authority: Option<Fingerprint>,
    /// The keys by which nodes are known, whichever authority has signed for them: at most
    /// [`KEYS`]. Those of nodes that were removed are among them, so that they hear why they are
    /// refused.
    pub keys: BTreeMap<NodeId, Fingerprint>,
}

/// SHA-256 of a certificate, or of a public key.
pub type Fingerprint = [u8; 32];

/// How many removed nodes a cluster remembers.
pub const REMOVED: usize = 256;

/// How many keys a cluster remembers: those of all nodes that belong to it, and of the last that
/// were removed.
pub const KEYS: usize = 256;

/// What is to be recorded of authorities and keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Noted {
    /// These are the keys of these nodes.
    Keys(BTreeMap<NodeId, Fingerprint>),
    /// The present authority counts no more, by the word of an operator.
    Retired,
    /// The primary has made the authority of this generation, with this fingerprint.
    Made(u64, Fingerprint),
    /// All members know this format level, by the word of an operator. It never sinks.
    Format(Level),
}

impl Roster {
    /// Whether an operator removes this node, or has.
    pub fn has_removed(&self, node: NodeId) -> bool {
        self.leaving.contains(&node) || self.removed.contains(&node)
    }

    /// `node` belongs to the cluster no more.
    pub(crate) fn leave(&mut self, node: NodeId, removed: bool) {
        self.voters.remove(&node);
        self.witness.take_if(|witness| *witness == node);
        if removed && !self.has_removed(node) {
            self.leaving.insert(node);
            // It has the authority's key.
            self.note(&Noted::Retired);
        }
    }

    pub(crate) fn note(&mut self, noted: &Noted) {
        let Known { generation, authority, keys } = &mut self.known;
        match noted {
            Noted::Keys(new) => {
                keys.extend(new);
                while self.known.keys.len() > KEYS
                    && let Some(node) = self.least_needed(new)
                {
                    self.known.keys.remove(&node);
                }
            }
            Noted::Retired => (*generation, *authority) = (*generation + 1, None),
            Noted::Made(number, made) => (*generation, *authority) = (*number, Some(*made)),
            Noted::Format(level) => self.format = self.format.max(*level),
        }
    }

    /// Whose key is to be forgotten first: of a node that was removed, then of one on which no
    /// commit counts. `new` has just come.
    fn least_needed(&self, new: &BTreeMap<NodeId, Fingerprint>) -> Option<NodeId> {
        let removed = self.removed.iter().copied().find(|node| self.known.keys.contains_key(node));
        let stays = |node: &NodeId| self.voters.contains(node) || self.witness == Some(*node);
        let others = || self.known.keys.keys().rev().filter(|node| !stays(node));
        removed.or_else(|| others().find(|node| !new.contains_key(node)).or_else(|| others().next()).copied())
    }

    /// The record is in effect by which these leave.
    pub(crate) fn left(&mut self, left: &BTreeSet<NodeId>) {
        self.removed.extend(left.iter().filter(|node| self.leaving.remove(node)));
        let oldest = self.removed.len().saturating_sub(REMOVED);
        for node in self.removed.drain(..oldest) {
            self.known.keys.remove(&node);
        }
    }
}
