//! What lies where in a mirror's memory, on the side of the primary, and what is to be written
//! there for a change.

use std::{
    collections::{HashMap, HashSet},
    hash::BuildHasherDefault,
};

use freshet_base::{Fid, IdHasher, Lsn, Rid};
use freshet_fabric::Place;

use crate::{
    Damaged, List, build,
    chunks::Chunks,
    directory::{ARENAS, ENTRY, Use},
    elsewhere::{Elsewhere, Long},
    half,
    sizes::Lengths,
    slot::{HEADER, LONGEST},
    space::{MOST_BYTES, Space},
    word,
};

/// How many records a chunk of a table has at most, and at least. It is a power of two, and their
/// ids begin at a multiple of it.
pub(crate) const SLOTS: u32 = if cfg!(test) { 8 } else { 4096 };
pub(crate) const FEWEST: u32 = if cfg!(test) { 2 } else { 8 };

/// What has become of a record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'r> {
    /// Its table.
    pub fid: Fid,
    /// Its id.
    pub rid: Rid,
    /// Where the change is in the log.
    pub address: Lsn,
    /// Its row; none when it was deleted.
    pub row: Option<&'r [u8]>,
}

/// Says what a mirror's memory holds before a batch is written there.
pub trait Before {
    /// Why it cannot.
    type Error;

    /// Fills `into` with what lies from `from` on, when all that was posted before has landed.
    ///
    /// # Errors
    /// Whatever keeps it from that.
    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), Self::Error>;

    /// How many bytes are worth reading at once. Of what is near, those are as many as the nearest
    /// cache has room for.
    fn at_once(&self) -> usize {
        usize::MAX
    }

    /// The same as [`Before::read`] of several places.
    ///
    /// # Errors
    /// Whatever keeps it from that.
    fn read_all(&mut self, list: &mut [(Place, &mut [u8])]) -> Result<(), Self::Error> {
        list.iter_mut().try_for_each(|(from, into)| self.read(*from, into))
    }
}

/// Why a change cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum NotPut<E> {
    /// Not before there is room for it.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// It is not known what it writes over.
    #[error("a mirror's memory cannot be read: {0}")]
    Before(E),
}

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// In the arenas.
    #[error("a mirror's memory has no {bytes} bytes in one piece")]
    Arena {
        /// How many bytes another has to have at least.
        bytes: u64,
    },
    /// In the directory.
    #[error("a mirror's directory has no room for another chunk: set mirror.directory-bytes there to more")]
    Directory,
    /// A row cannot be as long.
    #[error("a row of {bytes} bytes is too long for a mirror")]
    Row {
        /// How long it is.
        bytes: usize,
    },
}

type Ids<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;

/// The records of one table whose ids are the same, divided by [`SLOTS`].
#[derive(Debug, Default)]
struct Block {
    /// Their chunks by number, and the first id of each; in the order of these.
    chunks: Vec<(u64, u32)>,
    /// How many slots were used.
    used: u32,
}

impl Block {
    /// The chunk that has a record.
    fn chunk_of(&self, rid: Rid, space: &Space) -> Option<u32> {
        let behind = self.chunks.partition_point(|(first, _)| *first <= rid.0);
        let (_, number) = self.chunks[..behind].last()?;
        space.chunk(*number).rids().contains(&rid.0).then_some(*number)
    }

    /// The first id of a chunk that has this record and the most that it can, up to `slots`.
    fn fit(&self, rid: Rid, mut slots: u32, space: &Space) -> (u64, u32) {
        loop {
            let first = rid.0 - rid.0 % u64::from(slots);
            let behind = self.chunks.partition_point(|(begin, _)| *begin < first + u64::from(slots));
            let before = self.chunks[..behind].last();
            if slots <= FEWEST || before.is_none_or(|(_, before)| space.chunk(*before).rids().end <= first) {
                return (first, slots);
            }
            slots /= 2;
        }
    }

    fn add(&mut self, first: u64, number: u32) {
        let at = self.chunks.partition_point(|(begin, _)| *begin < first);
        self.chunks.insert(at, (first, number));
    }
}

/// What is known of a table.
#[derive(Debug, Default)]
struct Table {
    blocks: Ids<Block>,
    /// How many chunks these have.
    chunks: u64,
    lengths: Lengths,
    /// Records whose rows lie elsewhere.
    long: Ids<Long>,
}

impl Table {
    fn of(tables: &mut HashMap<Fid, Self, BuildHasherDefault<IdHasher>>, fid: Fid) -> &mut Self {
        tables.entry(fid).or_default()
    }
}

/// Which slots of a chunk may have been used: a bit for each. The others are zeros.
#[derive(Clone, Debug, Default)]
struct Used(Vec<u64>);

impl Used {
    /// Whether a slot may have been used; from now on it has.
    fn was_used(&mut self, slot: u32) -> bool {
        let (word, bit) = (&mut self.0[slot as usize / 64], 1 << (slot % 64));
        let was_used = *word & bit != 0;
        *word |= bit;
        was_used
    }
}

/// The feeder's view of the memory of one mirror.
#[derive(Debug)]
pub struct Layout {
    space: Space,
    elsewhere: Elsewhere,
    tables: HashMap<Fid, Table, BuildHasherDefault<IdHasher>>,
    /// Of chunks of tables, by number.
    used: Vec<Used>,
    /// The chunk of the record that was looked up last: neighbours come after one another.
    newest: Option<(Fid, u32)>,
    /// Where rows lay that were replaced, and what by.
    replaced: Vec<(Lsn, Long)>,
    /// Tables that were dropped, and where.
    dropped: Vec<(Lsn, Fid)>,
    /// Of each table whose drop is committed: the chunks that it still has, and where rows lie that
    /// are not in its chunks.
    given_up: Vec<(Vec<u32>, Vec<Long>)>,
    /// Chunks that the directory says are free, and the change whose commit makes them so.
    freed: Vec<(Lsn, u32)>,
    /// Below this everything is committed, and nothing is undone.
    marked: Lsn,
}

/// Where a change goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// The record's slot.
    pub slot: Place,
    /// It may have been used before.
    pub was_used: bool,
    /// Where the row goes, if it is too long for the slot.
    pub elsewhere: Option<Place>,
}

impl Layout {
    /// Nothing yet, in a memory whose directory has room for this number of chunks.
    pub fn new(capacity: u32) -> Self {
        Self {
            space: Space::new(capacity),
            elsewhere: Elsewhere::new(),
            tables: HashMap::default(),
            used: Vec::new(),
            newest: None,
            replaced: Vec::new(),
            dropped: Vec::new(),
            given_up: Vec::new(),
            freed: Vec::new(),
            marked: Lsn::ZERO,
        }
    }

    /// That of a memory which has regions of these lengths, but for those of the undo ring, whose
    /// lengths are zero; `description` says what lies where ([`crate::Contents::description`]).
    ///
    /// # Errors
    /// [`Damaged`] when that is impossible.
    pub fn of(description: &[u8], lengths: &[u64]) -> Result<Self, Damaged> {
        let mut layout = Self::new(Chunks::capacity(lengths));
        let arenas = (ARENAS..lengths.len()).filter(|region| lengths[*region] > 0);
        arenas.for_each(|region| layout.grow(region, lengths[region]));
        let (entries, rest) = counted(description, ENTRY)?;
        let mut chunks = Chunks::default();
        for (number, entry) in (0..).zip(entries.as_chunks::<ENTRY>().0) {
            chunks.add(lengths, number, entry)?;
        }
        for (number, chunk) in (0..).zip(chunks.all()) {
            layout.space.found(*chunk);
            let Use::Table(fid, first) = chunk.used_for else { continue };
            let table = Table::of(&mut layout.tables, fid);
            let block = table.blocks.entry(first.0 / u64::from(SLOTS)).or_default();
            block.add(first.0, number);
            block.used += chunk.slots;
            table.chunks += 1;
            table.lengths.note(chunk.slot as usize - HEADER, chunk.slots);
            layout.use_all(number, chunk.slots);
        }
        let (dropped, long) = counted(rest, 8)?;
        layout.dropped.extend(dropped.chunks(8).map(|fid| (Lsn::ZERO, Fid(half(fid, 0)))));
        let taken = layout.take_long(&chunks, long)?;
        for (number, _) in (0..).zip(chunks.all()).filter(|(_, chunk)| chunk.used_for == Use::Overflow) {
            layout.elsewhere.found(number, &mut layout.space, |slot| taken.contains(&(number, slot)));
        }
        Ok(layout)
    }

    /// Enters the records whose rows lie elsewhere, each in a place of its own.
    fn take_long(&mut self, chunks: &Chunks, long: &[u8]) -> Result<HashSet<(u32, u32)>, Damaged> {
        let mut taken = HashSet::new();
        let (records, []) = long.as_chunks::<24>() else { return Err(Damaged::Description) };
        for record in records {
            let (fid, rid) = (Fid(half(record, 0)), Rid(word(record, 8)));
            let place = Place { region: half(record, 4) as usize, offset: word(record, 16) };
            let found = chunks.elsewhere(place).filter(|found| taken.insert(*found));
            let (chunk, slot) = found.ok_or(Damaged::Record { fid, rid })?;
            let table = Table::of(&mut self.tables, fid);
            table.lengths.note(chunks.all()[chunk as usize].slot as usize, 1);
            table.long.insert(rid.0, Long { chunk, slot });
        }
        Ok(taken)
    }

    /// There is another arena: this region, with this many bytes.
    pub fn grow(&mut self, region: usize, bytes: u64) {
        self.space.grow(region, bytes);
    }

    /// How many bytes of the arenas no chunk has.
    pub fn unused(&self) -> u64 {
        self.space.unused()
    }

    /// Whether another arena should be asked for before it is needed.
    pub fn is_low(&self) -> bool {
        self.space.is_low()
    }

    /// Appends to `list` what has to be written for a change alone.
    ///
    /// # Errors
    /// [`NotPut`]; it can be tried again with the same list, which may have got what was placed.
    pub fn put<B: Before>(
        &mut self,
        record: &Record<'_>,
        before: &mut B,
        list: &mut List,
    ) -> Result<(), NotPut<B::Error>> {
        build::put_alone(self, record, before, list)
    }

    /// Says where a change goes, of a record whose row is as long, or was deleted. Appends to
    /// `list` what has to be written for chunks that are placed for it.
    ///
    /// # Errors
    /// [`NoRoom`]; it can be tried again with the same list.
    pub(crate) fn place(
        &mut self,
        id: (Fid, Rid),
        address: Lsn,
        row: Option<usize>,
        list: &mut List,
    ) -> Result<Placed, NoRoom> {
        let length = row.unwrap_or(0);
        if length > LONGEST {
            return Err(NoRoom::Row { bytes: length });
        }
        let (fid, rid) = id;
        let number = self.chunk_of(id, row, list)?;
        let chunk = *self.space.chunk(number);
        let fits = (HEADER + length) as u64 <= chunk.slot;
        let elsewhere = (!fits).then(|| self.elsewhere.take(length, &mut self.space, list)).transpose()?;
        // Nothing fails from here on.
        let slot = (rid.0 - chunk.rids().start) as u32;
        let was_used = self.used[number as usize].was_used(slot);
        let table = Table::of(&mut self.tables, fid);
        let was_elsewhere = match elsewhere {
            Some((long, _)) => table.long.insert(rid.0, long),
            None if table.long.is_empty() => None,
            None => table.long.remove(&rid.0),
        };
        if !was_used && let Some(block) = table.blocks.get_mut(&(rid.0 / u64::from(SLOTS))) {
            block.used += 1;
        }
        // One that stays in its slot was counted when it came.
        if row.is_some() && (!was_used || elsewhere.is_some() && was_elsewhere.is_none()) {
            table.lengths.note(length, 1);
        }
        self.replaced.extend(was_elsewhere.map(|long| (address, long)));
        if fid == Fid::CATALOG && row.is_none() {
            self.dropped.extend(Fid::of_record(rid).map(|fid| (address, fid)));
        }
        self.give_up_one(address, list);
        let elsewhere = elsewhere.map(|(_, place)| place);
        Ok(Placed { slot: chunk.slot_at(slot), was_used, elsewhere })
    }

    /// Everything below `to` is committed, and the mirror's mark says so: what was replaced or
    /// dropped below is not needed any more.
    pub fn committed(&mut self, to: Lsn) {
        let Self { replaced, elsewhere, space, .. } = self;
        for (_, long) in replaced.extract_if(.., |(by, _)| *by < to) {
            elsewhere.give_back(long, space);
        }
        for (_, number) in self.freed.extract_if(.., |(by, _)| *by < to) {
            space.emptied(number);
        }
        let dropped: Vec<_> = self.dropped.extract_if(.., |(by, _)| *by < to).collect();
        dropped.into_iter().for_each(|(_, fid)| self.forget(fid));
        self.marked = self.marked.max(to);
    }

    /// A table was dropped, and that is committed.
    fn forget(&mut self, fid: Fid) {
        let Some(table) = self.tables.remove(&fid) else { return };
        self.newest = None;
        let chunks = table.blocks.into_values().flat_map(|block| block.chunks);
        self.given_up.push((chunks.map(|(_, number)| number).collect(), table.long.into_values().collect()));
    }

    /// One chunk of a table that was dropped is free when a change at `address` is committed: no
    /// more is written for each change. Rows that lie elsewhere stay until no chunk speaks of them.
    fn give_up_one(&mut self, address: Lsn, list: &mut List) {
        let Some((chunks, long)) = self.given_up.last_mut() else { return };
        if let Some(number) = chunks.pop() {
            self.space.give_up(number, list);
            self.freed.push((address, number));
        }
        if chunks.is_empty() {
            self.replaced.extend(long.drain(..).map(|long| (address, long)));
            self.given_up.pop();
        }
    }

    /// Below this everything is committed, and nothing is undone.
    pub(crate) fn marked(&self) -> Lsn {
        self.marked
    }

    /// The number of the chunk where the slot of a record is, whose row has this length; places the
    /// chunk if need be.
    fn chunk_of(&mut self, (fid, rid): (Fid, Rid), row: Option<usize>, list: &mut List) -> Result<u32, NoRoom> {
        let space = &mut self.space;
        if let Some((_, newest)) = self.newest.filter(|(newest, _)| *newest == fid)
            && space.chunk(newest).rids().contains(&rid.0)
        {
            return Ok(newest);
        }
        let table = Table::of(&mut self.tables, fid);
        let block = rid.0 / u64::from(SLOTS);
        let known = table.blocks.get(&block).and_then(|block| block.chunk_of(rid, space));
        let number = match known {
            Some(number) => number,
            None => {
                let (number, slots) = Self::place_chunk(table, space, &mut self.elsewhere, (fid, rid), row, list)?;
                if self.used.len() <= number as usize {
                    self.used.resize(number as usize + 1, Used::default());
                }
                self.used[number as usize] = Used(vec![0; slots.div_ceil(64) as usize]);
                number
            }
        };
        self.newest = Some((fid, number));
        Ok(number)
    }

    /// Places the chunk of a record. It has about as many slots as are used among its neighbours,
    /// so that at most half of them stay unused where records come one after the other; and as many
    /// as the table has chunks, so that the directory has room for one with large gaps between ids.
    /// Slots are as long as fits the newest rows of the table best.
    fn place_chunk(
        table: &mut Table,
        space: &mut Space,
        elsewhere: &mut Elsewhere,
        (fid, rid): (Fid, Rid),
        row: Option<usize>,
        list: &mut List,
    ) -> Result<(u32, u32), NoRoom> {
        let mut lengths = table.lengths.clone();
        row.into_iter().for_each(|length| lengths.note(length, 1));
        let (slot, block) = (lengths.slot(), rid.0 / u64::from(SLOTS));
        let used = |block: Option<u64>| block.and_then(|block| table.blocks.get(&block)).map_or(0, |block| block.used);
        let neighbours = used(Some(block)) + used(block.checked_sub(1));
        let bound = |slots: u64| 1 << slots.clamp(FEWEST.into(), SLOTS.into()).ilog2();
        let slots = u32::min(bound(u64::from(neighbours).max(table.chunks)), bound(MOST_BYTES / slot));
        let block = table.blocks.entry(block).or_default();
        let (_, slots) = block.fit(rid, slots, space);
        let (wanted, least) = (slot * u64::from(slots), slot * u64::from(FEWEST));
        let room = space.room(wanted, least, wanted * 2)?;
        let (first, slots) = block.fit(rid, slots.min(bound(room.bytes / slot)), space);
        let (number, before) = space.place(room, Use::Table(fid, Rid(first)), (slot, slots), list);
        before.iter().for_each(|before| elsewhere.forget(number, before));
        block.add(first, number);
        table.chunks += 1;
        Ok((number, slots))
    }

    /// All slots of a chunk may have been used.
    fn use_all(&mut self, number: u32, slots: u32) {
        self.used.resize(number as usize, Used::default());
        self.used.push(Used(vec![u64::MAX; slots.div_ceil(64) as usize]));
    }
}

/// A list in a description: how many, and each of them has this many bytes; and the rest.
fn counted(bytes: &[u8], each: usize) -> Result<(&[u8], &[u8]), Damaged> {
    let (count, rest) = bytes.split_first_chunk().ok_or(Damaged::Description)?;
    let count = usize::try_from(u64::from_le_bytes(*count)).unwrap_or(usize::MAX);
    rest.split_at_checked(count.saturating_mul(each)).ok_or(Damaged::Description)
}
