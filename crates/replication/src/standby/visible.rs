//! Visible: up to where readers see, the last end of a transaction at or below min(replayed, own persisted, globally persistent). A node that began with a fuzzy
//! checkpoint shows nothing before it has replayed the log up to the checkpoint's end: below, it is no state of the database.
//!
//! Access protocol: the replay thread moves `replayed`, the receiving thread `global`; whoever moved one of the
//! three bounds then recomputes the minimum. A fence between the two lets of any two threads that move different bounds
//! at once at least one see both (each other's fence is its partner).

use freshet_base::{
    Stamp, Watermark,
    sync::{Arc, AtomicU64, Ordering, fence},
};

pub(super) struct VisibleStage {
    replayed: AtomicU64,
    global: AtomicU64,
    floor: Stamp,
    visible: Arc<Watermark>,
}

impl VisibleStage {
    pub fn new(replayed: Stamp, global: Stamp, floor: Stamp) -> Self {
        let first = Some(replayed.min(global)).filter(|first| *first >= floor).unwrap_or_default();
        let visible = Arc::new(Watermark::new(first));
        Self { replayed: AtomicU64::new(replayed.0), global: AtomicU64::new(global.0), floor, visible }
    }

    /// Below this nothing is shown.
    pub fn floor(&self) -> Stamp {
        self.floor
    }

    pub fn watermark(&self) -> &Arc<Watermark> {
        &self.visible
    }

    pub fn replayed(&self) -> Stamp {
        Stamp(self.replayed.load(Ordering::Acquire))
    }

    pub fn global(&self) -> Stamp {
        Stamp(self.global.load(Ordering::Acquire))
    }

    /// Acquire above, release here: what was replayed is visible to who sees the stamp.
    pub fn set_replayed(&self, to: Stamp) {
        self.replayed.store(to.0, Ordering::Release);
    }

    /// The log was cut there: what was committed beyond was lost, in a take-over that was forced.
    pub fn cut_global(&self, at: Stamp) {
        self.global.fetch_min(at.0, Ordering::AcqRel);
    }

    pub fn raise_global(&self, to: Stamp) {
        self.global.fetch_max(to.0, Ordering::AcqRel);
    }

    /// `transaction_end` says where the last transaction ends at or below a stamp: nothing is shown of one that is not there as a whole.
    pub fn update(&self, persisted: Stamp, transaction_end: impl Fn(Stamp) -> Stamp) {
        // Orders the caller's move of one bound before the reading of the others.
        fence(Ordering::SeqCst);
        let global = self.global();
        let least = self.replayed().min(global).min(persisted);
        if least > self.visible.get() {
            // What is committed always stands between transactions, whether the end is remembered here or not.
            let whole = if least == global { least } else { transaction_end(least) };
            if whole >= self.floor {
                self.visible.advance(whole);
            }
        }
    }
}
