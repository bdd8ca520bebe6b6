//! Workers fill the log: what it offers those who write, and what all of them share.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use std::collections::VecDeque;

use freshet_base::{Fid, Lsn, NodeId, Rid, Term, WaitError, wait::Patience};

use super::{
    Division, DurableError, GroupCommitKind, Log, LogConfig, LogOpenError, ReserveError, Shared, TooManyWriters,
    Writer,
    bounds::Bounds,
    ends::PartitionEnds,
    epoch::Epochs,
    group_commit::{self, Destaging, GroupCommit, Pipelined},
    persist::Fill,
    pmem::Fences,
};
use crate::{
    block::{MARK_BLOCK, MAX_BLOCK, term_block},
    core::{Core, LogFailure},
};

/// The parts of a transaction that does not fit the ring at once are not longer than this, unless
/// one record is.
const PART: u64 = 1 << 20;

impl Log {
    /// A place for one worker.
    ///
    /// # Errors
    /// [`TooManyWriters`] when [`LogConfig::writers`] are in use.
    pub fn writer(&self) -> Result<Writer, TooManyWriters> {
        Writer::new(self.workers())
    }

    /// The term in which this log is written.
    pub fn term(&self) -> Term {
        self.workers().term
    }

    /// How the log was set up.
    #[inline]
    pub fn config(&self) -> &LogConfig {
        &self.workers().config
    }

    /// Where workers began to fill this log; what lies below was there before.
    pub fn start(&self) -> Lsn {
        self.workers().start
    }

    /// The LSNs handed out so far end here.
    #[inline]
    pub fn reserved(&self) -> Lsn {
        Lsn(self.shared.core.buffer.reserved().load(Ordering::SeqCst))
    }

    /// A transaction of at most this many bytes is put into the ring at once, a longer one in
    /// parts.
    pub fn longest_at_once(&self) -> u64 {
        (self.workers().longest / 4).max(1024)
    }

    /// About how long the parts of a long transaction are.
    pub fn part(&self) -> u64 {
        self.longest_at_once().min(PART)
    }

    /// The longest block, and so about the longest row.
    pub fn longest_block(&self) -> u64 {
        self.workers().longest
    }

    /// The stream of a record's page, where blocks are divided by pages; none where they are not,
    /// or there is one stream only.
    #[inline]
    pub fn stream_of(&self, fid: Fid, rid: Rid) -> Option<u8> {
        match self.config().division {
            Division::Page(records) if self.streams() > 1 => {
                Some(((rid.0 / records + u64::from(fid.0)) % self.streams() as u64) as u8)
            }
            _ => None,
        }
    }

    /// How often stragglers of passive group commit were force-fenced.
    pub fn force_fences(&self) -> u64 {
        self.workers().fences.force_fences()
    }

    /// Asks for everything below `target`, once it is filled, to be persisted without waiting for
    /// more: the caller is about to wait for it.
    pub fn force_fence(&self, target: Lsn) {
        freshet_base::step!(Commit, target, target);
        let workers = self.workers();
        if self.durable() >= target {
            return;
        }
        if self.shared.core.pmem.is_there() {
            // Nobody has to be woken for that.
            if let Err(failure) = workers.persist(true) {
                self.shared.fail(failure);
            }
            if self.shared.core.durable.get() >= target {
                return;
            }
        }
        self.shared.want(target);
    }

    /// Blocks until the log is durable up to `target`, and returns how far it then is.
    ///
    /// # Errors
    /// [`DurableError`]; in every case the outcome is open.
    pub fn wait_durable<'a>(&self, target: Lsn, patience: impl Into<Patience<'a>>) -> Result<Lsn, DurableError> {
        let durable = self.durable();
        if durable >= target {
            return Ok(durable);
        }
        self.force_fence(target);
        self.shared.core.durable.wait(target, patience).map_err(|error| match error {
            WaitError::Deadline | WaitError::Interrupted => DurableError::Deadline,
            WaitError::Closed => match self.failure() {
                Some(failure) => DurableError::Failed(failure),
                None => DurableError::Stopped,
            },
        })
    }

    /// Writes the first block of a term: `node` leads from here on. Returns where it ends.
    ///
    /// # Errors
    /// [`ReserveError`] as for every block.
    ///
    /// # Panics
    /// When every writer's place is taken: the term begins before there are workers.
    pub fn begin_term(&self, node: NodeId) -> Result<Lsn, ReserveError> {
        let mut writer = self.writer().expect("a term begins before there are workers");
        writer.mark(MARK_BLOCK, |lsn| term_block(lsn, self.term(), node))
    }

    /// How many bytes of log were reserved, without blocks that say something of the log itself:
    /// grows with transactions, and for as long as such a block is being written.
    pub fn grown(&self) -> u64 {
        // Relaxed: a count.
        let noted = self.workers().noted.load(Ordering::Relaxed);
        self.reserved().0.saturating_sub(noted)
    }
}

/// All who fill the log in one term.
#[derive(Debug)]
pub(crate) struct Workers {
    pub(super) log: Arc<Shared>,
    pub(super) core: Arc<Core>,
    pub(super) config: LogConfig,
    pub(super) term: Term,
    pub(super) start: Lsn,
    /// The longest block that can be put: half the ring.
    pub(super) longest: u64,
    /// Only LSNs are taken: nothing is copied or made durable.
    pub(super) volatile: bool,
    pub(super) bounds: Bounds,
    pub(super) ends: PartitionEnds,
    pub(super) fences: Fences,
    kind: Arc<dyn GroupCommit>,
    /// Whose ends a thread has to note.
    epochs: Option<Arc<Epochs>>,
    /// Transactions that are put into the ring in parts, ascending: where each starts and ends.
    /// They stay until nobody can have an LSN within them in hands any more.
    long: Mutex<VecDeque<(u64, u64)>>,
    /// How many of them are not there in whole.
    unfinished: AtomicU64,
    /// How many bytes blocks took that say something of the log itself.
    pub(super) noted: AtomicU64,
}

impl Workers {
    pub(super) fn new(log: Arc<Shared>, config: LogConfig, start: Lsn, term: Term) -> Result<Self, LogOpenError> {
        let epochs = Epochs::begin(&config, log.core.store.as_ref(), start)?.map(Arc::new);
        let kind: Arc<dyn GroupCommit> = match &epochs {
            _ if log.core.pmem.is_there() => Arc::new(Destaging::filled(&config, epochs.clone())),
            Some(epochs) => Arc::clone(epochs) as _,
            None => Arc::new(Pipelined(config)),
        };
        let fences = match config.group_commit {
            _ if !log.core.pmem.is_there() => Fences::Never,
            GroupCommitKind::Passive(force_fence) => {
                Fences::passive(force_fence, config.writers).map_err(LogOpenError::ForceFence)?
            }
            _ => Fences::Each,
        };
        Ok(Self { fences, epochs, ..Self::with(log, config, start, term, kind) })
    }

    /// Those of a log that only takes LSNs.
    pub(super) fn volatile(log: Arc<Shared>, writers: usize, start: Lsn, term: Term) -> Self {
        let capacity = log.core.buffer.capacity() as usize;
        let partition = capacity as u64;
        let config = LogConfig { writers, capacity, partition, longest_transaction: u64::MAX, ..LogConfig::default() };
        Self { volatile: true, ..Self::with(log, config, start, term, Arc::new(Pipelined(config))) }
    }

    fn with(log: Arc<Shared>, config: LogConfig, start: Lsn, term: Term, kind: Arc<dyn GroupCommit>) -> Self {
        let core = Arc::clone(&log.core);
        let capacity = core.buffer.capacity();
        Self {
            config,
            term,
            start,
            longest: (capacity / 2).min(MAX_BLOCK as u64),
            volatile: false,
            bounds: Bounds::new(config.writers),
            ends: PartitionEnds::new(config.partition, capacity),
            fences: Fences::Never,
            kind,
            epochs: None,
            long: Mutex::default(),
            unfinished: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            core,
            log,
        }
    }

    pub(super) fn epochs(&self) -> Option<&Arc<Epochs>> {
        self.epochs.as_ref()
    }

    #[inline]
    pub(super) fn reserved_mark(&self) -> &AtomicU64 {
        self.core.buffer.reserved()
    }

    #[inline]
    pub(super) fn check_open(&self) -> Result<(), ReserveError> {
        // Relaxed: a closing log flushes what was reserved before the flag was seen.
        if self.core.failure().is_some() || self.log.closing.load(Ordering::Relaxed) {
            return Err(self.why_closed());
        }
        Ok(())
    }

    #[cold]
    pub(super) fn why_closed(&self) -> ReserveError {
        self.core.failure().map_or(ReserveError::Closed, |failure| ReserveError::Failed(failure.clone()))
    }

    /// A partition is full, or will be at any moment: there may be something to flush, or to hand
    /// out.
    pub(super) fn force_fence_if_large(&self, reserved: u64, stream: u8) {
        let is_due = reserved.saturating_sub(self.core.durable.get().0) >= self.config.batch_bytes;
        if is_due || self.log.unknown_to_sinks(reserved) >= group_commit::early(&self.config) {
            self.log.bells[usize::from(stream)].ring();
        }
    }

    fn long(&self) -> MutexGuard<'_, VecDeque<(u64, u64)>> {
        self.long.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of `[start, end)`, which was reserved for one transaction, only a part will be there at
    /// first.
    #[cold]
    pub(super) fn begin_long(&self, start: u64, end: u64) {
        let mut long = self.long();
        let place = long.partition_point(|before| before.0 < start);
        let apart = place.checked_sub(1).is_none_or(|before| long[before].1 <= start);
        assert!(apart && long.get(place).is_none_or(|after| end <= after.0), "two transactions have the same bytes");
        long.insert(place, (start, end));
        self.unfinished.fetch_add(1, Ordering::SeqCst);
    }

    /// All of it is there.
    pub(super) fn end_long(&self) {
        let before = self.unfinished.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a long transaction ends that has not begun");
    }
}

impl Fill for Workers {
    fn kind(&self) -> &dyn GroupCommit {
        &*self.kind
    }

    fn reserved(&self) -> Lsn {
        Lsn(self.reserved_mark().load(Ordering::SeqCst))
    }

    fn filled(&self) -> Lsn {
        freshet_base::step!(Log);
        let filled = Lsn(self.bounds.filled(self.reserved_mark()));
        assert!(filled >= self.start, "the log is filled up to {filled}, and begins at {}", self.start);
        self.core.buffer.fill_to(filled);
        self.core.buffer.filled()
    }

    fn soon_filled(&self) -> Lsn {
        match self.unfinished.load(Ordering::SeqCst) {
            0 => self.reserved(),
            // What a long transaction has reserved may take its time.
            _ => Lsn(self.bounds.filled(self.reserved_mark())),
        }
    }

    fn persist(&self, _mine: bool) -> Result<(), LogFailure> {
        freshet_base::step!(Persist);
        let filled = self.filled();
        match self.fences.reached(filled) {
            Some(reached) if reached > self.core.durable.get() => {
                self.log.hand_out(self, &mut Vec::new());
                self.log.announce(self.kind(), reached)
            }
            _ => Ok(()),
        }
    }

    fn transaction_end(&self, at: Lsn) -> Lsn {
        let long = self.long();
        let within = long.iter().find(|(start, end)| *start < at.0 && at.0 < *end);
        let end = within.map_or(at, |(start, _)| Lsn(*start));
        assert!(end >= self.start || end == at, "a transaction began before its term");
        end
    }

    fn partition_ends(&self, from: Lsn, to: Lsn, into: &mut Vec<Lsn>) {
        self.ends.collect(from, to, into);
    }

    fn handed_out(&self, to: Lsn) {
        let mut long = self.long();
        while long.front().is_some_and(|(_, end)| *end <= to.0) {
            long.pop_front();
        }
    }
}
