use super::*;

/// A rule under quorum(2) that has `A` and `B` on record.
fn counting() -> CommitRule {
    let rule = rule(Safety::Quorum(2), 2);
    let mut rule = rule.recorded(me(), Term(1), Succession::New(1), &BTreeSet::new(), ms(0));
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

#[test]
fn a_member_that_is_away_is_replaced_by_one_that_is_level() {
    let c = NodeId(3);
    let mut rule = counting();
    let end = rule.durable().0;
    let _ = rule.apply(Event::Left { standby: B }, ms(3));
    let _ = rule.apply(joined(c, end), ms(4));
    assert_eq!(rule.to_write(), None, "it may come back");
    let _ = rule.apply(Event::Tick, ms(200));
    let _ = rule.apply(acked(c, end), ms(201));
    settle(&mut rule, &[A, c], ms(202));
    let nodes: Vec<_> = rule.in_sync_set().unwrap().nodes().collect();
    assert_eq!(nodes, [A, c, NodeId(9)]);
    // Where any member may take over alone, only one whose log is gone is replaced.
    let rule = self::rule(Safety::VerySafe, 1);
    let mut rule = rule.recorded(me(), Term(1), Succession::New(1), &BTreeSet::new(), ms(0));
    let _ = rule.apply(joined(A, 0), ms(1));
    settle(&mut rule, &[A], ms(1));
    assert_eq!(rule.in_sync_set().unwrap().members.len(), 2);
    let end = rule.durable().0;
    let _ = rule.apply(Event::Left { standby: A }, ms(2));
    let _ = rule.apply(joined(c, end), ms(3));
    let _ = rule.apply(Event::Tick, ms(300));
    assert_eq!(rule.to_write(), None);
    let _ = rule.forget(A, ms(301));
    let _ = rule.apply(acked(c, end), ms(302));
    settle(&mut rule, &[c], ms(303));
    let nodes: Vec<_> = rule.in_sync_set().unwrap().nodes().collect();
    assert_eq!(nodes, [c, NodeId(9)]);
}
