//! The indexes of a table, which come and go while it is used.
//!
//! # Access protocol
//!
//! `Content::indexes` is a list that never changes but for the LSNs in it. Who changes the list,
//! under the catalog's lock, puts another one in its place (release) and retires the old one; a
//! thread that has found a list under a guard may use it, and the trees in it, while the guard
//! lives.
//!
//! The LSNs of an index say for whom it is there. They are stored by the thread that publishes or
//! replays the catalog's record, before the list is changed, and taken back when the log is cut.

use std::{fmt, ptr, sync::Arc};

use freshet_base::{
    Lsn,
    sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
};

use super::{Content, Table};
use crate::{
    definition::{IndexDefinition, IndexState, KeyBuffer, TableDefinition},
    index::BTree,
    reclaim::Guard,
};

/// Of something that has not happened.
const NEVER: u64 = u64::MAX;

/// One of a table's indexes.
pub struct Index {
    definition: IndexDefinition,
    /// The shortest row that has all columns of its keys.
    least_row: usize,
    tree: BTree,
    /// Where the log says that writers enter what they write; zero when it was made with its table.
    added_at: AtomicU64,
    /// Where it says that all records are entered; zero as above.
    ready_at: AtomicU64,
    /// Where it says that nobody needs it any more.
    dropped_at: AtomicU64,
    /// Whether, on this node, it has every record that was there before it was added.
    filled: AtomicBool,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index({:?})", self.definition.name)
    }
}

impl Index {
    /// An empty one; only its definition is known.
    pub(crate) fn new(definition: &IndexDefinition) -> Self {
        Self {
            definition: IndexDefinition { state: IndexState::Ready, ..definition.clone() },
            least_row: definition.least_row(),
            tree: BTree::new(),
            added_at: AtomicU64::new(NEVER),
            ready_at: AtomicU64::new(NEVER),
            dropped_at: AtomicU64::new(NEVER),
            filled: AtomicBool::new(false),
        }
    }

    /// What its keys are. The state in it says nothing.
    pub fn definition(&self) -> &IndexDefinition {
        &self.definition
    }

    /// The tree of its keys.
    pub fn tree(&self) -> &BTree {
        &self.tree
    }

    /// The key of `row`; none when the row is too short to have one, its key too long to be
    /// entered, or the index has no rows like it.
    #[inline]
    pub fn key_of<'k>(&self, row: &[u8], key: &'k mut KeyBuffer) -> Option<&'k [u8]> {
        if row.len() < self.least_row || !self.definition.has(row) {
            return None;
        }
        self.definition.key_of(row, key);
        key.whole()
    }

    /// Whether a row can be entered, or is one that the index does not have.
    pub fn accepts(&self, row: &[u8]) -> bool {
        row.len() >= self.least_row && (!self.definition.has(row) || self.definition.fits(row))
    }

    /// Whether a snapshot finds in it whatever it sees.
    #[inline]
    pub fn exists_at(&self, snapshot: Lsn) -> bool {
        // Acquire: a thread that has a snapshot above these has seen them.
        let ready = self.ready_at.load(Ordering::Acquire);
        (ready < snapshot.0 || ready == 0) && self.dropped_at.load(Ordering::Acquire) >= snapshot.0
    }

    /// Whether those who wrote at `at` had to keep it.
    #[inline]
    pub fn is_kept_at(&self, at: Lsn) -> bool {
        self.added_at.load(Ordering::Acquire) <= at.0 && self.dropped_at.load(Ordering::Acquire) >= at.0
    }

    /// Whether writers need not keep it any more.
    #[inline]
    pub fn is_dropped(&self) -> bool {
        self.dropped_at.load(Ordering::Acquire) != NEVER
    }

    /// Whether it is neither ready nor dropped.
    pub fn is_building(&self) -> bool {
        self.ready_at.load(Ordering::Acquire) == NEVER && !self.is_dropped()
    }

    /// Whether the log says that it was ready once.
    pub fn was_ready(&self) -> bool {
        self.ready_at.load(Ordering::Acquire) != NEVER
    }

    /// Where the log says that writers enter what they write.
    pub fn added_at(&self) -> Lsn {
        Lsn(self.added_at.load(Ordering::Acquire))
    }

    /// Where the log says that it was dropped, if it was.
    pub(crate) fn dropped_at(&self) -> Option<Lsn> {
        let at = self.dropped_at.load(Ordering::Acquire);
        (at != NEVER).then_some(Lsn(at))
    }

    /// Whether this node has entered what was there before it was added.
    pub fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// This node has entered what was there before it was added.
    pub fn set_filled(&self) {
        self.filled.store(true, Ordering::Release);
    }

    /// It was made with its table.
    pub(crate) fn set_made_with_table(&self) {
        self.added_at.store(0, Ordering::Release);
        self.ready_at.store(0, Ordering::Release);
    }

    /// A record at `at` of the catalog says this of it. Such records may come in any order.
    /// Returns whether it is dropped by that.
    pub(crate) fn note(&self, state: IndexState, at: Lsn) -> bool {
        self.added_at.fetch_min(at.0, Ordering::AcqRel);
        match state {
            IndexState::Building => false,
            IndexState::Ready => {
                self.ready_at.fetch_min(at.0, Ordering::AcqRel);
                false
            }
            IndexState::Dropped => self.dropped_at.fetch_min(at.0, Ordering::AcqRel) == NEVER,
        }
    }

    /// The log was cut at `at`. Returns whether the index was dropped before and is not any more.
    pub(crate) fn cut(&self, at: Lsn) -> bool {
        let take_back = |lsn: &AtomicU64| {
            let before = lsn.load(Ordering::Acquire);
            let taken = before != NEVER && before >= at.0;
            if taken {
                lsn.store(NEVER, Ordering::Release);
            }
            taken
        };
        take_back(&self.ready_at);
        take_back(&self.dropped_at)
    }
}

/// The indexes of a table, by number. Those that were dropped are here as long as a snapshot sees
/// them.
#[derive(Clone, Debug)]
pub struct IndexList {
    indexes: Box<[Option<Arc<Index>>]>,
    /// Those that are not here any more were dropped below this.
    given_up: Lsn,
}

impl IndexList {
    /// Empty indexes, all of them made with their table.
    pub(crate) fn new(definition: &TableDefinition) -> Self {
        let original = |definition| {
            let index = Index::new(definition);
            index.set_made_with_table();
            index.set_filled();
            Some(Arc::new(index))
        };
        Self::of(definition.indexes.iter().map(original).collect(), Lsn::ZERO)
    }

    /// These indexes, by number. Those that are missing were dropped below `given_up`.
    pub(crate) fn of(indexes: Vec<Option<Arc<Index>>>, given_up: Lsn) -> Self {
        Self { indexes: indexes.into(), given_up }
    }

    /// A copy of the list, to be changed and put in its place.
    pub(crate) fn to_vec(&self) -> Vec<Option<Arc<Index>>> {
        self.indexes.to_vec()
    }

    /// Whether all indexes are here that there were at `at`. Those that were dropped before are not
    /// missed.
    pub fn has_all_of(&self, at: Lsn) -> bool {
        at >= self.given_up
    }

    /// Indexes are missing that were dropped below this; zero if none was.
    pub(crate) fn given_up(&self) -> Lsn {
        self.given_up
    }

    pub(super) fn publish(self) -> AtomicPtr<Self> {
        AtomicPtr::new(Box::into_raw(Box::new(self)))
    }

    /// How many indexes the table has had.
    #[inline]
    pub fn len(&self) -> usize {
        self.indexes.len()
    }

    /// Whether it has had none. No table is so.
    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// Index number `number`, if there is or was one that a snapshot may see.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&Index> {
        self.indexes.get(number)?.as_deref()
    }

    /// All that hold entries, with their numbers, the primary one first; among them those that were
    /// dropped and are still seen.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Index)> {
        self.indexes.iter().enumerate().filter_map(|(number, index)| Some((number, index.as_deref()?)))
    }

    /// The indexes into which writers enter keys, with their numbers.
    #[inline]
    pub fn kept(&self) -> impl Iterator<Item = (usize, &Index)> {
        self.iter().filter(|(_, index)| !index.is_dropped())
    }

    /// The primary index: every record has its entry there.
    pub fn primary(&self) -> &Index {
        self.get(0).expect("every table has one, and it is never dropped")
    }

    /// Whether `row` may be written: long enough for its keys, and not too long.
    pub fn accept(&self, row: &[u8]) -> bool {
        row.len() <= Table::MAX_ROW && self.kept().all(|(_, index)| index.accepts(row))
    }

    /// Whether `row` may come out of a log or a checkpoint. Rows that were written before an index
    /// was added may be without keys there.
    #[inline]
    pub fn may_have(&self, row: &[u8]) -> bool {
        row.len() <= Table::MAX_ROW && self.get(0).is_none_or(|index| index.accepts(row))
    }

    /// Whether a row of this length may come out of a log: what can be said without looking at it.
    #[inline]
    pub fn may_have_length(&self, length: usize) -> bool {
        length <= Table::MAX_ROW && self.get(0).is_none_or(|index| length >= index.least_row)
    }
}

impl Content {
    /// The indexes as they are now.
    #[inline]
    pub fn indexes<'g>(&self, _guard: &'g Guard<'_>) -> &'g IndexList {
        // SAFETY: never null, and retired only after it was replaced (module's protocol), so it
        // lives as long as the guard. SeqCst costs readers no more than acquire, which pairs with
        // the exchange in `set_indexes`.
        unsafe { &*self.indexes.load(Ordering::SeqCst) }
    }

    /// Puts other indexes in the place of those that are there. Under the catalog's lock.
    pub(crate) fn set_indexes(&self, guard: &Guard<'_>, indexes: IndexList) {
        let old = self.indexes.swap(Box::into_raw(Box::new(indexes)), Ordering::SeqCst);
        // SAFETY: unlinked by the exchange; made by `publish` or here.
        unsafe { guard.retire(old.cast(), 0, free_list) };
    }

    /// For a thread that drops the content.
    pub(super) fn free_indexes(&mut self) {
        let list = std::mem::replace(&mut self.indexes, AtomicPtr::new(ptr::null_mut()));
        let list = list.load(Ordering::Relaxed);
        if !list.is_null() {
            // SAFETY: `&mut self`: nobody looks at it any more.
            drop(unsafe { Box::from_raw(list) });
        }
    }
}

/// # Safety
/// `list` came from `Box::into_raw`, and nobody can reach it any more.
unsafe fn free_list(list: *mut u8) {
    // SAFETY: by this function's contract.
    let list = unsafe { Box::from_raw(list.cast::<IndexList>()) };
    if list.indexes.iter().flatten().all(|index| Arc::strong_count(index) > 1) {
        return drop(list);
    }
    // An index goes with it, which may take a while; a thread that comes to free it may have
    // something to do. Where there is no thread, it is freed here: the closure is dropped then.
    let _ = std::thread::Builder::new().name("free-index".into()).spawn(move || drop(list));
}
