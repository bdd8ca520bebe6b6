//! The ordered index against `std::collections::BTreeMap` and `scc::TreeIndex`.
//!
//!     cargo bench -p freshet-storage --bench index -- [--records N] [--rounds N] [--only WORD] [--cpu]
//!
//! For each kind of key: keys are inserted in random order, read in another random order, and
//! scanned a hundred at a time from random keys on; by one thread and by two, each doing half. Each
//! figure is the median over the rounds, in millions a second (scans: records). With `--cpu`,
//! seconds are those that the slowest thread spent on a processor (Linux), for machines that have
//! other things to do. Bytes are those taken from the allocator, divided by the keys.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::BTreeMap,
    hint::black_box,
    ops::{Bound, ControlFlow},
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use freshet_base::Rid;
use freshet_storage::{
    Participant, Participants,
    index::{BTree, Direction, ScanBuffer},
};

/// Operations between two pins, as many as a transaction might do.
const PER_PIN: usize = 16;
/// Records of one scan.
const SCANNED: usize = 100;

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A key of `LENGTH` bytes from a number below the number of records.
trait Key: Copy + Ord + Send + Sync + 'static + AsRef<[u8]> {
    const NAME: &'static str;
    fn of(n: u32) -> Self;
}

fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Dense([u8; 8]);
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Composite([u8; 24]);
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Hashed([u8; 24]);

impl Key for Dense {
    const NAME: &'static str = "8 bytes, dense";
    fn of(n: u32) -> Self {
        Self(u64::from(n).to_be_bytes())
    }
}

impl Key for Composite {
    const NAME: &'static str = "24 bytes, composite";
    fn of(n: u32) -> Self {
        let mut key = [0; 24];
        key[..8].copy_from_slice(&u64::from(n % 100).to_be_bytes());
        key[8..16].copy_from_slice(&u64::from(n / 100 % 1000).to_be_bytes());
        key[16..].copy_from_slice(&u64::from(n / 100_000).to_be_bytes());
        Self(key)
    }
}

impl Key for Hashed {
    const NAME: &'static str = "24 bytes, random";
    fn of(n: u32) -> Self {
        let mut key = [0; 24];
        for i in 0..3 {
            key[8 * i..8 * i + 8].copy_from_slice(&mix(u64::from(n) * 3 + i as u64).to_be_bytes());
        }
        Self(key)
    }
}

macro_rules! as_bytes {
    ($($key:ty),*) => {$(
        impl AsRef<[u8]> for $key {
            #[inline]
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
    )*};
}
as_bytes!(Dense, Composite, Hashed);

/// What is measured; each thread works through its share.
trait Index<K: Key>: Sync {
    const NAME: &'static str;
    const THREADS: usize = 2;
    fn new() -> Self;
    fn insert(&self, share: &[u32]);
    fn get(&self, share: &[u32]) -> u64;
    fn scan(&self, share: &[u32]) -> u64;
}

struct Freshet {
    tree: BTree,
    participants: Arc<Participants>,
}

impl Freshet {
    fn pinned(&self, share: &[u32], mut body: impl FnMut(&Participant, &[u32])) {
        let participant = self.participants.join().unwrap();
        for some in share.chunks(PER_PIN) {
            body(&participant, some);
        }
    }
}

impl<K: Key> Index<K> for Freshet {
    const NAME: &'static str = "freshet BTree";

    fn new() -> Self {
        Self { tree: BTree::new(), participants: Participants::new(8) }
    }

    fn insert(&self, share: &[u32]) {
        self.pinned(share, |participant, some| {
            let guard = participant.pin_without_snapshot();
            for n in some {
                self.tree.insert(&guard, K::of(*n).as_ref(), Rid(u64::from(*n))).unwrap();
            }
        });
    }

    fn get(&self, share: &[u32]) -> u64 {
        let mut sum = 0;
        self.pinned(share, |participant, some| {
            let guard = participant.pin_without_snapshot();
            for n in some {
                let _ = self.tree.get(&guard, K::of(*n).as_ref(), |rid| {
                    sum += rid.0;
                    ControlFlow::Break(())
                });
            }
        });
        sum
    }

    fn scan(&self, share: &[u32]) -> u64 {
        let mut sum = 0;
        let mut buffer = ScanBuffer::new();
        self.pinned(share, |participant, some| {
            let guard = participant.pin_without_snapshot();
            for n in some {
                let mut left = SCANNED;
                let key = K::of(*n);
                let range = (Bound::Included(key.as_ref()), Bound::Unbounded);
                let _ = self.tree.scan(
                    &guard,
                    range,
                    Direction::Forward,
                    &mut buffer,
                    |_| {},
                    |key, rid| {
                        sum += rid.0 + u64::from(key[key.len() - 1]);
                        left -= 1;
                        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    },
                );
            }
        });
        sum
    }
}

/// One thread only: the lock is never contended and only makes it shareable.
struct Std<K>(std::sync::Mutex<BTreeMap<K, u64>>);

impl<K: Key> Index<K> for Std<K> {
    const NAME: &'static str = "std BTreeMap";
    const THREADS: usize = 1;

    fn new() -> Self {
        Self(std::sync::Mutex::new(BTreeMap::new()))
    }

    fn insert(&self, share: &[u32]) {
        let mut map = self.0.lock().unwrap();
        for n in share {
            map.insert(K::of(*n), u64::from(*n));
        }
    }

    fn get(&self, share: &[u32]) -> u64 {
        let map = self.0.lock().unwrap();
        share.iter().map(|n| map[&K::of(*n)]).sum()
    }

    fn scan(&self, share: &[u32]) -> u64 {
        let map = self.0.lock().unwrap();
        let one = |n: &u32| -> u64 {
            map.range(K::of(*n)..).take(SCANNED).map(|(key, rid)| rid + u64::from(key.as_ref()[7])).sum()
        };
        share.iter().map(one).sum()
    }
}

struct Scc<K: 'static>(scc::TreeIndex<K, u64>);

impl<K: Key> Index<K> for Scc<K> {
    const NAME: &'static str = "scc TreeIndex";

    fn new() -> Self {
        Self(scc::TreeIndex::new())
    }

    fn insert(&self, share: &[u32]) {
        for n in share {
            self.0.insert_sync(K::of(*n), u64::from(*n)).ok().unwrap();
        }
    }

    fn get(&self, share: &[u32]) -> u64 {
        share.iter().map(|n| self.0.peek_with(&K::of(*n), |_, rid| *rid).unwrap()).sum()
    }

    fn scan(&self, share: &[u32]) -> u64 {
        let guard = scc::Guard::new();
        let one = |n: &u32| -> u64 {
            let range = self.0.range(K::of(*n).., &guard);
            range.take(SCANNED).map(|(key, rid)| rid + u64::from(key.as_ref()[7])).sum()
        };
        share.iter().map(one).sum()
    }
}

struct Options {
    records: u32,
    rounds: usize,
    only: Option<String>,
    cpu: bool,
}

fn options() -> Options {
    let mut options = Options { records: 1_000_000, rounds: 3, only: None, cpu: false };
    let mut arguments = std::env::args().skip(1);
    let usage = "options: --records N, --rounds N, --only WORD, --cpu";
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value; {usage}"));
        match argument.as_str() {
            "--records" => options.records = value().parse().expect("a number of records"),
            "--rounds" => options.rounds = value().parse().expect("a number of rounds"),
            "--only" => options.only = Some(value()),
            "--cpu" => options.cpu = true,
            // What `cargo bench` adds.
            "--bench" => {}
            _ => panic!("unknown option {argument}; {usage}"),
        }
    }
    options
}

/// All numbers below `records`, in a random order.
fn shuffled(records: u32, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..records).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, (mix(seed ^ i as u64) % (i as u64 + 1)) as usize);
    }
    order
}

/// Seconds that this thread has spent on a processor.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("--cpu needs Linux's /proc");
    text.split(' ').next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()).expect("a number") / 1e9
}

/// Seconds that `threads` threads take, each with its share of `order`: those of the slowest.
fn time(threads: usize, cpu: bool, order: &[u32], work: impl Fn(&[u32]) + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let (barrier, work) = (&barrier, &work);
    std::thread::scope(|scope| {
        let worker = |share| {
            move || {
                barrier.wait();
                let (start, before) = (Instant::now(), if cpu { processor_seconds() } else { 0.0 });
                work(share);
                if cpu { processor_seconds() - before } else { start.elapsed().as_secs_f64() }
            }
        };
        let shares = order.chunks(order.len().div_ceil(threads));
        let workers: Vec<_> = shares.map(|share| scope.spawn(worker(share))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).fold(0.0, f64::max)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure<K: Key, I: Index<K>>(options: &Options) {
    let name = format!("{} | {}", K::NAME, I::NAME);
    if options.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
        return;
    }
    let (inserts, gets) = (shuffled(options.records, 1), shuffled(options.records, 2));
    let starts = &gets[..(gets.len() / 20).max(1)];
    for threads in 1..=I::THREADS {
        let mut figures = [const { Vec::new() }; 4];
        for _ in 0..options.rounds {
            let millions = options.records as f64 / 1e6;
            let before = ALLOCATED.load(Relaxed);
            let index = I::new();
            figures[0].push(millions / time(threads, options.cpu, &inserts, |share| index.insert(share)));
            figures[3].push((ALLOCATED.load(Relaxed) - before) as f64 / f64::from(options.records));
            figures[1].push(millions / time(threads, options.cpu, &gets, |share| _ = black_box(index.get(share))));
            let scanned = (starts.len() * SCANNED) as f64 / 1e6;
            figures[2].push(scanned / time(threads, options.cpu, starts, |share| _ = black_box(index.scan(share))));
        }
        let [insert, get, scan, bytes] = figures.map(median);
        println!("| {name} | {threads} | {insert:.2} | {get:.2} | {scan:.0} | {bytes:.1} |");
    }
}

fn measure_all<K: Key>(options: &Options) {
    measure::<K, Freshet>(options);
    measure::<K, Std<K>>(options);
    measure::<K, Scc<K>>(options);
}

fn main() {
    let options = options();
    println!("{} records, median of {} rounds, millions a second", options.records, options.rounds);
    println!("| keys | index | threads | insert | get | scanned | bytes/key |");
    println!("|---|---|---|---|---|---|---|");
    measure_all::<Dense>(&options);
    measure_all::<Composite>(&options);
    measure_all::<Hashed>(&options);
}
