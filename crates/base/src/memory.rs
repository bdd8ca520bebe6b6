//! How much memory this process takes, by what takes it.
//!
//! What grows is counted where it is made, and taken off where it is freed, whichever thread does
//! that: so the numbers are exact, but for what the allocator adds. Each thread counts in cache
//! lines that it shares with few others, and only who wants to know adds them up.

use std::{
    cell::Cell,
    fmt,
    // Not the facade's: no other memory is read on the strength of these.
    sync::atomic::{AtomicI64, AtomicUsize, Ordering},
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
}

impl Owner {
    /// All of them, as [`Usage`] counts them.
    pub const ALL: [Self; 5] = [Self::Rows, Self::Indexes, Self::Addresses, Self::Buffers, Self::Statements];

    /// Its name in `freshet status` and in metrics.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Indexes => "indexes",
            Self::Addresses => "addresses",
            Self::Buffers => "buffers",
            Self::Statements => "statements",
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

/// Two cache lines, which processors fetch together.
#[repr(align(128))]
struct Stripe([AtomicI64; Owner::ALL.len()]);

static STRIPED: [Stripe; STRIPES] = [const { Stripe([const { AtomicI64::new(0) }; Owner::ALL.len()]) }; STRIPES];
/// What of that is announced. Seldom changed, and by parts of arrays.
static ANNOUNCED: AtomicI64 = AtomicI64::new(0);
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The stripe of this thread; none as yet.
    static MINE: Cell<usize> = const { Cell::new(STRIPES) };
}

/// What an allocator takes for this many bytes, about: its sizes lie an eighth apart.
#[inline]
fn taken_for(bytes: usize) -> i64 {
    let step = (bytes.next_power_of_two() / 8).max(16);
    // Without a division: it is a power of two.
    ((bytes + step - 1) & !(step - 1)) as i64
}

/// `owner` takes this many bytes more, or less: of what is no allocation of its own.
#[inline]
pub fn count(owner: Owner, bytes: i64) {
    let mine = MINE.with(|mine| {
        if mine.get() == STRIPES {
            mine.set(THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        mine.get()
    });
    STRIPED[mine].0[owner as usize].fetch_add(bytes, Ordering::Relaxed);
}

/// Something of this many bytes was allocated.
#[inline]
pub fn taken(owner: Owner, bytes: usize) {
    count(owner, taken_for(bytes));
}

/// Something of this many bytes is freed.
#[inline]
pub fn given_back(owner: Owner, bytes: usize) {
    count(owner, -taken_for(bytes));
}

/// Bytes that an owner takes until this is dropped: of what is made once, and seldom.
#[derive(Debug)]
pub struct Held(Owner, i64);

impl Held {
    /// `owner` takes this many.
    pub fn by(owner: Owner, bytes: usize) -> Self {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        count(owner, bytes);
        Self(owner, bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        count(self.0, -self.1);
    }
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
    let mut sums = [0_i64; Owner::ALL.len()];
    for stripe in &STRIPED {
        sums.iter_mut().zip(&stripe.0).for_each(|(sum, count)| *sum += count.load(Ordering::Relaxed));
    }
    // What one thread frees that another one has made may be seen before that.
    Usage(sums.map(|sum| sum.max(0) as u64))
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
        assert_eq!(keys, ["rows", "indexes", "addresses", "buffers", "statements"]);
        assert_eq!(Owner::ALL.map(|owner| owner as usize), [0, 1, 2, 3, 4]);
    }
}
