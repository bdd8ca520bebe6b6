//! Drives [`freshet_cluster::entering`]: a node is welcome, and continues what it has with another
//! node's log, to follow that node or to fetch that log. A log is cut at once. A mirror's memory is
//! cut by writes that take their time: when they have landed, its node enters further.

use std::vec;

use freshet_base::Lsn;
use freshet_cluster::{
    entering::{Effect, Entered, Entering, NotEntered},
    handshake::Welcome,
    mirror::Cut,
    upstream::Ended,
};

use crate::{
    checks::Violation, log::Block, net::ConnectionId, sabotage, scenario::Broken, upstream::counted, world::World,
};

/// What for a node enters the terms of a sender.
pub(crate) enum Purpose {
    /// To follow it, by this connection.
    Follow(ConnectionId),
    /// As a candidate, to have these blocks, which its log has more.
    Fetch(Vec<Block>),
}

/// A node on its way.
pub(crate) struct Enters {
    purpose: Purpose,
    welcome: Welcome,
    entering: Entering,
    /// What is left, as the driver does it.
    left: vec::IntoIter<Effect>,
}

impl World {
    /// A sender says how its log continues what `node` has.
    pub(crate) fn welcomed(&mut self, node: usize, welcome: Welcome, purpose: Purpose) -> Result<(), Violation> {
        let terms = self.known_terms(node);
        let state = &self.nodes[node];
        let held = match &state.mirror {
            Some(mirror) => mirror.held(&terms),
            None => state.follower.held(&terms, false),
        };
        let entering = match purpose {
            Purpose::Follow(_) => Entering::to_follow(&held, &welcome, &terms),
            Purpose::Fetch(_) => Entering::to_fetch(&held, &welcome, &terms),
        };
        match (entering, &purpose) {
            (Ok(entering), _) => {
                let left = self.steps(entering.left(), sabotage::Effect::of_entering).into_iter();
                self.enter(node, Box::new(Enters { purpose, welcome, entering, left }))
            }
            (Err(_), Purpose::Fetch(_)) => self.give_up(node),
            (Err(NotEntered::Refused(_)), _) => self.unlink(node, Ended::GivenUp),
            (Err(NotEntered::Counted(primary)), _) => self.unlink(node, counted(primary)),
            (Err(NotEntered::Checkpoint { .. }), _) if state.mirror.is_some() => self.begin_again(node),
            (Err(NotEntered::Checkpoint { at, .. } | NotEntered::Acknowledged { at, .. }), _) => {
                self.holds_more(node, (welcome.term, at, held.acknowledged.max(held.floor)))?;
                self.unlink_if_up(node, Ended::GivenUp)
            }
        }
    }

    /// The next steps.
    fn enter(&mut self, node: usize, mut enters: Box<Enters>) -> Result<(), Violation> {
        while let Some(effect) = enters.left.next() {
            match effect {
                Effect::Promise { term, primary } => {
                    if self.observe_term(node, (term, true), primary).is_err() {
                        return self.unlink(node, Ended::GivenUp);
                    }
                }
                Effect::EndFeeds => self.end_feeds(node),
                Effect::Cut(at) if self.nodes[node].mirror.is_some() => return self.cut_memory(node, at, enters),
                Effect::Cut(at) if self.nodes[node].visible > at.0 => {
                    self.check_seen(node, at.0)?;
                    return match enters.purpose {
                        Purpose::Follow(_) => self.wipe(node),
                        Purpose::Fetch(_) => self.give_up(node),
                    };
                }
                Effect::Cut(_) if self.scenario.broken == Broken::CutForgotten => {}
                Effect::Cut(at) => self.cut(node, at.0)?,
                Effect::Adopt => {
                    self.nodes[node].disk.terms.enter(&enters.welcome);
                    self.check_terms(node)?;
                }
            }
            enters.entering.done(effect);
        }
        let Enters { purpose, welcome, entering, .. } = *enters;
        self.entered(node, purpose, welcome, entering.finish())
    }

    /// The memory of a mirror was to be cut, ends there, and what was undone is not found again.
    pub(crate) fn memory_was_cut(&mut self, node: usize, mut enters: Box<Enters>, end: Lsn) -> Result<(), Violation> {
        let at = enters.welcome.cut_at;
        self.note(|| format!("node {node} is cut to {end}, for {at}"));
        self.shadow_is_cut(node, end);
        match (self.mirror(node).state.cut(at, end), &enters.purpose) {
            (Cut::Above(_), Purpose::Follow(_)) => self.begin_again(node),
            (Cut::Below(_), Purpose::Follow(_)) => self.unlink(node, Ended::GivenUp),
            (Cut::Done, Purpose::Follow(id)) if !self.joins_by(node, *id) => self.unlink(node, Ended::GivenUp),
            (Cut::Done, _) => {
                enters.entering.done(Effect::Cut(at));
                self.enter(node, enters)
            }
            (_, Purpose::Fetch(_)) => {
                self.give_up(node)?;
                self.mirror_next(node)
            }
        }
    }

    /// What follows.
    fn entered(&mut self, node: usize, purpose: Purpose, welcome: Welcome, entered: Entered) -> Result<(), Violation> {
        let is_mirror = self.nodes[node].mirror.is_some();
        if !is_mirror && self.scenario.broken != Broken::CommittedOfAnother {
            self.nodes[node].follower.entered(entered);
        }
        match purpose {
            Purpose::Follow(id) if is_mirror => self.begin_feed(node, id, welcome, entered),
            Purpose::Follow(id) => return self.begins_to_follow(node, id, &welcome),
            Purpose::Fetch(blocks) if is_mirror => self.begin_taking(node, &welcome, blocks),
            Purpose::Fetch(blocks) => return self.log_was_fetched(node, blocks),
        }
        Ok(())
    }
}
