//! A primary that a node cannot follow, since it has promised the term to a third one, hands its role
//! over: the next primary leads in a later term, which everybody enters.

use std::{
    sync::Arc,
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
}

impl ContestWatch {
    pub fn new(node: Arc<Node>) -> Self {
        Self { node, due: Instant::now() }
    }

    /// Begins a switch-over if that is due. Does not block.
    pub fn look(&mut self) {
        if Instant::now() < self.due || !self.node.is_contested() {
            return;
        }
        self.due = Instant::now() + EVERY;
        let weak = Arc::downgrade(&self.node);
        let run = move || {
            let Some(node) = weak.upgrade() else { return };
            // It has said that its term is contested.
            if let Err(cause) = node.switch_over(None) {
                tracing::warn!(%cause, "this primary, whose term is contested, cannot hand its role over");
            }
        };
        if let Err(cause) = thread::Builder::new().name("contest".into()).spawn(run) {
            tracing::warn!(%cause, "this primary, whose term is contested, cannot start a thread");
        }
    }
}
