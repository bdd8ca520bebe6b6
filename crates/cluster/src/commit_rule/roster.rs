//! Who belongs to the cluster, and how many of them a commit needs.

use freshet_base::{NodeId, versions::Level};

use super::{CannotLeave, CommitRule, Decision, Event, Leaves, Sets};
use crate::{
    Moment,
    in_sync::{Fingerprint, InSyncSet, Noted, Roster},
};

impl CommitRule {
    /// How many standbys must have persisted a block before it commits; `None` where all do that
    /// are in sync.
    pub(super) fn needed(&self) -> Option<u32> {
        self.sets.as_ref().map_or_else(|| self.config.needed(), Sets::needed)
    }

    /// How many standbys no set may do without, where commits wait for all members. A witness is
    /// none.
    pub(super) fn floor(&self) -> u32 {
        self.awaited().map_or(self.config.floor, |sets| sets.floor().saturating_sub(sets.witnesses()))
    }

    /// How many standbys belong to the cluster, as far as is known.
    pub fn expected(&self) -> u32 {
        let all = match &self.sets {
            Some(sets) => sets.roster().voters.len().saturating_sub(1),
            None if self.config.safety.counts_on_nobody() => self.members.values().filter(|it| it.synchronous).count(),
            None => return self.config.standbys,
        };
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    /// How many standbys have to keep up, without which nothing commits.
    pub fn least(&self) -> u32 {
        self.needed().unwrap_or_else(|| self.floor())
    }

    /// A standby leaves the cluster for good. Its acknowledgements stop counting, for what is not
    /// committed yet.
    ///
    /// # Errors
    /// [`CannotLeave`]; then nothing has changed.
    pub fn leave(&mut self, standby: NodeId, how: Leaves, now: Moment) -> Result<Decision, CannotLeave> {
        let (silent, in_sync) = (self.silent(), self.in_sync() + 1);
        match &mut self.sets {
            Some(sets) if how == Leaves::Removed && !sets.may_do_without(standby, &silent) => {
                return Err(CannotLeave::Needed { members: sets.members().count() + 1, in_sync });
            }
            Some(sets) => sets.leave(standby, how),
            None => {}
        }
        let known = match self.members.get_mut(&standby) {
            Some(member) if self.sets.as_ref().is_some_and(|sets| sets.binds(standby)) => {
                (member.forgotten, member.synchronous) = (true, false);
                // One that may still run also counts until the set without it is in effect.
                member.connected &= how == Leaves::Removed;
                true
            }
            _ => self.members.remove(&standby).is_some(),
        };
        let decision = self.apply(Event::Tick, now);
        Ok(Decision { changed: decision.changed | known, ..decision })
    }

    /// Whether an operator has removed this node, and that is on record, as a record that is in
    /// effect says itself: no set that may be in effect has it.
    pub fn has_removed(&self, node: NodeId) -> bool {
        let removed = |set: &InSyncSet| set.roster.removed.contains(&node);
        self.sets.as_ref().is_some_and(|sets| removed(sets.in_effect()) && !sets.binds(node))
    }

    /// Something is to be recorded of authorities and keys; nothing is where sets are not.
    pub fn note(&mut self, noted: &Noted, now: Moment) -> Decision {
        if let Some(sets) = &mut self.sets {
            sets.note(noted);
        }
        self.apply(Event::Tick, now)
    }

    /// The generation of the authority that counts, and its fingerprint, as a record that is in
    /// effect has it; none where sets are not recorded, or none of this term is in effect yet.
    pub fn authority(&self) -> Option<(u64, Option<Fingerprint>)> {
        let sets = self.sets.as_ref().filter(|sets| sets.begun())?;
        let known = &sets.in_effect().roster.known;
        Some((known.generation, known.authority))
    }

    /// The cluster's format level: as a record that is in effect has it, and as it is to be by the
    /// next; none where sets are not recorded, or none of this term is in effect yet.
    pub fn format(&self) -> Option<(Level, Level)> {
        let sets = self.sets.as_ref().filter(|sets| sets.begun())?;
        Some((sets.in_effect().roster.format, sets.roster().format))
    }

    /// Who belongs to the cluster, where sets are recorded.
    pub fn roster(&self) -> Option<&Roster> {
        self.sets.as_ref().map(Sets::roster)
    }
}
