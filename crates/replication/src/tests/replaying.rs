use std::time::Duration;

use freshet_base::{Lsn, Safety};

use freshet_log::persist::Method;

use super::fixture::*;
use crate::{
    promotion::PromoteOptions,
    standby::{ReplayMode, StandbyConfig},
};

#[test]
fn acknowledgements_do_not_wait_for_pipelined_replay() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let standby = StandbyNode::empty(2, &primary.address());
    standby.joined();
    standby.tape.gate(Some(0));
    let end = primary.write(&[64; 5]);
    primary.commits(end);
    assert_eq!(standby.standby.visible().get(), Lsn(0));
    until("the lag says so", || {
        let lag = standby.standby.status();
        (lag.persist_lag.map(|lag| lag.bytes), lag.replay_lag.map(|lag| lag.bytes)) == (Some(0), Some(end.0))
    });
    standby.tape.gate(None);
    standby.shows(end);
}

/// Persist-upon-replay: the piece is persisted and acknowledged first, and then replayed.
#[test]
fn what_replay_persists_is_acknowledged_before_it_is_replayed() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let log = TestLog::persisted_upon_replay(CAPACITY, Method::best().unwrap());
    let config = StandbyConfig { replay_piece: 64, ..StandbyConfig::default() };
    let standby = NewStandby::new(2).following(primary.address()).config(config).log(log).start();
    standby.joined();
    standby.tape.gate(Some(0));
    let first = primary.write(&[64; 5]);
    primary.commits(first);
    assert_eq!((standby.standby.visible().get(), standby.standby.status().replayed), (Lsn(0), Lsn(0)));
    let mut end = first;
    // As much as there is room for.
    while end.0 + 5 * 64 <= CAPACITY / 2 {
        end = primary.write(&[64; 5]);
    }
    until("replay knows of it", || standby.standby.accepted() == end);
    // All of that is persisted before the next piece of it is replayed.
    standby.tape.gate(Some(first.0));
    primary.commits(end);
    assert!(standby.standby.status().replayed <= first);
    standby.tape.gate(None);
    standby.shows(end);
    // Each byte once, in order: the parts of what is replayed next.
    let shares = standby.tape.shares();
    assert_eq!((shares[0].0, shares[shares.len() - 1].1), (0, end.0));
    assert!(shares.windows(2).all(|pair| pair[0].1 == pair[1].0), "{shares:?}");
}

/// Where caches survive, what is received is acknowledged, whatever replay does.
#[test]
fn what_is_persistent_when_it_is_received_is_acknowledged_then() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let log = TestLog::persisted_upon_replay(CAPACITY, Method::Eadr);
    let standby = NewStandby::new(2).following(primary.address()).log(log).start();
    standby.joined();
    standby.tape.gate(Some(0));
    for _ in 0..20 {
        primary.commits(primary.write(&[64; 5]));
    }
    assert_eq!(standby.standby.status().replayed, Lsn(0));
    assert_eq!(standby.tape.shares(), []);
    standby.tape.gate(None);
}

#[test]
fn synchronous_replay_is_on_the_commit_path() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let config = StandbyConfig { replay: ReplayMode::Synchronous, ..StandbyConfig::default() };
    let log = TestLog::received(CAPACITY);
    let standby = NewStandby::new(2).following(primary.address()).config(config).log(log).start();
    standby.joined();
    standby.tape.gate(Some(0));
    let end = primary.write(&[64; 5]);
    until("it is persistent there", || standby.log.persisted() == end);
    assert_eq!(primary.primary.commit().outcome(end), None);
    standby.tape.gate(None);
    primary.commits(end);
    standby.shows(end);
}

#[test]
fn without_replay_the_log_flows_and_a_failover_replays_all_of_it() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let config = StandbyConfig { replay: ReplayMode::None, ..StandbyConfig::default() };
    let standby = NewStandby::new(2).following(primary.address()).config(config).start();
    standby.joined();
    let mut end = Lsn(0);
    while end.0 < 5 * CAPACITY {
        end = primary.write(&[64; 20]);
        primary.commits(end);
    }
    let status = standby.standby.status();
    assert_eq!((status.persisted, status.replayed, status.visible), (end, Lsn(0), Lsn(0)));
    assert_eq!((standby.tape.replayed(), status.replay), (Lsn(0), ReplayMode::None));
    are_named(&[(1, &primary.terms), (2, &standby.terms)], 2);
    drop(primary);
    let promoted = standby.standby.promote(&PromoteOptions::default()).unwrap();
    assert_eq!((promoted.start, standby.tape.replayed()), (end, end));
}

#[test]
fn replay_that_stands_still_holds_back_the_sender_not_its_memory() {
    let primary = PrimaryNode::first(config(rule(Safety::OneSafe, 1)));
    let standby = StandbyNode::empty(2, &primary.address());
    standby.joined();
    standby.tape.gate(Some(0));
    let mut end = Lsn(0);
    for _ in 0..100 {
        end = primary.write(&[64; 20]);
    }
    let shipped = || primary.primary.status().standbys[0].shipped;
    until("the ring is full", || shipped().0 > CAPACITY - 64 * 20 * 2);
    assert!(shipped().0 <= CAPACITY);
    primary.commits(end);
    standby.tape.gate(None);
    standby.shows(end);
}

#[test]
fn room_that_has_grown_is_used_at_once() {
    // Nobody says anything but for a reason.
    let mut config = config(rule(Safety::OneSafe, 1));
    config.feed.flow.keep_alive = Duration::from_secs(3600);
    let primary = PrimaryNode::first(config);
    // All of it is committed before anybody has heard of it: no watermark wakes the shipper.
    let mut end = Lsn(0);
    for _ in 0..100 {
        end = primary.write(&[400; 10]);
    }
    primary.commits(end);
    let standby = StandbyNode::empty(2, &primary.address());
    standby.shows(end);
}
