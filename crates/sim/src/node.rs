//! What a node is made of: what a crash leaves, and what it does not.

use std::collections::{BTreeMap, VecDeque};

use freshet_base::{NodeId, Safety, Stamp, Term};
use freshet_cluster::{
    commit_rule::CommitRule,
    flow::{Boundaries, Flow},
    relay::Relay,
    take_over::{LogState, TakeOver},
    term::{Living, TermState},
};

use crate::{log::Log, net::ConnectionId, one_sided::Memory};

/// One node.
pub(crate) struct Node {
    pub id: NodeId,
    pub synchronous: bool,
    /// Follows this relay rather than the primary, while that is a standby.
    pub upstream: Option<usize>,
    pub relays: bool,
    pub up: bool,
    /// Counts starts: what was meant for an earlier life is not delivered.
    pub life: u32,
    pub disk: Disk,
    pub role: Role,
    /// Written to disk right now.
    pub flushing: bool,
    /// Counts cuts: a flush that a cut overtakes says nothing.
    pub cuts: u32,
    pub leader: Option<usize>,
    /// It was a primary before, and has neither reigned nor followed anybody since it was started.
    pub returns: bool,
    /// Who said last that it reigns, or is about to, and until when that counts.
    pub heard_of: Option<(Living, u64)>,
    pub link: Option<Link>,
    pub reconnects: bool,
    pub replayed: u64,
    pub replaying: bool,
    pub global: u64,
    /// What the primary has said of the cluster since this node started.
    pub told: Option<(u32, Safety)>,
    pub visible: u64,
    pub relay: Option<Relay>,
    pub feeding: Option<Feeding>,
    pub candidate: Option<Candidate>,
    pub ticks: Option<u64>,
    pub memory: Memory,
    /// Of a primary: where its newest record of an in-sync set ends.
    pub recorded: u64,
}

/// What survives a crash; of the log, what was synced, and what else the crash leaves.
pub(crate) struct Disk {
    pub log: Log,
    /// The node takes everything below for durable.
    pub synced: u64,
    /// A loss of power leaves everything below.
    pub sure: u64,
    /// A sync has failed: what lies above is read as it was written, and no sync makes it durable
    /// unless it is written again.
    pub dropped: bool,
    /// The next sync fails.
    pub failing: bool,
    pub terms: TermState,
    pub full: bool,
    /// A flush takes so many times longer.
    pub slowness: u64,
}

pub(crate) enum Role {
    Standby,
    Primary(Box<Reign>),
}

/// A primary's state.
pub(crate) struct Reign {
    pub term: Term,
    pub rule: CommitRule,
    /// Clients were told up to here.
    pub acknowledged: u64,
}

/// The connection to whom a standby follows.
pub(crate) struct Link {
    pub connection: ConnectionId,
    /// The term of the sender, once it said welcome.
    pub term: Option<Term>,
}

/// Who is fed from this node's log.
pub(crate) struct Feeding {
    pub term: Term,
    pub boundaries: Boundaries,
    pub feeds: BTreeMap<ConnectionId, Feed>,
    pub wakes: Option<u64>,
}

pub(crate) struct Feed {
    pub node: usize,
    pub flow: Flow,
}

/// A take-over, or a restart, in preparation.
pub(crate) struct Candidate {
    pub take_over: TakeOver,
    /// It comes back without having been told to: the latest term that it had heard of.
    pub comes_back: Option<Term>,
    /// Counts rounds, and what else has a time.
    pub round: u32,
    /// Who was named by somebody who refused.
    pub leader: Option<usize>,
    /// Whose answers are outstanding.
    pub asked: VecDeque<ConnectionId>,
    /// A node whose log is being fetched.
    pub fetching: Option<ConnectionId>,
}

impl Node {
    pub fn new(index: usize, synchronous: bool, upstream: Option<usize>, relays: bool) -> Self {
        Self {
            id: NodeId(index as u64),
            synchronous,
            upstream,
            relays,
            up: false,
            life: 0,
            disk: Disk {
                log: Log::default(),
                synced: 0,
                sure: 0,
                dropped: false,
                failing: false,
                terms: TermState::empty(),
                full: false,
                slowness: 1,
            },
            role: Role::Standby,
            flushing: false,
            cuts: 0,
            leader: None,
            returns: false,
            heard_of: None,
            link: None,
            reconnects: false,
            replayed: 0,
            replaying: false,
            global: 0,
            told: None,
            visible: 0,
            relay: None,
            feeding: None,
            candidate: None,
            ticks: None,
            memory: Memory::default(),
            recorded: 0,
        }
    }

    /// What it says to a candidate.
    pub fn log_state(&self) -> LogState {
        LogState {
            history: self.disk.terms.history.clone(),
            end: Stamp(self.disk.synced),
            set: self.disk.terms.set.clone(),
            synchronous: self.synchronous,
            committed: Stamp(self.reign().map_or(self.global, |reign| reign.acknowledged)),
        }
    }

    pub fn reign(&self) -> Option<&Reign> {
        match &self.role {
            Role::Primary(reign) => Some(reign),
            Role::Standby => None,
        }
    }

    pub fn reign_mut(&mut self) -> Option<&mut Reign> {
        match &mut self.role {
            Role::Primary(reign) => Some(reign),
            Role::Standby => None,
        }
    }

    /// Whether it is up and reigns, as far as it knows.
    pub fn reigns(&self) -> bool {
        self.up && self.reign().is_some_and(|reign| reign.rule.fenced().is_none())
    }

    /// The reign under which it lives.
    pub fn living(&self, now: u64) -> Option<Living> {
        if let Some(reign) = self.reign() {
            return self.reigns().then_some(Living { term: reign.term, node: self.id });
        }
        let fence = self.disk.terms.fence;
        let reign = Living { term: fence.highest(), node: fence.holder()? };
        let follows = self.link.as_ref().is_some_and(|link| link.term == Some(reign.term));
        let heard = self.heard_of.is_some_and(|(heard, until)| heard == reign && now < until);
        (follows || heard).then_some(reign)
    }

    /// Whether commits may wait for it.
    pub fn is_counted(&self) -> bool {
        self.disk.terms.may_wait_for(self.id)
    }

    /// The end of what was written since `from` that records an in-sync set becomes known.
    pub fn note_sets(&mut self, from: u64, to: u64) {
        for block in self.disk.log.between(from, to) {
            if let Some(set) = &block.set {
                self.disk.terms.note_set((**set).clone());
            }
        }
    }

    /// Where a standby's ring has room up to, given its capacity.
    pub fn credit(&self, capacity: u64) -> u64 {
        self.disk.synced.min(self.replayed) + capacity
    }
}
