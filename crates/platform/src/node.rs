//! A node: memory, connections and clients, and a scheme that does something with them.
//!
//! A node never waits. In each step it takes in what has arrived, begins and continues
//! transactions, and sends. In the paper a thread changes to another co-routine while a transaction
//! waits for the network (section 6.1.3); here what waits is data, and a thread may step several
//! nodes in turn.

use std::time::{Duration, Instant};

use freshet_base::sync::{Arc, AtomicU64, Ordering};
use freshet_fabric::limit::TokenBucket;
use freshet_mirror::List;

use crate::{
    Failed,
    clock::{Clock, Role},
    input::{Clients, Input},
    link::{Link, Logs},
    shape::Shape,
    store::Store,
    wire::Reader,
};

/// What runs transactions and replicates them.
pub(crate) trait Scheme: Send {
    /// Takes a message.
    fn handle(&mut self, core: &mut Core, from: usize, message: Reader<'_>) -> Result<(), Failed>;

    /// Begins and continues what can be; says whether there was something.
    fn turn(&mut self, core: &mut Core) -> Result<bool, Failed>;

    /// Another node is gone: nothing is waited for from it any more.
    fn exclude(&mut self, core: &mut Core, dead: usize) -> Result<(), Failed> {
        let _ = (core, dead);
        Ok(())
    }

    /// How many transactions of this node's clients have nothing under way, and wait to begin
    /// again.
    fn parked(&self) -> usize {
        0
    }

    /// It is settled what becomes of the transactions of a node that is gone: their locks are free.
    fn forget(&mut self, dead: usize) {
        let _ = dead;
    }
}

/// A transaction that was executed, for comparisons.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// Its place in a serial order.
    pub sequence: u64,
    /// Its place among those that its coordinator replicates, where that has a meaning.
    pub number: Option<u64>,
    pub input: Input,
    /// What it has read.
    pub digest: u64,
    /// It was acknowledged to its client.
    pub is_acknowledged: bool,
}

/// What is remembered of transactions for comparisons.
#[derive(Debug)]
pub(crate) struct History {
    /// Common to all nodes.
    pub next: Arc<AtomicU64>,
    pub done: Vec<Done>,
}

/// What a node has measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Transactions whose clients were told.
    pub executed: u64,
    /// How often transactions were begun again after a conflict.
    pub aborted: u64,
    /// How long those that were executed took, in nanoseconds.
    pub latencies: Vec<u64>,
}

/// What all schemes need.
pub(crate) struct Core {
    pub me: usize,
    pub shape: Shape,
    pub store: Store,
    /// What coordinators write here beside rows, by coordinator.
    pub logs: Vec<Logs>,
    /// By node; none for this one, and for those that are gone.
    pub links: Vec<Option<Link>>,
    /// Nodes that are not gone.
    pub is_alive: Vec<bool>,
    pub clients: Clients,
    /// How many transactions the clients may have open, and how many they have.
    pub most_open: usize,
    pub open: usize,
    pub may_begin: bool,
    /// What this node sends keeps to it.
    pub limit: Option<Arc<TokenBucket>>,
    pub clock: Clock,
    pub tally: Tally,
    pub history: Option<History>,
}

impl Core {
    /// The nodes that have a partition and are there.
    pub fn hosts(&self, partition: usize) -> impl Iterator<Item = usize> {
        self.shape.hosts(partition).filter(move |node| self.is_alive[*node])
    }

    /// The node whose copy of a partition counts: the first that is there.
    pub fn primary(&self, partition: usize) -> usize {
        self.hosts(partition).next().unwrap_or(partition)
    }

    /// The other nodes that have it.
    pub fn backups(&self, partition: usize) -> impl Iterator<Item = usize> {
        self.hosts(partition).skip(1)
    }

    /// Sends a message to a node; nothing to one that is gone.
    pub fn send(&mut self, to: usize, message: impl FnOnce(&mut Vec<u8>)) {
        if let Some(link) = &mut self.links[to] {
            link.send(message);
        }
    }

    /// Writes a list for a partition on a node, and says what has to complete, if something has.
    pub fn post(&mut self, to: usize, partition: usize, list: &Arc<List>) -> Option<(usize, u64)> {
        if to == self.me {
            self.logs[to].write(partition, list, self.store.memory());
            return None;
        }
        let number = self.links[to].as_mut()?.post(partition, list);
        Some((to, number))
    }

    /// Whether a list has completed, or its node is gone.
    pub fn has_completed(&self, (to, number): (usize, u64)) -> bool {
        self.links[to].as_ref().is_none_or(|link| link.has_completed(number))
    }

    /// A client's next transaction, if it may begin one.
    pub fn next_input(&mut self) -> Option<Input> {
        let may = self.may_begin && self.open < self.most_open;
        may.then(|| {
            self.open += 1;
            self.clients.next()
        })
    }

    /// A transaction has its place in the serial order, that of `sequence` or the next one.
    /// Returns where it is remembered, if it is.
    pub fn note(&mut self, input: &Input, digest: u64, sequence: Option<u64>, number: Option<u64>) -> Option<usize> {
        let history = self.history.as_mut()?;
        let sequence = sequence.unwrap_or_else(|| history.next.fetch_add(1, Ordering::SeqCst));
        history.done.push(Done { sequence, number, input: input.clone(), digest, is_acknowledged: false });
        Some(history.done.len() - 1)
    }

    /// Acknowledges a transaction that has begun then to its client.
    pub fn acknowledge(&mut self, begun: Instant, noted: Option<usize>) {
        self.open -= 1;
        self.tally.executed += 1;
        self.tally.latencies.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if let (Some(history), Some(noted)) = (&mut self.history, noted) {
            history.done[noted].is_acknowledged = true;
        }
    }
}

/// A node of the platform.
pub(crate) struct Node {
    pub core: Core,
    pub scheme: Box<dyn Scheme>,
}

impl Node {
    /// Does what there is to do now; says whether that was something.
    ///
    /// # Errors
    /// [`Failed`]; the node is of no more use then.
    pub fn step(&mut self) -> Result<bool, Failed> {
        let Self { core, scheme } = self;
        core.clock.begin();
        let mut some = false;
        for peer in 0..core.shape.nodes {
            core.clock.enter(Role::Receive);
            if let Some(link) = &mut core.links[peer] {
                some |= link.poll()?;
            }
            while let Some(batch) = core.links[peer].as_mut().map_or(Ok(None), |link| link.receive(peer))? {
                some = true;
                let mut batch = Reader(&batch);
                while !batch.0.is_empty() {
                    let length = batch.u32().ok_or(Failed::Malformed { from: peer })?;
                    let message = batch.bytes(length as usize).ok_or(Failed::Malformed { from: peer })?;
                    scheme.handle(core, peer, Reader(message))?;
                }
                core.clock.enter(Role::Receive);
            }
        }
        core.clock.enter(Role::Other);
        some |= scheme.turn(core)?;
        core.clock.enter(Role::Send);
        let limit = core.limit.clone();
        for link in core.links.iter_mut().flatten() {
            some |= link.flush(limit.as_deref())?;
        }
        core.clock.end();
        Ok(some)
    }

    /// Whether nothing is under way that this node knows of.
    pub fn is_at_rest(&self) -> bool {
        self.core.open == self.scheme.parked() && self.core.links.iter().flatten().all(Link::is_at_rest)
    }

    /// Measures from now on.
    pub fn reset(&mut self) {
        self.core.tally = Tally::default();
        self.core.clock.reset();
    }

    /// The processor time of a role.
    pub fn time(&self, role: Role) -> Duration {
        self.core.clock.total(role)
    }
}
