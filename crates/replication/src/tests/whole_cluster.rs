//! What is said of the whole cluster, or to it: which nodes there are, and maintenance.

use std::time::Duration;

use freshet_base::{NodeId, Safety, Term};
use freshet_cluster::maintenance::Maintenance;
use freshet_fabric::FabricKind;

use super::{fixture::*, joining::hello, relaying::relay};
use crate::{
    endpoint::CallError,
    members::{MemberRole, Members},
    wire::{Purpose, Refusal, Reply},
};

const HOUR: Duration = Duration::from_secs(3600);

/// A primary, its relay, and an asynchronous standby of that.
fn cascade() -> (PrimaryNode, StandbyNode, StandbyNode) {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let relay = relay(&primary.address(), FabricKind::Tcp, freshet_cluster::relay::RelayAck::Own);
    relay.joined();
    let below = super::configs::asynchronous(super::configs::over(FabricKind::Tcp));
    let leaf = NewStandby::new(4).following(relay.address()).config(below).start();
    leaf.joined();
    let end = primary.write(&[64]);
    primary.commits(end);
    leaf.shows(end);
    (primary, relay, leaf)
}

fn roles(members: &Members) -> Vec<(u64, MemberRole, bool)> {
    let mut roles: Vec<_> = members.nodes.iter().map(|it| (it.node.0, it.role, it.vote)).collect();
    roles.sort_by_key(|role| role.0);
    roles
}

#[test]
fn each_node_shows_those_below_relays_and_alone_what_it_knows_itself() {
    let (primary, relay, leaf) = cascade();
    let all = [(1, MemberRole::Primary, true), (2, MemberRole::Relay, true), (4, MemberRole::Asynchronous, false)];
    until("the relay knows what the leaf holds", || {
        let members = primary.primary.whole_cluster().members();
        members.nodes.iter().all(|it| it.lag.is_some_and(|lag| lag.bytes == 0))
    });
    for members in [
        primary.primary.whole_cluster().members(),
        relay.standby.whole_cluster().members(),
        leaf.standby.whole_cluster().members(),
    ] {
        assert_eq!((members.by, members.primary, roles(&members)), (NodeId(1), true, all.to_vec()), "{members:?}");
        assert!(members.nodes.iter().all(|it| it.version.is_some() && it.connected == Some(true)), "{members:?}");
    }
    drop(primary);
    until("the relay has lost its primary", || relay.standby.status().in_sync.is_none());
    let members = relay.standby.whole_cluster().members();
    assert!(!members.primary && members.no_primary.is_some(), "{members:?}");
    let own = members.nodes.iter().find(|it| it.node == NodeId(2)).unwrap();
    assert_eq!((own.connected, own.lag, own.in_sync), (Some(false), None, None), "{members:?}");
}

/// At once to those that are known, below a relay with what that sends, and to a node that stands.
#[test]
fn maintenance_reaches_all_nodes_and_who_stands_is_answered_so() {
    let (primary, relay, leaf) = cascade();
    let ordered = relay.standby.whole_cluster().order_maintenance(HOUR);
    assert_eq!((ordered.known, ordered.unreached), (2, vec![]));
    let nodes = [&primary.terms, &relay.terms, &leaf.terms];
    until("all know of it", || nodes.iter().all(|terms| terms.maintained().left().is_some()));
    let asks = |address: &str, stands| {
        let purpose = Purpose::Consult { term: Term(2), binding: false, gives_way: None, handed: None, stands };
        call(address, &hello(3, purpose), Term(2), PATIENCE).map(|(reply, _)| reply)
    };
    let (nothing, mut later) = (Maintenance::default(), Maintenance::default());
    let unaware = Some(nothing.notice(Default::default()));
    for address in [primary.address(), relay.address()] {
        let refused = asks(&address, unaware);
        let maintained = matches!(&refused, Err(CallError::Refused { refusal: Refusal::Maintenance { .. }, .. }));
        assert!(maintained, "{refused:?}");
        assert!(asks(&address, None).is_ok(), "an operator promotes a node all the same");
    }
    // A node that has forgotten it orders something else: that is a later order all the same.
    later.observe(relay.terms.maintained().notice(), Default::default());
    let ends = later.order(7, Duration::ZERO, Default::default());
    assert!(asks(&relay.address(), Some(ends)).is_ok());
    assert_eq!(relay.terms.maintained().left(), None);
    let purpose = Purpose::Maintenance(ends);
    let (reply, _) = call(&primary.address(), &hello(3, purpose), Term(1), PATIENCE).unwrap();
    assert!(matches!(reply, Reply::Maintenance(notice) if notice.order == ends.order), "{reply:?}");
    until("it is over everywhere", || nodes.iter().all(|terms| terms.maintained().left().is_none()));
}
