//! Sessions of clients that want the primary and have reached another node: that node lets them in,
//! and hands them on.
//!
//! ```text
//! client ---- node that it has reached ---- hop ---- primary
//!             proof, seat, relay            TLS      seat, session
//! ```
//!
//! | module | does |
//! |---|---|
//! | `relay` | the loop of the node that was reached: bytes both ways, another primary when one is lost |
//! | `flight` | what of a session is under way, and what its client is told when that is lost |
//! | `front` | what a client says, cut into messages while it goes by |
//! | `hop` | the connection to the primary |
//! | `kept` | what is kept of a session, to begin it again with the next primary |
//! | `taken` | the primary's end of it |
//!
//! The primary believes the node that was reached who the client is: so a hop is a connection at
//! whose other end a member of the cluster is, for which the caller answers. It begins with
//! [`Handed`]; then it is the protocol of PostgreSQL, with one message more, [`Note`]: before each
//! ReadyForQuery the primary says what has changed of that which outlives transactions. With that
//! the session is begun again on another primary.
//!
//! Nothing is said twice to a primary. What was under way when one is lost fails; what a client
//! says from then on, the next one gets.

mod flight;
mod front;
mod hop;
mod kept;
mod relay;
pub(crate) mod taken;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::{hop::Hop, taken::Takes};
pub(crate) use self::{
    relay::relay,
    taken::{begin_again, write_note},
};
use crate::{backend::Origin, packet::Startup, report::Report};

/// The most bytes that a session may take along to another primary; no [`Note`] is longer.
pub const LONGEST: usize = 4 << 20;
/// The kind of a message with a [`Note`].
const NOTE: u8 = b'=';

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
}

/// What a session has beyond its transactions and can take to another node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Settings that have other values than at its start, roles last.
    pub settings: Vec<(String, String)>,
    /// Prepared statements.
    pub statements: Vec<Statement>,
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
}

/// A primary to which a session was handed on.
pub trait Link {
    /// Whether another node leads by now, as far as is known. Cheap, and does not block for long.
    fn is_past(&self) -> bool;

    /// Has it cancel what the session with this number does.
    fn cancel(&self, pid: i32, key: &[u8]);
}

/// How a session is served.
pub enum Served {
    /// By this node.
    Here,
    /// By the primary, wherever it is.
    OnPrimary(Box<dyn Route>),
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Here => "Here",
            Self::OnPrimary(_) => "OnPrimary",
        })
    }
}

/// A backend that takes over no sessions says this.
pub(crate) fn takes_none() -> Report {
    Report::fatal(crate::SqlState::CANNOT_CONNECT_NOW, "this server takes over no sessions of other nodes")
}
