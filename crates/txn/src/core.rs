//! What all workers of one node share.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_base::{Certifier, Fid, Lsn};
use freshet_log::{DurableError, Log, ReserveError, Writer};
use freshet_storage::{Catalog, Content, Guard, Owners, Participants, RecordSource, identity::Sums};

use crate::{
    Memory, Messages, Snapshots, certify::Certification, garbage::Garbages, identity::Identities, record::Recorder,
    row_locks::RowLocks, waits::Waits,
};

/// How often it is looked at whether the log is filled up to a mark, which mostly takes no time.
const PATIENCE: Duration = Duration::from_millis(1);

/// Why nothing is known of a mark.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// It is not in the log.
    #[error(transparent)]
    Log(#[from] ReserveError),
    /// The log has ended before the mark.
    #[error("the log has ended")]
    Ended,
}

/// The shared state of a node's transactions. Engine composes it; workers live on it.
pub struct Core {
    /// The threads that may pin versions.
    pub participants: Arc<Participants>,
    /// Which transaction owns which uncommitted version.
    pub owners: Owners,
    /// The tables of the node.
    pub catalog: Arc<Catalog>,
    /// Where snapshots come from.
    pub snapshots: Snapshots,
    /// Where versions come from that are not in memory.
    pub source: Arc<dyn RecordSource>,
    /// What transactions carry to those who listen.
    pub messages: Arc<Messages>,
    /// How much of it tables may take.
    pub memory: Arc<Memory>,
    /// Who waits for whose records.
    pub(crate) waits: Waits,
    /// Who keeps others from changing records.
    pub(crate) row_locks: RowLocks,
    /// What decides whether serializable transactions commit.
    pub(crate) certification: Certification,
    /// What workers have made, and not freed yet.
    pub(crate) garbage: Garbages,
    /// How commits change the identity of the state.
    pub(crate) identities: Identities,
    /// Whether inputs are recorded, and how many were.
    pub(crate) recorder: Recorder,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("catalog", &self.catalog).field("snapshots", &self.snapshots).finish()
    }
}

impl Core {
    /// What is in a table, unless it was dropped and given up.
    #[inline]
    pub(crate) fn content<'g>(&self, guard: &'g Guard<'_>, fid: Fid) -> Option<&'g Content> {
        self.catalog.get(guard, fid)?.content(guard)
    }

    /// Composes the parts.
    pub fn new(
        participants: Arc<Participants>,
        catalog: Arc<Catalog>,
        snapshots: Snapshots,
        source: Arc<dyn RecordSource>,
        messages: Arc<Messages>,
        memory: Arc<Memory>,
        certifier: Certifier,
    ) -> Arc<Self> {
        let owners = Owners::new(participants.limit());
        let waits = Waits::new(participants.limit());
        let garbage = Garbages::new(participants.limit());
        let identities = Identities::new(participants.limit());
        let recorder = Recorder::new(participants.limit());
        let row_locks = RowLocks::new();
        let certification = Certification::new(certifier, participants.limit());
        Arc::new(Self {
            participants,
            owners,
            catalog,
            snapshots,
            source,
            messages,
            memory,
            waits,
            row_locks,
            certification,
            garbage,
            identities,
            recorder,
        })
    }

    /// Whether any transaction that has written is open, and whether any is about to take its LSN
    /// or has just taken it ([`Owners::under_way`]).
    pub fn under_way(&self) -> (bool, bool) {
        self.owners.under_way()
    }

    /// The LSN at and above which versions are still needed, whether what is below it is
    /// committed or not (see [`Content::trim`]).
    pub fn oldest_needed(&self) -> Lsn {
        self.participants.horizon(|| self.snapshots.oldest_readable())
    }

    /// On the primary: puts a mark into the log by `writer`, and returns where it is and how the
    /// commits below, since the last mark, have changed the sums of the tables
    /// ([`freshet_storage::identity`]). Blocks until the log is filled up to the mark. One thread
    /// makes marks.
    ///
    /// # Errors
    /// When the log takes nothing more, or ends first.
    pub fn mark(&self, log: &Log, writer: &mut Writer) -> Result<(Lsn, Sums), MarkError> {
        writer.throttle()?;
        let mut mark = Lsn::ZERO;
        self.identities.coming();
        let end = writer.note_mark(|at| {
            mark = at;
            self.identities.came(at);
        })?;
        while log.filled() < end {
            match log.wait_durable(end, Some(Instant::now() + PATIENCE)) {
                Ok(_) | Err(DurableError::Deadline) => {}
                Err(_) => return Err(MarkError::Ended),
            }
        }
        Ok((mark, self.identities.take(mark)))
    }

    /// Gives up what tables hold that were dropped, and that no snapshot sees any more. That waits
    /// until the drop is committed: a table that is missing tells no transaction why.
    pub fn clear_dropped(&self, guard: &Guard<'_>) {
        if self.catalog.has_dropped() {
            self.catalog.clear_dropped(guard, self.oldest_needed().min(self.snapshots.committed()));
        }
    }

    /// What versions take that are to go when no snapshot needs them any more, and what was freed
    /// and somebody may still hold, in bytes.
    pub fn kept_for_snapshots(&self) -> u64 {
        self.garbage.bytes() + self.participants.waiting_bytes() as u64
    }

    /// Ends the collector's rest. Cheap.
    pub fn wake_collector(&self) {
        self.garbage.ring();
    }

    /// For whose transactions the one of worker `place` waits, if it waits for a record: the other
    /// workers' places. What it says may be over by the time that it is looked at.
    pub fn waits_for(&self, place: usize) -> Vec<usize> {
        self.waits.waits_for(&self.owners, place)
    }
}
