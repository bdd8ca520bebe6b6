//! Random changes against a map, and memory that something else has written into.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use freshet_base::{ClusterId, Fid, Lsn, NodeId, Rid, Term, sync::Ordering, words};
use freshet_fabric::{
    Place,
    memory::{Region, Registered, SharedMemory},
};

use crate::{
    Before, Contents, DIRECTORY, Damaged, Filling, Here, Layout, List, MARK, NoRoom, NotPut, Record, Superblock,
    directory::{Chunk, ENTRY, Use},
    slot::HEADER,
};

mod again;
mod building;
mod recovering;
mod sharing;

/// Numbers by chance, from a seed that is printed.
struct Random(u64);

impl Random {
    fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let seed = std::env::var("FRESHET_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(1));
        println!("FRESHET_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

const CHUNKS: u32 = 300;
const UNDO_BYTES: usize = 64 << 10;

/// What records are, by table and id: where in the log, and the row unless they were deleted.
type Records = BTreeMap<(Fid, Rid), (Lsn, Option<Vec<u8>>)>;

/// Whether a table was dropped: then its records are of no interest.
fn is_dropped(records: &Records, fid: Fid) -> bool {
    fid.record().is_some_and(|rid| records.get(&(Fid::CATALOG, rid)).is_some_and(|(_, row)| row.is_none()))
}

/// Enters what has become of a record.
fn enter(records: &mut Records, id: (Fid, Rid), address: Lsn, row: Option<Vec<u8>>) {
    if let (Fid::CATALOG, None) = (id.0, &row) {
        let dropped = Fid::of_record(id.1);
        records.retain(|(fid, _), _| Some(*fid) != dropped);
    }
    if !is_dropped(records, id.0) {
        records.insert(id, (address, row));
    }
}

struct Pair {
    memory: Vec<Arc<SharedMemory>>,
    layout: Layout,
    records: Records,
    address: u64,
}

impl Pair {
    fn new() -> Self {
        let head = Arc::new(SharedMemory::new(DIRECTORY as usize + CHUNKS as usize * ENTRY, false).unwrap());
        let undo = Arc::new(SharedMemory::new(UNDO_BYTES, false).unwrap());
        let pair = Self { memory: vec![head, undo], layout: Layout::new(CHUNKS), records: Records::new(), address: 64 };
        pair.write_superblock(1);
        pair
    }

    fn write_superblock(&self, sequence: u64) {
        let (cluster, feeder) = (ClusterId(0x1234_5678_9abc_def0_0fed_cba9_8765_4321), NodeId(7));
        let block = Superblock { sequence, cluster, feeder, term: Term(3), base: Lsn(64) };
        let (at, bytes) = block.encode();
        words::store(self.memory[0].words(), at as usize, &bytes);
    }

    fn write<'l>(&self, list: impl Iterator<Item = (Place, &'l [u8])>) -> usize {
        let write = |(to, bytes): (Place, &[u8])| {
            words::store_among(self.memory[to.region].words(), to.offset as usize, bytes);
            bytes.len()
        };
        list.map(write).sum()
    }

    /// Changes a record, and says how many bytes were written for that.
    fn change(&mut self, fid: Fid, rid: Rid, row: Option<Vec<u8>>) -> usize {
        let mut list = List::default();
        self.put(fid, rid, row, &mut list);
        self.write(list.writes())
    }

    /// Appends to `list` what has to be written for a change.
    fn put(&mut self, fid: Fid, rid: Rid, row: Option<Vec<u8>>, list: &mut List) {
        self.address += 40;
        let address = Lsn(self.address);
        let record = Record { fid, rid, address, row: row.as_deref() };
        while let Err(why) = self.layout.put(&record, &mut Here(&self.regions()), list) {
            self.make_room(why);
        }
        enter(&mut self.records, (fid, rid), address, row);
    }

    fn make_room(&mut self, why: NotPut<Infallible>) {
        let NotPut::NoRoom(NoRoom::Arena { bytes }) = why else { panic!("{why}") };
        self.memory.push(Arc::new(SharedMemory::new(bytes.max(3000) as usize, false).unwrap()));
        self.layout.grow(self.memory.len() - 1, bytes.max(3000).next_multiple_of(8));
    }

    fn random_change(&mut self, random: &mut Random) {
        let (fid, rid, row) = self.draw(random);
        self.change(fid, rid, row);
        if random.below(10) == 0 {
            self.layout.committed(Lsn(self.address + random.below(2) * 40));
        }
    }

    /// A change by chance.
    fn draw(&mut self, random: &mut Random) -> (Fid, Rid, Option<Vec<u8>>) {
        let table = 1 + random.below(3) as u32;
        let fid = (0..).map(|drops| Fid(table + 3 * drops)).find(|fid| !is_dropped(&self.records, *fid)).unwrap();
        let record = fid.record().unwrap();
        if !self.records.contains_key(&(Fid::CATALOG, record)) {
            return (Fid::CATALOG, record, Some(vec![1; 80]));
        }
        if random.below(100) == 0 {
            return (Fid::CATALOG, record, None);
        }
        let rid = Rid(random.below(50));
        let before = self.records.get(&(fid, rid)).and_then(|(_, row)| row.clone());
        let row = match (random.below(10), before) {
            (0, _) => None,
            (1, _) => Some(random.bytes(random.0 % 20_000)),
            (2, _) => Some(vec![]),
            (3..8, Some(mut row)) if !row.is_empty() => {
                for _ in 0..random.below(4) {
                    let at = random.below(row.len() as u64) as usize;
                    row[at] = row[at].wrapping_add(1);
                }
                Some(row)
            }
            _ => Some(random.bytes(random.0 % 200)),
        };
        (fid, rid, row)
    }

    /// Changes by chance; some are of a record that the one before has changed.
    fn draw_some(&mut self, random: &mut Random, count: u64) -> Vec<(Fid, Rid, Option<Vec<u8>>)> {
        let mut changes = Vec::new();
        for _ in 0..count {
            let (fid, rid, row) = self.draw(random);
            changes.push((fid, rid, row.clone()));
            if let Some(mut row) = row.filter(|row| !row.is_empty() && random.below(3) == 0) {
                let at = random.below(row.len() as u64) as usize;
                row[at] ^= 1;
                changes.push((fid, rid, Some(row)));
            }
        }
        changes
    }

    /// Everything is below.
    fn end(&self) -> Lsn {
        Lsn(self.address + 1)
    }

    fn regions(&self) -> Vec<Region> {
        self.memory.iter().map(|memory| Arc::clone(memory) as Region).collect()
    }
}

/// All that a mirror has.
fn records_of(mirror: &Contents) -> Result<Records, Damaged> {
    let mut records = Records::new();
    for chunk in 0..mirror.chunk_count() {
        mirror.visit(chunk, |fid, rid, address, row| {
            assert!(records.insert((fid, rid), (address, row.map(<[u8]>::to_vec))).is_none(), "each comes once");
        })?;
    }
    let dropped: Vec<_> = records.keys().map(|(fid, _)| *fid).filter(|fid| is_dropped(&records, *fid)).collect();
    records.retain(|(fid, _), _| !dropped.contains(fid));
    Ok(records)
}

/// The layout, as the primary of the next term has it.
fn layout_of(regions: &[Region], end: Lsn) -> Result<Layout, Damaged> {
    let lengths: Vec<_> = regions.iter().map(|region| region.words().len() as u64 * 8).collect();
    Layout::of(&Contents::open(regions.to_vec(), end)?.description()?, &lengths)
}

fn read(regions: Vec<Region>, end: Lsn) -> Result<Records, Damaged> {
    layout_of(&regions, end)?;
    let mirror = Contents::open(regions, end)?;
    // Whether it is read record by record or not.
    mirror.long()?;
    records_of(&mirror)
}

#[test]
fn what_was_written_is_there_without_the_writer() {
    let mut random = Random::new();
    for round in 0..20 {
        let mut pair = Pair::new();
        for change in 0..400 {
            pair.random_change(&mut random);
            if change % 40 == 39 {
                let mirror = Contents::open(pair.regions(), pair.end()).unwrap();
                assert!(records_of(&mirror).unwrap() == pair.records, "round {round}, change {change}");
                for fid in (0..5).map(Fid) {
                    let rid = Rid(random.below(60));
                    let mut row = b"before".to_vec();
                    let at = mirror.read(fid, rid, &mut row).unwrap();
                    let wanted = pair.records.get(&(fid, rid)).filter(|(_, row)| row.is_some());
                    if is_dropped(&pair.records, fid) {
                        continue;
                    }
                    assert_eq!(at, wanted.map(|(at, _)| *at));
                    assert_eq!(&row[6..], wanted.and_then(|(_, row)| row.as_deref()).unwrap_or_default());
                }
                if random.below(2) == 0 {
                    // Another primary continues.
                    let unused = pair.layout.unused();
                    pair.layout = layout_of(&pair.regions(), pair.end()).unwrap();
                    assert_eq!(pair.layout.unused(), unused);
                }
            }
        }
    }
}

#[test]
fn only_what_differs_is_written() {
    let mut pair = Pair::new();
    let mut row = vec![7; 1000];
    let mut change = |row: &[u8]| pair.change(Fid(1), Rid(3), Some(row.to_vec()));
    let first = change(&row);
    assert!(first >= HEADER + 1000, "{first}");
    row[500] = 8;
    assert_eq!(change(&row), HEADER + 8, "one word, and the header");
    row[20] = 8;
    row[999] = 8;
    assert_eq!(change(&row), HEADER + 24 + 8, "what is near the header goes with it");
    row.extend([7; 24]);
    assert_eq!(change(&row[..1008]), HEADER + 8, "no more of a row that is longer by a word");
    assert_eq!(pair.change(Fid(1), Rid(3), None), HEADER);
    assert_eq!(pair.change(Fid(1), Rid(3), Some(vec![1; 10])), HEADER + 10);
    assert!(read(pair.regions(), pair.end()).unwrap() == pair.records);
}

/// A row that is too long for its slot is not written over before what replaces it is committed.
#[test]
fn long_rows_stay_until_what_replaces_them_is_committed() {
    let mut pair = Pair::new();
    let (fid, rid) = (Fid(1), Rid(3));
    pair.change(fid, rid, Some(vec![1; 10]));
    pair.change(fid, rid, Some(vec![2; 900]));
    let places = |pair: &Pair| Contents::open(pair.regions(), pair.end()).unwrap().long().unwrap();
    let first = places(&pair)[&(fid, rid)];
    pair.change(fid, rid, Some(vec![3; 900]));
    let second = places(&pair)[&(fid, rid)];
    assert_ne!(first, second);
    pair.layout.committed(Lsn(pair.address));
    pair.change(fid, rid, Some(vec![4; 900]));
    assert_ne!(places(&pair)[&(fid, rid)], first, "the address itself is not below");
    pair.layout.committed(Lsn(pair.address));
    pair.change(fid, rid, Some(vec![5; 900]));
    let free_again = places(&pair)[&(fid, rid)];
    assert!([first, second].contains(&free_again));
    pair.change(fid, rid, Some(vec![6; 10]));
    assert!(places(&pair).is_empty());
    assert!(read(pair.regions(), pair.end()).unwrap() == pair.records);
}

/// Whatever one bit or one word is changed to: it is noticed, or nothing of it is to be seen.
#[test]
fn damage_is_refused_and_never_believed() {
    let mut random = Random::new();
    let mut pair = Pair::new();
    (0..300).for_each(|_| pair.random_change(&mut random));
    pair.write_superblock(2);
    assert!(read(pair.regions(), pair.end()).unwrap() == pair.records);
    let mut refused = 0;
    let damage = |pair: &Pair, region: usize, word: usize, difference: u64| {
        let word = &pair.memory[region].words()[word];
        word.fetch_xor(difference, Ordering::SeqCst);
        let outcome = read(pair.regions(), pair.end());
        word.fetch_xor(difference, Ordering::SeqCst);
        if let Ok(records) = &outcome {
            assert!(*records == pair.records, "region {region}, difference {difference:x}");
        }
        usize::from(outcome.is_err())
    };
    for _ in 0..500 {
        let region = random.below(pair.memory.len() as u64) as usize;
        let word = random.below(pair.memory[region].words().len() as u64) as usize;
        let difference = if random.below(2) == 0 { 1 << random.below(64) } else { random.below(u64::MAX) };
        refused += damage(&pair, region, word, difference);
    }
    // Each bit of an entry, and of the header of a slot that is used.
    let chunk = Contents::open(pair.regions(), pair.end()).unwrap().chunks()[0];
    let entry = Chunk::entry(0).offset as usize / 8;
    let Use::Table(fid, first) = chunk.used_for else { panic!("the first chunk is a table's") };
    let used = (0..8).find(|slot| pair.records.contains_key(&(fid, Rid(first.0 + slot)))).unwrap();
    let slot = chunk.slot_at(used as u32);
    for bit in 0..64 {
        for word in 0..8 {
            assert_eq!(damage(&pair, 0, entry + word, 1 << bit), 1, "bit {bit} of word {word} of an entry");
        }
        for word in 0..2 {
            let at = slot.offset as usize / 8 + word;
            assert_eq!(damage(&pair, slot.region, at, 1 << bit), 1, "bit {bit} of word {word} of a slot");
        }
    }
    assert!(refused > 30, "{refused}");
}

/// Entries whose checksum is right, and which are impossible all the same.
#[test]
fn a_directory_that_lies_is_refused() {
    let arena = || Arc::new(SharedMemory::new(8192, false).unwrap());
    let at = |region, offset| Place { region, offset };
    let good = Chunk { used_for: Use::Table(Fid(1), Rid(8)), place: at(2, 4096), bytes: 512, slot: 64, slots: 8 };
    let rows = Chunk { used_for: Use::Overflow, slot: 512, slots: 1, ..good };
    let free = Chunk { used_for: Use::Free, slot: 0, slots: 0, ..good };
    let with = |entries: &[Option<Chunk>]| {
        let pair = Pair::new();
        for (number, chunk) in (0..).zip(entries) {
            let bytes = chunk.map_or([0; 64], |chunk| chunk.encode(number));
            words::store(pair.memory[0].words(), Chunk::entry(number).offset as usize, &bytes);
        }
        read(vec![Arc::clone(&pair.memory[0]) as Region, arena() as _, arena() as _], Lsn(100))
            .map(|records| records.len())
    };
    assert_eq!(with(&[Some(good)]), Ok(0));
    let half = Chunk { used_for: Use::Table(Fid(1), Rid(4)), place: at(2, 0), slots: 4, ..good };
    for other in [half, Chunk { place: at(2, 0), ..rows }, Chunk { place: at(2, 0), ..free }] {
        assert_eq!(with(&[Some(good), Some(other)]), Ok(0));
    }
    for (bad, number) in [
        (vec![None, Some(good)], 1),
        (vec![Some(good), Some(good)], 1),
        (vec![Some(good), Some(Chunk { place: at(2, 0), ..good })], 1),
        (vec![Some(good), Some(Chunk { used_for: Use::Table(Fid(2), Rid(8)), place: at(2, 4600), ..good })], 1),
        (vec![Some(Chunk { place: at(0, 0), ..good })], 0),
        (vec![Some(Chunk { place: Place { region: 1, offset: 0 }, ..good })], 0),
        (vec![Some(Chunk { place: at(3, 0), ..good })], 0),
        (vec![Some(Chunk { place: at(2, 8192 - 504), ..good })], 0),
        (vec![Some(Chunk { place: at(2, u64::MAX - 7), ..good })], 0),
        (vec![Some(Chunk { place: at(2, 4), ..good })], 0),
        (vec![Some(Chunk { used_for: Use::Table(Fid(1), Rid(9)), ..good })], 0),
        (vec![Some(Chunk { used_for: Use::Table(Fid(1), Rid(u64::MAX - 7)), ..good })], 0),
        (vec![Some(Chunk { slot: 16, ..good })], 0),
        (vec![Some(Chunk { slot: 72, ..good })], 0),
        (vec![Some(Chunk { slot: 1 << 61, ..good })], 0),
        (vec![Some(Chunk { bytes: 504, ..good })], 0),
        (vec![Some(Chunk { bytes: 514, ..good })], 0),
        (vec![Some(Chunk { bytes: u64::MAX - 7, ..good })], 0),
        (vec![Some(Chunk { slots: 9, ..good })], 0),
        (vec![Some(Chunk { slots: 6, ..good })], 0),
        (vec![Some(Chunk { slots: 1, ..good })], 0),
        (vec![Some(Chunk { slots: 16, bytes: 1024, used_for: Use::Table(Fid(1), Rid(16)), ..good })], 0),
        (vec![Some(half), Some(Chunk { used_for: Use::Table(Fid(1), Rid(0)), ..good })], 1),
        (vec![Some(good), Some(Chunk { used_for: Use::Table(Fid(1), Rid(12)), ..half })], 1),
        (vec![Some(Chunk { slot: 448 + 32, ..rows })], 0),
        (vec![Some(Chunk { slots: 0, ..rows })], 0),
        (vec![Some(Chunk { slots: 1, ..free })], 0),
        (vec![Some(Chunk { slot: 64, ..free })], 0),
        (vec![Some(Chunk { bytes: 0, ..free })], 0),
    ] {
        assert_eq!(with(&bad), Err(Damaged::Entry { number }), "{bad:?}");
    }
}

/// It is another node's word, as the lengths of its regions are.
#[test]
fn a_description_that_lies_is_refused() {
    let of = |slot, long: &[(u64, u64)]| {
        let place = Place { region: 2, offset: 512 };
        let chunk = Chunk { used_for: Use::Overflow, place, bytes: slot * 2, slot, slots: 2 };
        // One chunk, and no table that was dropped.
        let mut bytes = [&1u64.to_le_bytes()[..], &chunk.encode(0), &[0; 8]].concat();
        for (rid, offset) in long {
            // Table 1, region 2.
            let words = [1 | 2 << 32, *rid, *offset];
            bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
        }
        bytes
    };
    let lengths = [DIRECTORY + ENTRY as u64, 0, 8 << 30];
    let outcome = |bytes: &[u8]| Layout::of(bytes, &lengths).map(|layout| layout.unused());
    assert_eq!(outcome(&of(1 << 30, &[])), Ok((8 << 30) - 512 - (2 << 30)));
    assert_eq!(outcome(&of(512, &[(7, 512), (8, 1024)])), Ok((8 << 30) - 512 - 1024));
    assert_eq!(outcome(&of(1 << 31, &[])), Err(Damaged::Entry { number: 0 }), "no row is as long");
    let record = |rid| Err(Damaged::Record { fid: Fid(1), rid: Rid(rid) });
    assert_eq!(outcome(&of(512, &[(7, 512), (8, 512)])), record(8), "each has its own place");
    for offset in [0, 513, 1536, u64::MAX] {
        assert_eq!(outcome(&of(512, &[(7, offset)])), record(7), "no slot begins at {offset}");
    }
    let whole = of(512, &[(7, 512)]);
    for length in (0..whole.len()).filter(|length| *length != 8 + ENTRY + 8) {
        assert_eq!(outcome(&whole[..length]), Err(Damaged::Description), "{length} bytes");
    }
    let count = [&u64::MAX.to_le_bytes()[..], &whole[8..]].concat();
    assert_eq!(outcome(&count), Err(Damaged::Description));
    // A head that is longer than any directory.
    let lengths = [DIRECTORY + (1 << 40), lengths[1], lengths[2]];
    let record = Record { fid: Fid(1), rid: Rid(0), address: Lsn(64), row: Some(&[1; 20]) };
    Layout::of(&whole, &lengths).unwrap().put(&record, &mut Here(&[]), &mut List::default()).unwrap();
}

#[test]
fn a_memory_without_a_beginning_is_no_mirror() {
    assert_eq!(Contents::open(vec![], Lsn(1)).unwrap_err(), Damaged::Superblock);
    for bytes in [8, DIRECTORY as usize - 8, DIRECTORY as usize, 8192] {
        let zeros = Arc::new(SharedMemory::new(bytes, false).unwrap());
        assert_eq!(Contents::open(vec![zeros as _], Lsn(1)).unwrap_err(), Damaged::Superblock, "{bytes}");
    }
    let mut pair = Pair::new();
    pair.change(Fid(1), Rid(1), Some(vec![1; 20]));
    pair.write_superblock(2);
    // One copy of two may be torn; the arenas have to be there.
    pair.memory[0].words()[512 / 8 + 2].fetch_xor(1, Ordering::SeqCst);
    assert_eq!(Contents::open(pair.regions(), pair.end()).unwrap().superblock().sequence, 2);
    pair.memory[0].words()[2].fetch_xor(1, Ordering::SeqCst);
    assert_eq!(Contents::open(pair.regions(), pair.end()).unwrap_err(), Damaged::Superblock);
    pair.write_superblock(3);
    let mirror = Contents::open(pair.regions(), pair.end()).unwrap();
    assert_eq!((mirror.superblock().sequence, mirror.superblock().feeder, mirror.mark()), (3, NodeId(7), Lsn(0)));
    words::store(pair.memory[0].words(), MARK as usize, &77u64.to_le_bytes());
    assert_eq!(mirror.mark(), Lsn(77));
    assert_eq!(Contents::open(pair.regions()[..1].to_vec(), pair.end()).unwrap_err(), Damaged::Entry { number: 0 });
}

#[test]
fn a_full_directory_and_a_row_without_end_are_refused() {
    let mut layout = Layout::new(1);
    layout.grow(2, 1 << 20);
    let mut list = List::default();
    let record = |rid, row| Record { fid: Fid(1), rid: Rid(rid), address: Lsn(64), row };
    let mut nothing = Here(&[]);
    let mut put = |rid, row, list: &mut List| layout.put(&record(rid, row), &mut nothing, list);
    put(0, Some(&[1; 20]), &mut list).unwrap();
    for (rid, row) in [(2, &[1; 20][..]), (0, &[1; 2000])] {
        let refused = put(rid, Some(row), &mut list);
        assert!(matches!(refused, Err(NotPut::NoRoom(NoRoom::Directory))), "{refused:?}");
    }
    assert_eq!(list.writes().count(), 2, "the first chunk and its row");
    list.clear();
    put(1, None, &mut list).unwrap();
    assert_eq!(list.writes().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), [HEADER]);
}

/// The rows of a checkpoint, in any order, some of them twice; a primary continues from there.
#[test]
fn a_memory_that_is_filled_is_one_that_was_written() {
    let mut random = Random::new();
    for round in 0..20 {
        let mut pair = Pair::new();
        let mut filling = Filling::new(pair.regions());
        for record in 0..200 {
            let (fid, rid, row) = pair.draw(&mut random);
            pair.address += 40;
            let address = Lsn(pair.address);
            while let Err(why) = filling.put(&Record { fid, rid, address, row: row.as_deref() }) {
                let NoRoom::Arena { bytes } = why else { panic!("{why}") };
                let bytes = (bytes + random.below(5000)).next_multiple_of(8);
                pair.memory.push(Arc::new(SharedMemory::new(bytes as usize, false).unwrap()));
                filling.grow(Arc::clone(&pair.memory[pair.memory.len() - 1]) as _);
            }
            enter(&mut pair.records, (fid, rid), address, row);
            if random.below(20) == 0 {
                assert!(read(pair.regions(), pair.end()).unwrap() == pair.records, "round {round}, record {record}");
            }
        }
        let (cluster, feeder) = (ClusterId(5), NodeId(2));
        crate::begin_feed(&pair.regions(), cluster, feeder, Term(4), pair.end());
        pair.layout = layout_of(&pair.regions(), pair.end()).unwrap();
        (0..100).for_each(|_| pair.random_change(&mut random));
        let mirror = Contents::open(pair.regions(), pair.end()).unwrap();
        assert_eq!((mirror.superblock().cluster, mirror.superblock().feeder), (cluster, feeder));
        assert!(records_of(&mirror).unwrap() == pair.records, "round {round}");
    }
}

/// Records are whole, and as they were at the beginning, or they are left out.
#[test]
fn a_memory_is_read_while_it_is_written() {
    let mut random = Random::new();
    let mut left_out = 0;
    for _ in 0..10 {
        let mut pair = Pair::new();
        (0..300).for_each(|_| pair.random_change(&mut random));
        let (start, before) = (pair.end(), pair.records.clone());
        let mirror = Contents::open(pair.regions(), start).unwrap();
        let (mut found, mut newest) = (Records::new(), None);
        let after = std::thread::scope(|scope| {
            let seed = Random(random.below(u64::MAX));
            let writer = scope.spawn(move || {
                let mut random = seed;
                (0..1000).for_each(|_| pair.random_change(&mut random));
                pair.records
            });
            for chunk in 0..mirror.chunk_count() {
                let again = || {
                    std::thread::yield_now();
                    true
                };
                let fid = mirror.table(chunk);
                let left = mirror.visit_below(chunk, again, |rid, address, row| {
                    found.insert((fid.unwrap(), rid), (address, row.map(<[u8]>::to_vec)));
                });
                newest = newest.max(left.unwrap());
            }
            writer.join().unwrap()
        });
        for (id, record) in &before {
            match found.remove(id) {
                Some(read) => assert!(read == *record, "{id:?}"),
                None => {
                    // Of a table that was dropped, nothing is there.
                    let changed = after.get(id).is_none_or(|after| after.0 >= start);
                    assert!(changed && newest >= Some(start), "{id:?} has not changed");
                    left_out += 1;
                }
            }
        }
        found.retain(|(fid, _), _| !is_dropped(&before, *fid));
        assert!(found.is_empty(), "nothing else");
    }
    println!("{left_out} were left out");
}
