//! A block in the window, and the promise of its versions.
//!
//! Bytes are put once, by the thread that makes the versions then, or before. That the versions are
//! in the tables is said once, behind that. A thread that needs them before waits in the block's
//! list; a thread that says so, cuts the block off or closes the window wakes that afterwards.

use std::{
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use freshet_base::{
    Fid, Lsn, RecordKind, Rid,
    wait::{Patience, WaitList},
};
use freshet_log::{
    Block, BlockHeader, RecordHeader,
    block::{BLOCK_HEADER, RECORD_HEADER},
};
use freshet_replay::ReplayError;
use freshet_txn::Entry;

use super::{failure::Why, locks::Locking};

/// One write of a block: the record, and where its row lies in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub fid: Fid,
    pub rid: Rid,
    pub kind: RecordKind,
    /// The distance of the record's header from the block's beginning.
    offset: u32,
    length: u32,
}

impl Written {
    /// The records of a block whose bytes are known, but for those that belong to no table.
    pub fn of_block(block: &Block<'_>) -> Vec<Self> {
        let rows = block.records().filter(|record| record.header.fid < Fid::INPUTS);
        let of_row = rows.map(|record| Self {
            fid: record.header.fid,
            rid: record.header.rid,
            kind: record.header.kind,
            offset: record.header.block_back,
            length: record.header.length,
        });
        of_row.collect()
    }

    /// The records of a block that is going to have these entries.
    pub fn of_entries(entries: &[Entry]) -> Vec<Self> {
        let mut offset = BLOCK_HEADER as u64;
        let mut place = |entry: &Entry| {
            let at = offset;
            offset += RECORD_HEADER as u64 + u64::from(entry.length);
            // A block that is longer than it says never gets bytes.
            let offset = u32::try_from(at).unwrap_or(u32::MAX);
            Self { fid: entry.fid, rid: entry.rid, kind: entry.kind, offset, length: entry.length }
        };
        entries.iter().map(&mut place).collect()
    }

    /// Where its header lies.
    pub fn header(&self) -> usize {
        self.offset as usize
    }

    /// The record's address, which is its version's LSN.
    pub fn address(&self, block: Lsn) -> Lsn {
        block.plus(self.offset.into())
    }

    /// Where its row lies.
    pub fn row(&self) -> Range<usize> {
        let from = self.offset as usize + RECORD_HEADER;
        from..from + self.length as usize
    }
}

/// What executing a block's transaction again takes.
#[derive(Debug)]
pub(crate) struct Task {
    /// What it writes, and in which order. There when the block has been entered.
    pub entries: OnceLock<Vec<Entry>>,
    /// Where its statements read.
    pub snapshots: Vec<Lsn>,
    /// The row of the record with its inputs.
    pub inputs: Box<[u8]>,
    /// Why it cannot be executed, if that is known.
    pub hopeless: Option<Why>,
}

/// A block in the window.
#[derive(Debug)]
pub(crate) struct Pending {
    header: BlockHeader,
    written: Box<[Written]>,
    /// None when the bytes were known from the beginning.
    task: Option<Task>,
    /// The locks that it takes, where locks decide when it is executed.
    locking: Option<Locking>,
    image: OnceLock<Arc<[u8]>>,
    /// The threads that execute have nothing to do with it: replay makes its versions.
    is_replays: bool,
    /// Its versions are in the tables, or are replay's.
    done: AtomicBool,
    /// One has its bytes, and makes its versions: no other does.
    claimed: AtomicBool,
    /// Its bytes were asked for, since executing it takes long.
    asked: AtomicBool,
    /// For how many nanoseconds its own execution has waited for versions of other blocks.
    parked: AtomicU64,
    /// The log was cut below it.
    cut: AtomicBool,
    /// The threads that wait until it is done.
    arrived: WaitList,
}

/// The window was closed, or the block cut off: its versions may never come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

impl Pending {
    /// A block whose bytes are known, and whose versions a thread that executes makes.
    pub fn known(header: BlockHeader, written: Vec<Written>, image: Arc<[u8]>) -> Self {
        Self { image: image.into(), ..Self::promised(header, written, None) }
    }

    /// A block whose bytes are known, and whose versions are replay's to make.
    pub fn replays(header: BlockHeader, image: Arc<[u8]>) -> Self {
        Self { is_replays: true, done: AtomicBool::new(true), ..Self::known(header, Vec::new(), image) }
    }

    /// A block whose bytes are to come from executing it, or from elsewhere.
    pub fn promised(header: BlockHeader, written: Vec<Written>, task: Option<Task>) -> Self {
        Self {
            header,
            written: written.into(),
            task,
            locking: None,
            image: OnceLock::new(),
            is_replays: false,
            done: AtomicBool::new(false),
            claimed: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            parked: AtomicU64::new(0),
            cut: AtomicBool::new(false),
            arrived: WaitList::default(),
        }
    }

    /// The same block, which takes locks if some are given.
    pub fn taking(self, locking: Option<Locking>) -> Self {
        Self { locking, ..self }
    }

    pub fn locking(&self) -> Option<&Locking> {
        self.locking.as_ref()
    }

    pub fn header(&self) -> &BlockHeader {
        &self.header
    }

    pub fn lsn(&self) -> Lsn {
        self.header.lsn
    }

    pub fn end(&self) -> Lsn {
        self.header.end()
    }

    pub fn written(&self) -> &[Written] {
        &self.written
    }

    pub fn task(&self) -> Option<&Task> {
        self.task.as_ref()
    }

    /// What it changes, by these bytes, that was not as they say when it entered: then the state
    /// that its transaction was executed on is not the one that the log continues.
    pub fn lacks(&self, bytes: &[u8]) -> Option<ReplayError> {
        let entries = self.task.as_ref().and_then(|task| task.entries.get())?;
        let block = Block::parse(bytes, self.lsn()).ok()?;
        block.records().zip(entries).find_map(|(record, entry)| {
            let RecordHeader { fid, rid, kind, prev, .. } = record.header;
            let differs = kind != RecordKind::Insert && (fid, rid) == (entry.fid, entry.rid) && prev != entry.prev;
            let (prev, there) = (prev.unwrap_or_default(), entry.prev.unwrap_or_default());
            differs.then_some(ReplayError::Missing { at: record.address, fid, rid, prev, there })
        })
    }

    /// Its bytes, if they are there.
    pub fn image(&self) -> Option<&Arc<[u8]>> {
        self.image.get()
    }

    /// Here are its bytes; those that came first count, and are returned.
    pub fn put(&self, image: Arc<[u8]>) -> &Arc<[u8]> {
        self.image.get_or_init(|| image)
    }

    /// Its versions are in the tables: no thread waits for it any more.
    pub fn made(&self) {
        self.done.store(true, SeqCst);
        self.wake();
    }

    /// Whether that is so, or will be when it is replayed.
    pub fn is_done(&self) -> bool {
        self.done.load(SeqCst)
    }

    /// Whether its versions are in the tables before it is replayed.
    pub fn is_in_tables(&self) -> bool {
        !self.is_replays && self.is_done()
    }

    /// Whether the caller is the one who makes its versions, since it has its bytes: the first that
    /// asks.
    pub fn claim(&self) -> bool {
        !self.claimed.swap(true, SeqCst)
    }

    /// Whether one has its bytes: nobody needs to execute it any more.
    pub fn is_claimed(&self) -> bool {
        self.claimed.load(SeqCst)
    }

    /// Its bytes are about to be asked for, since executing it takes long. False the second time.
    pub fn ask(&self) -> bool {
        !self.asked.swap(true, SeqCst)
    }

    /// Its execution has waited for another block since then.
    pub fn has_parked(&self, since: Instant) {
        // Relaxed: a statistic of the thread that executes it.
        self.parked.fetch_add(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// For how long its execution has waited for others.
    pub fn parked(&self) -> Duration {
        Duration::from_nanos(self.parked.load(Relaxed))
    }

    /// The log was cut below it: it belongs to no log any more, and no thread waits for it.
    pub fn cut(&self) {
        self.cut.store(true, SeqCst);
        self.wake();
    }

    /// Whether that is so.
    pub fn is_cut(&self) -> bool {
        self.cut.load(SeqCst)
    }

    /// Has those who wait look again.
    pub fn wake(&self) {
        self.arrived.wake_all();
    }

    /// Blocks until it is [done](Pending::is_done).
    ///
    /// # Errors
    /// [`Closed`] when the block was cut off, or `over` says first that the wait is over; who
    /// changes what that says calls [`Pending::wake`] afterwards.
    pub fn wait(&self, over: impl Fn() -> bool) -> Result<(), Closed> {
        let look = || match self.is_done() {
            true => Some(Ok(())),
            false => (over() || self.is_cut()).then_some(Err(Closed)),
        };
        self.arrived.until(Patience::endless(), look).unwrap_or(Err(Closed))
    }
}
