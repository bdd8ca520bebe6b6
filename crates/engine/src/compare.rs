//! Comparing the state of two nodes: each hashes its rows by ranges of record ids, at one LSN,
//! and who compares narrows down to the first record that differs.
//!
//! A *view* keeps what is needed for that: from when it is opened on, nothing that a snapshot at
//! its LSN or above sees is given up. So two nodes that have opened a view each can be read at
//! the larger of the two LSNs, as soon as both show it. A view is a thread with a pin, like a
//! long transaction. There are few at once, and each ends by itself.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use freshet_base::{Fid, Lsn, Rid};
use freshet_storage::{Guard, ReadContext, ReadError, Table};
use freshet_txn::Core;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// Views at once.
pub(crate) const VIEWS: usize = 2;
/// No view is kept for longer.
const LONGEST: Duration = Duration::from_secs(3600);
/// Ranges in one answer.
pub const MOST_RANGES: u32 = 256;
/// Tables in one answer.
const MOST_TABLES: usize = 1000;
/// An answer is given after so long, with the ranges that are through by then, one at least.
const BUDGET: Duration = Duration::from_secs(1);
/// Records between two looks at the clock.
const LOOK_EVERY: u64 = 256;
/// How often a record is read again that a transaction is about to commit.
const TRIES: u32 = 100;

/// What is asked of a node whose state is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateAsk {
    /// Opens a view. Answered by [`StateAnswer::Opened`].
    Open {
        /// For how long, in milliseconds; at most an hour.
        keep_ms: u64,
    },
    /// The tables that there are at an LSN, in the order of their ids. Answered by
    /// [`StateAnswer::Tables`].
    Tables {
        /// The view.
        view: u64,
        /// The LSN.
        at: Lsn,
        /// From this id on.
        from: u32,
    },
    /// Hashes ranges of records, one behind the other. Answered by [`StateAnswer::Hashes`].
    Hash {
        /// The view.
        view: u64,
        /// The LSN.
        at: Lsn,
        /// The table's id.
        fid: u32,
        /// The first record id of the first range.
        from: u64,
        /// Record ids in each range; the first one alone when it is 1.
        step: u64,
        /// How many ranges, at most [`MOST_RANGES`].
        ranges: u32,
    },
    /// What there is of a record. Answered by [`StateAnswer::Record`].
    Record {
        /// The view.
        view: u64,
        /// The LSN.
        at: Lsn,
        /// The table's id.
        fid: u32,
        /// The record's.
        rid: u64,
    },
    /// Ends a view. Answered by [`StateAnswer::Closed`].
    Close {
        /// The view.
        view: u64,
    },
    /// Looks through everything that is in memory. Answered by [`StateAnswer::Swept`].
    Sweep {
        /// How long that may take, in milliseconds.
        deadline_ms: u64,
    },
    /// Damages something, for tests. Answered by [`StateAnswer::Broken`].
    #[cfg(debug_assertions)]
    Break {
        /// What.
        what: Break,
        /// Which of those that there are.
        seed: u64,
    },
}

/// What is to be damaged.
#[cfg(debug_assertions)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Break {
    /// A row in memory.
    Row,
    /// Where replay says that a record's newest version is.
    ReplayWord,
    /// An index entry, which goes.
    Entry,
    /// A record that is only in memory, which goes.
    Record,
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateAnswer {
    /// A view was opened.
    Opened {
        /// Its number.
        view: u64,
        /// It can be read at this LSN, and above.
        at: Lsn,
    },
    /// Tables; none when there are no more.
    Tables(Vec<TableState>),
    /// The ranges in their order; fewer than were asked for when there was no time for more.
    Hashes(Vec<RangeHash>),
    /// Where the log has the version that is seen; none when none is.
    Record(Option<Lsn>),
    /// The view is over.
    Closed,
    /// Everything was looked at.
    Swept {
        /// How much damage was found since the node started.
        damage: u64,
        /// The first of it.
        found: Vec<String>,
    },
    /// Something was damaged; what, unless there was nothing.
    #[cfg(debug_assertions)]
    Broken(Option<String>),
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableState {
    /// Its id.
    pub fid: u32,
    /// Its name.
    pub name: String,
    /// All its records have smaller ids.
    pub rids: u64,
}

/// The records of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeHash {
    /// Of their tables, ids, LSNs and rows.
    pub hash: u64,
    /// How many there are.
    pub records: u64,
}

/// What a view is asked, and where the answer goes.
type Question = (StateAsk, SyncSender<Result<StateAnswer, String>>);

/// The views of a node.
#[derive(Default)]
pub(crate) struct StateViews {
    views: Mutex<Views>,
    stopping: Arc<AtomicBool>,
}

#[derive(Default)]
struct Views {
    open: HashMap<u64, SyncSender<Question>>,
    last: u64,
}

impl StateViews {
    fn lock(&self) -> MutexGuard<'_, Views> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers what a view is asked, or opens one.
    ///
    /// # Errors
    /// What is not possible, and why.
    pub fn ask(&self, core: &Arc<Core>, ask: StateAsk) -> Result<StateAnswer, String> {
        match ask {
            StateAsk::Open { keep_ms } => self.open(core, Duration::from_millis(keep_ms).min(LONGEST)),
            StateAsk::Close { view } => {
                self.lock().open.remove(&view);
                Ok(StateAnswer::Closed)
            }
            StateAsk::Tables { view, .. } | StateAsk::Hash { view, .. } | StateAsk::Record { view, .. } => {
                let over = || "this view is over: compare again".to_owned();
                let sender = self.lock().open.get(&view).cloned().ok_or_else(over)?;
                let (reply, answer) = sync_channel(1);
                sender.send((ask, reply)).map_err(|_| over())?;
                answer.recv().map_err(|_| over())?
            }
            _ => Err("no view is asked this".into()),
        }
    }

    fn open(&self, core: &Arc<Core>, keep: Duration) -> Result<StateAnswer, String> {
        let mut views = self.lock();
        if self.stopping.load(Ordering::SeqCst) {
            return Err("the node stops".into());
        }
        // Those whose time has passed end when they are asked something, or by themselves.
        views.open.retain(|_, sender| !matches!(sender.try_send(nothing()), Err(TrySendError::Disconnected(_))));
        if views.open.len() >= VIEWS {
            return Err(format!("the state of this node is being compared {VIEWS} times already: try again later"));
        }
        let participant = core.participants.join().map_err(|cause| cause.to_string())?;
        let (sender, questions) = sync_channel(4);
        let (opened, at) = sync_channel(1);
        let (core, stopping) = (Arc::clone(core), Arc::clone(&self.stopping));
        let run = move || {
            let (guard, at) = participant.pin(|| core.snapshots.current());
            let view = View { core: &core, guard: &guard, from: at, until: Instant::now() + keep, stopping: &stopping };
            let _ = opened.send(at);
            view.serve(&questions);
        };
        thread::Builder::new().name("state-view".into()).spawn(run).map_err(|cause| cause.to_string())?;
        let at = at.recv().map_err(|_| "the view could not be opened".to_owned())?;
        views.last += 1;
        let view = views.last;
        views.open.insert(view, sender);
        Ok(StateAnswer::Opened { view, at })
    }

    /// No view answers any more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.lock().open.clear();
    }
}

/// A question that only shows whether somebody listens.
fn nothing() -> Question {
    (StateAsk::Close { view: 0 }, sync_channel(1).0)
}

/// What a node's view has.
struct View<'v> {
    core: &'v Core,
    guard: &'v Guard<'v>,
    /// It can be read from here on.
    from: Lsn,
    until: Instant,
    stopping: &'v AtomicBool,
}

impl View<'_> {
    fn serve(&self, questions: &Receiver<Question>) {
        while let Some(left) = self.until.checked_duration_since(Instant::now()) {
            match questions.recv_timeout(left) {
                Ok((ask, reply)) => drop(reply.send(self.answer(&ask))),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn answer(&self, ask: &StateAsk) -> Result<StateAnswer, String> {
        let at = match ask {
            StateAsk::Tables { at, .. } | StateAsk::Hash { at, .. } | StateAsk::Record { at, .. } => *at,
            _ => return Ok(StateAnswer::Closed),
        };
        if at < self.from || at > self.core.snapshots.current() {
            return Err(format!("this view can be read from {} on, up to what the node shows, not at {at}", self.from));
        }
        match *ask {
            StateAsk::Tables { from, .. } => Ok(StateAnswer::Tables(self.tables(at, from))),
            StateAsk::Hash { fid, from, step, ranges, .. } => {
                self.hashes(at, Fid(fid), from, step, ranges.min(MOST_RANGES)).map(StateAnswer::Hashes)
            }
            StateAsk::Record { fid, rid, .. } => {
                let mut found = None;
                self.each(at, Fid(fid), rid, rid.saturating_add(1), |_, lsn, _| found = Some(lsn))?;
                Ok(StateAnswer::Record(found))
            }
            _ => Err("no view is asked this".into()),
        }
    }

    fn tables(&self, at: Lsn, from: u32) -> Vec<TableState> {
        let tables = self.core.catalog.tables_at(at).into_iter().filter(|table| table.fid().0 >= from);
        let state = |table: Arc<Table>| {
            let rids = table.content(self.guard)?.rid_limit().0;
            Some(TableState { fid: table.fid().0, name: table.name().to_owned(), rids })
        };
        tables.filter_map(state).take(MOST_TABLES).collect()
    }

    fn hashes(&self, at: Lsn, fid: Fid, from: u64, step: u64, ranges: u32) -> Result<Vec<RangeHash>, String> {
        let begun = Instant::now();
        let mut hashes = Vec::new();
        let mut from = from;
        while hashes.len() < ranges as usize && (hashes.is_empty() || begun.elapsed() < BUDGET) {
            let to = from.saturating_add(step.max(1));
            let mut range = RangeHash::default();
            self.each(at, fid, from, to, |rid, lsn, row| {
                let mut hasher = Xxh3::new();
                for word in [u64::from(fid.0), rid.0, lsn.0] {
                    hasher.update(&word.to_le_bytes());
                }
                hasher.update(row);
                range.hash = range.hash.wrapping_add(hasher.digest());
                range.records += 1;
            })?;
            hashes.push(range);
            from = to;
        }
        Ok(hashes)
    }

    /// Calls `each` with every record that a snapshot at `at` sees.
    fn each(&self, at: Lsn, fid: Fid, from: u64, to: u64, mut each: impl FnMut(Rid, Lsn, &[u8])) -> Result<(), String> {
        let core = self.core;
        let content = core.catalog.get(self.guard, fid).and_then(|table| table.content(self.guard));
        let content = content.ok_or_else(|| format!("there is no table with the id {}", fid.0))?;
        let (owners, source) = (&core.owners, &*core.source);
        let context = ReadContext { snapshot: at, me: None, owners, source, horizon: Lsn::ZERO };
        let mut next = content.next_place(Rid(from));
        let mut looked_at = 0;
        while let Some(rid) = next.filter(|rid| rid.0 < to) {
            next = content.next_place(Rid(rid.0 + 1));
            looked_at += 1;
            if looked_at % LOOK_EVERY == 0 && (self.stopping.load(Ordering::SeqCst) || Instant::now() >= self.until) {
                return Err("the time of this view is over, or the node stops".into());
            }
            let mut tries = 0;
            let seen = loop {
                match content.read(self.guard, rid, &context) {
                    Err(ReadError::Stalled) if tries < TRIES => tries += 1,
                    seen => break seen,
                }
            };
            let seen = seen.map_err(|cause| format!("record {} cannot be read: {cause}", rid.0))?;
            if let Some((lsn, row)) = seen.and_then(|seen| Some((seen.lsn?, seen.row?))) {
                each(rid, lsn, row);
            }
        }
        Ok(())
    }
}

/// Damages something of what `seed` chooses, and says what.
#[cfg(debug_assertions)]
pub(crate) fn break_something(core: &Core, what: Break, seed: u64) -> Option<String> {
    let participant = core.participants.join().ok()?;
    let (guard, snapshot) = participant.pin(|| core.snapshots.current());
    // What the catalog says of tables is looked at by everybody: that would end the node.
    let tables = core.catalog.tables_at(snapshot).into_iter().filter(|table| table.fid() != Fid::CATALOG);
    let tables: Vec<_> = tables.filter(|table| table.exists_at(snapshot)).collect();
    let mut row = Vec::new();
    for number in 0..tables.len() {
        let table = &tables[(seed as usize).wrapping_add(number) % tables.len()];
        let Some(content) = table.content(&guard) else { continue };
        let first = Rid(seed % content.rid_limit().0.max(1));
        let mut next = content.next_place(first).or_else(|| content.next_place(Rid(0)));
        while let Some(rid) = next {
            next = content.next_place(Rid(rid.0 + 1));
            let examined = content.examine(&guard, rid, snapshot, &*core.source, &mut row);
            let Ok(freshet_storage::Examined::Row(row)) = examined else { continue };
            let broken = match what {
                Break::Row => content.break_row(&guard, rid),
                Break::ReplayWord => content.break_replay(rid),
                Break::Record => content.break_record(&guard, rid),
                Break::Entry => {
                    let mut key = freshet_storage::KeyBuffer::new();
                    let index = content.indexes(&guard).primary();
                    index.key_of(row, &mut key).is_some_and(|key| index.tree().remove(&guard, key, rid))
                }
            };
            if broken {
                return Some(format!("{what:?} of table {:?}, record {}", table.name(), rid.0));
            }
        }
    }
    None
}
