//! One standby, as the commit rule sees it.

use std::time::Duration;

use freshet_base::{Lsn, NodeId};
use serde::{Deserialize, Serialize};

use crate::{
    Moment,
    in_sync::{Holder, SetName},
};

/// Where a standby stands with respect to the in-sync set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Not waited for (under 2-safe).
    Behind,
    /// Waited for, and not yet level with what was committed without it.
    Joining,
    /// Waited for, and holds everything that is committed.
    InSync,
    /// Put out, and waited for until that is on record.
    Leaving,
}

/// One standby, as the rule sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Persistent there, as far as it told us. Of a witness: where the newest set ends that it has
    /// noted.
    pub acked: Lsn,
    /// It is a witness.
    pub witness: bool,
    /// Of a witness: the newest set that it has noted.
    pub(super) noted: Option<SetName>,
    /// Which log that is: [`Holder::incarnation`].
    pub(super) incarnation: u64,
    /// It has answered the candidate that became this primary, or joined during this term.
    pub(super) answered: bool,
    /// When what it has answered last was sent to it, by this primary's clock.
    pub(super) observed: Option<Moment>,
    /// Whether there is a connection.
    pub connected: bool,
    /// Whether commits may count on it.
    pub synchronous: bool,
    /// Its relation to the in-sync set.
    pub place: Place,
    /// When it got that place.
    pub since: Moment,
    /// The oldest position known to be outstanding, and since when.
    pub(super) outstanding: Option<(Lsn, Moment)>,
    /// What it must acknowledge before it may join again.
    pub(super) must_reach: Lsn,
    /// It has stalled for too long, even if it cannot be put out.
    pub(super) stalls: bool,
    /// An operator took it out of the cluster: it goes as soon as it may.
    pub(super) forgotten: bool,
    /// It is about to begin again, and was synchronous before.
    pub(super) excused: bool,
    /// It has not answered the candidate that became this primary, nor come since, and a witness
    /// may consent to continue without it.
    pub(super) absent: bool,
}

impl Member {
    /// When the newest was sent to it that it has answered, by this primary's clock: it was there
    /// since then.
    pub fn observed(&self) -> Option<Moment> {
        self.observed
    }

    pub(crate) fn unknown(now: Moment) -> Self {
        Self {
            acked: Lsn::ZERO,
            witness: false,
            noted: None,
            incarnation: 0,
            answered: false,
            observed: None,
            connected: false,
            synchronous: true,
            place: Place::Behind,
            since: now,
            outstanding: None,
            must_reach: Lsn::ZERO,
            stalls: false,
            forgotten: false,
            excused: false,
            absent: false,
        }
    }

    /// Whether it has answered the candidate that became this primary, or joined during this term.
    pub fn has_answered(&self) -> bool {
        self.answered
    }

    /// Lets it go, or takes it back. Says whether that is a change.
    pub(super) fn excuse(&mut self, excused: bool) -> bool {
        let changes = if excused { self.synchronous } else { self.excused };
        if changes {
            (self.excused, self.synchronous) = (excused, !excused);
        }
        changes
    }

    /// The log that this standby, which is `node`, has.
    pub fn holder(&self, node: NodeId) -> Holder {
        Holder { witness: self.witness, ..Holder::new(node, self.incarnation) }
    }

    /// Whether it has acknowledged everything up to there, if it holds data.
    pub(super) fn holds(&self, upto: Lsn) -> bool {
        self.witness || self.acked >= upto
    }

    pub(super) fn waited_for(&self) -> bool {
        self.place != Place::Behind
    }

    /// Whether it is in sync at this moment. One that is disconnected, and still waited for, is
    /// not.
    pub(super) fn keeps_up(&self) -> bool {
        self.place == Place::InSync && self.connected && !self.stalls
    }

    /// Remembers what to wait for next, given what is durable now.
    pub(super) fn mark(&mut self, durable: Lsn, now: Moment) {
        match self.outstanding {
            Some((at, _)) if self.acked < at => {}
            _ if self.acked < durable => self.outstanding = Some((durable, now)),
            _ => self.outstanding = None,
        }
    }

    pub(super) fn stalled(&self, timeout: Duration, now: Moment) -> bool {
        self.absent || self.outstanding.is_some_and(|(_, since)| now.since(since) >= timeout)
    }

    pub(super) fn move_to(&mut self, place: Place, now: Moment) {
        if self.place != place {
            self.place = place;
            self.since = now;
        }
    }
}
