//! The commit rule: up to which LSN the client may be told "committed".
//!
//! Let `durable` be what is persistent on the primary and `acked(s)` what is persistent
//! on standby `s`. With `n` standbys that belong to the cluster, `committed` never moves back and
//! never exceeds
//!
//! | safety | bound |
//! |---|---|
//! | 1-safe | `durable` |
//! | 2-safe | min(`durable`, `acked(s)` for every `s` in the waited-for set) |
//! | very safe | min(`durable`, the n-th largest `acked`) |
//! | quorum(k) | min(`durable`, the (k-1)-th largest `acked`): the primary is one of the k |
//! | majority | as under 2-safe with fewer than two standbys, else as under quorum of more than half |
//!
//! `acked` of a standby that went away still counts under very safe and quorum: what is
//! persistent there stays so. When it returns it says again what it holds.
//!
//! # The in-sync set
//!
//! Every standby has a [`Place`]:
//!
//! ```text
//!             acked is within the join window of committed
//!   Behind ────────────────────────────────────────────────▶ Joining
//!      ▲                                                        │ acked reaches committed
//!      │ a position durable on the primary stays                ▼
//!      └──────────── unacknowledged for standby_timeout ───── InSync
//! ```
//!
//! The waited-for set is everyone who is Joining or InSync. Joining exists because a primary that
//! runs alone moves `committed` with every flush, so that a standby which is always one batch late
//! would never be level with it: while it joins, `committed` stands still until it is. A standby
//! that was put out must first acknowledge all that was durable at that time, so that one which
//! hangs cannot come in, block, and be put out again for ever. A lost connection counts like a
//! stall that begins with the loss: within `standby_timeout` the standby may return as if nothing
//! had happened.
//!
//! The set is written into the log before it takes effect ([`crate::in_sync`]), if the rule is told
//! to ([`CommitRule::recorded`]). It names its level, which an operator changes while the primary
//! commits ([`CommitRule::change_level`]). Under 2-safe a standby that stalls is then at first
//! [`Place::Leaving`], and one that is level stays Joining: both are waited for until the new set
//! is in effect. A set that is written and not in effect binds as well as the one in effect.
//!
//! Under very safe and quorum a commit counts the members of the recorded set, the primary
//! included: K of them hold it, of each set that may be in effect. A standby becomes a member when
//! it is level, and remains one while it is away. It goes when its log is known to be gone, or an
//! operator removes it. Under majority, sets of either kind follow one another as nodes come and
//! go.
//!
//! An *asynchronous* standby is Behind for ever: no commit waits for it, and it counts in no
//! quorum.
//!
//! Under 2-safe a primary that starts, and above all one that has just taken over, gives the
//! standbys of its cluster `standby_timeout` to come in before it continues without them.
//!
//! # What standbys may show
//!
//! The globally persistent LSN of Query Fresh, section 3.4.3, is `committed` at every level, and
//! a standby shows no more than min(replayed, own persisted, globally persistent). Under 1-safe
//! `committed` is only what is durable on the primary: its own persistence is what a failover by
//! that standby cannot lose, and the primary's is what a restart of the primary cannot lose. (Under
//! 1-safe a failover by a standby that holds less, and finds neither of them, does lose it: that
//! is what 1-safe means.)

mod change;
mod config;
mod event;
mod law;
mod lease;
mod level;
mod member;
mod roster;
mod sets;
mod standing;
mod witness;

use std::collections::{BTreeMap, BTreeSet};

use freshet_base::{Lsn, NodeId, Term};
use serde::{Deserialize, Serialize};

use self::sets::Sets;
pub use self::{
    config::{RuleConfig, WhenMissing},
    event::{CannotChange, CannotLeave, Decision, Event, Leaves},
    member::{Member, Place},
    standing::{Refusal, Standing},
};
use crate::{
    Moment,
    in_sync::{Holder, InSyncSet, Succession},
    meeting::{Acknowledged, Yields},
};

/// The rule's state on one primary during one term.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CommitRule {
    config: RuleConfig,
    start: Lsn,
    started: Moment,
    durable: Lsn,
    committed: Lsn,
    members: BTreeMap<NodeId, Member>,
    degraded_since: Option<Moment>,
    blocked_since: Option<Moment>,
    refusing: bool,
    /// 2-safe only: the start's grace is over, or everyone came.
    settled: bool,
    fenced: Option<Term>,
    sets: Option<Sets>,
    /// Something of this term was committed that other nodes hold.
    by_others: bool,
}

impl CommitRule {
    /// A term that begins `now` with everything up to `start` committed: the end of the
    /// recovered or inherited log.
    pub fn new(config: RuleConfig, start: Lsn, now: Moment) -> Self {
        let mut rule = Self {
            config,
            start,
            started: now,
            durable: start,
            committed: start,
            members: BTreeMap::new(),
            degraded_since: None,
            blocked_since: None,
            refusing: false,
            settled: config.needed().is_some(),
            fenced: None,
            sets: None,
            by_others: false,
        };
        rule.assess(now);
        rule
    }

    /// Of the log with which the term begins only what lies below `known` is known to be
    /// committed: the rest has yet to be persistent wherever the safety level demands, and
    /// something of this term too. Until then a log that another term wrote and never committed
    /// may be taken for more advanced than one that holds only what is older. To be said before
    /// anything is applied.
    #[must_use]
    pub fn known_committed(mut self, known: Lsn) -> Self {
        self.committed = self.committed.min(known);
        self
    }

    /// From its beginning on, the term `term` of `me` writes down its in-sync sets, which
    /// follow what the failover or the restart has found. All of those count as waited for, though
    /// they have yet to join; those who have `answered` are put out last. Where a witness votes, a
    /// standby that has not is put out as soon as the witness consents: a primary that took over
    /// is not to wait for the one that it replaces.
    #[must_use]
    pub fn recorded(
        mut self,
        me: Holder,
        term: Term,
        succession: Succession,
        answered: &BTreeSet<NodeId>,
        now: Moment,
    ) -> Self {
        let sets = Sets::new(me, (term, self.start), self.config, succession);
        let by_witness = sets.witnesses() > 0;
        self.settled = sets.counts() || by_witness;
        for Holder { node, incarnation, witness } in sets.members() {
            let member = self.members.entry(node).or_insert_with(|| Member::unknown(now));
            (member.incarnation, member.witness) = (incarnation, witness);
            member.answered = answered.contains(&node);
            member.outstanding = Some((Lsn::MAX, now));
            member.absent = by_witness && !member.answered;
            if !sets.counts() {
                member.place = Place::InSync;
            }
        }
        self.sets = Some(sets);
        self.assess(now);
        self
    }

    /// The sets, where a commit waits for all members.
    fn awaited(&self) -> Option<&Sets> {
        self.sets.as_ref().filter(|sets| !sets.counts())
    }

    /// The sets, where a commit counts members.
    fn counted(&self) -> Option<&Sets> {
        self.sets.as_ref().filter(|sets| sets.counts())
    }

    /// Takes an event in and says what may be told now.
    pub fn apply(&mut self, event: Event, now: Moment) -> Decision {
        freshet_base::step!(Commit);
        let (mut changed, before) = (false, self.before());
        match event {
            Event::Durable(to) => {
                self.durable = self.durable.max(to);
                self.members.values_mut().filter(|it| !it.witness).for_each(|member| member.mark(self.durable, now));
            }
            Event::Joined { standby, incarnation, persisted, synchronous } => {
                self.joined(Holder::new(standby, incarnation), persisted, synchronous, now);
                changed = true;
            }
            Event::Acked { standby, persisted, observed } => self.acked(standby, persisted, observed, now),
            Event::Witnessed { witness, incarnation, noted, observed } => {
                changed = self.witnessed(Holder::of_witness(witness, incarnation), noted, observed, now);
            }
            Event::Left { standby } => {
                if let Some(member) = self.members.get_mut(&standby).filter(|member| member.connected) {
                    member.connected = false;
                    // The stall begins now at the latest, even if nothing is outstanding.
                    member.outstanding.get_or_insert((Lsn::MAX, now));
                    changed = true;
                }
            }
            Event::Excused { standby, excused } => {
                let member = self.members.get_mut(&standby).filter(|member| member.connected);
                changed = member.is_some_and(|member| member.excuse(excused));
            }
            Event::Tick => {}
            Event::StoodStill => self.stood_still(now),
            Event::Written { number, end } => {
                if let Some(sets) = &mut self.sets {
                    sets.written(number, end);
                }
                self.note_witnessed(now);
            }
            Event::Contested { term, rival } => {
                let ends = match rival {
                    Some(rival) => self.acknowledged().meets(rival).0 != Yields::Other,
                    None => self.committed <= self.start && now.since(self.started) >= self.config.standby_timeout,
                };
                if ends {
                    changed |= self.fenced.is_none_or(|known| known < term);
                    self.fenced = self.fenced.max(Some(term));
                }
            }
            Event::Fenced { by } => {
                changed |= self.fenced.is_none_or(|known| known < by);
                self.fenced = self.fenced.max(Some(by));
            }
        }
        changed |= self.take_effect(now);
        changed |= self.place_members(now);
        self.advance(now);
        changed |= self.admit_joiners(now);
        self.change_set(now);
        changed |= self.assess(now);
        self.check(before, now);
        Decision { committed: self.committed, changed, write: self.to_write().is_some() }
    }

    /// Clients are told that everything up to `whole` is committed, where a transaction ends: the
    /// rule knows blocks only. The set that is to be written says that no more was committed before
    /// it. A new primary cuts half a transaction off, and lacks nothing by that. To be said after
    /// each event with which there is a set to write.
    pub fn announced(&mut self, whole: Lsn) {
        if let Some(sets) = &mut self.sets {
            sets.announced(whole.max(self.start));
        }
    }

    /// Who has not stalled yet has as much time again.
    fn stood_still(&mut self, now: Moment) {
        for member in self.members.values_mut().filter(|member| !member.stalls) {
            member.outstanding = member.outstanding.map(|(at, _)| (at, now));
        }
        if !self.settled {
            self.started = now;
        }
    }

    fn acked(&mut self, standby: NodeId, persisted: Lsn, observed: Option<Moment>, now: Moment) {
        // A word of a connection that is already gone is too late, not wrong: it only ever speaks
        // of less than is persistent.
        if let Some(member) = self.members.get_mut(&standby).filter(|member| member.connected) {
            member.acked = member.acked.max(persisted);
            // What is yet to be sent, no node has observed.
            member.observed = member.observed.max(observed.filter(|observed| *observed <= now));
            member.mark(self.durable, now);
        }
    }

    fn joined(&mut self, standby: Holder, persisted: Lsn, synchronous: bool, now: Moment) {
        let (durable, Holder { node, incarnation, .. }) = (self.durable, standby);
        // It was let in before the record of that was written.
        let synchronous = synchronous && !self.sets.as_ref().is_some_and(|sets| sets.roster().has_removed(node));
        let bound = self.awaited().is_some_and(|sets| sets.binds(node));
        let unknown = || Member { acked: persisted, incarnation, ..Member::unknown(now) };
        let member = self.members.entry(node).or_insert_with(unknown);
        (member.forgotten, member.excused, member.absent) = (false, false, false);
        member.synchronous = synchronous;
        if persisted < member.acked || incarnation != member.incarnation {
            // It lost something that it once had: it starts over.
            member.must_reach = durable;
            member.move_to(if bound { Place::Leaving } else { Place::Behind }, now);
        }
        (member.acked, member.incarnation, member.answered) = (persisted, incarnation, true);
        member.connected = true;
        // A standby that kept its place keeps its patience too: reconnecting is no progress.
        member.outstanding = match member.outstanding {
            Some((_, since)) if member.waited_for() && persisted < durable => Some((durable, since)),
            _ => None,
        };
        member.mark(durable, now);
        if let Some(sets) = &mut self.sets {
            sets.lost(node, Some(standby));
        }
    }

    /// Carries out what the sets that are in effect now say.
    fn take_effect(&mut self, now: Moment) -> bool {
        let Some(sets) = &mut self.sets else { return false };
        let forgets = |node| self.members.get(&node).is_some_and(|member| member.excused);
        if !sets.take_effect(held(&self.members, sets.me(), self.durable), forgets) {
            return false;
        }
        for (node, member) in self.members.iter_mut().filter(|_| !sets.counts()) {
            if sets.in_effect().members.contains(&member.holder(*node)) {
                if member.place == Place::Joining {
                    member.move_to(Place::InSync, now);
                }
            } else if member.place == Place::Leaving && !sets.binds(*node) {
                member.must_reach = self.durable;
                member.move_to(Place::Behind, now);
            }
        }
        self.members.retain(|node, member| !member.forgotten || sets.binds(*node));
        self.place_by_kind(now);
        true
    }

    /// Puts out who stalls, and lets begin to join who is near.
    fn place_members(&mut self, now: Moment) -> bool {
        let (durable, near) = (self.durable, self.committed.0.saturating_sub(self.config.join_window));
        let recorded = self.sets.as_ref().map_or(Lsn::ZERO, Sets::recorded);
        let wants = self.sets.as_ref().is_some_and(Sets::wants_witness);
        let mut changed = false;
        for (node, member) in &mut self.members {
            let before = (member.place, member.stalls);
            member.stalls = member.stalled(self.config.standby_timeout, now);
            // Who is on record leaves by another record: see `change_set`.
            let bound = self.sets.as_ref().is_some_and(|sets| !sets.counts() && sets.binds(*node));
            if member.waited_for() && !bound && (member.stalls || !member.synchronous) {
                member.must_reach = durable;
                member.move_to(Place::Behind, now);
            }
            if member.place == Place::Behind
                && member.connected
                && member.synchronous
                && member.holds(Lsn(near))
                && member.holds(member.must_reach)
                && (!member.witness || wants)
            {
                member.move_to(Place::Joining, now);
                member.outstanding = None;
                member.mark(if member.witness { recorded } else { durable }, now);
            }
            changed |= (member.place, member.stalls) != before;
        }
        changed
    }

    /// Moves `committed` as far as the table at the head of this module allows.
    fn advance(&mut self, now: Moment) {
        if self.fenced.is_some() || self.lease_until() <= now {
            return;
        }
        if let Some(bound) = self.bound().filter(|bound| *bound > self.start.max(self.committed)) {
            self.committed = bound;
            self.by_others = self.by_others
                || match self.needed() {
                    Some(needed) => needed > 0,
                    None => self.members.values().any(|member| member.waited_for() && !member.witness),
                };
        }
    }

    fn bound(&self) -> Option<Lsn> {
        if self.sets.as_ref().is_some_and(|sets| !sets.begun()) || self.below_floor() {
            return None;
        }
        if let Some(sets) = self.counted() {
            return Some(sets.commits(held(&self.members, sets.me(), self.durable)).min(self.durable));
        }
        let Some(needed) = self.needed() else {
            let waited_for = self.members.values().filter(|member| member.waited_for() && !member.witness);
            let acked = waited_for.map(|member| member.acked).fold(self.durable, Lsn::min);
            // Another log of a member's node does not stand for the one that is on record.
            let held = self.awaited().map(|sets| sets.commits(held(&self.members, sets.me(), self.durable)));
            return self.settled.then(|| held.map_or(acked, |held| held.min(acked)));
        };
        let Some(nth) = needed.checked_sub(1) else { return Some(self.durable) };
        let counted = self.members.values().filter(|member| member.synchronous);
        let mut acked: Vec<Lsn> = counted.map(|member| member.acked).collect();
        acked.sort_unstable_by(|a, b| b.cmp(a));
        acked.get(nth as usize).map(|acked| self.durable.min(*acked))
    }

    /// Whether the set is smaller than the configured floor, so that nothing commits.
    fn below_floor(&self) -> bool {
        let Some(sets) = self.awaited() else { return false };
        sets.in_effect().members.len() <= sets.floor() as usize
    }

    /// Who joins and holds everything committed is in sync; where sets are recorded, once that is
    /// in effect.
    fn admit_joiners(&mut self, now: Moment) -> bool {
        let mut changed = false;
        let waits = self.awaited().is_some();
        for member in self.members.values_mut() {
            if !waits && member.place == Place::Joining && member.acked >= self.committed {
                member.move_to(Place::InSync, now);
                changed = true;
            }
        }
        if !self.settled
            && (self.in_sync() >= self.expected() || now.since(self.started) >= self.config.standby_timeout)
        {
            self.settled = true;
            changed = true;
            self.advance(now);
        }
        changed
    }

    fn in_sync(&self) -> u32 {
        u32::try_from(self.keep_up().count()).unwrap_or(u32::MAX)
    }

    /// The standbys that hold at this moment what commits wait for. The witness is none.
    pub fn keep_up(&self) -> impl Iterator<Item = NodeId> + '_ {
        let counts = |node, member: &Member| self.counted().is_none_or(|sets| sets.names(&member.holder(node)));
        let keeps_up =
            move |(node, member): &(&NodeId, &Member)| !member.witness && member.keeps_up() && counts(**node, member);
        self.members.iter().filter(keeps_up).map(|(node, _)| *node)
    }

    /// Whether a commit, or a candidate, may still have to rely on the log of this standby: also by
    /// a set that the newest record names as one that may have been in effect.
    pub fn relies_on(&self, standby: NodeId) -> bool {
        self.members.get(&standby).is_some_and(Member::waited_for)
            || self.sets.as_ref().is_some_and(|sets| sets.mentions(standby))
    }

    /// Updates since when the rule is degraded or blocked, and whether it refuses.
    fn assess(&mut self, now: Moment) -> bool {
        let in_sync = self.in_sync();
        let before = (self.degraded_since, self.blocked_since, self.refusing);
        let keep = |since: Option<Moment>, holds: bool| holds.then(|| since.unwrap_or(now));
        self.degraded_since = keep(self.degraded_since, in_sync < self.expected());
        let blocked = in_sync < self.needed_now()
            || self.is_orphaned()
            || self.counted().is_some_and(|sets| !self.has_quorums(sets))
            || self.members.iter().any(|(node, member)| self.is_missed(*node, member));
        self.blocked_since = keep(self.blocked_since, blocked);
        self.refusing = match (self.config.when_missing, self.blocked_since) {
            (WhenMissing::RefuseAfter(patience), Some(since)) if self.may_refuse() => now.since(since) >= patience,
            _ => false,
        };
        before != (self.degraded_since, self.blocked_since, self.refusing)
    }

    /// Whether enough of each set keep up: of one before, too, as long as that may be in effect.
    fn has_quorums(&self, sets: &Sets) -> bool {
        let of =
            |holder: &Holder| self.members.get(&holder.node).filter(|member| member.holder(holder.node) == *holder);
        sets.have_quorums(|holder| of(holder).is_some_and(Member::keeps_up))
    }

    /// Whether commits wait for this member, which does not keep up and is on record: without it
    /// the next set could be taken for another.
    fn is_missed(&self, node: NodeId, member: &Member) -> bool {
        let Some(sets) = self.awaited() else { return false };
        // Who leaves and is named by the newest set may not be left out.
        let goes = member.place == Place::Leaving && !sets.names(&member.holder(node));
        if member.witness {
            // A commit waits for it where that waits for one that is to be put out, or for the
            // first set of a term.
            let waits = |(node, member): (&NodeId, &Member)| !member.witness && member.stalls && sets.binds(*node);
            return sets.binds(node) && member.stalls && (!sets.begun() || self.members.iter().any(waits));
        }
        sets.binds(node) && member.stalls && !goes
    }

    /// Whether nothing is committed any more in this term: all logs are gone in which is what was
    /// committed before, and their nodes may have led since.
    pub fn is_orphaned(&self) -> bool {
        self.sets.as_ref().is_some_and(Sets::is_orphaned)
    }

    fn may_refuse(&self) -> bool {
        self.needed().is_some() || self.floor() > 0
    }

    /// When [`Event::Tick`] could next change something; `None` while only other events can.
    pub fn next_deadline(&self) -> Option<Moment> {
        let timeout = self.config.standby_timeout;
        let waited_for = self.members.values().filter(|member| member.waited_for() && !member.stalls);
        let stalls = waited_for.filter_map(|member| member.outstanding);
        let stall = stalls.map(|(_, since)| since.after(timeout)).min();
        let grace = (!self.settled).then(|| self.started.after(timeout));
        let refusal = match (self.config.when_missing, self.blocked_since) {
            (WhenMissing::RefuseAfter(patience), Some(since)) if !self.refusing && self.may_refuse() => {
                Some(since.after(patience))
            }
            _ => None,
        };
        [stall, grace, refusal].into_iter().flatten().min()
    }

    /// Up to here the client may be told "committed".
    pub fn committed(&self) -> Lsn {
        self.committed
    }

    /// What the rule was told to be persistent on the primary.
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// The in-sync set that has to be put into the log next, as a block that everybody gets. Tell
    /// by [`Event::Written`] where it ends; the driver that feeds [`Event::Durable`] must have
    /// noted the set before.
    pub fn to_write(&self) -> Option<&InSyncSet> {
        if self.fenced.is_some() { None } else { self.sets.as_ref().and_then(Sets::to_write) }
    }

    /// The in-sync set in effect, where they are recorded.
    pub fn in_sync_set(&self) -> Option<&InSyncSet> {
        self.sets.as_ref().map(Sets::in_effect)
    }

    /// The members' logs that are known to be gone.
    pub fn gone(&self) -> BTreeSet<Holder> {
        self.sets.as_ref().map(|sets| sets.gone().clone()).unwrap_or_default()
    }

    /// Whether an in-sync set of this term has taken effect. A primary that notes so durably can
    /// restart by itself under 2-safe ([`crate::promotion::Candidacy::led`]).
    pub fn set_took_effect(&self) -> bool {
        self.sets.as_ref().is_some_and(Sets::begun)
    }

    /// The parameters.
    pub fn config(&self) -> &RuleConfig {
        &self.config
    }

    /// Who holds what was committed in this term.
    pub fn acknowledged(&self) -> Acknowledged {
        match self.by_others {
            _ if self.committed <= self.start => Acknowledged::Nothing,
            true => Acknowledged::ByOthers,
            false if self.wanted_level().counts_on_nobody() => Acknowledged::Nothing,
            false => Acknowledged::Alone,
        }
    }

    /// The term that ended this one, if one did.
    pub fn fenced(&self) -> Option<Term> {
        self.fenced
    }

    /// Every standby that ever joined during this term.
    pub fn members(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        self.members.iter().map(|(id, member)| (*id, member))
    }

    /// Whether a writer may start, or go on waiting for its commit.
    ///
    /// # Errors
    /// [`Refusal`] while this term refuses commits or is over.
    pub fn admit(&self) -> Result<(), Refusal> {
        if let Some(by) = self.fenced {
            return Err(Refusal::Fenced { by });
        }
        if self.refusing {
            return Err(Refusal::TooFewStandbys {
                safety: self.wanted_level(),
                needed: self.needed_now(),
                in_sync: self.in_sync(),
            });
        }
        Ok(())
    }
}

/// What each log holds, as far as it is known: the primary's own, `me`, is `durable`.
fn held(members: &BTreeMap<NodeId, Member>, me: Holder, durable: Lsn) -> impl Fn(&Holder) -> Lsn {
    move |holder| match members.get(&holder.node) {
        _ if *holder == me => durable,
        Some(member) if member.incarnation == holder.incarnation => member.acked,
        _ => Lsn::ZERO,
    }
}

#[cfg(test)]
mod tests;
