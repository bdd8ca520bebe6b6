//! The window: the blocks, one behind the other, between what has been received and what readers
//! see, and the versions that they are going to make.
//!
//! | who | does | with |
//! |---|---|---|
//! | one thread | enters blocks, in the order of LSNs | [`Window::enter`] |
//! | several threads | execute those that need it, in the order of LSNs, and put their versions into the tables | [`Window::next`], [`Window::make`] |
//! | one thread | takes the blocks at the front whose versions are there, and logs them | [`Window::hand_over`] |
//! | one thread | takes those out of the window that readers see | [`Window::leave`] |
//!
//! # Access protocol
//!
//! `order` is behind its mutex, and never locked while a shard or a block is. A block's records are
//! in the version arrays before a thread can get a block above it to execute, and until its
//! versions are in the tables: they are put there first, then taken out of the arrays. So a reader
//! that finds no version of a record here, or waits until the one that it finds is made, finds the
//! one that it wants in the table, if it looks there afterwards: the lock of the record's shard, or
//! the flag of the block, orders the two. It may have waited for an older one than it wants, which
//! does no harm.
//!
//! Versions are made in no order, above what readers see. A cut says of the blocks that it takes
//! out of the window that they are cut off, waits until none of them is executed, and takes back
//! their versions, from the newest down. `making` is a lock that threads which make versions share,
//! and that a cut has for itself: below the cut others continue, and blocks that were fetched come
//! at any time. A thread that has waited for it looks whether its block was cut off.
//!
//! No threads wait in a circle. A block waits for blocks with lower LSNs only, since its
//! snapshots are at most its own LSN, and blocks are executed in the order of LSNs: the lowest
//! block whose versions are missing either is being executed and waits for none, or its bytes are
//! being fetched. The thread that has fetched them makes the versions, too: all others may wait for
//! these.
//!
//! An execution that nobody waits for any more ends by itself: it looks, at each record that it
//! reads or writes, whether the window was closed, its block cut off, or its bytes have come from
//! another node, which are asked for when it takes long ([`Window::overdue`]).
//!
//! With [`Schedule::Locks`] blocks are begun in another order. What a reader has a lock on is
//! there. It may look at other records, too: an index entry of a record that is gone, whose id
//! another block has given away again. Then it waits, unless all other threads do: the last one
//! fails, so that there is always a thread for a block that has its locks.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use freshet_base::{Fid, Lsn, Rid};
use freshet_storage::{Content, Guard};

use super::{
    locks::Locks,
    pace::Pace,
    pending::{Closed, Pending},
    room::{Room, Schedule},
    versions::{Layout, Passed, VersionArrays},
};

/// Called at points where threads may meet: for tests, which delay some of them.
pub type Perturb = Arc<dyn Fn() + Send + Sync>;

/// Whether blocks come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Course {
    Open,
    /// No more are entered; those that are here are dealt with.
    Finished,
    /// What is left is not dealt with; why, if that was not asked for.
    Closed(Option<String>),
}

/// The blocks in the order of LSNs.
struct Order {
    blocks: VecDeque<Arc<Pending>>,
    /// How many of them, from the front, need not be looked at any more by those who execute.
    begun: usize,
    /// Those that have their locks, and were not begun.
    ready: VecDeque<Arc<Pending>>,
    /// Those that are to be executed once more.
    retries: Vec<Arc<Pending>>,
    /// How many, from the front, were taken to be replayed.
    taken: usize,
    /// Of those that were not taken.
    bytes: u64,
    /// Everything below is replayed.
    replayed: Lsn,
    /// Where the next one begins.
    end: Lsn,
    course: Course,
    /// How often it was cut, or is about to be.
    cuts: u64,
    /// How many threads wait for a block to execute.
    idle: usize,
    /// The blocks that are being executed, or whose versions are being made, and since when.
    executing: Vec<(Arc<Pending>, Instant)>,
    /// How long that takes.
    pace: Pace,
    /// Whether a thread waits for the block at the front.
    replayer_waits: bool,
    /// How many threads wait for room, or for replay.
    entrants_wait: usize,
}

impl Order {
    fn begin(&self) -> Lsn {
        self.blocks.front().map_or(self.end, |block| block.lsn())
    }

    /// The next block whose versions are to be made, in the order of LSNs.
    fn next(&mut self) -> Option<Arc<Pending>> {
        if let Some(block) = self.next_retry() {
            return Some(block);
        }
        while let Some(block) = self.blocks.get(self.begun) {
            let found = (!block.is_done()).then(|| Arc::clone(block));
            self.begun += 1;
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn next_retry(&mut self) -> Option<Arc<Pending>> {
        std::iter::from_fn(|| self.retries.pop()).find(|block| !block.is_cut() && !block.is_claimed())
    }

    /// The block with the lowest LSN among those that are executed, and since when.
    fn lowest(&self) -> Option<(&Arc<Pending>, Instant)> {
        self.executing.iter().min_by_key(|(block, _)| block.lsn()).map(|(block, since)| (block, *since))
    }

    /// The next block that has its locks.
    fn next_ready(&mut self) -> Option<Arc<Pending>> {
        if let Some(block) = self.next_retry() {
            return Some(block);
        }
        while self.blocks.get(self.begun).is_some_and(|block| block.is_done()) {
            self.begun += 1;
        }
        std::iter::from_fn(|| self.ready.pop_front()).find(|block| !block.is_cut())
    }
}

/// Blocks whose bytes may have to be regenerated.
pub(crate) struct Window {
    order: Mutex<Order>,
    /// There is a block to execute, or the course has changed.
    work: Condvar,
    /// The block at the front is done, or the course has changed.
    front: Condvar,
    /// Blocks were handed on or replayed, or the course has changed.
    room: Condvar,
    /// A block that was cut off is not executed any more.
    given_up: Condvar,
    limit: Room,
    versions: VersionArrays,
    /// With [`Schedule::Locks`].
    locks: Option<Locks>,
    /// How many threads execute, and how many of them wait for bytes that no lock has brought.
    threads: AtomicUsize,
    waiting: AtomicUsize,
    closed: AtomicBool,
    /// Held while the records of a block and their keys are entered, and by those who take index
    /// entries of dead records away: see [`Window::entering`].
    entering: Mutex<()>,
    /// Held while blocks are handed on, while some leave, and by a cut.
    handing: Mutex<()>,
    /// Held while versions are made, by several, and while some are taken back, by one.
    making: RwLock<()>,
    perturb: Option<Perturb>,
    /// How often a reader had to wait for a version.
    parked: AtomicU64,
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.order();
        let from = order.begin();
        write!(f, "Window({} blocks from {from} to {}, {:?})", order.blocks.len(), order.end, order.course)
    }
}

fn length_of<'b>(blocks: impl IntoIterator<Item = &'b Arc<Pending>>) -> u64 {
    blocks.into_iter().map(|block| u64::from(block.header().length)).sum()
}

/// While no block is being entered.
pub(crate) struct Entering<'w> {
    window: &'w Window,
    /// What is below is in the log for certain.
    replayed: Lsn,
    _held: MutexGuard<'w, ()>,
}

impl Entering<'_> {
    /// Whether a block writes the record of this id that is not in the log yet, or not for certain.
    pub fn has(&self, guard: &Guard<'_>, content: &Content, rid: Rid) -> bool {
        self.window.versions.newest((content.fid(), rid)).is_some()
            || content.restored(guard, rid).is_some_and(|newest| newest >= self.replayed)
    }
}

/// While versions are made.
pub(crate) struct Making<'w> {
    _held: RwLockReadGuard<'w, ()>,
}

/// While no versions are made.
pub(crate) struct Still<'w> {
    _held: RwLockWriteGuard<'w, ()>,
}

impl Window {
    /// An empty one, whose first block will begin at `at`.
    #[cfg(test)]
    pub fn new(at: Lsn, limit: Room, layout: Layout, perturb: Option<Perturb>) -> Arc<Self> {
        Self::scheduled(at, limit, layout, Schedule::Versions, perturb)
    }

    /// An empty one, whose first block will begin at `at`, and whose transactions are executed when
    /// `schedule` says.
    pub fn scheduled(at: Lsn, limit: Room, layout: Layout, schedule: Schedule, perturb: Option<Perturb>) -> Arc<Self> {
        let order = Order {
            blocks: VecDeque::new(),
            begun: 0,
            ready: VecDeque::new(),
            retries: Vec::new(),
            taken: 0,
            bytes: 0,
            replayed: at,
            end: at,
            course: Course::Open,
            cuts: 0,
            idle: 0,
            executing: Vec::new(),
            pace: Pace::default(),
            replayer_waits: false,
            entrants_wait: 0,
        };
        Arc::new(Self {
            order: Mutex::new(order),
            work: Condvar::new(),
            front: Condvar::new(),
            room: Condvar::new(),
            given_up: Condvar::new(),
            limit,
            versions: VersionArrays::new(layout),
            locks: (schedule == Schedule::Locks).then(Locks::new),
            threads: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            entering: Mutex::new(()),
            handing: Mutex::new(()),
            making: RwLock::new(()),
            perturb,
            parked: AtomicU64::new(0),
        })
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn perturb(&self) {
        if let Some(perturb) = &self.perturb {
            perturb();
        }
    }

    // --- entering ----------------------------------------------------------------------------

    /// Whether blocks take locks.
    pub fn has_locks(&self) -> bool {
        self.locks.is_some()
    }

    /// Keeps blocks from being entered: for a thread that takes away index entries of a dead record
    /// whose id a block in the window may have given to another, with the same key.
    pub fn entering(&self) -> Entering<'_> {
        let held = self.entering.lock().unwrap_or_else(PoisonError::into_inner);
        Entering { window: self, replayed: self.order().replayed, _held: held }
    }

    /// The LSN of the newest version of a record, if a block in the window is to make one.
    #[cfg(test)]
    pub fn newest(&self, fid: Fid, rid: Rid) -> Option<Lsn> {
        self.versions.newest((fid, rid))
    }

    /// Whether the versions of the block at `at`, which was entered, are there.
    #[cfg(test)]
    pub fn has_made_or_left(&self, at: Lsn) -> bool {
        // In this order: it may leave in between.
        self.has_made(at) || at < self.begin()
    }

    /// Where the first block begins that has not left, or the next one.
    pub fn begin(&self) -> Lsn {
        self.order().begin()
    }

    /// Where the next block begins.
    pub fn end(&self) -> Lsn {
        self.order().end
    }

    /// Where the first block begins that was not handed on, and how many there are from there on.
    pub fn pending(&self) -> (Lsn, u64) {
        let order = self.order();
        let first = order.blocks.get(order.taken).map_or(order.end, |block| block.lsn());
        (first, (order.blocks.len() - order.taken) as u64)
    }

    /// How often it was cut, or [is about to be](Window::interrupt).
    pub fn cuts(&self) -> u64 {
        self.order().cuts
    }

    /// Blocks until a block of `length` bytes may be entered, which came when the window had been
    /// cut `cuts` times.
    ///
    /// # Errors
    /// [`Closed`] when the window is, or is cut since.
    pub fn wait_room(&self, cuts: u64, length: u64) -> Result<(), Closed> {
        self.wait_until(cuts, |order| {
            let waiting = order.blocks.len() - order.taken;
            waiting == 0 || (order.bytes + length <= self.limit.bytes && waiting < self.limit.blocks)
        })
    }

    /// Whether everything below `to` is [replayed](Window::replayed).
    pub fn is_replayed(&self, to: Lsn) -> bool {
        self.order().replayed >= to
    }

    /// Blocks until everything below `to` is [replayed](Window::replayed).
    ///
    /// # Errors
    /// As for [`Window::wait_room`].
    pub fn wait_replayed(&self, cuts: u64, to: Lsn) -> Result<(), Closed> {
        self.wait_until(cuts, |order| order.replayed >= to)
    }

    fn wait_until(&self, cuts: u64, reached: impl Fn(&Order) -> bool) -> Result<(), Closed> {
        let mut order = self.order();
        order.entrants_wait += 1;
        let outcome = loop {
            if matches!(order.course, Course::Closed(_)) || order.cuts != cuts {
                break Err(Closed);
            }
            if reached(&order) {
                break Ok(());
            }
            order = self.room.wait(order).unwrap_or_else(PoisonError::into_inner);
        };
        order.entrants_wait -= 1;
        outcome
    }

    /// Enters a block's records into the version arrays: the first half of entering it. Those who
    /// look for versions below later snapshots find them here from now on. `replaces` is told the
    /// number of each of its records that had a version here, and that one's LSN.
    pub fn announce(&self, block: &Arc<Pending>, replaces: impl FnMut(usize, Lsn)) {
        self.versions.enter(block, replaces);
    }

    /// Enters a block: the second half. From now on threads may execute it.
    ///
    /// # Errors
    /// [`Closed`] when the window is.
    ///
    /// # Panics
    /// When it does not follow the one before.
    pub fn enter(&self, block: Arc<Pending>) -> Result<(), Closed> {
        let mut order = self.order();
        assert_eq!(order.end, block.lsn(), "blocks enter in the order of LSNs, without gaps");
        if matches!(order.course, Course::Closed(_)) {
            return Err(Closed);
        }
        order.end = block.end();
        order.bytes += u64::from(block.header().length);
        let (is_work, idle) = (!block.is_done(), order.idle > 0);
        let is_front = order.blocks.len() == order.taken && !is_work && order.replayer_waits;
        order.blocks.push_back(Arc::clone(&block));
        drop(order);
        if let Some(locks) = &self.locks {
            if is_work && locks.ask(&block) {
                self.begin_ready(vec![block]);
            }
        } else if is_work && idle {
            self.work.notify_one();
        }
        if is_front {
            self.front.notify_one();
        }
        Ok(())
    }

    /// No more blocks are entered.
    pub fn finish(&self) {
        let mut order = self.order();
        if order.course == Course::Open {
            order.course = Course::Finished;
        }
        drop(order);
        self.work.notify_all();
        self.front.notify_all();
    }

    // --- executing ---------------------------------------------------------------------------

    /// This many threads will execute.
    pub fn expect(&self, threads: usize) {
        self.threads.store(threads, SeqCst);
    }

    /// The next block whose versions are to be made, in the order of LSNs; if its bytes are not
    /// there, it is to be executed. The thread says when that [has been](Window::executed) done.
    /// Blocks until there is one; none when none is coming any more.
    pub fn next(&self) -> Option<Arc<Pending>> {
        self.perturb();
        let mut order = self.order();
        loop {
            if matches!(order.course, Course::Closed(_)) {
                return None;
            }
            let found = if self.has_locks() { order.next_ready() } else { order.next() };
            if let Some(block) = found {
                order.executing.push((Arc::clone(&block), Instant::now()));
                return Some(block);
            }
            if order.course == Course::Finished && order.begun == order.blocks.len() {
                return None;
            }
            order.idle += 1;
            order = self.work.wait(order).unwrap_or_else(PoisonError::into_inner);
            order.idle -= 1;
        }
    }

    /// A block from [`Window::next`] is not dealt with any more, whatever has come of it.
    pub fn executed(&self, block: &Pending) {
        let mut order = self.order();
        if let Some(place) = order.executing.iter().position(|(other, _)| other.lsn() == block.lsn()) {
            let (_, since) = order.executing.swap_remove(place);
            let took = since.elapsed().saturating_sub(block.parked());
            order.pace.executed(took, block.header().length.into());
        }
        drop(order);
        if block.is_cut() {
            self.given_up.notify_all();
        }
    }

    /// Has a block executed once more that could not be.
    pub fn retry(&self, block: Arc<Pending>) {
        self.order().retries.push(block);
        self.work.notify_one();
    }

    /// Has `make` put the versions of a block, whose bytes are there, into the tables, unless it
    /// was cut off. Wakes those who wait for them.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn make<E>(&self, block: &Pending, make: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.perturb();
        let making = self.making();
        if block.is_cut() {
            return Ok(());
        }
        make()?;
        block.made();
        self.versions.forget(block);
        drop(making);
        if let Some(locks) = &self.locks {
            let mut ready = Vec::new();
            locks.give_back(block, &mut ready);
            self.begin_ready(ready);
        }
        let order = self.order();
        let is_front =
            order.replayer_waits && order.blocks.get(order.taken).is_some_and(|front| std::ptr::eq(&**front, block));
        drop(order);
        if is_front {
            self.front.notify_one();
        }
        Ok(())
    }

    /// Held by those who make versions.
    pub fn making(&self) -> Making<'_> {
        Making { _held: self.making.read().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Keeps versions from being made, and waits for those that are.
    pub fn still(&self) -> Still<'_> {
        Still { _held: self.making.write().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Whether a reader may wait for a version. Then it says when it has.
    pub(super) fn may_wait(&self) -> bool {
        let threads = self.threads.load(SeqCst);
        let one_more = |waiting: usize| (waiting + 1 < threads).then_some(waiting + 1);
        !self.has_locks() || self.waiting.fetch_update(SeqCst, SeqCst, one_more).is_ok()
    }

    pub(super) fn has_waited(&self) {
        if self.has_locks() {
            self.waiting.fetch_sub(1, SeqCst);
        }
    }

    /// These blocks have their locks.
    fn begin_ready(&self, blocks: Vec<Arc<Pending>>) {
        let mut order = self.order();
        // At the end all threads are to see that nothing is left.
        let wakes = order.idle > 0 && (!blocks.is_empty() || order.course == Course::Finished);
        order.ready.extend(blocks);
        drop(order);
        if wakes {
            self.work.notify_all();
        }
    }

    /// How many bytes of log are executed in this time, as far as that was measured; nothing while
    /// none were. By what the block that all others wait for has taken longer than others do, there
    /// is less time.
    pub fn within(&self, time: Duration) -> Option<u64> {
        let order = self.order();
        let late = order.lowest().map_or(Duration::ZERO, |(_, since)| order.pace.late(since.elapsed()));
        match order.pace.within(time.saturating_sub(late)) {
            // The very first one takes longer.
            None if late >= time => Some(1),
            within => within,
        }
    }

    /// How long executing this many transactions takes, as far as that was measured.
    pub fn left(&self, transactions: u64) -> Option<Duration> {
        self.order().pace.left(transactions)
    }

    /// An interval has passed, in which this many bytes have become part of the log, and at its end
    /// others were pending.
    pub fn observe(&self, interval: Duration, completed: u64, pending: u64) {
        self.order().pace.observe(interval, completed, pending);
    }

    /// The block that all others wait for, if it has been executed for so long, has no bytes, and
    /// this is asked for the first time.
    pub fn overdue(&self, limit: Duration) -> Option<Arc<Pending>> {
        let order = self.order();
        let (block, since) = order.lowest()?;
        let is_overdue = since.elapsed() >= limit && block.task().is_some() && !block.is_claimed() && !block.is_cut();
        (is_overdue && block.ask()).then(|| Arc::clone(block))
    }

    /// The block below `below` that is going to make the newest version of a record, if it has not
    /// yet.
    pub(super) fn to_come(&self, record: (Fid, Rid), below: Lsn) -> Option<Arc<Pending>> {
        self.versions.below(record, below).filter(|block| !block.is_done())
    }

    /// A reader has to wait for a version.
    pub(super) fn parks(&self) {
        // Relaxed: a statistic.
        self.parked.fetch_add(1, Relaxed);
    }

    /// How often a reader had to wait for a version.
    pub fn parked(&self) -> u64 {
        self.parked.load(Relaxed)
    }

    /// How many versions look-ups have passed by, to find the ones that they wanted.
    pub fn passed(&self) -> Passed {
        self.versions.passed()
    }

    // --- replaying ---------------------------------------------------------------------------

    /// Takes the next blocks that are done, one behind the other, of about `most` bytes at
    /// most, and gives them to `hand`, which no cut overtakes. Blocks until there is one; none when
    /// none is coming any more.
    pub fn hand_over<T>(&self, most: u64, hand: impl FnOnce(&[Arc<Pending>]) -> T) -> Option<T> {
        loop {
            if !self.wait_front() {
                return None;
            }
            let _handing = self.handing.lock().unwrap_or_else(PoisonError::into_inner);
            let blocks = self.take_front(most);
            // A cut may have come in between.
            if !blocks.is_empty() {
                return Some(hand(&blocks));
            }
        }
    }

    /// Blocks until the block at the front is done; false when none is coming any more.
    fn wait_front(&self) -> bool {
        let mut order = self.order();
        loop {
            if matches!(order.course, Course::Closed(_)) {
                return false;
            }
            match order.blocks.get(order.taken) {
                Some(front) if front.is_done() => return true,
                None if order.course == Course::Finished => return false,
                _ => {}
            }
            order.replayer_waits = true;
            order = self.front.wait(order).unwrap_or_else(PoisonError::into_inner);
            order.replayer_waits = false;
        }
    }

    fn take_front(&self, most: u64) -> Vec<Arc<Pending>> {
        let mut order = self.order();
        let mut bytes = 0;
        let whole = order.blocks.range(order.taken..).take_while(|block| {
            let fits = bytes == 0 || bytes + u64::from(block.header().length) <= most;
            bytes += u64::from(block.header().length);
            fits && block.is_done()
        });
        let found: Vec<_> = whole.map(Arc::clone).collect();
        order.taken += found.len();
        order.bytes -= length_of(&found);
        for block in found.iter().filter(|block| !block.is_in_tables()) {
            order.pace.executed(Duration::ZERO, block.header().length.into());
        }
        let wanted = order.entrants_wait > 0;
        drop(order);
        if wanted && !found.is_empty() {
            self.room.notify_all();
        }
        found
    }

    /// Whether the versions of the block at `at` are in the tables before it is replayed, and its
    /// keys in the indexes.
    pub fn has_made(&self, at: Lsn) -> bool {
        let order = self.order();
        let place = order.blocks.partition_point(|block| block.lsn() < at);
        order.blocks.get(place).is_some_and(|block| block.lsn() == at && block.is_in_tables())
    }

    /// Everything below `to` is replayed: tables and indexes that come about below are there, and
    /// keys of what was inserted.
    pub fn replayed(&self, to: Lsn) {
        let mut order = self.order();
        order.replayed = order.replayed.max(to);
        let wanted = order.entrants_wait > 0;
        drop(order);
        if wanted {
            self.room.notify_all();
        }
    }

    /// Readers see everything below `to`, the end of a transaction: blocks below leave. Returns
    /// where the window begins then.
    pub fn leave(&self, to: Lsn) -> Lsn {
        // A cut takes out of `order`, too.
        let _handing = self.handing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut order = self.order();
        let taken = order.taken;
        let leaving = order.blocks.range(..taken).take_while(|block| block.end() <= to).count();
        let left: Vec<_> = order.blocks.drain(..leaving).collect();
        // Those that were never to be executed may leave before a thread has come by.
        order.begun = order.begun.saturating_sub(leaving);
        order.taken -= leaving;
        let begin = order.begin();
        drop(order);
        // Memory is given back without the lock.
        drop(left);
        begin
    }

    // --- the end -----------------------------------------------------------------------------

    /// A cut is coming: no thread waits any longer to enter a block that came before.
    pub fn interrupt(&self) {
        self.order().cuts += 1;
        self.room.notify_all();
    }

    /// The log ends at `at`, where a block does or the window begins, or below: the blocks from
    /// there on are forgotten, and none is handed on any more. `take_back` takes the versions of a
    /// block out of the tables. Not while a block is being entered.
    ///
    /// Blocks until no thread executes one of them. If one did, it would read the new log next, and
    /// could wait for blocks there that no thread is left to execute.
    pub fn cut(&self, at: Lsn, mut take_back: impl FnMut(&Pending)) {
        let _handing = self.handing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut order = self.order();
        let kept = order.blocks.partition_point(|block| block.lsn() < at);
        let untaken = order.taken.max(kept);
        let gone = order.blocks.split_off(kept);
        order.bytes -= length_of(gone.range(untaken - kept..));
        order.begun = order.begun.min(kept);
        order.taken = order.taken.min(kept);
        order.end = order.end.min(at);
        order.replayed = order.replayed.min(at);
        let left: Vec<_> = order.blocks.iter().map(Arc::clone).collect();
        drop(order);
        gone.iter().for_each(|block| block.cut());
        // Some of those that are executed wait for the versions of blocks that stay.
        left.iter().for_each(|block| block.wake());
        let mut order = self.order();
        while order.executing.iter().any(|(block, _)| block.lsn() >= at) {
            order = self.given_up.wait(order).unwrap_or_else(PoisonError::into_inner);
        }
        drop(order);
        let _still = self.still();
        let mut ready = Vec::new();
        for block in gone.iter().rev() {
            if block.is_in_tables() {
                take_back(block);
            }
            self.versions.forget(block);
            if let Some(locks) = &self.locks {
                locks.withdraw(block, &mut ready);
            }
        }
        self.begin_ready(ready);
        self.room.notify_all();
    }

    /// Forgets all blocks, and takes back those that were not handed on: those that were are part
    /// of the log. To be called when no thread enters, executes or hands on any any more.
    pub fn clear(&self, take_back: impl FnMut(&Pending)) {
        self.cut(self.handed(), take_back);
        self.cut(self.begin(), |_| {});
        self.order().replayed = Lsn::MAX;
    }

    /// Where the blocks begin that were not handed on.
    fn handed(&self) -> Lsn {
        let order = self.order();
        order.blocks.get(order.taken).map_or(order.end, |block| block.lsn())
    }

    /// Ends all waits, now and later: what is in the window is not dealt with. The first reason
    /// counts.
    pub fn close(&self, why: Option<String>) {
        let mut order = self.order();
        if !matches!(order.course, Course::Closed(_)) {
            order.course = Course::Closed(why);
        }
        self.closed.store(true, SeqCst);
        let blocks: Vec<_> = order.blocks.iter().map(Arc::clone).collect();
        drop(order);
        blocks.iter().for_each(|block| block.wake());
        self.work.notify_all();
        self.front.notify_all();
        self.room.notify_all();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Why it was closed, if that was not asked for.
    pub fn failure(&self) -> Option<String> {
        match &self.order().course {
            Course::Closed(why) => why.clone(),
            Course::Open | Course::Finished => None,
        }
    }
}
