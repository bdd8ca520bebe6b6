//! A primary that a node cannot follow, since the node has promised the term to a third one, hands
//! its role over: the next primary leads in a later term, which all nodes enter. If no node can
//! take the role, and commits wait, the primary starts again, and leads in a later term itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use freshet_engine::Node;

/// How often it tries.
const EVERY: Duration = Duration::from_secs(10);

/// What looks whether the node is such a primary.
pub(crate) struct ContestWatch {
    node: Arc<Node>,
    due: Instant,
    starts_again: Arc<AtomicBool>,
}

impl ContestWatch {
    pub fn new(node: Arc<Node>) -> Self {
        Self { node, due: Instant::now(), starts_again: Arc::default() }
    }

    /// Begins a switch-over if that is due; does not block for it. Says whether the node is to
    /// start again.
    pub fn look(&mut self) -> bool {
        if Instant::now() >= self.due && self.node.is_contested() {
            self.due = Instant::now() + EVERY;
            self.begin();
        }
        self.starts_again.load(Ordering::SeqCst)
    }

    fn begin(&self) {
        let (weak, starts_again) = (Arc::downgrade(&self.node), Arc::clone(&self.starts_again));
        let run = move || {
            let Some(node) = weak.upgrade() else { return };
            // It has said that its term is contested.
            if let Err(cause) = node.switch_over(None) {
                tracing::warn!(%cause, "this primary, whose term is contested, cannot hand its role over");
                starts_again.store(node.is_contested() && node.is_blocked(), Ordering::SeqCst);
            }
        };
        if let Err(cause) = thread::Builder::new().name("contest".into()).spawn(run) {
            tracing::warn!(%cause, "this primary, whose term is contested, cannot start a thread");
        }
    }
}
