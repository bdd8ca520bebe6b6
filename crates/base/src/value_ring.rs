//! A ring of small values in memory that two threads, or two processes, have in common: one puts
//! in, the other takes out, and sleeps when there is nothing.
//!
//! # Access protocol
//!
//! | word | written by | means |
//! |---|---|---|
//! | `head` | the ringer | this many values were put in; release, pairs with the listener's acquire: what was written before is in place |
//! | `tail` | the listener | this many were taken out; release, pairs with the ringer's acquire: the place may be used again |
//! | `sleep` | both | 1: the listener sleeps, or is about to |
//! | `values` | the ringer | value `k` lies at `k` modulo the length, below `head` |
//!
//! Sleeping is Dekker's pattern: the listener sets `sleep`, fences, and looks at `head` once more;
//! the ringer moves `head`, fences, and looks at `sleep`. So at least one sees the other. Either
//! side may find nonsense here when the other process misbehaves: the worst that follows is a value
//! that was not sent, or a wake-up for nothing, since every index is taken modulo the length.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The words of a ring.
#[derive(Clone, Copy, Debug)]
pub struct ValueRing<'m> {
    /// How many values were put in.
    pub head: &'m AtomicU64,
    /// How many were taken out.
    pub tail: &'m AtomicU64,
    /// Whether the listener sleeps.
    pub sleep: &'m AtomicU32,
    /// The values that were put in and not taken out, a place for each, round and round.
    pub values: &'m [AtomicU64],
}

/// What became of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Put {
    /// There is no room: the listener is far behind.
    Full,
    /// It is in. With `wake`, the listener has to be woken.
    In {
        /// Whether it sleeps, or is about to.
        wake: bool,
    },
}

impl ValueRing<'_> {
    /// Puts a value in. Of the one ringer.
    pub fn put(&self, value: u32) -> Put {
        // Relaxed: only this side moves it.
        let head = self.head.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `take`.
        if head.wrapping_sub(self.tail.load(Ordering::Acquire)) >= self.values.len() as u64 {
            return Put::Full;
        }
        // Relaxed: published by the release below.
        self.values[(head % self.values.len() as u64) as usize].store(u64::from(value), Ordering::Relaxed);
        // Release: pairs with the acquire in `take`.
        self.head.store(head.wrapping_add(1), Ordering::Release);
        // The partner of the fence in `before_sleep`.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        let sleeps = self.sleep.load(Ordering::Relaxed) == 1;
        Put::In { wake: sleeps && self.sleep.swap(0, Ordering::SeqCst) == 1 }
    }

    /// Takes a value out. Of the one listener.
    pub fn take(&self) -> Option<u32> {
        // Relaxed: only this side moves it.
        let tail = self.tail.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `put`.
        if self.head.load(Ordering::Acquire) == tail {
            return None;
        }
        // Relaxed: ordered by the acquire above.
        let value = self.values[(tail % self.values.len() as u64) as usize].load(Ordering::Relaxed);
        // Release: pairs with the acquire in `put`.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        Some(value as u32)
    }

    /// The listener is about to sleep as long as `sleep` is 1; it must not if there is a value
    /// after all.
    pub fn before_sleep(&self) -> Option<u32> {
        self.sleep.store(1, Ordering::SeqCst);
        // The partner of the fence in `put`.
        fence(Ordering::SeqCst);
        self.take()
    }

    /// Tells those who put values in that the listener needs no wake-up call.
    pub fn after_sleep(&self) {
        self.sleep.store(0, Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::{sync::Arc, thread};

    use super::*;

    struct Words {
        head: AtomicU64,
        tail: AtomicU64,
        sleep: AtomicU32,
        values: [AtomicU64; 2],
        /// What a value stands for.
        written: [AtomicU64; 3],
    }

    impl Words {
        fn ring(&self) -> ValueRing<'_> {
            ValueRing { head: &self.head, tail: &self.tail, sleep: &self.sleep, values: &self.values }
        }
    }

    #[test]
    fn nothing_is_lost_and_nobody_sleeps_for_ever() {
        loom::model(|| {
            let words = Arc::new(Words {
                head: AtomicU64::new(0),
                tail: AtomicU64::new(0),
                sleep: AtomicU32::new(0),
                values: [AtomicU64::new(0), AtomicU64::new(0)],
                written: [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
            });
            let ringing = Arc::clone(&words);
            let ringer = thread::spawn(move || {
                for value in 0..3u32 {
                    ringing.written[value as usize].store(7, Ordering::Relaxed);
                    while ringing.ring().put(value) == Put::Full {
                        thread::yield_now();
                    }
                }
            });
            for value in 0..3u32 {
                let taken = loop {
                    if let Some(taken) = words.ring().take().or_else(|| words.ring().before_sleep()) {
                        words.ring().after_sleep();
                        break taken;
                    }
                    // A futex: asleep as long as nobody has set it to zero.
                    while words.sleep.load(Ordering::SeqCst) == 1 {
                        thread::yield_now();
                    }
                };
                assert_eq!(taken, value);
                assert_eq!(words.written[value as usize].load(Ordering::Relaxed), 7);
            }
            ringer.join().unwrap();
        });
    }
}
