//! Which voters reach each other.

use freshet_base::{ClusterId, NodeId, Safety, Term, sync::Arc};
use freshet_fabric::{FabricKind, tcp::Connection};

use super::{fixture::*, joining::hello, relaying::relay};
use crate::{
    endpoint::{CallError, Service, answer},
    members::{MOST, Voter, reach::unreached},
    wire::{Hello, Purpose, Refusal, Reply},
};

fn voter(node: u64, address: &str) -> Voter {
    Voter { node: NodeId(node), address: address.to_owned() }
}

/// Answers what it has for those who ask.
struct Replies(Reply);

impl Service for Replies {
    fn serve(&self, _: Hello, connection: Connection) {
        answer(connection, Term(1), &self.0);
    }
}

#[test]
fn a_voter_is_reached_where_it_answers_under_its_own_id() {
    let other_cluster = Refusal::OtherCluster { node: NodeId(5), theirs: ClusterId(8), ours: CLUSTER };
    let nodes = [
        (2, Some(Reply::Cluster(CLUSTER))),
        // It is starting.
        (3, None),
        (4, Some(Reply::Refused(Refusal::NotPrimary { node: NodeId(4), primary: None }))),
        (5, Some(Reply::Refused(other_cluster))),
    ];
    let endpoints = nodes.map(|(node, reply)| {
        let endpoint = open(node);
        endpoint.set_service(reply.map(|reply| Arc::new(Replies(reply)) as Arc<dyn Service>));
        endpoint
    });
    let at = |number: usize| endpoints[number].address().to_string();
    let gone = open(7).address().to_string();
    let mut voters: Vec<_> = (0..4).map(|number| voter(number as u64 + 2, &at(number))).collect();
    // In the place of another one, and nowhere.
    voters.extend([voter(6, &at(0)), voter(7, &gone), voter(8, "nowhere")]);
    let missed = unreached(&credentials(NodeId(1)), &voters, &hello(1, Purpose::Identify));
    assert_eq!(missed, [5, 6, 7, 8].map(NodeId));
    assert_eq!(unreached(&credentials(NodeId(1)), &[], &hello(1, Purpose::Identify)), []);
}

/// The primary, a relay that commits wait for, and a standby beside it whose port is closed later.
#[test]
fn voters_that_do_not_reach_each_other_are_found_by_those_that_are_asked() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 2)));
    let relay = relay(&primary.address(), FabricKind::Tcp, freshet_cluster::relay::RelayAck::Own);
    let other = NewStandby::new(3).following(primary.address()).start();
    relay.joined();
    other.joined();
    let end = primary.write(&[64]);
    primary.commits(end);
    let found = |unreached: [Option<&[u64]>; 3]| {
        let members = relay.standby.whole_cluster().members();
        let of = |node: u64| members.nodes.iter().find(|it| it.node == NodeId(node)).unwrap().unreached.clone();
        let expected = unreached.map(|nodes| nodes.map(|nodes| nodes.iter().copied().map(NodeId).collect::<Vec<_>>()));
        members.primary && [1, 2, 3].map(of) == expected
    };
    until("all were asked and reach each other", || found([Some(&[]), Some(&[]), Some(&[])]));
    let asks = |from: u64, voters| {
        call(&relay.address(), &hello(from, Purpose::Reach(voters)), Term(1), PATIENCE).map(|(reply, _)| reply)
    };
    let voters = vec![voter(3, &other.address())];
    assert_eq!(asks(1, voters.clone()).unwrap(), Reply::Reach(vec![]));
    let refused = asks(3, voters.clone());
    let not_primary = matches!(&refused, Err(CallError::Refused { refusal: Refusal::NotPrimary { .. }, .. }));
    assert!(not_primary, "no node but the primary has it call others: {refused:?}");
    let refused = asks(1, vec![voters[0].clone(); MOST + 1]);
    let too_many = matches!(&refused, Err(CallError::Refused { refusal: Refusal::Violation(_), .. }));
    assert!(too_many, "{refused:?}");
    // Its log flows on: it has connected to the primary itself.
    drop(other.endpoint);
    until("the port is closed", || found([Some(&[3]), Some(&[3]), None]));
    assert!(other.standby.status().in_sync.is_some());
    // Asked for what it knows by itself, it asks no other.
    let purpose = Purpose::Members { relays: 0 };
    let reply = call(&primary.address(), &hello(2, purpose), Term(1), PATIENCE).unwrap().0;
    let Reply::Members(members) = reply else { panic!("{reply:?}") };
    assert!(members.nodes.iter().all(|it| it.unreached.is_none()), "{members:?}");
}
