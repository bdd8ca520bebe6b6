use freshet_base::sync::Arc;
use freshet_cluster::term::TermState;

use super::*;
use crate::{terms::VolatileTerms, wire};

fn terms() -> Terms {
    Terms::new(TermState::empty(), Arc::new(VolatileTerms))
}

fn standby(node: u64) -> StandbyStatus {
    StandbyStatus::of(NodeId(node))
}

fn table(safety: Safety, set: Option<InSyncSet>) -> Table {
    let own = MemberStatus { role: MemberRole::Primary, ..MemberStatus::own(NodeId(1), "a:1") };
    Table::new(own, Term(3), true, Votes { safety: Some(safety), set })
}

/// A set of these nodes, whose logs have the number 7.
fn set(nodes: &[u64]) -> InSyncSet {
    let members = nodes.iter().map(|node| Holder::new(NodeId(*node), 7)).collect();
    let (level, since, quorum, floor, before) = (Safety::Quorum(2), Lsn::ZERO, Some(2), 1, Vec::new());
    let (term, primary, after, roster) = (Term(1), NodeId(1), Term(0), Box::default());
    InSyncSet { term, primary, number: 1, first: 1, after, members, level, since, quorum, floor, before, roster }
}

#[test]
fn a_lag_is_unknown_until_the_node_has_answered() {
    let silent = StandbyStatus { connected: true, ack_lag_bytes: 0, ..standby(2) };
    let answered = StandbyStatus { answered: true, ack_lag: Some(Duration::ZERO), ..silent.clone() };
    let away = StandbyStatus { connected: false, ..answered.clone() };
    let lag = |standby| MemberStatus::of_standby(standby, NodeId(1), false).lag;
    assert_eq!((lag(&silent), lag(&away)), (None, None));
    assert_eq!(lag(&answered), Some(Lag::default()));
}

#[test]
fn who_has_no_vote_has_a_reason() {
    let mut table = table(Safety::TwoSafe, None);
    let doubtful = StandbyStatus { in_doubt: true, connected: true, ..standby(2) };
    let asynchronous = StandbyStatus { synchronous: false, connected: true, ..standby(3) };
    table.add_fed(&[doubtful, asynchronous, standby(4)], &[], false);
    table.add_missing(&[Peer { node: Some(NodeId(5)), address: "e:1".into(), serves: true }], None);
    let members = table.finish(&terms(), Some("safe"), None);
    let votes: Vec<_> = members.nodes.iter().map(|it| (it.node.0, it.vote, it.no_vote.is_some())).collect();
    assert_eq!(votes, [(1, true, false), (2, false, true), (3, false, true), (4, false, true), (5, false, true)]);
    let bytes = wire::encode_in(wire::PROTOCOL, &Reply::Members(Box::new(members.clone())));
    assert_eq!(
        wire::decode_first("answer", &bytes).map(|decoded| decoded.0),
        Ok(Reply::Members(Box::new(members.clone())))
    );
    let away = &members.nodes[4];
    assert_eq!((away.connected, away.in_sync, away.lag), (Some(false), Some(false), None));
}

/// A node whose directory was emptied is not the one that commits count on.
#[test]
fn a_vote_is_that_of_a_log() {
    let set = set(&[1, 2, 3]);
    let mut table = table(Safety::Quorum(2), Some(set));
    let with = |node, incarnation| StandbyStatus {
        connected: true,
        log: Holder::new(NodeId(node), incarnation),
        ..standby(node)
    };
    table.add_fed(&[with(2, 7), with(3, 8), with(4, 7)], &[], false);
    let votes: Vec<_> = table.members.nodes.iter().map(|it| (it.node.0, it.vote)).collect();
    assert_eq!(votes, [(1, true), (2, true), (3, false), (4, false)]);
}

#[test]
fn who_is_away_is_shown_for_a_while_though_no_commit_counts_on_it() {
    let away = |node, time| StandbyStatus {
        synchronous: false,
        connected_or_away_for: Some(Duration::from_secs(time)),
        ..standby(node)
    };
    let here = StandbyStatus { connected: true, ..away(2, 5) };
    for relay in [false, true] {
        let mut table = table(Safety::Quorum(2), None);
        table.add_fed(&[away(3, 90_000), away(4, 60), away(5, 7), here.clone()], &[], relay);
        let shown: Vec<_> = table.members.nodes.iter().map(|it| (it.node.0, it.role, it.connected)).collect();
        let asynchronous = |node, connected| (node, MemberRole::Asynchronous, Some(connected));
        assert_eq!(shown[1..], [asynchronous(2, true), asynchronous(5, false), asynchronous(4, false)]);
    }
    let mut table = table(Safety::Quorum(2), None);
    let many: Vec<_> = (2..40).map(|node| away(node, node)).collect();
    table.add_fed(&many, &[], false);
    let last = table.members.nodes.last().map(|it| it.node);
    assert_eq!((table.members.nodes.len(), last), (1 + MOST_AWAY, Some(NodeId(1 + MOST_AWAY as u64))));
}

#[test]
fn no_more_nodes_are_shown_than_a_cluster_has() {
    let mut table = table(Safety::OneSafe, None);
    let standbys: Vec<_> = (2..200).map(standby).collect();
    table.add_fed(&standbys, &[], false);
    table.add_fed(&standbys[..3], &[], false);
    let members = table.finish(&terms(), None, None);
    assert_eq!((members.nodes.len(), members.left_out), (MOST, 199 - MOST as u32));
    assert!(members.nodes[1..].iter().all(|node| !node.vote));
}

/// It followed this node while that led before, and is below its relay again.
#[test]
fn who_is_fed_by_a_relay_is_not_away() {
    let away = StandbyStatus { synchronous: false, connected_or_away_for: Some(Duration::from_secs(5)), ..standby(3) };
    let below = |node| {
        let fed = StandbyStatus { connected: true, ..standby(node) };
        MemberStatus::of_standby(&fed, NodeId(2), true)
    };
    let mut table = table(Safety::Quorum(2), None);
    table.add_fed(&[away, StandbyStatus { connected: true, relay: true, ..standby(2) }], &[], false);
    table.add_below([below(3), below(2), MemberStatus { follows: None, ..below(4) }].into_iter());
    let shown: Vec<_> = table.members.nodes.iter().map(|it| (it.node.0, it.role, it.follows.map(|by| by.0))).collect();
    let expected =
        [(1, MemberRole::Primary, None), (2, MemberRole::Relay, Some(1)), (3, MemberRole::Asynchronous, Some(2))];
    assert_eq!(shown[..3], expected);
    assert_eq!(shown[3..], [(4, MemberRole::Asynchronous, None)]);
}

/// Until the relay has ended its connection, it is shown.
#[test]
fn who_was_removed_is_shown_as_long_as_it_is_connected() {
    let mut set = set(&[1, 2]);
    set.roster.removed.push(NodeId(3));
    let mut table = table(Safety::Quorum(2), Some(set));
    let with = |node, connected| StandbyStatus { connected, ..standby(node) };
    table.add_fed(&[with(2, true), with(3, false)], &[], false);
    assert_eq!(table.members.nodes.len(), 2);
    table.add_fed(&[with(3, true)], &[], false);
    assert_eq!(table.members.nodes.len(), 3);
}
