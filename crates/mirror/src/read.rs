//! Reading a mirror's memory without the node that has written it.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use freshet_base::{Fid, Lsn, Rid, sync::Ordering, words};
use freshet_fabric::{
    Place,
    memory::{Region, Registered},
};

use crate::{
    chunks::{Bytes, Chunks, Found, Lengths},
    directory::{COPIES, Chunk, DIRECTORY, ENTRY, MARK, Superblock, Use},
    slot::Header,
};

/// The memory is not what it should be, or what was said of it. Who can do something about that
/// says what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// It has no beginning.
    #[error("this memory is no mirror: its superblock is missing, damaged, or of another version")]
    Superblock,
    /// What a mirror says of what lies where has another length than it says.
    #[error("a mirror's description of its memory ends too early, or too late")]
    Description,
    /// An entry of the directory is impossible.
    #[error("entry {number} of a mirror's directory is damaged")]
    Entry {
        /// Which.
        number: u32,
    },
    /// The undo ring has a batch, and lacks one before it.
    #[error("a mirror's undo ring lacks a batch before the one that ends at {to}, or a part of it")]
    Undo {
        /// Where that one ends.
        to: Lsn,
    },
    /// A slot, or the row elsewhere that it speaks of, is not what was written there.
    #[error("record {} of table {} in a mirror's memory is damaged", .rid.0, .fid.0)]
    Record {
        /// Its table.
        fid: Fid,
        /// Its id.
        rid: Rid,
    },
}

/// A mirror's memory, to be read.
pub struct Contents {
    regions: Vec<Region>,
    superblock: Superblock,
    chunks: Chunks,
    /// It is the state of the database with the log up to here.
    end: Lsn,
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contents({:?}, {} chunks)", self.superblock, self.chunk_count())
    }
}

impl Lengths for [Region] {
    fn length(&self, region: usize) -> u64 {
        self.get(region).map_or(0, |region| region.words().len() as u64 * 8)
    }
}

impl Bytes for [Region] {
    fn load(&self, from: Place, into: &mut [u8]) {
        words::load(self[from.region].words(), from.offset as usize, into);
    }
}

/// The newer copy of the superblock that is whole.
pub(crate) fn superblock(memory: &(impl Bytes + ?Sized)) -> Result<Superblock, Damaged> {
    if memory.length(0) < DIRECTORY {
        return Err(Damaged::Superblock);
    }
    let copies = COPIES.iter().filter_map(|offset| {
        let mut bytes = [0; ENTRY];
        memory.load(Place { region: 0, offset: *offset }, &mut bytes);
        Superblock::decode(&bytes)
    });
    copies.max_by_key(|copy| copy.sequence).ok_or(Damaged::Superblock)
}

/// Everything below is known to be committed in the mirror with this head.
pub fn mark_of(head: &dyn Registered) -> Lsn {
    // Acquire: the mark is written behind what it speaks of.
    Lsn(u64::from_le(head.words()[MARK as usize / 8].load(Ordering::Acquire)))
}

impl Contents {
    /// Reads superblock and directory. No node writes into the memory any more, and it was
    /// [recovered](crate::recover) up to `end`: what is newer is refused.
    ///
    /// # Errors
    /// [`Damaged`].
    pub fn open(regions: Vec<Region>, end: Lsn) -> Result<Self, Damaged> {
        let superblock = superblock(&regions[..])?;
        let chunks = Chunks::read(&regions[..])?;
        Ok(Self { regions, superblock, chunks, end })
    }

    /// Whose memory it is a mirror of.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Everything below is known to be committed.
    pub fn mark(&self) -> Lsn {
        mark_of(&*self.regions[0])
    }

    pub(crate) fn chunks(&self) -> &[Chunk] {
        self.chunks.all()
    }

    /// Appends the row of a record to `row`, and says where it is in the log. None when there is no
    /// such record.
    ///
    /// # Errors
    /// [`Damaged`].
    pub fn read(&self, fid: Fid, rid: Rid, row: &mut Vec<u8>) -> Result<Option<Lsn>, Damaged> {
        let Some(chunk) = self.chunks.of((fid, rid)) else { return Ok(None) };
        let found = self.slot(chunk, (fid, rid), row)?;
        Ok(found.filter(|(header, _)| !header.is_deleted()).map(|(header, _)| header.address))
    }

    /// The table whose records a chunk has, of `0..chunk_count()`, if it is one of a table.
    pub fn table(&self, chunk: usize) -> Option<Fid> {
        match self.chunks()[chunk].used_for {
            Use::Table(fid, _) => Some(fid),
            Use::Overflow | Use::Free => None,
        }
    }

    /// Calls `visit` for each record of one chunk, of `0..chunk_count()`, deleted ones with no row.
    ///
    /// # Errors
    /// [`Damaged`].
    pub fn visit(&self, chunk: usize, mut visit: impl FnMut(Fid, Rid, Lsn, Option<&[u8]>)) -> Result<(), Damaged> {
        let chunk = &self.chunks()[chunk];
        let Use::Table(fid, _) = chunk.used_for else { return Ok(()) };
        let mut row = Vec::new();
        for rid in chunk.rids().map(Rid) {
            row.clear();
            if let Some((header, _)) = self.slot(chunk, (fid, rid), &mut row)? {
                visit(fid, rid, header.address, (!header.is_deleted()).then_some(&row[..]));
            }
        }
        Ok(())
    }

    /// As [`Contents::visit`], of a memory where its feeder may be writing: records that have
    /// changed at or above the end are left out, as are those of a table that is dropped there;
    /// returns the newest of these addresses. `again` is asked when a record is not whole, whether
    /// to read it once more.
    ///
    /// # Errors
    /// [`Damaged`].
    pub fn visit_below(
        &self,
        chunk: usize,
        mut again: impl FnMut() -> bool,
        mut visit: impl FnMut(Rid, Lsn, Option<&[u8]>),
    ) -> Result<Option<Lsn>, Damaged> {
        let (number, chunk) = (chunk as u32, &self.chunks()[chunk]);
        let Use::Table(fid, _) = chunk.used_for else { return Ok(None) };
        let (mut row, mut newest) = (Vec::new(), None);
        for rid in chunk.rids().map(Rid) {
            let found = loop {
                match self.below(chunk, (fid, rid), &mut row) {
                    Err(_) if !self.is_there(number) => return self.dropped_at(fid, again),
                    Err(_) if again() => {}
                    found => break found?,
                }
            };
            match found {
                Some(header) if header.address >= self.end => newest = newest.max(Some(header.address)),
                Some(header) => visit(rid, header.address, (!header.is_deleted()).then_some(&row[..])),
                None => {}
            }
        }
        // What was not there may have been, before the chunk was used for something else.
        if self.is_there(number) { Ok(newest) } else { self.dropped_at(fid, again) }
    }

    /// Whether a chunk is still what it was. Those of a table are, until it is dropped.
    fn is_there(&self, number: u32) -> bool {
        let mut entry = [0; ENTRY];
        self.regions[..].load(Chunk::entry(number), &mut entry);
        entry == self.chunks()[number as usize].encode(number)
    }

    /// Where a table was dropped, in a memory where its feeder may be writing.
    fn dropped_at(&self, fid: Fid, mut again: impl FnMut() -> bool) -> Result<Option<Lsn>, Damaged> {
        let damaged = Damaged::Record { fid, rid: Rid(0) };
        let id = (Fid::CATALOG, fid.record().ok_or(damaged)?);
        let (chunk, mut row) = (self.chunks.of(id).ok_or(damaged)?, Vec::new());
        loop {
            match self.below(chunk, id, &mut row) {
                Err(_) if again() => {}
                found => return Ok(Some(found?.filter(Header::is_deleted).ok_or(damaged)?.address)),
            }
        }
    }

    /// The row of a record, if that is below the end. Others may lie where this does not know.
    fn below(&self, chunk: &Chunk, id: (Fid, Rid), row: &mut Vec<u8>) -> Result<Option<Header>, Damaged> {
        row.clear();
        let header = self.chunks.content(&self.regions[..], chunk, id, row)?;
        if let Some(header) = header.filter(|header| header.address < self.end) {
            self.chunks.row(&self.regions[..], header, id, (row, 0))?;
        }
        Ok(header)
    }

    fn slot(&self, chunk: &Chunk, id: (Fid, Rid), row: &mut Vec<u8>) -> Result<Option<Found>, Damaged> {
        match self.chunks.slot(&self.regions[..], chunk, id, row)? {
            Some((header, _)) if header.address >= self.end => Err(Damaged::Record { fid: id.0, rid: id.1 }),
            found => Ok(found),
        }
    }

    /// How many bytes the chunks have.
    pub fn bytes(&self) -> u64 {
        self.chunks().iter().map(|chunk| chunk.bytes).sum()
    }

    /// How many chunks there are.
    pub fn chunk_count(&self) -> usize {
        self.chunks().len()
    }

    /// What lies where, for the node that writes here next ([`crate::Layout::of`]). Reads all
    /// records, if some may lie elsewhere than in their slots.
    ///
    /// | bytes | little endian |
    /// |---|---|
    /// | 8 | how many chunks there are |
    /// | 64 each | their entries in the directory |
    /// | 8 | how many tables were dropped whose records are still here |
    /// | 8 each | these |
    /// | 24 each | records whose rows lie elsewhere: table and region (four bytes each), id, offset |
    ///
    /// # Errors
    /// [`Damaged`].
    pub fn description(&self) -> Result<Vec<u8>, Damaged> {
        let mut bytes = (self.chunks().len() as u64).to_le_bytes().to_vec();
        for (number, chunk) in (0..).zip(self.chunks()) {
            bytes.extend_from_slice(&chunk.encode(number));
        }
        let dropped = self.dropped()?;
        bytes.extend_from_slice(&(dropped.len() as u64).to_le_bytes());
        bytes.extend(dropped.iter().flat_map(|fid| u64::from(fid.0).to_le_bytes()));
        if self.chunks().iter().any(|chunk| chunk.used_for == Use::Overflow) {
            for ((fid, rid), place) in self.long()? {
                bytes.extend_from_slice(&fid.0.to_le_bytes());
                bytes.extend_from_slice(&(place.region as u32).to_le_bytes());
                bytes.extend_from_slice(&rid.0.to_le_bytes());
                bytes.extend_from_slice(&place.offset.to_le_bytes());
            }
        }
        Ok(bytes)
    }

    /// Tables that have chunks, and were dropped: their records in the catalog are gone.
    fn dropped(&self) -> Result<Vec<Fid>, Damaged> {
        let tables: HashSet<_> = (0..self.chunk_count()).filter_map(|chunk| self.table(chunk)).collect();
        let (mut dropped, mut row) = (Vec::new(), Vec::new());
        for fid in tables {
            let Some(id) = fid.record().map(|rid| (Fid::CATALOG, rid)) else { continue };
            let Some(chunk) = self.chunks.of(id) else { continue };
            row.clear();
            if self.slot(chunk, id, &mut row)?.is_some_and(|(header, _)| header.is_deleted()) {
                dropped.push(fid);
            }
        }
        Ok(dropped)
    }

    /// Where rows lie that are too long for their slots. No two records have the same.
    pub(crate) fn long(&self) -> Result<HashMap<(Fid, Rid), Place>, Damaged> {
        let (mut long, mut taken, mut row) = (HashMap::new(), HashSet::new(), Vec::new());
        for chunk in self.chunks() {
            let Use::Table(fid, _) = chunk.used_for else { continue };
            for rid in chunk.rids().map(Rid) {
                row.clear();
                let found = self.slot(chunk, (fid, rid), &mut row)?;
                let Some((_, Some(place))) = found else { continue };
                if !taken.insert((place.region, place.offset)) {
                    return Err(Damaged::Record { fid, rid });
                }
                long.insert((fid, rid), place);
            }
        }
        Ok(long)
    }
}
