//! What a candidate knows, and what follows from it: [`Plan`].

mod automatic;
mod best;
mod law;
mod log_state;

pub use self::{
    automatic::{NeedsOperator, has_successors, is_to_be_unattended, is_unattended},
    log_state::LogState,
};

use std::collections::BTreeMap;

use freshet_base::{Lsn, NodeId, Safety, Term};
use serde::{Deserialize, Serialize};

use super::{Answer, Fetch, Stopped, Testimony};
use crate::{
    in_sync::{Earlier, Holder, InSyncSet, Possible, Succession},
    term::{Agreement, Fence, LastTerm, Living, TermEntry},
};

/// What a candidate has to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Plan {
    /// Somebody knows a later term: consult everyone again with at least this one.
    HigherTerm {
        /// The smallest term that can succeed.
        at_least: Term,
    },
    /// Get the log of another node, after cutting the candidate's own.
    Fetch(Fetch),
    /// The candidate's own log is the most advanced: lead from its end on.
    Lead {
        /// In this term.
        term: Term,
    },
    /// An operator must choose, or help. With force the candidate continues where it has a log to
    /// continue from.
    Stop(Stopped),
}

/// A promotion in preparation, or a restart: collects what the peers say.
///
/// An answer counts by what it proves. Commits count on recorded sets of logs ([`crate::in_sync`])
/// at every level but 1-safe, so the newest set must be known, and only the logs that it names
/// count, each with the incarnation that it had then. Under quorum(k) of n members whatever was
/// committed is on k of them; n - k + 1 members therefore include one that has it, and the most
/// advanced of those has all of it. Under very safe and 2-safe every member has it, and the most
/// advanced of the members that are heard is followed. Under 1-safe any standby will do; the most
/// advanced of those that can be reached loses least. Asynchronous standbys, newcomers, and those
/// that follow a standby, are asked, but count for nothing; one of them may be the candidate under
/// 1-safe, and under 2-safe without a floor. Very safe and quorum rest on a number of members,
/// which would change if it became the primary.
///
/// A primary that restarts is a candidate like any other, but for one thing: while it was away,
/// another may have begun to lead. It gives way to that one ([`Candidacy::comes_back`]), while a
/// candidate that was ordered to take over does not. What others hold of its own last term outranks
/// its own disk, which may have been set back: it fetches that first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Candidacy {
    term: Term,
    me: NodeId,
    mine: LogState,
    logs: BTreeMap<NodeId, LogState>,
    /// Those that have answered, whose logs must not be compared.
    met: BTreeMap<NodeId, Testimony>,
    higher: Option<Term>,
    /// Another candidate has the candidate's term, or a later one, and comes before it.
    outbid: bool,
    /// The candidate's own fence when it began, or when it was last raised for this candidacy.
    fence: Fence,
    /// The candidate led last, as far as it knows.
    undisturbed: bool,
    /// In that term an in-sync set took effect.
    effective: bool,
    /// The latest term of the candidate itself in which a set took effect.
    led: Option<Term>,
    /// The candidate was a primary before, and was not told to take over; or it stands by itself.
    comes_back: Option<ComesBack>,
    /// It stands by itself, since it takes its primary for lost.
    automatic: bool,
    /// The latest living term to which it has to give way.
    living: Option<Living>,
    /// A node knows that maintenance lasts.
    maintained: bool,
    /// A node is about to stand by itself.
    lets_elect: bool,
    /// The primary that an operator says is gone.
    pub(super) gone: Option<NodeId>,
}

/// What holds for a candidate that was a primary before.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct ComesBack {
    /// At least one other node has to answer, whatever the level.
    asks: bool,
    /// Another node was promised a later term: it has to answer, where no number of others would
    /// do.
    promised: Option<NodeId>,
}

impl Candidacy {
    /// A candidate that asks for a term above everything it has heard of.
    pub fn new(me: NodeId, mine: LogState, fence: &Fence) -> Self {
        let term = fence.highest().max(mine.latest_term()).next();
        let last = mine.history.entries().last();
        let undisturbed = last.is_some_and(|last| {
            (last.node, last.term) == (me, fence.highest()) && fence.holder().is_none_or(|holder| holder == me)
        });
        Self {
            term,
            me,
            mine,
            logs: BTreeMap::new(),
            met: BTreeMap::new(),
            higher: None,
            outbid: false,
            fence: *fence,
            undisturbed,
            effective: false,
            led: None,
            comes_back: None,
            automatic: false,
            living: None,
            maintained: false,
            lets_elect: false,
            gone: None,
        }
    }

    /// The candidate was a primary before, and was not told to take over: it gives way to a living
    /// lead, and to one that has continued without it. With `asks` it does not lead before
    /// another node has answered. To be said before any node is heard.
    #[must_use]
    pub fn comes_back(mut self, asks: bool) -> Self {
        self.comes_back = Some(ComesBack { asks, promised: self.fence.holder().filter(|holder| *holder != self.me) });
        self
    }

    /// An operator says that the primary of before will never come back with what it holds
    /// ([`super::Consent::PrimaryIsGone`]). That is the one whose set the candidate knows now: of
    /// another, which has led since and which others speak of, the operator has said nothing. To be
    /// said before any node is heard.
    #[must_use]
    pub fn without_primary(mut self) -> Self {
        self.gone = self.mine.set.as_ref().map(|set| set.primary);
        self
    }

    /// A node lives under `living`, which [outranks](Living::outranks) this candidate.
    pub fn observe_living(&mut self, living: Living) {
        if self.living.is_none_or(|known| known.term < living.term) {
            self.living = Some(living);
        }
    }

    /// The latest term of the candidate itself in which an in-sync set took effect was `term`
    /// ([`crate::commit_rule::CommitRule::set_took_effect`]). To be said before anybody is heard.
    #[must_use]
    pub fn led(mut self, term: Option<Term>) -> Self {
        (self.effective, self.led) = (term == Some(self.mine.history.last_term()), term);
        self
    }

    /// The term it asks for.
    pub fn term(&self) -> Term {
        self.term
    }

    pub(super) fn me(&self) -> NodeId {
        self.me
    }

    /// A node has answered. What one says that an operator has removed counts for nothing, nor that
    /// one of these leads.
    pub fn observe(&mut self, node: NodeId, answer: Answer) {
        let leads = if let Answer::LedBy(living) = &answer { living.node } else { node };
        let set = self.mine.set.as_ref();
        if set.is_some_and(|set| [node, leads].into_iter().any(|node| set.is_without(node))) {
            return;
        }
        match answer {
            Answer::Log(log) => self.promised(node, log),
            Answer::LedBy(living) => self.observe_living(living),
            Answer::Maintenance(_) => self.maintained = true,
            Answer::Elects => self.lets_elect = true,
            Answer::Higher { highest, holder } => self.refused(highest, holder),
            Answer::NoVote(testimony) => self.met(node, testimony),
        }
    }

    /// Whether `node` has described its log.
    pub(super) fn has_log_of(&self, node: NodeId) -> bool {
        self.logs.contains_key(&node)
    }

    fn has_answer_of(&self, node: NodeId) -> bool {
        self.logs.contains_key(&node) || self.met.contains_key(&node)
    }

    /// `peer` raised its fence to the candidate's term and described its log.
    pub fn promised(&mut self, peer: NodeId, log: LogState) {
        if peer != self.me {
            self.logs.insert(peer, log);
        }
    }

    /// `peer` has raised its fence to the candidate's term, and knows of no other term; what it
    /// holds must not be compared.
    pub fn met(&mut self, peer: NodeId, testimony: Testimony) {
        self.met.insert(peer, testimony);
    }

    /// The nodes that have answered.
    pub fn answered(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.logs.keys().chain(self.met.keys()).copied()
    }

    /// A peer refused: it has heard of `highest`, which it has promised to `holder`.
    pub fn refused(&mut self, highest: Term, holder: Option<NodeId>) {
        self.higher = self.higher.max(Some(highest));
        self.outbid |= highest > self.term || highest == self.term && holder.is_some_and(|holder| holder < self.me);
    }

    /// Raises the candidate's own `fence` to its term, before it asks others for a promise; the
    /// fence must be persistent before anybody is asked. Begins again with a larger term if this
    /// one was promised to another in the meantime. What was promised since the candidacy began is
    /// not forgotten either: the other may lead by now, and the candidate no longer knows that
    /// nobody has since it did.
    ///
    /// # Errors
    /// When there is no larger term.
    pub fn raise(&mut self, fence: &mut Fence) -> Result<(), LastTerm> {
        self.undisturbed &= *fence == self.fence;
        if let Err(refused) = fence.observe(self.term, self.me) {
            self.again(refused.highest.next());
            // Above everything that was heard, it is refused only when there is no later term.
            fence.observe(self.term, self.me).map_err(|refused| LastTerm(refused.highest))?;
        }
        self.fence = *fence;
        Ok(())
    }

    /// Begins again with the same term: nodes that were only sounded out are now asked for a
    /// promise.
    pub fn ask_for_promises(&mut self) {
        self.logs.clear();
        self.met.clear();
        (self.higher, self.outbid, self.lets_elect) = (None, false, false);
    }

    /// Begins again with a larger term: every promise has to be asked for again.
    pub fn again(&mut self, at_least: Term) {
        self.term = at_least.max(self.term.next());
        self.ask_for_promises();
    }

    /// The candidate's own log has changed: it has fetched.
    pub fn fetched(&mut self, mine: LogState) {
        self.mine = mine;
    }

    /// A term of another node that has gone on where the candidate's own log knows nothing of it:
    /// the latest that anybody who was heard has written something in, if his log is more advanced.
    /// Who takes over need not mind. Who only comes back may find that one leading, unless it was
    /// heard itself and does not say so.
    fn superseded(&self) -> Option<TermEntry> {
        let known = self.mine.history.cut(self.mine.end);
        let ahead = self.logs.values().filter(|log| log.rank() > self.mine.rank());
        let last = ahead.filter_map(|log| log.history.cut(log.end).entries().last().copied());
        let unknown = |term_entry: &TermEntry| term_entry.node != self.me && !known.has(term_entry);
        last.filter(unknown).max_by_key(|term_entry| term_entry.term)
    }

    /// What to do, given the level under which the old primary committed if no record that was
    /// heard of says it. `force` continues although acknowledged commits may be lost.
    pub fn plan(&self, safety: Safety, force: bool) -> Plan {
        let safety = self.newest_set().map_or(safety, |set| set.kept_level());
        if let (Some(_), Some(living)) = (self.comes_back, self.living) {
            return Plan::Stop(Stopped::Superseded { living, lives: true });
        }
        if self.automatic && self.maintained {
            return Plan::Stop(Stopped::Maintenance);
        }
        if let Some(higher) = self.higher.filter(|higher| *higher >= self.term) {
            return Plan::HigherTerm { at_least: higher.next() };
        }
        // A node that has entered a term has observed it. One that promises it all the same has
        // promised it to the candidate before, whose disk was set back since.
        let of_sets = self.met.values().filter_map(|testimony| testimony.set.as_ref().map(|set| set.term));
        let written = self.logs.values().map(LogState::latest_term).chain(of_sets).max().unwrap_or_default();
        if written >= self.term {
            return Plan::HigherTerm { at_least: written.next() };
        }
        if let Some(comes_back) = self.comes_back.filter(|_| !self.automatic) {
            let gone_on = self.superseded().map(|term_entry| Living { term: term_entry.term, node: term_entry.node });
            if let Some(living) = gone_on.filter(|living| !self.logs.contains_key(&living.node)) {
                return Plan::Stop(Stopped::Superseded { living, lives: false });
            }
            let unanswered = comes_back.promised.filter(|node| !self.has_answer_of(*node));
            let alone = matches!(safety, Safety::OneSafe | Safety::VerySafe);
            let met_none = self.logs.is_empty() && self.met.is_empty();
            // Where it commits nothing without another node, that says whom it waits for.
            let counts_others = match (self.newest_set(), safety) {
                (Some(set), _) => set.quorum.is_some_and(|quorum| quorum > 1),
                (None, safety) => matches!(safety, Safety::Quorum(2..)),
            };
            let asks = comes_back.asks && (alone || !counts_others);
            if alone && unanswered.is_some() || asks && met_none {
                let votes = self.votes();
                return Plan::Stop(Stopped::TooFew { answered: votes, needed: votes + 1 });
            }
        }
        let newest = self.newest_set().filter(|_| safety != Safety::OneSafe);
        if self.automatic
            && let Some(too_few) = self.lacks_majority(newest.as_ref())
        {
            // Where it does not count, no matter who answers, that says more.
            let newcomer = self.lacks(safety, newest.as_ref()).filter(|why| matches!(why, Stopped::Newcomer { .. }));
            return Plan::Stop(newcomer.unwrap_or(too_few));
        }
        if let Some(stopped) = self.lacks(safety, newest.as_ref()).filter(|_| !force) {
            // That says more.
            let ahead = self.logs.iter().filter(|(_, log)| log.rank() > self.mine.rank() || self.is_rivalled(log));
            let holds_more = ahead
                .max_by_key(|(_, log)| log.rank())
                .and_then(|(peer, log)| self.holds_more(*peer, log, self.committed()));
            return Plan::Stop(holds_more.filter(|_| self.comes_back.is_none()).unwrap_or(stopped));
        }
        let plan = self.follow_best(newest, force);
        let left_out = self.leaves_out(&plan).filter(|_| !force && self.comes_back.is_none());
        left_out.map_or(plan, Plan::Stop)
    }

    /// What is missing for a promotion under `safety` that loses nothing.
    fn lacks(&self, safety: Safety, newest: Option<&InSyncSet>) -> Option<Stopped> {
        if safety == Safety::OneSafe {
            return None;
        }
        // What commits counted on the record says; without any, the level.
        let counts_members = match newest {
            Some(newest) => newest.quorum.is_some(),
            None => matches!(safety, Safety::VerySafe | Safety::Quorum(_)),
        };
        let me = Holder::new(self.me, self.mine.incarnation);
        // One that has led is a member, under whatever level that was.
        let is_member = newest.is_some_and(|newest| newest.members.contains(&me));
        // Two nodes would be three with it, and are counted in another way then.
        if (counts_members || safety == Safety::Majority) && !self.mine.synchronous && !is_member {
            return Some(Stopped::Asynchronous);
        }
        let (answered, needed) = self.members_answered(newest);
        let is_outside = |set: &Earlier| {
            let answers = |member: &Holder| member.node == self.me || self.has_answer_of(member.node);
            set.floor > 0 && !set.members.contains(&me) && !set.members.iter().all(answers)
        };
        let newcomer = |newest: &InSyncSet| Stopped::Newcomer { newest: newest.clone() };
        match newest {
            // All members that answer may lose their logs, and then nothing keeps the primary of
            // before, or another candidate, from going on without them. A candidate that is a
            // member would; and no other can stand if all have answered.
            Some(newest) if newest.possible().any(|set| set.floor > 0) && !is_member => Some(newcomer(newest)),
            _ if answered >= needed => newest.filter(|set| set.before.iter().any(is_outside)).map(newcomer),
            Some(_) if counts_members => Some(Stopped::TooFew { answered, needed }),
            _ => Some(Stopped::SetUncertain { newest: newest.cloned(), answered, needed }),
        }
    }

    fn agreement(&self, log: &LogState) -> Agreement {
        self.mine.history.agreement(self.mine.end, &log.history, log.end)
    }

    /// Up to where the candidate itself knows its log to be committed.
    fn committed(&self) -> Lsn {
        self.mine.committed.min(self.mine.end)
    }

    /// The newest in-sync set that anybody who was heard knows of. If no set of its term was ever
    /// in effect, it gives way to the one that it follows, or that another term has written beside
    /// it.
    pub fn newest_set(&self) -> Option<InSyncSet> {
        let sets = self.logs.values().map(|log| &log.set).chain(self.met.values().map(|testimony| &testimony.set));
        let known = || sets.clone().chain([&self.mine.set]).flatten();
        let newest = known().max_by_key(|set| set.order())?;
        if !self.was_never_in_effect(newest) {
            return Some(newest.clone());
        }
        // What was written before the one that the term follows is behind it: its sets name what
        // was possible then. If that one's term was without effect as well, then what has a higher
        // number is beside both, where it can do without the node that wrote the newest and did not
        // know of it.
        let void = self.lack(newest, |log| log.has_some(|entry| newest.is_of(entry) || entry.term == newest.after));
        let beside = |set: &&InSyncSet| {
            let past_both = void && set.number >= newest.first;
            set.order() >= newest.base() || set.term == newest.term || past_both && !set.needs(newest.writer())
        };
        let others = known().filter(beside).filter(|set| !self.was_never_in_effect(set));
        Some(others.max_by_key(|set| set.order()).unwrap_or(newest).clone())
    }

    /// Whether no set of the term of this record was in effect when it was written, nor is now: it
    /// had to follow each set that may have been in effect before, and of one of these enough
    /// members have nothing of that term ([`InSyncSet::may_be_followed_by`]). A member that has
    /// something would have kept the term before from writing more; but all that had may have lost
    /// their logs since.
    fn was_never_in_effect(&self, set: &InSyncSet) -> bool {
        self.lack(set, |log| log.has_some_of(set))
    }

    /// Whether, of a set that may have been in effect before this one, enough members have nothing
    /// `later`.
    fn lack(&self, set: &InSyncSet, later: impl Fn(&LogState) -> bool) -> bool {
        if set.is_settled() {
            // Members that lack it were set back, or have lost their logs.
            return false;
        }
        let me = Holder::new(self.me, self.mine.incarnation);
        let held = self.logs.iter().map(|(node, log)| (Holder::new(*node, log.incarnation), log));
        let logs: BTreeMap<_, _> = held.chain([(me, &self.mine)]).collect();
        // One that has a later term of another branch has nothing of this one.
        let lacking = |of: Possible<'_>| {
            let logs: Vec<_> = of.members.iter().filter_map(|member| logs.get(member)).collect();
            logs.len() >= of.needed() && !logs.into_iter().any(|log| later(log))
        };
        match &*set.before {
            [] => lacking(set.own()),
            _ => set.possible().skip(1).any(lacking),
        }
    }

    /// What of the candidate's log is known to be committed, by what it knows itself and by what
    /// the others have said of the part that its log shares with theirs.
    pub fn known_committed(&self) -> Lsn {
        let shared = |log: &LogState| match self.agreement(log) {
            Agreement::Upto(upto) => log.committed.min(upto),
            Agreement::SameTermTwice { .. } => Lsn::ZERO,
        };
        self.logs.values().map(shared).fold(self.committed(), Lsn::max)
    }

    /// What the in-sync sets of the term that [`Plan::Lead`] allows follow.
    pub fn succession(&self, force: bool) -> Succession {
        match self.newest_set() {
            Some(newest) if !force => Succession::Of(newest),
            Some(newest) => Succession::New { number: newest.number + 1, roster: newest.roster },
            None => Succession::begin(),
        }
    }

    /// How many members of the set were heard, and how many it takes to know that it is the newest.
    fn members_answered(&self, newest: Option<&InSyncSet>) -> (u32, u32) {
        let Some(newest) = newest else {
            // No set was ever written, or no node that knows one answers. Only who led last can
            // tell.
            return (u32::from(self.undisturbed), 1);
        };
        let me = Holder::new(self.me, self.mine.incarnation);
        let own = self.mine.set.as_ref() == Some(newest);
        // No other can have led since without an answer of this node.
        let wrote = self.mine.history.entries().last().is_some_and(|last| newest.is_of(last));
        let needed = wrote && newest.possible().all(|set| set.members.contains(&me));
        let alone = newest.may_go_on_alone() && self.undisturbed && (self.effective || needed);
        if alone && own && newest.members.contains(&me) {
            return (1, 1);
        }
        let (answered, needed) = newest.answered_by(|set, holder| {
            self.has_answered(holder, set.quorum.is_none()) || self.can_do_without(*set, holder, newest.primary)
        });
        (count(answered), count(needed))
    }

    /// Whether `holder` is the primary of this set, which is gone, and could not have been followed
    /// by anybody but the other members, all of whom hold every commit.
    fn can_do_without(&self, set: Possible<'_>, holder: &Holder, primary: NodeId) -> bool {
        let me = Holder::new(self.me, self.mine.incarnation);
        let is_gone = self.gone == Some(primary) && holder.node == primary;
        let counts = is_gone && set.has_no_rival(&me, primary);
        counts && set.members.iter().any(|member| self.has_answered(member, true))
    }

    /// Whether the node that had this log has answered, and has it still. One that has lost what it
    /// held knows of the sets that it was in; but only where `all` members hold everything, it may
    /// be done without. A witness never held more.
    fn has_answered(&self, holder: &Holder, all: bool) -> bool {
        let log = self.logs.get(&holder.node);
        let has = log.is_some_and(|log| log.incarnation == holder.incarnation && self.is_made_up(log));
        let met = self.met.get(&holder.node).map(|it| &it.incarnations);
        let former = log.map(|log| &log.former).into_iter().chain(met).flatten();
        let knows = former.copied().any(|known| known == holder.incarnation) && (all || holder.witness);
        let is_me = *holder == Holder::new(self.me, self.mine.incarnation) && self.is_made_up(&self.mine);
        is_me || has || knows
    }

    /// Whether another log has what this one owes: then that counts as if it were there.
    fn is_made_up(&self, log: &LogState) -> bool {
        let common = |other: &LogState| log.history.agreement(log.owes, &other.history, other.end);
        let has = |other: &LogState| matches!(common(other), Agreement::Upto(at) if at >= log.owes);
        log.owes <= log.end || self.logs.values().chain([&self.mine]).any(has)
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
