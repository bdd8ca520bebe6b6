//! What holds of a host after each change.

use freshet_base::{Lsn, Stage, check};

use super::Host;

impl Host {
    /// # Panics
    /// When the host has broken one of its laws: nothing may be shipped any more.
    pub(super) fn check(&self) {
        let filled = self.filled_to();
        assert_eq!(self.sender.end, filled, "the log has two ends");
        if let Some((last, _)) = self.batches.back().filter(|_| !self.relays()) {
            assert_eq!(*last, filled, "the newest batch is not the last");
        }
        for feed in self.feeds.values() {
            let node = feed.node;
            check(&[(Stage::Ack, feed.acked()), (Stage::Ship, feed.shipped()), (Stage::Log, filled)]);
            check(&[(Stage::Commit, feed.flow.global_sent()), (Stage::Commit, self.global)]);
            assert!(feed.peers <= self.peers, "{node} was sent a list of peers that there is not");
            assert!(feed.flow.keeps_within_credit(), "{node} was sent more than it has granted");
        }
    }

    /// The batch `[from, to)` comes.
    pub(super) fn check_batch(&self, from: Lsn, to: Lsn, ends: &[Lsn]) {
        assert!(from < to, "a batch from {from} to {to}");
        assert_eq!(from, self.filled_to(), "batches follow one another");
        let within = ends.iter().all(|end| from < *end && *end <= to) && ends.is_sorted();
        assert!(within, "a batch from {from} to {to} has ends that are not its own: {ends:?}");
    }

    /// A node has one feed.
    pub(super) fn check_feeds(&self) {
        let mut nodes: Vec<_> = self.feeds.values().map(|feed| feed.node).collect();
        nodes.sort_unstable();
        assert!(nodes.windows(2).all(|pair| pair[0] < pair[1]), "a node is fed twice");
    }
}
