//! Every purpose by every kind of caller, over the sockets of an endpoint.

use std::time::Instant;

use freshet_base::{ClusterId, NodeId, Term, sync::Arc};
use freshet_cluster::{switch_over::HandOver, term::Living, witness::Ask};
use freshet_fabric::{
    local,
    tcp::{self, Connection},
};
use freshet_membership::{Credentials, Enrolment, Grant, Identity, NewKey, Part};

use super::{
    fixture::{self, PATIENCE},
    joining,
};
use crate::{
    endpoint::{CallError, Endpoint, LOCAL, Service, answer, ask, connect},
    maintenance::Notice,
    rights::{Caller, may},
    wire::{Hello, Join, Purpose, Refusal, Reply},
};

/// The node whose certificate callers show, and one that it is not.
const OWN: u64 = 7;
const OTHER: u64 = 8;

/// Answers whatever gets to it.
struct Answers;

impl Service for Answers {
    fn serve(&self, _: Hello, connection: Connection) {
        answer(connection, Term(1), &Reply::Working);
    }
}

/// The purpose behind this one: each has an example.
fn next(purpose: Option<&Purpose>) -> Option<Purpose> {
    Some(match purpose {
        None => Purpose::Enrol(Enrolment {
            public_key: NewKey::generate().unwrap().public(),
            node: Some(NodeId(OWN)),
            part: Part::Node,
            secret: None,
        }),
        Some(Purpose::Enrol(_)) => Purpose::Passage { number: 1 },
        Some(Purpose::Passage { .. }) => Purpose::Identify,
        Some(Purpose::Identify) => {
            Purpose::Consult { term: Term(1), binding: false, gives_way: None, handed: None, stands: None }
        }
        Some(Purpose::Consult { .. }) => Purpose::HandOver(HandOver { by: NodeId(OWN), term: Term(1), number: 1 }),
        Some(Purpose::HandOver(_)) => super::fixture::announces(NodeId(OWN), Term(1), "127.0.0.1:1"),
        Some(Purpose::Announce { .. }) => joining::joining(joining::empty_log(1 << 16)).0,
        Some(Purpose::Join(_)) => Purpose::Fetch { term: Term(1), log: joining::empty_log(1 << 16) },
        Some(Purpose::Fetch { .. }) => Purpose::Originals,
        Some(Purpose::Originals) => Purpose::BeginAgain { since: freshet_base::Lsn(1) },
        Some(Purpose::BeginAgain { .. }) => Purpose::Members { relays: 0 },
        Some(Purpose::Members { .. }) => Purpose::Reach(Vec::new()),
        Some(Purpose::Reach(_)) => Purpose::Maintenance(Notice::default()),
        Some(Purpose::Maintenance(_)) => Purpose::Witness,
        Some(Purpose::Witness) => Purpose::Ask(Ask {
            cluster: ClusterId(1),
            living: Living { term: Term(1), node: NodeId(OWN) },
            sent: Default::default(),
            lease: Default::default(),
            set: None,
        }),
        Some(Purpose::Ask(_)) => Purpose::Restart,
        Some(Purpose::Restart) => Purpose::Stop,
        Some(Purpose::Stop) => Purpose::Renew,
        Some(Purpose::Renew) => Purpose::Session { pid: 1, reads: false },
        Some(Purpose::Session { .. }) => Purpose::Cancel { pid: 1, key: vec![1; 32] },
        Some(Purpose::Cancel { .. }) => Purpose::Checkpoint { consistent: false },
        Some(Purpose::Checkpoint { .. }) => return None,
    })
}

const CALLERS: [Caller; 8] = [
    Caller::Owner,
    Caller::Node,
    Caller::Archive,
    Caller::Impostor(NodeId(OWN)),
    Caller::Operator,
    Caller::Monitor,
    Caller::Nameless,
    Caller::Stranger,
];

/// Who may ask, in the order of purposes and of [`CALLERS`].
const MAY: [[bool; 8]; 21] = [
    // Enrol: a stranger is heard, and needs a token.
    [true, false, false, false, false, false, false, true],
    // Passage.
    [true, false, false, false, false, false, false, false],
    // Identify.
    [false, true, true, false, false, false, false, false],
    // Consult, hand over, announce, join as a member, fetch, original, begin again.
    [false, true, false, false, false, false, false, false],
    [false, true, false, false, false, false, false, false],
    [false, true, false, false, false, false, false, false],
    [false, true, false, false, false, false, false, false],
    [false, true, false, false, false, false, false, false],
    [false, true, false, false, false, false, false, false],
    [false, true, false, false, false, false, false, false],
    // Members.
    [true, true, false, false, true, false, false, false],
    // Reach, maintenance, witness, ask, restart, stop.
    [false, true, false, false, false, false, false, false],
    [false, true, false, false, false, false, false, false],
    [false, true, false, false, false, false, false, false],
    [false, true, false, false, false, false, false, false],
    [false, true, false, false, false, false, false, false],
    [false, true, false, false, false, false, false, false],
    // Renew.
    [false, true, true, false, false, false, false, false],
    // Session, cancel.
    [false, true, false, false, false, false, false, false],
    [false, true, false, false, false, false, false, false],
    // Checkpoint.
    [false, true, true, false, true, false, false, false],
];

fn all() -> Vec<Purpose> {
    std::iter::successors(next(None), |purpose| next(Some(purpose))).collect()
}

#[test]
fn each_caller_may_ask_what_its_row_allows_and_nothing_else() {
    let purposes = all();
    assert_eq!(purposes.len(), MAY.len());
    for (purpose, row) in purposes.iter().zip(MAY) {
        assert_eq!(CALLERS.map(|caller| may(caller, purpose)), row, "{purpose:?}");
        // No commit counts on an archive.
        if let Purpose::Join(join) = purpose {
            let observer = Join { member: false, ..join.clone() };
            assert!(may(Caller::Archive, &Purpose::Join(observer.clone())));
            assert!(!may(Caller::Archive, &Purpose::Join(Join { mirror: true, ..observer })));
        }
    }
}

/// A certificate as client of this member's cluster.
fn client(member: &Credentials, identity: Identity) -> Credentials {
    let token = member.give_token(Grant::Client(identity), PATIENCE).unwrap();
    let key = NewKey::generate().unwrap();
    let newcomer = Enrolment { public_key: key.public(), node: None, part: Part::Node, secret: Some(token.secret()) };
    Credentials::enrolled(member.enrol(&newcomer, false).unwrap(), &key).unwrap()
}

/// A connection as this caller, on which nothing was sent yet.
fn connected(caller: Caller, endpoint: &Endpoint, member: &Credentials) -> Connection {
    let address = endpoint.address().to_string();
    let with = |credentials: &Credentials| connect(credentials, &address, PATIENCE).unwrap();
    match caller {
        Caller::Owner => {
            let socket = local::connect(LOCAL, endpoint.address()).unwrap().unwrap();
            let mut connection = Connection::new(socket.into(), endpoint.address());
            connection.set_patience(Some(PATIENCE)).unwrap();
            connection
        }
        Caller::Archive => {
            let key = NewKey::generate().unwrap();
            let (node, part) = (Some(NodeId(OWN)), Part::Archive);
            let newcomer = Enrolment { public_key: key.public(), node, part, secret: None };
            let enrolled = member.enrol(&newcomer, true).unwrap();
            assert_eq!((enrolled.identity, &enrolled.authority_key), (Identity::Archive(NodeId(OWN)), &None));
            with(&Credentials::enrolled(enrolled, &key).unwrap())
        }
        Caller::Node | Caller::Impostor(_) => with(&fixture::credentials(NodeId(OWN))),
        Caller::Operator => with(&client(member, Identity::Operator)),
        Caller::Monitor => with(&client(member, Identity::Monitor)),
        Caller::Nameless | Caller::Stranger => {
            let token = member.give_token(Grant::Node(None), PATIENCE).unwrap();
            let config = Credentials::of_newcomer(&token).unwrap();
            let connection = tcp::connect(&address, PATIENCE).unwrap();
            let mut connection = connection
                .secured(|stream| stream.secure_client(config, Credentials::expected(), Instant::now() + PATIENCE))
                .unwrap();
            connection.set_patience(Some(PATIENCE)).unwrap();
            connection
        }
    }
}

#[test]
fn an_endpoint_answers_each_purpose_of_each_caller_by_its_row() {
    let member = fixture::credentials(NodeId(1));
    let endpoint = Endpoint::open(NodeId(1), member.clone(), "127.0.0.1:0").unwrap();
    endpoint.set_service(Some(Arc::new(Answers)));
    endpoint.set_checkpoints(Some(Arc::new(Answers)));
    endpoint.set_sessions(Some(Arc::new(Answers)));
    let address = endpoint.address().to_string();
    for (purpose, row) in all().into_iter().zip(MAY) {
        // The authority signs none for the nameless; crate freshet tests one signed by hand.
        let callers = CALLERS.into_iter().zip(row).filter(|(caller, _)| *caller != Caller::Nameless);
        for (caller, may) in callers {
            let mut connection = connected(caller, &endpoint, &member);
            let node = NodeId(if let Caller::Impostor(_) = caller { OTHER } else { OWN });
            let hello = Hello { cluster: None, node, address: String::new(), purpose: purpose.clone() };
            let reply = ask(&mut connection, &address, &hello, Term(0));
            match (&reply, may) {
                // A stranger has no token.
                (Err(CallError::Refused { refusal: Refusal::NotEnrolled(_), .. }), true) => {
                    assert_eq!(caller, Caller::Stranger, "{purpose:?}");
                }
                (Ok(Reply::Enrolled(enrolled)), true) => {
                    assert_eq!(enrolled.authority_key.is_some(), caller != Caller::Archive, "{caller:?}");
                }
                (Ok(Reply::Working | Reply::Noted), true) => {}
                (Err(CallError::Refused { refusal: Refusal::NotMember(_) | Refusal::Violation(_), .. }), false) => {}
                _ => panic!("{caller:?} asked {purpose:?} and received {reply:?}"),
            }
        }
    }
    // Of a cluster with another authority: nothing is asked.
    let foreign = Credentials::found(ClusterId(1), NodeId(OWN)).unwrap();
    assert!(matches!(connect(&foreign, &address, PATIENCE), Err(CallError::Foreign { .. })));
}
