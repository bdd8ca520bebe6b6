//! What a node remembers of terms only grows.

use super::{FORMER, InSyncSet, TermState};

impl TermState {
    /// This state follows `before` on the same node. To be asked before it is written.
    ///
    /// # Panics
    /// When something that was promised would be forgotten.
    pub fn check_follows(&self, before: &Self) {
        assert!(self.fence.highest >= before.fence.highest, "the fence has sunk");
        let promised = self.fence.highest == before.fence.highest && before.fence.holder.is_some();
        assert!(!promised || self.fence.holder.is_some(), "nobody has the term that was promised");
        let known = before.set.as_ref();
        let stays = |known: &InSyncSet| self.set.as_ref().is_some_and(|set| set == known || set.is_news(known.name()));
        assert!(known.is_none_or(stays), "an older in-sync set is noted");
        assert!(self.led >= before.led, "a lead is forgotten");
        assert!(before.cluster.is_none() || self.cluster == before.cluster, "the node is in another cluster");
        assert!(self.former.len() <= FORMER, "too many former logs are remembered");
        let same = self.incarnation == before.incarnation;
        assert!(!same || self.committed >= before.committed, "what was acknowledged is forgotten");
        let lost = before.incarnation.filter(|_| !same);
        assert!(lost.is_none_or(|lost| self.former.contains(&lost)), "a log that was lost is forgotten");
    }
}
