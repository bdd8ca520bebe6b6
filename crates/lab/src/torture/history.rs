//! What clients did and saw, as they know it: the matter that [`checks`](super::checks) judge.
//!
//! Each writing transaction puts a row with its own id into the table `journal`, so that this tells
//! what was committed. All times are since the beginning of the run, by one clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// What a client calls a transaction: unique within a cluster's life.
pub(super) type Id = i64;

/// Ids of one client.
pub(super) const PER_CLIENT: Id = 10_000_000;

/// Keys of the registers.
pub(super) const KEYS: i64 = 5;
/// Accounts, and what each has at first.
pub(super) const ACCOUNTS: i64 = 8;
pub(super) const BALANCE: i64 = 1_000;
/// Pieces that are moved about, and the places where they can be.
pub(super) const PIECES: i64 = 6;
pub(super) const PLACES: i64 = 18;

/// What a client was told about a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is committed, at this LSN.
    Committed(u64),
    /// It is not, and never will be.
    Refused(String),
    /// It may be or may not be.
    Open(String),
}

/// Who serves a session (`freshet.route`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Route {
    /// The node that was reached.
    #[default]
    Node,
    /// The primary, wherever it is.
    Primary,
    /// The primary, and a standby that reads for it.
    Any,
}

impl Route {
    /// As the setting has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Primary => "primary",
            Self::Any => "any",
        }
    }
}

/// A transaction that writes.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) id: Id,
    /// The node that the client has reached, and who serves its session.
    pub(super) node: usize,
    pub(super) route: Route,
    pub(super) begun: Duration,
    pub(super) ended: Duration,
    pub(super) outcome: Outcome,
    /// What it writes, as far as it came.
    pub(super) effect: Effect,
}

/// What a transaction does beside its row in the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// A register and the version that it makes of it.
    pub(super) register: Option<(i64, i64)>,
    /// From one account to another.
    pub(super) transfer: Option<(i64, i64, i64)>,
    /// By how much the hops of all pieces together grow.
    pub(super) hops: i64,
    /// What a SERIALIZABLE transaction has seen; none of another level.
    pub(super) seen: Option<Seen>,
}

/// What a SERIALIZABLE transaction has read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Registers and their versions.
    pub(super) registers: Vec<(i64, i64)>,
    /// The ids of a client from some id on, in order.
    pub(super) journal: Option<(Id, Vec<Id>)>,
}

/// A register as it was seen: key, version, and who wrote that.
pub(super) type Register = (i64, i64, Id);

/// What one snapshot showed.
#[derive(Clone, Debug, Default)]
pub(super) struct Read {
    /// The node that the client has reached, and who serves its session.
    pub(super) node: usize,
    pub(super) route: Route,
    /// Number of the connection, of all that there were.
    pub(super) connection: u64,
    pub(super) begun: Duration,
    pub(super) ended: Duration,
    /// Whether the node said before and behind it that it takes writers: what it shows must be up
    /// to date then. One that has taken over in between may show what it showed before.
    pub(super) current: bool,
    /// The LSN that the view had to have: the session has asked for it, or has written it.
    pub(super) after: Option<u64>,
    /// The newest transaction that is committed, as this session was told about its own.
    pub(super) own: Option<Id>,
    /// What was acknowledged before this time has to be there.
    pub(super) since: Option<Duration>,
    pub(super) registers: Vec<Register>,
    /// The ids of a client from some id on, in order.
    pub(super) journal: Option<(Id, Vec<Id>)>,
}

/// What was done to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Killed,
    Stopped,
    Continued,
    /// Some of its cables are cut.
    Cut,
    /// None is any more.
    Healed,
    Promoted,
}

/// Everything that a node shows in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Final {
    /// Ids, and the register that was written with its version.
    pub(super) journal: BTreeMap<Id, Option<(i64, i64)>>,
    pub(super) registers: BTreeSet<Register>,
    pub(super) accounts: BTreeMap<i64, i64>,
    /// Of each piece its hops.
    pub(super) pieces: BTreeMap<i64, i64>,
}

/// The history of one cluster's life.
pub(super) struct History {
    began: Instant,
    book: Mutex<Book>,
    connections: AtomicU64,
    story: Mutex<Vec<String>>,
    /// Whether the story goes to standard error.
    aside: bool,
}

#[derive(Default)]
pub(super) struct Book {
    pub(super) writes: Vec<Write>,
    pub(super) reads: Vec<Read>,
    pub(super) deeds: Vec<(Duration, usize, Deed)>,
    /// A primary answers only while no other node can lead.
    pub(super) leases: bool,
    /// SERIALIZABLE transactions are as one after the other, by their LSNs: not under `ssn`.
    pub(super) in_order: bool,
    /// What must not be, seen on the spot.
    pub(super) violations: Vec<String>,
    /// How often which error was heard.
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) acknowledged: u64,
    /// The LSN that was told last.
    pub(super) last_lsn: u64,
    /// When the transaction began that was acknowledged last.
    pub(super) last_begun: Duration,
    last_acknowledged: Duration,
    /// The longest time between two acknowledgements.
    pub(super) longest_gap: Duration,
}

impl History {
    /// Whether events go to standard error, and what [`Book::leases`] and [`Book::in_order`] are.
    pub(super) fn new(began: Instant, aside: bool, leases: bool, in_order: bool) -> Self {
        let book = Mutex::new(Book { leases, in_order, ..Book::default() });
        Self { began, book, connections: AtomicU64::new(0), story: Mutex::default(), aside }
    }

    /// Logs what happens.
    pub(super) fn log(&self, what: &str) {
        let line = format!("[{:7.3} s] {what}", self.now().as_secs_f64());
        if self.aside {
            eprintln!("{line}");
        } else {
            println!("{line}");
        }
        self.story.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// What was told so far.
    pub(super) fn story(&self) -> String {
        self.story.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    /// The time.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a new connection.
    pub(super) fn connection(&self) -> u64 {
        // Relaxed: it only has to be different from the others.
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Something is wrong.
    pub(super) fn violated(&self, what: String) {
        let at = self.now();
        let mut book = self.book();
        // One of a kind says enough.
        if book.violations.len() < 20 {
            book.violations.push(format!("{what} (seen at {:.3} s)", at.as_secs_f64()));
        }
    }

    pub(super) fn is_violated(&self) -> bool {
        !self.book().violations.is_empty()
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.book().acknowledged
    }

    pub(super) fn wrote(&self, write: Write) {
        let mut book = self.book();
        if let Outcome::Committed(lsn) = write.outcome {
            book.acknowledged += 1;
            book.last_lsn = book.last_lsn.max(lsn);
            book.last_begun = book.last_begun.max(write.begun);
            book.longest_gap = book.longest_gap.max(write.ended.saturating_sub(book.last_acknowledged));
            book.last_acknowledged = write.ended;
        }
        book.writes.push(write);
    }

    /// The load begins: from here on, time without acknowledgements counts.
    pub(super) fn load_begins(&self) {
        let now = self.now();
        self.book().last_acknowledged = now;
    }

    pub(super) fn did(&self, node: usize, deed: Deed) {
        let at = self.now();
        self.book().deeds.push((at, node, deed));
    }
}
