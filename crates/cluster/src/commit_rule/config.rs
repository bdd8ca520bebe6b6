use std::time::Duration;

use freshet_base::Safety;
use serde::{Deserialize, Serialize};

use crate::in_sync::Counting;

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

/// The rule's parameters, fixed for one term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleConfig {
    /// What a commit promises.
    pub safety: Safety,
    /// How many standbys the cluster is meant to have.
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

    /// How many standbys must have persisted a block before it commits; `None` where that
    /// depends on the in-sync set.
    pub(super) fn needed(&self) -> Option<usize> {
        match self.safety {
            Safety::OneSafe => Some(0),
            Safety::TwoSafe => None,
            Safety::VerySafe => Some(self.standbys as usize),
            Safety::Quorum(k) => Some(k.saturating_sub(1) as usize),
        }
    }

    /// How many standbys have to keep up, without which nothing commits.
    pub fn least(&self) -> u32 {
        self.needed().map_or(self.floor, |needed| u32::try_from(needed).unwrap_or(u32::MAX))
    }

    /// How in-sync sets are made; none are recorded under 1-safe.
    pub(super) fn counting(&self) -> Option<Counting> {
        let members = self.needed().map(|standbys| u32::try_from(standbys).unwrap_or(u32::MAX).saturating_add(1));
        match self.safety {
            Safety::OneSafe => None,
            Safety::TwoSafe => Some(Counting { quorum: None, floor: self.floor }),
            Safety::VerySafe | Safety::Quorum(_) => {
                members.map(|members| Counting { quorum: Some(members), floor: members - 1 })
            }
        }
    }

    /// Whether a commit waits for no standby: what is durable on the primary is committed.
    pub fn counts_on_nobody(&self) -> bool {
        self.needed() == Some(0)
    }

    /// Whether it matters how many synchronous standbys there are: commits, failovers and restarts
    /// count them.
    pub fn counts_standbys(&self) -> bool {
        matches!(self.safety, Safety::VerySafe | Safety::Quorum(_))
    }

    /// Whether the level can be reached at all.
    ///
    /// # Errors
    /// [`WrongQuorum`] when a quorum is larger than the cluster, or zero.
    pub fn check(&self) -> Result<(), WrongQuorum> {
        match self.safety {
            Safety::Quorum(k) if k == 0 || k > self.standbys.saturating_add(1) => {
                Err(WrongQuorum { k, nodes: self.standbys.saturating_add(1) })
            }
            _ => Ok(()),
        }
    }
}

/// A safety level that this cluster can never reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "safety level quorum:{k} needs a quorum between 1 and the number of nodes, and this cluster has {nodes}: \
     choose a smaller quorum, or configure more standbys"
)]
pub struct WrongQuorum {
    /// The quorum asked for.
    pub k: u32,
    /// The primary and its configured standbys.
    pub nodes: u32,
}
