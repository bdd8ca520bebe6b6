//! The catalog: which tables there are.
//!
//! Tables are described by the records of a table, the catalog table, whose record ids are their
//! file ids (Query Fresh, section 3.3: "FIDs are maintained in exactly the same way as RIDs"). So
//! DDL is a transaction, logged and replayed like any other: an insertion makes a table, a deletion
//! drops it. File ids are never used again. An update adds indexes or says how far they have come;
//! it leaves everything else as it was.
//!
//! Catalog records may be replayed in any order, and be taken back when the log is cut. So
//! everything here remembers the LSN at which it came about. A table that was dropped stays for
//! snapshots below that LSN; when there are none any more, [`Catalog::clear_dropped`] gives up
//! its content, and its entry only says that records of this file id, wherever they may come from,
//! are of no interest.
//!
//! # Access protocol
//!
//! `slots` holds, by file id, a table whose count includes the slot, or null. A slot changes under
//! the lock of `state`; who takes a table out retires the slot's share of it, so a thread that
//! found it there under a guard may use it for as long as that lives. Everything else is behind the
//! lock.

mod changes;
mod error;
#[cfg(all(test, not(loom)))]
mod tests;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt, ptr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
    },
};

use freshet_base::{Fid, Lsn, RecordKind, Rid};

pub use self::error::CatalogError;
use crate::{
    definition::{IndexDefinition, IndexState, KeyPart, TableDefinition},
    reclaim::Guard,
    table::{Index, IndexList, Table},
};

/// The name of the catalog table.
const CATALOG: &str = "freshet_catalog";

/// Bytes of a table's name in its catalog row.
const NAME: usize = 64;

/// Slots per chunk.
const CHUNK: usize = 1024;
const CHUNKS: usize = Catalog::LIMIT / CHUNK;

/// What a file id stands for.
#[derive(Clone, Copy, Debug)]
pub enum Known<'g> {
    /// A table that is there.
    Table(&'g Table),
    /// One that is gone: its records are of no interest.
    Dropped,
    /// The messages that transactions carry: [`Fid::MESSAGES`].
    Messages,
    /// What a transaction was told to do, beside what it did: [`Fid::INPUTS`].
    Inputs,
    /// Nothing that anybody has heard of.
    Unknown,
}

/// What the catalog knows of one file id.
#[derive(Debug)]
struct Entry {
    /// None once it was given up.
    table: Option<Arc<Table>>,
    /// Where the log says that it was made; zero where that is not known and long ago.
    made_at: Lsn,
    /// Where the log says that it was dropped, if it does.
    dropped_at: Option<Lsn>,
}

impl Entry {
    fn exists_at(&self, snapshot: Lsn) -> bool {
        // Where a record lies is below the snapshots that see it.
        (self.made_at < snapshot || self.made_at == Lsn::ZERO) && self.dropped_at.is_none_or(|at| at >= snapshot)
    }
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<Fid, Entry>,
    /// All that have or had a name, unless they were given up.
    names: HashMap<String, Vec<Fid>>,
}

/// Tables by file id, of one chunk of them.
type Slots = Box<[AtomicPtr<Table>]>;

/// All tables, by id and by name.
pub struct Catalog {
    slots: Box<[OnceLock<Slots>]>,
    own: Arc<Table>,
    state: RwLock<State>,
    /// How many tables and indexes were dropped and still have their content.
    dropped: AtomicUsize,
    /// Whether indexes may have come that this node has yet to fill.
    unfilled: AtomicBool,
    /// The LSN of the newest record that was replayed or restored.
    changed_at: AtomicU64,
    /// How many transactions that change tables have begun to commit, and how many of them are
    /// through with that.
    changes: [AtomicU64; 2],
    /// Shared by those, for as long.
    turn: RwLock<()>,
    /// Tables for which this node, as the primary, is building an index.
    builds: Mutex<HashSet<Fid>>,
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tables_at(Lsn::MAX).iter().map(|table| table.name())).finish()
    }
}

impl Catalog {
    /// How many tables there can be, those that were dropped included.
    pub const LIMIT: usize = 1 << 20;

    /// A catalog with only the catalog table in it.
    pub fn new() -> Self {
        let name = IndexDefinition::new("freshet_catalog_name", true, &[KeyPart::bytes(0, NAME as u16)]);
        let definition = TableDefinition::new(CATALOG, vec![name]);
        let catalog = Self {
            slots: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            own: Arc::new(Table::new(Fid::CATALOG, definition).expect("its definition is one")),
            state: RwLock::new(State::default()),
            dropped: AtomicUsize::new(0),
            unfilled: AtomicBool::new(false),
            changed_at: AtomicU64::new(0),
            changes: [AtomicU64::new(0), AtomicU64::new(0)],
            turn: RwLock::default(),
            builds: Mutex::default(),
        };
        // Record zero would be the catalog itself: it describes the others only.
        catalog.put(&mut catalog.write(), &catalog.own, Lsn::ZERO, None);
        catalog
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, fid: Fid) -> Option<&AtomicPtr<Table>> {
        let fid = fid.0 as usize;
        self.slots.get(fid / CHUNK)?.get().map(|chunk| &chunk[fid % CHUNK])
    }

    /// The table with this id, unless it was dropped and given up.
    #[inline]
    pub fn get<'g>(&self, _guard: &'g Guard<'_>, fid: Fid) -> Option<&'g Table> {
        // Acquire: pairs with the release in `put`.
        let table = self.slot(fid)?.load(Ordering::Acquire);
        // SAFETY: not null, so the slot's share of it was not retired when the guard was already
        // pinned, or was so only since.
        unsafe { table.as_ref() }
    }

    /// What is known of a file id.
    #[inline]
    pub fn known<'g>(&self, guard: &'g Guard<'_>, fid: Fid) -> Known<'g> {
        match self.get(guard, fid) {
            Some(table) => Known::Table(table),
            // These come with every transaction, or many: before anything is locked.
            None if fid == Fid::INPUTS => Known::Inputs,
            None if fid == Fid::MESSAGES => Known::Messages,
            None if self.read().entries.get(&fid).is_some_and(|entry| entry.dropped_at.is_some()) => Known::Dropped,
            None => Known::Unknown,
        }
    }

    /// The table with this id, to be held, unless it was dropped and given up.
    pub fn table_of(&self, fid: Fid) -> Option<Arc<Table>> {
        self.read().entries.get(&fid)?.table.clone()
    }

    /// The table of this name that a snapshot sees.
    pub fn by_name(&self, name: &str, snapshot: Lsn) -> Option<Arc<Table>> {
        let state = self.read();
        let entries = state.names.get(name)?.iter().filter_map(|fid| state.entries.get(fid));
        let there = entries.filter(|entry| entry.exists_at(snapshot));
        there.max_by_key(|entry| entry.made_at)?.table.clone()
    }

    /// All tables that a snapshot sees, the catalog table first.
    pub fn tables_at(&self, snapshot: Lsn) -> Vec<Arc<Table>> {
        let state = self.read();
        let there = state.entries.values().filter(|entry| entry.exists_at(snapshot));
        there.filter_map(|entry| entry.table.clone()).collect()
    }

    /// The ids of all tables that a snapshot sees, or would see if what was dropped since had not
    /// been given up, ascending.
    pub fn ids_at(&self, snapshot: Lsn) -> Vec<Fid> {
        let state = self.read();
        state.entries.iter().filter(|(_, entry)| entry.exists_at(snapshot)).map(|(fid, _)| *fid).collect()
    }

    /// The table of the catalog.
    pub fn table(&self) -> &Arc<Table> {
        &self.own
    }

    fn make(fid: Fid, definition: TableDefinition) -> Result<Arc<Table>, CatalogError> {
        Ok(Arc::new(Table::new(fid, definition).map_err(CatalogError::Definition)?))
    }

    /// Puts a table into its slot, which is empty.
    fn put(&self, state: &mut State, table: &Arc<Table>, made_at: Lsn, dropped_at: Option<Lsn>) {
        let fid = table.fid();
        let chunk = || (0..CHUNK).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        let slot = &self.slots[fid.0 as usize / CHUNK].get_or_init(chunk)[fid.0 as usize % CHUNK];
        table.set_dropped(dropped_at);
        if dropped_at.is_some() {
            self.dropped.fetch_add(1, Ordering::Release);
        }
        state.names.entry(table.name().to_owned()).or_default().push(fid);
        state.entries.insert(fid, Entry { table: Some(Arc::clone(table)), made_at, dropped_at });
        // Release: publishes the table.
        slot.store(Arc::into_raw(Arc::clone(table)).cast_mut(), Ordering::Release);
    }

    /// Takes the table out of its slot, and gives up its content.
    fn take(&self, state: &mut State, guard: &Guard<'_>, fid: Fid) {
        let Some(table) = state.entries.get_mut(&fid).and_then(|entry| entry.table.take()) else { return };
        if let Some(fids) = state.names.get_mut(table.name()) {
            fids.retain(|other| *other != fid);
            if fids.is_empty() {
                state.names.remove(table.name());
            }
        }
        if table.dropped_at().is_some() {
            self.dropped.fetch_sub(1, Ordering::Release);
        }
        if let Some(content) = table.content(guard) {
            let dropped = content.indexes(guard).iter().filter(|(_, index)| index.is_dropped()).count();
            self.dropped.fetch_sub(dropped, Ordering::Release);
        }
        table.clear(guard);
        let slot = self.slot(fid).expect("it is in its slot");
        let share = slot.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: unlinked by the swap, made by `Arc::into_raw` in `put`.
        unsafe { guard.retire(share.cast(), 0, release) };
    }

    /// Adds a table that was made at `made_at`. Does nothing when one of this id is there already,
    /// or was dropped.
    fn enter(
        &self,
        guard: &Guard<'_>,
        fid: Fid,
        definition: TableDefinition,
        made_at: Lsn,
    ) -> Result<(), CatalogError> {
        if fid.0 as usize >= Self::LIMIT {
            return Err(CatalogError::Full);
        }
        let mut state = self.write();
        if let Some(there) = state.entries.get_mut(&fid) {
            // Replay is idempotent and in no order: its drop may have come first.
            there.made_at = there.made_at.max(made_at);
            let Some(table) = &there.table else { return Ok(()) };
            let Some(content) = table.content(guard) else { return Ok(()) };
            let indexes = content.indexes(guard);
            let same = |(number, new): (usize, &IndexDefinition)| {
                number < indexes.len() && indexes.get(number).is_none_or(|index| index.definition().is_same(new))
            };
            if table.name() != definition.name || !definition.indexes.iter().enumerate().all(same) {
                return Err(CatalogError::Exists(definition.name));
            }
            // An update may have come first, which does not say which indexes the table was made
            // with. They are filled as others are.
            let original = |(number, new): &(usize, &IndexDefinition)| new.state == IndexState::Ready && *number > 0;
            for (number, _) in definition.indexes.iter().enumerate().filter(original) {
                if let Some(index) = indexes.get(number) {
                    index.set_made_with_table();
                }
            }
            return Ok(());
        }
        let states: Vec<IndexState> = definition.indexes.iter().map(|index| index.state).collect();
        let table = Self::make(fid, definition)?;
        if states.iter().any(|state| *state != IndexState::Ready) {
            // From a checkpoint: whatever comes now will be entered into all of them.
            Self::set_states(guard, &table, &states, made_at);
        }
        self.put(&mut state, &table, made_at, None);
        Ok(())
    }

    /// The catalog row of a table.
    ///
    /// # Errors
    /// [`CatalogError::Name`] or [`CatalogError::Definition`].
    pub fn row_of(definition: &TableDefinition) -> Result<Vec<u8>, CatalogError> {
        definition.validate().map_err(CatalogError::Definition)?;
        let name = definition.name.as_bytes();
        if name.len() > NAME || name.contains(&0) {
            return Err(CatalogError::Name(definition.name.clone()));
        }
        let mut row = vec![0; NAME];
        row[..name.len()].copy_from_slice(name);
        postcard::to_extend(definition, row)
            .map_err(|cause| CatalogError::Row { fid: Fid::CATALOG, what: cause.to_string() })
    }

    /// Whether `row` is just what [`Catalog::row_of`] makes of some definition but the catalog's
    /// own, so that nothing but its name and its record id can keep it from
    /// [entering](Catalog::enter_row).
    pub fn describes_table(row: &[u8]) -> bool {
        let definition =
            row.get(NAME..).and_then(|definition| postcard::from_bytes::<TableDefinition>(definition).ok());
        definition.is_some_and(|definition| {
            definition.name != CATALOG && Self::row_of(&definition).is_ok_and(|canonical| canonical == row)
        })
    }

    fn definition_of(rid: Rid, row: &[u8]) -> Result<(Fid, TableDefinition), CatalogError> {
        let fid = Self::fid_of(rid).ok_or(CatalogError::Full)?;
        let wrong = |what: String| CatalogError::Row { fid, what };
        let definition = row.get(NAME..).ok_or_else(|| wrong("it is too short".into()))?;
        Ok((fid, postcard::from_bytes(definition).map_err(|cause| wrong(cause.to_string()))?))
    }

    /// Adds the table that a catalog row, committed as record `rid` of the catalog at `made_at`,
    /// describes.
    ///
    /// # Errors
    /// See [`CatalogError`].
    pub fn enter_row(&self, guard: &Guard<'_>, rid: Rid, row: &[u8], made_at: Lsn) -> Result<(), CatalogError> {
        let (fid, definition) = Self::definition_of(rid, row)?;
        self.changed_at.fetch_max(made_at.0, Ordering::AcqRel);
        self.enter(guard, fid, definition, made_at)
    }

    /// Where the newest record of the catalog lies that was replayed or restored here, whatever was
    /// cut since. A snapshot below may see tables and indexes that a restart does not bring back.
    pub fn changed_at(&self) -> Lsn {
        Lsn(self.changed_at.load(Ordering::Acquire))
    }

    /// Indexes of a table that nobody has seen yet are not all ready.
    fn set_states(guard: &Guard<'_>, table: &Table, states: &[IndexState], at: Lsn) {
        let Some(content) = table.content(guard) else { return };
        let made = content.indexes(guard).to_vec().into_iter().zip(states).map(|(index, state)| match state {
            IndexState::Ready => index,
            IndexState::Building => index.map(|index| {
                let index = Index::new(index.definition());
                index.note(IndexState::Building, at);
                index.set_filled();
                Arc::new(index)
            }),
            IndexState::Dropped => None,
        });
        // When those were dropped that are gone is not known, but they were when the row was
        // written.
        content.set_indexes(guard, IndexList::of(made.collect(), at));
    }

    /// Does what a record of the catalog says, which was committed at `at`: the table that its row
    /// describes is made, changed or dropped. Records may come in any order, and more than once.
    ///
    /// # Errors
    /// See [`CatalogError`].
    pub fn replay(
        &self,
        guard: &Guard<'_>,
        kind: RecordKind,
        rid: Rid,
        row: &[u8],
        at: Lsn,
    ) -> Result<(), CatalogError> {
        self.changed_at.fetch_max(at.0, Ordering::AcqRel);
        match kind {
            RecordKind::Insert => self.enter_row(guard, rid, row, at),
            RecordKind::Update => self.alter_row(guard, rid, row, at),
            RecordKind::Delete => self.drop_row(guard, rid, row, at),
        }
    }

    /// Indexes have come, or are further than they were. Those that are dropped stay for snapshots
    /// below.
    fn alter_row(&self, guard: &Guard<'_>, rid: Rid, row: &[u8], at: Lsn) -> Result<(), CatalogError> {
        let (fid, definition) = Self::definition_of(rid, row)?;
        let mut state = self.write();
        let known = state.entries.get(&fid).map(|entry| entry.table.clone());
        let table = match known {
            Some(Some(table)) => table,
            // It is gone.
            Some(None) => return Ok(()),
            None => self.put_unmade(&mut state, fid, &definition, None)?,
        };
        self.alter(guard, &table, &definition, at)
    }

    /// Puts a table into its slot whose making is still to come, if it comes at all. Which of its
    /// indexes it was made with is not known before.
    fn put_unmade(
        &self,
        state: &mut State,
        fid: Fid,
        definition: &TableDefinition,
        dropped_at: Option<Lsn>,
    ) -> Result<Arc<Table>, CatalogError> {
        definition.validate().map_err(CatalogError::Definition)?;
        let first = TableDefinition::new(&definition.name, definition.indexes[..1].to_vec());
        let table = Self::make(fid, first)?;
        self.put(state, &table, Lsn::ZERO, dropped_at);
        Ok(table)
    }

    fn alter(
        &self,
        guard: &Guard<'_>,
        table: &Table,
        definition: &TableDefinition,
        at: Lsn,
    ) -> Result<(), CatalogError> {
        let Some(content) = table.content(guard) else { return Ok(()) };
        let there = content.indexes(guard);
        let differs = |(number, new): (usize, &IndexDefinition)| {
            there.get(number).is_some_and(|index| !index.definition().is_same(new))
        };
        if table.name() != definition.name || definition.indexes.iter().enumerate().any(differs) {
            return Err(CatalogError::Row { fid: table.fid(), what: "it has changed more than indexes".into() });
        }
        let mut indexes = there.to_vec();
        for (number, new) in definition.indexes.iter().enumerate() {
            if number == indexes.len() {
                self.unfilled.store(true, Ordering::Release);
                indexes.push(Some(Arc::new(Index::new(new))));
            }
            // None was given up before.
            let Some(index) = &indexes[number] else { continue };
            if index.note(new.state, at) {
                self.dropped.fetch_add(1, Ordering::Release);
            }
        }
        content.set_indexes(guard, IndexList::of(indexes, there.given_up()));
        table.note_index_names(definition);
        Ok(())
    }

    /// Whether indexes may have come that this node has yet to fill; then the next call says no.
    pub fn take_unfilled(&self) -> bool {
        self.unfilled.load(Ordering::Acquire) && self.unfilled.swap(false, Ordering::AcqRel)
    }

    /// All tables that have content, the catalog's own first.
    pub fn all(&self) -> Vec<Arc<Table>> {
        self.read().entries.values().filter_map(|entry| entry.table.clone()).collect()
    }

    /// What a row of the catalog says of a table.
    ///
    /// # Errors
    /// See [`CatalogError`].
    pub fn definition_in(row: &[u8]) -> Result<TableDefinition, CatalogError> {
        Ok(Self::definition_of(Rid(0), row)?.1)
    }

    /// A table was dropped. It stays as it was for snapshots below.
    fn drop_row(&self, guard: &Guard<'_>, rid: Rid, row: &[u8], at: Lsn) -> Result<(), CatalogError> {
        let (fid, definition) = Self::definition_of(rid, row)?;
        let mut state = self.write();
        match state.entries.get_mut(&fid) {
            Some(Entry { dropped_at: Some(_), .. }) => return Ok(()),
            Some(entry) => {
                entry.dropped_at = Some(at);
                if let Some(table) = &entry.table {
                    table.set_dropped(Some(at));
                    self.dropped.fetch_add(1, Ordering::Release);
                }
            }
            // Its making is still to come, if it comes at all.
            None => {
                let table = self.put_unmade(&mut state, fid, &definition, Some(at))?;
                self.alter(guard, &table, &definition, at)?;
            }
        }
        Ok(())
    }

    /// Whether there are tables or indexes that were dropped and still have their content. Cheap.
    #[inline]
    pub fn has_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire) > 0
    }

    /// Gives up the content of tables and indexes that were dropped below `horizon`: every
    /// snapshot, now and later, lies at or above that, and the drop cannot be taken back any more.
    /// The memory is freed when every guard that was there before is gone.
    pub fn clear_dropped(&self, guard: &Guard<'_>, horizon: Lsn) {
        let mut state = self.write();
        let over = |entry: &Entry| entry.table.is_some() && entry.dropped_at.is_some_and(|at| at < horizon);
        let gone: Vec<Fid> = state.entries.iter().filter(|(_, entry)| over(entry)).map(|(fid, _)| *fid).collect();
        gone.into_iter().for_each(|fid| self.take(&mut state, guard, fid));
        let over = |index: &Index| index.dropped_at().is_some_and(|at| at < horizon);
        for content in state.entries.values().filter_map(|entry| entry.table.as_ref()?.content(guard)) {
            let indexes = content.indexes(guard);
            let gone = || indexes.iter().filter(|(_, index)| over(index));
            if let Some(dropped_at) = gone().filter_map(|(_, index)| index.dropped_at()).max() {
                let left = indexes.to_vec().into_iter().map(|index| index.filter(|index| !over(index)));
                // What is written at the drop itself, or behind it, is in none of them.
                let given_up = indexes.given_up().max(dropped_at);
                let count = gone().count();
                content.set_indexes(guard, IndexList::of(left.collect(), given_up));
                self.dropped.fetch_sub(count, Ordering::Release);
            }
        }
    }

    /// The log was cut at `at`: what was made there or above never was, and what was dropped there
    /// or above was not. No snapshot is above that.
    pub fn cut(&self, guard: &Guard<'_>, at: Lsn) {
        let mut state = self.write();
        let ghosts: Vec<Fid> =
            state.entries.iter().filter(|(_, entry)| entry.made_at >= at).map(|(fid, _)| *fid).collect();
        for fid in ghosts.into_iter().filter(|fid| *fid != Fid::CATALOG) {
            self.take(&mut state, guard, fid);
            state.entries.remove(&fid);
        }
        for entry in state.entries.values_mut().filter(|entry| entry.dropped_at.is_some_and(|dropped| dropped >= at)) {
            // Its content is there: it goes only when the drop cannot be taken back.
            entry.dropped_at = None;
            if let Some(table) = &entry.table {
                table.set_dropped(None);
                self.dropped.fetch_sub(1, Ordering::Release);
            }
        }
        for table in state.entries.values().filter_map(|entry| entry.table.as_ref()) {
            let Some(content) = table.content(guard) else { continue };
            let mut indexes = content.indexes(guard).to_vec();
            for index in indexes.iter().flatten() {
                if index.cut(at) {
                    self.dropped.fetch_sub(1, Ordering::Release);
                }
            }
            let left = |index: &Option<Arc<Index>>| index.as_ref().is_none_or(|index| index.added_at() < at);
            let count = indexes.iter().rposition(left).map_or(0, |last| last + 1);
            if count < indexes.len() {
                indexes.truncate(count);
                content.set_indexes(guard, IndexList::of(indexes, content.indexes(guard).given_up()));
                table.forget_index_names(count);
            }
        }
    }

    /// The id of the table that record `rid` of the catalog describes. The catalog's own is not
    /// among them.
    pub fn fid_of(rid: Rid) -> Option<Fid> {
        Fid::of_record(rid).filter(|fid| (fid.0 as usize) < Self::LIMIT)
    }

    /// The record of the catalog that describes table `fid`; none for the catalog itself.
    pub fn rid_of(fid: Fid) -> Option<Rid> {
        fid.record()
    }
}

/// # Safety
/// `table` came from `Arc::into_raw`, and its share is given back once.
unsafe fn release(table: *mut u8) {
    // SAFETY: by this function's contract.
    drop(unsafe { Arc::from_raw(table.cast::<Table>().cast_const()) });
}

impl Drop for Catalog {
    fn drop(&mut self) {
        for slot in self.slots.iter_mut().filter_map(OnceLock::get_mut).flat_map(|chunk| chunk.iter_mut()) {
            let table = *slot.get_mut();
            if !table.is_null() {
                // SAFETY: `&mut self`: nobody looks at the slot any more; made by `put`.
                unsafe { release(table.cast()) };
            }
        }
    }
}

impl Default for Catalog {
    fn default() -> Self {
        Self::new()
    }
}
