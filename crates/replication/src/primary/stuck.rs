//! Looks whether this primary is [stuck](freshet_cluster::stuck).

use freshet_base::sync::MutexGuard;
use freshet_cluster::stuck::{Seen, Stuck};

use super::Shared;

impl Shared {
    /// Lets its standbys go, where they can choose another primary, when nothing becomes durable
    /// here any more.
    pub(super) fn look_whether_stuck(&self) {
        if self.config.rule.lease.is_none() {
            return;
        }
        let lacking = self.log.out_of_space();
        let seen = Seen {
            failed: self.log.has_failed(),
            lacking: lacking.as_ref().map(|lacking| lacking.since.elapsed()),
            durable: self.log.durable(),
            filled: self.log.filled(),
        };
        let stuck = {
            let mut stuck = self.stuck();
            if !stuck.look(&seen, self.commit.now()) {
                return;
            }
            stuck.is_stuck()
        };
        let term = self.who.term.0;
        if stuck {
            let cause = self.log.stall().unwrap_or_else(|| "its device does not answer".into());
            tracing::error!(term, cause, "nothing becomes durable on this primary: its standbys may choose another");
            self.feeds.end();
        } else if lacking.is_some() {
            tracing::warn!(term, "no other node has taken the place of this primary: it feeds its standbys again");
            self.announce.ring();
        } else {
            tracing::warn!(term, "what is written becomes durable again: this primary feeds its standbys again");
            self.announce.ring();
        }
    }

    fn stuck(&self) -> MutexGuard<'_, Stuck> {
        self.stuck.lock().expect("no code panics under this mutex")
    }

    /// Whether nothing becomes durable here any more, so that another node is to lead.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck().is_stuck()
    }
}
