//! Waiting for whoever holds a record, and finding out when that would never end.
//!
//! Interactive transactions wait for the holder of a record that they want to write, as PostgreSQL's do; one-shot procedures
//! do not, they run again. Each participant says for whom it waits; whoever waits follows these edges now and
//! then, and when they lead back to itself there is a circle. Of those in it, the one with the largest place gives up.
//!
//! # Access protocol
//!
//! `waits_for` of a place is written by its participant only, and read by all: an edge that is out of date makes nobody give
//! up, since a circle counts only while every owner in it is still active. A transaction that ends wakes whoever waits for
//! its place; a waiter that is missed then looks again by itself after [`LOOK`].

use std::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use freshet_storage::{Owner, Owners, Phase};
use thiserror::Error;

/// How long a waiter sleeps at most before it looks again.
const LOOK: Duration = Duration::from_millis(5);

/// Why a wait for a record ended without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LockWaitError {
    /// Transactions wait for one another in a circle: this one must be rolled back.
    #[error("deadlock: transactions wait for one another, this one must be rolled back")]
    Deadlock,
    /// The holder was not done in time.
    #[error("another transaction holds the record, and was not done in time")]
    Deadline,
    /// Whoever asked does not want it any more.
    #[error("the wait for a record was given up")]
    Cancelled,
}

#[derive(Debug)]
struct Place {
    /// For whom this participant waits; zero for nobody.
    waits_for: AtomicU64,
    /// How many wait for this participant.
    waiting: AtomicU64,
    gate: Mutex<()>,
    over: Condvar,
}

/// All participants' places.
#[derive(Debug)]
pub(crate) struct Waits(Box<[Place]>);

impl Waits {
    pub(crate) fn new(limit: usize) -> Self {
        let place = || Place {
            waits_for: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            gate: Mutex::new(()),
            over: Condvar::new(),
        };
        Self((0..limit).map(|_| place()).collect())
    }

    /// A transaction of participant `index` is over.
    #[inline]
    pub(crate) fn wake(&self, index: usize) {
        let place = &self.0[index];
        // SeqCst: after the end was published; a waiter that counts itself later looks at that end.
        if place.waiting.load(Ordering::SeqCst) > 0 {
            drop(place.gate.lock());
            place.over.notify_all();
        }
    }

    /// The place of the transaction that the one at `place` waits for, if it waits and that one goes on.
    pub(crate) fn waits_for(&self, owners: &Owners, place: usize) -> Option<usize> {
        let owner = Owner::from_bits(self.0.get(place)?.waits_for.load(Ordering::SeqCst))?;
        (owners.phase(owner) == Phase::Active).then(|| owner.index())
    }

    /// Blocks while `holder` names somebody. `index` is the waiter's place, `me` its transaction, once it has written.
    pub(crate) fn wait(
        &self,
        owners: &Owners,
        (index, me): (usize, Option<Owner>),
        holder: impl Fn() -> Option<Owner>,
        deadline: Option<Instant>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), LockWaitError> {
        let result = loop {
            let Some(owner) = holder() else { break Ok(()) };
            // SeqCst, as all accesses of these edges: of those that close a circle, the last to write sees all others.
            self.0[index].waits_for.store(owner.bits(), Ordering::SeqCst);
            if me.is_some_and(|me| self.closes_circle(owners, index, me, owner)) {
                break Err(LockWaitError::Deadlock);
            }
            if cancelled() {
                break Err(LockWaitError::Cancelled);
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                break Err(LockWaitError::Deadline);
            }
            let patience = deadline.map_or(LOOK, |deadline| LOOK.min(deadline - now));
            let place = &self.0[owner.index()];
            place.waiting.fetch_add(1, Ordering::SeqCst);
            if holder() == Some(owner)
                && let Ok(gate) = place.gate.lock()
            {
                // Only to sleep: what counts is looked at above.
                let _ = place.over.wait_timeout(gate, patience);
            }
            place.waiting.fetch_sub(1, Ordering::SeqCst);
        };
        self.0[index].waits_for.store(0, Ordering::SeqCst);
        result
    }

    /// Whether `owner` waits, over others, for `me`, and `me` is who gives up.
    fn closes_circle(&self, owners: &Owners, index: usize, me: Owner, owner: Owner) -> bool {
        let mut current = owner;
        let mut largest = index;
        for _ in 0..self.0.len() {
            if owners.phase(current) != Phase::Active {
                return false;
            }
            largest = largest.max(current.index());
            let Some(next) = Owner::from_bits(self.0[current.index()].waits_for.load(Ordering::SeqCst)) else {
                return false;
            };
            if next == me {
                return largest == index;
            }
            current = next;
        }
        false
    }
}
