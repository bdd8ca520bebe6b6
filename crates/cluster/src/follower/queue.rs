//! What was received and waits for replay.

use std::collections::VecDeque;

use freshet_base::Lsn;
use serde::{Deserialize, Serialize};

use super::Piece;

/// Ends of blocks that wait for replay; when there are more, every second one is forgotten, which
/// makes pieces longer.
const WAITING: usize = 1 << 16;
/// Where replay waits to be asked for, ends of blocks closer together than this are of no use.
const APART: u64 = 1 << 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Queue {
    pub(super) replayed: Lsn,
    /// Replayed, or being replayed, up to here.
    pub(super) taken: Lsn,
    /// Ends of blocks beyond, ascending.
    pub(super) ends: VecDeque<Lsn>,
    /// Nothing that begins here or beyond is replayed before it is asked for.
    pub(super) until: Lsn,
    /// What begins below this was asked for, and is replayed whatever memory that takes.
    pub(super) wanted: Lsn,
    pub(super) running: bool,
    held: bool,
    /// There is no memory to replay into.
    lacks_memory: bool,
    pub(super) failed: bool,
}

impl Queue {
    pub fn new(replayed: Lsn, received: Lsn, until: Lsn) -> Self {
        Self {
            replayed,
            taken: replayed,
            ends: (received > replayed).then_some(received).into_iter().collect(),
            until,
            wanted: Lsn::ZERO,
            running: false,
            held: false,
            lacks_memory: false,
            failed: false,
        }
    }

    pub fn replayed(&self) -> Lsn {
        self.replayed
    }

    pub fn is_running(&self) -> bool {
        self.running
    }

    /// Whether there is something to replay, and it may be.
    pub fn is_ready(&self) -> bool {
        let limit = if self.lacks_memory { self.until.min(self.wanted) } else { self.until };
        !self.running && !self.held && !self.failed && !self.ends.is_empty() && self.taken < limit
    }

    /// Ends of blocks that were received. Says whether there is something to replay now, where
    /// nothing waited before.
    pub fn push(&mut self, ends: &[Lsn]) -> bool {
        let last = self.ends.back().copied().unwrap_or(self.taken);
        assert!(ends.first().is_none_or(|first| *first > last), "blocks come twice: {ends:?} after {last}");
        let idle = self.ends.is_empty();
        let apart = if self.taken >= self.until { APART } else { 0 };
        for end in ends {
            self.push_one(*end, apart);
        }
        idle && self.is_ready()
    }

    /// The last one gives way if it is not `apart` from the one before.
    fn push_one(&mut self, end: Lsn, apart: u64) {
        let before = self.ends.len().checked_sub(2).map_or(self.taken, |place| self.ends[place]);
        if let Some(last) = self.ends.back_mut().filter(|last| last.since(before) < apart) {
            *last = end;
            return;
        }
        if self.ends.len() >= WAITING {
            let mut number = 0;
            self.ends.retain(|_| {
                number += 1;
                number % 2 == 0
            });
        }
        self.ends.push_back(end);
    }

    /// Takes the next piece of at most `limit` bytes; it is being replayed from now on.
    pub fn next(&mut self, limit: u64) -> Option<Piece> {
        if !self.is_ready() {
            return None;
        }
        assert_eq!(self.taken, self.replayed, "one piece is replayed after the other");
        let (from, mut piece) = (self.taken, Vec::new());
        while let Some(end) = self.ends.front().copied() {
            if !piece.is_empty() && end.since(from) > limit {
                break;
            }
            piece.push(end);
            self.ends.pop_front();
        }
        self.taken = *piece.last().expect("there was one");
        self.running = true;
        Some(Piece { from, ends: piece })
    }

    /// Appends the ends of blocks that wait.
    pub fn waiting(&self, ends: &mut Vec<Lsn>) {
        ends.extend(&self.ends);
    }

    /// The piece that ends at `to` is replayed.
    pub fn done(&mut self, to: Lsn) {
        assert!(self.running && to == self.taken, "only what was taken is replayed");
        self.running = false;
        self.replayed = to;
    }

    pub fn fail(&mut self) {
        (self.running, self.failed) = (false, true);
    }

    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    pub fn extend(&mut self, to: Lsn) {
        self.until = self.until.max(to);
        self.wanted = self.wanted.max(to);
    }

    pub fn lacks_memory(&self) -> bool {
        self.lacks_memory
    }

    pub fn set_lacks_memory(&mut self, lacks: bool) {
        self.lacks_memory = lacks;
    }

    /// Forgets what lies at and above `at`.
    pub fn cut(&mut self, at: Lsn) {
        assert!(!self.running, "nothing is cut while it is replayed");
        assert!(self.held, "replay continues while the log is cut");
        self.taken = self.taken.min(at);
        self.replayed = self.replayed.min(at);
        // What has merely arrived there never was part of the log.
        let reached = self.ends.back().is_some_and(|end| *end >= at);
        self.ends.retain(|end| *end < at);
        if self.taken < at && reached {
            self.ends.push_back(at);
        }
    }
}
