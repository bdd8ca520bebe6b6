//! An operator finishes an upgrade: from then on the cluster writes what only its present release
//! reads ([`freshet_base::versions`]).

use std::time::Instant;

use freshet_base::versions::{Level, RELEASE};
use freshet_cluster::in_sync::Noted;

use super::{
    Primary,
    on_record::{ON_RECORD, comes_true},
};
use crate::{
    members::{FROM_ABOVE, MemberStatus},
    wire::needed_at,
};

/// Why the format level was not raised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FinishUpgradeError {
    /// Nodes are of an earlier release, or their release is not known.
    #[error(
        "the upgrade to format level {to} (release {RELEASE}) is not finished: {}; upgrade these nodes, or start those \
         that are away, or take those that are gone for good out of the cluster (freshet remove)", .cannot.join(", ")
    )]
    Cannot {
        /// The level.
        to: Level,
        /// Which ones, and why.
        cannot: Vec<String>,
    },
    /// It is not on record yet.
    #[error(
        "whether the upgrade is finished is not on record yet: see `freshet members`, and finish it again; nodes of \
         earlier releases may be refused already"
    )]
    NotRecorded,
}

/// Why this node stands in the way of `level`, if it does.
fn cannot(status: &MemberStatus, level: Level) -> Option<String> {
    let needed = needed_at(level);
    let name = |status: &MemberStatus| match status.address.as_str() {
        "" => status.node.to_string(),
        address => format!("{} at {address}", status.node),
    };
    match status.protocol {
        _ if status.connected == Some(false) => Some(format!("{} is away", name(status))),
        Some(protocol) if protocol >= needed => None,
        Some(protocol) => {
            let version = status.version.as_deref().unwrap_or("an earlier release");
            Some(format!("{} runs {version} (protocol {protocol}, needed is {needed})", name(status)))
        }
        None => Some(format!("of {} the release is not known", name(status))),
    }
}

impl Primary {
    /// The cluster's format level becomes that of this release, which says before which level that
    /// was. Blocks until that is on record, ten seconds at most, and before for a few seconds while
    /// relays are asked.
    ///
    /// # Errors
    /// [`FinishUpgradeError`]; if nodes cannot follow, nothing has changed.
    pub fn finish_upgrade(&self) -> Result<Level, FinishUpgradeError> {
        let (shared, to) = (&self.shared, Level::NEWEST);
        let (before, _) = shared.commit.rule(|rule| rule.format()).ok_or(FinishUpgradeError::NotRecorded)?;
        let members = shared.asked_members(FROM_ABOVE);
        let mut named: Vec<_> = members.nodes.iter().filter_map(|status| cannot(status, to)).collect();
        if members.left_out > 0 {
            named.push(format!("{} more nodes are not known", members.left_out));
        }
        if !named.is_empty() && before < to {
            return Err(FinishUpgradeError::Cannot { to, cannot: named });
        }
        tracing::warn!(term = shared.who.term.0, %before, %to, "an operator finishes an upgrade");
        shared.note(&Noted::Format(to));
        let is_on_record = || shared.commit.rule(|rule| rule.format()).is_some_and(|(level, _)| level >= to);
        if !comes_true(Instant::now() + ON_RECORD, is_on_record) {
            return Err(FinishUpgradeError::NotRecorded);
        }
        Ok(before)
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::NodeId;

    use super::*;

    #[test]
    fn nodes_that_cannot_follow_are_named() {
        let needed = needed_at(Level::NEWEST);
        let of = |protocol, connected| MemberStatus {
            protocol,
            connected,
            address: "b:1".into(),
            ..MemberStatus::unknown(NodeId(0xb))
        };
        let named = |status: MemberStatus| cannot(&status, Level::NEWEST).unwrap_or_default();
        assert_eq!(named(of(Some(needed), Some(true))), "");
        assert_eq!(named(of(Some(needed + 1), Some(true))), "");
        assert!(named(of(Some(needed - 1), Some(true))).contains("000000000000000b at b:1 runs an earlier release"));
        assert!(named(of(Some(needed), Some(false))).ends_with("is away"));
        assert!(named(of(None, None)).ends_with("the release is not known"));
    }
}
