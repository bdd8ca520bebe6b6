//! What chunks there are, and where there is room for more.

use std::collections::BTreeSet;

use freshet_fabric::Place;

use crate::{
    List,
    directory::{Chunk, ENTRY, Use},
    layout::NoRoom,
};

/// A chunk has no more bytes than this, unless a row in it is longer.
pub(crate) const MOST_BYTES: u64 = if cfg!(test) { 16 << 10 } else { 1 << 20 };
/// Where there is no room for what is wanted, a chunk gets down to this part of it.
const PART: u64 = 8;

#[derive(Debug)]
struct Arena {
    region: usize,
    used: u64,
    length: u64,
}

/// Arenas, and the chunks in them.
#[derive(Debug)]
pub(crate) struct Space {
    /// How many entries the directory has room for.
    capacity: u32,
    arenas: Vec<Arena>,
    /// By number.
    chunks: Vec<Chunk>,
    /// Those in which nothing is that is needed, by length.
    empty: BTreeSet<(u64, u32)>,
}

/// Where a chunk may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    place: Place,
    pub bytes: u64,
    /// The number of the chunk that is there, and is not needed.
    number: Option<u32>,
}

impl Space {
    /// Nothing yet, in a memory whose directory has room for this number of chunks.
    pub fn new(capacity: u32) -> Self {
        Self { capacity, arenas: Vec::new(), chunks: Vec::new(), empty: BTreeSet::new() }
    }

    /// There is another arena.
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

    /// The chunk of this number.
    pub fn chunk(&self, number: u32) -> &Chunk {
        &self.chunks[number as usize]
    }

    /// The next chunk is this one, in a memory that others have written.
    pub fn found(&mut self, chunk: Chunk) {
        if let Some(arena) = self.arenas.iter_mut().find(|arena| arena.region == chunk.place.region) {
            arena.used = arena.used.max(chunk.end());
        }
        self.chunks.push(chunk);
        if chunk.used_for == Use::Free {
            self.emptied(self.chunks.len() as u32 - 1);
        }
    }

    /// Nothing that is in a chunk is needed any more, whatever is undone.
    pub fn emptied(&mut self, number: u32) {
        self.empty.insert((self.chunk(number).bytes, number));
    }

    /// Something is in it again.
    pub fn filled(&mut self, number: u32) {
        let bytes = self.chunk(number).bytes;
        self.empty.remove(&(bytes, number));
    }

    /// Where there are `wanted` bytes for a chunk, or as many as there are, but `least`. An empty
    /// chunk is taken first, if it has no more bytes than `most`.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn room(&self, wanted: u64, least: u64, most: u64) -> Result<Room, NoRoom> {
        let empty = |(bytes, number): &(u64, u32)| {
            let place = self.chunk(*number).place;
            (*bytes <= most).then_some(Room { place, bytes: *bytes, number: Some(*number) })
        };
        let has_entry = self.chunks.len() < self.capacity as usize;
        let left = |arena: &&Arena| arena.length - arena.used;
        let within = |arena: &Arena, bytes| {
            let place = Place { region: arena.region, offset: arena.used };
            Room { place, bytes, number: None }
        };
        let arenas = || self.arenas.iter().filter(|_| has_entry);
        let least = (wanted / PART).max(least);
        let found = self.empty.range((wanted, 0)..).next().and_then(empty);
        let found = found
            .or_else(|| arenas().find(|arena| left(arena) >= wanted).map(|arena| within(arena, wanted)))
            .or_else(|| self.empty.range((least.min(wanted), 0)..(wanted, 0)).next_back().and_then(empty))
            .or_else(|| {
                let arena = arenas().max_by_key(left).filter(|arena| left(arena) >= least)?;
                Some(within(arena, left(&arena) / 8 * 8))
            });
        found.ok_or(if has_entry { NoRoom::Arena { bytes: wanted } } else { NoRoom::Directory })
    }

    /// Places a chunk where there is room, and enters it into the directory. Returns its number,
    /// and the chunk whose place it takes.
    pub fn place(
        &mut self,
        room: Room,
        used_for: Use,
        (slot, slots): (u64, u32),
        list: &mut List,
    ) -> (u32, Option<Chunk>) {
        let chunk = Chunk { used_for, place: room.place, bytes: room.bytes, slot, slots };
        let Some(number) = room.number else {
            let chunk = Chunk { bytes: slot * u64::from(slots), ..chunk };
            let number = self.chunks.len() as u32;
            if let Some(arena) = self.arenas.iter_mut().find(|arena| arena.region == room.place.region) {
                arena.used += chunk.bytes;
            }
            self.chunks.push(chunk);
            // An entry that was never used, or was undone, is zero.
            list.push(Chunk::entry(number), &chunk.encode(number), &[0; ENTRY]);
            return (number, None);
        };
        self.filled(number);
        let before = self.change(number, chunk, list);
        if let Use::Table(..) = used_for {
            // Slots that were never used are zeros. What was there is not needed.
            list.push(chunk.place, &vec![0; (slot * u64::from(slots)) as usize], &[]);
        }
        (number, Some(before))
    }

    /// A chunk is used for nothing, when what says so is committed.
    pub fn give_up(&mut self, number: u32, list: &mut List) {
        let chunk = Chunk { used_for: Use::Free, slot: 0, slots: 0, ..*self.chunk(number) };
        self.change(number, chunk, list);
    }

    fn change(&mut self, number: u32, chunk: Chunk, list: &mut List) -> Chunk {
        let before = std::mem::replace(&mut self.chunks[number as usize], chunk);
        list.push(Chunk::entry(number), &chunk.encode(number), &before.encode(number));
        before
    }
}
