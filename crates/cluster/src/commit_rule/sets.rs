use std::collections::{BTreeSet, VecDeque};

use freshet_base::{NodeId, Stamp, Term};

use crate::in_sync::{InSyncSet, Succession};

/// The in-sync sets of a reign that matter: the one in effect, and those after it.
#[derive(Clone, Debug)]
pub(super) struct Sets {
    me: NodeId,
    /// Consecutive; only the last may not be in the log yet. The first is in effect.
    chain: VecDeque<Link>,
    /// Whether a set of this reign is in effect.
    begun: bool,
}

#[derive(Clone, Debug)]
struct Link {
    set: InSyncSet,
    /// Where its block ends, when it is in the log of this reign.
    end: Option<Stamp>,
}

impl Sets {
    pub fn new(me: NodeId, term: Term, floor: u32, succession: Succession) -> Self {
        let first = succession.first(term, me, floor);
        let before = match succession {
            Succession::Of(set) => {
                set.possible().map(|members| InSyncSet { members: members.clone(), ..set.clone() }).collect()
            }
            Succession::New(_) => Vec::new(),
        };
        let chain = before.into_iter().chain([first]).map(|set| Link { set, end: None }).collect();
        Self { me, chain, begun: false }
    }

    /// The first set of this reign, as long as it is the newest; and everybody who has to be heard
    /// of.
    pub fn members(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.newest().set.members.iter().copied().filter(|node| *node != self.me)
    }

    fn newest(&self) -> &Link {
        self.chain.back().expect("the chain is never empty")
    }

    pub fn to_write(&self) -> Option<&InSyncSet> {
        let newest = self.newest();
        newest.end.is_none().then_some(&newest.set)
    }

    pub fn in_effect(&self) -> &InSyncSet {
        &self.chain[0].set
    }

    /// Whether the first set is in effect.
    pub fn begun(&self) -> bool {
        self.begun
    }

    /// Whether a commit has to wait for this node.
    pub fn binds(&self, node: NodeId) -> bool {
        self.chain.iter().any(|link| link.set.members.contains(&node))
    }

    pub fn written(&mut self, number: u64, end: Stamp) {
        if let Some(link) = self.chain.iter_mut().find(|link| link.set.number == number) {
            link.end.get_or_insert(end);
        }
    }

    /// Whether a set that was not in effect is so now.
    pub fn take_effect(&mut self, durable: Stamp, acked: impl Fn(NodeId) -> Stamp) -> bool {
        let me = self.me;
        let held = |link: &Link| {
            link.end.is_some_and(|end| {
                let holds = |node: &NodeId| *node == me || acked(*node) >= end;
                durable >= end && link.set.members.iter().all(holds)
            })
        };
        match self.chain.iter().rposition(held) {
            None => false,
            Some(0) if self.begun => false,
            Some(newest) => {
                self.chain.drain(..newest);
                self.begun = true;
                true
            }
        }
    }

    /// Begins a set without those members who are unfit, as far as the floor and the sets before
    /// allow; says who goes.
    pub fn remove(&mut self, floor: u32, unfit: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
        if self.to_write().is_some() {
            return Vec::new();
        }
        let mut next = self.newest().set.members.clone();
        let mut gone = Vec::new();
        for node in self.members().filter(|node| unfit(*node)) {
            next.remove(&node);
            // A reign that begins with another floor has told nobody yet.
            let met = self.chain.iter().all(|link| link.set.meets(&link.set.members, &next));
            if met && self.newest().set.may_be_followed_by(&next) {
                gone.push(node);
            } else {
                next.insert(node);
            }
        }
        if !gone.is_empty() {
            self.push(next, floor);
        }
        gone
    }

    /// Begins a set with those who return from leaving, as long as that is not in effect, and with
    /// those who join, unless another change is on its way. Says who comes. Without any, says on
    /// record that the last change is over.
    pub fn add(&mut self, floor: u32, returning: &[NodeId], joining: &[NodeId]) -> Vec<NodeId> {
        if self.to_write().is_some() || !self.begun && returning.is_empty() {
            return Vec::new();
        }
        // Before the first set of a reign is in effect, the chain has one set only where that
        // follows none. It holds this node alone then, so that no member can return.
        let settled = self.chain.len() == 1;
        let newest = &self.newest().set;
        let come = returning.iter().chain(joining.iter().filter(|_| settled));
        let come: Vec<NodeId> = come.copied().filter(|node| !newest.members.contains(node)).collect();
        if !come.is_empty() || settled && !newest.before.is_empty() {
            let next = newest.members.iter().copied().chain(come.iter().copied()).collect();
            self.push(next, floor);
        }
        come
    }

    fn push(&mut self, members: BTreeSet<NodeId>, floor: u32) {
        let last = &self.newest().set;
        let before = InSyncSet::others(self.chain.iter().map(|link| link.set.members.clone()), &members);
        let set = InSyncSet { number: last.number + 1, term: last.term, floor, before, members };
        self.chain.push_back(Link { set, end: None });
    }
}
