//! Loggers that write the blocks of their streams to files: pipelined, and by epochs.

use crate::explore::{Model, Step};

/// At most this many blocks.
const MOST: usize = 4;
const NOTHING: u8 = u8::MAX;
/// Among the loggers: the thread that ends epochs.
const ENDER: usize = 2;

/// When a block is durable, and when that is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `GroupCommitKind::Pipelined`.
    Pipelined,
    /// `GroupCommitKind::Epoch`.
    Epoch,
}

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mutant {
    /// The bound is published when the LSN is known.
    BoundAfterReserve,
    /// A thread that looks how far the log is filled reads the bounds before `reserved`.
    BoundsBeforeReserved,
    /// The bound is cleared before the block is there.
    ClearBeforeFill,
    /// The log is as far as its foremost stream.
    GreatestOfStreams,
    /// A stream whose logger has taken everything does not hold the others back.
    AtWorkIsIdle,
    /// Told after the write, before the sync.
    AnnounceBeforeSync,
    /// Noted after the write, before the sync.
    NoteBeforeSync,
    /// The anchor is how far this stream is, whatever the others are.
    OwnBoundForAnchor,
    /// After a crash, what lies behind a gap is kept.
    GapsSkipped,
    /// After a crash, the log may end within a transaction.
    HalfTransactions,
    /// After a crash, what lies above the end stays in the files.
    NothingIsCut,
    /// After a crash of the process, what the next one reads is taken for durable as it is.
    FoundNotSynced,
    /// After a crash, what is found is synced and not written again, although the last sync may
    /// have failed.
    FoundNotRewritten,
    /// An epoch's results are released before its end is durable on record.
    EpochBeforeItsSync,
    /// A close takes what is reserved for flushed.
    CloseToReserved,
}

/// The rules, and how much there is to do.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    /// How it is committed.
    pub kind: Kind,
    /// How many blocks.
    pub blocks: u8,
    /// Divided by pages: any block in any stream, and transactions of two.
    pub pages: bool,
    /// After how many crashes it is over.
    pub lives: u8,
    /// Whether the log is closed at some time.
    pub close: bool,
    /// Every access to memory is a step of its own. Else those that only prepare a step are one
    /// with it.
    pub fine: bool,
    /// What is broken.
    pub mutant: Option<Mutant>,
}

/// A block: its LSN, its stream, the life in which it was written, and whether its transaction
/// continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Block {
    lsn: u8,
    stream: u8,
    life: u8,
    continued: bool,
}

type Blocks = [Option<Block>; MOST];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Worker {
    Idle,
    Checked,
    Loaded(u8),
    Bounded,
    /// By the mutant: reserved, without a bound.
    Taken(u8, u8),
    Reserved(u8, u8),
    /// By the mutant: the bound was cleared.
    Cleared(u8, u8),
    Filled,
}

/// What a logger is about to do; the thread that ends epochs is the third.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    Idle,
    /// So far the least of what was read, and which bound comes next.
    Looking(u8, u8),
    Looked(u8),
    Dealt(u8),
    Written(u8),
    Synced(u8),
    Persist(u8),
    WriteEpoch(u8),
    SyncEpoch(u8),
    Announce(u8),
    Note,
    /// The thread of epochs has read `reserved`.
    Ending(u8),
    Exited,
}

impl Phase {
    /// Whether what comes next need not be a step of its own: nobody else sees that it has come so
    /// far, or the sooner it continues the worse.
    fn prepares(self, logger: usize) -> bool {
        match self {
            Self::Looking(..) | Self::Looked(_) | Self::Ending(_) | Self::WriteEpoch(_) | Self::Announce(_) => true,
            // The lock is free: the epoch was just ended.
            Self::Persist(_) => logger == ENDER,
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Logger {
    phase: Phase,
    done: u8,
    wrote: bool,
}

/// `runs::Share`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Share {
    taken: u8,
    at_work: u8,
    durable: u8,
    /// One bit for each LSN.
    anchors: u8,
    anchor: u8,
}

/// `segments::Note`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Note {
    position: u8,
    bound: u8,
    anchor: u8,
    anchor_position: u8,
}

/// A stream on its medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct File {
    /// What lay there when this life began.
    before: Blocks,
    now: Blocks,
    written: u8,
    synced: u8,
    /// That of the beginning, and the newest: a crash keeps either.
    notes: [Note; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Epochs {
    /// Who has the lock.
    holder: u8,
    ended: u8,
    /// One bit for each LSN.
    finished: u8,
    durable: u8,
    persistent: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Close {
    Open,
    Closing,
    /// The file says so, not durably yet.
    Writing(u8),
    Closed,
}

/// What matters after a crash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Left {
    life: u8,
    /// Every block that was reserved, by its LSN.
    truth: Blocks,
    files: [File; 2],
    /// The file `pepoch`: what is durable, and what was written.
    epoch: [u8; 2],
    announced: u8,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    left: Left,
    begin: u8,
    reserved: u8,
    /// One bit for each LSN.
    filled: u8,
    workers: [Worker; 2],
    bounds: [u8; 2],
    walked: u8,
    loggers: [Logger; 3],
    shares: [Share; 2],
    epochs: Epochs,
    close: Close,
}

/// Where in its stream the first block at or above `lsn` lies.
fn position(truth: &Blocks, stream: usize, lsn: u8) -> u8 {
    let below = truth.iter().flatten().filter(|block| usize::from(block.stream) == stream && block.lsn < lsn);
    below.count() as u8
}

fn highest(bits: u8, limit: u8) -> Option<u8> {
    (0..=limit.min(7)).rev().find(|bit| bits & 1 << bit != 0)
}

impl State {
    /// The same with both workers' and both streams' names exchanged: of two such states one is
    /// enough. Not between fine steps, where one bound is read before the other.
    fn swapped(&self) -> Self {
        let swap = |blocks: &mut Blocks| {
            for block in blocks.iter_mut().flatten() {
                block.stream = 1 - block.stream;
            }
        };
        let mut other = self.clone();
        swap(&mut other.left.truth);
        for file in &mut other.left.files {
            swap(&mut file.before);
            swap(&mut file.now);
        }
        other.left.files.swap(0, 1);
        other.workers.swap(0, 1);
        other.bounds.swap(0, 1);
        other.loggers.swap(0, 1);
        other.shares.swap(0, 1);
        if usize::from(other.epochs.holder) < ENDER {
            other.epochs.holder = 1 - other.epochs.holder;
        }
        other
    }
}

impl Files {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// A life that begins at `begin`.
    fn life(&self, left: Left, begin: u8) -> State {
        let logger = Logger { phase: Phase::Idle, done: begin, wrote: false };
        let share = Share { taken: begin, at_work: NOTHING, durable: begin, anchors: 0, anchor: begin };
        State {
            left,
            begin,
            reserved: begin,
            filled: 0,
            workers: [Worker::Idle; 2],
            bounds: [NOTHING; 2],
            walked: begin,
            loggers: [logger; 3],
            shares: [share; 2],
            epochs: Epochs { holder: NOTHING, ended: begin, finished: 0, durable: begin, persistent: begin },
            close: Close::Open,
        }
    }

    fn worker(&self, state: &State, worker: usize, into: &mut Vec<(Step, State)>) {
        let mut go = |step: &'static str, change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            change(&mut next);
            into.push(((step, worker), next));
        };
        let load = |next: &mut State| next.workers[worker] = Worker::Loaded(next.reserved);
        match state.workers[worker] {
            Worker::Idle if state.reserved == self.blocks => {}
            Worker::Idle if self.close => {
                if state.close == Close::Open {
                    go("check", &|next| next.workers[worker] = Worker::Checked);
                }
            }
            Worker::Idle | Worker::Checked if self.is(Mutant::BoundAfterReserve) => {
                self.reserve(state, worker, &mut go);
            }
            Worker::Idle | Worker::Checked => go("load", &load),
            Worker::Loaded(bound) => go("publish", &|next| {
                next.bounds[worker] = bound;
                next.workers[worker] = Worker::Bounded;
            }),
            Worker::Bounded => self.reserve(state, worker, &mut go),
            Worker::Taken(lsn, length) => go("publish", &|next| {
                next.bounds[worker] = lsn;
                next.workers[worker] = Worker::Reserved(lsn, length);
            }),
            Worker::Reserved(lsn, length) if self.is(Mutant::ClearBeforeFill) => go("clear", &|next| {
                next.bounds[worker] = NOTHING;
                next.workers[worker] = Worker::Cleared(lsn, length);
            }),
            Worker::Reserved(lsn, length) => go("fill", &|next| {
                next.filled |= ((1 << length) - 1) << lsn;
                next.workers[worker] = Worker::Filled;
            }),
            Worker::Cleared(lsn, length) => go("fill", &|next| {
                next.filled |= ((1 << length) - 1) << lsn;
                next.workers[worker] = Worker::Idle;
            }),
            Worker::Filled => go("clear", &|next| {
                next.bounds[worker] = NOTHING;
                next.workers[worker] = Worker::Idle;
            }),
        }
    }

    fn reserve(&self, state: &State, worker: usize, go: &mut impl FnMut(&'static str, &dyn Fn(&mut State))) {
        let (lsn, life) = (state.reserved, state.left.life);
        let mut take = |streams: &[u8]| {
            if usize::from(lsn) + streams.len() > usize::from(self.blocks) {
                return;
            }
            go("reserve", &|next| {
                for (number, stream) in streams.iter().enumerate() {
                    let block =
                        Block { lsn: lsn + number as u8, stream: *stream, life, continued: number + 1 < streams.len() };
                    next.left.truth[usize::from(block.lsn)] = Some(block);
                }
                next.reserved += streams.len() as u8;
                let length = streams.len() as u8;
                next.workers[worker] = match self.is(Mutant::BoundAfterReserve) {
                    true => Worker::Taken(lsn, length),
                    false => Worker::Reserved(lsn, length),
                };
            });
        };
        if self.pages {
            [&[0][..], &[1], &[0, 1], &[1, 0]].into_iter().for_each(take);
        } else {
            take(&[worker as u8]);
        }
    }

    /// `Dealt::least`.
    fn least(&self, state: &State) -> u8 {
        let reached = |stream: usize| {
            let share = &state.shares[stream];
            let waiting = (share.taken..state.walked)
                .any(|lsn| state.left.truth[usize::from(lsn)].is_some_and(|block| usize::from(block.stream) == stream));
            let at_work = share.at_work != NOTHING && !self.is(Mutant::AtWorkIsIdle);
            if at_work || waiting { share.durable } else { state.walked }
        };
        match self.is(Mutant::GreatestOfStreams) {
            true => reached(0).max(reached(1)),
            false => reached(0).min(reached(1)),
        }
    }

    fn logger(&self, state: &State, logger: usize, into: &mut Vec<(Step, State)>) -> Result<(), String> {
        let this = &state.loggers[logger];
        if logger == ENDER && matches!(this.phase, Phase::Idle | Phase::Ending(_)) {
            self.end_epoch(state, into);
            return Ok(());
        }
        let mut next = state.clone();
        let phase;
        let step = match this.phase {
            Phase::Idle if self.is(Mutant::BoundsBeforeReserved) => {
                phase = Phase::Looking(NOTHING, 0);
                "look"
            }
            Phase::Idle => {
                phase = Phase::Looking(state.reserved, 0);
                "look"
            }
            Phase::Looking(least, at) if usize::from(at) < state.bounds.len() => {
                phase = Phase::Looking(least.min(state.bounds[usize::from(at)]), at + 1);
                "look at a bound"
            }
            Phase::Looking(least, _) => {
                // By the mutant, `reserved` comes last.
                let least = if self.is(Mutant::BoundsBeforeReserved) { least.min(state.reserved) } else { least };
                // An answer below an earlier one still holds.
                phase = Phase::Looked(least.max(this.done));
                "look at what was found"
            }
            Phase::Looked(filled) if filled > this.done => {
                for lsn in state.walked..filled {
                    if state.filled & 1 << lsn == 0 {
                        return Err(format!("block {lsn} was dealt out and was not filled"));
                    }
                }
                next.walked = state.walked.max(filled);
                next.shares[logger].taken = next.walked;
                next.shares[logger].at_work = next.walked;
                phase = Phase::Dealt(filled);
                "deal"
            }
            Phase::Looked(_) => {
                let over = state.close != Close::Open && state.reserved == this.done;
                phase = if over { Phase::Exited } else { Phase::Idle };
                if over { "exit" } else { "find nothing" }
            }
            Phase::Dealt(filled) => {
                let file = &mut next.left.files[logger];
                let mine =
                    state.left.truth.iter().flatten().filter(|block| {
                        usize::from(block.stream) == logger && block.lsn < state.shares[logger].at_work
                    });
                next.loggers[logger].wrote = false;
                for (place, block) in mine.enumerate().skip(usize::from(file.written)) {
                    file.now[place] = Some(*block);
                    file.written += 1;
                    next.loggers[logger].wrote = true;
                }
                phase = Phase::Written(filled);
                "write"
            }
            Phase::Written(filled) => {
                if self.is(Mutant::NoteBeforeSync) && this.wrote {
                    let written = next.left.files[logger].written;
                    let note = &mut next.left.files[logger].notes[1];
                    (note.position, note.bound) = (written, state.shares[logger].at_work);
                    into.push((("note", logger), next.clone()));
                }
                if !self.is(Mutant::AnnounceBeforeSync) {
                    next.left.files[logger].synced = next.left.files[logger].written;
                }
                phase = Phase::Synced(filled);
                "sync"
            }
            Phase::Synced(filled) => {
                next.loggers[logger].done = filled;
                let to = state.shares[logger].at_work;
                next.shares[logger].at_work = NOTHING;
                next.shares[logger].durable = to;
                let all = self.least(&next);
                let share = &mut next.shares[logger];
                share.anchors |= 1 << to;
                let reached = if self.is(Mutant::OwnBoundForAnchor) { to } else { all };
                if let Some(anchor) = highest(share.anchors, reached) {
                    share.anchor = share.anchor.max(anchor);
                    share.anchors &= !((2 << anchor) - 1);
                }
                phase = match self.kind {
                    Kind::Pipelined => Phase::Announce(all),
                    Kind::Epoch => Phase::Persist(all),
                };
                "announce"
            }
            Phase::Persist(durable) => {
                if state.epochs.holder != NOTHING {
                    return Ok(());
                }
                let epochs = &mut next.epochs;
                epochs.durable = epochs.durable.max(durable);
                phase = match highest(epochs.finished, epochs.durable) {
                    Some(reached) => {
                        epochs.finished &= !((2 << reached) - 1);
                        epochs.holder = logger as u8;
                        Phase::WriteEpoch(reached)
                    }
                    None => Phase::Announce(epochs.persistent),
                };
                "persist"
            }
            Phase::WriteEpoch(reached) => {
                next.left.epoch[1] = reached;
                if self.is(Mutant::EpochBeforeItsSync) {
                    next.left.announced = next.left.announced.max(reached);
                }
                phase = Phase::SyncEpoch(reached);
                "write epoch"
            }
            Phase::SyncEpoch(reached) => {
                next.left.epoch[0] = reached;
                next.epochs.persistent = reached;
                next.epochs.holder = NOTHING;
                phase = Phase::Announce(reached);
                "sync epoch"
            }
            Phase::Announce(to) => {
                next.left.announced = next.left.announced.max(to);
                phase = if logger < 2 { Phase::Note } else { Phase::Idle };
                "announce"
            }
            Phase::Note => {
                next.loggers[logger].phase = Phase::Idle;
                if !this.wrote {
                    // Only when much has come since the last note.
                    into.push((("note nothing", logger), next.clone()));
                }
                let share = &state.shares[logger];
                let file = &mut next.left.files[logger];
                let anchor_position = position(&state.left.truth, logger, share.anchor);
                let noted = file.notes[1];
                let anchor = (share.anchor, anchor_position).max((noted.anchor, noted.anchor_position));
                file.notes[1] =
                    Note { position: file.synced, bound: share.durable, anchor: anchor.0, anchor_position: anchor.1 };
                phase = Phase::Idle;
                "note"
            }
            Phase::Ending(_) | Phase::Exited => return Ok(()),
        };
        next.loggers[logger].phase = phase;
        into.push(((step, logger), next));
        Ok(())
    }

    /// The thread that ends epochs. It persists as a logger does.
    fn end_epoch(&self, state: &State, into: &mut Vec<(Step, State)>) {
        let mut next = state.clone();
        match state.loggers[ENDER].phase {
            Phase::Ending(reserved) if state.epochs.holder == NOTHING => {
                next.epochs.finished |= 1 << reserved;
                next.epochs.ended = reserved;
                next.loggers[ENDER].phase = Phase::Persist(0);
                into.push((("end epoch", ENDER), next));
            }
            // In coarse steps, only when it need not wait for the lock.
            Phase::Idle if !self.fine && state.epochs.holder != NOTHING => {}
            Phase::Idle if state.close == Close::Open && state.reserved > state.epochs.ended => {
                next.loggers[ENDER].phase = Phase::Ending(state.reserved);
                into.push((("look where the epoch ends", ENDER), next));
            }
            _ => {}
        }
    }

    fn closing(&self, state: &State, into: &mut Vec<(Step, State)>) {
        let mut next = state.clone();
        let over = state.loggers[..2].iter().all(|logger| logger.phase == Phase::Exited);
        let over = over && state.loggers[2].phase == Phase::Idle;
        let end = match self.is(Mutant::CloseToReserved) {
            true => state.reserved,
            false => state.epochs.durable,
        };
        let step = match state.close {
            Close::Open => {
                next.close = Close::Closing;
                "close"
            }
            Close::Closing if over && self.kind == Kind::Epoch && end > state.epochs.persistent => {
                next.left.epoch[1] = end;
                next.close = Close::Writing(end);
                "close: write epoch"
            }
            Close::Writing(end) => {
                next.left.epoch[0] = end;
                next.left.announced = next.left.announced.max(end);
                next.close = Close::Closed;
                "close: sync epoch"
            }
            Close::Closing if over => {
                if self.is(Mutant::CloseToReserved) {
                    next.left.announced = state.reserved;
                }
                next.close = Close::Closed;
                "close: end"
            }
            Close::Closing | Close::Closed => return,
        };
        if next.close == Close::Closed {
            for file in &mut next.left.files {
                file.notes[0] = file.notes[1];
            }
        }
        into.push(((step, 0), next));
    }

    /// What is found when this many blocks of each stream, these notes, and this epoch are left;
    /// where the log ends. `sync_failed` says that the process has ended because of that.
    fn recover(
        &self,
        left: &Left,
        kept: [u8; 2],
        notes: [Note; 2],
        committed: u8,
        sync_failed: bool,
    ) -> Result<State, String> {
        let mut content = [0, 1].map(|stream: usize| {
            let file = &left.files[stream];
            std::array::from_fn(|at| if at < usize::from(kept[stream]) { file.now[at] } else { file.before[at] })
        });
        let content_at =
            |content: &[Blocks; 2], stream: usize, at: u8| content[stream].get(usize::from(at)).copied().flatten();
        for stream in 0..2 {
            if notes[stream].position > kept[stream] {
                return Err(format!("damage: stream {stream} is shorter than it was noted to be"));
            }
        }
        // Everything below was durable in every stream.
        let mut at = notes[0].anchor.max(notes[1].anchor);
        let mut end = at;
        let mut cursors = notes.map(|note| note.anchor_position);
        let skip = |cursors: &mut [u8; 2], below: u8| {
            for (stream, cursor) in cursors.iter_mut().enumerate() {
                while content_at(&content, stream, *cursor).is_some_and(|block| block.lsn < below) {
                    *cursor += 1;
                }
            }
        };
        skip(&mut cursors, at);
        loop {
            if self.kind == Kind::Epoch && at >= committed {
                break;
            }
            let blocks = [0, 1].map(|stream| content_at(&content, stream, cursors[stream]));
            let Some(block) = blocks.into_iter().flatten().find(|block| block.lsn == at) else {
                match blocks.into_iter().flatten().map(|block| block.lsn).filter(|lsn| *lsn > at).min() {
                    Some(behind) if self.is(Mutant::GapsSkipped) => at = behind,
                    _ => break,
                }
                continue;
            };
            if block.life < left.life && left.truth[usize::from(at)] != Some(block) {
                return Err(format!("block {at} that is found is of an earlier life"));
            }
            cursors[usize::from(block.stream)] += 1;
            at += 1;
            if !block.continued || self.is(Mutant::HalfTransactions) {
                end = at;
            }
        }
        let watermark = match self.kind {
            Kind::Pipelined => notes[0].bound.min(notes[1].bound),
            Kind::Epoch => committed,
        };
        if end < watermark {
            return Err(format!("damage: block {end} is missing, and everything up to {watermark} was durable"));
        }
        if end < left.announced {
            return Err(format!("block {} was announced, and the log ends at {end}", left.announced - 1));
        }
        for lsn in 0..end {
            let block = left.truth[usize::from(lsn)].expect("what was written was reserved");
            let stream = usize::from(block.stream);
            if content_at(&content, stream, position(&left.truth, stream, lsn)) != Some(block) {
                return Err(format!("block {lsn} is missing below the end, {end}"));
            }
            if block.continued && lsn + 1 == end {
                return Err(format!("half a transaction at the end, {end}"));
            }
        }
        // It continues from here.
        let mut truth = left.truth;
        truth[usize::from(end)..].fill(None);
        let mut files = left.files;
        for (stream, file) in files.iter_mut().enumerate() {
            let place = position(&truth, stream, end);
            if !self.is(Mutant::NothingIsCut) {
                content[stream][usize::from(place)..].fill(None);
            }
            let noted = notes[stream];
            let anchor = (noted.anchor, noted.anchor_position).min((end, place));
            let note = Note {
                position: noted.position.min(place),
                bound: noted.bound.min(end),
                anchor: anchor.0,
                anchor_position: anchor.1,
            };
            // What is found is written again and synced before anybody is told. Without that a loss
            // of power takes it: what only the system's cache has, and what a failed sync has left
            // there as clean.
            let lost = self.is(Mutant::FoundNotSynced) || (self.is(Mutant::FoundNotRewritten) && sync_failed);
            let synced = if lost { file.synced.min(place) } else { place };
            let mut before = content[stream];
            let unsure = usize::from(synced)..usize::from(place);
            before[unsure.clone()].copy_from_slice(&file.before[unsure]);
            *file = File { before, now: content[stream], written: place, synced, notes: [note; 2] };
            file.now[usize::from(place)..].fill(None);
        }
        let next = Left { life: left.life + 1, truth, files, epoch: [end; 2], announced: end };
        Ok(self.life(next, end))
    }
}

impl Model for Files {
    type State = State;
    type Left = Left;

    fn start(&self) -> State {
        let note = Note { position: 0, bound: 0, anchor: 0, anchor_position: 0 };
        let file = File { before: [None; MOST], now: [None; MOST], written: 0, synced: 0, notes: [note; 2] };
        let left = Left { life: 0, truth: [None; MOST], files: [file; 2], epoch: [0; 2], announced: 0 };
        self.life(left, 0)
    }

    fn steps(&self, state: &State, into: &mut Vec<(Step, State)>) -> Result<(), String> {
        let mut found = Vec::new();
        for number in 0..2 {
            self.worker(state, number, &mut found);
            for (step, mut next) in found.drain(..) {
                while !self.fine && matches!(next.workers[number], Worker::Loaded(_) | Worker::Filled) {
                    self.worker(&next, number, into);
                    next = into.pop().expect("it goes on").1;
                }
                into.push((step, next));
            }
        }
        for number in 0..2 + usize::from(self.kind == Kind::Epoch) {
            self.logger(state, number, &mut found)?;
            for (step, mut next) in found.drain(..) {
                while !self.fine && next.loggers[number].phase.prepares(number) {
                    self.logger(&next, number, into)?;
                    next = into.pop().expect("it goes on").1;
                }
                into.push((step, next));
            }
        }
        if self.close {
            self.closing(state, into);
        }
        if !self.fine {
            for (_, next) in into {
                let other = next.swapped();
                if other < *next {
                    *next = other;
                }
            }
        }
        Ok(())
    }

    fn left(&self, state: &State) -> Left {
        state.left.clone()
    }

    fn crash(&self, left: &Left, into: &mut Vec<(Step, State)>) -> Result<(), String> {
        let [first, second] = left.files;
        for first_kept in first.synced..=first.written {
            for second_kept in second.synced..=second.written {
                for choice in 0..16 {
                    let notes = [first.notes[choice & 1], second.notes[choice >> 1 & 1]];
                    let committed = left.epoch[choice >> 2 & 1];
                    let sync_failed = choice >> 3 == 1;
                    if sync_failed && !self.is(Mutant::FoundNotRewritten) {
                        // What is found is treated alike, however the process has ended.
                        break;
                    }
                    let found = self.recover(left, [first_kept, second_kept], notes, committed, sync_failed)?;
                    if found.left.life < self.lives {
                        into.push((("crash", choice), found));
                    }
                }
            }
        }
        Ok(())
    }
}
