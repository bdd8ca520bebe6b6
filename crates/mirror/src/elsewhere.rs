//! Slots for rows that are too long for their records' slots.

use std::collections::{BTreeSet, HashMap};

use freshet_fabric::Place;

use crate::{
    List,
    directory::{Chunk, Use},
    layout::NoRoom,
    sizes::{CLASSES, class_of, size_of},
    space::{MOST_BYTES, Space},
};

/// How many bytes the first chunk of a size has, and later ones at most, unless a row is longer.
const FIRST_BYTES: u64 = if cfg!(test) { 512 } else { 4 << 10 };
const CHUNK_BYTES: u64 = if cfg!(test) { 2048 } else { 256 << 10 };

/// Where a row lies: in this slot of this chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Long {
    pub chunk: u32,
    pub slot: u32,
}

/// Those of one size.
#[derive(Clone, Debug, Default)]
struct Class {
    /// Chunks with slots that are free.
    open: BTreeSet<u32>,
    /// How many bytes all chunks have.
    bytes: u64,
}

/// Which slots are free.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    classes: Vec<Class>,
    /// By chunk.
    free: HashMap<u32, Vec<u32>>,
}

impl Elsewhere {
    pub fn new() -> Self {
        Self { classes: vec![Class::default(); CLASSES], free: HashMap::new() }
    }

    /// There is such a chunk, in which all slots are free.
    fn add(&mut self, number: u32, chunk: &Chunk) {
        let class = &mut self.classes[class_of(chunk.slot)];
        class.bytes += chunk.bytes;
        class.open.insert(number);
        self.free.insert(number, (0..chunk.slots).rev().collect());
    }

    /// There is such a chunk, with rows in it for which this is true.
    pub fn found(&mut self, number: u32, space: &mut Space, is_taken: impl Fn(u32) -> bool) {
        let chunk = *space.chunk(number);
        self.add(number, &chunk);
        if let Some(free) = self.free.get_mut(&number) {
            free.retain(|slot| !is_taken(*slot));
            match free.len() {
                0 => drop(self.classes[class_of(chunk.slot)].open.remove(&number)),
                free if free == chunk.slots as usize => space.emptied(number),
                _ => {}
            }
        }
    }

    /// A chunk is used for something else, which had only slots that were free.
    pub fn forget(&mut self, number: u32, chunk: &Chunk) {
        if chunk.used_for == Use::Overflow {
            let class = &mut self.classes[class_of(chunk.slot)];
            class.bytes -= chunk.bytes;
            class.open.remove(&number);
            self.free.remove(&number);
        }
    }

    /// A slot for a row that is as long. Those chunks are filled first that came first, so that
    /// others get empty.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn take(&mut self, length: usize, space: &mut Space, list: &mut List) -> Result<(Long, Place), NoRoom> {
        let class = class_of(length as u64);
        let number = match self.classes[class].open.first() {
            Some(number) => *number,
            None => self.place(class, space, list)?,
        };
        let free = self.free.get_mut(&number).expect("it has slots that are free");
        let slot = free.pop().expect("it has slots that are free");
        if free.is_empty() {
            self.classes[class].open.remove(&number);
        }
        space.filled(number);
        Ok((Long { chunk: number, slot }, space.chunk(number).slot_at(slot)))
    }

    /// The next chunk of a size is as long as all before it together.
    fn place(&mut self, class: usize, space: &mut Space, list: &mut List) -> Result<u32, NoRoom> {
        let size = size_of(class);
        let wanted = self.classes[class].bytes.clamp(FIRST_BYTES, CHUNK_BYTES).max(size) / size * size;
        let room = space.room(wanted, size, MOST_BYTES.max(size * 2))?;
        let slots = u32::try_from(room.bytes / size).unwrap_or(u32::MAX);
        let (number, before) = space.place(room, Use::Overflow, (size, slots), list);
        before.iter().for_each(|before| self.forget(number, before));
        self.add(number, &space.chunk(number).clone());
        Ok(number)
    }

    /// What lay there is not needed any more.
    pub fn give_back(&mut self, Long { chunk: number, slot }: Long, space: &mut Space) {
        let Some(free) = self.free.get_mut(&number) else { return };
        free.push(slot);
        let chunk = space.chunk(number);
        self.classes[class_of(chunk.slot)].open.insert(number);
        if free.len() == chunk.slots as usize {
            space.emptied(number);
        }
    }
}
