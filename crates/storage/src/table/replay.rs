//! What replay does to a record: next to nothing (Query Fresh, section 3.4.1).

use freshet_base::{
    Fid, Lsn, RecordKind, Rid,
    sync::{AtomicU64, Ordering},
};

use super::{Content, RID_RANGE};
use crate::{
    array::Word,
    identity::{Counting, identity},
    reclaim::Guard,
    version::Version,
};

/// A word of the replay array: the largest address that was announced, whether the record has
/// nothing below it, and whether it is gone with that. The order of words is the order of their
/// addresses. Zero announces nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced(u64);

impl Announced {
    fn new(Announcement { address, is_first, is_gone }: Announcement) -> Self {
        assert!(address.0 < 1 << 62, "a log never grows to {address}");
        Self(address.0 << 2 | u64::from(is_gone) << 1 | u64::from(is_first))
    }

    /// Where the version lies; zero when nothing is announced.
    #[inline]
    pub(super) fn address(self) -> u64 {
        self.0 >> 2
    }

    /// Whether the version is known to be the first of its record: a snapshot below it finds
    /// nothing, and need not ask the log.
    #[inline]
    pub(super) fn is_first(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether the version is a deletion.
    #[inline]
    pub(super) fn is_gone(self) -> bool {
        self.0 & 2 != 0
    }
}

/// What replay announces of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Where its version lies in the log.
    pub address: Lsn,
    /// Whether the log says that the record had no version before.
    pub is_first: bool,
    /// Whether it is a deletion.
    pub is_gone: bool,
}

impl Announcement {
    /// Of a version at `address` that is neither the record's first nor its end.
    pub const fn at(address: Lsn) -> Self {
        Self { address, is_first: false, is_gone: false }
    }
}

/// Has a word brought into this processor's cache, to be changed.
#[inline]
fn prefetch(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a hint: it reads and changes no value, and the address is that of a word.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(word.as_ptr().cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = word;
}

impl Content {
    /// What replay has announced of `rid`.
    #[inline]
    pub(super) fn announced(&self, rid: Rid) -> Announced {
        // Acquire: pairs with the release in `replay_store`; the log's bytes are there.
        Announced(self.replay.get(rid).map_or(0, |word| word.load(Ordering::Acquire)))
    }

    /// The record's address is going to be announced: its word comes into the cache in the
    /// meantime.
    #[inline]
    pub fn expect_replay(&self, rid: Rid) {
        if let Some(word) = self.replay.get(rid) {
            prefetch(word);
        }
    }

    /// Announces a record's version to readers: all that replay does to a record (Query Fresh,
    /// section 3.4.1). Idempotent and order-free: the larger address wins. Returns `false` when the
    /// record id is beyond the table's limit.
    pub fn replay_store(&self, rid: Rid, what: Announcement) -> bool {
        self.announce(rid, Announced::new(what)).is_some()
    }

    /// The same, and counts what that changes of the table's identity ([`crate::identity`]): what
    /// the word said that was replaced no longer counts, or, where nothing had been announced, what
    /// is in memory from before. Returns where the version is that it lies over, `what.address` or
    /// more if it or a newer one was there already, zero for none; none when the record id is
    /// beyond the table's limit.
    #[inline]
    pub fn replay_counted(
        &self,
        guard: &Guard<'_>,
        rid: Rid,
        what: Announcement,
        counting: &mut Counting,
    ) -> Option<Lsn> {
        let before = self.announce(rid, Announced::new(what))?;
        let (there, is_gone) = match before.address() {
            // Once for each record: what a restart has found lies in the other array.
            0 => self.newest_in_memory(guard, rid, counting.from).unwrap_or((Lsn::ZERO, true)),
            address => (Lsn(address), before.is_gone()),
        };
        if there < what.address && self.is_counted(rid) {
            let of = |lsn, is_gone: bool| if is_gone { 0 } else { identity(self.fid, rid, lsn) };
            counting.sums.add(self.fid, of(what.address, what.is_gone).wrapping_sub(of(there, is_gone)));
        }
        Some(there)
    }

    /// Returns what was announced before, or none when the record id is beyond the table's limit.
    #[inline]
    fn announce(&self, rid: Rid, announced: Announced) -> Option<Announced> {
        let word = self.replay.get_or_grow(rid)?;
        // Release: pairs with the acquire load in `announced`.
        let before = word.fetch_max(announced.0, Ordering::AcqRel);
        self.note_rid(rid);
        Some(Announced(before))
    }

    /// At restart, before there are readers: a version of the record lies at `address` in the log.
    /// The largest address wins, against versions from a checkpoint too. Returns `false` when the
    /// record id is beyond the table's limit.
    pub fn restore(&self, guard: &Guard<'_>, rid: Rid, address: Lsn) -> bool {
        let Some(place) = self.data.get_or_grow(rid) else { return false };
        self.restore_word(guard, place, Word::address(address), address);
        self.note_rid(rid);
        true
    }

    /// At restart, before there are readers: a checkpoint holds this version of the record. The
    /// largest LSN wins. Returns `false` when the record id is beyond the table's limit or the
    /// row is none of this table.
    pub fn restore_version(&self, guard: &Guard<'_>, rid: Rid, lsn: Lsn, row: &[u8]) -> bool {
        if !self.indexes(guard).may_have(row) {
            return false;
        }
        let Some(place) = self.data.get_or_grow(rid) else { return false };
        let version = Version::create(lsn.0, Word::EMPTY, Some(row));
        if !self.restore_word(guard, place, Word::pointer(version.as_ptr()), lsn) {
            // SAFETY: made above and never published.
            unsafe { Version::free(version.as_ptr().cast()) };
        }
        self.note_rid(rid);
        true
    }

    /// At restart, before there are readers: a checkpoint says that the record was deleted at
    /// `tombstone` and its id has not been used again. The largest LSN wins. Returns `false` when
    /// the record id is beyond the table's limit.
    pub fn restore_gone(&self, guard: &Guard<'_>, rid: Rid, tombstone: Lsn) -> bool {
        let Some(place) = self.data.get_or_grow(rid) else { return false };
        if self.restore_word(guard, place, Word::gone(tombstone), tombstone) {
            self.free.noted(rid);
        }
        self.note_rid(rid);
        true
    }

    /// At restart, before there are readers: what was restored at `tombstone` is a deletion, and
    /// nothing can take it back.
    pub fn restored_is_gone(&self, rid: Rid, tombstone: Lsn) {
        let Some(place) = self.data.get(rid) else { return };
        let (address, gone) = (Word::address(tombstone).0, Word::gone(tombstone).0);
        // A failure means that it was said before.
        if place.compare_exchange(address, gone, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.free.noted(rid);
        }
    }

    /// Puts `new`, a version of `lsn`, into the word unless something as new is there. Returns
    /// whether it did.
    fn restore_word(&self, guard: &Guard<'_>, place: &AtomicU64, new: Word, lsn: Lsn) -> bool {
        self.note_leftovers();
        // Acquire: pairs with the release half of other threads' exchanges, so the version's LSN
        // can be read.
        let mut word = Word(place.load(Ordering::Acquire));
        loop {
            if Self::word_lsn(guard, word).is_some_and(|there| there >= lsn) {
                return false;
            }
            match place.compare_exchange_weak(word.0, new.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => word = Word(now),
            }
        }
        if let Some(old) = word.as_pointer() {
            // SAFETY: unlinked by the exchange above, which succeeds for one thread only; nothing
            // hangs below it.
            unsafe { guard.retire(old.cast(), Version::bytes_of(old), Version::free) };
        }
        true
    }

    /// The LSN of what a restored word stands for; none for no record.
    pub(super) fn word_lsn(_guard: &Guard<'_>, word: Word) -> Option<Lsn> {
        match (word.as_address().or(word.as_gone()), word.as_pointer()) {
            (Some(address), _) => Some(address),
            // SAFETY: found under the guard. Relaxed: it was final when the word was published, and
            // the word was acquired.
            (None, Some(version)) => Some(Lsn(unsafe { &*version }.lsn.load(Ordering::Relaxed))),
            (None, None) => None,
        }
    }

    /// New records get ids above `rid`.
    pub(super) fn note_rid(&self, rid: Rid) {
        if self.next_rid.load(Ordering::Relaxed) <= rid.0 {
            let range = if self.fid == Fid::CATALOG { 1 } else { RID_RANGE };
            let range = (rid.0 / range + 1) * range;
            self.next_rid.fetch_max(range, Ordering::Relaxed);
        }
    }

    /// The largest address that replay has announced for `rid`.
    pub fn replayed(&self, rid: Rid) -> Option<Lsn> {
        Some(self.announced(rid).address()).filter(|address| *address != 0).map(Lsn)
    }

    /// Takes an announcement back: the log was cut at or below `address`, where a version of this
    /// kind was, and before it the record's newest version was at `prev`. Does nothing when
    /// something else is announced.
    pub fn replay_cut(&self, rid: Rid, kind: RecordKind, address: Lsn, prev: Option<Lsn>) {
        self.note_leftovers();
        let announced = self.announced(rid);
        if announced.address() == address.0 {
            // Whether the one before is the first is not known. All that an insertion can replace
            // is a deletion.
            let is_gone = kind == RecordKind::Insert;
            let before = |prev| Announced::new(Announcement { is_gone, ..Announcement::at(prev) });
            self.announce_instead(rid, announced, prev.map_or(Announced(0), before));
        }
    }

    /// Forgets what was announced at or below `tombstone`.
    pub(super) fn replay_forget(&self, rid: Rid, tombstone: Lsn) {
        let announced = self.announced(rid);
        if announced.address() != 0 && announced.address() <= tombstone.0 {
            self.announce_instead(rid, announced, Announced(0));
        }
    }

    /// Does nothing when replay has announced something newer than `old`: that stays, and its own
    /// cut will lead here.
    fn announce_instead(&self, rid: Rid, old: Announced, new: Announced) {
        if let Some(word) = self.replay.get(rid) {
            let _ = word.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The LSN of the newest version of `rid` that a restart has restored, or full replay or a
    /// reader has made since.
    pub fn restored(&self, guard: &Guard<'_>, rid: Rid) -> Option<Lsn> {
        // Acquire: pairs with the release half in `restore_word`.
        self.data.get(rid).and_then(|word| Self::word_lsn(guard, Word(word.load(Ordering::Acquire))))
    }
}
