//! How much memory this process takes, by what takes it.
//!
//! What grows is counted where it is made, and taken off where it is freed, whichever thread does
//! that: so the numbers are exact, but for what the allocator adds. Each thread counts in cache
//! lines that it shares with few others, and only who wants to know adds them up.
//!
//! The allocator of the server counts all that it gives and gets ([`allocated`], [`freed`]): what
//! no owner has counted, [`Owner::Others`] have. Each thread notes that for itself, and so knows
//! what a piece of its work has taken ([`of_this_thread`]); only its larger changes are seen by
//! others.

use std::{
    cell::Cell,
    fmt,
    // Not the facade's: no other memory is read on the strength of these.
    sync::{
        OnceLock,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
};

/// What takes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Rows, their old versions, and what is noted of versions that are to go.
    Rows,
    /// The nodes of indexes.
    Indexes,
    /// Indirection arrays: where the newest version of each row is.
    Addresses,
    /// Log buffers, what other nodes write into here, and the memory of mirrors. Counted as a
    /// whole, although pages that are not used yet take nothing.
    Buffers,
    /// What sessions keep, and statements need.
    Statements,
    /// All else that the allocator has given: definitions, what transactions note of their reads
    /// and writes, threads, connections.
    Others,
}

impl Owner {
    /// All of them, as [`Usage`] counts them.
    pub const ALL: [Self; 6] =
        [Self::Rows, Self::Indexes, Self::Addresses, Self::Buffers, Self::Statements, Self::Others];

    /// Its name in `freshet status` and in metrics.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Indexes => "indexes",
            Self::Addresses => "addresses",
            Self::Buffers => "buffers",
            Self::Statements => "statements",
            Self::Others => "others",
        }
    }
}

/// How many bytes each owner takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage([u64; Owner::ALL.len()]);

impl fmt::Display for Usage {
    /// Each owner with its bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (owner, bytes) in Owner::ALL.iter().zip(self.0) {
            let comma = if *owner == Owner::Rows { "" } else { ", " };
            write!(f, "{comma}{} {bytes}", owner.key())?;
        }
        Ok(())
    }
}

impl Usage {
    /// This one's.
    pub fn of(&self, owner: Owner) -> u64 {
        self.0[owner as usize]
    }

    /// All owners' together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// All but what sessions keep and statements need.
    pub fn without_statements(&self) -> u64 {
        self.total() - self.of(Owner::Statements)
    }
}

const STRIPES: usize = 64;

/// As many counters as owners, and one of what is [promised](promise).
const COUNTERS: usize = Owner::ALL.len() + 1;
const PROMISED: usize = Owner::ALL.len();

/// Two cache lines, which processors fetch together.
#[repr(align(128))]
struct Stripe([AtomicI64; COUNTERS]);

static STRIPED: [Stripe; STRIPES] = [const { Stripe([const { AtomicI64::new(0) }; COUNTERS]) }; STRIPES];
/// What of that is announced. Seldom changed, and by parts of arrays.
static ANNOUNCED: AtomicI64 = AtomicI64::new(0);
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// By how many bytes a thread may have more or less than others see.
const SLACK: u64 = 32 << 10;

/// What the allocator has given a thread and got from it, but for what an owner has counted.
struct Heap {
    net: Cell<i64>,
    /// How much of that others see.
    noted: Cell<i64>,
    /// From what difference on that is noted: none before the thread's first allocation, and after
    /// its end.
    slack: Cell<u64>,
    ends: Cell<bool>,
}

/// Notes at the end of a thread what it has not noted.
struct End;

thread_local! {
    /// The stripe of this thread; none as yet.
    static MINE: Cell<usize> = const { Cell::new(STRIPES) };
    // Without a destructor: so the allocator may use it at any time.
    static HEAP: Heap = const { Heap::new() };
    static END: End = const { End };
}

impl Heap {
    const fn new() -> Self {
        Self { net: Cell::new(0), noted: Cell::new(0), slack: Cell::new(0), ends: Cell::new(false) }
    }

    #[inline]
    fn add(&self, bytes: i64) {
        let net = self.net.get().wrapping_add(bytes);
        self.net.set(net);
        if net.wrapping_sub(self.noted.get()).unsigned_abs() > self.slack.get() {
            self.note();
        }
    }

    #[cold]
    fn note(&self) {
        let net = self.net.get();
        count(Owner::Others, net.wrapping_sub(self.noted.replace(net)));
        if self.slack.get() == 0 && !self.ends.get() {
            // Before its end is registered, which may allocate.
            self.slack.set(SLACK);
            let _ = END.try_with(|_| ());
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        HEAP.with(|heap| {
            heap.ends.set(true);
            heap.slack.set(0);
            heap.note();
        });
    }
}

/// What an allocator takes for this many bytes, about: its sizes lie an eighth apart.
#[inline]
fn taken_for(bytes: usize) -> i64 {
    let step = (bytes.next_power_of_two() / 8).max(16);
    // Without a division: it is a power of two.
    ((bytes + step - 1) & !(step - 1)) as i64
}

#[inline]
fn add(counter: usize, bytes: i64) {
    let mine = MINE.with(|mine| {
        if mine.get() == STRIPES {
            mine.set(THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        mine.get()
    });
    STRIPED[mine].0[counter].fetch_add(bytes, Ordering::Relaxed);
}

/// `owner` takes this many bytes more, or less: of what is no allocation of its own.
#[inline]
pub fn count(owner: Owner, bytes: i64) {
    add(owner as usize, bytes);
}

/// Something of this many bytes was allocated.
#[inline]
pub fn taken(owner: Owner, bytes: usize) {
    HEAP.with(|heap| heap.add(-(bytes as i64)));
    count(owner, taken_for(bytes));
}

/// Something of this many bytes is freed.
#[inline]
pub fn given_back(owner: Owner, bytes: usize) {
    HEAP.with(|heap| heap.add(bytes as i64));
    count(owner, -taken_for(bytes));
}

/// The allocator has given this many bytes.
#[inline]
pub fn allocated(bytes: usize) {
    HEAP.with(|heap| heap.add(bytes as i64));
}

/// The allocator has got back this many bytes.
#[inline]
pub fn freed(bytes: usize) {
    HEAP.with(|heap| heap.add(-(bytes as i64)));
}

/// How many bytes more this thread has taken from the allocator since it began than it has given
/// back, of what no owner has counted. Less than none when it has freed what others have taken. It
/// means something only beside an earlier number of the same thread.
#[inline]
pub fn of_this_thread() -> i64 {
    HEAP.with(|heap| heap.net.get())
}

/// Of what [`Owner::Statements`] take, as many bytes more, or less, are not allocated yet: they are
/// promised to who is going to.
pub fn promise(bytes: i64) {
    add(PROMISED, bytes);
}

/// How the allocator gives back what it keeps for a thread that does not use it.
static PURGE: OnceLock<fn()> = OnceLock::new();

/// From now on [`purge`] calls this.
pub fn purge_by(purge: fn()) {
    let _ = PURGE.set(purge);
}

/// Gives back to the operating system what the allocator keeps for this thread and does not use.
/// May take some milliseconds; nothing happens where the allocator is not the server's.
pub fn purge() {
    if let Some(purge) = PURGE.get() {
        purge();
    }
}

/// Bytes that an owner takes until this is dropped: of what is made once, and seldom.
#[derive(Debug)]
pub struct Held {
    owner: Owner,
    bytes: usize,
    is_allocated: bool,
}

impl Held {
    /// `owner` takes this many, which the operating system gives.
    pub fn by(owner: Owner, bytes: usize) -> Self {
        count(owner, signed(bytes));
        Self { owner, bytes, is_allocated: false }
    }

    /// `owner` takes this many, which the allocator has given.
    pub fn allocated(owner: Owner, bytes: usize) -> Self {
        taken(owner, bytes);
        Self { owner, bytes, is_allocated: true }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.is_allocated {
            given_back(self.owner, self.bytes);
        } else {
            count(self.owner, -signed(self.bytes));
        }
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// As many bytes more, or less, of what is counted hold addresses that replay has announced.
pub fn announced_by(bytes: i64) {
    ANNOUNCED.fetch_add(bytes, Ordering::Relaxed);
}

/// How many of the bytes of [`Owner::Addresses`] replay has announced: what a standby needs and its
/// primary does not.
pub fn announced() -> u64 {
    ANNOUNCED.load(Ordering::Relaxed).max(0) as u64
}

/// How many bytes this process takes.
pub fn usage() -> Usage {
    let mut sums = [0_i64; COUNTERS];
    for stripe in &STRIPED {
        sums.iter_mut().zip(&stripe.0).for_each(|(sum, count)| *sum += count.load(Ordering::Relaxed));
    }
    // The allocator has given what statements take, too, but for what is promised.
    sums[Owner::Others as usize] += sums[PROMISED] - sums[Owner::Statements as usize];
    // What one thread frees that another one has made may be seen before that.
    Usage(std::array::from_fn(|owner| sums[owner].max(0) as u64))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_an_allocator() {
        assert_eq!(
            [0, 1, 16, 17, 100, 128, 129, 1000, 1025].map(taken_for),
            [0, 16, 16, 32, 112, 128, 160, 1024, 1280]
        );
        assert_eq!(taken_for(96 << 20), 96 << 20);
    }

    #[test]
    fn each_owner_has_its_own_number() {
        let before = usage();
        taken(Owner::Indexes, 1000);
        let held = Held::by(Owner::Buffers, 1 << 30);
        std::thread::spawn(|| given_back(Owner::Indexes, 1000)).join().unwrap();
        let after = usage();
        assert_eq!(after.of(Owner::Indexes), before.of(Owner::Indexes));
        assert_eq!(after.total() - before.total(), 1 << 30);
        drop(held);
        assert_eq!(usage().of(Owner::Buffers), before.of(Owner::Buffers));
        assert!(after.to_string().starts_with(&format!("rows {}, indexes ", after.of(Owner::Rows))), "{after}");
        let keys = Owner::ALL.map(Owner::key);
        assert_eq!(keys, ["rows", "indexes", "addresses", "buffers", "statements", "others"]);
        assert_eq!(Owner::ALL.map(|owner| owner as usize), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_no_owner_has_counted_others_have() {
        // Nothing here allocates by the server's allocator, so these are the only numbers.
        let at = std::thread::spawn(|| {
            let before = (of_this_thread(), usage().of(Owner::Others));
            allocated(100 << 20);
            taken(Owner::Rows, 40 << 20);
            let between = (of_this_thread() - before.0, usage().of(Owner::Others) - before.1);
            given_back(Owner::Rows, 40 << 20);
            freed(40 << 20);
            // Too little to be seen before the thread ends.
            freed(5);
            count(Owner::Statements, 50 << 20);
            promise(20 << 20);
            between
        });
        assert_eq!(at.join().unwrap(), (60 << 20, 60 << 20));
        assert_eq!(usage().of(Owner::Others), (30 << 20) - 5, "60 MiB, but for the 30 of 50 that are there");
        count(Owner::Statements, -(50 << 20));
        promise(-(20 << 20));
        assert_eq!(usage().of(Owner::Others), (60 << 20) - 5);
    }
}
