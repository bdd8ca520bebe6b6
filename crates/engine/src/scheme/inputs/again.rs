//! The scheme of a standby that gets inputs: it replays as any other, what it has regenerated.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use freshet_base::Lsn;
use freshet_log::Log;
use freshet_replay::Redo;
use freshet_replication::{
    forms::Regenerate,
    standby::{ReplayError, ReplayTarget},
};
use freshet_txn::Core;

use super::{
    live::{AgainStatus, How, Live},
    mismatch::Policy,
    room::Schedule,
    tables::Rest,
    window::Window,
};
use crate::{
    node::{Encoding, LiveReplay, Parts, StartError},
    scheme::{Ground, Replaying, command::Executors, full::Full},
    source::VersionSource,
};

/// Transactions are executed again.
pub(crate) struct Again {
    schedule: Schedule,
    executors: Option<Executors>,
    /// Of the standby that was composed last.
    live: Mutex<Option<Live>>,
}

impl Again {
    /// By means of one of `executors`, without which no standby starts, when `schedule` says.
    pub fn new(executors: Option<Executors>, schedule: Schedule) -> Self {
        Self { schedule, executors, live: Mutex::default() }
    }

    fn live(&self) -> Option<Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Replaying for Again {
    /// The threads that execute make versions, and replay those that they do not make: most are
    /// read again soon, by transactions above the read view.
    fn redo(&self, ground: &Ground) -> Box<dyn Redo> {
        let full = Full.redo(ground);
        match self.window() {
            Some(window) => Box::new(Rest { full, window }),
            None => full,
        }
    }

    fn begin(&self, parts: &Parts, ground: &Ground) {
        let Some(executors) = &self.executors else { return };
        let file = parts.ground.directory.as_ref().map(|directory| directory.path().join("mismatches"));
        let mismatches = Arc::new(Policy::new(parts.config.on_mismatch, file));
        let (encoding, backlog) = (parts.config.encoding, parts.config.backlog());
        let how = How { schedule: self.schedule, encoding, backlog };
        // A restart has one version of each record at the checkpoint's end, and all since then; of
        // tables and indexes, those that there are now.
        let floor = ground.floor.max(parts.catalog.changed_at());
        let live = Live::new((parts.end, floor), how, ground, executors(), mismatches);
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(live);
    }

    fn window(&self) -> Option<Arc<Window>> {
        self.live().map(|live| Arc::clone(live.window()))
    }

    fn again(&self) -> Option<AgainStatus> {
        self.live().map(|live| live.status())
    }

    fn set_encoding(&self, encoding: Encoding) {
        if let Some(live) = self.live() {
            live.set_encoding(encoding);
        }
    }

    fn target(&self, live: LiveReplay) -> Result<Arc<dyn ReplayTarget>, StartError> {
        let lacks = || StartError::Config("encoding = \"inputs\": no executor of transactions was given".into());
        Ok(Arc::new(Regenerating { live, regenerate: self.live().ok_or_else(lacks)? }))
    }

    fn composed(&self, core: &Arc<Core>, _: &VersionSource) {
        if let Some(live) = self.live() {
            live.compose(core);
        }
    }
}

/// Replays what is regenerated.
struct Regenerating {
    live: LiveReplay,
    regenerate: Live,
}

impl ReplayTarget for Regenerating {
    fn replay(&self, from: Lsn, to: Lsn, partition_ends: &[Lsn]) -> Result<(), ReplayError> {
        let window = self.regenerate.window();
        let making = window.making();
        self.live.replay(from, to, partition_ends)?;
        drop(making);
        window.replayed(to);
        Ok(())
    }

    fn persist(&self, from: Lsn, to: Lsn, ends: &[Lsn], log: &Arc<Log>) {
        self.live.persist(from, to, ends, log);
    }

    fn lacks_memory(&self) -> bool {
        self.live.lacks_memory()
    }

    fn is_prompt(&self) -> bool {
        self.live.is_prompt()
    }

    fn regenerates(&self) -> Option<Arc<dyn Regenerate>> {
        Some(Arc::new(self.regenerate.clone()))
    }

    fn processor_time(&self) -> Duration {
        self.live.processor_time() + self.regenerate.processor_time()
    }

    fn cut(&self, at: Lsn) -> Result<(), ReplayError> {
        let _still = self.regenerate.window().still();
        self.live.cut(at)
    }
}
