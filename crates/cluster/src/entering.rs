//! Entering: what a node does, step by step, to continue what it has with another node's log.
//!
//! ```text
//!   welcome ─▶ promise ─▶ [end feeds ─▶ cut] ─▶ adopt ─▶ entered
//! ```
//!
//! The order is the protocol's: the term is promised before anything of it is taken in; what parts
//! from the sender's log is cut before the sender's terms are entered, since a node that crashed in
//! between would take its own bytes for theirs; and what was known of the log beyond the cut was
//! said of another log. So [`Entering`] gives one step after the other, and is told of each when it
//! is done. A step that is left out, or done out of turn, is a bug of its driver, and stops it.
//!
//! Nodes with a log and mirrors enter in the same way: [`Held`] says what each has.

use freshet_base::{Lsn, NodeId, Term};
use serde::{Deserialize, Serialize};

use crate::{
    handshake::{Refusal, Welcome, check_belongs, check_welcome},
    lane::Lane,
    term::{Agreement, TermState},
};

/// What a node has that is to continue.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The node.
    pub node: NodeId,
    /// Where its log, or what its memory has of it, ends.
    pub end: Lsn,
    /// It began with a checkpoint that is a state of the database only with the log up to here.
    pub floor: Lsn,
    /// Everything below is known to have been acknowledged to clients.
    pub acknowledged: Lsn,
    /// It follows no relay: commits may count on it, or it came upon the sender by itself.
    pub needs_primary: bool,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Promise the term to its primary, durably: the fence rises before anything of it is done.
    Promise {
        /// The sender's term.
        term: Term,
        /// Who leads in it.
        primary: NodeId,
    },
    /// End the feeds of this node: its log changes otherwise than by growing.
    EndFeeds,
    /// Cut what this node has at this LSN, where the logs part, and forget what lies beyond.
    Cut(Lsn),
    /// Enter the sender's terms, durably.
    Adopt,
}

/// Why a log is not followed although its sender welcomes this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotEntered {
    /// The sender is told why.
    Refused(Refusal),
    /// The sender is a relay, and commits may count on this node, or it has come upon that relay by
    /// itself: it has to follow this primary.
    Counted(NodeId),
    /// This node has what was acknowledged to clients, and the sender does not.
    Acknowledged {
        /// Where the two logs part.
        at: Lsn,
        /// Everything of this log below was acknowledged, or may have been.
        committed: Lsn,
    },
    /// The checkpoint with which this node began holds something of another log.
    Checkpoint {
        /// From here on that log is another.
        at: Lsn,
        /// Where the checkpoint ends.
        floor: Lsn,
    },
}

/// A node on its way into the terms of a sender.
pub type Entering = Lane<Effect, Entered>;

/// The steps are done. Only so a node begins to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub struct Entered {
    cut_at: Lsn,
}

impl Entered {
    /// What this node has is the sender's log up to here; what was known beyond was said of another
    /// log.
    pub fn cut_at(&self) -> Lsn {
        self.cut_at
    }
}

impl Entering {
    /// What the node that has this does to follow as `welcome` says; `state` is what it remembers
    /// of terms.
    ///
    /// # Errors
    /// [`NotEntered`]; nothing is to be done then.
    pub fn to_follow(held: &Held, welcome: &Welcome, state: &TermState) -> Result<Self, NotEntered> {
        // What was acknowledged is noted now and then. Who has begun a term after one that took
        // effect has heard of that one, unless it was forced, or all that have promised it their
        // votes have lost their logs: then the earlier term went on beside it.
        let last = state.last_in_effect(held.node, held.end);
        let acknowledged = welcome.history.keeps(last, held.acknowledged, held.end);
        let (steps, primary) = Self::to_continue(&Held { acknowledged, ..*held }, welcome, state)?;
        let promise = Effect::Promise { term: welcome.term, primary };
        Ok(Self::new([promise].into_iter().chain(steps), Entered { cut_at: welcome.cut_at }))
    }

    /// The same for a candidate, which continues from another log without following its node: the
    /// term is its own.
    ///
    /// # Errors
    /// [`NotEntered`]; nothing is to be done then.
    pub fn to_fetch(held: &Held, welcome: &Welcome, state: &TermState) -> Result<Self, NotEntered> {
        let (steps, _) = Self::to_continue(held, welcome, state)?;
        Ok(Self::new(steps, Entered { cut_at: welcome.cut_at }))
    }

    /// The steps behind the promise, and who leads.
    fn to_continue(
        held: &Held,
        welcome: &Welcome,
        state: &TermState,
    ) -> Result<(impl Iterator<Item = Effect> + use<>, NodeId), NotEntered> {
        let &Held { node, end, floor, acknowledged, needs_primary } = held;
        check_belongs(welcome.node, state).map_err(NotEntered::Refused)?;
        check_welcome(welcome, state.cluster, &state.history, end).map_err(NotEntered::Refused)?;
        let primary = match welcome.above.first().copied() {
            None => welcome.node,
            Some(_) if welcome.above.contains(&node) => {
                return Err(NotEntered::Refused(Refusal::Circle { node: welcome.node, above: node }));
            }
            Some(primary) if needs_primary || state.may_wait_for(node) => return Err(NotEntered::Counted(primary)),
            Some(primary) => primary,
        };
        let at = welcome.cut_at;
        if at < acknowledged {
            return Err(NotEntered::Acknowledged { at, committed: acknowledged });
        }
        // Up to where the sender's terms make what the checkpoint has seen, however far its log
        // reaches now. Of a term that was begun twice it has seen the other one.
        let (Agreement::Upto(seen) | Agreement::SameTermTwice { upto: seen, .. }) =
            welcome.history.agreement(Lsn::MAX, &state.history, floor);
        if seen < floor {
            return Err(NotEntered::Checkpoint { at: seen, floor });
        }
        assert!(at <= end, "the log ends at {end}, and would be cut at {at}");
        let cut = if at < end { vec![Effect::EndFeeds, Effect::Cut(at)] } else { Vec::new() };
        Ok((cut.into_iter().chain([Effect::Adopt]), primary))
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::{ClusterId, Safety};

    use super::*;
    use crate::{
        in_sync::{Counting, Holder, InSyncSet, Succession},
        lane::tests::no_effect_is_left_out_or_swapped,
        term::{Fence, TermEntry, TermHistory},
    };

    const ME: NodeId = NodeId(2);

    fn history(parts: u64) -> TermHistory {
        let mut history = TermHistory::first(Term(1), NodeId(1), 1);
        history.begin(TermEntry { term: Term(2), start: Lsn(parts), node: NodeId(3), nonce: 1 }).unwrap();
        history
    }

    fn welcome(cut_at: u64, above: &[u64]) -> Welcome {
        Welcome {
            cluster: ClusterId(7),
            node: NodeId(3),
            above: above.iter().copied().map(NodeId).collect(),
            term: Term(2),
            history: history(cut_at),
            cut_at: Lsn(cut_at),
            end: Lsn(900),
            keep_alive_ms: 10,
            lease_ms: 0,
        }
    }

    fn held() -> Held {
        let (end, floor, acknowledged) = (Lsn(100), Lsn::ZERO, Lsn::ZERO);
        Held { node: ME, end, floor, acknowledged, needs_primary: false }
    }

    fn state() -> TermState {
        TermState::of(ClusterId(7), TermHistory::first(Term(1), NodeId(1), 1))
    }

    fn steps(held: &Held, welcome: &Welcome) -> Vec<Effect> {
        all_of(Entering::to_follow(held, welcome, &state()).unwrap(), welcome)
    }

    fn all_of(mut entering: Entering, welcome: &Welcome) -> Vec<Effect> {
        let mut steps = Vec::new();
        while let Some(effect) = entering.next_effect() {
            entering.done(effect);
            steps.push(effect);
        }
        assert_eq!(entering.finish(), Entered { cut_at: welcome.cut_at });
        steps
    }

    #[test]
    fn the_term_is_promised_before_the_log_is_cut_and_the_terms_are_entered_behind_that() {
        let promise = Effect::Promise { term: Term(2), primary: NodeId(3) };
        assert_eq!(steps(&held(), &welcome(100, &[])), [promise, Effect::Adopt]);
        let cut = [promise, Effect::EndFeeds, Effect::Cut(Lsn(60)), Effect::Adopt];
        assert_eq!(steps(&held(), &welcome(60, &[])), cut);
        let promise = Effect::Promise { term: Term(2), primary: NodeId(9) };
        assert_eq!(steps(&held(), &welcome(100, &[9])), [promise, Effect::Adopt], "through a relay");
        let fetches = Entering::to_fetch(&held(), &welcome(60, &[]), &state()).unwrap();
        let cut = [Effect::EndFeeds, Effect::Cut(Lsn(60)), Effect::Adopt];
        assert_eq!(all_of(fetches, &welcome(60, &[])), cut, "a candidate has promised its term to itself");
    }

    /// Whatever a driver leaves out, or does before its turn, stops it.
    #[test]
    fn no_step_is_left_out_or_swapped() {
        let begun = || Entering::to_follow(&held(), &welcome(60, &[]), &state()).unwrap();
        let all = steps(&held(), &welcome(60, &[]));
        no_effect_is_left_out_or_swapped(&all, begun, Entering::done, |it| {
            let _ = it.finish();
        });
    }

    #[test]
    fn a_node_gives_up_neither_acknowledged_commits_nor_its_checkpoint() {
        let enter = |held: Held, at| Entering::to_follow(&held, &welcome(at, &[]), &state()).map(drop);
        let acknowledged = Held { acknowledged: Lsn(80), ..held() };
        assert_eq!(enter(acknowledged, 79), Err(NotEntered::Acknowledged { at: Lsn(79), committed: Lsn(80) }));
        assert_eq!(enter(acknowledged, 80), Ok(()));
        // The checkpoint reaches further than the log that came with it so far.
        let floored = Held { floor: Lsn(200), ..held() };
        assert_eq!(enter(floored, 60), Err(NotEntered::Checkpoint { at: Lsn(60), floor: Lsn(200) }));
        // What it has seen of the sender's term was written when that node began the term before.
        let mut other = state();
        other.history.begin(TermEntry { term: Term(2), start: Lsn(60), node: NodeId(3), nonce: 9 }).unwrap();
        let twice = Entering::to_follow(&Held { end: Lsn(60), ..floored }, &welcome(60, &[]), &other).map(drop);
        assert_eq!(twice, Err(NotEntered::Checkpoint { at: Lsn(60), floor: Lsn(200) }));
        // A set of its last term took effect, and the sender has nothing of that term.
        let mut led = state();
        led.history.begin(TermEntry { term: Term(3), start: Lsn(90), node: ME, nonce: 1 }).unwrap();
        led.fence = Fence::new(Term(3), Some(ME));
        let history = led.history.clone();
        let later = |start| {
            let mut welcome = Welcome { term: Term(4), ..welcome(90, &[]) };
            welcome.history = history.cut(Lsn(start));
            welcome.history.begin(TermEntry { term: Term(4), start: Lsn(95), node: NodeId(3), nonce: 1 }).unwrap();
            welcome.cut_at = Lsn(start.min(95));
            welcome
        };
        let follows = |state: &TermState, start| Entering::to_follow(&held(), &later(start), state).map(drop);
        assert_eq!([90, 95].map(|start| follows(&led, start)), [Ok(()), Ok(())]);
        led.note_led(Term(3));
        let may_be_committed = Err(NotEntered::Acknowledged { at: Lsn(90), committed: Lsn(100) });
        assert_eq!([90, 95].map(|start| follows(&led, start)), [may_be_committed.clone(), Ok(())]);
        let counting = |_: &_| Counting { quorum: None, floor: 0 };
        let first = Succession::begin().first((Term(3), Lsn::ZERO), Holder::new(ME, 1), Safety::TwoSafe, counting);
        let settled = InSyncSet { number: 2, ..first.clone() };
        for (set, refused) in [(first, Ok(())), (settled, may_be_committed)] {
            let member = TermState { led: None, set: Some(set), ..led.clone() };
            assert_eq!(follows(&member, 90), refused);
            // A checkpoint behind the parting makes no other case of it.
            let floored = Held { floor: Lsn(100), ..held() };
            let checkpointed = Entering::to_follow(&floored, &later(90), &member).map(drop);
            let behind = Err(NotEntered::Checkpoint { at: Lsn(90), floor: Lsn(100) });
            assert_eq!(checkpointed, if refused.is_ok() { behind } else { refused });
        }
        // What it is known to have acknowledged comes first: that is kept, whatever else is lost.
        let both = Held { acknowledged: Lsn(80), ..floored };
        assert!(matches!(enter(both, 60), Err(NotEntered::Acknowledged { .. })));
    }

    #[test]
    fn a_node_that_counts_follows_no_relay() {
        let enter = |held: Held, above: &[u64]| Entering::to_follow(&held, &welcome(100, above), &state()).map(drop);
        assert_eq!(enter(Held { needs_primary: true, ..held() }, &[9]), Err(NotEntered::Counted(NodeId(9))));
        assert_eq!(enter(Held { needs_primary: true, ..held() }, &[]), Ok(()));
        let circle = Refusal::Circle { node: NodeId(3), above: ME };
        assert_eq!(enter(held(), &[9, ME.0]), Err(NotEntered::Refused(circle)));
    }
}
