use freshet_base::versions::Level;

use super::*;
use crate::in_sync::Noted;

/// Three nodes under `level`, all in sync; everything up to 10 is committed.
fn trio(level: Safety) -> CommitRule {
    let members = [A, B].map(|node| Holder::new(node, 1)).into_iter().chain([me()]).collect();
    let floor = match level {
        Safety::OneSafe | Safety::TwoSafe => 0,
        Safety::VerySafe => 2,
        _ => 1,
    };
    let quorum = (level != Safety::TwoSafe).then_some(floor + 1);
    let last = InSyncSet { level, quorum, members, ..set(&[], floor) };
    // The level on record counts, not the one with which this node is configured.
    let rule = rule(Safety::Quorum(7), 2);
    let mut rule = rule.recorded(me(), Term(2), Succession::Of(last), &BTreeSet::new(), ms(0));
    let _ = [A, B].map(|node| rule.apply(joined(node, 0), ms(0)));
    assert_eq!((rule.level(), rule.wanted_level()), (level, level));
    let mut number = 5;
    while rule.to_write().is_some() {
        write(&mut rule, number, 10, ms(0));
        both(&mut rule, 10, 0);
        number += 1;
    }
    assert_eq!(rule.committed(), Lsn(10));
    rule
}

fn both(rule: &mut CommitRule, at: u64, now: u64) {
    let _ = rule.apply(Event::Durable(Lsn(at)), ms(now));
    let _ = [A, B].map(|node| rule.apply(acked(node, at), ms(now)));
}

/// Puts the set that is to be written into the log, to end there.
fn record(rule: &mut CommitRule, end: u64, at: u64) {
    let number = rule.to_write().expect("a level was changed").number;
    write(rule, number, end, ms(at));
}

/// A commit keeps to both levels until the record of the new one is in effect.
#[test]
fn a_level_that_needs_more_counts_from_the_record_on() {
    let mut rule = trio(Safety::Quorum(2));
    let decision = rule.change_level(Safety::VerySafe, ms(1)).unwrap();
    assert!(decision.write && rule.level() == Safety::Quorum(2) && rule.wanted_level() == Safety::VerySafe);
    record(&mut rule, 20, 1);
    expect(&mut rule, Event::Durable(Lsn(20)), ms(1), 10);
    expect(&mut rule, acked(A, 20), ms(1), 10);
    assert_eq!(rule.level(), Safety::Quorum(2), "node B could lead alone, and may lack what was committed before");
    expect(&mut rule, acked(B, 20), ms(1), 20);
    assert_eq!(rule.level(), Safety::VerySafe);
    expect(&mut rule, Event::Durable(Lsn(30)), ms(1), 20);
    expect(&mut rule, acked(A, 30), ms(1), 20);
    expect(&mut rule, acked(B, 30), ms(1), 30);
    assert_eq!(rule.to_write().map(|set| (set.level, set.before.len())), Some((Safety::VerySafe, 0)));
}

#[test]
fn a_level_that_needs_less_counts_when_all_have_noted_it() {
    let mut rule = trio(Safety::VerySafe);
    let _ = rule.change_level(Safety::Majority, ms(1)).unwrap();
    record(&mut rule, 20, 1);
    expect(&mut rule, Event::Durable(Lsn(20)), ms(1), 10);
    expect(&mut rule, acked(A, 20), ms(1), 10);
    assert_eq!(rule.level(), Safety::VerySafe, "node B could lead alone, by what it knows");
    expect(&mut rule, acked(B, 20), ms(1), 20);
    assert_eq!(rule.level(), Safety::Majority);
    expect(&mut rule, Event::Durable(Lsn(30)), ms(2), 20);
    expect(&mut rule, acked(A, 30), ms(2), 30);
}

/// Who is silent would hold up commits that wait for all, and is left out at once if that may be.
#[test]
fn where_all_count_the_silent_do_not() {
    let mut rule = trio(Safety::Quorum(2));
    let _ = rule.apply(Event::Left { standby: B }, ms(1));
    let _ = rule.apply(Event::Tick, ms(500));
    let _ = rule.change_level(Safety::TwoSafe, ms(500)).unwrap();
    assert_eq!(rule.to_write().unwrap().nodes().collect::<Vec<_>>(), [A, NodeId(9)]);
    record(&mut rule, 20, 500);
    let _ = rule.apply(Event::Durable(Lsn(20)), ms(500));
    expect(&mut rule, acked(A, 20), ms(500), 20);
    assert_eq!(rule.level(), Safety::TwoSafe);
    // Where a set has to have all of those of before it waits for them, and so do commits.
    let mut rule = trio(Safety::VerySafe);
    let _ = rule.apply(Event::Left { standby: B }, ms(1));
    let _ = rule.apply(Event::Tick, ms(500));
    let _ = rule.change_level(Safety::TwoSafe, ms(500)).unwrap();
    assert_eq!(rule.to_write().unwrap().members.len(), 3);
    record(&mut rule, 20, 500);
    let _ = rule.apply(Event::Durable(Lsn(20)), ms(500));
    expect(&mut rule, acked(A, 20), ms(500), 10);
    assert_eq!(rule.level(), Safety::VerySafe);
    // An operator who knows that it is gone says so.
    let _ = rule.leave(B, Leaves::RemovedGone, ms(501)).unwrap();
    while rule.to_write().is_some() {
        record(&mut rule, 30, 501);
        let _ = rule.apply(Event::Durable(Lsn(30)), ms(501));
        let _ = rule.apply(acked(A, 30), ms(501));
    }
    assert_eq!((rule.committed(), rule.level()), (Lsn(30), Safety::TwoSafe));
}

#[test]
fn a_level_under_which_nothing_would_commit_is_refused() {
    let mut rule = trio(Safety::Majority);
    let refused = |needed, in_sync, level| Err(CannotChange::TooFew { level, needed, in_sync });
    let four = Safety::Quorum(4);
    assert_eq!(rule.change_level(four, ms(1)).map(drop), refused(4, 3, four));
    let _ = rule.apply(Event::Left { standby: B }, ms(1));
    let _ = rule.apply(Event::Tick, ms(500));
    assert_eq!(rule.change_level(Safety::VerySafe, ms(500)).map(drop), refused(3, 2, Safety::VerySafe));
    assert_eq!((rule.wanted_level(), rule.to_write()), (Safety::Majority, None), "nothing has changed");
    let _ = rule.change_level(Safety::Majority, ms(500)).unwrap();
    assert_eq!(rule.to_write(), None, "there is nothing to change");
}

/// Under 1-safe a candidate asks no other node: it has to know that it must before commits rely on
/// that.
#[test]
fn from_one_safe_all_know_before_anything_relies_on_it() {
    let mut rule = trio(Safety::OneSafe);
    expect(&mut rule, Event::Durable(Lsn(20)), ms(1), 20);
    let _ = rule.apply(Event::Left { standby: B }, ms(1));
    assert_eq!(rule.change_level(Safety::Majority, ms(2)).map(drop), Err(CannotChange::Away(B)));
    let _ = rule.apply(joined(B, 10), ms(2));
    let _ = rule.change_level(Safety::Majority, ms(3)).unwrap();
    record(&mut rule, 30, 3);
    expect(&mut rule, Event::Durable(Lsn(30)), ms(3), 20);
    expect(&mut rule, acked(A, 30), ms(3), 30);
    assert_eq!(rule.level(), Safety::OneSafe);
    let _ = rule.apply(acked(B, 30), ms(3));
    assert_eq!(rule.level(), Safety::Majority);
    // The other way the new level counts as soon as the old one lets it.
    let _ = rule.change_level(Safety::OneSafe, ms(4)).unwrap();
    while rule.to_write().is_some() {
        record(&mut rule, 40, 4);
        let _ = rule.apply(Event::Durable(Lsn(40)), ms(4));
        let _ = rule.apply(acked(A, 40), ms(4));
    }
    assert_eq!(rule.level(), Safety::OneSafe);
    expect(&mut rule, Event::Durable(Lsn(50)), ms(5), 50);
}

/// A node that has come with another log while commits counted members is none of those who have
/// to note the next set.
#[test]
fn a_log_that_is_gone_holds_up_no_level() {
    let mut rule = trio(Safety::Quorum(2));
    let _ = rule.change_level(Safety::TwoSafe, ms(1)).unwrap();
    record(&mut rule, 20, 1);
    let with_another = |incarnation| Event::Joined { standby: B, incarnation, persisted: Lsn(0), synchronous: true };
    let _ = rule.apply(with_another(2), ms(2));
    let _ = rule.change_level(Safety::Quorum(2), ms(3)).unwrap();
    let _ = rule.apply(with_another(3), ms(3));
    let _ = rule.change_level(Safety::TwoSafe, ms(4)).unwrap();
    for at in [30, 40, 50, 60] {
        if rule.to_write().is_some() {
            record(&mut rule, at, 4);
        }
        let _ = rule.apply(Event::Durable(Lsn(at)), ms(4));
        let _ = rule.apply(acked(A, at), ms(4));
    }
    assert_eq!((rule.level(), rule.committed()), (Safety::TwoSafe, Lsn(60)));
}

#[test]
fn a_node_stays_that_the_wanted_level_needs() {
    let mut rule = trio(Safety::TwoSafe);
    let _ = rule.change_level(Safety::Quorum(3), ms(1)).unwrap();
    let refused = rule.leave(B, Leaves::Removed, ms(1)).map(drop);
    assert!(matches!(refused, Err(CannotLeave::Needed { .. })), "{refused:?}");
    assert!(trio(Safety::TwoSafe).leave(B, Leaves::Removed, ms(1)).is_ok());
}

/// The level that commits still keep to may be wanted again, but not after a node was removed that
/// only the other level can do without (simulation, shape 48, seed 8503701).
#[test]
fn the_level_of_before_does_not_come_back_for_those_who_are_left() {
    let mut rule = trio(Safety::Quorum(3));
    let _ = rule.change_level(Safety::Majority, ms(1)).unwrap();
    let _ = rule.leave(B, Leaves::RemovedGone, ms(1)).unwrap();
    let (level, needed) = (Safety::Quorum(3), 3);
    assert_eq!(rule.level(), level, "the record of the other is not in effect");
    let refused = Err(CannotChange::TooFew { level, needed, in_sync: 2 });
    assert_eq!(rule.change_level(level, ms(1)).map(drop), refused);
    let mut rule = trio(Safety::Quorum(3));
    let _ = rule.change_level(Safety::Majority, ms(1)).unwrap();
    let _ = rule.apply(Event::Left { standby: B }, ms(1));
    let _ = rule.apply(Event::Tick, ms(500));
    assert!(rule.change_level(level, ms(500)).is_ok(), "it still belongs to the cluster");
}

/// Nor where others that would be needed then are away: the set without it would never be in
/// effect, and nothing would commit.
#[test]
fn a_node_stays_while_another_one_is_away() {
    for level in [Safety::Majority, Safety::Quorum(2)] {
        let mut rule = trio(level);
        let _ = rule.apply(Event::Left { standby: B }, ms(1));
        let _ = rule.apply(Event::Tick, ms(500));
        let needed = Err(CannotLeave::Needed { members: 3, in_sync: 2 });
        assert_eq!(rule.leave(A, Leaves::Removed, ms(500)).map(drop), needed, "{level}");
        assert_eq!(rule.to_write(), None);
        assert!(rule.leave(B, Leaves::Removed, ms(500)).is_ok(), "{level}");
    }
}

/// A primary that takes over in the middle of a change says that commits keep to both levels.
#[test]
fn a_change_of_the_level_may_be_pending_in_the_next_term() {
    let logs = || [A, B].map(|node| Holder::new(node, 1)).into_iter().chain([me()]).collect::<BTreeSet<_>>();
    let before = vec![earlier(logs(), Some(3))];
    let last = InSyncSet { level: Safety::Quorum(2), quorum: Some(2), members: logs(), before, ..set(&[], 1) };
    let rule = rule(Safety::Majority, 2);
    let mut rule = rule.recorded(me(), Term(2), Succession::Of(last), &BTreeSet::new(), ms(0));
    let _ = [A, B].map(|node| rule.apply(joined(node, 0), ms(0)));
    assert!(rule.level() == Safety::Quorum(2) && rule.level_pending().is_some());
    record(&mut rule, 10, 1);
    let _ = rule.apply(Event::Durable(Lsn(10)), ms(1));
    let _ = rule.apply(acked(A, 10), ms(1));
    assert_eq!(rule.level_pending(), Some(BTreeSet::from([B])), "it may know of the old level alone");
    assert_eq!(rule.committed(), Lsn(0));
    let _ = rule.apply(acked(B, 10), ms(1));
    assert_eq!((rule.level_pending(), rule.committed()), (None, Lsn(10)));
}

/// The level is in effect when the record of it is, and the next term begins with it.
#[test]
fn the_format_level_rises_with_its_record_and_stays() {
    let members = [A, B].map(|node| Holder::new(node, 1)).into_iter().chain([me()]).collect();
    let last = InSyncSet { level: Safety::Majority, quorum: Some(2), members, ..set(&[], 1) };
    let begin = |of| {
        let mut rule = rule(Safety::Majority, 2).recorded(me(), Term(2), Succession::Of(of), &BTreeSet::new(), ms(0));
        let _ = [A, B].map(|node| rule.apply(joined(node, 0), ms(0)));
        rule
    };
    let settle = |rule: &mut CommitRule, end: u64| {
        while let Some(number) = rule.to_write().map(|set| set.number) {
            write(rule, number, end, ms(1));
            let _ = rule.apply(Event::Durable(Lsn(end)), ms(1));
            let _ = [A, B].map(|node| rule.apply(acked(node, end), ms(1)));
        }
    };
    let mut rule = begin(last);
    settle(&mut rule, 10);
    assert_eq!(rule.format(), Some((Level(1), Level(1))));
    let decision = rule.note(&Noted::Format(Level(2)), ms(2));
    assert!(decision.write && rule.format() == Some((Level(1), Level(2))), "it is not on record yet");
    let recorded = rule.to_write().cloned().unwrap();
    assert_eq!(recorded.roster.format, Level(2));
    settle(&mut rule, 20);
    assert_eq!(rule.format(), Some((Level(2), Level(2))));
    // It never sinks.
    let decision = rule.note(&Noted::Format(Level(1)), ms(3));
    assert!(!decision.write && rule.format() == Some((Level(2), Level(2))));
    let mut next = begin(InSyncSet { before: Vec::new(), ..recorded });
    settle(&mut next, 30);
    assert_eq!(next.format(), Some((Level(2), Level(2))));
}
