use std::borrow::Cow;

use freshet_base::{NodeId, Safety, Term};
use serde::{Deserialize, Serialize};

use super::{CommitRule, Member, Place, WhenMissing};
use crate::Moment;

/// How the promise of the safety level stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "standing", rename_all = "kebab-case")]
pub enum Standing {
    /// Every configured standby keeps up.
    Safe,
    /// Commits go on, with fewer standbys keeping up than configured.
    Degraded {
        /// Since when.
        since: Moment,
        /// How many standbys keep up.
        in_sync: u32,
        /// How many are configured.
        configured: u32,
        /// Those known by name that do not.
        behind: Vec<NodeId>,
    },
    /// Nothing commits: too few standbys keep up, or one does not that may not be left out.
    Blocked {
        /// Since when.
        since: Moment,
        /// How many standbys keep up.
        in_sync: u32,
        /// How many it takes.
        needed: u32,
        /// When commits will begin to be refused, if ever.
        refuses_at: Option<Moment>,
        /// Those known by name for whom commits wait.
        waits_for: Vec<NodeId>,
        /// What an operator can do, unless commits wait for a moment only.
        remedy: Option<Cow<'static, str>>,
    },
    /// Nothing commits, and clients that wait or begin to write are told so.
    Refusing {
        /// Blocked since when.
        since: Moment,
        /// How many standbys keep up.
        in_sync: u32,
        /// How many it takes.
        needed: u32,
        /// What an operator can do.
        remedy: Option<Cow<'static, str>>,
    },
    /// Another node leads; this one acknowledges nothing any more.
    Fenced {
        /// In this term.
        by: Term,
    },
    /// Nothing becomes durable on the primary itself. The commit rule does not know of that; what
    /// shows a standing does.
    Stalled {
        /// What its log waits for, or why it takes no more.
        why: String,
    },
    /// Nothing is confirmed: the lease is over ([`CommitRule::lease_until`]), and another node may
    /// lead. The commit rule does not count that; what shows a standing does.
    LeaseOver {
        /// Since when.
        since: Moment,
        /// What that means.
        why: Cow<'static, str>,
    },
}

/// Why a writer is turned away before it starts, or stops waiting for its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Too few standbys for too long.
    #[error(
        "commits are refused: {safety} needs {needed} standbys that keep up and has {in_sync}; \
         bring a standby back, or choose another safety level"
    )]
    TooFewStandbys {
        /// The level in force.
        safety: Safety,
        /// How many standbys it takes.
        needed: u32,
        /// How many keep up.
        in_sync: u32,
    },
    /// Another node has taken over.
    #[error("commits are refused: another node became the primary in term {by}; connect to that one")]
    Fenced {
        /// Its term.
        by: Term,
    },
}

impl CommitRule {
    /// How the promise stands, for `status`.
    pub fn standing(&self) -> Standing {
        let in_sync = self.in_sync();
        if let Some(by) = self.fenced {
            return Standing::Fenced { by };
        }
        if let Some(since) = self.blocked_since {
            let needed = self.needed_now();
            if self.refusing {
                return Standing::Refusing { since, in_sync, needed, remedy: self.remedy() };
            }
            let refuses_at = match self.config.when_missing {
                WhenMissing::RefuseAfter(patience) if self.may_refuse() => Some(since.after(patience)),
                _ => None,
            };
            let (waits_for, remedy) = (self.waits_for(), self.remedy());
            return Standing::Blocked { since, in_sync, needed, refuses_at, waits_for, remedy };
        }
        match self.degraded_since {
            None => Standing::Safe,
            Some(since) => Standing::Degraded {
                since,
                in_sync,
                configured: self.expected(),
                behind: self
                    .members
                    .iter()
                    .filter(|(_, member)| member.synchronous && !member.witness)
                    .filter(|(_, member)| member.place != Place::InSync || !member.connected)
                    .map(|(id, _)| *id)
                    .collect(),
            },
        }
    }

    /// How many standbys it takes at this moment.
    pub(super) fn needed_now(&self) -> u32 {
        match self.needed() {
            Some(needed) => needed,
            None if self.settled => self.floor(),
            None => self.expected(),
        }
    }

    /// For whom commits wait at present.
    pub(super) fn waits_for(&self) -> Vec<NodeId> {
        let missed = |(node, member): &(&NodeId, &Member)| match self.awaited() {
            Some(_) => self.is_missed(**node, member) || member.place != Place::InSync && member.synchronous,
            None => member.synchronous && (!member.connected || member.stalls || member.place != Place::InSync),
        };
        self.members.iter().filter(missed).map(|(node, _)| *node).collect()
    }

    /// What an operator can do where commits wait, unless time alone helps.
    pub(super) fn remedy(&self) -> Option<Cow<'static, str>> {
        let is_missed = || self.members.iter().any(|(node, member)| self.is_missed(*node, member));
        let what = match self.needed() {
            _ if self.is_orphaned() => {
                "the nodes that held what was committed before have lost it, and may have led again before that: if no \
                 other node is the primary, restart this node once with --force-primary and without --join"
            }
            Some(_) => {
                "start the standbys again that are missing, or see in their logs why they cannot follow; for one that \
                 is gone for good, start a node at its address, or remove it (freshet remove --gone)"
            }
            None if self.members.iter().any(|(node, member)| member.witness && self.is_missed(*node, member)) => {
                "start the witness again, or another one at its address; if it is gone for good, remove it (freshet \
                 remove --gone), and with it the standbys that are gone for good"
            }
            None if is_missed() => {
                "start the nodes again for which commits wait; those that are gone for good, remove, all of them in \
                 one command (freshet remove --gone)"
            }
            None if self.below_floor() => "let another standby join",
            None => return None,
        };
        Some(what.into())
    }
}
