//! Whom a candidate asks.

use crate::wire::Peer;

/// Whom a node asks that wants to lead. Those that only others have spoken of may be long gone, so
/// they are not waited for, but heard.
pub(crate) struct Asked {
    pub peers: Vec<Peer>,
    /// The first of these whom only others have spoken of.
    hearsay: usize,
}

impl Asked {
    /// A cluster has fewer nodes than that.
    const MOST: usize = 64;

    /// These, whom the node knows by itself.
    pub fn known(peers: Vec<Peer>) -> Self {
        Self { hearsay: peers.len(), peers }
    }

    /// Everybody, each with whether it has to be waited for.
    pub fn peers(&self) -> impl Iterator<Item = (bool, &Peer)> {
        self.peers.iter().enumerate().map(|(number, peer)| (number < self.hearsay, peer))
    }

    fn knows(&self, peer: &Peer) -> bool {
        self.peers.iter().any(|known| known.address == peer.address)
    }

    /// Takes in whom others have spoken of, but for the node that asks; says whether anybody was
    /// new.
    pub fn learn(&mut self, spoken_of: &[Peer], is_itself: impl Fn(&Peer) -> bool) -> bool {
        let before = self.peers.len();
        for peer in spoken_of {
            if !is_itself(peer) && !self.knows(peer) && self.peers.len() < Self::MOST {
                self.peers.push(peer.clone());
            }
        }
        self.peers.len() > before
    }
}
