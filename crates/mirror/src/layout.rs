//! What lies where in a mirror's memory, on the side of the primary, and what is to be written
//! there for a change.

use std::collections::{HashMap, HashSet};

use freshet_base::{Fid, Rid, Stamp};
use freshet_fabric::Place;

use crate::{
    Damaged, List, build,
    chunks::Chunks,
    directory::{ARENAS, Chunk, ENTRY, Use},
    half,
    slot::{HEADER, LEAST, LONGEST, MOST},
    word,
};

/// How many records a chunk of a table has.
pub(crate) const SLOTS: u32 = if cfg!(test) { 8 } else { 4096 };
/// Rows that lie elsewhere do so in slots of this size, or of twice as much as often as needed.
pub(crate) const SHORTEST: u64 = 512;
/// About how many bytes a chunk of such rows has, unless one of them is longer.
const CHUNK: u64 = if cfg!(test) { 2048 } else { 256 << 10 };
/// How many sizes exist: up to [`LONGEST`].
pub(crate) const CLASSES: usize = 22;

const _: () = assert!(SHORTEST << (CLASSES - 1) > LONGEST as u64);

/// What has become of a record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'r> {
    /// Its table.
    pub fid: Fid,
    /// Its id.
    pub rid: Rid,
    /// Where the change is in the log.
    pub address: Stamp,
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

#[derive(Debug)]
struct Arena {
    region: usize,
    used: u64,
    length: u64,
}

/// Where a row lies that is too long for its slot, and in what size of slot.
pub(crate) type Long = (usize, Place);
/// All such rows, by record.
pub(crate) type Longs = HashMap<(Fid, Rid), Long>;

/// A chunk of a table's records.
#[derive(Debug)]
struct Records {
    chunk: Chunk,
    /// A bit for each slot that may have been used. The others are as they were allocated.
    used: Vec<u64>,
}

impl Records {
    fn new(chunk: Chunk, used: u64) -> Self {
        Self { chunk, used: vec![used; SLOTS.div_ceil(64) as usize] }
    }

    /// Where the slot of a record is, and whether it may have been used; from now on it has.
    fn slot_of(&mut self, rid: Rid) -> (Place, bool) {
        let number = (rid.0 % u64::from(SLOTS)) as u32;
        let (word, bit) = (&mut self.used[number as usize / 64], 1 << (number % 64));
        let was_used = *word & bit != 0;
        *word |= bit;
        (self.chunk.slot_at(number), was_used)
    }
}

/// The primary's view of the memory of its mirrors, which all have the same.
#[derive(Debug)]
pub struct Layout {
    /// How many entries the directory has room for, and how many it has.
    capacity: u32,
    chunks: u32,
    arenas: Vec<Arena>,
    /// Chunks of tables, by number, and the numbers by first record.
    records: Vec<Records>,
    tables: HashMap<(Fid, Rid), usize>,
    /// That of them which was looked up last: neighbours come after one another.
    newest: Option<((Fid, Rid), usize)>,
    /// Slots for rows that lie elsewhere, by size.
    free: [Vec<Place>; CLASSES],
    /// Where such rows lie.
    long: Longs,
    /// Where rows lay that were replaced, and what by.
    replaced: Vec<(Stamp, Long)>,
    /// Below this everything is committed, and nothing is undone.
    marked: Stamp,
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
            capacity,
            chunks: 0,
            arenas: Vec::new(),
            records: Vec::new(),
            tables: HashMap::new(),
            newest: None,
            free: Default::default(),
            long: Longs::new(),
            replaced: Vec::new(),
            marked: Stamp::ZERO,
        }
    }

    /// That of a memory which has regions of these lengths; `description` says what lies where
    /// ([`crate::Mirror::description`]).
    ///
    /// # Errors
    /// [`Damaged`] when that is impossible.
    pub fn of(description: &[u8], lengths: &[u64]) -> Result<Self, Damaged> {
        let mut layout = Self::new(Chunks::capacity(lengths)?);
        (ARENAS..lengths.len()).for_each(|region| layout.grow(region, lengths[region]));
        let (count, entries) = description.split_first_chunk().ok_or(Damaged::Superblock)?;
        let count = usize::try_from(u64::from_le_bytes(*count)).unwrap_or(usize::MAX);
        let (entries, long) = entries.split_at_checked(count.saturating_mul(ENTRY)).ok_or(Damaged::Superblock)?;
        let mut chunks = Chunks::default();
        for entry in entries.as_chunks::<ENTRY>().0 {
            chunks.add(lengths, layout.chunks, entry)?;
            layout.chunks += 1;
        }
        for chunk in chunks.all() {
            let arena = layout.arenas.iter_mut().find(|arena| arena.region == chunk.place.region);
            if let (Some(arena), Some(bytes)) = (arena, chunk.bytes()) {
                arena.used = arena.used.max(chunk.place.offset + bytes);
            }
            if let Use::Table(fid, first) = chunk.used_for {
                layout.add((fid, first), Records::new(*chunk, u64::MAX));
            }
        }
        let taken = layout.take_long(&chunks, long)?;
        for chunk in chunks.all().iter().filter(|chunk| chunk.used_for == Use::Overflow) {
            let slots = (0..chunk.slots).map(|slot| chunk.slot_at(slot));
            layout.free[class_of(chunk.slot)].extend(slots.filter(|slot| !taken.contains(&(slot.region, slot.offset))));
        }
        Ok(layout)
    }

    /// Enters the records whose rows lie elsewhere, each in a place of its own.
    fn take_long(&mut self, chunks: &Chunks, long: &[u8]) -> Result<HashSet<(usize, u64)>, Damaged> {
        let mut taken = HashSet::new();
        let (records, []) = long.as_chunks::<24>() else { return Err(Damaged::Superblock) };
        for record in records {
            let (fid, rid) = (Fid(half(record, 0)), Rid(word(record, 8)));
            let place = Place { region: half(record, 4) as usize, offset: word(record, 16) };
            let slot = chunks.elsewhere(place).filter(|_| taken.insert((place.region, place.offset)));
            let slot = slot.ok_or(Damaged::Record { fid, rid })?;
            self.long.insert((fid, rid), (class_of(slot), place));
        }
        Ok(taken)
    }

    /// There is another arena: this region, with this many bytes.
    pub fn grow(&mut self, region: usize, bytes: u64) {
        self.arenas.push(Arena { region, used: 0, length: bytes });
    }

    /// How many bytes of the arenas no chunk has.
    pub fn unused(&self) -> u64 {
        self.arenas.iter().map(|arena| arena.length - arena.used).sum()
    }

    /// Whether another arena should be asked for before it is needed.
    pub fn is_low(&self) -> bool {
        self.arenas.last().is_none_or(|newest| self.unused() < newest.length / 4)
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
        address: Stamp,
        row: Option<usize>,
        list: &mut List,
    ) -> Result<Placed, NoRoom> {
        let length = row.unwrap_or(0);
        if length > LONGEST {
            return Err(NoRoom::Row { bytes: length });
        }
        let number = self.chunk_of(id, length, list)?;
        let fits = (HEADER + length) as u64 <= self.records[number].chunk.slot;
        let class = class_of(length as u64);
        let elsewhere = (!fits).then(|| self.place_for(class, list)).transpose()?;
        let was_elsewhere = match elsewhere {
            Some(place) => self.long.insert(id, (class, place)),
            None if self.long.is_empty() => None,
            None => self.long.remove(&id),
        };
        self.replaced.extend(was_elsewhere.map(|long| (address, long)));
        let (slot, was_used) = self.records[number].slot_of(id.1);
        Ok(Placed { slot, was_used, elsewhere })
    }

    /// Everything below `to` is committed, and the mirror's mark says so: rows that it has replaced
    /// are needed no more. Where several mirrors have this layout, one that lags waits before it
    /// gets more ([`crate::Build::after`]).
    pub fn committed(&mut self, to: Stamp) {
        let Self { replaced, free, .. } = self;
        replaced.retain(|(by, (class, place))| {
            let is_free = *by < to;
            if is_free {
                free[*class].push(*place);
            }
            !is_free
        });
        self.marked = self.marked.max(to);
    }

    /// Below this everything is committed, and nothing is undone.
    pub(crate) fn marked(&self) -> Stamp {
        self.marked
    }

    /// The number of the chunk where the slot of a record is, whose row has this length; places the
    /// chunk if need be.
    fn chunk_of(&mut self, id: (Fid, Rid), length: usize, list: &mut List) -> Result<usize, NoRoom> {
        let first = first_of(id);
        if let Some((_, number)) = self.newest.filter(|(newest, _)| *newest == first) {
            return Ok(number);
        }
        let number = match self.tables.get(&first) {
            Some(number) => *number,
            None => {
                let slot = (HEADER + length).clamp(LEAST, MOST).next_multiple_of(16) as u64;
                let chunk = self.place_chunk(Use::Table(first.0, first.1), slot, SLOTS, list)?;
                self.add(first, Records::new(chunk, 0))
            }
        };
        self.newest = Some((first, number));
        Ok(number)
    }

    fn add(&mut self, first: (Fid, Rid), records: Records) -> usize {
        let number = self.records.len();
        self.records.push(records);
        self.tables.insert(first, number);
        number
    }

    /// A slot for a row that lies elsewhere.
    fn place_for(&mut self, class: usize, list: &mut List) -> Result<Place, NoRoom> {
        if let Some(place) = self.free[class].pop() {
            return Ok(place);
        }
        let size = SHORTEST << class;
        let chunk = self.place_chunk(Use::Overflow, size, (CHUNK / size).max(1) as u32, list)?;
        self.free[class].extend((1..chunk.slots).rev().map(|slot| chunk.slot_at(slot)));
        Ok(chunk.place)
    }

    /// Places a chunk, and enters it into the directory.
    fn place_chunk(&mut self, used_for: Use, slot: u64, slots: u32, list: &mut List) -> Result<Chunk, NoRoom> {
        if self.chunks >= self.capacity {
            return Err(NoRoom::Directory);
        }
        let bytes = slot * u64::from(slots);
        let arena = self.arenas.iter_mut().find(|arena| arena.length - arena.used >= bytes);
        let arena = arena.ok_or(NoRoom::Arena { bytes })?;
        let chunk = Chunk { used_for, place: Place { region: arena.region, offset: arena.used }, slot, slots };
        arena.used += bytes;
        // An entry that was never used, or was undone, is zero.
        list.push(Chunk::entry(self.chunks), &chunk.encode(self.chunks), &[0; ENTRY]);
        self.chunks += 1;
        Ok(chunk)
    }
}

/// The first record of a record's chunk.
fn first_of((fid, rid): (Fid, Rid)) -> (Fid, Rid) {
    (fid, Rid(rid.0 - rid.0 % u64::from(SLOTS)))
}

/// The smallest size of slots for rows elsewhere that has room for this many bytes.
pub(crate) fn class_of(bytes: u64) -> usize {
    bytes.div_ceil(SHORTEST).next_power_of_two().trailing_zeros() as usize
}
