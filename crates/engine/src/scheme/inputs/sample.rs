//! A sample of the transactions that a standby sees: those that were certified serializable are
//! executed once more, at their own places in the log (Record-Replay, section 7: what certifies on
//! the primary and what executes here have no fault in common).
//!
//! A transaction that validation has certified would do the same if all of it happened where its
//! block lies: in the order of blocks all of them are serial. `freshet verify --serially` looks at
//! all of a log in that way; here a thread takes a part of the log now and then, so that the share
//! of all parts is the one that was asked for, reads its blocks when readers see them, and executes
//! what can be executed as a reader of the standby: it needs nothing of how the standby applies
//! the log, and replay continues beside it.
//!
//! What comes out otherwise is executed at its own snapshots, too. If it gives its block there, as
//! on the primary, the primary has certified what is not serializable, and this is told. Else
//! nothing was found out: a table was dropped since, say, or the log that is needed is gone.
//!
//! Versions are kept for the thread while it is at a part: from the beginning of that part, or a
//! little before, so a transaction that reads below is left out.

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{Fid, Lsn, Rid, WaitError, Watermark};
use freshet_log::{Block, BlockHeader, Log, LogReader, block::BLOCK_HEADER};
use freshet_replay::form::REACH;
use freshet_storage::{Participant, ReadError};
use freshet_txn::{Core, Entry, Inputs, Past};
use serde::Serialize;

use super::{
    entrance::{Kept, fit},
    failure::{Failure, Why},
    mismatch::{Mismatch, MismatchFile},
    pending::{Pending, Task, Written},
    pool::{Executes, Mismatches, is_in_order, out_of_order},
};
use crate::scheme::command::Executors;

/// A part of the log has about this many bytes.
const PART: u64 = 64 << 10;
/// What has come is looked at after this time, if it is less than a part.
const SOON: Duration = Duration::from_secs(1);
/// Who asks for all of the log passes over what is left when it is further behind than that.
const BEHIND: u64 = 64 << 20;
/// The thread looks this often whether it is still needed.
const LOOK: Duration = Duration::from_millis(50);
/// A transaction that takes longer is given up: versions are kept for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What has become of the transactions of the sample, since the node became a standby.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SampleStatus {
    /// Those that gave the same at their own places in the log.
    pub verified: u64,
    /// Those that did not, although they were certified to: the primary has certified what is not
    /// serializable.
    pub out_of_order: u64,
    /// Those that have told nothing.
    pub inconclusive: u64,
    /// Where the ones that did not are kept, when there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Counts {
    verified: AtomicU64,
    out_of_order: AtomicU64,
    inconclusive: AtomicU64,
}

/// Which sample a node takes while it is a standby.
pub(crate) struct Samples {
    /// None where none is taken.
    executors: Option<Executors>,
    /// In percent of the log, up to 100.
    share: u64,
    file: Option<PathBuf>,
    /// Of the standby that was composed last.
    counts: Mutex<Arc<Counts>>,
}

impl Samples {
    /// This many percent of the log, by means of one of `executors`; what is found is kept in
    /// `file`.
    pub fn new(executors: Option<Executors>, share: u32, file: Option<PathBuf>) -> Self {
        let executors = executors.filter(|_| share > 0);
        Self { executors, share: share.clamp(1, 100).into(), file, counts: Mutex::default() }
    }

    /// What has been found out; nothing where no sample is taken.
    pub fn status(&self) -> Option<SampleStatus> {
        self.executors.as_ref()?;
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: statistics.
        let out_of_order = counts.out_of_order.load(Relaxed);
        Some(SampleStatus {
            verified: counts.verified.load(Relaxed),
            out_of_order,
            inconclusive: counts.inconclusive.load(Relaxed),
            file: self.file.clone().filter(|_| out_of_order > 0),
        })
    }

    /// Begins on a standby, whose readers see `log` up to `visible`, and nothing below `floor`.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn start(
        &self,
        core: &Arc<Core>,
        log: &Log,
        visible: &Arc<Watermark>,
        floor: Lsn,
    ) -> Result<Option<Sampler>, String> {
        let Some(executors) = &self.executors else { return Ok(None) };
        let counts = Arc::<Counts>::default();
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&counts);
        let join = || core.participants.join().map_err(|cause| cause.to_string());
        let ends = Arc::<AtomicBool>::default();
        let mut sampling = Sampling {
            places: Some([join()?, join()?]),
            executes: Executes::new(core, &executors()),
            log: log.reader(),
            visible: Arc::clone(visible),
            floor,
            pause: PART * (100 / self.share - 1) + PART * (100 % self.share) / self.share,
            file: self.file.clone().map(MismatchFile::kept),
            counts,
            ends: Arc::clone(&ends),
        };
        let thread = Builder::new().name("sample".into()).spawn(move || sampling.run());
        let thread = thread.map_err(|cause| format!("cannot start a thread: {cause}"))?;
        Ok(Some(Sampler { ends, thread: Some(thread) }))
    }
}

/// The thread that takes a sample. Dropping it ends it, and waits for that.
pub(crate) struct Sampler {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sampler")
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.ends.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic there was reported already.
            let _ = thread.join();
        }
    }
}

/// All that is below a reader's view is in the tables.
struct Settled {
    ends: Arc<AtomicBool>,
    until: Instant,
}

impl Past for Settled {
    fn wait(&self, _: Fid, _: Rid, _: Lsn) -> Result<(), ReadError> {
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.ends.load(SeqCst) || Instant::now() >= self.until
    }
}

struct Sampling {
    places: Option<[Participant; 2]>,
    executes: Executes,
    log: LogReader,
    visible: Arc<Watermark>,
    floor: Lsn,
    /// How many bytes of log are passed over between two parts.
    pause: u64,
    file: Option<MismatchFile>,
    counts: Arc<Counts>,
    ends: Arc<AtomicBool>,
}

impl Sampling {
    fn run(&mut self) {
        let Some(places) = self.places.take() else { return };
        let mut turn = 0;
        // Nothing below is a state of the database.
        if self.wait(self.floor, None).is_none() {
            return;
        }
        let (mut pinned, mut kept) = places[turn].pin(|| self.visible.get());
        let mut at = kept;
        while let Some(seen) = self.wait(at.plus(PART), Some(SOON)) {
            at = self.part(at, seen, kept);
            // The new pin is there before the old one goes, where the next part follows at once.
            turn = 1 - turn;
            if self.pause == 0 && seen.since(at) <= BEHIND {
                kept = kept.max(Lsn(at.0.saturating_sub(REACH)));
                pinned = places[turn].pin(|| kept).0;
                continue;
            }
            drop(pinned);
            if self.wait(at.plus(self.pause), None).is_none() {
                return;
            }
            (pinned, kept) = places[turn].pin(|| self.visible.get());
            at = kept;
        }
    }

    /// Blocks until readers see the log up to `target`, or for this time; says how far they do.
    /// None when no sample is taken any more.
    fn wait(&self, target: Lsn, time: Option<Duration>) -> Option<Lsn> {
        let until = time.map(|time| Instant::now() + time);
        loop {
            if self.ends.load(SeqCst) {
                return None;
            }
            let seen = self.visible.get();
            if seen >= target || until.is_some_and(|until| Instant::now() >= until) {
                return Some(seen);
            }
            if let Err(WaitError::Closed) = self.visible.wait(target, Some(Instant::now() + LOOK)) {
                return None;
            }
        }
    }

    /// Looks at the blocks from `at` on, a boundary between transactions, up to `seen`, the end of
    /// the part, or one that cannot be read. Returns where it ends. What snapshots from `kept` on
    /// see is there.
    fn part(&mut self, at: Lsn, seen: Lsn, kept: Lsn) -> Lsn {
        let (mut next, mut bytes, mut continues) = (at, Vec::new(), false);
        // No part ends within a transaction.
        while next < seen && (continues || next.since(at) < PART) && !self.ends.load(SeqCst) {
            bytes.resize(BLOCK_HEADER, 0);
            let header = self.log.read(next, &mut bytes).ok().and_then(|()| BlockHeader::peek(&bytes).ok());
            // What is gone already is not looked at.
            let Some(header) = header.filter(|header| header.end() <= seen) else { return seen };
            bytes.resize(header.length as usize, 0);
            if self.log.read(next, &mut bytes).is_err() {
                return seen;
            }
            let Ok(block) = Block::parse(&bytes, next) else { return seen };
            if Kept::of(&block).is_none() && !continues {
                self.look_at(&block, kept);
            }
            continues = header.continued;
            next = header.end();
        }
        next
    }

    /// Executes a block's transaction at its own place, if it was certified.
    fn look_at(&mut self, block: &Block<'_>, kept: Lsn) {
        let row = block.inputs().unwrap_or_default();
        let Some(Inputs { snapshots, .. }) = Inputs::decode(row) else { return };
        if !fit(&snapshots, block.lsn()) || snapshots[0] < kept {
            return;
        }
        let records = block.records().map(|record| record.header).filter(|header| header.fid != Fid::INPUTS);
        let entries: Vec<Entry> = records
            .map(|header| Entry {
                fid: header.fid,
                rid: header.rid,
                kind: header.kind,
                length: header.length,
                prev: header.prev,
            })
            .collect();
        let written = Written::of_entries(&entries);
        let task = Task { entries: OnceLock::from(entries), snapshots, inputs: row.into(), hopeless: None };
        let pending = Pending::promised(*block.header(), written, Some(task));
        let Some(task) = pending.task().filter(|task| is_in_order(&pending, task)) else { return };
        let past: Arc<dyn Past> = Arc::new(Settled { ends: Arc::clone(&self.ends), until: Instant::now() + PATIENCE });
        let there = self.executes.in_order(&pending, task, Arc::clone(&past));
        let same = |outcome: &Result<Arc<[u8]>, Failure>| outcome.as_ref().is_ok_and(|image| **image == *block.bytes());
        // Relaxed: statistics.
        if same(&there) {
            self.counts.verified.fetch_add(1, Relaxed);
            return;
        }
        let lacks = matches!(&there, Err(Failure { why: Why::Memory(_), .. }));
        let once_more = self.executes.execute_at(&pending, task, &task.snapshots, Arc::clone(&past));
        if lacks || past.is_over() || !same(&once_more) {
            self.counts.inconclusive.fetch_add(1, Relaxed);
            return;
        }
        self.counts.out_of_order.fetch_add(1, Relaxed);
        let command = self.executes.describe(&pending, task, past);
        self.report(&Mismatch::of(&pending, &Failure { command, ..out_of_order(there) }, block.bytes()));
    }

    fn report(&self, mismatch: &Mismatch) {
        let kept = self.file.as_ref().map(|file| {
            let _ = file.note(mismatch.clone());
            file.failed().unwrap_or_else(|| file.shown_by())
        });
        tracing::warn!(
            lsn = mismatch.lsn.0,
            cause = mismatch.why,
            command = mismatch.command,
            kept,
            "the primary has certified a transaction that is not serializable"
        );
    }
}
