//! Locks on records, of PostgreSQL's four strengths, by transactions that do not change them.
//!
//! A transaction that changes a record needs no lock here: its uncommitted version is one, of
//! strength [`RowLock::NoKeyUpdate`] while the record keeps its keys, of [`RowLock::Update`] when
//! it goes or moves. Locks of transactions that only want a record to stay as it is have no place
//! in the record's word, since several may hold one at a time. They are kept here.
//!
//! # Access protocol
//!
//! A record belongs to a stripe. Who wants a lock enters it in the stripe, under its mutex, unless
//! another transaction has one there that conflicts; *then* it looks whether the record has an
//! uncommitted version that conflicts, and if so, takes the lock back. A writer puts its version on
//! top of the record, *then* looks at the stripe, and if a lock there conflicts, takes the version
//! back. Both steps of both are sequentially consistent, so of two that meet, one sees the other at
//! least. A writer whose stripe is empty reads one counter, and nothing else.
//!
//! Locks are released when the outcome of the transaction is published, not before: who waits for a
//! lock sees then what its holder has done.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::BuildHasherDefault,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crossbeam_utils::CachePadded;
use freshet_base::{Fid, IdHasher, Rid, RowLock};
use freshet_storage::Owner;

/// How many stripes there are. A power of two.
const STRIPES: usize = 256;

type Held = Vec<(Owner, RowLock)>;
type Records = HashMap<(Fid, Rid), Held, BuildHasherDefault<IdHasher>>;

#[derive(Default)]
struct Stripe {
    /// How many locks it has.
    count: AtomicUsize,
    records: Mutex<Records>,
}

/// The locks of one node's transactions.
pub(crate) struct RowLocks(Box<[CachePadded<Stripe>]>);

/// What became of a wish for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Taken {
    /// It is held from now on.
    Now,
    /// The transaction has one that is as strong.
    Before,
    /// Another transaction has one that conflicts.
    Not,
}

impl std::fmt::Debug for RowLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count: usize = self.0.iter().map(|stripe| stripe.count.load(Ordering::Relaxed)).sum();
        f.debug_struct("RowLocks").field("held", &count).finish()
    }
}

impl RowLocks {
    pub(crate) fn new() -> Self {
        Self((0..STRIPES).map(|_| CachePadded::default()).collect())
    }

    #[inline]
    fn stripe(&self, fid: Fid, rid: Rid) -> &Stripe {
        let spread = (rid.0 ^ (u64::from(fid.0) << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.0[(spread >> 40) as usize % STRIPES]
    }

    fn records(stripe: &Stripe) -> MutexGuard<'_, Records> {
        stripe.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a lock of `me`, unless another transaction has one that conflicts.
    pub(crate) fn take(&self, (fid, rid): (Fid, Rid), me: Owner, lock: RowLock) -> Taken {
        let stripe = self.stripe(fid, rid);
        let mut records = Self::records(stripe);
        let held = records.entry((fid, rid)).or_default();
        if held.iter().any(|(owner, other)| *owner == me && *other >= lock) {
            return Taken::Before;
        }
        if held.iter().any(|(owner, other)| *owner != me && lock.conflicts_with(*other)) {
            return Taken::Not;
        }
        held.push((me, lock));
        // SeqCst: before the record is looked at (module's protocol).
        stripe.count.fetch_add(1, Ordering::SeqCst);
        Taken::Now
    }

    /// Takes a lock away that was [`Taken::Now`].
    pub(crate) fn release(&self, (fid, rid): (Fid, Rid), me: Owner, lock: RowLock) {
        let stripe = self.stripe(fid, rid);
        let mut records = Self::records(stripe);
        let Entry::Occupied(mut there) = records.entry((fid, rid)) else {
            panic!("{me:?} has no lock on {rid:?} of {fid:?}")
        };
        let at = there.get().iter().rposition(|held| *held == (me, lock));
        there.get_mut().swap_remove(at.expect("it was taken"));
        if there.get().is_empty() {
            there.remove();
        }
        stripe.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether another transaction than `me` has a lock that conflicts with this one. To be asked
    /// after the version is there.
    #[inline]
    pub(crate) fn excludes(&self, record: (Fid, Rid), me: Owner, lock: RowLock) -> bool {
        // SeqCst: after the version was put on top (module's protocol).
        self.stripe(record.0, record.1).count.load(Ordering::SeqCst) > 0
            && !self.holders(record, Some(me), lock).is_empty()
    }

    /// The other transactions than `me` that have locks which conflict with this one.
    #[cold]
    pub(crate) fn holders(&self, (fid, rid): (Fid, Rid), me: Option<Owner>, lock: RowLock) -> Vec<Owner> {
        let records = Self::records(self.stripe(fid, rid));
        let conflicts = |(owner, other): &&(Owner, RowLock)| Some(*owner) != me && lock.conflicts_with(*other);
        let held = records.get(&(fid, rid)).map_or(&[][..], Vec::as_slice);
        held.iter().filter(conflicts).map(|(owner, _)| *owner).collect()
    }

    /// How many locks there are.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.iter().map(|stripe| stripe.count.load(Ordering::SeqCst)).sum()
    }
}

#[cfg(test)]
mod tests {
    use freshet_storage::Owners;

    use super::*;

    #[test]
    fn strengths_conflict_as_in_postgresql() {
        use RowLock::{KeyShare, NoKeyUpdate, Share, Update};
        let conflicting: [(RowLock, &[RowLock]); 4] = [
            (KeyShare, &[Update]),
            (Share, &[NoKeyUpdate, Update]),
            (NoKeyUpdate, &[Share, NoKeyUpdate, Update]),
            (Update, &RowLock::ALL),
        ];
        for (one, others) in conflicting {
            for other in RowLock::ALL {
                assert_eq!(one.conflicts_with(other), others.contains(&other), "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn locks_are_held_until_they_are_released() {
        let (owners, locks) = (Owners::new(4), RowLocks::new());
        let (one, other) = (owners.begin(0), owners.begin(1));
        let record = (Fid(7), Rid(9));
        assert_eq!(locks.take(record, one, RowLock::KeyShare), Taken::Now);
        assert_eq!(locks.take(record, other, RowLock::NoKeyUpdate), Taken::Now);
        assert_eq!(locks.take(record, one, RowLock::Share), Taken::Not);
        assert_eq!(locks.holders(record, Some(one), RowLock::Share), [other]);
        assert_eq!(locks.take(record, other, RowLock::Share), Taken::Before, "a weaker one");
        assert_eq!(locks.take(record, other, RowLock::Update), Taken::Not);
        assert!(locks.excludes(record, other, RowLock::Update) && !locks.excludes(record, one, RowLock::KeyShare));
        locks.release(record, one, RowLock::KeyShare);
        assert_eq!(locks.take(record, other, RowLock::Update), Taken::Now);
        locks.release(record, other, RowLock::Update);
        assert!(!locks.excludes(record, one, RowLock::KeyShare), "the weaker one is still held");
        assert!(locks.excludes(record, one, RowLock::Share));
        locks.release(record, other, RowLock::NoKeyUpdate);
        assert_eq!(locks.count(), 0);
        assert!(locks.0.iter().all(|stripe| RowLocks::records(stripe).is_empty()));
    }
}
