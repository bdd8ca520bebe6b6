//! Lane: effects that are carried out one after the other, and in no other way.

use std::{collections::VecDeque, fmt::Debug};

/// What is left to be done, in this order, and what comes of it when all is done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Lane<E, D> {
    left: VecDeque<E>,
    outcome: D,
}

impl<E: Copy + PartialEq + Debug, D> Lane<E, D> {
    /// All of these, and then `outcome`.
    pub(crate) fn new(effects: impl IntoIterator<Item = E>, outcome: D) -> Self {
        Self { left: effects.into_iter().collect(), outcome }
    }

    /// These come behind what is left.
    pub(crate) fn extend(&mut self, effects: impl IntoIterator<Item = E>) {
        self.left.extend(effects);
    }

    /// The next effect; none when all are done.
    pub fn next_effect(&self) -> Option<E> {
        self.left.front().copied()
    }

    /// All effects that are known to be left, in this order.
    pub fn left(&self) -> impl Iterator<Item = E> + '_ {
        self.left.iter().copied()
    }

    /// An effect is done.
    ///
    /// # Panics
    /// When it is not the one that was to be done.
    pub fn done(&mut self, effect: E) {
        assert_eq!(Some(effect), self.left.pop_front(), "an effect was left out, or carried out of turn");
    }

    /// All are done.
    ///
    /// # Panics
    /// When one is not.
    pub fn finish(self) -> D {
        assert!(self.left.is_empty(), "effects were left out: {:?}", self.left);
        self.outcome
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        fmt::Debug,
        panic::{AssertUnwindSafe, catch_unwind},
    };

    /// Whatever a driver leaves out, or carries out of turn, stops it: of a machine that is `begun`
    /// with `all` these effects to be done.
    pub fn no_effect_is_left_out_or_swapped<M, E: Copy + PartialEq + Debug>(
        all: &[E],
        begun: impl Fn() -> M,
        done: impl Fn(&mut M, E),
        finish: impl Fn(M),
    ) {
        let until = |wrong: usize| {
            let mut machine = begun();
            all[..wrong].iter().for_each(|effect| done(&mut machine, *effect));
            machine
        };
        for wrong in 0..all.len() {
            for other in (0..all.len()).filter(|other| *other != wrong) {
                let swapped = catch_unwind(AssertUnwindSafe(|| done(&mut until(wrong), all[other])));
                assert!(swapped.is_err(), "{:?} in the place of {:?}", all[other], all[wrong]);
            }
            let left_out = catch_unwind(AssertUnwindSafe(|| finish(until(wrong))));
            assert!(left_out.is_err(), "without {:?}", all[wrong]);
        }
        finish(until(all.len()));
    }
}
