//! What clients were told, when, and by whom; what nodes showed; and the story of a round.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// What a client calls a transaction.
pub(super) type Id = i64;

/// An acknowledged commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    /// Who acknowledged it.
    pub(super) by: usize,
    pub(super) begun: Duration,
    pub(super) ended: Duration,
    /// The nodes that were in sync when it was acknowledged, a bit each. Of what is acknowledged
    /// after the losses nothing is known.
    pub(super) set: u32,
}

/// An acknowledgement, and what the node showed right after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) by: usize,
    pub(super) begun: Duration,
    pub(super) ended: Duration,
    /// What was acknowledged before, by anybody, and is not there.
    pub(super) missing: Vec<Id>,
    /// The table is there.
    pub(super) table: bool,
    /// The cluster that the node says it is of.
    pub(super) cluster: String,
}

#[derive(Default)]
pub(super) struct Book {
    pub(super) last: Id,
    /// What the cluster is called.
    pub(super) cluster: String,
    pub(super) acks: BTreeMap<Id, Ack>,
    /// Acknowledgements after the losses.
    pub(super) sights: Vec<Sight>,
    /// What each node's disk has, as far as is known: by the last look before the losses.
    pub(super) holds: Vec<BTreeSet<Id>>,
    /// When the copy of a node's disk was begun that is put back.
    pub(super) copied: Vec<Option<Duration>>,
    /// From when to when each node answered.
    pub(super) up: Vec<Vec<(Duration, Option<Duration>)>>,
    /// What is wrong, seen on the spot.
    pub(super) finds: Vec<String>,
    pub(super) story: Vec<String>,
}

/// The book of a round.
pub(super) struct Ledger {
    began: Instant,
    book: Mutex<Book>,
    aloud: bool,
}

impl Ledger {
    /// For this number of nodes; with `aloud` the story is printed while it happens.
    pub(super) fn new(nodes: usize, aloud: bool) -> Self {
        let (holds, copied, up) = (vec![BTreeSet::new(); nodes], vec![None; nodes], vec![Vec::new(); nodes]);
        let book = Book { holds, copied, up, ..Book::default() };
        Self { began: Instant::now(), book: Mutex::new(book), aloud }
    }

    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs what happens.
    pub(super) fn log(&self, what: &str) {
        let line = format!("[{:7.3} s] {what}", self.now().as_secs_f64());
        if self.aloud {
            println!("{line}");
        }
        self.book().story.push(line);
    }

    pub(super) fn story(&self) -> String {
        self.book().story.join("\n")
    }

    /// Something is wrong.
    pub(super) fn found(&self, what: String) {
        self.log(&format!("FOUND: {what}"));
        self.book().finds.push(what);
    }

    /// An id that nobody has had.
    pub(super) fn next(&self) -> Id {
        let mut book = self.book();
        book.last += 1;
        book.last
    }

    /// A commit was acknowledged.
    pub(super) fn acknowledged(&self, id: Id, by: usize, begun: Duration) {
        let ended = self.now();
        self.book().acks.insert(id, Ack { by, begun, ended, set: 0 });
    }

    /// A node answers from now on, or no longer.
    pub(super) fn answers(&self, node: usize, does: bool) {
        let now = self.now();
        let spans = &mut self.book().up[node];
        let open = spans.last_mut().filter(|(_, until)| until.is_none());
        match (open, does) {
            (None, true) => spans.push((now, None)),
            (Some((_, until)), false) => *until = Some(now),
            _ => {}
        }
    }
}

impl Book {
    /// What was acknowledged by then.
    pub(super) fn before(&self, time: Duration) -> impl Iterator<Item = Id> {
        self.acks.iter().filter(move |(_, ack)| ack.ended < time).map(|(id, _)| *id)
    }

    /// Which of a node's processes answered then.
    pub(super) fn process(&self, node: usize, time: Duration) -> usize {
        self.up[node].iter().filter(|(from, _)| *from <= time).count()
    }
}
