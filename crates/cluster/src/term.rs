//! Terms: whose word counts, where logs part, and who may take over.
//!
//! A term is one primary's rule. (term, LSN) identifies a block within a history, which
//! rests on three rules:
//!
//! 1. A node begins to lead in a term that is new to everyone it has heard, also the node that led
//!    last and only restarted: what it lost in the crash may live on in a standby, and must not
//!    share a name with what it writes now. Two nodes that do not hear one another may choose the
//!    same term. At most one of them can commit anything, so a [`TermEntry`] names its node. A node
//!    whose disk was set back may begin a term that it has begun before: so a term has a random
//!    number besides, which everybody records with it. A block's name is its LSN, its term, and
//!    whose that was in the history of its log. Logs of two terms that one node has begun with one
//!    number are told apart, and never joined ([`Agreement::SameTermTwice`]).
//! 2. A node enters a term only after it has cut its log where its copy and the primary's part
//!    ([`TermHistory::agreement`]).
//! 3. A node that has heard of a term accepts nothing of an earlier one ([`Fence`]). The fence is
//!    persistent, and an answer to a candidate raises it first, so that a quorum which has been
//!    consulted is lost to the old primary.

mod law;

use std::time::Duration;

use freshet_base::{ClusterId, Lsn, NodeId, Term};
use serde::{Deserialize, Serialize};

use crate::{
    handshake::Welcome,
    in_sync::{Holder, InSyncSet, SetName, Succession, last_in_effect},
};

/// The beginning of one term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermEntry {
    /// Its term.
    pub term: Term,
    /// Its first block.
    pub start: Lsn,
    /// Who leads.
    pub node: NodeId,
    /// A random number: two terms of one node may have one number. A node whose directory was set
    /// back to an earlier state does not know that it has begun the term before.
    pub nonce: u64,
}

impl TermEntry {
    /// Whether this is the same term as `other`, whatever either says of where it begins.
    pub fn is(&self, other: &Self) -> bool {
        (self.term, self.node, self.nonce) == (other.term, other.node, other.nonce)
    }

    /// Whether one node began one term twice.
    pub fn is_begun_twice(&self, other: &Self) -> bool {
        (self.term, self.node) == (other.term, other.node) && self.nonce != other.nonce
    }
}

/// Which part of a log was written in which term: ascending in both.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<TermEntry>", into = "Vec<TermEntry>")]
pub struct TermHistory(Vec<TermEntry>);

/// A term history that no log can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a history of terms must ascend, but term {} at {} follows term {} at {}",
    .second.term, .second.start, .first.term, .first.start
)]
pub struct BadHistory {
    first: TermEntry,
    second: TermEntry,
}

impl TryFrom<Vec<TermEntry>> for TermHistory {
    type Error = BadHistory;
    fn try_from(entries: Vec<TermEntry>) -> Result<Self, BadHistory> {
        for pair in entries.windows(2) {
            if pair[0].term >= pair[1].term || pair[0].start > pair[1].start {
                return Err(BadHistory { first: pair[0], second: pair[1] });
            }
        }
        Ok(Self(entries))
    }
}

impl From<TermHistory> for Vec<TermEntry> {
    fn from(history: TermHistory) -> Self {
        history.0
    }
}

/// How far two logs are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Up to here, and no further unless both end here.
    Upto(Lsn),
    /// Both have a term of the same node and number, which it has begun twice: nothing that
    /// either says of that term can be trusted by the other.
    SameTermTwice {
        /// That term.
        term: Term,
        /// They are the same up to here: it is where the terms end that came before.
        upto: Lsn,
        /// Where it begins here.
        here: Lsn,
        /// Where it begins there.
        there: Lsn,
    },
}

impl TermHistory {
    /// The history of a log that has only known one term, from its first byte.
    pub fn first(term: Term, node: NodeId, nonce: u64) -> Self {
        Self(vec![TermEntry { term, start: Lsn::ZERO, node, nonce }])
    }

    /// The terms, oldest first.
    pub fn entries(&self) -> &[TermEntry] {
        &self.0
    }

    /// The latest term; zero for an empty log, which has none.
    pub fn last_term(&self) -> Term {
        self.0.last().map_or(Term(0), |term_entry| term_entry.term)
    }

    /// A term begins at its start, the end of the log.
    ///
    /// # Errors
    /// [`BadHistory`] when the term or the start does not ascend.
    pub fn begin(&mut self, second: TermEntry) -> Result<(), BadHistory> {
        let TermEntry { term, start, .. } = second;
        match self.0.last() {
            Some(first) if first.term >= term || first.start > start => Err(BadHistory { first: *first, second }),
            _ => {
                self.0.push(second);
                Ok(())
            }
        }
    }

    /// The history of the same log cut at `end`: terms that began there or later are gone.
    pub fn cut(&self, end: Lsn) -> Self {
        Self(self.0.iter().copied().filter(|term_entry| term_entry.start < end).collect())
    }

    fn end_of(&self, index: usize, log_end: Lsn) -> Lsn {
        self.0.get(index + 1).map_or(log_end, |next| next.start)
    }

    /// Up to where this log, which ends at `end`, and the other are the same: a log is what its
    /// terms made it, so they agree to the end of the last term that both have, or where the first
    /// of them ends within it. A standby that is catching up knows of terms that its log has not
    /// reached yet; they play no part.
    pub fn agreement(&self, end: Lsn, other: &Self, other_end: Lsn) -> Agreement {
        let (here, there) = (self.cut(end), other.cut(other_end));
        let mut upto = Lsn::ZERO;
        for (index, mine) in here.0.iter().enumerate() {
            let same = |term_entry: &TermEntry| (term_entry.term, term_entry.node) == (mine.term, mine.node);
            let Some(place) = there.0.iter().position(same) else { continue };
            let theirs = there.0[place];
            if mine.start != theirs.start || mine.is_begun_twice(&theirs) {
                return Agreement::SameTermTwice { term: mine.term, upto, here: mine.start, there: theirs.start };
            }
            upto = here.end_of(index, end).min(there.end_of(place, other_end));
        }
        Agreement::Upto(upto)
    }
}

/// Guards a node against primaries of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    highest: Term,
    /// Whom that term was promised to, where that is known.
    holder: Option<NodeId>,
}

/// What a [`Fence`] says to a term of the past, and to one that belongs to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The term in force.
    pub highest: Term,
    /// Its holder, where known.
    pub holder: Option<NodeId>,
}

/// At most this number of terms, and so of failovers, can pass while a node hears nothing of its
/// cluster. Claims about a later term are not believed. (One message must not use up the terms of a
/// cluster.)
pub const LEAP: u32 = 1 << 16;

/// A directory remembers this number of the logs that it has lost.
const FORMER: usize = 8;

/// All terms are used up: no further one can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("term {0} was promised to another node, and no later one can be: see \"A wrong term\" in docs/operations.md")]
pub struct LastTerm(pub Term);

impl Fence {
    /// Whether an honest node can have reached `term`, as far as this one knows. A node that has
    /// heard of no term believes any.
    pub fn believes(&self, term: Term) -> bool {
        self.highest == Term(0) || term.0 <= self.highest.0.saturating_add(LEAP)
    }

    /// A node that has heard of nothing later than `highest`.
    pub fn new(highest: Term, holder: Option<NodeId>) -> Self {
        Self { highest, holder }
    }

    /// The latest term heard of.
    pub fn highest(&self) -> Term {
        self.highest
    }

    /// Whose term that is, where known.
    pub fn holder(&self) -> Option<NodeId> {
        self.holder
    }

    /// `node` speaks as the primary, or as a candidate, of `term`. Says whether the fence has
    /// risen: then it must be persistent before anything is answered.
    ///
    /// # Errors
    /// [`Refused`], also for a term that cannot be [believed](Fence::believes), although it is
    /// later than the one in force.
    pub fn observe(&mut self, term: Term, node: NodeId) -> Result<bool, Refused> {
        if term > self.highest && self.believes(term) {
            *self = Self { highest: term, holder: Some(node) };
            return Ok(true);
        }
        if term == self.highest && self.holder.is_none() {
            self.holder = Some(node);
            return Ok(true);
        }
        if term == self.highest && self.holder == Some(node) {
            return Ok(false);
        }
        Err(Refused { highest: self.highest, holder: self.holder })
    }

    /// The term of `node`, which is this one, has ended for that of the `other` in the same term
    /// ([`crate::meeting`]), or was never begun: the term is the other's from now on.
    pub fn cede(&mut self, term: Term, node: NodeId, other: NodeId) {
        if (self.highest, self.holder) == (term, Some(node)) {
            self.holder = Some(other);
        }
    }

    /// Whether a frame of `term` may still be taken in.
    pub fn admits(&self, term: Term) -> bool {
        term >= self.highest
    }
}

/// A term that a node lives under: the primary itself, a node that follows it, or one that has
/// heard from it a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Living {
    /// Its term.
    pub term: Term,
    /// Who leads.
    pub node: NodeId,
}

impl Living {
    /// Whether `asker`, a former primary that has observed no later term than `latest`, has to give
    /// way to this term, and follow it. An earlier term is over, even if some node does
    /// not know that yet.
    pub fn outranks(&self, asker: NodeId, latest: Term) -> bool {
        self.node != asker && self.term >= latest
    }
}

/// Whether the node `me` may come back as a primary without having been told to: it has promised
/// itself to no other node since it led or asked for a term, or the last term that its
/// history knows of was its own. One of the nodes that have heard of the latest term is such a
/// node, so if all of them start again, one of them leads. It has to ask first
/// ([`crate::promotion::Candidacy::comes_back`]).
pub fn may_come_back(me: NodeId, history: &TermHistory, fence: &Fence) -> bool {
    let led_last = history.entries().last().is_some_and(|last| last.node == me);
    fence.holder() == Some(me) || fence.holder().is_some() && led_last
}

/// Which of the files that a mirror may find are the memory that it had: their number. Each start
/// gives the memory another one, so an older copy of it has none that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// The number.
    pub number: u64,
    /// Nothing was acknowledged yet under that number: the memory may still have this one.
    pub before: Option<u64>,
    /// The memory had everything below, when that was noted last. One that has less is older.
    pub reached: Lsn,
}

impl Life {
    /// Whether the memory that has this number is the one that the mirror had.
    pub fn is(&self, number: u64) -> bool {
        self.number == number || self.before == Some(number)
    }
}

/// The persistent part of a node's place in its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermState {
    /// Which cluster; `None` before an empty standby has joined one.
    pub cluster: Option<ClusterId>,
    /// Which part of the own log was written in which term.
    pub history: TermHistory,
    /// The latest term heard of, and whose it is.
    pub fence: Fence,
    /// The newest in-sync set that this node knows of.
    pub set: Option<InSyncSet>,
    /// The latest term of this node itself in which an in-sync set took effect.
    pub led: Option<Term>,
    /// Of a mirror: the memory that it keeps, if it does.
    pub life: Option<Life>,
    /// Which log this is ([`crate::in_sync::Holder`]); none before one was begun.
    pub incarnation: Option<u64>,
    /// Which ones this directory had before, the latest last. What they held is lost; what this
    /// node knew of terms and sets is not. Only the latest eight.
    pub former: Vec<u64>,
    /// The longest lease that the primaries of its terms have asked for: what it has granted lasts
    /// as long ([`crate::lease::Voter::left`]).
    pub lease: Duration,
    /// Everything below was acknowledged to clients, as far as was noted: the log is not given up
    /// below ([`crate::entering::NotEntered::Acknowledged`]). Noted now and then.
    pub committed: Lsn,
}

/// Why a term cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBegun {
    /// The term or the position is not new.
    #[error(transparent)]
    History(#[from] BadHistory),
    /// The term is another node's, or past.
    #[error("term {asked} cannot begin here: term {highest} is in force")]
    Fenced {
        /// The term asked for.
        asked: Term,
        /// The one in force.
        highest: Term,
    },
}

impl TermState {
    /// An empty node that belongs to no cluster.
    pub fn empty() -> Self {
        Self {
            cluster: None,
            history: TermHistory::default(),
            fence: Fence::new(Term(0), None),
            set: None,
            led: None,
            life: None,
            incarnation: None,
            former: Vec::new(),
            lease: Duration::ZERO,
            committed: Lsn::ZERO,
        }
    }

    /// A node whose log has this history and which has heard of nothing later.
    pub fn of(cluster: ClusterId, history: TermHistory) -> Self {
        let fence = Fence::new(history.last_term(), None);
        Self { cluster: Some(cluster), history, fence, ..Self::empty() }
    }

    /// `primary` shows that it leads in `term`: as [`Fence::observe`], but a promise of that term
    /// that the node `me`, this one, gave itself does not stand in the way if it came to nothing: a
    /// candidate may be killed, and another leads in a term of the same number.
    ///
    /// Only the candidacy itself counts on that promise. Nothing of earlier terms is taken
    /// in, as before. Of this term the node has no blocks that could be taken for the other's, and
    /// has committed nothing: its log does not have the term, and no record does as its own, while
    /// the first commit follows a record. It never will: the fence is the other's, durably, before
    /// that one is followed, so a candidacy that is under way begins a later term, or none
    /// ([`TermState::begin`]). Who has promised this node the term waits for a later one.
    ///
    /// # Errors
    /// [`Refused`]: then nothing has changed.
    pub fn observe_primary(&mut self, me: NodeId, term: Term, primary: NodeId) -> Result<bool, Refused> {
        let recorded = self.set.as_ref().filter(|set| set.primary == me).map(|set| set.term);
        if self.history.last_term().max(recorded.max(self.led).unwrap_or_default()) < term {
            self.fence.cede(term, me, primary);
        }
        self.fence.observe(term, primary)
    }

    /// The log was cut at its end and continues with the log of the primary whose history this is.
    pub fn adopt(&mut self, cluster: ClusterId, history: TermHistory) {
        self.cluster = Some(cluster);
        self.history = history;
    }

    /// The log continues as `welcome` says ([`crate::entering::Effect::Adopt`]): its terms are this
    /// log's, and its primary may be granted leases.
    pub fn enter(&mut self, welcome: &Welcome) {
        self.adopt(welcome.cluster, welcome.history.clone());
        self.lease = self.lease.max(Duration::from_millis(welcome.lease_ms.into()));
    }

    /// `term_entry` begins, and its in-sync sets follow those of before; the log ends at `end`.
    /// Leads that the log never reached are none of its history.
    ///
    /// # Errors
    /// [`NotBegun`]; the state is then of no use.
    pub fn begin(&mut self, term_entry: TermEntry, end: Lsn, succession: &Succession) -> Result<(), NotBegun> {
        let TermEntry { term: asked, node, .. } = term_entry;
        self.fence.observe(asked, node).map_err(|Refused { highest, .. }| NotBegun::Fenced { asked, highest })?;
        self.history = self.history.cut(end);
        // It may have been heard from others alone.
        if let Succession::Of(set) = succession {
            self.note_set(set.clone());
        }
        Ok(self.history.begin(term_entry)?)
    }

    /// A primary has recorded an in-sync set; an older one than is known changes nothing.
    pub fn note_set(&mut self, set: InSyncSet) {
        self.set = Some(InSyncSet::newer(self.set.take(), set));
    }

    /// Everything below `to` was acknowledged to clients.
    pub fn note_committed(&mut self, to: Lsn) {
        self.committed = self.committed.max(to);
    }

    /// What this node has is another log, or another memory, from now on.
    pub fn note_incarnation(&mut self, incarnation: u64) {
        if self.incarnation != Some(incarnation) {
            self.lose_incarnation();
            self.incarnation = Some(incarnation);
        }
    }

    /// What this node had is lost. It still knows what it promised as the one that had it.
    pub fn lose_incarnation(&mut self) {
        self.committed = Lsn::ZERO;
        let former = &mut self.former;
        former.extend(self.incarnation.take().filter(|lost| !former.contains(lost)));
        former.drain(..former.len().saturating_sub(FORMER));
    }

    /// The log of this node, as a member of in-sync sets.
    pub fn holder(&self, node: NodeId) -> Holder {
        Holder::new(node, self.incarnation.unwrap_or_default())
    }

    /// In the term `term` of this node an in-sync set took effect.
    pub fn note_led(&mut self, term: Term) {
        self.led = self.led.max(Some(term));
    }

    /// The last term of the log of `node`, which ends at `end` and is this one, if an in-sync set
    /// of that term is known to have taken effect.
    pub fn last_in_effect(&self, node: NodeId, end: Lsn) -> Option<TermEntry> {
        last_in_effect(&self.history, (node, end), self.led, self.set.as_ref())
    }

    /// Whether an operator has removed `node` from the cluster, by the newest set that this node
    /// knows of, and no set that may be in effect has it: until then it may be needed.
    pub fn has_removed(&self, node: NodeId) -> bool {
        self.removal_of(node).is_some()
    }

    /// The same, and which set says so.
    pub fn removal_of(&self, node: NodeId) -> Option<SetName> {
        self.set.as_ref().filter(|set| set.is_without(node)).map(InSyncSet::name)
    }

    /// Whether commits may wait for `node`, by the newest set that this node knows of.
    pub fn may_wait_for(&self, node: NodeId) -> bool {
        self.set.as_ref().is_some_and(|set| set.may_have(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(entries: &[(u32, u64)]) -> TermHistory {
        let term_entry =
            |(term, start): &(u32, u64)| TermEntry { term: Term(*term), start: Lsn(*start), node: NodeId(9), nonce: 1 };
        let entries: Vec<_> = entries.iter().map(term_entry).collect();
        entries.try_into().unwrap()
    }

    #[test]
    fn logs_agree_to_the_end_of_their_last_common_term() {
        let upto = |a: &[(u32, u64)], a_end, b: &[(u32, u64)], b_end| {
            let (a, b) = (history(a), history(b));
            let there = a.agreement(Lsn(a_end), &b, Lsn(b_end));
            assert_eq!(there, b.agreement(Lsn(b_end), &a, Lsn(a_end)), "agreement is mutual");
            there
        };
        let one = &[(1, 0)][..];
        assert_eq!(upto(one, 100, one, 100), Agreement::Upto(Lsn(100)));
        assert_eq!(upto(one, 100, one, 70), Agreement::Upto(Lsn(70)));
        assert_eq!(upto(one, 100, &[(1, 0), (2, 60)], 500), Agreement::Upto(Lsn(60)));
        assert_eq!(upto(one, 40, &[(1, 0), (2, 60)], 500), Agreement::Upto(Lsn(40)));
        assert_eq!(upto(&[(1, 0), (2, 50)], 90, &[(1, 0), (3, 60)], 500), Agreement::Upto(Lsn(50)));
        assert_eq!(upto(&[(1, 0), (2, 50), (4, 70)], 90, &[(1, 0), (2, 50), (3, 60)], 99), Agreement::Upto(Lsn(60)));
        assert_eq!(upto(&[], 0, &[(1, 0), (2, 60)], 500), Agreement::Upto(Lsn(0)));
        assert_eq!(
            history(&[(1, 0), (2, 50)]).agreement(Lsn(90), &history(&[(1, 0), (2, 60)]), Lsn(99)),
            Agreement::SameTermTwice { term: Term(2), upto: Lsn(50), here: Lsn(50), there: Lsn(60) }
        );
    }

    #[test]
    fn a_cut_log_forgets_the_terms_that_are_gone() {
        let h = history(&[(1, 0), (2, 50), (5, 80)]);
        assert_eq!(h.cut(Lsn(80)), history(&[(1, 0), (2, 50)]));
        assert_eq!(h.cut(Lsn(0)), TermHistory::default());
    }

    #[test]
    fn histories_that_do_not_ascend_are_refused() {
        let bad: Result<TermHistory, _> = [0, 9]
            .map(|start| TermEntry { term: Term(2), start: Lsn(start), node: NodeId(1), nonce: 1 })
            .to_vec()
            .try_into();
        assert!(bad.unwrap_err().to_string().contains("must ascend"));
        let term_entry = |term, start| TermEntry { term: Term(term), start: Lsn(start), node: NodeId(1), nonce: 1 };
        assert!(history(&[(3, 10)]).begin(term_entry(3, 20)).is_err());
        assert!(history(&[(3, 10)]).begin(term_entry(4, 9)).is_err());
    }

    #[test]
    fn a_fence_only_rises_and_one_term_has_one_holder() {
        let (a, b) = (NodeId(1), NodeId(2));
        let mut fence = Fence::new(Term(3), None);
        assert_eq!(fence.observe(Term(3), a), Ok(true));
        assert_eq!(fence.observe(Term(3), a), Ok(false));
        assert_eq!(fence.observe(Term(3), b), Err(Refused { highest: Term(3), holder: Some(a) }));
        assert_eq!(fence.observe(Term(4), b), Ok(true));
        assert!(!fence.admits(Term(3)));
        assert_eq!(fence.observe(Term(3), a), Err(Refused { highest: Term(4), holder: Some(b) }));
        // No honest node can have reached this term; and there is no term after the last one.
        let refused = Err(Refused { highest: Term(4), holder: Some(b) });
        assert_eq!(fence.observe(Term(u32::MAX), a), refused);
        assert_eq!(fence.observe(Term(4 + LEAP + 1), a), refused);
        assert_eq!(fence.observe(Term(4 + LEAP), a), Ok(true));
        // Who has yielded follows the other.
        for (term, node) in [(3, b), (4 + LEAP, b)] {
            fence.cede(Term(term), node, b);
            assert_eq!(fence.holder(), Some(a));
        }
        fence.cede(Term(4 + LEAP), a, b);
        assert_eq!(fence.observe(Term(4 + LEAP), b), Ok(false));
        let mut fence = Fence::new(Term(0), None);
        assert_eq!(fence.observe(Term(u32::MAX), b), Ok(true));
    }

    #[test]
    fn a_term_that_a_node_has_not_begun_is_the_one_of_who_leads_in_it() {
        let (me, other, third) = (NodeId(9), NodeId(2), NodeId(3));
        let promised = |to| {
            let history = TermHistory::first(Term(3), me, 1);
            TermState { fence: Fence::new(Term(5), Some(to)), ..TermState::of(ClusterId(7), history) }
        };
        let refused = |holder| Err(Refused { highest: Term(5), holder: Some(holder) });
        let mut state = promised(me);
        assert_eq!(state.fence.observe(Term(5), other), refused(me), "a candidate of the same term");
        assert_eq!(state.observe_primary(me, Term(4), other), refused(me), "one of an earlier term");
        assert_eq!(state.observe_primary(me, Term(5), other), Ok(false));
        assert_eq!(state.observe_primary(me, Term(5), third), refused(other));
        let entry = TermEntry { term: Term(5), start: Lsn(50), node: me, nonce: 2 };
        let begun = state.clone().begin(entry, Lsn(50), &Succession::begin());
        assert_eq!(begun, Err(NotBegun::Fenced { asked: Term(5), highest: Term(5) }));
        assert_eq!(promised(third).observe_primary(me, Term(5), other), refused(third));
        let mut leads = promised(me);
        leads.begin(entry, Lsn(50), &Succession::begin()).unwrap();
        assert_eq!(leads.observe_primary(me, Term(5), other), refused(me));
        let mut led = promised(me);
        led.note_led(Term(5));
        assert_eq!(led.observe_primary(me, Term(5), other), refused(me));
    }

    #[test]
    fn two_terms_of_one_number_have_nothing_of_it_in_common() {
        let of = |node, nonce| {
            let mut history = TermHistory::first(Term(1), NodeId(1), 1);
            history.begin(TermEntry { term: Term(2), start: Lsn(50), node: NodeId(node), nonce }).unwrap();
            history
        };
        assert_eq!(of(1, 1).agreement(Lsn(90), &of(2, 2), Lsn(80)), Agreement::Upto(Lsn(50)));
        assert_eq!(of(2, 2).agreement(Lsn(90), &of(2, 2), Lsn(80)), Agreement::Upto(Lsn(80)));
        let twice = Agreement::SameTermTwice { term: Term(2), upto: Lsn(50), here: Lsn(50), there: Lsn(50) };
        assert_eq!(of(2, 2).agreement(Lsn(90), &of(2, 3), Lsn(80)), twice);
    }
}
