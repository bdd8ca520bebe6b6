//! How standbys and mirrors of tests are set up.

use std::time::Duration;

use freshet_base::{Lsn, NodeId, Safety, Term};
use freshet_cluster::{in_sync::InSyncSet, term::TermEntry};
use freshet_fabric::FabricKind;

use super::fixture::side;
use crate::{
    follow::{FollowConfig, StandbyFabric},
    mirror::MirrorConfig,
    standby::StandbyConfig,
    terms::Terms,
};

/// A standby that is reached by this fabric.
pub fn over(kind: FabricKind) -> StandbyConfig {
    let fabric = StandbyFabric { kind, config: side(1), ..StandbyFabric::default() };
    following(FollowConfig { fabric, ..FollowConfig::default() })
}

/// A standby that follows so.
pub fn following(follow: FollowConfig) -> StandbyConfig {
    StandbyConfig { follow, ..StandbyConfig::default() }
}

/// The same standby, for which no commit waits.
pub fn asynchronous(config: StandbyConfig) -> StandbyConfig {
    StandbyConfig { follow: FollowConfig { synchronous: false, ..config.follow }, ..config }
}

/// Small, so that it has to grow.
pub fn small(kind: FabricKind) -> MirrorConfig {
    let (head, undo, arena) = (64 << 10, 64 << 10, 64 << 10);
    let back_off = (Duration::from_millis(1), Duration::from_millis(20));
    let follow = FollowConfig { back_off, ..over(kind).follow };
    MirrorConfig { follow, head, undo, arena, ..MirrorConfig::default() }
}

/// The same mirror, with a primary that may be silent for so long.
pub fn patient(config: MirrorConfig, patience: Duration) -> MirrorConfig {
    MirrorConfig { follow: FollowConfig { patience, ..config.follow }, ..config }
}

/// These nodes know of a set in which any `quorum` of them hold every commit.
pub fn are_named(nodes: &[(u64, &Terms)], quorum: u32) {
    let members = nodes.iter().map(|(node, terms)| terms.get().holder(NodeId(*node))).collect();
    let last = nodes.iter().flat_map(|(_, terms)| terms.get().history.entries().to_vec()).max_by_key(|it| it.term);
    let TermEntry { term, node: primary, .. } = last.unwrap();
    let (floor, quorum, before, after) = (quorum - 1, Some(quorum), Vec::new(), Term(0));
    let (level, since, roster) = (Safety::Quorum(floor + 1), Lsn::ZERO, Box::default());
    let set =
        InSyncSet { term, primary, number: 1, first: 1, after, members, level, since, quorum, floor, before, roster };
    nodes.iter().for_each(|(_, terms)| terms.note_set(set.clone()).unwrap());
}
