//! Workers fill the log: what all of them share.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use std::collections::VecDeque;

use freshet_base::{Lsn, Term};

use super::{
    GroupCommitKind, Log, LogConfig, LogOpenError, ReserveError, Shared,
    bounds::Bounds,
    ends::PartitionEnds,
    epoch::Epochs,
    group_commit::{self, Destaging, GroupCommit, Pipelined},
    persist::Fill,
    pmem::Fences,
};
use crate::{
    block::MAX_BLOCK,
    core::{Core, LogFailure},
};

/// The parts of a transaction that does not fit the ring at once are not longer than this, unless
/// one record is.
pub(super) const PART: u64 = 1 << 20;

impl Log {
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
