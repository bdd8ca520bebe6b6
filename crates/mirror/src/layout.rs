//! What lies where in a mirror's memory, on the side of the primary, and what is to be written
//! there for a change.

use std::{collections::HashMap, mem, ops::Range};

use freshet_base::{Fid, Rid, Stamp};
use freshet_fabric::Place;

use crate::{
    Mirror,
    directory::{Chunk, Use},
    slot::{self, HEADER, LEAST, LONGEST, MOST, Reference},
};

/// How many records a chunk of a table has.
pub(crate) const SLOTS: u32 = if cfg!(test) { 8 } else { 4096 };
/// Rows that lie elsewhere do so in slots of this size, or of twice as much as often as needed.
pub(crate) const SHORTEST: u64 = 512;
/// About how many bytes a chunk of such rows has, unless one of them is longer.
const CHUNK: u64 = if cfg!(test) { 2048 } else { 256 << 10 };
/// How many sizes exist: up to [`LONGEST`].
const CLASSES: usize = 22;
/// Bytes that did not change are written too where that spares a packet, whose headers are as long.
const GAP: usize = 64;

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
    /// The row that its slot has now, where that is known.
    pub before: Option<&'r [u8]>,
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
    #[error("a mirror's directory has no room for another chunk: give it more")]
    Directory,
    /// A row cannot be as long.
    #[error("a row of {bytes} bytes is too long for a mirror")]
    Row {
        /// How long it is.
        bytes: usize,
    },
}

/// What is to be written, one after another.
#[derive(Debug, Default)]
pub struct List {
    bytes: Vec<u8>,
    /// Where to, from where in `bytes`, and whether that writes over something.
    writes: Vec<(Place, Range<usize>, bool)>,
}

impl List {
    /// The writes.
    pub fn writes(&self) -> impl Iterator<Item = (Place, &[u8])> {
        self.writes.iter().map(|(to, range, _)| (*to, &self.bytes[range.clone()]))
    }

    /// Where bytes are written over that may be wanted again, and how many.
    pub(crate) fn destroyed(&self) -> impl Iterator<Item = (Place, usize)> {
        self.writes.iter().filter(|(.., destroys)| *destroys).map(|(to, range, _)| (*to, range.len()))
    }

    /// Appends the writes of another list.
    pub(crate) fn append(&mut self, other: &Self) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        let moved = other.writes.iter().map(|(to, at, destroys)| (*to, begin + at.start..begin + at.end, *destroys));
        self.writes.extend(moved);
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.writes.clear();
    }

    pub(crate) fn push(&mut self, to: Place, bytes: &[u8]) {
        self.push_over(to, bytes, true);
    }

    fn push_over(&mut self, to: Place, bytes: &[u8], destroys: bool) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.writes.push((to, begin..self.bytes.len(), destroys));
    }

    /// Of a slot at `to`, what differs from when its row was `before`, which is as long as it is
    /// now: the header, and the words that are not the same.
    fn push_changes(&mut self, to: Place, slot: &[u8], before: &[u8]) {
        let mut range = 0..HEADER;
        let mut push = |range: Range<usize>| {
            self.push(Place { offset: to.offset + range.start as u64, ..to }, &slot[range]);
        };
        for at in (HEADER..slot.len()).step_by(8) {
            let end = slot.len().min(at + 8);
            if slot[at..end] == before[at - HEADER..end - HEADER] {
                continue;
            }
            if at > range.end + GAP {
                push(mem::replace(&mut range, at..end));
            }
            range.end = end;
        }
        push(range);
    }
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

/// The primary's view of the memory of its mirrors, which all have the same.
#[derive(Debug)]
pub struct Layout {
    /// How many entries the directory has room for, and how many it has.
    capacity: u32,
    chunks: u32,
    arenas: Vec<Arena>,
    tables: HashMap<(Fid, Rid), Chunk>,
    /// Slots for rows that lie elsewhere, by size.
    free: [Vec<Place>; CLASSES],
    /// Where such rows lie.
    long: Longs,
    /// Where rows lay that were replaced, and what by.
    replaced: Vec<(Stamp, Long)>,
}

impl Layout {
    /// Nothing yet, in a memory whose directory has room for this number of chunks.
    pub fn new(capacity: u32) -> Self {
        Self {
            capacity,
            chunks: 0,
            arenas: Vec::new(),
            tables: HashMap::new(),
            free: Default::default(),
            long: Longs::new(),
            replaced: Vec::new(),
        }
    }

    /// That of a memory which another node has written.
    ///
    /// # Errors
    /// [`crate::Damaged`].
    pub fn of(mirror: &Mirror) -> Result<Self, crate::Damaged> {
        let mut layout = Self::new(mirror.capacity());
        mirror.lengths().for_each(|(region, length)| layout.grow(region, length));
        let mut rows = Vec::new();
        for chunk in mirror.chunks() {
            layout.chunks += 1;
            let arena = layout.arenas.iter_mut().find(|arena| arena.region == chunk.place.region);
            if let (Some(arena), Some(bytes)) = (arena, chunk.bytes()) {
                arena.used = arena.used.max(chunk.place.offset + bytes);
            }
            match chunk.used_for {
                Use::Table(fid, first) => {
                    layout.tables.insert((fid, first), *chunk);
                }
                Use::Overflow => rows.extend((0..chunk.slots).map(|slot| (class_of(chunk.slot), chunk.slot_at(slot)))),
            }
        }
        layout.long = mirror.long()?;
        let taken: Vec<_> = layout.long.values().map(|(_, place)| (place.region, place.offset)).collect();
        let taken: std::collections::HashSet<_> = taken.into_iter().collect();
        for (class, place) in rows {
            if !taken.contains(&(place.region, place.offset)) {
                layout.free[class].push(place);
            }
        }
        Ok(layout)
    }

    /// There is another arena: this region, with this many bytes.
    pub fn grow(&mut self, region: usize, bytes: u64) {
        self.arenas.push(Arena { region, used: 0, length: bytes });
    }

    /// How many bytes of the arenas no chunk has.
    pub fn unused(&self) -> u64 {
        self.arenas.iter().map(|arena| arena.length - arena.used).sum()
    }

    /// Appends to `list` what has to be written for a change.
    ///
    /// # Errors
    /// [`NoRoom`]; it can be tried again with the same list, which may have got what was placed.
    pub fn put(&mut self, record: &Record<'_>, list: &mut List) -> Result<(), NoRoom> {
        let id = (record.fid, record.rid);
        let length = record.row.map_or(0, <[u8]>::len);
        if length > LONGEST {
            return Err(NoRoom::Row { bytes: length });
        }
        let chunk = self.chunk_of(id, length, list)?;
        let to = chunk.slot_at((record.rid.0 % u64::from(SLOTS)) as u32);
        let fits = (HEADER + length) as u64 <= chunk.slot;
        let mut bytes = Vec::with_capacity(HEADER + length);
        let mut elsewhere = None;
        match record.row {
            Some(row) if fits => slot::put_row(id, record.address, row, &mut bytes),
            Some(row) => {
                let class = class_of(length as u64);
                let place = self.place_for(class, list)?;
                // Nothing that is needed lies there.
                list.push_over(place, row, false);
                elsewhere = Some((class, place));
                let reference = Reference { place, crc: crc32c::crc32c(row) };
                slot::put_reference(id, record.address, length, reference, &mut bytes);
            }
            None => slot::put_deletion(id, record.address, &mut bytes),
        }
        let was_elsewhere = match elsewhere {
            Some(long) => self.long.insert(id, long),
            None => self.long.remove(&id),
        };
        // A row that is as long as one which lies in the slot has lain there, too.
        match record.before.filter(|before| record.row.is_some() && fits && before.len() == length) {
            Some(before) => list.push_changes(to, &bytes, before),
            None => list.push(to, &bytes),
        }
        self.replaced.extend(was_elsewhere.map(|long| (record.address, long)));
        Ok(())
    }

    /// Everything below `to` is committed: rows that it has replaced are needed no more.
    pub fn committed(&mut self, to: Stamp) {
        let Self { replaced, free, .. } = self;
        replaced.retain(|(by, (class, place))| {
            let is_free = *by < to;
            if is_free {
                free[*class].push(*place);
            }
            !is_free
        });
    }

    /// The chunk that has the slot of a record whose row has this length; a new one if need be.
    fn chunk_of(&mut self, (fid, rid): (Fid, Rid), length: usize, list: &mut List) -> Result<Chunk, NoRoom> {
        let first = Rid(rid.0 - rid.0 % u64::from(SLOTS));
        if let Some(chunk) = self.tables.get(&(fid, first)) {
            return Ok(*chunk);
        }
        let slot = (HEADER + length).clamp(LEAST, MOST).next_multiple_of(16) as u64;
        let chunk = self.place(Use::Table(fid, first), slot, SLOTS, list)?;
        self.tables.insert((fid, first), chunk);
        Ok(chunk)
    }

    /// A slot for a row that lies elsewhere.
    fn place_for(&mut self, class: usize, list: &mut List) -> Result<Place, NoRoom> {
        if let Some(place) = self.free[class].pop() {
            return Ok(place);
        }
        let size = SHORTEST << class;
        let chunk = self.place(Use::Overflow, size, (CHUNK / size).max(1) as u32, list)?;
        self.free[class].extend((1..chunk.slots).rev().map(|slot| chunk.slot_at(slot)));
        Ok(chunk.place)
    }

    /// Places a chunk, and enters it into the directory.
    fn place(&mut self, used_for: Use, slot: u64, slots: u32, list: &mut List) -> Result<Chunk, NoRoom> {
        if self.chunks >= self.capacity {
            return Err(NoRoom::Directory);
        }
        let bytes = slot * u64::from(slots);
        let arena = self.arenas.iter_mut().find(|arena| arena.length - arena.used >= bytes);
        let arena = arena.ok_or(NoRoom::Arena { bytes })?;
        let chunk = Chunk { used_for, place: Place { region: arena.region, offset: arena.used }, slot, slots };
        arena.used += bytes;
        list.push(Chunk::entry(self.chunks), &chunk.encode(self.chunks));
        self.chunks += 1;
        Ok(chunk)
    }
}

/// The smallest size of slots for rows elsewhere that has room for this many bytes.
pub(crate) fn class_of(bytes: u64) -> usize {
    bytes.div_ceil(SHORTEST).next_power_of_two().trailing_zeros() as usize
}
