//! The node that feeds a mirror fails at any write, and any cache lines of the last one have
//! landed: what is found is the state after a batch, and none that has completed is missing.

use freshet_base::sync::AtomicU64;

use super::*;
use crate::{Keep, Recovered, Ring, UNDO, clear, recover};

/// A feeder, and what it has posted that is not marked.
struct Feed {
    pair: Pair,
    ring: Ring,
    /// What the mirror has when everything that is marked has landed, and nothing else.
    done: Vec<Arc<SharedMemory>>,
    mark: Stamp,
    /// The lists behind that, with where each ends in the log and what records are then.
    lists: Vec<(List, Stamp, Records)>,
    begin: Records,
}

/// A record, what becomes of it, and whether its feeder knows what it was.
type Change = (Fid, Rid, Option<Vec<u8>>, bool);

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
enum Landed {
    /// This many writes of the lists that are not marked.
    Writes(usize),
    /// This many, and of the next one some cache lines.
    Torn(usize, u64),
}

impl Feed {
    fn new() -> Self {
        let pair = Pair::new();
        let done = copy(&pair.memory);
        // The superblock's base.
        Self { pair, ring: Ring::new(UNDO_BYTES, 0), done, mark: Stamp(64), lists: Vec::new(), begin: Records::new() }
    }

    fn end(&self) -> Stamp {
        self.lists.last().map_or(self.mark, |(_, to, _)| *to)
    }

    /// Posts a batch of these changes, of each record the last; false if the ring is full.
    fn post(&mut self, changes: Vec<Change>) -> bool {
        let newest: BTreeMap<_, _> = changes.into_iter().map(|change| ((change.0, change.1), change)).collect();
        self.post_all(newest.into_values().collect())
    }

    /// Posts a batch of these changes, and writes them all.
    fn post_all(&mut self, changes: Vec<Change>) -> bool {
        let (mut writes, mut list) = (List::default(), List::default());
        let from = self.end();
        self.pair.address = self.pair.address.max(from.0);
        for (fid, rid, row, knows) in changes {
            self.pair.put(fid, rid, row, knows, &mut writes);
        }
        let to = Stamp(self.pair.address + 8);
        while self.done.len() < self.pair.memory.len() {
            let bytes = self.pair.memory[self.done.len()].words().len() * 8;
            self.done.push(Arc::new(SharedMemory::new(bytes, false).unwrap()));
        }
        let memory = &self.pair.memory;
        let old = |from: Place, into: &mut [u8]| words::load(memory[from.region].words(), from.offset as usize, into);
        if self.ring.enter((from, to), Term(3), &writes, old, &mut list).is_err() {
            return false;
        }
        self.pair.write(&list);
        self.lists.push((list, to, self.pair.records.clone()));
        true
    }

    /// The mark comes to the end of the first `count` lists, and has arrived.
    fn marks(&mut self, count: usize) {
        for (list, to, records) in self.lists.drain(..count) {
            list.writes().for_each(|(place, bytes)| store(&self.done, place, bytes));
            (self.mark, self.begin) = (to, records);
        }
        self.pair.layout.committed(self.mark);
        self.ring.marked(self.mark);
        store(&self.done, Place { region: 0, offset: MARK }, &self.mark.0.to_le_bytes());
    }

    /// The mirror's memory when the feeder fails.
    fn fails(&self, landed: Landed) -> Vec<Arc<SharedMemory>> {
        let memory = copy(&self.done);
        let (Landed::Writes(whole) | Landed::Torn(whole, _)) = landed;
        for (number, (to, bytes)) in self.lists.iter().flat_map(|(list, ..)| list.writes()).enumerate() {
            match landed {
                _ if number < whole => store(&memory, to, bytes),
                Landed::Torn(_, lines) if number == whole => {
                    for (at, byte) in (to.offset..).zip(bytes) {
                        if lines >> (at / 64 % 64) & 1 == 1 {
                            store(&memory, Place { offset: at, ..to }, &[*byte]);
                        }
                    }
                }
                _ => {}
            }
        }
        memory
    }

    fn records_at(&self, end: Stamp) -> &Records {
        let found = self.lists.iter().find(|(_, to, _)| *to == end).map(|(.., records)| records);
        found.unwrap_or_else(|| {
            assert_eq!(end, self.mark, "there is such a batch");
            &self.begin
        })
    }

    /// Recovers, and looks at what is there then.
    fn recovers(&self, memory: &[Arc<SharedMemory>], keep: Keep) -> Recovered {
        let found = recover(&regions(memory), keep).unwrap();
        let records = read(regions(memory), found.end).unwrap();
        assert!(records == *self.records_at(found.end), "{found:?}: the records are others");
        // A restart of the recovery finds nothing else.
        assert_eq!(recover(&regions(memory), keep).unwrap(), found);
        assert!(read(regions(memory), found.end).unwrap() == records);
        found
    }
}

#[test]
fn the_feeder_fails_at_any_write() {
    let mut random = Random::new();
    for _ in 0..4 {
        let mut feed = Feed::new();
        for _ in 0..20 {
            let changes = (0..random.below(6)).map(|_| feed.pair.draw(&mut random)).collect();
            if !feed.post(changes) {
                panic!("the ring is large enough for what is under way");
            }
            let marks = random.below(feed.lists.len() as u64 + 1) as usize;
            if random.below(3) == 0 || feed.lists.len() > 4 {
                feed.marks(marks.max(feed.lists.len().saturating_sub(4)));
            }
            for _ in 0..4 {
                let writes: usize = feed.lists.iter().map(|(list, ..)| list.writes().count()).sum();
                let whole = random.below(writes as u64 + 1) as usize;
                let landed = if random.below(2) == 0 {
                    Landed::Writes(whole)
                } else {
                    Landed::Torn(whole, random.below(u64::MAX))
                };
                let mut before = 0;
                let completed = feed.lists.iter().take_while(|(list, ..)| {
                    before += list.writes().count();
                    before <= whole
                });
                let completed = completed.last().map_or(feed.mark, |(_, to, _)| *to);
                let memory = feed.fails(landed);
                let found = feed.recovers(&memory, Keep::Whole);
                assert!(found.end >= completed, "{landed:?}: {found:?}, but {completed} has completed");
                // The paper keeps what is marked.
                let memory = feed.fails(landed);
                assert_eq!(feed.recovers(&memory, Keep::Marked(feed.mark)).end, feed.mark);
            }
        }
    }
}

/// When the first of two changes had landed, the batch passed for one that had landed wholly.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a record comes twice")]
fn a_record_comes_once_in_a_batch() {
    let changes = [1, 2].map(|byte| (Fid(1), Rid(0), Some(vec![byte; 100]), true));
    let mut feed = Feed::new();
    assert!(feed.post(changes.to_vec()), "of these the last is written");
    feed.post_all(changes.to_vec());
}

/// Two batches: one that is marked, and one of an update, an insertion, a deletion and a long row.
fn two_batches() -> Feed {
    let mut feed = Feed::new();
    let row = |byte| Some(vec![byte; 100]);
    assert!(feed.post((0..4).map(|rid| (Fid(1), Rid(rid), row(rid as u8), false)).collect()));
    feed.marks(1);
    let long = Some((0..5000).map(|byte| byte as u8).collect());
    let changes = [(0, row(9)), (1, None), (2, long), (4, row(5)), (20, row(6))];
    assert!(feed.post(changes.into_iter().map(|(rid, row)| (Fid(1), Rid(rid), row, true)).collect()));
    feed
}

fn undo_writes(feed: &Feed) -> usize {
    feed.lists[0].0.writes().filter(|(to, _)| to.region == UNDO).count()
}

fn writes(feed: &Feed) -> usize {
    feed.lists[0].0.writes().count()
}

/// Of the second batch: what is kept, by either rule.
fn outcome(feed: &Feed, landed: Landed) -> [(usize, usize); 2] {
    [Keep::Whole, Keep::Marked(feed.mark)].map(|keep| {
        let found = feed.recovers(&feed.fails(landed), keep);
        (found.under_way, found.undone)
    })
}

#[test]
fn case_1_before_step_1() {
    let mut feed = two_batches();
    feed.lists.clear();
    assert_eq!(outcome(&feed, Landed::Writes(0)), [(0, 0); 2]);
}

#[test]
fn case_2a_no_undo_entry() {
    assert_eq!(outcome(&two_batches(), Landed::Writes(0)), [(0, 0); 2]);
}

#[test]
fn case_2b_an_undo_entry_is_torn_or_the_last_one_is_missing() {
    let feed = two_batches();
    assert!(undo_writes(&feed) > 2, "it has follow-ups");
    let untouched = read(regions(&feed.done), feed.mark).unwrap();
    for whole in 0..undo_writes(&feed) {
        // All lines but one, and one alone.
        for lines in (0..4).flat_map(|line| [!(1 << line), 1 << line]).chain([0]) {
            let memory = feed.fails(Landed::Torn(whole, lines));
            assert!(read(regions(&memory), feed.mark).unwrap() == untouched);
        }
        assert_eq!(outcome(&feed, Landed::Writes(whole)), [(0, 0); 2]);
    }
}

#[test]
fn case_2c_the_data_has_landed_partly() {
    let feed = two_batches();
    for whole in undo_writes(&feed)..writes(&feed) {
        assert_eq!(outcome(&feed, Landed::Writes(whole)), [(1, 1); 2], "{whole} writes");
    }
}

#[test]
fn case_3_all_has_landed_and_nothing_is_marked() {
    let feed = two_batches();
    // The paper undoes it; a client may have been told here.
    assert_eq!(outcome(&feed, Landed::Writes(writes(&feed))), [(1, 0), (1, 1)]);
}

/// The mark has come to one of two mirrors. By the paper's rule both undo, by ours both keep.
#[test]
fn case_4a_not_all_are_marked() {
    let feed = two_batches();
    let (to, landed) = (feed.lists[0].1, Landed::Writes(writes(&feed)));
    for (keep, end) in [(Keep::Whole, to), (Keep::Marked(feed.mark), feed.mark)] {
        let (one, other) = (feed.fails(landed), feed.fails(landed));
        store(&one, Place { region: 0, offset: MARK }, &to.0.to_le_bytes());
        assert_eq!(feed.recovers(&one, keep).end, end, "{keep:?}");
        assert_eq!(feed.recovers(&other, keep).end, end, "{keep:?}");
    }
}

/// The mark has come to all, which may have been acknowledged or not.
#[test]
fn case_4b_5a_5b_all_are_marked() {
    let feed = two_batches();
    let (to, landed) = (feed.lists[0].1, Landed::Writes(writes(&feed)));
    for keep in [Keep::Whole, Keep::Marked(to)] {
        for _ in 0..2 {
            let memory = feed.fails(landed);
            store(&memory, Place { region: 0, offset: MARK }, &to.0.to_le_bytes());
            let found = feed.recovers(&memory, keep);
            assert_eq!((found.end, found.under_way, found.undone), (to, 0, 0), "{keep:?}");
        }
    }
}

#[test]
fn a_batch_has_to_wait_for_room_in_the_ring() {
    let mut feed = two_batches();
    let mut posted = 0;
    while feed.post(vec![(Fid(2), Rid(0), Some(vec![posted as u8; 3000]), true)]) {
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
    clear(&regions(&memory));
    let found = recover(&regions(&memory), Keep::Whole).unwrap();
    assert_eq!((found.under_way, found.number, found.end), (0, 0, feed.mark));
}

/// Whatever one word of the ring is changed to, the outcome is a state after a batch, or refused.
#[test]
fn a_damaged_undo_ring_does_no_harm() {
    let (mut random, mut refused) = (Random::new(), 0);
    let feed = two_batches();
    for landed in [Landed::Writes(undo_writes(&feed) + 2), Landed::Writes(writes(&feed))] {
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
