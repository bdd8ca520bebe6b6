//! The chunks of a mirror's memory, and the slots in them.

use std::collections::{BTreeMap, HashMap};

use freshet_base::{Fid, Rid};
use freshet_fabric::Place;

use crate::{
    Damaged,
    directory::{ARENAS, Chunk, DIRECTORY, ENTRY, Use},
    layout::{CLASSES, Long, SHORTEST, SLOTS, class_of},
    slot::{HEADER, Header, LEAST, MOST},
};

/// How long the regions of a memory are.
pub(crate) trait Lengths {
    /// How long a region is; zero for one that does not exist.
    fn length(&self, region: usize) -> u64;
}

impl Lengths for [u64] {
    fn length(&self, region: usize) -> u64 {
        self.get(region).copied().unwrap_or(0)
    }
}

/// Memory that is read.
pub(crate) trait Bytes: Lengths {
    /// Copies what lies there, which is within the region.
    fn load(&self, from: Place, into: &mut [u8]);
}

/// A slot that was used, and where its row lies if that is elsewhere.
pub(crate) type Found = (Header, Option<Long>);

/// The chunks of the directory.
#[derive(Default)]
pub(crate) struct Chunks {
    all: Vec<Chunk>,
    by_place: BTreeMap<(usize, u64), Chunk>,
    tables: HashMap<(Fid, Rid), Chunk>,
}

impl Chunks {
    /// How many chunks a directory has room for.
    pub fn capacity(memory: &(impl Lengths + ?Sized)) -> Result<u32, Damaged> {
        let entries = memory.length(0).saturating_sub(DIRECTORY) / ENTRY as u64;
        u32::try_from(entries).map_err(|_| Damaged::Superblock)
    }

    /// Reads the directory.
    pub fn read(memory: &(impl Bytes + ?Sized)) -> Result<Self, Damaged> {
        let mut chunks = Self::default();
        for number in 0..Self::capacity(memory)? {
            let mut bytes = [0; ENTRY];
            memory.load(Chunk::entry(number), &mut bytes);
            if bytes != [0; ENTRY] {
                chunks.add(memory, number, &bytes)?;
            }
        }
        Ok(chunks)
    }

    /// Adds the next chunk: no two have the same bytes, nor the same records.
    pub fn add(&mut self, memory: &(impl Lengths + ?Sized), number: u32, entry: &[u8; ENTRY]) -> Result<(), Damaged> {
        let damaged = Damaged::Entry { number };
        let chunk = Chunk::decode(number, entry).filter(|_| self.all.len() == number as usize);
        let chunk = chunk.filter(|chunk| is_possible(chunk, memory)).ok_or(damaged)?;
        let Place { region, offset } = chunk.place;
        let end = offset + chunk.bytes().expect("it is possible");
        let before = self.by_place.range(..(region, end)).next_back().map(|(_, chunk)| chunk);
        let apart = before.is_none_or(|before| {
            let its_end = before.place.offset + before.bytes().expect("it was possible");
            before.place.region != region || its_end <= offset
        });
        let twice = match chunk.used_for {
            Use::Table(fid, first) => self.tables.insert((fid, first), chunk).is_some(),
            Use::Overflow => false,
        };
        if !apart || twice {
            return Err(damaged);
        }
        self.by_place.insert((region, offset), chunk);
        self.all.push(chunk);
        Ok(())
    }

    /// All of them, as the directory has them.
    pub fn all(&self) -> &[Chunk] {
        &self.all
    }

    /// Where chunks begin and end in a region, in their order.
    pub fn in_region(&self, region: usize) -> impl Iterator<Item = (u64, u64)> {
        let of = self.by_place.range((region, 0)..(region + 1, 0)).map(|(_, chunk)| chunk);
        of.map(|chunk| (chunk.place.offset, chunk.place.offset + chunk.bytes().expect("it was possible")))
    }

    /// The chunk that has the slot of a record.
    pub fn of(&self, (fid, rid): (Fid, Rid)) -> Option<&Chunk> {
        self.tables.get(&(fid, Rid(rid.0 - rid.0 % u64::from(SLOTS))))
    }

    /// The chunk that has the byte at a place, and in which of its slots that is.
    pub fn at(&self, place: Place) -> Option<(&Chunk, u32)> {
        let (_, chunk) = self.by_place.range(..=(place.region, place.offset)).next_back()?;
        let number = (place.offset - chunk.place.offset.min(place.offset)) / chunk.slot;
        let is_inside = chunk.place.region == place.region && number < u64::from(chunk.slots);
        is_inside.then_some((chunk, number as u32))
    }

    /// A slot that was used: its header; its row goes to `row`, and where that lies is returned if
    /// it is elsewhere, and bytes of no meaning if it is damaged. Everything is copied before it is
    /// looked at.
    pub fn slot(
        &self,
        memory: &(impl Bytes + ?Sized),
        chunk: &Chunk,
        id: (Fid, Rid),
        row: &mut Vec<u8>,
    ) -> Result<Option<Found>, Damaged> {
        let begin = row.len();
        match self.content(memory, chunk, id, row)? {
            Some(header) => Ok(Some((header, self.row(memory, header, id, (row, begin))?))),
            None => Ok(None),
        }
    }

    /// The same, but what goes to `row` is what the slot has: the row, or where that lies.
    pub fn content(
        &self,
        memory: &(impl Bytes + ?Sized),
        chunk: &Chunk,
        id: (Fid, Rid),
        row: &mut Vec<u8>,
    ) -> Result<Option<Header>, Damaged> {
        let damaged = Damaged::Record { fid: id.0, rid: id.1 };
        let (mut header, begin) = ([0; HEADER], row.len());
        let at = chunk.slot_at((id.1.0 % u64::from(SLOTS)) as u32);
        memory.load(at, &mut header);
        let Some(header) = Header::of(&header) else { return Ok(None) };
        let length = header.content().filter(|length| (HEADER + length) as u64 <= chunk.slot).ok_or(damaged)?;
        row.resize(begin + length, 0);
        memory.load(Place { offset: at.offset + HEADER as u64, ..at }, &mut row[begin..]);
        if !header.holds(id, &row[begin..]) {
            return Err(damaged);
        }
        Ok(Some(header))
    }

    /// Where the row lies, if that is elsewhere; it takes the place of what the slot has, which is
    /// in `row` from `begin` on.
    pub fn row(
        &self,
        memory: &(impl Bytes + ?Sized),
        header: Header,
        id: (Fid, Rid),
        (row, begin): (&mut Vec<u8>, usize),
    ) -> Result<Option<Long>, Damaged> {
        let damaged = Damaged::Record { fid: id.0, rid: id.1 };
        let Some(reference) = header.reference(&row[begin..]) else { return Ok(None) };
        let to = reference.place;
        let elsewhere = self.elsewhere(to).filter(|slot| header.length() as u64 <= *slot).ok_or(damaged)?;
        row.resize(begin + header.length(), 0);
        memory.load(to, &mut row[begin..]);
        if crc32c::crc32c(&row[begin..]) != reference.crc {
            return Err(damaged);
        }
        Ok(Some((class_of(elsewhere), to)))
    }

    /// How long the slot for rows elsewhere is that begins there, if one does.
    pub fn elsewhere(&self, place: Place) -> Option<u64> {
        let (chunk, number) = self.at(place)?;
        (chunk.used_for == Use::Overflow && chunk.slot_at(number) == place).then_some(chunk.slot)
    }
}

/// Whether a chunk lies in an arena, at whole words, and has slots as there are.
fn is_possible(chunk: &Chunk, memory: &(impl Lengths + ?Sized)) -> bool {
    let Place { region, offset } = chunk.place;
    let length = if region < ARENAS { 0 } else { memory.length(region) };
    let inside = chunk.bytes().and_then(|bytes| offset.checked_add(bytes)).is_some_and(|end| end <= length);
    let slots = match chunk.used_for {
        Use::Table(_, first) => {
            let sized = (LEAST as u64..=MOST as u64).contains(&chunk.slot) && chunk.slot.is_multiple_of(16);
            let counted = chunk.slots == SLOTS && first.0.is_multiple_of(u64::from(SLOTS));
            sized && counted && first.0.checked_add(u64::from(SLOTS)).is_some()
        }
        Use::Overflow => {
            let sized = chunk.slot >= SHORTEST && class_of(chunk.slot) < CLASSES;
            sized && chunk.slot.is_power_of_two() && chunk.slots > 0
        }
    };
    inside && slots && offset.is_multiple_of(8)
}
