//! Full replay: versions are made from log records and put into the data array when they are
//! replayed, without the replay array (Query Fresh, section 4.7, "FullReplay"). The other way, in
//! which readers make them, is module `materialise`.
//!
//! # Access protocol
//!
//! Several threads replay parts of a range of the log in no order, beside readers, while nobody
//! writes. A version goes where its LSN belongs in its record's chain: on top by exchanging the
//! word, below a newer one by exchanging that one's `next`. All LSNs that are being replayed are
//! at or above the read view, hence above the LSN below which anybody trims; so a `next` that is
//! exchanged here is that of a version which nobody trims below, and no reader comes to it before
//! the whole range was replayed.
//!
//! What a restart or an earlier life has left in the replay array comes first: it is loaded from
//! the log and put on top, as a reader would do it.

use freshet_base::{Lsn, RecordKind, Rid, sync::Ordering};

use super::{Content, LoadError, ReadContext};
use crate::{
    array::Word,
    owner::{ABORTED, Owner},
    reclaim::Guard,
    version::Version,
};

/// What became of a version that full replay has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instantiated {
    /// It is the only one of its record.
    First,
    /// There are others. Some of them can go when every snapshot is above this LSN:
    /// [`Content::trim_replayed`].
    Beside(Lsn),
    /// The table had this version before.
    Known,
    /// The record id is beyond the table's limit.
    Foreign,
}

impl Content {
    /// Makes the version of `rid` that the log has at `address`, and puts it where it belongs.
    /// Idempotent and order-free. The context's snapshot is the read view, at or below `address`;
    /// its source has no limit. Blocks on the disk when the replay array is ahead of the data
    /// array.
    ///
    /// # Errors
    /// When what the replay array announces cannot be loaded.
    pub fn instantiate(
        &self,
        guard: &Guard<'_>,
        kind: RecordKind,
        rid: Rid,
        address: Lsn,
        row: &[u8],
        context: &ReadContext<'_>,
    ) -> Result<Instantiated, LoadError> {
        let Some(place) = self.data.get_or_grow(rid) else { return Ok(Instantiated::Foreign) };
        self.note_rid(rid);
        let bytes = (kind != RecordKind::Delete).then_some(row);
        let version = Version::create(address.0, Word::EMPTY, bytes).as_ptr();
        let drop_version = || {
            // SAFETY: made above and never published; its `next` is not its own.
            unsafe { Version::free(version.cast()) };
        };
        // Acquire: pairs with the release of the thread that installed what the word points to.
        let mut word = Word(place.load(Ordering::Acquire));
        loop {
            let announced = self.replayed(rid);
            if let Some(announced) = announced.filter(|it| Self::word_lsn(guard, word).is_none_or(|there| there < *it))
            {
                let caught_up = self.catch_up(guard, word, rid, context);
                let before = std::mem::replace(&mut word, Word(place.load(Ordering::Acquire)));
                if word != before {
                    continue;
                }
                // A checkpoint takes log away only when its own reader has loaded what was there:
                // then the word is another.
                drop_version();
                return Err(caught_up.err().unwrap_or(LoadError::Mismatch { address: announced }));
            }
            // Where it belongs: in front of the first that is older.
            let (mut link, mut below, mut above) = (place, word, None);
            while let Some(newer) = below.as_pointer() {
                // SAFETY: reached under the guard. Acquire: pairs with the release of its
                // publication.
                let newer = unsafe { &*newer };
                let lsn = newer.lsn.load(Ordering::Acquire);
                if lsn == address.0 {
                    drop_version();
                    return Ok(Instantiated::Known);
                }
                if lsn < address.0 {
                    break;
                }
                link = &newer.next;
                above = Some(Lsn(lsn));
                below = Word(link.load(Ordering::Acquire));
            }
            // An address or a tombstone's place here is what a reader has left, or a restart, of
            // what was before.
            if below.as_address().or(below.as_gone()).is_some_and(|there| there >= address) {
                drop_version();
                return Ok(Instantiated::Known);
            }
            // SAFETY: not yet published. Relaxed: published below with release.
            unsafe { &*version }.next.store(below.0, Ordering::Relaxed);
            // AcqRel: publishes the version. Failure: another thread has put one there.
            let exchanged =
                link.compare_exchange(below.0, Word::pointer(version).0, Ordering::AcqRel, Ordering::Acquire);
            match exchanged {
                Ok(_) if below.is_empty() && above.is_none() => return Ok(Instantiated::First),
                Ok(_) => return Ok(Instantiated::Beside(above.unwrap_or(address))),
                Err(_) => word = Word(place.load(Ordering::Acquire)),
            }
        }
    }

    /// Drops the versions of a record that full replay has made and that nobody can see any more:
    /// those below the first one older than `horizon`. Touches no index.
    pub fn trim_replayed(&self, guard: &Guard<'_>, rid: Rid, horizon: Lsn) {
        self.trim_versions(guard, rid, horizon);
    }

    /// Takes the version at `address` back, if full replay has put it there: the log was cut at or
    /// below that. Those above it were taken back before; nobody replays in the meantime, and no
    /// snapshot sees it.
    pub fn instantiate_cut(&self, guard: &Guard<'_>, rid: Rid, address: Lsn) {
        self.note_leftovers();
        let Some(place) = self.data.get(rid) else { return };
        loop {
            // Acquire: pairs with the release of the thread that installed what the word points to.
            let word = Word(place.load(Ordering::Acquire));
            let Some(head) = word.as_pointer() else { return };
            // SAFETY: reached under the guard. Acquire: pairs with the release of its publication,
            // and with the thread that linked the one below.
            let (lsn, below) =
                unsafe { ((*head).lsn.load(Ordering::Acquire), Word((*head).next.load(Ordering::Acquire))) };
            if lsn != address.0 {
                return;
            }
            // AcqRel: passes on what lies below. Failure: a reader has put on top what was
            // announced.
            if place.compare_exchange(word.0, below.0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            // What a reader has loaded below it since hangs from it alone; but what was in memory
            // is the record's chain now.
            let free = if below.as_pointer().is_some() { Version::free } else { Version::free_chain };
            // SAFETY: unlinked by the exchange above, by the only one who cuts.
            unsafe { guard.retire(head.cast(), Version::bytes_of(head), free) };
            return;
        }
    }

    /// The newest committed version of `rid` that replay has announced or made, or a writer.
    pub(super) fn newest_known(&self, _guard: &Guard<'_>, rid: Rid) -> Option<Lsn> {
        // Acquire: here and below, pairs with the release of the thread that installed what the
        // word points to.
        let mut word = self.data.get(rid).map_or(Word::EMPTY, |place| Word(place.load(Ordering::Acquire)));
        let made = loop {
            let Some(version) = word.as_pointer() else { break word.as_address().or(word.as_gone()) };
            // SAFETY: reached under the guard.
            let version = unsafe { &*version };
            let bits = version.lsn.load(Ordering::Acquire);
            if Owner::from_lsn_bits(bits).is_none() && bits != ABORTED {
                break Some(Lsn(bits));
            }
            word = Word(version.next.load(Ordering::Acquire));
        };
        self.replayed(rid).max(made)
    }
}
