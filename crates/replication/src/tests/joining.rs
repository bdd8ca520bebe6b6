use std::time::{Duration, Instant};

use std::sync::atomic::Ordering;

use freshet_base::{ClusterId, Lsn, NodeId, Safety, Term, sync::Arc};
use freshet_cluster::{
    commit_rule::Standing,
    flow::Mode,
    term::{TermHistory, TermState},
};
use freshet_fabric::{FabricConfig, FabricKind, channel::Side, limit::TokenBucket, memory::SharedMemory};

use super::fixture::*;
use crate::{
    endpoint::{CallError, Endpoint},
    follow::FollowConfig,
    standby::StandbyConfig,
    status::{Lag, LinkStatus},
    terms::{Terms, VolatileTerms},
    wire::{self, Ack, Asks, Continue, DecodeError, Encoding, Hello, Join, Kind, Purpose, Refusal, Reply, Welcome},
};

/// A greeting that asks to join, and the memory that it offers.
pub fn joining(log: Continue) -> (Purpose, Side) {
    let ring = Arc::new(SharedMemory::new(CAPACITY as usize, false).unwrap());
    let side = Side::new(FabricKind::Tcp, FabricConfig::default(), vec![ring]).unwrap();
    let offer = side.offer().clone();
    let (member, synchronous, appliance, bare, passage) = (true, true, false, false, None);
    let (fence, mirror, encoding, incarnation, noted, holds) = (Term(0), false, Encoding::Bytes, 0, None, Lsn::ZERO);
    let join = Join {
        fence,
        log,
        member,
        synchronous,
        offer,
        appliance,
        mirror,
        passage,
        bare,
        encoding,
        incarnation,
        noted,
        holds,
        in_effect: false,
        relay: false,
        version: String::new(),
        maintenance: Default::default(),
    };
    (Purpose::Join(join), side)
}

pub fn hello(node: u64, purpose: Purpose) -> Hello {
    Hello { cluster: Some(CLUSTER), node: NodeId(node), address: String::new(), purpose }
}

pub fn empty_log(capacity: u64) -> Continue {
    Continue {
        history: TermHistory::default(),
        received: Lsn(0),
        persisted: Lsn(0),
        capacity,
        may_send_until: Lsn(capacity),
    }
}

/// A frame of old log takes a multiple of the standby's patience on this link.
#[test]
fn a_slow_link_is_not_taken_for_a_silent_node() {
    for fabric in FABRICS {
        let mut config = config(rule(Safety::TwoSafe, 1));
        config.feed.boundaries = 4;
        config.feed.flow.keep_alive = Duration::from_millis(20);
        config.feed.fabric.limit = Some(Arc::new(TokenBucket::gigabits(0.0032)));
        let primary = PrimaryNode::first(config);
        let end = (0..300).map(|_| primary.write(&[1000])).last().unwrap();
        let patient = {
            let over = over(fabric);
            let patience = Duration::from_millis(1);
            StandbyConfig { follow: FollowConfig { patience, ..over.follow }, ..over }
        };
        let log = TestLog::received(1 << 19);
        let standby = NewStandby::new(2).following(primary.address()).config(patient).log(log).start();
        until("it has all", || standby.log.persisted() >= end);
    }
}

#[test]
fn an_empty_standby_joins_while_the_log_grows() {
    for fabric in FABRICS {
        let mut config = config(rule(Safety::TwoSafe, 1));
        config.feed.boundaries = 4;
        let primary = PrimaryNode::first(config);
        for _ in 0..200 {
            primary.write(&[64, 200, 136]);
        }
        let log = TestLog::received(CAPACITY);
        let standby = NewStandby::new(2).following(primary.address()).config(over(fabric)).log(log).start();
        for _ in 0..300 {
            primary.write(&[64, 72]);
        }
        standby.joined();
        let end = primary.write(&[64]);
        primary.commits(end);
        standby.shows(end);
        assert!(standby.log.bytes() == primary.log.bytes());
        assert_eq!(standby.terms.get().cluster, Some(CLUSTER));
        until("it is in sync", || primary.primary.commit().standing() == Standing::Safe);
        let status = primary.primary.status();
        let there = &status.standbys[0];
        assert_eq!((there.node, there.in_sync, there.mode, there.acked), (NodeId(2), true, Some(Mode::Live), end));
        assert_eq!((there.ship_lag_bytes, there.ack_lag_bytes), (Some(0), 0));
        assert_eq!((there.fabric, there.one_sided), (Some(fabric), fabric == FabricKind::Shm));
        until("an idle standby has no lag", || standby.standby.status().visible_lag == Some(Lag::default()));
        until("it knows that it is in sync", || standby.standby.status().in_sync == Some(true));
        assert!(matches!(standby.standby.status().link, LinkStatus::Following { node: NodeId(1), .. }));
        assert!(standby.tape.calls().iter().any(|(_, ends)| ends.len() > 1), "there was something to divide");
    }
}

#[test]
fn a_batch_larger_than_the_credit_goes_in_pieces_and_the_ring_wraps() {
    for fabric in FABRICS {
        let mut config = config(rule(Safety::VerySafe, 1));
        config.feed.largest_block = 512;
        let primary = PrimaryNode::first(config);
        let log = TestLog::received(4096);
        let standby =
            NewStandby::new(2).following(primary.address()).config(over(fabric)).log(Arc::clone(&log)).start();
        standby.joined();
        let mut end = Lsn(0);
        for _ in 0..20 {
            // 7 kB in one batch through a ring of 4 kB.
            end = primary.write(&[96; 75]);
        }
        primary.commits(end);
        standby.shows(end);
        assert!(log.bytes() == primary.log.bytes());
    }
}

#[test]
fn a_standby_that_dies_comes_back_and_continues() {
    for fabric in FABRICS {
        let primary = PrimaryNode::first(config(rule(Safety::Quorum(2), 1)));
        let log = TestLog::received(CAPACITY);
        let standby = NewStandby::new(2).following(primary.address()).config(over(fabric)).log(log).start();
        standby.joined();
        let first = primary.write(&[64; 10]);
        primary.commits(first);
        let (log, terms) = (Arc::clone(&standby.log), standby.terms.clone());
        drop(standby);
        until("the loss is noticed", || !primary.primary.status().standbys[0].connected);
        let second = primary.write(&[64; 10]);
        assert_eq!(primary.primary.commit().outcome(second), None, "a quorum of two needs it");
        assert!(matches!(primary.primary.commit().standing(), Standing::Blocked { needed: 1, .. }));
        let standby =
            NewStandby::new(2).following(primary.address()).config(over(fabric)).log(log).terms(terms).start();
        primary.commits(second);
        standby.shows(second);
        assert!(standby.log.bytes() == primary.log.bytes());
        assert!(primary.primary.status().standbys[0].last_loss.is_some());
    }
}

#[test]
fn the_reconnecting_standby_of_a_restarted_primary_waits_for_it() {
    // The port is free again before the new primary listens, so this also tests refused
    // connections.
    let endpoint_address = {
        let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
        primary.address()
    };
    let standby = StandbyNode::empty(2, &endpoint_address);
    let failed = |link| matches!(link, LinkStatus::Connecting { last_failure: Some(_), .. });
    until("it tries and fails", || failed(standby.standby.status().link));
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    standby.standby.follow(&primary.address());
    let end = primary.write(&[64]);
    standby.shows(end);
}

#[test]
fn an_attempt_to_follow_is_reported_while_it_lasts() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let standby = NewStandby::new(2).start();
    assert_eq!(standby.standby.tries_since(), None);
    standby.standby.follow(&silent.local_addr().unwrap().to_string());
    until("it tries", || standby.standby.tries_since().is_some());
    drop(silent);
    standby.standby.follow(&primary.address());
    standby.joined();
    assert_eq!(standby.standby.tries_since(), None);
}

/// Where nodes were before, no process listens now, or another one does.
#[test]
fn a_standby_tries_each_of_those_that_it_knows() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let stranger = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let strange = stranger.local_addr().unwrap().to_string();
    std::thread::spawn(move || stranger.incoming().for_each(drop));
    let [one, two] = ["127.0.0.1:1", "127.0.0.1:2"].map(str::to_owned);
    for peers in [vec![one, primary.address(), two], vec![strange, primary.address()]] {
        let settings = following(FollowConfig { peers, ..FollowConfig::default() });
        let standby = NewStandby::new(2).config(settings).start();
        standby.standby.look_around();
        standby.joined();
    }
}

#[test]
fn a_corrupted_batch_is_never_acknowledged() {
    for bare in [true, false] {
        corrupted(bare);
    }
}

fn corrupted(bare: bool) {
    let mut settings = config(rule(Safety::VerySafe, 1));
    settings.feed.fabric.config.bare = bare;
    let primary = PrimaryNode::first(settings);
    let flip = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flips = std::sync::Arc::clone(&flip);
    // Between the two sits somebody who flips one bit of a payload, once.
    let meddler = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let through = meddler.local_addr().unwrap().to_string();
    let target = primary.address();
    std::thread::spawn(move || {
        for from_standby in meddler.incoming() {
            let mut from_standby = from_standby.unwrap();
            let mut from_primary = std::net::TcpStream::connect(&target).unwrap();
            let (mut a, mut b) = (from_standby.try_clone().unwrap(), from_primary.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut a, &mut b));
            let flips = std::sync::Arc::clone(&flips);
            std::thread::spawn(move || {
                use std::io::{Read, Write};
                let (mut buffer, mut row) = ([0; 4096], 0);
                while let Ok(count @ 1..) = from_primary.read(&mut buffer) {
                    // The blocks below are filled with this byte, and nothing else has ten of them
                    // in a row, wherever one read ends and the next begins. Encrypted ones cannot
                    // be seen.
                    let mut tenth = None;
                    for (at, byte) in buffer[..count].iter().enumerate() {
                        row = if *byte == 8 { row + 1 } else { 0 };
                        tenth = if row == 10 { Some(at) } else { tenth };
                    }
                    let spot = if bare { tenth } else { (count > 100).then_some(count / 2) };
                    if let Some(spot) = spot.filter(|_| flips.swap(false, Ordering::SeqCst)) {
                        buffer[spot] ^= 1;
                    }
                    if from_standby.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
                let _ = from_standby.shutdown(std::net::Shutdown::Both);
                let _ = from_primary.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    let mut settings = StandbyConfig::default();
    settings.follow.fabric.config.bare = bare;
    let standby = NewStandby::new(2).following(through).config(settings).start();
    standby.joined();
    flip.store(true, Ordering::SeqCst);
    primary.write(&[64]);
    let end = primary.write(&[200]);
    primary.commits(end);
    standby.shows(end);
    assert!(standby.log.bytes() == primary.log.bytes());
    assert!(!flip.load(Ordering::SeqCst), "something was flipped");
    assert!(primary.primary.status().standbys[0].last_loss.is_some(), "the connection was dropped in between");
}

#[test]
fn strangers_receive_the_reason_why_they_are_refused() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let join = |log| joining(log).0;
    let ask = |hello: &Hello| match call(&primary.address(), hello, Term(0), PATIENCE) {
        Err(CallError::Refused { refusal, .. }) => refusal,
        other => panic!("{:?}", other.map(|answer| answer.0)),
    };
    let other = Hello { cluster: Some(ClusterId(5)), ..hello(2, join(empty_log(CAPACITY))) };
    assert!(matches!(ask(&other), Refusal::OtherCluster { theirs: CLUSTER, ours: ClusterId(5), .. }));
    assert!(matches!(ask(&hello(2, join(empty_log(100)))), Refusal::BufferTooSmall { capacity: 100, needed: 2048 }));
    assert!(matches!(ask(&hello(1, join(empty_log(CAPACITY)))), Refusal::Myself { node: NodeId(1) }));
    one_of_a_later_release_is_answered(&primary.address(), &hello(2, join(empty_log(100))));
    // A standby says so in its status, and to whoever waits for it to join.
    let log = TestLog::received(CAPACITY);
    let terms = Terms::new(TermState::of(ClusterId(5), TermHistory::default()), Arc::new(VolatileTerms));
    let standby = NewStandby::new(3).following(primary.address()).log(log).terms(terms).start();
    let refused = |link| matches!(link, LinkStatus::Failed { why } if why.contains("belongs to cluster"));
    until("it says why and does not try again", || refused(standby.standby.status().link));
    let error = standby.standby.wait_joined(Instant::now()).unwrap_err().to_string();
    assert!(error.contains("belongs to cluster"), "{error}");
}

/// Why this node does not follow, as it says.
pub fn cannot_follow(link: LinkStatus) -> Option<String> {
    match link {
        LinkStatus::Connecting { last_failure, .. } => last_failure.filter(|why| why.contains("no longer kept")),
        _ => None,
    }
}

/// It is not counted for a moment each time it tries.
#[test]
fn a_standby_whose_log_is_gone_is_refused_with_a_reason() {
    for member in [true, false] {
        let mut config = config(rule(Safety::OneSafe, 1));
        config.feed.boundaries = 2;
        let primary = PrimaryNode::first_on(TestLog::in_ring(4096), config);
        for _ in 0..20 {
            primary.write(&[64; 4]);
        }
        let config = following(FollowConfig { synchronous: member, ..FollowConfig::default() });
        let standby = NewStandby::new(2).following(primary.address()).config(config).start();
        until("it is told why", || cannot_follow(standby.standby.status().link).is_some());
        let why = cannot_follow(standby.standby.status().link).unwrap();
        assert!(why.contains("refuses") && why.contains("keep this node's directories aside"), "{why}");
        primary.commits(primary.log.end());
        let status = primary.primary.status();
        assert!(status.standbys.is_empty() && status.observers.is_empty(), "{status:?}");
    }
}

/// It was fed, and fell behind what is kept; then it is let in no more.
#[test]
fn without_a_store_a_standby_that_falls_behind_is_dropped_with_a_reason() {
    let mut config = config(rule(Safety::OneSafe, 1));
    config.feed.boundaries = 2;
    let primary = PrimaryNode::first_on(TestLog::in_ring(4096), config);
    let standby = StandbyNode::empty(2, &primary.address());
    standby.joined();
    standby.log.stall(true);
    for _ in 0..100 {
        primary.commits(primary.write(&[64; 4]));
    }
    standby.log.stall(false);
    let dropped = || primary.primary.status().standbys[0].last_loss.clone();
    until("the primary says why", || dropped().is_some_and(|why| why.contains("no longer kept")));
    let refused = || cannot_follow(standby.standby.status().link).is_some_and(|why| why.contains("refuses"));
    until("it is refused from then on", refused);
    let lost = &primary.primary.status().standbys[0];
    assert!(!lost.connected && !lost.in_sync, "{lost:?}");
}

#[test]
fn a_standby_that_lies_is_hung_up_on() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let (join, side) = joining(empty_log(CAPACITY));
    let (reply, connection) = call(&primary.address(), &hello(2, join), Term(0), PATIENCE).unwrap();
    let Reply::Welcome(Welcome { offer: Some(offer), .. }) = reply else { panic!("{reply:?}") };
    let (mut sender, _receiver) = side.connect(&offer, connection, None, PATIENCE).unwrap();
    let lie = Ack { persisted: Lsn(999), may_send_until: Lsn(0), replayed: Lsn(0), visible: Lsn(0), observed: None };
    sender.status(wire::ack_words(&lie, Asks::default(), None)).unwrap();
    until("the loss is recorded", || {
        let status = primary.primary.status();
        status.standbys[0].last_loss.as_ref().is_some_and(|why| why.contains("acknowledged the log up to 999"))
    });
}

#[test]
fn two_connections_of_one_standby_are_one_standby() {
    let primary = PrimaryNode::first(config(rule(Safety::Quorum(2), 2)));
    let join = || joining(empty_log(CAPACITY)).0;
    let (_, first) = call(&primary.address(), &hello(2, join()), Term(0), PATIENCE).unwrap();
    let (_, _second) = call(&primary.address(), &hello(2, join()), Term(0), PATIENCE).unwrap();
    let (_, mut receiver) = first.split();
    receiver.set_patience(Some(PATIENCE)).unwrap();
    while receiver.receive().is_ok() {}
    until("the second one is connected", || primary.primary.status().standbys[0].connected);
    assert_eq!(primary.primary.status().standbys.len(), 1);
}

#[test]
fn keep_alives_are_sent_and_answered() {
    let mut config = config(rule(Safety::OneSafe, 1));
    config.feed.flow.keep_alive = Duration::from_millis(2);
    let primary = PrimaryNode::first(config);
    let standby = StandbyNode::empty(2, &primary.address());
    standby.joined();
    let arrive = || standby.standby.status().silence.is_some_and(|silence| silence < Duration::from_millis(50));
    let traffic = || primary.primary.status().standbys[0].sent_bytes;
    let before = traffic();
    until("keep-alives are sent", || traffic() > before + 500);
    until("they arrive", arrive);
    assert_eq!(standby.log.end(), Lsn(0));
}

#[test]
fn silence_ends_a_connection() {
    let mut config = config(rule(Safety::OneSafe, 1));
    config.feed.patience = Duration::from_millis(30);
    let primary = PrimaryNode::first(config);
    // Somebody who joins and says nothing.
    let (join, _side) = joining(empty_log(CAPACITY));
    let (_, _silent) = call(&primary.address(), &hello(3, join), Term(0), PATIENCE).unwrap();
    let loss = || primary.primary.status().standbys[0].last_loss.clone();
    until("it is given up", || loss().is_some());
    assert!(loss().is_some_and(|why| why.contains("silent")), "{:?}", loss());
}

/// Who comes from the address of a standby that is away is there in its place, also after it was
/// there as an observer, as those who begin from a checkpoint are.
#[test]
fn a_node_at_the_address_of_one_that_is_gone_is_in_its_place() {
    for safety in [Safety::Quorum(2), Safety::VerySafe] {
        let primary = PrimaryNode::first(config(rule(safety, 1)));
        let first = StandbyNode::empty(2, &primary.address());
        first.joined();
        let address = first.address();
        drop(first);
        until("it has left", || {
            primary.primary.status().standbys.iter().any(|it| it.node == NodeId(2) && !it.connected)
        });
        let end = primary.write(&[64; 4]);
        assert_eq!(primary.primary.commit().outcome(end), None);
        let (mut asks, _side) = joining(empty_log(CAPACITY));
        let Purpose::Join(join) = &mut asks else { unreachable!() };
        join.member = false;
        let greeting = Hello { address: address.clone(), ..hello(6, asks) };
        let (reply, visit) = call(&primary.address(), &greeting, Term(0), PATIENCE).unwrap();
        assert!(matches!(reply, Reply::Welcome(_)), "{reply:?}");
        until("it is met", || primary.primary.peers().iter().any(|it| it.node == Some(NodeId(6))));
        drop(visit);
        let endpoint = Endpoint::open(NodeId(6), credentials(NodeId(6)), &address).unwrap();
        let terms = Terms::new(TermState::empty(), Arc::new(VolatileTerms));
        let log = TestLog::received(CAPACITY);
        let upstream = Some(primary.address());
        let successor = NewStandby::new(6).upstream(upstream).log(log).terms(terms).endpoint(endpoint).start();
        primary.commits(end);
        successor.shows(end);
        assert!(primary.primary.status().standbys.iter().all(|it| it.node == NodeId(6)));
    }
}

/// Its connection may end, and come again later: until then no checkpoint takes the log away that
/// it needs. Of a member it is said that it left, and it can begin from a checkpoint.
#[test]
fn the_log_is_held_for_a_node_that_is_being_filled() {
    for member in [false, true] {
        let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
        let config = following(FollowConfig { member, ..FollowConfig::default() });
        let node = NewStandby::new(2).following(primary.address()).config(config).start();
        node.joined();
        let end = primary.write(&[64]);
        let needed = || primary.log.log.needed_by_sinks();
        until("it has it", || needed() == end);
        drop(node);
        until("nobody follows", || {
            let status = primary.primary.status();
            status.observers.is_empty() && status.standbys.iter().all(|standby| !standby.connected)
        });
        primary.write(&[64; 4]);
        assert_eq!(needed(), if member { Lsn::MAX } else { end });
    }
}

/// It introduces itself in its newest version, gets those that this side speaks, and does so again
/// in the highest that both know. Without one it gets no other answer.
fn one_of_a_later_release_is_answered(primary: &str, hello: &Hello) {
    for (oldest, is_answered) in [(wire::PROTOCOL, true), (99, false)] {
        let mut connection = connected(2, primary);
        let mut greeting = wire::encode_in(99, hello);
        greeting[2..6].copy_from_slice(&[oldest.to_le_bytes(), 99_u16.to_le_bytes()].concat());
        connection.sender().send(Kind::Hello as u8, Term(0), &greeting).unwrap();
        connection.receiver().receive().unwrap();
        let error = wire::decode_first::<Reply>("answer", connection.receiver().immediate()).unwrap_err();
        let DecodeError::Version(differ) = error else { panic!("{error}") };
        assert_eq!(differ.common(), Some(wire::PROTOCOL));
        greeting = wire::encode_in(wire::PROTOCOL, hello);
        greeting[4..6].copy_from_slice(&99_u16.to_le_bytes());
        let sent = connection.sender().send(Kind::Hello as u8, Term(0), &greeting);
        let answered = sent.is_ok() && connection.receiver().receive().is_ok();
        assert_eq!(answered, is_answered, "from version {oldest} on");
        if is_answered {
            let (reply, _) = wire::decode_first::<Reply>("answer", connection.receiver().immediate()).unwrap();
            assert!(matches!(reply, Reply::Refused(Refusal::BufferTooSmall { .. })), "{reply:?}");
        }
    }
}
