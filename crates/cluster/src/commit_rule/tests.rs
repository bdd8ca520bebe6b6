mod counted;
mod gone;
mod lease;
mod level;
mod witness;

use std::time::Duration;

use freshet_base::Safety;

use super::*;
use crate::{
    in_sync::tests::{earlier, first_set},
    meeting::Rival,
};
const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
fn me() -> Holder {
    Holder::new(NodeId(9), 1)
}

fn set(members: &[NodeId], floor: u32) -> InSyncSet {
    let members = members.iter().map(|node| Holder::new(*node, 1)).collect();
    InSyncSet { number: 4, floor, ..first_set(NodeId(1), members) }
}

fn ms(ms: u64) -> Moment {
    Moment(ms * 1000)
}

fn rule(safety: Safety, standbys: u32) -> CommitRule {
    let config = RuleConfig {
        standby_timeout: Duration::from_millis(100),
        join_window: 50,
        ..RuleConfig::new(safety, standbys)
    };
    CommitRule::new(config, Lsn(0), ms(0))
}

fn joined(standby: NodeId, at: u64) -> Event {
    Event::Joined { standby, incarnation: 1, persisted: Lsn(at), synchronous: true }
}

fn acked(standby: NodeId, at: u64) -> Event {
    Event::Acked { standby, persisted: Lsn(at), observed: None }
}

#[track_caller]
fn expect(rule: &mut CommitRule, event: Event, at: Moment, committed: u64) {
    assert_eq!(rule.apply(event, at).committed, Lsn(committed), "after {event:?}");
}

#[test]
fn one_safe_commits_what_is_durable_here() {
    let mut rule = rule(Safety::OneSafe, 0);
    expect(&mut rule, Event::Durable(Lsn(10)), ms(1), 10);
    expect(&mut rule, joined(A, 10), ms(2), 10);
    assert_eq!(rule.standing(), Standing::Safe);
    expect(&mut rule, Event::Left { standby: A }, ms(3), 10);
    let _ = rule.apply(Event::Tick, ms(300));
    assert!(matches!(rule.standing(), Standing::Degraded { in_sync: 0, configured: 1, .. }));
}

#[test]
fn two_safe_waits_for_the_in_sync_set_and_goes_on_without_who_stalls() {
    let mut rule = rule(Safety::TwoSafe, 1);
    expect(&mut rule, joined(A, 0), ms(0), 0);
    expect(&mut rule, Event::Durable(Lsn(100)), ms(1), 0);
    expect(&mut rule, acked(A, 60), ms(2), 60);
    expect(&mut rule, Event::Durable(Lsn(300)), ms(50), 60);
    assert_eq!(rule.next_deadline(), Some(ms(101)), "what was durable at 1 ms is outstanding since");
    expect(&mut rule, Event::Tick, ms(100), 60);
    expect(&mut rule, Event::Tick, ms(101), 300);
    let Standing::Degraded { since, behind, .. } = rule.standing() else { panic!("{:?}", rule.standing()) };
    assert_eq!((since, behind), (ms(101), vec![A]));
    // It is not let in again before it has shown that it moves.
    expect(&mut rule, acked(A, 299), ms(102), 300);
    expect(&mut rule, Event::Durable(Lsn(310)), ms(103), 310);
    expect(&mut rule, acked(A, 300), ms(104), 310);
    expect(&mut rule, Event::Durable(Lsn(320)), ms(105), 310);
    assert!(matches!(rule.standing(), Standing::Degraded { .. }));
    expect(&mut rule, acked(A, 315), ms(106), 315);
    assert_eq!(rule.standing(), Standing::Safe);
}

#[test]
fn a_short_loss_of_the_connection_changes_nothing() {
    let mut rule = rule(Safety::TwoSafe, 1);
    expect(&mut rule, joined(A, 0), ms(0), 0);
    expect(&mut rule, Event::Left { standby: A }, ms(10), 0);
    expect(&mut rule, Event::Durable(Lsn(100)), ms(20), 0);
    expect(&mut rule, joined(A, 0), ms(30), 0);
    expect(&mut rule, acked(A, 100), ms(40), 100);
    // A long one does, and flapping without progress is a long one.
    expect(&mut rule, Event::Left { standby: A }, ms(50), 100);
    expect(&mut rule, Event::Durable(Lsn(200)), ms(60), 100);
    expect(&mut rule, joined(A, 100), ms(70), 100);
    expect(&mut rule, Event::Left { standby: A }, ms(80), 100);
    expect(&mut rule, Event::Tick, ms(149), 100);
    expect(&mut rule, Event::Tick, ms(150), 200);
}

#[test]
fn a_primary_that_stood_still_does_not_continue_alone_at_once() {
    let mut rule = rule(Safety::TwoSafe, 1);
    expect(&mut rule, joined(A, 0), ms(0), 0);
    expect(&mut rule, Event::Durable(Lsn(100)), ms(20), 0);
    expect(&mut rule, Event::StoodStill, ms(5000), 0);
    expect(&mut rule, Event::Left { standby: A }, ms(5001), 0);
    expect(&mut rule, Event::Durable(Lsn(200)), ms(5002), 0);
    assert_eq!(rule.next_deadline(), Some(ms(5100)));
    expect(&mut rule, Event::Tick, ms(5099), 0);
    expect(&mut rule, Event::Tick, ms(5100), 200);
    // Who was lost before that is so still.
    expect(&mut rule, Event::StoodStill, ms(9000), 200);
    expect(&mut rule, Event::Durable(Lsn(300)), ms(9001), 300);
    // Neither does one that stood still while it waited for its standbys to come.
    let mut rule = self::rule(Safety::TwoSafe, 1);
    expect(&mut rule, Event::Durable(Lsn(10)), ms(1), 0);
    expect(&mut rule, Event::StoodStill, ms(5000), 0);
    expect(&mut rule, Event::Tick, ms(5099), 0);
    expect(&mut rule, Event::Tick, ms(5100), 10);
}

#[test]
fn two_safe_gives_its_standbys_time_to_come_at_the_start() {
    let mut rule = rule(Safety::TwoSafe, 2);
    expect(&mut rule, Event::Durable(Lsn(10)), ms(1), 0);
    assert!(matches!(rule.standing(), Standing::Blocked { in_sync: 0, needed: 2, refuses_at: None, .. }));
    expect(&mut rule, joined(A, 0), ms(2), 0);
    expect(&mut rule, acked(A, 10), ms(3), 0);
    assert_eq!(rule.next_deadline(), Some(ms(100)));
    expect(&mut rule, Event::Tick, ms(100), 10);
    assert!(matches!(rule.standing(), Standing::Degraded { in_sync: 1, .. }));
}

#[test]
fn very_safe_needs_everyone_and_refuses_after_its_patience() {
    let mut rule = rule(Safety::VerySafe, 2);
    rule.config.when_missing = WhenMissing::RefuseAfter(Duration::from_millis(500));
    for standby in [A, B] {
        expect(&mut rule, joined(standby, 0), ms(0), 0);
    }
    expect(&mut rule, Event::Durable(Lsn(10)), ms(1), 0);
    expect(&mut rule, acked(A, 10), ms(2), 0);
    expect(&mut rule, acked(B, 7), ms(3), 7);
    expect(&mut rule, Event::Left { standby: B }, ms(10), 7);
    assert_eq!(rule.admit(), Ok(()));
    assert!(matches!(rule.standing(), Standing::Blocked { needed: 2, in_sync: 1, .. }));
    expect(&mut rule, Event::Tick, ms(509), 7);
    assert_eq!(rule.admit(), Ok(()));
    expect(&mut rule, Event::Tick, ms(510), 7);
    let refusal = rule.admit().unwrap_err();
    assert!(refusal.to_string().contains("very-safe needs 2 standbys"), "{refusal}");
    expect(&mut rule, joined(B, 7), ms(600), 7);
    assert_eq!(rule.admit(), Err(refusal), "it has to make up for its absence first");
    expect(&mut rule, acked(B, 10), ms(601), 10);
    assert_eq!(rule.admit(), Ok(()));
}

#[test]
fn a_standby_that_lost_its_log_starts_over() {
    let mut rule = rule(Safety::Quorum(2), 1);
    expect(&mut rule, joined(A, 0), ms(0), 0);
    expect(&mut rule, Event::Durable(Lsn(100)), ms(1), 0);
    expect(&mut rule, acked(A, 100), ms(2), 100);
    expect(&mut rule, Event::Left { standby: A }, ms(3), 100);
    expect(&mut rule, joined(A, 20), ms(4), 100);
    expect(&mut rule, Event::Durable(Lsn(150)), ms(5), 100);
    assert_eq!(rule.members().next().unwrap().1.place, Place::Behind);
}

#[test]
fn nothing_is_committed_after_the_fence() {
    let mut rule = rule(Safety::OneSafe, 0);
    expect(&mut rule, Event::Durable(Lsn(5)), ms(0), 5);
    expect(&mut rule, Event::Fenced { by: Term(9) }, ms(1), 5);
    expect(&mut rule, Event::Durable(Lsn(50)), ms(2), 5);
    assert_eq!(rule.admit(), Err(Refusal::Fenced { by: Term(9) }));
    assert_eq!(rule.standing(), Standing::Fenced { by: Term(9) });
}

#[test]
fn a_late_word_of_a_lost_connection_is_ignored() {
    let mut rule = rule(Safety::TwoSafe, 1);
    expect(&mut rule, joined(A, 0), ms(0), 0);
    expect(&mut rule, Event::Durable(Lsn(10)), ms(1), 0);
    expect(&mut rule, Event::Left { standby: A }, ms(2), 0);
    expect(&mut rule, acked(A, 10), ms(3), 0);
}

/// A rule that records its sets, whose first one is in effect, with `A` in it.
fn recorded(floor: u32) -> CommitRule {
    let mut rule = rule(Safety::TwoSafe, 1);
    rule.config.floor = floor;
    let mut rule = rule.recorded(me(), Term(1), Succession::begin(), &BTreeSet::new(), ms(0));
    write(&mut rule, 1, 10, ms(0));
    let alone = if floor == 0 { 10 } else { 0 };
    expect(&mut rule, Event::Durable(Lsn(10)), ms(0), alone);
    assert!(rule.set_took_effect());
    expect(&mut rule, joined(A, 10), ms(1), alone);
    write(&mut rule, 2, 20, ms(1));
    let _ = rule.apply(Event::Durable(Lsn(20)), ms(1));
    let _ = rule.apply(acked(A, 20), ms(1));
    assert_eq!(rule.in_sync_set().unwrap().members.len(), 2);
    // Another record says that the change is over.
    write(&mut rule, 3, 30, ms(1));
    let _ = rule.apply(Event::Durable(Lsn(30)), ms(1));
    expect(&mut rule, acked(A, 30), ms(1), 30);
    assert_eq!(rule.to_write(), None);
    rule
}

#[track_caller]
fn write(rule: &mut CommitRule, number: u64, end: u64, at: Moment) {
    assert_eq!(rule.to_write().map(|set| set.number), Some(number));
    let _ = rule.apply(Event::Written { number, end: Lsn(end) }, at);
}

#[test]
fn a_standby_that_stalls_is_waited_for_until_its_going_is_on_record() {
    let mut rule = recorded(0);
    expect(&mut rule, Event::Durable(Lsn(100)), ms(2), 30);
    expect(&mut rule, Event::Tick, ms(102), 30);
    assert_eq!(rule.members().next().unwrap().1.place, Place::Leaving);
    write(&mut rule, 4, 110, ms(103));
    expect(&mut rule, Event::Durable(Lsn(105)), ms(104), 30);
    expect(&mut rule, Event::Durable(Lsn(110)), ms(105), 110);
    assert_eq!(rule.members().next().unwrap().1.place, Place::Behind);
    assert_eq!(rule.in_sync_set().unwrap().members.len(), 1);
}

#[test]
fn with_a_floor_the_primary_does_not_go_on_alone() {
    let mut rule = recorded(1);
    expect(&mut rule, Event::Durable(Lsn(100)), ms(2), 30);
    expect(&mut rule, Event::Tick, ms(500), 30);
    assert_eq!(rule.to_write(), None);
    assert!(matches!(rule.standing(), Standing::Blocked { in_sync: 0, needed: 1, .. }), "{:?}", rule.standing());
    expect(&mut rule, acked(A, 100), ms(501), 100);
    assert_eq!(rule.standing(), Standing::Safe);
}

#[test]
fn nobody_waits_for_an_asynchronous_standby() {
    for safety in [Safety::TwoSafe, Safety::Quorum(2), Safety::VerySafe] {
        let mut rule = rule(safety, 1);
        expect(&mut rule, joined(A, 0), ms(0), 0);
        let _ = rule.apply(Event::Joined { standby: B, incarnation: 1, persisted: Lsn(0), synchronous: false }, ms(0));
        expect(&mut rule, Event::Durable(Lsn(100)), ms(1), 0);
        expect(&mut rule, acked(B, 100), ms(2), 0);
        expect(&mut rule, acked(A, 60), ms(3), 60);
        assert_eq!(rule.members().find(|(node, _)| *node == B).unwrap().1.place, Place::Behind);
        let _ = rule.apply(acked(A, 100), ms(4));
        assert_eq!(rule.standing(), Standing::Safe);
    }
}

#[test]
fn of_two_terms_of_one_number_the_one_that_commits_goes_on() {
    let contested = |rival| Event::Contested { term: Term(2), rival };
    let met = |acknowledged, is_first| contested(Some(Rival { acknowledged, is_first }));
    let with = |safety| {
        let mut rule = rule(safety, 2);
        expect(&mut rule, joined(A, 0), ms(0), 0);
        expect(&mut rule, Event::Durable(Lsn(50)), ms(1), if safety == Safety::OneSafe { 50 } else { 0 });
        rule
    };
    // It may be about to commit.
    let mut waits = with(Safety::Quorum(2));
    let _ = waits.apply(contested(None), ms(2));
    assert_eq!(waits.fenced(), None);
    let _ = waits.apply(contested(None), ms(100));
    assert_eq!((waits.fenced(), waits.admit()), (Some(Term(2)), Err(Refusal::Fenced { by: Term(2) })));
    let mut yields = with(Safety::Quorum(2));
    let _ = yields.apply(met(Acknowledged::Nothing, false), ms(2));
    assert_eq!((yields.fenced(), yields.acknowledged()), (None, Acknowledged::Nothing));
    let _ = yields.apply(met(Acknowledged::Nothing, true), ms(2));
    expect(&mut yields, acked(A, 50), ms(3), 0);
    assert_eq!((yields.fenced(), yields.acknowledged()), (Some(Term(2)), Acknowledged::Nothing));
    let mut commits = with(Safety::Quorum(2));
    expect(&mut commits, acked(A, 50), ms(2), 50);
    for rival in [None, Some(Acknowledged::Nothing), Some(Acknowledged::Alone)] {
        let rival = rival.map(|acknowledged| Rival { acknowledged, is_first: true });
        let _ = commits.apply(contested(rival), ms(1000));
        assert_eq!((commits.fenced(), commits.acknowledged()), (None, Acknowledged::ByOthers));
    }
    let _ = commits.apply(met(Acknowledged::ByOthers, false), ms(1000));
    assert_eq!(commits.fenced(), Some(Term(2)), "both stop");
    // Under 1-safe both commit, and one has to end.
    let mut alone = with(Safety::OneSafe);
    let _ = alone.apply(contested(None), ms(1000));
    assert_eq!(alone.fenced(), None);
    let _ = alone.apply(met(Acknowledged::Nothing, true), ms(1000));
    assert_eq!(alone.fenced(), Some(Term(2)));
    // Under 2-safe one may be left alone, and gives way to one that is not.
    let mut left = rule(Safety::TwoSafe, 1);
    expect(&mut left, Event::Durable(Lsn(50)), ms(0), 0);
    expect(&mut left, Event::Tick, ms(1000), 50);
    assert_eq!(left.acknowledged(), Acknowledged::Alone);
    let _ = left.apply(met(Acknowledged::Nothing, true), ms(1000));
    assert_eq!(left.fenced(), None);
    let _ = left.apply(met(Acknowledged::ByOthers, true), ms(1000));
    assert_eq!(left.fenced(), Some(Term(2)));
}

/// Commits continue without it when it has noted the set that says so.
#[test]
fn another_floor_counts_when_all_members_know_it() {
    let config = RuleConfig { standby_timeout: Duration::from_millis(100), ..RuleConfig::new(Safety::TwoSafe, 1) };
    for knows in [false, true] {
        let newest = set(&[NodeId(9), A], 1);
        let rule = CommitRule::new(config, Lsn(0), ms(0));
        let mut rule = rule.recorded(me(), Term(2), Succession::Of(newest), &BTreeSet::new(), ms(0));
        expect(&mut rule, joined(A, 0), ms(1), 0);
        expect(&mut rule, Event::Written { number: 5, end: Lsn(10) }, ms(2), 0);
        expect(&mut rule, Event::Durable(Lsn(10)), ms(3), 0);
        if knows {
            expect(&mut rule, acked(A, 10), ms(4), 10);
        }
        let committed = if knows { 10 } else { 0 };
        expect(&mut rule, Event::Left { standby: A }, ms(5), committed);
        expect(&mut rule, Event::Durable(Lsn(20)), ms(6), committed);
        expect(&mut rule, Event::Tick, ms(150), committed);
        assert_eq!(rule.to_write().is_some(), knows, "a set without it: {:?}", rule.standing());
        if !knows {
            assert!(matches!(rule.standing(), Standing::Blocked { remedy: Some(_), .. }), "{:?}", rule.standing());
        }
    }
}

fn member(rule: &CommitRule, standby: NodeId) -> Member {
    *rule.members().find(|(node, _)| *node == standby).unwrap().1
}

/// A member of the set may have been put out, and the next term not have heard of it: what the
/// last one left is committed only when something of this one is.
#[test]
fn the_inherited_log_commits_with_the_terms_own() {
    let config = RuleConfig::new(Safety::Quorum(2), 1);
    let mut rule = CommitRule::new(config, Lsn(100), ms(0)).known_committed(Lsn(50));
    expect(&mut rule, joined(A, 100), ms(1), 50);
    expect(&mut rule, Event::Durable(Lsn(120)), ms(2), 50);
    expect(&mut rule, acked(A, 120), ms(3), 120);
}

/// B came to the set of the last primary, A; whether that took effect, nobody has told this one.
#[test]
fn commits_wait_for_a_set_before_as_long_as_that_may_be_in_effect() {
    let before = vec![earlier(BTreeSet::from([me(), Holder::new(A, 1)]), Some(2))];
    let last = InSyncSet { quorum: Some(2), before, ..set(&[A, B, NodeId(9)], 1) };
    let config = rule(Safety::Quorum(2), 2);
    let mut rule = config.recorded(me(), Term(2), Succession::Of(last), &BTreeSet::new(), ms(0));
    expect(&mut rule, joined(B, 0), ms(1), 0);
    expect(&mut rule, Event::Durable(Lsn(60)), ms(2), 0);
    expect(&mut rule, acked(B, 60), ms(3), 0);
    expect(&mut rule, Event::Tick, ms(200), 0);
    let standing = rule.standing();
    let Standing::Blocked { in_sync: 1, waits_for, .. } = &standing else { panic!("{standing:?}") };
    assert_eq!(*waits_for, [A]);
}

#[test]
fn nothing_commits_before_a_set_of_the_term_is_in_effect() {
    let with_floor = |floor| {
        let mut rule = rule(Safety::TwoSafe, 0);
        rule.config.floor = floor;
        rule.recorded(me(), Term(1), Succession::begin(), &BTreeSet::new(), ms(0))
    };
    let mut alone = with_floor(0);
    expect(&mut alone, Event::Durable(Lsn(50)), ms(200), 0);
    write(&mut alone, 1, 60, ms(201));
    expect(&mut alone, Event::Durable(Lsn(60)), ms(202), 60);
    let mut below = with_floor(1);
    write(&mut below, 1, 60, ms(201));
    expect(&mut below, Event::Durable(Lsn(60)), ms(202), 0);
}

#[test]
fn who_is_away_or_far_behind_is_not_waited_for() {
    let mut rule = rule(Safety::TwoSafe, 1);
    expect(&mut rule, joined(A, 0), ms(0), 0);
    expect(&mut rule, Event::Left { standby: A }, ms(10), 0);
    expect(&mut rule, Event::Tick, ms(110), 0);
    expect(&mut rule, Event::Durable(Lsn(1000)), ms(111), 1000);
    expect(&mut rule, joined(A, 0), ms(112), 1000);
    expect(&mut rule, acked(A, 940), ms(113), 1000);
    expect(&mut rule, Event::Durable(Lsn(1100)), ms(114), 1100);
    assert_eq!(member(&rule, A).place, Place::Behind);
    // Near, but never connected, there is nobody to wait for.
    let mut away = self::rule(Safety::TwoSafe, 1);
    expect(&mut away, joined(A, 0), ms(0), 0);
    expect(&mut away, Event::Left { standby: A }, ms(10), 0);
    expect(&mut away, Event::Tick, ms(110), 0);
    expect(&mut away, Event::Tick, ms(111), 0);
    assert_eq!(member(&away, A).place, Place::Behind);
}

/// With a floor that no set without it would keep, it never was off the record: it counts again
/// when it holds again what was durable, and commits wait for that.
#[test]
fn who_lost_something_and_may_not_leave_counts_again_when_it_has_caught_up() {
    for refuses in [false, true] {
        let mut rule = recorded(1);
        if refuses {
            rule.config.when_missing = WhenMissing::RefuseAfter(Duration::from_millis(50));
        }
        expect(&mut rule, Event::Durable(Lsn(40)), ms(2), 30);
        expect(&mut rule, Event::Left { standby: A }, ms(3), 30);
        expect(&mut rule, joined(A, 5), ms(4), 30);
        assert_eq!((member(&rule, A).place, rule.to_write()), (Place::Leaving, None));
        let standing = rule.standing();
        assert!(
            matches!(&standing, Standing::Blocked { needed: 1, waits_for, .. } if *waits_for == [A]),
            "{standing:?}"
        );
        expect(&mut rule, Event::Tick, ms(60), 30);
        assert_eq!(rule.admit().is_err(), refuses);
        expect(&mut rule, acked(A, 39), ms(61), 39);
        assert_eq!(rule.keep_up().count(), 0, "it was to reach 40");
        expect(&mut rule, acked(A, 40), ms(62), 40);
        assert_eq!((rule.standing(), rule.admit()), (Standing::Safe, Ok(())));
        assert_eq!((rule.keep_up().collect::<Vec<_>>(), rule.to_write()), (vec![A], None));
        expect(&mut rule, Event::Durable(Lsn(50)), ms(63), 40);
        expect(&mut rule, acked(A, 50), ms(64), 50);
    }
}

/// It is lost before it has caught up: the status says what helps.
#[test]
fn who_lost_something_and_may_not_leave_is_missed_when_it_stalls() {
    let mut rule = recorded(1);
    expect(&mut rule, joined(A, 5), ms(2), 30);
    expect(&mut rule, Event::Left { standby: A }, ms(3), 30);
    expect(&mut rule, Event::Tick, ms(150), 30);
    let standing = rule.standing();
    assert!(matches!(&standing, Standing::Blocked { remedy: Some(_), .. }), "{standing:?}");
    expect(&mut rule, joined(A, 5), ms(200), 30);
    expect(&mut rule, acked(A, 30), ms(201), 30);
    assert_eq!(rule.standing(), Standing::Safe);
}

#[test]
fn who_leaves_returns_only_when_it_has_caught_up_and_does_not_stall() {
    let mut rule = recorded(0);
    expect(&mut rule, Event::Durable(Lsn(100)), ms(2), 30);
    expect(&mut rule, Event::Tick, ms(102), 30);
    write(&mut rule, 4, 110, ms(103));
    // It moves, and what was durable when it was put out is still outstanding.
    expect(&mut rule, acked(A, 99), ms(104), 99);
    assert_eq!((member(&rule, A).place, rule.to_write()), (Place::Leaving, None));
    expect(&mut rule, acked(A, 100), ms(105), 100);
    assert_eq!(rule.to_write().map(|set| (set.number, set.members.len())), Some((5, 2)), "it returns");
}

/// What was outstanding when it stalled may be less than what was durable when it was put out.
#[test]
fn who_leaves_returns_only_when_it_holds_what_was_durable_as_it_left() {
    let mut rule = recorded(0);
    expect(&mut rule, Event::Durable(Lsn(100)), ms(2), 30);
    expect(&mut rule, Event::Durable(Lsn(150)), ms(50), 30);
    expect(&mut rule, Event::Tick, ms(102), 30);
    write(&mut rule, 4, 160, ms(103));
    expect(&mut rule, acked(A, 120), ms(104), 120);
    assert_eq!((member(&rule, A).place, rule.to_write()), (Place::Leaving, None));
    expect(&mut rule, acked(A, 150), ms(105), 150);
    assert_eq!(rule.to_write().map(|set| set.number), Some(5));
}

/// It has lost something, and holds that again; but what has become durable since has stalled when
/// its going is on record.
#[test]
fn who_leaves_does_not_return_while_it_stalls() {
    let mut rule = recorded(0);
    expect(&mut rule, joined(A, 5), ms(2), 30);
    expect(&mut rule, Event::Durable(Lsn(200)), ms(3), 30);
    expect(&mut rule, acked(A, 30), ms(4), 30);
    write(&mut rule, 4, 210, ms(110));
    assert_eq!((member(&rule, A).place, rule.to_write()), (Place::Leaving, None));
    expect(&mut rule, acked(A, 200), ms(111), 200);
    assert_eq!(rule.to_write().map(|set| set.number), Some(5));
}

/// It is put out, and level again before that is written: it returns with the set after.
#[test]
fn who_returns_waits_for_the_set_that_is_being_written() {
    let mut rule = recorded(0);
    expect(&mut rule, Event::Durable(Lsn(100)), ms(2), 30);
    expect(&mut rule, Event::Tick, ms(102), 30);
    expect(&mut rule, acked(A, 100), ms(103), 100);
    assert_eq!(rule.to_write().map(|set| (set.number, set.members.len())), Some((4, 1)));
    write(&mut rule, 4, 110, ms(104));
    assert_eq!(rule.to_write().map(|set| (set.number, set.members.len())), Some((5, 2)));
}

#[test]
fn who_comes_onto_the_record_is_level_and_connected() {
    let first = || {
        let rule = rule(Safety::TwoSafe, 1).recorded(me(), Term(1), Succession::begin(), &BTreeSet::new(), ms(0));
        let mut rule = rule;
        write(&mut rule, 1, 10, ms(0));
        rule
    };
    let mut late = first();
    expect(&mut late, Event::Tick, ms(100), 0);
    expect(&mut late, Event::Durable(Lsn(40)), ms(101), 40);
    expect(&mut late, joined(A, 30), ms(102), 40);
    assert_eq!((member(&late, A).place, late.to_write()), (Place::Joining, None));
    expect(&mut late, acked(A, 40), ms(103), 40);
    assert_eq!(late.to_write().map(|set| set.members.len()), Some(2));
    let mut gone = first();
    expect(&mut gone, joined(A, 0), ms(1), 0);
    expect(&mut gone, Event::Left { standby: A }, ms(2), 0);
    expect(&mut gone, Event::Durable(Lsn(10)), ms(3), 0);
    assert!(gone.set_took_effect());
    assert_eq!((member(&gone, A).place, gone.to_write()), (Place::Joining, None));
}

#[test]
fn a_set_is_in_effect_when_all_of_it_hold_its_record() {
    let rule = rule(Safety::TwoSafe, 1).recorded(me(), Term(1), Succession::begin(), &BTreeSet::new(), ms(0));
    let mut rule = rule;
    write(&mut rule, 1, 10, ms(0));
    let _ = rule.apply(Event::Durable(Lsn(10)), ms(0));
    let _ = rule.apply(joined(A, 10), ms(1));
    write(&mut rule, 2, 20, ms(1));
    let _ = rule.apply(Event::Durable(Lsn(20)), ms(1));
    let _ = rule.apply(acked(A, 19), ms(1));
    assert_eq!(rule.in_sync_set().unwrap().members.len(), 1);
    let _ = rule.apply(acked(A, 20), ms(1));
    assert_eq!(rule.in_sync_set().unwrap().members.len(), 2);
}

#[test]
fn who_joins_waits_until_the_last_change_is_over() {
    let rule = rule(Safety::TwoSafe, 2).recorded(me(), Term(1), Succession::begin(), &BTreeSet::new(), ms(0));
    let mut rule = rule;
    write(&mut rule, 1, 10, ms(0));
    expect(&mut rule, Event::Durable(Lsn(10)), ms(0), 10);
    let _ = rule.apply(joined(A, 10), ms(1));
    write(&mut rule, 2, 20, ms(1));
    let _ = rule.apply(Event::Durable(Lsn(20)), ms(1));
    // A has not acknowledged the record yet.
    let _ = rule.apply(joined(B, 20), ms(2));
    assert_eq!((member(&rule, B).place, rule.to_write()), (Place::Joining, None));
    let _ = rule.apply(acked(A, 20), ms(3));
    assert_eq!(rule.to_write().map(|set| set.members.len()), Some(3));
}

/// One set at a time is written: of two that stall, the second goes with the next.
#[test]
fn sets_are_written_one_after_the_other() {
    let config = RuleConfig { standby_timeout: Duration::from_millis(100), ..RuleConfig::new(Safety::TwoSafe, 2) };
    let newest = set(&[A, B], 0);
    let rule = CommitRule::new(config, Lsn(0), ms(0));
    let mut rule = rule.recorded(me(), Term(2), Succession::Of(newest), &BTreeSet::new(), ms(0));
    write(&mut rule, 5, 10, ms(1));
    for standby in [A, B] {
        let _ = rule.apply(joined(standby, 10), ms(2));
    }
    let _ = rule.apply(Event::Durable(Lsn(10)), ms(2));
    assert_eq!(rule.in_sync_set().unwrap().number, 5);
    while let Some(number) = rule.to_write().map(|set| set.number) {
        write(&mut rule, number, 10 + number, ms(3));
        let _ = rule.apply(Event::Durable(Lsn(10 + number)), ms(3));
        for standby in [A, B] {
            let _ = rule.apply(acked(standby, 10 + number), ms(3));
        }
    }
    let _ = rule.apply(Event::Durable(Lsn(100)), ms(4));
    let _ = rule.apply(acked(B, 100), ms(50));
    let _ = rule.apply(Event::Durable(Lsn(200)), ms(60));
    let _ = rule.apply(Event::Tick, ms(104));
    let first = rule.to_write().unwrap().clone();
    assert_eq!(first.members, set(&[NodeId(9), B], 0).members);
    let _ = rule.apply(Event::Tick, ms(160));
    assert_eq!(rule.to_write(), Some(&first));
}

#[test]
fn a_term_that_is_over_writes_no_set() {
    let mut rule = rule(Safety::TwoSafe, 1).recorded(me(), Term(1), Succession::begin(), &BTreeSet::new(), ms(0));
    assert!(rule.to_write().is_some());
    let _ = rule.apply(Event::Fenced { by: Term(2) }, ms(1));
    assert_eq!(rule.to_write(), None);
}

/// No set without one of them could take effect before the other one is back.
#[test]
fn of_two_that_do_not_come_the_first_one_stays() {
    let config =
        RuleConfig { standby_timeout: Duration::from_millis(100), floor: 1, ..RuleConfig::new(Safety::TwoSafe, 2) };
    for (answered, back, silent) in [(A, A, B), (B, B, A), (A, B, A), (B, A, B)] {
        let newest = Succession::Of(set(&[NodeId(9), A, B], 1));
        let mut rule =
            CommitRule::new(config, Lsn(0), ms(0)).recorded(me(), Term(2), newest, &[answered].into(), ms(0));
        write(&mut rule, 5, 10, ms(1));
        let _ = rule.apply(Event::Durable(Lsn(10)), ms(2));
        let _ = rule.apply(Event::Tick, ms(101));
        assert_eq!(rule.to_write(), None);
        let _ = rule.apply(joined(back, 0), ms(102));
        let _ = rule.apply(acked(back, 10), ms(103));
        assert!(rule.to_write().unwrap().nodes().all(|node| node != silent));
        write(&mut rule, 6, 20, ms(104));
        let _ = rule.apply(Event::Durable(Lsn(20)), ms(104));
        expect(&mut rule, acked(back, 20), ms(105), 20);
    }
}

/// A standby that is about to lose its log is let go before that: commits wait for it until a set
/// without it is in effect. It may be taken back, and comes back with another log.
#[test]
fn nothing_relies_on_a_standby_that_was_excused() {
    let excused = |excused| Event::Excused { standby: A, excused };
    let both = || [Holder::new(A, 1), Holder::new(B, 1)];
    for safety in [Safety::TwoSafe, Safety::Quorum(2)] {
        let quorum = (safety != Safety::TwoSafe).then_some(2);
        let members = both().into_iter().chain([me()]).collect();
        let newest = InSyncSet { level: safety, quorum, members, ..set(&[], u32::from(quorum.is_some())) };
        let rule = rule(safety, 2);
        let mut rule = rule.recorded(me(), Term(1), Succession::Of(newest), &BTreeSet::new(), ms(0));
        for standby in [A, B] {
            let _ = rule.apply(joined(standby, 0), ms(0));
        }
        write(&mut rule, 5, 10, ms(0));
        let _ = rule.apply(Event::Durable(Lsn(10)), ms(0));
        for standby in [A, B] {
            let _ = rule.apply(acked(standby, 10), ms(0));
        }
        assert_eq!((rule.committed(), rule.relies_on(A), rule.keep_up().count()), (Lsn(10), true, 2), "{safety}");
        // What only the primary and the one that goes hold does not suffice any more.
        let _ = rule.apply(excused(true), ms(1));
        write(&mut rule, 6, 20, ms(1));
        let _ = rule.apply(Event::Durable(Lsn(20)), ms(1));
        let _ = rule.apply(acked(A, 20), ms(1));
        assert!(rule.relies_on(A) && rule.in_sync_set().unwrap().members.len() == 3, "{safety}");
        let _ = rule.apply(acked(B, 20), ms(2));
        assert_eq!(rule.committed(), Lsn(20), "{safety}");
        assert_eq!(rule.in_sync_set().unwrap().nodes().collect::<Vec<_>>(), [B, NodeId(9)], "{safety}");
        // B cannot know yet that this is so.
        assert!(rule.relies_on(A), "{safety}");
        write(&mut rule, 7, 30, ms(3));
        let _ = rule.apply(Event::Durable(Lsn(30)), ms(3));
        let _ = rule.apply(acked(A, 30), ms(3));
        assert_eq!((rule.committed(), rule.relies_on(A)), (Lsn(20), true), "{safety}: B holds no more");
        let _ = rule.apply(acked(B, 30), ms(3));
        assert!(!rule.relies_on(A), "{safety}");
        // It does not begin again, after all.
        let settled = |rule: &mut CommitRule, standbys: &[NodeId], mut end: u64, at| {
            while rule.to_write().is_some() {
                end += 10;
                let number = rule.to_write().unwrap().number;
                let _ = rule.apply(Event::Written { number, end: Lsn(end) }, at);
                let _ = rule.apply(Event::Durable(Lsn(end)), at);
                for standby in standbys {
                    let _ = rule.apply(acked(*standby, end), at);
                }
            }
            end
        };
        let end = settled(&mut rule, &[A, B], 30, ms(4));
        let _ = rule.apply(excused(false), ms(5));
        let end = settled(&mut rule, &[A, B], end, ms(5));
        assert!(rule.relies_on(A), "{safety}");
        let _ = rule.apply(excused(true), ms(6));
        let end = settled(&mut rule, &[A, B], end, ms(6));
        assert!(!rule.relies_on(A), "{safety}");
        // With nothing, and as another log.
        let _ = rule.apply(Event::Left { standby: A }, ms(7));
        let with_another = Event::Joined { standby: A, incarnation: 2, persisted: Lsn(0), synchronous: true };
        let _ = rule.apply(with_another, ms(8));
        assert!(!rule.relies_on(A), "{safety}");
        let _ = [acked(A, end), Event::Tick].map(|event| rule.apply(event, ms(9)));
        settled(&mut rule, &[A, B], end, ms(10));
        let members = &rule.in_sync_set().unwrap().members;
        assert!(members.contains(&Holder::new(A, 2)) && members.contains(&Holder::new(B, 1)), "{safety}: {members:?}");
    }
}
