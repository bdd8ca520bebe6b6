//! One facade for atomics, cells and threads: the standard library in
//! production, loom in models (`RUSTFLAGS="--cfg loom"`).
//!
//! Latch-free code imports from here and nowhere else, so that the code that
//! runs is the code that is modelled.

#[cfg(not(loom))]
pub use std::{
    hint,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{self, AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};

#[cfg(loom)]
pub use loom::{
    hint,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{self, AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};

/// Spins a little, then yields the processor, then sleeps a little each time: the only way this
/// project waits for another thread that is known to be in a short, non-blocking section, and wakes
/// nobody at its end.
#[derive(Debug, Default)]
pub struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Rounds that only pause the processor before the thread starts to yield.
    #[cfg(not(loom))]
    const SPINS: u32 = 6;
    /// Rounds after which the thread sleeps instead, so that one that was preempted gets its
    /// processor whatever the scheduler's policy is.
    #[cfg(not(loom))]
    const AWAKE: u32 = 4096;
    #[cfg(not(loom))]
    const NAP: std::time::Duration = std::time::Duration::from_micros(50);

    /// A fresh back-off that begins with the shortest pause.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits a little longer than last time.
    #[cold]
    pub fn pause(&mut self) {
        #[cfg(loom)]
        thread::yield_now();
        #[cfg(not(loom))]
        if self.rounds < Self::SPINS {
            for _ in 0..1u32 << self.rounds {
                hint::spin_loop();
            }
        } else if self.rounds < Self::AWAKE {
            // Two cores: the thread that we wait for may need this one.
            thread::yield_now();
        } else {
            crate::wait::sleep((std::time::Instant::now() + Self::NAP).into());
        }
        self.rounds = self.rounds.saturating_add(1);
    }

    /// How often [`Backoff::pause`] was called.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }
}
