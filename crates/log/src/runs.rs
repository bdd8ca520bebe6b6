//! Which parts of the buffer belong to which stream, and how far each stream is.
//!
//! Workers put their blocks where their LSNs say, whatever stream these belong to. The first of
//! the flushing threads walks over the headers of what was filled and deals the blocks out to their
//! streams; adjacent blocks of one stream make one run. So a worker does nothing for its stream but
//! name it in the header.
//!
//! How far all streams are is the minimum over them; a stream that has nothing to write does not
//! hold it back ("Passive group commit", distributed logging, section 4.1; `e_l` and the minimum
//! over loggers, SiloR, section 3.5).

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use freshet_base::Lsn;

use crate::{
    block::{BLOCK_HEADER, CONTINUED, STREAM_SHIFT},
    buffer::{Flusher, LogBuffer, Run},
    segments::Note,
    store::LogStore,
};

/// How far apart landmarks are entered, in bytes of a stream.
const LANDMARKS: u64 = 16 << 10;

#[derive(Debug)]
pub(crate) struct Runs(Mutex<Dealt>);

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
struct Dealt {
    /// Everything below is dealt out.
    walked: u64,
    /// The last end of a transaction at or below that.
    whole: u64,
    streams: Vec<Share>,
}

/// What one stream has got.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
struct Share {
    /// Not taken by its flusher yet.
    waiting: Vec<Run>,
    /// Its flusher is at work on what it took: all its blocks below an LSN.
    at_work: Option<Work>,
    /// All its blocks below are written; meaningful while it is at work or has something waiting.
    written: u64,
    /// The same, and durable.
    durable: u64,
    /// Where in the stream the next block dealt out will lie.
    position: u64,
    /// Where in the stream the blocks begin of the transaction that is not dealt out whole, if it
    /// has any here.
    open: Option<u64>,
    /// The next landmark is due here.
    landmark: u64,
    /// Bounds of earlier flushes and where they ended, that not all streams have reached.
    anchors: VecDeque<(u64, u64)>,
    anchor: (u64, u64),
    /// The last bound that was noted on the medium.
    noted: u64,
}

/// What a flusher has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Work {
    /// All blocks of its stream below this LSN.
    to: u64,
    /// The last end of a transaction at or below that, and where the stream's blocks from there on
    /// begin.
    whole: (u64, u64),
}

impl Runs {
    /// At `start`, where the log continues; `whole` is the last end of a transaction at or below
    /// it.
    pub(crate) fn new(store: Option<&LogStore>, start: Lsn, whole: Lsn) -> Self {
        let streams = store.map_or(1, LogStore::streams);
        let share = |stream: usize| {
            let position = store.map_or(0, |store| store.stream(stream).end().0);
            // Within a transaction: its blocks begin nowhere below the last anchor.
            let noted = store.map(|store| store.stream(stream).noted()).filter(|_| whole < start);
            let anchor = noted.map_or((start.0, position), |noted| (noted.anchor.0, noted.anchor_position.0));
            Share {
                waiting: Vec::new(),
                at_work: None,
                written: start.0,
                durable: start.0,
                position,
                open: noted.map(|noted| noted.anchor_position.0),
                landmark: 0,
                anchors: VecDeque::new(),
                anchor,
                noted: start.0,
            }
        };
        let streams = (0..streams).map(share).collect();
        Self(Mutex::new(Dealt { walked: start.0, whole: whole.0, streams }))
    }

    fn dealt(&self) -> MutexGuard<'_, Dealt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deals out everything below `to`, which is filled, and gives the flusher what is its
    /// stream's. Until it says [`Runs::durable`], the stream is where it was.
    pub(crate) fn take(
        &self,
        buffer: &LogBuffer,
        store: &LogStore,
        flusher: &mut Flusher,
        to: Lsn,
        into: &mut Vec<Run>,
    ) {
        let stream = flusher.stream();
        let mut dealt = self.dealt();
        dealt.walk(buffer, store, flusher, to);
        // At least `to`: somebody else may have dealt out more.
        let (walked, whole) = (dealt.walked, dealt.whole);
        let share = &mut dealt.streams[stream];
        std::mem::swap(&mut share.waiting, into);
        share.waiting.clear();
        share.at_work = Some(Work { to: walked, whole: (whole, share.open.unwrap_or(share.position)) });
    }

    /// All that `stream`'s flusher took is written. Returns up to where the blocks of all streams
    /// are.
    pub(crate) fn written(&self, stream: usize) -> Lsn {
        let mut dealt = self.dealt();
        let share = &mut dealt.streams[stream];
        share.written = share.at_work.expect("it took something").to;
        dealt.least(|share| share.written)
    }

    /// All that `stream`'s flusher took is durable; it ends at `position`. Returns up to where the
    /// blocks of all streams are, and what to note on the medium; nothing while little has changed.
    pub(crate) fn durable(&self, stream: usize, position: Lsn, wrote: bool) -> (Lsn, Option<Note>) {
        let mut dealt = self.dealt();
        let share = &mut dealt.streams[stream];
        let Work { to, whole } = share.at_work.take().expect("it took something");
        share.durable = to;
        share.written = to;
        let all = dealt.least(|share| share.durable);
        let share = &mut dealt.streams[stream];
        share.anchors.push_back(whole);
        while let Some(reached) = share.anchors.front().copied().filter(|anchor| anchor.0 <= all.0) {
            share.anchor = reached;
            share.anchors.pop_front();
        }
        if !wrote && to - share.noted < crate::stream::persist::MAX_UNSYNCED {
            return (all, None);
        }
        share.noted = to;
        let (anchor, anchor_position) = share.anchor;
        // The bound is what a restart demands to find: not half of a transaction.
        let (bound, _) = whole;
        let note = Note { position, bound: Lsn(bound), anchor: Lsn(anchor), anchor_position: Lsn(anchor_position) };
        (all, Some(note))
    }

    /// Where all streams are durable up to the last end of a transaction, when no flusher is at
    /// work any more: that end, and where each stream's blocks from there on begin. None if a
    /// flusher has left something.
    pub(crate) fn rest(&self) -> Option<(Lsn, Vec<Lsn>)> {
        let dealt = self.dealt();
        let rests = |share: &Share| share.at_work.is_none() && share.waiting.is_empty();
        let positions = dealt.streams.iter().map(|share| Lsn(share.open.unwrap_or(share.position))).collect();
        dealt.streams.iter().all(rests).then_some((Lsn(dealt.whole), positions))
    }

    /// The log was cut at `at`, where `store` now ends; `whole` is the last end of a transaction at
    /// or below that. No flusher is at work.
    pub(crate) fn cut(&self, store: &LogStore, at: Lsn, whole: Lsn) {
        let mut dealt = self.dealt();
        dealt.walked = dealt.walked.min(at.0);
        dealt.whole = dealt.whole.min(whole.0);
        for (stream, share) in dealt.streams.iter_mut().enumerate() {
            share.waiting.clear();
            share.written = share.written.min(at.0);
            share.durable = share.durable.min(at.0);
            share.noted = share.noted.min(at.0);
            share.position = store.stream(stream).end().0;
            share.landmark = 0;
            share.anchors.clear();
            if share.anchor.0 > at.0 {
                share.anchor = (at.0, share.position);
            }
            // Within a transaction: its blocks begin nowhere below the last anchor.
            share.open = (whole < at).then_some(share.anchor.1);
        }
    }
}

impl Dealt {
    fn least(&self, reached: impl Fn(&Share) -> u64) -> Lsn {
        let idle = |share: &Share| share.at_work.is_none() && share.waiting.is_empty();
        let streams = self.streams.iter().map(|share| if idle(share) { self.walked } else { reached(share) });
        Lsn(streams.fold(self.walked, u64::min))
    }

    fn walk(&mut self, buffer: &LogBuffer, store: &LogStore, flusher: &mut Flusher, to: Lsn) {
        if to.0 <= self.walked {
            return;
        }
        let from = self.walked;
        let [head, tail] = buffer.lend(flusher, Lsn(from), to);
        // Blocks start at multiples of eight, and so does the buffer: none of these words lies
        // across its end.
        let word = |at: u64| {
            let offset = (at - from) as usize;
            let (piece, offset) = if offset < head.len() { (head, offset) } else { (tail, offset - head.len()) };
            u64::from_le_bytes(std::array::from_fn(|i| piece[offset + i]))
        };
        let mut at = from;
        while at < to.0 {
            let length = word(at) & u64::from(u32::MAX);
            let kind = word(at + 24) >> 48 & 0xFF;
            assert!(
                length >= BLOCK_HEADER as u64 && at + length <= to.0,
                "a filled range is whole blocks: a bug in the log"
            );
            let number = (kind >> STREAM_SHIFT) as usize % self.streams.len();
            let share = &mut self.streams[number];
            match share.waiting.last_mut() {
                Some(last) if last.to.0 == at => last.to.0 += length,
                _ => share.waiting.push(Run { from: Lsn(at), to: Lsn(at + length) }),
            }
            if share.position >= share.landmark {
                store.at(number).landmarks.enter(Lsn(at), Lsn(share.position));
                share.landmark = share.position + LANDMARKS;
            }
            share.open.get_or_insert(share.position);
            share.position += length;
            at += length;
            if kind as u8 & CONTINUED == 0 {
                self.whole = at;
                self.streams.iter_mut().for_each(|share| share.open = None);
            }
        }
        self.walked = to.0;
    }
}

/// Every order in which the flushers of two or three streams take, write and sync, with every way
/// to deal out the blocks.
#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use freshet_base::{ClusterId, Term};

    use super::*;
    use crate::{
        block::skip_header,
        buffer::Memory,
        segments::{SegmentStore, StoreConfig},
    };

    const LENGTH: u64 = 40;

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct State {
        dealt: Dealt,
        flushers: Vec<Progress>,
    }

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Progress {
        /// Everything below is flushed, as its thread sees it.
        done: u64,
        /// It has taken blocks up to here, and has written them or not.
        at_work: Option<(u64, bool)>,
        taken: Vec<u64>,
        written: usize,
        synced: usize,
    }

    struct World {
        /// By block: its stream.
        streams: Vec<usize>,
        /// By block: whether the next one belongs to the same transaction.
        continued: Vec<bool>,
        buffer: LogBuffer,
        flushers: Vec<Flusher>,
        store: LogStore,
    }

    impl World {
        /// With as many blocks, all of them filled, one for each digit of `deal` in base `streams`,
        /// and one for each bit of `continued`.
        fn new(streams: usize, blocks: usize, deal: usize, continued: usize) -> Self {
            let config = StoreConfig { cluster: ClusterId(1), segment_size: 4096 };
            let store = LogStore::of((0..streams).map(|_| SegmentStore::in_memory(config)).collect());
            let (buffer, flushers) = LogBuffer::on(Memory::new(256), Lsn(0), streams);
            let streams: Vec<usize> = (0..blocks).map(|block| deal / streams.pow(block as u32) % streams).collect();
            let continued: Vec<bool> = (0..blocks).map(|block| continued >> block & 1 == 1).collect();
            for (block, stream) in streams.iter().enumerate() {
                let at = Lsn(block as u64 * LENGTH);
                buffer.claim(at.plus(LENGTH));
                let mut header = skip_header(at, LENGTH, Term(1), *stream as u8);
                header[30] |= if continued[block] { CONTINUED } else { 0 };
                buffer.write(at, &header);
                buffer.fill_to(at.plus(LENGTH));
            }
            Self { streams, continued, buffer, flushers, store }
        }

        fn end(&self) -> u64 {
            self.streams.len() as u64 * LENGTH
        }

        /// Those of a stream below an LSN.
        fn below(&self, stream: usize, lsn: u64) -> usize {
            let before = self.streams.iter().enumerate().filter(|(block, _)| (*block as u64) * LENGTH < lsn);
            before.filter(|(_, its)| **its == stream).count()
        }

        /// Takes a step of a flusher; none when it has nothing to do. `to` is what it finds filled.
        fn step(&mut self, state: &State, stream: usize, to: u64) -> Option<State> {
            let mut next = state.clone();
            let runs = Runs(Mutex::new(next.dealt));
            let this = &mut next.flushers[stream];
            match this.at_work {
                None if to <= this.done => return None,
                None => {
                    let mut found = vec![Run { from: Lsn(7), to: Lsn(8) }];
                    runs.take(&self.buffer, &self.store, &mut self.flushers[stream], Lsn(to), &mut found);
                    for run in found {
                        assert!(run.from < run.to);
                        this.taken.extend((run.from.0..run.to.0).step_by(LENGTH as usize).map(|at| at / LENGTH));
                    }
                    this.at_work = Some((to, false));
                }
                Some((to, false)) => {
                    this.written = this.taken.len();
                    this.at_work = Some((to, true));
                    let all = runs.written(stream).0;
                    for (stream, progress) in next.flushers.iter().enumerate() {
                        assert!(progress.written >= self.below(stream, all), "not everything below {all} is written");
                    }
                }
                Some((to, true)) => {
                    let wrote = this.synced < this.written;
                    this.synced = this.written;
                    this.done = to;
                    this.at_work = None;
                    let position = this.synced as u64 * LENGTH;
                    let (all, note) = runs.durable(stream, Lsn(position), wrote);
                    for (stream, progress) in next.flushers.iter().enumerate() {
                        assert!(progress.synced >= self.below(stream, all.0), "not everything below {all} is durable");
                    }
                    assert!(note.is_some() || !wrote, "what was written is noted");
                    if let Some(note) = note {
                        self.check_note(stream, note, &next.flushers);
                    }
                }
            }
            next.dealt = runs.0.into_inner().unwrap();
            // Each stream gets its blocks, in their order, and none twice.
            for (stream, progress) in next.flushers.iter().enumerate() {
                let its = (0..self.streams.len()).filter(|block| self.streams[*block] == stream);
                let its: Vec<u64> = its.take(progress.taken.len()).map(|block| block as u64).collect();
                assert_eq!(progress.taken, its);
            }
            Some(next)
        }

        fn check_note(&self, stream: usize, note: Note, flushers: &[Progress]) {
            for (stream, progress) in flushers.iter().enumerate() {
                assert!(
                    progress.synced >= self.below(stream, note.anchor.0),
                    "not everything is durable below {note:?}"
                );
            }
            assert_eq!(note.position.0, flushers[stream].synced as u64 * LENGTH);
            assert!(self.below(stream, note.bound.0) as u64 * LENGTH <= note.position.0, "{note:?}");
            for lsn in [note.anchor, note.bound] {
                let before = (lsn.0 / LENGTH).checked_sub(1).map(|block| self.continued[block as usize]);
                assert_ne!(before, Some(true), "{note:?} is within a transaction");
            }
            assert_eq!(note.anchor_position.0, self.below(stream, note.anchor.0) as u64 * LENGTH, "{note:?}");
        }
    }

    #[test]
    fn streams_are_as_far_as_all_of_them_whichever_comes_first() {
        let mut states = 0;
        for (streams, blocks) in [(2, 3), (3, 2)] {
            let worlds = usize::pow(streams, blocks) << (blocks - 1);
            for world in 0..worlds {
                let (deal, continued) = (world >> (blocks - 1), world & ((1 << (blocks - 1)) - 1));
                let mut world = World::new(streams, blocks as usize, deal, continued);
                let Runs(dealt) = Runs::new(Some(&world.store), Lsn(0), Lsn(0));
                let progress = Progress { done: 0, at_work: None, taken: Vec::new(), written: 0, synced: 0 };
                let start = State { dealt: dealt.into_inner().unwrap(), flushers: vec![progress; streams] };
                let (mut known, mut open) = (HashSet::from([start.clone()]), vec![start]);
                while let Some(state) = open.pop() {
                    states += 1;
                    for stream in 0..streams {
                        let ends = (1..=u64::from(blocks)).map(|block| block * LENGTH);
                        let nexts: Vec<State> = match state.flushers[stream].at_work {
                            None => ends.filter_map(|to| world.step(&state, stream, to)).collect(),
                            Some(_) => world.step(&state, stream, 0).into_iter().collect(),
                        };
                        open.extend(nexts.into_iter().filter(|next| known.insert(next.clone())));
                    }
                    if state.flushers.iter().all(|it| it.done == world.end()) {
                        assert_eq!(state.dealt.least(|share| share.durable).0, world.end(), "all of it is durable");
                    }
                }
            }
        }
        println!("{states} states");
        assert!(states > 10_000);
    }
}
