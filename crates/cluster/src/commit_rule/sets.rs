use std::collections::VecDeque;

use freshet_base::{NodeId, Stamp};

use crate::in_sync::InSyncSet;

/// The in-sync sets of a reign that matter: the one in effect, and those after it.
#[derive(Clone, Debug)]
pub(super) struct Sets {
    me: NodeId,
    /// Consecutive; only the last may not be in the log yet. The first is in effect, once `begun`.
    chain: VecDeque<Link>,
    begun: bool,
}

#[derive(Clone, Debug)]
struct Link {
    set: InSyncSet,
    /// Where its block ends, when it is in the log.
    end: Option<Stamp>,
}

impl Sets {
    pub fn new(me: NodeId, first: InSyncSet) -> Self {
        Self { me, chain: VecDeque::from([Link { set: first, end: None }]), begun: false }
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
            Some(0) if self.begun => false,
            None => false,
            Some(newest) => {
                self.chain.drain(..newest);
                self.begun = true;
                true
            }
        }
    }

    /// Begins a set without those members who are unfit, as far as the floor allows; says who goes.
    pub fn remove(&mut self, floor: u32, unfit: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
        let Link { set, end: Some(_) } = self.newest() else { return Vec::new() };
        let room = set.members.len().saturating_sub(1 + floor as usize);
        let others = set.members.iter().copied().filter(|node| *node != self.me && unfit(*node));
        let gone: Vec<NodeId> = others.take(room).collect();
        if !gone.is_empty() {
            self.push(floor, |node| !gone.contains(&node), None);
        }
        gone
    }

    /// Begins a set with those who are `fit`, unless another change is on its way.
    pub fn add(&mut self, floor: u32, fit: impl Iterator<Item = NodeId>) {
        if self.chain.len() > 1 || !self.begun {
            return;
        }
        let fit: Vec<NodeId> = fit.filter(|node| !self.in_effect().members.contains(node)).collect();
        if !fit.is_empty() {
            self.push(floor, |_| true, fit);
        }
    }

    fn push(&mut self, floor: u32, keep: impl Fn(NodeId) -> bool, more: impl IntoIterator<Item = NodeId>) {
        let last = &self.newest().set;
        let members = last.members.iter().copied().filter(|node| keep(*node)).chain(more).collect();
        let set = InSyncSet { term: last.term, number: last.number + 1, members, floor };
        self.chain.push_back(Link { set, end: None });
    }
}
