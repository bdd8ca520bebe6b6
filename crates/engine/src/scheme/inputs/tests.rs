//! The window and its threads, with transactions of a model: rows are made of what was read, and
//! tables are lists of versions, into which the threads put what comes out.

mod live;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use freshet_base::{Fid, Lsn, RecordKind, Rid, Term};
use freshet_log::{Block, BlockBuilder, BlockKind};
use freshet_txn::{Entry, Past};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{
    failure::{Failure, Why},
    locks::Locking,
    mismatch::Mismatch,
    pending::{Pending, Task, Written},
    pool::{Counts, Execute, Mismatches, Originals, Pool, Wanted},
    room::{Room, Schedule},
    versions::Layout,
    window::{Perturb, Window},
};

const TABLE: Fid = Fid(7);

/// The seed of a randomised test: FRESHET_SEED, or another each time; printed.
fn seed() -> u64 {
    let clock = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = std::env::var("FRESHET_SEED").ok().map_or(clock, |text| text.parse().unwrap());
    println!("FRESHET_SEED={seed}");
    seed
}

/// Numbers that look random, each a function of the seed and its place.
struct Dice(u64, u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.1 += 1;
        xxh3_64_with_seed(&self.1.to_le_bytes(), self.0) % limit
    }
}

/// Yields now and then.
fn perturbing(seed: u64) -> Perturb {
    let count = AtomicU64::new(0);
    Arc::new(move || {
        let number = count.fetch_add(1, SeqCst);
        if xxh3_64_with_seed(&number.to_le_bytes(), seed).is_multiple_of(5) {
            thread::yield_now();
        }
    })
}

/// A transaction of the model: at each snapshot it reads some records, and then it writes some,
/// each with a row of what it has read so far.
#[derive(Clone)]
struct Program {
    snapshots: Vec<Lsn>,
    reads: Vec<Vec<Rid>>,
    writes: Vec<(Rid, RecordKind)>,
}

/// The versions of a record, by LSN; none where it is deleted.
type Versions = BTreeMap<Lsn, Option<Vec<u8>>>;

/// What reads find.
#[derive(Default)]
struct Tables(Mutex<HashMap<Rid, Versions>>);

impl Tables {
    fn read(&self, rid: Rid, below: Lsn) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(&rid)?.range(..below).next_back()?.1.clone()
    }

    fn newest(&self, rid: Rid) -> Option<Lsn> {
        Some(*self.0.lock().unwrap().get(&rid)?.last_key_value()?.0)
    }

    /// Takes the versions of a block back, which are there, and the newest of their records.
    fn take_back(&self, block: &Pending) {
        let mut records = self.0.lock().unwrap();
        for written in block.written() {
            let newest = records.get_mut(&written.rid).unwrap().pop_last().unwrap().0;
            assert_eq!(newest, written.address(block.lsn()));
        }
    }

    fn end(&self) -> Lsn {
        let records = self.0.lock().unwrap();
        records.values().filter_map(|versions| Some(*versions.last_key_value()?.0)).max().unwrap_or_default()
    }

    fn replay(&self, block: &Block<'_>) {
        let mut records = self.0.lock().unwrap();
        for record in block.records() {
            let row = (record.header.kind != RecordKind::Delete).then(|| record.row.to_vec());
            records.entry(record.header.rid).or_default().insert(record.address, row);
        }
    }
}

impl Program {
    /// What it reads, some of it more than once, and in no order.
    fn read_set(&self) -> Vec<(Fid, Rid)> {
        self.reads.iter().flatten().map(|rid| (TABLE, *rid)).collect()
    }

    /// Whether one of the two writes what the other reads or writes.
    fn conflicts(&self, other: &Self) -> bool {
        let writes = |one: &Self, rid: Rid| one.writes.iter().any(|(written, _)| *written == rid);
        let uses = |one: &Self, rid: Rid| writes(one, rid) || one.reads.iter().flatten().any(|read| *read == rid);
        let meets = |one: &Self, other: &Self| one.writes.iter().any(|(rid, _)| uses(other, *rid));
        meets(self, other) || meets(other, self)
    }

    /// The rows that it writes.
    fn rows<E>(&self, mut read: impl FnMut(Rid, Lsn) -> Result<Option<Vec<u8>>, E>) -> Result<Vec<Vec<u8>>, E> {
        let mut sum = 0u64;
        for (snapshot, rids) in self.snapshots.iter().zip(&self.reads) {
            for rid in rids {
                let row = read(*rid, *snapshot)?.unwrap_or_default();
                sum = sum.rotate_left(7) ^ xxh3_64(&row);
            }
        }
        Ok(self.writes.iter().map(|(rid, _)| (sum ^ rid.0).to_le_bytes().repeat(1 + rid.0 as usize % 3)).collect())
    }

    fn build(&self, rows: &[Vec<u8>], prev: &dyn Fn(usize) -> Option<Lsn>, lsn: Lsn) -> Vec<u8> {
        let mut builder = BlockBuilder::new();
        builder.begin();
        for (number, ((rid, kind), row)) in self.writes.iter().zip(rows).enumerate() {
            builder.push(prev(number), TABLE, *rid, *kind, row).unwrap();
        }
        builder.seal_records();
        builder.finish(lsn, Term(3), BlockKind::Redo).to_vec()
    }
}

/// A log that was made by executing programs one after another.
#[derive(Default)]
struct Recorded {
    /// By LSN and checksum of their blocks.
    programs: HashMap<(Lsn, u32), Program>,
    blocks: Vec<(Lsn, Vec<u8>)>,
    end: Lsn,
    tables: Tables,
}

impl Recorded {
    /// Executes a program, whose snapshots are there.
    fn run(&mut self, program: Program) {
        let at = self.end;
        let rows = program.rows(|rid, below| Ok::<_, ()>(self.tables.read(rid, below))).unwrap();
        let bytes = program.build(&rows, &|number| self.tables.newest(program.writes[number].0), at);
        let block = Block::parse(&bytes, at).unwrap();
        self.tables.replay(&block);
        self.end = block.end();
        self.programs.insert((at, block.header().crc), program);
        self.blocks.push((at, bytes));
    }

    /// Runs programs at random, over `records` records, with snapshots that are up to `old`
    /// transactions old.
    fn random(dice: &mut Dice, count: usize, records: u64, old: u64) -> Self {
        let mut recorded = Self::default();
        recorded.extend(dice, count, records, old);
        recorded
    }

    fn extend(&mut self, dice: &mut Dice, count: usize, records: u64, old: u64) {
        let recorded = self;
        for _ in 0..count {
            let number = recorded.blocks.len() as u64;
            let mut back: Vec<u64> = (0..=dice.below(3)).map(|_| dice.below(old.min(number) + 1)).collect();
            back.sort_unstable_by(|a, b| b.cmp(a));
            let boundary = |back: &u64| match back {
                0 => recorded.end,
                back => recorded.blocks[(number - back) as usize].0,
            };
            let snapshots: Vec<Lsn> = back.iter().map(boundary).collect();
            let reads = (0..snapshots.len()).map(|_| (0..dice.below(4)).map(|_| Rid(dice.below(records))).collect());
            let reads = reads.collect();
            let mut rids: Vec<Rid> = (0..=dice.below(4)).map(|_| Rid(dice.below(records))).collect();
            rids.sort_unstable();
            rids.dedup();
            let kind = |rid, dice: &mut Dice| match recorded.tables.newest(rid) {
                None => RecordKind::Insert,
                Some(_) if dice.below(8) == 0 => RecordKind::Delete,
                Some(_) => RecordKind::Update,
            };
            let writes = rids.into_iter().map(|rid| (rid, kind(rid, dice))).collect();
            recorded.run(Program { snapshots, reads, writes });
        }
    }
}

const SCHEDULES: [Schedule; 2] = [Schedule::Versions, Schedule::Locks];

/// What a transaction does instead of what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    Row,
    Fails,
    Length,
}

/// Executes programs again.
struct Model {
    recorded: Arc<Recorded>,
    shown: Arc<Tables>,
    lies: HashMap<Lsn, Lie>,
    /// Called before a program is executed.
    before: Arc<dyn Fn(Lsn) + Send + Sync>,
}

impl Execute for Model {
    fn execute(&mut self, block: &Pending, task: &Task, past: Arc<dyn Past>) -> Result<Arc<[u8]>, Failure> {
        (self.before)(block.lsn());
        let program = &self.recorded.programs[&(block.lsn(), block.header().crc)];
        let mut rows = program.rows(|rid, below| match past.wait(TABLE, rid, below) {
            Ok(()) => Ok(self.shown.read(rid, below)),
            Err(cause) => Err(Why::Failed(cause.to_string())),
        })?;
        match self.lies.get(&block.lsn()) {
            Some(Lie::Row) => rows[0][0] ^= 1,
            Some(Lie::Fails) => return Err(Why::Failed("it does not want to".into()).into()),
            Some(Lie::Length) => rows[0].push(0),
            None => {}
        }
        Ok(program.build(&rows, &|number| task.entries.get().unwrap()[number].prev, block.lsn()).into())
    }

    fn make(&mut self, block: &Pending, image: &[u8]) -> Result<(), String> {
        self.shown.replay(&Block::parse(image, block.lsn()).unwrap());
        Ok(())
    }

    fn check_order(&mut self, _: &Pending, _: &Task, _: Arc<dyn Past>, _: &[u8]) -> Option<Failure> {
        None
    }
}

/// Gives the original blocks, by another thread.
struct Late(Sender<Wanted>);

impl Originals for Late {
    fn ask(&self, wanted: Wanted) {
        self.0.send(wanted).unwrap();
    }
}

#[derive(Default)]
struct Noted(Mutex<Vec<Mismatch>>);

impl Mismatches for Noted {
    fn note(&self, mismatch: Mismatch) -> Result<(), String> {
        self.0.lock().unwrap().push(mismatch);
        Ok(())
    }
}

/// How a log is executed again.
struct Run {
    threads: usize,
    schedule: Schedule,
    room: Room,
    layout: Layout,
    perturb: Option<Perturb>,
    lies: HashMap<Lsn, Lie>,
    /// One block in this number keeps its bytes.
    kept_every: usize,
    before: Arc<dyn Fn(Lsn) + Send + Sync>,
    /// How many bytes are replayed at once.
    at_once: u64,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            threads: 2,
            schedule: Schedule::Versions,
            room: Room { bytes: 1 << 30, blocks: usize::MAX },
            layout: Layout::Arrays,
            perturb: None,
            lies: HashMap::new(),
            kept_every: usize::MAX,
            before: Arc::new(|_| {}),
            at_once: 1 << 12,
        }
    }
}

fn entries(block: &Block<'_>, window: &Window, shown: &Tables) -> Vec<Entry> {
    let entry = |record: freshet_log::RecordRef<'_>| {
        let (fid, rid) = (record.header.fid, record.header.rid);
        let prev = window.newest(fid, rid).max(shown.newest(rid));
        assert_eq!(prev, record.header.prev, "what {rid:?} replaces at {}", record.address);
        Entry { fid, rid, kind: record.header.kind, length: record.header.length, prev }
    };
    block.records().map(entry).collect()
}

/// Enters all blocks; ends early when the window is closed.
fn feed(run: &Run, recorded: &Recorded, window: &Window, shown: &Tables) {
    feed_from(0, run, recorded, window, shown);
    window.finish();
}

/// Enters blocks from this one on.
fn feed_from(first: usize, run: &Run, recorded: &Recorded, window: &Window, shown: &Tables) {
    for (number, (at, bytes)) in recorded.blocks.iter().enumerate().skip(first) {
        let block = Block::parse(bytes, *at).unwrap();
        if window.wait_room(0, bytes.len() as u64).is_err() {
            return;
        }
        let entries = entries(&block, window, shown);
        let written = Written::of_block(&block);
        let locking = |reads| window.has_locks().then(|| Locking::new(reads, &written));
        let pending = if number % run.kept_every == run.kept_every - 1 {
            let locking = locking(Vec::new());
            Pending::known(*block.header(), written, bytes.as_slice().into()).taking(locking)
        } else {
            let program = &recorded.programs[&(*at, block.header().crc)];
            let (snapshots, locking) = (program.snapshots.clone(), locking(program.read_set()));
            let task = Task { entries: entries.into(), snapshots, inputs: Box::default(), hopeless: None };
            Pending::promised(*block.header(), written, Some(task)).taking(locking)
        };
        let pending = Arc::new(pending);
        window.announce(&pending, |_, _| {});
        if window.enter(pending).is_err() {
            return;
        }
    }
}

/// Takes what comes out; returns how many blocks those were.
fn replay(run: &Run, recorded: &Recorded, window: &Window, shown: &Tables) -> usize {
    let mut replayed = 0;
    let mut take = |blocks: &[Arc<Pending>]| {
        for block in blocks {
            let (at, original) = &recorded.blocks[replayed];
            assert_eq!((block.lsn(), &block.image().unwrap()[..]), (*at, &original[..]));
            assert!(window.has_made(*at), "{at}");
            for record in Block::parse(original, *at).unwrap().records() {
                let row = (record.header.kind != RecordKind::Delete).then(|| record.row.to_vec());
                assert_eq!(shown.read(record.header.rid, record.address.plus(1)), row, "{}", record.address);
            }
            replayed += 1;
        }
        blocks.last().unwrap().end()
    };
    while let Some(end) = window.hand_over(run.at_once, &mut take) {
        window.leave(end);
    }
    replayed
}

fn deliver(recorded: &Recorded, asked: Receiver<Wanted>) {
    for wanted in asked {
        let place = recorded.blocks.binary_search_by_key(&wanted.at(), |(at, _)| *at).unwrap();
        wanted.deliver(Ok(recorded.blocks[place].1.clone()));
    }
}

/// Executes all of it again and compares; returns how many blocks were replayed, what was noted,
/// and the counts.
fn again(run: &Run, recorded: &Arc<Recorded>) -> (usize, Vec<Mismatch>, Arc<Counts>, Arc<Window>) {
    let window = Window::scheduled(Lsn::ZERO, run.room, run.layout, run.schedule, run.perturb.clone());
    again_in(run, recorded, window)
}

fn again_in(
    run: &Run,
    recorded: &Arc<Recorded>,
    window: Arc<Window>,
) -> (usize, Vec<Mismatch>, Arc<Counts>, Arc<Window>) {
    let (shown, noted) = (Arc::new(Tables::default()), Arc::new(Noted::default()));
    let (ask, asked) = channel();
    let make = || {
        let (recorded, shown, lies) = (Arc::clone(recorded), Arc::clone(&shown), run.lies.clone());
        Box::new(Model { recorded, shown, lies, before: Arc::clone(&run.before) }) as Box<dyn Execute>
    };
    let originals = Arc::new(Late(ask));
    let mut pool = Pool::start_with(run.threads, &window, &make, originals, Arc::clone(&noted) as _).unwrap();
    let replayed = thread::scope(|scope| {
        scope.spawn(|| deliver(recorded, asked));
        scope.spawn(|| feed(run, recorded, &window, &shown));
        let replayed = replay(run, recorded, &window, &shown);
        pool.join();
        let counts = Arc::clone(pool.counts());
        // With it goes the last who may ask for originals.
        drop(pool);
        (replayed, counts)
    });
    let noted = std::mem::take(&mut *noted.0.lock().unwrap());
    (replayed.0, noted, replayed.1, window)
}

#[test]
fn what_comes_out_is_what_was_there() {
    let seed = seed();
    let mut dice = Dice(seed, 0);
    for round in 0..12 {
        let records = [3, 20, 400][round % 3];
        let recorded = Arc::new(Recorded::random(&mut dice, 1500, records, 60));
        // Also a window that holds fewer blocks than a transaction depends on.
        let room = Room { bytes: [1 << 30, 3000][round % 2], blocks: [usize::MAX, 5, 50][round % 3] };
        let kept_every = [usize::MAX, 7][round / 3 % 2];
        let layout = [Layout::Arrays, Layout::Chains][round / 6];
        let perturb = Some(perturbing(seed ^ round as u64));
        for (threads, schedule) in [1, 2, 4, 8].into_iter().flat_map(|threads| SCHEDULES.map(|it| (threads, it))) {
            let run = Run { threads, schedule, room, layout, perturb: perturb.clone(), kept_every, ..Run::default() };
            let (replayed, noted, counts, window) = again(&run, &recorded);
            assert_eq!((replayed, noted.len(), window.failure()), (1500, 0, None), "{threads} threads, round {round}");
            assert!(schedule == Schedule::Versions || window.parked() == 0, "what has a lock is there");
            let kept = if kept_every == 7 { 1500 / 7 } else { 0 };
            assert_eq!(counts.executed.load(SeqCst), 1500 - kept);
            assert!((0..records).all(|rid| window.newest(TABLE, Rid(rid)).is_none()), "all have left");
        }
    }
}

/// No transaction is begun before those below have ended that write what it reads or writes, or
/// read what it writes.
#[test]
fn locks_are_granted_in_the_order_of_the_log() {
    let seed = seed();
    let mut dice = Dice(seed, 0);
    for (threads, records) in [(1, 8), (3, 8), (6, 30)] {
        let recorded = Arc::new(Recorded::random(&mut dice, 250, records, 20));
        let programs: BTreeMap<Lsn, Program> =
            recorded.programs.iter().map(|((at, _), program)| (*at, program.clone())).collect();
        let perturb = Some(perturbing(seed));
        let Run { room, layout, .. } = Run::default();
        let window = Window::scheduled(Lsn::ZERO, room, layout, Schedule::Locks, perturb);
        let (theirs, overtaken) = (Arc::clone(&window), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&overtaken);
        let before = Arc::new(move |at: Lsn| {
            for (below, program) in programs.range(..at) {
                let ended = theirs.has_made_or_left(*below);
                assert!(ended || !program.conflicts(&programs[&at]), "{at} is begun before {below} has ended");
                count.fetch_add(usize::from(!ended), SeqCst);
            }
        });
        let (replayed, noted, _, window) = again_in(&Run { threads, before, ..Run::default() }, &recorded, window);
        assert_eq!((replayed, noted.len(), window.failure()), (250, 0, None));
        println!("{threads} threads: {} times one was begun before another below", overtaken.load(SeqCst));
    }
}

/// A record is written so often before anything of it is executed.
fn write_often(times: u64, layout: Layout) {
    let mut recorded = Recorded::default();
    for number in 0..times {
        let kind = if number == 0 { RecordKind::Insert } else { RecordKind::Update };
        let snapshots = vec![recorded.end];
        recorded.run(Program { snapshots, reads: vec![vec![Rid(1)]], writes: vec![(Rid(1), kind)] });
    }
    let recorded = Arc::new(recorded);
    for (threads, schedule) in [(1, Schedule::Versions), (4, Schedule::Versions), (4, Schedule::Locks)] {
        let window = Window::scheduled(Lsn::ZERO, Run::default().room, layout, schedule, None);
        let (theirs, end) = (Arc::clone(&window), recorded.end);
        // Nothing is executed before all of it is in the window.
        let before = Arc::new(move |_| {
            while theirs.end() < end {
                thread::yield_now();
            }
        });
        let run = Run { threads, before, at_once: u64::MAX, ..Run::default() };
        let (replayed, noted, counts, window) = again_in(&run, &recorded, window);
        assert_eq!((replayed as u64, noted.len(), counts.executed.load(SeqCst)), (times, 0, times));
        assert_eq!((window.newest(TABLE, Rid(1)), window.failure()), (None, None));
    }
}

#[test]
fn one_record_is_written_65536_times_within_the_window() {
    write_often(65_536, Layout::Arrays);
}

/// Each look goes down all of the chain: so fewer.
#[test]
fn one_record_is_written_often_in_a_chain() {
    write_often(4096, Layout::Chains);
}

#[test]
fn what_comes_out_otherwise_is_fetched_and_noted() {
    let seed = seed();
    let mut dice = Dice(seed, 0);
    let recorded = Arc::new(Recorded::random(&mut dice, 600, 10, 30));
    let lies = HashMap::from([(5, Lie::Row), (6, Lie::Fails), (300, Lie::Length), (599, Lie::Row)]);
    let lies: HashMap<Lsn, Lie> = lies.into_iter().map(|(number, lie)| (recorded.blocks[number].0, lie)).collect();
    for (threads, schedule) in [(1, Schedule::Versions), (3, Schedule::Versions), (3, Schedule::Locks)] {
        let perturb = Some(perturbing(seed));
        let (replayed, mut noted, counts, window) =
            again(&Run { threads, schedule, perturb, lies: lies.clone(), ..Run::default() }, &recorded);
        assert_eq!((replayed, window.failure()), (600, None));
        assert_eq!((counts.executed.load(SeqCst), counts.mismatches.load(SeqCst)), (596, 4));
        noted.sort_unstable_by_key(|mismatch| mismatch.lsn);
        assert_eq!(noted.len(), lies.len());
        for mismatch in noted {
            let place = recorded.blocks.binary_search_by_key(&mismatch.lsn, |(at, _)| *at).unwrap();
            assert_eq!(mismatch.original, recorded.blocks[place].1);
            match lies[&mismatch.lsn] {
                Lie::Fails => {
                    assert!(mismatch.why.contains("it does not want to"), "{}", mismatch.why);
                    assert_eq!(mismatch.regenerated, b"");
                }
                Lie::Row => {
                    assert!(mismatch.why.contains("checksum"), "{}", mismatch.why);
                    let differs = |(a, b): (&u8, &u8)| a != b;
                    let regenerated = Block::parse(&mismatch.regenerated, mismatch.lsn).unwrap();
                    // In the row, and in the checksum.
                    let bytes =
                        regenerated.bytes().iter().zip(&mismatch.original).skip(8).filter(|pair| differs(*pair));
                    assert_eq!(bytes.count(), 1);
                }
                Lie::Length => assert_ne!(mismatch.regenerated.len(), 0),
            }
        }
    }
}

/// The window is closed while one thread executes and others wait for what comes of that.
#[test]
fn closing_ends_every_wait() {
    let mut recorded = Recorded::default();
    for number in 0..64 {
        let kind = if number == 0 { RecordKind::Insert } else { RecordKind::Update };
        let snapshots = vec![recorded.end];
        recorded.run(Program { snapshots, reads: vec![vec![Rid(1)]], writes: vec![(Rid(1), kind)] });
    }
    let recorded = Arc::new(recorded);
    for (threads, waiters) in [(2, 1), (6, 5)] {
        let window = Window::new(Lsn::ZERO, Room { bytes: 1 << 20, blocks: 32 }, Layout::Arrays, None);
        let begun = Arc::new(AtomicUsize::new(0));
        let (theirs, count) = (Arc::clone(&window), Arc::clone(&begun));
        // The first is in execution until the window is closed, which the others wait for.
        let before = Arc::new(move |at: Lsn| {
            if at > Lsn::ZERO {
                count.fetch_add(1, SeqCst);
                return;
            }
            while count.load(SeqCst) < waiters || theirs.parked() < waiters as u64 {
                thread::yield_now();
            }
            theirs.close(Some("enough".into()));
        });
        let run = Run { threads, before, ..Run::default() };
        let (replayed, noted, _, window) = again_in(&run, &recorded, window);
        assert_eq!((replayed, noted.len(), window.failure().as_deref()), (0, 0, Some("enough")));
        assert!(window.is_closed());
    }
}

#[test]
fn a_block_that_cannot_be_had_ends_it() {
    let mut dice = Dice(1, 0);
    let recorded = Arc::new(Recorded::random(&mut dice, 50, 3, 5));
    let lies = HashMap::from([(recorded.blocks[20].0, Lie::Row)]);
    let window = Window::new(Lsn::ZERO, Run::default().room, Layout::Arrays, None);
    let shown = Arc::new(Tables::default());
    struct Lost;
    impl Originals for Lost {
        fn ask(&self, wanted: Wanted) {
            wanted.deliver(Err("the primary is down".into()));
        }
    }
    let make = || {
        let (recorded, shown, lies) = (Arc::clone(&recorded), Arc::clone(&shown), lies.clone());
        Box::new(Model { recorded, shown, lies, before: Arc::new(|_| {}) }) as Box<dyn Execute>
    };
    let run = Run::default();
    let pool = Pool::start_with(3, &window, &make, Arc::new(Lost), Arc::new(Noted::default())).unwrap();
    let replayed = thread::scope(|scope| {
        scope.spawn(|| feed(&run, &recorded, &window, &shown));
        replay(&run, &recorded, &window, &shown)
    });
    drop(pool);
    assert!(replayed <= 20, "{replayed}");
    let failure = window.failure().unwrap();
    assert!(failure.contains("the primary is down") && failure.contains("checksum"), "{failure}");
}

/// A log is cut while blocks above are executed, and continues otherwise.
#[test]
fn what_is_cut_off_is_forgotten() {
    let seed = seed();
    for (round, (threads, schedule)) in [1, 2, 5].into_iter().flat_map(|it| SCHEDULES.map(|how| (it, how))).enumerate()
    {
        let common = 200 + 100 * round;
        let make = |other: u64| {
            let mut recorded = Recorded::random(&mut Dice(seed, 0), common, 6, 20);
            recorded.extend(&mut Dice(seed ^ other, 0), 400, 6, 20);
            recorded
        };
        let (first, mut second) = (make(1), make(2));
        let at = first.blocks[common].0;
        assert_eq!(first.blocks[..common], second.blocks[..common]);
        assert_ne!(first.blocks[common..], second.blocks[common..]);
        second.programs.extend(first.programs.iter().map(|(key, program)| (*key, program.clone())));
        let second = Arc::new(second);
        let run = Run { threads, perturb: Some(perturbing(seed)), ..Run::default() };
        let window = Window::scheduled(Lsn::ZERO, run.room, run.layout, schedule, run.perturb.clone());
        let (shown, noted) = (Arc::new(Tables::default()), Arc::new(Noted::default()));
        let make = || {
            let (recorded, shown) = (Arc::clone(&second), Arc::clone(&shown));
            Box::new(Model { recorded, shown, lies: HashMap::new(), before: Arc::new(|_| {}) }) as Box<dyn Execute>
        };
        let (ask, _asked) = channel();
        let mut pool = Pool::start_with(threads, &window, &make, Arc::new(Late(ask)), Arc::clone(&noted) as _).unwrap();
        let out = Mutex::new(Vec::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                let take = |blocks: &[Arc<Pending>]| {
                    for block in blocks {
                        let bytes = block.image().unwrap().to_vec();
                        out.lock().unwrap().push((block.lsn(), bytes));
                    }
                    blocks.last().unwrap().end()
                };
                while let Some(end) = window.hand_over(1 << 10, take) {
                    // No cut comes below what has left.
                    window.leave(end.min(at));
                }
            });
            feed_from(0, &run, &first, &window, &shown);
            window.cut(at, |block| shown.take_back(block));
            assert!(shown.end() < at, "what was made above is taken back");
            out.lock().unwrap().retain(|(lsn, _)| *lsn < at);
            assert_eq!(window.end(), at);
            feed_from(common, &run, &second, &window, &shown);
            window.finish();
        });
        pool.join();
        assert_eq!(*out.lock().unwrap(), second.blocks, "{threads} threads");
        assert_eq!((noted.0.lock().unwrap().len(), window.failure()), (0, None));
    }
}

/// Says which blocks are being executed.
struct Watched {
    model: Model,
    running: Arc<Mutex<Vec<Lsn>>>,
}

impl Execute for Watched {
    fn execute(&mut self, block: &Pending, task: &Task, past: Arc<dyn Past>) -> Result<Arc<[u8]>, Failure> {
        self.running.lock().unwrap().push(block.lsn());
        let outcome = self.model.execute(block, task, past);
        self.running.lock().unwrap().retain(|lsn| *lsn != block.lsn());
        outcome
    }

    fn check_order(&mut self, _: &Pending, _: &Task, _: Arc<dyn Past>, _: &[u8]) -> Option<Failure> {
        None
    }

    fn make(&mut self, block: &Pending, image: &[u8]) -> Result<(), String> {
        self.model.make(block, image)
    }
}

/// One that waits for a block below the cut whose bytes do not come, and one that is in the midst.
#[test]
fn a_cut_waits_until_nothing_that_is_cut_off_is_executed() {
    let mut recorded = Recorded::default();
    for number in 0..3 {
        let reads = if number == 1 { vec![Rid(0)] } else { Vec::new() };
        let (snapshots, writes) = (vec![recorded.end], vec![(Rid(number), RecordKind::Insert)]);
        recorded.run(Program { snapshots, reads: vec![reads], writes });
    }
    let recorded = Arc::new(recorded);
    let at = recorded.blocks[1].0;
    let window = Window::new(Lsn::ZERO, Run::default().room, Layout::Arrays, None);
    let shown = Arc::new(Tables::default());
    let (running, (ask, asked)) = (Arc::default(), channel());
    let (theirs, last) = (Arc::clone(&window), recorded.blocks[2].0);
    let before: Arc<dyn Fn(Lsn) + Send + Sync> = Arc::new(move |lsn| {
        // Until the cut has begun.
        while lsn == last && theirs.end() > at {
            thread::yield_now();
        }
    });
    let make = || {
        let (recorded, shown, before) = (Arc::clone(&recorded), Arc::clone(&shown), Arc::clone(&before));
        let model = Model { recorded, shown, lies: HashMap::from([(Lsn::ZERO, Lie::Fails)]), before };
        Box::new(Watched { model, running: Arc::clone(&running) }) as Box<dyn Execute>
    };
    let pool = Pool::start_with(3, &window, &make, Arc::new(Late(ask)), Arc::new(Noted::default())).unwrap();
    feed_from(0, &Run::default(), &recorded, &window, &shown);
    let wanted = asked.recv().unwrap();
    while window.parked() == 0 || running.lock().unwrap().len() < 2 {
        thread::yield_now();
    }
    window.cut(at, |block| shown.take_back(block));
    assert_eq!(*running.lock().unwrap(), []);
    // What is below is not disturbed.
    wanted.deliver(Ok(recorded.blocks[0].1.clone()));
    assert_eq!(window.hand_over(u64::MAX, |blocks| blocks.last().unwrap().end()), Some(at));
    assert_eq!(window.failure(), None);
    drop(pool);
}
