//! What commits promise, and how an operator changes that while the primary commits.

use std::collections::BTreeSet;

use freshet_base::{NodeId, Safety};

use super::{CannotChange, CommitRule, Decision, Event, Sets, held};
use crate::Moment;

impl CommitRule {
    /// What commits promise now.
    pub fn level(&self) -> Safety {
        let begun = self.sets.as_ref().filter(|sets| sets.begun());
        begun.map_or_else(|| self.wanted_level(), |sets| sets.in_effect().level)
    }

    /// What they are to promise: another level than [`CommitRule::level`] while the record of a
    /// change is on its way. Until then they keep to both.
    pub fn wanted_level(&self) -> Safety {
        self.sets.as_ref().map_or(self.config.safety, Sets::level)
    }

    /// An operator wants another level. It is in effect when the set is that is recorded under it.
    ///
    /// # Errors
    /// [`CannotChange`]; then nothing has changed.
    pub fn change_level(&mut self, level: Safety, now: Moment) -> Result<Decision, CannotChange> {
        let (in_sync, now_kept) = (self.in_sync() + 1, self.level());
        if let Some(sets) = &mut self.sets {
            let needed = sets.needed_under(level).unwrap_or(0);
            // The level that commits keep to anyway may be wanted again, unless members were
            // removed since that only the other level can do without.
            let left = sets.roster().voters.len();
            let is_kept = level == sets.level() || level == now_kept && needed as usize <= left;
            if needed > in_sync && !is_kept {
                return Err(CannotChange::TooFew { level, needed, in_sync });
            }
            let is_away = |node| self.members.get(&node).is_none_or(|member| !member.connected);
            let away = sets.members().map(|member| member.node).find(|node| is_away(*node));
            if let Some(node) = away.filter(|_| sets.level() == Safety::OneSafe && level != Safety::OneSafe) {
                return Err(CannotChange::Away(node));
            }
            sets.set_level(level);
        } else {
            self.config.safety = level;
        }
        Ok(self.apply(Event::Tick, now))
    }

    /// Whether commits keep to more than [`CommitRule::level`] says: to an earlier level, until the
    /// set of the one that is wanted, or of this term, is on record. Says which nodes have yet to
    /// note that.
    pub fn level_pending(&self) -> Option<BTreeSet<NodeId>> {
        self.pending(Sets::is_level_pending)
    }

    /// Whether another in-sync set is on its way to the record: until it is in effect, a failover
    /// may need members of the set before as well. Says which nodes have yet to note it.
    pub fn set_pending(&self) -> Option<BTreeSet<NodeId>> {
        self.pending(Sets::is_changing)
    }

    /// Which nodes have yet to note what is not on record, if something is not.
    fn pending(&self, is_pending: impl Fn(&Sets) -> bool) -> Option<BTreeSet<NodeId>> {
        let sets = self.sets.as_ref().filter(|sets| is_pending(sets))?;
        Some(sets.unnoted(held(&self.members, sets.me(), self.durable)))
    }

    /// Writes a set of the level that is wanted, where the newest is of another.
    pub(super) fn begin_level(&mut self) {
        if self.sets.as_ref().is_some_and(Sets::changes_level) {
            let silent = self.silent();
            if let Some(sets) = &mut self.sets {
                sets.change_level(&silent);
            }
        }
    }

    /// The members of the newest set that stall.
    pub(super) fn silent(&self) -> BTreeSet<NodeId> {
        let stalls = |node: &NodeId| self.members.get(node).is_none_or(|member| member.stalls);
        self.sets.iter().flat_map(Sets::members).map(|member| member.node).filter(stalls).collect()
    }

    /// Whether a witness may be of use at the level that is wanted.
    pub fn takes_witness(&self) -> bool {
        self.sets.as_ref().map_or(self.config.takes_witness(), Sets::takes_witness)
    }
}
