//! Sessions that one node hands on to another: of clients that it has let in, and that want the
//! primary, or a standby to read on.
//!
//! The connection is one of the node port's: both ends have proved that they are members of the
//! cluster, and only members may ask for it. Which role a client is, its primary believes the node
//! that has let it in.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use freshet_base::{
    NodeId, Term,
    wait::{Patience, poll},
};
use freshet_fabric::tcp::Connection;
pub use freshet_fabric::tcp::Raw;
use freshet_replication::{
    endpoint::{self, CallError, Service, answer, refuse},
    wire::{Hello, Kind, Purpose, Refusal, Reply, check_hello, encode_first},
};
use serde::Serialize;

use super::{Composition, Node, ReplayMode};

const NONE: &str = "this node knows of no primary at present";
/// No more nodes send a session on to yet another one, before it is served.
const HOPS: usize = 3;

/// No more sessions than that are on their way to a primary at once: it is to hear others, too,
/// when all come at the same time after a failover. One more waits.
const AT_ONCE: usize = 8;
/// How often a session looks for such a place, and for a primary: neither wakes it.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// And for so long at most. Then it is refused, and comes again.
const LOOK_FOR: Duration = Duration::from_millis(500);
/// How many are on their way, of all nodes of this process.
static ON_THE_WAY: AtomicUsize = AtomicUsize::new(0);

/// A standby that shows nothing newer than this reads for no session of another node's.
const OLDEST: Duration = Duration::from_secs(5);

/// A session that is on its way.
struct OnTheWay;

impl OnTheWay {
    /// None when all places are taken.
    fn enter() -> Option<Self> {
        let entered = Self;
        (ON_THE_WAY.fetch_add(1, Ordering::SeqCst) < AT_ONCE).then_some(entered)
    }
}

impl Drop for OnTheWay {
    fn drop(&mut self) {
        ON_THE_WAY.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What serves sessions on a primary.
pub trait TakeSession: Send + Sync {
    /// Serves the session on this connection, in a thread of its own, under the number `pid` if
    /// that is free. `by` says who hands it on, and whether that is the node itself: it was a
    /// standby when the client came.
    fn take(&self, connection: Raw, pid: i32, by: (NodeId, bool));

    /// Cancels what a session does that was handed on, if the key is right.
    fn cancel(&self, pid: i32, key: &[u8]);
}

/// The way to a primary, or to a standby.
#[derive(Debug)]
pub struct Way {
    /// On which the session follows.
    pub connection: Raw,
    /// The primary's term.
    pub term: Term,
    /// Where the node is that serves it.
    pub address: String,
    /// Whether that is this node itself.
    pub own: bool,
}

/// What a node has had done for clients whose reads go to standbys, in units: simple queries, and
/// what drivers send up to a Sync, outside of transactions or as their beginnings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Divided {
    /// By standbys.
    pub by_standbys: u64,
    /// By the primary.
    pub by_primary: u64,
    /// By the primary after a standby was asked without success: it lagged, was lost, or the unit
    /// did more than to read.
    pub put_back: u64,
}

/// Who does such a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoneBy {
    /// A standby.
    Standby,
    /// The primary.
    Primary,
    /// The primary, after a standby was asked without success.
    PrimaryInstead,
}

/// What a node has counted since it began.
#[derive(Debug)]
pub(super) struct Counted {
    pub since: Instant,
    divided: [AtomicU64; 3],
}

impl Default for Counted {
    fn default() -> Self {
        Self { since: Instant::now(), divided: Default::default() }
    }
}

impl Counted {
    pub fn divided(&self) -> Divided {
        let count = |by: DoneBy| self.divided[by as usize].load(Ordering::Relaxed);
        Divided {
            // What was put back was counted before.
            by_standbys: count(DoneBy::Standby).saturating_sub(count(DoneBy::PrimaryInstead)),
            by_primary: count(DoneBy::Primary),
            put_back: count(DoneBy::PrimaryInstead),
        }
    }
}

/// Answers nodes that hand sessions on.
struct Sessions {
    node: Weak<Node>,
    takes: Arc<dyn TakeSession>,
}

impl Service for Sessions {
    fn serve(&self, hello: Hello, mut connection: Connection) {
        let Some(node) = self.node.upgrade() else { return };
        let belongs = node.terms.check_belongs(hello.node);
        if let Err(refusal) = belongs.and_then(|()| check_hello(node.id, Some(node.cluster), &hello)) {
            return refuse(connection, refusal);
        }
        let wants_standby = matches!(hello.purpose, Purpose::Session { reads: true, .. });
        let cancels = matches!(hello.purpose, Purpose::Cancel { .. });
        if wants_standby && node.leads() {
            return refuse(connection, Refusal::Failed("this node is the primary, and a standby is wanted".into()));
        }
        if !wants_standby && !cancels && !node.leads() {
            return refuse(connection, Refusal::NotPrimary { node: node.id, primary: node.primary_address() });
        }
        let term = node.term();
        let pid = match &hello.purpose {
            Purpose::Session { pid, .. } => *pid,
            Purpose::Cancel { pid, key } => {
                self.takes.cancel(*pid, key);
                return answer(connection, term, &Reply::Noted);
            }
            _ => return refuse(connection, Refusal::Violation("this is not asked of sessions".into())),
        };
        let reply = encode_first(&connection, &Reply::Session { term });
        let by = (hello.node, hello.node == node.id);
        drop(node);
        if connection.sender().send(Kind::Reply as u8, term, &reply).is_err() {
            return;
        }
        match connection.into_raw() {
            Ok(raw) => self.takes.take(raw, pid, by),
            Err(cause) => tracing::warn!(%cause, "a session that was handed on cannot be served"),
        }
    }
}

impl Node {
    /// From now on serves sessions that other nodes hand on; with none, not any more.
    pub fn serve_sessions(self: &Arc<Self>, takes: Option<Arc<dyn TakeSession>>) {
        let service = takes.map(|takes| Arc::new(Sessions { node: Arc::downgrade(self), takes }) as Arc<dyn Service>);
        self.endpoint.set_sessions(service);
    }

    /// Whether an operator has removed any node from the cluster, as far as is known here. Cheap.
    pub fn has_removed_any(&self) -> bool {
        self.terms.has_removed_any()
    }

    /// Whether an operator has removed that node, as far as is known here. Cheap.
    pub fn has_removed(&self, node: NodeId) -> bool {
        self.terms.check_belongs(node).is_err()
    }

    /// Counts a unit of a client whose reads go to standbys.
    pub fn count_divided(&self, by: DoneBy) {
        self.counted.divided[by as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it leads, as far as it knows.
    fn leads(&self) -> bool {
        self.database.core().snapshots.primary().is_some() && !self.is_deposed()
    }

    /// The term in which it leads, or which it has entered as a standby.
    fn term(&self) -> Term {
        self.terms.last_term()
    }

    /// Where the primary listens for other nodes, as far as is known: this node itself, if it
    /// leads. None while there is no primary, or a failover is under way here.
    pub fn primary_address(&self) -> Option<String> {
        if self.leads() {
            return Some(self.address.clone());
        }
        match &*self.unless_taking_over()? {
            Composition::Standby(following) => following.standby.followed_address(),
            _ => None,
        }
    }

    /// Whether this node leads or follows in a later term than this one: who led then leads no
    /// more.
    pub fn is_past(&self, term: Term) -> bool {
        self.term() > term && self.primary_address().is_some()
    }

    /// Connects to the primary, for a session with this number. Blocks for `patience` at most for
    /// each of a few steps.
    ///
    /// # Errors
    /// Why there is no way, for people.
    pub fn way_to_primary(&self, pid: i32, patience: Duration) -> Result<Way, String> {
        let looks = Patience::endless().until(Instant::now() + LOOK_FOR);
        let mut address = poll(LOOK_EVERY, looks, || self.primary_address()).map_err(|_| NONE)?;
        let place = poll(LOOK_EVERY, looks, OnTheWay::enter);
        let _place = place.map_err(|_| "too many sessions are on their way to the primary")?;
        for _ in 0..HOPS {
            match self.ask_node(&address, Purpose::Session { pid, reads: false }, patience) {
                Ok((Reply::Session { term }, connection)) => {
                    let connection = connection.into_raw().map_err(|cause| cause.to_string())?;
                    let own = address == self.address;
                    return Ok(Way { connection, term, address, own });
                }
                Err(CallError::Refused { refusal: Refusal::NotPrimary { primary: Some(other), .. }, .. })
                    if other != address =>
                {
                    address = other;
                }
                Ok(_) => return Err(CallError::Unexpected { address }.to_string()),
                Err(cause) => return Err(cause.to_string()),
            }
        }
        Err(format!("the node at {address} is not the primary"))
    }

    /// Connects to a standby, for a session with this number that reads there: this node itself,
    /// if it is one that shows what it has, else one of its own; `turn` says which, where there are
    /// several. Blocks as [`Node::way_to_primary`] does.
    ///
    /// # Errors
    /// Why there is no way, for people.
    pub fn way_to_reader(&self, pid: i32, turn: usize, old: bool, patience: Duration) -> Result<Way, String> {
        let _place = OnTheWay::enter().ok_or("too many sessions are on their way to a standby")?;
        let readers = self.readers(old);
        let first = usize::try_from(pid.unsigned_abs()).unwrap_or(0).wrapping_add(turn);
        let place = first.checked_rem(readers.len()).ok_or("there is no standby that shows what it has")?;
        let address = readers[place].clone();
        match self.ask_node(&address, Purpose::Session { pid, reads: true }, patience) {
            Ok((Reply::Session { term }, connection)) => {
                let connection = connection.into_raw().map_err(|cause| cause.to_string())?;
                let own = address == self.address;
                Ok(Way { connection, term, address, own })
            }
            Ok(_) => Err(CallError::Unexpected { address }.to_string()),
            Err(cause) => Err(cause.to_string()),
        }
    }

    /// The addresses of the standbys that sessions of this node may read on; with `old` also if it
    /// has not heard of a primary for long.
    fn readers(&self, old: bool) -> Vec<String> {
        let Some(composition) = self.unless_taking_over() else { return Vec::new() };
        match &*composition {
            Composition::Standby(following) if self.config.replay != ReplayMode::None => {
                let age = following.standby.status().age;
                if old || age.is_some_and(|age| age <= OLDEST) { vec![self.address.clone()] } else { Vec::new() }
            }
            Composition::Primary(lead) => {
                let all = lead.shipping.status().standbys.into_iter();
                all.filter(|it| it.connected && !it.mirror && !it.in_doubt).map(|it| it.address).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether the standby at this address is one no more that sessions of this node may read on.
    pub fn is_no_reader(&self, address: &str) -> bool {
        !self.readers(false).iter().any(|reader| reader == address)
    }

    /// Cancels what a session does that was handed on to the node at `address`. Blocks for
    /// `patience` at most for each step.
    ///
    /// # Errors
    /// Why that was not passed on, for people.
    pub fn cancel_session(&self, address: &str, pid: i32, key: &[u8], patience: Duration) -> Result<(), String> {
        let purpose = Purpose::Cancel { pid, key: key.to_vec() };
        self.ask_node(address, purpose, patience).map(drop).map_err(|cause| cause.to_string())
    }

    fn ask_node(&self, address: &str, purpose: Purpose, patience: Duration) -> Result<(Reply, Connection), CallError> {
        let (cluster, own) = (Some(self.cluster), self.address.clone());
        let hello = Hello { cluster, node: self.id, address: own, purpose };
        endpoint::call(&self.credentials, address, &hello, self.term(), patience)
    }
}
