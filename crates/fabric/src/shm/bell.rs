//! A ring of immediate values in shared memory, from one thread of one process to one thread of
//! another, at which the latter sleeps: `freshet_base::value_ring`, with a futex. That the
//! connection has ended is known to each process on its own ([`Bell::close`]), not from here.

use std::{
    io,
    time::{Duration, Instant},
};

use freshet_base::{
    sync::{Arc, AtomicBool, Ordering, fence, hint},
    value_ring::{Put, ValueRing},
};
use rustix::thread::futex;

use crate::memory::{Registered, SharedMemory};

const HEAD: usize = 0;
const TAIL: usize = 16;
const SLEEP: usize = 32;
const REVOKED: usize = 40;
const VALUES: usize = 48;
/// How many values there is room for.
pub const LENGTH: u64 = 1024;
/// How much memory a bell takes.
pub const BYTES: usize = (VALUES + LENGTH as usize) * 8;

/// One process's view of a bell.
#[derive(Debug)]
pub struct Bell {
    memory: Arc<SharedMemory>,
    closed: AtomicBool,
}

impl Bell {
    /// A bell in `memory`.
    ///
    /// # Errors
    /// When it is too small.
    pub fn new(memory: Arc<SharedMemory>) -> io::Result<Self> {
        if memory.words().len() * 8 < BYTES {
            return Err(io::Error::other("the other node's ring of immediate values is too short"));
        }
        Ok(Self { memory, closed: AtomicBool::new(false) })
    }

    /// Whether this process has been told that the connection is over.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// The connection is over: who listens in this process stops, once it has heard what was rung
    /// before.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let sleep = self.memory.half(SLEEP);
        sleep.store(0, Ordering::SeqCst);
        // An error would mean that nobody can sleep there either.
        let _ = futex::wake(sleep, futex::Flags::empty(), 1);
    }

    /// The listener's memory is taken back: a caller of [`Bell::is_revoked`] hears of it from now
    /// on, in either process.
    ///
    /// What the other process has stored before it asked, and heard nothing of this, is seen by
    /// this process after the return of this: of the two, which both store first, then pass a
    /// fence, and then look, at least one sees the other's store.
    pub fn revoke(&self) {
        self.memory.words()[REVOKED].store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.close();
    }

    /// Whether the listener has taken its memory back; see [`Bell::revoke`].
    pub fn is_revoked(&self) -> bool {
        // Pairs with the fence in `revoke`.
        fence(Ordering::SeqCst);
        self.memory.words()[REVOKED].load(Ordering::SeqCst) != 0
    }

    fn ring_of_values(&self) -> ValueRing<'_> {
        let words = self.memory.words();
        let values = &words[VALUES..VALUES + LENGTH as usize];
        ValueRing { head: &words[HEAD], tail: &words[TAIL], sleep: self.memory.half(SLEEP), values }
    }

    /// Rings; false when the listener is so far behind that there is no room.
    pub fn ring(&self, value: u32) -> bool {
        match self.ring_of_values().put(value) {
            Put::Full => return false,
            Put::In { wake: false } => {}
            Put::In { wake: true } => {
                // An error would mean that nobody can sleep there either.
                let _ = futex::wake(self.memory.half(SLEEP), futex::Flags::empty(), 1);
            }
        }
        true
    }

    /// Whether the next few values find room.
    pub fn has_room(&self) -> bool {
        let ring = self.ring_of_values();
        // Relaxed: only an estimate; `put` looks again.
        let waiting = ring.head.load(Ordering::Relaxed).wrapping_sub(ring.tail.load(Ordering::Relaxed));
        waiting <= LENGTH / 2
    }

    /// Blocks for the next value, at most for `patience`; looks for it for `spin` before it sleeps.
    pub fn wait(&self, spin: Duration, patience: Duration) -> Option<u32> {
        let ring = self.ring_of_values();
        if let Some(value) = ring.take() {
            return Some(value);
        }
        let begun = Instant::now();
        while !spin.is_zero() && begun.elapsed() < spin.min(patience) {
            for _ in 0..32 {
                hint::spin_loop();
            }
            if let Some(value) = ring.take() {
                return Some(value);
            }
        }
        loop {
            let taken = ring.before_sleep();
            let left = patience.saturating_sub(begun.elapsed());
            if taken.is_some() || self.is_closed() || left.is_zero() {
                ring.after_sleep();
                return taken;
            }
            let left = futex::Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            // Woken, timed out, interrupted, or rung in the meantime: look again.
            let _ = futex::wait(ring.sleep, futex::Flags::empty(), 1, Some(&left));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn bell() -> (Bell, Bell) {
        let memory = Arc::new(SharedMemory::new(BYTES, false).unwrap());
        (Bell::new(Arc::clone(&memory)).unwrap(), Bell::new(memory).unwrap())
    }

    #[test]
    fn every_value_is_received_once_and_in_order() {
        for spin in [Duration::ZERO, Duration::from_micros(20)] {
            let (ringer, listener) = bell();
            let count = 200_000u32;
            let ringing = thread::spawn(move || {
                for value in 0..count {
                    while !ringer.ring(value) {
                        thread::yield_now();
                    }
                    if value % 1000 == 0 {
                        // So that the listener falls asleep now and then.
                        thread::yield_now();
                    }
                }
            });
            for value in 0..count {
                assert_eq!(listener.wait(spin, Duration::from_secs(30)), Some(value));
            }
            ringing.join().unwrap();
            assert_eq!(listener.wait(spin, Duration::from_millis(1)), None);
        }
    }

    #[test]
    fn a_full_ring_refuses_and_its_values_come_before_the_end() {
        let (ringer, listener) = bell();
        for value in 0..LENGTH as u32 {
            assert!(ringer.ring(value));
        }
        assert!(!ringer.ring(0));
        listener.close();
        for value in 0..LENGTH as u32 {
            assert_eq!(listener.wait(Duration::ZERO, Duration::from_secs(30)), Some(value));
        }
        assert_eq!(listener.wait(Duration::ZERO, Duration::from_secs(30)), None);
        assert!(listener.is_closed());
    }

    #[test]
    fn the_end_wakes_who_sleeps() {
        let (_, listener) = bell();
        let listener = Arc::new(listener);
        let closing = Arc::clone(&listener);
        let closer = thread::spawn(move || closing.close());
        assert_eq!(listener.wait(Duration::ZERO, Duration::from_secs(30)), None);
        closer.join().unwrap();
    }
}
