//! Peers at the node port that lie: without certificates, with those of another cluster, and with
//! those of a member. What they say has no effect on which node leads, on what counts as
//! committed, or on what is in the log.
//!
//! `FRESHET_SEED` repeats a run, `FRESHET_ROUNDS` says how many conversations there are.

mod common;

use std::{
    io::{IoSlice, Write},
    net::{Shutdown, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{Shape, config, definition, hash, row, soon, start, wait_for};
use freshet_base::{ClusterId, Lsn, NodeId, Term};
use freshet_cluster::{
    Moment,
    maintenance::Notice,
    meeting::{Acknowledged, Claim},
    term::{LEAP, TermEntry, TermHistory},
};
use freshet_engine::{Isolation, Node, NodeConfig, Role, Safety, node::archive};
use freshet_fabric::{FabricConfig, FabricKind, channel::Side, memory::SharedMemory, stream::Stream, tcp::Connection};
use freshet_membership::{Credentials, Enrolment, NewKey, Part, Token};
use freshet_replication::{
    endpoint::{self, CallError},
    members::Voter,
    wire::{self, Ack, Asks, Continue, Encoding, Hello, Join, Kind, Purpose, Refusal, Reply},
};

const PATIENCE: Duration = Duration::from_secs(10);

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

/// What a peer shows.
#[derive(Clone)]
enum Shows {
    /// Nothing, and it does not even speak TLS.
    Nothing,
    /// TLS, without a certificate.
    NoCertificate,
    /// A certificate of another cluster's authority.
    Foreign(Credentials),
    /// One of this cluster's.
    Member(Credentials),
}

/// A node that is attacked, and what a peer can know of it.
struct Victim {
    address: String,
    cluster: ClusterId,
    nodes: Vec<NodeId>,
    term: Term,
    end: Lsn,
    /// For peers that pretend to have one.
    token: Token,
}

/// A process of the same user could get a certificate without a token, so this is one that was
/// given for a token.
fn member(of: &Node) -> Credentials {
    let token = of.credentials().give_token(freshet_membership::Grant::Node(None), PATIENCE).unwrap();
    let (enrolled, key) = endpoint::enrol(of.address(), Some(&token), None, Part::Node, PATIENCE).unwrap();
    Credentials::enrolled(enrolled, &key).unwrap()
}

fn continues(random: &mut Random, victim: &Victim) -> Continue {
    let lsns = [0, 8, victim.end.0, victim.end.0 + 4096, u64::MAX - 7, u64::MAX];
    let history = match random.below(3) {
        0 => TermHistory::default(),
        1 => TermHistory::first(Term(1), victim.nodes[0], 1),
        _ => TermHistory::first(Term(u32::MAX), NodeId(random.next()), 1),
    };
    Continue {
        history,
        received: Lsn(random.of(&lsns)),
        persisted: Lsn(random.of(&lsns)),
        capacity: random.of(&[0, 4096, 1 << 22, u64::MAX]),
        may_send_until: Lsn(random.of(&lsns)),
    }
}

/// A term that no honest node can have reached, or one that is over. A term between the two is
/// believed of a member: that is how a member takes over.
fn term(random: &mut Random, victim: &Victim) -> Term {
    let now = victim.term.0;
    Term(random.of(&[0, now.saturating_sub(1), now + LEAP + 1, u32::MAX - 1, u32::MAX]))
}

/// `node` says that it leads.
fn announces(node: NodeId, term: Term) -> Purpose {
    let term_entry = TermEntry { term, start: Lsn(0), node, nonce: 1 };
    Purpose::Announce {
        claim: Claim { term_entry, acknowledged: Acknowledged::Nothing },
        address: "127.0.0.1:1".into(),
    }
}

fn hello(random: &mut Random, victim: &Victim, own: NodeId, offer: &Side) -> Hello {
    let node = match random.below(4) {
        0 => random.of(&victim.nodes),
        1 => NodeId(random.next()),
        _ => own,
    };
    let cluster = random.of(&[None, Some(victim.cluster), Some(victim.cluster), Some(ClusterId(7))]);
    let purpose = match random.below(15) {
        0 => announces(node, term(random, victim)),
        1 => Purpose::Consult {
            term: term(random, victim),
            binding: random.below(2) == 0,
            gives_way: (random.below(2) == 0).then(|| term(random, victim)),
            handed: (random.below(2) == 0).then(|| random.next()),
            stands: (random.below(2) == 0).then(Notice::default),
        },
        2 => Purpose::Fetch { term: term(random, victim), log: continues(random, victim) },
        3 => Purpose::Identify,
        4 => Purpose::Checkpoint { consistent: false },
        5 => Purpose::Enrol(Enrolment {
            public_key: (0..random.below(80)).map(|_| random.next() as u8).collect(),
            node: random.of(&[None, Some(victim.nodes[0])]),
            part: Part::Node,
            secret: random.of(&[None, Some([7; 16])]),
        }),
        6 => Purpose::Passage { number: random.next() },
        7 => Purpose::Originals,
        8 => Purpose::BeginAgain { since: Lsn(random.next()) },
        9 => Purpose::Members { relays: random.next() as u8 },
        11 => Purpose::Session { pid: random.next() as i32, reads: random.below(2) == 0 },
        12 => Purpose::Cancel {
            pid: random.next() as i32,
            key: (0..random.below(80)).map(|_| random.next() as u8).collect(),
        },
        13 => {
            let address = random.of(&["", "127.0.0.1:1", "nowhere"]).to_owned();
            Purpose::Reach(vec![Voter { node: NodeId(random.next()), address }; random.below(100)])
        }
        10 => Purpose::Maintenance(Notice { left: Duration::MAX, ..Notice::default() }),
        _ => Purpose::Join(Join {
            fence: term(random, victim),
            log: continues(random, victim),
            // A member is believed about itself: one that says it holds everything would be
            // counted.
            member: false,
            synchronous: random.below(2) == 0,
            offer: offer.offer().clone(),
            appliance: false,
            mirror: false,
            passage: None,
            bare: random.below(2) == 0,
            encoding: random.of(&[Encoding::Bytes, Encoding::Inputs]),
            incarnation: random.next(),
            noted: random.of(&[None, Some((Term(1), NodeId(1), 1)), Some((Term(u32::MAX), NodeId(2), u64::MAX))]),
            holds: Lsn(random.of(&[0, 1 << 20, u64::MAX])),
            in_effect: random.below(2) == 0,
            relay: random.below(2) == 0,
            version: "v".repeat(random.below(1000)),
            maintenance: Notice::default(),
        }),
    };
    Hello { cluster, node, address: random.of(&["", "127.0.0.1:1", "nowhere"]).to_owned(), purpose }
}

/// One conversation. Returns the answer, if there was one.
fn converse(random: &mut Random, victim: &Victim, shows: &Shows) -> Option<(Hello, Reply)> {
    let socket = TcpStream::connect(&victim.address).ok()?;
    let peer = socket.peer_addr().ok()?;
    let deadline = Instant::now() + PATIENCE;
    let secured =
        |config| Stream::from(socket.try_clone().unwrap()).secure_client(config, Credentials::expected(), deadline);
    let (stream, own) = match shows {
        Shows::Nothing => {
            let garbage: Vec<u8> = (0..random.below(300)).map(|_| random.next() as u8).collect();
            let _ = (&socket).write_all(&garbage);
            // That is all: the node must not wait for the rest.
            let _ = socket.shutdown(Shutdown::Write);
            (Stream::from(socket), NodeId(1))
        }
        Shows::NoCertificate => (secured(Credentials::of_newcomer(&victim.token).unwrap()).ok()?, NodeId(1)),
        // Only a client that is told to trusts a foreign server.
        Shows::Foreign(credentials) => (secured(credentials.client()).ok()?, credentials.node().unwrap()),
        Shows::Member(credentials) => (secured(credentials.client()).ok()?, credentials.node().unwrap()),
    };
    let mut connection = Connection::new(stream, peer);
    connection.set_patience(Some(PATIENCE)).unwrap();
    let log = Arc::new(SharedMemory::new(1 << 16, false).unwrap());
    let side = Side::new(FabricKind::Tcp, FabricConfig::default(), vec![log]).unwrap();
    let hello = hello(random, victim, own, &side);
    let mut bytes = wire::encode_in(wire::PROTOCOL, &hello);
    match random.below(8) {
        0 => bytes.truncate(random.below(bytes.len())),
        1 => {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        2 => bytes.extend([0; 3]),
        _ => {}
    }
    let kind = random.of(&[Kind::Hello as u8, Kind::Hello as u8, Kind::Hello as u8, Kind::Reply as u8, 99]);
    for _ in 0..=random.below(2) {
        // The second time it is a replay.
        connection.sender().send(kind, term(random, victim), &bytes).ok()?;
    }
    let header = connection.receiver().receive().ok()?;
    if header.kind != Kind::Reply as u8 {
        return None;
    }
    let (reply, _): (Reply, _) = wire::decode_first("answer", connection.receiver().immediate()).ok()?;
    if let Reply::Welcome(welcome) = &reply
        && let Some(offer) = welcome.offer.clone()
    {
        // It gets the log now, and says that it holds what it was never sent.
        let connection = if welcome.bare { connection.bare() } else { connection };
        let fed = side.connect(&offer, connection, None, PATIENCE);
        if let Ok((mut sender, _receiver)) = fed {
            let lie = Ack {
                persisted: Lsn(u64::MAX),
                may_send_until: Lsn(random.next()),
                replayed: Lsn(u64::MAX),
                visible: Lsn(u64::MAX),
                observed: Some(Moment(random.next())),
            };
            let (own, below) = (random.of(&[Encoding::Bytes, Encoding::Inputs]), random.of(&[false, true]));
            let asks = Asks { own, below, in_doubt: random.of(&[false, true]), equal_at: Some(Lsn::MAX) };
            let _ = sender.status(wire::ack_words(&lie, asks, None));
            let _ = sender.send(random.next() as u8, Term(u32::MAX), 0, 0, b"what is this");
        }
    } else {
        // Arbitrary bytes.
        let garbage: Vec<u8> = (0..random.below(500)).map(|_| random.next() as u8).collect();
        let _ = connection.stream().write_all(&mut [IoSlice::new(&garbage)], false);
    }
    Some((hello, reply))
}

fn write(node: &Node, from: u64, to: u64) {
    let table = node.database().table("things").unwrap();
    let worker = node.database().worker().unwrap();
    for id in from..to {
        let ((), ticket) = worker
            .execute(Isolation::Serializable, |txn| {
                txn.insert(&table, &row(id, id % 7, id)).map(drop).map_err(Into::into)
            })
            .unwrap();
        node.database().wait(ticket).unwrap();
    }
}

#[test]
fn what_strangers_and_liars_send_has_no_effect() {
    let seed = std::env::var("FRESHET_SEED").map_or(11, |seed| seed.parse().unwrap());
    let rounds = std::env::var("FRESHET_ROUNDS").map_or(2000, |rounds| rounds.parse().unwrap());
    println!("FRESHET_SEED={seed} FRESHET_ROUNDS={rounds}");
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let node = |n: usize| NodeConfig {
        safety: Safety::Quorum(2),
        ..Shape::OneStream.of_node(n, config(Some(directories[n].path())))
    };
    let primary = start(node(0));
    let standby = start(NodeConfig { join: Some(primary.address().to_owned()), ..node(1) });
    primary.database().create_table(&definition()).unwrap();
    write(&primary, 0, 20);
    let outsiders = [
        Shows::Nothing,
        Shows::NoCertificate,
        Shows::Foreign(Credentials::found(primary.cluster(), primary.id()).unwrap()),
    ];
    let insider = Shows::Member(member(&primary));
    let mut random = Random(seed);
    let (mut answered, mut written) = (0u64, 20);
    for round in 0..rounds {
        let target = [&primary, &standby][random.below(2)];
        let victim = Victim {
            address: target.address().to_owned(),
            cluster: primary.cluster(),
            nodes: vec![primary.id(), standby.id()],
            term: Term(1),
            end: primary.database().core().snapshots.current(),
            token: primary
                .credentials()
                .give_token(freshet_membership::Grant::Node(None), Duration::from_millis(1))
                .unwrap(),
        };
        let shows = if random.below(3) == 0 { insider.clone() } else { random.of(&outsiders) };
        if let Some((hello, reply)) = converse(&mut random, &victim, &shows) {
            answered += 1;
            let is_refused = matches!(reply, Reply::Refused(_));
            assert!(is_refused || matches!(shows, Shows::Member(_)), "round {round}: {hello:?} was answered {reply:?}");
            let changes = matches!(
                hello.purpose,
                Purpose::Announce { .. }
                    | Purpose::Consult { binding: true, .. }
                    | Purpose::Fetch { .. }
                    | Purpose::Enrol(_)
            );
            let others = victim.nodes.contains(&hello.node) || hello.cluster != Some(victim.cluster);
            assert!(
                is_refused
                    || !changes && !others
                    || matches!(
                        hello.purpose,
                        Purpose::Identify | Purpose::Checkpoint { .. } | Purpose::Join(_) | Purpose::BeginAgain { .. }
                    ),
                "round {round}: {hello:?} was answered {reply:?}"
            );
        }
        if round % 100 == 99 {
            // Nothing was fenced, and no node was excluded.
            write(&primary, written, written + 1);
            written += 1;
        }
    }
    assert!(answered > rounds / 10, "{answered} of {rounds} were answered at all");
    let state = hash(&primary);
    standby.wait_visible(primary.database().core().snapshots.current(), soon()).unwrap();
    assert_eq!(hash(&standby), state);
    wait_for("the standby is the only one in sync", || {
        let status = serde_json::to_string(&primary.status()).unwrap();
        status.contains("\"Safe\"") || status.contains("\"safe\"")
    });
    primary.stop().unwrap();
    standby.stop().unwrap();
}

/// Findings S1 and S3: a packet from a stranger must not fence, and no node acknowledges in place
/// of another.
#[test]
fn nobody_speaks_under_the_id_of_another() {
    let primary = start(NodeConfig { safety: Safety::Quorum(2), ..config(None) });
    let rogue = member(&primary);
    let purposes = || {
        [
            Purpose::Identify,
            announces(NodeId(99), Term(2)),
            Purpose::Consult { term: Term(2), binding: true, gives_way: None, handed: None, stands: None },
        ]
    };
    for (purpose, node) in
        purposes().into_iter().flat_map(|purpose| [primary.id(), NodeId(99)].map(|node| (purpose.clone(), node)))
    {
        let hello = Hello { cluster: Some(primary.cluster()), node, address: String::new(), purpose };
        let outcome = endpoint::call(&rogue, primary.address(), &hello, Term(2), PATIENCE);
        assert!(
            matches!(&outcome, Err(CallError::Refused { refusal: Refusal::NotMember(_), .. })),
            "{hello:?}: {:?}",
            outcome.map(|answer| answer.0)
        );
    }
    // Under its own id it may, but not with an impossible term, and not without naming its cluster.
    let own = rogue.node().unwrap();
    for (cluster, term) in
        [(None, Term(2)), (Some(primary.cluster()), Term(u32::MAX)), (Some(primary.cluster()), Term(2 + LEAP))]
    {
        for purpose in [
            announces(own, term),
            Purpose::Consult { term, binding: true, gives_way: None, handed: None, stands: None },
        ] {
            let hello = Hello { cluster, node: own, address: String::new(), purpose };
            let outcome = endpoint::call(&rogue, primary.address(), &hello, term, PATIENCE);
            assert!(
                matches!(
                    &outcome,
                    Err(CallError::Refused { refusal: Refusal::NotMember(_) | Refusal::Leap { .. }, .. })
                ),
                "{hello:?}: {:?}",
                outcome.map(|answer| answer.0)
            );
        }
    }
    // From another cluster's authority, although made for this very cluster and node.
    let foreign = Credentials::found(primary.cluster(), primary.id()).unwrap();
    let hello = Hello {
        cluster: Some(primary.cluster()),
        node: primary.id(),
        address: String::new(),
        purpose: Purpose::Identify,
    };
    let outcome = endpoint::call(&foreign, primary.address(), &hello, Term(1), PATIENCE);
    assert!(matches!(outcome, Err(CallError::Foreign { .. })), "{:?}", outcome.map(|answer| answer.0));
    assert_eq!(primary.role(), freshet_engine::Role::Primary);
    primary.stop().unwrap();
}

/// A token is valid for one node, at the node that gave it out, and there is no other way in from
/// outside.
#[test]
fn a_token_lets_one_node_in() {
    let primary = start(config(None));
    let give = |grant| primary.credentials().give_token(grant, PATIENCE).unwrap();
    let token = give(freshet_membership::Grant::Node(None));
    let (first, _) = endpoint::enrol(primary.address(), Some(&token), None, Part::Node, PATIENCE).unwrap();
    let again = endpoint::enrol(primary.address(), Some(&token), None, Part::Node, PATIENCE);
    assert!(matches!(again, Err(CallError::Refused { refusal: Refusal::NotEnrolled(_), .. })), "{again:?}");
    assert_ne!(first.identity, freshet_membership::Identity::Node(primary.id()));
    // A newcomer does not choose its id, unless the token says so.
    let own = endpoint::enrol(
        primary.address(),
        Some(&give(freshet_membership::Grant::Node(None))),
        Some(primary.id()),
        Part::Node,
        PATIENCE,
    );
    assert!(matches!(own, Err(CallError::Refused { .. })), "{own:?}");
    let named = give(freshet_membership::Grant::Node(Some(NodeId(42))));
    let (second, _) = endpoint::enrol(primary.address(), Some(&named), Some(NodeId(42)), Part::Node, PATIENCE).unwrap();
    assert_eq!(second.identity, freshet_membership::Identity::Node(NodeId(42)));
    // Over TCP, without a token or with the hash of the wrong authority.
    let other = Credentials::found(ClusterId(1), NodeId(1)).unwrap();
    let wrong = other.give_token(freshet_membership::Grant::Node(None), PATIENCE).unwrap();
    let outcome = endpoint::enrol(primary.address(), Some(&wrong), None, Part::Node, PATIENCE);
    assert!(matches!(outcome, Err(CallError::Foreign { .. })), "{outcome:?}");
    let key = NewKey::generate().unwrap();
    let newcomer = Enrolment { public_key: key.public(), node: None, part: Part::Node, secret: None };
    assert!(primary.credentials().enrol(&newcomer, false).is_err());
    primary.stop().unwrap();
}

/// A member that lies again and again, each time within what is believed, fences a cluster off from
/// every term that it could reach by itself. There is a way back (docs/operations.md, "A wrong
/// term").
#[test]
fn there_is_a_way_back_from_a_wrong_term() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let node = |n: usize| NodeConfig {
        safety: Safety::Quorum(2),
        ..Shape::OneStream.of_node(n, config(Some(directories[n].path())))
    };
    let join = |to: &Node| NodeConfig { join: Some(to.address().to_owned()), ..node(1) };
    let primary = start(node(0));
    let standby = start(join(&primary));
    primary.database().create_table(&definition()).unwrap();
    write(&primary, 0, 20);
    let state = hash(&primary);
    let liar = member(&primary);
    let mut term = 1;
    for _ in 0..3 {
        term += LEAP;
        for node in [&primary, &standby] {
            let purpose = announces(liar.node().unwrap(), Term(term));
            let hello =
                Hello { cluster: Some(primary.cluster()), node: liar.node().unwrap(), address: String::new(), purpose };
            let outcome = endpoint::call(&liar, node.address(), &hello, Term(term), PATIENCE);
            assert!(outcome.is_ok(), "{:?}", outcome.map(|answer| answer.0));
        }
    }
    wait_for("the primary is fenced", || primary.is_deposed());
    assert!(archive::reset_terms(directories[0].path()).is_err(), "a node runs on it");
    primary.stop().unwrap();
    standby.stop().unwrap();
    drop((primary, standby));
    for directory in &directories {
        let reset = archive::reset_terms(directory.path()).unwrap();
        assert_eq!((reset.before, reset.after), (Term(term), Term(1)));
    }
    // Nothing else has changed: the primary comes back when it has heard the other.
    let back = std::thread::scope(|scope| {
        let address = freshet_testing::ports::reserve().unwrap();
        let first = NodeConfig { listen: address, ..node(0) };
        let primary = scope.spawn(move || start(first));
        let second = start(NodeConfig { join: Some(address.to_string()), ..node(1) });
        (primary.join().unwrap(), second)
    });
    wait_for("one of the two terms", || [&back.0, &back.1].iter().any(|node| node.role() == Role::Primary));
    let primary = if back.0.role() == Role::Primary { &back.0 } else { &back.1 };
    assert_eq!(hash(primary), state);
    write(primary, 20, 30);
    back.0.stop().unwrap();
    back.1.stop().unwrap();
}
