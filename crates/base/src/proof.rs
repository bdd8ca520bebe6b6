//! What a node knows against its own state.

use std::{
    fmt::Display,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::Lsn;

/// Whether a node's state may be believed: shared by all who compare it with something (the sweep,
/// the identity sums) and by all who have to heed what came of that (votes, readers, the status).
///
/// A doubt stays until the node is started again: with that its state is made again of checkpoint
/// and log, or of another node's.
#[derive(Debug)]
pub struct StateProof {
    /// The first one: what comes later may follow from it.
    doubt: OnceLock<Arc<str>>,
    /// Whether a node that is in doubt withdraws.
    withdraws: AtomicBool,
    /// The last mark at which the state was that of the primary; zero before the first.
    equal_at: AtomicU64,
}

impl Default for StateProof {
    fn default() -> Self {
        Self::new(true)
    }
}

impl StateProof {
    /// Nothing speaks against the state. With `withdraws` a doubt has consequences; otherwise it is
    /// only told.
    pub fn new(withdraws: bool) -> Self {
        Self { doubt: OnceLock::new(), withdraws: AtomicBool::new(withdraws), equal_at: AtomicU64::new(0) }
    }

    /// Something speaks against it. Returns whether that is the first; the others are not kept.
    pub fn doubt(&self, reason: impl Display) -> bool {
        self.doubt.set(reason.to_string().into()).is_ok()
    }

    /// The state was found to be that of the primary at this mark.
    pub fn note_equal(&self, at: Lsn) {
        self.equal_at.fetch_max(at.0, Ordering::Relaxed);
    }

    /// The last mark at which that was so, since the node was started.
    pub fn equal_at(&self) -> Option<Lsn> {
        Some(Lsn(self.equal_at.load(Ordering::Relaxed))).filter(|at| *at > Lsn::ZERO)
    }

    /// What speaks against it, if anything does.
    pub fn reason(&self) -> Option<Arc<str>> {
        self.doubt.get().cloned()
    }

    /// The same, where it has consequences: the node has no vote and, unless it is the primary,
    /// serves no readers. Cheap while nothing does.
    #[inline]
    pub fn withdrawn(&self) -> Option<Arc<str>> {
        self.reason().filter(|_| self.withdraws.load(Ordering::Relaxed))
    }

    /// Whether doubts have consequences from now on, those that are there included.
    pub fn set_withdraws(&self, withdraws: bool) {
        self.withdraws.store(withdraws, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_doubt_stays_and_has_consequences_while_it_may() {
        let proof = StateProof::default();
        assert_eq!((proof.reason(), proof.withdrawn()), (None, None));
        assert!(proof.doubt("one") && !proof.doubt("two"));
        assert_eq!(proof.withdrawn().as_deref(), Some("one"));
        proof.set_withdraws(false);
        assert_eq!((proof.reason().as_deref(), proof.withdrawn()), (Some("one"), None));
    }
}
