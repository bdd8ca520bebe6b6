//! Persistent memory that loses what was not flushed and fenced: for tests, which find missing
//! flushes and fences by it.
//!
//! Every line remembers what is durable of it, and what it held at each store since. After a loss
//! of power, each line is one of those, independently of all others. A fence waits for what its own
//! thread has flushed.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use freshet_base::sync::{AtomicU64, Ordering};

use crate::{LINE, Method, Registered};

/// Words of a line.
const WORDS: usize = LINE / 8;
/// How many threads there may be.
pub const THREADS: usize = 3;

/// What may be found of a memory: its lines, by their numbers. Others are zero.
pub type Image = BTreeMap<usize, [u64; WORDS]>;

#[derive(Clone, Default)]
struct Line {
    durable: [u64; WORDS],
    /// What it held after each store since it became durable, and how much of that each thread has
    /// flushed.
    since: Vec<[u64; WORDS]>,
    flushed: [usize; THREADS],
}

impl Line {
    fn now(&self) -> [u64; WORDS] {
        *self.since.last().unwrap_or(&self.durable)
    }
}

/// Lines that lose what is not durable.
#[derive(Default)]
pub struct LossyLines(BTreeMap<usize, Line>);

impl LossyLines {
    /// A thread stores a word, by its number.
    pub fn store(&mut self, word: usize, value: u64) {
        let line = self.0.entry(word / WORDS).or_default();
        let mut now = line.now();
        now[word % WORDS] = value;
        line.since.push(now);
    }

    /// A thread flushes `length` bytes from byte `at` on.
    pub fn flush(&mut self, thread: usize, at: usize, length: usize) {
        for (_, line) in self.0.range_mut(at / LINE..(at + length).div_ceil(LINE)) {
            line.flushed[thread] = line.since.len();
        }
    }

    /// A thread waits for what it has flushed.
    pub fn fence(&mut self, thread: usize) {
        for line in self.0.values_mut() {
            let flushed = line.flushed[thread];
            if flushed > 0 {
                line.durable = line.since[flushed - 1];
                line.since.drain(..flushed);
                line.flushed = line.flushed.map(|other| other.saturating_sub(flushed));
            }
        }
    }

    /// Every state in which the memory may be found, if there are at most as many, else a sample.
    pub fn images(&self, mut random: u64, most: usize) -> Vec<Image> {
        let states = |line: &Line| std::iter::once(line.durable).chain(line.since.iter().copied()).collect();
        let choices: Vec<(usize, Vec<_>)> = self.0.iter().map(|(at, line)| (*at, states(line))).collect();
        let count = choices.iter().try_fold(1usize, |all, (_, states)| all.checked_mul(states.len()));
        let picked = |mut pick: Box<dyn FnMut(usize) -> usize + '_>| -> Image {
            choices.iter().map(|(at, states)| (*at, states[pick(states.len())])).collect()
        };
        match count.filter(|count| *count <= most) {
            Some(count) => (0..count)
                .map(|mut number| {
                    picked(Box::new(move |states| {
                        let state = number % states;
                        number /= states;
                        state
                    }))
                })
                .collect(),
            None => (0..most)
                .map(|_| {
                    picked(Box::new(|states| {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        random as usize % states
                    }))
                })
                .collect(),
        }
    }
}

/// Is called before each flush and each fence.
type Watch = Box<dyn FnMut() + Send>;

/// Regions that lose power together. Their threads count as one.
#[derive(Default)]
pub struct Lossy {
    lines: Mutex<LossyLines>,
    watch: Mutex<Option<Watch>>,
    regions: Mutex<Vec<Arc<[AtomicU64]>>>,
}

/// Between the first words of two regions.
const APART: usize = 1 << 32;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lossy {
    /// Another region, of this many bytes: zeros.
    pub fn region(self: &Arc<Self>, bytes: usize) -> Arc<LossyMemory> {
        let words: Arc<[AtomicU64]> = (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        let mut regions = locked(&self.regions);
        regions.push(Arc::clone(&words));
        Arc::new(LossyMemory { words, number: regions.len() - 1, whole: Arc::clone(self) })
    }

    /// Calls `watch` before each flush and each fence from now on: the power may be lost there.
    pub fn watch(&self, watch: impl FnMut() + Send + 'static) {
        *locked(&self.watch) = Some(Box::new(watch));
    }

    fn step(&self) {
        // It may ask for images.
        let taken = locked(&self.watch).take();
        if let Some(mut watch) = taken {
            watch();
            *locked(&self.watch) = Some(watch);
        }
    }

    /// Notes what was stored in these words of a region, in the order of their places.
    fn note(&self, lines: &mut LossyLines, number: usize, words: std::ops::Range<usize>) {
        let region = Arc::clone(&locked(&self.regions)[number]);
        for word in words {
            let (at, value) = (number * APART + word, region[word].load(Ordering::SeqCst));
            let before = lines.0.get(&(at / WORDS)).map_or(0, |line| line.now()[at % WORDS]);
            if before != value {
                lines.store(at, value);
            }
        }
    }

    /// In which states the regions may be found after a loss of power now: each region's bytes. A
    /// sample of `most` if there are more.
    pub fn images(&self, random: u64, most: usize) -> Vec<Vec<Vec<u8>>> {
        let lengths: Vec<_> = locked(&self.regions).iter().map(|region| region.len()).collect();
        let mut lines = locked(&self.lines);
        for (number, length) in lengths.iter().enumerate() {
            self.note(&mut lines, number, 0..*length);
        }
        let bytes = |image: &Image, number: usize, length: usize| {
            let mut bytes = vec![0; length * 8];
            let first = number * APART / WORDS;
            for (line, words) in image.range(first..first + length.div_ceil(WORDS)) {
                for (at, word) in ((line - first) * WORDS..length).zip(words) {
                    bytes[at * 8..][..8].copy_from_slice(&word.to_ne_bytes());
                }
            }
            bytes
        };
        let images = lines.images(random, most);
        images
            .iter()
            .map(|image| (0..).zip(&lengths).map(|(number, length)| bytes(image, number, *length)).collect())
            .collect()
    }
}

/// A region of them.
pub struct LossyMemory {
    words: Arc<[AtomicU64]>,
    number: usize,
    whole: Arc<Lossy>,
}

impl fmt::Debug for LossyMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LossyMemory({} bytes)", self.words.len() * 8)
    }
}

impl Registered for LossyMemory {
    fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    fn method(&self) -> Option<Method> {
        Some(Method::Clwb)
    }

    fn flush(&self, at: usize, length: usize) {
        self.whole.step();
        let (first, end) = (at - at % LINE, (at + length).next_multiple_of(LINE).min(self.words.len() * 8));
        let mut lines = locked(&self.whole.lines);
        self.whole.note(&mut lines, self.number, first / 8..end / 8);
        lines.flush(0, self.number * APART * 8 + first, end - first);
    }

    fn fence(&self) {
        self.whole.step();
        locked(&self.whole.lines).fence(0);
    }
}
