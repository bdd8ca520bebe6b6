//! A primary, a relay, and those below it.

use std::time::Duration;

use freshet_base::{Consent, Lsn, NodeId, Safety, Term, sync::Arc};
use freshet_cluster::{
    commit_rule::Place,
    in_sync::{Holder, InSyncSet},
    relay::RelayAck,
    term::{TermHistory, TermState},
};
use freshet_fabric::FabricKind;

use super::{
    fixture::*,
    joining::{cannot_follow, empty_log, hello, joining},
    taking_over::crown,
    toy::ToyForms,
};
use crate::{
    endpoint::CallError,
    feed::FeedConfig,
    forms::{Encoding, Forms},
    promotion::PromoteOptions,
    standby::{RelayConfig, StandbyConfig},
    status::{Lag, LinkStatus, RelayStatus},
    wire::{Continue, Join, Purpose, Refusal, Wait},
};

/// A relay that is meant to have one standby, and waits for it, unless told otherwise, longer than
/// any test does.
fn relaying(kind: FabricKind, ack: RelayAck, timeout: Duration) -> StandbyConfig {
    let relay = RelayConfig {
        standby_timeout: timeout,
        feed: FeedConfig { boundaries: 8, ..small_feed() },
        ..RelayConfig::new(ack, 1)
    };
    StandbyConfig { relay: Some(relay), ..over(kind) }
}

pub fn relay(upstream: &str, kind: FabricKind, ack: RelayAck) -> StandbyNode {
    relay_within(upstream, kind, ack, PATIENCE * 2)
}

fn relay_within(upstream: &str, kind: FabricKind, ack: RelayAck, timeout: Duration) -> StandbyNode {
    let log = TestLog::received(CAPACITY);
    NewStandby::new(2).following(upstream.to_owned()).config(relaying(kind, ack, timeout)).log(log).start()
}

fn below(kind: FabricKind) -> StandbyConfig {
    asynchronous(over(kind))
}

fn leaf(upstream: &str, kind: FabricKind) -> StandbyNode {
    NewStandby::new(4).following(upstream.to_owned()).config(below(kind)).start()
}

fn passes_on(relay: &StandbyNode) -> RelayStatus {
    relay.standby.status().relay.expect("it is a relay that follows somebody")
}

fn is_in_sync(relay: &StandbyNode) -> bool {
    relay.standby.status().relay.is_some_and(|relay| relay.standbys.iter().any(|standby| standby.in_sync))
}

#[test]
fn a_leaf_gets_everything_and_shows_what_is_globally_persistent() {
    for fabric in FABRICS {
        let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
        for _ in 0..100 {
            primary.write(&[64, 200, 136]);
        }
        let relay = relay(&primary.address(), fabric, RelayAck::Own);
        relay.joined();
        let leaf = leaf(&relay.address(), fabric);
        for _ in 0..200 {
            primary.write(&[64, 72]);
        }
        leaf.joined();
        let end = primary.write(&[64]);
        primary.commits(end);
        leaf.shows(end);
        // Persistent at the leaf, and not at the primary: nobody shows it.
        primary.log.stall(true);
        let next = primary.ship(&[64; 3]);
        until("the leaf holds it", || leaf.log.persisted() == next);
        assert_eq!((relay.standby.visible().get(), leaf.standby.visible().get()), (end, end));
        primary.log.stall(false);
        leaf.shows(next);
        assert!(leaf.log.bytes() == primary.log.bytes());
        // Each notes for itself, now and then, what was committed.
        let terms = |node: &StandbyNode| TermState { committed: Lsn(0), ..node.terms.get() };
        assert_eq!(terms(&leaf), terms(&relay), "terms pass through");
        until("an idle leaf has no lag", || leaf.standby.status().visible_lag == Some(Lag::default()));
        until("the relay hears what the leaf shows", || passes_on(&relay).standbys[0].visible == next);
        let status = passes_on(&relay);
        assert_eq!((status.through, status.upward, status.downward), (vec![NodeId(1)], next, next));
        let there = &status.standbys[0];
        assert_eq!((there.node, there.place, there.acked), (NodeId(4), Place::InSync, next));
        assert_eq!(there.address, leaf.address());
        assert_eq!(primary.primary.status().standbys.len(), 1, "the primary has one standby");
        let LinkStatus::Following { node, .. } = leaf.standby.status().link else { panic!("it follows the relay") };
        assert_eq!(node, NodeId(2));
    }
}

#[test]
fn a_chain_of_relays_passes_the_log_on() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let first = relay(&primary.address(), FabricKind::Tcp, RelayAck::Downstream);
    let config = asynchronous(relaying(FabricKind::Shm, RelayAck::Downstream, PATIENCE * 2));
    let second = NewStandby::new(3).following(first.address()).config(config).start();
    let leaf = leaf(&second.address(), FabricKind::Tcp);
    let end = primary.write(&[64; 20]);
    primary.commits(end);
    leaf.shows(end);
    assert_eq!(passes_on(&second).through, [NodeId(1), NodeId(2)]);
    assert!(leaf.log.bytes() == primary.log.bytes());
}

#[test]
fn a_relay_dies_and_comes_back() {
    for fabric in FABRICS {
        let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
        let first = relay(&primary.address(), fabric, RelayAck::Own);
        let leaf = leaf(&first.address(), fabric);
        let end = primary.write(&[64; 10]);
        leaf.shows(end);
        let (log, terms) = (Arc::clone(&first.log), first.terms.clone());
        drop(first);
        let end = primary.write(&[64; 300]);
        let config = relaying(fabric, RelayAck::Own, PATIENCE * 2);
        let second = NewStandby::new(2).following(primary.address()).config(config).log(log).terms(terms).start();
        leaf.standby.follow(&second.address());
        leaf.shows(end);
        assert!(leaf.log.bytes() == primary.log.bytes());
    }
}

#[test]
fn a_relay_that_merely_loses_its_upstream_keeps_those_below() {
    let mut config = config(rule(Safety::OneSafe, 1));
    config.feed.flow.keep_alive = Duration::from_millis(5);
    let primary = PrimaryNode::first(config);
    let relay = relay(&primary.address(), FabricKind::Tcp, RelayAck::Own);
    let leaf = leaf(&relay.address(), FabricKind::Tcp);
    let end = primary.write(&[64; 10]);
    leaf.shows(end);
    let sent = || passes_on(&relay).standbys[0].sent_bytes;
    let before = sent();
    // Whoever takes the relay's place at the primary ends its connection.
    let (join, _side) = joining(empty_log(CAPACITY));
    drop(call(&primary.address(), &hello(2, join), Term(0), PATIENCE).unwrap());
    until("the relay lost it", || primary.primary.status().standbys[0].last_loss.is_some());
    let end = primary.write(&[64; 10]);
    leaf.shows(end);
    assert!(sent() > before, "it is the same connection");
    assert_eq!(passes_on(&relay).standbys[0].last_loss, None);
}

#[test]
fn a_leaf_whose_log_the_relay_has_no_more_is_refused_with_a_reason() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let config = relaying(FabricKind::Tcp, RelayAck::Own, PATIENCE * 2);
    let relay =
        NewStandby::new(2).following(primary.address()).config(config).log(TestLog::received_in_ring(CAPACITY)).start();
    relay.joined();
    for _ in 0..100 {
        primary.write(&[64; 4]);
    }
    let end = primary.log.end();
    relay.shows(end);
    let leaf = leaf(&relay.address(), FabricKind::Tcp);
    let refused = || cannot_follow(leaf.standby.status().link).is_some_and(|why| why.contains("refuses"));
    until("it is told why", refused);
    assert!(passes_on(&relay).standbys.is_empty(), "{:?}", passes_on(&relay));
}

#[test]
fn a_cut_goes_down_to_the_leaf() {
    for fabric in FABRICS {
        let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 2)));
        let relay = relay(&primary.address(), fabric, RelayAck::Own);
        let leaf = leaf(&relay.address(), fabric);
        let log = TestLog::received(CAPACITY);
        let heir = NewStandby::new(3).following(primary.address()).config(over(fabric)).log(log).start();
        let end = primary.write(&[64; 4]);
        primary.commits(end);
        leaf.shows(end);
        heir.shows(end);
        let (log, terms) = (Arc::clone(&heir.log), heir.terms.clone());
        drop(heir);
        // Without it nothing commits any more.
        let tail = primary.write(&[96; 5]);
        until("the leaf has the tail", || leaf.log.persisted() == tail);
        drop(primary);
        let heir = NewStandby::new(3).config(over(fabric)).log(log).terms(terms).start();
        let options = PromoteOptions { consent: Consent::Loss, ..PromoteOptions::default() };
        let promoted = heir.standby.promote(&options).unwrap();
        assert_eq!(promoted.start, end);
        let primary = crown(heir, &promoted, config(rule(Safety::OneSafe, 2)));
        relay.standby.follow(&primary.address());
        let end = primary.write(&[64; 30]);
        leaf.shows(end);
        assert!(leaf.log.bytes() == primary.log.bytes());
        assert_eq!((relay.tape.cuts(), leaf.tape.cuts()), (vec![promoted.start.0], vec![promoted.start.0]));
        assert_eq!(leaf.terms.get().history, promoted.history);
        assert_eq!(leaf.terms.fence().highest(), Term(2));
    }
}

#[test]
fn a_relay_that_takes_over_keeps_its_leaf() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let relay = relay(&primary.address(), FabricKind::Tcp, RelayAck::Own);
    let leaf = leaf(&relay.address(), FabricKind::Tcp);
    let end = primary.write(&[64; 4]);
    primary.commits(end);
    leaf.shows(end);
    drop(primary);
    let options = PromoteOptions { consent: Consent::Loss, ..PromoteOptions::default() };
    let promoted = relay.standby.promote(&options).unwrap();
    let primary = crown(relay, &promoted, config(rule(Safety::OneSafe, 1)));
    let end = primary.write(&[64; 4]);
    leaf.shows(end);
    assert!(leaf.log.bytes() == primary.log.bytes());
}

#[test]
fn commits_wait_for_the_leaf_when_the_relay_acknowledges_for_it() {
    for fabric in FABRICS {
        let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
        let relay = relay(&primary.address(), fabric, RelayAck::Downstream);
        relay.joined();
        // Before its standby has come for the first time, too.
        let end = primary.write(&[64; 4]);
        until("the relay holds it", || relay.log.persisted() == end);
        assert_eq!(primary.primary.commit().outcome(end), None);
        let leaf = leaf(&relay.address(), fabric);
        primary.commits(end);
        leaf.shows(end);
        until("it is in sync", || is_in_sync(&relay));
        leaf.log.stall(true);
        let next = primary.write(&[64; 4]);
        until("both have it", || relay.log.persisted() == next && leaf.log.end() == next);
        assert_eq!(primary.primary.commit().outcome(next), None);
        assert_eq!(primary.primary.status().standbys[0].acked, end);
        // What the leaf does not hold may have to be read back.
        assert_eq!((primary.log.log.needed_by_sinks(), relay.log.log.needed_by_sinks()), (end, end));
        assert_eq!(relay.standby.visible().get(), end);
        leaf.log.stall(false);
        primary.commits(next);
        leaf.shows(next);
    }
}

#[test]
fn a_leaf_that_commits_may_wait_for_answers_to_the_primary_itself() {
    for fabric in FABRICS {
        let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
        let relay = relay(&primary.address(), fabric, RelayAck::Own);
        relay.joined();
        let leaf = leaf(&relay.address(), fabric);
        let end = primary.write(&[64; 4]);
        leaf.shows(end);
        let follows =
            |node| matches!(leaf.standby.status().link, LinkStatus::Following { node: it, .. } if it == NodeId(node));
        assert!(follows(2));
        let set = |number, members: &[u64]| InSyncSet {
            term: Term(1),
            primary: NodeId(1),
            number,
            first: 1,
            after: Term(0),
            members: members.iter().map(|node| Holder::new(NodeId(*node), 0)).collect(),
            level: Safety::TwoSafe,
            since: Lsn::ZERO,
            quorum: None,
            floor: 0,
            before: Vec::new(),
            roster: Box::default(),
        };
        primary.record(&set(1, &[1, 2]));
        let end = primary.write(&[64; 4]);
        leaf.shows(end);
        assert!(follows(2), "others do not matter");
        primary.record(&set(2, &[1, 2, 4]));
        until("it follows the primary", || follows(1));
        let end = primary.write(&[64; 4]);
        leaf.shows(end);
    }
}

#[test]
fn a_leaf_that_stalls_is_not_waited_for_for_ever() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let timeout = Duration::from_millis(50);
    let relay = relay_within(&primary.address(), FabricKind::Tcp, RelayAck::Downstream, timeout);
    let leaf = leaf(&relay.address(), FabricKind::Tcp);
    let end = primary.write(&[64; 4]);
    leaf.shows(end);
    until("it is in sync", || is_in_sync(&relay));
    leaf.log.stall(true);
    let end = primary.write(&[64; 4]);
    primary.commits(end);
    assert_eq!(passes_on(&relay).standbys[0].place, Place::Behind);
    assert!(leaf.standby.visible().get() < end);
    leaf.log.stall(false);
    until("it is back", || is_in_sync(&relay));
    leaf.shows(end);
}

#[test]
fn a_leaf_that_is_ahead_is_asked_to_come_again() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let relay = relay(&primary.address(), FabricKind::Tcp, RelayAck::Own);
    let end = primary.write(&[64]);
    relay.shows(end);
    // It replays nothing more, and so gets no more than its buffer holds.
    relay.tape.gate(Some(end.0));
    let leaf = leaf(&primary.address(), FabricKind::Tcp);
    let mut end = end;
    for _ in 0..200 {
        end = primary.write(&[96]);
    }
    leaf.shows(end);
    assert!(relay.log.end() < end);
    leaf.standby.follow(&relay.address());
    let behind = |link| matches!(link, LinkStatus::Connecting { last_failure: Some(why), .. } if why.contains("cannot be followed yet: its log ends"));
    until("it is asked to come again", || behind(leaf.standby.status().link));
    relay.tape.gate(None);
    until("it follows the relay", || {
        matches!(leaf.standby.status().link, LinkStatus::Following { node: NodeId(2), .. })
    });
    let end = primary.write(&[96]);
    leaf.shows(end);
    assert!(leaf.log.bytes() == primary.log.bytes());
    assert!(leaf.tape.cuts().is_empty());
}

#[test]
fn a_relay_refuses_those_that_it_does_not_feed() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let relay = relay(&primary.address(), FabricKind::Tcp, RelayAck::Own);
    let end = primary.write(&[64]);
    relay.shows(end);
    let asks = |node: u64, synchronous: bool, log: Continue| {
        let (mut join, _side) = joining(log);
        let Purpose::Join(Join { synchronous: flag, .. }) = &mut join else { unreachable!() };
        *flag = synchronous;
        match call(&relay.address(), &hello(node, join), Term(0), PATIENCE) {
            Err(CallError::Refused { refusal, .. }) => refusal,
            other => panic!("{:?}", other.map(|answer| answer.0)),
        }
    };
    let empty = || empty_log(CAPACITY);
    // One whom commits may count on belongs to the primary.
    let upstream = Some(primary.address());
    assert_eq!(asks(4, true, empty()), Refusal::NotPrimary { node: NodeId(2), primary: upstream.clone() });
    assert_eq!(asks(1, false, empty()), Refusal::Circle { node: NodeId(2), above: NodeId(1) });
    assert!(matches!(asks(4, false, empty_log(100)), Refusal::BufferTooSmall { needed: 2048, .. }));
    let (history, received) = (TermHistory::first(Term(1), NodeId(1), 1), end.plus(64));
    let ahead = Continue { history, received, persisted: end, may_send_until: received, ..empty() };
    assert_eq!(asks(4, false, ahead), Refusal::Later { node: NodeId(2), why: Wait::Behind { end, received } });
    // A synchronous standby that was sent there finds the primary.
    let lost = StandbyNode::empty(5, &relay.address());
    lost.shows(end);
    assert!(matches!(lost.standby.status().link, LinkStatus::Following { node: NodeId(1), .. }));
    // A relay that follows nobody has nothing to pass on.
    drop(primary);
    until("it noticed", || !matches!(relay.standby.status().link, LinkStatus::Following { .. }));
    assert_eq!(asks(4, false, empty()), Refusal::Later { node: NodeId(2), why: Wait::Lost });
}

#[test]
fn two_relays_do_not_follow_one_another() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 2)));
    let own = || asynchronous(relaying(FabricKind::Tcp, RelayAck::Own, PATIENCE * 2));
    let one = NewStandby::new(2).following(primary.address()).config(own()).start();
    one.joined();
    let two = NewStandby::new(3).following(one.address()).config(own()).start();
    let end = primary.write(&[64]);
    two.shows(end);
    one.standby.follow(&two.address());
    let refused = |link| matches!(link, LinkStatus::Connecting { last_failure: Some(_), .. });
    until("neither follows", || refused(one.standby.status().link) && refused(two.standby.status().link));
    one.standby.follow(&primary.address());
    let end = primary.write(&[64]);
    two.shows(end);
    assert_eq!(two.standby.visible().get(), Lsn(128));
}

/// A leaf below two relays wants the log in another form: the second relay says it in that, and the
/// primary hears of it through both.
#[test]
fn a_wish_for_another_form_travels_up() {
    let forms = || Arc::new(ToyForms::default());
    let at_primary = forms();
    let mut config = config(rule(Safety::VerySafe, 1));
    config.feed.forms = Some(Arc::clone(&at_primary) as _);
    let primary = PrimaryNode::first(config);
    let relay = |node: u64, upstream: &str, forms: &Arc<ToyForms>| {
        let mut config = relaying(FabricKind::Tcp, RelayAck::Own, PATIENCE * 2);
        config.follow.synchronous = node == 2;
        config.relay.as_mut().unwrap().feed.forms = Some(Arc::clone(forms) as _);
        NewStandby::new(node).following(upstream.to_owned()).config(config).start()
    };
    let (at_first, at_second) = (forms(), forms());
    let first = relay(2, &primary.address(), &at_first);
    let second = relay(3, &first.address(), &at_second);
    let end = primary.write(&[64; 3]);
    second.shows(end);
    assert!(!at_primary.is_asked() && !at_first.is_asked());
    let asking = StandbyConfig { encoding: Encoding::Inputs, ..below(FabricKind::Tcp) };
    let leaf = NewStandby::new(4).following(second.address()).config(asking).start();
    leaf.joined();
    // With what they acknowledge next.
    until("the primary hears of it", || {
        primary.write(&[64]);
        at_primary.is_asked()
    });
    let end = primary.write(&[64; 20]);
    leaf.shows(end);
    assert!(leaf.log.bytes() == primary.log.bytes());
    let encoded = |forms: &ToyForms| forms.encoded.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!((encoded(&at_primary), encoded(&at_first)), (0, 0), "the relays themselves get bytes");
    assert!(encoded(&at_second) > 0);
    drop(leaf);
    until("it is not wanted any more", || {
        primary.write(&[64]);
        !at_primary.is_asked()
    });
}

/// A primary, a relay that executes inputs, and a leaf below it. Of the blocks up to the second
/// LSN, which are committed, the relay has executed those up to the first one.
fn executing(fabric: FabricKind) -> (PrimaryNode, StandbyNode, StandbyNode, [Lsn; 2]) {
    let mut config = config(rule(Safety::VerySafe, 1));
    config.feed.forms = Some(Arc::new(ToyForms::default()) as _);
    let primary = PrimaryNode::first(config);
    let asking = StandbyConfig { encoding: Encoding::Inputs, ..relaying(fabric, RelayAck::Own, PATIENCE * 2) };
    let relay = NewStandby::new(2).following(primary.address()).config(asking).start();
    relay.joined();
    let leaf = leaf(&relay.address(), fabric);
    let executed = primary.write(&[64; 4]);
    leaf.shows(executed);
    relay.tape.toy.gate(Some(executed.0));
    let end = (0..20).map(|_| primary.write(&[64])).last().unwrap();
    primary.commits(end);
    (primary, relay, leaf, [executed, end])
}

#[test]
fn a_relay_that_executes_inputs_passes_on_what_it_has_executed() {
    for fabric in FABRICS {
        let (primary, relay, leaf, [executed, end]) = executing(fabric);
        until("the relay hears what is committed", || passes_on(&relay).downward == end);
        assert_eq!((relay.log.end(), passes_on(&relay).standbys[0].shipped), (executed, executed));
        // The leaf is sent that watermark, and has less.
        let more = executed.plus(64 * 7);
        relay.tape.toy.gate(Some(more.0));
        leaf.shows(more);
        assert_eq!((leaf.log.end(), leaf.standby.visible().get()), (more, more));
        let status = relay.standby.status();
        assert_eq!((status.arrived, status.persisted), (end, end));
        relay.tape.toy.gate(None);
        leaf.shows(end);
        assert!(leaf.log.bytes() == primary.log.bytes());
        let end = primary.write(&[64, 72, 200]);
        leaf.shows(end);
        assert_eq!((passes_on(&relay).standbys[0].last_loss.as_ref(), leaf.tape.cuts()), (None, vec![]));
    }
}

/// What was acknowledged is in the journal of the relay alone.
#[test]
fn a_relay_that_executes_inputs_takes_over_or_its_leaf_does() {
    for (fabric, of_leaf) in FABRICS.into_iter().flat_map(|fabric| [(fabric, false), (fabric, true)]) {
        let (primary, relay, leaf, [executed, end]) = executing(fabric);
        let bytes = primary.log.bytes();
        drop(primary);
        let (heir, other) = if of_leaf { (leaf, &relay) } else { (relay, &leaf) };
        let options = PromoteOptions { consent: Consent::Loss, ..PromoteOptions::default() };
        let promoted = std::thread::scope(|scope| {
            let promoted = scope.spawn(|| heir.standby.promote(&options));
            let relay = if of_leaf { other } else { &heir };
            // It waits for that.
            relay.tape.toy.gate(Some(executed.0 + 64));
            until("some of it is executed", || relay.log.end() == executed.plus(64));
            relay.tape.toy.gate(None);
            promoted.join().unwrap().unwrap()
        });
        assert_eq!((promoted.start, heir.log.bytes()), (end, bytes));
        let primary = crown(heir, &promoted, config(rule(Safety::OneSafe, 1)));
        other.standby.follow(&primary.address());
        let end = primary.write(&[64; 30]);
        other.shows(end);
        assert!(other.log.bytes() == primary.log.bytes());
    }
}
