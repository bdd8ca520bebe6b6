//! Who owns an uncommitted version, and what has become of that transaction.
//!
//! Each participant has one entry. A version that is not committed carries an
//! [`Owner`] in its LSN: the entry's index and the number of the transaction in it.
//!
//! # Access protocol
//!
//! Only the owning participant writes its entry, in this order:
//!
//! 1. `begin`: `lsn := 0`, then `state := (number, Active)`
//! 2. `committing`: `state := (number, Committing)`, and only then is the LSN
//!    taken from the log; so a thread that sees `Active` after it read the log's end
//!    knows that this transaction's LSN will be above it
//! 3. `lsn`: `lsn := s`
//! 4. `decided`: `state := (number, Committed | Aborted)`; then the versions get
//!    their final LSNs, one by one
//! 5. the next `begin` changes the number: by then no version carries the old one
//!
//! Everything here is SeqCst where step 2 matters, and Release/Acquire between
//! `lsn` and `state` otherwise.

use crossbeam_utils::CachePadded;
use freshet_base::{
    Lsn,
    sync::{AtomicU64, Ordering},
};

/// The LSN of a version whose owner gave it up.
pub(crate) const ABORTED: u64 = u64::MAX;
/// Set in the LSN of a version that has an owner.
const OWNED: u64 = 1 << 63;
const INDEX_SHIFT: u32 = 48;
const NUMBER_MASK: u64 = (1 << INDEX_SHIFT) - 1;

/// Names a transaction while it has uncommitted versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner(u64);

impl Owner {
    fn new(index: usize, number: u64) -> Self {
        debug_assert!(index < (1 << 15) - 1);
        Self(OWNED | (index as u64) << INDEX_SHIFT | number & NUMBER_MASK)
    }

    pub(crate) fn lsn_bits(self) -> u64 {
        self.0
    }

    /// What a version's LSN field says: an owner, or nothing of the kind.
    pub(crate) fn from_lsn_bits(bits: u64) -> Option<Self> {
        (bits & OWNED != 0 && bits != ABORTED).then_some(Self(bits))
    }

    /// As a number that is not zero.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// What [`Owner::bits`] gave.
    pub fn from_bits(bits: u64) -> Option<Self> {
        Self::from_lsn_bits(bits)
    }

    /// Whose it is: the participant's place.
    pub fn index(self) -> usize {
        (self.0 << 1 >> (INDEX_SHIFT + 1)) as usize
    }

    fn number(self) -> u64 {
        self.0 & NUMBER_MASK
    }
}

/// How far a transaction with writes has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// It executes. Its LSN will be larger than any taken so far.
    Active,
    /// It is taking its LSN, or has taken this one and validates.
    Committing(Option<Lsn>),
    /// It committed with this LSN. Its versions are about to carry theirs.
    Committed(Lsn),
    /// It gave up. Its versions are about to go.
    Aborted,
    /// It is over: look at the version again.
    Over,
}

const ACTIVE: u64 = 0;
const COMMITTING: u64 = 1;
const COMMITTED: u64 = 2;
const ABORTING: u64 = 3;

#[derive(Debug)]
struct Entry {
    /// Number of the transaction, shifted by two, and its phase.
    state: AtomicU64,
    /// Its LSN; zero until it is known. (No transaction has LSN zero: the log begins with a
    /// term block.)
    lsn: AtomicU64,
}

/// The entries of all participants.
#[derive(Debug)]
pub struct Owners {
    entries: Box<[CachePadded<Entry>]>,
}

impl Owners {
    /// One entry for each of `limit` participants.
    ///
    /// # Panics
    /// When there are more than fit an [`Owner`] (32,000).
    pub fn new(limit: usize) -> Self {
        assert!(limit <= 32_000, "participant numbers fit 15 bits");
        let entry = || CachePadded::new(Entry { state: AtomicU64::new(ABORTING), lsn: AtomicU64::new(0) });
        Self { entries: (0..limit).map(|_| entry()).collect() }
    }

    /// Starts a new transaction of participant `index` and names it.
    pub fn begin(&self, index: usize) -> Owner {
        let entry = &self.entries[index];
        let number = ((entry.state.load(Ordering::Relaxed) >> 2) + 1) & NUMBER_MASK;
        entry.lsn.store(0, Ordering::Relaxed);
        // Release: pairs with the acquire loads in `phase`; the LSN's reset is seen with the new
        // number.
        entry.state.store(number << 2 | ACTIVE, Ordering::Release);
        Owner::new(index, number)
    }

    /// Step 2: announces that `owner` is about to take its LSN.
    pub fn committing(&self, owner: Owner) {
        // SeqCst: before the `fetch_add` on the log that follows (module's protocol).
        self.entries[owner.index()].state.store(owner.number() << 2 | COMMITTING, Ordering::SeqCst);
    }

    /// Step 3: publishes the LSN that `owner` took.
    pub fn lsn(&self, owner: Owner, lsn: Lsn) {
        assert_ne!(lsn, Lsn::ZERO, "the log begins with a term block");
        // Release: pairs with the acquire load in `phase`.
        self.entries[owner.index()].lsn.store(lsn.0, Ordering::Release);
    }

    /// Step 4: publishes the outcome.
    pub fn decided(&self, owner: Owner, committed: bool) {
        let phase = if committed { COMMITTED } else { ABORTING };
        // Release: pairs with the acquire loads in `phase`.
        self.entries[owner.index()].state.store(owner.number() << 2 | phase, Ordering::Release);
    }

    /// Whether any transaction with writes executes, and whether any is taking its LSN or has taken
    /// it and is not decided. One that begins while this looks may be missed.
    pub fn under_way(&self) -> (bool, bool) {
        // SeqCst: who closed the gate before finds either the transaction committing, or the
        // transaction, which looks at the gate after that, finds the gate closed.
        let phases = || self.entries.iter().map(|entry| entry.state.load(Ordering::SeqCst) & 3);
        (phases().any(|phase| phase == ACTIVE), phases().any(|phase| phase == COMMITTING))
    }

    /// How far `owner` has come.
    pub fn phase(&self, owner: Owner) -> Phase {
        let entry = &self.entries[owner.index()];
        // SeqCst: a certifier looks here after its own `fetch_add` (module's protocol, step 2).
        let state = entry.state.load(Ordering::SeqCst);
        if state >> 2 != owner.number() {
            return Phase::Over;
        }
        if state & 3 == ACTIVE {
            return Phase::Active;
        }
        // Acquire: pairs with the release store in `lsn`; keeps the second look at the state
        // below it.
        let lsn = entry.lsn.load(Ordering::Acquire);
        let again = entry.state.load(Ordering::Acquire);
        if again >> 2 != owner.number() {
            return Phase::Over;
        }
        match again & 3 {
            COMMITTING => Phase::Committing((lsn != 0).then_some(Lsn(lsn))),
            // The first look may have come before the LSN: then look again, it is there now.
            COMMITTED if lsn == 0 => Phase::Committing(None),
            COMMITTED => Phase::Committed(Lsn(lsn)),
            _ => Phase::Aborted,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_goes_through_its_phases_and_is_over_when_the_next_begins() {
        let owners = Owners::new(3);
        let owner = owners.begin(2);
        assert_eq!(Owner::from_lsn_bits(owner.lsn_bits()), Some(owner));
        assert_eq!(owner.index(), 2);
        assert_eq!((owners.phase(owner), owners.under_way()), (Phase::Active, (true, false)));
        owners.committing(owner);
        assert_eq!((owners.phase(owner), owners.under_way()), (Phase::Committing(None), (false, true)));
        owners.lsn(owner, Lsn(8));
        assert_eq!(owners.phase(owner), Phase::Committing(Some(Lsn(8))));
        owners.decided(owner, true);
        assert_eq!((owners.phase(owner), owners.under_way()), (Phase::Committed(Lsn(8)), (false, false)));
        let next = owners.begin(2);
        assert_eq!(owners.phase(owner), Phase::Over);
        owners.decided(next, false);
        assert_eq!(owners.phase(next), Phase::Aborted);
        assert_eq!(Owner::from_lsn_bits(ABORTED), None);
        assert_eq!(Owner::from_lsn_bits(77), None);
    }
}

#[cfg(all(test, loom))]
mod model {
    use freshet_base::sync::{Arc, thread};

    use super::*;

    /// A thread that takes an LSN and then sees another transaction active, or without an LSN,
    /// knows that the other's LSN is larger; and an LSN that is seen is the right one.
    #[test]
    fn an_active_transaction_takes_a_later_lsn() {
        loom::model(|| {
            let owners = Arc::new(Owners::new(1));
            let end = Arc::new(AtomicU64::new(8));
            let owner = owners.begin(0);
            let other = {
                let (owners, end) = (Arc::clone(&owners), Arc::clone(&end));
                thread::spawn(move || {
                    owners.committing(owner);
                    let lsn = end.fetch_add(8, Ordering::SeqCst);
                    owners.lsn(owner, Lsn(lsn));
                    owners.decided(owner, true);
                    lsn
                })
            };
            let mine = end.fetch_add(8, Ordering::SeqCst);
            let seen = owners.phase(owner);
            let theirs = other.join().unwrap();
            match seen {
                Phase::Active => assert!(theirs > mine),
                Phase::Committing(Some(lsn)) | Phase::Committed(lsn) => assert_eq!(lsn, Lsn(theirs)),
                Phase::Committing(None) => {}
                Phase::Aborted | Phase::Over => panic!("{seen:?}"),
            }
        });
    }
}
