//! What holds of a standby after each change.

use freshet_base::{Lsn, Stage, check};

use super::{Follower, queue::Queue};

impl Follower {
    /// # Panics
    /// When the standby has broken one of its laws: it must neither acknowledge nor show anything
    /// any more.
    pub(super) fn check(&self) {
        let (visible, replayed, received) = (self.visible, self.replayed(), self.received);
        check(&[(Stage::Visible, visible), (Stage::Replay, replayed), (Stage::Receive, received)]);
        check(&[(Stage::Visible, visible), (Stage::Persist, self.persisted), (Stage::Receive, received)]);
        check(&[(Stage::Visible, visible), (Stage::Commit, self.global)]);
        assert!(visible == Lsn::ZERO || visible >= self.floor, "readers see less than the checkpoint has");
        let unbacked = self.unbacked.is_none_or(|acked| acked <= self.persisted);
        assert!(unbacked, "more was acknowledged without memory than is persistent");
        self.queue.check(received);
        if let Some(link) = &self.link {
            check(&[(Stage::Visible, link.visible), (Stage::Visible, visible)]);
        }
        if let Some(passing) = &self.passing {
            check(&[(Stage::Commit, passing.rule.downward()), (Stage::Persist, self.persisted)]);
            check(&[(Stage::Ack, passing.rule.upward()), (Stage::Persist, self.persisted)]);
            assert!(!passing.above.is_empty(), "a relay passes on what nobody has sent");
        }
    }
}

impl Queue {
    fn check(&self, received: Lsn) {
        check(&[(Stage::Replay, self.replayed), (Stage::Replay, self.taken), (Stage::Receive, received)]);
        assert!(self.running || self.failed || self.replayed == self.taken, "a piece was taken, and nobody replays it");
        assert!(!self.running || self.replayed < self.taken, "a piece without bytes is being replayed");
        assert!(self.wanted <= self.until, "what is to be replayed is kept back");
        if let (Some(first), Some(last)) = (self.ends.front(), self.ends.back()) {
            assert!(self.taken < *first && first <= last && *last <= received, "what waits for replay is not there");
        }
    }
}
