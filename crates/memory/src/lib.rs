//! Memory into which other processes and network cards write: rings of the log, regions of a
//! fabric, arenas of a mirror.
//!
//! It is never a Rust reference to bytes, but a slice of atomic words (`freshet_base::words`), and
//! what lies there has no meaning before its bounds and its checksum were looked at.
//!
//! Another process of this machine maps it, in a file whose descriptor it was passed
//! ([`SharedKey`]). Two kinds of file can be shared, since no process can cut them off under the
//! others, which would be a signal there and no error: sealed ones without a name
//! ([`SharedMemory`]), and files in persistent memory, which cannot be sealed and begin with
//! [`PERSISTENT`].
//!
//! What is stored may be durable: [`Method`] says how. The one who stores flushes what it has
//! written and waits for a fence ([`Registered::flush`]): a thread of the node whose memory it is,
//! or another process that has mapped it.
//!
//! # Taking memory back
//!
//! A process that has mapped a file may stand still for long, and then write. No word to it can
//! prevent that. So the memory moves: [`SharedMemory::renew`] puts another file with the same
//! bytes in its place, at the same addresses, and what the other process writes from then on lies
//! in a file that nothing reads any more (Active-Memory, section 5.2, step 1, where a queue pair is
//! closed). [`SharedMemory::is_lent`] says whether any process was passed it, and
//! [`SharedMemory::is_mapped_elsewhere`] whether any has it mapped: if none has, nothing has to
//! move (`lease.rs`).

#[cfg(not(loom))]
mod around;
mod durable;
mod instructions;
#[cfg(not(loom))]
mod key;
#[cfg(not(loom))]
mod lease;
#[cfg(not(loom))]
mod mapped;
#[cfg(not(loom))]
pub mod model;
mod registered;
#[cfg_attr(loom, path = "unmapped.rs")]
mod shared;

use std::sync::Arc;

#[cfg(not(loom))]
pub use self::{
    around::{prefetch, store_around, stream},
    key::{PERSISTENT, SharedKey},
    mapped::Mapped,
};
pub use self::{
    durable::{LINE, Medium, Method, flush_lines},
    instructions::{Delay, fence, time_around_cache},
    registered::Registered,
    shared::SharedMemory,
};
use freshet_base::sync::{AtomicU64, Ordering};

/// A registered piece of memory.
pub type Region = Arc<dyn Registered>;

/// Copies those words to new, zeroed memory that are to be kept; says whether any is not zero.
pub fn copy_words(from: &[AtomicU64], to: &[AtomicU64], keep: impl Fn(usize) -> bool) -> bool {
    let mut any = false;
    for (index, (from, to)) in from.iter().zip(to).enumerate() {
        // Relaxed: the thread that wrote what is kept synchronised with the caller.
        let word = from.load(Ordering::Relaxed);
        // Pages of zeros need not be there.
        if word != 0 && keep(index) {
            to.store(word, Ordering::Relaxed);
            any = true;
        }
    }
    any
}

/// Copies all of one region to another, which is new, zeroed and as long. What is to be durable
/// there is so behind a [fence](Registered::fence).
pub fn copy_region(from: &dyn Registered, to: &dyn Registered) {
    /// This number of words is flushed at once, if any of them is not zero.
    const WORDS: usize = 512;
    let parts = from.words().chunks(WORDS).zip(to.words().chunks(WORDS));
    for (part, (from, words)) in parts.enumerate() {
        if copy_words(from, words, |_| true) {
            to.flush(part * WORDS * 8, words.len() * 8);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Memory that knows what was flushed: bytes from where on, and how many.
    #[derive(Debug)]
    struct Noted(SharedMemory, Mutex<Vec<(usize, usize)>>);

    impl Registered for Noted {
        fn words(&self) -> &[AtomicU64] {
            self.0.words()
        }

        fn flush(&self, at: usize, length: usize) {
            self.1.lock().unwrap().push((at, length));
        }
    }

    #[test]
    fn what_is_copied_is_flushed_and_zeros_are_not() {
        let new = || SharedMemory::new(3 * 4096 + 24, false).unwrap();
        let (from, to) = (new(), Noted(new(), Mutex::default()));
        for word in [3, 511, 3 * 512 + 2] {
            from.words()[word].store(word as u64, Ordering::Relaxed);
        }
        copy_region(&from, &to);
        assert_eq!(*to.1.lock().unwrap(), [(0, 4096), (3 * 4096, 24)]);
        let loaded = |memory: &dyn Registered| {
            memory.words().iter().map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>()
        };
        assert_eq!(loaded(&from), loaded(&to));
    }
}
