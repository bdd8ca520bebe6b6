//! Contest: what a primary does that a node cannot follow, since that node has promised the term to
//! a third one ([`crate::term::TermState::observe_primary`]). The node follows in a later term, and
//! where the nodes fail over by themselves no person sees to that.
//!
//! ```text
//!  refused again and again ──▶ hands its role over ──▶ another leads, in a later term
//!                                ▲          │ no node takes it
//!                                │          ▼
//!                                └──── waits, and tries again: starts again instead where commits
//!                                      wait, or after some attempts, and leads in a later term
//! ```
//!
//! Commits may wait for the very node that cannot follow: then no node that has the log may be able
//! to take the role. Where commits do not wait, all nodes in sync may be mirrors, which take no
//! role.

use std::time::Duration;

use crate::Moment;

/// How long each takes.
#[derive(Clone, Copy, Debug)]
pub struct ContestConfig {
    /// The term is contested when refusals have come for so long,
    pub lasts: Duration,
    /// and not any more when none has come for so long.
    pub ends: Duration,
    /// How often it offers its role.
    pub every: Duration,
    /// After this number of offers it starts again, whether commits wait or not.
    pub offers: u32,
}

impl Default for ContestConfig {
    fn default() -> Self {
        let [lasts, ends, every] = [1, 10, 10].map(Duration::from_secs);
        Self { lasts, ends, every, offers: 3 }
    }
}

/// What a primary does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Nothing.
    Rest,
    /// It hands its role to another node ([`crate::switch_over`]); [`Contest::not_taken`] follows,
    /// or that node leads.
    HandOver,
    /// It starts again.
    StartAgain,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Contest {
    config: ContestConfig,
    /// The first refusal of those that come again and again, and the last.
    refused: Option<(Moment, Moment)>,
    /// Its role is on offer.
    offered: bool,
    /// When it may offer it again.
    due: Moment,
    /// How often none has taken it since the refusals began.
    failures: u32,
}

impl Contest {
    /// Of a primary whose term no node contests.
    pub fn new(config: ContestConfig) -> Self {
        Self { config, refused: None, offered: false, due: Moment::default(), failures: 0 }
    }

    /// A node has promised the term to another one. Says whether none has lately.
    pub fn refused(&mut self, now: Moment) -> bool {
        let since = self.refused.filter(|(_, last)| now.since(*last) < self.config.ends).map(|(since, _)| since);
        self.refused = Some((since.unwrap_or(now), now));
        if since.is_none() {
            self.failures = 0;
        }
        since.is_none()
    }

    /// Whether nodes refuse the term again and again.
    pub fn is_contested(&self, now: Moment) -> bool {
        let ContestConfig { lasts, ends, .. } = self.config;
        self.refused.is_some_and(|(since, last)| last.since(since) >= lasts && now.since(last) < ends)
    }

    /// No node has taken the role that was offered.
    pub fn not_taken(&mut self) {
        if std::mem::take(&mut self.offered) {
            self.failures += 1;
        }
    }

    /// What to do now. `blocked` says whether commits wait for nodes that are not there.
    pub fn next(&mut self, blocked: bool, now: Moment) -> Next {
        if self.offered || !self.is_contested(now) {
            return Next::Rest;
        }
        if self.failures >= if blocked { 1 } else { self.config.offers } {
            return Next::StartAgain;
        }
        if now < self.due {
            return Next::Rest;
        }
        (self.offered, self.due) = (true, now.after(self.config.every));
        Next::HandOver
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000)
    }

    #[test]
    fn a_contested_primary_offers_its_role_and_then_starts_again() {
        let mut it = Contest::new(ContestConfig::default());
        assert!(it.refused(s(100)));
        assert_eq!(it.next(false, s(100)), Next::Rest, "it may have been the only one");
        assert!(!it.refused(s(101)));
        assert_eq!(it.next(false, s(101)), Next::HandOver);
        assert_eq!(it.next(true, s(101)), Next::Rest, "that takes a while");
        it.not_taken();
        assert_eq!(it.next(false, s(105)), Next::Rest);
        assert_eq!(it.clone().next(true, s(105)), Next::StartAgain, "commits wait");
        for at in [111, 121] {
            assert!(!it.refused(s(at - 5)) && !it.refused(s(at)));
            assert_eq!(it.next(false, s(at)), Next::HandOver);
            it.not_taken();
        }
        assert_eq!(it.next(false, s(122)), Next::StartAgain);
        // The node that could not follow is away.
        assert_eq!(it.next(true, s(131)), Next::Rest);
        assert!(it.refused(s(140)) && !it.refused(s(141)));
        assert_eq!(it.next(true, s(141)), Next::HandOver, "that is another time");
    }
}
