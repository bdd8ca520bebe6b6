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
//! Undo runs backwards, since batches may have changed the same bytes. It writes old bytes after
//! everything is decided ([`Plan`]), and before that, if batches are undone that were marked, it
//! takes the mark back. So one that fails halfway can be done again, and what this memory is said
//! to have ([`footprint`]) leads to the same end. What a transaction has changed whose end is not
//! there is undone entry by entry: it takes no memory beside this one.
//!
//! # Loss of power
//!
//! Where the memory is to be durable, any line may or may not be there that was not flushed and
//! fenced. The feeder needs two fences for each batch, and no third:
//!
//! - *Undo entries before what is written in place*, of the same batch: else a row may be torn, and
//!   nothing says what it was. An entry needs none within itself, nor entries among one another:
//!   its checksum says whether it is whole, and a batch counts if all of its entries are.
//! - *All of a batch before its completion*, since that acknowledges it. So it is durable before
//!   the mark that commits it is posted, and before the next one's rows are. A mark needs no fence
//!   to what is posted with it: entries are used again when it has completed.
//!
//! A recovery may find in caches what the feeder did not live to flush. What it is going to speak
//! of is flushed before it ends ([`Plan`]): rows that make a batch whole, the mark, what was put
//! back.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::BuildHasherDefault,
};

use freshet_base::{
    ClusterId, IdHasher, Lsn, NodeId, Rid, Term,
    sync::{AtomicU64, Ordering, fence},
};
use freshet_fabric::{Place, Write, landing::Landing, memory::Region};

use crate::{
    Damaged, Footprint, Keep, Status,
    chunks::{Bytes, Chunks, Lengths},
    directory::{self, ARENAS, Chunk, DIRECTORY, MARK, Superblock, Use},
    read,
    slot::MOST,
    undo::{Change, ENTRY, Entry, Extent, undo_regions},
};

/// What a recovery has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The memory is the state of the database with the log up to here.
    pub end: Lsn,
    /// How many batches were under way.
    pub under_way: usize,
    /// How many of those were undone.
    pub undone: usize,
}

/// A batch that may not be committed, and where its undo entries are: what they say is read when it
/// is wanted, since a transaction may write over more than there is room for beside this memory.
#[derive(Clone, Debug)]
struct Batch {
    extent: Extent,
    entries: Vec<Place>,
}

impl Batch {
    /// What it has changed, the last first.
    fn backwards<'m>(&'m self, memory: &'m [Region]) -> impl Iterator<Item = Change> + use<'m> {
        let entries = self.entries.iter().rev().filter_map(|place| entry_at(memory, *place));
        entries.flat_map(|entry| entry.changes.into_iter().rev())
    }

    /// The same, the first first.
    fn changes<'m>(&'m self, memory: &'m [Region]) -> impl Iterator<Item = Change> + use<'m> {
        self.entries.iter().filter_map(|place| entry_at(memory, *place)).flat_map(|entry| entry.changes)
    }
}

/// Memory, as it is with other bytes in some places.
struct Shadow<'m> {
    memory: &'m [Region],
    /// By region and number of the word ([`key`]).
    words: HashMap<u64, [u8; 8], BuildHasherDefault<IdHasher>>,
}

/// A word of a region. A memory has fewer regions than 2^24, and a region fewer words than 2^40.
fn key(region: usize, word: u64) -> u64 {
    (region as u64) << 40 | word
}

impl Shadow<'_> {
    /// Puts `bytes` there, and returns what there was.
    fn exchange(&mut self, place: Place, bytes: &mut [u8]) {
        let mut before = vec![0; bytes.len()];
        self.load(place, &mut before);
        for (at, byte) in (place.offset..).zip(&*bytes) {
            let (region, word) = (place.region, at / 8);
            let memory = self.memory;
            let entry = self.words.entry(key(region, word)).or_insert_with(|| {
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
            let Some(bytes) = self.words.get(&key(from.region, word)) else { continue };
            for (at, byte) in (word * 8..).zip(bytes) {
                if let Some(to) = at.checked_sub(from.offset).and_then(|at| into.get_mut(at as usize)) {
                    *to = *byte;
                }
            }
        }
    }
}

impl Lengths for Shadow<'_> {
    fn length(&self, region: usize) -> u64 {
        self.memory.length(region)
    }
}

/// What is to be written into a memory to bring it to the state after the last batch that is kept.
#[derive(Clone, Debug)]
pub struct Plan {
    memory: Vec<Region>,
    /// The mark goes first, if it is taken back.
    mark: Option<Lsn>,
    /// The batches that are undone, the oldest first.
    undone: Vec<Batch>,
    /// What was found where, and counts: places and lengths.
    relied: Vec<(Place, u64)>,
    found: Recovered,
}

impl Plan {
    /// What it leads to.
    pub fn found(&self) -> Recovered {
        self.found
    }

    /// The writes, in their order. None of them changes the undo ring, where they are read.
    pub fn writes(&self) -> impl Iterator<Item = (Place, Vec<u8>)> {
        let mark = self.mark.map(|to| (Place { region: 0, offset: MARK }, to.0.to_le_bytes().to_vec()));
        let changes = self.undone.iter().rev().flat_map(|batch| batch.backwards(&self.memory));
        mark.into_iter().chain(changes.map(|change| (change.place, change.old)))
    }
}

/// Brings the memory to the state after the last batch that is kept. Where it is to be durable, it
/// is when this returns, with all that says so.
///
/// # Errors
/// [`Damaged`]; nothing was written then.
pub fn recover(memory: &[Region], keep: Keep) -> Result<Recovered, Damaged> {
    let (plan, mut landing) = (plan(memory, keep)?, Landing::default());
    for (place, length) in &plan.relied {
        landing.stored(memory, *place, *length);
    }
    let mut first = true;
    for (to, bytes) in plan.writes() {
        let is_mark = to == Place { region: 0, offset: MARK };
        landing.put(memory, &Write { to, pieces: &[&bytes], immediate: None, fenced: first && !is_mark });
        first &= is_mark;
    }
    landing.fence(memory);
    Ok(plan.found())
}

/// Decides what [`recover`] is to write.
///
/// # Errors
/// [`Damaged`].
pub fn plan(memory: &[Region], keep: Keep) -> Result<Plan, Damaged> {
    let base = read::superblock(memory)?.base;
    let marked = read::mark_of(&*memory[0]).max(base);
    let begin = match keep {
        // What is marked here may have to be undone for the sake of others.
        Keep::Marked(upto) => marked.min(upto).max(base),
        Keep::Whole => marked,
    };
    let mut relied = vec![(Place { region: 0, offset: MARK }, 8)];
    let mut batches = under_way(memory, begin)?;
    let ends: Vec<_> = [begin].into_iter().chain(batches.iter().map(|batch| batch.extent.to)).collect();
    let mut kept = match keep {
        Keep::Marked(upto) => batches.iter().take_while(|batch| batch.extent.to <= upto).count(),
        Keep::Whole => whole(memory, &batches, &mut relied)?,
    };
    // A transaction is kept if all of it is there.
    while kept > 0 && batches[kept - 1].extent.continues {
        kept -= 1;
    }
    let found = Recovered { end: ends[kept], under_way: batches.len(), undone: batches.len() - kept };
    let mark = (read::mark_of(&*memory[0]) > found.end).then_some(found.end);
    Ok(Plan { memory: memory.to_vec(), mark, undone: batches.split_off(kept), relied, found })
}

/// Brings the memory to the state at `upto` of a log, or before that, and it stays there: what is
/// undone is of another log than the one that continues.
///
/// A recovery may find a batch again that was undone: the undo entries of those behind it have all
/// that it had changed. As long as nothing else has begun, that is the state at its end all the
/// same. So a cut takes the undo entries away as well ([`settling`]).
///
/// # Errors
/// [`Damaged`]; nothing was written then.
pub fn cut(memory: &[Region], upto: Lsn) -> Result<Recovered, Damaged> {
    let found = recover(memory, Keep::Marked(upto))?;
    settle(memory, settling(memory, found.end)?);
    Ok(found)
}

/// Decides what [`cut`] is to write behind what it undoes, when the memory ends at `end`.
///
/// # Errors
/// [`Damaged`].
pub fn settling(memory: &[Region], end: Lsn) -> Result<impl Iterator<Item = (Place, Vec<u8>)>, Damaged> {
    let Superblock { cluster, feeder, term, .. } = read::superblock(memory)?;
    Ok(beginning(memory, cluster, feeder, term, end))
}

/// What the feeder has left in the undo ring (section 5.2, steps 2 to 4).
///
/// # Errors
/// [`Damaged`].
pub fn footprint(memory: &[Region]) -> Result<Footprint, Damaged> {
    let base = read::superblock(memory)?.base;
    let mark = read::mark_of(&*memory[0]).max(base);
    let (mut batches, mut begin): (Vec<_>, Option<Lsn>) = (Vec::new(), None);
    // From the newest one back. Entries that were marked are used again, the oldest first.
    for entries in batches_above(memory, base).values().rev() {
        let (Extent { from, to, .. }, is_whole) = (entries[0].batch, is_whole(entries));
        let is_last_one = begin.is_none() && (is_whole || to > mark);
        if !is_last_one && (begin != Some(to) || !is_whole) {
            break;
        }
        let status = match is_whole {
            false => Status::Corrupt,
            true if to <= mark => Status::CommitReady,
            true => Status::Logged,
        };
        batches.push((to, status));
        begin = Some(from);
    }
    batches.reverse();
    match begin {
        Some(begin) if begin > mark => Err(Damaged::Undo { to: begin }),
        Some(begin) if batches.last().is_some_and(|(end, _)| *end >= mark) => Ok(Footprint { begin, batches }),
        _ => Ok(Footprint { begin: mark, batches: Vec::new() }),
    }
}

/// What a mirror does before a feed begins, which continues from `base`: everything below is there,
/// and nothing of what was written before is undone any more. The memory was recovered up to there,
/// or is new.
pub fn begin_feed(memory: &[Region], cluster: ClusterId, feeder: NodeId, term: Term, base: Lsn) {
    settle(memory, beginning(memory, cluster, feeder, term, base));
}

/// Writes all that in its order. Where the memory is to be durable, it is when this returns.
fn settle(memory: &[Region], writes: impl Iterator<Item = (Place, Vec<u8>)>) {
    let (undo, mut landing) = (undo_regions(memory), Landing::default());
    for (to, bytes) in writes {
        let fenced = to.region == 0 || undo.contains(&to.region);
        if fenced {
            // The process may end at any time, and leave the memory.
            fence(Ordering::SeqCst);
        }
        landing.put(memory, &Write { to, pieces: &[&bytes], immediate: None, fenced });
    }
    landing.fence(memory);
}

/// Decides what [`begin_feed`] is to write: in this order, the superblock behind what is wiped, and
/// the undo entries one by one.
pub fn beginning(
    memory: &[Region],
    cluster: ClusterId,
    feeder: NodeId,
    term: Term,
    base: Lsn,
) -> impl Iterator<Item = (Place, Vec<u8>)> {
    let sequence = read::superblock(memory).map_or(1, |block| block.sequence + 1);
    let (offset, bytes) = Superblock { sequence, cluster, feeder, term, base }.encode();
    let superblock = (Place { region: 0, offset }, bytes.to_vec());
    // The undo entries go last: as long as they are there, undoing them once more does no harm. No
    // entry has the number zero.
    let ends = |place| (place, vec![0; 8]);
    wiped(memory).into_iter().chain([superblock]).chain(newest_first(memory).map(ends))
}

/// The entries that are whole: if they go in this order, those that are left are without a gap.
pub(crate) fn newest_first(memory: &[Region]) -> impl Iterator<Item = Place> {
    let mut entries: Vec<_> = entries(memory).map(|(place, entry)| (entry.number, entry.part, place)).collect();
    entries.sort_unstable_by_key(|(number, part, _)| (*number, *part));
    entries.into_iter().rev().map(|(.., place)| place)
}

/// What makes zeros of what no chunk has, as a chunk is at first. Rows of chunks that were undone
/// may lie there.
fn wiped(memory: &[Region]) -> Vec<(Place, Vec<u8>)> {
    let (Ok(chunks), mut zeros) = (Chunks::read(memory), Vec::new()) else { return Vec::new() };
    let undo = undo_regions(memory);
    for (region, arena) in memory.iter().enumerate().skip(ARENAS).filter(|(region, _)| !undo.contains(region)) {
        let mut at = 0;
        for (begin, end) in chunks.in_region(region).chain([(memory.length(region), 0)]) {
            let words = &arena.words()[at as usize / 8..begin as usize / 8];
            let mut offset = at;
            // Pages of zeros need not be there.
            for run in words.chunk_by(|one, next| is_zero(one) == is_zero(next)) {
                let length = run.len() * 8;
                if !is_zero(&run[0]) {
                    zeros.push((Place { region, offset }, vec![0; length]));
                }
                offset += length as u64;
            }
            at = end;
        }
    }
    zeros
}

/// Relaxed: no other node writes here.
fn is_zero(word: &AtomicU64) -> bool {
    word.load(Ordering::Relaxed) == 0
}

/// The undo entry there, if it is whole.
fn entry_at(memory: &[Region], place: Place) -> Option<Entry> {
    let mut bytes = [0; ENTRY];
    memory.load(place, &mut bytes);
    Entry::decode(&bytes)
}

/// All undo entries that are whole, and where they are.
fn entries(memory: &[Region]) -> impl Iterator<Item = (Place, Entry)> {
    let places = undo_regions(memory).into_iter().flat_map(|region| {
        let offsets = (0..memory.length(region) / ENTRY as u64).map(|number| number * ENTRY as u64);
        offsets.map(move |offset| Place { region, offset })
    });
    places.filter_map(|place| Some((place, entry_at(memory, place)?)))
}

/// An undo entry, without what it says.
struct Found {
    part: u32,
    is_last: bool,
    batch: Extent,
    place: Place,
}

/// The entries of batches that end above an LSN, by the batches' numbers.
fn batches_above(memory: &[Region], above: Lsn) -> BTreeMap<u64, Vec<Found>> {
    let mut found: BTreeMap<u64, Vec<Found>> = BTreeMap::new();
    for (place, Entry { number, part, is_last, batch, .. }) in entries(memory).filter(|(_, it)| it.batch.to > above) {
        found.entry(number).or_default().push(Found { part, is_last, batch, place });
    }
    found.values_mut().for_each(|entries| entries.sort_by_key(|entry| entry.part));
    found
}

/// Whether these are all entries of a batch.
fn is_whole(entries: &[Found]) -> bool {
    entries.last().is_some_and(|last| last.is_last && last.part as usize + 1 == entries.len())
}

/// The batches after `begin` whose undo entries are all there, oldest first. Before a batch none is
/// missing, since entries arrive in their order and are used again only when their batch is marked.
fn under_way(memory: &[Region], begin: Lsn) -> Result<Vec<Batch>, Damaged> {
    let (undo, mut batches, mut incomplete): (_, Vec<Batch>, bool) = (undo_regions(memory), Vec::new(), false);
    for (_, entries) in batches_above(memory, begin) {
        let extent = entries[0].batch;
        let Extent { from, to, .. } = extent;
        let last = is_whole(&entries);
        let follows = batches.last().map_or(begin, |before| before.extent.to) == from;
        if incomplete || last && !follows {
            return Err(Damaged::Undo { to });
        }
        incomplete = !last;
        let batch = Batch { extent, entries: entries.into_iter().map(|entry| entry.place).collect() };
        let possible = |change: Change| {
            let end = change.place.offset.checked_add(change.old.len() as u64);
            !undo.contains(&change.place.region) && end.is_some_and(|end| end <= memory.length(change.place.region))
        };
        if !batch.changes(memory).all(possible) {
            return Err(Damaged::Undo { to });
        }
        if last {
            batches.push(batch);
        }
    }
    Ok(batches)
}

/// How many of the batches have landed wholly, with all before them.
fn whole(memory: &[Region], batches: &[Batch], relied: &mut Vec<(Place, u64)>) -> Result<usize, Damaged> {
    // A transaction whose end is not there is undone, whatever has landed of it.
    let ended = batches.iter().rposition(|batch| !batch.extent.continues).map_or(0, |last| last + 1);
    let (ended, begun) = batches.split_at(ended);
    let mut changes: Vec<Vec<Change>> = ended.iter().map(|batch| batch.changes(memory).collect()).collect();
    let mut shadow = Shadow { memory, words: HashMap::default() };
    let near = |place: Place| (place.region, place.offset / NEAR);
    let looked_at: HashSet<_> = changes.iter().flatten().map(|change| near(change.place)).collect();
    let is_looked_at = |place: Place| {
        let (region, block) = near(place);
        region == 0 || (block.saturating_sub(1)..=block + 1).any(|block| looked_at.contains(&(region, block)))
    };
    for mut change in begun.iter().rev().flat_map(|batch| batch.backwards(memory)) {
        if is_looked_at(change.place) {
            shadow.exchange(change.place, &mut change.old);
        }
    }
    // From here on a change has the new bytes, and the shadow the old ones, until they are
    // exchanged again.
    changes.iter_mut().rev().for_each(|changes| shadow.exchange_all(changes, true));
    let mut chunks = Chunks::read(&shadow)?;
    for (number, (batch, changes)) in ended.iter().zip(&mut changes).enumerate() {
        shadow.exchange_all(changes, false);
        if !has_landed(&shadow, &mut chunks, (batch.extent, changes), relied) {
            return Ok(number);
        }
    }
    Ok(ended.len())
}

/// A slot of a table lies within this number of bytes from each of its own.
const NEAR: u64 = MOST as u64;

/// Whether all that a batch has changed is whole, and is of this batch; `relied` gets what was
/// looked at.
fn has_landed(
    shadow: &Shadow<'_>,
    chunks: &mut Chunks,
    (extent, changes): (Extent, &[Change]),
    relied: &mut Vec<(Place, u64)>,
) -> bool {
    let mut row = Vec::new();
    changes.iter().all(|Change { place, old }| {
        relied.push((*place, old.len() as u64));
        if place.region < ARENAS {
            return place.offset < DIRECTORY || enters(shadow, chunks, place.offset, relied);
        }
        let Some((number, slot)) = chunks.at(*place) else { return false };
        let chunk = &chunks.all()[number as usize];
        let Use::Table(fid, first) = chunk.used_for else { return false };
        row.clear();
        let id = (fid, Rid(first.0 + u64::from(slot)));
        let found = chunks.slot(shadow, chunk, id, &mut row);
        relied.push((chunk.slot_at(slot), chunk.slot));
        if let Ok(Some((header, Some(elsewhere)))) = &found {
            relied.push((*elsewhere, header.length() as u64));
        }
        let is_of = |address| (extent.from..extent.to).contains(&address);
        found.is_ok_and(|found| found.is_some_and(|(header, _)| is_of(header.address)))
    })
}

/// Enters the chunk whose entry lies there; false if it is not whole.
fn enters(shadow: &Shadow<'_>, chunks: &mut Chunks, offset: u64, relied: &mut Vec<(Place, u64)>) -> bool {
    let number = (offset - DIRECTORY) / directory::ENTRY as u64;
    let Ok(number) = u32::try_from(number) else { return false };
    let mut bytes = [0; directory::ENTRY];
    shadow.load(Chunk::entry(number), &mut bytes);
    let is_known = chunks.all().len() > number as usize;
    let entered = chunks.change(shadow, number, &bytes).is_ok();
    // Where something else was, slots that were never used are zeros that were written.
    relied.extend(chunks.all().get(number as usize).filter(|_| is_known).map(|chunk| (chunk.place, chunk.bytes)));
    entered
}
