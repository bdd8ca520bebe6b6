use std::time::Duration;

use freshet_base::{Consent, Lsn, NodeId, OutcomeOpen, Safety, Term, sync::Arc};
use freshet_cluster::{
    Moment,
    commit_rule::{RuleConfig, Standing},
    handshake,
    in_sync::Succession,
    meeting::Yields,
    relay::RelayAck,
    term::{TermHistory, TermState},
};
use freshet_fabric::{
    FabricConfig, FabricKind,
    channel::{Arrival, Receiver, Sender, Side},
    local::LocalListener,
    tcp::Connection,
};

use super::{fixture::*, mirroring::MirrorNode};
use crate::{
    follow::{FollowConfig, StandbyFabric},
    primary::PrimaryConfig,
    promotion::{PromoteError, PromoteOptions, Promoted},
    restart::ask_others,
    standby::{RelayConfig, ReplayMode, StandbyConfig},
    status::LinkStatus,
    terms::{Terms, VolatileTerms},
    wire::{self, BatchNote, Hello, Join, Kind, Peer, Purpose, Refusal, Reply, Welcome},
};

/// Makes a promoted standby the primary, as the engine does.
pub fn crown(node: StandbyNode, promoted: &Promoted, config: PrimaryConfig) -> PrimaryNode {
    let StandbyNode { endpoint, standby, log, terms, .. } = node;
    endpoint.set_service(None);
    let name = standby.status().node;
    drop(standby);
    log.promote(promoted.term);
    let peers = promoted.peers.iter().map(|peer| peer.address.clone()).collect();
    PrimaryNode::succeed(endpoint, name, PrimaryConfig { peers, ..config }, log, terms, promoted.committed)
}

fn trio(safety: Safety) -> (PrimaryNode, StandbyNode, StandbyNode) {
    let primary = PrimaryNode::first(config(rule(safety, 2)));
    let (a, b) = (StandbyNode::empty(2, &primary.address()), StandbyNode::empty(3, &primary.address()));
    a.joined();
    b.joined();
    let knows_all = |node: &StandbyNode| node.standby.peers().iter().filter(|peer| peer.node.is_some()).count() == 3;
    until("everyone knows everyone", || knows_all(&a) && knows_all(&b));
    let nodes = [(1, &primary.terms), (2, &a.terms), (3, &b.terms)];
    match safety {
        Safety::VerySafe => are_named(&nodes, 3),
        Safety::Quorum(k) => are_named(&nodes, k),
        Safety::OneSafe | Safety::TwoSafe | Safety::Majority => {}
    }
    (primary, a, b)
}

#[test]
fn a_standby_takes_over_and_the_other_follows() {
    let (primary, a, b) = trio(Safety::VerySafe);
    let end = primary.write(&[64; 8]);
    primary.commits(end);
    drop(primary);
    let reader = Arc::clone(b.standby.visible());
    let promoted = a.standby.promote(&PromoteOptions::default()).unwrap();
    assert_eq!((promoted.term, promoted.start), (Term(2), end));
    let primary = crown(a, &promoted, config(rule(Safety::Quorum(2), 2)));
    let end = primary.write(&[64; 8]);
    primary.commits(end);
    b.shows(end);
    assert_eq!(reader.get(), end, "a reader's watermark outlives the failover");
    assert!(b.log.bytes() == primary.log.bytes());
    assert_eq!(b.terms.get().history, promoted.history);
}

#[test]
fn what_only_another_standby_holds_is_fetched() {
    let (primary, a, b) = trio(Safety::Quorum(2));
    let first = primary.write(&[64; 4]);
    primary.commits(first);
    until("both have it", || a.log.persisted() == first && b.log.persisted() == first);
    // The network parts a from the primary, which it would find again by itself; b acknowledges on.
    primary.endpoint.set_service(None);
    a.standby.follow("127.0.0.1:1");
    until("the loss is noticed", || primary.primary.status().standbys.iter().any(|standby| !standby.connected));
    let end = primary.write(&[200; 90]);
    primary.commits(end);
    drop(primary);
    let promoted = a.standby.promote(&PromoteOptions::default()).unwrap();
    assert_eq!(promoted.start, end);
    assert!(a.log.bytes() == b.log.bytes());
}

/// What the old primary may not have committed is not committed by the failover, nor shown by
/// anybody, before enough nodes hold it.
#[test]
fn the_end_of_an_inherited_log_is_not_taken_for_committed() {
    let (primary, a, b) = trio(Safety::VerySafe);
    let end = primary.write(&[64; 4]);
    primary.commits(end);
    a.shows(end);
    b.log.stall(true);
    let tail = primary.write(&[128; 3]);
    until("one of them has it", || a.log.persisted() == tail);
    assert_eq!(primary.primary.commit().outcome(tail), None);
    drop(primary);
    let promoted = a.standby.promote(&PromoteOptions::default()).unwrap();
    assert_eq!((promoted.start, promoted.committed), (tail, end));
    let primary = crown(a, &promoted, config(rule(Safety::VerySafe, 2)));
    b.log.stall(false);
    until("the other has it too", || b.log.persisted() == tail);
    let more = primary.write(&[64]);
    until("and what was written since", || b.log.persisted() == more);
    let of_b = |standby: &crate::status::StandbyStatus| standby.node == NodeId(3) && standby.acked == more;
    until("its word counts", || primary.primary.status().standbys.iter().any(of_b));
    assert_eq!((primary.primary.commit().committed(), b.standby.visible().get()), (end, end));
    assert_eq!(primary.primary.commit().outcome(tail), None);
    // With the second standby all of it is committed, at once.
    let third = StandbyNode::empty(4, &primary.address());
    primary.commits(more);
    third.shows(more);
    b.shows(more);
}

/// A candidate that was emptied knows one node alone, and that one knows another.
#[test]
fn a_candidate_asks_whom_others_know() {
    let (primary, a, b) = trio(Safety::OneSafe);
    let end = primary.write(&[64; 8]);
    primary.commits(end);
    [&a, &b].into_iter().for_each(|node| node.shows(end));
    drop(primary);
    let state = TermState { cluster: Some(CLUSTER), ..TermState::empty() };
    let terms = Terms::new(state, Arc::new(VolatileTerms));
    let emptied = NewStandby::new(4).following(a.address()).terms(terms).start();
    let known = vec![Peer::at(a.address())];
    let options = PromoteOptions { configured: Some(Safety::OneSafe), known, ..PromoteOptions::default() };
    let promoted = emptied.standby.promote(&options).unwrap();
    assert_eq!(promoted.start, end);
    let has_answered = |node: &StandbyNode| promoted.answered_at.contains(&node.address());
    assert!(has_answered(&a) && has_answered(&b), "{promoted:?}");
}

/// Its disk may have been set back to a time when it knew one of them.
#[test]
fn a_primary_that_starts_again_asks_whom_others_know() {
    let (primary, a, b) = trio(Safety::TwoSafe);
    let end = primary.write(&[64; 8]);
    primary.commits(end);
    let (credentials, terms, own) = (credentials(NodeId(1)), primary.terms.clone(), primary.address());
    drop(primary);
    let knows = [own, a.address()];
    let others = ask_others(NodeId(1), &credentials, &terms, &knows, PATIENCE);
    let mut answered: Vec<u64> = others.answers.iter().map(|(node, _)| node.0).collect();
    answered.sort_unstable();
    assert_eq!(answered, [2, 3]);
    // Who is gone is waited for only if the primary knows it itself.
    drop(b);
    let others = ask_others(NodeId(1), &credentials, &terms, &knows, PATIENCE);
    assert_eq!((others.answers.len(), others.silent), (1, 1), "its own address, where nobody is now");
}

/// Two nodes led in one term, and one has yielded. A node that has heard of its term tries to
/// follow it, is refused, and no longer names it as the primary.
#[test]
fn who_has_yielded_is_not_named_as_the_primary() {
    for mirrors in [false, true] {
        let (primary, yielded, _) = trio(Safety::OneSafe);
        let term = Term(2);
        let patience = PATIENCE * 10;
        let announce = |to: &str| {
            let claim = announces(NodeId(2), term, &yielded.address());
            let hello = Hello { cluster: Some(CLUSTER), node: NodeId(2), address: yielded.address(), purpose: claim };
            let (reply, _) = call(to, &hello, term, PATIENCE).unwrap();
            assert!(matches!(reply, Reply::Noted), "{reply:?}");
        };
        let asks = |address: &str| {
            let (credentials, terms) = (credentials(NodeId(1)), primary.terms.clone());
            ask_others(NodeId(1), &credentials, &terms, &[address.to_owned()], PATIENCE).leads.is_some()
        };
        if mirrors {
            let config = patient(small(FabricKind::Tcp), patience);
            let mirror = MirrorNode::new(4, primary.address(), config);
            let address = mirror.endpoint.address().to_string();
            announce(&address);
            until("the mirror no longer names it", || !asks(&address));
        } else {
            let config = following(FollowConfig { patience, ..FollowConfig::default() });
            let standby = NewStandby::new(4).following(primary.address()).config(config).start();
            announce(&standby.address());
            until("the standby no longer names it", || !asks(&standby.address()));
        }
    }
}

/// A primary in term 2, which knows of another address.
fn of_term_two(node: u64, peer: &str, timeout: Duration) -> PrimaryNode {
    let terms = Terms::new(TermState::of(CLUSTER, TermHistory::first(Term(1), NodeId(1), 1)), Arc::new(VolatileTerms));
    terms.begin(Term(2), NodeId(node), Lsn(0), &Succession::begin()).unwrap();
    let rule = RuleConfig { standby_timeout: timeout, ..rule(Safety::Quorum(2), 2) };
    let config = PrimaryConfig { peers: vec![peer.to_owned()], ..config(rule) };
    let endpoint = open(node);
    PrimaryNode::lead(endpoint, NodeId(node), config, TestLog::filled(Term(2)), terms)
}

#[test]
fn of_two_primaries_in_one_term_one_stands_down() {
    let stands_down = |node: &PrimaryNode| {
        until("it stands down", || node.primary.commit().standing() == Standing::Fenced { by: Term(2) });
    };
    // Neither has committed anything: the one with the smaller name gives way at once when they
    // meet.
    let small = of_term_two(2, "127.0.0.1:1", PATIENCE * 2);
    let large = of_term_two(3, &small.address(), PATIENCE * 2);
    stands_down(&small);
    assert!(!matches!(large.primary.commit().standing(), Standing::Fenced { .. }));
    // The one that commits goes on, whatever it is called.
    let small = of_term_two(2, "127.0.0.1:1", PATIENCE * 2);
    let standby = StandbyNode::empty(5, &small.address());
    let end = small.write(&[64; 4]);
    small.commits(end);
    let large = of_term_two(3, &small.address(), Duration::from_millis(20));
    stands_down(&large);
    let end = small.write(&[64]);
    small.commits(end);
    standby.shows(end);
}

#[test]
fn too_few_votes_are_not_enough_unless_forced() {
    let (primary, a, b) = trio(Safety::Quorum(2));
    let end = primary.write(&[64; 4]);
    primary.commits(end);
    drop(primary);
    drop(b);
    let error = a.standby.promote(&PromoteOptions::default()).unwrap_err();
    assert!(matches!(error, PromoteError::TooFew { answered: 1, needed: 2, .. }), "{error}");
    assert_eq!(a.terms.fence().highest(), Term(1), "a hopeless attempt disturbs nobody");
    let promoted = a.standby.promote(&PromoteOptions { consent: Consent::Loss, ..Default::default() }).unwrap();
    assert_eq!(promoted.term, Term(2));
}

#[test]
fn a_partitioned_old_primary_is_refused_and_rejoins_without_its_tail() {
    let (old, a, b) = trio(Safety::Quorum(2));
    let end = old.write(&[64; 4]);
    old.commits(end);
    until("both have it", || a.log.persisted() == end && b.log.persisted() == end);
    // Partitioned: nobody reaches the old primary at its address, and its connections are cut.
    old.endpoint.set_service(None);
    a.standby.follow("127.0.0.1:1");
    b.standby.follow("127.0.0.1:1");
    until("it is alone", || old.primary.status().standbys.iter().all(|standby| !standby.connected));
    let lost = old.write(&[128; 3]);
    let promoted = a.standby.promote(&PromoteOptions::default()).unwrap();
    let new = crown(a, &promoted, config(rule(Safety::Quorum(2), 2)));
    let fresh = new.write(&[64; 2]);
    new.commits(fresh);
    b.shows(fresh);
    assert_ne!(old.primary.commit().outcome(lost), Some(Ok(())), "nothing is acknowledged in the old term");
    // The partition heals: whatever the old primary says is refused, and it learns.
    let knock = Hello {
        cluster: Some(CLUSTER),
        node: NodeId(1),
        address: old.address(),
        purpose: announces(NodeId(1), Term(1), &old.address()),
    };
    let refused = call(&b.address(), &knock, Term(1), PATIENCE).unwrap_err().to_string();
    assert!(refused.contains("term 1 is over: term 2 is in force"), "{refused}");
    old.endpoint.set_service(Some(old.primary.service()));
    until("it hears of the new term", || matches!(old.primary.commit().standing(), Standing::Fenced { by: Term(2) }));
    assert!(matches!(old.primary.commit().outcome(lost), Some(Err(OutcomeOpen::Fenced(_)))));
    // It may have heard of the other from those that follow, before the two have met.
    for (primary, yields) in [(&old.primary, Yields::This), (&new.primary, Yields::Other)] {
        for met in primary.status().two_primaries {
            assert!(met.yields == yields && met.why.contains("that yields is the earlier one"), "{met:?}");
        }
    }
    // It comes back as a standby.
    let PrimaryNode { endpoint, primary, log: written, terms, .. } = old;
    drop((endpoint, primary));
    let tail = &written.bytes()[end.0 as usize..lost.0 as usize];
    let log = TestLog::received(CAPACITY);
    log.append(&written.bytes());
    let again = NewStandby::new(1).following(new.address()).log(log).terms(terms).start();
    again.joined();
    again.shows(fresh);
    assert!(again.log.bytes() == new.log.bytes());
    let saved = again.log.saved();
    assert!(matches!(&saved[..], [(at, bytes)] if *at == end.0 && bytes.ends_with(tail)), "{saved:?}");
    assert_eq!(again.tape.cuts(), vec![end.0]);
    assert_eq!(again.standby.status().saved_tails.len(), 1);
}

/// A primary that is cut off continues alone, as it may, and a failover is forced. What it has
/// acknowledged last it knows when it has observed that, and when it is stopped: it follows no log
/// without that, and is named.
#[test]
fn what_a_primary_has_acknowledged_alone_it_keeps() {
    for is_fenced in [false, true] {
        let standby_timeout = Duration::from_millis(30);
        let old = PrimaryNode::first(config(RuleConfig { standby_timeout, ..rule(Safety::TwoSafe, 1) }));
        let standby = StandbyNode::empty(2, &old.address());
        standby.joined();
        let end = old.write(&[64; 4]);
        old.commits(end);
        old.endpoint.set_service(None);
        standby.standby.follow("127.0.0.1:1");
        until("it is alone", || old.primary.status().standbys.iter().all(|standby| !standby.connected));
        let alone = old.write(&[128; 3]);
        old.commits(alone);
        let promoted =
            standby.standby.promote(&PromoteOptions { consent: Consent::Loss, ..Default::default() }).unwrap();
        assert_eq!(promoted.start, end);
        let new = crown(standby, &promoted, config(rule(Safety::TwoSafe, 1)));
        if is_fenced {
            old.primary.fence(Term(2));
            assert_eq!(old.terms.get().committed, alone);
        }
        let PrimaryNode { endpoint, primary, log: written, terms, .. } = old;
        primary.stop();
        assert_eq!(terms.get().committed, alone);
        drop((endpoint, primary));
        let log = TestLog::received(CAPACITY);
        log.append(&written.bytes());
        let again = NewStandby::new(1).following(new.address()).log(log).terms(terms).start();
        until("it is named", || {
            let ahead = new.primary.status().ahead;
            ahead.first().is_some_and(|one| (one.node, one.acknowledged) == (NodeId(1), alone))
        });
        assert!(again.log.bytes() == written.bytes() && again.log.saved().is_empty(), "it keeps all that it has");
    }
}

#[test]
fn a_living_primary_is_deposed_without_loss() {
    let (old, a, b) = trio(Safety::OneSafe);
    let mut end = Lsn(0);
    for _ in 0..50 {
        end = old.write(&[64; 3]);
    }
    old.commits(end);
    let promoted = a.standby.promote(&PromoteOptions::default()).unwrap();
    assert_eq!(promoted.start, end, "the old primary was asked for what it held");
    assert!(matches!(old.primary.commit().standing(), Standing::Fenced { by: Term(2) }));
    let new = crown(a, &promoted, config(rule(Safety::OneSafe, 2)));
    until("the old one knows that it is not needed any more", || old.primary.is_succeeded());
    let end = new.write(&[64]);
    b.shows(end);
}

/// It is fenced at once and continues to answer, since its log may be what the candidate lacks,
/// until the candidate gives up.
#[test]
fn a_deposed_primary_stays_until_its_successor_has_what_it_needs() {
    let (old, _a, _b) = trio(Safety::TwoSafe);
    old.primary.fence(Term(2));
    assert!(old.primary.is_fenced() && !old.primary.is_succeeded());
    until("nobody says anything any more", || old.primary.is_succeeded());
}

#[test]
fn a_standby_that_was_put_out_does_not_take_over_by_itself() {
    let primary = PrimaryNode::first(config(freshet_cluster::commit_rule::RuleConfig {
        standby_timeout: std::time::Duration::from_millis(30),
        ..rule(Safety::TwoSafe, 1)
    }));
    let standby = StandbyNode::empty(2, &primary.address());
    standby.joined();
    standby.log.stall(true);
    let end = primary.write(&[64; 4]);
    primary.commits(end);
    until("it knows that it is not in sync", || standby.standby.status().in_sync == Some(false));
    let address = primary.address();
    drop(primary);
    let error = standby.standby.promote(&PromoteOptions::default()).unwrap_err().to_string();
    assert!(error.contains("acknowledged commits might be lost") && error.contains(&address), "{error}");
}

/// A primary of our making, which has welcomed the standby with an empty log in term 3.
fn impostor() -> (StandbyNode, Sender, Receiver) {
    impostor_for(StandbyConfig::default())
}

fn impostor_for(config: StandbyConfig) -> (StandbyNode, Sender, Receiver) {
    let listener = freshet_fabric::tcp::Listener::bind("127.0.0.1:0").unwrap();
    let upstream = listener.address().unwrap();
    let local = LocalListener::bind("node", upstream).unwrap();
    let kind = config.follow.fabric.kind;
    let standby = NewStandby::new(2).following(upstream.to_string()).config(config).start();
    let deadline = std::time::Instant::now() + PATIENCE;
    let server = credentials(NodeId(1)).server();
    let connection = listener.accept().unwrap().unwrap();
    let mut connection = connection.secured(|stream| stream.secure_server(server, deadline)).unwrap();
    if kind == FabricKind::Shm {
        let socket = local.accept().unwrap();
        let mut passage = Connection::new(socket.try_clone().unwrap().into(), upstream);
        passage.receiver().receive().unwrap();
        passage.sender().send(Kind::Reply as u8, Term(0), &wire::encode_in(wire::PROTOCOL, &Reply::Noted)).unwrap();
        connection = connection.beside(socket);
    }
    connection.receiver().receive().unwrap();
    let (hello, _): (Hello, _) = wire::decode_first("greeting", connection.receiver().immediate()).unwrap();
    let Purpose::Join(Join { offer, .. }) = hello.purpose else { panic!("{hello:?}") };
    let side = Side::new(offer.kind(), FabricConfig::default(), vec![]).unwrap();
    let history = TermHistory::first(Term(3), NodeId(1), 1);
    let (cut_at, end, keep_alive_ms, lease_ms) = (Lsn(0), Lsn(0), 60_000, 0);
    let (cluster, above, node, term) = (CLUSTER, Vec::new(), NodeId(1), Term(3));
    let log = handshake::Welcome { cluster, above, node, term, history, cut_at, end, keep_alive_ms, lease_ms };
    let welcome = Reply::Welcome(Welcome { log, offer: Some(side.offer().clone()), bare: false });
    connection.sender().send(Kind::Reply as u8, Term(3), &wire::encode_in(wire::PROTOCOL, &welcome)).unwrap();
    let (sender, mut receiver) = side.connect(&offer, connection, None, PATIENCE).unwrap();
    standby.joined();
    // It says what it has room for.
    while wire::ack_of_words(receiver.status()).0.may_send_until == Lsn(0) {
        assert_eq!(receiver.next(PATIENCE).unwrap(), Some(Arrival::Status));
    }
    (standby, sender, receiver)
}

/// Writes a batch of one block and says that it is there; as a primary does with the appliance
/// method, before it reads it back.
fn place(sender: &mut Sender, at: Lsn) -> Lsn {
    let (bytes, ends) = blocks(at, &[64]);
    let (global, time, end) = (Lsn(0), Moment(1), ends[0]);
    let note = BatchNote { global, time, begun: time, end, in_sync: true, ends: vec![64], ..BatchNote::default() };
    sender.place(at.0, &bytes).unwrap();
    sender.send(Kind::Batch as u8, Term(3), at.0, 64, &wire::encode(&note)).unwrap();
    end
}

fn appliance(kind: FabricKind) -> StandbyConfig {
    let fabric = StandbyFabric { kind, appliance: true, ..StandbyFabric::default() };
    following(FollowConfig { fabric, ..FollowConfig::default() })
}

/// Its receiving thread is behind when the candidate comes; and whatever the primary does then, it
/// learns that it counts for nothing.
#[test]
fn what_was_read_back_is_in_the_answer_to_a_candidate() {
    for kind in FABRICS {
        let (standby, mut sender, mut receiver) = impostor_for(appliance(kind));
        standby.log.stall(true);
        // Over TCP the receiving thread answers reads; this one is only there to hear that.
        let listening = std::thread::spawn(move || while receiver.next(PATIENCE).is_ok() {});
        let first = place(&mut sender, Lsn(0));
        sender.read_back(first.0).unwrap();
        until("it is received", || standby.log.end() == first);
        let (mut counts, mut taking_in) = (first, None);
        if kind == FabricKind::Shm {
            // The other side is not asked.
            taking_in = Some(standby.standby.shared.store.receiver.lock().unwrap());
            for _ in 0..2 {
                counts = place(&mut sender, counts);
                sender.read_back(counts.0).unwrap();
            }
        }
        let consult = Hello {
            cluster: Some(CLUSTER),
            node: NodeId(9),
            address: String::new(),
            purpose: Purpose::Consult { term: Term(4), binding: true, gives_way: None, handed: None, stands: None },
        };
        let address = standby.address();
        let asked = std::thread::spawn(move || call(&address, &consult, Term(4), PATIENCE));
        until("it has promised", || standby.terms.fence().highest() == Term(4));
        drop(taking_in);
        until("all that was read back is received", || standby.log.end() == counts);
        assert!(!asked.is_finished(), "{kind}: it is not persistent yet");
        standby.log.stall(false);
        let (reply, _) = asked.join().unwrap().unwrap();
        let Reply::Log { log, .. } = reply else { panic!("{reply:?}") };
        assert_eq!(log.end, counts, "{kind}");
        let (bytes, _) = blocks(counts, &[64]);
        let late = sender.place(counts.0, &bytes).and_then(|()| sender.read_back(counts.0 + 64));
        assert!(late.is_err(), "{kind}: a primary of before reads back what nobody will take");
        assert_eq!((standby.log.end(), standby.log.persisted()), (counts, counts));
        drop(standby);
        listening.join().unwrap();
    }
}

#[test]
fn what_a_primary_cannot_know_it_does_not_acknowledge() {
    let downstream = RelayConfig::new(RelayAck::Downstream, 1);
    for config in [
        StandbyConfig { replay: ReplayMode::Synchronous, ..appliance(FabricKind::Shm) },
        StandbyConfig { relay: Some(downstream), ..appliance(FabricKind::Shm) },
    ] {
        let why = config.check().unwrap_err();
        assert!(why.contains("general-purpose"), "{why}");
    }
    // A record of an in-sync set counts when the standby has noted it, and so does what follows.
    let endpoint = open(1);
    let terms = Terms::new(TermState::of(CLUSTER, TermHistory::first(Term(1), NodeId(1), 1)), Arc::new(VolatileTerms));
    let (rule, sets) = (config(rule(Safety::TwoSafe, 1)), (Lsn(0), Some(Succession::begin())));
    let primary = PrimaryNode::start(endpoint, NodeId(1), rule, TestLog::filled(Term(1)), terms, sets);
    let log = TestLog::received(CAPACITY);
    let standby = NewStandby::new(2).following(primary.address()).config(appliance(FabricKind::Shm)).log(log).start();
    standby.joined();
    standby.log.stall(true);
    let read_back = primary.write(&[64; 4]);
    let acked = || primary.primary.status().standbys.first().map_or(Lsn(0), |standby| standby.acked);
    until("reading back is enough", || acked() == read_back);
    let recorded = std::sync::Arc::new(std::sync::Mutex::new(()));
    let (held, recording) = (recorded.lock().unwrap(), std::sync::Arc::clone(&recorded));
    let (begins, has_begun) = std::sync::mpsc::channel();
    let end = read_back.plus(64);
    primary.primary.record_sets(move |_| {
        begins.send(()).unwrap();
        drop(recording.lock());
        Ok(end)
    });
    has_begun.recv_timeout(PATIENCE).unwrap();
    let to = primary.write(&[64]);
    assert_eq!(to, end);
    drop(held);
    let to = primary.write(&[64]);
    until("it is received", || standby.log.end() == to);
    assert_eq!(acked(), read_back);
    standby.log.stall(false);
    until("the standby says so", || acked() == to);
    // While another set is being recorded, nothing counts that is only read back.
    until("no set is left to be recorded", || primary.primary.commit().set_to_write().is_none());
    standby.log.stall(true);
    let more = primary.write(&[64]);
    until("reading back is enough again", || acked() == more);
}

/// Sends one batch in `term` and returns what is acknowledged, and why the connection ends.
fn ship_in(term: Term, sender: &mut Sender, receiver: &mut Receiver) -> (Lsn, Option<Refusal>) {
    let (bytes, ends) = blocks(Lsn(0), &[64]);
    let (global, time, end) = (Lsn(0), Moment(1), ends[0]);
    let note = BatchNote { global, time, begun: time, end, in_sync: true, ends: vec![64], ..BatchNote::default() };
    let _ = sender.place(0, &bytes);
    let _ = sender.send(Kind::Batch as u8, term, 0, 64, &wire::encode(&note));
    let mut acked = Lsn(0);
    while let Ok(Some(arrival)) = receiver.next(PATIENCE) {
        if let Arrival::Frame(header) = arrival {
            assert_eq!(header.kind, Kind::Goodbye as u8);
            return (acked, Some(wire::decode("goodbye", receiver.message()).unwrap()));
        }
        acked = acked.max(wire::ack_of_words(receiver.status()).0.persisted);
        if acked == ends[0] {
            break;
        }
    }
    (acked, None)
}

#[test]
fn a_batch_of_an_old_term_is_refused_on_a_living_connection() {
    let (_standby, mut sender, mut receiver) = impostor();
    let (acked, refusal) = ship_in(Term(2), &mut sender, &mut receiver);
    assert_eq!(acked, Lsn(0));
    assert!(matches!(refusal, Some(Refusal::Fenced { asked: Term(2), highest: Term(3), .. })), "{refusal:?}");
    // In the right term the same batch is welcome.
    let (_standby, mut sender, mut receiver) = impostor();
    assert_eq!(ship_in(Term(3), &mut sender, &mut receiver), (Lsn(64), None));
}

#[test]
fn whoever_has_promised_a_term_acknowledges_nothing_earlier() {
    let (standby, mut sender, mut receiver) = impostor();
    let consult = Hello {
        cluster: Some(CLUSTER),
        node: NodeId(9),
        address: String::new(),
        purpose: Purpose::Consult { term: Term(4), binding: true, gives_way: None, handed: None, stands: None },
    };
    let (reply, _) = call(&standby.address(), &consult, Term(4), PATIENCE).unwrap();
    assert!(matches!(reply, Reply::Log { node: NodeId(2), .. }));
    assert_eq!(ship_in(Term(3), &mut sender, &mut receiver).0, Lsn(0));
    assert_eq!(standby.terms.fence().highest(), Term(4));
}

#[test]
fn half_a_transaction_is_left_behind() {
    for parts in [1, 3] {
        let (primary, a, b) = trio(Safety::Quorum(2));
        let end = primary.write(&[64; 4]);
        primary.commits(end);
        let long = primary.long(vec![vec![96, 200, 64]; parts + 1]);
        let mut half = end;
        for _ in 0..parts {
            half = long.put();
        }
        until("they have it", || [&a, &b].iter().all(|node| node.log.persisted() == half));
        until("it is persistent at all places that count", || primary.primary.commit().reached().get() == half);
        assert_eq!(primary.primary.commit().committed(), end);
        // It may be told of it later than the clients are.
        a.shows(end);
        drop(primary);
        assert_eq!(a.standby.visible().get(), end);
        let promoted = a.standby.promote(&PromoteOptions::default()).unwrap();
        assert_eq!((promoted.start, a.log.end()), (end, end));
        assert_eq!(a.tape.cuts(), [end.0]);
        // No node says anything but for a reason.
        let mut config = config(rule(Safety::Quorum(2), 2));
        config.feed.flow.keep_alive = Duration::from_secs(3600);
        config.feed.patience = PATIENCE * 2;
        let primary = crown(a, &promoted, config);
        let is_fed = || matches!(b.standby.status().link, LinkStatus::Following { node: NodeId(2), .. });
        until("it has cut its log and follows", is_fed);
        b.log.stall(true);
        // As long as what was left behind, or shorter: it must not be taken for that.
        let end = primary.write(&[96, 200, 64]);
        until("it has arrived", || b.log.end() == end);
        b.log.stall(false);
        primary.commits(end);
        b.shows(end);
        assert!(b.log.bytes() == primary.log.bytes());
        assert_eq!(b.tape.cuts(), [promoted.start.0]);
    }
}
