use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    time::{Duration, Instant},
};

use freshet_base::{
    Lsn, OutcomeOpen, Safety, Term, WaitError,
    wait::{BOUND, Patience, Waiter},
};
use freshet_cluster::{
    commit_rule::{Place, Refusal, RuleConfig, Standing, WhenMissing},
    wanted::Wanted,
};

use super::fixture::*;

#[test]
fn two_safe_goes_on_without_a_standby_that_stalls_and_takes_it_back() {
    let rule = RuleConfig { standby_timeout: Duration::from_millis(50), ..RuleConfig::new(Safety::TwoSafe, 1) };
    let primary = PrimaryNode::first(config(rule));
    let standby = StandbyNode::empty(2, &primary.address());
    standby.joined();
    let end = primary.write(&[64]);
    primary.commits(end);
    until("in sync", || primary.primary.commit().standing() == Standing::Safe);
    // It receives, and persists nothing more.
    standby.log.stall(true);
    let end = primary.write(&[64; 4]);
    primary.commits(end);
    assert!(matches!(primary.primary.commit().standing(), Standing::Degraded { in_sync: 0, .. }));
    assert!(standby.standby.visible().get() < end, "what is not persistent there is not shown there");
    standby.log.stall(false);
    until("it is back", || primary.primary.commit().standing() == Standing::Safe);
    assert_eq!(primary.primary.status().standbys[0].place, Place::InSync);
    standby.shows(end);
}

#[test]
fn very_safe_refuses_after_its_patience_and_leaves_the_outcome_open() {
    let rule = RuleConfig {
        standby_timeout: Duration::from_millis(20),
        when_missing: WhenMissing::RefuseAfter(Duration::from_millis(30)),
        ..RuleConfig::new(Safety::VerySafe, 2)
    };
    let primary = PrimaryNode::first(config(rule));
    let one = StandbyNode::empty(2, &primary.address());
    one.joined();
    let end = primary.write(&[64]);
    let error = primary.primary.commit().wait(end, (Instant::now() + PATIENCE).into()).unwrap_err();
    assert!(error.to_string().contains("outcome of the transaction is open"), "{error}");
    let refusal = primary.primary.commit().refusal();
    assert!(matches!(refusal, Some(Refusal::TooFewStandbys { needed: 2, in_sync: 1, .. })), "{refusal:?}");
    assert!(primary.primary.commit().admit().is_err(), "new writers are told before they start");
    let two = StandbyNode::empty(3, &primary.address());
    primary_commits_again(&primary, end);
    assert_eq!(primary.primary.commit().admit(), Ok(()));
    two.shows(end);
}

/// While commits are refused a wait ends at once; afterwards it succeeds.
fn primary_commits_again(primary: &PrimaryNode, end: Lsn) {
    until("commits go on", || primary.primary.commit().wait(end, (Instant::now() + PATIENCE).into()).is_ok());
    until("writers are let in", || primary.primary.commit().admit().is_ok());
}

#[test]
fn a_commit_waits_for_the_slower_of_disk_and_standby() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let standby = StandbyNode::empty(2, &primary.address());
    standby.joined();
    primary.log.stall(true);
    let end = primary.ship(&[64; 3]);
    until("the standby holds it", || primary.primary.status().standbys[0].acked == end);
    assert_eq!(primary.primary.commit().outcome(end), None, "not durable here");
    assert_eq!(standby.standby.visible().get(), Lsn(0), "not shown before it is committed");
    primary.log.stall(false);
    primary.commits(end);
    standby.shows(end);
}

#[test]
fn giving_up_is_distinguished_from_refusal() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let end = primary.write(&[64]);
    let wait = |deadline| primary.primary.commit().wait(end, Patience::from(deadline));
    assert_eq!(wait(Some(Instant::now())), Err(OutcomeOpen::Deadline));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(None));
        primary.primary.fence(Term(9));
        assert_eq!(waiting.join().unwrap(), Err(OutcomeOpen::Fenced(Term(9))));
    });
    primary.primary.stop();
    assert_eq!(wait(None), Err(OutcomeOpen::Fenced(Term(9))));
}

#[test]
fn an_interrupt_ends_each_wait_at_once() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let end = primary.write(&[64]);
    let shown = primary.primary.waits();
    let waits: [&(dyn Fn(Patience<'_>) -> bool + Sync); 2] =
        [&|patience| primary.primary.commit().wait(end, patience) == Err(OutcomeOpen::Deadline), &|patience| {
            shown.wait(Wanted::Persistent(Safety::VerySafe), end, patience) == Err(WaitError::Interrupted)
        }];
    for wait in waits {
        let (canceled, (waits, knows)) = (AtomicBool::new(false), channel());
        let (ended, took) = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let asked = || {
                    let _ = waits.send(Waiter::current());
                    canceled.load(Ordering::SeqCst)
                };
                let begun = Instant::now();
                (wait(Patience::endless().unless(&asked)), begun.elapsed())
            });
            let waiter: Waiter = knows.recv().unwrap();
            canceled.store(true, Ordering::SeqCst);
            waiter.wake();
            waiting.join().unwrap()
        });
        assert!(ended && took < BOUND / 2, "{ended} after {took:?}");
    }
}

/// Who waits for standbys is the primary's: with the term, the wait ends.
#[test]
fn waits_for_standbys_end_with_the_term() {
    let primary = PrimaryNode::first(config(rule(Safety::TwoSafe, 1)));
    let end = primary.write(&[64]);
    let shown = primary.primary.waits();
    let wanted = Wanted::Persistent(Safety::VerySafe);
    let waited = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| shown.wait(wanted, end, Patience::endless()));
        primary.primary.fence(Term(9));
        waiting.join().unwrap()
    });
    assert_eq!(waited, Err(WaitError::Closed));
}

#[test]
fn a_stopped_primary_leaves_nobody_waiting() {
    let primary = PrimaryNode::first(config(rule(Safety::VerySafe, 1)));
    let end = primary.write(&[64]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| primary.primary.commit().wait(end, Patience::endless()));
        primary.primary.stop();
        assert_eq!(waiting.join().unwrap(), Err(OutcomeOpen::Stopped));
    });
}
