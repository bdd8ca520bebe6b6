//! Visible: up to where readers see, min(replayed, own persisted, globally persistent).
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
    visible: Arc<Watermark>,
}

impl VisibleStage {
    pub fn new(replayed: Stamp, global: Stamp) -> Self {
        let visible = Arc::new(Watermark::new(replayed.min(global)));
        Self { replayed: AtomicU64::new(replayed.0), global: AtomicU64::new(global.0), visible }
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

    pub fn raise_global(&self, to: Stamp) {
        self.global.fetch_max(to.0, Ordering::AcqRel);
    }

    pub fn update(&self, persisted: Stamp) {
        // Orders the caller's move of one bound before the reading of the others.
        fence(Ordering::SeqCst);
        self.visible.advance(self.replayed().min(self.global()).min(persisted));
    }
}
