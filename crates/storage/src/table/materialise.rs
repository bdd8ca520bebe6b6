//! Making versions from log records when they are read (Query Fresh, section 3.4.3).
//!
//! Checkpoints delete old log, and old readers are served all the same: a reader that loads the
//! newest version of a record also loads those below it, down to the first that no snapshot is
//! older than. No reader needs what lies below that.

use std::ptr::NonNull;

use freshet_base::{
    Lsn, RecordKind, Rid,
    sync::{AtomicU64, Ordering},
};

use super::{Content, LoadError, Loaded, ReadContext, ReadError};
use crate::{array::Word, reclaim::Guard, version::Version};

/// Where the version that was the newest may still be seen, one reader in this many looks for what
/// can go below it.
const FEW: u64 = if cfg!(loom) { 1 } else { 32 };

/// Whether the reader that makes the version at `address` is one of these few.
fn is_one_of_few(address: u64) -> bool {
    // The upper bits of the product depend on all of the address.
    address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & (FEW - 1) == 0
}

/// What comes below the version that was loaded from `address`. All that an insertion can replace
/// is a deletion.
fn word_below(address: Lsn, loaded: &Loaded) -> Word {
    match loaded.prev {
        Some(prev) if prev < address && loaded.kind == RecordKind::Insert => Word::gone(prev),
        Some(prev) if prev < address => Word::address(prev),
        _ => Word::EMPTY,
    }
}

impl Content {
    /// Loads the versions between replay's newest and `word` and installs them on top of it, newest
    /// first down to the first that the reader can see or to `word` (Query Fresh, section 3.4.3);
    /// further, while older readers may need what lies below, since the log may have lost it to a
    /// checkpoint. Returns whether the caller should look at the word again; if not, everything
    /// announced is above the limit.
    pub(super) fn catch_up(
        &self,
        guard: &Guard<'_>,
        word: Word,
        rid: Rid,
        context: &ReadContext<'_>,
    ) -> Result<bool, LoadError> {
        let base = match (word.as_pointer(), word.as_address().or(word.as_gone())) {
            // SAFETY: found under the caller's guard; `is_behind` saw a final LSN.
            (Some(head), _) => unsafe { &*head }.lsn.load(Ordering::Acquire),
            (None, Some(address)) => address.0,
            (None, None) => 0,
        };
        // Read before the announcement: a cut between the two makes the load fail, not lie.
        let limit = context.source.limit();
        let announced = self.announced(rid).address();
        let mut next = announced;
        let mut row = Vec::new();
        // The sub-chain so far: its newest version, and the oldest one's `next` to be set.
        let mut newest: Option<NonNull<Version>> = None;
        let mut oldest: Option<NonNull<Version>> = None;
        // What this reader sees is there; and what all readers see.
        let (mut enough, mut seen) = (false, false);
        let nothing = word.is_empty() || word.as_gone().is_some();
        // What hangs below the sub-chain if some between it and `word` are still missing.
        let mut missing = Word::EMPTY;
        let result = loop {
            if next <= base || seen {
                break Ok(());
            }
            let address = Lsn(next);
            row.clear();
            let loaded = match context.source.load(address, self.fid, rid, &mut row) {
                Ok(loaded) => loaded,
                // What is missing then is for older readers.
                Err(_) if enough => break Ok(()),
                Err(cause) => break Err(cause),
            };
            if address < limit {
                let bytes = (loaded.kind != RecordKind::Delete).then_some(row.as_slice());
                let version = Version::create(address.0, Word::EMPTY, bytes);
                match oldest {
                    Some(above) => {
                        // SAFETY: made in this loop, not yet published. Relaxed: published below
                        // with release.
                        unsafe { above.as_ref() }.next.store(Word::pointer(version.as_ptr()).0, Ordering::Relaxed);
                    }
                    None => newest = Some(version),
                }
                oldest = Some(version);
                enough = address < context.snapshot;
            }
            missing = word_below(address, &loaded);
            next = missing.as_address().or(missing.as_gone()).map_or(0, |prev| prev.0);
            let mut lowest = address;
            // The reader finds no record there, and need not look: the log of long ago may not be
            // kept any more.
            if nothing && let Some(tombstone) = missing.as_gone().filter(|tombstone| *tombstone < context.snapshot) {
                (enough, lowest) = (true, tombstone);
            }
            // Who begins from now on sees no less than this reader.
            seen = enough && (next <= base || lowest < guard.horizon(context.snapshot));
        };
        let (Some(newest), Some(oldest)) = (newest, oldest) else { return result.map(|()| false) };
        if let Err(cause) = result {
            // SAFETY: the sub-chain was never published.
            unsafe { Version::free_chain(newest.as_ptr().cast()) };
            return Err(cause);
        }
        // Older versions than the oldest loaded: the chain that is there, or the log if some
        // between are still missing.
        let detached = next > base;
        let below = if detached { missing } else { word };
        // SAFETY: not yet published. Relaxed: as above.
        unsafe { oldest.as_ref() }.next.store(below.0, Ordering::Relaxed);
        let place = self.data.get_or_grow(rid).expect("replay has a word for it");
        // Release: publishes the sub-chain; pairs with the acquire loads of the word.
        if place
            .compare_exchange(word.0, Word::pointer(newest.as_ptr()).0, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            // Another reader was faster: look at what it did.
            // SAFETY: the sub-chain was never published; what hangs below it is not ours.
            unsafe {
                oldest.as_ref().next.store(0, Ordering::Relaxed);
                Version::free_chain(newest.as_ptr().cast());
            }
            return Ok(true);
        }
        if detached && let Some(old) = word.as_pointer() {
            // SAFETY: unlinked by the exchange above, which succeeds for one reader only.
            unsafe { guard.retire(old.cast(), Version::chain_bytes(old), Version::free_chain) };
        } else if base < context.horizon.0 || is_one_of_few(announced) {
            // Of a record that is written often, an old snapshot keeps many versions: not every
            // reader goes down to where they end. Versions only: a thread that reads must not touch
            // the indexes (it may hold one of their latches), and what becomes of a deleted record
            // is for `reclaim_replayed` to say.
            self.trim_versions(guard, rid, context.horizon);
        }
        Ok(true)
    }

    /// Replaces the log address in `place` by the version that lies there. The caller looks again.
    pub(super) fn load_into(
        &self,
        place: &AtomicU64,
        word: Word,
        address: Lsn,
        rid: Rid,
        context: &ReadContext<'_>,
    ) -> Result<(), ReadError> {
        let mut row = Vec::new();
        let loaded = context.source.load(address, self.fid, rid, &mut row)?;
        let bytes = (loaded.kind != RecordKind::Delete).then_some(row.as_slice());
        let version = Version::create(address.0, word_below(address, &loaded), bytes);
        // AcqRel: publishes the version. Failure: somebody else loaded or trimmed it.
        if place
            .compare_exchange(word.0, Word::pointer(version.as_ptr()).0, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            // SAFETY: never published; its `next` holds no pointer.
            unsafe { Version::free(version.as_ptr().cast()) };
        }
        Ok(())
    }
}
