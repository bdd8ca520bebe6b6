//! What becomes of the batches that were under way when the node that feeds a mirror has failed
//! (Active-Memory, section 5). By then its access was revoked: nothing is written any more.
//!
//! In the paper a batch is kept if it is marked as committed on all nodes that take part, and
//! undone otherwise, although all of it may be there. So a client may be told of a commit only when
//! the marks have arrived everywhere. Here slots say whether they are whole, so that a batch which
//! has landed wholly can be told from one that has not: it is kept, marked or not, as a standby
//! keeps the log that it has made persistent. What has completed has landed wholly. [`Keep`] has
//! both.
//!
//! Undo runs backwards, since batches may have changed the same bytes. It writes old bytes and
//! nothing else, after everything is decided: one that fails halfway can be done again.

use std::collections::{BTreeMap, HashMap};

use freshet_base::{Rid, Stamp, sync::Ordering, words};
use freshet_fabric::{Place, memory::Region};

use crate::{
    Damaged,
    chunks::{Bytes, Chunks},
    directory::{self, ARENAS, Chunk, DIRECTORY, UNDO, Use},
    read,
    undo::{Change, ENTRY, Entry},
};

/// Which batches are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Those that have landed wholly, with all before them.
    Whole,
    /// Those that end at this stamp or below: the smallest mark of all that take part (section 5.2,
    /// step 6).
    Marked(Stamp),
}

/// What a recovery has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The memory is the state of the database with the log up to here.
    pub end: Stamp,
    /// How many batches were under way, and how many of those were undone.
    pub under_way: usize,
    /// See there.
    pub undone: usize,
    /// No batch has had a larger number.
    pub number: u64,
}

/// A batch that may not be committed.
struct Batch {
    from: Stamp,
    to: Stamp,
    changes: Vec<Change>,
}

/// Memory, as it is with other bytes in some places.
struct Shadow<'m> {
    memory: &'m [Region],
    words: HashMap<(usize, u64), [u8; 8]>,
}

impl Shadow<'_> {
    /// Puts `bytes` there, and returns what there was.
    fn exchange(&mut self, place: Place, bytes: &mut [u8]) {
        let mut before = vec![0; bytes.len()];
        self.load(place, &mut before);
        for (at, byte) in (place.offset..).zip(&*bytes) {
            let (region, word) = (place.region, at / 8);
            let memory = self.memory;
            let entry = self.words.entry((region, word)).or_insert_with(|| {
                let mut bytes = [0; 8];
                memory.load(Place { region, offset: word * 8 }, &mut bytes);
                bytes
            });
            entry[(at % 8) as usize] = *byte;
        }
        bytes.copy_from_slice(&before);
    }

    /// Exchanges all places of a batch, the last first or the first first.
    fn exchange_all(&mut self, changes: &mut [Change], backwards: bool) {
        let mut exchange = |change: &mut Change| self.exchange(change.place, &mut change.old);
        if backwards {
            changes.iter_mut().rev().for_each(&mut exchange);
        } else {
            changes.iter_mut().for_each(&mut exchange);
        }
    }
}

impl Bytes for Shadow<'_> {
    fn load(&self, from: Place, into: &mut [u8]) {
        self.memory.load(from, into);
        let (first, last) = (from.offset / 8, (from.offset + into.len() as u64).div_ceil(8));
        for word in first..last {
            let Some(bytes) = self.words.get(&(from.region, word)) else { continue };
            for (at, byte) in (word * 8..).zip(bytes) {
                if let Some(to) = at.checked_sub(from.offset).and_then(|at| into.get_mut(at as usize)) {
                    *to = *byte;
                }
            }
        }
    }

    fn length(&self, region: usize) -> u64 {
        self.memory.length(region)
    }
}

/// Brings the memory to the state after the last batch that is kept.
///
/// # Errors
/// [`Damaged`]; nothing was written then.
pub fn recover(memory: &[Region], keep: Keep) -> Result<Recovered, Damaged> {
    let base = read::superblock(memory)?.base;
    let marked = read::mark(&memory[0]).max(base);
    let begin = match keep {
        // What is marked here may have to be undone for the sake of others.
        Keep::Marked(upto) => marked.min(upto).max(base),
        Keep::Whole => marked,
    };
    let (mut batches, number) = under_way(memory, begin)?;
    let ends: Vec<_> = [begin].into_iter().chain(batches.iter().map(|batch| batch.to)).collect();
    let kept = match keep {
        Keep::Marked(upto) => batches.iter().take_while(|batch| batch.to <= upto).count(),
        Keep::Whole => whole(memory, &mut batches)?,
    };
    for batch in batches[kept..].iter().rev() {
        for change in batch.changes.iter().rev() {
            words::store_among(memory[change.place.region].words(), change.place.offset as usize, &change.old);
        }
    }
    Ok(Recovered { end: ends[kept], under_way: batches.len(), undone: batches.len() - kept, number })
}

/// What a mirror does before another feed begins, when it is settled what its memory is the state
/// of: nothing of what was written before is undone any more.
pub fn clear(memory: &[Region]) {
    // Relaxed: the node that writes here next is told so by other means.
    memory[UNDO].words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
}

/// The batches after `begin` whose undo entries are all there, oldest first; and the largest
/// number. Before a batch none is missing, since entries arrive in their order and are used again
/// only when their batch is marked.
fn under_way(memory: &[Region], begin: Stamp) -> Result<(Vec<Batch>, u64), Damaged> {
    let mut found: BTreeMap<u64, Vec<Entry>> = BTreeMap::new();
    let mut number = 0;
    for entry in 0..memory.length(UNDO) / ENTRY as u64 {
        let mut bytes = [0; ENTRY];
        memory.load(Place { region: UNDO, offset: entry * ENTRY as u64 }, &mut bytes);
        let Some(entry) = Entry::decode(&bytes) else { continue };
        number = number.max(entry.number);
        if entry.to > begin {
            found.entry(entry.number).or_default().push(entry);
        }
    }
    let (mut batches, mut incomplete): (Vec<Batch>, bool) = (Vec::new(), false);
    for (_, mut entries) in found {
        entries.sort_by_key(|entry| entry.part);
        let (from, to) = (entries[0].from, entries[0].to);
        let last = entries.last().is_some_and(|last| last.is_last && last.part as usize + 1 == entries.len());
        let follows = batches.last().map_or(begin, |before| before.to) == from;
        if incomplete || last && !follows {
            return Err(Damaged::Undo { to });
        }
        incomplete = !last;
        let changes: Vec<_> = entries.into_iter().flat_map(|entry| entry.changes).collect();
        let possible = |change: &Change| {
            let end = change.place.offset.checked_add(change.old.len() as u64);
            change.place.region != UNDO && end.is_some_and(|end| end <= memory.length(change.place.region))
        };
        if !changes.iter().all(possible) {
            return Err(Damaged::Undo { to });
        }
        if last {
            batches.push(Batch { from, to, changes });
        }
    }
    Ok((batches, number))
}

/// How many of the batches have landed wholly, with all before them. The changes have the same old
/// bytes afterwards as before.
fn whole(memory: &[Region], batches: &mut [Batch]) -> Result<usize, Damaged> {
    let mut shadow = Shadow { memory, words: HashMap::new() };
    // From here on a change has the new bytes, and the shadow the old ones, until they are
    // exchanged again.
    batches.iter_mut().rev().for_each(|batch| shadow.exchange_all(&mut batch.changes, true));
    let mut chunks = Chunks::read(&shadow)?;
    let mut kept = 0;
    for (number, batch) in batches.iter_mut().enumerate() {
        shadow.exchange_all(&mut batch.changes, false);
        if kept == number && has_landed(&shadow, &mut chunks, batch) {
            kept += 1;
        }
    }
    Ok(kept)
}

/// Whether all that a batch has changed is whole, and is of this batch.
fn has_landed(shadow: &Shadow<'_>, chunks: &mut Chunks, batch: &Batch) -> bool {
    let mut row = Vec::new();
    batch.changes.iter().all(|Change { place, .. }| {
        if place.region < ARENAS {
            return place.offset < DIRECTORY || enters(shadow, chunks, place.offset);
        }
        let Some((chunk, slot)) = chunks.at(*place) else { return false };
        let Use::Table(fid, first) = chunk.used_for else { return false };
        row.clear();
        let id = (fid, Rid(first.0 + u64::from(slot)));
        let found = chunks.slot(shadow, chunk, id, &mut row);
        found.is_ok_and(|found| found.is_some_and(|(header, _)| (batch.from..batch.to).contains(&header.address)))
    })
}

/// Enters the chunk whose entry lies there, unless it is known; false if it is not whole.
fn enters(shadow: &Shadow<'_>, chunks: &mut Chunks, offset: u64) -> bool {
    let number = (offset - DIRECTORY) / directory::ENTRY as u64;
    let Ok(number) = u32::try_from(number) else { return false };
    if (number as usize) < chunks.all().len() {
        return true;
    }
    let mut bytes = [0; directory::ENTRY];
    shadow.load(Chunk::entry(number), &mut bytes);
    chunks.add(shadow, number, &bytes).is_ok()
}
