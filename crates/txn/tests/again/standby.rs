//! A standby that executes transactions again, a batch at a time: all of a batch at once, each in a
//! thread of its own. Its read view stays behind by a batch.

use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use freshet_base::{Certifier, Fid, Lsn, RecordKind, Rid, Watermark};
use freshet_log::{Block, BlockBuilder, BlockKind, RecordHeader, RecordRef, block::RECORD_HEADER};
use freshet_storage::{
    Announcement, Catalog, Guard, Instantiated, KeyBuffer, LoadError, Loaded, Participants, ReadContext, ReadError,
    RecordSource, Table,
};
use freshet_txn::{Core, Entry, Inputs, Mismatch, Past, ProcedureError, Snapshots, Worker};

use crate::{
    primary::Logged,
    program::{Program, Run},
};

/// The log as far as it is replayed.
struct Bytes {
    log: Vec<u8>,
    replayed: AtomicU64,
    /// The read view.
    visible: Arc<Watermark>,
}

impl RecordSource for Bytes {
    fn load(&self, address: Lsn, fid: Fid, rid: Rid, row: &mut Vec<u8>) -> Result<Loaded, LoadError> {
        assert!(address.0 < self.replayed.load(SeqCst), "{address} is not there yet");
        let bytes = &self.log[address.0 as usize..];
        let header = RecordHeader::decode(bytes).unwrap();
        assert_eq!((header.fid, header.rid), (fid, rid), "at {address}");
        row.extend_from_slice(&bytes[RECORD_HEADER..][..header.length as usize]);
        Ok(Loaded { kind: header.kind, prev: header.prev })
    }

    fn limit(&self) -> Lsn {
        self.visible.get()
    }
}

/// All of it, for those who put versions into tables.
struct Unlimited(Arc<Bytes>);

impl RecordSource for Unlimited {
    fn load(&self, address: Lsn, fid: Fid, rid: Rid, row: &mut Vec<u8>) -> Result<Loaded, LoadError> {
        self.0.load(address, fid, rid, row)
    }

    fn limit(&self) -> Lsn {
        Lsn::MAX
    }
}

/// A block that comes to be.
#[derive(Default)]
struct Coming {
    /// Whether its versions are in the tables.
    made: Mutex<bool>,
    there: Condvar,
}

impl Coming {
    fn set(&self) {
        *self.made.lock().unwrap() = true;
        self.there.notify_all();
    }
}

/// A version that will be: its address, and the block that makes it.
#[derive(Clone)]
struct Announced {
    address: Lsn,
    block: Arc<Coming>,
}

/// The versions of a batch.
#[derive(Default)]
struct Window {
    versions: HashMap<(Fid, Rid), Vec<Announced>>,
    /// A thread has failed: no other must wait for it.
    failed: Mutex<bool>,
    /// How often a version was of this batch, and how often it had to be waited for.
    read: AtomicUsize,
    waited: AtomicUsize,
}

impl Window {
    fn newest(&self, fid: Fid, rid: Rid, below: Lsn) -> Option<&Announced> {
        let versions = self.versions.get(&(fid, rid))?;
        versions[..versions.partition_point(|version| version.address < below)].last()
    }
}

impl Past for Window {
    fn wait(&self, fid: Fid, rid: Rid, below: Lsn) -> Result<(), ReadError> {
        let Some(Announced { block, .. }) = self.newest(fid, rid, below) else { return Ok(()) };
        self.read.fetch_add(1, SeqCst);
        let mut made = block.made.lock().unwrap();
        if !*made {
            self.waited.fetch_add(1, SeqCst);
        }
        while !*made {
            if *self.failed.lock().unwrap() {
                return Err(ReadError::Stalled);
            }
            made = block.there.wait(made).unwrap();
        }
        Ok(())
    }
}

/// Has all who wait give up when its thread panics.
struct Failing<'w>(&'w Window, &'w [Arc<Coming>]);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            *self.0.failed.lock().unwrap() = true;
            for block in self.1 {
                // Who has looked, and does not wait yet, has the lock.
                drop(block.made.lock());
                block.there.notify_all();
            }
        }
    }
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub executed: usize,
    pub kept: usize,
    pub read: usize,
    pub waited: usize,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.executed += other.executed;
        self.kept += other.kept;
        self.read += other.read;
        self.waited += other.waited;
    }
}

pub struct Standby {
    core: Arc<Core>,
    source: Arc<Bytes>,
    logged: Vec<Logged>,
    /// How many blocks are replayed.
    replayed: usize,
    pub tally: Tally,
}

impl Standby {
    /// One that has replayed what comes before the first recorded transaction; `most` are
    /// executed at a time.
    pub fn new((log, logged): (Vec<u8>, Vec<Logged>), most: usize) -> Self {
        let visible = Arc::new(Watermark::new(Lsn::ZERO));
        let source = Arc::new(Bytes { log, replayed: AtomicU64::new(0), visible: Arc::clone(&visible) });
        let snapshots = Snapshots::standby(visible);
        let (participants, catalog) = (Participants::new(most + 2), Arc::new(Catalog::new()));
        let certifier = Certifier::default();
        let core = Core::new(
            participants,
            catalog,
            snapshots,
            Arc::clone(&source) as _,
            Arc::default(),
            Arc::default(),
            certifier,
        );
        let mut standby = Self { core, source, logged, replayed: 0, tally: Tally::default() };
        let first = standby.logged.iter().position(|logged| logged.program.is_some()).expect("something is recorded");
        standby.replay(first);
        standby.show();
        standby
    }

    pub fn table(&self) -> Arc<Table> {
        self.core.catalog.by_name("items", Lsn::MAX).unwrap()
    }

    /// How many blocks are still to come.
    pub fn left(&self) -> usize {
        self.logged.len() - self.replayed
    }

    /// Where block number `number` begins, or the log ends.
    fn lsn(&self, number: usize) -> Lsn {
        self.logged.get(number).map_or(Lsn(self.source.log.len() as u64), |logged| logged.lsn)
    }

    /// Readers see everything that is replayed.
    fn show(&mut self) {
        self.source.visible.advance(self.lsn(self.replayed));
    }

    /// Announces what is in the blocks up to number `to`.
    fn replay(&mut self, to: usize) {
        let participant = self.core.participants.join().unwrap();
        let guard = participant.pin_without_snapshot();
        self.source.replayed.store(self.lsn(to).0, SeqCst);
        for logged in &self.logged[self.replayed..to] {
            let block = logged.block();
            if block.header().kind == BlockKind::Schema {
                for RecordRef { header, address, row } in block.records() {
                    self.core.catalog.replay(&guard, header.kind, header.rid, row, address).unwrap();
                }
            }
            for record in block.records() {
                self.announce(&guard, &record);
            }
        }
        self.replayed = to;
    }

    fn announce(&self, guard: &Guard<'_>, RecordRef { header, address, row }: &RecordRef<'_>) {
        if header.fid == Fid::INPUTS {
            return;
        }
        let content = self.core.catalog.get(guard, header.fid).unwrap().content(guard).unwrap();
        let is_gone = header.kind == RecordKind::Delete;
        let announcement = Announcement { address: *address, is_first: header.is_first(), is_gone };
        assert!(content.replay_store(header.rid, announcement));
        if header.kind == RecordKind::Insert {
            self.enter(guard, header.fid, header.rid, row);
        }
    }

    /// Enters a record's keys.
    fn enter(&self, guard: &Guard<'_>, fid: Fid, rid: Rid, row: &[u8]) {
        let content = self.core.catalog.get(guard, fid).unwrap().content(guard).unwrap();
        let mut key = KeyBuffer::new();
        for (_, index) in content.indexes(guard).iter() {
            if let Some(key) = index.key_of(row, &mut key) {
                index.tree().insert(guard, key, rid).unwrap();
            }
        }
    }

    /// Puts what a block has written into the tables.
    fn make(&self, logged: &Logged, bytes: &[u8]) {
        let participant = self.core.participants.join().unwrap();
        let guard = participant.pin_without_snapshot();
        let source = Unlimited(Arc::clone(&self.source));
        for RecordRef { header, address, row } in Block::parse(bytes, logged.lsn).unwrap().records() {
            if header.fid == Fid::INPUTS {
                continue;
            }
            let content = self.core.catalog.get(&guard, header.fid).unwrap().content(&guard).unwrap();
            let context = ReadContext {
                snapshot: self.source.visible.get(),
                me: None,
                owners: &self.core.owners,
                source: &source,
                horizon: Lsn::ZERO,
            };
            let made = content.instantiate(&guard, header.kind, header.rid, address, row, &context).unwrap();
            assert!(matches!(made, Instantiated::First | Instantiated::Beside(_)), "{made:?} at {address}");
        }
    }

    /// What the block announces, without the bytes: the predecessors are looked up here.
    fn initialise(&self, window: &mut Window, number: usize) -> (Vec<Entry>, Arc<Coming>) {
        let participant = self.core.participants.join().unwrap();
        let guard = participant.pin_without_snapshot();
        let (logged, coming) = (self.logged[number].clone(), Arc::new(Coming::default()));
        let mut entries = Vec::new();
        for RecordRef { header, address, row } in logged.block().records() {
            let RecordHeader { fid, rid, kind, length, .. } = header;
            if fid == Fid::INPUTS {
                continue;
            }
            let content = self.core.catalog.get(&guard, fid).unwrap().content(&guard).unwrap();
            let before = window.newest(fid, rid, address).map(|version| version.address);
            let prev = before.max(content.replayed(rid)).max(content.restored(&guard, rid));
            entries.push(Entry { fid, rid, kind, length, prev });
            if kind == RecordKind::Insert {
                self.enter(&guard, fid, rid, row);
            }
            let block = Arc::clone(&coming);
            window.versions.entry((fid, rid)).or_default().push(Announced { address, block });
        }
        (entries, coming)
    }

    /// Executes the next `count` blocks, begun in the order that `shuffle` makes; those that were
    /// not recorded are there at once. Each must come out as it was.
    pub fn batch(&mut self, programs: &[Program], count: usize, shuffle: impl FnOnce(&mut Vec<usize>)) {
        let numbers = self.replayed..(self.replayed + count).min(self.logged.len());
        let mut window = Window::default();
        let announced: Vec<_> = numbers.clone().map(|number| self.initialise(&mut window, number)).collect();
        let coming: Vec<Arc<Coming>> = announced.iter().map(|(_, coming)| Arc::clone(coming)).collect();
        let mut order: Vec<usize> = (0..numbers.len()).collect();
        shuffle(&mut order);
        let window = Arc::new(window);
        let (mut executed, mut kept) = (0, 0);
        thread::scope(|scope| {
            for place in order {
                let logged = &self.logged[numbers.start + place];
                let Some(program) = logged.program else {
                    self.make(logged, &logged.bytes);
                    coming[place].set();
                    kept += 1;
                    continue;
                };
                let (entries, window, coming, program) = (&announced[place].0, &window, &coming, &programs[program]);
                let this = &*self;
                scope.spawn(move || {
                    let _failing = Failing(window, coming);
                    let bytes = this.again(logged, entries, program, Arc::clone(window) as _);
                    let bytes = bytes.unwrap_or_else(|cause| panic!("{}: {cause}\n{program:?}", logged.lsn));
                    assert!(*bytes == *logged.bytes, "{}: other bytes\n{program:?}", logged.lsn);
                    this.make(logged, &bytes);
                    coming[place].set();
                });
                executed += 1;
            }
        });
        self.tally.executed += executed;
        self.tally.kept += kept;
        self.tally.read += window.read.load(SeqCst);
        self.tally.waited += window.waited.load(SeqCst);
        self.show();
        self.source.replayed.store(self.lsn(numbers.end).0, SeqCst);
        self.replayed = numbers.end;
    }

    /// Executes one transaction.
    fn again(
        &self,
        logged: &Logged,
        entries: &[Entry],
        program: &Program,
        past: Arc<dyn Past>,
    ) -> Result<Arc<[u8]>, ProcedureError> {
        let block = logged.block();
        let row = block.inputs().unwrap();
        let worker = Worker::new(&self.core).unwrap();
        let snapshots = Inputs::decode(row).unwrap().snapshots;
        let mut run = Run::new(worker.again(logged.lsn, &snapshots, entries, past), self.table());
        for step in &program.steps {
            match run.step(*step) {
                Ok(()) => {}
                Err(cause) => return Err(cause.into()),
            }
        }
        let header = block.header();
        let built = run.transaction.regenerate(&mut BlockBuilder::new(), header.term, header.stream, row);
        built.map_err(|cause: Mismatch| ProcedureError::Write(cause.into()))
    }

    /// Executes a transaction of the next batch alone, as a thread of it would, and says what comes
    /// of it.
    pub fn try_next(
        &mut self,
        program: &Program,
        change: impl FnOnce(&mut Vec<Entry>),
    ) -> Result<bool, ProcedureError> {
        let mut window = Window::default();
        let (mut entries, _) = self.initialise(&mut window, self.replayed);
        change(&mut entries);
        let window = Arc::new(window);
        let logged = &self.logged[self.replayed];
        Ok(*self.again(logged, &entries, program, window)? == *logged.bytes)
    }

    /// What its workers share.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }
}
