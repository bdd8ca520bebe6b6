//! A primary that a node cannot follow, since the node has promised the term to a third one, hands
//! its role over: the next primary leads in a later term, which all nodes enter. If no node can
//! take the role, and commits wait, the primary starts again, and leads in a later term itself; it
//! does so too, though commits go on, when no node takes the role several times in a row, as where
//! all that are in sync are mirrors: else the node that cannot follow stays away for good.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use freshet_engine::Node;

/// How often it tries.
const EVERY: Duration = Duration::from_secs(10);
/// After this number of attempts in a row it starts again, whether commits wait or not.
const ATTEMPTS: u32 = 3;

/// What looks whether the node is such a primary.
pub(crate) struct ContestWatch {
    node: Arc<Node>,
    due: Instant,
    /// How often no node has taken the role, since the term was contested.
    failures: Arc<AtomicU32>,
    starts_again: Arc<AtomicBool>,
}

impl ContestWatch {
    pub fn new(node: Arc<Node>) -> Self {
        Self { node, due: Instant::now(), failures: Arc::default(), starts_again: Arc::default() }
    }

    /// Begins a switch-over if that is due; does not block for it. Says whether the node is to
    /// start again.
    pub fn look(&mut self) -> bool {
        if Instant::now() >= self.due {
            if self.node.is_contested() {
                self.due = Instant::now() + EVERY;
                self.begin();
            } else {
                self.failures.store(0, Ordering::SeqCst);
            }
        }
        self.starts_again.load(Ordering::SeqCst)
    }

    fn begin(&self) {
        let (weak, failures) = (Arc::downgrade(&self.node), Arc::clone(&self.failures));
        let starts_again = Arc::clone(&self.starts_again);
        let run = move || {
            let Some(node) = weak.upgrade() else { return };
            // It has said that its term is contested.
            if let Err(cause) = node.switch_over(None) {
                tracing::warn!(%cause, "this primary, whose term is contested, cannot hand its role over");
                let has_tried = failures.fetch_add(1, Ordering::SeqCst) + 1 >= ATTEMPTS;
                starts_again.store(node.is_contested() && (node.is_blocked() || has_tried), Ordering::SeqCst);
            }
        };
        if let Err(cause) = thread::Builder::new().name("contest".into()).spawn(run) {
            tracing::warn!(%cause, "this primary, whose term is contested, cannot start a thread");
        }
    }
}
