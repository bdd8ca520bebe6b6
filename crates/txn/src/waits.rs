//! Waiting for the transaction that holds a record, and finding out when that would never end.
//!
//! Interactive transactions wait for the holders of a record that they want to write or lock, as
//! PostgreSQL's do; one-shot procedures do not, they run again. Each participant says for whom it
//! waits; a waiting thread follows these edges now and then, and when they lead back to itself
//! there is a circle. Of those in it, the one with the largest place gives up.
//!
//! # Access protocol
//!
//! `waits_for` of a place is written by its participant only, and read by all, each under its
//! mutex: of those that close a circle, the last to write sees all others. An edge that is out of
//! date makes nobody give up, since a circle counts only while every owner in it is still active. A
//! transaction that ends wakes the waiters for its place; a waiter that registers at that moment
//! and is missed looks again by itself after [`LOOK_FOR_CIRCLES`].

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use freshet_base::wait::{Patience, WaitError, WaitList};
use freshet_storage::{Owner, Owners, Phase};
use thiserror::Error;

/// How often a waiter looks for circles that it is to break. Nobody wakes it for that: the one that
/// closes a circle may be another, and a record that several hold gets holders while it is waited
/// for.
const LOOK_FOR_CIRCLES: Duration = Duration::from_millis(5);

/// Why a wait for a record ended without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LockWaitError {
    /// Transactions wait for one another in a circle: this one must be rolled back.
    #[error("deadlock: transactions wait for each other; this one must be rolled back")]
    Deadlock,
    /// The holder was not done in time.
    #[error("lock timeout: another transaction still holds the record")]
    Deadline,
    /// The caller does not want it any more.
    #[error("the wait for a record was cancelled")]
    Cancelled,
}

#[derive(Debug)]
struct Place {
    /// For whom this participant waits: all that hold what it wants.
    waits_for: Mutex<Vec<Owner>>,
    /// Who waits for this participant.
    over: WaitList,
}

/// All participants' places.
#[derive(Debug)]
pub(crate) struct Waits(Box<[Place]>);

impl Waits {
    pub(crate) fn new(limit: usize) -> Self {
        Self((0..limit).map(|_| Place { waits_for: Mutex::default(), over: WaitList::default() }).collect())
    }

    /// A transaction of participant `index` is over.
    #[inline]
    pub(crate) fn wake(&self, index: usize) {
        // Without a fence, which would wait for what the transaction has put into the ring.
        self.0[index].over.wake_registered();
    }

    fn edges(&self, place: usize) -> MutexGuard<'_, Vec<Owner>> {
        self.0[place].waits_for.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The places of the transactions that the one at `place` waits for, as far as they go on.
    pub(crate) fn waits_for(&self, owners: &Owners, place: usize) -> Vec<usize> {
        if place >= self.0.len() {
            return Vec::new();
        }
        let active = |owner: &&Owner| owners.phase(**owner) == Phase::Active;
        self.edges(place).iter().filter(active).map(|owner| owner.index()).collect()
    }

    /// Blocks while `holders` names somebody. `index` is the waiter's place, `me` its transaction,
    /// once it has written.
    pub(crate) fn wait(
        &self,
        owners: &Owners,
        (index, me): (usize, Option<Owner>),
        holders: impl Fn() -> Vec<Owner>,
        patience: Patience<'_>,
    ) -> Result<(), LockWaitError> {
        let patience = patience.looking_every(LOOK_FOR_CIRCLES);
        let mut result = Ok(());
        while result.is_ok()
            && let Some(first) = holders().first().copied()
        {
            // All of them must end, so it does not matter for which one this waits.
            let waited = self.0[first.index()].over.until(patience, || {
                let holding = holders();
                if !holding.contains(&first) {
                    return Some(Ok(()));
                }
                self.edges(index).clone_from(&holding);
                let after = |owner: Owner| match owner {
                    owner if Some(owner) == me => holding.clone(),
                    // In a circle over a larger place, that one gives up.
                    owner if owner.index() > index || owners.phase(owner) != Phase::Active => Vec::new(),
                    owner => self.edges(owner.index()).clone(),
                };
                me.is_some_and(|me| circle(me, after).is_some()).then_some(Err(LockWaitError::Deadlock))
            });
            result = waited.unwrap_or_else(|ended| {
                Err(match ended {
                    WaitError::Deadline => LockWaitError::Deadline,
                    WaitError::Interrupted | WaitError::Closed => LockWaitError::Cancelled,
                })
            });
        }
        self.edges(index).clear();
        result
    }
}

/// A circle of waits that `goal` is part of, if there is one: who is in it, `goal` first.
pub fn circle<N: Copy + PartialEq>(goal: N, waits_for: impl Fn(N) -> Vec<N>) -> Option<Vec<N>> {
    // The way to where the search is, and what is still to be tried from each place on it.
    let (mut path, mut open) = (vec![goal], vec![waits_for(goal)]);
    let mut seen = vec![goal];
    while let Some(next) = open.last_mut() {
        match next.pop() {
            Some(next) if next == goal => return Some(path),
            Some(next) if seen.contains(&next) => {}
            Some(next) => {
                seen.push(next);
                path.push(next);
                open.push(waits_for(next));
            }
            None => {
                path.pop();
                open.pop();
            }
        }
    }
    None
}
