//! Forms: what arrives in another form than the log's is kept in a journal and handed to
//! [`Regenerate`]; what that has completed becomes part of the log ([`crate::forms`]).
//!
//! The thread `journal` writes what has arrived, and syncs it, while the receiving thread waits for
//! the next batch and blocks are regenerated.

use std::{
    sync::Weak,
    time::{Duration, Instant},
};

use freshet_base::{
    Lsn,
    sync::{Arc, Condvar, Mutex, MutexGuard, Ordering},
};
use freshet_cluster::{
    follower::{Event, Room},
    inputs::{Kept, Raising},
};
use freshet_log::{
    OutOfSpace, StoreError,
    journal::{self, Found, Journal},
    medium::{FileMedium, make_directory},
};

use super::{Shared, State, config::JournalPlace};
use crate::{
    forms::{Arrivals, Complete, Encoding, Missing, Regenerate, Wanted},
    hop::hop,
};

/// Why what has arrived before cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "this node has acknowledged transactions behind {end}, where its log ends, and cannot execute them again as it \
         is configured now: start it as it was before, until it has"
    )]
    Lost { end: Lsn },
}

/// A batch that has arrived.
#[derive(Clone, Copy)]
pub(super) struct Arriving {
    /// Where its first block begins.
    pub from: Lsn,
    pub to: Lsn,
    /// How many bytes have come for it.
    pub carried: u64,
    /// It is kept in the journal; else it is persistent when it is part of the log.
    pub keeps: bool,
}

/// What a standby needs that asks for forms.
pub(super) struct FormsStage {
    pub regenerate: Arc<dyn Regenerate>,
    /// None where the log is in memory only: then what is complete counts.
    journal: Option<JournalStage>,
}

struct JournalStage {
    /// Locked before `state`.
    journal: Mutex<Journal>,
    /// How the journal is off for room.
    room: journal::Room,
    state: Mutex<JournalState>,
    changed: Condvar,
}

#[derive(Default)]
struct JournalState {
    waiting: Vec<Found>,
    kept: Kept,
    stopped: bool,
}

/// Bounds what has arrived and is not complete.
#[derive(Default)]
pub(super) struct Backlog {
    /// What had arrived when it was looked at last.
    arrived: Lsn,
    /// How often the room was doubled since something came.
    doublings: u32,
}

impl Backlog {
    /// How much may be ahead of what is complete, where `ahead` is wanted. If the node `waits`,
    /// since what the sender has does not come and nothing is left to do, the next block is longer
    /// than the room: it becomes four times as much with each such turn.
    fn bound(&mut self, ahead: u64, arrived: Lsn, waits: bool) -> u64 {
        if waits && arrived == self.arrived {
            self.doublings = (self.doublings + 2).min(62);
        } else if arrived != self.arrived {
            self.doublings = 0;
        }
        self.arrived = arrived;
        ahead.saturating_mul(1 << self.doublings)
    }
}

impl FormsStage {
    /// A stage whose journal is in `directory`, which is made if it is missing. Returns what the
    /// journal holds beyond `end`, where the log ends. `floor` is where the checkpoint ends.
    ///
    /// # Errors
    /// Why there can be none.
    pub fn open(
        regenerate: Option<Arc<dyn Regenerate>>,
        place: Option<&JournalPlace>,
        end: Lsn,
        floor: Lsn,
    ) -> Result<(Option<Self>, Vec<Found>), OpenError> {
        let is_there = |place: &JournalPlace| place.directory.exists() || place.newest.newest_file().is_some();
        let Some(JournalPlace { directory, newest }) = place.filter(|place| regenerate.is_some() || is_there(place))
        else {
            let stage = |regenerate| Self { regenerate, journal: None };
            return Ok((regenerate.map(stage), Vec::new()));
        };
        if newest.newest_file().is_none() {
            make_directory(directory).map_err(|source| StoreError::Io {
                doing: "make the directory",
                file: directory.clone(),
                offset: 0,
                source,
            })?;
        }
        let (journal, found) = Journal::open(Arc::new(FileMedium::new(directory)), Arc::clone(newest), end)?;
        let Some(regenerate) = regenerate else {
            return if found.is_empty() { Ok((None, found)) } else { Err(OpenError::Lost { end }) };
        };
        let held = found.last().map_or(end, |last| last.to);
        let state = JournalState { kept: Kept::new(end, held, floor), ..JournalState::default() };
        let (journal, room) = (Mutex::new(journal), journal::Room::default());
        let journal = JournalStage { journal, room, state: Mutex::new(state), changed: Condvar::new() };
        Ok((Some(Self { regenerate, journal: Some(journal) }), found))
    }

    /// How far everything is durable here, if the log is up to `durable`.
    pub fn held(&self, durable: Lsn) -> Lsn {
        self.journal.as_ref().map_or(durable, |journal| journal.state().kept.held(durable))
    }

    /// A batch has arrived, which reads at `oldest` and above.
    fn keep(&self, from: Lsn, to: Lsn, form: &[u8], oldest: Lsn) {
        let Some(journal) = &self.journal else { return };
        let mut state = journal.state();
        if state.kept.keeps(to, oldest) {
            state.waiting.push(Found { from, to, bytes: form.to_vec() });
            journal.changed.notify_all();
        }
    }

    /// Up to where the log has to be durable before this checkpoint counts.
    fn raise(&self, raising: &mut Raising) -> Lsn {
        let mut journal = self.journal.as_ref().map(JournalStage::state);
        raising.begin(journal.as_mut().map(|state| &mut state.kept))
    }

    /// The log is cut at `at`, durably here when this returns.
    pub fn cut(&self, at: Lsn) -> Result<(), String> {
        self.regenerate.cut(at);
        let Some(stage) = &self.journal else { return Ok(()) };
        let mut journal = stage.journal();
        {
            let mut state = stage.state();
            state.waiting.retain(|batch| batch.from < at);
            state.waiting.iter_mut().for_each(|batch| batch.to = batch.to.min(at));
            state.kept.cut(at);
        }
        let cut = journal.in_room(&stage.room, || Lsn::ZERO, |journal| journal.cut(at));
        cut.map_err(|error| error.to_string())
    }

    /// No thread is needed any more.
    pub fn stop(&self) {
        self.regenerate.stop();
        if let Some(journal) = &self.journal {
            journal.state().stopped = true;
            journal.room.set_patient(false);
            journal.changed.notify_all();
        }
    }
}

impl JournalStage {
    fn state(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().expect("no code panics under this mutex")
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().expect("no code panics under this mutex but for a bug of the journal")
    }

    /// Waits until something is to be written; false when the standby stops.
    fn wait(&self) -> bool {
        let mut state = self.state();
        while state.waiting.is_empty() && !state.stopped {
            state = self.changed.wait(state).expect("no code panics under this mutex");
        }
        !state.stopped
    }

    /// Writes what waits, as soon as there is room. `durable` says up to where the log has it.
    fn write(&self, durable: impl Fn() -> Lsn) -> Result<(), StoreError> {
        // A cut comes before all of this, or behind it.
        let mut journal = self.journal();
        let batches = std::mem::take(&mut self.state().waiting);
        for Found { from, to, bytes } in &batches {
            journal.in_room(&self.room, &durable, |journal| journal.append(*from, *to, bytes))?;
        }
        journal.in_room(&self.room, &durable, Journal::sync)?;
        let in_log = durable();
        let mut state = self.state();
        state.kept.in_log(in_log);
        batches.iter().for_each(|batch| state.kept.wrote(batch.from, batch.to));
        Ok(())
    }
}

/// The journal's thread.
pub(super) fn run(shared: &Arc<Shared>) {
    let Some(journal) = shared.store.forms.as_ref().and_then(|forms| forms.journal.as_ref()) else { return };
    let mut stint = shared.store.journal_cpu.begin();
    while journal.wait() {
        if let Err(error) = journal.write(|| shared.store.log.durable()) {
            // One that ends while it waits for room has acknowledged nothing of what is left.
            if journal.state().stopped {
                return;
            }
            return shared.follow.fail(error.to_string());
        }
        shared.acknowledge(false);
        stint.note();
    }
}

/// Where regenerated blocks go. Weak: the standby has what regenerates.
pub(super) struct Completing(pub Weak<Shared>);

impl Complete for Completing {
    fn append(&self, blocks: &[u8]) -> Result<(), String> {
        let Some(shared) = self.0.upgrade() else { return Err("the standby has ended".into()) };
        let from = shared.store.log.received().get();
        let ends = hop(blocks, from, PARTITION).map_err(|error| error.to_string())?.ends;
        let ends: Vec<Lsn> = ends.iter().map(|end| from.plus(u64::from(*end))).collect();
        let appended = shared.receiver().as_mut().map(|receiver| receiver.append(blocks));
        match appended {
            None => return Err("the log is another's to fill".into()),
            Some(Err(error)) => return Err(error.to_string()),
            Some(Ok(_)) => {}
        }
        shared.accepted(&ends, None);
        let waiting = {
            let mut state = shared.state();
            state.originals.completed(shared.store.log.received().get());
            state.waiting > 0
        };
        if waiting {
            shared.store.changed.notify_all();
        }
        shared.acknowledge(false);
        Ok(())
    }

    fn originals(&self, wanted: &[Wanted]) -> Vec<Result<Vec<u8>, Missing>> {
        super::original::originals(&self.0, wanted)
    }

    fn arrivals(&self) -> Arrivals {
        let Some(shared) = self.0.upgrade() else { return Arrivals::default() };
        let state = shared.state();
        Arrivals { end: state.lag.end(), busy: state.link.busy(), ..state.arrivals }
    }

    fn ask_for(&self, encoding: Encoding) {
        if let Some(shared) = self.0.upgrade() {
            shared.ask_for(encoding);
        }
    }

    fn asks_for(&self) -> Encoding {
        self.0.upgrade().map_or(Encoding::Bytes, |shared| shared.encoding())
    }

    fn failed(&self, why: String) {
        if let Some(shared) = self.0.upgrade() {
            shared.follow.fail(why);
            // Wakes threads that wait for what does not come.
            drop(shared.state());
            shared.store.changed.notify_all();
        }
    }
}

/// What a standby has acknowledged and not regenerated yet, for those who write its checkpoints.
/// Outlives the standby.
pub struct ArrivedLog(pub(super) Weak<Shared>);

impl std::fmt::Debug for ArrivedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ArrivedLog")
    }
}

impl ArrivedLog {
    /// A checkpoint that ends at `floor` is about to count, so a restart will have no versions that
    /// only older snapshots see. From now on nothing that reads below is acknowledged before the
    /// log has it. Blocks until what has arrived before is part of the log, durably.
    ///
    /// # Errors
    /// Why it is not: the standby ends, or `stops`.
    pub fn raise_floor(&self, floor: Lsn, stops: &dyn Fn() -> bool) -> Result<(), String> {
        let Some(shared) = self.0.upgrade() else { return Ok(()) };
        let Some(forms) = &shared.store.forms else { return Ok(()) };
        let mut raising = Raising::new(floor);
        loop {
            let to = forms.raise(&mut raising);
            if stops() || shared.stopping() {
                return Err("the node stops".into());
            }
            let soon = Instant::now() + LOOK;
            let wait = shared.store.log.wait_persisted(to, Some(soon));
            if to <= shared.store.log.durable() || wait.map_err(|error| error.to_string())? {
                return Ok(());
            }
        }
    }
}

/// Regenerated blocks are replayed in parts of about this many bytes.
const PARTITION: u64 = 64 << 10;
/// While such a thread waits, how much is left is logged this often.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// A thread that waits for blocks looks this often whether there is still a reason to.
const LOOK: Duration = Duration::from_millis(50);
/// A block that no node has given is waited for so long: another node may wait for the answer.
const MISSING: Duration = Duration::from_secs(1);

impl Shared {
    /// A batch has arrived in its form, and follows what has arrived before.
    pub(super) fn arrived(&self, batch: Arriving, form: &[u8]) -> Result<(), String> {
        let Arriving { from, to, carried, keeps } = batch;
        let Some(forms) = &self.store.forms else { return Err("this standby did not ask for forms".into()) };
        // A set is noted before what is behind its record is acknowledged.
        let mut note = |members: &[u8]| self.noted(super::sets::note_set(&self.terms, members, &|| self.stopping()));
        let oldest = forms.regenerate.enter(from, to, form, &mut note)?;
        if keeps {
            forms.keep(from, to, form, oldest);
        }
        let decision = {
            let mut state = self.state();
            let length = to.since(from);
            let ahead = forms.regenerate.ahead().min(self.store.log.capacity() / 2);
            let holds = to.since(self.store.log.received().get()) > ahead / 2;
            state.arrivals.log_bytes += length;
            state.arrivals.held_bytes += if holds { length } else { 0 };
            state.arrivals.carried_bytes += carried;
            self.apply(&mut state, Event::Arrived(to))
        };
        self.carry_out(decision);
        Ok(())
    }

    /// A batch of bytes has arrived, as [`Shared::arrived`]; `form` is memory for its form.
    pub(super) fn arrived_plain(&self, batch: Arriving, blocks: &[u8], form: &mut Vec<u8>) -> Result<(), String> {
        form.clear();
        let forms = self.store.forms.as_ref().ok_or("this standby did not ask for forms")?;
        forms.regenerate.plain(blocks, form)?;
        self.arrived(batch, form)
    }

    /// How far this node may be sent the log, if its buffer is free up to `free`. `turn`: this is
    /// asked once in a while, not because something has happened.
    pub(super) fn room(&self, state: &mut State, free: Lsn, turn: bool) -> Room {
        let all = state.follower.room().step;
        let Some(forms) = &self.store.forms else { return Room { until: free, step: all } };
        let (arrived, complete) = (state.follower.received(), self.store.log.received().get());
        let waits = turn && arrived == complete && state.lag.end() > arrived;
        let ahead = state.backlog.bound(forms.regenerate.ahead(), arrived, waits);
        Room { until: free.min(Lsn(complete.0.saturating_add(ahead))), step: all.min(ahead / 4).max(1) }
    }

    /// Begins to regenerate, with what the journal held when this node started.
    pub(super) fn begin_forms(self: &Arc<Self>, found: &[Found]) -> Result<(), String> {
        let Some(forms) = &self.store.forms else { return Ok(()) };
        let complete = Arc::new(Completing(Arc::downgrade(self)));
        forms.regenerate.begin(self.store.log.received().get(), &self.store.visible, complete);
        for Found { from, to, bytes } in found {
            forms.regenerate.enter(*from, *to, bytes, &mut |_| {})?;
            let mut state = self.state();
            let _ = self.apply(&mut state, Event::Arrived(*to));
            let _ = self.apply(&mut state, Event::Persisted(*to));
        }
        Ok(())
    }

    /// Whether a block could not be regenerated, and was not found on any other node.
    pub(crate) fn lacks_blocks(&self) -> bool {
        self.state().originals.missing().is_some()
    }

    /// Whether this node lacks the block at `at`, as those do that ask for it.
    pub(super) fn lacks_block(&self, at: Lsn) -> bool {
        self.state().originals.lacks(at)
    }

    /// In which form this node wants to have the log.
    pub(super) fn encoding(&self) -> Encoding {
        let asks = self.store.forms.is_some() && self.store.asks.load(Ordering::SeqCst);
        if asks { Encoding::Inputs } else { Encoding::Bytes }
    }

    /// See [`Standby::ask_for`](super::Standby::ask_for).
    pub(super) fn ask_for(&self, encoding: Encoding) -> bool {
        let asks = encoding != Encoding::Bytes;
        if asks && self.store.forms.is_none() {
            return false;
        }
        if self.store.asks.swap(asks, Ordering::SeqCst) != asks {
            self.acknowledge(true);
        }
        true
    }

    /// What the journal waits for, if it lacks room.
    pub(super) fn journal_out_of_space(&self) -> Option<OutOfSpace> {
        self.store.forms.as_ref()?.journal.as_ref()?.room.out_of_space()
    }

    /// How many pieces with gaps between them the journal holds.
    #[cfg(test)]
    pub(crate) fn journal_runs(&self) -> Option<usize> {
        Some(self.store.forms.as_ref()?.journal.as_ref()?.state().kept.runs())
    }

    pub(super) fn has_journal(&self) -> bool {
        self.store.forms.as_ref().is_some_and(|forms| forms.journal.is_some())
    }

    /// How far everything that has arrived is durable here.
    pub(super) fn held(&self) -> Lsn {
        let durable = self.store.log.durable();
        self.store.forms.as_ref().map_or(durable, |forms| forms.held(durable))
    }

    /// Blocks until all that has arrived is part of the log.
    ///
    /// # Errors
    /// Why it is not by `deadline`.
    pub(super) fn drain(&self, deadline: Option<Instant>) -> Result<(), String> {
        if self.store.forms.is_none() {
            return Ok(());
        }
        let patience = Instant::now() + MISSING;
        let (begun, begins) = (Instant::now(), self.store.log.received().get());
        let mut reported = begun;
        let mut state = self.state();
        let asked = state.originals.asked();
        loop {
            let (complete, arrived) = (self.store.log.received().get(), state.follower.received());
            if complete >= arrived {
                return Ok(());
            }
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                let (bytes, done) = (arrived.since(complete), complete.since(begins));
                let seconds_left = (done > 0).then(|| begun.elapsed().as_secs_f64() * bytes as f64 / done as f64);
                tracing::info!(bytes, seconds_left, "what has arrived is executed before this node continues");
            }
            if let Some(why) = self.follow.failure() {
                return Err(why);
            }
            // Of this time, not of one when other nodes could be reached.
            let missing = state.originals.missing_since(asked);
            let until = deadline.map(|deadline| if missing.is_some() { deadline.min(patience) } else { deadline });
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
            if self.stopping() || left.is_zero() {
                let why = missing.map_or_else(|| "ask again".into(), ToString::to_string);
                return Err(format!(
                    "transactions have arrived up to {arrived} and were executed again up to {complete}: {why}"
                ));
            }
            state.waiting += 1;
            state = self.store.changed.wait_timeout(state, left.min(LOOK)).expect("no code panics under this mutex").0;
            state.waiting -= 1;
        }
    }
}
