//! A mirror takes over although another node has more than it: a primary that works, or a standby.

use std::time::{Duration, Instant};

use freshet_base::{Lsn, NodeId, OutcomeOpen, Safety, Term, sync::Arc};
use freshet_cluster::{
    commit_rule::RuleConfig,
    term::{TermEntry, TermHistory, TermState},
};
use freshet_fabric::{FabricKind, tcp::Connection};

use super::{fixture::*, mirroring::*, taking_over::crown};
use crate::{
    endpoint::{CallError, Service},
    mirror::MirrorConfig,
    promotion::{PromoteError, PromoteOptions, Promoted},
    terms::{Terms, VolatileTerms},
    wire::{Hello, Peer, Purpose, Refusal, Reply},
};

/// At most this number of bytes of log is kept by a mirror that is far behind.
const MOST: u64 = 100_000;

/// The mirror's memory is what the log says below the start of its term.
#[track_caller]
fn has(mirror: &MirrorNode, promoted: &Promoted, log: &TestLog) {
    let start = promoted.start;
    let (found, wanted) = (mirror.records(start), newest(&log.bytes()[..start.0 as usize]));
    assert!(found == wanted, "{} of {} records: {:?}", found.len(), wanted.len(), mirror.mirror.status());
}

/// Lets no node join.
struct Closed(Arc<dyn Service>);

impl Service for Closed {
    fn serve(&self, hello: Hello, connection: Connection) {
        if !matches!(hello.purpose, Purpose::Join(_)) {
            self.0.serve(hello, connection);
        }
    }
}

/// The mirror is fed no more.
fn part(primary: &PrimaryNode, mirror: &MirrorNode) {
    primary.endpoint.set_service(Some(Arc::new(Closed(primary.primary.service()))));
    mirror.mirror.follow("127.0.0.1:1");
    until("the loss is noticed", || primary.primary.status().standbys.iter().any(|standby| !standby.connected));
}

fn knowing(address: String, node: u64) -> PromoteOptions {
    let known = vec![Peer { node: Some(NodeId(node)), address, serves: true }];
    PromoteOptions { known, ..PromoteOptions::default() }
}

/// What the mirror has to pass on is the end of that log, whole transactions.
#[track_caller]
fn passes_on(mirror: &MirrorNode, promoted: &Promoted, log: &TestLog, from: Lsn) {
    let fetched = mirror.mirror.fetched(promoted.start);
    assert_eq!(fetched.from, from);
    assert!(fetched.blocks == log.bytes()[from.0 as usize..promoted.start.0 as usize]);
}

#[test]
fn a_mirror_takes_over_while_its_primary_writes() {
    for kind in fabrics() {
        let primary = PrimaryNode::first(feeding(kind, rule(Safety::Quorum(2), 1)));
        let mirror = MirrorNode::new(2, primary.address(), small(kind));
        mirror.joined();
        primary.commits(primary.write(&[64, 96]));
        until("it has a vote", || mirror.mirror.status().whole);
        are_named(&[(1, &primary.terms), (2, mirror.terms())], 2);
        let (promoted, acknowledged) = std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut acknowledged = Lsn::ZERO;
                while !primary.primary.is_fenced() {
                    let end = primary.write(&[64, 72, 400]);
                    if primary.primary.commit().wait(end, (Instant::now() + PATIENCE).into()).is_ok() {
                        acknowledged = end;
                    }
                }
                acknowledged
            });
            until("commits are acknowledged", || primary.primary.commit().committed() > Lsn(20_000));
            let promoted = mirror.mirror.promote(&PromoteOptions::default()).unwrap();
            (promoted, writing.join().unwrap())
        });
        assert!(
            promoted.start >= acknowledged && promoted.term == Term(2),
            "{promoted:?}, acknowledged up to {acknowledged}"
        );
        has(&mirror, &promoted, &primary.log);
    }
}

/// Its undo ring is used again and again, and its memory grows.
#[test]
fn a_mirror_that_is_far_behind_takes_over() {
    for kind in FABRICS {
        let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
        let config = MirrorConfig { fetched: MOST, ..small(kind) };
        let mirror = MirrorNode::new(2, primary.address(), config);
        mirror.joined();
        primary.write(&[64, 96]);
        until("it has a vote", || mirror.mirror.status().whole);
        part(&primary, &mirror);
        let regions = mirror.mirror.memory().len();
        for _ in 0..400 {
            primary.write(&[64, 200, 904]);
        }
        let promoted = mirror.mirror.promote(&knowing(primary.address(), 1)).unwrap();
        assert_eq!(promoted.start, primary.log.end());
        assert!(mirror.mirror.memory().len() > regions);
        has(&mirror, &promoted, &primary.log);
        // The newest of it.
        let fetched = mirror.mirror.fetched(promoted.start);
        let length = fetched.blocks.len() as u64;
        assert!(length <= MOST && length > 0, "{length} bytes from {}", fetched.from);
        assert!(fetched.blocks == primary.log.bytes()[fetched.from.0 as usize..]);
    }
}

/// All that is missing comes from another standby.
#[test]
fn a_mirror_gets_from_a_standby_what_the_primary_has_left_there() {
    let primary = PrimaryNode::first(config(rule(Safety::Quorum(2), 2)));
    let (mirror, standby) =
        (MirrorNode::new(2, primary.address(), small(FabricKind::Shm)), { StandbyNode::empty(3, &primary.address()) });
    mirror.joined();
    standby.joined();
    let before = primary.write(&[64, 96]);
    primary.commits(before);
    until("it has a vote", || mirror.mirror.status().whole && mirror.mirror.status().end == before);
    part(&primary, &mirror);
    let end = (0..20).map(|_| primary.write(&[64, 200])).last().unwrap();
    primary.commits(end);
    until("the standby has all", || standby.log.persisted() == end);
    are_named(&[(1, &primary.terms), (2, mirror.terms()), (3, &standby.terms)], 2);
    drop(primary);
    let promoted = mirror.mirror.promote(&knowing(standby.address(), 3)).unwrap();
    assert_eq!((promoted.start, promoted.committed), (end, standby.standby.status().visible));
    has(&mirror, &promoted, &standby.log);
    passes_on(&mirror, &promoted, &standby.log, before);
}

/// A transaction that the primary does not have wholly never was, whether its beginning fits a
/// batch or not.
#[test]
fn the_beginning_of_a_transaction_is_left_out() {
    for parts in [1, 60] {
        let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
        let mirror = MirrorNode::new(2, primary.address(), small(FabricKind::Tcp));
        mirror.joined();
        let before = primary.write(&[64, 96]);
        until("it has a vote", || mirror.mirror.status().whole && mirror.mirror.status().end == before);
        part(&primary, &mirror);
        let end = primary.write(&[64, 200]);
        let long = primary.long((0..parts + 1).map(|_| vec![1000]).collect());
        (0..parts).for_each(|_| _ = long.put());
        let promoted = mirror.mirror.promote(&knowing(primary.address(), 1)).unwrap();
        assert_eq!((promoted.start, long.start), (end, end), "with {parts} parts of it");
        has(&mirror, &promoted, &primary.log);
        passes_on(&mirror, &promoted, &primary.log, before);
    }
}

/// What the next term does not have is undone before that is continued.
#[test]
fn a_mirror_that_has_more_of_an_older_term_continues_the_later_one() {
    let old = PrimaryNode::first(config(rule(Safety::Quorum(3), 2)));
    let mirror = MirrorNode::new(2, old.address(), small(FabricKind::Shm));
    mirror.joined();
    let common = old.write(&[64, 72, 80]);
    until("it has a vote", || mirror.mirror.status().whole);
    let tails = (0..4).map(|_| {
        let to = old.write(&[64, 96]);
        until("it is there by itself", || old.primary.status().standbys[0].acked == to);
        to
    });
    let tail = tails.last().unwrap();
    let mut history = TermHistory::first(Term(1), NodeId(1), 1);
    history.begin(TermEntry { term: Term(2), start: common, node: NodeId(3), nonce: 1 }).unwrap();
    let log = TestLog::received(CAPACITY);
    log.append(&old.log.bytes()[..common.0 as usize]);
    log.promote(Term(2));
    drop(old);
    until("it is recovered", || mirror.mirror.status().end == tail);
    let terms = Terms::new(TermState::of(CLUSTER, history), Arc::new(VolatileTerms));
    let next = PrimaryNode::lead(open(3), NodeId(3), config(rule(Safety::Quorum(2), 2)), log, terms);
    let end = next.write(&[64, 200]);
    are_named(&[(2, mirror.terms()), (3, &next.terms)], 2);
    let promoted = mirror.mirror.promote(&knowing(next.address(), 3)).unwrap();
    assert_eq!((promoted.start, promoted.term, mirror.mirror.status().undone_batches > 0), (end, Term(3), false));
    has(&mirror, &promoted, &next.log);
}

/// It remains what it was, and says what to set.
#[test]
fn a_mirror_without_room_does_not_take_over() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let config = MirrorConfig { most: 4 << 20, ..small(FabricKind::Tcp) };
    let mirror = MirrorNode::new(2, primary.address(), config);
    mirror.joined();
    let end = primary.write(&[64]);
    until("it has a vote", || mirror.mirror.status().whole);
    part(&primary, &mirror);
    for _ in 0..4000 {
        primary.write(&[64, 904]);
    }
    let options = PromoteOptions { deadline: Duration::from_secs(5), ..knowing(primary.address(), 1) };
    match mirror.mirror.promote(&options) {
        Err(PromoteError::Fetch { source, .. }) => assert!(source.to_string().contains("mirror.bytes"), "{source}"),
        outcome => panic!("{outcome:?}"),
    }
    assert!(mirror.mirror.status().end > end, "what has come is there");
}

/// The node with the newer log is asked for it before this one gives up anything of its own; where
/// that does not go back far enough, a person has to decide.
#[test]
fn a_log_that_does_not_go_back_far_enough_is_not_continued() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 2)));
    let old = StandbyNode::empty(2, &primary.address());
    old.joined();
    let first = primary.write(&[64; 4]);
    until("it has it", || old.log.persisted() == first);
    let (log, terms) = (Arc::clone(&old.log), old.terms.clone());
    drop(old);
    let new = NewStandby::new(3).log(TestLog::received_in_ring(4096)).following(primary.address()).start();
    new.joined();
    for _ in 0..64 {
        primary.write(&[200]);
    }
    let end = primary.write(&[200]);
    until("it has the end", || new.log.persisted() == end);
    drop(primary);
    let old = NewStandby::new(2).log(log).terms(terms).start();
    match old.standby.promote(&knowing(new.address(), 3)) {
        Err(PromoteError::Unfetchable { from, lsn }) => assert_eq!((from, lsn), (new.address(), first)),
        outcome => panic!("{outcome:?}"),
    }
    assert_eq!(old.log.end(), first);
}

/// What has taken over answers candidates as a standby until it leads. A promise of a later
/// term in between, or from then on, ends its term at once.
#[test]
fn a_promise_while_a_node_takes_over_ends_its_term() {
    for before in [true, false] {
        let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
        let standby = StandbyNode::empty(2, &primary.address());
        standby.joined();
        let end = primary.write(&[64]);
        until("it has it", || standby.log.persisted() == end);
        drop(primary);
        let promoted = standby.standby.promote(&PromoteOptions::default()).unwrap();
        let terms = standby.terms.clone();
        let promise = || terms.promise(Term(promoted.term.0 + 1), NodeId(9), |_| None);
        if before {
            assert_eq!(promise(), Ok(true));
        }
        let next = crown(standby, &promoted, config(rule(Safety::OneSafe, 1)));
        if !before {
            assert!(!next.primary.is_fenced());
            assert_eq!(promise(), Ok(true));
        }
        assert!(next.primary.is_fenced());
        let after = next.write(&[64]);
        assert!(matches!(next.primary.commit().outcome(after), Some(Err(OutcomeOpen::Fenced(Term(3))))));
    }
}

#[test]
fn an_announcement_is_answered_without_the_disk_and_a_candidate_when_that_has_everything() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    primary.write(&[64]);
    primary.log.stall(true);
    let sent = primary.ship(&[64, 96]);
    let asks = |purpose| {
        let hello = Hello { cluster: Some(CLUSTER), node: NodeId(3), address: "nowhere:1".into(), purpose };
        call(&primary.address(), &hello, Term(2), PATIENCE).unwrap().0
    };
    let reply = asks(announces(NodeId(3), Term(2), "nowhere:1"));
    assert!(matches!(reply, Reply::Leads(_)) && primary.primary.is_fenced(), "{reply:?}");
    assert!(primary.log.persisted() < sent);
    primary.log.stall(false);
    let reply = asks(Purpose::Consult { term: Term(2), binding: true, gives_way: None, handed: None, stands: None });
    let Reply::Log { log, .. } = reply else { panic!("{reply:?}") };
    assert_eq!(log.end, sent);
}

/// Keep-alives need no disk: its standbys would wait for it for ever.
#[test]
fn a_primary_whose_disk_does_not_answer_lets_another_lead() {
    let (lease, standby_timeout) = (Some(Duration::from_millis(200)), Duration::from_millis(200));
    let rule = RuleConfig { standby_timeout, lease, ..RuleConfig::new(Safety::Quorum(2), 2) };
    let primary = PrimaryNode::first(config(rule));
    let standbys = [2, 3].map(|node| StandbyNode::empty(node, &primary.address()));
    standbys.iter().for_each(StandbyNode::joined);
    let end = primary.write(&[64]);
    primary.commits(end);
    let asks = || {
        let purpose =
            Purpose::Consult { term: Term(2), binding: false, gives_way: Some(Term(1)), handed: None, stands: None };
        let hello = Hello { cluster: Some(CLUSTER), node: NodeId(3), address: "nowhere:1".into(), purpose };
        call(&primary.address(), &hello, Term(2), PATIENCE).map(|(reply, _)| reply)
    };
    let leads = asks().unwrap_err();
    assert!(matches!(&leads, CallError::Refused { refusal: Refusal::LedBy { .. }, .. }), "{leads}");
    primary.log.stall(true);
    primary.ship(&[64]);
    let fed = || primary.primary.status().standbys.iter().filter(|standby| standby.connected).count();
    until("its standbys are let go", || fed() == 0);
    let answers = asks();
    assert!(matches!(&answers, Ok(Reply::Log { .. })), "{answers:?}");
    primary.log.stall(false);
    until("its standbys are back", || fed() == 2);
    let end = primary.write(&[64]);
    primary.commits(end);
    standbys.iter().for_each(|standby| standby.shows(end));
}
