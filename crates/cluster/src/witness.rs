//! Witness: a voter without data, the third of two nodes. It promises terms, notes in-sync sets and
//! grants leases as any voter, and so a set with it needs only one of the two others to be known
//! ([`crate::in_sync`]): the primary continues alone, or the standby leads, only with the witness's
//! consent on its disk.
//!
//! ```text
//!   primary   Ask (its term, when, the newest set) ─▶ promised? ─▶ noted ─▶ granted ─▶ Granted
//!   candidate asks for its promise ─────────────────▶ does the primary live? ─▶ promised ─▶ what it knows
//! ```
//!
//! It calls no node: the primary calls it at intervals, and candidates do. What it
//! remembers is a [`TermState`] without a log. Both answers rest on that, so they are made one
//! after the other, and are given when it is durable: else a candidate could be answered with what
//! is left of a lease that is extended behind its back.

use std::time::Duration;

use freshet_base::{ClusterId, NodeId, Term};
use serde::{Deserialize, Serialize};

use crate::{
    Moment,
    in_sync::{InSyncSet, SetName},
    lease::Voter,
    promotion::{LogState, Testimony},
    term::{Living, Refused, TermState},
};

/// A primary without a lease may be silent for so long.
const SILENCE: Duration = Duration::from_secs(1);

/// What a primary asks its witness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Whose witness it is to be.
    pub cluster: ClusterId,
    /// The primary, and its term.
    pub living: Living,
    /// When it asks, by its own clock.
    pub sent: Moment,
    /// How long a lease is; zero if it has none.
    pub lease: Duration,
    /// The newest set, unless it knows that the witness has noted it.
    pub set: Option<InSyncSet>,
}

/// The witness's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The witness.
    pub node: NodeId,
    /// Which file it has noted everything in ([`crate::in_sync::Holder::incarnation`]).
    pub incarnation: u64,
    /// The newest set that it has noted.
    pub noted: Option<SetName>,
    /// [`Ask::sent`].
    pub sent: Moment,
}

/// What a candidate asks a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consult {
    /// The candidate.
    pub node: NodeId,
    /// Its term.
    pub term: Term,
    /// Whether the answer is a promise to refuse every earlier term.
    pub binding: bool,
    /// Of a candidate that no operator has asked to lead: the latest term that it had heard of. It
    /// gives way to a term that is not older, and lives.
    pub gives_way: Option<Term>,
}

/// Why a candidate has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTestimony {
    /// It has to give way to this node.
    Led(Living),
    /// A later term is in force, or this one is another node's.
    Refused(Refused),
}

/// What a witness knows beside what is on its disk.
#[derive(Clone, Copy, Debug)]
pub struct Witness {
    me: NodeId,
    voter: Voter,
    /// Whom it has answered last, since it has started.
    granted: Option<Living>,
    /// Who has said last that it leads, or is about to, and when that was.
    observed: Option<(Living, Moment)>,
}

impl Witness {
    /// The node `me` has started `now`.
    pub fn restarted(me: NodeId, now: Moment) -> Self {
        Self { me, voter: Voter::restarted(now), granted: None, observed: None }
    }

    /// A primary asks. The answer must not be given before `state` is durable.
    ///
    /// # Errors
    /// [`Refused`]: a later term is in force, or this one is another node's.
    pub fn asked(&mut self, state: &mut TermState, ask: &Ask, now: Moment) -> Result<Granted, Refused> {
        let Living { term, node } = ask.living;
        state.fence.observe(term, node)?;
        state.cluster.get_or_insert(ask.cluster);
        state.lease = state.lease.max(ask.lease);
        if let Some(set) = &ask.set {
            state.note_set(set.clone());
        }
        self.observe_primary(ask.living, now);
        let _ = self.voter.answers(now);
        self.granted = Some(ask.living);
        let incarnation = state.incarnation.unwrap_or_default();
        Ok(Granted { node: self.me, incarnation, noted: state.set.as_ref().map(InSyncSet::name), sent: ask.sent })
    }

    /// The term that it has promised last, if that lives as far as it knows: a primary whose lease
    /// is over confirms nothing, so another may as well stand.
    pub fn living(&self, state: &TermState, now: Moment) -> Option<Living> {
        let patience = if state.lease > Duration::ZERO { state.lease } else { SILENCE };
        let (living, at) = self.observed?;
        let promised = (state.fence.highest(), state.fence.holder()) == (living.term, Some(living.node));
        (promised && now.since(at) < patience).then_some(living)
    }

    /// A node leads, or is about to, as it says.
    pub fn observe_primary(&mut self, living: Living, now: Moment) {
        self.observed = Some((living, now));
    }

    /// The connection has ended on which that node has asked.
    pub fn observe_not_leading(&mut self, node: NodeId) {
        self.observed.take_if(|(living, _)| living.node == node);
    }

    /// A candidate asks. The answer must not be given before `state` is durable.
    ///
    /// # Errors
    /// [`NoTestimony`]; then nothing has changed.
    pub fn consulted(&mut self, state: &mut TermState, asks: &Consult, now: Moment) -> Result<Testimony, NoTestimony> {
        let Consult { node, term, binding, gives_way } = *asks;
        let living = self.living(state, now);
        let over = |living: &Living| gives_way.is_some_and(|latest| living.outranks(node, latest));
        if let Some(living) = living.filter(over) {
            return Err(NoTestimony::Led(living));
        }
        if binding {
            state.fence.observe(term, node).map_err(NoTestimony::Refused)?;
            if gives_way.is_none() {
                // It was told to take over, and will lead in a moment.
                self.observe_primary(Living { term, node }, now);
            }
        }
        Ok(self.testimony(state, now))
    }

    /// What it says to a candidate.
    pub fn testimony(&self, state: &TermState, now: Moment) -> Testimony {
        let (end, committed) = Default::default();
        let lease = self.voter.left(state.lease, now);
        let log = LogState { lease, ..LogState::of(state.clone(), self.me, end, committed) };
        Testimony { granted: self.granted, ..log.testimony() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        in_sync::{Holder, tests::first_set},
        term::Fence,
    };

    const PRIMARY: NodeId = NodeId(1);
    const ME: NodeId = NodeId(9);

    fn ask(term: u32, sent: u64, number: u64) -> Ask {
        let set = first_set(PRIMARY, [Holder::new(PRIMARY, 5), Holder::of_witness(ME, 7)].into());
        let set = Some(InSyncSet { number, ..set }).filter(|_| number > 0);
        let living = Living { term: Term(term), node: PRIMARY };
        Ask { cluster: ClusterId(3), living, sent: Moment(sent), lease: Duration::from_millis(64), set }
    }

    #[test]
    fn it_notes_promises_and_grants() {
        let mut state = TermState { incarnation: Some(7), ..TermState::empty() };
        let mut it = Witness::restarted(ME, Moment(0));
        let granted = it.asked(&mut state, &ask(2, 30, 4), Moment(1000)).unwrap();
        assert_eq!(granted, Granted { node: ME, incarnation: 7, noted: Some((Term(1), PRIMARY, 4)), sent: Moment(30) });
        assert_eq!(state.cluster, Some(ClusterId(3)));
        assert_eq!(it.living(&state, Moment(64_999)), Some(Living { term: Term(2), node: PRIMARY }));
        assert_eq!(it.living(&state, Moment(65_000)), None, "it has no lease any more");
        let older = it.asked(&mut state, &ask(2, 40, 3), Moment(2000)).unwrap();
        assert_eq!(older.noted, granted.noted, "no newer set is given up for it");
        // A candidate learns what is left of the grant, and what was noted.
        let known = it.testimony(&state, Moment(33_000));
        assert_eq!((known.incarnations, known.lease), (vec![7], Duration::from_millis(34)));
        assert_eq!(known.granted, Some(Living { term: Term(2), node: PRIMARY }));
        assert_eq!(known.set.map(|set| set.number), Some(4));
        // What it has promised to another ends the primary's term here.
        assert_eq!(state.fence.observe(Term(3), NodeId(2)), Ok(true));
        let over = Refused { highest: Term(3), holder: Some(NodeId(2)) };
        assert_eq!(it.asked(&mut state, &ask(2, 50, 5), Moment(40_000)), Err(over));
        assert_eq!((it.living(&state, Moment(40_000)), state.set.map(|set| set.number)), (None, Some(4)));
    }

    #[test]
    fn one_that_has_started_may_have_granted_a_moment_before() {
        let state =
            TermState { lease: Duration::from_millis(64), fence: Fence::new(Term(2), None), ..TermState::empty() };
        let it = Witness::restarted(ME, Moment(5000));
        let known = it.testimony(&state, Moment(5000));
        assert_eq!((known.lease, known.granted), (Duration::from_millis(65), None));
    }
}
