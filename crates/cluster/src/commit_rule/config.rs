use std::{collections::BTreeSet, time::Duration};

use freshet_base::Safety;
use serde::{Deserialize, Serialize};

use crate::in_sync::{Counting, Holder};

/// What a primary does when it lacks the standbys without which nothing commits
/// (very safe and quorum; 2-safe continues degraded instead).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenMissing {
    /// Commits wait until enough standbys are back.
    #[default]
    Block,
    /// Commits wait this long; then those who wait are told that their outcome is open, and
    /// new writers are refused before they start, until enough standbys are back.
    RefuseAfter(Duration),
}

/// The rule's parameters, fixed for one term but for the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleConfig {
    /// What a commit promises where no set on record says it: in a cluster that begins.
    pub safety: Safety,
    /// How many standbys are expected where no sets are recorded, which say who belongs to the
    /// cluster: below a relay.
    pub standbys: u32,
    /// How long a standby may leave something unacknowledged before it is put out of the in-sync
    /// set.
    pub standby_timeout: Duration,
    /// What happens without enough standbys.
    pub when_missing: WhenMissing,
    /// How many bytes behind `committed` a standby may be when it begins to join the in-sync set.
    pub join_window: u64,
    /// Under 2-safe: commits wait rather than go on with fewer standbys in sync than this. Zero is
    /// 2-safe by its definition.
    pub floor: u32,
    /// How long a standby's answer lets the primary answer without asking again
    /// ([`crate::lease`]); none: the primary does so for ever, although another node may lead.
    pub lease: Option<Duration>,
}

impl RuleConfig {
    /// The customary parameters for a safety level and a number of standbys: two seconds of
    /// patience, blocking, and a join window of 4 MiB.
    pub fn new(safety: Safety, standbys: u32) -> Self {
        Self {
            safety,
            standbys,
            standby_timeout: Duration::from_secs(2),
            when_missing: WhenMissing::Block,
            join_window: 4 << 20,
            floor: 0,
            lease: None,
        }
    }

    /// How many standbys must have persisted a block before it commits, where no sets are recorded;
    /// `None` where that depends on who is in sync.
    pub(super) fn needed(&self) -> Option<u32> {
        match self.safety {
            Safety::OneSafe => Some(0),
            Safety::TwoSafe | Safety::Majority => None,
            Safety::VerySafe => Some(self.standbys),
            Safety::Quorum(k) => Some(k.saturating_sub(1)),
        }
    }

    /// How an in-sync set of these members, the primary included, counts them. Beside a witness, a
    /// candidate may miss one of them. So no set takes effect on the primary alone: the witness, or
    /// another node, has noted each.
    pub(super) fn counting(&self, members: &BTreeSet<Holder>) -> Counting {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let data = members.iter().filter(|member| member.has_data()).count();
        let witnesses = count(members.len() - data);
        let quorum = self.safety.needed(count(data));
        let floor = match quorum {
            Some(quorum) => quorum.saturating_sub(1),
            None => self.kept_in_sync().max(witnesses),
        };
        Counting { quorum, floor }
    }

    /// How many standbys have to stay in sync where commits wait for all that are.
    fn kept_in_sync(&self) -> u32 {
        if self.safety == Safety::TwoSafe { self.floor } else { 0 }
    }

    /// Whether a witness votes in a set of this number of members with data: where that makes a
    /// failover possible which they cannot agree upon alone.
    pub(super) fn wants_witness(&self, data: u32) -> bool {
        self.safety.needed(data).is_none() && self.kept_in_sync() == 0
    }

    /// Whether a witness may be of use at this level.
    pub fn takes_witness(&self) -> bool {
        self.wants_witness(2)
    }
}
