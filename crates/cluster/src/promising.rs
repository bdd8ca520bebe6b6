//! Promising: what a node does, step by step, before it answers one that speaks for a term: a
//! candidate, or a primary that makes itself known.
//!
//! ```text
//!   promise ─▶ end term ─▶ take back ─▶ settle ─▶ promised
//! ```
//!
//! The order is the protocol's. The promise is durable before anything follows from it. Then what
//! is of an earlier term ends here: a primary acknowledges nothing more, a relay passes nothing on,
//! a node that follows gives its connection up. Then no primary of an earlier term can write into
//! this node's memory. Then what they believe to have arrived here is part of what this node holds,
//! and persistent. A candidate counts on all of that when it is answered, so an answer wants a
//! [`Promised`].

use freshet_base::{NodeId, Term};

use crate::lane::Lane;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Promise the term to its node, durably ([`crate::term::Fence::observe`]), and say what came
    /// of it ([`Promising::promised`]).
    Promise {
        /// The term.
        term: Term,
        /// Who speaks for it.
        node: NodeId,
    },
    /// What is of an earlier term ends.
    EndTerm {
        /// This promise is the first of its term.
        risen: bool,
    },
    /// Block until no primary of an earlier term can write into this node's memory.
    TakeBack,
    /// Block until what this node holds for those is persistent.
    Settle,
}

/// A node on its way to an answer.
pub type Promising = Lane<Effect, Promised>;

/// The steps are done. Only so a node is answered that speaks for a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Promised {
    term: Term,
}

impl Promised {
    /// The term.
    pub fn term(self) -> Term {
        self.term
    }
}

impl Promising {
    /// `node` speaks for `term`: first it is promised ([`Promising::promised`]), or nothing is
    /// done.
    pub fn to(term: Term, node: NodeId) -> Self {
        Self::new([Effect::Promise { term, node }], Promised { term })
    }

    /// The promise, which is this `effect`, was made, durably; it is the first of its term if the
    /// fence has `risen`.
    ///
    /// # Panics
    /// When it was not to be made now.
    pub fn promised(&mut self, effect: Effect, risen: bool) {
        self.done(effect);
        self.extend([Effect::EndTerm { risen }, Effect::TakeBack, Effect::Settle]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        lane::tests::no_effect_is_left_out_or_swapped,
        term::{Fence, Refused},
    };

    const NODE: NodeId = NodeId(2);

    fn steps(fence: &mut Fence, term: Term) -> Result<Vec<Effect>, Refused> {
        let mut promising = Promising::to(term, NODE);
        let mut steps = Vec::new();
        while let Some(effect) = promising.next_effect() {
            steps.push(effect);
            match effect {
                Effect::Promise { term, node } => promising.promised(effect, fence.observe(term, node)?),
                other => promising.done(other),
            }
        }
        assert_eq!(promising.finish().term(), term);
        Ok(steps)
    }

    #[test]
    fn nobody_is_answered_before_the_primaries_of_before_are_out() {
        let mut fence = Fence::new(Term(3), Some(NodeId(1)));
        let promise = Effect::Promise { term: Term(4), node: NODE };
        let of = |risen| [promise, Effect::EndTerm { risen }, Effect::TakeBack, Effect::Settle];
        assert_eq!(steps(&mut fence, Term(4)).unwrap(), of(true));
        assert_eq!(steps(&mut fence, Term(4)).unwrap(), of(false), "another question of the same node");
        let done = |promising: &mut Promising, effect| match effect {
            Effect::Promise { .. } => promising.promised(effect, true),
            other => promising.done(other),
        };
        let begun = || Promising::to(Term(4), NODE);
        no_effect_is_left_out_or_swapped(&of(true), begun, done, |it| {
            let _ = it.finish();
        });
        let refused = Refused { highest: Term(4), holder: Some(NODE) };
        assert_eq!(steps(&mut fence, Term(3)), Err(refused));
    }

    #[test]
    #[should_panic(expected = "left out")]
    fn an_answer_needs_all_steps() {
        let mut promising = Promising::to(Term(4), NODE);
        let promise = promising.next_effect().unwrap();
        promising.promised(promise, true);
        let _ = promising.finish();
    }
}
