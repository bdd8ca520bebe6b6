//! Versions and records that go when nobody can see them any more.
//!
//! A worker notes what its transactions replace, and frees a part of that whenever it ends one.
//! That is enough for as long as transactions are small and come one after another. What is left
//! over has another owner, the node's [`Collector`]:
//!
//! | what | becomes the collector's |
//! |---|---|
//! | more than [`KEEP`] of one worker | when the transaction ends that has made this much |
//! | that of a worker that does nothing | when it has ended no transaction for one round of the collector |
//! | that of a worker that has left | at once |
//!
//! A worker that makes garbage faster than the collector frees it helps: where more than
//! [`BACKLOG`] waits for the collector, a transaction frees as much as it has made. So what waits
//! is bounded, but for what a reader may still see.
//!
//! The collector sleeps while there is nothing. A worker that notes something rings, unless the
//! collector is awake; the collector says that it is going to sleep, looks once more, and sleeps
//! then: who notes something after that look finds it asleep.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_base::{
    Fid, Lsn, Rid, lock,
    memory::{self, Owner},
    sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering},
    wait::WaitList,
};
use freshet_storage::{Guard, Participant};

use crate::{core::Core, rids::Rids};

/// How many records a worker keeps that it has not looked at.
const KEEP: usize = 4096;
/// With how many records that wait for the collector workers begin to help.
const BACKLOG: usize = 64 << 10;
/// How many records the collector looks at under one pin.
const AT_ONCE: usize = 256;
/// How long the collector rests between two rounds while there is something.
const ROUND: Duration = Duration::from_millis(200);
/// Allocators keep free memory for a second or so before they give it back to the system, and do
/// that only when they are used. So the collector uses its allocator this often and this many times
/// after it has freed something, and with this many bytes at once.
const STIR_EVERY: Duration = Duration::from_millis(1200);
const STIRS: u32 = 5;
const STIR_BYTES: usize = 4 << 20;

/// A record whose version below `lsn` goes once every snapshot sees the one at `lsn`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Garbage {
    pub(crate) fid: Fid,
    /// How many bytes the version below takes.
    pub(crate) bytes: u32,
    pub(crate) rid: Rid,
    pub(crate) lsn: Lsn,
}

impl Garbage {
    /// With what it takes to know of it.
    fn all_bytes(&self) -> u64 {
        u64::from(self.bytes) + size_of::<Self>() as u64
    }
}

/// A queue keeps room for this number of records when it has fewer.
const KEPT_ROOM: usize = 4096;

/// One worker's garbage, oldest first.
#[derive(Debug, Default)]
pub(crate) struct GarbageQueue {
    records: VecDeque<Garbage>,
    /// How many bytes the garbage takes.
    bytes: u64,
    /// How often something was added.
    noted: u64,
}

impl GarbageQueue {
    pub(crate) fn push(&mut self, garbage: Garbage) {
        self.bytes += garbage.all_bytes();
        let room = self.records.capacity();
        self.records.push_back(garbage);
        if self.records.capacity() != room {
            Self::count(room, self.records.capacity());
        }
        self.noted += 1;
    }

    /// The records have room for `after` of them, after `before`.
    #[cold]
    fn count(before: usize, after: usize) {
        memory::given_back(Owner::Rows, before * size_of::<Garbage>());
        memory::taken(Owner::Rows, after * size_of::<Garbage>());
    }

    /// Frees up to `most` records' old versions that are older than `horizon`, and keeps the record
    /// ids that get free. Returns how many records it looked at.
    pub(crate) fn free(&mut self, most: usize, core: &Core, guard: &Guard<'_>, horizon: Lsn, rids: &mut Rids) -> usize {
        let done = self.free_some(most, core, guard, horizon, rids);
        let room = self.records.capacity();
        if room > KEPT_ROOM && self.records.len() < room / 4 {
            self.records.shrink_to(room / 2);
            Self::count(room, self.records.capacity());
        }
        done
    }

    fn free_some(&mut self, most: usize, core: &Core, guard: &Guard<'_>, horizon: Lsn, rids: &mut Rids) -> usize {
        for done in 0..most {
            match self.records.front() {
                Some(oldest) if oldest.lsn < horizon => {}
                _ => return done,
            }
            let garbage = self.records.pop_front().expect("just seen");
            self.bytes -= garbage.all_bytes();
            // Of a table that is gone, nothing is left.
            let Some(content) = core.content(guard, garbage.fid) else { continue };
            if let Some(reclaimed) = content.trim(guard, garbage.rid, horizon) {
                rids.put(garbage.fid, reclaimed);
            }
        }
        most
    }
}

impl Drop for GarbageQueue {
    fn drop(&mut self) {
        Self::count(self.records.capacity(), 0);
    }
}

/// One worker's garbage, with cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place(Mutex<GarbageQueue>);

/// The garbage of a node's workers.
#[derive(Debug)]
pub(crate) struct Garbages {
    /// Each worker's, by its place. A worker holds its own for as long as it notes or frees; others
    /// look only where that does not make them wait.
    places: Box<[Place]>,
    /// What waits for the collector.
    backlog: Mutex<VecDeque<GarbageQueue>>,
    /// How many records that are.
    waiting: AtomicUsize,
    /// Whether there is a collector.
    attended: AtomicBool,
    /// Whether the collector will look by itself.
    awake: AtomicBool,
    /// Whether it is to look at once.
    rung: AtomicBool,
    bell: WaitList,
}

impl Garbages {
    pub(crate) fn new(places: usize) -> Self {
        Self {
            places: (0..places).map(|_| Place::default()).collect(),
            backlog: Mutex::default(),
            waiting: AtomicUsize::new(0),
            attended: AtomicBool::new(false),
            awake: AtomicBool::new(false),
            rung: AtomicBool::new(false),
            bell: WaitList::default(),
        }
    }

    /// That of the worker at `place`.
    pub(crate) fn of(&self, place: usize) -> MutexGuard<'_, GarbageQueue> {
        lock(&self.places[place].0)
    }

    /// A worker has noted something in its `queue`: the collector will look at it, if its worker
    /// does not.
    pub(crate) fn note(&self, queue: &mut GarbageQueue) {
        // Relaxed: who begins to collect looks at what was noted before.
        if !self.attended.load(Ordering::Relaxed) {
            return;
        }
        if queue.records.len() > KEEP {
            self.hand_on(queue);
            self.ring();
        } else if !queue.records.is_empty() && !self.awake.load(Ordering::SeqCst) {
            self.ring();
        }
    }

    fn hand_on(&self, queue: &mut GarbageQueue) {
        if !queue.records.is_empty() {
            let (records, bytes) = (std::mem::take(&mut queue.records), std::mem::take(&mut queue.bytes));
            self.waiting.fetch_add(records.len(), Ordering::SeqCst);
            lock(&self.backlog).push_back(GarbageQueue { records, bytes, noted: 0 });
        }
    }

    /// The worker at `place` leaves.
    pub(crate) fn leave(&self, place: usize) {
        self.hand_on(&mut self.of(place));
        self.ring();
    }

    /// Wakes the garbage collector.
    pub(crate) fn ring(&self) {
        self.awake.store(true, Ordering::SeqCst);
        self.rung.store(true, Ordering::SeqCst);
        self.bell.wake_all();
    }

    /// Frees up to `most` records of what waits for the collector. Returns whether there was
    /// anything to free.
    fn help(&self, most: usize, core: &Core, guard: &Guard<'_>, horizon: Lsn, rids: &mut Rids) -> bool {
        let Some(mut queue) = lock(&self.backlog).pop_front() else { return false };
        let freed = queue.free(most, core, guard, horizon, rids);
        self.waiting.fetch_sub(freed, Ordering::SeqCst);
        if !queue.records.is_empty() {
            let mut backlog = lock(&self.backlog);
            // What cannot go yet goes behind what perhaps can.
            if freed == most { backlog.push_front(queue) } else { backlog.push_back(queue) }
        }
        freed > 0
    }

    /// A worker does its share, up to `most` records, where the collector does not keep up, or
    /// where there is no collector: then the other workers free what those that have ended have
    /// left behind.
    pub(crate) fn share(&self, most: usize, core: &Core, guard: &Guard<'_>, horizon: Lsn, rids: &mut Rids) {
        // Relaxed: one that comes too late is made up for by the next.
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting > BACKLOG || waiting > 0 && !self.attended.load(Ordering::Relaxed) {
            self.help(most, core, guard, horizon, rids);
        }
    }

    /// Frees all that waits and can go now, whichever worker's it is.
    pub(crate) fn drain(&self, core: &Core, guard: &Guard<'_>, horizon: Lsn, rids: &mut Rids) {
        let mut tries = lock(&self.backlog).len();
        while tries > 0 {
            let freed = self.help(AT_ONCE, core, guard, horizon, rids);
            tries = if freed { lock(&self.backlog).len() } else { tries - 1 };
        }
    }

    /// What the versions take that are to go.
    pub(crate) fn bytes(&self) -> u64 {
        let noted: u64 = self.places.iter().map(|place| lock(&place.0).bytes).sum();
        noted + lock(&self.backlog).iter().map(|queue| queue.bytes).sum::<u64>()
    }

    /// How many records are noted and not yet looked at.
    fn count(&self) -> usize {
        let noted: usize = self.places.iter().map(|place| lock(&place.0).records.len()).sum();
        noted + self.waiting.load(Ordering::SeqCst)
    }
}

/// Collects what no other thread does. A node has one; its thread calls [`Collector::collect`] and
/// [`Collector::rest`] by turns.
pub struct Collector {
    core: Arc<Core>,
    participant: Participant,
    rids: Rids,
    /// What each worker had noted when it was looked at.
    seen: Vec<u64>,
    /// How often the allocator is still to be stirred, and when next.
    stirs: (u32, Instant),
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collector({:?})", self.participant)
    }
}

impl Collector {
    /// From now on workers hand on what they leave undone, to this one. A node has only one.
    ///
    /// # Errors
    /// When no place is free among the participants.
    pub fn new(core: &Arc<Core>) -> Result<Self, freshet_storage::reclaim::TooManyParticipants> {
        let participant = core.participants.join()?;
        core.garbage.attended.store(true, Ordering::SeqCst);
        // Workers may have ended before.
        core.garbage.ring();
        let seen = vec![0; core.participants.limit()];
        Ok(Self { core: Arc::clone(core), participant, rids: Rids::default(), seen, stirs: (0, Instant::now()) })
    }

    /// Its place among those who read.
    pub fn participant(&self) -> &Participant {
        &self.participant
    }

    /// One round: takes what workers that do nothing have noted, and frees what no transaction can
    /// see any more of all that waits for it, while `goes_on` says so. Does not block for readers.
    pub fn collect(&mut self, goes_on: impl Fn() -> bool) {
        let core = &self.core;
        let garbage = &core.garbage;
        for (place, seen) in garbage.places.iter().zip(&mut self.seen) {
            // A worker that has its own is at work.
            let Ok(mut queue) = place.0.try_lock() else { continue };
            let idle = std::mem::replace(seen, queue.noted) == queue.noted;
            if idle && !queue.records.is_empty() {
                garbage.hand_on(&mut queue);
            }
        }
        let mut tries = lock(&garbage.backlog).len();
        while tries > 0 && goes_on() {
            let horizon = core.oldest_needed();
            let guard = self.participant.pin_without_snapshot();
            let freed = garbage.help(AT_ONCE, core, &guard, horizon, &mut self.rids);
            self.rids.share(core, &guard, true);
            drop(guard);
            // Memory is freed between two pins.
            self.participant.collect();
            if freed {
                self.stirs = (STIRS, Instant::now() + STIR_EVERY);
            }
            tries = if freed { lock(&garbage.backlog).len() } else { tries - 1 };
        }
        core.clear_dropped(&self.participant.pin_without_snapshot());
        self.participant.collect();
    }

    /// Stirs the allocator if it is time to; when it is next.
    fn stir(&mut self) -> Option<Duration> {
        let (left, next) = &mut self.stirs;
        if *left > 0 && Instant::now() >= *next {
            drop(std::hint::black_box(Vec::<u8>::with_capacity(STIR_BYTES)));
            (*left, *next) = (*left - 1, Instant::now() + STIR_EVERY);
        }
        (*left > 0).then(|| next.saturating_duration_since(Instant::now()))
    }

    /// Blocks until there may be something to collect: without end while there is nothing, and no
    /// longer than `longest`. Returns early when [`Core::wake_collector`] is called.
    pub fn rest(&mut self, longest: Option<Duration>) {
        let stirs = self.stir();
        let core = &self.core;
        let garbage = &core.garbage;
        garbage.awake.store(false, Ordering::SeqCst);
        let something = garbage.count() > 0 || core.participants.waiting() > 0 || core.catalog.has_dropped();
        let longest = if something {
            garbage.awake.store(true, Ordering::SeqCst);
            Some(longest.map_or(ROUND, |longest| longest.min(ROUND)))
        } else {
            [longest, stirs].into_iter().flatten().min()
        };
        let deadline = longest.map(|longest| Instant::now() + longest);
        // However it ends, the collector looks.
        let _ = garbage.bell.until(deadline, || garbage.rung.swap(false, Ordering::SeqCst).then_some(()));
        garbage.awake.store(true, Ordering::SeqCst);
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.core.garbage.attended.store(false, Ordering::SeqCst);
    }
}
