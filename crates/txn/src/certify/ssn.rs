//! The serial safety net (Wang, Johnson, Fekete, Pandis: "The Serial Safety Net: Efficient
//! Concurrency Control on Modern Hardware", DaMoN 2015; VLDB Journal 26, 2017).
//!
//! A transaction T whose reads were overwritten since its snapshot need not fail: it may come
//! *before* those that did it, although its LSN is larger. It must fail only if it must come
//! *after* one of them, too, or after somebody who comes after one of them. With c(T) for T's
//! LSN:
//!
//! - π(T), here `first`: the smallest of c(T) and π(U), for each U that has changed something that
//!   T has read, and has a smaller LSN than T. Such U are T's *back edges*.
//! - η(T): the largest c(V) of those that T must come after and that have smaller LSNs: the
//!   makers of what T has read or overwritten, and the readers of what T overwrites.
//!
//! T commits unless π(T) ≤ η(T), its *exclusion window*. Without a back edge π(T) is c(T), and
//! nothing more has to be looked at: that is what validation admits, too.
//!
//! # Why no cycle commits
//!
//! The graph has an edge from one transaction to another where the first must come before the
//! second: the second has read or overwritten what the first has made (w:r, w:w), or has changed
//! what the first has read (r:w), which for ranges is whatever comes into them or leaves them. Say
//! that there is a cycle. An edge is *back* when it leads to a smaller LSN. Let X be the
//! transaction of the cycle with the smallest LSN. The edge that leads to it is back. From X
//! follow the cycle backwards for as long as edges are back; they cannot all be, since LSNs grow
//! with each. So there are V, T with a forward edge from V to T, and back edges from T to X, and
//! c(X) ≤ c(V) < c(T). Going from X to T, π of each is at most c(X); so π(T) ≤ c(X) ≤ c(V) ≤ η(T),
//! and T has not committed. (Paper, section 3.)
//!
//! What must hold for this:
//!
//! 1. *Only r:w edges are back*, since snapshots are prefixes of the LSN order, and the first to
//!    update a record wins.
//! 2. *When T certifies, it finds every back edge, and π of each is final.* It takes its LSN
//!    first and then looks at what it has read, as validation does, and waits for those with
//!    smaller LSNs which are undecided. An outcome is published after π ([`super::history`]).
//! 3. *It finds every forward edge.* The makers of what it has read: the largest LSN that it has
//!    seen, deletions that it may have missed included. The makers of what it overwrites: the
//!    versions below its own. The readers of what it overwrites: in the lists of what was read, in
//!    which an earlier reader stands, decided or not, by the protocol of [`super::history`].
//!
//! # Phantoms
//!
//! T's back edges to what came into a range that it has read are those that validation finds: it
//! looks through the range again. What is new is the other direction: T inserts a record, and an
//! earlier V has read a range in which it would have been. V cannot name the record. It names what
//! the keys of its range have in common at their beginning, and T looks for every beginning of
//! every key that it inserts ([`super::history::prefixes`]). Every key from `low` to `high` begins
//! with what these two have in common, so T finds V. It may find others as well, whose ranges had
//! no place for the key: then it fails needlessly. What T deletes or changes V has looked at, and V
//! names records that it has looked at and not seen.
//!
//! That a key was free when T inserted it is something that T has read, and another's deletion may
//! have made it so; likewise what T has locked without reading it. The makers of these are
//! somewhere below T's snapshot, and so that counts as one of them.
//!
//! # Those that only read
//!
//! They have no LSN, but they have a place: the end of the log when they end, after all that have
//! an LSN by then and before all others. With it they are certified as the others, and their reads
//! are kept. So a transaction that only reads, and is to be serializable, can fail: then it has
//! seen one that must come after another that it has not seen (Fekete, O'Neil, O'Neil: "A Read-Only
//! Transaction Anomaly Under Snapshot Isolation", 2004). One that reads a snapshot without being
//! certified, at level SI or on a standby, may see such a state.
//!
//! # Those of other levels
//!
//! They are not certified. They have no back edges that count: at their levels reads may be
//! outdated. So π is their LSN, and the proof holds for the edges that serializable transactions
//! ask for (Adya's mixed graph).
//!
//! # LSNs
//!
//! A version's LSN is an address in its maker's blocks, from c to the end. π is always a c: of an
//! address that is found as a back edge, the list says whose it is. So an address on the side of η
//! is not below π when it is of the same transaction.

use freshet_base::Lsn;

use super::{
    ScannedRange,
    history::{self, Announced, Histories, Written},
};
use crate::{CommitError, Transaction};

impl ScannedRange {
    /// What all keys of the range begin with.
    fn prefix(&self) -> &[u8] {
        use std::ops::Bound::{Excluded, Included};
        let (Included(low) | Excluded(low), Included(high) | Excluded(high)) = (&self.low, &self.high) else {
            return &[];
        };
        let common = low.iter().zip(high).take_while(|(low, high)| low == high).count();
        &low[..common]
    }

    fn hash(&self) -> u64 {
        history::prefixes(self.fid, self.index, self.prefix()).last().expect("nothing is a beginning, too")
    }
}

impl Transaction<'_> {
    pub(super) fn announce_in<'h>(&self, histories: &'h Histories) -> Announced<'h> {
        let state = self.worker.state.borrow();
        // At other levels nothing was noted.
        let locks = if self.is_certified() { &state.locks[..] } else { &[] };
        let records = state.reads.iter().copied().chain(locks.iter().map(|(fid, rid, _)| (*fid, *rid)));
        let reads =
            records.map(|(fid, rid)| history::record(fid, rid)).chain(state.ranges.iter().map(ScannedRange::hash));
        let most = state.reads.len() + locks.len() + state.ranges.len();
        histories.announce(self.worker.place(), self.worker.horizon.get(), most, reads)
    }

    /// Before whom the transaction comes with this LSN: the rule of the safety net.
    pub(super) fn exclude(&self, histories: &Histories, lsn: Lsn) -> Result<Lsn, CommitError> {
        let mut overwriters = Vec::new();
        self.find_changes(lsn, &mut |theirs| {
            overwriters.push(theirs);
            false
        })?;
        if overwriters.is_empty() {
            return Ok(lsn);
        }
        overwriters.sort_unstable();
        overwriters.dedup();
        let first = histories.first_of(&overwriters, self.snapshot());
        if self.must_not_go_back() || first <= self.newest_made() {
            return Err(CommitError::Exclusion);
        }
        let written = self.written();
        if histories.have_read(&written, first, lsn, self.worker.place()) {
            return Err(CommitError::Exclusion);
        }
        Ok(first)
    }

    /// Whether it is such a transaction that its reads must be as they were at its LSN: it
    /// changes tables, which others read without saying so, or is going to be executed again as of
    /// its LSN (`inputs.rs`).
    fn must_not_go_back(&self) -> bool {
        let state = self.worker.state.borrow();
        state.changes || state.inputs.is_some()
    }

    /// The LSN of the newest version that it has read or overwritten.
    fn newest_made(&self) -> Lsn {
        let state = self.worker.state.borrow();
        let guessed = !state.locks.is_empty() || state.writes.iter().any(|write| write.inserted);
        let below = state.writes.iter().filter_map(|write| write.installed.prev()).max();
        let guess = guessed.then(|| Lsn(self.snapshot().0.saturating_sub(1)));
        self.worker.seen.get().max(below.unwrap_or_default()).max(guess.unwrap_or_default())
    }

    /// What it has written, by all names that others have for it.
    fn written(&self) -> Written {
        let state = self.worker.state.borrow();
        let mut hashes = Vec::new();
        let mut key = freshet_storage::KeyBuffer::new();
        for write in &state.writes {
            hashes.push(history::record(write.fid, write.installed.rid()));
            let Some(content) = self.worker.core.content(self.guard(), write.fid).filter(|_| write.inserted) else {
                continue;
            };
            for (number, index) in content.indexes(self.guard()).iter() {
                if let Some(key) = index.key_of(write.installed.row(), &mut key) {
                    hashes.extend(history::prefixes(write.fid, number, key));
                }
            }
        }
        Written::new(hashes)
    }
}
