//! What the cluster's witness has noted: of it a commit needs nothing, but the next set may.

use freshet_base::{Lsn, NodeId};

use super::{CommitRule, Member, Place};
use crate::{
    Moment,
    in_sync::{Holder, SetName},
};

impl CommitRule {
    /// The witness has answered. Says whether it had not since it came, or another was lost.
    pub(super) fn witnessed(&mut self, witness: Holder, noted: Option<SetName>, observed: Moment, now: Moment) -> bool {
        let Holder { node, incarnation, .. } = witness;
        let Some(sets) = self.sets.as_mut() else { return false };
        let known = sets.roster().witness;
        if known.is_some_and(|known| known != node) {
            return false;
        }
        // The word of one that leaves counts until the set without it is in effect.
        let leaves = sets.roster().has_removed(node);
        if leaves && sets.leaving_witness() != Some(node) {
            return false;
        }
        if !leaves {
            sets.note_witness(node);
        }
        sets.lost(node, Some(witness));
        let member = self.members.entry(node).or_insert_with(|| Member::unknown(now));
        let comes = !member.connected || member.incarnation != incarnation;
        if member.incarnation != incarnation {
            member.acked = Lsn::ZERO;
            member.move_to(if sets.binds(node) { Place::Leaving } else { Place::Behind }, now);
        }
        (member.witness, member.incarnation, member.noted) = (true, incarnation, noted);
        (member.connected, member.answered, member.forgotten, member.absent) = (true, true, leaves, false);
        member.synchronous = !leaves;
        member.observed = member.observed.max(Some(observed).filter(|observed| *observed <= now));
        if comes && member.outstanding.is_some_and(|(at, _)| at == Lsn::MAX) {
            member.outstanding = None;
        }
        self.note_witnessed(now);
        comes || known.is_none() && !leaves
    }

    /// Which witness the primary asks: the cluster's, or one whose removal is not on record yet,
    /// and may have to note the set without it.
    pub fn witness_to_ask(&self) -> Option<NodeId> {
        let sets = self.sets.as_ref()?;
        sets.roster().witness.or_else(|| sets.leaving_witness())
    }

    /// A set may have got its place in the log after the witness has noted it.
    pub(super) fn note_witnessed(&mut self, now: Moment) {
        let Some(sets) = &self.sets else { return };
        for member in self.members.values_mut().filter(|member| member.witness) {
            let end = member.noted.and_then(|noted| sets.end_of(noted));
            member.acked = member.acked.max(end.unwrap_or_default());
            if member.connected {
                member.mark(sets.recorded(), now);
            }
        }
    }
}
