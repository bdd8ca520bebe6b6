//! The chunks of a mirror's memory, and the slots in them.

use std::collections::BTreeMap;

use freshet_base::{Fid, Rid};
use freshet_fabric::Place;

use crate::{
    Damaged,
    directory::{ARENAS, Chunk, DIRECTORY, ENTRY, Use},
    layout::{FEWEST, SLOTS},
    sizes::{CLASSES, class_of, size_of},
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
pub(crate) type Found = (Header, Option<Place>);

/// The chunks of the directory.
#[derive(Default)]
pub(crate) struct Chunks {
    all: Vec<Chunk>,
    /// Their numbers, by where they begin, and by the first of their records.
    by_place: BTreeMap<(usize, u64), u32>,
    tables: BTreeMap<(Fid, Rid), u32>,
}

impl Chunks {
    /// How many chunks a directory has room for. In one that is longer than any is, the rest is not
    /// used.
    pub fn capacity(memory: &(impl Lengths + ?Sized)) -> u32 {
        let entries = memory.length(0).saturating_sub(DIRECTORY) / ENTRY as u64;
        u32::try_from(entries).unwrap_or(u32::MAX)
    }

    /// Reads the directory.
    pub fn read(memory: &(impl Bytes + ?Sized)) -> Result<Self, Damaged> {
        let mut chunks = Self::default();
        for number in 0..Self::capacity(memory) {
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
        let chunk = chunk.filter(|chunk| is_possible(chunk, memory) && self.is_apart(chunk)).ok_or(damaged)?;
        self.all.push(chunk);
        self.enter(number);
        Ok(())
    }

    /// Takes in what a batch has written as the entry of a chunk: of a new one, or of one that is
    /// used for something else from now on.
    pub fn change(
        &mut self,
        memory: &(impl Lengths + ?Sized),
        number: u32,
        entry: &[u8; ENTRY],
    ) -> Result<(), Damaged> {
        let Some(before) = self.all.get(number as usize).copied() else { return self.add(memory, number, entry) };
        let damaged = Damaged::Entry { number };
        let chunk = Chunk::decode(number, entry).ok_or(damaged)?;
        if chunk == before {
            return Ok(());
        }
        let Place { region, offset } = before.place;
        self.by_place.remove(&(region, offset));
        if let Use::Table(fid, first) = before.used_for {
            self.tables.remove(&(fid, first));
        }
        let stays = chunk.place == before.place && chunk.bytes == before.bytes;
        if !stays || !is_possible(&chunk, memory) || !self.is_apart(&chunk) {
            self.enter(number);
            return Err(damaged);
        }
        self.all[number as usize] = chunk;
        self.enter(number);
        Ok(())
    }

    /// Makes a chunk that is there to be found.
    fn enter(&mut self, number: u32) {
        let Chunk { place, used_for, .. } = self.all[number as usize];
        self.by_place.insert((place.region, place.offset), number);
        if let Use::Table(fid, first) = used_for {
            self.tables.insert((fid, first), number);
        }
    }

    /// Whether a chunk, which is possible, shares nothing with those that are there.
    fn is_apart(&self, chunk: &Chunk) -> bool {
        let Place { region, offset } = chunk.place;
        let before = self.by_place.range(..(region, chunk.end())).next_back();
        let lies_apart = before.is_none_or(|(_, before)| {
            let before = &self.all[*before as usize];
            before.place.region != region || before.end() <= offset
        });
        let Use::Table(fid, first) = chunk.used_for else { return lies_apart };
        let before = self.tables.range(..(fid, Rid(chunk.rids().end))).next_back();
        lies_apart
            && before
                .is_none_or(|((table, _), before)| *table != fid || self.all[*before as usize].rids().end <= first.0)
    }

    /// All of them, as the directory has them.
    pub fn all(&self) -> &[Chunk] {
        &self.all
    }

    /// Where chunks begin and end in a region, in their order.
    pub fn in_region(&self, region: usize) -> impl Iterator<Item = (u64, u64)> {
        let of = self.by_place.range((region, 0)..(region + 1, 0));
        of.map(|((_, offset), number)| (*offset, self.all[*number as usize].end()))
    }

    /// The chunk that has the slot of a record.
    pub fn of(&self, (fid, rid): (Fid, Rid)) -> Option<&Chunk> {
        let ((table, _), number) = self.tables.range(..=(fid, rid)).next_back()?;
        let chunk = &self.all[*number as usize];
        (*table == fid && chunk.rids().contains(&rid.0)).then_some(chunk)
    }

    /// The number of the chunk that has the byte at a place, and in which of its slots that is.
    pub fn at(&self, place: Place) -> Option<(u32, u32)> {
        let ((region, begin), number) = self.by_place.range(..=(place.region, place.offset)).next_back()?;
        let chunk = &self.all[*number as usize];
        let slot = (place.offset - begin.min(&place.offset)).checked_div(chunk.slot)?;
        (*region == place.region && slot < u64::from(chunk.slots)).then_some((*number, slot as u32))
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
        let at = chunk.slot_at((id.1.0 - chunk.rids().start) as u32);
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
    ) -> Result<Option<Place>, Damaged> {
        let damaged = Damaged::Record { fid: id.0, rid: id.1 };
        let Some(reference) = header.reference(&row[begin..]) else { return Ok(None) };
        let to = reference.place;
        let (chunk, _) = self.elsewhere(to).ok_or(damaged)?;
        if header.length() as u64 > self.all[chunk as usize].slot {
            return Err(damaged);
        }
        row.resize(begin + header.length(), 0);
        memory.load(to, &mut row[begin..]);
        if crc32c::crc32c(&row[begin..]) != reference.crc {
            return Err(damaged);
        }
        Ok(Some(to))
    }

    /// The chunk's number, and the slot's in it, for rows elsewhere, if such a slot begins there.
    pub fn elsewhere(&self, place: Place) -> Option<(u32, u32)> {
        let (number, slot) = self.at(place)?;
        let chunk = &self.all[number as usize];
        (chunk.used_for == Use::Overflow && chunk.slot_at(slot) == place).then_some((number, slot))
    }
}

/// Whether a chunk lies in an arena, at whole words, and has slots as there are.
fn is_possible(chunk: &Chunk, memory: &(impl Lengths + ?Sized)) -> bool {
    let Chunk { place: Place { region, offset }, bytes, slot, slots, .. } = *chunk;
    let length = if region < ARENAS { 0 } else { memory.length(region) };
    let lies_inside = offset.checked_add(bytes).is_some_and(|end| end <= length);
    let has_room = slot.checked_mul(u64::from(slots)).is_some_and(|taken| taken <= bytes);
    let slots = match chunk.used_for {
        Use::Table(_, first) => {
            let sized = (LEAST as u64..=MOST as u64).contains(&slot) && slot.is_multiple_of(16);
            let counted = slots.is_power_of_two() && (FEWEST..=SLOTS).contains(&slots);
            sized && counted && first.0.is_multiple_of(u64::from(slots)) && first <= Rid::MAX
        }
        Use::Overflow => {
            let class = class_of(slot);
            class < CLASSES && size_of(class) == slot && slots > 0
        }
        Use::Free => slot == 0 && slots == 0,
    };
    lies_inside && has_room && slots && bytes > 0 && offset.is_multiple_of(8) && bytes.is_multiple_of(8)
}
