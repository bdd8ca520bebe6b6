//! Sessions of clients that want the primary and have reached another node, or that want to read
//! wherever that can be done: the node that was reached lets them in, and hands them on.
//!
//! ```text
//! client ---- node that it has reached ---- hop ---- primary
//!             proof, seat, relay       |    TLS      seat, session
//!                                      `--- hop ---- standby, if reads go there
//!                                                    session
//! ```
//!
//! | module | does |
//! |---|---|
//! | `relay` | the loop of the node that was reached: bytes both ways, another primary when one is lost |
//! | `relay/divide` | which of two nodes does what, where reads go to a standby |
//! | `unit` | what a client wants to have done next, as a whole |
//! | `flight` | what of a session is under way, and what its client is told when that is lost |
//! | `front` | what a client says, cut into messages while it goes by |
//! | `hop` | the connection to the primary, or to a standby |
//! | `kept` | what is kept of a session, to begin it again with the next primary |
//! | `taken` | the other end of it |
//!
//! The primary believes the node that was reached who the client is: so a hop is a connection at
//! whose other end a member of the cluster is, for which the caller answers. It begins with
//! [`Handed`]; then it is the protocol of PostgreSQL, with one message more, [`Note`]: before each
//! ReadyForQuery the primary says what has changed of that which outlives transactions. With that
//! the session is begun again on another primary.
//!
//! Nothing is said twice to a primary. What was under way when one is lost fails; what a client
//! says from then on, the next one gets. What a standby was told to read is said once more, to the
//! primary, as long as the client has heard nothing of it.
//!
//! A session that is divided has one session on each of two nodes, and works on one of them at a
//! time. Before a node gets something to do while it is idle, it is told what has changed on the
//! other one, and what it must show ([`Ask`]).

mod flight;
mod front;
mod hop;
mod kept;
mod relay;
pub(crate) mod taken;
mod unit;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::{
    hop::Hop,
    taken::{HandedOn, Takes},
};
pub(crate) use self::{
    relay::relay,
    taken::{begin_again, read_ask, write_note},
};
use crate::{backend::Origin, packet::Startup, report::Report};

/// The most bytes that a session may take along to another primary; no [`Note`] is longer.
pub const LONGEST: usize = 4 << 20;
/// The kind of a message with a [`Note`], or, to a session, with an [`Ask`].
pub(crate) const NOTE: u8 = b'=';

/// A client whose session is handed on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handed {
    /// What it has said at its start.
    pub startup: Startup,
    /// Where it is.
    pub origin: Origin,
    /// What its session had, if it was on another primary before.
    pub moved: Moved,
    /// Its session is to begin in a transaction that has failed.
    pub failed: bool,
    /// Which part of it this session is.
    pub part: Part,
}

/// Which part of its client's session one is that another node has handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// All of it.
    Whole,
    /// That on the primary; another node reads.
    Writes,
    /// That which reads, on a standby.
    Reads,
}

/// What a session has beyond its transactions and can take to another node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Settings that have other values than at its start, roles last.
    pub settings: Vec<(String, String)>,
    /// Prepared statements.
    pub statements: Vec<Statement>,
    /// What it has got of sequences.
    pub numbers: Numbers,
    /// The node has to show everything below this LSN first.
    pub show: u64,
}

/// What a session has got of sequences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// The last one of each, by object ids.
    pub values: Vec<(u32, i64)>,
    /// The sequence that has given the last one of all.
    pub last: Option<u32>,
}

/// What a session is told before it continues for its client, who has worked on another node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// If they have changed there, all settings that have other values than at the start.
    pub settings: Option<Vec<(String, String)>>,
    /// If it has got others there, what it has got of sequences.
    pub numbers: Option<Numbers>,
    /// Statements that are there no more.
    pub forget: Vec<String>,
    /// Statements that were prepared there.
    pub prepare: Vec<Statement>,
    /// The node has to show everything below this LSN first.
    pub show: u64,
    /// How long that may take.
    pub patience: Duration,
    /// It is to say at once when all that is so.
    pub answers: bool,
}

/// How a transaction is to be, as far as it is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// READ ONLY, or READ WRITE.
    pub read_only: Option<bool>,
    /// SERIALIZABLE, or another level.
    pub serializable: Option<bool>,
}

/// How transactions are that do not say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modes {
    /// READ ONLY.
    pub read_only: bool,
    /// SERIALIZABLE.
    pub serializable: bool,
}

impl Modes {
    /// How one is for which this is stated besides.
    #[must_use]
    pub fn with(self, stated: Stated) -> Self {
        Self {
            read_only: stated.read_only.unwrap_or(self.read_only),
            serializable: stated.serializable.unwrap_or(self.serializable),
        }
    }
}

/// What a statement asks for, as far as which node may do it depends on that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Rows, and nothing else: any node that shows enough has them.
    Rows,
    /// What the prepared statement of this name asks for.
    Prepared(String),
    /// To begin a transaction that is to be so.
    Begins(Stated),
    /// SET TRANSACTION, likewise.
    Modes(Stated),
    /// To end a transaction, with no other one to follow.
    Ends,
    /// Something of its session on the primary, even in a READ ONLY transaction.
    Session,
    /// Anything else: a READ ONLY transaction does it wherever that is, and outside of one the
    /// primary has to.
    Other,
}

/// A prepared statement that can be prepared again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// Its name.
    pub name: String,
    /// Its text.
    pub sql: String,
    /// The types of its parameters, as object ids.
    pub types: Vec<u32>,
    /// The PREPARE that has made it, if one has.
    pub by_sql: Option<String>,
}

/// What a session says of itself to the node that has handed it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// All settings that have other values than at its start.
    Settings(Vec<(String, String)>),
    /// A statement was prepared.
    Prepared(Statement),
    /// The statement with this name is there no more.
    Forgotten(String),
    /// Why it cannot be moved now; none when it can.
    Bound(Option<String>),
    /// How its transactions are that do not say it.
    Modes(Modes),
    /// What it has got of sequences.
    Numbers(Numbers),
    /// Of a part: what it has read or written is below this LSN.
    Seen(u64),
    /// It does what it was asked for: see [`Ask`].
    Ready,
    /// It does not, and has not begun what came behind that.
    Declined,
    /// The last that is said: this primary gives up its role. Nothing has been begun that has no
    /// answer, but for a batch of the extended protocol, if that is so.
    Left {
        /// Messages were heeded since the last Sync.
        batch: bool,
    },
}

/// How many bytes settings have.
pub fn size_of(settings: &[(String, String)]) -> usize {
    settings.iter().map(|(name, value)| name.len() + value.len()).sum()
}

impl Statement {
    /// About how many bytes it has.
    fn size(&self) -> usize {
        self.name.len() + self.sql.len() + 4 * self.types.len() + self.by_sql.as_ref().map_or(0, String::len)
    }
}

/// The primary of the moment, for sessions that are handed on to it. All methods may block, for a
/// few seconds at most.
pub trait Route: Send + Sync {
    /// Connects to it, for a session that is to have the number `pid` there if it can.
    ///
    /// # Errors
    /// Why there is no way at present, for people.
    fn connect(&self, pid: i32, patience: Duration) -> Result<(Hop, Box<dyn Link>), String>;

    /// Connects to a standby, for a session that is to read there; `turn` says which, where there
    /// are several. With `old` it may show what is older than it should, as while there is no
    /// primary.
    ///
    /// # Errors
    /// Why there is no way at present, for people.
    fn connect_reader(
        &self,
        _pid: i32,
        _turn: usize,
        _old: bool,
        _patience: Duration,
    ) -> Result<(Hop, Box<dyn Link>), String> {
        Err("there are no standbys".to_owned())
    }

    /// A unit goes to a standby if `reads`, else to the primary; `again` says that a standby was
    /// asked without success. For counting.
    fn goes(&self, _reads: bool, _again: bool) {}

    /// What the statements of a text ask for. It costs about as much as parsing them.
    fn asks(&self, _sql: &str) -> Vec<Asks> {
        vec![Asks::Other]
    }
}

/// A node to which a session was handed on.
pub trait Link {
    /// Whether it is no more what it was when it was chosen, as far as is known: the primary, or a
    /// standby. Cheap, and does not block for long.
    fn is_past(&self) -> bool;

    /// Whether it is the node itself that the client has reached.
    fn is_own(&self) -> bool {
        false
    }

    /// Has it cancel what the session with this number does.
    fn cancel(&self, pid: i32, key: &[u8]);
}

/// How a session is served.
pub enum Served {
    /// By this node.
    Here,
    /// By the primary, wherever it is.
    OnPrimary(Box<dyn Route>),
    /// What only reads by a standby, and everything else by the primary.
    Divided(Box<dyn Route>),
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Here => "Here",
            Self::OnPrimary(_) => "OnPrimary",
            Self::Divided(_) => "Divided",
        })
    }
}

/// A backend that takes over no sessions says this.
pub(crate) fn takes_none() -> Report {
    Report::fatal(crate::SqlState::CANNOT_CONNECT_NOW, "this server takes over no sessions of other nodes")
}
