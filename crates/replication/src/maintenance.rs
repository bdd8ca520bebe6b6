//! Maintenance: [`freshet_cluster::maintenance`], for the threads of a node and whatever role it
//! has. What is left goes along with all that is sent to those below, and with who joins.

use std::time::Duration;

use freshet_base::{
    NodeId, Term,
    sync::{Mutex, MutexGuard},
};
pub use freshet_cluster::maintenance::{LONGEST, Notice};
use freshet_cluster::{Moment, handshake::Refusal, maintenance::Maintenance};
use freshet_membership::Credentials;

use crate::{
    clock::Clock,
    endpoint::{CallError, call},
    promotion::ask_all,
    wire::{Hello, Peer, Purpose, Reply},
};

/// Another node has this long to take an order.
const PATIENCE: Duration = Duration::from_secs(2);
/// So often an order is given again, where another node knows of a later one.
const AGAIN: u32 = 3;
/// A cluster has fewer nodes than that.
const MOST: usize = 64;

/// What a node knows of maintenance; one per node, shared by its roles.
#[derive(Debug)]
pub struct Maintained {
    state: Mutex<Maintenance>,
    clock: Clock,
    /// What an operator wants of the node's process.
    ordered: Mutex<Option<Order>>,
}

/// What an operator wants of a node's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// It is to start again.
    Restart,
    /// It is to end, as after SIGTERM.
    Stop,
}

impl Order {
    /// As it is put to another node.
    pub(crate) fn purpose(self) -> Purpose {
        match self {
            Self::Restart => Purpose::Restart,
            Self::Stop => Purpose::Stop,
        }
    }
}

impl Default for Maintained {
    fn default() -> Self {
        Self { state: Mutex::default(), clock: Clock::start(), ordered: Mutex::new(None) }
    }
}

/// An order was given.
#[derive(Clone, Debug, Default)]
pub struct Ordered {
    /// Which nodes know of it, this one included.
    pub known: u32,
    /// Which do not, and why.
    pub unreached: Vec<String>,
}

impl Maintained {
    /// No other mutex is taken under this one.
    fn state(&self) -> MutexGuard<'_, Maintenance> {
        self.state.lock().expect("no code panics under this mutex")
    }

    /// The node's process is to do this, as soon as it looks. One that is to end does so, whatever
    /// else is ordered.
    pub fn give(&self, order: Order) {
        match order {
            Order::Restart => tracing::info!("an operator wants this node to start again"),
            Order::Stop => tracing::info!("an operator wants this node to stop"),
        }
        let mut ordered = self.ordered.lock().expect("no code panics under this mutex");
        *ordered = (*ordered).max(Some(order));
    }

    /// The same, for another node that passes it on.
    pub(crate) fn take(&self, order: Order) -> Reply {
        self.give(order);
        Reply::Noted
    }

    /// What it is to do.
    pub fn given(&self) -> Option<Order> {
        *self.ordered.lock().expect("no code panics under this mutex")
    }

    /// What is left, while it lasts.
    pub fn left(&self) -> Option<Duration> {
        self.state().left(self.clock.now())
    }

    /// What to say to another node.
    pub(crate) fn notice(&self) -> Notice {
        self.state().notice(self.clock.now())
    }

    /// When it ends, or has ended.
    pub(crate) fn until(&self) -> Moment {
        self.state().until()
    }

    /// Another node has said this. Says whether that is a later order.
    pub(crate) fn observe(&self, notice: Notice) -> bool {
        let is_later = self.state().observe(notice, self.clock.now());
        if is_later {
            log_order(self.left());
        }
        is_later
    }

    /// As [`Maintenance::check_stands`].
    pub(crate) fn check_stands(&self, node: NodeId, theirs: Notice) -> Result<(), Refusal> {
        self.state().check_stands(node, theirs, self.clock.now())
    }

    /// It is ordered on this node, for no time at all to end it, and every other node hears of it
    /// at once. Blocks until all of them have answered, or have not in time.
    pub(crate) fn order(&self, length: Duration, this: &Caller<'_>, peers: &[Peer]) -> Ordered {
        let others =
            peers.iter().filter(|peer| peer.node != Some(this.hello.node) && peer.address != this.hello.address);
        let others: Vec<_> = others.take(MOST).map(|peer| peer.address.as_str()).collect();
        let mut ordered = Ordered::default();
        for _ in 0..=AGAIN {
            let notice = self.state().order(nonce(), length, self.clock.now());
            log_order(self.left());
            let hello = Hello { purpose: Purpose::Maintenance(notice), ..this.hello.clone() };
            let ask = |address: &&str| call(this.credentials, address, &hello, this.term, PATIENCE);
            ordered = Ordered { known: 1, unreached: Vec::new() };
            let mut later = false;
            for (address, reply) in ask_all(others.iter().copied(), ask) {
                match reply.map(|(reply, _)| reply) {
                    Ok(Reply::Maintenance(theirs)) if theirs.order == notice.order => ordered.known += 1,
                    Ok(Reply::Maintenance(theirs)) => {
                        later |= self.state().observe(theirs, self.clock.now());
                        ordered.unreached.push(format!("{address}: it knows of another order"));
                    }
                    Ok(_) => ordered.unreached.push(CallError::Unexpected { address: address.to_owned() }.to_string()),
                    Err(error) => ordered.unreached.push(error.to_string()),
                }
            }
            if !later {
                break;
            }
        }
        ordered
    }
}

/// The node that gives an order.
#[derive(Debug)]
pub struct Caller<'c> {
    /// The certificate that it shows.
    pub credentials: &'c Credentials,
    /// As whom, whatever the purpose.
    pub hello: Hello,
    /// The latest term that it knows of.
    pub term: Term,
}

/// Two orders of one number are to differ.
fn nonce() -> u64 {
    getrandom::u64().unwrap_or_else(|_| Clock::start().now().0)
}

fn log_order(left: Option<Duration>) {
    match left {
        Some(left) => {
            tracing::warn!(for_s = left.as_secs(), "maintenance: no node takes over by itself until this has passed");
        }
        None => tracing::info!("maintenance is over: nodes take over by themselves again, where they are to"),
    }
}
