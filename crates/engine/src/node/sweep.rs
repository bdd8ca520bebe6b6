//! The sweep: in the background, a node looks through all that it has in memory, and through the
//! log that a restart would need, for what is not as it was made.
//!
//! | of | what is looked at |
//! |---|---|
//! | a row | each version's bytes, by the checksum that it got when it was made; the order of versions |
//! | a word | that it leads to versions of this record, in memory or in the log; so does replay's |
//! | an index | each row that can be seen has its entry; no entry leads to a record that never was |
//! | the log | each block, by its checksum, from the newest checkpoint on |
//!
//! Nothing stops for it: records are looked at in small batches, each at a snapshot of its own,
//! and nobody is waited for. So what looks wrong may be just on its way from one state to another.
//! It is looked at again, several times, a little later and from the beginning, and is damage only
//! if it still is wrong. An entry that leads to nothing may be a hint that was left over; where
//! that cannot be excluded, it is not damage.
//!
//! Damage is told, and puts the state of the node in doubt ([`StateProof`]). Damage in the log does
//! not: what is in memory does not come from there any more. But no row is taken from a damaged
//! part ([`VersionSource::damaged`]), and a record whose row is only there is damage as any other.
//! A checkpoint makes the part unneeded, so one is asked for.

use std::{
    collections::HashSet,
    ops::{ControlFlow, Range},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use freshet_base::{Fid, Lsn, Rid, StateProof, lock};
use freshet_log::{
    Block, BlockHeader, LogReader,
    block::{BLOCK_ALIGN, BLOCK_HEADER},
};
use freshet_storage::{Content, Damage, Examined, Guard, KeyBuffer, Participant, Table, index::ScanBuffer};
use freshet_txn::Core;
use serde::Serialize;

use super::{checkpoint::Checkpointing, config::SweepSettings, pace::Pace};
use crate::source::VersionSource;

/// Records, or entries of an index, that are looked at under one pin.
const AT_ONCE: usize = 64;
/// This many that look wrong are kept before they are looked at again.
const SUSPECTS: usize = 1024;
/// They are looked at again after these pauses, in milliseconds.
const AGAIN: [u64; 4] = [5, 20, 100, 400];
/// Damage that is logged and shown in a node's life; the rest is counted.
const SHOWN: usize = 16;
/// Damage that is remembered, so as to be counted once.
const KNOWN: usize = 100_000;
/// Bytes of the log that are read at once.
const LOG_PIECE: usize = 256 << 10;

/// How far the sweep is, and what it has found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SweepStatus {
    /// How many passes have ended since the node started.
    pub passes: u64,
    /// When the last one ended, in milliseconds since 1970.
    pub ended: Option<u64>,
    /// How long it took.
    pub took: Option<Duration>,
    /// What it has looked at.
    pub last: SweepCounts,
    /// What the one that is under way has looked at so far.
    pub under_way: Option<SweepCounts>,
    /// How much damage was found since the node started.
    pub damage: u64,
    /// The first of it.
    pub found: Vec<String>,
    /// The parts of the log that hold no valid blocks, and that a restart would need.
    pub log_damage: Vec<Range<Lsn>>,
    /// Why the log could not be read, where a word leads to it, the last time that this was so.
    pub unreadable: Option<String>,
}

/// What a pass has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SweepCounts {
    /// Records with a row.
    pub records: u64,
    /// Index entries.
    pub entries: u64,
    /// Index entries that lead to nothing, where some may be left over.
    pub left_over: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
}

/// Looks through a node. Dropping it ends that.
pub(super) struct Sweep {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the sweep needs of its node.
pub(super) struct Ground {
    pub settings: SweepSettings,
    pub core: Arc<Core>,
    pub source: Arc<VersionSource>,
    pub checkpointing: Option<Arc<Checkpointing>>,
    pub proof: Arc<StateProof>,
    /// Keys of transactions that are executed again are entered before their rows are there.
    pub executes_again: bool,
}

/// What the thread is to do.
struct Orders {
    settings: SweepSettings,
    /// How many passes were asked for, and how many of them have begun, and have ended.
    asked: u64,
    begun: u64,
    ended: u64,
}

struct Shared {
    orders: Mutex<Orders>,
    status: Mutex<SweepStatus>,
    stopping: AtomicBool,
    changed: Condvar,
}

impl Shared {
    fn stops(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Rests, unless the node stops.
    fn rest(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut orders = lock(&self.orders);
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if self.stops() {
                return;
            }
            orders = self.changed.wait_timeout(orders, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Blocks until a pass is due or asked for; `false` when the node stops.
    fn wait_due(&self, last: Instant) -> bool {
        let mut orders = lock(&self.orders);
        loop {
            if self.stops() {
                return false;
            }
            let interval = Duration::from_secs(orders.settings.interval_s);
            let left = interval.checked_sub(last.elapsed()).filter(|left| !left.is_zero());
            orders = match (interval.is_zero(), left) {
                _ if orders.asked > orders.begun => break,
                (false, None) => break,
                (true, _) => self.changed.wait(orders).unwrap_or_else(PoisonError::into_inner),
                (false, Some(left)) => {
                    self.changed.wait_timeout(orders, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        orders.begun = orders.asked;
        true
    }
}

impl Sweep {
    /// Begins to look, if the settings want it.
    pub fn start(ground: Ground) -> Result<Self, String> {
        let participant = ground.core.participants.join().map_err(|cause| cause.to_string())?;
        let shared = Arc::new(Shared {
            orders: Mutex::new(Orders { settings: ground.settings.clone(), asked: 0, begun: 0, ended: 0 }),
            status: Mutex::default(),
            stopping: AtomicBool::new(false),
            changed: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        let run = move || Sweeper::new(ground, theirs).run(&participant);
        let thread = std::thread::Builder::new().name("sweep".into()).spawn(run);
        let thread = thread.map_err(|cause| format!("cannot start a thread: {cause}"))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// As things stand.
    pub fn status(&self) -> SweepStatus {
        lock(&self.shared.status).clone()
    }

    /// Changes when passes begin, and their pace from the next one on.
    pub fn set(&self, settings: SweepSettings) {
        lock(&self.shared.orders).settings = settings;
        self.shared.changed.notify_all();
    }

    /// Looks through everything now, once, and waits for that.
    ///
    /// # Errors
    /// When it is not through by `deadline`, or the node stops.
    pub fn now(&self, deadline: Instant) -> Result<SweepStatus, &'static str> {
        let mut orders = lock(&self.shared.orders);
        orders.asked += 1;
        let asked = orders.asked;
        self.shared.changed.notify_all();
        while orders.ended < asked {
            let left = deadline.checked_duration_since(Instant::now()).ok_or("the pass is not through yet")?;
            if self.shared.stops() {
                return Err("the node stops");
            }
            orders = self.shared.changed.wait_timeout(orders, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(orders);
        Ok(self.status())
    }

    /// Ends it.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Under the mutex, so that nobody goes to sleep in between.
        drop(lock(&self.shared.orders));
        self.shared.changed.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic there was reported already.
            let _ = thread.join();
        }
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Something that looked wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// A record of the table.
    Record(Fid, Rid),
    /// An entry of its index of this number.
    Entry(Fid, usize, Vec<u8>, Rid),
}

/// What is wrong.
#[derive(Clone, Debug)]
enum Wrong {
    Damage(Damage),
    /// A row has no entry in the index of this name.
    Missing(String),
    /// The entry leads to nothing.
    Nowhere(String),
}

/// The node stops.
struct Stopped;

/// The thread that looks.
struct Sweeper {
    ground: Ground,
    shared: Arc<Shared>,
    pace: Pace,
    counts: SweepCounts,
    suspects: Vec<Place>,
    known: HashSet<Place>,
    /// The parts of the log that hold no valid blocks.
    damaged: Vec<Range<Lsn>>,
    row: Vec<u8>,
    key: KeyBuffer,
    buffer: ScanBuffer,
}

impl Sweeper {
    fn new(ground: Ground, shared: Arc<Shared>) -> Self {
        Self {
            ground,
            shared,
            pace: Pace::new(100),
            counts: SweepCounts::default(),
            suspects: Vec::new(),
            known: HashSet::new(),
            damaged: Vec::new(),
            row: Vec::new(),
            key: KeyBuffer::new(),
            buffer: ScanBuffer::default(),
        }
    }

    fn run(&mut self, participant: &Participant) {
        let mut last = Instant::now();
        while self.shared.wait_due(last) {
            // Of a mirror's memory no rows were made yet.
            if self.ground.core.snapshots.current() > Lsn::ZERO {
                self.pace = Pace::new(lock(&self.shared.orders).settings.cpu_percent);
                self.counts = SweepCounts::default();
                let begun = Instant::now();
                if self.pass(participant).is_err() {
                    return;
                }
                self.passed(begun.elapsed());
            }
            last = Instant::now();
            let mut orders = lock(&self.shared.orders);
            orders.ended = orders.begun;
            drop(orders);
            self.shared.changed.notify_all();
        }
    }

    fn passed(&self, took: Duration) {
        let ended = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64);
        let mut status = lock(&self.shared.status);
        status.passes += 1;
        (status.ended, status.took) = (Some(ended), Some(took));
        (status.last, status.under_way) = (self.counts, None);
        let SweepCounts { records, entries, .. } = self.counts;
        tracing::debug!(records, entries, damage = status.damage, "a pass of the sweep has ended");
    }

    fn pass(&mut self, participant: &Participant) -> Result<(), Stopped> {
        // First: whose row is only there is found with the records.
        self.log()?;
        for table in self.ground.core.catalog.all() {
            self.records(&table, participant)?;
            self.entries(&table, participant)?;
        }
        self.again(participant)
    }

    /// Between two batches.
    fn breathe(&mut self, participant: &Participant) -> Result<(), Stopped> {
        participant.collect();
        if self.suspects.len() >= SUSPECTS {
            self.again(participant)?;
        }
        self.keep_pace()
    }

    fn keep_pace(&mut self) -> Result<(), Stopped> {
        if let Some(pause) = self.pace.due() {
            lock(&self.shared.status).under_way = Some(self.counts);
            self.shared.rest(pause);
            self.pace.rested();
        }
        if self.shared.stops() { Err(Stopped) } else { Ok(()) }
    }

    /// All rows of a table, and from there to its indexes.
    fn records(&mut self, table: &Table, participant: &Participant) -> Result<(), Stopped> {
        let mut next = Some(Rid(0));
        while let Some(first) = next {
            {
                let (guard, snapshot) = participant.pin(|| self.ground.core.snapshots.current());
                let Some(content) = table.content(&guard) else { return Ok(()) };
                next = content.next_place(first);
                let mut looked_at = 0;
                while let Some(rid) = next.filter(|_| looked_at < AT_ONCE) {
                    looked_at += 1;
                    next = content.next_place(Rid(rid.0 + 1));
                    if self.record(&guard, snapshot, content, rid).is_some() {
                        self.suspects.push(Place::Record(table.fid(), rid));
                    }
                }
            }
            self.breathe(participant)?;
        }
        Ok(())
    }

    /// What is wrong with a record, if anything is.
    fn record(&mut self, guard: &Guard<'_>, snapshot: Lsn, content: &Content, rid: Rid) -> Option<Wrong> {
        let row = match content.examine(guard, rid, snapshot, &*self.ground.source, &mut self.row) {
            Ok(Examined::Row(row)) => row,
            Ok(Examined::Nothing | Examined::Later) => return None,
            Err(damage) => return Some(Wrong::Damage(damage)),
        };
        self.counts.records += 1;
        for (_, index) in content.indexes(guard).iter().filter(|(_, index)| index.exists_at(snapshot)) {
            if let Some(key) = index.key_of(row, &mut self.key)
                && !index.tree().contains(guard, key, rid)
            {
                return Some(Wrong::Missing(index.definition().name.clone()));
            }
        }
        None
    }

    /// All entries of a table's indexes, and from there to its records.
    fn entries(&mut self, table: &Table, participant: &Participant) -> Result<(), Stopped> {
        let count = {
            let guard = participant.pin_without_snapshot();
            table.content(&guard).map_or(0, |content| content.indexes(&guard).len())
        };
        for number in 0..count {
            let mut after: Option<(Vec<u8>, Rid)> = None;
            while self.some_entries(table, number, participant, &mut after) {
                self.breathe(participant)?;
            }
        }
        Ok(())
    }

    /// The entries of an index behind `after`; returns whether there may be more.
    fn some_entries(
        &mut self,
        table: &Table,
        number: usize,
        participant: &Participant,
        after: &mut Option<(Vec<u8>, Rid)>,
    ) -> bool {
        let guard = participant.pin_without_snapshot();
        let content = table.content(&guard);
        let found = content.and_then(|content| Some((content, content.indexes(&guard).get(number)?)));
        let Some((content, index)) = found else { return false };
        let from = after.take();
        let from = from.as_ref().map(|(key, rid)| (key.as_slice(), *rid));
        let (mut buffer, mut looked_at) = (std::mem::take(&mut self.buffer), 0);
        let flow = index.tree().pairs_after(&guard, from, &mut buffer, |key, rid| {
            looked_at += 1;
            self.counts.entries += 1;
            if content.has_nothing(&guard, rid) {
                if self.may_lead_nowhere(content, rid) {
                    self.counts.left_over += 1;
                } else {
                    self.suspects.push(Place::Entry(table.fid(), number, key.to_vec(), rid));
                }
            }
            if looked_at < AT_ONCE {
                return ControlFlow::Continue(());
            }
            *after = Some((key.to_vec(), rid));
            ControlFlow::Break(())
        });
        self.buffer = buffer;
        flow.is_break()
    }

    /// Whether an index entry of a record that is not there may be left over.
    fn may_lead_nowhere(&self, content: &Content, rid: Rid) -> bool {
        self.ground.executes_again || content.may_have_leftovers() && rid < content.rid_limit()
    }

    /// What is still wrong in a place.
    fn place(&mut self, place: &Place, participant: &Participant) -> Option<(String, Wrong)> {
        let (guard, snapshot) = participant.pin(|| self.ground.core.snapshots.current());
        let (Place::Record(fid, rid) | Place::Entry(fid, _, _, rid)) = place;
        let core = Arc::clone(&self.ground.core);
        let table = core.catalog.get(&guard, *fid)?;
        let content = table.content(&guard)?;
        let wrong = match place {
            Place::Record(..) => self.record(&guard, snapshot, content, *rid)?,
            Place::Entry(_, number, key, _) => {
                let index = content.indexes(&guard).get(*number)?;
                let lost = content.has_nothing(&guard, *rid) && !self.may_lead_nowhere(content, *rid);
                let is_there = lost && index.tree().contains(&guard, key, *rid);
                is_there.then(|| Wrong::Nowhere(index.definition().name.clone()))?
            }
        };
        Some((table.name().to_owned(), wrong))
    }

    /// What has looked wrong is looked at again, and told if it always does.
    fn again(&mut self, participant: &Participant) -> Result<(), Stopped> {
        let mut suspects = std::mem::take(&mut self.suspects);
        for pause in AGAIN {
            if suspects.is_empty() {
                return Ok(());
            }
            self.shared.rest(Duration::from_millis(pause));
            let mut left = Vec::new();
            for place in suspects {
                if self.place(&place, participant).is_some() {
                    left.push(place);
                }
                participant.collect();
                self.keep_pace()?;
            }
            suspects = left;
        }
        for place in suspects {
            if let Some((table, wrong)) = self.place(&place, participant) {
                self.report(place, &table, wrong);
            }
        }
        Ok(())
    }

    fn report(&mut self, place: Place, table: &str, wrong: Wrong) {
        let (Place::Record(_, rid) | Place::Entry(_, _, _, rid)) = place;
        let (index, what) = match wrong {
            // That is for the log to say, and may pass.
            Wrong::Damage(damage @ Damage::Unreadable { address, .. }) if !self.ground.source.is_damaged(address) => {
                return self.unreadable(format!("table {table:?}, record {}: {damage}", rid.0));
            }
            Wrong::Damage(Damage::Unreadable { address, .. }) => {
                let why = "where that is damaged: another node may have it, and a start of this one ends there";
                (None, format!("its row is only in the log, at {address}, {why}"))
            }
            Wrong::Damage(damage) => (None, damage.to_string()),
            Wrong::Missing(index) => (Some(index.clone()), format!("its row has no entry in index {index:?}")),
            Wrong::Nowhere(index) => {
                (Some(index.clone()), format!("an entry of index {index:?} leads to it, and there is no such record"))
            }
        };
        if self.known.len() >= KNOWN || !self.known.insert(place) {
            return;
        }
        let shown = format!("table {table:?}, record {}: {what}", rid.0);
        let number = self.found(&shown);
        if number <= SHOWN as u64 {
            tracing::error!(table, record = rid.0, index, what, "the sweep has found damage");
        }
    }

    /// Counts damage, and puts the state in doubt; how much there is with this.
    fn found(&self, shown: &str) -> u64 {
        let mut status = lock(&self.shared.status);
        status.damage += 1;
        if status.found.len() < SHOWN {
            status.found.push(shown.to_owned());
        }
        let number = status.damage;
        drop(status);
        self.ground.proof.doubt(format_args!("the sweep has found damage: {shown}"));
        number
    }

    fn unreadable(&self, what: String) {
        tracing::warn!(what, "the sweep cannot look at a record");
        lock(&self.shared.status).unreadable = Some(what);
    }

    /// The blocks of the log that a restart would need.
    fn log(&mut self) -> Result<(), Stopped> {
        let (Some(log), Some(checkpointing)) = (self.ground.source.log().cloned(), self.ground.checkpointing.clone())
        else {
            return Ok(());
        };
        let mut damaged = Vec::new();
        let looked = self.blocks(&log, &checkpointing, &mut damaged);
        if let Some(needed) = checkpointing.log_needed() {
            damaged.retain(|part| part.end > needed);
        }
        self.damaged_log(damaged, &checkpointing);
        looked
    }

    /// Looks through the log, and adds what is no block to `damaged`.
    fn blocks(
        &mut self,
        log: &LogReader,
        checkpointing: &Checkpointing,
        damaged: &mut Vec<Range<Lsn>>,
    ) -> Result<(), Stopped> {
        let Some(mut here) = checkpointing.log_needed() else { return Ok(()) };
        let mut bytes = vec![0; LOG_PIECE];
        let mut need = BLOCK_HEADER;
        loop {
            let end = self.ground.core.snapshots.oldest_readable().min(log.filled());
            let have = (end.since(here.min(end)) as usize).min(bytes.len().max(need));
            if have < need {
                return Ok(());
            }
            bytes.resize(have.max(LOG_PIECE), 0);
            if let Err(cause) = log.read(here, &mut bytes[..have]) {
                match checkpointing.log_needed().filter(|needed| *needed > here) {
                    // It is not needed any more.
                    Some(needed) => here = needed,
                    None => {
                        self.unreadable(format!("the log at {here}: {cause}"));
                        return Ok(());
                    }
                }
                continue;
            }
            let mut at = 0;
            need = BLOCK_HEADER;
            while let Ok(header) = BlockHeader::peek(&bytes[at..have])
                && at + header.length as usize <= have
            {
                if Block::parse(&bytes[at..have], here).is_err() {
                    break;
                }
                at += header.length as usize;
                here = here.plus(u64::from(header.length));
            }
            self.counts.log_bytes += at as u64;
            if at == 0 {
                match BlockHeader::peek(&bytes[..have]) {
                    Ok(header) if header.lsn == here && header.length as usize > have => {
                        need = header.length as usize;
                    }
                    _ => {
                        let needed = checkpointing.log_needed().filter(|needed| *needed > here);
                        let next = match needed {
                            // It is not needed any more.
                            Some(needed) => needed,
                            None => self.next_block(log, here.plus(BLOCK_ALIGN as u64), end)?,
                        };
                        if needed.is_none() {
                            damaged.push(here..next);
                        }
                        here = next;
                    }
                }
            }
            self.keep_pace()?;
        }
    }

    /// Where the next block begins behind a damaged one, or `end`.
    fn next_block(&mut self, log: &LogReader, mut from: Lsn, end: Lsn) -> Result<Lsn, Stopped> {
        while from < end {
            let until = end.min(from.plus(LOG_PIECE as u64));
            match log.find_block(from..until, end) {
                Ok(None) => from = until,
                Ok(Some(block)) => return Ok(block),
                Err(_) => return Ok(end),
            }
            self.keep_pace()?;
        }
        Ok(end)
    }

    /// Tells of damage in the log, once of each place, and asks for the checkpoint with which that
    /// part of the log is not needed any more.
    fn damaged_log(&mut self, damaged: Vec<Range<Lsn>>, checkpointing: &Checkpointing) {
        let is_new = |part: &&Range<Lsn>| self.damaged.iter().all(|known| known.start != part.start);
        let begins = !damaged.is_empty() && checkpointing.ask();
        for part in damaged.iter().filter(is_new).take(SHOWN) {
            let leads_to = match begins {
                true => "a checkpoint begins, with which that part is not needed any more",
                false => "run freshet checkpoint, with which that part is not needed any more",
            };
            tracing::error!(
                lsn = part.start.0,
                end = part.end.0,
                "the sweep has found damage in the log, not in memory: do not stop this node; {leads_to}; then look \
                 at the disk"
            );
        }
        if damaged.is_empty() && !self.damaged.is_empty() {
            tracing::info!("no part of the log that a restart would need is damaged any more");
        }
        self.ground.source.damaged(damaged.clone());
        lock(&self.shared.status).log_damage = damaged.iter().take(SHOWN).cloned().collect();
        self.damaged = damaged;
    }
}
