use freshet_base::versions::Level;

use super::*;
use crate::in_sync::Noted;

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
