//! Members of a recorded set whose logs are gone.

use super::*;

/// A standby of the recorded set that has lost something leaves by a record, as one that stalls.
#[test]
fn who_is_on_record_and_lost_something_leaves_by_a_record() {
    let mut rule = recorded(0);
    expect(&mut rule, joined(A, 5), ms(2), 30);
    assert_eq!(member(&rule, A).place, Place::Leaving);
    expect(&mut rule, Event::Durable(Lsn(100)), ms(3), 30);
    assert_eq!(rule.to_write().unwrap().members.len(), 1);
}

/// A standby of the recorded set comes with another log: what that one acknowledges is nothing that
/// the record says, and a candidate that hears the rest of the set may have been promised less.
#[test]
fn another_log_of_a_member_does_not_stand_for_it() {
    let mut rule = recorded(1);
    expect(&mut rule, Event::Durable(Lsn(40)), ms(2), 30);
    expect(&mut rule, Event::Left { standby: A }, ms(3), 30);
    let emptied = Event::Joined { standby: A, incarnation: 2, persisted: Lsn(5), synchronous: true };
    expect(&mut rule, emptied, ms(4), 30);
    expect(&mut rule, acked(A, 40), ms(5), 30);
    assert_eq!(rule.to_write().unwrap().members.len(), 1, "the log is gone, so that a set without it may follow");
}

/// Another node came to the address of a member that is away: that log is gone, too.
#[test]
fn a_member_in_whose_place_another_node_has_come_leaves_though_the_floor_would_keep_it() {
    let mut rule = recorded(1);
    expect(&mut rule, Event::Durable(Lsn(40)), ms(2), 30);
    expect(&mut rule, Event::Left { standby: A }, ms(3), 30);
    expect(&mut rule, joined(B, 5), ms(4), 30);
    assert_eq!(rule.to_write(), None, "A may have promised itself to a candidate");
    let _ = rule.leave(A, Leaves::Replaced, ms(5)).unwrap();
    assert_eq!(rule.to_write().unwrap().members, [me()].into());
    let number = rule.to_write().unwrap().number;
    write(&mut rule, number, 50, ms(6));
    expect(&mut rule, Event::Durable(Lsn(50)), ms(7), 30);
    assert_eq!(rule.to_write().unwrap().before, [], "it is on record that A is gone");
    write(&mut rule, number + 1, 60, ms(8));
    expect(&mut rule, Event::Durable(Lsn(60)), ms(9), 30);
    expect(&mut rule, acked(B, 60), ms(10), 30);
    assert_eq!(rule.to_write().unwrap().members, [me(), Holder::new(B, 1)].into());
}

/// It has taken over from one that had gone on alone, and was no member: floor zero allows that.
/// The other one has come back since, has led again, and has lost its log in the end.
#[test]
fn nothing_commits_where_all_are_gone_that_may_have_led_since() {
    let alone = |node| set(&[node], 0);
    let begun = |last| {
        let rule = rule(Safety::TwoSafe, 1);
        let mut rule = rule.recorded(me(), Term(2), Succession::Of(last), &[A].into(), ms(0));
        let _ = rule.apply(Event::Durable(Lsn(20)), ms(1));
        let number = rule.to_write().expect("the first of the term").number;
        write(&mut rule, number, 10, ms(1));
        rule
    };
    let emptied = Event::Joined { standby: A, incarnation: 2, persisted: Lsn(0), synchronous: true };
    let very_safe = InSyncSet { level: Safety::VerySafe, quorum: Some(1), ..alone(A) };
    for last in [alone(A), very_safe] {
        let mut rule = begun(last);
        for at in [2, 3, 500] {
            expect(&mut rule, emptied, ms(at), 0);
            expect(&mut rule, acked(A, 20), ms(at), 0);
            assert_eq!(rule.to_write(), None, "no set may follow");
        }
        let Standing::Blocked { remedy: Some(_), .. } = rule.standing() else { panic!("{:?}", rule.standing()) };
    }
    // It holds what the other one held: without this node, none has led since.
    let mut member = begun(set(&[A, me().node], 0));
    expect(&mut member, emptied, ms(2), 0);
    let number = member.to_write().expect("the log is gone").number;
    write(&mut member, number, 20, ms(3));
    expect(&mut member, Event::Tick, ms(200), 20);
    // Under 1-safe none of its commits counted on them.
    let mut one_safe = begun(InSyncSet { level: Safety::OneSafe, quorum: Some(1), ..alone(A) });
    let _ = one_safe.apply(emptied, ms(2));
    let number = one_safe.to_write().expect("the log is gone").number;
    write(&mut one_safe, number, 20, ms(3));
    expect(&mut one_safe, Event::Tick, ms(4), 20);
}

/// A log is known to be gone also where only a set names it that was in effect before the newest
/// (simulation, shape 2, seed 8600146).
#[test]
fn a_log_that_only_an_earlier_set_names_may_be_gone() {
    let c = NodeId(3);
    let last = InSyncSet { floor: 2, ..set(&[A, B, c, me().node], 2) };
    let config = RuleConfig { floor: 2, ..*rule(Safety::TwoSafe, 3).config() };
    let rule = CommitRule::new(config, Lsn(0), ms(0));
    let mut rule = rule.recorded(me(), Term(2), Succession::Of(last), &BTreeSet::new(), ms(0));
    let _ = [A, B, c].map(|node| rule.apply(joined(node, 0), ms(0)));
    let write_on = |rule: &mut CommitRule, standbys: &[NodeId], end: u64| {
        if let Some(number) = rule.to_write().map(|set| set.number) {
            write(rule, number, end, ms(end));
        }
        let _ = rule.apply(Event::Durable(Lsn(end)), ms(end));
        standbys.iter().for_each(|node| _ = rule.apply(acked(*node, end), ms(end)));
    };
    [10, 20, 30].into_iter().for_each(|end| write_on(&mut rule, &[A, B, c], end));
    let _ = [rule.apply(Event::Left { standby: c }, ms(31)), rule.apply(Event::Tick, ms(500))];
    write_on(&mut rule, &[A, B], 501);
    assert!(rule.in_sync_set().unwrap().nodes().eq([A, B, me().node]));
    let emptied = |standby| Event::Joined { standby, incarnation: 2, persisted: Lsn(0), synchronous: true };
    let _ = rule.apply(emptied(c), ms(502));
    assert_eq!(rule.gone(), [Holder::new(c, 1)].into());
    let _ = rule.apply(emptied(A), ms(503));
    (510..=580).step_by(10).for_each(|end| write_on(&mut rule, &[A, B, c], end));
    assert_eq!((rule.committed(), rule.gone()), (Lsn(580), BTreeSet::new()));
}

/// A former laggard has taken over with one member of the set: without the other nothing commits,
/// and it says so, and for whom it waits.
#[test]
fn who_may_not_be_left_out_blocks_and_is_named() {
    let config = RuleConfig {
        standby_timeout: Duration::from_millis(100),
        join_window: 50,
        floor: 1,
        ..RuleConfig::new(Safety::TwoSafe, 2)
    };
    let newest = set(&[A, B], 1);
    let rule = CommitRule::new(config, Lsn(0), ms(0));
    let mut rule = rule.recorded(me(), Term(2), Succession::Of(newest), &BTreeSet::new(), ms(0));
    expect(&mut rule, joined(B, 0), ms(1), 0);
    expect(&mut rule, Event::Written { number: 5, end: Lsn(10) }, ms(2), 0);
    expect(&mut rule, Event::Durable(Lsn(10)), ms(3), 0);
    expect(&mut rule, acked(B, 10), ms(4), 0);
    expect(&mut rule, Event::Tick, ms(150), 0);
    let Standing::Blocked { in_sync: 1, needed: 1, waits_for, remedy: Some(remedy), .. } = rule.standing() else {
        panic!("{:?}", rule.standing())
    };
    assert_eq!(waits_for, [A]);
    assert!(remedy.contains("remove --gone"), "{remedy}");
    // Commits continue without it when that is done.
    let mut without = rule.clone();
    let _ = without.leave(A, Leaves::RemovedGone, ms(160)).unwrap();
    write(&mut without, 6, 20, ms(161));
    let _ = without.apply(Event::Durable(Lsn(20)), ms(162));
    expect(&mut without, acked(B, 20), ms(163), 20);
    // Or it comes, and all is well.
    expect(&mut rule, joined(A, 0), ms(200), 0);
    expect(&mut rule, acked(A, 10), ms(210), 10);
    assert_eq!(rule.standing(), Standing::Safe);
}
