//! The undo ring (Active-Memory, section 4.4 and figure 5): what the bytes were that a batch writes
//! over, written before them. Only the node that feeds the mirror writes there, and it alone knows
//! where the ring begins and ends; a recovery finds the entries by their numbers.
//!
//! | entry, of fixed size | little endian |
//! |---|---|
//! | 0..8   | number of the batch, which is never zero (LogID) |
//! | 8..12  | which of the batch's entries this is |
//! | 12..16 | bit 0: the batch's last one (IsLast); a batch that does not fit an entry has follow-ups; bit 1: the batch ends within a transaction |
//! | 16..32 | where the batch begins and ends in the log |
//! | 32..36 | how many bytes of changes follow |
//! | 36..40 | CRC-32C of the rest of the entry |
//! | 40..   | changes: region and length (four bytes each), offset, and the old bytes, padded to eight |
//! | behind | the number again (LogID_Check) |
//!
//! An entry does not say whose it is: a feed begins with a ring in which none is left
//! ([`crate::begin_feed`]), and the superblock names who feeds.
//!
//! The paper trusts the number at the end, since cards write in increasing order of addresses. Here
//! the checksum says whether an entry is whole; the number behind it is looked at first.
//! Its flag IsCommitted is the mark, one word for all entries: those that end at it or below are
//! committed.
//!
//! A transaction may write over more than the ring has room for. In the paper its log is sent to
//! each replica, as a message, which applies it when it is all there (section 4.4). That replica
//! has to have room for all of the log. Here the ring gets another region, with room for what the
//! transaction writes over, which is less: so such a transaction goes the way of all others, and
//! can be undone as they can, wherever it is cut off. The head says which regions belong to the
//! ring; the mirror notes that before the feeder hears of the region. What the ring has got, it
//! keeps.
//!
//! A transaction of several blocks may go in several batches. All of them are kept, or undone. So
//! the mark stands where a batch and a transaction end, and a recovery keeps nothing behind the
//! last such end. Nor is more acknowledged ([`Extent::kept_to`]).

use std::collections::VecDeque;

use freshet_base::{Lsn, sync::Ordering};
use freshet_fabric::{Place, Write, landing::Landing, memory::Region};

use crate::{
    List,
    chunks::Lengths,
    directory::{ARENAS, DIRECTORY, MORE_UNDO, MOST_UNDO, UNDO},
    half, word,
};

/// Bytes of an entry.
pub const ENTRY: usize = if cfg!(test) { 256 } else { 4096 };
const HEADER: usize = 40;
/// Bytes of a change before the old ones.
pub const CHANGE: usize = 16;
/// Bytes of an entry that are no changes.
pub const FRAME: usize = HEADER + 8;
/// Bytes of changes that an entry has room for.
const ROOM: usize = ENTRY - FRAME;
const LAST: u32 = 1;
const CONTINUES: u32 = 2;

/// The ring has no room before earlier batches are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a batch needs {needed} entries of a mirror's undo ring, where {free} of {all} are free")]
pub struct RingFull {
    /// How many entries it needs.
    pub needed: usize,
    /// How many are free.
    pub free: usize,
    /// How many there are.
    pub all: usize,
}

impl RingFull {
    /// How many bytes more a ring has to have at least, for the batch to have room beside what it
    /// holds.
    pub fn lacking_bytes(&self) -> u64 {
        ((self.needed - self.free) * ENTRY) as u64
    }
}

/// A batch, as the ring has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the log.
    pub from: Lsn,
    /// Where it ends.
    pub to: Lsn,
    /// A transaction continues behind it.
    pub continues: bool,
}

impl Extent {
    /// When it has landed, each recovery keeps everything up to here, so that it can be
    /// acknowledged. None if a transaction continues behind: without the rest all of the batch is
    /// undone, with the transactions that end in it.
    pub fn kept_to(&self) -> Option<Lsn> {
        (!self.continues).then_some(self.to)
    }
}

/// An entry of the ring: its region, and which one there.
#[derive(Clone, Copy, Debug)]
struct Slot {
    region: u32,
    number: u32,
}

impl Slot {
    fn place(self) -> Place {
        Place { region: self.region as usize, offset: u64::from(self.number) * ENTRY as u64 }
    }
}

/// The feeder's view of the ring.
#[derive(Debug)]
pub struct Ring {
    entries: usize,
    /// Those that can be used, the next first; what was used longest ago comes first.
    free: VecDeque<Slot>,
    /// Those in use, the oldest first.
    used: VecDeque<Slot>,
    /// The batches that have them, and how many.
    batches: VecDeque<(Extent, usize)>,
    /// The number of the newest batch.
    number: u64,
    /// An entry that is being made.
    entry: Vec<u8>,
}

impl Ring {
    /// A ring of this many bytes, in which nothing is.
    pub fn new(bytes: u64) -> Self {
        let (free, used, batches) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let mut ring = Self { entries: 0, free, used, batches, number: 0, entry: Vec::new() };
        ring.grow(UNDO, bytes);
        ring
    }

    /// The ring of a memory, in which nothing is; and the lengths of the memory's regions, but for
    /// those of more of the ring, which are zero ([`Layout::of`](crate::Layout::of)).
    pub fn of(memory: &[Region]) -> (Self, Vec<u64>) {
        let mut lengths: Vec<_> = (0..memory.len()).map(|region| memory.length(region)).collect();
        let mut ring = Self::new(lengths[UNDO]);
        for region in undo_regions(memory).into_iter().skip(1) {
            ring.grow(region, std::mem::take(&mut lengths[region]));
        }
        (ring, lengths)
    }

    /// This region of zeros, of this many bytes, belongs to it as well: a transaction writes over
    /// more than it has room for.
    pub fn grow(&mut self, region: usize, bytes: u64) {
        let entries = u32::try_from(bytes / ENTRY as u64).unwrap_or(u32::MAX);
        self.free.extend((0..entries).map(|number| Slot { region: region as u32, number }));
        self.entries += entries as usize;
    }

    /// The next entry, of those that were counted.
    fn take(&mut self) -> Place {
        let slot = self.free.pop_front().expect("they were counted");
        self.used.push_back(slot);
        slot.place()
    }

    /// Appends to `list` the undo entries of a batch that writes what is in `writes`. They go to
    /// the mirror before that, in one list with it.
    ///
    /// A record that changes several times in a batch comes once in `writes`, as the batch leaves
    /// it. A recovery sees whether a slot is whole and is of the batch, not which of the batch's
    /// changes it has: with two of them, a batch could seem to have landed before its last write.
    ///
    /// # Errors
    /// [`RingFull`]; nothing has changed then.
    pub fn enter(&mut self, batch: Extent, writes: &List, list: &mut List) -> Result<(), RingFull> {
        self.enter_all(batch, writes.destroyed(writes), list)
    }

    /// The same of a batch that writes over what `destroyed` says.
    pub(crate) fn enter_all<'w>(
        &mut self,
        batch: Extent,
        destroyed: impl Iterator<Item = (Place, &'w [u8])> + Clone,
        list: &mut List,
    ) -> Result<(), RingFull> {
        debug_assert!(is_written_once(destroyed.clone()), "a record comes twice in a batch of a mirror");
        let needed = count(destroyed.clone());
        let free = self.free.len();
        if needed > free {
            return Err(RingFull { needed, free, all: self.entries });
        }
        self.number += 1;
        let mut bytes = std::mem::take(&mut self.entry);
        let mut entry = Entering { number: self.number, part: 0, batch, bytes: &mut bytes };
        entry.begin();
        for (mut place, mut old) in destroyed {
            while !old.is_empty() {
                let (now, rest) = old.split_at(old.len().min(entry.room()));
                if now.is_empty() {
                    list.push(self.take(), entry.end(0), &[]);
                    entry.begin();
                    continue;
                }
                entry.push(place, now);
                (place.offset, old) = (place.offset + now.len() as u64, rest);
            }
        }
        list.push(self.take(), entry.end(LAST), &[]);
        debug_assert_eq!(entry.part as usize, needed, "they were counted");
        self.entry = bytes;
        self.batches.push_back((batch, needed));
        Ok(())
    }

    /// Where the mark may stand when everything below `committed` is: where a batch ends, and no
    /// transaction continues. None if no batch does.
    pub fn mark(&self, committed: Lsn) -> Option<Lsn> {
        let below = self.batches.iter().take_while(|(batch, _)| batch.to <= committed);
        below.filter_map(|(batch, _)| batch.kept_to()).last()
    }

    /// The mark says that everything below `to` is committed, and has arrived: entries of batches
    /// that end there can be used again.
    pub fn marked(&mut self, to: Lsn) {
        while let Some((_, entries)) = self.batches.pop_front_if(|(batch, _)| batch.to <= to) {
            self.free.extend(self.used.drain(..entries));
        }
    }
}

/// How many old bytes an entry takes that has room for as many bytes of changes.
fn room_in(left: usize) -> usize {
    if left < CHANGE + 8 { 0 } else { left - CHANGE }
}

/// How many entries a batch needs.
fn count<'w>(destroyed: impl Iterator<Item = (Place, &'w [u8])>) -> usize {
    let (mut entries, mut left) = (1, ROOM);
    for (_, old) in destroyed {
        let mut length = old.len();
        while length > 0 {
            let now = length.min(room_in(left));
            if now == 0 {
                (entries, left) = (entries + 1, ROOM);
                continue;
            }
            left -= CHANGE + now.next_multiple_of(8);
            length -= now;
        }
    }
    entries
}

/// An entry that is being made.
struct Entering<'b> {
    number: u64,
    part: u32,
    batch: Extent,
    bytes: &'b mut Vec<u8>,
}

impl Entering<'_> {
    fn begin(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER, 0);
    }

    fn room(&self) -> usize {
        room_in(HEADER + ROOM - self.bytes.len())
    }

    fn push(&mut self, place: Place, old: &[u8]) {
        self.bytes.extend_from_slice(&(place.region as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(old.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&place.offset.to_le_bytes());
        self.bytes.extend_from_slice(old);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// The whole entry.
    fn end(&mut self, flags: u32) -> &[u8] {
        let flags = flags | if self.batch.continues { CONTINUES } else { 0 };
        let length = (self.bytes.len() - HEADER) as u32;
        self.bytes.extend_from_slice(&self.number.to_le_bytes());
        let mut put = |at: usize, bytes: &[u8]| self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.number.to_le_bytes());
        put(8, &self.part.to_le_bytes());
        put(12, &flags.to_le_bytes());
        put(16, &self.batch.from.0.to_le_bytes());
        put(24, &self.batch.to.0.to_le_bytes());
        put(32, &length.to_le_bytes());
        let crc = crc_of(self.bytes);
        self.bytes[36..40].copy_from_slice(&crc.to_le_bytes());
        self.part += 1;
        self.bytes
    }
}

/// Whether no byte is written over twice.
fn is_written_once<'w>(destroyed: impl Iterator<Item = (Place, &'w [u8])>) -> bool {
    let ends = |(place, old): (Place, &[u8])| (place.region, place.offset, place.offset + old.len() as u64);
    let mut ranges: Vec<_> = destroyed.map(ends).collect();
    ranges.sort_unstable();
    ranges.windows(2).all(|two| two[0].0 != two[1].0 || two[0].2 <= two[1].1)
}

/// The regions of the ring of a memory, the first one first.
pub fn undo_regions(memory: &[Region]) -> Vec<usize> {
    let mut regions = vec![UNDO];
    if memory.length(0) >= DIRECTORY {
        let head = &memory[0].words()[MORE_UNDO as usize / 8..][..MOST_UNDO];
        // Acquire: what is noted has its region.
        let noted = head.iter().map(|word| u64::from_le(word.load(Ordering::Acquire)));
        let there = noted.filter_map(|region| usize::try_from(region).ok()).filter(|region| *region >= ARENAS);
        regions.extend(there.filter(|region| *region < memory.len()));
    }
    regions
}

/// Notes in a memory that a region of zeros, which it has, belongs to the undo ring. False if that
/// has no room for another one.
#[must_use]
pub fn note_undo(memory: &[Region], region: usize) -> bool {
    let head = &memory[0].words()[MORE_UNDO as usize / 8..][..MOST_UNDO];
    // Relaxed: none but the mirror writes there.
    let Some(free) = head.iter().position(|word| word.load(Ordering::Relaxed) == 0) else { return false };
    let to = Place { region: 0, offset: MORE_UNDO + free as u64 * 8 };
    let mut landing = Landing::default();
    landing.put(memory, &Write { to, pieces: &[&(region as u64).to_le_bytes()], immediate: None, fenced: true });
    landing.fence(memory);
    true
}

fn crc_of(entry: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&entry[..36]), &entry[40..])
}

/// Old bytes of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub place: Place,
    pub old: Vec<u8>,
}

/// An entry that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub number: u64,
    pub part: u32,
    pub is_last: bool,
    pub batch: Extent,
    pub changes: Vec<Change>,
}

impl Entry {
    /// What the bytes of an entry say; none unless they are one that is whole.
    pub fn decode(bytes: &[u8; ENTRY]) -> Option<Self> {
        let (number, length) = (word(bytes, 0), half(bytes, 32) as usize);
        if number == 0 || length > ROOM || !length.is_multiple_of(8) || word(bytes, HEADER + length) != number {
            return None;
        }
        if half(bytes, 36) != crc_of(&bytes[..HEADER + length + 8]) {
            return None;
        }
        let (mut changes, mut rest) = (Vec::new(), &bytes[HEADER..HEADER + length]);
        while !rest.is_empty() {
            let (head, behind) = rest.split_at_checked(CHANGE)?;
            let place = Place { region: half(head, 0) as usize, offset: word(head, 8) };
            let old = behind.get(..half(head, 4) as usize)?;
            rest = behind.get(old.len().next_multiple_of(8)..)?;
            changes.push(Change { place, old: old.to_vec() });
        }
        let (part, flags) = (half(bytes, 8), half(bytes, 12));
        let (from, to) = (Lsn(word(bytes, 16)), Lsn(word(bytes, 24)));
        let batch = Extent { from, to, continues: flags & CONTINUES != 0 };
        Some(Self { number, part, is_last: flags & LAST != 0, batch, changes })
    }
}
