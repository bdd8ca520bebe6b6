//! The node that feeds a mirror fails at any write, and any cache lines of the last one have
//! landed: what is found is the state after a batch, and none that has completed is missing.

use freshet_base::{RecordKind, sync::AtomicU64};
use freshet_log::{Block, BlockBuilder, BlockKind};

use super::*;
use crate::{Batch, Build, Extent, Keep, Recovered, Ring, UNDO, begin_feed, recover, undo};

mod feeding;
mod power;
mod table;

/// A feeder, and what it has posted that is not marked.
pub(super) struct Feed {
    pub pair: Pair,
    ring: Ring,
    build: Build,
    /// What the mirror has when everything that is marked has landed, and nothing else.
    done: Vec<Arc<SharedMemory>>,
    pub mark: Lsn,
    /// The lists behind that, with where each ends in the log and what records are then.
    pub lists: Vec<Posted>,
    begin: Records,
}

/// A list, and the batch that it is of.
pub(super) struct Posted {
    writes: Vec<(Place, Vec<u8>)>,
    pub batch: Extent,
    records: Records,
}

/// A record, and what becomes of it.
pub(super) type Change = (Fid, Rid, Option<Vec<u8>>);

/// Blocks from `at` on, each of up to three of these changes. The last ones say that their
/// transaction continues, if it does. Records of the first table say what they change of those that
/// are `known`, those of the second say so of others, and those of the third say nothing.
pub(super) fn blocks(at: Lsn, changes: &[Change], continues: bool, known: &Records) -> Vec<u8> {
    let (mut bytes, mut builder, mut known) = (Vec::new(), BlockBuilder::new(), known.clone());
    let parts: Vec<_> = changes.chunks(3).collect();
    for part in if parts.is_empty() { vec![&[][..]] } else { parts } {
        let at = at.plus(bytes.len() as u64);
        builder.begin();
        for (fid, rid, row) in part {
            let kind = if row.is_some() { RecordKind::Update } else { RecordKind::Delete };
            let before = known.get(&(*fid, *rid)).filter(|_| row.is_some() && fid.0 != 3);
            let (prev, below) = before.map(|(address, below)| (*address, below.clone())).unzip();
            let (prev, below) = (prev.map(|prev| prev.plus(u64::from(fid.0 == 2))), below.flatten());
            let new = row.as_deref().unwrap_or_default();
            let below = below.map(|below| if fid.0 == 2 { new.to_vec() } else { below });
            let offset = builder.push_over(prev, *fid, *rid, kind, new, below.as_deref()).unwrap();
            known.insert((*fid, *rid), (at.plus(u64::from(offset)), row.clone()));
        }
        builder.seal_records();
        bytes.extend_from_slice(builder.finish_part(at, Term(3), BlockKind::Redo, !continues));
    }
    bytes
}

/// The batch of such blocks.
pub(super) fn batch_of(from: Lsn, bytes: &[u8], continues: bool) -> Arc<Batch> {
    let mut batch = Batch::new();
    batch.room(bytes.len()).copy_from_slice(bytes);
    let extent = batch.begin(from, bytes.len()).unwrap();
    assert_eq!((extent.from, extent.to.since(from), extent.continues), (from, bytes.len() as u64, continues));
    Arc::new(batch)
}

fn copy(from: &[Arc<SharedMemory>]) -> Vec<Arc<SharedMemory>> {
    from.iter()
        .map(|memory| {
            let words = memory.words();
            let copy = SharedMemory::new(words.len() * 8, false).unwrap();
            let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
            copy.words().iter().zip(words).for_each(|(to, from)| to.store(load(from), Ordering::Relaxed));
            Arc::new(copy)
        })
        .collect()
}

fn regions(memory: &[Arc<SharedMemory>]) -> Vec<Region> {
    memory.iter().map(|memory| Arc::clone(memory) as Region).collect()
}

fn store(memory: &[Arc<SharedMemory>], to: Place, bytes: &[u8]) {
    words::store_among(memory[to.region].words(), to.offset as usize, bytes);
}

/// What of the feeder's writes has landed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Landed {
    /// This many writes of the lists that are not marked.
    Writes(usize),
    /// This many, and of the next one some cache lines.
    Torn(usize, u64),
}

impl Feed {
    pub fn new() -> Self {
        let pair = Pair::new();
        let done = copy(&pair.memory);
        // The superblock's base.
        let (ring, build) = (Ring::new(UNDO_BYTES as u64), Build::new());
        Self { pair, ring, build, done, mark: Lsn(64), lists: Vec::new(), begin: Records::new() }
    }

    pub fn end(&self) -> Lsn {
        self.lists.last().map_or(self.mark, |posted| posted.batch.to)
    }

    /// Posts a batch of these changes, which all land; false if the ring is full.
    pub fn post(&mut self, changes: &[Change], continues: bool) -> bool {
        let bytes = blocks(self.end(), changes, continues, &self.pair.records);
        self.post_batch(&batch_of(self.end(), &bytes, continues), &bytes)
    }

    /// The same of a batch with these bytes, which another mirror may have got.
    pub fn post_batch(&mut self, shared: &Arc<Batch>, bytes: &[u8]) -> bool {
        let (from, batch) = (self.end(), shared.extent());
        self.build.begin(Arc::clone(shared));
        let mut records = self.pair.records.clone();
        let mut at = 0;
        while at < bytes.len() {
            let block = Block::parse(&bytes[at..], from.plus(at as u64)).unwrap();
            at += block.bytes().len();
            for record in block.records() {
                let row = (record.header.kind != RecordKind::Delete).then(|| record.row.to_vec());
                enter(&mut records, (record.header.fid, record.header.rid), record.address, row);
            }
        }
        let mut memory = self.pair.regions();
        while let Err(why) = self.build.put(&mut self.pair.layout, &mut Here(&memory)) {
            self.pair.make_room(why);
            memory = self.pair.regions();
        }
        while self.done.len() < self.pair.memory.len() {
            let bytes = self.pair.memory[self.done.len()].words().len() * 8;
            self.done.push(Arc::new(SharedMemory::new(bytes, false).unwrap()));
        }
        if self.build.enter(&mut self.ring).is_err() {
            return false;
        }
        self.pair.write(self.build.list());
        let writes = self.build.list().map(|(to, bytes)| (to, bytes.to_vec())).collect();
        self.pair.records = records.clone();
        self.pair.address = batch.to.0;
        self.lists.push(Posted { writes, batch, records });
        true
    }

    /// What is committed ends where one of the first `count` lists does; the mark has arrived.
    pub fn marks(&mut self, count: usize) {
        let Some(committed) = count.checked_sub(1).map(|last| self.lists[last].batch.to) else { return };
        let Some(mark) = self.ring.mark(committed.plus(4)) else { return };
        let count = self.lists.iter().take_while(|posted| posted.batch.to <= mark).count();
        assert!(!self.lists[count - 1].batch.continues, "the mark stands where a transaction ends");
        for Posted { writes, records, .. } in self.lists.drain(..count) {
            writes.iter().for_each(|(place, bytes)| store(&self.done, *place, bytes));
            self.begin = records;
        }
        self.mark = mark;
        self.pair.layout.committed(self.mark);
        self.ring.marked(self.mark);
        store(&self.done, Place { region: 0, offset: MARK }, &self.mark.0.to_le_bytes());
    }

    /// All writes that are not marked.
    pub fn writes(&self) -> impl Iterator<Item = &(Place, Vec<u8>)> {
        self.lists.iter().flat_map(|posted| &posted.writes)
    }

    /// What has completed when this number of writes has landed, and of that, what no transaction
    /// continues behind.
    pub fn completed(&self, writes: usize) -> (Lsn, Lsn) {
        let (mut before, mut found) = (0, (self.mark, self.mark));
        for Posted { writes: list, batch, .. } in &self.lists {
            before += list.len();
            if before <= writes {
                found = (batch.to, if batch.continues { found.1 } else { batch.to });
            }
        }
        found
    }

    /// How many bytes the newest batch has kept to be undone.
    pub fn destroys(&self) -> usize {
        let newest = self.lists.last().unwrap();
        let entries = newest.writes.iter().filter(|(to, _)| to.region == UNDO).map(|(_, bytes)| {
            let mut entry = [0; undo::ENTRY];
            entry[..bytes.len()].copy_from_slice(bytes);
            undo::Entry::decode(&entry).unwrap()
        });
        entries.flat_map(|entry| entry.changes).map(|change| change.old.len()).sum()
    }

    /// The mirror's memory when the feeder fails.
    pub fn fails(&self, landed: Landed) -> Vec<Arc<SharedMemory>> {
        let memory = copy(&self.done);
        let (Landed::Writes(whole) | Landed::Torn(whole, _)) = landed;
        for (number, (to, bytes)) in self.writes().enumerate() {
            match landed {
                _ if number < whole => store(&memory, *to, bytes),
                Landed::Torn(_, lines) if number == whole => {
                    for (at, byte) in (to.offset..).zip(bytes) {
                        if lines >> (at / 64 % 64) & 1 == 1 {
                            store(&memory, Place { offset: at, ..*to }, &[*byte]);
                        }
                    }
                }
                _ => {}
            }
        }
        memory
    }

    fn records_at(&self, end: Lsn) -> &Records {
        let found = self.lists.iter().find(|posted| posted.batch.to == end && !posted.batch.continues);
        found.map(|posted| &posted.records).unwrap_or_else(|| {
            assert_eq!(end, self.mark, "there is such a batch");
            &self.begin
        })
    }

    /// Recovers, and looks at what is there then.
    pub fn recovers(&self, memory: &[Arc<SharedMemory>], keep: Keep) -> Recovered {
        let found = recover(&regions(memory), keep).unwrap();
        let records = read(regions(memory), found.end).unwrap();
        assert!(records == *self.records_at(found.end), "{found:?}: the records are others");
        // A restart of the recovery finds nothing else.
        assert_eq!(recover(&regions(memory), keep).unwrap(), found);
        assert!(read(regions(memory), found.end).unwrap() == records);
        found
    }
}

/// Two batches: one that is marked, and one of an update, an insertion, a deletion and a long row.
fn two_batches() -> Feed {
    let mut feed = Feed::new();
    let row = |byte| Some(vec![byte; 100]);
    let changes: Vec<_> = (0..4).map(|rid| (Fid(1), Rid(rid), row(rid as u8))).collect();
    assert!(feed.post(&changes, false));
    feed.marks(1);
    let long = Some((0..5000).map(|byte| byte as u8).collect());
    let changes = [(0, row(9)), (1, None), (2, long), (4, row(5)), (20, row(6))];
    let changes: Vec<_> = changes.into_iter().map(|(rid, row)| (Fid(1), Rid(rid), row)).collect();
    assert!(feed.post(&changes, false));
    feed
}

fn undo_writes(feed: &Feed) -> usize {
    feed.writes().filter(|(to, _)| to.region == UNDO).count()
}

fn writes(feed: &Feed) -> usize {
    feed.writes().count()
}

#[test]
fn a_batch_has_to_wait_for_room_in_the_ring() {
    let mut feed = two_batches();
    let mut posted = 0;
    while feed.post(&[(Fid(2), Rid(0), Some(vec![posted as u8; 3000]))], false) {
        posted += 1;
        assert!(posted < 1000, "entries are not used again before they are marked");
    }
    assert!(posted > 3);
}

#[test]
fn an_undo_ring_that_lies_is_refused() {
    let feed = two_batches();
    let landed = Landed::Writes(writes(&feed));
    // A mark at which no batch ends.
    let memory = feed.fails(landed);
    store(&memory, Place { region: 0, offset: MARK }, &(feed.mark.0 + 8).to_le_bytes());
    let refused = recover(&regions(&memory), Keep::Whole);
    assert!(matches!(refused, Err(Damaged::Undo { .. })), "{refused:?}");
    // Nothing is undone any more after that.
    let memory = feed.fails(landed);
    for end in [feed.mark, feed.end()] {
        begin_feed(&regions(&memory), ClusterId(1), NodeId(8), Term(4), end);
        let found = recover(&regions(&memory), Keep::Whole).unwrap();
        assert_eq!((found.under_way, found.end), (0, end));
    }
    let mirror = Contents::open(regions(&memory), feed.end()).unwrap();
    assert_eq!((mirror.superblock().feeder, mirror.superblock().sequence), (NodeId(8), 3));
}

/// Whatever one word of the ring is changed to, the outcome is a state after a batch, or refused.
#[test]
fn a_damaged_undo_ring_does_no_harm() {
    let (mut random, mut refused) = (Random::new(), 0);
    let feed = two_batches();
    // Two entries of the directory come first.
    for landed in [Landed::Writes(undo_writes(&feed) + 4), Landed::Writes(writes(&feed))] {
        for _ in 0..100 {
            let memory = feed.fails(landed);
            let word = random.below(undo_writes(&feed) as u64 * 256 / 8 + 64) as usize;
            memory[UNDO].words()[word].fetch_xor(1 << random.below(64), Ordering::SeqCst);
            // Without its undo entry a batch that has landed partly cannot be undone: then what is
            // newer than it should be is refused by who reads it.
            let outcome = recover(&regions(&memory), Keep::Whole);
            refused += usize::from(match outcome {
                Ok(found) => match read(regions(&memory), found.end) {
                    Ok(records) => {
                        assert!(records == *feed.records_at(found.end), "{landed:?}");
                        false
                    }
                    Err(_) => true,
                },
                Err(_) => true,
            });
        }
    }
    assert!(refused > 50, "{refused}");
}
