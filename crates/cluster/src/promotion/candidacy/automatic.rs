//! A candidate that no operator has asked to stand ([`crate::watch`]), and what it waits for.

use std::{collections::BTreeSet, time::Duration};

use super::{Candidacy, ComesBack, Stopped, count};
use crate::in_sync::{Holder, InSyncSet};

impl Candidacy {
    /// No operator has asked the candidate to stand: it gives way to a living primary, and leads
    /// only if more than half of each set that may be in effect have answered. To be said before
    /// any node is heard.
    #[must_use]
    pub fn automatic(mut self) -> Self {
        (self.automatic, self.comes_back) = (true, Some(ComesBack { asks: true, promised: None }));
        self
    }

    /// What is missing for a promotion that no operator has asked for. Others may hear a primary
    /// that the candidate does not. Under 1-safe there are no sets, and no such promotion.
    pub(super) fn lacks_majority(&self, newest: Option<&InSyncSet>) -> Option<Stopped> {
        let Some(newest) = newest else {
            let answered = self.votes();
            return Some(Stopped::TooFew { answered, needed: answered + 1 });
        };
        let lacks = |set: &BTreeSet<Holder>| {
            let answered = set.iter().filter(|holder| self.has_answered(holder, newest.quorum.is_none())).count();
            (2 * answered <= set.len())
                .then(|| Stopped::TooFew { answered: count(answered), needed: count(set.len() / 2 + 1) })
        };
        newest.possible().find_map(lacks)
    }

    /// How long the leases last that those have granted who have answered, and the candidate. If
    /// the primary of before has answered, its term is over there, and so are its leases.
    pub fn lease_left(&self) -> Duration {
        let histories = self.logs.values().map(|log| &log.history).chain([&self.mine.history]);
        let before = histories.filter_map(|history| history.entries().last()).max_by_key(|entry| entry.term);
        if before.is_some_and(|before| before.node == self.me || self.answered().any(|node| node == before.node)) {
            return Duration::ZERO;
        }
        let granted = self.logs.values().map(|log| log.lease).chain(self.met.values().map(|witness| witness.lease));
        granted.fold(self.mine.lease, Duration::max)
    }

    /// Whether another candidate comes before this one: it has a later term, or the same and a
    /// smaller id.
    pub(crate) fn is_outbid(&self) -> bool {
        self.outbid
    }
}
