//! Reading a mirror's memory without the node that has written it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use freshet_base::{Fid, Rid, Stamp, sync::Ordering, words};
use freshet_fabric::{Place, memory::Region};

use crate::{
    directory::{COPIES, Chunk, DIRECTORY, ENTRY, MARK, Superblock, Use},
    layout::{Long, Longs, SHORTEST, SLOTS, class_of},
    slot::{HEADER, Header, LEAST, MOST},
};

/// The memory is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// It has no beginning.
    #[error("this memory is no mirror: its superblock is missing or damaged; let the node join again")]
    Superblock,
    /// An entry of the directory is impossible.
    #[error("entry {number} of a mirror's directory is damaged; let the node join again")]
    Entry {
        /// Which.
        number: u32,
    },
    /// A slot, or the row elsewhere that it speaks of, is not what was written there.
    #[error("record {} of table {} in a mirror's memory is damaged; let the node join again", .rid.0, .fid.0)]
    Record {
        /// Its table.
        fid: Fid,
        /// Its id.
        rid: Rid,
    },
}

/// A slot that was used, and where its row lies if that is elsewhere.
type Found = (Header, Option<Long>);

/// A mirror's memory, to be read.
pub struct Mirror {
    regions: Vec<Region>,
    superblock: Superblock,
    chunks: Vec<Chunk>,
    tables: HashMap<(Fid, Rid), Chunk>,
    /// Chunks of rows that lie elsewhere, by place.
    overflow: BTreeMap<(usize, u64), Chunk>,
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mirror({:?}, {} chunks)", self.superblock, self.chunk_count())
    }
}

fn length_of(region: &Region) -> u64 {
    region.words().len() as u64 * 8
}

fn load<const N: usize>(region: &Region, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    words::load(region.words(), at as usize, &mut bytes);
    bytes
}

impl Mirror {
    /// Reads superblock and directory. No node writes into the memory any more.
    ///
    /// # Errors
    /// [`Damaged`].
    pub fn open(regions: Vec<Region>) -> Result<Self, Damaged> {
        let head = regions.first().filter(|head| length_of(head) >= DIRECTORY).ok_or(Damaged::Superblock)?;
        let copies = COPIES.iter().filter_map(|at| Superblock::decode(&load(head, *at)));
        let superblock = copies.max_by_key(|copy| copy.sequence).ok_or(Damaged::Superblock)?;
        let capacity = (length_of(head) - DIRECTORY) / ENTRY as u64;
        let capacity = u32::try_from(capacity).map_err(|_| Damaged::Superblock)?;
        let (mut chunks, mut ended) = (Vec::new(), false);
        for number in 0..capacity {
            let bytes = load(head, Chunk::entry(number).offset);
            if bytes == [0; ENTRY] {
                ended = true;
                continue;
            }
            let chunk = Chunk::decode(number, &bytes).filter(|chunk| !ended && is_possible(chunk, &regions));
            chunks.push(chunk.ok_or(Damaged::Entry { number })?);
        }
        let mut mirror = Self { regions, superblock, chunks, tables: HashMap::new(), overflow: BTreeMap::new() };
        mirror.arrange()?;
        Ok(mirror)
    }

    /// Makes the chunks to be found. No two have the same bytes, nor the same records.
    fn arrange(&mut self) -> Result<(), Damaged> {
        let mut by_place = BTreeMap::new();
        for (number, chunk) in (0..).zip(&self.chunks) {
            let twice = by_place.insert((chunk.place.region, chunk.place.offset), (number, chunk)).is_some();
            let again = match chunk.used_for {
                Use::Table(fid, first) => self.tables.insert((fid, first), *chunk).is_some(),
                Use::Overflow => self.overflow.insert((chunk.place.region, chunk.place.offset), *chunk).is_some(),
            };
            if twice || again {
                return Err(Damaged::Entry { number });
            }
        }
        for ((_, (_, chunk)), ((region, offset), (number, _))) in by_place.iter().zip(by_place.iter().skip(1)) {
            let end = chunk.place.offset + chunk.bytes().expect("it was checked");
            if chunk.place.region == *region && end > *offset {
                return Err(Damaged::Entry { number: *number });
            }
        }
        Ok(())
    }

    /// Whose memory it is a mirror of.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Everything below is known to be committed.
    pub fn mark(&self) -> Stamp {
        Stamp(u64::from_le(self.regions[0].words()[MARK as usize / 8].load(Ordering::Acquire)))
    }

    pub(crate) fn capacity(&self) -> u32 {
        ((length_of(&self.regions[0]) - DIRECTORY) / ENTRY as u64) as u32
    }

    pub(crate) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// The arenas, and how long they are.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = (usize, u64)> {
        self.regions.iter().enumerate().skip(1).map(|(region, memory)| (region, length_of(memory)))
    }

    /// Appends the row of a record to `row`, and says where it is in the log. None when there is no
    /// such record.
    ///
    /// # Errors
    /// [`Damaged`].
    pub fn read(&self, fid: Fid, rid: Rid, row: &mut Vec<u8>) -> Result<Option<Stamp>, Damaged> {
        let first = Rid(rid.0 - rid.0 % u64::from(SLOTS));
        let Some(chunk) = self.tables.get(&(fid, first)) else { return Ok(None) };
        let found = self.slot(chunk, (fid, rid), row)?;
        Ok(found.filter(|(header, _)| !header.is_deleted()).map(|(header, _)| header.address))
    }

    /// Calls `visit` for each record of one chunk, of `0..chunk_count()`, deleted ones with no row.
    ///
    /// # Errors
    /// [`Damaged`].
    pub fn visit(&self, chunk: usize, mut visit: impl FnMut(Fid, Rid, Stamp, Option<&[u8]>)) -> Result<(), Damaged> {
        let Use::Table(fid, first) = self.chunks[chunk].used_for else { return Ok(()) };
        let mut row = Vec::new();
        for rid in (first.0..first.0 + u64::from(SLOTS)).map(Rid) {
            row.clear();
            if let Some((header, _)) = self.slot(&self.chunks[chunk], (fid, rid), &mut row)? {
                visit(fid, rid, header.address, (!header.is_deleted()).then_some(&row[..]));
            }
        }
        Ok(())
    }

    /// How many chunks there are.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Where rows lie that are too long for their slots. No two records have the same.
    pub(crate) fn long(&self) -> Result<Longs, Damaged> {
        let (mut long, mut taken, mut row) = (Longs::new(), HashSet::new(), Vec::new());
        for chunk in &self.chunks {
            let Use::Table(fid, first) = chunk.used_for else { continue };
            for rid in (first.0..first.0 + u64::from(SLOTS)).map(Rid) {
                row.clear();
                let Some((_, Some(found))) = self.slot(chunk, (fid, rid), &mut row)? else { continue };
                if !taken.insert((found.1.region, found.1.offset)) {
                    return Err(Damaged::Record { fid, rid });
                }
                long.insert((fid, rid), found);
            }
        }
        Ok(long)
    }

    /// A slot that was used: its header; its row goes to `row`, and where that lies is returned if
    /// it is elsewhere. Everything is copied before it is looked at.
    fn slot(&self, chunk: &Chunk, id: (Fid, Rid), row: &mut Vec<u8>) -> Result<Option<Found>, Damaged> {
        let damaged = Damaged::Record { fid: id.0, rid: id.1 };
        let place = chunk.slot_at((id.1.0 % u64::from(SLOTS)) as u32);
        let mut bytes = vec![0; chunk.slot as usize];
        words::load(self.regions[place.region].words(), place.offset as usize, &mut bytes);
        let (header, content) = bytes.split_first_chunk::<HEADER>().ok_or(damaged)?;
        let Some(header) = Header::of(header) else { return Ok(None) };
        let content = header.content().and_then(|length| content.get(..length)).ok_or(damaged)?;
        if !header.holds(id, content) {
            return Err(damaged);
        }
        let Some(reference) = header.reference(content) else {
            row.extend_from_slice(content);
            return Ok(Some((header, None)));
        };
        let (to, begin) = (reference.place, row.len());
        let elsewhere = self.overflow.range(..=(to.region, to.offset)).next_back().map(|(_, chunk)| chunk);
        let elsewhere = elsewhere.filter(|chunk| {
            let inside = to.offset - chunk.place.offset.min(to.offset);
            let is_slot = inside.is_multiple_of(chunk.slot) && inside / chunk.slot < u64::from(chunk.slots);
            chunk.place.region == to.region && is_slot && header.length() as u64 <= chunk.slot
        });
        let elsewhere = elsewhere.ok_or(damaged)?;
        row.resize(begin + header.length(), 0);
        words::load(self.regions[to.region].words(), to.offset as usize, &mut row[begin..]);
        if crc32c::crc32c(&row[begin..]) != reference.crc {
            return Err(damaged);
        }
        Ok(Some((header, Some((class_of(elsewhere.slot), to)))))
    }
}

/// Whether a chunk lies in an arena, at whole words, and has slots as there are.
fn is_possible(chunk: &Chunk, regions: &[Region]) -> bool {
    let Place { region, offset } = chunk.place;
    let length = regions.get(region).filter(|_| region > 0).map_or(0, length_of);
    let inside = chunk.bytes().and_then(|bytes| offset.checked_add(bytes)).is_some_and(|end| end <= length);
    let slots = match chunk.used_for {
        Use::Table(_, first) => {
            let sized = (LEAST as u64..=MOST as u64).contains(&chunk.slot) && chunk.slot.is_multiple_of(16);
            let counted = chunk.slots == SLOTS && first.0.is_multiple_of(u64::from(SLOTS));
            sized && counted && first.0.checked_add(u64::from(SLOTS)).is_some()
        }
        Use::Overflow => chunk.slot >= SHORTEST && chunk.slot.is_power_of_two() && chunk.slots > 0,
    };
    inside && slots && offset.is_multiple_of(8)
}
