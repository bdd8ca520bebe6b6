use freshet_base::{ClusterId, Lsn, Safety};
use freshet_cluster::in_sync::{Holder, InSyncSet};
use freshet_fabric::tcp::ConnectError;

use super::{super::Votes, *};
use crate::{
    status::{StandbyStatus, WitnessStatus},
    wire,
};

const CLUSTER: ClusterId = ClusterId(1);

fn hello(purpose: Purpose) -> Hello {
    Hello { cluster: Some(CLUSTER), node: NodeId(1), address: "a:1".into(), purpose }
}

fn voter(node: u64, address: &str) -> Voter {
    Voter { node: NodeId(node), address: address.to_owned() }
}

/// The table of node 1, which leads, with a set of these nodes.
fn table(nodes: &[u64], standbys: &[StandbyStatus]) -> Table {
    let members = nodes.iter().map(|node| Holder::new(NodeId(*node), 7)).collect();
    let (level, since, quorum, floor, before) = (Safety::Majority, Lsn::ZERO, Some(2), 1, Vec::new());
    let (term, primary, after, roster) = (Term(1), NodeId(1), Term(0), Box::default());
    let set =
        InSyncSet { term, primary, number: 1, first: 1, after, members, level, since, quorum, floor, before, roster };
    let own = MemberStatus { role: MemberRole::Primary, connected: Some(true), ..MemberStatus::own(NodeId(1), "a:1") };
    let mut table = Table::new(own, Term(3), true, Votes { safety: Some(Safety::Majority), set: Some(set) });
    table.add_fed(standbys, &[], false);
    table
}

fn standby(node: u64) -> StandbyStatus {
    let (id, address) = (NodeId(node), format!("n{node}:1"));
    StandbyStatus { connected: true, address, log: Holder::new(id, 7), ..StandbyStatus::of(id) }
}

fn witness(node: u64) -> WitnessStatus {
    let (node, address) = (NodeId(node), "w:1".to_owned());
    WitnessStatus { node, address, connected: true, votes: true, since: None, connected_for: None, protocol: None }
}

#[test]
fn those_that_are_connected_and_vote_are_asked() {
    let away = StandbyStatus { connected: false, ..standby(4) };
    let asynchronous = StandbyStatus { synchronous: false, ..standby(5) };
    let nowhere = StandbyStatus { address: String::new(), ..standby(7) };
    let standbys = [standby(2), StandbyStatus { mirror: true, ..standby(3) }, away, asynchronous, standby(6), nowhere];
    let mut table = table(&[1, 2, 3, 4, 5, 7, 9], &standbys);
    table.add_witness(&witness(9));
    let nodes = |register| -> Vec<u64> { table.others_that_vote(register).iter().map(|it| it.node.0).collect() };
    assert_eq!((nodes(None), nodes(Some(NodeId(9)))), (vec![2, 3, 9], vec![2, 3]));
}

/// With etcd in the place of a witness there is no other pair either.
#[test]
fn who_depends_on_no_other_is_not_asked() {
    let reach = Reach(Mutex::new(None));
    let mut table = table(&[1, 2, 9], &[standby(2)]);
    table.add_witness(&witness(9));
    let (credentials, hello) = (Credentials::found(CLUSTER, NodeId(1)).unwrap(), hello(Purpose::Identify));
    table.ask_voters(&credentials, &hello, &reach, Some(NodeId(9)));
    assert!(reach.0.lock().unwrap().is_none(), "no voter was asked");
    assert!(table.members.nodes.iter().all(|it| it.unreached.is_none()));
}

#[test]
fn what_was_found_counts_for_a_moment_and_for_the_same_voters() {
    let (reach, mut asked) = (Reach::default(), 0);
    let voters = [voter(2, "b:1"), voter(3, "c:1")];
    let found = Unreached::from([(NodeId(2), vec![NodeId(3)])]);
    let mut of = |voters: &[Voter]| {
        let answer = reach.of(voters, || {
            asked += 1;
            found.clone()
        });
        assert_eq!(answer, found);
        asked
    };
    assert_eq!((of(&voters), of(&voters)), (1, 1));
    let moved = [voter(2, "b:1"), voter(3, "c:2")];
    assert_eq!((of(&moved), of(&moved), of(&voters)), (2, 2, 3));
    reach.0.lock().unwrap().as_mut().unwrap().until = Instant::now();
    reach.of(&voters, Unreached::new);
    assert!(reach.of(&voters, || panic!("that was asked a moment ago")).is_empty());
}

#[test]
fn who_is_slow_is_not_known_and_who_is_elsewhere_is_not_reached() {
    let voters = [2, 3, 4, 5, 6].map(|node| voter(node, "n:1"));
    let address = || "n:1".to_owned();
    let refusal = Refusal::NotPrimary { node: NodeId(4), primary: None };
    let no_address = ConnectError::Connect { address: address(), source: std::io::ErrorKind::ConnectionRefused.into() };
    let answers = vec![
        // It names nodes that it was not asked about.
        (&voters[0], Ok(Reply::Reach([3, 2, 77, 3].map(NodeId).to_vec()))),
        (&voters[1], Err(CallError::System { address: address(), source: std::io::ErrorKind::TimedOut.into() })),
        (&voters[2], Err(CallError::Refused { address: address(), refusal })),
        (&voters[3], Err(CallError::Unexpected { address: address() })),
        (&voters[4], Err(CallError::Connect(no_address))),
    ];
    let expected = [(NodeId(1), vec![NodeId(5), NodeId(6)]), (NodeId(2), vec![NodeId(3)])];
    assert_eq!(gather(NodeId(1), &voters, answers), Unreached::from(expected));
}

#[test]
fn a_question_is_bounded_and_fits_into_its_frame() {
    let longest = "ü".repeat(LONGEST);
    let most: Vec<_> = (0..MOST as u64).map(|node| voter(node, &longest)).collect();
    assert_eq!(check(&most), Ok(()));
    let asks = hello(Purpose::Reach(most.clone()));
    let bytes = wire::encode_in(wire::PROTOCOL, &asks);
    assert_eq!(wire::decode_first("greeting", &bytes).map(|decoded| decoded.0), Ok(asks));
    let is_refused = |voters: &[Voter]| matches!(check(voters), Err(Refusal::Violation(_)));
    assert!(is_refused(&[most, vec![voter(99, "a:1")]].concat()));
    assert!(is_refused(&[voter(2, &format!("{longest}x"))]));
}
