//! On a standby: what is left of deleted records, and of dropped tables, goes when every reader sees the deletion.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use freshet_base::Stamp;
use freshet_replay::{Deleted, Replay};
use freshet_storage::{Participant, ReadContext};
use freshet_txn::Core;

/// How long the janitor rests between two rounds.
const PAUSE: Duration = Duration::from_millis(50);
/// Records per pin, so that memory can be freed in between.
const AT_ONCE: usize = 256;

/// Gives up what tables hold that were dropped, and that no snapshot sees any more.
pub(super) fn clear_dropped(core: &Core, participant: &Participant) {
    if core.catalog.has_dropped() {
        let horizon = core.participants.horizon(|| core.snapshots.current());
        let committed = core.snapshots.primary().map_or(horizon, |primary| primary.gate.committed());
        core.catalog.clear_dropped(&participant.pin_without_snapshot(), horizon.min(committed));
        participant.collect();
    }
}

/// Deleted records that readers may still see.
#[derive(Debug, Default)]
pub(super) struct Janitor {
    waiting: Mutex<VecDeque<Deleted>>,
    stopping: AtomicBool,
    stop: (Mutex<()>, Condvar),
}

impl Janitor {
    pub fn new(waiting: Vec<Deleted>) -> Self {
        Self { waiting: Mutex::new(waiting.into()), ..Self::default() }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<Deleted>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log was cut: deletions above never happened.
    pub fn cut(&self, at: Stamp) {
        self.waiting().retain(|deleted| deleted.tombstone < at);
    }

    /// One round: everything that the horizon has passed. What cannot be read is left to the next restart.
    fn sweep(&self, core: &Core, replay: &Replay, participant: &Participant) {
        self.waiting().extend(replay.take_deleted());
        let horizon = core.participants.horizon(|| core.snapshots.current());
        clear_dropped(core, participant);
        loop {
            let guard = participant.pin_without_snapshot();
            let context =
                ReadContext { snapshot: horizon, me: None, owners: &core.owners, source: &*core.source, horizon };
            for _ in 0..AT_ONCE {
                // Under the lock, so that a cut does not come between.
                let mut waiting = self.waiting();
                if waiting.front().is_none_or(|oldest| oldest.tombstone >= horizon) {
                    return;
                }
                let Some(Deleted { fid, rid, tombstone }) = waiting.pop_front() else { return };
                if let Some(content) = core.catalog.get(&guard, fid).and_then(|table| table.content(&guard)) {
                    let _ = content.reclaim_replayed(&guard, rid, tombstone, &context);
                }
            }
            drop(guard);
            participant.collect();
        }
    }

    /// The janitor's thread, until [`Janitor::stop`].
    pub fn run(&self, core: &Arc<Core>, replay: &Replay, participant: &Participant) {
        let mut guard = self.stop.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.stopping.load(Ordering::SeqCst) {
            drop(guard);
            self.sweep(core, replay, participant);
            guard = self.stop.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.stopping.load(Ordering::SeqCst) {
                guard = self.stop.1.wait_timeout(guard, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    pub fn stop(&self) {
        let _guard = self.stop.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.stopping.store(true, Ordering::SeqCst);
        self.stop.1.notify_all();
    }
}
