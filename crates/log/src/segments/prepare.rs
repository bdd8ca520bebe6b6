//! Making the next segment while the current one is written. When there is no room for it, that is
//! waited for (module `room`).

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::{Need, Shared, lock};

/// The thread that makes the next segment, if one is at work.
#[derive(Debug)]
pub(super) struct Preparer {
    at_work: Mutex<Option<JoinHandle<()>>>,
    /// The segment that was last tried ahead without success; one attempt is enough.
    failed: AtomicU64,
}

impl Default for Preparer {
    fn default() -> Self {
        Self { at_work: Mutex::default(), failed: AtomicU64::new(u64::MAX) }
    }
}

impl Preparer {
    /// Waits for a segment that is being made.
    pub(super) fn finish(&self) {
        let at_work = lock(&self.at_work).take();
        if let Some(thread) = at_work {
            // It does not panic; if it did, the segment is missing and will be made by the thread
            // that needs it.
            let _ = thread.join();
        }
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        // The thread holds the store, so the last reference may be dropped by that thread
        // itself.
        let at_work = lock(&self.at_work).take();
        if let Some(thread) = at_work
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Starts making the segment at `start`, unless it is there or being made. A failure is not told
/// here: a thread that needs the segment tries again and then tells.
pub(super) fn ahead(shared: &Arc<Shared>, start: u64) {
    let size = shared.config.segment_size;
    let wanted = || shared.segments.read().is_ok_and(|segments| segments.end(size) == start);
    if !wanted() {
        return;
    }
    let mut at_work = lock(&shared.preparer.at_work);
    // Relaxed: a hint, written by the thread whose end is seen here.
    let failed = shared.preparer.failed.load(Ordering::Relaxed) == start;
    // Wanted still: a thread that has just finished may have made it.
    if failed || at_work.as_ref().is_some_and(|thread| !thread.is_finished()) || !wanted() {
        return;
    }
    // Once more, now that nobody is at work: it may have been made since. A second one would come
    // in place of the first, which is written to.
    if !wanted() {
        return;
    }
    let store = Arc::clone(shared);
    let work = move || {
        // This thread is not the only one that has the store.
        let wanted = || Arc::strong_count(&store) > 1;
        match store.with_room(Need::Later, wanted, || store.make_segment(start)) {
            // Given up for a thread that needs the segment now, or to be tried again later.
            Err(error) if error.lacks_room() => {}
            Err(_) => store.preparer.failed.store(start, Ordering::Relaxed),
            Ok(()) => {}
        }
    };
    // If no thread can be had, the caller that needs the segment makes it.
    *at_work = thread::Builder::new().name("log-prepare".to_owned()).spawn(work).ok();
}
