//! Writing: uncommitted versions on top of records.

use std::{marker::PhantomData, ptr::NonNull};

use freshet_base::{
    Fid, Lsn, RecordKind, Rid,
    sync::{Backoff, Ordering},
};

use super::{Content, InstallError, PATIENCE, ReadContext, ReadError, Reclaimed, read::State};
use crate::{
    array::Word,
    identity::identity,
    owner::{ABORTED, Owner},
    reclaim::Guard,
    version::Version,
};

/// What a new version says of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'r> {
    /// The record has this row from now on.
    Row(&'r [u8]),
    /// The record is deleted.
    Gone,
    /// It is deleted, and its row, changed, is another record's: a key has changed. A transaction
    /// that has waited for the record finds the row there. This is known in memory only, and for as
    /// long as a snapshot sees the record.
    Moved(Rid),
}

impl Change<'_> {
    fn version(self, lsn: u64, next: Word) -> NonNull<Version> {
        match self {
            Self::Row(row) => Version::create(lsn, next, Some(row)),
            Self::Gone => Version::create(lsn, next, None),
            Self::Moved(to) => Version::create_moved(lsn, next, to),
        }
    }

    fn is_row(self) -> bool {
        matches!(self, Self::Row(_))
    }
}

/// An uncommitted version on top of a record: only its owner has this.
#[must_use = "a version that is neither committed nor rolled back blocks its record for ever"]
#[derive(Debug)]
pub struct Installed {
    version: NonNull<Version>,
    rid: Rid,
    kind: RecordKind,
    prev: Option<Lsn>,
}

// SAFETY: versions belong to no thread; the thread that has this is the only one that changes or
// frees the version, under a guard of its own.
unsafe impl Send for Installed {}

impl Installed {
    /// The record to which the version belongs.
    pub fn rid(&self) -> Rid {
        self.rid
    }

    /// What it does to the record.
    pub fn kind(&self) -> RecordKind {
        self.kind
    }

    /// Where the version below lies in the log, which this one replaces; none for the first.
    pub fn prev(&self) -> Option<Lsn> {
        self.prev
    }

    /// How the identity of the state changes ([`identity`]) when it is committed at `address` as
    /// what it is to the record, `kind`: what it has replaced, as that was found in the chain, no
    /// longer counts, and its own row does.
    #[inline]
    pub fn identity(&self, table: Fid, kind: RecordKind, address: Lsn) -> u64 {
        let of = |lsn| identity(table, self.rid, lsn);
        match kind {
            // What an insertion replaces is a tombstone.
            RecordKind::Insert => of(address),
            RecordKind::Update => of(address).wrapping_sub(self.prev.map_or(0, of)),
            RecordKind::Delete => 0_u64.wrapping_sub(self.prev.map_or(0, of)),
        }
    }

    /// Its row; empty for a tombstone. What lies on top of a record while it is uncommitted.
    pub fn row(&self) -> &[u8] {
        // SAFETY: nobody frees an uncommitted version but its owner, through a method that takes
        // `self` or `&mut self`.
        unsafe { Version::row(self.version.as_ptr()) }.unwrap_or_default()
    }

    /// What it says of its record.
    pub fn change(&self) -> Change<'_> {
        // SAFETY: as in `row`.
        let (row, to) = unsafe { (Version::row(self.version.as_ptr()), Version::moved_to(self.version.as_ptr())) };
        match (row, to) {
            (Some(row), _) => Change::Row(row),
            (None, Some(to)) => Change::Moved(to),
            (None, None) => Change::Gone,
        }
    }

    /// What the log is to hold: the row, or for a tombstone the row that it deletes, so that
    /// replay can take its index entries away. The guard is the one under which it was installed.
    pub fn logged_row<'g>(&'g self, _guard: &'g Guard<'_>) -> &'g [u8] {
        // SAFETY: as in `row`; the version below is what the owner's pinned snapshot sees, so it is
        // neither trimmed nor freed before the pin ends.
        unsafe { logged_row(self.version.as_ptr()) }
    }

    /// The row that it replaces, if both are rows, and that one is in memory. The guard is the one
    /// under which it was installed.
    pub fn row_below<'g>(&'g self, _guard: &'g Guard<'_>) -> Option<&'g [u8]> {
        // SAFETY: as in `logged_row`.
        unsafe { row_below(self.version.as_ptr()) }
    }

    /// Gives the version its final LSN: the address of its record in the log.
    pub fn commit(self, address: Lsn) {
        // SAFETY: as in `row`. Release: pairs with the acquire load in `state`.
        unsafe { self.version.as_ref() }.lsn.store(address.0, Ordering::Release);
    }

    /// The same for an owner who has yet to write the record to the log. The guard is the one under
    /// which it was installed.
    pub fn publish<'g>(self, _guard: &'g Guard<'_>, address: Lsn) -> Published<'g> {
        let Self { version, rid, kind, prev } = self;
        self.commit(address);
        Published { version, rid, kind, prev, guard: PhantomData }
    }
}

/// A version that has its final LSN, for the thread that put it there: what the log is to hold of
/// it.
#[derive(Debug)]
pub struct Published<'g> {
    version: NonNull<Version>,
    rid: Rid,
    kind: RecordKind,
    prev: Option<Lsn>,
    guard: PhantomData<&'g ()>,
}

impl Published<'_> {
    /// The record to which the version belongs.
    pub fn rid(&self) -> Rid {
        self.rid
    }

    /// What it does to the record.
    pub fn kind(&self) -> RecordKind {
        self.kind
    }

    /// Where the version below lies in the log, which this one replaces; none for the first.
    pub fn prev(&self) -> Option<Lsn> {
        self.prev
    }

    /// As [`Installed::logged_row`].
    pub fn logged_row(&self) -> &[u8] {
        // SAFETY: a thread that unlinks the version, now that others may, does so after the guard
        // was pinned whose lifetime this has, so it is not freed before that ends; nor is the
        // version below, for the same reason.
        unsafe { logged_row(self.version.as_ptr()) }
    }

    /// How many bytes the version below takes, if it is in memory.
    pub fn replaced_bytes(&self) -> u32 {
        // SAFETY: as in `logged_row`. Acquire: pairs with the thread that linked the version below.
        let below = Word(unsafe { self.version.as_ref() }.next.load(Ordering::Acquire)).as_pointer();
        // SAFETY: as in `logged_row`.
        below.map_or(0, |below| unsafe { Version::bytes_of(below) } as u32)
    }

    /// As [`Installed::row_below`].
    pub fn row_below(&self) -> Option<&[u8]> {
        // SAFETY: as in `logged_row`.
        unsafe { row_below(self.version.as_ptr()) }
    }
}

/// # Safety
/// As for `logged_row`.
unsafe fn row_below<'g>(version: *const Version) -> Option<&'g [u8]> {
    // SAFETY: by this function's contract.
    unsafe { Version::row(version).and_then(|_| row_beneath(version)) }
}

/// # Safety
/// `version`, and what its `next` says, is not freed during `'g`.
unsafe fn logged_row<'g>(version: *const Version) -> &'g [u8] {
    // SAFETY: by this function's contract.
    unsafe { Version::row(version).or_else(|| row_beneath(version)).unwrap_or_default() }
}

/// The row of the version below, if that is one and is in memory.
///
/// # Safety
/// As for `logged_row`.
unsafe fn row_beneath<'g>(version: *const Version) -> Option<&'g [u8]> {
    // SAFETY: by this function's contract. Acquire: pairs with the thread that linked the version
    // below.
    unsafe { Word((*version).next.load(Ordering::Acquire)).as_pointer().and_then(|below| Version::row(below)) }
}

impl Content {
    /// Makes the first version of a new record. `place` is a record id of the caller's own
    /// range, or a reclaimed one.
    ///
    /// # Errors
    /// [`InstallError::Gone`] when the table has no more record ids.
    ///
    /// # Panics
    /// When the record exists, or the row is longer than [`Table::MAX_ROW`](super::Table::MAX_ROW).
    pub fn insert(&self, place: Reclaimed, me: Owner, row: &[u8]) -> Result<Installed, InstallError> {
        let Some(word) = self.data.get_or_grow(place.rid) else { return Err(InstallError::Gone) };
        let version = Version::create(me.lsn_bits(), Word::EMPTY, Some(row));
        // Release: publishes the version.
        let before = word.swap(Word::pointer(version.as_ptr()).0, Ordering::AcqRel);
        assert_eq!(before, 0, "{:?} of {self:?} was handed out twice", place.rid);
        Ok(Installed { version, rid: place.rid, kind: RecordKind::Insert, prev: place.tombstone })
    }

    /// Puts a new uncommitted version on top of a record.
    /// Never waits for another writer: the first to come wins.
    ///
    /// # Errors
    /// See [`InstallError`].
    pub fn install(
        &self,
        guard: &Guard<'_>,
        rid: Rid,
        me: Owner,
        change: Change<'_>,
        context: &ReadContext<'_>,
    ) -> Result<Installed, InstallError> {
        let mut backoff = Backoff::new();
        loop {
            let Some(head) = self.head(guard, rid, context)? else { return Err(InstallError::Gone) };
            // SAFETY: reached under `guard`.
            match unsafe { Self::state(head.as_ptr(), Some(me), context.owners) } {
                State::Committed(lsn) if lsn < context.snapshot => {}
                State::Mine => unreachable!("{rid:?} of {self:?}: own versions are replaced, not installed over"),
                State::Committed(_) | State::Later | State::Committing(_) => return Err(InstallError::Conflict),
                State::Aborted => {
                    // Its owner is about to take it away.
                    if backoff.rounds() > PATIENCE {
                        return Err(InstallError::Read(ReadError::Stalled));
                    }
                    backoff.pause();
                    continue;
                }
            }
            // SAFETY: as above. Acquire: pairs with `Installed::commit`.
            let prev = unsafe { head.as_ref() }.lsn.load(Ordering::Acquire);
            if Owner::from_lsn_bits(prev).is_some() {
                // Committed, and about to carry its final LSN, which our log record needs.
                if backoff.rounds() > PATIENCE {
                    return Err(InstallError::Read(ReadError::Stalled));
                }
                backoff.pause();
                continue;
            }
            // SAFETY: as above.
            if unsafe { Version::is_tombstone(head.as_ptr()) } {
                return Err(InstallError::Gone);
            }
            let below = Word::pointer(head.as_ptr());
            let version = change.version(me.lsn_bits(), below);
            let place = self.data.get(rid).expect("it has a head");
            // SeqCst: publishes the version, and that before the caller looks for locks on the
            // record, which are held elsewhere. Failure: another writer came first, or a reader
            // loaded something newer.
            if place
                .compare_exchange(below.0, Word::pointer(version.as_ptr()).0, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
            {
                let kind = if change.is_row() { RecordKind::Update } else { RecordKind::Delete };
                return Ok(Installed { version, rid, kind, prev: Some(Lsn(prev)) });
            }
            // SAFETY: never published.
            unsafe { Version::free(version.as_ptr().cast()) };
        }
    }

    /// Replaces one's own uncommitted version. The old row stays readable for the rest of the pin;
    /// a thread that holds the old version finds it given up, never committed, however long it
    /// looks.
    ///
    /// # Panics
    /// When `installed` is not on top of its record: then it was not of this table.
    pub fn replace(&self, guard: &Guard<'_>, installed: &mut Installed, me: Owner, change: Change<'_>) {
        let old = installed.version;
        // SAFETY: ours, see `Installed::row`. Acquire: its `next` may have been loaded or trimmed
        // in the meantime.
        let below = Word(unsafe { old.as_ref() }.next.load(Ordering::Acquire));
        let version = change.version(me.lsn_bits(), below);
        self.exchange_own(installed.rid, old, Word::pointer(version.as_ptr()));
        // SAFETY: as above. Release: pairs with the acquire load in `state`; a thread that finds it
        // given up finds another word than this version's. Without this it would keep the name of a
        // transaction that ends.
        unsafe { old.as_ref() }.lsn.store(ABORTED, Ordering::Release);
        installed.version = version;
        installed.kind = match (installed.kind, change.is_row()) {
            (_, false) => RecordKind::Delete,
            (RecordKind::Insert, true) => RecordKind::Insert,
            (_, true) => RecordKind::Update,
        };
        // SAFETY: unlinked just now; what hangs below it now hangs below its replacement.
        unsafe { guard.retire(old.as_ptr().cast(), Version::bytes_of(old.as_ptr()), Version::free) };
    }

    /// Takes an uncommitted version back, as if it had never been.
    pub fn roll_back(&self, guard: &Guard<'_>, installed: Installed) {
        let version = installed.version;
        // SAFETY: ours, see `Installed::row`. Release: pairs with the acquire load in `state`.
        unsafe { version.as_ref() }.lsn.store(ABORTED, Ordering::Release);
        // SAFETY: as above.
        let below = Word(unsafe { version.as_ref() }.next.load(Ordering::Acquire));
        self.exchange_own(installed.rid, version, below);
        // SAFETY: unlinked just now; what hung below it is the head again.
        unsafe { guard.retire(version.as_ptr().cast(), Version::bytes_of(version.as_ptr()), Version::free) };
    }

    fn exchange_own(&self, rid: Rid, own: NonNull<Version>, to: Word) {
        let word = self.data.get(rid).expect("it has a head");
        // AcqRel: publishes what `to` points to.
        let result = word.compare_exchange(Word::pointer(own.as_ptr()).0, to.0, Ordering::AcqRel, Ordering::Relaxed);
        assert!(result.is_ok(), "only the owner changes the word of {rid:?} of {self:?} while its version is on top");
    }
}
