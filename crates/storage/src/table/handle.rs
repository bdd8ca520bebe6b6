//! Tables as they are known by name and id, and what becomes of those that are dropped.
//!
//! # Access protocol
//!
//! `content` is null or a content that nobody frees but through [`Guard::retire`]. It becomes null
//! once, by the exchange in [`Table::clear`]; a thread that has loaded it under a guard before that
//! may use it while the guard lives. `dropped_at` is stored by the thread that publishes or replays
//! the drop, and taken back when the log is cut below it, which is before anything was cleared.

use std::{
    fmt, ptr,
    sync::{PoisonError, RwLock, atomic::AtomicBool},
};

use freshet_base::{
    Fid, Lsn,
    sync::{AtomicPtr, AtomicU64, Ordering},
};

use super::Content;
use crate::{
    definition::{DefinitionError, TableDefinition},
    reclaim::Guard,
    version::Version,
};

/// A content whose arrays take fewer bytes is freed by the thread that comes to it.
const AT_ONCE: u64 = 4 << 20;

/// Of a table that is not dropped.
const NEVER: u64 = u64::MAX;

/// One table. It may be held for as long as one likes; when it was dropped, and no snapshot sees it
/// any more, its content goes, and a thread that looks for that gets none.
pub struct Table {
    fid: Fid,
    definition: TableDefinition,
    dropped_at: AtomicU64,
    content: AtomicPtr<Content>,
    /// Not the facade's: no other memory is read on the strength of it.
    has_reserve: AtomicBool,
    /// The names of all indexes that it has had, by number.
    index_names: RwLock<Vec<String>>,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({:?}, {:?})", self.fid, self.definition.name)
    }
}

impl Table {
    /// The longest row, in bytes.
    pub const MAX_ROW: usize = Version::MAX_ROW;

    /// An empty table.
    ///
    /// # Errors
    /// When the definition is not one.
    pub fn new(fid: Fid, definition: TableDefinition) -> Result<Self, DefinitionError> {
        let content = Box::new(Content::new(fid, &definition)?);
        let content = AtomicPtr::new(Box::into_raw(content));
        let index_names = RwLock::new(definition.indexes.iter().map(|index| index.name.clone()).collect());
        let has_reserve = AtomicBool::new(fid == Fid::CATALOG);
        Ok(Self { fid, definition, dropped_at: AtomicU64::new(NEVER), content, has_reserve, index_names })
    }

    /// Its id, which no other table ever has.
    #[inline]
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// Whether rows can be added when tables take as much memory as they may, out of a reserve.
    pub fn has_reserve(&self) -> bool {
        self.has_reserve.load(Ordering::Relaxed)
    }

    /// It is one of a catalog: rows can be added out of that reserve from now on.
    pub fn give_reserve(&self) {
        self.has_reserve.store(true, Ordering::Relaxed);
    }

    /// Its name. Another table may have it once this one is dropped.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Its name and indexes as this node first heard of them; since then indexes may have come and
    /// gone ([`Content::indexes`]).
    pub fn definition(&self) -> &TableDefinition {
        &self.definition
    }

    /// The number of the last index that came under this name, whatever has become of it.
    pub fn index_number(&self, name: &str) -> Option<usize> {
        let names = self.index_names.read().unwrap_or_else(PoisonError::into_inner);
        names.iter().rposition(|index| index == name)
    }

    /// Indexes have come. Under the catalog's lock.
    pub(crate) fn note_index_names(&self, definition: &TableDefinition) {
        let mut names = self.index_names.write().unwrap_or_else(PoisonError::into_inner);
        let known = names.len();
        names.extend(definition.indexes.iter().skip(known).map(|index| index.name.clone()));
    }

    /// The log was cut: these many indexes are left.
    pub(crate) fn forget_index_names(&self, from: usize) {
        self.index_names.write().unwrap_or_else(PoisonError::into_inner).truncate(from);
    }

    /// Its records and indexes; none when it was dropped and they were given up.
    #[inline]
    pub fn content<'g>(&self, _guard: &'g Guard<'_>) -> Option<&'g Content> {
        // Acquire: pairs with the publication of this table, or finds null.
        let content = self.content.load(Ordering::Acquire);
        // SAFETY: not null, so it was not retired when the guard was already pinned, or was so only
        // since: it lives as long as the guard (module's protocol).
        unsafe { content.as_ref() }
    }

    /// Where the log says that it was dropped, if it was.
    pub fn dropped_at(&self) -> Option<Lsn> {
        let at = self.dropped_at.load(Ordering::Acquire);
        (at != NEVER).then_some(Lsn(at))
    }

    /// Whether a snapshot sees the table: it was not dropped before.
    #[inline]
    pub fn exists_at(&self, snapshot: Lsn) -> bool {
        // Acquire: a thread that has a snapshot above the drop has seen its LSN.
        self.dropped_at.load(Ordering::Acquire) >= snapshot.0
    }

    /// It is dropped at `at`, or, with none, it was not after all.
    pub(crate) fn set_dropped(&self, at: Option<Lsn>) {
        self.dropped_at.store(at.map_or(NEVER, |at| at.0), Ordering::Release);
    }

    /// Gives up what is in it; it is freed when no guard can reach it any more. Every snapshot, now
    /// and later, lies above the drop. Returns whether there was anything.
    pub(crate) fn clear(&self, guard: &Guard<'_>) -> bool {
        let content = self.content.swap(ptr::null_mut(), Ordering::AcqRel);
        if content.is_null() {
            return false;
        }
        // SAFETY: unlinked by the swap, which gives it to one only; made by `new`.
        unsafe { guard.retire(content.cast(), 0, free_content) };
        true
    }
}

/// # Safety
/// `content` came from [`Table::new`], and nobody can reach it any more.
unsafe fn free_content(content: *mut u8) {
    // SAFETY: by this function's contract.
    let content = unsafe { Box::from_raw(content.cast::<Content>()) };
    if content.array_bytes() < AT_ONCE {
        return drop(content);
    }
    // It takes a while, and a thread that comes to free it may have something to do. Where there is
    // no thread, it is freed here: the closure is dropped then.
    let _ = std::thread::Builder::new().name("free-table".into()).spawn(move || drop(content));
}

impl Drop for Table {
    fn drop(&mut self) {
        let content = self.content.load(Ordering::Relaxed);
        if !content.is_null() {
            // SAFETY: `&mut self`. A catalog, whose tables are reached under guards, clears them
            // before it lets them go, or goes itself, with all who have guards.
            unsafe { free_content(content.cast()) };
        }
    }
}
