//! Passive group commit: blocks lie in persistent memory, and are durable after a fence that comes
//! later.

use crate::explore::{Model, Step};

/// At most this many blocks.
const MOST: usize = 4;
const NOTHING: u8 = u8::MAX;

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mutant {
    /// The minimum is over the workers that are at work: one that has gone away after its block
    /// does not count.
    StragglersIgnored,
    /// A thread that looks reads the slots first, then the bounds.
    SlotsBeforeBounds,
    /// A worker says that its block is not fenced after it has cleared its bound.
    OpenAfterClear,
    /// A forced fence cleans slots without a barrier.
    CleanWithoutBarrier,
    /// A forced fence cleans whatever a slot says by then.
    CleanWhateverIsThere,
    /// A ring is gone on in as it was found after a crash.
    RingNotCleared,
}

/// The rules, and how much there is to do.
#[derive(Clone, Copy, Debug)]
pub struct Passive {
    /// How many blocks.
    pub blocks: u8,
    /// After how many crashes it is over.
    pub lives: u8,
    /// Stragglers are force-fenced by signals: handlers run whenever they like.
    pub signals: bool,
    /// How many look how far the log is durable at once, at most two.
    pub lookers: usize,
    /// Every access to memory is a step of its own. Else bounds are read at once, and slots are.
    pub fine: bool,
    /// What is broken.
    pub mutant: Option<Mutant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    Loaded(u8),
    Bounded,
    Reserved(u8),
    /// Its last block is fenced, its slot still says it is not.
    Fenced(u8),
    Settled(u8),
    Copied(u8),
    Open,
    /// By the mutant: the bound was cleared.
    Cleared(u8),
}

/// Somebody who wants to know how far the log is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Looker {
    Idle,
    /// The least so far, and which bound comes next.
    Bounds(u8, u8),
    /// The log is filled up to here.
    Filled(u8),
    /// By slot: what was dirty before the barrier, and which slot comes next.
    Dirty(u8, [u8; 2], u8),
    /// And which slot is cleaned next.
    Clean(u8, [u8; 2], u8),
    /// What the slots let it be so far, and which slot comes next.
    Slots(u8, u8),
    Announce(u8),
}

/// What matters after a crash. Blocks are written by life, plus one; zero is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    life: u8,
    begin: u8,
    reserved: u8,
    /// For each LSN, the life of its block that is durable.
    fenced: [u8; MOST],
    /// And that was copied last.
    copied: [u8; MOST],
    announced: u8,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    left: Left,
    workers: [Worker; 2],
    bounds: [u8; 2],
    slots: [u8; 2],
    /// The last block that each worker has copied, and may not have fenced.
    held: [u8; 2],
    lookers: [Looker; 2],
}

impl Looker {
    /// Whether what comes next need not be a step of its own.
    fn prepares(self) -> bool {
        match self {
            Self::Bounds(..) | Self::Slots(..) | Self::Announce(_) => true,
            Self::Dirty(_, _, at) | Self::Clean(_, _, at) => at % 2 == 1,
            Self::Idle | Self::Filled(_) => false,
        }
    }
}

impl Passive {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn life(&self, left: Left) -> State {
        State {
            left,
            workers: [Worker::Idle; 2],
            bounds: [NOTHING; 2],
            slots: [0; 2],
            held: [NOTHING; 2],
            lookers: [Looker::Idle; 2],
        }
    }

    fn worker(&self, state: &State, number: usize) -> Option<(&'static str, State)> {
        let mut next = state.clone();
        let (worker, left) = (&mut next.workers[number], &mut next.left);
        let step = match *worker {
            Worker::Idle if left.reserved == self.blocks => return None,
            Worker::Idle => {
                *worker = Worker::Loaded(left.reserved);
                "load"
            }
            Worker::Loaded(bound) => {
                next.bounds[number] = bound;
                *worker = Worker::Bounded;
                "publish"
            }
            Worker::Bounded if left.reserved == self.blocks => return None,
            Worker::Bounded => {
                *worker = Worker::Reserved(left.reserved);
                left.reserved += 1;
                "reserve"
            }
            Worker::Reserved(lsn) if state.slots[number] != 0 => {
                fence(&mut next, number);
                next.workers[number] = Worker::Fenced(lsn);
                "settle: fence"
            }
            Worker::Fenced(lsn) => {
                next.slots[number] = 0;
                *worker = Worker::Settled(lsn);
                "settle: clean"
            }
            Worker::Reserved(lsn) | Worker::Settled(lsn) => {
                left.copied[usize::from(lsn)] = left.life + 1;
                next.held[number] = lsn;
                *worker = Worker::Copied(lsn);
                "copy"
            }
            Worker::Copied(lsn) if self.is(Mutant::OpenAfterClear) => {
                next.bounds[number] = NOTHING;
                *worker = Worker::Cleared(lsn);
                "clear"
            }
            Worker::Copied(lsn) => {
                next.slots[number] = lsn + 1;
                *worker = Worker::Open;
                "leave open"
            }
            Worker::Cleared(lsn) => {
                next.slots[number] = lsn + 1;
                *worker = Worker::Idle;
                "leave open"
            }
            Worker::Open => {
                next.bounds[number] = NOTHING;
                *worker = Worker::Idle;
                "clear"
            }
        };
        Some((step, next))
    }

    fn looker(&self, state: &State, number: usize, into: &mut Vec<(Step, State)>) {
        let mut go = |step: &'static str, looker: Looker, change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            next.lookers[number] = looker;
            change(&mut next);
            into.push(((step, number), next));
        };
        let nothing = |_: &mut State| {};
        let slots_first = self.is(Mutant::SlotsBeforeBounds);
        match state.lookers[number] {
            Looker::Idle if slots_first => go("look", Looker::Slots(state.left.reserved, 0), &nothing),
            Looker::Idle => go("look", Looker::Bounds(state.left.reserved, 0), &nothing),
            Looker::Bounds(least, at) if at < 2 => {
                go("look at a bound", Looker::Bounds(least.min(state.bounds[usize::from(at)]), at + 1), &nothing);
            }
            Looker::Bounds(least, _) if slots_first => go("look", Looker::Announce(least), &nothing),
            Looker::Bounds(least, _) => go("look", Looker::Filled(least), &nothing),
            Looker::Filled(filled) => {
                go("look without a forced fence", Looker::Slots(filled, 0), &nothing);
                if !self.signals {
                    go("force_fence", Looker::Dirty(filled, [0; 2], 0), &nothing);
                }
            }
            Looker::Dirty(filled, mut dirty, at) if at < 2 => {
                dirty[usize::from(at)] = state.slots[usize::from(at)];
                go("force-fence: look at a slot", Looker::Dirty(filled, dirty, at + 1), &nothing);
            }
            Looker::Dirty(filled, dirty, _) => go("barrier", Looker::Clean(filled, dirty, 0), &|next| {
                if !self.is(Mutant::CleanWithoutBarrier) {
                    (0..2).for_each(|worker| fence(next, worker));
                }
            }),
            Looker::Clean(filled, dirty, at) if at < 2 => {
                let slot = usize::from(at);
                go("clean a slot", Looker::Clean(filled, dirty, at + 1), &|next| {
                    let same = next.slots[slot] == dirty[slot] || self.is(Mutant::CleanWhateverIsThere);
                    if dirty[slot] != 0 && same {
                        next.slots[slot] = 0;
                    }
                });
            }
            Looker::Clean(filled, ..) => go("look", Looker::Slots(filled, 0), &nothing),
            Looker::Slots(least, at) if at < 2 => {
                let slot = usize::from(at);
                let gone = self.is(Mutant::StragglersIgnored) && state.bounds[slot] == NOTHING;
                let here = match state.slots[slot] {
                    0 => NOTHING,
                    _ if gone => NOTHING,
                    dirty => dirty - 1,
                };
                go("look at a slot", Looker::Slots(least.min(here), at + 1), &nothing);
            }
            Looker::Slots(least, _) if slots_first => go("look", Looker::Bounds(least, 0), &nothing),
            Looker::Slots(least, _) => go("look", Looker::Announce(least), &nothing),
            Looker::Announce(to) => go("announce", Looker::Idle, &|next| {
                next.left.announced = next.left.announced.max(to);
            }),
        }
    }
}

/// What this worker has copied is durable now.
fn fence(state: &mut State, worker: usize) {
    let lsn = std::mem::replace(&mut state.held[worker], NOTHING);
    if lsn != NOTHING {
        state.left.fenced[usize::from(lsn)] = state.left.copied[usize::from(lsn)];
    }
}

impl Model for Passive {
    type State = State;
    type Left = Left;

    fn start(&self) -> State {
        self.life(Left { life: 0, begin: 0, reserved: 0, fenced: [0; MOST], copied: [0; MOST], announced: 0 })
    }

    fn steps(&self, state: &State, into: &mut Vec<(Step, State)>) -> Result<(), String> {
        let mut found = Vec::new();
        for number in 0..2 {
            if let Some((step, mut next)) = self.worker(state, number) {
                while !self.fine && matches!(next.workers[number], Worker::Loaded(_) | Worker::Fenced(_)) {
                    next = self.worker(&next, number).expect("it goes on").1;
                }
                into.push(((step, number), next));
            }
            if number < self.lookers {
                self.looker(state, number, &mut found);
                for (step, mut next) in found.drain(..) {
                    while !self.fine && next.lookers[number].prepares() {
                        self.looker(&next, number, into);
                        next = into.pop().expect("it goes on").1;
                    }
                    into.push((step, next));
                }
            }
            if self.signals && (state.held[number] != NOTHING || state.slots[number] != 0) {
                let mut next = state.clone();
                fence(&mut next, number);
                next.slots[number] = 0;
                into.push((("handler", number), next));
            }
        }
        Ok(())
    }

    fn left(&self, state: &State) -> Left {
        state.left.clone()
    }

    fn crash(&self, left: &Left, into: &mut Vec<(Step, State)>) -> Result<(), String> {
        // Each block that was not fenced is there or not.
        for lost in 0..1 << self.blocks {
            let mut ring = left.copied;
            for (lsn, block) in ring.iter_mut().enumerate() {
                if lost & 1 << lsn != 0 {
                    *block = left.fenced[lsn];
                }
            }
            let mut end = left.begin;
            while ring.get(usize::from(end)).is_some_and(|block| *block != 0) {
                if ring[usize::from(end)] != left.life + 1 {
                    return Err(format!("block {end} that is found is of an earlier life"));
                }
                end += 1;
            }
            if end < left.announced {
                return Err(format!("block {} was announced, and the log ends at {end}", left.announced - 1));
            }
            if left.life + 1 < self.lives {
                // What was found goes to the segments.
                let kept = if self.is(Mutant::RingNotCleared) { usize::from(end) } else { MOST };
                ring[..kept].fill(0);
                let next =
                    Left { life: left.life + 1, begin: end, reserved: end, fenced: ring, copied: ring, announced: end };
                into.push((("crash", lost), self.life(next)));
            }
        }
        Ok(())
    }
}
