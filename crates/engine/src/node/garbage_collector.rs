//! A node's garbage collector: frees what no transaction sees any more and no other thread frees.
//! On a standby, that is what is left of deleted records, when every reader sees the deletion, and
//! old versions where memory is short; on every node, dropped tables, and what workers leave undone
//! ([`Collector`]).

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use freshet_base::{Lsn, Rid};
use freshet_replay::{Deleted, Replay};
use freshet_storage::{Participant, ReadContext};
use freshet_txn::{Collector, Core};

use crate::scheme::inputs::Window;

/// How long the garbage collector of a standby rests between two rounds.
const PAUSE: Duration = Duration::from_millis(50);
/// Records per pin, so that memory can be freed in between.
const AT_ONCE: usize = 256;

/// Gives up what tables hold that were dropped, and that no snapshot sees any more.
pub(super) fn clear_dropped(core: &Core, participant: &Participant) {
    if core.catalog.has_dropped() {
        core.clear_dropped(&participant.pin_without_snapshot());
        participant.collect();
    }
}

/// The last pass over all records for want of memory.
#[derive(Clone, Copy, Debug, Default)]
struct Relief {
    /// What was below was dropped.
    horizon: Lsn,
    /// How many bytes were taken after it, but for statements.
    left: u64,
    /// When it ended, and how long it took.
    ended: Option<(Instant, Duration)>,
}

impl Relief {
    /// Whether enough time has passed since for another pass to take an eighth of it at most.
    fn has_rested(&self) -> bool {
        self.ended.is_none_or(|(at, took)| at.elapsed() > 8 * took.max(PAUSE))
    }
}

/// Deleted records that readers may still see.
#[derive(Debug, Default)]
pub(crate) struct GarbageCollector {
    waiting: Mutex<VecDeque<Deleted>>,
    stopping: AtomicBool,
    /// Blocks that give ids of deleted records to others before they are replayed.
    window: Option<Arc<Window>>,
}

impl GarbageCollector {
    /// `window`: through which blocks go before they are replayed, if through any.
    pub fn new(waiting: Vec<Deleted>, window: Option<Arc<Window>>) -> Self {
        Self { waiting: Mutex::new(waiting.into()), window, ..Self::default() }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<Deleted>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log was cut: deletions above never happened.
    pub fn cut(&self, at: Lsn) {
        self.waiting().retain(|deleted| deleted.tombstone < at);
    }

    /// One round: everything that the horizon has passed. What cannot be read is left to the next
    /// restart.
    fn sweep(&self, core: &Core, replay: &Replay, participant: &Participant) {
        self.waiting().extend(replay.take_deleted());
        let mut postponed = Vec::new();
        self.sweep_unless(core, participant, &mut postponed);
        // The oldest first.
        let mut waiting = self.waiting();
        postponed.into_iter().rev().for_each(|deleted| waiting.push_front(deleted));
    }

    /// The same, but for records whose ids blocks in the window give to others: their index entries
    /// may be the same.
    fn sweep_unless(&self, core: &Core, participant: &Participant, postponed: &mut Vec<Deleted>) {
        let horizon = core.oldest_needed();
        while self.continues() {
            let guard = participant.pin_without_snapshot();
            let context =
                ReadContext { snapshot: horizon, me: None, owners: &core.owners, source: &*core.source, horizon };
            // To read one may take long where a log of several streams has to be read for it.
            for _ in (0..AT_ONCE).take_while(|_| self.continues()) {
                // Under the lock, so that a cut does not come between.
                let mut waiting = self.waiting();
                if waiting.front().is_none_or(|oldest| oldest.tombstone >= horizon) {
                    return;
                }
                let Some(deleted) = waiting.pop_front() else { return };
                let Deleted { fid, rid, tombstone } = deleted;
                let content = core.catalog.get(&guard, fid).and_then(|table| table.content(&guard));
                let Some(content) = content else { continue };
                let entering = self.window.as_ref().map(|window| window.entering());
                if entering.as_ref().is_some_and(|entering| entering.has(&guard, content, rid)) {
                    postponed.push(deleted);
                    continue;
                }
                let _ = content.reclaim_replayed(&guard, rid, tombstone, &context);
            }
            drop(guard);
            participant.collect();
        }
    }

    /// Where memory is short, drops the versions of all records that no snapshot sees, on a standby
    /// and on a primary that was one. Replay and readers drop only those of records that they come
    /// across, and both stop when no memory is left. A pass looks at all records, so another one
    /// begins only when a sixteenth of the limit was taken since, or when the horizon has moved and
    /// replay waits, or, now and then, nothing may be added.
    fn relieve(&self, core: &Core, participant: &Participant, last: &mut Relief) {
        let Some((used, limit)) = core.memory.short() else {
            *last = Relief::default();
            return;
        };
        let horizon = core.oldest_needed();
        let more = used > last.left.saturating_add(limit / 16);
        let is_due = more || core.memory.is_exhausted() || core.memory.measure() && last.has_rested();
        let begun = Instant::now();
        if horizon <= last.horizon || !is_due {
            return;
        }
        for table in core.catalog.all() {
            let mut next = Some(Rid(0));
            while let Some(first) = next.filter(|_| self.continues()) {
                let guard = participant.pin_without_snapshot();
                let Some(content) = table.content(&guard) else { break };
                next = content.next_place(first);
                for _ in 0..AT_ONCE {
                    let Some(rid) = next else { break };
                    content.trim_replayed(&guard, rid, horizon);
                    next = content.next_place(Rid(rid.0 + 1));
                }
                drop(guard);
                participant.collect();
            }
        }
        let left = core.memory.used().without_statements();
        *last = Relief { horizon, left, ended: Some((Instant::now(), begun.elapsed())) };
    }

    fn continues(&self) -> bool {
        !self.stopping.load(Ordering::SeqCst)
    }

    fn run(&self, core: &Core, replay: Option<&Replay>, collector: &mut Collector) {
        let mut relief = Relief::default();
        while self.continues() {
            if let Some(replay) = replay {
                self.sweep(core, replay, collector.participant());
                self.relieve(core, collector.participant(), &mut relief);
            }
            collector.collect(|| self.continues());
            // Replay does not notify the garbage collector of what it has come across.
            collector.rest(replay.map(|_| PAUSE));
        }
    }
}

/// A garbage collector's thread. Dropping it ends it, and waits for that.
pub(crate) struct GarbageCollectorThread {
    garbage_collector: Arc<GarbageCollector>,
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl GarbageCollectorThread {
    /// Starts it; `replay` is that of a node that is or was a standby.
    pub fn start(
        garbage_collector: Arc<GarbageCollector>,
        core: &Arc<Core>,
        replay: Option<&Arc<Replay>>,
    ) -> Result<Self, String> {
        let mut collector = Collector::new(core).map_err(|cause| cause.to_string())?;
        let (for_thread, replay, ours) = (Arc::clone(&garbage_collector), replay.cloned(), Arc::clone(core));
        let thread = std::thread::Builder::new()
            .name("gc".into())
            .spawn(move || for_thread.run(&ours, replay.as_deref(), &mut collector))
            .map_err(|cause| format!("cannot start a thread: {cause}"))?;
        Ok(Self { garbage_collector, core: Arc::clone(core), thread: Some(thread) })
    }
}

impl Drop for GarbageCollectorThread {
    fn drop(&mut self) {
        self.garbage_collector.stopping.store(true, Ordering::SeqCst);
        self.core.wake_collector();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported already.
            let _ = thread.join();
        }
    }
}
