use super::*;

/// A rule under quorum(2) that has `A` and `B` on record.
fn counting() -> CommitRule {
    let rule = rule(Safety::Quorum(2), 2);
    let mut rule = rule.recorded(me(), Term(1), Succession::begin(), &BTreeSet::new(), ms(0));
    write(&mut rule, 1, 10, ms(0));
    expect(&mut rule, Event::Durable(Lsn(10)), ms(0), 0);
    for standby in [A, B] {
        let _ = rule.apply(joined(standby, 10), ms(1));
    }
    settle(&mut rule, &[A, B], ms(2));
    assert_eq!(rule.in_sync_set().unwrap().members.len(), 3);
    rule
}

/// Lets all sets take effect that the rule wants; these acknowledge them. Says where the log ends.
fn settle(rule: &mut CommitRule, standbys: &[NodeId], at: Moment) -> u64 {
    let mut end = rule.durable().0;
    while let Some(number) = rule.to_write().map(|set| set.number) {
        end += 10;
        assert!(end < 10_000, "one set after the other is written, and none is the last");
        write(rule, number, end, at);
        let _ = rule.apply(Event::Durable(Lsn(end)), at);
        standbys.iter().for_each(|standby| _ = rule.apply(acked(*standby, end), at));
    }
    end
}

#[test]
fn a_quorum_counts_logs_that_are_on_record() {
    let mut rule = counting();
    let end = rule.durable().0;
    expect(&mut rule, Event::Durable(Lsn(end + 100)), ms(3), end);
    expect(&mut rule, acked(A, end + 60), ms(4), end + 60);
    // It was emptied: what the other log of its node acknowledges does not count before it is on
    // record.
    let again = Event::Joined { standby: A, incarnation: 2, persisted: Lsn(0), synchronous: true };
    let _ = rule.apply(again, ms(5));
    expect(&mut rule, acked(A, end + 100), ms(6), end + 60);
    let newest = rule.to_write().expect("the lost log goes").clone();
    assert_eq!(newest.members, [me(), Holder::new(B, 1)].into());
    // The others have to hold that it went: they may have promised something with it.
    write(&mut rule, newest.number, end + 110, ms(7));
    expect(&mut rule, Event::Durable(Lsn(end + 110)), ms(8), end + 60);
    expect(&mut rule, acked(B, end + 110), ms(9), end + 110);
    settle(&mut rule, &[A, B], ms(10));
    let members = rule.in_sync_set().unwrap().members.clone();
    assert_eq!(members, [me(), Holder::new(A, 2), Holder::new(B, 1)].into());
}

/// A node came with another log, and then with the one of before: its directory was put back.
#[test]
fn a_log_that_was_gone_and_is_there_again_comes_once() {
    let with = |incarnation| Event::Joined { standby: A, incarnation, persisted: Lsn(0), synchronous: true };
    for away in [false, true] {
        let mut rule = counting();
        let _ = rule.apply(with(2), ms(3));
        if !away {
            let end = settle(&mut rule, &[B], ms(4));
            let _ = rule.apply(acked(A, end), ms(4));
            settle(&mut rule, &[A, B], ms(5));
        }
        let _ = rule.apply(with(1), ms(6));
        let end = settle(&mut rule, &[B], ms(7));
        let _ = rule.apply(acked(A, end), ms(8));
        settle(&mut rule, &[A, B], ms(9));
        let members = rule.in_sync_set().unwrap().members.clone();
        assert_eq!(members, [me(), Holder::new(A, 1), Holder::new(B, 1)].into());
    }
}

#[test]
fn a_member_that_is_away_stays_until_it_is_removed() {
    let c = NodeId(3);
    let mut rule = counting();
    let end = rule.durable().0;
    let _ = rule.apply(Event::Left { standby: B }, ms(3));
    let _ = rule.apply(joined(c, end), ms(4));
    settle(&mut rule, &[A, c], ms(5));
    let _ = rule.apply(Event::Tick, ms(200));
    let nodes = |rule: &CommitRule| rule.in_sync_set().unwrap().nodes().collect::<Vec<_>>();
    assert_eq!((nodes(&rule), rule.to_write()), (vec![A, B, c, NodeId(9)], None), "it may come back");
    let _ = rule.leave(B, Leaves::Removed, ms(201)).unwrap();
    // If this primary is lost, the others may continue as if that had never been ordered.
    let written = rule.to_write().unwrap().clone();
    assert!(written.roster.leaving.contains(&B) && written.roster.removed.is_empty() && !written.is_without(B));
    assert!(!rule.has_removed(B));
    settle(&mut rule, &[A, c], ms(202));
    assert_eq!(nodes(&rule), [A, c, NodeId(9)]);
    assert!(rule.has_removed(B) && rule.in_sync_set().unwrap().is_without(B));
    let roster = &rule.in_sync_set().unwrap().roster;
    assert!(roster.has_removed(B) && !roster.voters.contains(&B), "{roster:?}");
}

/// All of them hold every commit: with as many as there are.
#[test]
fn very_safe_counts_all_who_belong_to_the_cluster() {
    let c = NodeId(3);
    let rule = self::rule(Safety::VerySafe, 0);
    let mut rule = rule.recorded(me(), Term(1), Succession::begin(), &BTreeSet::new(), ms(0));
    let _ = rule.apply(joined(A, 0), ms(1));
    settle(&mut rule, &[A], ms(1));
    let set = |rule: &CommitRule| rule.in_sync_set().map(|set| (set.members.len(), set.quorum, set.floor)).unwrap();
    assert_eq!(set(&rule), (2, Some(2), 1));
    let end = rule.durable().0;
    let _ = rule.apply(Event::Left { standby: A }, ms(2));
    let _ = rule.apply(joined(c, end), ms(3));
    let _ = rule.apply(Event::Tick, ms(300));
    let _ = rule.apply(acked(c, end), ms(301));
    let number = rule.to_write().unwrap().number;
    write(&mut rule, number, end + 10, ms(301));
    let _ = rule.apply(Event::Durable(Lsn(end + 10)), ms(301));
    let _ = rule.apply(acked(c, end + 10), ms(301));
    assert_eq!(set(&rule), (2, Some(2), 1), "A has to know of it");
    let _ = rule.leave(A, Leaves::Replaced, ms(302)).unwrap();
    settle(&mut rule, &[c], ms(303));
    assert_eq!((set(&rule), rule.expected()), ((2, Some(2), 1), 1));
    assert!(rule.in_sync_set().unwrap().nodes().eq([c, NodeId(9)]));
}

/// Alone as under 1-safe, of two nodes as under 2-safe, of more a majority; and back.
#[test]
fn a_majority_is_of_those_who_belong_to_the_cluster() {
    let c = NodeId(3);
    let rule = self::rule(Safety::Majority, 0);
    let mut rule = rule.recorded(me(), Term(1), Succession::begin(), &BTreeSet::new(), ms(0));
    let set = |rule: &CommitRule| rule.in_sync_set().map(|set| (set.members.len(), set.quorum, set.floor)).unwrap();
    let end = settle(&mut rule, &[], ms(0));
    assert_eq!((set(&rule), rule.standing()), ((1, None, 0), Standing::Safe), "alone");
    expect(&mut rule, Event::Durable(Lsn(end + 10)), ms(0), end + 10);
    let _ = rule.apply(joined(A, end + 10), ms(1));
    let end = settle(&mut rule, &[A], ms(1));
    assert_eq!(set(&rule), (2, None, 0));
    expect(&mut rule, Event::Durable(Lsn(end + 10)), ms(1), end);
    let _ = rule.apply(joined(c, end + 10), ms(2));
    expect(&mut rule, acked(A, end + 10), ms(2), end + 10);
    let end = settle(&mut rule, &[A, c], ms(2));
    assert_eq!(set(&rule), (3, Some(2), 1));
    // One of three is lost: nothing waits, and it stays a member.
    let _ = rule.apply(Event::Left { standby: A }, ms(3));
    let _ = rule.apply(Event::Durable(Lsn(end + 10)), ms(4));
    expect(&mut rule, acked(c, end + 10), ms(4), end + 10);
    let _ = rule.apply(Event::Tick, ms(300));
    assert_eq!((set(&rule), rule.to_write()), ((3, Some(2), 1), None));
    assert!(matches!(rule.standing(), Standing::Degraded { in_sync: 1, configured: 2, .. }), "{:?}", rule.standing());
    // It is gone for good: two nodes are left, and either of them is put out when it stalls.
    let _ = rule.leave(A, Leaves::Removed, ms(301)).unwrap();
    let end = settle(&mut rule, &[c], ms(301));
    assert_eq!((set(&rule), rule.standing()), ((2, None, 0), Standing::Safe));
    let _ = rule.apply(Event::Left { standby: c }, ms(302));
    let _ = rule.apply(Event::Tick, ms(600));
    settle(&mut rule, &[], ms(600));
    assert_eq!((set(&rule), rule.expected()), ((1, None, 0), 1));
    assert!(rule.committed() >= Lsn(end));
}

#[test]
fn a_quorum_counts_the_primary() {
    let mut rule = rule(Safety::Quorum(2), 2);
    expect(&mut rule, joined(A, 0), ms(0), 0);
    expect(&mut rule, joined(B, 0), ms(0), 0);
    expect(&mut rule, acked(A, 90), ms(1), 0);
    expect(&mut rule, Event::Durable(Lsn(50)), ms(2), 50);
    expect(&mut rule, acked(B, 60), ms(3), 50);
    expect(&mut rule, Event::Durable(Lsn(100)), ms(4), 90);
}

/// A new primary cuts half a transaction off, and would be taken for one that lacks something.
#[test]
fn what_was_committed_before_a_set_ends_with_a_transaction() {
    let since = |told: Option<u64>| {
        let mut rule = counting();
        let end = rule.durable().0;
        expect(&mut rule, Event::Durable(Lsn(end + 100)), ms(3), end);
        expect(&mut rule, acked(A, end + 60), ms(4), end + 60);
        let again = Event::Joined { standby: B, incarnation: 2, persisted: Lsn(0), synchronous: true };
        let _ = rule.apply(again, ms(5));
        assert_eq!(rule.to_write().expect("the lost log goes").since, Lsn(end + 60), "by blocks");
        told.into_iter().for_each(|told| rule.announced(Lsn(end + told)));
        // What is committed from here on is so by that set, too.
        expect(&mut rule, acked(A, end + 80), ms(6), end + 80);
        rule.announced(Lsn(end + 70));
        rule.to_write().unwrap().since.since(Lsn(end))
    };
    assert_eq!([None, Some(40), Some(60)].map(since), [60, 40, 60]);
}
