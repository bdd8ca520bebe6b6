//! Drivers that do not do what the machines say: one effect is left out, or done behind the one
//! that follows it. Each is to be noticed (`tests/sabotaged.rs`).
//!
//! The list is complete: drivers take apart what a machine says without leaving out a variant or a
//! field, and name the effect of each.

use freshet_cluster::{commit_rule, entering, follower, promising, promotion::Step};

use crate::world::World;

/// What a driver does because a machine says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Steps of entering a term.
    Promise,
    /// See there.
    EndFeeds,
    /// See there.
    Cut,
    /// See there.
    Adopt,
    /// Steps of promising a term, behind the promise.
    EndTerm,
    /// See there.
    TakeBack,
    /// See there.
    Settle,
    /// A standby shows more.
    Show,
    /// It begins to replay.
    Replay,
    /// A relay passes on what is globally persistent.
    PassDown,
    /// It gives back room.
    Release,
    /// It reports another place of one below.
    Places,
    /// A primary tells clients, and those that it feeds.
    Commit,
    /// Its standing is reported.
    Report,
    /// It records an in-sync set.
    Record,
    /// A candidate asks all others.
    Ask,
    /// It fetches a log.
    Fetch,
    /// It leads.
    Finish,
    /// It gives up.
    Stop,
    /// What a mirror's mark has passed is not undone any more.
    Marked,
    /// What has completed is acknowledged for a mirror.
    Acknowledge,
    /// Or the mirror is asked to do that.
    AskMirror,
}

impl Effect {
    /// The first one.
    pub const FIRST: Self = Self::Promise;

    /// The one that follows, in this list.
    pub fn next(self) -> Option<Self> {
        Some(match self {
            Self::Promise => Self::EndFeeds,
            Self::EndFeeds => Self::Cut,
            Self::Cut => Self::Adopt,
            Self::Adopt => Self::EndTerm,
            Self::EndTerm => Self::TakeBack,
            Self::TakeBack => Self::Settle,
            Self::Settle => Self::Show,
            Self::Show => Self::Replay,
            Self::Replay => Self::PassDown,
            Self::PassDown => Self::Release,
            Self::Release => Self::Places,
            Self::Places => Self::Commit,
            Self::Commit => Self::Report,
            Self::Report => Self::Record,
            Self::Record => Self::Ask,
            Self::Ask => Self::Fetch,
            Self::Fetch => Self::Finish,
            Self::Finish => Self::Stop,
            Self::Stop => Self::Marked,
            Self::Marked => Self::Acknowledge,
            Self::Acknowledge => Self::AskMirror,
            Self::AskMirror => return None,
        })
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::successors(Some(Self::FIRST), |effect| effect.next())
    }

    pub(crate) fn of_entering(effect: entering::Effect) -> Self {
        match effect {
            entering::Effect::Promise { .. } => Self::Promise,
            entering::Effect::EndFeeds => Self::EndFeeds,
            entering::Effect::Cut(_) => Self::Cut,
            entering::Effect::Adopt => Self::Adopt,
        }
    }

    pub(crate) fn of_promising(effect: promising::Effect) -> Self {
        match effect {
            promising::Effect::Promise { .. } => Self::Promise,
            promising::Effect::EndTerm { .. } => Self::EndTerm,
            promising::Effect::TakeBack => Self::TakeBack,
            promising::Effect::Settle => Self::Settle,
        }
    }

    pub(crate) fn of_step(step: &Step) -> Self {
        match step {
            Step::Ask => Self::Ask,
            Step::Fetch(_) => Self::Fetch,
            Step::Finish { .. } => Self::Finish,
            Step::Stop(_) => Self::Stop,
        }
    }
}

/// What a driver gets wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// It leaves this out.
    Dropped(Effect),
    /// It does what follows this first.
    Swapped(Effect),
}

impl World {
    /// Whether the driver does this.
    pub(crate) fn does(&self, effect: Effect) -> bool {
        self.scenario.sabotage != Some(Sabotage::Dropped(effect))
    }

    /// The order in which the driver does these.
    fn order<const N: usize>(&self, mut all: [(bool, Effect); N]) -> impl Iterator<Item = Effect> + use<N> {
        match self.scenario.sabotage {
            None => {}
            Some(Sabotage::Dropped(effect)) => all.iter_mut().for_each(|it| it.0 &= it.1 != effect),
            Some(Sabotage::Swapped(effect)) => {
                let place = all.iter().position(|it| it.1 == effect).unwrap_or(N);
                if place + 1 < N {
                    all.swap(place, place + 1);
                }
            }
        }
        all.into_iter().filter(|it| it.0).map(|it| it.1)
    }

    /// What is left of a lane, as the driver does it.
    pub(crate) fn steps<E: Copy>(&self, left: impl Iterator<Item = E>, of: impl Fn(E) -> Effect) -> Vec<E> {
        let mut steps: Vec<E> = left.collect();
        match self.scenario.sabotage {
            None => {}
            Some(Sabotage::Dropped(effect)) => steps.retain(|step| of(*step) != effect),
            Some(Sabotage::Swapped(effect)) => {
                let place = steps.iter().position(|step| of(*step) == effect);
                if let Some(place) = place.filter(|place| place + 1 < steps.len()) {
                    steps.swap(place, place + 1);
                }
            }
        }
        steps
    }

    /// What a standby decides, as its driver does it.
    pub(crate) fn decided(&self, decision: &follower::Decision) -> impl Iterator<Item = Effect> + use<> {
        let follower::Decision { show, replay, down, release, places } = *decision;
        let all = [
            (show.is_some(), Effect::Show),
            (down.is_some(), Effect::PassDown),
            (replay, Effect::Replay),
            (release.is_some(), Effect::Release),
            (places, Effect::Places),
        ];
        self.order(all)
    }

    /// What a commit rule decides, as its driver does it.
    pub(crate) fn ruled(&self, decision: &commit_rule::Decision) -> impl Iterator<Item = Effect> + use<> {
        let commit_rule::Decision { committed: _, changed, write } = *decision;
        let all = [(true, Effect::Commit), (changed, Effect::Report), (write, Effect::Record)];
        self.order(all)
    }
}
