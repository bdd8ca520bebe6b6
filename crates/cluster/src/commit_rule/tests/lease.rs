use super::*;

/// Enough members have granted it that a candidate misses at most the others; then it says nothing.
#[test]
fn a_primary_without_a_lease_commits_nothing() {
    let config = RuleConfig { lease: Some(Duration::from_millis(50)), ..RuleConfig::new(Safety::Quorum(2), 2) };
    let set = InSyncSet { level: config.safety, quorum: Some(2), ..set(&[NodeId(9), A, B], 1) };
    let none = BTreeSet::new();
    let mut rule = CommitRule::new(config, Lsn(0), ms(0)).recorded(me(), Term(2), Succession::Of(set), &none, ms(0));
    let acked = |standby, at, sent| Event::Acked { standby, persisted: Lsn(at), observed: Some(sent) };
    assert!(rule.lease_until() <= ms(0), "nobody has granted anything");
    let _ = rule.apply(Event::Written { number: 5, end: Lsn(10) }, ms(1));
    let _ = rule.apply(Event::Durable(Lsn(10)), ms(1));
    let _ = [A, B].map(|node| rule.apply(joined(node, 0), ms(1)));
    expect(&mut rule, acked(A, 10, ms(2)), ms(3), 10);
    assert_eq!(rule.lease_until(), ms(52), "from when it was sent, by one of two");
    let _ = rule.apply(acked(B, 10, ms(20)), ms(21));
    assert_eq!(rule.lease_until(), ms(70));
    let _ = rule.apply(acked(B, 10, ms(90)), ms(22));
    assert_eq!(rule.lease_until(), ms(70), "nobody has heard what is yet to be sent");
    let _ = rule.apply(Event::Durable(Lsn(30)), ms(69));
    expect(&mut rule, Event::Acked { standby: A, persisted: Lsn(30), observed: Some(ms(10)) }, ms(71), 10);
    expect(&mut rule, acked(A, 30, ms(71)), ms(72), 30);
    let _ = rule.apply(Event::Fenced { by: Term(3) }, ms(73));
    assert_eq!(rule.lease_until(), ms(0));
}
