//! A crash at every operation on the medium, with what was not synced lost, kept or torn by pages:
//! the log that is found afterwards is a prefix of what was written, and covers everything that was
//! acknowledged.
//!
//! The fault model. A file is what lies on the disk, what is read (the page cache), and a list of
//! the pages (512 bytes) that were written since the last sync. A crash makes every later operation
//! fail. It is one of two:
//! - the machine loses power: of each file's unsynced pages some are on the disk, chosen at random,
//!   and only the disk is left;
//! - the process dies: everything that was written is read as before, and what was not synced is
//!   lost in a later loss of power, unless it is synced before.
//!
//! A sync that fails puts some of its pages on the disk, and none is written later, whatever is
//! synced: a page that is still read as it was written is written again only when it is written to
//! again (as on Linux).
//!
//! Making and removing files is durable at once, as the contract of `Medium` says. Several streams
//! share one machine: they crash together, and one may lose what another keeps. FRESHET_SEED
//! repeats a run.

use std::{
    collections::BTreeMap,
    env, io,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use freshet_base::{ClusterId, Fid, Lsn, Rid, Term};
use freshet_log::{
    Block, BlockBuilder, BlockKind, DurableError, GroupCommitKind, Log, LogConfig, LogStore, RecordKind, ReserveError,
    SegmentStore, StoreConfig, StoreError, TailError, Writer,
    medium::{Medium, MediumFile},
};

const CONFIG: StoreConfig = StoreConfig { cluster: ClusterId(7), segment_size: 4096 };
const PAGE: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// From this operation on nothing works.
    Crash,
    /// This write puts half of its bytes down and fails.
    ShortWrite,
    /// This operation finds the medium full.
    Full,
    /// This sync fails; the writes before it are neither lost nor safe, and no later sync makes
    /// them safe.
    Sync,
}

#[derive(Clone, Default)]
struct State {
    files: BTreeMap<String, FileState>,
    operations: u64,
    fault: Option<(u64, Fault)>,
    crashed: bool,
    hit: bool,
    lazy: Lazy,
}

/// What is left out of what a restart does, to see that it is missed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Lazy {
    #[default]
    Nothing,
    /// Writes that change nothing: what is there is not written again.
    Rewriting,
    /// And syncs of files that were not written to since the start.
    RewritingAndSyncs,
}

/// A file of a machine: what is on its disk, what is read, and what of that was written since the
/// last sync.
#[derive(Clone, Default)]
struct FileState {
    disk: Vec<u8>,
    cache: Vec<u8>,
    /// Whole pages as they were after each write, oldest first: where each lies, and its bytes.
    dirty: Vec<(usize, Vec<u8>)>,
    /// Written to since the start.
    touched: bool,
}

impl FileState {
    fn new(bytes: Vec<u8>) -> Self {
        Self { disk: bytes.clone(), cache: bytes, ..Self::default() }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.touched = true;
        self.cache[at..at + bytes.len()].copy_from_slice(bytes);
        let mut page = at - at % PAGE;
        while page < at + bytes.len() {
            let end = (page + PAGE).min(self.cache.len());
            self.dirty.push((page, self.cache[page..end].to_vec()));
            page += PAGE;
        }
    }

    /// Puts those of the dirty pages on the disk that `keep` wants, and forgets about the others.
    fn write_back(&mut self, mut keep: impl FnMut() -> bool) {
        for (at, page) in self.dirty.drain(..) {
            if keep() {
                self.disk[at..at + page.len()].copy_from_slice(&page);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Write,
    Sync,
    Make,
    Other,
}

impl State {
    /// Counts an operation; an error when it is to fail.
    fn step(&mut self, operation: Operation) -> io::Result<Option<Fault>> {
        self.operations += 1;
        if self.crashed {
            return Err(io::Error::other("crashed"));
        }
        let Some((at, fault)) = self.fault else { return Ok(None) };
        // The fault waits for the first operation at or after its turn that can have it.
        let fits = match fault {
            Fault::Crash => true,
            Fault::ShortWrite => operation == Operation::Write,
            Fault::Full => operation == Operation::Make || operation == Operation::Write,
            Fault::Sync => operation == Operation::Sync,
        };
        if self.hit || self.operations < at || !fits {
            return Ok(None);
        }
        self.hit = true;
        match fault {
            Fault::Crash => {
                self.crashed = true;
                Err(io::Error::other("crashed"))
            }
            Fault::Full => Err(io::ErrorKind::StorageFull.into()),
            Fault::Sync => Err(io::Error::other("the disk did not answer")),
            Fault::ShortWrite => Ok(Some(fault)),
        }
    }
}

/// A machine's storage as one stream sees it: files of its own, faults in common.
#[derive(Clone, Default)]
struct FaultyMedium {
    state: Arc<Mutex<State>>,
    stream: usize,
}

impl std::fmt::Debug for FaultyMedium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FaultyMedium")
    }
}

#[derive(Debug)]
struct FaultyFile(FaultyMedium, String);

/// xorshift: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

impl FaultyMedium {
    fn with_fault(at: u64, fault: Fault) -> Self {
        let medium = Self::default();
        medium.state.lock().unwrap().fault = Some((at, fault));
        medium
    }

    /// What is there after a loss of power.
    fn image(&self, random: &mut Random) -> Self {
        let state = self.state.lock().unwrap();
        let mut files = BTreeMap::new();
        for (name, file) in &state.files {
            // Mostly torn, at times all lost or all kept; each device in its own way.
            let style = random.below(4);
            let mut file = file.clone();
            file.write_back(|| match style {
                0 => false,
                1 => true,
                _ => random.below(2) == 0,
            });
            files.insert(name.clone(), FileState::new(file.disk));
        }
        Self::of(files, state.lazy)
    }

    /// What is there after the process has died, as by kill -9: no page was lost yet.
    fn left(&self) -> Self {
        let state = self.state.lock().unwrap();
        let mut files = state.files.clone();
        files.values_mut().for_each(|file| file.touched = false);
        Self::of(files, state.lazy)
    }

    fn of(files: BTreeMap<String, FileState>, lazy: Lazy) -> Self {
        Self { state: Arc::new(Mutex::new(State { files, lazy, ..State::default() })), stream: 0 }
    }

    fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.stream)
    }

    /// The log of `streams` streams on it.
    fn log(&self, streams: usize) -> Result<LogStore, StoreError> {
        let open = |stream| SegmentStore::open(Arc::new(Self { stream, ..self.clone() }), CONFIG);
        Ok(LogStore::of((0..streams).map(open).collect::<Result<_, _>>()?))
    }

    fn operations(&self) -> u64 {
        self.state.lock().unwrap().operations
    }
}

impl Medium for FaultyMedium {
    fn list(&self) -> io::Result<Vec<String>> {
        let prefix = self.name("");
        let state = self.state.lock().unwrap();
        Ok(state.files.keys().filter_map(|name| name.strip_prefix(&prefix)).map(str::to_owned).collect())
    }

    fn create(&self, name: &str, size: u64, first: &[u8]) -> io::Result<Arc<dyn MediumFile>> {
        let mut state = self.state.lock().unwrap();
        state.step(Operation::Make)?;
        let mut bytes = vec![0; size as usize];
        bytes[..first.len()].copy_from_slice(first);
        state.files.insert(self.name(name), FileState::new(bytes));
        Ok(Arc::new(FaultyFile(self.clone(), self.name(name))))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        Ok(Arc::new(FaultyFile(self.clone(), self.name(name))))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.step(Operation::Other)?;
        state.files.remove(&self.name(name));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.state.lock().unwrap().step(Operation::Other).map(drop)
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("faulty:{name}"))
    }
}

impl MediumFile for FaultyFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.state.lock().unwrap().files[&self.1].cache.len() as u64)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.state.lock().unwrap();
        let short = state.step(Operation::Write)?.is_some();
        let written = if short { &bytes[..bytes.len() / 2] } else { bytes };
        let lazy = state.lazy;
        let file = state.files.get_mut(&self.1).expect("an open file is not removed here");
        if !(lazy != Lazy::Nothing && file.cache[offset as usize..].starts_with(written)) {
            file.write(offset as usize, written);
        }
        if short { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.0.state.lock().unwrap();
        into.copy_from_slice(&state.files[&self.1].cache[offset as usize..offset as usize + into.len()]);
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.write(offset, &vec![0; length as usize])
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.0.state.lock().unwrap();
        let done = state.step(Operation::Sync);
        let (crashed, lazy) = (state.crashed, state.lazy);
        let file = state.files.get_mut(&self.1).expect("an open file is not removed here");
        match done {
            Ok(_) if lazy == Lazy::RewritingAndSyncs && !file.touched => {}
            Ok(_) => file.write_back(|| true),
            // It failed half-way: what is dirty no more is on the disk or not.
            Err(_) if !crashed => {
                let mut left = file.dirty.len() / 2;
                file.write_back(|| {
                    left = left.saturating_sub(1);
                    left > 0
                });
            }
            Err(_) => {}
        }
        done.map(drop)
    }
}

fn seed() -> u64 {
    let seed = env::var("FRESHET_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64) | 1
    });
    println!("FRESHET_SEED={seed}");
    seed
}

/// What a run was told and what it wrote: transactions, by their LSNs.
#[derive(Clone, Default)]
struct Story {
    acknowledged: Lsn,
    transactions: BTreeMap<Lsn, Vec<u8>>,
}

/// How a log is set up for a run.
#[derive(Clone, Copy, Debug)]
struct Setting {
    streams: usize,
    group_commit: GroupCommitKind,
}

const SETTINGS: [Setting; 4] = [
    Setting { streams: 1, group_commit: GroupCommitKind::Pipelined },
    Setting { streams: 1, group_commit: GroupCommitKind::Epoch(Duration::from_millis(1)) },
    Setting { streams: 2, group_commit: GroupCommitKind::Pipelined },
    Setting { streams: 3, group_commit: GroupCommitKind::Epoch(Duration::from_millis(1)) },
];

impl Story {
    /// A log that is durable up to `to`: what of it are whole transactions.
    fn acknowledge(&mut self, to: Lsn) {
        let ends = self.transactions.iter().map(|(lsn, blocks)| lsn.plus(blocks.len() as u64));
        self.acknowledged = ends.filter(|end| *end <= to).max().unwrap_or_default().max(self.acknowledged);
    }
}

/// Writes a transaction that is longer than the ring, part by part.
fn write_long(
    writer: &mut Writer,
    setting: Setting,
    random: &mut Random,
    story: &mut Story,
) -> Result<Lsn, ReserveError> {
    let mut builder = BlockBuilder::new();
    let build = |builder: &mut BlockBuilder, (stream, length): (u8, usize)| {
        builder.begin_in(stream);
        builder.push(None, Fid(1), Rid(7), RecordKind::Insert, &vec![length as u8; length]).unwrap();
        builder.seal_records()
    };
    let parts: Vec<_> =
        (0..8).map(|_| (random.below(setting.streams as u64) as u8, 500 + random.below(500) as usize)).collect();
    let length = parts.iter().map(|part| build(&mut builder, *part)).sum();
    let mut reservation = writer.reserve(length)?;
    let (lsn, end) = (reservation.lsn(), reservation.end());
    let mut blocks = Vec::new();
    let mut at = lsn;
    for (number, part) in parts.iter().enumerate() {
        build(&mut builder, *part);
        let bytes = builder.finish_part(at, Term(1), BlockKind::Redo, number + 1 == parts.len());
        at = at.plus(bytes.len() as u64);
        blocks.extend_from_slice(bytes);
    }
    story.transactions.insert(lsn, blocks.clone());
    for part in 0..parts.len() {
        let from = reservation.at().since(lsn) as usize;
        let to = from + Block::parse(&blocks[from..], reservation.at()).unwrap().bytes().len();
        assert!(to < blocks.len() || part + 1 == parts.len());
        reservation.put(&blocks[from..to])?;
    }
    Ok(end)
}

/// Writes transactions from `start` on until the medium fails or there are enough: by one writer of
/// each stream, some with blocks in several streams, and some that are longer than the ring.
fn write(medium: &FaultyMedium, setting: Setting, start: Lsn, random: &mut Random, story: &mut Story) {
    let Ok(store) = medium.log(setting.streams) else { return };
    if store.settle().is_err() {
        return;
    }
    let config = LogConfig {
        capacity: 4096,
        partition: 1024,
        batch_bytes: 1024,
        group_commit: setting.group_commit,
        ..LogConfig::default()
    };
    let Ok(log) = Log::open(config, Some(store), start, Term(1)) else { return };
    let mut writers: Vec<_> = (0..setting.streams).map(|_| log.writer().unwrap()).collect();
    let mut builder = BlockBuilder::new();
    for i in 0..40 {
        let writer = &mut writers[random.below(setting.streams as u64) as usize];
        if random.below(16) == 0 {
            match write_long(writer, setting, random, story) {
                Ok(_) => continue,
                Err(ReserveError::Failed(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        builder.begin_in(writer.stream());
        for record in 0..random.below(3) + 1 {
            let row = vec![i as u8; random.below(200) as usize];
            builder.push(None, Fid(1), Rid(record), RecordKind::Insert, &row).unwrap();
            if random.below(3) == 0 {
                builder.next_block_in(random.below(setting.streams as u64) as u8);
            }
        }
        let length = builder.seal_records();
        let reservation = match writer.reserve(length) {
            Ok(reservation) => reservation,
            Err(ReserveError::Failed(_)) => break,
            Err(error) => panic!("{error}"),
        };
        let (lsn, end) = (reservation.lsn(), reservation.end());
        let blocks = builder.finish(lsn, Term(1), BlockKind::Redo);
        story.transactions.insert(lsn, blocks.to_vec());
        match reservation.fill(blocks) {
            Ok(()) => {}
            Err(ReserveError::Failed(_)) => break,
            Err(error) => panic!("{error}"),
        }
        if random.below(3) == 0 {
            match log.wait_durable(end, None) {
                Ok(durable) => story.acknowledge(durable),
                Err(DurableError::Failed(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    drop(writers);
    let failed = log.close().is_err();
    assert_eq!(failed, log.failure().is_some());
    story.acknowledge(log.durable());
}

/// Opens what is left and checks it against the story; returns where the log ends.
fn check(medium: &FaultyMedium, setting: Setting, story: &mut Story, context: &str) -> Lsn {
    found(medium, setting, story).unwrap_or_else(|what| panic!("{context}: {what}"))
}

/// The same, or what is wrong.
fn found(medium: &FaultyMedium, setting: Setting, story: &mut Story) -> Result<Lsn, String> {
    let store = medium.log(setting.streams).map_err(|error| error.to_string())?;
    let tail = store.settle().map_err(|error| error.to_string())?;
    if tail.end < story.acknowledged {
        return Err(format!("ends at {}, acknowledged {}", tail.end, story.acknowledged));
    }
    let mut at = Lsn(0);
    while at < tail.end {
        // Whole transactions, in LSN order, whichever streams their blocks lie in.
        let written = &story.transactions[&at];
        let mut found = vec![0; written.len()];
        store.read(at, &mut found).map_err(|error| error.to_string())?;
        if found != *written {
            return Err(format!("another transaction at {at}"));
        }
        Block::parse(&found, at).unwrap();
        at = at.plus(written.len() as u64);
    }
    if at != tail.end {
        return Err(format!("a transaction is torn at {}", tail.end));
    }
    story.transactions.split_off(&tail.end);
    // A client that asks is told that all of this is persistent.
    story.acknowledged = tail.end;
    Ok(tail.end)
}

#[test]
fn a_crash_at_every_operation_loses_nothing_acknowledged() {
    let seed = seed();
    for setting in SETTINGS {
        let whole = FaultyMedium::default();
        write(&whole, setting, Lsn(0), &mut Random(seed), &mut Story::default());
        // The timing of the group commit differs from run to run, so this is about how many there
        // are.
        let operations = whole.operations();
        assert!(operations > 30);
        for at in 1..=operations {
            for fault in [Fault::Crash, Fault::ShortWrite, Fault::Full, Fault::Sync] {
                let context = format!("seed {seed}, {setting:?}, {fault:?} at {at}");
                let mut random = Random(seed ^ (at << 8));
                let mut story = Story::default();
                let medium = FaultyMedium::with_fault(at, fault);
                write(&medium, setting, Lsn(0), &mut random, &mut story);
                let image = medium.image(&mut random);
                let end = check(&image, setting, &mut story, &context);
                if at % 3 == 0 {
                    // It continues from there, crashes again, and still nothing is lost.
                    let so_far = image.operations();
                    image.state.lock().unwrap().fault = Some((so_far + 1 + random.below(60), Fault::Crash));
                    write(&image, setting, end, &mut random, &mut story);
                    check(&image.image(&mut random), setting, &mut story, &format!("{context}, again"));
                }
            }
        }
    }
}

/// Restarts after the process died, and more transactions in between; some restarts die as well, or
/// find syncs that fail. What a restart has found to be the log is there after the next loss of
/// power.
fn live_on(medium: &FaultyMedium, setting: Setting, random: &mut Random, mut story: Story, context: &str) {
    let mut medium = medium.left();
    for life in 0..3 {
        let context = format!("{context}, life {life}");
        let next = |medium: &FaultyMedium, random: &mut Random| match random.below(3) {
            0 => medium.image(random),
            _ => medium.left(),
        };
        let fault = |medium: &FaultyMedium, random: &mut Random, within: u64| {
            let fault = if random.below(2) == 0 { Fault::Crash } else { Fault::Sync };
            let at = medium.operations() + 1 + random.below(within);
            medium.state.lock().unwrap().fault = Some((at, fault));
        };
        if random.below(2) == 0 {
            fault(&medium, random, 12);
            // It may be over before, or have failed.
            let _ = medium.log(setting.streams).map(|store| store.settle());
            medium = next(&medium, random);
        }
        let end = check(&medium, setting, &mut story, &context);
        medium = next(&medium, random);
        check(&medium, setting, &mut story, &format!("{context}, again"));
        if random.below(2) == 0 {
            fault(&medium, random, 60);
            write(&medium, setting, end, random, &mut story);
            medium = next(&medium, random);
        }
    }
    check(&medium, setting, &mut story, &format!("{context}, in the end"));
    check(&medium.image(random), setting, &mut story, &format!("{context}, without power"));
}

/// As Linux has it: what was not synced is there after a crash of the process and gone after a loss
/// of power, and what a failed sync covered is not on the disk although a later sync succeeds. What
/// a restart finds to be the log must be persistent.
#[test]
fn what_a_restart_finds_is_there_after_the_next_loss_of_power() {
    let seed = seed();
    for setting in SETTINGS {
        let whole = FaultyMedium::default();
        write(&whole, setting, Lsn(0), &mut Random(seed), &mut Story::default());
        for at in 1..=whole.operations() {
            let mut random = Random(seed ^ (at << 8));
            let fault = [Fault::Crash, Fault::ShortWrite, Fault::Sync][random.below(3) as usize];
            let context = format!("seed {seed}, {setting:?}, {fault:?} at {at}");
            let mut story = Story::default();
            let medium = FaultyMedium::with_fault(at, fault);
            write(&medium, setting, Lsn(0), &mut random, &mut story);
            live_on(&medium, setting, &mut random, story, &context);
        }
    }
}

/// The faults are such that leaving out what a restart does about them is noticed: a sync without
/// writing again is enough after a process that died, and not after a sync that failed; doing
/// nothing is enough after neither.
#[test]
fn a_restart_that_does_not_write_again_is_noticed() {
    let seed = seed();
    for setting in SETTINGS {
        for (lazy, fault, noticed) in [
            (Lazy::Rewriting, Fault::Sync, true),
            (Lazy::Rewriting, Fault::Crash, false),
            (Lazy::RewritingAndSyncs, Fault::Crash, true),
            (Lazy::Nothing, Fault::Sync, false),
        ] {
            let lost = |at: u64| {
                let mut random = Random(seed ^ (at << 8));
                let mut story = Story::default();
                let medium = FaultyMedium::with_fault(at, fault);
                write(&medium, setting, Lsn(0), &mut random, &mut story);
                let left = medium.left();
                left.state.lock().unwrap().lazy = lazy;
                check(&left, setting, &mut story, "after the process");
                (0..8).find_map(|_| found(&left.image(&mut random), setting, &mut story.clone()).err())
            };
            let first = (1..60).find_map(lost);
            println!("{setting:?}, {lazy:?} after {fault:?}: {first:?}");
            // By epochs, nothing is kept that was not synced before the epoch was put on record;
            // and that record is renewed by a write that does change something.
            let noticed = noticed && setting.group_commit == GroupCommitKind::Pipelined;
            assert_eq!(first.is_some(), noticed, "seed {seed}, {setting:?}, {lazy:?} after {fault:?}: {first:?}");
        }
    }
}

#[test]
fn a_crash_at_every_operation_of_a_cut_leaves_it_undone_or_done() {
    let seed = seed();
    for setting in SETTINGS {
        let mut random = Random(seed);
        let (whole, mut story) = (FaultyMedium::default(), Story::default());
        write(&whole, setting, Lsn(0), &mut random, &mut story);
        let end = check(&whole, setting, &mut story, "before the cut");
        let at = *story.transactions.keys().nth(5).unwrap();
        for crash in 1..40 {
            let medium = whole.image(&mut Random(1));
            let store = medium.log(setting.streams).unwrap();
            store.settle().unwrap();
            let so_far = medium.operations();
            medium.state.lock().unwrap().fault = Some((so_far + crash, Fault::Crash));
            let done = store.cut(at);
            let image = medium.image(&mut random);
            let store = image.log(setting.streams).unwrap();
            let found = store.settle().unwrap();
            match done {
                Ok(()) => assert_eq!((found.end, found.cut), (at, None)),
                // With several streams some may be cut already; then the cut is done once more (by
                // its caller).
                Err(StoreError::Io { .. }) => assert!(found.end >= at && found.end <= end, "crash {crash}: {found:?}"),
                Err(error) => panic!("{error}"),
            }
            // What is said to be there is there, whole, also when not all streams were cut.
            let mut bytes = vec![0; found.end.0 as usize];
            store.read(Lsn(0), &mut bytes).unwrap_or_else(|error| panic!("{setting:?}, crash {crash}: {error}"));
            let mut here = Lsn(0);
            while here < found.end {
                let block = freshet_log::block::Block::parse(&bytes[here.0 as usize..], here);
                here = here.plus(block.unwrap_or_else(|error| panic!("at {here}: {error}")).bytes().len() as u64);
            }
            store.cut(at).unwrap();
            drop(store);
            assert_eq!(image.log(setting.streams).unwrap().settle().unwrap().end, at, "{setting:?}, crash {crash}");
        }
    }
}

#[test]
fn a_stream_without_what_it_had_promised_stops_the_node() {
    let setting = Setting { streams: 2, group_commit: GroupCommitKind::Pipelined };
    let (medium, mut story) = (FaultyMedium::default(), Story::default());
    write(&medium, setting, Lsn(0), &mut Random(7), &mut story);
    // One device comes back empty.
    let image = medium.image(&mut Random(1));
    image.state.lock().unwrap().files.retain(|name, _| !name.starts_with("1/"));
    let Err(TailError::Damage { what, .. }) = image.log(2).unwrap().settle() else { panic!("it was not noticed") };
    assert!(what.contains("stream 1 is empty"), "{what}");
}

#[test]
fn a_failed_log_gives_the_reason_and_takes_nothing_more() {
    let medium = FaultyMedium::with_fault(6, Fault::ShortWrite);
    let store = medium.log(1).unwrap();
    let log =
        Log::open(LogConfig { capacity: 8192, partition: 1024, ..LogConfig::default() }, Some(store), Lsn(0), Term(1))
            .unwrap();
    let mut writer = log.writer().unwrap();
    let error = loop {
        match writer.reserve(1024) {
            Ok(reservation) => {
                let end = reservation.end();
                reservation.skip();
                let _ = log.wait_durable(end, None);
            }
            Err(error) => break error,
        }
    };
    let text = error.to_string();
    assert!(text.contains("cannot write faulty:") && text.contains("restart"), "{text}");
    let durable = log.durable();
    assert!(matches!(log.wait_durable(durable.plus(1), None), Err(DurableError::Failed(_))));
    assert!(writer.throttle().is_ok() && writer.reserve(1024).is_err());
    assert!(log.close().is_err());
}

impl FaultyMedium {
    /// Takes from a stream what lies at `position` and above, as if it had never been written.
    fn lose(&self, stream: usize, position: u64) {
        let mut state = self.state.lock().unwrap();
        for (name, file) in &mut state.files {
            let Some(start) = name.strip_prefix(&format!("{stream}/")).and_then(|name| name.strip_suffix(".segment"))
            else {
                continue;
            };
            let start: u64 = start.parse().unwrap();
            let from = (position.saturating_sub(start).min(CONFIG.segment_size) + 4096) as usize;
            file.cache[from..].fill(0);
            file.disk[from..].fill(0);
        }
    }

    /// Replaces the small files, which say how far the log is durable, by what `older` has.
    fn notes_of(&self, older: &Self) {
        let older = older.state.lock().unwrap();
        let mut state = self.state.lock().unwrap();
        state.files.retain(|name, _| name.ends_with(".segment"));
        let notes = older.files.iter().filter(|(name, _)| !name.ends_with(".segment"));
        state.files.extend(notes.map(|(name, file)| (name.clone(), file.clone())));
    }
}

/// A log of several streams with a tail that was written after the last note of how far it is
/// durable.
struct Tails {
    medium: FaultyMedium,
    transactions: BTreeMap<Lsn, Vec<u8>>,
    /// For each stream, the blocks of its tail: the LSN of their transaction, and where they lie.
    /// Then where it ends.
    blocks: Vec<Vec<(Lsn, u64)>>,
    end: Lsn,
}

impl Tails {
    /// Writes some transactions behind `before`, which ends at `known`.
    fn write(before: &FaultyMedium, setting: Setting, known: Lsn, random: &mut Random) -> Self {
        let (medium, mut story) = (before.left(), Story::default());
        write(&medium, setting, known, random, &mut story);
        medium.notes_of(before);
        let store = before.log(setting.streams).unwrap();
        store.settle().unwrap();
        let mut ends: Vec<u64> = (0..setting.streams).map(|stream| store.stream(stream).end().0).collect();
        let mut tails =
            Self { medium, transactions: BTreeMap::new(), blocks: vec![Vec::new(); ends.len()], end: known };
        for (lsn, bytes) in story.transactions.into_iter().take(if ends.len() == 2 { 12 } else { 8 }) {
            let mut at = 0;
            while at < bytes.len() {
                let header = *Block::parse(&bytes[at..], lsn.plus(at as u64)).unwrap().header();
                let stream = usize::from(header.stream);
                tails.blocks[stream].push((lsn, ends[stream]));
                ends[stream] += u64::from(header.length);
                at += header.length as usize;
            }
            tails.end = lsn.plus(bytes.len() as u64);
            tails.transactions.insert(lsn, bytes);
        }
        for (stream, end) in ends.into_iter().enumerate() {
            tails.medium.lose(stream, end);
            tails.blocks[stream].push((Lsn::MAX, end));
        }
        tails
    }

    /// In which each stream keeps this many blocks of its tail, and, if `torn`, the beginning of
    /// the next.
    fn keeping(&self, kept: &[usize], torn: bool) -> FaultyMedium {
        let image = self.medium.left();
        for (stream, (kept, blocks)) in kept.iter().zip(&self.blocks).enumerate() {
            // Within the header: what is torn off behind it may have been zeros.
            image.lose(stream, blocks[*kept].1 + if torn && *kept + 1 < blocks.len() { 24 } else { 0 });
        }
        image
    }
}

/// Each stream keeps any number of its last blocks, whole or with one torn behind them, in every
/// combination: what is found is all transactions before the first one that lacks a block, and
/// nothing of any other.
#[test]
fn every_combination_of_lost_tails_yields_a_prefix_of_whole_transactions() {
    let seed = seed();
    let epoch = GroupCommitKind::Epoch(Duration::from_millis(1));
    for (streams, group_commit) in [(2, GroupCommitKind::Pipelined), (3, GroupCommitKind::Pipelined), (2, epoch)] {
        let setting = Setting { streams, group_commit };
        let mut random = Random(seed);
        let (before, mut story) = (FaultyMedium::default(), Story::default());
        write(&before, setting, Lsn(0), &mut random, &mut story);
        let known = check(&before, setting, &mut story, "before");
        let tails = (0..100).map(|_| Tails::write(&before, setting, known, &mut random));
        let tails = tails.into_iter().find(|tails| tails.blocks.iter().all(|blocks| blocks.len() > 2));
        let tails = tails.expect("one of them has something to lose in every stream");
        let blocks = &tails.blocks;
        story.transactions.extend(tails.transactions.clone());
        let combinations: usize = blocks.iter().map(Vec::len).product();
        for combination in 0..combinations {
            let mut rest = combination;
            let kept: Vec<usize> = blocks
                .iter()
                .map(|blocks| {
                    let kept = rest % blocks.len();
                    rest /= blocks.len();
                    kept
                })
                .collect();
            // The first block that is missing in any stream ends it.
            let lost = kept.iter().zip(blocks).map(|(kept, blocks)| blocks[*kept].0).min().unwrap();
            let expected = match group_commit {
                // Nothing of it was released to clients: the persistent epoch is older.
                GroupCommitKind::Epoch(_) => known,
                _ => lost.min(tails.end),
            };
            for torn in [false, true] {
                let image = tails.keeping(&kept, torn);
                let context = format!("seed {seed}, {setting:?}, {kept:?} of {blocks:?}, torn: {torn}");
                for when in ["first", "again"] {
                    // Nothing of what was cut comes back.
                    let store = image.log(streams).unwrap();
                    let found = store.settle().unwrap_or_else(|e| panic!("{context}, {when}: {e}"));
                    assert_eq!(found.end, expected, "{context}, {when}");
                    let mut bytes = vec![0; expected.0 as usize];
                    store.read(Lsn(0), &mut bytes).unwrap_or_else(|e| panic!("{context}, {when}: {e}"));
                    let written = story.transactions.range(..expected).flat_map(|(_, bytes)| bytes);
                    assert!(bytes.iter().eq(written), "{context}, {when}");
                }
            }
        }
        println!("{setting:?}: {combinations} combinations");
    }
}

/// Segments go while the node may die at any moment: what is at or above the place is there
/// afterwards, all of it.
#[test]
fn a_crash_at_every_operation_of_a_removal_leaves_all_that_was_to_stay() {
    let seed = seed();
    for setting in SETTINGS {
        let mut random = Random(seed);
        let (whole, mut story) = (FaultyMedium::default(), Story::default());
        let mut end = Lsn(0);
        for _ in 0..3 {
            write(&whole, setting, end, &mut random, &mut story);
            end = check(&whole, setting, &mut story, "before the removal");
        }
        let mut removals = 0;
        for (number, at) in story.transactions.keys().copied().chain([end]).enumerate() {
            // Without a crash; at every eighth place, also with one at each of the operations.
            let mut crash = if number % 8 == 0 { 1 } else { u64::MAX / 2 };
            loop {
                let medium = whole.left();
                let store = medium.log(setting.streams).unwrap();
                store.settle().unwrap();
                store.resume(end).unwrap();
                let so_far = medium.operations();
                medium.state.lock().unwrap().fault = Some((so_far + crash, Fault::Crash));
                let done = store.remove_below(at);
                let context = format!("seed {seed}, {setting:?}, {done:?} below {at}, crash at {crash}");
                let store = medium.image(&mut random).log(setting.streams).unwrap();
                let found = store.settle().unwrap_or_else(|e| panic!("{context}: {e}"));
                assert_eq!((found.end, found.cut), (end, None), "{context}");
                let begin = store.extent().unwrap().0;
                assert!(begin <= at, "{context}: the log begins at {begin}");
                let mut bytes = vec![0; end.since(at) as usize];
                store.read(at, &mut bytes).unwrap_or_else(|e| panic!("{context}: {e}"));
                let expected: Vec<u8> = story.transactions.range(at..).flat_map(|(_, bytes)| bytes.clone()).collect();
                assert!(bytes == expected, "{context}");
                match done {
                    Ok(removed) => {
                        removals += removed;
                        break;
                    }
                    Err(StoreError::Io { .. }) => crash += 1,
                    Err(error) => panic!("{context}: {error}"),
                }
            }
        }
        assert!(removals > 0, "{setting:?}: there was something to remove");
    }
}
