//! The latch of a node, which is also its version (Leis et al., "Optimistic
//! lock coupling", 2019; the idea of a sequence lock).
//!
//! # Access protocol
//!
//! | who | may | when |
//! |---|---|---|
//! | a writer | store to the protected words, relaxed | between [`VersionLatch::upgrade`] or [`VersionLatch::lock`] and the drop of what it returned |
//! | a reader | load the protected words, relaxed, and use them | loads between [`VersionLatch::read`] and a [`VersionLatch::is`] that says yes; before that they are only guesses |
//!
//! The word is a counter with two bits below it: *latched*, and *obsolete* for
//! a node that was unlinked (it never becomes anything else again). Every
//! change of what is protected moves the counter; a writer that latched and
//! changed nothing puts the old word back.
//!
//! Safety argument. A writer sets *latched* and executes a release fence W
//! before its first store; a reader executes an acquire fence R after its last
//! load. If one of the loads saw one of the stores, then W synchronises with R,
//! and the load of the word after R sees *latched* or something later: the
//! reader discards. If a load saw something older than the version that was
//! read first, it would contradict the acquire load of that version, which
//! pairs with the release store that ended the writer before.

use freshet_base::sync::{AtomicU64, Backoff, Ordering, fence};

const LATCHED: u64 = 1;
const OBSOLETE: u64 = 2;
const STEP: u64 = 4;

/// A latch whose word is the version of what it protects.
#[derive(Debug)]
pub(super) struct VersionLatch {
    word: AtomicU64,
}

impl VersionLatch {
    pub(super) fn new() -> Self {
        Self { word: AtomicU64::new(STEP) }
    }

    /// The version at which reading may begin; waits while a writer is at work. `None` when
    /// the node is obsolete.
    #[inline]
    pub(super) fn read(&self) -> Option<u64> {
        // Acquire: pairs with the release store in `Latched::drop`.
        let word = self.word.load(Ordering::Acquire);
        if word & (LATCHED | OBSOLETE) == 0 { Some(word) } else { self.read_slowly() }
    }

    /// As [`VersionLatch::read`], but never waits: `None` also while a writer is at work.
    pub(super) fn peek(&self) -> Option<u64> {
        // Acquire: as in `read`.
        let word = self.word.load(Ordering::Acquire);
        (word & (LATCHED | OBSOLETE) == 0).then_some(word)
    }

    #[cold]
    fn read_slowly(&self) -> Option<u64> {
        let mut backoff = Backoff::new();
        loop {
            // Acquire: as in `read`.
            let word = self.word.load(Ordering::Acquire);
            if word & OBSOLETE != 0 {
                return None;
            }
            if word & LATCHED == 0 {
                return Some(word);
            }
            backoff.pause();
        }
    }

    /// Whether everything that was loaded since `version` was read belongs to it, and nobody
    /// is about to change it.
    #[inline]
    pub(super) fn is(&self, version: u64) -> bool {
        // Fence R of the module's safety argument: the loads before it, before the word's.
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) == version
    }

    /// Latches, provided that `version` still holds: what was read since then stays true
    /// until the result is dropped. Never waits.
    #[inline]
    pub(super) fn upgrade(&self, version: u64) -> Option<Latched<'_>> {
        // Fence R: as in `is`.
        fence(Ordering::Acquire);
        // Acquire: pairs with the release store in `Latched::drop`.
        self.word.compare_exchange(version, version | LATCHED, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // Fence W of the module's safety argument: *latched* before every store that follows.
        fence(Ordering::Release);
        Some(Latched { latch: self, version, after: version })
    }

    /// Latches, waiting for the thread that holds it; `None` when the node is obsolete. A thread
    /// that waits holds only latches of nodes above or to the left, so nobody waits in a circle.
    pub(super) fn lock(&self) -> Option<Latched<'_>> {
        let mut backoff = Backoff::new();
        loop {
            let version = self.read()?;
            if let Some(latched) = self.upgrade(version) {
                return Some(latched);
            }
            backoff.pause();
        }
    }
}

/// Proof that a latch is held; dropping it lets go.
#[derive(Debug)]
#[must_use = "dropping it lets go of the latch"]
pub(super) struct Latched<'a> {
    latch: &'a VersionLatch,
    version: u64,
    after: u64,
}

impl Latched<'_> {
    /// To be called before the first store to what is protected: the version will move.
    #[inline]
    pub(super) fn change(&mut self) {
        self.after = self.version + STEP;
    }

    /// The node is being unlinked: a thread that comes across it later turns back.
    pub(super) fn retire(&mut self) {
        self.after = (self.version + STEP) | OBSOLETE;
    }
}

impl Drop for Latched<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire loads in `read` and `upgrade`.
        self.latch.word.store(self.after, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_change_moves_the_version_and_only_a_change() {
        let latch = VersionLatch::new();
        let before = latch.read().unwrap();
        let idle = latch.upgrade(before).unwrap();
        assert!(!latch.is(before), "latched");
        assert!(latch.upgrade(before).is_none());
        drop(idle);
        assert!(latch.is(before));
        latch.lock().unwrap().change();
        assert!(!latch.is(before));
    }

    #[test]
    fn an_obsolete_node_stays_so() {
        let latch = VersionLatch::new();
        latch.lock().unwrap().retire();
        assert!(latch.read().is_none());
        assert!(latch.lock().is_none());
    }
}

#[cfg(all(test, loom))]
mod model {
    use freshet_base::sync::{Arc, AtomicU32, thread};

    use super::*;

    struct Protected {
        latch: VersionLatch,
        words: [AtomicU32; 2],
    }

    impl Protected {
        fn new() -> Arc<Self> {
            Arc::new(Self { latch: VersionLatch::new(), words: [AtomicU32::new(0), AtomicU32::new(0)] })
        }

        /// What a reader takes for true: both words, if they were read at one version.
        fn read(&self) -> Option<(u64, [u32; 2])> {
            let version = self.latch.read()?;
            let words = [self.words[0].load(Ordering::Relaxed), self.words[1].load(Ordering::Relaxed)];
            self.latch.is(version).then_some((version, words))
        }

        fn write(&self) {
            let Some(mut latched) = self.latch.lock() else { return };
            latched.change();
            let next = self.words[0].load(Ordering::Relaxed) + 1;
            self.words[0].store(next, Ordering::Relaxed);
            self.words[1].store(next, Ordering::Relaxed);
        }
    }

    /// A reader never takes half of a write for true.
    #[test]
    fn a_validated_read_is_of_one_version() {
        loom::model(|| {
            let shared = Protected::new();
            let writer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.write())
            };
            if let Some((_, [first, second])) = shared.read() {
                assert_eq!(first, second);
            }
            writer.join().unwrap();
            assert_eq!(shared.read().unwrap().1, [1, 1]);
        });
    }

    /// Read, decide, upgrade: no other writer comes in between, so no increment is lost.
    #[test]
    fn an_upgrade_holds_only_at_the_version_that_was_read() {
        loom::model(|| {
            let shared = Protected::new();
            let increment = |shared: &Protected| {
                let Some((version, [first, _])) = shared.read() else { return 0 };
                let Some(mut latched) = shared.latch.upgrade(version) else { return 0 };
                latched.change();
                shared.words[0].store(first + 1, Ordering::Relaxed);
                shared.words[1].store(first + 1, Ordering::Relaxed);
                1
            };
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || increment(&shared))
            };
            let mine = increment(&shared);
            let theirs = other.join().unwrap();
            let sum = mine + theirs;
            assert_eq!(shared.read().unwrap().1, [sum, sum]);
        });
    }

    /// Two writers exclude one another.
    #[test]
    fn writers_take_turns() {
        loom::model(|| {
            let shared = Protected::new();
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.write())
            };
            shared.write();
            other.join().unwrap();
            assert_eq!(shared.read().unwrap().1, [2, 2]);
        });
    }

    /// Certification: a writer inserts and then announces; a certifier that sees the
    /// announcement finds the version of what it had read moved.
    #[test]
    fn a_certifier_sees_what_was_announced_before() {
        loom::model(|| {
            let shared = Protected::new();
            let announced = Arc::new(AtomicU32::new(0));
            let (version, words) = shared.read().unwrap();
            assert_eq!(words, [0, 0]);
            let writer = {
                let (shared, announced) = (Arc::clone(&shared), Arc::clone(&announced));
                thread::spawn(move || {
                    shared.write();
                    // Release: pairs with the acquire load below, as LSNs do in the log.
                    announced.store(1, Ordering::Release);
                })
            };
            if announced.load(Ordering::Acquire) == 1 {
                assert!(!shared.latch.is(version));
            }
            writer.join().unwrap();
        });
    }
}
