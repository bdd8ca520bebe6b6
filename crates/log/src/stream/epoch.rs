//! The group commit kind `epoch` (SiloR, sections 2.1 and 3.5).
//!
//! | SiloR | here |
//! |---|---|
//! | the global epoch `E`, advanced every 40 ms | [`run`] notes the LSN at which each epoch ends; LSNs are one order, so the epoch of a transaction is that of its LSN |
//! | a worker's `e_w` | its bound (module `bounds`): nothing of its below that LSN is still to come |
//! | a logger's `e_l` | how far its stream is durable |
//! | the persistence epoch `min e_l - 1` | the last epoch whose end all streams have reached ([`Epochs::announce`](GroupCommit::announce)) |
//! | the file `pepoch`, synced before results are released | the same: the second sync on the path of a commit |
//!
//! The gain over `pipelined` is fewer, larger writes; the price is latency.

use std::{
    collections::VecDeque,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use freshet_base::Lsn;

use super::{
    GroupCommitKind, LogConfig, Shared,
    group_commit::{self, Found, GroupCommit},
};
use crate::{
    core::LogFailure,
    segments::{PersistentEpoch, PersistentEpochFile, StoreError},
    store::LogStore,
};

#[derive(Debug)]
pub(crate) struct Epochs {
    config: LogConfig,
    length: Duration,
    /// Where the last finished epoch ended.
    ended: AtomicU64,
    progress: Mutex<Progress>,
    stopping: Mutex<bool>,
    stop: Condvar,
}

#[derive(Debug)]
struct Progress {
    /// The current epoch.
    current: u64,
    /// Finished epochs that are not persistent yet, and where they ended.
    finished: VecDeque<PersistentEpoch>,
    persistent: PersistentEpoch,
    /// How far all streams are durable.
    durable: Lsn,
    /// Without a store there is nothing to recover, and nothing to note.
    file: Option<PersistentEpochFile>,
}

impl Epochs {
    /// Begins with epoch 1 at `start`, if the configuration wants epochs; else makes sure that no
    /// old file is taken for the truth after the next crash.
    pub(super) fn begin(config: &LogConfig, store: Option<&LogStore>, start: Lsn) -> Result<Option<Self>, StoreError> {
        let store = store.map(|store| store.stream(0));
        let GroupCommitKind::Epoch(length) = config.group_commit else {
            store.map_or(Ok(()), |store| store.end_epochs())?;
            return Ok(None);
        };
        let persistent = PersistentEpoch { epoch: 0, end: start };
        let file = store.map(|store| store.begin_epochs(persistent)).transpose()?;
        let progress = Progress { current: 1, finished: VecDeque::new(), persistent, durable: start, file };
        Ok(Some(Self {
            config: *config,
            length,
            ended: AtomicU64::new(start.0),
            progress: Mutex::new(progress),
            stopping: Mutex::new(false),
            stop: Condvar::new(),
        }))
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the last finished epoch ended.
    fn ended(&self) -> Lsn {
        // SeqCst: stored before the look at the bells (module `doorbell`).
        Lsn(self.ended.load(Ordering::SeqCst))
    }

    /// The current epoch ends here. Returns whether anything happened in it.
    fn end(&self, reserved: Lsn) -> bool {
        let mut progress = self.progress();
        let epoch = progress.current;
        progress.current += 1;
        if reserved <= self.ended() {
            return false;
        }
        progress.finished.push_back(PersistentEpoch { epoch, end: reserved });
        self.ended.store(reserved.0, Ordering::SeqCst);
        true
    }
}

impl GroupCommit for Epochs {
    fn left(&self, found: &Found) -> Option<Duration> {
        if found.to <= found.done {
            return None;
        }
        let ended = self.ended();
        let due = found.to.since(found.done) >= group_commit::enough(&self.config)
            || (ended > found.done && found.to >= ended);
        // The end of an epoch rings.
        Some(if due { Duration::ZERO } else { self.length })
    }

    /// Puts the last epoch that ended below `durable` on record, and returns where it did. A thread
    /// that comes last (a logger, or the end of the epoch) does so for all; it is the distinguished
    /// one.
    fn announce(&self, durable: Lsn) -> Result<Lsn, LogFailure> {
        let mut progress = self.progress();
        progress.durable = progress.durable.max(durable);
        let durable = progress.durable;
        let mut reached = None;
        while let Some(next) = progress.finished.front().copied().filter(|epoch| epoch.end <= durable) {
            reached = Some(next);
            progress.finished.pop_front();
        }
        if let Some(reached) = reached {
            if let Some(file) = &mut progress.file {
                file.persist(reached)?;
            }
            progress.persistent = reached;
        }
        Ok(progress.persistent.end)
    }

    fn interval(&self) -> Duration {
        self.config.interval
    }

    fn early(&self) -> u64 {
        group_commit::early(&self.config)
    }

    fn stop(&self) {
        *self.stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.notify_all();
    }

    /// Ends the last epoch where all streams are durable.
    fn close(&self) -> Result<Lsn, LogFailure> {
        let mut progress = self.progress();
        let last = PersistentEpoch { epoch: progress.current, end: progress.durable };
        if last.end > progress.persistent.end {
            if let Some(file) = &mut progress.file {
                file.persist(last)?;
            }
            progress.persistent = last;
        }
        progress.finished.clear();
        Ok(progress.persistent.end)
    }
}

/// The thread that ends epochs.
pub(super) fn run(log: &Shared, epochs: &Epochs) {
    let mut stopping = epochs.stopping.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        stopping = epochs.stop.wait_timeout(stopping, epochs.length).unwrap_or_else(PoisonError::into_inner).0;
        if *stopping {
            return;
        }
        if epochs.end(Lsn(log.core.buffer.reserved().load(Ordering::SeqCst))) {
            // Either all of it was flushed already, by size, or the loggers have to.
            if let Err(failure) = log.announce(epochs, Lsn::ZERO) {
                return log.fail(failure);
            }
            log.ring();
        }
    }
}
